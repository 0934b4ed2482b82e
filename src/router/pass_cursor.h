/*
 * pass_cursor.h - a cursor of one shard, under an id of this router's.
 *
 * Its batches are passed on as they come; nothing is looked at but the id. So everything that a
 * cursor of a shard can do (tailable, awaitData, resume tokens) needs no code here.
 */
#pragma once

#include "cursor/cursor_table.h"
#include "router/forward.h"
#include "router/scatter.h"

/* Appends a shard's reply with a cursor {cursor: {id, ns, firstBatch, ...}, ...} to the client's; a
 * cursor that is not at its end gets an id of this router. `shown`: the name that the client knows
 * it by; NULL: as the shard names it. */
ErrCode pass_cursor_reply(CommandCtx *ctx, const Shard *shard, const char *host, Doc reply,
                          const Ns *shown, Error *err) MUST_CHECK;

bool pass_cursor_is(const CursorSource *source);
/* Appends the next batch to the reply. *ret_is_over: the shard's cursor has ended. */
ErrCode pass_cursor_next(CommandCtx *ctx, ClientCursor *cursor, bool *ret_is_over, Error *err)
    MUST_CHECK;
