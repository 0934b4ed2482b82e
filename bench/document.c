/*
 * document.c - the documents of all workloads, over the network and on the engine alone.
 *
 * {_id: int, k: int, g: int, n: int, r: double, name: string, pad: string}. The padding is a window
 * into a pool of text that does not compress by itself, so that blocks behave like real data.
 */
#include <stdio.h>

#include "bench.h"
#include "bson/builder.h"

enum {
    TEXT_POOL_SIZE = 64 * 1024,
    DOC_FIXED_SIZE = 84, /* all but the padding's characters */
};

static char text_pool[TEXT_POOL_SIZE];

__attribute__((constructor)) static void fill_text_pool(void) {
    Prng prng = prng_seeded(1);
    for (int i = 0; i < TEXT_POOL_SIZE; i++)
        text_pool[i] = "abcdefghijklmnopqrstuvwxyz012345"[prng_u64(&prng) & 31];
}

int32_t bench_doc_k(int32_t id) {
    return (int32_t)(((uint32_t)id * 2654435761u) >> 1);
}

void bench_append_doc(Buffer *buf, int32_t id, uint32_t size) {
    Prng prng = prng_seeded((uint64_t)id);
    size_t pad_size = size > DOC_FIXED_SIZE ? size - DOC_FIXED_SIZE : 0;
    if (pad_size > TEXT_POOL_SIZE / 2)
        pad_size = TEXT_POOL_SIZE / 2;
    size_t offset = prng_below(&prng, TEXT_POOL_SIZE - pad_size);
    DocBuilder b;
    doc_builder_init(&b, buf);
    build_i32(&b, "_id", id);
    build_i32(&b, "k", bench_doc_k(id));
    build_i32(&b, "g", id % BENCH_GROUPS);
    build_i32(&b, "n", 0);
    build_f64(&b, "r", prng_unit(&prng));
    build_str(&b, "name", (Str){text_pool + (offset & 1023), 12});
    build_str(&b, "pad", (Str){text_pool + offset, pad_size});
    doc_builder_end(&b);
}
