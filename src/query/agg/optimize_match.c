/*
 * optimize_match.c - filters put in other words, so that they can go to other places.
 */
#include "query/agg/agg_internal.h"

static bool is_in_reach(Str path, Str from, MatchReach reach) {
    if (!path_is_prefix(from, path))
        return false;
    return reach == REACH_SELF_OR_BELOW || (reach == REACH_BELOW) == (path.size > from.size);
}

bool agg_match_is_renamable(const MatchExpr *match, Str from, MatchReach reach) {
    switch (match->kind) {
    case MATCH_AND:
    case MATCH_OR:
    case MATCH_NOR:
    case MATCH_NOT:
        for (uint32_t i = 0; i < match->child_count; i++)
            if (!agg_match_is_renamable(match->children[i], from, reach))
                return false;
        return match->child_count > 0;
    case MATCH_EXISTS:
    case MATCH_SIZE:
    case MATCH_TYPE:
        return reach != REACH_SELF && is_in_reach(match->path.dotted, from, reach);
    case MATCH_EQ:
    case MATCH_LT:
    case MATCH_LTE:
    case MATCH_GT:
    case MATCH_GTE:
    case MATCH_IN:
    case MATCH_REGEX:
    case MATCH_MOD:
        return is_in_reach(match->path.dotted, from, reach);
    default:
        return false;
    }
}

static void rename_fields(DocBuilder *b, Doc filter, Str from, Str to, Arena *arena) {
    DocIter iter = doc_iter(filter);
    for (Elem elem; doc_iter_next(&iter, &elem);) {
        Str name = elem_name_str(elem);
        if (name.size > 0 && name.data[0] == '$') { /* $and, $or, $nor */
            size_t array = build_open_array_str(b, name);
            DocIter children = doc_iter(elem_doc(elem));
            for (Elem child; doc_iter_next(&children, &child);) {
                size_t opened = build_open_doc_str(b, elem_name_str(child));
                rename_fields(b, elem_doc(child), from, to, arena);
                build_close(b, opened);
            }
            build_close(b, array);
            continue;
        }
        Str rest = {name.data + from.size, name.size - from.size}; /* "" or ".b" */
        if (to.size == 0)
            rest = (Str){rest.data + 1, rest.size - 1};
        char *renamed =
            arena_printf(arena, "%.*s%.*s", (int)to.size, to.data, (int)rest.size, rest.data);
        build_elem_as(b, str_from(renamed), elem);
    }
}

Doc agg_match_renamed(const MatchExpr *match, Str from, Str to, Arena *arena) {
    DocBuilder before = doc_builder_in_arena(arena);
    match_to_bson(match, &before);
    DocBuilder after = doc_builder_in_arena(arena);
    rename_fields(&after, doc_builder_end(&before), from, to, arena);
    return doc_builder_end(&after);
}

typedef struct Equalities {
    DocBuilder b; /* an array of filters */
    uint32_t count;
} Equalities;

/* The expression compares whole values, the query language also looks into arrays: what it says is
 * weaker, so saying it too changes nothing. The exception is an array at the end of a path through
 * arrays, which only expressions put together. */
static void add_equality(void *ctx, const FieldPath *path, Value literal) {
    Equalities *equalities = ctx;
    bool is_array = literal.type == BT_ARRAY;
    if (literal.type == BT_EOO || literal.type == BT_UNDEFINED || (is_array && path->count > 1))
        return;
    for (uint32_t i = 0; i < path->count; i++)
        if (path->parts[i].index >= 0) /* a field here, perhaps a position there */
            return;
    char name[INDEX_NAME_SIZE];
    size_t row = build_open_doc_str(&equalities->b, index_name(equalities->count++, name));
    size_t field = build_open_doc_str(&equalities->b, path->dotted);
    build_value_as(&equalities->b, STR("$eq"), literal);
    build_close(&equalities->b, field);
    build_close(&equalities->b, row);
}

static void visit_match(const MatchExpr *match, Equalities *equalities) {
    if (match->kind == MATCH_EXPR)
        expr_match_equalities(match->custom, add_equality, equalities);
    for (uint32_t i = 0; match->kind == MATCH_AND && i < match->child_count; i++)
        visit_match(match->children[i], equalities);
}

MatchExpr *agg_match_of_equalities(const MatchExpr *match, const MatchParseContext *ctx,
                                   Arena *arena) {
    Buffer buf;
    buffer_init_arena(&buf, arena, 64, BSON_DOC_SIZE_MAX_INTERNAL);
    DocBuilder filter;
    doc_builder_init(&filter, &buf);
    size_t all = build_open_array(&filter, "$and");
    Equalities equalities = {.b = filter};
    visit_match(match, &equalities);
    build_close(&filter, all);
    Doc doc;
    bool is_whole = doc_builder_try_finish(&filter, &doc);
    CLEANUP(error_reset) Error ignored = {0};
    MatchExpr *added = NULL;
    if (equalities.count == 0 || !is_whole ||
        match_parse(doc, ctx, arena, &added, &ignored) != ERR_OK)
        return NULL;
    return added;
}
