#include "sharding/shard/placement.h"

#include <string.h>

#include "base/alloc.h"
#include "sharding/shard/shard_internal.h"
#include "storage/engine.h"

/* What is known of one collection, and the filter that follows from it. */
typedef struct Placement {
    OwnershipFilter base; /* first: its count is that of the placement */
    ShardState *state;
    ListNode live_node; /* in state->live, as long as somebody has it */
    CollectionRoute *route;
    ShardIndex self;
    bool is_partial;              /* others own a part: documents have to be looked at */
    uint64_t last_arrival;        /* when the last chunk came here; 0: none has */
    _Atomic uint64_t outdated_ts; /* reads that have it began before; 0: new ones still get it */
    Str *paths;
    const char **path_texts; /* the same */
} Placement;

typedef struct DatabasePlacement {
    _Atomic int32_t refs;
    DatabaseVersion version;
    char name[];
} DatabasePlacement;

/* ---- a placement ---- */

static bool placement_owns(const OwnershipFilter *filter, Doc doc) {
    const Placement *placement = (const Placement *)filter;
    const ChunkMap *map = placement->route->map;
    KeyBuilder kb;
    key_builder_init(&kb);
    bool is_owned = shard_key_of_doc(chunk_map_key(map), doc, &kb);
    if (is_owned) {
        Str key = {(const char *)kb.key.data, kb.key.size};
        is_owned = chunk_map_owner(map, chunk_map_find(map, key)) == placement->self;
    }
    key_builder_done(&kb);
    return is_owned;
}

static void placement_free(OwnershipFilter *filter) {
    Placement *placement = (Placement *)filter;
    mutex_lock(&placement->state->live_mu);
    list_remove(&placement->live_node);
    mutex_unlock(&placement->state->live_mu);
    collection_route_unref(placement->route);
    xfree(placement->paths);
    xfree(placement->path_texts);
    xfree(placement);
}

static void *placement_ref(void *value) {
    return ownership_ref(value);
}

static void placement_unref(void *value) {
    ownership_unref(value);
}

static const PMapType PLACEMENTS = {placement_ref, placement_unref};

static void *route_ref(void *value) {
    return collection_route_ref(value);
}

static void route_unref(void *value) {
    collection_route_unref(value);
}

static const PMapType ROUTES = {route_ref, route_unref};

static Placement *placement_new(ShardState *state, CollectionRoute *route) {
    Str self = str_from(state->name);
    Placement *placement = NEW(Placement);
    placement->state = state;
    mutex_lock(&state->live_mu);
    list_push_back(&state->live, &placement->live_node);
    mutex_unlock(&state->live_mu);
    placement->base = (OwnershipFilter){.refs = 1, .owns = placement_owns, .free = placement_free};
    placement->route = collection_route_ref(route);
    if (route->map == NULL)
        return placement;
    /* A shard that never had a chunk owns nothing: no number is its own. */
    if (!chunk_map_find_shard(route->map, self, &placement->self))
        placement->self = UINT32_MAX;
    placement->is_partial =
        placement->self == UINT32_MAX ||
        chunk_map_chunks_of(route->map, placement->self) < chunk_map_count(route->map);
    placement->base.is_whole = !placement->is_partial;
    if (placement->self != UINT32_MAX)
        placement->last_arrival = chunk_map_last_arrival(route->map, placement->self);
    uint32_t count;
    const ShardKeyField *fields = shard_key_fields(chunk_map_key(route->map), &count);
    placement->paths = xcalloc(count, sizeof(Str));
    placement->path_texts = xcalloc(count, sizeof(char *));
    for (uint32_t i = 0; i < count; i++) {
        placement->paths[i] = fields[i].path;
        placement->path_texts[i] = fields[i].path.data;
    }
    placement->base.paths = placement->paths;
    placement->base.path_count = count;
    return placement;
}

static const Placement *find_locked(const ShardState *state, const Ns *ns) {
    return pmap_get(state->placements, ns->text, ns->size);
}

CollectionRoute *placement_find(ShardState *state, const Ns *ns) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&state->mu);
    const Placement *placement = find_locked(state, ns);
    return placement != NULL ? collection_route_ref(placement->route) : NULL;
}

CollectionRoute *placement_find_any(ShardState *state, const Ns *ns) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&state->mu);
    const Placement *placement = find_locked(state, ns);
    CollectionRoute *route =
        placement != NULL ? placement->route : pmap_get(state->outdated, ns->text, ns->size);
    return route != NULL ? collection_route_ref(route) : NULL;
}

static void remove_outdated_locked(ShardState *state, Str name) {
    PMap *old = state->outdated;
    state->outdated = pmap_remove(old, &ROUTES, name.data, name.size);
    pmap_unref(old, &ROUTES);
}

/* By a time that is surely not later than what this member has applied. */
static void outdate_locked(const ShardState *state, const Ns *ns) {
    Placement *placement = pmap_get(state->placements, ns->text, ns->size);
    uint64_t now_ts = storage_majority_ts(state->service->storage);
    if (placement != NULL)
        atomic_store(&placement->outdated_ts, now_ts > 0 ? now_ts : 1);
}

uint64_t placement_read_floor(ShardState *state, uint64_t applied_ts) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&state->live_mu);
    uint64_t floor_ts = applied_ts;
    LIST_FOR_EACH (&state->live, node) {
        const Placement *placement = CONTAINER_OF(node, Placement, live_node);
        uint64_t outdated_ts = atomic_load(&placement->outdated_ts);
        if (outdated_ts != 0 && outdated_ts - 1 < floor_ts)
            floor_ts = outdated_ts - 1;
    }
    return floor_ts;
}

static bool is_unchanged_locked(const ShardState *state, uint64_t seen) {
    return atomic_load_explicit(&state->change_count, memory_order_relaxed) == seen;
}

bool placement_try_install(ShardState *state, CollectionRoute *route, uint64_t seen) {
    Placement *placement = placement_new(state, route); /* looks at all chunks: before the lock */
    mutex_lock(&state->mu);
    bool is_installed = is_unchanged_locked(state, seen);
    if (is_installed) {
        const Ns *ns = &placement->route->ns;
        PMap *old = state->placements;
        outdate_locked(state, ns);
        state->placements = pmap_put(old, &PLACEMENTS, ns->text, ns->size, placement);
        pmap_unref(old, &PLACEMENTS);
        remove_outdated_locked(state, ns_str(ns));
    }
    mutex_unlock(&state->mu);
    placement_unref(placement);
    return is_installed;
}

void placement_forget_locked(ShardState *state, Str name) {
    PMap *old = state->placements;
    const Placement *placement = pmap_get(old, name.data, name.size);
    if (placement == NULL)
        return;
    CollectionRoute *route = placement->route;
    PMap *outdated = state->outdated;
    outdate_locked(state, &route->ns);
    state->outdated = pmap_put(outdated, &ROUTES, route->ns.text, route->ns.size, route);
    pmap_unref(outdated, &ROUTES);
    state->placements = pmap_remove(old, &PLACEMENTS, name.data, name.size);
    pmap_unref(old, &PLACEMENTS);
}

static bool owns_part(const Placement *placement, Str low, Str high, Arena *arena) {
    const ChunkMap *map = placement->route->map;
    if (map == NULL || placement->self == UINT32_MAX)
        return false;
    ShardSet owners = shard_set_new(map, arena);
    return !chunk_map_add_owners(map, low, high, /* is_high_inclusive= */ false, 0, &owners) ||
           shard_set_has(&owners, placement->self);
}

bool placement_is_range_read(ShardState *state, const Ns *ns, Doc min, Doc max) {
    CLEANUP(arena_done) Arena arena;
    arena_init(&arena, 1024);
    KeyBuilder low, high;
    key_builder_init(&low);
    key_builder_init(&high);
    shard_key_encode(min, &low);
    shard_key_encode(max, &high);
    bool is_read = false;
    mutex_lock(&state->mu);
    const Placement *current = find_locked(state, ns);
    mutex_lock(&state->live_mu);
    LIST_FOR_EACH (&state->live, node) {
        const Placement *placement = CONTAINER_OF(node, Placement, live_node);
        if (placement != current && ns_equal(&placement->route->ns, ns))
            is_read |= owns_part(placement, (Str){(const char *)low.key.data, low.key.size},
                                 (Str){(const char *)high.key.data, high.key.size}, &arena);
    }
    mutex_unlock(&state->live_mu);
    mutex_unlock(&state->mu);
    key_builder_done(&low);
    key_builder_done(&high);
    return is_read;
}

/* ---- databases ---- */

static void *database_ref(void *value) {
    atomic_fetch_add_explicit(&((DatabasePlacement *)value)->refs, 1, memory_order_relaxed);
    return value;
}

static void database_unref(void *value) {
    DatabasePlacement *database = value;
    if (atomic_fetch_sub_explicit(&database->refs, 1, memory_order_acq_rel) == 1)
        xfree(database);
}

static const PMapType DATABASES = {database_ref, database_unref};

void placement_forget_database_locked(ShardState *state, Str name) {
    PMap *old = state->databases;
    state->databases = pmap_remove(old, &DATABASES, name.data, name.size);
    pmap_unref(old, &DATABASES);
}

bool placement_try_install_database(ShardState *state, Str name, const DatabaseVersion *version,
                                    uint64_t seen) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&state->mu);
    if (!is_unchanged_locked(state, seen))
        return false;
    if (version == NULL) {
        placement_forget_database_locked(state, name);
        return true;
    }
    DatabasePlacement *database = xcalloc(1, sizeof(DatabasePlacement) + name.size + 1);
    atomic_init(&database->refs, 1);
    database->version = *version;
    memcpy(database->name, name.data, name.size);
    PMap *old = state->databases;
    state->databases = pmap_put(old, &DATABASES, database->name, name.size, database);
    pmap_unref(old, &DATABASES);
    database_unref(database);
    return true;
}

bool placement_find_database(ShardState *state, Str name, DatabaseVersion *ret_version) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&state->mu);
    const DatabasePlacement *known = pmap_get(state->databases, name.data, name.size);
    if (known != NULL)
        *ret_version = known->version;
    return known != NULL;
}

/* Reads go on with what they have: they began before now, too. */
static void outdate_all_locked(ShardState *state) {
    uint64_t now_ts = storage_majority_ts(state->service->storage);
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&state->live_mu);
    LIST_FOR_EACH (&state->live, node) {
        uint64_t still_given = 0;
        atomic_compare_exchange_strong(&CONTAINER_OF(node, Placement, live_node)->outdated_ts,
                                       &still_given, now_ts > 0 ? now_ts : 1);
    }
}

static void release_all(ShardState *state) {
    pmap_unref(TAKE_PTR(state->placements), &PLACEMENTS);
    pmap_unref(TAKE_PTR(state->outdated), &ROUTES);
    pmap_unref(TAKE_PTR(state->databases), &DATABASES);
}

void placement_forget_all_locked(ShardState *state) {
    outdate_all_locked(state);
    release_all(state);
}

void placements_free(ShardState *state) {
    release_all(state);
}

/* ---- the check ---- */

static ErrCode refuse_collection(const ShardState *state, const OpRouting *routing,
                                 const ChunkVersion *wanted, const char *why, Error *err) {
    (void)error_set(err, ERR_STALE_CONFIG, "the routing of %s is not current: %s", routing->ns.text,
                    why);
    CLEANUP(buffer_done) Buffer buf;
    buffer_init(&buf, BUFFER_UNBOUNDED);
    DocBuilder b;
    doc_builder_init(&b, &buf);
    build_str(&b, "ns", ns_str(&routing->ns));
    chunk_version_build(&b, "vReceived", &routing->version);
    if (wanted != NULL)
        chunk_version_build(&b, "vWanted", wanted);
    build_cstr(&b, "shardId", state->name);
    error_set_extra(err, doc_builder_end(&b).data);
    return err->code;
}

static ErrCode refuse_database(const OpRouting *routing, const DatabaseVersion *wanted,
                               Error *err) {
    Str db = ns_db(&routing->ns);
    (void)error_set(err, ERR_STALE_DB_VERSION, "the routing of the database %.*s is not current",
                    (int)db.size, db.data);
    CLEANUP(buffer_done) Buffer buf;
    buffer_init(&buf, BUFFER_UNBOUNDED);
    DocBuilder b;
    doc_builder_init(&b, &buf);
    build_str(&b, "db", db);
    database_version_build(&b, "vReceived", &routing->database_version);
    if (wanted != NULL)
        database_version_build(&b, "vWanted", wanted);
    error_set_extra(err, doc_builder_end(&b).data);
    return err->code;
}

static ErrCode check_database_locked(ShardState *state, OpRouting *routing, Error *err) {
    if (!routing->has_database_version || database_version_is_fixed(&routing->database_version))
        return ERR_OK;
    Str db = ns_db(&routing->ns);
    const DatabasePlacement *known = pmap_get(state->databases, db.data, db.size);
    if (LIKELY(known != NULL &&
               database_version_equal(&known->version, &routing->database_version)))
        return ERR_OK;
    routing->is_database_stale = true;
    /* Both at once: one request that is sent again less. */
    routing->is_stale |= routing->has_version && find_locked(state, &routing->ns) == NULL;
    return refuse_database(routing, known != NULL ? &known->version : NULL, err);
}

static const char *mismatch(const ChunkVersion *received, const ChunkVersion *wanted) {
    if (chunk_version_is_unsharded(received))
        return "the collection is sharded";
    if (chunk_version_is_unsharded(wanted))
        return "the collection is not sharded";
    if (!chunk_version_is_same_generation(received, wanted))
        return "the collection was sharded anew";
    return "chunks have moved";
}

static ErrCode check_collection_locked(ShardState *state, OpRouting *routing,
                                       const Placement **ret_placement, Error *err) {
    *ret_placement = NULL;
    if (!routing->has_version)
        return ERR_OK;
    const Placement *placement = find_locked(state, &routing->ns);
    if (placement == NULL) {
        routing->is_stale = true;
        return refuse_collection(state, routing, NULL, "this shard does not know it yet", err);
    }
    ChunkVersion wanted = collection_route_version(placement->route, str_from(state->name));
    /* One that is not to be compared is sent to all shards: each does it to what it owns. */
    if (LIKELY(chunk_version_is_compatible(&routing->version, &wanted))) {
        *ret_placement = placement;
        return ERR_OK;
    }
    /* If the router is behind, a refresh here finds nothing new and costs little. */
    routing->is_stale = true;
    return refuse_collection(state, routing, &wanted, mismatch(&routing->version, &wanted), err);
}

/* By a router's word and this member's: a request of which they are not agreed is refused anyway,
 * unless its version is not to be compared. */
static bool is_sharded_locked(const ShardState *state, const OpRouting *routing) {
    if (!routing->has_version || chunk_version_is_unsharded(&routing->version))
        return false;
    const Placement *placement = find_locked(state, &routing->ns);
    return placement == NULL || placement->route->map != NULL;
}

/* After a section of the database it may be elsewhere: the router is to look for that first. */
static ErrCode refuse_blocked(const ShardState *state, OpRouting *routing, const Section *section,
                              bool is_write, Error *err) {
    routing->is_blocked = true;
    routing->is_write = is_write;
    if (routing->has_database_version && str_equal(section->name, ns_db(&routing->ns)))
        return refuse_database(routing, NULL, err);
    return refuse_collection(state, routing, NULL, "it is about to change", err);
}

static ErrCode check_locked(ShardState *state, OpRouting *routing, bool is_write,
                            const Placement **ret_placement, Error *err) {
    *ret_placement = NULL;
    if (UNLIKELY(state->sections != NULL)) {
        routing->is_sharded = is_sharded_locked(state, routing);
        const Section *section =
            section_find_locked(state, &routing->ns, is_write, routing->is_sharded);
        if (section != NULL)
            return refuse_blocked(state, routing, section, is_write, err);
    }
    TRY(check_database_locked(state, routing, err));
    return check_collection_locked(state, routing, ret_placement, err);
}

static ErrCode refuse_beside(const ShardState *state, const Ns *ns, const char *why, Error *err) {
    OpRouting other = {.ns = *ns, .version = VERSION_UNSHARDED};
    return refuse_collection(state, &other, NULL, why, err);
}

/* A router has a shard read (or write, by $out and $merge) another collection only if it takes that
 * for unsharded, as that of the request: then all of it is here. That must be known: a pipeline
 * looks for it before it begins (refresh_beside), and is sent again if it was forgotten since. */
static ErrCode check_whole(ShardState *state, const CollAccess *access, OpRouting *routing,
                           const Placement *placement, Error *err) {
    const Ns *ns = &access->ns;
    if (!routing->is_pipeline || ns_is_system(ns))
        return ERR_OK;
    if (placement != NULL)
        return placement->route->map == NULL
                   ? ERR_OK
                   : refuse_beside(state, ns, "the collection is sharded", err);
    return access->is_write ? ERR_OK /* one of the pipeline's own, for results; or read before */
                            : refuse_beside(state, ns, "this shard does not know it yet", err);
}

/* The own section of the other collection. It is waited for under its name. */
static ErrCode check_section_beside(const ShardState *state, const CollAccess *access,
                                    OpRouting *routing, Error *err) {
    const Section *section = pmap_get(state->sections, access->ns.text, access->ns.size);
    if (section == NULL || !routing->is_pipeline || !(access->is_write || section->blocks_reads))
        return ERR_OK;
    Ns *ns = ARENA_NEW(&access->op->arena, Ns);
    *ns = access->ns;
    routing->is_blocked = true;
    routing->is_write = access->is_write;
    routing->beside = ns;
    return refuse_beside(state, ns, "it is about to change", err);
}

/* A collection of the same database that a request concerns besides its own: by $lookup, $out and
 * the like. If it is not sharded either it is where the database is, and moves with it. */
static ErrCode check_beside(ShardState *state, const CollAccess *access, OpRouting *routing,
                            Error *err) {
    Str db = ns_db(&routing->ns);
    if (!routing->has_database_version || !str_equal(db, ns_db(&access->ns)))
        return ERR_OK;
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&state->mu);
    const Placement *placement = find_locked(state, &access->ns);
    bool is_sharded = placement != NULL && placement->route->map != NULL;
    const Section *section =
        state->sections != NULL ? pmap_get(state->sections, db.data, db.size) : NULL;
    if (section != NULL && (access->is_write || section->blocks_reads) &&
        !(is_sharded && section->spares_sharded))
        return refuse_blocked(state, routing, section, access->is_write, err);
    if (UNLIKELY(state->sections != NULL))
        TRY(check_section_beside(state, access, routing, err));
    TRY(check_whole(state, access, routing, placement, err));
    return is_sharded ? ERR_OK : check_database_locked(state, routing, err);
}

ErrCode placement_check(ShardState *state, OpRouting *routing, bool is_write, Error *err) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&state->mu);
    const Placement *placement;
    return check_locked(state, routing, is_write, &placement, err);
}

/* ---- reads of the past ---- */

/* Who owned what at a time: a read at that time is routed by the history of chunks, and finds
 * documents where they were then. */
typedef struct TimedFilter {
    OwnershipFilter base;
    Placement *placement;
    uint64_t ts;
} TimedFilter;

static bool timed_owns(const OwnershipFilter *filter, Doc doc) {
    const TimedFilter *timed = (const TimedFilter *)filter;
    const ChunkMap *map = timed->placement->route->map;
    KeyBuilder kb;
    key_builder_init(&kb);
    bool is_owned = shard_key_of_doc(chunk_map_key(map), doc, &kb);
    if (is_owned) {
        ChunkAt at = chunk_map_find(map, (Str){(const char *)kb.key.data, kb.key.size});
        /* Of a chunk without a history nothing is known but who has it now. */
        ShardIndex owner = chunk_map_owner(map, at);
        bool is_known =
            chunk_map_since(map, at) == 0 || chunk_map_owner_at(map, at, timed->ts, &owner);
        is_owned = is_known && owner == timed->placement->self;
    }
    key_builder_done(&kb);
    return is_owned;
}

static void timed_free(OwnershipFilter *filter) {
    TimedFilter *timed = (TimedFilter *)filter;
    ownership_unref(&timed->placement->base);
    xfree(timed);
}

static OwnershipFilter *timed_filter_new(const Placement *placement, uint64_t ts) {
    TimedFilter *timed = NEW(TimedFilter);
    timed->placement = (Placement *)ownership_ref((OwnershipFilter *)&placement->base);
    timed->ts = ts;
    timed->base = (OwnershipFilter){.refs = 1,
                                    .paths = placement->paths,
                                    .path_count = placement->base.path_count,
                                    .owns = timed_owns,
                                    .free = timed_free};
    return &timed->base;
}

/* A transaction is routed by the present table, but reads an older snapshot: documents that came
 * here since would be missing in it. */
static ErrCode check_snapshot(const OpCtx *op, const Placement *placement, const OpRouting *routing,
                              Error *err) {
    if (LIKELY(placement->last_arrival == 0 || ru_complete_ts(op->ru) >= placement->last_arrival))
        return ERR_OK;
    return error_set(err, ERR_MIGRATION_CONFLICT,
                     "documents of %s have moved to this shard since the transaction began",
                     routing->ns.text);
}

/* A database that has come from another shard is here since the time in its version. Before that
 * its collections were not: what a read of that time finds here is nothing. */
static ErrCode check_arrival(const CollAccess *access, const OpRouting *routing, Error *err) {
    const OpCtx *op = access->op;
    const DatabaseVersion *version = &routing->database_version;
    if (LIKELY(!routing->has_database_version || version->last_mod <= 1))
        return ERR_OK;
    bool is_txn = op->txn_catalog != NULL;
    bool is_of_past = !is_txn && !access->is_write && ru_read_source(op->ru) == READ_PROVIDED;
    if (LIKELY(!is_txn && !is_of_past))
        return ERR_OK;
    uint64_t ts = is_txn ? ru_complete_ts(op->ru) : ru_provided_ts(op->ru);
    if (LIKELY(ts >= version->timestamp))
        return ERR_OK;
    Str db = ns_db(&routing->ns);
    return error_set(err, is_txn ? ERR_MIGRATION_CONFLICT : ERR_SNAPSHOT_UNAVAILABLE,
                     "the database \"%.*s\" has moved to this shard since", (int)db.size, db.data);
}

/* ---- the policy ---- */

static ErrCode check_access(ShardState *state, const CollAccess *access,
                            OwnershipFilter **ret_filter, Error *err) {
    OpRouting *routing = access->op->routing;
    if (routing == NULL)
        return ERR_OK;
    if (!routing->has_collection || !ns_equal(&routing->ns, &access->ns))
        return check_beside(state, access, routing, err);
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&state->mu);
    const Placement *placement;
    TRY(check_locked(state, routing, access->is_write, &placement, err));
    TRY(check_arrival(access, routing, err));
    if (placement == NULL || placement->route->map == NULL)
        return ERR_OK;
    if (access->coll == NULL && access->is_write && !chunk_version_is_ignored(&routing->version))
        return error_set(err, ERR_CANNOT_IMPLICITLY_CREATE_COLLECTION,
                         "the sharded collection %s does not exist on this shard", access->ns.text);
    OpCtx *op = access->op;
    if (op->txn_catalog != NULL) {
        TRY(check_snapshot(op, placement, routing, err));
    } else if (!access->is_write && ru_read_source(op->ru) == READ_PROVIDED) {
        *ret_filter = timed_filter_new(placement, ru_provided_ts(op->ru));
        return ERR_OK;
    }
    /* Held even if nothing is to be filtered: as long as somebody reads by this placement, what it
     * owns is not deleted. */
    *ret_filter = ownership_ref((OwnershipFilter *)&placement->base);
    return ERR_OK;
}

static ErrCode attach(void *arg, const CollAccess *access, OwnershipFilter **ret_filter,
                      Error *err) {
    return check_access(arg, access, ret_filter, err);
}

/* A read keeps what it began with. A write must not go on where the documents are not any more. */
static ErrCode restore(void *arg, const CollAccess *access, const OwnershipFilter *held,
                       OwnershipFilter **ret_filter, Error *err) {
    (void)held;
    return access->is_write ? check_access(arg, access, ret_filter, err) : ERR_OK;
}

AccessPolicy placement_policy(ShardState *state) {
    return (AccessPolicy){.arg = state, .attach = attach, .restore = restore};
}

/* ---- document keys ---- */

static Placement *find_sharded(ShardState *state, const Collection *coll) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&state->mu);
    const Placement *placement = find_locked(state, &coll->ns);
    /* Somebody who wrote without a version may have made another collection of that name. */
    if (placement == NULL || placement->route->map == NULL ||
        !uuid_equal(&placement->route->uuid, &coll->uuid))
        return NULL;
    return placement_ref((void *)placement);
}

/* What is found is what the access was checked with, or a refresh of that: a generation ends in a
 * section, which is entered with the lock that the writer has (critical_section.c). */
static bool add_shard_key(void *arg, OpCtx *op, const Collection *coll, Doc doc, DocBuilder *b) {
    (void)op;
    Placement *placement = find_sharded(arg, coll);
    if (placement == NULL)
        return false;
    bool has_id = document_key_add(b, placement->path_texts, placement->base.path_count, doc);
    placement_unref(placement);
    return has_id;
}

DocumentKeySource placement_document_keys(ShardState *state) {
    return (DocumentKeySource){state, add_shard_key};
}
