/*
 * validate_repair.c - mends what a validation found: records that are no BSON are removed, missing
 * keys inserted, extra ones removed, indexes marked as multikey. Documents that cannot have their
 * key are moved away (validate_lost.c).
 *
 * Each remedy is a small unit of work of its own; a crash in between leaves the rest to the next
 * repair. The collection is locked in X.
 */
#include "index/validate_internal.h"
#include "storage/recovery_unit.h"
#include "storage/unit_of_work.h"

typedef struct Remedy {
    Validation *v;
    IndexCheck *check;
    Suspect *suspect;
    const CorruptRecord *corrupt;
    bool is_done;
    bool is_outdated; /* the record has been moved away */
} Remedy;

static ErrCode remove_record(void *arg, OpCtx *op, Error *err) {
    Remedy *remedy = arg;
    return record_delete(op, remedy->v->access->coll->records, remedy->corrupt->rid,
                         remedy->corrupt->size, err);
}

static ErrCode record_is_there(Validation *v, RecordId rid, bool *ret_is_there, Error *err) {
    CLEANUP(record_cursor_done) RecordCursor cursor = {0};
    Str data;
    TRY(record_cursor_open(v->access->op, v->access->coll->records, /* is_forward= */ true, &cursor,
                           err));
    return record_cursor_seek_exact(&cursor, rid, ret_is_there, &data, err);
}

static ErrCode mend_key(void *arg, OpCtx *op, Error *err) {
    Remedy *remedy = arg;
    OrderedIndex *store = remedy->check->index->store;
    const Suspect *suspect = remedy->suspect;
    bool is_there;
    CLEANUP(uow_done) UnitOfWork uow = {0};
    TRY(uow_begin(op, &uow, err));
    if (suspect->balance < 0) {
        TRY(ordered_index_remove(op, store, suspect->key, suspect->rid, &is_there, err));
        remedy->is_done = is_there;
    } else {
        TRY(record_is_there(remedy->v, suspect->rid, &is_there, err));
        remedy->is_outdated = !is_there;
        if (!is_there)
            return ERR_OK;
        TRY(ordered_index_insert(op, store, suspect->key, suspect->rid, /* is_dup_allowed= */ false,
                                 &is_there, err));
        remedy->is_done = !is_there;
    }
    return remedy->is_done ? uow_commit(&uow, err) : ERR_OK;
}

static ErrCode mark_multikey(void *arg, OpCtx *op, Error *err) {
    Remedy *remedy = arg;
    return catalog_set_multikey(op, remedy->v->access->coll, remedy->check->index,
                                remedy->check->multikey_paths, err);
}

/* Extra keys first: one of them may stand where a missing one belongs. */
static ErrCode mend_keys(Validation *v, IndexCheck *check, bool is_missing, Error *err) {
    for (size_t i = 0; i < check->slot_count; i++) {
        Suspect *suspect = check->suspects[i];
        if (suspect == NULL || suspect->balance == 0 || (suspect->balance > 0) != is_missing)
            continue;
        Remedy remedy = {.v = v, .check = check, .suspect = suspect};
        TRY(op_run_with_retry(v->access->op, mend_key, &remedy, err));
        bool is_moved = false;
        if (!remedy.is_done && is_missing && !remedy.is_outdated)
            TRY(validate_move_to_lost(v, suspect->rid, &is_moved, err));
        if (!remedy.is_done && !remedy.is_outdated && !is_moved) {
            validate_add_text(v, &check->errors,
                              "a key of record %llu could not be mended: another record has it",
                              (unsigned long long)validate_rid_num(suspect->rid));
            continue;
        }
        suspect->is_mended = true;
        v->outdated_keys += remedy.is_outdated;
        v->inserted_keys += remedy.is_done && is_missing;
        v->removed_keys += remedy.is_done && !is_missing;
    }
    return ERR_OK;
}

ErrCode validate_repair(Validation *v, Error *err) {
    OpCtx *op = v->access->op;
    ru_abandon_snapshot(op->ru); /* the passes are over; what follows writes */
    for (uint32_t i = 0; i < v->corrupt_count; i++) {
        Remedy remedy = {.v = v, .corrupt = &v->corrupt[i]};
        TRY(op_write_with_retry(op, remove_record, &remedy, err));
        v->removed_records++;
    }
    for (uint32_t i = 0; i < v->check_count; i++) {
        IndexCheck *check = &v->checks[i];
        if (check->is_multikey_missing) {
            Remedy remedy = {.v = v, .check = check};
            TRY(op_write_with_retry(op, mark_multikey, &remedy, err));
            check->is_multikey_missing = false;
            v->marked_multikey++;
        }
        TRY(mend_keys(v, check, /* is_missing= */ false, err));
        TRY(mend_keys(v, check, /* is_missing= */ true, err));
    }
    v->is_repaired = v->removed_records + v->inserted_keys + v->removed_keys + v->marked_multikey +
                         v->moved_records >
                     0;
    return ERR_OK;
}
