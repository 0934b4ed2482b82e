/*
 * stage_count.c - $count.
 */
#include "query/agg/agg_internal.h"

typedef struct CountNameStage {
    AggStage base;
    Str name;
} CountNameStage;

typedef struct CountExec {
    AggStageExec base;
    Buffer out;
    bool is_over;
} CountExec;

static ErrCode count_init(AggStageExec *base, Error *err);
static void count_done(AggStageExec *base);
static ErrCode count_next(AggStageExec *base, bool *ret_found, Doc *ret_doc, Error *err);
static bool count_add_paths(const AggStage *base, PathSet *set);
static void count_split(const AggStage *base, AggSplitter *splitter);

static const AggStageClass COUNT = {
    .name = "$count",
    .exec_size = sizeof(CountExec),
    .exec_init = count_init,
    .exec_done = count_done,
    .next = count_next,
    .meta = AGG_META_NOTHING,
    .add_paths = count_add_paths,
    .runs = AGG_RUNS_SPLIT,
    .split = count_split,
};

ErrCode parse_count(AggParser *p, Elem spec, Error *err) {
    if (elem_type(spec) != BT_STRING)
        return error_set(err, (ErrCode)40156, "the count field must be a non-empty string");
    Str name = elem_str(spec);
    if (name.size == 0)
        return error_set(err, (ErrCode)40157, "the count field must be a non-empty string");
    if (name.data[0] == '$')
        return error_set(err, (ErrCode)40158, "the count field cannot be a $-prefixed path");
    if (str_has_char(name, '\0'))
        return error_set(err, (ErrCode)40159, "the count field cannot contain a null byte");
    if (str_has_char(name, '.'))
        return error_set(err, (ErrCode)40160, "the count field cannot contain '.'");
    CountNameStage *stage = agg_add_stage(p, &COUNT, sizeof(*stage), spec);
    stage->name = name;
    return ERR_OK;
}

static ErrCode count_init(AggStageExec *base, Error *err) {
    (void)err;
    buffer_init(&((CountExec *)base)->out, BSON_DOC_SIZE_MAX);
    return ERR_OK;
}

static void count_done(AggStageExec *base) {
    buffer_done(&((CountExec *)base)->out);
}

/* No document in, no document out. */
static ErrCode count_next(AggStageExec *base, bool *ret_found, Doc *ret_doc, Error *err) {
    CountExec *exec = (CountExec *)base;
    *ret_found = false;
    if (exec->is_over)
        return ERR_OK;
    bool found;
    do {
        Doc doc;
        TRY(agg_pull(base, &found, &doc, err));
    } while (found);
    exec->is_over = true;
    if (base->in_count == 0)
        return ERR_OK;
    DocBuilder b;
    doc_builder_init(&b, &exec->out);
    build_value_as(&b, ((const CountNameStage *)base->stage)->name,
                   value_count((int64_t)base->in_count));
    *ret_found = true;
    return doc_builder_finish(&b, "$count document", ret_doc, err);
}

static bool count_add_paths(const AggStage *base, PathSet *set) {
    (void)base;
    (void)set;
    return true;
}

/* {$count: "n"}; then {$group: {_id: null, n: {$sum: "$n"}}} and {$replaceRoot: {newRoot: {<name>:
 * "$n"}}}: a sum of integers has the types of a count. */
static void count_split(const AggStage *base, AggSplitter *splitter) {
    DocBuilder *b = &splitter->shards.b;
    size_t opened = stage_list_open(&splitter->shards);
    build_cstr(b, "$count", "n");
    build_close(b, opened);

    b = &splitter->merge.b;
    opened = stage_list_open(&splitter->merge);
    size_t group = build_open_doc(b, "$group");
    build_null(b, "_id");
    size_t sum = build_open_doc(b, "n");
    build_cstr(b, "$sum", "$n");
    build_close(b, sum);
    build_close(b, group);
    build_close(b, opened);

    opened = stage_list_open(&splitter->merge);
    size_t replace = build_open_doc(b, "$replaceRoot");
    size_t root = build_open_doc(b, "newRoot");
    build_str(b, ((const CountNameStage *)base)->name.data, STR("$n"));
    build_close(b, root);
    build_close(b, replace);
    build_close(b, opened);
}
