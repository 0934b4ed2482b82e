/*
 * window.h - what the parts of $setWindowFields share.
 *
 * Documents come sorted, partition by partition. For each of them a window is a run of documents
 * of its partition, told by two indexes that never go back. A window function sees documents enter
 * and leave its window and gives a value.
 *
 *     stage_window.c             parsing, sorting, partitions, output
 *     window_bounds.c            from {documents: ...} and {range: ...} to the two indexes
 *     window_functions_acc.c     accumulators as window functions
 *     window_functions_series.c  functions that depend on the order
 */
#pragma once

#include "query/agg/accumulator.h"
#include "query/agg/agg_internal.h"
#include "query/expr/date_math.h"

typedef struct WindowClass WindowClass;
typedef struct WindowPartition WindowPartition;

typedef enum WindowBoundKind {
    BOUND_UNBOUNDED,
    BOUND_OFFSET, /* "current" is offset 0 */
} WindowBoundKind;

typedef struct WindowBound {
    WindowBoundKind kind;
    int64_t documents; /* offset from the current document, or in units */
    Value range;       /* offset from its sort value; with a unit a whole number */
} WindowBound;

typedef struct WindowBounds {
    bool is_given;
    bool is_range;
    bool has_unit;
    TimeUnit unit;
    WindowBound lower;
    WindowBound upper;
} WindowBounds;

/* A window function as it stands in a specification. */
typedef struct WindowFn {
    const WindowClass *class;
    FieldPath path; /* of the output */
    Elem source;    /* {$sum: ...} within it */
    Elem window;    /* as given; the missing element when not */
    WindowBounds bounds;
    Acc acc; /* accumulators */
    Expr *input;
    Expr *input2;        /* covariance */
    int64_t shift_by;    /* $shift */
    Value shift_default; /* $shift */
    Value alpha;         /* $expMovingAvg */
    bool has_unit;       /* $derivative, $integral */
    int64_t unit_ms;
    bool is_sample; /* $covarianceSamp, $stdDevSamp */
    bool is_dense;  /* $denseRank */
} WindowFn;

typedef struct WindowParser {
    AggParser *agg;
    const SortPattern *sort_by; /* NULL: none */
} WindowParser;

/* Parts of sortBy, as they are written. */
static inline uint32_t window_sort_count(const WindowParser *wp) {
    return wp->sort_by == NULL ? 0 : wp->sort_by->count + wp->sort_by->meta_count;
}

struct WindowClass {
    size_t state_size;
    void (*init)(void *state); /* NULL: zeroed is right */
    void (*done)(void *state); /* NULL: nothing to free */
    /* The document at `index` enters the window; they do so in order. NULL: the function looks at
     * the documents of the window itself. */
    ErrCode (*add)(void *state, const WindowFn *fn, WindowPartition *p, int64_t index, Error *err);
    /* The first document leaves. NULL with `add`: when one leaves, the state is made anew. */
    ErrCode (*remove)(void *state, const WindowFn *fn, WindowPartition *p, int64_t index,
                      Error *err);
    /* Reads as far ahead as `result` will look, apart from the window. NULL: no further. Reading
     * may stop and be asked for again: nothing may be done twice because of that. */
    ErrCode (*look_ahead)(void *state, const WindowFn *fn, WindowPartition *p, int64_t at,
                          Error *err);
    /* The window is [low, high); `at` is the current document. Called once per document, in order;
     * does not read. */
    ErrCode (*result)(void *state, const WindowFn *fn, WindowPartition *p, int64_t low,
                      int64_t high, int64_t at, Value *ret, Error *err);
};

/* A document of the partition: in memory, on disk, or both. */
typedef struct WindowDoc {
    Doc doc;       /* owned; data NULL: on disk only */
    int64_t place; /* in the run; -1: not there */
} WindowDoc;

/* One execution's view of the partition at hand. */
struct WindowPartition {
    AggStageExec *base;
    const SortPattern *sort_by;
    WindowDoc *docs; /* those from `first` to `end`, behind `evicted` places that are free */
    size_t evicted;
    size_t capacity;
    int64_t first;
    int64_t end;      /* documents read of the partition so far */
    bool is_complete; /* there are no more */
    size_t doc_bytes;
    size_t state_bytes;
    AccContext acc_ctx;
};

/* Reads on until the document at `index` is there; false when the partition has no such one. */
ErrCode window_fetch(WindowPartition *p, int64_t index, bool *ret_found, Error *err) MUST_CHECK;

/* Valid until the stage's scratch memory is reset, or until the next window_fetch if it is not the
 * current document. */
ErrCode window_doc(const WindowPartition *p, int64_t index, Doc *ret, Error *err) MUST_CHECK;

/* The expression on a document that is there. */
ErrCode window_eval(WindowPartition *p, const Expr *expr, int64_t index, Value *ret, Error *err)
    MUST_CHECK;

/* The value of the first part of sortBy; missing becomes null. */
ErrCode window_sort_value(WindowPartition *p, int64_t index, Value *ret, Error *err) MUST_CHECK;

/* ---- bounds ---- */

/* From fn->window, {documents: ...} or {range: ..., unit: ...}, to fn->bounds. For the functions
 * that take windows. */
ErrCode window_bounds_parse(const WindowParser *wp, WindowFn *fn, Error *err) MUST_CHECK;

static inline bool window_is_from_start(const WindowBounds *bounds) {
    return bounds->lower.kind == BOUND_UNBOUNDED;
}

/* Moves the two indexes to the window of the document at `at`, and reads as far. When that fails
 * half-way it can go on from there. */
ErrCode window_bounds_move(const WindowBounds *bounds, WindowPartition *p, int64_t at, int64_t *low,
                           int64_t *high, Error *err) MUST_CHECK;

/* ---- functions ---- */

/* How a row of window_functions.def is parsed: fills in class, arguments and bounds. */
typedef ErrCode WindowParseFn(const WindowParser *wp, Elem op, WindowFn *fn, Error *err);

/* `op` is {$sum: ...} within an output field. Fails with ERR_FAILED_TO_PARSE for unknown ones. */
ErrCode window_fn_parse(const WindowParser *wp, Elem op, WindowFn *fn, Error *err) MUST_CHECK;

#define WINDOW_FUNCTION(name, parse) WindowParseFn parse;
#include "query/agg/window_functions.def"
#undef WINDOW_FUNCTION

/* A queue of items of one size. */
typedef struct WindowRing {
    uint8_t *items;
    size_t item_size;
    size_t head;
    size_t count;
    size_t capacity;
} WindowRing;

void *window_ring_push(WindowRing *ring, size_t item_size, size_t *bytes);
static inline void *window_ring_at(const WindowRing *ring, size_t index) {
    return ring->items + ((ring->head + index) % ring->capacity) * ring->item_size;
}
static inline void window_ring_pop_front(WindowRing *ring) {
    ring->head = (ring->head + 1) % ring->capacity;
    ring->count--;
}
static inline void window_ring_pop_back(WindowRing *ring) {
    ring->count--;
}
void window_ring_done(WindowRing *ring);
