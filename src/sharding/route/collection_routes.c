#include "sharding/route/collection_routes.h"

#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/list.h"
#include "base/pmap.h"
#include "sharding/route/remote.h"
#include "sharding/route/route_stats.h"

enum {
    ROUTES_MAX = 10000,
    /* A table that changes while it is read is read again. */
    READ_ATTEMPTS_MAX = 3,
};

/* What the cache has of one name. */
typedef struct RouteRow {
    _Atomic int32_t refs;
    CollectionRoute *route; /* if it is stale: what reading it again begins with */
} RouteRow;

/* Somebody reads the route of a collection; others wait for it. */
typedef struct RouteReader {
    ListNode node;
    const Ns *ns;
    List waiters;
} RouteReader;

typedef struct RouteWaiter {
    ListNode node;
    OpCtx *op;
    bool is_over;
} RouteWaiter;

struct CollectionRoutes {
    Cluster *cluster;
    Mutex mu;
    /* Guarded by mu. */
    PMap *rows;   /* RouteRow, by name */
    List readers; /* RouteReader */
};

/* ---- a route ---- */

CollectionRoute *collection_route_ref(CollectionRoute *route) {
    atomic_fetch_add_explicit(&route->refs, 1, memory_order_relaxed);
    return route;
}

void collection_route_unref(CollectionRoute *route) {
    if (route == NULL || atomic_fetch_sub_explicit(&route->refs, 1, memory_order_acq_rel) != 1)
        return;
    chunk_map_unref(route->map);
    xfree((void *)route->collation.data);
    xfree(route->stale_shards);
    xfree(route);
}

void collection_route_done(CollectionRoute **route) {
    collection_route_unref(TAKE_PTR(*route));
}

ChunkVersion collection_route_version(const CollectionRoute *route, Str shard) {
    return route->map != NULL ? chunk_map_shard_version(route->map, shard) : VERSION_UNSHARDED;
}

CollectionRoute *collection_route_unsharded(const Ns *ns) {
    CollectionRoute *route = NEW(CollectionRoute);
    atomic_init(&route->refs, 1);
    route->ns = *ns;
    route->collation = DOC_NONE;
    return route;
}

static ErrCode bad_entry(const Ns *ns, const char *field, Error *err) {
    return error_set(err, ERR_INCOMPATIBLE_SHARDING_METADATA,
                     "the entry of the sharded collection %s needs a valid \"%s\"", ns->text,
                     field);
}

ErrCode collection_route_parse(const Ns *ns, Doc entry, CollectionRoute **ret_route, Oid *ret_epoch,
                               uint64_t *ret_timestamp, ShardKey **ret_key, Error *err) {
    Elem epoch = doc_get_lit(entry, "lastmodEpoch");
    Elem timestamp = doc_get_lit(entry, "timestamp");
    Elem key = doc_get_lit(entry, "key");
    Elem collation = doc_get_lit(entry, "defaultCollation");
    Uuid uuid;
    if (elem_type(epoch) != BT_OID)
        return bad_entry(ns, "lastmodEpoch", err);
    if (elem_type(timestamp) != BT_TIMESTAMP)
        return bad_entry(ns, "timestamp", err);
    if (!uuid_from_elem(doc_get_lit(entry, "uuid"), &uuid))
        return bad_entry(ns, "uuid", err);
    if (elem_type(key) != BT_DOC)
        return bad_entry(ns, "key", err);
    TRY(shard_key_parse(elem_doc(key), ret_key, err));
    CollectionRoute *route = collection_route_unsharded(ns);
    route->uuid = uuid;
    route->is_unique = elem_is_truthy(doc_get_lit(entry, "unique"));
    Elem allows = doc_get_lit(entry, "allowMigrations");
    route->allows_migrations = !elem_is_present(allows) || elem_is_truthy(allows);
    if (elem_type(collation) == BT_DOC)
        route->collation = (Doc){doc_copy_heap(elem_doc(collation))};
    *ret_epoch = *elem_oid(epoch);
    *ret_timestamp = (uint64_t)elem_i64(timestamp);
    *ret_route = route;
    return ERR_OK;
}

/* ---- marks ---- */

static bool load_mark(const _Atomic bool *mark) {
    return atomic_load_explicit(mark, memory_order_relaxed);
}

static void set_mark(_Atomic bool *mark) {
    atomic_store_explicit(mark, true, memory_order_relaxed);
}

void collection_route_note_stale(CollectionRoute *route, Str shard, const ChunkVersion *wanted) {
    ShardIndex index;
    if (route->stale_shards == NULL || !chunk_map_find_shard(route->map, shard, &index)) {
        set_mark(&route->is_stale);
        return;
    }
    ChunkVersion known = chunk_map_version(route->map);
    if (wanted != NULL && !chunk_version_is_same_generation(wanted, &known))
        set_mark(&route->is_stale);
    set_mark(&route->stale_shards[index]);
    set_mark(&route->is_stale_at);
}

bool collection_route_is_stale_at(const CollectionRoute *route, Str shard) {
    ShardIndex index;
    return UNLIKELY(load_mark(&route->is_stale_at)) &&
           chunk_map_find_shard(route->map, shard, &index) &&
           load_mark(&route->stale_shards[index]);
}

/* ---- reading ---- */

static ErrCode add_chunk(void *arg, Doc doc, Error *err) {
    Chunk chunk;
    TRY(chunk_parse(doc, &chunk, err));
    chunk_map_maker_add(arg, &chunk);
    return ERR_OK;
}

/* Chunks that changed move to the end of the order of versions: however many batches it takes, each
 * change that is committed meanwhile is seen, if need be besides the state before it, and the newer
 * one counts. */
static ErrCode read_chunks(Cluster *cluster, OpCtx *op, const Uuid *uuid, uint64_t since,
                           ChunkMapMaker *maker, Error *err) {
    DocBuilder b = doc_builder_in_arena(&op->arena);
    build_uuid(&b, "uuid", uuid);
    size_t range = build_open_doc(&b, "lastmod");
    build_timestamp(&b, "$gte", since);
    build_close(&b, range);
    Doc filter = doc_builder_end(&b);
    b = doc_builder_in_arena(&op->arena);
    build_i32(&b, "lastmod", 1);
    ConfigQuery query = {.coll = "chunks", .filter = filter, .sort = doc_builder_end(&b)};
    return config_each(cluster, op, &query, add_chunk, maker, err);
}

static bool is_same_generation(const CollectionRoute *base, const CollectionRoute *route,
                               const Oid *epoch, uint64_t timestamp) {
    if (base == NULL || base->map == NULL || !uuid_equal(&base->uuid, &route->uuid))
        return false;
    ChunkVersion known = chunk_map_version(base->map);
    return memcmp(&known.epoch, epoch, sizeof(*epoch)) == 0 && known.timestamp == timestamp;
}

static ErrCode read_map(Cluster *cluster, OpCtx *op, const CollectionRoute *base,
                        CollectionRoute *route, const Oid *epoch, uint64_t timestamp, ShardKey *key,
                        Error *err) {
    bool is_refresh = is_same_generation(base, route, epoch, timestamp);
    uint64_t since = 0;
    if (is_refresh) {
        ChunkVersion known = chunk_map_version(base->map);
        since = chunk_version_number(&known);
    }
    ChunkMapMaker *maker = is_refresh ? chunk_map_maker_refresh(base->map)
                                      : chunk_map_maker_new(key, epoch, timestamp);
    ErrCode rc = read_chunks(cluster, op, &route->uuid, since, maker, err);
    if (rc != ERR_OK) {
        chunk_map_maker_free(maker);
        return rc;
    }
    return chunk_map_maker_finish(maker, &route->map, err);
}

static ErrCode read_once(Cluster *cluster, OpCtx *op, const Ns *ns, const CollectionRoute *base,
                         CollectionRoute **ret_route, Error *err) {
    DocBuilder b = doc_builder_in_arena(&op->arena);
    build_str(&b, "_id", ns_str(ns));
    ConfigQuery query = {
        .coll = "collections", .filter = doc_builder_end(&b), .sort = DOC_NONE, .count_max = 1};
    Doc *docs;
    uint32_t count;
    TRY(config_find(cluster, op, &query, &docs, &count, err));
    if (count == 0) {
        *ret_route = collection_route_unsharded(ns);
        return ERR_OK;
    }
    CLEANUP(collection_route_done) CollectionRoute *route = NULL;
    Oid epoch;
    uint64_t timestamp;
    ShardKey *key;
    TRY(collection_route_parse(ns, docs[0], &route, &epoch, &timestamp, &key, err));
    ErrCode rc = read_map(cluster, op, base, route, &epoch, timestamp, key, err);
    shard_key_unref(key);
    TRY(rc);
    *ret_route = TAKE_PTR(route);
    return ERR_OK;
}

static ErrCode read_route(Cluster *cluster, OpCtx *op, const Ns *ns, const CollectionRoute *base,
                          CollectionRoute **ret_route, Error *err) {
    for (int attempt = 1;; attempt++) {
        ErrCode rc = read_once(cluster, op, ns, base, ret_route, err);
        if (rc != ERR_CONFLICTING_OPERATION_IN_PROGRESS || attempt == READ_ATTEMPTS_MAX)
            return rc;
        error_reset(err);
        base = NULL; /* what it would add to may be what does not fit */
    }
}

ErrCode collection_route_read(Cluster *cluster, OpCtx *op, const Ns *ns,
                              const CollectionRoute *base, CollectionRoute **ret_route,
                              Error *err) {
    RouteStats *stats = cluster_route_stats(cluster);
    bool is_incremental = base != NULL && base->map != NULL;
    _Atomic int64_t *active = is_incremental ? &stats->incremental_active : &stats->full_active;
    int64_t start_us = clock_mono_us();
    route_count(is_incremental ? &stats->incremental_refreshes : &stats->full_refreshes, 1);
    route_count(active, 1);
    ErrCode rc = read_route(cluster, op, ns, base, ret_route, err);
    route_count(active, -1);
    route_count(&stats->refresh_wait_us, clock_mono_us() - start_us);
    if (rc != ERR_OK)
        route_count(&stats->failed_refreshes, 1);
    return rc;
}

/* ---- the cache ---- */

static void *row_ref(void *value) {
    RouteRow *row = value;
    atomic_fetch_add_explicit(&row->refs, 1, memory_order_relaxed);
    return row;
}

static void row_unref(void *value) {
    RouteRow *row = value;
    if (atomic_fetch_sub_explicit(&row->refs, 1, memory_order_acq_rel) != 1)
        return;
    collection_route_unref(row->route);
    xfree(row);
}

static const PMapType ROWS = {row_ref, row_unref};

CollectionRoutes *collection_routes_new(Cluster *cluster) {
    CollectionRoutes *routes = NEW(CollectionRoutes);
    routes->cluster = cluster;
    mutex_init(&routes->mu, LOCK_RANK_COLLECTION_ROUTES);
    list_init(&routes->readers);
    return routes;
}

void collection_routes_free(CollectionRoutes *routes) {
    if (routes == NULL)
        return;
    invariant(list_is_empty(&routes->readers));
    pmap_unref(routes->rows, &ROWS);
    mutex_done(&routes->mu);
    xfree(routes);
}

/* The marks of a route that goes into the cache. */
static void make_marks(CollectionRoute *route) {
    if (route->map != NULL && route->stale_shards == NULL)
        route->stale_shards = xcalloc(chunk_map_shard_count(route->map), sizeof(_Atomic bool));
}

static RouteRow *find_row_locked(const CollectionRoutes *routes, const Ns *ns) {
    return pmap_get(routes->rows, ns->text, ns->size);
}

static RouteReader *find_reader_locked(CollectionRoutes *routes, const Ns *ns) {
    LIST_FOR_EACH (&routes->readers, node) {
        RouteReader *reader = CONTAINER_OF(node, RouteReader, node);
        if (ns_equal(reader->ns, ns))
            return reader;
    }
    return NULL;
}

static bool is_read_over(void *arg) {
    return ((const RouteWaiter *)arg)->is_over;
}

static ErrCode wait_for_reader_locked(CollectionRoutes *routes, RouteReader *reader, OpCtx *op,
                                      Error *err) {
    RouteWaiter waiter = {.op = op};
    list_push_back(&reader->waiters, &waiter.node);
    bool is_met;
    ErrCode rc = op_wait_until(op, &routes->mu, is_read_over, &waiter, INT64_MAX, &is_met, err);
    if (!waiter.is_over)
        list_remove(&waiter.node);
    return rc;
}

static void end_reader_locked(RouteReader *reader) {
    list_remove(&reader->node);
    for (ListNode *node; (node = list_first(&reader->waiters)) != NULL;) {
        RouteWaiter *waiter = CONTAINER_OF(node, RouteWaiter, node);
        list_remove(node);
        waiter->is_over = true;
        op_signal(waiter->op);
    }
}

static void put_locked(CollectionRoutes *routes, CollectionRoute *route) {
    PMap *old = routes->rows;
    if (pmap_count(old) >= ROUTES_MAX) {
        pmap_unref(old, &ROWS);
        old = NULL;
    }
    make_marks(route);
    RouteRow *row = NEW(RouteRow);
    atomic_init(&row->refs, 1);
    row->route = collection_route_ref(route);
    routes->rows = pmap_put(old, &ROWS, row->route->ns.text, row->route->ns.size, row);
    row_unref(row);
    pmap_unref(old, &ROWS);
}

static bool is_good_enough(const CollectionRoute *route, bool is_fresh) {
    return !load_mark(&route->is_stale) && !(is_fresh && load_mark(&route->is_stale_at));
}

/* A route that will do: *ret_route. Otherwise *ret_base is what is known (NULL: nothing), and
 * `self` is the reader now. */
static ErrCode take_or_read_locked(CollectionRoutes *routes, OpCtx *op, RouteReader *self,
                                   bool is_fresh, CollectionRoute **ret_route,
                                   CollectionRoute **ret_base, Error *err) {
    for (;;) {
        RouteRow *row = find_row_locked(routes, self->ns);
        if (LIKELY(row != NULL && is_good_enough(row->route, is_fresh))) {
            *ret_route = collection_route_ref(row->route);
            return ERR_OK;
        }
        RouteReader *other = find_reader_locked(routes, self->ns);
        if (other == NULL) {
            *ret_base = row != NULL ? collection_route_ref(row->route) : NULL;
            list_push_back(&routes->readers, &self->node);
            return ERR_OK;
        }
        TRY(wait_for_reader_locked(routes, other, op, err));
    }
}

uint32_t cluster_count_collections(Cluster *cluster) {
    CollectionRoutes *routes = cluster_collections(cluster);
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&routes->mu);
    return (uint32_t)pmap_count(routes->rows);
}

static ErrCode find_collection(Cluster *cluster, OpCtx *op, const Ns *ns, bool is_fresh,
                               CollectionRoute **ret_route, Error *err) {
    CollectionRoutes *routes = cluster_collections(cluster);
    RouteReader reader = {.ns = ns};
    list_init(&reader.waiters);
    CLEANUP(collection_route_done) CollectionRoute *base = NULL;
    *ret_route = NULL;
    mutex_lock(&routes->mu);
    ErrCode rc = take_or_read_locked(routes, op, &reader, is_fresh, ret_route, &base, err);
    mutex_unlock(&routes->mu);
    if (rc != ERR_OK || LIKELY(*ret_route != NULL))
        return rc;
    rc = collection_route_read(cluster, op, ns, base, ret_route, err);
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&routes->mu);
    if (rc == ERR_OK)
        put_locked(routes, *ret_route);
    end_reader_locked(&reader);
    return rc;
}

ErrCode cluster_find_collection(Cluster *cluster, OpCtx *op, const Ns *ns,
                                CollectionRoute **ret_route, Error *err) {
    return find_collection(cluster, op, ns, /* is_fresh= */ false, ret_route, err);
}

ErrCode cluster_find_fresh_collection(Cluster *cluster, OpCtx *op, const Ns *ns,
                                      CollectionRoute **ret_route, Error *err) {
    return find_collection(cluster, op, ns, /* is_fresh= */ true, ret_route, err);
}

void cluster_forget_collection(Cluster *cluster, const Ns *ns) {
    CollectionRoutes *routes = cluster_collections(cluster);
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&routes->mu);
    RouteRow *row = find_row_locked(routes, ns);
    if (row != NULL)
        set_mark(&row->route->is_stale);
}

static bool mark_of_database(void *arg, const void *key, size_t key_size, void *value) {
    (void)key, (void)key_size;
    const Str *db = arg;
    RouteRow *row = value;
    if (db->size == 0 || str_equal(ns_db(&row->route->ns), *db))
        set_mark(&row->route->is_stale);
    return true;
}

void cluster_forget_collections(Cluster *cluster, Str db) {
    CollectionRoutes *routes = cluster_collections(cluster);
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&routes->mu);
    pmap_for_each_from(routes->rows, "", 0, mark_of_database, &db);
}
