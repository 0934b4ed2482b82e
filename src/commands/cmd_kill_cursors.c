/* cmd_kill_cursors.c - killCursors: closes cursors before their end. */
#include "commands/core/command_service.h"
#include "commands/query_args.h"
#include "request/read_requests.h"

static ErrCode kill_cursors_run(CommandCtx *ctx, void *arg, Error *err) {
    KillCursorsRequest *request = arg;
    if (elem_type(request->coll) != BT_STRING)
        return error_set(err, ERR_BAD_VALUE, "collection name has invalid type %s",
                         bson_type_name(elem_type(request->coll)));
    command_set_coll(ctx, elem_str(request->coll));
    uint32_t count = doc_count(request->cursors);
    int64_t *killed = arena_alloc(cmd_arena(ctx), sizeof(int64_t) * (count + 1));
    int64_t *not_found = arena_alloc(cmd_arena(ctx), sizeof(int64_t) * (count + 1));
    uint32_t killed_count = 0, not_found_count = 0;
    DocIter iter = doc_iter(request->cursors);
    Elem elem;
    while (doc_iter_next(&iter, &elem)) {
        if (elem_type(elem) != BT_INT64)
            return error_set(
                err, ERR_TYPE_MISMATCH,
                "BSON field 'killCursors.cursors.%s' is the wrong type '%s', expected type "
                "'long'",
                elem_name(elem), bson_type_name(elem_type(elem)));
        if (cursor_kill(ctx->service->cursors, elem_i64(elem)) == CURSOR_KILLED)
            killed[killed_count++] = elem_i64(elem);
        else
            not_found[not_found_count++] = elem_i64(elem);
    }
    const struct {
        const char *name;
        const int64_t *ids;
        uint32_t count;
    } lists[] = {{"cursorsKilled", killed, killed_count},
                 {"cursorsNotFound", not_found, not_found_count},
                 {"cursorsAlive", NULL, 0},
                 {"cursorsUnknown", NULL, 0}};
    for (size_t l = 0; l < ARRAY_LEN(lists); l++) {
        size_t opened = build_open_array(ctx->reply, lists[l].name);
        for (uint32_t i = 0; i < lists[l].count; i++) {
            char name[INDEX_NAME_SIZE];
            build_i64(ctx->reply, index_name(i, name).data, lists[l].ids[i]);
        }
        build_close(ctx->reply, opened);
    }
    return ERR_OK;
}

const CommandSpec CMD_KILL_CURSORS = {
    .name = "killCursors",
    .summary = "Closes cursors.",
    .is_never_first_in_txn = true,
    .flags = CMD_IN_TXN | CMD_API_V1,
    .request = &KILL_CURSORS_REQUEST,
    .run = kill_cursors_run,
};
