#include "index/side_writes.h"

#include <string.h>

#include "storage/record_store.h"

enum {
    RECORD_HEAD_SIZE = 4,
    ENTRY_HEAD_SIZE = 1 + 4,
};

static int compare_keys(IndexKey a, IndexKey b) {
    size_t size = a.key.size < b.key.size ? a.key.size : b.key.size;
    int rc = memcmp(a.key.data, b.key.data, size);
    if (rc != 0)
        return rc;
    return a.key.size < b.key.size ? -1 : a.key.size > b.key.size;
}

static void append_part(Buffer *out, Str part) {
    uint32_t size = (uint32_t)part.size;
    buffer_append(out, &size, sizeof(size));
    buffer_append(out, part.data, part.size);
}

/* Appends the keys of `mine` that are not in `other`; both are sorted. */
static void append_difference(Buffer *out, SideOp side_op, const KeySet *mine,
                              const KeySet *other) {
    uint32_t j = 0;
    for (uint32_t i = 0; mine != NULL && i < mine->count; i++) {
        IndexKey key = key_set_get(mine, i);
        while (other != NULL && j < other->count && compare_keys(key_set_get(other, j), key) < 0)
            j++;
        if (other != NULL && j < other->count) {
            IndexKey same = key_set_get(other, j);
            if (compare_keys(same, key) == 0 && str_equal(same.type_bits, key.type_bits))
                continue;
        }
        buffer_append_byte(out, (uint8_t)side_op);
        append_part(out, key.key);
        append_part(out, key.type_bits);
    }
}

ErrCode side_write(OpCtx *op, const IndexDesc *index, RecordId rid, const KeySet *before,
                   const KeySet *after, Buffer *scratch, Error *err) {
    if (after != NULL)
        /* In memory only; the commit of the build persists the bits with the catalog entry. */
        index_note_multikey(index, after);
    buffer_clear(scratch);
    uint32_t rid_offset = 0;
    buffer_append(scratch, &rid_offset, sizeof(rid_offset));
    /* Only the differences are recorded: most updates change no key of the index, and write
     * nothing. Removals first, as in collection_write.c. */
    append_difference(scratch, SIDE_REMOVE, before, after);
    append_difference(scratch, SIDE_INSERT, after, before);
    if (scratch->size == RECORD_HEAD_SIZE)
        return ERR_OK;
    rid_offset = (uint32_t)scratch->size;
    memcpy(scratch->data, &rid_offset, sizeof(rid_offset));
    if (rid.str != NULL)
        buffer_append(scratch, rid.str, rid.str_size);
    else
        buffer_append(scratch, &rid.num, sizeof(rid.num));
    RecordId position;
    /* Positions are handed out before the commit, so they can become visible out of order; rule 4
     * of build/README.md deals with that. */
    TRY(record_store_next_id(op, index->side_writes, &position, err));
    return record_insert(op, index->side_writes, position,
                         (Str){(const char *)scratch->data, scratch->size}, err);
}

ErrCode side_reader_open(SideReader *reader, Str record, bool is_string_rid, Error *err) {
    uint32_t rid_offset = 0;
    if (record.size >= RECORD_HEAD_SIZE)
        memcpy(&rid_offset, record.data, sizeof(rid_offset));
    bool is_sound = rid_offset >= RECORD_HEAD_SIZE && rid_offset < record.size &&
                    (is_string_rid || record.size - rid_offset == sizeof(int64_t));
    if (!is_sound)
        return error_set(err, ERR_DATA_CORRUPTION_DETECTED, "a side write is damaged");
    const uint8_t *data = (const uint8_t *)record.data;
    reader->at = data + RECORD_HEAD_SIZE;
    reader->end = data + rid_offset;
    if (is_string_rid) {
        reader->rid = (RecordId){0, data + rid_offset, (uint32_t)(record.size - rid_offset)};
    } else {
        int64_t num;
        memcpy(&num, data + rid_offset, sizeof(num));
        reader->rid = record_id_num(num);
    }
    return ERR_OK;
}

static Str read_part(SideReader *reader) {
    uint32_t size;
    invariant(reader->end - reader->at >= (ptrdiff_t)sizeof(size));
    memcpy(&size, reader->at, sizeof(size));
    reader->at += sizeof(size);
    invariant(reader->end - reader->at >= (ptrdiff_t)size);
    Str part = {(const char *)reader->at, size};
    reader->at += size;
    return part;
}

bool side_reader_next(SideReader *reader, SideOp *ret_op, IndexKey *ret_key) {
    if (reader->end - reader->at < ENTRY_HEAD_SIZE)
        return false;
    *ret_op = (SideOp)*reader->at++;
    ret_key->key = read_part(reader);
    ret_key->type_bits = read_part(reader);
    return true;
}

void index_note_multikey(const IndexDesc *index, const KeySet *keys) {
    if (LIKELY(!keys->is_multikey))
        return;
    for (uint32_t f = 0; f < index->field_count; f++)
        atomic_fetch_or_explicit(&index->state->multikey_paths[f], keys->multikey_paths[f],
                                 memory_order_release);
    atomic_store_explicit(&index->state->is_multikey, true, memory_order_release);
}
