/*
 * command_service.h - turns a message into a command and its reply.
 *
 * Ownership: created by server/, hangs off the ServiceCtx. Its handler functions are passed to the
 * transport. Threading: any worker.
 */
#pragma once

#include <stdatomic.h>

#include "commands/core/command.h"
#include "transport/server.h"

typedef struct CommandService CommandService;

/* Callbacks of the layers above the core. */
typedef struct CommandHooks {
    /* Gives a new operation its storage. */
    void (*attach_op)(ServiceCtx *service, OpCtx *op);
    /* Whether the command may run on this node; waits for its read concern. */
    ErrCode (*before_run)(CommandCtx *ctx, Error *err);
    /* After run(), also a failed one; may fail a successful one. */
    ErrCode (*after_run)(CommandCtx *ctx, ErrCode rc, Error *err);
    /* Waits until the writes of the command satisfy the write concern. */
    ErrCode (*wait_write_concern)(CommandCtx *ctx, const WriteConcern *concern, Error *err);
    /* A commit or abort found no such transaction: is that so for its write concern? NULL: yes. */
    ErrCode (*confirm_no_txn)(CommandCtx *ctx, Error *err);
    /* Appends what goes into every reply. */
    void (*finish_reply)(CommandCtx *ctx);
    /* The connection is gone. */
    void (*on_disconnect)(ServiceCtx *service, ClientState *client);
    /* Labels of an error beyond those of retryable writes. */
    uint32_t (*error_labels)(const CommandCtx *ctx, ErrCode rc);
    /* After each command: profiler. */
    void (*on_finished)(CommandCtx *ctx, int64_t duration_us, ErrCode rc, const Error *err);
    /* Whether a filter tells of the command in the log; false: there is none. */
    bool (*is_logged)(CommandCtx *ctx, int64_t duration_us, ErrCode rc, const Error *err,
                      bool *ret_is_logged);
} CommandHooks;

/* `commands` is borrowed and constant. */
CommandService *command_service_new(ServiceCtx *service, const CommandTable *commands,
                                    const CommandHooks *hooks);
void command_service_free(CommandService *service);

/* Functions and context for TransportConfig. */
TransportHandler command_service_handler(void);

/* To those who look at the running operation, its command has the comment of the one that it
 * belongs to, unless it has its own. */
void command_show_comment(CommandCtx *ctx, Elem comment);
/* The collection of a command whose first field does not name it. */
void command_set_coll(CommandCtx *ctx, Str coll);

const CommandSpec *command_find(CommandService *service, Str name);
size_t command_count(CommandService *service);
void command_for_each(CommandService *service,
                      void (*visit)(void *arg, const CommandSpec *spec, int64_t total,
                                    int64_t failed),
                      void *arg);

/* ---- topology version, for hello ---- */

typedef struct TopologyVersion {
    Oid process_id;
    int64_t counter;
} TopologyVersion;
TopologyVersion topology_version(CommandService *service);
/* Appends {topologyVersion: ...}. */
void build_topology_version(DocBuilder *b, TopologyVersion version);
/* The state is about to change: errors caused by it must not carry the old topology version, or
 * clients would ignore them as stale. Neither blocks nor calls back. */
void topology_moves(CommandService *service);
/* Something visible in hello changed: wakes awaitable hellos. */
void topology_changed(CommandService *service);
/* From now on hello reports that the server is shutting down. */
void command_service_begin_quiesce(CommandService *service, int64_t until_us);
int64_t command_service_quiesce_until(CommandService *service); /* 0: not going away */

/* ---- statistics ---- */

typedef enum OpCounter {
    OP_COUNTER_INSERT,
    OP_COUNTER_QUERY,
    OP_COUNTER_UPDATE,
    OP_COUNTER_DELETE,
    OP_COUNTER_GETMORE,
    OP_COUNTER_COMMAND,
    OP_COUNTER_COUNT,
} OpCounter;
/* Options that some commands count: rows of OPTION_METRICS. */
typedef enum OptionMetric {
    OPTION_METRIC_AGGREGATE_DISK_USE,
    OPTION_METRIC_DELETE_MANY,
    OPTION_METRIC_FIND_AND_MODIFY_ARRAY_FILTERS,
    OPTION_METRIC_FIND_AND_MODIFY_PIPELINE,
    OPTION_METRIC_UPDATE_ARRAY_FILTERS,
    OPTION_METRIC_UPDATE_MANY,
    OPTION_METRIC_UPDATE_PIPELINE,
    OPTION_METRIC_COUNT,
} OptionMetric;
/* How often reads asked for which read concern. */
typedef enum ReadConcernCount {
    READ_COUNT_NONE_LOCAL, /* none given: what the default was */
    READ_COUNT_NONE_MAJORITY,
    READ_COUNT_LOCAL,
    READ_COUNT_AVAILABLE,
    READ_COUNT_MAJORITY,
    READ_COUNT_LINEARIZABLE,
    READ_COUNT_SNAPSHOT,
    READ_COUNT_SNAPSHOT_AT, /* a time that the client gave */
    READ_COUNT_COUNT,
} ReadConcernCount;
typedef struct CommandStats {
    _Atomic int64_t options[OPTION_METRIC_COUNT];
    _Atomic int64_t op_counters[OP_COUNTER_COUNT];
    _Atomic int64_t read_concerns[2][READ_COUNT_COUNT]; /* without and with a transaction */
    Latencies latencies;
    _Atomic int64_t asserts_user;
    _Atomic int64_t asserts_warning;
    _Atomic int64_t docs_inserted;
    _Atomic int64_t docs_returned;
    _Atomic int64_t docs_updated;
    _Atomic int64_t docs_deleted;
    _Atomic int64_t keys_examined;
    _Atomic int64_t docs_examined;
    _Atomic int64_t scans; /* of collections, and those of them that tail */
    _Atomic int64_t tailing_scans;
    /* Of statements that may concern many documents: all together, and the most of one. */
    _Atomic int64_t many_docs, many_docs_most;
    _Atomic int64_t many_us, many_us_most;
    /* Commands that waited for more than this node to have their writes, how long, and for which it
     * took too long; of the latter those that only had the default write concern. */
    _Atomic int64_t write_waits, write_wait_us, write_timeouts, write_timeouts_by_default;
    _Atomic int64_t unanswered_not_primary; /* writes with w: 0 that a state refused or ended */
} CommandStats;
CommandStats *command_stats(ServiceCtx *service);
static inline void count_op(ServiceCtx *service, OpCounter counter, int64_t by) {
    atomic_fetch_add_explicit(&command_stats(service)->op_counters[counter], by,
                              memory_order_relaxed);
}

/* An update or delete with multi has found so many documents. */
void count_many(ServiceCtx *service, int64_t docs, int64_t duration_us);

static inline void count_option(ServiceCtx *service, OptionMetric metric, bool is_given) {
    if (is_given)
        atomic_fetch_add_explicit(&command_stats(service)->options[metric], 1,
                                  memory_order_relaxed);
}

/* Time per collection. */
struct TopTable *command_top(ServiceCtx *service);

/* Settings read at run time; owned by the server parameters. */
typedef struct CommandSettings {
    _Atomic int32_t slow_ms;
    _Atomic double slow_sample_rate;
    _Atomic int32_t profile_level;
    _Atomic bool has_profile_filters;
    _Atomic bool is_test_commands_enabled;
    _Atomic bool is_quiet;
} CommandSettings;
CommandSettings *command_settings(ServiceCtx *service);

/* Writes {ok: 0, errmsg, code, codeName, errorLabels?} and the error's extra fields. */
void build_error(DocBuilder *b, const Error *err);
/* Its message as "errmsg": empty if longer than `bytes_max` bytes. */
void build_error_text(DocBuilder *b, const Error *err, size_t bytes_max);
/* errorLabels: [...]; nothing if there are none. */
void build_error_labels(DocBuilder *b, uint32_t labels);
/* One row of writeErrors or a writeConcernError. */
void build_error_fields(DocBuilder *b, const Error *err, bool has_code_name);
