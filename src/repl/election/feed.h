/*
 * feed.h - which entries of another member's oplog this one may append, and until when.
 *
 * Entries come from a source through a queue into the own oplog, each step in its own thread, while
 * elections are won and lost concurrently. A batch requested before an election may arrive after
 * it. So the feed alone decides whether a batch is still valid, at the moment it is queued:
 *
 *     closed --feed_open--> asking --feed_prove--> proved, feed_take ... --feed_close--> closed
 *        ^                                                                     |
 *        +---- feed_drain: at once, from any state, until feed_drained --------+
 *
 * A batch is accepted only from the current stream (one find on one source, with its getMores),
 * only once the source has been seen to have this member's newest entry, only directly after
 * exactly that entry, and only while the source has not rolled back since the stream began: a
 * cursor on an oplog continues after its position whether or not the entry there still exists.
 *
 * Pure: no lock, no clock, no I/O; sync.c holds its lock around all of it, the simulator needs
 * none.
 */
#pragma once

#include "bson/optime.h"

typedef struct Feed {
    uint64_t stream; /* number of the present or last one; never used again */
    bool is_open;
    bool is_proved;
    int32_t rollback_id;   /* of the source, from before the first entry was read */
    OpTime tail;           /* newest entry taken; with nothing pending the end of the own oplog */
    uint64_t pending;      /* entries taken and not applied yet */
    int64_t catch_up_term; /* the primary of this term may take entries; OPTIME_TERM_NONE: none */
    int64_t drain_term;    /* OPTIME_TERM_NONE: not draining */
    int64_t closed_term;   /* newest term drained for: nothing is accepted in it any more */
} Feed;

void feed_init(Feed *feed);

/* Opens a new stream, unless a drain is in progress or this member is neither follower nor catching
 * up. `end`: newest entry of the own oplog. */
bool feed_open(Feed *feed, bool is_follower, OpTime end, uint64_t *ret_stream);
/* The source's entry at the position of the tail: true if it is the tail. `rollback_id` must have
 * been read before that entry. */
bool feed_prove(Feed *feed, uint64_t stream, int32_t rollback_id, OpTime first);
/* A batch of `count` entries up to `last` that follows `after` on the source; `rollback_id` read
 * after it. False: it is not valid here, and neither is what follows, nor the source's commit
 * point, which on another branch applies to other entries. An empty batch (`last` is `after`) must
 * be checked, too. */
bool feed_take(Feed *feed, uint64_t stream, int32_t rollback_id, OpTime after, OpTime last,
               uint64_t count);
void feed_close(Feed *feed, uint64_t stream);
void feed_applied(Feed *feed, uint64_t count);

/* Won an election: entries of others are accepted until the drain of this term. Late calls for a
 * term already drained are ignored. */
void feed_catch_up(Feed *feed, int64_t term);
/* From now on nothing is accepted; drained once everything accepted is applied. */
void feed_drain(Feed *feed, int64_t term);
/* True once: the drain is over. */
bool feed_drained(Feed *feed, int64_t *ret_term);
