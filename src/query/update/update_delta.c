#include "query/update/update_delta_internal.h"

#include <stdlib.h>

#include "base/hash.h"

enum {
    FEW_CHANGES = 8, /* of one level: looked up one by one, more of them through a table */
};

/* Names of one level and where they are in a list: open addressing. */
typedef struct NameTable {
    uint32_t *slots; /* position + 1; 0: free */
    uint32_t mask;
} NameTable;

static bool diff_docs(Doc before, Doc after, Arena *arena, Doc *ret_delta);
static bool diff_arrays(Doc before, Doc after, Arena *arena, Doc *ret_delta);
static void add_changed_value(ChangeList *list, Elem before, Elem after, uint32_t index);
static bool has_unique_names(Doc doc, Arena *arena);
static ErrCode apply_to_doc(Doc before, Doc delta, Arena *arena, DocBuilder *b, Error *err);
static ErrCode apply_to_array(Doc before, Doc delta, Arena *arena, DocBuilder *b, Error *err);

/* ---- lists and tables ---- */

void delta_add_change(ChangeList *list, Change change) {
    if (list->count == list->capacity) {
        uint32_t capacity = list->capacity > 0 ? list->capacity * 2 : 8;
        Change *items = ARENA_ARRAY(list->arena, Change, capacity);
        if (list->count > 0)
            memcpy(items, list->items, list->count * sizeof(*items));
        list->items = items;
        list->capacity = capacity;
    }
    list->items[list->count++] = change;
}

static NameTable name_table(uint32_t count, Arena *arena) {
    uint32_t slots = 8;
    while (slots < count * 2)
        slots *= 2;
    return (NameTable){ARENA_ARRAY(arena, uint32_t, slots), slots - 1};
}

/* The slot of the name, or the free one where it belongs. `items` is what the table points to. */
static uint32_t *find_slot(const NameTable *table, Str name, const Change *items) {
    uint64_t hash = hash_bytes(name.data, name.size) * UINT64_C(0x9E3779B97F4A7C15);
    for (uint32_t at = (uint32_t)(hash >> 32) & table->mask;; at = (at + 1) & table->mask) {
        uint32_t *slot = &table->slots[at];
        if (*slot == 0 || elem_name_is(items[*slot - 1].elem, name))
            return slot;
    }
}

/* ---- computing ---- */

bool update_delta_compute(Doc before, Doc after, Arena *arena, Doc *ret_delta) {
    Doc delta;
    if (!diff_docs(before, after, arena, &delta) || doc_size(delta) >= doc_size(after))
        return false;
    *ret_delta = delta;
    return true;
}

static int compare_by_name(const void *a, const void *b) {
    return strcmp(elem_name(((const Change *)a)->elem), elem_name(((const Change *)b)->elem));
}

/* Fields stay where they are as long as both versions go along with each other. From there on an
 * old field is deleted, and all new ones that are left come at the end. The deleted ones are told
 * in MongoDB's order, which clients see: what was behind the last common field, then the others by
 * name. */
static bool diff_docs(Doc before, Doc after, Arena *arena, Doc *ret_delta) {
    ChangeList list = {.arena = arena}, between = {.arena = arena};
    DocIter old_iter = doc_iter(before), new_iter = doc_iter(after);
    Elem old_elem, new_elem;
    bool has_new = doc_iter_next(&new_iter, &new_elem);
    bool has_deleted = false;
    while (doc_iter_next(&old_iter, &old_elem)) {
        if (!has_new || !elem_name_is(new_elem, elem_name_str(old_elem))) {
            delta_add_change(has_new ? &between : &list,
                             (Change){.kind = CHANGE_DELETE, .elem = old_elem});
            has_deleted = true;
            continue;
        }
        add_changed_value(&list, old_elem, new_elem, 0);
        has_new = doc_iter_next(&new_iter, &new_elem);
    }
    if (between.count > 1)
        qsort(between.items, between.count, sizeof(*between.items), compare_by_name);
    for (uint32_t i = 0; i < between.count; i++)
        delta_add_change(&list, between.items[i]);
    for (; has_new; has_new = doc_iter_next(&new_iter, &new_elem))
        delta_add_change(&list, (Change){.kind = CHANGE_INSERT, .elem = new_elem});
    if (!delta_tells_fields_apart(&list, before) || !delta_tells_fields_apart(&list, after))
        return false;
    if (has_deleted)
        delta_drop_moves(&list);
    *ret_delta = delta_build_doc(&list, arena);
    return true;
}

void delta_drop_moves(ChangeList *list) {
    NameTable table = name_table(list->count, list->arena);
    for (uint32_t i = 0; i < list->count; i++)
        if (list->items[i].kind == CHANGE_INSERT)
            *find_slot(&table, elem_name_str(list->items[i].elem), list->items) = i + 1;
    for (uint32_t i = 0; i < list->count; i++)
        list->items[i].is_done =
            list->items[i].kind == CHANGE_DELETE &&
            *find_slot(&table, elem_name_str(list->items[i].elem), list->items) != 0;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < list->count; i++)
        if (!list->items[i].is_done)
            list->items[kept++] = list->items[i];
    list->count = kept;
}

static bool diff_arrays(Doc before, Doc after, Arena *arena, Doc *ret_delta) {
    if (!delta_has_array_names(before) || !delta_has_array_names(after))
        return false;
    ChangeList list = {.arena = arena};
    DocIter old_iter = doc_iter(before), new_iter = doc_iter(after);
    Elem old_elem, new_elem;
    bool has_old = true;
    uint32_t index = 0;
    for (; doc_iter_next(&new_iter, &new_elem); index++) {
        has_old = has_old && doc_iter_next(&old_iter, &old_elem);
        if (has_old)
            add_changed_value(&list, old_elem, new_elem, index);
        else
            delta_add_change(&list,
                             (Change){.kind = CHANGE_UPDATE, .elem = new_elem, .index = index});
    }
    bool is_shorter = has_old && doc_iter_next(&old_iter, &old_elem);
    *ret_delta = delta_build_array(&list, is_shorter ? (int64_t)index : -1, arena);
    return true;
}

/* The smaller of the whole value and its delta. */
static void add_changed_value(ChangeList *list, Elem before, Elem after, uint32_t index) {
    if (elem_equal_bytes(before, after))
        return;
    Change change = {.kind = CHANGE_UPDATE, .elem = after, .index = index};
    BsonType type = elem_type(after);
    Doc sub;
    bool has_delta =
        type == elem_type(before) &&
        ((type == BT_DOC && diff_docs(elem_doc(before), elem_doc(after), list->arena, &sub)) ||
         (type == BT_ARRAY && diff_arrays(elem_doc(before), elem_doc(after), list->arena, &sub)));
    if (has_delta && doc_size(sub) < doc_size(elem_doc(after))) {
        change.kind = CHANGE_SUB;
        change.sub = sub;
    }
    delta_add_change(list, change);
}

static void build_sub(DocBuilder *b, char prefix, Str name, Doc sub, Arena *arena) {
    char *prefixed = arena_alloc(arena, name.size + 2);
    prefixed[0] = prefix;
    memcpy(prefixed + 1, name.data, name.size);
    prefixed[name.size + 1] = '\0';
    build_doc(b, prefixed, sub);
}

static void build_section(DocBuilder *b, const char *section, ChangeKind kind,
                          const ChangeList *list) {
    bool is_open = false;
    size_t opened = 0;
    for (uint32_t i = 0; i < list->count; i++) {
        const Change *change = &list->items[i];
        if (change->kind != kind)
            continue;
        if (!is_open)
            opened = build_open_doc(b, section);
        is_open = true;
        if (kind == CHANGE_DELETE)
            build_bool(b, elem_name(change->elem), false);
        else
            build_elem(b, change->elem);
    }
    if (is_open)
        build_close(b, opened);
}

Doc delta_build_doc(const ChangeList *list, Arena *arena) {
    DocBuilder b = doc_builder_in_arena(arena);
    build_section(&b, "d", CHANGE_DELETE, list);
    build_section(&b, "u", CHANGE_UPDATE, list);
    build_section(&b, "i", CHANGE_INSERT, list);
    for (uint32_t i = 0; i < list->count; i++)
        if (list->items[i].kind == CHANGE_SUB)
            build_sub(&b, 's', elem_name_str(list->items[i].elem), list->items[i].sub, arena);
    return doc_builder_end(&b);
}

Doc delta_build_array(const ChangeList *list, int64_t length, Arena *arena) {
    DocBuilder b = doc_builder_in_arena(arena);
    build_bool(&b, "a", true);
    if (length >= 0)
        build_i32(&b, "l", (int32_t)length);
    for (uint32_t i = 0; i < list->count; i++) {
        const Change *change = &list->items[i];
        char name[1 + INDEX_NAME_SIZE], digits[INDEX_NAME_SIZE];
        Str index = index_name(change->index, digits);
        name[0] = change->kind == CHANGE_SUB ? 's' : 'u';
        memcpy(name + 1, index.data, index.size);
        name[index.size + 1] = '\0';
        if (change->kind == CHANGE_SUB)
            build_doc(&b, name, change->sub);
        else
            build_elem_as(&b, (Str){name, index.size + 1}, change->elem);
    }
    return doc_builder_end(&b);
}

static bool is_named_twice(Doc doc, Str name) {
    bool is_found = false;
    DocIter iter = doc_iter(doc);
    for (Elem elem; doc_iter_next(&iter, &elem);) {
        if (!elem_name_is(elem, name))
            continue;
        if (is_found)
            return true;
        is_found = true;
    }
    return false;
}

bool delta_tells_fields_apart(const ChangeList *list, Doc doc) {
    if (list->count > FEW_CHANGES)
        return has_unique_names(doc, list->arena);
    for (uint32_t i = 0; i < list->count; i++)
        if (is_named_twice(doc, elem_name_str(list->items[i].elem)))
            return false;
    return true;
}

static bool has_unique_names(Doc doc, Arena *arena) {
    uint32_t count = doc_count(doc);
    NameTable table = name_table(count, arena);
    ChangeList names = {.items = ARENA_ARRAY(arena, Change, count + 1), .arena = arena};
    DocIter iter = doc_iter(doc);
    for (Elem elem; doc_iter_next(&iter, &elem);) {
        uint32_t *slot = find_slot(&table, elem_name_str(elem), names.items);
        if (*slot != 0)
            return false;
        names.items[names.count++].elem = elem;
        *slot = names.count;
    }
    return true;
}

bool delta_has_array_names(Doc array) {
    uint32_t index = 0;
    DocIter iter = doc_iter(array);
    for (Elem elem; doc_iter_next(&iter, &elem); index++) {
        char name[INDEX_NAME_SIZE];
        if (!elem_name_is(elem, index_name(index, name)))
            return false;
    }
    return true;
}

/* ---- applying ---- */

ErrCode update_delta_apply(Doc before, Doc delta, Arena *arena, Doc *ret_after, Error *err) {
    Buffer *buf = ARENA_NEW(arena, Buffer);
    buffer_init_arena(buf, arena, doc_size(before) + doc_size(delta), BSON_DOC_SIZE_MAX_INTERNAL);
    DocBuilder b;
    doc_builder_init(&b, buf);
    TRY(apply_to_doc(before, delta, arena, &b, err));
    Doc after;
    TRY(doc_builder_finish(&b, "the updated document", &after, err));
    *ret_after = after;
    return ERR_OK;
}

static ErrCode malformed(Elem elem, Error *err) {
    return error_set(err, ERR_FAILED_TO_PARSE, "malformed delta: unexpected field '%s'",
                     elem_name(elem));
}

static bool is_array_delta(Doc delta) {
    return elem_type(doc_get_lit(delta, "a")) == BT_BOOL;
}

static ErrCode read_section(Elem section, ChangeKind kind, ChangeList *list, Error *err) {
    if (elem_type(section) != BT_DOC)
        return malformed(section, err);
    DocIter iter = doc_iter(elem_doc(section));
    for (Elem elem; doc_iter_next(&iter, &elem);)
        delta_add_change(list, (Change){.kind = kind, .elem = elem});
    return ERR_OK;
}

static ErrCode read_doc_delta(Doc delta, ChangeList *list, Error *err) {
    DocIter iter = doc_iter(delta);
    for (Elem elem; doc_iter_next(&iter, &elem);) {
        if (elem_name_is(elem, STR("d"))) {
            TRY(read_section(elem, CHANGE_DELETE, list, err));
        } else if (elem_name_is(elem, STR("u"))) {
            TRY(read_section(elem, CHANGE_UPDATE, list, err));
        } else if (elem_name_is(elem, STR("i"))) {
            TRY(read_section(elem, CHANGE_INSERT, list, err));
        } else if (elem_name(elem)[0] == 's' && elem_type(elem) == BT_DOC) {
            /* The element one byte on has the name without its prefix; only that is read. */
            Elem named = {elem.data + 1, elem.name_size - 1};
            delta_add_change(list,
                             (Change){.kind = CHANGE_SUB, .elem = named, .sub = elem_doc(elem)});
        } else {
            return malformed(elem, err);
        }
    }
    return ERR_OK;
}

static ErrCode apply_sub(Elem old, Str name, Doc sub, Arena *arena, DocBuilder *b, Error *err) {
    bool is_array = is_array_delta(sub);
    if (elem_type(old) != (is_array ? BT_ARRAY : BT_DOC)) {
        build_elem_as(b, name, old);
        return ERR_OK;
    }
    size_t opened = is_array ? build_open_array_str(b, name) : build_open_doc_str(b, name);
    TRY(is_array ? apply_to_array(elem_doc(old), sub, arena, b, err)
                 : apply_to_doc(elem_doc(old), sub, arena, b, err));
    build_close(b, opened);
    return ERR_OK;
}

/* Recursion is as deep as the delta is nested (BSON_DEPTH_MAX). */
static ErrCode apply_to_doc(Doc before, Doc delta, Arena *arena, DocBuilder *b, Error *err) {
    ChangeList list = {.arena = arena};
    TRY(read_doc_delta(delta, &list, err));
    NameTable table = name_table(list.count, arena);
    for (uint32_t i = 0; i < list.count; i++) {
        uint32_t *slot = find_slot(&table, elem_name_str(list.items[i].elem), list.items);
        if (*slot != 0)
            return error_set(err, ERR_FAILED_TO_PARSE, "malformed delta: field '%s' changes twice",
                             elem_name(list.items[i].elem));
        *slot = i + 1;
    }
    DocIter iter = doc_iter(before);
    for (Elem old; doc_iter_next(&iter, &old);) {
        uint32_t found = *find_slot(&table, elem_name_str(old), list.items);
        Change *change = found != 0 ? &list.items[found - 1] : NULL;
        if (change == NULL) {
            build_elem(b, old);
        } else if (change->kind == CHANGE_UPDATE && !change->is_done) {
            build_elem(b, change->elem);
        } else if (change->kind == CHANGE_SUB) {
            TRY(apply_sub(old, elem_name_str(old), change->sub, arena, b, err));
        } /* else deleted, or added again below */
        if (change != NULL)
            change->is_done = true;
    }
    for (uint32_t i = 0; i < list.count; i++) {
        const Change *change = &list.items[i];
        if (change->kind == CHANGE_INSERT || (change->kind == CHANGE_UPDATE && !change->is_done))
            build_elem(b, change->elem);
    }
    return ERR_OK;
}

static ErrCode read_array_delta(Doc delta, ChangeList *list, int64_t *ret_length, Error *err) {
    DocIter iter = doc_iter(delta);
    for (Elem elem; doc_iter_next(&iter, &elem);) {
        const char *name = elem_name(elem);
        if (elem_name_is(elem, STR("a")))
            continue;
        if (elem_name_is(elem, STR("l"))) {
            if (!elem_is_number(elem) || elem_as_i64(elem) < 0)
                return malformed(elem, err);
            *ret_length = elem_as_i64(elem);
            continue;
        }
        bool is_sub = name[0] == 's' && elem_type(elem) == BT_DOC;
        if (!is_sub && name[0] != 'u')
            return malformed(elem, err);
        uint64_t index = 0;
        for (const char *at = name + 1; *at != '\0' || at == name + 1; at++) {
            if (*at < '0' || *at > '9' || index > BSON_DOC_SIZE_MAX)
                return malformed(elem, err);
            index = index * 10 + (uint64_t)(*at - '0');
        }
        /* In rising order, so that one walk does. */
        if (index > BSON_DOC_SIZE_MAX ||
            (list->count > 0 && list->items[list->count - 1].index >= index))
            return malformed(elem, err);
        delta_add_change(list, (Change){.kind = is_sub ? CHANGE_SUB : CHANGE_UPDATE,
                                        .elem = elem,
                                        .sub = is_sub ? elem_doc(elem) : DOC_NONE,
                                        .index = (uint32_t)index});
    }
    return ERR_OK;
}

static ErrCode apply_to_array(Doc before, Doc delta, Arena *arena, DocBuilder *b, Error *err) {
    ChangeList list = {.arena = arena};
    int64_t length = INT64_MAX;
    TRY(read_array_delta(delta, &list, &length, err));
    uint32_t index = 0, next = 0;
    char name[INDEX_NAME_SIZE];
    DocIter iter = doc_iter(before);
    for (Elem old; index < length && doc_iter_next(&iter, &old); index++) {
        const Change *change =
            next < list.count && list.items[next].index == index ? &list.items[next++] : NULL;
        if (change == NULL)
            build_elem_as(b, index_name(index, name), old);
        else if (change->kind == CHANGE_UPDATE)
            build_elem_as(b, index_name(index, name), change->elem);
        else
            TRY(apply_sub(old, index_name(index, name), change->sub, arena, b, err));
    }
    for (; next < list.count; next++) {
        const Change *change = &list.items[next];
        if (change->kind != CHANGE_UPDATE)
            continue;
        for (; index < change->index && !b->buf->overflowed; index++)
            build_null(b, index_name(index, name).data);
        build_elem_as(b, index_name(index++, name), change->elem);
    }
    return ERR_OK;
}

/* ---- entries of the oplog ---- */

Doc update_delta_entry(Doc delta, Arena *arena) {
    DocBuilder b = doc_builder_in_arena_sized(arena, doc_size(delta) + 32);
    build_i32(&b, "$v", 2);
    build_doc(&b, "diff", delta);
    return doc_builder_end(&b);
}

Doc update_delta_of_entry(Doc entry) {
    Elem version = doc_get_lit(entry, "$v"), delta = doc_get_lit(entry, "diff");
    if (!elem_is_number(version) || elem_as_i64(version) != 2 || elem_type(delta) != BT_DOC)
        return DOC_NONE;
    return elem_doc(delta);
}
