#include "cursor/list_source.h"

#include "base/alloc.h"

typedef struct ListSource {
    CursorSource base;
    uint8_t *array;
    DocIter next;
    DocIter previous; /* where the document given last starts */
} ListSource;

static ErrCode list_next(CursorSource *base, bool *ret_found, Doc *ret_doc, Error *err) {
    (void)err;
    ListSource *source = (ListSource *)base;
    Elem elem;
    source->previous = source->next;
    *ret_found = doc_iter_next(&source->next, &elem);
    if (*ret_found)
        *ret_doc = elem_doc(elem);
    return ERR_OK;
}

static void list_give_back(CursorSource *base, Doc doc) {
    (void)doc;
    ListSource *source = (ListSource *)base;
    source->next = source->previous;
}

static void list_detach(CursorSource *base) {
    (void)base;
}

static ErrCode list_attach(CursorSource *base, OpCtx *op, Error *err) {
    (void)base, (void)op, (void)err;
    return ERR_OK;
}

static void list_free(CursorSource *base) {
    xfree(((ListSource *)base)->array);
    xfree(base);
}

static void list_examined(const CursorSource *base, int64_t *ret_keys, int64_t *ret_docs) {
    (void)base;
    *ret_keys = *ret_docs = 0;
}

static const CursorSourceOps LIST_OPS = {list_next, list_give_back, list_detach, list_attach,
                                         list_free, list_examined,  NULL,        NULL};

CursorSource *list_source_new(Doc array) {
    ListSource *source = NEW(ListSource);
    source->base.ops = &LIST_OPS;
    source->array = doc_copy_heap(array);
    source->next = doc_iter((Doc){source->array});
    return &source->base;
}
