/*
 * agg_sources.c - stages that make documents: $listCatalog, $collStats, $indexStats,
 * $planCacheStats, $currentOp and $listLocalSessions.
 *
 * Each is a row of SOURCES with one function that lists all its documents when the pipeline starts.
 * Lists are as large as what they tell about: the catalog, the indexes, the operations.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "catalog/access.h"
#include "commands/agg_args.h"
#include "commands/coll_stats.h"
#include "commands/core/command_service.h"
#include "commands/core/top.h"
#include "params/params.h"
#include "query/agg/list_sessions.h"
#include "commands/current_op.h"
#include "query/plan/plan_cache.h"
#include "sharding/shard/shard_state.h"
#include "txn/session_cache.h"

/* An execution: the documents, in their own arena. */
typedef struct Listing {
    CommandCtx *ctx;
    Doc spec; /* of the stage */
    Arena arena;
    Doc *docs;
    size_t count;
    size_t capacity;
    size_t next;
} Listing;

typedef struct ListingKind {
    const char *name;
    bool is_collectionless;
    bool is_admin_only;
    bool takes_options;
    ErrCode (*list)(Listing *listing, Error *err);
} ListingKind;

typedef struct ListingSource {
    AggSource base;
    const ListingKind *kind;
    CommandCtx *ctx;
    Doc spec;
} ListingSource;

static ErrCode list_catalog_all(Listing *listing, Error *err);
static ErrCode list_catalog_one(Listing *listing, Error *err);
static ErrCode list_coll_stats(Listing *listing, Error *err);
static ErrCode list_index_stats(Listing *listing, Error *err);
static ErrCode list_plan_cache(Listing *listing, Error *err);
static ErrCode list_current_op(Listing *listing, Error *err);
static ErrCode list_local_sessions(Listing *listing, Error *err);

static const ListingKind SOURCES[] = {
    /* name, collectionless, admin only, takes options, function */
    {"$listCatalog", true, true, false, list_catalog_all},
    {"$listCatalog", false, false, false, list_catalog_one},
    {"$collStats", false, false, true, list_coll_stats},
    {"$indexStats", false, false, false, list_index_stats},
    {"$planCacheStats", false, false, false, list_plan_cache},
    {"$currentOp", true, true, true, list_current_op},
    {"$listLocalSessions", true, false, true, list_local_sessions},
};

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
    const ListingSource *source = (const ListingSource *)base;
    Listing *listing = NEW(Listing);
    arena_init(&listing->arena, ARENA_CHUNK_SIZE_DEFAULT);
    listing->ctx = source->ctx;
    listing->spec = source->spec;
    *ret_docs = (DocSource){.arg = listing, .next = next_doc};
    ErrCode rc = source->kind->list(listing, err);
    if (rc != ERR_OK)
        close_listing(base, *ret_docs);
    return rc;
}

static ErrCode parse_listing(const AggSourceRow *row, Elem spec, Arena *arena,
                             AggSource **ret_source, Error *err) {
    CommandCtx *ctx = row->arg;
    const ListingKind *kind = NULL;
    for (size_t i = 0; i < ARRAY_LEN(SOURCES); i++)
        if (strcmp(SOURCES[i].name, row->name) == 0 &&
            SOURCES[i].is_collectionless == row->is_collectionless)
            kind = &SOURCES[i];
    invariant(kind != NULL);
    if (elem_type(spec) != BT_DOC)
        return error_set(err, ERR_FAILED_TO_PARSE, "the %s stage specification must be an object",
                         kind->name);
    if (!kind->takes_options && !doc_is_empty(elem_doc(spec)))
        return error_set(err, ERR_FAILED_TO_PARSE,
                         "the %s stage specification must be an empty object", kind->name);
    if (kind->is_admin_only && !str_is(ctx->args.db, "admin"))
        return error_set(err, ERR_INVALID_NAMESPACE,
                         "%s must be run against the 'admin' database with {aggregate: 1}",
                         kind->name);
    ListingSource *source = ARENA_NEW(arena, ListingSource);
    source->base = (AggSource){open_listing, close_listing};
    source->kind = kind;
    source->ctx = ctx;
    source->spec = doc_copy(elem_doc(spec), arena);
    *ret_source = &source->base;
    return ERR_OK;
}

/* A pipeline that begins with it is no ordinary one (stream_args.h): here it can only be in a wrong
 * place, or on a node without an oplog. */
static ErrCode refuse_change_stream(const AggSourceRow *row, Elem spec, Arena *arena,
                                    AggSource **ret_source, Error *err) {
    (void)spec, (void)arena, (void)ret_source;
    return error_set(err, (ErrCode)40573, "The %s stage is only supported on replica sets",
                     row->name);
}

void agg_source_rows(CommandCtx *ctx, bool is_collectionless, const AggSourceRow **ret_rows,
                     uint32_t *ret_count) {
    /* A stage that exists in both forms must be found in the one that fits. */
    static const char *const CHANGE_STREAMS[] = {"$changeStream", "$changeStreamSplitLargeEvent"};
    AggSourceRow *rows =
        ARENA_ARRAY(cmd_arena(ctx), AggSourceRow, ARRAY_LEN(SOURCES) + ARRAY_LEN(CHANGE_STREAMS));
    uint32_t count = 0;
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < ARRAY_LEN(SOURCES); i++)
            if ((SOURCES[i].is_collectionless == is_collectionless) == (pass == 0))
                rows[count++] = (AggSourceRow){.name = SOURCES[i].name,
                                               .is_collectionless = SOURCES[i].is_collectionless,
                                               .parse = parse_listing,
                                               .arg = ctx};
    for (size_t i = 0; i < ARRAY_LEN(CHANGE_STREAMS); i++)
        rows[count++] = (AggSourceRow){.name = CHANGE_STREAMS[i],
                                       .is_collectionless = is_collectionless,
                                       .is_outermost = true,
                                       .parse = refuse_change_stream};
    *ret_rows = rows;
    *ret_count = count;
}

/* ---- documents of a listing ---- */

static DocBuilder *begin_doc(Listing *listing) {
    DocBuilder *b = ARENA_NEW(&listing->arena, DocBuilder);
    *b = doc_builder_in_arena_sized(&listing->arena, 512);
    return b;
}

static void add_doc(Listing *listing, Doc doc) {
    ARRAY_RESERVE(listing->docs, listing->count, listing->capacity);
    listing->docs[listing->count++] = doc;
}

static void end_doc(Listing *listing, DocBuilder *b) {
    add_doc(listing, doc_builder_end(b));
}

/* ---- $listCatalog (CAT-2): entries read in one snapshot that belongs to one catalog version ----
 */

typedef struct CatalogVisit {
    Listing *listing;
    const Catalog *catalog;
    Error *err;
    ErrCode rc;
} CatalogVisit;

static bool add_collection(void *arg, const Collection *coll) {
    CatalogVisit *visit = arg;
    Listing *listing = visit->listing;
    Doc entry;
    visit->rc =
        catalog_read_entry(listing->ctx->op, coll->catalog_id, &listing->arena, &entry, visit->err);
    if (visit->rc != ERR_OK)
        return false;
    if (!doc_is_present(entry))
        return true; /* dropped in our snapshot already */
    DocBuilder *b = begin_doc(listing);
    build_str(b, "db", ns_db(&coll->ns));
    build_str(b, "name", ns_coll(&coll->ns));
    build_cstr(b, "type", "collection");
    build_all(b, entry);
    end_doc(listing, b);
    return true;
}

static bool add_view(void *arg, const View *view) {
    CatalogVisit *visit = arg;
    DocBuilder *b = begin_doc(visit->listing);
    build_str(b, "db", ns_db(&view->ns));
    build_str(b, "name", ns_coll(&view->ns));
    build_cstr(b, "type", "view");
    build_str(b, "ns", ns_str(&view->ns));
    build_all(b, view->definition);
    end_doc(visit->listing, b);
    return true;
}

static bool add_database(void *arg, Str db) {
    CatalogVisit *visit = arg;
    catalog_for_each_in_db(visit->catalog, db, add_collection, visit);
    if (visit->rc == ERR_OK)
        catalog_for_each_view_in_db(visit->catalog, db, add_view, visit);
    return visit->rc == ERR_OK;
}

static ErrCode list_catalog_all(Listing *listing, Error *err) {
    Ns any;
    TRY(ns_make(STR("admin"), STR("$cmd"), &any, err));
    CLEANUP(access_done) CollAccess access = {0};
    TRY(access_read(listing->ctx->op, &any, &access, err));
    CatalogVisit visit = {listing, access.catalog, err, ERR_OK};
    catalog_for_each_db(access.catalog, add_database, &visit);
    return visit.rc;
}

static ErrCode open_target(Listing *listing, CollAccess *access, Error *err) {
    Ns ns;
    const CommandCtx *ctx = listing->ctx;
    TRY(request_ns(ctx, ctx->read_coll.size > 0 ? ctx->read_coll : ctx->ns_coll, &ns, err));
    return access_read(listing->ctx->op, &ns, access, err);
}

static ErrCode list_catalog_one(Listing *listing, Error *err) {
    CLEANUP(access_done) CollAccess access = {0};
    TRY(open_target(listing, &access, err));
    CatalogVisit visit = {listing, access.catalog, err, ERR_OK};
    if (access.coll != NULL)
        add_collection(&visit, access.coll);
    else if (access.view != NULL)
        add_view(&visit, access.view);
    return visit.rc;
}

/* ---- $collStats ---- */

typedef struct CollStatsWish {
    Elem latency; /* {histograms}; each is missing or an object */
    Elem storage; /* {scale} */
    Elem count;
    Elem query_exec;
} CollStatsWish;

static ErrCode parse_coll_stats(Doc spec, CollStatsWish *wish, Error *err) {
    *wish = (CollStatsWish){ELEM_MISSING, ELEM_MISSING, ELEM_MISSING, ELEM_MISSING};
    const struct {
        const char *name;
        Elem *elem;
    } OPTIONS[] = {{"latencyStats", &wish->latency},
                   {"storageStats", &wish->storage},
                   {"count", &wish->count},
                   {"queryExecStats", &wish->query_exec}};
    DocIter iter = doc_iter(spec);
    for (Elem elem; doc_iter_next(&iter, &elem);) {
        size_t i = 0;
        while (i < ARRAY_LEN(OPTIONS) && !str_is(elem_name_str(elem), OPTIONS[i].name))
            i++;
        if (i == ARRAY_LEN(OPTIONS))
            return error_set(err, (ErrCode)40415, "BSON field '$collStats.%s' is an unknown field.",
                             elem_name(elem));
        if (elem_type(elem) != BT_DOC)
            return error_set(err, ERR_TYPE_MISMATCH,
                             "BSON field '$collStats.%s' is the wrong type '%s', expected type "
                             "'object'",
                             elem_name(elem), bson_type_name(elem_type(elem)));
        *OPTIONS[i].elem = elem;
    }
    Elem count = wish->count;
    if (elem_is_present(count) && !doc_is_empty(elem_doc(count)))
        return error_set(err, (ErrCode)31170,
                         "count argument to $collStats must be an empty object");
    return ERR_OK;
}

/* On a shard: its name, which is read before anything is opened. NULL: it is none. */
static ErrCode find_shard_name(const Listing *listing, const char **ret_name, Error *err) {
    ShardState *state = listing->ctx->service->shard;
    *ret_name = NULL;
    if (state == NULL)
        return ERR_OK;
    TRY(shard_state_load(state, listing->ctx->op, err));
    return shard_has_identity(state) ? shard_get_name(state, listing->ctx->op, ret_name, err)
                                     : ERR_OK;
}

static void build_latency_stats(DocBuilder *b, const Listing *listing, const CollStatsWish *wish,
                                const Ns *ns) {
    static const Latencies NONE;
    const TopRow *row = top_find(command_top(listing->ctx->service), ns->text);
    size_t opened = build_open_doc(b, "latencyStats");
    build_latencies(b, row != NULL ? &row->latencies : &NONE,
                    elem_is_truthy(doc_get_lit(elem_doc(wish->latency), "histograms")));
    build_close(b, opened);
}

static void build_query_exec_stats(DocBuilder *b, const Collection *coll) {
    int64_t scans = atomic_load_explicit(&coll->shared->scans, memory_order_relaxed);
    int64_t tailing = atomic_load_explicit(&coll->shared->tailing_scans, memory_order_relaxed);
    size_t opened = build_open_doc(b, "queryExecStats");
    size_t row = build_open_doc(b, "collectionScans");
    build_i64(b, "total", scans);
    build_i64(b, "nonTailable", scans - tailing);
    build_close(b, row);
    build_close(b, opened);
}

/* All but latencies is told of collections only. */
static ErrCode check_coll_stats(const CollStatsWish *wish, const CollAccess *access, Error *err) {
    const struct {
        const char *name;
        Elem elem;
    } OF_COLLECTIONS[] = {{"storageStats", wish->storage},
                          {"count", wish->count},
                          {"queryExecStats", wish->query_exec}};
    for (size_t i = 0; i < ARRAY_LEN(OF_COLLECTIONS) && access->coll == NULL; i++) {
        if (!elem_is_present(OF_COLLECTIONS[i].elem))
            continue;
        if (access->view != NULL)
            return error_set(err, ERR_COMMAND_NOT_SUPPORTED_ON_VIEW,
                             "cannot tell %s of \"%s\": it is a view", OF_COLLECTIONS[i].name,
                             access->ns.text);
        return error_set(err, ERR_NAMESPACE_NOT_FOUND, "Collection [%s] not found.",
                         access->ns.text);
    }
    return ERR_OK;
}

static ErrCode list_coll_stats(Listing *listing, Error *err) {
    CollStatsWish wish;
    TRY(parse_coll_stats(listing->spec, &wish, err));
    CollStatsForm form = {.scale = 1};
    if (elem_is_present(wish.storage)) {
        Elem given = doc_get_lit(elem_doc(wish.storage), "scale");
        if (elem_is_present(given) && (!elem_is_number(given) || elem_as_i64(given) < 1))
            return error_set(err, ERR_BAD_VALUE, "scale has to be a number >= 1");
        form.scale = elem_is_number(given) ? elem_as_i64(given) : 1;
    }
    const char *shard;
    TRY(find_shard_name(listing, &shard, err));
    CLEANUP(access_done) CollAccess access = {0};
    TRY(open_target(listing, &access, err));
    TRY(check_coll_stats(&wish, &access, err));
    DocBuilder *b = begin_doc(listing);
    build_str(b, "ns", ns_str(&access.ns));
    if (shard != NULL)
        build_cstr(b, "shard", shard);
    build_cstr(b, "host", server_setup(listing->ctx->service)->host);
    build_date(b, "localTime", clock_wall_ms());
    if (elem_is_present(wish.latency))
        build_latency_stats(b, listing, &wish, &access.ns);
    if (elem_is_present(wish.storage)) {
        size_t opened = build_open_doc(b, "storageStats");
        TRY(build_collection_stats(b, listing->ctx->op, access.coll, &form, err));
        build_close(b, opened);
    }
    if (elem_is_present(wish.count))
        build_count(b, "count", record_store_count(access.coll->records));
    if (elem_is_present(wish.query_exec))
        build_query_exec_stats(b, access.coll);
    end_doc(listing, b);
    return ERR_OK;
}

/* ---- $indexStats ---- */

static ErrCode list_index_stats(Listing *listing, Error *err) {
    const char *shard;
    TRY(find_shard_name(listing, &shard, err));
    CLEANUP(access_done) CollAccess access = {0};
    TRY(open_target(listing, &access, err));
    for (uint32_t i = 0; access.coll != NULL && i < access.coll->index_count; i++) {
        const IndexDesc *index = access.coll->indexes[i];
        DocBuilder *b = begin_doc(listing);
        build_cstr(b, "name", index->name);
        build_doc(b, "key", index->key_pattern);
        if (shard != NULL)
            build_cstr(b, "shard", shard);
        build_cstr(b, "host", server_setup(listing->ctx->service)->host);
        size_t accesses = build_open_doc(b, "accesses");
        build_i64(b, "ops",
                  atomic_load_explicit(&index->state->access_count, memory_order_relaxed));
        build_date(b, "since", index->state->since_wall_ms);
        build_close(b, accesses);
        build_doc(b, "spec", index->spec);
        if (!index->is_ready)
            build_bool(b, "building", true);
        end_doc(listing, b);
    }
    return ERR_OK;
}

/* ---- $planCacheStats ---- */

static ErrCode list_plan_cache(Listing *listing, Error *err) {
    CLEANUP(access_done) CollAccess access = {0};
    TRY(open_target(listing, &access, err));
    if (access.coll == NULL)
        return error_set(err, (ErrCode)50933, "collection '%s' does not exist", access.ns.text);
    DocBuilder array = doc_builder_in_arena_sized(&listing->arena, 1024);
    plan_cache_to_bson(access.coll, &array);
    DocIter iter = doc_iter(doc_builder_end(&array));
    for (Elem entry; doc_iter_next(&iter, &entry);) {
        DocBuilder *b = begin_doc(listing);
        build_all(b, elem_doc(entry));
        build_cstr(b, "host", server_setup(listing->ctx->service)->host);
        end_doc(listing, b);
    }
    return ERR_OK;
}

/* ---- $currentOp ---- */

static ErrCode check_options(Doc spec, const char *stage, const char *const *names, size_t count,
                             Error *err) {
    DocIter iter = doc_iter(spec);
    Elem elem;
    while (doc_iter_next(&iter, &elem)) {
        bool is_known = false;
        for (size_t i = 0; i < count; i++)
            is_known |= str_is(elem_name_str(elem), names[i]);
        if (!is_known)
            return error_set(err, ERR_NOT_IMPLEMENTED, "option '%s' of %s is not supported yet",
                             elem_name(elem), stage);
    }
    return ERR_OK;
}

static ErrCode add_op(void *arg, Doc row, Error *err) {
    (void)err;
    Listing *listing = arg;
    add_doc(listing, doc_copy(row, &listing->arena));
    return ERR_OK;
}

/* As clients of a router see it: numbers of operations and addresses of clients are of one node. */
static ErrCode add_op_of_shard(void *arg, Doc row, Error *err) {
    Listing *listing = arg;
    const char *shard;
    TRY(shard_get_name(listing->ctx->service->shard, listing->ctx->op, &shard, err));
    DocBuilder *b = begin_doc(listing);
    build_cstr(b, "shard", shard);
    DocIter iter = doc_iter(row);
    for (Elem field; doc_iter_next(&iter, &field);)
        if (elem_name_is(field, STR("opid")))
            build_cstr(
                b, "opid",
                arena_printf(&listing->arena, "%s:%lld", shard, (long long)elem_as_i64(field)));
        else if (elem_name_is(field, STR("client")))
            build_elem_as(b, STR("client_s"), field);
        else
            build_elem(b, field);
    end_doc(listing, b);
    return ERR_OK;
}

static ErrCode list_current_op(Listing *listing, Error *err) {
    static const char *const KNOWN[] = {"allUsers",       "idleConnections", "idleCursors",
                                        "idleSessions",   "localOps",        "truncateOps",
                                        "targetAllNodes", "backtrace"};
    TRY(check_options(listing->spec, "$currentOp", KNOWN, ARRAY_LEN(KNOWN), err));
    /* Without access control all operations are of the same, nameless user. */
    Elem sessions = doc_get_lit(listing->spec, "idleSessions");
    CurrentOpQuery query = {
        .has_idle_connections = elem_is_truthy(doc_get_lit(listing->spec, "idleConnections")),
        .has_idle_sessions = !elem_is_present(sessions) || elem_is_truthy(sessions),
        .has_idle_cursors = elem_is_truthy(doc_get_lit(listing->spec, "idleCursors")),
    };
    bool is_for_router = is_routed(listing->ctx) && listing->ctx->service->shard != NULL;
    return current_op_for_each(listing->ctx->service, &query,
                               is_for_router ? add_op_of_shard : add_op, listing, err);
}

/* ---- $listLocalSessions ---- */

static ErrCode list_local_sessions(Listing *listing, Error *err) {
    SessionsWish wish;
    TRY(sessions_wish_parse("$listLocalSessions", listing->spec, &wish, err));
    if (!sessions_wish_has_nobody(&wish))
        return ERR_OK;
    return current_sessions_for_each(listing->ctx->service, add_op, listing, err);
}
