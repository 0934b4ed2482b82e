#include "router/check_commands.h"

#include <stdlib.h>
#include <string.h>

#include "router/forward.h"
#include "router/routing.h"
#include "router/scatter.h"

/*
 * Of a collection, of a database, or with "admin" of the whole cluster. The config server says what
 * shows in its catalog alone, the primary shard of each database what its shards have. Types of our
 * own, of the whole cluster: DatabaseOnUnknownShard, HiddenDatabase.
 */
enum {
    DATABASES_MAX = 100000,
    FOUND_BYTES_MAX = 12 << 20, /* a reply has to fit into a message */
};

typedef struct CheckRun {
    CommandCtx *ctx;
    Str scope; /* "": the cluster; a database; "db.coll" */
    bool with_indexes;
    DocBuilder list; /* of the inconsistencies */
    uint32_t count;
    bool is_cut;
} CheckRun;

static void add_found(CheckRun *run, Doc found) {
    char name[INDEX_NAME_SIZE];
    run->is_cut |= run->list.buf->size > FOUND_BYTES_MAX;
    if (!run->is_cut)
        build_doc(&run->list, index_name(run->count++, name).data, found);
}

static void add_type(CheckRun *run, const char *type, const char *description, Doc details) {
    DocBuilder b = doc_builder_in_arena(cmd_arena(run->ctx));
    build_cstr(&b, "type", type);
    build_cstr(&b, "description", description);
    build_doc(&b, "details", details);
    add_found(run, doc_builder_end(&b));
}

static Doc found_of(Doc reply) {
    Elem list = doc_get_lit(reply, "inconsistencies");
    return elem_type(list) == BT_ARRAY ? elem_doc(list) : DOC_EMPTY;
}

/* ---- the config server ---- */

static ErrCode ask_config(CheckRun *run, Doc *ret_found, Error *err) {
    DocBuilder b = doc_builder_in_arena(cmd_arena(run->ctx));
    build_str(&b, "_configsvrCheckMetadataConsistency", run->scope);
    CLEANUP(client_reply_done) ClientReply reply = {0};
    TRY(config_run(run->ctx->service->cluster, run->ctx->op, &b, &reply, err));
    run->is_cut |= elem_is_truthy(doc_get_lit(reply.body, "truncated"));
    *ret_found = doc_copy(found_of(reply.body), cmd_arena(run->ctx));
    return ERR_OK;
}

/* ---- databases ---- */

typedef struct DatabaseCheck {
    CheckRun *run;
    Str name; /* of the database, or "db.coll" */
    ShardCalls calls;
} DatabaseCheck;

static void database_check_done(DatabaseCheck *check) {
    shard_calls_done(&check->calls);
}

static ErrCode ask_primary(void *arg, Routing *routing, Error *err) {
    DatabaseCheck *check = arg;
    CommandCtx *ctx = routing->ctx;
    if (routing->database == NULL) /* dropped meanwhile, or never there: nothing to check */
        return ERR_OK;
    const Shard *primary;
    TRY(routing_primary(routing, &primary, err));
    DocBuilder b = doc_builder_in_arena(cmd_arena(ctx));
    build_str(&b, "_shardsvrCheckMetadataConsistency", check->name);
    build_bool(&b, "checkIndexes", check->run->with_indexes);
    if (elem_is_present(ctx->args.max_time_ms))
        build_elem(&b, ctx->args.max_time_ms);
    remote_build_end(ctx->service->cluster, &b, STR("admin"), NULL, ctx->args.cluster_time);
    shard_calls_done(&check->calls);
    check->calls = shard_calls_new(ctx, 1);
    check->calls.rows[0].shard = primary;
    check->calls.rows[0].body = doc_builder_end(&b);
    TRY(scatter_run(ctx, &check->calls, &(ScatterOptions){.retry = REMOTE_IDEMPOTENT}, err));
    return shard_calls_check(&check->calls, err);
}

static void add_unknown_shard(CheckRun *run, Str db, const Error *cause) {
    DocBuilder b = doc_builder_in_arena(cmd_arena(run->ctx));
    build_str(&b, "database", db);
    build_cstr(&b, "error", error_message(cause));
    add_type(run, "DatabaseOnUnknownShard", "the primary shard of a database is not in the cluster",
             doc_builder_end(&b));
}

static ErrCode check_database(CheckRun *run, Str db, Str name, Error *err) {
    Ns ns;
    TRY(ns_make(db, STR("$cmd"), &ns, err));
    CLEANUP(database_check_done) DatabaseCheck check = {.run = run, .name = name};
    ErrCode rc = routing_run(run->ctx, &ns, ROUTING_READS, ask_primary, &check, err);
    if (rc == ERR_SHARD_NOT_FOUND) {
        add_unknown_shard(run, db, err);
        error_reset(err);
        return ERR_OK;
    }
    TRY(rc);
    DocIter iter =
        doc_iter(check.calls.count > 0 ? found_of(check.calls.rows[0].reply.body) : DOC_EMPTY);
    for (Elem row; doc_iter_next(&iter, &row);)
        if (elem_type(row) == BT_DOC)
            add_found(run, elem_doc(row));
    return ERR_OK;
}

typedef struct Databases {
    Str *names; /* sorted */
    uint32_t count;
} Databases;

static int compare_names(const void *a, const void *b) {
    return str_compare(*(const Str *)a, *(const Str *)b);
}

static ErrCode read_databases(CheckRun *run, Databases *ret_databases, Error *err) {
    ConfigQuery query = {.coll = "databases", .filter = DOC_EMPTY, .count_max = DATABASES_MAX};
    Doc *docs;
    uint32_t count;
    TRY(config_find(run->ctx->service->cluster, run->ctx->op, &query, &docs, &count, err));
    *ret_databases = (Databases){.names = ARENA_ARRAY(cmd_arena(run->ctx), Str, count + 1)};
    for (uint32_t i = 0; i < count; i++) {
        Elem id = doc_get_lit(docs[i], "_id");
        if (elem_type(id) == BT_STRING)
            ret_databases->names[ret_databases->count++] = elem_str(id);
    }
    qsort(ret_databases->names, ret_databases->count, sizeof(Str), compare_names);
    return ERR_OK;
}

/* ---- databases of shards that nobody has created ---- */

static ErrCode list_databases(CheckRun *run, ShardList *shards, ShardCalls *ret_calls, Error *err) {
    CommandCtx *ctx = run->ctx;
    shard_calls_done(ret_calls);
    *ret_calls = shard_calls_new(ctx, shards->count);
    for (uint32_t i = 0; i < shards->count; i++) {
        DocBuilder b = doc_builder_in_arena(cmd_arena(ctx));
        build_i32(&b, "listDatabases", 1);
        build_bool(&b, "nameOnly", true);
        remote_build_end(ctx->service->cluster, &b, STR("admin"), NULL, ctx->args.cluster_time);
        ret_calls->rows[i].shard = &shards->rows[i];
        ret_calls->rows[i].body = doc_builder_end(&b);
    }
    if (shards->count > 0)
        TRY(scatter_run(ctx, ret_calls, &(ScatterOptions){.retry = REMOTE_IDEMPOTENT}, err));
    return shard_calls_check(ret_calls, err);
}

static Doc databases_of(const ShardCall *call) {
    Elem list = doc_get_lit(call->reply.body, "databases");
    return elem_type(list) == BT_ARRAY ? elem_doc(list) : DOC_EMPTY;
}

/* What was listed before the entries were read, and again behind: a database that is being dropped
 * is in neither, one that is being created has its entry first. */
static void add_hidden(CheckRun *run, const Databases *known, const ShardCall *before,
                       const ShardCall *behind) {
    DocIter iter = doc_iter(databases_of(behind));
    for (Elem row; doc_iter_next(&iter, &row);) {
        Elem name = elem_type(row) == BT_DOC ? doc_get_lit(elem_doc(row), "name") : ELEM_MISSING;
        if (elem_type(name) != BT_STRING || db_is_internal(elem_str(name)))
            continue;
        Str text = elem_str(name);
        if (!doc_list_has(databases_of(before), elem_doc(row)) ||
            (known->count > 0 &&
             bsearch(&text, known->names, known->count, sizeof(Str), compare_names) != NULL))
            continue;
        DocBuilder b = doc_builder_in_arena(cmd_arena(run->ctx));
        build_str(&b, "database", text);
        build_cstr(&b, "shard", behind->shard->name);
        add_type(run, "HiddenDatabase", "a shard has a database that the cluster does not know",
                 doc_builder_end(&b));
    }
}

static ErrCode check_hidden(CheckRun *run, Error *err) {
    CLEANUP(forward_target_done) ForwardTarget keep = {0};
    TRY(cluster_newest_shards(run->ctx->service->cluster, run->ctx->op, &keep.list, err));
    ShardList *shards = keep.list;
    CLEANUP(shard_calls_done) ShardCalls before = {0}, behind = {0};
    Databases known;
    TRY(list_databases(run, shards, &before, err));
    TRY(read_databases(run, &known, err));
    TRY(list_databases(run, shards, &behind, err));
    for (uint32_t i = 0; i < shards->count; i++)
        add_hidden(run, &known, &before.rows[i], &behind.rows[i]);
    return ERR_OK;
}

static ErrCode check_databases(CheckRun *run, Error *err) {
    if (run->scope.size > 0)
        return check_database(run, run->ctx->args.db, run->scope, err);
    Databases databases;
    TRY(read_databases(run, &databases, err));
    for (uint32_t i = 0; i < databases.count && !run->is_cut; i++)
        TRY(check_database(run, databases.names[i], databases.names[i], err));
    return check_hidden(run, err);
}

/* ---- the command ---- */

/* What a drop leaves for a moment on the config server is gone when the shards, which wait for the
 * drop, have answered: so that is asked for before and behind. */
static ErrCode check_all(CheckRun *run, Error *err) {
    Doc before, behind = DOC_EMPTY;
    TRY(ask_config(run, &before, err));
    TRY(check_databases(run, err));
    if (!doc_is_empty(before))
        TRY(ask_config(run, &behind, err));
    DocIter iter = doc_iter(behind);
    for (Elem row; doc_iter_next(&iter, &row);)
        if (elem_type(row) == BT_DOC && doc_list_has(before, elem_doc(row)))
            add_found(run, elem_doc(row));
    return ERR_OK;
}

static ErrCode parse_scope(CommandCtx *ctx, Str *ret_scope, Error *err) {
    bool is_admin = str_is(ctx->args.db, "admin");
    if (ctx->ns_coll.size > 0) {
        Ns *ns = ARENA_NEW(cmd_arena(ctx), Ns);
        TRY(ns_make(ctx->args.db, ctx->ns_coll, ns, err));
        *ret_scope = ns_str(ns);
    } else {
        *ret_scope = is_admin ? STR("") : ctx->args.db;
    }
    if ((is_admin && ctx->ns_coll.size > 0) || str_is(ctx->args.db, "config"))
        return error_set(err, ERR_INVALID_NAMESPACE,
                         "the database \"%.*s\" is not spread: there is nothing to compare",
                         (int)ctx->args.db.size, ctx->args.db.data);
    return ERR_OK;
}

static ErrCode check_run(CommandCtx *ctx, void *arg, Error *err) {
    (void)arg;
    CheckRun run = {.ctx = ctx,
                    .list = doc_builder_in_arena(cmd_arena(ctx)),
                    .with_indexes = elem_is_truthy(doc_get_lit(ctx->body, "checkIndexes"))};
    TRY(parse_scope(ctx, &run.scope, err));
    TRY(check_all(&run, err));
    if (run.is_cut) {
        char name[INDEX_NAME_SIZE];
        size_t row = build_open_doc(&run.list, index_name(run.count, name).data);
        build_cstr(&run.list, "type", "MoreInconsistencies");
        build_cstr(&run.list, "description", "there are more than one reply can have");
        build_doc(&run.list, "details", DOC_EMPTY);
        build_close(&run.list, row);
    }
    size_t cursor = build_open_doc(ctx->reply, "cursor");
    build_i64(ctx->reply, "id", 0);
    build_cstr(ctx->reply, "ns",
               arena_printf(cmd_arena(ctx), "%.*s.$cmd.aggregate", (int)ctx->args.db.size,
                            ctx->args.db.data));
    build_array(ctx->reply, "firstBatch", doc_builder_end(&run.list));
    build_close(ctx->reply, cursor);
    return ERR_OK;
}

const CommandSpec ROUTER_CHECK_METADATA_CONSISTENCY = {
    .name = "checkMetadataConsistency",
    .summary = "Looks for data and metadata of the cluster that do not fit together.",
    .flags = CMD_LOOSE,
    .run = check_run,
};
