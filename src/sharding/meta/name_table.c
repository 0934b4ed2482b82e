#include "sharding/meta/name_table.h"

#include "base/alloc.h"
#include "base/hash.h"

enum {
    SLOTS_MIN = 16,
};

static uint32_t *find_slot(const NameTable *names, Str name);
static void grow_slots(NameTable *names);

void name_table_done(NameTable *names) {
    for (uint32_t i = 0; i < names->count; i++)
        xfree((char *)names->rows[i].data);
    xfree(names->rows);
    xfree(names->slots);
    *names = (NameTable){0};
}

void name_table_copy(NameTable *to, const NameTable *from) {
    *to = (NameTable){0};
    for (uint32_t i = 0; i < from->count; i++)
        name_table_add(to, from->rows[i]);
}

bool name_table_find(const NameTable *names, Str name, uint32_t *ret_number) {
    if (names->count == 0)
        return false;
    uint32_t slot = *find_slot(names, name);
    if (slot == 0)
        return false;
    *ret_number = slot - 1;
    return true;
}

uint32_t name_table_add(NameTable *names, Str name) {
    if (names->count * 2 >= names->slot_count)
        grow_slots(names);
    uint32_t *slot = find_slot(names, name);
    if (*slot == 0) {
        ARRAY_RESERVE(names->rows, names->count, names->capacity);
        names->rows[names->count++] = (Str){xstrndup(name.data, name.size), name.size};
        *slot = names->count;
    }
    return *slot - 1;
}

/* Where the name is, or would be. */
static uint32_t *find_slot(const NameTable *names, Str name) {
    uint32_t mask = names->slot_count - 1;
    uint32_t at = (uint32_t)hash_bytes(name.data, name.size) & mask;
    while (names->slots[at] != 0 && !str_equal(names->rows[names->slots[at] - 1], name))
        at = (at + 1) & mask;
    return &names->slots[at];
}

static void grow_slots(NameTable *names) {
    names->slot_count = names->slot_count == 0 ? SLOTS_MIN : names->slot_count * 2;
    xfree(names->slots);
    names->slots = xcalloc(names->slot_count, sizeof(*names->slots));
    for (uint32_t i = 0; i < names->count; i++)
        *find_slot(names, names->rows[i]) = i + 1;
}
