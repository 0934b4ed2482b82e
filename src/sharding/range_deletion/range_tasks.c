#include "sharding/range_deletion/range_tasks.h"

#include "catalog/access.h"
#include "concurrency/service_ctx.h"
#include "query/write/own_docs.h"

#define NS_TEXT "config.rangeDeletions"
const Ns RANGE_DELETIONS_NS = {.size = sizeof(NS_TEXT) - 1, .db_size = 6, .text = NS_TEXT};

static ErrCode invalid(const char *what, Error *err) {
    return error_set(err, ERR_INCOMPATIBLE_SHARDING_METADATA,
                     "a document of config.rangeDeletions has no valid \"%s\"", what);
}

ErrCode range_task_parse(Doc doc, RangeTask *ret_task, Error *err) {
    RangeTask task = {0};
    Elem ns = doc_get_lit(doc, "nss"), donor = doc_get_lit(doc, "donorShardId"),
         range = doc_get_lit(doc, "range"), key = doc_get_lit(doc, "keyPattern"),
         when = doc_get_lit(doc, "whenToClean"), made = doc_get_lit(doc, "timestamp"),
         orphans = doc_get_lit(doc, "numOrphanDocs");
    if (!uuid_from_elem(doc_get_lit(doc, "_id"), &task.id))
        return invalid("_id", err);
    if (!uuid_from_elem(doc_get_lit(doc, "collectionUuid"), &task.uuid))
        return invalid("collectionUuid", err);
    if (elem_type(ns) != BT_STRING)
        return invalid("nss", err);
    TRY(ns_parse(elem_str(ns), &task.ns, err));
    Elem min = elem_type(range) == BT_DOC ? doc_get_lit(elem_doc(range), "min") : ELEM_MISSING;
    Elem max = elem_type(range) == BT_DOC ? doc_get_lit(elem_doc(range), "max") : ELEM_MISSING;
    if (elem_type(min) != BT_DOC || elem_type(max) != BT_DOC)
        return invalid("range", err);
    task.min = elem_doc(min);
    task.max = elem_doc(max);
    task.donor = elem_type(donor) == BT_STRING ? elem_str(donor) : (Str){"", 0};
    task.key = elem_type(key) == BT_DOC ? elem_doc(key) : DOC_NONE;
    task.is_pending = elem_is_truthy(doc_get_lit(doc, "pending"));
    task.is_delayed = elem_type(when) != BT_STRING || !str_is(elem_str(when), "now");
    task.orphans = elem_is_number(orphans) ? elem_as_i64(orphans) : 0;
    task.made_ts = elem_type(made) == BT_TIMESTAMP ? (uint64_t)elem_i64(made) : 0;
    *ret_task = task;
    return ERR_OK;
}

static Elem id_of(OpCtx *op, const Uuid *id) {
    DocBuilder b = doc_builder_in_arena(&op->arena);
    build_uuid(&b, "_id", id);
    return doc_get_lit(doc_builder_end(&b), "_id");
}

static const char *when_text(bool is_delayed) {
    return is_delayed ? "delayed" : "now";
}

ErrCode range_task_add(OpCtx *op, const RangeTask *task, Error *err) {
    Doc known;
    TRY(own_doc_read(op, &RANGE_DELETIONS_NS, id_of(op, &task->id), &known, err));
    if (doc_is_present(known))
        return ERR_OK;
    DocBuilder b = doc_builder_in_arena(&op->arena);
    build_uuid(&b, "_id", &task->id);
    build_str(&b, "nss", ns_str(&task->ns));
    build_uuid(&b, "collectionUuid", &task->uuid);
    build_str(&b, "donorShardId", task->donor);
    size_t range = build_open_doc(&b, "range");
    build_doc(&b, "min", task->min);
    build_doc(&b, "max", task->max);
    build_close(&b, range);
    if (task->is_pending)
        build_bool(&b, "pending", true);
    build_cstr(&b, "whenToClean", when_text(task->is_delayed));
    build_timestamp(&b, "timestamp", service_next_ts(op->service));
    build_i64(&b, "numOrphanDocs", task->orphans);
    if (doc_is_present(task->key))
        build_doc(&b, "keyPattern", task->key);
    Doc doc = doc_builder_end(&b);
    return own_docs_insert(op, &RANGE_DELETIONS_NS, &doc, 1, err);
}

static Doc filter_id(OpCtx *op, const Uuid *id) {
    DocBuilder b = doc_builder_in_arena(&op->arena);
    build_uuid(&b, "_id", id);
    return doc_builder_end(&b);
}

ErrCode range_task_make_ready(OpCtx *op, const Uuid *id, bool is_delayed, Error *err) {
    DocBuilder b = doc_builder_in_arena(&op->arena);
    size_t unset = build_open_doc(&b, "$unset");
    build_cstr(&b, "pending", "");
    build_close(&b, unset);
    size_t set = build_open_doc(&b, "$set");
    build_cstr(&b, "whenToClean", when_text(is_delayed));
    build_close(&b, set);
    return own_docs_update(op, &RANGE_DELETIONS_NS, filter_id(op, id), doc_builder_end(&b), err);
}

ErrCode range_task_set_orphans(OpCtx *op, const Uuid *id, int64_t orphans, Error *err) {
    DocBuilder b = doc_builder_in_arena(&op->arena);
    size_t set = build_open_doc(&b, "$set");
    build_i64(&b, "numOrphanDocs", orphans > 0 ? orphans : 0);
    build_close(&b, set);
    return own_docs_update(op, &RANGE_DELETIONS_NS, filter_id(op, id), doc_builder_end(&b), err);
}

ErrCode range_task_remove(OpCtx *op, const Uuid *id, Error *err) {
    return own_docs_delete(op, &RANGE_DELETIONS_NS, filter_id(op, id), err);
}

ErrCode range_tasks_remove(OpCtx *op, const Uuid *uuid, Error *err) {
    DocBuilder b = doc_builder_in_arena(&op->arena);
    build_uuid(&b, "collectionUuid", uuid);
    return own_docs_delete(op, &RANGE_DELETIONS_NS, doc_builder_end(&b), err);
}

/* ---- all of them ---- */

typedef struct Visiting {
    RangeTaskVisit visit;
    void *arg;
} Visiting;

static ErrCode visit_doc(void *arg, Doc doc, bool *is_over, Error *err) {
    (void)is_over;
    const Visiting *visiting = arg;
    RangeTask task;
    TRY(range_task_parse(doc, &task, err));
    return visiting->visit(visiting->arg, &task, err);
}

ErrCode range_tasks_each(OpCtx *op, RangeTaskVisit visit, void *arg, Error *err) {
    Visiting visiting = {visit, arg};
    return access_each(op, &RANGE_DELETIONS_NS, /* is_forward= */ true, visit_doc, &visiting, err);
}

typedef struct OverlapLook {
    const Uuid *uuid;
    Doc min;
    Doc max;
    const Uuid *except;
    bool is_found;
} OverlapLook;

static ErrCode look(void *arg, const RangeTask *task, Error *err) {
    (void)err;
    OverlapLook *l = arg;
    if (uuid_equal(&task->uuid, l->uuid) && !uuid_equal(&task->id, l->except) &&
        shard_key_compare(task->min, l->max) < 0 && shard_key_compare(l->min, task->max) < 0)
        l->is_found = true;
    return ERR_OK;
}

ErrCode range_tasks_overlap(OpCtx *op, const Uuid *uuid, Doc min, Doc max, const Uuid *except,
                            bool *ret_is_found, Error *err) {
    OverlapLook l = {uuid, min, max, except, false};
    TRY(range_tasks_each(op, look, &l, err));
    *ret_is_found = l.is_found;
    return ERR_OK;
}

typedef struct OrphanCount {
    const Uuid *uuid;
    int64_t count;
} OrphanCount;

static ErrCode add_orphans(void *arg, const RangeTask *task, Error *err) {
    (void)err;
    OrphanCount *sum = arg;
    if (uuid_equal(&task->uuid, sum->uuid))
        sum->count += task->orphans;
    return ERR_OK;
}

ErrCode range_tasks_count_orphans(OpCtx *op, const Uuid *uuid, int64_t *ret_orphans, Error *err) {
    OrphanCount sum = {uuid, 0};
    TRY(range_tasks_each(op, add_orphans, &sum, err));
    *ret_orphans = sum.count;
    return ERR_OK;
}
