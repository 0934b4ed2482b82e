/* cmd_fsync.c - fsync: a checkpoint now, and no writes after it until fsyncUnlock. */
#include "commands/core/command.h"
#include "storage/engine.h"
#include "storage/fsync_lock.h"

enum {
    LOCK_WAIT_MS = 90 * 1000, /* unless the client says otherwise */
};

typedef struct FsyncRequest {
    Elem fsync;
    bool lock;
    bool async;
    int64_t wait_ms_max;
} FsyncRequest;

static ErrCode fsync_run(CommandCtx *ctx, void *arg, Error *err) {
    const FsyncRequest *request = arg;
    int64_t count = 0;
    if (request->lock) /* before the checkpoint, which then has everything that was written */
        TRY(fsync_lock_acquire(ctx->service->fsync_lock, ctx->op,
                               request->wait_ms_max > 0 ? request->wait_ms_max : LOCK_WAIT_MS,
                               &count, err));
    op_block_begin(ctx->op);
    ErrCode rc = storage_checkpoint(ctx->service->storage, err);
    op_block_end(ctx->op);
    if (request->lock && rc != ERR_OK) {
        CLEANUP(error_reset) Error ignored = {0};
        (void)!fsync_lock_release(ctx->service->fsync_lock, ctx->op, &count, &ignored);
    }
    TRY(rc);
    if (!request->lock) {
        build_i32(ctx->reply, "numFiles", 1);
        return ERR_OK;
    }
    build_cstr(ctx->reply, "info", "writes wait until fsyncUnlock");
    build_i64(ctx->reply, "lockCount", count);
    return ERR_OK;
}

static ErrCode fsync_unlock_run(CommandCtx *ctx, void *request, Error *err) {
    (void)request;
    int64_t count;
    TRY(fsync_lock_release(ctx->service->fsync_lock, ctx->op, &count, err));
    build_cstr(ctx->reply, "info", "fsyncUnlock completed");
    build_i64(ctx->reply, "lockCount", count);
    return ERR_OK;
}

static const FieldSpec FSYNC_FIELDS[] = {
    {"fsync", FIELD_ELEM, FIELD_REQUIRED, offsetof(FsyncRequest, fsync)},
    {"lock", FIELD_BOOL, FIELD_OPTIONAL, offsetof(FsyncRequest, lock)},
    {"async", FIELD_BOOL, FIELD_OPTIONAL, offsetof(FsyncRequest, async)},
    {"fsyncLockAcquisitionTimeoutMillis", FIELD_I64, FIELD_OPTIONAL,
     offsetof(FsyncRequest, wait_ms_max)},
};

const CommandSpec CMD_FSYNC = {
    .name = "fsync",
    .summary = "Writes a checkpoint, and may keep writers out after it.",
    .flags = CMD_ADMIN_ONLY,
    .request = REQUEST_OF(FsyncRequest, FSYNC_FIELDS),
    .run = fsync_run,
};

const CommandSpec CMD_FSYNC_UNLOCK = {
    .name = "fsyncUnlock",
    .summary = "Ends the lock of fsync.",
    .flags = CMD_ADMIN_ONLY,
    .run = fsync_unlock_run,
};
