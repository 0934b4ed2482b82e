/*
 * expr_test.c - expressions, case by case.
 */
#include "query/expr/expr.h"

#include "base/test.h"
#include "bson/json_docs_test.h"
#include "query/expr/expr_cases_test.h"

TEST(paths_and_variables_find_their_values) {
    static const ExprCase CASES[] = {
        {"'$i'", "7"},
        {"'$missing'", "missing"},
        {"'$z'", "null"},
        {"'$o.y.z'", "2"},
        {"'$o.q.z'", "missing"},
        {"'$i.x'", "missing"},
        /* Arrays of documents give arrays; what is no document is passed over. */
        {"'$docs.x'", "[1,2]"},
        {"'$docs.q'", "[]"},
        {"'$a.x'", "[]"},
        {"'$docs.0'", "[]"}, /* numbers are names */
        {"'$$ROOT.i'", "7"},
        {"'$$CURRENT.i'", "7"},
        {"'$$NOW'", "{'$date':{'$numberLong':'1000'}}"},
        {"'$$REMOVE'", "missing"},
        {"'$$v.w.x'", "[1,2]"},
        {"{'x':'$i','y':{'z':'$missing'},'w':['$missing',1]}", "{'x':7,'y':{},'w':[null,1]}"},
        {"{}", "{}"},
        {"'plain'", "'plain'"},
        {"{'$literal':'$i'}", "'$i'"},
        {"{'$const':'$i'}", "'$i'"},
        {"{'$literal':{'$add':[1]}}", "{'$add':[1]}"},
        {"{'$let':{'vars':{'x':1,'y':'$i'},'in':{'$add':['$$x','$$y']}}}", "8"},
        {"{'$let':{'vars':{'x':1},'in':{'$let':{'vars':{'x':2,'y':'$$x'},'in':['$$x','$$y']}}}}",
         "[2,1]"},
        {"{'$let':{'vars':{'CURRENT':'$o'},'in':'$x'}}", "1"},
        {"{'$let':{'vars':{},'in':1}}", "1"},
        {"{'$let':{'vars':{'CURRENT':'$o'},'in':{'$getField':'x'}}}", "1"},
    };
    expr_run_cases(CASES, ARRAY_LEN(CASES));
}

TEST(arithmetic_widens_and_keeps_types) {
    static const ExprCase CASES[] = {
        {"{'$add':['$i',1]}", "8"},
        {"{'$add':[]}", "0"},
        {"{'$add':['$int',1]}", "{'$numberLong':'2147483648'}"},
        {"{'$add':['$int',1,-1]}", "2147483647"},
        {"{'$add':['$big',1]}", "9223372036854775808.0"},
        {"{'$add':['$i','$l']}", "{'$numberLong':'12'}"},
        {"{'$add':['$i','$f']}", "9.5"},
        {"{'$add':['$i','$d']}", "{'$numberDecimal':'8.5'}"},
        {"{'$add':['$i',null]}", "null"},
        {"{'$add':['$i','$missing']}", "null"},
        {"{'$add':['$date',877]}", "{'$date':{'$numberLong':'1609459200000'}}"},
        {"{'$add':['$date',0.6]}", "{'$date':{'$numberLong':'1609459199124'}}"},
        {"{'$add':['$date',0.5,0.5]}", "{'$date':{'$numberLong':'1609459199125'}}"},
        {"{'$add':[0.5,0.5,'$date']}", "{'$date':{'$numberLong':'1609459199124'}}"},
        {"{'$add':['$date',{'$numberDecimal':'0.6'}]}",
         "{'$date':{'$numberLong':'1609459199124'}}"},
        {"{'$subtract':['$date',0.5]}", "{'$date':{'$numberLong':'1609459199122'}}"},
        {"{'$subtract':['$date',{'$numberDecimal':'1.6'}]}",
         "{'$date':{'$numberLong':'1609459199121'}}"},
        {"{'$subtract':['$date',{'$add':['$date',-5]}]}", "{'$numberLong':'5'}"},
        {"{'$subtract':['$date',123]}", "{'$date':{'$numberLong':'1609459199000'}}"},
        {"{'$subtract':['$n','$int']}", "{'$numberLong':'-2147483650'}"},
        {"{'$subtract':[1,2.5]}", "-1.5"},
        {"{'$multiply':['$int',2]}", "{'$numberLong':'4294967294'}"},
        {"{'$multiply':['$big',2]}", "1.8446744073709552e19"},
        {"{'$multiply':[2,null]}", "null"},
        {"{'$divide':[6,4]}", "1.5"},
        {"{'$divide':['$d',3]}", "{'$numberDecimal':'0.5'}"},
        {"{'$mod':['$n',2]}", "-1"},
        {"{'$mod':[5.5,2]}", "1.5"},
        {"{'$mod':['$l',3]}", "{'$numberLong':'2'}"},
        {"{'$mod':[{'$numberDecimal':'10.5'},3]}", "{'$numberDecimal':'1.5'}"},
        {"{'$abs':'$n'}", "3"},
        {"{'$abs':-2147483648}", "{'$numberLong':'2147483648'}"},
        {"{'$ceil':2.1}", "3.0"},
        {"{'$floor':-2.1}", "-3.0"},
        {"{'$floor':{'$numberDecimal':'-2.1'}}", "{'$numberDecimal':'-3'}"},
        {"{'$ceil':5}", "5"},
        {"{'$round':[2.5]}", "2.0"},
        {"{'$round':[3.5]}", "4.0"},
        {"{'$round':[1234.5678,2]}", "1234.57"},
        {"{'$round':[1234.5678,-2]}", "1200.0"},
        {"{'$round':[1250,-2]}", "1200"},
        {"{'$round':[1350,-2]}", "1400"},
        {"{'$round':[-9.99,1]}", "-10.0"},
        {"{'$round':[0.5,-3]}", "0.0"},
        {"{'$round':[{'$numberDecimal':'2.345'},2]}", "{'$numberDecimal':'2.34'}"},
        {"{'$trunc':[-7.8]}", "-7.0"},
        {"{'$trunc':[1.999,2]}", "1.99"},
        {"{'$trunc':[{'$numberDecimal':'1.999'},1]}", "{'$numberDecimal':'1.9'}"},
        {"{'$trunc':['$missing']}", "null"},
        {"{'$sqrt':16}", "4.0"},
        {"{'$sqrt':{'$numberDecimal':'2'}}",
         "{'$numberDecimal':'1.414213562373095048801688724209698'}"},
        {"{'$sqrt':{'$numberDecimal':'16'}}", "{'$numberDecimal':'4'}"},
        {"{'$pow':[2,10]}", "1024"},
        {"{'$pow':[2,40]}", "{'$numberLong':'1099511627776'}"},
        {"{'$pow':[2,100]}", "1.2676506002282294e30"},
        {"{'$pow':[2,-1]}", "0.5"},
        {"{'$pow':[-1,-3]}", "-1"},
        {"{'$pow':[0,0]}", "1"},
        {"{'$pow':[{'$numberDecimal':'1.1'},2]}",
         "{'$numberDecimal':'1.210000000000000000000000000000000'}"},
        {"{'$pow':[{'$numberDecimal':'2'},{'$numberDecimal':'0.5'}]}",
         "{'$numberDecimal':'1.414213562373095048801688724209698'}"},
        {"{'$mod':[{'$numberDecimal':'1e30'},7]}", "{'$numberDecimal':'1'}"},
        {"{'$mod':['$i',4.0]}", "3"},
        {"{'$mod':['$l',4.0]}", "{'$numberLong':'1'}"},
        {"{'$mod':['$i',4.5]}", "2.5"},
        {"{'$mod':[7.0,4]}", "3.0"},
        {"{'$mod':['$i',3e9]}", "7.0"},
        {"{'$sqrt':{'$numberDecimal':'2'}}",
         "{'$numberDecimal':'1.414213562373095048801688724209698'}"},
        {"{'$log':[{'$numberDecimal':'1024'},2]}", "{'$numberDecimal':'10'}"},
        {"{'$trunc':[{'$numberDecimal':'1.298'},100]}",
         "{'$numberDecimal':'1.298000000000000000000000000000000'}"},
        {"{'$exp':{'$numberDecimal':'1'}}",
         "{'$numberDecimal':'2.718281828459045235360287471352662'}"},
        {"{'$exp':0}", "1.0"},
        {"{'$ln':1}", "0.0"},
        {"{'$log':[8,2]}", "3.0"},
        {"{'$log10':1000}", "3.0"},
        {"{'$log10':{'$numberDecimal':'1000'}}", "{'$numberDecimal':'3'}"},
        {"{'$log10':{'$numberDecimal':'NaN'}}", "{'$numberDouble':'NaN'}"},
        {"{'$ln':{'$numberDecimal':'NaN'}}", "{'$numberDouble':'NaN'}"},
        {"{'$bitAnd':[12,10]}", "8"},
        {"{'$bitOr':[12,{'$numberLong':'3'}]}", "{'$numberLong':'15'}"},
        {"{'$bitXor':[]}", "0"},
        {"{'$bitNot':0}", "-1"},
        {"{'$sin':0}", "0.0"},
        {"{'$degreesToRadians':180}", "3.141592653589793"},
    };
    expr_run_cases(CASES, ARRAY_LEN(CASES));
}

TEST(comparison_and_logic_follow_the_one_order) {
    static const ExprCase CASES[] = {
        {"{'$eq':[1,1.0]}", "true"},
        {"{'$eq':['$missing',null]}", "false"},
        {"{'$lt':['$missing',null]}", "true"},
        {"{'$gt':['a',5]}", "true"},
        {"{'$gte':[5,5]}", "true"},
        {"{'$lte':[6,5]}", "false"},
        {"{'$ne':[[1,2],[1,2.0]]}", "false"},
        {"{'$cmp':[1,2]}", "-1"},
        {"{'$cmp':[{'$numberDecimal':'2.0'},2]}", "0"},
        {"{'$and':[1,'x',[]]}", "true"},
        {"{'$and':[]}", "true"},
        {"{'$and':[1,'$missing']}", "false"},
        {"{'$or':[0,null,'$missing']}", "false"},
        {"{'$or':[0,'']}", "true"},
        {"{'$not':[0]}", "true"},
        {"{'$not':'$t'}", "false"},
        {"{'$cond':['$t','yes',{'$divide':['$i',0]}]}", "'yes'"},
        {"{'$cond':{'if':'$z','then':1,'else':2}}", "2"},
        {"{'$ifNull':['$z','$missing',3]}", "3"},
        {"{'$ifNull':['$i',3]}", "7"},
        {"{'$ifNull':['$z','$missing']}", "missing"},
        {"{'$switch':{'branches':[{'case':'$z','then':1},{'case':{'$gt':['$i',5]},'then':2}]}}",
         "2"},
        {"{'$switch':{'branches':[{'case':false,'then':1}],'default':'d'}}", "'d'"},
    };
    expr_run_cases(CASES, ARRAY_LEN(CASES));
}

TEST(string_operators_count_bytes_or_code_points) {
    static const ExprCase CASES[] = {
        {"{'$concat':['$s',' ','world']}", "'Hello world'"},
        {"{'$concat':['a','$z']}", "null"},
        {"{'$concat':[]}", "''"},
        {"{'$toLower':'$s'}", "'hello'"},
        {"{'$toUpper':'$utf'}", "'CAF\xC3\xA9'"},
        {"{'$toUpper':'$z'}", "''"},
        {"{'$toLower':12}", "'12'"},
        {"{'$strLenBytes':'$utf'}", "5"},
        {"{'$strLenCP':'$utf'}", "4"},
        {"{'$substrBytes':['$s',1,3]}", "'ell'"},
        {"{'$substrBytes':['$s',1,-1]}", "'ello'"},
        {"{'$substrBytes':['$s',9,1]}", "''"},
        {"{'$substr':[12345,1,2]}", "'23'"},
        {"{'$substrCP':['$utf',3,5]}", "'\xC3\xA9'"},
        {"{'$substrCP':['$z',0,1]}", "''"},
        {"{'$split':['a-b-c','-']}", "['a','b','c']"},
        {"{'$split':['abc','x']}", "['abc']"},
        {"{'$split':['-','-']}", "['','']"},
        {"{'$split':['$z','-']}", "null"},
        {"{'$trim':{'input':' \\t a b \\n'}}", "'a b'"},
        {"{'$ltrim':{'input':'xxaxx','chars':'x'}}", "'axx'"},
        {"{'$rtrim':{'input':'xxa\xC3\xA9','chars':'\xC3\xA9x'}}", "'xxa'"},
        {"{'$trim':{'input':'$z'}}", "null"},
        {"{'$indexOfBytes':['$utf','\xC3\xA9']}", "3"},
        {"{'$indexOfBytes':['abcabc','c',3]}", "5"},
        {"{'$indexOfBytes':['abcabc','c',3,5]}", "-1"},
        {"{'$indexOfBytes':['abc','',9]}", "-1"},
        {"{'$indexOfBytes':['$z','c']}", "null"},
        {"{'$indexOfCP':['\xC3\xA9x','x']}", "1"},
        {"{'$strcasecmp':['abc','ABD']}", "-1"},
        {"{'$strcasecmp':['$s','HELLO']}", "0"},
        {"{'$replaceOne':{'input':'aaa','find':'a','replacement':'b'}}", "'baa'"},
        {"{'$replaceAll':{'input':'aaa','find':'a','replacement':'bb'}}", "'bbbbbb'"},
        {"{'$replaceAll':{'input':'ab','find':'','replacement':'-'}}", "'-a-b-'"},
        {"{'$replaceAll':{'input':null,'find':'a','replacement':'b'}}", "null"},
    };
    expr_run_cases(CASES, ARRAY_LEN(CASES));
}

TEST(array_operators_give_new_arrays) {
    static const ExprCase CASES[] = {
        {"{'$size':'$a'}", "3"},
        {"{'$size':[[1,2]]}", "2"},
        {"{'$arrayElemAt':['$a',0]}", "1"},
        {"{'$arrayElemAt':['$a',-1]}", "3"},
        {"{'$arrayElemAt':['$a',5]}", "missing"},
        {"{'$arrayElemAt':['$z',0]}", "null"},
        {"{'$first':'$a'}", "1"},
        {"{'$last':'$a'}", "3"},
        {"{'$last':'$e'}", "missing"},
        {"{'$first':'$missing'}", "null"},
        {"{'$slice':['$a',2]}", "[1,2]"},
        {"{'$slice':['$a',-2]}", "[2,3]"},
        {"{'$slice':['$a',1,1]}", "[2]"},
        {"{'$slice':['$a',-9,2]}", "[1,2]"},
        {"{'$slice':['$a',9,2]}", "[]"},
        {"{'$slice':[null,'x']}", "null"},
        {"{'$slice':['$a',1,null]}", "null"},
        {"{'$concatArrays':['$a',[4],'$e']}", "[1,2,3,4]"},
        {"{'$concatArrays':['$a','$z']}", "null"},
        {"{'$in':[2.0,'$a']}", "true"},
        {"{'$in':['x','$a']}", "false"},
        {"{'$isArray':'$a'}", "true"},
        {"{'$isArray':['$i']}", "false"},
        {"{'$map':{'input':'$a','as':'q','in':{'$add':['$$q','$i']}}}", "[8,9,10]"},
        {"{'$map':{'input':'$a','in':'$missing'}}", "[null,null,null]"},
        {"{'$map':{'input':'$a','as':'x','in':{'$map':{'input':'$a','as':'y',"
         "'in':{'$multiply':['$$x','$$y']}}}}}",
         "[[1,2,3],[2,4,6],[3,6,9]]"},
        {"{'$filter':{'input':'$a','cond':{'$gt':['$$this',1]}}}", "[2,3]"},
        {"{'$filter':{'input':'$a','as':'x','cond':true,'limit':2}}", "[1,2]"},
        {"{'$reduce':{'input':'$a','initialValue':0,'in':{'$add':['$$value','$$this']}}}", "6"},
        {"{'$reduce':{'input':'$z','initialValue':0,'in':1}}", "null"},
        {"{'$range':[0,5,2]}", "[0,2,4]"},
        {"{'$range':[5,0,-2]}", "[5,3,1]"},
        {"{'$range':[0,0]}", "[]"},
        {"{'$reverseArray':'$a'}", "[3,2,1]"},
        {"{'$indexOfArray':['$a',2]}", "1"},
        {"{'$indexOfArray':['$a',2,2]}", "-1"},
        {"{'$arrayToObject':[[['a',1],['b',2],['a',3]]]}", "{'a':3,'b':2}"},
        {"{'$arrayToObject':{'$literal':[{'k':'a','v':1}]}}", "{'a':1}"},
        {"{'$objectToArray':'$o'}", "[{'k':'x','v':1},{'k':'y','v':{'z':2}}]"},
        {"{'$zip':{'inputs':['$a',['x']]}}", "[[1,'x']]"},
        {"{'$zip':{'inputs':['$a',['x']],'useLongestLength':true}}", "[[1,'x'],[2,null],[3,null]]"},
        {"{'$zip':{'inputs':['$a',['x']],'useLongestLength':true,'defaults':[0,'d']}}",
         "[[1,'x'],[2,'d'],[3,'d']]"},
        {"{'$sortArray':{'input':'$mixed','sortBy':1}}", "[null,1.5,3,'a']"},
        {"{'$sortArray':{'input':'$mixed','sortBy':-1}}", "['a',3,1.5,null]"},
        {"{'$sortArray':{'input':[{'a':2,'b':1},{'a':1},{'a':2,'b':0}],'sortBy':{'a':-1,'b':1}}}",
         "[{'a':2,'b':0},{'a':2,'b':1},{'a':1}]"},
        {"{'$setUnion':[[3,1],[2,1.0]]}", "[1,2,3]"},
        {"{'$setIntersection':[[3,1,2],[2,3,9],[3,2]]}", "[2,3]"},
        {"{'$setDifference':[[3,1,3,2],[1]]}", "[3,2]"},
        {"{'$setEquals':[[1,2,2],[2,1]]}", "true"},
        {"{'$setIsSubset':[[1],[2,1]]}", "true"},
        {"{'$setUnion':['$z',[1]]}", "null"},
        {"{'$anyElementTrue':[[0,null,1]]}", "true"},
        {"{'$allElementsTrue':[[]]}", "true"},
        {"{'$allElementsTrue':[[1,0]]}", "false"},
        {"{'$sum':'$a'}", "6"},
        {"{'$sum':['$a',4]}", "4"},
        {"{'$sum':'$mixed'}", "4.5"},
        {"{'$avg':'$a'}", "2.0"},
        {"{'$avg':'$e'}", "null"},
        {"{'$min':'$mixed'}", "1.5"},
        {"{'$max':'$mixed'}", "'a'"},
        {"{'$max':['$i','$a']}", "[1,2,3]"},
        {"{'$min':'$missing'}", "null"},
    };
    expr_run_cases(CASES, ARRAY_LEN(CASES));
}

TEST(object_operators_read_and_change_fields) {
    static const ExprCase CASES[] = {
        {"{'$mergeObjects':['$o',{'x':5,'w':1},null]}", "{'x':5,'y':{'z':2},'w':1}"},
        {"{'$mergeObjects':[]}", "{}"},
        {"{'$getField':'i'}", "7"},
        {"{'$getField':{'field':{'$literal':'$x'},'input':{'$literal':{'$x':1}}}}", "1"},
        {"{'$getField':{'field':'x','input':'$missing'}}", "missing"},
        {"{'$setField':{'field':'a.b','input':'$o','value':3}}", "{'x':1,'y':{'z':2},'a.b':3}"},
        {"{'$setField':{'field':'x','input':'$o','value':'$$REMOVE'}}", "{'y':{'z':2}}"},
        {"{'$unsetField':{'field':'y','input':'$o'}}", "{'x':1}"},
        {"{'$setField':{'field':'x','input':null,'value':1}}", "null"},
        {"{'$bsonSize':{}}", "5"},
        {"{'$binarySize':'$s'}", "5"},
    };
    expr_run_cases(CASES, ARRAY_LEN(CASES));
}

TEST(conversions_change_types_and_report_what_does_not_fit) {
    static const ExprCase CASES[] = {
        {"{'$toString':{'$add':[0.1,0.2]}}", "'0.30000000000000004'"},
        {"{'$toString':1e100}", "'1e+100'"},
        {"{'$toLower':9.95}", "'9.95'"},
        {"{'$toDecimal':'12345678901234567890123456789012345678901234567890'}",
         "{'$numberDecimal':'1.234567890123456789012345678901235E+49'}"},
        {"{'%type':'$missing'}", "'missing'"},
        {"{'%type':'$l'}", "'long'"},
        {"{'$isNumber':'$d'}", "true"},
        {"{'$toString':'$f'}", "'2.5'"},
        {"{'$toString':'$t'}", "'true'"},
        {"{'$toString':'$oid'}", "'5ab9cbfa31c2ab715d42129e'"},
        {"{'$toString':'$date'}", "'2020-12-31T23:59:59.123Z'"},
        {"{'$toString':{'$numberDecimal':'1.50'}}", "'1.50'"},
        {"{'$toInt':'42'}", "42"},
        {"{'$toInt':-3.9}", "-3"},
        {"{'$toInt':true}", "1"},
        {"{'$toInt':'$z'}", "null"},
        {"{'$toLong':'$date'}", "{'$numberLong':'1609459199123'}"},
        {"{'$toLong':'-9223372036854775808'}", "{'$numberLong':'-9223372036854775808'}"},
        {"{'$toDouble':'1e3'}", "1000.0"},
        {"{'$toDecimal':'1.10'}", "{'$numberDecimal':'1.10'}"},
        {"{'$toDecimal':5}", "{'$numberDecimal':'5'}"},
        {"{'$toBool':0.0}", "false"},
        {"{'$toBool':'false'}", "true"},
        {"{'$toDate':'2020-12-31T23:59:59.123Z'}", "{'$date':{'$numberLong':'1609459199123'}}"},
        {"{'$toDate':'2020-12-31'}", "{'$date':{'$numberLong':'1609372800000'}}"},
        {"{'$toDate':'2021-01-01T01:00:00+02:00'}", "{'$date':{'$numberLong':'1609455600000'}}"},
        {"{'$toDate':{'$numberLong':'5'}}", "{'$date':{'$numberLong':'5'}}"},
        {"{'$toDate':'$oid'}", "{'$date':{'$numberLong':'1522125818000'}}"},
        {"{'$toObjectId':'5ab9cbfa31c2ab715d42129e'}", "{'$oid':'5ab9cbfa31c2ab715d42129e'}"},
        {"{'$convert':{'input':'x','to':'int','onError':-1}}", "-1"},
        {"{'$convert':{'input':'$missing','to':'int','onNull':'none'}}", "'none'"},
        {"{'$convert':{'input':'7','to':16}}", "7"},
    };
    expr_run_cases(CASES, ARRAY_LEN(CASES));
}

TEST(parts_of_dates_are_those_of_the_calendar) {
    static const ExprCase CASES[] = {
        {"{'$year':'$date'}", "2020"},
        {"{'$month':'$date'}", "12"},
        {"{'$dayOfMonth':['$date']}", "31"},
        {"{'$hour':'$date'}", "23"},
        {"{'$minute':'$date'}", "59"},
        {"{'$second':'$date'}", "59"},
        {"{'$millisecond':'$date'}", "123"},
        {"{'$dayOfWeek':'$date'}", "5"},
        {"{'$dayOfYear':'$date'}", "366"},
        {"{'$isoWeek':'$date'}", "53"},
        {"{'$isoWeekYear':'$date'}", "{'$numberLong':'2020'}"},
        {"{'$isoDayOfWeek':'$date'}", "4"},
        {"{'$week':'$date'}", "52"},
        {"{'$year':{'date':'$date','timezone':'+01:00'}}", "2021"},
        {"{'$year':'$z'}", "null"},
        {"{'$year':{'$toDate':{'$numberLong':'-1'}}}", "1969"},
        {"{'$dayOfYear':{'$toDate':'2000-02-29'}}", "60"},
        {"{'$year':{'$toDate':{'$numberLong':'-9223372036854775808'}}}", "-292275055"},
        {"{'$millisecond':{'$toDate':{'$numberLong':'9223372036854775807'}}}", "807"},
        {"{'$dateToString':{'date':'$date','format':'%Y/%m/%d %H:%M:%S.%L %j %z %%'}}",
         "'2020/12/31 23:59:59.123 366 +0000 %'"},
        {"{'$dateToString':{'date':'$date'}}", "'2020-12-31T23:59:59.123Z'"},
        {"{'$dateToString':{'date':'$z','onNull':'none'}}", "'none'"},
    };
    expr_run_cases(CASES, ARRAY_LEN(CASES));
}

TEST(malformed_expressions_are_refused_with_the_codes_of_the_language) {
    static const ExprErrorCase CASES[] = {
        {"{'$foo':1}", ERR_INVALID_PIPELINE_OPERATOR, "Unrecognized expression '$foo'"},
        {"{'$function':1}", ERR_NOT_IMPLEMENTED, "$function"},
        {"'$$CLUSTER_TIME'", 51144, "not available"},
        {"'$$USER_ROLES'", ERR_NOT_IMPLEMENTED, "USER_ROLES"},
        {"{'$getField':'$i'}", 5654600, "Did you mean {$literal: '$i'}?"},
        {"{'$getField':{'$concat':['$s','x']}}", 5654601, "constant"},
        {"{'$getField':{'field':5,'input':'$o'}}", 5654602, "but got int"},
        {"{'$getField':{'$concat':['a','b']}}", 5654601, "constant"},
        {"{'$getField':{'field':{'a':1},'input':'$o'}}", 5654601, "constant"},
        {"{'$getField':{'field':{'$const':[]},'input':'$o'}}", 5654602, "but got array"},
        {"{'$getField':{'input':'$o'}}", 3041702, "field"},
        {"{'$getField':{'field':'x'}}", 3041703, "input"},
        {"'$$nope'", 17276, "Use of undefined variable: nope"},
        {"'$'", 16872, "'$' by itself is not a valid FieldPath"},
        {"'$a..b'", 15998, "empty strings"},
        {"'$a.'", 40353, "must not end with a '.'"},
        {"'$a.$b'", 16410, "may not start with '$'"},
        {"{'$add':[1],'$subtract':[1]}", 15983, "exactly one field"},
        {"{'a.b':1}", 16412, "may not contain '.'"},
        {"{'a':1,'$b':1}", 16410, "may not start with '$'"},
        {"{'a':'$i','a':'$i'}", 16406, "duplicate field name"},
        {"{'$divide':[1]}", 16020,
         "Expression $divide takes exactly 2 arguments. 1 were passed in."},
        {"{'$slice':[1]}", 28667, "at least 2 arguments, and at most 3, but 1 were passed in"},
        {"{'$add':['$s',1]}", ERR_TYPE_MISMATCH,
         "$add only supports numeric or date types, not string"},
        {"{'$add':['$date','$date']}", 16612, "only one date allowed"},
        {"{'$subtract':[1,'$date']}", ERR_TYPE_MISMATCH, "can't $subtract date from int"},
        {"{'$divide':['$i',0]}", ERR_BAD_VALUE, "can't $divide by zero"},
        {"{'$mod':['$i',0]}", 16610, "can't $mod by zero"},
        {"{'$sqrt':-1}", 28714, "greater than or equal to 0"},
        {"{'$ln':0}", 28766, "positive number"},
        {"{'$log':[1,1]}", 28759, "base"},
        {"{'$ifNull':['$a']}", 1257300, "at least two arguments"},
        {"{'$setEquals':[['$a']]}", 17045, "at least two arguments"},
        {"{'$filter':{'input':'$a'}}", 28650, "'cond'"},
        {"{'$map':{'input':'$a'}}", 16882, "'in'"},
        {"{'$reduce':{'input':'$a','in':1}}", 40078, "'initialValue'"},
        {"{'$reduce':{'input':'$a','initialValue':1}}", 40079, "'in'"},
        {"{'$let':{'vars':{}}}", 16877, "'in'"},
        {"{'$sortArray':{'input':'$a'}}", 2942503, "'sortBy'"},
        {"{'$replaceOne':{'input':'a','replacement':'b'}}", 51748, "'find'"},
        {"{'$replaceAll':{'input':'a','find':'b'}}", 51747, "'replacement'"},
        {"{'$setField':{'field':'a'}}", 4161103, "'value'"},
        {"{'$setField':{'field':'a','value':1}}", 4161109, "'input'"},
        {"{'$unsetField':{'field':'a'}}", 4161109, "'input'"},
        {"{'$setField':{'field':1,'input':{},'value':1}}", 4161107, "type String"},
        {"{'$setField':{'field':'$a','input':{},'value':1}}", 4161108, "field path reference"},
        {"{'$unsetField':{'field':{'$concat':['a']},'input':{}}}", 4161106, "constant"},
        {"{'$arrayToObject':[[[1,2]]]}", 40395, "keys of type string"},
        {"'$$_x'", 9, "invalid character"},
        {"'$$1'", 9, "invalid character"},
        {"{'$add':['$date',1e300]}", ERR_OVERFLOW, "date overflow"},
        {"{'$add':['$date','$big']}", ERR_OVERFLOW, "date overflow"},
        {"{'$subtract':['$date',{'$numberDecimal':'NaN'}]}", ERR_OVERFLOW, "date overflow"},
        {"{'$pow':[0,-1]}", 28764, "$pow cannot take a base of 0"},
        {"{'$round':[1,101]}", 51083, "precision"},
        {"{'$concat':['a',1]}", 16702, "$concat only supports strings, not int"},
        {"{'$substrBytes':['$utf',4,1]}", 28656, "continuation"},
        {"{'$substrBytes':['$utf',3,1]}", 28657, "middle of a UTF-8 character"},
        {"{'$strLenBytes':'$z'}", 34473, "$strLenBytes requires a string argument, found: null"},
        {"{'$split':['a','']}", 40087, "non-empty separator"},
        {"{'$size':'$missing'}", 17124, "must be an array, but was of type: missing"},
        {"{'$arrayElemAt':['$a',1.5]}", 28691, "32-bit integer"},
        {"{'$in':[1,2]}", 40081, "$in requires an array as a second argument, found: int"},
        {"{'$map':{'input':1,'in':1}}", 16883, "input to $map must be an array not int"},
        {"{'$map':{'in':1}}", 16880, "Missing 'input' parameter to $map"},
        {"{'$filter':{'input':1,'cond':1}}", 28651, "input to $filter must be an array not int"},
        {"{'$range':[0,10,0]}", 34449, "non-zero step"},
        {"{'$range':[0,2000000000]}", ERR_EXCEEDED_MEMORY_LIMIT, "too much memory"},
        {"{'$let':{'vars':{'X':1},'in':1}}", ERR_FAILED_TO_PARSE, "invalid character"},
        {"{'$switch':{}}", 40068, "at least one branch"},
        {"{'$switch':{'branches':[{'case':false,'then':1}]}}", 40066, "no default"},
        {"{'$cond':[1,2]}", 16020, "exactly 3 arguments"},
        {"{'$cond':{'if':1,'then':1}}", 17082, "Missing 'else'"},
        {"{'$toInt':[1,2]}", 50723, "single argument"},
        {"{'$toDate':[]}", 50723, "single argument"},
        {"{'$toInt':'x'}", ERR_CONVERSION_FAILURE,
         "Failed to parse number 'x' in $convert with no onError value"},
        {"{'$toInt':3e9}", ERR_CONVERSION_FAILURE, "overflow"},
        {"{'$toInt':'$a'}", ERR_CONVERSION_FAILURE, "Unsupported conversion from array to int"},
        {"{'$toDate':'nonsense'}", ERR_CONVERSION_FAILURE, "Error parsing date string"},
        {"{'$year':'$s'}", 16006, "can't convert from BSON type string to Date"},
        {"{'$mergeObjects':['$i']}", 40400, "$mergeObjects requires object inputs"},
        {"{'$arrayToObject':[[1]]}", 40398, "Unrecognised input type format"},
        {"{'$rand':{'a':1}}", 3040501, "$rand"},
    };
    expr_run_error_cases(CASES, ARRAY_LEN(CASES));
}

TEST(operators_are_found_because_their_table_is_sorted) {
    static const char *const NAMES[] = {
#define EXPR_OPERATOR(name, eval, args_min, args_max, variant) name,
#define EXPR_PARSED(name, parse, eval, variant)                name,
#define EXPR_REFUSED(name)                                     name,
#include "query/expr/expr_operators.def"
#undef EXPR_OPERATOR
#undef EXPR_PARSED
#undef EXPR_REFUSED
    };
    for (size_t i = 1; i < ARRAY_LEN(NAMES); i++)
        if (strcmp(NAMES[i - 1], NAMES[i]) >= 0)
            test_fail(__FILE__, __LINE__, "%s is after %s", NAMES[i], NAMES[i - 1]);
}

TEST(an_expression_tells_which_paths_it_reads) {
    static const struct {
        const char *expr;
        const char *paths; /* joined by spaces; "*" for all */
    } CASES[] = {
        {"'$a.b'", "a.b"},
        {"{'$add':['$a.b','$a','$c']}", "a c"},
        {"{'x':['$a',{'$map':{'input':'$b','in':'$$this.q'}}]}", "a b"},
        {"'$$ROOT'", "*"},
        {"'$$ROOT.a'", "a"},
        {"{'$add':[1,2]}", ""},
    };
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        Arena arena;
        arena_init(&arena, 0);
        CLEANUP(error_reset) Error err = {0};
        ExprParseContext ctx = {0};
        Expr *expr = NULL;
        EXPECT_OK(expr_parse(test_query_elem(CASES[i].expr, &arena), &ctx, &arena, &expr, &err),
                  err);
        PathSet set = path_set(&arena);
        expr_add_paths(expr, &set);
        char *text = arena_strdup(&arena, set.is_all ? "*" : "");
        for (uint32_t j = 0; j < set.count; j++)
            text = arena_printf(&arena, "%s%s%.*s", text, j == 0 ? "" : " ", (int)set.paths[j].size,
                                set.paths[j].data);
        EXPECT_STR(text, CASES[i].paths);
        arena_done(&arena);
    }
}

static ErrCode always_stop(void *arg, Error *err) {
    (void)arg;
    return error_set(err, ERR_INTERRUPTED, "stop");
}

TEST(a_long_evaluation_asks_whether_to_go_on) {
    /* Goal: loops inside of one expression can be interrupted.
     * Method: a check that fails the first time it is asked. */
    Arena arena;
    arena_init(&arena, 0);
    CLEANUP(error_reset) Error err = {0};
    ExprParseContext ctx = {0};
    Expr *expr = NULL;
    EXPECT_OK(
        expr_parse(test_query_elem("{'$map':{'input':{'$range':['$z',1000]},'in':1}}", &arena),
                   &ctx, &arena, &expr, &err),
        err);
    ExprEvalContext eval = {.root = elem_doc(test_query_elem("{'z':0}", &arena)),
                            .scratch = &arena,
                            .check = {always_stop, NULL}};
    Value ignored;
    EXPECT(expr_eval(expr, &eval, &ignored, &err) == ERR_INTERRUPTED);
    arena_done(&arena);
}

TEST(loops_keep_their_results_and_not_what_led_to_them) {
    /* Goal: memory of a loop is that of its result, not of all intermediate ones.
     * Method: loops that compute tens of megabytes on the way, in a few megabytes, with results
     * that show a lost byte. */
    static const struct {
        const char *expr;
        const char *expected;
    } CASES[] = {
        {"{'$eq':[{'$reduce':{'input':{'$range':['$z',2500]},'initialValue':[],"
         "'in':{'$concatArrays':['$$value',['$$this']]}}},{'$range':[0,2500]}]}",
         "true"},
        {"{'$strLenBytes':{'$reduce':{'input':{'$range':['$z',8000]},'initialValue':'',"
         "'in':{'$concat':['$$value','0123456789']}}}}",
         "80000"},
        {"{'$reduce':{'input':{'$range':['$z',1500]},'initialValue':0,'in':{'$add':['$$value',"
         "{'$size':{'$range':['$z',1000]}}]}}}",
         "1500000"},
        {"{'$eq':[{'$map':{'input':{'$range':['$z',1500]},'as':'i','in':"
         "{'$arrayElemAt':[{'$range':['$z',1500]},'$$i']}}},{'$range':[0,1500]}]}",
         "true"},
        {"{'$eq':[{'$filter':{'input':{'$range':['$z',1500]},'as':'i','cond':"
         "{'$in':['$$i',{'$range':['$z',1500,3]}]}}},{'$range':[0,1500,3]}]}",
         "true"},
        {"{'$size':{'$zip':{'inputs':[{'$range':['$z',60000]},{'$range':['$z',60000]}]}}}",
         "60000"},
        {"{'$eq':[{'$map':{'input':{'$range':['$z',40]},'as':'i','in':{'$reduce':{"
         "'input':{'$range':['$z',600]},'initialValue':['$$i'],"
         "'in':{'$concatArrays':[{'$slice':['$$value',50]},['$$this']]}}}}},"
         "{'$map':{'input':{'$range':['$z',40]},'as':'i','in':{'$concatArrays':[['$$i'],"
         "{'$range':[0,49]},[599]]}}}]}",
         "true"},
    };
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        Arena arena;
        arena_init(&arena, 0);
        CLEANUP(error_reset) Error err = {0};
        ExprParseContext ctx = {0};
        Expr *expr = NULL;
        EXPECT_OK(expr_parse(test_query_elem(CASES[i].expr, &arena), &ctx, &arena, &expr, &err),
                  err);
        Value expected = value_from_elem(test_query_elem(CASES[i].expected, &arena));
        Arena scratch;
        arena_init(&scratch, 0);
        ExprEvalContext eval = {.root = elem_doc(test_query_elem("{'z':0}", &arena)),
                                .scratch = &scratch,
                                .scratch_bytes_max = 10 * 1024 * 1024};
        Value value = VALUE_MISSING;
        if (expr_eval(expr, &eval, &value, &err) != ERR_OK || !values_equal(value, expected, NULL))
            test_fail(__FILE__, __LINE__, "%s: %s, %s", CASES[i].expr, value_to_text(value, &arena),
                      error_message(&err));
        arena_done(&scratch);
        arena_done(&arena);
    }
}

TEST(the_cluster_time_is_a_constant_where_there_is_one) {
    Arena arena;
    arena_init(&arena, 0);
    Error err = {0};
    ExprParseContext ctx = {.cluster_ts = UINT64_C(5) << 32 | 7};
    static const struct {
        const char *json;
        BsonType type;
    } CASES[] = {{"'$$CLUSTER_TIME'", BT_TIMESTAMP},
                 {"'$$CLUSTER_TIME.x'", BT_EOO},
                 {"{'$type':'$$CLUSTER_TIME'}", BT_STRING}};
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        Expr *expr;
        REQUIRE_OK(expr_parse(test_query_elem(CASES[i].json, &arena), &ctx, &arena, &expr, &err),
                   err);
        Value value = VALUE_MISSING;
        EXPECT(expr_is_literal(expr, &value));
        EXPECT(value.type == CASES[i].type);
        if (value.type == BT_TIMESTAMP)
            EXPECT(value.i64 == (INT64_C(5) << 32 | 7));
    }
    arena_done(&arena);
}
