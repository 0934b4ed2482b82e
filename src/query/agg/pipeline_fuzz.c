/*
 * pipeline_fuzz.c - pipelines from outside: parsing any of them is safe, running what parses is
 * safe, and the optimized pipeline gives what the plain one gives, and so does the split one.
 *
 * Input: one byte of form (fuzz_doc.h; some: on no collection, or with what only other nodes say),
 * then a pipeline, then documents.
 */
#include <stdio.h>

#include "bson/json.h"
#include "query/agg/pipeline.h"
#include "query/agg/split_run_test.h"
#include "query/expr/fuzz_expr.h"
#include "query/project/project.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum {
    DOCS_MAX = 16,
    STAGES_MAX = 6,
};

static const char *const STAGES[] = {
    "$addFields",
    "$count",
    "$group",
    "$limit",
    "$match",
    "$project",
    "$replaceRoot",
    "$skip",
    "$sort",
    "$sortByCount",
    "$unset",
    "$unwind",
    "$set",
    "$replaceWith",
    "$limit",
    "$match",
    "$project",
    "$sort",
    "$unwind",
    "$group",
    "$redact",
    "$bucket",
    "$facet",
    "$bucketAuto",
    "$match",
    "$lookup",
    "$group",
    "$graphLookup",
    "$setWindowFields",
    "$setWindowFields",
    "$densify",
    "$fill",
    "$sample",
    "$documents",
    "$unionWith",
    "$merge",
    "$out",
    "$_internalAddSortKey",
};

static const char *const PATHS[] = {"a", "b", "_id", "a.b", "x", "b.a", "a.0"};

static const char *const ACCUMULATORS[] = {
#define ACCUMULATOR(name, class)  name,
#define ACCUMULATOR_REFUSED(name) name,
#include "query/agg/accumulators.def"
#undef ACCUMULATOR
#undef ACCUMULATOR_REFUSED
};

static const char *const WINDOW_FUNCTIONS[] = {
#define WINDOW_FUNCTION(name, parse) name,
#include "query/agg/window_functions.def"
#undef WINDOW_FUNCTION
};

/* Arguments of accumulators and window functions that want a document with certain names. */
enum {
    ARG_INPUT = 1 << 0,
    ARG_OUTPUT = 1 << 1,
    ARG_BY = 1 << 2,
    ARG_N = 1 << 3,
    ARG_SORT = 1 << 4,
    ARG_CAPITAL_N = 1 << 5,
    ARG_METHOD = 1 << 6,
    ARG_P = 1 << 7,
};

static const struct {
    const char *name;
    int arguments; /* 0: an empty document */
} NAMED_ARGUMENTS[] = {
    {"$rank", 0},
    {"$denseRank", 0},
    {"$count", 0},
    {"$documentNumber", 0},
    {"$minN", ARG_INPUT | ARG_N},
    {"$maxN", ARG_INPUT | ARG_N},
    {"$firstN", ARG_INPUT | ARG_N},
    {"$lastN", ARG_INPUT | ARG_N},
    {"$top", ARG_OUTPUT | ARG_SORT},
    {"$bottom", ARG_OUTPUT | ARG_SORT},
    {"$topN", ARG_OUTPUT | ARG_SORT | ARG_N},
    {"$bottomN", ARG_OUTPUT | ARG_SORT | ARG_N},
    {"$shift", ARG_OUTPUT | ARG_BY},
    {"$derivative", ARG_INPUT},
    {"$integral", ARG_INPUT},
    {"$expMovingAvg", ARG_INPUT | ARG_CAPITAL_N},
    {"$median", ARG_INPUT | ARG_METHOD},
    {"$percentile", ARG_INPUT | ARG_METHOD | ARG_P},
};

static const char *const FILTER_NAMES[] = {"a",   "b",   "x",    "a.b",     "_id",
                                           "$or", "$gt", "$and", "$exists", "$in"};

static Str take_name(FuzzInput *in, const char *const *names, size_t count) {
    return str_from(names[fuzz_take(in) % count]);
}

/* The argument that an accumulator or a window function wants, more or less. */
static void fuzz_function(FuzzInput *in, DocBuilder *b, Str name) {
    size_t row = 0;
    while (row < ARRAY_LEN(NAMED_ARGUMENTS) &&
           !str_equal(name, str_from(NAMED_ARGUMENTS[row].name)))
        row++;
    if (row == ARRAY_LEN(NAMED_ARGUMENTS)) {
        fuzz_expr(in, b, name, 2);
        return;
    }
    int arguments = NAMED_ARGUMENTS[row].arguments;
    size_t object = build_open_doc_str(b, name);
    if (arguments & ARG_INPUT)
        fuzz_expr(in, b, STR("input"), 1);
    if (arguments & ARG_OUTPUT)
        fuzz_expr(in, b, STR("output"), 1);
    if (arguments & ARG_BY)
        build_i32(b, "by", (int8_t)fuzz_take(in) % 5);
    if (arguments & ARG_N)
        build_i32(b, "n", fuzz_take(in) % 4);
    if (arguments & ARG_CAPITAL_N)
        build_i32(b, "N", fuzz_take(in) % 4);
    if (arguments & ARG_METHOD)
        build_cstr(b, "method", "approximate");
    if (arguments & ARG_P) {
        size_t p = build_open_array(b, "p");
        build_f64(b, "0", fuzz_take(in) / 255.0);
        build_close(b, p);
    }
    if (arguments & ARG_SORT) {
        size_t sort = build_open_doc(b, "sortBy");
        build_i32(b, "b", 1);
        build_close(b, sort);
    }
    build_close(b, object);
}

/* A document of that many fields at most, named by paths, with values as the stage could have. */
static void fuzz_stage_fields(FuzzInput *in, DocBuilder *b, Str stage) {
    bool is_group = str_is(stage, "$group");
    bool is_sort = str_is(stage, "$sort") || str_is(stage, "$_internalAddSortKey");
    if (is_group)
        fuzz_expr(in, b, STR("_id"), 2);
    uint8_t head = fuzz_take(in);
    if (is_group && head >= 224)
        build_bool(b, head & 16 ? "$doingMerge" : "$willBeMerged", true);
    uint32_t count = head % 4;
    for (uint32_t i = 0; i < count; i++) {
        Str name = take_name(in, PATHS, ARRAY_LEN(PATHS));
        uint8_t choice = fuzz_take(in);
        if (is_sort) {
            build_i32(b, name.data, choice & 1 ? 1 : -1);
        } else if (is_group) {
            size_t acc = build_open_doc_str(b, name);
            fuzz_function(in, b, take_name(in, ACCUMULATORS, ARRAY_LEN(ACCUMULATORS)));
            build_close(b, acc);
        } else if (choice < 128) {
            build_i32(b, name.data, choice & 1);
        } else {
            fuzz_expr(in, b, name, 3);
        }
    }
}

static void fuzz_bound(FuzzInput *in, DocBuilder *b, const char *name) {
    uint8_t choice = fuzz_take(in);
    if (choice % 8 == 0)
        build_cstr(b, name, "unbounded");
    else if (choice % 8 == 1)
        build_cstr(b, name, "current");
    else
        build_i32(b, name, (int8_t)choice / 8 % 6);
}

static void fuzz_windows(FuzzInput *in, DocBuilder *b) {
    uint8_t choice = fuzz_take(in);
    if (choice & 1)
        fuzz_expr(in, b, STR("partitionBy"), 2);
    if (choice & 2) {
        size_t sort = build_open_doc(b, "sortBy");
        build_i32(b, choice & 4 ? "a" : "b", choice & 8 ? 1 : -1);
        build_close(b, sort);
    }
    size_t output = build_open_doc(b, "output");
    uint32_t count = fuzz_take(in) % 4;
    for (uint32_t i = 0; i < count; i++) {
        static const char *const OUTPUTS[] = {"x", "y.a", "a", "z"};
        size_t field = build_open_doc(b, OUTPUTS[i]);
        fuzz_function(in, b, take_name(in, WINDOW_FUNCTIONS, ARRAY_LEN(WINDOW_FUNCTIONS)));
        uint8_t form = fuzz_take(in) % 4;
        if (form > 0) {
            size_t window = build_open_doc(b, "window");
            size_t bounds = build_open_array(b, form == 1 ? "range" : "documents");
            fuzz_bound(in, b, "0");
            fuzz_bound(in, b, "1");
            build_close(b, bounds);
            build_close(b, window);
        }
        build_close(b, field);
    }
    build_close(b, output);
}

static void fuzz_densify(FuzzInput *in, DocBuilder *b) {
    uint8_t choice = fuzz_take(in);
    build_cstr(b, "field", choice & 1 ? "a" : "b.a");
    if (choice & 2) {
        size_t fields = build_open_array(b, "partitionByFields");
        build_cstr(b, "0", "x");
        build_close(b, fields);
    }
    size_t range = build_open_doc(b, "range");
    build_f64(b, "step", choice & 4 ? 1 : 0.75);
    if (choice & 8) {
        size_t bounds = build_open_array(b, "bounds");
        build_i32(b, "0", fuzz_take(in) % 8);
        build_i32(b, "1", 8);
        build_close(b, bounds);
    } else {
        build_cstr(b, "bounds", choice & 16 ? "full" : "partition");
    }
    build_close(b, range);
}

static void fuzz_fill(FuzzInput *in, DocBuilder *b) {
    uint8_t choice = fuzz_take(in);
    size_t sort = build_open_doc(b, "sortBy");
    build_i32(b, "b", 1);
    build_close(b, sort);
    size_t output = build_open_doc(b, "output");
    size_t field = build_open_doc(b, "a");
    if (choice & 1)
        fuzz_expr(in, b, STR("value"), 2);
    else
        build_cstr(b, "method", choice & 2 ? "linear" : "locf");
    build_close(b, field);
    build_close(b, output);
}

/* Stages whose argument is small; false for the others. */
static bool fuzz_small_stage(FuzzInput *in, DocBuilder *b, Str name, uint8_t choice) {
    if (str_is(name, "$count") || str_is(name, "$unset") || str_is(name, "$out") ||
        str_is(name, "$unionWith")) {
        build_str(b, name.data, take_name(in, PATHS, ARRAY_LEN(PATHS)));
    } else if (str_is(name, "$sortByCount")) {
        build_cstr(b, name.data, choice & 1 ? "$a" : "$b.a");
    } else if (str_is(name, "$limit") || str_is(name, "$skip")) {
        build_i32(b, name.data, choice % 8);
    } else if (str_is(name, "$unwind")) {
        build_cstr(b, name.data, choice & 1 ? "$a" : "$a.b");
    } else {
        return false;
    }
    return true;
}

static void fuzz_bucket(FuzzInput *in, DocBuilder *b) {
    fuzz_expr(in, b, STR("groupBy"), 2);
    size_t boundaries = build_open_array(b, "boundaries");
    build_i32(b, "0", -1);
    build_f64(b, "1", fuzz_take(in) / 64.0);
    build_i32(b, "2", 1 << 20);
    build_close(b, boundaries);
    build_cstr(b, "default", "other");
    size_t output = build_open_doc(b, "output");
    size_t acc = build_open_doc(b, "x");
    fuzz_function(in, b, take_name(in, ACCUMULATORS, ARRAY_LEN(ACCUMULATORS)));
    build_close(b, acc);
    build_close(b, output);
}

/* $lookup, $graphLookup and $merge: parsed, not run. */
static void fuzz_foreign(FuzzInput *in, DocBuilder *b, Str stage) {
    if (str_is(stage, "$merge")) {
        build_cstr(b, "into", "other");
        build_cstr(b, "on", PATHS[fuzz_take(in) % ARRAY_LEN(PATHS)]);
        return;
    }
    bool is_graph = str_is(stage, "$graphLookup");
    build_cstr(b, "from", "other");
    build_cstr(b, "as", PATHS[fuzz_take(in) % ARRAY_LEN(PATHS)]);
    if (is_graph)
        fuzz_expr(in, b, STR("startWith"), 2);
    build_cstr(b, is_graph ? "connectFromField" : "localField", "a");
    build_cstr(b, is_graph ? "connectToField" : "foreignField", "b.a");
}

static void fuzz_stage(FuzzInput *in, DocBuilder *b, Str index) {
    size_t stage = build_open_doc_str(b, index);
    Str name = take_name(in, STAGES, ARRAY_LEN(STAGES));
    uint8_t choice = fuzz_take(in);
    if (choice < 16) {
        fuzz_expr(in, b, name, 3); /* anything */
    } else if (fuzz_small_stage(in, b, name, choice)) {
        ;
    } else if (str_is(name, "$redact") || str_is(name, "$replaceWith")) {
        fuzz_expr(in, b, name, 2);
    } else if (str_is(name, "$facet")) {
        size_t facets = build_open_doc_str(b, name);
        for (uint32_t i = 0; i < 1 + choice % 3u; i++) {
            size_t array = build_open_array(b, PATHS[i]);
            if (choice & 1)
                fuzz_stage(in, b, STR("0"));
            build_close(b, array);
        }
        build_close(b, facets);
    } else if (str_is(name, "$sample")) {
        size_t sample = build_open_doc_str(b, name);
        build_i32(b, "size", choice % 5);
        build_close(b, sample);
    } else if (str_is(name, "$documents")) {
        size_t docs = build_open_array_str(b, name);
        for (uint32_t i = 0; i < choice % 4u; i++) {
            char buffer[INDEX_NAME_SIZE];
            size_t doc = build_open_doc_str(b, index_name(i, buffer));
            fuzz_expr(in, b, STR("a"), 2);
            build_close(b, doc);
        }
        build_close(b, docs);
    } else if (str_is(name, "$bucketAuto")) {
        size_t bucket = build_open_doc_str(b, name);
        fuzz_expr(in, b, STR("groupBy"), 2);
        build_i32(b, "buckets", choice % 5);
        build_close(b, bucket);
    } else if (str_is(name, "$match") && choice < 96) {
        size_t filter = build_open_doc_str(b, name);
        size_t expr = build_open_doc(b, "$expr");
        size_t args = build_open_array(b, choice & 1 ? "$eq" : "$gt");
        fuzz_expr(in, b, STR("0"), 1);
        fuzz_expr(in, b, STR("1"), 1);
        build_close(b, args);
        build_close(b, expr);
        build_close(b, filter);
    } else if (str_is(name, "$match")) {
        in->names = FILTER_NAMES;
        in->name_count = ARRAY_LEN(FILTER_NAMES);
        size_t filter = build_open_doc_str(b, name);
        fuzz_fields(in, b, /* is_array= */ false, 3);
        build_close(b, filter);
    } else {
        size_t fields = build_open_doc_str(b, name);
        if (str_is(name, "$setWindowFields"))
            fuzz_windows(in, b);
        else if (str_is(name, "$densify"))
            fuzz_densify(in, b);
        else if (str_is(name, "$fill"))
            fuzz_fill(in, b);
        else if (str_is(name, "$bucket"))
            fuzz_bucket(in, b);
        else if (str_is(name, "$replaceRoot"))
            fuzz_expr(in, b, STR("newRoot"), 2);
        else if (str_is(name, "$lookup") || str_is(name, "$graphLookup") || str_is(name, "$merge"))
            fuzz_foreign(in, b, name);
        else
            fuzz_stage_fields(in, b, name);
        build_close(b, fields);
    }
    build_close(b, stage);
}

static ErrCode count_down(void *arg, Error *err) {
    int *left = arg;
    return --*left > 0 ? ERR_OK : error_set(err, ERR_INTERRUPTED, "long enough");
}

/* The results as one array of documents. */
static ErrCode run(const Pipeline *pipeline, const Doc *docs, uint32_t count, Arena *arena,
                   Doc *ret_results) {
    Error err = {0};
    int left = 500;
    AggExecContext ctx = {.check = {count_down, &left}, .stage_memory_bytes = 1 << 20};
    DocArraySource source = {.docs = docs, .count = count};
    PipelineExec *exec = NULL;
    ErrCode rc = pipeline_exec_new(pipeline, doc_array_source(&source), &ctx, &exec, &err);
    if (rc != ERR_OK) { /* a source that cannot be opened: $documents of no array */
        error_reset(&err);
        return rc;
    }
    Buffer buf;
    buffer_init_arena(&buf, arena, 256, BUFFER_UNBOUNDED);
    DocBuilder b;
    doc_builder_init(&b, &buf);
    bool found = true;
    for (uint32_t i = 0; rc == ERR_OK && found; i++) {
        Doc doc;
        rc = pipeline_exec_next(exec, &found, &doc, &err);
        char name[INDEX_NAME_SIZE];
        if (rc == ERR_OK && found)
            build_value_as(&b, index_name(i, name), value_doc(doc));
    }
    *ret_results = doc_builder_end(&b);
    if (rc == ERR_OK && buf.overflowed)
        rc = ERR_OVERFLOW;
    pipeline_exec_free(exec);
    error_reset(&err);
    return rc;
}

static bool uses_name(Doc stages, Str name) {
    DocIter iter = doc_iter(stages);
    for (Elem elem; doc_iter_next(&iter, &elem);) {
        if (elem_name_is(elem, name))
            return true;
        bool is_nested = elem_type(elem) == BT_DOC || elem_type(elem) == BT_ARRAY;
        if (is_nested && uses_name(elem_doc(elem), name))
            return true;
    }
    return false;
}

/* Chance would make two runs differ. */
static bool is_repeatable(Doc stages) {
    return !uses_name(stages, STR("$rand")) && !uses_name(stages, STR("$sample"));
}

/* Over two or three parts, by the optimized pipeline. The parts may reach a document that makes
 * them fail, such as one behind a limit. */
static void check_split(const Pipeline *pipeline, const AggParseContext *parse, const Doc *docs,
                        uint32_t count, Doc stages, Doc expected, Arena *arena) {
    Error err = {0};
    int left = 2000;
    AggExecContext exec = {.check = {count_down, &left}, .stage_memory_bytes = 1 << 20};
    SplitRun run = {
        .parse = parse,
        .exec = &exec,
        .docs = docs,
        .count = count,
        .part_count = 2 + count % 2,
        .ends = {count / 3, count - count % 2 * (count / 4), count},
    };
    Doc results;
    ErrCode rc = split_run(pipeline, &run, arena, &results, &err);
    /* Deviations are rounded otherwise. */
    bool is_comparable = rc == ERR_OK && is_repeatable(stages) &&
                         !uses_name(stages, STR("$stdDevPop")) &&
                         !uses_name(stages, STR("$stdDevSamp"));
    if (is_comparable && !doc_equal_bytes(results, expected)) {
        fprintf(stderr, "%s\n  whole %s\n  split %s\n", shell_text_of_doc(stages, arena),
                shell_text_of_doc(expected, arena), shell_text_of_doc(results, arena));
        invariant(false);
    }
    error_reset(&err);
}

static void check_pipeline(FuzzInput *in, Doc stages, bool is_collectionless, bool is_internal,
                           Arena *arena) {
    Error err = {0};
    AggParseContext ctx = {.is_collectionless = is_collectionless, .is_internal = is_internal};
    Pipeline *plain;
    Pipeline *optimized;
    ErrCode rc = pipeline_parse(stages, &ctx, arena, &plain, &err);
    if (rc != ERR_OK) {
        invariant(rc == err.code);
        error_reset(&err);
        return;
    }
    invariant(pipeline_parse(stages, &ctx, arena, &optimized, &err) == ERR_OK);
    pipeline_optimize(optimized);
    PathSet paths = path_set(arena);
    pipeline_needed_paths(optimized, &paths);

    in->names = PATHS;
    in->name_count = 5;
    Doc docs[DOCS_MAX];
    uint32_t count = 0;
    while (count < DOCS_MAX && fuzz_next_doc(in, /* is_raw= */ false, arena, &docs[count]))
        count++;
    Doc plain_results;
    Doc optimized_results;
    if (pipeline_uses_foreign(plain))
        return; /* nobody is there to open them */
    rc = run(plain, docs, count, arena, &plain_results);
    Projection *only = project_only(&paths, /* is_deep= */ false, arena);
    /* Which of two fields of one name counts is open. */
    for (uint32_t i = 0; i < count; i++) {
        if (doc_validate(docs[i].data, doc_size(docs[i]), 1000, VALIDATE_UNIQUE, &err) != ERR_OK)
            only = NULL;
        error_reset(&err);
    }
    for (uint32_t i = 0; only != NULL && i < count; i++) {
        Buffer *narrowed = ARENA_NEW(arena, Buffer);
        buffer_init_arena(narrowed, arena, 256, BUFFER_UNBOUNDED);
        ProjectInput input = {0};
        if (project_apply(only, docs[i], &input, narrowed, &docs[i], &err) != ERR_OK) {
            error_reset(&err); /* nested deeper than projections go */
            return;
        }
    }
    ErrCode optimized_rc = run(optimized, docs, count, arena, &optimized_results);
    /* The optimized one may not reach the document that makes the plain one fail. */
    if (rc == ERR_OK && optimized_rc == ERR_OK && is_repeatable(stages)) {
        if (!doc_equal_bytes(plain_results, optimized_results))
            fprintf(stderr, "%s\n  plain     %s\n  optimized %s\n",
                    shell_text_of_doc(stages, arena), shell_text_of_doc(plain_results, arena),
                    shell_text_of_doc(optimized_results, arena));
        invariant(doc_equal_bytes(plain_results, optimized_results));
    }
    if (rc == ERR_OK) {
        /* An expression of $match may be moved before a filter that spared it a bad document. */
        invariant(optimized_rc == ERR_OK || optimized_rc == ERR_INTERRUPTED ||
                  !is_repeatable(stages) || uses_name(stages, STR("$expr")));
        if (!is_internal) /* else it is a part already */
            check_split(optimized, &ctx, docs, count, stages, plain_results, arena);
        rc = doc_validate(plain_results.data, doc_size(plain_results), 1000, VALIDATE_BASIC, &err);
        invariant(rc == ERR_OK || rc == ERR_OVERFLOW);
        error_reset(&err);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 2)
        return 0;
    FuzzInput in = {data + 1, data + size, PATHS, ARRAY_LEN(PATHS)};
    bool is_collectionless = data[0] % 8 == 2;
    bool is_internal = data[0] % 8 == 3;
    Arena arena;
    arena_init(&arena, 0);
    Doc stages;
    if (data[0] == 0) {
        if (fuzz_next_doc(&in, /* is_raw= */ true, &arena, &stages))
            check_pipeline(&in, stages, is_collectionless, is_internal, &arena);
    } else {
        Buffer buf;
        buffer_init_arena(&buf, &arena, 256, BUFFER_UNBOUNDED);
        DocBuilder b;
        doc_builder_init(&b, &buf);
        uint32_t count = fuzz_take(&in) % STAGES_MAX;
        for (uint32_t i = 0; i < count; i++) {
            char name[INDEX_NAME_SIZE];
            fuzz_stage(&in, &b, index_name(i, name));
        }
        stages = doc_builder_end(&b);
        if (!buf.overflowed)
            check_pipeline(&in, stages, is_collectionless, is_internal, &arena);
    }
    arena_done(&arena);
    return 0;
}
