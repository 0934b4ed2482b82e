#include "request/generic_args.h"

#define GENERIC(name, type, member)                                                                \
    { name, type, FIELD_OPTIONAL, offsetof(GenericArgs, member) }
/* Where null is refused, or is a value. */
#define GENERIC_ANY(name, member)                                                                  \
    { name, FIELD_ELEM, FIELD_NULL_COUNTS, offsetof(GenericArgs, member) }
#define GENERIC_IGNORED(name)                                                                      \
    { name, FIELD_IGNORED, FIELD_OPTIONAL, 0 }

static const FieldSpec GENERIC_FIELDS[] = {
    GENERIC("$db", FIELD_STRING, db),
    GENERIC("lsid", FIELD_ELEM, lsid),
    GENERIC("txnNumber", FIELD_ELEM, txn_number),
    GENERIC("stmtId", FIELD_ELEM, stmt_id),
    GENERIC("autocommit", FIELD_ELEM, autocommit),
    GENERIC("startTransaction", FIELD_ELEM, start_transaction),
    GENERIC_ANY("readConcern", read_concern),
    GENERIC_ANY("writeConcern", write_concern),
    GENERIC("$readPreference", FIELD_ELEM, read_preference),
    GENERIC_ANY("comment", comment),
    GENERIC("maxTimeMS", FIELD_ELEM, max_time_ms),
    GENERIC("apiVersion", FIELD_ELEM, api_version),
    GENERIC("apiStrict", FIELD_ELEM, api_strict),
    GENERIC("apiDeprecationErrors", FIELD_ELEM, api_deprecation_errors),
    GENERIC("$clusterTime", FIELD_ELEM, cluster_time),
    GENERIC("$configTime", FIELD_ELEM, config_time),
    GENERIC("$replData", FIELD_ELEM, repl_data),
    GENERIC("shardVersion", FIELD_ELEM, shard_version),
    GENERIC("databaseVersion", FIELD_ELEM, database_version),
    GENERIC_IGNORED("$audit"),
    GENERIC_IGNORED("$client"),
    GENERIC_IGNORED("$configServerState"),
    GENERIC_IGNORED("$queryOptions"),
    GENERIC_IGNORED("maxTimeMSOpOnly"),
    GENERIC_IGNORED("$maxTimeMS"),
    GENERIC_IGNORED("help"),
};

const RequestSpec GENERIC_ARGS = REQUEST_SPEC(GenericArgs, GENERIC_FIELDS);
