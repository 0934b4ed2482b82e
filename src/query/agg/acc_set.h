/*
 * acc_set.h - the accumulators of one specification together: {total: {$sum: "$a"}, n: ...}.
 *
 * Their states lie one behind the other in one piece of memory, acc_set_size bytes of it, zeroed
 * and aligned to ACC_STATE_ALIGN.
 */
#pragma once

#include "query/agg/accumulator.h"
#include "query/expr/path_set.h"

typedef struct AccSet {
    Acc *accs;
    size_t *offsets;
    uint32_t count;
    uint32_t capacity;
    size_t size;
    bool has_growing; /* a state keeps memory of its own, which can grow with every value */
} AccSet;

/* Room for that many. */
void acc_set_init(AccSet *set, uint32_t capacity, Arena *arena);
/* Adds the accumulator of a field, {<field>: {$sum: ...}}. Fails with 40234 and its kin. */
ErrCode acc_set_parse(AccSet *set, Elem field, const ExprParseContext *ctx, Arena *arena,
                      Error *err) MUST_CHECK;
void acc_set_add_paths(const AccSet *set, PathSet *paths);

void acc_states_init(const AccSet *set, void *states);
/* Adds the document that is the root of ctx->eval to the state of one accumulator, or of all. */
MUST_CHECK static inline ErrCode acc_state_add(const AccSet *set, uint32_t index, void *states,
                                               AccContext *ctx, Error *err) {
    const Acc *acc = &set->accs[index];
    Value value;
    TRY(expr_eval(acc->input, ctx->eval, &value, err));
    return acc->class->add((uint8_t *)states + set->offsets[index], acc, value, ctx, err);
}
MUST_CHECK static inline ErrCode acc_states_add(const AccSet *set, void *states, AccContext *ctx,
                                                Error *err) {
    for (uint32_t i = 0; i < set->count; i++)
        TRY(acc_state_add(set, i, states, ctx, err));
    return ERR_OK;
}
/* Appends a field per accumulator; null for missing. */
ErrCode acc_states_build(const AccSet *set, void *states, Arena *scratch, DocBuilder *b, Error *err)
    MUST_CHECK;
/* Adds the partials of one group: the fields behind the first one of `doc`, which must be those of
 * the accumulators, in their order. Fails with ERR_BAD_VALUE for anything else. */
ErrCode acc_states_merge(const AccSet *set, void *states, Doc doc, AccContext *ctx, Error *err)
    MUST_CHECK;
/* Appends the partials, a field per accumulator. */
ErrCode acc_states_save(const AccSet *set, void *states, Arena *scratch, DocBuilder *b, Error *err)
    MUST_CHECK;
void acc_states_done(const AccSet *set, void *states);

static inline size_t acc_align(size_t size) {
    return (size + ACC_STATE_ALIGN - 1) & ~(size_t)(ACC_STATE_ALIGN - 1);
}
