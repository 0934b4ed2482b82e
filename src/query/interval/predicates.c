#include "query/interval/predicates.h"

#include <string.h>

#include "bson/collator.h"

static void collect(const MatchExpr *expr, Str path, Str prefix, FieldPredicates *found,
                    bool is_below_elem_match);

void predicates_collect(const MatchExpr *filter, Str path, FieldPredicates *found) {
    collect(filter, path, STR(""), found, /* is_below_elem_match= */ false);
}

/* `prefix` is the path of the $elemMatch that `expr` is inside of. */
static void collect(const MatchExpr *expr, Str path, Str prefix, FieldPredicates *found,
                    bool is_below_elem_match) {
    if (expr->kind == MATCH_AND) {
        for (uint32_t i = 0; i < expr->child_count; i++)
            collect(expr->children[i], path, prefix, found, is_below_elem_match);
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
            found->rows[found->count++] = (Predicate){expr, is_negated, is_below_elem_match};
        return;
    }
    if (expr->kind == MATCH_ELEM_MATCH_OBJECT && !is_negated && !is_below_elem_match &&
        expr->path.dotted.size < rest.size && rest.data[expr->path.dotted.size] == '.' &&
        memcmp(rest.data, expr->path.dotted.data, expr->path.dotted.size) == 0) {
        Str inner = {path.data, skip + expr->path.dotted.size};
        collect(expr->children[0], path, inner, found, /* is_below_elem_match= */ true);
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

/* Over an array different elements may fulfil different conditions, so only one of them restricts:
 * the most selective kind. */
bool predicates_combine(const FieldPredicates *found, const IntervalContext *ctx,
                        Intervals *ret_list, uint32_t *ret_exact_count) {
    bool has_any = false;
    uint32_t best_rank = UINT32_MAX;
    *ret_exact_count = 0;
    for (uint32_t i = 0; i < found->count; i++) {
        Intervals list;
        bool is_exact;
        if (!intervals_of_predicate(found->rows[i], ctx, &list, &is_exact))
            continue;
        *ret_exact_count += is_exact && !found->rows[i].is_below_elem_match;
        MatchKind kind = found->rows[i].expr->kind;
        uint32_t rank = found->rows[i].is_negated ? 4
                        : kind == MATCH_EQ        ? 0
                        : kind == MATCH_IN        ? 1
                        : kind == MATCH_TYPE      ? 3
                                                  : 2;
        if (!has_any) {
            *ret_list = list;
            best_rank = rank;
        } else if (!ctx->is_multikey) {
            intervals_intersect(ret_list, &list, ctx);
        } else if (rank < best_rank) {
            *ret_list = list;
            best_rank = rank;
        }
        has_any = true;
    }
    return has_any;
}
