/*
 * utf8.h - code points of UTF-8 text. Malformed bytes count as one code point each; nothing here
 * reads past the end.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "bson/doc.h"

static inline bool utf8_is_continuation(char byte) {
    return ((uint8_t)byte & 0xC0) == 0x80;
}

/* Bytes of the code point that begins at `at` < text.size. */
static inline size_t utf8_size_at(Str text, size_t at) {
    uint8_t first = (uint8_t)text.data[at];
    size_t size = first < 0xC0 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
    size_t real = 1;
    while (real < size && at + real < text.size && utf8_is_continuation(text.data[at + real]))
        real++;
    return real;
}

static inline size_t utf8_count(Str text) {
    size_t count = 0;
    for (size_t at = 0; at < text.size; at += utf8_size_at(text, at))
        count++;
    return count;
}

/* Offset of the code point with that index; text.size when there are fewer. */
static inline size_t utf8_offset(Str text, size_t index) {
    size_t at = 0;
    for (; index > 0 && at < text.size; index--)
        at += utf8_size_at(text, at);
    return at;
}
