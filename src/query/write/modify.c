#include "query/write/modify.h"

#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "bson/builder.h"
#include "bson/collator.h"
#include "catalog/fcv.h"
#include "ddl/ddl.h"
#include "index/collection_write.h"
#include "index/lookup.h"
#include "query/exec/rid_set.h"
#include "query/write/update_pipeline.h"
#include "storage/recovery_unit.h"
#include "storage/unit_of_work.h"

enum {
    UPSERT_ATTEMPTS_MAX = 10,
    /* Each attempt after the first means that another writer has changed the target document: there
     * is progress in the system, but it must not go on without end. */
    SEARCH_ATTEMPTS_MAX = 100,
};

typedef struct Modify {
    OpCtx *op;
    const Ns *ns;
    const ModifyRequest *request;
    ModifyOutcome *outcome;
    UpdateProgram *program; /* updates */
    PipelineUpdateHook pipeline_hook;
    ExprMatchHook expr_hook;
    MatchParseContext match;
    MatchExpr *upsert_filter; /* upserts: what the new document starts from */
    const Collator *collator;
    WriteScratch scratch;
    int64_t now_ms;
    bool is_target_lost; /* the target no longer matched when it was to be changed */
    bool has_fcv;        /* the collection contains the FCV document, which is protected */
} Modify;

/* One document to change, over several attempts. */
typedef struct Target {
    Modify *m;
    const CollAccess *access;
    const Collection *coll;
    const MatchExpr *filter;
    RecordId rid;
    Doc before;    /* as found, or read again */
    bool is_first; /* first attempt: `before` belongs to the open snapshot */
    bool is_gone;  /* does not match any more */
    bool is_modified;
    Doc after;
} Target;

static ErrCode parse(Modify *m, const Collection *coll, Error *err);
static ErrCode parse_update(Modify *m, Error *err);
static ErrCode modify_found(Modify *m, CollAccess *access, Error *err);
static ErrCode modify_planned(Modify *m, CollAccess *access, PlanExecutor *exec, Error *err);
static ErrCode modify_by_id(Modify *m, CollAccess *access, Elem id, Error *err);
static ErrCode modify_target(void *arg, OpCtx *op, Error *err);
/* A replacement that leaves its _id out is never the stored document itself: it counts as a change
 * and is validated, also if it has the same fields. */
static bool is_written_anyway(const Modify *m) {
    return update_is_replacement(m->program) &&
           !elem_is_present(doc_get_lit(elem_doc(m->request->update), "_id"));
}

static ErrCode change_document(Target *t, OpCtx *op, Error *err);
static ErrCode read_again(Target *t, OpCtx *op, Error *err);
static void note_outcome(Modify *m, const Target *t);
static ErrCode upsert(Modify *m, Error *err);

ErrCode modify_check_failpoint(OpCtx *op, FailpointId id, const Ns *ns, Error *err) {
    if (LIKELY(!op_failpoint_take(op, id, ns->text)))
        return ERR_OK;
    return error_set(err, ERR_INTERNAL_ERROR, "the failpoint %s is on", failpoint_name(id));
}

ErrCode modify_pass_failpoints(OpCtx *op, const Ns *ns, ModifyKind kind, Error *err) {
    bool is_delete = kind == MODIFY_DELETE;
    TRY(op_hang(op, is_delete ? FP_HANG_DURING_BATCH_REMOVE : FP_HANG_DURING_BATCH_UPDATE, ns->text,
                err));
    return modify_check_failpoint(op, is_delete ? FP_FAIL_ALL_REMOVES : FP_FAIL_ALL_UPDATES, ns,
                                  err);
}

ErrCode exec_modify(OpCtx *op, const Ns *ns, const ModifyRequest *request,
                    ModifyOutcome *ret_outcome, Error *err) {
    *ret_outcome = (ModifyOutcome){0};
    Modify m = {.op = op,
                .ns = ns,
                .request = request,
                .outcome = ret_outcome,
                .now_ms = clock_wall_ms(),
                .has_fcv = ns_has_fcv(ns)};
    write_scratch_init(&m.scratch);
    ErrCode rc = ERR_OK;
    for (int attempt = 0; attempt < UPSERT_ATTEMPTS_MAX; attempt++) {
        CLEANUP(access_done) CollAccess access = {0};
        rc = access_write_owned(op, ns, LOCK_IX, &access, err);
        if (rc != ERR_OK)
            break;
        if (access.view != NULL) {
            rc = error_set(err, ERR_COMMAND_NOT_SUPPORTED_ON_VIEW,
                           "Namespace %s is a view, not a collection", ns->text);
            break;
        }
        rc = modify_check_capped(&access, err);
        if (rc == ERR_OK && op->client != NULL)
            rc = op_hang(op,
                         request->kind == MODIFY_DELETE ? FP_HANG_LOCKED_BATCH_REMOVE
                                                        : FP_HANG_LOCKED_BATCH_UPDATE,
                         ns->text, err);
        if (rc == ERR_OK && attempt == 0)
            rc = parse(&m, access.coll, err);
        if (rc == ERR_OK)
            rc = modify_found(&m, &access, err);
        if (rc != ERR_OK || ret_outcome->matched > 0 || !request->is_upsert)
            break;
        access_done(&access);
        rc = upsert(&m, err);
        /* Inserted by another writer meanwhile: now it can be updated. */
        if (rc != ERR_DUPLICATE_KEY || op->txn != NULL || attempt + 1 == UPSERT_ATTEMPTS_MAX)
            break;
        error_reset(err);
    }
    write_scratch_done(&m.scratch);
    return rc;
}

ErrCode modify_check_capped(const CollAccess *access, Error *err) {
    if (LIKELY(access->op->txn == NULL) || access->coll == NULL || !access->coll->options.is_capped)
        return ERR_OK;
    return error_set(err, ERR_OPERATION_NOT_SUPPORTED_IN_TRANSACTION,
                     "the capped collection '%s' cannot be written in a transaction",
                     access->ns.text);
}

/* The collation, and with it what the update means, depends on the collection. */
static ErrCode parse(Modify *m, const Collection *coll, Error *err) {
    const QuerySpec *query = &m->request->query;
    m->outcome->collator = m->collator = query_collator(query, coll);
    m->match.collator = m->collator;
    m->expr_hook = (ExprMatchHook){.parse = {.collator = m->collator,
                                             .let_values = query->let_values,
                                             .cluster_ts = m->op->cluster_ts},
                                   .now_ms = m->now_ms};
    m->match.expr_hook = expr_match_hook(&m->expr_hook);
    if (m->request->kind == MODIFY_DELETE)
        return ERR_OK;
    if (m->request->is_upsert) {
        MatchParseContext ctx = m->match;
        ctx.is_upsert = true;
        TRY(match_parse(doc_is_present(query->filter) ? query->filter : DOC_EMPTY, &ctx,
                        &m->op->arena, &m->upsert_filter, err));
    }
    return parse_update(m, err);
}

static ErrCode parse_update(Modify *m, Error *err) {
    const ModifyRequest *request = m->request;
    Doc variables = request->query.let_values;
    if (doc_is_present(request->constants))
        TRY(doc_merge(doc_is_present(variables) ? variables : DOC_EMPTY, request->constants,
                      &m->op->arena, &variables, err));
    m->pipeline_hook = (PipelineUpdateHook){.let_values = variables,
                                            .now_ms = m->now_ms,
                                            .cluster_ts = m->op->cluster_ts,
                                            .collator = m->collator};
    UpdateParseContext ctx = {.array_filters = request->array_filters,
                              .is_multi = request->is_multi,
                              .is_upsert = request->is_upsert,
                              .match = &m->match,
                              .pipeline_hook = pipeline_update_hook(&m->pipeline_hook)};
    TRY(update_parse(request->update, &ctx, &m->op->arena, &m->program, err));
    if (request->is_multi && update_is_replacement(m->program))
        return error_set(err, ERR_FAILED_TO_PARSE,
                         "multi update is not supported for replacement-style update");
    return ERR_OK;
}

static ErrCode modify_found(Modify *m, CollAccess *access, Error *err) {
    const ModifyRequest *request = m->request;
    bool is_plain = !doc_is_present(request->query.sort) && !elem_is_present(request->query.hint);
    Elem id = is_plain && doc_is_present(request->query.filter)
                  ? match_find_id_equality(request->query.filter)
                  : ELEM_MISSING;
    bool is_id_key = access->coll != NULL && (m->collator == access->coll->options.collator ||
                                              !type_is_collatable(elem_type(id)));
    if (elem_is_present(id) && is_id_key && !access->coll->options.is_without_id_index)
        return modify_by_id(m, access, id, err);

    QuerySpec spec = request->query;
    spec.has_collation = true;
    spec.collator = m->collator;
    spec.limit = request->is_multi || !doc_is_present(spec.sort) ? 0 : 1;
    /* A sort with limit 1 has kept only the first document. If that one is lost to another writer
     * there may be a next one, which a new search finds. */
    for (int attempt = 0; attempt < SEARCH_ATTEMPTS_MAX; attempt++) {
        CLEANUP(executor_free_ptr) PlanExecutor *exec = NULL;
        TRY(plan_query(access, &spec, &exec, err));
        executor_note_plan(m->op, exec, exec->summary);
        ErrCode rc = modify_planned(m, access, exec, err);
        executor_note_stats(m->op, exec);
        int64_t keys, docs;
        stage_count_all(exec->root, &keys, &docs);
        m->op->metrics.keys_examined += keys;
        m->op->metrics.docs_examined += docs;
        TRY(rc);
        if (spec.limit == 0 || !m->is_target_lost || m->outcome->matched > 0)
            break;
        m->is_target_lost = false;
    }
    return ERR_OK;
}

static ErrCode modify_planned(Modify *m, CollAccess *access, PlanExecutor *exec, Error *err) {
    CLEANUP(rid_set_done) RidSet done = {0};
    OpCtx *op = m->op;
    const ModifyRequest *request = m->request;
    /* A document moved within the index by its own update must not be updated twice (the Halloween
     * problem). A scan of the collection does not encounter it again, nor does a sort, which has
     * read everything before. */
    bool is_remembered = request->is_multi && request->kind == MODIFY_UPDATE &&
                         stage_has(exec->root, "IXSCAN") && !stage_has(exec->root, "SORT");
    /* Rows of a sort or a merge may have been read before a yield: they are re-read in the snapshot
     * in which they are changed, or a concurrent change would be undone. */
    bool is_fresh = !stage_has(exec->root, "SORT") && !stage_has(exec->root, "SORT_MERGE");
    for (;;) {
        ArenaMark mark = arena_mark(&op->arena);
        bool is_found;
        PlanRow row;
        TRY(executor_next(exec, &is_found, &row, err));
        if (!is_found)
            return ERR_OK;
        Target target = {.m = m,
                         .access = access,
                         .coll = access->coll,
                         .filter = exec->filter,
                         .is_first = is_fresh};
        target.before = doc_copy(row.doc, &op->arena);
        target.rid = row.rid;
        if (row.rid.str != NULL)
            target.rid.str = arena_memdup(&op->arena, row.rid.str, row.rid.str_size);
        executor_save(exec);
        bool is_located = true;
        if (record_id_is_none(target.rid)) /* sorted rows have no record id: found by _id */
            TRY(lookup_record_id(op, access->coll, doc_get_lit(target.before, "_id"),
                                 &m->scratch.rid, &is_located, &target.rid, err));
        bool is_new = true;
        if (is_remembered)
            TRY(rid_set_add(&done, target.rid, &is_new, err));
        m->is_target_lost |= !is_located;
        if (is_located && is_new) {
            TRY(op_run_with_retry(op, modify_target, &target, err));
            note_outcome(m, &target);
            if (!target.is_gone && !request->is_multi)
                return ERR_OK;
        }
        if (request->image == IMAGE_NONE)
            arena_rewind(&op->arena, mark);
        TRY(executor_restore(exec, access, err));
    }
}

/* The common case, without a plan: lookup and change are one unit of work. */
static ErrCode modify_by_id(Modify *m, CollAccess *access, Elem id, Error *err) {
    Target target = {.m = m, .access = access, .coll = access->coll};
    bool is_found;
    executor_note_plan(m->op, NULL, "IDHACK");
    const IndexDesc *index = collection_id_index(access->coll);
    if (index != NULL)
        index_note_access(index);
    TRY(lookup_record_id(m->op, access->coll, id, &m->scratch.rid, &is_found, &target.rid, err));
    m->op->metrics.keys_examined += is_found && !access->coll->options.is_clustered;
    if (!is_found)
        return ERR_OK;
    if (target.rid.str != NULL)
        target.rid.str = arena_memdup(&m->op->arena, target.rid.str, target.rid.str_size);
    TRY(op_run_with_retry(m->op, modify_target, &target, err));
    note_outcome(m, &target);
    return ERR_OK;
}

static ErrCode modify_target(void *arg, OpCtx *op, Error *err) {
    Target *t = arg;
    t->is_gone = t->is_modified = false;
    CLEANUP(uow_done) UnitOfWork uow = {0};
    TRY(uow_begin(op, &uow, err));
    if (!t->is_first) {
        TRY(read_again(t, op, err));
        if (t->is_gone)
            return uow_commit(&uow, err);
    }
    t->is_first = false;
    TRY(change_document(t, op, err));
    return uow_commit(&uow, err);
}

static ErrCode read_again(Target *t, OpCtx *op, Error *err) {
    Doc present;
    TRY(record_read(op, t->coll->records, t->rid, &op->arena, &present, err));
    t->is_gone = !doc_is_present(present);
    if (t->is_gone)
        return ERR_OK;
    op->metrics.docs_examined++;
    t->before = present;
    t->is_gone = !access_owns(t->access, t->before);
    if (t->is_gone || t->filter == NULL)
        return ERR_OK;
    MatchDetails details = MATCH_DETAILS_NONE;
    details.err = err;
    t->is_gone = !match_doc(t->filter, t->before, &details);
    return t->is_gone ? details.rc : ERR_OK;
}

/* `after` is DOC_NONE for a delete. */
static ErrCode check_fcv(Doc before, Doc after, Error *err) {
    Elem id = doc_get_lit(before, "_id");
    if (elem_type(id) != BT_STRING || !str_is(elem_str(id), FCV_DOCUMENT_ID))
        return ERR_OK;
    if (!doc_is_present(after))
        return error_set(err, (ErrCode)40670,
                         "removing FeatureCompatibilityVersion document is not allowed");
    Elem version = doc_get_lit(after, "version");
    if (elem_type(version) != BT_STRING || !str_is(elem_str(version), FCV_VERSION))
        return error_set(err, (ErrCode)4926900,
                         "Invalid feature compatibility version value, expected '%s'", FCV_VERSION);
    return ERR_OK;
}

/* A shard without the document that says which one it is would be none of its cluster any more. */
static ErrCode check_identity(const OpCtx *op, Doc before, Error *err) {
    Elem id = doc_get_lit(before, "_id");
    if (op->service->role != ROLE_SHARD || elem_type(id) != BT_STRING ||
        !str_is(elem_str(id), "shardIdentity"))
        return ERR_OK;
    return error_set(err, (ErrCode)40070,
                     "cannot delete shardIdentity document while in --shardsvr mode");
}

/* Is there an array on the way to the value, or in its place? */
static bool meets_array(Doc doc, Str path) {
    while (path.size > 0) {
        const char *dot = memchr(path.data, '.', path.size);
        Str name = {path.data, dot != NULL ? (size_t)(dot - path.data) : path.size};
        Elem value = doc_get(doc, name);
        if (elem_type(value) != BT_DOC)
            return elem_type(value) == BT_ARRAY;
        doc = elem_doc(value);
        if (dot == NULL)
            return false;
        path = (Str){dot + 1, path.size - name.size - 1};
    }
    return false;
}

/* Values that say which shard a document belongs to are single ones, also where one has them all.
 */
static ErrCode check_single_values(const CollAccess *access, Doc after, Error *err) {
    for (uint32_t i = 0; i < ACCESS_POLICIES_MAX; i++) {
        const OwnershipFilter *filter = access->filters[i];
        for (uint32_t k = 0; filter != NULL && k < filter->path_count; k++)
            if (meets_array(after, filter->paths[k]))
                return error_set(err, ERR_NOT_SINGLE_VALUE_FIELD,
                                 "the field \"%.*s\" of the shard key of %s cannot become an array",
                                 (int)filter->paths[k].size, filter->paths[k].data,
                                 access->ns.text);
    }
    return ERR_OK;
}

/* An update must not leave a document where nobody looks for it: whoever sent it moves it. */
static ErrCode check_owner(const CollAccess *access, Doc after, Error *err) {
    TRY(check_single_values(access, after, err));
    if (LIKELY(access_owns(access, after)))
        return ERR_OK;
    return error_set(err, ERR_WOULD_CHANGE_OWNING_SHARD,
                     "the document in %s would belong to another shard after this update",
                     access->ns.text);
}

/* What the update makes of a document. */
static ErrCode apply_update(const Modify *m, const MatchExpr *filter, Doc before,
                            UpdateResult *ret_result, Error *err) {
    UpdateApplyContext ctx = {.positional_index = -1,
                              .now_ms = m->now_ms,
                              .next_ts = m->op->mode.is_empty_ts_kept ? NULL : service_next_ts,
                              .next_ts_arg = m->op->service};
    if (update_needs_positional(m->program) && filter != NULL) {
        MatchDetails details = MATCH_DETAILS_NONE;
        match_doc(filter, before, &details);
        ctx.positional_index = details.array_index;
    }
    return update_apply(m->program, before, &ctx, &m->op->arena, ret_result, err);
}

struct ModifyTrial {
    Modify modify;
    ModifyOutcome outcome;
};

ErrCode modify_trial_new(OpCtx *op, const ModifyRequest *request, const Collator *collator,
                         ModifyTrial **ret_trial, Error *err) {
    ModifyTrial *trial = ARENA_NEW(&op->arena, ModifyTrial);
    Modify *m = &trial->modify;
    *m = (Modify){
        .op = op, .request = request, .outcome = &trial->outcome, .now_ms = clock_wall_ms()};
    ModifyRequest *with_collation = ARENA_NEW(&op->arena, ModifyRequest);
    *with_collation = *request;
    with_collation->query.has_collation = true;
    with_collation->query.collator = collator;
    m->request = with_collation;
    TRY(parse(m, /* coll= */ NULL, err));
    *ret_trial = trial;
    return ERR_OK;
}

ErrCode modify_trial_apply(ModifyTrial *trial, const MatchExpr *filter, Doc before,
                           bool *ret_is_changed, Error *err) {
    ArenaMark mark = arena_mark(&trial->modify.op->arena);
    UpdateResult result;
    TRY(apply_update(&trial->modify, filter, before, &result, err));
    *ret_is_changed = !result.is_noop || is_written_anyway(&trial->modify);
    arena_rewind(&trial->modify.op->arena, mark);
    return ERR_OK;
}

static ErrCode change_document(Target *t, OpCtx *op, Error *err) {
    Modify *m = t->m;
    if (m->request->kind == MODIFY_DELETE) {
        if (UNLIKELY(m->has_fcv)) {
            TRY(check_fcv(t->before, DOC_NONE, err));
            TRY(check_identity(op, t->before, err));
        }
        t->is_modified = true;
        return collection_delete(op, t->coll, t->rid, t->before, &m->scratch, err);
    }
    UpdateResult result;
    TRY(apply_update(m, t->filter, t->before, &result, err));
    t->after = result.after;
    if (result.is_noop && !is_written_anyway(m))
        return ERR_OK;
    if (UNLIKELY(m->has_fcv))
        TRY(check_fcv(t->before, t->after, err));
    TRY(check_owner(t->access, t->after, err));
    t->is_modified = true;
    return update_is_replacement(m->program)
               ? collection_replace(op, t->coll, t->rid, t->before, t->after, &m->scratch, err)
               : collection_update_by(op, t->coll, t->rid, t->before, t->after, m->program,
                                      &m->scratch, err);
}

static void note_outcome(Modify *m, const Target *t) {
    m->is_target_lost |= t->is_gone;
    if (t->is_gone)
        return;
    m->outcome->matched++;
    m->outcome->modified += t->is_modified;
    m->op->metrics.docs_matched++;
    m->op->metrics.docs_modified += t->is_modified && m->request->kind == MODIFY_UPDATE;
    if (m->request->image == IMAGE_BEFORE)
        m->outcome->image = t->before;
    if (m->request->image == IMAGE_AFTER)
        m->outcome->image = t->after;
}

static ErrCode check_told(const ModifyRequest *request, Doc doc, Error *err) {
    size_t size = elem_value_size(doc_get_lit(doc, "_id"));
    if (request->image == IMAGE_AFTER)
        size += doc_size(doc);
    if (request->upsert_told_bytes_max == NULL || size <= *request->upsert_told_bytes_max)
        return ERR_OK;
    return error_set(err, ERR_BSON_OBJECT_TOO_LARGE,
                     "the reply to the upsert would have to tell %zu bytes, which is more than the "
                     "%zu bytes left in it",
                     size, *request->upsert_told_bytes_max);
}

static ErrCode upsert(Modify *m, Error *err) {
    OpCtx *op = m->op;
    Arena *arena = &op->arena;
    bool is_supplied = doc_is_present(m->request->supplied);
    Doc doc;
    TRY(update_upsert_base(m->upsert_filter, is_supplied || update_is_replacement(m->program),
                           arena, &doc, err));
    if (is_supplied) {
        TRY(doc_merge(doc, m->request->supplied, arena, &doc, err));
    } else {
        UpdateApplyContext ctx = {.positional_index = -1,
                                  .is_insert = true,
                                  .now_ms = m->now_ms,
                                  .next_ts = op->mode.is_empty_ts_kept ? NULL : service_next_ts,
                                  .next_ts_arg = op->service};
        UpdateResult result;
        TRY(update_apply(m->program, doc, &ctx, arena, &result, err));
        doc = result.after;
    }
    CLEANUP(op_mode_restore) OpModeScope scope = op_mode_scope(op);
    op->mode.is_empty_ts_kept = true; /* a replacement has been given its timestamps */
    TRY(document_prepare(op, doc, arena, &doc, err));
    TRY(check_told(m->request, doc, err));
    TRY(op_hang(op, FP_HANG_BEFORE_UPSERT_INSERTS, m->ns->text, err));
    for (;;) {
        CLEANUP(access_done) CollAccess access = {0};
        TRY(access_write_owned(op, m->ns, LOCK_IX, &access, err));
        if (access.coll == NULL) {
            access_done(&access);
            TRY(ddl_ensure_collection(op, m->ns, err));
            continue;
        }
        TRY(check_owner(&access, doc, err));
        TRY(collection_insert_unit(op, access.coll, &doc, 1, &m->scratch, err));
        break;
    }
    m->outcome->is_upserted = true;
    m->outcome->upserted_id = elem_copy(doc_get_lit(doc, "_id"), arena);
    if (m->request->image == IMAGE_AFTER)
        m->outcome->image = doc;
    return ERR_OK;
}
