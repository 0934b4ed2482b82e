/*
 * list_catalog.c - $listCatalog: the durable catalog as documents (CAT-2).
 *
 * All entries are read in one snapshot that belongs to one catalog version, views are joined in
 * from it. The result is made when the pipeline starts; it is as large as the catalog.
 */
#include "base/alloc.h"
#include "catalog/access.h"
#include "commands/agg_args.h"

typedef struct ListCatalogSource {
    AggSource base;
    CommandCtx *ctx;
    bool is_all;
} ListCatalogSource;

/* An execution: the documents, in their own arena. */
typedef struct Listing {
    Arena arena;
    Doc *docs;
    size_t count;
    size_t capacity;
    size_t next;
} Listing;

typedef struct Visit {
    OpCtx *op;
    const Catalog *catalog;
    Listing *listing;
    Error *err;
    ErrCode rc;
} Visit;

static void add_doc(Listing *listing, Doc doc) {
    ARRAY_RESERVE(listing->docs, listing->count, listing->capacity);
    listing->docs[listing->count++] = doc;
}

static bool add_collection(void *arg, const Collection *coll) {
    Visit *visit = arg;
    Doc entry;
    visit->rc =
        catalog_read_entry(visit->op, coll->catalog_id, &visit->listing->arena, &entry, visit->err);
    if (visit->rc != ERR_OK)
        return false;
    if (!doc_is_present(entry))
        return true; /* dropped in our snapshot already */
    Arena *arena = &visit->listing->arena;
    Buffer *buf = ARENA_NEW(arena, Buffer);
    buffer_init_arena(buf, arena, doc_size(entry) + 256, BSON_DOC_SIZE_MAX_INTERNAL);
    DocBuilder b;
    doc_builder_init(&b, buf);
    build_str(&b, "db", ns_db(&coll->ns));
    build_str(&b, "name", ns_coll(&coll->ns));
    build_cstr(&b, "type", "collection");
    build_all(&b, entry);
    add_doc(visit->listing, doc_builder_end(&b));
    return true;
}

static bool add_view(void *arg, const View *view) {
    Visit *visit = arg;
    Arena *arena = &visit->listing->arena;
    Buffer *buf = ARENA_NEW(arena, Buffer);
    buffer_init_arena(buf, arena, doc_size(view->definition) + 256, BSON_DOC_SIZE_MAX_INTERNAL);
    DocBuilder b;
    doc_builder_init(&b, buf);
    build_str(&b, "db", ns_db(&view->ns));
    build_str(&b, "name", ns_coll(&view->ns));
    build_cstr(&b, "type", "view");
    build_str(&b, "ns", ns_str(&view->ns));
    build_all(&b, view->definition);
    add_doc(visit->listing, doc_builder_end(&b));
    return true;
}

static bool add_database(void *arg, Str db) {
    Visit *visit = arg;
    catalog_for_each_in_db(visit->catalog, db, add_collection, visit);
    if (visit->rc == ERR_OK)
        catalog_for_each_view_in_db(visit->catalog, db, add_view, visit);
    return visit->rc == ERR_OK;
}

static ErrCode next_doc(void *arg, bool *ret_found, Doc *ret_doc, Error *err) {
    (void)err;
    Listing *listing = arg;
    *ret_found = listing->next < listing->count;
    if (*ret_found)
        *ret_doc = listing->docs[listing->next++];
    return ERR_OK;
}

static void close_listing(const AggSource *base, DocSource docs) {
    (void)base;
    Listing *listing = docs.arg;
    if (listing == NULL)
        return;
    arena_done(&listing->arena);
    xfree(listing->docs);
    xfree(listing);
}

static ErrCode open_listing(const AggSource *base, DocSource *ret_docs, Error *err) {
    const ListCatalogSource *source = (const ListCatalogSource *)base;
    CommandCtx *ctx = source->ctx;
    Ns ns = {0};
    if (!source->is_all)
        TRY(ns_make(ctx->args.db, ctx->ns_coll, &ns, err));
    else
        TRY(ns_make(STR("admin"), STR("$cmd"), &ns, err));
    Listing *listing = NEW(Listing);
    arena_init(&listing->arena, ARENA_CHUNK_SIZE_DEFAULT);
    *ret_docs = (DocSource){listing, next_doc};

    CLEANUP(access_done) CollAccess access = {0};
    Visit visit = {ctx->op, NULL, listing, err, ERR_OK};
    visit.rc = access_read(ctx->op, &ns, &access, err);
    visit.catalog = access.catalog;
    if (visit.rc == ERR_OK && source->is_all)
        catalog_for_each_db(access.catalog, add_database, &visit);
    else if (visit.rc == ERR_OK && access.coll != NULL)
        add_collection(&visit, access.coll);
    else if (visit.rc == ERR_OK && access.view != NULL)
        add_view(&visit, access.view);
    if (visit.rc != ERR_OK)
        close_listing(base, *ret_docs);
    return visit.rc;
}

static ErrCode parse_list_catalog(const AggSourceRow *row, Elem spec, Arena *arena,
                                  AggSource **ret_source, Error *err) {
    CommandCtx *ctx = row->arg;
    if (elem_type(spec) != BT_DOC || !doc_is_empty(elem_doc(spec)))
        return error_set(err, (ErrCode)6200600,
                         "The $listCatalog stage specification must be an empty object");
    if (row->is_collectionless && !str_is(ctx->args.db, "admin"))
        return error_set(
            err, ERR_INVALID_NAMESPACE,
            "Collectionless $listCatalog must be run against the 'admin' database with "
            "{aggregate: 1}");
    ListCatalogSource *source = ARENA_NEW(arena, ListCatalogSource);
    source->base = (AggSource){open_listing, close_listing};
    source->ctx = ctx;
    source->is_all = row->is_collectionless;
    *ret_source = &source->base;
    return ERR_OK;
}

AggSourceRow list_catalog_row(bool is_collectionless) {
    return (AggSourceRow){.name = "$listCatalog",
                          .is_collectionless = is_collectionless,
                          .parse = parse_list_catalog};
}
