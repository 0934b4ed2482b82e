/*
 * cmd_stage_debug.c - stageDebug, for tests: runs a tree of plan stages over a collection.
 *
 * A node is {<stage>: {args: {...}, filter: {...}}}; `args.node` or `args.nodes` are its inputs.
 * Documents are fetched where a stage or the answer needs them.
 */
#include "base/alloc.h"
#include "catalog/access.h"
#include "commands/query_args.h"
#include "commands/support.h"
#include "params/params.h"
#include "query/exec/executor.h"

enum {
    NODE_DEPTH_MAX = 20,
    NODES_MAX = 100,
    YIELD_PERIOD_US = 10 * 1000,
    SORT_MEMORY_BYTES = 16 * 1024 * 1024,
};

typedef struct DebugRequest {
    Doc stage;
} DebugRequest;

typedef struct Builder {
    CommandCtx *ctx;
    const Collection *coll;
    PlanExecutor *exec;
    uint32_t depth;
    uint32_t count;
    bool has_docs; /* the node that was built last gives documents, not only records */
} Builder;

typedef ErrCode (*MakeFn)(Builder *b, Doc args, const MatchExpr *filter, PlanStage **ret_stage,
                          Error *err);

static ErrCode build_node(Builder *b, Elem node, PlanStage **ret_stage, Error *err);

static ErrCode get_number(Doc args, const char *name, int64_t *ret_number, Error *err) {
    Elem number = doc_get(args, str_from(name));
    if (!elem_is_number(number) || elem_as_i64(number) < 0)
        return error_set(err, ERR_FAILED_TO_PARSE, "'args.%s' must be a number of at least 0",
                         name);
    *ret_number = elem_as_i64(number);
    return ERR_OK;
}

static ErrCode get_doc(Doc args, const char *name, Doc *ret_doc, Error *err) {
    Elem doc = doc_get(args, str_from(name));
    if (elem_type(doc) != BT_DOC)
        return error_set(err, ERR_FAILED_TO_PARSE, "'args.%s' must be a document", name);
    *ret_doc = elem_doc(doc);
    return ERR_OK;
}

static ErrCode get_direction(Doc args, bool *ret_is_forward, Error *err) {
    Elem direction = doc_get_lit(args, "direction");
    if (!elem_is_number(direction))
        return error_set(err, ERR_FAILED_TO_PARSE, "'args.direction' must be 1 or -1");
    *ret_is_forward = elem_as_f64(direction) >= 0;
    return ERR_OK;
}

static ErrCode make_collection_scan(Builder *b, Doc args, const MatchExpr *filter,
                                    PlanStage **ret_stage, Error *err) {
    ScanOptions options = {.filter = filter};
    TRY(get_direction(args, &options.is_forward, err));
    b->has_docs = true;
    *ret_stage = stage_collection_scan(b->exec, b->coll, &options);
    return ERR_OK;
}

static bool has_only_fields_of(const MatchExpr *filter, const IndexDesc *index) {
    if (filter->kind == MATCH_EXPR)
        return false;
    bool is_found = filter->path.count == 0;
    for (uint32_t f = 0; f < index->field_count && !is_found; f++)
        is_found = str_is(filter->path.dotted, index->fields[f].path);
    for (uint32_t i = 0; filter->path.count == 0 && i < filter->child_count; i++)
        is_found &= has_only_fields_of(filter->children[i], index);
    return is_found;
}

/* By its pattern, or else by its name. */
static bool is_asked(const IndexDesc *index, Doc args) {
    Elem pattern = doc_get_lit(args, "keyPattern"), name = doc_get_lit(args, "name");
    if (index->store == NULL || !index->is_ready || index->kind != INDEX_KIND_ORDERED)
        return false;
    return elem_type(pattern) == BT_DOC
               ? doc_compare(index->key_pattern, elem_doc(pattern), NULL) == 0
               : elem_type(name) == BT_STRING && str_is(elem_str(name), index->name);
}

static ErrCode find_index(const Builder *b, Doc args, IndexDesc **ret_index, Error *err) {
    *ret_index = NULL;
    for (uint32_t i = 0; i < b->coll->index_count; i++) {
        IndexDesc *index = b->coll->indexes[i];
        if (!is_asked(index, args))
            continue;
        if (*ret_index != NULL)
            return error_set(err, ERR_AMBIGUOUS_INDEX_KEY_PATTERN,
                             "the collection has several indexes of that pattern");
        *ret_index = index;
    }
    return *ret_index != NULL
               ? ERR_OK
               : error_set(err, ERR_INDEX_NOT_FOUND, "the collection has no such ordered index");
}

static ErrCode make_index_scan(Builder *b, Doc args, const MatchExpr *filter, PlanStage **ret_stage,
                               Error *err) {
    IndexDesc *index = NULL;
    Doc start, end;
    bool is_forward;
    TRY(find_index(b, args, &index, err));
    TRY(get_doc(args, "startKey", &start, err));
    TRY(get_doc(args, "endKey", &end, err));
    TRY(get_direction(args, &is_forward, err));
    if (doc_count(start) > index->field_count || doc_count(end) > index->field_count)
        return error_set(err, ERR_FAILED_TO_PARSE, "a key has more fields than the index");
    if (filter != NULL && !has_only_fields_of(filter, index))
        return error_set(err, ERR_BAD_VALUE,
                         "the filter of an index scan has fields that its keys do not have");
    if (filter != NULL && index->collator != NULL)
        return error_set(err, ERR_BAD_VALUE, "the keys of a collation cannot be filtered");
    bool has_start = elem_is_truthy(doc_get_lit(args, "startKeyInclusive"));
    bool has_end = elem_is_truthy(doc_get_lit(args, "endKeyInclusive"));
    IndexBounds *bounds = ARENA_NEW(&b->exec->arena, IndexBounds);
    if (is_forward)
        bounds_between(index, start, has_start, end, has_end, &b->exec->arena, bounds);
    else
        bounds_between(index, end, has_end, start, has_start, &b->exec->arena, bounds);
    uint32_t all_fields = (uint32_t)((UINT64_C(1) << index->field_count) - 1);
    IndexScanOptions options = {.index = index,
                                .bounds = bounds,
                                .is_forward = is_forward,
                                .key_fields = filter != NULL ? all_fields : 0,
                                .filter = filter};
    b->has_docs = false;
    *ret_stage = stage_index_scan(b->exec, &options);
    return ERR_OK;
}

static ErrCode build_input(Builder *b, Doc args, PlanStage **ret_stage, Error *err) {
    return build_node(b, doc_get_lit(args, "node"), ret_stage, err);
}

static PlanStage *with_docs(Builder *b, PlanStage *stage) {
    if (b->has_docs)
        return stage;
    b->has_docs = true;
    return stage_fetch(b->exec, b->coll, stage, /* filter= */ NULL, /* whole= */ NULL);
}

/* As siblings, with documents. */
static ErrCode build_inputs(Builder *b, Doc args, PlanStage **ret_first, Error *err) {
    Elem nodes = doc_get_lit(args, "nodes");
    if (elem_type(nodes) != BT_ARRAY || doc_is_empty(elem_doc(nodes)))
        return error_set(err, ERR_FAILED_TO_PARSE, "'args.nodes' must be an array of nodes");
    PlanStage *first = NULL, **place = &first;
    DocIter iter = doc_iter(elem_doc(nodes));
    for (Elem node; doc_iter_next(&iter, &node); place = &(*place)->sibling) {
        ErrCode rc = build_node(b, node, place, err);
        while (rc != ERR_OK && first != NULL) {
            PlanStage *next = first->sibling;
            stage_free_all(first);
            first = next;
        }
        TRY(rc);
        *place = with_docs(b, *place);
    }
    *ret_first = first;
    return ERR_OK;
}

static ErrCode make_fetch(Builder *b, Doc args, const MatchExpr *filter, PlanStage **ret_stage,
                          Error *err) {
    PlanStage *input;
    TRY(build_input(b, args, &input, err));
    b->has_docs = true;
    *ret_stage = stage_fetch(b->exec, b->coll, input, filter, filter);
    return ERR_OK;
}

static ErrCode get_count_and_input(Builder *b, Doc args, int64_t *ret_count, PlanStage **ret_input,
                                   Error *err) {
    TRY(get_number(args, "num", ret_count, err));
    return build_input(b, args, ret_input, err);
}

static ErrCode make_limit(Builder *b, Doc args, const MatchExpr *filter, PlanStage **ret_stage,
                          Error *err) {
    (void)filter;
    int64_t count;
    PlanStage *input;
    TRY(get_count_and_input(b, args, &count, &input, err));
    *ret_stage = stage_limit(b->exec, input, count);
    return ERR_OK;
}

static ErrCode make_skip(Builder *b, Doc args, const MatchExpr *filter, PlanStage **ret_stage,
                         Error *err) {
    (void)filter;
    int64_t count;
    PlanStage *input;
    TRY(get_count_and_input(b, args, &count, &input, err));
    *ret_stage = stage_skip(b->exec, input, count);
    return ERR_OK;
}

static ErrCode get_pattern(Builder *b, Doc args, SortPattern **ret_pattern, Error *err) {
    Doc pattern;
    TRY(get_doc(args, "pattern", &pattern, err));
    return sort_pattern_parse(pattern, SORT_SYNTAX_STAGE, &b->exec->arena, ret_pattern, err);
}

static ErrCode make_sort(Builder *b, Doc args, const MatchExpr *filter, PlanStage **ret_stage,
                         Error *err) {
    (void)filter;
    SortPattern *pattern;
    PlanStage *input;
    SortOptions options = {.memory_bytes = SORT_MEMORY_BYTES, .spill_dir = spill_dir(b->ctx)};
    TRY(get_pattern(b, args, &pattern, err));
    if (elem_is_present(doc_get_lit(args, "limit")))
        TRY(get_number(args, "limit", &options.limit, err));
    options.pattern = pattern;
    TRY(build_input(b, args, &input, err));
    *ret_stage = stage_sort(b->exec, with_docs(b, input), &options);
    return ERR_OK;
}

static ErrCode make_merge(Builder *b, Doc args, const MatchExpr *filter, PlanStage **ret_stage,
                          Error *err) {
    (void)filter;
    SortPattern *pattern;
    PlanStage *inputs;
    TRY(get_pattern(b, args, &pattern, err));
    TRY(build_inputs(b, args, &inputs, err));
    *ret_stage = stage_merge(b->exec, inputs, pattern, NULL);
    return ERR_OK;
}

static ErrCode make_union(Builder *b, Doc args, const MatchExpr *filter, PlanStage **ret_stage,
                          Error *err) {
    (void)filter;
    PlanStage *inputs;
    Elem dedup = doc_get_lit(args, "dedup");
    if (elem_is_present(dedup) && !elem_is_truthy(dedup))
        return error_set(err, ERR_NOT_IMPLEMENTED, "'or' gives each record once");
    TRY(build_inputs(b, args, &inputs, err));
    *ret_stage = stage_union(b->exec, inputs);
    return ERR_OK;
}

static const struct {
    const char *name;
    MakeFn make;
    bool has_filter;
} STAGES[] = {
    {"cscan", make_collection_scan, true},
    {"fetch", make_fetch, true},
    {"ixscan", make_index_scan, true},
    {"limit", make_limit, false},
    {"mergeSort", make_merge, false},
    {"or", make_union, false},
    {"skip", make_skip, false},
    {"sort", make_sort, false},
};

static ErrCode parse_filter(Builder *b, Elem given, const MatchExpr **ret_filter, Error *err) {
    *ret_filter = NULL;
    if (!elem_is_present(given))
        return ERR_OK;
    if (elem_type(given) != BT_DOC)
        return error_set(err, ERR_FAILED_TO_PARSE, "'filter' must be a document");
    if (doc_is_empty(elem_doc(given)))
        return ERR_OK;
    MatchExpr *filter;
    MatchParseContext context = {0};
    Arena *arena = &b->exec->arena;
    TRY(match_parse(doc_copy(elem_doc(given), arena), &context, arena, &filter, err));
    *ret_filter = filter;
    return ERR_OK;
}

static ErrCode build_stage(Builder *b, Elem stage, PlanStage **ret_stage, Error *err) {
    Elem args = doc_get_lit(elem_doc(stage), "args");
    if (elem_type(args) != BT_DOC)
        return error_set(err, ERR_FAILED_TO_PARSE, "'%s.args' must be a document",
                         elem_name(stage));
    for (size_t i = 0; i < ARRAY_LEN(STAGES); i++) {
        if (!str_is(elem_name_str(stage), STAGES[i].name))
            continue;
        const MatchExpr *filter;
        TRY(parse_filter(b, doc_get_lit(elem_doc(stage), "filter"), &filter, err));
        if (filter != NULL && !STAGES[i].has_filter)
            return error_set(err, ERR_BAD_VALUE, "the stage '%s' takes no filter", STAGES[i].name);
        return STAGES[i].make(b, elem_doc(args), filter, ret_stage, err);
    }
    return error_set(err, ERR_NOT_IMPLEMENTED, "stageDebug does not support the stage '%s'",
                     elem_name(stage));
}

static ErrCode build_node(Builder *b, Elem node, PlanStage **ret_stage, Error *err) {
    *ret_stage = NULL;
    DocIter iter = doc_iter(elem_type(node) == BT_DOC ? elem_doc(node) : DOC_EMPTY);
    Elem stage;
    if (!doc_iter_next(&iter, &stage) || elem_type(stage) != BT_DOC)
        return error_set(err, ERR_FAILED_TO_PARSE, "a node must be {<stage>: {args: ...}}");
    if (b->depth == NODE_DEPTH_MAX || ++b->count > NODES_MAX)
        return error_set(err, ERR_BAD_VALUE, "a plan may have %d nodes, nested %d deep", NODES_MAX,
                         NODE_DEPTH_MAX);
    b->depth++;
    ErrCode rc = build_stage(b, stage, ret_stage, err);
    b->depth--;
    return rc;
}

static ErrCode run_plan(CommandCtx *ctx, PlanExecutor *exec, Error *err) {
    size_t results = build_open_array(ctx->reply, "results");
    for (uint32_t count = 0;; count++) {
        bool is_found;
        PlanRow row;
        TRY(executor_next(exec, &is_found, &row, err));
        if (!is_found)
            break;
        char name[INDEX_NAME_SIZE];
        build_doc(ctx->reply, index_name(count, name).data, row.doc);
        if (ctx->reply->buf->size > BSON_DOC_SIZE_MAX)
            return error_set(err, ERR_BSON_OBJECT_TOO_LARGE, "the results are larger than a reply");
    }
    build_close(ctx->reply, results);
    return ERR_OK;
}

static ErrCode stage_debug_run(CommandCtx *ctx, void *arg, Error *err) {
    const DebugRequest *request = arg;
    Elem coll = doc_get_lit(request->stage, "collection");
    if (elem_type(coll) != BT_STRING)
        return error_set(err, ERR_TYPE_MISMATCH, "'stageDebug.collection' must be a string");
    Ns ns;
    TRY(cmd_ns(ctx, elem_str(coll), &ns, err));
    CLEANUP(access_done) CollAccess access = {0};
    TRY(access_read(ctx->op, &ns, &access, err));
    if (access.coll == NULL)
        return error_set(err, ERR_NAMESPACE_NOT_FOUND, "collection \"%s\" does not exist", ns.text);
    CLEANUP(executor_free_ptr) PlanExecutor *exec = executor_new(&ns);
    exec->uuid = access.coll->uuid;
    exec->has_coll = true;
    exec->yields.period_us = YIELD_PERIOD_US;
    Builder b = {.ctx = ctx, .coll = access.coll, .exec = exec};
    TRY(build_node(&b, doc_get_lit(request->stage, "plan"), &exec->root, err));
    exec->root = with_docs(&b, exec->root);
    executor_attach(exec, &access);
    return run_plan(ctx, exec, err);
}

static const FieldSpec DEBUG_FIELDS[] = {
    {"stageDebug", FIELD_DOC, FIELD_REQUIRED, offsetof(DebugRequest, stage)},
};

const CommandSpec CMD_STAGE_DEBUG = {
    .name = "stageDebug",
    .summary = "For tests: runs a tree of plan stages.",
    .flags = CMD_READS | CMD_NEEDS_TEST_COMMANDS,
    .request = REQUEST_OF(DebugRequest, DEBUG_FIELDS),
    .run = stage_debug_run,
};
