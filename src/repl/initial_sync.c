/*
 * initial_sync.c - a member without data copies those of another (REP-2).
 *
 *     flag set | data dropped | collections copied | oplog fetched and applied up to the source's
 * end | indexes built | checkpoint | flag cleared
 *
 * Until the flag is cleared the data are worth nothing: a crash anywhere starts over. The copy is
 * taken while the source is written to, so it is of no single moment; applying the oplog from
 * before the copy to its end makes it one. Only then indexes are built: before it, two documents
 * may have had the same unique key that never had it at the same time.
 *
 * Nothing that is copied has a timestamp: it is in every checkpoint, and history begins at the end.
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "bson/compare.h"
#include "ddl/ddl.h"
#include "query/exec/modify.h"
#include "repl/sync_internal.h"

enum {
    CONNECT_TIMEOUT_US = 10 * 1000 * 1000,
    COMMAND_TIMEOUT_US = 120 * 1000 * 1000,
    COPY_BATCH_DOCS = 1000,
    APPLY_ENTRIES_MAX = 5000,
};

typedef struct Copy {
    Sync *sync;
    Repl *repl;
    OpCtx *op;
    Peer *source;
    int64_t docs;
    int64_t collections;
    OpTime begin; /* the source's newest entry before the first read */
    OpTime end;   /* and after the last */
    int64_t end_wall_ms;
} Copy;

static ErrCode copy_everything(Copy *copy, Error *err);

/* ---- whom to copy from ---- */

typedef struct SourceChoice {
    int32_t index;
    char host[REPL_HOST_SIZE];
} SourceChoice;

static void choose(void *arg, ReplCore *core, ReplNow now, ReplActions *actions) {
    (void)actions;
    SourceChoice *choice = arg;
    choice->index = repl_core_choose_sync_source(core, now, OPTIME_NONE);
    if (choice->index >= 0)
        snprintf(choice->host, sizeof(choice->host), "%s",
                 repl_core_config(core)->members[choice->index].host);
}

static void finish(void *arg, ReplCore *core, ReplNow now, ReplActions *actions) {
    Repl *repl = arg;
    OwnPositions own = repl_own_positions(repl);
    repl_core_reset_own_position(core, now, own.applied, own.durable, actions);
    (void)repl_core_set_follower_state(core, now, REPL_SECONDARY, actions);
}

ErrCode initial_sync(Sync *sync, OpCtx *op, Error *err) {
    Repl *repl = sync->repl;
    SourceChoice choice = {0};
    repl_event(repl, choose, &choice);
    if (choice.index < 0)
        return error_set(err, ERR_INITIAL_SYNC_OPLOG_SOURCE_MISSING,
                         "no member to copy the data from is known yet");
    Peer *peer;
    TRY(peer_connect(choice.host, clock_mono_us() + CONNECT_TIMEOUT_US, &peer, err));
    sync_set_peer(sync, &sync->fetch_peer, peer);
    LOG_INFO(LOG_REPL, 21164, "Starting initial sync", LOG_STR("syncSource", choice.host));
    int64_t start_us = clock_mono_us();
    Copy copy = {.sync = sync, .repl = repl, .op = op, .source = peer};
    ErrCode rc = copy_everything(&copy, err);
    sync_set_peer(sync, &sync->fetch_peer, NULL);
    peer_free(peer);
    TRY(rc);
    LOG_INFO(LOG_REPL, 21191, "Initial sync done", LOG_I64("collections", copy.collections),
             LOG_I64("documents", copy.docs),
             LOG_I64("durationMillis", (clock_mono_us() - start_us) / 1000));
    repl_event(repl, finish, repl);
    return ERR_OK;
}

/* ---- talking to the source ---- */

static ErrCode ask(Copy *copy, DocBuilder *b, Str db, Doc *ret_reply, Error *err) {
    build_str(b, "$db", db);
    size_t preference = build_open_doc(b, "$readPreference");
    build_cstr(b, "mode", "secondaryPreferred");
    build_close(b, preference);
    return peer_run(copy->source, doc_builder_end(b), clock_mono_us() + COMMAND_TIMEOUT_US,
                    ret_reply, err);
}

static Doc rows_of(Doc reply, const char *name) {
    Elem cursor = doc_get_lit(reply, "cursor");
    Elem batch =
        elem_type(cursor) == BT_DOC ? doc_get(elem_doc(cursor), str_from(name)) : ELEM_MISSING;
    return elem_type(batch) == BT_ARRAY ? elem_doc(batch) : DOC_EMPTY;
}

static int64_t cursor_of(Doc reply) {
    Elem cursor = doc_get_lit(reply, "cursor");
    Elem id = elem_type(cursor) == BT_DOC ? doc_get_lit(elem_doc(cursor), "id") : ELEM_MISSING;
    return elem_is_number(id) ? elem_as_i64(id) : 0;
}

/* All rows of a cursor, batch by batch. `first` is consumed. */
typedef ErrCode (*RowsFn)(Copy *copy, void *arg, Doc rows, Error *err);
static ErrCode for_each_batch(Copy *copy, DocBuilder *first, Str db, Str coll, RowsFn visit,
                              void *arg, Error *err) {
    Doc reply;
    TRY(ask(copy, first, db, &reply, err));
    TRY(visit(copy, arg, rows_of(reply, "firstBatch"), err));
    int64_t id = cursor_of(reply);
    while (id != 0) {
        ArenaMark mark = arena_mark(&copy->op->arena);
        DocBuilder b = doc_builder_in_arena(&copy->op->arena);
        build_i64(&b, "getMore", id);
        build_str(&b, "collection", coll);
        TRY(ask(copy, &b, db, &reply, err));
        id = cursor_of(reply);
        TRY(visit(copy, arg, rows_of(reply, "nextBatch"), err));
        arena_rewind(&copy->op->arena, mark);
    }
    return ERR_OK;
}

static ErrCode source_rollback_id(Copy *copy, int64_t *ret_id, Error *err) {
    DocBuilder b = doc_builder_in_arena(&copy->op->arena);
    build_i32(&b, "replSetGetRBID", 1);
    Doc reply;
    TRY(ask(copy, &b, STR("admin"), &reply, err));
    *ret_id = elem_as_i64(doc_get_lit(reply, "rbid"));
    return ERR_OK;
}

static ErrCode source_find(Copy *copy, uint64_t ts, Doc *ret_reply, Error *err) {
    DocBuilder b = doc_builder_in_arena(&copy->op->arena);
    build_cstr(&b, "find", "oplog.rs");
    if (ts != 0) {
        size_t filter = build_open_doc(&b, "filter");
        build_timestamp(&b, "ts", ts);
        build_close(&b, filter);
    }
    build_i32(&b, "limit", 1);
    build_i64(&b, "term", OPTIME_TERM_NONE);
    return ask(copy, &b, STR("local"), ret_reply, err);
}

/* The newest entry that has none missing before it: the source says so, since its newest one may
 * not be it. */
static ErrCode source_end(Copy *copy, OpTime *ret_optime, int64_t *ret_wall_ms, Doc *ret_entry,
                          Error *err) {
    Doc reply;
    TRY(source_find(copy, 0, &reply, err));
    bool is_found;
    ReplOplogMetadata metadata;
    TRY(parse_oplog_metadata(reply, &is_found, &metadata, err));
    if (is_found && !optime_is_none(metadata.last_applied))
        TRY(source_find(copy, metadata.last_applied.ts, &reply, err));
    DocIter iter = doc_iter(rows_of(reply, "firstBatch"));
    Elem entry;
    if (!is_found || !doc_iter_next(&iter, &entry) || elem_type(entry) != BT_DOC)
        return error_set(err, ERR_INITIAL_SYNC_OPLOG_SOURCE_MISSING, "the source has no oplog");
    *ret_entry = doc_copy(elem_doc(entry), &copy->op->arena);
    return oplog_entry_position(*ret_entry, ret_optime, ret_wall_ms, err);
}

/* ---- what was here before ---- */

typedef struct DbNames {
    char (*names)[DB_NAME_SIZE_MAX + 1];
    uint32_t count;
    uint32_t capacity;
} DbNames;

static void db_names_done(DbNames *names) {
    xfree(names->names);
}

static bool collect_db(void *arg, Str db) {
    DbNames *names = arg;
    if (str_is(db, "local"))
        return true;
    ARRAY_RESERVE(names->names, names->count, names->capacity);
    snprintf(names->names[names->count++], DB_NAME_SIZE_MAX + 1, "%.*s", (int)db.size, db.data);
    return true;
}

static ErrCode drop_everything(Copy *copy, Error *err) {
    CLEANUP(db_names_done) DbNames found = {0};
    Catalog *catalog = catalog_acquire(copy->repl->service->catalog);
    catalog_for_each_db(catalog, collect_db, &found);
    catalog_release(catalog);
    for (uint32_t i = 0; i < found.count; i++) {
        bool existed;
        TRY(ddl_drop_database(copy->op, str_from(found.names[i]), &existed, err));
    }
    TRY(oplog_ensure(copy->repl->oplog, copy->op, copy->repl->oplog_bytes, err));
    return oplog_truncate_after(copy->repl->oplog, copy->op, 0, err);
}

/* ---- copying ---- */

typedef struct Target {
    Ns ns;
    Error *failed;
} Target;

static void note_insert_error(void *arg, uint32_t index, const Error *err) {
    (void)index;
    Target *target = arg;
    if (target->failed->code == ERR_OK)
        (void)error_set(target->failed, err->code, "%s", error_message(err));
}

static ErrCode insert_rows(Copy *copy, void *arg, Doc rows, Error *err) {
    Target *target = arg;
    Doc *docs = ARENA_ARRAY(&copy->op->arena, Doc, COPY_BATCH_DOCS);
    DocIter iter = doc_iter(rows);
    uint32_t count = 0;
    bool is_more = true;
    while (is_more) {
        Elem elem;
        is_more = doc_iter_next(&iter, &elem);
        if (is_more && elem_type(elem) == BT_DOC)
            docs[count++] = elem_doc(elem);
        if (count < COPY_BATCH_DOCS && is_more)
            continue;
        int64_t inserted;
        CLEANUP(error_reset) Error failed = {0};
        target->failed = &failed;
        TRY(exec_insert(copy->op, &target->ns, docs, count, /* is_ordered= */ false,
                        /* is_validation_bypassed= */ true, note_insert_error, target, &inserted,
                        err));
        /* The same document can come twice from a collection that changes. */
        if (failed.code != ERR_OK && failed.code != ERR_DUPLICATE_KEY)
            return error_set(err, failed.code, "%s", error_message(&failed));
        copy->docs += inserted;
        count = 0;
    }
    return sync_is_stopping(copy->sync)
               ? error_set(err, ERR_INTERRUPTED_AT_SHUTDOWN, "the node is stopping")
               : ERR_OK;
}

static bool is_copied(const Ns *ns) {
    return ns_is_replicated(ns) && !str_is(ns_db(ns), "local");
}

/* One row of listCollections. Views come as documents of system.views. */
static ErrCode copy_collection(Copy *copy, Str db, Doc row, Error *err) {
    Elem name = doc_get_lit(row, "name");
    Elem type = doc_get_lit(row, "type");
    Elem options = doc_get_lit(row, "options");
    Elem uuid_elem = doc_get_path(row, "info.uuid");
    if (elem_type(name) != BT_STRING || elem_type(options) != BT_DOC)
        return error_set(err, ERR_FAILED_TO_PARSE, "a row of listCollections cannot be read");
    if (elem_type(type) == BT_STRING && str_is(elem_str(type), "view"))
        return ERR_OK;
    Target target;
    TRY(ns_make(db, elem_str(name), &target.ns, err));
    Uuid uuid;
    if (!is_copied(&target.ns) || !uuid_from_elem(uuid_elem, &uuid))
        return ERR_OK;
    TRY(ddl_create_collection(copy->op, &target.ns, elem_doc(options), &uuid, err));
    copy->collections++;
    DocBuilder b = doc_builder_in_arena(&copy->op->arena);
    build_str(&b, "find", elem_str(name));
    build_bool(&b, "noCursorTimeout", true);
    ErrCode rc = for_each_batch(copy, &b, db, elem_str(name), insert_rows, &target, err);
    if (rc == ERR_NAMESPACE_NOT_FOUND || rc == ERR_QUERY_PLAN_KILLED) {
        error_reset(err); /* dropped meanwhile: the oplog will say so */
        rc = ERR_OK;
    }
    failpoint_hit(FP_INITIAL_SYNC_CLONED);
    return rc;
}

typedef struct DbCopy {
    Str db;
    Doc *rows; /* heap, each by itself */
    uint32_t count;
    uint32_t capacity;
} DbCopy;

static ErrCode collect_rows(Copy *copy, void *arg, Doc rows, Error *err) {
    DbCopy *found = arg;
    DocIter iter = doc_iter(rows);
    for (Elem elem; doc_iter_next(&iter, &elem);) {
        if (elem_type(elem) != BT_DOC)
            continue;
        ARRAY_RESERVE(found->rows, found->count, found->capacity);
        found->rows[found->count++] = (Doc){doc_copy_heap(elem_doc(elem))};
    }
    (void)copy, (void)err;
    return ERR_OK;
}

static ErrCode list(Copy *copy, DbCopy *found, const char *command, Elem arg, Error *err) {
    DocBuilder b = doc_builder_in_arena(&copy->op->arena);
    if (elem_is_present(arg)) {
        build_elem_as(&b, str_from(command), arg);
        build_bool(&b, "includeBuildUUIDs", true);
    } else {
        build_i32(&b, command, 1);
    }
    return for_each_batch(copy, &b, found->db, STR("$cmd.listCollections"), collect_rows, found,
                          err);
}

static void db_copy_free(DbCopy **found) {
    for (uint32_t i = 0; i < (*found)->count; i++)
        xfree((uint8_t *)(*found)->rows[i].data);
    xfree((*found)->rows);
    xfree(*found);
}

static ErrCode copy_database(Copy *copy, Str db, Error *err) {
    CLEANUP(db_copy_free) DbCopy *found = NEW(DbCopy);
    found->db = db;
    TRY(list(copy, found, "listCollections", ELEM_MISSING, err));
    for (uint32_t i = 0; i < found->count; i++) {
        ArenaMark mark = arena_mark(&copy->op->arena);
        TRY(copy_collection(copy, db, found->rows[i], err));
        arena_rewind(&copy->op->arena, mark);
    }
    return ERR_OK;
}

/* Names of the source's databases, "admin" first: others depend on what it says. */
static ErrCode list_databases(Copy *copy, DbNames *ret_names, Error *err) {
    DocBuilder b = doc_builder_in_arena(&copy->op->arena);
    build_i32(&b, "listDatabases", 1);
    build_bool(&b, "nameOnly", true);
    Doc reply;
    TRY(ask(copy, &b, STR("admin"), &reply, err));
    Elem rows = doc_get_lit(reply, "databases");
    if (elem_type(rows) != BT_ARRAY)
        return error_set(err, ERR_FAILED_TO_PARSE, "listDatabases cannot be read");
    for (int pass = 0; pass < 2; pass++) {
        DocIter iter = doc_iter(elem_doc(rows));
        for (Elem row; doc_iter_next(&iter, &row);) {
            Elem name =
                elem_type(row) == BT_DOC ? doc_get_lit(elem_doc(row), "name") : ELEM_MISSING;
            if (elem_type(name) != BT_STRING || str_is(elem_str(name), "admin") != (pass == 0))
                continue;
            (void)collect_db(ret_names, elem_str(name));
        }
    }
    return ERR_OK;
}

static ErrCode copy_databases(Copy *copy, Error *err) {
    CLEANUP(db_names_done) DbNames names = {0};
    TRY(list_databases(copy, &names, err));
    for (uint32_t i = 0; i < names.count; i++)
        TRY(copy_database(copy, str_from(names.names[i]), err));
    return ERR_OK;
}

/* ---- from the beginning of the copy to its end ---- */

/* The window begins with the entry from before the copy, unless the source has trimmed it. */
static ErrCode skip_begin(Copy *copy, DocIter *iter, Error *err) {
    Elem first;
    OpTime optime = OPTIME_NONE;
    int64_t wall_ms;
    if (doc_iter_next(iter, &first) && elem_type(first) == BT_DOC)
        TRY(oplog_entry_position(elem_doc(first), &optime, &wall_ms, err));
    return optime_equal(optime, copy->begin)
               ? ERR_OK
               : error_set(err, ERR_OPLOG_START_MISSING,
                           "the source's oplog does not reach back to the begin of the copy");
}

static ErrCode apply_rows(Copy *copy, void *arg, Doc rows, Error *err) {
    bool *is_begun = arg;
    Doc *entries = ARENA_ARRAY(&copy->op->arena, Doc, APPLY_ENTRIES_MAX);
    DocIter iter = doc_iter(rows);
    if (!*is_begun)
        TRY(skip_begin(copy, &iter, err));
    *is_begun = true;
    size_t count = 0;
    bool is_more = true;
    while (is_more) {
        Elem elem;
        is_more = doc_iter_next(&iter, &elem);
        if (is_more && elem_type(elem) == BT_DOC)
            entries[count++] = elem_doc(elem);
        if (count == 0 || (count < APPLY_ENTRIES_MAX && is_more))
            continue;
        TRY(oplog_append_batch(copy->repl->oplog, copy->op, entries, count, err));
        for (size_t done = 0; done < count;) {
            size_t end = apply_batch_end(entries + done, count - done);
            TRY(applier_run(copy->repl->applier, copy->op, entries + done, end, APPLY_INITIAL_SYNC,
                            err));
            done += end;
        }
        count = 0;
    }
    return ERR_OK;
}

static ErrCode apply_window(Copy *copy, Error *err) {
    Doc last;
    TRY(source_end(copy, &copy->end, &copy->end_wall_ms, &last, err));
    DocBuilder b = doc_builder_in_arena(&copy->op->arena);
    build_cstr(&b, "find", "oplog.rs");
    size_t filter = build_open_doc(&b, "filter");
    size_t ts = build_open_doc(&b, "ts");
    build_timestamp(&b, "$gte", copy->begin.ts);
    build_timestamp(&b, "$lte", copy->end.ts);
    build_close(&b, ts);
    build_close(&b, filter);
    bool is_begun = false;
    return for_each_batch(copy, &b, STR("local"), STR("oplog.rs"), apply_rows, &is_begun, err);
}

/* ---- indexes ---- */

/* A build that is under way: all its indexes, each time one of them is met. Its end comes by the
 * oplog. */
static ErrCode join_build(Copy *copy, const Ns *ns, const DbCopy *found, Elem build, Error *err) {
    OpCtx *op = copy->op;
    Uuid uuid;
    if (!uuid_from_elem(build, &uuid))
        return error_set(err, ERR_FAILED_TO_PARSE, "the source's 'buildUUID' is no UUID");
    Doc *specs = ARENA_ARRAY(&op->arena, Doc, found->count);
    uint32_t count = 0;
    for (uint32_t i = 0; i < found->count; i++) {
        if (!elem_equal(doc_get_lit(found->rows[i], "buildUUID"), build, NULL))
            continue;
        DocBuilder b = doc_builder_in_arena(&op->arena);
        DocIter iter = doc_iter(found->rows[i]);
        for (Elem elem; doc_iter_next(&iter, &elem);)
            if (!elem_name_is(elem, STR("buildUUID")))
                build_elem(&b, elem);
        specs[count++] = doc_builder_end(&b);
    }
    return ddl_start_index_build_of(op, ns, &uuid, specs, count, err);
}

static ErrCode build_indexes_of(Copy *copy, const Ns *ns, Error *err) {
    CLEANUP(db_copy_free) DbCopy *found = NEW(DbCopy);
    Str db = ns_db(ns);
    found->db = db;
    DocBuilder name = doc_builder_in_arena(&copy->op->arena);
    build_str(&name, "c", ns_coll(ns));
    Doc wrapped = doc_builder_end(&name);
    ErrCode rc = list(copy, found, "listIndexes", doc_get_lit(wrapped, "c"), err);
    if (rc == ERR_NAMESPACE_NOT_FOUND) {
        error_reset(err);
        return ERR_OK;
    }
    TRY(rc);
    Doc *specs = ARENA_ARRAY(&copy->op->arena, Doc, found->count + 1);
    uint32_t count = 0;
    for (uint32_t i = 0; i < found->count; i++) {
        Doc spec = found->rows[i];
        Elem index_name_elem = doc_get_lit(spec, "name");
        bool is_id =
            elem_type(index_name_elem) == BT_STRING && str_is(elem_str(index_name_elem), "_id_");
        Elem build = doc_get_lit(spec, "buildUUID");
        if (elem_is_present(build))
            TRY(join_build(copy, ns, found, build, err));
        else if (!is_id && !elem_is_present(doc_get_lit(spec, "clustered")))
            specs[count++] = spec;
    }
    if (count == 0)
        return ERR_OK;
    CreateIndexesResult result;
    return ddl_create_indexes(copy->op, ns, specs, count, &result, err);
}

typedef struct NsList {
    Ns *rows;
    uint32_t count;
    uint32_t capacity;
} NsList;

static bool collect_ns(void *arg, const Collection *coll) {
    NsList *found = arg;
    if (is_copied(&coll->ns)) {
        ARRAY_RESERVE(found->rows, found->count, found->capacity);
        found->rows[found->count++] = coll->ns;
    }
    return true;
}

static ErrCode build_indexes(Copy *copy, Error *err) {
    CLEANUP(db_names_done) DbNames names = {0};
    NsList found = {0};
    Catalog *catalog = catalog_acquire(copy->repl->service->catalog);
    catalog_for_each_db(catalog, collect_db, &names);
    for (uint32_t i = 0; i < names.count; i++)
        catalog_for_each_in_db(catalog, str_from(names.names[i]), collect_ns, &found);
    catalog_release(catalog);
    ErrCode rc = ERR_OK;
    for (uint32_t i = 0; rc == ERR_OK && i < found.count; i++)
        rc = build_indexes_of(copy, &found.rows[i], err);
    xfree(found.rows);
    return rc;
}

/* ---- all together ---- */

static ErrCode copy_everything(Copy *copy, Error *err) {
    Repl *repl = copy->repl;
    OpCtx *op = copy->op;
    int64_t rollback_id, rollback_id_after;
    TRY(source_rollback_id(copy, &rollback_id, err));
    repl->is_copy_unfinished = true;
    TRY(local_store_initial_sync_flag(op, true, err));
    failpoint_hit(FP_INITIAL_SYNC_FLAG_SET);
    TRY(drop_everything(copy, err));
    failpoint_hit(FP_INITIAL_SYNC_DROPPED);
    Doc first;
    int64_t wall_ms;
    TRY(source_end(copy, &copy->begin, &wall_ms, &first, err));
    TRY(oplog_append_batch(repl->oplog, op, &first, 1, err));
    TRY(copy_databases(copy, err));
    TRY(apply_window(copy, err));
    failpoint_hit(FP_INITIAL_SYNC_APPLIED);
    TRY(source_rollback_id(copy, &rollback_id_after, err));
    if (rollback_id != rollback_id_after)
        return error_set(err, ERR_INITIAL_SYNC_FAILURE,
                         "the source rolled back while its data were copied");
    TRY(build_indexes(copy, err));

    TRY(storage_set_stable_and_oldest(repl->engine, copy->end.ts, copy->end.ts, err));
    repl->oldest_ts_min = copy->end.ts;
    TRY(storage_wait_durable(repl->engine, op, err));
    TRY(storage_checkpoint(repl->engine, err));
    TRY(local_store_initial_sync_flag(op, false, err));
    failpoint_hit(FP_INITIAL_SYNC_FLAG_CLEARED);
    repl->is_copy_unfinished = false;
    storage_set_last_applied_ts(repl->engine, copy->end.ts);
    oplog_set_applied(repl->oplog, copy->end, copy->end_wall_ms);
    oplog_set_durable(repl->oplog, copy->end, copy->end_wall_ms);
    return ERR_OK;
}
