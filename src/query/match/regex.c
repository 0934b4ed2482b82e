#include "query/match/regex.h"

#include <ctype.h>
#include <string.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/alloc.h"
#include "bson/validate.h"

enum {
    ERR_REGEX_MALFORMED = 51091,
    ERR_REGEX_OPTION = 51108,
    ERR_REGEX_FAILED = 51156,
    SCRATCH_SIZE = 24 * 1024, /* match data and PCRE's first block of 20 KiB of frames */
};

/* Working memory of one match: a stack block first, the heap when that is used up. PCRE frees its
 * blocks in any order; blocks of the stack are simply forgotten. */
typedef struct Scratch {
    size_t used;
    _Alignas(16) uint8_t block[SCRATCH_SIZE];
} Scratch;

static ErrCode parse_options(Str options, uint32_t *ret_flags, Error *err);
static void find_literals(MatchRegex *regex, uint32_t flags, Arena *arena);
static ErrCode match_code(const MatchRegex *regex, Str text, size_t from, RegexSpan *ret_spans,
                          uint32_t span_count, bool *ret_is_match, Error *err);
static ErrCode check_match(int rc, bool *ret_is_match, Error *err);
static void copy_spans(const pcre2_match_data *data, RegexSpan *ret_spans, uint32_t span_count);
static void *arena_memory(size_t size, void *arena);
static void arena_memory_free(void *memory, void *arena);
static void *heap_memory(size_t size, void *ignored);
static void heap_memory_free(void *memory, void *ignored);
static void *scratch_memory(size_t size, void *scratch);
static void scratch_memory_free(void *memory, void *scratch);

ErrCode regex_compile(Str pattern, Str options, Arena *arena, MatchRegex **ret_regex, Error *err) {
    uint32_t flags = 0;
    TRY(parse_options(options, &flags, err));
    if (pattern.size > REGEX_PATTERN_SIZE_MAX)
        return error_set(err, (ErrCode)ERR_REGEX_MALFORMED,
                         "Regular expression is invalid: pattern is longer than %d bytes",
                         REGEX_PATTERN_SIZE_MAX);
    MatchRegex *regex = ARENA_NEW(arena, MatchRegex);
    regex->pattern = pattern;
    regex->options = options;
    regex->prefix = (Str){pattern.data, 0};
    find_literals(regex, flags, arena);
    if (!regex->is_prefix_only && !regex->is_literal_only) {
        pcre2_general_context *memory =
            pcre2_general_context_create(arena_memory, arena_memory_free, arena);
        pcre2_compile_context *context = pcre2_compile_context_create(memory);
        int code;
        size_t offset;
        regex->code =
            pcre2_compile((PCRE2_SPTR)pattern.data, pattern.size, flags, &code, &offset, context);
        if (regex->code == NULL) {
            char reason[160] = "";
            pcre2_get_error_message(code, (PCRE2_UCHAR *)reason, sizeof(reason));
            return error_set(err, (ErrCode)ERR_REGEX_MALFORMED, "Regular expression is invalid: %s",
                             reason);
        }
    }
    *ret_regex = regex;
    return ERR_OK;
}

ErrCode regex_search(const MatchRegex *regex, Str text, bool *ret_is_match, Error *err) {
    if (regex->is_prefix_only) {
        *ret_is_match = text.size >= regex->prefix.size &&
                        memcmp(text.data, regex->prefix.data, regex->prefix.size) == 0;
        return ERR_OK;
    }
    if (regex->is_literal_only) {
        *ret_is_match =
            memmem(text.data, text.size, regex->pattern.data, regex->pattern.size) != NULL;
        return ERR_OK;
    }
    return match_code(regex, text, 0, NULL, 0, ret_is_match, err);
}

uint32_t regex_group_count(const MatchRegex *regex) {
    uint32_t count = 0;
    if (regex->code != NULL)
        pcre2_pattern_info(regex->code, PCRE2_INFO_CAPTURECOUNT, &count);
    return count;
}

ErrCode regex_find(const MatchRegex *regex, Str text, size_t from, RegexSpan *ret_spans,
                   bool *ret_is_match, Error *err) {
    if (regex->code != NULL)
        return match_code(regex, text, from, ret_spans, regex_group_count(regex) + 1, ret_is_match,
                          err);
    Str wanted = regex->is_prefix_only ? regex->prefix : regex->pattern;
    const char *at = NULL;
    if (!regex->is_prefix_only)
        at = memmem(text.data + from, text.size - from, wanted.data, wanted.size);
    else if (from == 0 && text.size >= wanted.size &&
             memcmp(text.data, wanted.data, wanted.size) == 0)
        at = text.data;
    *ret_is_match = at != NULL;
    if (at != NULL)
        ret_spans[0] =
            (RegexSpan){(size_t)(at - text.data), (size_t)(at - text.data) + wanted.size};
    return ERR_OK;
}

/* `span_count` 0: only whether there is a match. */
static ErrCode match_code(const MatchRegex *regex, Str text, size_t from, RegexSpan *ret_spans,
                          uint32_t span_count, bool *ret_is_match, Error *err) {
    Scratch scratch;
    scratch.used = 0;
    pcre2_general_context *memory =
        pcre2_general_context_create(scratch_memory, scratch_memory_free, &scratch);
    pcre2_match_context *context = pcre2_match_context_create(memory);
    pcre2_set_match_limit(context, REGEX_MATCH_LIMIT);
    pcre2_set_heap_limit(context, REGEX_HEAP_LIMIT_KIB);
    pcre2_match_data *data = pcre2_match_data_create(span_count == 0 ? 1 : span_count, memory);
    int rc = pcre2_match(regex->code, (PCRE2_SPTR)text.data, text.size, from, 0, data, context);
    if (rc >= 0)
        copy_spans(data, ret_spans, span_count);
    pcre2_match_data_free(data); /* may hold heap memory; the contexts never do */
    return check_match(rc, ret_is_match, err);
}

static void copy_spans(const pcre2_match_data *data, RegexSpan *ret_spans, uint32_t span_count) {
    const PCRE2_SIZE *offsets = pcre2_get_ovector_pointer((pcre2_match_data *)data);
    for (uint32_t i = 0; i < span_count; i++)
        ret_spans[i] = (RegexSpan){offsets[2 * i], offsets[2 * i + 1]};
}

static ErrCode check_match(int rc, bool *ret_is_match, Error *err) {
    if (rc < 0 && rc != PCRE2_ERROR_NOMATCH) {
        char reason[160] = "";
        pcre2_get_error_message(rc, (PCRE2_UCHAR *)reason, sizeof(reason));
        return error_set(err, (ErrCode)ERR_REGEX_FAILED,
                         "Error occurred while executing regular expression: %s", reason);
    }
    *ret_is_match = rc >= 0;
    return ERR_OK;
}

void regex_finder_init(RegexFinder *finder, const MatchRegex *regex, Str text) {
    *finder = (RegexFinder){.regex = regex, .text = text};
    if (regex->code == NULL)
        return;
    finder->span_count = regex_group_count(regex) + 1;
    finder->memory = pcre2_general_context_create(heap_memory, heap_memory_free, NULL);
    finder->context = pcre2_match_context_create(finder->memory);
    pcre2_set_match_limit(finder->context, REGEX_MATCH_LIMIT);
    pcre2_set_heap_limit(finder->context, REGEX_HEAP_LIMIT_KIB);
    finder->data = pcre2_match_data_create(finder->span_count, finder->memory);
    /* The common code has the text checked anew by each match. */
    uint32_t flags;
    CLEANUP(error_reset) Error ignored = {0};
    if (!utf8_is_valid((const uint8_t *)text.data, text.size) ||
        parse_options(regex->options, &flags, &ignored) != ERR_OK)
        return;
    pcre2_compile_context *context = pcre2_compile_context_create(finder->memory);
    int code;
    size_t offset;
    finder->valid_code =
        pcre2_compile((PCRE2_SPTR)regex->pattern.data, regex->pattern.size,
                      flags & ~(uint32_t)PCRE2_MATCH_INVALID_UTF, &code, &offset, context);
    pcre2_compile_context_free(context);
}

void regex_finder_done(RegexFinder *finder) {
    pcre2_code_free(finder->valid_code);
    pcre2_match_data_free(finder->data);
    pcre2_match_context_free(finder->context);
    pcre2_general_context_free(finder->memory);
    *finder = (RegexFinder){0};
}

ErrCode regex_finder_find(RegexFinder *finder, size_t from, RegexSpan *ret_spans,
                          bool *ret_is_match, Error *err) {
    if (finder->regex->code == NULL)
        return regex_find(finder->regex, finder->text, from, ret_spans, ret_is_match, err);
    const pcre2_code *code = finder->valid_code != NULL ? finder->valid_code : finder->regex->code;
    int rc = pcre2_match(code, (PCRE2_SPTR)finder->text.data, finder->text.size, from,
                         finder->valid_code != NULL ? PCRE2_NO_UTF_CHECK : 0, finder->data,
                         finder->context);
    if (rc >= 0)
        copy_spans(finder->data, ret_spans, finder->span_count);
    return check_match(rc, ret_is_match, err);
}

static ErrCode parse_options(Str options, uint32_t *ret_flags, Error *err) {
    /* Text that is not UTF-8 is stored as it came; it simply matches nothing special. */
    uint32_t flags = PCRE2_UTF | PCRE2_MATCH_INVALID_UTF;
    for (size_t i = 0; i < options.size; i++) {
        switch (options.data[i]) {
        case 'i':
            flags |= PCRE2_CASELESS;
            break;
        case 'm':
            flags |= PCRE2_MULTILINE;
            break;
        case 's':
            flags |= PCRE2_DOTALL;
            break;
        case 'x':
            flags |= PCRE2_EXTENDED;
            break;
        case 'u':
            break;
        default:
            return error_set(err, (ErrCode)ERR_REGEX_OPTION, "invalid flag in regex options: %c",
                             options.data[i]);
        }
    }
    *ret_flags = flags;
    return ERR_OK;
}

static bool is_special(char c) {
    return c == '\0' || strchr("\\^$.[]|()?*+{}", c) != NULL;
}

/* Reads plain text from `at` on, up to what is special: \Q...\E, and characters that a backslash
 * makes plain, among it. Returns where it ends. */
static size_t read_plain(Str pattern, size_t at, char *text, size_t *ret_size) {
    bool is_quoted = false;
    size_t size = 0;
    while (at < pattern.size) {
        char c = pattern.data[at];
        char next = at + 1 < pattern.size ? pattern.data[at + 1] : '\0';
        if (c == '\\' && next == (is_quoted ? 'E' : 'Q')) {
            is_quoted = !is_quoted;
            at += 2;
        } else if (is_quoted || !is_special(c)) {
            text[size++] = c;
            at++;
        } else if (c == '\\' && next != '\0' && !isalnum((unsigned char)next)) {
            text[size++] = next;
            at += 2;
        } else {
            break;
        }
    }
    *ret_size = size;
    return at;
}

/* Finds plain text in the pattern. Only with options that leave plain characters and ^ as they are;
 * the prefix must hold for the whole pattern, so an alternative at any level rules it out. */
static void find_literals(MatchRegex *regex, uint32_t flags, Arena *arena) {
    if ((flags & (PCRE2_CASELESS | PCRE2_MULTILINE | PCRE2_EXTENDED)) != 0)
        return;
    Str pattern = regex->pattern;
    if (pattern.size == 0 || pattern.data[0] != '^') {
        size_t end = 0;
        while (end < pattern.size && !is_special(pattern.data[end]))
            end++;
        regex->is_literal_only = end == pattern.size && pattern.size > 0;
        return;
    }
    char *text = arena_alloc(arena, pattern.size);
    size_t size;
    size_t end = read_plain(pattern, 1, text, &size);
    Str rest = {pattern.data + end, pattern.size - end};
    regex->is_prefix_only = rest.size == 0 || str_is(rest, ".*");
    if (!regex->is_prefix_only && str_has_char(rest, '|'))
        return;
    /* A quantifier takes back the character before it, which may have several bytes. */
    if (rest.size > 0 && strchr("?*+{", rest.data[0]) != NULL) {
        if (size > 0)
            size--;
        while (size > 0 && ((uint8_t)text[size] & 0xC0) == 0x80)
            size--;
    }
    regex->prefix = (Str){text, size};
}

static void *arena_memory(size_t size, void *arena) {
    return arena_alloc(arena, size);
}

static void arena_memory_free(void *memory, void *arena) {
    (void)memory, (void)arena;
}

static void *heap_memory(size_t size, void *ignored) {
    (void)ignored;
    return xmalloc(size); /* bounded by REGEX_HEAP_LIMIT_KIB */
}

static void heap_memory_free(void *memory, void *ignored) {
    (void)ignored;
    xfree(memory);
}

static void *scratch_memory(size_t size, void *ctx) {
    Scratch *scratch = ctx;
    size_t rounded = (size + 15) & ~(size_t)15;
    if (rounded > SCRATCH_SIZE - scratch->used)
        return xmalloc(size); /* bounded by REGEX_HEAP_LIMIT_KIB */
    void *memory = scratch->block + scratch->used;
    scratch->used += rounded;
    return memory;
}

static void scratch_memory_free(void *memory, void *ctx) {
    Scratch *scratch = ctx;
    uint8_t *at = memory;
    if (at < scratch->block || at >= scratch->block + SCRATCH_SIZE)
        xfree(memory);
}
