/*
 * ownership.h - which documents of a collection belong to this node.
 *
 * A filter represents one state of the node's ownership, as of the moment a policy supplied it
 * (access_policy.h). It never changes; a new state is a new filter. Queries keep the one they began
 * with, so its reference count also shows whether an old state is still being read.
 *
 * Ownership: reference-counted; embedded as the first member of the implementer's struct.
 * Threading: any thread.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "bson/doc.h"

typedef struct OwnershipFilter OwnershipFilter;
struct OwnershipFilter {
    _Atomic int32_t refs;
    /* Set by the maker, then constant. */
    const Str *paths; /* dotted: all that `owns` reads of a document; none is above another */
    uint32_t path_count;
    /* `doc` is a stored document, or an index key decoded to one that has all the paths. A document
     * that cannot be classified (an array where none is allowed) is not owned: there are no
     * errors. */
    bool (*owns)(const OwnershipFilter *filter, Doc doc);
    void (*free)(OwnershipFilter *filter);
    /* The node owns everything: nothing is filtered. Such a filter is held for its count alone. */
    bool is_whole;
};

static inline OwnershipFilter *ownership_ref(OwnershipFilter *filter) {
    atomic_fetch_add_explicit(&filter->refs, 1, memory_order_relaxed);
    return filter;
}

static inline void ownership_unref(OwnershipFilter *filter) { /* NULL is fine */
    /* Release pairs with the acquire of the last unref, which frees what all others have read. */
    if (filter != NULL && atomic_fetch_sub_explicit(&filter->refs, 1, memory_order_acq_rel) == 1)
        filter->free(filter);
}
