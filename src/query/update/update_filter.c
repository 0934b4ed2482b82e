/*
 * update_filter.c - arrayFilters: which elements `$[identifier]` stands for.
 *
 * Each filter is a query about one made-up top-level field, the identifier. It is judged as if a
 * document {identifier: element} existed (match_elem).
 */
#include "bson/json.h"
#include "query/update/update_internal.h"

static ErrCode parse_filter(UpdateParser *p, Doc doc, UpdateFilter *filter, Error *err);
static ErrCode find_name(const MatchExpr *expr, Str *name, Error *err);
static bool is_identifier(Str name);
static bool has_document_judge(const MatchExpr *expr);

ErrCode update_parse_filters(UpdateParser *p, Error *err) {
    Doc array = p->ctx->array_filters;
    if (!doc_is_present(array))
        return ERR_OK;
    UpdateProgram *program = p->program;
    program->filters = ARENA_ARRAY(p->arena, UpdateFilter, doc_count(array));
    DocIter iter = doc_iter(array);
    for (Elem elem; doc_iter_next(&iter, &elem);) {
        if (elem_type(elem) != BT_DOC)
            return error_set(err, ERR_TYPE_MISMATCH,
                             "BSON field 'update.updates.arrayFilters.%s' is the wrong type '%s', "
                             "expected type 'object'",
                             elem_name(elem), bson_type_name(elem_type(elem)));
        UpdateFilter filter = {0};
        TRY(parse_filter(p, elem_doc(elem), &filter, err));
        for (uint32_t i = 0; i < program->filter_count; i++)
            if (str_equal(program->filters[i].name, filter.name))
                return error_set(err, ERR_FAILED_TO_PARSE,
                                 "Found multiple array filters with the same top-level field name "
                                 "%.*s",
                                 (int)filter.name.size, filter.name.data);
        program->filters[program->filter_count++] = filter;
    }
    return ERR_OK;
}

ErrCode update_check_filters_used(UpdateParser *p, Doc update, Error *err) {
    for (uint32_t i = 0; i < p->program->filter_count; i++) {
        const UpdateFilter *filter = &p->program->filters[i];
        if (!filter->is_used)
            return error_set(err, ERR_FAILED_TO_PARSE,
                             "The array filter for identifier '%.*s' was not used in the update %s",
                             (int)filter->name.size, filter->name.data,
                             shell_text_of_doc(update, p->arena));
    }
    return ERR_OK;
}

static ErrCode parse_filter(UpdateParser *p, Doc doc, UpdateFilter *filter, Error *err) {
    MatchParseContext ctx = *p->ctx->match;
    ctx.expr_hook = NULL; /* an element has no document to compute with */
    ErrCode rc = match_parse(doc, &ctx, p->arena, &filter->expr, err);
    if (rc == ERR_OK && has_document_judge(filter->expr))
        rc = error_set(err, ERR_BAD_VALUE, "$jsonSchema is not allowed in this context");
    if (rc == ERR_OK)
        rc = find_name(filter->expr, &filter->name, err);
    if (rc != ERR_OK)
        return error_prefix(err, "Error parsing array filter :: caused by :");
    if (filter->name.data == NULL)
        return error_set(err, ERR_FAILED_TO_PARSE,
                         "Cannot use an expression without a top-level field name in arrayFilters");
    if (!is_identifier(filter->name))
        return error_set(
            err, ERR_BAD_VALUE,
            "Error parsing array filter :: caused by :: The top-level field name must "
            "be an alphanumeric string beginning with a lowercase letter, found '%.*s'",
            (int)filter->name.size, filter->name.data);
    filter->expr = match_optimize(filter->expr, p->arena);
    return ERR_OK;
}

static bool has_document_judge(const MatchExpr *expr) {
    if (expr->kind == MATCH_EXPR)
        return true;
    for (uint32_t i = 0; i < expr->child_count; i++)
        if (has_document_judge(expr->children[i]))
            return true;
    return false;
}

/* The first component of all paths, which must be one and the same. */
static ErrCode find_name(const MatchExpr *expr, Str *name, Error *err) {
    if (expr->kind >= MATCH_EQ) {
        Str found = expr->path.parts[0].name;
        if (name->data == NULL)
            *name = found;
        if (!str_equal(*name, found))
            return error_set(err, ERR_FAILED_TO_PARSE,
                             "Expected a single top-level field name, found '%.*s' and '%.*s'",
                             (int)name->size, name->data, (int)found.size, found.data);
        return ERR_OK; /* what is below $elemMatch has paths of its own */
    }
    for (uint32_t i = 0; i < expr->child_count; i++)
        TRY(find_name(expr->children[i], name, err));
    return ERR_OK;
}

static bool is_identifier(Str name) {
    if (name.size == 0 || name.data[0] < 'a' || name.data[0] > 'z')
        return false;
    for (size_t i = 1; i < name.size; i++) {
        char c = name.data[i];
        bool is_alnum = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        if (!is_alnum)
            return false;
    }
    return true;
}
