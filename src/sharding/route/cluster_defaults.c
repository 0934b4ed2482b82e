#include "sharding/route/cluster_defaults.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "sharding/route/remote.h"

enum {
    READ_MS_MAX = 5000,
};

struct ClusterDefaults {
    Cluster *cluster;
    _Atomic bool are_set; /* as `doc` says */
    Mutex mu;
    uint8_t *doc; /* guarded by mu; heap; NULL: not read yet */
};

ClusterDefaults *cluster_defaults_new(Cluster *cluster) {
    ClusterDefaults *defaults = NEW(ClusterDefaults);
    defaults->cluster = cluster;
    mutex_init(&defaults->mu, LOCK_RANK_LEAF);
    return defaults;
}

void cluster_defaults_free(ClusterDefaults *defaults) {
    if (defaults == NULL)
        return;
    mutex_done(&defaults->mu);
    xfree(defaults->doc);
    xfree(defaults);
}

/* What each node makes itself is left out of its reply. */
static Doc defaults_of(Doc reply, Arena *arena, bool *ret_are_set) {
    static const Str NAMES[] = {STR("defaultReadConcern"),
                                STR("defaultWriteConcern"),
                                STR("updateOpTime"),
                                STR("updateWallClockTime"),
                                STR("defaultReadConcernSource"),
                                STR("defaultWriteConcernSource")};
    *ret_are_set = false;
    DocBuilder b = doc_builder_in_arena(arena);
    for (size_t i = 0; i < ARRAY_LEN(NAMES); i++) {
        Elem field = doc_get(reply, NAMES[i]);
        if (!elem_is_present(field))
            continue;
        build_elem(&b, field);
        *ret_are_set |= elem_type(field) == BT_STRING && str_is(elem_str(field), "global");
    }
    build_date(&b, "localUpdateWallClockTime", clock_wall_ms());
    return doc_builder_end(&b);
}

ErrCode cluster_defaults_read(ClusterDefaults *defaults, OpCtx *op, Error *err) {
    static const ReadPreference PREFERENCE = {.mode = READ_MODE_PRIMARY_PREFERRED};
    Cluster *cluster = defaults->cluster;
    DocBuilder b = doc_builder_in_arena(&op->arena);
    build_i32(&b, "getDefaultRWConcern", 1);
    remote_build_end(cluster, &b, STR("admin"), &PREFERENCE, ELEM_MISSING);
    RemoteRequest request = {.shard = cluster_config_shard(cluster),
                             .preference = &PREFERENCE,
                             .body = doc_builder_end(&b),
                             .retry = REMOTE_IDEMPOTENT,
                             .deadline_us = clock_deadline_ms(READ_MS_MAX)};
    CLEANUP(client_reply_done) ClientReply reply = {0};
    TRY(remote_run(cluster, op, &request, &reply, NULL, err));
    bool are_set;
    uint8_t *doc = doc_copy_heap(defaults_of(reply.body, &op->arena, &are_set));
    mutex_lock(&defaults->mu);
    uint8_t *old = defaults->doc;
    defaults->doc = doc;
    atomic_store_explicit(&defaults->are_set, are_set, memory_order_release);
    mutex_unlock(&defaults->mu);
    xfree(old);
    return ERR_OK;
}

bool cluster_defaults_are_set(const ClusterDefaults *defaults) {
    return atomic_load_explicit(&defaults->are_set, memory_order_acquire);
}

Doc cluster_defaults_copy(ClusterDefaults *defaults, Arena *arena) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&defaults->mu);
    return defaults->doc != NULL ? doc_copy((Doc){defaults->doc}, arena) : DOC_EMPTY;
}
