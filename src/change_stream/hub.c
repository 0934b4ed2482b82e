/*
 * hub.c - one reader of the oplog for all streams that wait.
 *
 * Invariant, under the mutex: every waiter has been judged for all entries up to `read_ts`, except
 * those up to its own scanned_ts. A stream may enter only if it has read that far itself. While no
 * stream waits nothing is read: the next one to enter says where to begin.
 *
 *     waiters by what they watch: a table of buckets by the hash of "db.collection" or "db", and
 *     one list of those that watch everything. Writes of documents, alone or in a unit, look up two
 *     buckets; commands, marks, chains and commits of prepared transactions go through all waiters.
 */
#include "change_stream/hub.h"

#include <stdatomic.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/round_thread.h"
#include "catalog/write_group.h"
#include "concurrency/op_ctx.h"
#include "repl/repl.h"
#include "storage/engine.h"
#include "storage/global_lock.h"
#include "storage/record_store.h"
#include "transport/server.h"

enum {
    BUCKET_COUNT = 1024, /* a power of two */
    /* Entries of one round share a snapshot; rounds follow each other at this distance at least, so
     * that a busy node is not read entry by entry. */
    ROUND_INTERVAL_US = 2000,
    ROUND_ENTRIES_MAX = 4096,
    TICKETS_MAX = 64,
};

struct StreamHub {
    ServiceCtx *service;
    RoundThread thread;
    OpCtx *op; /* of the thread */
    _Atomic int64_t waiting_count;
    _Atomic int64_t open_count;
    _Atomic int64_t entries_read;
    _Atomic int64_t woken_count;
    Mutex mu;
    /* Guarded by mu. */
    List buckets[BUCKET_COUNT];
    List of_cluster;
    uint64_t read_ts;
};

/* Requests to be woken once the mutex is released. */
typedef struct Wakes {
    uint64_t tickets[TICKETS_MAX];
    uint32_t count;
} Wakes;

static void hub_run(void *arg);

StreamHub *stream_hub_new(ServiceCtx *service) {
    StreamHub *hub = NEW(StreamHub);
    hub->service = service;
    mutex_init(&hub->mu, LOCK_RANK_STREAM_HUB);
    round_thread_init(&hub->thread);
    for (size_t i = 0; i < BUCKET_COUNT; i++)
        list_init(&hub->buckets[i]);
    list_init(&hub->of_cluster);
    return hub;
}

ErrCode stream_hub_start(StreamHub *hub, Error *err) {
    return round_thread_start(&hub->thread, "ChangeStreams", hub_run, hub, err);
}

void stream_hub_stop(StreamHub *hub) {
    if (hub != NULL)
        round_thread_stop(&hub->thread);
}

void stream_hub_free(StreamHub *hub) {
    if (hub == NULL)
        return;
    round_thread_done(&hub->thread);
    mutex_done(&hub->mu);
    xfree(hub);
}

void stream_hub_committed(StreamHub *hub) {
    /* In one order with the store of the commit point before, and with what stream_hub_enter does
     * the other way round: either this sees the waiter, or the waiter sees the new point. */
    if (atomic_load(&hub->waiting_count) > 0)
        round_thread_wake(&hub->thread);
}

void stream_hub_count_open(StreamHub *hub, int64_t change) {
    atomic_fetch_add_explicit(&hub->open_count, change, memory_order_relaxed);
}

StreamHubStats stream_hub_stats(StreamHub *hub) {
    return (StreamHubStats){atomic_load(&hub->open_count), atomic_load(&hub->waiting_count),
                            atomic_load(&hub->entries_read), atomic_load(&hub->woken_count)};
}

/* ---- waiters ---- */

static List *bucket_of(StreamHub *hub, Str name) {
    return &hub->buckets[hash_bytes(name.data, name.size) & (BUCKET_COUNT - 1)];
}

static List *list_of(StreamHub *hub, const StreamFilter *filter) {
    switch (filter->scope) {
    case SCOPE_COLLECTION:
        return bucket_of(hub, ns_str(&filter->ns));
    case SCOPE_DATABASE:
        return bucket_of(hub, ns_db(&filter->ns));
    case SCOPE_CLUSTER:
        break;
    }
    return &hub->of_cluster;
}

bool stream_hub_enter(StreamHub *hub, StreamWaiter *waiter) {
    mutex_lock(&hub->mu);
    bool is_first = atomic_load_explicit(&hub->waiting_count, memory_order_relaxed) == 0;
    if (is_first) {
        /* One that begins in the future says nothing about the present. */
        uint64_t committed_ts = storage_majority_ts(hub->service->storage);
        hub->read_ts = waiter->scanned_ts < committed_ts ? waiter->scanned_ts : committed_ts;
    }
    bool is_entered = waiter->scanned_ts >= hub->read_ts;
    if (is_entered) {
        waiter->is_waiting = true;
        list_push_back(list_of(hub, waiter->filter), &waiter->node);
        atomic_fetch_add(&hub->waiting_count, 1);
    }
    mutex_unlock(&hub->mu);
    /* The commit point may have moved before the count was seen by its mover. */
    atomic_thread_fence(memory_order_seq_cst);
    if (is_entered && storage_majority_ts(hub->service->storage) > waiter->scanned_ts)
        round_thread_wake(&hub->thread);
    return is_entered;
}

static void remove_locked(StreamHub *hub, StreamWaiter *waiter) {
    assert_held(&hub->mu);
    list_remove(&waiter->node);
    waiter->is_waiting = false;
    atomic_fetch_sub(&hub->waiting_count, 1);
}

bool stream_hub_leave(StreamHub *hub, StreamWaiter *waiter, uint64_t *ret_ts) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&hub->mu);
    *ret_ts = waiter->scanned_ts;
    if (!waiter->is_waiting)
        return false;
    if (hub->read_ts > *ret_ts)
        *ret_ts = hub->read_ts;
    remove_locked(hub, waiter);
    return true;
}

void stream_hub_wake(StreamHub *hub, const StreamWaiter *waiter) {
    /* Cursors outlive the transport at shutdown. */
    if (hub->service->transport != NULL)
        transport_wake(hub->service->transport, waiter->ticket);
}

/* ---- the reader ---- */

static void wake_all(StreamHub *hub, Wakes *wakes) {
    for (uint32_t i = 0; i < wakes->count; i++)
        transport_wake(hub->service->transport, wakes->tickets[i]);
    wakes->count = 0;
}

typedef bool (*JudgeFn)(const StreamFilter *filter, Doc doc);

/* False: no room for more wake-ups; the entry has to be judged again. */
static bool judge_list(StreamHub *hub, List *list, uint64_t ts, JudgeFn judge, Doc doc,
                       Wakes *wakes) {
    LIST_FOR_EACH (list, node) {
        StreamWaiter *waiter = CONTAINER_OF(node, StreamWaiter, node);
        if (ts <= waiter->scanned_ts || !judge(waiter->filter, doc))
            continue;
        if (wakes->count == TICKETS_MAX)
            return false;
        wakes->tickets[wakes->count++] = waiter->ticket;
        remove_locked(hub, waiter);
        atomic_fetch_add_explicit(&hub->woken_count, 1, memory_order_relaxed);
    }
    return true;
}

static bool judge_all(StreamHub *hub, uint64_t ts, JudgeFn judge, Doc doc, Wakes *wakes) {
    for (size_t i = 0; i < BUCKET_COUNT; i++)
        if (!judge_list(hub, &hub->buckets[i], ts, judge, doc, wakes))
            return false;
    return judge_list(hub, &hub->of_cluster, ts, judge, doc, wakes);
}

/* One write: those who watch its namespace, if it is of a document. */
static bool judge_write(StreamHub *hub, uint64_t ts, Doc write, Wakes *wakes) {
    Elem op = doc_get_lit(write, "op");
    Elem ns = doc_get_lit(write, "ns");
    if (elem_type(op) != BT_STRING || elem_type(ns) != BT_STRING)
        return true;
    Str name = elem_str(ns);
    const char *dot = memchr(name.data, '.', name.size);
    /* Views are documents of system.views, and shown to those who watch the database or more. */
    char kind = elem_str(op).data[0];
    if (kind == 'c' || kind == 'n' || dot == NULL)
        return judge_all(hub, ts, filter_may_concern_write, write, wakes);
    List *const lists[] = {bucket_of(hub, name),
                           bucket_of(hub, (Str){name.data, (size_t)(dot - name.data)}),
                           &hub->of_cluster};
    for (size_t i = 0; i < ARRAY_LEN(lists); i++)
        if (!judge_list(hub, lists[i], ts, filter_may_concern_write, write, wakes))
            return false;
    return true;
}

static bool judge_locked(StreamHub *hub, uint64_t ts, Doc entry, Wakes *wakes) {
    EntryForm form = entry_form(entry);
    if (form == ENTRY_FORM_NOTHING)
        return true;
    if (form == ENTRY_FORM_ONE)
        return judge_write(hub, ts, entry, wakes);
    /* Its writes are elsewhere, or it is about a whole database. */
    if (form != ENTRY_FORM_UNIT || entry_part(entry) == ENTRY_LAST)
        return judge_all(hub, ts, filter_may_concern, entry, wakes);
    DocIter iter = doc_iter(elem_doc(doc_get_path(entry, "o.applyOps")));
    Elem row;
    while (doc_iter_next(&iter, &row))
        if (elem_type(row) == BT_DOC && !judge_write(hub, ts, elem_doc(row), wakes))
            return false;
    return true;
}

/* Judges one entry. False: the round is over, as no stream waits or another beginning was set. */
static bool judge_entry(StreamHub *hub, uint64_t *known_ts, uint64_t ts, Doc entry) {
    for (;;) {
        Wakes wakes = {.count = 0};
        mutex_lock(&hub->mu);
        bool is_current = hub->read_ts == *known_ts && atomic_load(&hub->waiting_count) > 0;
        bool is_judged = !is_current || judge_locked(hub, ts, entry, &wakes);
        if (is_current && is_judged)
            hub->read_ts = *known_ts = ts;
        mutex_unlock(&hub->mu);
        wake_all(hub, &wakes);
        if (is_judged)
            return is_current;
    }
}

/* Everything up to the commit point was judged. */
static void finish_at(StreamHub *hub, uint64_t known_ts, uint64_t until_ts) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&hub->mu);
    if (hub->read_ts == known_ts && until_ts > known_ts)
        hub->read_ts = until_ts;
}

/* One snapshot of the oplog. *ret_is_more: there are entries left. */
static ErrCode read_some(StreamHub *hub, uint64_t from_ts, uint64_t until_ts, bool *ret_is_more,
                         Error *err) {
    const Collection *coll = oplog_collection(repl_oplog(hub->service->repl));
    CLEANUP(record_cursor_done) RecordCursor cursor = {0};
    TRY(record_cursor_open(hub->op, coll->records, /* is_forward= */ true, &cursor, err));
    TRY(record_cursor_seek_near(&cursor, record_id_num((int64_t)from_ts + 1), err));
    uint64_t known_ts = from_ts;
    for (uint32_t count = 0; count < ROUND_ENTRIES_MAX; count++) {
        bool is_found;
        RecordId rid;
        Str data;
        TRY(record_cursor_next(&cursor, &is_found, &rid, &data, err));
        if (!is_found || (uint64_t)rid.num > until_ts) {
            finish_at(hub, known_ts, until_ts);
            *ret_is_more = false;
            return ERR_OK;
        }
        atomic_fetch_add_explicit(&hub->entries_read, 1, memory_order_relaxed);
        if (!judge_entry(hub, &known_ts, (uint64_t)rid.num, (Doc){(const uint8_t *)data.data}))
            break;
    }
    *ret_is_more = true;
    return ERR_OK;
}

/* History that was trimmed before it was read here cannot be judged: everyone reads for itself and
 * finds out. */
static void wake_everyone(StreamHub *hub) {
    for (;;) {
        Wakes wakes = {.count = 0};
        mutex_lock(&hub->mu);
        for (size_t i = 0; i <= BUCKET_COUNT && wakes.count < TICKETS_MAX; i++) {
            List *list = i < BUCKET_COUNT ? &hub->buckets[i] : &hub->of_cluster;
            LIST_FOR_EACH (list, node) {
                if (wakes.count == TICKETS_MAX)
                    break;
                StreamWaiter *waiter = CONTAINER_OF(node, StreamWaiter, node);
                wakes.tickets[wakes.count++] = waiter->ticket;
                remove_locked(hub, waiter);
            }
        }
        mutex_unlock(&hub->mu);
        if (wakes.count == 0)
            return;
        wake_all(hub, &wakes);
    }
}

static ErrCode round_of(StreamHub *hub, Error *err) {
    for (bool is_more = true; is_more && !round_thread_is_stopping(&hub->thread);) {
        mutex_lock(&hub->mu);
        uint64_t from_ts = hub->read_ts;
        bool is_idle = atomic_load(&hub->waiting_count) == 0;
        mutex_unlock(&hub->mu);
        uint64_t until_ts = storage_majority_ts(hub->service->storage);
        if (is_idle || until_ts <= from_ts)
            return ERR_OK;
        TRY(op_lock_global(hub->op, LOCK_IS, err));
        ErrCode rc = read_some(hub, from_ts, until_ts, &is_more, err);
        op_unlock_global(hub->op);
        TRY(rc);
        if (oplog_truncated_to(repl_oplog(hub->service->repl)) > from_ts)
            wake_everyone(hub);
    }
    return ERR_OK;
}

static void hub_run(void *arg) {
    StreamHub *hub = arg;
    log_set_thread_name("ChangeStreams");
    hub->op = op_ctx_new(hub->service->ops, NULL, NULL);
    hub->op->service = hub->service;
    hub->op->is_kill_exempt = true;
    hub->op->admission_priority = ADMISSION_IMMEDIATE;
    op_attach_storage(hub->op, hub->service->storage);
    int64_t next_us = 0;
    while (round_thread_wait(&hub->thread, INT64_MAX)) {
        CLEANUP(error_reset) Error err = {0};
        op_begin(hub->op, &(OpDescription){
                              .op_type = "none", .ns = "local.oplog.rs", .desc = "ChangeStreams"});
        int64_t early_us = next_us - clock_mono_us();
        ErrCode rc = early_us > 0 ? op_sleep_us(hub->op, early_us, &err) : ERR_OK;
        if (rc == ERR_OK)
            rc = round_of(hub, &err);
        next_us = clock_mono_us() + ROUND_INTERVAL_US;
        op_end(hub->op);
        if (rc != ERR_OK) {
            LOG_WARN(LOG_QUERY, 7400101, "Waiting change streams could not be served",
                     LOG_STR("error", error_message(&err)));
            wake_everyone(hub);
        }
    }
    op_ctx_free(hub->op);
}
