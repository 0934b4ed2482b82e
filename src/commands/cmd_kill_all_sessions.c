/*
 * cmd_kill_all_sessions.c - killAllSessions and killAllSessionsByPattern.
 *
 * Without access control all sessions belong to nobody, so every non-empty list that names users or
 * roles matches none of them; an empty one, or a pattern of session ids, means what it says.
 */
#include "bson/uuid.h"
#include "commands/core/command.h"
#include "commands/sessions.h"
#include "txn/session_id.h"

typedef struct KillAllSessionsRequest {
    Doc patterns; /* array */
} KillAllSessionsRequest;

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
        sessions_kill_all(ctx->service, ctx->op);
    return ERR_OK;
}

/* {uid: digest}: all sessions of that user. */
static bool is_nobody(Elem uid) {
    uint8_t subtype;
    Str digest = elem_type(uid) == BT_BINARY ? elem_binary(uid, &subtype) : (Str){"", 0};
    SessionId nobody = session_id_of_nobody(&(Uuid){{0}});
    return digest.size == SESSION_UID_SIZE &&
           memcmp(digest.data, nobody.uid, SESSION_UID_SIZE) == 0;
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
            sessions_kill_all(ctx->service, ctx->op);
        else if (elem_type(lsid) == BT_DOC &&
                 uuid_from_elem(doc_get_lit(elem_doc(lsid), "id"), &id))
            sessions_kill(ctx->service, ctx->op, &id);
        else if (is_nobody(doc_get_lit(elem_doc(elem), "uid")))
            sessions_kill_all(ctx->service, ctx->op);
    }
    if (doc_is_empty(request->patterns))
        sessions_kill_all(ctx->service, ctx->op);
    return ERR_OK;
}

static const FieldSpec KILL_ALL_SESSIONS_FIELDS[] = {
    {"killAllSessions", FIELD_ARRAY, FIELD_REQUIRED, offsetof(KillAllSessionsRequest, patterns)},
};

const CommandSpec CMD_KILL_ALL_SESSIONS = {
    .name = "killAllSessions",
    .summary = "Ends all sessions, or those of users.",
    .request = REQUEST_OF(KillAllSessionsRequest, KILL_ALL_SESSIONS_FIELDS),
    .run = kill_all_sessions_run,
};

static const FieldSpec KILL_BY_PATTERN_FIELDS[] = {
    {"killAllSessionsByPattern", FIELD_ARRAY, FIELD_REQUIRED,
     offsetof(KillAllSessionsRequest, patterns)},
};

const CommandSpec CMD_KILL_ALL_SESSIONS_BY_PATTERN = {
    .name = "killAllSessionsByPattern",
    .summary = "Ends sessions that fit a pattern.",
    .request = REQUEST_OF(KillAllSessionsRequest, KILL_BY_PATTERN_FIELDS),
    .run = kill_all_by_pattern_run,
};
