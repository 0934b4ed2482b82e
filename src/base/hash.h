/*
 * hash.h - hashing of bytes for in-memory tables. Not stable across versions; never persisted.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Multiply-and-fold over 8-byte words; good spread, about 1 ns for short names. */
static inline uint64_t hash_bytes(const void *data, size_t size) {
    const uint8_t *at = data;
    uint64_t h = 0x9E3779B97F4A7C15u + size * 0xC2B2AE3D27D4EB4Fu;
    while (size >= 8) {
        uint64_t word;
        memcpy(&word, at, 8);
        __uint128_t product = (__uint128_t)(h ^ word) * 0xD6E8FEB86659FD93u;
        h = (uint64_t)product ^ (uint64_t)(product >> 64);
        at += 8;
        size -= 8;
    }
    /* The tail in words that may overlap: a copy of unknown size would be a loop. */
    uint64_t tail = 0;
    if (size >= 4) {
        uint32_t low, high;
        memcpy(&low, at, 4);
        memcpy(&high, at + size - 4, 4);
        tail = low | (uint64_t)high << 32;
    } else if (size > 0) {
        tail = at[0] | (uint64_t)at[size / 2] << 8 | (uint64_t)at[size - 1] << 16;
    }
    __uint128_t product = (__uint128_t)(h ^ tail) * 0xA0761D6478BD642Fu;
    h = (uint64_t)product ^ (uint64_t)(product >> 64);
    return h ^ (h >> 29);
}

static inline uint64_t hash_text(const char *text) {
    return hash_bytes(text, strlen(text));
}
