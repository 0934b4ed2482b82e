#include "sharding/ddl/database_copy.h"

#include "base/clock.h"
#include "base/failpoint.h"
#include "base/hash.h"
#include "bson/compare.h"
#include "bson/json.h"
#include "ddl/ddl.h"
#include "index/collection_write.h"
#include "index/lookup.h"
#include "sharding/shard/critical_section.h"

enum {
    YIELD_US = 10 * 1000,
    UNIT_DOCS_MAX = 500, /* of one storage transaction */
    UNIT_BYTES_MAX = 1 << 20,
};

/* ---- scans ---- */

ErrCode collection_scan_open(OpCtx *op, const Ns *ns, const Uuid *uuid, bool *ret_found,
                             CollectionScan *ret_scan, Error *err) {
    *ret_found = false;
    TRY(access_read(op, ns, &ret_scan->access, err));
    const Collection *coll = ret_scan->access.coll;
    if (coll == NULL || !uuid_equal(&coll->uuid, uuid)) {
        access_done(&ret_scan->access);
        return ERR_OK;
    }
    QuerySpec spec = {.yields = {.period_us = YIELD_US}, .now_ms = clock_wall_ms()};
    ErrCode rc = plan_query(&ret_scan->access, &spec, &ret_scan->exec, err);
    if (rc != ERR_OK)
        access_done(&ret_scan->access);
    *ret_found = rc == ERR_OK;
    return rc;
}

ErrCode collection_scan_next(CollectionScan *scan, bool *ret_found, Doc *ret_doc, Error *err) {
    PlanRow row;
    TRY(executor_next(scan->exec, ret_found, &row, err));
    if (*ret_found)
        *ret_doc = row.doc;
    return ERR_OK;
}

void collection_scan_suspend(CollectionScan *scan) {
    executor_save(scan->exec);
    access_suspend(&scan->access);
}

ErrCode collection_scan_resume(OpCtx *op, CollectionScan *scan, Error *err) {
    TRY(access_resume(op, &scan->access, err));
    return executor_restore(scan->exec, &scan->access, err);
}

void collection_scan_done(CollectionScan *scan) {
    executor_free(scan->exec); /* closes its storage cursors before the snapshot goes */
    access_done(&scan->access);
    *scan = (CollectionScan){0};
}

ErrCode collection_digest(OpCtx *op, const Ns *ns, const Uuid *uuid, bool *ret_found,
                          CollectionDigest *ret_digest, Error *err) {
    CLEANUP(collection_scan_done) CollectionScan scan = {0};
    TRY(collection_scan_open(op, ns, uuid, ret_found, &scan, err));
    if (!*ret_found)
        return ERR_OK;
    CollectionDigest digest = {.index_count = scan.access.coll->index_count};
    for (;;) {
        bool is_found;
        Doc doc;
        TRY(collection_scan_next(&scan, &is_found, &doc, err));
        if (!is_found)
            break;
        size_t size = doc_size(doc);
        digest.count++;
        digest.bytes += (int64_t)size;
        digest.sum += hash_bytes(doc.data, size);
    }
    *ret_digest = digest;
    return ERR_OK;
}

/* ---- documents ---- */

typedef struct CopyWriter {
    OpCtx *op;
    const Ns *ns;
    const Uuid *uuid;
    WriteScratch scratch;
    Arena arena; /* of one document */
} CopyWriter;

static void writer_done(CopyWriter *writer) {
    write_scratch_done(&writer->scratch);
    arena_done(&writer->arena);
}

static ErrCode open_copy(CopyWriter *writer, CollAccess *ret_access, Error *err) {
    TRY(access_write(writer->op, writer->ns, LOCK_IX, ret_access, err));
    if (ret_access->coll == NULL || !uuid_equal(&ret_access->coll->uuid, writer->uuid))
        return error_set(err, ERR_NAMESPACE_NOT_FOUND, "the copy of %s was dropped",
                         writer->ns->text);
    return ERR_OK;
}

/* One that may be there, of a request that comes again. */
static ErrCode insert_missing(CopyWriter *writer, Doc doc, Error *err) {
    CLEANUP(access_done) CollAccess access = {0};
    TRY(open_copy(writer, &access, err));
    Elem id = doc_get_lit(doc, "_id");
    Doc known;
    arena_reset(&writer->arena);
    TRY(lookup_document(writer->op, access.coll, id, &writer->arena, &known, err));
    if (!doc_is_present(known))
        return collection_insert_unit(writer->op, access.coll, &doc, 1, &writer->scratch, err);
    if (doc_equal_bytes(known, doc))
        return ERR_OK;
    return error_set(err, ERR_DUPLICATE_KEY, "the copy of %s has another document with {_id: %s}",
                     writer->ns->text, shell_text_of_elem(id, &writer->op->arena));
}

static ErrCode insert_unit(CopyWriter *writer, const Doc *docs, uint32_t count, Error *err) {
    {
        CLEANUP(access_done) CollAccess access = {0};
        TRY(open_copy(writer, &access, err));
        ErrCode rc =
            collection_insert_unit(writer->op, access.coll, docs, count, &writer->scratch, err);
        if (rc != ERR_DUPLICATE_KEY)
            return rc;
        error_reset(err);
    }
    for (uint32_t i = 0; i < count; i++)
        TRY(insert_missing(writer, docs[i], err));
    return ERR_OK;
}

static ErrCode insert_all(CopyWriter *writer, const Doc *docs, uint32_t count, Error *err) {
    for (uint32_t from = 0, to; from < count; from = to) {
        size_t bytes = 0;
        for (to = from; to < count && to - from < UNIT_DOCS_MAX && bytes < UNIT_BYTES_MAX; to++)
            bytes += doc_size(docs[to]);
        TRY(op_check_interrupt_slow(writer->op, err));
        TRY(insert_unit(writer, docs + from, to - from, err));
        failpoint_hit(FP_MOVE_PRIMARY_COPY_INSERTED);
    }
    return ERR_OK;
}

ErrCode database_copy_insert(OpCtx *op, const DdlCaller *caller, const Ns *ns, const Uuid *uuid,
                             const Doc *docs, uint32_t count, Error *err) {
    CLEANUP(op_mutex_unlock) OpMutexLock lock = {0};
    TRY(fence_pass(op, ns_str(ns), caller->coordinator, caller->term, &lock, err));
    CLEANUP(op_mode_restore) OpModeScope scope = op_mode_scope(op);
    op->mode.is_from_migrate = true;
    op->mode.is_validation_bypassed = true;
    CopyWriter writer = {.op = op, .ns = ns, .uuid = uuid};
    write_scratch_init(&writer.scratch);
    arena_init(&writer.arena, 16 * 1024);
    ErrCode rc = insert_all(&writer, docs, count, err);
    writer_done(&writer);
    return rc;
}

/* ---- views ---- */

/* Views that are there and not wanted, at least not so. */
typedef struct ViewList {
    OpCtx *op;
    const Doc *wanted;
    uint32_t wanted_count;
    Ns *names;
    uint32_t count;
    uint32_t capacity;
} ViewList;

static bool is_wanted(const ViewList *list, const View *view) {
    for (uint32_t i = 0; i < list->wanted_count; i++)
        if (doc_compare(view->definition, list->wanted[i], NULL) == 0)
            return true;
    return false;
}

static bool add_view(void *arg, const View *view) {
    ViewList *list = arg;
    if (is_wanted(list, view))
        return true;
    if (list->count == list->capacity) {
        uint32_t capacity = list->capacity * 2 + 16;
        Ns *grown = ARENA_ARRAY(&list->op->arena, Ns, capacity);
        if (list->count > 0)
            memcpy(grown, list->names, list->count * sizeof(Ns));
        list->names = grown;
        list->capacity = capacity;
    }
    list->names[list->count++] = view->ns;
    return true;
}

static ErrCode drop_views(OpCtx *op, Str db, const Doc *views, uint32_t count, Error *err) {
    ViewList list = {.op = op, .wanted = views, .wanted_count = count};
    Catalog *catalog = catalog_acquire(op->service->catalog);
    catalog_for_each_view_in_db(catalog, db, add_view, &list);
    catalog_release(catalog);
    DropResult dropped;
    for (uint32_t i = 0; i < list.count; i++)
        TRY(ddl_drop(op, &list.names[i], NULL, &dropped, err));
    if (count > 0)
        return ERR_OK;
    Ns home;
    TRY(ns_make(db, STR("system.views"), &home, err));
    return ddl_drop(op, &home, NULL, &dropped, err);
}

static ErrCode create_view(OpCtx *op, Str db, Doc view, Error *err) {
    Elem id = doc_get_lit(view, "_id"), on = doc_get_lit(view, "viewOn"),
         pipeline = doc_get_lit(view, "pipeline");
    Ns ns;
    if (elem_type(id) != BT_STRING || elem_type(on) != BT_STRING || elem_type(pipeline) != BT_ARRAY)
        return error_set(err, ERR_INVALID_VIEW_DEFINITION, "a view is not as it should be");
    TRY(ns_parse(elem_str(id), &ns, err));
    if (!str_equal(ns_db(&ns), db))
        return error_set(err, ERR_INVALID_VIEW_DEFINITION, "the view %s is of another database",
                         ns.text);
    return ddl_create_view(op, &ns, elem_str(on), elem_doc(pipeline),
                           doc_get_lit(view, "collation"), err);
}

ErrCode database_copy_views(OpCtx *op, const DdlCaller *caller, Str db, const Doc *views,
                            uint32_t count, Error *err) {
    CLEANUP(op_mutex_unlock) OpMutexLock lock = {0};
    TRY(fence_pass(op, db, caller->coordinator, caller->term, &lock, err));
    CLEANUP(op_mode_restore) OpModeScope scope = op_mode_scope(op);
    op->mode.is_from_migrate = true;
    TRY(drop_views(op, db, views, count, err));
    for (uint32_t i = 0; i < count; i++)
        TRY(create_view(op, db, views[i], err));
    return ERR_OK;
}
