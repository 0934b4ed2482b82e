#include "bson/index_hash.h"

#include <string.h>

#include "base/alloc.h"
#include "base/md5.h"
#include "bson/keystring.h"
#include "bson/number.h"

static void add_elem(Md5 *md5, Elem elem, bool with_name);
static int32_t type_rank(BsonType type);

int64_t index_hash(Elem elem) {
    return index_hash_seeded(elem, 0);
}

int64_t index_hash_seeded(Elem elem, int32_t seed) {
    static const uint8_t NULL_ELEM[] = {BT_NULL, 0};
    Md5 md5;
    md5_init(&md5);
    md5_add(&md5, &seed, sizeof(seed));
    add_elem(&md5, elem_is_present(elem) ? elem : (Elem){NULL_ELEM, 0}, /* with_name= */ false);
    uint8_t digest[MD5_DIGEST_SIZE];
    md5_end(&md5, digest);
    return load_i64(digest);
}

/* Recurses as deep as validated documents are nested. */
static void add_elem(Md5 *md5, Elem elem, bool with_name) {
    BsonType type = elem_type(elem);
    int32_t rank = type_rank(type);
    md5_add(md5, &rank, sizeof(rank));
    if (with_name)
        md5_add(md5, elem_name(elem), elem.name_size + 1);
    Doc inner = DOC_NONE;
    if (type == BT_DOC || type == BT_ARRAY) {
        inner = elem_doc(elem);
    } else if (type == BT_CODE_W_SCOPE) { /* total size, code, scope */
        const uint8_t *code = elem_value(elem) + 4;
        uint32_t code_size = (uint32_t)load_i32(code);
        md5_add(md5, code + 4, code_size);
        inner = (Doc){code + 4 + code_size};
    } else if (type_is_number(type)) {
        int64_t integer = number_to_i64(number_from_elem(elem));
        /* What the first double beyond the integers was converted to when the hash was fixed. */
        if (type == BT_DOUBLE && elem_f64(elem) == 0x1p63)
            integer = INT64_MIN;
        md5_add(md5, &integer, sizeof(integer));
    } else {
        md5_add(md5, elem_value(elem), elem_value_size(elem));
    }
    if (!doc_is_present(inner))
        return;
    DocIter iter = doc_iter(inner);
    for (Elem item; doc_iter_next(&iter, &item);)
        add_elem(md5, item, /* with_name= */ true);
    const int32_t end_rank = 0;
    md5_add(md5, &end_rank, sizeof(end_rank));
}

/* The place of a type in the order of types, as the hash has it. */
static int32_t type_rank(BsonType type) {
    switch (type) {
    case BT_MIN_KEY:
        return -1;
    case BT_MAX_KEY:
        return 127;
    case BT_NULL:
        return 5;
    case BT_DOUBLE:
    case BT_INT32:
    case BT_INT64:
    case BT_DECIMAL:
        return 10;
    case BT_STRING:
    case BT_SYMBOL:
        return 15;
    case BT_DOC:
        return 20;
    case BT_ARRAY:
        return 25;
    case BT_BINARY:
        return 30;
    case BT_OID:
        return 35;
    case BT_BOOL:
        return 40;
    case BT_DATE:
        return 45;
    case BT_TIMESTAMP:
        return 47;
    case BT_REGEX:
        return 50;
    case BT_DBPOINTER:
        return 55;
    case BT_CODE:
        return 60;
    case BT_CODE_W_SCOPE:
        return 65;
    default:
        return 0;
    }
}

int64_t index_hash_collated(Elem value, const Collator *collator) {
    if (collator == NULL || !type_is_collatable(elem_type(value)))
        return index_hash(value);
    /* Text is hashed by what the collation makes of it: as the bytes of its key. */
    KeyBuilder kb;
    key_builder_init(&kb);
    key_append_elem(&kb, value, collator);
    int32_t size = (int32_t)kb.key.size;
    uint8_t *binary = xmalloc(kb.key.size + 7);
    binary[0] = BT_BINARY;
    binary[1] = '\0';
    memcpy(binary + 2, &size, sizeof(size));
    binary[6] = 0; /* subtype */
    memcpy(binary + 7, kb.key.data, kb.key.size);
    int64_t hash = index_hash((Elem){binary, 0});
    xfree(binary);
    key_builder_done(&kb);
    return hash;
}
