/*
 * range_deleter.c - rounds over the documents of config.rangeDeletions.
 *
 *     pending --(outcome of the move)--> ready --> waits for readers here, then on secondaries
 *         --> processing, in batches --> a majority has the deletions --> the document goes
 *
 * Nothing of this is in memory alone but since when a task is ready: the next primary begins the
 * delay anew, unless deletion had begun (whenToClean is "now" then).
 */
#include "sharding/range_deletion/range_deleter.h"

#include <stdatomic.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/failpoint.h"
#include "base/list.h"
#include "base/log.h"
#include "base/round_thread.h"
#include "catalog/access.h"
#include "query/write/own_docs.h"
#include "query/write/range_delete.h"
#include "repl/repl.h"
#include "sharding/range_deletion/range_tasks.h"
#include "sharding/shard/range_scan.h"
#include "sharding/shard/refresh.h"
#include "sharding/shard/support_index.h"
#include "storage/engine.h"
#include "storage/recovery_unit.h"

enum {
    READERS_US = 100 * 1000,        /* between two looks whether somebody still reads a range */
    RETRY_US = 5 * 1000 * 1000,     /* after a failure */
    ROUND_US_MAX = 2 * 1000 * 1000, /* even if nobody has woken it: others may write tasks */
    SLICE_US = 200 * 1000,          /* of one call, so that a stop is soon */
    UNIT_DOCS = 200,                /* of one storage transaction */
    WAIT_US = 500 * 1000,
    KNOWN_MAX = 1000,
};

/* Since when a task has been ready, as far as this process knows. */
typedef struct Known {
    Uuid id;
    int64_t since_us;
    uint64_t since_ts; /* the oplog had the end of the move by then */
    bool is_seen;      /* in this round */
} Known;

typedef struct Waiter {
    ListNode node;
    OpCtx *op;
} Waiter;

struct RangeDeleter {
    ServiceCtx *service;
    RangeDeleterSettingsFn settings;
    RoundThread rounds;
    OpCtx *op; /* of the thread */
    _Atomic int64_t deleted_docs;
    _Atomic int64_t deleted_bytes;
    _Atomic int64_t tasks;
    _Atomic int64_t tasks_done;
    /* Owned by the thread. */
    Known known[KNOWN_MAX];
    uint32_t known_count;
    Mutex mu;
    List waiters; /* guarded by mu */
};

static void deleter_run(void *arg);

RangeDeleter *range_deleter_new(ServiceCtx *service, RangeDeleterSettingsFn settings) {
    RangeDeleter *deleter = NEW(RangeDeleter);
    deleter->service = service;
    deleter->settings = settings;
    round_thread_init(&deleter->rounds);
    mutex_init(&deleter->mu, LOCK_RANK_RANGE_DELETER);
    list_init(&deleter->waiters);
    return deleter;
}

ErrCode range_deleter_start(RangeDeleter *deleter, Error *err) {
    deleter->op = op_ctx_new(deleter->service->ops, NULL, NULL);
    deleter->op->mode.uses_reserve = true; /* it makes room */
    deleter->op->service = deleter->service;
    op_attach_storage(deleter->op, deleter->service->storage);
    return round_thread_start(&deleter->rounds, "RangeDeleter", deleter_run, deleter, err);
}

void range_deleter_stop(RangeDeleter *deleter) {
    if (deleter == NULL)
        return;
    round_thread_begin_stop(&deleter->rounds);
    if (deleter->op != NULL)
        op_kill(deleter->op, ERR_INTERRUPTED_AT_SHUTDOWN);
    round_thread_stop(&deleter->rounds);
}

void range_deleter_free(RangeDeleter *deleter) {
    if (deleter == NULL)
        return;
    op_ctx_free(deleter->op);
    round_thread_done(&deleter->rounds);
    mutex_done(&deleter->mu);
    xfree(deleter);
}

void range_deleter_wake(RangeDeleter *deleter) {
    if (deleter != NULL)
        round_thread_wake(&deleter->rounds);
}

RangeDeleterStats range_deleter_stats(RangeDeleter *deleter) {
    return (RangeDeleterStats){.deleted_docs = atomic_load(&deleter->deleted_docs),
                               .deleted_bytes = atomic_load(&deleter->deleted_bytes),
                               .tasks = atomic_load(&deleter->tasks),
                               .tasks_done = atomic_load(&deleter->tasks_done)};
}

/* ---- waiting ---- */

static void wake_waiters(RangeDeleter *deleter) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&deleter->mu);
    LIST_FOR_EACH (&deleter->waiters, node)
        op_signal(CONTAINER_OF(node, Waiter, node)->op);
}

/* Which tasks somebody waits for: one, or all of a collection. */
typedef struct TaskLook {
    const Uuid *id;
    const Uuid *uuid;
    bool is_found;
} TaskLook;

static ErrCode look_at(void *arg, const RangeTask *task, Error *err) {
    (void)err;
    TaskLook *look = arg;
    look->is_found |=
        look->id != NULL ? uuid_equal(&task->id, look->id) : uuid_equal(&task->uuid, look->uuid);
    return ERR_OK;
}

static bool never(void *arg) {
    (void)arg;
    return false;
}

static ErrCode wait_until_gone(RangeDeleter *deleter, OpCtx *op, TaskLook look, Error *err) {
    for (;;) {
        look.is_found = false;
        TRY(range_tasks_each(op, look_at, &look, err));
        if (!look.is_found)
            return ERR_OK;
        Waiter waiter = {.op = op};
        mutex_lock(&deleter->mu);
        list_push_back(&deleter->waiters, &waiter.node);
        bool is_met;
        ErrCode rc =
            op_wait_until(op, &deleter->mu, never, NULL, clock_mono_us() + WAIT_US, &is_met, err);
        list_remove(&waiter.node);
        mutex_unlock(&deleter->mu);
        TRY(rc);
    }
}

ErrCode range_deleter_wait_task(RangeDeleter *deleter, OpCtx *op, const Uuid *id, Error *err) {
    return wait_until_gone(deleter, op, (TaskLook){.id = id}, err);
}

ErrCode range_deleter_wait_collection(RangeDeleter *deleter, OpCtx *op, const Uuid *uuid,
                                      Error *err) {
    return wait_until_gone(deleter, op, (TaskLook){.uuid = uuid}, err);
}

/* ---- one task ---- */

static Known *find_known(RangeDeleter *deleter, const Uuid *id) {
    for (uint32_t i = 0; i < deleter->known_count; i++)
        if (uuid_equal(&deleter->known[i].id, id))
            return &deleter->known[i];
    if (deleter->known_count == KNOWN_MAX)
        return &deleter->known[KNOWN_MAX - 1]; /* so many wait: one more or less soon */
    Known *known = &deleter->known[deleter->known_count++];
    *known = (Known){.id = *id,
                     .since_us = clock_mono_us(),
                     .since_ts = oplog_applied(repl_oplog(deleter->service->repl)).ts};
    return known;
}

static void drop_unseen(RangeDeleter *deleter) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < deleter->known_count; i++)
        if (deleter->known[i].is_seen)
            deleter->known[kept++] = deleter->known[i];
    deleter->known_count = kept;
}

typedef struct Range {
    RangeDeleter *deleter;
    RangeTask *task;
    ShardKey *key;
    const char *ident; /* of the index */
    RangeBounds bounds;
    RangeKeys keys;
} Range;

static bool is_in_range(void *arg, Doc doc) {
    return range_has_doc(arg, doc);
}

static ErrCode mark_processing(OpCtx *op, const RangeTask *task, Error *err) {
    DocBuilder filter = doc_builder_in_arena(&op->arena);
    build_uuid(&filter, "_id", &task->id);
    size_t none = build_open_doc(&filter, "pending");
    build_bool(&filter, "$ne", true);
    build_close(&filter, none);
    DocBuilder b = doc_builder_in_arena(&op->arena);
    size_t set = build_open_doc(&b, "$set");
    build_bool(&b, "processing", true);
    build_cstr(&b, "whenToClean", "now");
    build_close(&b, set);
    return own_docs_update(op, &RANGE_DELETIONS_NS, doc_builder_end(&filter), doc_builder_end(&b),
                           err);
}

/* In batches, until nothing is left. */
static ErrCode delete_all(Range *range, Error *err) {
    RangeDeleter *deleter = range->deleter;
    OpCtx *op = deleter->op;
    CLEANUP(op_mode_restore) OpModeScope scope = op_mode_scope(op);
    op->mode.is_from_migrate = true;
    for (;;) {
        RangeDeleterSettings settings = deleter->settings(deleter->service);
        if (!settings.is_enabled)
            return error_set(err, ERR_INTERRUPTED, "the range deleter was switched off");
        int64_t batch = settings.batch_docs;
        bool is_limited = batch > 0 && batch < INT32_MAX;
        RangeDelete request = {
            .uuid = range->task->uuid,
            .ident = range->ident,
            .min = range->bounds.min,
            .max = range->bounds.max,
            .filter = DOC_EMPTY,
            .is_taken = is_in_range,
            .arg = &range->keys,
            .batch_docs = is_limited && batch < UNIT_DOCS ? (uint32_t)batch : UNIT_DOCS,
            .docs_max = is_limited ? batch : 0,
            .time_us_max = SLICE_US,
            .is_ownership_ignored = true,
        };
        RangeDeleteResult result;
        failpoint_hang(FP_HANG_BEFORE_DELETION);
        ErrCode rc = exec_range_delete(op, &range->task->ns, &request, &result, err);
        atomic_fetch_add_explicit(&deleter->deleted_docs, result.deleted, memory_order_relaxed);
        atomic_fetch_add_explicit(&deleter->deleted_bytes, result.deleted_bytes,
                                  memory_order_relaxed);
        TRY(rc);
        failpoint_hang(FP_HANG_AFTER_DELETION);
        if (!result.has_more)
            return ERR_OK;
        range->task->orphans -= result.deleted;
        TRY(range_task_set_orphans(op, &range->task->id, range->task->orphans, err));
        if (is_limited && settings.batch_pause_ms > 0)
            TRY(op_sleep_us(op, settings.batch_pause_ms * 1000, err));
    }
}

/* A rename keeps the uuid: the name of the task may be that of another collection by now. */
static bool find_name(Range *range) {
    Catalog *catalog = catalog_acquire(range->deleter->service->catalog);
    const Collection *coll = catalog_find_uuid(catalog, &range->task->uuid);
    bool is_found = coll != NULL;
    if (is_found)
        range->task->ns = coll->ns;
    catalog_release(catalog);
    return is_found;
}

/* The collection and the index that finds the range; *ret_is_gone: there is nothing to delete. */
static ErrCode find_range(Range *range, bool *ret_is_gone, Error *err) {
    RangeTask *task = range->task;
    OpCtx *op = range->deleter->op;
    (void)find_name(range);
    CLEANUP(access_done) CollAccess access = {0};
    TRY(access_read(op, &task->ns, &access, err));
    *ret_is_gone = access.coll == NULL || !uuid_equal(&access.coll->uuid, &task->uuid);
    if (*ret_is_gone)
        return ERR_OK;
    const IndexDesc *index = support_index_find(access.coll, range->key);
    if (index == NULL)
        return error_set(err, ERR_INDEX_NOT_FOUND, "%s has no index that begins with its shard key",
                         task->ns.text);
    range->ident = arena_strdup(&op->arena, index->ident);
    range->bounds = range_bounds(index, range->key, task->min, task->max, &op->arena);
    return ERR_OK;
}

/* A range that this shard owns is never deleted, whatever a document says. */
static ErrCode check_not_owned(Range *range, Error *err) {
    const RangeTask *task = range->task;
    ShardState *shard = range->deleter->service->shard;
    OpCtx *op = range->deleter->op;
    CLEANUP(collection_route_done) CollectionRoute *route = placement_find(shard, &task->ns);
    if (route == NULL) {
        TRY(refresh_collection(shard, op, &task->ns, err));
        route = placement_find(shard, &task->ns);
    }
    const char *self;
    TRY(shard_get_name(shard, op, &self, err));
    ShardIndex own;
    if (route == NULL)
        return error_set(err, ERR_STALE_CONFIG, "it is not known who owns the range");
    if (route->map == NULL || !uuid_equal(&route->uuid, &task->uuid) ||
        !chunk_map_find_shard(route->map, str_from(self), &own))
        return ERR_OK;
    ShardSet owners = shard_set_new(route->map, &op->arena);
    Str low = {(const char *)range->keys.min.key.data, range->keys.min.key.size};
    Str high = {(const char *)range->keys.max.key.data, range->keys.max.key.size};
    (void)chunk_map_add_owners(route->map, low, high, /* is_high_inclusive= */ false, 0, &owners);
    if (!shard_set_has(&owners, own))
        return ERR_OK;
    return error_set(err, ERR_ILLEGAL_OPERATION,
                     "this shard owns a part of the range that is to be deleted");
}

static ErrCode finish(Range *range, Error *err) {
    RangeDeleter *deleter = range->deleter;
    OpCtx *op = deleter->op;
    if (!optime_is_none(op->last_optime))
        TRY(repl_wait_committed(deleter->service->repl, op, op->last_optime.ts, err));
    TRY(range_task_remove(op, &range->task->id, err));
    atomic_fetch_add_explicit(&deleter->tasks_done, 1, memory_order_relaxed);
    wake_waiters(deleter);
    LOG_INFO(LOG_SHARDING, 6872501, "Range deletion completed",
             LOG_STR("namespace", range->task->ns.text));
    return ERR_OK;
}

/* When reads on secondaries count as ended, or may have by then: 0 is now. A member that is not
 * heard of may still have some. */
static int64_t due_of_secondaries(RangeDeleter *deleter, const RangeTask *task) {
    RangeDeleterSettings settings = deleter->settings(deleter->service);
    const Known *known = find_known(deleter, &task->id);
    if (!task->is_delayed || (!settings.is_delay_kept &&
                              repl_have_reads_passed(deleter->service->repl, known->since_ts)))
        return 0;
    return known->since_us + settings.delay_s * 1000 * 1000;
}

/* *ret_due_us: when to look at it again; 0: it is done. */
static ErrCode process(Range *range, int64_t *ret_due_us, Error *err) {
    RangeDeleter *deleter = range->deleter;
    const RangeTask *task = range->task;
    bool is_gone;
    TRY(find_range(range, &is_gone, err));
    if (is_gone)
        return finish(range, err);
    TRY(check_not_owned(range, err));
    int64_t now_us = clock_mono_us();
    if (placement_is_range_read(deleter->service->shard, &task->ns, task->min, task->max)) {
        *ret_due_us = now_us + READERS_US;
        return ERR_OK;
    }
    int64_t free_us = due_of_secondaries(deleter, task);
    if (now_us < free_us) {
        *ret_due_us = free_us < now_us + READERS_US ? free_us : now_us + READERS_US;
        return ERR_OK;
    }
    if (FAILPOINT(SUSPEND_RANGE_DELETION)) {
        *ret_due_us = now_us + READERS_US;
        return ERR_OK;
    }
    TRY(mark_processing(deleter->op, task, err));
    TRY(delete_all(range, err));
    return finish(range, err);
}

/* A task that somebody else wrote may not tell the pattern: it is that of the collection then.
 * *ret_is_gone: there is no such collection here. */
static ErrCode find_key(Range *range, bool *ret_is_gone, Error *err) {
    *ret_is_gone = !find_name(range);
    if (*ret_is_gone)
        return ERR_OK;
    const RangeTask *task = range->task;
    ShardState *shard = range->deleter->service->shard;
    CLEANUP(collection_route_done) CollectionRoute *route = placement_find(shard, &task->ns);
    if (route == NULL) {
        TRY(refresh_collection(shard, range->deleter->op, &task->ns, err));
        route = placement_find(shard, &task->ns);
    }
    if (route == NULL || route->map == NULL || !uuid_equal(&route->uuid, &task->uuid))
        return error_set(err, ERR_INCOMPATIBLE_SHARDING_METADATA,
                         "it has no keyPattern, and %s is not the sharded collection it is about",
                         task->ns.text);
    return shard_key_parse(shard_key_pattern(chunk_map_key(route->map)), &range->key, err);
}

static int64_t work_on(RangeDeleter *deleter, Doc doc) {
    OpCtx *op = deleter->op;
    CLEANUP(error_reset) Error err = {0};
    int64_t due_us = 0;
    RangeTask task;
    Range range = {.deleter = deleter, .task = &task};
    op_begin(op, &(OpDescription){
                     .op_type = "remove", .ns = "config.rangeDeletions", .desc = "RangeDeleter"});
    ErrCode rc = range_task_parse(doc, &task, &err);
    bool is_gone = false;
    if (rc == ERR_OK)
        rc = doc_is_present(task.key) ? shard_key_parse(task.key, &range.key, &err)
                                      : find_key(&range, &is_gone, &err);
    if (rc == ERR_OK && is_gone) {
        rc = finish(&range, &err);
    } else if (rc == ERR_OK) {
        range_keys_init(&range.keys, range.key, task.min, task.max);
        op->admission_priority = ADMISSION_LOW;
        /* A kill before op_begin would be forgotten. */
        if (!round_thread_is_stopping(&deleter->rounds))
            rc = process(&range, &due_us, &err);
        range_keys_done(&range.keys);
        shard_key_unref(range.key);
    }
    op_end(op);
    if (rc == ERR_OK)
        return due_us;
    if (!round_thread_is_stopping(&deleter->rounds) &&
        deleter->settings(deleter->service).is_enabled)
        LOG_WARN(LOG_SHARDING, 6872502, "A range could not be deleted, trying again",
                 LOG_STR("error", error_message(&err)));
    return clock_mono_us() + RETRY_US;
}

/* ---- rounds ---- */

typedef struct Gathered {
    Arena arena;
    Doc *docs;
    uint32_t count;
    uint32_t capacity;
    int64_t all; /* pending ones, too */
} Gathered;

static ErrCode gather(void *arg, Doc doc, bool *is_over, Error *err) {
    (void)is_over, (void)err;
    Gathered *gathered = arg;
    gathered->all++;
    if (elem_is_truthy(doc_get_lit(doc, "pending")))
        return ERR_OK;
    if (gathered->count == gathered->capacity) {
        uint32_t capacity = gathered->capacity * 2 + 16;
        Doc *grown = ARENA_ARRAY(&gathered->arena, Doc, capacity);
        for (uint32_t i = 0; i < gathered->count; i++)
            grown[i] = gathered->docs[i];
        gathered->docs = grown;
        gathered->capacity = capacity;
    }
    gathered->docs[gathered->count++] = doc_copy(doc, &gathered->arena);
    return ERR_OK;
}

static ErrCode read_tasks(RangeDeleter *deleter, Gathered *gathered, Error *err) {
    OpCtx *op = deleter->op;
    op_begin(op, &(OpDescription){
                     .op_type = "none", .ns = "config.rangeDeletions", .desc = "RangeDeleter"});
    ErrCode rc =
        access_each(op, &RANGE_DELETIONS_NS, /* is_forward= */ true, gather, gathered, err);
    op_end(op);
    return rc;
}

/* Returns when the next round is due. */
static int64_t run_round(RangeDeleter *deleter) {
    if (!deleter->settings(deleter->service).is_enabled) {
        deleter->known_count = 0; /* delays begin anew with the next time in office */
        return clock_mono_us() + ROUND_US_MAX;
    }
    CLEANUP(error_reset) Error err = {0};
    Gathered gathered = {0};
    arena_init(&gathered.arena, 4096);
    int64_t due_us = clock_mono_us() + ROUND_US_MAX;
    if (read_tasks(deleter, &gathered, &err) == ERR_OK) {
        atomic_store_explicit(&deleter->tasks, gathered.all, memory_order_relaxed);
        for (uint32_t i = 0; i < deleter->known_count; i++)
            deleter->known[i].is_seen = false;
        for (uint32_t i = 0; i < gathered.count; i++) {
            Uuid id;
            if (uuid_from_elem(doc_get_lit(gathered.docs[i], "_id"), &id))
                find_known(deleter, &id)->is_seen = true;
        }
        drop_unseen(deleter);
        for (uint32_t i = 0; i < gathered.count && !round_thread_is_stopping(&deleter->rounds);
             i++) {
            int64_t again_us = work_on(deleter, gathered.docs[i]);
            if (again_us != 0 && again_us < due_us)
                due_us = again_us;
        }
    } else {
        due_us = clock_mono_us() + RETRY_US;
    }
    arena_done(&gathered.arena);
    return due_us;
}

static void deleter_run(void *arg) {
    RangeDeleter *deleter = arg;
    log_set_thread_name("RangeDeleter");
    int64_t due_us = clock_mono_us();
    while (round_thread_wait(&deleter->rounds, due_us))
        due_us = run_round(deleter);
}
