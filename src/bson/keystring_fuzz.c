/*
 * keystring_fuzz.c - keys from a damaged disk: decoding any bytes is safe, and what decodes is a
 * document with a key of its own.
 *
 * Input: one byte of directions, one byte size of type bits, type bits, key.
 */
#include "bson/keystring.h"
#include "bson/validate.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_record_ids(const uint8_t *key, size_t size) {
    for (int is_string_rid = 0; is_string_rid < 2; is_string_rid++) {
        RecordId rid = RECORD_ID_NONE;
        if (key_decode_record_id_at_end(key, size, is_string_rid, &rid))
            invariant(record_id_compare(rid, rid) == 0);
        invariant(key_size_without_record_id(key, size, is_string_rid) <= size);
        invariant(key_decode_record_id_at_start(key, size, is_string_rid, &rid) <= size);
    }
}

/* A document from a key has a key, which comes back as the same document. */
static void check_doc(Doc doc, KeyOrder order, Arena *arena) {
    Error err = {0};
    /* The document around the fields is one level more than they were. */
    ErrCode rc = doc_validate(doc.data, doc_size(doc), BSON_DEPTH_MAX, VALIDATE_BASIC, &err);
    invariant(rc == ERR_OK || rc == ERR_OVERFLOW);
    error_reset(&err);

    KeyBuilder key;
    key_builder_init_arena(&key, arena);
    key_builder_reset(&key, order);
    key_append_doc_fields(&key, doc, NULL);
    key_append_end(&key, KEY_END_EXACT);
    invariant(!key.key.overflowed);
    Str bits = key_type_bits(&key);
    Doc back;
    invariant(key_decode(key.key.data, key.key.size, (const uint8_t *)bits.data, bits.size, order,
                         arena, &back, &err) == ERR_OK);
    invariant(doc_equal_bytes(doc, back));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 2 || (size_t)data[1] + 2 > size)
        return 0;
    KeyOrder order = data[0];
    const uint8_t *type_bits = data + 2;
    const uint8_t *key = type_bits + data[1];
    size_t key_size = size - 2 - data[1];
    Error err = {0};
    CLEANUP(arena_done) Arena arena = {0};
    Doc doc;
    ErrCode rc = key_decode(key, key_size, type_bits, data[1], order, &arena, &doc, &err);
    if (rc == ERR_OK)
        check_doc(doc, order, &arena);
    else
        invariant(rc == ERR_DATA_CORRUPTION_DETECTED);
    check_record_ids(key, key_size);
    error_reset(&err);
    return 0;
}
