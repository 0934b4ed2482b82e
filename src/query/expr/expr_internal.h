/*
 * expr_internal.h - what the .c files of query/expr share.
 */
#pragma once

#include "query/expr/double_round.h"
#include "query/expr/expr.h"

typedef struct ExprParser {
    const ExprParseContext *ctx;
    Arena *arena;
    const ExprScope *scope;
    uint32_t depth;
} ExprParser;

typedef struct ExprOperator ExprOperator;

typedef ErrCode ExprEvalFn(const Expr *expr, ExprEvalContext *ctx, Value *ret, Error *err);
/* Fills in the arguments of `expr`; its `op` and `eval` are set. */
typedef ErrCode ExprParseFn(ExprParser *p, Elem operand, Expr *expr, Error *err);

enum {
    EXPR_ARGS_ANY = UINT16_MAX,
};

struct ExprOperator {
    Str name;
    ExprParseFn *parse; /* NULL: a list of arguments; refused operators have no eval either */
    ExprEvalFn *eval;
    uint16_t args_min;
    uint16_t args_max; /* EXPR_ARGS_ANY: no bound */
    uint16_t variant;  /* for functions that serve several operators */
};

struct Expr {
    ExprEvalFn *eval;
    const ExprOperator *op; /* NULL for literals, paths, objects, arrays */
    Expr **args;            /* every sub-expression; NULL entries: optional ones not given */
    uint32_t arg_count;
    uint16_t variant;        /* of op */
    bool is_source_operator; /* `source` is the element within {$op: ...} */
    bool is_foldable;        /* depends on nothing but its arguments */
    Elem source;
    union {
        Value literal;
        struct {
            FieldPath path;       /* count 0: the variable itself */
            uint32_t scope_depth; /* of the variable: bindings between it and the innermost */
        };
        Str *names;       /* object: of the arguments */
        const void *data; /* operators: their own */
    };
};

/* ---- parsing ---- */

ErrCode expr_parse_any(ExprParser *p, Elem spec, Expr **ret_expr, Error *err) MUST_CHECK;
/* $$dotted: a variable or a field of one. `spec` is what it stands for in the specification. */
ErrCode expr_parse_variable(ExprParser *p, Str dotted, Elem spec, Expr **ret_expr, Error *err)
    MUST_CHECK;
void expr_alloc_args(ExprParser *p, Expr *expr, uint32_t count);
Expr *expr_new_literal(ExprParser *p, Value value, Elem source);

/* Operators with named arguments: {$op: {a: ..., b: ...}}. */
typedef struct ExprNamedArg {
    const char *name;
    int missing_code; /* 0: optional */
} ExprNamedArg;

typedef struct ExprNamedSpec {
    const ExprNamedArg *args;
    uint32_t count;
    int not_object_code;
    int unknown_code;
} ExprNamedSpec;

/* Checks names and finds the arguments; absent ones are missing elements. */
ErrCode expr_find_named(const ExprOperator *op, Elem operand, const ExprNamedSpec *spec,
                        Elem *ret_elems, Error *err) MUST_CHECK;
/* The same and parses them into expr->args, in the order of the specification. For operators that
 * depend on nothing else: they are evaluated now when all arguments are literals. */
ErrCode expr_parse_named(ExprParser *p, Elem operand, const ExprNamedSpec *spec, Expr *expr,
                         Error *err) MUST_CHECK;

/* ---- evaluation ---- */

/* Continues with component `at` of the path in `value`. */
ErrCode expr_path_of_value(const FieldPath *path, uint32_t at, Value value, Arena *scratch,
                           Value *ret, Error *err) MUST_CHECK;

ExprEvalFn expr_eval_array;
ExprEvalFn expr_eval_object;
ExprEvalFn expr_eval_literal;
ExprEvalFn expr_eval_field;
ExprEvalFn expr_eval_variable;

static inline ErrCode expr_eval_arg(const Expr *expr, uint32_t index, ExprEvalContext *ctx,
                                    Value *ret, Error *err) {
    return expr->args[index]->eval(expr->args[index], ctx, ret, err);
}

/* As expr_eval_arg; missing for an optional argument that was not given. */
static inline ErrCode expr_eval_optional(const Expr *expr, uint32_t index, ExprEvalContext *ctx,
                                         Value *ret, Error *err) {
    if (expr->args[index] == NULL) {
        *ret = VALUE_MISSING;
        return ERR_OK;
    }
    return expr_eval_arg(expr, index, ctx, ret, err);
}

/* The arguments of an operator that has two, or begins with two. */
static inline ErrCode expr_eval_pair(const Expr *expr, ExprEvalContext *ctx, Value *ret_first,
                                     Value *ret_second, Error *err) {
    TRY(expr_eval_arg(expr, 0, ctx, ret_first, err));
    return expr_eval_arg(expr, 1, ctx, ret_second, err);
}

/* What most operators make of an argument that is null or missing. */
static inline ErrCode expr_null(Value *ret) {
    *ret = VALUE_NULL;
    return ERR_OK;
}

/* An argument that is a position, such as the start of $indexOfArray; `otherwise` when it is not
 * given. `what` names it in messages. */
ErrCode expr_eval_index(const Expr *expr, uint32_t arg, ExprEvalContext *ctx, const char *what,
                        int32_t otherwise, int32_t *ret, Error *err) MUST_CHECK;

/* To be called once per turn of every loop that evaluates or allocates: bounds the scratch memory
 * and asks from time to time whether to go on. */
ErrCode expr_step(ExprEvalContext *ctx, Error *err) MUST_CHECK;

/* A loop whose body leaves intermediate results in the scratch arena. Now and then, when they are
 * a good deal more than what the loop has to keep, the arena is rewound to where it was at the
 * loop's start; copying what is kept then costs little beside what was computed meanwhile. */
typedef struct ExprLoop {
    ArenaMark start;
    size_t used_at_start;
} ExprLoop;

enum {
    EXPR_LOOP_GARBAGE_BYTES = 256 * 1024,
};

static inline ExprLoop expr_loop_begin(const ExprEvalContext *ctx) {
    return (ExprLoop){arena_mark(ctx->scratch), arena_used(ctx->scratch)};
}

static inline bool expr_loop_is_full(const ExprLoop *loop, const ExprEvalContext *ctx,
                                     size_t kept_bytes) {
    return arena_used(ctx->scratch) - loop->used_at_start >
           EXPR_LOOP_GARBAGE_BYTES + 4 * kept_bytes;
}

/* To be called per turn, when nothing of the body's but `built`, begun in the loop's arena after
 * expr_loop_begin, is needed any more. */
static inline void expr_loop_turn(const ExprLoop *loop, const ExprEvalContext *ctx,
                                  ArrayBuilder *built) {
    if (UNLIKELY(expr_loop_is_full(loop, ctx, built->buf.capacity)))
        array_builder_rewind(built, loop->start);
}

static inline const char *expr_op_name(const Expr *expr) {
    return expr->op->name.data;
}

static inline const char *value_type_name(Value value) {
    return bson_type_name(value.type);
}

/* ---- operators ---- */

/* Variants of operators that share a function. */
typedef enum CompareOutcome { /* bits: the outcomes that are true */
                              COMPARE_LESS = 1,
                              COMPARE_EQUAL = 2,
                              COMPARE_GREATER = 4,
} CompareOutcome;

typedef enum TrimSide { /* bits */
                        TRIM_LEFT = 1,
                        TRIM_RIGHT = 2,
} TrimSide;

typedef enum AngleKind {
    ANGLE_SIN,
    ANGLE_COS,
    ANGLE_TAN,
    ANGLE_ASIN,
    ANGLE_ACOS,
    ANGLE_ATAN,
    ANGLE_SINH,
    ANGLE_COSH,
    ANGLE_TANH,
    ANGLE_ASINH,
    ANGLE_ACOSH,
    ANGLE_ATANH,
    ANGLE_TO_RADIANS,
    ANGLE_TO_DEGREES,
} AngleKind;

typedef enum DatePart {
    DATE_YEAR,
    DATE_MONTH,
    DATE_DAY_OF_MONTH,
    DATE_HOUR,
    DATE_MINUTE,
    DATE_SECOND,
    DATE_MILLISECOND,
    DATE_DAY_OF_WEEK,
    DATE_DAY_OF_YEAR,
    DATE_WEEK,
    DATE_ISO_DAY_OF_WEEK,
    DATE_ISO_WEEK,
    DATE_ISO_WEEK_YEAR,
} DatePart;

#define EXPR_OPERATOR(name, eval, args_min, args_max, variant) ExprEvalFn eval;
#define EXPR_PARSED(name, parse, eval, variant)                                                    \
    ExprParseFn parse;                                                                             \
    ExprEvalFn eval;
#define EXPR_REFUSED(name)
#include "query/expr/expr_operators.def"
#undef EXPR_OPERATOR
#undef EXPR_PARSED
#undef EXPR_REFUSED
