/*
 * arena.h - memory with one lifetime: allocate by bumping, free all at once.
 *
 * Each request has one; loops over documents use a second one and rewind it per document. A reset
 * keeps the first chunk, so that a warm arena serves small requests without malloc.
 *
 * Bounds: allocation itself never fails (it aborts only when the machine is out of memory). What a
 * client can make grow is checked with arena_used against a limit at the operation's check points;
 * single allocations are bounded by the size of a message.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

typedef struct ArenaChunk ArenaChunk;

typedef struct Arena {
    uint8_t *next;
    uint8_t *end;
    ArenaChunk *chunk;    /* newest chunk, linked to older ones */
    size_t used_in_older; /* bytes of all chunks but the newest */
    size_t chunk_size;
} Arena;

/* A position to return to with arena_rewind. */
typedef struct ArenaMark {
    ArenaChunk *chunk;
    uint8_t *next;
    size_t used_in_older;
} ArenaMark;

enum {
    ARENA_CHUNK_SIZE_DEFAULT = 16 * 1024,
    ARENA_KEEP_SIZE_MAX = 256 * 1024, /* a larger newest chunk is freed at reset */
};

void arena_init(Arena *arena, size_t chunk_size);
void arena_done(Arena *arena);
void arena_reset(Arena *arena);
size_t arena_used(const Arena *arena);

ArenaMark arena_mark(const Arena *arena);
void arena_rewind(Arena *arena, ArenaMark mark);
/* As arena_rewind, but moves the `size` bytes at `data`, allocated after the mark or elsewhere, to
 * the mark; `capacity` bytes are there for them. */
void *arena_rewind_keeping(Arena *arena, ArenaMark mark, const void *data, size_t size,
                           size_t capacity);

void *arena_alloc_slow(Arena *arena, size_t size);

/* 8-byte aligned, not zeroed. */
static inline void *arena_alloc(Arena *arena, size_t size) {
    size_t rounded = (size + 7) & ~(size_t)7;
    if (LIKELY(rounded <= (size_t)(arena->end - arena->next))) {
        void *memory = arena->next;
        arena->next += rounded;
        return memory;
    }
    return arena_alloc_slow(arena, rounded);
}

void *arena_zalloc(Arena *arena, size_t size);
void *arena_memdup(Arena *arena, const void *data, size_t size);
char *arena_strdup(Arena *arena, const char *text);
char *arena_strndup(Arena *arena, const char *text, size_t size);
char *arena_printf(Arena *arena, const char *fmt, ...) PRINTF_LIKE(2, 3);

#define ARENA_NEW(arena, type)          ((type *)arena_zalloc((arena), sizeof(type)))
#define ARENA_ARRAY(arena, type, count) ((type *)arena_zalloc((arena), sizeof(type) * (count)))
