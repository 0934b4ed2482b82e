/*
 * fetch.c - tails the oplog of another member.
 *
 * A tailable find from this member's newest entry, then a stream of batches (exhaust). The first
 * entry must be that newest one: if the source has another in its place, the histories have
 * diverged and this member has to roll back. Whether a batch may still be used when it arrives is
 * decided by the feed (election/feed.h).
 *
 * Threading: one thread, "ReplFetch"; others interrupt it through its connection.
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "query/match/match.h"
#include "repl/sync_internal.h"

enum {
    CONNECT_TIMEOUT_US = 10 * 1000 * 1000,
    FIND_TIMEOUT_US = 60 * 1000 * 1000,
    AWAIT_MS = 5000, /* the longest time without a reply; replies also carry the commit point */
    AWAIT_SLACK_US = 5 * 1000 * 1000,
    IDLE_US = 200 * 1000,
    REFUSED_FIRST_US = 100 * 1000,
    REFUSED_DOUBLINGS_MAX = 6,
    /* Fetching ahead hides the network; beyond this the source's oplog is the better buffer. */
    /* No limit by count: replies are limited by their bytes. */
    BATCH_DOCS = 13981010,
    BATCH_BYTES_MAX = 64 * 1024 * 1024, /* more than any message has */
};

typedef enum FetchEnd {
    FETCH_CHANGE, /* choose another source */
    FETCH_ROLLBACK,
    FETCH_TOO_STALE, /* the source no longer has the next entry */
} FetchEnd;

typedef struct Choice {
    uint64_t stream;
    OpTime last_fetched; /* newest entry of the stream, or the one it starts after */
    int32_t index;
    char host[REPL_HOST_SIZE];
    char forced[REPL_HOST_SIZE]; /* the source a test wants; "": none */
    const char *deny_host;
    int64_t deny_ms;
    ReplOplogMetadata metadata;
    int64_t term;
    int32_t source_index;
    const char *reason;
    bool is_change_wanted;
} Choice;

static void free_choice(Choice **choice) {
    xfree(*choice);
}

static void choose(void *arg, ReplCore *core, ReplNow now, ReplActions *actions) {
    (void)actions;
    Choice *choice = arg;
    repl_core_set_test_source(core, choice->forced, failpoint_is_set(FP_DISABLE_SOURCE_LAG));
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

/* A primary in catch-up cannot roll back. */
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

/* No member has the next entry any more: this one serves no reads and waits for a member that does,
 * or for an operator to empty its directory. */
static void begin_staleness(Sync *sync, OpTime last_fetched) {
    if (atomic_load(&sync->repl->state) != REPL_SECONDARY)
        return;
    LOG_ERROR(LOG_REPL, 21068,
              "Too stale to catch up: no member has an oplog entry that can follow this member's "
              "newest. Entering RECOVERING; it has to be synced anew, with an empty directory",
              LOG_I64("lastFetchedSeconds", ts_seconds(last_fetched.ts)));
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

static void batch_free(FetchedBatch *batch) {
    if (batch == NULL)
        return;
    buffer_done(&batch->docs);
    xfree(batch);
}

/* Copies the entries of a reply; they must be in order. */
static ErrCode fill_batch(FetchedBatch *batch, Doc docs, bool skips_first, OpTime *last,
                          Error *err) {
    DocIter iter = doc_iter(docs);
    bool is_first = true;
    for (Elem elem; doc_iter_next(&iter, &elem); is_first = false) {
        if (is_first && skips_first)
            continue;
        if (elem_type(elem) != BT_DOC)
            return error_set(err, ERR_FAILED_TO_PARSE, "an oplog entry is not a document");
        OpTime optime;
        int64_t wall_ms;
        TRY(oplog_entry_position(elem_doc(elem), &optime, &wall_ms, err));
        if (!oplog_may_follow(*last, optime))
            return error_set(err, ERR_OPLOG_OUT_OF_ORDER, "oplog entries are out of order");
        *last = optime;
        buffer_append(&batch->docs, elem_doc(elem).data, doc_size(elem_doc(elem)));
        batch->count++;
    }
    return buffer_check(&batch->docs, "a batch of oplog entries", err);
}

/* Queues the entries of a reply; waits while the queue is full. An empty reply must belong to the
 * stream, too: its commit point is only valid on that branch. */
static ErrCode enqueue(Sync *sync, Choice *choice, Doc docs, bool skips_first, Error *err) {
    FetchedBatch *batch = NEW(FetchedBatch);
    batch->after = choice->last_fetched;
    buffer_init(&batch->docs, BATCH_BYTES_MAX);
    OpTime last = choice->last_fetched;
    ErrCode rc = fill_batch(batch, docs, skips_first, &last, err);
    if (rc != ERR_OK) {
        batch_free(batch);
        return rc;
    }
    mutex_lock(&sync->mu);
    while (sync->queued_bytes > SYNC_QUEUE_BYTES_MAX && !sync->is_stopping && sync->feed.is_open)
        cond_wait(&sync->fetch_cond, &sync->mu);
    /* After the wait, under the lock of the queue: a drain or another stream may have begun
     * meanwhile. */
    bool is_taken = feed_take(&sync->feed, choice->stream, choice->metadata.rollback_id,
                              choice->last_fetched, last, batch->count);
    sync->stats.entries += is_taken ? batch->count : 0;
    sync->stats.bytes += is_taken ? (int64_t)batch->docs.size : 0;
    if (is_taken && batch->count > 0) {
        list_push_back(&sync->queue, &batch->node);
        sync->queued_bytes += batch->docs.size;
        cond_signal(&sync->apply_cond);
        batch = NULL; /* owned by the queue */
        sync->refused_count = 0;
    }
    mutex_unlock(&sync->mu);
    batch_free(batch);
    if (!is_taken)
        return error_set(err, ERR_INVALID_SYNC_SOURCE,
                         "entries of %s came too late, or it has rolled back meanwhile",
                         choice->host);
    choice->last_fetched = last;
    return ERR_OK;
}

/* The documents of a batch before position `at`, or those from it on. */
static ErrCode take_part(Doc docs, uint32_t at, bool is_rest, Buffer *buf, Doc *ret_part,
                         Error *err) {
    buffer_init(buf, BATCH_BYTES_MAX);
    DocBuilder b;
    doc_builder_init(&b, buf);
    DocIter iter = doc_iter(docs);
    Elem elem;
    for (uint32_t i = 0; doc_iter_next(&iter, &elem); i++)
        if ((i >= at) == is_rest)
            build_elem(&b, elem);
    return doc_builder_finish(&b, "a part of a batch", ret_part, err);
}

/* Where the first entry is that a test stops at; `count` of them if none is. */
static ErrCode find_stop(Doc docs, uint32_t *ret_at, Error *err) {
    CLEANUP(arena_done) Arena arena;
    arena_init(&arena, ARENA_CHUNK_SIZE_DEFAULT);
    FailpointConfig config = failpoint_config(FP_STOP_REPL_PRODUCER_ON_DOCUMENT);
    Elem filter = config.data != NULL ? doc_get_lit((Doc){config.data}, "document") : ELEM_MISSING;
    const MatchParseContext ctx = {0};
    MatchExpr *match = NULL;
    ErrCode rc = match_parse(elem_type(filter) == BT_DOC ? elem_doc(filter) : DOC_EMPTY, &ctx,
                             &arena, &match, err);
    xfree(config.data);
    TRY(rc);
    DocIter iter = doc_iter(docs);
    *ret_at = 0;
    for (Elem elem; doc_iter_next(&iter, &elem); ++*ret_at) {
        MatchDetails details = MATCH_DETAILS_NONE;
        details.err = err;
        if (elem_type(elem) == BT_DOC && match_doc(match, elem_doc(elem), &details))
            return ERR_OK;
        TRY(details.rc);
    }
    return ERR_OK;
}

/* A test lets come what is before a certain entry, and holds up that one and the others. */
static ErrCode enqueue_in_parts(Sync *sync, Choice *choice, Doc docs, bool skips_first,
                                Error *err) {
    uint32_t at;
    TRY(find_stop(docs, &at, err));
    if (at >= doc_count(docs) || (at == 0 && skips_first))
        return enqueue(sync, choice, docs, skips_first, err);
    CLEANUP(buffer_done) Buffer first = {0};
    CLEANUP(buffer_done) Buffer rest = {0};
    Doc part;
    TRY(take_part(docs, at, /* is_rest= */ false, &first, &part, err));
    TRY(enqueue(sync, choice, part, skips_first, err));
    failpoint_hang(FP_STOP_REPL_PRODUCER_ON_DOCUMENT);
    TRY(take_part(docs, at, /* is_rest= */ true, &rest, &part, err));
    return enqueue(sync, choice, part, /* skips_first= */ false, err);
}

/* The metadata were produced after the entries were read: so the rollback id in them shows whether
 * the source is still on the branch on which the stream was opened. */
static ErrCode take_reply(Sync *sync, Choice *choice, Doc reply, const char *name, bool skips_first,
                          Error *err) {
    bool has_oplog_data, has_repl_data;
    ReplMetadata repl_data;
    TRY(parse_oplog_metadata(reply, &has_oplog_data, &choice->metadata, err));
    TRY(parse_repl_metadata(reply, &has_repl_data, &repl_data, err));
    if (!has_oplog_data)
        return error_set(err, ERR_FAILED_TO_PARSE, "%s answers without $oplogQueryData",
                         choice->host);
    Doc docs = batch_of(reply, name);
    if (LIKELY(!failpoint_is_set(FP_STOP_REPL_PRODUCER_ON_DOCUMENT)))
        TRY(enqueue(sync, choice, docs, skips_first, err));
    else
        TRY(enqueue_in_parts(sync, choice, docs, skips_first, err));
    choice->term = has_repl_data ? repl_data.term : OPTIME_TERM_NONE;
    choice->source_index = choice->index;
    choice->is_change_wanted = false;
    /* Only after the entries are accepted: a commit point of another branch must not be learned. */
    repl_event(sync->repl, learn, choice);
    if (!choice->is_change_wanted)
        return ERR_OK;
    LOG_INFO(LOG_REPL, 21096, "Changing the sync source", LOG_STR("from", choice->host),
             LOG_STR("reason", choice->reason));
    return error_set(err, ERR_INVALID_SYNC_SOURCE, "%s", choice->reason);
}

/* The oldest entry of the source, or the newest. */
static ErrCode end_of_source(OpCtx *op, ClientConn *conn, bool is_newest, OpTime *ret_optime,
                             Error *err) {
    DocBuilder b = doc_builder_in_arena(&op->arena);
    build_cstr(&b, "find", "oplog.rs");
    size_t sort = build_open_doc(&b, "sort");
    build_i32(&b, "$natural", is_newest ? -1 : 1);
    build_close(&b, sort);
    build_i32(&b, "limit", 1);
    build_cstr(&b, "$db", "local");
    Doc reply;
    TRY(client_conn_run(conn, op, doc_builder_end(&b), clock_mono_us() + FIND_TIMEOUT_US, &reply,
                        err));
    DocIter iter = doc_iter(batch_of(reply, "firstBatch"));
    Elem first;
    if (!doc_iter_next(&iter, &first) || elem_type(first) != BT_DOC)
        return error_set(err, ERR_OPLOG_START_MISSING, "the source has no oplog");
    int64_t wall_ms;
    return oplog_entry_position(elem_doc(first), ret_optime, &wall_ms, err);
}

static ErrCode parted(const Choice *choice, FetchEnd *ret_end, Error *err) {
    *ret_end = FETCH_ROLLBACK;
    return error_set(err, ERR_OPLOG_START_MISSING,
                     "%s does not have this member's newest entry: their histories have parted",
                     choice->host);
}

/* The source had nothing as late as this member's newest entry. On one branch neither terms nor
 * timestamps go back: an entry of a newer term with an earlier timestamp is on another one. This is
 * the case of an old primary that continued to write after the others had elected a new one. */
static ErrCode check_shorter(Sync *sync, OpCtx *op, ClientConn *conn, Choice *choice,
                             FetchEnd *ret_end, Error *err) {
    OpTime newest;
    TRY(end_of_source(op, conn, /* is_newest= */ true, &newest, err));
    if (newest.ts >= choice->last_fetched.ts)
        return error_set(err, ERR_INVALID_SYNC_SOURCE, "%s has more entries now", choice->host);
    if (newest.term > choice->last_fetched.term)
        return parted(choice, ret_end, err);
    deny_source(sync, choice->host, REPL_DENY_BEHIND_MS);
    return error_set(err, ERR_OPLOG_START_MISSING, "%s is behind this member", choice->host);
}

/* Checks that the source has this member's newest entry; otherwise finds out why not: too stale, or
 * diverged. */
static ErrCode check_first(Sync *sync, OpCtx *op, ClientConn *conn, Choice *choice,
                           int32_t rollback_id, Doc docs, FetchEnd *ret_end, Error *err) {
    DocIter iter = doc_iter(docs);
    Elem first;
    if (!doc_iter_next(&iter, &first))
        return check_shorter(sync, op, conn, choice, ret_end, err);
    OpTime optime;
    int64_t wall_ms;
    if (elem_type(first) != BT_DOC)
        return error_set(err, ERR_FAILED_TO_PARSE, "an oplog entry is not a document");
    TRY(oplog_entry_position(elem_doc(first), &optime, &wall_ms, err));
    mutex_lock(&sync->mu);
    bool is_proved = feed_prove(&sync->feed, choice->stream, rollback_id, optime);
    mutex_unlock(&sync->mu);
    if (is_proved)
        return ERR_OK;
    if (optime_equal(optime, choice->last_fetched))
        return error_set(err, ERR_INVALID_SYNC_SOURCE, "%s answered too late", choice->host);
    OpTime oldest;
    TRY(end_of_source(op, conn, /* is_newest= */ false, &oldest, err));
    if (oldest.ts > choice->last_fetched.ts) {
        *ret_end = FETCH_TOO_STALE;
        return error_set(err, ERR_OPLOG_START_MISSING,
                         "the oldest oplog entry of %s is newer than this member's newest",
                         choice->host);
    }
    return parted(choice, ret_end, err);
}

static ErrCode ask_rollback_id(OpCtx *op, ClientConn *conn, int32_t *ret_id, Error *err) {
    DocBuilder b = doc_builder_in_arena(&op->arena);
    build_i32(&b, "replSetGetRBID", 1);
    build_cstr(&b, "$db", "admin");
    Doc reply;
    TRY(client_conn_run(conn, op, doc_builder_end(&b), clock_mono_us() + FIND_TIMEOUT_US, &reply,
                        err));
    Elem id = doc_get_lit(reply, "rbid");
    if (!elem_is_number(id))
        return error_set(err, ERR_FAILED_TO_PARSE, "the source has no rollback id");
    *ret_id = (int32_t)elem_as_i64(id);
    return ERR_OK;
}

static void count_reply(Sync *sync, Doc reply, int64_t wait_us) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&sync->mu);
    sync->stats.replies++;
    sync->stats.empty_replies += doc_is_empty(batch_of(reply, "nextBatch"));
    sync->stats.wait_us += wait_us;
}

static ErrCode stream(Sync *sync, OpCtx *op, ClientConn *conn, Choice *choice, FetchEnd *ret_end,
                      Error *err) {
    CoreFacts facts;
    repl_inspect(sync->repl, look, &facts);
    int32_t rollback_id = 0;
    /* Before the find: if the source rolls back in between, the id in the reply differs. */
    TRY(ask_rollback_id(op, conn, &rollback_id, err));
    Doc reply;
    TRY(client_conn_run(conn, op, find_command(op, choice->last_fetched, facts.term),
                        clock_mono_us() + FIND_TIMEOUT_US, &reply, err));
    int64_t cursor_id = cursor_id_of(reply);
    /* Copied: check_first may send another command, which overwrites the connection's buffer. */
    reply = doc_copy(reply, &op->arena);
    TRY(check_first(sync, op, conn, choice, rollback_id, batch_of(reply, "firstBatch"), ret_end,
                    err));
    end_staleness(sync);
    mutex_lock(&sync->mu);
    sync->stats.readers++;
    mutex_unlock(&sync->mu);
    TRY(take_reply(sync, choice, reply, "firstBatch", /* skips_first= */ true, err));
    bool more_to_come = false;
    while (!sync_is_fetching_over(sync, choice->stream)) {
        if (!more_to_come) {
            if (cursor_id == 0)
                return error_set(err, ERR_CURSOR_NOT_FOUND, "%s closed the cursor", choice->host);
            repl_inspect(sync->repl, look, &facts);
            ClientCommand get_more = {.body =
                                          get_more_command(op, cursor_id, facts.term, facts.commit),
                                      .is_exhaust = true};
            TRY(client_conn_send(conn, op, &get_more, clock_mono_us() + AWAIT_SLACK_US, err));
        }
        int64_t start_us = clock_mono_us();
        TRY(client_conn_receive(conn, op,
                                clock_mono_us() + AWAIT_MS * INT64_C(1000) + AWAIT_SLACK_US,
                                &more_to_come, &reply, err));
        TRY(client_check_reply(reply, err));
        if (FAILPOINT(STOP_REPL_PRODUCER))
            return error_set(err, ERR_INTERRUPTED, "a failpoint stops fetching");
        cursor_id = cursor_id_of(reply);
        count_reply(sync, reply, clock_mono_us() - start_us);
        TRY(take_reply(sync, choice, reply, "nextBatch", /* skips_first= */ false, err));
        arena_reset(&op->arena);
    }
    return ERR_OK;
}

static void set_source(Sync *sync, const char *host) {
    mutex_lock(&sync->mu);
    snprintf(sync->source_host, sizeof(sync->source_host), "%s", host);
    mutex_unlock(&sync->mu);
    round_thread_wake(&sync->reporter.rounds);
}

/* ---- entries that cannot be taken ---- */

/* Errors that come and go with connections, elections and restarts. After any other one the next
 * attempt will meet the same entry again. */
static bool is_passing(ErrCode rc) {
    static const ErrCode PASSING[] = {
        ERR_CURSOR_NOT_FOUND,
        ERR_CURSOR_KILLED,
        ERR_HOST_NOT_FOUND,
        ERR_HOST_UNREACHABLE,
        ERR_INTERRUPTED,
        ERR_INVALID_SYNC_SOURCE,
        ERR_NETWORK_TIMEOUT,
        ERR_MAX_TIME_MS_EXPIRED,
        ERR_OPLOG_START_MISSING,
        ERR_SOCKET_EXCEPTION,
        ERR_UNRECOVERABLE_ROLLBACK_ERROR,
    };
    for (size_t i = 0; i < ARRAY_LEN(PASSING); i++)
        if (rc == PASSING[i])
            return true;
    return error_is_retriable(rc) || error_is_of_state(rc);
}

/* Logs it and backs off: only an operator can help, and requesting the same entry ten times a
 * second only burdens the source. */
static void wait_after_refusal(Sync *sync, const Choice *choice, ErrCode rc, const Error *err) {
    uint32_t doublings = sync->refused_count++;
    if (doublings > REFUSED_DOUBLINGS_MAX)
        doublings = REFUSED_DOUBLINGS_MAX;
    int64_t wait_us = (int64_t)REFUSED_FIRST_US << doublings;
    char name[32];
    LOG_ERROR(LOG_REPL, 7300290,
              "Replication stands still: what follows in the oplog of the sync source cannot be "
              "taken",
              LOG_STR("syncSource", choice->host), LOG_STR("error", error_message(err)),
              LOG_STR("codeName", error_code_name(rc, name)),
              LOG_I64("lastFetchedSeconds", ts_seconds(choice->last_fetched.ts)),
              LOG_I64("lastFetchedIncrement", (int64_t)(choice->last_fetched.ts & UINT32_MAX)),
              LOG_I64("attempts", sync->refused_count), LOG_I64("nextInMillis", wait_us / 1000));
    int64_t until_us = clock_mono_us() + wait_us;
    for (int64_t now_us;
         (now_us = clock_mono_us()) < until_us && !sync_is_fetching_over(sync, choice->stream);)
        sync_idle(sync, until_us - now_us);
}

static void fetch_from(Sync *sync, OpCtx *op, Choice *choice) {
    CLEANUP(error_reset) Error err = {0};
    FetchEnd end = FETCH_CHANGE;
    ClientConn *conn = NULL;
    failpoint_hit(FP_REPL_SOURCE_CHOSEN);
    ErrCode rc = client_conn_open(sync->repl->service->clients, op, choice->host,
                                  clock_mono_us() + CONNECT_TIMEOUT_US, &conn, &err);
    if (rc == ERR_OK) {
        sync_set_conn(sync, &sync->fetch_conn, conn);
        LOG_INFO(LOG_REPL, 21799, "Sync source candidate chosen",
                 LOG_STR("syncSource", choice->host));
        set_source(sync, choice->host);
        rc = stream(sync, op, conn, choice, &end, &err);
        if (end == FETCH_ROLLBACK && atomic_load(&sync->repl->state) == REPL_PRIMARY)
            repl_event(sync->repl, give_up_catching_up, NULL);
        else if (end == FETCH_ROLLBACK)
            rc = rollback_run(sync, op, conn, &err);
        if (end == FETCH_TOO_STALE) {
            atomic_store(&sync->repl->is_too_stale, true);
            deny_source(sync, choice->host, REPL_DENY_TOO_STALE_MS);
        }
        if (rc == ERR_UNRECOVERABLE_ROLLBACK_ERROR) {
            atomic_store(&sync->repl->is_too_stale, true); /* unless another one helps */
            deny_source(sync, choice->host, REPL_DENY_NO_START_MS);
        }
        sync_set_conn(sync, &sync->fetch_conn, NULL);
        set_source(sync, "");
    }
    bool is_wanted =
        !sync_is_fetching_over(sync, choice->stream) && !failpoint_is_set(FP_STOP_REPL_PRODUCER);
    if (rc != ERR_OK && is_wanted && rc != ERR_INVALID_SYNC_SOURCE) {
        LOG_INFO(LOG_REPL, 21090, "Fetching the oplog ended", LOG_STR("syncSource", choice->host),
                 LOG_STR("error", error_message(&err)));
        if (rc == ERR_HOST_UNREACHABLE || rc == ERR_NETWORK_TIMEOUT || rc == ERR_HOST_NOT_FOUND)
            deny_source(sync, choice->host, REPL_DENY_NETWORK_MS);
    }
    client_conn_free(conn);
    if (UNLIKELY(rc != ERR_OK && is_wanted && !is_passing(rc)))
        wait_after_refusal(sync, choice, rc, &err);
    arena_reset(&op->arena);
}

/* The host that the failpoint's data name. */
static void force_source(Choice *choice) {
    FailpointConfig config = failpoint_config(FP_FORCE_SYNC_SOURCE_CANDIDATE);
    Elem host = config.data != NULL ? doc_get_lit((Doc){config.data}, "hostAndPort") : ELEM_MISSING;
    if (elem_type(host) == BT_STRING)
        snprintf(choice->forced, sizeof(choice->forced), "%s", elem_str(host).data);
    xfree(config.data);
}

/* Looks for a source and stays with it; false: there is none now. */
static bool fetch_once(Sync *sync, OpCtx *op) {
    CLEANUP(free_choice) Choice *choice = NEW(Choice);
    if (!sync_open_stream(sync, &choice->stream, &choice->last_fetched))
        return false;
    if (FAILPOINT(FORCE_SYNC_SOURCE_CANDIDATE))
        force_source(choice);
    repl_event(sync->repl, choose, choice);
    bool is_found = choice->index >= 0;
    if (is_found)
        fetch_from(sync, op, choice);
    else if (atomic_load(&sync->repl->is_too_stale))
        begin_staleness(sync, choice->last_fetched);
    sync_close_stream(sync, choice->stream);
    return is_found;
}

void fetch_run(void *arg) {
    Sync *sync = arg;
    log_set_thread_name("ReplFetch");
    OpCtx *op = repl_op_new(sync->repl, "ReplFetch");
    while (sync_begin_round(sync)) {
        if (atomic_load(&sync->repl->state) == REPL_STARTUP2 && sync_needs_copy(sync)) {
            initial_sync(sync, op);
            arena_reset(&op->arena);
        } else if (FAILPOINT(STOP_REPL_PRODUCER) || !fetch_once(sync, op)) {
            sync_idle(sync, IDLE_US);
        }
    }
    op_end(op);
    op_ctx_free(op);
}
