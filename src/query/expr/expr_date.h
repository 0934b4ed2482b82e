/*
 * expr_date.h - what the operators on dates share.
 */
#pragma once

#include "query/expr/date_math.h"
#include "query/expr/expr_internal.h"

/* Dates, timestamps and object ids have a time: false for other values. */
bool expr_date_of_value(Value value, int64_t *ret_ms);
/* Fails with 16006. */
ErrCode expr_date_require(Value value, int64_t *ret_ms, Error *err) MUST_CHECK;

/* To be called at the end of parsing: a time zone that is a constant is looked up now. Takes
 * expr->data. */
void expr_date_prepare_zone(ExprParser *p, Expr *expr, uint32_t zone_arg);

/* The zone that the argument tells, UTC when it was not given. Fails with 40533, 40485. */
ErrCode expr_date_eval_zone(const Expr *expr, uint32_t zone_arg, ExprEvalContext *ctx,
                            bool *ret_is_null, TimeZone *ret_zone, Error *err) MUST_CHECK;
