#include "query/exec/rid_set.h"

#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"

enum {
    BLOCK_BITS = 16,
    BLOCK_IDS = 1 << BLOCK_BITS,
    BLOCK_WORDS = BLOCK_IDS / 64,
    LOW_CAPACITY_FIRST = 4,
    LOW_CAPACITY_MAX = BLOCK_IDS / 16, /* as large as the bits are */
    SLOTS_FIRST = 16,
};

static bool block_add(RidSet *set, RidBlock *block, uint16_t low);

/* Tables are at most three quarters full. */
static bool must_grow(size_t count, size_t slots) {
    return (count + 1) * 4 > slots * 3;
}

/* ---- numbers ---- */

static RidBlock *find_block(RidBlock *blocks, size_t slots, uint64_t number) {
    size_t at = hash_bytes(&number, sizeof(number)) & (slots - 1);
    while (blocks[at].count != 0 && blocks[at].number != number)
        at = (at + 1) & (slots - 1);
    return &blocks[at];
}

static void grow_blocks(RidSet *set) {
    size_t slots = set->block_slots == 0 ? SLOTS_FIRST : set->block_slots * 2;
    RidBlock *blocks = xcalloc(slots, sizeof(*blocks));
    for (size_t i = 0; i < set->block_slots; i++)
        if (set->blocks[i].count != 0)
            *find_block(blocks, slots, set->blocks[i].number) = set->blocks[i];
    xfree(set->blocks);
    set->bytes += (slots - set->block_slots) * sizeof(*blocks);
    set->blocks = blocks;
    set->block_slots = slots;
}

static bool add_number(RidSet *set, int64_t num) {
    if (must_grow(set->block_count, set->block_slots))
        grow_blocks(set);
    uint64_t number = (uint64_t)num >> BLOCK_BITS;
    RidBlock *block = find_block(set->blocks, set->block_slots, number);
    if (block->count == 0) {
        set->block_count++;
        *block = (RidBlock){.number = number,
                            .capacity = LOW_CAPACITY_FIRST,
                            .low = xmalloc(LOW_CAPACITY_FIRST * sizeof(uint16_t))};
        set->bytes += LOW_CAPACITY_FIRST * sizeof(uint16_t);
    }
    return block_add(set, block, (uint16_t)num);
}

static void turn_into_bits(RidSet *set, RidBlock *block) {
    uint64_t *bits = xcalloc(BLOCK_WORDS, sizeof(*bits));
    for (uint32_t i = 0; i < block->count; i++)
        bits[block->low[i] / 64] |= UINT64_C(1) << (block->low[i] % 64);
    set->bytes += BLOCK_WORDS * sizeof(*bits) - block->capacity * sizeof(uint16_t);
    xfree(block->low);
    block->bits = bits;
    block->capacity = 0;
}

/* Where `low` is or belongs. Mostly it comes after all others. */
static uint32_t find_place(const RidBlock *block, uint16_t low) {
    uint32_t from = 0, to = block->count;
    if (to > 0 && block->low[to - 1] < low)
        return to;
    while (from < to) {
        uint32_t middle = (from + to) / 2;
        if (block->low[middle] < low)
            from = middle + 1;
        else
            to = middle;
    }
    return from;
}

static bool block_add(RidSet *set, RidBlock *block, uint16_t low) {
    if (block->capacity == 0) {
        uint64_t bit = UINT64_C(1) << (low % 64);
        bool is_new = (block->bits[low / 64] & bit) == 0;
        block->bits[low / 64] |= bit;
        block->count += is_new;
        return is_new;
    }
    uint32_t at = find_place(block, low);
    if (at < block->count && block->low[at] == low)
        return false;
    if (block->count == LOW_CAPACITY_MAX) {
        turn_into_bits(set, block);
        return block_add(set, block, low);
    }
    if (block->count == block->capacity) {
        set->bytes += block->capacity * sizeof(uint16_t);
        block->capacity *= 2;
        block->low = xrealloc(block->low, block->capacity * sizeof(uint16_t));
    }
    memmove(block->low + at + 1, block->low + at, (block->count - at) * sizeof(uint16_t));
    block->low[at] = low;
    block->count++;
    return true;
}

/* ---- bytes ---- */

static bool put_hashes(RidHashes *slots, size_t slot_count, RidHashes hashes) {
    size_t at = hashes.b & (slot_count - 1);
    while (slots[at].a != 0) {
        if (slots[at].a == hashes.a && slots[at].b == hashes.b)
            return false;
        at = (at + 1) & (slot_count - 1);
    }
    slots[at] = hashes;
    return true;
}

static bool add_bytes(RidSet *set, RecordId rid) {
    if (must_grow(set->hash_count, set->hash_slots)) {
        size_t slots = set->hash_slots == 0 ? SLOTS_FIRST : set->hash_slots * 2;
        RidHashes *hashes = xcalloc(slots, sizeof(*hashes));
        for (size_t i = 0; i < set->hash_slots; i++)
            if (set->hashes[i].a != 0)
                put_hashes(hashes, slots, set->hashes[i]);
        xfree(set->hashes);
        set->bytes += (slots - set->hash_slots) * sizeof(*hashes);
        set->hashes = hashes;
        set->hash_slots = slots;
    }
    uint64_t a = hash_bytes(rid.str, rid.str_size);
    uint64_t b = hash_bytes(rid.str, rid.str_size / 2) ^ (a * 0x9E3779B97F4A7C15u) ^ rid.str_size;
    bool is_new = put_hashes(set->hashes, set->hash_slots, (RidHashes){a | 1, b});
    set->hash_count += is_new;
    return is_new;
}

ErrCode rid_set_add(RidSet *set, RecordId rid, bool *ret_is_new, Error *err) {
    *ret_is_new = rid.str == NULL ? add_number(set, rid.num) : add_bytes(set, rid);
    size_t bytes_max = set->bytes_max != 0 ? set->bytes_max : RID_SET_BYTES_MAX;
    if (UNLIKELY(set->bytes > bytes_max))
        return error_set(err, ERR_EXCEEDED_MEMORY_LIMIT,
                         "the ids of the documents found so far take more than %zu bytes",
                         bytes_max);
    return ERR_OK;
}

void rid_set_done(RidSet *set) {
    for (size_t i = 0; i < set->block_slots; i++)
        if (set->blocks[i].count != 0)
            xfree(set->blocks[i].low);
    xfree(set->blocks);
    xfree(set->hashes);
    *set = (RidSet){0};
}
