#include "sharding/shard/shard_internal.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "catalog/fcv.h"
#include "catalog/write_observer.h"
#include "query/write/own_docs.h"
#include "repl/primary_rounds.h"
#include "repl/repl.h"
#include "sharding/shard/placement_store.h"

enum {
    NEAR_US = 15 * 1000, /* members of other sets, as seen from a shard */
};

const Ns VERSION_NS = {.size = sizeof(FCV_NS_TEXT) - 1, .db_size = 5, .text = FCV_NS_TEXT};

#define SECTIONS_TEXT "config.collection_critical_sections"
const Ns SECTIONS_NS = {.size = sizeof(SECTIONS_TEXT) - 1, .db_size = 6, .text = SECTIONS_TEXT};

static void observe(ShardState *state);

/* ---- life ---- */

ShardState *shard_state_new(ServiceCtx *service) {
    ShardState *state = NEW(ShardState);
    state->service = service;
    state->policy = placement_policy(state);
    atomic_init(&state->unnoticed_count, 1);
    mutex_init(&state->mu, LOCK_RANK_SHARD_STATE);
    mutex_init(&state->live_mu, LOCK_RANK_LIVE_PLACEMENTS);
    list_init(&state->live);
    list_init(&state->pending);
    list_init(&state->waiters);
    op_mutex_init(&state->connecting);
    op_mutex_init(&state->loading);
    for (size_t i = 0; i < NAME_MUTEXES; i++) {
        op_mutex_init(&state->refreshing[i]);
        op_mutex_init(&state->participating[i]);
    }
    return state;
}

void shard_state_register(ShardState *state) {
    catalog_add_access_policy(state->service->catalog, &state->policy);
    DocumentKeySource keys = placement_document_keys(state);
    catalog_set_document_key_source(state->service->catalog, &keys);
    observe(state);
}

void shard_state_stop(ShardState *state) {
    if (state != NULL)
        cluster_stop(atomic_load(&state->cluster));
}

static void *section_ref(void *value) {
    atomic_fetch_add_explicit(&((Section *)value)->refs, 1, memory_order_relaxed);
    return value;
}

static void section_unref(void *value) {
    Section *section = value;
    if (atomic_fetch_sub_explicit(&section->refs, 1, memory_order_acq_rel) != 1)
        return;
    xfree(section->doc);
    xfree(section);
}

static const PMapType SECTIONS = {section_ref, section_unref};

static void pending_free(Pending *pending) {
    list_remove(&pending->node);
    xfree(pending->doc);
    xfree(pending);
}

void shard_state_free(ShardState *state) {
    if (state == NULL)
        return;
    cluster_free(atomic_load(&state->cluster));
    placements_free(state);
    pmap_unref(state->sections, &SECTIONS);
    LIST_FOR_EACH (&state->pending, node)
        pending_free(CONTAINER_OF(node, Pending, node));
    for (size_t i = 0; i < NAME_MUTEXES; i++) {
        op_mutex_done(&state->refreshing[i]);
        op_mutex_done(&state->participating[i]);
    }
    op_mutex_done(&state->connecting);
    op_mutex_done(&state->loading);
    mutex_done(&state->mu);
    mutex_done(&state->live_mu);
    xfree(state->config_address);
    xfree(state);
}

/* ---- what documents say ---- */

static void take_identity_locked(ShardState *state, Doc doc) {
    Elem name = doc_get_lit(doc, "shardName");
    Elem address = doc_get_lit(doc, "configsvrConnectionString");
    if (state->name[0] != '\0' || elem_type(name) != BT_STRING || elem_type(address) != BT_STRING ||
        elem_str(name).size >= SHARD_NAME_SIZE)
        return;
    snprintf(state->name, sizeof(state->name), "%s", elem_str(name).data);
    state->config_address = xstrdup(elem_str(address).data);
}

static void enter_section_locked(ShardState *state, Doc doc) {
    Elem id = doc_get_lit(doc, "_id"), reason = doc_get_lit(doc, "reason");
    if (elem_type(id) != BT_STRING)
        return;
    Section *section = NEW(Section);
    atomic_init(&section->refs, 1);
    section->doc = doc_copy_heap(doc);
    Doc own = {section->doc};
    section->name = elem_str(doc_get_lit(own, "_id"));
    section->reason =
        elem_type(reason) == BT_DOC ? elem_doc(doc_get_lit(own, "reason")) : DOC_EMPTY;
    section->blocks_reads = elem_is_truthy(doc_get_lit(own, "blockReads"));
    section->spares_sharded = elem_is_truthy(doc_get_lit(own, "sparesSharded"));
    PMap *old = state->sections;
    state->sections = pmap_put(old, &SECTIONS, section->name.data, section->name.size, section);
    pmap_unref(old, &SECTIONS);
    section_unref(section);
}

static void wake_waiters_locked(ShardState *state) {
    LIST_FOR_EACH (&state->waiters, node)
        op_signal(CONTAINER_OF(node, SectionWaiter, node)->op);
}

static void leave_section_locked(ShardState *state, Doc doc) {
    Elem id = doc_get_lit(doc, "_id");
    if (elem_type(id) != BT_STRING)
        return;
    PMap *old = state->sections;
    state->sections = pmap_remove(old, &SECTIONS, elem_str(id).data, elem_str(id).size);
    pmap_unref(old, &SECTIONS);
    wake_waiters_locked(state);
}

const Section *section_find_locked(const ShardState *state, const Ns *ns, bool is_write,
                                   bool is_sharded) {
    if (LIKELY(state->sections == NULL))
        return NULL;
    const Str names[] = {ns_str(ns), ns_db(ns)};
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        const Section *section = pmap_get(state->sections, names[i].data, names[i].size);
        if (section != NULL && (is_write || section->blocks_reads) &&
            !(is_sharded && section->spares_sharded))
            return section;
    }
    return NULL;
}

/* ---- reading them ---- */

void shard_state_count_stale(ShardState *state) {
    atomic_fetch_add_explicit(&state->stale_count, 1, memory_order_relaxed);
}

int64_t shard_state_stale_count(const ShardState *state) {
    return atomic_load_explicit(&state->stale_count, memory_order_relaxed);
}

void shard_state_note_change(ShardState *state) {
    if (state != NULL)
        atomic_fetch_add_explicit(&state->unnoticed_count, 1, memory_order_release);
}

typedef struct LoadedDocs {
    OpCtx *op;
    Doc *docs;
    uint32_t count;
    uint32_t capacity;
} LoadedDocs;

static ErrCode add_loaded(void *arg, Doc doc, bool *is_over, Error *err) {
    (void)is_over, (void)err;
    LoadedDocs *loaded = arg;
    if (loaded->count == loaded->capacity) {
        uint32_t capacity = loaded->capacity * 2 + 16;
        Doc *grown = ARENA_ARRAY(&loaded->op->arena, Doc, capacity);
        if (loaded->count > 0)
            memcpy(grown, loaded->docs, loaded->count * sizeof(Doc));
        loaded->docs = grown;
        loaded->capacity = capacity;
    }
    loaded->docs[loaded->count++] = doc_copy(doc, &loaded->op->arena);
    return ERR_OK;
}

/* False: something was committed meanwhile, and may be missing in what was read. */
static bool try_install(ShardState *state, uint64_t seen, Doc identity,
                        const LoadedDocs *sections) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&state->mu);
    if (atomic_load_explicit(&state->change_count, memory_order_relaxed) != seen)
        return false;
    if (doc_is_present(identity))
        take_identity_locked(state, identity);
    pmap_unref(TAKE_PTR(state->sections), &SECTIONS);
    for (uint32_t i = 0; i < sections->count; i++)
        enter_section_locked(state, sections->docs[i]);
    placement_forget_all_locked(state);
    wake_waiters_locked(state);
    return true;
}

static ErrCode load_documents(ShardState *state, OpCtx *op, Error *err) {
    for (;;) {
        uint64_t seen = atomic_load_explicit(&state->change_count, memory_order_acquire);
        Doc identity;
        TRY(own_doc_read(op, &VERSION_NS, own_doc_id(op, STR(IDENTITY_ID)), &identity, err));
        LoadedDocs sections = {.op = op};
        TRY(access_each(op, &SECTIONS_NS, /* is_forward= */ true, add_loaded, &sections, err));
        if (try_install(state, seen, identity, &sections))
            return ERR_OK;
        TRY(op_check_interrupt_slow(op, err));
    }
}

static bool is_loaded(const ShardState *state) {
    return atomic_load_explicit(&state->loaded_count, memory_order_acquire) ==
           atomic_load_explicit(&state->unnoticed_count, memory_order_acquire);
}

/* Nobody goes on before it is done: a section that is not known yet would not hold anybody up. */
ErrCode shard_state_load(ShardState *state, OpCtx *op, Error *err) {
    if (LIKELY(is_loaded(state)))
        return ERR_OK;
    CLEANUP(op_mutex_unlock) OpMutexLock lock = {0};
    TRY(op_mutex_lock(&state->loading, op, &lock, err));
    if (is_loaded(state))
        return ERR_OK;
    uint64_t upto = atomic_load_explicit(&state->unnoticed_count, memory_order_acquire);
    TRY(load_documents(state, op, err));
    atomic_store_explicit(&state->loaded_count, upto, memory_order_release);
    return ERR_OK;
}

/* ---- identity ---- */

bool shard_has_identity(ShardState *state) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&state->mu);
    return state->name[0] != '\0';
}

ErrCode shard_get_name(ShardState *state, OpCtx *op, const char **ret_name, Error *err) {
    TRY(shard_state_load(state, op, err));
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&state->mu);
    if (state->name[0] == '\0')
        return error_set(err, ERR_SHARDING_STATE_NOT_INITIALIZED,
                         "this replica set has not been added to a cluster");
    *ret_name = state->name;
    return ERR_OK;
}

const char *shard_config_address(ShardState *state) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&state->mu);
    return state->config_address != NULL ? state->config_address : "";
}

Cluster *shard_find_cluster(ShardState *state) {
    return atomic_load_explicit(&state->cluster, memory_order_acquire);
}

static void on_members_changed(void *arg) {
    primary_rounds_wake(arg);
}

ErrCode shard_get_cluster(ShardState *state, OpCtx *op, Cluster **ret_cluster, Error *err) {
    *ret_cluster = shard_find_cluster(state);
    if (LIKELY(*ret_cluster != NULL))
        return ERR_OK;
    const char *name;
    TRY(shard_get_name(state, op, &name, err));
    CLEANUP(op_mutex_unlock) OpMutexLock lock = {0};
    TRY(op_mutex_lock(&state->connecting, op, &lock, err));
    *ret_cluster = shard_find_cluster(state);
    if (*ret_cluster != NULL)
        return ERR_OK;
    ClusterSettings settings = {.config_address = state->config_address,
                                .near_us = NEAR_US,
                                .members_changed = on_members_changed,
                                .members_arg = state->service->hosts};
    Cluster *cluster;
    TRY(cluster_new(state->service, &settings, &cluster, err));
    ErrCode rc = cluster_start(cluster, op, err);
    if (rc != ERR_OK) {
        cluster_stop(cluster);
        cluster_free(cluster);
        return rc;
    }
    atomic_store_explicit(&state->cluster, cluster, memory_order_release);
    *ret_cluster = cluster;
    return ERR_OK;
}

/* ---- observer ---- */

static void note(ShardState *state, OpCtx *op, PendingKind kind, Doc doc) {
    Pending *pending = NEW(Pending);
    pending->op = op;
    pending->kind = kind;
    pending->doc = doc_copy_heap(doc);
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&state->mu);
    list_push_back(&state->pending, &pending->node);
    atomic_fetch_add_explicit(&state->pending_count, 1, memory_order_relaxed);
}

static bool is_identity(Doc doc) {
    Elem id = doc_get_lit(doc, "_id");
    return elem_type(id) == BT_STRING && str_is(elem_str(id), IDENTITY_ID);
}

static void note_written(ShardState *state, OpCtx *op, const Ns *ns, Doc doc) {
    if (LIKELY(!str_is(ns_db(ns), "config"))) {
        if (UNLIKELY(ns_equal(ns, &VERSION_NS)) && is_identity(doc))
            note(state, op, PENDING_IDENTITY, doc);
    } else if (ns_equal(ns, &SECTIONS_NS))
        note(state, op, PENDING_SECTION_ENTERED, doc);
    /* The primary has in memory what it stores. */
    else if (op->mode.is_applying && ns_equal(ns, &CACHE_COLLECTIONS_NS))
        note(state, op, PENDING_PLACEMENT_CHANGED, doc);
    else if (op->mode.is_applying && ns_equal(ns, &CACHE_DATABASES_NS))
        note(state, op, PENDING_DATABASE_CHANGED, doc);
}

static ErrCode before_inserts(void *arg, OpCtx *op, const Collection *coll, const Doc *docs,
                              size_t count, Error *err) {
    (void)arg, (void)op, (void)coll, (void)docs, (void)count, (void)err;
    return ERR_OK;
}

static ErrCode on_insert(void *arg, OpCtx *op, const Collection *coll, Doc doc, size_t i,
                         Error *err) {
    (void)i, (void)err;
    note_written(arg, op, &coll->ns, doc);
    return ERR_OK;
}

static ErrCode on_update(void *arg, OpCtx *op, const Collection *coll, Doc before, Doc after,
                         const UpdateForm *form, Error *err) {
    (void)before, (void)form, (void)err;
    note_written(arg, op, &coll->ns, after);
    return ERR_OK;
}

static ErrCode on_delete(void *arg, OpCtx *op, const Collection *coll, Doc before, Error *err) {
    (void)err;
    ShardState *state = arg;
    if (LIKELY(!str_is(ns_db(&coll->ns), "config")))
        return ERR_OK;
    if (ns_equal(&coll->ns, &SECTIONS_NS))
        note(state, op, PENDING_SECTION_LEFT, before);
    else if (op->mode.is_applying && ns_equal(&coll->ns, &CACHE_COLLECTIONS_NS))
        note(state, op, PENDING_PLACEMENT_CHANGED, before);
    else if (op->mode.is_applying && ns_equal(&coll->ns, &CACHE_DATABASES_NS))
        note(state, op, PENDING_DATABASE_CHANGED, before);
    return ERR_OK;
}

static ErrCode on_ddl(void *arg, OpCtx *op, const DdlEntry *entry, Error *err) {
    (void)arg, (void)op, (void)entry, (void)err;
    return ERR_OK;
}

static void apply_locked(ShardState *state, const Pending *pending) {
    Doc doc = {pending->doc};
    Elem id = doc_get_lit(doc, "_id");
    Str name = elem_type(id) == BT_STRING ? elem_str(id) : (Str){"", 0};
    switch (pending->kind) {
    case PENDING_IDENTITY:
        take_identity_locked(state, doc);
        time_keys_kick(repl_time_keys(state->service->repl)); /* the cluster's, from now on */
        return;
    case PENDING_SECTION_ENTERED:
        enter_section_locked(state, doc);
        return;
    case PENDING_SECTION_LEFT:
        /* It was entered because the placement changes: what a member knew is old, also on those
         * that nobody has told. */
        placement_forget_locked(state, name);
        placement_forget_database_locked(state, name);
        leave_section_locked(state, doc);
        return;
    case PENDING_PLACEMENT_CHANGED:
        placement_forget_locked(state, name);
        return;
    case PENDING_DATABASE_CHANGED:
        placement_forget_database_locked(state, name);
        return;
    }
}

static void end_unit(ShardState *state, const OpCtx *op, bool is_committed) {
    if (LIKELY(atomic_load_explicit(&state->pending_count, memory_order_relaxed) == 0))
        return;
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&state->mu);
    LIST_FOR_EACH (&state->pending, node) {
        Pending *pending = CONTAINER_OF(node, Pending, node);
        if (pending->op != op)
            continue;
        if (is_committed) {
            apply_locked(state, pending);
            atomic_fetch_add_explicit(&state->change_count, 1, memory_order_release);
        }
        pending_free(pending);
        atomic_fetch_sub_explicit(&state->pending_count, 1, memory_order_relaxed);
    }
}

static void on_commit(void *arg, OpCtx *op, uint64_t commit_ts) {
    (void)commit_ts;
    end_unit(arg, op, /* is_committed= */ true);
}

static void on_abort(void *arg, OpCtx *op) {
    end_unit(arg, op, /* is_committed= */ false);
}

static void observe(ShardState *state) {
    const WriteObserver observer = {
        .arg = state,
        .before_inserts = before_inserts,
        .on_insert = on_insert,
        .on_update = on_update,
        .on_delete = on_delete,
        .on_ddl = on_ddl,
        .on_commit = on_commit,
        .on_abort = on_abort,
    };
    write_observer_register(state->service->catalog, &observer);
}
