/*
 * fuzz_expr.h - expressions for fuzzers, made from arbitrary bytes: operators of the table with the
 * arguments that they could have, seldom the ones they should.
 */
#pragma once

#include "query/match/fuzz_doc.h"

static const char *const FUZZ_OPERATORS[] = {
#define EXPR_OPERATOR(name, eval, args_min, args_max, variant) name,
#define EXPR_PARSED(name, parse, eval, variant)                name,
#define EXPR_REFUSED(name)
#include "query/expr/expr_operators.def"
#undef EXPR_OPERATOR
#undef EXPR_PARSED
#undef EXPR_REFUSED
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

static inline void fuzz_expr(FuzzInput *in, DocBuilder *b, Str name, int depth) {
    uint8_t choice = fuzz_take(in) % 16;
    if (depth == 0 || choice < 4) {
        uint8_t which = fuzz_take(in);
        if (which & 1)
            build_str(b, name.data, str_from(FUZZ_TEXTS[(which / 2) % ARRAY_LEN(FUZZ_TEXTS)]));
        else
            fuzz_value(in, b, name, 0);
        return;
    }
    if (choice < 11) {
        const char *op = FUZZ_OPERATORS[fuzz_take(in) % ARRAY_LEN(FUZZ_OPERATORS)];
        size_t object = build_open_doc_str(b, name);
        fuzz_expr(in, b, str_from(op), depth - 1);
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
