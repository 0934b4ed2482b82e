/*
 * window_bounds.c - windows by count of documents or by distance of sort values.
 */
#include "query/agg/window.h"

static ErrCode parse_bounds(Elem window, const WindowParser *wp, WindowBounds *ret, Error *err);
static ErrCode parse_bound(Elem elem, const WindowBounds *bounds, const WindowParser *wp,
                           WindowBound *ret, Error *err);
static ErrCode check_order(const WindowBounds *bounds, Error *err);
static ErrCode move_documents(const WindowBounds *bounds, WindowPartition *p, int64_t at,
                              int64_t *low, int64_t *high, Error *err);
static ErrCode move_range(const WindowBounds *bounds, WindowPartition *p, int64_t at, int64_t *low,
                          int64_t *high, Error *err);

ErrCode window_bounds_parse(const WindowParser *wp, WindowFn *fn, Error *err) {
    return elem_is_present(fn->window) ? parse_bounds(fn->window, wp, &fn->bounds, err) : ERR_OK;
}

static ErrCode parse_bounds(Elem window, const WindowParser *wp, WindowBounds *ret, Error *err) {
    if (elem_type(window) != BT_DOC)
        return error_set(err, ERR_FAILED_TO_PARSE, "'window' field must be an object");
    Elem array = ELEM_MISSING;
    Elem unit = ELEM_MISSING;
    *ret = (WindowBounds){.is_given = true};
    DocIter iter = doc_iter(elem_doc(window));
    for (Elem elem; doc_iter_next(&iter, &elem);) {
        bool is_range = elem_name_is(elem, STR("range"));
        if (elem_name_is(elem, STR("unit"))) {
            unit = elem;
        } else if ((is_range || elem_name_is(elem, STR("documents"))) && !elem_is_present(array)) {
            array = elem;
            ret->is_range = is_range;
        } else {
            return error_set(err, ERR_FAILED_TO_PARSE,
                             "'window' field can only contain 'documents' as the only argument or "
                             "'range' with an optional 'unit' field");
        }
    }
    if (elem_is_present(unit) && !ret->is_range)
        return error_set(err, ERR_FAILED_TO_PARSE,
                         "'window' field that specifies 'unit' must also specify 'range'");
    if (!elem_is_present(array)) {
        ret->is_given = false; /* {}: all of the partition */
        return ERR_OK;
    }
    if (elem_is_present(unit)) {
        if (elem_type(unit) != BT_STRING)
            return error_set(err, ERR_FAILED_TO_PARSE, "'unit' must be a string");
        if (!time_unit_parse(elem_str(unit), &ret->unit))
            return error_set(err, ERR_FAILED_TO_PARSE, "unknown time unit value: %s",
                             elem_str(unit).data);
        ret->has_unit = true;
    }
    Elem items[2];
    uint32_t count = 0;
    if (elem_type(array) == BT_ARRAY) {
        iter = doc_iter(elem_doc(array));
        for (Elem elem; doc_iter_next(&iter, &elem); count++)
            if (count < 2)
                items[count] = elem;
    }
    if (count != 2)
        return error_set(err, ERR_FAILED_TO_PARSE, "Window bounds must be a 2-element array: %s",
                         elem_name(array));
    TRY(parse_bound(items[0], ret, wp, &ret->lower, err));
    TRY(parse_bound(items[1], ret, wp, &ret->upper, err));
    TRY(check_order(ret, err));
    bool is_unbounded = ret->lower.kind == BOUND_UNBOUNDED && ret->upper.kind == BOUND_UNBOUNDED;
    if (!ret->is_range && !is_unbounded && wp->sort_by == NULL)
        return error_set(err, (ErrCode)5339901, "Document-based bounds require a sortBy");
    if (ret->is_range && window_sort_count(wp) != 1)
        return error_set(err, (ErrCode)5339902, "Range-based bounds require sortBy a single field");
    if (ret->is_range && wp->sort_by->count == 0)
        return error_set(err, (ErrCode)8947400, "Range-based bounds require a sortBy of a field");
    if (ret->is_range && wp->sort_by->parts[0].is_descending)
        return error_set(err, (ErrCode)8947401, "Range-based bounds require an ascending sortBy");
    return ERR_OK;
}

static ErrCode parse_bound(Elem elem, const WindowBounds *bounds, const WindowParser *wp,
                           WindowBound *ret, Error *err) {
    *ret = (WindowBound){.kind = BOUND_OFFSET, .range = value_i32(0)};
    if (elem_type(elem) == BT_STRING && str_is(elem_str(elem), "unbounded")) {
        ret->kind = BOUND_UNBOUNDED;
        return ERR_OK;
    }
    if (elem_type(elem) == BT_STRING && str_is(elem_str(elem), "current"))
        return ERR_OK;
    Expr *expr;
    Value value;
    TRY(expr_parse(elem, &wp->agg->ctx->expr, wp->agg->arena, &expr, err));
    if (!expr_is_literal(expr, &value) || !value_is_number(value))
        return error_set(err, ERR_FAILED_TO_PARSE,
                         bounds->is_range ? "Range-based bounds expression must be a number"
                                          : "Numeric document-based bounds must be an integer");
    ret->range = value;
    bool is_whole = number_is_exact_i64(value_as_number(value), &ret->documents);
    if (bounds->is_range && bounds->has_unit && !is_whole)
        return error_set(err, ERR_FAILED_TO_PARSE,
                         "With 'unit', range-based bounds must be an integer");
    if (!bounds->is_range &&
        (!is_whole || ret->documents < INT32_MIN || ret->documents > INT32_MAX))
        return error_set(err, ERR_FAILED_TO_PARSE,
                         "Numeric document-based bounds must be an integer");
    return ERR_OK;
}

static ErrCode check_order(const WindowBounds *bounds, Error *err) {
    if (bounds->lower.kind == BOUND_UNBOUNDED || bounds->upper.kind == BOUND_UNBOUNDED ||
        values_compare(bounds->lower.range, bounds->upper.range, NULL) <= 0)
        return ERR_OK;
    return error_set(err, (ErrCode)5339900, "Lower bound must not exceed upper bound");
}

ErrCode window_bounds_move(const WindowBounds *bounds, WindowPartition *p, int64_t at, int64_t *low,
                           int64_t *high, Error *err) {
    if (bounds->is_given && bounds->is_range)
        return move_range(bounds, p, at, low, high, err);
    return move_documents(bounds, p, at, low, high, err);
}

static ErrCode fetch_all(WindowPartition *p, int64_t *high, Error *err) {
    for (bool found = !p->is_complete; found;)
        TRY(window_fetch(p, p->end, &found, err));
    *high = p->end;
    return ERR_OK;
}

static ErrCode move_documents(const WindowBounds *bounds, WindowPartition *p, int64_t at,
                              int64_t *low, int64_t *high, Error *err) {
    if (bounds->upper.kind == BOUND_UNBOUNDED) {
        TRY(fetch_all(p, high, err));
    } else {
        int64_t last = at + bounds->upper.documents;
        bool found = true;
        if (last >= 0)
            TRY(window_fetch(p, last, &found, err));
        *high = last < 0 ? 0 : found ? last + 1 : p->end;
    }
    if (bounds->lower.kind != BOUND_UNBOUNDED) {
        int64_t begin = at + bounds->lower.documents;
        *low = begin < 0 ? 0 : begin > *high ? *high : begin;
    }
    return ERR_OK;
}

/* The sort value of a window's bound, as a date's milliseconds or a number. */
static ErrCode add_bound(const WindowBounds *bounds, Value value, const WindowBound *bound,
                         Number *ret, Error *err) {
    if (!bounds->has_unit) {
        number_add(value_as_number(value), value_as_number(bound->range),
                   /* is_widening_to_double= */ true, ret);
        return ERR_OK;
    }
    int64_t ms;
    TimeZone utc = TIME_ZONE_UTC;
    if (!date_add(value.i64, bounds->unit, bound->documents, &utc, &ms))
        return error_set(err, (ErrCode)5166406, "window bound overflowed");
    *ret = number_i64(ms);
    return ERR_OK;
}

static ErrCode range_value(const WindowBounds *bounds, WindowPartition *p, int64_t index,
                           Value *ret, Error *err) {
    TRY(window_sort_value(p, index, ret, err));
    if (bounds->has_unit && ret->type != BT_DATE)
        return error_set(err, (ErrCode)5429513,
                         "Invalid range: Expected the sortBy field to be a Date, but it was %s",
                         bson_type_name(ret->type));
    if (!bounds->has_unit && ret->type == BT_DATE)
        return error_set(err, (ErrCode)5429413,
                         "Invalid range: For windows that involve date or time ranges, a unit must "
                         "be provided.");
    if (!bounds->has_unit && !value_is_number(*ret))
        return error_set(err, (ErrCode)5429414,
                         "Invalid range: Expected the sortBy field to be a number, but it was %s",
                         bson_type_name(ret->type));
    return ERR_OK;
}

static Number number_of(const WindowBounds *bounds, Value value) {
    return bounds->has_unit ? number_i64(value.i64) : value_as_number(value);
}

static ErrCode move_range(const WindowBounds *bounds, WindowPartition *p, int64_t at, int64_t *low,
                          int64_t *high, Error *err) {
    Value current;
    TRY(range_value(bounds, p, at, &current, err));
    Number limit;
    Value value;
    if (bounds->upper.kind == BOUND_UNBOUNDED) {
        TRY(fetch_all(p, high, err));
    } else {
        TRY(add_bound(bounds, current, &bounds->upper, &limit, err));
        while (true) {
            bool found;
            TRY(window_fetch(p, *high, &found, err));
            if (!found)
                break;
            TRY(range_value(bounds, p, *high, &value, err));
            if (number_compare(number_of(bounds, value), limit) > 0)
                break;
            ++*high;
        }
    }
    if (bounds->lower.kind == BOUND_UNBOUNDED)
        return ERR_OK;
    TRY(add_bound(bounds, current, &bounds->lower, &limit, err));
    for (; *low < *high; ++*low) {
        TRY(range_value(bounds, p, *low, &value, err));
        if (number_compare(number_of(bounds, value), limit) >= 0)
            break;
    }
    return ERR_OK;
}
