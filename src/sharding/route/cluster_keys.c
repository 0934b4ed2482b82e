#include "sharding/route/cluster_keys.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "concurrency/op_mutex.h"
#include "sharding/route/remote.h"

enum {
    KEYS_MAX = 4096,
    READ_GAP_US = 1000 * 1000,     /* between two reads, whoever asks */
    READ_US_MAX = 2 * 1000 * 1000, /* for the config server to answer */
};

struct ClusterKeys {
    Cluster *cluster;
    KeyRing ring;
    OpMutex reading;
    /* Atomic: facts of their own. */
    _Atomic int64_t read_us;   /* when they were read last, or that was tried; 0: never */
    _Atomic bool is_cut_off;   /* that failed */
    _Atomic bool has_unsigned; /* there was no key for a time */
};

ClusterKeys *cluster_keys_new(Cluster *cluster) {
    ClusterKeys *keys = NEW(ClusterKeys);
    keys->cluster = cluster;
    key_ring_init(&keys->ring);
    op_mutex_init(&keys->reading);
    return keys;
}

void cluster_keys_free(ClusterKeys *keys) {
    if (keys == NULL)
        return;
    op_mutex_done(&keys->reading);
    key_ring_done(&keys->ring);
    xfree(keys);
}

/* ---- reading ---- */

static ErrCode add_key(void *arg, Doc doc, Error *err) {
    (void)err;
    KeyList *list = arg;
    size_t before = list->count;
    key_list_add_doc(list, doc);
    if (list->count > before) /* read by majority */
        list->rows[before].is_committed = list->rows[before].is_of_cluster = true;
    return ERR_OK;
}

static ErrCode read_keys(ClusterKeys *keys, OpCtx *op, Error *err) {
    CLEANUP(key_list_done) KeyList list = {0};
    ConfigQuery query = {.db = "admin",
                         .coll = "system.keys",
                         .filter = DOC_EMPTY,
                         .sort = DOC_NONE,
                         .count_max = KEYS_MAX};
    TRY(config_each(keys->cluster, op, &query, add_key, &list, err));
    (void)key_ring_replace(&keys->ring, &list, /* is_of_cluster= */ true);
    return ERR_OK;
}

/* One at a time; whoever waited for another one needs none of its own. */
static ErrCode read_once(ClusterKeys *keys, OpCtx *op, Error *err) {
    CLEANUP(op_mutex_unlock) OpMutexLock lock = {0};
    TRY(op_mutex_lock(&keys->reading, op, &lock, err));
    int64_t last_us = atomic_load(&keys->read_us);
    if (last_us != 0 && clock_mono_us() - last_us < READ_GAP_US)
        return ERR_OK;
    int64_t deadline_us = op->deadline_us, until_us = clock_mono_us() + READ_US_MAX;
    op->deadline_us = deadline_us < until_us ? deadline_us : until_us;
    CLEANUP(error_reset) Error failure = {0};
    ErrCode rc = read_keys(keys, op, &failure);
    op->deadline_us = deadline_us;
    atomic_store(&keys->is_cut_off, rc != ERR_OK);
    atomic_store(&keys->has_unsigned, false);
    atomic_store(&keys->read_us, clock_mono_us());
    return op_check_interrupt_slow(op, err);
}

void cluster_keys_try_read(ClusterKeys *keys, OpCtx *op) {
    CLEANUP(error_reset) Error err = {0};
    (void)!read_once(keys, op, &err);
}

bool cluster_keys_are_missing(const ClusterKeys *keys) {
    return atomic_load(&keys->has_unsigned);
}

/* ---- signing and verifying ---- */

bool cluster_keys_sign(ClusterKeys *keys, uint64_t ts, TimeProof *ret_proof) {
    if (LIKELY(key_ring_sign(&keys->ring, ts, ret_proof)) || ret_proof->key_id != 0)
        return true;
    atomic_store(&keys->has_unsigned, true);
    return false;
}

ErrCode cluster_keys_verify(ClusterKeys *keys, OpCtx *op, const SignedTime *time,
                            bool *ret_is_proven, Error *err) {
    TRY(key_ring_verify(&keys->ring, time->ts, time->key_id, time->hash, ret_is_proven, err));
    if (*ret_is_proven)
        return ERR_OK;
    TRY(read_once(keys, op, err));
    TRY(key_ring_verify(&keys->ring, time->ts, time->key_id, time->hash, ret_is_proven, err));
    return *ret_is_proven || atomic_load(&keys->is_cut_off)
               ? ERR_OK
               : key_ring_refuse(time->ts, time->key_id, err);
}
