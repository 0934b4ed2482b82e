/*
 * stage_sample.c - $sample: a random choice of documents, each set of them equally likely.
 *
 * Every document gets a random number; the ones with the lowest stay. That is a sort with a limit,
 * and so it is done by one.
 */
#include "query/agg/agg_internal.h"
#include "query/agg/sorted_merge.h"

typedef struct SampleStage {
    AggStage base;
    int64_t size;
    bool is_partial;     /* $willBeMerged: documents carry their random numbers as sort keys */
    SortPattern pattern; /* without parts: keys are made here */
} SampleStage;

typedef struct SampleExec {
    AggStageExec base;
    Sorter *sorter;
    bool is_filled;
    Buffer with_key;
} SampleExec;

static ErrCode sample_init(AggStageExec *base, Error *err);
static void sample_done(AggStageExec *base);
static ErrCode sample_next(AggStageExec *base, bool *ret_found, Doc *ret_doc, Error *err);
static void sample_to_bson(const AggStage *base, DocBuilder *b);
static void sample_split(const AggStage *base, AggSplitter *splitter);

static const AggStageClass SAMPLE = {
    .name = "$sample",
    .exec_size = sizeof(SampleExec),
    .exec_init = sample_init,
    .exec_done = sample_done,
    .next = sample_next,
    .meta = AGG_META_OWN,
    .to_bson = sample_to_bson,
    .add_paths = agg_reads_nothing,
    .runs = AGG_RUNS_SPLIT,
    .split = sample_split,
};

ErrCode parse_sample(AggParser *p, Elem spec, Error *err) {
    if (elem_type(spec) != BT_DOC)
        return error_set(err, (ErrCode)28745, "the $sample stage specification must be an object");
    int64_t size = -1;
    bool is_partial = false;
    DocIter iter = doc_iter(elem_doc(spec));
    for (Elem elem; doc_iter_next(&iter, &elem);) {
        if (p->ctx->is_internal && elem_name_is(elem, STR("$willBeMerged"))) {
            is_partial = elem_is_truthy(elem);
            continue;
        }
        if (!elem_name_is(elem, STR("size")))
            return error_set(err, (ErrCode)28748, "unrecognized option to $sample: %s",
                             elem_name(elem));
        if (!elem_is_number(elem))
            return error_set(err, (ErrCode)28746, "size argument to $sample must be a number");
        size = elem_as_i64(elem);
        if (size < 0)
            return error_set(err, (ErrCode)28747, "size argument to $sample must not be negative");
    }
    if (size < 0)
        return error_set(err, (ErrCode)28749, "$sample stage must specify a size");
    SampleStage *stage = agg_add_stage(p, &SAMPLE, sizeof(*stage), spec);
    stage->size = size;
    stage->is_partial = is_partial;
    return ERR_OK;
}

static ErrCode sample_init(AggStageExec *base, Error *err) {
    (void)err;
    const SampleStage *stage = (const SampleStage *)base->stage;
    SorterOptions options = {
        .pattern = &stage->pattern,
        .limit = (uint64_t)stage->size,
        .memory_bytes = agg_memory_bytes_max(base),
        .spill = base->ctx->allow_disk_use ? base->ctx->spill : NULL,
    };
    SampleExec *exec = (SampleExec *)base;
    exec->sorter = sorter_new(&options);
    buffer_init(&exec->with_key, VALUE_SIZE_MAX);
    return ERR_OK;
}

static void sample_done(AggStageExec *base) {
    SampleExec *exec = (SampleExec *)base;
    sorter_free(exec->sorter);
    buffer_done(&exec->with_key);
}

static ErrCode sample_next(AggStageExec *base, bool *ret_found, Doc *ret_doc, Error *err) {
    SampleExec *exec = (SampleExec *)base;
    if (((const SampleStage *)base->stage)->size == 0) { /* a sorter's limit of 0 is none */
        *ret_found = false;
        return ERR_OK;
    }
    while (!exec->is_filled) {
        bool found;
        Doc doc;
        TRY(agg_pull(base, &found, &doc, err));
        if (found) {
            uint64_t key = prng_u64(&base->prng);
            if (((const SampleStage *)base->stage)->is_partial) {
                Str bytes = {(const char *)&key, sizeof(key)};
                TRY(sort_key_attach(doc, bytes, &exec->with_key, &doc, err));
            }
            if (base->needed_meta != 0)
                TRY(agg_pack_input(base, &doc, err));
            TRY(sorter_add_with_key(exec->sorter, (const uint8_t *)&key, sizeof(key), doc, err));
        } else {
            TRY(sorter_finish(exec->sorter, err));
            exec->is_filled = true;
        }
    }
    TRY(sorter_next(exec->sorter, ret_found, ret_doc, err));
    if (*ret_found && base->needed_meta != 0)
        *ret_doc = agg_unpack_meta(*ret_doc, &base->meta);
    return ERR_OK;
}

static void sample_to_bson(const AggStage *base, DocBuilder *b) {
    const SampleStage *stage = (const SampleStage *)base;
    size_t opened = build_open_doc(b, "$sample");
    build_i64(b, "size", stage->size);
    if (stage->is_partial)
        build_bool(b, "$willBeMerged", true);
    build_close(b, opened);
}

/* The lowest of the random numbers of all shards stay, as they would in one place. */
static void sample_split(const AggStage *base, AggSplitter *splitter) {
    const SampleStage *stage = (const SampleStage *)base;
    agg_split_pick_needed(splitter); /* behind it they have keys */
    size_t opened = stage_list_open(&splitter->shards);
    size_t sample = build_open_doc(&splitter->shards.b, "$sample");
    build_i64(&splitter->shards.b, "size", stage->size);
    build_bool(&splitter->shards.b, "$willBeMerged", true);
    build_close(&splitter->shards.b, sample);
    build_close(&splitter->shards.b, opened);
    if (stage->size > 0) { /* else nobody sends any, and $limit takes no 0 */
        opened = stage_list_open(&splitter->merge);
        build_i64(&splitter->merge.b, "$limit", stage->size);
        build_close(&splitter->merge.b, opened);
    }
    splitter->result->is_sorted = true;
}
