/*
 * txn_table.h - what a router remembers of transactions: of each session the newest one, and the
 * shard it is on (SES-3).
 *
 * Bounded: entries that were not used for long are dropped, then the oldest ones. A transaction
 * that was forgotten, or begun through another router, is found by the recovery token that its
 * client has.
 *
 * Ownership: hangs off the ServiceCtx. Threading: any. Lock: a leaf.
 */
#pragma once

#include "base/arena.h"
#include "bson/doc.h"
#include "bson/uuid.h"
#include "sharding/route/shard_registry.h"

enum { TXN_TABLE_ENTRIES_MAX = 100000 };

typedef enum RouterTxnState {
    ROUTER_TXN_UNKNOWN, /* to this router */
    ROUTER_TXN_OPEN,
    ROUTER_TXN_COMMITTED, /* or about to be: only its shard knows */
    ROUTER_TXN_ABORTED,
} RouterTxnState;

typedef struct RouterTxn {
    Uuid session;
    int64_t number;
    RouterTxnState state;
    char shard[SHARD_NAME_SIZE]; /* "": it has touched none */
    Doc read_concern;            /* of its first statement; DOC_NONE: none */
    /* Of the statement that runs. */
    bool is_opened_here; /* its shard has not been asked before */
} RouterTxn;

typedef struct TxnTable TxnTable;

TxnTable *txn_table_new(uint32_t entries_max);
void txn_table_free(TxnTable *table); /* NULL is fine */
uint32_t txn_table_count(TxnTable *table);

/* The newest transaction of the session; false: none is known. */
bool txn_table_find(TxnTable *table, const Uuid *session, Arena *arena, RouterTxn *ret_txn);
/* Remembers it instead of an older one of the session; what has not been used since `expired_us`
 * is dropped. */
void txn_table_put(TxnTable *table, const RouterTxn *txn, int64_t now_us, int64_t expired_us);
