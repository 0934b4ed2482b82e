/*
 * match_optimize.c - smaller trees of the same meaning.
 *
 * Works bottom up and in place. Nothing here may change which array position a match reports: that
 * is why children keep their order.
 */
#include <stdlib.h>

#include "query/match/match_internal.h"
#include "query/match/regex.h"

static void optimize_children(MatchExpr *expr, Arena *arena);
static void flatten(MatchExpr *expr, Arena *arena);
static bool drop_constants(MatchExpr *expr);
static void merge_equalities_to_in(MatchExpr *expr, Arena *arena);
static MatchExpr *merge_to_in(MatchExpr **items, uint32_t count, Arena *arena);
static void simplify_in(MatchExpr *expr);
static MatchExpr *make_constant(MatchExpr *expr, bool is_true);

MatchExpr *match_optimize(MatchExpr *expr, Arena *arena) {
    optimize_children(expr, arena);
    switch (expr->kind) {
    case MATCH_IN:
        simplify_in(expr);
        return expr;
    case MATCH_NOT:
        if (expr->children[0]->kind == MATCH_ALWAYS_TRUE)
            return make_constant(expr, false);
        if (expr->children[0]->kind == MATCH_ALWAYS_FALSE)
            return make_constant(expr, true);
        return expr;
    case MATCH_AND:
    case MATCH_OR:
        flatten(expr, arena);
        if (drop_constants(expr))
            return expr;
        if (expr->kind == MATCH_OR)
            merge_equalities_to_in(expr, arena);
        return expr->child_count == 1 ? expr->children[0] : expr;
    case MATCH_NOR:
        if (drop_constants(expr))
            return expr;
        if (expr->child_count == 1)
            expr->kind = MATCH_NOT;
        return expr;
    default:
        return expr;
    }
}

static int compare_values(const void *a, const void *b, void *collator) {
    return elem_compare(*(const Elem *)a, *(const Elem *)b, collator);
}

uint32_t match_sort_values(Elem *values, uint32_t count, const Collator *collator) {
    if (count < 2)
        return count;
    qsort_r(values, count, sizeof(*values), compare_values, (void *)collator);
    uint32_t kept = 1;
    for (uint32_t i = 1; i < count; i++)
        if (elem_compare(values[kept - 1], values[i], collator) != 0)
            values[kept++] = values[i];
    return kept;
}

static void optimize_children(MatchExpr *expr, Arena *arena) {
    for (uint32_t i = 0; i < expr->child_count; i++)
        expr->children[i] = match_optimize(expr->children[i], arena);
}

/* AND of AND is one AND, OR of OR one OR. */
static void flatten(MatchExpr *expr, Arena *arena) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < expr->child_count; i++) {
        MatchExpr *child = expr->children[i];
        count += child->kind == expr->kind ? child->child_count : 1;
    }
    if (count == expr->child_count) {
        bool is_flat = true;
        for (uint32_t i = 0; i < count; i++)
            is_flat &= expr->children[i]->kind != expr->kind;
        if (is_flat)
            return;
    }
    MatchExpr **children = ARENA_ARRAY(arena, MatchExpr *, count);
    uint32_t at = 0;
    for (uint32_t i = 0; i < expr->child_count; i++) {
        MatchExpr *child = expr->children[i];
        if (child->kind != expr->kind) {
            children[at++] = child;
            continue;
        }
        for (uint32_t j = 0; j < child->child_count; j++)
            children[at++] = child->children[j];
    }
    expr->children = children;
    expr->child_count = count;
}

/* Removes children that do not matter. True when the whole node became a constant. */
static bool drop_constants(MatchExpr *expr) {
    /* The constant that decides for all, and the one that says nothing. */
    bool is_and = expr->kind == MATCH_AND;
    MatchKind deciding = is_and ? MATCH_ALWAYS_FALSE : MATCH_ALWAYS_TRUE;
    MatchKind neutral = is_and ? MATCH_ALWAYS_TRUE : MATCH_ALWAYS_FALSE;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < expr->child_count; i++) {
        MatchExpr *child = expr->children[i];
        /* {} under $or and $nor: an AND of nothing. */
        bool is_empty_and = child->kind == MATCH_AND && child->child_count == 0;
        MatchKind kind = is_empty_and ? MATCH_ALWAYS_TRUE : child->kind;
        if (kind == deciding) {
            make_constant(expr, expr->kind == MATCH_OR);
            return true;
        }
        if (kind != neutral)
            expr->children[kept++] = child;
    }
    bool had_children = expr->child_count > 0;
    expr->child_count = kept;
    if (kept > 0 || (is_and && !had_children))
        return kept == 0; /* an AND of nothing is the form of the empty filter; it stays */
    if (is_and)
        return true;
    make_constant(expr, expr->kind == MATCH_NOR);
    return true;
}

static bool is_mergeable(const MatchExpr *expr) {
    /* Equality with a regex value is by type and bytes, which IN would take as a pattern. */
    return (expr->kind == MATCH_EQ && elem_type(expr->operand) != BT_REGEX) ||
           expr->kind == MATCH_IN || expr->kind == MATCH_REGEX;
}

/* {$or: [{a: 1}, {b: 2}, {a: 3}]} is {$or: [{a: {$in: [1, 3]}}, {b: 2}]}. Quadratic in the number
 * of different paths, so only tried for short lists. */
static void merge_equalities_to_in(MatchExpr *expr, Arena *arena) {
    enum { PATHS_MAX = 32 };
    uint32_t kept = 0;
    uint32_t paths = 0;
    MatchExpr **group = NULL;
    for (uint32_t i = 0; i < expr->child_count; i++) {
        MatchExpr *child = expr->children[i];
        if (child == NULL)
            continue;
        if (!is_mergeable(child) || ++paths > PATHS_MAX) {
            expr->children[kept++] = child;
            continue;
        }
        uint32_t count = 0;
        for (uint32_t j = i + 1; j < expr->child_count; j++) {
            MatchExpr *other = expr->children[j];
            if (other == NULL || !is_mergeable(other) ||
                !str_equal(other->path.dotted, child->path.dotted))
                continue;
            if (count == 0) {
                group = ARENA_ARRAY(arena, MatchExpr *, expr->child_count - i);
                group[count++] = child;
            }
            group[count++] = other;
            expr->children[j] = NULL;
        }
        expr->children[kept++] = count > 0 ? merge_to_in(group, count, arena) : child;
    }
    expr->child_count = kept;
}

static MatchExpr *merge_to_in(MatchExpr **items, uint32_t count, Arena *arena) {
    uint32_t value_count = 0, regex_count = 0;
    for (uint32_t i = 0; i < count; i++) {
        bool is_in = items[i]->kind == MATCH_IN, is_regex = items[i]->kind == MATCH_REGEX;
        value_count += is_in ? items[i]->in.value_count : !is_regex;
        regex_count += is_in ? items[i]->in.regex_count : is_regex;
    }
    MatchExpr *merged = ARENA_NEW(arena, MatchExpr);
    merged->kind = MATCH_IN;
    merged->path = items[0]->path;
    Elem *values = ARENA_ARRAY(arena, Elem, value_count);
    MatchRegex **regexes = ARENA_ARRAY(arena, MatchRegex *, regex_count);
    uint32_t value_at = 0, regex_at = 0;
    for (uint32_t i = 0; i < count; i++) {
        const MatchExpr *item = items[i];
        if (item->kind == MATCH_REGEX) {
            regexes[regex_at++] = item->regex;
            continue;
        }
        merged->collator = item->collator;
        if (item->kind == MATCH_EQ) {
            values[value_at++] = item->operand;
            merged->in.has_null |= elem_type(item->operand) == BT_NULL;
            continue;
        }
        for (uint32_t j = 0; j < item->in.value_count; j++)
            values[value_at++] = item->in.values[j];
        for (uint32_t j = 0; j < item->in.regex_count; j++)
            regexes[regex_at++] = item->in.regexes[j];
        merged->in.has_null |= item->in.has_null;
    }
    merged->in.value_count = match_sort_values(values, value_at, merged->collator);
    merged->in.values = values;
    merged->in.regexes = regexes;
    merged->in.regex_count = regex_at;
    match_finish_leaf(merged);
    simplify_in(merged);
    return merged;
}

static void simplify_in(MatchExpr *expr) {
    uint32_t total = expr->in.value_count + expr->in.regex_count;
    if (total == 0) {
        make_constant(expr, false);
    } else if (total == 1 && expr->in.regex_count == 1) {
        MatchRegex *regex = expr->in.regexes[0];
        expr->kind = MATCH_REGEX;
        expr->regex = regex;
        match_finish_leaf(expr);
    } else if (total == 1) {
        expr->operand = expr->in.values[0];
        expr->kind = MATCH_EQ;
        match_finish_leaf(expr);
    }
}

static MatchExpr *make_constant(MatchExpr *expr, bool is_true) {
    expr->kind = is_true ? MATCH_ALWAYS_TRUE : MATCH_ALWAYS_FALSE;
    expr->child_count = 0;
    expr->children = NULL;
    return expr;
}
