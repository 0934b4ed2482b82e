/*
 * expr_ops_regex.c - $regexMatch, $regexFind, $regexFindAll.
 */
#include "query/expr/expr_internal.h"
#include "query/expr/utf8.h"
#include "query/match/regex.h"

enum {
    REGEX_INPUT,
    REGEX_PATTERN,
    REGEX_OPTIONS,
};

enum {
    FOUND_VALUE_BYTES = 32, /* what a value counts beside its bytes */
};

typedef enum RegexResult { /* variants */
                           RESULT_MATCH,
                           RESULT_FIND,
                           RESULT_FIND_ALL,
} RegexResult;

/* Where a search in a text stands: bytes, and the code points before them. */
typedef struct Search {
    const MatchRegex *regex;
    Str text;
    RegexSpan *spans;
    uint32_t group_count;
    size_t from;
    size_t counted_bytes;
    int64_t counted_points;
} Search;

static ErrCode compile(const Expr *expr, Value pattern, Value options, Arena *arena,
                       MatchRegex **ret_regex, Error *err);
static ErrCode found_value(Search *search, ExprEvalContext *ctx, Value *ret, Error *err);
static ErrCode find_all(Search *search, ExprEvalContext *ctx, Value *ret, Error *err);

ErrCode parse_regex(ExprParser *p, Elem operand, Expr *expr, Error *err) {
    static const ExprNamedArg ARGS[] = {
        [REGEX_INPUT] = {"input", 31022},
        [REGEX_PATTERN] = {"regex", 31023},
        [REGEX_OPTIONS] = {"options", 0},
    };
    static const ExprNamedSpec SPEC = {ARGS, ARRAY_LEN(ARGS), 51103, 31024};
    TRY(expr_parse_named(p, operand, &SPEC, expr, err));
    Value pattern = VALUE_MISSING;
    Value options = VALUE_MISSING;
    const Expr *pattern_arg = expr->args[REGEX_PATTERN];
    const Expr *options_arg = expr->args[REGEX_OPTIONS];
    if ((pattern_arg != NULL && !expr_is_literal(pattern_arg, &pattern)) ||
        (options_arg != NULL && !expr_is_literal(options_arg, &options)))
        return ERR_OK;
    MatchRegex *regex;
    TRY(compile(expr, pattern, options, p->arena, &regex, err));
    expr->data = regex;
    return ERR_OK;
}

static void none_found(const Expr *expr, Value *ret) {
    *ret = expr->variant == RESULT_MATCH  ? value_bool(false)
           : expr->variant == RESULT_FIND ? VALUE_NULL
                                          : value_array(DOC_EMPTY);
}

ErrCode eval_regex(const Expr *expr, ExprEvalContext *ctx, Value *ret, Error *err) {
    Value input;
    Value pattern;
    Value options;
    TRY(expr_eval_optional(expr, REGEX_INPUT, ctx, &input, err));
    TRY(expr_eval_optional(expr, REGEX_PATTERN, ctx, &pattern, err));
    TRY(expr_eval_optional(expr, REGEX_OPTIONS, ctx, &options, err));
    if (!value_is_nullish(input) && input.type != BT_STRING)
        return error_set(err, (ErrCode)51104, "%s needs 'input' to be of type string",
                         expr_op_name(expr));
    const MatchRegex *regex = expr->data;
    if (regex == NULL && !(value_is_nullish(pattern) && value_is_nullish(options))) {
        MatchRegex *compiled;
        TRY(compile(expr, pattern, options, ctx->scratch, &compiled, err));
        regex = compiled;
    }
    if (value_is_nullish(input) || regex == NULL) {
        none_found(expr, ret);
        return ERR_OK;
    }
    bool is_match;
    if (expr->variant == RESULT_MATCH) {
        TRY(regex_search(regex, value_as_str(input), &is_match, err));
        *ret = value_bool(is_match);
        return ERR_OK;
    }
    Search search = {
        .regex = regex, .text = value_as_str(input), .group_count = regex_group_count(regex)};
    search.spans = ARENA_ARRAY(ctx->scratch, RegexSpan, search.group_count + 1);
    if (expr->variant == RESULT_FIND_ALL)
        return find_all(&search, ctx, ret, err);
    TRY(regex_find(regex, search.text, 0, search.spans, &is_match, err));
    if (is_match)
        return found_value(&search, ctx, ret, err);
    none_found(expr, ret);
    return ERR_OK;
}

static ErrCode find_all(Search *search, ExprEvalContext *ctx, Value *ret, Error *err) {
    CLEANUP(regex_finder_done) RegexFinder finder;
    regex_finder_init(&finder, search->regex, search->text);
    ExprLoop loop = expr_loop_begin(ctx);
    ArrayBuilder all;
    array_builder_init(&all, ctx->scratch);
    size_t output_bytes = 0;
    do { /* an empty match at the very end counts only when there is nothing else */
        TRY(expr_step(ctx, err));
        bool is_match;
        TRY(regex_finder_find(&finder, search->from, search->spans, &is_match, err));
        if (!is_match)
            break;
        Value found;
        RegexSpan span = search->spans[0];
        TRY(found_value(search, ctx, &found, err));
        array_builder_add(&all, found);
        output_bytes += value_bytes_size(&found) + FOUND_VALUE_BYTES * (search->group_count + 3);
        if (output_bytes > VALUE_SIZE_MAX)
            return error_set(err, (ErrCode)51151,
                             "$regexFindAll: the size of buffer to store output exceeded the 64MB "
                             "limit");
        expr_loop_turn(&loop, ctx, &all);
        search->from = span.end;
        if (span.end == span.start) /* an empty match must not be found again */
            search->from += span.end < search->text.size ? utf8_size_at(search->text, span.end) : 1;
    } while (search->from < search->text.size);
    return array_builder_end(&all, ret, err);
}

/* {match: text, idx: code points before it, captures: [...]} */
static ErrCode found_value(Search *search, ExprEvalContext *ctx, Value *ret, Error *err) {
    RegexSpan span = search->spans[0];
    const char *data = search->text.data;
    if (span.start > search->counted_bytes) {
        search->counted_points += (int64_t)utf8_count(
            (Str){data + search->counted_bytes, span.start - search->counted_bytes});
        search->counted_bytes = span.start;
    }
    Buffer buf;
    buffer_init_arena(&buf, ctx->scratch, 128, VALUE_SIZE_MAX);
    DocBuilder b;
    doc_builder_init(&b, &buf);
    /* \K can put the start of a match behind its end. */
    size_t size = span.end > span.start ? span.end - span.start : 0;
    build_str(&b, "match", (Str){data + span.start, size});
    build_count(&b, "idx", search->counted_points);
    size_t captures = build_open_array(&b, "captures");
    for (uint32_t i = 0; i < search->group_count; i++) {
        RegexSpan group = search->spans[i + 1];
        char name[INDEX_NAME_SIZE];
        Str index = index_name(i, name);
        if (group.start == SIZE_MAX || group.start > group.end)
            build_value(&b, BT_NULL, index, 0);
        else
            build_value_as(
                &b, index,
                value_str((Str){data + group.start, group.end - group.start}, ctx->scratch));
    }
    build_close(&b, captures);
    Doc doc;
    TRY(doc_builder_finish(&b, "object", &doc, err));
    *ret = value_doc(doc);
    return ERR_OK;
}

/* NULL for a pattern that is null; its options are checked all the same. */
static ErrCode compile(const Expr *expr, Value pattern, Value options, Arena *arena,
                       MatchRegex **ret_regex, Error *err) {
    const char *op = expr_op_name(expr);
    Str pattern_text;
    Str option_text = {"", 0};
    if (pattern.type == BT_REGEX) {
        pattern_text = str_from((const char *)pattern.bytes);
        option_text = str_from((const char *)pattern.bytes + pattern_text.size + 1);
    } else if (pattern.type == BT_STRING) {
        pattern_text = value_as_str(pattern);
    } else if (value_is_nullish(pattern)) {
        pattern_text = (Str){"", 0};
    } else {
        return error_set(err, (ErrCode)51105, "%s needs 'regex' to be of type string or regex", op);
    }
    if (!value_is_nullish(options)) {
        if (options.type != BT_STRING)
            return error_set(err, (ErrCode)51106, "%s needs 'options' to be of type string", op);
        if (option_text.size > 0)
            return error_set(err, (ErrCode)51107,
                             "%s: found regex option(s) specified in both 'regex' and 'option' "
                             "fields",
                             op);
        option_text = value_as_str(options);
    }
    if (str_has_char(pattern_text, '\0'))
        return error_set(err, (ErrCode)51109,
                         "%s: regular expression cannot contain an embedded "
                         "null byte",
                         op);
    if (str_has_char(option_text, '\0'))
        return error_set(err, (ErrCode)51110,
                         "%s: regular expression options cannot contain an embedded null byte", op);
    ErrCode rc = regex_compile(pattern_text, option_text, arena, ret_regex, err);
    if (rc == ERR_OK && value_is_nullish(pattern))
        *ret_regex = NULL;
    if ((int)rc != 51091)
        return rc;
    char *reason = arena_strdup(arena, error_message(err));
    error_reset(err);
    return error_set(err, (ErrCode)51111, "Invalid Regex in %s: %s", op, reason);
}
