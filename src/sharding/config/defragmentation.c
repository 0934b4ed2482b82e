#include "sharding/config/defragmentation.h"

#include "concurrency/service_ctx.h"
#include "query/write/own_docs.h"

static const char *const TEXTS[] = {
    [DEFRAG_NONE] = "finished",
    [DEFRAG_MEASURE] = "mergeAndMeasureChunks",
    [DEFRAG_MOVE] = "moveAndMergeChunks",
    [DEFRAG_MERGE] = "mergeChunks",
};

const char *defrag_phase_text(DefragPhase phase) {
    return TEXTS[phase];
}

DefragPhase defrag_phase_of(Doc entry) {
    if (!elem_is_truthy(doc_get_lit(entry, "defragmentCollection")))
        return DEFRAG_NONE;
    Elem text = doc_get_lit(entry, "defragmentationPhase");
    for (int phase = DEFRAG_MEASURE; phase <= DEFRAG_MERGE; phase++)
        if (elem_type(text) == BT_STRING && str_is(elem_str(text), TEXTS[phase]))
            return (DefragPhase)phase;
    return DEFRAG_MEASURE;
}

void defrag_build_phase(DocBuilder *set, DefragPhase phase) {
    build_bool(set, "defragmentCollection", true);
    build_cstr(set, "defragmentationPhase", defrag_phase_text(phase));
}

/* ---- phases ---- */

typedef struct PhaseRun {
    const Uuid *uuid;
    DefragPhase from;
    DefragPhase to;
} PhaseRun;

static Doc build_phase_update(OpCtx *op, DefragPhase to) {
    DocBuilder b = doc_builder_in_arena(&op->arena);
    size_t update = build_open_doc(&b, to == DEFRAG_NONE ? "$unset" : "$set");
    if (to != DEFRAG_NONE) {
        defrag_build_phase(&b, to);
    } else {
        build_cstr(&b, "defragmentCollection", "");
        build_cstr(&b, "defragmentationPhase", "");
    }
    build_close(&b, update);
    return doc_builder_end(&b);
}

/* Whoever changed it meanwhile (configureCollectionBalancing) is right. */
static ErrCode change_in_txn(void *arg, OpCtx *op, Error *err) {
    const PhaseRun *run = arg;
    Doc filter = config_filter_uuid(op, run->uuid), entry;
    TRY(config_catalog_find_first(op, &CONFIG_COLLECTIONS_NS, filter, DOC_NONE, &entry, err));
    if (!doc_is_present(entry) || defrag_phase_of(entry) != run->from)
        return ERR_OK;
    return own_docs_update(op, &CONFIG_COLLECTIONS_NS, filter, build_phase_update(op, run->to),
                           err);
}

static ErrCode change(OpCtx *op, const char *name, InternalTxnBody body, void *arg, Error *err) {
    CLEANUP(op_mutex_unlock) OpMutexLock lock = {0};
    TRY(op_mutex_lock(&op->service->config_catalog->chunks, op, &lock, err));
    return config_catalog_change(op, name, body, arg, err);
}

/* Before the end is written: whoever goes on after a crash in between removes the others. */
static ErrCode forget_sizes(OpCtx *op, const Uuid *uuid, Error *err) {
    DocBuilder filter = doc_builder_in_arena(&op->arena);
    build_uuid(&filter, "uuid", uuid);
    size_t size = build_open_doc(&filter, "estimatedDataSizeBytes");
    build_bool(&filter, "$exists", true);
    build_close(&filter, size);
    DocBuilder update = doc_builder_in_arena(&op->arena);
    size_t unset = build_open_doc(&update, "$unset");
    build_cstr(&update, "estimatedDataSizeBytes", "");
    build_close(&update, unset);
    return own_docs_update(op, &CONFIG_CHUNKS_NS, doc_builder_end(&filter),
                           doc_builder_end(&update), err);
}

ErrCode defrag_change_phase(OpCtx *op, const Uuid *uuid, DefragPhase from, DefragPhase to,
                            Error *err) {
    PhaseRun run = {uuid, from, to};
    if (to == DEFRAG_NONE)
        TRY(forget_sizes(op, uuid, err));
    return change(op, "defragmentationPhase", change_in_txn, &run, err);
}

/* ---- sizes ---- */

ErrCode defrag_note_size(OpCtx *op, const Uuid *uuid, Str shard, Doc min, Doc max, int64_t bytes,
                         Error *err) {
    DocBuilder filter = doc_builder_in_arena(&op->arena);
    build_uuid(&filter, "uuid", uuid);
    build_str(&filter, "shard", shard);
    build_doc(&filter, "min", min);
    build_doc(&filter, "max", max);
    DocBuilder update = doc_builder_in_arena(&op->arena);
    size_t set = build_open_doc(&update, "$set");
    build_i64(&update, "estimatedDataSizeBytes", bytes);
    build_close(&update, set);
    /* One document: with the lock only because changes of chunks replace what they have read. */
    CLEANUP(op_mutex_unlock) OpMutexLock lock = {0};
    TRY(op_mutex_lock(&op->service->config_catalog->chunks, op, &lock, err));
    return own_docs_update(op, &CONFIG_CHUNKS_NS, doc_builder_end(&filter),
                           doc_builder_end(&update), err);
}
