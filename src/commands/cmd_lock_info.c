/* cmd_lock_info.c - lockInfo: the locks that somebody waits for. */
#include <inttypes.h>

#include "commands/support.h"
#include "concurrency/lock_manager.h"

enum {
    LOCK_WAITERS_MAX = 10000, /* that one answer can name */
};

typedef struct LockInfoRequest {
    Elem lock_info;
} LockInfoRequest;

typedef struct Waiters {
    Arena *arena;
    LockWaiterInfo *rows;
    size_t count;
} Waiters;

static void add_waiter(void *arg, const LockWaiterInfo *info) {
    Waiters *waiters = arg;
    if (waiters->count < LOCK_WAITERS_MAX)
        waiters->rows[waiters->count++] = *info;
}

static bool is_first_of_resource(const Waiters *waiters, size_t at) {
    for (size_t i = 0; i < at; i++)
        if (waiters->rows[i].resource == waiters->rows[at].resource)
            return false;
    return true;
}

static void build_resource(DocBuilder *b, const Waiters *waiters, size_t at, Arena *arena) {
    static const char *const TYPES[] = {"", "Global", "Database", "Collection", "Mutex"};
    ResourceId resource = waiters->rows[at].resource;
    build_cstr(b, "resourceId",
               arena_printf(arena, "{%" PRIu64 ": %s, %" PRIu64 "}", resource,
                            TYPES[resource_type(resource)], resource & ((UINT64_C(1) << 61) - 1)));
    size_t pending = build_open_array(b, "pending");
    uint32_t count = 0;
    for (size_t i = at; i < waiters->count; i++) {
        if (waiters->rows[i].resource != resource)
            continue;
        char name[INDEX_NAME_SIZE];
        size_t row = build_open_doc_str(b, index_name(count++, name));
        build_cstr(b, "mode", lock_mode_name(waiters->rows[i].mode));
        build_count(b, "opid", waiters->rows[i].op_id);
        build_close(b, row);
    }
    build_close(b, pending);
}

static ErrCode lock_info_run(CommandCtx *ctx, void *request, Error *err) {
    (void)request, (void)err;
    Arena *arena = cmd_arena(ctx);
    Waiters waiters = {.arena = arena,
                       .rows = arena_alloc(arena, sizeof(LockWaiterInfo) * LOCK_WAITERS_MAX)};
    lock_for_each_waiter(op_registry_locks(ctx->service->ops), add_waiter, &waiters);
    DocBuilder *b = ctx->reply;
    size_t list = build_open_array(b, "lockInfo");
    uint32_t count = 0;
    for (size_t i = 0; i < waiters.count; i++) {
        if (!is_first_of_resource(&waiters, i))
            continue;
        char name[INDEX_NAME_SIZE];
        size_t row = build_open_doc_str(b, index_name(count++, name));
        build_resource(b, &waiters, i, arena);
        build_close(b, row);
    }
    build_close(b, list);
    return ERR_OK;
}

static const FieldSpec LOCK_INFO_FIELDS[] = {
    {"lockInfo", FIELD_ELEM, FIELD_REQUIRED, offsetof(LockInfoRequest, lock_info)},
};

const CommandSpec CMD_LOCK_INFO = {
    .name = "lockInfo",
    .summary = "Lists the locks that operations wait for.",
    .flags = CMD_ADMIN_ONLY,
    .request = REQUEST_OF(LockInfoRequest, LOCK_INFO_FIELDS),
    .run = lock_info_run,
};
