/* stage_index.c - IXSCAN with its FETCH, and the look-up of one _id. */
#include <string.h>

#include "index/key_gen.h"
#include "query/exec/executor.h"
#include "query/exec/rid_set.h"

typedef struct IndexStage {
    PlanStage base;
    IndexDesc *index;
    RecordStore *records;
    IndexBounds bounds;
    const MatchExpr *filter;
    bool is_forward;
    bool was_multikey; /* when the plan was made */
    IndexCursor cursor;
    RecordCursor fetch;
    bool is_open;
    bool is_in_range;
    uint32_t range; /* number of ranges begun */
    RidSet seen;
    int64_t docs_examined;
} IndexStage;

static ErrCode next_entry(IndexStage *scan, bool *ret_found, IndexEntry *ret_entry, Error *err);
static ErrCode fetch_matching(IndexStage *scan, RecordId rid, bool *ret_found, PlanRow *ret_row,
                              Error *err);

static int compare_bytes(Str a, Str b) {
    size_t size = a.size < b.size ? a.size : b.size;
    int rc = memcmp(a.data, b.data, size);
    return rc != 0 ? rc : a.size < b.size ? -1 : a.size > b.size;
}

static ErrCode index_next(PlanStage *stage, bool *ret_found, PlanRow *ret_row, Error *err) {
    IndexStage *scan = (IndexStage *)stage;
    *ret_found = false;
    if (UNLIKELY(!scan->is_open)) {
        OpCtx *op = stage->exec->access->op;
        TRY(index_cursor_open(op, scan->index->store, scan->is_forward, &scan->cursor, err));
        scan->is_open = true;
        TRY(record_cursor_open(op, scan->records, /* is_forward= */ true, &scan->fetch, err));
    }
    for (;;) {
        TRY(executor_tick(stage->exec, err));
        bool is_found;
        IndexEntry entry;
        TRY(next_entry(scan, &is_found, &entry, err));
        if (!is_found)
            return ERR_OK;
        stage->examined++;
        if (scan->was_multikey && !rid_set_add(&scan->seen, entry.rid))
            continue;
        TRY(fetch_matching(scan, entry.rid, ret_found, ret_row, err));
        if (*ret_found)
            return ERR_OK;
    }
}

/* The next entry inside the bounds. */
static ErrCode next_entry(IndexStage *scan, bool *ret_found, IndexEntry *ret_entry, Error *err) {
    const IndexBounds *bounds = &scan->bounds;
    for (;;) {
        if (!scan->is_in_range) {
            *ret_found = false;
            if (scan->range == bounds->range_count)
                return ERR_OK;
            uint32_t at = scan->is_forward ? scan->range : bounds->range_count - 1 - scan->range;
            scan->range++;
            TRY(index_cursor_seek(
                &scan->cursor, scan->is_forward ? bounds->ranges[at].start : bounds->ranges[at].end,
                err));
            scan->is_in_range = true;
        }
        TRY(index_cursor_next(&scan->cursor, ret_found, ret_entry, err));
        uint32_t at = scan->is_forward ? scan->range - 1 : bounds->range_count - scan->range;
        const KeyRange *range = &bounds->ranges[at];
        if (*ret_found && (scan->is_forward ? compare_bytes(ret_entry->key, range->end) < 0
                                            : compare_bytes(ret_entry->key, range->start) > 0))
            return ERR_OK;
        scan->is_in_range = false; /* past this range's end: on to the next */
    }
}

static ErrCode fetch_matching(IndexStage *scan, RecordId rid, bool *ret_found, PlanRow *ret_row,
                              Error *err) {
    Str data;
    TRY(record_cursor_seek_exact(&scan->fetch, rid, ret_found, &data, err));
    if (!*ret_found)
        return ERR_OK;
    scan->docs_examined++;
    Doc doc = {(const uint8_t *)data.data};
    if (scan->filter != NULL) {
        MatchDetails details = MATCH_DETAILS_NONE;
        details.err = err;
        *ret_found = match_doc(scan->filter, doc, &details);
        if (!*ret_found)
            return details.rc;
    }
    *ret_row = (PlanRow){rid, doc};
    return ERR_OK;
}

static void index_save(PlanStage *stage) {
    IndexStage *scan = (IndexStage *)stage;
    if (!scan->is_open)
        return;
    index_cursor_save(&scan->cursor);
    record_cursor_save(&scan->fetch);
}

static ErrCode index_restore(PlanStage *stage, Error *err) {
    IndexStage *scan = (IndexStage *)stage;
    const Collection *coll = stage->exec->access->coll;
    const IndexDesc *present = collection_find_index(coll, str_from(scan->index->name));
    if (present == NULL || present->store != scan->index->store)
        return error_set(err, ERR_QUERY_PLAN_KILLED, "query plan killed :: index '%s' dropped",
                         scan->index->name);
    if (index_is_multikey(scan->index) != scan->was_multikey)
        return error_set(err, ERR_QUERY_PLAN_KILLED,
                         "query plan killed :: index '%s' became multikey; run the query again",
                         scan->index->name);
    if (!scan->is_open)
        return ERR_OK;
    OpCtx *op = stage->exec->access->op;
    TRY(index_cursor_restore(&scan->cursor, op, err));
    bool is_kept;
    return record_cursor_restore(&scan->fetch, op, &is_kept, err);
}

static void index_free(PlanStage *stage) {
    IndexStage *scan = (IndexStage *)stage;
    if (scan->is_open) {
        index_cursor_done(&scan->cursor);
        record_cursor_done(&scan->fetch);
    }
    rid_set_done(&scan->seen);
    record_store_unref(scan->records);
    index_desc_unref(scan->index);
}

/* Shown as the two stages that it is. */
static void index_explain(PlanStage *stage, DocBuilder *b, bool has_stats) {
    IndexStage *scan = (IndexStage *)stage;
    if (scan->filter != NULL) {
        size_t filter = build_open_doc(b, "filter");
        match_to_bson(scan->filter, b);
        build_close(b, filter);
    }
    if (has_stats)
        build_count(b, "docsExamined", scan->docs_examined);
    size_t input = build_open_doc(b, "inputStage");
    build_cstr(b, "stage", "IXSCAN");
    if (has_stats) {
        build_count(b, "nReturned", stage->examined);
        build_count(b, "keysExamined", stage->examined);
    }
    build_doc(b, "keyPattern", scan->index->key_pattern);
    build_cstr(b, "indexName", scan->index->name);
    build_bool(b, "isMultiKey", scan->was_multikey);
    size_t paths = build_open_doc(b, "multiKeyPaths");
    for (uint32_t f = 0; f < scan->index->field_count; f++) {
        const IndexField *field = &scan->index->fields[f];
        size_t rows = build_open_array(b, field->path);
        uint32_t bits = index_multikey_paths(scan->index, f), count = 0;
        for (uint32_t p = 0; p < field->part_count && p < INDEX_PATH_PARTS_MAX; p++) {
            if ((bits >> p & 1) == 0)
                continue;
            const Str last = field->parts[p];
            char name[INDEX_NAME_SIZE];
            build_str(b, index_name(count++, name).data,
                      (Str){field->path, (size_t)(last.data + last.size - field->path)});
        }
        build_close(b, rows);
    }
    build_close(b, paths);
    build_bool(b, "isUnique", scan->index->is_unique);
    build_bool(b, "isSparse", scan->index->is_sparse);
    build_bool(b, "isPartial", scan->index->partial_filter != NULL);
    build_i32(b, "indexVersion", 2);
    build_cstr(b, "direction", scan->is_forward ? "forward" : "backward");
    size_t bounds = build_open_doc(b, "indexBounds");
    bounds_to_bson(&scan->bounds, scan->index, scan->is_forward, &stage->exec->arena, b);
    build_close(b, bounds);
    build_close(b, input);
}

static void index_count(const PlanStage *stage, int64_t *keys, int64_t *docs) {
    *keys += stage->examined;
    *docs += ((const IndexStage *)stage)->docs_examined;
}

static const PlanStageOps INDEX_OPS = {"FETCH",    index_next,    index_save, index_restore,
                                       index_free, index_explain, index_count};

PlanStage *stage_index_scan(PlanExecutor *exec, const Collection *coll, IndexDesc *index,
                            const IndexBounds *bounds, bool is_forward, const MatchExpr *filter) {
    IndexStage *scan = ARENA_NEW(&exec->arena, IndexStage);
    scan->base = (PlanStage){.ops = &INDEX_OPS, .exec = exec};
    scan->index = index_desc_ref(index);
    scan->records = record_store_ref(coll->records);
    scan->bounds = *bounds;
    scan->filter = filter;
    scan->is_forward = is_forward;
    scan->was_multikey = index_is_multikey(index);
    atomic_fetch_add_explicit(&index->state->access_count, 1, memory_order_relaxed);
    return &scan->base;
}

/* ---- one _id ---- */

typedef struct IdStage {
    PlanStage base;
    IndexDesc *index; /* NULL: clustered */
    RecordStore *records;
    const MatchExpr *filter;
    Elem id;
    const Collator *collator; /* of a clustered collection's record ids */
    bool is_done;
    RecordCursor cursor;
    KeyBuilder key;
} IdStage;

static ErrCode id_next(PlanStage *stage, bool *ret_found, PlanRow *ret_row, Error *err) {
    IdStage *lookup = (IdStage *)stage;
    *ret_found = false;
    if (lookup->is_done)
        return ERR_OK;
    lookup->is_done = true;
    OpCtx *op = stage->exec->access->op;
    RecordId rid;
    bool is_found = true;
    key_builder_init(&lookup->key);
    if (lookup->index != NULL) {
        key_builder_reset(&lookup->key, 0);
        key_append_elem(&lookup->key, lookup->id, lookup->index->collator);
        key_append_end(&lookup->key, KEY_END_EXACT);
        Str key = {(const char *)lookup->key.key.data, lookup->key.key.size};
        TRY(ordered_index_find(op, lookup->index->store, key, &is_found, &rid, NULL, err));
        stage->examined += is_found;
    } else {
        clustered_record_id_of_value(lookup->id, lookup->collator, &lookup->key, &rid);
    }
    if (!is_found)
        return ERR_OK;
    TRY(record_cursor_open(op, lookup->records, /* is_forward= */ true, &lookup->cursor, err));
    Str data;
    TRY(record_cursor_seek_exact(&lookup->cursor, rid, &is_found, &data, err));
    if (!is_found)
        return ERR_OK;
    Doc doc = {(const uint8_t *)data.data};
    if (lookup->filter != NULL) {
        MatchDetails details = MATCH_DETAILS_NONE;
        details.err = err;
        if (!match_doc(lookup->filter, doc, &details))
            return details.rc;
    }
    *ret_row = (PlanRow){rid, doc};
    *ret_found = true;
    return ERR_OK;
}

static void id_save(PlanStage *stage) {
    record_cursor_save(&((IdStage *)stage)->cursor);
}

static void id_free(PlanStage *stage) {
    IdStage *lookup = (IdStage *)stage;
    record_cursor_done(&lookup->cursor);
    key_builder_done(&lookup->key);
    record_store_unref(lookup->records);
    index_desc_unref(lookup->index);
}

static void id_explain(PlanStage *stage, DocBuilder *b, bool has_stats) {
    if (!has_stats)
        return;
    build_count(b, "keysExamined", stage->examined);
    build_count(b, "docsExamined", stage->returned);
}

static void id_count(const PlanStage *stage, int64_t *keys, int64_t *docs) {
    *keys += stage->examined;
    *docs += stage->returned;
}

static const PlanStageOps ID_OPS = {"IDHACK", id_next,    id_save, NULL,
                                    id_free,  id_explain, id_count};

PlanStage *stage_id_lookup(PlanExecutor *exec, const Collection *coll, Elem id,
                           const MatchExpr *filter) {
    IdStage *lookup = ARENA_NEW(&exec->arena, IdStage);
    lookup->base = (PlanStage){.ops = &ID_OPS, .exec = exec};
    const IndexDesc *index = collection_id_index(coll);
    lookup->index = index != NULL ? index_desc_ref((IndexDesc *)index) : NULL;
    lookup->records = record_store_ref(coll->records);
    lookup->id = id;
    lookup->collator = coll->options.collator;
    lookup->filter = filter;
    return &lookup->base;
}

/* ---- no collection, no rows ---- */

static ErrCode nothing_next(PlanStage *stage, bool *ret_found, PlanRow *ret_row, Error *err) {
    (void)stage, (void)ret_row, (void)err;
    *ret_found = false;
    return ERR_OK;
}

static const PlanStageOps NOTHING_OPS = {"EOF", nothing_next, NULL, NULL, NULL, NULL, NULL};

PlanStage *stage_nothing(PlanExecutor *exec) {
    PlanStage *stage = ARENA_NEW(&exec->arena, PlanStage);
    *stage = (PlanStage){.ops = &NOTHING_OPS, .exec = exec};
    return stage;
}
