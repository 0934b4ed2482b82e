/*
 * rename_collection.c - renameCollection: on every shard, this one last, while both names are
 * blocked; then in the routing table, as a new generation.
 */
#include <string.h>

#include "catalog/access.h"
#include "concurrency/service_ctx.h"
#include "ddl/ddl.h"
#include "sharding/ddl/coordinator_internal.h"

typedef struct RenameNames {
    Ns from;
    Ns to;
} RenameNames;

static ErrCode read_names(const DdlRun *run, RenameNames *ret_names, Error *err) {
    TRY(ddl_ns(run, &ret_names->from, err));
    return ns_parse(elem_str(doc_get_lit(ddl_request(run), "to")), &ret_names->to, err);
}

static Elem argument_elem(const DdlRun *run, const char *name) {
    Elem arguments = doc_get_lit(ddl_request(run), "arguments");
    return doc_get(elem_doc(arguments), str_from(name));
}

static bool argument(const DdlRun *run, const char *name) {
    return elem_is_truthy(argument_elem(run, name));
}

/* Which collection is meant, and which one may be dropped for it. */
static ErrCode check_uuids(DdlRun *run, const RenameNames *names, Error *err) {
    Elem target = argument_elem(run, "dropTarget");
    TRY(ddl_check_expected(run, &names->from, argument_elem(run, "collectionUUID"), err));
    return elem_type(target) == BT_BINARY ? ddl_check_expected(run, &names->to, target, err)
                                          : ERR_OK;
}

/* Of another database: only if it is on this shard, too, and nothing is sharded. */
static ErrCode check_databases(DdlRun *run, const RenameNames *names, bool is_any_sharded,
                               Error *err) {
    if (str_equal(ns_db(&names->from), ns_db(&names->to)))
        return ERR_OK;
    if (is_any_sharded)
        return error_set(err, ERR_COMMAND_FAILED,
                         "source and destination collections must be on the same database "
                         "because one of them is sharded");
    DatabaseRoute *route;
    TRY(cluster_ensure_database(run->cluster, run->op, ns_db(&names->to), &route, err));
    database_route_unref(route); /* it is there; where it is, as of now, is another question */
    ErrCode rc = ddl_check_primary(run, ns_db(&names->to), err);
    if (rc != ERR_STALE_DB_VERSION)
        return rc;
    error_reset(err);
    return error_set(err, ERR_COMMAND_FAILED,
                     "source and destination collections must be on the same shard");
}

static ErrCode check_target(const RenameNames *names, bool has_target, bool is_drop_target,
                            Error *err) {
    if (!has_target || is_drop_target)
        return ERR_OK;
    return error_set(err, ERR_NAMESPACE_EXISTS, "target namespace exists: %s", names->to.text);
}

static ErrCode note_found(void *arg, Doc doc, Error *err) {
    (void)doc, (void)err;
    *(bool *)arg = true;
    return ERR_OK;
}

/* Zones of the new name are not those of the collection, which brings its own. */
static ErrCode check_no_zones(DdlRun *run, const Ns *to, Error *err) {
    DocBuilder b = doc_builder_in_arena(&run->op->arena);
    build_str(&b, "ns", ns_str(to));
    ConfigQuery query = {
        .coll = "tags", .filter = doc_builder_end(&b), .sort = DOC_NONE, .limit = 1};
    bool is_found = false;
    TRY(config_each(run->cluster, run->op, &query, note_found, &is_found, err));
    return is_found ? error_set(err, ERR_COMMAND_FAILED,
                                "Can't rename to target collection %s because it must not have "
                                "associated tags",
                                to->text)
                    : ERR_OK;
}

/* All that would fail in a later phase, again and again. */
static ErrCode check_names(DdlRun *run, const RenameNames *names, Error *err) {
    if (ns_equal(&names->from, &names->to))
        return error_set(err, ERR_ILLEGAL_OPERATION, "Can't rename a collection to itself");
    if (ns_is_system(&names->from) != ns_is_system(&names->to))
        return error_set(err, ERR_ILLEGAL_OPERATION,
                         "cannot rename between system and user collections");
    TRY(ns_check_creatable(&names->to, err));
    CLEANUP(access_done) CollAccess target = {0};
    TRY(access_read(run->op, &names->to, &target, err));
    return target.view == NULL
               ? ERR_OK
               : error_set(err, ERR_NAMESPACE_EXISTS, "a view already exists with that name: %s",
                           names->to.text);
}

static ErrCode check_no_view(DdlRun *run, const Ns *ns, Error *err) {
    CLEANUP(access_done) CollAccess access = {0};
    TRY(access_read(run->op, ns, &access, err));
    return access.view == NULL ? ERR_OK
                               : error_set(err, ERR_COMMAND_NOT_SUPPORTED_ON_VIEW,
                                           "cannot rename view: %s", ns->text);
}

ErrCode rename_begin(DdlRun *run, Error *err) {
    RenameNames names;
    TRY(read_names(run, &names, err));
    TRY(check_no_view(run, &names.from, err));
    TRY(check_names(run, &names, err));
    TRY(check_uuids(run, &names, err));
    CLEANUP(collection_route_done) CollectionRoute *from = NULL, *to = NULL;
    TRY(ddl_read_route(run, &names.from, &from, err));
    TRY(ddl_read_route(run, &names.to, &to, err));
    bool is_any_sharded = from->map != NULL || to->map != NULL;
    TRY(check_databases(run, &names, is_any_sharded, err));
    Uuid source, target;
    bool has_source, has_target;
    TRY(ddl_local_uuid(run, &names.from, &has_source, &source, err));
    TRY(ddl_local_uuid(run, &names.to, &has_target, &target, err));
    if (!has_source && from->map == NULL)
        return error_set(err, ERR_NAMESPACE_NOT_FOUND, "Source collection %s does not exist",
                         names.from.text);
    TRY(check_target(&names, has_target || to->map != NULL, argument(run, "dropTarget"), err));
    if (from->map != NULL)
        TRY(ddl_check_sharded_name(&names.to, err));
    if (to->map == NULL) /* those of a collection that is dropped go with it */
        TRY(check_no_zones(run, &names.to, err));
    DocBuilder b = doc_builder_in_arena(&run->op->arena);
    Uuid id = uuid_new();
    build_uuid(&b, "operationId", &id);
    build_uuid(&b, "sourceUUID", from->map != NULL ? &from->uuid : &source);
    build_bool(&b, "isSourceSharded", from->map != NULL);
    if (to->map != NULL)
        build_uuid(&b, "targetUUID", &to->uuid);
    Oid epoch = oid_new();
    build_oid(&b, "epoch", &epoch);
    build_timestamp(&b, "timestamp", service_next_ts(run->op->service));
    ddl_set_fields(run, &b);
    task_go_to(run->task, is_any_sharded ? "rename.block" : "rename.local");
    return ERR_OK;
}

/* Twice is once: the source is gone then, and the target has its UUID. */
ErrCode rename_local(DdlRun *run, Error *err) {
    RenameNames names;
    TRY(read_names(run, &names, err));
    Uuid source, uuid;
    bool is_found;
    invariant(ddl_uuid_field(run, "sourceUUID", &source));
    TRY(ddl_local_uuid(run, &names.from, &is_found, &uuid, err));
    if (!is_found || !uuid_equal(&source, &uuid))
        return ERR_OK;
    return ddl_rename(run->op, &names.from, &names.to, argument(run, "dropTarget"), err);
}

ErrCode rename_block(DdlRun *run, Error *err) {
    RenameNames names;
    TRY(read_names(run, &names, err));
    TRY(ddl_block_all(run, &names.from, "ReadsAndWrites", err));
    return ddl_block_all(run, &names.to, "ReadsAndWrites", err);
}

static ErrCode rename_on(DdlRun *run, const Shard *shard, const RenameNames *names, Error *err) {
    DocBuilder b = doc_builder_in_arena(&run->op->arena);
    build_str(&b, "_shardsvrRenameCollectionParticipant", ns_str(&names->from));
    build_str(&b, "to", ns_str(&names->to));
    build_elem(&b, ddl_field(run, "sourceUUID"));
    build_bool(&b, "fromMigrate", strcmp(shard->name, run->self) != 0);
    return ddl_ask(run, shard, &b, err);
}

ErrCode rename_data(DdlRun *run, Error *err) {
    RenameNames names;
    TRY(read_names(run, &names, err));
    const Shard *self;
    TRY(ddl_find_shard(run, str_from(run->self), &self, err));
    for (uint32_t i = 0; i < run->shards->count; i++)
        if (&run->shards->rows[i] != self)
            TRY(rename_on(run, &run->shards->rows[i], &names, err));
    return rename_on(run, self, &names, err);
}

static ErrCode commit_sharded(DdlRun *run, const RenameNames *names, Error *err) {
    DocBuilder b = doc_builder_in_arena(&run->op->arena);
    build_str(&b, "_configsvrCommitRename", ns_str(&names->from));
    build_str(&b, "to", ns_str(&names->to));
    build_elem_as(&b, STR("uuid"), ddl_field(run, "sourceUUID"));
    Elem target = ddl_field(run, "targetUUID");
    if (elem_is_present(target))
        build_elem(&b, target);
    build_elem(&b, ddl_field(run, "epoch"));
    build_elem(&b, ddl_field(run, "timestamp"));
    CLEANUP(client_reply_done) ClientReply reply = {0};
    return ddl_ask_config(run, &b, &reply, err);
}

ErrCode rename_commit(DdlRun *run, Error *err) {
    RenameNames names;
    TRY(read_names(run, &names, err));
    if (elem_is_truthy(ddl_field(run, "isSourceSharded")))
        return commit_sharded(run, &names, err);
    Uuid target; /* sharded, and replaced by one that is not */
    invariant(ddl_uuid_field(run, "targetUUID", &target));
    return ddl_commit_drop(run, &names.to, &target, err);
}

ErrCode rename_release(DdlRun *run, Error *err) {
    RenameNames names;
    TRY(read_names(run, &names, err));
    TRY(ddl_block_all(run, &names.to, "Unblock", err));
    return ddl_block_all(run, &names.from, "Unblock", err);
}
