/*
 * note_asker.h - a secondary asks the primary for an entry, so that a read need not wait for one
 * (REP-3).
 *
 * A client may know a time from another set: nothing that this set writes by itself may come up to
 * it soon. The primary is asked to write a no-op after that time (appendOplogNote). Best effort:
 * whoever waits goes on waiting, and wishes again.
 *
 * Threading: any thread. One request is under way at a time.
 */
#pragma once

#include "base/error.h"

typedef struct Repl Repl;
typedef struct NoteAsker NoteAsker;

NoteAsker *note_asker_new(Repl *repl);
ErrCode note_asker_start(NoteAsker *asker, Error *err) MUST_CHECK;
void note_asker_stop(NoteAsker *asker);
void note_asker_free(NoteAsker *asker); /* NULL is fine */

/* Wishes for an entry at or after `ts`. Nothing is asked if some member is known to be there. */
void note_asker_wish(NoteAsker *asker, uint64_t ts);
