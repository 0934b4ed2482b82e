/*
 * rollback.c - a member undoes writes that are not majority-committed (DUR-3).
 *
 * A primary that was partitioned away may have written entries that no other member received. When
 * it rejoins as a secondary, its source does not have them:
 *
 *     1. state ROLLBACK               readers are refused, no entry is fetched
 *     2. common point found           the newest entry that both oplogs have
 *     3. rollback id raised
 *     4. removed documents written    to files, for the operator
 *     5. storage back at stable       under the global lock in X
 *     6. oplog truncated              after the common point
 *     7. rollback id raised again
 *     8. entries re-applied           from stable to the common point
 *     9. state SECONDARY
 *
 * The rollback id is raised before the data change, for members that copy them, and again after the
 * oplog was truncated, for members that read it: a reader that saw the same id before and after has
 * read either the old branch or the new one, never a mixture (election/feed.h).
 *
 * Invariant: stable <= commit point <= common point, so nothing that is undone is
 * majority-committed.
 *
 * Crash: before step 6 is durable the entries are still there and everything is repeated; after it,
 * recovery starts from the stable checkpoint as if the rollback were done. Once step 5 has begun
 * there is no way back, since data and oplog disagree: a failure ends the process.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "catalog/write_group.h"
#include "ddl/ddl.h"
#include "index/build/coordinator.h"
#include "index/lookup.h"
#include "preimages/preimage_store.h"
#include "preimages/purger.h"
#include "repl/oplog/unit.h"
#include "repl/sync_internal.h"
#include "storage/global_lock.h"
#include "storage/recovery_unit.h"
#include "txn/history.h"
#include "txn/transaction.h"
#include "txn/session_catalog.h"

enum {
    /* Projected entries only, but a backwards scan of a large oplog on a loaded source takes its
     * time. */
    COMMAND_TIMEOUT_US = 60 * 1000 * 1000,
    EXIT_ROLLBACK_FAILED = 14,
    REMOTE_BATCH = 2000,
};

typedef struct Rollback {
    Sync *sync;
    Repl *repl;
    OpCtx *op;
    ClientConn *source;
    OpTime common;
    int64_t common_wall_ms;
    int64_t first_wall_ms; /* of the entries that are undone */
    int64_t last_wall_ms;
    uint64_t stable_ts;
    int64_t undone; /* entries after the common point */
    int64_t removed_docs;
} Rollback;

static ErrCode find_common_point(Rollback *r, Error *err);
static ErrCode write_removed_documents(Rollback *r, Error *err);
static ErrCode correct_counts(Rollback *r, Error *err);
static ErrCode go_back(Rollback *r, Error *err);

static void set_state(void *arg, ReplCore *core, ReplNow now, ReplActions *actions) {
    (void)repl_core_set_follower_state(core, now, *(ReplState *)arg, actions);
}

typedef struct CheckArgs {
    OpTime common;
    ErrCode rc;
    Error *err;
} CheckArgs;

static void check(void *arg, ReplCore *core, ReplNow now, ReplActions *actions) {
    (void)now, (void)actions;
    CheckArgs *args = arg;
    args->rc = repl_core_check_rollback(core, args->common, args->err);
}

static void finish(void *arg, ReplCore *core, ReplNow now, ReplActions *actions) {
    Repl *repl = arg;
    OwnPositions own = repl_own_positions(repl);
    /* Positions only ever advance otherwise; here they go back with the data. */
    repl_core_reset_own_position(core, now, own.applied, own.durable, actions);
    (void)repl_core_set_follower_state(core, now, REPL_SECONDARY, actions);
}

/* Entries fetched before the histories diverged are applied first: the applier must be idle, since
 * it writes to the oplog that is about to be truncated. */
static void wait_until_applied(Sync *sync) {
    mutex_lock(&sync->mu);
    while (sync->feed.pending > 0 && !sync->is_stopping)
        cond_wait(&sync->fetch_cond, &sync->mu);
    mutex_unlock(&sync->mu);
}

/* Storage cannot go back further than its history begins. Data copied by an initial sync from a
 * member that had more than the majority, and lost it, cannot be repaired: nothing tells which
 * documents are too new. */
static ErrCode check_history(const Rollback *r, Error *err) {
    if (r->common.ts >= r->repl->oldest_ts_min)
        return ERR_OK;
    LOG_ERROR(LOG_REPL, 7300273,
              "Cannot roll back to before the data of this member were copied. It has to be synced "
              "anew, with an empty directory",
              LOG_I64("commonPointSeconds", ts_seconds(r->common.ts)),
              LOG_I64("copiedSeconds", ts_seconds(r->repl->oldest_ts_min)));
    return error_set(err, ERR_UNRECOVERABLE_ROLLBACK_ERROR,
                     "the common point is before the data of this member were copied");
}

/* So much is seldom undone on purpose: somebody should look at it first. */
static ErrCode check_span(const Rollback *r, Error *err) {
    int64_t secs_max = r->repl->hooks.tuning(r->repl->service).rollback_secs_max;
    int64_t secs = (r->last_wall_ms - r->first_wall_ms) / 1000;
    if (r->undone == 0 || secs <= secs_max)
        return ERR_OK;
    LOG_ERROR(LOG_REPL, 7300275,
              "Not willing to undo the writes of so long a time: see rollbackTimeLimitSecs. "
              "Otherwise this member has to be synced anew, with an empty directory",
              LOG_I64("seconds", secs), LOG_I64("limitSeconds", secs_max),
              LOG_I64("entries", r->undone));
    return error_set(err, ERR_UNRECOVERABLE_ROLLBACK_ERROR,
                     "the writes to undo cover %lld s, more than the %lld s of "
                     "rollbackTimeLimitSecs",
                     (long long)secs, (long long)secs_max);
}

ErrCode rollback_run(Sync *sync, OpCtx *op, ClientConn *source, Error *err) {
    Rollback r = {.sync = sync, .repl = sync->repl, .op = op, .source = source};
    error_reset(err);
    wait_until_applied(sync);
    ReplState state = REPL_ROLLBACK;
    repl_event(r.repl, set_state, &state);
    /* The core refuses the state if this member has become a candidate or primary in the
     * meantime. */
    if (atomic_load(&r.repl->state) != REPL_ROLLBACK)
        return error_set(err, ERR_NOT_SECONDARY, "the state changed before the rollback began");
    transition_note(r.repl, "rollback", /* killed= */ 0);
    LOG_INFO(LOG_REPL, 21593, "Rollback begins", LOG_STR("syncSource", client_conn_host(source)));
    failpoint_hit(FP_ROLLBACK_STARTED);
    ErrCode rc = find_common_point(&r, err);
    if (rc == ERR_OK) {
        CheckArgs args = {r.common, ERR_OK, err};
        repl_event(r.repl, check, &args);
        rc = args.rc;
    }
    if (rc == ERR_OK)
        rc = check_history(&r, err);
    if (rc == ERR_OK)
        rc = check_span(&r, err);
    if (rc == ERR_OK)
        rc = go_back(&r, err);
    if (rc == ERR_UNRECOVERABLE_ROLLBACK_ERROR)
        failpoint_hang(FP_HANG_BEFORE_UNRECOVERABLE);
    /* Also after a failure: nothing has changed yet, and another source may do. */
    state = REPL_SECONDARY;
    if (rc == ERR_OK)
        repl_event(r.repl, finish, r.repl);
    else
        repl_event(r.repl, set_state, &state);
    TRY(rc);
    LOG_INFO(LOG_REPL, 21612, "Rollback done", LOG_I64("entries", r.undone),
             LOG_I64("removedDocuments", r.removed_docs));
    return ERR_OK;
}

/* ---- where the histories part ---- */

typedef struct RemoteScan {
    Doc rows; /* of the present batch */
    DocIter iter;
    int64_t cursor_id;
    OpTime at;
    bool is_at_end;
} RemoteScan;

static ErrCode remote_batch(Rollback *r, RemoteScan *scan, Error *err) {
    DocBuilder b = doc_builder_in_arena(&r->op->arena);
    bool is_first = scan->cursor_id == 0;
    if (is_first) {
        build_cstr(&b, "find", "oplog.rs");
        size_t sort = build_open_doc(&b, "sort");
        build_i32(&b, "$natural", -1);
        build_close(&b, sort);
        size_t projection = build_open_doc(&b, "projection");
        build_i32(&b, "ts", 1);
        build_i32(&b, "t", 1);
        build_i32(&b, "wall", 1);
        build_close(&b, projection);
    } else {
        build_i64(&b, "getMore", scan->cursor_id);
        build_cstr(&b, "collection", "oplog.rs");
    }
    build_i32(&b, "batchSize", REMOTE_BATCH);
    build_cstr(&b, "$db", "local");
    Doc reply;
    TRY(client_conn_run(r->source, r->op, doc_builder_end(&b), clock_mono_us() + COMMAND_TIMEOUT_US,
                        &reply, err));
    Elem cursor = doc_get_lit(reply, "cursor");
    if (elem_type(cursor) != BT_DOC)
        return error_set(err, ERR_FAILED_TO_PARSE, "the source's answer has no cursor");
    Elem rows = doc_get(elem_doc(cursor), is_first ? STR("firstBatch") : STR("nextBatch"));
    scan->rows = elem_type(rows) == BT_ARRAY ? elem_doc(rows) : DOC_EMPTY;
    scan->iter = doc_iter(scan->rows);
    scan->cursor_id = elem_as_i64(doc_get_lit(elem_doc(cursor), "id"));
    return ERR_OK;
}

static ErrCode remote_next(Rollback *r, RemoteScan *scan, Error *err) {
    Elem row;
    while (!doc_iter_next(&scan->iter, &row)) {
        if (scan->cursor_id == 0) {
            scan->is_at_end = true;
            return ERR_OK;
        }
        TRY(remote_batch(r, scan, err));
    }
    if (elem_type(row) != BT_DOC)
        return error_set(err, ERR_FAILED_TO_PARSE, "an oplog entry is not a document");
    int64_t wall_ms;
    return oplog_entry_position(elem_doc(row), &scan->at, &wall_ms, err);
}

/* Walks both oplogs backwards, always advancing the one that is ahead. */
static ErrCode walk(Rollback *r, RecordCursor *mine, Error *err) {
    RemoteScan remote = {0};
    TRY(remote_batch(r, &remote, err));
    TRY(remote_next(r, &remote, err));
    bool is_found = false;
    RecordId rid;
    Str data;
    for (;;) {
        TRY(record_cursor_next(mine, &is_found, &rid, &data, err));
        if (!is_found)
            return error_set(err, ERR_UNRECOVERABLE_ROLLBACK_ERROR,
                             "this member and its source have no entry in common");
        OpTime optime;
        int64_t wall_ms;
        TRY(oplog_entry_position((Doc){(const uint8_t *)data.data}, &optime, &wall_ms, err));
        /* Compared by timestamp here and by optime below: entries of different terms may share a
         * timestamp. */
        while (!remote.is_at_end && remote.at.ts > optime.ts)
            TRY(remote_next(r, &remote, err));
        if (!remote.is_at_end && optime_equal(remote.at, optime)) {
            r->common = optime;
            r->common_wall_ms = wall_ms;
            return ERR_OK;
        }
        if (r->undone++ == 0)
            r->last_wall_ms = wall_ms;
        r->first_wall_ms = wall_ms;
    }
}

static ErrCode find_common_point(Rollback *r, Error *err) {
    TRY(op_lock_global(r->op, LOCK_IS, err));
    ErrCode rc;
    {
        CLEANUP(record_cursor_done) RecordCursor cursor = {0};
        rc = record_cursor_open(r->op, oplog_collection(r->repl->oplog)->records,
                                /* is_forward= */ false, &cursor, err);
        if (rc == ERR_OK)
            rc = walk(r, &cursor, err);
    }
    op_unlock_global(r->op);
    if (rc == ERR_OK)
        LOG_INFO(LOG_REPL, 21607, "Rollback: common point found",
                 LOG_I64("seconds", ts_seconds(r->common.ts)),
                 LOG_I64("counter", (uint32_t)r->common.ts), LOG_I64("undone", r->undone));
    failpoint_hit(FP_ROLLBACK_COMMON_POINT);
    return rc;
}

/* ---- entries that are undone ---- */

typedef ErrCode (*EntryFn)(Rollback *r, void *arg, Doc entry, Error *err);

static ErrCode visit_rows(Rollback *r, Doc rows, EntryFn visit, void *arg, Error *err) {
    DocIter iter = doc_iter(rows);
    for (Elem inner; doc_iter_next(&iter, &inner);)
        if (elem_type(inner) == BT_DOC)
            TRY(visit(r, arg, elem_doc(inner), err));
    return ERR_OK;
}

/* A unit of several entries is undone or kept together with its last entry: the histories may
 * diverge within it, and stable may lie there, but all its writes have the last timestamp. */
static ErrCode visit_unit(Rollback *r, Doc last, EntryFn visit, void *arg, Error *err) {
    OplogUnit unit;
    TRY(oplog_unit_find(r->op, last, &unit, err));
    for (size_t i = 0; i < unit.count; i++) {
        ArenaMark mark = arena_mark(&r->op->arena);
        Doc part;
        TRY(oplog_unit_read(r->op, &unit, i, &part, err));
        TRY(visit_rows(r, elem_doc(doc_get_path(part, "o.applyOps")), visit, arg, err));
        arena_rewind(&r->op->arena, mark);
    }
    return ERR_OK;
}

/* The writes of a prepared transaction count from its commit on. */
static ErrCode visit_commit(Rollback *r, Doc entry, EntryFn visit, void *arg, Error *err) {
    OpTime at;
    if (!optime_from_elem(doc_get_lit(entry, "prevOpTime"), &at))
        return ERR_OK;
    Doc prepare;
    TRY(oplog_entry_read(r->op, at.ts, &prepare, err));
    if (!doc_is_present(prepare))
        return ERR_OK;
    if (entry_part(prepare) == ENTRY_LAST)
        return visit_unit(r, prepare, visit, arg, err);
    Elem rows = doc_get_path(prepare, "o.applyOps");
    return elem_type(rows) == BT_ARRAY ? visit_rows(r, elem_doc(rows), visit, arg, err) : ERR_OK;
}

/* Also visits the entries inside an applyOps. */
static ErrCode visit_entry(Rollback *r, Doc entry, EntryFn visit, void *arg, Error *err) {
    EntryPart part = entry_part(entry);
    if (part == ENTRY_PARTIAL || elem_is_truthy(doc_get_path(entry, "o.prepare")))
        return ERR_OK;
    if (elem_is_present(doc_get_path(entry, "o.commitTransaction")))
        return visit_commit(r, entry, visit, arg, err);
    if (part == ENTRY_LAST)
        return visit_unit(r, entry, visit, arg, err);
    Elem kind = doc_get_lit(entry, "op");
    Elem ops = doc_get_path(entry, "o.applyOps");
    if (elem_type(kind) != BT_STRING)
        return ERR_OK;
    if (elem_str(kind).data[0] == 'c' && elem_type(ops) == BT_ARRAY)
        return visit_rows(r, elem_doc(ops), visit, arg, err);
    return visit(r, arg, entry, err);
}

static ErrCode for_each_after(Rollback *r, uint64_t after_ts, EntryFn visit, void *arg,
                              Error *err) {
    CLEANUP(record_cursor_done) RecordCursor cursor = {0};
    TRY(record_cursor_open(r->op, oplog_collection(r->repl->oplog)->records,
                           /* is_forward= */ false, &cursor, err));
    for (;;) {
        bool is_found;
        RecordId rid;
        Str data;
        TRY(record_cursor_next(&cursor, &is_found, &rid, &data, err));
        if (!is_found || (uint64_t)rid.num <= after_ts)
            return ERR_OK;
        ArenaMark mark = arena_mark(&r->op->arena);
        TRY(visit_entry(r, (Doc){(const uint8_t *)data.data}, visit, arg, err));
        arena_rewind(&r->op->arena, mark);
    }
}

static const Collection *collection_of(const Catalog *catalog, Doc entry) {
    Uuid uuid;
    if (!uuid_from_elem(doc_get_lit(entry, "ui"), &uuid))
        return NULL;
    return catalog_find_uuid(catalog, &uuid);
}

/* ---- removed documents ---- */

/* One file per collection: <dbpath>/rollback/<uuid>/removed.<time>.bson. */
typedef struct RemovedFiles {
    const Catalog *catalog;
    char stamp[CLOCK_ISO8601_SIZE];
    Uuid open_for;
    bool is_open;
    int fd;
} RemovedFiles;

static ErrCode open_file(Rollback *r, RemovedFiles *files, const Collection *coll, Error *err) {
    if (files->is_open && uuid_equal(&files->open_for, &coll->uuid))
        return ERR_OK;
    if (files->is_open)
        close(files->fd);
    files->is_open = false;
    char uuid[UUID_TEXT_SIZE];
    uuid_to_text(&coll->uuid, uuid);
    const char *dbpath = storage_dbpath(r->repl->engine);
    Arena *arena = &r->op->arena;
    const char *dir = arena_printf(arena, "%s/rollback", dbpath);
    const char *sub = arena_printf(arena, "%s/rollback/%s", dbpath, uuid);
    const char *path = arena_printf(arena, "%s/removed.%s.bson", sub, files->stamp);
    (void)mkdir(dir, 0700);
    (void)mkdir(sub, 0700);
    files->fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (files->fd < 0)
        return error_set(err, ERR_FILE_NOT_OPEN, "could not open \"%s\": %s", path,
                         strerror(errno));
    files->is_open = true;
    files->open_for = coll->uuid;
    return ERR_OK;
}

static ErrCode keep_document(Rollback *r, void *arg, Doc entry, Error *err) {
    RemovedFiles *files = arg;
    Elem kind = doc_get_lit(entry, "op");
    const Collection *coll = collection_of(files->catalog, entry);
    if (coll == NULL || elem_type(kind) != BT_STRING)
        return ERR_OK;
    char op = elem_str(kind).data[0];
    Elem id = doc_get_path(entry, op == 'u' ? "o2._id" : "o._id");
    if ((op != 'i' && op != 'u') || !elem_is_present(id))
        return ERR_OK;
    Doc doc;
    /* The document in its present state, which is what the operator loses; intermediate states are
     * in the oplog only. A document written several times appears several times in the file. */
    TRY(lookup_document(r->op, coll, id, &r->op->arena, &doc, err));
    if (!doc_is_present(doc))
        return ERR_OK;
    TRY(open_file(r, files, coll, err));
    if (write(files->fd, doc.data, doc_size(doc)) != (ssize_t)doc_size(doc))
        return error_set(err, ERR_FILE_STREAM_FAILED, "could not write a rollback file: %s",
                         strerror(errno));
    r->removed_docs++;
    return ERR_OK;
}

static ErrCode write_removed_documents(Rollback *r, Error *err) {
    RemovedFiles files = {.catalog = catalog_acquire(r->repl->service->catalog)};
    clock_format_iso8601(clock_wall_ms(), files.stamp);
    for (char *c = files.stamp; *c != '\0'; c++)
        if (*c == ':' || *c == '+')
            *c = '-';
    ErrCode rc = op_lock_global(r->op, LOCK_IS, err);
    if (rc == ERR_OK) {
        rc = for_each_after(r, r->common.ts, keep_document, &files, err);
        op_unlock_global(r->op);
    }
    /* Durable before the documents are gone; one syncfs, since there may be many files. */
    if (rc == ERR_OK && files.is_open && syncfs(files.fd) != 0)
        rc = error_set(err, ERR_FILE_STREAM_FAILED, "could not write the rollback files: %s",
                       strerror(errno));
    if (files.is_open)
        close(files.fd);
    catalog_release((Catalog *)files.catalog);
    return rc;
}

/* ---- counts ---- */

static ErrCode take_back_count(Rollback *r, void *arg, Doc entry, Error *err) {
    (void)r, (void)err;
    const Catalog *catalog = arg;
    Elem kind = doc_get_lit(entry, "op");
    const Collection *coll = collection_of(catalog, entry);
    if (coll == NULL || elem_type(kind) != BT_STRING)
        return ERR_OK;
    char op = elem_str(kind).data[0];
    int64_t change = op == 'i' ? -1 : op == 'd' ? 1 : 0;
    if (change != 0)
        record_store_set_counts(coll->records, record_store_count(coll->records) + change,
                                record_store_data_size(coll->records));
    return ERR_OK;
}

/* Counts are not transactional and not undone by storage: the effect of all entries after the
 * stable timestamp is subtracted here, and added again when those up to the common point are
 * re-applied. The sizes are left as they are: entries do not contain the size of deleted
 * documents. */
static ErrCode correct_counts(Rollback *r, Error *err) {
    Catalog *catalog = catalog_acquire(r->repl->service->catalog);
    ErrCode rc = for_each_after(r, r->stable_ts, take_back_count, catalog, err);
    catalog_release(catalog);
    return rc;
}

typedef struct RecordCount {
    int64_t records;
    int64_t bytes;
} RecordCount;

static ErrCode count_record(void *arg, RecordId rid, Str data, bool *is_over, Error *err) {
    (void)rid, (void)is_over, (void)err;
    RecordCount *count = arg;
    count->records++;
    count->bytes += (int64_t)data.size;
    return ERR_OK;
}

static ErrCode count_records(Rollback *r, const Collection *coll, Error *err) {
    RecordCount count = {0};
    TRY(record_store_each(r->op, coll->records, /* is_forward= */ true, count_record, &count, err));
    record_store_set_counts(coll->records, count.records, count.bytes);
    return ERR_OK;
}

typedef struct Recount {
    Rollback *r;
    const Catalog *old;
    Error *err;
    ErrCode rc;
} Recount;

/* Images are counted as well: the entries do not tell which of their writes had one. */
static bool recount_unknown(void *arg, const Collection *coll) {
    Recount *recount = arg;
    if (catalog_find_uuid(recount->old, &coll->uuid) == NULL || ns_equal(&coll->ns, &PREIMAGES_NS))
        recount->rc = count_records(recount->r, coll, recount->err);
    return recount->rc == ERR_OK;
}

static bool recount_database(void *arg, Str db) {
    Recount *recount = arg;
    Catalog *catalog = catalog_acquire(recount->r->repl->service->catalog);
    catalog_for_each_in_db(catalog, db, recount_unknown, recount);
    catalog_release(catalog);
    return recount->rc == ERR_OK;
}

/* Collections whose drop was undone: their counts were discarded with the drop, so they are
 * scanned. */
static ErrCode count_restored(Rollback *r, const Catalog *old, Error *err) {
    Recount recount = {.r = r, .old = old, .err = err};
    Catalog *catalog = catalog_acquire(r->repl->service->catalog);
    catalog_for_each_db(catalog, recount_database, &recount);
    catalog_release(catalog);
    return recount.rc;
}

/* ---- going back ---- */

static void die(const char *what, const Error *err) {
    LOG_FATAL(LOG_REPL, 21132, "Rollback failed half-way; stopping at once", LOG_STR("while", what),
              LOG_STR("error", error_message(err)));
    _exit(EXIT_ROLLBACK_FAILED);
}

/* Requires the global lock in X: no other operation is inside the storage engine. */
static void restore_storage(Rollback *r, Error *err) {
    Repl *repl = r->repl;
    /* Stable must not move between counting and the rollback, or counts would be corrected for
     * entries that storage keeps (rule 8 of the README). */
    repl_hold_stable(repl, true);
    r->stable_ts = storage_stable_ts(repl->engine);
    if (correct_counts(r, err) != ERR_OK)
        die("counting", err);
    /* WiredTiger refuses to roll back while any transaction is open, including ours. */
    ru_abandon_snapshot(r->op->ru);
    if (storage_rollback_to_stable(repl->engine, err) != ERR_OK)
        die("storage goes back", err);
    Catalog *old = catalog_acquire(repl->service->catalog);
    if (catalog_reload(r->op, err) != ERR_OK)
        die("the catalog is read again", err);
    session_catalog_invalidate(repl->service->sessions);
    preimage_purger_forget(repl->service->preimages);
    if (count_restored(r, old, err) != ERR_OK)
        die("documents are counted", err);
    catalog_release(old);
    ru_abandon_snapshot(r->op->ru);
    /* Readers see the stable state until all entries are re-applied. */
    storage_set_last_applied_ts(repl->engine, r->stable_ts);
    failpoint_hit(FP_ROLLBACK_RECOVERED);
}

/* The entries from which session rows could be rebuilt are about to be truncated: the rows must be
 * durable first. */
static void rewind_sessions(Rollback *r, Error *err) {
    int64_t count;
    if (history_rewind_rows(r->op, r->stable_ts, &count, err) != ERR_OK)
        die("rows of sessions are made anew", err);
    if (count > 0 && storage_checkpoint(r->repl->engine, err) != ERR_OK)
        die("a checkpoint is taken", err);
}

static ErrCode raise_rollback_id(Rollback *r, Error *err) {
    int32_t rollback_id = repl_rollback_id(r->repl) + 1;
    TRY(local_store_rollback_id(r->op, rollback_id, err));
    atomic_store(&r->repl->rollback_id, rollback_id);
    return ERR_OK;
}

static ErrCode go_back(Rollback *r, Error *err) {
    Repl *repl = r->repl;
    OpCtx *op = r->op;
    /* Before any change that another member could observe. */
    TRY(raise_rollback_id(r, err));
    failpoint_hit(FP_ROLLBACK_RBID_BUMPED);
    /* Their writes cannot be rolled back by storage, they hold locks, and readers of their
     * documents would wait for them. Those that the common past has are prepared again below. */
    txn_drop_all(repl->service->sessions, op);
    failpoint_hit(FP_ROLLBACK_PREPARED_ABORTED);
    TRY(write_removed_documents(r, err));
    /* Stopped and saved before storage goes back; they would also hold up the global lock. */
    index_builds_halt(repl->service->index_builds);
    index_votes_forget(repl);
    (void)op_registry_kill_all(repl->service->ops, op, ERR_INTERRUPTED_DUE_TO_REPL_STATE_CHANGE);
    TRY(op_lock_global(op, LOCK_X, err));
    restore_storage(r, err);
    op_unlock_global(op);
    rewind_sessions(r, err);
    /* Before entries are re-applied: their writes must go to the side tables of resumed builds. */
    if (ddl_restart_index_builds(op, err) != ERR_OK)
        die("index builds go on", err);

    /* Only now: counts, removed documents and session rows were derived from these entries. */
    if (oplog_truncate_after(repl->oplog, op, r->common.ts, err) != ERR_OK ||
        raise_rollback_id(r, err) != ERR_OK ||
        storage_wait_durable(repl->engine, op, err) != ERR_OK)
        die("the oplog is cut", err);
    failpoint_hit(FP_ROLLBACK_OPLOG_TRUNCATED);
    OpTime last = r->common;
    int64_t wall_ms = r->common_wall_ms;
    if (repl_replay(repl, op, r->stable_ts, &last, &wall_ms, err) != ERR_OK)
        die("entries are applied again", err);
    failpoint_hit(FP_ROLLBACK_REPLAYED);
    storage_set_last_applied_ts(repl->engine, last.ts);
    oplog_set_applied(repl->oplog, last, wall_ms);
    oplog_set_durable(repl->oplog, last, wall_ms);
    if (applier_prepare_again(repl->applier, op, err) != ERR_OK)
        die("transactions are prepared again", err);
    failpoint_hit(FP_ROLLBACK_PREPARED_REBUILT);
    repl_hold_stable(repl, false);
    return ERR_OK;
}
