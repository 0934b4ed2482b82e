#include "txn/session_tables.h"

#include "base/alloc.h"
#include "ddl/ddl.h"
#include "index/lookup.h"

const Ns SESSION_TABLE_NS = {.size = 19, .db_size = 6, .text = "config.transactions"};
const Ns SESSION_IMAGE_NS = {.size = 23, .db_size = 6, .text = "config.image_collection"};

static const char *const ROW_STATE_NAMES[] = {"", "prepared", "committed", "aborted"};
static const char *const IMAGE_NAMES[] = {"", "preImage", "postImage"};

bool session_tables_is_one(const Ns *ns) {
    return ns->db_size == 6 && (ns_equal(ns, &SESSION_TABLE_NS) || ns_equal(ns, &SESSION_IMAGE_NS));
}

bool session_tables_is_named(Str ns) {
    return str_equal(ns, ns_str(&SESSION_TABLE_NS)) || str_equal(ns, ns_str(&SESSION_IMAGE_NS));
}

const char *session_image_name(SessionImageKind kind) {
    return IMAGE_NAMES[kind];
}

SessionImageKind session_image_from_elem(Elem elem) {
    if (elem_type(elem) == BT_STRING)
        for (int kind = SESSION_IMAGE_PRE; kind <= SESSION_IMAGE_POST; kind++)
            if (str_is(elem_str(elem), IMAGE_NAMES[kind]))
                return (SessionImageKind)kind;
    return SESSION_IMAGE_NONE;
}

/* ---- making them ---- */

static ErrCode ensure_one(OpCtx *op, const Ns *ns, Error *err) {
    ErrCode rc = ddl_ensure_clustered(op, ns, err);
    if (rc != ERR_NAMESPACE_EXISTS)
        return rc;
    error_reset(err); /* created by a client with other options: rows fit into any collection */
    return ERR_OK;
}

ErrCode session_tables_ensure(OpCtx *op, Error *err) {
    TRY(ensure_one(op, &SESSION_TABLE_NS, err));
    return ensure_one(op, &SESSION_IMAGE_NS, err);
}

/* ---- writing ---- */

/* Replaces the document of that _id, or inserts it; `before` is the existing one. Always
 * unreplicated: every member writes the row itself when it applies the entry. */
static ErrCode put(OpCtx *op, const Collection *coll, RecordId rid, Doc before, Doc after,
                   WriteScratch *scratch, Error *err) {
    CLEANUP(op_mode_restore) OpModeScope scope = op_mode_scope(op);
    op->mode.is_unreplicated = op->mode.is_validation_bypassed = true;
    OpMetrics metrics = op->metrics; /* bookkeeping must not show up in the client's metrics */
    ErrCode rc = doc_is_present(before)
                     ? collection_update(op, coll, rid, before, after, scratch, err)
                     : collection_insert(op, coll, &after, 1, scratch, err);
    op->metrics = metrics;
    return rc;
}

/* The current document of the session; its record id is in `scratch`. */
static ErrCode find(OpCtx *op, const Collection *coll, Elem id, WriteScratch *scratch,
                    RecordId *ret_rid, Doc *ret_doc, Error *err) {
    *ret_doc = DOC_NONE;
    bool is_found;
    TRY(lookup_record_id(op, coll, id, &scratch->rid, &is_found, ret_rid, err));
    if (!is_found)
        return ERR_OK;
    if (ret_rid->str != NULL)
        ret_rid->str = arena_memdup(&op->arena, ret_rid->str, ret_rid->str_size);
    return record_read(op, coll->records, *ret_rid, &op->arena, ret_doc, err);
}

static ErrCode store_row(OpCtx *op, const Collection *coll, const SessionRow *row,
                         WriteScratch *scratch, Error *err) {
    DocBuilder b = doc_builder_in_arena(&op->arena);
    build_session_id(&b, "_id", &row->id);
    build_i64(&b, "txnNum", row->txn_number);
    build_optime(&b, "lastWriteOpTime", row->last_write);
    build_date(&b, "lastWriteDate", row->wall_ms);
    if (row->state == SESSION_ROW_PREPARED)
        build_optime(&b, "startOpTime", row->start);
    if (row->state != SESSION_ROW_RETRYABLE)
        build_cstr(&b, "state", ROW_STATE_NAMES[row->state]);
    Doc after = doc_builder_end(&b);
    RecordId rid;
    Doc before;
    TRY(find(op, coll, doc_get_lit(after, "_id"), scratch, &rid, &before, err));
    return put(op, coll, rid, before, after, scratch, err);
}

ErrCode session_row_store(OpCtx *op, const Collection *coll, const SessionRow *row,
                          WriteScratch *scratch, Error *err) {
    if (coll == NULL)
        return ERR_OK;
    ArenaMark mark = arena_mark(&op->arena);
    ErrCode rc = store_row(op, coll, row, scratch, err);
    arena_rewind(&op->arena, mark);
    return rc;
}

static ErrCode store_image(OpCtx *op, const Collection *coll, const SessionImage *image,
                           WriteScratch *scratch, Error *err) {
    Buffer buf;
    size_t size = doc_is_present(image->image) ? doc_size(image->image) : 0;
    buffer_init_arena(&buf, &op->arena, size + 512, BSON_DOC_SIZE_MAX_CARRIED);
    DocBuilder b;
    doc_builder_init(&b, &buf);
    build_session_id(&b, "_id", &image->id);
    build_i64(&b, "txnNum", image->txn_number);
    build_timestamp(&b, "ts", image->ts);
    build_cstr(&b, "imageKind", session_image_name(image->kind));
    build_doc(&b, "image", doc_is_present(image->image) ? image->image : DOC_EMPTY);
    build_bool(&b, "invalidated", image->invalidated_reason != NULL);
    if (image->invalidated_reason != NULL)
        build_cstr(&b, "invalidatedReason", image->invalidated_reason);
    Doc after;
    TRY(doc_builder_finish(&b, "the image of a findAndModify", &after, err));
    RecordId rid;
    Doc before;
    TRY(find(op, coll, doc_get_lit(after, "_id"), scratch, &rid, &before, err));
    if (doc_is_present(before)) {
        Elem ts = doc_get_lit(before, "ts");
        /* Shares apply in parallel: the image of a later write may have been stored already. */
        if (elem_type(ts) == BT_TIMESTAMP && (uint64_t)elem_i64(ts) > image->ts)
            return ERR_OK;
    }
    return put(op, coll, rid, before, after, scratch, err);
}

ErrCode session_image_store(OpCtx *op, const Collection *coll, const SessionImage *image,
                            WriteScratch *scratch, Error *err) {
    if (coll == NULL)
        return ERR_OK;
    ArenaMark mark = arena_mark(&op->arena);
    ErrCode rc = store_image(op, coll, image, scratch, err);
    arena_rewind(&op->arena, mark);
    return rc;
}

/* ---- reading ---- */

static ErrCode read_one(OpCtx *op, const Ns *ns, const SessionId *id, Doc *ret_doc, Error *err) {
    *ret_doc = DOC_NONE;
    DocBuilder b = doc_builder_in_arena(&op->arena);
    build_session_id(&b, "_id", id);
    Doc wanted = doc_builder_end(&b);
    CLEANUP(access_done) CollAccess access = {0};
    TRY(access_read(op, ns, &access, err));
    if (access.coll == NULL)
        return ERR_OK;
    return lookup_document(op, access.coll, doc_get_lit(wanted, "_id"), &op->arena, ret_doc, err);
}

ErrCode session_row_parse(Doc doc, SessionRow *ret_row, Error *err) {
    Elem number = doc_get_lit(doc, "txnNum");
    Elem date = doc_get_lit(doc, "lastWriteDate");
    SessionRow row = {.start = OPTIME_NONE};
    TRY(session_id_parse(doc_get_lit(doc, "_id"), &row.id, err));
    if (!elem_is_number(number) || elem_type(date) != BT_DATE ||
        !optime_from_elem(doc_get_lit(doc, "lastWriteOpTime"), &row.last_write))
        return error_set(err, ERR_FAILED_TO_PARSE,
                         "a document of \"%s\" is not a record of a session",
                         SESSION_TABLE_NS.text);
    row.txn_number = elem_as_i64(number);
    row.wall_ms = elem_i64(date);
    (void)optime_from_elem(doc_get_lit(doc, "startOpTime"), &row.start);
    Elem state = doc_get_lit(doc, "state");
    for (size_t i = 1; elem_type(state) == BT_STRING && i < ARRAY_LEN(ROW_STATE_NAMES); i++)
        if (str_is(elem_str(state), ROW_STATE_NAMES[i]))
            row.state = (SessionRowState)i;
    *ret_row = row;
    return ERR_OK;
}

ErrCode session_row_read(OpCtx *op, const SessionId *id, bool *ret_found, SessionRow *ret_row,
                         Error *err) {
    Doc doc;
    TRY(read_one(op, &SESSION_TABLE_NS, id, &doc, err));
    *ret_found = doc_is_present(doc);
    return *ret_found ? session_row_parse(doc, ret_row, err) : ERR_OK;
}

ErrCode session_image_read(OpCtx *op, const SessionId *id, int64_t txn_number, uint64_t ts,
                           Doc *ret_image, Error *err) {
    Doc doc;
    TRY(read_one(op, &SESSION_IMAGE_NS, id, &doc, err));
    if (!doc_is_present(doc))
        return error_set(err, ERR_INCOMPLETE_TRANSACTION_HISTORY,
                         "image collection no longer contains the complete write history of this "
                         "transaction, record with _id cannot be found");
    Elem at = doc_get_lit(doc, "ts");
    Elem image = doc_get_lit(doc, "image");
    if (elem_as_i64(doc_get_lit(doc, "txnNum")) != txn_number || elem_type(at) != BT_TIMESTAMP ||
        (uint64_t)elem_i64(at) != ts || elem_is_truthy(doc_get_lit(doc, "invalidated")) ||
        elem_type(image) != BT_DOC)
        return error_set(err, ERR_INCOMPLETE_TRANSACTION_HISTORY,
                         "image lookup for a retryable findAndModify found one that is of another "
                         "write or not valid");
    *ret_image = elem_doc(image);
    return ERR_OK;
}
