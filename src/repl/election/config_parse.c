/* config_parse.c - from the configuration document to ReplConfig, and all rules on the way. */
#include "base/alloc.h"
#include "repl/election/config_internal.h"
#include "repl/election/fields_internal.h"

enum {
    PRIORITY_MAX = 1000,
    DELAY_SECS_MAX = 366 * 24 * 3600,
};

typedef struct ConfigFields {
    char set_name[REPL_SET_NAME_SIZE];
    int64_t version;
    int64_t term;
    int64_t protocol_version;
    Doc members;
    Doc settings;
    bool is_config_server;
    bool is_majority_journaled;
} ConfigFields;

static const ReplFieldSpec CONFIG_FIELDS[] = {
    {"_id", REPL_FIELD_TEXT, offsetof(ConfigFields, set_name), 0, REPL_SET_NAME_SIZE, true},
    {"version", REPL_FIELD_I64, offsetof(ConfigFields, version), 1, REPL_CONFIG_VERSION_MAX, true},
    {"term", REPL_FIELD_I64, offsetof(ConfigFields, term), -1, INT64_MAX, false},
    {"members", REPL_FIELD_ARRAY, offsetof(ConfigFields, members), 0, 0, true},
    {"configsvr", REPL_FIELD_BOOL, offsetof(ConfigFields, is_config_server), 0, 0, false},
    {"protocolVersion", REPL_FIELD_I64, offsetof(ConfigFields, protocol_version), 0, 0, false},
    {"writeConcernMajorityJournalDefault", REPL_FIELD_BOOL,
     offsetof(ConfigFields, is_majority_journaled), 0, 0, false},
    {"settings", REPL_FIELD_DOC, offsetof(ConfigFields, settings), 0, 0, false},
};

typedef struct MemberFields {
    int64_t id;
    char host[REPL_HOST_SIZE];
    bool is_arbiter;
    bool builds_indexes;
    bool is_hidden;
    double priority;
    Doc tags;
    int64_t delay_secs;
    int64_t votes;
    Elem horizons;
    Elem newly_added;
} MemberFields;

static const ReplFieldSpec MEMBER_FIELDS[] = {
    {"_id", REPL_FIELD_I64, offsetof(MemberFields, id), 0, 0, true},
    {"host", REPL_FIELD_TEXT, offsetof(MemberFields, host), 0, REPL_HOST_SIZE, true},
    {"arbiterOnly", REPL_FIELD_BOOL, offsetof(MemberFields, is_arbiter), 0, 0, false},
    {"buildIndexes", REPL_FIELD_BOOL, offsetof(MemberFields, builds_indexes), 0, 0, false},
    {"hidden", REPL_FIELD_BOOL, offsetof(MemberFields, is_hidden), 0, 0, false},
    {"priority", REPL_FIELD_F64, offsetof(MemberFields, priority), 0, PRIORITY_MAX, false},
    {"tags", REPL_FIELD_DOC, offsetof(MemberFields, tags), 0, 0, false},
    {"secondaryDelaySecs", REPL_FIELD_I64, offsetof(MemberFields, delay_secs), 0, 0, false},
    {"votes", REPL_FIELD_I64, offsetof(MemberFields, votes), 0, 0, false},
    {"horizons", REPL_FIELD_ELEM, offsetof(MemberFields, horizons), 0, 0, false},
    {"newlyAdded", REPL_FIELD_ELEM, offsetof(MemberFields, newly_added), 0, 0, false},
};

typedef struct SettingsFields {
    bool is_chaining_allowed;
    int64_t heartbeat_interval_ms;
    int64_t heartbeat_timeout_secs;
    int64_t election_timeout_ms;
    int64_t catch_up_timeout_ms;
    int64_t catch_up_takeover_delay_ms;
    Doc modes;
    Doc defaults;
    Elem replica_set_id;
} SettingsFields;

static const ReplFieldSpec SETTINGS_FIELDS[] = {
    {"chainingAllowed", REPL_FIELD_BOOL, offsetof(SettingsFields, is_chaining_allowed), 0, 0,
     false},
    {"heartbeatIntervalMillis", REPL_FIELD_I64, offsetof(SettingsFields, heartbeat_interval_ms), 1,
     INT32_MAX, false},
    {"heartbeatTimeoutSecs", REPL_FIELD_I64, offsetof(SettingsFields, heartbeat_timeout_secs), 1,
     INT32_MAX, false},
    {"electionTimeoutMillis", REPL_FIELD_I64, offsetof(SettingsFields, election_timeout_ms), 1,
     INT32_MAX, false},
    {"catchUpTimeoutMillis", REPL_FIELD_I64, offsetof(SettingsFields, catch_up_timeout_ms), -1,
     INT32_MAX, false},
    {"catchUpTakeoverDelayMillis", REPL_FIELD_I64,
     offsetof(SettingsFields, catch_up_takeover_delay_ms), -1, INT32_MAX, false},
    {"getLastErrorModes", REPL_FIELD_DOC, offsetof(SettingsFields, modes), 0, 0, false},
    {"getLastErrorDefaults", REPL_FIELD_DOC, offsetof(SettingsFields, defaults), 0, 0, false},
    {"replicaSetId", REPL_FIELD_ELEM, offsetof(SettingsFields, replica_set_id), 0, 0, false},
    {"protocolVersion", REPL_FIELD_SKIP, 0, 0, 0, false}, /* never meant anything here; allowed */
};

static ErrCode parse_members(Doc array, ReplConfigParseFlags flags, ReplConfigHolder *holder,
                             Error *err);
static ErrCode parse_settings(Doc doc, ReplConfigHolder *holder, Error *err);
static void derive_counts(ReplConfig *config);
static ErrCode check_set(const ReplConfig *config, ReplConfigParseFlags flags, Error *err);
static void holder_free_ptr(ReplConfigHolder **holder);

ErrCode repl_config_parse(Doc doc, ReplConfigParseFlags flags, ReplConfig **ret_config,
                          Error *err) {
    ConfigFields fields = {
        .term = REPL_CONFIG_TERM_NONE,
        .protocol_version = 1,
        .is_majority_journaled = true,
        .settings = DOC_EMPTY,
    };
    TRY(repl_fields_parse(doc, "ReplSetConfig", CONFIG_FIELDS, ARRAY_LEN(CONFIG_FIELDS),
                          REPL_FIELDS_STRICT, &fields, err));
    if (fields.set_name[0] == '\0')
        return error_set(err, ERR_BAD_VALUE, "Replica set configuration must have non-empty _id");
    if (fields.protocol_version != 1)
        return error_set(err, ERR_BAD_VALUE,
                         "protocolVersion field value of %lld is not supported, it must be 1",
                         (long long)fields.protocol_version);

    CLEANUP(holder_free_ptr) ReplConfigHolder *holder = NEW(ReplConfigHolder);
    holder->refs = 1;
    arena_init(&holder->arena, /* chunk_size= */ 4096);
    ReplConfig *config = &holder->config;
    config->set_name = arena_strdup(&holder->arena, fields.set_name);
    config->version = fields.version;
    config->term = (flags & REPL_CONFIG_FROM_USER) ? REPL_CONFIG_TERM_NONE : fields.term;
    config->is_config_server = fields.is_config_server;
    config->is_majority_journaled = fields.is_majority_journaled;

    TRY(parse_members(fields.members, flags, holder, err));
    TRY(parse_settings(fields.settings, holder, err));
    derive_counts(config);
    TRY(check_set(config, flags, err));
    TRY(repl_horizons_check(config, flags, err));

    Buffer buf;
    buffer_init_arena(&buf, &holder->arena, 2048, BUFFER_UNBOUNDED);
    config->doc = repl_config_build(&buf, config, NULL);
    if (doc_size(config->doc) > BSON_DOC_SIZE_MAX)
        return error_set(err, ERR_BSON_OBJECT_TOO_LARGE,
                         "the replica set configuration is larger than the limit of %d bytes",
                         BSON_DOC_SIZE_MAX);
    *ret_config = &TAKE_PTR(holder)->config;
    return ERR_OK;
}

/* ---- members ---- */

static ErrCode parse_tags(Doc doc, Arena *arena, ReplMemberConfig *member, Error *err) {
    uint32_t count = doc_count(doc);
    if (count > REPL_TAGS_MAX)
        return error_set(err, ERR_BAD_VALUE, "a member may have at most %d tags", REPL_TAGS_MAX);
    ReplTag *tags = ARENA_ARRAY(arena, ReplTag, count);
    DocIter iter = doc_iter(doc);
    Elem elem;
    for (uint32_t i = 0; doc_iter_next(&iter, &elem); i++) {
        if (elem_type(elem) != BT_STRING)
            return error_set(err, ERR_TYPE_MISMATCH, "tags.%s field has non-string value: type %s",
                             elem_name(elem), bson_type_name(elem_type(elem)));
        Str value = elem_str(elem);
        if (str_has_char(value, '\0'))
            return error_set(err, ERR_BAD_VALUE, "tags.%s contains a NUL", elem_name(elem));
        for (uint32_t k = 0; k < i; k++)
            if (strcmp(tags[k].name, elem_name(elem)) == 0)
                return error_set(err, ERR_BAD_VALUE, "tags.%s is given twice", elem_name(elem));
        tags[i] = (ReplTag){arena_strdup(arena, elem_name(elem)),
                            arena_strndup(arena, value.data, value.size)};
    }
    member->tags = tags;
    member->tag_count = count;
    return ERR_OK;
}

static ErrCode check_member(const MemberFields *fields, const ReplMemberConfig *member,
                            Error *err) {
    if (fields->id < 0 || fields->id > REPL_MEMBER_ID_MAX)
        return error_set(err, ERR_BAD_VALUE, "_id field value of %lld is out of range",
                         (long long)fields->id);
    if (fields->votes != 0 && fields->votes != 1)
        return error_set(err, ERR_BAD_VALUE, "votes field value is %lld but must be 0 or 1",
                         (long long)fields->votes);
    if (fields->delay_secs < 0 || fields->delay_secs > DELAY_SECS_MAX)
        return error_set(err, ERR_BAD_VALUE,
                         "secondaryDelaySecs field value of %lld seconds is out of range",
                         (long long)fields->delay_secs);
    if (member->is_arbiter) {
        if (member->tag_count > 0)
            return error_set(err, ERR_BAD_VALUE, "Cannot set tags on arbiters.");
        if (!member->is_vote_configured)
            return error_set(err, ERR_BAD_VALUE, "Arbiter must vote (cannot have 0 votes)");
        if (member->priority != 0)
            return error_set(err, ERR_BAD_VALUE, "priority must be 0 when arbiterOnly=true");
        if (member->delay_secs > 0)
            return error_set(err, ERR_BAD_VALUE, "secondaryDelaySecs must be 0 for arbiters");
    }
    if (member->priority == 0)
        return ERR_OK;
    if (!member->is_vote_configured)
        return error_set(err, ERR_BAD_VALUE, "priority must be 0 when non-voting (votes:0)");
    if (member->delay_secs > 0)
        return error_set(err, ERR_BAD_VALUE, "priority must be 0 when secondaryDelaySecs is used");
    if (member->is_hidden)
        return error_set(err, ERR_BAD_VALUE, "priority must be 0 when hidden=true");
    if (!member->builds_indexes)
        return error_set(err, ERR_BAD_VALUE, "priority must be 0 when buildIndexes=false");
    return ERR_OK;
}

/* Hosts come from people: blanks around them are not meant. */
static Str trim(Str text) {
    while (text.size > 0 && text.data[0] == ' ')
        text = (Str){text.data + 1, text.size - 1};
    while (text.size > 0 && text.data[text.size - 1] == ' ')
        text.size--;
    return text;
}

static ErrCode parse_member(Doc doc, ReplConfigParseFlags flags, Arena *arena,
                            ReplMemberConfig *ret_member, Error *err) {
    MemberFields fields = {.priority = 1, .builds_indexes = true, .votes = 1, .tags = DOC_EMPTY};
    TRY(repl_fields_parse(doc, "MemberConfig", MEMBER_FIELDS, ARRAY_LEN(MEMBER_FIELDS),
                          REPL_FIELDS_STRICT, &fields, err));
    if (elem_is_present(fields.newly_added)) {
        if (flags & REPL_CONFIG_FROM_USER)
            return error_set(err, ERR_INVALID_REPLICA_SET_CONFIG,
                             "Cannot provide newlyAdded field to member config during reconfig");
        if (elem_type(fields.newly_added) != BT_BOOL || !elem_bool(fields.newly_added))
            return error_set(err, ERR_INVALID_REPLICA_SET_CONFIG,
                             "'newlyAdded' field must be true when it is given");
    }
    char host[REPL_HOST_SIZE];
    if (!repl_host_normalise(trim(str_from(fields.host)), host))
        return error_set(err, ERR_FAILED_TO_PARSE, "members.host \"%s\" is no host and port",
                         fields.host);

    ReplMemberConfig member = {
        .id = (int32_t)fields.id,
        .host = arena_strdup(arena, host),
        .priority = fields.priority,
        .is_vote_configured = fields.votes == 1,
        .is_arbiter = fields.is_arbiter,
        .is_hidden = fields.is_hidden,
        .builds_indexes = fields.builds_indexes,
        .is_newly_added = elem_is_present(fields.newly_added),
        .delay_secs = fields.delay_secs,
    };
    /* The default of 1 is meant for members that can use it. */
    if (member.is_arbiter && member.priority == 1)
        member.priority = 0;
    member.is_voter = member.is_vote_configured && !member.is_newly_added;
    member.is_electable = member.priority > 0 && !member.is_arbiter && !member.is_newly_added;
    TRY(parse_tags(fields.tags, arena, &member, err));
    if (elem_is_present(fields.horizons))
        TRY(repl_horizons_parse(fields.horizons, arena, &member, err));
    TRY(check_member(&fields, &member, err));
    *ret_member = member;
    return ERR_OK;
}

static ErrCode parse_members(Doc array, ReplConfigParseFlags flags, ReplConfigHolder *holder,
                             Error *err) {
    uint32_t count = doc_count(array);
    if (count < 1 || count > REPL_MEMBERS_MAX)
        return error_set(err, ERR_BAD_VALUE,
                         "Replica set configuration contains %u members, but must have at least 1 "
                         "and no more than %d",
                         count, REPL_MEMBERS_MAX);
    ReplMemberConfig *members = ARENA_ARRAY(&holder->arena, ReplMemberConfig, count);
    DocIter iter = doc_iter(array);
    Elem elem;
    for (uint32_t i = 0; doc_iter_next(&iter, &elem); i++) {
        if (elem_type(elem) != BT_DOC)
            return error_set(err, ERR_TYPE_MISMATCH,
                             "BSON field 'ReplSetConfig.members.%u' is the wrong type '%s', "
                             "expected type 'object'",
                             i, bson_type_name(elem_type(elem)));
        TRY(parse_member(elem_doc(elem), flags, &holder->arena, &members[i], err));
        for (uint32_t k = 0; k < i; k++) {
            if (members[k].id == members[i].id)
                return error_set(err, ERR_BAD_VALUE,
                                 "Found two member configurations with same _id field, "
                                 "members.%u._id == members.%u._id == %d",
                                 k, i, members[i].id);
            if (strcmp(members[k].host, members[i].host) == 0)
                return error_set(err, ERR_BAD_VALUE,
                                 "Found two member configurations with same host field, "
                                 "members.%u.host == members.%u.host == %s",
                                 k, i, members[i].host);
        }
    }
    holder->config.members = members;
    holder->config.member_count = count;
    return ERR_OK;
}

/* ---- settings ---- */

static bool is_tag_known(const ReplConfig *config, const char *name) {
    for (uint32_t i = 0; i < config->member_count; i++)
        for (uint32_t k = 0; k < config->members[i].tag_count; k++)
            if (strcmp(config->members[i].tags[k].name, name) == 0)
                return true;
    return false;
}

static ErrCode parse_mode(Elem elem, ReplConfigHolder *holder, ReplMode *ret_mode, Error *err) {
    const char *name = elem_name(elem);
    if (elem_type(elem) != BT_DOC)
        return error_set(err, ERR_TYPE_MISMATCH,
                         "Expected settings.getLastErrorModes.%s to be an Object, not %s", name,
                         bson_type_name(elem_type(elem)));
    uint32_t count = doc_count(elem_doc(elem));
    if (count > REPL_TAGS_MAX)
        return error_set(err, ERR_BAD_VALUE, "settings.getLastErrorModes.%s has more than %d tags",
                         name, REPL_TAGS_MAX);
    const char **tag_names = ARENA_ARRAY(&holder->arena, const char *, count);
    int32_t *counts = ARENA_ARRAY(&holder->arena, int32_t, count);
    DocIter iter = doc_iter(elem_doc(elem));
    Elem tag;
    for (uint32_t i = 0; doc_iter_next(&iter, &tag); i++) {
        if (!elem_is_number(tag))
            return error_set(err, ERR_TYPE_MISMATCH,
                             "Expected settings.getLastErrorModes.%s.%s to be a number, not %s",
                             name, elem_name(tag), bson_type_name(elem_type(tag)));
        int64_t value = elem_as_i64(tag);
        if (value <= 0 || value > INT32_MAX)
            return error_set(
                err, ERR_BAD_VALUE,
                "Value of settings.getLastErrorModes.%s.%s must be positive, but found "
                "%lld",
                name, elem_name(tag), (long long)value);
        if (!is_tag_known(&holder->config, elem_name(tag)))
            return error_set(err, ERR_NO_SUCH_KEY, "No replica set tag key %s in config",
                             elem_name(tag));
        tag_names[i] = arena_strdup(&holder->arena, elem_name(tag));
        counts[i] = (int32_t)value;
    }
    *ret_mode = (ReplMode){arena_strdup(&holder->arena, name), tag_names, counts, count};
    return ERR_OK;
}

static ErrCode parse_modes(Doc doc, ReplConfigHolder *holder, Error *err) {
    uint32_t count = doc_count(doc);
    if (count > REPL_MODES_MAX)
        return error_set(err, ERR_BAD_VALUE, "settings.getLastErrorModes has more than %d modes",
                         REPL_MODES_MAX);
    ReplMode *modes = ARENA_ARRAY(&holder->arena, ReplMode, count);
    DocIter iter = doc_iter(doc);
    Elem elem;
    for (uint32_t i = 0; doc_iter_next(&iter, &elem); i++) {
        for (uint32_t k = 0; k < i; k++)
            if (strcmp(modes[k].name, elem_name(elem)) == 0)
                return error_set(err, ERR_DUPLICATE_KEY,
                                 "settings.getLastErrorModes contains multiple fields named %s",
                                 elem_name(elem));
        TRY(parse_mode(elem, holder, &modes[i], err));
    }
    holder->config.modes = modes;
    holder->config.mode_count = count;
    return ERR_OK;
}

static ErrCode parse_settings(Doc doc, ReplConfigHolder *holder, Error *err) {
    SettingsFields fields = {
        .is_chaining_allowed = true,
        .heartbeat_interval_ms = 2000,
        .heartbeat_timeout_secs = 10,
        .election_timeout_ms = 10000,
        .catch_up_timeout_ms = -1,
        .catch_up_takeover_delay_ms = 30000,
        .modes = DOC_EMPTY,
        .defaults = DOC_EMPTY,
    };
    TRY(repl_fields_parse(doc, "ReplSetConfigSettings", SETTINGS_FIELDS, ARRAY_LEN(SETTINGS_FIELDS),
                          REPL_FIELDS_STRICT, &fields, err));
    ReplConfig *config = &holder->config;
    config->is_chaining_allowed = fields.is_chaining_allowed;
    config->heartbeat_interval_ms = fields.heartbeat_interval_ms;
    config->heartbeat_timeout_ms = fields.heartbeat_timeout_secs * 1000;
    config->election_timeout_ms = fields.election_timeout_ms;
    config->catch_up_timeout_ms = fields.catch_up_timeout_ms;
    config->catch_up_takeover_delay_ms = fields.catch_up_takeover_delay_ms;
    if (elem_is_present(fields.replica_set_id)) {
        if (elem_type(fields.replica_set_id) != BT_OID)
            return error_set(err, ERR_TYPE_MISMATCH,
                             "BSON field 'ReplSetConfigSettings.replicaSetId' is the wrong type "
                             "'%s', expected type 'objectId'",
                             bson_type_name(elem_type(fields.replica_set_id)));
        config->replica_set_id = *elem_oid(fields.replica_set_id);
        config->has_replica_set_id = true;
    }
    /* Write concern defaults moved to setDefaultRWConcern; only the built-in value may be named. */
    DocIter iter = doc_iter(fields.defaults);
    Elem elem;
    while (doc_iter_next(&iter, &elem)) {
        bool is_w =
            strcmp(elem_name(elem), "w") == 0 && elem_is_number(elem) && elem_as_i64(elem) == 1;
        bool is_wtimeout = strcmp(elem_name(elem), "wtimeout") == 0 && elem_is_number(elem) &&
                           elem_as_i64(elem) == 0;
        if (!is_w && !is_wtimeout)
            return error_set(err, ERR_BAD_VALUE,
                             "settings.getLastErrorDefaults must be {w: 1, wtimeout: 0}; use "
                             "setDefaultRWConcern instead");
    }
    return parse_modes(fields.modes, holder, err);
}

/* ---- the set as a whole ---- */

static void derive_counts(ReplConfig *config) {
    for (uint32_t i = 0; i < config->member_count; i++) {
        const ReplMemberConfig *member = &config->members[i];
        config->voter_count += member->is_voter;
        config->arbiter_count += member->is_arbiter;
        config->data_count += !member->is_arbiter;
        config->data_voter_count += member->is_voter && !member->is_arbiter;
    }
    config->majority_count = config->voter_count / 2 + 1;
    config->write_majority_count = config->majority_count < config->data_voter_count
                                       ? config->majority_count
                                       : config->data_voter_count;
}

static bool is_localhost(const char *host) {
    return strncmp(host, "localhost:", 10) == 0 || strncmp(host, "127.", 4) == 0 ||
           strncmp(host, "[::1]:", 6) == 0;
}

static ErrCode check_config_server(const ReplConfig *config, Error *err) {
    for (uint32_t i = 0; i < config->member_count; i++) {
        const ReplMemberConfig *member = &config->members[i];
        if (member->is_arbiter)
            return error_set(err, ERR_BAD_VALUE,
                             "Arbiters are not allowed in replica set configurations being used "
                             "for config servers");
        if (!member->builds_indexes)
            return error_set(err, ERR_BAD_VALUE,
                             "Members in replica set configurations being used for config servers "
                             "must build indexes");
        if (member->delay_secs != 0)
            return error_set(err, ERR_BAD_VALUE,
                             "Members in replica set configurations being used for config servers "
                             "cannot have a non-zero secondaryDelaySecs");
    }
    if (!config->is_majority_journaled)
        return error_set(err, ERR_BAD_VALUE,
                         "writeConcernMajorityJournalDefault must be true in replica set "
                         "configurations being used for config servers");
    return ERR_OK;
}

static ErrCode check_set(const ReplConfig *config, ReplConfigParseFlags flags, Error *err) {
    uint32_t local_count = 0;
    uint32_t electable_count = 0;
    uint32_t vote_count = 0; /* with those of newly added members, which become voters one day */
    for (uint32_t i = 0; i < config->member_count; i++) {
        vote_count += config->members[i].is_vote_configured;
        local_count += is_localhost(config->members[i].host);
        electable_count += config->members[i].is_electable;
    }
    if (local_count != 0 && local_count != config->member_count)
        return error_set(err, ERR_BAD_VALUE,
                         "Either all host names in a replica set configuration must be localhost "
                         "references, or none must be; found %u out of %u",
                         local_count, config->member_count);
    if (config->voter_count < 1 || vote_count > REPL_VOTERS_MAX)
        return error_set(err, ERR_BAD_VALUE,
                         "Replica set configuration contains %u voting members, but must be at "
                         "least 1 and no more than %d",
                         vote_count, REPL_VOTERS_MAX);
    if (electable_count == 0)
        return error_set(err, ERR_BAD_VALUE,
                         "Replica set configuration must contain at least one non-arbiter member "
                         "with priority > 0");
    if (config->arbiter_count > 1 && !(flags & REPL_CONFIG_ALLOW_ARBITERS))
        return error_set(err, ERR_BAD_VALUE,
                         "Multiple arbiters are not allowed unless all nodes were started with "
                         "--setParameter 'allowMultipleArbiters=true'");
    if (config->is_config_server)
        return check_config_server(config, err);
    return ERR_OK;
}

static void holder_free_ptr(ReplConfigHolder **holder) {
    if (*holder != NULL)
        repl_config_unref(&(*holder)->config);
}
