/*
 * rename.c - renameCollection, within a database and across, and convertToCapped.
 *
 * Within a database a rename is one catalog change (with dropTarget: two, in the same unit of
 * work). Across databases the documents are copied into fresh tables that no catalog entry
 * references yet; one unit of work then drops the source (and an old target) and creates the new
 * collection on those tables:
 *
 *     tables filled | source dropped, copy created
 *
 * Crash before the last step: the source is untouched, and the next start finds the tables
 * unreferenced and drops them.
 *
 * Such tables cannot be described in the oplog, so a replica set does it differently
 * (rename_by_steps.c).
 */
#include <string.h>

#include "base/alloc.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "bson/builder.h"
#include "ddl/ddl_internal.h"
#include "index/collection_write.h"
#include "storage/engine.h"
#include "storage/global_lock.h"
#include "storage/recovery_unit.h"

enum {
    /* Bounded units keep the cache free; the copy as a whole needs no transaction, since nothing
     * references it yet. */
    COPY_DOCS_PER_UNIT = 500,
    COPY_BYTES_PER_UNIT = 16 * 1024 * 1024,
    COPY_BYTES_PER_CAPPED = 1024 * 1024,
};

static ErrCode rename_collection(OpCtx *op, RenameArgs *args, Error *err);
static ErrCode rename_here(void *arg, OpCtx *op, Error *err);
static ErrCode rename_across(void *arg, OpCtx *op, Error *err);
static ErrCode copy_collection(OpCtx *op, const Collection *from, const Ns *ns, Doc options,
                               int64_t skip_bytes, Collection **ret_copy, Error *err);
static ErrCode swap_in(OpCtx *op, const Collection *source, const Collection *target,
                       Collection *copy, const Ns *to, Error *err);

ErrCode ddl_rename(OpCtx *op, const Ns *from, const Ns *to, bool is_drop_target, Error *err) {
    RenameArgs args = {.from = from, .to = to, .is_drop_target = is_drop_target};
    return rename_collection(op, &args, err);
}

ErrCode ddl_rename_as_temp(OpCtx *op, const Ns *from, const Ns *to, bool is_drop_target,
                           Error *err) {
    RenameArgs args = {
        .from = from, .to = to, .is_drop_target = is_drop_target, .stays_temp = true};
    return rename_collection(op, &args, err);
}

ErrCode ddl_rename_if(OpCtx *op, const Ns *from, const Ns *to, RenameCheck check, Error *err) {
    RenameArgs args = {.from = from, .to = to, .is_drop_target = true, .check = check};
    return rename_collection(op, &args, err);
}

static ErrCode rename_collection(OpCtx *op, RenameArgs *args, Error *err) {
    const Ns *from = args->from, *to = args->to;
    if (ns_equal(from, to))
        return error_set(err, ERR_ILLEGAL_OPERATION, "Can't rename a collection to itself");
    if (ns_is_system(from) != ns_is_system(to))
        return error_set(err, ERR_ILLEGAL_OPERATION,
                         "error with target namespace: cannot rename "
                         "between system and user collections");
    TRY(ns_check_creatable(to, err));
    bool is_same_db = str_equal(ns_db(from), ns_db(to));
    if (!is_same_db && storage_is_replicated(op_storage(op)) &&
        ns_is_replicated(from) != ns_is_replicated(to))
        return error_set(err, ERR_ILLEGAL_OPERATION,
                         "Cannot rename collections between a replicated and an unreplicated "
                         "database");
    if (!is_same_db && ddl_is_told(op, to))
        TRY(ddl_rename_by_steps(op, args, err));
    else
        TRY(op_run_with_retry(op, is_same_db ? rename_here : rename_across, args, err));
    LOG_INFO(LOG_STORAGE, 20400, "Collection renamed", LOG_STR("from", from->text),
             LOG_STR("to", to->text));
    return ERR_OK;
}

ErrCode ddl_check_rename(OpCtx *op, const Catalog *catalog, const RenameArgs *args,
                         const Collection **ret_source, const Collection **ret_target, Error *err) {
    *ret_source = catalog_find(catalog, args->from);
    *ret_target = catalog_find(catalog, args->to);
    TRY(access_check_expected(op, catalog, args->from, *ret_source, err));
    TRY(access_check_expected(op, catalog, args->to, *ret_target, err));
    if (*ret_source == NULL && catalog_find_view(catalog, args->from) != NULL)
        return error_set(err, ERR_COMMAND_NOT_SUPPORTED_ON_VIEW, "cannot rename view: %s",
                         args->from->text);
    if (*ret_source == NULL)
        return error_set(err, ERR_NAMESPACE_NOT_FOUND, "Source collection %s does not exist",
                         args->from->text);
    if (catalog_find_view(catalog, args->to) != NULL)
        return error_set(err, ERR_NAMESPACE_EXISTS, "a view already exists with that name: %s",
                         args->to->text);
    if (*ret_target != NULL && !args->is_drop_target)
        return error_set(err, ERR_NAMESPACE_EXISTS, "target namespace exists");
    TRY(ddl_check_no_build(*ret_source, err));
    TRY(ddl_check_no_build(*ret_target, err));
    return args->check.check != NULL ? args->check.check(args->check.arg, *ret_target, err)
                                     : ERR_OK;
}

/* A renamed collection is no longer temporary. */
static ErrCode keep_for_good(OpCtx *op, Collection *renamed, Error *err) {
    if (!renamed->options.is_temp)
        return ERR_OK;
    return collection_set_options(
        renamed, ddl_options_without(renamed->options.doc, "temp", &op->arena), err);
}

static ErrCode rename_locked(OpCtx *op, const RenameArgs *args, const Catalog *catalog,
                             Error *err) {
    const Collection *source, *target;
    TRY(ddl_check_rename(op, catalog, args, &source, &target, err));
    Collection *renamed = collection_clone(source);
    renamed->ns = *args->to;
    ErrCode rc = args->stays_temp ? ERR_OK : keep_for_good(op, renamed, err);
    if (rc != ERR_OK) {
        collection_unref(renamed);
        return rc;
    }
    CLEANUP(uow_done) UnitOfWork uow = {0};
    TRY(uow_begin(op, &uow, err));
    rc = ddl_observe(op, args->from, &source->uuid,
                     ddl_entry_rename(op, args, target != NULL ? &target->uuid : NULL),
                     target != NULL ? ddl_entry_num_records(op, target) : DOC_NONE, err);
    if (rc == ERR_OK && target != NULL)
        rc = catalog_stage_drop(op, target, err);
    if (rc != ERR_OK) {
        collection_unref(renamed);
        return rc;
    }
    TRY(catalog_stage_replace(op, source, renamed, err));
    TRY(uow_commit(&uow, err));
    failpoint_hit(FP_RENAME_COMMIT);
    return ERR_OK;
}

static ErrCode rename_here(void *arg, OpCtx *op, Error *err) {
    RenameArgs *args = arg;
    TRY(ddl_lock_two(op, args->from, args->to, err));
    Catalog *catalog = catalog_acquire(op_catalog(op));
    ErrCode rc = rename_locked(op, args, catalog, err);
    catalog_release(catalog);
    ddl_unlock_two(op, args->from, args->to);
    return rc;
}

ErrCode ddl_rename_here(OpCtx *op, const RenameArgs *args, Error *err) {
    return op_run_with_retry(op, rename_here, (void *)args, err);
}

/* The source is locked in X during the copy, so that exactly what was copied is dropped. */
static ErrCode rename_across(void *arg, OpCtx *op, Error *err) {
    RenameArgs *args = arg;
    TRY(ddl_check_db_case(op, args->to, err));
    TRY(ddl_lock_two(op, args->from, args->to, err));
    Catalog *catalog = catalog_acquire(op_catalog(op));
    const Collection *source, *target;
    Collection *copy = NULL;
    ErrCode rc = ddl_check_rename(op, catalog, args, &source, &target, err);
    if (rc == ERR_OK)
        rc = copy_collection(op, source, args->to, source->options.doc, /* skip_bytes= */ 0, &copy,
                             err);
    if (rc == ERR_OK) {
        failpoint_hit(FP_RENAME_COPIED);
        rc = swap_in(op, source, target, copy, args->to, err);
        if (rc != ERR_OK)
            ddl_discard_collection(op, copy);
        collection_unref(copy);
    }
    catalog_release(catalog);
    ddl_unlock_two(op, args->from, args->to);
    return rc;
}

/* One unit of work: source and old target, unless NULL, are dropped, the copy is created. */
static ErrCode swap_in(OpCtx *op, const Collection *source, const Collection *target,
                       Collection *copy, const Ns *to, Error *err) {
    CLEANUP(uow_done) UnitOfWork uow = {0};
    TRY(uow_begin(op, &uow, err));
    TRY(ddl_observe(op, to, &copy->uuid, ddl_entry_create(op, copy), DOC_NONE, err));
    if (target != NULL)
        TRY(catalog_stage_drop(op, target, err));
    if (source != target) /* convertToCapped and its kin have one, or none */
        TRY(catalog_stage_drop(op, source, err));
    TRY(catalog_stage_create(op, collection_ref(copy), err));
    TRY(uow_commit(&uow, err));
    failpoint_hit(FP_RENAME_COMMIT);
    return ERR_OK;
}

/* A copy with all indexes whose tables exist but which is not in the catalog yet: a crash leaves
 * only unreferenced tables. */
static ErrCode copy_collection(OpCtx *op, const Collection *from, const Ns *ns, Doc options,
                               int64_t skip_bytes, Collection **ret_copy, Error *err) {
    StorageEngine *engine = op_storage(op);
    Collection *copy;
    TRY(ddl_build_collection(op, ns, options, /* uuid= */ NULL, /* has_v1_id_index= */ false, &copy,
                             err));
    ErrCode rc = ERR_OK;
    for (uint32_t i = 0; rc == ERR_OK && i < from->index_count; i++) {
        const IndexDesc *index = from->indexes[i];
        if (index->is_id || index->store == NULL)
            continue;
        IndexDesc *made;
        rc = index_desc_create(engine, ns, index->spec, copy->options.is_clustered,
                               /* is_ready= */ true, &made, err);
        if (rc == ERR_OK) {
            /* The array paths of the source are a superset of those of the copy. */
            for (uint32_t f = 0; f < index->field_count; f++) {
                atomic_store(&made->state->multikey_paths[f], index_multikey_paths(index, f));
                atomic_store(&made->state->persisted_paths[f], index_multikey_paths(index, f));
            }
            atomic_store(&made->state->is_multikey, index_is_multikey(index));
            atomic_store(&made->state->is_multikey_persisted, index_is_multikey(index));
            collection_add_index(copy, made);
        }
    }
    if (rc == ERR_OK)
        rc = ddl_copy_documents(op, from, copy, skip_bytes, err);
    if (rc != ERR_OK) {
        ddl_discard_collection(op, copy);
        collection_unref(copy);
        return rc;
    }
    *ret_copy = copy;
    return ERR_OK;
}

typedef struct CopyUnit {
    const Collection *to;
    Doc docs[COPY_DOCS_PER_UNIT];
    size_t count;
    size_t bytes;
    Arena arena;
    WriteScratch scratch;
} CopyUnit;

/* Keeps the position of the cursor, in a new snapshot. */
static ErrCode flush_unit(CopyUnit *unit, OpCtx *op, RecordCursor *cursor, Error *err) {
    record_cursor_save(cursor);
    ru_abandon_snapshot(op->ru);
    TRY(op_check_interrupt_slow(op, err));
    TRY(collection_insert_unit(op, unit->to, unit->docs, unit->count, &unit->scratch, err));
    bool is_kept;
    TRY(record_cursor_restore(cursor, op, &is_kept, err));
    unit->count = unit->bytes = 0;
    arena_reset(&unit->arena);
    return ERR_OK;
}

static ErrCode copy_units(CopyUnit *unit, OpCtx *op, const Collection *from, int64_t skip_bytes,
                          Error *err) {
    /* The oplog has one entry for a unit of inserts into a capped collection, which is limited in
     * size. */
    size_t bytes_max = unit->to->options.is_capped ? COPY_BYTES_PER_CAPPED : COPY_BYTES_PER_UNIT;
    CLEANUP(record_cursor_done) RecordCursor cursor = {0};
    TRY(record_cursor_open(op, from->records, /* is_forward= */ true, &cursor, err));
    CLEANUP(buffer_done) Buffer kept;
    buffer_init(&kept, BUFFER_UNBOUNDED);
    for (;;) {
        bool is_found;
        RecordId rid;
        Str data;
        TRY(record_cursor_next(&cursor, &is_found, &rid, &data, err));
        if (is_found && skip_bytes > 0) {
            skip_bytes -= (int64_t)data.size;
            continue;
        }
        bool is_full =
            unit->count == COPY_DOCS_PER_UNIT || (is_found && unit->bytes + data.size > bytes_max);
        if (unit->count > 0 && (is_full || !is_found)) {
            buffer_clear(&kept);
            if (is_found)
                /* flush_unit ends the snapshot that the document points into. */
                buffer_append(&kept, data.data, data.size);
            TRY(flush_unit(unit, op, &cursor, err));
            data.data = (const char *)kept.data;
        }
        if (!is_found)
            return ERR_OK;
        unit->docs[unit->count++] = doc_copy((Doc){(const uint8_t *)data.data}, &unit->arena);
        unit->bytes += data.size;
    }
}

ErrCode ddl_copy_documents(OpCtx *op, const Collection *from, const Collection *to,
                           int64_t skip_bytes, Error *err) {
    CopyUnit *unit = NEW(CopyUnit);
    unit->to = to;
    write_scratch_init(&unit->scratch);
    arena_init(&unit->arena, 1024 * 1024);
    CLEANUP(op_mode_restore) OpModeScope scope = op_mode_scope(op);
    op->mode.is_validation_bypassed = true; /* existing documents need not match the validator */
    ErrCode rc = copy_units(unit, op, from, skip_bytes, err);
    arena_done(&unit->arena);
    write_scratch_done(&unit->scratch);
    xfree(unit);
    return rc;
}

Doc ddl_capped_options(OpCtx *op, const Collection *coll, int64_t size, bool is_temp) {
    DocBuilder b = doc_builder_in_arena(&op->arena);
    build_bool(&b, "capped", true);
    build_i64(&b, "size", size);
    if (coll->options.collator != NULL)
        build_doc(&b, "collation", coll->options.collator->spec);
    if (is_temp)
        build_bool(&b, "temp", true);
    return doc_builder_end(&b);
}

ErrCode ddl_open_to_convert(OpCtx *op, const Ns *ns, CollAccess *ret_access, Error *err) {
    TRY(access_write_owned(op, ns, LOCK_X, ret_access, err));
    if (ret_access->view != NULL)
        return error_set(err, ERR_COMMAND_NOT_SUPPORTED_ON_VIEW,
                         "Namespace %s is a view, not a collection", ns->text);
    if (ret_access->coll == NULL)
        return error_set(err, ERR_NAMESPACE_NOT_FOUND, "source collection %s does not exist",
                         ns->text);
    return ddl_check_no_build(ret_access->coll, err);
}

int64_t ddl_capped_excess(const Collection *coll, int64_t size) {
    int64_t excess = record_store_data_size(coll->records) - size;
    return excess > 0 ? excess : 0;
}

ErrCode ddl_check_cappable(const Catalog *catalog, const CappedArgs *args, Error *err) {
    if (args->to == args->from ||
        (catalog_find(catalog, args->to) == NULL && catalog_find_view(catalog, args->to) == NULL))
        return ERR_OK;
    return error_set(err, ERR_NAMESPACE_EXISTS,
                     "could not copy \"%s\" into a capped collection: \"%s\" exists already",
                     args->from->text, args->to->text);
}

static ErrCode cap_locked(OpCtx *op, const CappedArgs *args, const Catalog *catalog, Error *err) {
    CLEANUP(access_done) CollAccess access = {0};
    TRY(ddl_open_to_convert(op, args->from, &access, err));
    TRY(ddl_check_cappable(catalog, args, err));
    Doc options = ddl_capped_options(op, access.coll, args->size, args->is_temp);
    int64_t excess = ddl_capped_excess(access.coll, args->size);
    Collection *copy;
    Collection *bare =
        collection_clone(access.coll); /* a capped collection starts with the _id index only */
    for (uint32_t i = bare->index_count; i-- > 0;)
        if (!bare->indexes[i]->is_id)
            collection_remove_index(bare, i);
    ErrCode rc = copy_collection(op, bare, args->to, options, excess, &copy, err);
    collection_unref(bare);
    TRY(rc);
    failpoint_hit(FP_RENAME_COPIED);
    const Collection *replaced = args->to == args->from ? access.coll : NULL;
    rc = swap_in(op, replaced, replaced, copy, args->to, err);
    if (rc != ERR_OK)
        ddl_discard_collection(op, copy);
    collection_unref(copy);
    return rc;
}

static ErrCode cap_attempt(void *arg, OpCtx *op, Error *err) {
    const CappedArgs *args = arg;
    TRY(ddl_lock_two(op, args->from, args->to, err));
    Catalog *catalog = catalog_acquire(op_catalog(op));
    ErrCode rc = cap_locked(op, args, catalog, err);
    catalog_release(catalog);
    ddl_unlock_two(op, args->from, args->to);
    return rc;
}

static ErrCode make_capped(OpCtx *op, CappedArgs *args, Error *err) {
    if (ddl_is_told(op, args->to))
        return ddl_cap_by_steps(op, args, err);
    return op_run_with_retry(op, cap_attempt, args, err);
}

ErrCode ddl_convert_to_capped(OpCtx *op, const Ns *ns, int64_t size, Error *err) {
    return make_capped(op, &(CappedArgs){.from = ns, .to = ns, .size = size}, err);
}

ErrCode ddl_clone_as_capped(OpCtx *op, const Ns *from, const Ns *to, int64_t size, bool is_temp,
                            Error *err) {
    return make_capped(op, &(CappedArgs){from, to, size, is_temp}, err);
}

/* Rising ResourceId order: two renames in opposite directions must not deadlock. */
static void add_sorted(ResourceId *ids, size_t *count, ResourceId id) {
    size_t at = (*count)++;
    for (; at > 0 && ids[at - 1] > id; at--)
        ids[at] = ids[at - 1];
    ids[at] = id;
}

ErrCode ddl_lock_names(OpCtx *op, const Ns *const *names, size_t count, Error *err) {
    invariant(count <= DDL_LOCK_NAMES_MAX);
    ResourceId dbs[DDL_LOCK_NAMES_MAX], colls[DDL_LOCK_NAMES_MAX];
    size_t db_count = 0, coll_count = 0;
    for (size_t i = 0; i < count; i++) {
        add_sorted(dbs, &db_count, db_resource(ns_db(names[i])));
        add_sorted(colls, &coll_count, ns_resource(names[i]));
    }
    TRY(op_lock_global(op, LOCK_IX, err));
    ResourceId held[2 * DDL_LOCK_NAMES_MAX + 1];
    size_t held_count = 0;
    ErrCode rc = ERR_OK;
    for (size_t i = 0; rc == ERR_OK && i < 2 * count + 1; i++) {
        ResourceId id = i == 0 ? RESOURCE_ID_RSTL : i <= count ? dbs[i - 1] : colls[i - 1 - count];
        rc = lock_acquire(op, id, i <= count ? LOCK_IX : LOCK_X, LOCK_DEFAULT, INT64_MAX, err);
        if (rc == ERR_OK)
            held[held_count++] = id;
    }
    if (rc == ERR_OK)
        return ERR_OK;
    while (held_count > 0)
        lock_release(op, held[--held_count]);
    op_unlock_global(op);
    return rc;
}

void ddl_unlock_names(OpCtx *op, const Ns *const *names, size_t count) {
    for (size_t i = 0; i < count; i++)
        lock_release(op, ns_resource(names[i]));
    for (size_t i = 0; i < count; i++)
        lock_release(op, db_resource(ns_db(names[i])));
    lock_release(op, RESOURCE_ID_RSTL);
    op_unlock_global(op);
}

ErrCode ddl_lock_two(OpCtx *op, const Ns *a, const Ns *b, Error *err) {
    return ddl_lock_names(op, (const Ns *[]){a, b}, 2, err);
}

void ddl_unlock_two(OpCtx *op, const Ns *a, const Ns *b) {
    ddl_unlock_names(op, (const Ns *[]){a, b}, 2);
}
