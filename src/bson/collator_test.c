#include "bson/collator.h"

#include "base/prng.h"
#include "base/test.h"
#include "base/thread.h"
#include "bson/builder.h"
#include "bson/json.h"

static ErrCode parse(const char *json, Arena *arena, const Collator **ret_collator, Error *err) {
    Doc spec;
    TRY(doc_from_json(json, arena, &spec, err));
    return collator_parse(spec, ret_collator, err);
}

static const struct {
    const char *spec;
    const char *a;
    const char *b;
    int order;
} COMPARISONS[] = {
    {"{'locale': 'simple'}", "a", "B", 1},
    {"{'locale': 'en'}", "a", "B", -1},
    {"{'locale': 'en'}", "a", "A", -1},
    {"{'locale': 'en', 'strength': 1}", "a", "A", 0},
    {"{'locale': 'en', 'strength': 1}", "cafe", "CAFÉ", 0},
    {"{'locale': 'en', 'strength': 2}", "cafe", "CAFE", 0},
    {"{'locale': 'en', 'strength': 2}", "cafe", "café", -1},
    {"{'locale': 'en', 'strength': 1, 'caseLevel': true}", "a", "A", -1},
    {"{'locale': 'en', 'strength': 1, 'caseLevel': true}", "a", "á", 0},
    {"{'locale': 'en', 'caseFirst': 'upper'}", "a", "A", 1},
    {"{'locale': 'en', 'caseFirst': 'lower'}", "a", "A", -1},
    {"{'locale': 'en'}", "10", "9", -1},
    {"{'locale': 'en', 'numericOrdering': true}", "10", "9", 1},
    {"{'locale': 'en', 'numericOrdering': true}", "a10b", "a9b", 1},
    {"{'locale': 'en'}", "black-bird", "blackbird", -1},
    {"{'locale': 'en', 'alternate': 'shifted'}", "black-bird", "blackbird", 0},
    {"{'locale': 'en', 'alternate': 'shifted', 'maxVariable': 'space'}", "black-bird", "blackbird",
     -1},
    {"{'locale': 'en', 'alternate': 'shifted', 'maxVariable': 'space'}", "black bird", "blackbird",
     0},
    {"{'locale': 'en', 'alternate': 'shifted', 'strength': 4}", "black-bird", "blackbird", -1},
    {"{'locale': 'fr', 'strength': 2}", "cote\xcc\x81", "co\xcc\x82te", -1},
    {"{'locale': 'fr', 'strength': 2, 'backwards': true}", "cote\xcc\x81", "co\xcc\x82te", 1},
    {"{'locale': 'en', 'strength': 5}", "a", "a", 0},
    {"{'locale': 'sv'}", "z", "ö", -1},
    {"{'locale': 'de'}", "z", "ö", 1},
    {"{'locale': 'de@collation=phonebook', 'strength': 1}", "ae", "ä", 0},
    {"{'locale': 'en'}", "", "a", -1},
};

TEST(collations_order_strings_as_their_language_does) {
    Arena arena;
    arena_init(&arena, 4096);
    for (size_t i = 0; i < ARRAY_LEN(COMPARISONS); i++) {
        CLEANUP(error_reset) Error err = {0};
        const Collator *collator = NULL;
        EXPECT_OK(parse(COMPARISONS[i].spec, &arena, &collator, &err), err);
        Doc pair;
        const char *text = arena_printf(&arena, "{\"a\": \"%s\", \"b\": \"%s\"}", COMPARISONS[i].a,
                                        COMPARISONS[i].b);
        EXPECT_OK(doc_from_json(text, &arena, &pair, &err), err);
        int order = elem_compare(doc_get_lit(pair, "a"), doc_get_lit(pair, "b"), collator);
        order = (order > 0) - (order < 0);
        if (order != COMPARISONS[i].order)
            test_fail(__FILE__, __LINE__, "%s: \"%s\" and \"%s\" give %d", COMPARISONS[i].spec,
                      COMPARISONS[i].a, COMPARISONS[i].b, order);
    }
    arena_done(&arena);
}

static const struct {
    const char *spec;
    int code;
} MALFORMED[] = {
    {"{}", 40414},
    {"{'strength': 1}", 40414},
    {"{'locale': 1}", ERR_TYPE_MISMATCH},
    {"{'locale': ''}", ERR_BAD_VALUE},
    {"{'locale': 'xx'}", ERR_BAD_VALUE},
    {"{'locale': 'nonsense'}", ERR_BAD_VALUE},
    {"{'locale': 'EN'}", ERR_BAD_VALUE},
    {"{'locale': 'en-US'}", ERR_BAD_VALUE},
    {"{'locale': 'simple', 'strength': 1}", ERR_BAD_VALUE},
    {"{'locale': 'en', 'blah': 1}", 40415},
    {"{'locale': 'en', 'locale': 'fr'}", 40413},
    {"{'locale': 'en', 'strength': 0}", ERR_BAD_VALUE},
    {"{'locale': 'en', 'strength': 6}", ERR_BAD_VALUE},
    {"{'locale': 'en', 'strength': 1.5}", ERR_BAD_VALUE},
    {"{'locale': 'en', 'strength': '1'}", ERR_TYPE_MISMATCH},
    {"{'locale': 'en', 'caseLevel': 'yes'}", ERR_TYPE_MISMATCH},
    {"{'locale': 'en', 'caseFirst': 'middle'}", ERR_BAD_VALUE},
    {"{'locale': 'en', 'alternate': 'x'}", ERR_BAD_VALUE},
    {"{'locale': 'en', 'maxVariable': 'x'}", ERR_BAD_VALUE},
    {"{'locale': 'en', 'version': '1.0'}", 161},
    {"{'locale': 'en', 'strength': 1, 'backwards': true}", ERR_BAD_VALUE},
    {"{'locale': 'en', 'strength': 2, 'caseFirst': 'upper'}", ERR_BAD_VALUE},
};

TEST(malformed_collations_are_refused) {
    Arena arena;
    arena_init(&arena, 4096);
    for (size_t i = 0; i < ARRAY_LEN(MALFORMED); i++) {
        CLEANUP(error_reset) Error err = {0};
        const Collator *collator = NULL;
        int rc = (int)parse(MALFORMED[i].spec, &arena, &collator, &err);
        if (rc != MALFORMED[i].code)
            test_fail(__FILE__, __LINE__, "%s gives %d %s", MALFORMED[i].spec, rc,
                      error_message(&err));
    }
    arena_done(&arena);
}

TEST(collations_are_completed_with_the_defaults_of_their_locale) {
    CLEANUP(error_reset) Error err = {0};
    Arena arena;
    arena_init(&arena, 4096);
    const Collator *collator;
    EXPECT_OK(
        parse("{'strength': {'$numberDouble': '2.0'}, 'locale': 'en_US'}", &arena, &collator, &err),
        err);
    EXPECT_STR(shell_text_of_doc(collator->spec, &arena),
               "{ locale: \"en_US\", caseLevel: false, caseFirst: \"off\", strength: 2, "
               "numericOrdering: false, alternate: \"non-ignorable\", maxVariable: \"punct\", "
               "normalization: false, backwards: false, version: \"57.1\" }");
    EXPECT_OK(parse("{'locale': 'fr_CA'}", &arena, &collator, &err), err);
    EXPECT(elem_bool(doc_get_lit(collator->spec, "backwards")));
    EXPECT_OK(parse("{'locale': 'da'}", &arena, &collator, &err), err);
    EXPECT_STR(elem_str(doc_get_lit(collator->spec, "caseFirst")).data, "upper");
    arena_done(&arena);
}

TEST(equal_collations_are_one_collator) {
    CLEANUP(error_reset) Error err = {0};
    Arena arena;
    arena_init(&arena, 4096);
    const Collator *a, *b, *c, *simple;
    EXPECT_OK(parse("{'locale': 'en', 'strength': 2}", &arena, &a, &err), err);
    EXPECT_OK(parse("{'strength': 2, 'locale': 'en', 'caseFirst': 'off'}", &arena, &b, &err), err);
    EXPECT_OK(parse("{'locale': 'en', 'strength': 3}", &arena, &c, &err), err);
    EXPECT_OK(parse("{'locale': 'simple'}", &arena, &simple, &err), err);
    EXPECT(a == b);
    EXPECT(a != c);
    EXPECT(simple == NULL);
    const Collator *again;
    EXPECT_OK(collator_parse(a->spec, &again, &err), err);
    EXPECT(again == a);
    arena_done(&arena);
}

/* Pieces that ICU treats specially, and bytes that are no UTF-8. */
static const char *const PIECES[] = {"a",
                                     "A",
                                     "b",
                                     "\xc3\xa9",
                                     "e\xcc\x81",
                                     "1",
                                     "10",
                                     "02",
                                     " ",
                                     "-",
                                     "\xc3\x9f",
                                     "ss",
                                     "\xf0\x9f\x98\x80",
                                     "\xe4\xb8\xad",
                                     "\x01",
                                     "\xc3",
                                     "\xff",
                                     "\xe4\xb8",
                                     "\xed\xa0\x80",
                                     "\xcc\x81",
                                     "z",
                                     "\xef\xbf\xbd"};

static Str random_text(Prng *prng, char out[64]) {
    size_t size = 0;
    uint64_t count = prng_below(prng, 6);
    for (uint64_t i = 0; i < count; i++) {
        const char *piece = PIECES[prng_below(prng, ARRAY_LEN(PIECES))];
        memcpy(out + size, piece, strlen(piece));
        size += strlen(piece);
    }
    return (Str){out, size};
}

TEST(sort_keys_order_as_comparison_does) {
    /* Goal: memcmp of two sort keys has the sign of compare, for any bytes.
     * Method: random texts of pieces that are special to ICU, in several collations. */
    static const char *const SPECS[] = {
        "{'locale': 'en'}",
        "{'locale': 'en', 'strength': 1}",
        "{'locale': 'en', 'strength': 2, 'numericOrdering': true}",
        "{'locale': 'en', 'strength': 5}",
        "{'locale': 'fr_CA', 'normalization': true}",
        "{'locale': 'en', 'alternate': 'shifted', 'strength': 4}",
        "{'locale': 'en', 'strength': 1, 'caseLevel': true, 'caseFirst': 'upper'}",
        "{'locale': 'zh'}",
    };
    Arena arena;
    arena_init(&arena, 4096);
    Prng prng = prng_seeded(test_seed());
    CLEANUP(error_reset) Error err = {0};
    for (size_t s = 0; s < ARRAY_LEN(SPECS); s++) {
        const Collator *collator = NULL;
        EXPECT_OK(parse(SPECS[s], &arena, &collator, &err), err);
        for (int round = 0; round < 3000; round++) {
            char a_text[64], b_text[64];
            Str a = random_text(&prng, a_text), b = random_text(&prng, b_text);
            CLEANUP(buffer_done) Buffer a_key, b_key;
            buffer_init(&a_key, BUFFER_UNBOUNDED);
            buffer_init(&b_key, BUFFER_UNBOUNDED);
            collator->append_sort_key(collator, a, &a_key);
            collator->append_sort_key(collator, b, &b_key);
            int by_key =
                memcmp(a_key.data, b_key.data, a_key.size < b_key.size ? a_key.size : b_key.size);
            if (by_key == 0)
                by_key = (a_key.size > b_key.size) - (a_key.size < b_key.size);
            int order = collator->compare(collator, a, b);
            if ((order > 0) - (order < 0) != (by_key > 0) - (by_key < 0)) {
                test_fail(__FILE__, __LINE__, "%s: \"%.*s\" and \"%.*s\" compare %d, keys %d",
                          SPECS[s], (int)a.size, a.data, (int)b.size, b.data, order, by_key);
                arena_done(&arena);
                return;
            }
        }
    }
    arena_done(&arena);
}

TEST(sort_keys_of_long_texts_are_whole) {
    CLEANUP(error_reset) Error err = {0};
    Arena arena;
    arena_init(&arena, 4096);
    const Collator *collator = NULL;
    EXPECT_OK(parse("{'locale': 'zh', 'strength': 5}", &arena, &collator, &err), err);
    char text[3000];
    for (size_t i = 0; i < sizeof(text); i += 3)
        memcpy(text + i, "\xe4\xb8\xad", 3);
    CLEANUP(buffer_done) Buffer whole, shorter;
    buffer_init(&whole, BUFFER_UNBOUNDED);
    buffer_init(&shorter, BUFFER_UNBOUNDED);
    collator->append_sort_key(collator, (Str){text, sizeof(text)}, &whole);
    collator->append_sort_key(collator, (Str){text, sizeof(text) - 3}, &shorter);
    EXPECT(whole.size > shorter.size);
    EXPECT(whole.size > 1000);
    arena_done(&arena);
}

enum {
    RACERS = 4,
    RACED_SPECS = 40,
};

typedef struct Racer {
    Thread thread;
    Doc specs[RACED_SPECS];
    const Collator *made[RACED_SPECS];
    ErrCode rc;
} Racer;

static void race(void *arg) {
    Racer *racer = arg;
    CLEANUP(error_reset) Error err = {0};
    for (int i = 0; racer->rc == ERR_OK && i < RACED_SPECS; i++)
        racer->rc = collator_parse(racer->specs[i], &racer->made[i], &err);
}

TEST(threads_that_make_the_same_collation_get_the_same_collator) {
    static const char *const LOCALES[] = {"it", "es", "pt", "nl", "fi", "pl", "cs", "ro"};
    Arena arena;
    arena_init(&arena, 4096);
    CLEANUP(error_reset) Error err = {0};
    Racer racers[RACERS] = {0};
    for (int i = 0; i < RACED_SPECS; i++) {
        DocBuilder b = doc_builder_in_arena(&arena);
        build_cstr(&b, "locale", LOCALES[i % (int)ARRAY_LEN(LOCALES)]);
        build_i32(&b, "strength", 1 + i / (int)ARRAY_LEN(LOCALES));
        Doc spec = doc_builder_end(&b);
        for (int r = 0; r < RACERS; r++)
            racers[r].specs[i] = spec;
    }
    for (int r = 0; r < RACERS; r++)
        REQUIRE_OK(thread_start(&racers[r].thread, "racer", race, &racers[r], &err), err);
    for (int r = 0; r < RACERS; r++)
        thread_join(&racers[r].thread);
    for (int r = 0; r < RACERS; r++) {
        EXPECT_EQ_I64(racers[r].rc, ERR_OK);
        EXPECT(memcmp(racers[r].made, racers[0].made, sizeof(racers[r].made)) == 0);
    }
    arena_done(&arena);
}
