/*
 * match_bench.c - nanoseconds per document of common filters. A program of its own; prints one line
 * per filter: on a document of ten fields and about 300 bytes, with the field in the middle.
 */
#include <stdio.h>

#include "base/clock.h"
#include "bson/builder.h"
#include "bson/json.h"
#include "query/match/match.h"
#include "query/match/bench_doc.h"

enum {
    ROUNDS = 5,
    REPEATS = 2000000,
};

static const char *const FILTERS[] = {
    "{'x': {'$lt': 5}}",
    "{'x': 100}",
    "{'s': 'abc'}",
    "{'last': {'$gte': 7.5}}",
    "{'missing': null}",
    "{'x': {'$in': [1, 5, 9, 100, 2000, 3000]}}",
    "{'x': {'$gt': 5, '$lt': 50}, 's': 'abc'}",
    "{'sub.b': 2}",
    "{'tags': 'green'}",
    "{'s': {'$regularExpression': {'pattern': '^ab', 'options': ''}}}",
    "{'s': {'$regularExpression': {'pattern': 'b.$', 'options': 'i'}}}",
};

int main(void) {
    Arena arena;
    arena_init(&arena, 0);
    static const MatchParseContext CTX = {0};
    Doc doc = bench_doc(&arena);
    printf("document of %u bytes, %u fields\n", doc_size(doc), doc_count(doc));
    for (size_t i = 0; i < ARRAY_LEN(FILTERS); i++) {
        Error err = {0};
        Doc filter;
        MatchExpr *expr = NULL;
        invariant(doc_from_json(FILTERS[i], &arena, &filter, &err) == ERR_OK);
        invariant(match_parse(filter, &CTX, &arena, &expr, &err) == ERR_OK);
        expr = match_optimize(expr, &arena);
        double best = 1e9;
        uint64_t matched = 0;
        for (int round = 0; round < ROUNDS; round++) {
            int64_t start = clock_mono_us();
            for (int repeat = 0; repeat < REPEATS; repeat++) {
                __asm__ volatile("" : "+r"(doc.data)); /* keeps the call in the loop */
                matched += match_doc(expr, doc, NULL);
            }
            double ns = (double)(clock_mono_us() - start) * 1000 / REPEATS;
            best = ns < best ? ns : best;
        }
        printf("%8.1f ns  %s %s\n", best, matched > 0 ? "yes" : "no ", FILTERS[i]);
    }
    arena_done(&arena);
    return 0;
}
