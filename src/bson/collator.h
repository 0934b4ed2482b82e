/*
 * collator.h - collations: how strings compare in a language, on ICU.
 *
 * A collation document ({locale: "fr", strength: 2, ...}) becomes a Collator of bson/compare.h.
 * Equal collations give the same pointer, so that two collators can be compared by address. The
 * simple collation, comparison by bytes, is NULL.
 *
 * Ownership: collators are kept for the life of the process, at most COLLATORS_MAX of them; opening
 *            one costs a thousand times more than a comparison.
 * Threading: any thread.
 */
#pragma once

#include "base/error.h"
#include "bson/compare.h"

enum {
    COLLATORS_MAX = 4096,
    /* Documents cached in addition: the same collation can be written in many ways. */
    COLLATION_SPELLINGS_MAX = 4096,
};

/* The version that collations are stored with. Clients know collations by the ICU release of the
 * server they were made for. */
#define COLLATION_VERSION "57.1"

/* Fails with 40415 for unknown fields, 40414 without a locale, ERR_TYPE_MISMATCH for wrong types,
 * ERR_BAD_VALUE for unknown locales and values, 161 for a version that is not COLLATION_VERSION.
 * *ret_collator is NULL for {locale: "simple"}. */
ErrCode collator_parse(Doc spec, const Collator **ret_collator, Error *err) MUST_CHECK;

/* As collator_parse, for an element that has to be a document; `field` is its name in messages. */
ErrCode collator_parse_elem(Elem spec, const char *field, const Collator **ret_collator, Error *err)
    MUST_CHECK;

enum {
    COLLATOR_VERSION_SIZE = 20,
};
/* The version of ICU's data behind the collator, such as "153.120.44". Sort keys of different
 * versions do not compare with each other. */
void collator_data_version(const Collator *collator, char out[COLLATOR_VERSION_SIZE]);

/* Whether values of that type can compare differently under different collations. */
static inline bool type_is_collatable(BsonType type) {
    return type == BT_STRING || type == BT_SYMBOL || type == BT_DOC || type == BT_ARRAY ||
           type == BT_CODE_W_SCOPE;
}

/* Whether this value, or one in it, can compare differently under different collations. */
bool elem_has_text(Elem value);
