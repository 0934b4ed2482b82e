/*
 * token_fuzz.c - tokens from outside: any is refused, or decodes to one that encodes to the same.
 *
 * Input: one byte of form (0: the rest is a key, which becomes hex digits; else the rest is the
 * text itself), one byte that says how many of the following bytes are type bits.
 */
#include "bson/builder.h"
#include "change_stream/token.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void build_hex(DocBuilder *b, Arena *arena, const uint8_t *data, size_t size) {
    static const char DIGITS[] = "0123456789ABCDEF";
    char *text = arena_alloc(arena, size * 2 + 1);
    for (size_t i = 0; i < size; i++) {
        text[i * 2] = DIGITS[data[i] >> 4];
        text[i * 2 + 1] = DIGITS[data[i] & 15];
    }
    build_str(b, "_data", (Str){text, size * 2});
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 2)
        return 0;
    CLEANUP(arena_done) Arena arena = {0};
    CLEANUP(error_reset) Error err = {0};
    size_t bits = data[1] < size - 2 ? data[1] : size - 2;
    const uint8_t *rest = data + 2 + bits;
    size_t rest_size = size - 2 - bits;
    DocBuilder b = doc_builder_in_arena(&arena);
    if (data[0] == 0)
        build_hex(&b, &arena, rest, rest_size);
    else
        build_str(&b, "_data", (Str){(const char *)rest, rest_size});
    if (bits > 0)
        build_binary(&b, "_typeBits", 0, data + 2, bits);
    StreamToken token, again;
    if (token_decode(doc_builder_end(&b), &arena, &token, &err) != ERR_OK)
        return 0;
    Doc encoded = token_encode(&token, &arena);
    invariant(token_decode(encoded, &arena, &again, &err) == ERR_OK);
    invariant(doc_equal_bytes(encoded, token_encode(&again, &arena)));
    return 0;
}
