/*
 * window_test.c - $setWindowFields, case by case.
 */
#include "base/prng.h"
#include "base/test.h"
#include "query/agg/pipeline_cases_test.h"
#include "bson/json_docs_test.h"

/* Documents sorted by t, and one output. */
#define WINDOW(output)                                                                             \
    "[{'$setWindowFields':{'sortBy':{'t':1},'output':{'r':" output "}}},"                          \
    "{'$project':{'r':1,'_id':0}}]"
#define POINTS            "[{'t':1,'v':1},{'t':2,'v':5},{'t':3,'v':2},{'t':4,'v':9},{'t':5,'v':4}]"
#define R5(a, b, c, d, e) "[{'r':" a "},{'r':" b "},{'r':" c "},{'r':" d "},{'r':" e "}]"

/* One number does not differ from itself, whatever rounding left behind when the others went. */
TEST(deviations_forget_what_left_the_window) {
    static const PipelineCase CASES[] = {
        {"[{'$setWindowFields':{'sortBy':{'t':1},'output':{'r':{'$stdDevPop':'$v',"
         "'window':{'documents':['current','unbounded']}}}}},{'$match':{'t':4}},"
         "{'$project':{'r':1,'_id':0}}]",
         "[{'t':1,'v':1000.1},{'t':2,'v':0.2},{'t':3,'v':0.7},{'t':4,'v':0.3}]", "[{'r':0.0}]"},
    };
    pipeline_run_cases(CASES, ARRAY_LEN(CASES));
}

TEST(windows_of_documents_move_with_the_current_one) {
    static const PipelineCase CASES[] = {
        {WINDOW("{'$sum':'$v'}"), POINTS, R5("21", "21", "21", "21", "21")},
        {WINDOW("{'$sum':'$v','window':{'documents':['unbounded','current']}}"), POINTS,
         R5("1", "6", "8", "17", "21")},
        {WINDOW("{'$sum':'$v','window':{'documents':['current','unbounded']}}"), POINTS,
         R5("21", "20", "15", "13", "4")},
        {WINDOW("{'$sum':'$v','window':{'documents':[-1,1]}}"), POINTS,
         R5("6", "8", "16", "15", "13")},
        {WINDOW("{'$sum':'$v','window':{'documents':[-3,-2]}}"), POINTS,
         R5("0", "0", "1", "6", "7")},
        {WINDOW("{'$sum':'$v','window':{'documents':['unbounded',-2]}}"), POINTS,
         R5("0", "0", "1", "6", "8")},
        {WINDOW("{'$push':'$v','window':{'documents':['unbounded',-4]}}"), POINTS,
         R5("[]", "[]", "[]", "[]", "[1]")},
        {WINDOW("{'$sum':'$v','window':{'documents':[2,3]}}"), POINTS,
         R5("11", "13", "4", "0", "0")},
        {WINDOW("{'$sum':'$v','window':{'documents':[{'$subtract':[0,1]},{'$add':[0,1]}]}}"),
         POINTS, R5("6", "8", "16", "15", "13")},
        {WINDOW("{'$avg':'$v','window':{'documents':[-1,0]}}"), POINTS,
         R5("1.0", "3.0", "3.5", "5.5", "6.5")},
        {WINDOW("{'$min':'$v','window':{'documents':[-1,1]}}"), POINTS,
         R5("1", "1", "2", "2", "4")},
        {WINDOW("{'$max':'$v','window':{'documents':[-1,0]}}"), POINTS,
         R5("1", "5", "5", "9", "9")},
        {WINDOW("{'$max':'$v','window':{'documents':[-2,-1]}}"), POINTS,
         R5("null", "1", "5", "5", "9")},
        {WINDOW("{'$count':{},'window':{'documents':[-2,0]}}"), POINTS,
         R5("1", "2", "3", "3", "3")},
        {WINDOW("{'$push':'$v','window':{'documents':[-1,1]}}"), POINTS,
         R5("[1,5]", "[1,5,2]", "[5,2,9]", "[2,9,4]", "[9,4]")},
        {WINDOW("{'$push':'$v','window':{'documents':['unbounded',0]}}"), POINTS,
         R5("[1]", "[1,5]", "[1,5,2]", "[1,5,2,9]", "[1,5,2,9,4]")},
        {WINDOW("{'$addToSet':{'$mod':['$v',2]},'window':{'documents':[-1,0]}}"), POINTS,
         R5("[1]", "[1]", "[1,0]", "[0,1]", "[1,0]")},
        {WINDOW("{'$first':'$v','window':{'documents':[-1,0]}}"), POINTS,
         R5("1", "1", "5", "2", "9")},
        {WINDOW("{'$first':'$v','window':{'documents':['unbounded',0]}}"), POINTS,
         R5("1", "1", "1", "1", "1")},
        {WINDOW("{'$first':'$x','window':{'documents':['unbounded',0]}}"), POINTS,
         R5("null", "null", "null", "null", "null")},
        {WINDOW("{'$max':{'$cond':[{'$gt':['$t',2]},'$v','$x']},"
                "'window':{'documents':['unbounded',0]}}"),
         POINTS, R5("null", "null", "2", "9", "9")},
        {WINDOW("{'$last':'$v','window':{'documents':[1,1]}}"), POINTS,
         R5("5", "2", "9", "4", "null")},
        {WINDOW("{'$lastN':{'n':2,'input':'$v'},'window':{'documents':[-2,0]}}"), POINTS,
         R5("[1]", "[1,5]", "[5,2]", "[2,9]", "[9,4]")},
        {WINDOW("{'$firstN':{'n':2,'input':'$v'},'window':{'documents':[-2,0]}}"), POINTS,
         R5("[1]", "[1,5]", "[1,5]", "[5,2]", "[2,9]")},
        {WINDOW("{'$maxN':{'n':2,'input':'$v'},'window':{'documents':[-2,0]}}"), POINTS,
         R5("[1]", "[5,1]", "[5,2]", "[9,5]", "[9,4]")},
        {WINDOW("{'$top':{'sortBy':{'v':-1},'output':'$t'},'window':{'documents':[-1,1]}}"), POINTS,
         R5("2", "2", "4", "4", "4")},
        {WINDOW("{'$stdDevPop':'$v','window':{'documents':[-1,0]}}"), POINTS,
         R5("0.0", "2.0", "1.5", "3.5", "2.5")},
        {WINDOW("{'$stdDevSamp':'$v','window':{'documents':[0,0]}}"), POINTS,
         R5("null", "null", "null", "null", "null")},
        {WINDOW("{'$median':{'input':'$v','method':'approximate'},'window':{'documents':[-2,0]}}"),
         POINTS, R5("1.0", "1.0", "2.0", "5.0", "4.0")},
        {WINDOW("{'$median':{'input':'$v','method':'approximate'},'window':{'documents':"
                "['unbounded',0]}}"),
         POINTS, R5("1.0", "1.0", "2.0", "2.0", "4.0")},
        {WINDOW("{'$percentile':{'input':'$v','p':[0.5,1],'method':'approximate'}}"), POINTS,
         R5("[4.0,9.0]", "[4.0,9.0]", "[4.0,9.0]", "[4.0,9.0]", "[4.0,9.0]")},
        {WINDOW("{'$covariancePop':['$t','$v'],'window':{'documents':[-1,0]}}"), POINTS,
         R5("0.0", "1.0", "-0.75", "1.75", "-1.25")},
        {WINDOW("{'$covarianceSamp':['$t','$v'],'window':{'documents':['unbounded',0]}}"),
         "[{'t':1,'v':1},{'t':2,'v':5},{'t':3,'v':'x'}]", "[{'r':null},{'r':2.0},{'r':2.0}]"},
        /* Nothing is null, whatever the function. */
        {WINDOW("{'$max':'$q','window':{'documents':['unbounded',0]}}"), "[{'t':1},{'t':2}]",
         "[{'r':null},{'r':null}]"},
        {WINDOW("{'$min':'$q'}"), "[{'t':1}]", "[{'r':null}]"},
        {WINDOW("{'$first':'$q'}"), "[{'t':1}]", "[{'r':null}]"},
        {WINDOW("{'$last':'$q','window':{'documents':['unbounded',-1]}}"), "[{'t':1}]",
         "[{'r':null}]"},
        {WINDOW("{'$avg':'$q','window':{'documents':['unbounded',-1]}}"), "[{'t':1}]",
         "[{'r':null}]"},
        {WINDOW("{'$sum':'$q','window':{'documents':['unbounded',-1]}}"), "[{'t':1}]", "[{'r':0}]"},
        {WINDOW("{'$stdDevPop':'$q','window':{'documents':['unbounded',-1]}}"), "[{'t':1}]",
         "[{'r':null}]"},
        /* Types of sums are those of what is in the window. */
        {WINDOW("{'$sum':'$v','window':{'documents':[0,0]}}"),
         "[{'t':1,'v':1},{'t':2,'v':0.1},{'t':3,'v':{'$numberLong':'3'}},{'t':4,'v':null},"
         "{'t':5,'v':{'$numberDecimal':'1.5'}},{'t':6,'v':1}]",
         "[{'r':1},{'r':0.1},{'r':{'$numberLong':'3'}},{'r':0},{'r':{'$numberDecimal':'1.5'}},"
         "{'r':1}]"},
        {WINDOW("{'$sum':'$v','window':{'documents':[-1,0]}}"),
         "[{'t':1,'v':{'$numberDouble':'Infinity'}},{'t':2,'v':1.5},{'t':3,'v':2}]",
         "[{'r':{'$numberDouble':'Infinity'}},{'r':{'$numberDouble':'Infinity'}},{'r':3.5}]"},
    };
    pipeline_run_cases(CASES, ARRAY_LEN(CASES));
}

#define DAY(n) "{'$date':{'$numberLong':'" n "00000'}}" /* times 100 s */

TEST(windows_of_ranges_hold_what_is_near) {
    static const PipelineCase CASES[] = {
        {WINDOW("{'$sum':'$v','window':{'range':[-1,1]}}"),
         "[{'t':1,'v':1},{'t':1,'v':2},{'t':2.5,'v':4},{'t':3,'v':8},{'t':9,'v':16}]",
         R5("3", "3", "12", "12", "16")},
        {WINDOW("{'$push':'$v','window':{'range':['current','unbounded']}}"),
         "[{'t':1,'v':1},{'t':1,'v':2},{'t':3,'v':8}]", "[{'r':[1,2,8]},{'r':[1,2,8]},{'r':[8]}]"},
        {WINDOW("{'$count':{},'window':{'range':['unbounded','current']}}"),
         "[{'t':1,'v':1},{'t':1,'v':2},{'t':3,'v':8}]", "[{'r':2},{'r':2},{'r':3}]"},
        {WINDOW("{'$count':{},'window':{'range':[-2.5,-0.5]}}"),
         "[{'t':1},{'t':2},{'t':3},{'t':{'$numberDecimal':'3.5'}}]",
         "[{'r':0},{'r':1},{'r':2},{'r':3}]"},
        {WINDOW("{'$count':{},'window':{'range':[-100,'current'],'unit':'second'}}"),
         "[{'t':" DAY("0") "},{'t':" DAY("1") "},{'t':" DAY("3") "}]", "[{'r':1},{'r':2},{'r':1}]"},
    };
    pipeline_run_cases(CASES, ARRAY_LEN(CASES));
}

TEST(partitions_are_apart_and_come_in_order) {
    static const PipelineCase CASES[] = {
        {"[{'$setWindowFields':{'partitionBy':'$k','sortBy':{'t':-1},'output':{"
         "'n':{'$documentNumber':{}},'s':{'$sum':'$t','window':{'documents':['unbounded',"
         "'current']}}}}}]",
         "[{'k':'b','t':1},{'k':'a','t':2},{'k':'b','t':3},{'t':5}]",
         "[{'t':5,'n':1,'s':5},{'k':'a','t':2,'n':1,'s':2},{'k':'b','t':3,'n':1,'s':3},"
         "{'k':'b','t':1,'n':2,'s':4}]"},
        {"[{'$setWindowFields':{'partitionBy':{'$toUpper':'$k'},'output':{'c':{'$count':{}}}}}]",
         "[{'k':'b'},{'k':'A'},{'k':'a'}]", "[{'k':'A','c':2},{'k':'a','c':2},{'k':'b','c':1}]"},
        {"[{'$setWindowFields':{'output':{'c':{'$count':{}},'x.y':{'$max':'$a'}}}}]",
         "[{'a':2,'c':9},{'a':1,'x':{'z':1}},{'x':[{'q':1},3]}]",
         "[{'a':2,'c':3,'x':{'y':2}},{'a':1,'x':{'z':1,'y':2},'c':3},"
         "{'x':[{'q':1,'y':2},{'y':2}],'c':3}]"},
        {"[{'$setWindowFields':{'partitionBy':null,'sortBy':{'a':1},'output':{}}}]",
         "[{'a':2},{'a':1}]", "[{'a':1},{'a':2}]"},
        {"[{'$setWindowFields':{'sortBy':{'a':1},'output':{'r':{'$rank':{}},'d':{'$denseRank':{}},"
         "'n':{'$documentNumber':{}}}}}]",
         "[{'a':2},{'a':1},{'a':2.0},{'a':3}]",
         "[{'a':1,'r':1,'d':1,'n':1},{'a':2,'r':2,'d':2,'n':2},{'a':2.0,'r':2,'d':2,'n':3},"
         "{'a':3,'r':4,'d':3,'n':4}]"},
        {"[{'$setWindowFields':{'output':{'c':{'$count':{}}}}}]", "[]", "[]"},
    };
    pipeline_run_cases(CASES, ARRAY_LEN(CASES));
}

TEST(functions_over_the_order_see_their_neighbours) {
    static const PipelineCase CASES[] = {
        {WINDOW("{'$shift':{'output':'$v','by':1}}"), POINTS, R5("5", "2", "9", "4", "null")},
        {WINDOW("{'$shift':{'output':'$v','by':1,'default':'c'}}"), "[{'t':1},{'t':2}]",
         "[{'r':'c'},{'r':'c'}]"},
        {WINDOW("{'$rank':{}}"), "[{'t':null},{},{'t':[null]},{'t':['abc',null]},{'t':1}]",
         R5("1", "1", "1", "1", "5")},
        {WINDOW("{'$shift':{'output':'$v','by':-2,'default':'none'}}"), POINTS,
         R5("'none'", "'none'", "1", "5", "2")},
        {WINDOW("{'$derivative':{'input':'$v'},'window':{'documents':[-1,0]}}"), POINTS,
         R5("null", "4.0", "-3.0", "7.0", "-5.0")},
        {WINDOW("{'$derivative':{'input':'$v'},'window':{'documents':['unbounded',0]}}"), POINTS,
         R5("null", "4.0", "0.5", "2.6666666666666665", "0.75")},
        {WINDOW("{'$derivative':{'input':'$v','unit':'second'},'window':{'documents':[-1,0]}}"),
         "[{'t':" DAY("0") ",'v':0},{'t':" DAY("1") ",'v':50}]", "[{'r':null},{'r':0.5}]"},
        {WINDOW("{'$derivative':{'input':'$v','unit':'hour'},'window':{'documents':[-1,0]}}"),
         "[{'t':" DAY("0") ",'v':" DAY("0") "},{'t':" DAY("1") ",'v':" DAY("2") "}]",
         "[{'r':null},{'r':7200000.0}]"},
        {"[{'$setWindowFields':{'sortBy':{'x':{'$meta':'randVal'}},'output':{'r':{'$rank':{}}}}}]",
         "[{'a':1},{'a':2}]", "[{'a':1,'r':1},{'a':2,'r':1}]"},
        {WINDOW("{'$integral':{'input':'$v'},'window':{'documents':[-1,0]}}"), POINTS,
         R5("0.0", "3.0", "3.5", "5.5", "6.5")},
        {WINDOW("{'$integral':{'input':'$v'},'window':{'documents':['unbounded',0]}}"), POINTS,
         R5("0.0", "3.0", "6.5", "12.0", "18.5")},
        {WINDOW("{'$expMovingAvg':{'input':'$v','alpha':0.5}}"), POINTS,
         R5("1.0", "3.0", "2.5", "5.75", "4.875")},
        {WINDOW("{'$expMovingAvg':{'input':'$v','N':3}}"),
         "[{'t':1},{'t':2,'v':4},{'t':3,'v':'x'},{'t':4,'v':6}]",
         "[{'r':null},{'r':4.0},{'r':4.0},{'r':5.0}]"},
        {WINDOW("{'$locf':'$v'}"), "[{'t':1},{'t':2,'v':4},{'t':3,'v':null},{'t':4,'v':'x'}]",
         "[{'r':null},{'r':4},{'r':4},{'r':'x'}]"},
        {WINDOW("{'$linearFill':'$v'}"),
         "[{'t':0},{'t':1,'v':10},{'t':2},{'t':4,'v':null},{'t':5,'v':30},{'t':6}]",
         "[{'r':null},{'r':10},{'r':15.0},{'r':25.0},{'r':30},{'r':null}]"},
    };
    pipeline_run_cases(CASES, ARRAY_LEN(CASES));
}

TEST(malformed_windows_are_refused) {
    static const PipelineErrorCase CASES[] = {
        {"[{'$setWindowFields':1}]", ERR_FAILED_TO_PARSE, "must be an object"},
        {"[{'$setWindowFields':{}}]", 40414, "output"},
        {"[{'$setWindowFields':{'output':{},'x':1}}]", 40415, "'$setWindowFields.x'"},
        {"[{'$setWindowFields':{'output':{'a':1}}}]", ERR_FAILED_TO_PARSE, "'a'"},
        {"[{'$setWindowFields':{'output':{'a':{'$foo':1}}}}]", ERR_FAILED_TO_PARSE,
         "Unrecognized window function, $foo"},
        {"[{'$setWindowFields':{'output':{'a':{'$sum':1,'$avg':1}}}}]", ERR_FAILED_TO_PARSE,
         "two functions"},
        {"[{'$setWindowFields':{'output':{'a':{'$sum':1},'a.b':{'$sum':1}}}}]", 6307900,
         "conflicting"},
        {"[{'$setWindowFields':{'partitionBy':['$a'],'output':{}}}]", ERR_TYPE_MISMATCH, "array"},
        {WINDOW("{'$sum':1,'window':{'documents':[1,0]}}"), 5339900, "Lower bound"},
        {WINDOW("{'$sum':1,'window':{'documents':[1.5,2]}}"), ERR_FAILED_TO_PARSE, "integer"},
        {WINDOW("{'$sum':1,'window':{'documents':[1]}}"), ERR_FAILED_TO_PARSE, "2-element"},
        {WINDOW("{'$sum':1,'window':{'documents':['x',1]}}"), ERR_FAILED_TO_PARSE, "integer"},
        {WINDOW("{'$sum':1,'window':{'documents':[{'$const':'current'},1]}}"), ERR_FAILED_TO_PARSE,
         "integer"},
        {WINDOW("{'$sum':1,'window':{'range':['$a',1]}}"), ERR_FAILED_TO_PARSE, "must be a number"},
        {WINDOW("{'$sum':1,'windoww':1}"), ERR_FAILED_TO_PARSE,
         "Window function $sum found an unknown argument: windoww"},
        {WINDOW("{'sum':1}"), ERR_FAILED_TO_PARSE, "Expected a $-prefixed window function, sum"},
        {WINDOW("{'$rank':{},'window':[]}"), 5371601, "no other"},
        {WINDOW("{'$locf':1,'window':{}}"), ERR_FAILED_TO_PARSE, "$locf"},
        {WINDOW("{'$sum':1,'window':{'documents':[0,1],'unit':'day'}}"), ERR_FAILED_TO_PARSE,
         "unit"},
        {WINDOW("{'$sum':1,'window':{'range':[0,1],'unit':'day'}}"), 5429513, "to be a Date"},
        {WINDOW("{'$sum':1,'window':{'range':[0,1]}}"), 5429414, "but it was null"},
        {"[{'$setWindowFields':{'output':{'a':{'$sum':1,'window':{'documents':[0,1]}}}}}]", 5339901,
         "sortBy"},
        {"[{'$setWindowFields':{'sortBy':{'a':1,'b':1},'output':{'a':{'$sum':1,'window':"
         "{'range':[0,1]}}}}}]",
         5339902, "single field"},
        {"[{'$setWindowFields':{'sortBy':{'a':-1},'output':{'a':{'$sum':1,'window':"
         "{'range':[0,1]}}}}}]",
         8947401, "ascending"},
        {"[{'$setWindowFields':{'sortBy':{'a':{'$meta':'randVal'}},'output':{'a':{'$sum':1,"
         "'window':{'range':[0,1]}}}}}]",
         8947400, "a field"},
        {"[{'$setWindowFields':{'sortBy':{'a':{'$meta':'randVal'}},'output':{'a':{'$derivative':"
         "{'input':1},'window':{'range':[0,1]}}}}}]",
         ERR_FAILED_TO_PARSE, "a field"},
        {"[{'$setWindowFields':{'partitionBy':['$a'],'output':{'a':{'$sum':1,'window':"
         "{'range':[0,1]}}}}}]",
         5339902, "single field"},
        {"[{'$setWindowFields':{'sortBy':{'a':1,'b':1},'output':{'a':{'$documentNumber':{}}}}}]",
         5371602, "sortBy"},
        {"[{'$setWindowFields':{'output':{'a':{'$rank':{}}}}}]", 5371602, "sortBy"},
        {WINDOW("{'$rank':{'a':1}}"), 5371603, "$rank"},
        {WINDOW("{'$shift':{'output':1}}"), ERR_FAILED_TO_PARSE, "'by'"},
        {WINDOW("{'$expMovingAvg':{'input':1,'alpha':1}}"), ERR_FAILED_TO_PARSE, "between 0 and 1"},
        {WINDOW("{'$derivative':{'input':1}}"), ERR_FAILED_TO_PARSE, "explicit window"},
        {WINDOW("{'$derivative':{'input':1,'unit':'month'},'window':{'documents':[0,1]}}"), 5490710,
         "week"},
        {WINDOW("{'$covariancePop':1}"), ERR_FAILED_TO_PARSE, "array of two"},
        {WINDOW("{'$sum':['$a']}"), 40237, "unary"},
    };
    pipeline_run_error_cases(CASES, ARRAY_LEN(CASES));
}

typedef struct Numbers {
    Arena arena;
    uint64_t left;
    uint64_t count;
} Numbers;

/* {t: n, v: random, pad: ...} */
static ErrCode numbers_next(void *arg, bool *ret_found, Doc *ret_doc, Error *err) {
    (void)err;
    Numbers *numbers = arg;
    *ret_found = numbers->left > 0;
    if (numbers->left == 0)
        return ERR_OK;
    numbers->left--;
    arena_reset(&numbers->arena);
    DocBuilder b = doc_builder_in_arena(&numbers->arena);
    build_i64(&b, "t", (int64_t)numbers->count++);
    build_i32(&b, "v", (int32_t)(numbers->count * 7919 % 1000));
    build_cstr(&b, "pad", "0123456789012345678901234567890123456789");
    *ret_doc = doc_builder_end(&b);
    return ERR_OK;
}

static ErrCode run_numbers(const char *stages, uint64_t count, size_t memory_bytes,
                           uint64_t *ret_count) {
    Numbers numbers = {.left = count};
    arena_init(&numbers.arena, 0);
    Arena arena;
    arena_init(&arena, 0);
    CLEANUP(error_reset) Error err = {0};
    AggParseContext ctx = {0};
    AggExecContext exec_ctx = {.stage_memory_bytes = memory_bytes};
    Pipeline *pipeline = NULL;
    PipelineExec *exec = NULL;
    ErrCode rc = pipeline_parse(pipeline_test_array(stages, &arena), &ctx, &arena, &pipeline, &err);
    if (rc == ERR_OK)
        rc = pipeline_exec_new(pipeline, (DocSource){.arg = &numbers, .next = numbers_next},
                               &exec_ctx, &exec, &err);
    *ret_count = 0;
    for (bool found = true; rc == ERR_OK && found; *ret_count += found) {
        Doc doc;
        rc = pipeline_exec_next(exec, &found, &doc, &err);
        found = rc == ERR_OK && found;
    }
    pipeline_exec_free(exec);
    arena_done(&arena);
    arena_done(&numbers.arena);
    return rc;
}

TEST(windows_need_memory_for_what_they_hold_alone) {
    /* Goal: a small window over many documents fits a small limit; the whole partition does not.
     * Method: unsorted input, so that no sorter keeps it. */
    uint64_t count = 0;
    /* Without sortBy only whole partitions are windows; ranks of order of arrival need none. */
    EXPECT((int)run_numbers("[{'$setWindowFields':{'output':{'s':{'$sum':'$v'}}}}]", 10000, 100000,
                            &count) == 5643011);
    EXPECT_EQ_U64(count, 0);
    EXPECT(run_numbers("[{'$setWindowFields':{'output':{'s':{'$sum':'$v'}}}}]", 10000, 10000000,
                       &count) == ERR_OK);
    EXPECT_EQ_U64(count, 10000);
    EXPECT(run_numbers("[{'$setWindowFields':{'output':{'s':{'$locf':'$v'}}}}]", 100000, 10000,
                       &count) == ERR_OK);
    EXPECT_EQ_U64(count, 100000);
}

TEST(moving_windows_agree_with_windows_computed_anew) {
    /* Goal: taking away what leaves gives the same as accumulating what is left.
     * Method: random values of many types; $reduce over the pushed window is the reference. */
    Prng prng = prng_seeded(4711);
    static const char *const VALUES[] = {
        "1", "-5", "2.5", "{'$numberLong':'70'}", "null", "'x'", "7", "0.1", "[3]", "{}"};
    for (int round = 0; round < 40; round++) {
        Arena arena;
        arena_init(&arena, 0);
        CLEANUP(error_reset) Error err = {0};
        char *docs = arena_strdup(&arena, "[");
        for (int i = 0; i < 30; i++)
            docs = arena_printf(&arena, "%s%s{'t':%d,'v':%s}", docs, i == 0 ? "" : ",", i,
                                VALUES[prng_below(&prng, ARRAY_LEN(VALUES))]);
        docs = arena_printf(&arena, "%s]", docs);
        int low = (int)prng_below(&prng, 9) - 5;
        int high = low + (int)prng_below(&prng, 6);
        char *window = arena_printf(&arena, "'window':{'documents':[%d,%d]}", low, high);
        char *stages = arena_printf(
            &arena,
            "[{'$setWindowFields':{'sortBy':{'t':1},'output':{'p':{'$push':{'x':'$v'},%s},"
            "'mi':{'$min':'$v',%s},'ma':{'$max':'$v',%s},'c':{'$count':{},%s},"
            "'f':{'$first':'$v',%s},'s':{'$sum':'$v',%s}}}},"
            "{'$project':{'t':1,'mi':{'$eq':['$mi',{'$min':'$p.x'}]},"
            "'ma':{'$eq':['$ma',{'$max':'$p.x'}]},'c':{'$eq':['$c',{'$size':'$p'}]},"
            "'f':{'$eq':['$f',{'$ifNull':[{'$first':'$p.x'},null]}]},"
            "'s':{'$lt':[{'$abs':{'$subtract':['$s',{'$sum':'$p.x'}]}},1e-9]}}},"
            "{'$match':{'$or':[{'mi':false},{'ma':false},{'c':false},{'f':false},{'s':false}]}}]",
            window, window, window, window, window, window);
        AggExecContext exec_ctx = {0};
        Doc failures = DOC_EMPTY;
        REQUIRE_OK(pipeline_test_run(stages, docs, false, &exec_ctx, &arena, &failures, &err), err);
        if (!doc_is_empty(failures))
            test_fail(__FILE__, __LINE__, "window [%d, %d] over %s: %s", low, high, docs,
                      test_json(failures, &arena));
        arena_done(&arena);
    }
}
