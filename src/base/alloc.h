/*
 * alloc.h - heap memory that aborts on exhaustion.
 *
 * Only for sizes that a client does not control; what a client controls comes from an Arena or a
 * Buffer with a limit. Aborting keeps every caller free of an error path that could not be tested.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* Once, at the start of a server: large blocks are returned to the system when they are freed. */
void alloc_setup(void);

/* For a process that keeps little: its threads share a few heaps, so that what one of them freed
 * serves the others. Before there are threads. */
void alloc_share_heaps(void);

void *xmalloc(size_t size) __attribute__((malloc, returns_nonnull));
void *xcalloc(size_t count, size_t size) __attribute__((malloc, returns_nonnull));
void *xrealloc(void *old, size_t size) __attribute__((returns_nonnull));
void *xmemdup(const void *data, size_t size) __attribute__((returns_nonnull));
char *xstrdup(const char *text) __attribute__((returns_nonnull));
char *xstrndup(const char *text, size_t size) __attribute__((returns_nonnull));
char *xasprintf(const char *fmt, ...) PRINTF_LIKE(1, 2) __attribute__((returns_nonnull));
void xfree(void *memory);

/* For CLEANUP: frees the pointer that a `char *` (or other) variable holds. */
void xfree_ptr(void *pointer_to_pointer);

#define NEW(type) ((type *)xcalloc(1, sizeof(type)))

/* Moves a pointer out of a variable, which becomes NULL. */
#define TAKE_PTR(ptr)                                                                              \
    ({                                                                                             \
        __typeof__(ptr) taken_ = (ptr);                                                            \
        (ptr) = NULL;                                                                              \
        taken_;                                                                                    \
    })

/* Grows `array` (heap, elements of any type) so that `count + 1` elements fit. */
#define ARRAY_RESERVE(array, count, capacity)                                                      \
    do {                                                                                           \
        if ((count) == (capacity)) {                                                               \
            (capacity) = (capacity) ? (capacity)*2 : 8;                                            \
            (array) = xrealloc((array), (capacity) * sizeof(*(array)));                            \
        }                                                                                          \
    } while (0)
