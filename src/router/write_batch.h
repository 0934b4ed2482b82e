/*
 * write_batch.h - the statements of one insert, update or delete: which are still to be done, what
 * goes to which shard next, and what all shards have answered.
 *
 *     while (write_batch_plan(...) gives parts)
 *         send each part; write_batch_take_reply or write_batch_take_error for each
 *     write_batch_build
 *
 * Ordered: statements that follow each other and go to the same shard are one part, sent alone; it
 * ends at the first error. Unordered: a part for each shard, sent together; then what goes to
 * all shards. A statement that a shard refused because of old metadata stays pending.
 *
 * Pure. Ownership: what is kept of replies is copied. Threading: one thread.
 */
#pragma once

#include "router/write_target.h"

enum {
    /* Beyond this the messages of errors are empty, and their details left out. */
    WRITE_BATCH_TEXT_BYTES_MAX = 1024 * 1024,
    WRITE_BATCH_DETAIL_BYTES_MAX = 4 * 1024 * 1024,
};

typedef enum WriteState {
    WRITE_PENDING,
    WRITE_DONE,
    WRITE_FAILED,
} WriteState;

typedef struct WriteStatement {
    WriteState state;
    bool is_targeted; /* by the metadata of this round */
    WriteTarget target;
    /* Shards that have executed a statement that goes to all. */
    const char **finished;
    uint32_t finished_count;
    Doc error;    /* {code, errmsg, ...} of a failed one */
    Doc upserted; /* {_id}; DOC_NONE: nothing */
} WriteStatement;

/* One request to one shard. */
typedef struct WritePart {
    const char *shard;
    bool is_spread; /* its statements go to all shards */
    const uint32_t *statements;
    uint32_t count;
} WritePart;

typedef struct WriteConcernRow {
    const char *shard;
    Doc error;
    struct WriteConcernRow *next;
} WriteConcernRow;

typedef struct WriteBatch {
    /* Set by the caller after init. */
    size_t bytes_max;  /* of the statements of one request */
    bool can_move;     /* a statement may move a document to another shard by the rules */
    bool has_modified; /* the reply tells nModified */
    /* To be read. */
    bool is_begun;       /* a shard has executed something */
    uint32_t done_count; /* statements that are not pending any more */
    uint32_t error_count;
    /* Private. */
    DocList docs;
    bool is_ordered;
    Arena arena;
    WriteStatement *statements;
    uint32_t first_pending;
    bool is_stopped; /* an ordered one has failed */
    int64_t n, modified;
    size_t text_bytes_left, detail_bytes_left;
    WriteConcernRow *concerns;
    uint32_t labels;
    int32_t *retried;
    uint32_t retried_count;
} WriteBatch;

/* `docs` are borrowed. */
void write_batch_init(WriteBatch *batch, DocList docs, bool is_ordered);
void write_batch_done(WriteBatch *batch);

/* Is there anything left to be done? */
bool write_batch_is_pending(const WriteBatch *batch);
/* Other metadata: all targets are found anew. */
void write_batch_forget_targets(WriteBatch *batch);

typedef ErrCode (*WriteTargetFn)(void *arg, uint32_t index, WriteTarget *ret_target, Error *err);
typedef struct WritePlanner {
    WriteTargetFn target;
    void *arg;
    const char *const *owners; /* names of shards, by their numbers in targets */
    uint32_t owner_count;
    const char *const *shards; /* all of the cluster */
    uint32_t shard_count;
    bool is_list_old; /* there may be more */
} WritePlanner;
typedef struct WritePlan {
    WritePart *parts;
    uint32_t count;
    bool needs_list; /* what is next goes to all shards: first those have to be known */
} WritePlan;
/* The requests of the next round, in `arena`, at most one for each shard. None: what was left could
 * not be targeted, which is its failure, or there was nothing left of it. */
WritePlan write_batch_plan(WriteBatch *batch, const WritePlanner *planner, Arena *arena);
/* A part with all statements, for a request that is sent as it came. */
WritePart write_batch_whole(WriteBatch *batch, const char *shard);

/* A reply {ok: 1} of a shard. Statements that it refused because of old metadata stay pending;
 * *ret_stale (ERR_OK before) is the first such error. */
void write_batch_take_reply(WriteBatch *batch, const WritePart *part, Doc reply, Error *ret_stale);
/* The request failed as a whole: an error of its statements. */
void write_batch_take_error(WriteBatch *batch, const WritePart *part, const Error *err);
/* No use to go on. */
void write_batch_fail_rest(WriteBatch *batch, const Error *err);

/* Appends n, upserted, nModified, writeErrors, writeConcernError, errorLabels, retriedStmtIds. */
void write_batch_build(const WriteBatch *batch, DocBuilder *b);

/* A document would have to move to another shard. `can_move`: in a retryable write or a
 * transaction. */
ErrCode write_refuse_move(bool can_move, Error *err);
