/*
 * routing.h - by which metadata a command is sent, and that it is sent again when they were old.
 *
 *     static ErrCode count_on_shards(void *arg, Routing *routing, Error *err) {
 *         ... target by routing->collection, shard_calls_new, routing_end_body, scatter_run,
 *         shard_calls_check: StaleConfig and StaleDbVersion go out as they are
 *     }
 *     TRY(routing_run(ctx, &ns, ROUTING_READS, count_on_shards, &args, err));
 *
 * The body may be run several times, so it must not append to the reply before all shards have
 * agreed, and what it began it must end itself when it fails.
 */
#pragma once

#include "commands/core/command.h"
#include "sharding/route/cluster.h"
#include "sharding/route/collection_routes.h"
#include "sharding/route/remote.h"
#include "sharding/route/route_stats.h"

enum {
    ROUTING_ATTEMPTS_MAX = 10,
};

typedef struct Routing {
    CommandCtx *ctx;
    Ns ns;
    /* Of this attempt; borrowed. */
    DatabaseRoute *database;     /* NULL: there is no such database */
    CollectionRoute *collection; /* always there; with map NULL for one that is not sharded */
    ShardList *shards;           /* all of them */
    ShardList *newer_shards;     /* the same, if one was not in that list; NULL: not needed */
    bool is_fresh;               /* read after what earlier requests were refused for */
    bool has_newest_shards;      /* the list was read for this attempt */
    bool is_outdated;            /* a shard was needed for which the route is known to be old */
} Routing;

typedef enum RoutingUse {
    ROUTING_READS,   /* a database that does not exist is none */
    ROUTING_CREATES, /* is created */
} RoutingUse;

typedef ErrCode (*RoutingBody)(void *arg, Routing *routing, Error *err);
/* Runs `body`, and again after StaleConfig, StaleDbVersion and StaleEpoch, with what was old read
 * anew. */
ErrCode routing_run(CommandCtx *ctx, const Ns *ns, RoutingUse use, RoutingBody body, void *arg,
                    Error *err) MUST_CHECK;

/* For those that repeat by themselves, as batches of writes do. `is_repeat`: an attempt found its
 * metadata to be old; what is known to be old for any shard is read anew. Without it a route may be
 * old for some shards: routing_find_shard fails with ERR_STALE_CONFIG for these (`is_outdated`),
 * with nothing sent. */
ErrCode routing_begin(CommandCtx *ctx, const Ns *ns, RoutingUse use, bool is_repeat,
                      Routing *ret_routing, Error *err) MUST_CHECK;
void routing_done(Routing *routing);
/* Marks what the error of `shard` ("": the error names it, or it concerns all) says to be old. */
void routing_mark_stale(Routing *routing, const Error *err, Str shard);
/* Marks it. True: the command may be repeated; false if the error is another one, and inside of a
 * transaction that cannot begin again: then it has failed. */
bool routing_note_stale(Routing *routing, const Error *err);
bool routing_is_stale_error(ErrCode code);

static inline bool routing_is_sharded(const Routing *routing) {
    return routing->collection->map != NULL;
}

/* Counts for serverStatus that a command of a client went to so many shards. */
void routing_count_target(const Routing *routing, TargetedCommand command, uint32_t shard_count);

/* A shard by its name: of the database's primary, or of a chunk map. Reloads the list if it is not
 * known. */
ErrCode routing_find_shard(Routing *routing, Str name, const Shard **ret_shard, Error *err)
    MUST_CHECK;
/* The primary shard of the database; of one that does not exist, any shard: its answer is that of a
 * node without it. */
ErrCode routing_primary(Routing *routing, const Shard **ret_shard, Error *err) MUST_CHECK;
/* The shards of a set, in order of their numbers in the map; in the operation's arena. */
ErrCode routing_shards_of(Routing *routing, const ShardSet *set, const Shard ***ret_shards,
                          uint32_t *ret_count, Error *err) MUST_CHECK;
/* May there be more shards than routing->shards, as a node has told or the chunks show? */
bool routing_has_old_shards(const Routing *routing);
/* Before something goes to all shards: reads the list anew if it is old. It may be another one. */
ErrCode routing_load_shards(Routing *routing, Error *err) MUST_CHECK;
/* Every shard that owns a chunk. */
ErrCode routing_owners(Routing *routing, const Shard ***ret_shards, uint32_t *ret_count, Error *err)
    MUST_CHECK;

/* Appends the fields of the client's command that a shard gets as they came: all but those of the
 * connection ($db, $clusterTime, $readPreference, ...) and those named in `without` (NULL-ended;
 * NULL: none). */
void routing_copy_fields(CommandCtx *ctx, DocBuilder *b, const char *const *without);
/* Ends a body for that shard: versions, $db, read preference, times. */
Doc routing_end_body(Routing *routing, DocBuilder *b, const Shard *shard,
                     const ReadPreference *preference);
/* For shards that do not own anything: tells the version that says so, without a check of what is
 * there. The command must be right whatever the placement. */
Doc routing_end_body_unversioned(Routing *routing, DocBuilder *b, const ReadPreference *preference);
