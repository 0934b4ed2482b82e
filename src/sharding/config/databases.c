#include "sharding/config/databases.h"

#include <strings.h>

#include "base/clock.h"
#include "catalog/access.h"
#include "concurrency/service_ctx.h"
#include "query/write/own_docs.h"
#include "sharding/config/shards.h"

enum {
    /* A shard that takes longer to say how much it has is not chosen. */
    SIZE_MS_MAX = 5000,
};

Doc database_entry_build(const DatabaseEntry *entry, Arena *arena) {
    DocBuilder b = doc_builder_in_arena(arena);
    build_str(&b, "_id", entry->name);
    build_str(&b, "primary", entry->primary);
    build_bool(&b, "partitioned", false);
    database_version_build(&b, "version", &entry->version);
    return doc_builder_end(&b);
}

static ErrCode parse_entry(Doc doc, DatabaseEntry *ret_entry, Error *err) {
    Elem name = doc_get_lit(doc, "_id");
    Elem primary = doc_get_lit(doc, "primary");
    if (elem_type(name) != BT_STRING || elem_type(primary) != BT_STRING)
        return error_set(err, ERR_INCOMPATIBLE_SHARDING_METADATA,
                         "a document of config.databases needs a string \"_id\" and a string "
                         "\"primary\"");
    ret_entry->name = elem_str(name);
    ret_entry->primary = elem_str(primary);
    return database_version_parse(doc_get_lit(doc, "version"), "version", &ret_entry->version, err);
}

ErrCode database_entry_read(OpCtx *op, Str name, DatabaseEntry *ret_entry, Error *err) {
    *ret_entry = (DatabaseEntry){0};
    Doc doc;
    TRY(own_doc_read(op, &CONFIG_DATABASES_NS, own_doc_id(op, name), &doc, err));
    return doc_is_present(doc) ? parse_entry(doc, ret_entry, err) : ERR_OK;
}

static ErrCode check_case(void *arg, Doc doc, bool *is_over, Error *err) {
    (void)is_over;
    const Str *name = arg;
    Elem id = doc_get_lit(doc, "_id");
    if (elem_type(id) != BT_STRING || elem_str(id).size != name->size ||
        strncasecmp(elem_str(id).data, name->data, name->size) != 0)
        return ERR_OK;
    return error_set(err, ERR_DATABASE_DIFFER_CASE,
                     "there is a database \"%s\", whose name differs from \"%.*s\" in case only",
                     elem_str(id).data, (int)name->size, name->data);
}

static ErrCode shard_size(OpCtx *op, const Shard *shard, int64_t *ret_bytes, Error *err) {
    Cluster *cluster = op->service->cluster;
    DocBuilder b = doc_builder_in_arena(&op->arena);
    build_i32(&b, "listDatabases", 1);
    remote_build_end(cluster, &b, STR("admin"), NULL, ELEM_MISSING);
    RemoteRequest request = {.shard = shard,
                             .body = doc_builder_end(&b),
                             .retry = REMOTE_IDEMPOTENT,
                             .deadline_us = clock_deadline_ms(SIZE_MS_MAX)};
    CLEANUP(client_reply_done) ClientReply reply = {0};
    TRY(remote_run(cluster, op, &request, &reply, NULL, err));
    Elem total = doc_get_lit(reply.body, "totalSize");
    *ret_bytes = elem_is_number(total) ? elem_as_i64(total) : 0;
    return ERR_OK;
}

/* A shard that does not answer is not chosen. */
static ErrCode choose_shard(OpCtx *op, const ShardList *list, const Shard **ret_shard, Error *err) {
    int64_t least = INT64_MAX;
    *ret_shard = NULL;
    CLEANUP(error_reset) Error failed = {0};
    for (uint32_t i = 0; i < list->count; i++) {
        int64_t bytes;
        if (list->rows[i].is_draining)
            continue;
        error_reset(&failed);
        if (shard_size(op, &list->rows[i], &bytes, &failed) != ERR_OK) {
            TRY(op_check_interrupt_slow(op, err));
            continue;
        }
        if (bytes < least) {
            least = bytes;
            *ret_shard = &list->rows[i];
        }
    }
    if (*ret_shard != NULL)
        return ERR_OK;
    if (failed.code != ERR_OK)
        return error_set(err, failed.code, "no shard answers: %s", error_message(&failed));
    return error_set(err, ERR_SHARD_NOT_FOUND,
                     "this cluster has no shard that a database could be created on");
}

static ErrCode check_exists(const DatabaseEntry *entry, Str primary, Error *err) {
    if (primary.size > 0 && !str_equal(primary, entry->primary))
        return error_set(
            err, ERR_NAMESPACE_EXISTS, "the database \"%.*s\" is on the shard \"%.*s\" already",
            (int)entry->name.size, entry->name.data, (int)entry->primary.size, entry->primary.data);
    return ERR_OK;
}

static ErrCode create_on(OpCtx *op, Str name, const Shard *shard, DatabaseEntry *ret_entry,
                         Error *err) {
    CLEANUP(op_mutex_unlock) OpMutexLock lock = {0};
    TRY(op_mutex_lock(&op->service->config_catalog->databases, op, &lock, err));
    TRY(database_entry_read(op, name, ret_entry, err));
    if (ret_entry->name.size > 0) /* somebody was faster */
        return ERR_OK;
    TRY(access_each(op, &CONFIG_DATABASES_NS, /* is_forward= */ true, check_case, &name, err));
    Doc known; /* removed since it was chosen? */
    TRY(shard_entry_get(op, str_from(shard->name), &known, err));
    *ret_entry = (DatabaseEntry){
        .name = name,
        .primary = str_from(arena_strdup(&op->arena, shard->name)),
        .version = {.uuid = uuid_new(), .timestamp = service_next_ts(op->service), .last_mod = 1},
    };
    Doc doc = database_entry_build(ret_entry, &op->arena);
    return own_docs_insert(op, &CONFIG_DATABASES_NS, &doc, 1, err);
}

ErrCode database_create(OpCtx *op, Str name, Str primary, DatabaseEntry *ret_entry, Error *err) {
    TRY(db_name_check(name, err));
    if (db_is_internal(name))
        return error_set(err, ERR_INVALID_OPTIONS,
                         "the database \"%.*s\" cannot be created: it is there on every server",
                         (int)name.size, name.data);
    TRY(database_entry_read(op, name, ret_entry, err));
    if (ret_entry->name.size > 0)
        return check_exists(ret_entry, primary, err);
    TRY(cluster_reload_shards(op->service->cluster, op, err));
    ShardList *list = NULL;
    const Shard *shard = NULL;
    ErrCode rc = ERR_OK;
    if (primary.size > 0) {
        rc = cluster_get_shard(op->service->cluster, op, primary, &list, &shard, err);
    } else {
        list = cluster_shards(op->service->cluster);
        rc = choose_shard(op, list, &shard, err);
    }
    if (rc == ERR_OK)
        rc = create_on(op, name, shard, ret_entry, err);
    shard_list_unref(list);
    TRY(rc);
    return check_exists(ret_entry, primary, err);
}

/* ---- drop ---- */

typedef struct DatabaseDrop {
    Str name;
    const DatabaseVersion *version;
    bool is_dropped;
} DatabaseDrop;

static ErrCode drop_in_txn(void *arg, OpCtx *op, Error *err) {
    DatabaseDrop *drop = arg;
    DatabaseEntry entry;
    TRY(database_entry_read(op, drop->name, &entry, err));
    const DatabaseVersion *version = drop->version;
    drop->is_dropped = entry.name.size > 0 && database_version_equal(&entry.version, version);
    if (drop->is_dropped)
        return own_docs_delete(op, &CONFIG_DATABASES_NS, config_filter_str(op, "_id", drop->name),
                               err);
    if (entry.name.size == 0 || !uuid_equal(&entry.version.uuid, &version->uuid))
        return ERR_OK;
    return error_set(err, ERR_STALE_DB_VERSION, "the database \"%.*s\" has moved since",
                     (int)drop->name.size, drop->name.data);
}

ErrCode database_commit_drop(OpCtx *op, Str name, const DatabaseVersion *version, Error *err) {
    DatabaseDrop drop = {.name = name, .version = version};
    CLEANUP(op_mutex_unlock) OpMutexLock lock = {0};
    TRY(op_mutex_lock(&op->service->config_catalog->databases, op, &lock, err));
    TRY(config_catalog_change(op, "dropDatabase", drop_in_txn, &drop, err));
    if (drop.is_dropped)
        config_catalog_log(op, "dropDatabase", arena_strndup(&op->arena, name.data, name.size),
                           DOC_EMPTY);
    return ERR_OK;
}

/* ---- move ---- */

typedef struct DatabaseMove {
    Str name;
    const DatabaseVersion *version;
    Str to;
    uint64_t now;
    DatabaseEntry entry;
    bool is_new;
} DatabaseMove;

static ErrCode check_recipient(OpCtx *op, Str name, Error *err) {
    Doc shard;
    TRY(shard_entry_get(op, name, &shard, err));
    if (!elem_is_truthy(doc_get_lit(shard, "draining")))
        return ERR_OK;
    return error_set(err, ERR_SHARD_NOT_FOUND,
                     "the shard \"%.*s\" is being removed: nothing moves there", (int)name.size,
                     name.data);
}

/* The version that follows the one it was asked with: nobody else makes that. */
static bool is_next(const DatabaseVersion *version, const DatabaseVersion *of) {
    return uuid_equal(&version->uuid, &of->uuid) && version->last_mod == of->last_mod + 1;
}

static ErrCode move_in_txn(void *arg, OpCtx *op, Error *err) {
    DatabaseMove *move = arg;
    DatabaseEntry *entry = &move->entry;
    move->is_new = false;
    TRY(database_entry_read(op, move->name, entry, err));
    if (entry->name.size == 0)
        return error_set(err, ERR_NAMESPACE_NOT_FOUND, "database %.*s not found",
                         (int)move->name.size, move->name.data);
    if (is_next(&entry->version, move->version) && str_equal(entry->primary, move->to))
        return ERR_OK;
    if (!database_version_equal(&entry->version, move->version))
        return error_set(err, ERR_STALE_DB_VERSION, "the database \"%.*s\" has moved since",
                         (int)move->name.size, move->name.data);
    if (!str_equal(move->to, entry->primary))
        TRY(check_recipient(op, move->to, err));
    entry->primary = move->to;
    entry->version.last_mod++;
    entry->version.timestamp = move->now;
    move->is_new = true;
    DocBuilder b = doc_builder_in_arena(&op->arena);
    size_t set = build_open_doc(&b, "$set");
    build_str(&b, "primary", entry->primary);
    database_version_build(&b, "version", &entry->version);
    build_close(&b, set);
    return own_doc_upsert(op, &CONFIG_DATABASES_NS, own_doc_id(op, move->name), doc_builder_end(&b),
                          err);
}

ErrCode database_commit_move(OpCtx *op, Str name, const DatabaseVersion *version, Str to,
                             DatabaseEntry *ret_entry, Error *err) {
    DatabaseMove move = {.name = name, .version = version, .to = to};
    CLEANUP(op_mutex_unlock) OpMutexLock lock = {0};
    TRY(op_mutex_lock(&op->service->config_catalog->databases, op, &lock, err));
    /* After everything that was written to the database before: what the coordinator has seen. */
    move.now = service_next_ts(op->service);
    TRY(config_catalog_change(op, "movePrimary", move_in_txn, &move, err));
    *ret_entry = move.entry;
    if (move.is_new)
        config_catalog_log(op, "movePrimary.commit",
                           arena_strndup(&op->arena, name.data, name.size),
                           config_filter_str(op, "to", to));
    return ERR_OK;
}
