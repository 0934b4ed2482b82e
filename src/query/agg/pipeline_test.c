/*
 * pipeline_test.c - pipelines, case by case: what comes out, what is refused, what the optimizer
 * makes of them.
 */
#include "query/agg/pipeline.h"

#include "base/prng.h"
#include "base/test.h"
#include "query/agg/pipeline_cases_test.h"
#include "bson/json_docs_test.h"

TEST(match_sort_limit_and_skip_do_what_they_say) {
    static const PipelineCase CASES[] = {
        {"[]", "[{'a':1}]", "[{'a':1}]"},
        {"[{'$match':{'a':{'$gt':1}}}]", "[{'a':1},{'a':2},{'a':3}]", "[{'a':2},{'a':3}]"},
        {"[{'$match':{}},{'$match':{'a':2}}]", "[{'a':1},{'a':2}]", "[{'a':2}]"},
        {"[{'$match':{'$expr':{'$gt':['$a','$b']}}}]", "[{'a':1,'b':2},{'a':2,'b':1}]",
         "[{'a':2,'b':1}]"},
        {"[{'$sort':{'a':1}}]", "[{'a':3},{'a':1},{'b':0},{'a':2}]",
         "[{'b':0},{'a':1},{'a':2},{'a':3}]"},
        {"[{'$sort':{'a':-1}}]", "[{'a':3},{'a':1},{'b':0},{'a':2}]",
         "[{'a':3},{'a':2},{'a':1},{'b':0}]"},
        {"[{'$sort':{'a':1,'b':-1}}]", "[{'a':1,'b':1},{'a':0,'b':1},{'a':1,'b':2}]",
         "[{'a':0,'b':1},{'a':1,'b':2},{'a':1,'b':1}]"},
        {"[{'$sort':{'a':1}},{'$limit':2}]", "[{'a':3},{'a':1},{'a':2}]", "[{'a':1},{'a':2}]"},
        {"[{'$sort':{'r':{'$meta':'randVal'},'a':1}},{'$limit':2}]", "[{'a':3},{'a':1},{'a':2}]",
         "[{'a':1},{'a':2}]"},
        {"[{'$sort':{'r':{'$meta':'randVal'}}},{'$match':{'a':1}}]", "[{'a':3},{'a':1},{'a':2}]",
         "[{'a':1}]"},
        {"[{'$sort':{'a':1}},{'$skip':1},{'$limit':1}]", "[{'a':3},{'a':1},{'a':2}]", "[{'a':2}]"},
        {"[{'$sort':{'a':1}},{'$limit':2},{'$match':{'a':3}}]", "[{'a':3},{'a':1},{'a':2}]", "[]"},
        {"[{'$sort':{'a':1}},{'$match':{'a':{'$gt':1}}},{'$limit':1}]", "[{'a':3},{'a':1},{'a':2}]",
         "[{'a':2}]"},
        {"[{'$skip':1},{'$limit':1},{'$skip':0}]", "[{'a':3},{'a':1},{'a':2}]", "[{'a':1}]"},
        {"[{'$limit':2},{'$skip':1},{'$skip':1}]", "[{'a':3},{'a':1},{'a':2}]", "[]"},
        {"[{'$limit':{'$numberLong':'2'}},{'$limit':1.0}]", "[{'a':3},{'a':1}]", "[{'a':3}]"},
    };
    pipeline_run_cases(CASES, ARRAY_LEN(CASES));
}

TEST(group_accumulates_per_value_of_id) {
    static const PipelineCase CASES[] = {
        {"[{'$group':{'_id':'$k','n':{'$sum':1}}}]", "[{'k':1},{'k':2},{'k':1.0}]",
         "[{'_id':1,'n':2},{'_id':2,'n':1}]"},
        {"[{'$group':{'_id':null,'n':{'$sum':'$a'},'m':{'$avg':'$a'}}}]",
         "[{'a':1},{'a':2},{'a':'x'},{}]", "[{'_id':null,'n':3,'m':1.5}]"},
        {"[{'$group':{'_id':'$k'}}]", "[{'k':null},{},{'k':[1]},{'k':[1.0]}]",
         "[{'_id':null},{'_id':[1]}]"},
        {"[{'$group':{'_id':{'x':'$a','y':'$b'},'n':{'$count':{}}}}]",
         "[{'a':1,'b':2},{'a':1},{'a':1,'b':2}]",
         "[{'_id':{'x':1,'y':2},'n':2},{'_id':{'x':1},'n':1}]"},
        {"[{'$group':{'_id':null,'lo':{'$min':'$a'},'hi':{'$max':'$a'},'f':{'$first':'$a'},"
         "'l':{'$last':'$a'}}}]",
         "[{'a':2},{'a':null},{'a':'b'},{'a':1},{}]",
         "[{'_id':null,'lo':1,'hi':'b','f':2,'l':null}]"},
        {"[{'$group':{'_id':null,'p':{'$push':'$a'},'s':{'$addToSet':'$a'}}}]",
         "[{'a':1},{'a':1.0},{},{'a':'x'},{'a':null}]",
         "[{'_id':null,'p':[1,1.0,'x',null],'s':[1,'x',null]}]"},
        {"[{'$group':{'_id':null,'m':{'$mergeObjects':'$a'}}}]",
         "[{'a':{'x':1,'y':1}},{'a':null},{'a':{'y':2,'z':3}}]",
         "[{'_id':null,'m':{'x':1,'y':2,'z':3}}]"},
        {"[{'$group':{'_id':null,'s':{'$sum':'$a'}}}]", "[{'a':2147483647},{'a':1}]",
         "[{'_id':null,'s':{'$numberLong':'2147483648'}}]"},
        {"[{'$group':{'_id':null,'s':{'$sum':'$a'}}}]",
         "[{'a':{'$numberLong':'9223372036854775807'}},{'a':1}]",
         "[{'_id':null,'s':9223372036854775808.0}]"},
        {"[{'$group':{'_id':null,'s':{'$sum':'$a'}}}]",
         "[{'a':1},{'a':{'$numberDecimal':'1.5'}},{'a':0.5}]",
         "[{'_id':null,'s':{'$numberDecimal':'3.000000000000000'}}]"},
        {"[{'$group':{'_id':null,'s':{'$sum':'$a'}}}]", "[{'a':0.1},{'a':0.2},{'a':0.3}]",
         "[{'_id':null,'s':0.6}]"},
        {"[{'$group':{'_id':null,'p':{'$stdDevPop':'$a'},'s':{'$stdDevSamp':'$a'}}}]",
         "[{'a':1},{'a':3}]", "[{'_id':null,'p':1.0,'s':1.4142135623730951}]"},
        {"[{'$group':{'_id':null,'s':{'$sum':'$a'},'a':{'$avg':'$a'}}}]", "[{'b':1}]",
         "[{'_id':null,'s':0,'a':null}]"},
        {"[{'$group':{'_id':null,'f':{'$firstN':{'n':2,'input':'$a'}},"
         "'l':{'$lastN':{'n':2,'input':'$a'}},'mi':{'$minN':{'n':2,'input':'$a'}},"
         "'ma':{'$maxN':{'n':2,'input':'$a'}}}}]",
         "[{'a':3},{'a':1},{'a':4},{'a':2}]",
         "[{'_id':null,'f':[3,1],'l':[4,2],'mi':[1,2],'ma':[4,3]}]"},
        {"[{'$group':{'_id':null,'t':{'$top':{'sortBy':{'a':1},'output':'$b'}},"
         "'b':{'$bottom':{'sortBy':{'a':1},'output':'$b'}},"
         "'tn':{'$topN':{'n':2,'sortBy':{'a':-1},'output':'$b'}},"
         "'bn':{'$bottomN':{'n':2,'sortBy':{'a':1},'output':'$b'}}}}]",
         "[{'a':3,'b':'x'},{'a':1,'b':'y'},{'a':4,'b':'z'}]",
         "[{'_id':null,'t':'y','b':'z','tn':['z','x'],'bn':['x','z']}]"},
        {"[{'$group':{'_id':null,'m':{'$median':{'input':'$a','method':'approximate'}},"
         "'p':{'$percentile':{'input':'$a','p':[0.25,1],'method':'approximate'}}}}]",
         "[{'a':3},{'a':1},{'a':4},{'a':2},{'a':'x'}]", "[{'_id':null,'m':2.0,'p':[1.0,4.0]}]"},
        /* n may be computed from the key. */
        {"[{'$group':{'_id':{'k':'$k'},'f':{'$firstN':{'n':{'$add':['$k',1]},'input':'$a'}},"
         "'t':{'$topN':{'n':'$k','sortBy':{'a':-1},'output':'$a'}}}}]",
         "[{'k':1,'a':1},{'k':2,'a':2},{'k':1,'a':3},{'k':1,'a':4}]",
         "[{'_id':{'k':1},'f':[1,3],'t':[4]},{'_id':{'k':2},'f':[2],'t':[2]}]"},
        {"[{'$group':{'_id':'$k','n':{'$sum':1}}}]", "[]", "[]"},
        {"[{'$sortByCount':'$k'}]", "[{'k':'a'},{'k':'b'},{'k':'b'}]",
         "[{'_id':'b','count':2},{'_id':'a','count':1}]"},
        {"[{'$count':'n'}]", "[{'k':'a'},{'k':'b'}]", "[{'n':2}]"},
        {"[{'$count':'n'}]", "[]", "[]"},
    };
    pipeline_run_cases(CASES, ARRAY_LEN(CASES));
}

TEST(unwind_makes_one_document_per_element) {
    static const PipelineCase CASES[] = {
        {"[{'$unwind':'$a'}]", "[{'x':1,'a':[1,2],'y':2},{'a':[]},{'a':null},{},{'a':5}]",
         "[{'x':1,'a':1,'y':2},{'x':1,'a':2,'y':2},{'a':5}]"},
        {"[{'$unwind':{'path':'$a','preserveNullAndEmptyArrays':true}}]",
         "[{'x':1,'a':[]},{'a':null},{'b':1},{'a':5}]", "[{'x':1},{'a':null},{'b':1},{'a':5}]"},
        {"[{'$unwind':{'path':'$a','includeArrayIndex':'i'}}]", "[{'a':[7,8]},{'a':5}]",
         "[{'a':7,'i':{'$numberLong':'0'}},{'a':8,'i':{'$numberLong':'1'}},{'a':5,'i':null}]"},
        {"[{'$unwind':{'path':'$a','includeArrayIndex':'i.j','preserveNullAndEmptyArrays':true}}]",
         "[{'a':[],'i':{'k':1}}]", "[{'i':{'k':1,'j':null}}]"},
        {"[{'$unwind':'$a.b'}]", "[{'a':{'b':[1,2],'c':3}},{'a':[{'b':[1]}]}]",
         "[{'a':{'b':1,'c':3}},{'a':{'b':2,'c':3}}]"},
        {"[{'$unwind':'$a'},{'$match':{'b':2,'a':1}}]", "[{'a':[1,2],'b':2},{'a':[1],'b':3}]",
         "[{'a':1,'b':2}]"},
    };
    pipeline_run_cases(CASES, ARRAY_LEN(CASES));
}

TEST(stages_that_reshape_documents_do_so) {
    static const PipelineCase CASES[] = {
        {"[{'$project':{'a':1}}]", "[{'_id':1,'a':1,'b':2}]", "[{'_id':1,'a':1}]"},
        {"[{'$project':{'c':{'$add':['$a','$b']},'_id':0}}]", "[{'_id':1,'a':1,'b':2}]",
         "[{'c':3}]"},
        {"[{'$project':{'a':1}},{'$limit':1}]", "[{'a':1,'b':2},{'a':2}]", "[{'a':1}]"},
        {"[{'$addFields':{'c':{'$add':['$a',1]},'a':'x'}}]", "[{'_id':1,'a':1,'b':2}]",
         "[{'_id':1,'a':'x','b':2,'c':2}]"},
        {"[{'$set':{'a':'$$REMOVE'}}]", "[{'a':1,'b':2}]", "[{'b':2}]"},
        {"[{'$unset':['a','b.c']}]", "[{'a':1,'b':{'c':1,'d':2}}]", "[{'b':{'d':2}}]"},
        {"[{'$unset':'a'}]", "[{'a':1,'b':2}]", "[{'b':2}]"},
        {"[{'$replaceRoot':{'newRoot':'$a'}}]", "[{'a':{'x':1}}]", "[{'x':1}]"},
        {"[{'$replaceWith':{'x':'$a','y':1}}]", "[{'a':2}]", "[{'x':2,'y':1}]"},
        {"[{'$addFields':{'b':'$a'}},{'$match':{'b':1,'a':1}}]", "[{'a':1},{'a':2}]",
         "[{'a':1,'b':1}]"},
        {"[{'$match':{'$or':[{'a.$c':1},{'a':1}]}}]", "[{'a':1},{'a':2}]", "[{'a':1}]"},
        {"[{'$project':{'a':1}},{'$match':{'a':1,'b':{'$exists':false}}}]", "[{'a':1,'b':2}]",
         "[{'a':1}]"},
        {"[{'$sample':{'size':5}}]", "[{'a':1}]", "[{'a':1}]"},
        {"[{'$sample':{'size':0}}]", "[{'a':1}]", "[]"},
    };
    pipeline_run_cases(CASES, ARRAY_LEN(CASES));
}

TEST(malformed_pipelines_are_refused_with_the_codes_of_the_language) {
    static const PipelineErrorCase CASES[] = {
        {"[{'$foo':1}]", 40324, "Unrecognized pipeline stage name: '$foo'"},
        {"[{'$geoNear':{}}]", ERR_NOT_IMPLEMENTED, "$geoNear is not supported yet"},
        {"[{'$changeStream':{}}]", 40602,
         "$changeStream is only valid as the first stage in a pipeline"},
        {"[{'$search':{}}]", 6047401, "$search"},
        {"[1]", ERR_TYPE_MISMATCH, "must be an object"},
        {"[{}]", 40323, "exactly one field"},
        {"[{'$match':1,'$limit':1}]", 40323, "exactly one field"},
        {"[{'$match':1}]", 15959, "the match filter must be an expression in an object"},
        {"[{'$match':{'a':{'$foo':1}}}]", ERR_BAD_VALUE, "unknown operator"},
        {"[{'$limit':0}]", 15958, "the limit must be positive"},
        {"[{'$limit':'x'}]", 5107201, "invalid argument to $limit stage: Expected a number"},
        {"[{'$limit':-1}]", 5107201, "non-negative"},
        {"[{'$skip':-1}]", 5107200, "Expected a non-negative number in: $skip: -1"},
        {"[{'$skip':1.5}]", 5107200, "Expected an integer: $skip: 1.5"},
        {"[{'$sort':{}}]", 15976, "$sort stage must have at least one sort key"},
        {"[{'$sort':{'a':2}}]", 15975, "$sort key ordering must be 1"},
        {"[{'$sort':{'a':'x'}}]", 15974, "Illegal key in $sort specification"},
        {"[{'$sort':1}]", 15973, "the $sort key specification must be an object"},
        {"[{'$sort':{'a':{'$meta':'textScore'}}}]", 40218, "text score"},
        {"[{'$sort':{'a':{'$meta':'geoNearDistance'}}}]", ERR_NOT_IMPLEMENTED, "geoNearDistance"},
        {"[{'$project':{}}]", 51272,
         "Invalid $project :: caused by :: projection specification must have at least one field"},
        {"[{'$project':{'a':1,'b':0}}]", 31254,
         "Invalid $project :: caused by :: Cannot do exclusion on field b in inclusion projection"},
        {"[{'$project':{'a':0,'b':1}}]", 31253,
         "Cannot do inclusion on field b in exclusion projection"},
        {"[{'$project':1}]", 15969, "$project specification must be an object"},
        {"[{'$addFields':1}]", 40272, "$addFields specification stage must be an object, got int"},
        {"[{'$unset':1}]", 31002, "$unset"},
        {"[{'$unset':[]}]", 31119, "$unset"},
        {"[{'$unset':[1]}]", 31120, "$unset"},
        {"[{'$replaceRoot':{'newRoot':'$a'}}]", 40228,
         "'newRoot' expression must evaluate to an object"},
        {"[{'$replaceRoot':{}}]", 40231, "newRoot"},
        {"[{'$group':{}}]", 15955, "a group specification must include an _id"},
        {"[{'$group':1}]", 15947, "a group's fields must be specified in an object"},
        {"[{'$group':{'_id':1,'a':1}}]", 40234, "The field 'a' must be an accumulator object"},
        {"[{'$group':{'_id':1,'a.b':{'$sum':1}}}]", 40235, "cannot contain '.'"},
        {"[{'$group':{'_id':1,'$a':{'$sum':1}}}]", 40236, "cannot be an operator name"},
        {"[{'$group':{'_id':1,'a':{'$sum':1,'$avg':1}}}]", 40238, "must specify one accumulator"},
        {"[{'$group':{'_id':1,'a':{'$foo':1}}}]", 15952, "unknown group operator '$foo'"},
        {"[{'$group':{'_id':1,'a':{'$sum':[1,2]}}}]", 40237, "unary operator"},
        {"[{'$group':{'_id':1,'a':{'$mergeObjects':'$a'}}}]", 40400, "$mergeObjects requires"},
        {"[{'$group':{'_id':'$$x'}}]", 17276, "Use of undefined variable: x"},
        {"[{'$unwind':1}]", 15981, "$unwind"},
        {"[{'$unwind':'a'}]", 28818, "prefixed with a '$': a"},
        {"[{'$unwind':{}}]", 28812, "no path specified to $unwind stage"},
        {"[{'$unwind':{'path':1}}]", 28808, "expected a string as the path"},
        {"[{'$unwind':{'path':'$a','x':1}}]", 28811, "unrecognized option to $unwind stage: x"},
        {"[{'$unwind':{'path':'$a','includeArrayIndex':'$x'}}]", 28822, "should not be prefixed"},
        {"[{'$count':1}]", 40156, "count"},
        {"[{'$count':'$a'}]", 40158, "count"},
        {"[{'$count':'a.b'}]", 40160, "count"},
        {"[{'$sortByCount':1}]", 40149, "sortByCount"},
        {"[{'$sample':{'size':-1}}]", 28747, "negative"},
        {"[{'$project':{'a':{'$foo':1}}}]", 31325, "Unknown expression $foo"},
        {"[{'$project':{'a':{'$divide':['$a',0]}}}]", ERR_BAD_VALUE, "can't $divide by zero"},
    };
    pipeline_run_error_cases(CASES, ARRAY_LEN(CASES));
}

TEST(group_stops_at_its_memory_limit) {
    Arena arena;
    arena_init(&arena, 0);
    CLEANUP(error_reset) Error err = {0};
    AggExecContext ctx = {.stage_memory_bytes = 2000};
    Doc ignored;
    ErrCode rc = pipeline_test_run(
        "[{'$group':{'_id':1,'p':{'$push':'$s'}}}]",
        "[{'s':'a long string that takes some bytes, a long string that takes some "
        "bytes, a long string that takes some bytes, a long string'}]",
        false, &ctx, &arena, &ignored, &err);
    EXPECT_OK(rc, err);
    ctx.stage_memory_bytes = 600;
    rc = pipeline_test_run(
        "[{'$group':{'_id':'$k','p':{'$push':'$s'}}}]",
        "[{'k':1,'s':'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa'},{'k':2,'s':'bbbbbbbbbbbbbbbbbbbbbb'},"
        "{'k':3},{'k':4}]",
        false, &ctx, &arena, &ignored, &err);
    EXPECT(rc == ERR_QUERY_EXCEEDED_MEMORY_LIMIT_NO_DISK_USE_ALLOWED);
    EXPECT(strstr(error_message(&err), "Exceeded memory limit for $group") != NULL);
    arena_done(&arena);
}

/* ---- stages that the layer above brings ---- */

typedef struct TestSource {
    AggSource base;
    Doc doc;
    int open_count;
} TestSource;

typedef struct TestSourceDocs {
    Doc doc;
    int left;
} TestSourceDocs;

static TestSourceDocs test_docs;

static ErrCode test_source_next(void *arg, bool *ret_found, Doc *ret_doc, Error *err) {
    (void)err;
    TestSourceDocs *docs = arg;
    *ret_found = docs->left-- > 0;
    *ret_doc = docs->doc;
    return ERR_OK;
}

static ErrCode test_source_open(const AggSource *base, DocSource *ret_docs, Error *err) {
    (void)err;
    test_docs = (TestSourceDocs){((const TestSource *)base)->doc, 2};
    *ret_docs = (DocSource){.arg = &test_docs, .next = test_source_next};
    return ERR_OK;
}

static void test_source_close(const AggSource *base, DocSource docs) {
    (void)base;
    ((TestSourceDocs *)docs.arg)->left = -100;
}

static ErrCode test_source_parse(const AggSourceRow *row, Elem spec, Arena *arena,
                                 AggSource **ret_source, Error *err) {
    (void)row;
    if (elem_type(spec) != BT_DOC)
        return error_set(err, ERR_BAD_VALUE, "must be an object");
    TestSource *source = ARENA_NEW(arena, TestSource);
    source->base = (AggSource){test_source_open, test_source_close};
    source->doc = elem_doc(spec);
    *ret_source = &source->base;
    return ERR_OK;
}

TEST(sources_of_the_layer_above_must_be_first) {
    static const AggSourceRow ROWS[] = {
        {"$indexStats", false, test_source_parse, NULL, false, false},
        {"$currentOp", true, test_source_parse, NULL, false, false},
    };
    static const struct {
        const char *pipeline;
        bool is_collectionless;
        int code;
    } CASES[] = {
        {"[{'$indexStats':{'a':1}},{'$project':{'a':1}}]", false, 0},
        {"[{'$currentOp':{'a':1}}]", true, 0},
        {"[{'$match':{}},{'$indexStats':{}}]", false, 40602},
        {"[{'$currentOp':{}}]", false, ERR_INVALID_NAMESPACE},
        {"[{'$indexStats':{}}]", true, ERR_INVALID_NAMESPACE},
        {"[]", true, ERR_INVALID_NAMESPACE},
        {"[{'$indexStats':1}]", false, ERR_BAD_VALUE},
    };
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        Arena arena;
        arena_init(&arena, 0);
        CLEANUP(error_reset) Error err = {0};
        AggParseContext ctx = {.source_rows = ROWS,
                               .source_row_count = ARRAY_LEN(ROWS),
                               .is_collectionless = CASES[i].is_collectionless};
        Pipeline *pipeline = NULL;
        ErrCode rc = pipeline_parse(pipeline_test_array(CASES[i].pipeline, &arena), &ctx, &arena,
                                    &pipeline, &err);
        if ((int)rc != CASES[i].code)
            test_fail(__FILE__, __LINE__, "%s gives %d %s", CASES[i].pipeline, (int)rc,
                      error_message(&err));
        if (rc == ERR_OK) {
            AggExecContext exec_ctx = {0};
            PipelineExec *exec = NULL;
            EXPECT_OK(pipeline_exec_new(pipeline, (DocSource){0}, &exec_ctx, &exec, &err), err);
            int count = 0;
            for (bool found = true; found; count += found) {
                Doc doc;
                EXPECT_OK(pipeline_exec_next(exec, &found, &doc, &err), err);
            }
            EXPECT_EQ_I64(count, 2);
            pipeline_exec_free(exec);
            EXPECT_EQ_I64(test_docs.left, -100);
        }
        arena_done(&arena);
    }
}

TEST(an_execution_reports_what_went_through_its_stages) {
    Arena arena;
    arena_init(&arena, 0);
    CLEANUP(error_reset) Error err = {0};
    AggParseContext ctx = {0};
    AggExecContext exec_ctx = {0};
    Pipeline *pipeline = NULL;
    Doc docs[PIPELINE_TEST_DOCS_MAX];
    DocArraySource source = {
        .docs = docs, .count = pipeline_test_docs("[{'a':1},{'a':2},{'a':1}]", &arena, docs)};
    REQUIRE_OK(pipeline_parse(pipeline_test_array("[{'$match':{'a':1}},{'$count':'n'}]", &arena),
                              &ctx, &arena, &pipeline, &err),
               err);
    PipelineExec *exec = NULL;
    REQUIRE_OK(pipeline_exec_new(pipeline, doc_array_source(&source), &exec_ctx, &exec, &err), err);
    for (bool found = true; found;) {
        Doc doc;
        REQUIRE_OK(pipeline_exec_next(exec, &found, &doc, &err), err);
    }
    Buffer buf;
    buffer_init_arena(&buf, &arena, 256, BUFFER_UNBOUNDED);
    DocBuilder b;
    doc_builder_init(&b, &buf);
    pipeline_exec_stats(exec, &b);
    EXPECT_STR(
        test_json(doc_builder_end(&b), &arena),
        test_json(pipeline_test_array("[{'$match':{'a':{'$eq':1}},'nReturned':{'$numberLong':'2'},"
                                      "'executionTimeMillisEstimate':{'$numberLong':'0'}},"
                                      "{'$count':'n','nReturned':{'$numberLong':'1'},"
                                      "'executionTimeMillisEstimate':{'$numberLong':'0'}}]",
                                      &arena),
                  &arena));
    pipeline_exec_free(exec);
    arena_done(&arena);
}

TEST(pipelines_of_one_to_one_stages_can_be_updates) {
    Arena arena;
    arena_init(&arena, 0);
    CLEANUP(error_reset) Error err = {0};
    AggParseContext ctx = {0};
    AggExecContext exec_ctx = {.now_ms = 5};
    Pipeline *pipeline = NULL;
    Doc before = elem_doc(doc_get_lit(pipeline_test_array("[{'_id':1,'a':2}]", &arena), "0"));
    Doc after = DOC_EMPTY;
    Doc stages = pipeline_test_array("[{'$set':{'b':{'$add':['$a',1]}}},{'$unset':'a'}]", &arena);
    REQUIRE_OK(pipeline_parse(stages, &ctx, &arena, &pipeline, &err), err);
    EXPECT_OK(pipeline_check_for_update(pipeline, &err), err);
    EXPECT_OK(pipeline_apply_to_doc(pipeline, before, &exec_ctx, &arena, &after, &err), err);
    EXPECT_STR(test_json(after, &arena), "{\"_id\":1,\"b\":3}");

    stages = pipeline_test_array("[{'$match':{'a':1}}]", &arena);
    REQUIRE_OK(pipeline_parse(stages, &ctx, &arena, &pipeline, &err), err);
    EXPECT(pipeline_check_for_update(pipeline, &err) == ERR_INVALID_OPTIONS);
    EXPECT_STR(error_message(&err), "$match is not allowed to be used within an update");
    arena_done(&arena);
}
