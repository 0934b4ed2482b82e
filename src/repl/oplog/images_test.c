/*
 * images_test.c - images of documents before the writes of a unit (REP-5): each has the place of
 * its write in the oplog, whatever form the unit's entries have.
 */
#include "base/alloc.h"
#include "bson/builder.h"
#include "ddl/ddl.h"
#include "index/collection_write.h"
#include "index/lookup.h"
#include "preimages/preimage_store.h"
#include "preimages/preimages.h"
#include "repl/oplog/node_test.h"
#include "repl/oplog/oplog_internal.h"
#include "storage/unit_of_work.h"

static const Ns IMAGED_NS = {.size = 3, .db_size = 1, .text = "d.a"};
static const Ns OPLOG_NS = {.size = 14, .db_size = 5, .text = "local.oplog.rs"};
static const Ns PLAIN_NS = {.size = 3, .db_size = 1, .text = "d.b"};

static void create_imaged(TestNode *node) {
    CLEANUP(error_reset) Error err = {0};
    DocBuilder b = doc_builder_in_arena(&node->op->arena);
    size_t opened = build_open_doc(&b, "changeStreamPreAndPostImages");
    build_bool(&b, "enabled", true);
    build_close(&b, opened);
    EXPECT_OK(preimages_prepare(node->op, &IMAGED_NS, &err), err);
    EXPECT_OK(ddl_create_collection(node->op, &IMAGED_NS, doc_builder_end(&b), NULL, &err), err);
    EXPECT_OK(ddl_create_collection(node->op, &PLAIN_NS, DOC_EMPTY, NULL, &err), err);
}

static Doc make_doc(OpCtx *op, int32_t id, int32_t version, size_t bytes) {
    CLEANUP(xfree_ptr) char *pad = xcalloc(1, bytes + 1);
    memset(pad, 'p', bytes);
    DocBuilder b = doc_builder_in_arena_sized(&op->arena, bytes + 64);
    build_i32(&b, "_id", id);
    build_i32(&b, "version", version);
    build_str(&b, "pad", (Str){pad, bytes});
    return doc_builder_end(&b);
}

typedef struct Writes {
    int32_t count; /* documents, in each of two collections */
    size_t bytes;
    enum { STEP_INSERT, STEP_REPLACE, STEP_DELETE } step;
    bool is_left; /* not committed */
} Writes;

static ErrCode write_one(OpCtx *op, const Collection *coll, int32_t id, const Writes *writes,
                         WriteScratch *scratch, Error *err) {
    Doc before = make_doc(op, id, 1, writes->bytes), after = make_doc(op, id, 2, writes->bytes);
    if (writes->step == STEP_INSERT)
        return collection_insert(op, coll, &before, 1, scratch, err);
    bool is_found;
    RecordId rid;
    TRY(lookup_record_id(op, coll, doc_get_lit(before, "_id"), &scratch->rid, &is_found, &rid,
                         err));
    EXPECT(is_found);
    return writes->step == STEP_DELETE
               ? collection_delete(op, coll, rid, after, scratch, err)
               : collection_replace(op, coll, rid, before, after, scratch, err);
}

static ErrCode write_unit(OpCtx *op, const Writes *writes, Error *err) {
    CLEANUP(access_done) CollAccess imaged = {0};
    CLEANUP(access_done) CollAccess plain = {0};
    TRY(access_write(op, &IMAGED_NS, LOCK_IX, &imaged, err));
    TRY(access_write(op, &PLAIN_NS, LOCK_IX, &plain, err));
    CLEANUP(write_scratch_done) WriteScratch scratch;
    write_scratch_init(&scratch);
    CLEANUP(uow_done) UnitOfWork uow = {0};
    TRY(uow_begin(op, &uow, err));
    for (int32_t id = 0; id < writes->count; id++) {
        ArenaMark mark = arena_mark(&op->arena);
        TRY(write_one(op, plain.coll, id, writes, &scratch, err));
        TRY(write_one(op, imaged.coll, id, writes, &scratch, err));
        /* As at the end of a client's command in the middle of a transaction. */
        arena_rewind(&op->arena, mark);
    }
    return writes->is_left ? ERR_OK : uow_commit(&uow, err);
}

static uint64_t run_unit(TestNode *node, const Writes *writes) {
    CLEANUP(error_reset) Error err = {0};
    EXPECT_OK(write_unit(node->op, writes, &err), err);
    return writes->is_left ? 0 : node->op->last_optime.ts;
}

static size_t count_images(TestNode *node, Arena *arena) {
    CLEANUP(error_reset) Error err = {0};
    CLEANUP(access_done) CollAccess access = {0};
    EXPECT_OK(access_read(node->op, &PREIMAGES_NS, &access, &err), err);
    size_t count;
    xfree(test_read_all(node->op, access.coll, arena, &count));
    EXPECT_EQ_I64(record_store_count(access.coll->records), (int64_t)count);
    return count;
}

typedef struct Check {
    TestNode *node;
    uint64_t after;
    int32_t version;
    uint32_t entries;
} Check;

static void check_entry(TestNode *node, Doc entry, uint64_t ts, int32_t version) {
    CLEANUP(error_reset) Error err = {0};
    int64_t index = 0;
    DocIter iter = doc_iter(elem_doc(doc_get_path(entry, "o.applyOps")));
    for (Elem row; doc_iter_next(&iter, &row); index++) {
        ArenaMark mark = arena_mark(&node->op->arena);
        Doc write = elem_doc(row), image;
        Uuid uuid;
        EXPECT(uuid_from_elem(doc_get_lit(write, "ui"), &uuid));
        EXPECT_OK(preimage_find(node->op, &uuid, ts, index, &node->op->arena, &image, &err), err);
        bool is_imaged = str_is(elem_str(doc_get_lit(write, "ns")), IMAGED_NS.text);
        EXPECT(doc_is_present(image) == is_imaged);
        if (is_imaged) {
            Elem key = doc_get_lit(write, "o2");
            Doc id = elem_doc(elem_is_present(key) ? key : doc_get_lit(write, "o"));
            EXPECT(elem_equal(doc_get_lit(image, "_id"), doc_get_lit(id, "_id"), NULL));
            EXPECT_EQ_I64(elem_as_i64(doc_get_lit(image, "version")), version);
        }
        arena_rewind(&node->op->arena, mark);
    }
}

static ErrCode visit_entry(void *arg, RecordId rid, Str data, bool *is_over, Error *err) {
    (void)is_over, (void)err;
    Check *check = arg;
    if ((uint64_t)rid.num <= check->after)
        return ERR_OK;
    check->entries++;
    check_entry(check->node, (Doc){(const uint8_t *)data.data}, (uint64_t)rid.num, check->version);
    return ERR_OK;
}

/* Each write of the entries after `after` to the collection with images has its image, at its
 * place; no other one has. Returns how many entries there are. */
static uint32_t check_images(TestNode *node, uint64_t after, int32_t version) {
    CLEANUP(error_reset) Error err = {0};
    Check check = {node, after, version, 0};
    CLEANUP(access_done) CollAccess access = {0};
    EXPECT_OK(access_read(node->op, &OPLOG_NS, &access, &err), err);
    EXPECT_OK(record_store_each(node->op, access.coll->records, /* is_forward= */ true, visit_entry,
                                &check, &err),
              err);
    return check.entries;
}

TEST(images_have_the_places_of_their_writes_in_one_entry_and_in_a_chain) {
    static const struct {
        int32_t count;
        size_t bytes;
        uint32_t entries_min;
    } CASES[] = {{10, 100, 1}, {20, 1 << 20, 3}};
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        TestNode node;
        test_node_open(&node, /* has_oplog= */ true);
        CLEANUP(error_reset) Error err = {0};
        EXPECT_OK(oplog_begin_term(node.oplog, node.op, 7, &err), err);
        create_imaged(&node);
        Writes writes = {.count = CASES[i].count, .bytes = CASES[i].bytes, .step = STEP_INSERT};
        uint64_t inserted = run_unit(&node, &writes);
        EXPECT_EQ_U64(count_images(&node, &node.op->arena), 0);

        writes.step = STEP_REPLACE;
        uint64_t replaced = run_unit(&node, &writes);
        EXPECT(check_images(&node, inserted, 1) >= CASES[i].entries_min);
        EXPECT_EQ_U64(count_images(&node, &node.op->arena), (uint64_t)writes.count);
        /* Memory that the unit made grow is gone. */
        EXPECT(node.op->oplog_stage->images.staged.capacity <= OPLOG_STAGE_BYTES_KEPT);

        writes.step = STEP_DELETE;
        writes.is_left = true;
        (void)run_unit(&node, &writes);
        EXPECT_EQ_U64(count_images(&node, &node.op->arena), (uint64_t)writes.count);
        writes.is_left = false;
        (void)run_unit(&node, &writes);
        (void)check_images(&node, replaced, 2);
        EXPECT_EQ_U64(count_images(&node, &node.op->arena), 2 * (uint64_t)writes.count);
        test_node_close(&node);
    }
}

TEST(images_are_not_kept_of_documents_that_move_between_shards) {
    TestNode node;
    test_node_open(&node, /* has_oplog= */ true);
    CLEANUP(error_reset) Error err = {0};
    EXPECT_OK(oplog_begin_term(node.oplog, node.op, 7, &err), err);
    create_imaged(&node);
    Writes writes = {.count = 3, .bytes = 10, .step = STEP_INSERT};
    (void)run_unit(&node, &writes);
    node.op->mode.is_from_migrate = true;
    writes.step = STEP_REPLACE;
    (void)run_unit(&node, &writes);
    EXPECT_EQ_U64(count_images(&node, &node.op->arena), 0);
    node.op->mode.is_from_migrate = false;
    writes.step = STEP_DELETE;
    (void)run_unit(&node, &writes);
    EXPECT_EQ_U64(count_images(&node, &node.op->arena), 3);
    test_node_close(&node);
}
