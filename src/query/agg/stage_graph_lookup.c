/*
 * stage_graph_lookup.c - $graphLookup: follows references from document to document.
 *
 * A search in breadth. The frontier holds the values to look for next; each round asks the other
 * collection for the documents with one of them, adds those not met before to the result, and puts
 * what they refer to in the next frontier. A value is looked for once, a document is taken once.
 */
#include "bson/json.h"
#include "query/agg/agg_internal.h"
#include "query/expr/value_set.h"

enum {
    FILTER_VALUES_MAX = 1000,           /* looked for at once */
    FILTER_BYTES_MAX = 4 * 1024 * 1024, /* one value more may be in it */
};

typedef struct GraphExec {
    AggStageExec base;
    Arena arena; /* of one search: both sets */
    ValueSet values;
    ValueSet ids;
    DocList results;
    Buffer with_depth;
    Buffer array;
    UnwoundBuffers unwound; /* its `out` also for whole results */
    /* With an $unwind of the results behind it. */
    bool is_unwinding;
    Doc doc; /* of the input; stays until we pull again */
    int64_t index;
} GraphExec;

static ErrCode check_args(const GraphStage *stage, Error *err);
static ErrCode graph_init(AggStageExec *base, Error *err);
static void graph_done(AggStageExec *base);
static ErrCode graph_next(AggStageExec *base, bool *ret_found, Doc *ret_doc, Error *err);
static bool graph_add_paths(const AggStage *base, PathSet *set);
static bool graph_preserves_path(const AggStage *base, Str dotted);
static Str graph_foreign(const AggStage *base, Str *ret_db);
static void graph_to_bson(const AggStage *base, DocBuilder *b);
static void graph_write(const AggStage *base, StageList *list);
static ErrCode next_unwound(GraphExec *exec, bool *ret_found, Doc *ret_doc, Error *err);
static ErrCode search(GraphExec *exec, Error *err);

const AggStageClass AGG_GRAPH_LOOKUP = {
    .name = "$graphLookup",
    .exec_size = sizeof(GraphExec),
    .exec_init = graph_init,
    .exec_done = graph_done,
    .next = graph_next,
    .meta = AGG_META_KEPT,
    .add_paths = graph_add_paths,
    .preserves_path = graph_preserves_path,
    .to_bson = graph_to_bson,
    .write = graph_write,
    .is_one_to_one = true,
    .uses_foreign = true,
    .runs = AGG_RUNS_BY_FOREIGN,
    .foreign = graph_foreign,
};

static ErrCode parse_depth_max(AggParser *p, Elem elem, int64_t *ret_depth, Error *err) {
    if (!elem_is_number(elem))
        return error_set(err, (ErrCode)40100, "maxDepth must be numeric, found type: %s",
                         bson_type_name(elem_type(elem)));
    if (!number_is_exact_i64(number_from_elem(elem), ret_depth))
        return error_set(err, (ErrCode)40102,
                         "maxDepth could not be represented as a long long: %s",
                         shell_text_of_elem(elem, p->arena));
    if (*ret_depth < 0)
        return error_set(err, (ErrCode)40101, "maxDepth requires a nonnegative argument, found: %s",
                         shell_text_of_elem(elem, p->arena));
    return ERR_OK;
}

static ErrCode parse_restriction(AggParser *p, Elem elem, GraphStage *stage, Error *err) {
    if (elem_type(elem) != BT_DOC)
        return error_set(err, (ErrCode)40185, "restrictSearchWithMatch must be an object, found %s",
                         bson_type_name(elem_type(elem)));
    MatchExpr *checked;
    TRY(match_parse(elem_doc(elem), &p->pipeline->match_ctx, p->arena, &checked, err));
    stage->restriction = elem_doc(elem);
    return ERR_OK;
}

static ErrCode parse_path_arg(AggParser *p, Elem elem, FieldPath *ret_path, Error *err) {
    Str dotted = elem_str(elem);
    TRY(expr_check_path(dotted, err));
    return path_parse(dotted, p->arena, ret_path, err);
}

static ErrCode parse_reference_arg(AggParser *p, Elem elem, FieldPath *ret_path, Error *err) {
    Str dotted = elem_str(elem);
    TRY(expr_check_path(dotted, err));
    return path_parse_reference(dotted, p->arena, ret_path, err);
}

static ErrCode parse_arg(AggParser *p, Elem elem, GraphStage *stage, Error *err) {
    if (elem_name_is(elem, STR("startWith")))
        return expr_parse(elem, &p->ctx->expr, p->arena, &stage->start_with, err);
    if (elem_name_is(elem, STR("maxDepth")))
        return parse_depth_max(p, elem, &stage->depth_max, err);
    if (elem_name_is(elem, STR("restrictSearchWithMatch")))
        return parse_restriction(p, elem, stage, err);
    static const char *const STRINGS[] = {"as", "connectFromField", "connectToField", "depthField",
                                          "from"};
    bool is_known = false;
    for (size_t i = 0; i < ARRAY_LEN(STRINGS); i++)
        is_known |= str_is(elem_name_str(elem), STRINGS[i]);
    if (!is_known)
        return error_set(err, (ErrCode)40104, "Unknown argument to $graphLookup: %s",
                         elem_name(elem));
    if (elem_name_is(elem, STR("from")) && elem_type(elem) != BT_STRING)
        return error_set(err, ERR_FAILED_TO_PARSE,
                         "$graphLookup 'from' field must be a string, but found %s",
                         bson_type_name(elem_type(elem)));
    if (elem_type(elem) != BT_STRING)
        return error_set(err, (ErrCode)40103, "expected string as argument for %s, found: %s",
                         elem_name(elem), bson_type_name(elem_type(elem)));
    if (elem_name_is(elem, STR("from"))) {
        stage->from = elem_str(elem);
        return stage->from.size > 0 ? ERR_OK
                                    : error_set(err, ERR_INVALID_NAMESPACE,
                                                "Invalid namespace specified for $graphLookup");
    }
    if (elem_name_is(elem, STR("as")))
        return parse_path_arg(p, elem, &stage->as, err);
    if (elem_name_is(elem, STR("connectFromField")))
        return parse_reference_arg(p, elem, &stage->connect_from, err);
    if (elem_name_is(elem, STR("depthField")))
        return parse_path_arg(p, elem, &stage->depth_field, err);
    FieldPath checked;
    TRY(parse_path_arg(p, elem, &checked, err));
    stage->connect_to = elem_str(elem);
    return ERR_OK;
}

ErrCode parse_graph_lookup(AggParser *p, Elem spec, Error *err) {
    if (elem_type(spec) != BT_DOC)
        return error_set(err, ERR_FAILED_TO_PARSE,
                         "the $graphLookup stage specification must be an object, but found %s",
                         bson_type_name(elem_type(spec)));
    GraphStage parsed = {.depth_max = -1, .restriction = DOC_NONE};
    DocIter iter = doc_iter(elem_doc(spec));
    for (Elem elem; doc_iter_next(&iter, &elem);)
        TRY(parse_arg(p, elem, &parsed, err));
    TRY(check_args(&parsed, err));
    GraphStage *stage = agg_add_stage(p, &AGG_GRAPH_LOOKUP, sizeof(*stage), spec);
    parsed.base = stage->base;
    *stage = parsed;
    return ERR_OK;
}

static ErrCode check_args(const GraphStage *stage, Error *err) {
    if (stage->from.size == 0)
        return error_set(err, ERR_FAILED_TO_PARSE, "must specify 'from' field for a $graphLookup");
    if (stage->as.count > 0 && stage->start_with != NULL && stage->connect_from.count > 0 &&
        stage->connect_to.size > 0)
        return ERR_OK;
    return error_set(err, (ErrCode)40105,
                     "$graphLookup requires 'from', 'as', 'startWith', 'connectFromField', and "
                     "'connectToField' to be specified.");
}

static ErrCode graph_init(AggStageExec *base, Error *err) {
    (void)err;
    GraphExec *exec = (GraphExec *)base;
    arena_init(&exec->arena, 0);
    doc_list_init(&exec->results, agg_memory_bytes_max(base));
    buffer_init(&exec->with_depth, VALUE_SIZE_MAX);
    buffer_init(&exec->array, VALUE_SIZE_MAX);
    buffer_init(&exec->unwound.out, VALUE_SIZE_MAX);
    buffer_init(&exec->unwound.with_index, VALUE_SIZE_MAX);
    return ERR_OK;
}

static void graph_done(AggStageExec *base) {
    GraphExec *exec = (GraphExec *)base;
    arena_done(&exec->arena);
    doc_list_done(&exec->results);
    buffer_done(&exec->with_depth);
    buffer_done(&exec->array);
    buffer_done(&exec->unwound.out);
    buffer_done(&exec->unwound.with_index);
}

static ErrCode graph_next(AggStageExec *base, bool *ret_found, Doc *ret_doc, Error *err) {
    GraphExec *exec = (GraphExec *)base;
    const GraphStage *stage = (const GraphStage *)base->stage;
    if (stage->unwind != NULL)
        return next_unwound(exec, ret_found, ret_doc, err);
    Doc doc;
    TRY(agg_pull(base, ret_found, &doc, err));
    if (!*ret_found)
        return ERR_OK;
    agg_begin_doc(base, doc);
    TRY(search(exec, err));

    buffer_clear(&exec->array);
    DocBuilder b;
    doc_builder_init(&b, &exec->array);
    Doc found;
    for (uint32_t i = 0; doc_list_next(&exec->results, &found); i++) {
        char name[INDEX_NAME_SIZE];
        build_value_as(&b, index_name(i, name), value_doc(found));
    }
    Doc array;
    TRY(doc_builder_finish(&b, "$graphLookup result", &array, err));
    buffer_clear(&exec->unwound.out);
    doc_builder_init(&b, &exec->unwound.out);
    agg_set_path(&b, &stage->as, doc, value_array(array));
    return doc_builder_finish(&b, "$graphLookup document", ret_doc, err);
}

static ErrCode emit_unwound(GraphExec *exec, Value element, Value index, Doc *ret_doc, Error *err) {
    const GraphStage *stage = (const GraphStage *)exec->base.stage;
    return agg_unwound_build(stage->unwind, &stage->as, exec->doc, element, index, &exec->unwound,
                             ret_doc, err);
}

static ErrCode next_unwound(GraphExec *exec, bool *ret_found, Doc *ret_doc, Error *err) {
    const GraphStage *stage = (const GraphStage *)exec->base.stage;
    while (true) {
        if (!exec->is_unwinding) {
            TRY(agg_pull(&exec->base, ret_found, &exec->doc, err));
            if (!*ret_found)
                return ERR_OK;
            agg_begin_doc(&exec->base, exec->doc);
            TRY(search(exec, err));
            exec->is_unwinding = true;
            exec->index = 0;
        }
        Doc found;
        *ret_found = true;
        if (doc_list_next(&exec->results, &found))
            return emit_unwound(exec, value_doc(found), value_i64(exec->index++), ret_doc, err);
        exec->is_unwinding = false;
        if (exec->index == 0 && stage->unwind->preserves_empty)
            return emit_unwound(exec, VALUE_MISSING, VALUE_NULL, ret_doc, err);
    }
}

static void graph_to_bson(const AggStage *base, DocBuilder *b) {
    const GraphStage *stage = (const GraphStage *)base;
    size_t opened = build_open_doc(b, "$graphLookup");
    build_all(b, elem_doc(base->spec));
    agg_unwound_explain(stage->unwind, b);
    build_close(b, opened);
}

/* For another node the two stages that it was made of. */
static void graph_write(const AggStage *base, StageList *list) {
    const GraphStage *stage = (const GraphStage *)base;
    size_t opened = stage_list_open(list);
    build_elem(&list->b, base->spec);
    build_close(&list->b, opened);
    if (stage->unwind == NULL)
        return;
    opened = stage_list_open(list);
    build_elem(&list->b, stage->unwind->base.spec);
    build_close(&list->b, opened);
}

static bool graph_add_paths(const AggStage *base, PathSet *set) {
    expr_add_paths(((const GraphStage *)base)->start_with, set);
    return false;
}

static Str graph_foreign(const AggStage *base, Str *ret_db) {
    *ret_db = STR("");
    return ((const GraphStage *)base)->from;
}

static bool are_on_one_path(Str a, Str b) {
    return path_is_prefix(a, b) || path_is_prefix(b, a);
}

static bool graph_preserves_path(const AggStage *base, Str dotted) {
    const GraphStage *stage = (const GraphStage *)base;
    if (stage->unwind != NULL && stage->unwind->index_path.count > 0 &&
        are_on_one_path(stage->unwind->index_path.dotted, dotted))
        return false;
    return !are_on_one_path(stage->as.dotted, dotted);
}

/* ---- the search ---- */

static ErrCode check_memory(const GraphExec *exec, bool is_full, Error *err) {
    if (!is_full &&
        arena_used(&exec->arena) + exec->results.buf.size <= agg_memory_bytes_max(&exec->base))
        return ERR_OK;
    return error_set(err, (ErrCode)40099, "$graphLookup reached maximum memory consumption");
}

static bool visit_reference(void *ctx, Elem elem, int32_t array_index) {
    (void)array_index;
    GraphExec *exec = ctx;
    if (elem_type(elem) == BT_ARRAY) {
        DocIter iter = doc_iter(elem_doc(elem));
        for (Elem member; doc_iter_next(&iter, &member);)
            value_set_add(&exec->values, value_from_elem(member), /* is_copied= */ true);
    } else if (elem_is_present(elem)) {
        value_set_add(&exec->values, value_from_elem(elem), /* is_copied= */ true);
    }
    return false;
}

static ErrCode take_document(GraphExec *exec, Doc doc, int64_t depth, Error *err) {
    const GraphStage *stage = (const GraphStage *)exec->base.stage;
    Value id = value_from_elem(doc_get_lit(doc, "_id"));
    if (value_is_missing(id))
        return error_set(err, (ErrCode)40271,
                         "Documents in the '%.*s' namespace must contain an _id for "
                         "de-duplication in $graphLookup",
                         (int)stage->from.size, stage->from.data);
    if (!value_set_add(&exec->ids, id, /* is_copied= */ true))
        return ERR_OK;
    path_walk(&stage->connect_from, doc, PATH_LEAF_WHOLE, visit_reference, exec);
    if (stage->depth_field.count > 0) {
        buffer_clear(&exec->with_depth);
        DocBuilder b;
        doc_builder_init(&b, &exec->with_depth);
        agg_set_path(&b, &stage->depth_field, doc, value_i64(depth));
        TRY(doc_builder_finish(&b, "$graphLookup document", &doc, err));
    }
    bool is_full = !doc_list_add(&exec->results, doc);
    return check_memory(exec, is_full, err);
}

/* [{$match: {$and: [{<connectTo>: {$in: [...]}}, <restriction>]}}] for values from *at on; moves it
 * behind those in the filter. Regular expressions mean themselves, so each has its own $eq. */
static Doc build_stages(GraphExec *exec, uint32_t *at, uint32_t end, Arena *arena) {
    const GraphStage *stage = (const GraphStage *)exec->base.stage;
    DocBuilder b = doc_builder_in_arena_sized(arena, 1024); /* bounded by FILTER_BYTES_MAX */
    char name[INDEX_NAME_SIZE];
    size_t row = build_open_doc(&b, "0");
    size_t match = build_open_doc(&b, "$match");
    size_t and = build_open_array(&b, "$and");
    size_t first = build_open_doc(&b, "0");
    bool has_null = false;
    if (exec->values.values[*at].type == BT_REGEX) {
        size_t field = build_open_doc_str(&b, stage->connect_to);
        build_value_as(&b, STR("$eq"), exec->values.values[(*at)++]);
        build_close(&b, field);
    } else {
        size_t field = build_open_doc_str(&b, stage->connect_to);
        size_t in = build_open_array(&b, "$in");
        for (uint32_t i = 0; *at < end && i < FILTER_VALUES_MAX && b.buf->size < FILTER_BYTES_MAX &&
                             exec->values.values[*at].type != BT_REGEX;
             i++) {
            has_null |= value_is_nullish(exec->values.values[*at]);
            build_value_as(&b, index_name(i, name), exec->values.values[(*at)++]);
        }
        build_close(&b, in);
        build_close(&b, field);
    }
    build_close(&b, first);
    uint32_t condition = 1;
    if (has_null) { /* null connects to null, not to documents without the field */
        size_t second = build_open_doc_str(&b, index_name(condition++, name));
        size_t field = build_open_doc_str(&b, stage->connect_to);
        build_bool(&b, "$exists", true);
        build_close(&b, field);
        build_close(&b, second);
    }
    if (doc_is_present(stage->restriction))
        build_value_as(&b, index_name(condition, name), value_doc(stage->restriction));
    build_close(&b, and);
    build_close(&b, match);
    build_close(&b, row);
    return doc_builder_end(&b);
}

static ErrCode drain(GraphExec *exec, DocSource docs, int64_t depth, Error *err) {
    while (true) {
        bool found;
        Doc doc;
        TRY(docs.next(docs.arg, &found, &doc, err));
        if (!found)
            return ERR_OK;
        TRY(take_document(exec, doc, depth, err));
    }
}

static ErrCode search(GraphExec *exec, Error *err) {
    AggStageExec *base = &exec->base;
    const GraphStage *stage = (const GraphStage *)base->stage;
    const AggForeign *foreign = base->ctx->foreign;
    arena_reset(&exec->arena);
    doc_list_clear(&exec->results);
    value_set_init(&exec->values, &exec->arena, base->ctx->collator);
    value_set_init(&exec->ids, &exec->arena, NULL); /* documents are what they are */

    Value start;
    TRY(expr_eval(stage->start_with, &base->eval, &start, err));
    if (start.type == BT_ARRAY) {
        DocIter iter = doc_iter(value_as_doc(start));
        for (Elem elem; doc_iter_next(&iter, &elem);)
            value_set_add(&exec->values, value_from_elem(elem), /* is_copied= */ true);
    } else if (!value_is_missing(start)) {
        value_set_add(&exec->values, start, /* is_copied= */ true);
    }
    uint32_t at = 0;
    for (int64_t depth = 0; at < exec->values.count; depth++) {
        if (stage->depth_max >= 0 && depth > stage->depth_max)
            break;
        uint32_t end = exec->values.count; /* what is added from now on is of the next round */
        while (at < end) {
            ArenaMark mark = arena_mark(&base->scratch);
            Doc stages = build_stages(exec, &at, end, &base->scratch);
            DocSource docs;
            TRY(foreign->open(foreign->arg, stage->from, stages, DOC_NONE, &docs, err));
            ErrCode rc = drain(exec, docs, depth, err);
            foreign->close(foreign->arg, docs);
            TRY(rc);
            arena_rewind(&base->scratch, mark);
        }
    }
    return ERR_OK;
}
