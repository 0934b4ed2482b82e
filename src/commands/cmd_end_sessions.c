/*
 * cmd_end_sessions.c - what clients say about their sessions: refresh, end and kill them.
 *
 * On a standalone node a session is only a label of operations and cursors. Refreshing has nothing
 * to do; ending closes the cursors of the session, killing its running operations as well. On a
 * member of a replica set the record of sessions in use learns of it.
 */
#include "bson/uuid.h"
#include "commands/core/command.h"
#include "commands/sessions.h"
#include "cursor/cursor_table.h"

enum {
    SESSIONS_PER_COMMAND_MAX = 10000,
};

typedef struct SessionsRequest {
    Doc sessions; /* array */
} SessionsRequest;

/* Each member is {id: UUID, ...}; calls `act` after all have been checked. */
static ErrCode for_each_session(CommandCtx *ctx, Doc sessions,
                                ErrCode (*act)(CommandCtx *ctx, const Uuid *id, Error *err),
                                Error *err) {
    if (doc_count(sessions) > SESSIONS_PER_COMMAND_MAX)
        return error_set(err, ERR_TOO_MANY_LOGICAL_SESSIONS,
                         "Too many sessions: %u, at most %d are allowed", doc_count(sessions),
                         SESSIONS_PER_COMMAND_MAX);
    for (int pass = 0; pass < 2; pass++) {
        DocIter iter = doc_iter(sessions);
        Elem elem;
        while (doc_iter_next(&iter, &elem)) {
            Uuid id;
            if (elem_type(elem) != BT_DOC ||
                !uuid_from_elem(doc_get_lit(elem_doc(elem), "id"), &id))
                return error_set(err, ERR_TYPE_MISMATCH,
                                 "BSON field '%s.%s.%s' needs a document with a UUID 'id'",
                                 ctx->spec->name, ctx->spec->name, elem_name(elem));
            if (pass == 1)
                TRY(act(ctx, &id, err));
        }
    }
    return ERR_OK;
}

static ErrCode refresh_session(CommandCtx *ctx, const Uuid *id, Error *err) {
    return sessions_use(ctx->service, id, err);
}

static ErrCode end_session(CommandCtx *ctx, const Uuid *id, Error *err) {
    (void)err;
    sessions_end(ctx->service, id);
    if (ctx->service->cursors != NULL)
        (void)cursor_kill_session(ctx->service->cursors, id);
    return ERR_OK;
}

static ErrCode kill_session(CommandCtx *ctx, const Uuid *id, Error *err) {
    (void)err;
    sessions_kill(ctx->service, ctx->op, id);
    return ERR_OK;
}

static ErrCode kill_run(CommandCtx *ctx, void *arg, Error *err) {
    return for_each_session(ctx, ((SessionsRequest *)arg)->sessions, kill_session, err);
}

static ErrCode refresh_run(CommandCtx *ctx, void *arg, Error *err) {
    return for_each_session(ctx, ((SessionsRequest *)arg)->sessions, refresh_session, err);
}

static ErrCode end_run(CommandCtx *ctx, void *arg, Error *err) {
    return for_each_session(ctx, ((SessionsRequest *)arg)->sessions, end_session, err);
}

static const FieldSpec REFRESH_SESSIONS_FIELDS[] = {
    {"refreshSessions", FIELD_ARRAY, FIELD_REQUIRED, offsetof(SessionsRequest, sessions)},
};

const CommandSpec CMD_REFRESH_SESSIONS = {
    .name = "refreshSessions",
    .summary = "Says that sessions are still in use.",
    .flags = CMD_API_V1,
    .request = REQUEST_OF(SessionsRequest, REFRESH_SESSIONS_FIELDS),
    .run = refresh_run,
};

static const FieldSpec END_SESSIONS_FIELDS[] = {
    {"endSessions", FIELD_ARRAY, FIELD_REQUIRED, offsetof(SessionsRequest, sessions)},
};

const CommandSpec CMD_END_SESSIONS = {
    .name = "endSessions",
    .summary = "Says that sessions are not used any more.",
    .flags = CMD_API_V1,
    .request = REQUEST_OF(SessionsRequest, END_SESSIONS_FIELDS),
    .run = end_run,
};

static const FieldSpec KILL_SESSIONS_FIELDS[] = {
    {"killSessions", FIELD_ARRAY, FIELD_REQUIRED, offsetof(SessionsRequest, sessions)},
};

const CommandSpec CMD_KILL_SESSIONS = {
    .name = "killSessions",
    .summary = "Ends sessions and what runs in them.",
    .request = REQUEST_OF(SessionsRequest, KILL_SESSIONS_FIELDS),
    .run = kill_run,
};
