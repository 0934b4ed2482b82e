/*
 * preimage_store.h - the collection of images, and how one is written.
 *
 *     config.system.preimages
 *         {_id: {nsUUID, ts, applyOpsIndex: long}, operationTime: date, preImage: document}
 *
 * Clustered by _id: the images of one collection lie together in the order of time. It is
 * replicated, but its documents have no oplog entries of their own: every member writes an image
 * with the write it belongs to. Like the tables of sessions (txn/session_tables.h) it is written
 * without a lock on it, since another collection is locked already: writers pin a catalog version
 * instead, and an image written to a collection that is dropped meanwhile is lost with it.
 */
#pragma once

#include "bson/namespace.h"
#include "bson/uuid.h"
#include "catalog/catalog.h"
#include "index/collection_write.h"

extern const Ns PREIMAGES_NS;

typedef struct PreImage {
    Uuid collection;
    uint64_t ts;             /* of the oplog entry that holds the write */
    int64_t apply_ops_index; /* the place of the write in it; 0: it is the entry */
    int64_t wall_ms;         /* of the entry */
    Doc before;
} PreImage;

/* For create and collMod, before a collection gets images: fails with ERR_INVALID_OPTIONS in the
 * databases of the node itself. Creates config.system.preimages if it is missing; replicated, so on
 * a primary only. A standalone node keeps the option and writes no images. */
ErrCode preimages_prepare(OpCtx *op, const Ns *ns, Error *err) MUST_CHECK;

/* Inside of a unit of work that has its commit timestamp. `images` is the collection; NULL: nothing
 * happens. An image that is there already is left alone: it was written when the data were those of
 * its time. *ret_bytes is the size of what was stored, 0: nothing was; after the commit the purger
 * is to know (preimage_purger_note). */
ErrCode preimage_store(OpCtx *op, const Collection *images, const PreImage *image,
                       WriteScratch *scratch, int64_t *ret_bytes, Error *err) MUST_CHECK;

/* The record id of an image: bounds for ranges of one collection. Lives in `kb`. */
void preimage_record_id(const Uuid *collection, uint64_t ts, int64_t apply_ops_index, Arena *arena,
                        KeyBuilder *kb, RecordId *ret_rid);
