#include "up/setup.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/round_thread.h"
#include "bson/builder.h"
#include "up/control.h"

enum {
    ROUND_US = 20 * 1000,
    SLOW_ROUND_US = 250 * 1000, /* when it takes longer than usual */
    USUAL_US = 10 * 1000 * 1000,
    COMMAND_MS_MAX = 30 * 1000,
    /* Failures are normal while processes start; those that last are told. */
    PROBLEM_US_MIN = 3 * 1000 * 1000,
    /* Of the sets: heartbeats on one machine are quick. */
    ELECTION_TIMEOUT_MS = 3000,
    HEARTBEAT_MS = 500,
};

typedef struct Seen {
    int pid;
    PartState state;
} Seen;

struct Setup {
    SetupConfig config;
    RoundThread rounds;
    Control control;
    Seen seen[LAYOUT_PARTS_MAX]; /* in this round */
    Seen told[LAYOUT_PARTS_MAX]; /* as ready */
    bool has_shards;             /* all were seen in the cluster */
    bool is_ready;
    int64_t unready_since_us;
    char problem[ERROR_MESSAGE_INLINE]; /* the last one that was told */
};

Setup *setup_new(const SetupConfig *config) {
    Setup *setup = NEW(Setup);
    setup->config = *config;
    setup->unready_since_us = config->begun_us;
    round_thread_init(&setup->rounds);
    control_open(&setup->control);
    return setup;
}

void setup_wake(Setup *setup) {
    round_thread_wake(&setup->rounds);
}

void setup_free(Setup *setup) {
    if (setup == NULL)
        return;
    round_thread_begin_stop(&setup->rounds);
    control_interrupt(&setup->control);
    round_thread_stop(&setup->rounds);
    round_thread_done(&setup->rounds);
    control_close(&setup->control);
    xfree(setup);
}

static void note_problem(Setup *setup, const char *what, const Error *err) {
    int64_t waited_us = clock_mono_us() - setup->unready_since_us;
    if (round_thread_is_stopping(&setup->rounds) || waited_us < PROBLEM_US_MIN)
        return;
    char text[sizeof(setup->problem)];
    snprintf(text, sizeof(text), "%s: %.200s", what, error_message(err));
    if (strcmp(text, setup->problem) == 0)
        return;
    memcpy(setup->problem, text, sizeof(text));
    events_tell(setup->config.events, &(Event){.kind = "problem", .message = text});
}

/* ---- sets ---- */

static uint32_t first_of_set(const Setup *setup, uint32_t set) {
    return set * setup->config.layout->replicas;
}

static Doc build_initiate(Setup *setup, uint32_t set) {
    const Layout *layout = setup->config.layout;
    char name[LAYOUT_NAME_SIZE];
    layout_set_name(set, name);
    DocBuilder b = doc_builder_in_arena(&setup->control.op->arena);
    size_t config = build_open_doc(&b, "replSetInitiate");
    build_cstr(&b, "_id", name);
    build_i32(&b, "version", 1);
    if (set == LAYOUT_CONFIG_SET)
        build_bool(&b, "configsvr", true);
    size_t members = build_open_array(&b, "members");
    for (uint32_t i = 0; i < layout->replicas; i++) {
        char index[INDEX_NAME_SIZE], host[32];
        snprintf(host, sizeof(host), "127.0.0.1:%u", layout->ports[set][i]);
        size_t member = build_open_doc_str(&b, index_name(i, index));
        build_i32(&b, "_id", (int32_t)i);
        build_cstr(&b, "host", host);
        build_close(&b, member);
    }
    build_close(&b, members);
    size_t settings = build_open_doc(&b, "settings");
    build_i32(&b, "electionTimeoutMillis", ELECTION_TIMEOUT_MS);
    build_i32(&b, "heartbeatIntervalMillis", HEARTBEAT_MS);
    build_close(&b, settings);
    build_close(&b, config);
    build_cstr(&b, "$db", "admin");
    return doc_builder_end(&b);
}

/* Always through the first member: two members with configurations of their own could not be made
 * one set any more. The others get theirs by heartbeats; they have to answer for that. */
static void initiate_if_needed(Setup *setup, uint32_t set) {
    uint32_t first = first_of_set(setup, set);
    if (setup->seen[first].state != PART_NOT_INITIATED)
        return;
    for (uint32_t i = 1; i < setup->config.layout->replicas; i++)
        if (setup->seen[first + i].state == PART_DOWN)
            return;
    CLEANUP(error_reset) Error err = {0};
    CLEANUP(client_reply_done) ClientReply reply = {0};
    const Part *part = &setup->config.parts->rows[first];
    ErrCode rc = control_run(&setup->control, part->port, build_initiate(setup, set),
                             COMMAND_MS_MAX, &reply, &err);
    if (rc != ERR_OK && rc != ERR_ALREADY_INITIALIZED)
        note_problem(setup, "could not initiate a set", &err);
}

static bool has_primary(const Setup *setup, uint32_t set) {
    uint32_t first = first_of_set(setup, set);
    for (uint32_t i = 0; i < setup->config.layout->replicas; i++)
        if (setup->seen[first + i].state == PART_PRIMARY)
            return true;
    return false;
}

/* ---- shards ---- */

static bool is_listed(Doc reply, const char *name) {
    Elem shards = doc_get_lit(reply, "shards");
    if (elem_type(shards) != BT_ARRAY)
        return false;
    DocIter iter = doc_iter(elem_doc(shards));
    for (Elem shard; doc_iter_next(&iter, &shard);)
        if (elem_type(shard) == BT_DOC) {
            Elem id = doc_get_lit(elem_doc(shard), "_id");
            if (elem_type(id) == BT_STRING && str_is(elem_str(id), name))
                return true;
        }
    return false;
}

static ErrCode add_shard(Setup *setup, uint16_t router, uint32_t set, Error *err) {
    Arena *arena = &setup->control.op->arena;
    char name[LAYOUT_NAME_SIZE];
    layout_set_name(set, name);
    DocBuilder b = doc_builder_in_arena(arena);
    build_cstr(&b, "addShard", layout_set_address(setup->config.layout, set, arena));
    build_cstr(&b, "name", name);
    build_cstr(&b, "$db", "admin");
    CLEANUP(client_reply_done) ClientReply reply = {0};
    return control_run(&setup->control, router, doc_builder_end(&b), COMMAND_MS_MAX, &reply, err);
}

static ErrCode add_missing_shards(Setup *setup, Error *err) {
    const Layout *layout = setup->config.layout;
    DocBuilder b = doc_builder_in_arena(&setup->control.op->arena);
    build_i32(&b, "listShards", 1);
    build_cstr(&b, "$db", "admin");
    CLEANUP(client_reply_done) ClientReply reply = {0};
    TRY(control_run(&setup->control, layout->router_port, doc_builder_end(&b), COMMAND_MS_MAX,
                    &reply, err));
    for (uint32_t set = LAYOUT_CONFIG_SET + 1; set < layout->set_count; set++) {
        char name[LAYOUT_NAME_SIZE];
        layout_set_name(set, name);
        if (!is_listed(reply.body, name))
            TRY(add_shard(setup, layout->router_port, set, err));
    }
    return ERR_OK;
}

/* ---- rounds ---- */

/* Whether all parts are there and every set has a primary. */
static bool look(Setup *setup) {
    const Parts *parts = setup->config.parts;
    bool is_all_there = true;
    for (uint32_t i = 0; i < parts->count; i++) {
        /* Before the question, so that an answer is never taken for that of a later process. */
        int pid = atomic_load(&setup->config.pids[i]);
        PartState state = pid == 0 ? PART_DOWN : control_state(&setup->control, &parts->rows[i]);
        setup->seen[i] = (Seen){pid, state};
        is_all_there = is_all_there && state >= PART_SECONDARY;
    }
    for (uint32_t set = 0; set < setup->config.layout->set_count; set++)
        is_all_there = is_all_there && has_primary(setup, set);
    return is_all_there;
}

static void tell_parts(Setup *setup) {
    const Parts *parts = setup->config.parts;
    for (uint32_t i = 0; i < parts->count; i++) {
        const Part *part = &parts->rows[i];
        Seen seen = setup->seen[i], *told = &setup->told[i];
        if (seen.state < PART_SECONDARY || (seen.pid == told->pid && seen.state == told->state))
            continue;
        if (part->role != PART_ROUTER && !has_primary(setup, part->set))
            continue;
        *told = seen;
        events_tell(setup->config.events, &(Event){.kind = "ready",
                                                   .part = part,
                                                   .pid = seen.pid,
                                                   .state = part_state_name(seen.state)});
    }
}

static void tell_cluster(Setup *setup) {
    events_tell(setup->config.events,
                &(Event){.kind = "ready",
                         .uri = layout_uri(setup->config.layout, &setup->control.op->arena),
                         .after_ms = (clock_mono_us() - setup->unready_since_us) / 1000 + 1});
}

/* Does what can be done now; true when nothing is left to do. */
static bool converge(Setup *setup) {
    CLEANUP(error_reset) Error err = {0};
    bool is_all_there = look(setup);
    if (setup->is_ready && !is_all_there)
        setup->unready_since_us = clock_mono_us();
    setup->is_ready = setup->is_ready && is_all_there;
    for (uint32_t set = 0; set < setup->config.layout->set_count; set++)
        initiate_if_needed(setup, set);
    tell_parts(setup);
    if (!is_all_there || setup->is_ready)
        return is_all_there;
    if (!setup->has_shards && add_missing_shards(setup, &err) != ERR_OK) {
        note_problem(setup, "could not add the shards", &err);
        return false;
    }
    setup->has_shards = true;
    setup->is_ready = true;
    tell_cluster(setup);
    return true;
}

static void run(void *arg) {
    Setup *setup = arg;
    Arena *arena = &setup->control.op->arena;
    int64_t next_us = 0;
    while (round_thread_wait(&setup->rounds, next_us)) {
        ArenaMark mark = arena_mark(arena);
        bool is_done = converge(setup);
        arena_rewind(arena, mark);
        int64_t now_us = clock_mono_us();
        bool is_slow = now_us - setup->unready_since_us > USUAL_US;
        next_us = is_done ? INT64_MAX : now_us + (is_slow ? SLOW_ROUND_US : ROUND_US);
    }
}

ErrCode setup_start(Setup *setup, Error *err) {
    return round_thread_start(&setup->rounds, "setup", run, setup, err);
}
