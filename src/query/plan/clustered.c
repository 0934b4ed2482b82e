/* clustered.c - what the order of a clustered collection is good for: ranges of its records, for
 * filters on _id and for min and max, and sorts by _id. */
#include <math.h>

#include "bson/collator.h"
#include "index/key_gen.h"
#include "query/plan/planner_internal.h"

enum {
    LOCATION_MIN_MAX_COLLATION = 6137400,
    LOCATION_MIN_MAX_ORDER = 6137401,
};

static void bound_by_filter(Planning *p, const Intervals *found, ScanOptions *options);
static ErrCode bound_by_min_max(Planning *p, ScanOptions *options, Error *err);
static Elem least_of_type(const Planning *p, Elem low);
static Elem end_of_type(const Planning *p, Elem high);
static ErrCode show_key(Planning *p, Elem *value, Error *err);
static RecordId record_of(Planning *p, Elem id);

bool clustered_is_hinted(const Collection *coll, Elem hint) {
    if (!coll->options.is_clustered)
        return false;
    if (elem_type(hint) == BT_STRING)
        return str_is(elem_str(hint), coll->options.clustered_name);
    Elem direction = doc_get_lit(elem_doc(hint), "_id");
    return elem_is_number(direction) && elem_as_f64(direction) == 1 &&
           doc_count(elem_doc(hint)) == 1;
}

/* The values of _id that the filter allows; false: it does not restrict them. */
static bool find_intervals(const Planning *p, Intervals *ret_found) {
    if (!bounds_for_records(p->filter, STR("_id"), p->collator, &p->exec->arena, ret_found))
        return false;
    /* No document has it as _id; it is in the list for the sake of arrays in other fields. */
    while (ret_found->count > 0 && elem_type(ret_found->rows[0].high) == BT_UNDEFINED) {
        ret_found->rows++;
        ret_found->count--;
    }
    return true;
}

/* Do these values have the same order under every collation? */
static bool are_free_of_text(const Intervals *found) {
    for (uint32_t i = 0; i < found->count; i++) {
        const Interval *row = &found->rows[i];
        Intervals one = {.rows = &found->rows[i], .count = 1};
        bool is_plain_point = !elem_has_text(row->low) && interval_is_point(row, NULL);
        if (!is_plain_point && !intervals_are_without_text(&one))
            return false;
    }
    return true;
}

int clustered_sort_direction(const Planning *p) {
    const SortPattern *sort = p->sort;
    if (!p->coll->options.is_clustered || sort == NULL || sort->count != 1 ||
        !str_is(sort->parts[0].path.dotted, "_id"))
        return 0;
    Intervals found;
    if (p->collator != p->coll->options.collator &&
        (!find_intervals(p, &found) || !are_free_of_text(&found)))
        return 0;
    return sort->parts[0].is_descending ? -1 : 1;
}

ErrCode clustered_scan(Planning *p, bool is_forward, PlanStage **ret_stage, Error *err) {
    ScanOptions options = {.filter = p->filter, .is_forward = is_forward};
    Intervals found;
    if (find_intervals(p, &found)) {
        if (found.count == 0) {
            *ret_stage = stage_nothing(p->exec);
            return ERR_OK;
        }
        bound_by_filter(p, &found, &options);
    }
    TRY(bound_by_min_max(p, &options, err));
    if (p->spec->is_explain) {
        TRY(show_key(p, &options.low_value, err));
        TRY(show_key(p, &options.high_value, err));
    }
    bool is_bounded = !record_id_is_none(options.low) || !record_id_is_none(options.high);
    *ret_stage = is_bounded ? stage_collection_scan(p->exec, p->coll, &options) : NULL;
    return ERR_OK;
}

/* From the lowest to the highest value; the filter does the rest. */
static void bound_by_filter(Planning *p, const Intervals *found, ScanOptions *options) {
    const Interval *first = &found->rows[0], *last = &found->rows[found->count - 1];
    options->low_value = least_of_type(p, first->low);
    options->low = record_of(p, options->low_value);
    options->high_value = end_of_type(p, last->high);
    options->high = record_of(p, options->high_value);
    options->is_high_exclusive =
        options->high_value.data == last->high.data && !last->is_high_inclusive;
}

static ErrCode find_min_max(const Planning *p, Doc bound, Elem *ret_value, Error *err) {
    *ret_value = ELEM_MISSING;
    if (!doc_is_present(bound) || doc_is_empty(bound))
        return ERR_OK;
    Elem value = doc_get_lit(bound, "_id");
    if (!elem_is_present(value) || doc_count(bound) != 1)
        return error_set(err, (ErrCode)51174,
                         "the clustered index of \"%s\" is not compatible with min/max: its only "
                         "field is _id",
                         p->coll->ns.text);
    if (p->collator != p->coll->options.collator && elem_has_text(value))
        return error_set(err, (ErrCode)LOCATION_MIN_MAX_COLLATION,
                         "the clustered index of \"%s\" has another collation than min/max, which "
                         "have text",
                         p->coll->ns.text);
    *ret_value = elem_copy(value, &p->exec->arena);
    return ERR_OK;
}

/* min is inclusive, max exclusive; they restrict what the filter has left. */
static ErrCode bound_by_min_max(Planning *p, ScanOptions *options, Error *err) {
    Elem min, max;
    TRY(find_min_max(p, p->spec->min, &min, err));
    TRY(find_min_max(p, p->spec->max, &max, err));
    RecordId low = elem_is_present(min) ? record_of(p, min) : (RecordId){0};
    RecordId high = elem_is_present(max) ? record_of(p, max) : (RecordId){0};
    if (elem_is_present(min) && elem_is_present(max) && record_id_compare(low, high) >= 0)
        return error_set(err, (ErrCode)LOCATION_MIN_MAX_ORDER, "max must be greater than min");
    if (elem_is_present(min) &&
        (record_id_is_none(options->low) || record_id_compare(low, options->low) > 0)) {
        options->low = low;
        options->low_value = min;
    }
    if (elem_is_present(max) &&
        (record_id_is_none(options->high) || record_id_compare(high, options->high) <= 0)) {
        options->high = high;
        options->high_value = max;
        options->is_high_exclusive = true;
    }
    return ERR_OK;
}

/* Records have the order of the collection's collation: for a query with another one, text says no
 * more than its type. */
static bool is_order_other(const Planning *p, Elem value) {
    return p->collator != p->coll->options.collator && elem_has_text(value);
}

/* What is open below includes NaN, as no comparison does. */
static Elem least_of_type(const Planning *p, Elem low) {
    bool is_open_number = elem_is_number(low) && elem_as_f64(low) == -INFINITY;
    Elem least, end;
    intervals_type_range(low, &least, &end);
    return is_open_number || is_order_other(p, low) ? least : low;
}

static Elem end_of_type(const Planning *p, Elem high) {
    Elem least, end;
    intervals_type_range(high, &least, &end);
    return is_order_other(p, high) ? end : high;
}

static RecordId record_of(Planning *p, Elem id) {
    Arena *arena = &p->exec->arena;
    KeyBuilder kb;
    key_builder_init_arena(&kb, arena);
    RecordId rid;
    clustered_record_id_of_value(id, p->coll->options.collator, &kb, &rid);
    rid.str = arena_memdup(arena, rid.str, rid.str_size);
    return rid;
}

/* Text shows as what the collation makes of it: that is what bounds the scan. */
static ErrCode show_key(Planning *p, Elem *value, Error *err) {
    const Collator *collator = p->coll->options.collator;
    if (collator == NULL || !elem_is_present(*value) || !elem_has_text(*value))
        return ERR_OK;
    Arena *arena = &p->exec->arena;
    KeyBuilder kb;
    key_builder_init_arena(&kb, arena);
    key_builder_reset(&kb, 0);
    key_append_elem(&kb, *value, collator);
    key_append_end(&kb, KEY_END_EXACT);
    Str bits = key_type_bits(&kb);
    Doc shown;
    TRY(key_decode(kb.key.data, kb.key.size, (const uint8_t *)bits.data, bits.size, 0, arena,
                   &shown, err));
    DocIter iter = doc_iter(shown);
    (void)doc_iter_next(&iter, value);
    return ERR_OK;
}
