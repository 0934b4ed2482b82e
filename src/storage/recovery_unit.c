#include "storage/recovery_unit.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "storage/storage_internal.h"
#include "concurrency/lock_manager.h"
#include "storage/unit_of_work.h"

enum {
    SLOW_READ_US = 100 * 1000, /* of a failpoint */
    /* The monitor checks the disk once a second. A bulk load writes hundreds of megabytes in that
     * time, so committers check after this many bytes as well. */
    DISK_CHECK_BYTES = 16 * 1024 * 1024, /* written by us since the monitor last looked */
    /* A small transaction cannot be the cause of cache pressure; it is not worth the statistics
     * cursor that tells. */
    LARGE_TXN_BYTES = 1024 * 1024, /* below it a rollback is never for lack of cache */
};

static ErrCode begin_transaction(RecoveryUnit *ru, Error *err);
static bool has_read_ts(ReadSource source);
static ErrCode resolve_read_ts(RecoveryUnit *ru, uint64_t *ret_ts, Error *err);
static void end_transaction(RecoveryUnit *ru);
static void add_change(RecoveryUnit *ru, RuChange change);
static void finish(RecoveryUnit *ru, bool is_committed);
static void run_rollback_handlers(RecoveryUnit *ru, RuChange *first);
static ErrCode classify_conflict(RecoveryUnit *ru, Error *err);
static int64_t conflict_backoff_us(int attempt);

void op_attach_storage(OpCtx *op, StorageEngine *engine) {
    invariant(op->ru == NULL);
    op->ru = ru_new(engine);
    op->ru->op = op;
    op_keep_part(op, ru_free, op->ru);
}

RecoveryUnit *ru_new(StorageEngine *engine) {
    RecoveryUnit *ru = NEW(RecoveryUnit);
    ru->engine = engine;
    ru->deltas = ru->deltas_inline;
    ru->delta_capacity = RU_SIZE_DELTAS_INLINE;
    key_builder_init(&ru->scratch);
    return ru;
}

StorageEngine *op_storage(const OpCtx *op) {
    return op->ru->engine;
}

void ru_set_read_source(RecoveryUnit *ru, ReadSource source, uint64_t ts) {
    invariant(ru->snapshot_id == 0);
    ru->read_source = source;
    ru->provided_ts = ts;
}

ReadSource ru_read_source(const RecoveryUnit *ru) {
    return ru->read_source;
}

uint64_t ru_provided_ts(const RecoveryUnit *ru) {
    return ru->provided_ts;
}

uint64_t ru_read_ts(const RecoveryUnit *ru) {
    return ru->read_ts;
}

uint64_t ru_complete_ts(const RecoveryUnit *ru) {
    return ru->read_ts != 0 ? ru->read_ts : ru->oplog_visible_ts;
}

ErrCode ru_open_snapshot(RecoveryUnit *ru, Error *err) {
    WT_SESSION *session;
    return ru_session(ru, &session, err);
}

void ru_abandon_snapshot(RecoveryUnit *ru) {
    invariant(ru->depth == 0);
    end_transaction(ru);
}

uint64_t ru_snapshot_id(const RecoveryUnit *ru) {
    return ru->snapshot_id;
}

bool ru_is_in_unit_of_work(const RecoveryUnit *ru) {
    return ru->depth > 0;
}

bool ru_is_doomed(const RecoveryUnit *ru) {
    return ru->is_doomed;
}

/* Once per document written and per read of a secondary: printf costs as much as a key. */
void ru_ts_config(const char *name, uint64_t ts, char config[TS_CONFIG_SIZE]) {
    char *at = stpcpy(config, name);
    int shift = 60;
    while (shift > 0 && ts >> shift == 0)
        shift -= 4;
    for (; shift >= 0; shift -= 4)
        *at++ = "0123456789abcdef"[(ts >> shift) & 15];
    *at = '\0';
}

/* A failure dooms the unit: the writes so far would commit without a timestamp, and a checkpoint
 * could contain them before their oplog entry. */
ErrCode ru_set_commit_ts(RecoveryUnit *ru, uint64_t ts, Error *err) {
    invariant(ru->depth > 0);
    WT_SESSION *session;
    TRY(ru_session(ru, &session, err));
    char config[TS_CONFIG_SIZE];
    ru_ts_config("commit_timestamp=", ts, config);
    mutex_lock(&ru->engine->commit_ts_mu);
    int rc = WT_APART(session->timestamp_transaction(session, config));
    mutex_unlock(&ru->engine->commit_ts_mu);
    if (rc != 0)
        return ru_write_failed(ru, rc, "set the commit timestamp", NULL, err);
    ru->commit_ts = ts;
    return ERR_OK;
}

uint64_t ru_commit_ts(const RecoveryUnit *ru) {
    return ru->commit_ts;
}

void ru_before_commit(RecoveryUnit *ru, RuBeforeCommit fn, void *arg) {
    add_change(ru, (RuChange){.kind = CHANGE_BEFORE_COMMIT, .before_commit = fn, .arg = arg});
}

void ru_on_commit(RecoveryUnit *ru, RuHandler fn, void *arg) {
    add_change(ru, (RuChange){.kind = CHANGE_ON_COMMIT, .handler = fn, .arg = arg});
}

void ru_on_rollback(RecoveryUnit *ru, RuHandler fn, void *arg) {
    add_change(ru, (RuChange){.kind = CHANGE_ON_ROLLBACK, .handler = fn, .arg = arg});
}

void ru_request_commit_hook(RecoveryUnit *ru) {
    invariant(ru->depth > 0);
    ru->is_hook_wanted = true;
}

void ru_set_listener(RecoveryUnit *ru, const RuListener *listener) {
    invariant(ru->depth > 0);
    invariant(ru->listener == NULL || ru->listener == listener);
    ru->listener = listener;
}

ErrCode ru_session(RecoveryUnit *ru, WT_SESSION **ret_session, Error *err) {
    invariant(ru->prepare_ts == 0); /* any call on a prepared session would force a rollback */
    if (UNLIKELY(ru->snapshot_id == 0))
        TRY(begin_transaction(ru, err));
    *ret_session = ru->session;
    return ERR_OK;
}

ErrCode ru_open_cursor(RecoveryUnit *ru, const char *uri, const char *config,
                       WT_CURSOR **ret_cursor, Error *err) {
    WT_SESSION *session;
    TRY(ru_session(ru, &session, err));
    /* The checkpoint is a property of the cursor in WiredTiger, not of the transaction. */
    if (ru->read_source == READ_CHECKPOINT)
        config = "checkpoint=WiredTigerCheckpoint";
    int rc = WT_READ(ru, session->open_cursor(session, uri, NULL, config, ret_cursor));
    return rc == 0 ? ERR_OK : ru_read_failed(ru, rc, "open a cursor", uri, err);
}

ErrCode ru_write_cursor(RecoveryUnit *ru, const char *uri, bool is_overwrite,
                        WT_CURSOR **ret_cursor, Error *err) {
    invariant(ru->depth > 0);
    ru->has_written = true;
    if (FAILPOINT(WRITE_CONFLICT))
        return ru_write_failed(ru, WT_ROLLBACK, "write", NULL, err);
    for (uint32_t i = 0; i < ru->write_cursor_count; i++) {
        WriteCursor *open = &ru->write_cursors[i];
        if (open->uri == uri && open->is_overwrite == is_overwrite) {
            *ret_cursor = open->wt;
            return ERR_OK;
        }
    }
    /* More tables than slots (many indexes): start over rather than search for a victim. */
    if (ru->write_cursor_count == RU_WRITE_CURSORS)
        ru_close_write_cursors(ru);
    WT_CURSOR *wt;
    TRY(ru_open_cursor(ru, uri, is_overwrite ? NULL : "overwrite=false", &wt, err));
    ru->write_cursors[ru->write_cursor_count++] = (WriteCursor){wt, uri, is_overwrite};
    *ret_cursor = wt;
    return ERR_OK;
}

ErrCode ru_write_failed(RecoveryUnit *ru, int rc, const char *what, const char *table, Error *err) {
    /* WiredTiger leaves a transaction with a failed write in an undefined state (rule 2). */
    ru->is_doomed = true;
    if (rc != WT_ROLLBACK)
        return wt_error(ru->engine, rc, what, table, err);
    ErrCode code = wt_error(ru->engine, rc, what, table, err);
    return ru->bytes_in_txn < LARGE_TXN_BYTES ? code : classify_conflict(ru, err);
}

void ru_add_size_delta(RecoveryUnit *ru, RecordStore *rs, int64_t count, int64_t bytes) {
    /* Re-applied after a restart: the counts on disk already include it. */
    if (UNLIKELY(ru->commit_ts != 0 &&
                 ru->commit_ts <= atomic_load_explicit(&rs->counted_ts, memory_order_relaxed)))
        return;
    /* One delta per store, however many documents a batch has; a unit rarely touches more than a
     * few. */
    for (uint32_t i = 0; i < ru->delta_count; i++) {
        if (ru->deltas[i].rs == rs) {
            ru->deltas[i].count += count;
            ru->deltas[i].bytes += bytes;
            return;
        }
    }
    if (ru->delta_count == ru->delta_capacity) {
        SizeDelta *grown = xmalloc(sizeof(SizeDelta) * ru->delta_capacity * 2);
        memcpy(grown, ru->deltas, sizeof(SizeDelta) * ru->delta_count);
        if (ru->deltas != ru->deltas_inline)
            xfree(ru->deltas);
        ru->deltas = grown;
        ru->delta_capacity *= 2;
    }
    ru->deltas[ru->delta_count++] = (SizeDelta){rs, count, bytes};
}

void ru_note_bytes(RecoveryUnit *ru, size_t bytes) {
    ru->bytes_in_txn += (int64_t)bytes;
    ru->op->metrics.storage_bytes_written += (int64_t)bytes;
}

/* ---- units of work ---- */

ErrCode uow_begin(OpCtx *op, UnitOfWork *uow, Error *err) {
    (void)err;
    RecoveryUnit *ru = op->ru;
    /* A snapshot opened by earlier reads is kept: the write is usually based on what was read, and
     * in a newer snapshot it could overwrite a change it has not seen. Callers that want the newest
     * state abandon the snapshot first. */
    ru->depth++;
    lock_unit_of_work_begin(op);
    uow->op = op;
    uow->is_committed = false;
    return ERR_OK;
}

ErrCode uow_commit(UnitOfWork *uow, Error *err) {
    invariant(!uow->is_committed);
    RecoveryUnit *ru = uow->op->ru;
    if (ru->depth > 1) {
        invariant(!ru->is_doomed);
        uow->is_committed = true;
        return ERR_OK;
    }
    invariant(!ru->is_doomed);
    invariant(ru->prepare_ts == 0); /* else uow_commit_prepared */
    /* Order: handlers may still write, so they run first; the hook of replication then knows all
     * writes and allocates their timestamps as late as possible, because its slot holds back all
     * oplog readers until this unit ends. */
    TRY(ru_run_before_commit(ru, err));
    if (ru->is_hook_wanted)
        TRY(ru->engine->hooks.before_commit(ru->engine->hooks.arg, ru->op, err));
    /* Applied entries have no slot; the unit takes the timestamp of its entry. */
    if (UNLIKELY(ru->op->mode.apply_ts != 0) && ru->commit_ts == 0 && ru->has_written)
        TRY(ru_set_commit_ts(ru, ru->op->mode.apply_ts, err));
    TRY(ru_commit_storage(ru, err));
    /* Only after the commit: counts are shared and never rolled back. */
    ru_apply_size_deltas(ru);
    uow->is_committed = true;
    return ERR_OK;
}

void uow_done(UnitOfWork *uow) {
    OpCtx *op = uow->op;
    if (op == NULL)
        return;
    uow->op = NULL;
    RecoveryUnit *ru = op->ru;
    /* An inner unit that was left without a commit dooms the outer one, too. */
    if (!uow->is_committed)
        ru->is_doomed = true;
    if (ru->depth == 1) {
        if (!uow->is_committed)
            end_transaction(ru);
        finish(ru, uow->is_committed);
    }
    ru->depth--;
    lock_unit_of_work_end(op);
}

ErrCode op_run_with_retry(OpCtx *op, ErrCode (*attempt)(void *arg, OpCtx *op, Error *err),
                          void *arg, Error *err) {
    RecoveryUnit *ru = op->ru;
    StorageEngine *engine = ru->engine;
    /* The conflict doomed the enclosing unit: retrying here would write into a dead transaction. */
    if (ru->depth > 0)
        return attempt(arg, op, err);
    int conflicts = 0, unavailable = 0;
    for (;;) {
        ErrCode rc = attempt(arg, op, err);
        if (LIKELY(rc != ERR_WRITE_CONFLICT && rc != ERR_TEMPORARILY_UNAVAILABLE))
            return rc;
        /* The retry must see the write that it conflicted with. */
        end_transaction(ru);
        if (rc == ERR_WRITE_CONFLICT) {
            op->metrics.write_conflicts++;
            if (UNLIKELY(
                    atomic_load_explicit(&engine->retry.is_conflict_logged, memory_order_relaxed)))
                LOG_INFO(LOG_STORAGE, 4640401, "Caught WriteConflictException",
                         LOG_STR("namespace", op->desc.ns), LOG_I64("attempt", conflicts),
                         LOG_STR("reason", error_message(err)));
            TRY(op_check_interrupt_slow(op, err));
            int64_t wait_us = conflict_backoff_us(conflicts++);
            error_reset(err);
            if (wait_us > 0)
                TRY(op_sleep_us(op, wait_us, err));
            continue;
        }
        /* Cache pressure: unlike a conflict it does not resolve by itself within microseconds, so
         * the wait grows in seconds and the client learns of it after a bounded number of
         * attempts. */
        op->metrics.temporarily_unavailable++;
        atomic_fetch_add_explicit(&engine->temporarily_unavailable, 1, memory_order_relaxed);
        if (++unavailable > atomic_load(&engine->retry.temporarily_unavailable_retries_max)) {
            atomic_fetch_add_explicit(&engine->temporarily_unavailable_escaped, 1,
                                      memory_order_relaxed);
            return rc;
        }
        error_reset(err);
        int64_t base_ms = atomic_load(&engine->retry.temporarily_unavailable_backoff_base_ms);
        TRY(op_sleep_us(op, base_ms * 1000 * unavailable, err));
    }
}

typedef struct UnitWrite {
    ErrCode (*write)(void *arg, OpCtx *op, Error *err);
    void *arg;
} UnitWrite;

static ErrCode write_in_unit(void *arg, OpCtx *op, Error *err) {
    const UnitWrite *unit = arg;
    CLEANUP(uow_done) UnitOfWork uow = {0};
    TRY(uow_begin(op, &uow, err));
    TRY(unit->write(unit->arg, op, err));
    return uow_commit(&uow, err);
}

ErrCode op_write_with_retry(OpCtx *op, ErrCode (*write)(void *arg, OpCtx *op, Error *err),
                            void *arg, Error *err) {
    return op_run_with_retry(op, write_in_unit, &(UnitWrite){write, arg}, err);
}

/* ---- helpers ---- */

void ru_free(void *part) {
    RecoveryUnit *ru = part;
    invariant(ru->depth == 0);
    end_transaction(ru);
    wt_session_close(&ru->session);
    if (ru->deltas != ru->deltas_inline)
        xfree(ru->deltas);
    key_builder_done(&ru->scratch);
    xfree(ru);
}

static ErrCode begin_transaction(RecoveryUnit *ru, Error *err) {
    if (ru->session == NULL)
        TRY(storage_open_session(ru->engine, &ru->session, err));
    char config[TS_CONFIG_SIZE];
    /* "force": the operation may write later in this snapshot ($merge), where it conflicts with
     * prepared units as with any other. */
    bool is_ignoring = ru->prepare_conflict == PREPARE_IGNORE && ru->depth == 0 &&
                       UNLIKELY(atomic_load(&ru->engine->prepared_open) > 0);
    const char *begin = is_ignoring ? "ignore_prepare=force" : NULL;
    ru->read_ts = 0;
    /* Writes apply to the newest state, whatever the operation reads (a $merge, for example): in an
     * older snapshot every write to a newer document would conflict forever. */
    if (has_read_ts(ru->read_source) && ru->depth == 0) {
        TRY(resolve_read_ts(ru, &ru->read_ts, err));
        ru_ts_config(is_ignoring ? "ignore_prepare=force,read_timestamp=" : "read_timestamp=",
                     ru->read_ts, config);
        begin = config;
    }
    /* Before the snapshot, with acquire: pairs with the release of storage_set_oplog_visible_ts. In
     * the other order the timestamp could cover entries that the snapshot does not contain. */
    ru->oplog_visible_ts =
        atomic_load_explicit(&ru->engine->oplog_visible_ts, memory_order_acquire);
    if (UNLIKELY(ru->read_source == READ_OPLOG_MAJORITY)) {
        uint64_t majority_ts = atomic_load(&ru->engine->majority_ts);
        if (majority_ts < ru->oplog_visible_ts)
            ru->oplog_visible_ts = majority_ts;
    }
    int rc = WT_APART(ru->session->begin_transaction(ru->session, begin));
    if (rc == EINVAL && ru->read_ts != 0) {
        /* The transaction has begun; only its timestamp was refused. */
        (void)ru->session->rollback_transaction(ru->session, NULL);
        return error_set(err, ERR_SNAPSHOT_TOO_OLD,
                         "read timestamp %" PRIu64 " is older than the oldest available one",
                         ru->read_ts);
    }
    if (rc != 0)
        return wt_error(ru->engine, rc, "begin a storage transaction", NULL, err);
    ru->snapshot_id =
        1 + atomic_fetch_add_explicit(&ru->engine->snapshot_counter, 1, memory_order_relaxed);
    return ERR_OK;
}

static bool has_read_ts(ReadSource source) {
    return source != READ_LATEST && source != READ_CHECKPOINT && source != READ_OPLOG_MAJORITY;
}

static ErrCode resolve_read_ts(RecoveryUnit *ru, uint64_t *ret_ts, Error *err) {
    uint64_t ts = 0;
    switch (ru->read_source) {
    case READ_MAJORITY:
        if (FAILPOINT(SLOW_MAJORITY_READ))
            thread_sleep_us(SLOW_READ_US);
        ts = atomic_load(&ru->engine->majority_ts);
        break;
    case READ_LAST_APPLIED:
        ts = atomic_load(&ru->engine->last_applied_ts);
        break;
    case READ_ALL_DURABLE:
        ts = storage_all_durable_ts(ru->engine);
        break;
    case READ_PROVIDED:
        ts = ru->provided_ts;
        break;
    case READ_LATEST:
    case READ_CHECKPOINT:
    case READ_OPLOG_MAJORITY:
        break;
    }
    if (ts == 0)
        return error_set(err, ERR_READ_CONCERN_MAJORITY_NOT_AVAILABLE_YET,
                         "no timestamp to read at is available yet");
    *ret_ts = ts;
    return ERR_OK;
}

static void end_transaction(RecoveryUnit *ru) {
    if (ru->snapshot_id == 0)
        return;
    ru_close_write_cursors(ru);
    /* Harmless after a failed commit that already rolled back: WiredTiger then returns an error. */
    (void)ru->session->rollback_transaction(ru->session, NULL);
    ru->snapshot_id = 0;
}

void ru_close_write_cursors(RecoveryUnit *ru) {
    for (uint32_t i = 0; i < ru->write_cursor_count; i++)
        wt_cursor_close(&ru->write_cursors[i].wt);
    ru->write_cursor_count = 0;
}

/* Heap memory, not the operation's arena: a unit of work may be one of many thousands in an
 * operation (an oplog batch), and the arena is freed only at its end. */
static void add_change(RecoveryUnit *ru, RuChange change) {
    invariant(ru->depth > 0);
    RuChange *row = xmemdup(&change, sizeof(change));
    row->next = NULL;
    if (ru->changes_last != NULL)
        ru->changes_last->next = row;
    else
        ru->changes_first = row;
    ru->changes_last = row;
}

ErrCode ru_run_before_commit(RecoveryUnit *ru, Error *err) {
    for (RuChange *change = ru->changes_first; change != NULL; change = change->next)
        if (change->kind == CHANGE_BEFORE_COMMIT)
            TRY(change->before_commit(change->arg, ru->op, err));
    return ERR_OK;
}

ErrCode ru_commit_storage(RecoveryUnit *ru, Error *err) {
    if (ru->snapshot_id == 0)
        return ERR_OK; /* nothing was read or written */
    /* Open cursors hold page references, which would keep pages from being evicted after the
     * commit. */
    ru_close_write_cursors(ru);
    int rc = wt_fault(ru->has_written);
    if (LIKELY(rc == 0))
        rc = ru->session->commit_transaction(ru->session, NULL);
    else
        (void)ru->session->rollback_transaction(ru->session, NULL); /* as a failed commit does */
    if (rc != 0)
        return ru_write_failed(ru, rc, "commit", NULL, err);
    ru->snapshot_id = 0;
    if (!ru->has_written)
        return ERR_OK;
    StorageEngine *engine = ru->engine;
    /* Loaded before stored, so that committers do not bounce the cache line between processors. */
    if (!atomic_load_explicit(&engine->is_written_since_flush, memory_order_relaxed))
        atomic_store(&engine->is_written_since_flush, true);
    int64_t written =
        atomic_fetch_add_explicit(&engine->bytes_written, ru->bytes_in_txn, memory_order_relaxed);
    if (written + ru->bytes_in_txn > DISK_CHECK_BYTES)
        disk_space_check(engine);
    return ERR_OK;
}

void ru_apply_size_deltas(RecoveryUnit *ru) {
    for (uint32_t i = 0; i < ru->delta_count; i++) {
        SizeDelta *delta = &ru->deltas[i];
        atomic_fetch_add_explicit(&delta->rs->count, delta->count, memory_order_relaxed);
        atomic_fetch_add_explicit(&delta->rs->data_size, delta->bytes, memory_order_relaxed);
        if (!atomic_load_explicit(&delta->rs->is_size_dirty, memory_order_relaxed))
            atomic_store(&delta->rs->is_size_dirty, true);
    }
}

/* The outermost unit has ended: reset the recovery unit, then run the handlers. In this order,
 * because a handler may begin a new unit of work. */
static void finish(RecoveryUnit *ru, bool is_committed) {
    RuChange *first = ru->changes_first;
    ru->changes_first = ru->changes_last = NULL;
    uint64_t commit_ts = ru->commit_ts;
    ru->commit_ts = 0;
    ru->delta_count = 0;
    ru->bytes_in_txn = 0;
    ru->is_doomed = false;
    ru->has_written = false;
    if (UNLIKELY(ru->prepare_ts != 0))
        prepare_ended(ru);
    if (is_committed) {
        for (RuChange *change = first; change != NULL; change = change->next)
            if (change->kind == CHANGE_ON_COMMIT)
                change->handler(change->arg, ru->op, commit_ts);
    } else if (first != NULL) {
        run_rollback_handlers(ru, first);
    }
    while (first != NULL) {
        RuChange *next = first->next;
        xfree(first);
        first = next;
    }
    if (UNLIKELY(ru->listener != NULL)) {
        const RuListener *listener = ru->listener;
        ru->listener = NULL;
        listener->on_end(listener->arg, ru->op, is_committed, commit_ts);
    }
    /* Last: the hook makes the write visible to others, who must then find all its effects (catalog
     * versions, counts). */
    if (ru->is_hook_wanted) {
        ru->is_hook_wanted = false;
        ru->engine->hooks.after_unit(ru->engine->hooks.arg, ru->op, is_committed);
    }
}

static void run_rollback_handlers(RecoveryUnit *ru, RuChange *first) {
    size_t count = 0;
    for (RuChange *change = first; change != NULL; change = change->next)
        count++;
    /* The list is linked forwards only: rollbacks are rare, commits are not. */
    RuChange **order = xcalloc(count, sizeof(*order));
    size_t at = 0;
    for (RuChange *change = first; change != NULL; change = change->next)
        order[at++] = change;
    while (at-- > 0)
        if (order[at]->kind == CHANGE_ON_ROLLBACK)
            order[at]->handler(order[at]->arg, ru->op, 0);
    xfree(order);
}

/* WiredTiger 3.2.1 returns WT_ROLLBACK both for a conflict and for a lack of cache. A transaction
 * that holds most of the dirty cache itself will never fit and must not be retried; one that
 * suffers from a cache filled by others should be retried later. Pressure is assumed from a fifth
 * of the cache dirty on. */
static ErrCode classify_conflict(RecoveryUnit *ru, Error *err) {
    StorageEngine *engine = ru->engine;
    if (ru->op->mode.is_applying) /* must not fail: the write is committed on the primary */
        return ERR_WRITE_CONFLICT;
    StorageStats stats;
    storage_stats(engine, &stats);
    double threshold = atomic_load(&engine->retry.transaction_too_large_threshold);
    bool is_under_pressure = stats.cache_bytes_dirty > stats.cache_bytes_max / 5;
    if (!is_under_pressure)
        return ERR_WRITE_CONFLICT;
    if (threshold < 1.0 && (double)ru->bytes_in_txn > threshold * (double)stats.cache_bytes_dirty) {
        atomic_fetch_add_explicit(&engine->transaction_too_large, 1, memory_order_relaxed);
        return error_set(err, ERR_TRANSACTION_TOO_LARGE_FOR_CACHE,
                         "transaction is too large and will not fit in the storage engine cache");
    }
    if (atomic_load(&engine->retry.is_temporarily_unavailable_enabled))
        return error_set(err, ERR_TEMPORARILY_UNAVAILABLE,
                         "the storage engine's cache is under pressure; try again later");
    return ERR_WRITE_CONFLICT;
}

/* The first attempts follow at once: most conflicts are with a writer that is about to commit.
 * Later ones back off in steps, so that a hot document does not keep all processors busy with
 * rollbacks, but stay short enough (0.1 s) that a retry comes soon after a prepared unit has
 * ended. */
static int64_t conflict_backoff_us(int attempt) {
    if (attempt < 4)
        return 0;
    if (attempt < 10)
        return 1000;
    if (attempt < 100)
        return 5000;
    return attempt < 200 ? 10000 : 100000;
}
