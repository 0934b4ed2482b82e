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
