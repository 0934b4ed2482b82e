/*
 * build.c - turns a candidate into its stages.
 *
 * A scan that finds exactly what the filter requires needs no filter after it. Conditions on
 * indexed fields are checked on the keys, before documents are fetched. If the keys contain
 * everything that is needed, documents are not fetched at all.
 */
#include <string.h>

#include "query/plan/planner_internal.h"

static uint32_t fields_of_filter(const MatchExpr *filter, const IndexDesc *index);
static uint32_t fields_of_paths(const PathSet *paths, const IndexDesc *index);
static bool has_ownership_paths(const Planning *p, const IndexDesc *index);
static const MatchExpr *part_on_keys(const Planning *p, const IndexPath *path,
                                     uint32_t *ret_fields);
static PlanStage *narrow(Planning *p, PlanStage *stage);
static PlanStage *build_single(Planning *p, const IndexPath *path);
static PlanStage *build_several(Planning *p, const Candidate *candidate);

enum {
    FIELDS_UNKNOWN = 0, /* of fields_of_*: not contained in the key */
};

PlanStage *build_access(Planning *p, const Candidate *candidate) {
    for (uint32_t i = 0; i < candidate->path_count; i++) {
        const IndexDesc *index = candidate->paths[i].index;
        IndexState *state = index->whole != NULL ? index->whole->state : index->state;
        atomic_fetch_add_explicit(&state->access_count, i == 0 || candidate->is_union,
                                  memory_order_relaxed);
    }
    return build_owned(p, candidate->path_count == 1 && !candidate->is_union
                              ? build_single(p, &candidate->paths[0])
                              : build_several(p, candidate));
}

PlanStage *build_owned(const Planning *p, PlanStage *stage) {
    return p->access->is_filtered ? stage_ownership(p->exec, stage) : stage;
}

PlanStage *build_sorted(Planning *p, PlanStage *stage, bool is_sorted) {
    if (is_sorted)
        return stage;
    const QuerySpec *spec = p->spec;
    SortOptions options = {.pattern = p->sort,
                           .collator = p->collator,
                           .memory_bytes = spec->sort_memory_bytes,
                           .spill_dir = spec->spill_dir};
    if (spec->limit > 0 && spec->limit < INT64_MAX - spec->skip)
        options.limit = spec->limit + spec->skip;
    /* With a limit few documents are kept; without one it pays to keep only the needed fields of
     * each. */
    if (options.limit == 0)
        stage = narrow(p, stage);
    return stage_sort(p->exec, stage, &options);
}

/* Projects each document to the needed paths. */
static PlanStage *narrow(Planning *p, PlanStage *stage) {
    Projection *projection =
        stage_is_covering(stage) ? NULL : project_only(&p->needed, &p->exec->arena);
    if (projection == NULL)
        return stage;
    return stage_project(p->exec, stage, projection, /* filter= */ NULL, p->spec->now_ms);
}

bool stage_is_covering(const PlanStage *stage) {
    return stage_has(stage, "IXSCAN") && !stage_has(stage, "FETCH");
}

PlanStage *build_shape(Planning *p, PlanStage *stage) {
    const QuerySpec *spec = p->spec;
    if (spec->skip > 0)
        stage = stage_skip(p->exec, stage, spec->skip);
    if (spec->limit > 0)
        stage = stage_limit(p->exec, stage, spec->limit);
    PlanStage *keys = NULL;
    if (spec->is_sort_key_wanted && p->sort != NULL && p->sort->count > 0)
        stage = keys = stage_take_sort_key(p->exec, stage, p->sort, p->collator);
    if (p->projection != NULL)
        stage = stage_project(p->exec, stage, p->projection, p->filter, spec->now_ms);
    /* returnKey returns keys and nothing else. */
    if (spec->is_show_record_id && !spec->is_return_key)
        stage = stage_show_record_id(p->exec, stage);
    if (keys != NULL)
        stage = stage_put_sort_key(p->exec, stage, keys);
    return stage;
}

/* ---- one index ---- */

static PlanStage *build_single(Planning *p, const IndexPath *path) {
    IndexDesc *index = path->index;
    IndexScanOptions options = {
        .index = index, .bounds = &path->bounds, .is_forward = path->is_forward};
    bool is_exact = p->filter == NULL || path->bounds.is_exact;
    bool is_multikey = index_is_multikey(index);
    /* A count: neither documents nor key values are needed. Not on a multikey index, where one
     * document has several keys. */
    if (!p->needed.is_all && p->needed.count == 0 && is_exact && !is_multikey) {
        options.is_counting = true;
        return stage_index_scan(p->exec, p->coll, &options);
    }
    if (p->spec->is_return_key) {
        options.key_fields = (uint32_t)((UINT64_C(1) << index->field_count) - 1);
        options.is_covering = is_exact && index->collator == NULL && index->whole == NULL &&
                              has_ownership_paths(p, index);
        if (options.is_covering)
            return stage_index_scan(p->exec, p->coll, &options);
        options.key_fields = 0;
    }
    /* Whether everything that is read is in the keys. */
    uint32_t of_filter = is_exact ? 0 : fields_of_filter(p->filter, index);
    uint32_t of_paths = p->needed.is_all ? FIELDS_UNKNOWN : fields_of_paths(&p->needed, index);
    bool is_told = (is_exact || of_filter != FIELDS_UNKNOWN) &&
                   (of_paths != FIELDS_UNKNOWN || (!p->needed.is_all && p->needed.count == 0));
    if (is_told && !is_multikey && index->collator == NULL && (of_filter | of_paths) != 0) {
        options.key_fields = of_filter | of_paths;
        options.is_covering = true;
        options.filter = is_exact ? NULL : p->filter;
        options.is_distinct = p->spec->is_distinct && is_exact && path->is_forward &&
                              of_paths == 1; /* the first field alone */
        PlanStage *scan = stage_index_scan(p->exec, p->coll, &options);
        /* Keys tell the one field and nothing else: a projection is only shown. */
        if (options.is_distinct && p->spec->is_explain)
            scan = stage_project(p->exec, scan, project_only(&p->needed, &p->exec->arena),
                                 /* filter= */ NULL, p->spec->now_ms);
        return scan;
    }
    if (!is_exact && index->collator == NULL)
        options.filter = part_on_keys(p, path, &options.key_fields);
    PlanStage *scan = stage_index_scan(p->exec, p->coll, &options);
    return stage_fetch(p->exec, p->coll, scan, p->filter, is_exact);
}

/* ---- several scans ---- */

static PlanStage *build_several(Planning *p, const Candidate *candidate) {
    PlanStage *first = NULL;
    PlanStage **next = &first;
    bool is_exact =
        !candidate->is_union && (p->filter == NULL || candidate->paths[0].bounds.is_exact);
    for (uint32_t i = 0; i < candidate->path_count; i++) {
        const IndexPath *path = &candidate->paths[i];
        IndexScanOptions options = {
            .index = path->index, .bounds = &path->bounds, .is_forward = path->is_forward};
        PlanStage *scan = stage_index_scan(p->exec, p->coll, &options);
        /* A merge needs the documents for the values to compare. */
        if (candidate->is_merged)
            scan = stage_fetch(p->exec, p->coll, scan, p->filter, is_exact);
        *next = scan;
        next = &scan->sibling;
    }
    if (candidate->is_merged)
        return stage_merge(p->exec, first, p->sort, p->collator);
    return stage_fetch(p->exec, p->coll, stage_union(p->exec, first), p->filter,
                       /* is_exact= */ false);
}

/* ---- what keys tell ---- */

/* The field of the index with this path, if its keys hold the value whole; -1: none. */
static int find_field(const IndexDesc *index, Str path) {
    if (index->whole != NULL)
        return -1; /* its keys do not distinguish a document from its parts */
    for (uint32_t f = 0; f < index->field_count; f++) {
        if (!str_is(path, index->fields[f].path))
            continue;
        if (index_multikey_paths(index, f) != 0 || index_field_is_hashed(index, f))
            return -1;
        for (uint32_t part = 0; part < index->fields[f].part_count; part++)
            if (index->fields[f].parts[part].size == 0 ||
                (index->fields[f].parts[part].data[0] >= '0' &&
                 index->fields[f].parts[part].data[0] <= '9'))
                return -1; /* may mean a position in an array */
        return (int)f;
    }
    return -1;
}

/* Whether its keys contain the paths that decide ownership. */
static bool has_ownership_paths(const Planning *p, const IndexDesc *index) {
    for (uint32_t i = 0; p->access->is_filtered && i < ACCESS_POLICIES_MAX; i++) {
        const OwnershipFilter *filter = p->access->filters[i];
        for (uint32_t j = 0; filter != NULL && j < filter->path_count; j++)
            if (find_field(index, filter->paths[j]) < 0)
                return false;
    }
    return true;
}

static uint32_t fields_of_filter(const MatchExpr *filter, const IndexDesc *index) {
    if (filter->kind == MATCH_EXPR)
        return FIELDS_UNKNOWN;
    if (filter->kind >= MATCH_EQ) {
        int field = find_field(index, filter->path.dotted);
        return field < 0 ? FIELDS_UNKNOWN : 1u << field;
    }
    uint32_t fields = 0;
    for (uint32_t i = 0; i < filter->child_count; i++) {
        uint32_t below = fields_of_filter(filter->children[i], index);
        if (below == FIELDS_UNKNOWN)
            return FIELDS_UNKNOWN;
        fields |= below;
    }
    return fields;
}

static uint32_t fields_of_paths(const PathSet *paths, const IndexDesc *index) {
    uint32_t fields = 0;
    for (uint32_t i = 0; i < paths->count; i++) {
        int field = find_field(index, paths->paths[i]);
        if (field < 0)
            return FIELDS_UNKNOWN;
        fields |= 1u << field;
    }
    return fields;
}

/* Whether the bounds already guarantee this condition. */
static bool is_settled(const MatchExpr *expr, uint32_t fields, const IndexBounds *bounds) {
    uint32_t bounded = bounds->point_fields + bounds->has_range_field;
    return expr->kind >= MATCH_EQ && expr->kind <= MATCH_IN && fields < 1u << bounded;
}

/* The conditions that can be checked on keys, without those that the bounds guarantee. */
static const MatchExpr *part_on_keys(const Planning *p, const IndexPath *path,
                                     uint32_t *ret_fields) {
    *ret_fields = 0;
    MatchExpr *part = ARENA_NEW(&p->exec->arena, MatchExpr);
    *part = (MatchExpr){.kind = MATCH_AND};
    bool is_and = p->filter->kind == MATCH_AND;
    uint32_t count = is_and ? p->filter->child_count : 1;
    part->children = ARENA_ARRAY(&p->exec->arena, MatchExpr *, count);
    for (uint32_t i = 0; i < count; i++) {
        MatchExpr *child = is_and ? p->filter->children[i] : p->filter;
        uint32_t fields = fields_of_filter(child, path->index);
        if (fields == FIELDS_UNKNOWN || is_settled(child, fields, &path->bounds))
            continue;
        part->children[part->child_count++] = child;
        *ret_fields |= fields;
    }
    if (part->child_count < 2)
        return part->child_count == 1 ? part->children[0] : NULL;
    return part;
}
