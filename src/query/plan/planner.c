#include "query/plan/planner.h"

#include <string.h>

#include "base/alloc.h"
#include "bson/collator.h"
#include "bson/json.h"
#include "index/key_gen.h"
#include "query/expr/expr.h"
#include "query/plan/index_filters.h"
#include "query/plan/planner_internal.h"

static ErrCode parse(Planning *p, Error *err);
static ErrCode check_hint(const Planning *p, Error *err);
static ErrCode parse_projection(Planning *p, Error *err);
static ErrCode plan_access(Planning *p, PlanStage **ret_stage, Error *err);
static ErrCode plan_tailable(Planning *p, PlanStage **ret_stage, Error *err);
static ErrCode plan_hint(Planning *p, PlanStage **ret_stage, bool *ret_is_planned, Error *err);
static ErrCode plan_by_index(Planning *p, PlanStage **ret_stage, Error *err);
static PlanStage *use(Planning *p, const Candidate *candidate);
static void keep_for_replan(Planning *p, uint64_t works);
static ErrCode plan_scan(Planning *p, bool is_forward, bool is_told, PlanStage **ret_stage,
                         Error *err);
static bool is_resumed(const Planning *p);
static ErrCode resume(Planning *p, ScanOptions *options, Error *err);
static void bound_by_ts(Planning *p, ScanOptions *options);

ErrCode plan_query(CollAccess *access, const QuerySpec *spec, PlanExecutor **ret_exec, Error *err) {
    CLEANUP(executor_free_ptr) PlanExecutor *exec = executor_new(&access->ns);
    exec->yields = spec->yields;
    exec->is_tailable = spec->is_tailable;
    exec->is_profiled = spec->is_shape_wanted;
    exec->is_key_wanted = spec->is_return_key;
    Planning *p = ARENA_NEW(&exec->arena, Planning);
    p->access = access;
    p->coll = access->coll;
    p->spec = spec;
    p->exec = exec;
    exec->collator = p->collator = query_collator(spec, p->coll);
    TRY(parse(p, err));
    exec->filter = p->filter;
    exec->sort = p->sort;
    if (p->coll == NULL) {
        exec->root = stage_nothing(exec);
    } else {
        exec->has_coll = true;
        exec->uuid = p->coll->uuid;
        PlanStage *stage = NULL;
        TRY(plan_access(p, &stage, err));
        exec->root = stage; /* freed with the executor from here on */
    }
    exec->root = build_shape(p, exec->root);
    access->op->metrics.has_sort_stage |= stage_has(exec->root, "SORT");
    executor_attach(exec, access);
    *ret_exec = TAKE_PTR(exec);
    return ERR_OK;
}

ErrCode plan_query_shape(CollAccess *access, const QuerySpec *spec, Arena *arena,
                         PlanShape *ret_shape, Error *err) {
    CLEANUP(executor_free_ptr) PlanExecutor *exec = executor_new(&access->ns);
    Planning p = {.access = access, .coll = access->coll, .spec = spec, .exec = exec};
    p.collator = query_collator(spec, p.coll);
    TRY(parse(&p, err));
    plan_shape_make(access, p.filter, p.sort, p.shown, p.collator, arena, ret_shape);
    return ERR_OK;
}

/* What $expr says by comparisons, said in the query language as well: indexes understand that. */
static void add_comparisons(Planning *p) {
    Arena *arena = &p->exec->arena;
    MatchExpr *added = expr_match_of_comparisons(p->filter, &p->match, arena);
    if (LIKELY(added == NULL))
        return;
    MatchExpr *both = ARENA_NEW(arena, MatchExpr);
    *both = (MatchExpr){.kind = MATCH_AND, .collator = p->collator, .child_count = 2};
    both->children = ARENA_ARRAY(arena, MatchExpr *, 2);
    both->children[0] = p->filter;
    both->children[1] = added;
    p->filter = both;
}

static ErrCode parse(Planning *p, Error *err) {
    Arena *arena = &p->exec->arena;
    const QuerySpec *spec = p->spec;
    p->expr = (ExprParseContext){.let_values = doc_is_present(spec->let_values)
                                                   ? doc_copy(spec->let_values, arena)
                                                   : DOC_NONE,
                                 .cluster_ts = spec->cluster_ts,
                                 .collator = p->collator};
    ExprMatchHook *hook = ARENA_NEW(arena, ExprMatchHook);
    hook->parse = p->expr;
    hook->now_ms = spec->now_ms;
    p->match.expr_hook = expr_match_hook(hook);
    p->match.collator = p->collator;
    if (doc_is_present(spec->filter) && !doc_is_empty(spec->filter)) {
        TRY(match_parse(spec->filter, &p->match, arena, &p->filter, err));
        add_comparisons(p);
        p->filter = match_optimize(p->filter, arena);
        if (p->filter->kind == MATCH_ALWAYS_TRUE ||
            (p->filter->kind == MATCH_AND && p->filter->child_count == 0))
            p->filter = NULL;
    }
    if (doc_is_present(spec->sort) && !doc_is_empty(spec->sort)) {
        SortPattern *sort;
        TRY(sort_pattern_parse(spec->sort, SORT_SYNTAX_FIND, arena, &sort, err));
        p->sort = sort;
    }
    if (spec->parsed_filter != NULL)
        p->filter = spec->parsed_filter;
    if (spec->parsed_sort != NULL)
        p->sort = spec->parsed_sort;
    TRY(check_hint(p, err));
    return parse_projection(p, err);
}

/* {$natural: 1} and {$natural: -1} stand alone, and no index has the natural order. */
static ErrCode check_hint(const Planning *p, Error *err) {
    Elem hint = p->spec->hint;
    if (LIKELY(!elem_is_present(hint)) ||
        (elem_type(hint) == BT_DOC && doc_is_empty(elem_doc(hint))))
        return ERR_OK;
    Elem natural =
        elem_type(hint) == BT_DOC ? doc_get_lit(elem_doc(hint), "$natural") : ELEM_MISSING;
    if (!elem_is_present(natural)) {
        if (p->sort != NULL && p->sort->natural_direction != 0)
            return error_set(err, ERR_BAD_VALUE, "index hint not allowed with $natural sort order");
        return ERR_OK;
    }
    if (doc_count(elem_doc(hint)) != 1)
        return error_set(err, ERR_BAD_VALUE, "$natural hint cannot be combined with other hints");
    double direction = elem_is_number(natural) ? elem_as_f64(natural) : 0;
    if (direction != 1 && direction != -1)
        return error_set(err, ERR_BAD_VALUE, "$natural hint must be 1 or -1");
    if (p->sort != NULL && p->sort->natural_direction != 0 &&
        p->sort->natural_direction != (int)direction)
        return error_set(err, ERR_BAD_VALUE,
                         "$natural hint must be in the same direction as $natural sort order");
    return ERR_OK;
}

/* Which {$meta: ...} a plan can provide. */
static ErrCode check_meta(const Planning *p, uint32_t needed, Error *err) {
    if ((needed >> PROJECT_META_TEXT_SCORE & 1) != 0)
        return error_set(err, (ErrCode)40218,
                         "query requires text score metadata, but it is not available");
    if ((needed >> PROJECT_META_INDEX_KEY & 1) != 0)
        return error_set(err, ERR_NOT_IMPLEMENTED, "$meta 'indexKey' is not supported yet");
    if ((needed >> PROJECT_META_SORT_KEY & 1) == 0)
        return ERR_OK;
    if ((p->sort == NULL || p->sort->count == 0) && p->spec->parsed_projection != NULL)
        return ERR_OK; /* of a pipeline: missing */
    if (p->sort == NULL || p->sort->count == 0)
        return error_set(err, ERR_BAD_VALUE, "cannot use sortKey $meta projection without a sort");
    if (p->collator != NULL)
        return error_set(err, ERR_NOT_IMPLEMENTED,
                         "$meta 'sortKey' is not supported with a collation");
    return ERR_OK;
}

/* The paths that decide ownership count as read by the query. They are copied: a filter may be
 * replaced while the plan lives. */
static void need_ownership_paths(Planning *p) {
    for (uint32_t i = 0; i < ACCESS_POLICIES_MAX; i++) {
        const OwnershipFilter *filter = p->access->filters[i];
        for (uint32_t j = 0; filter != NULL && j < filter->path_count; j++) {
            Str path = filter->paths[j];
            path_set_add(&p->needed,
                         str_from(arena_strndup(&p->exec->arena, path.data, path.size)));
        }
    }
}

/* Also determines which fields are needed: if the keys of an index contain them, documents need not
 * be fetched. */
static ErrCode parse_projection(Planning *p, Error *err) {
    const QuerySpec *spec = p->spec;
    p->needed = path_set(&p->exec->arena);
    bool is_known = spec->is_count;
    if (spec->needed_paths != NULL && !spec->needed_paths->is_all) {
        for (uint32_t i = 0; i < spec->needed_paths->count; i++)
            path_set_add(&p->needed, spec->needed_paths->paths[i]);
        is_known = true;
    }
    if (doc_is_present(spec->projection) && !doc_is_empty(spec->projection)) {
        ProjectContext ctx = {.syntax = PROJECT_FIND, .expr = &p->expr, .match = &p->match};
        Projection *projection;
        TRY(project_parse(spec->projection, &ctx, &p->exec->arena, &projection, err));
        TRY(check_meta(p, project_needed_meta(projection), err));
        if (!project_is_identity(projection))
            p->projection = projection;
        is_known = p->projection != NULL && !project_needs_details(projection) &&
                   project_needed_meta(projection) == 0 &&
                   project_add_paths(projection, &p->needed);
    }
    if (spec->parsed_projection != NULL) {
        p->projection = spec->parsed_projection;
        TRY(check_meta(p, project_needed_meta(p->projection), err));
        is_known =
            project_add_paths(p->projection, &p->needed) && project_needed_meta(p->projection) == 0;
    }
    if (is_known && !spec->is_count) {
        PathSet *shown = ARENA_NEW(&p->exec->arena, PathSet);
        *shown = path_set(&p->exec->arena);
        for (uint32_t i = 0; i < p->needed.count; i++)
            path_set_add(shown, p->needed.paths[i]);
        p->shown = shown;
    }
    if (spec->is_return_key) { /* documents do not show */
        p->needed = path_set(&p->exec->arena);
        is_known = true;
    }
    /* Nobody sees the order of documents of which nothing is read. */
    p->is_order_unseen = is_known && p->needed.count == 0 && spec->limit == 0 && spec->skip == 0 &&
                         !spec->is_sort_key_wanted && !spec->is_return_key;
    /* A separate sort stage reads its fields, too. */
    for (uint32_t i = 0; p->sort != NULL && !p->is_order_unseen && i < p->sort->count; i++)
        path_set_add(&p->needed, p->sort->parts[i].path.dotted);
    if (!is_known || (spec->is_show_record_id && !spec->is_return_key))
        path_set_add_all(&p->needed);
    else if (p->access->is_filtered)
        need_ownership_paths(p);
    return ERR_OK;
}

/* Whether the keys of _id, which have the collection's collation, distinguish values as the query
 * does. */
static bool is_id_key(const Planning *p, Elem id) {
    return p->collator == p->coll->options.collator || !type_is_collatable(elem_type(id));
}

static void find_index_filter(Planning *p) {
    PlanExecutor *exec = p->exec;
    plan_shape_make(p->access, p->filter, p->sort, p->shown, p->collator, &exec->arena,
                    &exec->shape);
    exec->has_shape = true;
    PlanShape given = exec->shape;
    if (UNLIKELY(!p->spec->has_collation && p->collator != NULL)) /* filters inherit none */
        plan_shape_make(p->access, p->filter, p->sort, p->shown, NULL, &exec->arena, &given);
    p->has_index_filter = exec->has_index_filter =
        index_filters_find(p->coll, given.query, &exec->arena, &p->allowed);
}

static ErrCode plan_access(Planning *p, PlanStage **ret_stage, Error *err) {
    const Collection *coll = p->coll;
    if (p->spec->is_tailable && p->spec->is_table_scan_refused)
        return error_set(
            err, ERR_NO_QUERY_EXECUTION_PLANS,
            "error processing query: ns=%s planner returned error :: a tailable cursor "
            "scans its collection, which is forbidden by 'notablescan'",
            p->coll->ns.text);
    if (p->spec->is_tailable)
        return plan_tailable(p, ret_stage, err);
    if (UNLIKELY(index_filters_exist(coll)))
        find_index_filter(p);
    if (elem_is_present(p->spec->hint) && LIKELY(!p->has_index_filter)) {
        bool is_planned;
        TRY(plan_hint(p, ret_stage, &is_planned, err));
        if (is_planned)
            return ERR_OK;
    }
    if (doc_is_present(p->spec->min) || doc_is_present(p->spec->max))
        return error_set(err, (ErrCode)51173, "min/max requires a hint of the index to use");
    if (p->sort != NULL && p->sort->natural_direction != 0)
        return plan_scan(p, p->sort->natural_direction > 0, /* is_told= */ true, ret_stage, err);
    Elem id =
        doc_is_present(p->spec->filter) ? match_find_id_equality(p->spec->filter) : ELEM_MISSING;
    const IndexDesc *id_index = collection_id_index(coll);
    /* By the record id of a clustered collection; explained as the scan that it is. */
    bool has_id_keys = id_index != NULL || (coll->options.is_clustered && !p->spec->is_explain);
    if (elem_is_present(id) && has_id_keys && is_id_key(p, id) && !p->spec->is_return_key &&
        p->spec->skip == 0) {
        p->exec->summary = "IDHACK";
        *ret_stage = build_owned(p, stage_id_lookup(p->exec, coll, elem_copy(id, &p->exec->arena)));
        return ERR_OK; /* one document at most: no sort needed */
    }
    return plan_by_index(p, ret_stage, err);
}

/* For $collStats and serverStatus. */
static void note_scan(Planning *p) {
    if (p->spec->is_explain)
        return;
    bool is_tailable = p->spec->is_tailable;
    atomic_fetch_add_explicit(&p->coll->shared->scans, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&p->coll->shared->tailing_scans, is_tailable, memory_order_relaxed);
    p->access->op->metrics.scans++;
    p->access->op->metrics.tailing_scans += is_tailable;
}

static ErrCode plan_tailable(Planning *p, PlanStage **ret_stage, Error *err) {
    if (!p->coll->options.is_capped)
        return error_set(err, ERR_BAD_VALUE,
                         "error processing query: ns=%s tailable cursor requested on non capped "
                         "collection",
                         p->coll->ns.text);
    if (p->sort != NULL && p->sort->natural_direction != 1)
        return error_set(err, ERR_BAD_VALUE,
                         "error processing query: tailable cursors need natural order");
    ScanOptions options = {.filter = p->filter, .is_forward = true, .is_tailable = true};
    if (ns_is_oplog(&p->coll->ns))
        bound_by_ts(p, &options);
    p->exec->summary = "COLLSCAN";
    note_scan(p);
    *ret_stage = build_owned(p, stage_collection_scan(p->exec, p->coll, &options));
    return ERR_OK;
}

/* ---- hints ---- */

/* *ret_index is NULL when there is none. */
static ErrCode find_hinted(const Collection *coll, Elem hint, IndexDesc **ret_index, Error *err) {
    *ret_index = NULL;
    for (uint32_t i = 0; i < coll->index_count; i++) {
        IndexDesc *index = coll->indexes[i];
        bool is_named = elem_type(hint) == BT_STRING && str_is(elem_str(hint), index->name);
        bool is_keyed =
            elem_type(hint) == BT_DOC && doc_compare(index->key_pattern, elem_doc(hint), NULL) == 0;
        if ((!is_named && !is_keyed) || !index_is_usable(index))
            continue;
        if (*ret_index != NULL)
            return error_set(err, ERR_INDEX_NOT_FOUND,
                             "the hint means several indexes, among them '%s' and '%s': hint by "
                             "name",
                             (*ret_index)->name, index->name);
        *ret_index = index;
    }
    return ERR_OK;
}

static bool has_same_names(Doc a, Doc b) {
    DocIter iter = doc_iter(a), others = doc_iter(b);
    Elem elem, other;
    for (;;) {
        bool has_elem = doc_iter_next(&iter, &elem);
        if (has_elem != doc_iter_next(&others, &other))
            return false;
        if (!has_elem)
            return true;
        if (!str_equal(elem_name_str(elem), elem_name_str(other)))
            return false;
    }
}

/* min and max name the fields of the index, all of them and in order. */
static ErrCode check_min_max(const IndexDesc *index, Doc min, Doc max, Error *err) {
    bool has_min = doc_is_present(min), has_max = doc_is_present(max);
    if (has_min && has_max && !has_same_names(min, max))
        return error_set(err, (ErrCode)51176, "min and max must have the same fields");
    if ((has_min && !has_same_names(min, index->key_pattern)) ||
        (has_max && !has_same_names(max, index->key_pattern)))
        return error_set(err, (ErrCode)51174, "The index chosen is not compatible with min/max");
    return ERR_OK;
}

/* The most restrictive path, chosen by rules: a hint asks for no trial. */
static ErrCode plan_wildcard_hint(Planning *p, IndexDesc *index, PlanStage **ret_stage,
                                  Error *err) {
    if (doc_is_present(p->spec->min) || doc_is_present(p->spec->max))
        return error_set(err, (ErrCode)51174, "The index chosen is not compatible with min/max");
    Candidate candidates[WILDCARD_VIEWS_MAX];
    uint32_t count, best = 0;
    TRY(candidates_for_wildcard(p, index, /* is_told= */ true, candidates, &count, err));
    if (count == 0)
        return error_set(err, ERR_NO_QUERY_EXECUTION_PLANS,
                         "error processing query: ns=%s planner returned error :: caused by :: No "
                         "query solutions: the hinted wildcard index has no path of the filter",
                         p->coll->ns.text);
    for (uint32_t i = 1; i < count; i++)
        if (candidates[i].rank > candidates[best].rank)
            best = i;
    *ret_stage = use(p, &candidates[best]);
    return ERR_OK;
}

static ErrCode plan_hint(Planning *p, PlanStage **ret_stage, bool *ret_is_planned, Error *err) {
    Elem hint = p->spec->hint;
    *ret_is_planned = true;
    if (elem_type(hint) != BT_STRING && elem_type(hint) != BT_DOC)
        return error_set(err, ERR_FAILED_TO_PARSE, "hint must be either a string or nested object");
    if (elem_type(hint) == BT_DOC && doc_is_empty(elem_doc(hint))) { /* treated as absent */
        *ret_is_planned = false;
        return ERR_OK;
    }
    Elem natural =
        elem_type(hint) == BT_DOC ? doc_get_lit(elem_doc(hint), "$natural") : ELEM_MISSING;
    if (elem_is_present(natural)) {
        if (doc_is_present(p->spec->min) || doc_is_present(p->spec->max))
            return error_set(err, ERR_NO_QUERY_EXECUTION_PLANS,
                             "error processing query: ns=%s planner returned error :: caused by :: "
                             "min and max need an index, and the hint is $natural",
                             p->coll->ns.text);
        TRY(plan_scan(p, elem_as_f64(natural) >= 0, /* is_told= */ true, ret_stage, err));
        return ERR_OK;
    }
    if (clustered_is_hinted(p->coll, hint)) /* by record id, bounded if the filter allows */
        return plan_scan(p, true, /* is_told= */ false, ret_stage, err);
    IndexDesc *index;
    TRY(find_hinted(p->coll, hint, &index, err));
    if (index == NULL)
        return error_set(
            err, ERR_BAD_VALUE,
            "error processing query: ns=%s planner returned error :: caused by :: hint "
            "provided does not correspond to an existing index",
            p->coll->ns.text);
    if (index->kind == INDEX_KIND_WILDCARD)
        return plan_wildcard_hint(p, index, ret_stage, err);
    Candidate told;
    if (!candidate_for_distinct(p, index, &told))
        (void)candidate_for_index(p, index, /* is_told= */ true, &told);
    if (doc_is_present(p->spec->min) || doc_is_present(p->spec->max)) {
        TRY(check_min_max(index, p->spec->min, p->spec->max, err));
        IndexBounds *bounds = &told.paths[0].bounds;
        bounds_min_max(index, p->filter, p->spec->min, p->spec->max, &p->exec->arena, bounds);
        if (str_compare(bounds->ranges[0].start, bounds->ranges[0].end) >= 0)
            return error_set(err, (ErrCode)51175, "min does not come before max in the index '%s'",
                             index->name);
    }
    *ret_stage = use(p, &told);
    return ERR_OK;
}

/* ---- indexes ---- */

static bool has_wildcard_path(Planning *p, const IndexDesc *index, Str path) {
    Str paths[WILDCARD_VIEWS_MAX];
    uint32_t count = wildcard_paths(index, p->filter, &p->exec->arena, paths);
    for (uint32_t i = 0; i < count; i++)
        if (str_equal(paths[i], path))
            return true;
    return false;
}

static bool use_cached(Planning *p, const PlanChoice *choice, Candidate *ret_candidate) {
    if (choice->index_ident[0] == '\0')
        return candidate_for_or(p, ret_candidate);
    for (uint32_t i = 0; i < p->coll->index_count; i++) {
        IndexDesc *index = p->coll->indexes[i];
        if (strcmp(index->ident, choice->index_ident) != 0)
            continue;
        if (!index_is_allowed(p, index))
            return false;
        if (index->kind == INDEX_KIND_WILDCARD) {
            /* An index that cannot be asked is met again where all candidates are looked for. */
            CLEANUP(error_reset) Error ignored = {0};
            Str path = str_from(choice->wildcard_path);
            if (!has_wildcard_path(p, index, path) ||
                wildcard_view(p->access->op, index, path, &p->exec->arena, &index, &ignored) !=
                    ERR_OK)
                return false;
        }
        return candidate_for_index(p, index, /* is_told= */ false, ret_candidate);
    }
    return false;
}

static void remember(Planning *p, const PlanShape *shape, const Candidate *best, uint64_t works) {
    PlanChoice choice = {.works = works, .has_index_filter = p->has_index_filter};
    if (!best->is_union) {
        const IndexDesc *index = best->paths[0].index;
        Str path = index->whole != NULL ? wildcard_view_path(index) : STR("");
        if (path.size >= sizeof(choice.wildcard_path))
            return;
        strncpy(choice.index_ident, index->ident, sizeof(choice.index_ident) - 1);
        memcpy(choice.wildcard_path, path.data, path.size);
    }
    PlanOrigin origin = {p->spec->filter, p->spec->sort, p->spec->projection,
                         plan_show_trials(p->exec)};
    plan_cache_put(p->coll, shape, &choice, &origin);
}

static ErrCode plan_by_index(Planning *p, PlanStage **ret_stage, Error *err) {
    PlanExecutor *exec = p->exec;
    Candidate distinct;
    if (candidate_for_distinct(p, /* hinted= */ NULL, &distinct)) {
        *ret_stage = use(p, &distinct);
        return ERR_OK;
    }
    bool is_cacheable = candidates_are_many(p);
    if (is_cacheable || p->spec->is_shape_wanted || p->spec->is_explain) {
        plan_shape_make(p->access, p->filter, p->sort, p->shown, p->collator, &exec->arena,
                        &exec->shape);
        exec->has_shape = true;
        PlanChoice choice;
        Candidate known;
        if (is_cacheable && !p->spec->is_explain &&
            plan_cache_get(p->coll, &exec->shape, &choice) && use_cached(p, &choice, &known)) {
            *ret_stage = use(p, &known);
            keep_for_replan(p, choice.works);
            return ERR_OK;
        }
    }
    TRY(candidates_find(p, err));
    if (p->candidate_count == 0)
        return plan_scan(p, true, /* is_told= */ false, ret_stage, err);
    uint32_t best = 0;
    if (p->candidate_count > 1) {
        uint64_t works;
        TRY(rank_candidates(p, &best, &works, err));
        if (is_cacheable && !p->spec->is_explain)
            remember(p, &exec->shape, &p->candidates[best], works);
    }
    *ret_stage = use(p, &p->candidates[best]);
    return ERR_OK;
}

static void deactivate(const PlanExecutor *exec) {
    plan_cache_deactivate(exec->access->coll, &exec->shape);
}

/* The cached plan has done much more than when it was tried, and found nothing yet: all candidates
 * are tried again. */
static ErrCode replan(PlanExecutor *exec, Error *err) {
    Planning *p = exec->planning;
    OpMetrics *metrics = &exec->access->op->metrics;
    metrics->replan_works_expected = (int64_t)exec->cached_works;
    metrics->replan_works = (int64_t)exec->ticks;
    p->access = exec->access;
    p->coll = exec->access->coll;
    deactivate(exec);
    exec->cached_works = 0;
    executor_set_pause(exec, UINT64_MAX);
    stage_free_all(exec->root);
    exec->root = stage_nothing(exec); /* in case of a failure below */
    TRY(candidates_find(p, err));
    uint32_t best = 0;
    uint64_t works = 0;
    if (p->candidate_count > 1) {
        TRY(rank_candidates(p, &best, &works, err));
        remember(p, &exec->shape, &p->candidates[best], works);
    }
    PlanStage *stage = NULL;
    if (p->candidate_count > 0)
        stage = use(p, &p->candidates[best]);
    else
        TRY(plan_scan(p, true, /* is_told= */ false, &stage, err));
    exec->root = build_shape(p, stage);
    executor_attach(exec, p->access);
    return ERR_OK;
}

/* What the request lent is copied: it may be gone by then. */
static void keep_for_replan(Planning *p, uint64_t works) {
    Arena *arena = &p->exec->arena;
    QuerySpec *spec = ARENA_NEW(arena, QuerySpec);
    *spec = *p->spec;
    if (spec->spill_dir != NULL)
        spec->spill_dir = arena_strdup(arena, spec->spill_dir);
    spec->hint = ELEM_MISSING;
    spec->needed_paths = NULL;
    spec->distinct_path = STR("");
    spec->filter = spec->sort = spec->projection = DOC_NONE; /* parsed by now */
    p->spec = spec;
    p->exec->planning = p;
    p->exec->replan = replan;
    p->exec->forget = deactivate;
    executor_expect_works(p->exec, works);
}

/* Does it read an index from end to end? Where keys are skipped for the sake of distinct values it
 * does not. */
static bool is_unbounded(const Planning *p, const Candidate *candidate) {
    if (candidate->distinct_fields > 0 || doc_is_present(p->spec->min) ||
        doc_is_present(p->spec->max))
        return false;
    for (uint32_t i = 0; i < candidate->path_count; i++)
        if (candidate->paths[i].bounds.point_fields == 0 &&
            !candidate->paths[i].bounds.has_range_field)
            return true;
    return false;
}

/* { a: 1, b: -1 }: directions are integers, however they were given. */
static const char *key_pattern_text(Doc pattern, Arena *arena) {
    DocBuilder b = doc_builder_in_arena(arena);
    DocIter iter = doc_iter(pattern);
    for (Elem part; doc_iter_next(&iter, &part);) {
        if (elem_is_number(part))
            build_i32(&b, elem_name(part), (int32_t)elem_as_i64(part));
        else
            build_elem(&b, part);
    }
    return shell_text_of_doc(doc_builder_end(&b), arena);
}

static PlanStage *use(Planning *p, const Candidate *candidate) {
    p->exec->is_low_priority =
        p->spec->is_index_scan_deprioritized && p->spec->limit == 0 && is_unbounded(p, candidate);
    Arena *arena = &p->exec->arena;
    const char *kind = p->spec->is_count                ? "COUNT_SCAN"
                       : candidate->distinct_fields > 0 ? "DISTINCT_SCAN"
                                                        : "IXSCAN";
    char *summary = NULL;
    for (uint32_t i = 0; i < (candidate->is_union ? candidate->path_count : 1); i++) {
        const char *keys = key_pattern_text(candidate->paths[i].index->key_pattern, arena);
        summary = summary == NULL ? arena_printf(arena, "%s %s", kind, keys)
                                  : arena_printf(arena, "%s, %s %s", summary, kind, keys);
    }
    p->exec->summary = summary;
    return build_sorted(p, build_access(p, candidate), candidate->is_sorted);
}

/* ---- scans ---- */

static ErrCode plan_scan(Planning *p, bool is_forward, bool is_told, PlanStage **ret_stage,
                         Error *err) {
    int direction = p->sort != NULL ? clustered_sort_direction(p) : 0;
    if (!is_told && direction != 0)
        is_forward = direction > 0;
    bool is_sorted =
        p->sort == NULL || p->sort->natural_direction != 0 || direction == (is_forward ? 1 : -1);
    PlanStage *scan = NULL;
    if (p->coll->options.is_clustered && !is_resumed(p))
        TRY(clustered_scan(p, is_forward, &scan, err));
    p->exec->summary = "CLUSTERED_IXSCAN";
    if (scan == NULL) {
        if (p->spec->is_table_scan_refused && !is_told)
            return error_set(err, ERR_NO_QUERY_EXECUTION_PLANS,
                             "error processing query: ns=%s planner returned error :: No indexed "
                             "plans available, and running with 'notablescan'",
                             p->coll->ns.text);
        p->exec->is_low_priority = p->spec->is_scan_deprioritized && p->spec->limit == 0;
        ScanOptions options = {.filter = p->filter,
                               .is_forward = is_forward,
                               .is_gapless = p->coll->options.is_capped && !p->access->is_write};
        if (ns_is_oplog(&p->coll->ns))
            bound_by_ts(p, &options);
        TRY(resume(p, &options, err));
        p->exec->summary = "COLLSCAN";
        note_scan(p);
        scan = stage_collection_scan(p->exec, p->coll, &options);
    }
    *ret_stage = build_sorted(p, build_owned(p, scan), is_sorted);
    return ERR_OK;
}

static bool is_resumed(const Planning *p) {
    return !record_id_is_none(p->spec->start_at) || !record_id_is_none(p->spec->start_after);
}

/* A scan that goes on where another one ended. */
static ErrCode resume(Planning *p, ScanOptions *options, Error *err) {
    RecordId places[] = {p->spec->start_at, p->spec->start_after};
    for (size_t i = 0; i < ARRAY_LEN(places); i++) {
        if (LIKELY(record_id_is_none(places[i])))
            continue;
        if (p->coll->options.is_clustered != (places[i].str != NULL))
            return error_set(err, (ErrCode)7738600,
                             "Malformed resume token: collection \"%s\" has other record ids",
                             p->coll->ns.text);
        if (places[i].str != NULL)
            places[i].str = arena_memdup(&p->exec->arena, places[i].str, places[i].str_size);
        *(i == 0 ? &options->low : &options->after) = places[i];
    }
    return ERR_OK;
}

/* Record ids of the oplog are the timestamps of its entries. */
static void bound_by_ts(Planning *p, ScanOptions *options) {
    Intervals found;
    if (!bounds_for_records(p->filter, STR("ts"), NULL, &p->exec->arena, &found) ||
        found.count == 0)
        return;
    Elem low = found.rows[0].low, high = found.rows[found.count - 1].high;
    if (elem_type(low) == BT_TIMESTAMP && elem_i64(low) > 0)
        options->low = record_id_num(elem_i64(low));
    if (elem_type(high) == BT_TIMESTAMP && elem_i64(high) > 0)
        options->high = record_id_num(elem_i64(high));
}
