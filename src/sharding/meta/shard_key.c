#include "sharding/meta/shard_key.h"

#include <stdatomic.h>
#include <string.h>

#include "base/alloc.h"
#include "bson/collator.h"
#include "bson/index_hash.h"
#include "bson/json.h"

struct ShardKey {
    _Atomic int32_t refs;
    Arena arena; /* all that is below */
    Doc pattern;
    ShardKeyField *fields;
    FieldPath *paths;
    uint32_t count;
    bool has_hashed;
};

static ErrCode parse_field(ShardKey *key, Elem elem, Error *err);
static ErrCode check_path(const ShardKey *key, const FieldPath *path, Error *err);
static ErrCode check_no_dollars(Doc doc, const char *what, Error *err);

/* ---- patterns ---- */

ErrCode shard_key_parse(Doc pattern, ShardKey **ret_key, Error *err) {
    if (doc_is_empty(pattern))
        return error_set(err, ERR_BAD_VALUE, "a shard key needs at least one field");
    uint32_t count = doc_count(pattern);
    if (count > KEYSTRING_FIELDS_MAX)
        return error_set(err, ERR_BAD_VALUE, "a shard key has at most %d fields, not %u",
                         KEYSTRING_FIELDS_MAX, count);
    ShardKey *key = NEW(ShardKey);
    atomic_init(&key->refs, 1);
    arena_init(&key->arena, 512);
    key->pattern = doc_copy(pattern, &key->arena);
    key->fields = ARENA_ARRAY(&key->arena, ShardKeyField, count);
    key->paths = ARENA_ARRAY(&key->arena, FieldPath, count);
    DocIter iter = doc_iter(key->pattern);
    ErrCode rc = ERR_OK;
    for (Elem elem; rc == ERR_OK && doc_iter_next(&iter, &elem);)
        rc = parse_field(key, elem, err);
    if (rc == ERR_OK)
        *ret_key = key;
    else
        shard_key_unref(key);
    return rc;
}

static ErrCode parse_field(ShardKey *key, Elem elem, Error *err) {
    FieldPath *path = &key->paths[key->count];
    TRY(path_parse(elem_name_str(elem), &key->arena, path, err));
    TRY(check_path(key, path, err));
    bool is_hashed = elem_type(elem) == BT_STRING && str_is(elem_str(elem), "hashed");
    if (!is_hashed && !(elem_is_number(elem) && elem_as_f64(elem) == 1))
        return error_set(err, ERR_BAD_VALUE,
                         "field \"%s\" of a shard key must be 1 or \"hashed\", not %s",
                         elem_name(elem), shell_text_of_elem(elem, &key->arena));
    if (is_hashed && key->has_hashed)
        return error_set(err, ERR_BAD_VALUE,
                         "a shard key has at most one hashed field, \"%s\" is the second",
                         elem_name(elem));
    key->fields[key->count++] = (ShardKeyField){path->dotted, is_hashed};
    key->has_hashed |= is_hashed;
    return ERR_OK;
}

/* Is `above` the path itself or one that leads to it? */
static bool leads_to(Str above, Str path) {
    return above.size <= path.size && memcmp(above.data, path.data, above.size) == 0 &&
           (above.size == path.size || path.data[above.size] == '.');
}

static bool is_part_of_reference(Str name) {
    return str_is(name, "$id") || str_is(name, "$ref") || str_is(name, "$db");
}

static ErrCode check_path(const ShardKey *key, const FieldPath *path, Error *err) {
    for (uint32_t p = 0; p < path->count; p++) {
        Str name = path->parts[p].name;
        if (name.size == 0)
            return error_set(err, ERR_BAD_VALUE, "field \"%.*s\" of a shard key has an empty part",
                             (int)path->dotted.size, path->dotted.data);
        if (name.data[0] == '$' && !(p > 0 && is_part_of_reference(name)))
            return error_set(err, ERR_BAD_VALUE,
                             "field \"%.*s\" of a shard key has a part that begins with $",
                             (int)path->dotted.size, path->dotted.data);
    }
    for (uint32_t f = 0; f < key->count; f++) {
        Str other = key->fields[f].path;
        if (leads_to(other, path->dotted) || leads_to(path->dotted, other))
            return error_set(err, ERR_BAD_VALUE,
                             "fields \"%.*s\" and \"%.*s\" of a shard key are the same or one is "
                             "inside the other",
                             (int)other.size, other.data, (int)path->dotted.size,
                             path->dotted.data);
    }
    return ERR_OK;
}

ShardKey *shard_key_ref(ShardKey *key) {
    atomic_fetch_add_explicit(&key->refs, 1, memory_order_relaxed);
    return key;
}

void shard_key_unref(ShardKey *key) {
    /* Released by whoever is last: sees all that the others did. */
    if (key == NULL || atomic_fetch_sub_explicit(&key->refs, 1, memory_order_acq_rel) != 1)
        return;
    arena_done(&key->arena);
    xfree(key);
}

void shard_key_unref_ptr(ShardKey **key) {
    shard_key_unref(*key);
}

Doc shard_key_pattern(const ShardKey *key) {
    return key->pattern;
}

const ShardKeyField *shard_key_fields(const ShardKey *key, uint32_t *ret_count) {
    *ret_count = key->count;
    return key->fields;
}

bool shard_key_has_hashed(const ShardKey *key) {
    return key->has_hashed;
}

bool shard_key_touches(const ShardKey *key, Str path) {
    for (uint32_t f = 0; f < key->count; f++)
        if (leads_to(key->fields[f].path, path) || leads_to(path, key->fields[f].path))
            return true;
    return false;
}

static bool begins_with(const ShardKey *longer, const ShardKey *shorter) {
    if (longer->count < shorter->count)
        return false;
    for (uint32_t f = 0; f < shorter->count; f++)
        if (longer->fields[f].is_hashed != shorter->fields[f].is_hashed ||
            !str_equal(longer->fields[f].path, shorter->fields[f].path))
            return false;
    return true;
}

bool shard_key_equal(const ShardKey *a, const ShardKey *b) {
    return a->count == b->count && begins_with(a, b);
}

bool shard_key_extends(const ShardKey *longer, const ShardKey *shorter) {
    return longer->count > shorter->count && begins_with(longer, shorter);
}

/* ---- keys ---- */

/* The value at the parts from `first` on, below `elem`; missing when the path ends early. False: an
 * array is in the way, or is the value. */
static bool find_below(const FieldPath *path, uint32_t first, Elem elem, Elem *ret_elem) {
    for (uint32_t p = first; p < path->count && elem_type(elem) != BT_ARRAY; p++)
        elem = elem_type(elem) == BT_DOC ? path_find_field(elem_doc(elem), &path->parts[p])
                                         : ELEM_MISSING;
    if (elem_type(elem) == BT_ARRAY)
        return false;
    *ret_elem = elem;
    return true;
}

static bool find_value(const ShardKey *key, uint32_t field, Doc doc, Elem *ret_elem) {
    const FieldPath *path = &key->paths[field];
    return find_below(path, 1, path_find_field(doc, &path->parts[0]), ret_elem);
}

typedef struct HashElem {
    uint8_t bytes[2 + sizeof(int64_t)];
} HashElem;

static Elem hash_of(Elem value, HashElem *space) {
    int64_t hash = index_hash(value);
    space->bytes[0] = BT_INT64;
    space->bytes[1] = '\0';
    memcpy(space->bytes + 2, &hash, sizeof(hash));
    return (Elem){space->bytes, 0};
}

bool shard_key_of_doc(const ShardKey *key, Doc doc, KeyBuilder *kb) {
    key_builder_reset(kb, 0);
    for (uint32_t f = 0; f < key->count; f++) {
        Elem value;
        HashElem hash;
        if (!find_value(key, f, doc, &value))
            return false;
        key_append_elem(kb, key->fields[f].is_hashed ? hash_of(value, &hash) : value, NULL);
    }
    key_append_end(kb, KEY_END_EXACT);
    return true;
}

/* Missing values are null in a key. */
static void build_key_value(DocBuilder *b, const ShardKeyField *field, Elem value) {
    static const uint8_t NULL_BYTES[] = {BT_NULL, 0};
    HashElem hash;
    if (field->is_hashed)
        value = hash_of(value, &hash);
    else if (!elem_is_present(value))
        value = (Elem){NULL_BYTES, 0};
    build_elem_as(b, field->path, value);
}

bool shard_key_extract(const ShardKey *key, Doc doc, Arena *arena, Doc *ret_key) {
    DocBuilder b = doc_builder_in_arena(arena);
    for (uint32_t f = 0; f < key->count; f++) {
        Elem value;
        if (!find_value(key, f, doc, &value))
            return false;
        build_key_value(&b, &key->fields[f], value);
    }
    *ret_key = doc_builder_end(&b);
    return true;
}

/* ---- keys of filters ---- */

typedef struct KeyOfFilter {
    const ShardKey *key;
    const Collator *collator;
    Elem values[KEYSTRING_FIELDS_MAX];
    uint32_t found; /* bit per field */
} KeyOfFilter;

/* Do all documents whose value equals this one have the same key? Null also means undefined and
 * missing, a regular expression strings, an array its elements; text may equal other text. */
static bool is_definite(Elem value, const Collator *collator) {
    switch (elem_type(value)) {
    case BT_NULL:
    case BT_UNDEFINED:
    case BT_REGEX:
    case BT_ARRAY:
        return false;
    default:
        return collator == NULL || !type_is_collatable(elem_type(value));
    }
}

static ErrCode add_equality(void *ctx, const FieldPath *path, Elem operand, Error *err) {
    (void)err;
    KeyOfFilter *of = ctx;
    if (!is_definite(operand, of->collator))
        return ERR_OK;
    for (uint32_t f = 0; f < of->key->count; f++) {
        if ((of->found >> f & 1) != 0 || !leads_to(path->dotted, of->key->fields[f].path))
            continue;
        /* Equal to a document: so are the values inside, of which missing ones are null. */
        if (find_below(&of->key->paths[f], path->count, operand, &of->values[f]))
            of->found |= UINT32_C(1) << f;
    }
    return ERR_OK;
}

bool shard_key_of_filter(const ShardKey *key, const MatchExpr *filter, const Collator *collator,
                         Arena *arena, Doc *ret_key) {
    KeyOfFilter of = {.key = key, .collator = collator};
    Error err = {0};
    if (filter != NULL)
        invariant(match_equalities(filter, add_equality, &of, &err) == ERR_OK);
    if (of.found != (uint32_t)((UINT64_C(1) << key->count) - 1))
        return false;
    DocBuilder b = doc_builder_in_arena(arena);
    for (uint32_t f = 0; f < key->count; f++)
        build_key_value(&b, &key->fields[f], of.values[f]);
    *ret_key = doc_builder_end(&b);
    return true;
}

/* ---- bounds ---- */

/* The first fields of the pattern, in order; *ret_count of them. */
static ErrCode check_prefix(const ShardKey *key, Doc bound, const char *what, uint32_t *ret_count,
                            Error *err) {
    CLEANUP(arena_done) Arena arena = {0};
    uint32_t f = 0;
    DocIter iter = doc_iter(bound);
    for (Elem elem; doc_iter_next(&iter, &elem); f++) {
        if (f == key->count || !elem_name_is(elem, key->fields[f].path))
            return error_set(
                err, ERR_SHARD_KEY_NOT_FOUND, "%s %s does not have the fields of the shard key %s",
                what, shell_text_of_doc(bound, &arena), shell_text_of_doc(key->pattern, &arena));
        BsonType type = elem_type(elem);
        if (key->fields[f].is_hashed && type != BT_INT64 && type != BT_MIN_KEY &&
            type != BT_MAX_KEY)
            return error_set(err, ERR_INVALID_OPTIONS,
                             "field \"%s\" of %s %s must be a hash: a 64-bit integer, MinKey or "
                             "MaxKey",
                             elem_name(elem), what, shell_text_of_doc(bound, &arena));
        if (type == BT_ARRAY)
            return error_set(err, ERR_SHARD_KEY_NOT_FOUND,
                             "field \"%s\" of %s %s is an array, which no shard key has",
                             elem_name(elem), what, shell_text_of_doc(bound, &arena));
        if (type == BT_DOC)
            TRY(check_no_dollars(elem_doc(elem), what, err));
    }
    *ret_count = f;
    return ERR_OK;
}

/* Bounds are stored as parts of documents, whose names may not begin with $ but for references. */
static ErrCode check_no_dollars(Doc doc, const char *what, Error *err) {
    DocIter iter = doc_iter(doc);
    for (Elem elem; doc_iter_next(&iter, &elem);) {
        Str name = elem_name_str(elem);
        if (name.size > 0 && name.data[0] == '$' && !is_part_of_reference(name))
            return error_set(err, ERR_BAD_VALUE, "%s has a field \"%s\", whose name begins with $",
                             what, elem_name(elem));
        if (elem_type(elem) == BT_DOC || elem_type(elem) == BT_ARRAY)
            TRY(check_no_dollars(elem_doc(elem), what, err));
    }
    return ERR_OK;
}

ErrCode shard_key_check_bound(const ShardKey *key, Doc bound, const char *what, Error *err) {
    uint32_t count;
    TRY(check_prefix(key, bound, what, &count, err));
    if (count == key->count)
        return ERR_OK;
    CLEANUP(arena_done) Arena arena = {0};
    return error_set(err, ERR_SHARD_KEY_NOT_FOUND,
                     "%s %s does not have all fields of the shard "
                     "key %s",
                     what, shell_text_of_doc(bound, &arena),
                     shell_text_of_doc(key->pattern, &arena));
}

static void build_extremes(const ShardKey *key, uint32_t first, BsonType type, DocBuilder *b) {
    for (uint32_t f = first; f < key->count; f++)
        build_value(b, type, key->fields[f].path, 0);
}

ErrCode shard_key_extend_bound(const ShardKey *key, Doc bound, bool with_max_key, const char *what,
                               Arena *arena, Doc *ret_bound, Error *err) {
    uint32_t count;
    TRY(check_prefix(key, bound, what, &count, err));
    if (count == 0)
        return error_set(err, ERR_SHARD_KEY_NOT_FOUND, "%s has no field of the shard key", what);
    DocBuilder b = doc_builder_in_arena(arena);
    build_all(&b, bound);
    build_extremes(key, count, with_max_key ? BT_MAX_KEY : BT_MIN_KEY, &b);
    *ret_bound = doc_builder_end(&b);
    return ERR_OK;
}

static Doc extreme(const ShardKey *key, BsonType type, Arena *arena) {
    DocBuilder b = doc_builder_in_arena(arena);
    build_extremes(key, 0, type, &b);
    return doc_builder_end(&b);
}

Doc shard_key_min(const ShardKey *key, Arena *arena) {
    return extreme(key, BT_MIN_KEY, arena);
}

Doc shard_key_max(const ShardKey *key, Arena *arena) {
    return extreme(key, BT_MAX_KEY, arena);
}

void shard_key_encode(Doc bound, KeyBuilder *kb) {
    key_builder_reset(kb, 0);
    key_append_doc_fields(kb, bound, NULL);
    key_append_end(kb, KEY_END_EXACT);
}

int shard_key_compare(Doc a, Doc b) {
    return array_compare(a, b, NULL);
}

/* ---- indexes ---- */

const char *shard_key_index_problem(const ShardKey *key, const ShardKeyIndex *index) {
    DocIter iter = doc_iter(index->key);
    for (uint32_t f = 0; f < key->count; f++) {
        Elem elem;
        bool is_same = doc_iter_next(&iter, &elem) && elem_name_is(elem, key->fields[f].path);
        if (is_same && key->fields[f].is_hashed)
            is_same = elem_type(elem) == BT_STRING && str_is(elem_str(elem), "hashed");
        else if (is_same)
            is_same = elem_is_number(elem) && elem_as_f64(elem) == 1;
        if (!is_same)
            return "does not begin with the shard key";
    }
    const struct {
        bool is_problem;
        const char *text;
    } problems[] = {
        {!index->is_plain, "is of a special kind"},
        {index->is_multikey, "is multikey"},
        {index->is_sparse, "is sparse"},
        {index->is_partial, "is partial"},
        {index->has_collation, "has a collation other than simple"},
        {index->is_hidden, "is hidden"},
    };
    for (size_t i = 0; i < ARRAY_LEN(problems); i++)
        if (problems[i].is_problem)
            return problems[i].text;
    return NULL;
}

bool shard_key_allows_unique(const ShardKey *key, Doc index_key) {
    DocIter iter = doc_iter(index_key);
    for (uint32_t f = 0; f < key->count; f++) {
        Elem elem;
        if (!doc_iter_next(&iter, &elem))
            return false;
        if (f == 0 && elem_name_is(elem, STR("_id")))
            return true;
        if (!elem_name_is(elem, key->fields[f].path))
            return false;
    }
    return true;
}
