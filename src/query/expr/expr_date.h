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

/* The value of the zone's argument, to see first whether it is null; missing stands for null only
 * when the argument was given. */
ErrCode expr_date_eval_zone_value(const Expr *expr, uint32_t zone_arg, ExprEvalContext *ctx,
                                  Value *ret_value, bool *ret_is_null, Error *err) MUST_CHECK;

/* The zone that this value tells, UTC when the argument was not given. Fails with 40517 (40533 for
 * parts of dates) and 40485. */
ErrCode expr_date_zone_of(const Expr *expr, uint32_t zone_arg, Value value, ExprEvalContext *ctx,
                          TimeZone *ret_zone, Error *err) MUST_CHECK;

/* Both. */
ErrCode expr_date_eval_zone(const Expr *expr, uint32_t zone_arg, ExprEvalContext *ctx,
                            bool *ret_is_null, TimeZone *ret_zone, Error *err) MUST_CHECK;
