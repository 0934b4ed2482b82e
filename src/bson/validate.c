#include "bson/validate.h"

#include <assert.h>

#include "base/alloc.h"
#include "base/hash.h"

/* How many field names of one document are compared with each other before a hash table pays. */
enum {
    UNIQUE_SMALL_MAX = 16,
};

/* Where the check stands: `at` runs through the bytes, `end` is the terminator of the innermost
 * open document, `outer_ends` those of the documents around it. */
typedef struct Validator {
    const uint8_t *start;
    const uint8_t *at;
    const uint8_t *end;
    const char *name; /* of the element at hand, for messages */
    uint32_t depth;
    uint32_t depth_max;
    const uint8_t *outer_ends[BSON_DEPTH_MAX + 1];
} Validator;

/* Open addressing over names of one document; 0 is an empty slot. */
typedef struct NameSet {
    const uint8_t **slots;
    size_t capacity; /* a power of two */
    size_t count;
} NameSet;

static ErrCode open_doc(Validator *v, const uint8_t *data, size_t available, Error *err);
static ErrCode check_value(Validator *v, BsonType type, Error *err);
static ErrCode check_string(const Validator *v, const uint8_t *at, size_t available,
                            size_t *ret_size, Error *err);
static ErrCode check_binary(Validator *v, size_t available, Error *err);
static ErrCode check_regex(Validator *v, Error *err);
static ErrCode check_db_pointer(Validator *v, size_t available, Error *err);
static ErrCode check_code_w_scope(Validator *v, size_t available, Error *err);
static ErrCode bad_length(const Validator *v, const char *what, int64_t length, Error *err);
static ErrCode check_contents(Doc doc, ValidateFlags flags, Error *err);
static ErrCode check_elem_utf8(Elem elem, Error *err);
static ErrCode check_unique_names(Doc doc, Error *err);
static bool name_set_add(NameSet *set, Elem elem);
static void name_set_grow(NameSet *set);
static void name_set_done(NameSet *set);
static bool nested_doc(Elem elem, Doc *ret_doc);

/* For types whose values need no look: 1 + the bytes of the value. 0 for all others. */
static const uint8_t PLAIN_SIZES_PLUS_1[256] = {
    [BT_DOUBLE] = 9,    [BT_DATE] = 9,    [BT_TIMESTAMP] = 9, [BT_INT64] = 9,
    [BT_INT32] = 5,     [BT_OID] = 13,    [BT_DECIMAL] = 17,  [BT_NULL] = 1,
    [BT_UNDEFINED] = 1, [BT_MIN_KEY] = 1, [BT_MAX_KEY] = 1,
};

ErrCode doc_validate(const uint8_t *data, size_t size, uint32_t depth_max, ValidateFlags flags,
                     Error *err) {
    Validator v;
    v.start = data;
    v.name = NULL;
    v.depth = 0;
    v.depth_max = depth_max < BSON_DEPTH_MAX ? depth_max : BSON_DEPTH_MAX;
    v.end = NULL;
    TRY(open_doc(&v, data, size, err));
    if (UNLIKELY((size_t)load_i32(data) != size))
        return error_set(err, ERR_INVALID_BSON,
                         "BSON document of %d bytes is followed by %zu more bytes", load_i32(data),
                         size - (size_t)load_i32(data));

    while (v.depth > 0) {
        const uint8_t *at = v.at;
        uint8_t type = *at;
        if (type == BT_EOO) {
            if (UNLIKELY(at != v.end))
                return error_set(err, ERR_INVALID_BSON,
                                 "BSON document ends %zu bytes before its length says, at offset "
                                 "%zu",
                                 (size_t)(v.end - at), (size_t)(at - v.start));
            v.at = at + 1;
            v.end = v.outer_ends[--v.depth];
            continue;
        }
        /* So at < v.end: the byte at v.end is a terminator. */
        const uint8_t *name_end = memchr(at + 1, '\0', (size_t)(v.end - at - 1));
        if (UNLIKELY(name_end == NULL))
            return error_set(err, ERR_INVALID_BSON, "field name is not terminated, at offset %zu",
                             (size_t)(at - v.start));
        v.name = (const char *)at + 1;
        v.at = name_end + 1;
        size_t plain_size = (size_t)PLAIN_SIZES_PLUS_1[type] - 1;
        if (LIKELY(plain_size != SIZE_MAX)) {
            if (UNLIKELY(plain_size > (size_t)(v.end - v.at)))
                return bad_length(&v, "value", (int64_t)plain_size, err);
            v.at += plain_size;
            continue;
        }
        TRY(check_value(&v, (BsonType)type, err));
    }

    if (UNLIKELY(flags != VALIDATE_BASIC))
        return check_contents((Doc){data}, flags, err);
    return ERR_OK;
}

Str utf8_cut(const char *text, size_t size_max) {
    size_t size = strlen(text);
    if (size > size_max)
        for (size = size_max; size > 0 && ((uint8_t)text[size] & 0xC0) == 0x80;)
            size--;
    return (Str){text, size};
}

bool utf8_is_valid(const uint8_t *text, size_t size) {
    const uint8_t *at = text;
    const uint8_t *end = text + size;
    while (at < end) {
        uint64_t word;
        if ((size_t)(end - at) >= sizeof(word)) {
            memcpy(&word, at, sizeof(word));
            if ((word & UINT64_C(0x8080808080808080)) == 0) {
                at += sizeof(word);
                continue;
            }
        }
        uint8_t lead = *at++;
        if (lead < 0x80)
            continue;
        /* The first continuation byte has the narrower range that rules out overlong forms,
         * surrogates and what lies past U+10FFFF. */
        uint8_t low = 0x80;
        uint8_t high = 0xBF;
        int rest;
        if (lead >= 0xC2 && lead <= 0xDF) {
            rest = 1;
        } else if (lead >= 0xE0 && lead <= 0xEF) {
            rest = 2;
            low = lead == 0xE0 ? 0xA0 : 0x80;
            high = lead == 0xED ? 0x9F : 0xBF;
        } else if (lead >= 0xF0 && lead <= 0xF4) {
            rest = 3;
            low = lead == 0xF0 ? 0x90 : 0x80;
            high = lead == 0xF4 ? 0x8F : 0xBF;
        } else {
            return false;
        }
        if (end - at < rest)
            return false;
        for (; rest > 0; rest--) {
            if (*at < low || *at > high)
                return false;
            at++;
            low = 0x80;
            high = 0xBF;
        }
    }
    return true;
}

/* Checks length and terminator of the document at `data` and makes it the innermost one. */
static ErrCode open_doc(Validator *v, const uint8_t *data, size_t available, Error *err) {
    if (UNLIKELY(available < BSON_DOC_SIZE_MIN))
        return bad_length(v, "document", (int64_t)available, err);
    int32_t size = load_i32(data);
    if (UNLIKELY(size < BSON_DOC_SIZE_MIN || (uint32_t)size > available))
        return bad_length(v, "document", size, err);
    if (UNLIKELY(data[size - 1] != '\0'))
        return error_set(err, ERR_INVALID_BSON, "BSON document is not terminated, at offset %zu",
                         (size_t)(data + size - 1 - v->start));
    if (UNLIKELY(v->depth >= v->depth_max))
        return error_set(err, ERR_OVERFLOW, "BSON document is nested deeper than the limit of %u",
                         v->depth_max);
    v->outer_ends[v->depth++] = v->end;
    v->end = data + size - 1;
    v->at = data + 4;
    return ERR_OK;
}

/* The value at v->at of a type that needs a look. */
static ErrCode check_value(Validator *v, BsonType type, Error *err) {
    size_t available = (size_t)(v->end - v->at);
    switch (type) {
    case BT_STRING:
    case BT_SYMBOL:
    case BT_CODE: {
        size_t size;
        TRY(check_string(v, v->at, available, &size, err));
        v->at += size;
        return ERR_OK;
    }
    case BT_DOC:
    case BT_ARRAY:
        return open_doc(v, v->at, available, err);
    case BT_BOOL:
        if (UNLIKELY(available < 1))
            return bad_length(v, "boolean", 1, err);
        if (UNLIKELY(v->at[0] > 1))
            return error_set(
                err, ERR_INVALID_BSON,
                "boolean is neither 0 nor 1 but %d in element with field name '%.100s'", v->at[0],
                v->name);
        v->at++;
        return ERR_OK;
    case BT_BINARY:
        return check_binary(v, available, err);
    case BT_REGEX:
        return check_regex(v, err);
    case BT_DBPOINTER:
        return check_db_pointer(v, available, err);
    case BT_CODE_W_SCOPE:
        return check_code_w_scope(v, available, err);
    default:
        return error_set(err, ERR_INVALID_BSON,
                         "unrecognized BSON type %d in element with field name '%.100s'", (int)type,
                         v->name);
    }
}

/* Length, bytes, NUL; `ret_size` is of all three. */
static ErrCode check_string(const Validator *v, const uint8_t *at, size_t available,
                            size_t *ret_size, Error *err) {
    if (UNLIKELY(available < 5))
        return bad_length(v, "string", (int64_t)available, err);
    int32_t size = load_i32(at);
    if (UNLIKELY(size < 1 || (uint32_t)size > available - 4))
        return bad_length(v, "string", size, err);
    if (UNLIKELY(at[4 + (size_t)size - 1] != '\0'))
        return error_set(err, ERR_INVALID_BSON,
                         "string is not terminated in element with field name '%.100s'", v->name);
    *ret_size = 4 + (size_t)size;
    return ERR_OK;
}

static ErrCode check_binary(Validator *v, size_t available, Error *err) {
    if (UNLIKELY(available < 5))
        return bad_length(v, "binary data", (int64_t)available, err);
    int32_t size = load_i32(v->at);
    if (UNLIKELY(size < 0 || (uint32_t)size > available - 5))
        return bad_length(v, "binary data", size, err);
    if (UNLIKELY(v->at[4] == BSON_BINARY_OLD) && (size < 4 || load_i32(v->at + 5) != size - 4))
        return bad_length(v, "binary data of subtype 2", size, err);
    v->at += 5 + (size_t)size;
    return ERR_OK;
}

static ErrCode check_regex(Validator *v, Error *err) {
    for (int part = 0; part < 2; part++) {
        const uint8_t *nul = memchr(v->at, '\0', (size_t)(v->end - v->at));
        if (UNLIKELY(nul == NULL))
            return error_set(err, ERR_INVALID_BSON,
                             "regular expression is not terminated in element with field name "
                             "'%.100s'",
                             v->name);
        v->at = nul + 1;
    }
    return ERR_OK;
}

static ErrCode check_db_pointer(Validator *v, size_t available, Error *err) {
    size_t ns_size;
    TRY(check_string(v, v->at, available, &ns_size, err));
    if (UNLIKELY(available - ns_size < sizeof(Oid)))
        return bad_length(v, "DBPointer", (int64_t)available, err);
    v->at += ns_size + sizeof(Oid);
    return ERR_OK;
}

/* Total length, string, document. The document is opened like any nested one; that it fills the
 * total length exactly is known here already. */
static ErrCode check_code_w_scope(Validator *v, size_t available, Error *err) {
    if (UNLIKELY(available < 4 + 5 + BSON_DOC_SIZE_MIN))
        return bad_length(v, "code with scope", (int64_t)available, err);
    int32_t total = load_i32(v->at);
    if (UNLIKELY(total < 4 + 5 + BSON_DOC_SIZE_MIN || (uint32_t)total > available))
        return bad_length(v, "code with scope", total, err);
    size_t code_size;
    TRY(check_string(v, v->at + 4, (size_t)total - 4, &code_size, err));
    size_t scope_size = (size_t)total - 4 - code_size;
    const uint8_t *scope = v->at + 4 + code_size;
    if (UNLIKELY(scope_size < BSON_DOC_SIZE_MIN || (uint32_t)load_i32(scope) != scope_size))
        return bad_length(v, "code with scope", total, err);
    return open_doc(v, scope, scope_size, err);
}

static ErrCode bad_length(const Validator *v, const char *what, int64_t length, Error *err) {
    if (v->name == NULL)
        return error_set(err, ERR_INVALID_BSON, "incorrect BSON length %lld", (long long)length);
    return error_set(err, ERR_INVALID_BSON,
                     "incorrect BSON length %lld of %s in element with field name '%.100s'",
                     (long long)length, what, v->name);
}

/* The optional checks, on a document whose structure is known to be right. */
static ErrCode check_contents(Doc doc, ValidateFlags flags, Error *err) {
    DocIter open[BSON_DEPTH_MAX + 1];
    uint32_t depth = 0;
    if (flags & VALIDATE_UNIQUE)
        TRY(check_unique_names(doc, err));
    open[depth++] = doc_iter(doc);
    while (depth > 0) {
        Elem elem;
        if (!doc_iter_next(&open[depth - 1], &elem)) {
            depth--;
            continue;
        }
        if (flags & VALIDATE_UTF8)
            TRY(check_elem_utf8(elem, err));
        Doc nested;
        if (!nested_doc(elem, &nested))
            continue;
        if ((flags & VALIDATE_UNIQUE) && elem_type(elem) != BT_ARRAY)
            TRY(check_unique_names(nested, err));
        assert(depth <= BSON_DEPTH_MAX);
        open[depth++] = doc_iter(nested);
    }
    return ERR_OK;
}

static ErrCode check_elem_utf8(Elem elem, Error *err) {
    if (!utf8_is_valid((const uint8_t *)elem_name(elem), elem.name_size))
        return error_set(err, ERR_INVALID_BSON, "field name is not valid UTF-8");
    bool is_valid = true;
    switch (elem_type(elem)) {
    case BT_STRING:
    case BT_SYMBOL:
    case BT_CODE: {
        Str text = elem_str(elem);
        is_valid = utf8_is_valid((const uint8_t *)text.data, text.size);
        break;
    }
    case BT_CODE_W_SCOPE: {
        const uint8_t *code = elem_value(elem) + 4;
        is_valid = utf8_is_valid(code + 4, (size_t)load_i32(code) - 1);
        break;
    }
    case BT_REGEX:
        is_valid = utf8_is_valid(elem_value(elem), elem_value_size(elem));
        break;
    default:
        break;
    }
    if (!is_valid)
        return error_set(err, ERR_INVALID_BSON,
                         "string is not valid UTF-8 in element with field name '%.100s'",
                         elem_name(elem));
    return ERR_OK;
}

static ErrCode check_unique_names(Doc doc, Error *err) {
    CLEANUP(name_set_done) NameSet set = {0};
    Elem seen[UNIQUE_SMALL_MAX];
    uint32_t count = 0;
    Elem elem;
    for (DocIter iter = doc_iter(doc); doc_iter_next(&iter, &elem); count++) {
        bool is_new = true;
        if (count < UNIQUE_SMALL_MAX) {
            for (uint32_t i = 0; i < count && is_new; i++)
                is_new = !elem_name_is(seen[i], elem_name_str(elem));
            seen[count] = elem;
        } else {
            if (count == UNIQUE_SMALL_MAX)
                for (uint32_t i = 0; i < count; i++)
                    name_set_add(&set, seen[i]);
            is_new = name_set_add(&set, elem);
        }
        if (!is_new)
            return error_set(err, ERR_INVALID_BSON, "duplicate field name '%.100s'",
                             elem_name(elem));
    }
    return ERR_OK;
}

/* False when the name is there already. The set grows with the distinct names seen, so that its
 * memory stays within a small multiple of the document's. */
static bool name_set_add(NameSet *set, Elem elem) {
    if (set->count * 2 >= set->capacity)
        name_set_grow(set);
    size_t slot = hash_bytes(elem_name(elem), elem.name_size) & (set->capacity - 1);
    for (; set->slots[slot] != NULL; slot = (slot + 1) & (set->capacity - 1))
        if (strcmp((const char *)set->slots[slot], elem_name(elem)) == 0)
            return false;
    set->slots[slot] = (const uint8_t *)elem_name(elem);
    set->count++;
    return true;
}

static void name_set_grow(NameSet *set) {
    NameSet larger = {.capacity = set->capacity == 0 ? 64 : set->capacity * 2};
    larger.count = set->count;
    larger.slots = xcalloc(larger.capacity, sizeof(*larger.slots));
    for (size_t i = 0; i < set->capacity; i++) {
        if (set->slots[i] == NULL)
            continue;
        size_t slot = hash_text((const char *)set->slots[i]) & (larger.capacity - 1);
        while (larger.slots[slot] != NULL)
            slot = (slot + 1) & (larger.capacity - 1);
        larger.slots[slot] = set->slots[i];
    }
    name_set_done(set);
    *set = larger;
}

static void name_set_done(NameSet *set) {
    xfree(set->slots);
    *set = (NameSet){0};
}

static bool nested_doc(Elem elem, Doc *ret_doc) {
    if (elem_type(elem) == BT_DOC || elem_type(elem) == BT_ARRAY) {
        *ret_doc = elem_doc(elem);
        return true;
    }
    if (elem_type(elem) == BT_CODE_W_SCOPE) {
        const uint8_t *code = elem_value(elem) + 4;
        *ret_doc = (Doc){code + 4 + load_i32(code)};
        return true;
    }
    return false;
}
