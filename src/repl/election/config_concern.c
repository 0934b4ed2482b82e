/* config_concern.c - majorities and write concerns over the members of a configuration. */
#include "repl/election/config.h"

/* The value of a member's tag, or NULL. */
static const char *member_tag(const ReplMemberConfig *member, const char *name) {
    for (uint32_t i = 0; i < member->tag_count; i++)
        if (strcmp(member->tags[i].name, name) == 0)
            return member->tags[i].value;
    return NULL;
}

static const ReplMode *find_mode(const ReplConfig *config, Str name) {
    for (uint32_t i = 0; i < config->mode_count; i++)
        if (str_is(name, config->modes[i].name))
            return &config->modes[i];
    return NULL;
}

/* Distinct values of a tag among the members of the mask. */
static uint32_t count_tag_values(const ReplConfig *config, const char *tag, uint64_t member_mask) {
    const char *values[REPL_MEMBERS_MAX];
    uint32_t count = 0;
    for (uint32_t i = 0; i < config->member_count; i++) {
        const char *value = member_tag(&config->members[i], tag);
        if (value == NULL || ((member_mask >> i) & 1) == 0)
            continue;
        uint32_t k = 0;
        while (k < count && strcmp(values[k], value) != 0)
            k++;
        if (k == count)
            values[count++] = value;
    }
    return count;
}

static bool is_mode_met(const ReplConfig *config, const ReplMode *mode, uint64_t member_mask) {
    for (uint32_t i = 0; i < mode->tag_count; i++)
        if (count_tag_values(config, mode->tag_names[i], member_mask) < (uint32_t)mode->counts[i])
            return false;
    return true;
}

/* Would the members of the mask (data-bearing ones) do? */
static bool is_met_by(const ReplConfig *config, const ReplWriteConcern *concern,
                      uint64_t member_mask) {
    if (concern->kind == REPL_W_NUMBER)
        return __builtin_popcountll(member_mask) >= concern->number;
    uint32_t voters = 0;
    for (uint32_t i = 0; i < config->member_count; i++)
        voters += ((member_mask >> i) & 1) && config->members[i].is_voter;
    if (concern->kind == REPL_W_MAJORITY)
        return voters >= config->write_majority_count;
    if (str_is(concern->mode, REPL_WRITE_CONCERN_VOTING))
        return voters >= config->data_voter_count;
    const ReplMode *mode = find_mode(config, concern->mode);
    return mode != NULL && is_mode_met(config, mode, member_mask);
}

/* Could the members of the mask, data-bearing ones, ever do? */
static ErrCode check_by(const ReplConfig *config, const ReplWriteConcern *concern,
                        uint64_t member_mask, Error *err) {
    bool is_named = concern->kind == REPL_W_MODE;
    if (is_named && !str_is(concern->mode, REPL_WRITE_CONCERN_VOTING) &&
        find_mode(config, concern->mode) == NULL)
        return error_set(err, ERR_UNKNOWN_REPL_WRITE_CONCERN,
                         "No write concern mode named '%.*s' found in replica set configuration",
                         (int)concern->mode.size, concern->mode.data);
    if (is_met_by(config, concern, member_mask))
        return ERR_OK;
    if (is_named)
        return error_set(err, ERR_UNSATISFIABLE_WRITE_CONCERN,
                         "Not enough nodes match write concern mode \"%.*s\"",
                         (int)concern->mode.size, concern->mode.data);
    return error_set(err, ERR_UNSATISFIABLE_WRITE_CONCERN, "Not enough data-bearing nodes");
}

ErrCode repl_config_check_write_concern(const ReplConfig *config, const ReplWriteConcern *concern,
                                        Error *err) {
    uint64_t data_mask = 0;
    for (uint32_t i = 0; i < config->member_count; i++)
        if (!config->members[i].is_arbiter)
            data_mask |= UINT64_C(1) << i;
    return check_by(config, concern, data_mask, err);
}

ErrCode repl_config_check_commit_quorum(const ReplConfig *config, const ReplWriteConcern *quorum,
                                        Error *err) {
    uint64_t builder_mask = 0;
    for (uint32_t i = 0; i < config->member_count; i++)
        if (!config->members[i].is_arbiter && config->members[i].builds_indexes)
            builder_mask |= UINT64_C(1) << i;
    return check_by(config, quorum, builder_mask, err);
}

bool repl_config_is_concern_met(const ReplConfig *config, const ReplWriteConcern *concern,
                                const OpTime *member_optimes, OpTime optime) {
    uint64_t mask = 0;
    for (uint32_t i = 0; i < config->member_count; i++)
        if (!config->members[i].is_arbiter && optime_compare(member_optimes[i], optime) >= 0)
            mask |= UINT64_C(1) << i;
    return is_met_by(config, concern, mask);
}

OpTime repl_config_majority_optime(const ReplConfig *config, const OpTime *member_optimes) {
    OpTime newest_first[REPL_MEMBERS_MAX];
    uint32_t count = 0;
    for (uint32_t i = 0; i < config->member_count; i++) {
        if (!config->members[i].is_voter || config->members[i].is_arbiter)
            continue;
        uint32_t at = count++;
        for (; at > 0 && optime_compare(newest_first[at - 1], member_optimes[i]) < 0; at--)
            newest_first[at] = newest_first[at - 1];
        newest_first[at] = member_optimes[i];
    }
    uint32_t need = config->write_majority_count;
    return need > 0 && count >= need ? newest_first[need - 1] : OPTIME_NONE;
}

ReplWriteConcern repl_config_implicit_write_concern(const ReplConfig *config) {
    if (config->arbiter_count > 0 && config->data_voter_count <= config->majority_count)
        return (ReplWriteConcern){.kind = REPL_W_NUMBER, .number = 1};
    return (ReplWriteConcern){.kind = REPL_W_MAJORITY};
}
