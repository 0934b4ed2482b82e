#include "index/lookup.h"

#include "bson/compare.h"

typedef struct IdScan {
    Elem id;
    const Collator *collator;
    bool *is_found;
    RecordId *rid;
} IdScan;

static ErrCode compare_id(void *arg, RecordId rid, Str data, bool *is_over, Error *err) {
    (void)err;
    const IdScan *scan = arg;
    Doc doc = {(const uint8_t *)data.data};
    if (!elem_equal(doc_get_lit(doc, "_id"), scan->id, scan->collator))
        return ERR_OK;
    *scan->rid = rid;
    *scan->is_found = *is_over = true;
    return ERR_OK;
}

ErrCode lookup_record_id(OpCtx *op, const Collection *coll, Elem id, KeyBuilder *kb,
                         bool *ret_found, RecordId *ret_rid, Error *err) {
    *ret_found = coll->options.is_clustered;
    if (coll->options.is_clustered) {
        clustered_record_id_of_value(id, coll->options.collator, kb, ret_rid);
        return ERR_OK;
    }
    const IndexDesc *index = collection_id_index(coll);
    if (index == NULL && !coll->options.is_without_id_index) /* the oplog */
        return ERR_OK;
    if (index == NULL)
        return record_store_each(op, coll->records, /* is_forward= */ true, compare_id,
                                 &(IdScan){id, coll->options.collator, ret_found, ret_rid}, err);
    key_builder_reset(kb, 0);
    key_append_elem(kb, id, index->collator);
    key_append_end(kb, KEY_END_EXACT);
    return ordered_index_find(op, index->store, (Str){(const char *)kb->key.data, kb->key.size},
                              ret_found, ret_rid, NULL, err);
}

ErrCode lookup_document(OpCtx *op, const Collection *coll, Elem id, Arena *arena, Doc *ret_doc,
                        Error *err) {
    *ret_doc = DOC_NONE;
    KeyBuilder kb;
    key_builder_init(&kb);
    bool is_found;
    RecordId rid;
    ErrCode rc = lookup_record_id(op, coll, id, &kb, &is_found, &rid, err);
    if (rc == ERR_OK && is_found)
        rc = record_read(op, coll->records, rid, arena, ret_doc, err);
    key_builder_done(&kb);
    return rc;
}
