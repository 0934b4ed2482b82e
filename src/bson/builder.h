/*
 * builder.h - writing BSON into a Buffer: append elements, open and close nested documents.
 *
 *     DocBuilder b = doc_builder_in_arena(arena);
 *     build_i32(&b, "n", 1);
 *     size_t cursor = build_open_doc(&b, "cursor");
 *     ...
 *     build_close(&b, cursor);
 *     Doc reply = doc_builder_end(&b);
 *
 * Appending never reports failure. A builder ends in one of two ways, depending on its buffer: what
 * was built into an unbounded buffer always fits (doc_builder_end), what was built into a bounded
 * one may not (doc_builder_finish, whose result must be checked). Ending a bounded one the
 * infallible way is a bug that aborts the process at once, full or not.
 *
 * Names are trusted not to contain NUL.
 */
#pragma once

#include "base/buffer.h"
#include "bson/doc.h"

typedef struct DocBuilder {
    Buffer *buf;
    size_t start; /* offset of the outermost document */
} DocBuilder;

void doc_builder_init(DocBuilder *b, Buffer *buf); /* starts a document at the buffer's end */
/* A builder whose unbounded buffer and document live in the arena. */
DocBuilder doc_builder_in_arena(Arena *arena);
DocBuilder doc_builder_in_arena_sized(Arena *arena, size_t capacity);

/* Closes the document; it is valid until the buffer moves. */
Doc doc_builder_end(DocBuilder *b); /* of an unbounded buffer */
/* Fails with ERR_BSON_OBJECT_TOO_LARGE when `what` passed the bound of its buffer. */
ErrCode doc_builder_finish(DocBuilder *b, const char *what, Doc *ret_doc, Error *err) MUST_CHECK;
/* The same for callers with another error: false if it did not fit. */
bool doc_builder_try_finish(DocBuilder *b, Doc *ret_doc) MUST_CHECK;

/* Opens a nested document or array; the result goes to build_close. */
size_t build_open_doc(DocBuilder *b, const char *name);
size_t build_open_array(DocBuilder *b, const char *name);
size_t build_open_doc_str(DocBuilder *b, Str name);
size_t build_open_array_str(DocBuilder *b, Str name);
void build_close(DocBuilder *b, size_t opened);

/* Type byte, name and room for `size` bytes of value; NULL when over the bound. */
uint8_t *build_value(DocBuilder *b, BsonType type, Str name, size_t size);

void build_i32(DocBuilder *b, const char *name, int32_t value);
void build_i64(DocBuilder *b, const char *name, int64_t value);
void build_f64(DocBuilder *b, const char *name, double value);
void build_bool(DocBuilder *b, const char *name, bool value);
void build_null(DocBuilder *b, const char *name);
void build_cstr(DocBuilder *b, const char *name, const char *value);
void build_str(DocBuilder *b, const char *name, Str value);
void build_date(DocBuilder *b, const char *name, int64_t wall_ms);
void build_timestamp(DocBuilder *b, const char *name, uint64_t ts);
void build_oid(DocBuilder *b, const char *name, const Oid *oid);
void build_binary(DocBuilder *b, const char *name, uint8_t subtype, const void *data, size_t size);
void build_doc(DocBuilder *b, const char *name, Doc doc);
void build_array(DocBuilder *b, const char *name, Doc array);
/* The number as int32 when it fits, else int64: how counts are reported. */
void build_count(DocBuilder *b, const char *name, int64_t value);

/* A copy of the element, under its own or another name. */
void build_elem(DocBuilder *b, Elem elem);
void build_elem_as(DocBuilder *b, Str name, Elem elem);
/* Appends all elements of `doc` at this level. */
void build_all(DocBuilder *b, Doc doc);
/* Appends those of the named elements that `doc` has. */
void build_some(DocBuilder *b, Doc doc, const char *const *names, size_t count);

/* "0", "1", ... for array elements; buffer-free for small ones. */
enum {
    INDEX_NAME_SIZE = 12,
};
Str index_name(uint32_t index, char buffer[INDEX_NAME_SIZE]);

/* An element alone, in its own allocation of the arena, with an empty name. */
Elem elem_copy(Elem elem, Arena *arena);
