/*
 * applier.c - a run: its writes are partitioned into shares, one per thread.
 *
 *     parse | partition by collection and _id | all shares at once | array paths to the catalog
 *
 * The share of a write is a hash of its _id, so that the writes of one document stay in order;
 * those of a capped collection are all in one share, since their order is visible. Within a share
 * collections are applied one after the other: they are independent, and this makes long groups of
 * inserts, which commit together. The first share belongs to the caller's thread, the others to
 * threads that wait for the next run.
 *
 * Crash: a run that fails, or a process that dies in one, leaves some entries applied. No
 * checkpoint contains them (stable is at most the end of the last batch), and applying is
 * idempotent.
 */
#include "base/alloc.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "base/hash.h"
#include "catalog/write_group.h"
#include "repl/apply/apply_internal.h"
#include "repl/oplog/unit.h"
#include "storage/engine.h"
#include "storage/global_lock.h"
#include "txn/history.h"

/* What a run writes to one collection. */
typedef struct RunCollection {
    Uuid uuid;
    Collection *coll;
    uint32_t first[APPLY_SHARES_MAX]; /* position + 1; 0: none */
    uint32_t last[APPLY_SHARES_MAX];
} RunCollection;

typedef struct ApplyWorker {
    Applier *applier;
    uint32_t share;
    Thread thread; /* not of the first */
    OpCtx *op;     /* likewise: the first uses the caller's */
    ApplyWriter writer;
    Error err; /* of this run */
} ApplyWorker;

enum { COUNT_INSERTS, COUNT_UPDATES, COUNT_DELETES, COUNT_COMMANDS, COUNT_KINDS };

struct Applier {
    ServiceCtx *service;
    ApplyWorker workers[APPLY_SHARES_MAX];
    uint32_t worker_count;

    /* Owned by the caller of the run while it partitions, then constant until all shares are
     * done. */
    ApplyOp *ops;
    uint32_t op_count;
    uint32_t op_capacity;
    RunCollection *colls;
    uint32_t coll_count;
    uint32_t coll_capacity;
    uint32_t *slots; /* position in colls + 1, by UUID; open addressing, a power of two */
    uint32_t slot_count;
    uint32_t share_count;
    ApplyMode mode;
    KeyBuilder key;
    _Atomic int64_t counts[COUNT_KINDS]; /* written by that caller, too */

    Mutex mu;
    Cond work_cond;
    Cond done_cond;
    /* Guarded by mu. */
    uint64_t run;           /* number of the run that is to be done */
    uint32_t active_shares; /* shares of it; 0 when it is over, for workers that wake late */
    uint32_t pending;
    bool is_stopping;
};

static void worker_run(void *worker);
static ErrCode run_writes(Applier *applier, OpCtx *op, const Doc *entries, size_t count,
                          Error *err);
static ErrCode run_taken(Applier *applier, OpCtx *op, ErrCode taken, Error *err);
static ErrCode take_entries(Applier *applier, const Doc *entries, size_t count, Error *err);
static ErrCode take_rows(Applier *applier, Doc rows, uint64_t ts, ApplyPlace place, Error *err);
static ErrCode run_unit(Applier *applier, OpCtx *op, Doc last, Error *err);
static ErrCode deal_out(Applier *applier, OpCtx *op, Error *err);
static ErrCode run_alone(Applier *applier, OpCtx *op, Doc entry, Error *err);
static ErrCode run_share(ApplyWorker *worker, OpCtx *op, Error *err);
static void forget_run(Applier *applier);

/* ---- life ---- */

static OpCtx *worker_op_new(ServiceCtx *service) {
    OpCtx *op = op_ctx_new(service->ops, NULL, NULL);
    op->service = service;
    op->mode.is_unreplicated = op->mode.is_applying = op->mode.is_validation_bypassed = true;
    op->is_kill_exempt = op->mode.is_uninterruptible = true;
    op_attach_storage(op, service->storage);
    return op;
}

ErrCode applier_new(ServiceCtx *service, uint32_t threads, Applier **ret_applier, Error *err) {
    Applier *applier = NEW(Applier);
    applier->service = service;
    mutex_init(&applier->mu, LOCK_RANK_LEAF);
    cond_init(&applier->work_cond);
    cond_init(&applier->done_cond);
    key_builder_init(&applier->key);
    uint32_t count = threads < 1 ? 1 : threads > APPLY_SHARES_MAX ? APPLY_SHARES_MAX : threads;
    ErrCode rc = ERR_OK;
    for (uint32_t i = 0; rc == ERR_OK && i < count; i++) {
        ApplyWorker *worker = &applier->workers[applier->worker_count++];
        worker->applier = applier;
        worker->share = i;
        apply_writer_init(&worker->writer);
        if (i == 0)
            continue;
        worker->op = worker_op_new(service);
        rc = thread_start(&worker->thread, "ReplWriter", worker_run, worker, err);
    }
    if (rc != ERR_OK) {
        applier_free(applier);
        return rc;
    }
    *ret_applier = applier;
    return ERR_OK;
}

void applier_free(Applier *applier) {
    if (applier == NULL)
        return;
    mutex_lock(&applier->mu);
    applier->is_stopping = true;
    cond_broadcast(&applier->work_cond);
    mutex_unlock(&applier->mu);
    for (uint32_t i = 0; i < applier->worker_count; i++) {
        ApplyWorker *worker = &applier->workers[i];
        if (worker->thread.is_started)
            thread_join(&worker->thread);
        op_ctx_free(worker->op);
        apply_writer_done(&worker->writer);
    }
    key_builder_done(&applier->key);
    cond_done(&applier->work_cond);
    cond_done(&applier->done_cond);
    mutex_done(&applier->mu);
    xfree(applier->ops);
    xfree(applier->colls);
    xfree(applier->slots);
    xfree(applier);
}

void applier_set_copied_ts(Applier *applier, uint64_t ts) {
    for (uint32_t i = 0; i < applier->worker_count; i++)
        applier->workers[i].writer.copied_ts = ts;
}

void applier_set_skips_indexes(Applier *applier, bool skips_indexes) {
    for (uint32_t i = 0; i < applier->worker_count; i++)
        atomic_store(&applier->workers[i].writer.skips_indexes, skips_indexes);
}

static void worker_run(void *arg) {
    ApplyWorker *worker = arg;
    Applier *applier = worker->applier;
    OpCtx *op = worker->op;
    log_set_thread_name("ReplWriter");
    op_begin(op, &(OpDescription){.op_type = "none", .ns = "", .desc = "ReplWriter"});
    /* Waiting for a ticket behind readers would let the secondary fall behind; the number of these
     * threads is small and fixed. */
    op->admission_priority = ADMISSION_IMMEDIATE;
    uint64_t seen = 0;
    mutex_lock(&applier->mu);
    while (!applier->is_stopping) {
        if (applier->run == seen || worker->share >= applier->active_shares) {
            seen = applier->run;
            cond_wait(&applier->work_cond, &applier->mu);
            continue;
        }
        seen = applier->run;
        mutex_unlock(&applier->mu);
        (void)run_share(worker, op, &worker->err);
        mutex_lock(&applier->mu);
        if (--applier->pending == 0)
            cond_signal(&applier->done_cond);
    }
    mutex_unlock(&applier->mu);
    op_end(op);
}

/* ---- a run ---- */

ErrCode applier_run(Applier *applier, OpCtx *op, const Doc *entries, size_t count, ApplyMode mode,
                    Error *err) {
    CLEANUP(op_mode_restore) OpModeScope scope = op_mode_scope(op);
    op->mode.is_unreplicated = op->mode.is_applying = op->mode.is_validation_bypassed = true;
    op->mode.is_uninterruptible = true;
    AdmissionPriority priority = op->admission_priority;
    op->admission_priority = ADMISSION_IMMEDIATE;
    ArenaMark mark = arena_mark(&op->arena);
    applier->mode = mode;
    ErrCode rc = ERR_OK;
    for (size_t done = 0; rc == ERR_OK && done < count;) {
        size_t end = apply_batch_end(entries + done, count - done);
        if (!apply_is_alone(entries[done]))
            rc = run_writes(applier, op, entries + done, end, err);
        else if (apply_is_of_prepared(entries[done]))
            rc = apply_prepared(op, &applier->workers[0].writer, entries[done], mode, err);
        else if (entry_part(entries[done]) == ENTRY_LAST)
            rc = run_unit(applier, op, entries[done], err);
        else
            rc = run_alone(applier, op, entries[done], err);
        if (rc == ERR_OK)
            /* After the documents and before the batch becomes visible: a new primary that finds
             * the row must find the write. */
            rc = history_apply_rows(op, entries + done, end, mode != APPLY_INITIAL_SYNC, err);
        done += end;
    }
    arena_rewind(&op->arena, mark);
    op->admission_priority = priority;
    return rc;
}

ErrCode applier_prepare_again(Applier *applier, OpCtx *op, Error *err) {
    CLEANUP(op_mode_restore) OpModeScope scope = op_mode_scope(op);
    op->mode.is_unreplicated = op->mode.is_applying = op->mode.is_validation_bypassed = true;
    op->mode.is_uninterruptible = true;
    AdmissionPriority priority = op->admission_priority;
    op->admission_priority = ADMISSION_IMMEDIATE;
    ErrCode rc = apply_prepared_again(op, &applier->workers[0].writer, err);
    op->admission_priority = priority;
    return rc;
}

/* One entry of a unit of several, with the timestamp of the last one. */
static ErrCode run_part(Applier *applier, OpCtx *op, Doc part, uint64_t ts, Error *err) {
    Elem rows = doc_get_path(part, "o.applyOps");
    if (elem_type(rows) != BT_ARRAY)
        return error_set(err, ERR_FAILED_TO_PARSE, "oplog entry: 'applyOps' must be an array");
    if (!apply_are_writes(elem_doc(rows)))
        return apply_rows(op, &applier->workers[0].writer, elem_doc(rows), ts, apply_place_of(part),
                          applier->mode, /* depth= */ 0, err);
    ErrCode rc = take_rows(applier, elem_doc(rows), ts, apply_place_of(part), err);
    return run_taken(applier, op, rc, err);
}

/* A unit of several entries, part by part: all writes have the timestamp of its last entry, which
 * is neither read nor stable before the batch is complete, so no reader, checkpoint or crash can
 * see a part of it. */
static ErrCode run_unit(Applier *applier, OpCtx *op, Doc last, Error *err) {
    ApplyOp whole;
    TRY(apply_parse(last, 0, &whole, err));
    OplogUnit unit;
    TRY(oplog_unit_find(op, last, &unit, err));
    for (size_t i = 0; i < unit.count; i++) {
        ArenaMark mark = arena_mark(&op->arena);
        Doc part;
        TRY(oplog_unit_read(op, &unit, i, &part, err));
        TRY(run_part(applier, op, part, whole.ts, err));
        arena_rewind(&op->arena, mark);
        failpoint_hit(FP_APPLY_UNIT_PART);
    }
    return ERR_OK;
}

static void count(Applier *applier, ApplyKind kind) {
    int row = kind == APPLY_INSERT   ? COUNT_INSERTS
              : kind == APPLY_UPDATE ? COUNT_UPDATES
              : kind == APPLY_DELETE ? COUNT_DELETES
                                     : COUNT_COMMANDS;
    atomic_fetch_add_explicit(&applier->counts[row], 1, memory_order_relaxed);
}

static int64_t count_of(const Applier *applier, int row) {
    return atomic_load_explicit(&applier->counts[row], memory_order_relaxed);
}

ApplyCounts applier_counts(const Applier *applier) {
    return (ApplyCounts){.inserts = count_of(applier, COUNT_INSERTS),
                         .updates = count_of(applier, COUNT_UPDATES),
                         .deletes = count_of(applier, COUNT_DELETES),
                         .commands = count_of(applier, COUNT_COMMANDS)};
}

static ErrCode run_alone(Applier *applier, OpCtx *op, Doc entry, Error *err) {
    ApplyOp alone;
    TRY(apply_parse(entry, 0, &alone, err));
    count(applier, alone.kind);
    ApplyWriter *writer = &applier->workers[0].writer;
    return alone.kind == APPLY_COMMAND
               ? apply_command(op, writer, &alone, applier->mode, /* depth= */ 0, err)
               : apply_write_alone(op, writer, &alone, applier->mode, err);
}

/* The catalog entries are written once for all shares, with the first timestamp of the run: they
 * must be in any checkpoint that contains one of the documents. */
static ErrCode persist_multikey(Applier *applier, OpCtx *op, Error *err) {
    CLEANUP(op_mode_restore) OpModeScope scope = op_mode_scope(op);
    op->mode.apply_ts = applier->mode == APPLY_INITIAL_SYNC ? 0 : applier->ops[0].ts;
    ErrCode rc = ERR_OK;
    for (uint32_t i = 0; rc == ERR_OK && i < applier->share_count; i++)
        rc = catalog_persist_multikey(op, &applier->workers[i].writer.multikey, err);
    return rc;
}

static ErrCode run_shares(Applier *applier, OpCtx *op, Error *err) {
    if (applier->share_count > 1) {
        mutex_lock(&applier->mu);
        applier->run++;
        applier->active_shares = applier->share_count;
        applier->pending = applier->share_count - 1;
        cond_broadcast(&applier->work_cond);
        mutex_unlock(&applier->mu);
    }
    /* The caller takes part instead of waiting: one context switch less, and no handover for small
     * runs. */
    ErrCode rc = run_share(&applier->workers[0], op, err);
    if (applier->share_count > 1) {
        mutex_lock(&applier->mu);
        while (applier->pending > 0)
            cond_wait(&applier->done_cond, &applier->mu);
        applier->active_shares = 0;
        mutex_unlock(&applier->mu);
    }
    for (uint32_t i = 1; i < applier->share_count; i++) {
        Error *theirs = &applier->workers[i].err;
        if (theirs->code != ERR_OK && rc == ERR_OK) {
            rc = theirs->code;
            error_move(err, theirs);
        }
        error_reset(theirs);
    }
    return rc;
}

static ErrCode run_writes(Applier *applier, OpCtx *op, const Doc *entries, size_t count,
                          Error *err) {
    return run_taken(applier, op, take_entries(applier, entries, count, err), err);
}

/* Applies what was collected, unless collecting failed. */
static ErrCode run_taken(Applier *applier, OpCtx *op, ErrCode taken, Error *err) {
    ErrCode rc = taken;
    if (rc == ERR_OK && applier->op_count > 0)
        rc = deal_out(applier, op, err);
    if (rc == ERR_OK && applier->coll_count > 0)
        rc = run_shares(applier, op, err);
    if (rc == ERR_OK && applier->coll_count > 0)
        rc = persist_multikey(applier, op, err);
    forget_run(applier);
    return rc;
}

static void forget_run(Applier *applier) {
    for (uint32_t i = 0; i < applier->coll_count; i++)
        collection_unref(applier->colls[i].coll);
    applier->coll_count = applier->op_count = 0;
    for (uint32_t i = 0; i < applier->worker_count; i++)
        applier->workers[i].writer.multikey.count = 0;
}

/* ---- dealing out ---- */

/* One entry, or with `outer_ts` one of an applyOps, whose place is then `place`. */
static ErrCode take_one(Applier *applier, Doc entry, uint64_t outer_ts, ApplyPlace place,
                        Error *err) {
    ARRAY_RESERVE(applier->ops, applier->op_count, applier->op_capacity);
    ApplyOp *parsed = &applier->ops[applier->op_count];
    TRY(apply_parse(entry, outer_ts, parsed, err));
    if (outer_ts != 0)
        parsed->place = place;
    if (parsed->kind == APPLY_NOOP)
        return ERR_OK;
    applier->op_count++;
    if (LIKELY(parsed->kind != APPLY_COMMAND))
        return ERR_OK;
    applier->op_count--;
    if (entry_part(entry) == ENTRY_PARTIAL)
        return ERR_OK; /* applied with the last entry of its unit */
    Doc writes = apply_writes_of(entry);
    invariant(doc_is_present(writes)); /* else it would be alone */
    /* Parsed->ts by value: the array may be reallocated. */
    return take_rows(applier, writes, parsed->ts, parsed->place, err);
}

static ErrCode take_rows(Applier *applier, Doc rows, uint64_t ts, ApplyPlace place, Error *err) {
    DocIter iter = doc_iter(rows);
    for (Elem row; doc_iter_next(&iter, &row); place.index++)
        TRY(take_one(applier, elem_doc(row), ts, place, err));
    return ERR_OK;
}

static ErrCode take_entries(Applier *applier, const Doc *entries, size_t count, Error *err) {
    for (size_t i = 0; i < count; i++)
        TRY(take_one(applier, entries[i], 0, (ApplyPlace){0}, err));
    return ERR_OK;
}

static void rebuild_slots(Applier *applier) {
    uint32_t wanted = 16;
    /* At most half full, so that probing stays short. */
    while (wanted < applier->coll_count * 2 + 2)
        wanted *= 2;
    if (wanted > applier->slot_count) {
        xfree(applier->slots);
        applier->slots = xcalloc(wanted, sizeof(*applier->slots));
        applier->slot_count = wanted;
    } else {
        memset(applier->slots, 0, applier->slot_count * sizeof(*applier->slots));
    }
    for (uint32_t i = 0; i < applier->coll_count; i++) {
        uint64_t at = hash_bytes(applier->colls[i].uuid.bytes, sizeof(Uuid));
        while (applier->slots[at & (applier->slot_count - 1)] != 0)
            at++;
        applier->slots[at & (applier->slot_count - 1)] = i + 1;
    }
}

static RunCollection *find_row(Applier *applier, const Uuid *uuid) {
    for (uint64_t at = hash_bytes(uuid->bytes, sizeof(Uuid));; at++) {
        uint32_t found = applier->slots[at & (applier->slot_count - 1)];
        if (found == 0)
            return NULL;
        if (uuid_equal(&applier->colls[found - 1].uuid, uuid))
            return &applier->colls[found - 1];
    }
}

static RunCollection *add_row(Applier *applier, const Collection *coll) {
    ARRAY_RESERVE(applier->colls, applier->coll_count, applier->coll_capacity);
    RunCollection *row = &applier->colls[applier->coll_count++];
    *row = (RunCollection){.uuid = coll->uuid, .coll = collection_ref((Collection *)coll)};
    if (applier->coll_count * 2 > applier->slot_count) {
        rebuild_slots(applier);
        return row;
    }
    uint64_t at = hash_bytes(coll->uuid.bytes, sizeof(Uuid));
    while (applier->slots[at & (applier->slot_count - 1)] != 0)
        at++;
    applier->slots[at & (applier->slot_count - 1)] = applier->coll_count;
    return row;
}

/* The row of the write's collection; NULL: it does not exist and the write is skipped. */
static ErrCode row_of(Applier *applier, const Catalog *catalog, const ApplyOp *write,
                      RunCollection **ret_row, Error *err) {
    *ret_row = write->has_uuid ? find_row(applier, &write->uuid) : NULL;
    if (*ret_row != NULL)
        return ERR_OK;
    const Collection *coll;
    TRY(apply_find_collection(catalog, write, applier->mode, &coll, err));
    if (coll != NULL)
        *ret_row = find_row(applier, &coll->uuid);
    if (coll != NULL && *ret_row == NULL)
        *ret_row = add_row(applier, coll);
    return ERR_OK;
}

/* Equal _ids have equal hashes whatever their types (1 and 1.0), because the key is hashed; an
 * ObjectId equals nothing of another type and can be hashed directly. */
static uint32_t share_of(Applier *applier, const Collection *coll, Elem id) {
    if (applier->share_count == 1)
        return 0;
    uint64_t hash;
    if (coll->options.is_capped) {
        hash = hash_bytes(coll->uuid.bytes, sizeof(Uuid));
    } else if (elem_type(id) == BT_OID) {
        hash = hash_bytes(elem_value(id), sizeof(Oid));
    } else {
        key_builder_reset(&applier->key, 0);
        key_append_elem(&applier->key, id, coll->options.collator);
        hash = hash_bytes(applier->key.key.data, applier->key.key.size);
    }
    return (uint32_t)(((hash >> 32) * applier->share_count) >> 32);
}

static ErrCode deal_out(Applier *applier, OpCtx *op, Error *err) {
    /* Waking a thread costs more than a handful of writes. */
    uint32_t useful = applier->op_count / APPLY_SHARE_OPS_MIN;
    applier->share_count = useful < 2                       ? 1
                           : useful < applier->worker_count ? useful
                                                            : applier->worker_count;
    rebuild_slots(applier);
    Catalog *catalog = catalog_acquire(op_catalog(op));
    ErrCode rc = ERR_OK;
    RunCollection *row = NULL;
    for (uint32_t i = 0; rc == ERR_OK && i < applier->op_count; i++) {
        ApplyOp *write = &applier->ops[i];
        count(applier, write->kind);
        if (row == NULL || !write->has_uuid || !uuid_equal(&row->uuid, &write->uuid))
            rc = row_of(applier, catalog, write, &row, err);
        if (rc != ERR_OK || row == NULL)
            continue;
        uint32_t share = share_of(applier, row->coll, write->id);
        if (row->last[share] == 0)
            row->first[share] = i + 1;
        else
            applier->ops[row->last[share] - 1].next = i + 1;
        row->last[share] = i + 1;
    }
    catalog_release(catalog);
    return rc;
}

/* ---- a share ---- */

/* Consecutive inserts, as many as fit into one transaction. */
static ErrCode apply_insert_group(const ApplyTarget *target, const ApplyOp *ops, uint32_t *at,
                                  Error *err) {
    const ApplyOp *group[APPLY_GROUP_DOCS_MAX];
    size_t count = 0, bytes = 0;
    while (*at != 0 && ops[*at - 1].kind == APPLY_INSERT && count < APPLY_GROUP_DOCS_MAX &&
           bytes < APPLY_GROUP_BYTES_MAX) {
        group[count] = &ops[*at - 1];
        bytes += doc_size(group[count]->o);
        *at = group[count++]->next;
    }
    return apply_inserts(target, group, count, err);
}

static ErrCode run_list(ApplyWorker *worker, OpCtx *op, const RunCollection *row, Error *err) {
    const Applier *applier = worker->applier;
    CLEANUP(access_done) CollAccess access = {0};
    TRY(access_write(op, &row->coll->ns, LOCK_IX, &access, err));
    if (access.coll == NULL || !uuid_equal(&access.coll->uuid, &row->uuid))
        return error_set(err, ERR_NAMESPACE_NOT_FOUND,
                         "collection \"%s\" was dropped while the oplog was applied",
                         row->coll->ns.text);
    const ApplyTarget target = {op, &worker->writer, access.coll, applier->mode};
    for (uint32_t at = row->first[worker->share]; at != 0;) {
        const ApplyOp *write = &applier->ops[at - 1];
        if (write->kind == APPLY_INSERT) {
            TRY(apply_insert_group(&target, applier->ops, &at, err));
            continue;
        }
        TRY(apply_write(&target, write, err));
        at = write->next;
    }
    return ERR_OK;
}

static ErrCode run_share(ApplyWorker *worker, OpCtx *op, Error *err) {
    TRY(op_lock_global(op, LOCK_IX, err));
    CLEANUP(op_mode_restore) OpModeScope scope = op_mode_scope(op);
    /* Collected instead of written: threads would write the same catalog entry out of timestamp
     * order. */
    op->mode.multikey_notes = &worker->writer.multikey;
    ErrCode rc = ERR_OK;
    for (uint32_t i = 0; rc == ERR_OK && i < worker->applier->coll_count; i++) {
        const RunCollection *row = &worker->applier->colls[i];
        if (row->first[worker->share] != 0)
            rc = run_list(worker, op, row, err);
    }
    op_unlock_global(op);
    return rc;
}
