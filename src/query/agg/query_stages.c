#include "query/agg/query_stages.h"

#include "bson/builder.h"
#include "query/agg/agg_internal.h"

static void add_doc_stage(StageList *list, const char *stage, Doc doc) {
    if (!doc_is_present(doc) || doc_is_empty(doc))
        return;
    size_t opened = stage_list_open(list);
    build_doc(&list->b, stage, doc);
    build_close(&list->b, opened);
}

static void add_number_stage(StageList *list, const char *stage, int64_t number) {
    if (number <= 0)
        return;
    size_t opened = stage_list_open(list);
    build_i64(&list->b, stage, number);
    build_close(&list->b, opened);
}

static bool is_natural(Doc sort) {
    return doc_is_present(sort) && elem_is_present(doc_get_lit(sort, "$natural"));
}

Elem query_stages_hint(Elem hint, Doc sort, Arena *arena) {
    if (elem_is_present(hint) || !is_natural(sort))
        return hint;
    DocBuilder b = doc_builder_in_arena(arena);
    build_doc(&b, "hint", sort);
    return doc_get_lit(doc_builder_end(&b), "hint");
}

Doc query_stages(const QueryStages *query, Arena *arena) {
    StageList list = {.b = doc_builder_in_arena(arena)};
    add_doc_stage(&list, "$match", query->filter);
    if (!is_natural(query->sort))
        add_doc_stage(&list, "$sort", query->sort);
    add_number_stage(&list, "$skip", query->skip);
    add_number_stage(&list, "$limit", query->limit);
    add_doc_stage(&list, "$project", query->projection);
    if (query->is_count) {
        size_t opened = stage_list_open(&list);
        build_cstr(&list.b, "$count", "n");
        build_close(&list.b, opened);
    }
    return doc_builder_end(&list.b);
}

Doc stages_concat(Doc first, Doc second, Arena *arena) {
    DocBuilder b = doc_builder_in_arena_sized(arena, doc_size(first) + doc_size(second) + 64);
    uint32_t count = 0;
    const Doc parts[] = {first, second};
    for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
        DocIter iter = doc_iter(parts[i]);
        Elem stage;
        while (doc_iter_next(&iter, &stage)) {
            char name[INDEX_NAME_SIZE];
            build_elem_as(&b, index_name(count++, name), stage);
        }
    }
    return doc_builder_end(&b);
}

Str stages_first_name(Doc stages) {
    DocIter iter = doc_iter(stages);
    Elem stage, name;
    if (!doc_iter_next(&iter, &stage) || elem_type(stage) != BT_DOC)
        return STR("");
    iter = doc_iter(elem_doc(stage));
    return doc_iter_next(&iter, &name) ? elem_name_str(name) : STR("");
}
