#include "sharding/shard/critical_section.h"

#include <string.h>

#include "catalog/access.h"
#include "query/write/modify.h"
#include "query/write/own_docs.h"
#include "sharding/shard/placement_store.h"
#include "sharding/shard/shard_internal.h"

#define FENCES_TEXT "config.ddlFences"
static const Ns FENCES_NS = {.size = sizeof(FENCES_TEXT) - 1, .db_size = 6, .text = FENCES_TEXT};

ErrCode section_database_ns(Str db, Ns *ret_ns, Error *err) {
    TRY(db_name_check(db, err));
    *ret_ns = (Ns){.size = (uint16_t)db.size, .db_size = (uint16_t)db.size};
    memcpy(ret_ns->text, db.data, db.size);
    return ERR_OK;
}

static bool is_of(Doc section, Doc reason) {
    Elem known = doc_get_lit(section, "reason");
    return elem_type(known) == BT_DOC && doc_equal_bytes(elem_doc(known), reason);
}

static ErrCode refuse_other(const Ns *ns, Error *err) {
    return error_set(err, ERR_CONFLICTING_OPERATION_IN_PROGRESS,
                     "another operation changes \"%s\" at the moment", ns->text);
}

/* Writers hold it in IX from their check to their end; readers of transactions in IS, which need
 * not end. */
static ErrCode wait_for_writers(OpCtx *op, const Ns *ns, Error *err) {
    CLEANUP(access_done) CollAccess access = {0};
    return ns->size == ns->db_size ? access_database(op, ns_str(ns), &access, err)
                                   : access_write(op, ns, LOCK_S, &access, err);
}

ErrCode section_enter(OpCtx *op, const Ns *ns, SectionKind kind, Doc reason, Error *err) {
    bool blocks_reads =
        kind == SECTION_READS_AND_WRITES || kind == SECTION_UNSHARDED_READS_AND_WRITES;
    bool spares_sharded =
        kind == SECTION_UNSHARDED_WRITES || kind == SECTION_UNSHARDED_READS_AND_WRITES;
    Doc known;
    TRY(own_doc_read(op, &SECTIONS_NS, own_doc_id(op, ns_str(ns)), &known, err));
    if (doc_is_present(known) && !is_of(known, reason))
        return refuse_other(ns, err);
    if (!doc_is_present(known) ||
        (blocks_reads && !elem_is_truthy(doc_get_lit(known, "blockReads")))) {
        DocBuilder b = doc_builder_in_arena(&op->arena);
        build_str(&b, "_id", ns_str(ns));
        build_doc(&b, "reason", reason);
        build_bool(&b, "blockReads", blocks_reads);
        if (spares_sharded)
            build_bool(&b, "sparesSharded", true);
        TRY(own_doc_upsert(op, &SECTIONS_NS, own_doc_id(op, ns_str(ns)), doc_builder_end(&b), err));
    }
    return wait_for_writers(op, ns, err);
}

ErrCode section_check_free(OpCtx *op, const Ns *ns, Error *err) {
    Doc known;
    TRY(own_doc_read(op, &SECTIONS_NS, own_doc_id(op, ns_str(ns)), &known, err));
    return doc_is_present(known) ? refuse_other(ns, err) : ERR_OK;
}

/* Without a primary, members go by what is stored: it must not be from before the section. */
ErrCode section_leave(OpCtx *op, const Ns *ns, Doc reason, Error *err) {
    TRY(placement_store_outdate(op, ns, err));
    DocBuilder b = doc_builder_in_arena(&op->arena);
    build_str(&b, "_id", ns_str(ns));
    build_doc(&b, "reason", reason);
    ModifyRequest request = {.kind = MODIFY_DELETE, .query = {.filter = doc_builder_end(&b)}};
    ModifyOutcome outcome;
    return exec_modify(op, &SECTIONS_NS, &request, &outcome, err);
}

static ErrCode check_fence(OpCtx *op, Str coordinator, int64_t term, Error *err) {
    Doc known;
    TRY(own_doc_read(op, &FENCES_NS, own_doc_id(op, coordinator), &known, err));
    Elem seen = doc_is_present(known) ? doc_get_lit(known, "term") : ELEM_MISSING;
    int64_t newest = elem_is_number(seen) ? elem_as_i64(seen) : -1;
    if (term < newest)
        return error_set(err, ERR_STALE_TERM,
                         "the shard \"%.*s\" has had another primary since term %lld",
                         (int)coordinator.size, coordinator.data, (long long)term);
    if (term == newest)
        return ERR_OK;
    /* $max: requests about other names may come at once. */
    DocBuilder b = doc_builder_in_arena(&op->arena);
    size_t max = build_open_doc(&b, "$max");
    build_i64(&b, "term", term);
    build_close(&b, max);
    return own_doc_upsert(op, &FENCES_NS, own_doc_id(op, coordinator), doc_builder_end(&b), err);
}

ErrCode fence_pass(OpCtx *op, Str name, Str coordinator, int64_t term, OpMutexLock *ret_lock,
                   Error *err) {
    TRY(op_mutex_lock(shard_mutex_of(op->service->shard->participating, name), op, ret_lock, err));
    return check_fence(op, coordinator, term, err);
}
