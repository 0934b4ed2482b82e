/*
 * stage_limit.c - $limit and $skip.
 */
#include <math.h>

#include "bson/json.h"
#include "query/agg/agg_internal.h"

static ErrCode parse_whole_number(AggParser *p, Elem spec, int code, int64_t *ret_number,
                                  Error *err);
static ErrCode limit_next(AggStageExec *exec, bool *ret_found, Doc *ret_doc, Error *err);
static ErrCode skip_next(AggStageExec *exec, bool *ret_found, Doc *ret_doc, Error *err);
static void count_to_bson(const AggStage *stage, DocBuilder *b);
static void count_write(const AggStage *stage, StageList *list);
static void limit_split(const AggStage *stage, AggSplitter *splitter);

const AggStageClass AGG_LIMIT = {
    .name = "$limit",
    .exec_size = sizeof(AggStageExec),
    .next = limit_next,
    .meta = AGG_META_KEPT,
    .to_bson = count_to_bson,
    .add_paths = agg_reads_nothing,
    .runs = AGG_RUNS_SPLIT,
    .split = limit_split,
    .write = count_write,
};

const AggStageClass AGG_SKIP = {
    .name = "$skip",
    .exec_size = sizeof(AggStageExec),
    .next = skip_next,
    .meta = AGG_META_KEPT,
    .to_bson = count_to_bson,
    .add_paths = agg_reads_nothing,
    .runs = AGG_RUNS_ON_MERGER, /* which knows how many there are before */
    .write = count_write,
};

ErrCode parse_limit(AggParser *p, Elem spec, Error *err) {
    int64_t limit;
    TRY(parse_whole_number(p, spec, 5107201, &limit, err));
    if (limit == 0)
        return error_set(err, (ErrCode)15958, "the limit must be positive");
    CountStage *stage = agg_add_stage(p, &AGG_LIMIT, sizeof(*stage), spec);
    stage->count = limit;
    return ERR_OK;
}

ErrCode parse_skip(AggParser *p, Elem spec, Error *err) {
    int64_t skip;
    TRY(parse_whole_number(p, spec, 5107200, &skip, err));
    CountStage *stage = agg_add_stage(p, &AGG_SKIP, sizeof(*stage), spec);
    stage->count = skip;
    return ERR_OK;
}

static ErrCode parse_whole_number(AggParser *p, Elem spec, int code, int64_t *ret_number,
                                  Error *err) {
    const char *name = elem_name(spec);
    const char *problem = NULL;
    if (!elem_is_number(spec))
        problem = "Expected a number in";
    else if (!number_is_exact_i64(number_from_elem(spec), ret_number))
        problem = "Expected an integer";
    else if (*ret_number < 0)
        problem = "Expected a non-negative number in";
    if (problem == NULL)
        return ERR_OK;
    return error_set(err, (ErrCode)code, "invalid argument to %s stage: %s: %s: %s", name, problem,
                     name, shell_text_of_elem(spec, p->arena));
}

static ErrCode limit_next(AggStageExec *exec, bool *ret_found, Doc *ret_doc, Error *err) {
    if (exec->out_count >= (uint64_t)((const CountStage *)exec->stage)->count) {
        *ret_found = false;
        return ERR_OK;
    }
    return agg_pull(exec, ret_found, ret_doc, err);
}

static ErrCode skip_next(AggStageExec *exec, bool *ret_found, Doc *ret_doc, Error *err) {
    uint64_t skip = (uint64_t)((const CountStage *)exec->stage)->count;
    while (exec->in_count < skip) {
        TRY(agg_pull(exec, ret_found, ret_doc, err));
        if (!*ret_found)
            return ERR_OK;
    }
    return agg_pull(exec, ret_found, ret_doc, err);
}

static void count_to_bson(const AggStage *stage, DocBuilder *b) {
    build_i64(b, stage->class->name, ((const CountStage *)stage)->count);
}

static void count_write(const AggStage *stage, StageList *list) {
    size_t opened = stage_list_open(list);
    count_to_bson(stage, &list->b);
    build_close(&list->b, opened);
}

/* No shard needs to send more than all of them together may. */
static void limit_split(const AggStage *stage, AggSplitter *splitter) {
    count_write(stage, &splitter->shards);
    agg_split_pick_needed(splitter);
    count_write(stage, &splitter->merge);
}
