/*
 * session_test.c - ids, the cache of sessions in use, and executed statements (SES-1, SES-2). What
 * is stored of sessions is tested where the oplog is, repl/oplog/sessions_test.c.
 */
#include "base/alloc.h"
#include "base/test.h"
#include "bson/json.h"
#include "txn/session_cache.h"
#include "txn/session_internal.h"

/* ---- ids ---- */

TEST(session_ids_are_parsed_strictly) {
    static const struct {
        const char *json; /* {lsid: ...} */
        int code;
    } CASES[] = {
        {"{'l': {'id': {'$uuid': '00112233-4455-6677-8899-aabbccddeeff'}}}", 0},
        {"{'l': {}}", 14},
        {"{'l': 1}", 14},
        {"{'l': {'id': 'x'}}", 14},
        {"{'l': {'id': {'$uuid': '00112233-4455-6677-8899-aabbccddeeff'}, 'uid': 1}}", 14},
        {"{'l': {'id': {'$uuid': '00112233-4455-6677-8899-aabbccddeeff'}, 'x': 1}}", 40415},
        {"{'l': {'id': {'$uuid': '00112233-4455-6677-8899-aabbccddeeff'}, 'txnNumber': 1}}", 14},
        {"{'l': {'id': {'$uuid': '00112233-4455-6677-8899-aabbccddeeff'}, 'txnNumber': "
         "{'$numberLong': '1'}}}",
         72},
        {"{'l': {'id': {'$uuid': '00112233-4455-6677-8899-aabbccddeeff'}, 'txnUUID': 1}}", 14},
    };
    Arena arena;
    arena_init(&arena, 4096);
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        CLEANUP(error_reset) Error err = {0};
        Doc doc = DOC_EMPTY;
        EXPECT_OK(doc_from_json(CASES[i].json, &arena, &doc, &err), err);
        SessionId id;
        EXPECT_EQ_I64(session_id_parse(doc_get_lit(doc, "l"), &id, &err), CASES[i].code);
    }
    Uuid uuid = uuid_new();
    SessionId nobody = session_id_of_nobody(&uuid);
    char text[SESSION_ID_TEXT_SIZE];
    session_id_to_text(&nobody, text);
    EXPECT_STR(text + UUID_TEXT_SIZE - 1,
               " - e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    DocBuilder b = doc_builder_in_arena(&arena);
    build_session_id(&b, "l", &nobody);
    Doc built = doc_builder_end(&b);
    SessionId child = session_id_new_child(&nobody, 3), same;
    DocBuilder of_child = doc_builder_in_arena(&arena);
    build_session_id(&of_child, "l", &child);
    CLEANUP(error_reset) Error child_err = {0};
    EXPECT_OK(session_id_parse(doc_get_lit(doc_builder_end(&of_child), "l"), &same, &child_err),
              child_err);
    EXPECT(session_id_equal(&child, &same) && session_id_is_child(&same));
    EXPECT(!session_id_equal(&child, &nobody) && !session_id_is_child(&nobody));
    SessionId again;
    Error err = {0};
    EXPECT_OK(session_id_parse(doc_get_lit(built, "l"), &again, &err), err);
    EXPECT(session_id_equal(&nobody, &again));
    arena_done(&arena);
}

/* ---- the cache ---- */

static SessionId numbered(uint32_t n) {
    Uuid uuid = {{0}};
    memcpy(uuid.bytes, &n, sizeof(n));
    return session_id_of_nobody(&uuid);
}

TEST(the_cache_tells_what_was_used_and_what_ended) {
    SessionCache *cache = session_cache_new();
    Error err = {0};
    for (uint32_t i = 0; i < 5000; i++) { /* enough for every shard to grow */
        SessionId id = numbered(i);
        EXPECT_OK(session_cache_use(cache, &id, /* now_ms= */ 1000 + i, 5000, &err), err);
    }
    SessionId extra = numbered(9999);
    EXPECT_EQ_I64(session_cache_use(cache, &extra, 1, 5000, &err), ERR_TOO_MANY_LOGICAL_SESSIONS);
    error_reset(&err);
    SessionId first = numbered(0), second = numbered(1);
    EXPECT_OK(session_cache_use(cache, &first, 9000, 5000, &err), err); /* a known one is fine */
    session_cache_end(cache, &second, 9000);
    EXPECT(session_cache_is_used(cache, &first, 9000));
    EXPECT(!session_cache_is_used(cache, &first, 9001));
    EXPECT(!session_cache_is_used(cache, &second, 0));

    SessionChanges changes;
    session_cache_take(cache, /* idle_before_ms= */ 2000, &changes);
    EXPECT_EQ_I64(changes.used_count, 4999);
    EXPECT_EQ_I64(changes.ended_count, 1);
    EXPECT_EQ_I64(session_cache_count(cache), 4001); /* 2000..5999, and the first */
    session_cache_put_back(cache, &changes);
    session_changes_done(&changes);
    session_cache_take(cache, 2000, &changes);
    EXPECT_EQ_I64(changes.used_count, 4999);
    EXPECT_EQ_I64(changes.ended_count, 1);
    session_changes_done(&changes);
    session_cache_take(cache, 2000, &changes);
    EXPECT_EQ_I64(changes.used_count + changes.ended_count, 0);
    session_changes_done(&changes);
    session_cache_free(cache);
}

/* ---- statements ---- */

TEST(statements_are_found_whatever_order_they_came_in) {
    Session session = {0};
    static const int32_t IDS[] = {5, 1, 9, 3, 3, 0, -7, 100, 2};
    for (size_t i = 0; i < ARRAY_LEN(IDS); i++)
        session_add_statement(&session, IDS[i], 10 + i);
    EXPECT_EQ_I64(session.statement_count, 8);
    EXPECT_EQ_U64(session_find_statement(&session, 3)->ts, 13); /* the first stays */
    EXPECT_EQ_U64(session_find_statement(&session, -7)->ts, 16);
    EXPECT(session_find_statement(&session, 4) == NULL);
    EXPECT(session_find_statement(&session, 101) == NULL);
    session_forget_statements(&session);
    EXPECT(session_find_statement(&session, 3) == NULL);
    xfree(session.statements);
}
