/*
 * stage_documents.c - $documents: a pipeline that makes its documents from an expression.
 */
#include "base/alloc.h"
#include "query/agg/agg_internal.h"

typedef struct DocumentsSource {
    AggSource base;
    Expr *expr;
    const Collator *collator;
    int64_t now_ms;
    CheckHook check;
} DocumentsSource;

typedef struct DocumentsExec {
    Arena arena;
    DocIter iter;
} DocumentsExec;

static ErrCode documents_open(const AggSource *base, DocSource *ret_docs, Error *err);
static void documents_close(const AggSource *base, DocSource docs);
static ErrCode documents_next(void *arg, bool *ret_found, Doc *ret_doc, Error *err);

ErrCode parse_documents(AggParser *p, Elem spec, Error *err) {
    Pipeline *pipeline = p->pipeline;
    if (pipeline->source != NULL || pipeline->stage_count > 0)
        return error_set(err, (ErrCode)40602,
                         "$documents is only valid as the first stage in a pipeline");
    if (!p->ctx->is_collectionless)
        return error_set(err, ERR_INVALID_NAMESPACE,
                         "$documents must be run against the database with {aggregate: 1}");
    DocumentsSource *source = ARENA_NEW(p->arena, DocumentsSource);
    TRY(expr_parse(spec, &p->ctx->expr, p->arena, &source->expr, err));
    source->base = (AggSource){documents_open, documents_close};
    source->collator = p->ctx->expr.collator;
    source->now_ms = p->ctx->now_ms;
    source->check = p->ctx->check;
    pipeline->source = &source->base;
    pipeline->source_name = "$documents";
    pipeline->source_spec = spec;
    pipeline->source_runs_once = true;
    return ERR_OK;
}

static ErrCode eval_array(const DocumentsSource *source, Arena *arena, Doc *ret_array, Error *err) {
    ExprEvalContext eval = {
        .root = DOC_EMPTY,
        .scratch = arena,
        .now_ms = source->now_ms,
        .collator = source->collator,
        .check = source->check,
    };
    Value value;
    TRY(expr_eval(source->expr, &eval, &value, err));
    if (value.type != BT_ARRAY)
        return error_set(err, (ErrCode)5858203, "an array is expected");
    *ret_array = value_as_doc(value);
    return ERR_OK;
}

static ErrCode documents_open(const AggSource *base, DocSource *ret_docs, Error *err) {
    DocumentsExec *exec = NEW(DocumentsExec);
    arena_init(&exec->arena, 0);
    *ret_docs = (DocSource){.arg = exec, .next = documents_next};
    Doc array = DOC_EMPTY;
    ErrCode rc = eval_array((const DocumentsSource *)base, &exec->arena, &array, err);
    if (rc == ERR_OK)
        exec->iter = doc_iter(array);
    else
        documents_close(base, *ret_docs);
    return rc;
}

static void documents_close(const AggSource *base, DocSource docs) {
    (void)base;
    DocumentsExec *exec = docs.arg;
    arena_done(&exec->arena);
    xfree(exec);
}

static ErrCode documents_next(void *arg, bool *ret_found, Doc *ret_doc, Error *err) {
    DocumentsExec *exec = arg;
    Elem elem;
    *ret_found = doc_iter_next(&exec->iter, &elem);
    if (!*ret_found)
        return ERR_OK;
    if (elem_type(elem) != BT_DOC)
        return error_set(err, (ErrCode)40228,
                         "'newRoot' expression must evaluate to an object, but resulting value "
                         "was of type '%s'",
                         bson_type_name(elem_type(elem)));
    *ret_doc = elem_doc(elem);
    return ERR_OK;
}
