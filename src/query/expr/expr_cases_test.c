#include "query/expr/expr_cases_test.h"

#include "base/test.h"
#include "bson/json_docs_test.h"

/* The document that all expressions read. */
static const char *const DOC =
    "{'_id':1,'i':7,'n':-3,'l':{'$numberLong':'5'},'f':2.5,'d':{'$numberDecimal':'1.5'},"
    "'s':'Hello','z':null,'t':true,'e':[],'a':[1,2,3],'o':{'x':1,'y':{'z':2}},"
    "'docs':[{'x':1},{'x':2,'y':3},5,[{'x':9}],{'y':4}],'mixed':[3,'a',null,1.5],"
    "'big':{'$numberLong':'9223372036854775807'},'int':2147483647,"
    "'date':{'$date':{'$numberLong':'1609459199123'}},'oid':{'$oid':'5ab9cbfa31c2ab715d42129e'},"
    "'utf':'caf\xC3\xA9'}";

static ErrCode run(const char *json, Arena *arena, Value *ret, Error *err) {
    ExprParseContext ctx = {.let_values =
                                elem_doc(test_query_elem("{'v':{'w':[{'x':1},{'x':2}]}}", arena))};
    Expr *expr;
    TRY(expr_parse(test_query_elem(json, arena), &ctx, arena, &expr, err));
    ExprEvalContext eval = {
        .root = elem_doc(test_query_elem(DOC, arena)), .scratch = arena, .now_ms = 1000};
    return expr_eval(expr, &eval, ret, err);
}

/* Type and bytes. */
static bool is_same(Value a, Value b) {
    uint32_t size = value_bytes_size(&a);
    return a.type == b.type && size == value_bytes_size(&b) &&
           (size == 0 || memcmp(value_bytes(&a), value_bytes(&b), size) == 0);
}

void expr_run_cases(const ExprCase *cases, size_t count) {
    for (size_t i = 0; i < count; i++) {
        Arena arena;
        arena_init(&arena, 0);
        CLEANUP(error_reset) Error err = {0};
        Value actual = VALUE_MISSING;
        Value expected = strcmp(cases[i].expected, "missing") == 0
                             ? VALUE_MISSING
                             : value_from_elem(test_query_elem(cases[i].expected, &arena));
        if (run(cases[i].expr, &arena, &actual, &err) != ERR_OK)
            test_fail(__FILE__, __LINE__, "%s: %d %s", cases[i].expr, (int)err.code,
                      error_message(&err));
        else if (!is_same(actual, expected))
            test_fail(__FILE__, __LINE__, "%s is %s (%s), expected %s", cases[i].expr,
                      value_to_text(actual, &arena), bson_type_name(actual.type),
                      cases[i].expected);
        arena_done(&arena);
    }
}

void expr_run_error_cases(const ExprErrorCase *cases, size_t count) {
    for (size_t i = 0; i < count; i++) {
        Arena arena;
        arena_init(&arena, 0);
        CLEANUP(error_reset) Error err = {0};
        Value ignored;
        ErrCode rc = run(cases[i].expr, &arena, &ignored, &err);
        if ((int)rc != cases[i].code || strstr(error_message(&err), cases[i].message) == NULL)
            test_fail(__FILE__, __LINE__, "%s gives %d \"%s\", expected %d", cases[i].expr, (int)rc,
                      error_message(&err), cases[i].code);
        arena_done(&arena);
    }
}
