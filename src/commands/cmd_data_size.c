/* cmd_data_size.c - dataSize: how much a collection holds, from its counters. */
#include "base/clock.h"
#include "commands/support.h"
#include "request/catalog_requests.h"

static ErrCode data_size_run(CommandCtx *ctx, void *arg, Error *err) {
    const DataSizeRequest *request = arg;
    Ns ns;
    TRY(ns_parse(request->ns, &ns, err));
    CLEANUP(catalog_guard_done) CatalogGuard guard = cmd_catalog(ctx);
    const Collection *coll = catalog_find(guard.catalog, &ns);
    int64_t start_us = clock_mono_us();
    build_bool(ctx->reply, "estimate", request->estimate);
    build_count(ctx->reply, "size", coll != NULL ? record_store_data_size(coll->records) : 0);
    build_count(ctx->reply, "numObjects", coll != NULL ? record_store_count(coll->records) : 0);
    build_count(ctx->reply, "millis", (clock_mono_us() - start_us) / 1000);
    return ERR_OK;
}

const CommandSpec CMD_DATA_SIZE = {
    .name = "dataSize",
    .alias = "datasize",
    .summary = "Tells how many bytes of documents a collection holds.",
    .request = &DATA_SIZE_REQUEST,
    .run = data_size_run,
};
