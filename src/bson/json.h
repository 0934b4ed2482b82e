/*
 * json.h - BSON as text: MongoDB extended JSON for log lines, error messages and tests.
 */
#pragma once

#include "base/buffer.h"
#include "base/log.h"
#include "bson/doc.h"

/* Appends relaxed extended JSON ({"$oid": ...}, dates as ISO text). At most `size_max` bytes are
 * written; longer text ends in "...". Of an element the value alone, of a missing one null. */
void json_append_doc(Buffer *out, Doc doc, size_t size_max);
void json_append_elem(Buffer *out, Elem elem, size_t size_max);
void json_append_string(Buffer *out, Str text); /* with quotes and escapes */

/* A document for a line of the log; a long one is cut, and then a text. Lives in *text. */
LogAttr json_log_attr(const char *name, Doc doc, Buffer *text);

/* The shell-like form of error messages: { a: 1, b: "x", c: ObjectId('...') }. In arena memory. */
char *shell_text_of_doc(Doc doc, Arena *arena);
char *shell_text_of_elem(Elem elem, Arena *arena);

/* Parses extended JSON (through libbson) into arena memory; single quotes are taken as double ones
 * and names of fields need none, as people write it: {op: 'query'}. */
ErrCode doc_from_json(const char *json, Arena *arena, Doc *ret_doc, Error *err) MUST_CHECK;
