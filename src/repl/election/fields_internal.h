/*
 * fields_internal.h - reads the fields of a document into a struct by a table.
 *
 * Numbers may come in any numeric type (drivers and shells differ), texts are copied and bounded,
 * absent optional fields leave the struct as it was.
 */
#pragma once

#include <stddef.h>

#include "bson/doc.h"
#include "bson/optime.h"

typedef enum ReplFieldKind {
    REPL_FIELD_BOOL,   /* bool; a number counts as its truth */
    REPL_FIELD_I32,    /* int32_t within min..max */
    REPL_FIELD_I64,    /* int64_t within min..max */
    REPL_FIELD_F64,    /* double within min..max */
    REPL_FIELD_TEXT,   /* char[max], NUL-terminated, no NUL inside */
    REPL_FIELD_DOC,    /* Doc, pointing into the source */
    REPL_FIELD_ARRAY,  /* Doc */
    REPL_FIELD_OPTIME, /* OpTime */
    REPL_FIELD_DATE,   /* int64_t ms */
    REPL_FIELD_TS,     /* uint64_t */
    REPL_FIELD_OID,    /* Oid */
    REPL_FIELD_ELEM,   /* Elem of any type, for the caller to look at */
    REPL_FIELD_SKIP,   /* allowed, not read */
} ReplFieldKind;

typedef struct ReplFieldSpec {
    const char *name;
    ReplFieldKind kind;
    size_t offset;
    int64_t min;
    int64_t max; /* with min == max == 0: no bounds; of a text its array's size */
    bool is_required;
} ReplFieldSpec;

typedef enum ReplFieldsMode {
    REPL_FIELDS_LENIENT, /* unknown fields are skipped */
    REPL_FIELDS_STRICT,  /* unknown and repeated ones are refused */
} ReplFieldsMode;

/* Fails with TypeMismatch, BadValue and the locations of the command parser (40413 repeated, 40414
 * missing, 40415 unknown, 51024 out of bounds). `doc_name` is for messages. */
ErrCode repl_fields_parse(Doc doc, const char *doc_name, const ReplFieldSpec *specs,
                          size_t spec_count, ReplFieldsMode mode, void *ret_struct, Error *err)
    MUST_CHECK;
