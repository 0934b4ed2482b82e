/*
 * update_test.c - update expressions, case by case.
 */
#include "query/update/update.h"

#include "base/buffer.h"
#include "base/prng.h"
#include "base/test.h"
#include "bson/builder.h"
#include "bson/validate.h"
#include "bson/json_docs_test.h"
#include "query/update/update_delta.h"

typedef struct Case {
    const char *update;
    const char *before;
    const char *after;   /* NULL: no-op */
    const char *filters; /* arrayFilters as {'f': [...]}, may be NULL */
    int positional;      /* index + 1; 0: none */
    bool is_insert;
} Case;

typedef struct ErrorCase {
    const char *update;
    const char *before;
    int code;
    const char *message; /* a part of it */
    const char *filters;
    int positional;
} ErrorCase;

static const MatchParseContext PLAIN = {0};

/* What the operators did, told as a delta, makes the same of the document; also a second time. */
static void check_delta(const char *update, const UpdateProgram *program, Doc before, Doc after,
                        Arena *arena) {
    CLEANUP(error_reset) Error err = {0};
    Doc delta, made, again;
    if (!update_delta_of_operators(program, before, after, arena, &delta))
        return;
    if (update_delta_apply(before, delta, arena, &made, &err) != ERR_OK ||
        update_delta_apply(after, delta, arena, &again, &err) != ERR_OK ||
        !doc_equal_bytes(made, after) || !doc_equal_bytes(again, after))
        test_fail(__FILE__, __LINE__, "%s on %s: the delta %s does not lead to %s", update,
                  shell_text_of_doc(before, arena), shell_text_of_doc(delta, arena),
                  shell_text_of_doc(after, arena));
}

static ErrCode run_update(const char *update, const char *filters, Doc before,
                          const UpdateApplyContext *ctx, Arena *arena, UpdateResult *ret_result,
                          Error *err) {
    UpdateParseContext parse_ctx = {.match = &PLAIN};
    if (filters != NULL)
        parse_ctx.array_filters = elem_doc(doc_get_lit(test_query(filters, arena), "f"));
    UpdateProgram *program = NULL;
    TRY(update_parse(test_query_elem(update, arena), &parse_ctx, arena, &program, err));
    TRY(update_apply(program, before, ctx, arena, ret_result, err));
    if (!ctx->is_insert)
        check_delta(update, program, before, ret_result->after, arena);
    return ERR_OK;
}

static uint64_t next_ts(void *arg) {
    (void)arg;
    return (77ull << 32) | 3;
}

static void run_cases(const Case *cases, size_t count) {
    for (size_t i = 0; i < count; i++) {
        const Case *c = &cases[i];
        Arena arena;
        arena_init(&arena, 0);
        CLEANUP(error_reset) Error err = {0};
        Doc before = test_query(c->before, &arena);
        UpdateApplyContext ctx = {.positional_index = c->positional - 1,
                                  .is_insert = c->is_insert,
                                  .now_ms = 1234,
                                  .next_ts = next_ts};
        UpdateResult result = {0};
        ErrCode rc = run_update(c->update, c->filters, before, &ctx, &arena, &result, &err);
        if (rc != ERR_OK) {
            test_fail(__FILE__, __LINE__, "%s on %s: %d %s", c->update, c->before, (int)rc,
                      error_message(&err));
        } else {
            Doc expected = c->after != NULL ? test_query(c->after, &arena) : before;
            if (!doc_equal_bytes(result.after, expected))
                test_fail(__FILE__, __LINE__, "%s on %s gives %s", c->update, c->before,
                          shell_text_of_doc(result.after, &arena));
            if (!c->is_insert && result.is_noop != (c->after == NULL))
                test_fail(__FILE__, __LINE__, "%s on %s: no-op is %d", c->update, c->before,
                          result.is_noop);
            EXPECT_OK(doc_validate(result.after.data, doc_size(result.after), BSON_DEPTH_MAX,
                                   VALIDATE_BASIC, &err),
                      err);
        }
        arena_done(&arena);
    }
}

static void run_error_cases(const ErrorCase *cases, size_t count) {
    for (size_t i = 0; i < count; i++) {
        const ErrorCase *c = &cases[i];
        Arena arena;
        arena_init(&arena, 0);
        CLEANUP(error_reset) Error err = {0};
        UpdateApplyContext ctx = {.positional_index = c->positional - 1};
        UpdateResult result = {0};
        ErrCode rc = run_update(c->update, c->filters, test_query(c->before, &arena), &ctx, &arena,
                                &result, &err);
        if ((int)rc != c->code || strstr(error_message(&err), c->message) == NULL)
            test_fail(__FILE__, __LINE__, "%s on %s gives %d \"%s\", expected %d \"%s\"", c->update,
                      c->before, (int)rc, error_message(&err), c->code, c->message);
        arena_done(&arena);
    }
}

TEST(update_set_changes_creates_and_orders_fields) {
    static const Case CASES[] = {
        {"{'$set': {'a': 2}}", "{'_id': 1, 'a': 1}", "{'_id': 1, 'a': 2}", 0, 0, 0},
        {"{'$set': {'a': 1}}", "{'_id': 1, 'a': 1}", NULL, 0, 0, 0},
        {"{'$set': {'a': 1.0}}", "{'_id': 1, 'a': 1}", "{'_id': 1, 'a': 1.0}", 0, 0, 0},
        {"{'$set': {}}", "{'_id': 1}", NULL, 0, 0, 0},
        {"{'$set': {'b': 2}}", "{'_id': 1, 'a': 1}", "{'_id': 1, 'a': 1, 'b': 2}", 0, 0, 0},
        {"{'$set': {'z': 1, 'b': 2, 'm': 3}}", "{'_id': 1}", "{'_id': 1, 'b': 2, 'm': 3, 'z': 1}",
         0, 0, 0},
        {"{'$set': {'10': 1, '9': 2, 'a': 3}}", "{'_id': 1}", "{'_id': 1, '9': 2, '10': 1, 'a': 3}",
         0, 0, 0},
        {"{'$set': {'a': 'longer text'}}", "{'a': 'x', 'b': 2}", "{'a': 'longer text', 'b': 2}", 0,
         0, 0},
        {"{'$set': {'a.b': 1}}", "{'_id': 1}", "{'_id': 1, 'a': {'b': 1}}", 0, 0, 0},
        {"{'$set': {'a.b.c': 1, 'a.d': 2}}", "{}", "{'a': {'b': {'c': 1}, 'd': 2}}", 0, 0, 0},
        {"{'$set': {'a.b': 2}}", "{'a': {'b': 1, 'c': 3}, 'd': 4}",
         "{'a': {'b': 2, 'c': 3}, 'd': 4}", 0, 0, 0},
        {"{'$set': {'a.c': 2}}", "{'a': {'b': 1}, 'd': 4}", "{'a': {'b': 1, 'c': 2}, 'd': 4}", 0, 0,
         0},
        {"{'$set': {'a.1': 9}}", "{'a': [1, 2, 3]}", "{'a': [1, 9, 3]}", 0, 0, 0},
        {"{'$set': {'a.4': 9}}", "{'a': [1, 2]}", "{'a': [1, 2, null, null, 9]}", 0, 0, 0},
        {"{'$set': {'a.0': 9}}", "{'a': []}", "{'a': [9]}", 0, 0, 0},
        {"{'$set': {'a.2': 8, 'a.10': 9}}", "{'a': []}",
         "{'a': [null, null, 8, null, null, null, null, null, null, null, 9]}", 0, 0, 0},
        {"{'$set': {'a.0.b': 9}}", "{'a': [{'b': 1}, {'b': 2}]}", "{'a': [{'b': 9}, {'b': 2}]}", 0,
         0, 0},
        {"{'$set': {'a.1.b': 9}}", "{'a': []}", "{'a': [null, {'b': 9}]}", 0, 0, 0},
        {"{'$set': {'a.0': 1}}", "{}", "{'a': {'0': 1}}", 0, 0, 0},
        {"{'$set': {'a.0.0': 7}}", "{'a': [[1]]}", "{'a': [[7]]}", 0, 0, 0},
        {"{'$set': {'a': {'b': 1}}}", "{'a': 5}", "{'a': {'b': 1}}", 0, 0, 0},
        {"{'$set': {'a': {'$x': 1}}}", "{}", "{'a': {'$x': 1}}", 0, 0, 0},
        {"{'$set': {'a.$x': 1}}", "{'a': {}}", "{'a': {'$x': 1}}", 0, 0, 0},
        {"{'$set': {'_id': 1}}", "{'_id': 1, 'a': 1}", NULL, 0, 0, 0},
        {"{'$set': {'_id': 1.0, 'a': 2}}", "{'_id': 1, 'a': 1}", "{'_id': 1, 'a': 2}", 0, 0, 0},
        {"{'$set': {'_id.a': 1}}", "{'_id': {'a': 1}}", NULL, 0, 0, 0},
        {"{'$set': {'a': 1, 'b': 2}, '$inc': {'c': 1}}", "{'c': 1, 'a': 0}",
         "{'c': 2, 'a': 1, 'b': 2}", 0, 0, 0},
        {"{'$set': {'a': 5}}", "{'a': 1, 'b': 1, 'a': 2}", "{'a': 5, 'b': 1, 'a': 2}", 0, 0, 0},
        {"{'$set': {'a.b': 1}}", "{'a': {}}", "{'a': {'b': 1}}", 0, 0, 0},
        {"{'$set': {'b': 1, 'a': 2, 'c': 3, 'd': 4, 'e': 5, 'f': 6, 'g': 7, 'h': 8, 'i': 9, '2': "
         "0}}",
         "{'i': 0, 'a': 1}",
         "{'i': 9, 'a': 2, '2': 0, 'b': 1, 'c': 3, 'd': 4, 'e': 5, 'f': 6, 'g': 7, 'h': 8}", 0, 0,
         0},
    };
    run_cases(CASES, ARRAY_LEN(CASES));
}

TEST(update_unset_removes_fields_and_nulls_elements) {
    static const Case CASES[] = {
        {"{'$unset': {'a': 1}}", "{'_id': 1, 'a': 1, 'b': 2}", "{'_id': 1, 'b': 2}", 0, 0, 0},
        {"{'$unset': {'a': ''}}", "{'_id': 1}", NULL, 0, 0, 0},
        {"{'$unset': {'a.b': 1}}", "{'a': {'b': 1}}", "{'a': {}}", 0, 0, 0},
        {"{'$unset': {'a.b': 1}}", "{'a': 1}", NULL, 0, 0, 0},
        {"{'$unset': {'a.b': 1}}", "{}", NULL, 0, 0, 0},
        {"{'$unset': {'a.1': 1}}", "{'a': [1, 2, 3]}", "{'a': [1, null, 3]}", 0, 0, 0},
        {"{'$unset': {'a.7': 1}}", "{'a': [1]}", NULL, 0, 0, 0},
        {"{'$unset': {'a.b': 1}}", "{'a': [1, {'b': 2}]}", NULL, 0, 0, 0},
        {"{'$unset': {'a.1.b': 1}}", "{'a': [1, {'b': 2}]}", "{'a': [1, {}]}", 0, 0, 0},
        {"{'$unset': {'a': 1}, '$set': {'b': 2}}", "{'a': 1}", "{'b': 2}", 0, 0, 0},
    };
    run_cases(CASES, ARRAY_LEN(CASES));
}

TEST(update_arithmetic_widens_and_creates) {
    static const Case CASES[] = {
        {"{'$inc': {'n': 1}}", "{'n': 1}", "{'n': 2}", 0, 0, 0},
        {"{'$inc': {'n': 1}}", "{}", "{'n': 1}", 0, 0, 0},
        {"{'$inc': {'n': 0}}", "{'n': 1}", NULL, 0, 0, 0},
        {"{'$inc': {'n': 1}}", "{'n': 2147483647}", "{'n': {'$numberLong': '2147483648'}}", 0, 0,
         0},
        {"{'$inc': {'n': {'$numberLong': '1'}}}", "{'n': 1}", "{'n': {'$numberLong': '2'}}", 0, 0,
         0},
        {"{'$inc': {'n': 1.5}}", "{'n': 1}", "{'n': 2.5}", 0, 0, 0},
        {"{'$inc': {'n': 1}}", "{'n': 1.5}", "{'n': 2.5}", 0, 0, 0},
        {"{'$inc': {'n': {'$numberDecimal': '1'}}}", "{'n': 1}", "{'n': {'$numberDecimal': '2'}}",
         0, 0, 0},
        {"{'$inc': {'a.b': 3}}", "{'a': {'b': 1}}", "{'a': {'b': 4}}", 0, 0, 0},
        {"{'$inc': {'a.0': 3}}", "{'a': [1]}", "{'a': [4]}", 0, 0, 0},
        {"{'$mul': {'n': 3}}", "{'n': 2}", "{'n': 6}", 0, 0, 0},
        {"{'$mul': {'n': 3}}", "{}", "{'n': 0}", 0, 0, 0},
        {"{'$mul': {'n': {'$numberLong': '3'}}}", "{}", "{'n': {'$numberLong': '0'}}", 0, 0, 0},
        {"{'$mul': {'n': 2.5}}", "{}", "{'n': 0.0}", 0, 0, 0},
        {"{'$mul': {'n': 2}}", "{'n': 2147483647}", "{'n': {'$numberLong': '4294967294'}}", 0, 0,
         0},
        {"{'$mul': {'n': 1}}", "{'n': 7}", NULL, 0, 0, 0},
        {"{'$min': {'n': 3}}", "{'n': 5}", "{'n': 3}", 0, 0, 0},
        {"{'$min': {'n': 7}}", "{'n': 5}", NULL, 0, 0, 0},
        {"{'$min': {'n': 7}}", "{}", "{'n': 7}", 0, 0, 0},
        {"{'$min': {'n': null}}", "{'n': 5}", "{'n': null}", 0, 0, 0},
        {"{'$min': {'n': 5.0}}", "{'n': 5}", NULL, 0, 0, 0},
        {"{'$max': {'n': 7}}", "{'n': 5}", "{'n': 7}", 0, 0, 0},
        {"{'$max': {'n': 'x'}}", "{'n': 5}", "{'n': 'x'}", 0, 0, 0},
        {"{'$max': {'n': 1}}", "{'n': 5}", NULL, 0, 0, 0},
        {"{'$bit': {'n': {'and': 6}}}", "{'n': 13}", "{'n': 4}", 0, 0, 0},
        {"{'$bit': {'n': {'or': 2}}}", "{'n': 1}", "{'n': 3}", 0, 0, 0},
        {"{'$bit': {'n': {'xor': 3}}}", "{'n': 1}", "{'n': 2}", 0, 0, 0},
        {"{'$bit': {'n': {'or': 5, 'xor': 1}}}", "{}", "{'n': 4}", 0, 0, 0},
        {"{'$bit': {'n': {'or': {'$numberLong': '2'}}}}", "{'n': 1}", "{'n': {'$numberLong': '3'}}",
         0, 0, 0},
        {"{'$currentDate': {'d': true}}", "{}", "{'d': {'$date': {'$numberLong': '1234'}}}", 0, 0,
         0},
        {"{'$currentDate': {'d': {'%type': 'date'}}}", "{'d': 1}",
         "{'d': {'$date': {'$numberLong': '1234'}}}", 0, 0, 0},
        {"{'$currentDate': {'d': {'%type': 'timestamp'}}}", "{}",
         "{'d': {'$timestamp': {'t': 77, 'i': 3}}}", 0, 0, 0},
    };
    run_cases(CASES, ARRAY_LEN(CASES));
}

TEST(update_push_inserts_sorts_and_slices) {
    static const Case CASES[] = {
        {"{'$push': {'a': 1}}", "{}", "{'a': [1]}", 0, 0, 0},
        {"{'$push': {'a': 3}}", "{'a': [1, 2]}", "{'a': [1, 2, 3]}", 0, 0, 0},
        {"{'$push': {'a': {'b': 1}}}", "{'a': []}", "{'a': [{'b': 1}]}", 0, 0, 0},
        {"{'$push': {'a': [1]}}", "{'a': [0]}", "{'a': [0, [1]]}", 0, 0, 0},
        {"{'$push': {'a.b': 1}}", "{'a': {'b': [0]}}", "{'a': {'b': [0, 1]}}", 0, 0, 0},
        {"{'$push': {'a.0': 1}}", "{'a': [[0]]}", "{'a': [[0, 1]]}", 0, 0, 0},
        {"{'$push': {'a': {'$each': [3, 4]}}}", "{'a': [1]}", "{'a': [1, 3, 4]}", 0, 0, 0},
        {"{'$push': {'a': {'$each': []}}}", "{'a': [1]}", NULL, 0, 0, 0},
        {"{'$push': {'a': {'$each': []}}}", "{}", "{'a': []}", 0, 0, 0},
        {"{'$push': {'a': {'$each': [9], '$position': 0}}}", "{'a': [1, 2]}", "{'a': [9, 1, 2]}", 0,
         0, 0},
        {"{'$push': {'a': {'$each': [8, 9], '$position': 1}}}", "{'a': [1, 2]}",
         "{'a': [1, 8, 9, 2]}", 0, 0, 0},
        {"{'$push': {'a': {'$each': [9], '$position': 99}}}", "{'a': [1, 2]}", "{'a': [1, 2, 9]}",
         0, 0, 0},
        {"{'$push': {'a': {'$each': [9], '$position': -1}}}", "{'a': [1, 2]}", "{'a': [1, 9, 2]}",
         0, 0, 0},
        {"{'$push': {'a': {'$each': [9], '$position': -99}}}", "{'a': [1, 2]}", "{'a': [9, 1, 2]}",
         0, 0, 0},
        {"{'$push': {'a': {'$each': [3, 4], '$slice': 3}}}", "{'a': [1, 2]}", "{'a': [1, 2, 3]}", 0,
         0, 0},
        {"{'$push': {'a': {'$each': [3, 4], '$slice': -3}}}", "{'a': [1, 2]}", "{'a': [2, 3, 4]}",
         0, 0, 0},
        {"{'$push': {'a': {'$each': [3], '$slice': 0}}}", "{'a': [1, 2]}", "{'a': []}", 0, 0, 0},
        {"{'$push': {'a': {'$each': [], '$slice': -9}}}", "{'a': [1, 2]}", NULL, 0, 0, 0},
        {"{'$push': {'a': {'$each': [2], '$sort': 1}}}", "{'a': [3, 1]}", "{'a': [1, 2, 3]}", 0, 0,
         0},
        {"{'$push': {'a': {'$each': [2], '$sort': -1}}}", "{'a': [3, 1]}", "{'a': [3, 2, 1]}", 0, 0,
         0},
        {"{'$push': {'a': {'$each': ['x', null], '$sort': 1}}}", "{'a': [3, [1]]}",
         "{'a': [null, 3, 'x', [1]]}", 0, 0, 0},
        {"{'$push': {'a': {'$each': [{'b': 2, 'c': 1}], '$sort': {'b': 1}}}}",
         "{'a': [{'b': 3}, {'b': 2, 'c': 9}, 5]}",
         "{'a': [5, {'b': 2, 'c': 9}, {'b': 2, 'c': 1}, {'b': 3}]}", 0, 0, 0},
        {"{'$push': {'a': {'$each': [{'b': {'c': 1}}], '$sort': {'b.c': -1, 'd': 1}}}}",
         "{'a': [{'b': {'c': 0}}, {'b': {'c': 5}}]}",
         "{'a': [{'b': {'c': 5}}, {'b': {'c': 1}}, {'b': {'c': 0}}]}", 0, 0, 0},
        {"{'$push': {'a': {'$each': [5, 4], '$sort': 1, '$slice': 2, '$position': 0}}}",
         "{'a': [9, 1]}", "{'a': [1, 4]}", 0, 0, 0},
        {"{'$push': {'a': {'x': 1, 'y': 2}}}", "{'a': []}", "{'a': [{'x': 1, 'y': 2}]}", 0, 0, 0},
        {"{'$push': {'a': 1}}", "{'a': [0,1,2,3,4,5,6,7,8,9]}", "{'a': [0,1,2,3,4,5,6,7,8,9,1]}", 0,
         0, 0},
    };
    run_cases(CASES, ARRAY_LEN(CASES));
}

TEST(update_sets_pulls_and_pops) {
    static const Case CASES[] = {
        {"{'$addToSet': {'a': 3}}", "{'a': [1, 2]}", "{'a': [1, 2, 3]}", 0, 0, 0},
        {"{'$addToSet': {'a': 2.0}}", "{'a': [1, 2]}", NULL, 0, 0, 0},
        {"{'$addToSet': {'a': 1}}", "{}", "{'a': [1]}", 0, 0, 0},
        {"{'$addToSet': {'a': {'b': 1}}}", "{'a': [{'b': 1}]}", NULL, 0, 0, 0},
        {"{'$addToSet': {'a': [1, 2]}}", "{'a': [1, 2]}", "{'a': [1, 2, [1, 2]]}", 0, 0, 0},
        {"{'$addToSet': {'a': {'$each': [2, 3, 3, 4]}}}", "{'a': [1, 2]}", "{'a': [1, 2, 3, 4]}", 0,
         0, 0},
        {"{'$addToSet': {'a': {'$each': []}}}", "{'a': [1, 2]}", NULL, 0, 0, 0},
        {"{'$addToSet': {'a': {'$each': []}}}", "{}", "{'a': []}", 0, 0, 0},
        {"{'$addToSet': {'a': 3}}", "{'a': [1, 1]}", "{'a': [1, 1, 3]}", 0, 0, 0},
        {"{'$addToSet': {'a': {'$each': [1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,1,2]}}}",
         "{'a': [18, 17]}", "{'a': [18,17,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16]}", 0, 0, 0},
        {"{'$pop': {'a': 1}}", "{'a': [1, 2, 3]}", "{'a': [1, 2]}", 0, 0, 0},
        {"{'$pop': {'a': -1}}", "{'a': [1, 2, 3]}", "{'a': [2, 3]}", 0, 0, 0},
        {"{'$pop': {'a': 1.0}}", "{'a': [1]}", "{'a': []}", 0, 0, 0},
        {"{'$pop': {'a': 1}}", "{'a': []}", NULL, 0, 0, 0},
        {"{'$pop': {'a': 1}}", "{}", NULL, 0, 0, 0},
        {"{'$pull': {'a': 2}}", "{'a': [1, 2, 3, 2.0]}", "{'a': [1, 3]}", 0, 0, 0},
        {"{'$pull': {'a': 9}}", "{'a': [1]}", NULL, 0, 0, 0},
        {"{'$pull': {'a': 9}}", "{}", NULL, 0, 0, 0},
        {"{'$pull': {'a': {'$gt': 2}}}", "{'a': [1, 2, 3, 'x', 4]}", "{'a': [1, 2, 'x']}", 0, 0, 0},
        {"{'$pull': {'a': {'$in': [1, 'x']}}}", "{'a': [1, 2, 'x']}", "{'a': [2]}", 0, 0, 0},
        {"{'$pull': {'a': {'b': 1}}}", "{'a': [{'b': 1, 'c': 2}, {'b': 2}, 1]}",
         "{'a': [{'b': 2}, 1]}", 0, 0, 0},
        {"{'$pull': {'a': {'b': {'$gte': 2}, 'c': 3}}}",
         "{'a': [{'b': 2, 'c': 3}, {'b': 2}, {'b': 1, 'c': 3}]}",
         "{'a': [{'b': 2}, {'b': 1, 'c': 3}]}", 0, 0, 0},
        {"{'$pull': {'a': {'$or': [{'b': 1}, {'c': 2}]}}}", "{'a': [{'b': 1}, {'c': 2}, {'d': 1}]}",
         "{'a': [{'d': 1}]}", 0, 0, 0},
        {"{'$pull': {'a': {'$regularExpression': {'pattern': '^x', 'options': ''}}}}",
         "{'a': ['xa', 'ax', 1]}", "{'a': ['ax', 1]}", 0, 0, 0},
        {"{'$pull': {'a': [1]}}", "{'a': [[1], 1]}", "{'a': [1]}", 0, 0, 0},
        {"{'$pull': {'a': null}}", "{'a': [null, 1]}", "{'a': [1]}", 0, 0, 0},
        {"{'$pull': {'a': {'$elemMatch': {'q': 2}}}}", "{'a': [[{'q': 2}], [{'q': 3}], 1]}",
         "{'a': [[{'q': 3}], 1]}", 0, 0, 0},
        {"{'$pull': {'a': {}}}", "{'a': [{'b': 1}, 1]}", "{'a': [1]}", 0, 0, 0},
        {"{'$pullAll': {'a': [1, 3]}}", "{'a': [1, 2, 3, 1]}", "{'a': [2]}", 0, 0, 0},
        {"{'$pullAll': {'a': [9]}}", "{'a': [1]}", NULL, 0, 0, 0},
        {"{'$pullAll': {'a': [{'b': 1}]}}", "{'a': [{'b': 1}, {'b': 1, 'c': 1}]}",
         "{'a': [{'b': 1, 'c': 1}]}", 0, 0, 0},
        {"{'$pullAll': {'a': []}}", "{}", NULL, 0, 0, 0},
    };
    run_cases(CASES, ARRAY_LEN(CASES));
}

TEST(update_rename_moves_values) {
    static const Case CASES[] = {
        {"{'$rename': {'a': 'b'}}", "{'_id': 1, 'a': 5, 'c': 6}", "{'_id': 1, 'c': 6, 'b': 5}", 0,
         0, 0},
        {"{'$rename': {'a': 'b'}}", "{'_id': 1, 'a': 5, 'b': 6}", "{'_id': 1, 'b': 5}", 0, 0, 0},
        {"{'$rename': {'x': 'b'}}", "{'_id': 1, 'b': 6}", NULL, 0, 0, 0},
        {"{'$rename': {'a.b': 'c.d'}}", "{'a': {'b': 5}}", "{'a': {}, 'c': {'d': 5}}", 0, 0, 0},
        {"{'$rename': {'a': 'c.d'}}", "{'a': {'b': 5}}", "{'c': {'d': {'b': 5}}}", 0, 0, 0},
        {"{'$rename': {'x': 'a.b'}}", "{'a': 1}", NULL, 0, 0, 0},
        {"{'$rename': {'x': 'q.w.e'}}", "{'a': 1}", NULL, 0, 0, 0},
        {"{'$rename': {'a': 'b'}, '$set': {'c': 1}}", "{'a': 1}", "{'b': 1, 'c': 1}", 0, 0, 0},
    };
    run_cases(CASES, ARRAY_LEN(CASES));
}

TEST(update_positional_operators_choose_elements) {
    static const Case CASES[] = {
        {"{'$set': {'a.$': 9}}", "{'a': [1, 2, 3]}", "{'a': [1, 9, 3]}", 0, 2, 0},
        {"{'$set': {'a.$.b': 9}}", "{'a': [{'b': 1}, {'b': 2}]}", "{'a': [{'b': 1}, {'b': 9}]}", 0,
         2, 0},
        {"{'$inc': {'a.$.b': 1}, '$set': {'a.$.c': 2}}", "{'a': [{'b': 1}]}",
         "{'a': [{'b': 2, 'c': 2}]}", 0, 1, 0},
        {"{'$set': {'a.$.b': 1, 'a.0.c': 2}}", "{'a': [{}]}", "{'a': [{'b': 1, 'c': 2}]}", 0, 1, 0},
        {"{'$set': {'a.$': 1, 'a.1': 2}}", "{'a': [0, 0]}", "{'a': [1, 2]}", 0, 1, 0},
        {"{'$unset': {'a.$': 1}}", "{'a': [1, 2]}", "{'a': [null, 2]}", 0, 1, 0},
        {"{'$set': {'a.$[]': 0}}", "{'a': [1, 2]}", "{'a': [0, 0]}", 0, 0, 0},
        {"{'$inc': {'a.$[]': 1}}", "{'a': [1, 2]}", "{'a': [2, 3]}", 0, 0, 0},
        {"{'$set': {'a.$[]': 0}}", "{'a': []}", NULL, 0, 0, 0},
        {"{'$set': {'a.$[].b': 0}}", "{'a': [{'b': 1}, {}]}", "{'a': [{'b': 0}, {'b': 0}]}", 0, 0,
         0},
        {"{'$set': {'a.$[].b.$[]': 0}}", "{'a': [{'b': [1]}, {'b': [2, 3]}]}",
         "{'a': [{'b': [0]}, {'b': [0, 0]}]}", 0, 0, 0},
        {"{'$set': {'a.$[i]': 0}}", "{'a': [1, 5, 9]}", "{'a': [1, 0, 0]}",
         "{'f': [{'i': {'$gt': 3}}]}", 0, 0},
        {"{'$set': {'a.$[i].b': 0}}", "{'a': [{'x': 1}, {'x': 2}]}",
         "{'a': [{'x': 1}, {'x': 2, 'b': 0}]}", "{'f': [{'i.x': 2}]}", 0, 0},
        {"{'$set': {'a.$[i]': 0}}", "{'a': [1]}", NULL, "{'f': [{'i': 7}]}", 0, 0},
        {"{'$inc': {'a.$[i]': 10, 'b.$[j]': 20}}", "{'a': [1, 2], 'b': [1, 2]}",
         "{'a': [11, 2], 'b': [1, 22]}", "{'f': [{'i': 1}, {'j': 2}]}", 0, 0},
        {"{'$set': {'a.$[i].$[j]': 0}}", "{'a': [[1, 2], [3, 4], 5]}", NULL,
         "{'f': [{'i': 77}, {'j': 2}]}", 0, 0},
        {"{'$set': {'a.$[i].x': 1, 'a.$[j].y': 2}}", "{'a': [{'v': 1}, {'v': 2}]}",
         "{'a': [{'v': 1, 'x': 1, 'y': 2}, {'v': 2, 'y': 2}]}",
         "{'f': [{'i.v': 1}, {'j.v': {'$gt': 0}}]}", 0, 0},
        {"{'$set': {'a.$[i]': 0}}", "{'a': [1, 5, 9]}", "{'a': [0, 5, 0]}",
         "{'f': [{'$or': [{'i': 1}, {'i': {'$gt': 6}}]}]}", 0, 0},
        {"{'$unset': {'a.$[]': 1}}", "{'a': [1, 2]}", "{'a': [null, null]}", 0, 0, 0},
        {"{'$push': {'a.$[].b': 1}}", "{'a': [{}, {'b': [0]}]}",
         "{'a': [{'b': [1]}, {'b': [0, 1]}]}", 0, 0, 0},
        {"{'$set': {'a.$[].b': 1, 'a.$[].c': 2, 'a.0.d': 3}}", "{'a': [{}, {}]}",
         "{'a': [{'b': 1, 'c': 2, 'd': 3}, {'b': 1, 'c': 2}]}", 0, 0, 0},
    };
    run_cases(CASES, ARRAY_LEN(CASES));
}

TEST(update_positional_operators_meet_in_one_element) {
    static const Case CASES[] = {
        {"{'$set': {'a.$[i].x': 1, 'a.$[j].y': 2, 'a.$[].z': 3, 'a.1.w': 4}}",
         "{'a': [{'v': 1}, {'v': 1}, {'v': 2}, {'v': 1}, {}]}",
         "{'a': [{'v': 1, 'x': 1, 'y': 2, 'z': 3}, {'v': 1, 'w': 4, 'x': 1, 'y': 2, 'z': 3}, {'v': "
         "2, 'y': 2, 'z': 3}, {'v': 1, 'x': 1, 'y': 2, 'z': 3}, {'z': 3}]}",
         "{'f': [{'i.v': 1}, {'j.v': {'$gt': 0}}]}", 0, 0},
        {"{'$set': {'a.$[lowAndHigh2]': 0}}", "{'a': [1, 5]}", "{'a': [1, 0]}",
         "{'f': [{'lowAndHigh2': {'$gt': 1, '$lt': 9}}]}", 0, 0},
        {"{'$set': {'a.$': 9}}", "{'a': {'1': 5, 'x': 1}}", "{'a': {'1': 9, 'x': 1}}", 0, 2, 0},
        {"{'$set': {'a.$': 9}}", "{}", "{'a': {'1': 9}}", 0, 2, 0},
        {"{'$set': {'a.$[].b.$': 9}}", "{'a': [{'b': [1, 2]}, {'b': [3, 4]}]}",
         "{'a': [{'b': [1, 9]}, {'b': [3, 9]}]}", 0, 2, 0},
        {"{'$set': {'a.$.b': 9}}", "{'a': [{}]}", "{'a': [{}, null, {'b': 9}]}", 0, 3, 0},
    };
    run_cases(CASES, ARRAY_LEN(CASES));
}

TEST(update_of_wide_documents_and_long_lists) {
    static const Case CASES[] = {
        {"{'$pullAll': {'a': [1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18]}}",
         "{'a': [0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19]}", "{'a': [0, 19]}", 0, 0, 0},
        {"{'$rename': {'a': 'A', 'b': 'B', 'c': 'C', 'd': 'D', 'e': 'E'}}",
         "{'a': 1, 'b': 2, 'c': 3, 'd': 4, 'e': 5}", "{'A': 1, 'B': 2, 'C': 3, 'D': 4, 'E': 5}", 0,
         0, 0},
        {"{'$set': {'a': 'other', 'z': 1}}", "{'a': 1, 'a': 2}", "{'a': 'other', 'a': 2, 'z': 1}",
         0, 0, 0},
    };
    run_cases(CASES, ARRAY_LEN(CASES));

    /* 200 fields set in a document that has every second of them. */
    Arena arena;
    arena_init(&arena, 0);
    CLEANUP(error_reset) Error err = {0};
    char *update = arena_strdup(&arena, "{'$set': {'f000': 1");
    char *before = arena_strdup(&arena, "{'f000': 0");
    char *after = arena_strdup(&arena, "{'f000': 1");
    char *added = arena_strdup(&arena, "");
    for (int i = 1; i < 200; i++) {
        update = arena_printf(&arena, "%s, 'f%03d': 1", update, i);
        if (i % 2 == 0) {
            before = arena_printf(&arena, "%s, 'f%03d': 0", before, i);
            after = arena_printf(&arena, "%s, 'f%03d': 1", after, i);
        } else {
            added = arena_printf(&arena, "%s, 'f%03d': 1", added, i);
        }
    }
    update = arena_printf(&arena, "%s}}", update);
    before = arena_printf(&arena, "%s}", before);
    after = arena_printf(&arena, "%s%s}", after, added);
    Case wide = {update, before, after, NULL, 0, false};
    run_cases(&wide, 1);
    arena_done(&arena);
}

static ErrCode fake_pipeline_apply(const UpdatePipeline *pipeline, Doc before,
                                   const UpdateApplyContext *ctx, Arena *arena, Doc *ret_after,
                                   Error *err) {
    (void)pipeline, (void)ctx, (void)arena, (void)err;
    *ret_after = before;
    return ERR_OK;
}

static ErrCode fake_pipeline_parse(const UpdatePipelineHook *hook, Doc stages, Arena *arena,
                                   UpdatePipeline **ret_pipeline, Error *err) {
    (void)hook, (void)stages, (void)err;
    *ret_pipeline = ARENA_NEW(arena, UpdatePipeline);
    (*ret_pipeline)->apply = fake_pipeline_apply;
    return ERR_OK;
}

TEST(update_pipelines_go_through_the_hook) {
    Arena arena;
    arena_init(&arena, 0);
    CLEANUP(error_reset) Error err = {0};
    UpdatePipelineHook hook = {fake_pipeline_parse};
    UpdateParseContext ctx = {.match = &PLAIN, .pipeline_hook = &hook};
    UpdateProgram *program = NULL;
    EXPECT_OK(
        update_parse(test_query_elem("[{'$set': {'a': 1}}]", &arena), &ctx, &arena, &program, &err),
        err);
    UpdateApplyContext apply_ctx = {.positional_index = -1};
    UpdateResult result = {0};
    EXPECT_OK(update_apply(program, DOC_EMPTY, &apply_ctx, &arena, &result, &err), err);
    EXPECT(result.is_noop);
    EXPECT(!update_is_replacement(program));
    EXPECT(!update_needs_positional(program));
    EXPECT(update_touches_path(program, STR("anything")));
    EXPECT_EQ_I64(update_parse(test_query_elem("5", &arena), &ctx, &arena, &program, &err),
                  ERR_FAILED_TO_PARSE);
    arena_done(&arena);
}

TEST(update_replacement_keeps_the_id) {
    static const Case CASES[] = {
        {"{'a': 2}", "{'_id': 1, 'a': 1, 'b': 3}", "{'_id': 1, 'a': 2}", 0, 0, 0},
        {"{}", "{'_id': 1, 'a': 1}", "{'_id': 1}", 0, 0, 0},
        {"{'a': 2, '_id': 1}", "{'_id': 1, 'a': 1}", "{'_id': 1, 'a': 2}", 0, 0, 0},
        {"{'_id': 1.0, 'a': 2}", "{'_id': 1, 'a': 1}", "{'_id': 1, 'a': 2}", 0, 0, 0},
        {"{'a': 1}", "{'_id': 1, 'a': 1}", NULL, 0, 0, 0},
        {"{'a': {'$x': 1}}", "{'_id': 1}", "{'_id': 1, 'a': {'$x': 1}}", 0, 0, 0},
        {"{'a': {'$timestamp': {'t': 0, 'i': 0}}}", "{'_id': 1}",
         "{'_id': 1, 'a': {'$timestamp': {'t': 77, 'i': 3}}}", 0, 0, 0},
        {"{'a': 1, '_id': 9}", "{}", "{'_id': 9, 'a': 1}", 0, 0, 1},
    };
    run_cases(CASES, ARRAY_LEN(CASES));
}

TEST(update_of_an_upsert_applies_set_on_insert_and_puts_id_first) {
    static const Case CASES[] = {
        {"{'$setOnInsert': {'a': 1}}", "{'_id': 1}", NULL, 0, 0, 0},
        {"{'$setOnInsert': {'a': 1}}", "{'_id': 1}", "{'_id': 1, 'a': 1}", 0, 0, 1},
        {"{'$setOnInsert': {'a.b': 1}}", "{'a': 5}", NULL, 0, 0, 0},
        {"{'$set': {'b': 1}, '$setOnInsert': {'_id': 7}}", "{'a': 2}", "{'_id': 7, 'a': 2, 'b': 1}",
         0, 0, 1},
        {"{'$set': {'b': 1}}", "{'a': 2}", "{'a': 2, 'b': 1}", 0, 0, 1},
    };
    run_cases(CASES, ARRAY_LEN(CASES));
}

TEST(update_refuses_with_the_codes_of_the_protocol) {
    static const ErrorCase CASES[] = {
        {"{'$foo': {'a': 1}}", "{}", 9,
         "Unknown modifier: $foo. Expected a valid update modifier or pipeline-style update "
         "specified as an array",
         0, 0},
        {"{'$set': {'a': 1}, 'b': 1}", "{}", 9, "Unknown modifier: b", 0, 0},
        {"{'$set': {'a': 1}, '': {}}", "{}", 9, "Unknown modifier: .", 0, 0},
        {"{'$set': 1}", "{}", 9,
         "Modifiers operate on fields but we found type int instead. For example: {$mod: {<field>: "
         "...}} not {$set: 1}",
         0, 0},
        {"{'$set': {'': 1}}", "{}", 56, "An empty update path is not valid.", 0, 0},
        {"{'$set': {'a..b': 1}}", "{}", 56,
         "The update path 'a..b' contains an empty field name, which is not allowed.", 0, 0},
        {"{'$set': {'a.': 1}}", "{}", 56, "contains an empty field name", 0, 0},
        {"{'$set': {'a': 1}, '$inc': {'a': 1}}", "{}", 40,
         "Updating the path 'a' would create a conflict at 'a'", 0, 0},
        {"{'$set': {'a.b': 1, 'a': 1}}", "{}", 40,
         "Updating the path 'a' would create a conflict at 'a'", 0, 0},
        {"{'$set': {'a': 1, 'a.b': 1}}", "{}", 40,
         "Updating the path 'a.b' would create a conflict at 'a'", 0, 0},
        {"{'$set': {'a.b.c': 1}, '$unset': {'a.b': 1}}", "{}", 40,
         "Updating the path 'a.b' would create a conflict at 'a.b'", 0, 0},
        {"{'$rename': {'a': 'b'}, '$set': {'b': 1}}", "{}", 40, "conflict at 'b'", 0, 0},
        {"{'$set': {'a.$[]': 1, 'a.0': 2}}", "{'a': [1]}", 40, "Update created a conflict at 'a.0'",
         0, 0},
        {"{'$set': {'a.$': 1, 'a.0': 2}}", "{'a': [1]}", 40, "Update created a conflict at 'a.0'",
         0, 1},
        {"{'$set': {'$a': 1}}", "{}", 52, "starts with a dollar sign", 0, 0},
        {"{'a': 1, '$set': {'b': 1}}", "{}", 52, "The dollar ($) prefixed field '$set' in '$set'",
         0, 0},
        {"{'$set': {'_id': 2}}", "{'_id': 1}", 66,
         "Performing an update on the path '_id' would modify the immutable field '_id'", 0, 0},
        {"{'$unset': {'_id': 1}}", "{'_id': 1}", 66, "immutable field '_id'", 0, 0},
        {"{'$inc': {'_id': 1}}", "{'_id': 1}", 66, "immutable field '_id'", 0, 0},
        {"{'$rename': {'_id': 'x'}}", "{'_id': 1}", 66, "immutable field '_id'", 0, 0},
        {"{'$set': {'_id.a': 2}}", "{'_id': {'a': 1}}", 66,
         "Performing an update on the path '_id.a' would modify the immutable field '_id'", 0, 0},
        {"{'_id': 2, 'a': 1}", "{'_id': 1}", 66,
         "After applying the update, the (immutable) field '_id' was found to have been altered to "
         "_id: 2",
         0, 0},
        {"{'$set': {'_id': [1]}}", "{}", 53, "The '_id' value cannot be of type array", 0, 0},
        {"{'$set': {'_id': {'$x': 1}}}", "{}", 52, "'_id.$x'", 0, 0},
        {"{'$set': {'a.b': 1}}", "{'_id': 1, 'a': 1}", 28,
         "Cannot create field 'b' in element {a: 1}", 0, 0},
        {"{'$set': {'a.b': 1}}", "{'_id': 1, 'a': null}", 28,
         "Cannot create field 'b' in element {a: null}", 0, 0},
        {"{'$set': {'a.b': 1}}", "{'_id': 1, 'a': [1, 2]}", 28,
         "Cannot create field 'b' in element {a: [ 1, 2 ]}", 0, 0},
        {"{'$inc': {'a.b.c': 1}}", "{'_id': 1, 'a': {'b': 'x'}}", 28,
         "Cannot create field 'c' in element {b: \"x\"}", 0, 0},
        {"{'$set': {'_id.a': 1}}", "{'_id': 1}", 28, "Cannot create field 'a' in element {_id: 1}",
         0, 0},
        {"{'$set': {'a.1500002': 1}}", "{'a': [1]}", 51, "can't backfill", 0, 0},
        {"{'$inc': {'a': 'x'}}", "{}", 14, "Cannot increment with non-numeric argument: {a: \"x\"}",
         0, 0},
        {"{'$mul': {'a': 'x'}}", "{}", 14, "Cannot multiply with non-numeric argument: {a: \"x\"}",
         0, 0},
        {"{'$inc': {'a': 1}}", "{'_id': 1, 'a': 'x'}", 14,
         "Cannot apply $inc to a value of non-numeric type. {_id: 1} has the field 'a' of "
         "non-numeric type string",
         0, 0},
        {"{'$inc': {'a': 1}}", "{'_id': 1, 'a': null}", 14, "of non-numeric type null", 0, 0},
        {"{'$mul': {'a': 1}}", "{'_id': 1, 'a': []}", 14, "Cannot apply $mul", 0, 0},
        {"{'$inc': {'a': 1}}", "{'_id': 1, 'a': {'$numberLong': '9223372036854775807'}}", 2,
         "Failed to apply $inc operations to current value ((NumberLong)9223372036854775807) for "
         "document {_id: 1}",
         0, 0},
        {"{'$mul': {'a': 2}}", "{'_id': 1, 'a': {'$numberLong': '9223372036854775807'}}", 2,
         "Failed to apply $mul operations", 0, 0},
        {"{'$push': {'a': 1}}", "{'_id': 1, 'a': 1}", 2,
         "The field 'a' must be an array but is of type int in document {_id: 1}", 0, 0},
        {"{'$push': {'a.b': 1}}", "{'_id': 1, 'a': {'b': 'x'}}", 2,
         "The field 'a.b' must be an array but is of type string in document {_id: 1}", 0, 0},
        {"{'$push': {'a': {'$each': 1}}}", "{}", 2,
         "The argument to $each in $push must be an array but it was of type: int", 0, 0},
        {"{'$push': {'a': {'$each': [], '$foo': 1}}}", "{}", 2,
         "Unrecognized clause in $push: $foo", 0, 0},
        {"{'$push': {'a': {'$each': [], '$slice': 'x'}}}", "{}", 2,
         "The value for $slice must be an integer value but was given type: string", 0, 0},
        {"{'$push': {'a': {'$each': [], '$slice': 1.5}}}", "{}", 2, "The value for $slice", 0, 0},
        {"{'$push': {'a': {'$each': [], '$position': 'x'}}}", "{}", 2,
         "The value for $position must be an integer value, not of type: string", 0, 0},
        {"{'$push': {'a': {'$each': [], '$sort': 2}}}", "{}", 2, "The $sort is invalid", 0, 0},
        {"{'$push': {'a': {'$each': [], '$sort': {}}}}", "{}", 2, "The $sort pattern is empty", 0,
         0},
        {"{'$push': {'a': {'$each': [], '$sort': {'a..b': 1}}}}", "{}", 2, "empty part", 0, 0},
        {"{'$addToSet': {'a': 1}}", "{'a': 1}", 2,
         "Cannot apply $addToSet to non-array field. Field named 'a' has non-array type int", 0, 0},
        {"{'$addToSet': {'a': {'$each': 1}}}", "{}", 14, "The argument to $each in $addToSet", 0,
         0},
        {"{'$addToSet': {'a': {'$each': [], 'b': 1}}}", "{}", 2,
         "Found unexpected fields after $each in $addToSet", 0, 0},
        {"{'$pop': {'a': 'x'}}", "{}", 9, "Expected a number in: a: \"x\"", 0, 0},
        {"{'$pop': {'a': 2}}", "{}", 9, "$pop expects 1 or -1, found: 2", 0, 0},
        {"{'$pop': {'a': 1.5}}", "{}", 9, "Expected an integer: a: 1.5", 0, 0},
        {"{'$pop': {'a': 1}}", "{'a': 1}", 14,
         "Path 'a' contains an element of non-array type 'int'", 0, 0},
        {"{'$pull': {'a': 1}}", "{'a': 1}", 2, "Cannot apply $pull to a non-array value", 0, 0},
        {"{'$pull': {'a': {'$foo': 1}}}", "{}", 2, "unknown operator: $foo", 0, 0},
        {"{'$pullAll': {'a': 1}}", "{}", 2,
         "$pullAll requires an array argument but was given a int", 0, 0},
        {"{'$pullAll': {'a': []}}", "{'a': 1}", 2, "Cannot apply $pullAll to a non-array value", 0,
         0},
        {"{'$currentDate': {'a': 1}}", "{}", 2, "int is not valid type for $currentDate", 0, 0},
        {"{'$currentDate': {'a': {'%type': 'x'}}}", "{}", 2, "The '$type' string field is required",
         0, 0},
        {"{'$currentDate': {'a': {'foo': 'x'}}}", "{}", 2, "Unrecognized $currentDate option: foo",
         0, 0},
        {"{'$bit': {'a': 1}}", "{}", 2, "The $bit modifier is not compatible with a int", 0, 0},
        {"{'$bit': {'a': {}}}", "{}", 2, "You must pass in at least one bitwise operation", 0, 0},
        {"{'$bit': {'a': {'nand': 1}}}", "{}", 2, "The $bit modifier only supports", 0, 0},
        {"{'$bit': {'a': {'and': 1.5}}}", "{}", 2, "The $bit modifier field must be an Integer", 0,
         0},
        {"{'$bit': {'a': {'and': 1}}}", "{'_id': 1, 'a': 1.5}", 2,
         "Cannot apply $bit to a value of non-integral type.{_id: 1} has the field a of "
         "non-integer "
         "type double",
         0, 0},
        {"{'$rename': {'a': 1}}", "{}", 2, "The 'to' field for $rename must be a string: a: 1", 0,
         0},
        {"{'$rename': {'a': 'a'}}", "{}", 2, "The source and target field for $rename must differ",
         0, 0},
        {"{'$rename': {'a': 'a.b'}}", "{}", 2, "must not be on the same path", 0, 0},
        {"{'$rename': {'a.b': 'a'}}", "{}", 2, "must not be on the same path", 0, 0},
        {"{'$rename': {'a': ''}}", "{}", 56, "An empty update path is not valid.", 0, 0},
        {"{'$rename': {'a.$': 'b'}}", "{}", 2, "may not be dynamic", 0, 0},
        {"{'$rename': {'a': 'b.$[]'}}", "{}", 2, "may not be dynamic", 0, 0},
        {"{'$rename': {'a.0': 'b'}}", "{'_id': 1, 'a': [1]}", 2,
         "The source field cannot be an array element, 'a.0' in doc with _id: 1 has an array field "
         "called 'a'",
         0, 0},
        {"{'$rename': {'x': 'a.0'}}", "{'_id': 1, 'a': [1], 'x': 1}", 2,
         "The destination field cannot be an array element", 0, 0},
        {"{'$pop': {'a.b': 1}}", "{'a': 5}", 28, "cannot lead to 'b'", 0, 0},
        {"{'$pull': {'a.b': 1}}", "{'a': [{'b': [1]}]}", 28, "cannot lead to 'b'", 0, 0},
        {"{'$pullAll': {'a.b.c': [1]}}", "{'a': null}", 28, "cannot lead to 'b'", 0, 0},
        {"{'$rename': {'a.b': 'c'}}", "{'a': 5}", 28, "cannot lead to 'b'", 0, 0},
        {"{'$rename': {'x': 'a.b'}}", "{'_id': 1, 'a': 1, 'x': 1}", 28, "Cannot create field 'b'",
         0, 0},
        {"{'$set': {'a.$': 1}}", "{'a': [1]}", 2,
         "The positional operator did not find the match needed from the query.", 0, 0},
        {"{'$set': {'$': 1}}", "{}", 2, "Cannot have positional (i.e. '$') element in the first", 0,
         0},
        {"{'$set': {'a.$.b.$': 1}}", "{}", 2, "Too many positional (i.e. '$') elements found", 0,
         0},
        {"{'$set': {'$[]': 1}}", "{}", 2, "Cannot have array filter identifier", 0, 0},
        {"{'$set': {'a.$[i]': 1}}", "{}", 2,
         "No array filter found for identifier 'i' in path 'a.$[i]'", 0, 0},
        {"{'$set': {'a.$[]': 1}}", "{'a': 1}", 2,
         "Cannot apply array updates to non-array element a: 1", 0, 0},
        {"{'$set': {'a.$[]': 1}}", "{}", 2,
         "The path 'a' must exist in the document in order to apply array updates.", 0, 0},
        {"{'$set': {'a': 1}}", "{}", 9,
         "The array filter for identifier 'i' was not used in the update", "{'f': [{'i': 1}]}", 0},
        {"{'$set': {'a.$[i]': 1}}", "{}", 9, "Found multiple array filters with the same top-level",
         "{'f': [{'i': 1}, {'i': 2}]}", 0},
        {"{'$set': {'a.$[I]': 1}}", "{}", 2, "beginning with a lowercase letter, found 'I'",
         "{'f': [{'I': 1}]}", 0},
        {"{'$set': {'a.$[i]': 1}}", "{}", 9,
         "Error parsing array filter :: caused by :: Expected a single top-level field name, found "
         "'i' and 'j'",
         "{'f': [{'i': 1, 'j': 1}]}", 0},
        {"{'$set': {'a.$[i]': 1}}", "{}", 9, "without a top-level field name", "{'f': [{}]}", 0},
        {"{'$set': {'a.$[i]': 1}}", "{}", 2,
         "Error parsing array filter :: caused by :: unknown operator: $foo",
         "{'f': [{'i': {'$foo': 1}}]}", 0},
        {"{'$set': {'a.$[i]': 1}}", "{}", 14, "arrayFilters", "{'f': [1]}", 0},
        {"{'a': 1}", "{}", 14, "arrayFilters", "{'f': [1]}", 0},
        {"[{'$set': {'a': 1}}]", "{}", 238, "pipeline-style updates are not supported", 0, 0},
    };
    run_error_cases(CASES, ARRAY_LEN(CASES));
}

TEST(update_replacement_cannot_be_multi) {
    Arena arena;
    arena_init(&arena, 0);
    CLEANUP(error_reset) Error err = {0};
    UpdateParseContext ctx = {.match = &PLAIN, .is_multi = true};
    UpdateProgram *program = NULL;
    EXPECT_EQ_I64(update_parse(test_query_elem("{'a': 1}", &arena), &ctx, &arena, &program, &err),
                  ERR_FAILED_TO_PARSE);
    arena_done(&arena);
}

TEST(update_refuses_results_that_are_too_large_or_too_deep) {
    Arena arena;
    arena_init(&arena, 0);
    CLEANUP(error_reset) Error err = {0};
    UpdateApplyContext ctx = {.positional_index = -1};
    UpdateResult result;

    /* Eight megabytes pushed twice onto themselves. */
    size_t size = 8 * 1024 * 1024;
    Buffer buf;
    buffer_init(&buf, BUFFER_UNBOUNDED);
    DocBuilder b;
    doc_builder_init(&b, &buf);
    char *text = malloc(size);
    memset(text, 'x', size);
    size_t set = build_open_doc(&b, "$push");
    build_str(&b, "a", (Str){text, size});
    build_close(&b, set);
    Doc update = doc_builder_end(&b);
    Buffer wrapped;
    buffer_init(&wrapped, BUFFER_UNBOUNDED);
    DocBuilder w;
    doc_builder_init(&w, &wrapped);
    build_doc(&w, "u", update);
    Doc holder = doc_builder_end(&w);
    UpdateParseContext parse_ctx = {.match = &PLAIN};
    UpdateProgram *program = NULL;
    EXPECT_OK(update_parse(doc_get_lit(holder, "u"), &parse_ctx, &arena, &program, &err), err);
    EXPECT_OK(update_apply(program, DOC_EMPTY, &ctx, &arena, &result, &err), err);
    EXPECT_EQ_I64(update_apply(program, result.after, &ctx, &arena, &result, &err),
                  ERR_UPDATED_DOCUMENT_TOO_LARGE);
    free(text);
    buffer_done(&buf);
    buffer_done(&wrapped);

    /* A path of 180 components makes the 180th level; one more is too deep. */
    char path[400] = "a";
    for (int i = 1; i < 180; i++)
        strcat(path, ".a");
    char *at_limit = arena_printf(&arena, "{'$set': {'%s': 1}}", path);
    EXPECT_OK(run_update(at_limit, NULL, DOC_EMPTY, &ctx, &arena, &result, &err), err);
    char *over = arena_printf(&arena, "{'$set': {'%s': {}}}", path);
    EXPECT_EQ_I64(run_update(over, NULL, DOC_EMPTY, &ctx, &arena, &result, &err), ERR_OVERFLOW);
    char *push = arena_printf(&arena, "{'$push': {'%s': 1}}", path);
    EXPECT_EQ_I64(run_update(push, NULL, DOC_EMPTY, &ctx, &arena, &result, &err), ERR_OVERFLOW);
    arena_done(&arena);
}

TEST(update_upsert_base_is_made_of_equalities) {
    static const struct {
        const char *query, *base;
        bool is_replacement;
        int code;
    } CASES[] = {
        {"{'b': 1, 'a': 2}", "{'a': 2, 'b': 1}", false, 0},
        {"{'b': 1, '_id': 2}", "{'_id': 2, 'b': 1}", false, 0},
        {"{'a': {'$eq': 1}}", "{'a': 1}", false, 0},
        {"{'a': {'$gt': 1}}", "{}", false, 0},
        {"{'a': {'$in': [1]}}", "{'a': 1}", false, 0},
        {"{'a': {'$in': [1, 2]}}", "{}", false, 0},
        {"{'a': {'$all': [1]}}", "{'a': 1}", false, 0},
        {"{'$and': [{'a': 1}, {'b': {'$eq': 2}}]}", "{'a': 1, 'b': 2}", false, 0},
        {"{'$or': [{'a': 1}]}", "{'a': 1}", false, 0},
        {"{'$or': [{'a': 1}, {'b': 1}]}", "{}", false, 0},
        {"{'$nor': [{'a': 1}]}", "{}", false, 0},
        {"{'a.b': 1, 'a.c': 2}", "{'a': {'b': 1, 'c': 2}}", false, 0},
        {"{'a.0': 1}", "{'a': {'0': 1}}", false, 0},
        {"{'a': null}", "{'a': null}", false, 0},
        {"{'a': {'$ne': 1}}", "{}", false, 0},
        {"{'a': {'$not': {'$eq': 1}}}", "{}", false, 0},
        {"{'a': {'b': 1}}", "{'a': {'b': 1}}", false, 0},
        {"{'a': {'$elemMatch': {'b': 1}}}", "{}", false, 0},
        {"{'_id.x': 1}", "{'_id': {'x': 1}}", false, 0},
        {"{'a': {'$regularExpression': {'pattern': 'x', 'options': ''}}}", "{}", false, 0},
        {"{'_id': 5, 'a': 1}", "{'_id': 5}", true, 0},
        {"{'a': 1}", "{}", true, 0},
        {"{'_id.x': 1}", NULL, true, 111},
        {"{'$and': [{'a': 1}, {'a': 2}]}", NULL, false, ERR_NOT_SINGLE_VALUE_FIELD},
        {"{'a': 1, 'a.b': 2}", NULL, false, ERR_NOT_SINGLE_VALUE_FIELD},
        {"{'a.b': 1, 'a': 2}", NULL, false, ERR_NOT_SINGLE_VALUE_FIELD},
        {"{'a': {'$all': [1, 2]}}", NULL, false, ERR_NOT_SINGLE_VALUE_FIELD},
    };
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        Arena arena;
        arena_init(&arena, 0);
        CLEANUP(error_reset) Error err = {0};
        MatchExpr *expr = NULL;
        EXPECT_OK(match_parse(test_query(CASES[i].query, &arena), &PLAIN, &arena, &expr, &err),
                  err);
        Doc base = DOC_EMPTY;
        ErrCode rc = update_upsert_base(expr, CASES[i].is_replacement, &arena, &base, &err);
        bool is_right = (int)rc == CASES[i].code;
        if (is_right && rc == ERR_OK)
            is_right = doc_equal_bytes(base, test_query(CASES[i].base, &arena));
        if (!is_right)
            test_fail(__FILE__, __LINE__, "%s gives %d %s %s", CASES[i].query, (int)rc,
                      error_message(&err), shell_text_of_doc(base, &arena));
        arena_done(&arena);
    }
}

TEST(update_touched_paths_are_canonical) {
    Arena arena;
    arena_init(&arena, 0);
    CLEANUP(error_reset) Error err = {0};
    UpdateParseContext ctx = {.match = &PLAIN};
    UpdateProgram *program = NULL;
    EXPECT_OK(
        update_parse(
            test_query_elem("{'$set': {'a.$[].b': 1, 'c.0.d': 2}, '$rename': {'e': 'f'}}", &arena),
            &ctx, &arena, &program, &err),
        err);
    const Str *paths;
    uint32_t count;
    EXPECT(update_touched_paths(program, &paths, &count));
    EXPECT_EQ_U64(count, 4);
    EXPECT(str_is(paths[0], "a.b"));
    EXPECT(str_is(paths[1], "c.d"));
    static const struct {
        const char *path;
        bool is_touched;
    } CASES[] = {{"a", true},     {"a.b", true},    {"a.b.c", true}, {"a.c", false},
                 {"a.0.b", true}, {"a.0.c", false}, {"c", true},     {"c.d.e", true},
                 {"c.e", false},  {"e", true},      {"f", true},     {"f.g", true},
                 {"g", false},    {"ab", false},    {"a.bc", false}, {"c.0", true},
                 {"_id", false},  {"a.b.0.x", true}};
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++)
        if (update_touches_path(program, str_from(CASES[i].path)) != CASES[i].is_touched)
            test_fail(__FILE__, __LINE__, "%s", CASES[i].path);

    EXPECT_OK(update_parse(test_query_elem("{'a': 1}", &arena), &ctx, &arena, &program, &err), err);
    EXPECT(!update_touched_paths(program, &paths, &count));
    EXPECT(update_touches_path(program, STR("x")));
    EXPECT(update_is_replacement(program));
    arena_done(&arena);
}

/* ---- the one-pass algorithm against a plain one ---- */

enum {
    RANDOM_PATHS = 9,
};
static void random_value(Prng *prng, DocBuilder *b, const char *name, int depth) {
    switch (prng_below(prng, depth > 0 ? 6 : 3)) {
    case 0:
        build_i32(b, name, (int32_t)prng_below(prng, 5));
        return;
    case 1:
        build_cstr(b, name, "text");
        return;
    case 3:
    case 4: {
        static const char *const NAMES[] = {"x", "y", "z"};
        size_t inner = build_open_doc(b, name);
        for (size_t i = 0; i < ARRAY_LEN(NAMES); i++)
            if (prng_below(prng, 2))
                random_value(prng, b, NAMES[i], depth - 1);
        build_close(b, inner);
        return;
    }
    case 5: {
        size_t inner = build_open_array(b, name);
        uint32_t count = (uint32_t)prng_below(prng, 3);
        for (uint32_t i = 0; i < count; i++) {
            char buffer[INDEX_NAME_SIZE];
            random_value(prng, b, index_name(i, buffer).data, depth - 1);
        }
        build_close(b, inner);
        return;
    }
    default:
        build_null(b, name);
    }
}

TEST(update_of_many_paths_equals_updates_one_by_one) {
    /* Goal: a program of several paths does what its paths do one after the other, in the order of
     * the trie. Method: random documents and random sets of $set paths without conflicts; the
     * reference applies each path as a program of its own. */
    Prng prng = prng_seeded(test_seed());
    int applied = 0;
    for (int round = 0; round < 4000; round++) {
        Arena arena;
        arena_init(&arena, 0);
        CLEANUP(error_reset) Error err = {0};
        Buffer buf;
        buffer_init_arena(&buf, &arena, 512, BUFFER_UNBOUNDED);
        DocBuilder b;
        doc_builder_init(&b, &buf);
        build_i32(&b, "_id", 1);
        static const char *const TOP[] = {"b", "a", "c"};
        for (size_t i = 0; i < ARRAY_LEN(TOP); i++)
            if (prng_below(&prng, 3))
                random_value(&prng, &b, TOP[i], 3);
        Doc before = doc_copy(doc_builder_end(&b), &arena);

        /* In the order of the trie, which is that of the paths sorted. */
        static const char *const SORTED[RANDOM_PATHS] = {"a",   "a.x",   "a.y", "a.y.z", "b",
                                                         "b.0", "b.1.x", "b.2", "c.x.y"};
        uint32_t chosen = (uint32_t)prng_below(&prng, 1u << RANDOM_PATHS);
        char *all = arena_strdup(&arena, "{'$set': {");
        UpdateApplyContext ctx = {.positional_index = -1};
        UpdateResult step = {before, false};
        ErrCode step_rc = ERR_OK;
        const char *separator = "";
        for (int i = 0; i < RANDOM_PATHS; i++) {
            if ((chosen >> i & 1) == 0)
                continue;
            int value = (int)prng_below(&prng, 5);
            all = arena_printf(&arena, "%s%s'%s': %d", all, separator, SORTED[i], value);
            separator = ", ";
            char *one = arena_printf(&arena, "{'$set': {'%s': %d}}", SORTED[i], value);
            if (step_rc == ERR_OK)
                step_rc = run_update(one, NULL, step.after, &ctx, &arena, &step, &err);
            error_reset(&err);
        }
        all = arena_printf(&arena, "%s}}", all);
        UpdateResult result = {0};
        ErrCode rc = run_update(all, NULL, before, &ctx, &arena, &result, &err);
        if (rc == ERR_CONFLICTING_UPDATE_OPERATORS) {
            arena_done(&arena);
            continue;
        }
        if (rc != step_rc || (rc == ERR_OK && !doc_equal_bytes(result.after, step.after)))
            test_fail(__FILE__, __LINE__, "%s on %s: %d %s, one by one %d %s", all,
                      shell_text_of_doc(before, &arena), (int)rc,
                      rc == ERR_OK ? shell_text_of_doc(result.after, &arena) : error_message(&err),
                      (int)step_rc, shell_text_of_doc(step.after, &arena));
        if (rc == ERR_OK) {
            applied++;
            EXPECT(result.is_noop == doc_equal_bytes(before, result.after));
        }
        arena_done(&arena);
    }
    EXPECT(applied > 200);
}
