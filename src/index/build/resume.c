/*
 * resume.c - index builds across a restart (IDX-5).
 *
 *     stop:   files and tables complete | resume table written | final checkpoint
 *             | lock file emptied
 *     start:  resume tables read and dropped | builds recreated and in the catalog
 *             | the rest dropped
 *
 * Temporary tables are not journaled. After anything but a clean shutdown their content is that of
 * some checkpoint, older than the collection: so resume documents are valid only after a clean
 * shutdown, which the lock file shows. A crash at any step above is not one.
 *
 * A rollback does the same in one process: builds are saved before storage goes back, and
 * recreated after it. In both cases what is not stable is lost, or will be applied again, possibly
 * with other record ids: a build that has seen such data is not saved (stable.c).
 */
#include <string.h>

#include "base/alloc.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "bson/validate.h"
#include "index/build/build_internal.h"
#include "index/build/resume_doc.h"
#include "storage/engine.h"
#include "storage/recovery_unit.h"
#include "storage/unit_of_work.h"

/* ---- stop ---- */

static Str ident_of(const RecordStore *store) {
    return store != NULL ? str_from(record_store_ident(store)) : (Str){"", 0};
}

static ErrCode describe_item(IndexBuildItem *item, Arena *arena, ResumeIndex *out, Error *err) {
    const IndexDesc *index = item->index;
    *out = (ResumeIndex){
        .name = str_from(index->name),
        .ident = str_from(index->ident),
        .side_writes = ident_of(item->side_writes),
        .duplicates = ident_of(item->duplicates),
        .skipped = ident_of(item->skipped),
        .is_loaded = item->is_loaded,
        .drained_count = item->drained_count,
        .is_multikey = index_is_multikey(index),
        .field_count = index->field_count,
    };
    for (uint32_t f = 0; f < index->field_count; f++)
        out->multikey_paths[f] = index_multikey_paths(index, f);
    return item->sorter != NULL ? key_sorter_keep(item->sorter, arena, &out->sorter, err) : ERR_OK;
}

typedef struct WriteUnit {
    RecordStore *store;
    Str data;
} WriteUnit;

static ErrCode write_unit(void *arg, OpCtx *op, Error *err) {
    WriteUnit *unit = arg;
    return record_insert(op, unit->store, record_id_num(1), unit->data, err);
}

static void unref_store(RecordStore **store) {
    record_store_unref(*store);
}

static ErrCode write_resume_table(OpCtx *op, const Buffer *doc, Error *err) {
    CLEANUP(unref_store) RecordStore *store = NULL;
    TRY(build_temp_table(op, RESUME_TABLE_PREFIX, &store, err));
    WriteUnit unit = {store, {(const char *)doc->data, doc->size}};
    return op_write_with_retry(op, write_unit, &unit, err);
}

ErrCode index_build_save(IndexBuild *build, Error *err) {
    OpCtx *op = build->active.op;
    /* Refused if it has seen unstable data: those may come back with other record ids. */
    TRY(build_check_stable(build, err));
    TRY(build_flush_skipped(build, err));
    ResumeDoc doc = {
        .build_uuid = build->active.uuid,
        .coll_uuid = build->active.coll_uuid,
        .phase = build->phase,
        .has_position = build->has_position,
        .position = record_id_num(build->position_num),
        .scanned_count = build->scanned_count,
        .indexes = ARENA_ARRAY(&op->arena, ResumeIndex, build->count),
        .index_count = build->count,
    };
    if (build->is_clustered)
        doc.position = (RecordId){0, build->position_str.data, (uint32_t)build->position_str.size};
    for (uint32_t i = 0; i < build->count; i++)
        TRY(describe_item(&build->items[i], &op->arena, &doc.indexes[i], err));
    Buffer out;
    buffer_init_arena(&out, &op->arena, 1024, BSON_DOC_SIZE_MAX);
    TRY(resume_doc_build(&doc, &out, err));
    TRY(write_resume_table(op, &out, err));
    TRY(failpoint_check(FP_INDEX_BUILD_RESUME_INFO, err));
    /* Last: until the resume table is complete, a failure drops the temporary tables with the
     * build. */
    build->is_kept = true;
    Error none = {0};
    index_build_log(build, "Index build: wrote resumable state to disk", 4841502, &none);
    return ERR_OK;
}

/* ---- start: reading ---- */

static bool has_prefix(const char *ident, const char *prefix) {
    size_t size = strlen(prefix);
    return strncmp(ident, prefix, size) == 0 && ident[size] == '-';
}

/* Reads the document and removes it: if the table is in use and survives the next clean shutdown,
 * it must not be taken for a new one. */
static ErrCode take_unit(void *arg, OpCtx *op, Error *err) {
    WriteUnit *unit = arg;
    unit->data = (Str){NULL, 0};
    {
        CLEANUP(record_cursor_done) RecordCursor cursor = {0};
        TRY(record_cursor_open(op, unit->store, /* is_forward= */ true, &cursor, err));
        bool is_found;
        Str data;
        TRY(record_cursor_seek_exact(&cursor, record_id_num(1), &is_found, &data, err));
        if (is_found)
            unit->data = (Str){arena_memdup(&op->arena, data.data, data.size), data.size};
    }
    if (unit->data.data != NULL)
        TRY(record_delete(op, unit->store, record_id_num(1), unit->data.size, err));
    return ERR_OK;
}

static ErrCode take_document(OpCtx *op, const char *ident, ResumeDoc *ret_doc, Error *err) {
    CLEANUP(unref_store) RecordStore *store = NULL;
    TRY(record_store_open(op_storage(op), ident, /* is_clustered= */ false, &store, err));
    WriteUnit unit = {.store = store};
    TRY(op_write_with_retry(op, take_unit, &unit, err));
    if (unit.data.data == NULL)
        return error_set(err, ERR_DATA_CORRUPTION_DETECTED, "the table is empty");
    const uint8_t *bytes = (const uint8_t *)unit.data.data;
    TRY(doc_validate(bytes, unit.data.size, BSON_DEPTH_MAX, VALIDATE_BASIC, err));
    return resume_doc_parse((Doc){bytes}, &op->arena, ret_doc, err);
}

static bool is_unused(void *arg) {
    (void)arg;
    return true;
}
static void nothing(void *arg) {
    (void)arg;
}

static ErrCode drop_table(OpCtx *op, const char *ident, Error *err) {
    bool is_busy;
    TRY(storage_drop_table(op_storage(op), ident, &is_busy, err));
    if (is_busy)
        storage_drop_later(op_storage(op), ident, is_unused, nothing, NULL);
    return ERR_OK;
}

typedef struct Idents {
    char **rows;
    size_t count;
} Idents;

static void idents_done(Idents *idents) {
    for (size_t i = 0; i < idents->count; i++)
        xfree(idents->rows[i]);
    xfree(idents->rows);
}

ErrCode index_builds_read_resume(OpCtx *op, bool is_trusted, ResumeDoc ***ret_docs,
                                 uint32_t *ret_count, Error *err) {
    CLEANUP(idents_done) Idents tables = {0};
    TRY(storage_list_idents(op_storage(op), &tables.rows, &tables.count, err));
    ResumeDoc **docs = ARENA_ARRAY(&op->arena, ResumeDoc *, tables.count);
    uint32_t count = 0;
    for (size_t i = 0; i < tables.count; i++) {
        const char *ident = tables.rows[i];
        if (!has_prefix(ident, RESUME_TABLE_PREFIX))
            continue;
        if (is_trusted) {
            CLEANUP(error_reset) Error why = {0};
            docs[count] = ARENA_NEW(&op->arena, ResumeDoc);
            if (take_document(op, ident, docs[count], &why) == ERR_OK)
                count++;
            else
                LOG_WARN(LOG_INDEX, 7100305, "Index build: cannot read resume information",
                         LOG_STR("ident", ident), LOG_STR("error", error_message(&why)));
            ru_abandon_snapshot(op->ru);
        }
        /* Also if it could not be read: it must not be found by a later start. */
        TRY(drop_table(op, ident, err));
    }
    *ret_docs = docs;
    *ret_count = count;
    return ERR_OK;
}

/* ---- start: making the build again ---- */

static ErrCode unfit(const char *what, Str name, Error *err) {
    return error_set(err, ERR_DATA_CORRUPTION_DETECTED, "%s of index \"%.*s\" is not as it was",
                     what, (int)name.size, name.data);
}

/* The index in the catalog, if it belongs to this build. */
static ErrCode find_index(const IndexBuild *build, const Collection *coll, const ResumeIndex *row,
                          const IndexDesc **ret_index, Error *err) {
    const IndexDesc *index = collection_find_index(coll, row->name);
    if (index == NULL || index->is_ready || !index->has_build_uuid ||
        !uuid_equal(&index->build_uuid, &build->active.uuid) || !str_is(row->ident, index->ident) ||
        index->field_count != row->field_count)
        return unfit("the catalog entry", row->name, err);
    if (row->is_loaded && index->store == NULL)
        return unfit("the table", row->name, err);
    if (index->is_unique != (row->duplicates.size > 0))
        return unfit("the uniqueness", row->name, err);
    *ret_index = index;
    return ERR_OK;
}

/* A loaded index keeps its table; a bulk load needs a new one. */
static ErrCode make_index(IndexBuild *build, const IndexDesc *old, const ResumeIndex *row,
                          IndexDesc **ret_index, Error *err) {
    StorageEngine *engine = op_storage(build->active.op);
    IndexDesc *index;
    if (row->is_loaded)
        TRY(index_desc_new(engine, old->spec, old->ident, build->is_clustered,
                           /* is_ready= */ false, NULL, &index, err));
    else
        TRY(index_desc_create(engine, &build->ns, old->spec, build->is_clustered,
                              /* is_ready= */ false, &index, err));
    /* Both descriptors reference one table object, so that its drop waits for both. */
    if (row->is_loaded) {
        ordered_index_unref(index->store);
        index->store = ordered_index_ref(old->store);
    }
    atomic_store(&index->state->is_multikey, row->is_multikey);
    for (uint32_t f = 0; f < row->field_count; f++)
        atomic_store(&index->state->multikey_paths[f], row->multikey_paths[f]);
    *ret_index = index;
    return ERR_OK;
}

static ErrCode open_temp(IndexBuild *build, Str ident, RecordStore **ret_store, Error *err) {
    if (ident.size == 0)
        return ERR_OK;
    if (!has_prefix(ident.data, TEMP_TABLE_PREFIX))
        return error_set(err, ERR_DATA_CORRUPTION_DETECTED, "\"%s\" is no temporary table",
                         ident.data);
    return record_store_open(op_storage(build->active.op), ident.data, /* is_clustered= */ false,
                             ret_store, err);
}

static ErrCode resume_item(IndexBuild *build, const Collection *coll, const ResumeDoc *doc,
                           const ResumeIndex *row, Error *err) {
    OpCtx *op = build->active.op;
    const IndexDesc *old = NULL;
    TRY(find_index(build, coll, row, &old, err));
    IndexDesc *index;
    TRY(make_index(build, old, row, &index, err));
    IndexBuildItem *item = build_add_item(build, index);
    item->is_loaded = row->is_loaded;
    item->drained_count = row->drained_count;
    /* Keys with sort keys of another ICU version, in the sorter or in the table, are unusable. */
    if (index->sort_key_version != NULL &&
        strcmp(index->sort_key_version, old->sort_key_version) != 0)
        return unfit("the collation", row->name, err);
    TRY(open_temp(build, row->side_writes, &item->side_writes, err));
    index->side_writes = record_store_ref(item->side_writes);
    TRY(open_temp(build, row->duplicates, &item->duplicates, err));
    TRY(open_temp(build, row->skipped, &item->skipped, err));
    if (build->phase == INDEX_BUILD_INITIALIZED || row->is_loaded)
        return ERR_OK;
    return key_sorter_open(build_sorter_dir(op), index->ident,
                           build_sorter_bytes(op, doc->index_count), &row->sorter, &item->sorter,
                           err);
}

static uint32_t count_indexes(const Collection *coll, const Uuid *build_uuid) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < coll->index_count; i++) {
        const IndexDesc *index = coll->indexes[i];
        count +=
            !index->is_ready && index->has_build_uuid && uuid_equal(&index->build_uuid, build_uuid);
    }
    return count;
}

ErrCode index_build_resume(OpCtx *op, const Collection *coll, const ResumeDoc *doc,
                           IndexBuild **ret_build, Error *err) {
    if (!uuid_equal(&coll->uuid, &doc->coll_uuid) ||
        count_indexes(coll, &doc->build_uuid) != doc->index_count)
        return error_set(err, ERR_DATA_CORRUPTION_DETECTED,
                         "the collection is another one or has other indexes");
    if (doc->has_position && (doc->position.str != NULL) != coll->options.is_clustered)
        return error_set(err, ERR_DATA_CORRUPTION_DETECTED,
                         "the position in the collection is of another kind");
    IndexBuild *build = index_build_new(op, coll, &doc->build_uuid);
    build->phase = doc->phase;
    build->has_position = doc->has_position;
    build->position_num = doc->position.num;
    if (doc->position.str != NULL)
        buffer_append(&build->position_str, doc->position.str, doc->position.str_size);
    build->scanned_count = doc->scanned_count;
    ErrCode rc = ERR_OK;
    for (uint32_t i = 0; rc == ERR_OK && i < doc->index_count; i++)
        rc = resume_item(build, coll, doc, &doc->indexes[i], err);
    if (rc != ERR_OK) {
        index_build_discard_tables(build);
        index_build_free(build);
        return rc;
    }
    *ret_build = build;
    return ERR_OK;
}

static bool is_of_other(void *arg, const char *name) {
    const ResumeDoc *doc = arg;
    for (uint32_t i = 0; i < doc->index_count; i++) {
        const KeySorterMark *sorter = &doc->indexes[i].sorter;
        for (uint32_t r = 0; r < sorter->run_count; r++)
            if (strcmp(sorter->runs[r].name, name) == 0)
                return false;
    }
    return true;
}

ErrCode index_build_discard_saved(OpCtx *op, const ResumeDoc *doc, Error *err) {
    for (uint32_t i = 0; i < doc->index_count; i++) {
        const ResumeIndex *row = &doc->indexes[i];
        const Str idents[] = {row->side_writes, row->duplicates, row->skipped};
        for (size_t t = 0; t < ARRAY_LEN(idents); t++)
            if (idents[t].size > 0)
                TRY(drop_table(op, idents[t].data, err));
    }
    run_files_sweep(build_sorter_dir(op), is_of_other, (void *)doc);
    return ERR_OK;
}

/* ---- start: the rest ---- */

typedef struct Survivors {
    IndexBuild *const *builds;
    uint32_t count;
} Survivors;

static bool is_run_wanted(void *arg, const char *name) {
    const Survivors *survivors = arg;
    for (uint32_t b = 0; b < survivors->count; b++) {
        const IndexBuild *build = survivors->builds[b];
        for (uint32_t i = 0; i < build->count; i++)
            if (build->items[i].sorter != NULL && key_sorter_owns(build->items[i].sorter, name))
                return true;
    }
    return false;
}

static bool is_ident(const RecordStore *store, const char *ident) {
    return store != NULL && strcmp(record_store_ident(store), ident) == 0;
}

static bool is_table_wanted(const Survivors *survivors, const char *ident) {
    for (uint32_t b = 0; b < survivors->count; b++) {
        const IndexBuild *build = survivors->builds[b];
        for (uint32_t i = 0; i < build->count; i++) {
            const IndexBuildItem *item = &build->items[i];
            if (is_ident(item->side_writes, ident) || is_ident(item->duplicates, ident) ||
                is_ident(item->skipped, ident))
                return true;
        }
    }
    return false;
}

ErrCode index_builds_sweep(OpCtx *op, IndexBuild *const *builds, uint32_t count, Error *err) {
    Survivors survivors = {builds, count};
    run_files_sweep(build_sorter_dir(op), is_run_wanted, &survivors);
    CLEANUP(idents_done) Idents tables = {0};
    TRY(storage_list_idents(op_storage(op), &tables.rows, &tables.count, err));
    for (size_t i = 0; i < tables.count; i++)
        if (has_prefix(tables.rows[i], TEMP_TABLE_PREFIX) &&
            !is_table_wanted(&survivors, tables.rows[i]))
            TRY(drop_table(op, tables.rows[i], err));
    return ERR_OK;
}
