/*
 * optimize_test.c - what the optimizer makes of pipelines, and what it hands to the layer below.
 */
#include "base/test.h"
#include "query/agg/pipeline.h"
#include "bson/json_docs_test.h"

static Pipeline *pipeline_of(const char *json, Arena *arena) {
    static const AggParseContext CTX = {0};
    CLEANUP(error_reset) Error err = {0};
    Pipeline *pipeline = NULL;
    EXPECT_OK(pipeline_parse(elem_doc(test_query_elem(json, arena)), &CTX, arena, &pipeline, &err),
              err);
    return pipeline;
}

static Doc bson_of(const Pipeline *pipeline, Arena *arena) {
    Buffer buf;
    buffer_init_arena(&buf, arena, 256, BUFFER_UNBOUNDED);
    DocBuilder b;
    doc_builder_init(&b, &buf);
    pipeline_to_bson(pipeline, &b);
    return doc_builder_end(&b);
}

#define WINDOW(fields, rest) "[{'$setWindowFields':{" fields "}}," rest "]"
#define SORTED(key, fields)                                                                        \
    "[{'$sort':{'sortKey':" key "}},{'$_internalSetWindowFields':{" fields "}}"

TEST(pipelines_are_rewritten_to_do_less) {
    static const struct {
        const char *pipeline;
        const char *optimized; /* names of stages, filters in their parsed form */
    } CASES[] = {
        {"[{'$match':{}}]", "[]"},
        {"[{'$sort':{'a':1}},{'$match':{'b':1}}]",
         "[{'$match':{'b':{'$eq':1}}},{'$sort':{'sortKey':{'a':1}}}]"},
        {"[{'$sort':{'a':1}},{'$limit':5},{'$match':{'b':1}}]",
         "[{'$sort':{'sortKey':{'a':1},'limit':{'$numberLong':'5'}}},{'$match':{'b':{'$eq':1}}}]"},
        {"[{'$sort':{'a':1}},{'$skip':3},{'$limit':5}]",
         "[{'$sort':{'sortKey':{'a':1},'limit':{'$numberLong':'8'}}},"
         "{'$skip':{'$numberLong':'3'}}]"},
        {"[{'$sort':{'a':1}},{'$project':{'a':1}},{'$limit':5}]",
         "[{'$sort':{'sortKey':{'a':1},'limit':{'$numberLong':'5'}}},"
         "{'$project':{'_id':true,'a':true}}]"},
        {"[{'$limit':9},{'$limit':5},{'$skip':1},{'$skip':2}]",
         "[{'$limit':{'$numberLong':'5'}},{'$skip':{'$numberLong':'3'}}]"},
        {"[{'$project':{'a':1,'x':'$y'}},{'$match':{'a':1}}]",
         "[{'$match':{'a':{'$eq':1}}},{'$project':{'_id':true,'a':true,'x':'$y'}}]"},
        {"[{'$addFields':{'x':'$y'}},{'$match':{'x':1}}]",
         "[{'$match':{'y':{'$eq':1}}},{'$addFields':{'x':'$y'}}]"},
        {"[{'$addFields':{'x':'$y.z'}},{'$match':{'x':1}}]",
         "[{'$addFields':{'x':'$y.z'}},{'$match':{'x':{'$eq':1}}}]"},
        {"[{'$addFields':{'x':'$y.z'}},{'$match':{'a':1,'x':1}}]",
         "[{'$match':{'a':{'$eq':1}}},{'$addFields':{'x':'$y.z'}},{'$match':{'x':{'$eq':1}}}]"},
        {"[{'$project':{'x':'$y','z':'$w'}},{'$match':{'$or':[{'x.a':1},{'x':{'$exists':true}}],"
         "'z':{'$in':[1,2]}}}]",
         "[{'$match':{'$and':[{'$or':[{'y.a':{'$eq':1}},{'y':{'$exists':true}}]},"
         "{'w':{'$in':[1,2]}}]}},{'$project':{'_id':true,'x':'$y','z':'$w'}}]"},
        {"[{'$project':{'x':'$y','z':'$w'}},{'$match':{'$or':[{'x':1},{'z':1}]}}]",
         "[{'$project':{'_id':true,'x':'$y','z':'$w'}},"
         "{'$match':{'$or':[{'x':{'$eq':1}},{'z':{'$eq':1}}]}}]"},
        {"[{'$limit':5},{'$match':{'a':1}}]",
         "[{'$limit':{'$numberLong':'5'}},{'$match':{'a':{'$eq':1}}}]"},
        {"[{'$group':{'_id':'$a'}},{'$match':{'_id':1}}]",
         "[{'$match':{'a':{'$eq':1}}},{'$group':{'_id':'$a'}}]"},
        {"[{'$group':{'_id':'$a','n':{'$sum':1}}},{'$match':{'_id':{'$gt':1},'n':2}}]",
         "[{'$match':{'a':{'$gt':1}}},{'$group':{'_id':'$a','n':{'$sum':{'$const':1}}}},"
         "{'$match':{'n':{'$eq':2}}}]"},
        {"[{'$group':{'_id':{'x':'$a','y':'$b.c'}}},{'$match':{'_id.x':{'$gt':1},'_id.y':2}}]",
         "[{'$match':{'a':{'$gt':1}}},{'$group':{'_id':{'x':'$a','y':'$b.c'}}},"
         "{'$match':{'_id.y':{'$eq':2}}}]"},
        {"[{'$group':{'_id':{'x':'$a'}}},{'$project':{'m':'$_id.x'}},{'$project':{'n':'$m'}},"
         "{'$match':{'n':2}}]",
         "[{'$match':{'a':{'$eq':2}}},{'$group':{'_id':{'x':'$a'}}},"
         "{'$project':{'_id':true,'m':'$_id.x'}},{'$project':{'_id':true,'n':'$m'}}]"},
        {"[{'$project':{'m':'$_id.x'}},{'$match':{'m':2}}]",
         "[{'$project':{'_id':true,'m':'$_id.x'}},{'$match':{'m':{'$eq':2}}}]"},
        {"[{'$group':{'_id':'$a.b'}},{'$match':{'_id':1}}]",
         "[{'$group':{'_id':'$a.b'}},{'$match':{'_id':{'$eq':1}}}]"},
        {"[{'$group':{'_id':'$a'}},{'$match':{'_id':{'$exists':true}}}]",
         "[{'$group':{'_id':'$a'}},{'$match':{'_id':{'$exists':true}}}]"},
        {"[{'$addFields':{'x':'$y'}},{'$match':{'$expr':{'$gt':['$a','$b']}}}]",
         "[{'$match':{'$expr':{'$gt':['$a','$b']}}},{'$addFields':{'x':'$y'}}]"},
        {"[{'$addFields':{'x':1}},{'$match':{'$expr':{'$eq':[{'$getField':'x'},1]}}}]",
         "[{'$addFields':{'x':{'$const':1}}},{'$match':{'$expr':{'$eq':[{'$getField':'x'},1]}}}]"},
        {"[{'$addFields':{'x':'$y'}},{'$match':{'$expr':{'$gt':['$x','$b']}}}]",
         "[{'$addFields':{'x':'$y'}},{'$match':{'$expr':{'$gt':['$x','$b']}}}]"},
        {"[{'$unwind':'$x'},{'$match':{'$expr':{'$gt':['$a','$b']}}}]",
         "[{'$unwind':'$x'},{'$match':{'$expr':{'$gt':['$a','$b']}}}]"},
        {"[{'$unionWith':'f'},{'$match':{'b':1}}]",
         "[{'$match':{'b':{'$eq':1}}},"
         "{'$unionWith':{'coll':'f','pipeline':[{'$match':{'b':1}}]}}]"},
        {"[{'$lookup':{'from':'f','pipeline':[],'as':'c'}},{'$limit':2}]",
         "[{'$limit':{'$numberLong':'2'}},{'$lookup':{'from':'f','as':'c','pipeline':[]}}]"},
        {"[{'$match':{'$expr':{'$eq':['$a',1]}}}]",
         "[{'$match':{'$and':[{'$expr':{'$eq':['$a',1]}},{'a':{'$eq':1}}]}}]"},
        {"[{'$match':{'$expr':{'$eq':['$a.b',[1]]}}}]",
         "[{'$match':{'$expr':{'$eq':['$a.b',[1]]}}}]"},
        {"[{'$lookup':{'from':'f','localField':'a','foreignField':'b','as':'c'}},{'$unwind':'$c'}]",
         "[{'$lookup':{'from':'f','localField':'a','foreignField':'b','as':'c',"
         "'unwinding':{'preserveNullAndEmptyArrays':false}}}]"},
        {"[{'$lookup':{'from':'f','localField':'a','foreignField':'b','as':'c'}},"
         "{'$match':{'d':1,'c.x':1}}]",
         "[{'$match':{'d':{'$eq':1}}},{'$lookup':{'from':'f','localField':'a','foreignField':'b',"
         "'as':'c'}},{'$match':{'c.x':{'$eq':1}}}]"},
        {"[{'$lookup':{'from':'f','localField':'a','foreignField':'b','as':'c'}},"
         "{'$unwind':'$c'},{'$match':{'d':1,'c.x':1,'c':2}}]",
         "[{'$match':{'d':{'$eq':1}}},{'$lookup':{'from':'f','localField':'a','foreignField':'b',"
         "'as':'c','unwinding':{'preserveNullAndEmptyArrays':false},"
         "'pipeline':[{'$match':{'x':{'$eq':1}}}]}},{'$match':{'c':{'$eq':2}}}]"},
        {"[{'$sort':{'a':1}},{'$sort':{'b':1}}]", "[{'$sort':{'sortKey':{'b':1}}}]"},
        {"[{'$sort':{'a':1}},{'$limit':5},{'$sort':{'b':1}}]",
         "[{'$sort':{'sortKey':{'a':1},'limit':{'$numberLong':'5'}}},{'$sort':{'sortKey':{'b':1}}}"
         "]"},
        {WINDOW("'sortBy':{'a':1,'b':1},'output':{'r':{'$shift':{'output':'$v','by':1}}}",
                "{'$sort':{'a':1}}"),
         SORTED("{'a':1,'b':1}",
                "'sortBy':{'a':1,'b':1},'output':{'r':{'$shift':{'output':'$v','by':1}}}") "]"},
        {WINDOW("'sortBy':{'a':1},'output':{'r':{'$shift':{'output':'$v','by':1}}}",
                "{'$sort':{'a':1,'b':-1}},{'$sort':{'a':1}}"),
         SORTED("{'a':1,'b':-1}",
                "'sortBy':{'a':1},'output':{'r':{'$shift':{'output':'$v','by':1}}}") "]"},
        {WINDOW("'sortBy':{'a':1},'output':{'r':{'$shift':{'output':'$v','by':1}}}",
                "{'$sort':{'a':-1}}"),
         SORTED("{'a':1}",
                "'sortBy':{'a':1},'output':{'r':{'$shift':{'output':'$v','by':1}}}") ",{'$sort':{'"
                                                                                     "sortKey':{'a'"
                                                                                     ":-1}}}]"},
        {WINDOW("'sortBy':{'a':1},'output':{'a.b':{'$shift':{'output':'$v','by':1}}}",
                "{'$sort':{'a':1}}"),
         SORTED("{'a':1}",
                "'sortBy':{'a':1},'output':{'a.b':{'$shift':{'output':'$v','by':1}}}") ",{'$sort':{"
                                                                                       "'sortKey':{"
                                                                                       "'a':1}}}]"},
        {WINDOW("'partitionBy':'$k','output':{'r':{'$sum':'$v'}}",
                "{'$match':{'k':{'$gt':1},'r':2}}"),
         "[{'$match':{'k':{'$gt':1}}},{'$sort':{'sortKey':{'k':1}}},"
         "{'$_internalSetWindowFields':{'partitionBy':'$k','output':{'r':{'$sum':'$v',"
         "'window':{'documents':['unbounded','unbounded']}}}}},{'$match':{'r':{'$eq':2}}}]"},
        {WINDOW(
             "'partitionBy':'$k','output':{'k':{'$shift':{'output':'$v','by':1}}},'sortBy':{'a':1}",
             "{'$match':{'k':1}}"),
         SORTED("{'k':1,'a':1}", "'partitionBy':'$k','sortBy':{'a':1},'output':{'k':{'$shift':{'"
                                 "output':'$v','by':1}}}") ","
                                                           "{'$match':{'k':"
                                                           "{'$eq':1}}}]"},
        {WINDOW(
             "'partitionBy':'$k','output':{'r':{'$shift':{'output':'$v','by':1}}},'sortBy':{'a':1}",
             "{'$match':{'k':{'$exists':true}}}"),
         SORTED("{'k':1,'a':1}",
                "'partitionBy':'$k','sortBy':{'a':1},"
                "'output':{'r':{'$shift':{'output':'$v','by':1}}}") ","
                                                                    "{'$match':{'k':{'$exists':"
                                                                    "true}}}]"},
        {"[{'$densify':{'field':'a','range':{'step':1,'bounds':'full'}}},{'$sort':{'a':1}}]",
         "[{'$sort':{'sortKey':{'a':1}}},{'$_internalDensify':{'field':'a','partitionByFields':[],"
         "'range':{'step':1,'bounds':'full'}}}]"},
        {"[{'$densify':{'field':'a','partitionByFields':['k'],'range':{'step':1,'bounds':'full'}}},"
         "{'$sort':{'a':1}}]",
         "[{'$sort':{'sortKey':{'a':1}}},{'$_internalDensify':{'field':'a',"
         "'partitionByFields':['k'],'range':{'step':1,'bounds':'full'}}},"
         "{'$sort':{'sortKey':{'a':1}}}]"},
        {"[{'$densify':{'field':'a','partitionByFields':['k'],'range':{'step':1,"
         "'bounds':'partition'}}},{'$sort':{'k':1,'a':1,'c':1}}]",
         "[{'$sort':{'sortKey':{'k':1,'a':1}}},{'$_internalDensify':{'field':'a',"
         "'partitionByFields':['k'],'range':{'step':1,'bounds':'partition'}}},"
         "{'$sort':{'sortKey':{'k':1,'a':1,'c':1}}}]"},
        {"[{'$unwind':'$a'},{'$match':{'b':1}},{'$match':{'a.x':1}}]",
         "[{'$match':{'b':{'$eq':1}}},{'$unwind':'$a'},{'$match':{'a.x':{'$eq':1}}}]"},
    };
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        Arena arena;
        arena_init(&arena, 0);
        Pipeline *pipeline = pipeline_of(CASES[i].pipeline, &arena);
        pipeline_optimize(pipeline);
        Doc actual = bson_of(pipeline, &arena);
        if (!doc_equal_bytes(actual, elem_doc(test_query_elem(CASES[i].optimized, &arena))))
            test_fail(__FILE__, __LINE__, "%s becomes %s", CASES[i].pipeline,
                      test_json(actual, &arena));
        arena_done(&arena);
    }
}

TEST(the_leading_part_goes_to_the_layer_below) {
    static const struct {
        const char *pipeline;
        bool has_match;
        bool has_sort;
        int64_t skip;
        int64_t limit;
        uint32_t rest; /* stages that stay */
    } CASES[] = {
        {"[]", false, false, 0, 0, 0},
        {"[{'$match':{'a':1}}]", true, false, 0, 0, 0},
        {"[{'$match':{'a':1}},{'$sort':{'b':1}},{'$skip':2},{'$limit':3}]", true, true, 2, 3, 0},
        {"[{'$limit':3},{'$skip':2}]", false, false, 2, 1, 0},
        {"[{'$limit':3},{'$skip':5}]", false, false, 0, 3, 1},
        {"[{'$sort':{'b':1}},{'$limit':3},{'$skip':5}]", false, true, 5, 0, 0},
        {"[{'$sort':{'b':1}},{'$skip':{'$numberLong':'9223372036854775800'}},{'$limit':7},"
         "{'$skip':10},{'$limit':1}]",
         false, true, 9223372036854775800, 7, 2},
        {"[{'$skip':1},{'$skip':{'$numberLong':'9223372036854775807'}},{'$skip':3}]", false, false,
         4, 0, 1},
        {"[{'$skip':2},{'$limit':3},{'$group':{'_id':1}}]", false, false, 2, 3, 1},
        {"[{'$sort':{'b':1}},{'$group':{'_id':1}},{'$limit':1}]", false, true, 0, 0, 2},
        {"[{'$group':{'_id':1}},{'$match':{'a':1}}]", false, false, 0, 0, 2},
        {"[{'$project':{'a':1}},{'$match':{'a':1}}]", true, false, 0, 0, 1},
    };
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        Arena arena;
        arena_init(&arena, 0);
        Pipeline *pipeline = pipeline_of(CASES[i].pipeline, &arena);
        pipeline_optimize(pipeline);
        PipelineLeading leading;
        pipeline_split_leading(pipeline, &leading);
        if ((leading.match != NULL) != CASES[i].has_match ||
            (leading.sort != NULL) != CASES[i].has_sort || leading.skip != CASES[i].skip ||
            leading.limit != CASES[i].limit || pipeline_stage_count(pipeline) != CASES[i].rest)
            test_fail(__FILE__, __LINE__, "%s: match %d sort %d skip %lld limit %lld rest %u",
                      CASES[i].pipeline, leading.match != NULL, leading.sort != NULL,
                      (long long)leading.skip, (long long)leading.limit,
                      pipeline_stage_count(pipeline));
        arena_done(&arena);
    }
}

TEST(an_inclusion_at_the_front_can_be_taken_over) {
    static const struct {
        const char *pipeline;
        bool is_taken;
    } CASES[] = {
        {"[{'$project':{'a':1}},{'$group':{'_id':'$a'}}]", true},
        {"[{'$project':{'a':{'$add':['$a',1]}}}]", true},
        {"[{'$project':{'a':0}}]", false},
        {"[{'$addFields':{'a':1}}]", false},
        {"[{'$group':{'_id':'$a'}},{'$project':{'a':1}}]", false},
    };
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        Arena arena;
        arena_init(&arena, 0);
        Pipeline *pipeline = pipeline_of(CASES[i].pipeline, &arena);
        uint32_t count = pipeline_stage_count(pipeline);
        bool is_taken = pipeline_take_projection(pipeline) != NULL;
        if (is_taken != CASES[i].is_taken || pipeline_stage_count(pipeline) != count - is_taken)
            test_fail(__FILE__, __LINE__, "%s", CASES[i].pipeline);
        arena_done(&arena);
    }
}

TEST(a_pipeline_tells_which_paths_it_needs) {
    static const struct {
        const char *pipeline;
        const char *paths; /* joined by spaces; "*" for all */
    } CASES[] = {
        {"[]", "*"},
        {"[{'$match':{'a':1}}]", "*"},
        {"[{'$match':{'a':1}},{'$group':{'_id':'$b.c','n':{'$sum':'$d'}}}]", "a b.c d"},
        {"[{'$sort':{'x':1}},{'$project':{'y':1,'_id':0}},{'$match':{'q':1}}]", "x y"},
        {"[{'$addFields':{'z':'$w'}},{'$count':'n'}]", "w"},
        {"[{'$match':{'$expr':{'$eq':['$a',1]}}},{'$count':'n'}]", "a"},
        {"[{'$match':{'$expr':{'$eq':['$$ROOT',1]}}},{'$count':'n'}]", "*"},
        {"[{'$unwind':'$a'},{'$group':{'_id':'$a.b'}}]", "a"},
        {"[{'$replaceRoot':{'newRoot':{'a':'$b'}}}]", "b"},
        /* Numbers are names to expressions, and can be positions to others. */
        {"[{'$lookup':{'from':'f','localField':'a.b.01.c','foreignField':'k','as':'o'}},"
         "{'$match':{'m.0.n':1}},{'$sort':{'s.1':1}},{'$group':{'_id':'$e.0'}}]",
         "a.b m s e.0"},
        {"[{'$group':{'_id':1,'t':{'$top':{'sortBy':{'s':1},'output':'$o'}}}}]", "o s"},
    };
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        Arena arena;
        arena_init(&arena, 0);
        PathSet set = path_set(&arena);
        pipeline_needed_paths(pipeline_of(CASES[i].pipeline, &arena), &set);
        char *text = arena_strdup(&arena, set.is_all ? "*" : "");
        for (uint32_t j = 0; j < set.count; j++)
            text = arena_printf(&arena, "%s%s%.*s", text, j == 0 ? "" : " ", (int)set.paths[j].size,
                                set.paths[j].data);
        EXPECT_STR(text, CASES[i].paths);
        arena_done(&arena);
    }
}
