/*
 * expr_show.c - expressions as explain shows them: what is constant is said to be so, and operators
 * that take a list have one.
 */
#include "query/expr/expr_internal.h"

static void show_list(const Expr *expr, Str name, DocBuilder *b);
static void show_operator(const Expr *expr, Str name, DocBuilder *b);
static void show_operand(const Expr *expr, Elem operand, DocBuilder *b);

void expr_to_bson(const Expr *expr, Str name, DocBuilder *b) {
    if (expr->eval == expr_eval_literal) {
        size_t opened = build_open_doc_str(b, name);
        build_value_as(b, STR("$const"), expr->literal);
        build_close(b, opened);
    } else if (expr->op != NULL) {
        show_operator(expr, name, b);
    } else if (expr->eval == expr_eval_array) {
        show_list(expr, name, b);
    } else if (expr->eval == expr_eval_object) {
        size_t opened = build_open_doc_str(b, name);
        for (uint32_t i = 0; i < expr->arg_count; i++)
            expr_to_bson(expr->args[i], expr->names[i], b);
        build_close(b, opened);
    } else {
        build_elem_as(b, name, expr->source);
    }
}

static void show_list(const Expr *expr, Str name, DocBuilder *b) {
    size_t opened = build_open_array_str(b, name);
    for (uint32_t i = 0; i < expr->arg_count; i++) {
        char index[INDEX_NAME_SIZE];
        expr_to_bson(expr->args[i], index_name(i, index), b);
    }
    build_close(b, opened);
}

static void show_operator(const Expr *expr, Str name, DocBuilder *b) {
    size_t opened = build_open_doc_str(b, name);
    if (expr->op->parse == NULL)
        show_list(expr, expr->op->name, b);
    else
        show_operand(expr, expr->source, b);
    build_close(b, opened);
}

/* The argument that was parsed from the element; NULL: it is something else. */
static const Expr *find_argument(const Expr *expr, Elem elem) {
    for (uint32_t i = 0; i < expr->arg_count; i++) {
        const Expr *arg = expr->args[i];
        if (arg == NULL)
            continue;
        Elem own = elem;
        DocIter iter = doc_iter(elem_type(elem) == BT_DOC ? elem_doc(elem) : DOC_EMPTY);
        if (arg->is_source_operator && !doc_iter_next(&iter, &own))
            continue;
        if (arg->source.data == own.data)
            return arg;
    }
    return NULL;
}

static void show_part(const Expr *expr, Elem elem, DocBuilder *b) {
    const Expr *arg = find_argument(expr, elem);
    if (arg != NULL)
        expr_to_bson(arg, elem_name_str(elem), b);
    else
        build_elem(b, elem);
}

/* Operators with a form of their own keep it: {name: argument, ...}, a list or one argument. */
static void show_operand(const Expr *expr, Elem operand, DocBuilder *b) {
    BsonType type = elem_type(operand);
    bool is_whole = find_argument(expr, operand) != NULL;
    if (is_whole || (type != BT_DOC && type != BT_ARRAY)) {
        show_part(expr, operand, b);
        return;
    }
    size_t opened = type == BT_DOC ? build_open_doc_str(b, elem_name_str(operand))
                                   : build_open_array_str(b, elem_name_str(operand));
    DocIter iter = doc_iter(elem_doc(operand));
    for (Elem elem; doc_iter_next(&iter, &elem);)
        show_part(expr, elem, b);
    build_close(b, opened);
}
