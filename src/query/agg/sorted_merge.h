/*
 * sorted_merge.h - sort keys that travel with documents, and the merge of sorted sources by them.
 *
 * A document that carries its sort key begins with a field `$sortKey`, binary data whose bytes
 * compare as the documents are to be ordered: the KeyString of a pattern, made with the collation,
 * so that who merges needs neither. Being the first, it is not mistaken for a field of the
 * document's own, whatever that is called.
 *
 * Ownership: a merge borrows its sources; documents of a source stay as they are until its next
 *            call, as everywhere.
 * Threading: a merge belongs to one thread.
 */
#pragma once

#include "base/buffer.h"
#include "query/agg/pipeline.h"

typedef struct SortedMerge SortedMerge;

/* Merges sources whose documents carry keys in rising order. */
SortedMerge *sorted_merge_new(const DocSource *sources, uint32_t count);
void sorted_merge_free(SortedMerge *merge);
void sorted_merge_free_ptr(SortedMerge **merge); /* for CLEANUP */

/* The documents of all sources in the order of their keys, equal ones in the order of the sources,
 * without the keys. Fails with ERR_BAD_VALUE for a document without one. After a failure of a
 * source it can be asked again, and asks that source again. */
DocSource sorted_merge_source(SortedMerge *merge);
