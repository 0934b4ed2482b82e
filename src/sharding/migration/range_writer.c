#include "sharding/migration/range_writer.h"

#include "bson/json.h"
#include "index/lookup.h"
#include "storage/unit_of_work.h"

void range_writer_init(RangeWriter *writer, OpCtx *op, const Move *move) {
    writer->op = op;
    writer->move = move;
    writer->more = 0;
    range_keys_init(&writer->keys, move->key, move->min, move->max);
    write_scratch_init(&writer->scratch);
    arena_init(&writer->arena, 16 * 1024);
}

void range_writer_done(RangeWriter *writer) {
    range_keys_done(&writer->keys);
    write_scratch_done(&writer->scratch);
    arena_done(&writer->arena);
}

static ErrCode open_collection(RangeWriter *writer, CollAccess *ret_access, Error *err) {
    const Move *move = writer->move;
    TRY(access_write(writer->op, &move->ns, LOCK_IX, ret_access, err));
    if (ret_access->coll == NULL || !uuid_equal(&ret_access->coll->uuid, &move->uuid))
        return error_set(err, ERR_NAMESPACE_NOT_FOUND, "the collection %s was dropped",
                         move->ns.text);
    return ERR_OK;
}

/* One change of one document, in a unit of its own. */
typedef struct Put {
    RangeWriter *writer;
    const Collection *coll;
    Elem id;
    Doc doc;      /* DOC_NONE: it is to be deleted */
    int64_t more; /* documents that there are after it */
} Put;

static ErrCode put_in_unit(void *arg, OpCtx *op, Error *err) {
    Put *put = arg;
    RangeWriter *writer = put->writer;
    arena_reset(&writer->arena);
    CLEANUP(key_builder_done) KeyBuilder kb;
    key_builder_init(&kb);
    bool is_found;
    RecordId rid;
    Doc known = DOC_NONE;
    TRY(lookup_record_id(op, put->coll, put->id, &kb, &is_found, &rid, err));
    if (is_found)
        TRY(record_read(op, put->coll->records, rid, &writer->arena, &known, err));
    bool is_delete = !doc_is_present(put->doc);
    put->more = 0;
    if (doc_is_present(known) && !range_has_doc(&writer->keys, known)) {
        /* A document of another range that has the same _id: it is not part of the move. */
        if (is_delete)
            return ERR_OK;
        return error_set(err, ERR_DUPLICATE_KEY,
                         "this shard has another document of %s with {_id: %s}, outside of the "
                         "range: an _id must be unique in the whole collection",
                         put->coll->ns.text, shell_text_of_elem(put->id, &op->arena));
    }
    if (!doc_is_present(known) && is_delete)
        return ERR_OK;
    put->more = is_delete ? -1 : !doc_is_present(known);
    if (is_delete)
        TRY(collection_delete(op, put->coll, rid, known, &writer->scratch, err));
    else if (!doc_is_present(known))
        TRY(collection_insert(op, put->coll, &put->doc, 1, &writer->scratch, err));
    else if (!doc_equal_bytes(known, put->doc))
        TRY(collection_replace(op, put->coll, rid, known, put->doc, &writer->scratch, err));
    return ERR_OK;
}

static ErrCode put_document(RangeWriter *writer, const Collection *coll, Elem id, Doc doc,
                            Error *err) {
    Put put = {writer, coll, id, doc, 0};
    TRY(op_write_with_retry(writer->op, put_in_unit, &put, err));
    writer->more += put.more;
    return ERR_OK;
}

ErrCode range_writer_put(RangeWriter *writer, Elem id, Doc doc, Error *err) {
    CLEANUP(access_done) CollAccess access = {0};
    TRY(open_collection(writer, &access, err));
    return put_document(writer, access.coll, id, doc, err);
}

ErrCode range_writer_insert(RangeWriter *writer, const Doc *docs, uint32_t count, Error *err) {
    {
        CLEANUP(access_done) CollAccess access = {0};
        TRY(open_collection(writer, &access, err));
        ErrCode rc =
            collection_insert_unit(writer->op, access.coll, docs, count, &writer->scratch, err);
        if (rc != ERR_DUPLICATE_KEY)
            return rc;
        error_reset(err);
    }
    for (uint32_t i = 0; i < count; i++)
        TRY(range_writer_put(writer, doc_get_lit(docs[i], "_id"), docs[i], err));
    return ERR_OK;
}
