/*
 * rename_by_steps.c - renameCollection across databases, convertToCapped and
 * cloneCollectionAsCapped on a member of a replica set: in steps that can be replicated, each with
 * its own oplog entry.
 *
 *     temporary collection created | indexes created | filled | renamed over the target
 *     | source dropped, if it was renamed
 *
 * Crash or failure: before the rename the source is untouched, and the temporary collection, which
 * is marked as such, is dropped: on failure at once, after a crash by the next primary
 * (ddl_drop_temporary). Before the last step both collections exist, complete. All names are locked
 * in X from the first step to the last; each step re-acquires what it needs, which only counts.
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "bson/builder.h"
#include "ddl/ddl_internal.h"
#include "storage/engine.h"

bool ddl_is_told(const OpCtx *op, const Ns *ns) {
    return storage_is_replicated(op_storage(op)) && ns_is_replicated(ns) &&
           !op->mode.is_unreplicated;
}

ErrCode ddl_temp_ns(OpCtx *op, Str db, const char *suffix, Ns *ret_ns, Error *err) {
    static const char LETTERS[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    enum { TRIES_MAX = 100 };
    for (int i = 0; i < TRIES_MAX; i++) {
        uint8_t random[5];
        secure_random(random, sizeof(random));
        char name[64];
        for (size_t k = 0; k < sizeof(random); k++)
            random[k] = (uint8_t)LETTERS[random[k] % (sizeof(LETTERS) - 1)];
        snprintf(name, sizeof(name), "tmp%.5s.%s", (const char *)random, suffix);
        TRY(ns_make(db, str_from(name), ret_ns, err));
        Catalog *catalog = catalog_acquire(op_catalog(op));
        bool is_free =
            catalog_find(catalog, ret_ns) == NULL && catalog_find_view(catalog, ret_ns) == NULL;
        catalog_release(catalog);
        if (is_free)
            return ERR_OK;
    }
    return error_set(err, ERR_NAMESPACE_EXISTS, "no name for a temporary collection was free");
}

Doc ddl_options_without(Doc options, const char *name, Arena *arena) {
    DocBuilder b = doc_builder_in_arena_sized(arena, doc_size(options));
    DocIter iter = doc_iter(options);
    for (Elem elem; doc_iter_next(&iter, &elem);)
        if (strcmp(elem_name(elem), name) != 0)
            build_elem(&b, elem);
    return doc_builder_end(&b);
}

/* ---- the temporary collection ---- */

/* A specification that yields the same index on a collection with the same options: an index with
 * the simple collation has to say so where the collection has another default. */
static Doc spec_of(const Collection *coll, const IndexDesc *index, Arena *arena) {
    if (coll->options.collator == NULL || index->collator != NULL)
        return index->spec;
    DocBuilder b = doc_builder_in_arena(arena);
    build_all(&b, index->spec);
    size_t collation = build_open_doc(&b, "collation");
    build_cstr(&b, "locale", "simple");
    build_close(&b, collation);
    return doc_builder_end(&b);
}

static ErrCode make_indexes(OpCtx *op, const Collection *from, const Ns *ns, Error *err) {
    Doc specs[COLLECTION_INDEXES_MAX];
    uint32_t count = 0;
    for (uint32_t i = 0; i < from->index_count; i++)
        if (!from->indexes[i]->is_id && from->indexes[i]->store != NULL)
            specs[count++] = spec_of(from, from->indexes[i], &op->arena);
    CreateIndexesResult result;
    return count > 0 ? ddl_create_indexes(op, ns, specs, count, &result, err) : ERR_OK;
}

static ErrCode fill(OpCtx *op, const Collection *from, const Ns *ns, int64_t skip_bytes,
                    Error *err) {
    CLEANUP(access_done) CollAccess access = {0};
    TRY(access_write(op, ns, LOCK_X, &access, err));
    if (access.coll == NULL)
        return error_set(err, ERR_NAMESPACE_NOT_FOUND, "collection \"%s\" was dropped", ns->text);
    return ddl_copy_documents(op, from, access.coll, skip_bytes, err);
}

static void drop_temporary(OpCtx *op, const Ns *ns) {
    CLEANUP(error_reset) Error err = {0};
    CLEANUP(op_mode_restore) OpModeScope scope = op_mode_scope(op);
    op->mode.is_uninterruptible = true;
    DropResult result;
    if (ddl_drop(op, ns, NULL, &result, &err) != ERR_OK)
        LOG_WARN(LOG_STORAGE, 7100310, "A temporary collection could not be dropped",
                 LOG_STR("namespace", ns->text), LOG_STR("error", error_message(&err)));
}

typedef struct Copy {
    const Collection *from;
    const Ns *to;
    const Ns *temporary;
    Doc options;
    bool has_indexes;
    bool stays_temp;
    int64_t skip_bytes;
} Copy;

/* Copies `from` under a temporary name and renames the copy to `to`. */
static ErrCode copy_and_rename(OpCtx *op, const Copy *copy, Error *err) {
    const Ns *ns = copy->temporary;
    TRY(ddl_create_collection(op, ns, copy->options, NULL, err));
    ErrCode rc = copy->has_indexes ? make_indexes(op, copy->from, ns, err) : ERR_OK;
    if (rc == ERR_OK)
        rc = fill(op, copy->from, ns, copy->skip_bytes, err);
    if (rc == ERR_OK)
        failpoint_hit(FP_RENAME_COPIED);
    if (rc == ERR_OK)
        rc = ddl_rename_here(
            op,
            &(RenameArgs){
                .from = ns, .to = copy->to, .is_drop_target = true, .stays_temp = copy->stays_temp},
            err);
    if (rc != ERR_OK)
        drop_temporary(op, ns);
    return rc;
}

/* ---- the commands ---- */

static Doc temporary_options(Doc options, Arena *arena) {
    DocBuilder b = doc_builder_in_arena_sized(arena, doc_size(options) + 16);
    build_all(&b, ddl_options_without(options, "temp", arena));
    build_bool(&b, "temp", true);
    return doc_builder_end(&b);
}

static ErrCode rename_locked(OpCtx *op, const RenameArgs *args, const Ns *temporary,
                             const Catalog *catalog, Error *err) {
    const Collection *source, *target;
    TRY(ddl_check_rename(op, catalog, args, &source, &target, err));
    Copy copy = {.from = source,
                 .to = args->to,
                 .temporary = temporary,
                 .options = temporary_options(source->options.doc, &op->arena),
                 .has_indexes = true};
    TRY(copy_and_rename(op, &copy, err));
    DropResult dropped;
    return ddl_drop(op, args->from, &source->uuid, &dropped, err);
}

ErrCode ddl_rename_by_steps(OpCtx *op, const RenameArgs *args, Error *err) {
    TRY(ddl_check_db_case(op, args->to, err));
    Ns temporary;
    TRY(ddl_temp_ns(op, ns_db(args->to), "renameCollection", &temporary, err));
    const Ns *names[] = {args->from, args->to, &temporary};
    TRY(ddl_lock_names(op, names, ARRAY_LEN(names), err));
    Catalog *catalog = catalog_acquire(op_catalog(op));
    ErrCode rc = rename_locked(op, args, &temporary, catalog, err);
    catalog_release(catalog);
    ddl_unlock_names(op, names, ARRAY_LEN(names));
    return rc;
}

static ErrCode cap_locked(OpCtx *op, const CappedArgs *args, const Ns *temporary,
                          const Catalog *catalog, Error *err) {
    CLEANUP(access_done) CollAccess access = {0};
    TRY(ddl_open_to_convert(op, args->from, &access, err));
    TRY(ddl_check_cappable(catalog, args, err));
    Copy copy = {.from = access.coll,
                 .to = args->to,
                 .temporary = temporary,
                 .options = ddl_capped_options(op, access.coll, args->size, /* is_temp= */ true),
                 .stays_temp = args->is_temp,
                 .skip_bytes = ddl_capped_excess(access.coll, args->size)};
    return copy_and_rename(op, &copy, err);
}

ErrCode ddl_cap_by_steps(OpCtx *op, const CappedArgs *args, Error *err) {
    Ns temporary;
    TRY(ddl_temp_ns(op, ns_db(args->to), "convertToCapped", &temporary, err));
    const Ns *names[] = {args->from, args->to, &temporary};
    TRY(ddl_lock_names(op, names, ARRAY_LEN(names), err));
    Catalog *catalog = catalog_acquire(op_catalog(op));
    ErrCode rc = cap_locked(op, args, &temporary, catalog, err);
    catalog_release(catalog);
    ddl_unlock_names(op, names, ARRAY_LEN(names));
    return rc;
}

/* ---- what a crash leaves ---- */

typedef struct Leftovers {
    Ns *rows; /* heap */
    size_t count;
    size_t capacity;
} Leftovers;

static bool collect_temporary(void *arg, const Collection *coll) {
    Leftovers *found = arg;
    if (!coll->options.is_temp || !ns_is_replicated(&coll->ns))
        return true;
    ARRAY_RESERVE(found->rows, found->count, found->capacity);
    found->rows[found->count++] = coll->ns;
    return true;
}

typedef struct DbVisit {
    const Catalog *catalog;
    Leftovers *found;
} DbVisit;

static bool collect_in_db(void *arg, Str db) {
    DbVisit *visit = arg;
    catalog_for_each_in_db(visit->catalog, db, collect_temporary, visit->found);
    return true;
}

ErrCode ddl_drop_temporary(OpCtx *op, Error *err) {
    Leftovers found = {0};
    Catalog *catalog = catalog_acquire(op_catalog(op));
    DbVisit visit = {catalog, &found};
    catalog_for_each_db(catalog, collect_in_db, &visit);
    catalog_release(catalog);
    ErrCode rc = ERR_OK;
    for (size_t i = 0; rc == ERR_OK && i < found.count; i++) {
        LOG_INFO(LOG_STORAGE, 7100311, "Dropping a temporary collection",
                 LOG_STR("namespace", found.rows[i].text));
        DropResult result;
        rc = ddl_drop(op, &found.rows[i], NULL, &result, err);
    }
    xfree(found.rows);
    return rc;
}
