/*
 * crc32c.c - CRC-32C by the SSE4.2 instruction, or by four tables where that is missing.
 *
 * The tables are built before main() runs: 4 KiB, some microseconds, and no flag to test later.
 */
#include "base/crc32c.h"

#include <string.h>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

enum {
    CRC32C_POLYNOMIAL_REFLECTED = 0x82F63B78,
    CRC32C_TABLES = 4,
};

static uint32_t tables[CRC32C_TABLES][256]; /* Set before main(), then constant. */

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) static uint32_t
extend_by_instruction(uint32_t before, const void *data, size_t size) {
    const uint8_t *at = data;
    uint64_t crc = ~before;
    for (; size >= 8; at += 8, size -= 8) {
        uint64_t word;
        memcpy(&word, at, sizeof(word));
        crc = _mm_crc32_u64(crc, word);
    }
    uint32_t narrow = (uint32_t)crc;
    for (; size > 0; at++, size--)
        narrow = _mm_crc32_u8(narrow, *at);
    return ~narrow;
}
#endif

static uint32_t extend_by_table(uint32_t before, const void *data, size_t size) {
    const uint8_t *at = data;
    uint32_t crc = ~before;
    for (; size >= 4; at += 4, size -= 4) {
        uint32_t word;
        memcpy(&word, at, sizeof(word));
        crc ^= word;
        crc = tables[3][crc & 0xFF] ^ tables[2][(crc >> 8) & 0xFF] ^ tables[1][(crc >> 16) & 0xFF] ^
              tables[0][crc >> 24];
    }
    for (; size > 0; at++, size--)
        crc = (crc >> 8) ^ tables[0][(crc ^ *at) & 0xFF];
    return ~crc;
}

uint32_t crc32c_extend(uint32_t before, const void *data, size_t size) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("sse4.2"))
        return extend_by_instruction(before, data, size);
#endif
    return extend_by_table(before, data, size);
}

uint32_t crc32c(const void *data, size_t size) {
    return crc32c_extend(0, data, size);
}

uint32_t crc32c_by_table(const void *data, size_t size) {
    return extend_by_table(0, data, size);
}

__attribute__((constructor)) static void tables_build(void) {
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++)
            crc = (crc >> 1) ^ ((crc & 1) != 0 ? (uint32_t)CRC32C_POLYNOMIAL_REFLECTED : 0);
        tables[0][byte] = crc;
    }
    for (int table = 1; table < CRC32C_TABLES; table++)
        for (uint32_t byte = 0; byte < 256; byte++) {
            uint32_t before = tables[table - 1][byte];
            tables[table][byte] = (before >> 8) ^ tables[0][before & 0xFF];
        }
}
