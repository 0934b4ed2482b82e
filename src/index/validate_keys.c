/* validate_keys.c - keys that records have against keys that indexes have. */
#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "index/validate_internal.h"

static Suspect *find_or_add(Validation *v, IndexCheck *check, uint64_t hash, IndexKey key,
                            RecordId rid);

static uint64_t hash_of(Str key, RecordId rid) {
    uint64_t hash = hash_bytes(key.data, key.size);
    uint64_t rid_hash =
        rid.str != NULL ? hash_bytes(rid.str, rid.str_size) : hash_bytes(&rid.num, sizeof(rid.num));
    return hash * 0x9E3779B97F4A7C15u ^ rid_hash;
}

/* Buckets are all over the place: waiting for one key's would cost more than all the rest of it. */
static void count_last(IndexCheck *check) {
    if (check->next_bucket != NULL)
        *check->next_bucket += check->next_delta;
    check->next_bucket = NULL;
}

void validate_count_key(Validation *v, IndexCheck *check, IndexKey key, RecordId rid, int delta) {
    uint64_t hash = hash_of(key.key, rid);
    int32_t *bucket = &check->buckets[hash >> 48];
    if (!v->is_second_pass) {
        __builtin_prefetch(bucket, /* for writing= */ 1);
        count_last(check);
        check->next_bucket = bucket;
        check->next_delta = delta;
        return;
    }
    if (*bucket == 0)
        return;
    Suspect *suspect = find_or_add(v, check, hash, key, rid);
    if (suspect != NULL)
        suspect->balance += delta;
}

static bool is_same(const Suspect *suspect, uint64_t hash, Str key, RecordId rid) {
    return suspect->hash == hash && str_equal(suspect->key.key, key) &&
           record_id_compare(suspect->rid, rid) == 0;
}

static void grow(IndexCheck *check) {
    size_t slot_count = check->slot_count == 0 ? 1024 : check->slot_count * 2;
    Suspect **slots = xcalloc(slot_count, sizeof(*slots));
    for (size_t i = 0; i < check->slot_count; i++) {
        if (check->suspects[i] == NULL)
            continue;
        size_t at = check->suspects[i]->hash & (slot_count - 1);
        while (slots[at] != NULL)
            at = (at + 1) & (slot_count - 1);
        slots[at] = check->suspects[i];
    }
    xfree(check->suspects);
    check->suspects = slots;
    check->slot_count = slot_count;
}

static Suspect *find_or_add(Validation *v, IndexCheck *check, uint64_t hash, IndexKey key,
                            RecordId rid) {
    if (check->suspect_count * 2 >= check->slot_count)
        grow(check);
    size_t at = hash & (check->slot_count - 1);
    for (; check->suspects[at] != NULL; at = (at + 1) & (check->slot_count - 1))
        if (is_same(check->suspects[at], hash, key.key, rid))
            return check->suspects[at];
    if (arena_used(&v->arena) > VALIDATE_SUSPECT_BYTES_MAX) {
        v->is_cut_off = true;
        return NULL;
    }
    Suspect *suspect = ARENA_NEW(&v->arena, Suspect);
    *suspect = (Suspect){.hash = hash, .rid = rid};
    suspect->key.key = (Str){arena_memdup(&v->arena, key.key.data, key.key.size), key.key.size};
    suspect->key.type_bits =
        (Str){arena_memdup(&v->arena, key.type_bits.data, key.type_bits.size), key.type_bits.size};
    if (rid.str != NULL)
        suspect->rid.str = arena_memdup(&v->arena, rid.str, rid.str_size);
    check->suspects[at] = suspect;
    check->suspect_count++;
    return suspect;
}

bool validate_has_uneven_bucket(IndexCheck *check) {
    count_last(check);
    for (size_t i = 0; i < VALIDATE_BUCKETS; i++)
        if (check->buckets[i] != 0)
            return true;
    return false;
}

void validate_count_suspects(const IndexCheck *check, int64_t *ret_missing, int64_t *ret_extra) {
    *ret_missing = *ret_extra = 0;
    for (size_t i = 0; i < check->slot_count; i++) {
        const Suspect *suspect = check->suspects[i];
        if (suspect == NULL || suspect->is_mended)
            continue;
        *ret_missing += suspect->balance > 0;
        *ret_extra += suspect->balance < 0;
    }
}
