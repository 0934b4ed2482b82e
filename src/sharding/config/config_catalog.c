#include "sharding/config/config_catalog.h"

#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "concurrency/service_ctx.h"
#include "ddl/ddl.h"
#include "query/plan/planner.h"
#include "query/write/own_docs.h"

enum {
    CHANGELOG_BYTES = 200 * 1024 * 1024,
    ACTIONLOG_BYTES = 20 * 1024 * 1024,
    YIELD_PERIOD_US = 10 * 1000,
    SORT_BYTES_MAX = 100 * 1024 * 1024,
};

#define CONFIG_NS(coll)                                                                            \
    { .size = sizeof("config." coll) - 1, .db_size = 6, .text = "config." coll }
const Ns CONFIG_SHARDS_NS = CONFIG_NS("shards");
const Ns CONFIG_DATABASES_NS = CONFIG_NS("databases");
const Ns CONFIG_COLLECTIONS_NS = CONFIG_NS("collections");
const Ns CONFIG_CHUNKS_NS = CONFIG_NS("chunks");
const Ns CONFIG_TAGS_NS = CONFIG_NS("tags");
static const Ns VERSION_NS = CONFIG_NS("version");
static const Ns CHANGELOG_NS = CONFIG_NS("changelog");
static const Ns ACTIONLOG_NS = CONFIG_NS("actionlog");

/* ---- collections and indexes ---- */

typedef struct IndexRow {
    const Ns *ns;
    const char *name;
    const char *fields[3];
    bool is_unique;
} IndexRow;

static const IndexRow INDEXES[] = {
    {&CONFIG_SHARDS_NS, "host_1", {"host"}, true},
    {&CONFIG_CHUNKS_NS, "uuid_1_min_1", {"uuid", "min"}, true},
    {&CONFIG_CHUNKS_NS, "uuid_1_shard_1_min_1", {"uuid", "shard", "min"}, true},
    {&CONFIG_CHUNKS_NS, "uuid_1_lastmod_1", {"uuid", "lastmod"}, true},
    {&CONFIG_CHUNKS_NS,
     "uuid_1_shard_1_onCurrentShardSince_1",
     {"uuid", "shard", "onCurrentShardSince"},
     false},
    {&CONFIG_TAGS_NS, "ns_1_min_1", {"ns", "min"}, true},
    {&CONFIG_TAGS_NS, "ns_1_tag_1", {"ns", "tag"}, false},
};

static ErrCode ensure_index(OpCtx *op, const IndexRow *row, Error *err) {
    DocBuilder b = doc_builder_in_arena(&op->arena);
    size_t key = build_open_doc(&b, "key");
    for (size_t i = 0; i < ARRAY_LEN(row->fields) && row->fields[i] != NULL; i++)
        build_i32(&b, row->fields[i], 1);
    build_close(&b, key);
    build_cstr(&b, "name", row->name);
    if (row->is_unique)
        build_bool(&b, "unique", true);
    Doc spec = doc_builder_end(&b);
    CreateIndexesResult result;
    return ddl_create_indexes(op, row->ns, &spec, 1, &result, err);
}

static ErrCode ensure_capped(OpCtx *op, const Ns *ns, int32_t bytes, Error *err) {
    DocBuilder b = doc_builder_in_arena(&op->arena);
    build_bool(&b, "capped", true);
    build_i32(&b, "size", bytes);
    ErrCode rc = ddl_create_collection(op, ns, doc_builder_end(&b), NULL, err);
    if (rc == ERR_NAMESPACE_EXISTS) {
        error_reset(err);
        return ERR_OK;
    }
    return rc;
}

static Elem version_id(OpCtx *op) {
    DocBuilder b = doc_builder_in_arena(&op->arena);
    build_i32(&b, "_id", 1);
    return doc_get_lit(doc_builder_end(&b), "_id");
}

/* {_id: 1, clusterId}: written last, once everything else is there. */
static ErrCode ensure_cluster_id(OpCtx *op, Error *err) {
    Oid id = oid_new();
    DocBuilder b = doc_builder_in_arena(&op->arena);
    size_t fields = build_open_doc(&b, "$setOnInsert");
    build_oid(&b, "clusterId", &id);
    build_close(&b, fields);
    return own_doc_upsert(op, &VERSION_NS, version_id(op), doc_builder_end(&b), err);
}

ErrCode config_catalog_prepare(OpCtx *op, Error *err) {
    TRY(ddl_ensure_collection(op, &CONFIG_DATABASES_NS, err));
    TRY(ddl_ensure_collection(op, &CONFIG_COLLECTIONS_NS, err));
    TRY(ensure_capped(op, &CHANGELOG_NS, CHANGELOG_BYTES, err));
    TRY(ensure_capped(op, &ACTIONLOG_NS, ACTIONLOG_BYTES, err));
    for (size_t i = 0; i < ARRAY_LEN(INDEXES); i++)
        TRY(ensure_index(op, &INDEXES[i], err));
    return ensure_cluster_id(op, err);
}

/* ---- reading ---- */

static ErrCode read_cluster_id(OpCtx *op, Oid *ret_id, bool *ret_found, Error *err) {
    Doc doc;
    TRY(own_doc_read(op, &VERSION_NS, version_id(op), &doc, err));
    Elem id = doc_is_present(doc) ? doc_get_lit(doc, "clusterId") : ELEM_MISSING;
    *ret_found = elem_type(id) == BT_OID;
    if (*ret_found)
        *ret_id = *elem_oid(id);
    return ERR_OK;
}

ErrCode config_catalog_cluster_id(OpCtx *op, Oid *ret_id, Error *err) {
    bool is_found;
    TRY(read_cluster_id(op, ret_id, &is_found, err));
    if (is_found)
        return ERR_OK;
    /* A primary serves clients a moment before it has prepared everything. */
    TRY(config_catalog_prepare(op, err));
    TRY(read_cluster_id(op, ret_id, &is_found, err));
    if (!is_found)
        return error_set(err, ERR_INCOMPATIBLE_SHARDING_METADATA,
                         "config.version has no id of the cluster");
    return ERR_OK;
}

ErrCode config_catalog_query(OpCtx *op, const Ns *ns, Doc filter, Doc sort, int64_t limit,
                             AccessVisit visit, void *arg, Error *err) {
    CLEANUP(access_done) CollAccess access = {0};
    TRY(access_read(op, ns, &access, err));
    QuerySpec spec = {.filter = filter,
                      .sort = sort,
                      .limit = limit,
                      .sort_memory_bytes = SORT_BYTES_MAX,
                      .yields = {.period_us = YIELD_PERIOD_US},
                      .now_ms = clock_wall_ms()};
    CLEANUP(executor_free_ptr) PlanExecutor *exec = NULL;
    TRY(plan_query(&access, &spec, &exec, err));
    for (bool is_over = false; !is_over;) {
        bool is_found;
        PlanRow row;
        TRY(executor_next(exec, &is_found, &row, err));
        if (!is_found)
            return ERR_OK;
        TRY(visit(arg, row.doc, &is_over, err));
    }
    return ERR_OK;
}

typedef struct FoundRows {
    OpCtx *op;
    DocRows rows;
} FoundRows;

static ErrCode add_row(void *arg, Doc doc, bool *is_over, Error *err) {
    (void)is_over, (void)err;
    FoundRows *found = arg;
    DocRows *rows = &found->rows;
    if (rows->count == rows->capacity) {
        uint32_t capacity = rows->capacity == 0 ? 16 : rows->capacity * 2;
        Doc *grown = ARENA_ARRAY(&found->op->arena, Doc, capacity);
        if (rows->count > 0)
            memcpy(grown, rows->rows, rows->count * sizeof(Doc));
        rows->rows = grown;
        rows->capacity = capacity;
    }
    rows->rows[rows->count++] = doc_copy(doc, &found->op->arena);
    return ERR_OK;
}

ErrCode config_catalog_find_all(OpCtx *op, const Ns *ns, Doc filter, Doc sort, int64_t limit,
                                DocRows *ret_rows, Error *err) {
    FoundRows found = {.op = op};
    TRY(config_catalog_query(op, ns, filter, sort, limit, add_row, &found, err));
    *ret_rows = found.rows;
    return ERR_OK;
}

typedef struct LocalReader {
    ClusterVisit visit;
    void *arg;
} LocalReader;

static ErrCode visit_found(void *arg, Doc doc, bool *is_over, Error *err) {
    (void)is_over;
    LocalReader *reader = arg;
    return reader->visit(reader->arg, doc, err);
}

ErrCode config_catalog_find(OpCtx *op, const ConfigQuery *query, ClusterVisit visit, void *arg,
                            Error *err) {
    Ns ns;
    TRY(ns_make(STR("config"), str_from(query->coll), &ns, err));
    LocalReader reader = {visit, arg};
    return config_catalog_query(op, &ns, query->filter, query->sort, query->limit, visit_found,
                                &reader, err);
}

ErrCode config_catalog_find_first(OpCtx *op, const Ns *ns, Doc filter, Doc sort, Doc *ret_doc,
                                  Error *err) {
    DocRows rows;
    TRY(config_catalog_find_all(op, ns, filter, sort, /* limit= */ 1, &rows, err));
    *ret_doc = rows.count > 0 ? rows.rows[0] : DOC_NONE;
    return ERR_OK;
}

Doc config_filter_str(OpCtx *op, const char *field, Str value) {
    DocBuilder b = doc_builder_in_arena(&op->arena);
    build_str(&b, field, value);
    return doc_builder_end(&b);
}

Doc config_filter_uuid(OpCtx *op, const Uuid *uuid) {
    DocBuilder b = doc_builder_in_arena(&op->arena);
    build_uuid(&b, "uuid", uuid);
    return doc_builder_end(&b);
}

/* ---- changes ---- */

typedef struct Change {
    const char *name;
    InternalTxnBody body;
    void *arg;
} Change;

static ErrCode run_change(void *arg, OpCtx *op, Error *err) {
    const Change *change = arg;
    TRY(change->body(change->arg, op, err));
    failpoint_hit_at(FP_CONFIG_CHANGE_WRITTEN, change->name);
    return ERR_OK;
}

ErrCode config_catalog_change(OpCtx *op, const char *name, InternalTxnBody body, void *arg,
                              Error *err) {
    Change change = {.name = name, .body = body, .arg = arg};
    TRY(internal_txn_run(op, &(InternalTxn){0}, run_change, &change, err));
    failpoint_hit_at(FP_CONFIG_CHANGE_COMMITTED, name);
    return ERR_OK;
}

static void write_log(OpCtx *op, const Ns *log, const char *what, const char *ns, Doc details) {
    Oid id = oid_new();
    char hex[OID_HEX_SIZE];
    oid_to_hex(&id, hex);
    int64_t now_ms = clock_wall_ms();
    DocBuilder b = doc_builder_in_arena(&op->arena);
    build_cstr(&b, "_id", arena_printf(&op->arena, "%lld-%s", (long long)now_ms, hex));
    build_cstr(&b, "shard", SHARD_NAME_CONFIG);
    build_date(&b, "time", now_ms);
    build_cstr(&b, "what", what);
    build_cstr(&b, "ns", ns);
    build_doc(&b, "details", details);
    Doc doc = doc_builder_end(&b);
    /* A reply waits for the change itself if there is no entry that tells of it. */
    OpTime changed = op->last_optime;
    CLEANUP(error_reset) Error err = {0};
    if (own_docs_insert(op, log, &doc, 1, &err) != ERR_OK)
        LOG_WARN(LOG_SHARDING, 7400401, "Could not write to the change log", LOG_STR("what", what),
                 LOG_STR("error", error_message(&err)));
    if (optime_is_none(op->last_optime))
        op->last_optime = changed;
}

void config_catalog_log(OpCtx *op, const char *what, const char *ns, Doc details) {
    write_log(op, &CHANGELOG_NS, what, ns, details);
}

void config_catalog_log_action(OpCtx *op, const char *what, Doc details) {
    write_log(op, &ACTIONLOG_NS, what, "", details);
}

ConfigCatalog *config_catalog_new(void) {
    ConfigCatalog *catalog = NEW(ConfigCatalog);
    op_mutex_init(&catalog->shards);
    op_mutex_init(&catalog->databases);
    op_mutex_init(&catalog->chunks);
    return catalog;
}

void config_catalog_free(ConfigCatalog *catalog) {
    if (catalog == NULL)
        return;
    op_mutex_done(&catalog->shards);
    op_mutex_done(&catalog->databases);
    op_mutex_done(&catalog->chunks);
    xfree(catalog);
}
