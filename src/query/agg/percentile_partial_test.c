/*
 * percentile_partial_test.c - partial results of $percentile over groups of any size.
 */
#include <math.h>

#include "base/alloc.h"
#include "base/test.h"
#include "bson/json.h"
#include "query/agg/accumulator.h"

enum {
    PARTS = 3,
};

typedef struct PercentileFixture {
    Arena arena;
    Acc acc;
    size_t bytes;
    AccContext ctx;
} PercentileFixture;

static void fixture_init(PercentileFixture *fx) {
    *fx = (PercentileFixture){0};
    arena_init(&fx->arena, 64 * 1024);
    fx->ctx.bytes = &fx->bytes;
    Error err = {0};
    Doc doc;
    EXPECT_OK(doc_from_json("{'$percentile': {'input': '$a', 'p': [0, 0.25, 0.5, 0.99, 1], "
                            "'method': 'approximate'}}",
                            &fx->arena, &doc, &err),
              err);
    EXPECT_OK(acc_parse(STR("x"), doc_get_lit(doc, "$percentile"), &(ExprParseContext){0},
                        &fx->arena, &fx->acc, &err),
              err);
}

/* The numbers 0 .. count - 1, dealt out to parts whose partials are merged. */
static void merge_parts(PercentileFixture *fx, size_t count, size_t *ret_partial_size,
                        double ret_found[5]) {
    const AccClass *class = fx->acc.class;
    Error err = {0};
    void *merged = xcalloc(1, class->state_size);
    *ret_partial_size = 0;
    for (size_t p = 0; p < PARTS; p++) {
        void *state = xcalloc(1, class->state_size);
        for (size_t i = p; i < count; i += PARTS)
            EXPECT_OK(class->add(state, &fx->acc, value_f64((double)i), &fx->ctx, &err), err);
        Value partial;
        EXPECT_OK(class->save(state, &fx->acc, &fx->arena, &partial, &err), err);
        *ret_partial_size += (size_t)load_i32(partial.bytes);
        EXPECT_OK(class->merge(merged, &fx->acc, partial, &fx->ctx, &err), err);
        class->done(state);
        xfree(state);
    }
    Value result;
    EXPECT_OK(class->finish(merged, &fx->acc, &fx->arena, &result, &err), err);
    DocIter iter = doc_iter(value_as_doc(result));
    Elem elem;
    for (size_t i = 0; i < 5 && doc_iter_next(&iter, &elem); i++)
        ret_found[i] = elem_as_f64(elem);
    class->done(merged);
    xfree(merged);
}

TEST(agg_3_percentiles_of_few_numbers_merge_exactly) {
    PercentileFixture fx;
    fixture_init(&fx);
    size_t size;
    double found[5] = {0};
    merge_parts(&fx, 100000, &size, found);
    static const double WANT[] = {0, 24999, 49999, 98999, 99999};
    for (size_t i = 0; i < ARRAY_LEN(WANT); i++)
        EXPECT(found[i] == WANT[i]);
    arena_done(&fx.arena);
}

TEST(agg_3_partials_of_percentiles_have_a_bound) {
    PercentileFixture fx;
    fixture_init(&fx);
    size_t size;
    double found[5] = {0};
    size_t count = 3 * 1000 * 1000; /* 24 MB of numbers: more than a document holds */
    merge_parts(&fx, count, &size, found);
    EXPECT(size < 256 * 1024);
    static const double RANKS[] = {0, 0.25, 0.5, 0.99, 1};
    for (size_t i = 0; i < ARRAY_LEN(RANKS); i++)
        EXPECT(fabs(found[i] - RANKS[i] * (double)count) <= 0.004 * (double)count);
    EXPECT(found[0] == 0 && found[4] == (double)count - 1);
    arena_done(&fx.arena);
}

TEST(agg_3_a_damaged_digest_is_refused) {
    PercentileFixture fx;
    fixture_init(&fx);
    static const double BAD[][2] = {{1, 0}, {1, -1}, {NAN, 1}, {1, INFINITY}, {1, NAN}};
    for (size_t i = 0; i < ARRAY_LEN(BAD); i++) {
        DocBuilder b = doc_builder_in_arena(&fx.arena);
        build_binary(&b, "x", 0x80, BAD[i], sizeof(BAD[i]));
        Value partial = value_from_elem(doc_get_lit(doc_builder_end(&b), "x"));
        void *state = xcalloc(1, fx.acc.class->state_size);
        CLEANUP(error_reset) Error err = {0};
        EXPECT(fx.acc.class->merge(state, &fx.acc, partial, &fx.ctx, &err) == ERR_BAD_VALUE);
        fx.acc.class->done(state);
        xfree(state);
    }
    arena_done(&fx.arena);
}
