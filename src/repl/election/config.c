/* config.c - configurations as values: references, order, writing, editing, look-ups. */
#include "repl/election/config.h"

#include <stdio.h>

#include "base/alloc.h"
#include "repl/election/config_internal.h"

/* ---- references ---- */

ReplConfig *repl_config_ref(const ReplConfig *config) {
    ReplConfigHolder *holder = (ReplConfigHolder *)config;
    /* The caller holds a reference, so that nobody frees it meanwhile: no order needed. */
    __atomic_fetch_add(&holder->refs, 1, __ATOMIC_RELAXED);
    return &holder->config;
}

void repl_config_unref(ReplConfig *config) {
    if (config == NULL)
        return;
    ReplConfigHolder *holder = (ReplConfigHolder *)config;
    /* Pairs with itself: the last one to leave sees all reads of the others done. */
    if (__atomic_sub_fetch(&holder->refs, 1, __ATOMIC_ACQ_REL) > 0)
        return;
    arena_done(&holder->arena);
    xfree(holder);
}

void repl_config_unref_ptr(ReplConfig **config) {
    repl_config_unref(*config);
}

/* ---- writing ---- */

static void build_member(DocBuilder *b, const char *name, const ReplMemberConfig *member,
                         bool is_newly_added) {
    size_t opened = build_open_doc(b, name);
    build_i32(b, "_id", member->id);
    build_cstr(b, "host", member->host);
    build_bool(b, "arbiterOnly", member->is_arbiter);
    build_bool(b, "buildIndexes", member->builds_indexes);
    build_bool(b, "hidden", member->is_hidden);
    build_f64(b, "priority", member->priority);
    size_t tags = build_open_doc(b, "tags");
    for (uint32_t i = 0; i < member->tag_count; i++)
        build_cstr(b, member->tags[i].name, member->tags[i].value);
    build_close(b, tags);
    if (member->horizon_count > 0) {
        size_t horizons = build_open_doc(b, "horizons");
        for (uint32_t i = 0; i < member->horizon_count; i++)
            build_cstr(b, member->horizons[i].name, member->horizons[i].host);
        build_close(b, horizons);
    }
    build_i64(b, "secondaryDelaySecs", member->delay_secs);
    build_i32(b, "votes", member->is_vote_configured);
    if (is_newly_added)
        build_bool(b, "newlyAdded", true);
    build_close(b, opened);
}

static void build_settings(DocBuilder *b, const ReplConfig *config, const Oid *replica_set_id) {
    size_t opened = build_open_doc(b, "settings");
    build_bool(b, "chainingAllowed", config->is_chaining_allowed);
    build_i32(b, "heartbeatIntervalMillis", (int32_t)config->heartbeat_interval_ms);
    build_i32(b, "heartbeatTimeoutSecs", (int32_t)(config->heartbeat_timeout_ms / 1000));
    build_i32(b, "electionTimeoutMillis", (int32_t)config->election_timeout_ms);
    build_i32(b, "catchUpTimeoutMillis", (int32_t)config->catch_up_timeout_ms);
    build_i32(b, "catchUpTakeoverDelayMillis", (int32_t)config->catch_up_takeover_delay_ms);
    size_t modes = build_open_doc(b, "getLastErrorModes");
    for (uint32_t i = 0; i < config->mode_count; i++) {
        const ReplMode *mode = &config->modes[i];
        size_t tags = build_open_doc(b, mode->name);
        for (uint32_t k = 0; k < mode->tag_count; k++)
            build_i32(b, mode->tag_names[k], mode->counts[k]);
        build_close(b, tags);
    }
    build_close(b, modes);
    size_t defaults = build_open_doc(b, "getLastErrorDefaults");
    build_i32(b, "w", 1);
    build_i32(b, "wtimeout", 0);
    build_close(b, defaults);
    if (replica_set_id != NULL)
        build_oid(b, "replicaSetId", replica_set_id);
    build_close(b, opened);
}

Doc repl_config_build(Buffer *buf, const ReplConfig *config, const ReplConfigEdit *edit) {
    DocBuilder b;
    doc_builder_init(&b, buf);
    build_cstr(&b, "_id", config->set_name);
    build_i32(&b, "version", (int32_t)(edit ? edit->version : config->version));
    int64_t term = edit ? edit->term : config->term;
    if (term != REPL_CONFIG_TERM_NONE)
        build_i64(&b, "term", term);
    size_t members = build_open_array(&b, "members");
    for (uint32_t i = 0; i < config->member_count; i++) {
        char name[INDEX_NAME_SIZE];
        bool is_newly_added =
            edit ? (edit->newly_added_mask >> i) & 1 : config->members[i].is_newly_added;
        build_member(&b, index_name(i, name).data, &config->members[i], is_newly_added);
    }
    build_close(&b, members);
    if (config->is_config_server)
        build_bool(&b, "configsvr", true);
    build_i64(&b, "protocolVersion", 1);
    build_bool(&b, "writeConcernMajorityJournalDefault", config->is_majority_journaled);
    const Oid *id = config->has_replica_set_id ? &config->replica_set_id : NULL;
    build_settings(&b, config, edit && edit->replica_set_id ? edit->replica_set_id : id);
    return doc_builder_end(&b);
}

Doc repl_config_build_for_user(Buffer *buf, const ReplConfig *config) {
    ReplConfigEdit edit = {.version = config->version, .term = config->term};
    return repl_config_build(buf, config, &edit);
}

ReplConfig *repl_config_edit(const ReplConfig *config, const ReplConfigEdit *edit) {
    Buffer buf;
    buffer_init(&buf, BUFFER_UNBOUNDED);
    Doc doc = repl_config_build(&buf, config, edit);
    Error err = {0};
    ReplConfig *edited = NULL;
    ErrCode rc = repl_config_parse(doc, REPL_CONFIG_ALLOW_ARBITERS, &edited, &err);
    if (rc != ERR_OK)
        panic("an edited replica set configuration is not valid: %s", error_message(&err));
    buffer_done(&buf);
    return edited;
}

ErrCode repl_config_for_one(const char *set_name, const char *host, ReplConfig **ret_config,
                            Error *err) {
    CLEANUP(buffer_done) Buffer buf;
    buffer_init(&buf, BUFFER_UNBOUNDED);
    DocBuilder b;
    doc_builder_init(&b, &buf);
    build_cstr(&b, "_id", set_name);
    build_i32(&b, "version", 1);
    size_t members = build_open_array(&b, "members");
    size_t member = build_open_doc(&b, "0");
    build_i32(&b, "_id", 0);
    build_cstr(&b, "host", host);
    build_close(&b, member);
    build_close(&b, members);
    return repl_config_parse(doc_builder_end(&b), REPL_CONFIG_PARSE_DEFAULT, ret_config, err);
}

/* ---- order and look-ups ---- */

int repl_config_compare_ids(int64_t term_a, int64_t version_a, int64_t term_b, int64_t version_b) {
    bool has_terms = term_a != REPL_CONFIG_TERM_NONE && term_b != REPL_CONFIG_TERM_NONE;
    if (has_terms && term_a != term_b)
        return term_a < term_b ? -1 : 1;
    return version_a < version_b ? -1 : version_a > version_b;
}

int repl_config_compare(const ReplConfig *a, const ReplConfig *b) {
    return repl_config_compare_ids(a->term, a->version, b->term, b->version);
}

int32_t repl_config_find_host(const ReplConfig *config, const char *host) {
    for (uint32_t i = 0; i < config->member_count; i++)
        if (strcmp(config->members[i].host, host) == 0)
            return (int32_t)i;
    return REPL_INDEX_NONE;
}

int32_t repl_config_find_id(const ReplConfig *config, int32_t member_id) {
    for (uint32_t i = 0; i < config->member_count; i++)
        if (config->members[i].id == member_id)
            return (int32_t)i;
    return REPL_INDEX_NONE;
}

uint32_t repl_config_priority_rank(const ReplConfig *config, uint32_t member_index) {
    uint32_t rank = 0;
    for (uint32_t i = 0; i < config->member_count; i++)
        rank += config->members[i].priority > config->members[member_index].priority;
    return rank;
}

static bool port_is_valid(Str digits) {
    uint32_t port = 0;
    if (digits.size == 0 || digits.size > 5)
        return false;
    for (size_t i = 0; i < digits.size; i++) {
        if (digits.data[i] < '0' || digits.data[i] > '9')
            return false;
        port = port * 10 + (uint32_t)(digits.data[i] - '0');
    }
    return port >= 1 && port <= 65535;
}

bool repl_host_normalise(Str host, char ret_host[REPL_HOST_SIZE]) {
    if (host.size == 0 || host.size > 255 + 6)
        return false;
    for (size_t i = 0; i < host.size; i++)
        if ((uint8_t)host.data[i] <= ' ' || host.data[i] == 127 || host.data[i] == ',')
            return false;
    size_t name_size = host.size;
    if (host.data[0] == '[') { /* an IPv6 address */
        const char *close = memchr(host.data, ']', host.size);
        if (close == NULL || close == host.data + 1)
            return false;
        name_size = (size_t)(close + 1 - host.data);
    } else {
        const char *colon = memchr(host.data, ':', host.size);
        if (colon != NULL)
            name_size = (size_t)(colon - host.data);
        if (name_size == 0)
            return false;
    }
    if (name_size > 255)
        return false;
    memcpy(ret_host, host.data, host.size);
    ret_host[host.size] = '\0';
    if (name_size == host.size) {
        snprintf(ret_host + host.size, REPL_HOST_SIZE - host.size, ":%d", REPL_PORT_DEFAULT);
        return true;
    }
    return host.data[name_size] == ':' &&
           port_is_valid((Str){host.data + name_size + 1, host.size - name_size - 1});
}
