/*
 * cmd_kill_all_sessions.c - killAllSessions and killAllSessionsByPattern.
 *
 * Without access control all sessions belong to nobody, so every non-empty list that names users or
 * roles matches none of them; an empty one, or a pattern of session ids, means what it says.
 */
#include "bson/uuid.h"
#include "commands/core/command.h"
#include "query/cursor/cursor_table.h"

typedef struct KillAllSessionsRequest {
    Doc patterns; /* array */
} KillAllSessionsRequest;

enum {
    SESSIONS_PER_ROUND = 1024,
};

typedef struct Found {
    Uuid sessions[SESSIONS_PER_ROUND];
    uint32_t count;
} Found;

static void collect(void *arg, const ClientCursor *cursor) {
    static const Uuid NONE;
    Found *found = arg;
    if (found->count < SESSIONS_PER_ROUND && !uuid_equal(&cursor->session, &NONE) &&
        !cursor->is_killed)
        found->sessions[found->count++] = cursor->session;
}

static void kill_all(CommandCtx *ctx) {
    CursorTable *table = ctx->service->cursors;
    Found *found = arena_alloc(cmd_arena(ctx), sizeof(*found));
    do {
        found->count = 0;
        cursor_table_for_each(table, collect, found);
        for (uint32_t i = 0; i < found->count; i++)
            (void)cursor_kill_session(table, &found->sessions[i]);
    } while (found->count == SESSIONS_PER_ROUND);
}

static ErrCode kill_all_sessions_run(CommandCtx *ctx, void *arg, Error *err) {
    const KillAllSessionsRequest *request = arg;
    DocIter iter = doc_iter(request->patterns);
    Elem elem;
    while (doc_iter_next(&iter, &elem))
        if (elem_type(elem) != BT_DOC ||
            elem_type(doc_get_lit(elem_doc(elem), "user")) != BT_STRING ||
            elem_type(doc_get_lit(elem_doc(elem), "db")) != BT_STRING)
            return error_set(
                err, ERR_TYPE_MISMATCH,
                "BSON field 'killAllSessions.%s' needs a document with 'user' and 'db'",
                elem_name(elem));
    if (doc_is_empty(request->patterns))
        kill_all(ctx);
    return ERR_OK;
}

static ErrCode kill_all_by_pattern_run(CommandCtx *ctx, void *arg, Error *err) {
    const KillAllSessionsRequest *request = arg;
    DocIter iter = doc_iter(request->patterns);
    Elem elem;
    while (doc_iter_next(&iter, &elem)) {
        if (elem_type(elem) != BT_DOC)
            return error_set(err, ERR_TYPE_MISMATCH,
                             "BSON field 'killAllSessionsByPattern.%s' has to be a document",
                             elem_name(elem));
        Uuid id;
        Elem lsid = doc_get_lit(elem_doc(elem), "lsid");
        if (doc_is_empty(elem_doc(elem)))
            kill_all(ctx);
        else if (elem_type(lsid) == BT_DOC &&
                 uuid_from_elem(doc_get_lit(elem_doc(lsid), "id"), &id))
            (void)cursor_kill_session(ctx->service->cursors, &id);
    }
    if (doc_is_empty(request->patterns))
        kill_all(ctx);
    return ERR_OK;
}

static const FieldSpec KILL_ALL_SESSIONS_FIELDS[] = {
    {"killAllSessions", FIELD_ARRAY, FIELD_REQUIRED, offsetof(KillAllSessionsRequest, patterns)},
};

const CommandSpec CMD_KILL_ALL_SESSIONS = {
    .name = "killAllSessions",
    .summary = "Ends all sessions, or those of users.",
    .fields = KILL_ALL_SESSIONS_FIELDS,
    .field_count = ARRAY_LEN(KILL_ALL_SESSIONS_FIELDS),
    .request_size = sizeof(KillAllSessionsRequest),
    .run = kill_all_sessions_run,
};

static const FieldSpec KILL_BY_PATTERN_FIELDS[] = {
    {"killAllSessionsByPattern", FIELD_ARRAY, FIELD_REQUIRED,
     offsetof(KillAllSessionsRequest, patterns)},
};

const CommandSpec CMD_KILL_ALL_SESSIONS_BY_PATTERN = {
    .name = "killAllSessionsByPattern",
    .summary = "Ends sessions that fit a pattern.",
    .fields = KILL_BY_PATTERN_FIELDS,
    .field_count = ARRAY_LEN(KILL_BY_PATTERN_FIELDS),
    .request_size = sizeof(KillAllSessionsRequest),
    .run = kill_all_by_pattern_run,
};
