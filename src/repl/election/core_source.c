/* core_source.c - whom to copy the log from. */
#include <stdio.h>

#include "repl/election/core_internal.h"

enum {
    MS_PER_HOUR = 3600 * 1000,
    WISH_LAG_SECS_WARN = 10,
};

typedef enum SourcePass {
    SOURCE_PASS_STRICT, /* also those rules that only say whom one would rather have */
    SOURCE_PASS_LOOSE,
} SourcePass;

static bool is_denied(const ReplCore *core, ReplNow now, const char *host) {
    for (uint32_t i = 0; i < core->denied_count; i++)
        if (strcmp(core->denied[i].host, host) == 0 && now.mono_ms < core->denied[i].until_ms)
            return true;
    return false;
}

/* Without a primary for long, a set that may only copy from one would never get one where those who
 * have the newest entry cannot be elected. */
static bool is_chaining_allowed(const ReplCore *core, ReplNow now) {
    bool is_orphaned = core->primary_index == REPL_INDEX_NONE &&
                       now.mono_ms - core->primary_lost_ms >= core->config->election_timeout_ms;
    return core->config->is_chaining_allowed || core->options.is_chaining_override || is_orphaned;
}

/* The oldest second of an acceptable source, in the strict pass. */
static int64_t oldest_secs(const ReplCore *core) {
    if (core->primary_index == REPL_INDEX_NONE || core->primary_index == core->self_index ||
        core->is_any_lag_fine)
        return INT64_MIN;
    return (int64_t)ts_seconds(core->peers[core->primary_index].applied.optime.ts) -
           core->options.source_lag_secs_max;
}

static bool is_candidate_source(const ReplCore *core, ReplNow now, uint32_t index,
                                OpTime last_fetched, SourcePass pass) {
    const ReplMemberConfig *self = core_self(core);
    const ReplMemberConfig *member = &core->config->members[index];
    const ReplPeer *peer = &core->peers[index];
    if ((int32_t)index == core->self_index || member->is_arbiter || !peer->is_up)
        return false;
    if (peer->state != REPL_PRIMARY && peer->state != REPL_SECONDARY)
        return false;
    if (!is_chaining_allowed(core, now) && core->primary_index != (int32_t)index &&
        !core_is_primary(core))
        return false;
    if (self->builds_indexes && !member->builds_indexes)
        return false;
    /* Compared by term first: a member of an older term is behind, however late its clock. */
    if (optime_compare(peer->heard_applied, last_fetched) <= 0)
        return false;
    if (is_denied(core, now, member->host))
        return false;
    if (pass == SOURCE_PASS_LOOSE)
        return true;
    if (self->is_voter && !member->is_voter)
        return false;
    if (member->is_hidden || member->delay_secs > self->delay_secs)
        return false;
    return (int64_t)ts_seconds(peer->heard_applied.ts) >= oldest_secs(core);
}

static int32_t nearest_candidate(const ReplCore *core, ReplNow now, OpTime last_fetched,
                                 SourcePass pass) {
    int32_t best = REPL_INDEX_NONE;
    for (uint32_t i = 0; i < core->config->member_count; i++) {
        if (!is_candidate_source(core, now, i, last_fetched, pass))
            continue;
        if (best == REPL_INDEX_NONE || core->peers[i].ping_ms < core->peers[best].ping_ms)
            best = (int32_t)i;
    }
    return best;
}

static const char *forced_source(const ReplCore *core) {
    return core->options.forced_source_host[0] != '\0' ? core->options.forced_source_host
                                                       : core->test_source_host;
}

void repl_core_set_test_source(ReplCore *core, const char *host, bool is_any_lag_fine) {
    core->is_any_lag_fine = is_any_lag_fine;
    snprintf(core->test_source_host, sizeof(core->test_source_host), "%s", host);
}

/* A host requested by name: only what makes fetching impossible rules it out. */
static int32_t take_wish(ReplCore *core) {
    const char *forced = forced_source(core);
    const char *host = forced[0] != '\0' ? forced : core->wished_source_host;
    int32_t index = host[0] == '\0' ? REPL_INDEX_NONE : repl_config_find_host(core->config, host);
    core->wished_source_host[0] = '\0';
    if (index == REPL_INDEX_NONE || index == core->self_index ||
        core->config->members[index].is_arbiter)
        return REPL_INDEX_NONE;
    return index;
}

int32_t repl_core_choose_sync_source(ReplCore *core, ReplNow now, OpTime last_fetched) {
    core_begin_event(core, now);
    const ReplMemberConfig *self = core_self(core);
    bool may_fetch = self != NULL && !self->is_arbiter && (core->phase <= REPL_PHASE_CATCH_UP);
    int32_t chosen = REPL_INDEX_NONE;
    if (may_fetch) {
        chosen = take_wish(core);
        if (chosen == REPL_INDEX_NONE)
            chosen = nearest_candidate(core, now, last_fetched, SOURCE_PASS_STRICT);
        if (chosen == REPL_INDEX_NONE)
            chosen = nearest_candidate(core, now, last_fetched, SOURCE_PASS_LOOSE);
    }
    if (chosen != core->source_index && chosen != REPL_INDEX_NONE)
        core->source_changes_ms[core->source_change_count++ % SOURCE_CHANGES_KEPT_MAX] =
            now.mono_ms;
    core->source_index = chosen;
    core->source_news = last_fetched;
    core->source_news_ms = now.mono_ms;
    return chosen;
}

void repl_core_clear_sync_source(ReplCore *core) {
    core->source_index = REPL_INDEX_NONE;
}

/* ---- looking for a better one ---- */

static uint32_t changes_within_hour(const ReplCore *core, ReplNow now) {
    uint32_t kept = core->source_change_count < SOURCE_CHANGES_KEPT_MAX ? core->source_change_count
                                                                        : SOURCE_CHANGES_KEPT_MAX;
    uint32_t count = 0;
    for (uint32_t i = 0; i < kept; i++)
        count += now.mono_ms - core->source_changes_ms[i] < MS_PER_HOUR;
    return count;
}

static bool is_much_closer_known(const ReplCore *core, ReplNow now, OpTime last_fetched) {
    if ((int64_t)changes_within_hour(core, now) >= core->options.source_changes_per_hour_max)
        return false;
    int32_t nearest = nearest_candidate(core, now, last_fetched, SOURCE_PASS_STRICT);
    if (nearest == REPL_INDEX_NONE || nearest == core->source_index)
        return false;
    int64_t source_ping_ms = core->peers[core->source_index].ping_ms;
    return source_ping_ms >= 0 && core->peers[nearest].ping_ms >= 0 &&
           core->peers[nearest].ping_ms + core->options.source_change_threshold_ms < source_ping_ms;
}

/* Whether another candidate is ahead of the source by more than the allowed lag. */
static bool is_source_lagging(const ReplCore *core, ReplNow now, OpTime last_fetched,
                              OpTime source_applied) {
    if (core->is_any_lag_fine)
        return false;
    int64_t limit = (int64_t)ts_seconds(source_applied.ts) + core->options.source_lag_secs_max;
    for (uint32_t i = 0; i < core->config->member_count; i++)
        if ((int32_t)i != core->source_index &&
            is_candidate_source(core, now, i, last_fetched, SOURCE_PASS_STRICT) &&
            (int64_t)ts_seconds(core->peers[i].heard_applied.ts) > limit)
            return true;
    return false;
}

/* Members that sync from each other in a cycle never get anything new: each has a source, none is
 * ahead. One that knows a better source for an election time-out leaves the cycle. */
static bool is_source_of_no_use(const ReplCore *core, ReplNow now, OpTime last_fetched) {
    if (now.mono_ms - core->source_news_ms < core->config->election_timeout_ms)
        return false;
    int32_t other = nearest_candidate(core, now, last_fetched, SOURCE_PASS_LOOSE);
    return other != REPL_INDEX_NONE && other != core->source_index;
}

static const char *why_change(const ReplCore *core, ReplNow now, OpTime last_fetched,
                              const ReplOplogMetadata *metadata) {
    if (core_self(core) == NULL || core->source_index == REPL_INDEX_NONE)
        return "the source is not in the configuration";
    if (core->wished_source_host[0] != '\0')
        return "another source was asked for";
    if (forced_source(core)[0] != '\0')
        return strcmp(forced_source(core), core->config->members[core->source_index].host) != 0
                   ? "another source is set by parameter"
                   : NULL;
    bool is_source_primary = core->source_index == core->primary_index;
    if (!is_chaining_allowed(core, now) && !is_source_primary && !core_is_primary(core) &&
        core->primary_index != REPL_INDEX_NONE)
        return "chaining is not allowed and the source is not the primary";
    bool is_ahead = optime_compare(metadata->last_applied, last_fetched) > 0;
    if (optime_compare(metadata->last_applied, last_fetched) < 0)
        return "the source is behind";
    if (!is_ahead && !is_source_primary && metadata->source_index == REPL_INDEX_NONE &&
        metadata->source_host[0] == '\0')
        return "the source has no source and is not ahead";
    if (!is_ahead && strcmp(metadata->source_host, core->self_host) == 0)
        return "the source copies from this member";
    if (!is_ahead && is_source_of_no_use(core, now, last_fetched))
        return "the source has had nothing new while another member is ahead";
    if (is_source_lagging(core, now, last_fetched, metadata->last_applied))
        return "another member is further ahead than lag is allowed";
    if (is_much_closer_known(core, now, last_fetched))
        return "another member is closer";
    return NULL;
}

bool repl_core_should_change_source(ReplCore *core, ReplNow now, OpTime last_fetched,
                                    const ReplOplogMetadata *metadata, const char **ret_reason) {
    core_begin_event(core, now);
    if (optime_compare(last_fetched, core->source_news) > 0 ||
        optime_compare(metadata->last_applied, last_fetched) > 0) {
        core->source_news = last_fetched;
        core->source_news_ms = now.mono_ms;
    }
    const char *reason = why_change(core, now, last_fetched, metadata);
    if (reason == NULL)
        return false;
    *ret_reason = reason;
    return true;
}

void repl_core_deny_source(ReplCore *core, ReplNow now, const char *host, int64_t for_ms) {
    core_begin_event(core, now);
    uint32_t at = 0;
    uint32_t oldest = 0;
    for (; at < core->denied_count; at++) {
        if (strcmp(core->denied[at].host, host) == 0)
            break;
        if (core->denied[at].until_ms < core->denied[oldest].until_ms)
            oldest = at;
    }
    if (at == DENYLIST_MAX)
        at = oldest;
    else if (at == core->denied_count)
        core->denied_count++;
    snprintf(core->denied[at].host, sizeof(core->denied[at].host), "%s", host);
    core->denied[at].until_ms = now.mono_ms + for_ms;
}

/* ---- replSetSyncFrom ---- */

ErrCode repl_core_sync_from(ReplCore *core, ReplNow now, const char *host, const char **ret_warning,
                            char ret_previous_host[REPL_HOST_SIZE], ReplActions *actions,
                            Error *err) {
    const ReplMemberConfig *self = core_self(core);
    if (self == NULL)
        return error_set(err, ERR_NOT_SECONDARY, "Removed and uninitialized nodes do not sync");
    if (core_is_primary(core))
        return error_set(err, ERR_NOT_SECONDARY, "primaries don't sync");
    if (self->is_arbiter)
        return error_set(err, ERR_NOT_SECONDARY, "arbiters don't sync");
    int32_t index = repl_config_find_host(core->config, host);
    if (index == REPL_INDEX_NONE)
        return error_set(err, ERR_NODE_NOT_FOUND, "Could not find member \"%s\" in replica set",
                         host);
    if (index == core->self_index)
        return error_set(err, ERR_INVALID_OPTIONS, "I cannot sync from myself");
    if (core->config->members[index].is_arbiter)
        return error_set(err, ERR_INVALID_OPTIONS,
                         "Cannot sync from \"%s\" because it is an arbiter", host);
    if (self->builds_indexes && !core->config->members[index].builds_indexes)
        return error_set(err, ERR_INVALID_OPTIONS,
                         "Cannot sync from \"%s\" because it does not build indexes", host);
    const ReplPeer *peer = &core->peers[index];
    if (!peer->is_up)
        return error_set(err, ERR_HOST_UNREACHABLE, "I cannot reach the requested member: %s",
                         host);
    *ret_warning = NULL;
    if ((int64_t)ts_seconds(peer->applied.optime.ts) + WISH_LAG_SECS_WARN <
        (int64_t)ts_seconds(core->applied.optime.ts))
        *ret_warning = "requested member is more than 10 seconds behind us";
    snprintf(ret_previous_host, REPL_HOST_SIZE, "%s",
             core->source_index == REPL_INDEX_NONE
                 ? ""
                 : core->config->members[core->source_index].host);
    core_begin_event(core, now);
    snprintf(core->wished_source_host, sizeof(core->wished_source_host), "%s", host);
    core_add_action(actions, REPL_ACTION_CHOOSE_SOURCE);
    core_end_event(core, actions);
    return ERR_OK;
}
