/*
 * validate_lost.c - documents that cannot get their key in a unique index, since another document
 * has it, leave the collection: into local.lost_and_found.<uuid of the collection>.
 *
 * One unit of work inserts there and removes here, so that a document is in one of both. The
 * caller of the validation holds the name of that collection in X; it is made when it is needed.
 */
#include <stdio.h>

#include "index/collection_write.h"
#include "index/validate_internal.h"
#include "storage/recovery_unit.h"
#include "storage/unit_of_work.h"

typedef struct Move {
    Validation *v;
    RecordId rid;
    size_t moved_size; /* set by the attempt that commits */
    bool is_id_taken;  /* a document with its _id is lost already */
} Move;

ErrCode lost_and_found_ns(const Uuid *uuid, Ns *ret_ns, Error *err) {
    char text[sizeof("local.lost_and_found.") + UUID_TEXT_SIZE] = "local.lost_and_found.";
    uuid_to_text(uuid, text + strlen(text));
    return ns_parse(str_from(text), ret_ns, err);
}

/* Leaves v->lost NULL where the caller has not provided for it. */
static ErrCode ensure_lost_and_found(Validation *v, Error *err) {
    OpCtx *op = v->access->op;
    if (v->lost != NULL || v->options->ensure_collection == NULL)
        return ERR_OK;
    Ns ns;
    TRY(lost_and_found_ns(&v->access->coll->uuid, &ns, err));
    if (!lock_is_held(op, ns_resource(&ns), LOCK_X))
        return ERR_OK;
    TRY(v->options->ensure_collection(op, &ns, err));
    v->lost_catalog = catalog_acquire(op_catalog(op));
    v->lost = catalog_find(v->lost_catalog, &ns);
    return ERR_OK;
}

/* A document that cannot stand there by its own _id is kept inside of another one. */
static Doc in_new_doc(OpCtx *op, Doc doc) {
    DocBuilder b = doc_builder_in_arena_sized(&op->arena, doc_size(doc) + 64);
    Oid oid = oid_new();
    build_oid(&b, "_id", &oid);
    build_doc(&b, "document", doc);
    return doc_builder_end(&b);
}

static bool can_be_id(Elem id) {
    return elem_is_present(id) && elem_type(id) != BT_ARRAY && elem_type(id) != BT_REGEX &&
           elem_type(id) != BT_UNDEFINED;
}

/* Keys that the document does not have are the reason for being here; one of another document in
 * its place must stay. */
static ErrCode remove_own_keys(Validation *v, OpCtx *op, RecordId rid, Doc doc, KeySet *keys,
                               Error *err) {
    const Collection *coll = v->access->coll;
    for (uint32_t i = 0; i < coll->index_count; i++) {
        const IndexDesc *index = coll->indexes[i];
        if (index->store == NULL)
            continue;
        if (index_keys_of(index, doc, keys, err) != ERR_OK) {
            error_reset(err); /* then it has none */
            continue;
        }
        for (uint32_t k = 0; k < keys->count; k++) {
            IndexKey key = key_set_get(keys, k);
            bool is_ours = true;
            if (ordered_index_format(index->store) == INDEX_ID) {
                RecordId owner;
                TRY(ordered_index_find(op, index->store, key.key, &is_ours, &owner, NULL, err));
                is_ours = is_ours && record_id_compare(owner, rid) == 0;
            }
            bool is_found;
            if (is_ours)
                TRY(ordered_index_remove(op, index->store, key, rid, &is_found, err));
        }
    }
    return ERR_OK;
}

static ErrCode move_record(void *arg, OpCtx *op, Error *err) {
    Move *move = arg;
    Validation *v = move->v;
    CLEANUP(write_scratch_done) WriteScratch scratch;
    write_scratch_init(&scratch);
    CLEANUP(uow_done) UnitOfWork uow = {0};
    TRY(uow_begin(op, &uow, err));
    Doc doc;
    TRY(record_read(op, v->access->coll->records, move->rid, &op->arena, &doc, err));
    if (!doc_is_present(doc))
        return ERR_OK;
    TRY(remove_own_keys(v, op, move->rid, doc, &scratch.before, err));
    TRY(record_delete(op, v->access->coll->records, move->rid, doc_size(doc), err));
    bool is_wrapped = move->is_id_taken || !can_be_id(doc_get_lit(doc, "_id"));
    Doc kept = is_wrapped ? in_new_doc(op, doc) : doc;
    TRY(collection_insert(op, v->lost, &kept, 1, &scratch, err));
    TRY(uow_commit(&uow, err));
    move->moved_size = doc_size(doc);
    return ERR_OK;
}

ErrCode validate_move_to_lost(Validation *v, RecordId rid, bool *ret_is_moved, Error *err) {
    *ret_is_moved = false;
    TRY(ensure_lost_and_found(v, err));
    if (v->lost == NULL)
        return ERR_OK;
    OpCtx *op = v->access->op;
    ArenaMark mark = arena_mark(&op->arena);
    Move move = {.v = v, .rid = rid};
    CLEANUP(op_mode_restore) OpModeScope scope = op_mode_scope(op);
    op->mode.is_validation_bypassed = true; /* whatever it is, it must not be lost */
    ErrCode rc = op_run_with_retry(op, move_record, &move, err);
    if (rc == ERR_DUPLICATE_KEY) {
        error_reset(err);
        move.is_id_taken = true;
        rc = op_run_with_retry(op, move_record, &move, err);
    }
    arena_rewind(&op->arena, mark);
    *ret_is_moved = rc == ERR_OK && move.moved_size > 0;
    if (*ret_is_moved) {
        v->moved_records++;
        v->bytes -= (int64_t)move.moved_size;
    }
    return rc;
}
