#include "sharding/meta/versions.h"

#include "bson/json_docs_test.h"

static ChunkVersion version_of(uint8_t generation, uint32_t major, uint32_t minor) {
    return (ChunkVersion){
        .epoch = {{[0] = 1, [11] = generation}},
        .timestamp = (uint64_t)generation << 32,
        .major = major,
        .minor = minor,
    };
}

TEST(chunk_versions_are_ordered_by_generation_then_major_then_minor) {
    ChunkVersion rising[] = {
        version_of(1, 0, 0), version_of(1, 1, 0), version_of(1, 1, 9),
        version_of(1, 2, 0), version_of(2, 1, 0), version_of(2, 1, 1),
    };
    for (size_t i = 0; i < ARRAY_LEN(rising); i++)
        for (size_t j = 0; j < ARRAY_LEN(rising); j++)
            EXPECT_EQ_I64(chunk_version_compare(&rising[i], &rising[j]), i < j   ? VERSION_OLDER
                                                                         : i > j ? VERSION_NEWER
                                                                                 : VERSION_SAME);
}

TEST(constants_and_contradictions_have_no_order) {
    ChunkVersion plain = version_of(1, 1, 0);
    ChunkVersion other_epoch = plain, other_time = plain;
    other_epoch.epoch.bytes[0] = 7;
    other_time.timestamp++;
    const ChunkVersion *others[] = {&VERSION_UNSHARDED, &VERSION_IGNORED, &other_epoch,
                                    &other_time};
    for (size_t i = 0; i < ARRAY_LEN(others); i++) {
        EXPECT_EQ_I64(chunk_version_compare(&plain, others[i]), VERSION_INCOMPARABLE);
        EXPECT_EQ_I64(chunk_version_compare(others[i], &plain), VERSION_INCOMPARABLE);
    }
    EXPECT_EQ_I64(chunk_version_compare(&VERSION_UNSHARDED, &VERSION_UNSHARDED),
                  VERSION_INCOMPARABLE);
}

TEST(requests_are_compatible_within_a_generation_and_a_major) {
    ChunkVersion a = version_of(1, 3, 1), b = version_of(1, 3, 9), c = version_of(1, 4, 1),
                 d = version_of(2, 3, 1), empty = version_of(1, 0, 0);
    EXPECT(chunk_version_is_compatible(&a, &b));
    EXPECT(!chunk_version_is_compatible(&a, &c));
    EXPECT(!chunk_version_is_compatible(&a, &d));
    EXPECT(!chunk_version_is_compatible(&a, &VERSION_UNSHARDED));
    EXPECT(!chunk_version_is_compatible(&VERSION_UNSHARDED, &a));
    EXPECT(!chunk_version_is_compatible(&VERSION_UNSHARDED, &empty));
    EXPECT(chunk_version_is_compatible(&VERSION_UNSHARDED, &VERSION_UNSHARDED));
    EXPECT(chunk_version_is_compatible(&VERSION_IGNORED, &a));
    EXPECT(chunk_version_is_compatible(&VERSION_IGNORED, &VERSION_UNSHARDED));
    EXPECT(chunk_version_is_empty(&empty));
    EXPECT(!chunk_version_is_empty(&VERSION_UNSHARDED));
    EXPECT(!chunk_version_is_empty(&VERSION_IGNORED));
}

TEST(next_versions_end_with_an_error_at_the_largest_number) {
    CLEANUP(error_reset) Error err = {0};
    ChunkVersion v = version_of(1, 5, 7), next;
    REQUIRE_OK(chunk_version_next_minor(&v, &next, &err), err);
    EXPECT(next.major == 5 && next.minor == 8);
    REQUIRE_OK(chunk_version_next_major(&v, &next, &err), err);
    EXPECT(next.major == 6 && next.minor == 0);
    EXPECT(chunk_version_is_same_generation(&v, &next));
    v = version_of(1, UINT32_MAX, UINT32_MAX);
    EXPECT_EQ_I64(chunk_version_next_major(&v, &next, &err), 31180);
    EXPECT_EQ_I64(chunk_version_next_minor(&v, &next, &err), 31181);
}

TEST(chunk_versions_survive_their_documents) {
    CLEANUP(error_reset) Error err = {0};
    CLEANUP(arena_done) Arena arena = {0};
    ChunkVersion v = version_of(3, 12, 34), back;
    DocBuilder b = doc_builder_in_arena(&arena);
    chunk_version_build(&b, "shardVersion", &v);
    chunk_version_build(&b, "ignored", &VERSION_IGNORED);
    Doc doc = doc_builder_end(&b);
    REQUIRE_OK(chunk_version_parse(doc_get_lit(doc, "shardVersion"), "shardVersion", &back, &err),
               err);
    EXPECT(chunk_version_equal(&v, &back));
    REQUIRE_OK(chunk_version_parse(doc_get_lit(doc, "ignored"), "v", &back, &err), err);
    EXPECT(chunk_version_is_ignored(&back));
    char text[CHUNK_VERSION_TEXT_SIZE];
    EXPECT_STR(chunk_version_text(&v, text), "12|34||010000000000000000000003||Timestamp(3, 0)");
    EXPECT(strlen(chunk_version_text(&VERSION_IGNORED, text)) < CHUNK_VERSION_TEXT_SIZE - 1);
}

TEST(malformed_versions_are_refused) {
    static const struct {
        const char *json;
        int code;
    } CASES[] = {
        {"{'x': 1}", 14},
        {"{'x': {'t': {'$timestamp': {'t': 1, 'i': 1}}}}", 40414},
        {"{'x': {'e': 1, 't': {'$timestamp': {'t': 1, 'i': 1}}}}", 14},
        {"{'y': 1}", 14},
    };
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        CLEANUP(error_reset) Error err = {0};
        CLEANUP(arena_done) Arena arena = {0};
        ChunkVersion v;
        DatabaseVersion db;
        Elem elem = doc_get_lit(test_doc(CASES[i].json, &arena), "x");
        EXPECT_EQ_I64(chunk_version_parse(elem, "x", &v, &err), CASES[i].code);
        EXPECT_EQ_I64(database_version_parse(elem, "x", &db, &err), i == 2 ? 40414 : CASES[i].code);
    }
}

TEST(database_versions_are_ordered_by_time_then_number) {
    CLEANUP(error_reset) Error err = {0};
    CLEANUP(arena_done) Arena arena = {0};
    DatabaseVersion a = {.uuid = {{1}}, .timestamp = 5, .last_mod = 1}, b = a, c = a, fixed = {0};
    b.last_mod = 2;
    c.timestamp = 6;
    c.uuid.bytes[0] = 9;
    EXPECT_EQ_I64(database_version_compare(&a, &a), VERSION_SAME);
    EXPECT_EQ_I64(database_version_compare(&a, &b), VERSION_OLDER);
    EXPECT_EQ_I64(database_version_compare(&c, &b), VERSION_NEWER);
    EXPECT_EQ_I64(database_version_compare(&a, &fixed), VERSION_INCOMPARABLE);
    EXPECT_EQ_I64(database_version_compare(&fixed, &fixed), VERSION_SAME);
    c.timestamp = 5;
    EXPECT_EQ_I64(database_version_compare(&a, &c), VERSION_INCOMPARABLE);

    DocBuilder builder = doc_builder_in_arena(&arena);
    database_version_build(&builder, "databaseVersion", &b);
    DatabaseVersion back;
    Elem elem = doc_get_lit(doc_builder_end(&builder), "databaseVersion");
    REQUIRE_OK(database_version_parse(elem, "databaseVersion", &back, &err), err);
    EXPECT(database_version_equal(&b, &back));
}
