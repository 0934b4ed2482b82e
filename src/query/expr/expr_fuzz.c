/*
 * expr_fuzz.c - expressions from outside: parsing any of them is safe, evaluating what parses is
 * safe and gives the same twice, and results are well-formed.
 *
 * Input: one byte of form (fuzz_doc.h), then an expression, then documents.
 */
#include "query/expr/expr.h"

#include "query/expr/fuzz_expr.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const FIELD_NAMES[] = {"a", "b", "c", "x", "k", "v", "0"};

/* As the operation would: evaluation asks from time to time and is stopped at last. */
static ErrCode count_down(void *arg, Error *err) {
    int *left = arg;
    return --*left > 0 ? ERR_OK : error_set(err, ERR_INTERRUPTED, "long enough");
}

static void check_value(Value value, Arena *arena) {
    Buffer buf;
    buffer_init_arena(&buf, arena, 256, BUFFER_UNBOUNDED);
    DocBuilder b;
    doc_builder_init(&b, &buf);
    build_value_as(&b, STR("v"), value);
    Doc doc = doc_builder_end(&b);
    if (buf.overflowed)
        return;
    Error err = {0};
    invariant(doc_validate(doc.data, doc_size(doc), 1000, VALIDATE_BASIC, &err) == ERR_OK);
    Value back = value_from_elem(doc_get_lit(doc, "v"));
    invariant(values_equal(value, back, NULL));
    invariant(value_hash(value, NULL) == value_hash(back, NULL));
    value_to_text(value, arena);
}

static ErrCode evaluate(const Expr *expr, Doc doc, Arena *arena, Value *ret) {
    Error err = {0};
    int left = 200;
    Prng prng = prng_seeded(1);
    ExprEvalContext ctx = {
        .root = doc, .scratch = arena, .prng = &prng, .check = {count_down, &left}};
    ErrCode rc = expr_eval(expr, &ctx, ret, &err);
    invariant(rc == err.code);
    error_reset(&err);
    return rc;
}

static void check_expr(FuzzInput *in, Elem spec, Arena *arena) {
    Error err = {0};
    ExprParseContext ctx = {0};
    Expr *expr;
    ErrCode rc = expr_parse(spec, &ctx, arena, &expr, &err);
    if (rc != ERR_OK) {
        invariant(rc == err.code);
        error_reset(&err);
        return;
    }
    PathSet paths = path_set(arena);
    expr_add_paths(expr, &paths);
    in->names = FIELD_NAMES;
    in->name_count = ARRAY_LEN(FIELD_NAMES);
    Doc doc = DOC_EMPTY;
    do {
        Value first;
        Value second;
        rc = evaluate(expr, doc, arena, &first);
        invariant(evaluate(expr, doc, arena, &second) == rc);
        if (rc == ERR_OK) {
            invariant(values_equal(first, second, NULL));
            check_value(first, arena);
        }
    } while (fuzz_next_doc(in, /* is_raw= */ false, arena, &doc));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 2)
        return 0;
    FuzzInput in = {data + 1, data + size, FUZZ_ARGUMENTS, ARRAY_LEN(FUZZ_ARGUMENTS)};
    Arena arena;
    arena_init(&arena, 0);
    if (data[0] == 0) { /* BSON as it would come from a client */
        Doc doc;
        if (fuzz_next_doc(&in, /* is_raw= */ true, &arena, &doc) && !doc_is_empty(doc)) {
            DocIter iter = doc_iter(doc);
            Elem spec;
            doc_iter_next(&iter, &spec);
            check_expr(&in, spec, &arena);
        }
    } else {
        Buffer buf;
        buffer_init_arena(&buf, &arena, 256, BUFFER_UNBOUNDED);
        DocBuilder b;
        doc_builder_init(&b, &buf);
        fuzz_expr(&in, &b, STR("e"), 6);
        Doc doc = doc_builder_end(&b);
        if (!buf.overflowed)
            check_expr(&in, doc_get_lit(doc, "e"), &arena);
    }
    arena_done(&arena);
    return 0;
}
