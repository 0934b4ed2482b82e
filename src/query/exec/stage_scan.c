/* stage_scan.c - COLLSCAN and CLUSTERED_IXSCAN: all records in natural order, or a range of them.
 */
#include <string.h>

#include "query/exec/executor.h"

typedef struct ScanStage {
    PlanStage base;
    RecordStore *records;
    ScanOptions options;
    RecordCursor cursor;
    bool is_open;
    bool is_bounded;
} ScanStage;

static ErrCode open_cursor(ScanStage *scan, Error *err);
static bool is_past_end(const ScanStage *scan, RecordId rid);

static ErrCode scan_next(PlanStage *stage, bool *ret_found, PlanRow *ret_row, Error *err) {
    ScanStage *scan = (ScanStage *)stage;
    *ret_found = false;
    if (UNLIKELY(!scan->is_open))
        TRY(open_cursor(scan, err));
    const MatchExpr *filter = scan->options.filter;
    int64_t passed = 0;
    for (;;) {
        TRY(executor_tick(stage->exec, err));
        bool is_found;
        RecordId rid;
        Str data;
        TRY(record_cursor_next(&scan->cursor, &is_found, &rid, &data, err));
        if (!is_found) {
            if (passed != 0)
                stage->exec->passed_num = passed;
            return ERR_OK;
        }
        passed = rid.num;
        if (scan->is_bounded && is_past_end(scan, rid)) {
            /* A scan by _id has looked at the document that tells that it is over. */
            stage->examined += elem_is_present(scan->options.high_value);
            return ERR_OK;
        }
        stage->examined++;
        if (UNLIKELY(scan->options.is_high_exclusive) &&
            record_id_compare(rid, scan->options.high) == 0)
            continue; /* going backwards */
        Doc doc = {(const uint8_t *)data.data};
        if (filter != NULL) {
            MatchDetails details = MATCH_DETAILS_NONE;
            details.err = err;
            if (!match_doc(filter, doc, &details)) {
                TRY(details.rc);
                continue;
            }
        }
        *ret_row = (PlanRow){.rid = rid, .doc = doc};
        *ret_found = true;
        return ERR_OK;
    }
}

static void scan_save(PlanStage *stage) {
    ScanStage *scan = (ScanStage *)stage;
    if (scan->is_open)
        record_cursor_save(&scan->cursor);
}

static ErrCode scan_restore(PlanStage *stage, Error *err) {
    ScanStage *scan = (ScanStage *)stage;
    if (!scan->is_open)
        return ERR_OK;
    if (scan->options.is_tailable)
        scan->cursor.base.is_at_end = false; /* there may be more by now */
    bool is_kept;
    TRY(record_cursor_restore(&scan->cursor, stage->exec->access->op, &is_kept, err));
    RecordId start = scan->options.is_forward ? scan->options.low : scan->options.high;
    if (!scan->cursor.base.is_positioned && !record_id_is_none(start))
        return record_cursor_seek_near(&scan->cursor, start, err); /* nothing was there yet */
    if (!is_kept && (scan->options.is_tailable || scan->options.is_gapless))
        return error_set(err, ERR_CAPPED_POSITION_LOST,
                         "CollectionScan died due to position in capped collection being deleted");
    return ERR_OK;
}

static void scan_free(PlanStage *stage) {
    ScanStage *scan = (ScanStage *)stage;
    if (scan->is_open)
        record_cursor_done(&scan->cursor);
    record_store_unref(scan->records);
}

static void scan_explain(PlanStage *stage, DocBuilder *b, bool has_stats) {
    ScanStage *scan = (ScanStage *)stage;
    if (scan->options.filter != NULL) {
        size_t filter = build_open_doc(b, "filter");
        match_to_bson(scan->options.filter, b);
        build_close(b, filter);
    }
    build_cstr(b, "direction", scan->options.is_forward ? "forward" : "backward");
    if (elem_is_present(scan->options.low_value))
        build_elem_as(b, STR("minRecord"), scan->options.low_value);
    if (elem_is_present(scan->options.high_value))
        build_elem_as(b, STR("maxRecord"), scan->options.high_value);
    if (has_stats)
        build_count(b, "docsExamined", stage->examined);
}

static void scan_count(const PlanStage *stage, int64_t *keys, int64_t *docs) {
    (void)keys;
    *docs += stage->examined;
}

static const PlanStageOps SCAN_OPS = {"COLLSCAN", scan_next,    scan_save, scan_restore,
                                      scan_free,  scan_explain, scan_count};
static const PlanStageOps CLUSTERED_SCAN_OPS = {
    "CLUSTERED_IXSCAN", scan_next, scan_save, scan_restore, scan_free, scan_explain, scan_count};

PlanStage *stage_collection_scan(PlanExecutor *exec, const Collection *coll,
                                 const ScanOptions *options) {
    ScanStage *scan = ARENA_NEW(&exec->arena, ScanStage);
    bool is_bounded = !record_id_is_none(options->low) || !record_id_is_none(options->high);
    scan->base = (PlanStage){.ops = is_bounded && coll->options.is_clustered ? &CLUSTERED_SCAN_OPS
                                                                             : &SCAN_OPS,
                             .exec = exec};
    scan->records = record_store_ref(coll->records);
    scan->options = *options;
    scan->is_bounded = is_bounded;
    return &scan->base;
}

static ErrCode open_cursor(ScanStage *scan, Error *err) {
    TRY(record_cursor_open(scan->base.exec->access->op, scan->records, scan->options.is_forward,
                           &scan->cursor, err));
    scan->is_open = true;
    if (!record_id_is_none(scan->options.after)) {
        bool is_found;
        Str data;
        TRY(record_cursor_seek_exact(&scan->cursor, scan->options.after, &is_found, &data, err));
        if (!is_found)
            return error_set(err, ERR_KEY_NOT_FOUND,
                             "Failed to resume collection scan: the recordId from which we are "
                             "attempting to resume no longer exists in the collection");
        return record_cursor_seek_after(&scan->cursor, scan->options.after, err);
    }
    RecordId start = scan->options.is_forward ? scan->options.low : scan->options.high;
    if (!record_id_is_none(start))
        return record_cursor_seek_near(&scan->cursor, start, err);
    return ERR_OK;
}

static bool is_past_end(const ScanStage *scan, RecordId rid) {
    RecordId end = scan->options.is_forward ? scan->options.high : scan->options.low;
    if (record_id_is_none(end))
        return false;
    int rc = record_id_compare(rid, end);
    if (!scan->options.is_forward)
        return rc < 0;
    return scan->options.is_high_exclusive ? rc >= 0 : rc > 0;
}
