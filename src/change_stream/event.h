/*
 * event.h - the documents that a change stream shows.
 */
#pragma once

#include "base/arena.h"
#include "bson/builder.h"
#include "change_stream/change.h"
#include "change_stream/token.h"

/* Where and when a change happened. */
typedef struct ChangePlace {
    uint64_t ts;
    int64_t wall_ms;
    int64_t op_index; /* in its unit or transaction */
    Elem lsid;        /* of a unit that belongs to a session; missing: none */
    Elem txn_number;
} ChangePlace;

/* The documents beside the change itself. */
typedef struct EventImages {
    bool has_document; /* fullDocument is shown, also if it is null */
    Doc document;      /* DOC_NONE: null */
    bool has_before;
    Doc before;
} EventImages;

/* The token of the event; borrows from the arena. Fails only for entries that are damaged. */
StreamToken event_token(const StreamChange *change, const ChangePlace *place, Arena *arena);
/* The same place, of the invalidate event that follows. */
StreamToken event_token_of_invalidate(const StreamToken *token);

typedef struct EventOptions {
    bool is_expanded;
    bool is_raw_update; /* the delta as it is in the oplog */
} EventOptions;

ErrCode event_build(const StreamChange *change, const ChangePlace *place, Doc token,
                    const EventOptions *options, const EventImages *images, Arena *arena,
                    Doc *ret_event, Error *err) MUST_CHECK;
Doc event_build_invalidate(const ChangePlace *place, Doc token, Arena *arena);
