/*
 * project_test.c - projections, case by case.
 */
#include "query/project/project.h"

#include "base/test.h"
#include "bson/json_docs_test.h"

typedef struct Case {
    const char *spec;
    const char *doc;
    const char *expected;
} Case;

typedef struct ErrorCase {
    const char *spec;
    int code;
    const char *message; /* a part of it */
} ErrorCase;

static const ExprParseContext EXPR = {0};
static const MatchParseContext MATCH = {0};
static const ProjectContext FIND = {PROJECT_FIND, NULL, &EXPR, &MATCH};
static const ProjectContext STAGE = {PROJECT_STAGE, "$project", &EXPR, &MATCH};
static const ProjectContext ADD_FIELDS = {PROJECT_ADD_FIELDS, "$addFields", &EXPR, &MATCH};

static ErrCode run(const char *spec, const char *doc, const ProjectContext *ctx,
                   const MatchDetails *details, Arena *arena, Doc *ret, Error *err) {
    Projection *projection;
    TRY(project_parse(test_doc(spec, arena), ctx, arena, &projection, err));
    ExprEvalContext eval = {.scratch = arena};
    ProjectInput input = {.details = details, .eval = &eval};
    Buffer out;
    buffer_init_arena(&out, arena, 256, 1 << 24);
    return project_apply(projection, test_doc(doc, arena), &input, &out, ret, err);
}

static void run_cases(const Case *cases, size_t count, const ProjectContext *ctx,
                      const MatchDetails *details) {
    for (size_t i = 0; i < count; i++) {
        Arena arena;
        arena_init(&arena, 0);
        CLEANUP(error_reset) Error err = {0};
        Doc actual = DOC_EMPTY;
        if (run(cases[i].spec, cases[i].doc, ctx, details, &arena, &actual, &err) != ERR_OK)
            test_fail(__FILE__, __LINE__, "%s: %s", cases[i].spec, error_message(&err));
        else if (!doc_equal_bytes(actual, test_doc(cases[i].expected, &arena)))
            test_fail(__FILE__, __LINE__, "%s on %s gives %s, expected %s", cases[i].spec,
                      cases[i].doc, test_json(actual, &arena), cases[i].expected);
        arena_done(&arena);
    }
}

static void run_error_cases(const ErrorCase *cases, size_t count, const ProjectContext *ctx) {
    for (size_t i = 0; i < count; i++) {
        Arena arena;
        arena_init(&arena, 0);
        CLEANUP(error_reset) Error err = {0};
        Doc ignored;
        ErrCode rc = run(cases[i].spec, "{'_id':1,'a':[1]}", ctx, NULL, &arena, &ignored, &err);
        if ((int)rc != cases[i].code || strstr(error_message(&err), cases[i].message) == NULL)
            test_fail(__FILE__, __LINE__, "%s gives %d \"%s\"", cases[i].spec, (int)rc,
                      error_message(&err));
        arena_done(&arena);
    }
}

TEST(inclusions_and_exclusions_keep_the_order_of_the_document) {
    static const Case CASES[] = {
        {"{}", "{'_id':1,'a':2}", "{'_id':1,'a':2}"},
        {"{'b':1,'a':1}", "{'_id':1,'a':2,'b':3,'c':4}", "{'_id':1,'a':2,'b':3}"},
        {"{'a':true,'_id':0}", "{'_id':1,'a':2,'b':3}", "{'a':2}"},
        {"{'_id':1}", "{'_id':1,'a':2}", "{'_id':1}"},
        {"{'_id':0}", "{'_id':1,'a':2}", "{'a':2}"},
        {"{'_id':1,'a':0}", "{'_id':1,'a':2,'b':3}", "{'_id':1,'b':3}"},
        {"{'a':0}", "{'_id':1,'a':2,'b':3}", "{'_id':1,'b':3}"},
        {"{'zz':1}", "{'a':2}", "{}"},
        {"{'a.b':1}", "{'_id':1,'a':{'b':1,'c':2},'b':3}", "{'_id':1,'a':{'b':1}}"},
        {"{'a':{'b':1}}", "{'a':{'b':1,'c':2}}", "{'a':{'b':1}}"},
        {"{'a.b':1}", "{'a':5}", "{}"},
        {"{'a.b':0}", "{'a':5,'c':1}", "{'a':5,'c':1}"},
        {"{'a.b':1}", "{'a':[{'b':1,'c':2},5,{'c':3},[{'b':4}]]}", "{'a':[{'b':1},{},[{'b':4}]]}"},
        {"{'a.b':0}", "{'a':[{'b':1,'c':2},5,[{'b':4}]]}", "{'a':[{'c':2},5,[{}]]}"},
        {"{'longer_name':1,'longer_name2':1}",
         "{'longer_name':1,'longer_name1':2,'longer_name2':3,'longer_nam':4}",
         "{'longer_name':1,'longer_name2':3}"},
    };
    run_cases(CASES, ARRAY_LEN(CASES), &FIND, NULL);
}

TEST(computed_fields_come_after_included_ones_in_order_of_the_specification) {
    static const Case CASES[] = {
        {"{'x':'$a','b':1,'y':{'$add':['$a',1]}}", "{'_id':1,'a':2,'b':3}",
         "{'_id':1,'b':3,'x':2,'y':3}"},
        {"{'a':'$b'}", "{'_id':1,'a':2,'b':3}", "{'_id':1,'a':3}"},
        {"{'b':1,'_id':'$a'}", "{'_id':1,'a':2,'b':3}", "{'_id':2,'b':3}"},
        {"{'x':'$missing'}", "{'_id':1}", "{'_id':1}"},
        {"{'x':['$a','lit']}", "{'a':1}", "{'x':[1,'lit']}"},
        {"{'a.x':'$b'}", "{'a':{'y':1},'b':3}", "{'a':{'x':3}}"},
        {"{'a.x':'$b','a.y':1}", "{'a':[{'y':1},7],'b':3}", "{'a':[{'y':1,'x':3},{'x':3}]}"},
        {"{'a.x':'$b'}", "{'b':3}", "{'a':{'x':3}}"},
    };
    run_cases(CASES, ARRAY_LEN(CASES), &STAGE, NULL);
    run_cases(CASES, ARRAY_LEN(CASES), &FIND, NULL);
}

TEST(added_fields_replace_in_place_or_go_to_the_end) {
    static const Case CASES[] = {
        {"{'b':5,'c':'$a'}", "{'a':1,'b':2}", "{'a':1,'b':5,'c':1}"},
        {"{'a':'$$REMOVE'}", "{'a':1,'b':2}", "{'b':2}"},
        {"{'a.x':1}", "{'a':{'y':2}}", "{'a':{'y':2,'x':1}}"},
        {"{'a.x':1}", "{'a':5}", "{'a':{'x':1}}"},
        {"{'a.x':1}", "{'a':[{'y':2},5,[6]]}", "{'a':[{'y':2,'x':1},{'x':1},[{'x':1}]]}"},
        {"{'a.x':1}", "{}", "{'a':{'x':1}}"},
        {"{'a':{'x':1,'y':'$b'}}", "{'a':{'x':0,'z':1},'b':2}", "{'a':{'x':1,'z':1,'y':2},'b':2}"},
        {"{'a':'$b','b':'$a'}", "{'a':1,'b':2}", "{'a':2,'b':1}"},
    };
    run_cases(CASES, ARRAY_LEN(CASES), &ADD_FIELDS, NULL);
}

TEST(find_projections_cut_arrays) {
    static const Case CASES[] = {
        {"{'a':{'$slice':2}}", "{'_id':1,'a':[1,2,3],'b':1}", "{'_id':1,'a':[1,2],'b':1}"},
        {"{'a':{'$slice':-2}}", "{'a':[1,2,3]}", "{'a':[2,3]}"},
        {"{'a':{'$slice':[1,1]}}", "{'a':[1,2,3]}", "{'a':[2]}"},
        {"{'a':{'$slice':[-2,1]}}", "{'a':[1,2,3]}", "{'a':[2]}"},
        {"{'a':{'$slice':1},'b':1}", "{'_id':1,'a':[1,2],'b':1,'c':1}", "{'_id':1,'a':[1],'b':1}"},
        {"{'a':{'$slice':1}}", "{'a':5}", "{'a':5}"},
        {"{'a.b':{'$slice':1}}", "{'a':{'b':[1,2],'c':1}}", "{'a':{'b':[1],'c':1}}"},
        {"{'x':{'$slice':['$a',1]}}", "{'a':[1,2]}", "{'x':[1]}"},
        {"{'a':{'$elemMatch':{'$gt':1}}}", "{'_id':1,'b':1,'a':[1,2,3]}", "{'_id':1,'a':[2]}"},
        {"{'a':{'$elemMatch':{'x':2}},'b':1}", "{'a':[{'x':1},{'x':2}],'b':1}",
         "{'b':1,'a':[{'x':2}]}"},
        {"{'a':{'$elemMatch':{'x':9}}}", "{'_id':1,'a':[{'x':1}]}", "{'_id':1}"},
    };
    run_cases(CASES, ARRAY_LEN(CASES), &FIND, NULL);
}

TEST(the_positional_projection_shows_the_element_that_matched) {
    static const MatchDetails SECOND = {.array_index = 1};
    static const Case CASES[] = {
        {"{'a.$':1}", "{'_id':1,'a':[1,2,3],'b':1}", "{'_id':1,'a':[2]}"},
        {"{'a.b.$':1}", "{'a':{'b':[1,2],'c':1}}", "{'a':{'b':[2]}}"},
        {"{'a.b.$':1}", "{'a':[{'b':1},{'b':2,'c':1}]}", "{'a':[{'b':2}]}"},
        {"{'a.$':1}", "{'a':5}", "{'a':5}"},
        {"{'a.$':1}", "{'a':[]}", "{'a':[]}"},
    };
    run_cases(CASES, ARRAY_LEN(CASES), &FIND, &SECOND);
}

TEST(malformed_projections_are_refused_with_the_codes_of_the_language) {
    static const ErrorCase FIND_CASES[] = {
        {"{'a':1,'b':0}", 31254, "Cannot do exclusion on field b in inclusion projection"},
        {"{'a':0,'b':1}", 31253, "Cannot do inclusion on field b in exclusion projection"},
        {"{'a':0,'b':'$a'}", 31252, "exclusion projection"},
        {"{'a':1,'a.b':1}", 31249, "Path collision at a.b remaining portion b"},
        {"{'a.b':1,'a':1}", 31250, "Path collision at a"},
        {"{'a.b':1,'a':{'b':1}}", 31250, "Path collision at a.b"},
        {"{'a':{}}", 51270, "empty sub-projection"},
        {"{'a':{'$meta':'randVal'}}", ERR_NOT_IMPLEMENTED, "randVal"},
        {"{'a':{'$meta':'foo'}}", 17308, "Unsupported argument to $meta: foo"},
        {"{'a':{'$meta':1}}", 17307, "string"},
        {"{'a':{'$foo':1}}", 31325, "Unknown expression $foo"},
        {"{'a':{'$slice':'x'}}", 28667, "$slice"},
        {"{'a':{'$slice':[1,0]}}", 28724, "positive"},
        {"{'a':{'$elemMatch':1}}", 31274, "object required"},
        {"{'a.b':{'$elemMatch':{'x':1}}}", 31275, "nested field"},
        {"{'a.$':1,'b.$':1}", 31276, "more than one positional"},
        {"{'a.$.b':1}", 31394, "positional operator in the middle"},
        {"{'a.$':0}", 31395, "exclusion"},
        {"{'a.$':1}", 51246, "positional operator '.$' couldn't find a matching element"},
        {"{'a..b':1}", 15998, "empty"},
        {"{'$a':1}", 16410, "start with '$'"},
    };
    static const ErrorCase STAGE_CASES[] = {
        {"{}", 51272, "Invalid $project :: caused by :: projection specification must have"},
        {"{'a.$':1}", 16410, "start with '$'"},
        {"{'a':{'$elemMatch':{'x':1}}}", ERR_INVALID_PIPELINE_OPERATOR, "$elemMatch"},
    };
    static const ErrorCase ADD_CASES[] = {
        {"{'a':1,'a.b':1}", 40176, "two conflicting paths"},
    };
    run_error_cases(FIND_CASES, ARRAY_LEN(FIND_CASES), &FIND);
    run_error_cases(STAGE_CASES, ARRAY_LEN(STAGE_CASES), &STAGE);
    run_error_cases(ADD_CASES, ARRAY_LEN(ADD_CASES), &ADD_FIELDS);
}

TEST(a_projection_tells_what_it_reads_and_what_it_leaves_alone) {
    static const struct {
        const char *spec;
        const ProjectContext *ctx;
        bool is_exhaustive;
        const char *paths;
        const char *kept;
        const char *changed;
    } CASES[] = {
        {"{'a':1,'b.c':1,'x':'$y'}", &STAGE, true, "a b.c y _id", "b.c.d", "x"},
        {"{'a':1,'_id':0}", &STAGE, true, "a", "a.b", "_id"},
        {"{'a':0}", &STAGE, false, "", "b", "a.b"},
        {"{'a.b':'$c'}", &ADD_FIELDS, false, "a c", "a.c", "a"},
        {"{'a.b':'$c','d':1,'_id':0}", &STAGE, true, "a c d", "d", "a"},
    };
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        Arena arena;
        arena_init(&arena, 0);
        CLEANUP(error_reset) Error err = {0};
        Projection *projection = NULL;
        REQUIRE_OK(
            project_parse(test_doc(CASES[i].spec, &arena), CASES[i].ctx, &arena, &projection, &err),
            err);
        PathSet set = path_set(&arena);
        EXPECT(project_add_paths(projection, &set) == CASES[i].is_exhaustive);
        char *text = arena_strdup(&arena, "");
        for (uint32_t j = 0; j < set.count; j++)
            text = arena_printf(&arena, "%s%s%.*s", text, j == 0 ? "" : " ", (int)set.paths[j].size,
                                set.paths[j].data);
        EXPECT_STR(text, CASES[i].paths);
        EXPECT(project_preserves_path(projection, str_from(CASES[i].kept)));
        EXPECT(!project_preserves_path(projection, str_from(CASES[i].changed)));
        EXPECT(!project_preserves_path(projection, STR("a.0")));
        arena_done(&arena);
    }
}

TEST(only_the_empty_projection_is_the_identity) {
    Arena arena;
    arena_init(&arena, 0);
    CLEANUP(error_reset) Error err = {0};
    Projection *projection = NULL;
    REQUIRE_OK(project_parse(DOC_EMPTY, &FIND, &arena, &projection, &err), err);
    EXPECT(project_is_identity(projection));
    REQUIRE_OK(project_parse(test_doc("{'a':1}", &arena), &FIND, &arena, &projection, &err), err);
    EXPECT(!project_is_identity(projection));
    REQUIRE_OK(project_parse(test_doc("{'_id':0}", &arena), &FIND, &arena, &projection, &err), err);
    EXPECT(!project_is_identity(projection));
    arena_done(&arena);
}

TEST(many_fields_are_projected_as_few_are) {
    enum { COUNT = 20000 };
    Arena arena;
    arena_init(&arena, 0);
    CLEANUP(error_reset) Error err = {0};
    DocBuilder shown = doc_builder_in_arena(&arena), added = doc_builder_in_arena(&arena);
    DocBuilder in = doc_builder_in_arena(&arena);
    build_i32(&in, "_id", 1);
    for (int i = 0; i < COUNT; i++) {
        char name[32];
        snprintf(name, sizeof(name), i % 2 == 0 ? "f%d" : "a_longer_name_%d", i);
        build_i32(&shown, name, 1);
        build_cstr(&added, name, "$_id");
        if (i % 3 == 0)
            build_i32(&in, name, i);
    }
    Doc doc = doc_builder_end(&in);
    const Doc SPECS[] = {doc_builder_end(&shown), doc_builder_end(&added)};
    const ProjectContext *CTX[] = {&FIND, &ADD_FIELDS};
    const uint32_t FIELDS[] = {1 + (COUNT + 2) / 3, 1 + COUNT};
    for (size_t i = 0; i < ARRAY_LEN(SPECS); i++) {
        Projection *projection = NULL;
        REQUIRE_OK(project_parse(SPECS[i], CTX[i], &arena, &projection, &err), err);
        Buffer out;
        buffer_init_arena(&out, &arena, 256, 1 << 24);
        ExprEvalContext eval = {.scratch = &arena};
        Doc result = DOC_NONE;
        REQUIRE_OK(
            project_apply(projection, doc, &(ProjectInput){.eval = &eval}, &out, &result, &err),
            err);
        EXPECT_EQ_U64(doc_count(result), FIELDS[i]);
    }
    arena_done(&arena);
}
