#include "base/buffer.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/alloc.h"

enum {
    BUFFER_CAPACITY_MIN = 256,
};

void buffer_init(Buffer *buf, size_t size_max) {
    *buf = (Buffer){.size_max = size_max};
}

void buffer_init_arena(Buffer *buf, Arena *arena, size_t capacity, size_t size_max) {
    capacity = capacity < size_max ? capacity : size_max;
    *buf = (Buffer){.size_max = size_max, .arena = arena, .capacity = capacity};
    buf->data = arena_alloc(arena, capacity);
}

void buffer_done(Buffer *buf) {
    if (buf->arena == NULL)
        xfree(buf->data);
    *buf = (Buffer){0};
}

void buffer_clear(Buffer *buf) {
    buf->size = 0;
    buf->overflowed = false;
}

ErrCode buffer_check(const Buffer *buf, const char *what, Error *err) {
    if (buf->overflowed)
        return error_set(err, ERR_BSON_OBJECT_TOO_LARGE, "%s is larger than the limit of %zu bytes",
                         what, buf->size_max);
    return ERR_OK;
}

bool buffer_grow(Buffer *buf, size_t extra) {
    if (buf->overflowed || extra > buf->size_max || buf->size > buf->size_max - extra) {
        buf->overflowed = true;
        return false;
    }
    size_t capacity = buf->capacity < BUFFER_CAPACITY_MIN ? BUFFER_CAPACITY_MIN : buf->capacity * 2;
    if (capacity < buf->size + extra)
        capacity = buf->size + extra;
    /* Never more than the bound: room that is there is taken without asking again. */
    if (capacity > buf->size_max)
        capacity = buf->size_max;
    if (buf->arena != NULL) {
        uint8_t *data = arena_alloc(buf->arena, capacity);
        if (buf->size > 0)
            memcpy(data, buf->data, buf->size);
        buf->data = data;
    } else {
        buf->data = xrealloc(buf->data, capacity);
    }
    buf->capacity = capacity;
    return true;
}

void buffer_printf(Buffer *buf, const char *fmt, ...) {
    va_list args;
    va_list again;
    va_start(args, fmt);
    va_copy(again, args);
    int size = vsnprintf(NULL, 0, fmt, args);
    invariant(size >= 0);
    uint8_t *at = buffer_reserve(buf, (size_t)size + 1);
    if (at != NULL) {
        vsnprintf((char *)at, (size_t)size + 1, fmt, again);
        buf->size += (size_t)size;
    }
    va_end(again);
    va_end(args);
}
