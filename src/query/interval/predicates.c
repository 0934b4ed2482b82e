#include "query/interval/predicates.h"

#include <string.h>

#include "bson/collator.h"

static void collect(const MatchExpr *expr, Str path, Str prefix, FieldPredicates *found);

void predicates_collect(const MatchExpr *filter, Str path, FieldPredicates *found) {
    collect(filter, path, STR(""), found);
}

static uint32_t count_parts(Str path) {
    uint32_t count = path.size > 0;
    for (size_t i = 0; i < path.size; i++)
        count += path.data[i] == '.';
    return count;
}

/* `prefix` is the path of the $elemMatch that `expr` is inside of. */
static void collect(const MatchExpr *expr, Str path, Str prefix, FieldPredicates *found) {
    if (expr->kind == MATCH_AND) {
        for (uint32_t i = 0; i < expr->child_count; i++)
            collect(expr->children[i], path, prefix, found);
        return;
    }
    bool is_negated = expr->kind == MATCH_NOT;
    if (is_negated)
        expr = expr->children[0];
    if (expr->kind < MATCH_EQ || found->count == ARRAY_LEN(found->rows))
        return;
    size_t skip = prefix.size > 0 ? prefix.size + 1 : 0;
    if (path.size < skip)
        return;
    Str rest = {path.data + skip, path.size - skip};
    if (str_equal(expr->path.dotted, rest)) {
        if (expr->kind != MATCH_ELEM_MATCH_OBJECT)
            found->rows[found->count++] = (Predicate){
                .expr = expr, .is_negated = is_negated, .above_parts = count_parts(prefix)};
        return;
    }
    if (expr->kind == MATCH_ELEM_MATCH_OBJECT && !is_negated && prefix.size == 0 &&
        expr->path.dotted.size < rest.size && rest.data[expr->path.dotted.size] == '.' &&
        memcmp(rest.data, expr->path.dotted.data, expr->path.dotted.size) == 0) {
        Str inner = {path.data, skip + expr->path.dotted.size};
        collect(expr->children[0], path, inner, found);
    }
}

bool predicate_is_without_text(Predicate predicate) {
    const MatchExpr *expr = predicate.expr;
    switch (expr->kind) {
    case MATCH_EQ:
    case MATCH_LT:
    case MATCH_LTE:
    case MATCH_GT:
    case MATCH_GTE:
    case MATCH_EXPR_LT:
    case MATCH_EXPR_LTE:
    case MATCH_EXPR_GT:
    case MATCH_EXPR_GTE:
        return !type_is_collatable(elem_type(expr->operand));
    case MATCH_IN:
        for (uint32_t i = 0; i < expr->in.value_count; i++)
            if (type_is_collatable(elem_type(expr->in.values[i])))
                return false;
        return true;
    case MATCH_ELEM_MATCH_VALUE:
        return false;
    default:
        return true;
    }
}

static uint32_t selectivity_rank(Predicate row) {
    MatchKind kind = row.expr->kind;
    return row.is_negated       ? 4
           : kind == MATCH_EQ   ? 0
           : kind == MATCH_IN   ? 1
           : kind == MATCH_TYPE ? 3
                                : 2;
}

/* Over an array different elements may fulfil different conditions, so only one of them restricts:
 * the most selective kind. */
bool predicates_combine(FieldPredicates *found, const IntervalContext *ctx, Intervals *ret_list) {
    Predicate *best = NULL;
    for (uint32_t i = 0; i < found->count; i++) {
        Predicate *row = &found->rows[i];
        row->fit = INTERVAL_FIT_WIDE;
        Intervals list;
        IntervalFit fit;
        if (!intervals_of_predicate(*row, ctx, &list, &fit))
            continue;
        row->fit = row->above_parts == 0 ? fit : INTERVAL_FIT_WIDE;
        if (best == NULL) {
            *ret_list = list;
            best = row;
        } else if (ctx->arrays == 0) {
            intervals_intersect(ret_list, &list, ctx);
        } else if (selectivity_rank(*row) < selectivity_rank(*best)) {
            *ret_list = list;
            best->fit = INTERVAL_FIT_WIDE;
            best = row;
        } else {
            row->fit = INTERVAL_FIT_WIDE;
        }
    }
    return best != NULL;
}
