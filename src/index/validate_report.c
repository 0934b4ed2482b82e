/* validate_report.c - what a validation found, judged and told. */
#include <stdarg.h>
#include <stdio.h>

#include "base/alloc.h"
#include "index/key_show.h"
#include "index/validate_internal.h"

void validate_add_text(Validation *v, TextList *list, const char *fmt, ...) {
    list->total++;
    if (list->count == VALIDATE_DETAILS_MAX)
        return;
    va_list args;
    va_start(args, fmt);
    char *text;
    if (vasprintf(&text, fmt, args) >= 0) {
        list->rows[list->count++] = arena_strdup(&v->arena, text);
        xfree(text);
    }
    va_end(args);
}

static void judge_index(Validation *v, IndexCheck *check, int64_t sound_records) {
    const IndexDesc *index = check->index;
    int64_t missing, extra;
    validate_count_suspects(check, &missing, &extra);
    if (missing > 0)
        validate_add_text(v, &check->errors, "index '%s' lacks %lld entries", index->name,
                          (long long)missing);
    if (extra > 0)
        validate_add_text(v, &check->errors, "index '%s' has %lld entries too many", index->name,
                          (long long)extra);
    if (check->is_multikey_missing)
        validate_add_text(v, &check->errors,
                          "index '%s' is not marked as multikey but has multikey documents",
                          index->name);
    if (v->is_repaired)
        return; /* the entries were counted before the repair */
    if (index->kind == INDEX_KIND_WILDCARD)
        return; /* a document has any number of entries */
    bool is_one_each = !index->is_sparse && index->partial_filter == NULL;
    if (index->is_id && check->entries != sound_records)
        validate_add_text(v, &check->errors, "_id index has %lld entries for %lld documents",
                          (long long)check->entries, (long long)sound_records);
    else if (!index_is_multikey(index) && check->entries > sound_records)
        validate_add_text(v, &check->errors, "index '%s' has more entries than there are documents",
                          index->name);
    else if (is_one_each && check->entries < sound_records)
        validate_add_text(v, &check->errors,
                          "index '%s' has fewer entries than there are documents", index->name);
}

void validate_judge(Validation *v, bool is_locked) {
    const Collection *coll = v->access->coll;
    int64_t records = v->records - v->removed_records - v->moved_records;
    int64_t fast_count = record_store_count(coll->records);
    if (is_locked && !v->options->is_metadata_only && fast_count != records) {
        if (v->options->is_fast_count_enforced)
            validate_add_text(v, &v->errors,
                              "fast count (%lld) does not match number of records (%lld)",
                              (long long)fast_count, (long long)records);
        record_store_set_counts(coll->records, records, v->bytes);
    }
    if (v->corrupt_count > v->removed_records)
        validate_add_text(v, &v->errors, "%u documents are not valid BSON", v->corrupt_count);
    if (v->removed_records > 0)
        validate_add_text(v, &v->warnings, "removed %lld records that were not valid BSON",
                          (long long)v->removed_records);
    if (v->noncompliant > 0)
        validate_add_text(v, &v->warnings,
                          "%lld documents do not conform to the BSON specification",
                          (long long)v->noncompliant);
    if (v->inserted_keys + v->removed_keys > 0)
        validate_add_text(v, &v->warnings,
                          "inserted %lld missing and removed %lld extra index entries",
                          (long long)v->inserted_keys, (long long)v->removed_keys);
    if (v->marked_multikey > 0)
        validate_add_text(v, &v->warnings, "marked %lld indexes as multikey",
                          (long long)v->marked_multikey);
    if (v->moved_records > 0)
        validate_add_text(v, &v->warnings,
                          "moved %lld documents with keys that others have to '%s'",
                          (long long)v->moved_records, v->lost->ns.text);
    if (v->is_cut_off)
        validate_add_text(v, &v->warnings,
                          "there are more bad index entries than memory to name them; run again "
                          "after mending these");
    if (v->options->is_metadata_only)
        return;
    for (uint32_t i = 0; i < v->check_count; i++)
        judge_index(v, &v->checks[i], v->records - v->corrupt_count);
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
        for (size_t s = 0; s < check->slot_count && count < VALIDATE_DETAILS_MAX; s++) {
            const Suspect *suspect = check->suspects[s];
            if (suspect == NULL || suspect->balance == 0 || (suspect->balance > 0) != is_missing)
                continue;
            char index[INDEX_NAME_SIZE];
            size_t row = build_open_doc_str(b, index_name(count++, index));
            build_cstr(b, "indexName", check->index->name);
            build_record_id(b, "recordId", suspect->rid);
            size_t shown = build_open_doc(b, "indexKey");
            build_key_values(b, check->index, suspect->key, /* has_paths= */ false);
            build_close(b, shown);
            build_close(b, row);
        }
    }
    build_close(b, opened);
}

void validate_report(Validation *v, DocBuilder *b) {
    const Collection *coll = v->access->coll;
    bool is_valid = v->errors.total == 0;
    build_str(b, "ns", ns_str(&coll->ns));
    build_uuid(b, "uuid", &coll->uuid);
    build_count(b, "nInvalidDocuments", v->corrupt_count);
    build_count(b, "nNonCompliantDocuments", v->noncompliant);
    build_count(b, "nrecords", v->records - v->removed_records - v->moved_records);
    build_count(b, "nIndexes", coll->index_count);
    size_t per_index = build_open_doc(b, "keysPerIndex");
    for (uint32_t i = 0; i < v->check_count; i++)
        build_count(b, v->checks[i].index->name, v->checks[i].entries);
    build_close(b, per_index);
    size_t details = build_open_doc(b, "indexDetails");
    for (uint32_t i = 0; i < v->check_count; i++) {
        IndexCheck *check = &v->checks[i];
        bool is_index_valid = check->errors.total == 0;
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
    build_bool(b, "repaired", v->is_repaired);
    if (v->options->is_repair) {
        build_count(b, "numRemovedCorruptRecords", v->removed_records);
        build_count(b, "numInsertedMissingIndexEntries", v->inserted_keys);
        build_count(b, "numRemovedExtraIndexEntries", v->removed_keys);
        build_count(b, "numDocumentsMovedToLostAndFound", v->moved_records);
        build_count(b, "numOutdatedMissingIndexEntry", v->outdated_keys);
    }
    build_texts(b, "warnings", &v->warnings);
    build_texts(b, "errors", &v->errors);
    build_suspects(v, b, "extraIndexEntries", /* is_missing= */ false);
    build_suspects(v, b, "missingIndexEntries", /* is_missing= */ true);
    size_t corrupt = build_open_array(b, "corruptRecords");
    for (uint32_t i = 0; i < v->corrupt_count && i < VALIDATE_DETAILS_MAX; i++) {
        char index[INDEX_NAME_SIZE];
        build_record_id(b, index_name(i, index).data, v->corrupt[i].rid);
    }
    build_close(b, corrupt);
}
