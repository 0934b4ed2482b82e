/*
 * create.c - new collections.
 *
 *     tables created | catalog entry and oplog entry committed in one unit of work
 *
 * Crash in between: unreferenced tables, dropped by the next start (catalog/reconcile.c).
 */
#include <string.h>

#include "base/alloc.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "bson/builder.h"
#include "bson/compare.h"
#include "ddl/ddl_internal.h"
#include "index/spec.h"
#include "storage/engine.h"

static ErrCode make_tables(OpCtx *op, Collection *coll, bool has_v1_id_index, Error *err);

typedef struct CreateArgs {
    const Ns *ns;
    Doc options;
    const Uuid *uuid;
    bool is_existing_fine;
    bool has_v1_id_index;
} CreateArgs;

static ErrCode commit_create(OpCtx *op, Collection *coll, Error *err) {
    CLEANUP(uow_done) UnitOfWork uow = {0};
    TRY(uow_begin(op, &uow, err));
    if (op->txn != NULL && FAILPOINT(CREATE_CONFLICT_IN_TXN))
        return error_set(err, ERR_WRITE_CONFLICT, "a failpoint stands for a write conflict");
    TRY(ddl_observe(op, &coll->ns, &coll->uuid, ddl_entry_create(op, coll), DOC_NONE, err));
    TRY(catalog_stage_create(op, collection_ref(coll), err));
    TRY(uow_commit(&uow, err));
    if (op->txn == NULL) /* else it is there once the transaction commits */
        LOG_INFO(LOG_STORAGE, 20320, "Collection created", LOG_STR("namespace", coll->ns.text));
    failpoint_hit(FP_COLL_CREATED_COMMIT);
    return ERR_OK;
}

static ErrCode create_attempt(void *arg, OpCtx *op, Error *err) {
    CreateArgs *args = arg;
    CLEANUP(access_done) CollAccess access = {0};
    TRY(access_create(op, args->ns, &access, err));
    if (access.coll != NULL && args->is_existing_fine)
        return ERR_OK;
    if (access.coll != NULL) {
        /* Repeating a create with the same options is idempotent; other options are a conflict. */
        if (op->txn == NULL && doc_compare(access.coll->options.doc, args->options, NULL) == 0)
            return ERR_OK;
        if (op->txn != NULL)
            return error_set(err, ERR_NAMESPACE_EXISTS, "Collection already exists. NS: %s",
                             args->ns->text);
        return error_set(err, ERR_NAMESPACE_EXISTS,
                         "namespace %s already exists, but with different options", args->ns->text);
    }
    if (access.view != NULL && args->is_existing_fine)
        return error_set(err, ERR_COMMAND_NOT_SUPPORTED_ON_VIEW,
                         "Namespace %s is a view, not a collection", args->ns->text);
    if (access.view != NULL)
        return error_set(err, ERR_NAMESPACE_EXISTS, "A view already exists. NS: %s",
                         args->ns->text);
    /* Names that differ only in case would share files on some file systems. */
    TRY(ddl_check_db_case(op, args->ns, err));
    Collection *coll;
    TRY(ddl_build_collection(op, args->ns, args->options, args->uuid, args->has_v1_id_index, &coll,
                             err));
    ErrCode rc = commit_create(op, coll, err);
    if (rc != ERR_OK)
        ddl_discard_collection(op, coll);
    collection_unref(coll);
    return rc;
}

ErrCode ddl_create_collection(OpCtx *op, const Ns *ns, Doc options, const Uuid *uuid, Error *err) {
    TRY(ns_check_creatable(ns, err));
    CollectionOptions parsed; /* errors are reported in terms of the options as given */
    TRY(collection_options_parse(options, &op->arena, &parsed, err));
    options = collection_options_normalize(&parsed, &op->arena);
    CreateArgs args = {
        .ns = ns, .options = options, .uuid = uuid, .has_v1_id_index = parsed.has_v1_id_index};
    return op_run_with_retry(op, create_attempt, &args, err);
}

ErrCode ddl_ensure_collection(OpCtx *op, const Ns *ns, Error *err) {
    TRY(ns_check_creatable(ns, err));
    CreateArgs args = {.ns = ns, .options = DOC_EMPTY, .is_existing_fine = true};
    return op_run_with_retry(op, create_attempt, &args, err);
}

ErrCode ddl_ensure_clustered(OpCtx *op, const Ns *ns, Error *err) {
    Catalog *catalog = catalog_acquire(op_catalog(op));
    bool is_there = catalog_find(catalog, ns) != NULL;
    catalog_release(catalog);
    if (is_there)
        return ERR_OK;
    DocBuilder b = doc_builder_in_arena(&op->arena);
    size_t index = build_open_doc(&b, "clusteredIndex");
    size_t key = build_open_doc(&b, "key");
    build_i32(&b, "_id", 1);
    build_close(&b, key);
    build_bool(&b, "unique", true);
    build_close(&b, index);
    return ddl_create_collection(op, ns, doc_builder_end(&b), NULL, err);
}

ErrCode ddl_build_collection(OpCtx *op, const Ns *ns, Doc options, const Uuid *uuid,
                             bool has_v1_id_index, Collection **ret_coll, Error *err) {
    if (!op->mode.uses_reserve)
        TRY(storage_check_disk(op_storage(op), err));
    Collection *coll = NEW(Collection);
    coll->refs = 1;
    arena_init(&coll->arena, 1024);
    coll->ns = *ns;
    coll->uuid = uuid != NULL ? *uuid : uuid_new();
    ErrCode rc = collection_set_options(coll, options, err);
    if (rc == ERR_OK)
        rc = make_tables(op, coll, has_v1_id_index, err);
    if (rc == ERR_OK)
        rc = catalog_new_id(op, &coll->catalog_id, err);
    if (rc != ERR_OK) {
        ddl_discard_collection(op, coll);
        collection_unref(coll);
        return rc;
    }
    failpoint_hit(FP_COLL_CREATED_TABLE);
    *ret_coll = coll;
    return ERR_OK;
}

static ErrCode make_tables(OpCtx *op, Collection *coll, bool has_v1_id_index, Error *err) {
    StorageEngine *engine = op_storage(op);
    bool is_clustered = coll->options.is_clustered;
    CLEANUP(xfree_ptr) char *ident = storage_new_ident(engine, "collection");
    const char *log_config = storage_log_config(engine, ns_is_replicated(&coll->ns));
    TRY(record_store_create(engine, ident, is_clustered, log_config, &coll->records, err));
    if (ns_is_oplog(&coll->ns))
        record_store_set_oplog(coll->records);
    if (is_clustered || ns_is_oplog(&coll->ns)) /* both are looked up by record id */
        return ERR_OK;
    if (coll->options.is_without_id_index)
        return ERR_OK;
    IndexDesc *id_index;
    Doc spec = index_id_spec(coll->options.collator, has_v1_id_index, &op->arena);
    TRY(index_desc_create(engine, &coll->ns, spec, is_clustered, /* is_ready= */ true, &id_index,
                          err));
    collection_add_index(coll, id_index);
    return ERR_OK;
}

void ddl_discard_collection(OpCtx *op, Collection *coll) {
    StorageEngine *engine = op_storage(op);
    if (coll->records != NULL)
        storage_discard_table(engine, record_store_ident(coll->records));
    for (uint32_t i = 0; i < coll->index_count; i++)
        storage_discard_table(engine, coll->indexes[i]->ident);
}

ErrCode ddl_check_db_case(OpCtx *op, const Ns *ns, Error *err) {
    Catalog *catalog = catalog_acquire(op_catalog(op));
    char present[64];
    bool is_clash = !catalog_has_db(catalog, ns_db(ns)) &&
                    catalog_find_db_ignoring_case(catalog, ns_db(ns), present);
    catalog_release(catalog);
    if (is_clash)
        return error_set(
            err, ERR_DATABASE_DIFFER_CASE,
            "db already exists with different case already have: [%s] trying to create "
            "[%.*s]",
            present, (int)ns->db_size, ns->text);
    return ERR_OK;
}

Doc ddl_options_with(Doc options, const char *const *names, const Elem *values, size_t count,
                     Arena *arena) {
    DocBuilder b = doc_builder_in_arena(arena);
    DocIter iter = doc_iter(options);
    Elem elem;
    while (doc_iter_next(&iter, &elem)) {
        bool is_replaced = false;
        for (size_t i = 0; i < count; i++)
            is_replaced |= elem_is_present(values[i]) && strcmp(elem_name(elem), names[i]) == 0;
        if (!is_replaced)
            build_elem(&b, elem);
    }
    for (size_t i = 0; i < count; i++)
        if (elem_is_present(values[i]))
            build_elem_as(&b, str_from(names[i]), values[i]);
    return doc_builder_end(&b);
}
