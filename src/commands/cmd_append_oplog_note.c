/* cmd_append_oplog_note.c - appendOplogNote: a no-op entry of the oplog with a document of the
 * client's. */
#include "commands/core/command.h"
#include "commands/support.h"
#include "repl/repl.h"

typedef struct NoteRequest {
    Elem command;
    Elem data;
    Elem max_cluster_time;
} NoteRequest;

static ErrCode append_oplog_note_run(CommandCtx *ctx, void *arg, Error *err) {
    const NoteRequest *request = arg;
    Repl *repl;
    TRY(cmd_repl(ctx, &repl, err));
    if (!elem_is_present(request->data))
        return error_set(err, ERR_NO_SUCH_KEY, "Missing expected field \"data\"");
    if (elem_type(request->data) != BT_DOC)
        return error_set(err, ERR_TYPE_MISMATCH,
                         "\"data\" had the wrong type. Expected object, found %s",
                         bson_type_name(elem_type(request->data)));
    bool is_bounded = elem_is_present(request->max_cluster_time);
    if (is_bounded && elem_type(request->max_cluster_time) != BT_TIMESTAMP)
        return error_set(err, ERR_TYPE_MISMATCH,
                         "\"maxClusterTime\" had the wrong type. Expected timestamp, found %s",
                         bson_type_name(elem_type(request->max_cluster_time)));
    uint64_t max_ts = is_bounded ? (uint64_t)elem_i64(request->max_cluster_time) : UINT64_MAX;
    return repl_append_note(repl, ctx->op, elem_doc(request->data), max_ts, err);
}

static const FieldSpec NOTE_FIELDS[] = {
    {"appendOplogNote", FIELD_ELEM, FIELD_REQUIRED, offsetof(NoteRequest, command)},
    {"data", FIELD_ELEM, FIELD_OPTIONAL, offsetof(NoteRequest, data)},
    {"maxClusterTime", FIELD_ELEM, FIELD_OPTIONAL, offsetof(NoteRequest, max_cluster_time)},
};

const CommandSpec CMD_APPEND_OPLOG_NOTE = {
    .name = "appendOplogNote",
    .summary = "Writes a no-op with a document of the client's into the oplog.",
    .flags = CMD_ADMIN_ONLY | CMD_WRITES,
    .request = REQUEST_OF(NoteRequest, NOTE_FIELDS),
    .run = append_oplog_note_run,
};
