/* cmd_fsync.c - fsync: a checkpoint now. */
#include "commands/core/command.h"
#include "storage/engine.h"

typedef struct FsyncRequest {
    Elem fsync;
    bool lock;
    bool async;
} FsyncRequest;

static ErrCode fsync_run(CommandCtx *ctx, void *arg, Error *err) {
    const FsyncRequest *request = arg;
    if (request->lock)
        return error_set(err, ERR_NOT_IMPLEMENTED, "'fsync.lock' is not supported yet");
    op_block_begin(ctx->op);
    ErrCode rc = storage_checkpoint(ctx->service->storage, err);
    op_block_end(ctx->op);
    TRY(rc);
    build_i32(ctx->reply, "numFiles", 1);
    return ERR_OK;
}

static ErrCode fsync_unlock_run(CommandCtx *ctx, void *request, Error *err) {
    (void)ctx, (void)request;
    return error_set(err, ERR_ILLEGAL_OPERATION, "fsyncUnlock called when not locked");
}

static const FieldSpec FSYNC_FIELDS[] = {
    {"fsync", FIELD_ELEM, FIELD_REQUIRED, offsetof(FsyncRequest, fsync)},
    {"lock", FIELD_BOOL, FIELD_OPTIONAL, offsetof(FsyncRequest, lock)},
    {"async", FIELD_BOOL, FIELD_OPTIONAL, offsetof(FsyncRequest, async)},
};

const CommandSpec CMD_FSYNC = {
    .name = "fsync",
    .summary = "Writes a checkpoint.",
    .flags = CMD_ADMIN_ONLY,
    .request = REQUEST_OF(FsyncRequest, FSYNC_FIELDS),
    .run = fsync_run,
};

const CommandSpec CMD_FSYNC_UNLOCK = {
    .name = "fsyncUnlock",
    .summary = "Ends the lock of fsync, which this server never holds.",
    .flags = CMD_ADMIN_ONLY,
    .run = fsync_unlock_run,
};
