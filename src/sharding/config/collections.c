#include "sharding/config/collections.h"

#include "base/clock.h"
#include "concurrency/service_ctx.h"
#include "query/write/own_docs.h"
#include "sharding/config/chunks.h"
#include "sharding/config/shards.h"
#include "sharding/meta/chunk_map.h"

/* ---- reading ---- */

void collection_entry_done(CollectionEntry *entry) {
    shard_key_unref(entry->key);
    *entry = (CollectionEntry){0};
}

ErrCode collection_entry_parse(Doc doc, CollectionEntry *ret_entry, Error *err) {
    static const struct {
        const char *name;
        BsonType type;
    } FIELDS[] = {
        {"_id", BT_STRING}, {"lastmodEpoch", BT_OID}, {"timestamp", BT_TIMESTAMP}, {"key", BT_DOC}};
    Elem values[ARRAY_LEN(FIELDS)];
    for (size_t i = 0; i < ARRAY_LEN(FIELDS); i++) {
        values[i] = doc_get(doc, str_from(FIELDS[i].name));
        if (elem_type(values[i]) != FIELDS[i].type)
            return error_set(err, ERR_INCOMPATIBLE_SHARDING_METADATA,
                             "a document of config.collections needs \"%s\" of type %s",
                             FIELDS[i].name, bson_type_name(FIELDS[i].type));
    }
    CollectionEntry entry = {.name = elem_str(values[0]),
                             .epoch = *elem_oid(values[1]),
                             .timestamp = (uint64_t)elem_i64(values[2]),
                             .doc = doc};
    if (entry.name.size == 0 || !uuid_from_elem(doc_get_lit(doc, "uuid"), &entry.uuid))
        return error_set(err, ERR_INCOMPATIBLE_SHARDING_METADATA,
                         "a document of config.collections needs a name and a \"uuid\"");
    TRY(shard_key_parse(elem_doc(values[3]), &entry.key, err));
    *ret_entry = entry;
    return ERR_OK;
}

ErrCode collection_entry_read(OpCtx *op, Str name, CollectionEntry *ret_entry, Error *err) {
    Doc doc;
    TRY(own_doc_read(op, &CONFIG_COLLECTIONS_NS, own_doc_id(op, name), &doc, err));
    return doc_is_present(doc) ? collection_entry_parse(doc, ret_entry, err) : ERR_OK;
}

ErrCode collection_entry_get(OpCtx *op, Str name, CollectionEntry *ret_entry, Error *err) {
    TRY(collection_entry_read(op, name, ret_entry, err));
    if (ret_entry->name.size > 0)
        return ERR_OK;
    return error_set(err, ERR_NAMESPACE_NOT_SHARDED, "the collection \"%.*s\" is not sharded",
                     (int)name.size, name.data);
}

ErrCode collection_entry_check_uuid(const CollectionEntry *entry, const Uuid *uuid, Error *err) {
    if (uuid_equal(&entry->uuid, uuid))
        return ERR_OK;
    return error_set(err, ERR_INVALID_UUID, "the collection \"%.*s\" has another uuid",
                     (int)entry->name.size, entry->name.data);
}

ErrCode collection_uuid_is_used(OpCtx *op, const Uuid *uuid, bool *ret_is_used, Error *err) {
    Doc doc;
    TRY(config_catalog_find_first(op, &CONFIG_COLLECTIONS_NS, config_filter_uuid(op, uuid),
                                  DOC_NONE, &doc, err));
    *ret_is_used = doc_is_present(doc);
    return ERR_OK;
}

static ErrCode lock_chunks(OpCtx *op, OpMutexLock *lock, Error *err) {
    return op_mutex_lock(&op->service->config_catalog->chunks, op, lock, err);
}

static ErrCode is_another(Str name, Error *err) {
    return error_set(err, ERR_CONFLICTING_OPERATION_IN_PROGRESS,
                     "there is another sharded collection \"%.*s\", with another uuid",
                     (int)name.size, name.data);
}

/* ---- create ---- */

typedef struct Creation {
    const CollectionCreate *create;
    Chunk *chunks;
    ChunkMap *map;
    ChunkVersion version; /* of all chunks */
} Creation;

static void creation_done(Creation *creation) {
    chunk_map_unref(creation->map);
}

/* Chunks of this collection that cover all keys. */
static ErrCode check_chunks(OpCtx *op, Creation *creation, Error *err) {
    const CollectionCreate *create = creation->create;
    creation->chunks = ARENA_ARRAY(&op->arena, Chunk, create->chunk_count);
    for (uint32_t i = 0; i < create->chunk_count; i++) {
        TRY(chunk_parse(create->chunks[i], &creation->chunks[i], err));
        if (!uuid_equal(&creation->chunks[i].uuid, &create->uuid))
            return error_set(err, ERR_BAD_VALUE, "a chunk has the uuid of another collection");
    }
    ShardKey *key;
    TRY(shard_key_parse(create->key, &key, err));
    ChunkMapMaker *maker = chunk_map_maker_new(key, &create->epoch, create->timestamp);
    shard_key_unref(key);
    for (uint32_t i = 0; i < create->chunk_count; i++)
        chunk_map_maker_add(maker, &creation->chunks[i]);
    return chunk_map_maker_finish(maker, &creation->map, err);
}

/* A shard that was removed since the chunks were chosen has none any more. */
static ErrCode check_owners(OpCtx *op, const Creation *creation, Error *err) {
    for (uint32_t i = 0; i < chunk_map_shard_count(creation->map); i++) {
        Doc shard;
        TRY(shard_entry_get(op, chunk_map_shard_name(creation->map, i), &shard, err));
    }
    return ERR_OK;
}

static Doc build_entry(OpCtx *op, const CollectionCreate *create) {
    DocBuilder b = doc_builder_in_arena(&op->arena);
    build_str(&b, "_id", create->name);
    build_oid(&b, "lastmodEpoch", &create->epoch);
    build_date(&b, "lastmod", clock_wall_ms());
    build_timestamp(&b, "timestamp", create->timestamp);
    build_uuid(&b, "uuid", &create->uuid);
    build_doc(&b, "key", create->key);
    if (doc_is_present(create->collation))
        build_doc(&b, "defaultCollation", create->collation);
    build_bool(&b, "unique", create->is_unique);
    build_bool(&b, "noBalance", false);
    return doc_builder_end(&b);
}

static ErrCode insert_collection(OpCtx *op, const Creation *creation, Error *err) {
    const CollectionCreate *create = creation->create;
    bool is_used;
    TRY(collection_uuid_is_used(op, &create->uuid, &is_used, err));
    if (is_used)
        return error_set(err, ERR_CONFLICTING_OPERATION_IN_PROGRESS,
                         "the uuid of \"%.*s\" is that of another sharded collection",
                         (int)create->name.size, create->name.data);
    TRY(check_owners(op, creation, err));
    /* What an earlier attempt, or a drop that was not finished, has left. */
    TRY(own_docs_delete(op, &CONFIG_CHUNKS_NS, config_filter_uuid(op, &create->uuid), err));
    Doc entry = build_entry(op, create);
    TRY(own_docs_insert(op, &CONFIG_COLLECTIONS_NS, &entry, 1, err));
    Doc *docs = ARENA_ARRAY(&op->arena, Doc, create->chunk_count);
    for (uint32_t i = 0; i < create->chunk_count; i++)
        docs[i] = chunks_doc(op, &creation->chunks[i]);
    return own_docs_insert(op, &CONFIG_CHUNKS_NS, docs, create->chunk_count, err);
}

static ErrCode create_in_txn(void *arg, OpCtx *op, Error *err) {
    Creation *creation = arg;
    const CollectionCreate *create = creation->create;
    CLEANUP(collection_entry_done) CollectionEntry entry = {0};
    TRY(collection_entry_read(op, create->name, &entry, err));
    creation->version = chunk_map_version(creation->map);
    if (entry.name.size == 0)
        return insert_collection(op, creation, err);
    if (!uuid_equal(&entry.uuid, &create->uuid))
        return is_another(create->name, err);
    return chunks_newest(op, &entry, STR(""), &creation->version, err);
}

ErrCode collection_commit_create(OpCtx *op, const CollectionCreate *create,
                                 ChunkVersion *ret_version, Error *err) {
    Ns ns;
    TRY(ns_parse(create->name, &ns, err));
    CLEANUP(creation_done) Creation creation = {.create = create};
    TRY(check_chunks(op, &creation, err));
    CLEANUP(op_mutex_unlock) OpMutexLock lock = {0};
    TRY(lock_chunks(op, &lock, err));
    TRY(config_catalog_change(op, "create", create_in_txn, &creation, err));
    *ret_version = creation.version;
    return ERR_OK;
}

/* ---- drop ---- */

typedef struct Drop {
    Str name;
    const Uuid *uuid;
    bool is_dropped;
} Drop;

static ErrCode drop_in_txn(void *arg, OpCtx *op, Error *err) {
    Drop *drop = arg;
    CLEANUP(collection_entry_done) CollectionEntry entry = {0};
    TRY(collection_entry_read(op, drop->name, &entry, err));
    drop->is_dropped = entry.name.size > 0 && uuid_equal(&entry.uuid, drop->uuid);
    if (entry.name.size > 0 && !drop->is_dropped)
        return ERR_OK;
    TRY(own_docs_delete(op, &CONFIG_COLLECTIONS_NS, config_filter_str(op, "_id", drop->name), err));
    return own_docs_delete(op, &CONFIG_TAGS_NS, config_filter_str(op, "ns", drop->name), err);
}

ErrCode collection_commit_drop(OpCtx *op, Str name, const Uuid *uuid, Error *err) {
    Ns ns;
    TRY(ns_parse(name, &ns, err));
    Drop drop = {.name = name, .uuid = uuid};
    CLEANUP(op_mutex_unlock) OpMutexLock lock = {0};
    TRY(lock_chunks(op, &lock, err));
    TRY(config_catalog_change(op, "drop", drop_in_txn, &drop, err));
    TRY(chunks_remove(op, uuid, err));
    if (drop.is_dropped)
        config_catalog_log(op, "dropCollection", ns.text, DOC_EMPTY);
    return ERR_OK;
}

/* ---- rename ---- */

/* The same entry under the new name, in a generation of its own. */
static Doc build_renamed(OpCtx *op, const CollectionRename *rename, Doc entry) {
    DocBuilder b = doc_builder_in_arena(&op->arena);
    DocIter iter = doc_iter(entry);
    for (Elem field; doc_iter_next(&iter, &field);) {
        Str name = elem_name_str(field);
        if (str_is(name, "_id"))
            build_str(&b, "_id", rename->to);
        else if (str_is(name, "lastmodEpoch"))
            build_oid(&b, "lastmodEpoch", &rename->epoch);
        else if (str_is(name, "lastmod"))
            build_date(&b, "lastmod", clock_wall_ms());
        else if (str_is(name, "timestamp"))
            build_timestamp(&b, "timestamp", rename->timestamp);
        else
            build_elem(&b, field);
    }
    return doc_builder_end(&b);
}

static ErrCode move_zones(OpCtx *op, const CollectionRename *rename, Error *err) {
    TRY(own_docs_delete(op, &CONFIG_TAGS_NS, config_filter_str(op, "ns", rename->to), err));
    DocBuilder b = doc_builder_in_arena(&op->arena);
    build_doc(&b, "$set", config_filter_str(op, "ns", rename->to));
    return own_docs_update(op, &CONFIG_TAGS_NS, config_filter_str(op, "ns", rename->from),
                           doc_builder_end(&b), err);
}

static ErrCode rename_in_txn(void *arg, OpCtx *op, Error *err) {
    const CollectionRename *rename = arg;
    CLEANUP(collection_entry_done) CollectionEntry target = {0};
    TRY(collection_entry_read(op, rename->to, &target, err));
    bool has_target = target.name.size > 0;
    if (has_target && uuid_equal(&target.uuid, &rename->uuid))
        return ERR_OK; /* done already */
    if (has_target && !(rename->has_target && uuid_equal(&target.uuid, &rename->target_uuid)))
        return is_another(rename->to, err);
    CLEANUP(collection_entry_done) CollectionEntry source = {0};
    TRY(collection_entry_get(op, rename->from, &source, err));
    if (!uuid_equal(&source.uuid, &rename->uuid))
        return is_another(rename->from, err);
    if (has_target)
        TRY(own_docs_delete(op, &CONFIG_COLLECTIONS_NS, config_filter_str(op, "_id", rename->to),
                            err));
    TRY(own_docs_delete(op, &CONFIG_COLLECTIONS_NS, config_filter_str(op, "_id", rename->from),
                        err));
    Doc entry = build_renamed(op, rename, source.doc);
    TRY(own_docs_insert(op, &CONFIG_COLLECTIONS_NS, &entry, 1, err));
    return move_zones(op, rename, err);
}

ErrCode collection_commit_rename(OpCtx *op, const CollectionRename *rename, Error *err) {
    Ns from, to;
    TRY(ns_parse(rename->from, &from, err));
    TRY(ns_parse(rename->to, &to, err));
    if (ns_equal(&from, &to))
        return error_set(err, ERR_ILLEGAL_OPERATION, "\"%s\" cannot be renamed to itself", to.text);
    CLEANUP(op_mutex_unlock) OpMutexLock lock = {0};
    TRY(lock_chunks(op, &lock, err));
    TRY(config_catalog_change(op, "rename", rename_in_txn, (void *)rename, err));
    return rename->has_target ? chunks_remove(op, &rename->target_uuid, err) : ERR_OK;
}

/* ---- whether chunks may move ---- */

static const char *const VETO_FIELDS[] = {
    [MOVE_VETO_DDL] = "allowMigrations",
    [MOVE_VETO_USER] = "permitMigrations",
};

/* Only a false value forbids it. */
static bool is_vetoed(Doc entry, MoveVeto veto) {
    Elem present = doc_get(entry, str_from(VETO_FIELDS[veto]));
    return elem_is_present(present) && !elem_is_truthy(present);
}

bool collection_allows_moves(Doc entry) {
    return !is_vetoed(entry, MOVE_VETO_DDL) && !is_vetoed(entry, MOVE_VETO_USER);
}

typedef struct AllowMigrations {
    Str name;
    const Uuid *uuid;
    MoveVeto veto;
    bool is_allowed;
} AllowMigrations;

static ErrCode allow_in_txn(void *arg, OpCtx *op, Error *err) {
    const AllowMigrations *allow = arg;
    CLEANUP(collection_entry_done) CollectionEntry entry = {0};
    TRY(collection_entry_get(op, allow->name, &entry, err));
    if (allow->uuid != NULL)
        TRY(collection_entry_check_uuid(&entry, allow->uuid, err));
    if (is_vetoed(entry.doc, allow->veto) != allow->is_allowed)
        return ERR_OK;
    DocBuilder b = doc_builder_in_arena(&op->arena);
    size_t fields = build_open_doc(&b, allow->is_allowed ? "$unset" : "$set");
    build_bool(&b, VETO_FIELDS[allow->veto], false);
    build_close(&b, fields);
    TRY(own_docs_update(op, &CONFIG_COLLECTIONS_NS, config_filter_str(op, "_id", allow->name),
                        doc_builder_end(&b), err));
    /* Shards do not go by what users say: the config server asks them for no move. */
    return allow->veto == MOVE_VETO_DDL ? chunks_bump(op, &entry, err) : ERR_OK;
}

ErrCode collection_set_allow_migrations(OpCtx *op, Str name, const Uuid *uuid, MoveVeto veto,
                                        bool is_allowed, Error *err) {
    AllowMigrations allow = {.name = name, .uuid = uuid, .veto = veto, .is_allowed = is_allowed};
    CLEANUP(op_mutex_unlock) OpMutexLock lock = {0};
    TRY(lock_chunks(op, &lock, err));
    return config_catalog_change(op, "allowMigrations", allow_in_txn, &allow, err);
}
