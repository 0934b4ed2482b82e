#include "change_stream/images.h"

#include "catalog/access.h"
#include "index/lookup.h"
#include "preimages/preimages.h"
#include "query/update/update_delta.h"
#include "storage/recovery_unit.h"

/* The document as it is now, in a majority-committed state, which holds the change at least. */
static ErrCode look_up(OpCtx *op, const StreamChange *change, Arena *arena, Doc *ret_doc,
                       Error *err) {
    *ret_doc = DOC_NONE;
    Uuid uuid;
    Ns ns;
    TRY(ns_make(change->db, change->coll, &ns, err));
    Elem id = doc_get_lit(elem_doc(change_document_key(change)), "_id");
    if (!elem_is_present(id) || !uuid_from_elem(change->uuid, &uuid))
        return ERR_OK;
    ru_set_read_source(op->ru, READ_MAJORITY, 0);
    CLEANUP(access_done) CollAccess access = {0};
    TRY(access_read(op, &ns, &access, err));
    if (access.coll == NULL || !uuid_equal(&access.coll->uuid, &uuid))
        return ERR_OK;
    return lookup_document(op, access.coll, id, arena, ret_doc, err);
}

/* The document before the change. DOC_NONE: not kept. */
static ErrCode find_before(OpCtx *op, const StreamChange *change, uint64_t row_ts,
                           int64_t row_index, Arena *arena, Doc *ret_doc, Error *err) {
    *ret_doc = DOC_NONE;
    Uuid uuid;
    if (!uuid_from_elem(change->uuid, &uuid))
        return ERR_OK;
    ru_set_read_source(op->ru, READ_MAJORITY, 0);
    return preimage_find(op, &uuid, row_ts, row_index, arena, ret_doc, err);
}

static ErrCode not_kept(const StreamChange *change, const char *option, const char *image,
                        Error *err) {
    return error_set(err, ERR_NO_MATCHING_DOCUMENT,
                     "Change stream was configured to require a %s for all update, delete and "
                     "replace events ('%s'), but the %s was not found for the event of %.*s.%.*s",
                     image, option, image, (int)change->db.size, change->db.data,
                     (int)change->coll.size, change->coll.data);
}

ErrCode images_find(OpCtx *op, const StreamSpec *spec, const StreamChange *change, uint64_t row_ts,
                    int64_t row_index, Arena *arena, EventImages *ret_images, Error *err) {
    *ret_images = (EventImages){.document = DOC_NONE, .before = DOC_NONE};
    bool is_update = change->kind == CHANGE_UPDATE;
    bool has_past = is_update || change->kind == CHANGE_REPLACE || change->kind == CHANGE_DELETE;
    if (is_update && spec->full_document == FULL_DOCUMENT_UPDATE_LOOKUP) {
        ret_images->has_document = true;
        TRY(look_up(op, change, arena, &ret_images->document, err));
    }
    bool is_before_wanted = has_past && spec->before_change != BEFORE_CHANGE_OFF;
    bool is_after_wanted = is_update && spec->full_document >= FULL_DOCUMENT_WHEN_AVAILABLE;
    if (!is_before_wanted && !is_after_wanted)
        return ERR_OK;
    Doc before;
    TRY(find_before(op, change, row_ts, row_index, arena, &before, err));
    if (is_before_wanted) {
        if (!doc_is_present(before) && spec->before_change == BEFORE_CHANGE_REQUIRED)
            return not_kept(change, "fullDocumentBeforeChange", "pre-image", err);
        ret_images->has_before = true;
        ret_images->before = before;
    }
    if (!is_after_wanted)
        return ERR_OK;
    ret_images->has_document = true;
    if (doc_is_present(before))
        return update_delta_apply(before, update_delta_of_entry(elem_doc(change->o)), arena,
                                  &ret_images->document, err);
    return spec->full_document == FULL_DOCUMENT_REQUIRED
               ? not_kept(change, "fullDocument", "post-image", err)
               : ERR_OK;
}
