/*
 * split_event.h - an event that is too large for one document, in fragments.
 *
 * Fragment i of n is {_id: token with the number i, splitEvent: {fragment: i + 1, of: n}, fields
 * of the event}. Whole fields go into a fragment, small ones first, in the order of their size, as
 * long as they fit.
 */
#pragma once

#include "base/arena.h"
#include "bson/doc.h"
#include "base/error.h"

typedef struct SplitEvent {
    uint8_t *event; /* heap; NULL: none at hand */
    uint8_t *token;
    Elem *fields;     /* in the order in which they are given */
    uint32_t *starts; /* first field of each fragment */
    uint32_t field_count;
    uint32_t fragment_count;
    uint32_t next;     /* fragment to be given */
    int64_t skip_past; /* resuming: fragments up to this number were given; -1: all are to be */
    bool is_resuming;
} SplitEvent;

void split_event_done(SplitEvent *split);
/* The next event's fragments up to this number are left out. */
void split_event_resume(SplitEvent *split, int64_t fragment);

/* Takes over an event that is too large, or that is resumed within; else *ret_is_split is false.
 * Fails with ERR_BSON_OBJECT_TOO_LARGE when a single field is too large,
 * ERR_CHANGE_STREAM_FATAL_ERROR when the resumed event has no such fragment. */
ErrCode split_event_begin(SplitEvent *split, Doc event, Doc token, bool *ret_is_split, Error *err)
    MUST_CHECK;
/* The next fragment, in the arena, whose memory of the fragment before is given up; false: none. */
bool split_event_next(SplitEvent *split, Arena *arena, Doc *ret_fragment);
