#include "query/plan/planner.h"

#include <string.h>

#include "base/alloc.h"
#include "bson/collator.h"
#include "bson/json.h"
#include "index/key_gen.h"
#include "query/expr/expr.h"

typedef struct Planning {
    CollAccess *access;
    const Collection *coll;
    const QuerySpec *spec;
    PlanExecutor *exec;
    MatchExpr *filter;       /* NULL: everything matches */
    const SortPattern *sort; /* NULL: any order */
    ExprParseContext expr;
    ExprMatchHook expr_hook;
    MatchParseContext match;
    const Collator *collator;
} Planning;

typedef struct Candidate {
    IndexDesc *index; /* NULL: none */
    IndexBounds bounds;
    bool is_forward;
    bool is_sorted; /* delivers the sort order */
    int score;
} Candidate;

static ErrCode parse(Planning *p, Error *err);
static ErrCode plan_access(Planning *p, PlanStage **ret_stage, bool *ret_is_sorted, Error *err);
static ErrCode plan_hint(Planning *p, Candidate *ret_best, bool *ret_is_scan, bool *ret_is_forward,
                         Error *err);
static void consider(Planning *p, IndexDesc *index, Candidate *best);
static bool delivers_sort(const Planning *p, const IndexDesc *index, const IndexBounds *bounds,
                          bool *ret_is_forward);
static PlanStage *clustered_scan(Planning *p, bool is_forward);
static ErrCode finish(Planning *p, PlanStage *stage, bool is_sorted, Error *err);

ErrCode plan_query(CollAccess *access, const QuerySpec *spec, PlanExecutor **ret_exec, Error *err) {
    CLEANUP(executor_free_ptr) PlanExecutor *exec = executor_new(&access->ns);
    exec->yield_period_us = spec->yield_period_us;
    exec->is_tailable = spec->is_tailable;
    Planning p = {.access = access, .coll = access->coll, .spec = spec, .exec = exec};
    exec->collator = p.collator = query_collator(spec, p.coll);
    TRY(parse(&p, err));
    exec->filter = p.filter;
    exec->sort = p.sort;
    PlanStage *stage = NULL;
    bool is_sorted = true;
    if (p.coll == NULL) {
        stage = stage_nothing(exec);
    } else {
        exec->has_coll = true;
        exec->uuid = p.coll->uuid;
        TRY(plan_access(&p, &stage, &is_sorted, err));
    }
    exec->root = stage; /* freed with the executor from here on */
    TRY(finish(&p, stage, is_sorted, err));
    executor_attach(exec, access);
    *ret_exec = TAKE_PTR(exec);
    return ERR_OK;
}

static ErrCode parse(Planning *p, Error *err) {
    Arena *arena = &p->exec->arena;
    const QuerySpec *spec = p->spec;
    p->match.collator = p->collator;
    p->expr = (ExprParseContext){.collator = p->collator,
                                 .let_values = doc_is_present(spec->let_values)
                                                   ? doc_copy(spec->let_values, arena)
                                                   : DOC_NONE};
    ExprMatchHook *hook = ARENA_NEW(arena, ExprMatchHook);
    hook->parse = p->expr;
    hook->now_ms = spec->now_ms;
    p->match.expr_hook = expr_match_hook(hook);
    if (doc_is_present(spec->filter) && !doc_is_empty(spec->filter)) {
        TRY(match_parse(spec->filter, &p->match, arena, &p->filter, err));
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
    return ERR_OK;
}

/* Does the _id index, which has the collection's collation, tell values apart as the query does? */
static bool is_id_key(const Planning *p, Elem id) {
    return p->collator == p->coll->options.collator || !type_is_collatable(elem_type(id));
}

/* Bounds compare by bytes: with a collation on either side all keys are looked at. */
static bool has_plain_keys(const Planning *p, const IndexDesc *index) {
    return p->collator == NULL && index->collator == NULL;
}

static char *index_summary(Planning *p, const IndexDesc *index) {
    return arena_printf(&p->exec->arena, "IXSCAN %s",
                        shell_text_of_doc(index->key_pattern, &p->exec->arena));
}

static ErrCode plan_access(Planning *p, PlanStage **ret_stage, bool *ret_is_sorted, Error *err) {
    PlanExecutor *exec = p->exec;
    const Collection *coll = p->coll;
    *ret_is_sorted = p->sort == NULL || p->sort->natural_direction != 0;
    bool is_forward = p->sort == NULL || p->sort->natural_direction >= 0;

    if (p->spec->is_tailable) {
        if (!coll->options.is_capped)
            return error_set(
                err, ERR_BAD_VALUE,
                "error processing query: ns=%s tailable cursor requested on non capped "
                "collection",
                coll->ns.text);
        if (p->sort != NULL && p->sort->natural_direction != 1)
            return error_set(err, ERR_BAD_VALUE,
                             "error processing query: tailable cursors need natural order");
        ScanOptions options = {.filter = p->filter, .is_forward = true, .is_tailable = true};
        exec->summary = "COLLSCAN";
        *ret_stage = stage_collection_scan(exec, coll, &options);
        return ERR_OK;
    }

    Candidate best = {0};
    bool is_scan_told = p->sort != NULL && p->sort->natural_direction != 0;
    if (elem_is_present(p->spec->hint)) {
        TRY(plan_hint(p, &best, &is_scan_told, &is_forward, err));
    } else if (!is_scan_told) {
        Elem id = doc_is_present(p->spec->filter) ? match_find_id_equality(p->spec->filter)
                                                  : ELEM_MISSING;
        if (elem_is_present(id) && is_id_key(p, id) &&
            (collection_id_index(coll) != NULL || coll->options.is_clustered)) {
            exec->summary = "IDHACK";
            *ret_stage = stage_id_lookup(exec, coll, elem_copy(id, &exec->arena), NULL);
            *ret_is_sorted = true; /* one document at most */
            return ERR_OK;
        }
        for (uint32_t i = 0; i < coll->index_count; i++)
            consider(p, coll->indexes[i], &best);
    }
    if (best.index != NULL) {
        exec->summary = index_summary(p, best.index);
        *ret_stage =
            stage_index_scan(exec, coll, best.index, &best.bounds, best.is_forward, p->filter);
        *ret_is_sorted |= best.is_sorted;
        return ERR_OK;
    }
    if (!is_scan_told && coll->options.is_clustered) {
        PlanStage *bounded = clustered_scan(p, is_forward);
        if (bounded != NULL) {
            exec->summary = "CLUSTERED_IXSCAN";
            *ret_stage = bounded;
            return ERR_OK;
        }
    }
    if (p->spec->is_table_scan_refused && !is_scan_told)
        return error_set(err, ERR_NO_QUERY_EXECUTION_PLANS,
                         "error processing query: ns=%s planner returned error :: No indexed plans "
                         "available, and running with 'notablescan'",
                         coll->ns.text);
    ScanOptions options = {.filter = p->filter, .is_forward = is_forward};
    exec->summary = "COLLSCAN";
    *ret_stage = stage_collection_scan(exec, coll, &options);
    return ERR_OK;
}

static IndexDesc *find_hinted(const Collection *coll, Elem hint) {
    for (uint32_t i = 0; i < coll->index_count; i++) {
        IndexDesc *index = coll->indexes[i];
        bool is_named = elem_type(hint) == BT_STRING && str_is(elem_str(hint), index->name);
        bool is_keyed =
            elem_type(hint) == BT_DOC && doc_compare(index->key_pattern, elem_doc(hint), NULL) == 0;
        if ((is_named || is_keyed) && index->store != NULL && index->is_ready && !index->is_hidden)
            return index;
    }
    return NULL;
}

static ErrCode plan_hint(Planning *p, Candidate *ret_best, bool *ret_is_scan, bool *ret_is_forward,
                         Error *err) {
    Elem hint = p->spec->hint;
    if (elem_type(hint) != BT_STRING && elem_type(hint) != BT_DOC)
        return error_set(err, ERR_FAILED_TO_PARSE, "hint must be either a string or nested object");
    if (elem_type(hint) == BT_DOC) {
        if (doc_is_empty(elem_doc(hint))) { /* as if not given */
            for (uint32_t i = 0; i < p->coll->index_count; i++)
                consider(p, p->coll->indexes[i], ret_best);
            return ERR_OK;
        }
        Elem natural = doc_get_lit(elem_doc(hint), "$natural");
        if (elem_is_present(natural)) {
            *ret_is_scan = true;
            *ret_is_forward = elem_as_f64(natural) >= 0;
            return ERR_OK;
        }
    }
    Elem id_key = elem_type(hint) == BT_DOC ? doc_get_lit(elem_doc(hint), "_id") : ELEM_MISSING;
    bool is_clustered_hint = p->coll->options.is_clustered &&
                             ((elem_type(hint) == BT_STRING &&
                               str_is(elem_str(hint), p->coll->options.clustered_name)) ||
                              (elem_is_number(id_key) && doc_count(elem_doc(hint)) == 1));
    if (is_clustered_hint)
        return ERR_OK; /* the scan by record id, bounded if the filter allows */
    IndexDesc *index = find_hinted(p->coll, hint);
    if (index == NULL)
        return error_set(
            err, ERR_BAD_VALUE,
            "error processing query: ns=%s planner returned error :: caused by :: hint "
            "provided does not correspond to an existing index",
            p->coll->ns.text);
    Candidate told = {.index = index, .is_forward = true};
    if (p->filter == NULL || !has_plain_keys(p, index) ||
        !bounds_for_index(p->filter, index, &p->exec->arena, &told.bounds))
        bounds_all(index, &p->exec->arena, &told.bounds);
    told.is_sorted =
        index->collator == p->collator && delivers_sort(p, index, &told.bounds, &told.is_forward);
    *ret_best = told;
    return ERR_OK;
}

static void consider(Planning *p, IndexDesc *index, Candidate *best) {
    if (index->store == NULL || !index->is_ready || index->is_hidden || !has_plain_keys(p, index))
        return;
    Candidate candidate = {.index = index, .is_forward = true};
    bool is_bounded =
        p->filter != NULL && bounds_for_index(p->filter, index, &p->exec->arena, &candidate.bounds);
    if (is_bounded) {
        candidate.score =
            1000 * (int)candidate.bounds.point_fields + 500 * candidate.bounds.has_range_field;
        bool is_exact_key = candidate.bounds.point_fields == index->field_count && index->is_unique;
        candidate.score += 100000 * is_exact_key;
    } else {
        /* Without a restriction an index is only good for its order, and only if it has every
         * document. */
        if (p->sort == NULL || index->is_sparse || index->partial_filter != NULL)
            return;
        bounds_all(index, &p->exec->arena, &candidate.bounds);
    }
    candidate.is_sorted = delivers_sort(p, index, &candidate.bounds, &candidate.is_forward);
    if (!is_bounded && !candidate.is_sorted)
        return;
    candidate.score += 200 * candidate.is_sorted + 1;
    /* Of two equally good ones the shorter index wins: fewer bytes to read. */
    bool is_better =
        candidate.score > best->score || (candidate.score == best->score && best->index != NULL &&
                                          index->field_count < best->index->field_count);
    if (is_better)
        *best = candidate;
}

/* Fields fixed to one value may be left out of the sort; the rest must follow the index, all in one
 * direction or all in the other. Array fields have no single place in the order. */
static bool delivers_sort(const Planning *p, const IndexDesc *index, const IndexBounds *bounds,
                          bool *ret_is_forward) {
    const SortPattern *sort = p->sort;
    *ret_is_forward = true;
    if (sort == NULL || sort->natural_direction != 0)
        return true;
    if (!bounds->has_single_points && bounds->point_fields > 0)
        return false;
    uint32_t at = 0;
    bool is_direction_known = false;
    for (uint32_t s = 0; s < sort->count; s++) {
        const SortPart *part = &sort->parts[s];
        while (at < index->field_count && at < bounds->point_fields &&
               !str_is(part->path.dotted, index->fields[at].path))
            at++;
        if (at == index->field_count || !str_is(part->path.dotted, index->fields[at].path))
            return false;
        if (index_multikey_paths(index, at) != 0)
            return false;
        bool is_fixed = at < bounds->point_fields;
        bool is_forward = part->is_descending == index->fields[at].is_descending;
        if (!is_fixed) {
            if (is_direction_known && is_forward != *ret_is_forward)
                return false;
            *ret_is_forward = is_forward;
            is_direction_known = true;
        }
        at++;
    }
    return true;
}

static PlanStage *clustered_scan(Planning *p, bool is_forward) {
    Arena *arena = &p->exec->arena;
    Intervals intervals;
    if (p->collator != NULL || p->coll->options.collator != NULL ||
        !bounds_for_clustered(p->filter, arena, &intervals))
        return NULL;
    ScanOptions options = {.filter = p->filter, .is_forward = is_forward};
    if (intervals.count == 0)
        return stage_nothing(p->exec);
    /* From the lowest to the highest value; the filter does the rest. */
    KeyBuilder kb;
    key_builder_init_arena(&kb, arena);
    clustered_record_id_of_value(intervals.rows[0].low, NULL, &kb, &options.low);
    options.low.str = arena_memdup(arena, options.low.str, options.low.str_size);
    clustered_record_id_of_value(intervals.rows[intervals.count - 1].high, NULL, &kb,
                                 &options.high);
    options.high.str = arena_memdup(arena, options.high.str, options.high.str_size);
    return stage_collection_scan(p->exec, p->coll, &options);
}

/* What {$meta: ...} can show of a plan. */
static ErrCode check_meta(const Planning *p, uint32_t needed, Error *err) {
    if ((needed >> PROJECT_META_TEXT_SCORE & 1) != 0)
        return error_set(err, (ErrCode)40218,
                         "query requires text score metadata, but it is not available");
    if ((needed >> PROJECT_META_INDEX_KEY & 1) != 0)
        return error_set(err, ERR_NOT_IMPLEMENTED, "$meta 'indexKey' is not supported yet");
    if ((needed >> PROJECT_META_SORT_KEY & 1) == 0)
        return ERR_OK;
    if (p->sort == NULL || p->sort->count == 0)
        return error_set(err, ERR_BAD_VALUE, "cannot use sortKey $meta projection without a sort");
    if (p->collator != NULL)
        return error_set(err, ERR_NOT_IMPLEMENTED,
                         "$meta 'sortKey' is not supported with a collation");
    return ERR_OK;
}

static ErrCode finish(Planning *p, PlanStage *stage, bool is_sorted, Error *err) {
    PlanExecutor *exec = p->exec;
    const QuerySpec *spec = p->spec;
    if (!is_sorted) {
        int64_t keep =
            spec->limit > 0 && spec->limit < INT64_MAX - spec->skip ? spec->limit + spec->skip : 0;
        exec->root = stage =
            stage_sort(exec, stage, p->sort, keep, spec->sort_memory_bytes, spec->spill_dir);
        p->access->op->metrics.has_sort_stage = true;
    }
    if (spec->skip > 0)
        exec->root = stage = stage_skip(exec, stage, spec->skip);
    if (spec->limit > 0)
        exec->root = stage = stage_limit(exec, stage, spec->limit);
    if (doc_is_present(spec->projection) && !doc_is_empty(spec->projection)) {
        ProjectContext ctx = {.syntax = PROJECT_FIND, .expr = &p->expr, .match = &p->match};
        Projection *projection;
        TRY(project_parse(spec->projection, &ctx, &exec->arena, &projection, err));
        TRY(check_meta(p, project_needed_meta(projection), err));
        if (!project_is_identity(projection))
            exec->root = stage_project(exec, stage, projection, p->filter, spec->now_ms);
    }
    return ERR_OK;
}

/* ---- explain ---- */

static void explain_tree(PlanExecutor *exec, const char *outer, DocBuilder *b, const char *field,
                         bool has_stats) {
    if (outer == NULL) {
        stage_explain(exec->root, b, field, has_stats);
        return;
    }
    size_t opened = build_open_doc(b, field);
    build_cstr(b, "stage", outer);
    stage_explain(exec->root, b, "inputStage", has_stats);
    build_close(b, opened);
}

void plan_explain(PlanExecutor *exec, const char *outer, DocBuilder *b) {
    build_cstr(b, "namespace", exec->ns.text);
    build_bool(b, "indexFilterSet", false);
    size_t parsed = build_open_doc(b, "parsedQuery");
    if (exec->filter != NULL)
        match_to_bson(exec->filter, b);
    build_close(b, parsed);
    if (exec->collator != NULL)
        build_doc(b, "collation", exec->collator->spec);
    build_bool(b, "maxIndexedOrSolutionsReached", false);
    build_bool(b, "maxIndexedAndSolutionsReached", false);
    build_bool(b, "maxScansToExplodeReached", false);
    explain_tree(exec, outer, b, "winningPlan", /* has_stats= */ false);
    size_t rejected = build_open_array(b, "rejectedPlans");
    build_close(b, rejected);
}

void plan_explain_stats(PlanExecutor *exec, const char *outer, DocBuilder *b, int64_t returned,
                        int64_t duration_ms) {
    int64_t keys, docs;
    stage_count_all(exec->root, &keys, &docs);
    build_bool(b, "executionSuccess", true);
    build_count(b, "nReturned", returned);
    build_count(b, "executionTimeMillis", duration_ms);
    build_count(b, "totalKeysExamined", keys);
    build_count(b, "totalDocsExamined", docs);
    explain_tree(exec, outer, b, "executionStages", /* has_stats= */ true);
}
