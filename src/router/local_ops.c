#include "router/local_ops.h"

#include "base/alloc.h"
#include "concurrency/op_listing.h"
#include "query/agg/list_sessions.h"

typedef struct OpSource {
    AggSource base;
    OpCtx *const *op;
    CurrentOpQuery query;
    bool is_of_sessions;
    bool is_empty;
} OpSource;

/* An execution: the documents, in their own arena. */
typedef struct OpRows {
    Arena arena;
    Doc *docs;
    size_t count;
    size_t capacity;
    size_t next;
} OpRows;

static Doc first_of(Doc stages) {
    DocIter iter = doc_iter(stages);
    Elem first;
    bool has_stage = doc_iter_next(&iter, &first) && elem_type(first) == BT_DOC;
    return has_stage ? elem_doc(first) : DOC_EMPTY;
}

static Elem spec_of(Doc stages) {
    return doc_get_lit(first_of(stages), "$currentOp");
}

bool asks_for_ops(Doc stages) {
    return elem_is_present(spec_of(stages));
}

bool asks_for_sessions(Doc stages) {
    return elem_is_present(doc_get_lit(first_of(stages), "$listLocalSessions"));
}

static ErrCode add_row(void *arg, Doc row, Error *err) {
    (void)err;
    OpRows *rows = arg;
    ARRAY_RESERVE(rows->docs, rows->count, rows->capacity);
    rows->docs[rows->count++] = doc_copy(row, &rows->arena);
    return ERR_OK;
}

static ErrCode next_row(void *arg, bool *ret_found, Doc *ret_doc, Error *err) {
    (void)err;
    OpRows *rows = arg;
    *ret_found = rows->next < rows->count;
    if (*ret_found)
        *ret_doc = rows->docs[rows->next++];
    return ERR_OK;
}

static void close_rows(const AggSource *base, DocSource docs) {
    (void)base;
    OpRows *rows = docs.arg;
    if (rows == NULL)
        return;
    arena_done(&rows->arena);
    xfree(rows->docs);
    xfree(rows);
}

static ErrCode open_rows(const AggSource *base, DocSource *ret_docs, Error *err) {
    const OpSource *source = (const OpSource *)base;
    ServiceCtx *service = (*source->op)->service;
    OpRows *rows = NEW(OpRows);
    arena_init(&rows->arena, ARENA_CHUNK_SIZE_DEFAULT);
    *ret_docs = (DocSource){.arg = rows, .next = next_row};
    ErrCode rc = ERR_OK;
    if (source->is_of_sessions && !source->is_empty)
        rc = service->op_listing->for_each_session(service, add_row, rows, err);
    else if (!source->is_of_sessions)
        rc = service->op_listing->for_each(service, &source->query, add_row, rows, err);
    if (rc != ERR_OK) {
        close_rows(base, *ret_docs);
        *ret_docs = (DocSource){0};
    }
    return rc;
}

static ErrCode check_option(Elem option, Error *err) {
    static const char *const KNOWN[] = {"allUsers",       "idleConnections", "idleCursors",
                                        "idleSessions",   "localOps",        "truncateOps",
                                        "targetAllNodes", "backtrace"};
    for (size_t i = 0; i < ARRAY_LEN(KNOWN); i++)
        if (elem_name_is(option, str_from(KNOWN[i])))
            return elem_type(option) == BT_BOOL
                       ? ERR_OK
                       : error_set(err, ERR_FAILED_TO_PARSE,
                                   "The '%s' parameter of the $currentOp stage must be a boolean "
                                   "value, but found: %s",
                                   KNOWN[i], bson_type_name(elem_type(option)));
    return error_set(err, ERR_FAILED_TO_PARSE, "Unrecognized option '%s' in $currentOp stage.",
                     elem_name(option));
}

static ErrCode parse_current_op(const AggSourceRow *row, Elem spec, Arena *arena,
                                AggSource **ret_source, Error *err) {
    if (elem_type(spec) != BT_DOC)
        return error_set(err, ERR_FAILED_TO_PARSE,
                         "the $currentOp stage specification must be an object");
    DocIter iter = doc_iter(elem_doc(spec));
    for (Elem option; doc_iter_next(&iter, &option);)
        TRY(check_option(option, err));
    OpSource *source = ARENA_NEW(arena, OpSource);
    source->base = (AggSource){open_rows, close_rows};
    source->op = row->arg;
    Elem sessions = doc_get_lit(elem_doc(spec), "idleSessions");
    source->query = (CurrentOpQuery){
        .has_idle_connections = elem_is_truthy(doc_get_lit(elem_doc(spec), "idleConnections")),
        .has_idle_cursors = elem_is_truthy(doc_get_lit(elem_doc(spec), "idleCursors")),
        .has_idle_sessions = !elem_is_present(sessions) || elem_is_truthy(sessions),
    };
    *ret_source = &source->base;
    return ERR_OK;
}

AggSourceRow current_op_row(OpCtx *const *op, Doc stages) {
    Elem spec = spec_of(stages);
    return (AggSourceRow){
        .name = "$currentOp",
        .is_collectionless = true,
        .parse = parse_current_op,
        .arg = (void *)op,
        .runs_once =
            elem_type(spec) == BT_DOC && elem_is_truthy(doc_get_lit(elem_doc(spec), "localOps")),
    };
}

/* ---- $listLocalSessions ---- */

static ErrCode parse_local_sessions(const AggSourceRow *row, Elem spec, Arena *arena,
                                    AggSource **ret_source, Error *err) {
    if (elem_type(spec) != BT_DOC)
        return error_set(err, ERR_TYPE_MISMATCH,
                         "the $listLocalSessions stage specification must be an object");
    SessionsWish wish;
    TRY(sessions_wish_parse("$listLocalSessions", elem_doc(spec), &wish, err));
    OpSource *source = ARENA_NEW(arena, OpSource);
    source->base = (AggSource){open_rows, close_rows};
    source->op = row->arg;
    source->is_of_sessions = true;
    source->is_empty = !sessions_wish_has_nobody(&wish);
    *ret_source = &source->base;
    return ERR_OK;
}

AggSourceRow local_sessions_row(OpCtx *const *op) {
    return (AggSourceRow){
        .name = "$listLocalSessions",
        .is_collectionless = true,
        .parse = parse_local_sessions,
        .arg = (void *)op,
        .runs_once = true,
    };
}
