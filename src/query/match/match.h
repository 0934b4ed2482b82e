/*
 * match.h - the query language: a filter document becomes a tree, the tree judges documents.
 *
 * The tree is public, because the planner reads it: kinds, paths and operands are plain fields.
 * Negated operators are a MATCH_NOT over the positive one ($ne, $nin, {$exists: false}); $all is a
 * MATCH_AND. Comparisons follow the one order of bson/compare.h, but only within one type bracket.
 *
 * Ownership: the tree and a copy of the filter live in the arena given to match_parse and need no
 *            release. The collator and the $expr hook are borrowed for as long as the tree lives.
 * Threading: a tree never changes after match_optimize; any number of threads may match with it.
 */
#pragma once

#include "base/arena.h"
#include "base/error.h"
#include "bson/builder.h"
#include "bson/compare.h"
#include "bson/doc.h"
#include "query/match/path.h"

typedef enum MatchKind {
    /* Logical: children. An empty MATCH_AND is true. */
    MATCH_AND,
    MATCH_OR,
    MATCH_NOR,
    MATCH_NOT, /* one child */
    MATCH_ALWAYS_TRUE,
    MATCH_ALWAYS_FALSE,
    MATCH_EXPR, /* $expr, $jsonSchema: judged by an interface; see MatchCustom */
    /* Leaves: path, and operand unless said otherwise. */
    MATCH_EQ,
    MATCH_LT,
    MATCH_LTE,
    MATCH_GT,
    MATCH_GTE,
    MATCH_IN, /* in */
    MATCH_EXISTS,
    MATCH_TYPE,         /* type_set */
    MATCH_REGEX,        /* regex */
    MATCH_MOD,          /* mod */
    MATCH_SIZE,         /* size */
    MATCH_BITS_ALL_SET, /* bits */
    MATCH_BITS_ALL_CLEAR,
    MATCH_BITS_ANY_SET,
    MATCH_BITS_ANY_CLEAR,
    MATCH_ELEM_MATCH_OBJECT, /* one child, judges each element as a document */
    MATCH_ELEM_MATCH_VALUE,  /* children, each judges the bare element; their paths are empty */
    /* As $expr compares: the value as a whole, in the order of all types, where what is missing
     * comes before null. An array in the middle of the path matches: the expression that they
     * follow from, see expr_match_of_comparisons, puts its values together and has to judge. */
    MATCH_EXPR_LT,
    MATCH_EXPR_LTE,
    MATCH_EXPR_GT,
    MATCH_EXPR_GTE,
} MatchKind;

enum {
    MATCH_DEPTH_MAX = 100, /* of the tree */
};

typedef struct MatchRegex MatchRegex; /* regex.h */
typedef struct MatchExpr MatchExpr;

/* A judge of whole documents by means of its own ($expr, $jsonSchema). */
typedef struct MatchCustom {
    /* May fail, as expressions can; then match_doc reports through MatchDetails. */
    ErrCode (*eval)(const struct MatchCustom *custom, Doc doc, bool *ret_is_match, Error *err);
    void (*to_bson)(const struct MatchCustom *custom, DocBuilder *b); /* appends `$expr: ...` */
    /* Why the document does not match or, inverted, why it does: see match_explain_failure. */
    void (*explain)(const struct MatchCustom *custom, Doc doc, bool is_inverted, DocBuilder *b);
} MatchCustom;

typedef struct MatchExprHook {
    ErrCode (*parse)(const struct MatchExprHook *hook, Elem operand, Arena *arena,
                     MatchCustom **ret_custom, Error *err);
} MatchExprHook;

typedef struct MatchParseContext {
    const Collator *collator;       /* NULL: strings by bytes */
    const MatchExprHook *expr_hook; /* NULL: $expr is refused */
    bool is_upsert;                 /* refuses what an upsert may not use ($expr) */
    bool is_validator;              /* refuses what a validator may not use ($text, $near, ...) */
} MatchParseContext;

/* Which canonical types $type asks for: bit n for type n, and two for the types out of row. */
enum {
    MATCH_TYPE_BIT_MIN_KEY = 30,
    MATCH_TYPE_BIT_MAX_KEY = 31,
};

typedef struct MatchIn {
    const Elem *values; /* sorted, no duplicates */
    uint32_t value_count;
    uint32_t regex_count;
    MatchRegex *const *regexes;
    bool has_null; /* also matches what is missing */
} MatchIn;

typedef struct MatchBits {
    uint64_t mask;             /* positions 0..63 */
    const uint32_t *positions; /* all of them, rising */
    uint32_t count;
    bool has_high; /* some position is over 63: stands for the sign of a number */
} MatchBits;

struct MatchExpr {
    MatchKind kind;
    uint8_t fast;         /* how comparisons go; private to match_eval.c */
    uint8_t accepts;      /* comparisons: which outcomes match; private to match_eval.c */
    bool matches_missing; /* leaves: what they say about a missing field */
    bool is_implicit;     /* MATCH_EQ: written as {a: 1}, without $eq */
    FieldPath path;       /* leaves; without parts below MATCH_ELEM_MATCH_VALUE */
    Elem operand;
    const Collator *collator;

    MatchExpr **children;
    uint32_t child_count;

    union {
        MatchIn in;
        MatchBits bits;
        MatchRegex *regex;
        MatchCustom *custom;
        const char *spelling; /* MATCH_NOT: "$ne", "$nin", "$exists" if written so; else NULL */
        uint32_t type_set;
        int64_t size; /* -1: matches no array */
        struct {
            int64_t divisor;
            int64_t remainder;
        } mod;
        int64_t operand_i64; /* comparisons with integers */
        double operand_f64;  /* comparisons with doubles */
        Str operand_str;     /* comparisons with strings */
    };
};

/* What a match can tell besides yes and no. Initialise with MATCH_DETAILS_NONE. */
typedef struct MatchDetails {
    int32_t array_index; /* of the matched array element, for the positional operator; -1: none */
    ErrCode rc;          /* set when the verdict could not be reached; match_doc then says false */
    Error *err;          /* may be NULL */
} MatchDetails;

#define MATCH_DETAILS_NONE ((MatchDetails){.array_index = -1})

/* Parses a filter. Fails with ERR_BAD_VALUE and its kin for malformed operators, with
 * ERR_NOT_IMPLEMENTED for operators that are known but not supported. */
ErrCode match_parse(Doc query, const MatchParseContext *ctx, Arena *arena, MatchExpr **ret_expr,
                    Error *err) MUST_CHECK;

/* Parses the operators of one field, such as {$gt: 1}, for a bare value: see match_value. */
ErrCode match_parse_value(Doc operators, const MatchParseContext *ctx, Arena *arena,
                          MatchExpr **ret_expr, Error *err) MUST_CHECK;

/* Rewrites the tree into an equivalent smaller one: nested AND and OR flattened, single children
 * lifted, equalities of one path under OR merged to IN, IN of one value turned into EQ. */
MatchExpr *match_optimize(MatchExpr *expr, Arena *arena);

/* Does the document match? `details` may be NULL when the tree has neither MATCH_EXPR nor regular
 * expressions, or when "could not tell" may count as no. */
bool match_doc(const MatchExpr *expr, Doc doc, MatchDetails *details);

/* As match_doc on the document {<name>: <elem>}, without building it. */
bool match_elem(const MatchExpr *expr, Str name, Elem elem, MatchDetails *details);

/* Judges the bare element, paths aside: arrays are not looked into, except by operators on arrays.
 * For trees of match_parse_value and the children of MATCH_ELEM_MATCH_VALUE. */
bool match_value(const MatchExpr *expr, Elem elem, MatchDetails *details);

/* True when the tree holds a MATCH_EXPR or a regular expression: matching can fail. */
bool match_can_fail(const MatchExpr *expr);

/* Why the filter does not match the document, for people: appends {operatorName, specifiedAs,
 * reason, consideredValue, ...} members to the open document. Only for trees that were not
 * optimized, and documents that do not match. */
void match_explain_failure(const MatchExpr *expr, Doc doc, DocBuilder *b);

/* Calls `visit` for every equality that each matching document must fulfil: EQ, also below AND, OR
 * of one child, IN of one value. Stops at the first failure and returns it. */
typedef ErrCode (*MatchEqualityFn)(void *ctx, const FieldPath *path, Elem operand, Error *err);
ErrCode match_equalities(const MatchExpr *expr, MatchEqualityFn visit, void *ctx, Error *err)
    MUST_CHECK;

/* For {_id: value} and {_id: {$eq: value}} alone: the value. The missing element for all else,
 * also for values that equality does not find by one key: regular expressions, arrays, null,
 * undefined. */
Elem match_find_id_equality(Doc query);

/* The filter in its parsed form, as explain shows it: appends elements to the open document. */
void match_to_bson(const MatchExpr *expr, DocBuilder *b);
