/*
 * ttl.h - removes documents whose time is over (TTL-1).
 *
 * An index on a field that holds a date (or an array of dates: the lowest counts) may say for how
 * long after it a document lives; a clustered collection may say so of the date in _id. A thread
 * looks every few seconds. Such a pass consists of sub-passes, each of which asks the catalog anew
 * and goes round the indexes in turns, a limited number of documents and milliseconds each, so that
 * none has to wait for another to be done. It is admitted after everybody else, but for collections
 * where it falls behind.
 *
 * Ownership:  made by server/ once the catalog is open, freed before it.
 * Threading:  one thread of its own; statistics can be read by any.
 * Durability: none of its own: what a stop leaves is found by the next pass.
 */
#pragma once

#include <stdint.h>

#include "base/error.h"
#include "bson/namespace.h"
#include "concurrency/op_ctx.h"
#include "concurrency/service_ctx.h"

typedef struct TtlMonitor TtlMonitor;

/* Asked for before each use, so that changes count at once. */
typedef struct TtlSettings {
    bool is_enabled;
    bool is_batched; /* else one document at a time, one index after the other */
    int64_t sleep_s;
    int64_t sub_pass_s;
    int64_t index_docs; /* per turn; 0: no limit */
    int64_t index_ms;   /* per turn; 0: no limit */
    /* A collection that was not done with so many sub-passes in a row gets normal priority. */
    int64_t low_priority_sub_passes;
} TtlSettings;
typedef TtlSettings (*TtlSettingsFn)(ServiceCtx *service);
/* Before each turn: what the operation needs so that it deletes only documents that this node owns.
 * A failure skips the turn. */
typedef ErrCode (*TtlPrepareFn)(ServiceCtx *service, OpCtx *op, const Ns *ns, Error *err);

typedef struct TtlStats {
    int64_t deleted;
    int64_t passes;
    int64_t sub_passes;
    int64_t invalid_skips; /* indexes that say so but cannot be followed */
} TtlStats;

ErrCode ttl_monitor_start(ServiceCtx *service, TtlSettingsFn settings, TtlPrepareFn prepare,
                          TtlMonitor **ret_monitor, Error *err) MUST_CHECK;
/* Interrupts what runs and waits for its end; NULL is fine. Statistics can still be read. */
void ttl_monitor_stop(TtlMonitor *monitor);
/* Stops it first, if need be. */
void ttl_monitor_free(TtlMonitor *monitor);
/* The settings have changed: the time to the next pass is counted anew from the last one. */
void ttl_monitor_wake(TtlMonitor *monitor);
TtlStats ttl_monitor_stats(const TtlMonitor *monitor);
