/*
 * expr_cases_test.h - tables of expressions and what they give, for the tests of this folder.
 */
#pragma once

#include "query/expr/expr.h"

typedef struct ExprCase {
    const char *expr;     /* % stands for $ where JSON would see a value of its own */
    const char *expected; /* "missing" stands for no value */
} ExprCase;

typedef struct ExprErrorCase {
    const char *expr;
    int code;
    const char *message; /* a part of it */
} ExprErrorCase;

/* Results are compared by type and bytes. */
void expr_run_cases(const ExprCase *cases, size_t count);
void expr_run_error_cases(const ExprErrorCase *cases, size_t count);
