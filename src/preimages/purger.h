/*
 * purger.h - removes images nobody can need any more (TRM-1).
 *
 * Every member does that by itself, by range truncations that are not replicated: an image expires
 * with its age, if the cluster parameter changeStreamOptions says so, and with its oplog entry.
 *
 * Ownership:  created by server/ before writes begin, started once the node serves, freed before
 *             the catalog.
 * Threading:  one thread of its own; the other functions by any thread.
 * Durability: none; after a start the images are measured once.
 */
#pragma once

#include "base/error.h"
#include "bson/uuid.h"
#include "concurrency/op_ctx.h"
#include "concurrency/service_ctx.h"

typedef struct PreimagePurger PreimagePurger;

/* What holds during one pass. */
typedef struct PurgeRules {
    bool is_enabled;          /* the data are those of a serving member */
    int64_t expire_after_s;   /* -1: never by age */
    uint64_t oldest_oplog_ts; /* the oldest entry; 0: unknown */
    uint64_t stable_ts;       /* nothing later is removed: it may still be rolled back */
    uint64_t complete_ts;     /* all writes up to it are committed here */
} PurgeRules;

/* How the purger learns of what is above it. */
typedef struct PurgeHooks {
    ErrCode (*read_rules)(OpCtx *op, PurgeRules *ret_rules, Error *err);
    uint64_t (*newest_ts)(ServiceCtx *service); /* every later write has a later one; an atomic */
    int64_t (*sleep_s)(ServiceCtx *service);
} PurgeHooks;

typedef struct PurgeStats {
    int64_t passes;
    int64_t docs_deleted;
    int64_t bytes_deleted;
    int64_t scanned_collections;
    int64_t start_wall_ms_max; /* of the newest removed image, as its operationTime */
    int64_t elapsed_ms;
} PurgeStats;

PreimagePurger *preimage_purger_new(ServiceCtx *service, const PurgeHooks *hooks);
ErrCode preimage_purger_start(PreimagePurger *purger, Error *err) MUST_CHECK;
/* Interrupts what runs and waits for its end; NULL is fine. */
void preimage_purger_stop(PreimagePurger *purger);
void preimage_purger_free(PreimagePurger *purger); /* stops it first, if need be */
void preimage_purger_wake(PreimagePurger *purger); /* the time to sleep has changed */
PurgeStats preimage_purger_stats(const PreimagePurger *purger);

/* An image was committed; NULL: nobody counts (tests). */
void preimage_purger_note(PreimagePurger *purger, const Uuid *collection, uint64_t ts,
                          int64_t wall_ms, int64_t bytes);
/* The images were changed behind its back, by a rollback or an initial sync: measures them anew. */
void preimage_purger_forget(PreimagePurger *purger);
