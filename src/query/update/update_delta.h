/*
 * update_delta.h - what changed between two versions of a document, and the way back to the second.
 *
 * The form is that of the oplog, version 2:
 *
 *     document  {d: {<field>: false, ...}, u: {<field>: <value>, ...}, i: {<field>: <value>, ...},
 *                s<field>: <delta>, ...}
 *     array     {a: true, l: <length>, u<index>: <value>, s<index>: <delta>, ...}
 *
 * d deletes, u replaces a value in its place, i adds at the end (also what moves there), s goes
 * down into a document or array, l cuts an array. Sections that would be empty are left out.
 *
 * Applying a delta twice gives the same as applying it once.
 */
#pragma once

#include "base/arena.h"
#include "base/error.h"
#include "bson/doc.h"

struct UpdateProgram;

/* False when there is no delta smaller than `after`, or none at all (fields of the same name,
 * arrays with odd names): the change is then told by the whole document. Equal documents give {}.
 * The result is in the arena. */
bool update_delta_compute(Doc before, Doc after, Arena *arena, Doc *ret_delta);

/* What the operators of `program` have done, which made `after` of `before`: each path as the
 * update gave it, however small the document. False when it has none (a replacement, a pipeline),
 * and as above where a delta cannot tell it. */
bool update_delta_of_operators(const struct UpdateProgram *program, Doc before, Doc after,
                               Arena *arena, Doc *ret_delta);

/* The document that `delta` makes of `before`: for a delta computed from `before` and `after`
 * it is `after`, byte for byte. A part that does not fit what is there (s on a number) is left out.
 * Fails with ERR_FAILED_TO_PARSE for a malformed delta, ERR_BSON_OBJECT_TOO_LARGE when the result
 * is too large.
 */
ErrCode update_delta_apply(Doc before, Doc delta, Arena *arena, Doc *ret_after, Error *err)
    MUST_CHECK;

/* {$v: 2, diff: <delta>}, and the way back: DOC_NONE when `entry` is no such document. */
Doc update_delta_entry(Doc delta, Arena *arena);
Doc update_delta_of_entry(Doc entry);
