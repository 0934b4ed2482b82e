/*
 * write_batch_test.c - batches are taken apart in order, and put together again by the places of
 * their statements.
 */
#include "router/write_batch.h"

#include "bson/json_docs_test.h"

enum { STATEMENTS_MAX = 16, SHARDS = 3 };

/* Statement i goes to the shard targets[i]: "A", "B"; "*" to all, "-" to none. */
typedef struct Fixture {
    Arena arena;
    Doc docs[STATEMENTS_MAX];
    const char *targets[STATEMENTS_MAX];
    WriteBatch batch;
    uint32_t shard_count;
    WritePlan plan;
} Fixture;

static const char *const SHARD_NAMES[SHARDS] = {"A", "B", "C"};

static ErrCode find_target(void *arg, uint32_t index, WriteTarget *ret_target, Error *err) {
    char shard = ((Fixture *)arg)->targets[index][0];
    if (shard == '-')
        return error_set(err, ERR_SHARD_KEY_NOT_FOUND, "no key");
    *ret_target = (WriteTarget){shard != '*', shard != '*' ? (ShardIndex)(shard - 'A') : 0};
    return ERR_OK;
}

static void fixture_init(Fixture *fx, bool is_ordered, const char *const *targets) {
    *fx = (Fixture){.shard_count = SHARDS};
    uint32_t count = 0;
    for (; targets[count] != NULL; count++) {
        fx->targets[count] = targets[count];
        fx->docs[count] = DOC_EMPTY;
    }
    write_batch_init(&fx->batch, (DocList){fx->docs, count}, is_ordered);
}

static void fixture_done(Fixture *fx) {
    write_batch_done(&fx->batch);
    arena_done(&fx->arena);
}

/* The next plan: "A:0,1 B:2", with "*" behind shards of spread parts. */
static const char *plan(Fixture *fx) {
    WritePlanner planner = {find_target,     fx,   SHARD_NAMES, SHARDS, SHARD_NAMES,
                            fx->shard_count, false};
    fx->plan = write_batch_plan(&fx->batch, &planner, &fx->arena);
    const char *text = "";
    for (uint32_t p = 0; p < fx->plan.count; p++) {
        const WritePart *part = &fx->plan.parts[p];
        text = arena_printf(&fx->arena, "%s%s%s%s:", text, p > 0 ? " " : "", part->shard,
                            part->is_spread ? "*" : "");
        for (uint32_t i = 0; i < part->count; i++)
            text = arena_printf(&fx->arena, "%s%s%u", text, i > 0 ? "," : "", part->statements[i]);
    }
    return text;
}

/* The reply to part `p` of the plan; the code of what was stale. */
static ErrCode reply(Fixture *fx, uint32_t p, const char *json) {
    CLEANUP(error_reset) Error stale = {0};
    write_batch_take_reply(&fx->batch, &fx->plan.parts[p], test_doc(json, &fx->arena), &stale);
    return stale.code;
}

static const char *result(Fixture *fx) {
    DocBuilder b = doc_builder_in_arena(&fx->arena);
    write_batch_build(&fx->batch, &b);
    return test_json(doc_builder_end(&b), &fx->arena);
}

TEST(ordered_statements_go_in_runs_of_one_shard) {
    CLEANUP(fixture_done) Fixture fx;
    fixture_init(&fx, true, (const char *const[]){"A", "A", "B", "*", "C", "C", "A", NULL});
    static const char *const PLANS[] = {"A:0,1", "B:2", "A*:3 B*:3 C*:3", "C:4,5", "A:6", ""};
    for (size_t i = 0; i < ARRAY_LEN(PLANS); i++) {
        EXPECT_STR(plan(&fx), PLANS[i]);
        for (uint32_t p = 0; p < fx.plan.count; p++)
            EXPECT(reply(&fx, p, "{'n': 1}") == ERR_OK);
    }
    EXPECT(!write_batch_is_pending(&fx.batch));
    EXPECT_STR(result(&fx), "{\"n\":7}");
}

TEST(unordered_statements_go_to_all_shards_at_once) {
    CLEANUP(fixture_done) Fixture fx;
    fixture_init(&fx, false, (const char *const[]){"A", "B", "*", "A", "-", "*", "B", NULL});
    EXPECT_STR(plan(&fx), "A:0,3 B:1,6");
    reply(&fx, 0, "{'n': 2}");
    reply(&fx, 1, "{'n': 2}");
    EXPECT_STR(plan(&fx), "A*:2,5 B*:2,5 C*:2,5");
    for (uint32_t p = 0; p < 3; p++)
        reply(&fx, p, "{'n': 1}");
    EXPECT_STR(plan(&fx), "");
    EXPECT(!write_batch_is_pending(&fx.batch));
    EXPECT_STR(result(&fx), "{\"n\":7,\"writeErrors\":[{\"index\":4,\"code\":61,\"errmsg\":\"no "
                            "key\"}]}");
}

TEST(requests_have_a_size) {
    CLEANUP(fixture_done) Fixture fx;
    for (int is_ordered = 0; is_ordered < 2; is_ordered++) {
        fixture_init(&fx, is_ordered, (const char *const[]){"A", "A", "A", "A", "A", NULL});
        fx.batch.bytes_max = 50; /* two statements */
        static const char *const PLANS[] = {"A:0,1", "A:2,3", "A:4", ""};
        for (size_t i = 0; i < ARRAY_LEN(PLANS); i++) {
            EXPECT_STR(plan(&fx), PLANS[i]);
            if (fx.plan.count > 0)
                reply(&fx, 0, "{'n': 1}");
        }
        fx.batch.bytes_max = 1;
        if (is_ordered == 0)
            fixture_done(&fx);
    }
}

TEST(an_ordered_batch_ends_at_its_first_error) {
    CLEANUP(fixture_done) Fixture fx;
    fixture_init(&fx, true, (const char *const[]){"A", "B", "B", "B", "A", NULL});
    plan(&fx);
    reply(&fx, 0, "{'n': 1}");
    EXPECT_STR(plan(&fx), "B:1,2,3");
    reply(&fx, 0,
          "{'n': 1, 'writeErrors': [{'index': 1, 'code': 11000, 'keyValue': {'a': 1}, "
          "'errmsg': 'twice'}]}");
    EXPECT(!write_batch_is_pending(&fx.batch));
    EXPECT_STR(plan(&fx), "");
    EXPECT_STR(result(&fx), "{\"n\":2,\"writeErrors\":[{\"index\":2,\"code\":11000,\"keyValue\":{"
                            "\"a\":1},\"errmsg\":\"twice\"}]}");
}

TEST(a_statement_without_a_target_fails_when_it_is_its_turn) {
    CLEANUP(fixture_done) Fixture fx;
    fixture_init(&fx, true, (const char *const[]){"A", "-", "A", NULL});
    EXPECT_STR(plan(&fx), "A:0");
    reply(&fx, 0, "{'n': 1}");
    EXPECT_STR(plan(&fx), "");
    EXPECT_STR(result(&fx), "{\"n\":1,\"writeErrors\":[{\"index\":1,\"code\":61,\"errmsg\":\"no "
                            "key\"}]}");
}

TEST(what_was_refused_as_stale_is_targeted_again) {
    CLEANUP(fixture_done) Fixture fx;
    fixture_init(&fx, true, (const char *const[]){"A", "A", "A", NULL});
    plan(&fx);
    EXPECT(reply(&fx, 0, "{'n': 1, 'writeErrors': [{'index': 1, 'code': 13388}]}") ==
           ERR_STALE_CONFIG);
    fx.targets[1] = "B";
    write_batch_forget_targets(&fx.batch);
    EXPECT_STR(plan(&fx), "B:1");
    reply(&fx, 0, "{'n': 1}");
    EXPECT_STR(plan(&fx), "A:2");
    reply(&fx, 0, "{'n': 1}");
    EXPECT_STR(result(&fx), "{\"n\":3}");
    fixture_done(&fx);

    fixture_init(&fx, false, (const char *const[]){"A", "A", "A", NULL});
    plan(&fx);
    EXPECT(reply(&fx, 0,
                 "{'n': 1, 'writeErrors': [{'index': 0, 'code': 249}, {'index': 1, 'code': "
                 "11000, 'errmsg': 'x'}]}") == ERR_STALE_DB_VERSION);
    EXPECT_STR(plan(&fx), "A:0");
    reply(&fx, 0, "{'n': 1}");
    EXPECT_STR(result(&fx),
               "{\"n\":2,\"writeErrors\":[{\"index\":1,\"code\":11000,\"errmsg\":\"x\"}]}");
}

TEST(no_shard_executes_a_statement_twice) {
    /* A has done it, B was stale; then the first goes to A alone, and C comes and goes. */
    CLEANUP(fixture_done) Fixture fx;
    fixture_init(&fx, false, (const char *const[]){"*", "*", "*", NULL});
    fx.shard_count = 2;
    EXPECT_STR(plan(&fx), "A*:0,1,2 B*:0,1,2");
    reply(&fx, 0, "{'n': 2, 'nModified': 2}");
    EXPECT(reply(&fx, 1,
                 "{'n': 0, 'writeErrors': [{'index': 0, 'code': 13388}, {'index': 1, "
                 "'code': 13388}]}") == ERR_STALE_CONFIG);
    write_batch_forget_targets(&fx.batch);
    fx.targets[0] = "A";
    fx.shard_count = 3;
    EXPECT_STR(plan(&fx), "B*:1 C*:1,2");
    EXPECT_EQ_U64(fx.batch.done_count, 1);
    reply(&fx, 0, "{'n': 1, 'nModified': 0}");
    write_batch_forget_targets(&fx.batch);
    fx.shard_count = 2;
    EXPECT_STR(plan(&fx), "");
    EXPECT(!write_batch_is_pending(&fx.batch));
    fx.batch.has_modified = true;
    EXPECT_STR(result(&fx), "{\"n\":3,\"nModified\":2}");
}

TEST(a_statement_for_all_shards_waits_for_their_list) {
    CLEANUP(fixture_done) Fixture fx;
    fixture_init(&fx, false, (const char *const[]){"A", "*", NULL});
    WritePlanner planner = {
        find_target, &fx, SHARD_NAMES, SHARDS, SHARD_NAMES, fx.shard_count, .is_list_old = true};
    fx.plan = write_batch_plan(&fx.batch, &planner, &fx.arena);
    EXPECT(fx.plan.count == 1 && !fx.plan.needs_list);
    reply(&fx, 0, "{'n': 1}");
    fx.plan = write_batch_plan(&fx.batch, &planner, &fx.arena);
    EXPECT(fx.plan.count == 0 && fx.plan.needs_list);
    EXPECT(write_batch_is_pending(&fx.batch));
    EXPECT_STR(plan(&fx), "A*:1 B*:1 C*:1");
}

TEST(a_statement_for_all_shards_goes_to_those_added_meanwhile) {
    CLEANUP(fixture_done) Fixture fx;
    for (int is_ordered = 0; is_ordered < 2; is_ordered++) {
        fixture_init(&fx, is_ordered, (const char *const[]){"*", NULL});
        fx.shard_count = 1;
        EXPECT_STR(plan(&fx), "A*:0");
        reply(&fx, 0, "{'n': 1}");
        EXPECT(write_batch_is_pending(&fx.batch));
        fx.shard_count = 2;
        EXPECT_STR(plan(&fx), "B*:0");
        reply(&fx, 0, "{'n': 1}");
        EXPECT_STR(plan(&fx), "");
        EXPECT(!write_batch_is_pending(&fx.batch));
        EXPECT_STR(result(&fx), "{\"n\":2}");
        if (is_ordered == 0)
            fixture_done(&fx);
    }
}

TEST(errors_of_several_shards_are_one_error_of_the_statement) {
    CLEANUP(fixture_done) Fixture fx;
    fixture_init(&fx, false, (const char *const[]){"*", NULL});
    plan(&fx);
    reply(&fx, 0, "{'n': 0, 'writeErrors': [{'index': 0, 'code': 9, 'errmsg': 'x'}]}");
    reply(&fx, 1, "{'n': 0, 'writeErrors': [{'index': 0, 'code': 2, 'errmsg': 'y'}]}");
    EXPECT_STR(result(&fx), "{\"n\":0,\"writeErrors\":[{\"index\":0,\"code\":9,\"errmsg\":\"x; of "
                            "another shard: y\"}]}");
}

TEST(an_error_of_a_request_is_one_of_its_statements) {
    CLEANUP(fixture_done) Fixture fx;
    CLEANUP(error_reset) Error err = {0};
    (void)error_set(&err, ERR_HOST_UNREACHABLE, "gone");
    fixture_init(&fx, false, (const char *const[]){"A", "B", "A", NULL});
    plan(&fx);
    write_batch_take_error(&fx.batch, &fx.plan.parts[0], &err);
    reply(&fx, 1, "{'n': 1}");
    EXPECT_STR(result(&fx),
               "{\"n\":1,\"writeErrors\":[{\"index\":0,\"code\":6,\"errmsg\":\"gone\"},{\"index\":"
               "2,\"code\":6,\"errmsg\":\"gone\"}]}");
    fixture_done(&fx);
    fixture_init(&fx, true, (const char *const[]){"A", "A", "B", NULL});
    plan(&fx);
    write_batch_take_error(&fx.batch, &fx.plan.parts[0], &err);
    EXPECT_STR(result(&fx),
               "{\"n\":0,\"writeErrors\":[{\"index\":0,\"code\":6,\"errmsg\":\"gone\"}]}");
    fixture_done(&fx);
    fixture_init(&fx, false, (const char *const[]){"A", "B", NULL});
    write_batch_fail_rest(&fx.batch, &err);
    EXPECT_EQ_U64(fx.batch.error_count, 2);
}

TEST(replies_are_put_together_by_the_places_of_statements) {
    CLEANUP(fixture_done) Fixture fx;
    fixture_init(&fx, false, (const char *const[]){"B", "A", "B", "A", NULL});
    fx.batch.has_modified = true;
    plan(&fx);
    reply(&fx, 0,
          "{'n': 2, 'nModified': 1, 'upserted': [{'index': 1, '_id': 'x'}], "
          "'retriedStmtIds': [1], 'errorLabels': ['RetryableWriteError'], "
          "'writeConcernError': {'code': 64, 'codeName': 'WriteConcernFailed', 'errmsg': 'slow', "
          "'errInfo': {'w': 3}}}");
    EXPECT_STR(result(&fx),
               "{\"n\":2,\"upserted\":[{\"index\":3,\"_id\":\"x\"}],\"nModified\":1,"
               "\"writeConcernError\":{\"code\":64,\"codeName\":\"WriteConcernFailed\","
               "\"errmsg\":\"slow\",\"errInfo\":{\"w\":3}},\"errorLabels\":["
               "\"RetryableWriteError\"],\"retriedStmtIds\":[1]}");
    reply(&fx, 1,
          "{'n': 2, 'nModified': 0, 'upserted': [{'index': 0, '_id': 'y'}, {'index': 9}], "
          "'retriedStmtIds': [2], 'writeErrors': [{'index': -1, 'code': 1}], "
          "'writeConcernError': {'code': 189, 'errmsg': 'gone'}}");
    EXPECT_STR(result(&fx),
               "{\"n\":4,\"upserted\":[{\"index\":0,\"_id\":\"y\"},{\"index\":3,\"_id\":\"x\"}],"
               "\"nModified\":1,\"writeConcernError\":{\"code\":64,\"codeName\":"
               "\"WriteConcernFailed\",\"errmsg\":\"several shards reported errors: shard A: slow; "
               "shard B: gone\",\"errInfo\":{\"w\":3}},\"errorLabels\":[\"RetryableWriteError\"],"
               "\"retriedStmtIds\":[1,2]}");
}

TEST(an_update_that_would_move_a_document_is_refused) {
    CLEANUP(fixture_done) Fixture fx;
    for (int can_move = 0; can_move < 2; can_move++) {
        if (can_move)
            fixture_done(&fx);
        fixture_init(&fx, true, (const char *const[]){"A", NULL});
        fx.batch.can_move = can_move;
        plan(&fx);
        reply(&fx, 0, "{'n': 0, 'writeErrors': [{'index': 0, 'code': 283, 'errmsg': 'x'}]}");
        Doc error = fx.batch.statements[0].error;
        EXPECT_EQ_I64(elem_as_i64(doc_get_lit(error, "code")), can_move ? 238 : 20);
    }
}

TEST(texts_of_errors_have_a_bound) {
    CLEANUP(fixture_done) Fixture fx;
    fixture_init(&fx, false, (const char *const[]){"A", "A", NULL});
    fx.batch.text_bytes_left = 20;
    plan(&fx);
    reply(&fx, 0,
          "{'n': 0, 'writeErrors': [{'index': 0, 'code': 1, 'errmsg': 'abc'}, {'index': 1, "
          "'code': 1, 'errmsg': 'abc'}]}");
    EXPECT_STR(result(&fx), "{\"n\":0,\"writeErrors\":[{\"index\":0,\"code\":1,\"errmsg\":\"abc\"},"
                            "{\"index\":1,\"code\":1,\"errmsg\":\"\"}]}");
}
