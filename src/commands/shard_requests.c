#include "commands/shard_requests.h"

#include "base/alloc.h"
#include "commands/node_commands.h"
#include "query/agg/foreign_names.h"
#include "sharding/shard/refresh.h"
#include "storage/engine.h"

/* What is executed: the command, or the one that it explains. */
static Doc executed_command(const CommandCtx *ctx) {
    Elem explained = ctx->spec == &CMD_EXPLAIN ? doc_get_lit(ctx->body, "explain") : ELEM_MISSING;
    return elem_type(explained) == BT_DOC ? elem_doc(explained) : ctx->body;
}

static Str explained_coll(const CommandCtx *ctx) {
    DocIter iter = doc_iter(executed_command(ctx));
    Elem first;
    return doc_iter_next(&iter, &first) && elem_type(first) == BT_STRING ? elem_str(first)
                                                                         : STR("");
}

static ErrCode parse_ns(CommandCtx *ctx, OpRouting *routing, Error *err) {
    Str coll = ctx->spec == &CMD_EXPLAIN ? explained_coll(ctx) : ctx->ns_coll;
    routing->has_collection = coll.size > 0;
    return ns_make(ctx->args.db, routing->has_collection ? coll : STR("$cmd"), &routing->ns, err);
}

static ErrCode parse_versions(CommandCtx *ctx, OpRouting *routing, Error *err) {
    routing->has_version = elem_is_present(ctx->args.shard_version) && routing->has_collection;
    if (routing->has_version)
        TRY(chunk_version_parse(ctx->args.shard_version, "shardVersion", &routing->version, err));
    routing->has_database_version = elem_is_present(ctx->args.database_version);
    if (routing->has_database_version)
        TRY(database_version_parse(ctx->args.database_version, "databaseVersion",
                                   &routing->database_version, err));
    return ERR_OK;
}

/* A pipeline that a router takes for one of unsharded collections: this shard reads the others
 * here, and must know that they are. What the stages of views name is known to routers, too: they
 * take views apart. */
static void look_beside(CommandCtx *ctx, OpRouting *routing) {
    Elem stages = doc_get_lit(executed_command(ctx), "pipeline");
    if (!routing->has_version || !chunk_version_is_unsharded(&routing->version) ||
        elem_type(stages) != BT_ARRAY)
        return;
    ForeignNames names = {.arena = cmd_arena(ctx)};
    foreign_names_add(&names, elem_doc(stages));
    routing->is_pipeline = names.count > 0;
    for (uint32_t i = 0; i < names.count; i++) {
        const ForeignName *name = &names.rows[i];
        Ns ns;
        CLEANUP(error_reset) Error bad_name = {0}; /* for who parses the stages */
        if ((name->db.size == 0 || str_equal(name->db, ctx->args.db)) &&
            ns_make(ctx->args.db, name->coll, &ns, &bad_name) == ERR_OK)
            refresh_beside(ctx->service->shard, ctx->op, &ns);
    }
}

static bool is_available_read(const CommandCtx *ctx) {
    return (ctx->spec->flags & CMD_READS) != 0 && ctx->read_concern.level == READ_CONCERN_AVAILABLE;
}

ErrCode shard_request_begin(CommandCtx *ctx, Error *err) {
    ctx->op->routing = NULL;
    ShardState *state = ctx->service->shard;
    if (LIKELY(state == NULL || (!elem_is_present(ctx->args.shard_version) &&
                                 !elem_is_present(ctx->args.database_version))))
        return ERR_OK;
    TRY(shard_state_load(state, ctx->op, err));
    if (!shard_has_identity(state) || is_available_read(ctx))
        return ERR_OK;
    Cluster *cluster = shard_find_cluster(state);
    if (cluster != NULL)
        cluster_learn_config_time(cluster, ctx->args.config_time);
    OpRouting *routing = ARENA_NEW(cmd_arena(ctx), OpRouting);
    *routing = (OpRouting){0};
    TRY(parse_ns(ctx, routing, err));
    TRY(parse_versions(ctx, routing, err));
    ctx->op->routing = routing;
    if ((ctx->spec->flags & CMD_READS) != 0)
        look_beside(ctx, routing);
    /* Reads and writes of documents are checked by their accesses; but a transaction must not begin
     * by a statement that is refused, for the router sends it again. What is about the database
     * alone need not access a collection. */
    if (ctx->spec->op_type != NULL && !ctx->is_txn && routing->has_version)
        return ERR_OK;
    ErrCode rc = placement_check(state, routing, (ctx->spec->flags & CMD_WRITES) != 0, err);
    if (rc != ERR_OK)
        shard_request_end(ctx);
    return rc;
}

void shard_request_end(CommandCtx *ctx) {
    OpRouting *routing = ctx->op->routing;
    if (LIKELY(routing == NULL))
        return;
    ctx->op->routing = NULL; /* what follows is not the client's */
    if (UNLIKELY(routing->is_stale))
        shard_state_count_stale(ctx->service->shard);
    if (UNLIKELY(routing->is_blocked || routing->is_stale || routing->is_database_stale))
        refresh_after(ctx->service->shard, ctx->op, routing, ctx->is_txn);
}

void shard_request_keep(const CommandCtx *ctx, ClientCursor *cursor) {
    const OpRouting *routing = ctx->op->routing;
    if (LIKELY(routing == NULL || !routing->is_pipeline))
        return;
    cursor->routing = xmalloc(sizeof(OpRouting));
    *cursor->routing = *routing;
}

void shard_request_resume(CommandCtx *ctx, const ClientCursor *cursor) {
    if (LIKELY(cursor->routing == NULL))
        return;
    OpRouting *routing = ARENA_NEW(cmd_arena(ctx), OpRouting);
    *routing = *cursor->routing;
    ctx->op->routing = routing;
}

static void build_time(CommandCtx *ctx, const char *name, uint64_t ts) {
    if (ts != 0)
        build_timestamp(ctx->reply, name, ts);
}

/* The config server tells what a majority of it has: others read metadata not before that, and
 * would wait for more as long as it has no primary. */
void shard_request_finish_reply(CommandCtx *ctx) {
    if (LIKELY(!elem_is_present(ctx->args.config_time)))
        return;
    const ServiceCtx *service = ctx->service;
    Cluster *cluster =
        service->shard != NULL ? shard_find_cluster(service->shard) : service->cluster;
    if (cluster == NULL)
        return;
    build_time(ctx, "$configTime",
               service->role == ROLE_CONFIG_SERVER ? storage_majority_ts(service->storage)
                                                   : cluster_config_time(cluster));
    build_time(ctx, "$topologyTime", cluster_topology_time(cluster));
}
