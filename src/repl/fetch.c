/*
 * fetch.c - the oplog of another member, as it grows.
 *
 * A tailable find from the newest entry this member has, then a stream of batches (exhaust). The
 * first entry must be that newest one: if the source has another in its place, the two have parted
 * and this member has to roll back.
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "repl/sync_internal.h"

enum {
    CONNECT_TIMEOUT_US = 10 * 1000 * 1000,
    FIND_TIMEOUT_US = 60 * 1000 * 1000,
    AWAIT_MS = 5000, /* a reply comes at least so often, with news of the commit point */
    AWAIT_SLACK_US = 5 * 1000 * 1000,
    IDLE_US = 200 * 1000,
    QUEUE_BYTES_MAX = 256 * 1024 * 1024,
    BATCH_DOCS = 13981010,
};

typedef enum FetchEnd {
    FETCH_CHANGE, /* look for another source */
    FETCH_ROLLBACK,
    FETCH_TOO_STALE, /* the source has forgotten what comes next here */
} FetchEnd;

typedef struct Choice {
    OpTime last_fetched;
    int32_t index;
    char host[REPL_HOST_SIZE];
    const char *deny_host;
    int64_t deny_ms;
    ReplOplogMetadata metadata;
    int64_t term;
    int32_t source_index;
    const char *reason;
    bool is_change_wanted;
} Choice;

static void choose(void *arg, ReplCore *core, ReplNow now, ReplActions *actions) {
    (void)actions;
    Choice *choice = arg;
    choice->index = repl_core_choose_sync_source(core, now, choice->last_fetched);
    choice->host[0] = '\0';
    if (choice->index >= 0)
        snprintf(choice->host, sizeof(choice->host), "%s",
                 repl_core_config(core)->members[choice->index].host);
}

static void deny(void *arg, ReplCore *core, ReplNow now, ReplActions *actions) {
    (void)actions;
    Choice *choice = arg;
    repl_core_deny_source(core, now, choice->deny_host, choice->deny_ms);
    repl_core_clear_sync_source(core);
}

static void learn(void *arg, ReplCore *core, ReplNow now, ReplActions *actions) {
    Choice *choice = arg;
    repl_core_on_source_metadata(core, now, choice->source_index, choice->term, &choice->metadata,
                                 actions);
    choice->is_change_wanted = repl_core_should_change_source(core, now, choice->last_fetched,
                                                              &choice->metadata, &choice->reason);
}

/* A primary that catches up cannot roll back. */
static void give_up_catching_up(void *arg, ReplCore *core, ReplNow now, ReplActions *actions) {
    (void)arg;
    repl_core_catch_up_failed(core, now, actions);
}

static void deny_source(Sync *sync, const char *host, int64_t for_ms) {
    Choice choice = {.deny_host = host, .deny_ms = for_ms};
    repl_event(sync->repl, deny, &choice);
}

/* ---- too stale to catch up ---- */

static void set_state(void *arg, ReplCore *core, ReplNow now, ReplActions *actions) {
    (void)repl_core_set_follower_state(core, now, *(ReplState *)arg, actions);
}

/* Nobody is left who still has what comes next: this member serves no reads and waits for one who
 * has it, or for somebody to empty its directory. */
static void begin_staleness(Sync *sync) {
    if (atomic_load(&sync->repl->state) != REPL_SECONDARY)
        return;
    LOG_ERROR(LOG_REPL, 21068,
              "Too stale to catch up: no member has an oplog entry that can follow this member's "
              "newest. Entering RECOVERING; it has to be synced anew, with an empty directory",
              LOG_I64("lastFetchedSeconds", ts_seconds(sync->last_fetched.ts)));
    ReplState state = REPL_RECOVERING;
    repl_event(sync->repl, set_state, &state);
}

static void end_staleness(Sync *sync) {
    if (!atomic_exchange(&sync->repl->is_too_stale, false) ||
        atomic_load(&sync->repl->state) != REPL_RECOVERING)
        return;
    ReplState state = REPL_SECONDARY;
    repl_event(sync->repl, set_state, &state);
}

/* ---- commands to the source ---- */

static Doc find_command(OpCtx *op, OpTime from, int64_t term) {
    DocBuilder b = doc_builder_in_arena(&op->arena);
    build_cstr(&b, "find", "oplog.rs");
    size_t filter = build_open_doc(&b, "filter");
    size_t ts = build_open_doc(&b, "ts");
    build_timestamp(&b, "$gte", from.ts);
    build_close(&b, ts);
    build_close(&b, filter);
    build_bool(&b, "tailable", true);
    build_bool(&b, "awaitData", true);
    build_bool(&b, "oplogReplay", true);
    build_i64(&b, "maxTimeMS", FIND_TIMEOUT_US / 1000);
    build_i32(&b, "batchSize", BATCH_DOCS);
    build_i64(&b, "term", term);
    build_cstr(&b, "$db", "local");
    return doc_builder_end(&b);
}

static Doc get_more_command(OpCtx *op, int64_t cursor_id, int64_t term, OpTime commit) {
    DocBuilder b = doc_builder_in_arena(&op->arena);
    build_i64(&b, "getMore", cursor_id);
    build_cstr(&b, "collection", "oplog.rs");
    build_i32(&b, "batchSize", BATCH_DOCS);
    build_i64(&b, "maxTimeMS", AWAIT_MS);
    build_i64(&b, "term", term);
    build_optime(&b, "lastKnownCommittedOpTime", commit);
    build_cstr(&b, "$db", "local");
    return doc_builder_end(&b);
}

typedef struct CoreFacts {
    int64_t term;
    OpTime commit;
} CoreFacts;

static void look(void *arg, const ReplCore *core) {
    CoreFacts *facts = arg;
    facts->term = repl_core_term(core);
    facts->commit = repl_core_commit_point(core).optime;
}

/* ---- batches ---- */

/* Puts the entries of a reply into the queue; waits while it is full. */
static ErrCode enqueue(Sync *sync, Doc batch_docs, bool skips_first, Error *err) {
    FetchedBatch *batch = NEW(FetchedBatch);
    buffer_init(&batch->docs, (size_t)64 * 1024 * 1024);
    DocIter iter = doc_iter(batch_docs);
    OpTime last = OPTIME_NONE;
    ErrCode rc = ERR_OK;
    bool is_first = true;
    for (Elem elem; rc == ERR_OK && doc_iter_next(&iter, &elem); is_first = false) {
        if (is_first && skips_first)
            continue;
        int64_t wall_ms;
        if (elem_type(elem) != BT_DOC)
            rc = error_set(err, ERR_FAILED_TO_PARSE, "an oplog entry is not a document");
        else
            rc = oplog_entry_position(elem_doc(elem), &last, &wall_ms, err);
        if (rc != ERR_OK)
            break;
        if (last.ts <= sync->last_fetched.ts) {
            rc = error_set(err, ERR_OPLOG_OUT_OF_ORDER, "oplog entries are out of order");
            break;
        }
        sync->last_fetched = last;
        buffer_append(&batch->docs, elem_doc(elem).data, doc_size(elem_doc(elem)));
        batch->count++;
    }
    if (rc != ERR_OK || batch->count == 0) {
        buffer_done(&batch->docs);
        xfree(batch);
        return rc;
    }
    mutex_lock(&sync->mu);
    while (sync->queued_bytes > QUEUE_BYTES_MAX && !sync->is_stopping)
        cond_wait(&sync->fetch_cond, &sync->mu);
    list_push_back(&sync->queue, &batch->node);
    sync->queued_bytes += batch->docs.size;
    cond_signal(&sync->apply_cond);
    mutex_unlock(&sync->mu);
    return ERR_OK;
}

static ErrCode take_metadata(Sync *sync, Choice *choice, Doc reply, Error *err) {
    bool has_oplog_data, has_repl_data;
    ReplMetadata repl_data;
    TRY(parse_oplog_metadata(reply, &has_oplog_data, &choice->metadata, err));
    TRY(parse_repl_metadata(reply, &has_repl_data, &repl_data, err));
    if (!has_oplog_data)
        return ERR_OK;
    choice->term = has_repl_data ? repl_data.term : OPTIME_TERM_NONE;
    choice->source_index = choice->index;
    choice->last_fetched = sync->last_fetched;
    choice->is_change_wanted = false;
    repl_event(sync->repl, learn, choice);
    if (!choice->is_change_wanted)
        return ERR_OK;
    LOG_INFO(LOG_REPL, 21096, "Changing the sync source", LOG_STR("from", choice->host),
             LOG_STR("reason", choice->reason));
    return error_set(err, ERR_INVALID_SYNC_SOURCE, "%s", choice->reason);
}

static Doc batch_of(Doc reply, const char *name) {
    Elem cursor = doc_get_lit(reply, "cursor");
    Elem batch =
        elem_type(cursor) == BT_DOC ? doc_get(elem_doc(cursor), str_from(name)) : ELEM_MISSING;
    return elem_type(batch) == BT_ARRAY ? elem_doc(batch) : DOC_EMPTY;
}

static int64_t cursor_id_of(Doc reply) {
    Elem cursor = doc_get_lit(reply, "cursor");
    Elem id = elem_type(cursor) == BT_DOC ? doc_get_lit(elem_doc(cursor), "id") : ELEM_MISSING;
    return elem_is_number(id) ? elem_as_i64(id) : 0;
}

static ErrCode oldest_of_source(OpCtx *op, Peer *peer, uint64_t *ret_ts, Error *err) {
    DocBuilder b = doc_builder_in_arena(&op->arena);
    build_cstr(&b, "find", "oplog.rs");
    size_t sort = build_open_doc(&b, "sort");
    build_i32(&b, "$natural", 1);
    build_close(&b, sort);
    build_i32(&b, "limit", 1);
    build_cstr(&b, "$db", "local");
    Doc reply;
    TRY(peer_run(peer, doc_builder_end(&b), clock_mono_us() + FIND_TIMEOUT_US, &reply, err));
    DocIter iter = doc_iter(batch_of(reply, "firstBatch"));
    Elem first;
    if (!doc_iter_next(&iter, &first) || elem_type(first) != BT_DOC)
        return error_set(err, ERR_OPLOG_START_MISSING, "the source has no oplog");
    OpTime optime;
    int64_t wall_ms;
    TRY(oplog_entry_position(elem_doc(first), &optime, &wall_ms, err));
    *ret_ts = optime.ts;
    return ERR_OK;
}

/* The source must have this member's newest entry. */
static ErrCode check_first(Sync *sync, OpCtx *op, Peer *peer, Choice *choice, Doc docs,
                           FetchEnd *ret_end, Error *err) {
    DocIter iter = doc_iter(docs);
    Elem first;
    if (!doc_iter_next(&iter, &first)) {
        deny_source(sync, choice->host, REPL_DENY_NETWORK_MS);
        return error_set(err, ERR_OPLOG_START_MISSING, "%s is behind this member", choice->host);
    }
    OpTime optime;
    int64_t wall_ms;
    if (elem_type(first) != BT_DOC)
        return error_set(err, ERR_FAILED_TO_PARSE, "an oplog entry is not a document");
    TRY(oplog_entry_position(elem_doc(first), &optime, &wall_ms, err));
    if (optime_equal(optime, sync->last_fetched))
        return ERR_OK;
    uint64_t oldest_ts = 0;
    TRY(oldest_of_source(op, peer, &oldest_ts, err));
    if (oldest_ts > sync->last_fetched.ts) {
        *ret_end = FETCH_TOO_STALE;
        return error_set(err, ERR_OPLOG_START_MISSING,
                         "the oldest oplog entry of %s is newer than this member's newest",
                         choice->host);
    }
    *ret_end = FETCH_ROLLBACK;
    return error_set(err, ERR_OPLOG_START_MISSING,
                     "%s does not have this member's newest entry: their histories have parted",
                     choice->host);
}

static ErrCode stream(Sync *sync, OpCtx *op, Peer *peer, Choice *choice, FetchEnd *ret_end,
                      Error *err) {
    CoreFacts facts;
    repl_look(sync->repl, look, &facts);
    Doc reply;
    TRY(peer_run(peer, find_command(op, sync->last_fetched, facts.term),
                 clock_mono_us() + FIND_TIMEOUT_US, &reply, err));
    int64_t cursor_id = cursor_id_of(reply);
    /* In the arena: the check may ask the source something else. */
    reply = doc_copy(reply, &op->arena);
    Doc docs = batch_of(reply, "firstBatch");
    TRY(check_first(sync, op, peer, choice, docs, ret_end, err));
    end_staleness(sync);
    TRY(enqueue(sync, docs, /* skips_first= */ true, err));
    TRY(take_metadata(sync, choice, reply, err));
    bool more_to_come = false;
    while (!sync_is_fetching_over(sync)) {
        if (!more_to_come) {
            if (cursor_id == 0)
                return error_set(err, ERR_CURSOR_NOT_FOUND, "%s closed the cursor", choice->host);
            repl_look(sync->repl, look, &facts);
            TRY(peer_send(peer, get_more_command(op, cursor_id, facts.term, facts.commit),
                          /* is_exhaust= */ true, clock_mono_us() + AWAIT_SLACK_US, err));
        }
        TRY(peer_receive(peer, clock_mono_us() + AWAIT_MS * INT64_C(1000) + AWAIT_SLACK_US,
                         &more_to_come, &reply, err));
        TRY(peer_check_reply(reply, err));
        cursor_id = cursor_id_of(reply);
        TRY(enqueue(sync, batch_of(reply, "nextBatch"), /* skips_first= */ false, err));
        TRY(take_metadata(sync, choice, reply, err));
        arena_reset(&op->arena);
    }
    return ERR_OK;
}

static void set_source(Sync *sync, const char *host) {
    mutex_lock(&sync->mu);
    snprintf(sync->source_host, sizeof(sync->source_host), "%s", host);
    sync->is_report_wanted = true;
    cond_signal(&sync->report_cond);
    mutex_unlock(&sync->mu);
}

static void fetch_from(Sync *sync, OpCtx *op, Choice *choice) {
    CLEANUP(error_reset) Error err = {0};
    FetchEnd end = FETCH_CHANGE;
    Peer *peer = NULL;
    ErrCode rc = peer_connect(choice->host, clock_mono_us() + CONNECT_TIMEOUT_US, &peer, &err);
    if (rc == ERR_OK) {
        sync_set_peer(sync, &sync->fetch_peer, peer);
        LOG_INFO(LOG_REPL, 21799, "Sync source candidate chosen",
                 LOG_STR("syncSource", choice->host));
        set_source(sync, choice->host);
        rc = stream(sync, op, peer, choice, &end, &err);
        if (end == FETCH_ROLLBACK && atomic_load(&sync->repl->state) == REPL_PRIMARY)
            repl_event(sync->repl, give_up_catching_up, NULL);
        else if (end == FETCH_ROLLBACK)
            rc = rollback_run(sync, op, peer, &err);
        if (end == FETCH_TOO_STALE) {
            atomic_store(&sync->repl->is_too_stale, true);
            deny_source(sync, choice->host, REPL_DENY_TOO_STALE_MS);
        }
        if (rc == ERR_UNRECOVERABLE_ROLLBACK_ERROR) {
            atomic_store(&sync->repl->is_too_stale, true); /* unless another one helps */
            deny_source(sync, choice->host, REPL_DENY_NO_START_MS);
        }
        sync_set_peer(sync, &sync->fetch_peer, NULL);
        set_source(sync, "");
    }
    bool is_wanted = !sync_is_fetching_over(sync);
    if (rc != ERR_OK && is_wanted && rc != ERR_INVALID_SYNC_SOURCE) {
        LOG_INFO(LOG_REPL, 21090, "Fetching the oplog ended", LOG_STR("syncSource", choice->host),
                 LOG_STR("error", error_message(&err)));
        if (rc == ERR_HOST_UNREACHABLE || rc == ERR_NETWORK_TIMEOUT || rc == ERR_HOST_NOT_FOUND)
            deny_source(sync, choice->host, REPL_DENY_NETWORK_MS);
    }
    peer_free(peer);
    mutex_lock(&sync->mu);
    cond_broadcast(&sync->apply_cond); /* whoever drains waits for this, too */
    mutex_unlock(&sync->mu);
    arena_reset(&op->arena);
}

/* Whatever is queued must be applied before another source is asked from where it ends. */
static void take_place(Sync *sync) {
    mutex_lock(&sync->mu);
    if (list_is_empty(&sync->queue) && !sync->is_applying) {
        mutex_unlock(&sync->mu);
        sync->last_fetched = oplog_applied(sync->repl->oplog);
        return;
    }
    mutex_unlock(&sync->mu);
}

static bool is_stopping(Sync *sync) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&sync->mu);
    sync->is_source_change_wanted = false;
    return sync->is_stopping;
}

void fetch_run(void *arg) {
    Sync *sync = arg;
    log_set_thread_name("ReplFetch");
    OpCtx *op = repl_op_new(sync->repl, "ReplFetch");
    while (!is_stopping(sync)) {
        if (atomic_load(&sync->repl->state) == REPL_STARTUP2 && sync_needs_copy(sync)) {
            initial_sync(sync, op);
            arena_reset(&op->arena);
            continue;
        }
        if (sync_is_fetching_over(sync)) {
            sync_idle(sync, IDLE_US);
            continue;
        }
        take_place(sync);
        Choice *choice = NEW(Choice);
        choice->last_fetched = sync->last_fetched;
        repl_event(sync->repl, choose, choice);
        if (choice->index < 0 && atomic_load(&sync->repl->is_too_stale))
            begin_staleness(sync);
        if (choice->index < 0)
            sync_idle(sync, IDLE_US);
        else
            fetch_from(sync, op, choice);
        xfree(choice);
    }
    op_end(op);
    op_ctx_free(op);
}
