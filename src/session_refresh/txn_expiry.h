/*
 * txn_expiry.h - aborts transactions that are open for too long (SES-4): they keep locks, and pin
 * old versions in the cache.
 *
 * Ownership: made by server/. Its thread ends before the operations' registry.
 */
#pragma once

#include <stdint.h>

#include "base/error.h"
#include "concurrency/service_ctx.h"

typedef struct TxnExpiry TxnExpiry;

ErrCode txn_expiry_start(ServiceCtx *service, TxnExpiry **ret_expiry, Error *err) MUST_CHECK;
void txn_expiry_stop(TxnExpiry *expiry); /* NULL is fine */
void txn_expiry_free(TxnExpiry *expiry); /* likewise */

typedef struct TxnExpiryStats {
    int64_t passes;
    int64_t kills;
} TxnExpiryStats;
TxnExpiryStats txn_expiry_stats(const TxnExpiry *expiry); /* NULL is fine */
