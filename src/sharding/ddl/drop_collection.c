/*
 * drop_collection.c - drop: the routing table first, then the documents, this shard's last, so that
 * change streams of the primary shard end after all others'.
 */
#include "ddl/ddl.h"
#include "sharding/ddl/coordinator_internal.h"
#include "sharding/shard/placement.h"

static Doc arguments(const DdlRun *run) {
    return elem_doc(doc_get_lit(ddl_request(run), "arguments"));
}

ErrCode drop_begin(DdlRun *run, Error *err) {
    Ns ns;
    TRY(ddl_ns(run, &ns, err));
    TRY(ddl_check_expected(run, &ns, doc_get_lit(arguments(run), "collectionUUID"), err));
    CLEANUP(collection_route_done) CollectionRoute *route = NULL;
    TRY(ddl_read_route(run, &ns, &route, err));
    if (route->map == NULL) {
        task_go_to(run->task, "drop.data");
        return ERR_OK;
    }
    DocBuilder b = doc_builder_in_arena(&run->op->arena);
    Uuid id = uuid_new();
    build_uuid(&b, "operationId", &id);
    build_uuid(&b, "uuid", &route->uuid);
    ddl_set_fields(run, &b);
    task_go_to(run->task, "drop.block");
    return ERR_OK;
}

ErrCode drop_block(DdlRun *run, Error *err) {
    Ns ns;
    TRY(ddl_ns(run, &ns, err));
    return ddl_block_all(run, &ns, "ReadsAndWrites", err);
}

ErrCode drop_commit(DdlRun *run, Error *err) {
    Ns ns;
    Uuid uuid;
    TRY(ddl_ns(run, &ns, err));
    invariant(ddl_uuid_field(run, "uuid", &uuid));
    return ddl_commit_drop(run, &ns, &uuid, err);
}

/* Ranges of zones may be given to a collection before it is sharded. */
static ErrCode drop_zones(DdlRun *run, const Ns *ns, Error *err) {
    DocBuilder b = doc_builder_in_arena(&run->op->arena);
    build_str(&b, "ns", ns_str(ns));
    ConfigQuery query = {.coll = "tags",
                         .filter = doc_builder_end(&b),
                         .sort = DOC_NONE,
                         .count_max = 1,
                         .limit = 1};
    Doc *docs;
    uint32_t count;
    TRY(config_find(run->cluster, run->op, &query, &docs, &count, err));
    Uuid none = uuid_new(); /* it has no entry */
    return count > 0 ? ddl_commit_drop(run, ns, &none, err) : ERR_OK;
}

/* One that is not sharded, or a view, is dropped here and nowhere else. */
static ErrCode drop_unsharded(DdlRun *run, const Ns *ns, Error *err) {
    TRY(drop_zones(run, ns, err));
    DropResult result;
    TRY(ddl_drop(run->op, ns, NULL, &result, err));
    DocBuilder b = doc_builder_in_arena(&run->op->arena);
    if (result.was_found && !result.was_view)
        build_i32(&b, "nIndexesWas", (int32_t)result.index_count);
    if (result.was_found)
        build_str(&b, "ns", ns_str(ns));
    task_set_result(run->task, doc_builder_end(&b));
    task_go_to(run->task, TASK_DONE);
    return ERR_OK;
}

ErrCode drop_data(DdlRun *run, Error *err) {
    Ns ns;
    TRY(ddl_ns(run, &ns, err));
    if (!elem_is_present(ddl_field(run, "uuid")))
        return drop_unsharded(run, &ns, err);
    return ddl_drop_all(run, &ns, NULL, err);
}

ErrCode drop_release(DdlRun *run, Error *err) {
    Ns ns;
    TRY(ddl_ns(run, &ns, err));
    TRY(ddl_block_all(run, &ns, "Unblock", err));
    DocBuilder b = doc_builder_in_arena(&run->op->arena);
    build_str(&b, "ns", ns_str(&ns));
    task_set_result(run->task, doc_builder_end(&b));
    return ERR_OK;
}
