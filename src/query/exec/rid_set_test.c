#include "query/exec/rid_set.h"

#include "base/alloc.h"
#include "base/prng.h"
#include "base/test.h"

static bool add(RidSet *set, RecordId rid) {
    Error err = {0};
    bool is_new = false;
    EXPECT_OK(rid_set_add(set, rid, &is_new, &err), err);
    return is_new;
}

TEST(rid_set_knows_what_it_has_seen) {
    /* Method: numbers in random order, dense and far apart, beside a plain table of bits. */
    enum { RANGE = 300000 };
    Prng prng = prng_seeded(test_seed());
    bool *seen = xcalloc(RANGE, sizeof(bool));
    CLEANUP(rid_set_done) RidSet set = {0};
    for (int i = 0; i < 600000; i++) {
        /* Half of them in the first block and a half: it turns into bits. */
        int64_t number = (int64_t)prng_below(&prng, i % 2 == 0 ? RANGE : 100000);
        bool is_new = add(&set, record_id_num(number + 1));
        if (is_new == seen[number]) {
            EXPECT(is_new != seen[number]);
            break;
        }
        seen[number] = true;
    }
    xfree(seen);
    const int64_t far[] = {INT64_MAX, INT64_MAX - 1, 1 << 30, (int64_t)1 << 40, -1, INT64_MIN};
    for (size_t i = 0; i < ARRAY_LEN(far); i++)
        EXPECT(add(&set, record_id_num(far[i])));
    for (size_t i = 0; i < ARRAY_LEN(far); i++)
        EXPECT(!add(&set, record_id_num(far[i])));
}

TEST(rid_set_of_bytes_knows_what_it_has_seen) {
    CLEANUP(rid_set_done) RidSet set = {0};
    for (int round = 0; round < 2; round++)
        for (uint32_t i = 0; i < 50000; i++) {
            char bytes[16];
            int size = snprintf(bytes, sizeof(bytes), "id-%u", i);
            RecordId rid = {.str = (const uint8_t *)bytes, .str_size = (uint32_t)size};
            if (add(&set, rid) != (round == 0)) {
                EXPECT(!"a mistake");
                return;
            }
        }
}

TEST(rid_set_of_a_whole_collection_is_small) {
    enum { DOCS = 10 * 1000 * 1000 };
    CLEANUP(rid_set_done) RidSet set = {0};
    for (int64_t i = 1; i <= DOCS; i++)
        if (!add(&set, record_id_num(i)))
            EXPECT(!"a mistake");
    EXPECT(set.bytes < 2 * DOCS / 8); /* 40 bytes each before */
}

TEST(rid_set_fails_when_it_would_be_too_large) {
    CLEANUP(rid_set_done) RidSet set = {.bytes_max = 100000};
    CLEANUP(error_reset) Error err = {0};
    ErrCode rc = ERR_OK;
    bool is_new;
    for (int64_t i = 1; rc == ERR_OK && i < 100000; i++)
        rc = rid_set_add(&set, record_id_num(i << 16), &is_new, &err);
    EXPECT_EQ_I64(rc, ERR_EXCEEDED_MEMORY_LIMIT);
    EXPECT(set.bytes < 300000);
}
