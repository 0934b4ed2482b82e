#include "ddl/views.h"

#include "bson/builder.h"
#include "bson/collator.h"
#include "bson/compare.h"
#include "ddl/ddl_internal.h"
#include "index/collection_write.h"

typedef struct ViewArgs {
    const Ns *ns;
    Ns home;        /* db.system.views */
    Doc definition; /* DOC_NONE: remove */
    Ns on;
    Doc pipeline;
    const Collator *collator;
    bool is_create;
    bool was_found;
} ViewArgs;

static ErrCode check_collations(const Catalog *catalog, const ViewArgs *args, Error *err);
static ErrCode write_row(OpCtx *op, const Collection *home, Elem id, Doc definition,
                         bool *ret_was_there, Error *err);
static ErrCode find_row(OpCtx *op, const Collection *home, Elem id, RecordId *ret_rid, Doc *ret_row,
                        Error *err);
static Doc build_definition(const Ns *ns, Str view_on, Doc pipeline, const Collator *collator,
                            Arena *arena);
static ErrCode change_view(OpCtx *op, ViewArgs *args, Error *err);
static Doc id_of(const Ns *ns, Arena *arena);
static ErrCode row_attempt(void *arg, OpCtx *op, Error *err);

ErrCode ddl_create_view(OpCtx *op, const Ns *ns, Str view_on, Doc pipeline, Elem collation,
                        Error *err) {
    TRY(ns_check_creatable(ns, err));
    if (view_on.size == 0)
        return error_set(err, ERR_BAD_VALUE, "'viewOn' cannot be empty");
    const Collator *collator = NULL;
    if (elem_is_present(collation))
        TRY(collator_parse_elem(collation, "create.collation", &collator, err));
    ViewArgs args = {.ns = ns, .is_create = true, .pipeline = pipeline, .collator = collator};
    TRY(ns_make(ns_db(ns), view_on, &args.on, err));
    TRY(ns_make(ns_db(ns), STR("system.views"), &args.home, err));
    args.definition = build_definition(ns, view_on, pipeline, collator, &op->arena);
    TRY(ddl_ensure_collection(op, &args.home, err));
    return change_view(op, &args, err);
}

ErrCode view_drop(OpCtx *op, const Ns *ns, bool *ret_was_found, Error *err) {
    ViewArgs args = {.ns = ns};
    TRY(ns_make(ns_db(ns), STR("system.views"), &args.home, err));
    TRY(change_view(op, &args, err));
    *ret_was_found = args.was_found;
    return ERR_OK;
}

ErrCode view_modify(OpCtx *op, const Ns *ns, Str view_on, Doc pipeline, const Collator *collator,
                    Error *err) {
    ViewArgs args = {.ns = ns, .pipeline = pipeline, .collator = collator};
    TRY(ns_make(ns_db(ns), view_on, &args.on, err));
    TRY(ns_make(ns_db(ns), STR("system.views"), &args.home, err));
    args.definition = build_definition(ns, view_on, pipeline, collator, &op->arena);
    return change_view(op, &args, err);
}

typedef struct RowArgs {
    const Ns *home;
    Elem id;
    Doc row;
    bool is_only_replaced;
    bool was_there;
} RowArgs;

ErrCode ddl_write_view_row(OpCtx *op, const Ns *home, Elem id, Doc row, bool is_only_replaced,
                           bool *ret_was_there, Error *err) {
    RowArgs args = {home, id, row, is_only_replaced, false};
    TRY(op_run_with_retry(op, row_attempt, &args, err));
    *ret_was_there = args.was_there;
    return ERR_OK;
}

static ErrCode row_attempt(void *arg, OpCtx *op, Error *err) {
    RowArgs *args = arg;
    CLEANUP(access_done) CollAccess access = {0};
    TRY(access_write_owned(op, args->home, LOCK_X, &access, err));
    if (access.coll == NULL)
        return error_set(err, ERR_NAMESPACE_NOT_FOUND, "collection \"%s\" does not exist",
                         args->home->text);
    CLEANUP(uow_done) UnitOfWork uow = {0};
    TRY(uow_begin(op, &uow, err));
    TRY(write_row(op, access.coll, args->id, args->row, &args->was_there, err));
    /* Otherwise the unit of work is given up. */
    return args->is_only_replaced && !args->was_there ? ERR_OK : uow_commit(&uow, err);
}

static ErrCode change_attempt(void *arg, OpCtx *op, Error *err) {
    ViewArgs *args = arg;
    args->was_found = false;
    CLEANUP(access_done) CollAccess access = {0};
    TRY(access_write_owned(op, &args->home, LOCK_X, &access, err));
    TRY(catalog_check_views(access.catalog, ns_db(args->ns), err));
    const View *present = catalog_find_view(access.catalog, args->ns);
    if (args->is_create && present != NULL &&
        doc_compare(present->definition, args->definition, NULL) == 0)
        return ERR_OK;
    if (args->is_create && (present != NULL || catalog_find(access.catalog, args->ns) != NULL))
        return error_set(err, ERR_NAMESPACE_EXISTS, "Collection %s already exists.",
                         args->ns->text);
    if (!args->is_create && present == NULL)
        return ERR_OK;
    args->was_found = present != NULL;
    if (doc_is_present(args->definition)) {
        TRY(view_graph_check(op, access.catalog, args->ns, ns_coll(&args->on), args->pipeline,
                             err));
        TRY(check_collations(access.catalog, args, err));
    }
    CLEANUP(uow_done) UnitOfWork uow = {0};
    TRY(uow_begin(op, &uow, err));
    bool was_there;
    Doc key = id_of(args->ns, &op->arena);
    TRY(write_row(op, access.coll, doc_get_lit(key, "_id"), args->definition, &was_there, err));
    return uow_commit(&uow, err);
}

static ErrCode change_view(OpCtx *op, ViewArgs *args, Error *err) {
    return op_run_with_retry(op, change_attempt, args, err);
}

/* The row and the view that it is, or was. */
static ErrCode write_row(OpCtx *op, const Collection *home, Elem id, Doc definition,
                         bool *ret_was_there, Error *err) {
    WriteScratch scratch;
    write_scratch_init(&scratch);
    RecordId rid = RECORD_ID_NONE;
    Doc old = DOC_NONE;
    ErrCode rc = find_row(op, home, id, &rid, &old, err);
    if (rc == ERR_OK && doc_is_present(old) && doc_is_present(definition))
        rc = collection_replace(op, home, rid, old, definition, &scratch, err);
    else if (rc == ERR_OK && doc_is_present(old))
        rc = collection_delete(op, home, rid, old, &scratch, err);
    else if (rc == ERR_OK && doc_is_present(definition))
        rc = collection_insert(op, home, &definition, 1, &scratch, err);
    write_scratch_done(&scratch);
    *ret_was_there = doc_is_present(old);
    if (rc == ERR_OK)
        catalog_stage_view(op, &home->ns, id, definition);
    return rc;
}

static ErrCode find_row(OpCtx *op, const Collection *home, Elem id, RecordId *ret_rid, Doc *ret_row,
                        Error *err) {
    CLEANUP(record_cursor_done) RecordCursor cursor = {0};
    TRY(record_cursor_open(op, home->records, /* is_forward= */ true, &cursor, err));
    for (;;) {
        bool is_found;
        Str data;
        TRY(record_cursor_next(&cursor, &is_found, ret_rid, &data, err));
        if (!is_found)
            return ERR_OK;
        Doc row = {(const uint8_t *)data.data};
        if (elem_compare(doc_get_lit(row, "_id"), id, NULL) == 0) {
            *ret_row = doc_copy(row, &op->arena);
            return ERR_OK;
        }
    }
}

/* All views that it is on have the same collation. */
static ErrCode check_collations(const Catalog *catalog, const ViewArgs *args, Error *err) {
    Ns at = args->on;
    /* Their number was checked before. */
    for (const View *view; (view = catalog_find_view(catalog, &at)) != NULL; at = view->view_on)
        if (view->collator != args->collator)
            return error_set(err, ERR_OPTION_NOT_SUPPORTED_ON_VIEW,
                             "View %s has conflicting collation with view %s", args->ns->text,
                             view->ns.text);
    return ERR_OK;
}

static Doc id_of(const Ns *ns, Arena *arena) {
    DocBuilder b = doc_builder_in_arena(arena);
    build_str(&b, "_id", ns_str(ns));
    return doc_builder_end(&b);
}

static Doc build_definition(const Ns *ns, Str view_on, Doc pipeline, const Collator *collator,
                            Arena *arena) {
    DocBuilder b = doc_builder_in_arena(arena);
    build_str(&b, "_id", ns_str(ns));
    build_str(&b, "viewOn", view_on);
    build_array(&b, "pipeline", pipeline);
    if (collator != NULL)
        build_doc(&b, "collation", collator->spec);
    return doc_builder_end(&b);
}
