/*
 * buffer.h - a growable run of bytes with an upper bound.
 *
 * Backed by the heap, or by an arena when one is given (then growth leaves the old bytes behind
 * until the arena is reset; take it for short-lived output such as replies). Appending past
 * `size_max` does not fail at once: the buffer becomes `overflowed`, ignores further bytes, and the
 * writer checks once at the end with buffer_check. This keeps builders linear. A buffer of bound
 * BUFFER_UNBOUNDED needs no check.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/arena.h"
#include "base/error.h"

typedef struct Buffer {
    uint8_t *data;
    size_t size;
    size_t capacity;
    size_t size_max;
    Arena *arena; /* NULL: heap */
    bool overflowed;
} Buffer;

/* The bound of an unbounded buffer: for content whose size is bounded elsewhere. */
#define BUFFER_UNBOUNDED (SIZE_MAX / 2)

void buffer_init(Buffer *buf, size_t size_max);
void buffer_init_arena(Buffer *buf, Arena *arena, size_t capacity, size_t size_max);
void buffer_done(Buffer *buf);
void buffer_clear(Buffer *buf);

/* Fails with ERR_BSON_OBJECT_TOO_LARGE when something did not fit. */
ErrCode buffer_check(const Buffer *buf, const char *what, Error *err) MUST_CHECK;

bool buffer_grow(Buffer *buf, size_t extra);

/* Room for `extra` more bytes at data + size, or NULL when that would pass the bound. */
static inline uint8_t *buffer_reserve(Buffer *buf, size_t extra) {
    if (UNLIKELY(extra > buf->capacity - buf->size) && !buffer_grow(buf, extra))
        return NULL;
    return buf->data + buf->size;
}

static inline void buffer_append(Buffer *buf, const void *data, size_t size) {
    uint8_t *at = buffer_reserve(buf, size);
    if (LIKELY(at != NULL) && size > 0) {
        memcpy(at, data, size);
        buf->size += size;
    }
}

static inline void buffer_append_byte(Buffer *buf, uint8_t byte) {
    uint8_t *at = buffer_reserve(buf, 1);
    if (LIKELY(at != NULL)) {
        *at = byte;
        buf->size++;
    }
}

void buffer_printf(Buffer *buf, const char *fmt, ...) PRINTF_LIKE(2, 3);
