/*
 * cmd_server_status.c - serverStatus: counters of the whole server, in sections.
 *
 * A section is a row of SECTIONS. {serverStatus: 1, metrics: 0} leaves one out, {serverStatus: 1,
 * x: 1} puts in one that is not shown by default; {metrics: {document: {deleted: false}}} leaves
 * out counters of that section.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "change_stream/hub.h"
#include "commands/core/command.h"
#include "commands/core/command_service.h"
#include "params/params.h"
#include "commands/hello_repl.h"
#include "commands/sharding_status.h"
#include "commands/status_sections.h"
#include "session_refresh/session_refresh.h"
#include "commands/version.h"
#include "concurrency/lock_manager.h"
#include "concurrency/tickets.h"
#include "cursor/cursor_table.h"
#include "default_concerns/default_concerns.h"
#include "index/build/coordinator.h"
#include "repl/apply/apply.h"
#include "repl/repl.h"
#include "sharding/migration/migrations.h"
#include "sharding/route/cluster.h"
#include "sharding/route/cluster_defaults.h"
#include "sharding/shard/shard_state.h"
#include "storage/engine.h"
#include "preimages/purger.h"
#include "query/plan/plan_cache.h"
#include "ttl/ttl.h"
#include "session_refresh/txn_expiry.h"
#include "txn/session_cache.h"
#include "txn/transaction.h"

typedef struct StatusRequest {
    Elem server_status;
} StatusRequest;

typedef struct StatusCtx {
    ServiceCtx *service;
    OpCtx *op;
    DocBuilder *b;
    TransportStats transport;
    StorageStats storage;
    TicketStats read_tickets;
    TicketStats write_tickets;
    int64_t uptime_us;
    Elem wish; /* what the request says of the section being built; may be missing */
} StatusCtx;

/* Which nodes have a section. */
typedef enum StatusOwner {
    STATUS_OF_ALL,
    STATUS_OF_DATA,    /* nodes that have documents */
    STATUS_OF_MEMBERS, /* of a replica set */
    STATUS_OF_ROUTERS,
    STATUS_OF_SHARDS,
    STATUS_OF_CONFIG_SERVER,
} StatusOwner;

typedef struct StatusSection {
    const char *name;
    bool is_default;
    void (*build)(StatusCtx *s);
    StatusOwner owner;
} StatusSection;

static int64_t count_of(_Atomic int64_t *counter) {
    return atomic_load_explicit(counter, memory_order_relaxed);
}

static void build_asserts(StatusCtx *s) {
    CommandStats *stats = command_stats(s->service);
    build_i32(s->b, "regular", 0);
    build_count(s->b, "warning", count_of(&stats->asserts_warning));
    build_i32(s->b, "msg", 0);
    build_count(s->b, "user", count_of(&stats->asserts_user));
    build_i32(s->b, "tripwire", 0);
    build_i32(s->b, "rollovers", 0);
}

static void build_connections(StatusCtx *s) {
    const TransportStats *t = &s->transport;
    build_count(s->b, "current", (int64_t)t->connections_current);
    build_count(s->b, "available", (int64_t)t->connections_available);
    build_count(s->b, "totalCreated", (int64_t)t->connections_created);
    build_count(s->b, "rejected", (int64_t)t->connections_refused);
    build_count(s->b, "active", (int64_t)t->connections_active);
    build_count(s->b, "threaded", (int64_t)t->workers);
    build_count(s->b, "awaitingTopologyChanges", (int64_t)t->connections_parked);
}

static void build_extra_info(StatusCtx *s) {
    struct rusage usage = {0};
    getrusage(RUSAGE_SELF, &usage);
    build_cstr(s->b, "note", "fields vary by platform");
    build_i64(s->b, "user_time_us",
              (int64_t)usage.ru_utime.tv_sec * 1000000 + usage.ru_utime.tv_usec);
    build_i64(s->b, "system_time_us",
              (int64_t)usage.ru_stime.tv_sec * 1000000 + usage.ru_stime.tv_usec);
    build_i64(s->b, "maximum_resident_set_kb", usage.ru_maxrss);
    build_i64(s->b, "page_faults", usage.ru_majflt);
    build_i64(s->b, "page_reclaims", usage.ru_minflt);
    build_i64(s->b, "input_blocks", usage.ru_inblock);
    build_i64(s->b, "output_blocks", usage.ru_oublock);
    build_i64(s->b, "voluntary_context_switches", usage.ru_nvcsw);
    build_i64(s->b, "involuntary_context_switches", usage.ru_nivcsw);
    build_i64(s->b, "threads", s->transport.workers);
}

static void build_three(DocBuilder *b, const char *name, int64_t readers, int64_t writers) {
    size_t opened = build_open_doc(b, name);
    build_count(b, "total", readers + writers);
    build_count(b, "readers", readers);
    build_count(b, "writers", writers);
    build_close(b, opened);
}

static void build_global_lock(StatusCtx *s) {
    build_i64(s->b, "totalTime", s->uptime_us);
    build_three(s->b, "currentQueue", s->read_tickets.queued, s->write_tickets.queued);
    build_three(s->b, "activeClients", s->read_tickets.out, s->write_tickets.out);
}

static void build_modes(DocBuilder *b, const char *name, const int64_t counts[LOCK_MODE_COUNT]) {
    bool is_empty = true;
    for (int mode = 0; mode < LOCK_MODE_COUNT; mode++)
        is_empty &= counts[mode] == 0;
    if (is_empty)
        return;
    size_t opened = build_open_doc(b, name);
    for (int mode = 0; mode < LOCK_MODE_COUNT; mode++)
        if (counts[mode] != 0)
            build_i64(b, lock_mode_name((LockMode)mode), counts[mode]);
    build_close(b, opened);
}

static void build_locks(StatusCtx *s) {
    static const struct {
        const char *name;
        ResourceType type;
        ResourceId global_id;
    } ROWS[] = {
        {"Global", RESOURCE_GLOBAL, RESOURCE_ID_GLOBAL},
        {"ReplicationStateTransition", RESOURCE_GLOBAL, RESOURCE_ID_RSTL},
        {"Database", RESOURCE_DATABASE, 0},
        {"Collection", RESOURCE_COLLECTION, 0},
        {"Mutex", RESOURCE_MUTEX, 0},
    };
    for (size_t i = 0; i < ARRAY_LEN(ROWS); i++) {
        LockStats stats =
            lock_stats(op_registry_locks(s->service->ops), ROWS[i].type, ROWS[i].global_id);
        size_t opened = build_open_doc(s->b, ROWS[i].name);
        build_modes(s->b, "acquireCount", stats.acquired);
        build_modes(s->b, "acquireWaitCount", stats.waited);
        build_modes(s->b, "timeAcquiringMicros", stats.wait_us);
        build_close(s->b, opened);
    }
}

static void build_mem(StatusCtx *s) {
    long pages_virtual = 0;
    long pages_resident = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    if (file != NULL) {
        if (fscanf(file, "%ld %ld", &pages_virtual, &pages_resident) != 2)
            pages_virtual = pages_resident = 0;
        fclose(file);
    }
    int64_t page = sysconf(_SC_PAGESIZE);
    build_i32(s->b, "bits", 64);
    build_i32(s->b, "resident", (int32_t)(pages_resident * page / (1024 * 1024)));
    build_i32(s->b, "virtual", (int32_t)(pages_virtual * page / (1024 * 1024)));
    build_bool(s->b, "supported", true);
}

static const struct {
    const char *command; /* "": it is told in the section "query" */
    const char *name;
} OPTION_METRICS[OPTION_METRIC_COUNT] = {
    [OPTION_METRIC_AGGREGATE_DISK_USE] = {"aggregate", "allowDiskUseTrue"},
    [OPTION_METRIC_DELETE_MANY] = {"", "deleteManyCount"},
    [OPTION_METRIC_FIND_AND_MODIFY_ARRAY_FILTERS] = {"findAndModify", "arrayFilters"},
    [OPTION_METRIC_FIND_AND_MODIFY_PIPELINE] = {"findAndModify", "pipeline"},
    [OPTION_METRIC_UPDATE_ARRAY_FILTERS] = {"update", "arrayFilters"},
    [OPTION_METRIC_UPDATE_MANY] = {"", "updateManyCount"},
    [OPTION_METRIC_UPDATE_PIPELINE] = {"update", "pipeline"},
};

static void build_options(StatusCtx *s, const char *command) {
    for (int i = 0; i < OPTION_METRIC_COUNT; i++)
        if (strcmp(OPTION_METRICS[i].command, command) == 0)
            build_i64(s->b, OPTION_METRICS[i].name,
                      count_of(&command_stats(s->service)->options[i]));
}

static void build_command_metric(void *arg, const CommandSpec *spec, int64_t total,
                                 int64_t failed) {
    StatusCtx *s = arg;
    DocBuilder *b = s->b;
    size_t opened = build_open_doc(b, spec->name);
    build_options(s, spec->name);
    build_i64(b, "failed", failed);
    build_i64(b, "total", total);
    build_close(b, opened);
}

static void build_cursor_metrics(StatusCtx *s) {
    DocBuilder *b = s->b;
    CursorStats stats = {0};
    if (s->service->cursors != NULL)
        stats = cursor_table_stats(s->service->cursors);
    size_t opened = build_open_doc(b, "cursor");
    build_i64(b, "moreThanOneBatch", stats.closed_of_batches);
    build_i64(b, "timedOut", stats.timed_out);
    build_i64(b, "totalOpened", stats.total_opened);
    size_t open = build_open_doc(b, "open");
    if (s->service->role == ROLE_ROUTER) {
        build_i64(b, "multiTarget", stats.open_of_several);
        build_i64(b, "singleTarget", stats.open_total - stats.open_of_several);
    }
    build_i64(b, "noTimeout", stats.open_no_timeout);
    build_i64(b, "pinned", stats.open_pinned);
    build_i64(b, "total", stats.open_total);
    build_close(b, open);
    build_close(b, opened);
}

static void build_commands(StatusCtx *s) {
    size_t commands = build_open_doc(s->b, "commands");
    command_for_each(s->service->commands, build_command_metric, s);
    build_close(s->b, commands);
}

static void build_query_metrics(StatusCtx *s) {
    CommandStats *stats = command_stats(s->service);
    size_t query = build_open_doc(s->b, "query");
    build_options(s, "");
    if (s->service->role != ROLE_ROUTER) {
        PlanCacheTotals plans = plan_cache_totals();
        build_i64(s->b, "planCacheTotalQueryShapes", plans.count);
        build_i64(s->b, "planCacheTotalSizeEstimateBytes", plans.bytes);
        build_i64(s->b, "updateDeleteManyDocumentsMaxCount", count_of(&stats->many_docs_most));
        build_i64(s->b, "updateDeleteManyDocumentsTotalCount", count_of(&stats->many_docs));
        build_i64(s->b, "updateDeleteManyDurationMaxMs", count_of(&stats->many_us_most) / 1000);
        build_i64(s->b, "updateDeleteManyDurationTotalMs", count_of(&stats->many_us) / 1000);
    }
    build_close(s->b, query);
}

/* What a router counts of what nodes with documents count. */
static void build_router_metrics(StatusCtx *s) {
    build_commands(s);
    build_cursor_metrics(s);
    CursorStats cursors = cursor_table_stats(s->service->cursors);
    size_t mongos = build_open_doc(s->b, "mongos");
    size_t cursor = build_open_doc(s->b, "cursor");
    build_i64(s->b, "moreThanOneBatch", cursors.closed_of_batches);
    build_i64(s->b, "totalOpened", cursors.total_opened);
    build_close(s->b, cursor);
    build_close(s->b, mongos);
    build_query_metrics(s);
}

/* What was fetched from other members, was applied, and is not applied yet. */
static void build_repl_metrics(StatusCtx *s) {
    if (!service_is_member(s->service))
        return;
    ReplBuffer waiting = repl_buffer(s->service->repl);
    ReplSyncStats sync = repl_sync_stats(s->service->repl);
    size_t repl = build_open_doc(s->b, "repl");
    size_t apply = build_open_doc(s->b, "apply");
    size_t batches = build_open_doc(s->b, "batches");
    build_i64(s->b, "num", sync.batches_applied);
    build_i64(s->b, "totalMillis", sync.apply_us / 1000);
    build_close(s->b, batches);
    build_i64(s->b, "ops", sync.entries_applied);
    build_close(s->b, apply);
    size_t buffer = build_open_doc(s->b, "buffer");
    build_i64(s->b, "count", waiting.count);
    build_i64(s->b, "maxSizeBytes", waiting.bytes_max);
    build_i64(s->b, "sizeBytes", waiting.bytes);
    build_close(s->b, buffer);
    size_t network = build_open_doc(s->b, "network");
    build_i64(s->b, "bytes", sync.bytes);
    size_t get_mores = build_open_doc(s->b, "getmores");
    build_i64(s->b, "num", sync.replies);
    build_i64(s->b, "totalMillis", sync.wait_us / 1000);
    build_i64(s->b, "numEmptyBatches", sync.empty_replies);
    build_close(s->b, get_mores);
    build_i64(s->b, "notPrimaryLegacyUnacknowledgedWrites", 0); /* their opcodes are refused */
    build_i64(s->b, "notPrimaryUnacknowledgedWrites",
              count_of(&command_stats(s->service)->unanswered_not_primary));
    build_i64(s->b, "ops", sync.entries);
    build_i64(s->b, "readersCreated", sync.readers);
    build_close(s->b, network);
    ReplTransition last = repl_last_transition(s->service->repl);
    size_t transition = build_open_doc(s->b, "stateTransition");
    build_cstr(s->b, "lastStateTransition", last.kind);
    build_i64(s->b, "userOperationsKilled", last.killed);
    build_i64(s->b, "userOperationsRunning", last.running);
    build_close(s->b, transition);
    build_close(s->b, repl);
}

static void build_metrics(StatusCtx *s) {
    if (s->service->role == ROLE_ROUTER) {
        build_router_metrics(s);
        return;
    }
    DocBuilder *b = s->b;
    CommandStats *stats = command_stats(s->service);
    size_t expired = build_open_doc(b, "abortExpiredTransactions");
    TxnExpiryStats txns = txn_expiry_stats(s->service->txn_expiry);
    build_i64(b, "passes", txns.passes);
    build_i64(b, "successfulKills", txns.kills);
    build_i64(b, "timedOutKills", 0); /* nobody waits for one */
    build_close(b, expired);
    build_commands(s);
    build_cursor_metrics(s);
    size_t document = build_open_doc(b, "document");
    build_i64(b, "deleted", count_of(&stats->docs_deleted));
    build_i64(b, "inserted", count_of(&stats->docs_inserted));
    build_i64(b, "returned", count_of(&stats->docs_returned));
    build_i64(b, "updated", count_of(&stats->docs_updated));
    build_close(b, document);
    size_t waits = build_open_doc(b, "getLastError");
    size_t by_default = build_open_doc(b, "default");
    build_i64(b, "wtimeouts", count_of(&stats->write_timeouts_by_default));
    build_close(b, by_default);
    size_t time = build_open_doc(b, "wtime");
    build_i64(b, "num", count_of(&stats->write_waits));
    build_i64(b, "totalMillis", count_of(&stats->write_wait_us) / 1000);
    build_close(b, time);
    build_i64(b, "wtimeouts", count_of(&stats->write_timeouts));
    build_close(b, waits);
    size_t operation = build_open_doc(b, "operation");
    build_i64(b, "temporarilyUnavailableErrors", s->storage.temporarily_unavailable);
    build_i64(b, "temporarilyUnavailableErrorsEscaped", s->storage.temporarily_unavailable_escaped);
    build_i64(b, "transactionTooLargeForCacheErrors", s->storage.transaction_too_large);
    build_i64(b, "writeConflicts", s->storage.write_conflicts);
    build_close(b, operation);
    build_query_metrics(s);
    size_t executor = build_open_doc(b, "queryExecutor");
    build_i64(b, "scanned", count_of(&stats->keys_examined));
    build_i64(b, "scannedObjects", count_of(&stats->docs_examined));
    size_t scans = build_open_doc(b, "collectionScans");
    int64_t scan_count = count_of(&stats->scans);
    build_i64(b, "nonTailable", scan_count - count_of(&stats->tailing_scans));
    build_i64(b, "total", scan_count);
    build_close(b, scans);
    build_close(b, executor);
    build_repl_metrics(s);
    TtlStats ttl = ttl_monitor_stats(s->service->ttl);
    size_t expiry = build_open_doc(b, "ttl");
    build_i64(b, "deletedDocuments", ttl.deleted);
    build_i64(b, "invalidTTLIndexSkips", ttl.invalid_skips);
    build_i64(b, "passes", ttl.passes);
    build_i64(b, "subPasses", ttl.sub_passes);
    build_close(b, expiry);
}

static void build_preimages(StatusCtx *s) {
    PurgeStats purge = preimage_purger_stats(s->service->preimages);
    size_t job = build_open_doc(s->b, "purgingJob");
    build_i64(s->b, "totalPass", purge.passes);
    build_i64(s->b, "docsDeleted", purge.docs_deleted);
    build_i64(s->b, "bytesDeleted", purge.bytes_deleted);
    build_i64(s->b, "scannedCollections", purge.scanned_collections);
    build_i64(s->b, "scannedInternalCollections", purge.passes); /* one: the collection of images */
    build_i64(s->b, "maxStartWallTimeMillis", purge.start_wall_ms_max);
    build_i64(s->b, "timeElapsedMillis", purge.elapsed_ms);
    build_close(s->b, job);
}

static void build_in_out(DocBuilder *b, const char *name, const uint64_t bytes[2]) {
    size_t opened = build_open_doc(b, name);
    build_i64(b, "bytesIn", (int64_t)bytes[0]);
    build_i64(b, "bytesOut", (int64_t)bytes[1]);
    build_close(b, opened);
}

static void build_network(StatusCtx *s) {
    const TransportStats *t = &s->transport;
    build_i64(s->b, "bytesIn", (int64_t)t->bytes_in);
    build_i64(s->b, "bytesOut", (int64_t)t->bytes_out);
    build_i64(s->b, "physicalBytesIn", (int64_t)t->physical_bytes_in);
    build_i64(s->b, "physicalBytesOut", (int64_t)t->physical_bytes_out);
    build_i64(s->b, "numRequests", (int64_t)t->requests);
    size_t compression = build_open_doc(s->b, "compression");
    for (int c = WIRE_COMPRESSOR_SNAPPY; c < WIRE_COMPRESSOR_COUNT; c++) {
        size_t row = build_open_doc(s->b, wire_compressor_name((WireCompressor)c));
        build_in_out(s->b, "compressor", t->packed[c]);
        build_in_out(s->b, "decompressor", t->unpacked[c]);
        build_close(s->b, row);
    }
    build_close(s->b, compression);
}

static void build_op_latencies(StatusCtx *s) {
    bool has_histograms = elem_type(s->wish) == BT_DOC &&
                          elem_is_truthy(doc_get_lit(elem_doc(s->wish), "histograms"));
    build_latencies(s->b, &command_stats(s->service)->latencies, has_histograms);
}

static void build_op_counters(StatusCtx *s) {
    static const char *const NAMES[OP_COUNTER_COUNT] = {
        [OP_COUNTER_INSERT] = "insert",   [OP_COUNTER_QUERY] = "query",
        [OP_COUNTER_UPDATE] = "update",   [OP_COUNTER_DELETE] = "delete",
        [OP_COUNTER_GETMORE] = "getmore", [OP_COUNTER_COMMAND] = "command",
    };
    CommandStats *stats = command_stats(s->service);
    for (int i = 0; i < OP_COUNTER_COUNT; i++)
        build_i64(s->b, NAMES[i], count_of(&stats->op_counters[i]));
}

static void build_repl_op_counters(StatusCtx *s) {
    ApplyCounts counts = repl_applied_counts(s->service->repl);
    build_i64(s->b, "insert", counts.inserts);
    build_i64(s->b, "query", 0); /* the oplog has only writes */
    build_i64(s->b, "update", counts.updates);
    build_i64(s->b, "delete", counts.deletes);
    build_i64(s->b, "getmore", 0);
    build_i64(s->b, "command", counts.commands);
}

static void build_storage_engine(StatusCtx *s) {
    build_cstr(s->b, "name", "wiredTiger");
    build_bool(s->b, "supportsCommittedReads", true);
    if (service_is_member(s->service)) {
        uint64_t from_ts = repl_recovery_needs_from(s->service->repl);
        if (from_ts != 0)
            build_timestamp(s->b, "oldestRequiredTimestampForCrashRecovery", from_ts);
    }
    build_bool(s->b, "supportsPendingDrops", true);
    build_bool(s->b, "supportsSnapshotReadConcern", true);
    build_bool(s->b, "readOnly", false);
    build_bool(s->b, "persistent", true);
    build_bool(s->b, "backupCursorOpen", false);
}

static void build_transactions(StatusCtx *s) {
    TxnStats stats = {0};
    if (s->service->sessions != NULL)
        stats = txn_stats(s->service->sessions);
    const struct {
        const char *name;
        int64_t value;
    } ROWS[] = {
        {"currentActive", stats.active},
        {"currentInactive", stats.open - stats.active},
        {"currentOpen", stats.open},
        {"totalAborted", stats.aborted},
        {"totalCommitted", stats.committed},
        {"totalStarted", stats.started},
        {"totalPrepared", stats.prepared},
        {"totalPreparedThenCommitted", stats.prepared_committed},
        {"totalPreparedThenAborted", stats.prepared_aborted},
        {"currentPrepared", stats.open_prepared},
    };
    for (size_t i = 0; i < ARRAY_LEN(ROWS); i++)
        build_i64(s->b, ROWS[i].name, ROWS[i].value);
}

static void build_priority(DocBuilder *b, const char *name, const TicketQueueStats *stats) {
    size_t opened = build_open_doc(b, name);
    build_i64(b, "addedToQueue", stats->queued_total);
    build_i64(b, "removedFromQueue", stats->dequeued_total);
    build_i64(b, "queueLength", stats->queued);
    build_i64(b, "startedProcessing", stats->admitted_total);
    build_i64(b, "canceled", stats->cancelled_total);
    build_i64(b, "totalTimeQueuedMicros", stats->wait_us_total);
    build_close(b, opened);
}

static void build_tickets(StatusCtx *s, const char *name, bool is_write) {
    DocBuilder *b = s->b;
    const TicketStats *stats = is_write ? &s->write_tickets : &s->read_tickets;
    size_t opened = build_open_doc(b, name);
    build_i32(b, "out", stats->out);
    build_i32(b, "available", stats->available);
    build_i32(b, "totalTickets", stats->total);
    build_i64(b, "queueLength", stats->queued);
    build_i64(b, "finishedProcessing", stats->finished_total);
    build_i64(b, "totalTimeQueuedMicros", stats->wait_us_total);
    build_priority(b, "normalPriority", &stats->normal);
    build_priority(b, "lowPriority", &stats->low);
    build_i64(b, "expedited", stats->low_expedited_total);
    build_i64(b, "exempt", stats->exempt_total);
    AdmissionStats admission = storage_admission_stats(s->service->storage, is_write);
    build_i64(b, "timesIncreased", admission.increased_total);
    build_i64(b, "timesDecreased", admission.decreased_total);
    build_close(b, opened);
}

static void build_wired_tiger(StatusCtx *s) {
    DocBuilder *b = s->b;
    const StorageStats *w = &s->storage;
    size_t cache = build_open_doc(b, "cache");
    build_i64(b, "bytes currently in the cache", w->cache_bytes_now);
    build_i64(b, "maximum bytes configured", w->cache_bytes_max);
    build_i64(b, "tracked dirty bytes in the cache", w->cache_bytes_dirty);
    build_i64(b, "pages read into cache", w->cache_pages_read);
    build_i64(b, "pages written from cache", w->cache_pages_written);
    build_i64(b, "cache overflow table insert calls", w->lookaside_inserts);
    build_close(b, cache);
    size_t log = build_open_doc(b, "log");
    build_i64(b, "log bytes written", w->log_bytes_written);
    build_i64(b, "log sync operations", w->log_syncs);
    build_close(b, log);
    size_t session = build_open_doc(b, "session");
    build_i64(b, "open session count", w->sessions_open);
    build_i64(b, "open cursor count", w->cursors_open);
    build_close(b, session);
    size_t transaction = build_open_doc(b, "transaction");
    build_i64(b, "transaction begins", w->transactions_begun);
    build_i64(b, "transactions committed", w->transactions_committed);
    build_i64(b, "transactions rolled back", w->transactions_rolled_back);
    build_i64(b, "transaction checkpoints", w->checkpoint_count);
    build_i64(b, "transaction checkpoint most recent time (msecs)", w->checkpoint_ms_last);
    build_close(b, transaction);
    size_t tickets = build_open_doc(b, "concurrentTransactions");
    build_tickets(s, "write", /* is_write= */ true);
    build_tickets(s, "read", /* is_write= */ false);
    build_close(b, tickets);
    size_t disk = build_open_doc(b, "disk");
    build_i64(b, "free bytes", w->disk_free_bytes);
    build_i64(b, "total bytes", w->disk_total_bytes);
    build_bool(b, "is full", w->is_disk_full);
    build_close(b, disk);
}

static void build_sessions(StatusCtx *s) {
    session_refresher_build_status(s->service->session_refresher, s->b);
}

static void build_repl(StatusCtx *s) {
    hello_repl_build(s->service, s->b, "isWritablePrimary");
    build_i32(s->b, "rbid", repl_rollback_id(s->service->repl));
}

static void build_election(StatusCtx *s, const ReplElectionMetrics *m, const char *name,
                           ReplElectionReason reason) {
    size_t opened = build_open_doc(s->b, name);
    int64_t called = (int64_t)m->called[reason], successful = (int64_t)m->successful[reason];
    if (reason == REPL_ELECTION_STEP_UP) { /* whether with a dry run or without */
        called += (int64_t)m->called[REPL_ELECTION_STEP_UP_SKIP_DRY_RUN];
        successful += (int64_t)m->successful[REPL_ELECTION_STEP_UP_SKIP_DRY_RUN];
    }
    build_count(s->b, "called", called);
    build_count(s->b, "successful", successful);
    build_close(s->b, opened);
}

static void inspect_elections(void *arg, const ReplCore *core) {
    StatusCtx *s = arg;
    const ReplElectionMetrics *m = repl_core_metrics(core);
    build_election(s, m, "stepUpCmd", REPL_ELECTION_STEP_UP);
    build_election(s, m, "priorityTakeover", REPL_ELECTION_PRIORITY_TAKEOVER);
    build_election(s, m, "catchUpTakeover", REPL_ELECTION_CATCH_UP_TAKEOVER);
    build_election(s, m, "electionTimeout", REPL_ELECTION_TIMEOUT);
    build_election(s, m, "freezeTimeout", REPL_ELECTION_FREEZE_OVER);
    build_count(s->b, "numStepDownsCausedByHigherTerm", (int64_t)m->step_downs_by_higher_term);
    build_count(s->b, "numCatchUps", (int64_t)m->catch_ups_total);
    build_count(s->b, "numCatchUpsSucceeded", (int64_t)m->catch_ups_succeeded);
    build_count(s->b, "numCatchUpsAlreadyCaughtUp", (int64_t)m->catch_ups_already_caught_up);
    build_count(s->b, "numCatchUpsSkipped", (int64_t)m->catch_ups_skipped);
    build_count(s->b, "numCatchUpsTimedOut", (int64_t)m->catch_ups_timed_out);
    build_count(s->b, "numCatchUpsFailedWithNewTerm", (int64_t)m->catch_ups_failed_with_new_term);
    build_count(s->b, "numCatchUpsFailedWithError", (int64_t)m->catch_ups_failed_with_error);
    build_count(s->b, "numCatchUpsFailedWithReplSetAbortPrimaryCatchUpCmd",
                (int64_t)m->catch_ups_aborted);
}

static void build_flow_control(StatusCtx *s) {
    flow_control_build_status(repl_flow_control(s->service->repl), s->b);
}

/* Its first and last entry; null before there is one. */
static void build_oplog(StatusCtx *s) {
    Oplog *oplog = repl_oplog(s->service->repl);
    uint64_t first_ts = 0, last_ts = 0;
    Doc entry = DOC_NONE;
    CLEANUP(error_reset) Error ignored = {0};
    if (oplog_exists(oplog) && oplog_read_first(oplog, s->op, &entry, &ignored) == ERR_OK &&
        doc_is_present(entry)) {
        first_ts = oplog_entry_optime(entry).ts;
        last_ts = oplog_ends(oplog).applied.ts;
    }
    build_timestamp(s->b, "latestOptime", last_ts);
    build_timestamp(s->b, "earliestOptime", first_ts);
}

static void build_oplog_truncation(StatusCtx *s) {
    OplogTrimStats stats = oplog_trim_stats(repl_oplog(s->service->repl));
    build_i64(s->b, "totalTimeProcessingMicros", stats.measure_us);
    build_cstr(s->b, "processingMethod", "scanning");
    build_i64(s->b, "totalTimeTruncatingMicros", stats.trim_us);
    build_i64(s->b, "truncateCount", stats.trims);
}

static void build_elections(StatusCtx *s) {
    repl_inspect(s->service->repl, inspect_elections, s);
}

static void build_change_streams(StatusCtx *s) {
    StreamHubStats stats = stream_hub_stats(s->service->stream_hub);
    build_i64(s->b, "open", stats.open);
    build_i64(s->b, "waiting", stats.waiting);
    build_i64(s->b, "entriesRead", stats.entries_read);
    build_i64(s->b, "woken", stats.woken);
}

static void build_sharding(StatusCtx *s) {
    build_sharding_statistics(s->service->cluster, s->b);
}

/* What this node knows of the config server. */
static void build_config_server(StatusCtx *s) {
    ShardState *shard = s->service->shard;
    Cluster *cluster = shard != NULL ? shard_find_cluster(shard) : s->service->cluster;
    if (cluster == NULL)
        return; /* a shard that was not asked yet, or none */
    CLEANUP(arena_done) Arena arena;
    arena_init(&arena, 1024);
    SetView *view = watched_set_view(cluster_config_shard(cluster)->set);
    build_cstr(s->b, "configsvrConnectionString", set_view_text(view, &arena));
    set_view_unref(view);
    size_t time = build_open_doc(s->b, "lastSeenConfigServerOpTime");
    build_timestamp(s->b, "ts", cluster_config_time(cluster));
    build_i64(s->b, "t", -1); /* is not told */
    build_close(s->b, time);
    build_i64(s->b, "maxChunkSizeInBytes", cluster_chunk_bytes(cluster));
    if (s->service->migrations != NULL)
        migrations_build_shown(s->service->migrations, s->b);
}

static void build_read_counts(StatusCtx *s, const char *name, bool is_txn) {
    static const struct {
        const char *name;
        ReadConcernCount count;
        bool is_txn; /* transactions have it */
    } LEVELS[] = {
        {"local", READ_COUNT_LOCAL, true},
        {"available", READ_COUNT_AVAILABLE, false},
        {"majority", READ_COUNT_MAJORITY, true},
        {"linearizable", READ_COUNT_LINEARIZABLE, false},
    };
    _Atomic int64_t *counts = command_stats(s->service)->read_concerns[is_txn];
    int64_t local = count_of(&counts[READ_COUNT_NONE_LOCAL]);
    int64_t majority = count_of(&counts[READ_COUNT_NONE_MAJORITY]);
    size_t kind = build_open_doc(s->b, name);
    build_i64(s->b, "none", local + majority);
    size_t none = build_open_doc(s->b, "noneInfo");
    size_t set = build_open_doc(s->b, "CWRC"); /* the default that was set */
    build_i64(s->b, "local", 0);
    if (!is_txn)
        build_i64(s->b, "available", 0);
    build_i64(s->b, "majority", majority);
    build_close(s->b, set);
    size_t implicit = build_open_doc(s->b, "implicitDefault");
    build_i64(s->b, "local", local);
    if (!is_txn)
        build_i64(s->b, "available", 0);
    build_close(s->b, implicit);
    build_close(s->b, none);
    for (size_t i = 0; i < ARRAY_LEN(LEVELS); i++)
        if (LEVELS[i].is_txn || !is_txn)
            build_i64(s->b, LEVELS[i].name, count_of(&counts[LEVELS[i].count]));
    size_t snapshot = build_open_doc(s->b, "snapshot");
    build_i64(s->b, "withClusterTime", count_of(&counts[READ_COUNT_SNAPSHOT_AT]));
    build_i64(s->b, "withoutClusterTime", count_of(&counts[READ_COUNT_SNAPSHOT]));
    build_close(s->b, snapshot);
    build_close(s->b, kind);
}

static void build_read_concerns(StatusCtx *s) {
    build_read_counts(s, "nonTransactionOps", /* is_txn= */ false);
    build_read_counts(s, "transactionOps", /* is_txn= */ true);
}

static void build_defaults(StatusCtx *s) {
    Doc doc = DOC_NONE;
    CLEANUP(error_reset) Error ignored = {0};
    if (default_concerns_read(s->op, &doc, &ignored) == ERR_OK)
        build_default_concerns(s->service, doc, s->b);
}

/* As the config server has told them last. */
static void build_routed_defaults(StatusCtx *s) {
    ClusterDefaults *defaults = cluster_defaults(s->service->cluster);
    build_all(s->b, cluster_defaults_copy(defaults, &s->op->arena));
}

static void build_catalog(StatusCtx *s) {
    build_catalog_stats(s->service, s->b);
}

static void build_index_builds(StatusCtx *s) {
    IndexBuildStats stats = index_builds_stats(s->service->index_builds);
    build_i64(s->b, "failedDueToDataCorruption",
              0); /* bad documents fail a build by their own code */
    build_i64(s->b, "killedDueToInsufficientDiskSpace", stats.out_of_disk);
    build_i64(s->b, "total", stats.begun);
}

static void build_indexes(StatusCtx *s) {
    build_index_stats(s->service, s->b);
}

static void build_moves(StatusCtx *s) {
    build_move_statistics(s->service, s->b);
}

static void build_sharded(StatusCtx *s) {
    build_config_statistics(s->service, s->b);
}

static const StatusSection SECTIONS[] = {
    {"asserts", true, build_asserts, STATUS_OF_ALL},
    {"catalogStats", true, build_catalog, STATUS_OF_DATA},
    {"changeStreamPreImages", true, build_preimages, STATUS_OF_MEMBERS},
    {"changeStreams", true, build_change_streams, STATUS_OF_MEMBERS},
    {"connections", true, build_connections, STATUS_OF_ALL},
    {"defaultRWConcern", true, build_defaults, STATUS_OF_MEMBERS},
    {"defaultRWConcern", true, build_routed_defaults, STATUS_OF_ROUTERS},
    {"electionMetrics", true, build_elections, STATUS_OF_MEMBERS},
    {"extra_info", true, build_extra_info, STATUS_OF_ALL},
    {"flowControl", true, build_flow_control, STATUS_OF_MEMBERS},
    {"globalLock", true, build_global_lock, STATUS_OF_DATA},
    {"indexBuilds", true, build_index_builds, STATUS_OF_DATA},
    {"indexStats", true, build_indexes, STATUS_OF_DATA},
    {"locks", true, build_locks, STATUS_OF_DATA},
    {"logicalSessionRecordCache", true, build_sessions, STATUS_OF_ALL},
    {"network", true, build_network, STATUS_OF_ALL},
    {"opLatencies", true, build_op_latencies, STATUS_OF_DATA},
    {"opcounters", true, build_op_counters, STATUS_OF_ALL},
    {"opcountersRepl", true, build_repl_op_counters, STATUS_OF_MEMBERS},
    {"oplog", false, build_oplog, STATUS_OF_MEMBERS},
    {"oplogTruncation", true, build_oplog_truncation, STATUS_OF_MEMBERS},
    {"readConcernCounters", true, build_read_concerns, STATUS_OF_DATA},
    {"repl", true, build_repl, STATUS_OF_MEMBERS},
    {"sharding", true, build_config_server, STATUS_OF_ROUTERS},
    {"sharding", true, build_config_server, STATUS_OF_SHARDS},
    {"shardingStatistics", true, build_sharding, STATUS_OF_ROUTERS},
    {"shardingStatistics", true, build_moves, STATUS_OF_SHARDS},
    {"shardingStatistics", true, build_sharded, STATUS_OF_CONFIG_SERVER},
    {"storageEngine", true, build_storage_engine, STATUS_OF_DATA},
    {"transactions", true, build_transactions, STATUS_OF_DATA},
    {"wiredTiger", true, build_wired_tiger, STATUS_OF_DATA},
    {"mem", true, build_mem, STATUS_OF_ALL},
    {"metrics", true, build_metrics, STATUS_OF_ALL},
};

static void read_counters(StatusCtx *s) {
    ServiceCtx *service = s->service;
    if (service->transport != NULL) /* it serves clients a moment before it is known here */
        transport_read_stats(service->transport, &s->transport);
    s->uptime_us = clock_mono_us() - service->start_mono_us;
    if (service->role == ROLE_ROUTER)
        return;
    storage_stats(service->storage, &s->storage);
    s->read_tickets = ticket_stats(storage_tickets(service->storage, /* is_write= */ false));
    s->write_tickets = ticket_stats(storage_tickets(service->storage, /* is_write= */ true));
}

static bool has_section(const ServiceCtx *service, const StatusSection *section) {
    switch (section->owner) {
    case STATUS_OF_ALL:
        return true;
    case STATUS_OF_DATA:
        return service->role != ROLE_ROUTER;
    case STATUS_OF_MEMBERS:
        return service_is_member(service);
    case STATUS_OF_ROUTERS:
        return service->role == ROLE_ROUTER;
    case STATUS_OF_SHARDS:
        return service->role == ROLE_SHARD;
    case STATUS_OF_CONFIG_SERVER:
        return service->role == ROLE_CONFIG_SERVER;
    }
    return false;
}

/* All fields but those for which `wish` has false, at whatever depth. */
static ErrCode copy_wished(DocBuilder *b, Doc all, Doc wish, Error *err) {
    DocIter iter = doc_iter(all);
    for (Elem elem; doc_iter_next(&iter, &elem);) {
        Elem wished = doc_get(wish, elem_name_str(elem));
        bool is_inner = elem_type(wished) == BT_DOC && elem_type(elem) == BT_DOC;
        if (elem_is_present(wished) && !is_inner && elem_type(wished) != BT_BOOL)
            return error_set(err, ERR_INVALID_BSON_TYPE,
                             "serverStatus: '%s' has to be a boolean, not %s", elem_name(elem),
                             bson_type_name(elem_type(wished)));
        if (is_inner) {
            size_t opened = build_open_doc(b, elem_name(elem));
            TRY(copy_wished(b, elem_doc(elem), elem_doc(wished), err));
            build_close(b, opened);
        } else if (!elem_is_present(wished) || elem_bool(wished)) {
            build_elem(b, elem);
        }
    }
    return ERR_OK;
}

static ErrCode build_with_gaps(StatusCtx *s, const StatusSection *section, Error *err) {
    DocBuilder *reply = s->b;
    DocBuilder all = doc_builder_in_arena_sized(&s->op->arena, 16 * 1024);
    s->b = &all;
    section->build(s);
    s->b = reply;
    size_t opened = build_open_doc(reply, section->name);
    TRY(copy_wished(reply, doc_builder_end(&all), elem_doc(s->wish), err));
    build_close(reply, opened);
    return ERR_OK;
}

static ErrCode server_status_run(CommandCtx *ctx, void *request, Error *err) {
    (void)request;
    StatusCtx s = {.service = ctx->service, .op = ctx->op, .b = ctx->reply};
    read_counters(&s);
    const ServerSetup *setup = server_setup(ctx->service);
    DocBuilder *b = ctx->reply;
    build_cstr(b, "host", setup->host);
    build_cstr(b, "version", COMPAT_VERSION);
    build_cstr(b, "process", ctx->service->role == ROLE_ROUTER ? "mongos" : setup->process);
    build_i64(b, "pid", getpid());
    build_f64(b, "uptime", (double)(s.uptime_us / 1000000));
    build_i64(b, "uptimeMillis", s.uptime_us / 1000);
    build_i64(b, "uptimeEstimate", s.uptime_us / 1000000);
    build_date(b, "localTime", clock_wall_ms());
    bool is_none = elem_is_truthy(doc_get_lit(ctx->body, "none"));
    bool is_all = elem_is_truthy(doc_get_lit(ctx->body, "all"));
    for (size_t i = 0; i < ARRAY_LEN(SECTIONS); i++) {
        const StatusSection *section = &SECTIONS[i];
        if (!has_section(ctx->service, section))
            continue;
        Elem wish = doc_get(ctx->body, str_from(section->name));
        bool is_shown = elem_is_present(wish) ? elem_is_truthy(wish)
                                              : (section->is_default || is_all) && !is_none;
        if (!is_shown)
            continue;
        s.wish = wish;
        bool has_gaps = section->build == build_metrics && elem_type(wish) == BT_DOC;
        if (UNLIKELY(has_gaps)) {
            TRY(build_with_gaps(&s, section, err));
            continue;
        }
        size_t opened = build_open_doc(b, section->name);
        section->build(&s);
        build_close(b, opened);
    }
    return ERR_OK;
}

static const FieldSpec SERVER_STATUS_FIELDS[] = {
    {"serverStatus", FIELD_ELEM, FIELD_REQUIRED, offsetof(StatusRequest, server_status)},
};

const CommandSpec CMD_SERVER_STATUS = {
    .name = "serverStatus",
    .summary = "Shows counters of the whole server.",
    .flags = CMD_LOOSE,
    .request = REQUEST_OF(StatusRequest, SERVER_STATUS_FIELDS),
    .run = server_status_run,
};
