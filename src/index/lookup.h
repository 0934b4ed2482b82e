/*
 * lookup.h - one document by its _id.
 */
#pragma once

#include "base/error.h"
#include "catalog/collection.h"
#include "index/key_gen.h"

/* The record id of the document with this _id. In a clustered collection the record id is derived
 * from the _id: there it is "found" whether or not the document exists, and lives in `kb`. */
ErrCode lookup_record_id(OpCtx *op, const Collection *coll, Elem id, KeyBuilder *kb,
                         bool *ret_found, RecordId *ret_rid, Error *err) MUST_CHECK;
/* The document itself, copied into `arena`; DOC_NONE: there is none. */
ErrCode lookup_document(OpCtx *op, const Collection *coll, Elem id, Arena *arena, Doc *ret_doc,
                        Error *err) MUST_CHECK;
