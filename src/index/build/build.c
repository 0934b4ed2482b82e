#include "index/build/build.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "index/collection_write.h"
#include "storage/engine.h"
#include "storage/recovery_unit.h"
#include "storage/unit_of_work.h"

enum {
    RUN_BYTES_MAX = 200 * 1024 * 1024, /* memory of one index's keys before they are written out */
    INSERTS_PER_UNIT = 1000,
    DOCS_PER_CHECK = 128,
};

typedef struct RunKey {
    size_t offset; /* key, type bits, string record id, back to back in `bytes` */
    uint32_t key_size;
    uint32_t type_bits_size;
    uint32_t rid_str_size;
    int64_t rid_num;
} RunKey;

/* The keys of one index, collected and sorted. */
typedef struct Run {
    IndexDesc *index;
    Buffer bytes;
    RunKey *keys;
    size_t count;
    size_t capacity;
    bool is_spilled; /* an earlier run is in the table already: no bulk load any more */
} Run;

static ErrCode scan(CollAccess *access, Run *runs, uint32_t count, Error *err);
static ErrCode collect(Run *run, Doc doc, RecordId rid, KeySet *keys, Error *err);
static void sort_run(Run *run);
static ErrCode load_bulk(CollAccess *access, Run *run, Error *err);
static ErrCode write_out(CollAccess *access, Run *run, Error *err);
static IndexKey run_key(const Run *run, const RunKey *key, RecordId *ret_rid);

ErrCode index_build_fill(CollAccess *access, IndexDesc *const *indexes, uint32_t count,
                         Error *err) {
    Run *runs = xcalloc(count, sizeof(Run));
    for (uint32_t i = 0; i < count; i++) {
        runs[i].index = indexes[i];
        buffer_init(&runs[i].bytes, SIZE_MAX / 2);
    }
    ErrCode rc = scan(access, runs, count, err);
    for (uint32_t i = 0; i < count; i++) {
        Run *run = &runs[i];
        if (rc == ERR_OK) {
            sort_run(run);
            rc = run->is_spilled ? write_out(access, run, err) : load_bulk(access, run, err);
        }
        buffer_done(&run->bytes);
        xfree(run->keys);
    }
    xfree(runs);
    return rc;
}

static ErrCode scan(CollAccess *access, Run *runs, uint32_t count, Error *err) {
    OpCtx *op = access->op;
    const Collection *coll = access->coll;
    CLEANUP(record_cursor_done) RecordCursor cursor = {0};
    TRY(record_cursor_open(op, coll->records, /* is_forward= */ true, &cursor, err));
    CLEANUP(key_set_done) KeySet keys;
    key_set_init(&keys);
    int64_t total = record_store_count(coll->records);
    for (int64_t done = 0;; done++) {
        bool is_found;
        RecordId rid;
        Str data;
        TRY(record_cursor_next(&cursor, &is_found, &rid, &data, err));
        if (!is_found)
            break;
        if (done % DOCS_PER_CHECK == 0) {
            TRY(op_check_interrupt_slow(op, err));
            op_set_progress(op, "Index Build: scanning collection", done, total);
        }
        bool is_full = false;
        for (uint32_t i = 0; i < count; i++) {
            TRY(collect(&runs[i], (Doc){(const uint8_t *)data.data}, rid, &keys, err));
            is_full |= runs[i].bytes.size + runs[i].count * sizeof(RunKey) > RUN_BYTES_MAX / count;
        }
        if (!is_full)
            continue;
        /* Out of memory for this run: sorted inserts instead of the bulk load. The scan's snapshot
         * ends with the unit of work, but nobody can write under our X lock. */
        record_cursor_save(&cursor);
        ru_abandon_snapshot(op->ru);
        for (uint32_t i = 0; i < count; i++) {
            sort_run(&runs[i]);
            TRY(write_out(access, &runs[i], err));
        }
        bool is_kept;
        TRY(record_cursor_restore(&cursor, op, &is_kept, err));
    }
    op_set_progress(op, NULL, 0, 0);
    return ERR_OK;
}

static ErrCode collect(Run *run, Doc doc, RecordId rid, KeySet *keys, Error *err) {
    TRY(index_keys_of(run->index, doc, keys, err));
    if (keys->is_multikey) {
        /* Nobody uses the index yet; the catalog write that adds it carries the bits. */
        for (uint32_t f = 0; f < run->index->field_count; f++)
            atomic_fetch_or(&run->index->state->multikey_paths[f], keys->multikey_paths[f]);
        atomic_store(&run->index->state->is_multikey, true);
    }
    for (uint32_t k = 0; k < keys->count; k++) {
        IndexKey key = key_set_get(keys, k);
        ARRAY_RESERVE(run->keys, run->count, run->capacity);
        run->keys[run->count++] = (RunKey){
            .offset = run->bytes.size,
            .key_size = (uint32_t)key.key.size,
            .type_bits_size = (uint32_t)key.type_bits.size,
            .rid_str_size = rid.str != NULL ? rid.str_size : 0,
            .rid_num = rid.num,
        };
        buffer_append(&run->bytes, key.key.data, key.key.size);
        buffer_append(&run->bytes, key.type_bits.data, key.type_bits.size);
        if (rid.str != NULL)
            buffer_append(&run->bytes, rid.str, rid.str_size);
    }
    return ERR_OK;
}

static int compare_run_keys(const void *a, const void *b, void *arg) {
    const Run *run = arg;
    RecordId a_rid, b_rid;
    IndexKey x = run_key(run, a, &a_rid), y = run_key(run, b, &b_rid);
    size_t size = x.key.size < y.key.size ? x.key.size : y.key.size;
    int rc = memcmp(x.key.data, y.key.data, size);
    if (rc != 0)
        return rc;
    if (x.key.size != y.key.size)
        return x.key.size < y.key.size ? -1 : 1;
    return record_id_compare(a_rid, b_rid);
}

static void sort_run(Run *run) {
    if (run->count > 1)
        qsort_r(run->keys, run->count, sizeof(*run->keys), compare_run_keys, run);
}

static ErrCode load_bulk(CollAccess *access, Run *run, Error *err) {
    IndexBulk *bulk;
    TRY(index_bulk_open(op_storage(access->op), run->index->store, &bulk, err));
    ErrCode rc = ERR_OK;
    for (size_t i = 0; rc == ERR_OK && i < run->count; i++) {
        RecordId rid;
        IndexKey key = run_key(run, &run->keys[i], &rid);
        bool is_duplicate;
        rc = index_bulk_add(bulk, key, rid, &is_duplicate, err);
        if (rc == ERR_OK && is_duplicate)
            rc = duplicate_key_error(access->coll, run->index, key, err);
    }
    if (rc == ERR_OK)
        rc = index_bulk_finish(bulk, err);
    index_bulk_free(bulk);
    return rc;
}

typedef struct UnitOfKeys {
    CollAccess *access;
    Run *run;
    size_t from;
    size_t to;
} UnitOfKeys;

static ErrCode insert_unit(void *arg, OpCtx *op, Error *err) {
    UnitOfKeys *unit = arg;
    CLEANUP(uow_done) UnitOfWork uow = {0};
    TRY(uow_begin(op, &uow, err));
    for (size_t i = unit->from; i < unit->to; i++) {
        RecordId rid;
        IndexKey key = run_key(unit->run, &unit->run->keys[i], &rid);
        bool is_duplicate;
        TRY(ordered_index_insert(op, unit->run->index->store, key, rid, /* is_dup_allowed= */ false,
                                 &is_duplicate, err));
        if (is_duplicate)
            return duplicate_key_error(unit->access->coll, unit->run->index, key, err);
    }
    return uow_commit(&uow, err);
}

/* Inserts the sorted run by ordinary transactions and empties it. */
static ErrCode write_out(CollAccess *access, Run *run, Error *err) {
    for (size_t from = 0; from < run->count; from += INSERTS_PER_UNIT) {
        size_t to = from + INSERTS_PER_UNIT < run->count ? from + INSERTS_PER_UNIT : run->count;
        UnitOfKeys unit = {access, run, from, to};
        TRY(op_check_interrupt_slow(access->op, err));
        TRY(op_run_with_retry(access->op, insert_unit, &unit, err));
    }
    run->count = 0;
    buffer_clear(&run->bytes);
    run->is_spilled = true;
    return ERR_OK;
}

static IndexKey run_key(const Run *run, const RunKey *key, RecordId *ret_rid) {
    const char *at = (const char *)run->bytes.data + key->offset;
    *ret_rid = key->rid_str_size > 0
                   ? (RecordId){0, (const uint8_t *)at + key->key_size + key->type_bits_size,
                                key->rid_str_size}
                   : record_id_num(key->rid_num);
    return (IndexKey){{at, key->key_size}, {at + key->key_size, key->type_bits_size}};
}
