/*
 * accumulator.h - what $group computes per group: a state that values are added to.
 *
 * States are plain memory within a group's entry. What they keep beyond it is heap memory that they
 * count in AccContext.bytes, so that $group can bound it.
 */
#pragma once

#include "base/arena.h"
#include "base/error.h"
#include "query/expr/expr.h"
#include "query/expr/percentile.h"
#include "query/expr/value.h"
#include "query/sort/sort_pattern.h"

typedef struct AccClass AccClass;

enum {
    ACC_STATE_ALIGN = 16,
};

/* An accumulator as it stands in a specification. */
typedef struct Acc {
    const AccClass *class;
    Str field;
    Elem source; /* {$sum: ...} within the field */
    Expr *input;
    int64_t n; /* of $firstN and its kin; 1 for $top and $bottom; 0: n_expr of the group's key */
    Expr *n_expr;
    SortPattern *sort_by;       /* $top and its kin */
    PercentileSpec *percentile; /* $median, $percentile */
} Acc;

typedef struct AccContext {
    const Collator *collator;
    size_t *bytes; /* heap memory of all states */
    ExprEvalContext *eval;
    KeyBuilder *key; /* for sort_by */
    Value group_id;  /* of the group whose state is added to; for n_expr */
} AccContext;

struct AccClass {
    size_t state_size;
    /* NULL: {$op: expression}. */
    ErrCode (*parse)(Elem operand, const ExprParseContext *ctx, Arena *arena, Acc *acc, Error *err);
    void (*init)(void *state); /* NULL: zeroed is right */
    ErrCode (*add)(void *state, const Acc *acc, Value value, AccContext *ctx, Error *err);
    /* The result so far; may use the arena and borrow from the state until the next call. */
    ErrCode (*finish)(void *state, const Acc *acc, Arena *arena, Value *ret, Error *err);
    void (*done)(void *state); /* NULL: nothing to free */
    /* The state as a partial, for another node to merge. NULL: the result is one. */
    ErrCode (*save)(void *state, const Acc *acc, Arena *arena, Value *ret, Error *err);
    /* Adds the values that a partial stands for, as if they came after those already added. NULL:
     * `add` takes partials. */
    ErrCode (*merge)(void *state, const Acc *acc, Value partial, AccContext *ctx, Error *err);
};

/* The accumulator of that element, such as {$sum: 1}. */
ErrCode acc_parse(Str field, Elem op, const ExprParseContext *ctx, Arena *arena, Acc *ret_acc,
                  Error *err) MUST_CHECK;

/* {$sum: expression}, for explain: appends the element. */
void acc_to_bson(const Acc *acc, DocBuilder *b);

/* What a partial must be; fails with ERR_BAD_VALUE. */
ErrCode acc_check_partial(const Acc *acc, Value partial, BsonType type, Error *err) MUST_CHECK;
/* Merges a partial that is an array of values by adding them one by one. */
ErrCode acc_merge_array(void *state, const Acc *acc, Value partial, AccContext *ctx, Error *err)
    MUST_CHECK;

/* A value kept over time in memory of its own, re-used when it is replaced. */
typedef struct KeptValue {
    Value value;
    uint8_t *memory;
    uint32_t capacity;
    bool is_set;
} KeptValue;

void kept_value_set(KeptValue *kept, Value value, size_t *bytes);
void kept_value_done(KeptValue *kept);

#define ACCUMULATOR(name, class) extern const AccClass class;
#define ACCUMULATOR_REFUSED(name)
#include "query/agg/accumulators.def"
#undef ACCUMULATOR
#undef ACCUMULATOR_REFUSED
