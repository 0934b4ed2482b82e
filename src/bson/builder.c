#include "bson/builder.h"

#include <string.h>

static size_t open_nested(DocBuilder *b, BsonType type, Str name);
static void close_at(Buffer *buf, size_t start);

void doc_builder_init(DocBuilder *b, Buffer *buf) {
    static const uint8_t SIZE_UNKNOWN[4] = {0};
    *b = (DocBuilder){buf, buf->size};
    buffer_append(buf, SIZE_UNKNOWN, sizeof(SIZE_UNKNOWN));
}

DocBuilder doc_builder_in_arena(Arena *arena) {
    return doc_builder_in_arena_sized(arena, 256);
}

DocBuilder doc_builder_in_arena_sized(Arena *arena, size_t capacity) {
    Buffer *buf = ARENA_NEW(arena, Buffer);
    buffer_init_arena(buf, arena, capacity, BUFFER_UNBOUNDED);
    DocBuilder b;
    doc_builder_init(&b, buf);
    return b;
}

Doc doc_builder_end(DocBuilder *b) {
    invariant(b->buf->size_max == BUFFER_UNBOUNDED);
    close_at(b->buf, b->start);
    return (Doc){b->buf->data + b->start};
}

ErrCode doc_builder_finish(DocBuilder *b, const char *what, Doc *ret_doc, Error *err) {
    if (UNLIKELY(!doc_builder_try_finish(b, ret_doc)))
        return buffer_check(b->buf, what, err);
    return ERR_OK;
}

bool doc_builder_try_finish(DocBuilder *b, Doc *ret_doc) {
    close_at(b->buf, b->start);
    if (UNLIKELY(b->buf->overflowed))
        return false;
    *ret_doc = (Doc){b->buf->data + b->start};
    return true;
}

size_t build_open_doc(DocBuilder *b, const char *name) {
    return open_nested(b, BT_DOC, str_from(name));
}

size_t build_open_array(DocBuilder *b, const char *name) {
    return open_nested(b, BT_ARRAY, str_from(name));
}

size_t build_open_doc_str(DocBuilder *b, Str name) {
    return open_nested(b, BT_DOC, name);
}

size_t build_open_array_str(DocBuilder *b, Str name) {
    return open_nested(b, BT_ARRAY, name);
}

void build_close(DocBuilder *b, size_t opened) {
    close_at(b->buf, opened);
}

uint8_t *build_value(DocBuilder *b, BsonType type, Str name, size_t size) {
    uint8_t *at = buffer_reserve(b->buf, name.size + 2 + size);
    if (UNLIKELY(at == NULL))
        return NULL;
    *at++ = (uint8_t)type;
    if (name.size > 0)
        memcpy(at, name.data, name.size);
    at += name.size;
    *at++ = '\0';
    b->buf->size += name.size + 2 + size;
    return at;
}

void build_i32(DocBuilder *b, const char *name, int32_t value) {
    uint8_t *at = build_value(b, BT_INT32, str_from(name), sizeof(value));
    if (at != NULL)
        memcpy(at, &value, sizeof(value));
}

void build_i64(DocBuilder *b, const char *name, int64_t value) {
    uint8_t *at = build_value(b, BT_INT64, str_from(name), sizeof(value));
    if (at != NULL)
        memcpy(at, &value, sizeof(value));
}

void build_f64(DocBuilder *b, const char *name, double value) {
    uint8_t *at = build_value(b, BT_DOUBLE, str_from(name), sizeof(value));
    if (at != NULL)
        memcpy(at, &value, sizeof(value));
}

void build_bool(DocBuilder *b, const char *name, bool value) {
    uint8_t *at = build_value(b, BT_BOOL, str_from(name), 1);
    if (at != NULL)
        *at = value;
}

void build_null(DocBuilder *b, const char *name) {
    build_value(b, BT_NULL, str_from(name), 0);
}

void build_cstr(DocBuilder *b, const char *name, const char *value) {
    build_str(b, name, str_from(value));
}

void build_str(DocBuilder *b, const char *name, Str value) {
    uint8_t *at = build_value(b, BT_STRING, str_from(name), 4 + value.size + 1);
    if (at == NULL)
        return;
    int32_t size = (int32_t)value.size + 1;
    memcpy(at, &size, sizeof(size));
    if (value.size > 0)
        memcpy(at + 4, value.data, value.size);
    at[4 + value.size] = '\0';
}

void build_date(DocBuilder *b, const char *name, int64_t wall_ms) {
    uint8_t *at = build_value(b, BT_DATE, str_from(name), sizeof(wall_ms));
    if (at != NULL)
        memcpy(at, &wall_ms, sizeof(wall_ms));
}

void build_timestamp(DocBuilder *b, const char *name, uint64_t ts) {
    uint8_t *at = build_value(b, BT_TIMESTAMP, str_from(name), sizeof(ts));
    if (at != NULL)
        memcpy(at, &ts, sizeof(ts));
}

void build_oid(DocBuilder *b, const char *name, const Oid *oid) {
    uint8_t *at = build_value(b, BT_OID, str_from(name), sizeof(*oid));
    if (at != NULL)
        memcpy(at, oid, sizeof(*oid));
}

void build_binary(DocBuilder *b, const char *name, uint8_t subtype, const void *data, size_t size) {
    uint8_t *at = build_value(b, BT_BINARY, str_from(name), 5 + size);
    if (at == NULL)
        return;
    int32_t stored_size = (int32_t)size;
    memcpy(at, &stored_size, sizeof(stored_size));
    at[4] = subtype;
    if (size > 0)
        memcpy(at + 5, data, size);
}

void build_doc(DocBuilder *b, const char *name, Doc doc) {
    uint8_t *at = build_value(b, BT_DOC, str_from(name), doc_size(doc));
    if (at != NULL)
        memcpy(at, doc.data, doc_size(doc));
}

void build_array(DocBuilder *b, const char *name, Doc array) {
    uint8_t *at = build_value(b, BT_ARRAY, str_from(name), doc_size(array));
    if (at != NULL)
        memcpy(at, array.data, doc_size(array));
}

void build_count(DocBuilder *b, const char *name, int64_t value) {
    if (value >= INT32_MIN && value <= INT32_MAX)
        build_i32(b, name, (int32_t)value);
    else
        build_i64(b, name, value);
}

void build_elem(DocBuilder *b, Elem elem) {
    buffer_append(b->buf, elem.data, elem_size(elem));
}

void build_elem_as(DocBuilder *b, Str name, Elem elem) {
    uint32_t size = elem_value_size(elem);
    uint8_t *at = build_value(b, elem_type(elem), name, size);
    if (at != NULL)
        memcpy(at, elem_value(elem), size);
}

void build_all(DocBuilder *b, Doc doc) {
    buffer_append(b->buf, doc.data + 4, doc_size(doc) - BSON_DOC_SIZE_MIN);
}

void build_some(DocBuilder *b, Doc doc, const char *const *names, size_t count) {
    for (size_t i = 0; i < count; i++) {
        Elem elem = doc_get(doc, str_from(names[i]));
        if (elem_is_present(elem))
            build_elem(b, elem);
    }
}

Str index_name(uint32_t index, char buffer[INDEX_NAME_SIZE]) {
    static const char SMALL[10][2] = {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"};
    if (index < ARRAY_LEN(SMALL))
        return (Str){SMALL[index], 1};
    char *at = buffer + INDEX_NAME_SIZE;
    *--at = '\0';
    for (uint32_t rest = index; rest > 0; rest /= 10)
        *--at = (char)('0' + rest % 10);
    return (Str){at, (size_t)(buffer + INDEX_NAME_SIZE - 1 - at)};
}

Elem elem_copy(Elem elem, Arena *arena) {
    if (!elem_is_present(elem))
        return ELEM_MISSING;
    uint32_t size = elem_value_size(elem);
    uint8_t *copy = arena_alloc(arena, 2 + (size_t)size);
    copy[0] = (uint8_t)elem_type(elem);
    copy[1] = '\0';
    if (size > 0)
        memcpy(copy + 2, elem_value(elem), size);
    return (Elem){copy, 0};
}

static size_t open_nested(DocBuilder *b, BsonType type, Str name) {
    build_value(b, type, name, 4);
    return b->buf->size - 4;
}

/* Writes the terminator of the document that starts at `start` and fills in its size. */
static void close_at(Buffer *buf, size_t start) {
    buffer_append_byte(buf, '\0');
    if (UNLIKELY(buf->overflowed))
        return; /* `start` may never have been written */
    invariant(buf->size - start <= INT32_MAX);
    int32_t size = (int32_t)(buf->size - start);
    memcpy(buf->data + start, &size, sizeof(size));
}
