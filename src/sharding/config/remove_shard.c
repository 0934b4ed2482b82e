#include "sharding/config/remove_shard.h"

#include "concurrency/service_ctx.h"
#include "query/write/own_docs.h"
#include "sharding/config/shards.h"
#include "sharding/config/zones.h"

typedef struct Leaving {
    Str name;
    ShardRemoval *removal;
    bool has_left; /* completed by this request */
    uint64_t topology_ts;
} Leaving;

/* Another shard that is not draining. */
static ErrCode find_other(OpCtx *op, Str name, Doc *ret_shard, Error *err) {
    DocBuilder b = doc_builder_in_arena(&op->arena);
    size_t id = build_open_doc(&b, "_id");
    build_str(&b, "$ne", name);
    build_close(&b, id);
    size_t draining = build_open_doc(&b, "draining");
    build_bool(&b, "$ne", true);
    build_close(&b, draining);
    TRY(config_catalog_find_first(op, &CONFIG_SHARDS_NS, doc_builder_end(&b), DOC_NONE, ret_shard,
                                  err));
    if (doc_is_present(*ret_shard))
        return ERR_OK;
    return error_set(err, ERR_ILLEGAL_OPERATION,
                     "could not remove the shard \"%.*s\": it is the last one", (int)name.size,
                     name.data);
}

static ErrCode set_field(OpCtx *op, Str shard, Doc fields, Error *err) {
    DocBuilder b = doc_builder_in_arena(&op->arena);
    build_doc(&b, "$set", fields);
    return own_docs_update(op, &CONFIG_SHARDS_NS, config_filter_str(op, "_id", shard),
                           doc_builder_end(&b), err);
}

static ErrCode read_databases(OpCtx *op, Leaving *leaving, Error *err) {
    return config_catalog_find_all(op, &CONFIG_DATABASES_NS,
                                   config_filter_str(op, "primary", leaving->name), DOC_NONE,
                                   /* limit= */ 0, &leaving->removal->databases, err);
}

static ErrCode check_may_leave(OpCtx *op, const Leaving *leaving, Doc *ret_shard, Doc *ret_other,
                               Error *err) {
    TRY(shard_entry_get(op, leaving->name, ret_shard, err));
    TRY(find_other(op, leaving->name, ret_other, err));
    return zone_check_needed(op, *ret_shard, err);
}

static ErrCode start_in_txn(void *arg, OpCtx *op, Error *err) {
    Leaving *leaving = arg;
    Doc shard, other;
    TRY(check_may_leave(op, leaving, &shard, &other, err));
    TRY(read_databases(op, leaving, err));
    leaving->removal->state = REMOVAL_ONGOING;
    if (elem_is_truthy(doc_get_lit(shard, "draining")))
        return ERR_OK;
    leaving->removal->state = REMOVAL_STARTED;
    DocBuilder b = doc_builder_in_arena(&op->arena);
    build_bool(&b, "draining", true);
    return set_field(op, leaving->name, doc_builder_end(&b), err);
}

static ErrCode count_chunk(void *arg, Doc doc, bool *is_over, Error *err) {
    (void)is_over, (void)err;
    ShardRemoval *removal = arg;
    removal->chunk_count++;
    removal->jumbo_count += elem_is_truthy(doc_get_lit(doc, "jumbo"));
    return ERR_OK;
}

static ErrCode count_chunks(OpCtx *op, const Leaving *leaving, Error *err) {
    leaving->removal->chunk_count = leaving->removal->jumbo_count = 0;
    return config_catalog_query(op, &CONFIG_CHUNKS_NS,
                                config_filter_str(op, "shard", leaving->name), DOC_NONE,
                                /* limit= */ 0, count_chunk, leaving->removal, err);
}

/* Routers and shards notice by the newest topologyTime that the list has changed: another shard
 * carries it. */
static ErrCode finish_in_txn(void *arg, OpCtx *op, Error *err) {
    Leaving *leaving = arg;
    leaving->has_left = false;
    Doc shard, other;
    TRY(check_may_leave(op, leaving, &shard, &other, err));
    TRY(read_databases(op, leaving, err));
    TRY(count_chunks(op, leaving, err));
    if (leaving->removal->databases.count > 0 || leaving->removal->chunk_count > 0)
        return ERR_OK; /* it has got something since */
    TRY(own_docs_delete(op, &CONFIG_SHARDS_NS, config_filter_str(op, "_id", leaving->name), err));
    DocBuilder b = doc_builder_in_arena(&op->arena);
    build_timestamp(&b, "topologyTime", leaving->topology_ts);
    leaving->has_left = true;
    return set_field(op, elem_str(doc_get_lit(other, "_id")), doc_builder_end(&b), err);
}

/* Nothing must get there while it is looked whether something is there. */
static ErrCode finish(OpCtx *op, Leaving *leaving, Error *err) {
    ConfigCatalog *catalog = op->service->config_catalog;
    CLEANUP(op_mutex_unlock) OpMutexLock databases = {0};
    TRY(op_mutex_lock(&catalog->databases, op, &databases, err));
    CLEANUP(op_mutex_unlock) OpMutexLock chunks = {0};
    TRY(op_mutex_lock(&catalog->chunks, op, &chunks, err));
    leaving->topology_ts = service_next_ts(op->service);
    return config_catalog_change(op, "removeShard", finish_in_txn, leaving, err);
}

static void log_removal(OpCtx *op, const char *what, Str name) {
    config_catalog_log(op, what, "", config_filter_str(op, "shard", name));
}

ErrCode shard_remove(OpCtx *op, Str name, ShardRemoval *ret_removal, Error *err) {
    *ret_removal = (ShardRemoval){0};
    Leaving leaving = {.name = name, .removal = ret_removal};
    CLEANUP(op_mutex_unlock) OpMutexLock lock = {0};
    TRY(op_mutex_lock(&op->service->config_catalog->shards, op, &lock, err));
    TRY(config_catalog_change(op, "drainShard", start_in_txn, &leaving, err));
    if (ret_removal->state == REMOVAL_STARTED) {
        log_removal(op, "removeShard.start", name);
        return cluster_reload_shards(op->service->cluster, op, err);
    }
    TRY(count_chunks(op, &leaving, err));
    if (ret_removal->databases.count > 0 || ret_removal->chunk_count > 0)
        return ERR_OK;
    TRY(finish(op, &leaving, err));
    if (!leaving.has_left)
        return ERR_OK;
    ret_removal->state = REMOVAL_COMPLETED;
    log_removal(op, "removeShard", name);
    return cluster_reload_shards(op->service->cluster, op, err);
}
