/* stage_shape.c - SORT, SKIP, LIMIT and PROJECTION: stages that shape what the scans find. */
#include "query/exec/executor.h"
#include "query/exec/file_spill.h"
#include "query/sort/sorter.h"

/* ---- sort ---- */

typedef struct SortStage {
    PlanStage base;
    const SortPattern *pattern;
    int64_t limit;
    size_t memory_bytes;
    FileSpill *spill; /* NULL: not allowed */
    Sorter *sorter;
    bool is_filled;
    bool keeps_record_ids; /* as the last field of what is sorted */
    Buffer out;
} SortStage;

static ErrCode append_record_id(Buffer *out, Doc doc, RecordId rid, Doc *ret_doc, Error *err) {
    buffer_clear(out);
    DocBuilder b;
    doc_builder_init(&b, out);
    build_all(&b, doc);
    if (rid.str != NULL)
        build_binary(&b, "$recordId", 0, rid.str, rid.str_size);
    else
        build_i64(&b, "$recordId", rid.num);
    return doc_builder_finish(&b, "the document with its record id", ret_doc, err);
}

/* Takes it off again. */
static ErrCode take_record_id(SortStage *sort, PlanRow *row, Error *err) {
    Elem last = ELEM_MISSING;
    DocIter iter = doc_iter(row->doc);
    for (Elem elem; doc_iter_next(&iter, &elem);)
        last = elem;
    if (elem_type(last) == BT_BINARY) {
        uint8_t subtype;
        Str bytes = elem_binary(last, &subtype);
        row->rid = (RecordId){0, (const uint8_t *)bytes.data, (uint32_t)bytes.size};
    } else {
        row->rid = record_id_num(elem_i64(last));
    }
    const uint8_t *first = row->doc.data + sizeof(int32_t);
    buffer_clear(&sort->out);
    DocBuilder b;
    doc_builder_init(&b, &sort->out);
    buffer_append(b.buf, first, (size_t)(last.data - first));
    return doc_builder_finish(&b, "the sorted document", &row->doc, err);
}

static ErrCode sort_next(PlanStage *stage, bool *ret_found, PlanRow *ret_row, Error *err) {
    SortStage *sort = (SortStage *)stage;
    while (UNLIKELY(!sort->is_filled)) {
        bool is_found;
        PlanRow row;
        TRY(stage_next(stage->input, &is_found, &row, err));
        if (!is_found) {
            TRY(sorter_finish(sort->sorter, err));
            stage->exec->access->op->metrics.used_disk |= file_spill_is_used(sort->spill);
            sort->is_filled = true;
            break;
        }
        if (UNLIKELY(sort->keeps_record_ids))
            TRY(append_record_id(&sort->out, row.doc, row.rid, &row.doc, err));
        TRY(sorter_add(sort->sorter, row.doc, err));
    }
    ret_row->rid = RECORD_ID_NONE;
    ret_row->key = DOC_NONE;
    TRY(sorter_next(sort->sorter, ret_found, &ret_row->doc, err));
    return *ret_found && UNLIKELY(sort->keeps_record_ids) ? take_record_id(sort, ret_row, err)
                                                          : ERR_OK;
}

static void sort_free(PlanStage *stage) {
    SortStage *sort = (SortStage *)stage;
    sorter_free(sort->sorter);
    file_spill_free(sort->spill);
    buffer_done(&sort->out);
}

static void sort_explain(PlanStage *stage, DocBuilder *b, bool has_stats) {
    SortStage *sort = (SortStage *)stage;
    build_doc(b, "sortPattern", sort->pattern->spec);
    build_count(b, "memLimit", (int64_t)sort->memory_bytes);
    if (sort->limit > 0)
        build_count(b, "limitAmount", sort->limit);
    bool is_of_keys = stage_has(stage->input, "IXSCAN") && !stage_has(stage->input, "FETCH");
    build_cstr(b, "type", is_of_keys ? "default" : "simple");
    if (has_stats) {
        SorterStats stats = sorter_stats(sort->sorter);
        build_count(b, "totalDataSizeSorted", (int64_t)stats.memory_bytes_peak);
        build_bool(b, "usedDisk", stats.run_count > 0);
        build_count(b, "spills", stats.run_count);
        build_count(b, "spilledDataStorageSize", stats.spilled_bytes);
    }
}

static const PlanStageOps SORT_OPS = {"SORT", sort_next, NULL, NULL, sort_free, sort_explain, NULL};

PlanStage *stage_sort(PlanExecutor *exec, PlanStage *input, const SortOptions *options) {
    SortStage *sort = ARENA_NEW(&exec->arena, SortStage);
    sort->base = (PlanStage){.ops = &SORT_OPS, .exec = exec, .input = input};
    sort->pattern = options->pattern;
    sort->limit = options->limit;
    sort->memory_bytes = options->memory_bytes;
    sort->keeps_record_ids = options->keeps_record_ids;
    buffer_init(&sort->out, BSON_DOC_SIZE_MAX_INTERNAL);
    sort->spill = options->spill_dir != NULL ? file_spill_new(options->spill_dir) : NULL;
    sort->sorter = sorter_new(
        &(SorterOptions){.pattern = options->pattern,
                         .collator = options->collator,
                         .limit = (uint64_t)options->limit,
                         .memory_bytes = options->memory_bytes,
                         .spill = sort->spill != NULL ? file_spill_interface(sort->spill) : NULL});
    return &sort->base;
}

/* ---- skip and limit ---- */

typedef struct CountStage {
    PlanStage base;
    int64_t amount;
    int64_t left;
} CountStage;

static ErrCode skip_next(PlanStage *stage, bool *ret_found, PlanRow *ret_row, Error *err) {
    CountStage *skip = (CountStage *)stage;
    for (; skip->left > 0; skip->left--) {
        TRY(stage_next(stage->input, ret_found, ret_row, err));
        if (!*ret_found)
            return ERR_OK;
    }
    return stage_next(stage->input, ret_found, ret_row, err);
}

static ErrCode limit_next(PlanStage *stage, bool *ret_found, PlanRow *ret_row, Error *err) {
    CountStage *limit = (CountStage *)stage;
    *ret_found = false;
    if (limit->left == 0)
        return ERR_OK;
    TRY(stage_next(stage->input, ret_found, ret_row, err));
    limit->left--;
    return ERR_OK;
}

static void skip_explain(PlanStage *stage, DocBuilder *b, bool has_stats) {
    (void)has_stats;
    build_count(b, "skipAmount", ((CountStage *)stage)->amount);
}

static void limit_explain(PlanStage *stage, DocBuilder *b, bool has_stats) {
    (void)has_stats;
    build_count(b, "limitAmount", ((CountStage *)stage)->amount);
}

static const PlanStageOps SKIP_OPS = {"SKIP", skip_next, NULL, NULL, NULL, skip_explain, NULL};
static const PlanStageOps LIMIT_OPS = {"LIMIT", limit_next, NULL, NULL, NULL, limit_explain, NULL};

static PlanStage *count_stage(PlanExecutor *exec, const PlanStageOps *ops, PlanStage *input,
                              int64_t count) {
    CountStage *stage = ARENA_NEW(&exec->arena, CountStage);
    *stage = (CountStage){{.ops = ops, .exec = exec, .input = input}, count, count};
    return &stage->base;
}

PlanStage *stage_skip(PlanExecutor *exec, PlanStage *input, int64_t count) {
    return count_stage(exec, &SKIP_OPS, input, count);
}

PlanStage *stage_limit(PlanExecutor *exec, PlanStage *input, int64_t count) {
    return count_stage(exec, &LIMIT_OPS, input, count);
}

/* ---- projection ---- */

typedef struct ProjectStage {
    PlanStage base;
    const Projection *projection;
    const MatchExpr *filter;
    Buffer out;
    Arena scratch;
    ExprEvalContext eval;
    ProjectMeta meta;
} ProjectStage;

/* [<value per part of the sort>], out of the key that the sort compares. */
static ErrCode collect_sort_key(ProjectStage *project, Doc doc, DocBuilder *b, Error *err) {
    const SortPattern *sort = project->base.exec->sort;
    KeyBuilder key;
    key_builder_init_arena(&key, &project->scratch);
    TRY(sort_key_make(sort, doc, /* collator= */ NULL, &key, err));
    key_append_end(&key, KEY_END_EXACT);
    Str type_bits = key_type_bits(&key);
    Doc values;
    TRY(key_decode(key.key.data, key.key.size, (const uint8_t *)type_bits.data, type_bits.size,
                   sort->order, &project->scratch, &values, err));
    size_t array = build_open_array(b, "sortKey");
    uint32_t index = 0;
    DocIter iter = doc_iter(values);
    for (Elem value; doc_iter_next(&iter, &value);) {
        char name[INDEX_NAME_SIZE];
        build_elem_as(b, index_name(index++, name), value);
    }
    build_close(b, array);
    return ERR_OK;
}

static ErrCode collect_meta(ProjectStage *project, const PlanRow *row, Error *err) {
    uint32_t needed = project_needed_meta(project->projection);
    Buffer *buf = ARENA_NEW(&project->scratch, Buffer);
    buffer_init_arena(buf, &project->scratch, 64, BSON_DOC_SIZE_MAX_INTERNAL);
    DocBuilder b;
    doc_builder_init(&b, buf);
    if ((needed >> PROJECT_META_RECORD_ID & 1) != 0) {
        if (record_id_is_none(row->rid))
            return error_set(err, ERR_NOT_IMPLEMENTED,
                             "$meta 'recordId' is not supported behind a sort");
        if (row->rid.str == NULL)
            build_i64(&b, "recordId", row->rid.num);
        else
            build_binary(&b, "recordId", 0, row->rid.str, row->rid.str_size);
    }
    const SortPattern *sort = project->base.exec->sort;
    if ((needed >> PROJECT_META_SORT_KEY & 1) != 0 && sort != NULL && sort->count > 0)
        TRY(collect_sort_key(project, row->doc, &b, err));
    Doc known;
    TRY(doc_builder_finish(&b, "the sort key", &known, err));
    project->meta.values[PROJECT_META_RECORD_ID] = doc_get_lit(known, "recordId");
    project->meta.values[PROJECT_META_SORT_KEY] = doc_get_lit(known, "sortKey");
    return ERR_OK;
}

static ErrCode project_next(PlanStage *stage, bool *ret_found, PlanRow *ret_row, Error *err) {
    ProjectStage *project = (ProjectStage *)stage;
    TRY(stage_next(stage->input, ret_found, ret_row, err));
    if (!*ret_found)
        return ERR_OK;
    MatchDetails details = MATCH_DETAILS_NONE;
    ProjectInput input = {0};
    if (project_needs_details(project->projection)) {
        /* Matched once more to learn the position; only this kind of projection pays for it. */
        if (project->filter != NULL)
            match_doc(project->filter, ret_row->doc, &details);
        input.details = &details;
    }
    if (project_has_exprs(project->projection)) {
        arena_reset(&project->scratch);
        input.eval = &project->eval;
    }
    if (project_needed_meta(project->projection) != 0) {
        TRY(collect_meta(project, ret_row, err));
        input.meta = &project->meta;
    }
    buffer_clear(&project->out);
    return project_apply(project->projection, ret_row->doc, &input, &project->out, &ret_row->doc,
                         err);
}

static void project_free(PlanStage *stage) {
    ProjectStage *project = (ProjectStage *)stage;
    buffer_done(&project->out);
    arena_done(&project->scratch);
}

static void project_explain(PlanStage *stage, DocBuilder *b, bool has_stats) {
    (void)has_stats;
    build_doc(b, "transformBy", project_spec(((ProjectStage *)stage)->projection));
}

static const PlanStageOps PROJECT_SIMPLE_OPS = {"PROJECTION_SIMPLE", project_next,    NULL, NULL,
                                                project_free,        project_explain, NULL};
static const PlanStageOps PROJECT_COVERED_OPS = {"PROJECTION_COVERED", project_next,    NULL, NULL,
                                                 project_free,         project_explain, NULL};
static const PlanStageOps PROJECT_DEFAULT_OPS = {"PROJECTION_DEFAULT", project_next,    NULL, NULL,
                                                 project_free,         project_explain, NULL};

PlanStage *stage_project(PlanExecutor *exec, PlanStage *input, const Projection *projection,
                         const MatchExpr *filter, int64_t now_ms) {
    ProjectStage *project = ARENA_NEW(&exec->arena, ProjectStage);
    bool is_simple = project_is_simple(projection);
    bool is_covered = is_simple &&
                      (stage_has(input, "IXSCAN") || stage_has(input, "DISTINCT_SCAN")) &&
                      !stage_has(input, "FETCH");
    project->base = (PlanStage){.ops = is_covered  ? &PROJECT_COVERED_OPS
                                       : is_simple ? &PROJECT_SIMPLE_OPS
                                                   : &PROJECT_DEFAULT_OPS,
                                .exec = exec,
                                .input = input};
    project->projection = projection;
    project->filter = filter;
    buffer_init(&project->out, BSON_DOC_SIZE_MAX_INTERNAL);
    arena_init(&project->scratch, ARENA_CHUNK_SIZE_DEFAULT);
    project->eval = (ExprEvalContext){
        .scratch = &project->scratch, .now_ms = now_ms, .collator = exec->collator};
    return &project->base;
}

/* ---- record ids ---- */

typedef struct RecordIdStage {
    PlanStage base;
    Buffer out;
} RecordIdStage;

static ErrCode record_id_next(PlanStage *stage, bool *ret_found, PlanRow *ret_row, Error *err) {
    RecordIdStage *show = (RecordIdStage *)stage;
    TRY(stage_next(stage->input, ret_found, ret_row, err));
    if (!*ret_found || record_id_is_none(ret_row->rid))
        return ERR_OK;
    return append_record_id(&show->out, ret_row->doc, ret_row->rid, &ret_row->doc, err);
}

static void record_id_free(PlanStage *stage) {
    buffer_done(&((RecordIdStage *)stage)->out);
}

static const PlanStageOps RECORD_ID_OPS = {"PROJECTION_DEFAULT", record_id_next, NULL, NULL,
                                           record_id_free,       NULL,           NULL};

PlanStage *stage_show_record_id(PlanExecutor *exec, PlanStage *input) {
    RecordIdStage *show = ARENA_NEW(&exec->arena, RecordIdStage);
    show->base = (PlanStage){.ops = &RECORD_ID_OPS, .exec = exec, .input = input};
    buffer_init(&show->out, BSON_DOC_SIZE_MAX_INTERNAL);
    return &show->base;
}

/* ---- keys of an index ---- */

static const char INDEX_KEY_NAME[] = "$indexKey"; /* no field of a stored document */

static ErrCode return_key_next(PlanStage *stage, bool *ret_found, PlanRow *ret_row, Error *err) {
    TRY(stage_next(stage->input, ret_found, ret_row, err));
    if (!*ret_found)
        return ERR_OK;
    Elem put = ELEM_MISSING;
    if (!doc_is_present(ret_row->key) && doc_is_present(ret_row->doc))
        put = doc_get(ret_row->doc, str_from(INDEX_KEY_NAME));
    ret_row->doc = doc_is_present(ret_row->key) ? ret_row->key
                   : elem_is_present(put)       ? elem_doc(put)
                                                : DOC_EMPTY;
    return ERR_OK;
}

static const PlanStageOps RETURN_KEY_OPS = {"RETURN_KEY", return_key_next, NULL, NULL, NULL, NULL,
                                            NULL};

PlanStage *stage_return_key(PlanExecutor *exec, PlanStage *input) {
    PlanStage *stage = ARENA_NEW(&exec->arena, PlanStage);
    *stage = (PlanStage){.ops = &RETURN_KEY_OPS, .exec = exec, .input = input};
    return stage;
}

static ErrCode put_index_key_next(PlanStage *stage, bool *ret_found, PlanRow *ret_row, Error *err) {
    Buffer *out = &((RecordIdStage *)stage)->out;
    TRY(stage_next(stage->input, ret_found, ret_row, err));
    if (!*ret_found || !doc_is_present(ret_row->key))
        return ERR_OK;
    buffer_clear(out);
    DocBuilder b;
    doc_builder_init(&b, out);
    build_all(&b, ret_row->doc);
    build_doc(&b, INDEX_KEY_NAME, ret_row->key);
    return doc_builder_finish(&b, "the document with its index key", &ret_row->doc, err);
}

static const PlanStageOps PUT_INDEX_KEY_OPS = {
    "SORT_KEY_GENERATOR", put_index_key_next, NULL, NULL, record_id_free, NULL, NULL};

PlanStage *stage_put_index_key(PlanExecutor *exec, PlanStage *input) {
    RecordIdStage *put = ARENA_NEW(&exec->arena, RecordIdStage);
    put->base = (PlanStage){.ops = &PUT_INDEX_KEY_OPS, .exec = exec, .input = input};
    buffer_init(&put->out, BSON_DOC_SIZE_MAX_INTERNAL);
    return &put->base;
}

/* ---- sort keys ---- */

typedef struct TakeKeyStage {
    PlanStage base;
    const SortPattern *pattern;
    const Collator *collator;
    KeyBuilder key; /* of the last row */
} TakeKeyStage;

static ErrCode take_key_next(PlanStage *stage, bool *ret_found, PlanRow *ret_row, Error *err) {
    TakeKeyStage *take = (TakeKeyStage *)stage;
    TRY(stage_next(stage->input, ret_found, ret_row, err));
    if (!*ret_found)
        return ERR_OK;
    return sort_key_make(take->pattern, ret_row->doc, take->collator, &take->key, err);
}

static void take_key_free(PlanStage *stage) {
    key_builder_done(&((TakeKeyStage *)stage)->key);
}

static const PlanStageOps TAKE_KEY_OPS = {"SORT_KEY_GENERATOR", take_key_next, NULL, NULL,
                                          take_key_free,        NULL,          NULL};

PlanStage *stage_take_sort_key(PlanExecutor *exec, PlanStage *input, const SortPattern *pattern,
                               const Collator *collator) {
    TakeKeyStage *take = ARENA_NEW(&exec->arena, TakeKeyStage);
    take->base = (PlanStage){.ops = &TAKE_KEY_OPS, .exec = exec, .input = input};
    take->pattern = pattern;
    take->collator = collator;
    key_builder_init(&take->key);
    return &take->base;
}

typedef struct PutKeyStage {
    PlanStage base;
    const TakeKeyStage *taken;
    Buffer out;
} PutKeyStage;

static ErrCode put_key_next(PlanStage *stage, bool *ret_found, PlanRow *ret_row, Error *err) {
    PutKeyStage *put = (PutKeyStage *)stage;
    TRY(stage_next(stage->input, ret_found, ret_row, err));
    if (!*ret_found)
        return ERR_OK;
    const Buffer *key = &put->taken->key.key;
    return sort_key_attach(ret_row->doc, (Str){(const char *)key->data, key->size}, &put->out,
                           &ret_row->doc, err);
}

static void put_key_free(PlanStage *stage) {
    buffer_done(&((PutKeyStage *)stage)->out);
}

static const PlanStageOps PUT_KEY_OPS = {"PROJECTION_DEFAULT", put_key_next, NULL, NULL,
                                         put_key_free,         NULL,         NULL};

PlanStage *stage_put_sort_key(PlanExecutor *exec, PlanStage *input, PlanStage *taken) {
    PutKeyStage *put = ARENA_NEW(&exec->arena, PutKeyStage);
    put->base = (PlanStage){.ops = &PUT_KEY_OPS, .exec = exec, .input = input};
    put->taken = (const TakeKeyStage *)taken;
    buffer_init(&put->out, BSON_DOC_SIZE_MAX_INTERNAL);
    return &put->base;
}
