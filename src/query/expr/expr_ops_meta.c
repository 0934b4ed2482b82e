/*
 * expr_ops_meta.c - $meta: what is known of a document besides its fields.
 */
#include "query/expr/doc_meta.h"
#include "query/expr/expr_internal.h"

typedef struct MetaRow {
    const char *name;
    bool is_supported;
    DocMetaKind kind;
} MetaRow;

static const MetaRow ROWS[] = {
    {"sortKey", true, DOC_META_SORT_KEY},
    {"recordId", true, DOC_META_RECORD_ID},
    {"indexKey", true, DOC_META_INDEX_KEY},
    {"textScore", true, DOC_META_TEXT_SCORE},
    {"geoNearDistance", false, 0},
    {"geoNearPoint", false, 0},
    {"randVal", false, 0},
    {"searchScore", false, 0},
    {"searchHighlights", false, 0},
    {"searchScoreDetails", false, 0},
    {"timeseriesBucketMinTime", false, 0},
    {"timeseriesBucketMaxTime", false, 0},
};

const Doc DOC_META_NOTHING = {NULL};

const char *doc_meta_name(DocMetaKind kind) {
    return ROWS[kind].name;
}

ErrCode doc_meta_parse(Elem operand, uint32_t *kinds, DocMetaKind *ret_kind, Error *err) {
    if (elem_type(operand) != BT_STRING)
        return error_set(err, (ErrCode)17307, "$meta only supports string arguments");
    for (size_t i = 0; i < ARRAY_LEN(ROWS); i++) {
        if (!str_is(elem_str(operand), ROWS[i].name))
            continue;
        if (!ROWS[i].is_supported)
            return error_set(err, ERR_NOT_IMPLEMENTED, "$meta '%s' is not supported", ROWS[i].name);
        *ret_kind = ROWS[i].kind;
        if (kinds != NULL)
            *kinds |= UINT32_C(1) << ROWS[i].kind;
        return ERR_OK;
    }
    return error_set(err, (ErrCode)17308, "Unsupported argument to $meta: %s",
                     elem_str(operand).data);
}

ErrCode doc_meta_get(const ExprEvalContext *ctx, DocMetaKind kind, Elem *ret_elem, Error *err) {
    if (ctx->meta == NULL)
        return error_set(err, ERR_NOT_IMPLEMENTED,
                         "$meta '%s' is not supported here: what is known of a document does not "
                         "come this far",
                         doc_meta_name(kind));
    *ret_elem = doc_is_present(*ctx->meta) ? doc_get(*ctx->meta, str_from(doc_meta_name(kind)))
                                           : ELEM_MISSING;
    return ERR_OK;
}

/* {$meta: "sortKey"} */
ErrCode parse_meta(ExprParser *p, Elem operand, Expr *expr, Error *err) {
    DocMetaKind kind;
    TRY(doc_meta_parse(operand, p->ctx->needed_meta, &kind, err));
    expr->variant = (uint16_t)kind;
    return ERR_OK;
}

ErrCode eval_meta(const Expr *expr, ExprEvalContext *ctx, Value *ret, Error *err) {
    Elem elem = ELEM_MISSING;
    TRY(doc_meta_get(ctx, (DocMetaKind)expr->variant, &elem, err));
    *ret = elem_is_present(elem) ? value_from_elem(elem) : VALUE_MISSING;
    return ERR_OK;
}
