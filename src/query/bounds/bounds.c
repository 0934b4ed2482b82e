#include "query/bounds/bounds.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "bson/json.h"
#include "bson/keystring.h"
#include "query/bounds/implies.h"
#include "query/bounds/wildcard.h"
#include "query/interval/predicates.h"

/* What the bounds say of a filter. */
typedef struct BoundsRest {
    const FieldPredicates *found; /* per field of the index */
    uint32_t field_count;
    IntervalFit fit_min; /* what is said exactly */
    Arena *arena;
} BoundsRest;

static const MatchExpr *rest_of(const BoundsRest *rest, const MatchExpr *filter);
static bool is_of_subtree(const FieldPredicates *found);
static bool has_restricted_tail(const IndexDesc *index, const IndexBounds *bounds);
static bool field_has_numeric_part(const IndexField *field);
static bool is_met_at_position(Predicate predicate);
static bool shares_array(const IndexDesc *index, uint32_t a, uint32_t b);
static void multiply_out(const IndexDesc *index, Arena *arena, IndexBounds *bounds);

/* An element without a name. */
static const uint8_t EMPTY_ARRAY[] = {BT_ARRAY, 0, 5, 0, 0, 0, 0};

static void collect_for_field(const MatchExpr *filter, const IndexDesc *index, uint32_t field,
                              const Collator *collator, FieldPredicates *found) {
    found->count = 0;
    predicates_collect(filter, str_from(index->fields[field].path), found);
    bool is_wildcard_value = index->whole != NULL && field == index->special_field + 1;
    bool has_position = field_has_numeric_part(&index->fields[field]);
    /* Only an index of the query's own collation orders text as the query compares it. */
    bool is_same_order = index->collator == collator;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < found->count; i++)
        if ((is_same_order || predicate_is_without_text(found->rows[i])) &&
            (!is_wildcard_value || wildcard_has_predicate(found->rows[i])) &&
            (!has_position || (is_met_at_position(found->rows[i]) &&
                               !(is_wildcard_value && wildcard_is_of_subtree(found->rows[i])))))
            found->rows[kept++] = found->rows[i];
    found->count = kept;
}

bool bounds_is_relevant(const MatchExpr *filter, const IndexDesc *index, const Collator *collator) {
    if (filter == NULL)
        return false;
    if (index->kind == INDEX_KIND_WILDCARD) /* which paths it has is seen later */
        return !bounds_may_miss_documents(filter, index);
    FieldPredicates found;
    collect_for_field(filter, index, 0, collator, &found);
    return found.count > 0 && !bounds_may_miss_documents(filter, index);
}

bool bounds_for_index(const MatchExpr *filter, const IndexDesc *index, const Collator *collator,
                      bool is_null_told, Arena *arena, IndexBounds *ret_bounds) {
    if (filter == NULL || bounds_may_miss_documents(filter, index))
        return false;
    *ret_bounds = (IndexBounds){.fields = ARENA_ARRAY(arena, Intervals, index->field_count)};
    Intervals *fields = ret_bounds->fields;
    FieldPredicates *found = ARENA_ARRAY(arena, FieldPredicates, index->field_count);
    bool is_multikey = index_is_multikey(index);
    for (uint32_t f = 0; f < index->field_count; f++) {
        if (index->whole != NULL && f == index->special_field) {
            collect_for_field(filter, index, f + 1, collator, &found[f]);
            fields[f] = index->entry_path_count > 0
                            ? intervals_of_paths(index->entry_paths, index->entry_path_count, arena)
                            : intervals_of_path(str_from(index->fields[f + 1].path),
                                                /* is_subtree= */ is_of_subtree(&found[f]), arena);
            found[f].count = 0;
            continue;
        }
        collect_for_field(filter, index, f, collator, &found[f]);
        IntervalContext ctx = {.arena = arena,
                               .collator = index->collator,
                               .arrays = is_multikey ? index_multikey_paths(index, f) : 0,
                               .is_dotted = index->fields[f].part_count > 1,
                               .is_sparse = index->is_sparse && index->field_count == 1};
        bool is_below_path = index->whole != NULL && f == index->special_field + 1;
        bool is_usable = found[f].count > 0 && !(is_below_path && is_of_subtree(&found[f]));
        for (uint32_t g = 0; is_usable && is_multikey && g < f; g++)
            is_usable = fields[g].is_all || !shares_array(index, f, g);
        if (!is_usable || !predicates_combine(&found[f], &ctx, &fields[f]) ||
            (index_field_is_hashed(index, f) && !intervals_hash(&fields[f], &ctx)))
            fields[f] = intervals_all(arena);
        /* Arrays in arrays have one entry, as a value. */
        if (is_below_path && index->entry_path_count > 0 && !fields[f].is_all)
            intervals_add_type(&fields[f], (Elem){EMPTY_ARRAY, 0}, &ctx);
        if (f == 0 && fields[0].is_all)
            return false;
    }
    multiply_out(index, arena, ret_bounds);
    ret_bounds->is_tail_restricted = has_restricted_tail(index, ret_bounds);
    uint32_t in_ranges = ret_bounds->point_fields + ret_bounds->has_range_field;
    for (uint32_t f = 0; f < index->field_count; f++)
        if ((f >= in_ranges && !ret_bounds->is_tail_restricted) || fields[f].is_all ||
            index_field_is_hashed(index, f) || field_has_numeric_part(&index->fields[f]) ||
            (index->whole != NULL && index->special_field == WILDCARD_FIELD_NONE))
            found[f].count = 0; /* not in the bounds, or others have the same key */
    IntervalFit fit_min = !is_null_told ? INTERVAL_FIT_EXACT
                          : is_multikey ? INTERVAL_FIT_NULL_OR_EMPTY
                                        : INTERVAL_FIT_NULL;
    BoundsRest rest = {found, index->field_count, fit_min, arena};
    ret_bounds->rest = rest_of(&rest, filter);
    return true;
}

void bounds_all(const IndexDesc *index, const MatchExpr *filter, Arena *arena,
                IndexBounds *ret_bounds) {
    *ret_bounds =
        (IndexBounds){.fields = ARENA_ARRAY(arena, Intervals, index->field_count), .rest = filter};
    for (uint32_t f = 0; f < index->field_count; f++)
        ret_bounds->fields[f] = intervals_all(arena);
    multiply_out(index, arena, ret_bounds);
    ret_bounds->has_range_field = false;
}

bool bounds_for_records(const MatchExpr *filter, Str path, const Collator *collator, Arena *arena,
                        Intervals *ret_intervals) {
    if (filter == NULL)
        return false;
    FieldPredicates found = {.count = 0};
    predicates_collect(filter, path, &found);
    IntervalContext ctx = {.arena = arena, .collator = collator};
    return found.count > 0 && predicates_combine(&found, &ctx, ret_intervals) &&
           !ret_intervals->is_all;
}

/* ---- from predicates to intervals ---- */

/* Are documents found by what is below the path, too? */
static bool is_of_subtree(const FieldPredicates *found) {
    for (uint32_t i = 0; i < found->count; i++)
        if (!wildcard_is_of_subtree(found->rows[i]))
            return false;
    return true;
}

static bool is_said(const BoundsRest *rest, const MatchExpr *leaf) {
    for (uint32_t f = 0; f < rest->field_count; f++)
        for (uint32_t i = 0; i < rest->found[f].count; i++)
            if (rest->found[f].rows[i].expr == leaf)
                return rest->found[f].rows[i].fit >= rest->fit_min;
    return false;
}

/* The filter without the conditions that the bounds say exactly; NULL: nothing is left. */
static const MatchExpr *rest_of(const BoundsRest *rest, const MatchExpr *filter) {
    if (filter->kind == MATCH_NOT || filter->kind >= MATCH_EQ)
        return is_said(rest, filter->kind == MATCH_NOT ? filter->children[0] : filter) ? NULL
                                                                                       : filter;
    if (filter->kind != MATCH_AND)
        return filter;
    MatchExpr *both = ARENA_NEW(rest->arena, MatchExpr);
    *both = (MatchExpr){.kind = MATCH_AND};
    both->children = ARENA_ARRAY(rest->arena, MatchExpr *, filter->child_count);
    for (uint32_t i = 0; i < filter->child_count; i++) {
        const MatchExpr *child = rest_of(rest, filter->children[i]);
        if (child != NULL)
            both->children[both->child_count++] = (MatchExpr *)child;
    }
    if (both->child_count < 2)
        return both->child_count == 1 ? both->children[0] : NULL;
    return both;
}

/* A number behind the first part of a path may mean a position in an array. */
static bool field_has_numeric_part(const IndexField *field) {
    for (uint32_t p = 1; p < field->part_count; p++)
        if (path_index_of(field->parts[p]) >= 0)
            return true;
    return false;
}

/* Does a match show in the one key that a position in an array has? The filter reaches more: the
 * documents of the array that lack a field of that name, and inside an $elemMatch the arrays in the
 * array; and the key of an array at the position is the array, not its elements. */
static bool is_met_at_position(Predicate predicate) {
    const MatchExpr *expr = predicate.expr;
    return predicate.above_parts == 0 && expr->kind != MATCH_ELEM_MATCH_VALUE &&
           (predicate.is_negated || !expr->matches_missing);
}

/* ---- which indexes may be used ---- */

/* Matches documents that lack the field? Then a sparse index does not have them all. */
static bool field_may_be_missing(const MatchExpr *filter, const IndexDesc *index) {
    if (index->kind == INDEX_KIND_WILDCARD)
        return false; /* its views take only predicates that need the field */
    FieldPredicates found = {.count = 0};
    predicates_collect(filter, str_from(index->fields[0].path), &found);
    for (uint32_t i = 0; i < found.count; i++)
        if (found.rows[i].expr->matches_missing == found.rows[i].is_negated)
            return false;
    return true;
}

bool bounds_may_miss_documents(const MatchExpr *filter, const IndexDesc *index) {
    if (index->partial_filter == NULL && !index->is_sparse)
        return false;
    if (filter == NULL)
        return true;
    if (index->partial_filter != NULL && !match_implies(filter, index->partial_filter))
        return true;
    return index->is_sparse && field_may_be_missing(filter, index);
}

/* Do two fields pass through the same array? */
static bool shares_array(const IndexDesc *index, uint32_t a, uint32_t b) {
    const IndexField *x = &index->fields[a], *y = &index->fields[b];
    uint32_t both = index_multikey_paths(index, a) & index_multikey_paths(index, b);
    for (uint32_t p = 0; p < x->part_count && p < y->part_count && p < INDEX_PATH_PARTS_MAX; p++) {
        if (!str_equal(x->parts[p], y->parts[p]))
            return false;
        if ((both >> p & 1) != 0)
            return true;
    }
    return false;
}

/* ---- key ranges ---- */

typedef struct RangeBuilder {
    const IndexDesc *index;
    const IndexBounds *bounds;
    Arena *arena;
    KeyBuilder low;
    KeyBuilder high;
    KeyRange *ranges;
    uint32_t count;
    Elem points[INDEX_FIELDS_MAX];
} RangeBuilder;

static Str keep_key(KeyBuilder *kb, Arena *arena) {
    return (Str){arena_memdup(arena, kb->key.data, kb->key.size), kb->key.size};
}

/* Paths of a wildcard index are not text of the collation. */
static const Collator *field_collator(const IndexDesc *index, uint32_t field) {
    return index->whole != NULL && field == index->special_field ? NULL : index->collator;
}

/* A range begins, and ends, where the fields behind it do. */
static KeyEnd append_tail(RangeBuilder *rb, KeyBuilder *kb, uint32_t field, bool is_start) {
    for (uint32_t f = field; f < rb->index->field_count; f++) {
        const Intervals *list = &rb->bounds->fields[f];
        if (list->is_all)
            break;
        bool is_low = is_start != rb->index->fields[f].is_descending;
        const Interval *row = &list->rows[is_low ? 0 : list->count - 1];
        key_append_elem(kb, is_low ? row->low : row->high, field_collator(rb->index, f));
        if (!(is_low ? row->is_low_inclusive : row->is_high_inclusive))
            return is_start ? KEY_END_AFTER : KEY_END_BEFORE;
    }
    return is_start ? KEY_END_BEFORE : KEY_END_AFTER;
}

static void add_key_range(RangeBuilder *rb, uint32_t point_count, const Interval *last) {
    bool is_descending = last != NULL && rb->index->fields[point_count].is_descending;
    key_builder_reset(&rb->low, rb->index->order);
    key_builder_reset(&rb->high, rb->index->order);
    for (uint32_t f = 0; f < point_count; f++) {
        key_append_elem(&rb->low, rb->points[f], field_collator(rb->index, f));
        key_append_elem(&rb->high, rb->points[f], field_collator(rb->index, f));
    }
    KeyEnd low_end = KEY_END_BEFORE, high_end = KEY_END_AFTER;
    if (last != NULL) {
        /* In a descending field the higher value comes first. */
        Elem first = is_descending ? last->high : last->low;
        Elem second = is_descending ? last->low : last->high;
        bool is_first_in = is_descending ? last->is_high_inclusive : last->is_low_inclusive;
        bool is_second_in = is_descending ? last->is_low_inclusive : last->is_high_inclusive;
        const Collator *collator = field_collator(rb->index, point_count);
        key_append_elem(&rb->low, first, collator);
        key_append_elem(&rb->high, second, collator);
        low_end = is_first_in ? append_tail(rb, &rb->low, point_count + 1, true) : KEY_END_AFTER;
        high_end =
            is_second_in ? append_tail(rb, &rb->high, point_count + 1, false) : KEY_END_BEFORE;
    }
    key_append_end(&rb->low, low_end);
    key_append_end(&rb->high, high_end);
    rb->ranges[rb->count++] =
        (KeyRange){keep_key(&rb->low, rb->arena), keep_key(&rb->high, rb->arena)};
}

static void multiply_field(RangeBuilder *rb, uint32_t field) {
    if (field < rb->bounds->point_fields) {
        const Intervals *list = &rb->bounds->fields[field];
        bool is_descending = rb->index->fields[field].is_descending;
        for (uint32_t i = 0; i < list->count; i++) {
            rb->points[field] = list->rows[is_descending ? list->count - 1 - i : i].low;
            multiply_field(rb, field + 1);
        }
        return;
    }
    if (field == rb->index->field_count || rb->bounds->fields[field].is_all) {
        add_key_range(rb, field, NULL);
        return;
    }
    const Intervals *list = &rb->bounds->fields[field];
    bool is_descending = rb->index->fields[field].is_descending;
    for (uint32_t i = 0; i < list->count; i++)
        add_key_range(rb, field, &list->rows[is_descending ? list->count - 1 - i : i]);
}

static void multiply_out(const IndexDesc *index, Arena *arena, IndexBounds *bounds) {
    uint64_t total = 1;
    bounds->has_single_points = true;
    for (uint32_t f = 0; f < index->field_count; f++)
        if (bounds->fields[f].count == 0 && !bounds->fields[f].is_all)
            return; /* conditions that contradict each other: no range at all */
    while (bounds->point_fields < index->field_count) {
        const Intervals *list = &bounds->fields[bounds->point_fields];
        if (!intervals_are_points(list, index->collator) || total * list->count > BOUNDS_RANGES_MAX)
            break;
        total *= list->count;
        bounds->has_single_points &= list->count == 1;
        bounds->point_fields++;
    }
    uint32_t range_field = bounds->point_fields;
    uint64_t tail = 1;
    if (range_field < index->field_count && !bounds->fields[range_field].is_all) {
        if (total * bounds->fields[range_field].count <= BOUNDS_RANGES_MAX) {
            tail = bounds->fields[range_field].count;
            bounds->has_range_field = true;
        } else {
            bounds->fields[range_field] = intervals_all(arena); /* the filter will do it */
        }
    }
    RangeBuilder rb = {.index = index, .bounds = bounds, .arena = arena};
    key_builder_init(&rb.low);
    key_builder_init(&rb.high);
    rb.ranges = ARENA_ARRAY(arena, KeyRange, total * tail + 1);
    multiply_field(&rb, 0);
    key_builder_done(&rb.low);
    key_builder_done(&rb.high);
    bounds->ranges = rb.ranges;
    bounds->range_count = rb.count;
}

/* Are fields restricted that the ranges leave out, and do keys hold the values that intervals are
 * made of? */
static bool has_restricted_tail(const IndexDesc *index, const IndexBounds *bounds) {
    if (index->collator != NULL || index->whole != NULL)
        return false;
    bool is_restricted = false;
    for (uint32_t f = 0; f < index->field_count; f++) {
        if (index_field_is_hashed(index, f))
            return false;
        is_restricted |=
            f >= bounds->point_fields + bounds->has_range_field && !bounds->fields[f].is_all;
    }
    return is_restricted;
}

static void append_key(KeyBuilder *kb, const IndexDesc *index, Doc values) {
    DocIter iter = doc_iter(values);
    Elem value;
    for (uint32_t f = 0; f < index->field_count && doc_iter_next(&iter, &value); f++)
        key_append_elem(kb, value, index->collator);
}

static Str end_of_range(const IndexDesc *index, Doc key, KeyEnd end, Arena *arena) {
    CLEANUP(key_builder_done) KeyBuilder kb;
    key_builder_init(&kb);
    key_builder_reset(&kb, index->order);
    append_key(&kb, index, key);
    key_append_end(&kb, end);
    return keep_key(&kb, arena);
}

void bounds_min_max(const IndexDesc *index, const MatchExpr *filter, Doc min, Doc max, Arena *arena,
                    IndexBounds *ret_bounds) {
    bounds_all(index, filter, arena, ret_bounds);
    KeyRange *range = &ret_bounds->ranges[0];
    if (doc_is_present(min))
        range->start = end_of_range(index, min, KEY_END_BEFORE, arena);
    if (doc_is_present(max))
        range->end = end_of_range(index, max, KEY_END_BEFORE, arena);
}

void bounds_between(const IndexDesc *index, Doc low, bool is_low_inclusive, Doc high,
                    bool is_high_inclusive, Arena *arena, IndexBounds *ret_bounds) {
    bounds_all(index, /* filter= */ NULL, arena, ret_bounds);
    KeyRange *range = &ret_bounds->ranges[0];
    if (!doc_is_empty(low))
        range->start =
            end_of_range(index, low, is_low_inclusive ? KEY_END_BEFORE : KEY_END_AFTER, arena);
    if (!doc_is_empty(high))
        range->end =
            end_of_range(index, high, is_high_inclusive ? KEY_END_AFTER : KEY_END_BEFORE, arena);
}

void bounds_pick(const IndexBounds *bounds, const IndexDesc *index, uint32_t field, uint32_t at,
                 Arena *arena, IndexBounds *ret_bounds) {
    assert(at < bounds->range_count);
    *ret_bounds = *bounds;
    ret_bounds->fields =
        arena_memdup(arena, bounds->fields, index->field_count * sizeof(*bounds->fields));
    Intervals *list = &ret_bounds->fields[field];
    list->rows += index->fields[field].is_descending ? list->count - 1 - at : at;
    list->count = 1;
    ret_bounds->ranges += at;
    ret_bounds->range_count = 1;
}

/* ---- explain ---- */

static const char *bound_text(Elem bound, Arena *arena) {
    if (elem_type(bound) == BT_DOUBLE && isinf(elem_f64(bound)))
        return elem_f64(bound) > 0 ? "inf.0" : "-inf.0";
    return shell_text_of_elem(bound, arena);
}

static char *interval_text(const Interval *row, bool is_reversed, Arena *arena) {
    const char *low = bound_text(is_reversed ? row->high : row->low, arena);
    const char *high = bound_text(is_reversed ? row->low : row->high, arena);
    bool is_first_in = is_reversed ? row->is_high_inclusive : row->is_low_inclusive;
    bool is_last_in = is_reversed ? row->is_low_inclusive : row->is_high_inclusive;
    return arena_printf(arena, "%c%s, %s%c", is_first_in ? '[' : '(', low, high,
                        is_last_in ? ']' : ')');
}

void bounds_to_bson(const IndexBounds *bounds, const IndexDesc *index, bool is_forward,
                    Arena *arena, DocBuilder *b) {
    for (uint32_t f = 0; f < index->field_count; f++) {
        const Intervals *list = &bounds->fields[f];
        bool is_reversed = index->fields[f].is_descending == is_forward;
        size_t opened = build_open_array(b, index->fields[f].path);
        for (uint32_t i = 0; i < list->count; i++) {
            char name[INDEX_NAME_SIZE];
            const Interval *row = &list->rows[is_reversed ? list->count - 1 - i : i];
            build_cstr(b, index_name(i, name).data, interval_text(row, is_reversed, arena));
        }
        build_close(b, opened);
    }
    if (index->whole != NULL && index->special_field == WILDCARD_FIELD_NONE) {
        size_t opened = build_open_array(b, "$_path"); /* of documents without a path, or any */
        build_cstr(b, "0", "[MinKey, MinKey]");
        build_cstr(b, "1", "[\"\", {})");
        build_close(b, opened);
    }
}
