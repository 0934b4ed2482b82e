/*
 * stage_redact.c - $redact: an expression decides per document and sub-document whether to keep it,
 * drop it, or look into it.
 *
 * $$KEEP, $$PRUNE and $$DESCEND are variables with texts as values. Within sub-documents $$CURRENT
 * (and so every field path) means the sub-document, $$ROOT still the whole.
 */
#include "query/agg/agg_internal.h"

typedef struct RedactStage {
    AggStage base;
    Expr *expr;
} RedactStage;

typedef struct RedactExec {
    AggStageExec base;
    Buffer out;
    Value keep;
    Value prune;
    Value descend;
    Arena names; /* holds the three */
} RedactExec;

static ErrCode redact_init(AggStageExec *base, Error *err);
static void redact_done(AggStageExec *base);
static ErrCode redact_next(AggStageExec *base, bool *ret_found, Doc *ret_doc, Error *err);
static ErrCode redact_fields(RedactExec *exec, DocBuilder *b, Doc in, bool is_array, uint32_t depth,
                             Error *err);

static const AggStageClass REDACT = {
    .name = "$redact",
    .exec_size = sizeof(RedactExec),
    .exec_init = redact_init,
    .exec_done = redact_done,
    .next = redact_next,
    .meta = AGG_META_KEPT,
    .runs = AGG_RUNS_ON_SHARDS,
};

ErrCode parse_redact(AggParser *p, Elem spec, Error *err) {
    static const char *const NAMES[] = {"KEEP", "PRUNE", "DESCEND", "CURRENT"};
    ExprParseContext ctx = p->ctx->expr;
    for (size_t i = 0; i < ARRAY_LEN(NAMES); i++) {
        ExprScope *scope = ARENA_NEW(p->arena, ExprScope);
        *scope = (ExprScope){.name = str_from(NAMES[i]), .outer = ctx.scope};
        ctx.scope = scope;
    }
    Expr *expr;
    TRY(expr_parse(spec, &ctx, p->arena, &expr, err));
    RedactStage *stage = agg_add_stage(p, &REDACT, sizeof(*stage), spec);
    stage->expr = expr;
    return ERR_OK;
}

static ErrCode redact_init(AggStageExec *base, Error *err) {
    (void)err;
    RedactExec *exec = (RedactExec *)base;
    buffer_init(&exec->out, VALUE_SIZE_MAX);
    arena_init(&exec->names, 256);
    exec->keep = value_str(STR("keep"), &exec->names);
    exec->prune = value_str(STR("prune"), &exec->names);
    exec->descend = value_str(STR("descend"), &exec->names);
    return ERR_OK;
}

static void redact_done(AggStageExec *base) {
    RedactExec *exec = (RedactExec *)base;
    buffer_done(&exec->out);
    arena_done(&exec->names);
}

static ErrCode judge(RedactExec *exec, Doc doc, Value *ret_verdict, Error *err) {
    AggStageExec *base = &exec->base;
    ExprBinding keep = {exec->keep, base->eval.bindings};
    ExprBinding prune = {exec->prune, &keep};
    ExprBinding descend = {exec->descend, &prune};
    ExprBinding current = {value_doc(doc), &descend};
    const ExprBinding *outer = base->eval.bindings;
    base->eval.bindings = &current;
    ErrCode rc = expr_eval(((const RedactStage *)base->stage)->expr, &base->eval, ret_verdict, err);
    base->eval.bindings = outer;
    TRY(rc);
    if (values_equal(*ret_verdict, exec->keep, NULL) ||
        values_equal(*ret_verdict, exec->prune, NULL) ||
        values_equal(*ret_verdict, exec->descend, NULL))
        return ERR_OK;
    return error_set(err, (ErrCode)17053,
                     "$redact's expression should not return anything aside from the variables "
                     "$$KEEP, $$DESCEND, and $$PRUNE, but returned %.500s",
                     value_to_text(*ret_verdict, &base->scratch));
}

static ErrCode redact_next(AggStageExec *base, bool *ret_found, Doc *ret_doc, Error *err) {
    RedactExec *exec = (RedactExec *)base;
    while (true) {
        Doc doc;
        TRY(agg_pull(base, ret_found, &doc, err));
        if (!*ret_found)
            return ERR_OK;
        agg_begin_doc(base, doc);
        Value verdict;
        TRY(judge(exec, doc, &verdict, err));
        if (values_equal(verdict, exec->prune, NULL))
            continue;
        *ret_doc = doc;
        if (values_equal(verdict, exec->keep, NULL))
            return ERR_OK;
        buffer_clear(&exec->out);
        DocBuilder b;
        doc_builder_init(&b, &exec->out);
        TRY(redact_fields(exec, &b, doc, /* is_array= */ false, /* depth= */ 0, err));
        return doc_builder_finish(&b, "redacted document", ret_doc, err);
    }
}

static ErrCode redact_element(RedactExec *exec, DocBuilder *b, Str name, Elem elem, bool *ret_kept,
                              uint32_t depth, Error *err) {
    *ret_kept = true;
    if (elem_type(elem) == BT_ARRAY) {
        size_t opened = build_open_array_str(b, name);
        TRY(redact_fields(exec, b, elem_doc(elem), /* is_array= */ true, depth + 1, err));
        build_close(b, opened);
        return ERR_OK;
    }
    if (elem_type(elem) != BT_DOC) {
        build_elem_as(b, name, elem);
        return ERR_OK;
    }
    Value verdict;
    TRY(judge(exec, elem_doc(elem), &verdict, err));
    *ret_kept = !values_equal(verdict, exec->prune, NULL);
    if (values_equal(verdict, exec->keep, NULL)) {
        build_elem_as(b, name, elem);
    } else if (*ret_kept) {
        size_t opened = build_open_doc_str(b, name);
        TRY(redact_fields(exec, b, elem_doc(elem), /* is_array= */ false, depth + 1, err));
        build_close(b, opened);
    }
    return ERR_OK;
}

static ErrCode redact_fields(RedactExec *exec, DocBuilder *b, Doc in, bool is_array, uint32_t depth,
                             Error *err) {
    if (depth > BSON_DEPTH_MAX)
        return error_set(err, ERR_OVERFLOW, "$redact: document is nested too deeply");
    DocIter iter = doc_iter(in);
    uint32_t kept_count = 0;
    for (Elem elem; doc_iter_next(&iter, &elem);) {
        char index[INDEX_NAME_SIZE];
        Str name = is_array ? index_name(kept_count, index) : elem_name_str(elem);
        bool is_kept;
        TRY(redact_element(exec, b, name, elem, &is_kept, depth, err));
        kept_count += is_kept;
    }
    return ERR_OK;
}
