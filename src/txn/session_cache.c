#include "txn/session_cache.h"

#include <stdatomic.h>

#include "base/alloc.h"
#include "base/thread.h"

enum {
    /* Every command of every connection comes through here; one mutex would be a bottleneck. */
    SHARDS = 16,          /* a power of two */
    BUCKETS_INITIAL = 64, /* of one shard; likewise */
};

typedef struct CacheEntry {
    SessionId id;
    int64_t last_use_ms;
    bool is_new; /* used since the last take */
    bool is_ended;
    struct CacheEntry *next;
} CacheEntry;

typedef struct CacheShard {
    Mutex mu;
    /* Guarded by mu. */
    CacheEntry **buckets;
    size_t bucket_count;
    size_t count;
} CacheShard;

struct SessionCache {
    CacheShard shards[SHARDS];
    _Atomic int64_t count; /* of all shards; concurrent adds may exceed the limit slightly */
};

SessionCache *session_cache_new(void) {
    SessionCache *cache = NEW(SessionCache);
    for (size_t i = 0; i < SHARDS; i++) {
        CacheShard *shard = &cache->shards[i];
        mutex_init(&shard->mu, LOCK_RANK_SESSION_CACHE);
        shard->bucket_count = BUCKETS_INITIAL;
        shard->buckets = xcalloc(BUCKETS_INITIAL, sizeof(*shard->buckets));
    }
    return cache;
}

void session_cache_free(SessionCache *cache) {
    if (cache == NULL)
        return;
    for (size_t i = 0; i < SHARDS; i++) {
        CacheShard *shard = &cache->shards[i];
        for (size_t b = 0; b < shard->bucket_count; b++) {
            while (shard->buckets[b] != NULL) {
                CacheEntry *entry = shard->buckets[b];
                shard->buckets[b] = entry->next;
                xfree(entry);
            }
        }
        xfree(shard->buckets);
        mutex_done(&shard->mu);
    }
    xfree(cache);
}

/* Upper bits for the shard, lower ones for the bucket: with the same bits all entries of a shard
 * would share few buckets. */
static CacheShard *shard_of(SessionCache *cache, uint64_t hash) {
    return &cache->shards[hash >> 60 & (SHARDS - 1)];
}

static CacheEntry *find_locked(const CacheShard *shard, const SessionId *id, uint64_t hash) {
    CacheEntry *entry = shard->buckets[hash & (shard->bucket_count - 1)];
    while (entry != NULL && !session_id_equal(&entry->id, id))
        entry = entry->next;
    return entry;
}

static void grow_locked(CacheShard *shard) {
    size_t wanted = shard->bucket_count * 2;
    CacheEntry **buckets = xcalloc(wanted, sizeof(*buckets));
    for (size_t b = 0; b < shard->bucket_count; b++) {
        for (CacheEntry *entry = shard->buckets[b], *next; entry != NULL; entry = next) {
            next = entry->next;
            CacheEntry **place = &buckets[session_id_hash(&entry->id) & (wanted - 1)];
            entry->next = *place;
            *place = entry;
        }
    }
    xfree(shard->buckets);
    shard->buckets = buckets;
    shard->bucket_count = wanted;
}

static CacheEntry *add_locked(SessionCache *cache, CacheShard *shard, const SessionId *id,
                              uint64_t hash) {
    if (shard->count >= shard->bucket_count)
        grow_locked(shard);
    CacheEntry *entry = NEW(CacheEntry);
    entry->id = *id;
    CacheEntry **place = &shard->buckets[hash & (shard->bucket_count - 1)];
    entry->next = *place;
    *place = entry;
    shard->count++;
    atomic_fetch_add_explicit(&cache->count, 1, memory_order_relaxed);
    return entry;
}

ErrCode session_cache_use(SessionCache *cache, const SessionId *id, int64_t now_ms,
                          int64_t sessions_max, Error *err) {
    uint64_t hash = session_id_hash(id);
    CacheShard *shard = shard_of(cache, hash);
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&shard->mu);
    CacheEntry *entry = find_locked(shard, id, hash);
    if (UNLIKELY(entry == NULL)) {
        if (session_cache_count(cache) >= sessions_max)
            return error_set(err, ERR_TOO_MANY_LOGICAL_SESSIONS,
                             "Unable to add session into the cache because the number of active "
                             "sessions is too high");
        entry = add_locked(cache, shard, id, hash);
    }
    entry->last_use_ms = now_ms;
    entry->is_new = true;
    entry->is_ended = false;
    return ERR_OK;
}

void session_cache_end(SessionCache *cache, const SessionId *id, int64_t now_ms) {
    uint64_t hash = session_id_hash(id);
    CacheShard *shard = shard_of(cache, hash);
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&shard->mu);
    CacheEntry *entry = find_locked(shard, id, hash);
    if (entry == NULL)
        entry = add_locked(cache, shard, id, hash);
    entry->last_use_ms = now_ms;
    entry->is_ended = true;
}

bool session_cache_is_used(SessionCache *cache, const SessionId *id, int64_t since_ms) {
    uint64_t hash = session_id_hash(id);
    CacheShard *shard = shard_of(cache, hash);
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&shard->mu);
    const CacheEntry *entry = find_locked(shard, id, hash);
    return entry != NULL && !entry->is_ended && entry->last_use_ms >= since_ms;
}

int64_t session_cache_count(const SessionCache *cache) {
    return atomic_load_explicit(&cache->count, memory_order_relaxed);
}

/* ---- carrying it away ---- */

static void note_ended(SessionChanges *changes, const CacheEntry *entry) {
    ARRAY_RESERVE(changes->ended, changes->ended_count, changes->ended_capacity);
    changes->ended[changes->ended_count++] = (CachedSession){entry->id, entry->last_use_ms};
}

static void note_used(SessionChanges *changes, const CacheEntry *entry) {
    ARRAY_RESERVE(changes->used, changes->used_count, changes->used_capacity);
    changes->used[changes->used_count++] = (CachedSession){entry->id, entry->last_use_ms};
}

static void take_shard(SessionCache *cache, CacheShard *shard, int64_t idle_before_ms,
                       SessionChanges *changes) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&shard->mu);
    for (size_t b = 0; b < shard->bucket_count; b++) {
        for (CacheEntry **at = &shard->buckets[b]; *at != NULL;) {
            CacheEntry *entry = *at;
            if (entry->is_ended)
                note_ended(changes, entry);
            else if (entry->is_new)
                note_used(changes, entry);
            entry->is_new = false;
            if (!entry->is_ended && entry->last_use_ms >= idle_before_ms) {
                at = &entry->next;
                continue;
            }
            *at = entry->next;
            xfree(entry);
            shard->count--;
            atomic_fetch_sub_explicit(&cache->count, 1, memory_order_relaxed);
        }
    }
}

void session_cache_take(SessionCache *cache, int64_t idle_before_ms, SessionChanges *ret_changes) {
    *ret_changes = (SessionChanges){0};
    for (size_t i = 0; i < SHARDS; i++)
        take_shard(cache, &cache->shards[i], idle_before_ms, ret_changes);
}

void session_cache_list(SessionCache *cache, SessionChanges *ret_changes) {
    *ret_changes = (SessionChanges){0};
    for (size_t i = 0; i < SHARDS; i++) {
        CacheShard *shard = &cache->shards[i];
        CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&shard->mu);
        for (size_t b = 0; b < shard->bucket_count; b++)
            for (const CacheEntry *entry = shard->buckets[b]; entry != NULL; entry = entry->next)
                if (!entry->is_ended)
                    note_used(ret_changes, entry);
    }
}

static void put_one_back(SessionCache *cache, const CachedSession *session, bool is_ended) {
    uint64_t hash = session_id_hash(&session->id);
    CacheShard *shard = shard_of(cache, hash);
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&shard->mu);
    CacheEntry *entry = find_locked(shard, &session->id, hash);
    if (entry != NULL && is_ended)
        return; /* used again meanwhile, so no longer ended */
    if (entry == NULL) {
        entry = add_locked(cache, shard, &session->id, hash);
        entry->last_use_ms = session->last_use_ms;
        entry->is_ended = is_ended;
    }
    entry->is_new = !is_ended;
}

void session_cache_put_back(SessionCache *cache, const SessionChanges *changes) {
    for (uint32_t i = 0; i < changes->used_count; i++)
        put_one_back(cache, &changes->used[i], /* is_ended= */ false);
    for (uint32_t i = 0; i < changes->ended_count; i++)
        put_one_back(cache, &changes->ended[i], /* is_ended= */ true);
}

void session_changes_done(SessionChanges *changes) {
    xfree(changes->used);
    xfree(changes->ended);
    *changes = (SessionChanges){0};
}
