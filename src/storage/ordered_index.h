/*
 * ordered_index.h - a table of index keys in KeyString order (KEY-2).
 *
 * Formats, all keys made by keystring.h:
 *
 *     INDEX_ID      key                -> record id, type bits
 *     INDEX_PLAIN   key + record id    -> type bits
 *     INDEX_UNIQUE  key + record id    -> type bits; uniqueness kept as described at
 *                                         ordered_index_insert
 *
 * Ownership and threading: as record_store.h.
 */
#pragma once

#include "base/error.h"
#include "bson/keystring.h"
#include "concurrency/op_ctx.h"
#include "storage/table_cursor.h"

typedef struct StorageEngine StorageEngine;
typedef struct OrderedIndex OrderedIndex;

typedef enum IndexFormat {
    INDEX_ID,
    INDEX_PLAIN,
    INDEX_UNIQUE,
} IndexFormat;

ErrCode ordered_index_open(StorageEngine *engine, const char *ident, IndexFormat format,
                           bool is_string_rid, OrderedIndex **ret_index, Error *err) MUST_CHECK;
OrderedIndex *ordered_index_ref(OrderedIndex *index);
void ordered_index_unref(OrderedIndex *index);
bool ordered_index_is_shared(const OrderedIndex *index);
const char *ordered_index_ident(const OrderedIndex *index);
IndexFormat ordered_index_format(const OrderedIndex *index);
/* Changes INDEX_PLAIN to INDEX_UNIQUE or back, which have the same storage format. No writer may be
 * active: the caller holds the collection in X; readers are not affected. */
void ordered_index_set_unique(OrderedIndex *index, bool is_unique);

/* A key to write: fields and end byte, without record id. */
typedef struct IndexKey {
    Str key;
    Str type_bits;
} IndexKey;

/* Adds one entry. For INDEX_ID, and for INDEX_UNIQUE unless `is_dup_allowed`, an entry with the
 * same key and another record id sets *ret_is_duplicate and nothing is written. Two concurrent
 * inserts of one unique key conflict although their stored keys differ by record id: each first
 * inserts and removes the bare key, which WiredTiger lets only one of them do. Adding an existing
 * entry is a no-op. */
ErrCode ordered_index_insert(OpCtx *op, OrderedIndex *index, IndexKey key, RecordId rid,
                             bool is_dup_allowed, bool *ret_is_duplicate, Error *err) MUST_CHECK;
/* Removes one entry; *ret_found reports whether it existed (validation checks it, writers assert
 * it). */
ErrCode ordered_index_remove(OpCtx *op, OrderedIndex *index, IndexKey key, RecordId rid,
                             bool *ret_found, Error *err) MUST_CHECK;

typedef struct IndexEntry {
    Str key; /* fields and end byte */
    Str type_bits;
    RecordId rid;
} IndexEntry;

/* The record id of an exact key of an INDEX_ID or INDEX_UNIQUE table. `rid_buffer` holds string
 * ids. */
ErrCode ordered_index_find(OpCtx *op, OrderedIndex *index, Str key, bool *ret_found,
                           RecordId *ret_rid, Buffer *rid_buffer, Error *err) MUST_CHECK;

typedef struct IndexCursor {
    TableCursor base; /* its `place` is the whole stored key at save */
    OrderedIndex *index;
} IndexCursor;

ErrCode index_cursor_open(OpCtx *op, OrderedIndex *index, bool is_forward, IndexCursor *ret_cursor,
                          Error *err) MUST_CHECK;
void index_cursor_done(IndexCursor *cursor);
/* Places the cursor before the first entry >= `key` (<= when going backwards); bounds are made with
 * KEY_END_BEFORE and KEY_END_AFTER, so there is no question of equality. An empty key is the start.
 */
ErrCode index_cursor_seek(IndexCursor *cursor, Str key, Error *err) MUST_CHECK;
/* The entry's memory is valid until the cursor moves, is saved or closed. */
ErrCode index_cursor_next(IndexCursor *cursor, bool *ret_found, IndexEntry *ret_entry, Error *err)
    MUST_CHECK;
/* The same without taking the entry apart: its key as it is stored, with the record id. */
ErrCode index_cursor_next_raw(IndexCursor *cursor, bool *ret_found, Str *ret_key, Error *err)
    MUST_CHECK;
void index_cursor_save(IndexCursor *cursor);
ErrCode index_cursor_restore(IndexCursor *cursor, OpCtx *op, Error *err) MUST_CHECK;

/* Fills a new, empty index of an INDEX_PLAIN or INDEX_UNIQUE format from sorted keys, much faster
 * than inserts; outside of transactions. `whole` is the key with its record id, `key_size` the size
 * without it. Equal keys of a unique format set *ret_is_duplicate and are loaded all the same: what
 * that means is for the caller to decide. */
typedef struct IndexBulk IndexBulk;
ErrCode index_bulk_open(OpCtx *op, OrderedIndex *index, IndexBulk **ret_bulk, Error *err)
    MUST_CHECK;
ErrCode index_bulk_add(IndexBulk *bulk, Str whole, size_t key_size, Str type_bits,
                       bool *ret_is_duplicate, Error *err) MUST_CHECK;
ErrCode index_bulk_finish(IndexBulk *bulk, Error *err) MUST_CHECK;
void index_bulk_free(IndexBulk *bulk);
