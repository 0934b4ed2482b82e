/*
 * key_show.h - index keys in readable form, for error messages and reports.
 */
#pragma once

#include "bson/builder.h"
#include "catalog/collection.h"

/* Appends the values of a stored key to the open document, under the paths of the index or, without
 * `has_paths`, under empty names. Strings of an index with a collation are sort keys and no text:
 * they are shown in hexadecimal. A damaged key appends nothing. */
void build_key_values(DocBuilder *b, const IndexDesc *index, IndexKey key, bool has_paths);

/* A record id as commands show it: a number, or the bytes of a clustered collection's. */
void build_record_id(DocBuilder *b, const char *name, RecordId rid);
