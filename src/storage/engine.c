#include "storage/engine.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <unistd.h>
#include <wiredtiger_ext.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "base/prng.h"
#include "storage/journal_check.h"
#include "storage/storage_internal.h"

enum {
    CACHE_MB_MIN = 256,
    TABLE_FILES_DEFAULT = 256,
    /* The longest foreign transaction is a statistics or metadata cursor: milliseconds. Ten seconds
     * mean that something is stuck, and the caller should see the error. */
    QUIET_WAIT_US_MAX = 10 * 1000 * 1000,
    QUIET_PAUSE_US = 5 * 1000,
};

/* The process ends after a close, so freeing the cache page by page is wasted time; a leak check
 * wants it. */
#ifdef __SANITIZE_ADDRESS__
#define CLOSE_CONFIG NULL
#else
#define CLOSE_CONFIG "leak_memory=true"
#endif

/* Entry point that WiredTiger looks up by name in this executable; registers the file system and
 * the compressors. */
int sherd_wt_extensions(WT_CONNECTION *conn, WT_CONFIG_ARG *config);
int snappy_extension_init(WT_CONNECTION *conn, WT_CONFIG_ARG *config);

static ErrCode check_directory(const char *dbpath, Error *err);
static ErrCode take_lock_file(StorageEngine *engine, Error *err);
static ErrCode check_not_half_deleted(const char *dbpath, Error *err);
static ErrCode open_connection(StorageEngine *engine, const StorageConfig *config, Error *err);
static int64_t default_cache_mb(void);
static int on_wt_error(WT_EVENT_HANDLER *handler, WT_SESSION *session, int error,
                       const char *message);
static int on_wt_message(WT_EVENT_HANDLER *handler, WT_SESSION *session, const char *message);
static int64_t read_stat(WT_CURSOR *cursor, int key);

static WT_EVENT_HANDLER EVENT_HANDLER = {on_wt_error, on_wt_message, NULL, NULL};

ErrCode storage_open(const StorageConfig *config, OpRegistry *registry, StorageEngine **ret_engine,
                     Error *err) {
    TRY(check_directory(config->dbpath, err));

    StorageEngine *engine = NEW(StorageEngine);
    engine->dbpath = xstrdup(config->dbpath);
    engine->lock_fd = -1;
    engine->journal_mark = journal_mark_new(config->dbpath);
    engine->files =
        file_pool_new(config->table_files_max > 0 ? config->table_files_max : TABLE_FILES_DEFAULT,
                      engine->journal_mark);
    engine->registry = registry;
    engine->is_directory_per_db = config->is_directory_per_db;
    engine->is_replicated = config->is_replicated;
    engine->journal_interval_ms = config->journal_interval_ms;
    engine->checkpoint_interval_s = config->checkpoint_interval_s;
    engine->retry.is_temporarily_unavailable_enabled = true;
    engine->retry.temporarily_unavailable_retries_max = 10;
    engine->retry.temporarily_unavailable_backoff_base_ms = 1000;
    engine->retry.transaction_too_large_threshold = 0.75;
    secure_random(&engine->ident_random, sizeof(engine->ident_random));
    engine->ident_random >>= 1;
    mutex_init(&engine->checkpoint_mu, LOCK_RANK_CHECKPOINT);
    mutex_init(&engine->reaper_mu, LOCK_RANK_IDENT_REAPER);
    cond_init(&engine->reaper_cond);
    list_init(&engine->pending_drops);
    mutex_init(&engine->size_mu, LOCK_RANK_SIZE_STORER);
    mutex_init(&engine->commit_ts_mu, LOCK_RANK_COMMIT_TIMES);
    list_init(&engine->open_stores);
    mutex_init(&engine->prepared_mu, LOCK_RANK_PREPARED_UNITS);
    list_init(&engine->prepared_waiters);
    round_thread_init(&engine->checkpointer);
    round_thread_init(&engine->monitor);
    round_thread_init(&engine->admission);
    journal_init(&engine->journal);
    mutex_init(&engine->admission_mu, LOCK_RANK_ADMISSION);
    engine->read_tickets = ticket_pool_new("read", TICKETS_INITIAL);
    engine->write_tickets = ticket_pool_new("write", TICKETS_INITIAL);
    storage_set_tickets(engine, /* is_write= */ false, config->read_tickets);
    storage_set_tickets(engine, /* is_write= */ true, config->write_tickets);

    /* The lock file comes first, since everything after it reads or writes the data directory. The
     * journal is checked before WiredTiger opens it: opening replays, and would silently drop what
     * lies after an unreadable record. */
    ErrCode rc = take_lock_file(engine, err);
    if (rc == ERR_OK)
        rc = check_not_half_deleted(config->dbpath, err);
    if (rc == ERR_OK)
        rc = journal_check(config->dbpath, config->is_journal_loss_accepted, err);
    if (rc == ERR_OK)
        rc = open_connection(engine, config, err);
    if (rc == ERR_OK)
        rc = journal_open(engine, err);
    if (rc == ERR_OK)
        rc = size_store_open(engine, err);
    if (rc != ERR_OK) {
        storage_close(engine);
        return rc;
    }
    disk_space_check(engine);
    *ret_engine = engine;
    return ERR_OK;
}

ErrCode storage_start_threads(StorageEngine *engine, Error *err) {
    TRY(thread_start(&engine->flusher, "JournalFlusher", journal_flusher_run, engine, err));
    TRY(round_thread_start(&engine->checkpointer, "Checkpointer", checkpointer_run, engine, err));
    TRY(round_thread_start(&engine->admission, "Admission", admission_run, engine, err));
    return round_thread_start(&engine->monitor, "StorageMonitor", monitor_run, engine, err);
}

void storage_close(StorageEngine *engine) {
    if (engine == NULL)
        return;
    journal_flusher_stop(engine);
    round_thread_stop(&engine->checkpointer);
    round_thread_stop(&engine->monitor);
    round_thread_stop(&engine->admission);

    bool is_clean = false;
    if (engine->conn != NULL) {
        Error err = {0};
        /* Background threads have stopped, so nothing can change the counts any more; the final
         * checkpoint that conn->close takes includes them. */
        if (engine->is_size_table_ready && size_store_flush(engine, &err) != ERR_OK)
            LOG_WARN(LOG_STORAGE, 7100101, "Could not write record counts at stop",
                     LOG_STR("error", error_message(&err)));
        storage_reap_idents(engine);
        error_reset(&err);
        reaper_forget_all(engine);
        journal_close(engine);
        int rc = engine->conn->close(engine->conn, CLOSE_CONFIG);
        is_clean = rc == 0;
        if (rc != 0)
            LOG_ERROR(LOG_STORAGE, 7100102, "WiredTiger did not close cleanly",
                      LOG_STR("error", wiredtiger_strerror(rc)));
    }
    if (engine->lock_fd >= 0) {
        /* An empty lock file is the mark of a clean stop. */
        if (is_clean && ftruncate(engine->lock_fd, 0) != 0)
            LOG_WARN(LOG_STORAGE, 7100103, "Could not empty the lock file",
                     LOG_STR("error", strerror(errno)));
        close(engine->lock_fd);
    }
    ticket_pool_free(engine->read_tickets);
    ticket_pool_free(engine->write_tickets);
    mutex_done(&engine->admission_mu);
    round_thread_done(&engine->checkpointer);
    round_thread_done(&engine->monitor);
    round_thread_done(&engine->admission);
    journal_done(&engine->journal);
    mutex_done(&engine->commit_ts_mu);
    mutex_done(&engine->prepared_mu);
    mutex_done(&engine->size_mu);
    cond_done(&engine->reaper_cond);
    mutex_done(&engine->reaper_mu);
    mutex_done(&engine->checkpoint_mu);
    file_pool_free(engine->files);
    journal_mark_free(engine->journal_mark);
    xfree(engine->dbpath);
    xfree(engine);
}

ErrCode storage_checkpoint(StorageEngine *engine, Error *err) {
    CLEANUP(wt_session_close) WT_SESSION *session = NULL;
    TRY(storage_open_session(engine, &session, err));
    failpoint_hit(FP_BEFORE_CHECKPOINT);
    int64_t start_us = clock_mono_us();
    /* The exception to "no I/O under a mutex": this one is there to serialise that very I/O. */
    mutex_lock(&engine->checkpoint_mu);
    /* Counts first, so that the checkpoint contains counts no older than its data. */
    ErrCode flush_rc = size_store_flush(engine, err);
    /* Before the checkpoint begins: a drop recorded after this point waits for the next checkpoint,
     * since this one may not contain its catalog change. */
    int64_t number = 1 + atomic_fetch_add(&engine->checkpoint_started, 1);
    int rc = flush_rc == ERR_OK ? WT_APART(session->checkpoint(session, NULL)) : 0;
    if (rc == 0 && flush_rc == ERR_OK)
        atomic_store(&engine->checkpoint_done, number);
    mutex_unlock(&engine->checkpoint_mu);
    TRY(flush_rc);
    failpoint_hit(FP_AFTER_CHECKPOINT);
    if (rc != 0)
        return wt_error(engine, rc, "write a checkpoint", NULL, err);
    atomic_fetch_add(&engine->checkpoint_count, 1);
    atomic_store(&engine->checkpoint_ms_last, (clock_mono_us() - start_us) / 1000);
    return ERR_OK;
}

void storage_set_majority_ts(StorageEngine *engine, uint64_t ts) {
    atomic_store(&engine->majority_ts, ts);
}

uint64_t storage_majority_ts(const StorageEngine *engine) {
    return atomic_load_explicit(&engine->majority_ts, memory_order_acquire);
}

void storage_set_last_applied_ts(StorageEngine *engine, uint64_t ts) {
    atomic_store(&engine->last_applied_ts, ts);
}

uint64_t storage_last_applied_ts(const StorageEngine *engine) {
    return atomic_load_explicit(&engine->last_applied_ts, memory_order_relaxed);
}

ErrCode storage_set_stable_and_oldest(StorageEngine *engine, uint64_t stable_ts, uint64_t oldest_ts,
                                      Error *err) {
    char config[96];
    snprintf(config, sizeof(config), "stable_timestamp=%" PRIx64 ",oldest_timestamp=%" PRIx64,
             stable_ts, oldest_ts);
    int rc = WT_APART(engine->conn->set_timestamp(engine->conn, config));
    return rc == 0 ? ERR_OK : wt_error(engine, rc, "set the stable timestamp", NULL, err);
}

static uint64_t query_ts(StorageEngine *engine, const char *which) {
    char hex[17];
    if (engine->conn->query_timestamp(engine->conn, hex, which) != 0)
        return 0;
    return strtoull(hex, NULL, 16);
}

uint64_t storage_all_durable_ts(StorageEngine *engine) {
    return query_ts(engine, "get=all_durable");
}

uint64_t storage_oldest_ts(StorageEngine *engine) {
    return query_ts(engine, "get=oldest");
}

uint64_t storage_stable_ts(StorageEngine *engine) {
    return query_ts(engine, "get=stable");
}

uint64_t storage_recovery_ts(StorageEngine *engine) {
    return query_ts(engine, "get=recovery");
}

uint64_t storage_checkpoint_ts(StorageEngine *engine) {
    return query_ts(engine, "get=last_checkpoint");
}

/* WiredTiger refuses (EINVAL, before it has changed anything) while any transaction is open,
 * including its own internal ones and metadata or statistics cursors opened without the global
 * lock. Those end within milliseconds. */
static int rollback_when_quiet(StorageEngine *engine) {
    int64_t give_up_us = clock_mono_us() + QUIET_WAIT_US_MAX;
    for (;;) {
        int rc = WT_APART(engine->conn->rollback_to_stable(engine->conn, NULL));
        if (rc != EINVAL || clock_mono_us() > give_up_us)
            return rc;
        thread_sleep_us(QUIET_PAUSE_US);
    }
}

ErrCode storage_rollback_to_stable(StorageEngine *engine, Error *err) {
    /* A checkpoint running concurrently has been observed to contain data of both sides. */
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&engine->checkpoint_mu);
    journal_pause(engine);
    int rc = rollback_when_quiet(engine);
    journal_resume(engine);
    if (rc != 0)
        return wt_error(engine, rc, "roll back to the stable timestamp", NULL, err);
    /* The rolled-back writes will come again with other entries, which have to be counted. */
    size_store_count_anew(engine);
    char config[64];
    /* The durable timestamp has to go back with the data: it is the upper bound of "all durable",
     * and with the old value readers would take the discarded history for complete. Only force
     * lowers it. */
    snprintf(config, sizeof(config), "force=true,durable_timestamp=%" PRIx64,
             storage_stable_ts(engine));
    rc = WT_APART(engine->conn->set_timestamp(engine->conn, config));
    return rc == 0 ? ERR_OK : wt_error(engine, rc, "reset the timestamps", NULL, err);
}

void storage_set_oplog_visible_ts(StorageEngine *engine, uint64_t ts) {
    atomic_store_explicit(&engine->oplog_visible_ts, ts, memory_order_release);
}

uint64_t storage_oplog_visible_ts(const StorageEngine *engine) {
    return atomic_load_explicit(&engine->oplog_visible_ts, memory_order_acquire);
}

void storage_set_hooks(StorageEngine *engine, const StorageHooks *hooks) {
    /* A flush in progress would use the hooks while they change. */
    journal_pause(engine);
    engine->hooks = *hooks;
    journal_resume(engine);
}

bool storage_is_replicated(const StorageEngine *engine) {
    return engine->is_replicated;
}

void storage_stats(StorageEngine *engine, StorageStats *ret_stats) {
    *ret_stats = (StorageStats){
        .checkpoint_count = atomic_load(&engine->checkpoint_count),
        .checkpoint_ms_last = atomic_load(&engine->checkpoint_ms_last),
        .write_conflicts = atomic_load(&engine->write_conflicts),
        .temporarily_unavailable = atomic_load(&engine->temporarily_unavailable),
        .temporarily_unavailable_escaped = atomic_load(&engine->temporarily_unavailable_escaped),
        .transaction_too_large = atomic_load(&engine->transaction_too_large),
        .disk_free_bytes = atomic_load(&engine->disk_free_bytes),
        .disk_total_bytes = atomic_load(&engine->disk_total_bytes),
        .is_disk_full = atomic_load(&engine->is_disk_full),
    };
    Error err = {0};
    CLEANUP(wt_session_close) WT_SESSION *session = NULL;
    WT_CURSOR *cursor = NULL;
    if (storage_open_session(engine, &session, &err) != ERR_OK ||
        session->open_cursor(session, "statistics:", NULL, "statistics=(fast)", &cursor) != 0) {
        error_reset(&err);
        return;
    }
    ret_stats->cache_bytes_now = read_stat(cursor, WT_STAT_CONN_CACHE_BYTES_INUSE);
    ret_stats->cache_bytes_max = read_stat(cursor, WT_STAT_CONN_CACHE_BYTES_MAX);
    ret_stats->cache_bytes_dirty = read_stat(cursor, WT_STAT_CONN_CACHE_BYTES_DIRTY);
    ret_stats->cache_pages_read = read_stat(cursor, WT_STAT_CONN_CACHE_READ);
    ret_stats->cache_pages_written = read_stat(cursor, WT_STAT_CONN_CACHE_WRITE);
    ret_stats->lookaside_inserts = read_stat(cursor, WT_STAT_CONN_CACHE_LOOKASIDE_INSERT);
    ret_stats->log_bytes_written = read_stat(cursor, WT_STAT_CONN_LOG_BYTES_WRITTEN);
    ret_stats->log_syncs = read_stat(cursor, WT_STAT_CONN_LOG_SYNC);
    ret_stats->transactions_begun = read_stat(cursor, WT_STAT_CONN_TXN_BEGIN);
    ret_stats->transactions_committed = read_stat(cursor, WT_STAT_CONN_TXN_COMMIT);
    ret_stats->transactions_rolled_back = read_stat(cursor, WT_STAT_CONN_TXN_ROLLBACK);
    ret_stats->sessions_open = read_stat(cursor, WT_STAT_CONN_SESSION_OPEN);
    cursor->close(cursor);
}

int64_t storage_dirty_bytes(StorageEngine *engine) {
    Error err = {0};
    CLEANUP(wt_session_close) WT_SESSION *session = NULL;
    CLEANUP(wt_cursor_close) WT_CURSOR *cursor = NULL;
    if (storage_open_session(engine, &session, &err) != ERR_OK ||
        session->open_cursor(session, "statistics:", NULL, "statistics=(fast)", &cursor) != 0) {
        error_reset(&err);
        return 0;
    }
    return read_stat(cursor, WT_STAT_CONN_CACHE_BYTES_DIRTY);
}

const char *storage_dbpath(const StorageEngine *engine) {
    return engine->dbpath;
}

bool storage_was_unclean(const StorageEngine *engine) {
    return engine->was_unclean;
}

void storage_set_journal_interval(StorageEngine *engine, int32_t ms) {
    atomic_store(&engine->journal_interval_ms, ms);
}

void storage_set_checkpoint_interval(StorageEngine *engine, int32_t seconds) {
    atomic_store(&engine->checkpoint_interval_s, seconds);
}

int32_t storage_journal_interval(const StorageEngine *engine) {
    return atomic_load(&engine->journal_interval_ms);
}

int32_t storage_checkpoint_interval(const StorageEngine *engine) {
    return atomic_load(&engine->checkpoint_interval_s);
}

StorageRetryParams *storage_retry_params(StorageEngine *engine) {
    return &engine->retry;
}

ErrCode storage_open_session(StorageEngine *engine, WT_SESSION **ret_session, Error *err) {
    int rc =
        WT_APART(engine->conn->open_session(engine->conn, NULL, "isolation=snapshot", ret_session));
    return rc == 0 ? ERR_OK : wt_error(engine, rc, "open a storage session", NULL, err);
}

void wt_session_close(WT_SESSION **session) {
    if (*session != NULL)
        (*session)->close(*session, NULL);
    *session = NULL;
}

void wt_cursor_close(WT_CURSOR **cursor) {
    if (*cursor != NULL)
        (*cursor)->close(*cursor);
    *cursor = NULL;
}

ErrCode wt_error(StorageEngine *engine, int rc, const char *what, const char *table, Error *err) {
    const char *quote = table != NULL ? "\"" : "";
    const char *space = table != NULL ? " of table " : "";
    if (table == NULL)
        table = "";
    switch (rc) {
    case WT_ROLLBACK:
        atomic_fetch_add_explicit(&engine->write_conflicts, 1, memory_order_relaxed);
        return error_set(err, ERR_WRITE_CONFLICT,
                         "Caused by :: Write conflict during plan execution and yielding is "
                         "disabled. :: Please retry your operation or multi-document transaction.");
    case WT_PREPARE_CONFLICT:
        return error_set(err, ERR_WRITE_CONFLICT,
                         "could not %s%s%s%s%s: a prepared transaction has written there", what,
                         space, quote, table, quote);
    /* After a panic every further call fails, and the cache may be inconsistent with the disk. Only
     * recovery from the journal is safe, so no handlers and no clean close. */
    case WT_PANIC:
        LOG_FATAL(LOG_STORAGE, 7100104, "WiredTiger panicked; stopping at once",
                  LOG_STR("while", what));
        _exit(14);
    /* Do not wait for the monitor: the next writer must be refused at once, or WiredTiger panics on
     * its next page or journal write. */
    case ENOSPC:
        atomic_store(&engine->is_disk_full, true);
        atomic_store(&engine->is_disk_exhausted, true);
        return error_set(err, ERR_OUT_OF_DISK_SPACE, "could not %s%s%s%s%s: the disk is full", what,
                         space, quote, table, quote);
    default:
        return error_set(
            err, rc == WT_TRY_SALVAGE ? ERR_DATA_CORRUPTION_DETECTED : ERR_UNKNOWN_ERROR,
            "could not %s%s%s%s%s: %s", what, space, quote, table, quote, wiredtiger_strerror(rc));
    }
}

__attribute__((visibility("default"), used)) int sherd_wt_extensions(WT_CONNECTION *conn,
                                                                     WT_CONFIG_ARG *config) {
    /* An extension gets no user argument, only its configuration: the pool's address is passed as a
     * number in it. */
    WT_EXTENSION_API *api = conn->get_extension_api(conn);
    WT_CONFIG_ITEM address;
    int rc = api->config_get(api, NULL, config, "file_pool", &address);
    if (rc == 0) {
        FilePool *files = (FilePool *)(intptr_t)address.val;
        rc = conn->set_file_system(conn, file_pool_file_system(files), NULL);
    }
    return rc != 0 ? rc : snappy_extension_init(conn, config);
}

static ErrCode check_directory(const char *dbpath, Error *err) {
    struct stat st;
    if (stat(dbpath, &st) != 0)
        return error_set(err, ERR_NON_EXISTENT_PATH,
                         "data directory \"%s\" not found: %s; create it or give another --dbpath",
                         dbpath, strerror(errno));
    if (!S_ISDIR(st.st_mode))
        return error_set(err, ERR_NON_EXISTENT_PATH, "data path \"%s\" is not a directory", dbpath);
    if (access(dbpath, R_OK | W_OK | X_OK) != 0)
        return error_set(err, ERR_ILLEGAL_OPERATION,
                         "no permission to read and write the data directory \"%s\": %s", dbpath,
                         strerror(errno));
    CLEANUP(xfree_ptr) char *journal = xasprintf("%s/journal", dbpath);
    if (mkdir(journal, 0700) != 0 && errno != EEXIST)
        return error_set(err, ERR_ILLEGAL_OPERATION, "could not create directory \"%s\": %s",
                         journal, strerror(errno));
    return ERR_OK;
}

static ErrCode take_lock_file(StorageEngine *engine, Error *err) {
    CLEANUP(xfree_ptr) char *path = xasprintf("%s/mongod.lock", engine->dbpath);
    engine->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (engine->lock_fd < 0)
        return error_set(err, ERR_ILLEGAL_OPERATION, "could not open lock file \"%s\": %s", path,
                         strerror(errno));
    /* The kernel releases the lock with the process, so a stale file never blocks a start. */
    if (flock(engine->lock_fd, LOCK_EX | LOCK_NB) != 0) {
        char pid[32] = "";
        ssize_t got = pread(engine->lock_fd, pid, sizeof(pid) - 1, 0);
        pid[got > 0 ? got : 0] = '\0';
        pid[strcspn(pid, "\n")] = '\0';
        return error_set(err, ERR_DB_PATH_IN_USE,
                         "data directory \"%s\" is in use by another server (process %s)",
                         engine->dbpath, pid[0] != '\0' ? pid : "unknown");
    }
    struct stat st;
    /* A clean shutdown leaves the file empty; a pid in it is that of a process that died. */
    engine->was_unclean = fstat(engine->lock_fd, &st) == 0 && st.st_size > 0;
    if (ftruncate(engine->lock_fd, 0) != 0 || dprintf(engine->lock_fd, "%d\n", (int)getpid()) < 0 ||
        fsync(engine->lock_fd) != 0)
        return error_set(err, errno == ENOSPC ? ERR_OUT_OF_DISK_SPACE : ERR_FILE_STREAM_FAILED,
                         "could not write lock file \"%s\": %s", path, strerror(errno));
    return ERR_OK;
}

/* Without its turtle file WiredTiger would silently create a new, empty database beside the old
 * files. */
static ErrCode check_not_half_deleted(const char *dbpath, Error *err) {
    CLEANUP(xfree_ptr) char *turtle = xasprintf("%s/WiredTiger.turtle", dbpath);
    if (access(turtle, F_OK) == 0)
        return ERR_OK;
    DIR *dir = opendir(dbpath);
    if (dir == NULL)
        return error_set(err, ERR_ILLEGAL_OPERATION, "could not list \"%s\": %s", dbpath,
                         strerror(errno));
    bool has_tables = false;
    for (struct dirent *entry = readdir(dir); entry != NULL; entry = readdir(dir)) {
        const char *dot = strrchr(entry->d_name, '.');
        has_tables |= dot != NULL && strcmp(dot, ".wt") == 0;
    }
    closedir(dir);
    if (has_tables)
        return error_set(
            err, ERR_DATA_CORRUPTION_DETECTED,
            "data directory \"%s\" has table files but no \"WiredTiger.turtle\": it is "
            "damaged; restore that file or start from a backup",
            dbpath);
    return ERR_OK;
}

static ErrCode open_connection(StorageEngine *engine, const StorageConfig *config, Error *err) {
    int64_t cache_mb = config->cache_mb > 0 ? config->cache_mb : default_cache_mb();
    /* The numbers and their reasons:
     * - session_max: workers and background threads keep one each; others are short-lived.
     * - eviction_dirty 40/70: with the defaults (5/20) eviction throttles random updates to a
     *   third; the price is longer checkpoints.
     * - eviction threads 1..2: more of them compete with the workers for few processors.
     * - cache_overflow file_max=0: history that does not fit in the cache is unbounded on disk;
     *   at a limit WiredTiger panics.
     * - file_max=32M: such journal files open in a tenth of the time of the default 100 MB ones.
     * - config_base=false: a stored copy of these options would override later changes of them.
     * - early_load: the file system must be in place before WiredTiger opens its first file. */
    CLEANUP(xfree_ptr)
    char *options = xasprintf(
        "create,cache_size=%" PRId64 "M,cache_overflow=(file_max=0),session_max=33000,"
        "eviction=(threads_min=1,threads_max=2),eviction_dirty_target=40,eviction_dirty_trigger=70,"
        "config_base=false,statistics=(fast),"
        "log=(enabled=true,archive=true,path=journal,compressor=snappy,file_max=32M),"
        "file_manager=(close_idle_time=600,close_scan_interval=10,close_handle_minimum=250),"
        "extensions=[local={entry=sherd_wt_extensions,early_load=true,"
        "config={file_pool=%" PRIdPTR "}}]%s%s",
        cache_mb, (intptr_t)engine->files, config->engine_config_extra != NULL ? "," : "",
        config->engine_config_extra != NULL ? config->engine_config_extra : "");
    int rc = WT_APART(wiredtiger_open(engine->dbpath, &EVENT_HANDLER, options, &engine->conn));
    if (rc == 0)
        return ERR_OK;
    engine->conn = NULL;
    if (rc == WT_TRY_SALVAGE || rc == WT_PANIC)
        return error_set(err, ERR_DATA_CORRUPTION_DETECTED,
                         "the database in \"%s\" is damaged (%s); restore it from a backup or "
                         "resynchronise this node",
                         engine->dbpath, wiredtiger_strerror(rc));
    if (rc == ENOSPC)
        return error_set(err, ERR_OUT_OF_DISK_SPACE,
                         "could not open the database in \"%s\": the disk is full", engine->dbpath);
    return error_set(err, ERR_UNKNOWN_ERROR, "could not open the database in \"%s\": %s",
                     engine->dbpath, wiredtiger_strerror(rc));
}

/* MongoDB's default: half of the memory beyond 1 GB; the rest is page cache and connections. */
static int64_t default_cache_mb(void) {
    struct sysinfo info;
    if (sysinfo(&info) != 0)
        return CACHE_MB_MIN;
    int64_t total_mb = (int64_t)(info.totalram * (uint64_t)info.mem_unit >> 20);
    int64_t half = (total_mb - 1024) / 2;
    return half > CACHE_MB_MIN ? half : CACHE_MB_MIN;
}

static int on_wt_error(WT_EVENT_HANDLER *handler, WT_SESSION *session, int error,
                       const char *message) {
    (void)handler, (void)session;
    LOG_ERROR(LOG_WT, 22435, "WiredTiger error", LOG_I64("error", error),
              LOG_STR("message", message));
    return 0;
}

static int on_wt_message(WT_EVENT_HANDLER *handler, WT_SESSION *session, const char *message) {
    (void)handler, (void)session;
    LOG_INFO(LOG_WT, 22430, "WiredTiger message", LOG_STR("message", message));
    return 0;
}

static int64_t read_stat(WT_CURSOR *cursor, int key) {
    const char *description;
    const char *text;
    int64_t value = 0;
    cursor->set_key(cursor, key);
    if (cursor->search(cursor) == 0 && cursor->get_value(cursor, &description, &text, &value) != 0)
        value = 0;
    return value;
}
