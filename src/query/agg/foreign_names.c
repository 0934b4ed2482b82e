#include "query/agg/foreign_names.h"

#include <string.h>

static void add_inner(ForeignNames *names, Elem stages, uint32_t depth);

static void add_name(ForeignNames *names, Str db, Elem coll, bool is_sink) {
    if (elem_type(coll) != BT_STRING)
        return;
    for (uint32_t i = 0; i < names->count; i++) {
        const ForeignName *row = &names->rows[i];
        if (str_equal(row->coll, elem_str(coll)) && str_equal(row->db, db) &&
            row->is_sink == is_sink)
            return;
    }
    if (names->count == names->capacity) {
        uint32_t capacity = names->capacity == 0 ? 8 : names->capacity * 2;
        ForeignName *rows = ARENA_ARRAY(names->arena, ForeignName, capacity);
        if (names->count > 0)
            memcpy(rows, names->rows, names->count * sizeof(*rows));
        names->rows = rows;
        names->capacity = capacity;
    }
    names->rows[names->count++] = (ForeignName){db, elem_str(coll), is_sink};
}

/* "coll", or {db, coll}. */
static void add_place(ForeignNames *names, Elem place) {
    if (elem_type(place) != BT_DOC) {
        add_name(names, STR(""), place, /* is_sink= */ true);
        return;
    }
    Elem db = doc_get_lit(elem_doc(place), "db");
    add_name(names, elem_type(db) == BT_STRING ? elem_str(db) : STR(""),
             doc_get_lit(elem_doc(place), "coll"), /* is_sink= */ true);
}

static void add_stage(ForeignNames *names, Elem stage, uint32_t depth) {
    Str name = elem_name_str(stage);
    Doc spec = elem_type(stage) == BT_DOC ? elem_doc(stage) : DOC_EMPTY;
    if (str_is(name, "$lookup") || str_is(name, "$graphLookup")) {
        add_name(names, STR(""), doc_get_lit(spec, "from"), /* is_sink= */ false);
        add_inner(names, doc_get_lit(spec, "pipeline"), depth + 1);
    } else if (str_is(name, "$unionWith")) {
        add_name(names, STR(""), elem_type(stage) == BT_DOC ? doc_get_lit(spec, "coll") : stage,
                 /* is_sink= */ false);
        add_inner(names, doc_get_lit(spec, "pipeline"), depth + 1);
    } else if (str_is(name, "$facet")) {
        DocIter iter = doc_iter(spec);
        for (Elem facet; doc_iter_next(&iter, &facet);)
            add_inner(names, facet, depth + 1);
    } else if (str_is(name, "$out")) {
        add_place(names, stage);
    } else if (str_is(name, "$merge")) {
        add_place(names, elem_type(stage) == BT_DOC ? doc_get_lit(spec, "into") : stage);
    }
}

static void add_stages(ForeignNames *names, Doc stages, uint32_t depth) {
    DocIter iter = doc_iter(stages);
    for (Elem stage; doc_iter_next(&iter, &stage);) {
        if (elem_type(stage) != BT_DOC)
            continue;
        DocIter fields = doc_iter(elem_doc(stage));
        Elem operator;
        if (doc_iter_next(&fields, &operator))
            add_stage(names, operator, depth);
    }
}

static void add_inner(ForeignNames *names, Elem stages, uint32_t depth) {
    if (elem_type(stages) == BT_ARRAY && depth <= FOREIGN_DEPTH_MAX)
        add_stages(names, elem_doc(stages), depth);
}

void foreign_names_add(ForeignNames *names, Doc stages) {
    add_stages(names, stages, 0);
}
