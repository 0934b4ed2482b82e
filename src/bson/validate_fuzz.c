/*
 * validate_fuzz.c - documents from outside: what validation lets pass must be safe for all of
 * bson/.
 */
#include "bson/validate.h"

#include "bson/compare.h"
#include "bson/json.h"
#include "bson/keystring.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_texts(Doc doc, Arena *arena) {
    Buffer text;
    buffer_init_arena(&text, arena, 256, 1 << 24);
    json_append_doc(&text, doc, 1 << 20);
    invariant(utf8_is_valid(text.data, text.size));
    shell_text_of_doc(doc, arena);
}

/* A key of up to four fields goes there and back and gives equal values and the same key again. */
static void check_key(Doc doc, KeyOrder order, Arena *arena) {
    Error err = {0};
    KeyBuilder key;
    KeyBuilder again;
    key_builder_init_arena(&key, arena);
    key_builder_init_arena(&again, arena);
    key_builder_reset(&key, order);
    key_builder_reset(&again, order);
    Elem elems[4];
    uint32_t count = 0;
    DocIter iter = doc_iter(doc);
    for (; count < 4 && doc_iter_next(&iter, &elems[count]); count++)
        key_append_elem(&key, elems[count], NULL);
    key_append_end(&key, KEY_END_EXACT);
    key_append_record_id(&key, record_id_num(doc_size(doc)));
    invariant(!key.key.overflowed);

    Str bits = key_type_bits(&key);
    Doc back;
    invariant(key_decode(key.key.data, key.key.size, (const uint8_t *)bits.data, bits.size, order,
                         arena, &back, &err) == ERR_OK);
    invariant(doc_count(back) == count);
    DocIter back_iter = doc_iter(back);
    Elem elem;
    for (uint32_t i = 0; i < count && doc_iter_next(&back_iter, &elem); i++) {
        invariant(elem_compare(elems[i], elem, NULL) == 0);
        invariant(elem_hash(elems[i], NULL) == elem_hash(elem, NULL));
        invariant(elem_type(elems[i]) == elem_type(elem));
    }
    key_append_doc_fields(&again, back, NULL);
    key_append_end(&again, KEY_END_EXACT);
    size_t fields_size = key_size_without_record_id(key.key.data, key.key.size, false);
    invariant(again.key.size == fields_size);
    invariant(memcmp(again.key.data, key.key.data, fields_size) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    Error err = {0};
    ErrCode rc = doc_validate(data, size, BSON_DEPTH_MAX, VALIDATE_BASIC, &err);
    invariant(rc == ERR_OK || rc == ERR_INVALID_BSON || rc == ERR_OVERFLOW);
    if (rc == ERR_OK) {
        CLEANUP(arena_done) Arena arena = {0};
        Doc doc = {data};
        invariant(doc_compare(doc, doc, NULL) == 0);
        check_texts(doc, &arena);
        check_key(doc, /* order= */ size & 0xF, &arena);
        rc = doc_validate(data, size, BSON_DEPTH_MAX, VALIDATE_UTF8 | VALIDATE_UNIQUE, &err);
        invariant(rc == ERR_OK || rc == ERR_INVALID_BSON);
    }
    error_reset(&err);
    return 0;
}
