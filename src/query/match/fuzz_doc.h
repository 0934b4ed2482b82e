/*
 * fuzz_doc.h - documents for the fuzzers of the query language, made from arbitrary bytes.
 *
 * Raw bytes rarely are a valid document and hardly ever one with operators in it. So the first byte
 * of an input chooses: either the rest is BSON as it would come from a client and is validated, or
 * its bytes choose names and types from short lists.
 */
#pragma once

#include "bson/builder.h"
#include "bson/validate.h"

typedef struct FuzzInput {
    const uint8_t *at;
    const uint8_t *end;
    const char *const *names;
    size_t name_count;
} FuzzInput;

static inline uint8_t fuzz_take(FuzzInput *in) {
    return in->at < in->end ? *in->at++ : 0;
}

static inline void fuzz_value(FuzzInput *in, DocBuilder *b, Str name, int depth);

static inline void fuzz_fields(FuzzInput *in, DocBuilder *b, bool is_array, int depth) {
    uint32_t count = fuzz_take(in) % 5;
    for (uint32_t i = 0; i < count; i++) {
        char buffer[INDEX_NAME_SIZE];
        Str name =
            is_array ? index_name(i, buffer) : str_from(in->names[fuzz_take(in) % in->name_count]);
        fuzz_value(in, b, name, depth);
    }
}

static inline void fuzz_value(FuzzInput *in, DocBuilder *b, Str name, int depth) {
    static const int64_t NUMBERS[] = {0,  1,       2,         -1,        63,
                                      64, 1 << 30, INT32_MAX, INT64_MAX, INT64_MIN};
    static const char *const TEXTS[] = {"",  "a",   "x",       "^a",   "a.b",
                                        "i", "int", "(a|b)*c", "date", "b"};
    uint8_t choice = fuzz_take(in);
    uint8_t which = fuzz_take(in);
    int64_t number = NUMBERS[which % ARRAY_LEN(NUMBERS)];
    switch (choice % (depth > 0 ? 16 : 10)) {
    case 0:
        build_i32(b, name.data, (int32_t)number);
        return;
    case 1:
        build_i64(b, name.data, number);
        return;
    case 2:
        build_f64(b, name.data, which == 255 ? __builtin_nan("") : (double)number / 2);
        return;
    case 3:
    case 4:
        build_cstr(b, name.data, TEXTS[which % ARRAY_LEN(TEXTS)]);
        return;
    case 5:
        build_bool(b, name.data, which & 1);
        return;
    case 6:
        build_null(b, name.data);
        return;
    case 7: {
        uint8_t *value = build_value(b, BT_REGEX, name, 4);
        if (value != NULL)
            memcpy(value, which & 1 ? "^a\0" : "b\0i", 4);
        return;
    }
    case 8:
        build_binary(b, name.data, 0, &number, sizeof(number));
        return;
    case 9:
        build_value(b, which & 1 ? BT_MIN_KEY : BT_UNDEFINED, name, 0);
        return;
    case 10:
    case 11:
    case 12: {
        size_t inner = build_open_array_str(b, name);
        fuzz_fields(in, b, true, depth - 1);
        build_close(b, inner);
        return;
    }
    default: {
        size_t inner = build_open_doc_str(b, name);
        fuzz_fields(in, b, false, depth - 1);
        build_close(b, inner);
    }
    }
}

/* The next document of the input, made or validated; false when there is none. */
static inline bool fuzz_next_doc(FuzzInput *in, bool is_raw, Arena *arena, Doc *ret_doc) {
    if (is_raw) {
        size_t left = (size_t)(in->end - in->at);
        if (left < BSON_DOC_SIZE_MIN)
            return false;
        int32_t size = load_i32(in->at);
        Error err = {0};
        if (size < BSON_DOC_SIZE_MIN || (size_t)size > left ||
            doc_validate(in->at, (size_t)size, BSON_DEPTH_MAX, VALIDATE_BASIC, &err) != ERR_OK) {
            error_reset(&err);
            return false;
        }
        *ret_doc = (Doc){arena_memdup(arena, in->at, (size_t)size)};
        in->at += size;
        return true;
    }
    if (in->at == in->end)
        return false;
    Buffer buf;
    buffer_init_arena(&buf, arena, 256, 1 << 20);
    DocBuilder b;
    doc_builder_init(&b, &buf);
    fuzz_fields(in, &b, false, 5);
    return doc_builder_try_finish(&b, ret_doc);
}
