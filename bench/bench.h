/*
 * bench.h - what the parts of sherd-bench share: options, the result of a run, the entry points.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/prng.h"
#include "histogram.h"
#include "bson/builder.h"
#include "bson/doc.h"
#include "transport/wire.h"

enum {
    BENCH_DATABASE_SIZE = 64,
    BENCH_RANGE_DOCS = 100,
    BENCH_GROUPS = 100,
};

typedef struct BenchOptions {
    const char *workload;
    const char *uri;
    const char *shard_by; /* "hashed", "range"; NULL: not sharded */
    uint32_t connections;
    uint32_t idle_connections; /* opened, and left alone */
    uint32_t threads;
    double seconds;
    uint32_t docs;
    bool has_docs; /* --docs was given: it bounds the loads too */
    uint32_t doc_size;
    uint32_t batch;
    int server_pid; /* whose memory to report; 0: nobody's */
    bool is_json;
    bool has_prepare;
} BenchOptions;

typedef struct BenchTarget {
    struct sockaddr_storage address;
    socklen_t address_size;
    char database[BENCH_DATABASE_SIZE];
    char w[32];               /* write concern: a number or a name; "": the server's default */
    char read_preference[32]; /* "": none */
    char text[160];           /* for messages */
} BenchTarget;

typedef struct BenchResult {
    double seconds;
    uint64_t ops;  /* messages that were answered */
    uint64_t txns; /* committed; then the latencies are theirs, from the first attempt on */
    uint64_t txn_retries;
    uint64_t docs; /* touched by the operations; 0 when that makes no sense */
    uint64_t errors;
    char first_error[200];
    Histogram latency;
} BenchResult;

/* uri.c */
ErrCode bench_parse_uri(const char *uri, BenchTarget *ret_target, Error *err) MUST_CHECK;

/* document.c */
/* The documents of all workloads: a function of their number, about `size` bytes long. */
void bench_append_doc(Buffer *buf, int32_t id, uint32_t size);
/* The value of the field "k" in document `id`: each occurs once, in no order. */
int32_t bench_doc_k(int32_t id);

/* transaction.c */
typedef struct TxnShape {
    uint32_t statements; /* the commit follows */
    bool is_snapshot;    /* reads at snapshot */
} TxnShape;

/* A connection's logical session. */
typedef struct BenchSession {
    uint8_t id[16];
    int64_t txn_number;
    uint32_t step;      /* statements that were answered */
    uint64_t begun_ns;  /* of the first attempt; 0: no transaction yet */
    bool has_committed; /* with the last reply */
    uint64_t retries;
} BenchSession;

void session_init(BenchSession *session);
/* What makes a command a statement of the session's transaction. */
void session_build_statement(const BenchSession *session, const TxnShape *txn, DocBuilder *b);
void session_build_commit(const BenchSession *session, const BenchTarget *target, DocBuilder *b);
/* Goes on to what comes next. True when the transaction has to be tried again from its start: such
 * a reply is no error. */
bool session_note_reply(BenchSession *session, const TxnShape *txn, Doc reply);

/* workload.c */
typedef struct Workload Workload;
typedef struct WorkloadRun {
    const Workload *workload;
    const BenchOptions *options;
    const BenchTarget *target;
    const char *database;
    _Atomic int64_t next_id; /* of inserts */
} WorkloadRun;

/* NULL when there is none of that name. */
const Workload *workload_find(const char *name);
void workload_list(void);
bool workload_is_echo(const Workload *workload);
/* Makes the collection what the workload expects it to be. */
ErrCode workload_prepare(WorkloadRun *run, const BenchTarget *target, Error *err) MUST_CHECK;
bool workload_is_txn(const Workload *workload);
void bench_build_write_concern(const BenchTarget *target, DocBuilder *b);
/* Appends the next request; false when there is nothing more to do. */
bool workload_build(WorkloadRun *run, BenchSession *session, Prng *prng, int32_t request_id,
                    Buffer *request);
/* NULL when the reply is what was to be expected, else what is wrong with it. */
const char *workload_check(const WorkloadRun *run, BenchSession *session, Doc reply);
uint64_t workload_docs_per_op(const WorkloadRun *run);

/* client.c */
ErrCode bench_connect(const BenchTarget *target, int *ret_fd, Error *err) MUST_CHECK;
/* One command, waiting for its reply, which stays valid until `buf` changes. */
ErrCode bench_command(int fd, Buffer *buf, Doc *ret_reply, Error *err) MUST_CHECK;
ErrCode bench_drive(WorkloadRun *run, const BenchTarget *target, BenchResult *ret_result,
                    Error *err) MUST_CHECK;

/* echo.c */
/* Starts the floor of all network workloads as a child process, which ends with this one. Must be
 * called before there are threads. */
ErrCode echo_server_start(BenchTarget *ret_target, Error *err) MUST_CHECK;

/* wt.c */
bool wt_workload_exists(const char *name);
void wt_workload_list(void);
ErrCode wt_workload_run(const BenchOptions *options, BenchResult *ret_result, Error *err)
    MUST_CHECK;
