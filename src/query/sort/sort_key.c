/*
 * sort_key.c - the sort key of a document.
 *
 * Documents without arrays on the paths, nearly all, take one pass over the parts. With an array,
 * each of its elements gives a candidate key for all parts together and the lowest wins; parts that
 * meet different arrays would need every combination and are refused.
 */
#include <assert.h>

#include "bson/builder.h"
#include "query/sort/sort_pattern.h"

static const uint8_t UNDEFINED_BYTES[2] = {BT_UNDEFINED, 0};
#define ELEM_UNDEFINED ((Elem){UNDEFINED_BYTES, 0})

/* Where a part's walk has come to: component `at` is to be looked up in `elem`, or, when `at` is
 * past the last one, `elem` is the value. */
typedef struct Place {
    Elem elem;
    uint32_t at;
    bool is_final; /* the value, whatever its type: an array within an array stays whole */
} Place;

typedef struct KeyMaker {
    const SortPattern *pattern;
    const Collator *collator;
    KeyBuilder *best;
    KeyBuilder candidate; /* its memory is made when the second candidate comes */
    bool has_best;
} KeyMaker;

static ErrCode make_keys(KeyMaker *maker, const Place *places, Error *err);
static ErrCode branch_at_array(KeyMaker *maker, const Place *places, Elem array, Error *err);
static ErrCode advance(const SortPart *part, Place *place, Error *err);
static bool is_at_array(const Place *place);
static void emit_key(KeyMaker *maker, const Place *places);
static void append_places(const SortPattern *pattern, const Place *places, const Collator *collator,
                          KeyBuilder *key);

ErrCode sort_key_make(const SortPattern *pattern, Doc doc, const Collator *collator,
                      KeyBuilder *key, Error *err) {
    Place places[KEYSTRING_FIELDS_MAX];
    bool has_array = false;
    for (uint32_t i = 0; i < pattern->count; i++) {
        const SortPart *part = &pattern->parts[i];
        Elem first = path_find_field(doc, &part->path.parts[0]);
        places[i] = (Place){.elem = first, .at = 1};
        if (part->path.count > 1)
            TRY(advance(part, &places[i], err));
        has_array |= is_at_array(&places[i]);
    }
    if (LIKELY(!has_array)) {
        append_places(pattern, places, collator, key);
        return buffer_check(&key->key, "sort key", err);
    }
    KeyMaker maker = {.pattern = pattern, .collator = collator, .best = key};
    ErrCode rc = make_keys(&maker, places, err);
    key_builder_done(&maker.candidate);
    TRY(rc);
    assert(maker.has_best);
    return buffer_check(&key->key, "sort key", err);
}

ErrCode sort_key_show(const SortPattern *pattern, Doc doc, const char *name, Arena *scratch,
                      DocBuilder *b, Error *err) {
    KeyBuilder key;
    key_builder_init_arena(&key, scratch);
    TRY(sort_key_make(pattern, doc, /* collator= */ NULL, &key, err));
    key_append_end(&key, KEY_END_EXACT);
    Str type_bits = key_type_bits(&key);
    Doc values;
    TRY(key_decode(key.key.data, key.key.size, (const uint8_t *)type_bits.data, type_bits.size,
                   pattern->order, scratch, &values, err));
    size_t array = build_open_array(b, name);
    uint32_t index = 0;
    DocIter iter = doc_iter(values);
    for (Elem value; doc_iter_next(&iter, &value);) {
        char index_text[INDEX_NAME_SIZE];
        build_elem_as(b, index_name(index++, index_text), value);
    }
    build_close(b, array);
    return ERR_OK;
}

/* Depth of the recursion: each level passes one array of some path. */
static ErrCode make_keys(KeyMaker *maker, const Place *places, Error *err) {
    Elem array = ELEM_MISSING;
    for (uint32_t i = 0; i < maker->pattern->count; i++) {
        if (!is_at_array(&places[i]))
            continue;
        if (elem_is_present(array) && array.data != places[i].elem.data)
            return error_set(err, ERR_BAD_VALUE, "cannot sort with keys that are parallel arrays");
        array = places[i].elem;
    }
    if (elem_is_present(array))
        return branch_at_array(maker, places, array, err);
    emit_key(maker, places);
    return ERR_OK;
}

static ErrCode branch_at_array(KeyMaker *maker, const Place *places, Elem array, Error *err) {
    const SortPattern *pattern = maker->pattern;
    Place branch[KEYSTRING_FIELDS_MAX];
    memcpy(branch, places, pattern->count * sizeof(Place));
    bool is_empty = doc_is_empty(elem_doc(array));
    DocIter iter = doc_iter(elem_doc(array));
    Elem elem = ELEM_MISSING;
    while (is_empty || doc_iter_next(&iter, &elem)) {
        for (uint32_t i = 0; i < pattern->count; i++) {
            const SortPart *part = &pattern->parts[i];
            if (places[i].elem.data != array.data || !is_at_array(&places[i]))
                continue;
            bool is_leaf = places[i].at == part->path.count;
            if (is_empty) {
                branch[i] = (Place){is_leaf ? ELEM_UNDEFINED : ELEM_MISSING, places[i].at, true};
            } else if (is_leaf) {
                branch[i] = (Place){elem, places[i].at, true};
            } else if (elem_type(elem) == BT_DOC) {
                branch[i] = (Place){elem, places[i].at, false};
                TRY(advance(part, &branch[i], err));
            } else {
                branch[i] = (Place){ELEM_MISSING, places[i].at, true};
            }
        }
        TRY(make_keys(maker, branch, err));
        if (is_empty)
            break;
    }
    return ERR_OK;
}

/* Goes on through documents until the value or an array. A numeric component picks an element of
 * the array it meets; at the end of the path it is the value, an array too. */
static ErrCode advance(const SortPart *part, Place *place, Error *err) {
    while (place->at < part->path.count) {
        const PathPart *component = &part->path.parts[place->at];
        BsonType type = elem_type(place->elem);
        if (type == BT_DOC) {
            place->elem = path_find_field(elem_doc(place->elem), component);
        } else if (type == BT_ARRAY) {
            Elem picked;
            TRY(path_pick_position(elem_doc(place->elem), component->name, &picked, err));
            if (!elem_is_present(picked))
                return ERR_OK;
            *place = (Place){picked, place->at, place->at + 1 == part->path.count};
        } else {
            *place = (Place){ELEM_MISSING, place->at, true};
            return ERR_OK;
        }
        place->at++;
    }
    return ERR_OK;
}

static bool is_at_array(const Place *place) {
    return !place->is_final && elem_type(place->elem) == BT_ARRAY;
}

static void emit_key(KeyMaker *maker, const Place *places) {
    if (!maker->has_best) {
        append_places(maker->pattern, places, maker->collator, maker->best);
        maker->has_best = true;
        return;
    }
    KeyBuilder *candidate = &maker->candidate;
    if (candidate->key.size_max == 0)
        key_builder_init(candidate);
    append_places(maker->pattern, places, maker->collator, candidate);
    Buffer *best = &maker->best->key;
    if (candidate->key.overflowed) {
        best->overflowed = true;
        return;
    }
    size_t common = best->size < candidate->key.size ? best->size : candidate->key.size;
    int order = memcmp(candidate->key.data, best->data, common);
    if (order < 0 || (order == 0 && candidate->key.size < best->size)) {
        buffer_clear(best);
        buffer_append(best, candidate->key.data, candidate->key.size);
    }
}

static void append_places(const SortPattern *pattern, const Place *places, const Collator *collator,
                          KeyBuilder *key) {
    key_builder_reset(key, pattern->order);
    for (uint32_t i = 0; i < pattern->count; i++)
        key_append_elem(key, places[i].elem, collator);
    key_append_end(key, KEY_END_EXACT);
}

ErrCode sort_key_attach(Doc doc, Str key, Buffer *buf, Doc *ret_doc, Error *err) {
    buffer_clear(buf);
    DocBuilder b;
    doc_builder_init(&b, buf);
    build_binary(&b, SORT_KEY_NAME, 0, key.data, key.size);
    build_all(&b, doc);
    return doc_builder_finish(&b, "document with its sort key", ret_doc, err);
}
