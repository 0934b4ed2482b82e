/*
 * match_internal.h - what the .c files of query/match share.
 */
#pragma once

#include "query/match/match.h"

/* What all parse functions know. */
typedef struct MatchParser {
    const MatchParseContext *ctx;
    Arena *arena;
    uint32_t depth;
    uint32_t elem_match_depth; /* > 0: the filter is for array elements, not for documents */
} MatchParser;

/* Where an operator stands. Top operators have no path and no siblings. */
typedef struct MatchSite {
    FieldPath path;
    Doc siblings; /* the object that holds the operator: $regex looks for $options here */
    MatchKind kind;
} MatchSite;

/* Parses one operator. `*ret_expr` stays NULL when it adds nothing to the tree. */
typedef ErrCode MatchParseFn(MatchParser *p, const MatchSite *site, Elem operand,
                             MatchExpr **ret_expr, Error *err);

#define MATCH_FIELD_OPERATOR(name, parse, kind) MatchParseFn parse;
#define MATCH_TOP_OPERATOR(name, parse, kind)   MatchParseFn parse;
#include "query/match/match_operators.def"
#undef MATCH_FIELD_OPERATOR
#undef MATCH_TOP_OPERATOR

/* A node of that kind with the parser's collator. */
MatchExpr *match_new(MatchParser *p, MatchKind kind, const FieldPath *path);
/* `spelling` is the operator that stands for the negation, NULL for $not itself. */
MatchExpr *match_new_not(MatchParser *p, MatchExpr *child, const char *spelling);
/* The last step for a leaf whose fields are filled in: chooses how it is evaluated. */
void match_finish_leaf(MatchExpr *expr);

/* Growing list of children. */
typedef struct MatchList {
    MatchExpr **items;
    uint32_t count;
    uint32_t capacity;
} MatchList;

void match_list_add(MatchList *list, Arena *arena, MatchExpr *expr);
/* The one item itself, or a MATCH_AND of all. */
MatchExpr *match_list_to_and(MatchList *list, MatchParser *p);

/* The conditions of a whole filter, of {$op: ...} for one path, and of a plain value. */
ErrCode match_parse_filter(MatchParser *p, Doc filter, MatchExpr **ret_expr, Error *err) MUST_CHECK;
ErrCode match_parse_operators(MatchParser *p, const FieldPath *path, Doc operators, MatchList *list,
                              Error *err) MUST_CHECK;
ErrCode match_parse_equality(MatchParser *p, const FieldPath *path, Elem operand,
                             MatchExpr **ret_expr, Error *err) MUST_CHECK;
ErrCode match_parse_regex_value(MatchParser *p, const FieldPath *path, Elem regex,
                                MatchExpr **ret_expr, Error *err) MUST_CHECK;

/* Is this object a set of operators ({$gt: 1}) and not a value ({a: 1}, a DBRef)? */
bool match_is_operator_object(Elem elem);

/* The bit of a type in MatchExpr.type_set. */
static inline uint32_t match_type_bit(BsonType type) {
    return type == BT_MIN_KEY   ? MATCH_TYPE_BIT_MIN_KEY
           : type == BT_MAX_KEY ? MATCH_TYPE_BIT_MAX_KEY
                                : (uint32_t)type;
}

/* $sampleRate: true for that part of all documents, by chance. */
MatchCustom *sample_rate_new(double rate, Arena *arena);

/* Sorts and removes duplicates. */
uint32_t match_sort_values(Elem *values, uint32_t count, const Collator *collator);

const char *match_operator_name(MatchKind kind); /* "$lt"; of leaves and logical kinds */
