#include "base/arena.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"

struct ArenaChunk {
    ArenaChunk *older;
    size_t size; /* of data[] */
    _Alignas(8) uint8_t data[];
};

static void push_chunk(Arena *arena, size_t size);
static void use_chunk(Arena *arena, ArenaChunk *chunk);

void arena_init(Arena *arena, size_t chunk_size) {
    *arena = (Arena){.chunk_size = chunk_size};
}

void arena_done(Arena *arena) {
    ArenaChunk *chunk = arena->chunk;
    while (chunk != NULL) {
        ArenaChunk *older = chunk->older;
        xfree(chunk);
        chunk = older;
    }
    *arena = (Arena){0};
}

void arena_reset(Arena *arena) {
    ArenaChunk *keep = arena->chunk;
    if (keep == NULL)
        return;
    ArenaChunk *chunk = keep->older;
    while (chunk != NULL) {
        ArenaChunk *older = chunk->older;
        xfree(chunk);
        chunk = older;
    }
    keep->older = NULL;
    arena->used_in_older = 0;
    if (keep->size > ARENA_KEEP_SIZE_MAX) {
        xfree(keep);
        *arena = (Arena){.chunk_size = arena->chunk_size};
        return;
    }
    use_chunk(arena, keep);
}

size_t arena_used(const Arena *arena) {
    if (arena->chunk == NULL)
        return 0;
    return arena->used_in_older + (size_t)(arena->next - arena->chunk->data);
}

ArenaMark arena_mark(const Arena *arena) {
    return (ArenaMark){arena->chunk, arena->next, arena->used_in_older};
}

void arena_rewind(Arena *arena, ArenaMark mark) {
    if (mark.chunk == NULL) {
        arena_reset(arena);
        return;
    }
    while (arena->chunk != mark.chunk) {
        ArenaChunk *older = arena->chunk->older;
        xfree(arena->chunk);
        arena->chunk = older;
    }
    arena->next = mark.next;
    arena->end = mark.chunk->data + mark.chunk->size;
    arena->used_in_older = mark.used_in_older;
}

void *arena_rewind_keeping(Arena *arena, ArenaMark mark, const void *data, size_t size,
                           size_t capacity) {
    /* The younger chunks, one of which may hold the bytes, go only when these have moved. */
    ArenaChunk *younger = NULL;
    while (arena->chunk != mark.chunk) {
        ArenaChunk *chunk = arena->chunk;
        arena->chunk = chunk->older;
        chunk->older = younger;
        younger = chunk;
    }
    arena->next = mark.next;
    arena->end = mark.chunk != NULL ? mark.chunk->data + mark.chunk->size : NULL;
    arena->used_in_older = mark.used_in_older;
    void *kept = arena_alloc(arena, capacity);
    if (size > 0)
        memmove(kept, data, size);
    while (younger != NULL) {
        ArenaChunk *next = younger->older;
        xfree(younger);
        younger = next;
    }
    return kept;
}

void *arena_alloc_slow(Arena *arena, size_t size) {
    size_t chunk_size = arena->chunk_size ? arena->chunk_size : ARENA_CHUNK_SIZE_DEFAULT;
    /* Chunks double, so that a large request costs a logarithmic number of mallocs. */
    if (arena->chunk != NULL && arena->chunk->size < 8 * 1024 * 1024)
        chunk_size = arena->chunk->size * 2;
    push_chunk(arena, size > chunk_size ? size : chunk_size);
    void *memory = arena->next;
    arena->next += size;
    return memory;
}

void *arena_zalloc(Arena *arena, size_t size) {
    void *memory = arena_alloc(arena, size);
    return size > 0 ? memset(memory, 0, size) : memory;
}

void *arena_memdup(Arena *arena, const void *data, size_t size) {
    void *copy = arena_alloc(arena, size);
    if (size > 0)
        memcpy(copy, data, size);
    return copy;
}

char *arena_strdup(Arena *arena, const char *text) {
    return arena_memdup(arena, text, strlen(text) + 1);
}

char *arena_strndup(Arena *arena, const char *text, size_t size) {
    char *copy = arena_alloc(arena, size + 1);
    if (size > 0)
        memcpy(copy, text, size);
    copy[size] = '\0';
    return copy;
}

char *arena_printf(Arena *arena, const char *fmt, ...) {
    va_list args;
    va_list again;
    va_start(args, fmt);
    va_copy(again, args);
    int size = vsnprintf(NULL, 0, fmt, args);
    invariant(size >= 0);
    char *text = arena_alloc(arena, (size_t)size + 1);
    vsnprintf(text, (size_t)size + 1, fmt, again);
    va_end(again);
    va_end(args);
    return text;
}

static void push_chunk(Arena *arena, size_t size) {
    if (arena->chunk != NULL)
        arena->used_in_older += (size_t)(arena->next - arena->chunk->data);
    ArenaChunk *chunk = xmalloc(sizeof(ArenaChunk) + size);
    chunk->older = arena->chunk;
    chunk->size = size;
    use_chunk(arena, chunk);
}

static void use_chunk(Arena *arena, ArenaChunk *chunk) {
    arena->chunk = chunk;
    arena->next = chunk->data;
    arena->end = chunk->data + chunk->size;
}
