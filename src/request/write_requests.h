/*
 * write_requests.h - the arguments of the commands that change documents.
 */
#pragma once

#include "bson/collator.h"
#include "request/request.h"

/* stmtId and stmtIds of write commands. */
typedef struct StatementArgs {
    Elem first; /* stmtId: that of the first statement, the others follow */
    Elem all;   /* stmtIds: an array */
} StatementArgs;

enum { WRITE_BATCH_STATEMENTS_MAX = 100000 };
/* The number of statements of a batch is limited and not 0. */
ErrCode write_batch_check(uint32_t count, Error *err) MUST_CHECK;
/* The ids of `count` statements: as given, or one after the other. `command` is its name in
 * errors. */
ErrCode statement_ids_parse(const StatementArgs *args, const char *command, uint32_t count,
                            int32_t *ids, Error *err) MUST_CHECK;

typedef struct InsertRequest {
    Str coll;
    DocList documents;
    Elem ordered;
    bool is_validation_bypassed;
    bool is_empty_ts_kept;
    StatementArgs statements;
    Elem collection_uuid;
} InsertRequest;

typedef struct UpdateRequest {
    Str coll;
    DocList updates;
    Elem ordered;
    Doc let;
    bool is_validation_bypassed;
    bool is_empty_ts_kept;
    StatementArgs statements;
    Elem collection_uuid;
} UpdateRequest;

typedef struct UpdateStatement {
    Doc q;
    Elem u;
    Doc c; /* constants of a pipeline; DOC_NONE: none */
    bool is_multi;
    bool is_upsert;
    bool is_upsert_supplied; /* an upsert inserts `c.new` */
    Doc array_filters;
    Elem hint;
    Elem collation;
    bool has_collation;
    const Collator *collator;
} UpdateStatement;

typedef struct DeleteRequest {
    Str coll;
    DocList deletes;
    Elem ordered;
    Doc let;
    StatementArgs statements;
    Elem collection_uuid;
} DeleteRequest;

typedef struct DeleteStatement {
    Doc q;
    int64_t limit;
    Elem hint;
    Elem collation;
    bool has_collation;
    const Collator *collator;
} DeleteStatement;

typedef struct FindAndModifyRequest {
    Str coll;
    Doc query;
    Doc sort;
    Doc fields;
    Elem update;
    Doc array_filters;
    Elem hint;
    Elem collation;
    Doc let;
    bool is_remove;
    bool is_new;
    bool is_upsert;
    bool is_validation_bypassed;
    bool is_empty_ts_kept;
    StatementArgs statement;
} FindAndModifyRequest;

/* Parses statements of an update or delete, with all that can be wrong before one of them runs: a
 * malformed command changes nothing. `statements` are zeroed, as many as the list has documents. */
ErrCode update_statements_parse(const DocList *list, Arena *arena, UpdateStatement *statements,
                                Error *err) MUST_CHECK;
ErrCode delete_statements_parse(const DocList *list, Arena *arena, DeleteStatement *statements,
                                Error *err) MUST_CHECK;

/* What single fields cannot say: ERR_FAILED_TO_PARSE. */
ErrCode find_and_modify_check(const FindAndModifyRequest *request, Error *err) MUST_CHECK;

extern const RequestSpec INSERT_REQUEST;
extern const RequestSpec UPDATE_REQUEST;
extern const RequestSpec UPDATE_STATEMENT;
extern const RequestSpec DELETE_REQUEST;
extern const RequestSpec DELETE_STATEMENT;
extern const RequestSpec FIND_AND_MODIFY_REQUEST;

/* ---- ends of transactions ---- */

typedef struct CommitTransactionRequest {
    Elem commit_transaction;
    Elem commit_timestamp; /* of a prepared one: from when on it counts */
    Elem recovery_token;   /* for a router; says nothing here */
} CommitTransactionRequest;
extern const RequestSpec COMMIT_TRANSACTION_REQUEST;

typedef struct AbortTransactionRequest {
    Elem abort_transaction;
    Elem recovery_token;
} AbortTransactionRequest;
extern const RequestSpec ABORT_TRANSACTION_REQUEST;

typedef struct PrepareTransactionRequest {
    Elem prepare_transaction;
    Elem coordinator_id; /* for diagnosis */
} PrepareTransactionRequest;
extern const RequestSpec PREPARE_TRANSACTION_REQUEST;
