/*
 * expr_date_test.c - dates and time zones, case by case.
 */
#include "base/test.h"
#include "query/expr/date_math.h"
#include "query/expr/expr_cases_test.h"
#include "query/expr/time_zone.h"

/* $toDate reads texts, $toString writes them: both in UTC. */
#define DATE(text) "{'$toDate':'" text "'}"
#define ADD(op, d, u, n)                                                                           \
    "{'$toString':{'" op "':{'startDate':" DATE(d) ",'unit':'" u "','amount':" n "}}}"
#define ADD_TZ(d, u, n, z)                                                                         \
    "{'$toString':{'$dateAdd':{'startDate':" DATE(d) ",'unit':'" u "','amount':" n                 \
                                                     ",'timezone':'" z "'}}}"
#define DIFF(a, b, u, more)                                                                        \
    "{'$dateDiff':{'startDate':" DATE(a) ",'endDate':" DATE(b) ",'unit':'" u "'" more "}}"
#define TRUNC(d, u, more) "{'$toString':{'$dateTrunc':{'date':" DATE(d) ",'unit':'" u "'" more "}}}"
#define PARTS(parts)      "{'$toString':{'$dateFromParts':{" parts "}}}"
#define READ(more)        "{'$toString':{'$dateFromString':{" more "}}}"
#define LONG(n)           "{'$numberLong':'" n "'}"

TEST(dates_are_added_by_the_calendar) {
    static const ExprCase CASES[] = {
        {ADD("$dateAdd", "2020-10-31T12:10:05Z", "month", "1"), "'2020-11-30T12:10:05.000Z'"},
        {ADD("$dateAdd", "2020-10-31T12:10:05Z", "month", "4"), "'2021-02-28T12:10:05.000Z'"},
        {ADD("$dateAdd", "2020-01-31", "quarter", "1"), "'2020-04-30T00:00:00.000Z'"},
        {ADD("$dateAdd", "2020-02-29", "year", "1"), "'2021-02-28T00:00:00.000Z'"},
        {ADD("$dateAdd", "2020-02-29", "year", "-4"), "'2016-02-29T00:00:00.000Z'"},
        {ADD("$dateAdd", "2020-12-31T23:00:00Z", "hour", "2"), "'2021-01-01T01:00:00.000Z'"},
        {ADD("$dateAdd", "2020-12-31", "week", "1"), "'2021-01-07T00:00:00.000Z'"},
        {ADD("$dateAdd", "2020-12-31", "day", "1.0"), "'2021-01-01T00:00:00.000Z'"},
        {ADD("$dateAdd", "2020-12-31", "minute", "-1"), "'2020-12-30T23:59:00.000Z'"},
        {ADD("$dateAdd", "2020-12-31", "second", "61"), "'2020-12-31T00:01:01.000Z'"},
        {ADD("$dateAdd", "2020-12-31", "millisecond", "5"), "'2020-12-31T00:00:00.005Z'"},
        {ADD("$dateSubtract", "2020-12-31", "month", "1"), "'2020-11-30T00:00:00.000Z'"},
        {ADD("$dateSubtract", "2020-12-31", "day", "31"), "'2020-11-30T00:00:00.000Z'"},
        /* A day over the change to summer time has 23 hours, 24 hours are 24 hours. */
        {ADD_TZ("2020-03-28T12:00:00Z", "day", "1", "Europe/Paris"), "'2020-03-29T11:00:00.000Z'"},
        {ADD_TZ("2020-03-28T12:00:00Z", "hour", "24", "Europe/Paris"),
         "'2020-03-29T12:00:00.000Z'"},
        /* 2:30 does not exist on that day. */
        {ADD_TZ("2020-03-28T01:30:00Z", "day", "1", "Europe/Paris"), "'2020-03-29T01:30:00.000Z'"},
        /* The local day decides about the end of the month. */
        {ADD_TZ("2021-01-31T23:30:00Z", "month", "1", "+01:00"), "'2021-02-28T23:30:00.000Z'"},
        {"{'$dateAdd':{'startDate':'$z','unit':'day','amount':1}}", "null"},
        {"{'$dateAdd':{'startDate':'$date','unit':'$z','amount':1}}", "null"},
        {"{'$dateAdd':{'startDate':'$date','unit':'day','amount':'$missing'}}", "null"},
        {"{'$dateAdd':{'startDate':'$date','unit':'day','amount':1,'timezone':null}}", "null"},
        {"{'$toString':{'$dateAdd':{'startDate':'$oid','unit':'second','amount':1}}}",
         "'2018-03-27T04:43:39.000Z'"},
    };
    expr_run_cases(CASES, ARRAY_LEN(CASES));
}

TEST(differences_of_dates_count_boundaries) {
    static const ExprCase CASES[] = {
        {DIFF("2020-12-31T23:59:59Z", "2021-01-01T00:00:01Z", "year", ""), LONG("1")},
        {DIFF("2020-12-31T23:59:59Z", "2021-01-01T00:00:01Z", "quarter", ""), LONG("1")},
        {DIFF("2021-01-01", "2020-11-01", "month", ""), LONG("-2")},
        {DIFF("2020-12-31T23:59:59Z", "2021-01-01T00:00:01Z", "day", ""), LONG("1")},
        {DIFF("2020-12-31T00:00:00Z", "2020-12-31T23:59:59Z", "day", ""), LONG("0")},
        {DIFF("2020-12-31T23:59:59Z", "2021-01-01T01:00:00Z", "hour", ""), LONG("2")},
        {DIFF("2020-12-31T23:59:59Z", "2021-01-01T00:00:00Z", "minute", ""), LONG("1")},
        {DIFF("2020-12-31T23:59:59.9Z", "2021-01-01T00:00:00Z", "second", ""), LONG("1")},
        {DIFF("2020-12-31", "2021-01-01", "millisecond", ""), LONG("86400000")},
        /* 2021-01-23 is a Saturday. */
        {DIFF("2021-01-23", "2021-01-24", "week", ""), LONG("1")},
        {DIFF("2021-01-23", "2021-01-24", "week", ",'startOfWeek':'monday'"), LONG("0")},
        {DIFF("2021-01-22", "2021-01-23", "week", ",'startOfWeek':'SAT'"), LONG("1")},
        {DIFF("2021-01-22", "2021-01-23", "day", ",'startOfWeek':5"), LONG("1")},
        {DIFF("2020-11-01T04:00:00Z", "2020-11-02T04:59:00Z", "day",
              ",'timezone':'America/New_York'"),
         LONG("0")},
        {DIFF("2020-11-01T04:00:00Z", "2020-11-02T05:00:00Z", "day",
              ",'timezone':'America/New_York'"),
         LONG("1")},
        {DIFF("2020-11-01T04:00:00Z", "2020-11-02T05:00:00Z", "hour",
              ",'timezone':'America/New_York'"),
         LONG("25")},
        {DIFF("2020-11-01T04:29:00Z", "2020-11-01T04:31:00Z", "hour", ",'timezone':'+05:30'"),
         LONG("1")},
        {"{'$dateDiff':{'startDate':'$z','endDate':'$date','unit':'day'}}", "null"},
        /* What is null wins over what is wrong. */
        {"{'$dateDiff':{'startDate':1,'endDate':'$z','unit':'eon','timezone':'Nowhere'}}", "null"},
        {"{'$dateDiff':{'startDate':1,'endDate':2,'unit':'week','timezone':1,'startOfWeek':'$z'}}",
         "null"},
        {"{'$dateTrunc':{'date':'x','unit':'eon','binSize':'$z','timezone':'Nowhere'}}", "null"},
        {"{'$dateAdd':{'startDate':'$date','unit':'eon','amount':'$z','timezone':'Nowhere'}}",
         "null"},
    };
    expr_run_cases(CASES, ARRAY_LEN(CASES));
}

TEST(truncated_dates_begin_their_bins) {
    static const ExprCase CASES[] = {
        {TRUNC("2021-03-20T11:30:05.123Z", "year", ""), "'2021-01-01T00:00:00.000Z'"},
        {TRUNC("2021-03-20T11:30:05.123Z", "quarter", ""), "'2021-01-01T00:00:00.000Z'"},
        {TRUNC("2021-03-20T11:30:05.123Z", "month", ""), "'2021-03-01T00:00:00.000Z'"},
        {TRUNC("2021-03-20T11:30:05.123Z", "week", ""), "'2021-03-14T00:00:00.000Z'"},
        {TRUNC("2021-03-20T11:30:05.123Z", "week", ",'startOfWeek':'Monday'"),
         "'2021-03-15T00:00:00.000Z'"},
        {TRUNC("2021-03-20T11:30:05.123Z", "week", ",'binSize':2,'startOfWeek':'Monday'"),
         "'2021-03-15T00:00:00.000Z'"},
        {TRUNC("2021-03-20T11:30:05.123Z", "week",
               ",'binSize':2,'timezone':'America/Los_Angeles',"
               "'startOfWeek':'Monday'"),
         "'2021-03-15T07:00:00.000Z'"},
        {TRUNC("2021-03-20T11:30:05.123Z", "month", ",'binSize':6"), "'2021-01-01T00:00:00.000Z'"},
        {TRUNC("2021-03-20T11:30:05.123Z", "year", ",'binSize':2"), "'2020-01-01T00:00:00.000Z'"},
        {TRUNC("1999-12-31", "year", ",'binSize':10"), "'1990-01-01T00:00:00.000Z'"},
        {TRUNC("1999-12-31T23:59:59Z", "day", ",'binSize':7"), "'1999-12-25T00:00:00.000Z'"},
        {TRUNC("2021-03-20T11:30:05.123Z", "day", ",'timezone':'America/Los_Angeles'"),
         "'2021-03-20T07:00:00.000Z'"},
        {TRUNC("2021-03-20T11:30:05.123Z", "hour", ""), "'2021-03-20T11:00:00.000Z'"},
        {TRUNC("2021-03-20T11:30:05.123Z", "hour", ",'timezone':'Asia/Kolkata'"),
         "'2021-03-20T11:30:00.000Z'"},
        {TRUNC("2021-03-20T11:38:05.123Z", "minute", ",'binSize':15"),
         "'2021-03-20T11:30:00.000Z'"},
        {TRUNC("2021-03-20T11:38:05.123Z", "second", ",'binSize':5"), "'2021-03-20T11:38:05.000Z'"},
        {TRUNC("1999-12-31T23:59:59.999Z", "second", ",'binSize':2"), "'1999-12-31T23:59:58.000Z'"},
        {TRUNC("2021-03-20T11:38:05.123Z", "millisecond", ",'binSize':100"),
         "'2021-03-20T11:38:05.100Z'"},
        {"{'$dateTrunc':{'date':'$date','unit':'day','binSize':null}}", "null"},
    };
    expr_run_cases(CASES, ARRAY_LEN(CASES));
}

TEST(dates_come_from_parts_and_go_to_parts) {
    static const ExprCase CASES[] = {
        {PARTS("'year':2017,'month':2,'day':8,'hour':12"), "'2017-02-08T12:00:00.000Z'"},
        {PARTS("'year':2017"), "'2017-01-01T00:00:00.000Z'"},
        {PARTS("'year':2017,'month':14"), "'2018-02-01T00:00:00.000Z'"},
        {PARTS("'year':2017,'month':0"), "'2016-12-01T00:00:00.000Z'"},
        {PARTS("'year':2017,'month':2,'day':-1"), "'2017-01-30T00:00:00.000Z'"},
        {PARTS("'year':2017,'second':{'$numberLong':'3600000'}"), "'2017-02-11T16:00:00.000Z'"},
        {PARTS("'year':2017,'millisecond':-1"), "'2016-12-31T23:59:59.999Z'"},
        {PARTS("'isoWeekYear':2017,'isoWeek':6,'isoDayOfWeek':3,'hour':12"),
         "'2017-02-08T12:00:00.000Z'"},
        {PARTS("'isoWeekYear':2020,'isoWeek':54"), "'2021-01-04T00:00:00.000Z'"},
        {PARTS("'year':2016,'month':12,'day':31,'hour':23,'minute':46,'second':12,"
               "'timezone':'America/New_York'"),
         "'2017-01-01T04:46:12.000Z'"},
        {"{'$dateFromParts':{'year':null}}", "null"},
        {"{'$dateFromParts':{'year':2017,'timezone':'$z'}}", "null"},
        {"{'$dateToParts':{'date':'$date'}}",
         "{'year':2020,'month':12,'day':31,'hour':23,'minute':59,'second':59,'millisecond':123}"},
        {"{'$dateToParts':{'date':'$date','timezone':'Europe/Berlin','iso8601':true}}",
         "{'isoWeekYear':2020,'isoWeek':53,'isoDayOfWeek':5,'hour':0,'minute':59,'second':59,"
         "'millisecond':123}"},
        {"{'$dateToParts':{'date':null}}", "null"},
        {"{'$dateToParts':{'date':'$date','iso8601':null}}", "null"},
        {"{'$hour':{'date':'$date','timezone':'Asia/Kolkata'}}", "5"},
        {"{'$minute':{'date':'$date','timezone':'Asia/Kolkata'}}", "29"},
        {"{'$hour':{'date':" DATE("2020-07-01T12:00:00Z") ",'timezone':'America/New_York'}}", "8"},
        {"{'$hour':{'date':" DATE("2020-01-01T12:00:00Z") ",'timezone':'America/New_York'}}", "7"},
        /* Rules go on for ever. */
        {"{'$hour':{'date':" DATE("2100-07-01T12:00:00Z") ",'timezone':'America/New_York'}}", "8"},
        {"{'$hour':{'date':" DATE("9999-07-01T12:00:00Z") ",'timezone':'America/New_York'}}", "8"},
        {"{'$hour':{'date':" DATE("9999-01-01T12:00:00Z") ",'timezone':'America/New_York'}}", "7"},
        {"{'$hour':{'date':'$date','timezone':'UTC'}}", "23"},
        {"{'$hour':{'date':'$date','timezone':{'$concat':['Europe','/','$missing']}}}", "null"},
        {"{'$hour':{'date':'$date','timezone':{'$concat':['Europe/Ber','lin']}}}", "0"},
    };
    expr_run_cases(CASES, ARRAY_LEN(CASES));
}

TEST(dates_are_written_and_read) {
    static const ExprCase CASES[] = {
        {"{'$dateToString':{'date':'$date','format':'%b %B %d %u %w %U %V %G %Z','timezone':"
         "'-0330'}}",
         "'Dec December 31 4 5 52 53 2020 -210'"},
        {"{'$dateToString':{'date':'$date','timezone':'Europe/Berlin'}}",
         "'2021-01-01T00:59:59.123Z'"},
        {"{'$dateToString':{'date':'$date','timezone':'Europe/Berlin','format':'%H:%M%z'}}",
         "'00:59+0100'"},
        {"{'$dateToString':{'date':'$date','timezone':'GMT'}}", "'2020-12-31T23:59:59.123Z'"},
        {READ("'dateString':'2017-02-08T12:10:40.787Z'"), "'2017-02-08T12:10:40.787Z'"},
        {READ("'dateString':'2017-02-08T12:10:40.787','timezone':'America/New_York'"),
         "'2017-02-08T17:10:40.787Z'"},
        {READ("'dateString':'2017-02-08'"), "'2017-02-08T00:00:00.000Z'"},
        {READ("'dateString':'20170208T121040Z'"), "'2017-02-08T12:10:40.000Z'"},
        {READ("'dateString':'2017-02-08 12:10:40+0200'"), "'2017-02-08T10:10:40.000Z'"},
        {READ("'dateString':'2017-W06-3'"), "'2017-02-08T00:00:00.000Z'"},
        {READ("'dateString':'2017-039'"), "'2017-02-08T00:00:00.000Z'"},
        {READ("'dateString':'February 8th, 2017 3:05 pm'"), "'2017-02-08T15:05:00.000Z'"},
        {READ("'dateString':'8 Feb 2017'"), "'2017-02-08T00:00:00.000Z'"},
        {READ("'dateString':'02/08/2017 12:10'"), "'2017-02-08T12:10:00.000Z'"},
        {READ("'dateString':'Wed, 08 Feb 2017 12:10:40 GMT'"), "'2017-02-08T12:10:40.000Z'"},
        {READ("'dateString':'2017-02-08 12:10:40 EST'"), "'2017-02-08T17:10:40.000Z'"},
        {READ("'dateString':'06-15-2018','format':'%m-%d-%Y'"), "'2018-06-15T00:00:00.000Z'"},
        {READ("'dateString':'15 Jun 2018','format':'%d %b %Y'"), "'2018-06-15T00:00:00.000Z'"},
        {READ("'dateString':'2018-165 1:02:03.5','format':'%Y-%j %H:%M:%S.%L'"),
         "'2018-06-15T01:02:03.500Z'"},
        {READ("'dateString':'2018 24 5 +0100','format':'%G %V %u %z'"),
         "'2018-06-14T23:00:00.000Z'"},
        {READ("'dateString':'2018/06/15 %','format':'%Y/%m/%d %%','timezone':'+02'"),
         "'2018-06-14T22:00:00.000Z'"},
        {READ("'dateString':'2017-07-04T11:56.02.813'"), "'2017-07-04T11:56:02.813Z'"},
        {READ("'dateString':'2017-07-14T12:02:44.771 GMT+02'"), "'2017-07-14T10:02:44.771Z'"},
        {READ("'dateString':'2017-07-14T12:02:44.771 L'"), "'2017-07-14T01:02:44.771Z'"},
        {READ("'dateString':'2017-07-14T12:02:44.771 P'"), "'2017-07-14T15:02:44.771Z'"},
        {READ("'dateString':'2017-07-14T12:02:44.771 A','format':'%Y-%m-%dT%H:%M:%S.%L%z'"),
         "'2017-07-14T11:02:44.771Z'"},
        {READ("'dateString':'July 4th, 2017 12:39:30 BST'"), "'2017-07-04T11:39:30.000Z'"},
        {READ("'dateString':'July 4th, 2017 12pm'"), "'2017-07-04T12:00:00.000Z'"},
        {READ("'dateString':'7/4/17'"), "'2017-07-04T00:00:00.000Z'"},
        {READ("'dateString':'04-07-2017'"), "'2017-07-04T00:00:00.000Z'"},
        {READ("'dateString':'2017-Jul-04 noon'"), "'2017-07-04T12:00:00.000Z'"},
        {READ("'dateString':'4/26/1992:+285','format':'%m/%d/%Y:%Z'"),
         "'1992-04-25T19:15:00.000Z'"},
        {READ("'dateString':'2017','format':'%G'"), "'2017-01-02T00:00:00.000Z'"},
        {READ("'dateString':'2017, Day 5','format':'%G, Day %u'"), "'2017-01-06T00:00:00.000Z'"},
        {READ("'dateString':'1.1.1','format':'%V.%u.%G'"), "'0001-01-01T00:00:00.000Z'"},
        {"{'$dateFromString':{'dateString':'x','onError':'bad'}}", "'bad'"},
        {"{'$dateFromString':{'dateString':5,'onError':'bad'}}", "'bad'"},
        {"{'$dateFromString':{'dateString':null,'onNull':'none'}}", "'none'"},
        {"{'$dateFromString':{'dateString':'$missing'}}", "null"},
        {"{'$convert':{'input':'2020-13-01','to':'date','onError':0}}", "0"},
    };
    expr_run_cases(CASES, ARRAY_LEN(CASES));
}

TEST(malformed_dates_are_refused_with_the_codes_of_the_language) {
    static const ExprErrorCase CASES[] = {
        {"{'$dateAdd':1}", 5166400, "object"},
        {"{'$dateAdd':{'startDate':1,'unit':'day','x':1}}", 5166401, "x"},
        {"{'$dateAdd':{'startDate':1}}", 5166402, "unit"},
        {"{'$dateAdd':{'startDate':1,'unit':'day','amount':1}}", 5166403, "startDate"},
        {"{'$dateAdd':{'startDate':'$date','unit':1,'amount':1}}", 5166404, "string"},
        {"{'$dateAdd':{'startDate':'$date','unit':'eon','amount':1}}", ERR_FAILED_TO_PARSE,
         "unknown time unit value: eon"},
        {"{'$dateAdd':{'startDate':'$date','unit':'day','amount':1.5}}", 5166405, "integer"},
        {"{'$dateAdd':{'startDate':'$date','unit':'year','amount':{'$numberLong':"
         "'9223372036854775807'}}}",
         5976500, "invalid $dateAdd 'amount'"},
        {"{'$dateAdd':{'startDate':'$date','unit':'year','amount':400000000}}", 5166406, ""},
        {"{'$dateDiff':{'startDate':'$date','endDate':5,'unit':'day'}}", 5166307,
         "$dateDiff requires 'endDate' to be a date, but got int"},
        {"{'$dateDiff':{'startDate':'$date','endDate':'$date','unit':'eon'}}", 9, "eon"},
        {"{'$dateDiff':{'startDate':'$date','endDate':'$date','unit':'week','startOfWeek':'x'}}",
         5439016, "day of a week: x"},
        {"{'$dateTrunc':{'date':'$date'}}", 5439010, "unit"},
        {"{'$dateTrunc':{'unit':'day'}}", 5439009, "date"},
        {"{'$dateTrunc':{'date':'$date','unit':'day','timezone':1}}", 40517, "found int"},
        {"{'$dateDiff':{'startDate':1,'unit':'day'}}", 5166304, "endDate"},
        {"{'$dateDiff':{'startDate':1,'endDate':1}}", 5166305, "unit"},
        {"{'$dateSubtract':{'startDate':'$date','unit':'day','amount':{'$numberLong':"
         "'-9223372036854775808'}}}",
         6045000, "amount"},
        {"{'$dateFromParts':{'year':1970,'millisecond':18014398509481984.0}}",
         ERR_DURATION_OVERFLOW, "Overflow casting"},
        {"{'$dateFromString':{'dateString':'July 4th'}}", ERR_CONVERSION_FAILURE, "incomplete"},
        {"{'$dateFromString':{'dateString':'12:50:53'}}", ERR_CONVERSION_FAILURE, "incomplete"},
        {"{'$dateFromString':{'dateString':'2017, 12:50:53'}}", ERR_CONVERSION_FAILURE,
         "Error parsing date string"},
        {"{'$dateFromString':{'dateString':'2018-01','format':'%Y-%m-%d'}}", ERR_CONVERSION_FAILURE,
         "Not enough data"},
        {"{'$dateFromString':{'dateString':'Day 6','format':'Day %u'}}", ERR_CONVERSION_FAILURE,
         "The parsed date was invalid"},
        {"{'$dateFromString':{'dateString':'1, 2018','format':'%V, %Y'}}", ERR_CONVERSION_FAILURE,
         "Mixing of ISO dates"},
        {"{'$dateTrunc':{'date':'$date','unit':'day','binSize':0}}", 5439018, "greater than 0"},
        {"{'$dateTrunc':{'date':'$date','unit':'day','binSize':'x'}}", 5439017, "64-bit"},
        {"{'$dateTrunc':{'date':'$s','unit':'day'}}", 5439012, "but got string"},
        {"{'$dateFromParts':{'month':1}}", 40516, "'year' or 'isoWeekYear'"},
        {"{'$dateFromParts':{'year':1,'isoWeek':1}}", 40489, "mixing natural"},
        {"{'$dateFromParts':{'isoWeekYear':1,'day':1}}", 40525, "mixing ISO"},
        {"{'$dateFromParts':{'year':0}}", 40523, "1 to 9999, found 0"},
        {"{'$dateFromParts':{'isoWeekYear':10000}}", 31095, "10000"},
        {"{'$dateFromParts':{'year':2000,'day':40000}}", 31034, "40000 is not in range"},
        {"{'$dateFromParts':{'year':2000,'day':'x'}}", 40515, "'day' must evaluate to an integer"},
        {"{'$dateToParts':{'date':'$date','iso8601':1}}", 40521, "found int"},
        {"{'$year':{'date':'$date','timezone':'Mars/Olympus'}}", 40485,
         "unrecognized time zone identifier: \"Mars/Olympus\""},
        {"{'$year':{'date':'$date','timezone':'PST'}}", 40485, "PST"},
        {"{'$year':{'date':'$date','timezone':'GMT+5'}}", 40485, "GMT+5"},
        {"{'$year':{'date':'$date','timezone':'europe/berlin'}}", 40485, "berlin"},
        {"{'$year':{'date':'$date','timezone':'SystemV/PST8'}}", 40485, "SystemV"},
        {"{'$year':{'date':'$date','timezone':''}}", 40485, "unrecognized"},
        {"{'$year':{'date':'$date','timezone':'localtime'}}", 40485, "unrecognized"},
        {"{'$year':{'date':'$date','timezone':'posix/Europe/Berlin'}}", 40485, "unrecognized"},
        {"{'$year':{'date':'$date','timezone':'right/Europe/Berlin'}}", 40485, "unrecognized"},
        {"{'$year':{'date':'$date','timezone':'Europe'}}", 40485, "unrecognized"},
        {"{'$year':{'date':'$date','timezone':'Europe/'}}", 40485, "unrecognized"},
        {"{'$year':{'date':'$date','timezone':'Europe//Berlin'}}", 40485, "unrecognized"},
        {"{'$year':{'date':'$date','timezone':'Europe/../Europe/Berlin'}}", 40485, "unrecognized"},
        {"{'$year':{'date':'$date','timezone':'/usr/share/zoneinfo/UTC'}}", 40485, "unrecognized"},
        {"{'$year':{'date':'$date','timezone':'UTC\\u0000'}}", 40485, "unrecognized"},
        {"{'$year':{'date':'$date','timezone':5}}", 40533, "was given a int"},
        {"{'$dateToString':{'date':'$date','format':'%q'}}", 18536, "'%q'"},
        {"{'$dateToString':{'date':'$date','format':'%'}}", 18535, "Unmatched"},
        {"{'$dateFromString':{'dateString':'x','format':'%U'}}", 18536, "'%U'"},
        {"{'$dateFromString':{'dateString':5}}", ERR_CONVERSION_FAILURE, "found: int"},
        {"{'$dateFromString':{'dateString':'2017-02-30'}}", ERR_CONVERSION_FAILURE, "invalid"},
        {"{'$dateFromString':{'dateString':'2017-02'}}", ERR_CONVERSION_FAILURE, "incomplete"},
        {"{'$dateFromString':{'dateString':'2017-02-03 Europe/Berlin'}}", ERR_CONVERSION_FAILURE,
         "time zone identifier"},
        {"{'$dateFromString':{'dateString':'2017-02-03T12:00:00Z','timezone':'UTC'}}",
         ERR_CONVERSION_FAILURE, "together with a timezone argument"},
        {"{'$dateFromString':{'dateString':'2017-02-03x','format':'%Y-%m-%d'}}",
         ERR_CONVERSION_FAILURE, "Trailing data 'x'"},
    };
    expr_run_error_cases(CASES, ARRAY_LEN(CASES));
}

TEST(local_times_and_utc_agree_in_all_zones) {
    /* Goal: going to local time and back gives the same time, but for the hour that occurs twice.
     * Method: zones with odd rules, a prime step over two centuries. */
    static const char *const ZONES[] = {"Europe/Berlin",       "America/New_York", "Asia/Kolkata",
                                        "Australia/Lord_Howe", "Pacific/Apia",     "EST",
                                        "Africa/Casablanca",   "+05:45",           "UTC"};
    for (size_t i = 0; i < ARRAY_LEN(ZONES); i++) {
        TimeZone zone = TIME_ZONE_UTC;
        CLEANUP(error_reset) Error err = {0};
        EXPECT_OK(time_zone_parse(str_from(ZONES[i]), &zone, &err), err);
        int odd_count = 0;
        for (int64_t ms = INT64_C(-2500000000000); ms < INT64_C(5000000000000); ms += 97000003) {
            int64_t local = 0;
            int64_t back = 0;
            EXPECT(time_zone_to_local(&zone, ms, &local));
            EXPECT(time_zone_from_local(&zone, local, &back));
            if (back == ms)
                continue;
            /* The earlier of two equal clock times. */
            int64_t again = 0;
            EXPECT(back < ms);
            EXPECT(time_zone_to_local(&zone, back, &again));
            EXPECT_EQ_I64(again, local);
            odd_count++;
        }
        EXPECT(odd_count < 60);
    }
}

TEST(zones_are_those_of_the_system_s_database) {
    /* What the zones of these places changed in the last years; gaps and hours that come twice. */
    static const ExprCase CASES[] = {
        {"{'$hour':{'date':{'$date':'2025-07-01T12:00:00Z'},'timezone':'America/Mexico_City'}}",
         "6"},
        {"{'$hour':{'date':{'$date':'2025-07-01T12:00:00Z'},'timezone':'Africa/Cairo'}}", "15"},
        {"{'$hour':{'date':{'$date':'2025-07-01T12:00:00Z'},'timezone':'Asia/Almaty'}}", "17"},
        {"{'$hour':{'date':{'$date':'2025-07-01T12:00:00Z'},'timezone':'America/Ciudad_Juarez'}}",
         "6"},
        {"{'$hour':{'date':{'$date':'2500-07-01T12:00:00Z'},'timezone':'Europe/Berlin'}}", "14"},
        {"{'$hour':{'date':{'$date':'2500-01-01T12:00:00Z'},'timezone':'Europe/Berlin'}}", "13"},
        {"{'$dateFromParts':{'year':2025,'month':3,'day':30,'hour':2,'minute':30,"
         "'timezone':'Europe/Berlin'}}",
         "{'$date':'2025-03-30T01:30:00Z'}"},
        {"{'$dateFromParts':{'year':2025,'month':10,'day':26,'hour':2,'minute':30,"
         "'timezone':'Europe/Berlin'}}",
         "{'$date':'2025-10-26T00:30:00Z'}"},
        {"{'$dateFromString':{'dateString':'2025-03-09T02:30:00','timezone':'America/New_York'}}",
         "{'$date':'2025-03-09T07:30:00Z'}"},
        {"{'$dateFromString':{'dateString':'2025-11-02T01:30:00','timezone':'America/New_York'}}",
         "{'$date':'2025-11-02T05:30:00Z'}"},
    };
    expr_run_cases(CASES, ARRAY_LEN(CASES));
}

TEST(without_a_database_only_offsets_and_utc_are_known) {
    time_zone_set_directory("/nonexistent/zoneinfo");
    TimeZone zone;
    CLEANUP(error_reset) Error err = {0};
    EXPECT_OK(time_zone_parse(STR("UTC"), &zone, &err), err);
    EXPECT_OK(time_zone_parse(STR("+05:30"), &zone, &err), err);
    EXPECT(time_zone_parse(STR("Antarctica/Vostok"), &zone, &err) == ERR_OPERATION_FAILED);
    EXPECT(strstr(error_message(&err), "tzdata") != NULL);
    time_zone_set_directory("/usr/share/zoneinfo");
}
