#include "query/expr/value_set.h"

enum {
    SLOT_COUNT_FIRST = 16,
};

static int64_t find_hashed(const ValueSet *set, Value value, uint64_t hash);
static void grow(ValueSet *set);

void value_set_init(ValueSet *set, Arena *arena, const Collator *collator) {
    *set = (ValueSet){.arena = arena, .collator = collator};
}

int64_t value_set_find(const ValueSet *set, Value value) {
    return set->count == 0 ? -1 : find_hashed(set, value, value_hash(value, set->collator));
}

bool value_set_add(ValueSet *set, Value value, bool is_copied) {
    uint64_t hash = value_hash(value, set->collator);
    if (set->count > 0 && find_hashed(set, value, hash) >= 0)
        return false;
    if (set->count == set->capacity)
        grow(set);
    uint32_t slot = (uint32_t)hash & (set->slot_count - 1);
    while (set->slots[slot] != 0)
        slot = (slot + 1) & (set->slot_count - 1);
    set->values[set->count] = is_copied ? value_copy(value, set->arena) : value;
    set->hashes[set->count] = hash;
    set->slots[slot] = ++set->count;
    return true;
}

static int64_t find_hashed(const ValueSet *set, Value value, uint64_t hash) {
    uint32_t slot = (uint32_t)hash & (set->slot_count - 1);
    for (; set->slots[slot] != 0; slot = (slot + 1) & (set->slot_count - 1)) {
        uint32_t index = set->slots[slot] - 1;
        if (set->hashes[index] == hash && values_equal(set->values[index], value, set->collator))
            return index;
    }
    return -1;
}

/* Twice the slots, filled up to a half. */
static void grow(ValueSet *set) {
    uint32_t slot_count = set->slot_count == 0 ? SLOT_COUNT_FIRST : set->slot_count * 2;
    uint32_t capacity = slot_count / 2;
    Value *values = ARENA_ARRAY(set->arena, Value, capacity);
    uint64_t *hashes = ARENA_ARRAY(set->arena, uint64_t, capacity);
    uint32_t *slots = ARENA_ARRAY(set->arena, uint32_t, slot_count);
    for (uint32_t i = 0; i < set->count; i++) {
        values[i] = set->values[i];
        hashes[i] = set->hashes[i];
        uint32_t slot = (uint32_t)hashes[i] & (slot_count - 1);
        while (slots[slot] != 0)
            slot = (slot + 1) & (slot_count - 1);
        slots[slot] = i + 1;
    }
    set->values = values;
    set->hashes = hashes;
    set->capacity = capacity;
    set->slots = slots;
    set->slot_count = slot_count;
}
