#include "sharding/meta/chunk.h"

#include "bson/json_docs_test.h"

#define ID       "'_id': {'$oid': '0102030405060708090a0b0c'}"
#define UUID     "'uuid': {'$binary': {'base64': 'AAECAwQFBgcICQoLDA0ODw==', 'subType': '04'}}"
#define TS(t, i) "{'$timestamp': {'t': " #t ", 'i': " #i "}}"
#define REST     "'max': {'a': 5}, 'shard': 's0', 'lastmod': " TS(1, 2)

TEST(chunks_survive_both_forms_of_their_documents) {
    CLEANUP(error_reset) Error err = {0};
    CLEANUP(arena_done) Arena arena = {0};
    Doc doc = test_doc("{" ID ", " UUID ", 'min': {'a': 1}, " REST
                       ", 'onCurrentShardSince': " TS(9, 1) ", 'history': [{'validAfter': " TS(
                           9, 1) ", 'shard': 's0'}, {'validAfter': " TS(8, 1) ", 'shard': 's1'}], "
                                                                              "'jumbo': true}",
                       &arena);
    Chunk chunk, back;
    REQUIRE_OK(chunk_parse(doc, &chunk, &err), err);
    EXPECT_EQ_U64(chunk.version, (UINT64_C(1) << 32) + 2);
    EXPECT_EQ_U64(chunk.since, (UINT64_C(9) << 32) + 1);
    EXPECT(str_is(chunk.shard, "s0") && chunk.is_jumbo);
    EXPECT_EQ_I64(doc_count(chunk.history), 2);
    DocBuilder b = doc_builder_in_arena(&arena);
    chunk_build(&b, &chunk);
    EXPECT(doc_equal_bytes(doc_builder_end(&b), doc));

    b = doc_builder_in_arena(&arena);
    chunk_build_cached(&b, &chunk);
    REQUIRE_OK(chunk_parse_cached(doc_builder_end(&b), &back, &err), err);
    EXPECT(doc_equal_bytes(back.min, chunk.min) && doc_equal_bytes(back.max, chunk.max));
    EXPECT(back.version == chunk.version && back.since == chunk.since);
    EXPECT(doc_equal_bytes(back.history, chunk.history) && back.is_jumbo);
}

TEST(a_history_tells_since_when_the_owner_has_a_chunk) {
    CLEANUP(error_reset) Error err = {0};
    CLEANUP(arena_done) Arena arena = {0};
    Chunk chunk;
    Doc doc = test_doc("{'_id': {'a': 1}, " REST
                       ", 'history': [{'validAfter': " TS(9, 1) ", 'shard': 's0'}]}",
                       &arena);
    REQUIRE_OK(chunk_parse_cached(doc, &chunk, &err), err);
    EXPECT_EQ_U64(chunk.since, (UINT64_C(9) << 32) + 1);
    doc = test_doc("{'_id': {'a': 1}, " REST "}", &arena);
    REQUIRE_OK(chunk_parse_cached(doc, &chunk, &err), err);
    EXPECT(chunk.since == 0 && !doc_is_present(chunk.history));
}

TEST(malformed_chunks_are_refused) {
    static const struct {
        const char *json;
        int code;
    } CASES[] = {
        {"{" ID ", " UUID ", 'min': {'a': 1}, " REST "}", 0},
        {"{" ID ", " UUID ", 'min': {'a': 1}, " REST ", 'history': [], 'more': 1}", 0},
        {"{" UUID ", 'min': {'a': 1}, " REST "}", 40414},
        {"{" ID ", 'uuid': 1, 'min': {'a': 1}, " REST "}", 14},
        {"{" ID ", " UUID ", 'min': 1, " REST "}", 14},
        {"{" ID ", " UUID ", 'min': {'a': 5}, " REST "}", 9},
        {"{" ID ", " UUID ", 'min': {'a': 6}, " REST "}", 9},
        {"{" ID ", " UUID
         ", 'min': {'a': 1}, 'max': {'a': 2}, 'shard': '', 'lastmod': " TS(1, 2) "}",
         2},
        {"{" ID ", " UUID
         ", 'min': {'a': 1}, 'max': {'a': 2}, 'shard': 's', 'lastmod': " TS(0, 0) "}",
         2},
        {"{" ID ", " UUID ", 'min': {'a': 1}, " REST ", 'history': [1]}", 14},
        {"{" ID ", " UUID ", 'min': {'a': 1}, " REST ", 'history': [{'shard': 's0'}]}", 40414},
        {"{" ID ", " UUID ", 'min': {'a': 1}, " REST
         ", 'history': [{'validAfter': " TS(1, 1) ", 'shard': 's1'}]}",
         2},
        {"{" ID ", " UUID ", 'min': {'a': 1}, " REST ", 'onCurrentShardSince': " TS(
             2, 1) ", 'history': [{'validAfter': " TS(1, 1) ", 'shard': 's0'}]}",
         2},
        {"{" ID ", " UUID ", 'min': {'a': 1}, " REST ", 'history': [{'validAfter': " TS(
             1, 1) ", 'shard': 's0'}, {'validAfter': " TS(1, 1) ", 'shard': 's1'}]}",
         2},
    };
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        CLEANUP(error_reset) Error err = {0};
        CLEANUP(arena_done) Arena arena = {0};
        Chunk chunk;
        ErrCode rc = chunk_parse(test_doc(CASES[i].json, &arena), &chunk, &err);
        if ((int)rc != CASES[i].code)
            test_fail(__FILE__, __LINE__, "%s: %d %s", CASES[i].json, rc, error_message(&err));
    }
}
