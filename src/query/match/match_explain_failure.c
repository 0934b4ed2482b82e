/*
 * match_explain_failure.c - why a document does not match a filter, as a validation error tells it.
 *
 * Below a negation the question turns round: why does it match? Each operator has two reasons for
 * that, and the logical ones report the clauses of the other verdict.
 */
#include "query/match/match_internal.h"

enum {
    CONSIDERED_VALUES_MAX = 10,
};

typedef struct Explaining {
    Doc doc;
    DocBuilder *b;
    bool is_inverted;
} Explaining;

/* Reasons per kind: not matched, matched. */
static const struct {
    MatchKind kind;
    const char *reasons[2];
} REASONS[] = {
    {MATCH_EQ, {"comparison failed", "comparison succeeded"}},
    {MATCH_LT, {"comparison failed", "comparison succeeded"}},
    {MATCH_LTE, {"comparison failed", "comparison succeeded"}},
    {MATCH_GT, {"comparison failed", "comparison succeeded"}},
    {MATCH_GTE, {"comparison failed", "comparison succeeded"}},
    {MATCH_EXPR_LT, {"comparison failed", "comparison succeeded"}},
    {MATCH_EXPR_LTE, {"comparison failed", "comparison succeeded"}},
    {MATCH_EXPR_GT, {"comparison failed", "comparison succeeded"}},
    {MATCH_EXPR_GTE, {"comparison failed", "comparison succeeded"}},
    {MATCH_IN, {"no matching value found in array", "matching value found in array"}},
    {MATCH_EXISTS, {"path does not exist", "path does exist"}},
    {MATCH_TYPE, {"type did not match", "type did match"}},
    {MATCH_REGEX, {"regular expression did not match", "regular expression did match"}},
    {MATCH_MOD,
     {"$mod did not evaluate to expected remainder", "$mod did evaluate to expected remainder"}},
    {MATCH_SIZE,
     {"array length was not equal to given size", "array length was equal to given size"}},
    {MATCH_BITS_ALL_SET,
     {"bitwise operator failed to match", "bitwise operator matched successfully"}},
    {MATCH_BITS_ALL_CLEAR,
     {"bitwise operator failed to match", "bitwise operator matched successfully"}},
    {MATCH_BITS_ANY_SET,
     {"bitwise operator failed to match", "bitwise operator matched successfully"}},
    {MATCH_BITS_ANY_CLEAR,
     {"bitwise operator failed to match", "bitwise operator matched successfully"}},
    {MATCH_ELEM_MATCH_OBJECT,
     {"array did not satisfy the child predicate", "array did satisfy the child predicate"}},
    {MATCH_ELEM_MATCH_VALUE,
     {"array did not satisfy the child predicate", "array did satisfy the child predicate"}},
    {MATCH_ALWAYS_TRUE, {"", "expression always evaluates to true"}},
    {MATCH_ALWAYS_FALSE, {"expression always evaluates to false", ""}},
};

static void explain(const MatchExpr *expr, const Explaining *e);
static void explain_clauses(const MatchExpr *expr, const Explaining *e);
static void explain_not(const MatchExpr *expr, const Explaining *e);
static void explain_leaf(const MatchExpr *expr, const char *negation, const Explaining *e);

void match_explain_failure(const MatchExpr *expr, Doc doc, DocBuilder *b) {
    Explaining e = {doc, b, false};
    explain(expr, &e);
}

static void explain(const MatchExpr *expr, const Explaining *e) {
    switch (expr->kind) {
    case MATCH_AND:
    case MATCH_OR:
    case MATCH_NOR:
        explain_clauses(expr, e);
        return;
    case MATCH_NOT:
        explain_not(expr, e);
        return;
    case MATCH_EXPR:
        expr->custom->explain(expr->custom, e->doc, e->is_inverted, e->b);
        return;
    default:
        explain_leaf(expr, NULL, e);
    }
}

/* The clauses that are to blame: of $and and $or those that do not match, of $nor those that do;
 * and the other way round when inverted. */
static void explain_clauses(const MatchExpr *expr, const Explaining *e) {
    bool wants_matching = (expr->kind == MATCH_NOR) != e->is_inverted;
    Explaining inner = {e->doc, e->b, wants_matching};
    build_cstr(e->b, "operatorName", match_operator_name(expr->kind));
    size_t list =
        build_open_array(e->b, wants_matching ? "clausesSatisfied" : "clausesNotSatisfied");
    uint32_t count = 0;
    for (uint32_t i = 0; i < expr->child_count; i++) {
        if (match_doc(expr->children[i], e->doc, NULL) != wants_matching)
            continue;
        char name[INDEX_NAME_SIZE];
        size_t row = build_open_doc_str(e->b, index_name(count++, name));
        build_i32(e->b, "index", (int32_t)i);
        size_t details = build_open_doc(e->b, "details");
        explain(expr->children[i], &inner);
        build_close(e->b, details);
        build_close(e->b, row);
    }
    build_close(e->b, list);
}

/* $ne, $nin and {$exists: false} are negations in the tree but operators of their own to people. */
static void explain_not(const MatchExpr *expr, const Explaining *e) {
    const MatchExpr *child = expr->children[0];
    Explaining inner = {e->doc, e->b, !e->is_inverted};
    if (expr->spelling != NULL) {
        explain_leaf(child, expr->spelling, &inner);
        return;
    }
    build_cstr(e->b, "operatorName", "$not");
    size_t details = build_open_doc(e->b, "details");
    explain(child, &inner);
    build_close(e->b, details);
}

typedef struct Considered {
    DocBuilder *b;
    Elem first;
    uint32_t count;
    size_t array;
} Considered;

/* Collects what the path reaches: one value is told as such, several as an array. */
static bool consider(void *ctx, Elem elem, int32_t array_index) {
    (void)array_index;
    Considered *considered = ctx;
    if (!elem_is_present(elem))
        return false;
    if (considered->count == 0) {
        considered->first = elem;
    } else if (considered->count < CONSIDERED_VALUES_MAX) {
        char name[INDEX_NAME_SIZE];
        if (considered->count == 1) {
            considered->array = build_open_array(considered->b, "consideredValues");
            build_elem_as(considered->b, STR("0"), considered->first);
        }
        build_elem_as(considered->b, index_name(considered->count, name), elem);
    }
    considered->count++;
    return false;
}

static void build_considered(const MatchExpr *expr, const Explaining *e) {
    bool is_on_array = expr->kind == MATCH_SIZE || expr->kind == MATCH_ELEM_MATCH_OBJECT ||
                       expr->kind == MATCH_ELEM_MATCH_VALUE;
    Considered considered = {.b = e->b};
    path_walk(&expr->path, e->doc, is_on_array ? PATH_LEAF_WHOLE : PATH_LEAF_EXPAND, consider,
              &considered);
    if (considered.count > 1)
        build_close(e->b, considered.array);
    if (considered.count == 1)
        build_elem_as(e->b, STR("consideredValue"), considered.first);
    if (considered.count == 1 && expr->kind == MATCH_TYPE)
        build_cstr(e->b, "consideredType", bson_type_name(elem_type(considered.first)));
}

static bool note_present(void *ctx, Elem elem, int32_t array_index) {
    (void)ctx, (void)array_index;
    return elem_is_present(elem);
}

/* {a: {$ne: 1}}, {a: {$nin: [1]}}, {a: {$exists: false}}. */
static void build_negation(const MatchExpr *expr, const char *negation, DocBuilder *b) {
    size_t field = build_open_doc_str(b, expr->path.dotted);
    if (expr->kind == MATCH_EQ || expr->kind == MATCH_IN)
        build_elem_as(b, str_from(negation), expr->operand);
    else
        build_bool(b, negation, false);
    build_close(b, field);
}

/* `negation` is the operator around the leaf; NULL: none. */
static void explain_leaf(const MatchExpr *expr, const char *negation, const Explaining *e) {
    build_cstr(e->b, "operatorName", negation != NULL ? negation : match_operator_name(expr->kind));
    size_t given = build_open_doc(e->b, "specifiedAs");
    bool is_own_form = expr->kind == MATCH_TYPE || expr->kind == MATCH_IN ||
                       (expr->kind == MATCH_REGEX && elem_type(expr->operand) == BT_REGEX);
    if (negation != NULL) {
        build_negation(expr, negation, e->b);
    } else if (expr->kind == MATCH_EQ && expr->is_implicit) {
        build_elem_as(e->b, expr->path.dotted, expr->operand);
    } else if (is_own_form && elem_is_present(expr->operand)) {
        size_t field = build_open_doc_str(e->b, expr->path.dotted);
        build_elem_as(e->b, str_from(match_operator_name(expr->kind)), expr->operand);
        build_close(e->b, field);
    } else {
        match_to_bson(expr, e->b);
    }
    build_close(e->b, given);
    bool has_path = expr->kind >= MATCH_EQ && expr->path.count > 0;
    bool is_there =
        has_path && path_walk(&expr->path, e->doc, PATH_LEAF_EXPAND, note_present, NULL);
    if (has_path && !is_there && expr->kind != MATCH_EXISTS) {
        build_cstr(e->b, "reason", "field was missing");
        return;
    }
    for (size_t i = 0; i < ARRAY_LEN(REASONS); i++)
        if (REASONS[i].kind == expr->kind)
            build_cstr(e->b, "reason", REASONS[i].reasons[e->is_inverted]);
    if (has_path && expr->kind != MATCH_EXISTS)
        build_considered(expr, e);
}
