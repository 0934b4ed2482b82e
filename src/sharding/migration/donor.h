/*
 * donor.h - a range of this shard goes to another one.
 *
 *     begin --> prepare --> clone --> commit |--> committed --> done
 *         \--------+----------+         |   \--> refused ----> done, or committed
 *          undo <--+----------+         |
 *            \--> done                  the config server may be asked from here on
 */
#pragma once

#include "sharding/migration/migrations.h"

typedef struct MoveOrder {
    Ns ns;
    Str to;
    Doc min; /* DOC_NONE: what is below `max` in its chunk, or as much as is moved at once */
    Doc max; /* DOC_NONE: to the end of the chunk of `min`, or as much as is moved at once */
    bool has_epoch;
    Oid epoch;
    bool waits_for_delete;
    bool is_throttled;
    Doc throttle; /* see Move */
    bool is_jumbo_forced;
    int64_t chunk_bytes_max; /* 0: the default */
} MoveOrder;

/* Moves it and waits for the end; joins the same move if it is under way. A range that is on `to`
 * already is fine. *ret_account, in the operation's arena: {donor, recipient}, how it went. */
ErrCode donor_move(Migrations *migrations, OpCtx *op, const MoveOrder *order, Doc *ret_account,
                   Error *err) MUST_CHECK;

/* The move of that id that this shard donates; ERR_NO_SUCH_KEY: there is none, or it has ended.
 * move_done is for the caller; the document it borrows from is in the arena. */
ErrCode donor_find(Migrations *migrations, OpCtx *op, const Uuid *id, Move *ret_move, Error *err)
    MUST_CHECK;
