/*
 * key_doc.h - an index key decoded to the document it came from, as far as it contains it.
 *
 * Ownership: belongs to one stage; the document is valid until the next call.
 */
#pragma once

#include "base/arena.h"
#include "base/buffer.h"
#include "catalog/collection.h"
#include "storage/ordered_index.h"

typedef struct KeyDoc {
    const IndexDesc *index;
    uint32_t fields; /* which fields of the index to include */
    Arena scratch;
    Buffer out;
} KeyDoc;

void key_doc_init(KeyDoc *key_doc, const IndexDesc *index, uint32_t fields);
void key_doc_done(KeyDoc *key_doc);

/* A field that is missing in the document is null in its keys, and so it is here. */
ErrCode key_doc_make(KeyDoc *key_doc, const IndexEntry *entry, Doc *ret_doc, Error *err) MUST_CHECK;
