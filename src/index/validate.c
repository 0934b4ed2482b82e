#include "index/validate.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "bson/validate.h"
#include "index/key_gen.h"
#include "index/key_show.h"
#include "storage/engine.h"

enum {
    BUCKET_COUNT = 1 << 16,
    DETAILS_MAX = 100, /* bad keys and records named in the report, of each kind */
};

typedef struct TextList {
    char *rows[DETAILS_MAX];
    uint32_t count;
    uint64_t total;
} TextList;

/* One key whose bucket did not come out even. */
typedef struct Suspect {
    uint64_t hash;
    int64_t balance; /* expected minus present */
    uint8_t *key;    /* key bytes, for the report */
    uint32_t key_size;
    RecordId rid;
} Suspect;

typedef struct IndexCheck {
    const IndexDesc *index;
    int32_t *buckets;
    int64_t entries;
    int64_t expected;
    bool is_multikey_missing;
    bool is_bad;
    TextList errors;
    Suspect *suspects;
    size_t suspect_count;
    size_t suspect_capacity;
} IndexCheck;

typedef struct Validation {
    CollAccess *access;
    const ValidateOptions *options;
    Arena *arena;
    IndexCheck *checks;
    uint32_t check_count;
    int64_t records;
    int64_t bytes;
    int64_t invalid;
    int64_t noncompliant;
    TextList errors;
    TextList warnings;
    TextList corrupt;
    bool is_second_pass;
} Validation;

static ErrCode scan_records(Validation *v, Error *err);
static void check_keys(Validation *v, Doc doc, RecordId rid, KeySet *keys);
static ErrCode scan_index(Validation *v, IndexCheck *check, Error *err);
static void count_key(Validation *v, IndexCheck *check, Str key, RecordId rid, int delta);
static bool has_uneven_bucket(const IndexCheck *check);
static void report(Validation *v, bool is_locked, DocBuilder *b);
static void add_text(Validation *v, TextList *list, const char *fmt, ...) PRINTF_LIKE(3, 4);

ErrCode collection_validate(CollAccess *access, const ValidateOptions *options, bool is_locked,
                            DocBuilder *b, Error *err) {
    const Collection *coll = access->coll;
    Validation v = {.access = access, .options = options, .arena = &access->op->arena};
    v.checks = xcalloc(coll->index_count + 1, sizeof(IndexCheck));
    for (uint32_t i = 0; i < coll->index_count; i++) {
        if (coll->indexes[i]->store == NULL) {
            add_text(&v, &v.warnings, "index '%s' has lost its table and was not checked",
                     coll->indexes[i]->name);
            continue;
        }
        IndexCheck *check = &v.checks[v.check_count++];
        check->index = coll->indexes[i];
        check->buckets = xcalloc(BUCKET_COUNT, sizeof(int32_t));
    }
    ErrCode rc = scan_records(&v, err);
    bool is_uneven = false;
    for (uint32_t i = 0; rc == ERR_OK && i < v.check_count; i++) {
        rc = scan_index(&v, &v.checks[i], err);
        is_uneven |= has_uneven_bucket(&v.checks[i]);
    }
    if (rc == ERR_OK && is_uneven) {
        v.is_second_pass = true;
        rc = scan_records(&v, err);
        for (uint32_t i = 0; rc == ERR_OK && i < v.check_count; i++)
            rc = scan_index(&v, &v.checks[i], err);
    }
    if (rc == ERR_OK)
        report(&v, is_locked, b);
    for (uint32_t i = 0; i < v.check_count; i++) {
        for (size_t s = 0; s < v.checks[i].suspect_count; s++)
            xfree(v.checks[i].suspects[s].key);
        xfree(v.checks[i].suspects);
        xfree(v.checks[i].buckets);
    }
    xfree(v.checks);
    return rc;
}

static ErrCode scan_records(Validation *v, Error *err) {
    OpCtx *op = v->access->op;
    CLEANUP(record_cursor_done) RecordCursor cursor = {0};
    TRY(record_cursor_open(op, v->access->coll->records, /* is_forward= */ true, &cursor, err));
    CLEANUP(key_set_done) KeySet keys;
    key_set_init(&keys);
    RecordId last = RECORD_ID_NONE;
    for (int64_t n = 0;; n++) {
        bool is_found;
        RecordId rid;
        Str data;
        TRY(record_cursor_next(&cursor, &is_found, &rid, &data, err));
        if (!is_found)
            return ERR_OK;
        if (n % 128 == 0) {
            TRY(op_check_interrupt_slow(op, err));
            op_set_progress(op, "Validate: scanning collection", n,
                            record_store_count(v->access->coll->records));
        }
        Doc doc = {(const uint8_t *)data.data};
        Error bad = {0};
        bool is_sound =
            doc_validate(doc.data, data.size, BSON_DEPTH_MAX, VALIDATE_BASIC, &bad) == ERR_OK;
        if (!v->is_second_pass) {
            v->records++;
            v->bytes += (int64_t)data.size;
            if (!is_sound) {
                v->invalid++;
                add_text(v, &v->corrupt, "record %lld: %s", (long long)rid.num,
                         error_message(&bad));
            } else if (v->options->is_conformance &&
                       doc_validate(doc.data, data.size, BSON_DEPTH_MAX,
                                    VALIDATE_UTF8 | VALIDATE_UNIQUE, &bad) != ERR_OK) {
                v->noncompliant++;
            }
            if (rid.str == NULL && last.num >= rid.num)
                add_text(v, &v->errors, "record ids are out of order at %lld", (long long)rid.num);
            last = rid.str == NULL ? rid : RECORD_ID_NONE;
        }
        error_reset(&bad);
        if (is_sound)
            check_keys(v, doc, rid, &keys);
    }
}

static void check_keys(Validation *v, Doc doc, RecordId rid, KeySet *keys) {
    for (uint32_t i = 0; i < v->check_count; i++) {
        IndexCheck *check = &v->checks[i];
        Error bad = {0};
        if (index_keys_of(check->index, doc, keys, &bad) != ERR_OK) {
            if (!v->is_second_pass)
                add_text(v, &check->errors, "keys of record %lld cannot be made: %s",
                         (long long)rid.num, error_message(&bad));
            error_reset(&bad);
            continue;
        }
        if (keys->is_multikey && !v->is_second_pass) {
            bool is_covered = index_is_multikey(check->index);
            for (uint32_t f = 0; f < check->index->field_count; f++)
                is_covered &=
                    (keys->multikey_paths[f] & ~index_multikey_paths(check->index, f)) == 0;
            check->is_multikey_missing |= !is_covered;
        }
        for (uint32_t k = 0; k < keys->count; k++) {
            check->expected += !v->is_second_pass;
            count_key(v, check, key_set_get(keys, k).key, rid, 1);
        }
    }
}

static ErrCode scan_index(Validation *v, IndexCheck *check, Error *err) {
    OpCtx *op = v->access->op;
    CLEANUP(index_cursor_done) IndexCursor cursor = {0};
    TRY(index_cursor_open(op, check->index->store, /* is_forward= */ true, &cursor, err));
    Buffer last;
    buffer_init(&last, SIZE_MAX / 2);
    RecordId last_rid = RECORD_ID_NONE;
    ErrCode rc = ERR_OK;
    for (int64_t n = 0; rc == ERR_OK; n++) {
        bool is_found;
        IndexEntry entry;
        if (n % 128 == 0)
            rc = op_check_interrupt_slow(op, err);
        if (rc == ERR_OK)
            rc = index_cursor_next(&cursor, &is_found, &entry, err);
        if (rc != ERR_OK || !is_found)
            break;
        count_key(v, check, entry.key, entry.rid, -1);
        if (v->is_second_pass)
            continue;
        check->entries++;
        size_t size = last.size < entry.key.size ? last.size : entry.key.size;
        int order = last.size == 0 ? -1 : memcmp(last.data, entry.key.data, size);
        if (order == 0)
            order = last.size < entry.key.size ? -1 : last.size > entry.key.size;
        if (order > 0)
            add_text(v, &check->errors, "index '%s' is not in strict ascending order",
                     check->index->name);
        if (order == 0 && check->index->is_unique && record_id_compare(last_rid, entry.rid) != 0)
            add_text(v, &check->errors, "unique index '%s' has duplicate keys", check->index->name);
        buffer_clear(&last);
        buffer_append(&last, entry.key.data, entry.key.size);
        last_rid = entry.rid.str == NULL ? entry.rid : RECORD_ID_NONE;
    }
    buffer_done(&last);
    return rc;
}

static void count_key(Validation *v, IndexCheck *check, Str key, RecordId rid, int delta) {
    uint64_t hash = hash_bytes(key.data, key.size);
    uint64_t rid_hash =
        rid.str != NULL ? hash_bytes(rid.str, rid.str_size) : hash_bytes(&rid.num, sizeof(rid.num));
    hash = hash * 0x9E3779B97F4A7C15u ^ rid_hash;
    int32_t *bucket = &check->buckets[hash >> 48];
    if (!v->is_second_pass) {
        *bucket += delta;
        return;
    }
    if (*bucket == 0)
        return;
    for (size_t i = 0; i < check->suspect_count; i++) {
        if (check->suspects[i].hash == hash) {
            check->suspects[i].balance += delta;
            return;
        }
    }
    ARRAY_RESERVE(check->suspects, check->suspect_count, check->suspect_capacity);
    check->suspects[check->suspect_count++] =
        (Suspect){hash, delta, xmemdup(key.data, key.size), (uint32_t)key.size,
                  rid.str == NULL ? rid : RECORD_ID_NONE};
}

static bool has_uneven_bucket(const IndexCheck *check) {
    for (size_t i = 0; i < BUCKET_COUNT; i++)
        if (check->buckets[i] != 0)
            return true;
    return false;
}

/* ---- report ---- */

static void add_text(Validation *v, TextList *list, const char *fmt, ...) {
    list->total++;
    if (list->count == DETAILS_MAX)
        return;
    va_list args;
    va_start(args, fmt);
    char *text;
    if (vasprintf(&text, fmt, args) >= 0) {
        list->rows[list->count++] = arena_strdup(v->arena, text);
        xfree(text);
    }
    va_end(args);
}

static void build_texts(DocBuilder *b, const char *name, const TextList *list) {
    size_t opened = build_open_array(b, name);
    for (uint32_t i = 0; i < list->count; i++) {
        char index[INDEX_NAME_SIZE];
        build_cstr(b, index_name(i, index).data, list->rows[i]);
    }
    build_close(b, opened);
}

static void build_suspects(Validation *v, DocBuilder *b, const char *name, bool is_missing) {
    size_t opened = build_open_array(b, name);
    uint32_t count = 0;
    for (uint32_t i = 0; i < v->check_count; i++) {
        IndexCheck *check = &v->checks[i];
        for (size_t s = 0; s < check->suspect_count && count < DETAILS_MAX; s++) {
            const Suspect *suspect = &check->suspects[s];
            if (suspect->balance == 0 || (suspect->balance > 0) != is_missing)
                continue;
            char index[INDEX_NAME_SIZE];
            size_t row = build_open_doc_str(b, index_name(count++, index));
            build_cstr(b, "indexName", check->index->name);
            build_i64(b, "recordId", suspect->rid.num);
            size_t shown = build_open_doc(b, "indexKey");
            IndexKey key = {{(const char *)suspect->key, suspect->key_size}, {NULL, 0}};
            build_key_values(b, check->index, key, /* has_paths= */ false);
            build_close(b, shown);
            build_close(b, row);
        }
    }
    build_close(b, opened);
}

static bool judge_index(Validation *v, IndexCheck *check) {
    int64_t missing = 0, extra = 0;
    for (size_t s = 0; s < check->suspect_count; s++) {
        missing += check->suspects[s].balance > 0;
        extra += check->suspects[s].balance < 0;
    }
    if (missing > 0)
        add_text(v, &check->errors, "index '%s' lacks %lld entries", check->index->name,
                 (long long)missing);
    if (extra > 0)
        add_text(v, &check->errors, "index '%s' has %lld entries too many", check->index->name,
                 (long long)extra);
    if (check->is_multikey_missing)
        add_text(v, &check->errors,
                 "index '%s' is not marked as multikey but has multikey documents",
                 check->index->name);
    if (check->index->is_id && check->entries != v->records - v->invalid)
        add_text(v, &check->errors, "_id index has %lld entries for %lld documents",
                 (long long)check->entries, (long long)v->records);
    return check->errors.total == 0;
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
            add_text(v, &v->errors, "%s", error_message(&err));
        else if (!is_checked)
            add_text(v, &v->warnings,
                     "table \"%s\" is in use, so its file could not be verified by the engine",
                     ident);
        error_reset(&err);
    }
}

static void report(Validation *v, bool is_locked, DocBuilder *b) {
    const Collection *coll = v->access->coll;
    if (v->options->is_full)
        verify_files(v);
    int64_t fast_count = record_store_count(coll->records);
    if (is_locked && fast_count != v->records) {
        if (v->options->is_fast_count_enforced)
            add_text(v, &v->errors, "fast count (%lld) does not match number of records (%lld)",
                     (long long)fast_count, (long long)v->records);
        record_store_set_counts(coll->records, v->records, v->bytes);
    }
    if (v->invalid > 0)
        add_text(v, &v->errors, "%lld documents are not valid BSON", (long long)v->invalid);
    if (v->noncompliant > 0)
        add_text(v, &v->warnings, "%lld documents do not conform to the BSON specification",
                 (long long)v->noncompliant);
    bool is_valid = v->errors.total == 0;
    build_str(b, "ns", ns_str(&coll->ns));
    build_uuid(b, "uuid", &coll->uuid);
    build_count(b, "nInvalidDocuments", v->invalid);
    build_count(b, "nNonCompliantDocuments", v->noncompliant);
    build_count(b, "nrecords", v->records);
    build_count(b, "nIndexes", coll->index_count);
    size_t per_index = build_open_doc(b, "keysPerIndex");
    for (uint32_t i = 0; i < v->check_count; i++)
        build_count(b, v->checks[i].index->name, v->checks[i].entries);
    build_close(b, per_index);
    size_t details = build_open_doc(b, "indexDetails");
    for (uint32_t i = 0; i < v->check_count; i++) {
        IndexCheck *check = &v->checks[i];
        bool is_index_valid = judge_index(v, check);
        is_valid &= is_index_valid;
        size_t row = build_open_doc(b, check->index->name);
        build_bool(b, "valid", is_index_valid);
        if (!is_index_valid)
            build_texts(b, "errors", &check->errors);
        build_doc(b, "spec", check->index->spec);
        build_close(b, row);
    }
    build_close(b, details);
    build_bool(b, "valid", is_valid);
    build_bool(b, "repaired", false);
    build_texts(b, "warnings", &v->warnings);
    build_texts(b, "errors", &v->errors);
    build_suspects(v, b, "extraIndexEntries", /* is_missing= */ false);
    build_suspects(v, b, "missingIndexEntries", /* is_missing= */ true);
    build_texts(b, "corruptRecords", &v->corrupt);
}
