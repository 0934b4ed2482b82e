#include "router/defaults.h"

#include "router/forward.h"
#include "sharding/route/cluster_defaults.h"

/* ---- filling in ---- */

static Doc concern_of(Doc defaults, Str name) {
    Elem concern = doc_get(defaults, name);
    return elem_type(concern) == BT_DOC ? elem_doc(concern) : DOC_NONE;
}

static bool is_global(Doc defaults, Str source) {
    Elem elem = doc_get(defaults, source);
    return elem_type(elem) == BT_STRING && str_is(elem_str(elem), "global");
}

/* The default, but for what the command gives itself. */
static void build_merged(DocBuilder *b, const char *name, Doc chosen, Elem given) {
    Doc own = elem_type(given) == BT_DOC ? elem_doc(given) : DOC_EMPTY;
    size_t opened = build_open_doc(b, name);
    DocIter iter = doc_iter(chosen);
    for (Elem field; doc_iter_next(&iter, &field);)
        if (!elem_is_present(doc_get(own, elem_name_str(field))))
            build_elem(b, field);
    iter = doc_iter(own);
    for (Elem field; doc_iter_next(&iter, &field);)
        if (!elem_name_is(field, STR("provenance")))
            build_elem(b, field);
    build_cstr(b, "provenance", "customDefault");
    build_close(b, opened);
}

/* Of a transaction the first statement has a read concern, and the end a write concern. */
static bool wants_read(const CommandCtx *ctx) {
    uint32_t flags = ctx->spec->flags;
    if (ctx->read_concern.is_given || (flags & CMD_CONTINUES_READ) != 0)
        return false;
    return ctx->is_txn ? elem_is_present(ctx->args.start_transaction)
                       : (flags & CMD_TAKES_READ_CONCERN) != 0;
}

/* What sets the defaults is not subject to them: one that cannot be satisfied could not be changed.
 */
static bool wants_write(const CommandCtx *ctx) {
    uint32_t flags = ctx->spec->flags;
    if (ctx->spec == &ROUTER_SET_DEFAULT_RW_CONCERN)
        return false;
    return !ctx->write_concern.is_w_given && (flags & CMD_TAKES_WRITE_CONCERN) != 0 &&
           (!ctx->is_txn || (flags & CMD_ENDS_TXN) != 0);
}

static ReadConcernLevel level_of(Doc concern) {
    Elem level = doc_get_lit(concern, "level");
    return elem_type(level) == BT_STRING && str_is(elem_str(level), "majority")
               ? READ_CONCERN_MAJORITY
           : elem_type(level) == BT_STRING && str_is(elem_str(level), "available")
               ? READ_CONCERN_AVAILABLE
               : READ_CONCERN_LOCAL;
}

void defaults_apply(CommandCtx *ctx) {
    ClusterDefaults *known = cluster_defaults(ctx->service->cluster);
    if (LIKELY(!cluster_defaults_are_set(known)))
        return;
    Doc defaults = cluster_defaults_copy(known, cmd_arena(ctx));
    Doc read = DOC_NONE, write = DOC_NONE;
    if (wants_read(ctx) && is_global(defaults, STR("defaultReadConcernSource")))
        read = concern_of(defaults, STR("defaultReadConcern"));
    /* In a transaction there is no such level: as without a default. */
    if (doc_is_present(read) && ctx->is_txn && level_of(read) == READ_CONCERN_AVAILABLE)
        read = DOC_NONE;
    if (wants_write(ctx) && is_global(defaults, STR("defaultWriteConcernSource")))
        write = concern_of(defaults, STR("defaultWriteConcern"));
    if (!doc_is_present(read) && !doc_is_present(write))
        return;
    DocBuilder b = doc_builder_in_arena(cmd_arena(ctx));
    DocIter iter = doc_iter(ctx->body);
    for (Elem field; doc_iter_next(&iter, &field);)
        if (!(doc_is_present(read) && elem_name_is(field, STR("readConcern"))) &&
            !(doc_is_present(write) && elem_name_is(field, STR("writeConcern"))))
            build_elem(&b, field);
    if (doc_is_present(read))
        build_merged(&b, "readConcern", read, ctx->args.read_concern);
    if (doc_is_present(write))
        build_merged(&b, "writeConcern", write, ctx->args.write_concern);
    ctx->body = doc_builder_end(&b);
    if (doc_is_present(read)) {
        ctx->args.read_concern = doc_get_lit(ctx->body, "readConcern");
        ctx->read_concern.level = level_of(read);
    }
    if (doc_is_present(write))
        ctx->args.write_concern = doc_get_lit(ctx->body, "writeConcern");
}

/* ---- the commands ---- */

typedef struct GetRequest {
    bool is_in_memory;
} GetRequest;

/* What is asked for is read now; with inMemory it is told what this router goes by. */
static ErrCode get_run(CommandCtx *ctx, void *arg, Error *err) {
    const GetRequest *request = arg;
    ClusterDefaults *defaults = cluster_defaults(ctx->service->cluster);
    if (!request->is_in_memory)
        TRY(cluster_defaults_read(defaults, ctx->op, err));
    build_all(ctx->reply, cluster_defaults_copy(defaults, cmd_arena(ctx)));
    if (request->is_in_memory)
        build_bool(ctx->reply, "inMemory", true);
    return ERR_OK;
}

static ErrCode set_run(CommandCtx *ctx, void *arg, Error *err) {
    (void)arg;
    Cluster *cluster = ctx->service->cluster;
    ForwardTarget target = {.shard = cluster_config_shard(cluster), .is_write = true};
    CLEANUP(forward_reply_done) ForwardReply reply = {0};
    TRY(forward_send(ctx, &target, &reply, err));
    forward_build_reply(ctx, reply.reply.body, NULL);
    /* Set is set: what cannot be read now is read soon. */
    CLEANUP(error_reset) Error ignored = {0};
    (void)!cluster_defaults_read(cluster_defaults(cluster), ctx->op, &ignored);
    return ERR_OK;
}

static const FieldSpec GET_FIELDS[] = {
    {"inMemory", FIELD_BOOL, FIELD_OPTIONAL, offsetof(GetRequest, is_in_memory)},
};

const CommandSpec ROUTER_GET_DEFAULT_RW_CONCERN = {
    .name = "getDefaultRWConcern",
    .summary = "Shows the default read and write concern of the cluster.",
    .flags = CMD_ADMIN_ONLY | CMD_LOOSE,
    .request = REQUEST_OF(GetRequest, GET_FIELDS),
    .run = get_run,
};

const CommandSpec ROUTER_SET_DEFAULT_RW_CONCERN = {
    .name = "setDefaultRWConcern",
    .summary = "Sets the default read and write concern of the cluster.",
    .flags = CMD_ADMIN_ONLY | CMD_LOOSE | CMD_TAKES_WRITE_CONCERN,
    .run = set_run,
};
