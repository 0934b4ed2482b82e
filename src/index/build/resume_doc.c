#include "index/build/resume_doc.h"

#include <string.h>

enum {
    RESUME_VERSION = 1,
};

static void build_index(DocBuilder *b, const ResumeIndex *index);
static ErrCode parse_position(Doc doc, ResumeDoc *out, Error *err);
static ErrCode parse_index(Doc row, Arena *arena, ResumeIndex *out, Error *err);
static ErrCode parse_runs(Elem runs, Arena *arena, KeySorterMark *out, Error *err);

const Uuid *resume_doc_build_uuid(const ResumeDoc *doc) {
    return &doc->build_uuid;
}

/* ---- building ---- */

ErrCode resume_doc_build(const ResumeDoc *doc, Buffer *out, Error *err) {
    DocBuilder b;
    doc_builder_init(&b, out);
    build_i32(&b, "version", RESUME_VERSION);
    build_uuid(&b, "buildUUID", &doc->build_uuid);
    build_uuid(&b, "collectionUUID", &doc->coll_uuid);
    build_cstr(&b, "phase", index_build_phase_name(doc->phase));
    if (doc->has_position && doc->position.str != NULL)
        build_binary(&b, "position", 0, doc->position.str, doc->position.str_size);
    else if (doc->has_position)
        build_i64(&b, "position", doc->position.num);
    build_i64(&b, "scanned", doc->scanned_count);
    size_t indexes = build_open_array(&b, "indexes");
    for (uint32_t i = 0; i < doc->index_count; i++) {
        char name[INDEX_NAME_SIZE];
        size_t row = build_open_doc_str(&b, index_name(i, name));
        build_index(&b, &doc->indexes[i]);
        build_close(&b, row);
    }
    build_close(&b, indexes);
    Doc built;
    return doc_builder_finish(&b, "the resume information of an index build", &built, err);
}

static void build_index(DocBuilder *b, const ResumeIndex *index) {
    char name[INDEX_NAME_SIZE];
    build_str(b, "name", index->name);
    build_str(b, "ident", index->ident);
    build_str(b, "sideWrites", index->side_writes);
    if (index->duplicates.size > 0)
        build_str(b, "duplicates", index->duplicates);
    if (index->skipped.size > 0)
        build_str(b, "skipped", index->skipped);
    build_bool(b, "loaded", index->is_loaded);
    build_i64(b, "drained", index->drained_count);
    build_bool(b, "multikey", index->is_multikey);
    size_t paths = build_open_array(b, "multikeyPaths");
    for (uint32_t f = 0; f < index->field_count; f++) {
        build_i64(b, index_name(f, name).data, index->multikey_paths[f]);
    }
    build_close(b, paths);
    build_i64(b, "keys", (int64_t)index->sorter.count);
    size_t runs = build_open_array(b, "runs");
    for (uint32_t r = 0; r < index->sorter.run_count; r++) {
        const RunFileMark *run = &index->sorter.runs[r];
        size_t row = build_open_doc_str(b, index_name(r, name));
        build_cstr(b, "file", run->name);
        build_i64(b, "size", run->size);
        build_i64(b, "checksum", run->checksum);
        build_close(b, row);
    }
    build_close(b, runs);
}

/* ---- parsing ---- */

static ErrCode damaged(const char *field, Error *err) {
    return error_set(err, ERR_DATA_CORRUPTION_DETECTED,
                     "the resume information of an index build has no sound \"%s\"", field);
}

static ErrCode get_number(Doc doc, const char *field, int64_t most, int64_t *ret_value,
                          Error *err) {
    Elem elem = doc_get(doc, str_from(field));
    if (elem_type(elem) != BT_INT64 || elem_i64(elem) < 0 || elem_i64(elem) > most)
        return damaged(field, err);
    *ret_value = elem_i64(elem);
    return ERR_OK;
}

static ErrCode get_text(Doc doc, const char *field, bool is_optional, Str *ret_text, Error *err) {
    Elem elem = doc_get(doc, str_from(field));
    *ret_text = (Str){"", 0};
    if (!elem_is_present(elem) && is_optional)
        return ERR_OK;
    if (elem_type(elem) != BT_STRING || elem_str(elem).size == 0 ||
        strlen(elem_str(elem).data) != elem_str(elem).size)
        return damaged(field, err);
    *ret_text = elem_str(elem);
    return ERR_OK;
}

static ErrCode get_bool(Doc doc, const char *field, bool *ret_value, Error *err) {
    Elem elem = doc_get(doc, str_from(field));
    if (elem_type(elem) != BT_BOOL)
        return damaged(field, err);
    *ret_value = elem_bool(elem);
    return ERR_OK;
}

static ErrCode get_phase(Doc doc, IndexBuildPhase *ret_phase, Error *err) {
    Str text;
    TRY(get_text(doc, "phase", /* is_optional= */ false, &text, err));
    for (int phase = INDEX_BUILD_INITIALIZED; phase <= INDEX_BUILD_DRAIN; phase++) {
        if (str_is(text, index_build_phase_name((IndexBuildPhase)phase))) {
            *ret_phase = (IndexBuildPhase)phase;
            return ERR_OK;
        }
    }
    return damaged("phase", err);
}

ErrCode resume_doc_parse(Doc doc, Arena *arena, ResumeDoc *ret_doc, Error *err) {
    ResumeDoc out = {0};
    Elem version = doc_get_lit(doc, "version");
    if (elem_type(version) != BT_INT32 || elem_i32(version) != RESUME_VERSION)
        return damaged("version", err);
    if (!uuid_from_elem(doc_get_lit(doc, "buildUUID"), &out.build_uuid))
        return damaged("buildUUID", err);
    if (!uuid_from_elem(doc_get_lit(doc, "collectionUUID"), &out.coll_uuid))
        return damaged("collectionUUID", err);
    TRY(get_phase(doc, &out.phase, err));
    TRY(parse_position(doc, &out, err));
    TRY(get_number(doc, "scanned", INT64_MAX, &out.scanned_count, err));
    Elem indexes = doc_get_lit(doc, "indexes");
    if (elem_type(indexes) != BT_ARRAY)
        return damaged("indexes", err);
    uint32_t count = doc_count(elem_doc(indexes));
    if (count == 0 || count > COLLECTION_INDEXES_MAX)
        return damaged("indexes", err);
    out.indexes = ARENA_ARRAY(arena, ResumeIndex, count);
    DocIter iter = doc_iter(elem_doc(indexes));
    Elem row;
    while (doc_iter_next(&iter, &row)) {
        if (elem_type(row) != BT_DOC)
            return damaged("indexes", err);
        ResumeIndex *index = &out.indexes[out.index_count++];
        TRY(parse_index(elem_doc(row), arena, index, err));
        /* Keys are in the sorter or in the table; after the load in the table. */
        bool is_sound =
            index->is_loaded ? out.phase >= INDEX_BUILD_LOAD : out.phase != INDEX_BUILD_DRAIN;
        if (!is_sound || (index->is_loaded && index->sorter.run_count > 0))
            return damaged("loaded", err);
    }
    *ret_doc = out;
    return ERR_OK;
}

static ErrCode parse_position(Doc doc, ResumeDoc *out, Error *err) {
    Elem position = doc_get_lit(doc, "position");
    out->has_position = elem_is_present(position);
    if (!out->has_position)
        return ERR_OK;
    if (elem_type(position) == BT_INT64) {
        out->position = record_id_num(elem_i64(position));
        return ERR_OK;
    }
    if (elem_type(position) != BT_BINARY)
        return damaged("position", err);
    uint8_t subtype;
    Str bytes = elem_binary(position, &subtype);
    if (bytes.size == 0 || bytes.size > RECORD_ID_STR_SIZE_MAX)
        return damaged("position", err);
    out->position = (RecordId){0, (const uint8_t *)bytes.data, (uint32_t)bytes.size};
    return ERR_OK;
}

static ErrCode parse_index(Doc row, Arena *arena, ResumeIndex *out, Error *err) {
    TRY(get_text(row, "name", /* is_optional= */ false, &out->name, err));
    TRY(get_text(row, "ident", /* is_optional= */ false, &out->ident, err));
    TRY(get_text(row, "sideWrites", /* is_optional= */ false, &out->side_writes, err));
    TRY(get_text(row, "duplicates", /* is_optional= */ true, &out->duplicates, err));
    TRY(get_text(row, "skipped", /* is_optional= */ true, &out->skipped, err));
    TRY(get_bool(row, "loaded", &out->is_loaded, err));
    TRY(get_number(row, "drained", INT64_MAX, &out->drained_count, err));
    TRY(get_bool(row, "multikey", &out->is_multikey, err));
    Elem paths = doc_get_lit(row, "multikeyPaths");
    if (elem_type(paths) != BT_ARRAY || doc_count(elem_doc(paths)) > INDEX_FIELDS_MAX)
        return damaged("multikeyPaths", err);
    DocIter iter = doc_iter(elem_doc(paths));
    Elem elem;
    while (doc_iter_next(&iter, &elem)) {
        if (elem_type(elem) != BT_INT64 || elem_i64(elem) < 0 || elem_i64(elem) > UINT32_MAX)
            return damaged("multikeyPaths", err);
        out->multikey_paths[out->field_count++] = (uint32_t)elem_i64(elem);
    }
    int64_t keys;
    TRY(get_number(row, "keys", INT64_MAX, &keys, err));
    out->sorter.count = (uint64_t)keys;
    return parse_runs(doc_get_lit(row, "runs"), arena, &out->sorter, err);
}

static ErrCode parse_runs(Elem runs, Arena *arena, KeySorterMark *out, Error *err) {
    if (elem_type(runs) != BT_ARRAY || doc_count(elem_doc(runs)) > KEY_SORTER_RUNS_MAX)
        return damaged("runs", err);
    out->runs = ARENA_ARRAY(arena, RunFileMark, doc_count(elem_doc(runs)));
    DocIter iter = doc_iter(elem_doc(runs));
    Elem row;
    while (doc_iter_next(&iter, &row)) {
        if (elem_type(row) != BT_DOC)
            return damaged("runs", err);
        RunFileMark *run = &out->runs[out->run_count++];
        Str file;
        int64_t checksum;
        TRY(get_text(elem_doc(row), "file", /* is_optional= */ false, &file, err));
        /* A name, not a path: nothing outside of the directory is ever opened or removed. */
        if (file.size >= sizeof(run->name) || str_has_char(file, '/') || file.data[0] == '.')
            return damaged("file", err);
        memcpy(run->name, file.data, file.size);
        run->name[file.size] = '\0';
        TRY(get_number(elem_doc(row), "size", INT64_MAX, &run->size, err));
        TRY(get_number(elem_doc(row), "checksum", UINT32_MAX, &checksum, err));
        run->checksum = (uint32_t)checksum;
    }
    return ERR_OK;
}
