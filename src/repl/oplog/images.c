/*
 * images.c - what documents were before the writes of a unit, for collections that keep it.
 *
 * The id of an image is made of its entry's timestamp and the place in that entry, which are known
 * just before the commit. Until then the documents wait in the stage, not in the operation's arena:
 * the unit of a transaction stays open over several commands.
 */
#include "base/alloc.h"
#include "preimages/preimage_store.h"
#include "preimages/purger.h"
#include "repl/oplog/oplog_internal.h"

typedef struct ImageHead {
    uint32_t write; /* its place in the unit */
    Uuid collection;
    int64_t bytes; /* as stored; 0: not yet */
} ImageHead;

void images_stage(OplogStage *stage, const Collection *coll, Doc before) {
    ImageHead head = {.write = stage->count - 1, .collection = coll->uuid};
    buffer_append(&stage->images.staged, &head, sizeof(head));
    buffer_append(&stage->images.staged, before.data, doc_size(before));
    stage->images.count++;
}

ErrCode images_write(OplogStage *stage, OpCtx *op, uint32_t first, uint32_t count, uint64_t ts,
                     Error *err) {
    OplogImages *images = &stage->images;
    TRY(buffer_check(&images->staged, "the documents before the writes of a unit", err));
    if (images->catalog == NULL)
        images->catalog = catalog_acquire(op_catalog(op));
    if (images->scratch == NULL) {
        images->scratch = NEW(WriteScratch);
        write_scratch_init(images->scratch);
    }
    const Collection *coll = catalog_find(images->catalog, &PREIMAGES_NS);
    while (images->at < images->staged.size) {
        ImageHead head; /* copied: it need not be aligned there */
        memcpy(&head, images->staged.data + images->at, sizeof(head));
        if (head.write >= first + count)
            break;
        Doc before = {images->staged.data + images->at + sizeof(head)};
        PreImage image = {.collection = head.collection,
                          .ts = ts,
                          .apply_ops_index = head.write - first,
                          .wall_ms = stage->wall_ms,
                          .before = before};
        TRY(preimage_store(op, coll, &image, images->scratch, &head.bytes, err));
        memcpy(images->staged.data + images->at, &head, sizeof(head));
        images->at += sizeof(head) + doc_size(before);
    }
    return ERR_OK;
}

/* All with the time of the last entry: which of two stretches of some seconds they count for does
 * not matter. */
void images_note(const OplogStage *stage, const OpCtx *op) {
    const OplogImages *images = &stage->images;
    for (size_t at = 0; at < images->at;) {
        ImageHead head;
        memcpy(&head, images->staged.data + at, sizeof(head));
        if (head.bytes > 0)
            preimage_purger_note(op->service->preimages, &head.collection, stage->last.ts,
                                 stage->wall_ms, head.bytes);
        at += sizeof(head) + doc_size((Doc){images->staged.data + at + sizeof(head)});
    }
}

/* Memory that a large unit made grow is released: every worker has a stage. */
void images_clear(OplogImages *images) {
    images->count = 0;
    images->at = 0;
    buffer_clear(&images->staged);
    if (images->staged.capacity > OPLOG_STAGE_BYTES_KEPT) {
        buffer_done(&images->staged);
        buffer_init(&images->staged, OPLOG_UNIT_BYTES_MAX);
    }
    if (images->catalog != NULL)
        catalog_release(TAKE_PTR(images->catalog));
}

void images_done(OplogImages *images) {
    images_clear(images);
    buffer_done(&images->staged);
    if (images->scratch != NULL)
        write_scratch_done(images->scratch);
    xfree(images->scratch);
}
