/*
 * cmd_split_vector.c - splitVector: at which keys a range of a collection is to be cut.
 *
 * Reads the keys of the index that has the key pattern, and not documents: how many make half a
 * chunk is told by their average size.
 */
#include "catalog/access.h"
#include "commands/query_args.h"
#include "commands/support.h"
#include "query/plan/planner.h"
#include "request/request.h"
#include "sharding/shard/support_index.h"

enum {
    CHUNK_OBJECTS_MAX = 250000,        /* of a piece, unless told otherwise */
    SPLIT_KEYS_BYTES_MAX = 8 << 20,    /* of a reply; who wants more asks again behind it */
    CHUNK_MEGABYTES_MAX = 1024 * 1024, /* larger ones are no sizes of chunks */
};

typedef struct SplitVectorRequest {
    Str ns;
    Doc key_pattern;
    Doc min;
    Doc max;
    Elem chunk_bytes;
    Elem chunk_megabytes;
    int64_t points_max;  /* 0: any number */
    int64_t objects_max; /* 0: CHUNK_OBJECTS_MAX */
    bool is_forced;
} SplitVectorRequest;

typedef struct Splitting {
    CommandCtx *ctx;
    const SplitVectorRequest *request;
    CollAccess access;
    ShardKey *key;
    QuerySpec spec;
} Splitting;

static void splitting_done(Splitting *s) {
    access_done(&s->access);
    shard_key_unref(s->key);
}

/* ---- the range ---- */

static ErrCode choose_range(Splitting *s, const IndexDesc *index, Error *err) {
    Arena *arena = cmd_arena(s->ctx);
    const SplitVectorRequest *request = s->request;
    DocBuilder b = doc_builder_in_arena(arena);
    build_cstr(&b, "hint", index->name);
    s->spec = (QuerySpec){.hint = doc_get_lit(doc_builder_end(&b), "hint"), .is_return_key = true};
    query_spec_defaults(s->ctx, &s->spec);
    if (doc_is_present(request->min) != doc_is_present(request->max))
        return error_set(err, ERR_BAD_VALUE, "splitVector takes both of min and max, or neither");
    if (!doc_is_present(request->min))
        return ERR_OK;
    Doc min, max;
    TRY(shard_key_extend_bound(s->key, request->min, /* with_max_key= */ false, "min", arena, &min,
                               err));
    TRY(shard_key_extend_bound(s->key, request->max, /* with_max_key= */ false, "max", arena, &max,
                               err));
    s->spec.min = query_index_bound(index, min, arena);
    /* MaxKey is a value that documents may have: the last chunk has no upper end. */
    if (shard_key_compare(max, shard_key_max(s->key, arena)) != 0)
        s->spec.max = query_index_bound(index, max, arena);
    return ERR_OK;
}

/* ---- keys ---- */

/* Its first fields, those of the shard key. */
static Doc shard_key_part(const Splitting *s, Doc index_key, Arena *arena) {
    uint32_t count;
    (void)shard_key_fields(s->key, &count);
    DocBuilder b = doc_builder_in_arena(arena);
    DocIter iter = doc_iter(index_key);
    Elem field;
    for (uint32_t i = 0; i < count && doc_iter_next(&iter, &field); i++)
        build_elem(&b, field);
    return doc_builder_end(&b);
}

typedef struct KeyScan {
    int64_t step;       /* a key is taken after so many others */
    int64_t points_max; /* 0: any number */
    int64_t seen_count;
    int64_t point_count;
    DocBuilder *list; /* NULL: they are only counted */
} KeyScan;

/* Never the first key of the range, and never one twice: a key that is more frequent than a piece
 * is large stays whole. */
static ErrCode scan_keys(Splitting *s, KeyScan *scan, Error *err) {
    Arena *arena = cmd_arena(s->ctx);
    CLEANUP(executor_free_ptr) PlanExecutor *exec = NULL;
    TRY(plan_query(&s->access, &s->spec, &exec, err));
    Doc last = DOC_NONE;
    size_t bytes = 0;
    for (int64_t in_piece = 0;; in_piece++) {
        bool is_found;
        PlanRow row;
        TRY(executor_next(exec, &is_found, &row, err));
        if (!is_found)
            return ERR_OK;
        scan->seen_count++;
        bool is_first = !doc_is_present(last);
        if (scan->list == NULL || (!is_first && in_piece < scan->step))
            continue;
        ArenaMark mark = arena_mark(arena);
        Doc key = shard_key_part(s, row.doc, arena);
        if (!is_first && shard_key_compare(key, last) == 0) {
            arena_rewind(arena, mark);
            continue;
        }
        last = key;
        in_piece = 0;
        if (is_first)
            continue;
        char name[INDEX_NAME_SIZE];
        build_doc(scan->list, index_name((uint32_t)scan->point_count++, name).data, key);
        bytes += doc_size(key);
        if (scan->point_count == scan->points_max || bytes > SPLIT_KEYS_BYTES_MAX)
            return ERR_OK;
    }
}

/* ---- sizes ---- */

static ErrCode parse_chunk_bytes(const SplitVectorRequest *request, int64_t *ret_bytes,
                                 Error *err) {
    Elem bytes = request->chunk_bytes, megabytes = request->chunk_megabytes;
    double size = 0;
    if (elem_is_number(bytes))
        size = elem_as_f64(bytes);
    else if (elem_is_number(megabytes))
        size = elem_as_f64(megabytes) * 1024 * 1024;
    else
        return error_set(err, ERR_INVALID_OPTIONS,
                         "splitVector needs maxChunkSizeBytes or maxChunkSize, or force");
    if (!(size >= 1 && size <= (double)CHUNK_MEGABYTES_MAX * 1024 * 1024))
        return error_set(err, ERR_INVALID_OPTIONS, "the size of a chunk has to be positive");
    *ret_bytes = (int64_t)size;
    return ERR_OK;
}

/* How many documents make half of a chunk; 0: there is nothing to split. */
static ErrCode choose_step(const Splitting *s, int64_t *ret_step, Error *err) {
    int64_t chunk_bytes = 0;
    TRY(parse_chunk_bytes(s->request, &chunk_bytes, err));
    const RecordStore *records = s->access.coll->records;
    int64_t bytes = record_store_data_size(records), count = record_store_count(records);
    *ret_step = 0;
    if (count <= 0 || bytes < chunk_bytes)
        return ERR_OK;
    int64_t average = bytes / count > 0 ? bytes / count : 1;
    int64_t objects_max = s->request->objects_max > 0 ? s->request->objects_max : CHUNK_OBJECTS_MAX;
    *ret_step = chunk_bytes / (2 * average);
    if (*ret_step > objects_max)
        *ret_step = objects_max;
    if (*ret_step < 1)
        *ret_step = 1;
    return ERR_OK;
}

/* The key in the middle; behind it, if that is the first one. */
static ErrCode add_middle(Splitting *s, DocBuilder *list, Error *err) {
    KeyScan all = {0};
    TRY(scan_keys(s, &all, err));
    KeyScan middle = {.step = all.seen_count / 2, .points_max = 1, .list = list};
    return scan_keys(s, &middle, err);
}

static ErrCode add_points(Splitting *s, DocBuilder *list, Error *err) {
    if (s->request->is_forced)
        return add_middle(s, list, err);
    KeyScan scan = {.points_max = s->request->points_max, .list = list};
    TRY(choose_step(s, &scan.step, err));
    return scan.step == 0 ? ERR_OK : scan_keys(s, &scan, err);
}

static ErrCode split_vector_run(CommandCtx *ctx, void *arg, Error *err) {
    Ns ns;
    CLEANUP(splitting_done) Splitting s = {.ctx = ctx, .request = arg};
    TRY(ns_parse(s.request->ns, &ns, err));
    TRY(shard_key_parse(s.request->key_pattern, &s.key, err));
    TRY(access_read(ctx->op, &ns, &s.access, err));
    if (s.access.view != NULL)
        return cmd_refuse_view(&ns, err);
    if (s.access.coll == NULL)
        return error_set(err, ERR_NAMESPACE_NOT_FOUND, "there is no collection %s", ns.text);
    const IndexDesc *index = support_index_find(s.access.coll, s.key);
    if (index == NULL)
        return error_set(err, ERR_INDEX_NOT_FOUND,
                         "%s has no index that finds ranges of the key pattern", ns.text);
    TRY(choose_range(&s, index, err));
    size_t list = build_open_array(ctx->reply, "splitKeys");
    TRY(add_points(&s, ctx->reply, err));
    build_close(ctx->reply, list);
    return ERR_OK;
}

static const FieldSpec SPLIT_VECTOR_FIELDS[] = {
    {"splitVector", FIELD_STRING, FIELD_REQUIRED, offsetof(SplitVectorRequest, ns)},
    {"keyPattern", FIELD_DOC, FIELD_REQUIRED, offsetof(SplitVectorRequest, key_pattern)},
    {"min", FIELD_DOC, FIELD_OPTIONAL, offsetof(SplitVectorRequest, min)},
    {"max", FIELD_DOC, FIELD_OPTIONAL, offsetof(SplitVectorRequest, max)},
    {"maxChunkSizeBytes", FIELD_ELEM, FIELD_OPTIONAL, offsetof(SplitVectorRequest, chunk_bytes)},
    {"maxChunkSize", FIELD_ELEM, FIELD_OPTIONAL, offsetof(SplitVectorRequest, chunk_megabytes)},
    {"maxSplitPoints", FIELD_COUNT, FIELD_OPTIONAL, offsetof(SplitVectorRequest, points_max)},
    {"maxChunkObjects", FIELD_COUNT, FIELD_OPTIONAL, offsetof(SplitVectorRequest, objects_max)},
    {"force", FIELD_BOOL, FIELD_OPTIONAL, offsetof(SplitVectorRequest, is_forced)},
};

const CommandSpec CMD_SPLIT_VECTOR = {
    .name = "splitVector",
    .summary = "Tells at which keys a range of a collection could be split.",
    .flags = CMD_READS,
    .request = REQUEST_OF(SplitVectorRequest, SPLIT_VECTOR_FIELDS),
    .run = split_vector_run,
};
