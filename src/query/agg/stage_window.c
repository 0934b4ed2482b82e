/*
 * stage_window.c - $setWindowFields: documents sorted by partition and sortBy, each with fields
 * computed from the documents around it.
 *
 * Sorting is left to a $sort before it, which the optimizer and the indexes know how to serve; a
 * partition that is more than a field is made one first, and taken away again:
 *
 *     [$addFields: {key: partitionBy}], [$sort: {key: 1, sortBy...}],
 *     $_internalSetWindowFields: {partitionBy: "$key", sortBy, output}, [$project: {key: false}]
 *
 * The stage itself reads the documents of one partition as far ahead as the windows reach, and
 * keeps them as far back as they do.
 */
#include <assert.h>

#include "base/alloc.h"
#include "bson/uuid.h"
#include "query/agg/window.h"

enum {
    DOCS_BETWEEN_CHECKS = 128, /* whether to go on */
    OUTPUTS_MAX = 1000,
    EVICTED_MAX = 64, /* free places in front before the rest moves up */
};

/* {partitionBy, sortBy, output}; missing elements are not given. */
typedef struct WindowSpec {
    Elem partition_by;
    Elem sort_by;
    Elem output;
    Str key;          /* path of the field that tells partitions apart; empty: there is one */
    bool is_by_array; /* which is none */
} WindowSpec;

typedef struct WindowStage {
    AggStage base;
    Expr *partition_by;   /* NULL: one partition */
    SortPattern *sort_by; /* NULL: as they come */
    WindowFn *fns;
    uint32_t fn_count;
    bool has_dotted_output;
} WindowStage;

typedef struct WindowFnExec {
    void *state;
    int64_t low; /* what the state holds */
    int64_t high;
    int64_t next_low; /* the window of the current document */
    int64_t next_high;
    size_t bytes; /* of the state, within the partition's */
    size_t bytes_peak;
    KeptValue result; /* of a window that is the whole partition */
} WindowFnExec;

typedef struct WindowExec {
    AggStageExec base;
    WindowPartition partition;
    WindowFnExec *fns;
    bool is_exhausted; /* no more input */
    KeyBuilder key;    /* of accumulators */
    KeptValue partition_id;
    int64_t at;        /* the document to come out next */
    uint8_t *waiting;  /* first document of the next partition; NULL: none */
    size_t kept_bytes; /* of partition_id and results */
    uint32_t run;      /* documents that do not fit in memory; of one partition */
    bool has_run;
    int64_t spill_count;
    size_t bytes_peak;
    Buffer out;
    Buffer out2; /* dotted outputs are set one after the other */
} WindowExec;

static ErrCode find_fields(AggParser *p, Elem spec, WindowSpec *ret, Error *err);
static ErrCode add_key(AggParser *p, WindowSpec *window, Error *err);
static ErrCode add_sort(AggParser *p, const WindowSpec *window, Error *err);
static ErrCode add_window(AggParser *p, const WindowSpec *window, Error *err);
static ErrCode remove_key(AggParser *p, const WindowSpec *window, Error *err);
static ErrCode parse_window(AggParser *p, const WindowSpec *window, Elem written, Error *err);
static ErrCode parse_sort_by(Elem elem, Arena *arena, SortPattern **ret, Error *err);
static ErrCode parse_outputs(AggParser *p, Elem output, WindowStage *stage, Error *err);
static ErrCode parse_output(const WindowParser *wp, Elem field, WindowFn *fn, Error *err);
static ErrCode check_outputs(const WindowStage *stage, Error *err);
static ErrCode window_init(AggStageExec *base, Error *err);
static void window_done(AggStageExec *base);
static ErrCode window_next(AggStageExec *base, bool *ret_found, Doc *ret_doc, Error *err);
static void window_to_bson(const AggStage *base, DocBuilder *b);
static void window_stats(const AggStageExec *base, DocBuilder *b);
static ErrCode partition_id_of(WindowExec *exec, Doc doc, Value *ret, Error *err);
static ErrCode begin_partition(WindowExec *exec, bool *ret_found, Error *err);
static void keep_doc(WindowPartition *p, uint8_t *take_doc);
static void evict_docs(WindowExec *exec);
static void drop_docs(WindowPartition *p, int64_t until);
static void reset_fn(WindowFnExec *fn, const WindowClass *class);
static ErrCode check_memory(WindowExec *exec, Error *err);
static ErrCode spill_docs(WindowExec *exec, Error *err);
static ErrCode look_ahead(WindowExec *exec, uint32_t index, Error *err);
static ErrCode move_window(WindowExec *exec, uint32_t index, Error *err);
static ErrCode compute(WindowExec *exec, uint32_t index, Value *ret, Error *err);
static ErrCode emit(WindowExec *exec, const Value *values, Doc *ret_doc, Error *err);

const AggStageClass AGG_WINDOW = {
    .name = "$_internalSetWindowFields",
    .exec_size = sizeof(WindowExec),
    .exec_init = window_init,
    .exec_done = window_done,
    .next = window_next,
    .to_bson = window_to_bson,
    .stats = window_stats,
    .runs = AGG_RUNS_ON_MERGER,
};

/* ---- parsing ---- */

ErrCode parse_set_window_fields(AggParser *p, Elem spec, Error *err) {
    WindowSpec window;
    TRY(find_fields(p, spec, &window, err));
    bool is_computed = elem_is_present(window.partition_by) && window.key.size == 0;
    if (is_computed)
        TRY(add_key(p, &window, err));
    TRY(add_sort(p, &window, err));
    TRY(add_window(p, &window, err));
    if (window.is_by_array) /* said last: what else is wrong goes first */
        return error_set(err, ERR_TYPE_MISMATCH,
                         "An expression used to partition cannot evaluate to value of type array");
    return is_computed ? remove_key(p, &window, err) : ERR_OK;
}

ErrCode parse_internal_window(AggParser *p, Elem spec, Error *err) {
    WindowSpec window;
    TRY(find_fields(p, spec, &window, err));
    return parse_window(p, &window, spec, err);
}

/* A constant partition is as good as none. */
static ErrCode find_fields(AggParser *p, Elem spec, WindowSpec *ret, Error *err) {
    if (elem_type(spec) != BT_DOC)
        return error_set(err, ERR_FAILED_TO_PARSE,
                         "the $setWindowFields stage specification must be an object, found %s",
                         bson_type_name(elem_type(spec)));
    *ret = (WindowSpec){ELEM_MISSING, ELEM_MISSING, ELEM_MISSING, STR(""), false};
    DocIter iter = doc_iter(elem_doc(spec));
    for (Elem elem; doc_iter_next(&iter, &elem);) {
        if (elem_name_is(elem, STR("partitionBy")))
            ret->partition_by = elem;
        else if (elem_name_is(elem, STR("sortBy")))
            ret->sort_by = elem;
        else if (elem_name_is(elem, STR("output")))
            ret->output = elem;
        else
            return error_set(err, (ErrCode)40415,
                             "BSON field '$setWindowFields.%s' is an unknown field.",
                             elem_name(elem));
    }
    if (!elem_is_present(ret->output))
        return error_set(err, (ErrCode)40414,
                         "BSON field '$setWindowFields.output' is missing but a required field");
    if (!elem_is_present(ret->partition_by))
        return ERR_OK;
    Expr *expr;
    TRY(expr_parse(ret->partition_by, &p->ctx->expr, p->arena, &expr, err));
    const FieldPath *path = expr_field_path(expr);
    if (path != NULL && path->count > 0) {
        ret->key = path->dotted;
        return ERR_OK;
    }
    Value constant;
    if (!expr_is_literal(expr, &constant))
        return ERR_OK;
    ret->is_by_array = constant.type == BT_ARRAY;
    ret->partition_by = ELEM_MISSING;
    return ERR_OK;
}

/* Documents being written for the parsers of stages, in the arena. */
typedef struct Written {
    Buffer buf;
    DocBuilder b;
} Written;

static void begin_written(AggParser *p, Written *w) {
    buffer_init_arena(&w->buf, p->arena, 256, BSON_DOC_SIZE_MAX_INTERNAL);
    doc_builder_init(&w->b, &w->buf);
}

/* The one element of the document. */
static ErrCode end_written(Written *w, Elem *ret, Error *err) {
    Doc doc;
    TRY(doc_builder_finish(&w->b, "$setWindowFields", &doc, err));
    DocIter iter = doc_iter(doc);
    doc_iter_next(&iter, ret);
    return ERR_OK;
}

/* The partition becomes a field, of a name that no document has. */
static ErrCode add_key(AggParser *p, WindowSpec *window, Error *err) {
    Uuid uuid = uuid_new();
    char hex[UUID_TEXT_SIZE];
    uuid_to_text(&uuid, hex);
    window->key = str_from(arena_printf(p->arena, "__partition_%s", hex));
    Written w;
    begin_written(p, &w);
    size_t fields = build_open_doc(&w.b, "$addFields");
    build_elem_as(&w.b, window->key, window->partition_by);
    build_close(&w.b, fields);
    Elem stage;
    TRY(end_written(&w, &stage, err));
    return parse_add_fields(p, stage, err);
}

static ErrCode remove_key(AggParser *p, const WindowSpec *window, Error *err) {
    Written w;
    begin_written(p, &w);
    size_t fields = build_open_doc(&w.b, "$project");
    build_bool(&w.b, window->key.data, false);
    build_close(&w.b, fields);
    Elem stage;
    TRY(end_written(&w, &stage, err));
    return parse_project(p, stage, err);
}

/* By the partition, then by sortBy; what is the same in all of the partition need not be said. */
static ErrCode add_sort(AggParser *p, const WindowSpec *window, Error *err) {
    SortPattern *sort_by = NULL;
    if (elem_is_present(window->sort_by))
        TRY(parse_sort_by(window->sort_by, p->arena, &sort_by, err));
    if (window->key.size == 0 && sort_by == NULL)
        return ERR_OK;
    Written w;
    begin_written(p, &w);
    size_t sort = build_open_doc(&w.b, "$sort");
    if (window->key.size > 0)
        build_i32(&w.b, window->key.data, 1);
    DocIter iter = doc_iter(sort_by != NULL ? sort_by->spec : DOC_EMPTY);
    for (Elem elem; doc_iter_next(&iter, &elem);)
        if (!elem_name_is(elem, window->key))
            build_elem(&w.b, elem);
    build_close(&w.b, sort);
    Elem stage;
    TRY(end_written(&w, &stage, err));
    return parse_sort(p, stage, err);
}

static ErrCode add_window(AggParser *p, const WindowSpec *window, Error *err) {
    Written w;
    begin_written(p, &w);
    size_t fields = build_open_doc(&w.b, AGG_WINDOW.name);
    if (window->key.size > 0)
        build_cstr(&w.b, "partitionBy", arena_printf(p->arena, "$%s", window->key.data));
    if (elem_is_present(window->sort_by))
        build_elem(&w.b, window->sort_by);
    build_elem(&w.b, window->output);
    build_close(&w.b, fields);
    Elem stage;
    TRY(end_written(&w, &stage, err));
    return parse_internal_window(p, stage, err);
}

static ErrCode parse_window(AggParser *p, const WindowSpec *window, Elem written, Error *err) {
    WindowStage *stage = agg_add_stage(p, &AGG_WINDOW, sizeof(*stage), written);
    if (elem_is_present(window->partition_by))
        TRY(expr_parse(window->partition_by, &p->ctx->expr, p->arena, &stage->partition_by, err));
    if (elem_is_present(window->sort_by))
        TRY(parse_sort_by(window->sort_by, p->arena, &stage->sort_by, err));
    return parse_outputs(p, window->output, stage, err);
}

static ErrCode parse_sort_by(Elem elem, Arena *arena, SortPattern **ret, Error *err) {
    if (elem_type(elem) != BT_DOC)
        return error_set(err, ERR_TYPE_MISMATCH,
                         "BSON field '$setWindowFields.sortBy' is the wrong type '%s', expected "
                         "type 'object'",
                         bson_type_name(elem_type(elem)));
    if (doc_is_empty(elem_doc(elem)))
        return ERR_OK;
    return sort_pattern_parse(elem_doc(elem), SORT_SYNTAX_META, arena, ret, err);
}

bool agg_window_sets(const AggStage *base, Str dotted) {
    const WindowStage *stage = (const WindowStage *)base;
    for (uint32_t i = 0; i < stage->fn_count; i++)
        if (path_is_prefix(stage->fns[i].path.dotted, dotted) ||
            path_is_prefix(dotted, stage->fns[i].path.dotted))
            return true;
    return false;
}

Str agg_window_key(const AggStage *base) {
    const WindowStage *stage = (const WindowStage *)base;
    const FieldPath *path =
        stage->partition_by != NULL ? expr_field_path(stage->partition_by) : NULL;
    bool is_plain = path != NULL && path->count == 1 && path->parts[0].index < 0 &&
                    !agg_window_sets(base, path->dotted);
    return is_plain ? path->dotted : STR("");
}

static ErrCode parse_outputs(AggParser *p, Elem output, WindowStage *stage, Error *err) {
    if (elem_type(output) != BT_DOC)
        return error_set(err, ERR_TYPE_MISMATCH,
                         "BSON field '$setWindowFields.output' is the wrong type '%s', expected "
                         "type 'object'",
                         bson_type_name(elem_type(output)));
    uint32_t count = doc_count(elem_doc(output));
    if (count > OUTPUTS_MAX)
        return error_set(err, ERR_FAILED_TO_PARSE, "$setWindowFields has more than %d outputs",
                         OUTPUTS_MAX);
    WindowParser wp = {.agg = p, .sort_by = stage->sort_by};
    stage->fns = ARENA_ARRAY(p->arena, WindowFn, count);
    DocIter iter = doc_iter(elem_doc(output));
    for (Elem field; doc_iter_next(&iter, &field);) {
        WindowFn *fn = &stage->fns[stage->fn_count++];
        TRY(parse_output(&wp, field, fn, err));
        stage->has_dotted_output |= fn->path.count > 1;
    }
    return check_outputs(stage, err);
}

/* {$sum: ..., window: {...}} */
static ErrCode parse_output(const WindowParser *wp, Elem field, WindowFn *fn, Error *err) {
    TRY(expr_check_path(elem_name_str(field), err));
    TRY(path_parse(elem_name_str(field), wp->agg->arena, &fn->path, err));
    if (elem_type(field) != BT_DOC)
        return error_set(err, ERR_FAILED_TO_PARSE,
                         "The field '%s' must be a window function object", elem_name(field));
    Elem op = ELEM_MISSING;
    Elem unknown = ELEM_MISSING;
    DocIter iter = doc_iter(elem_doc(field));
    for (Elem elem; doc_iter_next(&iter, &elem);) {
        if (elem_name_is(elem, STR("window")))
            fn->window = elem;
        else if (elem_name(elem)[0] != '$')
            unknown = elem;
        else if (elem_is_present(op))
            return error_set(err, ERR_FAILED_TO_PARSE,
                             "Cannot specify two functions in window function spec");
        else
            op = elem;
    }
    if (!elem_is_present(op))
        return error_set(err, ERR_FAILED_TO_PARSE, "Expected a $-prefixed window function%s%s",
                         elem_is_present(unknown) ? ", " : "",
                         elem_is_present(unknown) ? elem_name(unknown) : "");
    TRY(window_fn_parse(wp, op, fn, err));
    if (elem_is_present(unknown))
        return error_set(err, ERR_FAILED_TO_PARSE,
                         "Window function %s found an unknown argument: %s", elem_name(op),
                         elem_name(unknown));
    return ERR_OK;
}

/* No output may be a part of another. */
static ErrCode check_outputs(const WindowStage *stage, Error *err) {
    for (uint32_t i = 0; i < stage->fn_count; i++) {
        for (uint32_t j = 0; j < stage->fn_count; j++) {
            Str a = stage->fns[i].path.dotted;
            Str b = stage->fns[j].path.dotted;
            if (i != j && path_is_prefix(a, b))
                return error_set(err, (ErrCode)6307900,
                                 "specification contains two conflicting paths. Cannot specify "
                                 "both '%.*s' and '%.*s'",
                                 (int)a.size, a.data, (int)b.size, b.data);
        }
    }
    return ERR_OK;
}

/* ---- execution ---- */

static ErrCode window_init(AggStageExec *base, Error *err) {
    (void)err;
    WindowExec *exec = (WindowExec *)base;
    const WindowStage *stage = (const WindowStage *)base->stage;
    key_builder_init(&exec->key);
    buffer_init(&exec->out, VALUE_SIZE_MAX);
    buffer_init(&exec->out2, VALUE_SIZE_MAX);
    exec->fns = xcalloc(stage->fn_count + 1, sizeof(*exec->fns));
    for (uint32_t i = 0; i < stage->fn_count; i++)
        exec->fns[i].state = xcalloc(1, stage->fns[i].class->state_size + 1);
    WindowPartition *p = &exec->partition;
    p->base = base;
    p->sort_by = stage->sort_by;
    p->is_complete = true;
    p->acc_ctx = (AccContext){
        .collator = base->ctx->collator,
        .bytes = &p->state_bytes,
        .eval = &base->eval,
        .key = &exec->key,
        .group_id = VALUE_MISSING,
    };
    return ERR_OK;
}

static void window_done(AggStageExec *base) {
    WindowExec *exec = (WindowExec *)base;
    const WindowStage *stage = (const WindowStage *)base->stage;
    for (uint32_t i = 0; i < stage->fn_count; i++) {
        const WindowClass *class = stage->fns[i].class;
        if (class->done != NULL)
            class->done(exec->fns[i].state);
        xfree(exec->fns[i].state);
        kept_value_done(&exec->fns[i].result);
    }
    xfree(exec->fns);
    drop_docs(&exec->partition, exec->partition.end);
    xfree(exec->partition.docs);
    xfree(exec->waiting);
    kept_value_done(&exec->partition_id);
    key_builder_done(&exec->key);
    buffer_done(&exec->out);
    buffer_done(&exec->out2);
}

static ErrCode window_next(AggStageExec *base, bool *ret_found, Doc *ret_doc, Error *err) {
    WindowExec *exec = (WindowExec *)base;
    const WindowStage *stage = (const WindowStage *)base->stage;
    WindowPartition *p = &exec->partition;
    TRY(window_fetch(p, exec->at, ret_found, err));
    if (!*ret_found) {
        TRY(begin_partition(exec, ret_found, err));
        if (!*ret_found)
            return ERR_OK;
    }
    if (exec->at % DOCS_BETWEEN_CHECKS == 0)
        TRY(check_hook_run(&base->ctx->check, err));
    arena_reset(&base->scratch);
    Value *values = ARENA_ARRAY(&base->scratch, Value, stage->fn_count + 1);
    /* All reading comes first, as it may be interrupted and begun again; functions count. */
    for (uint32_t i = 0; i < stage->fn_count; i++)
        TRY(look_ahead(exec, i, err));
    for (uint32_t i = 0; i < stage->fn_count; i++)
        TRY(move_window(exec, i, err));
    for (uint32_t i = 0; i < stage->fn_count; i++)
        TRY(compute(exec, i, &values[i], err));
    TRY(emit(exec, values, ret_doc, err));
    exec->at++;
    evict_docs(exec);
    return check_memory(exec, err);
}

static ErrCode pull(WindowExec *exec, bool *ret_found, Doc *ret_doc, Error *err) {
    TRY(agg_pull(&exec->base, ret_found, ret_doc, err));
    exec->is_exhausted = !*ret_found;
    return ERR_OK;
}

static ErrCode partition_id_of(WindowExec *exec, Doc doc, Value *ret, Error *err) {
    const WindowStage *stage = (const WindowStage *)exec->base.stage;
    exec->base.eval.root = doc;
    TRY(expr_eval(stage->partition_by, &exec->base.eval, ret, err));
    if (ret->type == BT_ARRAY)
        return error_set(err, ERR_TYPE_MISMATCH,
                         "An expression used to partition cannot evaluate to value of type array");
    if (value_is_missing(*ret))
        *ret = VALUE_NULL;
    return ERR_OK;
}

/* Begins with the document that ended the last partition, or the first of all. */
static ErrCode begin_partition(WindowExec *exec, bool *ret_found, Error *err) {
    const WindowStage *stage = (const WindowStage *)exec->base.stage;
    WindowPartition *p = &exec->partition;
    drop_docs(p, p->end);
    p->first = p->end = 0;
    if (exec->has_run)
        exec->base.ctx->spill->run_free(exec->base.ctx->spill->arg, exec->run);
    exec->has_run = false;
    p->state_bytes = 0;
    exec->at = 0;
    for (uint32_t i = 0; i < stage->fn_count; i++) {
        reset_fn(&exec->fns[i], stage->fns[i].class);
        exec->fns[i].low = exec->fns[i].high = 0;
        exec->fns[i].next_low = exec->fns[i].next_high = 0;
        exec->fns[i].bytes = 0;
        exec->fns[i].result.is_set = false;
    }
    if (exec->waiting == NULL && !exec->is_exhausted) {
        Doc doc;
        TRY(pull(exec, ret_found, &doc, err));
        if (*ret_found)
            exec->waiting = doc_copy_heap(doc);
    }
    *ret_found = exec->waiting != NULL;
    if (exec->waiting == NULL)
        return ERR_OK;
    Doc first = {exec->waiting};
    if (stage->partition_by != NULL) {
        Value id;
        TRY(partition_id_of(exec, first, &id, err));
        kept_value_set(&exec->partition_id, id, &exec->kept_bytes);
    }
    keep_doc(p, TAKE_PTR(exec->waiting));
    p->is_complete = false;
    return ERR_OK;
}

ErrCode window_fetch(WindowPartition *p, int64_t index, bool *ret_found, Error *err) {
    WindowExec *exec = (WindowExec *)p->base;
    const WindowStage *stage = (const WindowStage *)exec->base.stage;
    while (index >= p->end && !p->is_complete) {
        bool found;
        Doc doc;
        TRY(pull(exec, &found, &doc, err));
        if (!found) {
            p->is_complete = true;
            break;
        }
        if (stage->partition_by != NULL) {
            Value id;
            ArenaMark mark = arena_mark(&exec->base.scratch);
            TRY(partition_id_of(exec, doc, &id, err));
            bool is_same = values_equal(id, exec->partition_id.value, exec->base.ctx->collator);
            arena_rewind(&exec->base.scratch, mark);
            if (!is_same) {
                exec->waiting = doc_copy_heap(doc);
                p->is_complete = true;
                break;
            }
        }
        keep_doc(p, doc_copy_heap(doc));
        TRY(check_memory(exec, err));
    }
    *ret_found = index < p->end;
    return ERR_OK;
}

static inline WindowDoc *doc_at(const WindowPartition *p, int64_t index) {
    return &p->docs[p->evicted + (size_t)(index - p->first)];
}

ErrCode window_doc(const WindowPartition *p, int64_t index, Doc *ret, Error *err) {
    const WindowDoc *doc = doc_at(p, index);
    *ret = doc->doc;
    if (LIKELY(doc->doc.data != NULL))
        return ERR_OK;
    const WindowExec *exec = (const WindowExec *)p->base;
    const Spill *spill = exec->base.ctx->spill;
    const uint8_t *record;
    size_t size;
    TRY(spill->run_read(spill->arg, exec->run, doc->place, &record, &size, err));
    *ret = doc_copy((Doc){record}, &p->base->scratch);
    return ERR_OK;
}

ErrCode window_eval(WindowPartition *p, const Expr *expr, int64_t index, Value *ret, Error *err) {
    TRY(window_doc(p, index, &p->base->eval.root, err));
    return expr_eval(expr, &p->base->eval, ret, err);
}

ErrCode window_sort_value(WindowPartition *p, int64_t index, Value *ret, Error *err) {
    ArenaMark mark = arena_mark(&p->base->scratch);
    Doc doc;
    TRY(window_doc(p, index, &doc, err));
    TRY(expr_eval_path(&p->sort_by->parts[0].path, doc, &p->base->scratch, ret, err));
    if (value_is_missing(*ret))
        *ret = VALUE_NULL;
    if (value_type_is_inline(ret->type)) /* what was read from disk is not needed any more */
        arena_rewind(&p->base->scratch, mark);
    return ERR_OK;
}

/* ---- documents in hand ---- */

static void keep_doc(WindowPartition *p, uint8_t *take_doc) {
    size_t used = p->evicted + (size_t)(p->end - p->first);
    ARRAY_RESERVE(p->docs, used, p->capacity);
    p->docs[used] = (WindowDoc){{take_doc}, -1};
    p->doc_bytes += doc_size((Doc){take_doc}) + sizeof(WindowDoc);
    p->end++;
}

/* Documents that are out and that no window reaches back to. */
static void evict_docs(WindowExec *exec) {
    const WindowStage *stage = (const WindowStage *)exec->base.stage;
    int64_t until = exec->at;
    for (uint32_t i = 0; i < stage->fn_count; i++) {
        const WindowFn *fn = &stage->fns[i];
        if (fn->bounds.is_given) {
            /* A window from the start may end before the current document. */
            int64_t needed =
                window_is_from_start(&fn->bounds) ? exec->fns[i].high - 1 : exec->fns[i].low;
            until = needed < until ? needed : until;
        }
        if (fn->shift_by < 0 && exec->at + fn->shift_by < until)
            until = exec->at + fn->shift_by;
    }
    if (until > exec->partition.first)
        drop_docs(&exec->partition, until);
}

static void free_doc(WindowPartition *p, WindowDoc *doc) {
    if (doc->doc.data == NULL)
        return;
    p->doc_bytes -= doc_size(doc->doc);
    xfree((void *)doc->doc.data);
    doc->doc.data = NULL;
}

static void drop_docs(WindowPartition *p, int64_t until) {
    for (; p->first < until && p->first < p->end; p->first++) {
        free_doc(p, doc_at(p, p->first));
        p->doc_bytes -= sizeof(WindowDoc);
        p->evicted++;
    }
    size_t count = (size_t)(p->end - p->first);
    if (p->evicted > EVICTED_MAX && p->evicted > count) {
        memmove(p->docs, p->docs + p->evicted, count * sizeof(*p->docs));
        p->evicted = 0;
    }
}

static void reset_fn(WindowFnExec *fn, const WindowClass *class) {
    if (class->done != NULL)
        class->done(fn->state);
    memset(fn->state, 0, class->state_size);
    if (class->init != NULL)
        class->init(fn->state);
}

static size_t bytes_used(const WindowExec *exec) {
    const WindowPartition *p = &exec->partition;
    return p->doc_bytes + p->state_bytes + exec->kept_bytes;
}

/* To be called when nobody holds values that lie in documents, but for the current one. */
static ErrCode check_memory(WindowExec *exec, Error *err) {
    size_t used = bytes_used(exec);
    if (used > exec->bytes_peak)
        exec->bytes_peak = used;
    size_t bytes_max = exec->base.ctx->window_memory_bytes;
    if (bytes_max == 0)
        bytes_max = agg_memory_bytes_max(&exec->base);
    if (LIKELY(used <= bytes_max))
        return ERR_OK;
    bool can_spill = exec->base.ctx->allow_disk_use && exec->base.ctx->spill != NULL;
    if (!can_spill)
        return error_set(err, (ErrCode)5643011,
                         "Exceeded memory limit in $setWindowFields, used %zu bytes but max "
                         "allowed is %zu. Set allowDiskUse: true to allow spilling",
                         used, bytes_max);
    TRY(spill_docs(exec, err));
    used = bytes_used(exec);
    if (used <= bytes_max)
        return ERR_OK;
    return error_set(err, (ErrCode)5414201,
                     "Exceeded memory limit in $setWindowFields, used %zu bytes but max allowed is "
                     "%zu, with all documents on disk: its functions need more",
                     used, bytes_max);
}

/* All but the current document go to disk; those that are there already just leave memory. */
static ErrCode spill_docs(WindowExec *exec, Error *err) {
    WindowPartition *p = &exec->partition;
    const Spill *spill = exec->base.ctx->spill;
    if (!exec->has_run) {
        TRY(spill->run_new(spill->arg, &exec->run, err));
        exec->has_run = true;
    }
    for (int64_t i = p->first; i < p->end; i++) {
        WindowDoc *doc = doc_at(p, i);
        if (i == exec->at || doc->doc.data == NULL)
            continue;
        if (doc->place < 0) {
            int64_t place = spill->run_end(spill->arg, exec->run);
            TRY(spill->run_append(spill->arg, exec->run, doc->doc.data, doc_size(doc->doc), err));
            doc->place = place;
        }
        free_doc(p, doc);
    }
    exec->spill_count++;
    return ERR_OK;
}

static bool has_window(const WindowFn *fn) {
    return fn->bounds.is_given || fn->class->add != NULL || fn->acc.class != NULL;
}

/* ---- explain ---- */

static void window_to_bson(const AggStage *base, DocBuilder *b) {
    const WindowStage *stage = (const WindowStage *)base;
    size_t fields = build_open_doc(b, AGG_WINDOW.name);
    if (stage->partition_by != NULL)
        expr_to_bson(stage->partition_by, STR("partitionBy"), b);
    if (stage->sort_by != NULL)
        build_doc(b, "sortBy", stage->sort_by->spec);
    size_t output = build_open_doc(b, "output");
    for (uint32_t i = 0; i < stage->fn_count; i++) {
        const WindowFn *fn = &stage->fns[i];
        size_t field = build_open_doc_str(b, fn->path.dotted);
        build_elem(b, fn->source);
        if (fn->bounds.is_given) {
            build_elem(b, fn->window);
        } else if (has_window(fn)) {
            size_t window = build_open_doc(b, "window");
            size_t bounds = build_open_array(b, "documents");
            build_cstr(b, "0", "unbounded");
            build_cstr(b, "1", "unbounded");
            build_close(b, bounds);
            build_close(b, window);
        }
        build_close(b, field);
    }
    build_close(b, output);
    build_close(b, fields);
}

static void window_stats(const AggStageExec *base, DocBuilder *b) {
    const WindowExec *exec = (const WindowExec *)base;
    const WindowStage *stage = (const WindowStage *)base->stage;
    size_t functions = build_open_doc(b, "maxFunctionMemoryUsageBytes");
    for (uint32_t i = 0; i < stage->fn_count; i++) {
        const WindowFn *fn = &stage->fns[i];
        size_t bytes = fn->class->state_size + exec->fns[i].bytes_peak;
        if (fn->acc.class != NULL)
            bytes += fn->acc.class->state_size;
        build_i64(b, fn->path.dotted.data, (int64_t)bytes);
    }
    build_close(b, functions);
    build_i64(b, "maxTotalMemoryUsageBytes", (int64_t)exec->bytes_peak);
    build_bool(b, "usedDisk", exec->spill_count > 0);
}

/* ---- results ---- */

/* Moves the function's window to the current document. */
static ErrCode look_ahead(WindowExec *exec, uint32_t index, Error *err) {
    const WindowFn *fn = &((const WindowStage *)exec->base.stage)->fns[index];
    WindowFnExec *state = &exec->fns[index];
    if (state->result.is_set)
        return ERR_OK;
    if (has_window(fn))
        TRY(window_bounds_move(&fn->bounds, &exec->partition, exec->at, &state->next_low,
                               &state->next_high, err));
    return fn->class->look_ahead == NULL
               ? ERR_OK
               : fn->class->look_ahead(state->state, fn, &exec->partition, exec->at, err);
}

/* Lets documents in and out of the state. */
static ErrCode move_window(WindowExec *exec, uint32_t index, Error *err) {
    const WindowFn *fn = &((const WindowStage *)exec->base.stage)->fns[index];
    const WindowClass *class = fn->class;
    WindowFnExec *state = &exec->fns[index];
    WindowPartition *p = &exec->partition;
    if (state->result.is_set)
        return ERR_OK;
    int64_t low = state->next_low;
    int64_t high = state->next_high;
    int64_t add_from = state->high > low ? state->high : low;
    if (class->remove != NULL) {
        for (int64_t i = state->low; i < low && i < state->high; i++)
            TRY(class->remove(state->state, fn, p, i, err));
    } else if (class->add != NULL && low > state->low) {
        reset_fn(state, class);
        p->state_bytes -= state->bytes;
        state->bytes = 0;
        add_from = low;
    }
    size_t bytes_before = p->state_bytes;
    for (int64_t i = add_from; class->add != NULL && i < high; i++) {
        ArenaMark mark = arena_mark(&exec->base.scratch);
        TRY(class->add(state->state, fn, p, i, err));
        arena_rewind(&exec->base.scratch, mark); /* states copy what they keep */
        TRY(check_memory(exec, err));
        if (i % DOCS_BETWEEN_CHECKS == 0)
            TRY(check_hook_run(&exec->base.ctx->check, err));
    }
    state->bytes += p->state_bytes - bytes_before;
    if (state->bytes > state->bytes_peak)
        state->bytes_peak = state->bytes;
    state->low = low;
    state->high = high;
    return ERR_OK;
}

static ErrCode compute(WindowExec *exec, uint32_t index, Value *ret, Error *err) {
    const WindowFn *fn = &((const WindowStage *)exec->base.stage)->fns[index];
    WindowFnExec *state = &exec->fns[index];
    if (state->result.is_set) {
        *ret = state->result.value;
        return ERR_OK;
    }
    TRY(fn->class->result(state->state, fn, &exec->partition, state->low, state->high, exec->at,
                          ret, err));
    if (value_is_missing(*ret))
        *ret = VALUE_NULL;
    bool is_whole = has_window(fn) && window_is_from_start(&fn->bounds) &&
                    fn->bounds.upper.kind == BOUND_UNBOUNDED;
    if (is_whole) {
        kept_value_set(&state->result, *ret, &exec->kept_bytes);
        *ret = state->result.value;
    }
    return ERR_OK;
}

/* All outputs are fields of the document itself: one pass. */
static void set_fields(DocBuilder *b, const WindowStage *stage, Doc in, const Value *values,
                       bool *is_set) {
    DocIter iter = doc_iter(in);
    for (Elem elem; doc_iter_next(&iter, &elem);) {
        uint32_t i = 0;
        while (i < stage->fn_count && !elem_name_is(elem, stage->fns[i].path.dotted))
            i++;
        if (i == stage->fn_count) {
            build_elem(b, elem);
        } else if (!is_set[i]) {
            build_value_as(b, elem_name_str(elem), values[i]);
            is_set[i] = true;
        }
    }
    for (uint32_t i = 0; i < stage->fn_count; i++)
        if (!is_set[i])
            build_value_as(b, stage->fns[i].path.dotted, values[i]);
}

static ErrCode emit(WindowExec *exec, const Value *values, Doc *ret_doc, Error *err) {
    const WindowStage *stage = (const WindowStage *)exec->base.stage;
    Doc doc;
    TRY(window_doc(&exec->partition, exec->at, &doc, err));
    DocBuilder b;
    if (!stage->has_dotted_output) {
        bool *is_set = ARENA_ARRAY(&exec->base.scratch, bool, stage->fn_count + 1);
        buffer_clear(&exec->out);
        doc_builder_init(&b, &exec->out);
        set_fields(&b, stage, doc, values, is_set);
        return doc_builder_finish(&b, "document", ret_doc, err);
    }
    for (uint32_t i = 0; i < stage->fn_count; i++) {
        Buffer *out = i % 2 == 0 ? &exec->out : &exec->out2;
        buffer_clear(out);
        doc_builder_init(&b, out);
        agg_build_with_path(&b, &stage->fns[i].path, 0, doc, values[i]);
        TRY(doc_builder_finish(&b, "document", &doc, err));
    }
    *ret_doc = doc;
    return ERR_OK;
}
