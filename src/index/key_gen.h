/*
 * key_gen.h - generates the index keys of a document.
 *
 * Without arrays on the indexed paths a document has exactly one key. An array makes one key per
 * element (multikey); at most one array may be expanded per document in a compound index. A missing
 * field is indexed as null, an empty array as undefined. A number in a path that names a position
 * of an array makes one key of that element, whole even if it is an array.
 *
 * A hashed field is stored as the 64-bit hash of its value (bson/index_hash.h); arrays are refused.
 * A wildcard field takes two positions of the key: the path of each value that is not a document
 * (arrays are expanded), and the value. In addition each array has an entry that only marks it:
 *
 *     fields before   path   value    fields after
 *     MinKey          1      <path>   MinKey
 *
 * so that the planner can determine, in its own snapshot, whether a path crosses an array. In a
 * compound index a document without any such path has one key with MinKey for both.
 *
 * Threading: pure; a KeySet belongs to one thread.
 */
#pragma once

#include "base/error.h"
#include "bson/keystring.h"
#include "catalog/collection.h"

enum {
    INDEX_KEYS_PER_DOC_MAX = 100000,
    /* In total: a few large values can be multiplied by many small ones. */
    INDEX_KEY_BYTES_PER_DOC_MAX = 256 * 1024 * 1024,
};

/* One entry of a document in a wildcard index. */
typedef struct WildcardEntry {
    size_t path; /* where it stands in `paths`, as the value of a BSON string */
    Elem value;
    bool is_array_mark;
} WildcardEntry;
typedef struct WildcardEntries {
    Buffer paths;
    WildcardEntry *rows;
    uint32_t count;
    uint32_t capacity;
    bool has_array;
} WildcardEntries;

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
    WildcardEntries wildcard;                  /* of the document at hand */
    uint32_t multikey_paths[INDEX_FIELDS_MAX]; /* parts of the path that were arrays */
    bool is_multikey;
} KeySet;

void key_set_init(KeySet *set);
void key_set_done(KeySet *set);
IndexKey key_set_get(const KeySet *set, uint32_t position);

/* Fails with ERR_CANNOT_INDEX_PARALLEL_ARRAYS, with 16766 for arrays under a hashed index, with
 * 16746 for "a.0" of `{a: [{"0": 1}]}`, or when a document has too many keys. */
ErrCode index_keys_of(const IndexDesc *index, Doc doc, KeySet *ret_set, Error *err) MUST_CHECK;

/* A field name that contains a dot must not be mistaken for a path: the dot is stored as this
 * byte. */
enum {
    WILDCARD_DOT = '\x01',
};
/* Finds the paths and values of a document; wildcard_keys.c. */
ErrCode wildcard_entries_of(const IndexDesc *index, Doc doc, WildcardEntries *ret_entries,
                            Error *err) MUST_CHECK;

/* Record id of a document in a clustered collection: the key of its _id under the collection's
 * default collation. In `kb`'s memory. */
ErrCode clustered_record_id(Doc doc, const Collator *collator, KeyBuilder *kb, RecordId *ret_rid,
                            Error *err) MUST_CHECK;
void clustered_record_id_of_value(Elem id, const Collator *collator, KeyBuilder *kb,
                                  RecordId *ret_rid);
