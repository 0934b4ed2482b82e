#include "query/cursor/cursor_table.h"

#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/prng.h"

enum {
    BUCKET_COUNT = 1024, /* a power of two */
};

struct CursorTable {
    ServiceCtx *service;
    int64_t (*timeout_ms)(ServiceCtx *service);
    int64_t (*interval_s)(ServiceCtx *service);
    Thread reaper;
    Mutex mu;
    Cond cond;
    /* Guarded by mu. */
    bool is_stopping;
    ClientCursor *buckets[BUCKET_COUNT];
    CursorStats stats;
};

static ClientCursor **find_locked(CursorTable *table, int64_t id);
static void unlink_locked(CursorTable *table, ClientCursor *cursor);
static void cursor_free(ClientCursor *cursor);
static void reaper_run(void *arg);
static void close_idle(CursorTable *table);

CursorTable *cursor_table_new(ServiceCtx *service) {
    CursorTable *table = NEW(CursorTable);
    table->service = service;
    mutex_init(&table->mu, LOCK_RANK_CURSOR_TABLE);
    cond_init(&table->cond);
    return table;
}

ErrCode cursor_table_start(CursorTable *table, int64_t (*timeout_ms)(ServiceCtx *service),
                           int64_t (*interval_s)(ServiceCtx *service), Error *err) {
    table->timeout_ms = timeout_ms;
    table->interval_s = interval_s;
    return thread_start(&table->reaper, "CursorMonitor", reaper_run, table, err);
}

void cursor_table_free(CursorTable *table) {
    if (table == NULL)
        return;
    mutex_lock(&table->mu);
    table->is_stopping = true;
    cond_broadcast(&table->cond);
    mutex_unlock(&table->mu);
    thread_join(&table->reaper);
    for (size_t i = 0; i < BUCKET_COUNT; i++) {
        while (table->buckets[i] != NULL) {
            ClientCursor *cursor = table->buckets[i];
            table->buckets[i] = cursor->next_in_bucket;
            cursor_free(cursor);
        }
    }
    cond_done(&table->cond);
    mutex_done(&table->mu);
    xfree(table);
}

ClientCursor *client_cursor_new(const Ns *ns, CursorSource *take_source) {
    ClientCursor *cursor = NEW(ClientCursor);
    cursor->ns = *ns;
    cursor->source = take_source;
    cursor->created_wall_ms = clock_wall_ms();
    cursor->time_left_us = INT64_MAX;
    return cursor;
}

int64_t cursor_table_add(CursorTable *table, ClientCursor *take_cursor) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&table->mu);
    do {
        /* Random, so that one client cannot guess another's. */
        secure_random(&take_cursor->id, sizeof(take_cursor->id));
        take_cursor->id &= INT64_MAX;
    } while (take_cursor->id == 0 || *find_locked(table, take_cursor->id) != NULL);
    take_cursor->last_used_us = clock_mono_us();
    ClientCursor **bucket = &table->buckets[take_cursor->id & (BUCKET_COUNT - 1)];
    take_cursor->next_in_bucket = *bucket;
    *bucket = take_cursor;
    table->stats.total_opened++;
    return take_cursor->id;
}

ErrCode cursor_check_out(CursorTable *table, OpCtx *op, int64_t id, ClientCursor **ret_cursor,
                         Error *err) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&table->mu);
    ClientCursor *cursor = *find_locked(table, id);
    if (cursor == NULL || cursor->is_killed)
        return error_set(err, ERR_CURSOR_NOT_FOUND, "cursor id %lld not found", (long long)id);
    if (cursor->pinned_by != NULL)
        return error_set(err, ERR_CURSOR_IN_USE, "cursor id %lld is already in use", (long long)id);
    cursor->pinned_by = op;
    *ret_cursor = cursor;
    return ERR_OK;
}

void cursor_check_in(CursorTable *table, ClientCursor *cursor) {
    mutex_lock(&table->mu);
    cursor->pinned_by = NULL;
    cursor->last_used_us = clock_mono_us();
    bool is_killed = cursor->is_killed;
    if (is_killed)
        unlink_locked(table, cursor);
    mutex_unlock(&table->mu);
    if (is_killed)
        cursor_free(cursor);
}

void cursor_finish(CursorTable *table, ClientCursor *take_cursor) {
    mutex_lock(&table->mu);
    unlink_locked(table, take_cursor);
    mutex_unlock(&table->mu);
    cursor_free(take_cursor);
}

CursorKillResult cursor_kill(CursorTable *table, int64_t id) {
    mutex_lock(&table->mu);
    ClientCursor *cursor = *find_locked(table, id);
    if (cursor == NULL || cursor->is_killed) {
        mutex_unlock(&table->mu);
        return CURSOR_NOT_FOUND;
    }
    cursor->is_killed = true;
    bool is_pinned = cursor->pinned_by != NULL;
    if (is_pinned)
        op_kill(cursor->pinned_by, ERR_CURSOR_KILLED);
    else
        unlink_locked(table, cursor);
    mutex_unlock(&table->mu);
    if (!is_pinned)
        cursor_free(cursor);
    return CURSOR_KILLED;
}

int cursor_kill_session(CursorTable *table, const Uuid *session) {
    int count = 0;
    for (;;) {
        int64_t id = 0;
        mutex_lock(&table->mu);
        for (size_t i = 0; i < BUCKET_COUNT && id == 0; i++)
            for (ClientCursor *c = table->buckets[i]; c != NULL && id == 0; c = c->next_in_bucket)
                if (!c->is_killed && uuid_equal(&c->session, session))
                    id = c->id;
        mutex_unlock(&table->mu);
        if (id == 0)
            return count;
        count += cursor_kill(table, id) == CURSOR_KILLED;
    }
}

CursorStats cursor_table_stats(CursorTable *table) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&table->mu);
    CursorStats stats = table->stats;
    for (size_t i = 0; i < BUCKET_COUNT; i++) {
        for (ClientCursor *c = table->buckets[i]; c != NULL; c = c->next_in_bucket) {
            stats.open_total++;
            stats.open_no_timeout += c->has_no_timeout;
            stats.open_pinned += c->pinned_by != NULL;
        }
    }
    return stats;
}

void cursor_table_for_each(CursorTable *table, void (*visit)(void *arg, const ClientCursor *cursor),
                           void *arg) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&table->mu);
    for (size_t i = 0; i < BUCKET_COUNT; i++)
        for (ClientCursor *c = table->buckets[i]; c != NULL; c = c->next_in_bucket)
            visit(arg, c);
}

static ClientCursor **find_locked(CursorTable *table, int64_t id) {
    assert_held(&table->mu);
    ClientCursor **at = &table->buckets[id & (BUCKET_COUNT - 1)];
    while (*at != NULL && (*at)->id != id)
        at = &(*at)->next_in_bucket;
    return at;
}

static void unlink_locked(CursorTable *table, ClientCursor *cursor) {
    ClientCursor **at = find_locked(table, cursor->id);
    invariant(*at == cursor);
    *at = cursor->next_in_bucket;
}

static void cursor_free(ClientCursor *cursor) {
    cursor_source_free(cursor->source);
    xfree(cursor->command);
    xfree(cursor);
}

static void reaper_run(void *arg) {
    CursorTable *table = arg;
    log_set_thread_name("CursorMonitor");
    mutex_lock(&table->mu);
    while (!table->is_stopping) {
        int64_t until_us = clock_mono_us() + table->interval_s(table->service) * 1000000;
        cond_wait_until(&table->cond, &table->mu, until_us);
        if (table->is_stopping)
            break;
        mutex_unlock(&table->mu);
        close_idle(table);
        mutex_lock(&table->mu);
    }
    mutex_unlock(&table->mu);
}

static void close_idle(CursorTable *table) {
    int64_t oldest_us = clock_mono_us() - table->timeout_ms(table->service) * 1000;
    ClientCursor *idle = NULL;
    mutex_lock(&table->mu);
    for (size_t i = 0; i < BUCKET_COUNT; i++) {
        ClientCursor **at = &table->buckets[i];
        while (*at != NULL) {
            ClientCursor *cursor = *at;
            if (cursor->pinned_by != NULL || cursor->has_no_timeout ||
                cursor->last_used_us > oldest_us) {
                at = &cursor->next_in_bucket;
                continue;
            }
            *at = cursor->next_in_bucket;
            cursor->next_in_bucket = idle;
            idle = cursor;
            table->stats.timed_out++;
        }
    }
    mutex_unlock(&table->mu);
    while (idle != NULL) {
        ClientCursor *next = idle->next_in_bucket;
        LOG_INFO(LOG_QUERY, 20528, "Cursor timed out", LOG_I64("cursorId", idle->id));
        cursor_free(idle);
        idle = next;
    }
}
