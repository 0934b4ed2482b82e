#include "index/collection_write.h"

#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "bson/compare.h"
#include "bson/json.h"
#include "catalog/write_observer.h"
#include "concurrency/op_failpoint.h"
#include "index/key_show.h"
#include "index/side_writes.h"
#include "storage/recovery_unit.h"
#include "storage/unit_of_work.h"

enum {
    KEYS_BETWEEN_CHECKS = 1024, /* of one document and index; some milliseconds */
};

static ErrCode insert_one(OpCtx *op, const Collection *coll, Doc doc, WriteScratch *scratch,
                          Error *err);
static ErrCode update_one(OpCtx *op, const Collection *coll, RecordId rid, Doc before, Doc after,
                          WriteScratch *scratch, Error *err);
static ErrCode tell_update(OpCtx *op, const Collection *coll, Doc before, Doc after,
                           const UpdateForm *form, Error *err);
static ErrCode insert_record(OpCtx *op, const Collection *coll, Doc doc, WriteScratch *scratch,
                             RecordId *ret_rid, Error *err);
static ErrCode keys_of(const OpCtx *op, const IndexDesc *index, Doc doc, KeySet *ret_set,
                       Error *err);
static ErrCode add_keys(OpCtx *op, const Collection *coll, const IndexDesc *index, RecordId rid,
                        const KeySet *keys, Error *err);
static ErrCode remove_keys(OpCtx *op, const IndexDesc *index, RecordId rid, const KeySet *keys,
                           Error *err);
static ErrCode update_keys(OpCtx *op, const Collection *coll, const IndexDesc *index, RecordId rid,
                           const KeySet *before, const KeySet *after, Error *err);
static ErrCode write_aside(OpCtx *op, const IndexDesc *index, RecordId rid, Doc before, Doc after,
                           WriteScratch *scratch, Error *err);
static ErrCode trim_capped(OpCtx *op, const Collection *coll, WriteScratch *scratch, Error *err);
static void notify_capped(void *arg, OpCtx *op, uint64_t commit_ts);

static Str bytes_of(Doc doc) {
    return (Str){(const char *)doc.data, doc_size(doc)};
}

/* The last check before storage, after those of all callers: a larger document could be stored but
 * never returned to a client again. */
static ErrCode check_size(const OpCtx *op, const Collection *coll, Doc doc, Error *err) {
    if (LIKELY(doc_size(doc) <= BSON_DOC_SIZE_MAX_CARRIED) || op->mode.is_applying)
        return ERR_OK;
    return error_set(err, ERR_BSON_OBJECT_TOO_LARGE,
                     "a document of %u bytes is too large for collection \"%s\"", doc_size(doc),
                     coll->ns.text);
}

void write_scratch_init(WriteScratch *scratch) {
    key_set_init(&scratch->before);
    key_set_init(&scratch->after);
    key_builder_init(&scratch->rid);
    buffer_init(&scratch->side, BUFFER_UNBOUNDED);
}

void write_scratch_done(WriteScratch *scratch) {
    key_set_done(&scratch->before);
    key_set_done(&scratch->after);
    key_builder_done(&scratch->rid);
    buffer_done(&scratch->side);
}

ErrCode collection_insert(OpCtx *op, const Collection *coll, const Doc *docs, size_t count,
                          WriteScratch *scratch, Error *err) {
    if (op_failpoint_take(op, FP_FAIL_COLLECTION_INSERTS, coll->ns.text))
        return error_set(err, ERR_INTERNAL_ERROR,
                         "the failpoint failCollectionInserts rejects inserts into %s",
                         coll->ns.text);
    WriteObservers *observers = catalog_write_observers(op_catalog(op));
    for (size_t o = 0; o < observers->count; o++) {
        write_observer_heard(observers, op, o);
        TRY(observers->rows[o].before_inserts(observers->rows[o].arg, op, coll, docs, count, err));
    }
    /* Capped collections keep insertion order: one inserter at a time, until its commit. Otherwise
     * record ids would become visible out of order, and a tailing reader would skip the late
     * ones. */
    if (coll->options.is_capped) {
        ResourceId mutex = resource_id(RESOURCE_MUTEX, coll->ns.text, coll->ns.size);
        TRY(lock_acquire(op, mutex, LOCK_X, LOCK_DEFAULT, INT64_MAX, err));
        lock_release(op, mutex); /* held to the end of the unit of work */
    }
    for (size_t i = 0; i < count; i++) {
        for (size_t o = 0; o < observers->count; o++)
            TRY(observers->rows[o].on_insert(observers->rows[o].arg, op, coll, docs[i], i, err));
        TRY(insert_one(op, coll, docs[i], scratch, err));
    }
    if (coll->options.is_capped) {
        if (!op->mode.is_applying) /* the primary's trimming is replicated as deletes */
            TRY(trim_capped(op, coll, scratch, err));
        ru_on_commit(op->ru, notify_capped, (void *)coll);
    }
    op->metrics.docs_inserted += (int64_t)count;
    return ERR_OK;
}

typedef struct InsertUnit {
    const Collection *coll;
    const Doc *docs;
    size_t count;
    WriteScratch *scratch;
} InsertUnit;

/* Waits with the writes done, their place in the oplog reserved and nothing committed. */
static ErrCode hang_after_inserts(OpCtx *op, const InsertUnit *unit, Error *err) {
    FailpointConfig config = failpoint_config(FP_HANG_AFTER_INSERTS);
    CLEANUP(xfree_ptr) uint8_t *data = config.data;
    Elem first = data != NULL ? doc_get_lit((Doc){data}, "first_id") : ELEM_MISSING;
    if (elem_is_present(first) && elem_compare(first, doc_get_lit(unit->docs[0], "_id"), NULL) != 0)
        return ERR_OK;
    return op_hang_until_killed(op, FP_HANG_AFTER_INSERTS, unit->coll->ns.text, err);
}

static ErrCode insert_unit(void *arg, OpCtx *op, Error *err) {
    const InsertUnit *unit = arg;
    TRY(collection_insert(op, unit->coll, unit->docs, unit->count, unit->scratch, err));
    /* As another writer would make it fail; meant for copies of whole collections. */
    if (op->mode.is_applying && FAILPOINT(FAIL_AFTER_BULK_INSERT))
        return error_set(err, ERR_WRITE_CONFLICT, "a failpoint makes this insert conflict");
    return UNLIKELY(failpoint_is_set(FP_HANG_AFTER_INSERTS)) ? hang_after_inserts(op, unit, err)
                                                             : ERR_OK;
}

ErrCode collection_insert_unit(OpCtx *op, const Collection *coll, const Doc *docs, size_t count,
                               WriteScratch *scratch, Error *err) {
    return op_write_with_retry(op, insert_unit, &(InsertUnit){coll, docs, count, scratch}, err);
}

ErrCode collection_update(OpCtx *op, const Collection *coll, RecordId rid, Doc before, Doc after,
                          WriteScratch *scratch, Error *err) {
    TRY(update_one(op, coll, rid, before, after, scratch, err));
    return tell_update(op, coll, before, after, &(UpdateForm){0}, err);
}

ErrCode collection_update_by(OpCtx *op, const Collection *coll, RecordId rid, Doc before, Doc after,
                             const struct UpdateProgram *program, WriteScratch *scratch,
                             Error *err) {
    TRY(update_one(op, coll, rid, before, after, scratch, err));
    return tell_update(op, coll, before, after, &(UpdateForm){.program = program}, err);
}

ErrCode collection_replace(OpCtx *op, const Collection *coll, RecordId rid, Doc before, Doc after,
                           WriteScratch *scratch, Error *err) {
    TRY(update_one(op, coll, rid, before, after, scratch, err));
    return tell_update(op, coll, before, after, &(UpdateForm){.is_replacement = true}, err);
}

static ErrCode update_one(OpCtx *op, const Collection *coll, RecordId rid, Doc before, Doc after,
                          WriteScratch *scratch, Error *err) {
    TRY(check_size(op, coll, after, err));
    TRY(collection_check_validator(op, coll, before, after, err));
    TRY(record_update(op, coll->records, rid, bytes_of(after), doc_size(before), err));
    for (uint32_t i = 0; i < coll->index_count; i++) {
        const IndexDesc *index = coll->indexes[i];
        if (index->store == NULL || index->is_id)
            continue; /* _id never changes */
        if (UNLIKELY(index->side_writes != NULL)) {
            TRY(write_aside(op, index, rid, before, after, scratch, err));
            continue;
        }
        TRY(keys_of(op, index, before, &scratch->before, err));
        TRY(keys_of(op, index, after, &scratch->after, err));
        TRY(update_keys(op, coll, index, rid, &scratch->before, &scratch->after, err));
    }
    return ERR_OK;
}

static ErrCode tell_update(OpCtx *op, const Collection *coll, Doc before, Doc after,
                           const UpdateForm *form, Error *err) {
    WriteObservers *observers = catalog_write_observers(op_catalog(op));
    for (size_t o = 0; o < observers->count; o++) {
        write_observer_heard(observers, op, o);
        TRY(observers->rows[o].on_update(observers->rows[o].arg, op, coll, before, after, form,
                                         err));
    }
    return ERR_OK;
}

ErrCode collection_delete(OpCtx *op, const Collection *coll, RecordId rid, Doc before,
                          WriteScratch *scratch, Error *err) {
    for (uint32_t i = 0; i < coll->index_count; i++) {
        const IndexDesc *index = coll->indexes[i];
        if (index->store == NULL)
            continue;
        if (UNLIKELY(index->side_writes != NULL)) {
            TRY(write_aside(op, index, rid, before, DOC_NONE, scratch, err));
            continue;
        }
        TRY(keys_of(op, index, before, &scratch->before, err));
        TRY(remove_keys(op, index, rid, &scratch->before, err));
    }
    TRY(record_delete(op, coll->records, rid, doc_size(before), err));
    WriteObservers *observers = catalog_write_observers(op_catalog(op));
    for (size_t o = 0; o < observers->count; o++) {
        write_observer_heard(observers, op, o);
        TRY(observers->rows[o].on_delete(observers->rows[o].arg, op, coll, before, err));
    }
    op->metrics.docs_deleted++;
    return ERR_OK;
}

ErrCode duplicate_key_error(const Collection *coll, const IndexDesc *index, IndexKey key,
                            Error *err) {
    Arena arena;
    arena_init(&arena, 4096);
    DocBuilder b = doc_builder_in_arena_sized(&arena, 512);
    build_doc(&b, "keyPattern", index->key_pattern);
    size_t opened = build_open_doc(&b, "keyValue");
    build_key_values(&b, index, key, /* has_paths= */ true);
    build_close(&b, opened);
    if (index->collator != NULL)
        build_doc(&b, "collation", index->collation);
    Doc extra = doc_builder_end(&b);
    Doc key_value = elem_doc(doc_get_lit(extra, "keyValue"));
    ErrCode rc =
        error_set(err, ERR_DUPLICATE_KEY,
                  "E11000 duplicate key error collection: %s index: %s%s%s dup key: %s",
                  coll->ns.text, index->name, index->collator != NULL ? " collation: " : "",
                  index->collator != NULL ? shell_text_of_doc(index->collation, &arena) : "",
                  shell_text_of_doc(key_value, &arena));
    error_set_extra(err, extra.data);
    arena_done(&arena);
    return rc;
}

static ErrCode insert_one(OpCtx *op, const Collection *coll, Doc doc, WriteScratch *scratch,
                          Error *err) {
    TRY(check_size(op, coll, doc, err));
    TRY(collection_check_validator(op, coll, DOC_NONE, doc, err));
    RecordId rid;
    TRY(insert_record(op, coll, doc, scratch, &rid, err));
    for (uint32_t i = 0; i < coll->index_count; i++) {
        const IndexDesc *index = coll->indexes[i];
        if (index->store == NULL)
            continue;
        if (UNLIKELY(index->side_writes != NULL)) {
            TRY(write_aside(op, index, rid, DOC_NONE, doc, scratch, err));
            continue;
        }
        TRY(keys_of(op, index, doc, &scratch->after, err));
        TRY(add_keys(op, coll, index, rid, &scratch->after, err));
    }
    return ERR_OK;
}

static ErrCode insert_record(OpCtx *op, const Collection *coll, Doc doc, WriteScratch *scratch,
                             RecordId *ret_rid, Error *err) {
    if (!coll->options.is_clustered) {
        TRY(record_store_next_id(op, coll->records, ret_rid, err));
        return record_insert(op, coll->records, *ret_rid, bytes_of(doc), err);
    }
    TRY(clustered_record_id(doc, coll->options.collator, &scratch->rid, ret_rid, err));
    bool is_duplicate;
    TRY(record_insert_unique(op, coll->records, *ret_rid, bytes_of(doc), &is_duplicate, err));
    if (!is_duplicate)
        return ERR_OK;
    Elem id = doc_get_lit(doc, "_id");
    Arena arena;
    arena_init(&arena, 1024);
    (void)error_set(err, ERR_DUPLICATE_KEY,
                    "E11000 duplicate key error collection: %s dup key: { _id: %s }", coll->ns.text,
                    shell_text_of_elem(id, &arena));
    DocBuilder b = doc_builder_in_arena(&arena);
    size_t pattern = build_open_doc(&b, "keyPattern");
    build_i32(&b, "_id", 1);
    build_close(&b, pattern);
    size_t value = build_open_doc(&b, "keyValue");
    build_elem(&b, id);
    build_close(&b, value);
    error_set_extra(err, doc_builder_end(&b).data);
    arena_done(&arena);
    return err->code;
}

/* While the oplog is applied a document can be in a state from before the index existed, which it
 * cannot index: it has no keys then, and gets them with a later entry. */
static ErrCode keys_of(const OpCtx *op, const IndexDesc *index, Doc doc, KeySet *ret_set,
                       Error *err) {
    ErrCode rc = index_keys_of(index, doc, ret_set, err);
    if (LIKELY(rc == ERR_OK) || !op->mode.is_applying)
        return rc;
    error_reset(err);
    ret_set->count = 0;
    ret_set->is_multikey = false;
    return ERR_OK;
}

/* One document can have millions of keys, and take a minute when the cache is full: a kill, a time
 * limit or a shutdown must not wait for that. Members that apply the oplog finish what they have
 * begun. */
static ErrCode check_at_key(OpCtx *op, uint32_t k, Error *err) {
    if (LIKELY(k == 0 || k % KEYS_BETWEEN_CHECKS != 0) || op->mode.is_applying)
        return ERR_OK;
    return op_check_interrupt_slow(op, err);
}

static ErrCode add_keys(OpCtx *op, const Collection *coll, const IndexDesc *index, RecordId rid,
                        const KeySet *keys, Error *err) {
    if (UNLIKELY(keys->is_multikey))
        TRY(catalog_set_multikey(op, coll, index, keys->multikey_paths, err));
    for (uint32_t k = 0; k < keys->count; k++) {
        TRY(check_at_key(op, k, err));
        bool is_duplicate;
        IndexKey key = key_set_get(keys, k);
        TRY(ordered_index_insert(op, index->store, key, rid, op->mode.is_applying, &is_duplicate,
                                 err));
        if (is_duplicate)
            return duplicate_key_error(coll, index, key, err);
        op->metrics.keys_inserted++;
    }
    return ERR_OK;
}

static ErrCode remove_keys(OpCtx *op, const IndexDesc *index, RecordId rid, const KeySet *keys,
                           Error *err) {
    for (uint32_t k = 0; k < keys->count; k++) {
        TRY(check_at_key(op, k, err));
        bool is_found;
        TRY(ordered_index_remove(op, index->store, key_set_get(keys, k), rid, &is_found, err));
        if (!is_found && !op->mode.is_applying)
            LOG_WARN(LOG_INDEX, 7100301, "Index key to remove was not there; run validate",
                     LOG_STR("index", index->name));
        op->metrics.keys_deleted++;
    }
    return ERR_OK;
}

static int compare_keys(IndexKey a, IndexKey b) {
    size_t size = a.key.size < b.key.size ? a.key.size : b.key.size;
    int rc = memcmp(a.key.data, b.key.data, size);
    if (rc != 0)
        return rc;
    return a.key.size < b.key.size ? -1 : a.key.size > b.key.size;
}

/* Both sets are sorted, so one merge walk finds the differences. Removals precede insertions, so
 * that a unique key whose type bits alone change does not conflict with itself. */
static ErrCode update_keys(OpCtx *op, const Collection *coll, const IndexDesc *index, RecordId rid,
                           const KeySet *before, const KeySet *after, Error *err) {
    if (before->count == 1 && after->count == 1) { /* the common case */
        IndexKey a = key_set_get(before, 0), b = key_set_get(after, 0);
        if (compare_keys(a, b) == 0 && str_equal(a.type_bits, b.type_bits) && !after->is_multikey)
            return ERR_OK;
    }
    if (after->is_multikey)
        TRY(catalog_set_multikey(op, coll, index, after->multikey_paths, err));
    for (int pass = 0; pass < 2; pass++) {
        const KeySet *mine = pass == 0 ? before : after;
        const KeySet *other = pass == 0 ? after : before;
        uint32_t j = 0;
        for (uint32_t i = 0; i < mine->count; i++) {
            TRY(check_at_key(op, i, err));
            IndexKey key = key_set_get(mine, i);
            while (j < other->count && compare_keys(key_set_get(other, j), key) < 0)
                j++;
            if (j < other->count) {
                IndexKey same = key_set_get(other, j);
                if (compare_keys(same, key) == 0 && str_equal(same.type_bits, key.type_bits))
                    continue;
            }
            bool flag;
            if (pass == 0) {
                TRY(ordered_index_remove(op, index->store, key, rid, &flag, err));
                op->metrics.keys_deleted++;
                continue;
            }
            TRY(ordered_index_insert(op, index->store, key, rid, op->mode.is_applying, &flag, err));
            if (flag)
                return duplicate_key_error(coll, index, key, err);
            op->metrics.keys_inserted++;
        }
    }
    return ERR_OK;
}

/* The index is being built. A document from before the build may be impossible to index (parallel
 * arrays, for example): then the scan has skipped it, and there are no keys to remove. The new
 * version must be indexable, or the finished index would miss it. */
static ErrCode write_aside(OpCtx *op, const IndexDesc *index, RecordId rid, Doc before, Doc after,
                           WriteScratch *scratch, Error *err) {
    bool has_before =
        doc_is_present(before) && index_keys_of(index, before, &scratch->before, err) == ERR_OK;
    if (!has_before)
        error_reset(err);
    bool has_after = doc_is_present(after);
    if (has_after)
        TRY(index_keys_of(index, after, &scratch->after, err));
    return side_write(op, index, rid, has_before ? &scratch->before : NULL,
                      has_after ? &scratch->after : NULL, &scratch->side, err);
}

/* ---- capped collections (CAP-1) ---- */

static void notify_capped(void *arg, OpCtx *op, uint64_t commit_ts) {
    (void)op, (void)commit_ts;
    collection_capped_notify(arg, /* is_dropped= */ false);
}

static void forget_capped_hint(void *arg, OpCtx *op, uint64_t commit_ts) {
    (void)op, (void)commit_ts;
    atomic_store(&((CollectionShared *)arg)->capped_first_hint, 0);
}

/* Deletes the oldest documents until the collection fits again, in the transaction of the insert.
 * Counts are exact here: committed documents plus our own, since inserters are serialized. */
static ErrCode trim_capped(OpCtx *op, const Collection *coll, WriteScratch *scratch, Error *err) {
    int64_t count, size;
    record_store_counts_in_txn(op, coll->records, &count, &size);
    int64_t count_max = coll->options.capped_max > 0 ? coll->options.capped_max : INT64_MAX;
    if (count <= count_max && size <= coll->options.capped_size)
        return ERR_OK;
    CLEANUP(record_cursor_done) RecordCursor cursor = {0};
    TRY(record_cursor_open(op, coll->records, /* is_forward= */ true, &cursor, err));
    /* Skips deleted records that WiredTiger has not removed from the page yet; from the beginning
     * each insert would walk over all of them. */
    int64_t hint = atomic_load_explicit(&coll->shared->capped_first_hint, memory_order_relaxed);
    if (hint > 0)
        TRY(record_cursor_seek_near(&cursor, record_id_num(hint), err));
    int64_t new_hint = hint;
    while (count > count_max || size > coll->options.capped_size) {
        bool is_found;
        RecordId rid;
        Str data;
        TRY(record_cursor_next(&cursor, &is_found, &rid, &data, err));
        if (!is_found)
            return ERR_OK;
        Doc doc = doc_copy((Doc){(const uint8_t *)data.data}, &op->arena);
        TRY(collection_delete(op, coll, rid, doc, scratch, err));
        op->metrics.docs_deleted--; /* not a delete of the client */
        new_hint = rid.num;
        count--;
        size -= (int64_t)doc_size(doc);
    }
    atomic_store_explicit(&coll->shared->capped_first_hint, new_hint, memory_order_relaxed);
    /* The documents before the hint are back. */
    ru_on_rollback(op->ru, forget_capped_hint, coll->shared);
    return ERR_OK;
}
