/* config_check.c - what replSetInitiate and replSetReconfig ask of a new configuration. */
#include "repl/election/config.h"

static ErrCode check_members_kept(const ReplConfig *old_config, const ReplConfig *config,
                                  Error *err);
static ErrCode check_reconfig(const ReplReconfig *reconfig, const ReplConfig *config, Error *err);

/* Clients see one code for a broken document, whatever rule it broke. */
static ErrCode parse_for_command(Doc doc, ReplConfigParseFlags flags, ReplConfig **ret_config,
                                 Error *err) {
    ErrCode rc = repl_config_parse(doc, flags | REPL_CONFIG_FROM_USER, ret_config, err);
    if (rc != ERR_OK && rc != ERR_NOT_IMPLEMENTED)
        rc = err->code = ERR_INVALID_REPLICA_SET_CONFIG;
    return rc;
}

ErrCode repl_config_for_initiate(Doc doc, const char *set_name, const char *self_host,
                                 const Oid *replica_set_id, ReplConfigParseFlags flags,
                                 ReplConfig **ret_config, Error *err) {
    CLEANUP(repl_config_unref_ptr) ReplConfig *config = NULL;
    TRY(parse_for_command(doc, flags, &config, err));
    if (strcmp(config->set_name, set_name) != 0)
        return error_set(err, ERR_INVALID_REPLICA_SET_CONFIG,
                         "Attempting to initiate a replica set with name %s, but command line "
                         "reports %s; rejecting",
                         config->set_name, set_name);
    if (config->has_replica_set_id)
        return error_set(err, ERR_INVALID_REPLICA_SET_CONFIG,
                         "replica set configuration cannot contain 'settings.replicaSetId' field "
                         "when called from replSetInitiate");
    if (config->version != 1)
        return error_set(err, ERR_INVALID_REPLICA_SET_CONFIG,
                         "Configuration used to initiate a replica set must have version 1, but "
                         "found %lld",
                         (long long)config->version);
    int32_t self = repl_config_find_host(config, self_host);
    if (self == REPL_INDEX_NONE)
        return error_set(err, ERR_INVALID_REPLICA_SET_CONFIG,
                         "No host described in new configuration with {version: %lld, term: %lld} "
                         "for replica set %s maps to this node",
                         (long long)config->version, (long long)config->term, config->set_name);
    if (!config->members[self].is_electable)
        return error_set(err, ERR_INVALID_REPLICA_SET_CONFIG,
                         "This node, %s, with _id %d is not electable under the new configuration "
                         "with {version: %lld, term: %lld} for replica set %s",
                         self_host, config->members[self].id, (long long)config->version,
                         (long long)config->term, config->set_name);
    ReplConfigEdit edit = {
        .version = 1, .term = REPL_CONFIG_TERM_INITIAL, .replica_set_id = replica_set_id};
    *ret_config = repl_config_edit(config, &edit);
    return ERR_OK;
}

ErrCode repl_config_for_reconfig(Doc doc, const ReplReconfig *reconfig, ReplConfig **ret_config,
                                 Error *err) {
    const ReplConfig *old_config = reconfig->old_config;
    CLEANUP(repl_config_unref_ptr) ReplConfig *config = NULL;
    TRY(parse_for_command(doc, reconfig->flags, &config, err));

    ReplConfigEdit edit = {
        .version = config->version,
        .term = reconfig->is_force ? REPL_CONFIG_TERM_NONE : reconfig->term,
        .replica_set_id = old_config->has_replica_set_id ? &old_config->replica_set_id : NULL,
    };
    if (reconfig->is_force) {
        int64_t version =
            config->version > old_config->version ? config->version : old_config->version;
        edit.version = version + REPL_CONFIG_FORCE_STEP_MIN +
                       (int64_t)(reconfig->random % REPL_CONFIG_FORCE_STEP_RANGE);
        if (edit.version > REPL_CONFIG_VERSION_MAX)
            return error_set(err, ERR_NEW_REPLICA_SET_CONFIGURATION_INCOMPATIBLE,
                             "New replica set configuration version would be too large");
    }
    TRY(check_reconfig(reconfig, config, err));

    for (uint32_t i = 0; i < config->member_count; i++) {
        const ReplMemberConfig *member = &config->members[i];
        int32_t old_index = repl_config_find_id(old_config, member->id);
        bool is_known = old_index != REPL_INDEX_NONE &&
                        strcmp(old_config->members[old_index].host, member->host) == 0;
        /* A member that holds no data yet must not count: its vote could elect, and its ack
         * commit, what the rest does not have. Arbiters hold none ever. */
        bool is_marked =
            is_known ? old_config->members[old_index].is_newly_added : reconfig->marks_new_voters;
        bool is_self = strcmp(member->host, reconfig->self_host) == 0;
        if (is_marked && member->is_vote_configured && !member->is_arbiter && !is_self &&
            !reconfig->is_force)
            edit.newly_added_mask |= UINT64_C(1) << i;
    }
    *ret_config = repl_config_edit(config, &edit);
    if (!reconfig->is_force) {
        uint32_t changes = repl_config_count_voting_changes(old_config, *ret_config);
        if (changes > 1) {
            repl_config_unref(*ret_config);
            *ret_config = NULL;
            return error_set(err, ERR_NEW_REPLICA_SET_CONFIGURATION_INCOMPATIBLE,
                             "Non force replica set reconfig can only add or remove at most 1 "
                             "voting member.");
        }
    }
    return ERR_OK;
}

/* With an arbiter and two members that hold data, a majority of votes may be without what only the
 * old one of them has: a second one that can be elected must have been a voter before. */
static ErrCode check_data_and_arbiter(const ReplConfig *old_config, const ReplConfig *config,
                                      Error *err) {
    uint32_t data_voters = 0, arbiters = 0, candidates = 0;
    for (uint32_t i = 0; i < config->member_count; i++) {
        const ReplMemberConfig *member = &config->members[i];
        arbiters += member->is_arbiter && member->is_vote_configured;
        data_voters += !member->is_arbiter && member->is_vote_configured;
        candidates += !member->is_arbiter && member->priority > 0;
    }
    if (config->member_count != 3 || arbiters != 1 || data_voters != 2 || candidates != 2 ||
        old_config->data_voter_count != 1)
        return ERR_OK;
    return error_set(err, ERR_NEW_REPLICA_SET_CONFIGURATION_INCOMPATIBLE,
                     "the second member that holds data beside an arbiter must become a voter with "
                     "priority 0 first, and get a priority in another reconfiguration");
}

static ErrCode check_reconfig(const ReplReconfig *reconfig, const ReplConfig *config, Error *err) {
    const ReplConfig *old_config = reconfig->old_config;
    const ErrCode code = ERR_NEW_REPLICA_SET_CONFIGURATION_INCOMPATIBLE;
    if (strcmp(config->set_name, old_config->set_name) != 0)
        return error_set(err, code,
                         "New and old configurations differ in replica set name; old was %s, and "
                         "new is %s",
                         old_config->set_name, config->set_name);
    if (config->has_replica_set_id && old_config->has_replica_set_id &&
        memcmp(&config->replica_set_id, &old_config->replica_set_id, sizeof(Oid)) != 0) {
        char old_hex[OID_HEX_SIZE], new_hex[OID_HEX_SIZE];
        oid_to_hex(&old_config->replica_set_id, old_hex);
        oid_to_hex(&config->replica_set_id, new_hex);
        return error_set(err, code,
                         "New and old configurations differ in replica set ID; old was %s, and new "
                         "is %s",
                         old_hex, new_hex);
    }
    if (config->is_config_server != old_config->is_config_server)
        return error_set(err, code,
                         "New and old configurations differ in the setting of the configsvr field; "
                         "old was %s, and new is %s",
                         old_config->is_config_server ? "true" : "false",
                         config->is_config_server ? "true" : "false");
    if (!reconfig->is_force && config->version <= old_config->version)
        return error_set(err, code,
                         "New replica set configuration version must be greater than old, but %lld "
                         "is not greater than %lld for replica set %s",
                         (long long)config->version, (long long)old_config->version,
                         config->set_name);
    TRY(check_members_kept(old_config, config, err));

    int32_t self = repl_config_find_host(config, reconfig->self_host);
    if (self == REPL_INDEX_NONE)
        return error_set(err, code,
                         "No host described in new configuration with {version: %lld, term: %lld} "
                         "for replica set %s maps to this node",
                         (long long)config->version, (long long)config->term, config->set_name);
    if (!reconfig->is_force)
        TRY(check_data_and_arbiter(old_config, config, err));
    if (!reconfig->is_force && !config->members[self].is_electable)
        return error_set(err, code,
                         "This node, %s, with _id %d is not electable under the new configuration "
                         "with {version: %lld, term: %lld} for replica set %s",
                         reconfig->self_host, config->members[self].id, (long long)config->version,
                         (long long)config->term, config->set_name);
    return ERR_OK;
}

static ErrCode check_members_kept(const ReplConfig *old_config, const ReplConfig *config,
                                  Error *err) {
    const ErrCode code = ERR_NEW_REPLICA_SET_CONFIGURATION_INCOMPATIBLE;
    for (uint32_t i = 0; i < config->member_count; i++) {
        const ReplMemberConfig *new_member = &config->members[i];
        int32_t by_host = repl_config_find_host(old_config, new_member->host);
        if (by_host == REPL_INDEX_NONE)
            continue;
        const ReplMemberConfig *old_member = &old_config->members[by_host];
        if (old_member->id != new_member->id)
            return error_set(err, code,
                             "New and old configurations both have members with host of %s but in "
                             "the new configuration the _id field is %d and in the old "
                             "configuration it is %d for replica set %s",
                             new_member->host, new_member->id, old_member->id, config->set_name);
        if (old_member->builds_indexes != new_member->builds_indexes)
            return error_set(err, code,
                             "New and old configurations differ in the setting of the buildIndexes "
                             "field for member %s; to make this change, remove then re-add the "
                             "member",
                             new_member->host);
        if (old_member->is_arbiter != new_member->is_arbiter)
            return error_set(err, code,
                             "New and old configurations differ in the setting of the arbiterOnly "
                             "field for member %s; to make this change, remove then re-add the "
                             "member",
                             new_member->host);
    }
    return ERR_OK;
}

/* A member is known by its _id; a voter that gets another host is one that goes and one that
 * comes. */
static bool is_voter_of(const ReplConfig *config, const ReplMemberConfig *member) {
    int32_t index = repl_config_find_id(config, member->id);
    return index != REPL_INDEX_NONE && config->members[index].is_voter &&
           strcmp(config->members[index].host, member->host) == 0;
}

static uint32_t count_voters_missing(const ReplConfig *from, const ReplConfig *in) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < from->member_count; i++)
        count += from->members[i].is_voter && !is_voter_of(in, &from->members[i]);
    return count;
}

uint32_t repl_config_count_voting_changes(const ReplConfig *a, const ReplConfig *b) {
    return count_voters_missing(a, b) + count_voters_missing(b, a);
}
