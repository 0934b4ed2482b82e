/*
 * token_test.c - tokens come back as they were, compare as their events are ordered, and nothing
 * that a client sends in their place is more than refused.
 */
#include "change_stream/token.h"

#include "base/prng.h"
#include "base/test.h"
#include "bson/json_docs_test.h"
#include "bson/random_value_test.h"

static StreamToken random_token(Prng *prng, Arena *arena) {
    StreamToken token = {
        .ts = (UINT64_C(1794890000) << 32) + prng_below(prng, 3),
        .type = prng_below(prng, 4) == 0 ? TOKEN_HIGH_WATER_MARK : TOKEN_EVENT,
        .fragment = TOKEN_FRAGMENT_NONE,
    };
    if (token.type == TOKEN_HIGH_WATER_MARK)
        return token;
    token.op_index = (int64_t)prng_below(prng, 300);
    token.is_from_invalidate = prng_below(prng, 2) == 0;
    token.has_uuid = prng_below(prng, 8) != 0;
    for (size_t i = 0; token.has_uuid && i < sizeof(token.uuid.bytes); i++)
        token.uuid.bytes[i] = (uint8_t)prng_below(prng, 2);
    DocBuilder b = doc_builder_in_arena(arena);
    build_cstr(&b, "operationType", "insert");
    size_t key = build_open_doc(&b, "documentKey");
    random_value(&b, STR("_id"), prng, (uint32_t)prng_below(prng, RANDOM_PLACES), 3);
    build_close(&b, key);
    token.event = doc_builder_end(&b);
    if (prng_below(prng, 4) == 0)
        token.fragment = (int64_t)prng_below(prng, 20);
    return token;
}

/* The order that tokens stand for, as far as it is told by their fields alone. */
static int compare_fields(const StreamToken *a, const StreamToken *b) {
#define BY(field)                                                                                  \
    if (a->field != b->field)                                                                      \
    return a->field < b->field ? -1 : 1
    BY(ts);
    BY(type);
    BY(op_index);
    BY(is_from_invalidate);
#undef BY
    return 0;
}

TEST(tokens_come_back_as_they_were_and_compare_in_the_order_of_events) {
    Prng prng = prng_seeded(7);
    for (int i = 0; i < 3000; i++) {
        CLEANUP(arena_done) Arena arena = {0};
        CLEANUP(error_reset) Error err = {0};
        StreamToken a = random_token(&prng, &arena), b = random_token(&prng, &arena), again;
        Doc a_doc = token_encode(&a, &arena), b_doc = token_encode(&b, &arena);
        REQUIRE_OK(token_decode(a_doc, &arena, &again, &err), err);
        EXPECT(compare_fields(&a, &again) == 0);
        EXPECT_EQ_I64(a.fragment, again.fragment);
        EXPECT(a.has_uuid == again.has_uuid && uuid_equal(&a.uuid, &again.uuid));
        EXPECT(doc_equal_bytes(a_doc, token_encode(&again, &arena)));
        if (a.type == TOKEN_EVENT)
            EXPECT(doc_equal_bytes(a.event, again.event));
        int wanted = compare_fields(&a, &b);
        int order = token_compare(a_doc, b_doc);
        if (wanted != 0)
            EXPECT((order < 0) == (wanted < 0) && order != 0);
    }
}

TEST(a_fragment_follows_the_one_before_it_and_an_invalidate_what_it_ends) {
    CLEANUP(arena_done) Arena arena = {0};
    StreamToken token = {.ts = 5, .type = TOKEN_EVENT, .fragment = TOKEN_FRAGMENT_NONE};
    token.event = test_doc("{'operationType': 'drop'}", &arena);
    Doc whole = token_encode(&token, &arena);
    StreamToken end = token;
    end.is_from_invalidate = true;
    EXPECT(token_compare(whole, token_encode(&end, &arena)) < 0);
    Doc before = whole;
    for (token.fragment = 0; token.fragment < 300; token.fragment++) {
        Doc fragment = token_encode(&token, &arena);
        if (token.fragment > 0)
            EXPECT(token_compare(before, fragment) < 0);
        before = fragment;
    }
    StreamToken mark = token_high_water_mark(5);
    EXPECT(token_compare(token_encode(&mark, &arena), whole) < 0);
    mark.ts = 6;
    EXPECT(token_compare(token_encode(&mark, &arena), token_encode(&end, &arena)) > 0);
}

static ErrCode decode(const char *json) {
    CLEANUP(arena_done) Arena arena = {0};
    CLEANUP(error_reset) Error err = {0};
    StreamToken token;
    return token_decode(test_doc(json, &arena), &arena, &token, &err);
}

TEST(what_is_no_token_is_refused_with_the_code_of_its_fault) {
    EXPECT_EQ_I64(decode("{}"), 40647);
    EXPECT_EQ_I64(decode("{'_data': 1}"), 40647);
    EXPECT_EQ_I64(decode("{'_data': ''}"), 40649);
    EXPECT_EQ_I64(decode("{'_data': '82', '_typeBits': 1}"), 40648);
    EXPECT_EQ_I64(decode("{'_data': '8'}"), ERR_FAILED_TO_PARSE);
    EXPECT_EQ_I64(decode("{'_data': 'zz'}"), ERR_FAILED_TO_PARSE);
    EXPECT_EQ_I64(decode("{'_data': '82'}"), ERR_OVERFLOW);
    EXPECT_EQ_I64(decode("{'_data': '04'}"), ERR_OVERFLOW);
    EXPECT_EQ_I64(decode("{'_data': '2A04'}"), ERR_INVALID_RESUME_TOKEN);
}

TEST(a_token_that_was_cut_or_changed_anywhere_is_refused_or_another_one) {
    CLEANUP(arena_done) Arena arena = {0};
    Prng prng = prng_seeded(11);
    for (int i = 0; i < 200; i++) {
        CLEANUP(error_reset) Error err = {0};
        StreamToken token = random_token(&prng, &arena), read;
        Str text = token_text(token_encode(&token, &arena));
        for (size_t size = 0; size < text.size; size += 1 + prng_below(&prng, 7)) {
            DocBuilder b = doc_builder_in_arena(&arena);
            build_str(&b, "_data", (Str){text.data, size});
            EXPECT(token_decode(doc_builder_end(&b), &arena, &read, &err) != ERR_OK);
            error_reset(&err);
        }
        char *changed = arena_memdup(&arena, text.data, text.size);
        changed[prng_below(&prng, text.size)] = "0123456789ABCDEFxyz"[prng_below(&prng, 19)];
        DocBuilder b = doc_builder_in_arena(&arena);
        build_str(&b, "_data", (Str){changed, text.size});
        if (token_decode(doc_builder_end(&b), &arena, &read, &err) == ERR_OK)
            EXPECT_EQ_U64(token_text(token_encode(&read, &arena)).size, text.size);
        error_reset(&err);
        arena_reset(&arena);
    }
}
