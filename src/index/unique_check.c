#include "index/unique_check.h"

#include "bson/builder.h"
#include "storage/ordered_index.h"
#include "storage/record_store.h"

enum {
    /* Of reported _ids: the error has to fit into a reply. */
    VIOLATIONS_BYTES_MAX = 8 * 1024 * 1024,
    ENTRIES_PER_CHECK = 128,
};

/* The documents under one key. */
typedef struct Group {
    Buffer key;
    Buffer rid_bytes; /* of the first one, if its record id is bytes */
    RecordId first;
    uint32_t count;
} Group;

typedef struct UniqueCheck {
    OpCtx *op;
    RecordCursor records;
    DocBuilder b;
    Buffer out;
    uint32_t violation_count;
    bool is_cut; /* not all fitted */
    size_t ids;  /* the open array of the current group */
    size_t violation;
    Group group;
} UniqueCheck;

static ErrCode scan(UniqueCheck *check, const IndexDesc *index, Error *err);
static ErrCode add_entry(UniqueCheck *check, const IndexEntry *entry, Error *err);
static ErrCode add_id(UniqueCheck *check, RecordId rid, uint32_t position, Error *err);
static void end_group(UniqueCheck *check);

ErrCode index_check_unique(OpCtx *op, const Collection *coll, const IndexDesc *index, Error *err) {
    if (index->store == NULL)
        return error_set(err, ERR_INDEX_NOT_FOUND, "index '%s' has lost its table", index->name);
    UniqueCheck check = {.op = op};
    buffer_init(&check.out, BSON_DOC_SIZE_MAX_INTERNAL);
    buffer_init(&check.group.key, BUFFER_UNBOUNDED);
    buffer_init(&check.group.rid_bytes, BUFFER_UNBOUNDED);
    doc_builder_init(&check.b, &check.out);
    size_t violations = build_open_array(&check.b, "violations");
    ErrCode rc = record_cursor_open(op, coll->records, /* is_forward= */ true, &check.records, err);
    if (rc == ERR_OK) {
        rc = scan(&check, index, err);
        record_cursor_done(&check.records);
    }
    build_close(&check.b, violations);
    Doc extra;
    bool is_whole = doc_builder_try_finish(&check.b, &extra);
    if (rc == ERR_OK && check.violation_count > 0) {
        rc = error_set(err, ERR_CANNOT_CONVERT_INDEX_TO_UNIQUE,
                       "Cannot convert the index to unique. %s",
                       check.is_cut ? "Too many conflicting documents were detected. Please "
                                      "resolve them and rerun collMod."
                                    : "Please resolve conflicting documents before running collMod "
                                      "again.");
        if (is_whole)
            error_set_extra(err, extra.data);
    }
    buffer_done(&check.out);
    buffer_done(&check.group.key);
    buffer_done(&check.group.rid_bytes);
    return rc;
}

static ErrCode scan(UniqueCheck *check, const IndexDesc *index, Error *err) {
    CLEANUP(index_cursor_done) IndexCursor cursor = {0};
    TRY(index_cursor_open(check->op, index->store, /* is_forward= */ true, &cursor, err));
    ErrCode rc = ERR_OK;
    for (uint64_t n = 0; rc == ERR_OK; n++) {
        bool is_found;
        IndexEntry entry;
        if (n % ENTRIES_PER_CHECK == 0)
            rc = op_check_interrupt_slow(check->op, err);
        if (rc == ERR_OK)
            rc = index_cursor_next(&cursor, &is_found, &entry, err);
        if (rc != ERR_OK || !is_found)
            break;
        rc = add_entry(check, &entry, err);
    }
    end_group(check);
    return rc;
}

static ErrCode add_entry(UniqueCheck *check, const IndexEntry *entry, Error *err) {
    Group *group = &check->group;
    /* Keys are sorted, so duplicates are adjacent; type bits are not compared, as in the index. */
    bool is_same = group->count > 0 &&
                   str_equal((Str){(const char *)group->key.data, group->key.size}, entry->key);
    if (!is_same) {
        end_group(check);
        buffer_append(&group->key, entry->key.data, entry->key.size);
        group->first = entry->rid;
        if (entry->rid.str != NULL) {
            buffer_append(&group->rid_bytes, entry->rid.str, entry->rid.str_size);
            group->first.str = group->rid_bytes.data;
        }
        group->count = 1;
        return ERR_OK;
    }
    /* Beyond the limit nothing is added, but what is open is closed properly. */
    if (check->is_cut)
        return ERR_OK;
    if (group->count == 1) {
        char name[INDEX_NAME_SIZE];
        check->violation =
            build_open_doc(&check->b, index_name(check->violation_count++, name).data);
        check->ids = build_open_array(&check->b, "ids");
        TRY(add_id(check, group->first, 0, err));
    }
    TRY(add_id(check, entry->rid, group->count, err));
    group->count++;
    return ERR_OK;
}

static ErrCode add_id(UniqueCheck *check, RecordId rid, uint32_t position, Error *err) {
    bool is_found;
    Str data;
    TRY(record_cursor_seek_exact(&check->records, rid, &is_found, &data, err));
    if (!is_found)
        return ERR_OK; /* an index entry without a document is for validate to report */
    char name[INDEX_NAME_SIZE];
    Elem id = doc_get_lit((Doc){(const uint8_t *)data.data}, "_id");
    check->is_cut |= check->out.size + elem_size(id) > VIOLATIONS_BYTES_MAX;
    if (!check->is_cut)
        build_elem_as(&check->b, index_name(position, name), id);
    return ERR_OK;
}

static void end_group(UniqueCheck *check) {
    if (check->group.count > 1) {
        build_close(&check->b, check->ids);
        build_close(&check->b, check->violation);
    }
    check->group.count = 0;
    buffer_clear(&check->group.key);
    buffer_clear(&check->group.rid_bytes);
}
