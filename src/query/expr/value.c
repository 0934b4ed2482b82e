#include "query/expr/value.h"

#include "base/hash.h"
#include "bson/json.h"

enum {
    ARRAY_CAPACITY_FIRST = 128,
};

static uint64_t hash_doc(Doc doc, bool with_names, const Collator *collator);
static uint64_t hash_str(Str text, const Collator *collator);
static uint64_t hash_small(Value value);

Value value_str(Str text, Arena *arena) {
    uint8_t *bytes = arena_alloc(arena, 4 + text.size + 1);
    int32_t size = (int32_t)text.size + 1;
    memcpy(bytes, &size, sizeof(size));
    if (text.size > 0)
        memcpy(bytes + 4, text.data, text.size);
    bytes[4 + text.size] = '\0';
    return (Value){.type = BT_STRING, .bytes = bytes};
}

Value value_oid(const Oid *oid, Arena *arena) {
    return (Value){.type = BT_OID, .bytes = arena_memdup(arena, oid, sizeof(*oid))};
}

Value value_number(Number number, Arena *arena) {
    switch (number.type) {
    case BT_INT32:
        return value_i32(number.i32);
    case BT_INT64:
        return value_i64(number.i64);
    case BT_DOUBLE:
        return value_f64(number.f64);
    default:
        return (Value){.type = BT_DECIMAL,
                       .bytes = arena_memdup(arena, &number.dec, sizeof(number.dec))};
    }
}

uint32_t value_bytes_size(const Value *value) {
    return value->type == BT_EOO ? 0 : value_size(value->type, value_bytes(value));
}

Elem value_to_elem(Value value, Arena *arena) {
    if (value_is_missing(value))
        return ELEM_MISSING;
    uint32_t size = value_bytes_size(&value);
    uint8_t *elem = arena_alloc(arena, 2 + (size_t)size);
    elem[0] = (uint8_t)value.type;
    elem[1] = '\0';
    if (size > 0)
        memcpy(elem + 2, value_bytes(&value), size);
    return (Elem){elem, 0};
}

void build_value_as(DocBuilder *b, Str name, Value value) {
    if (value_is_missing(value))
        return;
    uint32_t size = value_bytes_size(&value);
    uint8_t *at = build_value(b, value.type, name, size);
    if (at != NULL && size > 0)
        memcpy(at, value_bytes(&value), size);
}

Value value_copy(Value value, Arena *arena) {
    if (value_is_missing(value) || value_type_is_inline(value.type))
        return value;
    uint32_t size = value_bytes_size(&value);
    if (size > 0)
        value.bytes = arena_memdup(arena, value.bytes, size);
    return value;
}

Number value_as_number(Value value) {
    return number_from_value(value.type, value_bytes(&value));
}

bool value_is_truthy(Value value) {
    switch (value.type) {
    case BT_EOO:
    case BT_NULL:
    case BT_UNDEFINED:
        return false;
    case BT_BOOL:
        return value.boolean != 0;
    case BT_INT32:
        return value.i32 != 0;
    case BT_INT64:
        return value.i64 != 0;
    case BT_DOUBLE:
        return value.f64 != 0;
    case BT_DECIMAL:
        return number_compare(value_as_number(value), number_i32(0)) != 0;
    default:
        return true;
    }
}

bool value_as_exact_i32(Value value, int32_t *ret_i32) {
    int64_t wide;
    if (!value_is_number(value) || !number_is_exact_i64(value_as_number(value), &wide) ||
        wide < INT32_MIN || wide > INT32_MAX)
        return false;
    *ret_i32 = (int32_t)wide;
    return true;
}

uint64_t value_hash(Value value, const Collator *collator) {
    switch (value.type) {
    case BT_STRING:
    case BT_SYMBOL:
        return hash_str(value_as_str(value), collator);
    case BT_DOC:
        return hash_doc(value_as_doc(value), /* with_names= */ true, collator);
    case BT_ARRAY:
        return hash_doc(value_as_doc(value), /* with_names= */ false, collator);
    case BT_INT32: /* integers are frequent keys; doubles and decimals must agree with them */
        return hash_small(value_i64(value.i32));
    case BT_INT64:
        return hash_small(value);
    case BT_DOUBLE:
    case BT_DECIMAL: {
        int64_t exact;
        if (number_is_exact_i64(value_as_number(value), &exact))
            return hash_small(value_i64(exact));
        uint8_t bytes[2 + 16] = {(uint8_t)value.type};
        memcpy(bytes + 2, value_bytes(&value), value_bytes_size(&value));
        return elem_hash((Elem){bytes, 0}, collator);
    }
    case BT_BOOL:
        return hash_small(value_i64(value.boolean));
    case BT_DATE:
    case BT_TIMESTAMP:
        return hash_small(value);
    case BT_OID:
        return hash_bytes(value.bytes, sizeof(Oid));
    case BT_EOO: /* equals undefined */
    case BT_UNDEFINED:
        return BT_UNDEFINED;
    case BT_BINARY:
        return hash_bytes(value.bytes, value_bytes_size(&value));
    default: /* rare as keys: told apart by comparison alone */
        return (uint64_t)value.type * 0x9E3779B97F4A7C15u;
    }
}

const char *value_to_text(Value value, Arena *arena) {
    return value_is_missing(value) ? "MISSING"
                                   : shell_text_of_elem(value_to_elem(value, arena), arena);
}

void array_builder_init(ArrayBuilder *ab, Arena *arena) {
    buffer_init_arena(&ab->buf, arena, ARRAY_CAPACITY_FIRST, VALUE_SIZE_MAX);
    doc_builder_init(&ab->b, &ab->buf);
    ab->count = 0;
}

void array_builder_add(ArrayBuilder *ab, Value value) {
    char name[INDEX_NAME_SIZE];
    build_value_as(&ab->b, index_name(ab->count++, name),
                   value_is_missing(value) ? VALUE_NULL : value);
}

ErrCode array_builder_end(ArrayBuilder *ab, Value *ret_array, Error *err) {
    Doc array;
    TRY(doc_builder_finish(&ab->b, "array", &array, err));
    *ret_array = value_array(array);
    return ERR_OK;
}

void array_builder_rewind(ArrayBuilder *ab, ArenaMark mark) {
    ab->buf.data =
        arena_rewind_keeping(ab->buf.arena, mark, ab->buf.data, ab->buf.size, ab->buf.capacity);
}

ErrCode doc_merge(Doc base, Doc over, Arena *arena, Doc *ret_doc, Error *err) {
    Buffer buf;
    buffer_init_arena(&buf, arena, doc_size(base) + doc_size(over), VALUE_SIZE_MAX);
    DocBuilder b;
    doc_builder_init(&b, &buf);
    DocIter iter = doc_iter(base);
    for (Elem elem; doc_iter_next(&iter, &elem);) {
        Elem newer = doc_get(over, elem_name_str(elem));
        build_elem(&b, elem_is_present(newer) ? newer : elem);
    }
    iter = doc_iter(over);
    for (Elem elem; doc_iter_next(&iter, &elem);)
        if (!elem_is_present(doc_get(base, elem_name_str(elem))))
            build_elem(&b, elem);
    Doc merged;
    TRY(doc_builder_finish(&b, "merged object", &merged, err));
    *ret_doc = merged;
    return ERR_OK;
}

/* One level here, deeper ones by elem_hash, which bounds its depth as comparison does. */
static uint64_t hash_doc(Doc doc, bool with_names, const Collator *collator) {
    uint64_t hash = with_names ? BT_DOC : BT_ARRAY;
    DocIter iter = doc_iter(doc);
    for (Elem elem; doc_iter_next(&iter, &elem);) {
        if (with_names)
            hash = hash * 31 + hash_bytes(elem_name(elem), elem.name_size);
        BsonType type = elem_type(elem);
        bool is_nested = type == BT_DOC || type == BT_ARRAY;
        hash =
            hash * 0x9E3779B97F4A7C15u +
            (is_nested ? elem_hash(elem, collator) : value_hash(value_from_elem(elem), collator));
    }
    return hash ^ (hash >> 31);
}

static uint64_t hash_str(Str text, const Collator *collator) {
    if (collator == NULL)
        return hash_bytes(text.data, text.size);
    Buffer key;
    buffer_init(&key, BUFFER_UNBOUNDED);
    collator->append_sort_key(collator, text, &key);
    uint64_t hash = hash_bytes(key.data, key.size);
    buffer_done(&key);
    return hash;
}

static uint64_t hash_small(Value value) {
    return hash_bytes(&value.i64, sizeof(value.i64));
}
