#include "query/interval/intervals.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bson/index_hash.h"
#include "query/match/regex.h"

/* The least value of each type, in canonical order: the end of one bracket is the start of the
 * next. */
static const uint8_t MIN_KEY[] = {BT_MIN_KEY, 0};
static const uint8_t UNDEFINED[] = {BT_UNDEFINED, 0};
static const uint8_t NULL_VALUE[] = {BT_NULL, 0};
static const uint8_t NAN_VALUE[] = {BT_DOUBLE, 0, 0, 0, 0, 0, 0, 0, 0xF8, 0x7F};
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

static bool add_equality(Intervals *list, Elem value);
static bool add_range(Intervals *list, MatchKind kind, Elem operand, bool has_arrays);
static IntervalFit of_expr_order(const MatchExpr *expr, Intervals *list);
static bool of_in(const MatchExpr *expr, const IntervalContext *ctx, Intervals *ret_list);
static bool of_type(const MatchExpr *expr, const IntervalContext *ctx, Intervals *ret_list);
static void of_regex(const MatchRegex *regex, const IntervalContext *ctx, Intervals *list);
static bool of_elem_match(const MatchExpr *expr, const IntervalContext *ctx, Intervals *ret_list);
static void complement(Intervals *list, const IntervalContext *ctx);
static IntervalFit fit_of_value(Elem value, bool has_arrays);
static IntervalFit fit_of_in(const MatchIn *in, bool has_arrays, bool is_dotted);
static Elem string_elem(Str text, Arena *arena);
static void sort_and_merge(Intervals *list, const Collator *collator);

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

Intervals intervals_all(Arena *arena) {
    Intervals list = list_of(arena, 1);
    add_interval(&list, STATIC_ELEM(MIN_KEY), true, STATIC_ELEM(MAX_KEY), true);
    list.is_all = true;
    return list;
}

bool interval_is_point(const Interval *row, const Collator *collator) {
    return row->is_low_inclusive && row->is_high_inclusive &&
           elem_compare(row->low, row->high, collator) == 0;
}

bool intervals_are_points(const Intervals *list, const Collator *collator) {
    for (uint32_t i = 0; i < list->count; i++)
        if (!interval_is_point(&list->rows[i], collator))
            return false;
    return true;
}

bool intervals_are_without_text(const Intervals *list) {
    for (uint32_t i = 0; i < list->count; i++) {
        const Interval *row = &list->rows[i];
        bool is_before = elem_compare(row->high, STATIC_ELEM(EMPTY_STRING), NULL) < 0;
        bool is_behind = elem_compare(row->low, STATIC_ELEM(EMPTY_BINARY), NULL) >= 0;
        if (!is_before && !is_behind)
            return false;
    }
    return true;
}

bool intervals_of_predicate(Predicate predicate, const IntervalContext *ctx, Intervals *ret_list,
                            IntervalFit *ret_fit) {
    const MatchExpr *expr = predicate.expr;
    /* Arrays around the element that an $elemMatch judges do not matter. */
    bool has_arrays =
        (predicate.above_parts < 32 ? ctx->arrays >> predicate.above_parts : ctx->arrays) != 0;
    *ret_list = list_of(ctx->arena, 2);
    *ret_fit = INTERVAL_FIT_WIDE;
    switch (expr->kind) {
    case MATCH_EQ:
        if (!add_equality(ret_list, expr->operand))
            return false;
        *ret_fit = fit_of_value(expr->operand, has_arrays);
        break;
    case MATCH_LT:
    case MATCH_LTE:
    case MATCH_GT:
    case MATCH_GTE:
        if (!add_range(ret_list, expr->kind, expr->operand, has_arrays))
            return false;
        *ret_fit = fit_of_value(expr->operand, has_arrays);
        break;
    case MATCH_EXPR_LT:
    case MATCH_EXPR_LTE:
    case MATCH_EXPR_GT:
    case MATCH_EXPR_GTE:
        if (ctx->arrays != 0) /* keys have the elements, the condition is about the whole */
            return false;
        *ret_fit = of_expr_order(expr, ret_list);
        break;
    case MATCH_IN:
        if (!of_in(expr, ctx, ret_list))
            return false;
        *ret_fit = fit_of_in(&expr->in, has_arrays, ctx->is_dotted);
        break;
    case MATCH_REGEX:
        if (ctx->collator != NULL)
            return false; /* sort keys do not show the text */
        *ret_list = list_of(ctx->arena, 3);
        of_regex(expr->regex, ctx, ret_list);
        *ret_fit = expr->regex->is_prefix_only ? INTERVAL_FIT_EXACT : INTERVAL_FIT_WIDE;
        break;
    case MATCH_TYPE:
        if (!of_type(expr, ctx, ret_list))
            return false;
        break;
    case MATCH_MOD:
        add_interval(ret_list, STATIC_ELEM(NAN_VALUE), true, STATIC_ELEM(PLUS_INF), true);
        break;
    case MATCH_EXISTS:
        if (!predicate.is_negated && ctx->is_sparse) {
            add_interval(ret_list, STATIC_ELEM(MIN_KEY), true, STATIC_ELEM(MAX_KEY), true);
            *ret_fit = INTERVAL_FIT_EXACT;
            return true;
        }
        if (!predicate.is_negated)
            return false;
        add_point(ret_list, STATIC_ELEM(NULL_VALUE)); /* what is missing is indexed as null */
        return true;
    case MATCH_ELEM_MATCH_VALUE:
        return !predicate.is_negated && of_elem_match(expr, ctx, ret_list);
    default:
        return false;
    }
    sort_and_merge(ret_list, ctx->collator);
    if (!predicate.is_negated)
        return true;
    /* What is not in a list that is too wide may still match: only exact ones are turned over. An
     * array with a value out of the list may have others. */
    if (*ret_fit == INTERVAL_FIT_WIDE)
        return false;
    complement(ret_list, ctx);
    *ret_fit = has_arrays ? INTERVAL_FIT_WIDE : INTERVAL_FIT_EXACT;
    return true;
}

bool intervals_hash(Intervals *list, const IntervalContext *ctx) {
    if (list->is_all || !intervals_are_points(list, ctx->collator))
        return false;
    Intervals hashed = list_of(ctx->arena, list->count);
    for (uint32_t i = 0; i < list->count; i++) {
        int64_t hash = index_hash_collated(list->rows[i].low, ctx->collator);
        uint8_t *bytes = arena_alloc(ctx->arena, 2 + sizeof(hash));
        bytes[0] = BT_INT64;
        bytes[1] = '\0';
        memcpy(bytes + 2, &hash, sizeof(hash));
        add_point(&hashed, (Elem){bytes, 0});
    }
    sort_and_merge(&hashed, NULL);
    *list = hashed;
    return true;
}

Intervals intervals_of_path(Str path, bool is_subtree, Arena *arena) {
    Intervals list = list_of(arena, 2);
    add_point(&list, string_elem(path, arena));
    if (is_subtree) { /* what begins with "path.": up to the character behind the dot */
        Str below = {arena_printf(arena, "%.*s.", (int)path.size, path.data), path.size + 1};
        Str end = {arena_printf(arena, "%.*s/", (int)path.size, path.data), path.size + 1};
        add_interval(&list, string_elem(below, arena), true, string_elem(end, arena), false);
    }
    return list;
}

Intervals intervals_of_paths(const Str *paths, uint32_t count, Arena *arena) {
    Intervals list = list_of(arena, count);
    for (uint32_t i = 0; i < count; i++)
        add_point(&list, string_elem(paths[i], arena));
    return list;
}

void intervals_add_type(Intervals *list, Elem value, const IntervalContext *ctx) {
    Interval added = {.is_low_inclusive = true, .is_high_inclusive = true};
    intervals_type_range(value, &added.low, &added.high);
    Intervals out = list_of(ctx->arena, list->count + 1);
    uint32_t i = 0;
    while (i < list->count && elem_compare(list->rows[i].high, added.low, ctx->collator) < 0)
        out.rows[out.count++] = list->rows[i++];
    for (; i < list->count && elem_compare(list->rows[i].low, added.high, ctx->collator) <= 0;
         i++) {
        const Interval *row = &list->rows[i];
        if (elem_compare(row->low, added.low, ctx->collator) < 0) {
            added.low = row->low;
            added.is_low_inclusive = row->is_low_inclusive;
        }
        if (elem_compare(row->high, added.high, ctx->collator) > 0) {
            added.high = row->high;
            added.is_high_inclusive = row->is_high_inclusive;
        }
    }
    out.rows[out.count++] = added;
    while (i < list->count)
        out.rows[out.count++] = list->rows[i++];
    *list = out;
}

void intervals_intersect(Intervals *list, const Intervals *other, const IntervalContext *ctx) {
    Intervals out = list_of(ctx->arena, list->count + other->count + 1);
    uint32_t i = 0, j = 0;
    while (i < list->count && j < other->count) {
        const Interval *x = &list->rows[i], *y = &other->rows[j];
        int low = elem_compare(x->low, y->low, ctx->collator);
        int high = elem_compare(x->high, y->high, ctx->collator);
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
        int rc = elem_compare(cut.low, cut.high, ctx->collator);
        if (rc < 0 || (rc == 0 && cut.is_low_inclusive && cut.is_high_inclusive))
            out.rows[out.count++] = cut;
        /* Of two that end at the same value the inclusive one may go on with the next. */
        bool is_x_done =
            high < 0 || (high == 0 && !x->is_high_inclusive) || (high == 0 && y->is_high_inclusive);
        if (is_x_done)
            i++;
        else
            j++;
    }
    *list = out;
}

/* ---- single predicates ---- */

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
        {BT_REGEX, EMPTY_REGEX, MAX_KEY},
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

void intervals_type_range(Elem value, Elem *ret_low, Elem *ret_high) {
    bool is_end_in;
    if (elem_type(value) == BT_ARRAY) {
        *ret_low = STATIC_ELEM(EMPTY_ARRAY);
        *ret_high = STATIC_ELEM(EMPTY_BINARY);
    } else if (!type_bracket(elem_type(value), ret_low, ret_high, &is_end_in)) {
        *ret_low = STATIC_ELEM(MIN_KEY);
        *ret_high = STATIC_ELEM(MAX_KEY);
    }
    if (elem_is_number(value)) /* which is below the others, and not comparable with them */
        *ret_low = STATIC_ELEM(NAN_VALUE);
}

static bool is_nan_elem(Elem elem) {
    return elem_is_number(elem) && isnan(elem_as_f64(elem));
}

/* Most values are found under exactly their own key, and nothing else is. Empty arrays have the key
 * of undefined, and an array stands for all its elements. */
static IntervalFit fit_of_value(Elem value, bool has_arrays) {
    switch (elem_type(value)) {
    case BT_NULL:
    case BT_UNDEFINED:
        return has_arrays ? INTERVAL_FIT_WIDE : INTERVAL_FIT_NULL;
    case BT_MIN_KEY:
    case BT_MAX_KEY:
        return has_arrays ? INTERVAL_FIT_WIDE : INTERVAL_FIT_EXACT;
    case BT_ARRAY:
    case BT_REGEX:
        return INTERVAL_FIT_WIDE;
    default:
        return INTERVAL_FIT_EXACT;
    }
}

static bool is_empty_array(Elem value) {
    return elem_type(value) == BT_ARRAY && doc_is_empty(elem_doc(value));
}

/* Null and [] together are what the keys null and undefined stand for, unless the array is in front
 * of the last part. */
static IntervalFit fit_of_in(const MatchIn *in, bool has_arrays, bool is_dotted) {
    bool has_empty_array = false;
    for (uint32_t i = 0; i < in->value_count; i++)
        has_empty_array |= is_empty_array(in->values[i]);
    bool is_null_exact = !has_arrays || (has_empty_array && !is_dotted);
    IntervalFit fit = INTERVAL_FIT_EXACT;
    for (uint32_t i = 0; i < in->regex_count; i++)
        if (!in->regexes[i]->is_prefix_only)
            return INTERVAL_FIT_WIDE;
    for (uint32_t i = 0; i < in->value_count; i++) {
        Elem value = in->values[i];
        IntervalFit one = is_empty_array(value) && in->has_null && is_null_exact
                              ? INTERVAL_FIT_NULL_OR_EMPTY
                              : fit_of_value(value, has_arrays && !is_null_exact);
        if (one == INTERVAL_FIT_NULL && has_empty_array)
            one = INTERVAL_FIT_NULL_OR_EMPTY;
        fit = one < fit ? one : fit;
    }
    return fit;
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

/* An array is compared with MinKey and MaxKey as a whole, too: [MaxKey] is less than MaxKey, though
 * its key is not. */
static bool add_range(Intervals *list, MatchKind kind, Elem operand, bool has_arrays) {
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
    if (type == BT_MIN_KEY || type == BT_MAX_KEY) { /* compared with values of all types */
        low = STATIC_ELEM(MIN_KEY);
        end = STATIC_ELEM(MAX_KEY);
        is_end_in = true;
    } else if (!type_bracket(type, &low, &end, &is_end_in)) {
        return false;
    }
    /* Nothing is below the least value and nothing above the greatest. */
    if ((kind == MATCH_LT && type == BT_MIN_KEY) || (kind == MATCH_GT && type == BT_MAX_KEY))
        return true;
    switch (kind) {
    case MATCH_LT:
        add_interval(list, low, true, operand, type == BT_MAX_KEY && has_arrays);
        return true;
    case MATCH_LTE:
        add_interval(list, low, true, operand, true);
        return true;
    case MATCH_GT:
        add_interval(list, operand, type == BT_MIN_KEY && has_arrays, end, is_end_in);
        return true;
    case MATCH_GTE:
        add_interval(list, operand, true, end, is_end_in);
        return true;
    default:
        return false;
    }
}

/* From one end of all types to the operand. The key of null stands for what is missing, too, which
 * comes right before null. */
static IntervalFit of_expr_order(const MatchExpr *expr, Intervals *list) {
    bool is_null = elem_type(expr->operand) == BT_NULL;
    switch (expr->kind) {
    case MATCH_EXPR_LT:
        add_interval(list, STATIC_ELEM(MIN_KEY), true, expr->operand, is_null);
        return is_null ? INTERVAL_FIT_WIDE : INTERVAL_FIT_EXACT;
    case MATCH_EXPR_LTE:
        add_interval(list, STATIC_ELEM(MIN_KEY), true, expr->operand, true);
        return INTERVAL_FIT_EXACT;
    case MATCH_EXPR_GT:
        add_interval(list, expr->operand, false, STATIC_ELEM(MAX_KEY), true);
        return INTERVAL_FIT_EXACT;
    default:
        add_interval(list, expr->operand, true, STATIC_ELEM(MAX_KEY), true);
        return is_null ? INTERVAL_FIT_WIDE : INTERVAL_FIT_EXACT;
    }
}

static bool of_in(const MatchExpr *expr, const IntervalContext *ctx, Intervals *ret_list) {
    if (expr->in.regex_count > 0 && ctx->collator != NULL)
        return false;
    *ret_list = list_of(ctx->arena, expr->in.value_count * 2 + expr->in.regex_count * 3 + 2);
    for (uint32_t i = 0; i < expr->in.value_count; i++)
        if (!add_equality(ret_list, expr->in.values[i]))
            return false;
    for (uint32_t i = 0; i < expr->in.regex_count; i++)
        of_regex(expr->in.regexes[i], ctx, ret_list);
    return true;
}

static Elem string_elem(Str text, Arena *arena) {
    uint8_t *bytes = arena_alloc(arena, text.size + 7);
    uint32_t size = (uint32_t)text.size + 1;
    bytes[0] = BT_STRING;
    bytes[1] = '\0';
    memcpy(bytes + 2, &size, sizeof(size));
    memcpy(bytes + 6, text.data, text.size);
    bytes[6 + text.size] = '\0';
    return (Elem){bytes, 0};
}

static Elem regex_elem(Str pattern, Str options, Arena *arena) {
    uint8_t *bytes = arena_alloc(arena, pattern.size + options.size + 4);
    bytes[0] = BT_REGEX;
    bytes[1] = '\0';
    memcpy(bytes + 2, pattern.data, pattern.size);
    bytes[2 + pattern.size] = '\0';
    memcpy(bytes + 3 + pattern.size, options.data, options.size);
    bytes[3 + pattern.size + options.size] = '\0';
    return (Elem){bytes, 0};
}

/* The least string above all that begin with the prefix; empty: there is none. */
static Str after_prefix(Str prefix, Arena *arena) {
    char *text = arena_memdup(arena, prefix.data, prefix.size);
    size_t size = prefix.size;
    while (size > 0 && (uint8_t)text[size - 1] == 0xFF)
        size--;
    if (size > 0)
        text[size - 1]++;
    return (Str){text, size};
}

/* Strings that may match, and the expression itself, which a stored one equals. */
static void of_regex(const MatchRegex *regex, const IntervalContext *ctx, Intervals *list) {
    Str end = after_prefix(regex->prefix, ctx->arena);
    Elem low =
        regex->prefix.size > 0 ? string_elem(regex->prefix, ctx->arena) : STATIC_ELEM(EMPTY_STRING);
    Elem high = end.size > 0 ? string_elem(end, ctx->arena) : STATIC_ELEM(EMPTY_DOC);
    add_interval(list, low, true, high, false);
    add_point(list, regex_elem(regex->pattern, regex->options, ctx->arena));
}

/* Types with a bracket of their own; the others leave the index unrestricted. */
static bool of_type(const MatchExpr *expr, const IntervalContext *ctx, Intervals *ret_list) {
    *ret_list = list_of(ctx->arena, 64);
    for (uint32_t bit = 0; bit < 32; bit++) {
        if ((expr->type_set >> bit & 1) == 0)
            continue;
        if (bit == MATCH_TYPE_BIT_MIN_KEY || bit == MATCH_TYPE_BIT_MAX_KEY) {
            add_point(ret_list, STATIC_ELEM(bit == MATCH_TYPE_BIT_MIN_KEY ? MIN_KEY : MAX_KEY));
            continue;
        }
        BsonType type = (BsonType)bit;
        Elem low, end;
        bool is_end_in;
        if (type == BT_NULL || type == BT_UNDEFINED) {
            add_point(ret_list, STATIC_ELEM(type == BT_NULL ? NULL_VALUE : UNDEFINED));
        } else if (type == BT_ARRAY) { /* found by its elements, which can be anything */
            add_interval(ret_list, STATIC_ELEM(MIN_KEY), true, STATIC_ELEM(MAX_KEY), true);
        } else if (type_bracket(type, &low, &end, &is_end_in)) {
            bool is_number = is_end_in;
            add_interval(ret_list, is_number ? STATIC_ELEM(NAN_VALUE) : low, true, end, is_end_in);
        } else { /* rare types behind regular expressions */
            add_interval(ret_list, STATIC_ELEM(EMPTY_REGEX), true, STATIC_ELEM(MAX_KEY), false);
        }
    }
    return true;
}

/* All conditions hold for one element, so any one of them restricts; ranges of one element may be
 * cut with each other. */
static bool of_elem_match(const MatchExpr *expr, const IntervalContext *ctx, Intervals *ret_list) {
    *ret_list = intervals_all(ctx->arena);
    IntervalContext of_element = *ctx; /* which is judged by itself */
    of_element.arrays = 0;
    for (uint32_t i = 0; i < expr->child_count; i++) {
        Intervals child;
        IntervalFit fit;
        Predicate predicate = {.expr = expr->children[i]};
        if (predicate.expr->kind == MATCH_NOT) {
            predicate.expr = predicate.expr->children[0];
            predicate.is_negated = true;
        }
        /* A second $elemMatch looks into arrays inside the array, which are indexed as a whole. */
        MatchKind kind = predicate.expr->kind;
        if (kind == MATCH_ELEM_MATCH_VALUE || kind == MATCH_ELEM_MATCH_OBJECT ||
            kind == MATCH_EXISTS || !intervals_of_predicate(predicate, &of_element, &child, &fit))
            continue;
        intervals_intersect(ret_list, &child, ctx);
        ret_list->is_all = false;
    }
    return !ret_list->is_all;
}

static void complement(Intervals *list, const IntervalContext *ctx) {
    Intervals out = list_of(ctx->arena, list->count + 1);
    Elem low = STATIC_ELEM(MIN_KEY);
    bool is_low_inclusive = true;
    for (uint32_t i = 0; i < list->count; i++) {
        const Interval *row = &list->rows[i];
        int rc = elem_compare(low, row->low, ctx->collator);
        if (rc < 0 || (rc == 0 && is_low_inclusive && !row->is_low_inclusive))
            add_interval(&out, low, is_low_inclusive, row->low, !row->is_low_inclusive);
        low = row->high;
        is_low_inclusive = !row->is_high_inclusive;
    }
    add_interval(&out, low, is_low_inclusive, STATIC_ELEM(MAX_KEY), true);
    *list = out;
}

/* ---- order ---- */

static int compare_intervals(const void *a, const void *b, void *collator) {
    const Interval *x = a, *y = b;
    int rc = elem_compare(x->low, y->low, collator);
    return rc != 0 ? rc : (int)y->is_low_inclusive - (int)x->is_low_inclusive;
}

static void sort_and_merge(Intervals *list, const Collator *collator) {
    if (list->count < 2)
        return;
    qsort_r(list->rows, list->count, sizeof(*list->rows), compare_intervals, (void *)collator);
    uint32_t kept = 0;
    for (uint32_t i = 1; i < list->count; i++) {
        Interval *last = &list->rows[kept];
        Interval *next = &list->rows[i];
        int rc = elem_compare(next->low, last->high, collator);
        bool is_touching =
            rc < 0 || (rc == 0 && (next->is_low_inclusive || last->is_high_inclusive));
        if (!is_touching) {
            list->rows[++kept] = *next;
            continue;
        }
        int high = elem_compare(next->high, last->high, collator);
        if (high > 0) {
            last->high = next->high;
            last->is_high_inclusive = next->is_high_inclusive;
        } else if (high == 0) {
            last->is_high_inclusive |= next->is_high_inclusive;
        }
    }
    list->count = kept + 1;
}
