#include "sharding/shard/refresh.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "repl/ask_primary.h"
#include "sharding/route/remote.h"
#include "sharding/shard/placement_store.h"
#include "sharding/shard/shard_internal.h"
#include "storage/engine.h"
#include "storage/recovery_unit.h"

enum {
    ASK_MS_MAX = 30 * 1000,
    /* One that hangs is not primary for much longer: then there is another one to be asked. */
    ASK_ONCE_MS_MAX = 5 * 1000,
    ASK_PAUSE_US = 100 * 1000,
    READ_ATTEMPTS_MAX = 5,
    STORE_READ_ATTEMPTS_MAX = 10,
    STORE_READ_PAUSE_US = 20 * 1000,
    /* A transaction holds what others wait for. */
    TXN_WAIT_US_MAX = 500 * 1000,
};

/* ---- a secondary asks its primary ---- */

static bool is_between_primaries(ErrCode code) {
    return client_is_network_error(code) || error_is_of_state(code);
}

/* Has the primary read and store it, and waits until this member has that, too. `is_once`: fails
 * if there is no primary at the moment. */
static ErrCode ask_primary(ShardState *state, OpCtx *op, const char *command, Str name,
                           bool is_once, Error *err) {
    DocBuilder b = doc_builder_in_arena(&op->arena);
    build_str(&b, command, name);
    build_bool(&b, "syncFromConfig", true);
    build_cstr(&b, "$db", "admin");
    Cluster *cluster = shard_find_cluster(state);
    if (cluster != NULL)
        build_timestamp(&b, "$configTime", cluster_config_time(cluster));
    Doc body = doc_builder_end(&b);
    CLEANUP(client_reply_done) ClientReply reply = {0};
    int64_t until_us = clock_deadline_ms(ASK_MS_MAX);
    while (repl_ask_primary(state->service->repl, op, body, clock_deadline_ms(ASK_ONCE_MS_MAX),
                            &reply, err) != ERR_OK) {
        if (is_once || !is_between_primaries(err->code) || clock_mono_us() >= until_us)
            return err->code;
        client_reply_done(&reply);
        error_reset(err);
        TRY(op_sleep_us(op, ASK_PAUSE_US, err));
        if (repl_is_writable(state->service->repl))
            return error_set(err, ERR_NOT_SECONDARY, "this member has become primary");
    }
    Elem done = doc_get_lit(reply.body, "operationTime");
    return elem_type(done) == BT_TIMESTAMP
               ? repl_wait_applied(state->service->repl, op, (uint64_t)elem_i64(done), err)
               : ERR_OK;
}

/* The same. If there is no primary, and nothing is known here, *ret_is_alone: what is stored is
 * better than nothing. If something is known it is what the request was refused by: only a primary
 * can have news. */
static ErrCode ask_or_go_alone(ShardState *state, OpCtx *op, const char *command, Str name,
                               bool is_known, bool *ret_is_alone, Error *err) {
    *ret_is_alone = false;
    ErrCode rc = ask_primary(state, op, command, name, /* is_once= */ !is_known, err);
    if (rc == ERR_OK || is_known || !is_between_primaries(rc))
        return rc;
    error_reset(err);
    *ret_is_alone = true;
    return ERR_OK;
}

/* ---- collections ---- */

static ErrCode read_on_primary(ShardState *state, OpCtx *op, const Ns *ns,
                               CollectionRoute **ret_route, Error *err) {
    Cluster *cluster;
    TRY(shard_get_cluster(state, op, &cluster, err));
    CLEANUP(collection_route_done) CollectionRoute *base = placement_find_any(state, ns);
    CLEANUP(collection_route_done) CollectionRoute *route = NULL;
    TRY(collection_route_read(cluster, op, ns, base, &route, err));
    TRY(placement_store_write(op, route, err));
    *ret_route = TAKE_PTR(route);
    return ERR_OK;
}

static ErrCode read_stored(OpCtx *op, const Ns *ns, CollectionRoute **ret_route, Error *err) {
    for (int attempt = 1;; attempt++) {
        ErrCode rc = placement_store_read(op, ns, ret_route, err);
        if (rc != ERR_CONFLICTING_OPERATION_IN_PROGRESS || attempt == STORE_READ_ATTEMPTS_MAX)
            return rc;
        error_reset(err);
        TRY(op_sleep_us(op, STORE_READ_PAUSE_US, err));
    }
}

static ErrCode read_on_secondary(ShardState *state, OpCtx *op, const Ns *ns,
                                 CollectionRoute **ret_route, Error *err) {
    static const char COMMAND[] = "_flushRoutingTableCacheUpdates";
    CLEANUP(collection_route_done) CollectionRoute *known = placement_find(state, ns);
    bool is_alone;
    TRY(ask_or_go_alone(state, op, COMMAND, ns_str(ns), known != NULL, &is_alone, err));
    if (!is_alone)
        return read_stored(op, ns, ret_route, err);
    if (placement_store_read_alone(op, ns, ret_route, err) == ERR_OK)
        return ERR_OK;
    error_reset(err);
    TRY(ask_primary(state, op, COMMAND, ns_str(ns), /* is_once= */ false, err));
    return read_stored(op, ns, ret_route, err);
}

/* A section that ends, or what the primary stores, while something is read may be newer than that:
 * then it is read again. If that happens each time nothing is installed, and the request that
 * wanted it is refused once more. */
ErrCode refresh_collection(ShardState *state, OpCtx *op, const Ns *ns, Error *err) {
    CLEANUP(op_mutex_unlock) OpMutexLock lock = {0};
    TRY(op_mutex_lock(shard_mutex_of(state->refreshing, ns_str(ns)), op, &lock, err));
    for (int attempt = 0; attempt < READ_ATTEMPTS_MAX; attempt++) {
        uint64_t seen = atomic_load_explicit(&state->change_count, memory_order_acquire);
        CLEANUP(collection_route_done) CollectionRoute *route = NULL;
        TRY(repl_is_writable(state->service->repl) ? read_on_primary(state, op, ns, &route, err)
                                                   : read_on_secondary(state, op, ns, &route, err));
        if (placement_try_install(state, route, seen))
            return ERR_OK;
    }
    return ERR_OK;
}

/* ---- databases ---- */

static ErrCode read_database_on_primary(ShardState *state, OpCtx *op, Str name,
                                        DatabaseVersion *ret_version, bool *ret_found, Error *err) {
    Cluster *cluster;
    TRY(shard_get_cluster(state, op, &cluster, err));
    cluster_forget_database(cluster, name);
    DatabaseRoute *route;
    TRY(cluster_find_database(cluster, op, name, &route, err));
    *ret_found = route != NULL;
    if (route != NULL)
        *ret_version = route->version;
    ErrCode rc =
        placement_store_write_database(op, name, str_from(route != NULL ? route->shard : ""),
                                       route != NULL ? ret_version : NULL, err);
    database_route_unref(route);
    return rc;
}

static ErrCode read_database_on_secondary(ShardState *state, OpCtx *op, Str name,
                                          DatabaseVersion *ret_version, bool *ret_found,
                                          Error *err) {
    static const char COMMAND[] = "_flushDatabaseCacheUpdates";
    bool is_known = placement_find_database(state, name, ret_version), is_alone;
    TRY(ask_or_go_alone(state, op, COMMAND, name, is_known, &is_alone, err));
    TRY(placement_store_read_database(op, name, ret_version, ret_found, err));
    if (!is_alone || *ret_found)
        return ERR_OK;
    TRY(ask_primary(state, op, COMMAND, name, /* is_once= */ false, err));
    return placement_store_read_database(op, name, ret_version, ret_found, err);
}

ErrCode refresh_database(ShardState *state, OpCtx *op, Str name, Error *err) {
    CLEANUP(op_mutex_unlock) OpMutexLock lock = {0};
    TRY(op_mutex_lock(shard_mutex_of(state->refreshing, name), op, &lock, err));
    for (int attempt = 0; attempt < READ_ATTEMPTS_MAX; attempt++) {
        uint64_t seen = atomic_load_explicit(&state->change_count, memory_order_acquire);
        DatabaseVersion version;
        bool is_found;
        TRY(repl_is_writable(state->service->repl)
                ? read_database_on_primary(state, op, name, &version, &is_found, err)
                : read_database_on_secondary(state, op, name, &version, &is_found, err));
        if (placement_try_install_database(state, name, is_found ? &version : NULL, seen))
            return ERR_OK;
    }
    return ERR_OK;
}

/* ---- after a refusal ---- */

typedef struct SectionLook {
    ShardState *state;
    const Ns *ns;
    bool is_write;
    bool is_sharded;
} SectionLook;

static bool is_section_over(void *arg) {
    const SectionLook *look = arg;
    return section_find_locked(look->state, look->ns, look->is_write, look->is_sharded) == NULL;
}

static ErrCode wait_for_section(ShardState *state, OpCtx *op, const OpRouting *routing,
                                int64_t deadline_us, Error *err) {
    SectionLook look = {state, routing->beside != NULL ? routing->beside : &routing->ns,
                        routing->is_write, routing->is_sharded};
    SectionWaiter waiter = {.op = op};
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&state->mu);
    list_push_back(&state->waiters, &waiter.node);
    bool is_met;
    ErrCode rc = op_wait_until(op, &state->mu, is_section_over, &look, deadline_us, &is_met, err);
    list_remove(&waiter.node);
    return rc;
}

/* Under an operation of its own: that of the request may be in the middle of a retryable write, and
 * what is stored here is none of it. */
static ErrCode refresh_aside(ShardState *state, OpCtx *op, const OpRouting *routing, Error *err) {
    OpCtx *own = op_ctx_new(state->service->ops, NULL, NULL);
    own->service = state->service;
    op_attach_storage(own, state->service->storage);
    op_begin(own, &(OpDescription){.op_type = "none", .ns = "", .desc = "PlacementRefresh"});
    own->deadline_us = op->deadline_us;
    op_block_begin(op);
    ErrCode rc = ERR_OK;
    if (routing->is_database_stale)
        rc = refresh_database(state, own, ns_db(&routing->ns), err);
    if (rc == ERR_OK && routing->is_stale)
        rc = refresh_collection(state, own, &routing->ns, err);
    op_block_end(op);
    op_end(own);
    op_ctx_free(own);
    return rc;
}

void refresh_beside(ShardState *state, OpCtx *op, const Ns *ns) {
    CLEANUP(collection_route_done) CollectionRoute *known = placement_find(state, ns);
    if (LIKELY(known != NULL))
        return;
    OpRouting other = {.ns = *ns, .is_stale = true};
    refresh_after(state, op, &other, /* is_in_txn= */ false);
}

void refresh_after(ShardState *state, OpCtx *op, const OpRouting *routing, bool is_in_txn) {
    CLEANUP(error_reset) Error err = {0};
    ErrCode rc = ERR_OK;
    if (routing->is_blocked)
        rc = wait_for_section(state, op, routing,
                              is_in_txn ? clock_mono_us() + TXN_WAIT_US_MAX : INT64_MAX, &err);
    else if (routing->is_stale || routing->is_database_stale)
        rc = refresh_aside(state, op, routing, &err);
    if (rc != ERR_OK && op_check_interrupt_slow(op, &(Error){0}) == ERR_OK)
        LOG_WARN(LOG_SHARDING, 7400501, "Could not read where a collection is",
                 LOG_STR("namespace", routing->ns.text), LOG_STR("error", error_message(&err)));
}

/* ---- work of one's own accord ---- */

ErrCode placement_route_own_work(ShardState *state, OpCtx *op, const Ns *ns, Error *err) {
    TRY(shard_state_load(state, op, err));
    Str db = ns_db(ns);
    if (!shard_has_identity(state) || db_is_internal(db))
        return ERR_OK;
    CLEANUP(collection_route_done) CollectionRoute *route = placement_find(state, ns);
    if (route == NULL) {
        TRY(refresh_collection(state, op, ns, err));
        route = placement_find(state, ns);
    }
    if (route == NULL)
        return ERR_OK;
    OpRouting *routing = ARENA_NEW(&op->arena, OpRouting);
    *routing = (OpRouting){.ns = *ns,
                           .has_collection = true,
                           .has_version = true,
                           .version = route->map != NULL ? VERSION_IGNORED : VERSION_UNSHARDED};
    op->routing = routing;
    return ERR_OK;
}
