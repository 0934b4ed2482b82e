#include "cursor/cursor_table.h"

#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/prng.h"
#include "base/round_thread.h"

enum {
    BUCKET_COUNT = 1024, /* a power of two */
};

struct CursorTable {
    ServiceCtx *service;
    int64_t (*timeout_ms)(ServiceCtx *service, bool is_in_session);
    int64_t (*interval_s)(ServiceCtx *service);
    RoundThread reaper;
    Mutex mu;
    /* Guarded by mu. */
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
    round_thread_init(&table->reaper);
    return table;
}

ErrCode cursor_table_start(CursorTable *table,
                           int64_t (*timeout_ms)(ServiceCtx *service, bool is_in_session),
                           int64_t (*interval_s)(ServiceCtx *service), Error *err) {
    table->timeout_ms = timeout_ms;
    table->interval_s = interval_s;
    return round_thread_start(&table->reaper, "CursorMonitor", reaper_run, table, err);
}

void cursor_table_free(CursorTable *table) {
    if (table == NULL)
        return;
    round_thread_stop(&table->reaper);
    for (size_t i = 0; i < BUCKET_COUNT; i++) {
        while (table->buckets[i] != NULL) {
            ClientCursor *cursor = table->buckets[i];
            table->buckets[i] = cursor->next_in_bucket;
            cursor_free(cursor);
        }
    }
    round_thread_done(&table->reaper);
    mutex_done(&table->mu);
    xfree(table);
}

ClientCursor *client_cursor_new(const Ns *ns, CursorSource *take_source) {
    ClientCursor *cursor = NEW(ClientCursor);
    cursor->ns = *ns;
    cursor->source = take_source;
    cursor->created_wall_ms = clock_wall_ms();
    cursor->time_left_us = INT64_MAX;
    cursor->txn_number = -1;
    return cursor;
}

void client_cursor_set_writing(ClientCursor *cursor, const WriteConcern *concern) {
    cursor->is_writing = true;
    cursor->write_concern = *concern;
    cursor->write_concern.w_tag = (Str){0};
    if (concern->w_tag.size == 0)
        return;
    char *tag = xmalloc(concern->w_tag.size + 1);
    memcpy(tag, concern->w_tag.data, concern->w_tag.size);
    tag[concern->w_tag.size] = '\0';
    cursor->write_concern.w_tag = (Str){tag, concern->w_tag.size};
}

ErrCode client_cursor_check_api(const ClientCursor *cursor, const CursorApi *now, Error *err) {
    Doc opened = {cursor->command};
    const struct {
        Elem now, then;
    } PAIRS[] = {
        {now->version, doc_get_lit(opened, "apiVersion")},
        {now->strict, doc_get_lit(opened, "apiStrict")},
        {now->deprecation_errors, doc_get_lit(opened, "apiDeprecationErrors")},
    };
    for (size_t i = 0; i < ARRAY_LEN(PAIRS); i++)
        if (elem_is_present(PAIRS[i].now) != elem_is_present(PAIRS[i].then) ||
            elem_is_truthy(PAIRS[i].now) != elem_is_truthy(PAIRS[i].then))
            return error_set(
                err, ERR_API_MISMATCH_ERROR,
                "API parameter mismatch: getMore and the command that created the cursor differ in "
                "%s",
                elem_name(elem_is_present(PAIRS[i].now) ? PAIRS[i].now : PAIRS[i].then));
    return ERR_OK;
}

ErrCode client_cursor_check_time(const ClientCursor *cursor, Elem max_time_ms, Error *err) {
    if (cursor->is_await_data || cursor->source->ops->wait != NULL ||
        !elem_is_present(max_time_ms) || elem_as_i64(max_time_ms) == 0)
        return ERR_OK;
    return error_set(err, ERR_BAD_VALUE,
                     "cannot set maxTimeMS on getMore command for a non-awaitData cursor");
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

ErrCode cursor_check_out(CursorTable *table, OpCtx *op, uint64_t connection_id, int64_t id,
                         ClientCursor **ret_cursor, Error *err) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&table->mu);
    ClientCursor *cursor = *find_locked(table, id);
    if (cursor == NULL || cursor->is_killed)
        return error_set(err, ERR_CURSOR_NOT_FOUND, "cursor id %lld not found", (long long)id);
    bool is_foreign = cursor->parked_on != 0 && cursor->parked_on != connection_id;
    if (cursor->pinned_by != NULL || is_foreign)
        return error_set(err, ERR_CURSOR_IN_USE, "cursor id %lld is already in use", (long long)id);
    cursor->pinned_by = op;
    cursor->parked_on = 0;
    *ret_cursor = cursor;
    return ERR_OK;
}

bool cursor_park(CursorTable *table, ClientCursor *cursor, uint64_t connection_id) {
    mutex_lock(&table->mu);
    cursor->pinned_by = NULL;
    cursor->parked_on = connection_id;
    cursor->last_used_us = clock_mono_us();
    bool is_killed = cursor->is_killed;
    if (is_killed)
        unlink_locked(table, cursor);
    mutex_unlock(&table->mu);
    if (is_killed)
        cursor_free(cursor);
    return !is_killed;
}

bool cursor_can_park(CursorTable *table, int64_t id) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&table->mu);
    const ClientCursor *cursor = *find_locked(table, id);
    return cursor != NULL && cursor->source->ops->wait != NULL;
}

void cursor_check_in(CursorTable *table, ClientCursor *cursor) {
    (void)cursor_park(table, cursor, /* connection_id= */ 0);
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

static int kill_where(CursorTable *table, const Uuid *session, int64_t txn_number);

int cursor_kill_session(CursorTable *table, const Uuid *session) {
    return kill_where(table, session, /* txn_number= */ -1);
}

int cursor_kill_txn(CursorTable *table, const Uuid *session, int64_t txn_number) {
    return kill_where(table, session, txn_number);
}

/* Those of the session, and of that transaction unless it is -1. */
static int kill_where(CursorTable *table, const Uuid *session, int64_t txn_number) {
    int count = 0;
    for (;;) {
        int64_t id = 0;
        mutex_lock(&table->mu);
        for (size_t i = 0; i < BUCKET_COUNT && id == 0; i++)
            for (ClientCursor *c = table->buckets[i]; c != NULL && id == 0; c = c->next_in_bucket)
                if (!c->is_killed && uuid_equal(&c->session, session) &&
                    (txn_number < 0 || c->txn_number == txn_number))
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
            stats.open_of_several += c->is_of_several;
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
    table->stats.closed_of_batches += cursor->batch_count > 1;
}

static void cursor_free(ClientCursor *cursor) {
    cursor_source_free(cursor->source);
    xfree(cursor->command);
    xfree(cursor->plan_summary);
    xfree(cursor->routing);
    xfree((char *)cursor->write_concern.w_tag.data);
    xfree(cursor);
}

static void reaper_run(void *arg) {
    CursorTable *table = arg;
    log_set_thread_name("CursorMonitor");
    while (round_thread_wait(&table->reaper,
                             clock_mono_us() + table->interval_s(table->service) * 1000000))
        close_idle(table);
}

/* Cursors that were used before are closed. */
static int64_t oldest_of(const CursorTable *table, bool is_in_session) {
    int64_t timeout_ms = table->timeout_ms(table->service, is_in_session);
    return timeout_ms == INT64_MAX ? INT64_MIN : clock_mono_us() - timeout_ms * 1000;
}

static void close_idle(CursorTable *table) {
    static const Uuid NO_SESSION;
    int64_t oldest_us = oldest_of(table, /* is_in_session= */ false);
    int64_t oldest_in_session_us = oldest_of(table, /* is_in_session= */ true);
    ClientCursor *idle = NULL;
    mutex_lock(&table->mu);
    for (size_t i = 0; i < BUCKET_COUNT; i++) {
        ClientCursor **at = &table->buckets[i];
        while (*at != NULL) {
            ClientCursor *cursor = *at;
            if (cursor->pinned_by != NULL || cursor->parked_on != 0 || cursor->has_no_timeout ||
                cursor->last_used_us > (uuid_equal(&cursor->session, &NO_SESSION)
                                            ? oldest_us
                                            : oldest_in_session_us)) {
                at = &cursor->next_in_bucket;
                continue;
            }
            *at = cursor->next_in_bucket;
            cursor->next_in_bucket = idle;
            idle = cursor;
            table->stats.timed_out++;
            table->stats.closed_of_batches += cursor->batch_count > 1;
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

ErrCode client_cursor_check_session(const ClientCursor *cursor, Elem lsid, Error *err) {
    static const Uuid NONE = {{0}};
    Uuid session = NONE;
    if (elem_is_present(lsid))
        (void)uuid_from_elem(doc_get_lit(elem_doc(lsid), "id"), &session);
    if (uuid_equal(&session, &cursor->session))
        return ERR_OK;
    char mine[UUID_TEXT_SIZE], theirs[UUID_TEXT_SIZE];
    uuid_to_text(&session, mine);
    uuid_to_text(&cursor->session, theirs);
    if (uuid_equal(&session, &NONE))
        return error_set(
            err, (ErrCode)50736,
            "Cannot run getMore on cursor %lld, which was created in session %s, without "
            "an lsid",
            (long long)cursor->id, theirs);
    if (uuid_equal(&cursor->session, &NONE))
        return error_set(
            err, (ErrCode)50737,
            "Cannot run getMore on cursor %lld, which was not created in a session, in "
            "session %s",
            (long long)cursor->id, mine);
    return error_set(
        err, (ErrCode)50738,
        "Cannot run getMore on cursor %lld, which was created in session %s, in session %s",
        (long long)cursor->id, theirs, mine);
}
