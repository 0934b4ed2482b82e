/*
 * constraints.c - violations that are judged at the end: a duplicate key, or a document that cannot
 * be indexed, is recorded when it is found and re-checked under the X lock, since it may have been
 * corrected meanwhile.
 *
 * Notes go to temporary tables:
 *
 *     duplicates  4 bytes size of the key, key, type bits
 *     skipped     record id: 8 bytes, or its bytes when clustered
 *
 * Until the next unit of work they are buffered, each preceded by its size.
 */
#include <string.h>

#include "index/build/build_internal.h"
#include "index/collection_write.h"
#include "index/key_gen.h"
#include "index/side_writes.h"
#include "storage/recovery_unit.h"
#include "storage/unit_of_work.h"

enum {
    RECHECKS_PER_UNIT = 200,
};

static ErrCode write_notes(OpCtx *op, RecordStore *store, const Buffer *notes, Error *err) {
    size_t at = 0;
    while (at < notes->size) {
        uint32_t size;
        memcpy(&size, notes->data + at, sizeof(size));
        RecordId position;
        TRY(record_store_next_id(op, store, &position, err));
        TRY(record_insert(op, store, position,
                          (Str){(const char *)notes->data + at + sizeof(size), size}, err));
        at += sizeof(size) + size;
    }
    return ERR_OK;
}

void build_note_duplicate(IndexBuildItem *item, Str key, Str type_bits) {
    if (item->duplicates == NULL)
        return; /* prepareUnique: existing duplicates are allowed */
    Buffer *notes = &item->pending_duplicates;
    uint32_t key_size = (uint32_t)key.size;
    uint32_t size = (uint32_t)(sizeof(key_size) + key.size + type_bits.size);
    buffer_append(notes, &size, sizeof(size));
    buffer_append(notes, &key_size, sizeof(key_size));
    buffer_append(notes, key.data, key.size);
    buffer_append(notes, type_bits.data, type_bits.size);
}

ErrCode build_write_duplicates(OpCtx *op, IndexBuildItem *item, Error *err) {
    return item->pending_duplicates.size == 0
               ? ERR_OK
               : write_notes(op, item->duplicates, &item->pending_duplicates, err);
}

void build_note_skipped(IndexBuildItem *item, RecordId rid) {
    Buffer *notes = &item->pending_skipped;
    uint32_t size = rid.str != NULL ? rid.str_size : sizeof(rid.num);
    buffer_append(notes, &size, sizeof(size));
    buffer_append(notes, rid.str != NULL ? (const void *)rid.str : &rid.num, size);
}

static ErrCode write_skipped(void *arg, OpCtx *op, Error *err) {
    IndexBuild *build = arg;
    CLEANUP(access_done) CollAccess access = {0};
    TRY(access_write(op, &build->ns, LOCK_IX, &access, err));
    CLEANUP(uow_done) UnitOfWork uow = {0};
    TRY(uow_begin(op, &uow, err));
    for (uint32_t i = 0; i < build->count; i++)
        if (build->items[i].pending_skipped.size > 0)
            TRY(write_notes(op, build->items[i].skipped, &build->items[i].pending_skipped, err));
    return uow_commit(&uow, err);
}

ErrCode build_flush_skipped(IndexBuild *build, Error *err) {
    OpCtx *op = build->active.op;
    bool is_any = false;
    for (uint32_t i = 0; i < build->count; i++) {
        IndexBuildItem *item = &build->items[i];
        if (item->pending_skipped.size == 0)
            continue;
        is_any = true;
        if (item->skipped == NULL)
            TRY(build_temp_table(op, TEMP_TABLE_PREFIX, &item->skipped, err));
    }
    if (!is_any)
        return ERR_OK;
    TRY(op_run_with_retry(op, write_skipped, build, err));
    for (uint32_t i = 0; i < build->count; i++)
        buffer_clear(&build->items[i].pending_skipped);
    return ERR_OK;
}

/* ---- looking again ---- */

typedef struct SkippedUnit {
    IndexBuild *build;
    IndexBuildItem *item;
    int64_t from;
    int64_t next;
    bool is_at_end;
    KeySet keys;
} SkippedUnit;

static void skipped_unit_done(SkippedUnit *unit) {
    key_set_done(&unit->keys);
}

/* Inserts the document's keys as they are now; side writes since then have already been applied, so
 * most of them exist. */
static ErrCode index_again(OpCtx *op, SkippedUnit *unit, RecordId rid, Error *err) {
    IndexBuildItem *item = unit->item;
    CLEANUP(record_cursor_done) RecordCursor cursor = {0};
    TRY(record_cursor_open(op, unit->build->records, /* is_forward= */ true, &cursor, err));
    bool is_found;
    Str data;
    TRY(record_cursor_seek_exact(&cursor, rid, &is_found, &data, err));
    if (!is_found)
        return ERR_OK;
    TRY(index_keys_of(item->index, (Doc){(const uint8_t *)data.data}, &unit->keys, err));
    index_note_multikey(item->index, &unit->keys);
    for (uint32_t k = 0; k < unit->keys.count; k++) {
        IndexKey key = key_set_get(&unit->keys, k);
        bool is_duplicate;
        TRY(ordered_index_insert(op, item->index->store, key, rid, /* is_dup_allowed= */ false,
                                 &is_duplicate, err));
        if (!is_duplicate)
            continue;
        build_note_duplicate(item, key.key, key.type_bits);
        TRY(ordered_index_insert(op, item->index->store, key, rid, /* is_dup_allowed= */ true,
                                 &is_duplicate, err));
    }
    return ERR_OK;
}

static ErrCode recheck_skipped_unit(void *arg, OpCtx *op, Error *err) {
    SkippedUnit *unit = arg;
    IndexBuildItem *item = unit->item;
    unit->next = unit->from;
    buffer_clear(&item->pending_duplicates);
    CLEANUP(record_cursor_done) RecordCursor cursor = {0};
    TRY(record_cursor_open(op, item->skipped, /* is_forward= */ true, &cursor, err));
    TRY(record_cursor_seek_near(&cursor, record_id_num(unit->from), err));
    for (int n = 0; n < RECHECKS_PER_UNIT; n++) {
        RecordId position;
        Str data;
        bool is_found;
        TRY(record_cursor_next(&cursor, &is_found, &position, &data, err));
        unit->is_at_end = !is_found;
        if (!is_found)
            break;
        RecordId rid = {0, (const uint8_t *)data.data, (uint32_t)data.size};
        if (!unit->build->is_clustered) {
            invariant(data.size == sizeof(rid.num));
            rid = RECORD_ID_NONE;
            memcpy(&rid.num, data.data, sizeof(rid.num));
        }
        TRY(index_again(op, unit, rid, err));
        unit->next = position.num + 1;
    }
    return build_write_duplicates(op, item, err);
}

ErrCode build_recheck_skipped(IndexBuild *build, CollAccess *access, Error *err) {
    if (access->op->mode.is_applying) /* the primary has checked, or later entries remove them */
        return ERR_OK;
    for (uint32_t i = 0; i < build->count; i++) {
        if (build->items[i].skipped == NULL)
            continue;
        CLEANUP(skipped_unit_done)
        SkippedUnit unit = {.build = build, .item = &build->items[i], .from = 1};
        key_set_init(&unit.keys);
        while (!unit.is_at_end) {
            TRY(op_check_interrupt_slow(access->op, err));
            TRY(op_write_with_retry(access->op, recheck_skipped_unit, &unit, err));
            buffer_clear(&unit.item->pending_duplicates);
            unit.from = unit.next;
        }
    }
    return ERR_OK;
}

static ErrCode count_entries(IndexCursor *cursor, Str key, uint32_t *ret_count, Error *err) {
    *ret_count = 0;
    TRY(index_cursor_seek(cursor, key, err));
    /* Two suffice to prove a duplicate. */
    while (*ret_count < 2) {
        bool is_found;
        IndexEntry entry;
        TRY(index_cursor_next(cursor, &is_found, &entry, err));
        if (!is_found || !str_equal(entry.key, key))
            return ERR_OK;
        ++*ret_count;
    }
    return ERR_OK;
}

static ErrCode recheck_duplicates_of(IndexBuildItem *item, CollAccess *access, Error *err) {
    CLEANUP(record_cursor_done) RecordCursor cursor = {0};
    TRY(record_cursor_open(access->op, item->duplicates, /* is_forward= */ true, &cursor, err));
    CLEANUP(index_cursor_done) IndexCursor entries = {0};
    TRY(index_cursor_open(access->op, item->index->store, /* is_forward= */ true, &entries, err));
    for (;;) {
        bool is_found;
        RecordId position;
        Str note;
        TRY(op_check_interrupt(access->op, err));
        TRY(record_cursor_next(&cursor, &is_found, &position, &note, err));
        if (!is_found)
            return ERR_OK;
        uint32_t key_size, count;
        invariant(note.size >= sizeof(key_size));
        memcpy(&key_size, note.data, sizeof(key_size));
        invariant(note.size - sizeof(key_size) >= key_size);
        const char *at = note.data + sizeof(key_size);
        IndexKey key = {{at, key_size}, {at + key_size, note.size - sizeof(key_size) - key_size}};
        TRY(count_entries(&entries, key.key, &count, err));
        if (count > 1)
            return duplicate_key_error(access->coll, item->index, key, err);
    }
}

ErrCode build_recheck_duplicates(IndexBuild *build, CollAccess *access, Error *err) {
    if (access->op->mode.is_applying) /* already checked by the primary */
        return ERR_OK;
    for (uint32_t i = 0; i < build->count; i++)
        if (build->items[i].duplicates != NULL)
            TRY(recheck_duplicates_of(&build->items[i], access, err));
    return ERR_OK;
}
