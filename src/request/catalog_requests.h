/*
 * catalog_requests.h - the arguments of the commands that change or show the catalog.
 */
#pragma once

#include "request/request.h"

typedef struct CreateRequest {
    Str coll;
    Elem capped;
    Elem size;
    Elem max;
    Elem validator;
    Elem validation_level;
    Elem validation_action;
    Elem clustered_index;
    Elem collation;
    Elem expire_after;
    Elem pre_images; /* changeStreamPreAndPostImages */
    Elem id_index;
    Elem auto_index_id;
    Elem index_option_defaults;
    Elem storage_engine;
    Str view_on;
    Doc pipeline;
    bool is_temp;
} CreateRequest;

typedef struct CreateIndexesRequest {
    Str coll;
    DocList indexes;
    Elem commit_quorum;
    bool ignore_unknown_options;
    Elem collection_uuid;
} CreateIndexesRequest;

/* What collMod can change; absent members are left as they are. */
typedef struct CollModChange {
    Elem validator;
    Elem validation_level;
    Elem validation_action;
    Elem capped_size;
    Elem capped_max;
    Elem view_on;
    Elem pipeline;
    Elem expire_after; /* of a clustered collection: seconds, or "off" */
    Elem pre_images;   /* {enabled: bool}: changeStreamPreAndPostImages */
    /* {keyPattern or name, and one or more of hidden, expireAfterSeconds, prepareUnique, unique};
     * DOC_NONE: none */
    Doc index;
    bool is_dry_run; /* only looks whether the index could be made unique */
} CollModChange;

typedef struct CollModRequest {
    Str coll;
    CollModChange change;
    Elem collection_uuid;
} CollModRequest;

typedef struct DropRequest {
    Str coll;
    Elem collection_uuid;
} DropRequest;

typedef struct DropIndexesRequest {
    Str coll;
    Elem index;
    Elem collection_uuid;
} DropIndexesRequest;

typedef struct DropDatabaseRequest {
    Elem drop_database;
} DropDatabaseRequest;

typedef struct RenameRequest {
    Str from;
    Str to;
    Elem drop_target;
    Elem collection_uuid;
    bool stays_temp;
} RenameRequest;

typedef struct ConvertToCappedRequest {
    Str coll;
    int64_t size;
} ConvertToCappedRequest;

typedef struct ListCollectionsRequest {
    Elem list_collections;
    Doc filter;
    Doc cursor;
    bool name_only;
    bool authorized_collections;
    bool includes_pending_drops; /* names go at once: there are none */
} ListCollectionsRequest;

typedef struct ListIndexesRequest {
    CollRef coll;
    Doc cursor;
    bool include_build_uuids;
    bool include_index_build_info;
} ListIndexesRequest;

typedef struct ListDatabasesRequest {
    Elem list_databases;
    Doc filter;
    bool name_only;
    bool authorized_databases;
} ListDatabasesRequest;

typedef struct CollStatsRequest {
    Str coll;
    Elem scale;
    bool verbose;
    bool wait_for_lock;
    bool is_numeric_only;
} CollStatsRequest;

typedef struct DbStatsRequest {
    Elem db_stats;
    Elem scale;
    Elem free_storage;
} DbStatsRequest;

typedef struct DataSizeRequest {
    Str ns;
    Doc key_pattern;
    Doc min;
    Doc max;
    int64_t bytes_max; /* 0: any number, as of objects */
    int64_t objects_max;
    bool estimate;
} DataSizeRequest;

typedef struct ValidateRequest {
    Str coll;
    bool is_full;
    bool is_background;
    bool is_repair;
    bool is_conformance;
    bool is_fast_count_enforced;
    bool is_metadata_only;
} ValidateRequest;

typedef struct PlanCacheClearRequest {
    Str coll;
    Doc query;
    Doc sort;
    Doc projection;
} PlanCacheClearRequest;

extern const RequestSpec CREATE_REQUEST;
extern const RequestSpec CREATE_INDEXES_REQUEST;
extern const RequestSpec COLL_MOD_REQUEST;
extern const RequestSpec DROP_REQUEST;
extern const RequestSpec DROP_INDEXES_REQUEST;
extern const RequestSpec DROP_DATABASE_REQUEST;
extern const RequestSpec RENAME_REQUEST;
extern const RequestSpec CONVERT_TO_CAPPED_REQUEST;
extern const RequestSpec LIST_COLLECTIONS_REQUEST;
extern const RequestSpec LIST_INDEXES_REQUEST;
extern const RequestSpec LIST_DATABASES_REQUEST;
extern const RequestSpec COLL_STATS_REQUEST;
extern const RequestSpec DB_STATS_REQUEST;
extern const RequestSpec DATA_SIZE_REQUEST;
extern const RequestSpec VALIDATE_REQUEST;
extern const RequestSpec PLAN_CACHE_CLEAR_REQUEST;
