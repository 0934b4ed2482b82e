#include "default_concerns/default_concerns.h"

#include <stdatomic.h>
#include <stdio.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/thread.h"
#include "bson/builder.h"
#include "params/params.h"
#include "index/lookup.h"
#include "query/write/modify.h"
#include "storage/recovery_unit.h"

enum {
    FRESH_US = 5 * 1000 * 1000,
};

static const Ns SETTINGS_NS = {.size = 15, .db_size = 6, .text = "config.settings"};

static Doc key_doc(OpCtx *op) {
    DocBuilder b = doc_builder_in_arena(&op->arena);
    build_cstr(&b, "_id", "ReadWriteConcernDefaults");
    return doc_builder_end(&b);
}

ErrCode default_concerns_read(OpCtx *op, Doc *ret_doc, Error *err) {
    *ret_doc = DOC_NONE;
    CLEANUP(access_done) CollAccess access = {0};
    TRY(access_read(op, &SETTINGS_NS, &access, err));
    if (access.coll == NULL)
        return ERR_OK;
    return lookup_document(op, access.coll, doc_get_lit(key_doc(op), "_id"), &op->arena, ret_doc,
                           err);
}

static DefaultConcerns parse(Doc doc) {
    DefaultConcerns parsed = {0};
    Elem read = doc_is_present(doc) ? doc_get_lit(doc, "defaultReadConcern") : ELEM_MISSING;
    Elem level = elem_type(read) == BT_DOC ? doc_get_lit(elem_doc(read), "level") : ELEM_MISSING;
    parsed.is_read_majority = elem_type(level) == BT_STRING && str_is(elem_str(level), "majority");
    Elem concern = doc_is_present(doc) ? doc_get_lit(doc, "defaultWriteConcern") : ELEM_MISSING;
    if (elem_type(concern) != BT_DOC)
        return parsed;
    Elem w = doc_get_lit(elem_doc(concern), "w");
    Elem timeout = doc_get_lit(elem_doc(concern), "wtimeout");
    parsed.has_w = elem_is_present(w);
    if (elem_type(w) == BT_STRING) {
        parsed.is_majority = str_is(elem_str(w), "majority");
        if (!parsed.is_majority)
            snprintf(parsed.mode, sizeof(parsed.mode), "%s", elem_str(w).data);
    } else if (elem_is_number(w)) {
        parsed.w = (int32_t)elem_as_i64(w);
    }
    parsed.is_journaled = elem_is_truthy(doc_get_lit(elem_doc(concern), "j"));
    parsed.wtimeout_ms = elem_is_number(timeout) ? elem_as_i64(timeout) : 0;
    return parsed;
}

struct DefaultConcernsCache {
    Mutex mu;
    /* Guarded by mu. */
    DefaultConcerns concerns;
    /* Atomic: what every read looks at. */
    _Atomic int64_t read_us; /* 0: never */
    _Atomic bool is_read_majority;
};

static void keep(DefaultConcernsCache *cache, const DefaultConcerns *concerns, int64_t now_us) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&cache->mu);
    cache->concerns = *concerns;
    atomic_store(&cache->is_read_majority, concerns->is_read_majority);
    atomic_store(&cache->read_us, now_us);
}

DefaultConcernsCache *default_concerns_cache_new(void) {
    DefaultConcernsCache *cache = NEW(DefaultConcernsCache);
    mutex_init(&cache->mu, LOCK_RANK_LEAF);
    return cache;
}

void default_concerns_cache_free(DefaultConcernsCache *cache) {
    if (cache == NULL)
        return;
    mutex_done(&cache->mu);
    xfree(cache);
}

static bool is_fresh(DefaultConcernsCache *cache, int64_t now_us) {
    int64_t read_us = atomic_load_explicit(&cache->read_us, memory_order_relaxed);
    return read_us != 0 && now_us - read_us < FRESH_US;
}

bool default_read_is_majority(OpCtx *op) {
    DefaultConcernsCache *cache = op->service->default_concerns;
    if (LIKELY(is_fresh(cache, op->start_us)))
        return atomic_load_explicit(&cache->is_read_majority, memory_order_relaxed);
    return default_concerns(op).is_read_majority;
}

DefaultConcerns default_concerns(OpCtx *op) {
    DefaultConcernsCache *cache = op->service->default_concerns;
    int64_t now_us = clock_mono_us();
    mutex_lock(&cache->mu);
    DefaultConcerns known = cache->concerns;
    mutex_unlock(&cache->mu);
    if (is_fresh(cache, now_us))
        return known;
    CLEANUP(error_reset) Error err = {0};
    Doc doc;
    if (default_concerns_read(op, &doc, &err) != ERR_OK)
        return known;
    known = parse(doc);
    keep(cache, &known, now_us);
    return known;
}

ErrCode default_concerns_store(OpCtx *op, Doc doc, Error *err) {
    DocBuilder b = doc_builder_in_arena(&op->arena);
    build_doc(&b, "u", doc);
    ModifyRequest request = {.kind = MODIFY_UPDATE,
                             .query = {.filter = key_doc(op)},
                             .is_upsert = true,
                             .update = doc_get_lit(doc_builder_end(&b), "u")};
    ModifyOutcome outcome;
    TRY(exec_modify(op, &SETTINGS_NS, &request, &outcome, err));
    DefaultConcerns known = parse(doc);
    keep(op->service->default_concerns, &known, clock_mono_us());
    return ERR_OK;
}
