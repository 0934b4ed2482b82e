/* sim_node_test.c - the glue of one simulated member: log, fetching, rollback, storing. */
#include <stdio.h>

#include "base/alloc.h"
#include "repl/sim/sim_test.h"

static void do_action(SimWorld *world, SimNode *node, const ReplAction *action);
static void start_fetching(SimWorld *world, SimNode *node, int64_t after_ms);
static void report_positions(SimWorld *world, SimNode *node);
static void on_request(SimWorld *world, SimNode *node, SimEvent *event);
static void on_reply(SimWorld *world, SimNode *node, SimEvent *event);
static void on_rpc_timeout(SimWorld *world, SimNode *node, SimEvent *event);
static void fetch(SimWorld *world, SimNode *node);
static void apply_queue(SimWorld *world, SimNode *node);
static void check_drained(SimWorld *world, SimNode *node);
static void on_fetch_reply(SimWorld *world, SimNode *node, const SimRpc *rpc,
                           const SimFetchReply *reply);
static void flush(SimWorld *world, SimNode *node, const SimEvent *event);
static void store_config(SimWorld *world, SimNode *node, SimEvent *event);

/* ---- the log ---- */

SimEntry sim_log_last(const SimLog *log) {
    return log->count > 0 ? log->entries[log->count - 1] : (SimEntry){.optime = OPTIME_NONE};
}

void sim_log_append(SimLog *log, SimEntry entry) {
    ARRAY_RESERVE(log->entries, log->count, log->capacity);
    log->entries[log->count++] = entry;
}

static ReplPosition position_at(const SimLog *log, uint32_t count) {
    if (count == 0)
        return REPL_POSITION_NONE;
    OpTime optime = log->entries[count - 1].optime;
    return (ReplPosition){optime, (int64_t)ts_seconds(optime.ts) * 1000};
}

static void tell_own_position(SimWorld *world, SimNode *node) {
    repl_core_on_own_position(node->core, sim_now(world, node),
                              position_at(&node->log, node->log.count),
                              position_at(&node->log, node->log.durable_count), &node->actions);
}

/* Durable after a while; several appends share one flush. */
static void schedule_flush(SimWorld *world, SimNode *node) {
    if (node->is_flushing)
        return;
    node->is_flushing = true;
    SimEvent *event = sim_schedule(world, sim_random_ms(world, 1, world->election_timeout_ms / 10),
                                   SIM_EVENT_FLUSH, node);
    event->number = node->rollback_id;
}

static void flush(SimWorld *world, SimNode *node, const SimEvent *event) {
    node->is_flushing = false;
    (void)event;
    if (node->log.durable_count == node->log.count)
        return;
    node->log.durable_count = node->log.count;
    tell_own_position(world, node);
    report_positions(world, node);
}

void sim_node_write(SimWorld *world, SimNode *node, int64_t term) {
    SimEntry last = sim_log_last(&node->log);
    uint64_t wall_ts = (uint64_t)(sim_now(world, node).wall_ms / 1000) << 32 | 1;
    SimEntry entry = {
        .optime = {wall_ts > last.optime.ts ? wall_ts : last.optime.ts + 1, term},
        .previous = last.optime,
        .written_ms = world->now_ms,
    };
    entry.hash = (last.hash ^ prng_u64(&world->prng)) * 0x9E3779B97F4A7C15u;
    sim_log_append(&node->log, entry);
    sim_check_entry(world, node, entry);
    schedule_flush(world, node);
    tell_own_position(world, node);
}

/* ---- life ---- */

void sim_node_start(SimWorld *world, SimNode *node) {
    invariant(node->core == NULL);
    node->incarnation++;
    node->is_fetching = node->is_flushing = node->is_applying = node->has_stream = false;
    feed_init(&node->feed);
    node->queue.count = 0;
    node->write_term = 0;
    node->commit_seen = OPTIME_NONE;
    node->tick_at_ms = INT64_MAX;
    node->paused_until_ms = 0;
    node->log.durable_count = node->log.count; /* what was found on disk is there */
    ReplStart start = {
        .set_name = "sim",
        .self_host = node->host,
        .config = node->disk_config,
        .self_index = node->disk_config ? repl_config_find_host(node->disk_config, node->host)
                                        : REPL_INDEX_NONE,
        .last_vote = node->disk_vote,
        .last_applied = position_at(&node->log, node->log.count),
        .seed = prng_u64(&world->prng),
    };
    node->core = repl_core_new(&start, &world->options, sim_now(world, node));
    sim_trace(world, node, "starts, log %u, term %lld", node->log.count,
              (long long)repl_core_term(node->core));
    if (node->has_data)
        sim_schedule(world, sim_random_ms(world, 1, 100), SIM_EVENT_BECOME_SECONDARY, node);
    start_fetching(world, node, sim_random_ms(world, 1, 100));
    sim_schedule(world, world->election_timeout_ms / 2, SIM_EVENT_REPORT, node);
    sim_node_settle(world, node);
}

void sim_node_crash(SimWorld *world, SimNode *node) {
    sim_trace(world, node, "crashes");
    repl_core_free(node->core);
    node->core = NULL;
    repl_actions_clear(&node->actions);
    SimLog *log = &node->log;
    /* Of what was not flushed any part may have reached the disk. */
    if (world->is_journaled) {
        uint32_t unsynced = log->count - log->durable_count;
        log->count = log->durable_count + (uint32_t)prng_below(&world->prng, unsynced + 1);
    }
    if (world->broken == SIM_BREAK_FALSE_DURABLE && log->count > 1)
        log->count -= 1 + (uint32_t)prng_below(&world->prng, log->count / 2 + 1) % (log->count - 1);
    if (world->broken == SIM_BREAK_FORGET_VOTE)
        node->disk_vote = REPL_LAST_VOTE_NONE;
}

/* SIM_BREAK_COMMIT_ANY_TERM: what a majority has is taken for committed, whatever its term. */
static void commit_any_term(SimWorld *world, SimNode *node) {
    if (repl_core_state(node->core) != REPL_PRIMARY)
        return;
    const ReplConfig *config = repl_core_config(node->core);
    OpTime optimes[REPL_MEMBERS_MAX];
    for (uint32_t i = 0; i < config->member_count; i++)
        optimes[i] = repl_core_member(node->core, i).durable.optime;
    OpTime majority = repl_config_majority_optime(config, optimes);
    for (uint32_t i = 0; i < node->log.count; i++)
        if (optime_equal(node->log.entries[i].optime, majority))
            sim_declare_commit(world, node, majority, repl_core_term(node->core));
}

void sim_node_settle(SimWorld *world, SimNode *node) {
    while (node->core != NULL && node->actions.count > 0) {
        ReplActions actions = node->actions;
        node->actions = (ReplActions){0};
        for (uint32_t i = 0; i < actions.count && node->core != NULL; i++)
            do_action(world, node, &actions.items[i]);
        if (node->actions.items == NULL) { /* keep the memory for the next event */
            repl_actions_clear(&actions);
            node->actions = actions;
        } else {
            repl_actions_done(&actions);
        }
    }
    if (node->core == NULL)
        return;
    sim_check_node(world, node);
    if (world->broken == SIM_BREAK_COMMIT_ANY_TERM)
        commit_any_term(world, node);
    int64_t next = repl_core_next_tick_ms(node->core);
    if (next < node->tick_at_ms) {
        node->tick_at_ms = next;
        sim_schedule(world, next - world->now_ms, SIM_EVENT_TICK, node);
    }
}

void sim_node_event(SimWorld *world, SimNode *node, SimEvent *event) {
    ReplNow now = sim_now(world, node);
    switch (event->kind) {
    case SIM_EVENT_TICK:
        node->tick_at_ms = INT64_MAX;
        repl_core_tick(node->core, now, &node->actions);
        break;
    case SIM_EVENT_REQUEST:
        on_request(world, node, event);
        break;
    case SIM_EVENT_REPLY:
        on_reply(world, node, event);
        break;
    case SIM_EVENT_RPC_TIMEOUT:
        on_rpc_timeout(world, node, event);
        break;
    case SIM_EVENT_FETCH:
        fetch(world, node);
        break;
    case SIM_EVENT_FLUSH:
        flush(world, node, event);
        break;
    case SIM_EVENT_APPLY:
        apply_queue(world, node);
        break;
    case SIM_EVENT_CATCH_UP:
        feed_catch_up(&node->feed, event->number);
        start_fetching(world, node, 1);
        break;
    case SIM_EVENT_DRAIN:
        feed_drain(&node->feed, event->number);
        check_drained(world, node);
        break;
    case SIM_EVENT_DRAINED:
        repl_core_on_drained(node->core, now, event->number, &node->actions);
        break;
    case SIM_EVENT_STEPPED_DOWN:
        repl_core_on_stepped_down(node->core, now, &node->actions);
        break;
    case SIM_EVENT_VOTE_STORED: {
        SimMessage *message = sim_message_new(SIM_MSG_VOTE, true);
        if (event->vote.term > node->disk_vote.term)
            node->disk_vote = event->vote;
        repl_core_vote_persisted(node->core, now, event->vote, true, &message->vote_reply);
        sim_check_vote(world, node, event->vote.term, world->rpcs[event->rpc].from);
        sim_send_reply(world, node, event->rpc, message);
        break;
    }
    case SIM_EVENT_OWN_VOTE_STORED:
        if (event->vote.term > node->disk_vote.term)
            node->disk_vote = event->vote;
        sim_check_vote(world, node, event->vote.term, node->id);
        repl_core_own_vote_persisted(node->core, now, event->vote.term, true, &node->actions);
        break;
    case SIM_EVENT_CONFIG_STORED:
        store_config(world, node, event);
        break;
    case SIM_EVENT_REPORT:
        report_positions(world, node);
        sim_schedule(world, world->election_timeout_ms / 2, SIM_EVENT_REPORT, node);
        break;
    case SIM_EVENT_BECOME_SECONDARY:
        repl_core_set_follower_state(node->core, now, REPL_SECONDARY, &node->actions);
        start_fetching(world, node, 1);
        break;
    default:
        break;
    }
}

/* ---- actions ---- */

static void send_vote_request(SimWorld *world, SimNode *node, const ReplAction *action) {
    SimMessage *message = sim_message_new(SIM_MSG_VOTE, false);
    message->vote_request = action->vote_request;
    if (world->broken == SIM_BREAK_STALE_CANDIDATE)
        message->vote_request.last_applied = (OpTime){UINT64_MAX, INT64_MAX};
    sim_send_request(world, node, action->host, message, action->token, action->member_index,
                     action->timeout_ms);
}

static void do_action(SimWorld *world, SimNode *node, const ReplAction *action) {
    int64_t disk_ms = sim_random_ms(world, 1, world->election_timeout_ms / 20);
    SimMessage *message;
    SimEvent *event;
    switch (action->kind) {
    case REPL_ACTION_HEARTBEAT:
        message = sim_message_new(SIM_MSG_HEARTBEAT, false);
        message->heartbeat = action->heartbeat;
        sim_send_request(world, node, action->host, message, action->token, action->member_index,
                         action->timeout_ms);
        break;
    case REPL_ACTION_REQUEST_VOTE:
        send_vote_request(world, node, action);
        break;
    case REPL_ACTION_PERSIST_OWN_VOTE:
        event = sim_schedule(world, disk_ms, SIM_EVENT_OWN_VOTE_STORED, node);
        event->vote = action->last_vote;
        break;
    case REPL_ACTION_ELECTION_ENDED:
        sim_trace(world, node, "election of term %lld %s %s", (long long)action->term,
                  action->is_won ? "won" : "lost:", action->reason);
        break;
    case REPL_ACTION_START_CATCH_UP: /* brought by other threads: one may overtake the other */
        event = sim_schedule(world, sim_random_ms(world, 0, 5), SIM_EVENT_CATCH_UP, node);
        event->number = action->term;
        break;
    case REPL_ACTION_START_DRAIN:
        event = sim_schedule(world, sim_random_ms(world, 0, 5), SIM_EVENT_DRAIN, node);
        event->number = action->term;
        break;
    case REPL_ACTION_BECOME_WRITABLE:
        sim_trace(world, node, "writable in term %lld", (long long)action->term);
        node->write_term = action->term;
        sim_node_write(world, node, action->term);
        break;
    case REPL_ACTION_STEP_DOWN:
        sim_trace(world, node, "steps down, reason %d", action->step_down_reason);
        /* A write that had passed the gate already. */
        if (node->write_term > 0 && sim_chance(world, 20))
            sim_node_write(world, node, node->write_term);
        node->write_term = 0;
        sim_schedule(world, disk_ms * 2, SIM_EVENT_STEPPED_DOWN, node);
        break;
    case REPL_ACTION_HAND_OFF:
        sim_send_request(world, node, action->host, sim_message_new(SIM_MSG_STEP_UP, false), 0,
                         action->member_index, 0);
        break;
    case REPL_ACTION_COMMIT_POINT:
        sim_check_commit(world, node, action->optime, action->term);
        break;
    case REPL_ACTION_STORE_CONFIG:
        event = sim_schedule(world, disk_ms, SIM_EVENT_CONFIG_STORED, node);
        event->config = repl_config_ref(action->config);
        break;
    case REPL_ACTION_REMOVE_NEWLY_ADDED:
        sim_remove_newly_added(world, node, action->member_id);
        break;
    case REPL_ACTION_CHOOSE_SOURCE:
        repl_core_clear_sync_source(node->core);
        start_fetching(world, node, 1);
        break;
    case REPL_ACTION_REPORT_POSITION:
        report_positions(world, node);
        break;
    case REPL_ACTION_STEP_DOWN_FAILED:
    case REPL_ACTION_TOPOLOGY_CHANGED:
        break;
    }
}

static void store_config(SimWorld *world, SimNode *node, SimEvent *event) {
    /* A primary's own reconfiguration is void once it is primary no longer. */
    if (event->is_reconfig) {
        CLEANUP(error_reset) Error err = {0};
        if (!repl_core_is_writable(node->core) ||
            repl_core_term(node->core) != event->config->term ||
            repl_core_check_new_config(node->core, event->config, &err) != ERR_OK) {
            repl_core_config_store_failed(node->core);
            return;
        }
    }
    sim_check_config(world, node, event->config);
    repl_config_unref(node->disk_config);
    node->disk_config = repl_config_ref(event->config);
    int32_t self = repl_config_find_host(event->config, node->host);
    sim_trace(world, node, "stores configuration (%lld, %lld)%s", (long long)event->config->term,
              (long long)event->config->version, self < 0 ? ", removed" : "");
    repl_core_config_stored(node->core, sim_now(world, node), event->config, self, &node->actions);
    start_fetching(world, node, 1);
}

/* ---- requests ---- */

static void answer_vote(SimWorld *world, SimNode *node, SimEvent *event) {
    SimMessage *message = sim_message_new(SIM_MSG_VOTE, true);
    const ReplVoteRequest *request = &event->message->vote_request;
    bool must_persist = false;
    ReplLastVote vote;
    Error err = {0};
    ErrCode rc =
        repl_core_on_vote_request(node->core, sim_now(world, node), request, &message->vote_reply,
                                  &must_persist, &vote, &node->actions, &err);
    message->is_error = rc != ERR_OK;
    error_reset(&err);
    if (rc == ERR_OK && world->broken == SIM_BREAK_DOUBLE_VOTE && !request->is_dry_run &&
        strncmp(message->vote_reply.reason, "already voted", 13) == 0) {
        message->vote_reply = (ReplVoteReply){.term = request->term, .is_granted = true};
        sim_check_vote(world, node, request->term, world->rpcs[event->rpc].from);
    }
    if (!must_persist) {
        sim_send_reply(world, node, event->rpc, message);
        return;
    }
    sim_message_free(message);
    SimEvent *stored = sim_schedule(world, sim_random_ms(world, 1, world->election_timeout_ms / 20),
                                    SIM_EVENT_VOTE_STORED, node);
    stored->vote = vote;
    stored->rpc = event->rpc;
}

static void answer_heartbeat(SimWorld *world, SimNode *node, SimEvent *event) {
    SimMessage *message = sim_message_new(SIM_MSG_HEARTBEAT, true);
    Error err = {0};
    ErrCode rc =
        repl_core_on_heartbeat(node->core, sim_now(world, node), &event->message->heartbeat,
                               node->has_data, &message->heartbeat_reply, &node->actions, &err);
    message->is_error = rc != ERR_OK;
    error_reset(&err);
    if (world->broken == SIM_BREAK_HIDE_TERM)
        message->heartbeat_reply.term = 0;
    if (rc == ERR_OK && doc_is_present(message->heartbeat_reply.config))
        message->config = repl_config_ref(repl_core_config(node->core));
    sim_send_reply(world, node, event->rpc, message);
}

/* The first entry of this or a later time. */
static uint32_t find_ts(const SimLog *log, uint64_t ts) {
    uint32_t low = 0, high = log->count;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (log->entries[middle].optime.ts < ts)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void answer_fetch(SimWorld *world, SimNode *node, SimEvent *event) {
    SimMessage *message = sim_message_new(SIM_MSG_FETCH, true);
    SimFetchReply *reply = &message->fetch_reply;
    const SimFetch *asked = &event->message->fetch;
    /* Whatever its state: the oplog of a member that rolls back can be read. */
    bool is_cursor_gone = asked->is_get_more && asked->source_incarnation != node->incarnation;
    message->is_error = !node->has_data || is_cursor_gone;
    uint32_t at = find_ts(&node->log, asked->after.ts);
    reply->has_start =
        at < node->log.count && optime_equal(node->log.entries[at].optime, asked->after);
    reply->is_whole = !reply->has_start && !asked->is_get_more;
    reply->source_last = sim_log_last(&node->log).optime;
    reply->source_incarnation = node->incarnation;
    uint32_t first = reply->is_whole ? 0 : find_ts(&node->log, asked->after.ts + 1);
    uint32_t count = node->log.count - first;
    if (!reply->is_whole && count > SIM_BATCH_MAX)
        count = SIM_BATCH_MAX;
    reply->count = count;
    if (count > 0)
        reply->entries = xmemdup(node->log.entries + first, sizeof(SimEntry) * count);
    repl_core_metadata(node->core, &reply->metadata);
    repl_core_oplog_metadata(node->core, node->rollback_id, &reply->oplog_metadata);
    sim_send_reply(world, node, event->rpc, message);
}

static void on_request(SimWorld *world, SimNode *node, SimEvent *event) {
    Error err = {0};
    ReplNow now = sim_now(world, node);
    bool is_news;
    uint64_t token;
    switch (event->message->kind) {
    case SIM_MSG_HEARTBEAT:
        answer_heartbeat(world, node, event);
        break;
    case SIM_MSG_VOTE:
        answer_vote(world, node, event);
        break;
    case SIM_MSG_FETCH:
        answer_fetch(world, node, event);
        break;
    case SIM_MSG_UPDATE_POSITION:
        if (repl_core_on_update_position(node->core, now, &event->message->update, &is_news,
                                         &node->actions, &err) == ERR_OK &&
            is_news)
            report_positions(world, node);
        break;
    case SIM_MSG_STEP_UP:
        (void)!repl_core_step_up(node->core, now, /* skips_dry_run= */ true, &token, &node->actions,
                                 &err);
        break;
    }
    error_reset(&err);
}

/* ---- replies ---- */

static void on_heartbeat_reply(SimWorld *world, SimNode *node, SimRpc *rpc, SimMessage *message) {
    ReplHeartbeatReply *reply = &message->heartbeat_reply;
    CLEANUP(repl_config_unref_ptr) ReplConfig *config = NULL;
    Error err = {0};
    if (doc_is_present(reply->config) &&
        repl_config_parse(reply->config, REPL_CONFIG_ALLOW_ARBITERS, &config, &err) != ERR_OK)
        sim_fail(world, node, "configuration does not parse: %s", error_message(&err));
    error_reset(&err);
    /* As if the branch were ours, up to where both have entries. */
    OpTime own = sim_log_last(&node->log).optime;
    if (world->broken == SIM_BREAK_TRUST_HEARTBEAT && !optime_is_none(reply->commit_point) &&
        optime_compare(reply->commit_point, own) >= 0)
        reply->commit_point = own;
    repl_core_on_heartbeat_reply(node->core, sim_now(world, node), rpc->token, reply, config,
                                 world->now_ms - rpc->sent_ms, &node->actions);
}

static void on_reply(SimWorld *world, SimNode *node, SimEvent *event) {
    SimRpc *rpc = &world->rpcs[event->rpc];
    if (rpc->incarnation != node->incarnation)
        return;
    bool was_done = rpc->is_done;
    rpc->is_done = true;
    ReplNow now = sim_now(world, node);
    SimMessage *message = event->message;
    switch (rpc->kind) {
    case SIM_MSG_HEARTBEAT: /* also when it comes twice or too late: the core must cope */
        if (message->is_error)
            repl_core_on_heartbeat_failure(node->core, now, rpc->token, ERR_BAD_VALUE, "refused",
                                           &node->actions);
        else
            on_heartbeat_reply(world, node, rpc, message);
        break;
    case SIM_MSG_VOTE:
        if (message->is_error)
            repl_core_on_vote_failure(node->core, now, rpc->token, rpc->member_index,
                                      &node->actions);
        else
            repl_core_on_vote_reply(node->core, now, rpc->token, rpc->member_index,
                                    &message->vote_reply, &node->actions);
        break;
    case SIM_MSG_FETCH:
        if (!was_done && message->is_error)
            on_fetch_reply(world, node, rpc, NULL);
        else if (!was_done)
            on_fetch_reply(world, node, rpc, &message->fetch_reply);
        break;
    case SIM_MSG_UPDATE_POSITION:
    case SIM_MSG_STEP_UP:
        break;
    }
}

static void on_rpc_timeout(SimWorld *world, SimNode *node, SimEvent *event) {
    SimRpc *rpc = &world->rpcs[event->rpc];
    if (rpc->is_done || rpc->incarnation != node->incarnation)
        return;
    rpc->is_done = true;
    ReplNow now = sim_now(world, node);
    if (rpc->kind == SIM_MSG_HEARTBEAT)
        repl_core_on_heartbeat_failure(node->core, now, rpc->token, ERR_NETWORK_TIMEOUT,
                                       "timed out", &node->actions);
    else if (rpc->kind == SIM_MSG_VOTE)
        repl_core_on_vote_failure(node->core, now, rpc->token, rpc->member_index, &node->actions);
    else if (rpc->kind == SIM_MSG_FETCH)
        on_fetch_reply(world, node, rpc, NULL);
}

/* ---- fetching ---- */

static bool is_follower(const SimNode *node) {
    ReplState state = repl_core_state(node->core);
    return state == REPL_SECONDARY || state == REPL_RECOVERING;
}

static void start_fetching(SimWorld *world, SimNode *node, int64_t after_ms) {
    if (node->is_fetching)
        return;
    node->is_fetching = true;
    sim_schedule(world, after_ms, SIM_EVENT_FETCH, node);
}

static int64_t poll_ms(SimWorld *world) {
    return sim_random_ms(world, 1, world->election_timeout_ms / 8);
}

static void end_stream(SimNode *node) {
    feed_close(&node->feed, node->stream);
    node->has_stream = false;
}

/* A member without data asks for all of it, others for what follows their newest entry. */
static bool ensure_stream(SimNode *node) {
    if (!node->has_data)
        return repl_core_state(node->core) == REPL_STARTUP2;
    if (node->has_stream)
        return true;
    OpTime end = sim_log_last(&node->log).optime;
    node->has_stream = feed_open(&node->feed, is_follower(node), end, &node->stream);
    node->stream_at = node->feed.tail;
    node->is_stream_started = false;
    return node->has_stream;
}

static void fetch(SimWorld *world, SimNode *node) {
    node->is_fetching = false;
    if (!ensure_stream(node)) {
        start_fetching(world, node, poll_ms(world) * 2);
        return;
    }
    OpTime last = node->has_data ? node->stream_at : OPTIME_NONE;
    int32_t source = repl_core_source_index(node->core);
    if (source == REPL_INDEX_NONE) {
        node->is_stream_started = false;
        source = repl_core_choose_sync_source(node->core, sim_now(world, node), last);
    }
    if (source == REPL_INDEX_NONE) {
        end_stream(node);
        start_fetching(world, node, poll_ms(world) * 2);
        return;
    }
    node->is_fetching = true;
    node->fetch_token = prng_u64(&world->prng) | 1;
    SimMessage *message = sim_message_new(SIM_MSG_FETCH, false);
    message->fetch = (SimFetch){.after = last,
                                .is_get_more = node->has_data && node->is_stream_started,
                                .source_incarnation = node->stream_incarnation};
    sim_send_request(world, node, repl_core_config(node->core)->members[source].host, message,
                     node->fetch_token, source, world->election_timeout_ms);
}

static void deny_source(SimWorld *world, SimNode *node) {
    int32_t source = repl_core_source_index(node->core);
    repl_core_deny_source(node->core, sim_now(world, node),
                          repl_core_config(node->core)->members[source].host,
                          world->election_timeout_ms);
    repl_core_clear_sync_source(node->core);
}

static void roll_back(SimWorld *world, SimNode *node, const SimFetchReply *reply) {
    ReplNow now = sim_now(world, node);
    uint32_t common = 0;
    while (common < node->log.count && common < reply->count &&
           optime_equal(node->log.entries[common].optime, reply->entries[common].optime))
        common++;
    if (common == 0) {
        sim_fail(world, node, "no common point with the source");
        return;
    }
    CLEANUP(error_reset) Error err = {0};
    if (repl_core_check_rollback(node->core, node->log.entries[common - 1].optime, &err) !=
        ERR_OK) {
        /* The source is on a branch that lost. If all were, this member would never become equal.
         */
        deny_source(world, node);
        return;
    }
    if (!repl_core_set_follower_state(node->core, now, REPL_ROLLBACK, &node->actions))
        return;
    sim_check_truncate(world, node, common);
    sim_trace(world, node, "rolls back from %u to %u entries", node->log.count, common);
    world->rollback_count++;
    node->rollback_id++;
    node->log.count = node->log.durable_count = common;
    ReplPosition top = position_at(&node->log, common);
    repl_core_reset_own_position(node->core, now, top, top, &node->actions);
    sim_schedule(world, poll_ms(world), SIM_EVENT_BECOME_SECONDARY, node);
}

/* All at once, and durable when it counts for the first time. */
static void finish_initial_sync(SimWorld *world, SimNode *node, const SimFetchReply *reply) {
    for (uint32_t i = 0; i < reply->count; i++)
        sim_log_append(&node->log, reply->entries[i]);
    node->log.durable_count = node->log.count;
    node->has_data = true;
    sim_trace(world, node, "initial sync done, %u entries", node->log.count);
    ReplPosition top = position_at(&node->log, node->log.count);
    repl_core_reset_own_position(node->core, sim_now(world, node), top, top, &node->actions);
    sim_schedule(world, poll_ms(world), SIM_EVENT_BECOME_SECONDARY, node);
}

/* As the feed says, unless the harness is broken. */
static bool take_batch(SimWorld *world, SimNode *node, const SimFetchReply *reply) {
    int32_t rollback_id = reply->oplog_metadata.rollback_id;
    if (world->broken == SIM_BREAK_IGNORE_ROLLBACK)
        rollback_id = node->feed.rollback_id;
    OpTime last = reply->count > 0 ? reply->entries[reply->count - 1].optime : node->stream_at;
    if (feed_take(&node->feed, node->stream, rollback_id, node->stream_at, last, reply->count))
        return true;
    bool is_late = !node->feed.is_open && rollback_id == node->feed.rollback_id;
    if (world->broken != SIM_BREAK_LATE_BATCH || !is_late)
        return false;
    node->feed.pending += reply->count;
    return true;
}

static void queue_batch(SimWorld *world, SimNode *node, const SimFetchReply *reply) {
    if (reply->count == 0)
        return;
    for (uint32_t i = 0; i < reply->count; i++)
        sim_log_append(&node->queue, reply->entries[i]);
    node->stream_at = reply->entries[reply->count - 1].optime;
    if (!node->is_applying)
        sim_schedule(world, poll_ms(world), SIM_EVENT_APPLY, node);
    node->is_applying = true;
}

/* Some of what is queued, in order. */
static void apply_queue(SimWorld *world, SimNode *node) {
    SimLog *queue = &node->queue;
    uint32_t count = 1 + (uint32_t)prng_below(&world->prng, queue->count);
    for (uint32_t i = 0; i < count; i++) {
        sim_check_append(world, node, queue->entries[i]);
        sim_log_append(&node->log, queue->entries[i]);
        sim_check_entry(world, node, queue->entries[i]);
    }
    queue->count -= count;
    memmove(queue->entries, queue->entries + count, queue->count * sizeof(SimEntry));
    feed_applied(&node->feed, count);
    tell_own_position(world, node);
    schedule_flush(world, node);
    report_positions(world, node);
    node->is_applying = queue->count > 0;
    if (node->is_applying)
        sim_schedule(world, poll_ms(world), SIM_EVENT_APPLY, node);
    check_drained(world, node);
}

static void check_drained(SimWorld *world, SimNode *node) {
    uint64_t pending = node->feed.pending;
    if (world->broken == SIM_BREAK_EARLY_DRAIN)
        node->feed.pending = 0;
    int64_t term;
    bool is_drained = feed_drained(&node->feed, &term);
    node->feed.pending = pending;
    if (!is_drained)
        return;
    int64_t disk_ms = sim_random_ms(world, 1, world->election_timeout_ms / 20);
    sim_schedule(world, disk_ms, SIM_EVENT_DRAINED, node)->number = term;
}

static void take_reply(SimWorld *world, SimNode *node, const SimRpc *rpc,
                       const SimFetchReply *reply) {
    if (!take_batch(world, node, reply)) {
        end_stream(node);
        return;
    }
    queue_batch(world, node, reply);
    ReplNow now = sim_now(world, node);
    repl_core_on_source_metadata(node->core, now, rpc->member_index, reply->metadata.term,
                                 &reply->oplog_metadata, &node->actions);
    const char *reason;
    if (repl_core_should_change_source(node->core, now, node->stream_at, &reply->oplog_metadata,
                                       &reason))
        repl_core_clear_sync_source(node->core);
}

/* The source has another entry, or none, where this member has its newest. */
static void meet_other_history(SimWorld *world, SimNode *node, const SimFetchReply *reply) {
    ReplState state = repl_core_state(node->core);
    OpTime last = sim_log_last(&node->log).optime;
    if (node->feed.pending > 0) /* what was fetched before is applied first */
        return;
    if (optime_compare(reply->source_last, last) <= 0)
        repl_core_clear_sync_source(node->core);
    else if (state == REPL_SECONDARY)
        roll_back(world, node, reply);
    else if (state == REPL_PRIMARY)
        repl_core_catch_up_failed(node->core, sim_now(world, node), &node->actions);
    else
        repl_core_clear_sync_source(node->core);
}

static void use_stream(SimWorld *world, SimNode *node, const SimRpc *rpc,
                       const SimFetchReply *reply) {
    if (!node->is_stream_started) {
        bool is_proved =
            reply->has_start && feed_prove(&node->feed, node->stream,
                                           reply->oplog_metadata.rollback_id, node->stream_at);
        if (!is_proved) {
            end_stream(node);
            if (!reply->has_start)
                meet_other_history(world, node, reply);
            return;
        }
        node->is_stream_started = true;
        node->stream_incarnation = reply->source_incarnation;
    }
    take_reply(world, node, rpc, reply);
    /* It ends as late as that: a reply that is here is used. */
    if (repl_core_source_index(node->core) != rpc->member_index)
        end_stream(node);
}

static void on_fetch_reply(SimWorld *world, SimNode *node, const SimRpc *rpc,
                           const SimFetchReply *reply) {
    if (rpc->token != node->fetch_token)
        return;
    node->fetch_token = 0;
    node->is_fetching = false;
    bool is_same_source = repl_core_source_index(node->core) == rpc->member_index;
    if (reply == NULL) {
        end_stream(node);
        if (is_same_source)
            deny_source(world, node);
    } else if (!node->has_data) {
        bool is_wanted = is_same_source && repl_core_state(node->core) == REPL_STARTUP2;
        if (is_wanted && reply->is_whole && reply->count > 0)
            finish_initial_sync(world, node, reply);
    } else if (node->has_stream) {
        use_stream(world, node, rpc, reply);
    }
    bool has_more = reply != NULL && reply->count == SIM_BATCH_MAX;
    bool is_queue_full = !world->is_healed && sim_chance(world, 3);
    start_fetching(world, node,
                   is_queue_full ? sim_random_ms(world, 1, world->election_timeout_ms * 3)
                   : has_more    ? 1
                                 : poll_ms(world));
}

static void report_positions(SimWorld *world, SimNode *node) {
    int32_t source = repl_core_source_index(node->core);
    if (source == REPL_INDEX_NONE || !node->has_data)
        return;
    SimMessage *message = sim_message_new(SIM_MSG_UPDATE_POSITION, false);
    repl_core_build_update_position(node->core, sim_now(world, node), &message->update);
    if (world->broken == SIM_BREAK_HIDE_TERM)
        message->update.metadata.term = 0;
    if (message->update.count == 0) {
        sim_message_free(message);
        return;
    }
    sim_send_request(world, node, repl_core_config(node->core)->members[source].host, message, 0,
                     source, 0);
}
