#include "query/cursor/find_source.h"

#include "base/alloc.h"

/* ---- how far a client got ---- */

static void keep(KeptRecordId *kept, RecordId rid) {
    kept->num = rid.num;
    buffer_clear(&kept->bytes);
    if (rid.str != NULL)
        buffer_append(&kept->bytes, rid.str, rid.str_size);
}

static void swap(FindSource *source) {
    KeptRecordId kept = source->last;
    source->last = source->before;
    source->before = kept;
}

static void find_build_token(const CursorSource *base, DocBuilder *b) {
    const FindSource *source = (const FindSource *)base;
    if (LIKELY(!source->has_token))
        return;
    const KeptRecordId *last = &source->last;
    size_t token = build_open_doc(b, "postBatchResumeToken");
    if (source->is_oplog)
        /* Also what the filter left out: who reads on from there need not read it again. */
        build_timestamp(b, "ts",
                        (uint64_t)(last->num > source->exec->passed_num
                                       ? last->num
                                       : source->exec->passed_num));
    else if (last->bytes.size > 0)
        build_binary(b, "$recordId", /* subtype= */ 0, last->bytes.data, last->bytes.size);
    else if (last->num != 0)
        build_i64(b, "$recordId", last->num);
    else
        build_null(b, "$recordId");
    build_close(b, token);
}

/* ---- rows ---- */

static ErrCode find_next(CursorSource *base, bool *ret_found, Doc *ret_doc, Error *err) {
    FindSource *source = (FindSource *)base;
    PlanRow row;
    TRY(executor_next(source->exec, ret_found, &row, err));
    if (!*ret_found)
        return ERR_OK;
    *ret_doc = row.doc;
    if (UNLIKELY(source->has_token)) {
        swap(source);
        if (!record_id_is_none(row.rid)) /* one that was given back is the one swapped in */
            keep(&source->last, row.rid);
    }
    return ERR_OK;
}

static void find_give_back(CursorSource *base, Doc doc) {
    FindSource *source = (FindSource *)base;
    executor_give_back(source->exec, doc);
    if (source->has_token)
        swap(source);
}

static void find_detach(CursorSource *base) {
    FindSource *source = (FindSource *)base;
    if (source->exec->access != NULL)
        executor_note_stats(source->access.op, source->exec);
    executor_save(source->exec);
    access_suspend(&source->access);
}

static ErrCode find_attach(CursorSource *base, OpCtx *op, Error *err) {
    FindSource *source = (FindSource *)base;
    TRY(access_resume(op, &source->access, err));
    ErrCode rc = executor_restore(source->exec, &source->access, err);
    if (rc != ERR_OK)
        access_suspend(&source->access);
    return rc;
}

static void find_free(CursorSource *base) {
    FindSource *source = (FindSource *)base;
    executor_free(source->exec); /* closes its storage cursors before the snapshot goes */
    access_done(&source->access);
    buffer_done(&source->last.bytes);
    buffer_done(&source->before.bytes);
    xfree(source);
}

static void find_examined(const CursorSource *base, int64_t *ret_keys, int64_t *ret_docs) {
    stage_count_all(((const FindSource *)base)->exec->root, ret_keys, ret_docs);
}

static const CursorSourceOps FIND_OPS = {find_next, find_give_back, find_detach,      find_attach,
                                         find_free, find_examined,  find_build_token, NULL};

ErrCode find_source_open(OpCtx *op, const Ns *ns, const QuerySpec *spec, FindSource **ret_source,
                         bool *ret_is_view, Error *err) {
    FindSource *source = NEW(FindSource);
    source->base.ops = &FIND_OPS;
    source->has_token = spec->has_token;
    buffer_init(&source->last.bytes, BUFFER_UNBOUNDED);
    buffer_init(&source->before.bytes, BUFFER_UNBOUNDED);
    ErrCode rc = spec->is_ownership_ignored ? access_read(op, ns, &source->access, err)
                                            : access_read_owned(op, ns, &source->access, err);
    *ret_is_view = rc == ERR_OK && source->access.view != NULL;
    if (*ret_is_view) {
        find_free(&source->base);
        return ERR_OK;
    }
    if (rc == ERR_OK)
        rc = plan_query(&source->access, spec, &source->exec, err);
    source->is_oplog = ns_is_oplog(ns);
    if (rc != ERR_OK) {
        find_free(&source->base);
        return rc;
    }
    *ret_source = source;
    return ERR_OK;
}

void find_source_free_ptr(FindSource **source) {
    if (*source != NULL)
        find_free(&(*source)->base);
}
