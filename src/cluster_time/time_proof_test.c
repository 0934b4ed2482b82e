/* SES-6: proofs of cluster times, the choice of keys and when new ones are made. */
#include "cluster_time/time_proof.h"

#include "base/alloc.h"
#include "base/test.h"
#include "base/thread.h"

#define AT(secs, counter) ((uint64_t)(secs) << 32 | (counter))

static TimeKey key_of(int64_t id, uint64_t expires_ts, bool is_committed) {
    TimeKey key = {.id = id, .expires_ts = expires_ts, .is_committed = is_committed};
    for (int i = 0; i < TIME_KEY_BYTES; i++)
        key.bytes[i] = (uint8_t)i;
    return key;
}

/* Made with another implementation of HMAC-SHA1. */
TEST(time_proof_is_hmac_sha1_of_the_end_of_the_block) {
    static const struct {
        uint64_t ts;
        const char *hex;
    } ROWS[] = {
        {0x6000000000000001, "ab328b4da5b178bfe6bf389e733e79027326f8d5"},
        {AT(1700000000, 1), "ed1f6fc18dfd2b0fd969600cd44d5ec2b4154f79"},
        {AT(1700000000, 0xFFFF), "ed1f6fc18dfd2b0fd969600cd44d5ec2b4154f79"},
        {AT(1700000000, 0x10000), "ad6dc3a6ddbe8d5f41bf4fe4dc38843401b95f98"},
    };
    TimeKey key = key_of(7, AT(1800000000, 0), true);
    for (size_t i = 0; i < ARRAY_LEN(ROWS); i++) {
        TimeProof proof;
        time_proof_make(&key, ROWS[i].ts, &proof);
        char hex[2 * TIME_HASH_BYTES + 1];
        for (int j = 0; j < TIME_HASH_BYTES; j++)
            snprintf(hex + 2 * j, 3, "%02x", proof.hash[j]);
        EXPECT_STR(hex, ROWS[i].hex);
        EXPECT_EQ_I64(proof.key_id, 7);
        EXPECT_EQ_U64(proof.block, ROWS[i].ts | 0xFFFF);
        EXPECT(time_proof_equal(&proof, proof.hash));
        uint8_t forged[TIME_HASH_BYTES];
        memcpy(forged, proof.hash, sizeof(forged));
        forged[TIME_HASH_BYTES - 1] ^= 1;
        EXPECT(!time_proof_equal(&proof, forged));
    }
}

TEST(time_key_that_expires_first_signs_if_a_majority_has_it) {
    const TimeKey keys[] = {
        key_of(1, AT(100, 0), true),
        key_of(3, AT(300, 0), true),
        key_of(2, AT(200, 0), true),
        key_of(4, AT(400, 0), false),
    };
    static const struct {
        uint64_t ts;
        int64_t want; /* 0: none */
    } ROWS[] = {
        {AT(1, 1), 1},   {AT(99, UINT32_MAX), 1}, {AT(100, 0), 2},
        {AT(250, 9), 3}, {AT(300, 1), 0},         {AT(999, 1), 0},
    };
    for (size_t i = 0; i < ARRAY_LEN(ROWS); i++) {
        const TimeKey *chosen = time_key_choose(keys, ARRAY_LEN(keys), false, ROWS[i].ts);
        EXPECT_EQ_I64(chosen != NULL ? chosen->id : 0, ROWS[i].want);
    }
    EXPECT(time_key_choose(NULL, 0, false, AT(1, 1)) == NULL);
    /* A set that belongs to a cluster does not sign with its own. */
    EXPECT(time_key_choose(keys, ARRAY_LEN(keys), true, AT(1, 1)) == NULL);
    EXPECT_EQ_I64(time_key_find(keys, ARRAY_LEN(keys), 4)->id, 4);
    EXPECT(time_key_find(keys, ARRAY_LEN(keys), 5) == NULL);
}

TEST(time_key_plan_has_always_one_for_now_and_one_for_later) {
    static const struct {
        uint64_t expires_secs[3]; /* 0: no key */
        uint64_t now_ts;
        uint64_t want_secs[2]; /* 0: none */
        int64_t want_due_secs;
    } ROWS[] = {
        {{0}, AT(1000, 5), {1010, 1020}, 0},
        {{1010, 1020}, AT(1000, 5), {0}, 10},
        {{1010, 1020}, AT(1009, UINT32_MAX), {0}, 1},
        {{1010, 1020}, AT(1010, 0), {1030}, 0},       /* the later one signs now */
        {{1010, 1020}, AT(1020, 0), {1030, 1040}, 0}, /* nobody was there for long */
        {{1010, 1020, 1030}, AT(1015, 1), {0}, 5},
        {{0}, AT(UINT32_MAX - 5, 1), {UINT32_MAX, UINT32_MAX}, 0}, /* the end of time */
    };
    for (size_t i = 0; i < ARRAY_LEN(ROWS); i++) {
        TimeKey keys[3];
        size_t count = 0;
        for (int j = 0; j < 3 && ROWS[i].expires_secs[j] != 0; j++)
            keys[count++] = key_of(j + 1, AT(ROWS[i].expires_secs[j], 0), true);
        TimeKeyPlan plan = time_key_plan(keys, count, ROWS[i].now_ts, /* interval_secs= */ 10);
        for (uint32_t j = 0; j < 2; j++)
            EXPECT_EQ_U64(j < plan.count ? plan.expires_ts[j] >> 32 : 0, ROWS[i].want_secs[j]);
        EXPECT_EQ_I64(time_key_plan_due_secs(keys, count, ROWS[i].now_ts), ROWS[i].want_due_secs);
    }
}

typedef struct SlotReader {
    TimeProofSlot *slot;
    _Atomic bool *is_over;
    int64_t torn;
    int64_t read;
} SlotReader;

static void read_slot(void *arg) {
    SlotReader *reader = arg;
    while (!atomic_load(reader->is_over)) {
        TimeProof proof;
        if (!time_proof_try_read(reader->slot, &proof))
            continue;
        reader->read++;
        for (int i = 0; i < TIME_HASH_BYTES; i++)
            reader->torn += proof.hash[i] != (uint8_t)proof.block;
        reader->torn += proof.key_id != (int64_t)proof.block;
    }
}

TEST(time_proof_slot_never_shows_half_a_proof) {
    /* Goal: readers see one proof or another, whole. Method: all bytes of a proof tell its number.
     */
    TimeProofSlot slot = {0};
    _Atomic bool is_over = false;
    SlotReader reader = {.slot = &slot, .is_over = &is_over};
    TimeProof proof;
    EXPECT(time_proof_try_read(&slot, &proof));
    EXPECT_EQ_U64(proof.block, 0);
    Thread thread = {0};
    Error err = {0};
    REQUIRE(thread_start(&thread, "slot", read_slot, &reader, &err) == ERR_OK);
    for (uint64_t i = 1; i <= 200000; i++) {
        TimeProof next = {.block = i, .key_id = (int64_t)i};
        memset(next.hash, (int)(i & 0xFF), sizeof(next.hash));
        time_proof_publish(&slot, &next);
    }
    atomic_store(&is_over, true);
    thread_join(&thread);
    EXPECT_EQ_I64(reader.torn, 0);
    EXPECT(time_proof_try_read(&slot, &proof));
    EXPECT_EQ_U64(proof.block, 200000);
}
