/*
 * fuzz_expr.h - expressions for fuzzers, made from arbitrary bytes: operators of the table with the
 * arguments that they could have, seldom the ones they should.
 */
#pragma once

#include <string.h>

#include "query/match/fuzz_doc.h"

typedef struct FuzzOperator {
    const char *name;
    uint16_t args_min;
    uint16_t args_max; /* 0: it has a form of its own */
} FuzzOperator;

static const FuzzOperator FUZZ_OPERATORS[] = {
#define EXPR_OPERATOR(name, eval, args_min, args_max, variant) {name, args_min, args_max},
#define EXPR_PARSED(name, parse, eval, variant)                {name, 0, 0},
#define EXPR_REFUSED(name)
#define EXPR_ARGS_ANY UINT16_MAX
#include "query/expr/expr_operators.def"
#undef EXPR_OPERATOR
#undef EXPR_PARSED
#undef EXPR_REFUSED
#undef EXPR_ARGS_ANY
};

/* Forms of operators with named arguments: expressions, or constant texts behind '='. */
static const struct {
    const char *name;
    const char *arguments[4];
} FUZZ_FORMS[] = {
    {"$cond", {"if", "then", "else"}},
    {"$convert", {"input", "to=int", "onError"}},
    {"$dateAdd", {"startDate", "unit=month", "amount"}},
    {"$dateDiff", {"startDate", "endDate", "unit=week"}},
    {"$dateFromParts", {"year", "month", "day"}},
    {"$dateFromString", {"dateString", "onError"}},
    {"$dateSubtract", {"startDate", "unit=day", "amount"}},
    {"$dateToParts", {"date", "timezone=+02:00"}},
    {"$dateToString", {"date", "format=%Y-%m", "onNull"}},
    {"$dateTrunc", {"date", "unit=hour"}},
    {"$filter", {"input", "as=x", "cond"}},
    {"$firstN", {"n", "input"}},
    {"$getField", {"field=a", "input"}},
    {"$lastN", {"n", "input"}},
    {"$ltrim", {"input", "chars"}},
    {"$map", {"input", "as=x", "in"}},
    {"$maxN", {"n", "input"}},
    {"$median", {"input", "method=approximate"}},
    {"$minN", {"n", "input"}},
    {"$reduce", {"input", "initialValue", "in"}},
    {"$regexFind", {"input", "regex=(a|b)*"}},
    {"$regexFindAll", {"input", "regex=a?"}},
    {"$regexMatch", {"input", "regex"}},
    {"$replaceAll", {"input", "find", "replacement"}},
    {"$replaceOne", {"input", "find", "replacement"}},
    {"$rtrim", {"input"}},
    {"$setField", {"field=b", "input", "value"}},
    {"$trim", {"input"}},
    {"$unsetField", {"field=b", "input"}},
};

/* Names of arguments, and of fields. */
static const char *const FUZZ_ARGUMENTS[] = {
    "input",      "in",
    "as",         "cond",
    "vars",       "initialValue",
    "branches",   "case",
    "then",       "else",
    "if",         "default",
    "inputs",     "sortBy",
    "chars",      "find",
    "field",      "replacement",
    "value",      "to",
    "onError",    "onNull",
    "date",       "format",
    "timezone",   "limit",
    "defaults",   "a",
    "b",          "x",
    "k",          "v",
    "this",       "useLongestLength",
    "startDate",  "endDate",
    "unit",       "amount",
    "binSize",    "startOfWeek",
    "year",       "month",
    "day",        "hour",
    "second",     "isoWeekYear",
    "isoWeek",    "iso8601",
    "dateString", "regex",
    "options",    "n",
    "p",          "method",
};

static const char *const FUZZ_TEXTS[] = {
    "$a",
    "$b",
    "$a.b",
    "$$ROOT",
    "$$this",
    "$$value",
    "$$NOW",
    "$$REMOVE",
    "$$x",
    "$b.a",
    "a",
    "",
    "x",
    "int",
    "date",
    "%Y-%m-",
    "+02:00",
    "2020-01-01",
    "12",
    "1e5",
    "a\xC3\xA9",
    "$$CURRENT.a",
    "$$ROOT.b",
    "day",
    "month",
    "week",
    "hour",
    "Europe/Berlin",
    "America/New_York",
    "monday",
    "approximate",
    "(a|b)*",
    "[^x]",
    "i",
    "%d %b %Y %H:%M %z",
    "3 Mar 2021 5pm",
    "2020-W01-1T10:00:00.5+02",
};

static inline void fuzz_expr(FuzzInput *in, DocBuilder *b, Str name, int depth);

/* Named arguments as the operator wants them; false when it has no form of its own. */
static inline bool fuzz_form(FuzzInput *in, DocBuilder *b, const char *op, int depth) {
    size_t row = 0;
    while (row < ARRAY_LEN(FUZZ_FORMS) && strcmp(FUZZ_FORMS[row].name, op) != 0)
        row++;
    if (row == ARRAY_LEN(FUZZ_FORMS))
        return false;
    size_t object = build_open_doc(b, op);
    for (size_t i = 0; i < ARRAY_LEN(FUZZ_FORMS[row].arguments); i++) {
        const char *argument = FUZZ_FORMS[row].arguments[i];
        if (argument == NULL)
            break;
        const char *constant = strchr(argument, '=');
        if (constant == NULL) {
            fuzz_expr(in, b, str_from(argument), depth);
            continue;
        }
        char key[32] = {0};
        memcpy(key, argument, (size_t)(constant - argument));
        build_cstr(b, key, constant + 1);
    }
    build_close(b, object);
    return true;
}

/* {operator: arguments}, mostly as many as it takes. */
static inline void fuzz_operator(FuzzInput *in, DocBuilder *b, int depth) {
    const FuzzOperator *op = &FUZZ_OPERATORS[fuzz_take(in) % ARRAY_LEN(FUZZ_OPERATORS)];
    uint8_t choice = fuzz_take(in);
    if (choice < 16 || (op->args_max == 0 && !fuzz_form(in, b, op->name, depth))) {
        fuzz_expr(in, b, str_from(op->name), depth);
        return;
    }
    if (op->args_max == 0)
        return;
    uint32_t spread = op->args_max == UINT16_MAX ? 3 : op->args_max - op->args_min;
    uint32_t count = op->args_min + choice % (spread + 1);
    size_t array = build_open_array(b, op->name);
    for (uint32_t i = 0; i < count; i++) {
        char buffer[INDEX_NAME_SIZE];
        fuzz_expr(in, b, index_name(i, buffer), depth);
    }
    build_close(b, array);
}

static inline void fuzz_expr(FuzzInput *in, DocBuilder *b, Str name, int depth) {
    uint8_t choice = fuzz_take(in) % 16;
    if (depth == 0 || choice < 4) {
        uint8_t which = fuzz_take(in);
        /* Variables are not there everywhere: mostly paths. */
        static const char *const PATHS[] = {"$a", "$b", "$a.b", "$$ROOT", "$_id", "$x"};
        if (which & 1)
            build_str(b, name.data, str_from(FUZZ_TEXTS[(which / 2) % ARRAY_LEN(FUZZ_TEXTS)]));
        else if (which & 2)
            build_cstr(b, name.data, PATHS[(which / 4) % ARRAY_LEN(PATHS)]);
        else
            fuzz_value(in, b, name, 0);
        return;
    }
    if (choice < 11) {
        size_t object = build_open_doc_str(b, name);
        fuzz_operator(in, b, depth - 1);
        build_close(b, object);
        return;
    }
    bool is_array = choice < 14;
    size_t inner = is_array ? build_open_array_str(b, name) : build_open_doc_str(b, name);
    uint32_t count = fuzz_take(in) % 5;
    for (uint32_t i = 0; i < count; i++) {
        char buffer[INDEX_NAME_SIZE];
        Str item = is_array ? index_name(i, buffer)
                            : str_from(FUZZ_ARGUMENTS[fuzz_take(in) % ARRAY_LEN(FUZZ_ARGUMENTS)]);
        fuzz_expr(in, b, item, depth - 1);
    }
    build_close(b, inner);
}
