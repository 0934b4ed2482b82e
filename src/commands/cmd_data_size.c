/*
 * cmd_data_size.c - dataSize: how much a collection holds, or a range of it.
 *
 * All of a collection is told by its counters. A range is read, with the index that has its keys;
 * an estimate of it only counts its documents, and takes them to be of average size.
 */
#include "base/clock.h"
#include "bson/compare.h"
#include "catalog/access.h"
#include "commands/query_args.h"
#include "commands/support.h"
#include "query/plan/planner.h"
#include "request/catalog_requests.h"
#include "sharding/shard/placement.h"
#include "sharding/shard/refresh.h"
#include "sharding/shard/support_index.h"

typedef struct Sizing {
    int64_t bytes;
    int64_t objects;
    bool is_cut; /* a limit was reached */
} Sizing;

/* Bounds of no field at all are no range. */
static bool has_range(const DataSizeRequest *request) {
    return doc_is_present(request->min) &&
           !(doc_is_empty(request->min) && doc_is_empty(request->max));
}

/* The pattern of a range that has none: its bounds tell the fields. */
static Doc infer_pattern(Doc min, Arena *arena) {
    DocBuilder b = doc_builder_in_arena(arena);
    DocIter iter = doc_iter(min);
    for (Elem field; doc_iter_next(&iter, &field);)
        build_i32(&b, elem_name(field), 1);
    return doc_builder_end(&b);
}

static ErrCode extend_bound(const ShardKey *key, Doc given, const char *what, Arena *arena,
                            Doc *ret_bound, Error *err) {
    ErrCode rc =
        shard_key_extend_bound(key, given, /* with_max_key= */ false, what, arena, ret_bound, err);
    if (rc == ERR_SHARD_KEY_NOT_FOUND)
        err->code = ERR_BAD_VALUE; /* it is none of a shard key here */
    return err->code;
}

/* A pattern that is given is that of the shard key, if there is one. */
static ErrCode check_pattern(CommandCtx *ctx, const DataSizeRequest *request, const Ns *ns,
                             Error *err) {
    ShardState *shard = ctx->service->shard;
    if (!doc_is_present(request->key_pattern) || doc_is_empty(request->key_pattern) ||
        ctx->service->role != ROLE_SHARD || !shard_has_identity(shard))
        return ERR_OK;
    CLEANUP(collection_route_done) CollectionRoute *route = placement_find(shard, ns);
    if (route == NULL) {
        TRY(refresh_collection(shard, ctx->op, ns, err));
        route = placement_find(shard, ns);
    }
    if (route == NULL || route->map == NULL ||
        doc_compare(shard_key_pattern(chunk_map_key(route->map)), request->key_pattern, NULL) == 0)
        return ERR_OK;
    return error_set(err, ERR_BAD_VALUE, "keyPattern is not the shard key of %s", ns->text);
}

static ErrCode choose_range(CommandCtx *ctx, const DataSizeRequest *request, const Collection *coll,
                            QuerySpec *spec, Error *err) {
    Arena *arena = cmd_arena(ctx);
    CLEANUP(shard_key_unref_ptr) ShardKey *key = NULL;
    bool has_pattern = doc_is_present(request->key_pattern) && !doc_is_empty(request->key_pattern);
    TRY(shard_key_parse(has_pattern ? request->key_pattern : infer_pattern(request->min, arena),
                        &key, err));
    const IndexDesc *index = support_index_find(coll, key);
    if (index == NULL)
        return error_set(err, ERR_OPERATION_FAILED,
                         "\"%s\" has no index that finds ranges of the key pattern", coll->ns.text);
    DocBuilder b = doc_builder_in_arena(arena);
    build_cstr(&b, "hint", index->name);
    spec->hint = doc_get_lit(doc_builder_end(&b), "hint");
    Doc min, max;
    TRY(extend_bound(key, request->min, "min", arena, &min, err));
    TRY(extend_bound(key, request->max, "max", arena, &max, err));
    spec->min = query_index_bound(index, min, arena);
    spec->max = query_index_bound(index, max, arena);
    return ERR_OK;
}

static ErrCode read_sizes(CommandCtx *ctx, const DataSizeRequest *request, CollAccess *access,
                          Sizing *sizing, Error *err) {
    QuerySpec spec = {0};
    query_spec_defaults(ctx, &spec);
    if (has_range(request))
        TRY(choose_range(ctx, request, access->coll, &spec, err));
    CLEANUP(executor_free_ptr) PlanExecutor *exec = NULL;
    TRY(plan_query(access, &spec, &exec, err));
    int64_t count = record_store_count(access->coll->records);
    int64_t average = count > 0 ? record_store_data_size(access->coll->records) / count : 0;
    for (;;) {
        bool is_found;
        PlanRow row;
        TRY(executor_next(exec, &is_found, &row, err));
        if (!is_found)
            return ERR_OK;
        sizing->objects++;
        sizing->bytes += request->estimate ? average : (int64_t)doc_size(row.doc);
        sizing->is_cut = (request->bytes_max > 0 && sizing->bytes > request->bytes_max) ||
                         (request->objects_max > 0 && sizing->objects > request->objects_max);
        if (sizing->is_cut)
            return ERR_OK;
    }
}

static ErrCode data_size_run(CommandCtx *ctx, void *arg, Error *err) {
    const DataSizeRequest *request = arg;
    Ns ns;
    TRY(ns_parse(request->ns, &ns, err));
    if (doc_is_present(request->min) != doc_is_present(request->max))
        return error_set(err, ERR_BAD_VALUE, "dataSize takes both of min and max, or neither");
    TRY(check_pattern(ctx, request, &ns, err));
    CLEANUP(access_done) CollAccess access = {0};
    TRY(access_read(ctx->op, &ns, &access, err));
    if (access.view != NULL)
        return cmd_refuse_view(&ns, err);
    int64_t start_us = clock_mono_us();
    Sizing sizing = {0};
    bool is_read = has_range(request) || request->bytes_max > 0 || request->objects_max > 0;
    if (access.coll != NULL && is_read) {
        TRY(read_sizes(ctx, request, &access, &sizing, err));
    } else if (access.coll != NULL) {
        sizing.bytes = record_store_data_size(access.coll->records);
        sizing.objects = record_store_count(access.coll->records);
    }
    build_bool(ctx->reply, "estimate", request->estimate);
    build_count(ctx->reply, "size", sizing.bytes);
    build_count(ctx->reply, "numObjects", sizing.objects);
    build_count(ctx->reply, "millis", (clock_mono_us() - start_us) / 1000);
    if (sizing.is_cut)
        build_bool(ctx->reply, "maxReached", true);
    return ERR_OK;
}

const CommandSpec CMD_DATA_SIZE = {
    .name = "dataSize",
    .alias = "datasize",
    .summary = "Tells how many bytes of documents a collection holds, or a range of it.",
    .flags = CMD_NAMES_DB,
    .request = &DATA_SIZE_REQUEST,
    .run = data_size_run,
};
