/*
 * stages_test.c - $bucket, $bucketAuto, $redact, $facet and stages with other collections, case by
 * case; the collections are tables here.
 */
#include "base/alloc.h"
#include "base/test.h"
#include "query/agg/granularity.h"
#include "query/agg/pipeline_cases_test.h"
#include "bson/json_docs_test.h"

TEST(bucket_groups_by_ranges) {
    static const PipelineCase CASES[] = {
        {"[{'$bucket':{'groupBy':'$a','boundaries':[0,5,10]}}]",
         "[{'a':7},{'a':1},{'a':5},{'a':0}]", "[{'_id':0,'count':2},{'_id':5,'count':2}]"},
        {"[{'$bucket':{'groupBy':'$a','boundaries':[0,5],'default':'other'}}]",
         "[{'a':7},{'a':1},{'b':5}]", "[{'_id':0,'count':1},{'_id':'other','count':2}]"},
        {"[{'$bucket':{'groupBy':{'$add':['$a',1]},'boundaries':['a','b'],'default':0,"
         "'output':{'n':{'$sum':'$a'}}}}]",
         "[{'a':7},{'a':1}]", "[{'_id':0,'n':8}]"},
    };
    pipeline_run_cases(CASES, ARRAY_LEN(CASES));
    static const PipelineErrorCase ERRORS[] = {
        {"[{'$bucket':1}]", 40201, "must be an object"},
        {"[{'$bucket':{'groupBy':'a','boundaries':[0,1]}}]", 40202, "groupBy"},
        {"[{'$bucket':{'groupBy':'$a','boundaries':1}}]", 40200, "must be an array"},
        {"[{'$bucket':{'groupBy':'$a','boundaries':['$b',1]}}]", 40191, "constant"},
        {"[{'$bucket':{'groupBy':'$a','boundaries':[1]}}]", 40192, "at least 2"},
        {"[{'$bucket':{'groupBy':'$a','boundaries':[1,'a']}}]", 40193, "same type"},
        {"[{'$bucket':{'groupBy':'$a','boundaries':[1,1]}}]", 40194, "ascending"},
        {"[{'$bucket':{'groupBy':'$a','boundaries':[0,1],'default':'$a'}}]", 40195, "constant"},
        {"[{'$bucket':{'groupBy':'$a','boundaries':[0,1],'output':1}}]", 40196, "object"},
        {"[{'$bucket':{'groupBy':'$a','boundaries':[0,1],'x':1}}]", 40197, "Unrecognized"},
        {"[{'$bucket':{'groupBy':'$a'}}]", 40198, "requires"},
        {"[{'$bucket':{'groupBy':'$a','boundaries':[0,5],'default':1}}]", 40199, "lowest"},
        {"[{'$bucket':{'groupBy':'$a','boundaries':[3,5]}}]", 40066, "$switch"},
    };
    pipeline_run_error_cases(ERRORS, ARRAY_LEN(ERRORS));
}

TEST(bucket_auto_makes_buckets_of_like_size) {
    static const PipelineCase CASES[] = {
        {"[{'$bucketAuto':{'groupBy':'$a','buckets':2}}]", "[{'a':1},{'a':2},{'a':3},{'a':4}]",
         "[{'_id':{'min':1,'max':3},'count':2},{'_id':{'min':3,'max':4},'count':2}]"},
        {"[{'$bucketAuto':{'groupBy':'$a','buckets':2}}]", "[{'a':1},{'a':1},{'a':1},{'a':4}]",
         "[{'_id':{'min':1,'max':4},'count':3},{'_id':{'min':4,'max':4},'count':1}]"},
        {"[{'$bucketAuto':{'groupBy':'$a','buckets':5}}]", "[{'a':1},{'b':1}]",
         "[{'_id':{'min':null,'max':1},'count':1},{'_id':{'min':1,'max':1},'count':1}]"},
        {"[{'$bucketAuto':{'groupBy':'$a','buckets':2}}]", "[]", "[]"},
        {"[{'$bucketAuto':{'groupBy':'$a','buckets':1,'output':{'l':{'$push':'$a'}}}}]",
         "[{'a':3},{'a':1},{'a':2}]", "[{'_id':{'min':1,'max':3},'l':[1,2,3]}]"},
        {"[{'$bucketAuto':{'groupBy':'$a','buckets':2,'granularity':'R5'}}]",
         "[{'a':1},{'a':2},{'a':3},{'a':30}]",
         "[{'_id':{'min':0.63,'max':2.5},'count':2},{'_id':{'min':2.5,'max':40.0},'count':2}]"},
        {"[{'$bucketAuto':{'groupBy':'$a','buckets':2,'granularity':'POWERSOF2'}}]",
         "[{'a':1},{'a':2},{'a':3},{'a':30}]",
         "[{'_id':{'min':0.5,'max':4.0},'count':3},{'_id':{'min':4.0,'max':32.0},'count':1}]"},
    };
    pipeline_run_cases(CASES, ARRAY_LEN(CASES));
    static const PipelineErrorCase ERRORS[] = {
        {"[{'$bucketAuto':1}]", 40240, "must be an object"},
        {"[{'$bucketAuto':{'groupBy':'a','buckets':1}}]", 40239, "groupBy"},
        {"[{'$bucketAuto':{'groupBy':'$a','buckets':'x'}}]", 40241, "numeric"},
        {"[{'$bucketAuto':{'groupBy':'$a','buckets':1.5}}]", 40242, "32-bit"},
        {"[{'$bucketAuto':{'groupBy':'$a','buckets':0}}]", 40243, "greater than 0"},
        {"[{'$bucketAuto':{'groupBy':'$a','buckets':1,'output':1}}]", 40244, "object"},
        {"[{'$bucketAuto':{'groupBy':'$a','buckets':1,'x':1}}]", 40245, "Unrecognized"},
        {"[{'$bucketAuto':{'groupBy':'$a'}}]", 40246, "requires"},
        {"[{'$bucketAuto':{'groupBy':'$a','buckets':1,'granularity':'R6'}}]", 40257, "Unknown"},
        {"[{'$bucketAuto':{'groupBy':'$a','buckets':1,'granularity':1}}]", 40261, "string"},
        {"[{'$bucketAuto':{'groupBy':'$s','buckets':1,'granularity':'R5'}}]", 40258, "numeric"},
        {"[{'$bucketAuto':{'groupBy':{'$subtract':[0,'$a']},'buckets':1,'granularity':'R5'}}]",
         40260, "negative"},
    };
    pipeline_run_error_cases(ERRORS, ARRAY_LEN(ERRORS));
}

TEST(granularities_round_to_the_next_number_of_their_series) {
    static const struct {
        const char *name;
        double value, down, up;
    } CASES[] = {
        {"R5", 16, 10, 25},
        {"R5", 0.1, 0.063, 0.16},
        {"R80", 1, 0.975, 1.03},
        {"1-2-5", 20, 10, 50},
        {"1-2-5", 3, 2, 5},
        {"E6", 100, 68, 150},
        {"E24", 9.1, 8.2, 10},
        {"E192", 1, 0.988, 1.01},
        {"E192", 9.2, 9.09, 9.31},
        {"E48", 1.05, 1, 1.1},
        {"POWERSOF2", 8, 4, 16},
        {"POWERSOF2", 9, 8, 16},
        {"POWERSOF2", 0.3, 0.25, 0.5},
    };
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        const Granularity *granularity = granularity_find(str_from(CASES[i].name));
        REQUIRE(granularity != NULL);
        double down = granularity_round_down(granularity, CASES[i].value);
        double up = granularity_round_up(granularity, CASES[i].value);
        if (down != CASES[i].down || up != CASES[i].up)
            test_fail(__FILE__, __LINE__, "%s %g: %g %g", CASES[i].name, CASES[i].value, down, up);
    }
    EXPECT(granularity_find(STR("R7")) == NULL);
}

TEST(redact_keeps_prunes_and_descends) {
    static const PipelineCase CASES[] = {
        {"[{'$redact':{'$cond':[{'$eq':['$l',1]},'$$KEEP','$$PRUNE']}}]", "[{'l':1},{'l':2}]",
         "[{'l':1}]"},
        {"[{'$redact':{'$cond':[{'$gt':['$l',1]},'$$PRUNE','$$DESCEND']}}]",
         "[{'l':1,'a':{'l':2},'b':[{'l':2},{'l':1,'c':{'l':5}},3],'d':{'x':1}}]",
         "[{'l':1,'b':[{'l':1},3],'d':{'x':1}}]"},
        {"[{'$redact':{'$cond':[{'$eq':['$l','$$ROOT.l']},'$$DESCEND','$$PRUNE']}}]",
         "[{'l':1,'a':{'l':2},'b':{'l':1}}]", "[{'l':1,'b':{'l':1}}]"},
    };
    pipeline_run_cases(CASES, ARRAY_LEN(CASES));
    static const PipelineErrorCase ERRORS[] = {
        {"[{'$redact':'$a'}]", 17053, "should not return anything aside"},
    };
    pipeline_run_error_cases(ERRORS, ARRAY_LEN(ERRORS));
}

TEST(facet_feeds_all_its_pipelines_from_one_input) {
    static const PipelineCase CASES[] = {
        {"[{'$facet':{'a':[{'$count':'n'}],'b':[{'$limit':1}],'c':[{'$sort':{'a':-1}}],"
         "'d':[{'$skip':1},{'$group':{'_id':null,'s':{'$sum':'$a'}}}],'e':[{'$unwind':'$x'}]}}]",
         "[{'a':1},{'a':2,'x':[7,8]}]",
         "[{'a':[{'n':2}],'b':[{'a':1}],'c':[{'a':2,'x':[7,8]},{'a':1}],'d':[{'_id':null,'s':2}],"
         "'e':[{'a':2,'x':7},{'a':2,'x':8}]}]"},
        {"[{'$facet':{'a':[]}}]", "[]", "[{'a':[]}]"},
        {"[{'$facet':{'a':[{'$bucketAuto':{'groupBy':'$a','buckets':1}}],'b':[{'$match':{'a':1}}]}}"
         ","
         "{'$project':{'b':1}}]",
         "[{'a':1},{'a':2}]", "[{'b':[{'a':1}]}]"},
    };
    pipeline_run_cases(CASES, ARRAY_LEN(CASES));
}

/* ---- other collections ---- */

static const struct {
    const char *name;
    const char *docs;
} COLLECTIONS[] = {
    {"one", "[{'_id':1,'k':1},{'_id':2,'k':2},{'_id':3,'k':1}]"},
    {"chain", "[{'_id':1,'to':2},{'_id':2,'to':3},{'_id':3,'to':1}]"},
};

typedef struct FakeSource {
    Arena arena;
    Doc docs[PIPELINE_TEST_DOCS_MAX];
    DocArraySource source;
    PipelineExec *exec;
} FakeSource;

static const AggForeign FAKE_FOREIGN;
static const AggExecContext FAKE_EXEC = {.now_ms = 1000, .foreign = &FAKE_FOREIGN};

static ErrCode fake_next(void *arg, bool *ret_found, Doc *ret_doc, Error *err) {
    return pipeline_exec_next(((FakeSource *)arg)->exec, ret_found, ret_doc, err);
}

static void fake_close(void *arg, DocSource docs) {
    (void)arg;
    FakeSource *fake = docs.arg;
    pipeline_exec_free(fake->exec);
    arena_done(&fake->arena);
    xfree(fake);
}

static ErrCode fake_open(void *arg, Str coll, Doc stages, Doc let_values, DocSource *ret_docs,
                         Error *err) {
    FakeSource *fake = NEW(FakeSource);
    arena_init(&fake->arena, 0);
    const char *json = "[]";
    for (size_t i = 0; i < ARRAY_LEN(COLLECTIONS); i++)
        if (str_is(coll, COLLECTIONS[i].name))
            json = COLLECTIONS[i].docs;
    fake->source = (DocArraySource){.docs = fake->docs,
                                    .count = pipeline_test_docs(json, &fake->arena, fake->docs)};
    Doc let = doc_is_present(let_values) ? doc_copy(let_values, &fake->arena) : DOC_NONE;
    AggParseContext ctx = {.expr.let_values = let, .is_collectionless = coll.size == 0};
    Pipeline *pipeline;
    ErrCode rc = pipeline_parse(stages, &ctx, &fake->arena, &pipeline, err);
    if (rc == ERR_OK)
        rc = pipeline_exec_new(pipeline, doc_array_source(&fake->source), &FAKE_EXEC, &fake->exec,
                               err);
    *ret_docs = (DocSource){.arg = fake, .next = fake_next};
    if (rc != ERR_OK)
        fake_close(arg, *ret_docs);
    return rc;
}

static const AggForeign FAKE_FOREIGN = {.open = fake_open, .close = fake_close};

TEST(other_collections_are_joined_and_appended) {
    static const PipelineCase CASES[] = {
        {"[{'$lookup':{'from':'one','localField':'a','foreignField':'k','as':'f'}}]",
         "[{'a':1},{'a':[2,9]},{'b':1}]",
         "[{'a':1,'f':[{'_id':1,'k':1},{'_id':3,'k':1}]},{'a':[2,9],'f':[{'_id':2,'k':2}]},"
         "{'b':1,'f':[]}]"},
        {"[{'$lookup':{'from':'one','let':{'x':'$a'},'pipeline':[{'$match':{'$expr':"
         "{'$eq':['$_id','$$x']}}},{'$project':{'k':1,'_id':0}}],'as':'f.g'}}]",
         "[{'a':2,'f':5}]", "[{'a':2,'f':{'g':[{'k':2}]}}]"},
        {"[{'$lookup':{'from':'one','pipeline':[{'$count':'n'}],'as':'f'}}]", "[{'a':1},{'a':2}]",
         "[{'a':1,'f':[{'n':3}]},{'a':2,'f':[{'n':3}]}]"},
        {"[{'$lookup':{'from':'one','localField':'a','foreignField':'k','as':'f'}},"
         "{'$unwind':{'path':'$f','includeArrayIndex':'i'}}]",
         "[{'a':1},{'a':7}]",
         "[{'a':1,'f':{'_id':1,'k':1},'i':{'$numberLong':'0'}},"
         "{'a':1,'f':{'_id':3,'k':1},'i':{'$numberLong':'1'}}]"},
        {"[{'$lookup':{'from':'one','localField':'a','foreignField':'k','as':'f'}},"
         "{'$unwind':{'path':'$f','preserveNullAndEmptyArrays':true}},{'$match':{'a':7}}]",
         "[{'a':1},{'a':7,'f':3}]", "[{'a':7}]"},
        {"[{'$lookup':{'from':'one','localField':'a','foreignField':'k','as':'f'}},"
         "{'$unwind':'$f'},{'$match':{'f._id':{'$gt':1},'a':1}}]",
         "[{'a':1},{'a':2}]", "[{'a':1,'f':{'_id':3,'k':1}}]"},
        {"[{'$unionWith':'one'},{'$match':{'k':2}}]", "[{'k':2}]", "[{'k':2},{'_id':2,'k':2}]"},
        {"[{'$unionWith':{'pipeline':[{'$documents':[{'z':1}]}]}}]", "[]", "[{'z':1}]"},
        {"[{'$graphLookup':{'from':'chain','startWith':'$a','connectFromField':'to',"
         "'connectToField':'_id','as':'g','depthField':'d','maxDepth':1}}]",
         "[{'a':3}]",
         "[{'a':3,'g':[{'_id':3,'to':1,'d':{'$numberLong':'0'}},"
         "{'_id':1,'to':2,'d':{'$numberLong':'1'}}]}]"},
        {"[{'$graphLookup':{'from':'chain','startWith':'$a','connectFromField':'to',"
         "'connectToField':'_id','as':'g'}},{'$project':{'n':{'$size':'$g'}}}]",
         "[{'a':3},{'a':[1,2]},{'b':1},{'a':9}]", "[{'n':3},{'n':3},{'n':0},{'n':0}]"},
        {"[{'$facet':{'x':[{'$lookup':{'from':'one','pipeline':[],'as':'f'}},"
         "{'$project':{'n':{'$size':'$f'}}}]}}]",
         "[{'a':1}]", "[{'x':[{'n':3}]}]"},
    };
    for (size_t i = 0; i < 2 * ARRAY_LEN(CASES); i++) {
        const PipelineCase *c = &CASES[i / 2];
        bool is_optimized = i % 2 == 1;
        Arena arena;
        arena_init(&arena, 0);
        CLEANUP(error_reset) Error err = {0};
        Doc actual = DOC_EMPTY;
        ErrCode rc = pipeline_test_run(c->pipeline, c->docs, is_optimized, &FAKE_EXEC, &arena,
                                       &actual, &err);
        if (rc != ERR_OK || !doc_equal_bytes(actual, pipeline_test_array(c->expected, &arena)))
            test_fail(__FILE__, __LINE__, "%s%s: %d %s\n  gives %s",
                      is_optimized ? "optimized " : "", c->pipeline, (int)rc, error_message(&err),
                      test_json(actual, &arena));
        arena_done(&arena);
        if (!is_optimized)
            pipeline_check_split(c->pipeline, c->docs, &FAKE_EXEC, SPLIT_ROUNDS);
    }
}

TEST(stages_that_write_are_last_and_outermost) {
    static const PipelineErrorCase ERRORS[] = {
        {"[{'$out':'x'},{'$match':{}}]", 40601, "$out can only be the final stage"},
        {"[{'$merge':'x'},{'$match':{}}]", 40601, "$merge can only be the final stage"},
        {"[{'$facet':{'a':[{'$merge':'x'}]}}]", 40600, "within a $facet stage"},
        {"[{'$lookup':{'from':'a','as':'b','pipeline':[{'$merge':'x'}]}}]", 51047, "$lookup"},
        {"[{'$unionWith':{'coll':'a','pipeline':[{'$out':'x'}]}}]", 31441, "$unionWith"},
        {"[{'$documents':[]}]", ERR_INVALID_NAMESPACE, "{aggregate: 1}"},
        {"[{'$match':{}},{'$documents':[]}]", 40602, "first stage"},
    };
    pipeline_run_error_cases(ERRORS, ARRAY_LEN(ERRORS));
}

TEST(pipelines_within_pipelines_have_a_limit) {
    Buffer json;
    buffer_init(&json, 1 << 20);
    for (int i = 0; i < 25; i++)
        buffer_printf(&json, "[{'$unionWith':{'coll':'x','pipeline':");
    buffer_printf(&json, "[]");
    for (int i = 0; i < 25; i++)
        buffer_printf(&json, "}}]");
    buffer_append_byte(&json, 0);
    PipelineErrorCase error = {(const char *)json.data, ERR_MAX_SUB_PIPELINE_DEPTH_EXCEEDED,
                               "Limit is 20"};
    pipeline_run_error_cases(&error, 1);
    buffer_done(&json);
}
