/*
 * build.c - turns a candidate into its stages.
 *
 * A scan that finds exactly what the filter requires needs no filter after it. Conditions on
 * indexed fields are checked on the keys, before documents are fetched. If the keys contain
 * everything that is needed, documents are not fetched at all.
 */
#include <string.h>

#include "query/expr/doc_meta.h"
#include "query/plan/planner_internal.h"

static uint32_t fields_of_filter(const Planning *p, const MatchExpr *filter, const IndexPath *path);
static uint32_t fields_of_paths(const PathSet *paths, const IndexPath *path);
static const MatchExpr *split_by_keys(const Planning *p, const IndexPath *path,
                                      const MatchExpr **rest, uint32_t *ret_fields);
static PlanStage *narrow(Planning *p, PlanStage *stage);
static PlanStage *build_single(Planning *p, const IndexPath *path);
static PlanStage *build_number(Planning *p, const IndexPath *path);
static PlanStage *build_distinct(Planning *p, const Candidate *candidate);
static bool has_name_and_text(const IndexPath *path, uint32_t f);
static PlanStage *build_union(Planning *p, const Candidate *candidate);
static PlanStage *build_merge(Planning *p, const Candidate *candidate);

enum {
    FIELDS_UNKNOWN = 0, /* of fields_of_*: not contained in the key */
};

PlanStage *build_access(Planning *p, const Candidate *candidate) {
    for (uint32_t i = 0; i < candidate->path_count; i++)
        if (i == 0 || candidate->is_union)
            index_note_access(candidate->paths[i].index);
    if (candidate->distinct_fields > 0)
        return build_owned(p, build_distinct(p, candidate));
    return build_owned(p, candidate->is_merged  ? build_merge(p, candidate)
                          : candidate->is_union ? build_union(p, candidate)
                                                : build_single(p, &candidate->paths[0]));
}

PlanStage *build_owned(const Planning *p, PlanStage *stage) {
    return p->access->is_filtered ? stage_ownership(p->exec, stage) : stage;
}

PlanStage *build_sorted(Planning *p, PlanStage *stage, bool is_sorted) {
    if (is_sorted || p->is_order_unseen)
        return stage;
    const QuerySpec *spec = p->spec;
    SortOptions options = {.pattern = p->sort,
                           .collator = p->collator,
                           .memory_bytes = spec->sort_memory_bytes,
                           .spill_dir = spec->spill_dir};
    options.keeps_origins = spec->is_show_record_id || p->exec->is_key_wanted ||
                            doc_meta_has(p->exec->needed_meta, DOC_META_RECORD_ID);
    if (spec->limit > 0 && spec->limit <= INT64_MAX - spec->skip)
        options.limit = spec->limit + spec->skip;
    if (spec->sort_limit > 0)
        options.limit = spec->sort_limit;
    /* With a limit few documents are kept; without one it pays to keep only the needed fields of
     * each. */
    if (options.limit == 0)
        stage = narrow(p, stage);
    return stage_sort(p->exec, stage, &options);
}

/* Projects each document to the needed paths. */
static PlanStage *narrow(Planning *p, PlanStage *stage) {
    Projection *projection = stage_is_covering(stage)
                                 ? NULL
                                 : project_only(&p->needed, /* is_deep= */ false, &p->exec->arena);
    if (projection == NULL)
        return stage;
    return stage_project(p->exec, stage, projection, /* filter= */ NULL, p->spec->now_ms);
}

bool stage_is_covering(const PlanStage *stage) {
    return stage_has(stage, "IXSCAN") && !stage_has(stage, "FETCH");
}

/* Who reads the documents looks at these paths only; explain shows that as a projection. */
static PlanStage *show_needed(Planning *p, PlanStage *stage, const PathSet *paths) {
    Projection *shown =
        p->spec->is_explain ? project_only(paths, /* is_deep= */ true, &p->exec->arena) : NULL;
    if (shown == NULL)
        return stage;
    return stage_project(p->exec, stage, shown, /* filter= */ NULL, p->spec->now_ms);
}

PlanStage *build_shape(Planning *p, PlanStage *stage) {
    const QuerySpec *spec = p->spec;
    if (spec->sort_limit > 0 && !stage_has(stage, "SORT"))
        stage = stage_limit(p->exec, stage, spec->sort_limit);
    if (spec->skip > 0)
        stage = stage_skip(p->exec, stage, spec->skip);
    if (spec->limit > 0)
        stage = stage_limit(p->exec, stage, spec->limit);
    PlanStage *keys = NULL;
    if (spec->is_sort_key_wanted && p->sort != NULL && p->sort->count > 0)
        stage = keys = stage_take_sort_key(p->exec, stage, p->sort, p->collator);
    if (spec->is_return_key) /* and nothing else */
        stage = stage_return_key(p->exec, stage);
    else if (p->projection != NULL) {
        stage = stage_project(p->exec, stage, p->projection, p->filter, spec->now_ms);
        if (p->exec->needed_meta != 0)
            p->exec->meta_stage = stage;
    } else if (spec->needed_paths != NULL && !spec->is_distinct_of_elements)
        stage = show_needed(p, stage, spec->needed_paths);
    if (spec->is_show_record_id && !spec->is_return_key)
        stage = stage_show_record_id(p->exec, stage);
    if (keys != NULL)
        stage = stage_put_sort_key(p->exec, stage, keys);
    return stage;
}

/* ---- one index ---- */

static PlanStage *build_single(Planning *p, const IndexPath *path) {
    IndexDesc *index = path->index;
    const MatchExpr *rest = path->bounds.rest;
    bool is_number_wanted = !p->needed.is_all && p->needed.count == 0;
    if (is_number_wanted && rest == NULL && !p->spec->is_return_key)
        return build_number(p, path);
    IndexScanOptions options = {
        .index = index, .bounds = &path->bounds, .is_forward = path->is_forward};
    /* Whether everything that is read is in the keys. */
    uint32_t of_rest = rest == NULL ? 0 : fields_of_filter(p, rest, path);
    uint32_t of_paths = p->needed.is_all ? FIELDS_UNKNOWN : fields_of_paths(&p->needed, path);
    if ((rest == NULL || of_rest != FIELDS_UNKNOWN) &&
        (is_number_wanted || of_paths != FIELDS_UNKNOWN)) {
        options.key_fields = of_rest | of_paths;
        options.is_covering = true;
        options.filter = rest;
        return stage_index_scan(p->exec, &options);
    }
    if (rest != NULL)
        options.filter = split_by_keys(p, path, &rest, &options.key_fields);
    PlanStage *scan = stage_index_scan(p->exec, &options);
    return stage_fetch(p->exec, p->coll, scan, rest, p->filter);
}

/* The values of elements are in the keys, though the arrays are not. */
static PlanStage *build_distinct(Planning *p, const Candidate *candidate) {
    const IndexPath *path = &candidate->paths[0];
    uint32_t field = candidate->distinct_fields - 1;
    bool is_of_elements = p->spec->is_distinct_of_elements;
    IndexScanOptions options = {.index = path->index,
                                .bounds = &path->bounds,
                                .is_forward = path->is_forward,
                                .distinct_fields = candidate->distinct_fields};
    if (is_of_elements && has_name_and_text(path, field))
        options.key_fields = 1u << field;
    else if (!is_of_elements && !p->needed.is_all)
        options.key_fields = fields_of_paths(&p->needed, path);
    options.is_covering = options.key_fields != 0;
    PlanStage *scan = stage_index_scan(p->exec, &options);
    if (!options.is_covering)
        scan = stage_fetch(p->exec, p->coll, scan, /* filter= */ NULL, p->filter);
    return is_of_elements ? show_needed(p, scan, &p->needed) : scan;
}

/* The one field with several intervals if these are all that may stand for null, and their number:
 * null and undefined, and with arrays the empty one; 0: there is no such field. */
static uint32_t count_null_points(const IndexPath *path, uint32_t *ret_field) {
    uint32_t count = 0;
    for (uint32_t f = 0; f < path->index->field_count; f++) {
        const Intervals *list = &path->bounds.fields[f];
        if (list->count == 1)
            continue;
        if (count > 0)
            return 0;
        for (uint32_t i = 0; i < list->count; i++) {
            BsonType type = elem_type(list->rows[i].low);
            if (type != BT_NULL && type != BT_UNDEFINED && type != BT_ARRAY)
                return 0;
        }
        count = list->count;
        if (count != (index_is_multikey(path->index) ? 3 : 2))
            return 0;
        *ret_field = f;
    }
    return count;
}

/* Neither documents nor values are needed. What stands for null is several scans, each of one
 * range, as only those are counts in MongoDB. */
static PlanStage *build_number(Planning *p, const IndexPath *path) {
    IndexScanOptions options = {.index = path->index,
                                .bounds = &path->bounds,
                                .is_forward = path->is_forward,
                                .is_counting = true};
    uint32_t field, count = count_null_points(path, &field);
    if (count == 0 || count != path->bounds.range_count)
        return stage_index_scan(p->exec, &options);
    options.is_rid_wanted = true;
    PlanStage *first = NULL;
    PlanStage **next = &first;
    for (uint32_t i = 0; i < count; i++) {
        IndexBounds *bounds = ARENA_NEW(&p->exec->arena, IndexBounds);
        bounds_pick(&path->bounds, path->index, field, i, &p->exec->arena, bounds);
        options.bounds = bounds;
        *next = stage_index_scan(p->exec, &options);
        next = &(*next)->sibling;
    }
    return stage_union(p->exec, first);
}

/* ---- several scans ---- */

/* Do the keys of each scan tell these paths? */
static bool have_paths(const Candidate *candidate, const PathSet *paths) {
    for (uint32_t i = 0; i < candidate->path_count; i++)
        if (fields_of_paths(paths, &candidate->paths[i]) == FIELDS_UNKNOWN)
            return false;
    return true;
}

static PlanStage *build_union(Planning *p, const Candidate *candidate) {
    PlanStage *first = NULL;
    PlanStage **next = &first;
    for (uint32_t i = 0; i < candidate->path_count; i++) {
        const IndexPath *path = &candidate->paths[i];
        IndexScanOptions options = {
            .index = path->index, .bounds = &path->bounds, .is_forward = path->is_forward};
        *next = stage_index_scan(p->exec, &options);
        next = &(*next)->sibling;
    }
    return stage_fetch(p->exec, p->coll, stage_union(p->exec, first), p->filter, p->filter);
}

/* A merge compares the values of the order: those in keys, if all have them, else in documents. */
static PlanStage *build_merge(Planning *p, const Candidate *candidate) {
    const MatchExpr *rest = candidate->is_union ? p->filter : candidate->paths[0].bounds.rest;
    PathSet order = path_set(&p->exec->arena);
    for (uint32_t i = 0; i < p->sort->count; i++)
        path_set_add(&order, p->sort->parts[i].path.dotted);
    bool is_covered = rest == NULL && !p->needed.is_all && have_paths(candidate, &p->needed);
    bool is_by_keys = is_covered || have_paths(candidate, &order);
    PlanStage *first = NULL;
    PlanStage **next = &first;
    for (uint32_t i = 0; i < candidate->path_count; i++) {
        const IndexPath *path = &candidate->paths[i];
        IndexScanOptions options = {.index = path->index,
                                    .bounds = &path->bounds,
                                    .is_forward = path->is_forward,
                                    .is_covering = is_by_keys};
        if (is_by_keys)
            options.key_fields = fields_of_paths(is_covered ? &p->needed : &order, path);
        PlanStage *scan = stage_index_scan(p->exec, &options);
        if (!is_by_keys)
            scan = stage_fetch(p->exec, p->coll, scan, rest, p->filter);
        *next = scan;
        next = &scan->sibling;
    }
    PlanStage *merged = stage_merge(p->exec, first, p->sort, p->collator);
    return is_by_keys && !is_covered ? stage_fetch(p->exec, p->coll, merged, rest, p->filter)
                                     : merged;
}

/* ---- what keys tell ---- */

/* Do the keys have the values of the field as they are, in these bounds? */
static bool has_values(const IndexPath *path, uint32_t f) {
    const IndexDesc *index = path->index;
    if (index_multikey_paths(index, f) != 0 || index_field_is_hashed(index, f))
        return false;
    /* The keys of a wildcard index do not distinguish a document from its parts. */
    if (index->whole != NULL && (f != index->special_field + 1 || path->bounds.fields[f].is_all ||
                                 path->bounds.point_fields <= index->special_field))
        return false;
    return has_name_and_text(path, f);
}

/* Is the path one of names only, and the text of values in the keys and not its place in a
 * collation? */
static bool has_name_and_text(const IndexPath *path, uint32_t f) {
    const IndexDesc *index = path->index;
    if (index->collator != NULL && !intervals_are_without_text(&path->bounds.fields[f]))
        return false;
    for (uint32_t part = 0; part < index->fields[f].part_count; part++)
        if (index->fields[f].parts[part].size == 0 ||
            (index->fields[f].parts[part].data[0] >= '0' &&
             index->fields[f].parts[part].data[0] <= '9'))
            return false; /* may mean a position in an array */
    return true;
}

/* The field of the index with this path, if its keys hold the value whole; -1: none. */
static int find_field(const IndexPath *path, Str dotted) {
    for (uint32_t f = 0; f < path->index->field_count; f++)
        if (str_is(dotted, path->index->fields[f].path))
            return has_values(path, f) ? (int)f : -1;
    return -1;
}

static bool has_array(const MatchExpr *leaf) {
    if (leaf->kind != MATCH_IN)
        return elem_type(leaf->operand) == BT_ARRAY;
    for (uint32_t i = 0; i < leaf->in.value_count; i++)
        if (elem_type(leaf->in.values[i]) == BT_ARRAY)
            return true;
    return false;
}

/* Keys do not tell null from a missing field. Conditions that do are left to the document, and so
 * are those that ask for both, unless nobody wants to see which it was; and those that ask for
 * whole arrays. */
static bool needs_document(const Planning *p, const MatchExpr *leaf, const IndexDesc *index) {
    bool is_null_seen = !is_null_told(p) || index_is_multikey(index);
    uint32_t nulls = 1u << BT_NULL | 1u << BT_UNDEFINED;
    return leaf->kind == MATCH_EXISTS || leaf->kind >= MATCH_EXPR_LT ||
           (leaf->kind == MATCH_TYPE && (leaf->type_set & nulls) != 0) ||
           (leaf->kind <= MATCH_IN && ((leaf->matches_missing && is_null_seen) || has_array(leaf)));
}

static uint32_t fields_of_filter(const Planning *p, const MatchExpr *filter,
                                 const IndexPath *path) {
    if (filter->kind == MATCH_EXPR)
        return FIELDS_UNKNOWN;
    if (filter->kind >= MATCH_EQ) {
        int field =
            needs_document(p, filter, path->index) ? -1 : find_field(path, filter->path.dotted);
        return field < 0 ? FIELDS_UNKNOWN : 1u << field;
    }
    uint32_t fields = 0;
    for (uint32_t i = 0; i < filter->child_count; i++) {
        uint32_t below = fields_of_filter(p, filter->children[i], path);
        if (below == FIELDS_UNKNOWN)
            return FIELDS_UNKNOWN;
        fields |= below;
    }
    return fields;
}

static uint32_t fields_of_paths(const PathSet *paths, const IndexPath *path) {
    uint32_t fields = 0;
    for (uint32_t i = 0; i < paths->count; i++) {
        int field = find_field(path, paths->paths[i]);
        if (field < 0)
            return FIELDS_UNKNOWN;
        fields |= 1u << field;
    }
    return fields;
}

static const MatchExpr *join(MatchExpr *parts) {
    return parts->child_count > 1 ? parts : parts->child_count == 1 ? parts->children[0] : NULL;
}

/* Takes the conditions that can be judged by the keys off `rest`. */
static const MatchExpr *split_by_keys(const Planning *p, const IndexPath *path,
                                      const MatchExpr **rest, uint32_t *ret_fields) {
    Arena *arena = &p->exec->arena;
    const MatchExpr *whole = *rest;
    bool is_and = whole->kind == MATCH_AND;
    uint32_t count = is_and ? whole->child_count : 1;
    MatchExpr *parts[2]; /* by the document, by the key */
    for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
        parts[i] = ARENA_NEW(arena, MatchExpr);
        *parts[i] = (MatchExpr){.kind = MATCH_AND};
        parts[i]->children = ARENA_ARRAY(arena, MatchExpr *, count);
    }
    *ret_fields = 0;
    for (uint32_t i = 0; i < count; i++) {
        MatchExpr *child = is_and ? whole->children[i] : (MatchExpr *)whole;
        uint32_t fields = fields_of_filter(p, child, path);
        MatchExpr *part = parts[fields != FIELDS_UNKNOWN];
        part->children[part->child_count++] = child;
        *ret_fields |= fields;
    }
    *rest = join(parts[0]);
    return join(parts[1]);
}
