#include "base/md5.h"

#include <string.h>

/* The n-th is the integer part of 2^32 * |sin(n + 1)|. */
static const uint32_t SINES[64] = {
    0xd76aa478, 0xe8c7b756, 0x242070db, 0xc1bdceee, 0xf57c0faf, 0x4787c62a, 0xa8304613, 0xfd469501,
    0x698098d8, 0x8b44f7af, 0xffff5bb1, 0x895cd7be, 0x6b901122, 0xfd987193, 0xa679438e, 0x49b40821,
    0xf61e2562, 0xc040b340, 0x265e5a51, 0xe9b6c7aa, 0xd62f105d, 0x02441453, 0xd8a1e681, 0xe7d3fbc8,
    0x21e1cde6, 0xc33707d6, 0xf4d50d87, 0x455a14ed, 0xa9e3e905, 0xfcefa3f8, 0x676f02d9, 0x8d2a4c8a,
    0xfffa3942, 0x8771f681, 0x6d9d6122, 0xfde5380c, 0xa4beea44, 0x4bdecfa9, 0xf6bb4b60, 0xbebfbc70,
    0x289b7ec6, 0xeaa127fa, 0xd4ef3085, 0x04881d05, 0xd9d4d039, 0xe6db99e5, 0x1fa27cf8, 0xc4ac5665,
    0xf4292244, 0x432aff97, 0xab9423a7, 0xfc93a039, 0x655b59c3, 0x8f0ccc92, 0xffeff47d, 0x85845dd1,
    0x6fa87e4f, 0xfe2ce6e0, 0xa3014314, 0x4e0811a1, 0xf7537e82, 0xbd3af235, 0x2ad7d2bb, 0xeb86d391,
};
/* By how much each step of a round rotates. */
static const uint8_t SHIFTS[4][4] = {
    {7, 12, 17, 22}, {5, 9, 14, 20}, {4, 11, 16, 23}, {6, 10, 15, 21}};

void md5_init(Md5 *md5) {
    md5->state[0] = 0x67452301;
    md5->state[1] = 0xefcdab89;
    md5->state[2] = 0x98badcfe;
    md5->state[3] = 0x10325476;
    md5->size = 0;
}

static inline uint32_t rotate(uint32_t word, uint32_t by) {
    return word << by | word >> (32 - by);
}

static inline uint32_t load_word(const uint8_t *at) {
    uint32_t word; /* little-endian, as all that we run on is */
    memcpy(&word, at, sizeof(word));
    return word;
}

/* The four rounds have a loop each, which the compiler unrolls: their functions and the order in
 * which they take the words of the block differ. */
static void add_block(Md5 *md5, const uint8_t *block) {
    uint32_t a = md5->state[0], b = md5->state[1], c = md5->state[2], d = md5->state[3];
#define MD5_STEP(i, mixed, word)                                                                   \
    do {                                                                                           \
        uint32_t sum = a + (mixed) + SINES[i] + load_word(block + 4 * (word));                     \
        a = d;                                                                                     \
        d = c;                                                                                     \
        c = b;                                                                                     \
        b += rotate(sum, SHIFTS[(i) / 16][(i) % 4]);                                               \
    } while (0)
#pragma GCC unroll 16
    for (uint32_t i = 0; i < 16; i++)
        MD5_STEP(i, d ^ (b & (c ^ d)), i);
#pragma GCC unroll 16
    for (uint32_t i = 16; i < 32; i++)
        MD5_STEP(i, c ^ (d & (b ^ c)), (5 * i + 1) % 16);
#pragma GCC unroll 16
    for (uint32_t i = 32; i < 48; i++)
        MD5_STEP(i, b ^ c ^ d, (3 * i + 5) % 16);
#pragma GCC unroll 16
    for (uint32_t i = 48; i < 64; i++)
        MD5_STEP(i, c ^ (b | ~d), 7 * i % 16);
#undef MD5_STEP
    md5->state[0] += a;
    md5->state[1] += b;
    md5->state[2] += c;
    md5->state[3] += d;
}

void md5_add(Md5 *md5, const void *data, size_t size) {
    const uint8_t *at = data;
    size_t held = md5->size % MD5_BLOCK_SIZE;
    md5->size += size;
    if (held + size < MD5_BLOCK_SIZE) {
        memcpy(md5->block + held, at, size);
        return;
    }
    if (held > 0) {
        size_t missing = MD5_BLOCK_SIZE - held;
        memcpy(md5->block + held, at, missing);
        add_block(md5, md5->block);
        at += missing;
        size -= missing;
    }
    for (; size >= MD5_BLOCK_SIZE; at += MD5_BLOCK_SIZE, size -= MD5_BLOCK_SIZE)
        add_block(md5, at);
    memcpy(md5->block, at, size);
}

/* One bit, zeroes up to the last eight bytes of a block, and the number of bits. */
void md5_end(Md5 *md5, uint8_t ret_digest[MD5_DIGEST_SIZE]) {
    enum { SIZE_AT = MD5_BLOCK_SIZE - 8 };
    uint64_t bits = md5->size * 8;
    size_t held = md5->size % MD5_BLOCK_SIZE;
    md5->block[held++] = 0x80;
    if (held > SIZE_AT) {
        memset(md5->block + held, 0, MD5_BLOCK_SIZE - held);
        add_block(md5, md5->block);
        held = 0;
    }
    memset(md5->block + held, 0, SIZE_AT - held);
    memcpy(md5->block + SIZE_AT, &bits, sizeof(bits));
    add_block(md5, md5->block);
    memcpy(ret_digest, md5->state, MD5_DIGEST_SIZE);
}
