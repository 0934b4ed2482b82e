/*
 * keystring_decode.c - turns keys back into documents; keystring.c has the format.
 *
 * Keys come from disk and may be damaged, so every byte is checked to be there before it is read,
 * and nesting is bounded. Functions return false for damage; key_decode makes an error of it.
 */
#include <assert.h>

#include "bson/builder.h"
#include "bson/keystring_internal.h"

typedef struct KeyDecoder {
    KeyReader r;
    DocBuilder out;
    Arena *arena;
} KeyDecoder;

static bool read_value(KeyDecoder *d, uint8_t first, Str name, int depth);
static bool read_number(KeyDecoder *d, uint8_t class_byte, Str name);
static bool read_text(KeyDecoder *d, BsonType type, Str name);
static bool read_object(KeyDecoder *d, Str name, int depth);
static bool read_object_elems(KeyDecoder *d, int depth);
static bool read_array(KeyDecoder *d, Str name, int depth);
static bool read_binary(KeyDecoder *d, Str name);
static bool read_fixed(KeyDecoder *d, BsonType type, Str name, size_t size);
static bool read_word(KeyDecoder *d, BsonType type, Str name, uint64_t flip);
static bool read_regex(KeyDecoder *d, Str name);
static bool read_db_pointer(KeyDecoder *d, Str name);
static bool read_code_w_scope(KeyDecoder *d, Str name, int depth);
static bool find_text_end(const KeyReader *r, const uint8_t **ret_end, size_t *ret_size);
static bool put_text(KeyDecoder *d, uint8_t *out);
static void copy_masked(KeyReader *r, uint8_t *out, size_t size);
static bool read_c_string(KeyDecoder *d, Str *ret_text);

ErrCode key_decode(const uint8_t *key, size_t key_size, const uint8_t *type_bits,
                   size_t type_bits_size, KeyOrder order, Arena *arena, Doc *ret_doc, Error *err) {
    Buffer buf;
    buffer_init_arena(&buf, arena, key_size * 2 + 64, 2 * BSON_DOC_SIZE_MAX_INTERNAL);
    KeyDecoder d = {
        .r = {.at = key,
              .end = key + key_size,
              .type_bits = type_bits,
              .type_bits_size = type_bits_size},
        .arena = arena,
    };
    doc_builder_init(&d.out, &buf);
    for (uint32_t field_index = 0;; field_index++) {
        bool is_descending = field_index < KEYSTRING_FIELDS_MAX && order >> field_index & 1;
        d.r.mask = 0;
        uint8_t first;
        bool is_good = key_read_byte(&d.r, &first);
        if (is_good && first == KEY_BYTE_END)
            break;
        d.r.mask = is_descending ? 0xFF : 0;
        is_good = is_good && read_value(&d, first ^ d.r.mask, STR(""), /* depth= */ 0);
        if (UNLIKELY(!is_good))
            return error_set(err, ERR_DATA_CORRUPTION_DETECTED,
                             "index key of %zu bytes is damaged in field %u near byte %zu",
                             key_size, field_index, (size_t)(d.r.at - key));
    }
    if (UNLIKELY(!doc_builder_try_finish(&d.out, ret_doc)))
        return error_set(err, ERR_DATA_CORRUPTION_DETECTED,
                         "index key of %zu bytes holds more than a document can", key_size);
    return ERR_OK;
}

/* The value whose first byte has been read. */
static bool read_value(KeyDecoder *d, uint8_t first, Str name, int depth) {
    if (first >= KEY_BYTE_NUMBER_FIRST && first <= KEY_BYTE_NUMBER_LAST)
        return read_number(d, first, name);
    switch ((KeyByte)first) {
    case KEY_BYTE_MIN_KEY:
        return read_fixed(d, BT_MIN_KEY, name, 0);
    case KEY_BYTE_UNDEFINED:
        return read_fixed(d, BT_UNDEFINED, name, 0);
    case KEY_BYTE_NULL:
        return read_fixed(d, BT_NULL, name, 0);
    case KEY_BYTE_MAX_KEY:
        return read_fixed(d, BT_MAX_KEY, name, 0);
    case KEY_BYTE_OID:
        return read_fixed(d, BT_OID, name, sizeof(Oid));
    case KEY_BYTE_STRING:
        return read_text(d, key_read_type_bits(&d->r, 1) != 0 ? BT_SYMBOL : BT_STRING, name);
    case KEY_BYTE_CODE:
        return read_text(d, BT_CODE, name);
    case KEY_BYTE_OBJECT:
        return read_object(d, name, depth);
    case KEY_BYTE_ARRAY:
        return read_array(d, name, depth);
    case KEY_BYTE_BINARY:
        return read_binary(d, name);
    case KEY_BYTE_BOOL:
        return d->r.at < d->r.end && (*d->r.at ^ d->r.mask) <= 1 && read_fixed(d, BT_BOOL, name, 1);
    case KEY_BYTE_DATE:
        return read_word(d, BT_DATE, name, UINT64_C(1) << 63);
    case KEY_BYTE_TIMESTAMP:
        return read_word(d, BT_TIMESTAMP, name, 0);
    case KEY_BYTE_REGEX:
        return read_regex(d, name);
    case KEY_BYTE_DBPOINTER:
        return read_db_pointer(d, name);
    case KEY_BYTE_CODE_W_SCOPE:
        return read_code_w_scope(d, name, depth);
    default:
        return false;
    }
}

/* A value that does not fit the output is skipped by these, as builders do: the output's overflow
 * is looked at once, at the end. */

static bool read_number(KeyDecoder *d, uint8_t class_byte, Str name) {
    BsonType type;
    uint8_t value[DECIMAL_VALUE_SIZE];
    if (!key_read_number(&d->r, class_byte, &type, value))
        return false;
    uint32_t size = value_size(type, value);
    uint8_t *out = build_value(&d->out, type, name, size);
    if (out != NULL)
        memcpy(out, value, size);
    return true;
}

static bool read_text(KeyDecoder *d, BsonType type, Str name) {
    const uint8_t *end;
    size_t size;
    if (!find_text_end(&d->r, &end, &size))
        return false;
    uint8_t *out = build_value(&d->out, type, name, 4 + size + 1);
    return put_text(d, out);
}

static bool read_object(KeyDecoder *d, Str name, int depth) {
    if (depth >= KEYSTRING_DEPTH_MAX)
        return false;
    size_t opened = build_open_doc_str(&d->out, name);
    bool is_good = read_object_elems(d, depth + 1);
    build_close(&d->out, opened);
    return is_good;
}

static bool read_object_elems(KeyDecoder *d, int depth) {
    uint8_t first;
    while (key_read_byte(&d->r, &first)) {
        if (first == KEY_BYTE_LIST_END)
            return true;
        Str name;
        if (!read_c_string(d, &name))
            return false;
        /* In front of the name there is one byte for all numbers; the class comes after it. */
        bool is_number = first == KEY_BYTE_NUMBER_FIRST;
        if (is_number && !key_read_byte(&d->r, &first))
            return false;
        bool is_class = first >= KEY_BYTE_NUMBER_FIRST && first <= KEY_BYTE_NUMBER_LAST;
        if (is_class != is_number || !read_value(d, first, name, depth))
            return false;
    }
    return false;
}

static bool read_array(KeyDecoder *d, Str name, int depth) {
    if (depth >= KEYSTRING_DEPTH_MAX)
        return false;
    size_t opened = build_open_array_str(&d->out, name);
    uint8_t first;
    for (uint32_t i = 0; key_read_byte(&d->r, &first); i++) {
        if (first == KEY_BYTE_LIST_END) {
            build_close(&d->out, opened);
            return true;
        }
        char name_buffer[INDEX_NAME_SIZE];
        if (!read_value(d, first, index_name(i, name_buffer), depth + 1))
            return false;
    }
    return false;
}

static bool read_binary(KeyDecoder *d, Str name) {
    uint64_t size;
    if (!key_read_be(&d->r, 1, &size))
        return false;
    if (size == KEY_BINARY_SIZE_LONG && !key_read_be(&d->r, 4, &size))
        return false;
    if ((size_t)(d->r.end - d->r.at) < 1 + size)
        return false;
    uint8_t *out = build_value(&d->out, BT_BINARY, name, 5 + size);
    if (out == NULL) {
        copy_masked(&d->r, NULL, 1 + size);
        return true;
    }
    uint32_t stored_size = (uint32_t)size;
    memcpy(out, &stored_size, sizeof(stored_size));
    copy_masked(&d->r, out + 4, 1 + size);
    /* The old subtype has its size once more in front; validation knows no binary without it. */
    bool is_old = out[4] == BSON_BINARY_OLD;
    return !is_old || (size >= 4 && load_i32(out + 5) == (int32_t)size - 4);
}

static bool read_fixed(KeyDecoder *d, BsonType type, Str name, size_t size) {
    if ((size_t)(d->r.end - d->r.at) < size)
        return false;
    copy_masked(&d->r, build_value(&d->out, type, name, size), size);
    return true;
}

static bool read_word(KeyDecoder *d, BsonType type, Str name, uint64_t flip) {
    uint64_t word;
    if (!key_read_be(&d->r, sizeof(word), &word))
        return false;
    word ^= flip;
    uint8_t *out = build_value(&d->out, type, name, sizeof(word));
    if (out != NULL)
        memcpy(out, &word, sizeof(word));
    return true;
}

static bool read_regex(KeyDecoder *d, Str name) {
    Str pattern;
    Str options;
    if (!read_c_string(d, &pattern) || !read_c_string(d, &options))
        return false;
    uint8_t *out = build_value(&d->out, BT_REGEX, name, pattern.size + options.size + 2);
    if (out != NULL) {
        memcpy(out, pattern.data, pattern.size + 1);
        memcpy(out + pattern.size + 1, options.data, options.size + 1);
    }
    return true;
}

static bool read_db_pointer(KeyDecoder *d, Str name) {
    uint64_t ns_size;
    if (!key_read_be(&d->r, 4, &ns_size) || (size_t)(d->r.end - d->r.at) < ns_size + sizeof(Oid))
        return false;
    uint8_t *out = build_value(&d->out, BT_DBPOINTER, name, 4 + ns_size + 1 + sizeof(Oid));
    if (out == NULL) {
        copy_masked(&d->r, NULL, ns_size + sizeof(Oid));
        return true;
    }
    uint32_t stored_size = (uint32_t)ns_size + 1;
    memcpy(out, &stored_size, sizeof(stored_size));
    copy_masked(&d->r, out + 4, ns_size);
    out[4 + ns_size] = '\0';
    copy_masked(&d->r, out + 4 + ns_size + 1, sizeof(Oid));
    return true;
}

/* The value is its own size, the code as a string, the scope as a document without type and name.
 */
static bool read_code_w_scope(KeyDecoder *d, Str name, int depth) {
    const uint8_t *end;
    size_t size;
    if (depth >= KEYSTRING_DEPTH_MAX || !find_text_end(&d->r, &end, &size))
        return false;
    Buffer *buf = d->out.buf;
    uint8_t *out = build_value(&d->out, BT_CODE_W_SCOPE, name, 4 + 4 + size + 1);
    size_t start = buf->size - (4 + 4 + size + 1);
    if (!put_text(d, out != NULL ? out + 4 : NULL))
        return false;
    DocBuilder outer = d->out;
    doc_builder_init(&d->out, buf);
    Doc scope;
    bool is_good = read_object_elems(d, depth + 1);
    bool is_whole = doc_builder_try_finish(&d->out, &scope); /* else the outer one tells */
    d->out = outer;
    if (is_good && is_whole) {
        uint32_t total = (uint32_t)(buf->size - start);
        memcpy(buf->data + start, &total, sizeof(total));
    }
    return is_good;
}

/* Finds the terminator of an escaped text and the size of the text without escapes. */
static bool find_text_end(const KeyReader *r, const uint8_t **ret_end, size_t *ret_size) {
    size_t escape_count = 0;
    const uint8_t *at = r->at;
    while (at < r->end) {
        at = memchr(at, KEY_STRING_END ^ r->mask, (size_t)(r->end - at));
        if (at == NULL)
            return false;
        bool is_escaped = at + 1 < r->end && (at[1] ^ r->mask) == KEY_STRING_ESCAPE;
        if (!is_escaped) {
            *ret_end = at;
            *ret_size = (size_t)(at - r->at) - escape_count;
            return true;
        }
        escape_count++;
        at += 2;
    }
    return false;
}

/* Writes the text as a BSON string: size, bytes, NUL; skips over it when `out` is NULL. */
static bool put_text(KeyDecoder *d, uint8_t *out) {
    const uint8_t *end;
    size_t size;
    KeyReader *r = &d->r;
    if (!find_text_end(r, &end, &size))
        return false;
    if (out == NULL) {
        r->at = end + 1;
        return true;
    }
    uint32_t stored_size = (uint32_t)size + 1;
    memcpy(out, &stored_size, sizeof(stored_size));
    out += 4;
    if (size == (size_t)(end - r->at)) {
        copy_masked(r, out, size);
        out += size;
    } else {
        while (r->at < end) {
            uint8_t byte = *r->at++ ^ r->mask;
            *out++ = byte;
            if (byte == KEY_STRING_END)
                r->at++; /* the escape */
        }
    }
    *out = '\0';
    r->at = end + 1;
    return true;
}

/* The bytes are known to be there. */
static void copy_masked(KeyReader *r, uint8_t *out, size_t size) {
    assert((size_t)(r->end - r->at) >= size);
    if (out != NULL)
        for (size_t i = 0; i < size; i++)
            out[i] = r->at[i] ^ r->mask;
    r->at += size;
}

/* NUL-terminated text, in the key itself or, unmasked, in the arena. */
static bool read_c_string(KeyDecoder *d, Str *ret_text) {
    KeyReader *r = &d->r;
    size_t available = (size_t)(r->end - r->at);
    const uint8_t *nul = available == 0 ? NULL : memchr(r->at, r->mask, available);
    if (nul == NULL)
        return false;
    size_t size = (size_t)(nul - r->at);
    if (r->mask == 0) {
        *ret_text = (Str){(const char *)r->at, size};
        r->at = nul + 1;
        return true;
    }
    uint8_t *copy = arena_alloc(d->arena, size + 1);
    copy_masked(r, copy, size + 1);
    *ret_text = (Str){(const char *)copy, size};
    return true;
}
