/*
 * local_state.c - what a member remembers about itself, as documents of "local": its configuration,
 * its last vote, how often it rolled back, whether an initial sync was left unfinished, and which
 * initial sync the data are of.
 *
 * All of these are journaled and not replicated; a store returns when the document is on disk.
 */
#include "base/clock.h"
#include "base/failpoint.h"
#include "bson/builder.h"
#include "ddl/ddl.h"
#include "query/write/modify.h"
#include "repl/repl_internal.h"
#include "storage/global_lock.h"

#define LOCAL_NS(symbol, name)                                                                     \
    static const Ns symbol = {.size = sizeof(name) - 1, .db_size = 5, .text = name}

LOCAL_NS(CONFIG_NS, "local.system.replset");
LOCAL_NS(VOTE_NS, "local.replset.election");
LOCAL_NS(MINVALID_NS, "local.replset.minvalid");
LOCAL_NS(ROLLBACK_NS, "local.system.rollback.id");
LOCAL_NS(SYNC_ID_NS, "local.replset.initialSyncId");

static const Ns *const ALL[] = {&CONFIG_NS, &VOTE_NS, &MINVALID_NS, &ROLLBACK_NS, &SYNC_ID_NS};

static ErrCode load(OpCtx *op, const Ns *ns, Doc *ret_doc, Error *err);
static ErrCode store(OpCtx *op, const Ns *ns, Doc doc, Error *err);
static Doc vote_doc(OpCtx *op, ReplLastVote vote);

ErrCode local_state_open(OpCtx *op, Error *err) {
    bool is_any_made = false;
    for (size_t i = 0; i < ARRAY_LEN(ALL); i++) {
        Catalog *catalog = catalog_acquire(op_catalog(op));
        bool is_there = catalog_find(catalog, ALL[i]) != NULL;
        catalog_release(catalog);
        if (is_there)
            continue;
        TRY(ddl_ensure_collection(op, ALL[i], err));
        is_any_made = true;
    }
    Doc vote;
    TRY(load(op, &VOTE_NS, &vote, err));
    if (!doc_is_present(vote))
        TRY(store(op, &VOTE_NS, vote_doc(op, REPL_LAST_VOTE_NONE), err));
    /* The catalog is not journaled: documents must not outlive the names of their tables. */
    return is_any_made ? storage_checkpoint(op_storage(op), err) : ERR_OK;
}

typedef struct LoadArgs {
    Arena *arena;
    Doc *ret_doc;
} LoadArgs;

static ErrCode take_doc(void *arg, Doc doc, bool *is_over, Error *err) {
    (void)err;
    LoadArgs *args = arg;
    *args->ret_doc = doc_copy(doc, args->arena);
    *is_over = true;
    return ERR_OK;
}

/* The only document of the collection, in the operation's arena; DOC_NONE: none. */
static ErrCode load(OpCtx *op, const Ns *ns, Doc *ret_doc, Error *err) {
    *ret_doc = DOC_NONE;
    return access_each(op, ns, /* is_forward= */ true, take_doc, &(LoadArgs){&op->arena, ret_doc},
                       err);
}

/* On disk when it returns. Its _id stays as it was, if it had one. */
static ErrCode replace(OpCtx *op, const Ns *ns, Doc filter, Doc doc, bool is_upsert,
                       int64_t *ret_count, Error *err) {
    DocBuilder b = doc_builder_in_arena(&op->arena);
    build_doc(&b, "u", doc);
    Doc wrapped = doc_builder_end(&b);
    ModifyRequest request = {.kind = MODIFY_UPDATE,
                             .query = {.filter = filter},
                             .is_upsert = is_upsert,
                             .update = doc_get_lit(wrapped, "u")};
    ModifyOutcome outcome;
    TRY(exec_modify(op, ns, &request, &outcome, err));
    *ret_count = outcome.matched + outcome.is_upserted;
    return storage_wait_durable(op_storage(op), op, err);
}

/* The only document of its collection. */
static ErrCode store(OpCtx *op, const Ns *ns, Doc doc, Error *err) {
    int64_t count;
    return replace(op, ns, DOC_EMPTY, doc, /* is_upsert= */ true, &count, err);
}

ErrCode repl_find_stored_config(OpCtx *op, bool *ret_found, Error *err) {
    Doc doc;
    TRY(load(op, &CONFIG_NS, &doc, err));
    *ret_found = doc_is_present(doc);
    return ERR_OK;
}

ErrCode local_load_config(OpCtx *op, ReplConfig **ret_config, Error *err) {
    *ret_config = NULL;
    Doc doc;
    TRY(load(op, &CONFIG_NS, &doc, err));
    if (!doc_is_present(doc))
        return ERR_OK;
    /* It was allowed when it was stored; the set has it whatever this start says. */
    if (repl_config_parse(doc, REPL_CONFIG_ALLOW_ARBITERS, ret_config, err) != ERR_OK)
        return error_prefix(err, "the stored replica set config cannot be used");
    return ERR_OK;
}

ErrCode local_store_config(OpCtx *op, const ReplConfig *config, Error *err) {
    return store(op, &CONFIG_NS, config->doc, err);
}

ErrCode local_load_last_vote(OpCtx *op, ReplLastVote *ret_vote, Error *err) {
    *ret_vote = REPL_LAST_VOTE_NONE;
    Doc doc;
    TRY(load(op, &VOTE_NS, &doc, err));
    return doc_is_present(doc) ? parse_last_vote(doc, ret_vote, err) : ERR_OK;
}

static Doc vote_doc(OpCtx *op, ReplLastVote vote) {
    DocBuilder b = doc_builder_in_arena(&op->arena);
    build_last_vote(&b, &vote);
    return doc_builder_end(&b);
}

/* {term: {$lt: term}} */
static Doc older_votes(OpCtx *op, int64_t term) {
    DocBuilder b = doc_builder_in_arena(&op->arena);
    size_t opened = build_open_doc(&b, "term");
    build_i64(&b, "$lt", term);
    build_close(&b, opened);
    return doc_builder_end(&b);
}

/* There is one document from the beginning: of two votes that are stored at the same time the one
 * of the higher term stays. */
ErrCode local_store_last_vote(OpCtx *op, ReplLastVote vote, Error *err) {
    int64_t replaced;
    TRY(replace(op, &VOTE_NS, older_votes(op, vote.term), vote_doc(op, vote),
                /* is_upsert= */ false, &replaced, err));
    if (replaced == 0)
        return error_set(err, ERR_STALE_TERM, "a vote of term %lld or later is stored already",
                         (long long)vote.term);
    failpoint_hit(FP_REPL_LAST_VOTE_WRITTEN);
    return ERR_OK;
}

ErrCode local_load_rollback_id(OpCtx *op, int32_t *ret_id, Error *err) {
    *ret_id = 1;
    Doc doc;
    TRY(load(op, &ROLLBACK_NS, &doc, err));
    if (doc_is_present(doc) && elem_is_number(doc_get_lit(doc, "rollbackId")))
        *ret_id = (int32_t)elem_as_i64(doc_get_lit(doc, "rollbackId"));
    return ERR_OK;
}

ErrCode local_store_rollback_id(OpCtx *op, int32_t id, Error *err) {
    DocBuilder b = doc_builder_in_arena(&op->arena);
    build_cstr(&b, "_id", "rollbackId");
    build_i32(&b, "rollbackId", id);
    return store(op, &ROLLBACK_NS, doc_builder_end(&b), err);
}

ErrCode local_load_initial_sync_flag(OpCtx *op, bool *ret_is_set, Error *err) {
    Doc doc;
    TRY(load(op, &MINVALID_NS, &doc, err));
    *ret_is_set = doc_is_present(doc) && elem_is_truthy(doc_get_lit(doc, "doingInitialSync"));
    return ERR_OK;
}

ErrCode local_store_initial_sync_flag(OpCtx *op, bool is_set, OpTime end, Error *err) {
    DocBuilder b = doc_builder_in_arena(&op->arena);
    build_cstr(&b, "_id", "minvalid");
    build_timestamp(&b, "ts", end.ts);
    build_i64(&b, "t", end.term);
    if (is_set)
        build_bool(&b, "doingInitialSync", true);
    return store(op, &MINVALID_NS, doc_builder_end(&b), err);
}

/* Another _id is another document: the old one goes first. */
ErrCode local_renew_initial_sync_id(OpCtx *op, Error *err) {
    ModifyRequest all = {.kind = MODIFY_DELETE, .query = {.filter = DOC_EMPTY}, .is_multi = true};
    ModifyOutcome outcome;
    TRY(exec_modify(op, &SYNC_ID_NS, &all, &outcome, err));
    Uuid id = uuid_new();
    DocBuilder b = doc_builder_in_arena(&op->arena);
    build_uuid(&b, "_id", &id);
    build_date(&b, "wallTime", clock_wall_ms());
    return store(op, &SYNC_ID_NS, doc_builder_end(&b), err);
}
