/*
 * purger.c - the thread that removes expired images.
 *
 *     unknown --choose_start--> counting --measure--> measured
 *        ^                                                |
 *        +------------- preimage_purger_forget -----------+
 *
 * unknown:  nothing is counted.
 * counting: images of writes after `from_ts` are counted as they are committed; those up to it are
 *           still to be read.
 * measured: both are known. Only now is anything removed.
 */
#include "preimages/purger.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/round_thread.h"
#include "catalog/access.h"
#include "preimages/preimage_store.h"
#include "preimages/purge_markers.h"
#include "storage/engine.h"
#include "storage/global_lock.h"
#include "storage/unit_of_work.h"

enum {
    SCAN_YIELD_RECORDS = 10000,
};

typedef enum PurgeState { PURGE_UNKNOWN, PURGE_COUNTING, PURGE_MEASURED } PurgeState;

struct PreimagePurger {
    ServiceCtx *service;
    PurgeHooks hooks;
    RoundThread rounds;
    OpCtx *op; /* of the thread; killed by preimage_purger_stop */

    Mutex mu;
    /* Guarded by mu. */
    PurgeState state;
    uint64_t generation; /* counts calls of preimage_purger_forget */
    uint64_t from_ts;
    Uuid images; /* the collection that was measured */
    PurgeMarkers markers;
    PurgeStats stats;
};

static void purger_run(void *arg);
static void run_pass(PreimagePurger *purger);

PreimagePurger *preimage_purger_new(ServiceCtx *service, const PurgeHooks *hooks) {
    PreimagePurger *purger = NEW(PreimagePurger);
    purger->service = service;
    purger->hooks = *hooks;
    mutex_init(&purger->mu, LOCK_RANK_LEAF);
    round_thread_init(&purger->rounds);
    return purger;
}

ErrCode preimage_purger_start(PreimagePurger *purger, Error *err) {
    purger->op = op_ctx_new(purger->service->ops, NULL, NULL);
    purger->op->service = purger->service;
    op_attach_storage(purger->op, purger->service->storage);
    /* For life: what it removes is not replicated, and has no timestamp. */
    purger->op->mode.is_unreplicated = true;
    return round_thread_start(&purger->rounds, "PreImagePurger", purger_run, purger, err);
}

void preimage_purger_stop(PreimagePurger *purger) {
    if (purger == NULL || !round_thread_is_started(&purger->rounds))
        return;
    round_thread_begin_stop(&purger->rounds);
    op_kill(purger->op, ERR_INTERRUPTED_AT_SHUTDOWN);
    round_thread_stop(&purger->rounds);
}

void preimage_purger_free(PreimagePurger *purger) {
    if (purger == NULL)
        return;
    preimage_purger_stop(purger);
    op_ctx_free(purger->op);
    purge_markers_clear(&purger->markers);
    round_thread_done(&purger->rounds);
    mutex_done(&purger->mu);
    xfree(purger);
}

void preimage_purger_wake(PreimagePurger *purger) {
    if (purger != NULL)
        round_thread_wake(&purger->rounds);
}

PurgeStats preimage_purger_stats(const PreimagePurger *purger) {
    if (purger == NULL)
        return (PurgeStats){0};
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&((PreimagePurger *)purger)->mu);
    return purger->stats;
}

void preimage_purger_note(PreimagePurger *purger, const Uuid *collection, uint64_t ts,
                          int64_t wall_ms, int64_t bytes) {
    if (purger == NULL)
        return;
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&purger->mu);
    if (purger->state != PURGE_UNKNOWN && ts > purger->from_ts)
        purge_markers_add(&purger->markers, collection, ts, wall_ms, 1, bytes);
}

void preimage_purger_forget(PreimagePurger *purger) {
    if (purger == NULL)
        return;
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&purger->mu);
    purger->state = PURGE_UNKNOWN;
    purger->generation++;
    purge_markers_clear(&purger->markers);
}

static void purger_run(void *arg) {
    PreimagePurger *purger = arg;
    log_set_thread_name("PreImagePurger");
    int64_t last_us = clock_mono_us();
    while (!round_thread_is_stopping(&purger->rounds)) {
        int64_t due_us = last_us + purger->hooks.sleep_s(purger->service) * 1000000;
        if (clock_mono_us() < due_us) {
            (void)round_thread_wait(&purger->rounds, due_us);
            continue; /* a change of the time to sleep is what wakes it */
        }
        run_pass(purger);
        last_us = clock_mono_us();
    }
}

/* ---- measuring ---- */

/* From which time on images are counted as they come. Read under the mutex: a write with a later
 * timestamp gets it after this, and is noted after its commit, so it finds the state changed. */
static uint64_t choose_start(PreimagePurger *purger) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&purger->mu);
    if (purger->state == PURGE_UNKNOWN) {
        purger->from_ts = purger->hooks.newest_ts(purger->service);
        purger->state = PURGE_COUNTING;
    }
    return purger->from_ts;
}

static void count_image(Doc image, uint64_t until_ts, PurgeMarkers *found) {
    Elem id = doc_get_lit(image, "_id");
    Elem wall = doc_get_lit(image, "operationTime");
    if (elem_type(id) != BT_DOC)
        return;
    Elem ts = doc_get_lit(elem_doc(id), "ts");
    Uuid collection;
    if (elem_type(ts) != BT_TIMESTAMP || elem_type(wall) != BT_DATE ||
        !uuid_from_elem(doc_get_lit(elem_doc(id), "nsUUID"), &collection))
        return; /* not one of ours */
    if ((uint64_t)elem_i64(ts) <= until_ts)
        purge_markers_add(found, &collection, (uint64_t)elem_i64(ts), elem_i64(wall), 1,
                          doc_size(image));
}

static ErrCode scan(OpCtx *op, CollAccess *access, uint64_t until_ts, PurgeMarkers *found,
                    Error *err) {
    CLEANUP(record_cursor_done) RecordCursor cursor = {0};
    TRY(record_cursor_open(op, access->coll->records, /* is_forward= */ true, &cursor, err));
    for (uint64_t n = 1;; n++) {
        bool is_found;
        RecordId rid;
        Str data;
        TRY(record_cursor_next(&cursor, &is_found, &rid, &data, err));
        if (!is_found)
            return ERR_OK;
        count_image((Doc){(const uint8_t *)data.data}, until_ts, found);
        TRY(op_check_interrupt(op, err));
        if (n % SCAN_YIELD_RECORDS != 0)
            continue;
        bool is_kept;
        record_cursor_save(&cursor);
        TRY(access_yield(access, err));
        TRY(record_cursor_restore(&cursor, op, &is_kept, err));
    }
}

static ErrCode measure(PreimagePurger *purger, const PurgeRules *rules, Error *err) {
    mutex_lock(&purger->mu);
    uint64_t generation = purger->generation;
    bool is_measured = purger->state == PURGE_MEASURED;
    mutex_unlock(&purger->mu);
    if (is_measured)
        return ERR_OK;
    uint64_t from_ts = choose_start(purger);
    if (rules->complete_ts < from_ts)
        return ERR_OK; /* writes of that time are under way: at the next pass */
    PurgeMarkers found = {0};
    CLEANUP(access_done) CollAccess access = {0};
    ErrCode rc = access_read(purger->op, &PREIMAGES_NS, &access, err);
    if (rc == ERR_OK && access.coll == NULL)
        return ERR_OK; /* nothing to remove, as long as there is none */
    Uuid images = rc == ERR_OK ? access.coll->uuid : (Uuid){{0}};
    if (rc == ERR_OK)
        rc = scan(purger->op, &access, from_ts, &found, err);
    mutex_lock(&purger->mu);
    if (rc == ERR_OK && purger->generation == generation) {
        purger->images = images;
        purge_markers_put_before(&purger->markers, &found);
        purger->state = PURGE_MEASURED;
    }
    mutex_unlock(&purger->mu);
    purge_markers_clear(&found);
    return rc;
}

/* ---- removing ---- */

typedef struct PurgeArgs {
    const Collection *images;
    const Uuid *collection;
    const PurgeMarker *marker;
} PurgeArgs;

/* From the first possible image of the collection, so that none is left between two stretches. A
 * transaction of its own that is not rolled back once the truncation has succeeded. */
static ErrCode truncate_stretch(void *arg, OpCtx *op, Error *err) {
    const PurgeArgs *args = arg;
    KeyBuilder low, high;
    key_builder_init(&low);
    key_builder_init(&high);
    RecordId first, last;
    preimage_record_id(args->collection, 0, 0, &op->arena, &low, &first);
    preimage_record_id(args->collection, args->marker->last_ts, INT64_MAX, &op->arena, &high,
                       &last);
    ErrCode rc = record_store_truncate_range(op, args->images->records, first, last,
                                             args->marker->records, args->marker->bytes, err);
    key_builder_done(&low);
    key_builder_done(&high);
    return rc;
}

static bool find_due(PreimagePurger *purger, const PurgeLimits *limits, Uuid *ret_collection,
                     PurgeMarker *ret_marker) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&purger->mu);
    return purger->state == PURGE_MEASURED &&
           purge_markers_find_due(&purger->markers, limits, ret_collection, ret_marker);
}

/* Not one that was created since, after a drop: what is known is not of it. */
static bool is_measured_one(PreimagePurger *purger, const Collection *coll) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&purger->mu);
    return coll != NULL && uuid_equal(&coll->uuid, &purger->images);
}

static ErrCode remove_one(PreimagePurger *purger, const Uuid *collection, const PurgeMarker *marker,
                          Error *err) {
    CLEANUP(access_done) CollAccess access = {0};
    TRY(access_write(purger->op, &PREIMAGES_NS, LOCK_IX, &access, err));
    if (!is_measured_one(purger, access.coll)) {
        preimage_purger_forget(purger);
        return ERR_OK;
    }
    PurgeArgs args = {access.coll, collection, marker};
    TRY(op_write_with_retry(purger->op, truncate_stretch, &args, err));
    /* Only after the commit: after a failed attempt the stretch is still due. */
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&purger->mu);
    purge_markers_drop(&purger->markers, collection, marker);
    purger->stats.docs_deleted += marker->records;
    purger->stats.bytes_deleted += marker->bytes;
    if (marker->last_wall_ms > purger->stats.start_wall_ms_max)
        purger->stats.start_wall_ms_max = marker->last_wall_ms;
    return ERR_OK;
}

static ErrCode purge(PreimagePurger *purger, Error *err) {
    PurgeRules rules = {0};
    TRY(purger->hooks.read_rules(purger->op, &rules, err));
    if (!rules.is_enabled)
        return ERR_OK;
    TRY(measure(purger, &rules, err));
    PurgeLimits limits = {
        .before_ts = rules.oldest_oplog_ts,
        .before_wall_ms =
            rules.expire_after_s >= 0 ? clock_wall_ms() - rules.expire_after_s * 1000 : INT64_MIN,
        .until_ts = rules.stable_ts,
    };
    mutex_lock(&purger->mu);
    purger->stats.scanned_collections += purger->markers.count;
    mutex_unlock(&purger->mu);
    Uuid collection;
    PurgeMarker marker;
    while (find_due(purger, &limits, &collection, &marker)) {
        TRY(op_check_interrupt_slow(purger->op, err));
        TRY(remove_one(purger, &collection, &marker, err));
    }
    return ERR_OK;
}

static void run_pass(PreimagePurger *purger) {
    CLEANUP(error_reset) Error err = {0};
    int64_t start_us = clock_mono_us();
    op_begin(purger->op, &(OpDescription){.op_type = "none", .ns = "", .desc = "PreImagePurger"});
    purger->op->admission_priority = ADMISSION_LOW;
    /* A kill before op_begin would be forgotten. */
    ErrCode rc = round_thread_is_stopping(&purger->rounds) ? ERR_OK : purge(purger, &err);
    op_end(purger->op);
    if (rc != ERR_OK && !round_thread_is_stopping(&purger->rounds))
        LOG_WARN(LOG_STORAGE, 7278501, "Could not remove expired pre-images",
                 LOG_STR("error", error_message(&err)));
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&purger->mu);
    purger->stats.passes++;
    purger->stats.elapsed_ms += (clock_mono_us() - start_us) / 1000;
}
