/*
 * cmd_compact.c - compact: gives unused space of a collection's files back to the file system.
 *
 * Not replicated: each member does its own. Reads and writes of the collection go on meanwhile.
 */
#include "catalog/access.h"
#include "commands/support.h"
#include "repl/repl.h"
#include "storage/engine.h"

typedef struct CompactRequest {
    Str coll;
    bool is_forced;
} CompactRequest;

static const FieldSpec COMPACT_FIELDS[] = {
    {"compact", FIELD_COLL, FIELD_REQUIRED, offsetof(CompactRequest, coll)},
    {"force", FIELD_BOOL, FIELD_OPTIONAL, offsetof(CompactRequest, is_forced)},
};

/* Its tables, named before anything is done: nothing is held while WiredTiger works. */
typedef struct Tables {
    const char *idents[COLLECTION_INDEXES_MAX + 1];
    uint32_t count;
} Tables;

static ErrCode name_tables(CommandCtx *ctx, const Ns *ns, Tables *ret_tables, Error *err) {
    CLEANUP(catalog_guard_done) CatalogGuard guard = cmd_catalog(ctx);
    const Collection *coll = catalog_find(guard.catalog, ns);
    if (coll == NULL && catalog_find_view(guard.catalog, ns) != NULL)
        return error_set(err, ERR_COMMAND_NOT_SUPPORTED_ON_VIEW,
                         "\"%s\" is a view: it has no files to compact", ns->text);
    if (coll == NULL)
        return error_set(err, ERR_NAMESPACE_NOT_FOUND, "collection \"%s\" does not exist",
                         ns->text);
    Arena *arena = cmd_arena(ctx);
    ret_tables->count = 0;
    ret_tables->idents[ret_tables->count++] =
        arena_strdup(arena, record_store_ident(coll->records));
    for (uint32_t i = 0; i < coll->index_count; i++)
        if (coll->indexes[i]->is_ready && coll->indexes[i]->store != NULL)
            ret_tables->idents[ret_tables->count++] = arena_strdup(arena, coll->indexes[i]->ident);
    return ERR_OK;
}

static ErrCode compact_run(CommandCtx *ctx, void *arg, Error *err) {
    const CompactRequest *request = arg;
    Ns ns;
    TRY(cmd_ns(ctx, request->coll, &ns, err));
    if (service_is_member(ctx->service) && repl_is_writable(ctx->service->repl) &&
        !request->is_forced)
        return error_set(err, ERR_ILLEGAL_OPERATION,
                         "a primary compacts no collection, since that slows down other "
                         "operations, unless with force: true");
    Tables tables = {0};
    TRY(name_tables(ctx, &ns, &tables, err));
    StorageEngine *engine = ctx->service->storage;
    int64_t freed = 0;
    for (uint32_t i = 0; i < tables.count; i++) {
        TRY(op_check_interrupt_slow(ctx->op, err));
        int64_t before = storage_table_bytes(engine, tables.idents[i]);
        op_block_begin(ctx->op);
        ErrCode rc = storage_compact_table(engine, tables.idents[i], err);
        op_block_end(ctx->op);
        TRY(rc);
        freed += before - storage_table_bytes(engine, tables.idents[i]);
    }
    build_count(ctx->reply, "bytesFreed", freed > 0 ? freed : 0);
    return ERR_OK;
}

const CommandSpec CMD_COMPACT = {
    .name = "compact",
    .summary = "Gives unused space of a collection back to the file system.",
    .request = REQUEST_OF(CompactRequest, COMPACT_FIELDS),
    .run = compact_run,
};
