#include "query/write/range_delete.h"

#include <string.h>

#include "base/clock.h"
#include "catalog/access.h"
#include "index/collection_write.h"
#include "query/match/match.h"
#include "storage/unit_of_work.h"

enum {
    YIELD_PERIOD_US = 10 * 1000,
};

typedef struct Deletion {
    OpCtx *op;
    const RangeDelete *request;
    CollAccess *access;
    MatchExpr *filter;
    OrderedIndex *store; /* NULL: by record id; referenced, since cursors point to it */
    KeyBuilder low;
    KeyBuilder high;
    IndexCursor by_index;
    RecordCursor by_record;
    WriteScratch scratch;
    RecordId *batch;
    uint32_t batch_count;
    uint32_t deleted_in_batch;
    int64_t bytes_in_batch;
} Deletion;

static ErrCode run(Deletion *d, RangeDeleteResult *result, Error *err);
static ErrCode open_range(Deletion *d, const IndexDesc *index, Error *err);
static ErrCode fill_batch(Deletion *d, bool *ret_is_at_end, Error *err);
static ErrCode delete_batch(void *arg, OpCtx *op, Error *err);
static ErrCode go_on(Deletion *d, bool is_yield_due, bool *ret_is_gone, Error *err);

static const IndexDesc *find_index(const Collection *coll, const char *ident) {
    for (uint32_t i = 0; i < coll->index_count; i++)
        if (strcmp(coll->indexes[i]->ident, ident) == 0)
            return coll->indexes[i];
    return NULL;
}

/* Whether the collection and index of the request exist. */
static bool is_there(const Collection *coll, const RangeDelete *request) {
    if (coll == NULL || !uuid_equal(&coll->uuid, &request->uuid))
        return false;
    if (request->ident == NULL)
        return coll->options.is_clustered;
    const IndexDesc *index = find_index(coll, request->ident);
    return index != NULL && index->is_ready && index->store != NULL;
}

ErrCode exec_range_delete(OpCtx *op, const Ns *ns, const RangeDelete *request,
                          RangeDeleteResult *ret_result, Error *err) {
    *ret_result = (RangeDeleteResult){0};
    CLEANUP(access_done) CollAccess access = {0};
    if (request->is_ownership_ignored)
        TRY(access_write(op, ns, LOCK_IX, &access, err));
    else
        TRY(access_write_owned(op, ns, LOCK_IX, &access, err));
    if (!is_there(access.coll, request))
        return ERR_OK;
    Deletion d = {.op = op, .request = request, .access = &access};
    const IndexDesc *index =
        request->ident != NULL ? find_index(access.coll, request->ident) : NULL;
    MatchParseContext ctx = {.collator = index != NULL ? index->collator : NULL};
    TRY(match_parse(request->filter, &ctx, &op->arena, &d.filter, err));
    d.filter = match_optimize(d.filter, &op->arena);
    d.batch = ARENA_ARRAY(&op->arena, RecordId, request->batch_docs);
    write_scratch_init(&d.scratch);
    key_builder_init(&d.low);
    key_builder_init(&d.high);
    if (index != NULL)
        d.store = ordered_index_ref(index->store);
    ErrCode rc = open_range(&d, index, err);
    if (rc == ERR_OK)
        rc = run(&d, ret_result, err);
    if (d.store != NULL) {
        index_cursor_done(&d.by_index);
        ordered_index_unref(d.store);
    } else {
        record_cursor_done(&d.by_record);
    }
    key_builder_done(&d.low);
    key_builder_done(&d.high);
    write_scratch_done(&d.scratch);
    return rc;
}

static ErrCode run(Deletion *d, RangeDeleteResult *result, Error *err) {
    const RangeDelete *request = d->request;
    int64_t start_us = clock_mono_us(), yielded_us = start_us;
    for (;;) {
        ArenaMark mark = arena_mark(&d->op->arena);
        bool is_at_end, is_gone;
        TRY(fill_batch(d, &is_at_end, err));
        if (d->batch_count > 0)
            TRY(op_write_with_retry(d->op, delete_batch, d, err));
        result->deleted += d->deleted_in_batch;
        result->deleted_bytes += d->bytes_in_batch;
        d->deleted_in_batch = 0;
        d->bytes_in_batch = 0;
        arena_rewind(&d->op->arena, mark);
        if (is_at_end)
            return ERR_OK;
        int64_t now_us = clock_mono_us();
        bool is_enough = request->docs_max > 0 && result->deleted >= request->docs_max;
        bool is_late = request->time_us_max > 0 && now_us - start_us >= request->time_us_max;
        if (is_enough || is_late) {
            result->has_more = true;
            return ERR_OK;
        }
        bool is_yield_due = now_us - yielded_us >= YIELD_PERIOD_US;
        TRY(go_on(d, is_yield_due, &is_gone, err));
        if (is_gone)
            return ERR_OK;
        if (is_yield_due)
            yielded_us = clock_mono_us();
    }
}

static void encode_bound(KeyBuilder *kb, const IndexDesc *index, Doc bound) {
    key_builder_reset(kb, index->order);
    DocIter iter = doc_iter(bound);
    for (Elem value; doc_iter_next(&iter, &value);)
        key_append_elem(kb, value, index->collator);
    key_append_end(kb, KEY_END_BEFORE);
}

static ErrCode open_range(Deletion *d, const IndexDesc *index, Error *err) {
    const RangeDelete *request = d->request;
    if (index == NULL) {
        const Collator *collator = d->access->coll->options.collator;
        RecordId low, high;
        clustered_record_id_of_value(request->low, collator, &d->low, &low);
        clustered_record_id_of_value(request->high, collator, &d->high, &high);
        TRY(record_cursor_open(d->op, d->access->coll->records, /* is_forward= */ true,
                               &d->by_record, err));
        return record_cursor_seek_near(&d->by_record, low, err);
    }
    if (doc_is_present(request->min)) {
        encode_bound(&d->low, index, request->min);
        if (doc_is_present(request->max))
            encode_bound(&d->high, index, request->max);
        TRY(index_cursor_open(d->op, d->store, /* is_forward= */ true, &d->by_index, err));
        return index_cursor_seek(&d->by_index,
                                 (Str){(const char *)d->low.key.data, d->low.key.size}, err);
    }
    bool is_descending = index->fields[0].is_descending;
    key_builder_reset(&d->low, index->order);
    key_append_elem(&d->low, is_descending ? request->high : request->low, index->collator);
    key_append_end(&d->low, KEY_END_BEFORE);
    key_builder_reset(&d->high, index->order);
    key_append_elem(&d->high, is_descending ? request->low : request->high, index->collator);
    key_append_end(&d->high, KEY_END_AFTER);
    TRY(index_cursor_open(d->op, d->store, /* is_forward= */ true, &d->by_index, err));
    return index_cursor_seek(&d->by_index, (Str){(const char *)d->low.key.data, d->low.key.size},
                             err);
}

static bool is_behind(Str key, const KeyBuilder *high) {
    if (high->key.size == 0) /* there is no end */
        return false;
    size_t size = key.size < high->key.size ? key.size : high->key.size;
    int rc = memcmp(key.data, high->key.data, size);
    return rc > 0 || (rc == 0 && key.size > high->key.size);
}

static ErrCode next_record_id(Deletion *d, bool *ret_found, RecordId *ret_rid, Error *err) {
    if (d->store == NULL) {
        Str data;
        TRY(record_cursor_next(&d->by_record, ret_found, ret_rid, &data, err));
        *ret_found = *ret_found &&
                     !is_behind((Str){(const char *)ret_rid->str, ret_rid->str_size}, &d->high);
        return ERR_OK;
    }
    IndexEntry entry;
    TRY(index_cursor_next(&d->by_index, ret_found, &entry, err));
    *ret_found = *ret_found && !is_behind(entry.key, &d->high);
    *ret_rid = entry.rid;
    return ERR_OK;
}

/* The cursor is saved at the end: the batch's unit of work needs a fresh snapshot. */
static ErrCode fill_batch(Deletion *d, bool *ret_is_at_end, Error *err) {
    *ret_is_at_end = false;
    d->batch_count = 0;
    while (d->batch_count < d->request->batch_docs && !*ret_is_at_end) {
        bool is_found;
        RecordId rid = RECORD_ID_NONE;
        TRY(next_record_id(d, &is_found, &rid, err));
        *ret_is_at_end = !is_found;
        if (!is_found)
            break;
        if (rid.str != NULL)
            rid.str = arena_memdup(&d->op->arena, rid.str, rid.str_size);
        d->batch[d->batch_count++] = rid;
    }
    if (d->store != NULL)
        index_cursor_save(&d->by_index);
    else
        record_cursor_save(&d->by_record);
    return ERR_OK;
}

static ErrCode delete_batch(void *arg, OpCtx *op, Error *err) {
    Deletion *d = arg;
    const Collection *coll = d->access->coll;
    d->deleted_in_batch = 0;
    d->bytes_in_batch = 0;
    CLEANUP(record_cursor_done) RecordCursor cursor = {0};
    TRY(record_cursor_open(op, coll->records, /* is_forward= */ true, &cursor, err));
    for (uint32_t i = 0; i < d->batch_count; i++) {
        ArenaMark mark = arena_mark(&op->arena);
        bool is_found;
        Str data;
        TRY(record_cursor_seek_exact(&cursor, d->batch[i], &is_found, &data, err));
        if (!is_found) /* deleted meanwhile, or already by another key of the same document */
            continue;
        op->metrics.docs_examined++;
        Doc doc = doc_copy((Doc){(const uint8_t *)data.data}, &op->arena);
        bool is_taken =
            match_doc(d->filter, doc, NULL) && access_owns(d->access, doc) &&
            (d->request->is_taken == NULL || d->request->is_taken(d->request->arg, doc));
        if (is_taken) {
            TRY(collection_delete(op, coll, d->batch[i], doc, &d->scratch, err));
            d->deleted_in_batch++;
            d->bytes_in_batch += doc_size(doc);
        }
        arena_rewind(&op->arena, mark);
    }
    return ERR_OK;
}

static ErrCode go_on(Deletion *d, bool is_yield_due, bool *ret_is_gone, Error *err) {
    *ret_is_gone = false;
    TRY(op_check_interrupt_slow(d->op, err));
    if (is_yield_due) {
        ErrCode rc = access_yield(d->access, err);
        *ret_is_gone =
            rc == ERR_QUERY_PLAN_KILLED || (rc == ERR_OK && !is_there(d->access->coll, d->request));
        if (rc == ERR_QUERY_PLAN_KILLED)
            error_reset(err);
        else if (rc != ERR_OK)
            return rc;
        if (*ret_is_gone)
            return ERR_OK;
    }
    if (d->store != NULL)
        return index_cursor_restore(&d->by_index, d->op, err);
    bool is_kept;
    return record_cursor_restore(&d->by_record, d->op, &is_kept, err);
}
