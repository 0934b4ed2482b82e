/*
 * reindex.c - makes all indexes of a collection anew, on a standalone node.
 *
 * The collection is locked in X from the first step to the last. The new tables are filled in small
 * units of work; one more puts them into the catalog in place of the old ones, whose tables are
 * dropped when nobody reads them any more. A crash before it leaves tables that no entry names,
 * which the next start drops; a failure leaves the indexes as they were.
 */
#include "base/alloc.h"
#include "ddl/ddl_internal.h"
#include "index/collection_write.h"
#include "index/key_gen.h"
#include "index/side_writes.h"
#include "storage/engine.h"
#include "storage/recovery_unit.h"

enum {
    REINDEX_UNIT_BYTES = 1024 * 1024, /* of documents whose keys one unit of work inserts */
};

typedef struct Reindex {
    const Collection *coll;
    IndexDesc *made[COLLECTION_INDEXES_MAX];
    uint32_t made_count;
    bool is_installed;
    KeySet keys;
    /* Everything up to and with this record has its keys. */
    bool has_position;
    int64_t position_num;
    Buffer position_str; /* of clustered collections */
    /* Of the present unit of work. */
    RecordId reached;
    Buffer reached_str;
    bool is_any;
} Reindex;

static bool is_unused(void *arg) {
    return !ordered_index_is_shared(arg);
}
static void release_index(void *arg) {
    ordered_index_unref(arg);
}

static void reindex_done(Reindex *r, OpCtx *op) {
    for (uint32_t i = 0; i < r->made_count; i++) {
        IndexDesc *index = r->made[i];
        if (!r->is_installed && index->store != NULL)
            storage_drop_later(op_storage(op), index->ident, is_unused, release_index,
                               ordered_index_ref(index->store));
        index_desc_unref(index);
    }
    key_set_done(&r->keys);
    buffer_done(&r->position_str);
    buffer_done(&r->reached_str);
}

static ErrCode add_keys(Reindex *r, OpCtx *op, const IndexDesc *index, RecordId rid, Doc doc,
                        Error *err) {
    TRY(index_keys_of(index, doc, &r->keys, err));
    index_note_multikey(index, &r->keys);
    for (uint32_t k = 0; k < r->keys.count; k++) {
        bool is_duplicate;
        IndexKey key = key_set_get(&r->keys, k);
        TRY(ordered_index_insert(op, index->store, key, rid, index->is_prepare_unique,
                                 &is_duplicate, err));
        if (is_duplicate)
            return duplicate_key_error(r->coll, index, key, err);
    }
    return ERR_OK;
}

static ErrCode fill_unit(void *arg, OpCtx *op, Error *err) {
    Reindex *r = arg;
    r->is_any = false;
    CLEANUP(record_cursor_done) RecordCursor cursor = {0};
    TRY(record_cursor_open(op, r->coll->records, /* is_forward= */ true, &cursor, err));
    if (r->has_position) {
        RecordId last = r->coll->options.is_clustered
                            ? (RecordId){0, r->position_str.data, (uint32_t)r->position_str.size}
                            : record_id_num(r->position_num);
        TRY(record_cursor_seek_after(&cursor, last, err));
    }
    for (size_t bytes = 0; bytes < REINDEX_UNIT_BYTES;) {
        bool is_found;
        RecordId rid;
        Str data;
        TRY(record_cursor_next(&cursor, &is_found, &rid, &data, err));
        if (!is_found)
            return ERR_OK;
        for (uint32_t i = 0; i < r->made_count; i++)
            TRY(add_keys(r, op, r->made[i], rid, (Doc){(const uint8_t *)data.data}, err));
        bytes += data.size;
        r->is_any = true;
        r->reached = rid;
        if (rid.str != NULL) {
            buffer_clear(&r->reached_str);
            buffer_append(&r->reached_str, rid.str, rid.str_size);
        }
    }
    return ERR_OK;
}

static ErrCode fill(Reindex *r, OpCtx *op, Error *err) {
    for (;;) {
        TRY(op_check_interrupt_slow(op, err));
        TRY(storage_check_disk(op_storage(op), err));
        TRY(op_write_with_retry(op, fill_unit, r, err));
        if (!r->is_any)
            return ERR_OK;
        r->has_position = true;
        r->position_num = r->reached.num;
        buffer_clear(&r->position_str);
        buffer_append(&r->position_str, r->reached_str.data, r->reached_str.size);
    }
}

static ErrCode install(Reindex *r, OpCtx *op, Error *err) {
    Collection *changed = collection_clone(r->coll);
    CLEANUP(uow_done) UnitOfWork uow = {0};
    ErrCode rc = uow_begin(op, &uow, err);
    if (rc != ERR_OK) {
        collection_unref(changed);
        return rc;
    }
    for (uint32_t i = r->coll->index_count; i-- > 0;) {
        catalog_drop_index_table_on_commit(op, r->coll->indexes[i]);
        collection_remove_index(changed, i);
    }
    for (uint32_t i = 0; i < r->made_count; i++)
        collection_add_index(changed, index_desc_ref(r->made[i]));
    TRY(catalog_stage_replace(op, r->coll, changed, err));
    TRY(uow_commit(&uow, err));
    r->is_installed = true;
    for (uint32_t i = 0; i < r->made_count; i++)
        ddl_note_multikey_persisted(r->made[i]);
    return ERR_OK;
}

static ErrCode run(Reindex *r, OpCtx *op, Error *err) {
    TRY(ddl_check_no_build(r->coll, err));
    for (uint32_t i = 0; i < r->coll->index_count; i++) {
        TRY(index_desc_create(op_storage(op), &r->coll->ns, r->coll->indexes[i]->spec,
                              r->coll->options.is_clustered, /* is_ready= */ true, &r->made[i],
                              err));
        r->made_count++;
    }
    ru_abandon_snapshot(op->ru);
    TRY(fill(r, op, err));
    return install(r, op, err);
}

ErrCode ddl_reindex(OpCtx *op, const Ns *ns, Doc *ret_specs, uint32_t *ret_count, Error *err) {
    CLEANUP(access_done) CollAccess access = {0};
    TRY(access_write(op, ns, LOCK_X, &access, err));
    if (access.view != NULL)
        return error_set(err, ERR_COMMAND_NOT_SUPPORTED_ON_VIEW,
                         "\"%s\" is a view: it has no indexes", ns->text);
    if (access.coll == NULL)
        return error_set(err, ERR_NAMESPACE_NOT_FOUND, "collection \"%s\" does not exist",
                         ns->text);
    Reindex r = {.coll = access.coll};
    key_set_init(&r.keys);
    buffer_init(&r.position_str, SIZE_MAX);
    buffer_init(&r.reached_str, SIZE_MAX);
    *ret_count = access.coll->index_count;
    DocBuilder b = doc_builder_in_arena(&op->arena);
    for (uint32_t i = 0; i < access.coll->index_count; i++) {
        char name[INDEX_NAME_SIZE];
        build_doc(&b, index_name(i, name).data, access.coll->indexes[i]->spec);
    }
    *ret_specs = doc_builder_end(&b);
    ErrCode rc = run(&r, op, err);
    reindex_done(&r, op);
    return rc;
}
