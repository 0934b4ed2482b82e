/*
 * preimages.h - what a document was before a change, for those who read the oplog (TRM-1, REP-5).
 *
 * A collection with the option changeStreamPreAndPostImages keeps the document before each update,
 * replacement and delete in config.system.preimages. README.md says how they get there and how long
 * they stay.
 *
 * Threading: any thread, with its own operation.
 */
#pragma once

#include "base/error.h"
#include "bson/doc.h"
#include "bson/uuid.h"
#include "concurrency/op_ctx.h"

/* The document before the write that is number `apply_ops_index` inside of the oplog entry `ts` (0
 * for an entry that is one write), copied into `arena`; DOC_NONE when it is not kept, or not any
 * more. Inside of a read it is looked up in the snapshot of that read: who sees an entry sees its
 * images. */
ErrCode preimage_find(OpCtx *op, const Uuid *collection, uint64_t ts, int64_t apply_ops_index,
                      Arena *arena, Doc *ret_doc, Error *err) MUST_CHECK;
