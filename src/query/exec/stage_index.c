/* stage_index.c - IXSCAN and its kinds (COUNT_SCAN, DISTINCT_SCAN), and FETCH. */
#include <string.h>

#include "bson/compare.h"
#include "query/bounds/wildcard.h"
#include "query/exec/executor.h"
#include "query/exec/key_doc.h"
#include "query/exec/rid_set.h"

typedef struct IndexStage {
    PlanStage base;
    IndexScanOptions options;
    IndexBounds bounds;
    bool was_multikey;                 /* when the plan was made */
    uint32_t arrays[INDEX_FIELDS_MAX]; /* then known multikey paths */
    bool has_repeats;                  /* a record may be found more than once */
    bool is_raw_count;                 /* each key in the ranges counts */
    IndexCursor cursor;
    bool is_open;
    bool is_in_range;
    bool is_skip_due; /* go on behind skip_key */
    bool has_gaps;    /* a field behind those of the ranges is restricted, too */
    uint32_t range;   /* number of ranges begun */
    uint32_t skips;   /* seeks over gaps */
    RidSet seen;
    KeyDoc key_doc;
    KeyBuilder skip_key;
    Arena gap_scratch;
    Arena shown_key; /* if exec->is_key_wanted */
} IndexStage;

static ErrCode open_cursor(IndexStage *scan, Error *err);
static ErrCode next_entry(IndexStage *scan, bool *ret_found, IndexEntry *ret_entry, Error *err);
static ErrCode count_next(IndexStage *scan, bool *ret_found, Error *err);
static ErrCode begin_range(IndexStage *scan, bool *ret_found, Error *err);
static ErrCode check_gaps(IndexStage *scan, const IndexEntry *entry, bool *ret_is_inside,
                          Error *err);
static ErrCode use_key(IndexStage *scan, const IndexEntry *entry, bool *ret_is_match,
                       PlanRow *ret_row, Error *err);
static ErrCode aim_behind_value(IndexStage *scan, const IndexEntry *entry, Error *err);
static ErrCode show_key(IndexStage *scan, const IndexEntry *entry, Doc *ret_key, Error *err);
static ErrCode judge(const MatchExpr *filter, Doc doc, bool *ret_is_match, Error *err);

static int compare_bytes(Str a, Str b) {
    size_t size = a.size < b.size ? a.size : b.size;
    int rc = memcmp(a.data, b.data, size);
    return rc != 0 ? rc : a.size < b.size ? -1 : a.size > b.size;
}

static ErrCode index_next(PlanStage *stage, bool *ret_found, PlanRow *ret_row, Error *err) {
    IndexStage *scan = (IndexStage *)stage;
    *ret_found = false;
    if (UNLIKELY(!scan->is_open))
        TRY(open_cursor(scan, err));
    if (scan->is_raw_count) {
        *ret_row = (PlanRow){.rid = RECORD_ID_NONE, .doc = DOC_EMPTY};
        return count_next(scan, ret_found, err);
    }
    for (;;) {
        TRY(executor_tick(stage->exec, err));
        bool is_found;
        IndexEntry entry;
        TRY(next_entry(scan, &is_found, &entry, err));
        if (!is_found)
            return ERR_OK;
        stage->examined++;
        if (scan->has_gaps) {
            bool is_inside;
            TRY(check_gaps(scan, &entry, &is_inside, err));
            if (!is_inside)
                continue;
        }
        if (scan->has_repeats) {
            bool is_new;
            TRY(rid_set_add(&scan->seen, entry.rid, &is_new, err));
            if (!is_new)
                continue;
        }
        *ret_row =
            (PlanRow){.rid = entry.rid, .doc = scan->options.is_counting ? DOC_EMPTY : DOC_NONE};
        bool is_match = true;
        if (scan->options.key_fields != 0)
            TRY(use_key(scan, &entry, &is_match, ret_row, err));
        if (!is_match)
            continue;
        if (UNLIKELY(stage->exec->is_key_wanted))
            TRY(show_key(scan, &entry, &ret_row->key, err));
        *ret_found = true;
        return scan->options.distinct_fields > 0 ? aim_behind_value(scan, &entry, err) : ERR_OK;
    }
}

static ErrCode open_cursor(IndexStage *scan, Error *err) {
    OpCtx *op = scan->base.exec->access->op;
    TRY(index_cursor_open(op, scan->options.index->store, scan->options.is_forward, &scan->cursor,
                          err));
    scan->is_open = true;
    return ERR_OK;
}

static const KeyRange *current_range(const IndexStage *scan) {
    return &scan->bounds.ranges[scan->options.is_forward ? scan->range - 1
                                                         : scan->bounds.range_count - scan->range];
}

static bool is_in_current_range(const IndexStage *scan, Str key) {
    const KeyRange *range = current_range(scan);
    return scan->options.is_forward ? compare_bytes(key, range->end) < 0
                                    : compare_bytes(key, range->start) > 0;
}

static ErrCode begin_range(IndexStage *scan, bool *ret_found, Error *err) {
    *ret_found = false;
    if (scan->range == scan->bounds.range_count)
        return ERR_OK;
    scan->range++;
    const KeyRange *range = current_range(scan);
    Str start = scan->options.is_forward ? range->start : range->end;
    /* A distinct scan that has passed the beginning of this range goes on from where it is. */
    Str skip = {(const char *)scan->skip_key.key.data, scan->skip_key.key.size};
    int passed = scan->is_skip_due ? compare_bytes(start, skip) : 0;
    if (scan->options.is_forward ? passed < 0 : passed > 0)
        start = skip;
    scan->is_skip_due = false;
    TRY(index_cursor_seek(&scan->cursor, start, err));
    scan->is_in_range = *ret_found = true;
    return ERR_OK;
}

/* The key is behind the current range. False: it is in no range; the next one to begin is the first
 * behind the key. */
static bool move_to_range_of(IndexStage *scan, Str key) {
    for (; scan->range < scan->bounds.range_count; scan->range++) {
        scan->range++;
        bool is_before_end = is_in_current_range(scan, key);
        const KeyRange *range = current_range(scan);
        bool is_behind_start = scan->options.is_forward ? compare_bytes(key, range->start) > 0
                                                        : compare_bytes(key, range->end) < 0;
        if (is_before_end && is_behind_start)
            return true;
        scan->range--;
        if (is_before_end)
            return false;
    }
    return false;
}

/* The next entry inside the bounds. */
static ErrCode next_entry(IndexStage *scan, bool *ret_found, IndexEntry *ret_entry, Error *err) {
    if (scan->is_skip_due && scan->is_in_range) {
        scan->is_skip_due = false;
        Str skip = {(const char *)scan->skip_key.key.data, scan->skip_key.key.size};
        TRY(index_cursor_seek(&scan->cursor, skip, err));
    }
    for (;;) {
        if (!scan->is_in_range) {
            TRY(begin_range(scan, ret_found, err));
            if (!*ret_found)
                return ERR_OK;
        }
        TRY(index_cursor_next(&scan->cursor, ret_found, ret_entry, err));
        if (*ret_found && is_in_current_range(scan, ret_entry->key))
            return ERR_OK;
        /* Past this range's end: on to the next, unless it begins right here. */
        if (*ret_found && move_to_range_of(scan, ret_entry->key))
            return ERR_OK;
        scan->base.examined += *ret_found && (scan->bounds.range_count > 1 || scan->has_gaps);
        scan->is_in_range = false;
    }
}

static ErrCode count_next(IndexStage *scan, bool *ret_found, Error *err) {
    TRY(executor_tick(scan->base.exec, err));
    for (;;) {
        if (UNLIKELY(!scan->is_in_range)) {
            TRY(begin_range(scan, ret_found, err));
            if (!*ret_found)
                return ERR_OK;
        }
        Str key;
        TRY(index_cursor_next_raw(&scan->cursor, ret_found, &key, err));
        if (LIKELY(*ret_found && is_in_current_range(scan, key))) {
            scan->base.examined++;
            return ERR_OK;
        }
        scan->is_in_range = false;
    }
}

/* ---- gaps ----
 *
 * Ranges are made of the first fields, up to the first that is not a list of points. Restrictions
 * of later fields leave gaps inside of a range: a key that lies in one tells where it ends, and the
 * scan goes on from there. */

/* In the order in which the scan meets the values of a field. */
typedef struct GapField {
    const Intervals *list;
    bool is_rising;
} GapField;

static GapField gap_field(const IndexStage *scan, uint32_t field) {
    bool is_descending = scan->options.index->fields[field].is_descending;
    return (GapField){&scan->bounds.fields[field], scan->options.is_forward != is_descending};
}

/* Where the interval begins, in that order. */
static Elem gap_start(const GapField *gap, uint32_t at, bool *ret_is_in) {
    const Interval *row = &gap->list->rows[gap->is_rising ? at : gap->list->count - 1 - at];
    *ret_is_in = gap->is_rising ? row->is_low_inclusive : row->is_high_inclusive;
    return gap->is_rising ? row->low : row->high;
}

/* The interval that the value is in, or the next one behind it; `count`: it is behind all. */
static uint32_t gap_find(const GapField *gap, Elem value, bool *ret_is_inside) {
    *ret_is_inside = true;
    if (gap->list->is_all)
        return 0;
    for (uint32_t i = 0; i < gap->list->count; i++) {
        const Interval *row = &gap->list->rows[gap->is_rising ? i : gap->list->count - 1 - i];
        int to_low = elem_compare(value, row->low, NULL);
        int to_high = elem_compare(value, row->high, NULL);
        bool is_above = to_low > 0 || (to_low == 0 && row->is_low_inclusive);
        bool is_below = to_high < 0 || (to_high == 0 && row->is_high_inclusive);
        if (is_above && is_below)
            return i;
        if (gap->is_rising ? !is_above : !is_below) {
            *ret_is_inside = false;
            return i;
        }
    }
    *ret_is_inside = false;
    return gap->list->count;
}

/* The first place behind the gap: the values before `field` as they are, from `field` on where the
 * intervals begin; with `at` behind the last interval, the next value of the field before. */
static void aim_behind_gap(IndexStage *scan, const Elem *values, uint32_t field, uint32_t at) {
    const IndexDesc *index = scan->options.index;
    bool is_forward = scan->options.is_forward;
    KeyEnd whole = is_forward ? KEY_END_BEFORE : KEY_END_AFTER;
    KeyEnd behind = is_forward ? KEY_END_AFTER : KEY_END_BEFORE;
    key_builder_reset(&scan->skip_key, index->order);
    for (uint32_t f = 0; f < field; f++)
        key_append_elem(&scan->skip_key, values[f], NULL);
    KeyEnd end = at == scan->bounds.fields[field].count ? behind : whole;
    for (uint32_t f = field; f < index->field_count && end == whole; f++, at = 0) {
        GapField gap = gap_field(scan, f);
        if (gap.list->is_all || gap.list->count == 0)
            break;
        bool is_in;
        key_append_elem(&scan->skip_key, gap_start(&gap, at, &is_in), NULL);
        if (!is_in)
            end = behind;
    }
    key_append_end(&scan->skip_key, end);
    scan->is_skip_due = true;
    scan->skips++;
}

static ErrCode check_gaps(IndexStage *scan, const IndexEntry *entry, bool *ret_is_inside,
                          Error *err) {
    const IndexDesc *index = scan->options.index;
    arena_reset(&scan->gap_scratch);
    Doc decoded;
    TRY(key_decode((const uint8_t *)entry->key.data, entry->key.size,
                   (const uint8_t *)entry->type_bits.data, entry->type_bits.size, index->order,
                   &scan->gap_scratch, &decoded, err));
    Elem values[INDEX_FIELDS_MAX];
    DocIter iter = doc_iter(decoded);
    *ret_is_inside = true;
    for (uint32_t f = 0; f < index->field_count && doc_iter_next(&iter, &values[f]); f++) {
        GapField gap = gap_field(scan, f);
        uint32_t at = gap_find(&gap, values[f], ret_is_inside);
        if (*ret_is_inside)
            continue;
        aim_behind_gap(scan, values, f, at);
        return ERR_OK;
    }
    return ERR_OK;
}

/* A distinct scan goes on behind all keys that begin as this one does. */
static ErrCode aim_behind_value(IndexStage *scan, const IndexEntry *entry, Error *err) {
    const IndexDesc *index = scan->options.index;
    arena_reset(&scan->gap_scratch);
    Doc decoded;
    TRY(key_decode((const uint8_t *)entry->key.data, entry->key.size,
                   (const uint8_t *)entry->type_bits.data, entry->type_bits.size, index->order,
                   &scan->gap_scratch, &decoded, err));
    key_builder_reset(&scan->skip_key, index->order);
    DocIter iter = doc_iter(decoded);
    Elem value;
    for (uint32_t f = 0; f < scan->options.distinct_fields && doc_iter_next(&iter, &value); f++)
        key_append_elem(&scan->skip_key, value, NULL); /* already by the collation */
    key_append_end(&scan->skip_key, scan->options.is_forward ? KEY_END_AFTER : KEY_END_BEFORE);
    scan->is_skip_due = true;
    return ERR_OK;
}

/* {"a.b": 1}: values of the key under the paths of the index. */
static ErrCode show_key(IndexStage *scan, const IndexEntry *entry, Doc *ret_key, Error *err) {
    const IndexDesc *index = scan->options.index;
    if (index->collator != NULL)
        return error_set(err, ERR_NOT_IMPLEMENTED,
                         "keys of index '%s' are not shown yet: it has a collation", index->name);
    arena_reset(&scan->shown_key);
    Doc decoded;
    TRY(key_decode((const uint8_t *)entry->key.data, entry->key.size,
                   (const uint8_t *)entry->type_bits.data, entry->type_bits.size, index->order,
                   &scan->shown_key, &decoded, err));
    DocBuilder b = doc_builder_in_arena(&scan->shown_key);
    DocIter iter = doc_iter(decoded);
    Elem value;
    for (uint32_t f = 0; f < index->field_count && doc_iter_next(&iter, &value); f++)
        build_elem_as(&b, str_from(index->fields[f].path), value);
    *ret_key = doc_builder_end(&b);
    return ERR_OK;
}

/* Filters by the key and, for a covering scan, makes the row's document of it. */
static ErrCode use_key(IndexStage *scan, const IndexEntry *entry, bool *ret_is_match,
                       PlanRow *ret_row, Error *err) {
    const IndexScanOptions *options = &scan->options;
    Doc doc;
    TRY(key_doc_make(&scan->key_doc, entry, &doc, err));
    if (options->filter != NULL)
        TRY(judge(options->filter, doc, ret_is_match, err));
    if (options->is_covering)
        ret_row->doc = doc;
    return ERR_OK;
}

static ErrCode judge(const MatchExpr *filter, Doc doc, bool *ret_is_match, Error *err) {
    MatchDetails details = MATCH_DETAILS_NONE;
    details.err = err;
    *ret_is_match = match_doc(filter, doc, &details);
    return *ret_is_match ? ERR_OK : details.rc;
}

static void index_save(PlanStage *stage) {
    IndexStage *scan = (IndexStage *)stage;
    if (scan->is_open)
        index_cursor_save(&scan->cursor);
}

/* The multikey paths that are known now. Those of a wildcard index are in the index itself. */
static ErrCode find_arrays(const IndexStage *scan, uint32_t *ret_arrays, Error *err) {
    IndexDesc *index = scan->options.index;
    if (index->whole != NULL) {
        OpCtx *op = scan->base.exec->access->op;
        TRY(wildcard_view(op, index->whole, wildcard_view_path(index), &op->arena, &index, err));
    }
    for (uint32_t f = 0; f < index->field_count; f++)
        ret_arrays[f] = index_multikey_paths(index, f);
    return ERR_OK;
}

/* Somebody may have stored an array under the index meanwhile. From then on a record can be met
 * twice and a key no longer tells the whole value: what rests on that cannot go on. */
static ErrCode check_arrays(IndexStage *scan, Error *err) {
    const IndexDesc *index = scan->options.index;
    if (!index_is_multikey(index->whole != NULL ? index->whole : index))
        return ERR_OK;
    uint32_t arrays[INDEX_FIELDS_MAX] = {0};
    TRY(find_arrays(scan, arrays, err));
    if (memcmp(arrays, scan->arrays, sizeof(arrays)) == 0)
        return ERR_OK;
    if (scan->options.is_counting || scan->options.is_covering)
        return error_set(err, ERR_QUERY_PLAN_KILLED,
                         "query plan killed :: index '%s' became multikey; run the query again",
                         index->name);
    memcpy(scan->arrays, arrays, sizeof(arrays));
    scan->was_multikey = scan->has_repeats = true;
    scan->options.key_fields = 0;
    scan->base.exec->is_recheck_due = true;
    return ERR_OK;
}

static ErrCode index_restore(PlanStage *stage, Error *err) {
    IndexStage *scan = (IndexStage *)stage;
    const Collection *coll = stage->exec->access->coll;
    const IndexDesc *index = scan->options.index;
    const IndexDesc *present = collection_find_index(coll, str_from(index->name));
    if (present == NULL || present->store != index->store)
        return error_set(err, ERR_QUERY_PLAN_KILLED, "query plan killed :: index '%s' dropped",
                         index->name);
    TRY(check_arrays(scan, err));
    return scan->is_open ? index_cursor_restore(&scan->cursor, stage->exec->access->op, err)
                         : ERR_OK;
}

static void index_free(PlanStage *stage) {
    IndexStage *scan = (IndexStage *)stage;
    if (scan->is_open)
        index_cursor_done(&scan->cursor);
    rid_set_done(&scan->seen);
    key_doc_done(&scan->key_doc);
    if (stage->exec->is_key_wanted)
        arena_done(&scan->shown_key);
    key_builder_done(&scan->skip_key);
    if (scan->has_gaps || scan->options.distinct_fields > 0)
        arena_done(&scan->gap_scratch);
    index_desc_unref(scan->options.index);
}

static void explain_multikey_paths(const IndexDesc *index, DocBuilder *b) {
    size_t paths = build_open_doc(b, "multiKeyPaths");
    for (uint32_t f = 0; f < index->field_count; f++) {
        const IndexField *field = &index->fields[f];
        size_t rows = build_open_array(b, field->path);
        uint32_t bits = index_multikey_paths(index, f), count = 0;
        for (uint32_t p = 0; p < field->part_count && p < INDEX_PATH_PARTS_MAX; p++) {
            if ((bits >> p & 1) == 0)
                continue;
            const Str last = field->parts[p];
            char name[INDEX_NAME_SIZE];
            build_str(b, index_name(count++, name).data,
                      (Str){field->path, (size_t)(last.data + last.size - field->path)});
        }
        build_close(b, rows);
    }
    build_close(b, paths);
}

enum {
    /* What is larger is left out: the whole filter, shown apart, has to fit into the reply, too. */
    EXPLAIN_BYTES_MAX = 6 * 1024 * 1024,
};

static void explain_filter(const MatchExpr *filter, DocBuilder *b) {
    if (filter == NULL)
        return;
    size_t from = b->buf->size;
    size_t opened = build_open_doc(b, "filter");
    match_to_bson(filter, b);
    build_close(b, opened);
    if (b->buf->size - from <= EXPLAIN_BYTES_MAX)
        return;
    b->buf->size = from;
    build_cstr(b, "warning", "the filter is too large to be shown");
}

static bool has_one_interval(const IndexDesc *index, const IndexBounds *bounds) {
    for (uint32_t f = 0; f < index->field_count; f++)
        if (bounds->fields[f].count != 1)
            return false;
    return true;
}

/* One end of the only interval; returns whether the end belongs to it. */
static bool explain_end(const IndexStage *scan, const char *name, bool is_start, DocBuilder *b) {
    const IndexDesc *index = scan->options.index;
    bool is_inclusive = true;
    size_t opened = build_open_doc(b, name);
    for (uint32_t f = 0; f < index->field_count; f++) {
        const Interval *row = &scan->bounds.fields[f].rows[0];
        bool is_low = (index->fields[f].is_descending != scan->options.is_forward) == is_start;
        build_elem_as(b, str_from(index->fields[f].path), is_low ? row->low : row->high);
        is_inclusive &= is_low ? row->is_low_inclusive : row->is_high_inclusive;
    }
    build_close(b, opened);
    return is_inclusive;
}

/* A count of one range is bounded by two keys. */
static void explain_ends(const IndexStage *scan, DocBuilder *b) {
    build_bool(b, "startKeyInclusive", explain_end(scan, "startKey", true, b));
    build_bool(b, "endKeyInclusive", explain_end(scan, "endKey", false, b));
}

static const PlanStageOps COUNT_OPS;

static void index_explain(PlanStage *stage, DocBuilder *b, bool has_stats) {
    IndexStage *scan = (IndexStage *)stage;
    const IndexDesc *index = scan->options.index;
    explain_filter(scan->options.filter, b);
    build_doc(b, "keyPattern", index->key_pattern);
    build_cstr(b, "indexName", index->name);
    if (index->collator != NULL)
        build_doc(b, "collation", index->collation);
    build_bool(b, "isMultiKey", scan->was_multikey);
    explain_multikey_paths(index, b);
    build_bool(b, "isUnique", index->is_unique);
    build_bool(b, "isSparse", index->is_sparse);
    build_bool(b, "isPartial", index->partial_filter != NULL);
    build_i32(b, "indexVersion", (int32_t)elem_as_i64(doc_get_lit(index->spec, "v")));
    build_cstr(b, "direction", scan->options.is_forward ? "forward" : "backward");
    DocBuilder bounds = doc_builder_in_arena(&stage->exec->arena);
    if (stage->ops == &COUNT_OPS)
        explain_ends(scan, &bounds);
    else
        bounds_to_bson(&scan->bounds, index, scan->options.is_forward, &stage->exec->arena,
                       &bounds);
    Doc shown = doc_builder_end(&bounds);
    if (doc_size(shown) <= EXPLAIN_BYTES_MAX)
        build_doc(b, "indexBounds", shown);
    else
        build_cstr(b, "warning", "the bounds are too large to be shown");
    if (has_stats) {
        build_count(b, "keysExamined", stage->examined);
        build_count(b, "seeks", (int64_t)scan->range + scan->skips);
    }
}

static void index_count(const PlanStage *stage, int64_t *keys, int64_t *docs) {
    (void)docs;
    *keys += stage->examined;
}

static const PlanStageOps INDEX_OPS = {"IXSCAN",   index_next,    index_save, index_restore,
                                       index_free, index_explain, index_count};
static const PlanStageOps COUNT_OPS = {"COUNT_SCAN", index_next,    index_save, index_restore,
                                       index_free,   index_explain, index_count};
static const PlanStageOps DISTINCT_OPS = {"DISTINCT_SCAN", index_next,    index_save, index_restore,
                                          index_free,      index_explain, index_count};

PlanStage *stage_index_scan(PlanExecutor *exec, const IndexScanOptions *options) {
    IndexStage *scan = ARENA_NEW(&exec->arena, IndexStage);
    bool is_count_scan = options->is_counting && !options->bounds->is_tail_restricted &&
                         has_one_interval(options->index, options->bounds);
    scan->base = (PlanStage){.ops = is_count_scan                  ? &COUNT_OPS
                                    : options->distinct_fields > 0 ? &DISTINCT_OPS
                                                                   : &INDEX_OPS,
                             .exec = exec};
    scan->options = *options;
    scan->bounds = *options->bounds;
    scan->options.index = index_desc_ref(options->index);
    scan->base.index_name = options->index->name;
    scan->was_multikey = index_is_multikey(options->index);
    /* Of a distinct scan each key is wanted for itself. */
    scan->has_repeats =
        (scan->was_multikey || options->index->whole != NULL) && options->distinct_fields == 0;
    for (uint32_t f = 0; f < options->index->field_count; f++)
        scan->arrays[f] = index_multikey_paths(options->index, f);
    key_builder_init(&scan->skip_key);
    scan->has_gaps = options->bounds->is_tail_restricted;
    scan->is_raw_count =
        options->is_counting && !options->is_rid_wanted && !scan->has_repeats && !scan->has_gaps;
    if (scan->has_gaps || options->distinct_fields > 0)
        arena_init(&scan->gap_scratch, 1024);
    if (exec->is_key_wanted)
        arena_init(&scan->shown_key, 1024);
    if (options->key_fields != 0)
        key_doc_init(&scan->key_doc, options->index, options->key_fields);
    return &scan->base;
}

/* ---- fetch ---- */

typedef struct FetchStage {
    PlanStage base;
    RecordStore *records;
    const MatchExpr *filter; /* NULL: all */
    const MatchExpr *whole;  /* for exec->is_recheck_due */
    RecordCursor cursor;
    bool is_open;
} FetchStage;

static ErrCode fetch_next(PlanStage *stage, bool *ret_found, PlanRow *ret_row, Error *err) {
    FetchStage *fetch = (FetchStage *)stage;
    if (UNLIKELY(!fetch->is_open)) {
        TRY(record_cursor_open(stage->exec->access->op, fetch->records, /* is_forward= */ true,
                               &fetch->cursor, err));
        fetch->is_open = true;
    }
    for (;;) {
        TRY(stage_next(stage->input, ret_found, ret_row, err));
        if (!*ret_found)
            return ERR_OK;
        Str data;
        TRY(record_cursor_seek_exact(&fetch->cursor, ret_row->rid, ret_found, &data, err));
        if (!*ret_found)
            continue;
        stage->examined++;
        ret_row->doc = (Doc){(const uint8_t *)data.data};
        const MatchExpr *filter = fetch->filter;
        if (UNLIKELY(stage->exec->is_recheck_due))
            filter = fetch->whole;
        if (filter != NULL)
            TRY(judge(filter, ret_row->doc, ret_found, err));
        if (*ret_found)
            return ERR_OK;
    }
}

static void fetch_save(PlanStage *stage) {
    FetchStage *fetch = (FetchStage *)stage;
    if (fetch->is_open)
        record_cursor_save(&fetch->cursor);
}

static ErrCode fetch_restore(PlanStage *stage, Error *err) {
    FetchStage *fetch = (FetchStage *)stage;
    bool is_kept;
    return fetch->is_open
               ? record_cursor_restore(&fetch->cursor, stage->exec->access->op, &is_kept, err)
               : ERR_OK;
}

static void fetch_free(PlanStage *stage) {
    FetchStage *fetch = (FetchStage *)stage;
    if (fetch->is_open)
        record_cursor_done(&fetch->cursor);
    record_store_unref(fetch->records);
}

static void fetch_explain(PlanStage *stage, DocBuilder *b, bool has_stats) {
    explain_filter(((FetchStage *)stage)->filter, b);
    if (has_stats)
        build_count(b, "docsExamined", stage->examined);
}

static void fetch_count(const PlanStage *stage, int64_t *keys, int64_t *docs) {
    (void)keys;
    *docs += stage->examined;
}

static const PlanStageOps FETCH_OPS = {"FETCH",    fetch_next,    fetch_save, fetch_restore,
                                       fetch_free, fetch_explain, fetch_count};

PlanStage *stage_fetch(PlanExecutor *exec, const Collection *coll, PlanStage *input,
                       const MatchExpr *filter, const MatchExpr *whole) {
    FetchStage *fetch = ARENA_NEW(&exec->arena, FetchStage);
    fetch->base = (PlanStage){.ops = &FETCH_OPS, .exec = exec, .input = input};
    fetch->records = record_store_ref(coll->records);
    fetch->filter = filter;
    fetch->whole = whole;
    return &fetch->base;
}
