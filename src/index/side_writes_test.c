#include "index/side_writes.h"

#include <string.h>

#include "base/test.h"
#include "storage/fixture_test.h"
#include "bson/json_docs_test.h"

/* What an update of a document leaves in the side table: the number of removed and inserted keys;
 * 0 and 0: no record at all. */
typedef struct SideCase {
    const char *key;
    const char *before; /* NULL: an insert */
    const char *after;  /* NULL: a delete */
    uint32_t removed;
    uint32_t inserted;
    bool is_multikey;
} SideCase;

static const SideCase CASES[] = {
    {"{'a': 1}", NULL, "{'a': 1}", 0, 1, false},
    {"{'a': 1}", "{'a': 1}", NULL, 1, 0, false},
    {"{'a': 1}", "{'a': 1}", "{'a': 2}", 1, 1, false},
    {"{'a': 1}", "{'a': 1}", "{'a': 1, 'b': 2}", 0, 0, false},
    {"{'a': 1}", "{'a': 1}", "{'a': 1.0}", 1, 1, false}, /* the type is a part of the key */
    {"{'a': 1}", NULL, "{'a': [1, 2, 2, 3]}", 0, 3, true},
    {"{'a': 1}", "{'a': [1, 2, 3]}", "{'a': [2, 3, 4]}", 1, 1, true},
    {"{'a': 1}", "{'a': [1, 2, 3]}", NULL, 3, 0, false},
    {"{'a': 1, 'b': -1}", "{'a': 1, 'b': 1}", "{'a': 1, 'b': [1, 2]}", 0, 1, true},
};

static void write_one(StorageFixture *fx, IndexDesc *index, RecordId rid, const KeySet *before,
                      const KeySet *after) {
    Error err = {0};
    Buffer scratch;
    buffer_init(&scratch, BUFFER_UNBOUNDED);
    CLEANUP(uow_done) UnitOfWork uow = {0};
    EXPECT_OK(uow_begin(fx->op, &uow, &err), err);
    EXPECT_OK(side_write(fx->op, index, rid, before, after, &scratch, &err), err);
    EXPECT_OK(uow_commit(&uow, &err), err);
    buffer_done(&scratch);
}

/* Counts the entries of the only record; removals must come first. */
static void check_record(StorageFixture *fx, IndexDesc *index, RecordId rid, const SideCase *c) {
    Error err = {0};
    CLEANUP(record_cursor_done) RecordCursor cursor = {0};
    EXPECT_OK(record_cursor_open(fx->op, index->side_writes, true, &cursor, &err), err);
    bool is_found;
    RecordId position;
    Str record;
    EXPECT_OK(record_cursor_next(&cursor, &is_found, &position, &record, &err), err);
    EXPECT(is_found == (c->removed + c->inserted > 0));
    if (!is_found)
        return;
    SideReader reader;
    EXPECT_OK(side_reader_open(&reader, record, rid.str != NULL, &err), err);
    EXPECT(record_id_compare(reader.rid, rid) == 0);
    uint32_t counts[3] = {0};
    SideOp side_op;
    IndexKey key;
    while (side_reader_next(&reader, &side_op, &key)) {
        EXPECT(side_op == SIDE_INSERT || counts[SIDE_INSERT] == 0);
        EXPECT(key.key.size > 0);
        counts[side_op]++;
    }
    EXPECT_EQ_U64(counts[SIDE_REMOVE], c->removed);
    EXPECT_EQ_U64(counts[SIDE_INSERT], c->inserted);
    EXPECT_OK(record_cursor_next(&cursor, &is_found, &position, &record, &err), err);
    EXPECT(!is_found);
}

static void run_case(StorageFixture *fx, const SideCase *c, RecordId rid, Arena *arena) {
    Error err = {0};
    char spec[256], ident[32];
    static int made;
    snprintf(spec, sizeof(spec), "{'v': 2, 'key': %s, 'name': 'x'}", c->key);
    snprintf(ident, sizeof(ident), "internal-%d", made++);
    IndexDesc *index;
    EXPECT_OK(index_desc_new(fx->engine, test_doc(spec, arena), "no table", rid.str != NULL,
                             /* is_ready= */ false, NULL, &index, &err),
              err);
    EXPECT_OK(storage_create_table(fx->engine, ident, TABLE_RECORDS, NULL, &err), err);
    EXPECT_OK(record_store_open(fx->engine, ident, false, &index->side_writes, &err), err);
    KeySet before, after;
    key_set_init(&before);
    key_set_init(&after);
    if (c->before != NULL)
        EXPECT_OK(index_keys_of(index, test_doc(c->before, arena), &before, &err), err);
    if (c->after != NULL)
        EXPECT_OK(index_keys_of(index, test_doc(c->after, arena), &after, &err), err);
    EXPECT_OK(op_lock_global(fx->op, LOCK_IX, &err), err);
    write_one(fx, index, rid, c->before != NULL ? &before : NULL, c->after != NULL ? &after : NULL);
    check_record(fx, index, rid, c);
    op_unlock_global(fx->op);
    EXPECT(index_is_multikey(index) == c->is_multikey);
    key_set_done(&before);
    key_set_done(&after);
    index_desc_unref(index);
}

TEST(side_writes_hold_the_difference_of_two_documents) {
    StorageFixture fx;
    fixture_init(&fx);
    Arena arena;
    arena_init(&arena, 4096);
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        run_case(&fx, &CASES[i], record_id_num(7), &arena);
        run_case(&fx, &CASES[i], (RecordId){0, (const uint8_t *)"clustered", 9}, &arena);
    }
    arena_done(&arena);
    fixture_close(&fx);
}

TEST(damaged_side_writes_are_refused) {
    static const struct {
        const char *bytes;
        size_t size;
    } DAMAGED[] = {
        {"", 0}, {"\4", 1}, {"\4\0\0\0", 4}, {"\0\0\0\0xxxxxxxx", 12}, {"\4\0\0\0abc", 7}};
    for (size_t i = 0; i < ARRAY_LEN(DAMAGED); i++) {
        Error err = {0};
        SideReader reader;
        Str record = {DAMAGED[i].bytes, DAMAGED[i].size};
        EXPECT(side_reader_open(&reader, record, /* is_string_rid= */ false, &err) ==
               ERR_DATA_CORRUPTION_DETECTED);
        error_reset(&err);
    }
}
