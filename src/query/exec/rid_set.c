#include "query/exec/rid_set.h"

#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"

static RidSlot slot_of(RecordId rid) {
    if (rid.str == NULL)
        return (RidSlot){rid.num, 0};
    uint64_t a = hash_bytes(rid.str, rid.str_size);
    uint64_t b = hash_bytes(rid.str, rid.str_size / 2) ^ (a * 0x9E3779B97F4A7C15u) ^ rid.str_size;
    return (RidSlot){(int64_t)(a | 1), (int64_t)b};
}

static bool put(RidSlot *slots, size_t slot_count, RidSlot slot) {
    size_t at = hash_bytes(&slot, sizeof(slot)) & (slot_count - 1);
    while (slots[at].a != 0) {
        if (slots[at].a == slot.a && slots[at].b == slot.b)
            return false;
        at = (at + 1) & (slot_count - 1);
    }
    slots[at] = slot;
    return true;
}

void rid_set_done(RidSet *set) {
    xfree(set->slots);
    *set = (RidSet){0};
}

bool rid_set_add(RidSet *set, RecordId rid) {
    if (set->count * 2 >= set->slot_count) {
        size_t slot_count = set->slot_count == 0 ? 64 : set->slot_count * 2;
        RidSlot *slots = xcalloc(slot_count, sizeof(RidSlot));
        RidSlot *old = set->slots;
        for (size_t i = 0; i < set->slot_count; i++)
            if (old[i].a != 0)
                put(slots, slot_count, old[i]);
        xfree(set->slots);
        set->slots = slots;
        set->slot_count = slot_count;
    }
    bool is_new = put(set->slots, set->slot_count, slot_of(rid));
    set->count += is_new;
    return is_new;
}
