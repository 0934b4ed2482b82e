/*
 * regex.h - regular expressions of the query language, on PCRE2.
 *
 * Compiled code lives in the arena of the tree; matching takes its working memory from the stack
 * (and the heap for hungry patterns), so that a compiled expression is constant and can be shared.
 */
#pragma once

#include "base/arena.h"
#include "base/error.h"
#include "bson/doc.h"

enum {
    REGEX_PATTERN_SIZE_MAX = 16384, /* of a pattern in bytes, the limit clients know */
    REGEX_MATCH_LIMIT = 1000000,    /* backtracking steps of one match */
    REGEX_HEAP_LIMIT_KIB = 20000,
};

typedef struct MatchRegex {
    Str pattern;
    Str options;
    /* Every match begins with these bytes (pattern begins with ^ and plain characters); empty if
     * nothing is known. The planner turns it into index bounds. */
    Str prefix;
    bool is_prefix_only;  /* the prefix is all there is to the pattern */
    bool is_literal_only; /* no special characters at all: `pattern` occurs anywhere */
    void *code;           /* compiled, NULL when one of the two above holds */
} MatchRegex;

/* Options are i, m, s, x; u is taken and means nothing, as all text is UTF-8. Fails with 51108 on
 * other options, 51091 on a malformed pattern. Borrows the texts. */
ErrCode regex_compile(Str pattern, Str options, Arena *arena, MatchRegex **ret_regex, Error *err)
    MUST_CHECK;

/* Does the pattern occur in the text? Fails with 51156 when a resource limit is hit. */
ErrCode regex_search(const MatchRegex *regex, Str text, bool *ret_is_match, Error *err) MUST_CHECK;

/* Bytes of the text; start is SIZE_MAX for a group that took no part. */
typedef struct RegexSpan {
    size_t start;
    size_t end;
} RegexSpan;

/* How many groups in parentheses the pattern captures. */
uint32_t regex_group_count(const MatchRegex *regex);

/* The first match that begins at `from` or later: the span of all of it, then those of its groups.
 * `ret_spans` has room for regex_group_count() + 1. Fails as regex_search. */
ErrCode regex_find(const MatchRegex *regex, Str text, size_t from, RegexSpan *ret_spans,
                   bool *ret_is_match, Error *err) MUST_CHECK;

/* Finds match after match in one text. What all of them share is done once: the text is checked to
 * be UTF-8, and the working memory is kept. */
typedef struct RegexFinder {
    const MatchRegex *regex;
    Str text;
    uint32_t span_count;
    void *memory; /* of PCRE; NULL for plain text, as is the rest */
    void *valid_code;
    void *context;
    void *data;
} RegexFinder;

void regex_finder_init(RegexFinder *finder, const MatchRegex *regex, Str text);
void regex_finder_done(RegexFinder *finder);
/* As regex_find. */
ErrCode regex_finder_find(RegexFinder *finder, size_t from, RegexSpan *ret_spans,
                          bool *ret_is_match, Error *err) MUST_CHECK;
