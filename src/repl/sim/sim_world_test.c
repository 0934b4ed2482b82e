/* sim_world_test.c - simulated time, network and faults; one run from one seed. */
#include <stdarg.h>
#include <stdio.h>

#include "base/alloc.h"
#include "bson/validate.h"
#include "repl/sim/sim_test.h"

static void set_up(SimWorld *world);
static void heal(SimWorld *world);
static void inject_fault(SimWorld *world);
static void dispatch(SimWorld *world, SimEvent *event);
static bool pop_event(SimWorld *world, SimEvent *ret_event);
static void event_free(SimEvent *event);
static void tear_down(SimWorld *world);
static void dump(const SimWorld *world);

enum {
    BSON_ROUND_TRIP_PERCENT = 6,
};

/* Time allowed after healing: time-outs of all kinds, take-overs and shunned sources included. */
static int64_t patience_ms(const SimWorld *world) {
    return 60 * 1000 + 40 * world->election_timeout_ms;
}

SimResult sim_run(uint64_t seed, SimBreak broken, bool is_traced) {
    SimWorld *world = NEW(SimWorld);
    world->seed = seed;
    world->broken = broken;
    world->is_traced = is_traced;
    world->prng = prng_seeded(seed);
    set_up(world);
    int64_t faults_end_ms =
        world->now_ms + world->election_timeout_ms * sim_random_ms(world, 8, 25);
    bool is_converged = false;
    SimEvent event;
    while (world->failure[0] == '\0' && !is_converged && pop_event(world, &event)) {
        world->now_ms = event.at_ms > world->now_ms ? event.at_ms : world->now_ms;
        if (!world->is_healed && world->now_ms >= faults_end_ms)
            heal(world);
        dispatch(world, &event);
        event_free(&event);
        world->events_done++;
        if (world->progress_ms != 0)
            world->is_writing = false;
        is_converged =
            world->progress_ms != 0 && world->events_done % 32 == 0 && sim_is_converged(world);
        if (world->is_healed && world->now_ms > world->healed_ms + patience_ms(world))
            sim_fail(world, NULL,
                     world->progress_ms == 0
                         ? "no write was committed after the faults ended"
                         : "the members did not become equal after the faults ended");
    }
    if (world->failure[0] != '\0' && world->is_traced)
        dump(world);
    SimResult result = {
        .recovery_ms = world->progress_ms - world->healed_ms,
        .election_timeout_ms = world->election_timeout_ms,
        .events = world->events_done,
        .elections = world->election_count,
        .rollbacks = world->rollback_count,
        .reconfigs = world->reconfig_count,
        .commits = world->commit_count,
    };
    memcpy(result.failure, world->failure, sizeof(result.failure));
    tear_down(world);
    return result;
}

static void dump(const SimWorld *world) {
    printf("committed %u entries\n", world->committed.count);
    for (uint32_t i = 0; i < world->node_count; i++) {
        const SimNode *node = &world->nodes[i];
        if (node->core == NULL) {
            printf("node %u is not running, log %u\n", i, node->log.count);
            continue;
        }
        OpTime last = sim_log_last(&node->log).optime;
        OpTime commit = repl_core_commit_point(node->core).optime;
        const ReplConfig *config = repl_core_config(node->core);
        printf(
            "node %u: %s phase %d term %lld self %d source %d primary %d config (%lld, %lld) log "
            "%u (%u durable) last %llx/%lld commit %llx/%lld data %d fetching %d\n",
            i, repl_state_name(repl_core_state(node->core)), repl_core_phase(node->core),
            (long long)repl_core_term(node->core), repl_core_self_index(node->core),
            repl_core_source_index(node->core), repl_core_primary_index(node->core),
            config ? (long long)config->term : -9, config ? (long long)config->version : -9,
            node->log.count, node->log.durable_count, (unsigned long long)last.ts,
            (long long)last.term, (unsigned long long)commit.ts, (long long)commit.term,
            node->has_data, node->is_fetching);
    }
}

/* ---- random ---- */

int64_t sim_random_ms(SimWorld *world, int64_t min, int64_t max) {
    return max <= min ? min : min + (int64_t)prng_below(&world->prng, (uint64_t)(max - min + 1));
}

bool sim_chance(SimWorld *world, uint32_t percent) {
    return prng_below(&world->prng, 100) < percent;
}

ReplNow sim_now(const SimWorld *world, const SimNode *node) {
    return (ReplNow){world->now_ms, world->now_ms + node->wall_offset_ms};
}

void sim_trace(const SimWorld *world, const SimNode *node, const char *fmt, ...) {
    if (!world->is_traced)
        return;
    printf("%8lld node %d: ", (long long)world->now_ms, node ? node->id : -1);
    va_list args;
    va_start(args, fmt);
    vprintf(fmt, args);
    va_end(args);
    printf("\n");
}

int32_t sim_find_host(const SimWorld *world, const char *host) {
    for (uint32_t i = 0; i < world->node_count; i++)
        if (strcmp(world->nodes[i].host, host) == 0)
            return (int32_t)i;
    return -1;
}

/* ---- events ---- */

static bool comes_before(const SimEvent *a, const SimEvent *b) {
    return a->at_ms != b->at_ms ? a->at_ms < b->at_ms : a->seq < b->seq;
}

/* The result is valid until the next event is scheduled. */
SimEvent *sim_schedule(SimWorld *world, int64_t after_ms, SimEventKind kind, const SimNode *node) {
    ARRAY_RESERVE(world->events, world->event_count, world->event_capacity);
    SimEvent event = {
        .at_ms = world->now_ms + (after_ms > 0 ? after_ms : 0),
        .seq = world->next_seq++,
        .kind = kind,
        .node = node ? node->id : 0,
        .incarnation = node ? node->incarnation : 0,
    };
    uint32_t at = world->event_count++;
    while (at > 0 && comes_before(&event, &world->events[(at - 1) / 2])) {
        world->events[at] = world->events[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    world->events[at] = event;
    return &world->events[at];
}

static bool pop_event(SimWorld *world, SimEvent *ret_event) {
    if (world->event_count == 0)
        return false;
    *ret_event = world->events[0];
    SimEvent last = world->events[--world->event_count];
    uint32_t at = 0;
    for (;;) {
        uint32_t child = at * 2 + 1;
        if (child >= world->event_count)
            break;
        if (child + 1 < world->event_count &&
            comes_before(&world->events[child + 1], &world->events[child]))
            child++;
        if (!comes_before(&world->events[child], &last))
            break;
        world->events[at] = world->events[child];
        at = child;
    }
    if (world->event_count > 0)
        world->events[at] = last;
    return true;
}

static void event_free(SimEvent *event) {
    sim_message_free(event->message);
    repl_config_unref(event->config);
}

static void run_commands(SimWorld *world) {
    uint32_t chosen = (uint32_t)prng_below(&world->prng, world->node_count);
    for (uint32_t i = 0; i < world->node_count && !world->is_healed; i++) {
        SimNode *node = &world->nodes[i];
        if (node->core == NULL || node->paused_until_ms > world->now_ms)
            continue;
        bool is_turn = world->is_reconfig_storm ? repl_core_is_writable(node->core) : i == chosen;
        if (is_turn) {
            sim_command(world, node);
            sim_node_settle(world, node);
        }
    }
    int64_t wait_ms = world->election_timeout_ms / (world->is_reconfig_storm ? 5 : 1);
    sim_schedule(world, sim_random_ms(world, 1, wait_ms), SIM_EVENT_COMMAND, NULL);
}

static void dispatch(SimWorld *world, SimEvent *event) {
    SimNode *node = &world->nodes[event->node];
    switch (event->kind) {
    case SIM_EVENT_FAULT:
        if (!world->is_healed)
            inject_fault(world);
        return;
    case SIM_EVENT_WRITE:
        for (uint32_t i = 0; world->is_writing && i < world->node_count; i++) {
            SimNode *primary = &world->nodes[i];
            if (primary->core != NULL && primary->paused_until_ms <= world->now_ms &&
                repl_core_is_writable(primary->core)) {
                sim_node_write(world, primary, primary->write_term);
                sim_node_settle(world, primary);
            }
        }
        sim_schedule(world, sim_random_ms(world, 1, world->election_timeout_ms / 3),
                     SIM_EVENT_WRITE, NULL);
        return;
    case SIM_EVENT_COMMAND:
        run_commands(world);
        return;
    case SIM_EVENT_RESTART:
        if (node->core == NULL)
            sim_node_start(world, node);
        return;
    default:
        break;
    }
    bool is_for_anyone = event->kind == SIM_EVENT_REQUEST;
    if (node->core == NULL || (!is_for_anyone && event->incarnation != node->incarnation))
        return;
    if (node->paused_until_ms > world->now_ms) { /* it finds everything when it wakes up */
        SimEvent *later =
            sim_schedule(world, node->paused_until_ms - world->now_ms, event->kind, node);
        uint64_t seq = later->seq;
        int64_t at_ms = later->at_ms;
        *later = *event;
        later->seq = seq;
        later->at_ms = at_ms;
        event->message = NULL;
        event->config = NULL;
        return;
    }
    sim_node_event(world, node, event);
    sim_node_settle(world, node);
}

/* ---- network ---- */

static size_t message_size(SimMessageKind kind, bool is_reply) {
    static const size_t SIZES[][2] = {
        [SIM_MSG_HEARTBEAT] = {sizeof(ReplHeartbeat), sizeof(ReplHeartbeatReply)},
        [SIM_MSG_VOTE] = {sizeof(ReplVoteRequest), sizeof(ReplVoteReply)},
        [SIM_MSG_FETCH] = {sizeof(SimFetch), sizeof(SimFetchReply)},
        [SIM_MSG_UPDATE_POSITION] = {sizeof(ReplUpdatePosition), 0},
        [SIM_MSG_STEP_UP] = {0, 0},
    };
    return offsetof(SimMessage, heartbeat) + SIZES[kind][is_reply];
}

SimMessage *sim_message_new(SimMessageKind kind, bool is_reply) {
    SimMessage *message = xcalloc(1, message_size(kind, is_reply) + 16);
    message->kind = kind;
    message->is_reply = is_reply;
    return message;
}

void sim_message_free(SimMessage *message) {
    if (message == NULL)
        return;
    if (message->kind == SIM_MSG_FETCH && message->is_reply)
        xfree(message->fetch_reply.entries);
    repl_config_unref(message->config);
    xfree(message);
}

static SimMessage *message_copy(const SimMessage *message) {
    SimMessage *copy = xmemdup(message, message_size(message->kind, message->is_reply) + 16);
    if (copy->config != NULL)
        repl_config_ref(copy->config);
    if (copy->kind == SIM_MSG_FETCH && copy->is_reply && copy->fetch_reply.entries != NULL)
        copy->fetch_reply.entries =
            xmemdup(copy->fetch_reply.entries, sizeof(SimEntry) * copy->fetch_reply.count);
    return copy;
}

/* Through BSON and back; what arrives must be what was sent. */
static void through_bson(SimWorld *world, SimMessage *message) {
    CLEANUP(buffer_done) Buffer buf;
    buffer_init(&buf, BUFFER_UNBOUNDED);
    DocBuilder b;
    doc_builder_init(&b, &buf);
    CLEANUP(error_reset) Error err = {0};
    ErrCode rc = ERR_OK;
    if (message->is_error)
        return;
    if (message->kind == SIM_MSG_HEARTBEAT && !message->is_reply) {
        build_heartbeat(&b, &message->heartbeat);
        rc = parse_heartbeat(doc_builder_end(&b), &message->heartbeat, &err);
    } else if (message->kind == SIM_MSG_HEARTBEAT) {
        Doc config = message->heartbeat_reply.config;
        build_heartbeat_reply(&b, &message->heartbeat_reply);
        rc = parse_heartbeat_reply(doc_builder_end(&b), &message->heartbeat_reply, &err);
        Doc parsed = message->heartbeat_reply.config;
        if (doc_is_present(config) != doc_is_present(parsed) ||
            (doc_is_present(config) && !doc_equal_bytes(config, parsed)))
            sim_fail(world, NULL, "a configuration changed on its way");
        message->heartbeat_reply.config = config;
    } else if (message->kind == SIM_MSG_VOTE && !message->is_reply) {
        build_vote_request(&b, &message->vote_request);
        rc = parse_vote_request(doc_builder_end(&b), &message->vote_request, &err);
    } else if (message->kind == SIM_MSG_VOTE) {
        build_vote_reply(&b, &message->vote_reply);
        rc = parse_vote_reply(doc_builder_end(&b), &message->vote_reply, &err);
    } else if (message->kind == SIM_MSG_UPDATE_POSITION) {
        build_update_position(&b, &message->update);
        rc = parse_update_position(doc_builder_end(&b), &message->update, &err);
    }
    if (rc != ERR_OK)
        sim_fail(world, NULL, "message kind %d does not parse: %s", message->kind,
                 error_message(&err));
}

/* Delivers after a random while, or not, or twice. */
static void transmit(SimWorld *world, uint32_t from, uint32_t to, SimEventKind kind, uint32_t rpc,
                     SimMessage *take_message) {
    if (world->is_blocked[from][to] || sim_chance(world, world->loss_percent)) {
        sim_message_free(take_message);
        return;
    }
    if (sim_chance(world, BSON_ROUND_TRIP_PERCENT) && world->broken == SIM_BREAK_NOTHING)
        through_bson(world, take_message);
    if (sim_chance(world, world->duplicate_percent)) {
        SimEvent *twin = sim_schedule(world, sim_random_ms(world, 1, world->delay_ms_max * 4), kind,
                                      &world->nodes[to]);
        twin->rpc = rpc;
        twin->message = message_copy(take_message);
    }
    SimEvent *event =
        sim_schedule(world, sim_random_ms(world, 1, world->delay_ms_max), kind, &world->nodes[to]);
    event->rpc = rpc;
    event->message = take_message;
}

void sim_send_request(SimWorld *world, SimNode *from, const char *host, SimMessage *take_message,
                      uint64_t token, int32_t member_index, int64_t timeout_ms) {
    int32_t to = sim_find_host(world, host);
    if (to < 0) {
        sim_fail(world, from, "unknown host %s", host);
        sim_message_free(take_message);
        return;
    }
    ARRAY_RESERVE(world->rpcs, world->rpc_count, world->rpc_capacity);
    uint32_t rpc = world->rpc_count++;
    world->rpcs[rpc] = (SimRpc){
        .from = from->id,
        .to = (uint8_t)to,
        .incarnation = from->incarnation,
        .kind = take_message->kind,
        .token = token,
        .member_index = member_index,
        .sent_ms = world->now_ms,
    };
    /* A process that is gone refuses the connection at once, mostly. */
    bool is_refused = world->nodes[to].core == NULL && !world->is_blocked[from->id][to] &&
                      !world->is_blocked[to][from->id] && sim_chance(world, 70);
    if (timeout_ms > 0) {
        int64_t wait_ms = is_refused ? sim_random_ms(world, 1, world->delay_ms_max) : timeout_ms;
        sim_schedule(world, wait_ms, SIM_EVENT_RPC_TIMEOUT, from)->rpc = rpc;
    }
    transmit(world, from->id, (uint32_t)to, SIM_EVENT_REQUEST, rpc, take_message);
}

void sim_send_reply(SimWorld *world, SimNode *from, uint32_t rpc, SimMessage *take_message) {
    uint32_t to = world->rpcs[rpc].from;
    transmit(world, from->id, to, SIM_EVENT_REPLY, rpc, take_message);
}

/* ---- faults ---- */

static void partition(SimWorld *world) {
    memset(world->is_blocked, 0, sizeof(world->is_blocked));
    uint32_t count = world->node_count;
    uint32_t one = (uint32_t)prng_below(&world->prng, count);
    uint64_t side = prng_u64(&world->prng);
    uint32_t choice = (uint32_t)prng_below(&world->prng, 6);
    for (uint32_t from = 0; from < count; from++)
        for (uint32_t to = 0; to < count; to++) {
            bool *blocked = &world->is_blocked[from][to];
            if (choice == 0) /* two halves */
                *blocked = ((side >> from) & 1) != ((side >> to) & 1);
            else if (choice == 1) /* one alone */
                *blocked = from == one || to == one;
            else if (choice == 2) /* one hears nothing */
                *blocked = to == one;
            else if (choice == 3) /* one is not heard */
                *blocked = from == one;
            else if (choice == 4) /* any link, either way */
                *blocked = sim_chance(world, 30);
            if (from == to)
                *blocked = false;
        }
    sim_trace(world, NULL, "partition of kind %u, node %u, sides %x", choice, one,
              (unsigned)(side & ((1u << count) - 1)));
}

static void inject_fault(SimWorld *world) {
    SimNode *node = &world->nodes[prng_below(&world->prng, world->node_count)];
    int64_t unit_ms = world->election_timeout_ms;
    switch (prng_below(&world->prng, 9)) {
    case 0:
    case 1:
    case 2:
        partition(world);
        break;
    case 3:
        memset(world->is_blocked, 0, sizeof(world->is_blocked));
        break;
    case 4:
    case 5:
        if (node->core != NULL) {
            sim_node_crash(world, node);
            sim_schedule(world, sim_random_ms(world, 1, unit_ms * 2), SIM_EVENT_RESTART, node);
        }
        break;
    case 6:
        node->paused_until_ms = world->now_ms + sim_random_ms(world, 1, unit_ms * 3);
        sim_trace(world, node, "pauses until %lld", (long long)node->paused_until_ms);
        break;
    case 7: {
        int64_t jump_ms = sim_chance(world, 10) ? 24 * 3600 * 1000 : 10 * 1000;
        node->wall_offset_ms += sim_random_ms(world, -jump_ms, jump_ms);
        break;
    }
    case 8:
        world->loss_percent = sim_chance(world, 50) ? 0 : (uint32_t)sim_random_ms(world, 1, 20);
        world->duplicate_percent = (uint32_t)sim_random_ms(world, 0, 10);
        world->delay_ms_max = sim_random_ms(world, 2, unit_ms / (sim_chance(world, 20) ? 2 : 20));
        break;
    }
    sim_schedule(world, sim_random_ms(world, unit_ms / 10, unit_ms), SIM_EVENT_FAULT, NULL);
}

static void heal(SimWorld *world) {
    sim_trace(world, NULL, "the faults end");
    world->is_healed = true;
    world->healed_ms = world->now_ms;
    memset(world->is_blocked, 0, sizeof(world->is_blocked));
    world->loss_percent = world->duplicate_percent = 0;
    world->delay_ms_max = 5;
    for (uint32_t i = 0; i < world->node_count; i++) {
        SimNode *node = &world->nodes[i];
        node->paused_until_ms = 0;
        if (node->core == NULL) {
            sim_node_start(world, node);
            continue;
        }
        CLEANUP(error_reset) Error err = {0};
        while (repl_core_set_maintenance(node->core, sim_now(world, node), false, &node->actions,
                                         &err) == ERR_OK)
            continue;
        error_reset(&err);
        (void)!repl_core_freeze(node->core, sim_now(world, node), 0, &node->actions, &err);
        sim_node_settle(world, node);
    }
}

/* ---- the set ---- */

static ReplConfig *random_config(SimWorld *world, uint32_t member_count) {
    CLEANUP(buffer_done) Buffer buf;
    buffer_init(&buf, BUFFER_UNBOUNDED);
    DocBuilder b;
    doc_builder_init(&b, &buf);
    build_cstr(&b, "_id", "sim");
    build_i32(&b, "version", 1);
    build_i64(&b, "term", REPL_CONFIG_TERM_INITIAL);
    static const uint32_t ARBITER_COUNTS[] = {0, 0, 0, 0, 0, 1, 1, 1, 2, 3};
    uint32_t arbiter_count = ARBITER_COUNTS[prng_below(&world->prng, ARRAY_LEN(ARBITER_COUNTS))];
    size_t array = build_open_array(&b, "members");
    for (uint32_t i = 0; i < member_count; i++) {
        char name[INDEX_NAME_SIZE];
        size_t opened = build_open_doc(&b, index_name(i, name).data);
        build_i32(&b, "_id", (int32_t)i);
        build_cstr(&b, "host", world->nodes[i].host);
        /* The first two always hold data and can be elected. */
        bool is_arbiter = i >= 2 && i + arbiter_count >= member_count;
        bool is_voter = i < 2 || is_arbiter || !sim_chance(world, 20);
        bool is_passive = i >= 2 && (!is_voter || sim_chance(world, 20));
        build_bool(&b, "arbiterOnly", is_arbiter);
        build_i32(&b, "votes", is_voter);
        if (!is_arbiter)
            build_f64(&b, "priority", is_passive ? 0 : 1 + (double)prng_below(&world->prng, 3));
        if (is_passive && sim_chance(world, 40))
            build_bool(&b, "hidden", true);
        build_close(&b, opened);
    }
    build_close(&b, array);
    build_bool(&b, "writeConcernMajorityJournalDefault", world->is_journaled);
    int64_t unit_ms = world->election_timeout_ms;
    static const int64_t CATCH_UP_UNITS[] = {-1, -1, 0, 2};
    static const int64_t TAKEOVER_UNITS[] = {-1, 2, 3, 6};
    int64_t catch_up = CATCH_UP_UNITS[prng_below(&world->prng, 4)];
    int64_t takeover = TAKEOVER_UNITS[prng_below(&world->prng, 4)];
    size_t settings = build_open_doc(&b, "settings");
    build_bool(&b, "chainingAllowed", sim_chance(world, 80));
    build_i64(&b, "heartbeatIntervalMillis", unit_ms / 5);
    build_i64(&b, "heartbeatTimeoutSecs", unit_ms / 1000 > 0 ? unit_ms / 1000 : 1);
    build_i64(&b, "electionTimeoutMillis", unit_ms);
    build_i64(&b, "catchUpTimeoutMillis", catch_up > 0 ? catch_up * unit_ms : catch_up);
    build_i64(&b, "catchUpTakeoverDelayMillis", takeover > 0 ? takeover * unit_ms : takeover);
    build_close(&b, settings);
    ReplConfig *config = NULL;
    Error err = {0};
    if (repl_config_parse(doc_builder_end(&b), REPL_CONFIG_ALLOW_ARBITERS, &config, &err) != ERR_OK)
        panic("simulated configuration: %s", error_message(&err));
    return config;
}

static void set_up(SimWorld *world) {
    static const int64_t TIMEOUTS_MS[] = {500, 1000, 2000, 10000};
    world->now_ms = 1000 * 1000;
    world->election_timeout_ms = TIMEOUTS_MS[prng_below(&world->prng, 4)];
    world->is_journaled = !sim_chance(world, 10);
    world->delay_ms_max = 10;
    world->options = repl_options_default();
    world->is_writing = true;
    memset(world->primary_of_term, -1, sizeof(world->primary_of_term));
    memset(world->vote_of, -1, sizeof(world->vote_of));
    world->is_reconfig_storm = sim_chance(world, 30);
    uint32_t member_count = (uint32_t)sim_random_ms(world, 3, world->is_reconfig_storm ? 5 : 7);
    world->node_count = member_count + (uint32_t)sim_random_ms(world, 0, 2); /* the rest: spares */
    for (uint32_t i = 0; i < world->node_count; i++) {
        SimNode *node = &world->nodes[i];
        node->id = (uint8_t)i;
        node->disk_vote = REPL_LAST_VOTE_NONE;
        node->commit_seen = OPTIME_NONE;
        snprintf(node->host, sizeof(node->host), "n%u:27017", i);
    }
    ReplConfig *config = random_config(world, member_count);
    bool is_initiated_by_one = sim_chance(world, 25);
    SimEntry first = {.optime = {(uint64_t)(world->now_ms / 1000 - 10) << 32 | 1, -1},
                      .previous = OPTIME_NONE,
                      .hash = 1};
    for (uint32_t i = 0; i < world->node_count; i++) {
        SimNode *node = &world->nodes[i];
        if (i < member_count && (i == 0 || !is_initiated_by_one)) {
            node->disk_config = repl_config_ref(config);
            if (!config->members[i].is_arbiter) {
                sim_log_append(&node->log, first);
                node->has_data = true;
            }
        }
        sim_node_start(world, node);
    }
    repl_config_unref(config);
    sim_schedule(world, world->election_timeout_ms, SIM_EVENT_WRITE, NULL);
    sim_schedule(world, world->election_timeout_ms * 2, SIM_EVENT_FAULT, NULL);
    sim_schedule(world, world->election_timeout_ms * 2, SIM_EVENT_COMMAND, NULL);
}

static void tear_down(SimWorld *world) {
    SimEvent event;
    while (pop_event(world, &event))
        event_free(&event);
    for (uint32_t i = 0; i < world->node_count; i++) {
        SimNode *node = &world->nodes[i];
        repl_core_free(node->core);
        repl_actions_done(&node->actions);
        repl_config_unref(node->disk_config);
        xfree(node->log.entries);
        xfree(node->queue.entries);
    }
    sim_check_done(world);
    xfree(world->events);
    xfree(world->rpcs);
    xfree(world);
}
