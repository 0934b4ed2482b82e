/* drop.c - collections, views and databases go away. */
#include <string.h>

#include "base/alloc.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "bson/builder.h"
#include "ddl/ddl_internal.h"
#include "ddl/views.h"
#include "index/build/coordinator.h"

typedef struct DropArgs {
    const Ns *ns;
    const Uuid *expected_uuid;
    DropResult *result;
} DropArgs;

static ErrCode drop_attempt(void *arg, OpCtx *op, Error *err) {
    DropArgs *args = arg;
    *args->result = (DropResult){0};
    CLEANUP(access_done) CollAccess access = {0};
    TRY(access_write(op, args->ns, LOCK_X, &access, err));
    if (access.coll == NULL)
        return ERR_OK;
    if (args->expected_uuid != NULL && !uuid_equal(args->expected_uuid, &access.coll->uuid))
        return error_set(err, ERR_COLLECTION_UUID_MISMATCH,
                         "Collection UUID does not match that specified");
    args->result->was_found = true;
    args->result->index_count = access.coll->index_count;
    args->result->uuid = access.coll->uuid;
    CLEANUP(uow_done) UnitOfWork uow = {0};
    TRY(uow_begin(op, &uow, err));
    TRY(ddl_observe(op, args->ns, &access.coll->uuid, ddl_entry_drop(op, args->ns),
                    ddl_entry_num_records(op, access.coll), err));
    TRY(catalog_stage_drop(op, access.coll, err));
    TRY(uow_commit(&uow, err));
    LOG_INFO(LOG_STORAGE, 518070, "Collection dropped", LOG_STR("namespace", args->ns->text));
    /* After the commit: the drop decides, this only ends the builds early. Before it, a failed drop
     * would have killed them for nothing. */
    index_builds_abort_collection(op_index_builds(op), &access.coll->uuid,
                                  "the collection is being dropped");
    return ERR_OK;
}

ErrCode ddl_drop(OpCtx *op, const Ns *ns, const Uuid *expected_uuid, DropResult *ret_result,
                 Error *err) {
    DropArgs args = {ns, expected_uuid, ret_result};
    TRY(op_run_with_retry(op, drop_attempt, &args, err));
    if (ret_result->was_found)
        return ERR_OK;
    bool was_view;
    TRY(view_drop(op, ns, &was_view, err));
    ret_result->was_found = ret_result->was_view = was_view;
    return ERR_OK;
}

typedef struct DropDatabaseArgs {
    Str db;
    bool existed;
} DropDatabaseArgs;

typedef struct DbDropVisit {
    OpCtx *op;
    Error *err;
    ErrCode rc;
    bool existed;
    DocBuilder dropped; /* {name: uuid, ...}, in the order of the drops */
} DbDropVisit;

static bool stage_drop_of(void *arg, const Collection *coll) {
    DbDropVisit *visit = arg;
    visit->existed = true;
    build_uuid(&visit->dropped, ns_coll(&coll->ns).data, &coll->uuid);
    visit->rc = catalog_stage_drop(visit->op, coll, visit->err);
    failpoint_hit(FP_DROP_DATABASE_EACH);
    return visit->rc == ERR_OK;
}

static bool abort_builds_of(void *arg, const Collection *coll) {
    index_builds_abort_collection(op_index_builds(arg), &coll->uuid, "dropDatabase command");
    return true;
}

/* One unit of work: after a crash the database is there as it was, or gone. */
static ErrCode drop_database_attempt(void *arg, OpCtx *op, Error *err) {
    DropDatabaseArgs *args = arg;
    CLEANUP(access_done) CollAccess access = {0};
    TRY(access_database(op, args->db, &access, err));
    CLEANUP(uow_done) UnitOfWork uow = {0};
    TRY(uow_begin(op, &uow, err));
    DbDropVisit visit = {op, err, ERR_OK, false, doc_builder_in_arena(&op->arena)};
    catalog_for_each_in_db(access.catalog, args->db, stage_drop_of, &visit);
    TRY(visit.rc);
    args->existed = visit.existed || catalog_is_db_emptied(op_catalog(op), args->db);
    if (args->existed)
        TRY(ddl_observe(op, &access.ns, NULL, ddl_entry_drop_database(op),
                        ddl_entry_dropped(op, doc_builder_end(&visit.dropped)), err));
    TRY(uow_commit(&uow, err));
    if (args->existed)
        LOG_INFO(LOG_STORAGE, 20336, "Database dropped", LOG_STR("db", access.ns.text));
    catalog_forget_emptied_db(op_catalog(op), args->db);
    catalog_for_each_in_db(access.catalog, args->db, abort_builds_of, op);
    return ERR_OK;
}

ErrCode ddl_drop_database(OpCtx *op, Str db, bool *ret_existed, Error *err) {
    DropDatabaseArgs args = {db, false};
    TRY(op_run_with_retry(op, drop_database_attempt, &args, err));
    *ret_existed = args.existed;
    return ERR_OK;
}
