/*
 * match_fuzz.c - filters from outside: parsing any of them is safe, matching with what parses is
 * safe, and the optimized tree judges like the plain one.
 *
 * Input: one byte of form (fuzz_doc.h), then a filter, then documents.
 */
#include "query/match/fuzz_doc.h"
#include "query/match/match.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Every operator and every keyword of schemas, after some names of fields and arguments. */
static const char *const NAMES[] = {
    "a",
    "b",
    "0",
    "1",
    "a.b",
    "a.0",
    "a.0.b",
    "b.a.0.1",
    "_id",
    "exclusiveMinimum",
    "exclusiveMaximum",
#define MATCH_FIELD_OPERATOR(name, parse, kind) name,
#define MATCH_TOP_OPERATOR(name, parse, kind)   name,
#include "query/match/match_operators.def"
#undef MATCH_FIELD_OPERATOR
#undef MATCH_TOP_OPERATOR
#define SCHEMA_KEYWORD(name, types, parse, eval, explain) name,
#include "query/match/json_schema_keywords.def"
#undef SCHEMA_KEYWORD
};

static ErrCode ignore_equality(void *ctx, const FieldPath *path, Elem operand, Error *err) {
    (void)ctx, (void)path, (void)operand, (void)err;
    return ERR_OK;
}

static bool uses_chance(Doc filter) {
    DocIter iter = doc_iter(filter);
    for (Elem elem; doc_iter_next(&iter, &elem);) {
        if (elem_name_is(elem, STR("$sampleRate")))
            return true;
        bool is_nested = elem_type(elem) == BT_DOC || elem_type(elem) == BT_ARRAY;
        if (is_nested && uses_chance(elem_doc(elem)))
            return true;
    }
    return false;
}

static void check_filter(FuzzInput *in, bool is_raw, Doc filter, Arena *arena) {
    static const MatchParseContext CTX = {0};
    Error err = {0};
    MatchExpr *plain = NULL, *optimized = NULL;
    match_find_id_equality(filter);
    ErrCode rc = match_parse(filter, &CTX, arena, &plain, &err);
    if (rc != ERR_OK) {
        invariant(err.code == rc);
        error_reset(&err);
        return;
    }
    invariant(match_parse(filter, &CTX, arena, &optimized, &err) == ERR_OK);
    optimized = match_optimize(optimized, arena);
    invariant(match_equalities(optimized, ignore_equality, NULL, &err) == ERR_OK);

    Buffer buf;
    buffer_init_arena(&buf, arena, 256, BUFFER_UNBOUNDED);
    DocBuilder b;
    doc_builder_init(&b, &buf);
    match_to_bson(optimized, &b);
    Doc shown = doc_builder_end(&b);
    rc = doc_validate(shown.data, doc_size(shown), 1000, VALIDATE_BASIC, &err);
    invariant(rc == ERR_OK);

    for (Doc doc; fuzz_next_doc(in, is_raw, arena, &doc);) {
        MatchDetails details = MATCH_DETAILS_NONE;
        bool is_match = match_doc(plain, doc, &details);
        MatchDetails again = MATCH_DETAILS_NONE;
        bool is_match_again = match_doc(optimized, doc, &again);
        /* A regular expression that hit its limit has no verdict to compare, nor has chance. */
        if (details.rc == ERR_OK && again.rc == ERR_OK && !uses_chance(filter))
            invariant(is_match == is_match_again);
        if (details.rc != ERR_OK || is_match)
            continue;
        buffer_clear(&buf);
        doc_builder_init(&b, &buf);
        match_explain_failure(plain, doc, &b);
        Doc told = doc_builder_end(&b);
        rc = doc_validate(told.data, doc_size(told), 1000, VALIDATE_BASIC, &err);
        invariant(rc == ERR_OK);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 2)
        return 0;
    FuzzInput in = {data + 1, data + size, NAMES, ARRAY_LEN(NAMES)};
    bool is_raw = data[0] == 0;
    Arena arena;
    arena_init(&arena, 0);
    Doc filter;
    if (fuzz_next_doc(&in, is_raw, &arena, &filter))
        check_filter(&in, is_raw, filter, &arena);
    arena_done(&arena);
    return 0;
}
