/*
 * fields_internal.h - reads single fields of metadata documents; what is wrong is said with the
 * codes of the command parser (14 wrong type, 40414 missing).
 */
#pragma once

#include "base/error.h"
#include "bson/doc.h"
#include "bson/uuid.h"

/* `what` names the document in errors. */
ErrCode meta_field(Doc doc, const char *what, const char *name, BsonType type, Elem *ret_elem,
                   Error *err) MUST_CHECK;
/* The missing element if it is not there. */
ErrCode meta_field_optional(Doc doc, const char *what, const char *name, BsonType type,
                            Elem *ret_elem, Error *err) MUST_CHECK;
ErrCode meta_field_uuid(Doc doc, const char *what, const char *name, Uuid *ret_uuid, Error *err)
    MUST_CHECK;
