/*
 * sub_pipeline.c - what stages with pipelines of their own have in common, and lists of documents.
 */
#include <string.h>

#include "query/agg/agg_internal.h"

static void set_path(DocBuilder *b, const FieldPath *path, uint32_t at, Doc in, Value value);

ErrCode agg_parse_sub(AggParser *p, Doc stages, const AggSubSpec *spec, Pipeline **ret_pipeline,
                      Error *err) {
    if (p->ctx->depth + 1 > PIPELINE_DEPTH_MAX)
        return error_set(err, ERR_MAX_SUB_PIPELINE_DEPTH_EXCEEDED,
                         "Maximum number of nested sub-pipelines exceeded. Limit is %d",
                         PIPELINE_DEPTH_MAX);
    AggParseContext *ctx = ARENA_NEW(p->arena, AggParseContext);
    *ctx = *p->ctx;
    ctx->depth++;
    ctx->place = spec->place;
    ctx->expr.scope = spec->scope;
    ctx->is_collectionless = spec->is_collectionless;
    ctx->source_rows = NULL; /* they tell about the outer pipeline's collection */
    ctx->source_row_count = 0;
    return pipeline_parse(stages, ctx, p->arena, ret_pipeline, err);
}

ErrCode agg_parse_let(AggParser *p, Elem let, AggLet *ret_let, Error *err) {
    AggLet parsed = {.scope = p->ctx->expr.scope};
    if (elem_is_present(let)) {
        uint32_t count = doc_count(elem_doc(let));
        if (count > AGG_LET_VARIABLES_MAX)
            return error_set(err, ERR_BAD_VALUE, "'let' may have at most %d variables",
                             AGG_LET_VARIABLES_MAX);
        parsed.names = ARENA_ARRAY(p->arena, Str, count);
        parsed.exprs = ARENA_ARRAY(p->arena, Expr *, count);
        DocIter iter = doc_iter(elem_doc(let));
        for (Elem elem; doc_iter_next(&iter, &elem);) {
            Str name = elem_name_str(elem);
            TRY(expr_check_variable_name(name, err));
            TRY(expr_parse(elem, &p->ctx->expr, p->arena, &parsed.exprs[parsed.count], err));
            parsed.names[parsed.count++] = name;
            ExprScope *scope = ARENA_NEW(p->arena, ExprScope);
            *scope = (ExprScope){.name = name, .outer = parsed.scope};
            parsed.scope = scope;
        }
    }
    *ret_let = parsed;
    return ERR_OK;
}

ErrCode agg_eval_let(const AggLet *let, AggStageExec *exec, Doc *ret_values, Error *err) {
    if (let->count == 0) {
        *ret_values = DOC_NONE;
        return ERR_OK;
    }
    Buffer buf;
    buffer_init_arena(&buf, &exec->scratch, 256, VALUE_SIZE_MAX);
    DocBuilder b;
    doc_builder_init(&b, &buf);
    for (uint32_t i = 0; i < let->count; i++) {
        Value value;
        TRY(expr_eval(let->exprs[i], &exec->eval, &value, err));
        if (value_is_missing(value))
            build_value(&b, BT_UNDEFINED, let->names[i], 0);
        else
            build_value_as(&b, let->names[i], value);
    }
    return doc_builder_finish(&b, "variables", ret_values, err);
}

void doc_list_init(DocList *list, size_t size_max) {
    *list = (DocList){0};
    buffer_init(&list->buf, size_max);
}

void doc_list_done(DocList *list) {
    buffer_done(&list->buf);
}

void doc_list_clear(DocList *list) {
    buffer_clear(&list->buf);
    list->next = 0;
    list->count = 0;
}

bool doc_list_add(DocList *list, Doc doc) {
    uint32_t size = doc_size(doc);
    uint8_t *at = buffer_reserve(&list->buf, size);
    if (at == NULL)
        return false;
    memcpy(at, doc.data, size);
    list->buf.size += size;
    list->count++;
    return true;
}

bool doc_list_next(DocList *list, Doc *ret_doc) {
    if (list->next == list->buf.size)
        return false;
    *ret_doc = (Doc){list->buf.data + list->next};
    list->next += doc_size(*ret_doc);
    return true;
}

void agg_set_path(DocBuilder *b, const FieldPath *path, Doc in, Value value) {
    set_path(b, path, 0, in, value);
}

static void set_path(DocBuilder *b, const FieldPath *path, uint32_t at, Doc in, Value value) {
    bool is_last = at + 1 == path->count;
    bool is_set = false;
    const PathPart *part = &path->parts[at];
    DocIter iter = doc_iter(in);
    for (Elem elem; doc_iter_next(&iter, &elem);) {
        if (is_set || !elem_name_is(elem, part->name)) {
            build_elem(b, elem);
            continue;
        }
        is_set = true;
        if (is_last) {
            build_value_as(b, part->name, value);
        } else {
            size_t opened = build_open_doc_str(b, part->name);
            bool is_doc = elem_type(elem) == BT_DOC;
            set_path(b, path, at + 1, is_doc ? elem_doc(elem) : DOC_EMPTY, value);
            build_close(b, opened);
        }
    }
    if (is_set)
        return;
    if (is_last) {
        build_value_as(b, part->name, value);
    } else {
        size_t opened = build_open_doc_str(b, part->name);
        set_path(b, path, at + 1, DOC_EMPTY, value);
        build_close(b, opened);
    }
}

/* ---- what they have read ---- */

void agg_examined_add_index(AggExamined *sum, const char *name) {
    if (sum->arena == NULL)
        return;
    uint32_t at = 0;
    while (at < sum->index_count && strcmp(sum->indexes[at], name) < 0)
        at++;
    if (at < sum->index_count && strcmp(sum->indexes[at], name) == 0)
        return;
    uint32_t count = sum->index_count;
    if ((count & (count - 1)) == 0) { /* full at powers of two */
        const char **grown = ARENA_ARRAY(sum->arena, const char *, count == 0 ? 1 : count * 2);
        if (count > 0)
            memcpy(grown, sum->indexes, count * sizeof(*grown));
        sum->indexes = grown;
    }
    memmove(sum->indexes + at + 1, sum->indexes + at, (count - at) * sizeof(*sum->indexes));
    sum->indexes[at] = arena_strdup(sum->arena, name);
    sum->index_count++;
}

void agg_examined_add(AggExamined *sum, const AggExamined *part) {
    sum->docs += part->docs;
    sum->keys += part->keys;
    sum->scans += part->scans;
    for (uint32_t i = 0; i < part->index_count; i++)
        agg_examined_add_index(sum, part->indexes[i]);
}
