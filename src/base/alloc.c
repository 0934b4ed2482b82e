#include "base/alloc.h"

#include <malloc.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MMAP_BYTES_MIN = 256 * 1024,
    SHARED_HEAPS = 2,
};

/* By itself glibc takes the first large block that is freed as a sign to keep such blocks in the
 * heaps of its threads, up to 32 MB each: after 48 MB inserts on 16 connections 2.7 GB were kept
 * that nobody used. A fixed threshold keeps these in mappings of their own; a mapping costs little
 * beside what is done with so much. It is just below what WiredTiger allocates per session for ids
 * of concurrent transactions (264 KB, of which a few are used): of a mapping only those pages
 * count. */
void alloc_setup(void) {
    (void)mallopt(M_MMAP_THRESHOLD, MMAP_BYTES_MIN);
}

void alloc_share_heaps(void) {
    (void)mallopt(M_ARENA_MAX, SHARED_HEAPS);
}

static void *check(void *memory, size_t size) {
    if (UNLIKELY(memory == NULL))
        panic("out of memory: %zu bytes", size);
    return memory;
}

void *xmalloc(size_t size) {
    return check(malloc(size ? size : 1), size);
}

void *xcalloc(size_t count, size_t size) {
    return check(calloc(count ? count : 1, size ? size : 1), count * size);
}

void *xrealloc(void *old, size_t size) {
    return check(realloc(old, size ? size : 1), size);
}

void *xmemdup(const void *data, size_t size) {
    void *copy = xmalloc(size);
    if (size > 0)
        memcpy(copy, data, size);
    return copy;
}

char *xstrdup(const char *text) {
    return xmemdup(text, strlen(text) + 1);
}

char *xstrndup(const char *text, size_t size) {
    char *copy = xmalloc(size + 1);
    if (size > 0)
        memcpy(copy, text, size);
    copy[size] = '\0';
    return copy;
}

char *xasprintf(const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    char *text = NULL;
    int size = vasprintf(&text, fmt, args);
    va_end(args);
    if (size < 0)
        panic("out of memory: formatted text");
    return text;
}

void xfree(void *memory) {
    free(memory);
}

void xfree_ptr(void *pointer_to_pointer) {
    void *memory;
    memcpy(&memory, pointer_to_pointer, sizeof(memory));
    free(memory);
}
