#include "request/catalog_requests.h"

static const FieldSpec CREATE_FIELDS[] = {
    {"create", FIELD_COLL, FIELD_REQUIRED, offsetof(CreateRequest, coll)},
    {"capped", FIELD_ELEM, FIELD_OPTIONAL, offsetof(CreateRequest, capped)},
    {"size", FIELD_ELEM, FIELD_OPTIONAL, offsetof(CreateRequest, size)},
    {"max", FIELD_ELEM, FIELD_OPTIONAL, offsetof(CreateRequest, max)},
    {"validator", FIELD_ELEM, FIELD_OPTIONAL, offsetof(CreateRequest, validator)},
    {"validationLevel", FIELD_ELEM, FIELD_OPTIONAL, offsetof(CreateRequest, validation_level)},
    {"validationAction", FIELD_ELEM, FIELD_OPTIONAL, offsetof(CreateRequest, validation_action)},
    {"clusteredIndex", FIELD_ELEM, FIELD_OPTIONAL, offsetof(CreateRequest, clustered_index)},
    {"collation", FIELD_ELEM, FIELD_OPTIONAL, offsetof(CreateRequest, collation)},
    {"idIndex", FIELD_ELEM, FIELD_UNSTABLE, offsetof(CreateRequest, id_index)},
    {"autoIndexId", FIELD_ELEM, FIELD_UNSTABLE, offsetof(CreateRequest, auto_index_id)},
    {"indexOptionDefaults", FIELD_ELEM, FIELD_UNSTABLE,
     offsetof(CreateRequest, index_option_defaults)},
    {"storageEngine", FIELD_ELEM, FIELD_UNSTABLE, offsetof(CreateRequest, storage_engine)},
    {"viewOn", FIELD_STRING, FIELD_OPTIONAL, offsetof(CreateRequest, view_on)},
    {"pipeline", FIELD_ARRAY, FIELD_OPTIONAL, offsetof(CreateRequest, pipeline)},
    {"temp", FIELD_BOOL, FIELD_UNSTABLE, offsetof(CreateRequest, is_temp)},
    {"timeseries", FIELD_REFUSED, FIELD_OPTIONAL, 0},
    {"expireAfterSeconds", FIELD_ELEM, FIELD_OPTIONAL, offsetof(CreateRequest, expire_after)},
    {"changeStreamPreAndPostImages", FIELD_ELEM, FIELD_OPTIONAL,
     offsetof(CreateRequest, pre_images)},
    {"encryptedFields", FIELD_REFUSED, FIELD_OPTIONAL, 0},
};
const RequestSpec CREATE_REQUEST = REQUEST_SPEC(CreateRequest, CREATE_FIELDS);

static const FieldSpec CREATE_INDEXES_FIELDS[] = {
    {"createIndexes", FIELD_COLL, FIELD_REQUIRED, offsetof(CreateIndexesRequest, coll)},
    {"indexes", FIELD_DOCS, FIELD_REQUIRED, offsetof(CreateIndexesRequest, indexes)},
    {"commitQuorum", FIELD_ELEM, FIELD_UNSTABLE, offsetof(CreateIndexesRequest, commit_quorum)},
    {"ignoreUnknownIndexOptions", FIELD_BOOL, FIELD_UNSTABLE,
     offsetof(CreateIndexesRequest, ignore_unknown_options)},
    {"collectionUUID", FIELD_ELEM, FIELD_UNSTABLE, offsetof(CreateIndexesRequest, collection_uuid)},
};
const RequestSpec CREATE_INDEXES_REQUEST =
    REQUEST_SPEC(CreateIndexesRequest, CREATE_INDEXES_FIELDS);

static const FieldSpec COLL_MOD_FIELDS[] = {
    {"collMod", FIELD_COLL, FIELD_REQUIRED, offsetof(CollModRequest, coll)},
    {"validator", FIELD_ELEM, FIELD_OPTIONAL, offsetof(CollModRequest, change.validator)},
    {"validationLevel", FIELD_ELEM, FIELD_OPTIONAL,
     offsetof(CollModRequest, change.validation_level)},
    {"validationAction", FIELD_ELEM, FIELD_OPTIONAL,
     offsetof(CollModRequest, change.validation_action)},
    {"cappedSize", FIELD_ELEM, FIELD_OPTIONAL, offsetof(CollModRequest, change.capped_size)},
    {"cappedMax", FIELD_ELEM, FIELD_OPTIONAL, offsetof(CollModRequest, change.capped_max)},
    {"viewOn", FIELD_ELEM, FIELD_OPTIONAL, offsetof(CollModRequest, change.view_on)},
    {"pipeline", FIELD_ELEM, FIELD_OPTIONAL, offsetof(CollModRequest, change.pipeline)},
    {"index", FIELD_DOC, FIELD_OPTIONAL, offsetof(CollModRequest, change.index)},
    {"expireAfterSeconds", FIELD_ELEM, FIELD_OPTIONAL,
     offsetof(CollModRequest, change.expire_after)},
    {"dryRun", FIELD_BOOL, FIELD_UNSTABLE, offsetof(CollModRequest, change.is_dry_run)},
    {"changeStreamPreAndPostImages", FIELD_ELEM, FIELD_OPTIONAL,
     offsetof(CollModRequest, change.pre_images)},
    {"timeseries", FIELD_REFUSED, FIELD_OPTIONAL, 0},
    {"collectionUUID", FIELD_ELEM, FIELD_UNSTABLE, offsetof(CollModRequest, collection_uuid)},
};
const RequestSpec COLL_MOD_REQUEST = REQUEST_SPEC(CollModRequest, COLL_MOD_FIELDS);

static const FieldSpec DROP_FIELDS[] = {
    {"drop", FIELD_COLL, FIELD_REQUIRED, offsetof(DropRequest, coll)},
    {"collectionUUID", FIELD_ELEM, FIELD_UNSTABLE, offsetof(DropRequest, collection_uuid)},
};
const RequestSpec DROP_REQUEST = REQUEST_SPEC(DropRequest, DROP_FIELDS);

static const FieldSpec DROP_INDEXES_FIELDS[] = {
    {"dropIndexes", FIELD_COLL, FIELD_OPTIONAL, offsetof(DropIndexesRequest, coll)},
    {"deleteIndexes", FIELD_COLL, FIELD_OPTIONAL, offsetof(DropIndexesRequest, coll)},
    {"index", FIELD_ELEM, FIELD_REQUIRED, offsetof(DropIndexesRequest, index)},
    {"collectionUUID", FIELD_ELEM, FIELD_UNSTABLE, offsetof(DropIndexesRequest, collection_uuid)},
};
const RequestSpec DROP_INDEXES_REQUEST = REQUEST_SPEC(DropIndexesRequest, DROP_INDEXES_FIELDS);

static const FieldSpec DROP_DATABASE_FIELDS[] = {
    {"dropDatabase", FIELD_ELEM, FIELD_REQUIRED, offsetof(DropDatabaseRequest, drop_database)},
};
const RequestSpec DROP_DATABASE_REQUEST = REQUEST_SPEC(DropDatabaseRequest, DROP_DATABASE_FIELDS);

static const FieldSpec RENAME_FIELDS[] = {
    {"renameCollection", FIELD_STRING, FIELD_REQUIRED, offsetof(RenameRequest, from)},
    {"to", FIELD_STRING, FIELD_REQUIRED, offsetof(RenameRequest, to)},
    {"dropTarget", FIELD_ELEM, FIELD_OPTIONAL, offsetof(RenameRequest, drop_target)},
    {"stayTemp", FIELD_BOOL, FIELD_OPTIONAL, offsetof(RenameRequest, stays_temp)},
    {"collectionUUID", FIELD_ELEM, FIELD_UNSTABLE, offsetof(RenameRequest, collection_uuid)},
};
const RequestSpec RENAME_REQUEST = REQUEST_SPEC(RenameRequest, RENAME_FIELDS);

static const FieldSpec CONVERT_TO_CAPPED_FIELDS[] = {
    {"convertToCapped", FIELD_COLL, FIELD_REQUIRED, offsetof(ConvertToCappedRequest, coll)},
    {"size", FIELD_I64, FIELD_REQUIRED, offsetof(ConvertToCappedRequest, size)},
};
const RequestSpec CONVERT_TO_CAPPED_REQUEST =
    REQUEST_SPEC(ConvertToCappedRequest, CONVERT_TO_CAPPED_FIELDS);

static const FieldSpec LIST_COLLECTIONS_FIELDS[] = {
    {"listCollections", FIELD_ELEM, FIELD_REQUIRED,
     offsetof(ListCollectionsRequest, list_collections)},
    {"filter", FIELD_DOC, FIELD_OPTIONAL, offsetof(ListCollectionsRequest, filter)},
    {"cursor", FIELD_DOC, FIELD_OPTIONAL, offsetof(ListCollectionsRequest, cursor)},
    {"includePendingDrops", FIELD_BOOL, FIELD_UNSTABLE,
     offsetof(ListCollectionsRequest, includes_pending_drops)},
    {"nameOnly", FIELD_BOOL, FIELD_OPTIONAL, offsetof(ListCollectionsRequest, name_only)},
    {"authorizedCollections", FIELD_BOOL, FIELD_OPTIONAL,
     offsetof(ListCollectionsRequest, authorized_collections)},
};
const RequestSpec LIST_COLLECTIONS_REQUEST =
    REQUEST_SPEC(ListCollectionsRequest, LIST_COLLECTIONS_FIELDS);

static const FieldSpec LIST_INDEXES_FIELDS[] = {
    {"listIndexes", FIELD_COLL_OR_UUID, FIELD_REQUIRED, offsetof(ListIndexesRequest, coll)},
    {"cursor", FIELD_DOC, FIELD_OPTIONAL, offsetof(ListIndexesRequest, cursor)},
    {"includeBuildUUIDs", FIELD_BOOL, FIELD_OPTIONAL,
     offsetof(ListIndexesRequest, include_build_uuids)},
    {"includeIndexBuildInfo", FIELD_BOOL, FIELD_OPTIONAL,
     offsetof(ListIndexesRequest, include_index_build_info)},
};
const RequestSpec LIST_INDEXES_REQUEST = REQUEST_SPEC(ListIndexesRequest, LIST_INDEXES_FIELDS);

static const FieldSpec LIST_DATABASES_FIELDS[] = {
    {"listDatabases", FIELD_ELEM, FIELD_REQUIRED, offsetof(ListDatabasesRequest, list_databases)},
    {"filter", FIELD_DOC, FIELD_OPTIONAL, offsetof(ListDatabasesRequest, filter)},
    {"nameOnly", FIELD_BOOL, FIELD_OPTIONAL, offsetof(ListDatabasesRequest, name_only)},
    {"authorizedDatabases", FIELD_BOOL, FIELD_OPTIONAL,
     offsetof(ListDatabasesRequest, authorized_databases)},
};
const RequestSpec LIST_DATABASES_REQUEST =
    REQUEST_SPEC(ListDatabasesRequest, LIST_DATABASES_FIELDS);

static const FieldSpec COLL_STATS_FIELDS[] = {
    {"collStats", FIELD_COLL, FIELD_OPTIONAL, offsetof(CollStatsRequest, coll)},
    {"collstats", FIELD_COLL, FIELD_OPTIONAL, offsetof(CollStatsRequest, coll)},
    {"scale", FIELD_ELEM, FIELD_OPTIONAL, offsetof(CollStatsRequest, scale)},
    {"verbose", FIELD_BOOL, FIELD_OPTIONAL, offsetof(CollStatsRequest, verbose)},
    {"waitForLock", FIELD_BOOL, FIELD_OPTIONAL, offsetof(CollStatsRequest, wait_for_lock)},
    {"numericOnly", FIELD_BOOL, FIELD_OPTIONAL, offsetof(CollStatsRequest, is_numeric_only)},
};
const RequestSpec COLL_STATS_REQUEST = REQUEST_SPEC(CollStatsRequest, COLL_STATS_FIELDS);

static const FieldSpec DB_STATS_FIELDS[] = {
    {"dbStats", FIELD_ELEM, FIELD_OPTIONAL, offsetof(DbStatsRequest, db_stats)},
    {"dbstats", FIELD_ELEM, FIELD_OPTIONAL, offsetof(DbStatsRequest, db_stats)},
    {"scale", FIELD_ELEM, FIELD_OPTIONAL, offsetof(DbStatsRequest, scale)},
    {"freeStorage", FIELD_ELEM, FIELD_OPTIONAL, offsetof(DbStatsRequest, free_storage)},
};
const RequestSpec DB_STATS_REQUEST = REQUEST_SPEC(DbStatsRequest, DB_STATS_FIELDS);

static const FieldSpec DATA_SIZE_FIELDS[] = {
    {"dataSize", FIELD_STRING, FIELD_OPTIONAL, offsetof(DataSizeRequest, ns)},
    {"datasize", FIELD_STRING, FIELD_OPTIONAL, offsetof(DataSizeRequest, ns)},
    {"keyPattern", FIELD_DOC, FIELD_OPTIONAL, offsetof(DataSizeRequest, key_pattern)},
    {"estimate", FIELD_BOOL, FIELD_OPTIONAL, offsetof(DataSizeRequest, estimate)},
    {"min", FIELD_DOC, FIELD_OPTIONAL, offsetof(DataSizeRequest, min)},
    {"max", FIELD_DOC, FIELD_OPTIONAL, offsetof(DataSizeRequest, max)},
    {"maxSize", FIELD_COUNT, FIELD_OPTIONAL, offsetof(DataSizeRequest, bytes_max)},
    {"maxObjects", FIELD_COUNT, FIELD_OPTIONAL, offsetof(DataSizeRequest, objects_max)},
};
const RequestSpec DATA_SIZE_REQUEST = REQUEST_SPEC(DataSizeRequest, DATA_SIZE_FIELDS);

static const FieldSpec VALIDATE_FIELDS[] = {
    {"validate", FIELD_COLL, FIELD_REQUIRED, offsetof(ValidateRequest, coll)},
    {"full", FIELD_BOOL, FIELD_OPTIONAL, offsetof(ValidateRequest, is_full)},
    {"background", FIELD_BOOL, FIELD_OPTIONAL, offsetof(ValidateRequest, is_background)},
    {"repair", FIELD_BOOL, FIELD_OPTIONAL, offsetof(ValidateRequest, is_repair)},
    {"checkBSONConformance", FIELD_BOOL, FIELD_OPTIONAL, offsetof(ValidateRequest, is_conformance)},
    {"enforceFastCount", FIELD_BOOL, FIELD_OPTIONAL,
     offsetof(ValidateRequest, is_fast_count_enforced)},
    {"metadata", FIELD_BOOL, FIELD_OPTIONAL, offsetof(ValidateRequest, is_metadata_only)},
    {"logDiagnostics", FIELD_REFUSED, FIELD_OPTIONAL, 0},
};
const RequestSpec VALIDATE_REQUEST = REQUEST_SPEC(ValidateRequest, VALIDATE_FIELDS);

static const FieldSpec PLAN_CACHE_CLEAR_FIELDS[] = {
    {"planCacheClear", FIELD_COLL, FIELD_REQUIRED, offsetof(PlanCacheClearRequest, coll)},
    {"query", FIELD_DOC, FIELD_OPTIONAL, offsetof(PlanCacheClearRequest, query)},
    {"sort", FIELD_DOC, FIELD_OPTIONAL, offsetof(PlanCacheClearRequest, sort)},
    {"projection", FIELD_DOC, FIELD_OPTIONAL, offsetof(PlanCacheClearRequest, projection)},
};
const RequestSpec PLAN_CACHE_CLEAR_REQUEST =
    REQUEST_SPEC(PlanCacheClearRequest, PLAN_CACHE_CLEAR_FIELDS);
