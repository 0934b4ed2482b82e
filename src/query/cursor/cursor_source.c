#include "query/cursor/cursor_source.h"

#include "base/alloc.h"

static ErrCode find_next(CursorSource *base, bool *ret_found, Doc *ret_doc, Error *err) {
    FindSource *source = (FindSource *)base;
    PlanRow row;
    TRY(executor_next(source->exec, ret_found, &row, err));
    if (*ret_found)
        *ret_doc = row.doc;
    return ERR_OK;
}

static void find_give_back(CursorSource *base, Doc doc) {
    executor_give_back(((FindSource *)base)->exec, doc);
}

static void find_detach(CursorSource *base) {
    FindSource *source = (FindSource *)base;
    executor_save(source->exec);
    access_done(&source->access);
}

static ErrCode find_attach(CursorSource *base, OpCtx *op, Error *err) {
    FindSource *source = (FindSource *)base;
    TRY(access_read(op, &source->exec->ns, &source->access, err));
    ErrCode rc = executor_restore(source->exec, &source->access, err);
    if (rc != ERR_OK)
        access_done(&source->access);
    return rc;
}

static void find_free(CursorSource *base) {
    FindSource *source = (FindSource *)base;
    executor_free(source->exec); /* closes its storage cursors before the snapshot goes */
    access_done(&source->access);
    xfree(source);
}

static void find_examined(const CursorSource *base, int64_t *ret_keys, int64_t *ret_docs) {
    stage_count_all(((const FindSource *)base)->exec->root, ret_keys, ret_docs);
}

static const CursorSourceOps FIND_OPS = {find_next,   find_give_back, find_detach,
                                         find_attach, find_free,      find_examined};

ErrCode find_source_open(OpCtx *op, const Ns *ns, const QuerySpec *spec, FindSource **ret_source,
                         bool *ret_is_view, Error *err) {
    FindSource *source = NEW(FindSource);
    source->base.ops = &FIND_OPS;
    ErrCode rc = access_read(op, ns, &source->access, err);
    *ret_is_view = rc == ERR_OK && source->access.view != NULL;
    if (*ret_is_view) {
        find_free(&source->base);
        return ERR_OK;
    }
    if (rc == ERR_OK)
        rc = plan_query(&source->access, spec, &source->exec, err);
    if (rc != ERR_OK) {
        find_free(&source->base);
        return rc;
    }
    *ret_source = source;
    return ERR_OK;
}

void cursor_source_free(CursorSource *source) {
    if (source != NULL)
        source->ops->free(source);
}

void find_source_free_ptr(FindSource **source) {
    if (*source != NULL)
        find_free(&(*source)->base);
}
