/*
 * rollback.c - a member gives up writes that no majority has (DUR-3).
 *
 * A primary that was cut off may have written entries nobody else got. When it comes back as a
 * secondary, its source does not have them:
 *
 *     state ROLLBACK | common point found | rollback id raised | removed documents written to files
 *     | storage back at the stable timestamp | oplog cut after the common point | rollback id
 *     raised again | entries up to it applied again | state SECONDARY
 *
 * The rollback id is raised before the data change, for whoever copies them, and again after the
 * oplog was cut, for whoever reads that: a reader who saw the same id before and after read either
 * the old branch or the new one (election/feed.h).
 *
 * Stable is never beyond the commit point, nor is that beyond the common point, so what is undone
 * is never something a majority has. A crash before the oplog is cut comes back with the entries
 * and does all of it again; after it, as if it were done: recovery starts from the stable
 * checkpoint. Once storage is going back there is no way but forward: a failure ends the process.
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
#include "ddl/ddl.h"
#include "index/build/coordinator.h"
#include "index/lookup.h"
#include "repl/sync_internal.h"
#include "storage/global_lock.h"
#include "storage/recovery_unit.h"
#include "txn/history.h"
#include "txn/session_catalog.h"

enum {
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
    repl_core_reset_own_position(core, now, own.applied, own.durable, actions);
    (void)repl_core_set_follower_state(core, now, REPL_SECONDARY, actions);
}

/* What was fetched before the histories parted is applied first. */
static void wait_until_applied(Sync *sync) {
    mutex_lock(&sync->mu);
    while (sync->feed.pending > 0 && !sync->is_stopping)
        cond_wait(&sync->fetch_cond, &sync->mu);
    mutex_unlock(&sync->mu);
}

/* Storage goes back no further than to where its history begins. Data that were copied from a
 * member which had more than the majority, and lost it, are of no use: nobody can tell what is too
 * much. */
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

ErrCode rollback_run(Sync *sync, OpCtx *op, ClientConn *source, Error *err) {
    Rollback r = {.sync = sync, .repl = sync->repl, .op = op, .source = source};
    error_reset(err);
    wait_until_applied(sync);
    ReplState state = REPL_ROLLBACK;
    repl_event(r.repl, set_state, &state);
    if (atomic_load(&r.repl->state) != REPL_ROLLBACK)
        return error_set(err, ERR_NOT_SECONDARY, "the state changed before the rollback began");
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
        rc = go_back(&r, err);
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

/* Both oplogs backwards, whichever is ahead. */
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
        while (!remote.is_at_end && remote.at.ts > optime.ts)
            TRY(remote_next(r, &remote, err));
        if (!remote.is_at_end && optime_equal(remote.at, optime)) {
            r->common = optime;
            r->common_wall_ms = wall_ms;
            return ERR_OK;
        }
        r->undone++;
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

/* Also those inside of an applyOps. */
static ErrCode visit_entry(Rollback *r, Doc entry, EntryFn visit, void *arg, Error *err) {
    Elem kind = doc_get_lit(entry, "op");
    Elem ops = doc_get_path(entry, "o.applyOps");
    if (elem_type(kind) != BT_STRING)
        return ERR_OK;
    if (elem_str(kind).data[0] == 'c' && elem_type(ops) == BT_ARRAY) {
        DocIter iter = doc_iter(elem_doc(ops));
        for (Elem inner; doc_iter_next(&iter, &inner);)
            if (elem_type(inner) == BT_DOC)
                TRY(visit(r, arg, elem_doc(inner), err));
        return ERR_OK;
    }
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
    /* On disk before the documents are gone: all files at once, since there may be many. */
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

/* Counts are not part of what goes back: those of all entries after the stable timestamp are taken
 * back here, and come again when entries are applied again. */
static ErrCode correct_counts(Rollback *r, Error *err) {
    Catalog *catalog = catalog_acquire(r->repl->service->catalog);
    ErrCode rc = for_each_after(r, r->stable_ts, take_back_count, catalog, err);
    catalog_release(catalog);
    return rc;
}

static ErrCode count_records(Rollback *r, const Collection *coll, Error *err) {
    CLEANUP(record_cursor_done) RecordCursor cursor = {0};
    TRY(record_cursor_open(r->op, coll->records, /* is_forward= */ true, &cursor, err));
    int64_t count = 0, bytes = 0;
    for (;;) {
        bool is_found;
        RecordId rid;
        Str data;
        TRY(record_cursor_next(&cursor, &is_found, &rid, &data, err));
        if (!is_found)
            break;
        count++;
        bytes += (int64_t)data.size;
    }
    record_store_set_counts(coll->records, count, bytes);
    return ERR_OK;
}

typedef struct Recount {
    Rollback *r;
    const Catalog *old;
    Error *err;
    ErrCode rc;
} Recount;

static bool recount_unknown(void *arg, const Collection *coll) {
    Recount *recount = arg;
    if (catalog_find_uuid(recount->old, &coll->uuid) == NULL)
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

/* Collections whose drop was taken back: nobody knows how many documents they had. */
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

/* With nobody else inside of the storage engine. */
static void restore_storage(Rollback *r, Error *err) {
    Repl *repl = r->repl;
    repl_hold_stable(repl, true);
    r->stable_ts = storage_stable_ts(repl->engine);
    if (correct_counts(r, err) != ERR_OK)
        die("counting", err);
    ru_abandon_snapshot(r->op->ru);
    if (storage_rollback_to_stable(repl->engine, err) != ERR_OK)
        die("storage goes back", err);
    Catalog *old = catalog_acquire(repl->service->catalog);
    if (catalog_reload(r->op, err) != ERR_OK)
        die("the catalog is read again", err);
    session_catalog_invalidate(repl->service->sessions);
    if (count_restored(r, old, err) != ERR_OK)
        die("documents are counted", err);
    catalog_release(old);
    ru_abandon_snapshot(r->op->ru);
    /* Whoever reads now sees the stable state until all is applied again. */
    storage_set_last_applied_ts(repl->engine, r->stable_ts);
    failpoint_hit(FP_ROLLBACK_RECOVERED);
}

/* The entries that tell of the sessions are about to be cut: their rows have to be on disk. */
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
    TRY(raise_rollback_id(r, err));
    failpoint_hit(FP_ROLLBACK_RBID_BUMPED);
    TRY(write_removed_documents(r, err));
    index_builds_halt(repl->service->index_builds);
    index_votes_forget(repl);
    (void)op_registry_kill_all(repl->service->ops, op, ERR_INTERRUPTED_DUE_TO_REPL_STATE_CHANGE);
    TRY(op_lock_global(op, LOCK_X, err));
    restore_storage(r, err);
    op_unlock_global(op);
    rewind_sessions(r, err);
    /* Before entries are applied: what they write goes aside from now on. */
    if (ddl_restart_index_builds(op, err) != ERR_OK)
        die("index builds go on", err);

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
    repl_hold_stable(repl, false);
    return ERR_OK;
}
