/*
 * drop_database.c - dropDatabase: its sharded collections one by one, then all that is left on
 * every shard, then the entry of the database.
 */
#include <string.h>

#include "base/failpoint.h"
#include "sharding/ddl/coordinator_internal.h"
#include "sharding/shard/critical_section.h"

static ErrCode database_ns(const DdlRun *run, Ns *ret_ns, Error *err) {
    Elem name = doc_get_lit(ddl_request(run), "ns");
    return section_database_ns(elem_str(name), ret_ns, err);
}

ErrCode drop_database_begin(DdlRun *run, Error *err) {
    Ns db;
    TRY(database_ns(run, &db, err));
    cluster_forget_database(run->cluster, ns_str(&db));
    DatabaseRoute *route;
    TRY(cluster_find_database(run->cluster, run->op, ns_str(&db), &route, err));
    DocBuilder b = doc_builder_in_arena(&run->op->arena);
    Uuid id = uuid_new();
    build_uuid(&b, "operationId", &id);
    if (route != NULL)
        database_version_build(&b, "version", &route->version);
    ddl_set_fields(run, &b);
    database_route_unref(route);
    task_go_to(run->task, "dbdrop.next");
    return ERR_OK;
}

typedef struct FoundCollection {
    OpCtx *op;
    const char *ns;
    Uuid uuid;
} FoundCollection;

static ErrCode take_first(void *arg, Doc doc, Error *err) {
    (void)err;
    FoundCollection *found = arg;
    Elem id = doc_get_lit(doc, "_id");
    Uuid uuid;
    if (found->ns != NULL || elem_type(id) != BT_STRING ||
        !uuid_from_elem(doc_get_lit(doc, "uuid"), &uuid))
        return ERR_OK;
    found->ns = arena_strdup(&found->op->arena, elem_str(id).data);
    found->uuid = uuid;
    return ERR_OK;
}

ErrCode drop_database_next(DdlRun *run, Error *err) {
    Ns db;
    TRY(database_ns(run, &db, err));
    FoundCollection found = {.op = run->op};
    ConfigQuery query = {.coll = "collections",
                         .filter = config_filter_scope(ns_str(&db), &run->op->arena),
                         .sort = DOC_NONE};
    TRY(config_each(run->cluster, run->op, &query, take_first, &found, err));
    if (found.ns == NULL) {
        task_go_to(run->task, "dbdrop.block");
        return ERR_OK;
    }
    DocBuilder b = doc_builder_in_arena(&run->op->arena);
    build_elem(&b, ddl_field(run, "operationId"));
    Elem version = ddl_field(run, "version");
    if (elem_is_present(version))
        build_elem(&b, version);
    build_cstr(&b, "collection", found.ns);
    build_uuid(&b, "uuid", &found.uuid);
    ddl_set_fields(run, &b);
    task_go_to(run->task, "dbdrop.one");
    return ERR_OK;
}

ErrCode drop_database_one(DdlRun *run, Error *err) {
    Ns ns;
    Uuid uuid;
    TRY(ns_parse(elem_str(ddl_field(run, "collection")), &ns, err));
    invariant(ddl_uuid_field(run, "uuid", &uuid));
    TRY(ddl_block_all(run, &ns, "ReadsAndWrites", err));
    TRY(ddl_commit_drop(run, &ns, &uuid, err));
    TRY(ddl_drop_all(run, &ns, NULL, err));
    return ddl_block_all(run, &ns, "Unblock", err);
}

ErrCode drop_database_block(DdlRun *run, Error *err) {
    Ns db;
    TRY(database_ns(run, &db, err));
    return ddl_block_all(run, &db, "ReadsAndWrites", err);
}

static ErrCode drop_on(DdlRun *run, const Shard *shard, Str db, Error *err) {
    DocBuilder b = doc_builder_in_arena(&run->op->arena);
    build_str(&b, "_shardsvrDropDatabaseParticipant", db);
    build_bool(&b, "fromMigrate", strcmp(shard->name, run->self) != 0);
    return ddl_ask(run, shard, &b, err);
}

ErrCode drop_database_data(DdlRun *run, Error *err) {
    Ns db;
    TRY(database_ns(run, &db, err));
    const Shard *self;
    TRY(ddl_find_shard(run, str_from(run->self), &self, err));
    TRY(drop_on(run, self, ns_str(&db), err));
    for (uint32_t i = 0; i < run->shards->count; i++)
        if (&run->shards->rows[i] != self)
            TRY(drop_on(run, &run->shards->rows[i], ns_str(&db), err));
    return ERR_OK;
}

ErrCode drop_database_commit(DdlRun *run, Error *err) {
    Ns db;
    TRY(database_ns(run, &db, err));
    Elem version = ddl_field(run, "version");
    if (!elem_is_present(version))
        return ERR_OK;
    DocBuilder b = doc_builder_in_arena(&run->op->arena);
    build_str(&b, "_configsvrCommitDropDatabase", ns_str(&db));
    build_elem(&b, version);
    CLEANUP(client_reply_done) ClientReply reply = {0};
    return ddl_ask_config(run, &b, &reply, err);
}

ErrCode drop_database_release(DdlRun *run, Error *err) {
    Ns db;
    TRY(database_ns(run, &db, err));
    TRY(ddl_mark_database(run, "dropDatabase", ns_str(&db), err));
    failpoint_hit(FP_DDL_MARKED);
    TRY(ddl_block_all(run, &db, "Unblock", err));
    DocBuilder b = doc_builder_in_arena(&run->op->arena);
    build_str(&b, "dropped", ns_str(&db));
    task_set_result(run->task, doc_builder_end(&b));
    return ERR_OK;
}
