#include "index/key_show.h"

#include "bson/keystring.h"

static void build_hex(DocBuilder *b, Str name, Str bytes);
static void build_shown(DocBuilder *b, Str name, Elem value);

void build_key_values(DocBuilder *b, const IndexDesc *index, IndexKey key, bool has_paths) {
    Arena arena;
    arena_init(&arena, 1024);
    Doc values;
    CLEANUP(error_reset) Error ignored = {0};
    if (key_decode((const uint8_t *)key.key.data, key.key.size, (const uint8_t *)key.type_bits.data,
                   key.type_bits.size, index->order, &arena, &values, &ignored) == ERR_OK) {
        DocIter iter = doc_iter(values);
        Elem value;
        for (uint32_t f = 0; f < index->field_count && doc_iter_next(&iter, &value); f++) {
            Str name = has_paths ? str_from(index->fields[f].path) : STR("");
            if (index->collator == NULL)
                build_elem_as(b, name, value);
            else
                build_shown(b, name, value);
        }
    }
    arena_done(&arena);
}

/* Recurses no deeper than keys are decoded (KEYSTRING_DEPTH_MAX). */
static void build_shown(DocBuilder *b, Str name, Elem value) {
    BsonType type = elem_type(value);
    if (type == BT_STRING || type == BT_SYMBOL) {
        build_hex(b, name, elem_str(value));
        return;
    }
    if (type != BT_DOC && type != BT_ARRAY) {
        build_elem_as(b, name, value);
        return;
    }
    size_t opened = type == BT_DOC ? build_open_doc_str(b, name) : build_open_array_str(b, name);
    Elem inner;
    for (DocIter iter = doc_iter(elem_doc(value)); doc_iter_next(&iter, &inner);)
        build_shown(b, elem_name_str(inner), inner);
    build_close(b, opened);
}

static void build_hex(DocBuilder *b, Str name, Str bytes) {
    static const char DIGITS[] = "0123456789abcdef";
    size_t size = 2 + bytes.size * 2 + 1;
    uint8_t *at = build_value(b, BT_STRING, name, 4 + size);
    if (at == NULL)
        return;
    int32_t stored = (int32_t)size;
    memcpy(at, &stored, sizeof(stored));
    at += sizeof(stored);
    *at++ = '0';
    *at++ = 'x';
    for (size_t i = 0; i < bytes.size; i++) {
        *at++ = (uint8_t)DIGITS[(uint8_t)bytes.data[i] >> 4];
        *at++ = (uint8_t)DIGITS[(uint8_t)bytes.data[i] & 15];
    }
    *at = '\0';
}

void build_record_id(DocBuilder *b, const char *name, RecordId rid) {
    if (rid.str != NULL)
        build_binary(b, name, /* subtype= */ 0, rid.str, rid.str_size);
    else
        build_i64(b, name, rid.num);
}
