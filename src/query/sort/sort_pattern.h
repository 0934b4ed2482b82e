/*
 * sort_pattern.h - {a: 1, b: -1}: parsed once, turned into a comparable key per document.
 *
 * A key is the KeyString of one value per part; two documents are in the order of the memcmp of
 * their keys. A path that leads to arrays has several values: the least in sort direction counts
 * (the minimum when ascending, the maximum when descending). Missing sorts as null, an empty array
 * below it.
 *
 * Ownership: a pattern and a copy of its specification live in the arena given to the parser.
 */
#pragma once

#include "base/arena.h"
#include "base/buffer.h"
#include "base/error.h"
#include "bson/builder.h"
#include "bson/compare.h"
#include "bson/doc.h"
#include "bson/keystring.h"
#include "query/match/path.h"

typedef struct SortPart {
    FieldPath path;
    bool is_descending;
} SortPart;

typedef struct SortPattern {
    Doc spec;
    SortPart *parts;
    uint32_t count;      /* 0: any order */
    uint32_t meta_count; /* parts that say nothing: {$meta: "randVal"}, by chance */
    KeyOrder order;
    int natural_direction; /* 1 or -1: {$natural: n}, then without parts; else 0 */
} SortPattern;

typedef enum SortSyntax {
    SORT_SYNTAX_FIND,  /* may be empty */
    SORT_SYNTAX_STAGE, /* needs at least one part, knows no $natural */
    SORT_SYNTAX_META,  /* the same, and takes {$meta: "randVal"}: $sort, $setWindowFields */
} SortSyntax;

/* Fails with 15973..15976 for malformed patterns, 40218 for the score of a text search that
 * there is not. */
ErrCode sort_pattern_parse(Doc spec, SortSyntax syntax, Arena *arena, SortPattern **ret_pattern,
                           Error *err) MUST_CHECK;

/* The opposite order. */
const SortPattern *sort_pattern_reverse(const SortPattern *pattern, Arena *arena);

/* Makes the sort key of `doc` in `key` (reset first). Fails with ERR_BAD_VALUE when two parts pass
 * through different arrays. */
ErrCode sort_key_make(const SortPattern *pattern, Doc doc, const Collator *collator,
                      KeyBuilder *key, Error *err) MUST_CHECK;

/* The values that the key of `doc` is made of, one for each part, as an array `name` appended to
 * `b`: what {$meta: "sortKey"} shows. Without a collation. */
ErrCode sort_key_show(const SortPattern *pattern, Doc doc, const char *name, Arena *scratch,
                      DocBuilder *b, Error *err) MUST_CHECK;

/* The name of the field that carries a key. */
#define SORT_KEY_NAME "$sortKey"
/* The document with its key as its first field, in `buf`, which is cleared first. Fails with
 * ERR_BSON_OBJECT_TOO_LARGE over its bound. */
ErrCode sort_key_attach(Doc doc, Str key, Buffer *buf, Doc *ret_doc, Error *err) MUST_CHECK;
