/*
 * side_writes.h - writes to an index that is being built: its keys go to a side table, in the
 * transaction of the document, and the build applies them later (build/README.md).
 *
 * One record of the side table is one document's change of one index:
 *
 *     first              4 bytes  offset of the record id
 *     then entries       1 byte   SIDE_INSERT or SIDE_REMOVE
 *                        4 bytes  size of the key,      then the key, without record id
 *                        4 bytes  size of type bits,    then the type bits
 *     after the last     the record id: 8 bytes, or its bytes in a clustered collection
 *
 * Integers are in native byte order: a side table is read by the process that wrote it, or by the
 * next one after a clean shutdown on the same machine.
 */
#pragma once

#include "base/error.h"
#include "catalog/collection.h"
#include "index/key_gen.h"

typedef enum SideOp {
    SIDE_INSERT = 1,
    SIDE_REMOVE = 2,
} SideOp;

/* Records that the document's keys change from `before` to `after` (either may be NULL); inside the
 * unit of work that changes the document. Adds array paths to the index's state. `scratch` is
 * overwritten. */
ErrCode side_write(OpCtx *op, const IndexDesc *index, RecordId rid, const KeySet *before,
                   const KeySet *after, Buffer *scratch, Error *err) MUST_CHECK;

/* Reads the entries of one record. */
typedef struct SideReader {
    const uint8_t *at;
    const uint8_t *end;
    RecordId rid; /* points into the record */
} SideReader;
/* Fails with ERR_DATA_CORRUPTION_DETECTED. */
ErrCode side_reader_open(SideReader *reader, Str record, bool is_string_rid, Error *err) MUST_CHECK;
bool side_reader_next(SideReader *reader, SideOp *ret_op, IndexKey *ret_key);

/* Adds the array paths of a document to those of an index that is not in use yet. */
void index_note_multikey(const IndexDesc *index, const KeySet *keys);
