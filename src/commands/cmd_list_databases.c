/* cmd_list_databases.c - listDatabases: names and sizes. */
#include "commands/support.h"
#include "request/catalog_requests.h"

typedef struct ListState {
    CommandCtx *ctx;
    const ListDatabasesRequest *request;
    const Catalog *catalog;
    const MatchExpr *filter;
    uint32_t count;
    int64_t bytes_total;
    int64_t bytes_of_db;
    ErrCode rc;
    Error *err;
} ListState;

static bool add_collection_size(void *arg, const Collection *coll) {
    ListState *state = arg;
    CollectionSizes sizes = collection_sizes(state->ctx->service, coll);
    state->bytes_of_db += sizes.storage_bytes + sizes.index_bytes;
    return true;
}

static bool add_database(void *arg, Str db) {
    ListState *state = arg;
    ArenaDoc doc;
    arena_doc_begin(&doc, cmd_arena(state->ctx));
    build_str(&doc.b, "name", db);
    state->bytes_of_db = 0;
    if (!state->request->name_only) {
        catalog_for_each_in_db(state->catalog, db, add_collection_size, state);
        build_i64(&doc.b, "sizeOnDisk", state->bytes_of_db);
        build_bool(&doc.b, "empty", false);
    }
    Doc row = arena_doc_end(&doc);
    bool is_match;
    state->rc = cmd_filter_matches(state->filter, row, &is_match, state->err);
    if (state->rc != ERR_OK)
        return false;
    if (is_match) {
        char name[INDEX_NAME_SIZE];
        build_doc(state->ctx->reply, index_name(state->count++, name).data, row);
        state->bytes_total += state->bytes_of_db;
    }
    return true;
}

static ErrCode list_databases_run(CommandCtx *ctx, void *arg, Error *err) {
    const ListDatabasesRequest *request = arg;
    MatchExpr *filter;
    TRY(cmd_parse_filter(ctx, request->filter, &filter, err));
    CLEANUP(catalog_guard_done) CatalogGuard guard = cmd_catalog(ctx);
    ListState state = {
        .ctx = ctx, .request = request, .catalog = guard.catalog, .filter = filter, .err = err};
    size_t opened = build_open_array(ctx->reply, "databases");
    catalog_for_each_db(guard.catalog, add_database, &state);
    build_close(ctx->reply, opened);
    if (!request->name_only) {
        build_i64(ctx->reply, "totalSize", state.bytes_total);
        build_i64(ctx->reply, "totalSizeMb", state.bytes_total / (1024 * 1024));
    }
    return state.rc;
}

const CommandSpec CMD_LIST_DATABASES = {
    .name = "listDatabases",
    .summary = "Lists the databases.",
    .flags = CMD_ADMIN_ONLY | CMD_API_V1 | CMD_NEEDS_READABLE,
    .request = &LIST_DATABASES_REQUEST,
    .run = list_databases_run,
};
