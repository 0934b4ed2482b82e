/*
 * candidates.c - which indexes could find the documents of a query, and how.
 *
 * An index is a candidate if the filter restricts its first field, or if it provides the requested
 * order. An $or whose branches all have an index is a candidate, too. A list of values in front of
 * the fields of the order becomes several scans that are merged.
 */
#include <stdlib.h>
#include <string.h>

#include "query/interval/predicates.h"
#include "query/plan/index_filters.h"
#include "query/plan/planner_internal.h"

static bool delivers_sort(const Planning *p, const IndexPath *path, uint32_t fixed_fields,
                          bool *ret_is_forward);
static bool path_delivers_sort(const Planning *p, IndexPath *path);
static bool split_for_sort(Planning *p, Candidate *candidate);
static int rank_of(const Planning *p, const Candidate *candidate);
static const MatchExpr *find_or(const MatchExpr *filter);
static bool branch_path(Planning *p, const MatchExpr *branch, IndexPath *ret_path);

bool index_is_usable(const IndexDesc *index) {
    return index->store != NULL && index->is_ready && !index->is_hidden;
}

bool index_is_allowed(const Planning *p, const IndexDesc *index) {
    return index_is_usable(index) &&
           (LIKELY(!p->has_index_filter) || index_filter_allows(p->allowed, index));
}

bool is_null_told(const Planning *p) {
    if (p->needed.is_all || p->needed.count > 1)
        return false;
    return p->needed.count == 0 || str_is(p->needed.paths[0], "_id");
}

bool candidate_for_index(Planning *p, IndexDesc *index, bool is_told, Candidate *ret_candidate) {
    Arena *arena = &p->exec->arena;
    IndexPath *path = ARENA_NEW(arena, IndexPath);
    *path = (IndexPath){.index = index, .is_forward = true};
    *ret_candidate = (Candidate){.paths = path, .path_count = 1};
    bool is_bounded =
        bounds_for_index(p->filter, index, p->collator, is_null_told(p), arena, &path->bounds);
    if (!is_bounded && index->kind == INDEX_KIND_WILDCARD &&
        (!is_told || index->special_field != WILDCARD_FIELD_NONE))
        return false; /* it lacks documents without the path */
    if (!is_bounded) {
        /* Without a restriction an index is only useful for its order, and only if it contains
         * every document. */
        if (!is_told && (p->sort == NULL || bounds_may_miss_documents(p->filter, index)))
            return false;
        bounds_all(index, p->filter, arena, &path->bounds);
    }
    ret_candidate->is_sorted = path_delivers_sort(p, path);
    if (!ret_candidate->is_sorted && is_bounded)
        split_for_sort(p, ret_candidate);
    if (!is_bounded && !ret_candidate->is_sorted && !is_told)
        return false;
    ret_candidate->rank = rank_of(p, ret_candidate);
    return true;
}

bool candidates_are_many(const Planning *p) {
    uint32_t count = find_or(p->filter) != NULL;
    for (uint32_t i = 0; i < p->coll->index_count && count < 2; i++) {
        const IndexDesc *index = p->coll->indexes[i];
        if (!index_is_allowed(p, index))
            continue;
        if (index->kind == INDEX_KIND_WILDCARD) {
            Str paths[WILDCARD_VIEWS_MAX];
            count += wildcard_paths(index, p->filter, &p->exec->arena, paths);
            continue;
        }
        bool is_first_sorted = p->sort != NULL && p->sort->count > 0 &&
                               str_is(p->sort->parts[0].path.dotted, index->fields[0].path);
        count += is_first_sorted || bounds_is_relevant(p->filter, index, p->collator);
    }
    return count >= 2;
}

/* Has the filter a condition on the first field? */
static bool is_asked_for(const Planning *p, const IndexDesc *index) {
    FieldPredicates found = {.count = 0};
    predicates_collect(p->filter, str_from(index->fields[0].path), &found);
    return found.count > 0;
}

ErrCode candidates_for_wildcard(Planning *p, IndexDesc *index, bool is_told,
                                Candidate *ret_candidates, uint32_t *ret_count, Error *err) {
    IndexDesc *views[WILDCARD_VIEWS_MAX];
    uint32_t view_count;
    *ret_count = 0;
    TRY(wildcard_views(p->access->op, index, p->filter, &p->exec->arena, views, &view_count, err));
    for (uint32_t i = 0; i < view_count; i++)
        if (candidate_for_index(p, views[i], is_told && is_asked_for(p, views[i]),
                                &ret_candidates[*ret_count]))
            ++*ret_count;
    return ERR_OK;
}

static int find_field(const IndexDesc *index, Str path) {
    for (uint32_t f = 0; f < index->field_count; f++)
        if (str_is(path, index->fields[f].path))
            return (int)f;
    return -1;
}

static bool is_single_point(const Planning *p, const Intervals *list) {
    return list->count == 1 && interval_is_point(&list->rows[0], p->collator);
}

/* Is the first key with a value of field number `field`, all fields before it being fixed, the one
 * of the document that comes first? */
static bool is_first_by_sort(const Planning *p, const IndexPath *path, uint32_t field) {
    const SortPattern *sort = p->spec->distinct_sort;
    if (sort == NULL || is_single_point(p, &path->bounds.fields[field]))
        return true;
    for (uint32_t s = 0; s < sort->count; s++) {
        int at = find_field(path->index, sort->parts[s].path.dotted);
        if (at >= (int)field)
            return at == (int)field;
    }
    return false;
}

static bool distinct_by_index(Planning *p, IndexDesc *index, Candidate *ret_candidate) {
    int field = find_field(index, p->spec->distinct_path);
    if (!index_is_allowed(p, index) || index->kind == INDEX_KIND_WILDCARD || field < 0 ||
        index_field_is_hashed(index, (uint32_t)field) || index->collator != p->collator)
        return false;
    /* A value may be left out that only documents have which are met by another one. */
    bool is_of_elements = p->spec->is_distinct_of_elements;
    if (index_multikey_paths(index, (uint32_t)field) != 0 && (!is_of_elements || p->filter != NULL))
        return false;
    if (index->partial_filter != NULL || (index->is_sparse && !is_of_elements))
        return false;
    if (p->spec->is_distinct_sort_reversed && index_is_multikey(index))
        return false;
    if (!candidate_for_index(p, index, /* is_told= */ true, ret_candidate) ||
        ret_candidate->path_count != 1)
        return false;
    const IndexPath *path = &ret_candidate->paths[0];
    if (path->bounds.rest != NULL || !ret_candidate->is_sorted)
        return false;
    for (int f = 0; f < field; f++)
        if (!is_single_point(p, &path->bounds.fields[f]))
            return false;
    ret_candidate->distinct_fields = (uint32_t)field + 1;
    return is_first_by_sort(p, path, (uint32_t)field);
}

bool candidate_for_distinct(Planning *p, const IndexDesc *hinted, Candidate *ret_candidate) {
    if (p->spec->distinct_path.size == 0)
        return false;
    /* The key that is met first may be of a document that the node does not own, unless that is the
     * same for all that have the value. */
    bool is_alone = !p->needed.is_all && p->needed.count == 1 &&
                    str_equal(p->needed.paths[0], p->spec->distinct_path);
    if (p->access->is_filtered && !is_alone)
        return false;
    const SortPattern *sort = p->sort;
    p->sort = p->spec->distinct_sort;
    bool is_found = false;
    for (uint32_t i = 0; i < p->coll->index_count; i++) {
        Candidate candidate;
        if ((hinted == NULL || hinted == p->coll->indexes[i]) &&
            distinct_by_index(p, p->coll->indexes[i], &candidate) &&
            (!is_found || candidate.rank > ret_candidate->rank)) {
            *ret_candidate = candidate;
            is_found = true;
        }
    }
    p->sort = sort;
    return is_found;
}

static int compare_ranks(const void *a, const void *b) {
    return ((const Candidate *)b)->rank - ((const Candidate *)a)->rank;
}

ErrCode candidates_find(Planning *p, Error *err) {
    if (p->candidates == NULL)
        p->candidates = ARENA_ARRAY(&p->exec->arena, Candidate, CANDIDATES_MAX);
    p->candidate_count = 0;
    for (uint32_t i = 0; i < p->coll->index_count; i++) {
        IndexDesc *index = p->coll->indexes[i];
        if (index->kind == INDEX_KIND_WILDCARD) {
            uint32_t count = 0;
            if (p->candidate_count < CANDIDATES_MAX - 1 - WILDCARD_VIEWS_MAX &&
                index_is_allowed(p, index))
                TRY(candidates_for_wildcard(p, index, /* is_told= */ false,
                                            &p->candidates[p->candidate_count], &count, err));
            p->candidate_count += count;
            continue;
        }
        if (p->candidate_count < CANDIDATES_MAX - 1 && index_is_allowed(p, index) &&
            candidate_for_index(p, index, /* is_told= */ false, &p->candidates[p->candidate_count]))
            p->candidate_count++;
    }
    if (candidate_for_or(p, &p->candidates[p->candidate_count]))
        p->candidate_count++;
    qsort(p->candidates, p->candidate_count, sizeof(Candidate), compare_ranks);
    /* The whole key of a unique index: one document at most. Nothing can be better if documents are
     * needed at all, so the trial is skipped. */
    for (uint32_t i = 0; p->needed.is_all && i < p->candidate_count; i++) {
        const IndexPath *path = &p->candidates[i].paths[0];
        if (p->candidates[i].path_count == 1 && path->index->is_unique &&
            path->bounds.range_count <= 1 &&
            path->bounds.point_fields == path->index->field_count) {
            p->candidates[0] = p->candidates[i];
            p->candidate_count = 1;
        }
    }
    return ERR_OK;
}

/* A heuristic for where there is no trial: equalities, then a range, then saving the sort. Of two
 * equal ones the shorter index has fewer bytes to read. */
static int rank_of(const Planning *p, const Candidate *candidate) {
    const IndexPath *path = &candidate->paths[0];
    int rank = 10000 * (int)path->bounds.point_fields + 5000 * path->bounds.has_range_field;
    rank += p->sort != NULL && candidate->is_sorted ? 2000 : 0;
    return rank - (int)path->index->field_count;
}

/* ---- order ---- */

/* Has the field one value in all documents that match, though not all fields before it have? A text
 * that is one for the index may be several for the query. */
static bool is_fixed_behind(const Planning *p, const IndexPath *path, uint32_t field) {
    const Intervals *list = &path->bounds.fields[field];
    return index_multikey_paths(path->index, field) == 0 && is_single_point(p, list) &&
           (path->index->collator == p->collator || intervals_are_without_text(list));
}

/* Is the first key of each document that a scan meets the one that a sort goes by? That of an array
 * is its smallest or largest element, so none may be left out; conditions on another field of the
 * same array would leave some out, too. */
static bool begins_with_sort_keys(const IndexPath *path) {
    if (path->index->whole != NULL)
        return false;
    for (uint32_t f = 0; f < path->index->field_count; f++)
        if (index_multikey_paths(path->index, f) != 0 && !path->bounds.fields[f].is_all)
            return false;
    return true;
}

/* Fields fixed to one value may be left out of the sort; the rest must follow the index, all in one
 * direction or all in the other. */
static bool delivers_sort(const Planning *p, const IndexPath *path, uint32_t fixed_fields,
                          bool *ret_is_forward) {
    const IndexDesc *index = path->index;
    const SortPattern *sort = p->sort;
    *ret_is_forward = true;
    if (sort == NULL || sort->natural_direction != 0)
        return true;
    /* Outside of one path a wildcard index also contains the array marks, at a position of their
     * own. */
    if (index->whole != NULL && fixed_fields <= index->special_field)
        return false;
    uint32_t at = 0;
    bool is_direction_known = false;
    for (uint32_t s = 0; s < sort->count; s++) {
        const SortPart *part = &sort->parts[s];
        int field = find_field(index, part->path.dotted);
        if (field >= 0 && is_fixed_behind(p, path, (uint32_t)field))
            continue;
        while (at < index->field_count && !str_is(part->path.dotted, index->fields[at].path) &&
               (at < fixed_fields || is_fixed_behind(p, path, at)))
            at++;
        if (at == index->field_count || !str_is(part->path.dotted, index->fields[at].path))
            return false;
        if (index_field_is_hashed(index, at) ||
            (index_multikey_paths(index, at) != 0 && !begins_with_sort_keys(path)))
            return false;
        if (index->collator != p->collator && !intervals_are_without_text(&path->bounds.fields[at]))
            return false;
        bool is_forward = part->is_descending == index->fields[at].is_descending;
        if (at >= fixed_fields) {
            if (is_direction_known && is_forward != *ret_is_forward)
                return false;
            *ret_is_forward = is_forward;
            is_direction_known = true;
        }
        at++;
    }
    return true;
}

/* Also sets the direction. Several points before the fields of the order destroy it. */
static bool path_delivers_sort(const Planning *p, IndexPath *path) {
    const IndexBounds *bounds = &path->bounds;
    bool is_sorted = delivers_sort(p, path, bounds->has_single_points ? bounds->point_fields : 0,
                                   &path->is_forward) &&
                     (p->sort == NULL || bounds->has_single_points);
    if (!is_sorted || p->is_order_unseen)
        path->is_forward = true;
    return is_sorted;
}

/* The intervals of one of the scans that a list of points is split into: one point per field, the
 * last field's changing fastest. */
static Intervals *fields_of_scan(Planning *p, const IndexPath *whole, uint64_t scan) {
    const IndexBounds *bounds = &whole->bounds;
    uint32_t count = whole->index->field_count;
    Intervals *fields = ARENA_ARRAY(&p->exec->arena, Intervals, count);
    memcpy(fields, bounds->fields, count * sizeof(*fields));
    for (uint32_t f = bounds->point_fields; f-- > 0;) {
        const Intervals *points = &bounds->fields[f];
        uint32_t at = (uint32_t)(scan % points->count);
        scan /= points->count;
        fields[f].rows =
            &points->rows[whole->index->fields[f].is_descending ? points->count - 1 - at : at];
        fields[f].count = 1;
    }
    return fields;
}

/* {a: {$in: [1, 2]}} sorted by b, on an index of a and b: a scan for each value of a provides the
 * order of b, and merging keeps it. That avoids a sort of the whole result before the first row. */
static bool split_for_sort(Planning *p, Candidate *candidate) {
    IndexPath whole = candidate->paths[0];
    IndexBounds *bounds = &whole.bounds;
    if (p->sort == NULL || p->is_order_unseen || bounds->point_fields == 0 ||
        index_is_multikey(whole.index))
        return false;
    uint64_t scans = 1;
    for (uint32_t f = 0; f < bounds->point_fields; f++)
        scans *= bounds->fields[f].count;
    uint32_t ranges_per_scan = scans > 0 ? (uint32_t)(bounds->range_count / scans) : 0;
    if (scans < 2 || scans > MERGED_SCANS_MAX || ranges_per_scan == 0 ||
        !delivers_sort(p, &whole, bounds->point_fields, &whole.is_forward))
        return false;
    IndexPath *paths = ARENA_ARRAY(&p->exec->arena, IndexPath, scans);
    for (uint64_t i = 0; i < scans; i++) {
        paths[i] = whole;
        paths[i].bounds.fields = fields_of_scan(p, &whole, i);
        paths[i].bounds.ranges = bounds->ranges + i * ranges_per_scan;
        paths[i].bounds.range_count = ranges_per_scan;
    }
    candidate->paths = paths;
    candidate->path_count = (uint32_t)scans;
    candidate->is_merged = candidate->is_sorted = true;
    return true;
}

/* ---- $or ---- */

/* The $or that every matching document satisfies. */
static const MatchExpr *find_or(const MatchExpr *filter) {
    if (filter == NULL || filter->kind == MATCH_OR)
        return filter;
    if (filter->kind == MATCH_AND)
        for (uint32_t i = 0; i < filter->child_count; i++)
            if (filter->children[i]->kind == MATCH_OR)
                return filter->children[i];
    return NULL;
}

bool candidate_for_or(Planning *p, Candidate *ret_candidate) {
    const MatchExpr * or = find_or(p->filter);
    if (or == NULL || or->child_count == 0 || or->child_count > UNION_BRANCHES_MAX)
        return false;
    *ret_candidate = (Candidate){.paths = ARENA_ARRAY(&p->exec->arena, IndexPath, or->child_count),
                                 .path_count = or->child_count,
                                 .is_union = true,
                                 .is_sorted = p->sort == NULL || p->is_order_unseen,
                                 .is_merged = p->sort != NULL && !p->is_order_unseen &&
                                              p->sort->natural_direction == 0};
    for (uint32_t i = 0; i < or->child_count; i++) {
        IndexPath *path = &ret_candidate->paths[i];
        if (!branch_path(p, or->children[i], path))
            return false;
        ret_candidate->is_merged &= path_delivers_sort(p, path);
    }
    ret_candidate->is_sorted |= ret_candidate->is_merged;
    ret_candidate->rank = rank_of(p, ret_candidate);
    return true;
}

static void try_branch(Planning *p, const MatchExpr *branch, IndexDesc *index, int *best,
                       IndexPath *best_path) {
    IndexPath path = {.index = index, .is_forward = true};
    if (!bounds_for_index(branch, index, p->collator, /* is_null_told= */ false, &p->exec->arena,
                          &path.bounds))
        return;
    Candidate alone = {.paths = &path, .path_count = 1};
    alone.is_sorted = path_delivers_sort(p, &path);
    int rank = rank_of(p, &alone) + 100;
    if (rank > *best) {
        *best = rank;
        *best_path = path;
    }
}

/* The best index for one branch, by rules: a trial per branch would multiply the candidates. */
static bool branch_path(Planning *p, const MatchExpr *branch, IndexPath *ret_path) {
    int best = -1;
    for (uint32_t i = 0; i < p->coll->index_count; i++) {
        IndexDesc *index = p->coll->indexes[i];
        if (!index_is_allowed(p, index))
            continue;
        if (index->kind != INDEX_KIND_WILDCARD) {
            try_branch(p, branch, index, &best, ret_path);
            continue;
        }
        /* An index that cannot be read is left out; the execution will report the error. */
        CLEANUP(error_reset) Error ignored = {0};
        IndexDesc *views[WILDCARD_VIEWS_MAX];
        uint32_t count;
        if (wildcard_views(p->access->op, index, branch, &p->exec->arena, views, &count,
                           &ignored) == ERR_OK)
            for (uint32_t v = 0; v < count; v++)
                try_branch(p, branch, views[v], &best, ret_path);
    }
    return best >= 0;
}
