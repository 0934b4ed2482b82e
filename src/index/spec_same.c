#include "index/spec_same.h"

#include <string.h>

#include "bson/builder.h"
#include "bson/compare.h"
#include "catalog/wildcard.h"
#include "query/match/match.h"

/* ---- wildcardProjection ---- */

static WildcardPaths *wildcard_of(Doc spec, Arena *arena) {
    Elem projection = doc_get_lit(spec, "wildcardProjection");
    Elem field;
    CLEANUP(error_reset) Error ignored = {0};
    DocIter iter = doc_iter(elem_doc(doc_get_lit(spec, "key")));
    while (doc_iter_next(&iter, &field))
        if (wildcard_is_field(elem_name_str(field))) {
            WildcardPaths *paths;
            Doc given = elem_type(projection) == BT_DOC ? elem_doc(projection) : DOC_NONE;
            return wildcard_paths_parse(elem_name_str(field), given, arena, &paths, &ignored) ==
                           ERR_OK
                       ? paths
                       : NULL;
        }
    return NULL;
}

static bool has_path(const WildcardPaths *wildcard, Str path) {
    for (uint32_t i = 0; i < wildcard->count; i++)
        if (str_equal(wildcard->paths[i], path))
            return true;
    return false;
}

bool index_same_wildcard(Doc a, Doc b) {
    if (!elem_is_present(doc_get_lit(a, "wildcardProjection")) &&
        !elem_is_present(doc_get_lit(b, "wildcardProjection")))
        return true;
    CLEANUP(arena_done) Arena arena;
    arena_init(&arena, 1024);
    const WildcardPaths *x = wildcard_of(a, &arena), *y = wildcard_of(b, &arena);
    if (x == NULL || y == NULL)
        return x == y;
    /* _id is out unless it is named. */
    if (x->is_exclusion != y->is_exclusion || x->count != y->count ||
        (x->has_id_rule && x->is_id_in) != (y->has_id_rule && y->is_id_in))
        return false;
    for (uint32_t i = 0; i < x->count; i++)
        if (!has_path(y, x->paths[i]))
            return false;
    return true;
}

/* ---- partialFilterExpression ---- */

/* By what is asked of which path; values do not count. */
static int compare_shapes(const MatchExpr *a, const MatchExpr *b) {
    if (a->kind != b->kind)
        return a->kind < b->kind ? -1 : 1;
    int rc = str_compare(a->path.dotted, b->path.dotted);
    if (rc != 0)
        return rc;
    for (uint32_t i = 0; i < a->child_count && i < b->child_count; i++)
        if ((rc = compare_shapes(a->children[i], b->children[i])) != 0)
            return rc;
    return a->child_count < b->child_count ? -1 : a->child_count > b->child_count;
}

/* Stable, so that what compares equal keeps its order. Filters are small. */
static void sort_children(MatchExpr *expr) {
    for (uint32_t i = 1; i < expr->child_count; i++) {
        MatchExpr *moved = expr->children[i];
        uint32_t at = i;
        for (; at > 0 && compare_shapes(moved, expr->children[at - 1]) < 0; at--)
            expr->children[at] = expr->children[at - 1];
        expr->children[at] = moved;
    }
}

static void sort_tree(MatchExpr *expr) {
    for (uint32_t i = 0; i < expr->child_count; i++)
        sort_tree(expr->children[i]);
    if (expr->kind == MATCH_AND || expr->kind == MATCH_OR)
        sort_children(expr);
}

static bool normalize(Elem filter, Arena *arena, Doc *ret_doc) {
    MatchExpr *expr;
    MatchParseContext ctx = {0};
    CLEANUP(error_reset) Error ignored = {0};
    if (match_parse(elem_doc(filter), &ctx, arena, &expr, &ignored) != ERR_OK)
        return false;
    expr = match_optimize(expr, arena);
    sort_tree(expr);
    DocBuilder b = doc_builder_in_arena(arena);
    match_to_bson(expr, &b);
    *ret_doc = doc_builder_end(&b);
    return true;
}

bool index_same_partial_filter(Doc a, Doc b) {
    Elem x = doc_get_lit(a, "partialFilterExpression");
    Elem y = doc_get_lit(b, "partialFilterExpression");
    if (elem_type(x) != BT_DOC || elem_type(y) != BT_DOC)
        return elem_is_present(x) == elem_is_present(y);
    CLEANUP(arena_done) Arena arena;
    arena_init(&arena, 2048);
    Doc left, right;
    return normalize(x, &arena, &left) && normalize(y, &arena, &right) &&
           doc_compare(left, right, NULL) == 0;
}
