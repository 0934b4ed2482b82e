/*
 * update_delta_fuzz.c - deltas from outside: any is applied or refused, and what is computed leads
 * from one document to the other.
 *
 * Input: one byte of form (fuzz_doc.h), then two documents and a delta.
 */
#include "query/match/fuzz_doc.h"
#include "query/update/update_delta.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const NAMES[] = {"a",  "b",  "u",  "d",  "i",  "l",   "s",     "sa",
                                    "sb", "u0", "u1", "s0", "s1", "u12", "u0001", ""};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 2)
        return 0;
    FuzzInput in = {data + 1, data + size, NAMES, ARRAY_LEN(NAMES)};
    bool is_raw = data[0] == 0;
    CLEANUP(arena_done) Arena arena = {0};
    CLEANUP(error_reset) Error err = {0};
    Doc before, after, delta, made;
    if (!fuzz_next_doc(&in, is_raw, &arena, &before) || !fuzz_next_doc(&in, is_raw, &arena, &after))
        return 0;
    if (update_delta_compute(before, after, &arena, &delta)) {
        invariant(update_delta_apply(before, delta, &arena, &made, &err) == ERR_OK);
        invariant(doc_equal_bytes(made, after));
    }
    if (!fuzz_next_doc(&in, is_raw, &arena, &delta))
        return 0;
    ErrCode rc = update_delta_apply(before, delta, &arena, &made, &err);
    invariant(rc == ERR_OK || rc == ERR_FAILED_TO_PARSE || rc == ERR_BSON_OBJECT_TOO_LARGE);
    if (rc == ERR_OK)
        invariant(doc_validate(made.data, doc_size(made), 1000, VALIDATE_BASIC, &err) == ERR_OK);
    return 0;
}
