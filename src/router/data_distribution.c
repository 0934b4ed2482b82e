#include "router/data_distribution.h"

#include "base/alloc.h"
#include "commands/core/command_service.h"
#include "router/scatter.h"
#include "sharding/route/collection_routes.h"
#include "sharding/route/remote.h"

#define STAGE "$shardedDataDistribution"

enum {
    CODE_SPEC = 6789100,
    CODE_PLACE = 6789102,
};

typedef struct DistributionSource {
    AggSource base;
    OpCtx *const *op;
} DistributionSource;

/* An execution: names of collections, one of which is asked about at a time. */
typedef struct Distribution {
    OpCtx *const *op;
    Arena arena; /* the names */
    Str *names;
    size_t count;
    size_t capacity;
    size_t next;
} Distribution;

static Elem spec_of(Doc stages) {
    DocIter iter = doc_iter(stages);
    Elem first;
    bool has_stage = doc_iter_next(&iter, &first) && elem_type(first) == BT_DOC;
    return has_stage ? doc_get_lit(elem_doc(first), STAGE) : ELEM_MISSING;
}

bool asks_for_distribution(Doc stages) {
    return elem_is_present(spec_of(stages));
}

ErrCode distribution_check(Doc stages, bool is_admin, Error *err) {
    Elem spec = spec_of(stages);
    if (elem_type(spec) != BT_DOC || !doc_is_empty(elem_doc(spec)))
        return error_set(err, (ErrCode)CODE_SPEC,
                         "The " STAGE " stage specification must be an empty object");
    if (!is_admin)
        return error_set(err, (ErrCode)CODE_PLACE,
                         STAGE " must be run against the admin database with {aggregate: 1}");
    return ERR_OK;
}

/* ---- one collection ---- */

static int64_t count_of(Doc stats, const char *name) {
    Elem field = doc_get(stats, str_from(name));
    return elem_is_number(field) ? elem_as_i64(field) : 0;
}

/* A shard that does not know the collection has no index of it. */
static bool has_collection(Doc stats) {
    return count_of(stats, "nindexes") > 0;
}

static void build_shard(DocBuilder *b, Str index, const char *shard, Doc stats) {
    int64_t orphans = count_of(stats, "numOrphanDocs");
    int64_t owned = count_of(stats, "count") - orphans;
    int64_t bytes = count_of(stats, "avgObjSize");
    size_t row = build_open_doc_str(b, index);
    build_cstr(b, "shardName", shard);
    build_count(b, "numOrphanedDocs", orphans);
    build_count(b, "numOwnedDocuments", owned);
    build_count(b, "ownedSizeBytes", owned * bytes);
    build_count(b, "orphanedSizeBytes", orphans * bytes);
    build_close(b, row);
}

/* Every shard is asked: one that owns nothing may still have orphans. */
static ErrCode ask_shards(CommandCtx *ctx, const ShardList *list, const Ns *ns,
                          ShardCalls *ret_calls, Error *err) {
    *ret_calls = shard_calls_new(ctx, list->count);
    for (uint32_t i = 0; i < list->count; i++) {
        DocBuilder b = doc_builder_in_arena(cmd_arena(ctx));
        build_str(&b, "collStats", ns_coll(ns));
        remote_build_end(ctx->service->cluster, &b, ns_db(ns), NULL, ELEM_MISSING);
        ret_calls->rows[i].shard = &list->rows[i];
        ret_calls->rows[i].body = doc_builder_end(&b);
    }
    if (list->count == 0)
        return ERR_OK;
    TRY(scatter_run(ctx, ret_calls, &(ScatterOptions){.retry = REMOTE_IDEMPOTENT}, err));
    return shard_calls_check(ret_calls, err);
}

static ErrCode build_collection(OpCtx *op, Str name, Doc *ret_doc, Error *err) {
    CommandCtx ctx = {.op = op, .service = op->service, .body = DOC_EMPTY};
    Ns ns;
    TRY(ns_parse(name, &ns, err));
    CLEANUP(shard_list_done) ShardList *list = NULL;
    TRY(cluster_newest_shards(op->service->cluster, op, &list, err));
    CLEANUP(shard_calls_done) ShardCalls calls = {0};
    TRY(ask_shards(&ctx, list, &ns, &calls, err));
    DocBuilder b = doc_builder_in_arena(&op->arena);
    build_str(&b, "ns", name);
    size_t shards = build_open_array(&b, "shards");
    uint32_t count = 0;
    for (uint32_t i = 0; i < calls.count; i++) {
        char index[INDEX_NAME_SIZE];
        Doc stats = calls.rows[i].reply.body;
        if (has_collection(stats))
            build_shard(&b, index_name(count++, index), calls.rows[i].shard->name, stats);
    }
    build_close(&b, shards);
    *ret_doc = doc_builder_end(&b);
    return ERR_OK;
}

/* ---- the stage ---- */

static ErrCode next_collection(void *arg, bool *ret_found, Doc *ret_doc, Error *err) {
    Distribution *run = arg;
    *ret_found = run->next < run->count;
    if (!*ret_found)
        return ERR_OK;
    TRY(op_check_interrupt(*run->op, err));
    return build_collection(*run->op, run->names[run->next++], ret_doc, err);
}

static ErrCode add_name(void *arg, Doc entry, Error *err) {
    (void)err;
    Distribution *run = arg;
    Elem id = doc_get_lit(entry, "_id");
    if (elem_type(id) != BT_STRING)
        return ERR_OK;
    Str name = elem_str(id);
    ARRAY_RESERVE(run->names, run->count, run->capacity);
    run->names[run->count++] = (Str){arena_strndup(&run->arena, name.data, name.size), name.size};
    return ERR_OK;
}

static void close_distribution(const AggSource *base, DocSource docs) {
    (void)base;
    Distribution *run = docs.arg;
    if (run == NULL)
        return;
    arena_done(&run->arena);
    xfree(run->names);
    xfree(run);
}

static ErrCode open_distribution(const AggSource *base, DocSource *ret_docs, Error *err) {
    const DistributionSource *source = (const DistributionSource *)base;
    OpCtx *op = *source->op;
    Distribution *run = NEW(Distribution);
    run->op = source->op;
    arena_init(&run->arena, ARENA_CHUNK_SIZE_DEFAULT);
    *ret_docs = (DocSource){.arg = run, .next = next_collection};
    ConfigQuery query = {.coll = "collections", .filter = DOC_EMPTY, .sort = DOC_NONE};
    ErrCode rc = config_each(op->service->cluster, op, &query, add_name, run, err);
    if (rc != ERR_OK) {
        close_distribution(base, *ret_docs);
        *ret_docs = (DocSource){0};
    }
    return rc;
}

static ErrCode parse_distribution(const AggSourceRow *row, Elem spec, Arena *arena,
                                  AggSource **ret_source, Error *err) {
    (void)spec, (void)err;
    DistributionSource *source = ARENA_NEW(arena, DistributionSource);
    source->base = (AggSource){open_distribution, close_distribution};
    source->op = row->arg;
    *ret_source = &source->base;
    return ERR_OK;
}

AggSourceRow distribution_row(OpCtx *const *op) {
    return (AggSourceRow){
        .name = STAGE,
        .is_collectionless = true,
        .parse = parse_distribution,
        .arg = (void *)op,
        .runs_once = true,
    };
}
