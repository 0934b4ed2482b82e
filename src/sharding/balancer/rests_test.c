#include "sharding/balancer/rests.h"

#include "base/alloc.h"
#include "bson/json_docs_test.h"

static void rests_free(Rests **rests) {
    rests_clear(*rests);
    xfree(*rests);
}

TEST(rests_grow_and_end_with_a_success) {
    CLEANUP(arena_done) Arena arena = {0};
    CLEANUP(rests_free) Rests *rests = NEW(Rests);
    Uuid a = uuid_new(), b = uuid_new();
    Doc one = test_doc("{'k': 1}", &arena), two = test_doc("{'k': 2}", &arena);
    rests_note_failure(rests, &a, one, 1000);
    EXPECT(rests_has(rests, &a, one, 1000 + REST_MS_MIN - 1));
    EXPECT(!rests_has(rests, &a, one, 1000 + REST_MS_MIN));
    EXPECT(!rests_has(rests, &a, two, 1000) && !rests_has(rests, &b, one, 1000));
    EXPECT(!rests_has(rests, &a, DOC_NONE, 1000));
    rests_note_failure(rests, &a, one, 20000);
    EXPECT(rests_has(rests, &a, one, 20000 + 2 * REST_MS_MIN - 1));
    rests_note_failure(rests, &a, two, 20000); /* the third of the collection */
    EXPECT(rests_has(rests, &a, DOC_NONE, 20000 + REST_MS_MIN - 1));
    EXPECT(!rests_has(rests, &a, DOC_NONE, 20000 + REST_MS_MIN));
    rests_note_success(rests, &a, one);
    EXPECT(!rests_has(rests, &a, DOC_NONE, 20000) && !rests_has(rests, &a, one, 20000));
    EXPECT(rests_has(rests, &a, two, 20000));
    for (int i = 0; i < 100; i++)
        rests_note_failure(rests, &b, one, 0);
    EXPECT(rests_has(rests, &b, one, REST_MS_MAX - 1) && !rests_has(rests, &b, one, REST_MS_MAX));
}

TEST(rests_are_bounded) {
    CLEANUP(arena_done) Arena arena = {0};
    CLEANUP(rests_free) Rests *rests = NEW(Rests);
    Uuid uuid = uuid_new();
    for (int i = 0; i < RESTS_MAX * 2; i++) {
        DocBuilder b = doc_builder_in_arena(&arena);
        build_i32(&b, "k", i);
        rests_note_failure(rests, &uuid, doc_builder_end(&b), i);
    }
    EXPECT(rests->count <= RESTS_MAX);
}
