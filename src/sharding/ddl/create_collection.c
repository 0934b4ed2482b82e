/*
 * create_collection.c - shardCollection: a collection, there already or not, gets a routing table.
 *
 * Its writes are blocked while its index is built and its first chunks are chosen; then its reads,
 * while other shards get the empty collection and the config server the table.
 */
#include <string.h>

#include "base/failpoint.h"
#include "bson/compare.h"
#include "catalog/access.h"
#include "concurrency/service_ctx.h"
#include "ddl/ddl.h"
#include "index/spec.h"
#include "sharding/ddl/coordinator_internal.h"
#include "sharding/meta/chunk_change.h"
#include "sharding/shard/support_index.h"
#include "sharding/shard/refresh.h"
#include "storage/record_store.h"

enum {
    NS_SIZE_MAX = 235, /* config.cache.chunks.<ns> must be a name, too */
    ZONES_MAX = 100000,
};

ErrCode ddl_check_sharded_name(const Ns *ns, Error *err) {
    if (ns->size <= NS_SIZE_MAX)
        return ERR_OK;
    return error_set(err, ERR_INVALID_NAMESPACE,
                     "the name of a sharded collection has at most %d bytes: %s", NS_SIZE_MAX,
                     ns->text);
}

/* ---- the request ---- */

typedef struct ShardingRequest {
    Ns ns;
    Doc key;
    ShardKey *shard_key;
    bool is_unique;
    bool presplits_zones;
    int64_t initial_chunks;  /* 0: by default */
    Elem collation;          /* missing, or the simple one */
    bool is_index_implicit;  /* made if it is missing */
    bool is_unique_enforced; /* unique indexes have to fit the key */
} ShardingRequest;

static void request_done(ShardingRequest *request) {
    shard_key_unref(request->shard_key);
}

static bool bool_or(Elem elem, bool fallback) {
    return elem_is_present(elem) ? elem_is_truthy(elem) : fallback;
}

static ErrCode parse_request(const DdlRun *run, ShardingRequest *ret_request, Error *err) {
    Doc arguments = elem_doc(doc_get_lit(ddl_request(run), "arguments"));
    TRY(ddl_ns(run, &ret_request->ns, err));
    ret_request->key = elem_doc(doc_get_lit(arguments, "key"));
    TRY(shard_key_parse(ret_request->key, &ret_request->shard_key, err));
    ret_request->is_unique = elem_is_truthy(doc_get_lit(arguments, "unique"));
    ret_request->presplits_zones = elem_is_truthy(doc_get_lit(arguments, "presplitHashedZones"));
    Elem count = doc_get_lit(arguments, "numInitialChunks");
    ret_request->initial_chunks = elem_is_number(count) ? elem_as_i64(count) : 0;
    ret_request->collation = doc_get_lit(arguments, "collation");
    ret_request->is_index_implicit = bool_or(doc_get_lit(arguments, "implicitlyCreateIndex"), true);
    ret_request->is_unique_enforced =
        bool_or(doc_get_lit(arguments, "enforceUniquenessCheck"), true);
    return ERR_OK;
}

static ErrCode check_request(const ShardingRequest *request, Error *err) {
    const Ns *ns = &request->ns;
    Str db = ns_db(ns);
    if (str_is(db, "admin") || str_is(db, "local"))
        return error_set(err, ERR_ILLEGAL_OPERATION,
                         "collections of the database \"%.*s\" cannot be sharded", (int)db.size,
                         db.data);
    if (ns_is_system(ns) || str_is(db, "config"))
        return error_set(err, ERR_ILLEGAL_OPERATION, "the collection %s cannot be sharded",
                         ns->text);
    TRY(ddl_check_sharded_name(ns, err));
    if (request->is_unique && shard_key_has_hashed(request->shard_key))
        return error_set(err, ERR_INVALID_OPTIONS,
                         "a hashed shard key cannot be unique: equal hashes do not mean equal "
                         "values");
    Elem locale = elem_type(request->collation) == BT_DOC
                      ? doc_get_lit(elem_doc(request->collation), "locale")
                      : ELEM_MISSING;
    if (elem_is_present(request->collation) &&
        (elem_type(locale) != BT_STRING || !str_is(elem_str(locale), "simple")))
        return error_set(err, ERR_BAD_VALUE,
                         "shard keys are compared by the collation {locale: \"simple\"} alone");
    if (request->initial_chunks < 0)
        return error_set(err, ERR_INVALID_OPTIONS, "numInitialChunks must not be negative");
    return ERR_OK;
}

/* ---- what there is ---- */

/* Sharded already: fine if it is by the same key. */
static ErrCode answer_sharded(DdlRun *run, const ShardingRequest *request,
                              const CollectionRoute *route, Error *err) {
    if (!shard_key_equal(chunk_map_key(route->map), request->shard_key) ||
        route->is_unique != request->is_unique)
        return error_set(err, ERR_ALREADY_INITIALIZED,
                         "the collection %s is sharded already, with other options",
                         request->ns.text);
    ChunkVersion version = chunk_map_version(route->map);
    DocBuilder b = doc_builder_in_arena(&run->op->arena);
    build_uuid(&b, "collectionUUID", &route->uuid);
    chunk_version_build(&b, "collectionVersion", &version);
    task_set_result(run->task, doc_builder_end(&b));
    task_go_to(run->task, TASK_DONE);
    return ERR_OK;
}

static bool supports_key(const ShardingRequest *request, const IndexDesc *index) {
    if (!support_index_is_single(index, request->shard_key))
        return false;
    /* Whatever the types of its numbers. */
    return !request->is_unique || ((index->is_unique || index->is_id) &&
                                   doc_compare(index->key_pattern, request->key, NULL) == 0);
}

static ErrCode check_unique_indexes(const ShardingRequest *request, const Collection *coll,
                                    Error *err) {
    for (uint32_t i = 0; i < coll->index_count && request->is_unique_enforced; i++) {
        const IndexDesc *index = coll->indexes[i];
        if (index->is_unique && !index->is_id &&
            !shard_key_allows_unique(request->shard_key, index->key_pattern))
            return error_set(err, ERR_INVALID_OPTIONS,
                             "%s cannot be sharded by this key: the index \"%s\" is unique and "
                             "does not begin with it",
                             coll->ns.text, index->name);
    }
    return ERR_OK;
}

typedef struct Found {
    bool exists;
    bool is_empty;
    bool has_index;
} Found;

/* Counts that are kept may be wrong after a crash. */
static ErrCode look_for_document(OpCtx *op, const Collection *coll, bool *ret_is_empty,
                                 Error *err) {
    CLEANUP(record_cursor_done) RecordCursor cursor = {0};
    TRY(record_cursor_open(op, coll->records, /* is_forward= */ true, &cursor, err));
    RecordId rid;
    Str data;
    bool is_found;
    TRY(record_cursor_next(&cursor, &is_found, &rid, &data, err));
    *ret_is_empty = !is_found;
    return ERR_OK;
}

static ErrCode check_collection(OpCtx *op, const ShardingRequest *request, Found *ret_found,
                                Error *err) {
    *ret_found = (Found){.is_empty = true};
    CLEANUP(access_done) CollAccess access = {0};
    TRY(access_read(op, &request->ns, &access, err));
    if (access.view != NULL)
        return error_set(err, ERR_COMMAND_NOT_SUPPORTED_ON_VIEW,
                         "Namespace %s is a view, not a collection", request->ns.text);
    const Collection *coll = access.coll;
    if (coll == NULL)
        return ERR_OK;
    ret_found->exists = true;
    if (coll->options.is_capped)
        return error_set(err, ERR_INVALID_OPTIONS, "a capped collection cannot be sharded: %s",
                         request->ns.text);
    if (coll->options.collator != NULL && !elem_is_present(request->collation))
        return error_set(err, ERR_BAD_VALUE,
                         "%s has a default collation: shard it with collation: {locale: "
                         "\"simple\"}, by which shard keys are compared",
                         request->ns.text);
    TRY(check_unique_indexes(request, coll, err));
    for (uint32_t i = 0; i < coll->index_count && !ret_found->has_index; i++)
        ret_found->has_index = supports_key(request, coll->indexes[i]);
    return look_for_document(op, coll, &ret_found->is_empty, err);
}

/* ---- phases ---- */

ErrCode create_begin(DdlRun *run, Error *err) {
    CLEANUP(request_done) ShardingRequest request = {0};
    TRY(parse_request(run, &request, err));
    TRY(check_request(&request, err));
    Doc arguments = elem_doc(doc_get_lit(ddl_request(run), "arguments"));
    TRY(ddl_check_expected(run, &request.ns, doc_get_lit(arguments, "collectionUUID"), err));
    CLEANUP(collection_route_done) CollectionRoute *route = NULL;
    TRY(ddl_read_route(run, &request.ns, &route, err));
    if (route->map != NULL)
        return answer_sharded(run, &request, route, err);
    Found found;
    TRY(check_collection(run->op, &request, &found, err));
    task_go_to(run->task, "create.block");
    return ERR_OK;
}

ErrCode create_block(DdlRun *run, Error *err) {
    Ns ns;
    TRY(ddl_ns(run, &ns, err));
    const Shard *self;
    TRY(ddl_find_shard(run, str_from(run->self), &self, err));
    return ddl_block(run, self, &ns, "Writes", err);
}

static ErrCode ensure_index(DdlRun *run, const ShardingRequest *request, const Found *found,
                            Error *err) {
    if (found->has_index)
        return ERR_OK;
    if (!found->is_empty || !request->is_index_implicit)
        return error_set(err, ERR_INVALID_OPTIONS,
                         "%s needs an index that begins with the shard key and can find ranges of "
                         "it: create one first",
                         request->ns.text);
    DocBuilder b = doc_builder_in_arena(&run->op->arena);
    build_doc(&b, "key", request->key);
    build_cstr(&b, "name", index_default_name(request->key, &run->op->arena));
    if (request->is_unique)
        build_bool(&b, "unique", true);
    size_t collation = build_open_doc(&b, "collation");
    build_cstr(&b, "locale", "simple");
    build_close(&b, collation);
    Doc spec = doc_builder_end(&b);
    CreateIndexesResult result;
    return ddl_create_indexes(run->op, &request->ns, &spec, 1, &result, err);
}

/* ---- zones ---- */

typedef struct Zones {
    DdlRun *run;
    const ShardingRequest *request;
    ZoneRange *rows;
    uint32_t count;
    const Doc *shards; /* documents of config.shards */
    uint32_t shard_count;
} Zones;

static bool has_tag(Doc shard, Str zone) {
    Elem tags = doc_get_lit(shard, "tags");
    DocIter iter = doc_iter(elem_type(tags) == BT_ARRAY ? elem_doc(tags) : DOC_EMPTY);
    for (Elem tag; doc_iter_next(&iter, &tag);)
        if (elem_type(tag) == BT_STRING && str_equal(elem_str(tag), zone))
            return true;
    return false;
}

static ErrCode add_zone(Zones *zones, Doc tag, Error *err) {
    Elem name = doc_get_lit(tag, "tag"), min = doc_get_lit(tag, "min"),
         max = doc_get_lit(tag, "max");
    if (elem_type(name) != BT_STRING || elem_type(min) != BT_DOC || elem_type(max) != BT_DOC)
        return error_set(err, ERR_INCOMPATIBLE_SHARDING_METADATA,
                         "a zone of %s is not as it should be", zones->request->ns.text);
    const ShardKey *key = zones->request->shard_key;
    Arena *arena = &zones->run->op->arena;
    ZoneRange *row = &zones->rows[zones->count++];
    Str *shards = ARENA_ARRAY(arena, Str, zones->shard_count + 1);
    *row = (ZoneRange){.zone = elem_str(name), .shards = shards};
    TRY(shard_key_extend_bound(key, elem_doc(min), false, "min", arena, &row->min, err));
    TRY(shard_key_extend_bound(key, elem_doc(max), false, "max", arena, &row->max, err));
    for (uint32_t i = 0; i < zones->shard_count; i++)
        if (has_tag(zones->shards[i], elem_str(name)) &&
            !elem_is_truthy(doc_get_lit(zones->shards[i], "draining")))
            shards[row->shard_count++] = elem_str(doc_get_lit(zones->shards[i], "_id"));
    return ERR_OK;
}

static ErrCode read_zones(Zones *zones, Error *err) {
    DdlRun *run = zones->run;
    DocBuilder b = doc_builder_in_arena(&run->op->arena);
    build_str(&b, "ns", ns_str(&zones->request->ns));
    Doc filter = doc_builder_end(&b);
    b = doc_builder_in_arena(&run->op->arena);
    build_i32(&b, "min", 1);
    ConfigQuery query = {
        .coll = "tags", .filter = filter, .sort = doc_builder_end(&b), .count_max = ZONES_MAX};
    Doc *tags, *shards;
    uint32_t count;
    TRY(config_find(run->cluster, run->op, &query, &tags, &count, err));
    b = doc_builder_in_arena(&run->op->arena);
    build_i32(&b, "_id", 1);
    query = (ConfigQuery){
        .coll = "shards", .filter = DOC_EMPTY, .sort = doc_builder_end(&b), .count_max = ZONES_MAX};
    TRY(config_find(run->cluster, run->op, &query, &shards, &zones->shard_count, err));
    zones->shards = shards;
    zones->rows = ARENA_ARRAY(&run->op->arena, ZoneRange, count + 1);
    for (uint32_t i = 0; i < count; i++)
        TRY(add_zone(zones, tags[i], err));
    return ERR_OK;
}

/* ---- first chunks ---- */

static ErrCode choose_chunks(DdlRun *run, const ShardingRequest *request, const Uuid *uuid,
                             bool is_empty, uint64_t now, ChunkList *ret_chunks, Error *err) {
    Zones zones = {.run = run, .request = request};
    TRY(read_zones(&zones, err));
    Str *names = ARENA_ARRAY(&run->op->arena, Str, run->shards->count + 1);
    uint32_t count = 0;
    for (uint32_t i = 0; i < run->shards->count; i++)
        if (!run->shards->rows[i].is_draining)
            names[count++] = str_from(run->shards->rows[i].name);
    FirstChunks first = {
        .key = request->shard_key,
        .uuid = *uuid,
        .now = now,
        .primary_shard = str_from(run->self),
        .shards = names,
        .shard_count = count,
        .zones = zones.rows,
        .zone_count = zones.count,
        .is_empty = is_empty,
        .initial_count = (uint32_t)request->initial_chunks,
        .presplit_hashed_zones = request->presplits_zones,
    };
    return chunks_first(&first, &run->op->arena, ret_chunks, err);
}

static void store_chunks(DdlRun *run, const Uuid *uuid, uint64_t now, const ChunkList *chunks) {
    Oid epoch = oid_new();
    DocBuilder b = ddl_fields(run);
    build_uuid(&b, "uuid", uuid);
    build_oid(&b, "epoch", &epoch);
    build_timestamp(&b, "timestamp", now);
    size_t list = build_open_array(&b, "chunks");
    for (uint32_t i = 0; i < chunks->count; i++) {
        char name[INDEX_NAME_SIZE];
        size_t row = build_open_doc(&b, index_name(i, name).data);
        chunk_build(&b, &chunks->rows[i]);
        build_close(&b, row);
    }
    build_close(&b, list);
    ddl_set_fields(run, &b);
}

ErrCode create_build(DdlRun *run, Error *err) {
    CLEANUP(request_done) ShardingRequest request = {0};
    TRY(parse_request(run, &request, err));
    Found found;
    TRY(check_collection(run->op, &request, &found, err));
    if (!found.exists)
        TRY(ddl_ensure_collection(run->op, &request.ns, err));
    TRY(check_collection(run->op, &request, &found, err));
    TRY(ensure_index(run, &request, &found, err));
    Uuid uuid;
    bool is_there;
    TRY(ddl_local_uuid(run, &request.ns, &is_there, &uuid, err));
    if (!is_there)
        return error_set(err, ERR_CONFLICTING_OPERATION_IN_PROGRESS,
                         "the collection %s was dropped meanwhile", request.ns.text);
    uint64_t now = service_next_ts(run->op->service);
    ChunkList chunks;
    TRY(choose_chunks(run, &request, &uuid, found.is_empty, now, &chunks, err));
    store_chunks(run, &uuid, now, &chunks);
    return ERR_OK;
}

/* ---- other owners ---- */

static ErrCode create_on(DdlRun *run, Str owner, const Ns *ns, Error *err) {
    const Shard *shard;
    TRY(ddl_find_shard(run, owner, &shard, err));
    DocBuilder b = doc_builder_in_arena(&run->op->arena);
    build_str(&b, "_shardsvrCreateCollectionParticipant", ns_str(ns));
    build_elem_as(&b, STR("collectionUUID"), ddl_field(run, "uuid"));
    TRY(ddl_build_definition(run, &b, ns, err));
    return ddl_ask(run, shard, &b, err);
}

/* Calls `visit` once for each other shard that gets a chunk. */
static ErrCode each_other_owner(DdlRun *run, const Ns *ns,
                                ErrCode (*visit)(DdlRun *run, Str owner, const Ns *ns, Error *err),
                                Error *err) {
    Elem chunks = ddl_field(run, "chunks");
    Doc list = elem_type(chunks) == BT_ARRAY ? elem_doc(chunks) : DOC_EMPTY;
    for (uint32_t i = 0; i < run->shards->count; i++) {
        Str name = str_from(run->shards->rows[i].name);
        bool is_owner = false;
        DocIter iter = doc_iter(list);
        for (Elem chunk; !is_owner && doc_iter_next(&iter, &chunk);)
            is_owner = str_equal(elem_str(doc_get_lit(elem_doc(chunk), "shard")), name);
        if (is_owner && !str_is(name, run->self))
            TRY(visit(run, name, ns, err));
    }
    return ERR_OK;
}

ErrCode create_participants(DdlRun *run, Error *err) {
    Ns ns;
    TRY(ddl_ns(run, &ns, err));
    const Shard *self;
    TRY(ddl_find_shard(run, str_from(run->self), &self, err));
    TRY(ddl_block(run, self, &ns, "ReadsAndWrites", err));
    return each_other_owner(run, &ns, create_on, err);
}

static ErrCode drop_created(DdlRun *run, Str owner, const Ns *ns, Error *err) {
    const Shard *shard;
    Uuid uuid;
    TRY(ddl_find_shard(run, owner, &shard, err));
    invariant(ddl_uuid_field(run, "uuid", &uuid));
    return ddl_drop_on(run, shard, ns, &uuid, err);
}

ErrCode create_undo(DdlRun *run, Error *err) {
    Ns ns;
    TRY(ddl_ns(run, &ns, err));
    return each_other_owner(run, &ns, drop_created, err);
}

/* ---- the end ---- */

ErrCode create_commit(DdlRun *run, Error *err) {
    CLEANUP(request_done) ShardingRequest request = {0};
    TRY(parse_request(run, &request, err));
    DocBuilder b = doc_builder_in_arena(&run->op->arena);
    build_str(&b, "_configsvrCommitCreateCollection", ns_str(&request.ns));
    build_elem(&b, ddl_field(run, "uuid"));
    build_doc(&b, "key", request.key);
    build_bool(&b, "unique", request.is_unique);
    CLEANUP(access_done) CollAccess access = {0};
    TRY(access_read(run->op, &request.ns, &access, err));
    Elem collation =
        access.coll != NULL ? doc_get_lit(access.coll->options.doc, "collation") : ELEM_MISSING;
    if (elem_type(collation) == BT_DOC)
        build_elem_as(&b, STR("defaultCollation"), collation);
    access_done(&access);
    build_elem(&b, ddl_field(run, "epoch"));
    build_elem(&b, ddl_field(run, "timestamp"));
    build_elem(&b, ddl_field(run, "chunks"));
    CLEANUP(client_reply_done) ClientReply reply = {0};
    return ddl_ask_config(run, &b, &reply, err);
}

ErrCode create_release(DdlRun *run, Error *err) {
    Ns ns;
    TRY(ddl_ns(run, &ns, err));
    /* So that the first request finds it known. */
    TRY(refresh_collection(run->state, run->op, &ns, err));
    CLEANUP(collection_route_done) CollectionRoute *route = placement_find(run->state, &ns);
    TRY(ddl_mark_collection(run, "shardCollection", &ns, err));
    failpoint_hit(FP_DDL_MARKED);
    const Shard *self;
    TRY(ddl_find_shard(run, str_from(run->self), &self, err));
    TRY(ddl_block(run, self, &ns, "Unblock", err));
    DocBuilder b = doc_builder_in_arena(&run->op->arena);
    build_elem_as(&b, STR("collectionUUID"), ddl_field(run, "uuid"));
    if (route != NULL && route->map != NULL) {
        ChunkVersion version = chunk_map_version(route->map);
        chunk_version_build(&b, "collectionVersion", &version);
    }
    task_set_result(run->task, doc_builder_end(&b));
    return ERR_OK;
}
