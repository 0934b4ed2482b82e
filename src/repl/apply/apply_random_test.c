/*
 * apply_random_test.c - what one node writes and logs, another one makes of its oplog.
 *
 * Method: random writes and changes of indexes and names on a primary, through the ordinary write
 * path; its oplog applied to an empty node by several threads in batches of random sizes must give
 * the same collections, byte for byte, and sound indexes. Then the end of the oplog once more.
 */
#include "catalog/write_observer.h"
#include "ddl/ddl.h"
#include "index/collection_write.h"
#include "index/validate.h"
#include "repl/apply/apply_node_test.h"
#include "bson/json_docs_test.h"

enum {
    STEPS = 3000,
    IDS = 150,
    COLLECTIONS_MAX = 16,
    BATCH_MAX = 600,
};

typedef struct Source {
    TestNode node;
    Prng prng;
    Arena arena; /* of one step */
    WriteScratch scratch;
} Source;

/* ---- random writes ---- */

static void build_random_id(DocBuilder *b, Prng *prng) {
    int64_t n = (int64_t)prng_below(prng, IDS);
    switch (prng_below(prng, 4)) {
    case 0:
        build_f64(b, "_id", (double)n);
        break;
    case 1:
        build_i64(b, "_id", n);
        break;
    default:
        build_i32(b, "_id", (int32_t)n);
    }
}

/* `id` may be missing: a random one. */
static Doc random_doc(Source *s, Elem id) {
    DocBuilder b = doc_builder_in_arena(&s->arena);
    if (elem_is_present(id))
        build_elem(&b, id);
    else
        build_random_id(&b, &s->prng);
    if (prng_below(&s->prng, 3) == 0) {
        size_t array = build_open_array(&b, "m");
        uint32_t count = (uint32_t)prng_below(&s->prng, 4);
        for (uint32_t i = 0; i < count; i++) {
            char name[INDEX_NAME_SIZE];
            build_i32(&b, index_name(i, name).data, (int32_t)prng_below(&s->prng, 10));
        }
        build_close(&b, array);
    } else {
        build_i32(&b, "m", (int32_t)prng_below(&s->prng, 10));
    }
    build_i32(&b, "u", (int32_t)prng_below(&s->prng, 400));
    if (prng_below(&s->prng, 2) == 0)
        build_i32(&b, "s", (int32_t)prng_below(&s->prng, 5));
    char text[64] = {0};
    memset(text, 'x', prng_below(&s->prng, 60));
    build_cstr(&b, "text", text);
    return doc_builder_end(&b);
}

/* The document at or after a random place. */
static bool pick(Source *s, const Collection *coll, RecordId *ret_rid, Doc *ret_doc) {
    CLEANUP(error_reset) Error err = {0};
    CLEANUP(record_cursor_done) RecordCursor cursor = {0};
    EXPECT_OK(record_cursor_open(s->node.op, coll->records, true, &cursor, &err), err);
    uint64_t skip = prng_below(&s->prng, 30);
    bool is_found = false;
    do {
        Str data;
        EXPECT_OK(record_cursor_next(&cursor, &is_found, ret_rid, &data, &err), err);
        if (is_found)
            *ret_doc = doc_copy((Doc){(const uint8_t *)data.data}, &s->arena);
    } while (is_found && skip-- > 0);
    return is_found;
}

/* Inserts of many documents have timestamps of their own: they are alone in their unit of work. */
static ErrCode write_once(Source *s, const Collection *coll, bool is_alone, Error *err) {
    OpCtx *op = s->node.op;
    RecordId rid;
    Doc before;
    uint64_t kind = prng_below(&s->prng, 10);
    if (kind >= 5 && pick(s, coll, &rid, &before)) {
        if (kind >= 8)
            return coll->options.is_capped
                       ? ERR_OK
                       : collection_delete(op, coll, rid, before, &s->scratch, err);
        Doc after = random_doc(s, doc_get_lit(before, "_id"));
        if (coll->options.is_capped && doc_size(after) > doc_size(before))
            return ERR_OK;
        return kind == 7 ? collection_replace(op, coll, rid, before, after, &s->scratch, err)
                         : collection_update(op, coll, rid, before, after, &s->scratch, err);
    }
    Doc docs[10];
    size_t count = kind == 0 && is_alone ? 1 + prng_below(&s->prng, 10) : 1;
    for (size_t i = 0; i < count; i++)
        docs[i] = random_doc(s, ELEM_MISSING);
    return collection_insert(op, coll, docs, count, &s->scratch, err);
}

static void write_unit(Source *s, const char *name) {
    CLEANUP(error_reset) Error err = {0};
    Ns ns = test_ns(name);
    CLEANUP(access_done) CollAccess access = {0};
    EXPECT_OK(access_write(s->node.op, &ns, LOCK_IX, &access, &err), err);
    if (access.coll == NULL)
        return;
    CLEANUP(uow_done) UnitOfWork uow = {0};
    EXPECT_OK(uow_begin(s->node.op, &uow, &err), err);
    uint64_t writes = prng_below(&s->prng, 5) == 0 ? 1 + prng_below(&s->prng, 4) : 1;
    for (uint64_t i = 0; i < writes; i++) {
        ErrCode rc = write_once(s, access.coll, writes == 1, &err);
        if (rc == ERR_DUPLICATE_KEY)
            return; /* rolled back */
        EXPECT_OK(rc, err);
        if (rc != ERR_OK)
            return;
    }
    EXPECT_OK(uow_commit(&uow, &err), err);
}

/* ---- random changes of the catalog ---- */

static const char *const INDEXES[] = {
    "{'key': {'m': 1}, 'name': 'm_1'}",
    "{'key': {'u': 1}, 'name': 'u_1', 'unique': true}",
    "{'key': {'s': -1, 'm': 1}, 'name': 's_m', 'sparse': true}",
    "{'key': {'text': 'hashed'}, 'name': 'text_h'}",
};

static void change_catalog(Source *s) {
    CLEANUP(error_reset) Error err = {0};
    OpCtx *op = s->node.op;
    Ns a = test_ns("r.a"), t = test_ns("r.t"), t2 = test_ns("r.t2"), q = test_ns("q.t");
    CreateIndexesResult created;
    DropResult dropped;
    uint32_t count;
    Doc spec = test_doc(INDEXES[prng_below(&s->prng, ARRAY_LEN(INDEXES))], &s->arena);
    ErrCode rc = ERR_OK;
    switch (prng_below(&s->prng, 10)) {
    case 0:
        rc = ddl_create_indexes(op, &a, &spec, 1, &created, &err);
        break;
    case 1:
        rc = ddl_drop_indexes(op, &a, doc_get_lit(spec, "name"), &count, &err);
        break;
    case 2:
        rc = ddl_ensure_collection(op, &t, &err);
        break;
    case 3:
        rc = ddl_drop(op, &t, NULL, &dropped, &err);
        break;
    case 4:
        rc = ddl_rename(op, &t, &t2, /* is_drop_target= */ true, &err);
        break;
    case 5:
        rc = ddl_rename(op, &t2, &t, /* is_drop_target= */ false, &err);
        break;
    case 6:
        rc = ddl_rename(op, &t, &q, /* is_drop_target= */ true, &err);
        break;
    case 7:
        rc = ddl_rename(op, &q, &t, /* is_drop_target= */ true, &err);
        break;
    case 8:
        rc = ddl_convert_to_capped(op, &t, 1500, &err);
        break;
    case 9:
        rc = ddl_clone_as_capped(op, &a, &t2, 1500, /* is_temp= */ false, &err);
        break;
    }
    bool is_fine = rc == ERR_OK || rc == ERR_INDEX_NOT_FOUND || rc == ERR_NAMESPACE_NOT_FOUND ||
                   rc == ERR_NAMESPACE_EXISTS || rc == ERR_DUPLICATE_KEY;
    if (!is_fine)
        test_fail(__FILE__, __LINE__, "%d %s", (int)rc, error_message(&err));
}

static void fill_source(Source *s) {
    CLEANUP(error_reset) Error err = {0};
    OpCtx *op = s->node.op;
    EXPECT_OK(oplog_begin_term(s->node.oplog, op, 1, &err), err);
    static const char *const COLLECTIONS[][2] = {
        {"r.a", "{}"},
        {"r.capped", "{'capped': true, 'size': 4096, 'max': 20}"},
        {"r.clustered", "{'clusteredIndex': {'key': {'_id': 1}, 'unique': true}}"},
        {"r.t", "{}"},
    };
    for (size_t i = 0; i < ARRAY_LEN(COLLECTIONS); i++) {
        Ns ns = test_ns(COLLECTIONS[i][0]);
        EXPECT_OK(
            ddl_create_collection(op, &ns, test_doc(COLLECTIONS[i][1], &s->arena), NULL, &err),
            err);
    }
    for (size_t i = 0; i < ARRAY_LEN(INDEXES); i++) {
        Ns ns = test_ns("r.a");
        Doc spec = test_doc(INDEXES[i], &s->arena);
        CreateIndexesResult created;
        EXPECT_OK(ddl_create_indexes(op, &ns, &spec, 1, &created, &err), err);
    }
    for (int i = 0; i < STEPS; i++) {
        static const char *const NAMES[] = {"r.a", "r.a", "r.a", "r.capped", "r.clustered", "r.t"};
        if (prng_below(&s->prng, 200) == 0)
            change_catalog(s);
        else
            write_unit(s, NAMES[prng_below(&s->prng, ARRAY_LEN(NAMES))]);
        arena_reset(&s->arena);
        arena_reset(&op->arena);
    }
}

/* ---- comparing ---- */

typedef struct Found {
    const Collection *rows[COLLECTIONS_MAX];
    size_t count;
} Found;

static bool collect(void *arg, const Collection *coll) {
    Found *found = arg;
    if (found->count < COLLECTIONS_MAX)
        found->rows[found->count++] = coll;
    return true;
}

static void check_sound(TestNode *node, const Ns *ns, Arena *arena) {
    CLEANUP(error_reset) Error err = {0};
    DocBuilder b = doc_builder_in_arena_sized(arena, 4096);
    CLEANUP(access_done) CollAccess access = {0};
    EXPECT_OK(access_write(node->op, ns, LOCK_X, &access, &err), err);
    ValidateOptions options = {.is_full = false, .is_fast_count_enforced = true};
    EXPECT_OK(collection_validate(&access, &options, /* is_locked= */ true, &b, &err), err);
    Doc report = doc_builder_end(&b);
    if (!elem_is_truthy(doc_get_lit(report, "valid")))
        test_fail(__FILE__, __LINE__, "%s", shell_text_of_doc(report, arena));
}

static int compare_specs(const void *a, const void *b) {
    return elem_compare(doc_get_lit(*(const Doc *)a, "name"), doc_get_lit(*(const Doc *)b, "name"),
                        NULL);
}

/* Names, UUIDs, options, indexes and documents of all collections; they are in UUID order. What is
 * applied to newer data comes out with indexes, and documents of capped collections, in another
 * order: `is_sorted` does not look at that. */
static void dump(TestNode *node, bool is_sorted, Buffer *out) {
    Arena arena;
    arena_init(&arena, 65536);
    Catalog *catalog = catalog_acquire(node->fx.service.catalog);
    Found found = {0};
    catalog_for_each_in_db(catalog, STR("q"), collect, &found);
    catalog_for_each_in_db(catalog, STR("r"), collect, &found);
    for (size_t i = 0; i < found.count; i++) {
        const Collection *coll = found.rows[i];
        buffer_append(out, coll->ns.text, coll->ns.size);
        buffer_append(out, coll->uuid.bytes, sizeof(coll->uuid.bytes));
        buffer_append(out, coll->options.doc.data, doc_size(coll->options.doc));
        Doc specs[COLLECTION_INDEXES_MAX];
        for (uint32_t x = 0; x < coll->index_count; x++)
            specs[x] = coll->indexes[x]->spec;
        if (is_sorted && coll->index_count > 0)
            qsort(specs, coll->index_count, sizeof(specs[0]), compare_specs);
        for (uint32_t x = 0; x < coll->index_count; x++)
            buffer_append(out, specs[x].data, doc_size(specs[x]));
        CLEANUP(error_reset) Error err = {0};
        EXPECT_OK(op_lock_global(node->op, LOCK_IS, &err), err);
        size_t count;
        Doc *docs = test_read_all(node->op, coll, &arena, &count);
        op_unlock_global(node->op);
        if (is_sorted && count > 0)
            qsort(docs, count, sizeof(*docs), test_compare_ids);
        for (size_t d = 0; d < count; d++)
            buffer_append(out, docs[d].data, doc_size(docs[d]));
        xfree(docs);
        check_sound(node, &coll->ns, &arena);
    }
    catalog_release(catalog);
    arena_done(&arena);
}

static void expect_same(const Buffer *a, const Buffer *b, const char *what) {
    if (a->size == b->size && memcmp(a->data, b->data, a->size) == 0)
        return;
    size_t at = 0;
    while (at < a->size && at < b->size && a->data[at] == b->data[at])
        at++;
    test_fail(__FILE__, __LINE__, "%s: %zu and %zu bytes differ at %zu", what, a->size, b->size,
              at);
}

static Doc *read_oplog(Source *s, Arena *arena, size_t *ret_count) {
    CLEANUP(error_reset) Error err = {0};
    EXPECT_OK(op_lock_global(s->node.op, LOCK_IS, &err), err);
    Doc *entries = test_read_all(s->node.op, oplog_collection(s->node.oplog), arena, ret_count);
    op_unlock_global(s->node.op);
    return entries;
}

static void apply_in_batches(TestNode *node, const Doc *entries, size_t count, ApplyMode mode,
                             Prng *prng) {
    CLEANUP(error_reset) Error err = {0};
    for (size_t done = 0; done < count;) {
        size_t batch = 1 + prng_below(prng, BATCH_MAX);
        if (batch > count - done)
            batch = count - done;
        size_t end = apply_batch_end(entries + done, batch);
        REQUIRE_OK(applier_run(node->applier, node->op, entries + done, end, mode, &err), err);
        done += end;
    }
}

TEST(an_oplog_applied_elsewhere_gives_the_same_data) {
    CLEANUP(buffer_done) Buffer wanted;
    CLEANUP(buffer_done) Buffer first;
    CLEANUP(buffer_done) Buffer wanted_sorted;
    CLEANUP(buffer_done) Buffer again;
    buffer_init(&wanted, BUFFER_UNBOUNDED);
    buffer_init(&first, BUFFER_UNBOUNDED);
    buffer_init(&wanted_sorted, BUFFER_UNBOUNDED);
    buffer_init(&again, BUFFER_UNBOUNDED);
    Arena arena;
    arena_init(&arena, 1 << 20);
    Source source = {.prng = prng_seeded(test_seed())};
    arena_init(&source.arena, 65536);
    write_scratch_init(&source.scratch);
    test_node_open(&source.node, /* has_oplog= */ true);
    fill_source(&source);
    dump(&source.node, /* is_sorted= */ false, &wanted);
    dump(&source.node, /* is_sorted= */ true, &wanted_sorted);
    size_t count;
    Doc *entries = read_oplog(&source, &arena, &count);
    EXPECT(count > STEPS / 2);
    test_node_close(&source.node);
    write_scratch_done(&source.scratch);
    arena_done(&source.arena);

    TestNode target;
    apply_node_open(&target, /* apply_threads= */ 4);
    apply_in_batches(&target, entries, count, APPLY_STEADY, &source.prng);
    dump(&target, /* is_sorted= */ false, &first);
    expect_same(&wanted, &first, "applied");
    for (int round = 0; round < 3; round++) {
        size_t from = prng_below(&source.prng, count);
        apply_in_batches(&target, entries + from, count - from,
                         round == 2 ? APPLY_INITIAL_SYNC : APPLY_RECOVERY, &source.prng);
        buffer_clear(&again);
        dump(&target, /* is_sorted= */ true, &again);
        expect_same(&wanted_sorted, &again, "applied again");
    }
    apply_node_close(&target);
    xfree(entries);
    arena_done(&arena);
}

TEST(temporary_collections_are_dropped_and_renamed_ones_kept) {
    /* Goal: a rename across databases leaves nothing temporary behind, and what a crash left goes.
     */
    CLEANUP(error_reset) Error err = {0};
    Source s = {.prng = prng_seeded(test_seed())};
    arena_init(&s.arena, 65536);
    write_scratch_init(&s.scratch);
    test_node_open(&s.node, /* has_oplog= */ true);
    OpCtx *op = s.node.op;
    EXPECT_OK(oplog_begin_term(s.node.oplog, op, 1, &err), err);
    Ns t = test_ns("r.t"), q = test_ns("q.t"), left = test_ns("q.tmpAAAAA.renameCollection");
    Doc options = test_doc("{'validator': {'no': 1}, 'collation': {'locale': 'en'}}", &s.arena);
    EXPECT_OK(ddl_create_collection(op, &t, options, NULL, &err), err);
    Doc specs[] = {
        test_doc("{'key': {'m': 1}, 'name': 'm_1'}", &s.arena),
        test_doc("{'key': {'u': 1}, 'name': 'u_1', 'collation': {'locale': 'simple'}}", &s.arena)};
    CreateIndexesResult created;
    EXPECT_OK(ddl_create_indexes(op, &t, specs, 2, &created, &err), err);
    op->mode.is_validation_bypassed = true;
    for (int i = 0; i < 200; i++)
        write_unit(&s, "r.t");
    op->mode.is_validation_bypassed = false;
    Doc temp = test_doc("{'temp': true}", &s.arena);
    EXPECT_OK(ddl_create_collection(op, &left, temp, NULL, &err), err);
    EXPECT_OK(ddl_rename(op, &t, &q, /* is_drop_target= */ false, &err), err);
    EXPECT_OK(ddl_drop_temporary(op, &err), err);
    EXPECT(ddl_convert_to_capped(op, &t, 4096, &err) == ERR_NAMESPACE_NOT_FOUND);
    error_reset(&err);

    Catalog *catalog = catalog_acquire(s.node.fx.service.catalog);
    EXPECT(catalog_find(catalog, &t) == NULL);
    EXPECT(catalog_find(catalog, &left) == NULL);
    const Collection *coll = catalog_find(catalog, &q);
    EXPECT(coll != NULL);
    if (coll != NULL) {
        EXPECT(!coll->options.is_temp);
        EXPECT(doc_is_present(coll->options.validator));
        EXPECT_EQ_U64(coll->index_count, 3);
        const IndexDesc *m = collection_find_index(coll, STR("m_1"));
        const IndexDesc *u = collection_find_index(coll, STR("u_1"));
        EXPECT(m != NULL && m->collator != NULL);
        EXPECT(u != NULL && u->collator == NULL);
        EXPECT(record_store_count(coll->records) > 20);
    }
    catalog_release(catalog);
    Ns local = test_ns("local.t");
    EXPECT(ddl_rename(op, &q, &local, false, &err) == ERR_ILLEGAL_OPERATION);
    write_scratch_done(&s.scratch);
    arena_done(&s.arena);
    test_node_close(&s.node);
}
