/*
 * initial_sync_status.c - how far an initial sync is: for replSetGetStatus and the log.
 *
 * Written by the threads of the attempt, read by anybody; one leaf mutex, held for a moment.
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "repl/initial_sync_internal.h"

enum {
    FAILED_SHOWN_MAX = 10,
    /* A status with more collections shows their databases only: it must fit into a reply. */
    COLLECTIONS_SHOWN_MAX = 5000,
    ERROR_TEXT_SIZE = 256,
    LOG_PERIOD_US = 10 * 1000 * 1000,
};

typedef struct Span {
    int64_t start_wall_ms;
    int64_t start_us;
    int64_t end_us; /* 0: goes on */
} Span;

typedef struct CollectionStatus {
    Ns ns;
    Span span;
    int64_t docs_to_copy; /* -1: not known; so are the next two */
    int64_t bytes_to_copy;
    int64_t indexes;
    int64_t docs_copied;
    int64_t bytes_copied;
    int64_t batches;
} CollectionStatus;

typedef struct DatabaseStatus {
    char name[DB_NAME_SIZE_MAX + 1];
    Span span;
    uint32_t collections;
    uint32_t cloned;
    uint32_t first; /* of its collections in the attempt's */
    uint32_t count;
} DatabaseStatus;

typedef struct FailedAttempt {
    char host[REPL_HOST_SIZE];
    char text[ERROR_TEXT_SIZE];
    int64_t duration_ms;
    int64_t rollback_id;
    int64_t retries;
    int64_t outage_us;
} FailedAttempt;

typedef struct AttemptStatus {
    char host[REPL_HOST_SIZE];
    int64_t start_us;
    int64_t rollback_id;
    int64_t retries;
    int64_t outage_us;
    uint64_t begin_ts;
    uint64_t end_ts;
    int64_t fetched;
    int64_t applied;
    int64_t data_bytes;
    int64_t copied_bytes;
    int64_t copied_docs;
    uint32_t databases_to_clone;
    uint32_t databases_cloned;
    DatabaseStatus *databases;
    uint32_t database_count;
    uint32_t database_capacity;
    CollectionStatus *collections;
    uint32_t collection_count;
    uint32_t collection_capacity;
} AttemptStatus;

struct InitialSyncStatus {
    Mutex mu;
    /* Guarded by mu. */
    bool is_begun;
    bool has_attempt;
    Span span;
    int64_t failed_count;
    FailedAttempt failed[FAILED_SHOWN_MAX]; /* a ring: the newest ones */
    AttemptStatus attempt;
    int64_t logged_us;
};

InitialSyncStatus *initial_sync_status_new(void) {
    InitialSyncStatus *status = NEW(InitialSyncStatus);
    mutex_init(&status->mu, LOCK_RANK_LEAF);
    return status;
}

static void clear_attempt(InitialSyncStatus *status) {
    xfree(status->attempt.databases);
    xfree(status->attempt.collections);
    status->attempt = (AttemptStatus){0};
    status->has_attempt = false;
}

void initial_sync_status_free(InitialSyncStatus *status) {
    clear_attempt(status);
    mutex_done(&status->mu);
    xfree(status);
}

static Span span_begin(void) {
    return (Span){.start_wall_ms = clock_wall_ms(), .start_us = clock_mono_us()};
}

static int64_t span_ms(Span span) {
    return ((span.end_us != 0 ? span.end_us : clock_mono_us()) - span.start_us) / 1000;
}

/* ---- attempts ---- */

void status_begin_attempt(InitialSyncStatus *status, const char *host) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&status->mu);
    if (!status->is_begun)
        status->span = span_begin();
    status->is_begun = true;
    clear_attempt(status);
    status->has_attempt = true;
    status->attempt.start_us = status->logged_us = clock_mono_us();
    snprintf(status->attempt.host, sizeof(status->attempt.host), "%s", host);
}

void status_end_attempt(InitialSyncStatus *status, bool is_failure, const char *text) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&status->mu);
    const AttemptStatus *attempt = &status->attempt;
    if (is_failure) {
        FailedAttempt *failed = &status->failed[status->failed_count++ % FAILED_SHOWN_MAX];
        *failed = (FailedAttempt){.duration_ms = (clock_mono_us() - attempt->start_us) / 1000,
                                  .rollback_id = attempt->rollback_id,
                                  .retries = attempt->retries,
                                  .outage_us = attempt->outage_us};
        snprintf(failed->host, sizeof(failed->host), "%s", attempt->host);
        snprintf(failed->text, sizeof(failed->text), "%s", text);
    }
    clear_attempt(status);
}

int64_t status_failed_count(InitialSyncStatus *status) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&status->mu);
    return status->failed_count;
}

void status_done(InitialSyncStatus *status) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&status->mu);
    clear_attempt(status);
    status->is_begun = false;
    status->failed_count = 0;
}

void status_set_source(InitialSyncStatus *status, int64_t rollback_id) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&status->mu);
    status->attempt.rollback_id = rollback_id;
}

void status_set_ends(InitialSyncStatus *status, uint64_t begin_ts, uint64_t end_ts) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&status->mu);
    if (begin_ts != 0)
        status->attempt.begin_ts = begin_ts;
    if (end_ts != 0)
        status->attempt.end_ts = end_ts;
}

void status_add_applied(InitialSyncStatus *status, int64_t entries) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&status->mu);
    status->attempt.applied += entries;
}

void status_add_fetched(InitialSyncStatus *status, int64_t entries) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&status->mu);
    status->attempt.fetched += entries;
}

void status_add_retry(InitialSyncStatus *status, int64_t outage_us) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&status->mu);
    status->attempt.retries++;
    status->attempt.outage_us += outage_us;
}

void status_add_data_size(InitialSyncStatus *status, int64_t bytes) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&status->mu);
    status->attempt.data_bytes += bytes;
}

/* ---- databases and collections ---- */

static DatabaseStatus *last_database(AttemptStatus *attempt) {
    return &attempt->databases[attempt->database_count - 1];
}

static CollectionStatus *last_collection(AttemptStatus *attempt) {
    return &attempt->collections[attempt->collection_count - 1];
}

void status_set_database_count(InitialSyncStatus *status, uint32_t count) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&status->mu);
    status->attempt.databases_to_clone = count;
}

void status_begin_database(InitialSyncStatus *status, Str db, uint32_t collections) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&status->mu);
    AttemptStatus *attempt = &status->attempt;
    ARRAY_RESERVE(attempt->databases, attempt->database_count, attempt->database_capacity);
    DatabaseStatus *row = &attempt->databases[attempt->database_count++];
    *row = (DatabaseStatus){
        .span = span_begin(), .collections = collections, .first = attempt->collection_count};
    snprintf(row->name, sizeof(row->name), "%.*s", (int)db.size, db.data);
}

void status_end_database(InitialSyncStatus *status) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&status->mu);
    last_database(&status->attempt)->span.end_us = clock_mono_us();
    status->attempt.databases_cloned++;
}

void status_begin_collection(InitialSyncStatus *status, const Ns *ns, int64_t docs, int64_t bytes,
                             int64_t indexes) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&status->mu);
    AttemptStatus *attempt = &status->attempt;
    ARRAY_RESERVE(attempt->collections, attempt->collection_count, attempt->collection_capacity);
    attempt->collections[attempt->collection_count++] = (CollectionStatus){.ns = *ns,
                                                                           .span = span_begin(),
                                                                           .docs_to_copy = docs,
                                                                           .bytes_to_copy = bytes,
                                                                           .indexes = indexes};
    last_database(attempt)->count++;
}

void status_add_batch(InitialSyncStatus *status, int64_t docs, int64_t bytes) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&status->mu);
    AttemptStatus *attempt = &status->attempt;
    CollectionStatus *row = last_collection(attempt);
    row->batches++;
    row->docs_copied += docs;
    row->bytes_copied += bytes;
    attempt->copied_docs += docs;
    attempt->copied_bytes += bytes;
}

void status_end_collection(InitialSyncStatus *status) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&status->mu);
    last_collection(&status->attempt)->span.end_us = clock_mono_us();
    last_database(&status->attempt)->cloned++;
}

/* ---- telling ---- */

void status_log(InitialSyncStatus *status, int32_t log_id, const char *msg, bool is_now) {
    mutex_lock(&status->mu);
    int64_t now_us = clock_mono_us();
    if (!is_now && now_us - status->logged_us < LOG_PERIOD_US) {
        mutex_unlock(&status->mu);
        return;
    }
    status->logged_us = now_us;
    AttemptStatus attempt = status->attempt; /* its arrays are not looked at */
    mutex_unlock(&status->mu);
    LOG_INFO(LOG_REPL, log_id, msg, LOG_STR("syncSource", attempt.host),
             LOG_I64("databases", attempt.databases_cloned),
             LOG_I64("collections", attempt.collection_count),
             LOG_I64("documents", attempt.copied_docs), LOG_I64("bytes", attempt.copied_bytes),
             LOG_I64("bytesToCopy", attempt.data_bytes), LOG_I64("entriesFetched", attempt.fetched),
             LOG_I64("entriesApplied", attempt.applied), LOG_I64("retries", attempt.retries),
             LOG_I64("durationMillis", (now_us - attempt.start_us) / 1000));
}

static void build_span(DocBuilder *b, Span span) {
    build_date(b, "start", span.start_wall_ms);
    if (span.end_us != 0)
        build_date(b, "end", span.start_wall_ms + (span.end_us - span.start_us) / 1000);
    build_i64(b, "elapsedMillis", span_ms(span));
}

static void build_known(DocBuilder *b, const char *name, int64_t value) {
    if (value >= 0)
        build_i64(b, name, value);
}

static void build_collection(DocBuilder *b, const CollectionStatus *row) {
    size_t opened = build_open_doc(b, row->ns.text);
    build_known(b, "documentsToCopy", row->docs_to_copy);
    build_i64(b, "documentsCopied", row->docs_copied);
    build_known(b, "indexes", row->indexes);
    build_i64(b, "fetchedBatches", row->batches);
    build_known(b, "bytesToCopy", row->bytes_to_copy);
    build_i64(b, "approxBytesCopied", row->bytes_copied);
    build_span(b, row->span);
    build_i64(b, "receivedBatches", row->batches);
    build_close(b, opened);
}

static void build_databases(DocBuilder *b, const AttemptStatus *attempt) {
    size_t opened = build_open_doc(b, "databases");
    build_i32(b, "databasesToClone",
              (int32_t)(attempt->databases_to_clone - attempt->databases_cloned));
    build_i32(b, "databasesCloned", (int32_t)attempt->databases_cloned);
    for (uint32_t i = 0; i < attempt->database_count; i++) {
        const DatabaseStatus *row = &attempt->databases[i];
        size_t database = build_open_doc(b, row->name);
        build_i32(b, "collections", (int32_t)row->collections);
        build_i32(b, "clonedCollections", (int32_t)row->cloned);
        build_span(b, row->span);
        for (uint32_t c = 0; c < row->count; c++)
            if (attempt->collection_count <= COLLECTIONS_SHOWN_MAX)
                build_collection(b, &attempt->collections[row->first + c]);
        build_close(b, database);
    }
    build_close(b, opened);
}

static void build_failed(DocBuilder *b, const InitialSyncStatus *status) {
    size_t opened = build_open_array(b, "initialSyncAttempts");
    int64_t first =
        status->failed_count > FAILED_SHOWN_MAX ? status->failed_count - FAILED_SHOWN_MAX : 0;
    for (int64_t i = first; i < status->failed_count; i++) {
        const FailedAttempt *failed = &status->failed[i % FAILED_SHOWN_MAX];
        char name[INDEX_NAME_SIZE];
        size_t row = build_open_doc_str(b, index_name((uint32_t)(i - first), name));
        build_i64(b, "durationMillis", failed->duration_ms);
        build_cstr(b, "status", failed->text);
        build_cstr(b, "syncSource", failed->host);
        build_i64(b, "rollBackId", failed->rollback_id);
        build_i64(b, "operationsRetried", failed->retries);
        build_i64(b, "totalTimeUnreachableMillis", failed->outage_us / 1000);
        build_close(b, row);
    }
    build_close(b, opened);
}

static void build_attempt(DocBuilder *b, const AttemptStatus *attempt) {
    build_i64(b, "appliedOps", attempt->applied);
    if (attempt->begin_ts != 0)
        build_timestamp(b, "initialSyncOplogStart", attempt->begin_ts);
    if (attempt->end_ts != 0)
        build_timestamp(b, "initialSyncOplogEnd", attempt->end_ts);
    build_i64(b, "operationsRetried", attempt->retries);
    build_i64(b, "totalTimeUnreachableMillis", attempt->outage_us / 1000);
    build_i64(b, "approxTotalDataSize", attempt->data_bytes);
    build_i64(b, "approxTotalBytesCopied", attempt->copied_bytes);
    /* As long as what is left takes at the speed so far. */
    int64_t left = attempt->data_bytes - attempt->copied_bytes;
    int64_t elapsed_ms = (clock_mono_us() - attempt->start_us) / 1000;
    if (attempt->copied_bytes > 0 && left >= 0)
        build_i64(b, "remainingInitialSyncEstimatedMillis",
                  (int64_t)((double)elapsed_ms * (double)left / (double)attempt->copied_bytes));
    build_databases(b, attempt);
}

void repl_build_initial_sync_status(Repl *repl, DocBuilder *b) {
    InitialSyncStatus *status = repl->sync->initial_sync;
    int64_t attempts_max = repl->hooks.initial_sync_settings(repl->service).attempts_max;
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&status->mu);
    if (!status->is_begun)
        return;
    size_t opened = build_open_doc(b, "initialSyncStatus");
    build_i64(b, "failedInitialSyncAttempts", status->failed_count);
    build_i64(b, "maxFailedInitialSyncAttempts", attempts_max);
    build_date(b, "initialSyncStart", status->span.start_wall_ms);
    build_i64(b, "totalInitialSyncElapsedMillis", span_ms(status->span));
    build_failed(b, status);
    if (status->has_attempt)
        build_attempt(b, &status->attempt);
    build_close(b, opened);
}
