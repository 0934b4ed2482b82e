/*
 * cmd_lock_info.c - lockInfo: who holds which locks, and who waits for them.
 *
 * Holders are running operations, and transactions between two of their statements. What each of
 * them shows is not taken at one instant: a lock may be missing, or be told that was just released.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "commands/support.h"
#include "concurrency/lock_manager.h"
#include "txn/session_id.h"
#include "txn/transaction.h"

enum {
    LOCK_ROWS_MAX = 10000, /* that one answer can name */
};

typedef struct LockInfoRequest {
    Elem lock_info;
} LockInfoRequest;

typedef struct LockRow {
    ResourceId resource;
    LockMode mode;
    bool is_pending;
    uint32_t op_id; /* 0: a transaction between two statements */
    int64_t connection_id;
    SessionId session; /* of such a transaction */
    uint32_t order;    /* as it was found: those that wait are in their order */
} LockRow;

typedef struct LockRows {
    LockRow *rows;
    uint32_t count;
} LockRows;

static LockRow *add_row(LockRows *list, ResourceId resource, LockMode mode) {
    if (list->count == LOCK_ROWS_MAX)
        return NULL;
    LockRow *row = &list->rows[list->count];
    *row = (LockRow){.resource = resource, .mode = mode, .order = list->count++};
    return row;
}

static void add_waiter(void *arg, const LockWaiterInfo *info) {
    LockRow *row = add_row(arg, lock_shown_id(info->resource), info->mode);
    if (row == NULL)
        return;
    row->is_pending = true;
    row->op_id = info->op_id;
}

static void add_operation(void *arg, OpCtx *op) {
    ShownLock held[LOCKS_SHOWN_MAX];
    uint32_t count = op->is_active ? lock_shown(op, held) : 0;
    for (uint32_t i = 0; i < count; i++) {
        LockRow *row = add_row(arg, held[i].resource, held[i].mode);
        if (row == NULL)
            return;
        row->op_id = op->op_id;
        row->connection_id = op->desc.connection_id;
    }
}

static void add_transaction(void *arg, const TxnInfo *info) {
    for (uint32_t i = 0; i < info->lock_count; i++) {
        LockRow *row = add_row(arg, info->locks[i].resource, info->locks[i].mode);
        if (row == NULL)
            return;
        row->session = info->id;
        row->connection_id = info->client->connection_id;
    }
}

static int compare_rows(const void *a, const void *b) {
    const LockRow *one = a, *other = b;
    if (one->resource != other->resource)
        return one->resource < other->resource ? -1 : 1;
    return one->order < other->order ? -1 : 1;
}

static const char *full_mode_name(LockMode mode) {
    static const char *const NAMES[] = {"IS", "IX", "S", "X"};
    return NAMES[mode];
}

static void build_rows(DocBuilder *b, const char *field, const LockRow *rows, uint32_t count,
                       bool is_pending) {
    size_t list = build_open_array(b, field);
    uint32_t at = 0;
    for (uint32_t i = 0; i < count; i++) {
        const LockRow *row = &rows[i];
        if (row->is_pending != is_pending)
            continue;
        char name[INDEX_NAME_SIZE];
        size_t opened = build_open_doc_str(b, index_name(at++, name));
        build_cstr(b, "mode", full_mode_name(row->mode));
        size_t client = build_open_doc(b, "clientInfo");
        if (row->op_id != 0) {
            build_count(b, "opid", row->op_id);
        } else {
            build_cstr(b, "desc", "inactive transaction");
            build_session_id(b, "lsid", &row->session);
        }
        if (row->connection_id != 0)
            build_count(b, "connectionId", row->connection_id);
        build_close(b, client);
        build_close(b, opened);
    }
    build_close(b, list);
}

static void build_resource(DocBuilder *b, const LockRow *rows, uint32_t count, Arena *arena) {
    static const char *const TYPES[] = {"", "Global", "Database", "Collection", "Mutex"};
    ResourceId resource = rows[0].resource;
    build_cstr(b, "resourceId",
               arena_printf(arena, "{%" PRIu64 ": %s, %" PRIu64 "}", resource,
                            TYPES[resource_type(resource)], resource & ((UINT64_C(1) << 61) - 1)));
    build_rows(b, "granted", rows, count, /* is_pending= */ false);
    build_rows(b, "pending", rows, count, /* is_pending= */ true);
}

static ErrCode lock_info_run(CommandCtx *ctx, void *request, Error *err) {
    (void)request, (void)err;
    Arena *arena = cmd_arena(ctx);
    OpRegistry *ops = ctx->service->ops;
    LockRows list = {.rows = ARENA_ARRAY(arena, LockRow, LOCK_ROWS_MAX)};
    lock_for_each_waiter(op_registry_locks(ops), add_waiter, &list);
    op_registry_for_each(ops, add_operation, &list);
    if (service_is_member(ctx->service))
        txn_for_each(ctx->service->sessions, add_transaction, &list);
    qsort(list.rows, list.count, sizeof(*list.rows), compare_rows);
    DocBuilder *b = ctx->reply;
    size_t resources = build_open_array(b, "lockInfo");
    uint32_t resource_count = 0;
    for (uint32_t i = 0, end; i < list.count; i = end) {
        for (end = i + 1; end < list.count && list.rows[end].resource == list.rows[i].resource;)
            end++;
        char name[INDEX_NAME_SIZE];
        size_t row = build_open_doc_str(b, index_name(resource_count++, name));
        build_resource(b, &list.rows[i], end - i, arena);
        build_close(b, row);
    }
    build_close(b, resources);
    return ERR_OK;
}

static const FieldSpec LOCK_INFO_FIELDS[] = {
    {"lockInfo", FIELD_ELEM, FIELD_REQUIRED, offsetof(LockInfoRequest, lock_info)},
};

const CommandSpec CMD_LOCK_INFO = {
    .name = "lockInfo",
    .summary = "Lists locks with those who hold them, and those who wait for them.",
    .flags = CMD_ADMIN_ONLY,
    .request = REQUEST_OF(LockInfoRequest, LOCK_INFO_FIELDS),
    .run = lock_info_run,
};
