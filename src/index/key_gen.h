/*
 * key_gen.h - from a document to its index keys.
 *
 * Without arrays on the indexed paths a document has exactly one key. An array makes one key per
 * element (multikey); at most one array may be expanded per document in a compound index. A missing
 * field is indexed as null, an empty array as undefined.
 */
#pragma once

#include "base/error.h"
#include "bson/keystring.h"
#include "catalog/collection.h"

enum {
    INDEX_KEYS_PER_DOC_MAX = 100000,
};

/* The keys of one document in one index: sorted, without duplicates. Memory is kept between
 * documents. */
typedef struct KeySet {
    KeyBuilder builder;
    Buffer bytes; /* keys and type bits behind each other */
    struct KeySpan {
        uint32_t offset;
        uint32_t key_size;
        uint32_t type_bits_size;
    } * spans;
    uint32_t count;
    uint32_t capacity;
    uint32_t multikey_paths[INDEX_FIELDS_MAX]; /* parts of the path that were arrays */
    bool is_multikey;
} KeySet;

void key_set_init(KeySet *set);
void key_set_done(KeySet *set);
IndexKey key_set_get(const KeySet *set, uint32_t position);

/* Fails with ERR_CANNOT_INDEX_PARALLEL_ARRAYS, or when a document has too many keys. */
ErrCode index_keys_of(const IndexDesc *index, Doc doc, KeySet *ret_set, Error *err) MUST_CHECK;

/* Record id of a document in a clustered collection: the key of its _id under the collection's
 * default collation. In `kb`'s memory. */
ErrCode clustered_record_id(Doc doc, const Collator *collator, KeyBuilder *kb, RecordId *ret_rid,
                            Error *err) MUST_CHECK;
void clustered_record_id_of_value(Elem id, const Collator *collator, KeyBuilder *kb,
                                  RecordId *ret_rid);
