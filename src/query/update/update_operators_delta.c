/*
 * update_operators_delta.c - the delta of an update by operators.
 *
 * Comparing the two versions alone cannot tell {$set: {"a.b": 1}} from {$set: {a: {b: 1}}}. Readers
 * of change streams see the difference (updatedFields), and rely on an update by operators being
 * told as an update, however small the document. So the trie of the program leads: down to its
 * leaves a delta goes into documents and arrays, and tells the whole value there.
 *
 * Two things of MongoDB's: $push behind the end of an array tells the new elements only; an array
 * of which `$[]` or `$[identifier]` has changed several elements is told whole.
 */
#include <stdlib.h>

#include "query/update/update_delta_internal.h"
#include "query/update/update_internal.h"

/* The nodes of the trie that lead to one place; several where numbers, `$`, `$[]` and filters may
 * mean the same element. */
typedef struct Place {
    const UpdateNode **nodes;
    uint32_t count;
} Place;

static bool tell_docs(Doc before, Doc after, const Place *place, Arena *arena, Doc *ret_delta);
static bool tell_arrays(Doc before, Doc after, const Place *place, Arena *arena, Doc *ret_delta);
static void tell_value(ChangeList *list, Elem before, Elem after, uint32_t index,
                       const Place *place);

bool update_delta_of_operators(const UpdateProgram *program, Doc before, Doc after, Arena *arena,
                               Doc *ret_delta) {
    if (program->root == NULL)
        return false;
    const UpdateNode *root = program->root;
    Doc delta;
    if (!tell_docs(before, after, &(Place){&root, 1}, arena, &delta) ||
        doc_size(delta) > BSON_DOC_SIZE_MAX) /* names of millions of fields that are gone */
        return false;
    *ret_delta = delta;
    return true;
}

/* ---- places ---- */

static void add_node(Place *place, const UpdateNode *parent, Str name) {
    int32_t at = update_node_find_child(parent, name);
    if (at >= 0)
        place->nodes[place->count++] = parent->children[at];
}

static Place field_below(const Place *place, Str name, Arena *arena) {
    Place below = {ARENA_ARRAY(arena, const UpdateNode *, place->count), 0};
    for (uint32_t i = 0; i < place->count; i++)
        add_node(&below, place->nodes[i], name);
    return below;
}

/* `$`, `$[]` and filters count for every element: only those that have changed are asked for, and
 * of an array with `$[]` or a filter only two. */
static Place element_below(const Place *place, uint32_t index, Arena *arena) {
    char name[INDEX_NAME_SIZE];
    uint32_t count_max = 0;
    for (uint32_t i = 0; i < place->count; i++)
        count_max += place->nodes[i]->has_array_child ? place->nodes[i]->child_count : 2;
    Place below = {ARENA_ARRAY(arena, const UpdateNode *, count_max), 0};
    for (uint32_t i = 0; i < place->count; i++) {
        const UpdateNode *node = place->nodes[i];
        if (!node->has_array_child) {
            add_node(&below, node, index_name(index, name));
            add_node(&below, node, STR("$"));
            continue;
        }
        for (uint32_t j = 0; j < node->child_count; j++) {
            const UpdateNode *child = node->children[j];
            if (child->part_kind != UPDATE_PART_FIELD || child->part.index == (int32_t)index)
                below.nodes[below.count++] = child;
        }
    }
    return below;
}

/* The operator that decides about this place; NULL: they are all further down. */
static const UpdateOperator *operator_at(const Place *place) {
    for (uint32_t i = 0; i < place->count; i++)
        if (place->nodes[i]->op != NULL)
            return place->nodes[i]->op;
    return NULL;
}

/* ---- documents ---- */

/* The order in which operators are applied. */
static int compare_changes(const void *a, const void *b) {
    PathPart x = path_part(elem_name_str(((const Change *)a)->elem));
    PathPart y = path_part(elem_name_str(((const Change *)b)->elem));
    return update_name_compare(&x, &y);
}

/* Operators leave fields in their places and add new ones at the end. */
static bool tell_docs(Doc before, Doc after, const Place *place, Arena *arena, Doc *ret_delta) {
    ChangeList list = {.arena = arena};
    DocIter old_iter = doc_iter(before), new_iter = doc_iter(after);
    Elem old_elem, new_elem;
    bool has_new = doc_iter_next(&new_iter, &new_elem), has_deleted = false;
    while (doc_iter_next(&old_iter, &old_elem)) {
        Str name = elem_name_str(old_elem);
        if (!has_new || !elem_name_is(new_elem, name)) {
            delta_add_change(&list, (Change){.kind = CHANGE_DELETE, .elem = old_elem});
            has_deleted = true;
            continue;
        }
        if (!elem_equal_bytes(old_elem, new_elem)) {
            Place below = field_below(place, name, arena);
            tell_value(&list, old_elem, new_elem, 0, &below);
        }
        has_new = doc_iter_next(&new_iter, &new_elem);
    }
    if (list.count > 1)
        qsort(list.items, list.count, sizeof(*list.items), compare_changes);
    for (; has_new; has_new = doc_iter_next(&new_iter, &new_elem))
        delta_add_change(&list, (Change){.kind = CHANGE_INSERT, .elem = new_elem});
    if (!delta_tells_fields_apart(&list, before) || !delta_tells_fields_apart(&list, after))
        return false;
    if (has_deleted)
        delta_drop_moves(&list);
    *ret_delta = delta_build_doc(&list, arena);
    return true;
}

/* ---- arrays ---- */

/* False: not only elements behind the end are new. An empty array is told whole. */
static bool tell_appended(Doc before, Doc after, Arena *arena, Doc *ret_delta) {
    size_t body_size = doc_size(before) - BSON_DOC_SIZE_MIN;
    if (doc_is_empty(before) || doc_size(after) <= doc_size(before) ||
        memcmp(before.data + 4, after.data + 4, body_size) != 0 || !delta_has_array_names(after))
        return false;
    ChangeList list = {.arena = arena};
    uint32_t old_count = doc_count(before), index = 0;
    DocIter iter = doc_iter(after);
    for (Elem elem; doc_iter_next(&iter, &elem); index++)
        if (index >= old_count)
            delta_add_change(&list, (Change){.kind = CHANGE_UPDATE, .elem = elem, .index = index});
    *ret_delta = delta_build_array(&list, /* length= */ -1, arena);
    return true;
}

/* False: it is told whole. */
static bool tell_arrays(Doc before, Doc after, const Place *place, Arena *arena, Doc *ret_delta) {
    if (!delta_has_array_names(before) || !delta_has_array_names(after))
        return false;
    bool has_array_child = false;
    for (uint32_t i = 0; i < place->count; i++)
        has_array_child |= place->nodes[i]->has_array_child;
    ChangeList list = {.arena = arena};
    DocIter old_iter = doc_iter(before), new_iter = doc_iter(after);
    Elem old_elem, new_elem;
    bool has_old = true;
    uint32_t index = 0;
    for (; doc_iter_next(&new_iter, &new_elem); index++) {
        has_old = has_old && doc_iter_next(&old_iter, &old_elem);
        if (has_old && elem_equal_bytes(old_elem, new_elem))
            continue;
        Place below = element_below(place, index, arena);
        if (has_old)
            tell_value(&list, old_elem, new_elem, index, &below);
        else if (below.count > 0) /* else a null on the way to one further behind */
            delta_add_change(&list,
                             (Change){.kind = CHANGE_UPDATE, .elem = new_elem, .index = index});
        if (has_array_child && list.count > 1)
            return false;
    }
    if (has_old && doc_iter_next(&old_iter, &old_elem))
        return false;
    *ret_delta = delta_build_array(&list, /* length= */ -1, arena);
    return true;
}

static void tell_value(ChangeList *list, Elem before, Elem after, uint32_t index,
                       const Place *place) {
    Change change = {.kind = CHANGE_UPDATE, .elem = after, .index = index};
    BsonType type = elem_type(after);
    const UpdateOperator *op = operator_at(place);
    bool has_delta = false;
    if (type == elem_type(before) && (type == BT_DOC || type == BT_ARRAY)) {
        Doc from = elem_doc(before), to = elem_doc(after);
        if (op != NULL)
            has_delta = op->id == UPDATE_OP_PUSH && type == BT_ARRAY &&
                        tell_appended(from, to, list->arena, &change.sub);
        else if (place->count > 0)
            has_delta = type == BT_DOC ? tell_docs(from, to, place, list->arena, &change.sub)
                                       : tell_arrays(from, to, place, list->arena, &change.sub);
    }
    if (has_delta)
        change.kind = CHANGE_SUB;
    delta_add_change(list, change);
}
