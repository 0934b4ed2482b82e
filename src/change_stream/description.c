/*
 * description.c - walks a delta (query/update/update_delta.h has its form) and names every place
 * that it changes by a dotted path.
 */
#include "change_stream/description.h"

#include "query/match/path.h"

typedef struct Component {
    Str name;
    bool is_index; /* of an array; else the name of a field */
} Component;

typedef struct Walk {
    Arena *arena;
    bool is_expanded;
    DocBuilder updated;
    DocBuilder removed;
    uint32_t removed_count;
    DocBuilder truncated;
    uint32_t truncated_count;
    DocBuilder paths;
    Buffer text; /* the present path, dotted */
    Component components[BSON_DEPTH_MAX];
    uint32_t depth;
} Walk;

static ErrCode walk_document(Walk *w, Doc delta, Error *err);
static ErrCode walk_array(Walk *w, Doc delta, Error *err);

static ErrCode malformed(Error *err, Elem elem) {
    return error_set(err, ERR_FAILED_TO_PARSE, "the delta of an update is malformed at '%s'",
                     elem_name(elem));
}

/* Goes one step down; returns what leave needs. */
static ErrCode enter(Walk *w, Str name, bool is_index, size_t *ret_mark, Error *err) {
    if (w->depth == BSON_DEPTH_MAX)
        return error_set(err, ERR_OVERFLOW, "the delta of an update is nested too deeply");
    *ret_mark = w->text.size;
    if (w->depth > 0)
        buffer_append_byte(&w->text, '.');
    buffer_append(&w->text, name.data, name.size);
    w->components[w->depth++] = (Component){name, is_index};
    return ERR_OK;
}

static void leave(Walk *w, size_t mark) {
    w->text.size = mark;
    w->depth--;
}

static Str path_text(const Walk *w) {
    return (Str){(const char *)w->text.data, w->text.size};
}

static bool is_ambiguous(const Walk *w) {
    for (uint32_t i = 0; i < w->depth; i++) {
        const Component *component = &w->components[i];
        if (component->is_index)
            continue;
        if (str_has_char(component->name, '.') || (i > 0 && path_index_of(component->name) >= 0))
            return true;
    }
    return false;
}

static void note_path(Walk *w) {
    if (!w->is_expanded || !is_ambiguous(w))
        return;
    size_t opened = build_open_array_str(&w->paths, path_text(w));
    for (uint32_t i = 0; i < w->depth; i++) {
        char name[INDEX_NAME_SIZE];
        Str index = index_name(i, name);
        const Component *component = &w->components[i];
        if (component->is_index)
            build_i32(&w->paths, index.data, path_index_of(component->name));
        else
            build_str(&w->paths, index.data, component->name);
    }
    build_close(&w->paths, opened);
}

static ErrCode note_updated(Walk *w, Str name, bool is_index, Elem value, Error *err) {
    size_t mark;
    TRY(enter(w, name, is_index, &mark, err));
    build_elem_as(&w->updated, path_text(w), value);
    note_path(w);
    leave(w, mark);
    return ERR_OK;
}

static ErrCode note_removed(Walk *w, Str name, Error *err) {
    size_t mark;
    TRY(enter(w, name, /* is_index= */ false, &mark, err));
    char index[INDEX_NAME_SIZE];
    build_str(&w->removed, index_name(w->removed_count++, index).data, path_text(w));
    note_path(w);
    leave(w, mark);
    return ERR_OK;
}

static void note_truncated(Walk *w, int64_t length) {
    char index[INDEX_NAME_SIZE];
    size_t opened = build_open_doc_str(&w->truncated, index_name(w->truncated_count++, index));
    build_str(&w->truncated, "field", path_text(w));
    build_count(&w->truncated, "newSize", length);
    build_close(&w->truncated, opened);
    note_path(w);
}

static ErrCode walk_below(Walk *w, Str name, bool is_index, Elem below, Error *err) {
    if (elem_type(below) != BT_DOC)
        return malformed(err, below);
    size_t mark;
    TRY(enter(w, name, is_index, &mark, err));
    Doc delta = elem_doc(below);
    if (elem_is_truthy(doc_get_lit(delta, "a")))
        TRY(walk_array(w, delta, err));
    else
        TRY(walk_document(w, delta, err));
    leave(w, mark);
    return ERR_OK;
}

static ErrCode walk_section(Walk *w, Elem section, Error *err) {
    if (elem_type(section) != BT_DOC)
        return malformed(err, section);
    bool is_removal = elem_name_is(section, STR("d"));
    DocIter iter = doc_iter(elem_doc(section));
    Elem elem;
    while (doc_iter_next(&iter, &elem)) {
        if (is_removal)
            TRY(note_removed(w, elem_name_str(elem), err));
        else
            TRY(note_updated(w, elem_name_str(elem), /* is_index= */ false, elem, err));
    }
    return ERR_OK;
}

static ErrCode walk_document(Walk *w, Doc delta, Error *err) {
    DocIter iter = doc_iter(delta);
    Elem elem;
    while (doc_iter_next(&iter, &elem)) {
        Str name = elem_name_str(elem);
        if (str_is(name, "d") || str_is(name, "u") || str_is(name, "i"))
            TRY(walk_section(w, elem, err));
        else if (name.size > 0 && name.data[0] == 's')
            TRY(walk_below(w, (Str){name.data + 1, name.size - 1}, /* is_index= */ false, elem,
                           err));
        else
            return malformed(err, elem);
    }
    return ERR_OK;
}

static ErrCode walk_array(Walk *w, Doc delta, Error *err) {
    DocIter iter = doc_iter(delta);
    Elem elem;
    while (doc_iter_next(&iter, &elem)) {
        Str name = elem_name_str(elem);
        if (str_is(name, "a"))
            continue;
        if (str_is(name, "l") && elem_is_number(elem)) {
            note_truncated(w, elem_as_i64(elem));
            continue;
        }
        Str index = {name.data + 1, name.size > 0 ? name.size - 1 : 0};
        if (path_index_of(index) < 0)
            return malformed(err, elem);
        if (name.data[0] == 'u')
            TRY(note_updated(w, index, /* is_index= */ true, elem, err));
        else if (name.data[0] == 's')
            TRY(walk_below(w, index, /* is_index= */ true, elem, err));
        else
            return malformed(err, elem);
    }
    return ERR_OK;
}

ErrCode description_build(DocBuilder *b, Doc delta, bool is_expanded, Arena *arena, Error *err) {
    Walk *w = ARENA_NEW(arena, Walk);
    w->arena = arena;
    w->is_expanded = is_expanded;
    w->updated = doc_builder_in_arena_sized(arena, doc_size(delta) + 64);
    w->removed = doc_builder_in_arena(arena);
    w->truncated = doc_builder_in_arena(arena);
    w->paths = doc_builder_in_arena(arena);
    buffer_init_arena(&w->text, arena, 128, BUFFER_UNBOUNDED);
    TRY(walk_document(w, delta, err));
    size_t opened = build_open_doc(b, "updateDescription");
    build_doc(b, "updatedFields", doc_builder_end(&w->updated));
    build_array(b, "removedFields", doc_builder_end(&w->removed));
    build_array(b, "truncatedArrays", doc_builder_end(&w->truncated));
    if (is_expanded)
        build_doc(b, "disambiguatedPaths", doc_builder_end(&w->paths));
    build_close(b, opened);
    return ERR_OK;
}
