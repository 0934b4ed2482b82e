/*
 * write_target.h - which shards a statement that writes goes to (RTE-6).
 *
 * Inserts go where their shard key belongs. What changes many documents goes to all shards that may
 * have one of them. What changes one document must name one shard by its filter, or the document by
 * its _id: then all shards are asked, and at most one has it. An upsert needs the whole shard key.
 *
 * What concerns several shards goes to all of them: such a request is right whatever each of them
 * owns, so that none can find it routed by old metadata after another one has executed it.
 *
 * Pure. Threading: a WriteTargeter belongs to one thread.
 */
#pragma once

#include "request/write_requests.h"
#include "sharding/meta/target.h"

typedef struct WriteTarget {
    bool is_single;   /* or else all */
    ShardIndex shard; /* the only one */
} WriteTarget;

typedef struct WriteTargeter {
    const ChunkMap *map;
    const Collator *collator; /* the default of the collection; NULL: simple */
    ShardKey *id_key;
    KeyBuilder key;
    Arena scratch;
} WriteTargeter;

/* `map` is borrowed. Begin with {0}. */
ErrCode write_targeter_init(WriteTargeter *targeter, const ChunkMap *map, Doc collation, Error *err)
    MUST_CHECK;
void write_targeter_done(WriteTargeter *targeter);

ErrCode write_target_insert(WriteTargeter *targeter, Doc doc, WriteTarget *ret_target, Error *err)
    MUST_CHECK;
ErrCode write_target_update(WriteTargeter *targeter, const UpdateStatement *statement,
                            WriteTarget *ret_target, Error *err) MUST_CHECK;
ErrCode write_target_delete(WriteTargeter *targeter, const DeleteStatement *statement,
                            WriteTarget *ret_target, Error *err) MUST_CHECK;
/* findAndModify: always one shard. */
ErrCode write_target_modify(WriteTargeter *targeter, const FindAndModifyRequest *request,
                            ShardIndex *ret_shard, Error *err) MUST_CHECK;
