/*
 * expr.h - expressions of the aggregation language: parsed once, evaluated per document.
 *
 * An expression is a literal, a field path ("$a.b"), a variable ("$$x"), an object or array of
 * expressions, or an operator of expr_operators.def. Operators whose operands are all literals are
 * evaluated while parsing.
 *
 * Ownership: an Expr lives in the arena given to expr_parse and borrows the specification's bytes,
 *            which must live as long. Results borrow from the document, the Expr or the scratch
 *            arena of the evaluation.
 * Threading: an Expr is constant once parsed; an ExprEvalContext belongs to one thread.
 */
#pragma once

#include "base/arena.h"
#include "base/error.h"
#include "base/prng.h"
#include "bson/compare.h"
#include "bson/doc.h"
#include "query/expr/path_set.h"
#include "query/expr/value.h"
#include "query/match/match.h"
#include "query/match/path.h"

enum {
    EXPR_DEPTH_MAX = 200, /* of nested operators; evaluation recurses as deep */
    /* What one evaluation may leave in the scratch arena. */
    EXPR_SCRATCH_BYTES_MAX = 128 * 1024 * 1024,
};

typedef struct Expr Expr;

/* Names of variables that the evaluation will bind, innermost first. */
typedef struct ExprScope {
    Str name;
    const struct ExprScope *outer;
} ExprScope;

/* Their values, in the same order. */
typedef struct ExprBinding {
    Value value;
    const struct ExprBinding *outer;
} ExprBinding;

/* What the client wants to be told of the Stable API. */
typedef struct ApiRules {
    bool is_strict; /* what is not part of version 1 is an error */
} ApiRules;

typedef struct ExprParseContext {
    const Collator *collator; /* of constant comparisons */
    /* Values of the command's `let`, or DOC_NONE; see expr_eval_let. Undefined means missing. */
    Doc let_values;
    const ExprScope *scope; /* NULL: no variables but the built-in ones */
    uint64_t cluster_ts;    /* $$CLUSTER_TIME; 0: there is none, as on a standalone node */
    ApiRules api;
    uint32_t
        *needed_meta; /* gets the kinds of $meta that are asked for; NULL: nobody wants to know */
} ExprParseContext;

/* Asks whether to go on: fails when the operation was killed or ran out of time. */
typedef struct CheckHook {
    ErrCode (*check)(void *arg, Error *err); /* NULL: always go on */
    void *arg;
} CheckHook;

static inline ErrCode check_hook_run(const CheckHook *hook, Error *err) {
    return hook->check == NULL ? ERR_OK : hook->check(hook->arg, err);
}

typedef struct ExprEvalContext {
    Doc root;                 /* $$ROOT, and $$CURRENT unless re-bound */
    Arena *scratch;           /* results; the caller resets it between documents */
    size_t scratch_bytes_max; /* 0: EXPR_SCRATCH_BYTES_MAX */
    int64_t now_ms;           /* $$NOW */
    const Collator *collator;
    Prng *prng; /* $rand; NULL: seeded by the operating system per call */
    CheckHook check;
    const ExprBinding *bindings; /* for ExprParseContext.scope */
    const Doc *meta;             /* $meta, see doc_meta.h; NULL: refused */
    uint32_t step_count;         /* private to expr.c */
} ExprEvalContext;

/* Names of variables that users define: begin with a lower-case letter, or CURRENT. */
ErrCode expr_check_variable_name(Str name, Error *err) MUST_CHECK;

/* Fails with ERR_INVALID_PIPELINE_OPERATOR for unknown operators, with ERR_NOT_IMPLEMENTED for
 * known ones that are not supported, and with the codes of the language for malformed ones. */
ErrCode expr_parse(Elem spec, const ExprParseContext *ctx, Arena *arena, Expr **ret_expr,
                   Error *err) MUST_CHECK;

/* As expr_parse, but of an object that is always an operator, such as {$add: [...]}. */
ErrCode expr_parse_operator(Elem op, const ExprParseContext *ctx, Arena *arena, Expr **ret_expr,
                            Error *err) MUST_CHECK;

ErrCode expr_eval(const Expr *expr, ExprEvalContext *ctx, Value *ret_value, Error *err) MUST_CHECK;

/* Evaluates the command's `let` document: each field is an expression without fields. */
ErrCode expr_eval_let(Doc let, int64_t now_ms, uint64_t cluster_ts, Arena *arena, Doc *ret_values,
                      Error *err) MUST_CHECK;

/* Which paths of the root document the expression reads. */
void expr_add_paths(const Expr *expr, PathSet *set);

/* The value of an expression that does not depend on anything. */
bool expr_is_literal(const Expr *expr, Value *ret_value);

/* The path of an expression that is only a field of the root document; NULL for others. */
const FieldPath *expr_field_path(const Expr *expr);

/* The expression of one field, if this one makes a document of expressions; else NULL. */
const Expr *expr_object_field(const Expr *expr, Str name);

/* The value at the path by this language's rules: arrays of documents in its middle give arrays,
 * numbers are names of fields. */
ErrCode expr_eval_path(const FieldPath *path, Doc doc, Arena *scratch, Value *ret_value, Error *err)
    MUST_CHECK;

/* Checks "a.b" as the name of a path: no empty parts, no part with a leading dollar sign. */
ErrCode expr_check_path(Str dotted, Error *err) MUST_CHECK;
/* $ref, $id or $db: names of fields though they begin as operators do. */
bool expr_is_dbref_name(Str name);

/* The same for one field name, which may also not contain dots. */
ErrCode expr_check_field_name(Str name, Error *err) MUST_CHECK;

/* `n` of $firstN and its kin: fails with 5787902, 5787903 and 5787908 for what is not a whole
 * number above 0. */
ErrCode expr_check_n(Value value, Arena *arena, int64_t *ret_n, Error *err) MUST_CHECK;

/* As it will be evaluated, for explain: with what was constant computed. */
void expr_to_bson(const Expr *expr, Str name, DocBuilder *b);

/* ---- $expr in filters ---- */

/* Initialise all but `base`, then call expr_match_hook. Must live as long as the trees parsed with
 * it. Threads that match with one tree share `check`. */
typedef struct ExprMatchHook {
    MatchExprHook base;
    ExprParseContext parse;
    int64_t now_ms; /* 0: the clock is asked per document, for trees that live long */
    CheckHook check;
} ExprMatchHook;

/* Fills in `base` and returns it. */
const MatchExprHook *expr_match_hook(ExprMatchHook *hook);

/* Of a judge that this hook made: which paths it reads. */
void expr_match_add_paths(const MatchCustom *custom, PathSet *set);
/* Conditions that follow from the comparisons in the $expr of a filter, which an index may have;
 * NULL: none. `ctx` is that of the filter. */
MatchExpr *expr_match_of_comparisons(const MatchExpr *match, const MatchParseContext *ctx,
                                     Arena *arena);
