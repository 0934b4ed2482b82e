/*
 * feed.h - which entries of another member's oplog this one may take over, and until when.
 *
 * Entries come from a source over a queue into the own oplog, each step in a thread of its own,
 * while elections are won and lost beside them. A batch that was asked for before an election may
 * arrive after it. So nothing but the feed says whether a batch still belongs here, at the moment
 * it is queued:
 *
 *     closed --feed_open--> asking --feed_prove--> proved, feed_take ... --feed_close--> closed
 *        ^                                                                     |
 *        +---- feed_drain: at once, from wherever it is, until feed_drained ---+
 *
 * A batch is taken only from the present stream (one find on one source, with its getMores), only
 * once the source was seen to have the newest entry this member has, only behind exactly that
 * entry, and only while the source has not rolled back since the stream began: a cursor on an oplog
 * goes on behind its place whether or not the entry at that place is still there.
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
    int64_t closed_term;   /* newest term drained for: in it nothing is taken any more */
} Feed;

void feed_init(Feed *feed);

/* A new stream, unless a drain is under way or this member is neither follower nor catching up.
 * `end`: newest entry of the own oplog. */
bool feed_open(Feed *feed, bool is_follower, OpTime end, uint64_t *ret_stream);
/* The source's entry at the place of the tail: true when it is the tail. `rollback_id` must have
 * been read before that entry. */
bool feed_prove(Feed *feed, uint64_t stream, int32_t rollback_id, OpTime first);
/* A batch of `count` entries up to `last` that follows `after` at the source; `rollback_id` read
 * after it. False: it does not belong here, and neither does what follows, nor what the source says
 * of the commit point: on another branch that is true of other entries. An empty batch (`last` is
 * `after`) has to be asked for, too. */
bool feed_take(Feed *feed, uint64_t stream, int32_t rollback_id, OpTime after, OpTime last,
               uint64_t count);
void feed_close(Feed *feed, uint64_t stream);
void feed_applied(Feed *feed, uint64_t count);

/* Won an election: entries that others have may come until the drain of this term. Late news of a
 * term that is drained for are ignored. */
void feed_catch_up(Feed *feed, int64_t term);
/* From now on nothing is taken; drained once all that was taken is applied. */
void feed_drain(Feed *feed, int64_t term);
/* True once: the drain is over. */
bool feed_drained(Feed *feed, int64_t *ret_term);
