/*
 * densify_test.c - $densify and $fill, case by case.
 */
#include "base/test.h"
#include "query/agg/pipeline_cases_test.h"

#define DENSIFY(range) "[{'$densify':{'field':'a','range':" range "}}]"
#define BY_K(range)    "[{'$densify':{'field':'a','partitionByFields':['k'],'range':" range "}}]"
#define DATE(days)     "{'$date':{'$numberLong':'" days "00000'}}"

TEST(densify_makes_documents_for_missing_values) {
    static const PipelineCase CASES[] = {
        {DENSIFY("{'step':1,'bounds':'full'}"), "[{'a':4,'x':1},{'a':1},{'a':2}]",
         "[{'a':1},{'a':2},{'a':3},{'a':4,'x':1}]"},
        {DENSIFY("{'step':2,'bounds':'full'}"), "[{'a':0},{'a':3},{'a':3.0},{'a':5}]",
         "[{'a':0},{'a':2},{'a':3},{'a':3.0},{'a':4},{'a':5}]"},
        {DENSIFY("{'step':0.5,'bounds':'full'}"), "[{'a':1},{'a':2}]",
         "[{'a':1},{'a':1.5},{'a':2}]"},
        {DENSIFY("{'step':{'$numberDecimal':'0.5'},'bounds':[0,1]}"), "[{'a':0}]",
         "[{'a':0},{'a':{'$numberDecimal':'0.5'}}]"},
        /* What has no value passes through. */
        {DENSIFY("{'step':1,'bounds':'full'}"), "[{'a':3},{'b':1},{'a':null},{'a':1}]",
         "[{'b':1},{'a':null},{'a':1},{'a':2},{'a':3}]"},
        {DENSIFY("{'step':1,'bounds':[2,5]}"), "[{'a':1},{'a':3},{'a':9}]",
         "[{'a':1},{'a':2},{'a':3},{'a':4},{'a':9}]"},
        {DENSIFY("{'step':10,'bounds':[0,30]}"), "[]", "[{'a':0},{'a':10},{'a':20}]"},
        {DENSIFY("{'step':1,'bounds':'full'}"), "[]", "[]"},
        {BY_K("{'step':1,'bounds':'partition'}"), "[{'k':1,'a':1},{'k':2,'a':7},{'k':1,'a':3}]",
         "[{'k':1,'a':1},{'k':1,'a':2},{'k':1,'a':3},{'k':2,'a':7}]"},
        {BY_K("{'step':1,'bounds':'full'}"), "[{'k':1,'a':1},{'k':2,'a':2},{'k':1,'a':3}]",
         "[{'k':1,'a':1},{'k':2,'a':1},{'k':2,'a':2},{'k':1,'a':2},{'k':1,'a':3},{'k':2,'a':3}]"},
        /* Partitions without values get those of all, and lists can be partitions. */
        {BY_K("{'step':1,'bounds':'full'}"), "[{'k':1},{'k':2,'a':2},{'k':3,'a':4},{'k':2,'a':3}]",
         "[{'k':1},{'k':2,'a':2},{'k':2,'a':3},{'k':3,'a':2},{'k':3,'a':3},{'k':3,'a':4},"
         "{'k':1,'a':2},{'k':1,'a':3},{'k':1,'a':4},{'k':2,'a':4}]"},
        {BY_K("{'step':1,'bounds':[0,3]}"),
         "[{'k':[1,5],'a':0},{'k':[1,6],'a':1},{'k':[1,5],'a':2}]",
         "[{'k':[1,5],'a':0},{'k':[1,6],'a':0},{'k':[1,6],'a':1},{'k':[1,5],'a':1},"
         "{'k':[1,5],'a':2},{'k':[1,6],'a':2}]"},
        {BY_K("{'step':1,'bounds':[0,2]}"), "[{'k':1,'a':1},{'a':0}]",
         "[{'a':0},{'a':1},{'k':1,'a':0},{'k':1,'a':1}]"},
        {BY_K("{'step':1,'bounds':'partition'}"),
         "[{'k':1,'b':1},{'k':1,'a':1},{'k':1,'a':3},{'k':2}]",
         "[{'k':1,'b':1},{'k':1,'a':1},{'k':1,'a':2},{'k':1,'a':3},{'k':2}]"},
        {"[{'$densify':{'field':'x.a','partitionByFields':['x.k','q'],"
         "'range':{'step':1,'bounds':'full'}}}]",
         "[{'x':{'a':1,'k':5}},{'x':{'k':5,'a':3}}]",
         "[{'x':{'a':1,'k':5}},{'x':{'k':5,'a':2}},{'x':{'k':5,'a':3}}]"},
        {DENSIFY("{'step':50,'unit':'second','bounds':'full'}"),
         "[{'a':" DATE("0") "},{'a':" DATE("1") "}]",
         "[{'a':" DATE("0") "},{'a':{'$date':{'$numberLong':'50000'}}},{'a':" DATE("1") "}]"},
        {DENSIFY("{'step':1,'unit':'month','bounds':[{'$date':'2021-01-31T00:00:00Z'},"
                 "{'$date':'2021-04-01T00:00:00Z'}]}"),
         "[]",
         "[{'a':{'$date':'2021-01-31T00:00:00Z'}},{'a':{'$date':'2021-02-28T00:00:00Z'}},"
         "{'a':{'$date':'2021-03-31T00:00:00Z'}}]"},
    };
    pipeline_run_cases(CASES, ARRAY_LEN(CASES));
}

TEST(fill_replaces_what_is_null) {
    static const PipelineCase CASES[] = {
        {"[{'$fill':{'output':{'a':{'value':7},'b':{'value':{'$add':['$c',1]}}}}}]",
         "[{'a':1,'c':1},{'a':null,'b':2,'c':5},{}]",
         "[{'a':1,'c':1,'b':2},{'a':7,'b':2,'c':5},{'a':7,'b':null}]"},
        {"[{'$fill':{'sortBy':{'t':1},'output':{'a':{'method':'linear'},'b':{'method':'locf'},"
         "'c':{'value':0}}}}]",
         "[{'t':1,'a':1,'b':5},{'t':2},{'t':3,'a':5,'b':null}]",
         "[{'t':1,'a':1,'b':5,'c':0},{'t':2,'a':3.0,'b':5,'c':0},{'t':3,'a':5,'b':5,'c':0}]"},
        {"[{'$fill':{'partitionByFields':['k','x.y'],'sortBy':{'t':1},'output':{'a':{'method':"
         "'locf'}}}}]",
         "[{'k':1,'t':1,'a':1},{'k':2,'t':2},{'k':1,'t':3}]",
         "[{'k':1,'t':1,'a':1},{'k':1,'t':3,'a':1},{'k':2,'t':2,'a':null}]"},
        {"[{'$fill':{'output':{'a':{'method':'locf'}}}}]", "[{'a':1},{},{'a':2},{'a':null}]",
         "[{'a':1},{'a':1},{'a':2},{'a':2}]"},
        {"[{'$fill':{'partitionBy':{'q':'$k'},'sortBy':{'t':1},'output':{'a':{'method':'locf'}}}}]",
         "[{'k':1,'t':1,'a':1},{'k':2,'t':2},{'k':1,'t':3}]",
         "[{'k':1,'t':1,'a':1},{'k':1,'t':3,'a':1},{'k':2,'t':2,'a':null}]"},
    };
    pipeline_run_cases(CASES, ARRAY_LEN(CASES));
}

TEST(malformed_densify_and_fill_are_refused) {
    static const PipelineErrorCase CASES[] = {
        {"[{'$densify':1}]", 5733201, "object"},
        {"[{'$densify':{'field':'a'}}]", 40414, "range"},
        {"[{'$densify':{'field':'a','range':{'step':1,'bounds':'full'},'x':1}}]", 40415, "x"},
        {DENSIFY("{'step':0,'bounds':'full'}"), 5733401, "positive"},
        {DENSIFY("{'step':1,'bounds':'some'}"), 5946802, "full"},
        {DENSIFY("{'step':1,'bounds':5}"), 5733402, "bounds"},
        {DENSIFY("{'step':1,'bounds':[1]}"), 5733403, "two elements"},
        {DENSIFY("{'step':1,'bounds':[2,1]}"), 5733402, "ascending"},
        {DENSIFY("{'step':1,'bounds':[1,'x']}"), 5733406, "both"},
        {DENSIFY("{'step':'x','bounds':'full'}"), ERR_TYPE_MISMATCH, "step"},
        {DENSIFY("{'step':1,'unit':5,'bounds':'full'}"), ERR_TYPE_MISMATCH, "unit"},
        {DENSIFY("{'step':1,'unit':'day','bounds':[" DATE("1") ",1]}"), 5733402, "ascending"},
        {"[{'$densify':{'field':'$a','range':{'step':1,'bounds':'full'}}}]", 16410, "$"},
        {"[{'$densify':{'field':'a.b','partitionByFields':['a'],'range':{'step':1,'bounds':"
         "'full'}}}]",
         9554500, "contains"},
        {DENSIFY("{'step':1,'unit':'day','bounds':[1,2]}"), 5733409, "unit"},
        {DENSIFY("{'step':1.5,'unit':'day','bounds':'full'}"), 6586400, "whole"},
        {DENSIFY("{'step':1,'bounds':'partition'}"), 5733408, "partition"},
        {DENSIFY("{'step':1,'unit':'day','bounds':'full'}"), 6053600, "numeric"},
        {"[{'$densify':{'field':'s','range':{'step':1,'bounds':'full'}}}]", 5733201, "numeric"},
        {"[{'$densify':{'field':'a','partitionByFields':['a.b'],'range':{'step':1,'bounds':"
         "'full'}}}]",
         8993000, "being densified"},
        {DENSIFY("{'step':1,'bounds':[0,1000000]}"), 5897900, "over the limit of 500000"},
        {"[{'$fill':1}]", ERR_FAILED_TO_PARSE, "object"},
        {"[{'$fill':{}}]", 40414, "output"},
        {"[{'$fill':{'output':{}}}]", 6050203, "output"},
        {"[{'$fill':{'output':{'a':{'method':'locf'}},'partitionBy':1,'partitionByFields':[]}}]",
         6050204, "one of"},
        {"[{'$fill':{'output':{'a':1}}}]", 6050200, "'a'"},
        {"[{'$fill':{'output':{'a':{'method':'locf','second':'locf'}}}}]", 40415, "second"},
        {"[{'$fill':{'output':{'a':{'method':'x'}}}}]", 6050202, "linear"},
        {"[{'$fill':{'output':{'a':{'method':'linear'}}}}]", 605001, "sortBy"},
    };
    pipeline_run_error_cases(CASES, ARRAY_LEN(CASES));
}
