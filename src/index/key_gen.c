#include "index/key_gen.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "bson/collator.h"
#include "bson/index_hash.h"
#include "query/match/path.h"

/* Where the walk along one field's path stands. */
typedef struct Spot {
    Elem value;         /* the last element reached; missing: the path ends nowhere */
    uint32_t next_part; /* part to look up below value; == part_count: value is the field's value */
} Spot;

/* next_part of a value that stays as it is, even an array: one inside an expanded array, one that
 * the path names by its position, one that cannot be there. */
#define PART_FINAL UINT32_MAX

typedef struct Walk {
    const IndexDesc *index;
    KeySet *set;
    Error *err;
} Walk;

static ErrCode walk_path(const IndexDesc *index, const IndexField *field, Doc doc, Spot *spot,
                         Error *err);
static bool is_at_array(const Spot *spot);
static ErrCode expand(Walk *walk, const Spot *spots);
static ErrCode expand_element(Walk *walk, const Spot *spots, const uint8_t *array, Elem element);
static ErrCode step_into(Walk *walk, const IndexField *field, Spot *spot, Elem element);
static ErrCode add_key(Walk *walk, const Spot *spots);
static ErrCode add_wildcard_keys(Walk *walk, const Spot *spots);
static ErrCode keep_key(Walk *walk);
static ErrCode wildcard_keys_of(const IndexDesc *index, Doc doc, KeySet *set, Error *err);
static ErrCode refuse_hashed_array(const IndexDesc *index, const Spot *spots, Error *err);
static void sort_and_dedupe(KeySet *set);

void key_set_init(KeySet *set) {
    *set = (KeySet){0};
    key_builder_init(&set->builder);
    buffer_init(&set->bytes, BUFFER_UNBOUNDED);
    buffer_init(&set->wildcard.paths, BUFFER_UNBOUNDED);
}

void key_set_done(KeySet *set) {
    key_builder_done(&set->builder);
    buffer_done(&set->bytes);
    buffer_done(&set->wildcard.paths);
    xfree(set->wildcard.rows);
    set->wildcard.rows = NULL;
    xfree(set->spans);
    set->spans = NULL;
}

IndexKey key_set_get(const KeySet *set, uint32_t position) {
    const struct KeySpan *span = &set->spans[position];
    const char *at = (const char *)set->bytes.data + span->offset;
    return (IndexKey){{at, span->key_size}, {at + span->key_size, span->type_bits_size}};
}

ErrCode index_keys_of(const IndexDesc *index, Doc doc, KeySet *ret_set, Error *err) {
    ret_set->count = 0;
    ret_set->is_multikey = false;
    memset(ret_set->multikey_paths, 0, sizeof(uint32_t) * index->field_count);
    buffer_clear(&ret_set->bytes);
    if (index->partial_filter != NULL && !match_doc(index->partial_filter, doc, NULL))
        return ERR_OK;

    if (index->kind == INDEX_KIND_WILDCARD)
        return wildcard_keys_of(index, doc, ret_set, err);
    Spot spots[INDEX_FIELDS_MAX];
    bool has_array = false, has_any = false;
    for (uint32_t f = 0; f < index->field_count; f++) {
        spots[f] = (Spot){ELEM_MISSING, 0};
        TRY(walk_path(index, &index->fields[f], doc, &spots[f], err));
        has_array |= is_at_array(&spots[f]);
        has_any |= elem_is_present(spots[f].value);
    }
    if (index->is_sparse && !has_any)
        return ERR_OK;
    Walk walk = {index, ret_set, err};
    if (LIKELY(!has_array))
        return add_key(&walk, spots);
    if (index->kind == INDEX_KIND_HASHED)
        return refuse_hashed_array(index, spots, err);
    TRY(expand(&walk, spots));
    if (index->is_sparse && ret_set->count == 0)
        return ERR_OK;
    sort_and_dedupe(ret_set);
    for (uint32_t f = 0; f < index->field_count; f++)
        ret_set->is_multikey |= ret_set->multikey_paths[f] != 0;
    return ERR_OK;
}

/* The fields beside the wildcard make their keys as usual; each is joined with each entry. */
static ErrCode wildcard_keys_of(const IndexDesc *index, Doc doc, KeySet *set, Error *err) {
    TRY(wildcard_entries_of(index, doc, &set->wildcard, err));
    if (set->wildcard.count == 0 && index->field_count == 1)
        return ERR_OK;
    Spot spots[INDEX_FIELDS_MAX];
    const char *array_path = NULL;
    for (uint32_t f = 0; f < index->field_count; f++) {
        spots[f] = (Spot){ELEM_MISSING, PART_FINAL};
        if (f == index->special_field)
            continue;
        spots[f].next_part = 0;
        TRY(walk_path(index, &index->fields[f], doc, &spots[f], err));
        if (is_at_array(&spots[f]))
            array_path = index->fields[f].path;
    }
    if (set->wildcard.has_array && array_path != NULL)
        return error_set(err, ERR_CANNOT_INDEX_PARALLEL_ARRAYS,
                         "cannot index parallel arrays [%s] [%s]", array_path,
                         index->fields[index->special_field].path);
    Walk walk = {index, set, err};
    TRY(expand(&walk, spots));
    if (set->count > INDEX_KEYS_PER_DOC_MAX)
        return error_set(err, ERR_CANNOT_BUILD_INDEX_KEYS,
                         "index \"%s\" would have more than %d keys for one document", index->name,
                         INDEX_KEYS_PER_DOC_MAX);
    sort_and_dedupe(set);
    set->multikey_paths[index->special_field] |= set->wildcard.has_array;
    for (uint32_t f = 0; f < index->field_count; f++)
        set->is_multikey |= set->multikey_paths[f] != 0;
    return ERR_OK;
}

static ErrCode refuse_hashed_array(const IndexDesc *index, const Spot *spots, Error *err) {
    uint32_t f = 0;
    while (!is_at_array(&spots[f]))
        f++;
    const IndexField *field = &index->fields[f];
    const Str last = field->parts[spots[f].next_part - 1];
    return error_set(err, (ErrCode)16766,
                     "hashed indexes do not currently support array values. Found array at path: "
                     "%.*s",
                     (int)(last.data + last.size - field->path), field->path);
}

ErrCode clustered_record_id(Doc doc, const Collator *collator, KeyBuilder *kb, RecordId *ret_rid,
                            Error *err) {
    Elem id = doc_get_lit(doc, "_id");
    if (!elem_is_present(id))
        return error_set(err, ERR_BAD_VALUE,
                         "documents of a clustered collection need the field '_id'");
    clustered_record_id_of_value(id, collator, kb, ret_rid);
    if (ret_rid->str_size > RECORD_ID_STR_SIZE_MAX)
        return error_set(err, ERR_BAD_VALUE,
                         "the value of '_id' is too large for a clustered collection");
    return ERR_OK;
}

void clustered_record_id_of_value(Elem id, const Collator *collator, KeyBuilder *kb,
                                  RecordId *ret_rid) {
    key_builder_reset(kb, 0);
    key_append_elem(kb, id, collator);
    *ret_rid = (RecordId){0, kb->key.data, (uint32_t)kb->key.size};
}

/* Goes down from `doc` until the path ends, a field is missing, or an array is met that the next
 * part does not index by position. Hashed indexes take no arrays, by position neither. */
static ErrCode walk_path(const IndexDesc *index, const IndexField *field, Doc doc, Spot *spot,
                         Error *err) {
    Elem elem = doc_get(doc, field->parts[spot->next_part]);
    for (;;) {
        spot->value = elem;
        if (!elem_is_present(elem)) {
            spot->next_part = field->part_count;
            return ERR_OK;
        }
        spot->next_part++;
        if (spot->next_part == field->part_count)
            return ERR_OK;
        BsonType type = elem_type(elem);
        if (type == BT_DOC) {
            elem = doc_get(elem_doc(elem), field->parts[spot->next_part]);
            continue;
        }
        if (type != BT_ARRAY) {
            spot->value = ELEM_MISSING;
            spot->next_part = field->part_count;
            return ERR_OK;
        }
        if (index->kind == INDEX_KIND_HASHED)
            return ERR_OK;
        Elem picked;
        TRY(path_pick_position(elem_doc(elem), field->parts[spot->next_part], &picked, err));
        if (!elem_is_present(picked))
            return ERR_OK;
        if (spot->next_part + 1 == field->part_count) {
            *spot = (Spot){picked, PART_FINAL};
            return ERR_OK;
        }
        elem = picked; /* "a.0.b": goes on in the element itself, not in each element */
    }
}

static bool is_at_array(const Spot *spot) {
    return elem_type(spot->value) == BT_ARRAY && spot->next_part != PART_FINAL;
}

/* Expands the one array that the spots stand at, and recurses for arrays of documents with arrays.
 */
static ErrCode expand(Walk *walk, const Spot *spots) {
    const IndexDesc *index = walk->index;
    const uint8_t *array = NULL;
    const char *array_path = NULL;
    for (uint32_t f = 0; f < index->field_count; f++) {
        const Spot *spot = &spots[f];
        if (!is_at_array(spot))
            continue;
        if (array != NULL && array != spot->value.data)
            return error_set(walk->err, ERR_CANNOT_INDEX_PARALLEL_ARRAYS,
                             "cannot index parallel arrays [%s] [%s]", index->fields[f].path,
                             array_path);
        array = spot->value.data;
        array_path = index->fields[f].path;
        uint32_t part = spot->next_part - 1;
        walk->set->multikey_paths[f] |=
            UINT32_C(1) << (part < INDEX_PATH_PARTS_MAX ? part : INDEX_PATH_PARTS_MAX - 1);
    }
    if (array == NULL)
        return add_key(walk, spots);

    Elem array_elem = {array, (uint32_t)strlen((const char *)array + 1)};
    DocIter iter = doc_iter(elem_doc(array_elem));
    Elem element;
    bool is_empty = true;
    while (doc_iter_next(&iter, &element)) {
        is_empty = false;
        TRY(expand_element(walk, spots, array, element));
        if (walk->set->count > INDEX_KEYS_PER_DOC_MAX)
            return error_set(walk->err, ERR_CANNOT_BUILD_INDEX_KEYS,
                             "index \"%s\" would have more than %d keys for one document",
                             index->name, INDEX_KEYS_PER_DOC_MAX);
    }
    return is_empty ? expand_element(walk, spots, array, ELEM_MISSING) : ERR_OK;
}

static ErrCode expand_element(Walk *walk, const Spot *spots, const uint8_t *array, Elem element) {
    static const uint8_t UNDEFINED[] = {BT_UNDEFINED, 0};
    Spot next[INDEX_FIELDS_MAX];
    for (uint32_t f = 0; f < walk->index->field_count; f++) {
        next[f] = spots[f];
        if (spots[f].value.data != array || spots[f].next_part == PART_FINAL)
            continue;
        if (spots[f].next_part == walk->index->fields[f].part_count) {
            /* The value itself; an array inside the array is not expanded again. */
            next[f].value = elem_is_present(element) ? element : (Elem){UNDEFINED, 0};
            next[f].next_part = PART_FINAL;
        } else {
            TRY(step_into(walk, &walk->index->fields[f], &next[f], element));
        }
    }
    return expand(walk, next);
}

static ErrCode step_into(Walk *walk, const IndexField *field, Spot *spot, Elem element) {
    if (elem_type(element) == BT_DOC)
        return walk_path(walk->index, field, elem_doc(element), spot, walk->err);
    *spot = (Spot){ELEM_MISSING, PART_FINAL};
    return ERR_OK;
}

static void append_hash(KeyBuilder *kb, Elem value, const Collator *collator) {
    int64_t hash = index_hash_collated(value, collator);
    key_append_value(kb, BT_INT64, (const uint8_t *)&hash, NULL);
}

static bool has_value(const IndexDesc *index, const Spot *spots) {
    for (uint32_t f = 0; f < index->field_count; f++)
        if (elem_is_present(spots[f].value))
            return true;
    return false;
}

static ErrCode add_key(Walk *walk, const Spot *spots) {
    const IndexDesc *index = walk->index;
    if (index->kind == INDEX_KIND_WILDCARD)
        return add_wildcard_keys(walk, spots);
    if (UNLIKELY(index->is_sparse) && !has_value(index, spots))
        return ERR_OK; /* of an array: an element without any of the fields, or no element */
    KeyBuilder *kb = &walk->set->builder;
    key_builder_reset(kb, index->order);
    for (uint32_t f = 0; f < index->field_count; f++) {
        if (UNLIKELY(index_field_is_hashed(index, f)))
            append_hash(kb, spots[f].value, index->collator);
        else
            key_append_elem(kb, spots[f].value, index->collator);
    }
    return keep_key(walk);
}

/* One key for each entry of the wildcard, or one without any. */
static ErrCode add_wildcard_keys(Walk *walk, const Spot *spots) {
    static const uint8_t MIN_KEY[] = {BT_MIN_KEY, 0};
    static const int32_t MARK = 1;
    const IndexDesc *index = walk->index;
    const WildcardEntries *entries = &walk->set->wildcard;
    KeyBuilder *kb = &walk->set->builder;
    uint32_t count = entries->count > 0 ? entries->count : 1;
    for (uint32_t i = 0; i < count; i++) {
        const WildcardEntry *entry = entries->count > 0 ? &entries->rows[i] : NULL;
        bool is_mark = entry != NULL && entry->is_array_mark;
        key_builder_reset(kb, index->order);
        for (uint32_t f = 0; f < index->field_count; f++) {
            if (f != index->special_field) {
                key_append_elem(kb, is_mark ? (Elem){MIN_KEY, 0} : spots[f].value, index->collator);
            } else if (entry == NULL) {
                key_append_elem(kb, (Elem){MIN_KEY, 0}, NULL);
                key_append_elem(kb, (Elem){MIN_KEY, 0}, NULL);
            } else {
                const uint8_t *path = entries->paths.data + entry->path;
                if (is_mark)
                    key_append_value(kb, BT_INT32, (const uint8_t *)&MARK, NULL);
                key_append_value(kb, BT_STRING, path, NULL);
                if (!is_mark)
                    key_append_elem(kb, entry->value, index->collator);
            }
        }
        TRY(keep_key(walk));
    }
    return ERR_OK;
}

static ErrCode keep_key(Walk *walk) {
    KeySet *set = walk->set;
    KeyBuilder *kb = &set->builder;
    key_append_end(kb, KEY_END_EXACT);
    Str type_bits = key_type_bits(kb);
    ARRAY_RESERVE(set->spans, set->count, set->capacity);
    set->spans[set->count++] = (struct KeySpan){(uint32_t)set->bytes.size, (uint32_t)kb->key.size,
                                                (uint32_t)type_bits.size};
    buffer_append(&set->bytes, kb->key.data, kb->key.size);
    buffer_append(&set->bytes, type_bits.data, type_bits.size);
    if (UNLIKELY(set->bytes.size > INDEX_KEY_BYTES_PER_DOC_MAX))
        return error_set(walk->err, ERR_CANNOT_BUILD_INDEX_KEYS,
                         "index \"%s\" would have more than %d bytes of keys for one document",
                         walk->index->name, INDEX_KEY_BYTES_PER_DOC_MAX);
    return ERR_OK;
}

static int compare_spans(const void *a, const void *b, void *bytes) {
    const struct KeySpan *x = a, *y = b;
    size_t size = x->key_size < y->key_size ? x->key_size : y->key_size;
    int rc = memcmp((uint8_t *)bytes + x->offset, (uint8_t *)bytes + y->offset, size);
    if (rc != 0)
        return rc;
    if (x->key_size != y->key_size)
        return x->key_size < y->key_size ? -1 : 1;
    /* Of equal keys the first one's type bits are kept. */
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

static void sort_and_dedupe(KeySet *set) {
    if (set->count < 2)
        return;
    qsort_r(set->spans, set->count, sizeof(*set->spans), compare_spans, set->bytes.data);
    uint32_t kept = 1;
    for (uint32_t i = 1; i < set->count; i++) {
        struct KeySpan *last = &set->spans[kept - 1], *span = &set->spans[i];
        if (last->key_size == span->key_size &&
            memcmp(set->bytes.data + last->offset, set->bytes.data + span->offset,
                   span->key_size) == 0)
            continue;
        set->spans[kept++] = *span;
    }
    set->count = kept;
}
