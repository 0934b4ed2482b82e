#include "change_stream/token.h"

#include "bson/builder.h"

enum {
    LOCATION_DATA_WRONG = 40647,
    LOCATION_TYPE_BITS_WRONG = 40648,
    LOCATION_DATA_EMPTY = 40649,
    LOCATION_VERSION_WRONG = 50795,
    /* clusterTime, version, type, txnOpIndex, fromInvalidate */
    FIELDS_OF_MARK = 5,
};

static const char HEX_DIGITS[] = "0123456789ABCDEF";

StreamToken token_high_water_mark(uint64_t ts) {
    return (StreamToken){.ts = ts, .type = TOKEN_HIGH_WATER_MARK, .fragment = TOKEN_FRAGMENT_NONE};
}

/* ---- writing ---- */

/* The values of the token as a document without names. */
static Doc token_values(const StreamToken *token, Arena *arena) {
    DocBuilder b = doc_builder_in_arena_sized(
        arena, 128 + (doc_is_present(token->event) ? doc_size(token->event) : 0));
    build_timestamp(&b, "", token->ts);
    build_i32(&b, "", TOKEN_VERSION);
    build_i32(&b, "", (int32_t)token->type);
    build_count(&b, "", token->op_index);
    build_bool(&b, "", token->is_from_invalidate);
    if (token->type == TOKEN_EVENT) {
        if (token->has_uuid)
            build_uuid(&b, "", &token->uuid);
        else
            build_null(&b, "");
        build_doc(&b, "", token->event);
        if (token->fragment != TOKEN_FRAGMENT_NONE)
            build_count(&b, "", token->fragment);
    }
    return doc_builder_end(&b);
}

Doc token_encode(const StreamToken *token, Arena *arena) {
    KeyBuilder key;
    key_builder_init_arena(&key, arena);
    key_builder_reset(&key, /* order= */ 0);
    key_append_doc_fields(&key, token_values(token, arena), /* collator= */ NULL);
    key_append_end(&key, KEY_END_EXACT);
    invariant(!key.key.overflowed); /* documents are bounded, and so is their depth */
    size_t text_size = key.key.size * 2;
    DocBuilder b = doc_builder_in_arena_sized(arena, text_size + key.type_bits.size + 64);
    uint8_t *value = build_value(&b, BT_STRING, STR("_data"), 4 + text_size + 1);
    int32_t string_size = (int32_t)text_size + 1;
    memcpy(value, &string_size, sizeof(string_size));
    char *at = (char *)value + sizeof(string_size);
    for (size_t i = 0; i < key.key.size; i++) {
        *at++ = HEX_DIGITS[key.key.data[i] >> 4];
        *at++ = HEX_DIGITS[key.key.data[i] & 15];
    }
    *at = '\0';
    Str type_bits = key_type_bits(&key);
    if (type_bits.size > 0)
        build_binary(&b, "_typeBits", /* subtype= */ 0, type_bits.data, type_bits.size);
    return doc_builder_end(&b);
}

/* ---- reading ---- */

static int hex_value(char c) {
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static ErrCode decode_hex(Str text, Arena *arena, Str *ret_bytes, Error *err) {
    uint8_t *bytes = arena_alloc(arena, text.size / 2 + 1);
    bool is_good = text.size % 2 == 0;
    for (size_t i = 0; is_good && i < text.size; i += 2) {
        int high = hex_value(text.data[i]);
        int low = hex_value(text.data[i + 1]);
        is_good = high >= 0 && low >= 0;
        bytes[i / 2] = (uint8_t)((high & 15) << 4 | (low & 15));
    }
    if (!is_good)
        return error_set(err, ERR_FAILED_TO_PARSE,
                         "resume token string was not a valid hex string");
    *ret_bytes = (Str){(const char *)bytes, text.size / 2};
    return ERR_OK;
}

static ErrCode damaged(Error *err, const char *what) {
    return error_set(err, ERR_INVALID_RESUME_TOKEN, "Resume Token Corruption: %s", what);
}

/* What follows the first fields in the token of an event. */
static ErrCode read_event(DocIter *iter, StreamToken *token, Error *err) {
    Elem elem;
    if (!doc_iter_next(iter, &elem))
        return error_set(err, ERR_OVERFLOW, "Resume Token Corruption: it ends before the event");
    if (elem_type(elem) != BT_NULL) {
        if (!uuid_from_elem(elem, &token->uuid))
            return damaged(err, "the identifier of the collection is no UUID");
        token->has_uuid = true;
    }
    if (!doc_iter_next(iter, &elem))
        return error_set(err, ERR_OVERFLOW, "Resume Token Corruption: it ends before the event");
    if (elem_type(elem) != BT_DOC)
        return damaged(err, "the identifier of the event is no document");
    token->event = elem_doc(elem);
    if (doc_iter_next(iter, &elem)) {
        if (!elem_is_number(elem) || elem_as_i64(elem) < 0)
            return damaged(err, "the number of the fragment is no such number");
        token->fragment = elem_as_i64(elem);
    }
    return ERR_OK;
}

static ErrCode read_values(Doc values, StreamToken *token, Error *err) {
    DocIter iter = doc_iter(values);
    Elem fields[FIELDS_OF_MARK];
    uint32_t count = 0;
    while (count < FIELDS_OF_MARK && doc_iter_next(&iter, &fields[count]))
        count++;
    if (count > 0 && elem_type(fields[0]) != BT_TIMESTAMP)
        return damaged(err, "it does not begin with a time");
    if (count > 1 && (!elem_is_number(fields[1]) || elem_as_i64(fields[1]) != TOKEN_VERSION))
        return error_set(err, (ErrCode)LOCATION_VERSION_WRONG,
                         "Invalid Resume Token: only supports version %d", TOKEN_VERSION);
    if (count < FIELDS_OF_MARK)
        return error_set(err, ERR_OVERFLOW, "Resume Token Corruption: it is too short");
    int64_t type = elem_is_number(fields[2]) ? elem_as_i64(fields[2]) : -1;
    if (type != TOKEN_EVENT && type != TOKEN_HIGH_WATER_MARK)
        return damaged(err, "its type is unknown");
    if (!elem_is_number(fields[3]) || elem_as_i64(fields[3]) < 0)
        return damaged(err, "the index of the operation is no such number");
    if (elem_type(fields[4]) != BT_BOOL)
        return damaged(err, "'fromInvalidate' is no bool");
    *token = (StreamToken){
        .ts = (uint64_t)elem_i64(fields[0]),
        .type = (TokenType)type,
        .op_index = elem_as_i64(fields[3]),
        .is_from_invalidate = elem_bool(fields[4]),
        .fragment = TOKEN_FRAGMENT_NONE,
    };
    if (type == TOKEN_EVENT)
        TRY(read_event(&iter, token, err));
    Elem more;
    return doc_iter_next(&iter, &more) ? damaged(err, "it is too long") : ERR_OK;
}

ErrCode token_decode(Doc token, Arena *arena, StreamToken *ret_token, Error *err) {
    Elem data = doc_get_lit(token, "_data");
    Elem bits = doc_get_lit(token, "_typeBits");
    if (elem_type(data) != BT_STRING)
        return error_set(err, (ErrCode)LOCATION_DATA_WRONG,
                         "Bad resume token: _data of missing or of wrong type: it is %s",
                         bson_type_name(elem_type(data)));
    if (elem_is_present(bits) && elem_type(bits) != BT_BINARY)
        return error_set(err, (ErrCode)LOCATION_TYPE_BITS_WRONG,
                         "Bad resume token: _typeBits of wrong type: it is %s",
                         bson_type_name(elem_type(bits)));
    Str text = elem_str(data);
    if (text.size == 0)
        return error_set(err, (ErrCode)LOCATION_DATA_EMPTY, "Bad resume token: _data is empty");
    Str key = {NULL, 0};
    TRY(decode_hex(text, arena, &key, err));
    Str type_bits = {NULL, 0};
    if (elem_is_present(bits)) {
        uint8_t subtype;
        type_bits = elem_binary(bits, &subtype);
    }
    /* A key is whole only with its end byte: without it the token was cut. */
    Doc values;
    if (key_decode((const uint8_t *)key.data, key.size, (const uint8_t *)type_bits.data,
                   type_bits.size, /* order= */ 0, arena, &values, err) != ERR_OK) {
        error_reset(err);
        return error_set(err, ERR_OVERFLOW, "Resume Token Corruption: it was cut or changed");
    }
    TRY(read_values(values, ret_token, err));
    /* One text for one token: otherwise tokens that mean the same would not compare as equal. */
    Str again = token_text(token_encode(ret_token, arena));
    if (again.size != text.size)
        return damaged(err, "it is not what it says");
    return ERR_OK;
}

Str token_text(Doc token) {
    Elem data = doc_get_lit(token, "_data");
    return elem_type(data) == BT_STRING ? elem_str(data) : (Str){"", 0};
}

int token_compare(Doc a, Doc b) {
    Str x = token_text(a), y = token_text(b);
    int order = memcmp(x.data, y.data, x.size < y.size ? x.size : y.size);
    if (order != 0)
        return order;
    return x.size < y.size ? -1 : x.size > y.size;
}
