/*
 * state_doc.h - a task as a document. Pure.
 *
 *     {_id, phase: "copy",
 *      ...,                              the service's own fields
 *      task: {request: {...},            as it came; a second request with this id must be the same
 *             locks: [{name: "db", mode: "S"}, {name: "db.c", mode: "X"}],
 *             keepMS: 900000,            how long the outcome is kept
 *             abort: {code, codeName, errmsg, extra?},    why it is given up, from then on
 *             outcome: {result: {...}} or {error: {code, ...}}, endedAt: ISODate}}   phase "done"
 */
#pragma once

#include "base/error.h"
#include "bson/builder.h"
#include "bson/doc.h"
#include "repl/task/named_locks.h"

typedef struct TaskParts {
    Elem id;
    Str phase;
    Doc own; /* a document whose fields other than _id, phase and task are the service's own */
    Doc request;
    LockSet locks;
    int64_t keep_ms;
    const Error *abort; /* NULL: is not being aborted */
    /* Of one that is over. */
    bool is_over;
    int64_t ended_ms;
    Doc result;         /* DOC_NONE: it failed */
    const Error *error; /* likewise */
} TaskParts;

Doc task_parts_build(const TaskParts *parts, Arena *arena);

/* Whatever stands there: hands of operators may have changed it. Parts that are missing are empty;
 * locks that cannot be read are an error. `abort` and `error`, which are in *parts by reference,
 * are the caller's, zeroed. */
ErrCode task_parts_parse(Doc doc, TaskParts *ret_parts, Error *ret_abort, Error *ret_error,
                         Error *err) MUST_CHECK;

/* An error as a document and back: code, message and the extra fields of its reply. What is too
 * large to be kept is cut: 4 KB of message, 16 KB of extra fields. */
void build_task_error(DocBuilder *b, const char *name, const Error *error);
void task_error_parse(Doc doc, Error *ret_error);
void task_error_copy(Error *to, const Error *from);
