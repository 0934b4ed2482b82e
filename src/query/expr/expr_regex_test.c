/*
 * expr_regex_test.c - regular expressions and accumulators as operators, case by case.
 */
#include "base/test.h"
#include "query/expr/expr_cases_test.h"
#include "bson/json_docs_test.h"

#define FOUND(text, index, captures)                                                               \
    "{'match':'" text "','idx':" index ",'captures':[" captures "]}"

TEST(regular_expressions_find_text_and_captures) {
    static const ExprCase CASES[] = {
        {"{'%regexMatch':{'input':'$s','regex':'^Hel+o$'}}", "true"},
        {"{'%regexMatch':{'input':'$s','regex':'hello'}}", "false"},
        {"{'%regexMatch':{'input':'$s','regex':'hello','options':'i'}}", "true"},
        {"{'%regexMatch':{'input':'$s','regex':{'$regularExpression':{'pattern':'HELLO',"
         "'options':'i'}}}}",
         "true"},
        {"{'%regexMatch':{'input':'$z','regex':'a'}}", "false"},
        {"{'%regexMatch':{'input':'$s','regex':'$missing'}}", "false"},
        {"{'%regexMatch':{'input':'$s','regex':'$s'}}", "true"},
        {"{'%regexFind':{'input':'$s','regex':'l+'}}", FOUND("ll", "2", "")},
        {"{'%regexFind':{'input':'$s','regex':'ll'}}", FOUND("ll", "2", "")},
        {"{'%regexFind':{'input':'$s','regex':'^He'}}", FOUND("He", "0", "")},
        {"{'%regexFind':{'input':'$s','regex':'(e)(x)?(l)'}}", FOUND("el", "1", "'e',null,'l'")},
        {"{'%regexFind':{'input':'$s','regex':'x'}}", "null"},
        {"{'%regexFind':{'input':'$z','regex':'x'}}", "null"},
        /* Code points are counted, not bytes. */
        {"{'%regexFind':{'input':'\xC3\xA9\xC3\xA9x','regex':'x'}}", FOUND("x", "2", "")},
        {"{'%regexFind':{'input':'\xC3\xA9\xC3\xA9x','regex':'[x]'}}", FOUND("x", "2", "")},
        {"{'%regexFindAll':{'input':'$s','regex':'l'}}",
         "[" FOUND("l", "2", "") "," FOUND("l", "3", "") "]"},
        {"{'%regexFindAll':{'input':'\xC3\xA9"
         "a\xC3\xA9"
         "b','regex':'([ab])'}}",
         "[" FOUND("a", "1", "'a'") "," FOUND("b", "3", "'b'") "]"},
        {"{'%regexFindAll':{'input':'\xC3\xA9"
         "b','regex':'x*'}}",
         "[" FOUND("", "0", "") "," FOUND("", "1", "") "]"},
        {"{'%regexFindAll':{'input':'','regex':''}}", "[" FOUND("", "0", "") "]"},
        {"{'%regexFindAll':{'input':'bb','regex':'()'}}",
         "[" FOUND("", "0", "''") "," FOUND("", "1", "''") "]"},
        /* What is not given is null. */
        {"{'%regexFindAll':{'input':'aa','regex':'^a'}}", "[" FOUND("a", "0", "") "]"},
        {"{'%regexFindAll':{'input':'$missing','regex':'x'}}", "[]"},
        {"{'%regexFindAll':{'input':'a1b22','regex':'\\\\d+'}}",
         "[" FOUND("1", "1", "") "," FOUND("22", "3", "") "]"},
    };
    expr_run_cases(CASES, ARRAY_LEN(CASES));
}

TEST(accumulators_work_on_arrays_too) {
    static const ExprCase CASES[] = {
        {"{'$firstN':{'n':2,'input':'$a'}}", "[1,2]"},
        {"{'$firstN':{'n':9,'input':'$mixed'}}", "[3,'a',null,1.5]"},
        {"{'$lastN':{'n':2.0,'input':'$mixed'}}", "[null,1.5]"},
        {"{'$lastN':{'n':'$i','input':'$e'}}", "[]"},
        {"{'$minN':{'n':2,'input':'$mixed'}}", "[1.5,3]"},
        {"{'$maxN':{'n':2,'input':'$mixed'}}", "['a',3]"},
        {"{'$stdDevPop':'$a'}", "0.816496580927726"},
        {"{'$stdDevSamp':[1,3]}", "1.4142135623730951"},
        {"{'$stdDevSamp':[1]}", "null"},
        {"{'$stdDevPop':'$e'}", "null"},
        {"{'$stdDevPop':['x',5]}", "0.0"},
        {"{'$median':{'input':'$a','method':'approximate'}}", "2.0"},
        {"{'$median':{'input':[4,1,2,3],'method':'approximate'}}", "2.0"},
        {"{'$median':{'input':'$i','method':'approximate'}}", "7.0"},
        {"{'$median':{'input':'$s','method':'approximate'}}", "null"},
        {"{'$median':{'input':'$mixed','method':'approximate'}}", "1.5"},
        {"{'$percentile':{'input':[5,1,3,2,4],'p':[0,0.2,0.21,0.95,1],'method':'approximate'}}",
         "[1.0,1.0,2.0,5.0,5.0]"},
        {"{'$percentile':{'input':'$z','p':[0.5,1],'method':'approximate'}}", "[null,null]"},
        {"{'$sin':{'$numberDecimal':'0'}}", "{'$numberDecimal':'0'}"},
        {"{'$cos':{'$numberDecimal':'0'}}",
         "{'$numberDecimal':'1.000000000000000000000000000000000'}"},
        {"{'$round':[{'$sin':{'$numberDecimal':'0.5'}},30]}",
         "{'$numberDecimal':'0.479425538604203000273287935216'}"},
        {"{'$round':[{'$atan2':[1,{'$numberDecimal':'1'}]},30]}",
         "{'$numberDecimal':'0.785398163397448309615660845820'}"},
        {"{'$sin':{'$numberDecimal':'NaN'}}", "{'$numberDecimal':'NaN'}"},
        {"{'$acosh':{'$numberDecimal':'Infinity'}}", "{'$numberDecimal':'Infinity'}"},
        {"{'$tanh':{'$numberDecimal':'-Infinity'}}", "{'$numberDecimal':'-1'}"},
        {"{'$atanh':{'$numberDecimal':'1'}}", "{'$numberDecimal':'Infinity'}"},
        {"{'$radiansToDegrees':{'$numberDecimal':'-Infinity'}}", "{'$numberDecimal':'-Infinity'}"},
        {"{'$toHashedIndexKey':1}", "{'$numberLong':'5902408780260971510'}"},
        {"{'$toHashedIndexKey':1.9}", "{'$numberLong':'5902408780260971510'}"},
        {"{'$eq':[{'$toHashedIndexKey':'$missing'},{'$toHashedIndexKey':null}]}", "true"},
        {"{'$eq':[{'$toHashedIndexKey':{'a':1}},{'$toHashedIndexKey':{'b':1}}]}", "false"},
    };
    expr_run_cases(CASES, ARRAY_LEN(CASES));
}

TEST(malformed_regular_expressions_and_counts_are_refused) {
    static const ExprErrorCase CASES[] = {
        {"{'%regexMatch':1}", 51103, "object"},
        {"{'%regexMatch':{'input':'x','regex':null,'options':'I'}}", 51108, "I"},
        {"{'%regexMatch':{'input':null,'regex':'['}}", 51111, "Invalid Regex"},
        {"{'%regexMatch':{'input':'$a','regex':'x'}}", 51104, "'input' to be of type string"},
        {"{'%regexFindAll':{}}", 31022, "'input'"},
        {"{'%regexFind':{'regex':'x'}}", 31022, "'input'"},
        {"{'%regexMatch':{'input':'$s'}}", 31023, "'regex'"},
        {"{'%regexMatch':{'input':'a','regex':'a','x':1}}", 31024, "x"},
        {"{'%regexMatch':{'input':1,'regex':'a'}}", 51104, "'input' to be of type string"},
        {"{'%regexMatch':{'input':'a','regex':1}}", 51105, "string or regex"},
        {"{'%regexMatch':{'input':'a','regex':'a','options':1}}", 51106, "'options'"},
        {"{'%regexMatch':{'input':'a','regex':{'$regularExpression':{'pattern':'a','options':'i'}},"
         "'options':'m'}}",
         51107, "both"},
        {"{'%regexMatch':{'input':'a','regex':'a','options':'q'}}", 51108, "q"},
        {"{'%regexMatch':{'input':'a','regex':'('}}", 51111, "Invalid Regex in $regexMatch"},
        {"{'%regexMatch':{'input':'$s','regex':{'$concat':['(','$s']}}}", 51111, "Invalid Regex"},
        {"{'$atan2':['x','x']}", 51044, "$atan2"},
        {"{'$atan2':[1,'x']}", 51045, "$atan2"},
        {"{'$acos':{'$numberDecimal':'1.1'}}", 50989, "$acos"},
        {"{'$sin':{'$numberDecimal':'Infinity'}}", 50989, "$sin"},
        {"{'$firstN':1}", 5787900, ""},
        {"{'$firstN':{'input':'$a'}}", 5787906, "Missing 'n'"},
        {"{'$firstN':{'n':1}}", 5787907, "Missing 'input'"},
        {"{'$firstN':{'n':0,'input':'$a'}}", 5787908, "greater than 0"},
        {"{'$firstN':{'n':1.5,'input':'$a'}}", 5787903, "integral"},
        {"{'$firstN':{'n':'x','input':'$a'}}", 5787902, "integral"},
        {"{'$minN':{'n':1,'input':'$i'}}", 5788200, "must be an array"},
        {"{'$median':{'input':'$a'}}", 40414, "'$median.method' is missing"},
        {"{'$median':{'input':'$a','method':'exact'}}", ERR_BAD_VALUE, "approximate"},
        {"{'$median':{'input':'$a','method':'approximate','p':[1]}}", 40415, "$median.p"},
        {"{'$percentile':{'input':'$a','method':'approximate','p':[]}}", 7750301, "non-empty"},
        {"{'$percentile':{'input':'$a','method':'approximate','p':['x']}}", 7750302, "numbers"},
        {"{'$percentile':{'input':'$a','method':'approximate','p':[2]}}", 7750303, "[0.0, 1.0]"},
        {"{'$percentile':{'input':'$a','method':'approximate','p':'$a'}}", 7750300, "constant"},
    };
    expr_run_error_cases(CASES, ARRAY_LEN(CASES));
}

TEST(sample_rate_judges_by_chance) {
    /* Goal: about as many documents match as the rate says; 0 and 1 are none and all.
     * Method: the same document many times. */
    static const struct {
        const char *filter;
        uint32_t low;
        uint32_t high;
    } CASES[] = {
        {"{'$sampleRate':0}", 0, 0},
        {"{'$sampleRate':1}", 2000, 2000},
        {"{'$sampleRate':0.25}", 350, 650},
    };
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        Arena arena;
        arena_init(&arena, 0);
        CLEANUP(error_reset) Error err = {0};
        ExprMatchHook hook = {0};
        MatchParseContext ctx = {.expr_hook = expr_match_hook(&hook)};
        MatchExpr *match = NULL;
        Doc filter = elem_doc(test_query_elem(CASES[i].filter, &arena));
        REQUIRE_OK(match_parse(filter, &ctx, &arena, &match, &err), err);
        uint32_t count = 0;
        for (int j = 0; j < 2000; j++) {
            MatchDetails details = {0};
            count += match_doc(match, DOC_EMPTY, &details);
            EXPECT(details.rc == ERR_OK);
        }
        EXPECT(count >= CASES[i].low);
        EXPECT(count <= CASES[i].high);
        arena_done(&arena);
    }
}
