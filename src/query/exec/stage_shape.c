/* stage_shape.c - SORT, SKIP, LIMIT and PROJECTION: stages that shape what the scans find. */
#include "query/exec/executor.h"
#include "index/key_show.h"
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
    bool keeps_origins; /* as the last field of what is sorted */
    Buffer out;
} SortStage;

/* The document with one more field at its end. */
typedef void BuildFieldFn(DocBuilder *b, const PlanRow *row);

static ErrCode append_field(Buffer *out, PlanRow *row, BuildFieldFn *build, Error *err) {
    buffer_clear(out);
    DocBuilder b;
    doc_builder_init(&b, out);
    build_all(&b, row->doc);
    build(&b, row);
    return doc_builder_finish(&b, "the document with what leads to it", &row->doc, err);
}

static void build_shown_id(DocBuilder *b, const PlanRow *row) {
    build_record_id(b, "$recordId", row->rid);
}

/* What a row has besides its document. */
static void build_origin(DocBuilder *b, const PlanRow *row) {
    size_t opened = build_open_doc(b, "$origin");
    if (!record_id_is_none(row->rid))
        build_record_id(b, "rid", row->rid);
    if (doc_is_present(row->key))
        build_doc(b, "key", row->key);
    build_close(b, opened);
}

/* Takes it off again. */
static ErrCode take_origin(SortStage *sort, PlanRow *row, Error *err) {
    Elem last = ELEM_MISSING;
    DocIter iter = doc_iter(row->doc);
    for (Elem elem; doc_iter_next(&iter, &elem);)
        last = elem;
    Elem rid = doc_get_lit(elem_doc(last), "rid");
    Elem key = doc_get_lit(elem_doc(last), "key");
    if (elem_type(rid) == BT_BINARY) {
        uint8_t subtype;
        Str bytes = elem_binary(rid, &subtype);
        row->rid = (RecordId){0, (const uint8_t *)bytes.data, (uint32_t)bytes.size};
    } else if (elem_is_present(rid)) {
        row->rid = record_id_num(elem_i64(rid));
    }
    if (elem_is_present(key))
        row->key = elem_doc(key);
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
        if (UNLIKELY(sort->keeps_origins))
            TRY(append_field(&sort->out, &row, build_origin, err));
        TRY(sorter_add(sort->sorter, row.doc, err));
    }
    ret_row->rid = RECORD_ID_NONE;
    ret_row->key = DOC_NONE;
    TRY(sorter_next(sort->sorter, ret_found, &ret_row->doc, err));
    return *ret_found && UNLIKELY(sort->keeps_origins) ? take_origin(sort, ret_row, err) : ERR_OK;
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
    sort->keeps_origins = options->keeps_origins;
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
} ProjectStage;

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
    if (UNLIKELY(stage->exec->meta_stage == stage))
        TRY(executor_collect_meta(stage->exec, ret_row, err));
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
    project->eval = (ExprEvalContext){.scratch = &project->scratch,
                                      .now_ms = now_ms,
                                      .collator = exec->collator,
                                      .meta = &exec->row_meta};
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
    return append_field(&show->out, ret_row, build_shown_id, err);
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

static ErrCode return_key_next(PlanStage *stage, bool *ret_found, PlanRow *ret_row, Error *err) {
    TRY(stage_next(stage->input, ret_found, ret_row, err));
    if (!*ret_found)
        return ERR_OK;
    ret_row->doc = doc_is_present(ret_row->key) ? ret_row->key : DOC_EMPTY;
    return ERR_OK;
}

static const PlanStageOps RETURN_KEY_OPS = {"RETURN_KEY", return_key_next, NULL, NULL, NULL, NULL,
                                            NULL};

PlanStage *stage_return_key(PlanExecutor *exec, PlanStage *input) {
    PlanStage *stage = ARENA_NEW(&exec->arena, PlanStage);
    *stage = (PlanStage){.ops = &RETURN_KEY_OPS, .exec = exec, .input = input};
    return stage;
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
