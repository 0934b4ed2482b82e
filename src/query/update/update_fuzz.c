/*
 * update_fuzz.c - updates from outside: parsing any of them is safe, and what they make of any
 * document is a document again, with the same `_id`, within the bounds of stored documents.
 *
 * Input: one byte of form (fuzz_doc.h), then the update, array filters in a document, documents.
 */
#include "query/match/fuzz_doc.h"
#include "query/update/update.h"
#include "query/update/update_delta.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const NAMES[] = {
    "a",
    "b",
    "_id",
    "0",
    "2",
    "a.b",
    "a.0",
    "a.$",
    "a.$[]",
    "a.$[i]",
    "a.$[].b",
    "a.$[i].b",
    "a.0.b",
    "b.3",
    "i",
    "i.b",
    "and",
    "or",
    "$set",
    "$unset",
    "$inc",
    "$mul",
    "$min",
    "$max",
    "$rename",
    "$push",
    "$pull",
    "$pullAll",
    "$addToSet",
    "$pop",
    "$currentDate",
    "$setOnInsert",
    "$bit",
    "$each",
    "$slice",
    "$sort",
    "$position",
    "$gt",
    "$type",
    "",
    "a..b",
    "$or",
};

static uint64_t next_ts(void *arg) {
    (void)arg;
    return 1;
}

static void check_apply(const UpdateProgram *program, Doc before, bool is_insert, Arena *arena) {
    Error err = {0};
    UpdateApplyContext ctx = {.positional_index = 1, .is_insert = is_insert, .next_ts = next_ts};
    UpdateResult result;
    ErrCode rc = update_apply(program, before, &ctx, arena, &result, &err);
    if (rc != ERR_OK) {
        invariant(err.code == rc);
        error_reset(&err);
        return;
    }
    invariant(doc_size(result.after) <= BSON_DOC_SIZE_MAX);
    rc = doc_validate(result.after.data, doc_size(result.after), BSON_DEPTH_MAX, VALIDATE_BASIC,
                      &err);
    invariant(rc == ERR_OK);
    Elem id = doc_get_lit(before, "_id");
    if (elem_is_present(id) && update_needs_positional(program) == false)
        invariant(elem_compare(id, doc_get_lit(result.after, "_id"), NULL) == 0);
    if (is_insert)
        return;
    invariant(result.is_noop == doc_equal_bytes(before, result.after));
    Doc delta, made, again;
    if (!update_delta_of_operators(program, before, result.after, arena, &delta))
        return;
    rc = update_delta_apply(before, delta, arena, &made, &err);
    invariant(rc == ERR_OK);
    invariant(doc_equal_bytes(made, result.after));
    rc = update_delta_apply(result.after, delta, arena, &again, &err);
    invariant(rc == ERR_OK);
    invariant(doc_equal_bytes(again, result.after));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const MatchParseContext MATCH_CTX = {0};
    if (size < 2)
        return 0;
    FuzzInput in = {data + 1, data + size, NAMES, ARRAY_LEN(NAMES)};
    bool is_raw = data[0] == 0;
    Arena arena;
    arena_init(&arena, 0);
    Error err = {0};
    Doc holder, filters;
    if (!fuzz_next_doc(&in, is_raw, &arena, &holder) ||
        !fuzz_next_doc(&in, is_raw, &arena, &filters)) {
        arena_done(&arena);
        return 0;
    }
    /* The update is the whole document, or what stands under its first name. */
    DocBuilder b = doc_builder_in_arena(&arena);
    build_doc(&b, "u", holder);
    Elem update = doc_get_lit(doc_builder_end(&b), "u");
    UpdateParseContext ctx = {.match = &MATCH_CTX,
                              .array_filters = doc_is_empty(filters) ? DOC_NONE : filters};
    UpdateProgram *program = NULL;
    ErrCode rc = update_parse(update, &ctx, &arena, &program, &err);
    if (rc == ERR_OK) {
        const Str *paths;
        uint32_t count;
        update_touched_paths(program, &paths, &count);
        for (uint32_t i = 0; i < count; i++)
            invariant(update_touches_path(program, paths[i]));
        for (Doc doc; fuzz_next_doc(&in, is_raw, &arena, &doc);) {
            check_apply(program, doc, false, &arena);
            check_apply(program, doc, true, &arena);
        }
    }
    invariant(rc == err.code);
    error_reset(&err);

    /* Any document is a filter to start an upsert from. */
    MatchExpr *expr = NULL;
    Doc base;
    if (match_parse(filters, &MATCH_CTX, &arena, &expr, &err) == ERR_OK &&
        update_upsert_base(expr, is_raw, &arena, &base, &err) == ERR_OK)
        invariant(doc_size(base) <= BSON_DOC_SIZE_MAX);
    error_reset(&err);
    arena_done(&arena);
    return 0;
}
