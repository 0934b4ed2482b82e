/*
 * value_set.h - a set of values, equal as the collation says: for $addToSet and the set operators.
 *
 * Ownership: values are borrowed or copied to the arena, as the caller chooses; the table is in the
 *            arena too and leaves smaller ones behind when it grows.
 */
#pragma once

#include "base/arena.h"
#include "query/expr/value.h"

typedef struct ValueSet {
    Arena *arena;
    const Collator *collator;
    Value *values; /* in order of arrival */
    uint64_t *hashes;
    uint32_t count;
    uint32_t capacity;
    uint32_t *slots; /* index + 1 into values; a power of two of them */
    uint32_t slot_count;
} ValueSet;

void value_set_init(ValueSet *set, Arena *arena, const Collator *collator);

/* Its index, or -1. */
int64_t value_set_find(const ValueSet *set, Value value);

/* True when the value was not there. With `is_copied`, its bytes move to the arena. */
bool value_set_add(ValueSet *set, Value value, bool is_copied);
