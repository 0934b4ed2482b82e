/*
 * shard_internal.h - the state, for the files of this folder.
 */
#pragma once

#include "base/hash.h"
#include "base/list.h"
#include "base/pmap.h"
#include "catalog/access_policy.h"
#include "concurrency/op_mutex.h"
#include "sharding/shard/critical_section.h"
#include "sharding/shard/placement.h"

enum {
    NAME_MUTEXES = 16, /* a power of two */
};

/* A change of a document, until its unit of work ends. */
typedef enum PendingKind {
    PENDING_IDENTITY,
    PENDING_SECTION_ENTERED,
    PENDING_SECTION_LEFT,
    PENDING_PLACEMENT_CHANGED, /* the primary stored another one */
    PENDING_DATABASE_CHANGED,
} PendingKind;

typedef struct Pending {
    ListNode node;
    const OpCtx *op;
    PendingKind kind;
    uint8_t *doc; /* heap */
} Pending;

typedef struct Section {
    _Atomic int32_t refs;
    bool blocks_reads;
    bool spares_sharded; /* of a database: requests to its sharded collections pass */
    Doc reason;          /* within `doc` */
    uint8_t *doc;
    Str name; /* of the collection or database; within `doc` */
} Section;

typedef struct SectionWaiter {
    ListNode node;
    OpCtx *op;
} SectionWaiter;

struct ShardState {
    ServiceCtx *service;
    AccessPolicy policy;
    /* How often documents may have changed unnoticed, and up to which of these times they have been
     * read since. */
    _Atomic uint64_t unnoticed_count;
    _Atomic uint64_t loaded_count;
    _Atomic uint64_t change_count; /* of documents, as the observer sees them */
    _Atomic int32_t pending_count;
    _Atomic int64_t stale_count; /* of requests that were refused for their versions */
    _Atomic(Cluster *) cluster;  /* released once made: readers see a complete one */
    OpMutex connecting;
    OpMutex loading;
    /* By hash of the name: shard_mutex_of. */
    OpMutex refreshing[NAME_MUTEXES];
    OpMutex participating[NAME_MUTEXES]; /* in operations of coordinators */
    Mutex live_mu;
    List live; /* guarded by live_mu: all placements that somebody has, Placement */
    Mutex mu;
    /* Guarded by mu. */
    char name[SHARD_NAME_SIZE]; /* "": no identity; set once */
    char *config_address;
    PMap *placements; /* Placement */
    PMap *outdated;  /* CollectionRoute: of those without a placement, what it was; see refresh.c */
    PMap *databases; /* DatabasePlacement */
    PMap *sections;  /* Section */
    List pending;    /* Pending */
    List waiters;    /* SectionWaiter */
};

static inline OpMutex *shard_mutex_of(OpMutex *mutexes, Str name) {
    return &mutexes[hash_bytes(name.data, name.size) & (NAME_MUTEXES - 1)];
}

extern const Ns SECTIONS_NS;
extern const Ns VERSION_NS; /* with the identity, whose _id is: */
#define IDENTITY_ID "shardIdentity"
/* The section of the collection, or of its database, that is in the way; NULL: none. */
const Section *section_find_locked(const ShardState *state, const Ns *ns, bool is_write,
                                   bool is_sharded);
/* For placement.c and shard_state.c. */
void placements_free(ShardState *state);
void placement_forget_locked(ShardState *state, Str name);
void placement_forget_database_locked(ShardState *state, Str name);
void placement_forget_all_locked(ShardState *state);
