/*
 * crud.c - writes of documents.
 *
 * Each write leaves the document as it was after the entry, whatever its present state: entries may
 * be applied again to newer data, after a restart or during an initial sync, and later entries then
 * bring it to the final state.
 */
#include "base/alloc.h"
#include "base/log.h"
#include "bson/compare.h"
#include "bson/json.h"
#include "preimages/preimage_store.h"
#include "preimages/purger.h"
#include "query/update/update_delta.h"
#include "repl/apply/apply_internal.h"
#include "storage/unit_of_work.h"
#include "txn/history.h"

typedef struct OneWrite {
    const ApplyTarget *target;
    const ApplyOp *write;
} OneWrite;

typedef struct InsertGroup {
    const ApplyTarget *target;
    const ApplyOp *const *inserts;
    size_t count;
} InsertGroup;

static ErrCode insert_group(void *arg, OpCtx *op, Error *err);
static ErrCode write_attempt(void *arg, OpCtx *op, Error *err);
static ErrCode find_document(const ApplyTarget *target, Elem id, RecordId *ret_rid, Doc *ret_doc,
                             Error *err);
static ErrCode document_after(const ApplyTarget *target, const ApplyOp *write, Doc before,
                              Doc *ret_after, Error *err);
static ErrCode change_document(const ApplyTarget *target, RecordId rid, Doc before, Doc after,
                               Error *err);
static ErrCode keep_image(const ApplyTarget *target, const Catalog *catalog, const ApplyOp *write,
                          Doc before, Doc after, Error *err);
static bool has_pre_image(const ApplyTarget *target, const ApplyOp *write, Doc before);
static ErrCode keep_pre_image(const ApplyTarget *target, const Catalog *catalog,
                              const ApplyOp *write, Doc before, int64_t *ret_bytes, Error *err);
static void warn(const ApplyTarget *target, const ApplyOp *write, int id, const char *msg);

void apply_writer_init(ApplyWriter *writer) {
    *writer = (ApplyWriter){0};
    write_scratch_init(&writer->scratch);
    key_builder_init(&writer->key);
}

void apply_writer_done(ApplyWriter *writer) {
    write_scratch_done(&writer->scratch);
    key_builder_done(&writer->key);
    xfree(writer->multikey.rows);
}

ErrCode apply_inserts(const ApplyTarget *target, const ApplyOp *const *inserts, size_t count,
                      Error *err) {
    if (count > 1) {
        InsertGroup group = {target, inserts, count};
        ErrCode rc = op_write_with_retry(target->op, insert_group, &group, err);
        if (rc != ERR_DUPLICATE_KEY)
            return rc;
        error_reset(err); /* one of them already exists: apply them singly */
    }
    for (size_t i = 0; i < count; i++)
        TRY(apply_write(target, inserts[i], err));
    return ERR_OK;
}

ErrCode apply_write(const ApplyTarget *target, const ApplyOp *write, Error *err) {
    ArenaMark mark = arena_mark(&target->op->arena);
    OneWrite one = {target, write};
    ErrCode rc = op_run_with_retry(target->op, write_attempt, &one, err);
    arena_rewind(&target->op->arena, mark);
    return rc;
}

ErrCode apply_find_collection(const Catalog *catalog, const ApplyOp *write, ApplyMode mode,
                              const Collection **ret_coll, Error *err) {
    Ns ns;
    TRY(ns_parse(write->ns, &ns, err));
    /* By UUID: the name may meanwhile belong to a later collection. */
    const Collection *coll =
        write->has_uuid ? catalog_find_uuid(catalog, &write->uuid) : catalog_find(catalog, &ns);
    if (!ns_is_replicated(coll != NULL ? &coll->ns : &ns))
        return error_set(err, ERR_INVALID_NAMESPACE,
                         "oplog entry for \"%s\", which is not replicated", ns.text);
    *ret_coll = coll;
    if (coll != NULL || mode != APPLY_STEADY || write->kind == APPLY_DELETE)
        return ERR_OK;
    char uuid[UUID_TEXT_SIZE] = "none";
    if (write->has_uuid)
        uuid_to_text(&write->uuid, uuid);
    return error_set(err, ERR_NAMESPACE_NOT_FOUND,
                     "oplog entry for collection \"%s\" (UUID: %s), which does not exist", ns.text,
                     uuid);
}

ErrCode apply_write_alone(OpCtx *op, ApplyWriter *writer, const ApplyOp *write, ApplyMode mode,
                          Error *err) {
    Catalog *catalog = catalog_acquire(op_catalog(op));
    const Collection *coll;
    ErrCode rc = apply_find_collection(catalog, write, mode, &coll, err);
    Ns ns = rc == ERR_OK && coll != NULL ? coll->ns : (Ns){0};
    catalog_release(catalog);
    TRY(rc);
    if (ns.size == 0)
        return ERR_OK;
    CLEANUP(access_done) CollAccess access = {0};
    TRY(access_write(op, &ns, apply_is_views(ns_str(&ns)) ? LOCK_X : LOCK_IX, &access, err));
    if (access.coll == NULL)
        return error_set(err, ERR_NAMESPACE_NOT_FOUND, "collection \"%s\" was dropped", ns.text);
    return apply_write(&(ApplyTarget){op, writer, access.coll, mode}, write, err);
}

/* ---- inserts together ---- */

static ErrCode insert_group(void *arg, OpCtx *op, Error *err) {
    InsertGroup *group = arg;
    const ApplyTarget *target = group->target;
    uint64_t ts = 0;
    for (size_t i = 0; i < group->count; i++) {
        const ApplyOp *insert = group->inserts[i];
        if (apply_has_timestamps(target->mode) && insert->ts != ts)
            /* Only when it changes: setting a timestamp costs as much as a small insert. */
            TRY(ru_set_commit_ts(op->ru, insert->ts, err));
        ts = insert->ts;
        TRY(collection_insert(op, target->coll, &insert->o, 1, &target->writer->scratch, err));
    }
    return ERR_OK;
}

/* ---- one write ---- */

static void release_catalog(Catalog **catalog) {
    if (*catalog != NULL)
        catalog_release(*catalog);
}

static ErrCode write_attempt(void *arg, OpCtx *op, Error *err) {
    const ApplyTarget *target = ((OneWrite *)arg)->target;
    const ApplyOp *write = ((OneWrite *)arg)->write;
    CLEANUP(release_catalog) Catalog *catalog = NULL; /* outlives the unit of work */
    CLEANUP(uow_done) UnitOfWork uow = {0};
    TRY(uow_begin(op, &uow, err));
    RecordId rid = RECORD_ID_NONE;
    Doc before, after = DOC_NONE;
    TRY(find_document(target, write->id, &rid, &before, err));
    if (write->kind != APPLY_DELETE)
        TRY(document_after(target, write, before, &after, err));
    if (!doc_is_present(before) && !doc_is_present(after)) {
        if (target->mode == APPLY_STEADY && !target->coll->options.is_capped)
            /* Only a warning: the primary has committed it, and stopping would not bring the
             * document back. Capped collections are exempt: they may have been trimmed. */
            warn(target, write, 2170001, "Applied an oplog entry to a document that is not there");
        return uow_commit(&uow, err);
    }
    if (doc_is_present(before) && write->kind == APPLY_INSERT && target->mode == APPLY_STEADY)
        warn(target, write, 2170002, "Applied an insert to a document that is there already");
    if (apply_has_timestamps(target->mode))
        TRY(ru_set_commit_ts(op->ru, write->ts, err));
    TRY(change_document(target, rid, before, after, err));
    int64_t image_bytes = 0;
    bool is_image_kept = has_pre_image(target, write, before);
    if (UNLIKELY(write->image != SESSION_IMAGE_NONE || is_image_kept))
        catalog = catalog_acquire(op_catalog(op));
    if (UNLIKELY(write->image != SESSION_IMAGE_NONE))
        TRY(keep_image(target, catalog, write, before, after, err));
    if (UNLIKELY(is_image_kept))
        TRY(keep_pre_image(target, catalog, write, before, &image_bytes, err));
    if (UNLIKELY(apply_is_views(ns_str(&target->coll->ns))))
        catalog_stage_view(op, &target->coll->ns, write->id, after);
    TRY(uow_commit(&uow, err));
    if (UNLIKELY(image_bytes > 0))
        preimage_purger_note(op->service->preimages, &target->coll->uuid, write->place.entry_ts,
                             write->place.wall_ms, image_bytes);
    return ERR_OK;
}

static ErrCode find_document(const ApplyTarget *target, Elem id, RecordId *ret_rid, Doc *ret_doc,
                             Error *err) {
    OpCtx *op = target->op;
    const Collection *coll = target->coll;
    KeyBuilder *kb = &target->writer->key;
    *ret_doc = DOC_NONE;
    const IndexDesc *index = collection_id_index(coll);
    bool is_found = true;
    if (index == NULL) {
        clustered_record_id_of_value(id, coll->options.collator, kb, ret_rid);
    } else {
        key_builder_reset(kb, 0);
        key_append_elem(kb, id, index->collator);
        key_append_end(kb, KEY_END_EXACT);
        TRY(ordered_index_find(op, index->store, (Str){(const char *)kb->key.data, kb->key.size},
                               &is_found, ret_rid, NULL, err));
    }
    if (!is_found)
        return ERR_OK;
    return record_read(op, coll->records, *ret_rid, &op->arena, ret_doc, err);
}

/* A replacement without _id keeps the existing one. */
static Doc with_id(Doc doc, Elem id, Arena *arena) {
    if (elem_is_present(doc_get_lit(doc, "_id")))
        return doc;
    DocBuilder b = doc_builder_in_arena_sized(arena, doc_size(doc) + elem_size(id) + 16);
    build_elem_as(&b, STR("_id"), id);
    build_all(&b, doc);
    return doc_builder_end(&b);
}

/* The base of an upsert: of the document key only the _id, since its other fields are named by
 * paths. */
static Doc id_alone(Elem id, Arena *arena) {
    DocBuilder b = doc_builder_in_arena_sized(arena, elem_size(id) + 16);
    build_elem(&b, id);
    return doc_builder_end(&b);
}

/* DOC_NONE: an update of a missing document. */
static ErrCode document_after(const ApplyTarget *target, const ApplyOp *write, Doc before,
                              Doc *ret_after, Error *err) {
    *ret_after = write->o;
    if (write->kind == APPLY_INSERT)
        return ERR_OK;
    *ret_after = DOC_NONE;
    if (!doc_is_present(before) && !write->is_upsert)
        return ERR_OK;
    Arena *arena = &target->op->arena;
    /* A whole document has its _id, a delta never does; fields named $v and diff prove nothing,
     * since a user's document may have them. */
    bool has_id = elem_is_present(doc_get_lit(write->o, "_id"));
    Doc delta = has_id ? DOC_NONE : update_delta_of_entry(write->o);
    Doc after;
    if (has_id)
        after = write->o;
    else if (doc_is_present(delta))
        TRY(update_delta_apply(doc_is_present(before) ? before : id_alone(write->id, arena), delta,
                               arena, &after, err));
    else if (elem_is_present(doc_get_lit(write->o, "$v")))
        return error_set(err, ERR_FAILED_TO_PARSE, "oplog entry: an update of an unknown form");
    else
        after = with_id(write->o, write->id, arena);
    Elem id = doc_get_lit(after, "_id");
    if (!elem_is_present(id) || !elem_equal(id, write->id, target->coll->options.collator))
        return error_set(err, ERR_IMMUTABLE_FIELD,
                         "oplog entry of \"%s\": the update changes the _id",
                         target->coll->ns.text);
    *ret_after = after;
    return ERR_OK;
}

static ErrCode change_document(const ApplyTarget *target, RecordId rid, Doc before, Doc after,
                               Error *err) {
    OpCtx *op = target->op;
    WriteScratch *scratch = &target->writer->scratch;
    if (!doc_is_present(after))
        return collection_delete(op, target->coll, rid, before, scratch, err);
    if (!doc_is_present(before))
        return collection_insert(op, target->coll, &after, 1, scratch, err);
    if (elem_equal_bytes(doc_get_lit(before, "_id"), doc_get_lit(after, "_id")))
        return collection_update(op, target->coll, rid, before, after, scratch, err);
    /* An equal _id of another type: its key in the index has other type bits. */
    TRY(collection_delete(op, target->coll, rid, before, scratch, err));
    return collection_insert(op, target->coll, &after, 1, scratch, err);
}

/* What a retry of the findAndModify will be answered with. Data that are ahead of their entries
 * tell nothing of what was there. */
static ErrCode keep_image(const ApplyTarget *target, const Catalog *catalog, const ApplyOp *write,
                          Doc before, Doc after, Error *err) {
    SessionRow row;
    if (!history_row_of_entry(write->entry, &row))
        return ERR_OK;
    SessionImage image = {.id = row.id,
                          .txn_number = row.txn_number,
                          .ts = write->ts,
                          .kind = write->image,
                          .image = write->image == SESSION_IMAGE_POST ? after : before};
    if (target->mode == APPLY_INITIAL_SYNC) {
        image.image = DOC_NONE;
        image.invalidated_reason = "initial sync";
    }
    return session_image_store(target->op, catalog_find(catalog, &SESSION_IMAGE_NS), &image,
                               &target->writer->scratch, err);
}

/* During an initial sync the data are those of their time only after all of them were copied;
 * images of the time before come from the source. */
static bool has_pre_image(const ApplyTarget *target, const ApplyOp *write, Doc before) {
    return target->coll->options.has_pre_images && !write->is_from_migrate &&
           (write->kind == APPLY_UPDATE || write->kind == APPLY_DELETE) && doc_is_present(before) &&
           (target->mode != APPLY_INITIAL_SYNC || write->ts > target->writer->copied_ts);
}

static ErrCode keep_pre_image(const ApplyTarget *target, const Catalog *catalog,
                              const ApplyOp *write, Doc before, int64_t *ret_bytes, Error *err) {
    PreImage image = {.collection = target->coll->uuid,
                      .ts = write->place.entry_ts,
                      .apply_ops_index = write->place.index,
                      .wall_ms = write->place.wall_ms,
                      .before = before};
    return preimage_store(target->op, catalog_find(catalog, &PREIMAGES_NS), &image,
                          &target->writer->scratch, ret_bytes, err);
}

static void warn(const ApplyTarget *target, const ApplyOp *write, int id, const char *msg) {
    Arena *arena = &target->op->arena;
    char op[2] = {(char)write->kind, '\0'};
    LOG_WARN(LOG_REPL, id, msg, LOG_STR("namespace", target->coll->ns.text), LOG_STR("op", op),
             LOG_STR("_id", shell_text_of_elem(write->id, arena)),
             LOG_I64("seconds", ts_seconds(write->ts)), LOG_I64("counter", (uint32_t)write->ts));
}
