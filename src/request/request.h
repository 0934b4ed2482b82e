/*
 * request.h - what a command's arguments are: a struct and the table of its fields.
 *
 * The table is all that is needed to read a request and to write it again. A node parses a request
 * to run it; a router parses the same request by the same table, changes the struct (limit plus
 * skip, a part of the documents) and builds what it sends to each shard. Nothing here knows how a
 * command is executed, and nothing here reads data.
 */
#pragma once

#include "bson/builder.h"
#include "bson/collator.h"
#include "request/fields.h"

typedef struct RequestSpec {
    const FieldSpec *fields;
    size_t field_count;
    size_t size; /* of the struct */
} RequestSpec;

#define REQUEST_SPEC(Type, FIELDS)                                                                 \
    { (FIELDS), ARRAY_LEN(FIELDS), sizeof(Type) }
/* A spec in place, for a command whose request no other file needs. */
#define REQUEST_OF(Type, FIELDS) (&(const RequestSpec)REQUEST_SPEC(Type, FIELDS))

/* Fields of one document that is not a whole command: an update statement, say. `request` is zeroed
 * memory of spec->size; `context` is the prefix of error messages. */
ErrCode request_parse(const RequestSpec *spec, const char *context, Doc doc, Arena *arena,
                      void *request, Error *err) MUST_CHECK;

/*
 * Appends the fields of `request` in the order of the table, which begins with the command's name.
 * Parsing what was built gives the same request: a field that was not given is zero in the struct
 * and is left out, unless it is required. That is why a request keeps a field as an Elem when its
 * absence means something else than false or 0 ("ordered"). An array that came as a document
 * sequence becomes an array again.
 */
void request_build(const RequestSpec *spec, const void *request, DocBuilder *b);

/* The collation a request asks for; *ret_is_given is false when it is missing or empty, and the
 * collection's default counts. */
ErrCode request_collation(Elem collation, bool *ret_is_given, const Collator **ret_collator,
                          Error *err) MUST_CHECK;
