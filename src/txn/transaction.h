/*
 * transaction.h - multi-document transactions (SES-4): several statements that take effect together
 * or not at all.
 *
 *     none --first statement--> in progress --commit--> committed
 *                                 |  \____ a failed statement, abort, expiry, kill,
 *                                 |        step-down, a newer number ___> aborted
 *                                 +--prepare--> prepared --commit, abort--> (prepared.h)
 *
 * A transaction is one unit of work that stays open over its statements: one snapshot, the catalog
 * version that belongs to it, locks that are all kept to the end, and staged entries of the oplog.
 * Between statements these are off (storage/op_unit.h): no thread, no worker, no ticket. A
 * statement checks the session out, puts them on, runs like any other operation inside of that
 * unit, and takes them off.
 *
 * The commit writes the entries, the session's row and all documents in that one storage
 * transaction: a crash leaves all or nothing. What is not committed is in memory only.
 *
 * Ownership: a Transaction belongs to its session. Threading: the operation that has the session
 * checked out; constant fields also by others, under the catalog's lock.
 */
#pragma once

#include "catalog/catalog.h"
#include "catalog/write_group.h"
#include "concurrency/lock_manager.h"
#include "storage/op_unit.h"
#include "storage/recovery_unit.h"
#include "storage/unit_of_work.h"
#include "txn/session_catalog.h"

typedef struct Transaction Transaction;

/* What a client may ask of its transaction. */
typedef enum TxnVerb {
    TXN_STATEMENT,
    TXN_PREPARE,
    TXN_COMMIT,
    TXN_ABORT,
} TxnVerb;

typedef struct TxnRequest {
    int64_t number;
    TxnVerb verb;
    bool is_start; /* the first statement; with what follows */
    ReadSource source;
    uint64_t read_ts;    /* of READ_PROVIDED */
    int64_t lifetime_us; /* then it is aborted, unless it is prepared */
    int64_t lock_us_max; /* no request for a lock waits longer; 0: as long as it takes */
} TxnRequest;

/* One statement, from check-out to check-in. Lives as long as the operation that runs it. */
typedef struct TxnStatement {
    SessionCatalog *catalog;
    OpCtx *op; /* NULL: not begun, or over */
    Session *session;
    SessionId id; /* of it, which may be gone when the statement is over */
    TxnVerb verb;
    bool has_cursors; /* opened by this or an earlier one; set when it begins and ends */
} TxnStatement;

/* Checks the session out, and puts the transaction on, if there is one: it is not when a commit
 * comes again. Fails with NoSuchTransaction, TransactionTooOld, TransactionCommitted,
 * PreparedTransactionInProgress, ConflictingOperationInProgress, or because of locks or state. */
ErrCode txn_statement_begin(SessionCatalog *catalog, OpCtx *op, const SessionId *id,
                            const TxnRequest *request, TxnStatement *ret_statement, Error *err)
    MUST_CHECK;
/* Fails if a part of the statement has failed and it did not say so: then it cannot be committed.
 */
ErrCode txn_statement_check(const TxnStatement *statement, Error *err) MUST_CHECK;
/* `is_failed`: the transaction is aborted. Has no effect when it is over. */
void txn_statement_end(TxnStatement *statement, bool is_failed);

/* In progress or prepared; false: it has ended before. */
bool txn_is_open(const TxnStatement *statement);
/* Of a statement with that verb. A commit that fails has aborted it. After one op->last_optime is
 * its entry, or none if it has written nothing; the same if it was committed before. */
ErrCode txn_commit(TxnStatement *statement, Error *err) MUST_CHECK;
void txn_abort(TxnStatement *statement);

/* ---- transactions of others ---- */

/* Who has sent the last statement. */
typedef struct TxnClient {
    int64_t connection_id;   /* 0: none, as of a transaction of the server's own */
    const char *client;      /* "127.0.0.1:1234" */
    const char *app_name;    /* or NULL */
    const uint8_t *metadata; /* BSON, or NULL */
} TxnClient;

/* What others may know of an open one. */
typedef struct TxnInfo {
    SessionId id;
    int64_t number;
    int64_t start_us;
    int64_t start_wall_ms;
    int64_t expires_us;
    uint64_t read_ts; /* 0: none */
    bool is_prepared;
    int64_t prepared_us; /* when, of one that is prepared */
    bool is_active;      /* a statement is running */
    /* Of those that have ended; not told while one is running. */
    int64_t active_us;
    ShownLock locks[LOCKS_SHOWN_MAX];
    uint32_t lock_count;
    const TxnClient *client; /* valid while the catalog's lock is held */
} TxnInfo;

/* Aborts those that `wants` picks (NULL: all), except prepared ones: at once if no statement is
 * running, else when the running one ends, which is interrupted with `code`. Does not wait for it.
 * Returns how many. */
typedef bool (*TxnFilter)(void *arg, const TxnInfo *info);
int txn_abort_where(SessionCatalog *catalog, OpCtx *op, TxnFilter wants, void *arg, ErrCode code);
/* For a change of state, while which no new transaction may begin: they fail as if the node were no
 * longer the primary. */
void txn_set_refused(SessionCatalog *catalog, bool is_refused);
/* At shutdown: rolls all back, also prepared ones, which the next start finds in the oplog. */
void txn_drop_all(SessionCatalog *catalog, OpCtx *op);
/* With the catalog's lock held: copy and return quickly. */
void txn_for_each(SessionCatalog *catalog, void (*visit)(void *arg, const TxnInfo *info),
                  void *arg);

typedef struct TxnStats {
    int64_t started;
    int64_t committed;
    int64_t aborted;
    int64_t prepared;
    int64_t prepared_committed;
    int64_t prepared_aborted;
    int64_t open;
    int64_t active;
    int64_t open_prepared;
} TxnStats;
TxnStats txn_stats(SessionCatalog *catalog);
/* Tells a layer above how long each transaction was open. Set before there are any. */
void txn_observe_ends(SessionCatalog *catalog,
                      void (*ended)(ServiceCtx *service, int64_t duration_us));

/* The statement has opened a client cursor, which must not outlive the transaction. */
void txn_note_cursor(OpCtx *op); /* no effect outside of one */
/* The statement of the parent session that the present write belongs to (internal_txn.h). */
bool txn_has_statement(const OpCtx *op, int32_t *ret_statement);
/* Whether the running transaction reads at a timestamp (read concern snapshot). */
bool txn_is_at_time(const OpCtx *op);
/* The number of the running transaction, if this operation is one of its statements; else -1. */
int64_t op_txn_number(const OpCtx *op);
