/*
 * fields.h - strict parsing of documents into C structs by a table of fields.
 *
 * A row names a field, its type and where it goes. Whatever is not in the table is an error that
 * names the field; so are wrong types, missing required fields and repeated ones. Absent fields
 * leave the zeroed struct as it is. Null and undefined stand for an absent field, except where any
 * value is taken.
 */
#pragma once

#include <stddef.h>

#include "base/arena.h"
#include "base/error.h"
#include "bson/doc.h"
#include "bson/uuid.h"

typedef enum FieldType {
    FIELD_STRING,       /* Str */
    FIELD_BOOL,         /* bool; numbers are taken as in MongoDB's safeBool */
    FIELD_BOOL_ELEM,    /* Elem; the same, where what is missing is not false */
    FIELD_I32,          /* int32_t; any number with an integral value that fits */
    FIELD_I64,          /* int64_t */
    FIELD_COUNT,        /* int64_t >= 0 */
    FIELD_F64,          /* double */
    FIELD_DOC,          /* Doc */
    FIELD_ARRAY,        /* Doc of type array */
    FIELD_ELEM,         /* Elem, any type */
    FIELD_DOCS,         /* DocList: an array of documents or an OP_MSG document sequence */
    FIELD_COLL,         /* Str: a collection name */
    FIELD_COLL_OR_UUID, /* CollRef: likewise, or the UUID of one */
    FIELD_IGNORED,      /* accepted, has no meaning here */
    FIELD_REFUSED,      /* known to MongoDB, not supported: NotImplemented naming the field */
} FieldType;

typedef enum FieldFlags {
    FIELD_OPTIONAL = 0,
    FIELD_REQUIRED = 1 << 0,
    FIELD_NULL_COUNTS = 1 << 1, /* of FIELD_ELEM: null is a value like others */
    FIELD_UNSTABLE = 1 << 2,    /* not part of the Stable API */
} FieldFlags;

typedef struct FieldSpec {
    const char *name;
    FieldType type;
    FieldFlags flags;
    size_t offset; /* in the request struct */
} FieldSpec;

typedef struct DocList {
    const Doc *docs;
    uint32_t count;
} DocList;

/* A collection by its name or, when has_uuid, by its UUID. */
typedef struct CollRef {
    Str name;
    bool has_uuid;
    Uuid uuid;
} CollRef;

/* Parses one element by its row. `context` is the dotted prefix of error messages
 * ("update.updates"). */
ErrCode field_parse(const FieldSpec *spec, const char *context, Elem elem, Arena *arena, void *out,
                    Error *err) MUST_CHECK;

/* Parses a whole document; for nested objects of commands. */
ErrCode fields_parse(const FieldSpec *specs, size_t spec_count, const char *context, Doc doc,
                     Arena *arena, void *out, Error *err) MUST_CHECK;

/* Whether the element is null or undefined in a place where that means: not given. */
bool field_is_absent(const FieldSpec *spec, Elem elem);
const FieldSpec *field_find(const FieldSpec *specs, size_t spec_count, Elem elem,
                            size_t *ret_index);
ErrCode field_unknown(const char *context, Elem elem, Error *err);
ErrCode field_duplicate(const char *context, Elem elem, Error *err);
/* Fails for the first required row whose bit is not in `seen`. */
ErrCode fields_check_required(const FieldSpec *specs, size_t spec_count, uint64_t seen,
                              const char *context, Error *err) MUST_CHECK;

/* Codes of the five-digit range that strict parsing returns. */
enum {
    LOCATION_DUPLICATE_FIELD = 40413,
    LOCATION_MISSING_FIELD = 40414,
    LOCATION_UNKNOWN_FIELD = 40415,
};
