/*
 * move.h - a move as documents: of the donor's task, of its requests to the recipient, of the
 * recipient's task. Pure.
 */
#pragma once

#include "bson/builder.h"
#include "bson/namespace.h"
#include "bson/uuid.h"
#include "sharding/meta/shard_key.h"
#include "sharding/meta/versions.h"

typedef struct Move {
    Uuid id;
    Ns ns;
    Uuid uuid; /* of the collection */
    Str from;  /* shards */
    Str to;
    Doc min;
    Doc max;
    ShardKey *key;
    ChunkVersion version; /* of the chunk when it began */
    uint64_t start_ts;    /* writes of the donor after this time are modifications */
    bool waits_for_delete;
    bool is_throttled; /* _secondaryThrottle: two members have each batch before the next one */
    Doc throttle;      /* a write concern that each batch is to have instead; DOC_NONE: none */
} Move;

/* {migrationId, nss, collectionUuid, donorShardId, recipientShardId, range, keyPattern,
 * preMigrationChunkVersion, startTimestamp, ...}. A parsed move borrows from the document. */
void move_build(DocBuilder *b, const Move *move);
/* What operators look for: {migrationId, nss, ..., preMigrationChunkVersion}. */
void move_build_shown(DocBuilder *b, const Move *move);
ErrCode move_parse(Doc doc, Move *ret_move, Error *err) MUST_CHECK;
void move_done(Move *move);

/* Why the critical sections of a move are entered: {command, migrationId}. */
Doc move_section_reason(const Move *move, Arena *arena);
