#include "index/validate.h"

#include <string.h>

#include "base/alloc.h"
#include "bson/validate.h"
#include "index/spec.h"
#include "index/validate_internal.h"
#include "storage/engine.h"
#include "storage/recovery_unit.h"

static void validation_done(Validation *v);
static ErrCode check_metadata(Validation *v, Error *err);
static ErrCode check_data(Validation *v, Error *err);
static ErrCode scan_records(Validation *v, Error *err);
static bool check_record(Validation *v, RecordId rid, Str data, RecordId *last);
static void check_keys(Validation *v, Doc doc, RecordId rid, KeySet *keys);
static ErrCode scan_index(Validation *v, IndexCheck *check, Error *err);
static void check_order(Validation *v, IndexCheck *check, const IndexEntry *entry, Buffer *last,
                        RecordId *last_rid);
static void verify_files(Validation *v);

ErrCode collection_validate(CollAccess *access, const ValidateOptions *options, bool is_locked,
                            DocBuilder *b, Error *err) {
    const Collection *coll = access->coll;
    CLEANUP(validation_done) Validation v = {.access = access, .options = options};
    arena_init(&v.arena, 4096);
    v.checks = xcalloc(coll->index_count + 1, sizeof(IndexCheck));
    for (uint32_t i = 0; i < coll->index_count; i++) {
        if (coll->indexes[i]->store == NULL) {
            validate_add_text(&v, &v.warnings, "index '%s' has lost its table and was not checked",
                              coll->indexes[i]->name);
            continue;
        }
        if (!coll->indexes[i]->is_ready && options->is_repair)
            return error_set(err, ERR_BACKGROUND_OPERATION_IN_PROGRESS_FOR_NAMESPACE,
                             "cannot repair while index '%s' is being built",
                             coll->indexes[i]->name);
        if (!coll->indexes[i]->is_ready) {
            validate_add_text(&v, &v.warnings, "index '%s' is being built and was not checked",
                              coll->indexes[i]->name);
            continue;
        }
        v.checks[v.check_count++].index = coll->indexes[i];
    }
    TRY(check_metadata(&v, err));
    if (!options->is_metadata_only) {
        TRY(check_data(&v, err));
        if (options->is_full)
            verify_files(&v);
        if (options->is_repair)
            TRY(validate_repair(&v, err));
    }
    validate_judge(&v, is_locked);
    validate_report(&v, b);
    return ERR_OK;
}

static void validation_done(Validation *v) {
    for (uint32_t i = 0; i < v->check_count; i++) {
        xfree(v->checks[i].suspects);
        xfree(v->checks[i].buckets);
    }
    xfree(v->checks);
    xfree(v->corrupt);
    error_reset(&v->bad);
    catalog_release(v->lost_catalog);
    arena_done(&v->arena);
}

/* The durable entry says what the instance in memory says, and each specification is one that could
 * be created today. */
static ErrCode check_metadata(Validation *v, Error *err) {
    const Collection *coll = v->access->coll;
    OpCtx *op = v->access->op;
    bool is_same;
    TRY(catalog_entry_matches(op, coll, &is_same, err));
    if (!is_same)
        validate_add_text(v, &v->errors,
                          "the catalog entry %lld does not match the collection in memory",
                          (long long)coll->catalog_id);
    for (uint32_t i = 0; i < v->check_count; i++) {
        IndexCheck *check = &v->checks[i];
        Doc stored;
        Error bad = {0};
        if (!check->index->is_id &&
            index_spec_check(check->index->spec, &v->arena, &stored, &bad) != ERR_OK)
            validate_add_text(v, &check->errors, "the specification of index '%s' is not valid: %s",
                              check->index->name, error_message(&bad));
        error_reset(&bad);
    }
    return ERR_OK;
}

static ErrCode check_data(Validation *v, Error *err) {
    bool is_uneven = false;
    for (uint32_t i = 0; i < v->check_count; i++)
        v->checks[i].buckets = xcalloc(VALIDATE_BUCKETS, sizeof(int32_t));
    TRY(scan_records(v, err));
    for (uint32_t i = 0; i < v->check_count; i++) {
        TRY(scan_index(v, &v->checks[i], err));
        is_uneven |= validate_has_uneven_bucket(&v->checks[i]);
    }
    if (!is_uneven)
        return ERR_OK;
    v->is_second_pass = true;
    TRY(scan_records(v, err));
    for (uint32_t i = 0; i < v->check_count; i++)
        TRY(scan_index(v, &v->checks[i], err));
    return ERR_OK;
}

typedef struct RecordScan {
    Validation *v;
    int64_t count;
    RecordId last;
    KeySet keys;
} RecordScan;

static ErrCode scan_record(void *arg, RecordId rid, Str data, bool *is_over, Error *err) {
    (void)is_over;
    RecordScan *scan = arg;
    CollAccess *access = scan->v->access;
    if (scan->count % 128 == 0) {
        TRY(op_check_interrupt_slow(access->op, err));
        op_set_progress(access->op, "Validate: scanning collection", scan->count,
                        record_store_count(access->coll->records));
    }
    scan->count++;
    if (check_record(scan->v, rid, data, &scan->last))
        check_keys(scan->v, (Doc){(const uint8_t *)data.data}, rid, &scan->keys);
    return ERR_OK;
}

static ErrCode scan_records(Validation *v, Error *err) {
    RecordScan scan = {.v = v, .last = RECORD_ID_NONE};
    key_set_init(&scan.keys);
    ErrCode rc = record_store_each(v->access->op, v->access->coll->records, /* is_forward= */ true,
                                   scan_record, &scan, err);
    key_set_done(&scan.keys);
    return rc;
}

/* Returns whether it is a document; the first pass tells and counts what is wrong with it. */
static bool check_record(Validation *v, RecordId rid, Str data, RecordId *last) {
    const uint8_t *bytes = (const uint8_t *)data.data;
    bool is_doc = doc_validate(bytes, data.size, BSON_DEPTH_MAX, VALIDATE_BASIC, &v->bad) == ERR_OK;
    if (v->is_second_pass) {
        error_reset(&v->bad);
        return is_doc;
    }
    v->records++;
    if (!is_doc) {
        validate_add_text(v, &v->warnings, "record %llu is not valid BSON: %s",
                          (unsigned long long)validate_rid_num(rid), error_message(&v->bad));
        ARRAY_RESERVE(v->corrupt, v->corrupt_count, v->corrupt_capacity);
        CorruptRecord *corrupt = &v->corrupt[v->corrupt_count++];
        *corrupt = (CorruptRecord){rid, data.size};
        if (rid.str != NULL)
            corrupt->rid.str = arena_memdup(&v->arena, rid.str, rid.str_size);
    } else {
        v->bytes += (int64_t)data.size;
        if (v->options->is_conformance &&
            doc_validate(bytes, data.size, BSON_DEPTH_MAX, VALIDATE_UTF8 | VALIDATE_UNIQUE,
                         &v->bad) != ERR_OK)
            v->noncompliant++;
    }
    error_reset(&v->bad);
    if (rid.str == NULL && last->num >= rid.num)
        validate_add_text(v, &v->errors, "record ids are out of order at %lld", (long long)rid.num);
    *last = rid.str == NULL ? rid : RECORD_ID_NONE;
    return is_doc;
}

static void check_keys(Validation *v, Doc doc, RecordId rid, KeySet *keys) {
    for (uint32_t i = 0; i < v->check_count; i++) {
        IndexCheck *check = &v->checks[i];
        if (index_keys_of(check->index, doc, keys, &v->bad) != ERR_OK) {
            if (!v->is_second_pass)
                validate_add_text(v, &check->errors, "keys of record %llu cannot be made: %s",
                                  (unsigned long long)validate_rid_num(rid),
                                  error_message(&v->bad));
            error_reset(&v->bad);
            continue;
        }
        if (keys->is_multikey && !v->is_second_pass) {
            bool is_covered = index_is_multikey(check->index);
            for (uint32_t f = 0; f < check->index->field_count; f++) {
                check->multikey_paths[f] |= keys->multikey_paths[f];
                is_covered &=
                    (keys->multikey_paths[f] & ~index_multikey_paths(check->index, f)) == 0;
            }
            check->is_multikey_missing |= !is_covered;
        }
        for (uint32_t k = 0; k < keys->count; k++)
            validate_count_key(v, check, key_set_get(keys, k), rid, 1);
    }
}

static ErrCode scan_index(Validation *v, IndexCheck *check, Error *err) {
    OpCtx *op = v->access->op;
    CLEANUP(index_cursor_done) IndexCursor cursor = {0};
    TRY(index_cursor_open(op, check->index->store, /* is_forward= */ true, &cursor, err));
    CLEANUP(buffer_done) Buffer last;
    buffer_init(&last, BUFFER_UNBOUNDED);
    RecordId last_rid = RECORD_ID_NONE;
    for (int64_t n = 0;; n++) {
        bool is_found;
        IndexEntry entry;
        if (n % 128 == 0) {
            TRY(op_check_interrupt_slow(op, err));
            op_set_progress(op, "Validate: scanning index", n, v->records);
        }
        TRY(index_cursor_next(&cursor, &is_found, &entry, err));
        if (!is_found)
            return ERR_OK;
        validate_count_key(v, check, (IndexKey){entry.key, entry.type_bits}, entry.rid, -1);
        if (v->is_second_pass)
            continue;
        check->entries++;
        check_order(v, check, &entry, &last, &last_rid);
    }
}

static void check_order(Validation *v, IndexCheck *check, const IndexEntry *entry, Buffer *last,
                        RecordId *last_rid) {
    size_t size = last->size < entry->key.size ? last->size : entry->key.size;
    int order = last->size == 0 ? -1 : memcmp(last->data, entry->key.data, size);
    if (order == 0)
        order = last->size < entry->key.size ? -1 : last->size > entry->key.size;
    if (order > 0)
        validate_add_text(v, &check->errors, "index '%s' is not in strict ascending order",
                          check->index->name);
    if (order == 0 && check->index->is_unique && record_id_compare(*last_rid, entry->rid) != 0)
        validate_add_text(v, &check->errors, "unique index '%s' has duplicate keys",
                          check->index->name);
    buffer_clear(last);
    buffer_append(last, entry->key.data, entry->key.size);
    *last_rid = entry->rid.str == NULL ? entry->rid : RECORD_ID_NONE;
}

static void verify_files(Validation *v) {
    const Collection *coll = v->access->coll;
    StorageEngine *engine = op_storage(v->access->op);
    for (uint32_t i = 0; i <= v->check_count; i++) {
        const char *ident = i == 0 ? record_store_ident(coll->records)
                                   : ordered_index_ident(v->checks[i - 1].index->store);
        bool is_checked;
        Error err = {0};
        if (storage_verify_table(engine, ident, &is_checked, &err) != ERR_OK)
            validate_add_text(v, &v->errors, "%s", error_message(&err));
        else if (!is_checked)
            validate_add_text(
                v, &v->warnings,
                "table \"%s\" is in use, so its file could not be verified by the engine", ident);
        error_reset(&err);
    }
}
