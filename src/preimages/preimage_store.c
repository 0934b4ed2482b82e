#include "preimages/preimage_store.h"

#include "bson/builder.h"
#include "catalog/access.h"
#include "ddl/ddl.h"
#include "index/lookup.h"
#include "preimages/preimages.h"
#include "storage/engine.h"

enum {
    FRAME_BYTES_MAX = 256, /* an image without the document in it */
};

const Ns PREIMAGES_NS = {.size = 23, .db_size = 6, .text = "config.system.preimages"};

/* ---- the collection ---- */

static ErrCode check_place(const Ns *ns, Error *err) {
    static const char *const INTERNAL[] = {"admin", "local", "config"};
    for (size_t i = 0; i < ARRAY_LEN(INTERNAL); i++)
        if (str_is(ns_db(ns), INTERNAL[i]))
            return error_set(err, ERR_INVALID_OPTIONS,
                             "option 'changeStreamPreAndPostImages' is not supported on collection "
                             "%s in the %s internal database",
                             ns->text, INTERNAL[i]);
    return ERR_OK;
}

ErrCode preimages_prepare(OpCtx *op, const Ns *ns, Error *err) {
    TRY(check_place(ns, err));
    if (!storage_is_replicated(op_storage(op)))
        return ERR_OK;
    return ddl_ensure_clustered(op, &PREIMAGES_NS, err);
}

/* ---- images ---- */

static void build_id(DocBuilder *b, const Uuid *collection, uint64_t ts, int64_t apply_ops_index) {
    size_t id = build_open_doc(b, "_id");
    build_uuid(b, "nsUUID", collection);
    build_timestamp(b, "ts", ts);
    build_i64(b, "applyOpsIndex", apply_ops_index);
    build_close(b, id);
}

static ErrCode store(OpCtx *op, const Collection *images, const PreImage *image,
                     WriteScratch *scratch, int64_t *ret_bytes, Error *err) {
    Buffer buf;
    buffer_init_arena(&buf, &op->arena, doc_size(image->before) + FRAME_BYTES_MAX,
                      BSON_DOC_SIZE_MAX_CARRIED);
    DocBuilder b;
    doc_builder_init(&b, &buf);
    build_id(&b, &image->collection, image->ts, image->apply_ops_index);
    build_date(&b, "operationTime", image->wall_ms);
    build_doc(&b, "preImage", image->before);
    Doc doc;
    TRY(doc_builder_finish(&b, "the image of a document before its change", &doc, err));
    RecordId rid;
    TRY(clustered_record_id(doc, /* collator= */ NULL, &scratch->rid, &rid, err));
    bool is_duplicate;
    TRY(record_insert_unique(op, images->records, rid, (Str){(const char *)doc.data, doc_size(doc)},
                             &is_duplicate, err));
    *ret_bytes = is_duplicate ? 0 : doc_size(doc);
    return ERR_OK;
}

ErrCode preimage_store(OpCtx *op, const Collection *images, const PreImage *image,
                       WriteScratch *scratch, int64_t *ret_bytes, Error *err) {
    *ret_bytes = 0;
    if (images == NULL)
        return ERR_OK;
    ArenaMark mark = arena_mark(&op->arena);
    OpMetrics metrics = op->metrics; /* bookkeeping must not show up in the client's metrics */
    ErrCode rc = store(op, images, image, scratch, ret_bytes, err);
    op->metrics = metrics;
    arena_rewind(&op->arena, mark);
    return rc;
}

void preimage_record_id(const Uuid *collection, uint64_t ts, int64_t apply_ops_index, Arena *arena,
                        KeyBuilder *kb, RecordId *ret_rid) {
    DocBuilder b = doc_builder_in_arena_sized(arena, FRAME_BYTES_MAX);
    build_id(&b, collection, ts, apply_ops_index);
    clustered_record_id_of_value(doc_get_lit(doc_builder_end(&b), "_id"), /* collator= */ NULL, kb,
                                 ret_rid);
}

ErrCode preimage_find(OpCtx *op, const Uuid *collection, uint64_t ts, int64_t apply_ops_index,
                      Arena *arena, Doc *ret_doc, Error *err) {
    *ret_doc = DOC_NONE;
    DocBuilder b = doc_builder_in_arena_sized(&op->arena, FRAME_BYTES_MAX);
    build_id(&b, collection, ts, apply_ops_index);
    Doc wanted = doc_builder_end(&b);
    CLEANUP(access_done) CollAccess access = {0};
    TRY(access_read(op, &PREIMAGES_NS, &access, err));
    if (access.coll == NULL)
        return ERR_OK;
    Doc found;
    TRY(lookup_document(op, access.coll, doc_get_lit(wanted, "_id"), arena, &found, err));
    if (!doc_is_present(found))
        return ERR_OK;
    Elem image = doc_get_lit(found, "preImage");
    if (elem_type(image) != BT_DOC)
        return error_set(err, ERR_FAILED_TO_PARSE, "a document of \"%s\" has no image",
                         PREIMAGES_NS.text);
    *ret_doc = elem_doc(image);
    return ERR_OK;
}
