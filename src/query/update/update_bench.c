/*
 * update_bench.c - nanoseconds per document of common updates. A program of its own; prints one
 * line per update: on a document of ten fields and about 300 bytes.
 */
#include <stdio.h>

#include "base/clock.h"
#include "bson/json.h"
#include "query/update/update.h"
#include "query/match/bench_doc.h"

enum {
    ROUNDS = 5,
    REPEATS = 1000000,
};

static const char *const UPDATES[] = {
    "{'u': {'$inc': {'x': 1}}}",
    "{'u': {'$set': {'s': 'xyz'}}}",
    "{'u': {'$set': {'s': 'longer text'}}}",
    "{'u': {'$set': {'s': 'abc'}}}",
    "{'u': {'$set': {'new': 1}, '$inc': {'x': 1}}}",
    "{'u': {'$set': {'sub.b': 3}}}",
    "{'u': {'$push': {'tags': 'white'}}}",
    "{'u': {'$unset': {'name': 1}}}",
    "{'u': {'name': 'a replacement', 'x': 5}}",
};

int main(void) {
    static const MatchParseContext MATCH_CTX = {0};
    Arena arena, scratch;
    arena_init(&arena, 0);
    arena_init(&scratch, 0);
    Doc doc = bench_doc(&arena);
    printf("document of %u bytes, %u fields\n", doc_size(doc), doc_count(doc));
    for (size_t i = 0; i < ARRAY_LEN(UPDATES); i++) {
        Error err = {0};
        Doc holder;
        UpdateProgram *program = NULL;
        UpdateParseContext parse_ctx = {.match = &MATCH_CTX};
        invariant(doc_from_json(UPDATES[i], &arena, &holder, &err) == ERR_OK);
        invariant(update_parse(doc_get_lit(holder, "u"), &parse_ctx, &arena, &program, &err) ==
                  ERR_OK);
        UpdateApplyContext ctx = {.positional_index = -1};
        UpdateResult result;
        double best = 1e9;
        for (int round = 0; round < ROUNDS; round++) {
            int64_t start = clock_mono_us();
            for (int repeat = 0; repeat < REPEATS; repeat++) {
                arena_reset(&scratch);
                ErrCode rc = update_apply(program, doc, &ctx, &scratch, &result, &err);
                invariant(rc == ERR_OK);
            }
            double ns = (double)(clock_mono_us() - start) * 1000 / REPEATS;
            best = ns < best ? ns : best;
        }
        printf("%8.1f ns  %s %s\n", best, result.is_noop ? "no-op" : "     ", UPDATES[i]);
    }
    arena_done(&scratch);
    arena_done(&arena);
    return 0;
}
