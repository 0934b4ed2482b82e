/*
 * change_reader.h - the changes that concern a stream, one after the other, out of the oplog.
 *
 * Reads entries up to the majority commit point, drops those that cannot concern the stream by
 * their raw form, and takes units and transactions apart: their changes come in order, one at a
 * time, however large the unit is. Between two calls nothing of the storage is held.
 *
 * Ownership: part of its stream. Threading: one operation at a time.
 */
#pragma once

#include "base/buffer.h"
#include "change_stream/change.h"
#include "change_stream/event.h"
#include "concurrency/op_ctx.h"
#include "repl/oplog/oplog.h"

typedef struct ChangeReader {
    Oplog *oplog;
    StreamFilter filter;
    /* All entries up to here were looked at; those in `entries` are still to be given. */
    uint64_t scanned_ts;
    /* Everything up to here was given. */
    uint64_t done_ts;
    int64_t examined; /* entries looked at so far */

    Buffer entries; /* documents back to back */
    size_t next;    /* the first one not taken yet */

    /* The unit being taken apart; its entries one at a time. */
    bool is_in_unit;
    ChangePlace place; /* of the present change; lsid and number are in `head` */
    Buffer head;       /* the entry that tells when the unit happened */
    uint64_t *times;   /* of its entries, in order */
    size_t time_count;
    size_t time_next;
    Buffer rows; /* the present entry */
    DocIter row_iter;
    uint64_t row_ts; /* its time, and the index of the present change in it: name pre-images */
    int64_t row_index;
} ChangeReader;

void change_reader_init(ChangeReader *reader, Oplog *oplog, const StreamFilter *filter,
                        uint64_t after_ts);
void change_reader_done(ChangeReader *reader);

/* The next change, valid until the next call; not found: none up to the commit point as of now.
 * Fails with ERR_CHANGE_STREAM_HISTORY_LOST when entries it should have read are gone. */
ErrCode change_reader_next(ChangeReader *reader, OpCtx *op, bool *ret_found,
                           StreamChange *ret_change, ChangePlace *ret_place, Error *err) MUST_CHECK;

/* Someone who looked at every entry up to there says that none of them concerns the stream. */
void change_reader_skip_to(ChangeReader *reader, uint64_t ts);
