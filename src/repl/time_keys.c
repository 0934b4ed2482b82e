#include "repl/time_keys.h"

#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "base/prng.h"
#include "catalog/access.h"
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
    TimeProofSlot slot; /* written with mu held */

    Mutex mu;
    /* Guarded by mu. */
    TimeKey *list; /* heap */
    size_t count;
    uint64_t version;   /* of the list: a proof made with an older one is not published */
    int64_t signing_id; /* of the key that signed last; 0: none */
    bool is_in_cluster; /* the config server's keys count */
    bool is_cut_off;    /* they could not be read when that was tried last */
};

static void keys_run(void *keys);

TimeKeys *time_keys_new(Repl *repl) {
    TimeKeys *keys = NEW(TimeKeys);
    keys->repl = repl;
    mutex_init(&keys->mu, LOCK_RANK_TIME_KEYS);
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
    xfree(keys->list);
    repl_thread_done(&keys->thread);
    mutex_done(&keys->mu);
    xfree(keys);
}

void time_keys_kick(TimeKeys *keys) {
    round_thread_wake(&keys->thread.rounds);
}

/* ---- signing and verifying ---- */

/* What the next replies need as well; unless the keys have changed meanwhile. */
static void publish(TimeKeys *keys, const TimeProof *proof, uint64_t version) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&keys->mu);
    if (keys->version == version)
        time_proof_publish(&keys->slot, proof);
}

void time_keys_sign(TimeKeys *keys, uint64_t ts, TimeProof *ret_proof) {
    if (LIKELY(time_proof_try_read(&keys->slot, ret_proof) && ret_proof->block == time_block(ts)))
        return;
    mutex_lock(&keys->mu);
    const TimeKey *found = time_key_choose(keys->list, keys->count, keys->is_in_cluster, ts);
    TimeKey key = found != NULL ? *found : (TimeKey){0};
    uint64_t version = keys->version;
    /* The turn of the next key, or of none: there is one more to be made. */
    if (key.id != keys->signing_id || found == NULL) {
        keys->signing_id = key.id;
        round_thread_wake(&keys->thread.rounds);
    }
    mutex_unlock(&keys->mu);
    *ret_proof = (TimeProof){.block = time_block(ts)};
    if (found != NULL)
        time_proof_make(&key, ts, ret_proof);
    publish(keys, ret_proof, version);
}

static bool find(TimeKeys *keys, int64_t id, TimeKey *ret_key, uint64_t *ret_version) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&keys->mu);
    const TimeKey *found = time_key_find(keys->list, keys->count, id);
    if (found != NULL)
        *ret_key = *found;
    *ret_version = keys->version;
    return found != NULL;
}

static bool is_cut_off(TimeKeys *keys) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&keys->mu);
    return keys->is_cut_off;
}

/* Asks the thread to read the keys until the one is there, for a while. */
static ErrCode find_soon(TimeKeys *keys, OpCtx *op, int64_t id, TimeKey *ret_key,
                         uint64_t *ret_version, bool *ret_found, Error *err) {
    int64_t until_us = clock_mono_us() + FIND_WAIT_US;
    for (;;) {
        *ret_found = find(keys, id, ret_key, ret_version);
        if (*ret_found || is_cut_off(keys) || clock_mono_us() >= until_us)
            return ERR_OK;
        time_keys_kick(keys);
        TRY(op_sleep_us(op, FIND_STEP_US, err));
    }
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

ErrCode time_keys_verify(TimeKeys *keys, OpCtx *op, uint64_t ts, int64_t key_id,
                         const uint8_t hash[TIME_HASH_BYTES], bool *ret_is_proven, Error *err) {
    *ret_is_proven = true;
    TimeProof proof;
    bool is_at_hand = time_proof_try_read(&keys->slot, &proof) && proof.block == time_block(ts) &&
                      proof.key_id == key_id;
    if (!is_at_hand) {
        TimeKey key;
        uint64_t version;
        bool is_found = find(keys, key_id, &key, &version);
        if (!is_found && !is_far_behind(keys->repl))
            TRY(find_soon(keys, op, key_id, &key, &version, &is_found, err));
        if (!is_found && (is_far_behind(keys->repl) || is_cut_off(keys) ||
                          is_made_after_all_entries(keys->repl, key_id))) {
            *ret_is_proven = false;
            return ERR_OK;
        }
        if (!is_found || !time_key_is_good_for(&key, ts))
            return error_set(err, ERR_KEY_NOT_FOUND,
                             "No keys found for HMAC that is valid for time: { ts: Timestamp(%u, "
                             "%u) } with id: %lld",
                             ts_seconds(ts), (uint32_t)ts, (long long)key_id);
        time_proof_make(&key, ts, &proof);
        /* Those that sign may be fewer: this one is not for replies before a majority has it. */
        if (key.is_committed && time_proof_equal(&proof, hash))
            publish(keys, &proof, version);
    }
    if (!time_proof_equal(&proof, hash))
        return error_set(err, ERR_TIME_PROOF_MISMATCH, "Proof does not match the cluster time");
    return ERR_OK;
}

/* ---- reading the keys ---- */

static bool parse_key(Doc doc, TimeKey *ret_key) {
    Elem id = doc_get_lit(doc, "_id"), purpose = doc_get_lit(doc, "purpose");
    Elem bytes = doc_get_lit(doc, "key"), expires = doc_get_lit(doc, "expiresAt");
    if (elem_type(id) != BT_INT64 || elem_type(purpose) != BT_STRING ||
        !str_is(elem_str(purpose), "HMAC") || elem_type(bytes) != BT_BINARY ||
        elem_type(expires) != BT_TIMESTAMP)
        return false;
    uint8_t subtype;
    Str data = elem_binary(bytes, &subtype);
    if (data.size != TIME_KEY_BYTES || elem_i64(id) == 0)
        return false;
    *ret_key = (TimeKey){.id = elem_i64(id), .expires_ts = (uint64_t)elem_i64(expires)};
    memcpy(ret_key->bytes, data.data, TIME_KEY_BYTES);
    return true;
}

typedef struct KeyList {
    TimeKey *rows; /* heap */
    size_t count;
    size_t capacity;
} KeyList;

static void key_list_done(KeyList *list) {
    xfree(list->rows);
}

static ErrCode add_key(void *arg, Doc doc, bool *is_over, Error *err) {
    (void)err;
    KeyList *list = arg;
    ARRAY_RESERVE(list->rows, list->count, list->capacity);
    list->count += parse_key(doc, &list->rows[list->count]);
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

static bool is_same_key(const TimeKey *a, const TimeKey *b) {
    return a->id == b->id && memcmp(a->bytes, b->bytes, sizeof(a->bytes)) == 0;
}

/* Marks those that are in `committed`; true when all of them are. */
static bool mark_committed(KeyList *list, const TimeKey *committed, size_t count) {
    bool is_all = true;
    for (size_t i = 0; i < list->count; i++) {
        TimeKey *key = &list->rows[i];
        for (size_t j = 0; j < count && !key->is_committed; j++)
            key->is_committed = committed[j].is_committed && is_same_key(key, &committed[j]);
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

static void add_known(KeyList *list, const TimeKey *key) {
    ARRAY_RESERVE(list->rows, list->count, list->capacity);
    list->rows[list->count++] = *key;
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
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&keys->mu);
    for (size_t i = 0; i < keys->count; i++)
        if (keys->list[i].is_of_cluster)
            add_known(list, &keys->list[i]);
    return rc;
}

/* Of the set's own: those, and which of them a majority has. */
static ErrCode read_own(TimeKeys *keys, OpCtx *op, KeyList *all, Error *err) {
    TRY(scan_as(op, READ_LATEST, all, err));
    mutex_lock(&keys->mu);
    bool is_all_committed = mark_committed(all, keys->list, keys->count);
    mutex_unlock(&keys->mu);
    if (is_all_committed || storage_majority_ts(keys->repl->engine) == 0)
        return ERR_OK;
    CLEANUP(key_list_done) KeyList committed = {0};
    TRY(scan_as(op, READ_MAJORITY, &committed, err));
    for (size_t i = 0; i < committed.count; i++)
        committed.rows[i].is_committed = true;
    (void)mark_committed(all, committed.rows, committed.count);
    return ERR_OK;
}

static bool is_same_list_locked(const TimeKeys *keys, const KeyList *list) {
    bool is_same = list->count == keys->count;
    for (size_t i = 0; is_same && i < list->count; i++)
        is_same = is_same_key(&list->rows[i], &keys->list[i]) &&
                  list->rows[i].expires_ts == keys->list[i].expires_ts &&
                  list->rows[i].is_committed == keys->list[i].is_committed &&
                  list->rows[i].is_of_cluster == keys->list[i].is_of_cluster;
    return is_same;
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
        add_known(&all, &of_cluster.rows[i]);
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&keys->mu);
    keys->is_cut_off = is_in_cluster && rc != ERR_OK;
    if (is_same_list_locked(keys, &all) && keys->is_in_cluster == is_in_cluster)
        return rc;
    KeyList old = {.rows = keys->list};
    keys->list = all.rows;
    keys->count = all.count;
    all = old;
    keys->is_in_cluster = is_in_cluster;
    keys->version++;
    time_proof_publish(&keys->slot, &(TimeProof){0}); /* to be made anew */
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
    mutex_lock(&keys->mu);
    TimeKeyPlan plan = time_key_plan(keys->list, keys->count, now_ts, interval_secs);
    bool is_in_cluster = keys->is_in_cluster;
    mutex_unlock(&keys->mu);
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
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&keys->mu);
    int64_t due_secs =
        time_key_plan_due_secs(keys->list, keys->count, oplog_cluster_time(repl->oplog));
    for (size_t i = 0; i < keys->count; i++)
        is_good &= keys->list[i].is_committed || keys->is_in_cluster;
    if (!is_good || due_secs == 0)
        return now_us + (keys->is_in_cluster ? CLUSTER_RETRY_US : RETRY_US);
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
