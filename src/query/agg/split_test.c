/*
 * split_test.c - pipelines over several shards: what the parts are, and that together they give
 * what the whole gives. The tables of the other tests are run split as well
 * (pipeline_cases_test.c).
 */
#include <math.h>

#include "base/alloc.h"
#include "base/prng.h"
#include "base/test.h"
#include "bson/json_docs_test.h"
#include "bson/collator.h"
#include "bson/json.h"
#include "query/agg/pipeline_cases_test.h"
#include "query/agg/split_run_test.h"
#include "query/sort/memory_spill_test.h"

/* ---- what becomes of a pipeline ---- */

typedef struct SplitCase {
    const char *pipeline;
    const char *shards;
    const char *merge;
    const char *sort; /* NULL: not sorted; "": by random keys */
    AggMerger merger;
} SplitCase;

static bool is_in_many(void *arg, Str db, Str coll) {
    (void)arg, (void)db;
    return str_is(coll, "many");
}

TEST(stages_go_to_the_shards_or_the_merger_or_both) {
    static const SplitCase CASES[] = {
        {"[]", "[]", "[]", NULL, AGG_MERGER_ANY},
        {"[{'$match':{'a':1}},{'$unwind':'$a'},{'$set':{'b':1}},{'$unset':'c'},"
         "{'$replaceWith':'$d'},{'$redact':'$$KEEP'}]",
         "[{'$match':{'a':1}},{'$unwind':'$a'},{'$set':{'b':1}},{'$unset':'c'},"
         "{'$replaceWith':'$d'},{'$redact':'$$KEEP'}]",
         "[]", NULL, AGG_MERGER_ANY},
        {"[{'$match':{'a':1}},{'$group':{'_id':'$k','n':{'$sum':1}}},{'$match':{'n':2}}]",
         "[{'$match':{'a':1}},{'$group':{'_id':'$k','n':{'$sum':1},'$willBeMerged':true}}]",
         "[{'$group':{'_id':'$k','n':{'$sum':1},'$doingMerge':true}},{'$match':{'n':2}}]", NULL,
         AGG_MERGER_ANY},
        {"[{'$sort':{'a':1}},{'$skip':2},{'$limit':3}]",
         "[{'$sort':{'a':1}},{'$limit':{'$numberLong':'5'}},{'$_internalAddSortKey':{'a':1}}]",
         "[{'$limit':{'$numberLong':'5'}},{'$skip':{'$numberLong':'2'}}]", "{'a':1}",
         AGG_MERGER_ANY},
        {"[{'$sort':{'a':1}},{'$project':{'b':1}}]",
         "[{'$sort':{'a':1}},{'$project':{'a':1,'b':1,'_id':1}},{'$_internalAddSortKey':{'a':1}}]",
         "[{'$project':{'b':1}}]", "{'a':1}", AGG_MERGER_ANY},
        {"[{'$skip':2},{'$limit':3}]", "[{'$limit':{'$numberLong':'5'}}]",
         "[{'$limit':{'$numberLong':'5'}},{'$skip':{'$numberLong':'2'}}]", NULL, AGG_MERGER_ANY},
        {"[{'$limit':3},{'$project':{'b.c':1,'_id':0}}]",
         "[{'$limit':{'$numberLong':'3'}},{'$project':{'_id':0,'b':1}}]",
         "[{'$limit':{'$numberLong':'3'}},{'$project':{'b.c':1,'_id':0}}]", NULL, AGG_MERGER_ANY},
        {"[{'$sample':{'size':3}},{'$project':{'b':1,'_id':0}}]",
         "[{'$project':{'_id':0,'b':1}},"
         "{'$sample':{'size':{'$numberLong':'3'},'$willBeMerged':true}}]",
         "[{'$limit':{'$numberLong':'3'}},{'$project':{'b':1,'_id':0}}]", "", AGG_MERGER_ANY},
        {"[{'$skip':2}]", "[]", "[{'$skip':{'$numberLong':'2'}}]", NULL, AGG_MERGER_ANY},
        {"[{'$count':'x'}]", "[{'$count':'n'}]",
         "[{'$group':{'_id':null,'n':{'$sum':'$n'}}},{'$replaceRoot':{'newRoot':{'x':'$n'}}}]",
         NULL, AGG_MERGER_ANY},
        {"[{'$sample':{'size':3}}]",
         "[{'$sample':{'size':{'$numberLong':'3'},'$willBeMerged':true}}]",
         "[{'$limit':{'$numberLong':'3'}}]", "", AGG_MERGER_ANY},
        {"[{'$sortByCount':'$a'}]",
         "[{'$group':{'_id':'$a','count':{'$sum':1},'$willBeMerged':true}}]",
         "[{'$group':{'_id':'$a','count':{'$sum':1},'$doingMerge':true}},{'$sort':{'count':-1}}]",
         NULL, AGG_MERGER_ANY},
        {"[{'$unwind':'$a'},{'$bucketAuto':{'groupBy':'$a','buckets':2}}]",
         "[{'$project':{'_id':0,'a':1}}]",
         "[{'$unwind':'$a'},{'$bucketAuto':{'groupBy':'$a','buckets':2}}]", NULL, AGG_MERGER_ANY},
        {"[{'$match':{'a':1}},{'$setWindowFields':{'output':{'n':{'$sum':1}}}}]",
         "[{'$match':{'a':1}}]", "[{'$_internalSetWindowFields':{'output':{'n':{'$sum':1}}}}]",
         NULL, AGG_MERGER_ANY},
        {"[{'$facet':{'x':[{'$count':'n'}]}}]", "[]", "[{'$facet':{'x':[{'$count':'n'}]}}]", NULL,
         AGG_MERGER_ANY},
        {"[{'$facet':{'x':[{'$lookup':{'from':'one','pipeline':[],'as':'f'}}]}}]", "[]",
         "[{'$facet':{'x':[{'$lookup':{'from':'one','pipeline':[],'as':'f'}}]}}]", NULL,
         AGG_MERGER_PRIMARY},
        {"[{'$lookup':{'from':'many','localField':'a','foreignField':'b','as':'c'}},"
         "{'$unwind':{'path':'$c','includeArrayIndex':'i'}},{'$limit':2}]",
         "[{'$lookup':{'from':'many','localField':'a','foreignField':'b','as':'c'}},"
         "{'$unwind':{'path':'$c','includeArrayIndex':'i'}},{'$limit':{'$numberLong':'2'}}]",
         "[{'$limit':{'$numberLong':'2'}}]", NULL, AGG_MERGER_ANY},
        {"[{'$lookup':{'from':'one','localField':'a','foreignField':'b','as':'c'}}]", "[]",
         "[{'$lookup':{'from':'one','localField':'a','foreignField':'b','as':'c'}}]", NULL,
         AGG_MERGER_PRIMARY},
        {"[{'$lookup':{'from':'many','pipeline':[{'$unionWith':'one'}],'as':'c'}}]", "[]",
         "[{'$lookup':{'from':'many','as':'c','pipeline':[{'$unionWith':'one'}]}}]", NULL,
         AGG_MERGER_PRIMARY},
        {"[{'$unionWith':'one'}]", "[]", "[{'$unionWith':{'coll':'one','pipeline':[]}}]", NULL,
         AGG_MERGER_SHARD},
        {"[{'$match':{'a':1}},{'$merge':'many'}]", "[{'$match':{'a':1}},{'$merge':'many'}]", "[]",
         NULL, AGG_MERGER_ANY},
        {"[{'$match':{'a':1}},{'$merge':'one'}]", "[{'$match':{'a':1}}]", "[{'$merge':'one'}]",
         NULL, AGG_MERGER_PRIMARY},
        {"[{'$sort':{'a':1}},{'$merge':'many'}]",
         "[{'$sort':{'a':1}},{'$_internalAddSortKey':{'a':1}}]", "[{'$merge':'many'}]", "{'a':1}",
         AGG_MERGER_SHARD},
        {"[{'$out':'many'}]", "[]", "[{'$out':'many'}]", NULL, AGG_MERGER_PRIMARY},
    };
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        const SplitCase *c = &CASES[i];
        CLEANUP(arena_done) Arena arena = {0};
        CLEANUP(error_reset) Error err = {0};
        AggParseContext parse = {.now_ms = 1000};
        SplitRun run = {.parse = &parse, .split = {.is_sharded = is_in_many}};
        Pipeline *pipeline = NULL;
        SplitParts parts = {0};
        Doc stages = pipeline_test_array(c->pipeline, &arena);
        REQUIRE_OK(pipeline_parse(stages, &parse, &arena, &pipeline, &err), err);
        pipeline_optimize(pipeline);
        EXPECT_OK(split_parts(pipeline, &run, &arena, &parts, &err), err);
        Doc shards = pipeline_test_array(c->shards, &arena);
        Doc merge = pipeline_test_array(c->merge, &arena);
        if (!doc_equal_bytes(parts.split.shards, shards) ||
            !doc_equal_bytes(parts.split.merge, merge))
            test_fail(__FILE__, __LINE__, "%s becomes\n  %s\n  %s", c->pipeline,
                      test_json(parts.split.shards, &arena), test_json(parts.split.merge, &arena));
        EXPECT(parts.split.is_sorted == (c->sort != NULL));
        EXPECT(doc_is_present(parts.split.sort) == (c->sort != NULL && c->sort[0] != '\0'));
        if (doc_is_present(parts.split.sort))
            EXPECT(doc_equal_bytes(parts.split.sort, pipeline_test_array(c->sort, &arena)));
        if (parts.split.merger != c->merger)
            test_fail(__FILE__, __LINE__, "%s has merger %d", c->pipeline, parts.split.merger);
    }
}

TEST(a_source_that_runs_once_has_no_shard_part) {
    CLEANUP(arena_done) Arena arena = {0};
    CLEANUP(error_reset) Error err = {0};
    AggParseContext parse = {.is_collectionless = true};
    AggSplitContext ctx = {0};
    Pipeline *pipeline = NULL;
    PipelineSplit split;
    Doc stages = pipeline_test_array("[{'$documents':[{'a':1}]},{'$sort':{'a':1}}]", &arena);
    REQUIRE_OK(pipeline_parse(stages, &parse, &arena, &pipeline, &err), err);
    pipeline_split(pipeline, &ctx, &arena, &split);
    EXPECT(!split.has_shard_part);
    EXPECT(!split.is_sorted);
    EXPECT(doc_equal_bytes(split.merge, stages));
}

TEST(what_nodes_say_among_themselves_is_refused_from_users) {
    static const PipelineErrorCase CASES[] = {
        {"[{'$_internalAddSortKey':{'a':1}}]", 5491300, "not allowed in user requests"},
        {"[{'$group':{'_id':1,'$doingMerge':true}}]", 40236, "cannot be an operator name"},
        {"[{'$group':{'_id':1,'$willBeMerged':true}}]", 40236, "cannot be an operator name"},
        {"[{'$sample':{'size':1,'$willBeMerged':true}}]", 28748, "unrecognized option"},
    };
    pipeline_run_error_cases(CASES, ARRAY_LEN(CASES));
}

/* ---- random documents ---- */

enum {
    RANDOM_DOCS = 240,
};

static double random_double(Prng *prng) {
    double mantissa = (double)prng_u64(prng) / 0x1p63 - 1;
    return ldexp(mantissa, (int)prng_below(prng, 120) - 60);
}

static void build_random_number(DocBuilder *b, Str name, Prng *prng) {
    CLEANUP(arena_done) Arena scratch = {0};
    Number number = number_i32((int32_t)prng_u64(prng));
    switch (prng_below(prng, 8)) {
    case 0:
        number = number_i64((int64_t)prng_u64(prng));
        break;
    case 1:
        number = number_i32((int32_t)prng_below(prng, 10));
        break;
    case 2: {
        char text[32];
        snprintf(text, sizeof(text), "%d.%03d", (int)prng_below(prng, 2000000) - 1000000,
                 (int)prng_below(prng, 1000));
        number = number_decimal(DECIMAL128_ZERO);
        REQUIRE(dec_from_text(str_from(text), &number.dec));
        break;
    }
    case 3:
        break;
    default:
        number = number_f64(random_double(prng));
    }
    build_value_as(b, name, value_number(number, &scratch));
}

/* {_id, k: key, s: text, d: double, n: number of any type, v: anything, o: object, a: array} */
static Doc random_doc(Prng *prng, int id, Arena *arena) {
    static const char *const TEXTS[] = {"a", "A", "b", "B", "ba", "\xc3\xa4", "Z", ""};
    DocBuilder b = doc_builder_in_arena(arena);
    build_i32(&b, "_id", id);
    if (prng_below(prng, 2))
        build_cstr(&b, "k", TEXTS[prng_below(prng, ARRAY_LEN(TEXTS))]);
    else if (prng_below(prng, 4) > 0)
        build_f64(&b, "k", (double)prng_below(prng, 5));
    build_cstr(&b, "s", TEXTS[prng_below(prng, ARRAY_LEN(TEXTS))]);
    build_f64(&b, "d", random_double(prng));
    build_f64(&b, "x", 1000 + (double)prng_below(prng, 1000000) / 1000);
    build_random_number(&b, STR("n"), prng);
    switch (prng_below(prng, 5)) {
    case 0:
        build_cstr(&b, "v", TEXTS[prng_below(prng, ARRAY_LEN(TEXTS))]);
        break;
    case 1:
        build_null(&b, "v");
        break;
    case 2:
        break;
    default:
        build_random_number(&b, STR("v"), prng);
    }
    size_t object = build_open_doc(&b, "o");
    build_i32(&b, prng_below(prng, 2) ? "p" : "q", id);
    build_close(&b, object);
    size_t array = build_open_array(&b, "a");
    for (uint32_t i = (uint32_t)prng_below(prng, 4); i-- > 0;) {
        char name[INDEX_NAME_SIZE];
        build_i32(&b, index_name(i, name).data, (int32_t)prng_below(prng, 9));
    }
    build_close(&b, array);
    return doc_builder_end(&b);
}

/* Each accumulator that there is. */
static const struct {
    const char *name;
    const char *fields; /* of a $group */
} ACCUMULATORS[] = {
    {"$addToSet", "'x':{'$addToSet':'$v'},'y':{'$addToSet':'$s'}"},
    {"$avg", "'x':{'$avg':'$d'},'y':{'$avg':'$n'},'z':{'$avg':'$none'}"},
    {"$bottom", "'x':{'$bottom':{'sortBy':{'s':1},'output':'$_id'}},"
                "'y':{'$bottom':{'sortBy':{'a':-1,'s':1},'output':'$v'}}"},
    {"$bottomN", "'x':{'$bottomN':{'n':3,'sortBy':{'s':1},'output':['$_id','$s']}}"},
    {"$count", "'x':{'$count':{}}"},
    {"$first", "'x':{'$first':'$v'}"},
    {"$firstN", "'x':{'$firstN':{'n':4,'input':'$v'}}"},
    {"$last", "'x':{'$last':'$v'}"},
    {"$lastN", "'x':{'$lastN':{'n':4,'input':'$v'}}"},
    {"$max", "'x':{'$max':'$v'},'y':{'$max':'$s'}"},
    {"$maxN", "'x':{'$maxN':{'n':3,'input':'$v'}},'y':{'$maxN':{'n':5,'input':'$s'}}"},
    {"$median", "'x':{'$median':{'input':'$n','method':'approximate'}}"},
    {"$mergeObjects", "'x':{'$mergeObjects':'$o'}"},
    {"$min", "'x':{'$min':'$v'},'y':{'$min':'$none'}"},
    {"$minN", "'x':{'$minN':{'n':3,'input':'$v'}}"},
    {"$percentile", "'x':{'$percentile':{'input':'$d','p':[0,0.3,0.9,1],'method':'approximate'}}"},
    {"$push", "'x':{'$push':'$v'},'y':{'$push':'$_id'}"},
    {"$stdDevPop", "'x':{'$stdDevPop':'$x'},'y':{'$stdDevPop':'$none'}"},
    {"$stdDevSamp", "'x':{'$stdDevSamp':'$x'}"},
    {"$sum", "'x':{'$sum':'$d'},'y':{'$sum':'$n'},'z':{'$sum':'$v'},'w':{'$sum':'$none'}"},
    {"$top", "'x':{'$top':{'sortBy':{'s':1},'output':'$_id'}}"},
    {"$topN", "'x':{'$topN':{'n':3,'sortBy':{'s':-1},'output':['$_id','$s']}}"},
};

static const char *const PIPELINES[] = {
    "[{'$sort':{'s':1,'d':-1}}]",
    "[{'$sort':{'s':1}},{'$limit':7}]",
    "[{'$sort':{'s':-1,'_id':1}},{'$skip':5},{'$limit':9},{'$project':{'s':1}}]",
    "[{'$sort':{'a':1,'s':1}},{'$group':{'_id':'$k','f':{'$first':'$_id'},'l':{'$last':'$s'}}}]",
    "[{'$sort':{'v':1}},{'$group':{'_id':null,'p':{'$push':'$_id'}}}]",
    "[{'$unwind':'$a'},{'$sortByCount':'$a'}]",
    "[{'$unwind':'$a'},{'$sort':{'a':-1,'s':1}},{'$match':{'a':{'$gt':3}}},{'$limit':11}]",
    "[{'$bucket':{'groupBy':'$x','boundaries':[0,1200,1500,3000],"
    "'output':{'n':{'$sum':'$d'},'p':{'$push':'$s'}}}}]",
    "[{'$bucketAuto':{'groupBy':'$x','buckets':4,'output':{'n':{'$sum':'$d'}}}}]",
    "[{'$match':{'s':'a'}},{'$count':'_id'}]",
    "[{'$match':{'s':'none'}},{'$count':'c'}]",
    "[{'$limit':20},{'$group':{'_id':'$s','n':{'$sum':1}}}]",
    "[{'$skip':20},{'$project':{'s':1}}]",
    "[{'$group':{'_id':'$k','n':{'$sum':'$d'}}},{'$match':{'_id':{'$in':['a',3]}}}]",
    "[{'$group':{'_id':{'k':'$k','s':'$s'},'n':{'$avg':'$d'}}},"
    "{'$group':{'_id':'$_id.k','m':{'$max':'$n'},'c':{'$sum':1}}},{'$sort':{'c':1,'_id':1}}]",
    "[{'$setWindowFields':{'partitionBy':'$s','sortBy':{'x':1},'output':{'r':{'$sum':'$d',"
    "'window':{'documents':['unbounded','current']}}}}}]",
    "[{'$facet':{'a':[{'$sort':{'d':1}},{'$limit':2}],'b':[{'$sortByCount':'$s'}]}}]",
};

typedef struct RandomDocs {
    Doc docs[RANDOM_DOCS];
    Prng prng;
    const Collator *collator;
} RandomDocs;

static void check_random(const char *stages, RandomDocs *input, size_t memory_bytes) {
    CLEANUP(arena_done) Arena arena = {0};
    CLEANUP(error_reset) Error err = {0};
    CLEANUP(spill_free) MemorySpill memory = {0};
    Spill spill = memory_spill_interface(&memory);
    AggParseContext parse = {.now_ms = 1000, .expr.collator = input->collator};
    AggExecContext plenty = {.now_ms = 1000, .collator = input->collator};
    AggExecContext exec = plenty;
    exec.stage_memory_bytes = memory_bytes;
    exec.allow_disk_use = memory_bytes > 0;
    exec.spill = memory_bytes > 0 ? &spill : NULL;
    Prng *prng = &input->prng;
    SplitRun run = {
        .parse = &parse,
        .exec = &plenty,
        .is_optimized = prng_below(prng, 2),
        .docs = input->docs,
        .count = RANDOM_DOCS,
        .part_count = SPLIT_PARTS_MAX,
    };
    for (uint32_t i = 0; i < SPLIT_PARTS_MAX; i++)
        run.ends[i] = (uint32_t)prng_below(prng, RANDOM_DOCS / SPLIT_PARTS_MAX) +
                      i * RANDOM_DOCS / SPLIT_PARTS_MAX;
    run.ends[SPLIT_PARTS_MAX - 1] = RANDOM_DOCS;
    Doc whole = DOC_EMPTY;
    Doc split = DOC_EMPTY;
    Pipeline *pipeline = NULL;
    Doc spec = pipeline_test_array(stages, &arena);
    REQUIRE_OK(pipeline_parse(spec, &parse, &arena, &pipeline, &err), err);
    EXPECT_OK(split_run_whole(pipeline, &run, &arena, &whole, &err), err);
    EXPECT(!doc_is_empty(whole) || strstr(stages, "none") != NULL);
    if (run.is_optimized)
        pipeline_optimize(pipeline);
    run.exec = &exec;
    EXPECT_OK(split_run(pipeline, &run, &arena, &split, &err), err);
    double tolerance = strstr(stages, "$stdDev") != NULL ? 1e-12 : 0;
    if (!split_results_agree(whole, split, tolerance))
        test_fail(__FILE__, __LINE__, "%s%s%s, split\n  gives    %s\n  expected %s", stages,
                  run.is_optimized ? ", optimized" : "",
                  input->collator != NULL ? ", with a collation" : "", test_json(split, &arena),
                  test_json(whole, &arena));
}

TEST(divided_documents_give_what_all_of_them_give) {
    /* Goal: every accumulator and the stages that are split give the same bytes over four parts as
     * over the whole, with a collation and without. Method: random documents of many types. */
    CLEANUP(arena_done) Arena arena = {0};
    CLEANUP(error_reset) Error err = {0};
    const Collator *collator = NULL;
    REQUIRE_OK(collator_parse(pipeline_test_array("{'locale':'en','strength':2}", &arena),
                              &collator, &err),
               err);
    RandomDocs *input = ARENA_NEW(&arena, RandomDocs);
    input->prng = prng_seeded(test_seed());
    enum { ROUNDS = 6 };
    for (int round = 0; round < ROUNDS; round++) {
        CLEANUP(arena_done) Arena docs_arena = {0};
        for (int i = 0; i < RANDOM_DOCS; i++)
            input->docs[i] = random_doc(&input->prng, i, &docs_arena);
        input->collator = round % 2 == 1 ? collator : NULL;
        for (size_t i = 0; i < ARRAY_LEN(ACCUMULATORS); i++) {
            check_random(
                arena_printf(&docs_arena, "[{'$group':{'_id':'$k',%s}}]", ACCUMULATORS[i].fields),
                input, 0);
            /* A group that does not fit comes out later: the order is not that of one pass. */
            check_random(arena_printf(&docs_arena,
                                      "[{'$group':{'_id':{'k':'$k','s':'$s'},%s}},"
                                      "{'$sort':{'_id':1}}]",
                                      ACCUMULATORS[i].fields),
                         input, 40000);
        }
        for (size_t i = 0; i < ARRAY_LEN(PIPELINES); i++)
            check_random(PIPELINES[i], input, 0);
    }
}

TEST(no_accumulator_is_left_out) {
    static const char *const NAMES[] = {
#define ACCUMULATOR(name, class) name,
#define ACCUMULATOR_REFUSED(name)
#include "query/agg/accumulators.def"
#undef ACCUMULATOR
#undef ACCUMULATOR_REFUSED
    };
    EXPECT_EQ_U64(ARRAY_LEN(NAMES), ARRAY_LEN(ACCUMULATORS));
    for (size_t i = 0; i < ARRAY_LEN(NAMES) && i < ARRAY_LEN(ACCUMULATORS); i++)
        EXPECT_STR(NAMES[i], ACCUMULATORS[i].name);
}

/* ---- merging by sort keys ---- */

typedef struct FailingSource {
    DocArraySource docs;
    uint32_t asked_count;
    uint32_t fails_at;
} FailingSource;

static ErrCode failing_next(void *arg, bool *ret_found, Doc *ret_doc, Error *err) {
    FailingSource *source = arg;
    if (++source->asked_count == source->fails_at)
        return error_set(err, ERR_INTERRUPTED, "not now");
    DocSource docs = doc_array_source(&source->docs);
    return docs.next(docs.arg, ret_found, ret_doc, err);
}

static Doc keyed_doc(int key, uint32_t source, Arena *arena) {
    CLEANUP(error_reset) Error err = {0};
    DocBuilder b = doc_builder_in_arena(arena);
    build_i32(&b, "k", key);
    build_i32(&b, "$sortKey", (int32_t)source); /* a field of the document's own */
    Buffer *buf = ARENA_NEW(arena, Buffer);
    buffer_init_arena(buf, arena, 64, BUFFER_UNBOUNDED);
    char bytes = (char)key;
    Doc doc = DOC_EMPTY;
    EXPECT_OK(sort_key_attach(doc_builder_end(&b), (Str){&bytes, 1}, buf, &doc, &err), err);
    return doc;
}

TEST(merged_sources_are_in_order_and_ties_in_that_of_the_sources) {
    /* Failures of a source on the way lose nothing: fail the 1st, 2nd, ... call of each. */
    enum { SOURCES = 5, DOCS = 12 };
    for (uint32_t fails_at = 0; fails_at < DOCS + 2; fails_at++) {
        CLEANUP(arena_done) Arena arena = {0};
        CLEANUP(error_reset) Error err = {0};
        Prng prng = prng_seeded(test_seed() + fails_at);
        Doc docs[SOURCES][DOCS];
        FailingSource failing[SOURCES];
        DocSource sources[SOURCES];
        uint32_t total = 0;
        for (uint32_t i = 0; i < SOURCES; i++) {
            uint32_t count = (uint32_t)prng_below(&prng, DOCS + 1);
            int key = 0;
            for (uint32_t at = 0; at < count; at++) {
                key += (int)prng_below(&prng, 3);
                docs[i][at] = keyed_doc(key, i, &arena);
            }
            failing[i] =
                (FailingSource){.docs = {.docs = docs[i], .count = count}, .fails_at = fails_at};
            sources[i] = (DocSource){.arg = &failing[i], .next = failing_next};
            total += count;
        }
        CLEANUP(sorted_merge_free_ptr) SortedMerge *merge = sorted_merge_new(sources, SOURCES);
        DocSource merged = sorted_merge_source(merge);
        int last_key = -1;
        int last_source = -1;
        uint32_t found_count = 0;
        while (true) {
            bool found;
            Doc doc;
            ErrCode rc = merged.next(merged.arg, &found, &doc, &err);
            if (rc == ERR_INTERRUPTED)
                continue;
            REQUIRE_OK(rc, err);
            if (!found)
                break;
            found_count++;
            int key = (int)elem_as_i64(doc_get_lit(doc, "k"));
            int source = (int)elem_as_i64(doc_get_lit(doc, "$sortKey"));
            EXPECT(key > last_key || (key == last_key && source >= last_source));
            last_key = key;
            last_source = source;
        }
        EXPECT_EQ_U64(found_count, total);
    }
}

TEST(a_document_without_its_sort_key_is_refused) {
    CLEANUP(arena_done) Arena arena = {0};
    static const char *const DOCS[] = {"[{}]", "[{'a':1}]", "[{'$sortKey':1}]",
                                       "[{'a':1,'$sortKey':1}]"};
    for (size_t i = 0; i < ARRAY_LEN(DOCS); i++) {
        CLEANUP(error_reset) Error err = {0};
        Doc docs[PIPELINE_TEST_DOCS_MAX];
        DocArraySource array = {.docs = docs, .count = pipeline_test_docs(DOCS[i], &arena, docs)};
        DocSource source = doc_array_source(&array);
        CLEANUP(sorted_merge_free_ptr) SortedMerge *merge = sorted_merge_new(&source, 1);
        DocSource merged = sorted_merge_source(merge);
        bool found;
        Doc doc;
        EXPECT(merged.next(merged.arg, &found, &doc, &err) == ERR_BAD_VALUE);
    }
}

TEST(samples_of_several_shards_choose_all_documents_alike) {
    /* Two documents of twelve, on shards of 1, 2, 3 and 6: each comes in one of six times. */
    enum { DOCS = 12, ROUNDS = 6000 };
    CLEANUP(arena_done) Arena arena = {0};
    Doc docs[DOCS];
    for (int i = 0; i < DOCS; i++) {
        DocBuilder b = doc_builder_in_arena(&arena);
        build_i32(&b, "_id", i);
        docs[i] = doc_builder_end(&b);
    }
    AggParseContext parse = {0};
    AggExecContext exec = {0};
    SplitRun run = {.parse = &parse,
                    .exec = &exec,
                    .docs = docs,
                    .count = DOCS,
                    .part_count = 4,
                    .ends = {1, 3, 6, 12}};
    int chosen[DOCS] = {0};
    for (int round = 0; round < ROUNDS; round++) {
        CLEANUP(arena_done) Arena scratch = {0};
        CLEANUP(error_reset) Error err = {0};
        Pipeline *pipeline = NULL;
        Doc stages = pipeline_test_array("[{'$sample':{'size':2}}]", &scratch);
        Doc result = DOC_EMPTY;
        REQUIRE_OK(pipeline_parse(stages, &parse, &scratch, &pipeline, &err), err);
        REQUIRE_OK(split_run(pipeline, &run, &scratch, &result, &err), err);
        EXPECT_EQ_U64(doc_count(result), 2);
        DocIter iter = doc_iter(result);
        for (Elem elem; doc_iter_next(&iter, &elem);)
            chosen[elem_as_i64(doc_get_lit(elem_doc(elem), "_id"))]++;
    }
    /* 1,000 each, with a deviation of 29: eight times that does not happen. */
    for (int i = 0; i < DOCS; i++)
        if (chosen[i] < 770 || chosen[i] > 1230)
            test_fail(__FILE__, __LINE__, "document %d was chosen %d times", i, chosen[i]);
}

/* ---- partials from anywhere ---- */

TEST(what_is_no_partial_is_refused) {
    static const struct {
        const char *fields;
        const char *doc;
    } CASES[] = {
        {"'x':{'$sum':1}", "[{'_id':1}]"},
        {"'x':{'$sum':1}", "[{'_id':1,'y':{}}]"},
        {"'x':{'$sum':1}", "[{'_id':1,'x':5}]"},
        {"'x':{'$sum':1}", "[{'_id':1,'x':{}}]"},
        {"'x':{'$sum':1}", "[{'_id':1,'x':{'t':2,'n':{'$numberLong':'1'},'i':"
                           "{'$numberLong':'1'}}}]"},
        {"'x':{'$sum':1}", "[{'_id':1,'x':{'t':16,'n':{'$numberLong':'1'},'i':"
                           "[{'$numberLong':'9223372036854775807'},{'$numberLong':'0'}]}}]"},
        {"'x':{'$avg':1}", "[{'_id':1,'x':{'t':1,'n':{'$numberLong':'1'},'i':{'$numberLong':'0'},"
                           "'d':[{'$numberDouble':'Infinity'}]}}]"},
        {"'x':{'$push':1}", "[{'_id':1,'x':1}]"},
        {"'x':{'$addToSet':1}", "[{'_id':1,'x':null}]"},
        {"'x':{'$firstN':{'n':1,'input':1}}", "[{'_id':1,'x':{}}]"},
        {"'x':{'$top':{'sortBy':{'a':1},'output':1}}", "[{'_id':1,'x':[1]}]"},
        {"'x':{'$top':{'sortBy':{'a':1},'output':1}}", "[{'_id':1,'x':[{'k':1}]}]"},
        {"'x':{'$stdDevPop':1}", "[{'_id':1,'x':{'n':1}}]"},
        {"'x':{'$median':{'input':1,'method':'approximate'}}", "[{'_id':1,'x':[1]}]"},
        {"'x':{'$median':{'input':1,'method':'approximate'}}",
         "[{'_id':1,'x':{'$binary':{'base64':'AAAA','subType':'00'}}}]"},
    };
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        CLEANUP(arena_done) Arena arena = {0};
        CLEANUP(error_reset) Error err = {0};
        AggParseContext parse = {.is_internal = true};
        AggExecContext exec = {0};
        Pipeline *pipeline = NULL;
        Doc docs[PIPELINE_TEST_DOCS_MAX];
        const char *stages = arena_printf(&arena, "[{'$group':{'_id':null,%s,'$doingMerge':true}}]",
                                          CASES[i].fields);
        REQUIRE_OK(
            pipeline_parse(pipeline_test_array(stages, &arena), &parse, &arena, &pipeline, &err),
            err);
        DocArraySource source = {.docs = docs,
                                 .count = pipeline_test_docs(CASES[i].doc, &arena, docs)};
        SplitDocs results = {0};
        ErrCode rc =
            split_collect(pipeline, doc_array_source(&source), &exec, &arena, &results, &err);
        if (rc != ERR_BAD_VALUE)
            test_fail(__FILE__, __LINE__, "%s of %s gives %d", CASES[i].fields, CASES[i].doc,
                      (int)rc);
    }
}
