/*
 * initial_sync_copy.c - databases, collections and indexes of the source.
 *
 * A collection is read in natural order, batch by batch. Each reply carries a resume token; after
 * an outage reading continues there, whatever the collection is called by then, since it is found
 * by UUID. If the record at that position is gone, reading continues with the next one. What was
 * deleted, changed, renamed or dropped meanwhile is in the oplog, which is applied later.
 *
 * Documents are stored as they are: nothing is validated, a capped collection is not trimmed (its
 * deletes come with the oplog) and keeps its order, an existing document is skipped.
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "bson/compare.h"
#include "ddl/ddl.h"
#include "index/collection_write.h"
#include "repl/initial_sync_internal.h"

enum {
    STORE_DOCS_MAX = 1000, /* per storage transaction */
    STORE_BYTES_MAX = 4 * 1024 * 1024,
};

/* ---- lists ---- */

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

/* Rows of listCollections or listIndexes. */
typedef struct Listing {
    Str db;
    const Uuid *uuid; /* of the collection whose indexes are listed; NULL: list collections */
    Doc *rows;        /* heap, each by itself */
    uint32_t count;
    uint32_t capacity;
} Listing;

static void listing_clear(Listing *listing) {
    for (uint32_t i = 0; i < listing->count; i++)
        xfree((uint8_t *)listing->rows[i].data);
    listing->count = 0;
}

static void listing_done(Listing *listing) {
    listing_clear(listing);
    xfree(listing->rows);
}

static void collect_rows(Listing *listing, Doc rows) {
    DocIter iter = doc_iter(rows);
    for (Elem elem; doc_iter_next(&iter, &elem);) {
        if (elem_type(elem) != BT_DOC)
            continue;
        ARRAY_RESERVE(listing->rows, listing->count, listing->capacity);
        listing->rows[listing->count++] = (Doc){doc_copy_heap(elem_doc(elem))};
    }
}

/* The collection name for getMore: the source reports to which its cursor belongs. */
static Str cursor_coll(Doc reply, Str db, Arena *arena) {
    Elem ns = doc_get_path(reply, "cursor.ns");
    Str text = elem_type(ns) == BT_STRING ? elem_str(ns) : STR("");
    if (text.size <= db.size + 1)
        return STR("");
    size_t size = text.size - db.size - 1;
    return (Str){arena_memdup(arena, text.data + db.size + 1, size), size};
}

static ErrCode ask_more(SourceLine *line, int64_t id, Str db, Str coll, Doc *ret_reply,
                        Error *err) {
    DocBuilder b = doc_builder_in_arena(&line->op->arena);
    build_i64(&b, "getMore", id);
    build_str(&b, "collection", coll);
    int64_t batch_docs = line->attempt->settings.batch_docs;
    if (batch_docs > 0)
        build_i64(&b, "batchSize", batch_docs);
    return source_ask(line, &b, db, ret_reply, err);
}

static ErrCode read_listing(SourceLine *line, void *arg, Error *err) {
    Listing *listing = arg;
    listing_clear(listing);
    DocBuilder b = doc_builder_in_arena(&line->op->arena);
    if (listing->uuid != NULL) {
        build_uuid(&b, "listIndexes", listing->uuid);
        build_bool(&b, "includeBuildUUIDs", true);
    } else {
        build_i32(&b, "listCollections", 1);
        /* Views come as rows of system.views; asking for them would fail if one is none. */
        size_t filter = build_open_doc(&b, "filter");
        build_cstr(&b, "type", "collection");
        build_close(&b, filter);
    }
    Doc reply;
    TRY(source_ask(line, &b, listing->db, &reply, err));
    collect_rows(listing, reply_rows(reply, "firstBatch"));
    Str coll = cursor_coll(reply, listing->db, &line->op->arena);
    for (int64_t id = reply_cursor_id(reply); id != 0; id = reply_cursor_id(reply)) {
        TRY(ask_more(line, id, listing->db, coll, &reply, err));
        collect_rows(listing, reply_rows(reply, "nextBatch"));
    }
    return ERR_OK;
}

/* ---- what was here before ---- */

ErrCode drop_databases(Attempt *attempt, Error *err) {
    CLEANUP(db_names_done) DbNames found = {0};
    Catalog *catalog = catalog_acquire(attempt->repl->service->catalog);
    catalog_for_each_db(catalog, collect_db, &found);
    catalog_release(catalog);
    for (uint32_t i = 0; i < found.count; i++) {
        bool existed;
        TRY(ddl_drop_database(attempt->op, str_from(found.names[i]), &existed, err));
    }
    return ERR_OK;
}

/* ---- documents ---- */

typedef struct CollectionCopy {
    Attempt *attempt;
    Ns ns; /* its name here until the oplog is applied */
    Uuid uuid;
    uint8_t *token; /* position of the copy; NULL: the beginning. Heap */
    int64_t copied; /* documents */
    WriteScratch scratch;
} CollectionCopy;

static void collection_copy_done(CollectionCopy *copy) {
    xfree(copy->token);
    write_scratch_done(&copy->scratch);
}

/* All together; one by one if some already exist, since a collection that is being written may
 * return the same document twice. */
static ErrCode store_group(CollectionCopy *copy, const Doc *docs, uint32_t count,
                           int64_t *ret_stored, Error *err) {
    OpCtx *op = copy->attempt->op;
    CLEANUP(access_done) CollAccess access = {0};
    TRY(access_write(op, &copy->ns, LOCK_IX, &access, err));
    if (access.coll == NULL)
        return error_set(err, ERR_INITIAL_SYNC_FAILURE, "collection \"%s\" is gone", copy->ns.text);
    *ret_stored = count;
    ErrCode rc = collection_insert_unit(op, access.coll, docs, count, &copy->scratch, err);
    if (rc != ERR_DUPLICATE_KEY)
        return rc;
    *ret_stored = 0;
    for (uint32_t i = 0; i < count; i++) {
        error_reset(err);
        rc = collection_insert_unit(op, access.coll, &docs[i], 1, &copy->scratch, err);
        if (rc != ERR_OK && rc != ERR_DUPLICATE_KEY)
            return rc;
        *ret_stored += rc == ERR_OK;
    }
    error_reset(err);
    return ERR_OK;
}

/* View definitions take effect at once, as when an entry is applied. */
static ErrCode store_views(CollectionCopy *copy, Doc rows, int64_t *ret_stored, Error *err) {
    OpCtx *op = copy->attempt->op;
    DocIter iter = doc_iter(rows);
    *ret_stored = 0;
    for (Elem row; doc_iter_next(&iter, &row); ++*ret_stored) {
        if (elem_type(row) != BT_DOC)
            return error_set(err, ERR_FAILED_TO_PARSE, "a batch of the source cannot be read");
        DocBuilder b = doc_builder_in_arena(&op->arena);
        build_cstr(&b, "op", "i");
        build_str(&b, "ns", ns_str(&copy->ns));
        build_uuid(&b, "ui", &copy->uuid);
        build_doc(&b, "o", elem_doc(row));
        build_timestamp(&b, "ts", copy->attempt->window.applied_ts);
        Doc entry = doc_builder_end(&b);
        TRY(applier_run(copy->attempt->repl->applier, op, &entry, 1, APPLY_INITIAL_SYNC, err));
    }
    return ERR_OK;
}

static ErrCode store_documents(CollectionCopy *copy, Doc rows, int64_t *ret_stored, Error *err) {
    OpCtx *op = copy->attempt->op;
    Doc *docs = ARENA_ARRAY(&op->arena, Doc, STORE_DOCS_MAX);
    DocIter iter = doc_iter(rows);
    uint32_t count = 0;
    size_t bytes = 0;
    *ret_stored = 0;
    for (bool is_more = true; is_more;) {
        Elem elem;
        is_more = doc_iter_next(&iter, &elem);
        if (is_more && elem_type(elem) != BT_DOC)
            return error_set(err, ERR_FAILED_TO_PARSE, "a batch of the source cannot be read");
        if (is_more) {
            docs[count++] = elem_doc(elem);
            bytes += doc_size(elem_doc(elem));
        }
        bool is_full = count == STORE_DOCS_MAX || bytes >= STORE_BYTES_MAX;
        if (count == 0 || (is_more && !is_full))
            continue;
        int64_t stored = 0;
        CLEANUP(op_mode_restore) OpModeScope scope = op_mode_scope(op);
        op->mode.is_applying = op->mode.is_validation_bypassed = true;
        TRY(store_group(copy, docs, count, &stored, err));
        *ret_stored += stored;
        count = 0;
        bytes = 0;
    }
    return ERR_OK;
}

/* Does the failpoint name something else? What it does not name is meant always. */
static bool is_other(Doc data, const char *name, Str value) {
    Elem named = doc_get(data, str_from(name));
    return elem_type(named) == BT_STRING && elem_str(named).size > 0 &&
           !str_equal(elem_str(named), value);
}

typedef struct CopyPlace {
    const char *cloner; /* the names that tests use: what is copied, and which step of it */
    const char *stage;
    Str ns; /* of a database: its name */
    int64_t copied;
} CopyPlace;

static void hang_at(FailpointId id, const CopyPlace *place) {
    if (LIKELY(!failpoint_is_set(id)))
        return;
    FailpointConfig config = failpoint_config(id);
    Doc data = config.data != NULL ? (Doc){config.data} : DOC_EMPTY;
    Elem least = doc_get_lit(data, "numDocsToClone");
    bool is_meant = !is_other(data, "cloner", str_from(place->cloner)) &&
                    !is_other(data, "stage", str_from(place->stage)) &&
                    !is_other(data, "nss", place->ns) && !is_other(data, "namespace", place->ns) &&
                    !is_other(data, "database", place->ns) &&
                    !(elem_is_number(least) && place->copied < elem_as_i64(least));
    xfree(config.data);
    if (is_meant)
        failpoint_hang(id);
}

/* Stores one reply. The position advances only after everything is stored, so that a retry loses
 * nothing. */
static ErrCode store_batch(CollectionCopy *copy, Doc reply, const char *batch, Error *err) {
    Attempt *attempt = copy->attempt;
    ArenaMark mark = arena_mark(&attempt->op->arena);
    Doc rows = reply_rows(reply, batch);
    int64_t stored;
    if (str_is(ns_coll(&copy->ns), "system.views"))
        TRY(store_views(copy, rows, &stored, err));
    else
        TRY(store_documents(copy, rows, &stored, err));
    arena_rewind(&attempt->op->arena, mark);
    Elem token = doc_get_path(reply, "cursor.postBatchResumeToken");
    if (elem_type(token) != BT_DOC)
        return error_set(err, ERR_FAILED_TO_PARSE, "the source does not tell how far it got");
    xfree(copy->token);
    copy->token = doc_copy_heap(elem_doc(token));
    status_add_batch(attempt->sync->initial_sync, stored, doc_size(rows));
    status_log(attempt->sync->initial_sync, 7300265, "Initial sync copies data",
               /* is_now= */ false);
    failpoint_hit(FP_INITIAL_SYNC_BATCH);
    copy->copied += stored;
    CopyPlace place = {"CollectionCloner", "query", ns_str(&copy->ns), copy->copied};
    hang_at(FP_INITIAL_SYNC_HANG_DURING_CLONE, &place);
    hang_at(FP_INITIAL_SYNC_HANG_AFTER_BATCH, &place);
    return attempt_check(attempt, err);
}

static ErrCode copy_documents(SourceLine *line, void *arg, Error *err) {
    CollectionCopy *copy = arg;
    Str db = ns_db(&copy->ns);
    DocBuilder b = doc_builder_in_arena(&line->op->arena);
    build_uuid(&b, "find", &copy->uuid);
    size_t hint = build_open_doc(&b, "hint");
    build_i32(&b, "$natural", 1);
    build_close(&b, hint);
    build_bool(&b, "$_requestResumeToken", true);
    if (copy->token != NULL)
        build_doc(&b, "$_startAt", (Doc){copy->token});
    int64_t batch_docs = line->attempt->settings.batch_docs;
    if (batch_docs > 0)
        build_i64(&b, "batchSize", batch_docs);
    Doc reply;
    TRY(source_ask(line, &b, db, &reply, err));
    Str coll = cursor_coll(reply, db, &line->op->arena);
    int64_t id = reply_cursor_id(reply);
    TRY(store_batch(copy, reply, "firstBatch", err));
    while (id != 0) {
        ArenaMark mark = arena_mark(&line->op->arena);
        TRY(ask_more(line, id, db, coll, &reply, err));
        id = reply_cursor_id(reply);
        TRY(store_batch(copy, reply, "nextBatch", err));
        arena_rewind(&line->op->arena, mark);
    }
    return ERR_OK;
}

/* ---- collections ---- */

static bool is_copied(const Ns *ns) {
    return ns_is_replicated(ns) && !str_is(ns_db(ns), "local");
}

typedef struct Sizes {
    Str db;
    Str coll; /* empty: of the database */
    int64_t docs;
    int64_t bytes;
    int64_t indexes;
} Sizes;

static int64_t number_or_unknown(Doc reply, const char *name) {
    Elem value = doc_get(reply, str_from(name));
    return elem_is_number(value) ? elem_as_i64(value) : -1;
}

/* For the status only: what the source does not report stays unknown. */
static ErrCode ask_sizes(SourceLine *line, void *arg, Error *err) {
    Sizes *sizes = arg;
    DocBuilder b = doc_builder_in_arena(&line->op->arena);
    if (sizes->coll.size > 0)
        build_str(&b, "collStats", sizes->coll);
    else
        build_i32(&b, "dbStats", 1);
    Doc reply;
    TRY(source_ask(line, &b, sizes->db, &reply, err));
    sizes->docs = number_or_unknown(reply, "count");
    sizes->bytes = number_or_unknown(reply, sizes->coll.size > 0 ? "size" : "dataSize");
    sizes->indexes = number_or_unknown(reply, "nindexes");
    return ERR_OK;
}

static ErrCode read_sizes(Attempt *attempt, Sizes *sizes, Error *err) {
    sizes->docs = sizes->bytes = sizes->indexes = -1;
    ErrCode rc = source_run(&attempt->line, ask_sizes, sizes, err);
    if (rc != ERR_NAMESPACE_NOT_FOUND && rc != ERR_COMMAND_NOT_SUPPORTED_ON_VIEW)
        return rc;
    error_reset(err);
    return ERR_OK;
}

/* One row of listCollections. Views come as documents of system.views. */
static ErrCode copy_collection(Attempt *attempt, Str db, Doc row, Error *err) {
    Elem name = doc_get_lit(row, "name");
    Elem type = doc_get_lit(row, "type");
    Elem options = doc_get_lit(row, "options");
    if (elem_type(name) != BT_STRING || elem_type(options) != BT_DOC)
        return error_set(err, ERR_FAILED_TO_PARSE, "a row of listCollections cannot be read");
    if (elem_type(type) == BT_STRING && str_is(elem_str(type), "view"))
        return ERR_OK;
    CLEANUP(collection_copy_done) CollectionCopy copy = {.attempt = attempt};
    write_scratch_init(&copy.scratch);
    TRY(ns_make(db, elem_str(name), &copy.ns, err));
    if (!is_copied(&copy.ns) || !uuid_from_elem(doc_get_path(row, "info.uuid"), &copy.uuid))
        return ERR_OK;
    InitialSyncStatus *status = attempt->sync->initial_sync;
    Sizes sizes = {.db = db, .coll = elem_str(name)};
    CopyPlace place = {"CollectionCloner", "count", ns_str(&copy.ns), 0};
    hang_at(FP_HANG_BEFORE_CLONER_STAGE, &place);
    TRY(read_sizes(attempt, &sizes, err));
    hang_at(FP_HANG_AFTER_CLONER_STAGE, &place);
    /* The sizes tell how many there are; they are listed after the documents. */
    place.stage = "listIndexes";
    hang_at(FP_HANG_BEFORE_CLONER_STAGE, &place);
    status_begin_collection(status, &copy.ns, sizes.docs, sizes.bytes, sizes.indexes);
    DocBuilder b = doc_builder_in_arena(&attempt->op->arena);
    build_all(&b, elem_doc(options));
    Elem id_index = doc_get_lit(row, "idIndex");
    if (elem_is_present(id_index))
        build_elem(&b, id_index);
    place.stage = "createCollection";
    hang_at(FP_HANG_BEFORE_CLONER_STAGE, &place);
    TRY(ddl_create_collection(attempt->op, &copy.ns, doc_builder_end(&b), &copy.uuid, err));
    hang_at(FP_HANG_AFTER_CLONER_STAGE, &place);
    place.stage = "query";
    hang_at(FP_HANG_BEFORE_CLONER_STAGE, &place);
    ErrCode rc = source_run(&attempt->line, copy_documents, &copy, err);
    hang_at(FP_HANG_AFTER_CLONER_STAGE, &place);
    if (rc == ERR_NAMESPACE_NOT_FOUND) {
        error_reset(err); /* dropped meanwhile: the oplog contains the drop */
        rc = ERR_OK;
    }
    TRY(rc);
    status_end_collection(status);
    failpoint_hit(FP_INITIAL_SYNC_CLONED);
    return ERR_OK;
}

/* ---- databases ---- */

static ErrCode copy_database(Attempt *attempt, Str db, Error *err) {
    CLEANUP(listing_done) Listing found = {.db = db};
    CopyPlace place = {"DatabaseCloner", "listCollections", db, 0};
    hang_at(FP_HANG_BEFORE_CLONER_STAGE, &place);
    TRY(source_run(&attempt->line, read_listing, &found, err));
    hang_at(FP_HANG_AFTER_CLONER_STAGE, &place);
    InitialSyncStatus *status = attempt->sync->initial_sync;
    status_begin_database(status, db, found.count);
    for (uint32_t i = 0; i < found.count; i++) {
        ArenaMark mark = arena_mark(&attempt->op->arena);
        TRY(copy_collection(attempt, db, found.rows[i], err));
        arena_rewind(&attempt->op->arena, mark);
    }
    status_end_database(status);
    return ERR_OK;
}

/* The source's newest entry when all documents of clients have been copied, before "config" is. The
 * images (preimages/) of entries up to it are in "config" or expired; for those of later entries
 * the data here are exact once everything before them is applied. */
static ErrCode note_copied(Attempt *attempt, Error *err) {
    OpTime copied;
    int64_t wall_ms;
    Doc entry;
    TRY(source_read_end(&attempt->line, &copied, &wall_ms, &entry, err));
    applier_set_copied_ts(attempt->repl->applier, copied.ts);
    return ERR_OK;
}

/* Names of the source's databases. "admin" first: it has what others depend on (versions, users).
 * "config" last, also if there is none yet: see note_copied. */
static ErrCode list_databases(SourceLine *line, void *arg, Error *err) {
    DbNames *names = arg;
    names->count = 0;
    DocBuilder b = doc_builder_in_arena(&line->op->arena);
    build_i32(&b, "listDatabases", 1);
    build_bool(&b, "nameOnly", true);
    Doc reply;
    TRY(source_ask(line, &b, STR("admin"), &reply, err));
    Elem rows = doc_get_lit(reply, "databases");
    if (elem_type(rows) != BT_ARRAY)
        return error_set(err, ERR_FAILED_TO_PARSE, "listDatabases cannot be read");
    for (int pass = 0; pass < 2; pass++) {
        DocIter iter = doc_iter(elem_doc(rows));
        for (Elem row; doc_iter_next(&iter, &row);) {
            Elem name =
                elem_type(row) == BT_DOC ? doc_get_lit(elem_doc(row), "name") : ELEM_MISSING;
            if (elem_type(name) != BT_STRING || str_is(elem_str(name), "config") ||
                str_is(elem_str(name), "admin") != (pass == 0))
                continue;
            (void)collect_db(names, elem_str(name));
        }
    }
    (void)collect_db(names, STR("config"));
    return ERR_OK;
}

ErrCode copy_databases(Attempt *attempt, Error *err) {
    CLEANUP(db_names_done) DbNames names = {0};
    CopyPlace place = {"AllDatabaseCloner", "listDatabases", STR(""), 0};
    hang_at(FP_HANG_BEFORE_CLONER_STAGE, &place);
    TRY(source_run(&attempt->line, list_databases, &names, err));
    hang_at(FP_HANG_AFTER_CLONER_STAGE, &place);
    InitialSyncStatus *status = attempt->sync->initial_sync;
    status_set_database_count(status, names.count);
    for (uint32_t i = 0; i < names.count; i++) {
        Sizes sizes = {.db = str_from(names.names[i])};
        TRY(read_sizes(attempt, &sizes, err));
        if (sizes.bytes > 0)
            status_add_data_size(status, sizes.bytes);
    }
    for (uint32_t i = 0; i < names.count; i++) {
        if (i + 1 == names.count)
            TRY(note_copied(attempt, err));
        TRY(copy_database(attempt, str_from(names.names[i]), err));
    }
    return ERR_OK;
}

/* ---- indexes ---- */

/* A build in progress: all its indexes, whenever one of them is encountered; repeated calls have no
 * effect. Its end comes with the oplog. */
static ErrCode join_build(Attempt *attempt, const Ns *ns, const Listing *found, Elem build,
                          Error *err) {
    OpCtx *op = attempt->op;
    Uuid uuid;
    if (!uuid_from_elem(build, &uuid))
        return error_set(err, ERR_FAILED_TO_PARSE, "the source's 'buildUUID' is no UUID");
    Doc *specs = ARENA_ARRAY(&op->arena, Doc, found->count);
    uint32_t count = 0;
    for (uint32_t i = 0; i < found->count; i++) {
        if (!elem_equal(doc_get_lit(found->rows[i], "buildUUID"), build, NULL))
            continue;
        Elem spec = doc_get_lit(found->rows[i], "spec");
        if (elem_type(spec) != BT_DOC)
            return error_set(err, ERR_FAILED_TO_PARSE,
                             "the source's index that is being built has no 'spec'");
        specs[count++] = elem_doc(spec);
    }
    return ddl_start_index_build_of(op, ns, &uuid, specs, count, err);
}

/* The list is newer than the data: an index that conflicts with one that exists here was created
 * after that one was dropped, and comes with the oplog. */
static bool is_newer(ErrCode rc) {
    return rc == ERR_INDEX_OPTIONS_CONFLICT || rc == ERR_INDEX_KEY_SPECS_CONFLICT ||
           rc == ERR_CANNOT_CREATE_INDEX;
}

static ErrCode build_indexes(OpCtx *op, const Ns *ns, const Doc *specs, uint32_t count,
                             Error *err) {
    CreateIndexesResult result;
    CLEANUP(op_mode_restore) OpModeScope scope = op_mode_scope(op);
    op->mode.is_applying = true; /* transient duplicates are ignored */
    ErrCode rc = count > 0 ? ddl_create_indexes(op, ns, specs, count, &result, err) : ERR_OK;
    for (uint32_t i = 0; is_newer(rc) && i < count; i++) {
        error_reset(err);
        ErrCode one = ddl_create_indexes(op, ns, specs + i, 1, &result, err);
        if (one != ERR_OK && !is_newer(one))
            rc = one;
    }
    if (!is_newer(rc))
        return rc;
    error_reset(err);
    return ERR_OK;
}

static ErrCode copy_indexes_of(Attempt *attempt, const Ns *ns, const Uuid *uuid, Error *err) {
    CLEANUP(listing_done) Listing found = {.db = ns_db(ns), .uuid = uuid};
    ErrCode rc = source_run(&attempt->line, read_listing, &found, err);
    if (rc == ERR_NAMESPACE_NOT_FOUND) {
        error_reset(err);
        return ERR_OK;
    }
    TRY(rc);
    Doc *specs = ARENA_ARRAY(&attempt->op->arena, Doc, found.count + 1);
    uint32_t count = 0;
    for (uint32_t i = 0; i < found.count; i++) {
        Doc spec = found.rows[i];
        Elem name = doc_get_lit(spec, "name");
        bool is_id = elem_type(name) == BT_STRING && str_is(elem_str(name), "_id_");
        Elem build = doc_get_lit(spec, "buildUUID");
        if (elem_is_present(build))
            TRY(join_build(attempt, ns, &found, build, err));
        else if (!is_id && !elem_is_present(doc_get_lit(spec, "clustered")))
            specs[count++] = spec;
    }
    return build_indexes(attempt->op, ns, specs, count, err);
}

typedef struct CollectionName {
    Ns ns;
    Uuid uuid;
} CollectionName;

typedef struct CollectionNames {
    CollectionName *rows;
    uint32_t count;
    uint32_t capacity;
} CollectionNames;

static void collection_names_done(CollectionNames *names) {
    xfree(names->rows);
}

static bool collect_name(void *arg, const Collection *coll) {
    CollectionNames *found = arg;
    if (is_copied(&coll->ns)) {
        ARRAY_RESERVE(found->rows, found->count, found->capacity);
        found->rows[found->count++] = (CollectionName){coll->ns, coll->uuid};
    }
    return true;
}

ErrCode copy_indexes(Attempt *attempt, Error *err) {
    if (atomic_load(&attempt->repl->skips_indexes))
        return ERR_OK;
    CLEANUP(db_names_done) DbNames names = {0};
    CLEANUP(collection_names_done) CollectionNames found = {0};
    Catalog *catalog = catalog_acquire(attempt->repl->service->catalog);
    catalog_for_each_db(catalog, collect_db, &names);
    for (uint32_t i = 0; i < names.count; i++)
        catalog_for_each_in_db(catalog, str_from(names.names[i]), collect_name, &found);
    catalog_release(catalog);
    for (uint32_t i = 0; i < found.count; i++) {
        ArenaMark mark = arena_mark(&attempt->op->arena);
        TRY(attempt_check(attempt, err));
        TRY(copy_indexes_of(attempt, &found.rows[i].ns, &found.rows[i].uuid, err));
        arena_rewind(&attempt->op->arena, mark);
    }
    return ERR_OK;
}
