#include "catalog/own_collections.h"

#include "concurrency/service_ctx.h"
#include "storage/engine.h"

enum {
    /* Everything but writes: those of single documents are the business of whoever repairs. */
    NOT_WRITES = OWN_CHANGE_DROP | OWN_CHANGE_RENAME | OWN_CHANGE_FORM,
};

typedef struct OwnCollection {
    const char *ns; /* without a dot in front: the whole name; with one: in every database */
    uint32_t refused;
    bool is_of_member; /* only while the node is a member of a replica set */
    const char *what;  /* "... holds ..." */
} OwnCollection;

/* What follows when one of them goes: see `what`. One that is missing here is made again by those
 * who need it: config.system.sessions, config.settings. */
static const OwnCollection OWN_COLLECTIONS[] = {
    {"local.oplog.rs", NOT_WRITES | OWN_CHANGE_WRITE, true, "the order of all writes"},
    {"local.system.replset", NOT_WRITES, true, "the configuration of the replica set"},
    {"local.system.rollback.id", NOT_WRITES, true, "how often this member went back"},
    {"local.replset.election", NOT_WRITES, true, "the vote this member has given"},
    {"local.replset.minvalid", NOT_WRITES, true, "how far this member has to apply"},
    {"local.replset.oplogTruncateAfterPoint", NOT_WRITES, true, "where the oplog may have holes"},
    {"local.replset.initialSyncId", NOT_WRITES, true, "from which copy the data are"},
    {"admin.system.keys", NOT_WRITES, true, "the keys that sign cluster times"},
    {"config.system.indexBuilds", NOT_WRITES, true, "the votes on index builds"},
    {"admin.system.version", OWN_CHANGE_DROP | OWN_CHANGE_RENAME, false, "the version of the data"},
    /* Their rows are written without a lock on them (txn/session_tables.h), so their form must not
     * change. To drop them is to forget all retryable writes. */
    {"config.transactions", OWN_CHANGE_FORM | OWN_CHANGE_RENAME | OWN_CHANGE_CREATE, false,
     "the history of retryable writes"},
    {"config.image_collection", OWN_CHANGE_FORM | OWN_CHANGE_RENAME | OWN_CHANGE_CREATE, false,
     "the history of retryable writes"},
    /* Written without a lock as well (preimages/preimage_store.h). */
    {"config.system.preimages",
     OWN_CHANGE_WRITE | OWN_CHANGE_FORM | OWN_CHANGE_RENAME | OWN_CHANGE_CREATE, false,
     "documents before their changes"},
    {".system.views", OWN_CHANGE_WRITE, false, "the views of its database"},
    {".system.profile", OWN_CHANGE_WRITE, false, "the profile of its database"},
};

static const OwnCollection *find(const Ns *ns) {
    for (size_t i = 0; i < ARRAY_LEN(OWN_COLLECTIONS); i++) {
        const OwnCollection *own = &OWN_COLLECTIONS[i];
        if (own->ns[0] == '.' ? str_is(ns_coll(ns), own->ns + 1) : str_is(ns_str(ns), own->ns))
            return own;
    }
    return NULL;
}

static ErrCode refuse_oplog(OwnChange change, Error *err) {
    switch (change) {
    case OWN_CHANGE_DROP:
        return error_set(err, ERR_ILLEGAL_OPERATION, "can't drop live oplog while replicating");
    case OWN_CHANGE_RENAME:
        return error_set(err, ERR_ILLEGAL_OPERATION,
                         "can't rename from or to live oplog while replicating");
    case OWN_CHANGE_OPTIONS:
        return error_set(err, ERR_INVALID_OPTIONS,
                         "Cannot change the oplog by collMod; its size is changed by "
                         "replSetResizeOplog");
    case OWN_CHANGE_INDEXES:
        return error_set(err, ERR_CANNOT_CREATE_INDEX, "cannot have an index on the oplog");
    default:
        return error_set(err, ERR_ILLEGAL_OPERATION,
                         "not allowed on the live oplog while replicating");
    }
}

ErrCode own_collections_check(const OpCtx *op, const Ns *ns, OwnChange change, Error *err) {
    /* Hardly any name gets further: those of the node's own databases, and "system." ones. */
    Str db = ns_db(ns);
    bool is_own_db = db_is_internal(db);
    if (LIKELY(!is_own_db && !ns_is_system(ns)))
        return ERR_OK;
    /* Also on a standalone node, which may be a member again. */
    if (change == OWN_CHANGE_DROP && ns_is_oplog(ns) && !storage_is_replicated(op_storage(op)))
        return error_set(err, ERR_ILLEGAL_OPERATION,
                         "can't drop the oplog; its size is changed by replSetResizeOplog");
    const OwnCollection *own = find(ns);
    if (own == NULL || (own->refused & change) == 0 ||
        (own->is_of_member && !storage_is_replicated(op_storage(op))))
        return ERR_OK;
    if (change == OWN_CHANGE_WRITE)
        return error_set(err, ERR_INVALID_NAMESPACE, "cannot write to %s", ns->text);
    if (ns_is_oplog(ns))
        return refuse_oplog(change, err);
    if (change == OWN_CHANGE_DROP && ns_is_system(ns))
        return error_set(err, ERR_ILLEGAL_OPERATION,
                         "can't drop system collection %s, which holds %s", ns->text, own->what);
    return error_set(err, ERR_ILLEGAL_OPERATION, "not allowed on \"%s\", which holds %s", ns->text,
                     own->what);
}

ErrCode own_databases_check_drop(const OpCtx *op, Str db, Error *err) {
    if (str_is(db, "admin"))
        return error_set(err, ERR_ILLEGAL_OPERATION,
                         "Dropping the 'admin' database is prohibited.");
    if (str_is(db, "local") && storage_is_replicated(op_storage(op)))
        return error_set(err, ERR_ILLEGAL_OPERATION,
                         "Cannot drop 'local' database while replication is active");
    NodeRole role = op->service->role;
    if (str_is(db, "config") && (role == ROLE_CONFIG_SERVER || role == ROLE_SHARD))
        return error_set(err, ERR_ILLEGAL_OPERATION,
                         "Cannot drop 'config' database of a member of a sharded cluster");
    return ERR_OK;
}
