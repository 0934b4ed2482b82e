/* cmd_drop_database.c - dropDatabase. */
#include "catalog/own_collections.h"
#include "commands/core/command_service.h"
#include "commands/core/top.h"
#include "commands/support.h"
#include "ddl/ddl.h"
#include "profiler/profiler.h"
#include "request/catalog_requests.h"

static ErrCode drop_database_run(CommandCtx *ctx, void *arg, Error *err) {
    const DropDatabaseRequest *request = arg;
    Str db = ctx->args.db;
    if (!elem_is_number(request->drop_database) || elem_as_i64(request->drop_database) != 1)
        return error_set(err, (ErrCode)5255100, "Have to pass 1 as 'drop' parameter");
    if (UNLIKELY(str_has_char(db, '$'))) /* cannot be there */
        return ERR_OK;
    TRY(db_name_check(db, err));
    TRY(own_databases_check_drop(ctx->op, db, err));
    bool existed = false;
    TRY(ddl_drop_database(ctx->op, db, &existed, err));
    top_forget_db(command_top(ctx->service), db);
    if (ctx->service->profiler != NULL)
        profiler_forget_level(ctx->service->profiler, db);
    if (existed)
        build_str(ctx->reply, "dropped", db);
    return ERR_OK;
}

const CommandSpec CMD_DROP_DATABASE = {
    .name = "dropDatabase",
    .summary = "Removes a database with all its collections.",
    .flags = CMD_WRITES | CMD_API_V1 | CMD_WAITS_FOR_MAJORITY,
    .request = &DROP_DATABASE_REQUEST,
    .run = drop_database_run,
};
