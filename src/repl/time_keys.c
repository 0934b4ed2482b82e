#include "repl/time_keys.h"

#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "base/prng.h"
#include "catalog/access.h"
#include "cluster_time/key_ring.h"
#include "query/write/modify.h"
#include "repl/repl_internal.h"
#include "repl/repl_thread.h"
#include "storage/engine.h"

enum {
    KEYS_MAX = 4096,                   /* the newest ones; a rotation takes days */
    ROUND_GAP_US = 200 * 1000,         /* between two reads of the table, whoever asks */
    RETRY_US = 500 * 1000,             /* while keys are missing */
    ROUND_US_MAX = 60 * 1000 * 1000,   /* the table is read at least so often */
    COMMIT_WAIT_US = 10 * 1000 * 1000, /* for a majority to have new keys */
    FIND_WAIT_US = 5 * 1000 * 1000,    /* for a key that somebody else knows */
    FIND_STEP_US = 20 * 1000,
    CLUSTER_READ_US_MAX = 2 * 1000 * 1000, /* for the config server to answer */
    CLUSTER_RETRY_US = 2 * 1000 * 1000,
};

static const Ns KEYS_NS = {
    .size = sizeof("admin.system.keys") - 1, .db_size = 5, .text = "admin.system.keys"};

struct TimeKeys {
    Repl *repl;
    ReplThread thread;
    KeyRing ring;
    /* Atomic: facts of their own, seeing an older one costs a round of the thread at most. */
    _Atomic int64_t signing_id; /* of the key that signed last; 0: none */
    _Atomic bool is_cut_off;    /* the cluster's keys could not be read when tried last */
};

static void keys_run(void *keys);

TimeKeys *time_keys_new(Repl *repl) {
    TimeKeys *keys = NEW(TimeKeys);
    keys->repl = repl;
    key_ring_init(&keys->ring);
    repl_thread_init(&keys->thread);
    return keys;
}

ErrCode time_keys_start(TimeKeys *keys, Error *err) {
    return repl_thread_start(&keys->thread, keys->repl, "TimeKeys", keys_run, keys, err);
}

void time_keys_stop(TimeKeys *keys) {
    repl_thread_stop(&keys->thread);
}

void time_keys_free(TimeKeys *keys) {
    if (keys == NULL)
        return;
    repl_thread_done(&keys->thread);
    key_ring_done(&keys->ring);
    xfree(keys);
}

void time_keys_kick(TimeKeys *keys) {
    round_thread_wake(&keys->thread.rounds);
}

/* ---- signing and verifying ---- */

void time_keys_sign(TimeKeys *keys, uint64_t ts, TimeProof *ret_proof) {
    if (LIKELY(key_ring_sign(&keys->ring, ts, ret_proof)))
        return;
    /* The turn of the next key, or of none: there is one more to be made. */
    if (atomic_exchange(&keys->signing_id, ret_proof->key_id) != ret_proof->key_id ||
        ret_proof->key_id == 0)
        round_thread_wake(&keys->thread.rounds);
}

/* Is that a member who will see keys much later than others? */
static bool is_far_behind(const Repl *repl) {
    return !repl_is_readable(repl) || atomic_load(&repl->delay_ms) > 0;
}

/* Ids begin with the second their key was made in. */
static bool is_made_after_all_entries(const Repl *repl, int64_t key_id) {
    return !repl_is_writable(repl) &&
           (uint64_t)key_id >> 32 >= ts_seconds(oplog_applied(repl->oplog).ts);
}

/* Asks the thread to read the keys until the one is there, for a while. */
static ErrCode verify_soon(TimeKeys *keys, OpCtx *op, uint64_t ts, int64_t key_id,
                           const uint8_t hash[TIME_HASH_BYTES], bool *ret_is_known, Error *err) {
    int64_t until_us = clock_mono_us() + FIND_WAIT_US;
    for (;;) {
        TRY(key_ring_verify(&keys->ring, ts, key_id, hash, ret_is_known, err));
        if (*ret_is_known || is_far_behind(keys->repl) || atomic_load(&keys->is_cut_off) ||
            clock_mono_us() >= until_us)
            return ERR_OK;
        time_keys_kick(keys);
        TRY(op_sleep_us(op, FIND_STEP_US, err));
    }
}

ErrCode time_keys_verify(TimeKeys *keys, OpCtx *op, uint64_t ts, int64_t key_id,
                         const uint8_t hash[TIME_HASH_BYTES], bool *ret_is_proven, Error *err) {
    TRY(verify_soon(keys, op, ts, key_id, hash, ret_is_proven, err));
    bool is_excused = is_far_behind(keys->repl) || atomic_load(&keys->is_cut_off) ||
                      is_made_after_all_entries(keys->repl, key_id);
    return *ret_is_proven || is_excused ? ERR_OK : key_ring_refuse(ts, key_id, err);
}

/* ---- reading the keys ---- */

static ErrCode add_key(void *arg, Doc doc, bool *is_over, Error *err) {
    (void)err;
    KeyList *list = arg;
    key_list_add_doc(list, doc);
    *is_over = list->count == KEYS_MAX;
    return ERR_OK;
}

/* The table as `source` shows it, newest first. */
static ErrCode scan_as(OpCtx *op, ReadSource source, KeyList *list, Error *err) {
    if (source != READ_LATEST)
        ru_set_read_source(op->ru, source, 0);
    ErrCode rc = access_each(op, &KEYS_NS, /* is_forward= */ false, add_key, list, err);
    if (source != READ_LATEST)
        ru_set_read_source(op->ru, READ_LATEST, 0);
    return rc;
}

/* Marks those that are in `committed`; true when all of them are. */
static bool mark_committed(KeyList *list, const TimeKey *committed, size_t count) {
    bool is_all = true;
    for (size_t i = 0; i < list->count; i++) {
        TimeKey *key = &list->rows[i];
        for (size_t j = 0; j < count && !key->is_committed; j++)
            key->is_committed = committed[j].is_committed && time_key_is_same(key, &committed[j]);
        is_all &= key->is_committed;
    }
    return is_all;
}

static ErrCode add_cluster_key(void *arg, Doc doc, Error *err) {
    KeyList *list = arg;
    size_t before = list->count;
    bool is_full;
    if (before < KEYS_MAX)
        TRY(add_key(list, doc, &is_full, err));
    if (list->count > before)
        list->rows[before].is_committed = list->rows[before].is_of_cluster = true;
    return ERR_OK;
}

/* The keys of the cluster; what is known of them if they cannot be read now. */
static ErrCode read_cluster(TimeKeys *keys, OpCtx *op, KeyList *list, bool *ret_is_in_cluster,
                            Error *err) {
    const Repl *repl = keys->repl;
    *ret_is_in_cluster = false;
    if (repl->hooks.read_cluster_keys == NULL)
        return ERR_OK;
    op->deadline_us = clock_mono_us() + CLUSTER_READ_US_MAX;
    ErrCode rc = repl->hooks.read_cluster_keys(repl->service, op, add_cluster_key, list,
                                               ret_is_in_cluster, err);
    op->deadline_us = INT64_MAX;
    if (rc == ERR_OK)
        return ERR_OK;
    list->count = 0;
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&keys->ring.mu);
    const KeyList *known = &keys->ring.keys;
    for (size_t i = 0; i < known->count; i++)
        if (known->rows[i].is_of_cluster)
            key_list_add(list, &known->rows[i]);
    return rc;
}

/* Of the set's own: those, and which of them a majority has. */
static ErrCode read_own(TimeKeys *keys, OpCtx *op, KeyList *all, Error *err) {
    TRY(scan_as(op, READ_LATEST, all, err));
    mutex_lock(&keys->ring.mu);
    bool is_all_committed = mark_committed(all, keys->ring.keys.rows, keys->ring.keys.count);
    mutex_unlock(&keys->ring.mu);
    if (is_all_committed || storage_majority_ts(keys->repl->engine) == 0)
        return ERR_OK;
    CLEANUP(key_list_done) KeyList committed = {0};
    TRY(scan_as(op, READ_MAJORITY, &committed, err));
    for (size_t i = 0; i < committed.count; i++)
        committed.rows[i].is_committed = true;
    (void)mark_committed(all, committed.rows, committed.count);
    return ERR_OK;
}

/* Reads the keys, and puts them in the place of the old list; also when those of the cluster could
 * not be read, which is the error then. */
static ErrCode refresh(TimeKeys *keys, OpCtx *op, Error *err) {
    CLEANUP(key_list_done) KeyList all = {0};
    TRY(read_own(keys, op, &all, err));
    CLEANUP(key_list_done) KeyList of_cluster = {0};
    bool is_in_cluster;
    ErrCode rc = read_cluster(keys, op, &of_cluster, &is_in_cluster, err);
    for (size_t i = 0; i < of_cluster.count; i++)
        key_list_add(&all, &of_cluster.rows[i]);
    atomic_store(&keys->is_cut_off, is_in_cluster && rc != ERR_OK);
    (void)key_ring_replace(&keys->ring, &all, is_in_cluster);
    return rc;
}

/* ---- making keys ---- */

static Doc new_key(OpCtx *op, uint64_t now_ts, uint64_t expires_ts) {
    /* Unique without looking: two primaries of different terms must not give one id to two keys,
     * for a member may have seen the one that is rolled back. */
    uint32_t chance;
    uint8_t bytes[TIME_KEY_BYTES];
    secure_random(&chance, sizeof(chance));
    secure_random(bytes, sizeof(bytes));
    DocBuilder b = doc_builder_in_arena(&op->arena);
    build_i64(&b, "_id", (int64_t)((uint64_t)ts_seconds(now_ts) << 32 | chance | 1));
    build_cstr(&b, "purpose", "HMAC");
    build_binary(&b, "key", 0, bytes, sizeof(bytes));
    build_timestamp(&b, "expiresAt", expires_ts);
    return doc_builder_end(&b);
}

static void note_insert_error(void *arg, uint32_t index, const Error *cause) {
    (void)index;
    (void)error_set(arg, cause->code, "%s", error_message(cause));
}

/* As primary: writes what is missing and waits until a majority has it. */
static ErrCode make_missing(TimeKeys *keys, OpCtx *op, Error *err) {
    Repl *repl = keys->repl;
    uint64_t now_ts = oplog_cluster_time(repl->oplog);
    int64_t interval_secs = repl->hooks.tuning(repl->service).key_rotation_secs;
    KeyRing *ring = &keys->ring;
    mutex_lock(&ring->mu);
    TimeKeyPlan plan = time_key_plan(ring->keys.rows, ring->keys.count, now_ts, interval_secs);
    bool is_in_cluster = ring->is_of_cluster;
    mutex_unlock(&ring->mu);
    if (plan.count == 0 || is_in_cluster) /* the config server makes them for all */
        return ERR_OK;
    Doc docs[TIME_KEYS_AHEAD];
    for (uint32_t i = 0; i < plan.count; i++)
        docs[i] = new_key(op, now_ts, plan.expires_ts[i]);
    int64_t inserted = 0;
    op->last_optime = OPTIME_NONE;
    TRY(exec_insert(op, &KEYS_NS, docs, plan.count, /* is_ordered= */ true,
                    /* is_validation_bypassed= */ true, note_insert_error, err, &inserted, err));
    if (inserted < plan.count)
        return err->code;
    failpoint_hit(FP_TIME_KEYS_WRITTEN);
    ReplWriteConcern majority = {.kind = REPL_W_MAJORITY};
    TRY(repl_wait_write_concern(repl, op, &majority, /* is_journaled= */ true, op->last_optime,
                                clock_mono_us() + COMMIT_WAIT_US, err));
    LOG_INFO(LOG_REPL, 7300270, "New keys to sign cluster times with", LOG_I64("count", inserted));
    return refresh(keys, op, err);
}

/* ---- the thread ---- */

static int64_t next_round_us(TimeKeys *keys, bool is_good) {
    Repl *repl = keys->repl;
    int64_t now_us = clock_mono_us();
    if (!repl_is_readable(repl))
        return now_us + ROUND_US_MAX; /* a change of state kicks */
    KeyRing *ring = &keys->ring;
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&ring->mu);
    int64_t due_secs =
        time_key_plan_due_secs(ring->keys.rows, ring->keys.count, oplog_cluster_time(repl->oplog));
    for (size_t i = 0; i < ring->keys.count; i++)
        is_good &= ring->keys.rows[i].is_committed || ring->is_of_cluster;
    if (!is_good || due_secs == 0)
        return now_us + (ring->is_of_cluster ? CLUSTER_RETRY_US : RETRY_US);
    return due_secs < ROUND_US_MAX / 1000000 ? now_us + due_secs * 1000000 : now_us + ROUND_US_MAX;
}

/* A round that is asked for comes a while after the last one: the kicks of that while are one. */
static bool wait_for_round(TimeKeys *keys, int64_t last_us, int64_t due_us) {
    bool is_going_on = round_thread_wait(&keys->thread.rounds, due_us);
    while (is_going_on && clock_mono_us() < last_us + ROUND_GAP_US)
        is_going_on = round_thread_wait(&keys->thread.rounds, last_us + ROUND_GAP_US);
    return is_going_on;
}

static bool run_round(TimeKeys *keys) {
    Repl *repl = keys->repl;
    if (!repl_is_readable(repl) || !oplog_exists(repl->oplog))
        return true;
    CLEANUP(error_reset) Error err = {0};
    ErrCode rc = refresh(keys, keys->thread.op, &err);
    if (rc == ERR_OK && repl_is_writable(repl))
        rc = make_missing(keys, keys->thread.op, &err);
    if (rc != ERR_OK)
        LOG_DEBUG(LOG_REPL, 7300271, "The keys of cluster times will be looked at again",
                  LOG_STR("error", error_message(&err)));
    return rc == ERR_OK;
}

static void keys_run(void *arg) {
    TimeKeys *keys = arg;
    log_set_thread_name("TimeKeys");
    keys->thread.op->mode.is_unreplicated = false; /* writes as any client of the primary */
    int64_t last_us = 0, due_us = 0;
    while (wait_for_round(keys, last_us, due_us)) {
        bool is_good = run_round(keys);
        arena_reset(&keys->thread.op->arena);
        last_us = clock_mono_us();
        due_us = next_round_us(keys, is_good);
    }
}
