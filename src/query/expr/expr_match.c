/*
 * expr_match.c - $expr: an expression as the judge of a document.
 */
#include <string.h>

#include "base/clock.h"
#include "query/expr/expr_internal.h"

typedef struct ExprCustom {
    MatchCustom base;
    const ExprMatchHook *hook;
    const Expr *expr;
    Elem operand;
} ExprCustom;

static ErrCode custom_parse(const MatchExprHook *base, Elem operand, Arena *arena,
                            MatchCustom **ret_custom, Error *err);
static ErrCode custom_eval(const MatchCustom *base, Doc doc, bool *ret_is_match, Error *err);
static void custom_to_bson(const MatchCustom *base, DocBuilder *b);
static void custom_explain(const MatchCustom *base, Doc doc, bool is_inverted, DocBuilder *b);

const MatchExprHook *expr_match_hook(ExprMatchHook *hook) {
    hook->base.parse = custom_parse;
    return &hook->base;
}

static ErrCode custom_parse(const MatchExprHook *base, Elem operand, Arena *arena,
                            MatchCustom **ret_custom, Error *err) {
    const ExprMatchHook *hook = (const ExprMatchHook *)base;
    Expr *expr;
    TRY(expr_parse(operand, &hook->parse, arena, &expr, err));
    ExprCustom *custom = ARENA_NEW(arena, ExprCustom);
    custom->base.eval = custom_eval;
    custom->base.to_bson = custom_to_bson;
    custom->base.explain = custom_explain;
    custom->hook = hook;
    custom->expr = expr;
    custom->operand = operand;
    *ret_custom = &custom->base;
    return ERR_OK;
}

static ExprEvalContext eval_context(const ExprCustom *custom, Doc doc, Arena *scratch) {
    return (ExprEvalContext){
        .root = doc,
        .scratch = scratch,
        .now_ms = custom->hook->now_ms != 0 ? custom->hook->now_ms : clock_wall_ms(),
        .collator = custom->hook->parse.collator,
        .check = custom->hook->check,
    };
}

/* The tree may be shared by threads, so the scratch memory is made per call. It costs nothing until
 * something is allocated in it. */
static ErrCode custom_eval(const MatchCustom *base, Doc doc, bool *ret_is_match, Error *err) {
    const ExprCustom *custom = (const ExprCustom *)base;
    CLEANUP(arena_done) Arena scratch = {0};
    ExprEvalContext ctx = eval_context(custom, doc, &scratch);
    Value value;
    TRY(expr_eval(custom->expr, &ctx, &value, err));
    *ret_is_match = value_is_truthy(value);
    return ERR_OK;
}

static void custom_to_bson(const MatchCustom *base, DocBuilder *b) {
    const ExprCustom *custom = (const ExprCustom *)base;
    build_elem_as(b, STR("$expr"), custom->operand);
}

/* Other judges of whole documents, such as $jsonSchema, are not ours to look into. */
static bool is_expr(const MatchCustom *base) {
    return base->eval == custom_eval;
}

void expr_match_add_paths(const MatchCustom *base, PathSet *set) {
    if (!is_expr(base)) {
        path_set_add_all(set);
        return;
    }
    expr_add_paths(((const ExprCustom *)base)->expr, set);
}

/* The comparisons that conditions of the query language follow from, with the operators of those:
 * as they are, and with the sides exchanged. */
static const struct {
    const char *name;
    const char *condition;
    const char *exchanged;
} COMPARISONS[] = {
    {"$eq", "$eq", "$eq"},
    {"$gt", "$_internalExprGt", "$_internalExprLt"},
    {"$gte", "$_internalExprGte", "$_internalExprLte"},
    {"$lt", "$_internalExprLt", "$_internalExprGt"},
    {"$lte", "$_internalExprLte", "$_internalExprGte"},
};

typedef struct Conditions {
    DocBuilder b; /* an array of filters */
    uint32_t count;
} Conditions;

/* The expression compares whole values; {$eq: ...} of the query language also looks into arrays: it
 * is weaker, so saying it too changes nothing. The exception is an array at the end of a path
 * through arrays, which only expressions put together. */
static void add_condition(Conditions *conditions, const FieldPath *path, const char *operator,
                          Value literal) {
    bool is_equality = strcmp(operator, "$eq") == 0;
    bool is_array = literal.type == BT_ARRAY;
    if (literal.type == BT_EOO || literal.type == BT_UNDEFINED ||
        (is_array && (!is_equality || path->count > 1)) ||
        (literal.type == BT_REGEX && !is_equality))
        return;
    for (uint32_t i = 0; i < path->count; i++)
        if (path->parts[i].index >= 0) /* a field here, perhaps a position there */
            return;
    char name[INDEX_NAME_SIZE];
    size_t row = build_open_doc_str(&conditions->b, index_name(conditions->count++, name));
    size_t field = build_open_doc_str(&conditions->b, path->dotted);
    build_value_as(&conditions->b, str_from(operator), literal);
    build_close(&conditions->b, field);
    build_close(&conditions->b, row);
}

/* Adds what each comparison of a path of the root with a literal says, if it must hold: alone or
 * below $and. */
static void add_comparisons(const Expr *expr, Conditions *conditions) {
    if (expr->op == NULL)
        return;
    if (str_is(expr->op->name, "$and"))
        for (uint32_t i = 0; i < expr->arg_count; i++)
            add_comparisons(expr->args[i], conditions);
    size_t row = 0;
    while (row < ARRAY_LEN(COMPARISONS) && !str_is(expr->op->name, COMPARISONS[row].name))
        row++;
    for (uint32_t i = 0; row < ARRAY_LEN(COMPARISONS) && i < 2; i++) {
        Value literal;
        const FieldPath *path = expr_field_path(expr->args[i]);
        if (path != NULL && expr_is_literal(expr->args[1 - i], &literal))
            add_condition(conditions, path,
                          i == 0 ? COMPARISONS[row].condition : COMPARISONS[row].exchanged,
                          literal);
    }
}

static void visit_match(const MatchExpr *match, Conditions *conditions) {
    if (match->kind == MATCH_EXPR && is_expr(match->custom))
        add_comparisons(((const ExprCustom *)match->custom)->expr, conditions);
    for (uint32_t i = 0; match->kind == MATCH_AND && i < match->child_count; i++)
        visit_match(match->children[i], conditions);
}

MatchExpr *expr_match_of_comparisons(const MatchExpr *match, const MatchParseContext *ctx,
                                     Arena *arena) {
    Buffer buf;
    buffer_init_arena(&buf, arena, 64, BSON_DOC_SIZE_MAX_INTERNAL);
    DocBuilder filter;
    doc_builder_init(&filter, &buf);
    size_t all = build_open_array(&filter, "$and");
    Conditions conditions = {.b = filter};
    visit_match(match, &conditions);
    build_close(&filter, all);
    Doc doc;
    bool is_whole = doc_builder_try_finish(&filter, &doc);
    CLEANUP(error_reset) Error ignored = {0};
    MatchExpr *added = NULL;
    if (conditions.count == 0 || !is_whole ||
        match_parse(doc, ctx, arena, &added, &ignored) != ERR_OK)
        return NULL;
    return added;
}

static void custom_explain(const MatchCustom *base, Doc doc, bool is_inverted, DocBuilder *b) {
    const ExprCustom *custom = (const ExprCustom *)base;
    build_cstr(b, "operatorName", "$expr");
    size_t given = build_open_doc(b, "specifiedAs");
    custom_to_bson(base, b);
    build_close(b, given);
    build_cstr(b, "reason", is_inverted ? "expression did match" : "expression did not match");
    CLEANUP(arena_done) Arena scratch = {0};
    CLEANUP(error_reset) Error ignored = {0};
    ExprEvalContext ctx = eval_context(custom, doc, &scratch);
    Value value;
    if (expr_eval(custom->expr, &ctx, &value, &ignored) == ERR_OK)
        build_value_as(b, STR("expressionResult"), value);
}
