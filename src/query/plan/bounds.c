#include "query/plan/bounds.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bson/json.h"
#include "bson/keystring.h"
#include "query/plan/implies.h"

/* The least value of each type, in canonical order: the end of one bracket is the start of the
 * next. */
static const uint8_t MIN_KEY[] = {BT_MIN_KEY, 0};
static const uint8_t UNDEFINED[] = {BT_UNDEFINED, 0};
static const uint8_t NULL_VALUE[] = {BT_NULL, 0};
static const uint8_t MINUS_INF[] = {BT_DOUBLE, 0, 0, 0, 0, 0, 0, 0, 0xF0, 0xFF};
static const uint8_t PLUS_INF[] = {BT_DOUBLE, 0, 0, 0, 0, 0, 0, 0, 0xF0, 0x7F};
static const uint8_t EMPTY_STRING[] = {BT_STRING, 0, 1, 0, 0, 0, 0};
static const uint8_t EMPTY_DOC[] = {BT_DOC, 0, 5, 0, 0, 0, 0};
static const uint8_t EMPTY_ARRAY[] = {BT_ARRAY, 0, 5, 0, 0, 0, 0};
static const uint8_t EMPTY_BINARY[] = {BT_BINARY, 0, 0, 0, 0, 0, 0};
static const uint8_t ZERO_OID[] = {BT_OID, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
static const uint8_t FALSE_VALUE[] = {BT_BOOL, 0, 0};
static const uint8_t FIRST_DATE[] = {BT_DATE, 0, 0, 0, 0, 0, 0, 0, 0, 0x80};
static const uint8_t ZERO_TIMESTAMP[] = {BT_TIMESTAMP, 0, 0, 0, 0, 0, 0, 0, 0, 0};
static const uint8_t EMPTY_REGEX[] = {BT_REGEX, 0, 0, 0};
static const uint8_t MAX_KEY[] = {BT_MAX_KEY, 0};

#define STATIC_ELEM(bytes) ((Elem){(bytes), 0})

typedef struct FieldPredicates {
    const MatchExpr *rows[64];
    uint32_t count;
} FieldPredicates;

static void collect_predicates(const MatchExpr *expr, Str path, Str prefix, FieldPredicates *found,
                               bool is_below_elem_match);
static bool intervals_of(const MatchExpr *expr, Arena *arena, Intervals *ret);
static void intersect(Intervals *a, const Intervals *b, Arena *arena);
static bool combine(const FieldPredicates *found, bool is_multikey, Arena *arena, Intervals *ret);
static Intervals all_values(Arena *arena);
static bool is_all_points(const Intervals *intervals);
static bool shares_array(const IndexDesc *index, uint32_t a, uint32_t b);
static void multiply_out(const IndexDesc *index, Arena *arena, IndexBounds *bounds);
static bool may_miss_documents(const IndexDesc *index, const MatchExpr *filter);

bool bounds_for_index(const MatchExpr *filter, const IndexDesc *index, Arena *arena,
                      IndexBounds *ret_bounds) {
    if (filter == NULL || may_miss_documents(index, filter))
        return false;
    Intervals *fields = ARENA_ARRAY(arena, Intervals, index->field_count);
    bool is_multikey = index_is_multikey(index);
    for (uint32_t f = 0; f < index->field_count; f++) {
        FieldPredicates found = {.count = 0};
        collect_predicates(filter, str_from(index->fields[f].path), STR(""), &found, false);
        bool is_field_multikey = is_multikey && index_multikey_paths(index, f) != 0;
        bool is_usable = found.count > 0;
        for (uint32_t g = 0; is_usable && is_multikey && g < f; g++)
            is_usable = fields[g].is_all || !shares_array(index, f, g);
        if (!is_usable || !combine(&found, is_field_multikey, arena, &fields[f]))
            fields[f] = all_values(arena);
        if (f == 0 && fields[0].is_all)
            return false;
    }
    *ret_bounds = (IndexBounds){.fields = fields};
    multiply_out(index, arena, ret_bounds);
    return true;
}

void bounds_all(const IndexDesc *index, Arena *arena, IndexBounds *ret_bounds) {
    *ret_bounds = (IndexBounds){.fields = ARENA_ARRAY(arena, Intervals, index->field_count)};
    for (uint32_t f = 0; f < index->field_count; f++)
        ret_bounds->fields[f] = all_values(arena);
    multiply_out(index, arena, ret_bounds);
    ret_bounds->has_range_field = false;
}

bool bounds_for_clustered(const MatchExpr *filter, Arena *arena, Intervals *ret_intervals) {
    if (filter == NULL)
        return false;
    FieldPredicates found = {.count = 0};
    collect_predicates(filter, STR("_id"), STR(""), &found, false);
    return found.count > 0 && combine(&found, /* is_multikey= */ false, arena, ret_intervals) &&
           !ret_intervals->is_all;
}

/* ---- from predicates to intervals ---- */

/* Finds the conditions that every matching document fulfils on exactly this path: below AND, and
 * below an $elemMatch of a leading part of the path. */
static void collect_predicates(const MatchExpr *expr, Str path, Str prefix, FieldPredicates *found,
                               bool is_below_elem_match) {
    if (expr->kind == MATCH_AND) {
        for (uint32_t i = 0; i < expr->child_count; i++)
            collect_predicates(expr->children[i], path, prefix, found, is_below_elem_match);
        return;
    }
    if (expr->kind < MATCH_EQ || found->count == ARRAY_LEN(found->rows))
        return;
    size_t skip = prefix.size > 0 ? prefix.size + 1 : 0;
    if (path.size < skip)
        return;
    Str rest = {path.data + skip, path.size - skip};
    if (str_equal(expr->path.dotted, rest)) {
        if (expr->kind != MATCH_ELEM_MATCH_OBJECT)
            found->rows[found->count++] = expr;
        return;
    }
    if (expr->kind == MATCH_ELEM_MATCH_OBJECT && !is_below_elem_match &&
        expr->path.dotted.size < rest.size && rest.data[expr->path.dotted.size] == '.' &&
        memcmp(rest.data, expr->path.dotted.data, expr->path.dotted.size) == 0) {
        Str inner = {path.data, skip + expr->path.dotted.size};
        collect_predicates(expr->children[0], path, inner, found, /* is_below_elem_match= */ true);
    }
}

static Intervals list_of(Arena *arena, uint32_t capacity) {
    return (Intervals){.rows = ARENA_ARRAY(arena, Interval, capacity)};
}

static void add_interval(Intervals *list, Elem low, bool is_low_inclusive, Elem high,
                         bool is_high_inclusive) {
    list->rows[list->count++] = (Interval){low, high, is_low_inclusive, is_high_inclusive};
}

static void add_point(Intervals *list, Elem value) {
    add_interval(list, value, true, value, true);
}

static Intervals all_values(Arena *arena) {
    Intervals list = list_of(arena, 1);
    add_interval(&list, STATIC_ELEM(MIN_KEY), true, STATIC_ELEM(MAX_KEY), true);
    list.is_all = true;
    return list;
}

/* The bracket of a type: its least value, and its greatest or (exclusive) the least of the type
 * behind it. */
static bool type_bracket(BsonType type, Elem *ret_low, Elem *ret_end, bool *ret_is_end_in) {
    static const struct {
        BsonType type;
        const uint8_t *low;
        const uint8_t *end;
    } BRACKETS[] = {
        {BT_DOUBLE, MINUS_INF, PLUS_INF},      {BT_INT32, MINUS_INF, PLUS_INF},
        {BT_INT64, MINUS_INF, PLUS_INF},       {BT_DECIMAL, MINUS_INF, PLUS_INF},
        {BT_STRING, EMPTY_STRING, EMPTY_DOC},  {BT_SYMBOL, EMPTY_STRING, EMPTY_DOC},
        {BT_DOC, EMPTY_DOC, EMPTY_ARRAY},      {BT_BINARY, EMPTY_BINARY, ZERO_OID},
        {BT_OID, ZERO_OID, FALSE_VALUE},       {BT_BOOL, FALSE_VALUE, FIRST_DATE},
        {BT_DATE, FIRST_DATE, ZERO_TIMESTAMP}, {BT_TIMESTAMP, ZERO_TIMESTAMP, EMPTY_REGEX},
    };
    for (size_t i = 0; i < ARRAY_LEN(BRACKETS); i++) {
        if (BRACKETS[i].type == type) {
            *ret_low = STATIC_ELEM(BRACKETS[i].low);
            *ret_end = STATIC_ELEM(BRACKETS[i].end);
            *ret_is_end_in = BRACKETS[i].end == PLUS_INF;
            return true;
        }
    }
    return false;
}

static bool is_nan_elem(Elem elem) {
    return elem_is_number(elem) && isnan(elem_as_f64(elem));
}

/* The keys under which a document with this value can be found. */
static bool add_equality(Intervals *list, Elem value) {
    switch (elem_type(value)) {
    case BT_NULL:
    case BT_UNDEFINED:
        add_point(list, STATIC_ELEM(UNDEFINED));
        add_point(list, STATIC_ELEM(NULL_VALUE));
        return true;
    case BT_ARRAY: {
        /* A whole array is found by its first element, or inside another array as itself. */
        DocIter iter = doc_iter(elem_doc(value));
        Elem first;
        if (doc_iter_next(&iter, &first))
            add_point(list, first);
        else
            add_point(list, STATIC_ELEM(UNDEFINED));
        add_point(list, value);
        return true;
    }
    case BT_REGEX:
        return false;
    default:
        add_point(list, value);
        return true;
    }
}

static bool add_range(Intervals *list, MatchKind kind, Elem operand) {
    BsonType type = elem_type(operand);
    Elem low, end;
    if (type == BT_NULL) { /* <= null and >= null mean == null */
        return (kind == MATCH_LTE || kind == MATCH_GTE) && add_equality(list, operand);
    }
    if (is_nan_elem(operand)) {
        if (kind == MATCH_LTE || kind == MATCH_GTE)
            add_point(list, operand);
        return kind == MATCH_LTE || kind == MATCH_GTE;
    }
    bool is_end_in;
    if (!type_bracket(type, &low, &end, &is_end_in))
        return false;
    switch (kind) {
    case MATCH_LT:
        add_interval(list, low, true, operand, false);
        return true;
    case MATCH_LTE:
        add_interval(list, low, true, operand, true);
        return true;
    case MATCH_GT:
        add_interval(list, operand, false, end, is_end_in);
        return true;
    case MATCH_GTE:
        add_interval(list, operand, true, end, is_end_in);
        return true;
    default:
        return false;
    }
}

static int compare_intervals(const void *a, const void *b) {
    const Interval *x = a, *y = b;
    int rc = elem_compare(x->low, y->low, NULL);
    return rc != 0 ? rc : (int)y->is_low_inclusive - (int)x->is_low_inclusive;
}

static void sort_and_merge(Intervals *list) {
    if (list->count < 2)
        return;
    qsort(list->rows, list->count, sizeof(*list->rows), compare_intervals);
    uint32_t kept = 0;
    for (uint32_t i = 1; i < list->count; i++) {
        Interval *last = &list->rows[kept];
        Interval *next = &list->rows[i];
        int rc = elem_compare(next->low, last->high, NULL);
        bool is_touching =
            rc < 0 || (rc == 0 && (next->is_low_inclusive || last->is_high_inclusive));
        if (!is_touching) {
            list->rows[++kept] = *next;
            continue;
        }
        int high = elem_compare(next->high, last->high, NULL);
        if (high > 0 || (high == 0 && next->is_high_inclusive)) {
            last->high = next->high;
            last->is_high_inclusive |= next->is_high_inclusive;
            if (high > 0)
                last->is_high_inclusive = next->is_high_inclusive;
        }
    }
    list->count = kept + 1;
}

/* False: this predicate does not restrict an index. */
static bool intervals_of(const MatchExpr *expr, Arena *arena, Intervals *ret) {
    *ret = list_of(arena, 2);
    switch (expr->kind) {
    case MATCH_EQ:
        if (!add_equality(ret, expr->operand))
            return false;
        break;
    case MATCH_LT:
    case MATCH_LTE:
    case MATCH_GT:
    case MATCH_GTE:
        if (!add_range(ret, expr->kind, expr->operand))
            return false;
        break;
    case MATCH_IN:
        if (expr->in.regex_count > 0)
            return false;
        *ret = list_of(arena, expr->in.value_count * 2 + 2);
        for (uint32_t i = 0; i < expr->in.value_count; i++)
            if (!add_equality(ret, expr->in.values[i]))
                return false;
        break;
    case MATCH_ELEM_MATCH_VALUE:
        /* All conditions hold for one element, so any one of them restricts; ranges of one element
         * may be cut with each other. */
        *ret = all_values(arena);
        for (uint32_t i = 0; i < expr->child_count; i++) {
            Intervals child;
            /* A second $elemMatch looks into arrays inside the array, which are indexed as a whole.
             */
            MatchKind kind = expr->children[i]->kind;
            if (kind == MATCH_ELEM_MATCH_VALUE || kind == MATCH_ELEM_MATCH_OBJECT ||
                !intervals_of(expr->children[i], arena, &child))
                continue;
            intersect(ret, &child, arena);
            ret->is_all = false;
        }
        return !ret->is_all;
    default:
        return false;
    }
    sort_and_merge(ret);
    return true;
}

static bool interval_is_empty(const Interval *row) {
    int rc = elem_compare(row->low, row->high, NULL);
    return rc > 0 || (rc == 0 && !(row->is_low_inclusive && row->is_high_inclusive));
}

static void intersect(Intervals *a, const Intervals *b, Arena *arena) {
    Intervals out = list_of(arena, a->count + b->count + 1);
    uint32_t i = 0, j = 0;
    while (i < a->count && j < b->count) {
        const Interval *x = &a->rows[i], *y = &b->rows[j];
        int low = elem_compare(x->low, y->low, NULL);
        int high = elem_compare(x->high, y->high, NULL);
        Interval cut = {
            .low = low >= 0 ? x->low : y->low,
            .is_low_inclusive = low > 0   ? x->is_low_inclusive
                                : low < 0 ? y->is_low_inclusive
                                          : x->is_low_inclusive && y->is_low_inclusive,
            .high = high <= 0 ? x->high : y->high,
            .is_high_inclusive = high < 0   ? x->is_high_inclusive
                                 : high > 0 ? y->is_high_inclusive
                                            : x->is_high_inclusive && y->is_high_inclusive,
        };
        if (!interval_is_empty(&cut))
            out.rows[out.count++] = cut;
        if (high <= 0)
            i++;
        else
            j++;
    }
    *a = out;
}

/* Over an array different elements may fulfil different conditions, so only one of them restricts:
 * the most selective kind. */
static bool combine(const FieldPredicates *found, bool is_multikey, Arena *arena, Intervals *ret) {
    bool has_any = false;
    uint32_t best_rank = UINT32_MAX;
    for (uint32_t i = 0; i < found->count; i++) {
        Intervals list;
        if (!intervals_of(found->rows[i], arena, &list))
            continue;
        uint32_t rank = found->rows[i]->kind == MATCH_EQ   ? 0
                        : found->rows[i]->kind == MATCH_IN ? 1
                                                           : 2;
        if (!has_any) {
            *ret = list;
            best_rank = rank;
        } else if (!is_multikey) {
            intersect(ret, &list, arena);
        } else if (rank < best_rank) {
            *ret = list;
            best_rank = rank;
        }
        has_any = true;
    }
    return has_any;
}

/* ---- which indexes may be used ---- */

/* Matches documents that lack the field? Then a sparse index does not have them all. */
static bool field_may_be_missing(const MatchExpr *filter, const IndexDesc *index) {
    FieldPredicates found = {.count = 0};
    collect_predicates(filter, str_from(index->fields[0].path), STR(""), &found, false);
    for (uint32_t i = 0; i < found.count; i++)
        if (!found.rows[i]->matches_missing)
            return false;
    return true;
}

static bool may_miss_documents(const IndexDesc *index, const MatchExpr *filter) {
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

static bool is_point(const Interval *row) {
    return row->is_low_inclusive && row->is_high_inclusive &&
           elem_compare(row->low, row->high, NULL) == 0;
}

static bool is_all_points(const Intervals *intervals) {
    for (uint32_t i = 0; i < intervals->count; i++)
        if (!is_point(&intervals->rows[i]))
            return false;
    return true;
}

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

static void add_key_range(RangeBuilder *rb, uint32_t point_count, const Interval *last) {
    bool is_descending = last != NULL && rb->index->fields[point_count].is_descending;
    key_builder_reset(&rb->low, rb->index->order);
    key_builder_reset(&rb->high, rb->index->order);
    for (uint32_t f = 0; f < point_count; f++) {
        key_append_elem(&rb->low, rb->points[f], NULL);
        key_append_elem(&rb->high, rb->points[f], NULL);
    }
    KeyEnd low_end = KEY_END_BEFORE, high_end = KEY_END_AFTER;
    if (last != NULL) {
        /* In a descending field the higher value comes first. */
        Elem first = is_descending ? last->high : last->low;
        Elem second = is_descending ? last->low : last->high;
        bool is_first_in = is_descending ? last->is_high_inclusive : last->is_low_inclusive;
        bool is_second_in = is_descending ? last->is_low_inclusive : last->is_high_inclusive;
        key_append_elem(&rb->low, first, NULL);
        key_append_elem(&rb->high, second, NULL);
        low_end = is_first_in ? KEY_END_BEFORE : KEY_END_AFTER;
        high_end = is_second_in ? KEY_END_AFTER : KEY_END_BEFORE;
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
    while (bounds->point_fields < index->field_count) {
        const Intervals *list = &bounds->fields[bounds->point_fields];
        if (!is_all_points(list) || total * list->count > BOUNDS_RANGES_MAX)
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
            bounds->fields[range_field] = all_values(arena); /* the filter will do it */
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
}
