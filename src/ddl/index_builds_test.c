/*
 * Builds whose decision comes from elsewhere, as in a replica set: started under a given UUID, left
 * undecided, then committed or aborted.
 */
#include "base/alloc.h"
#include "ddl/ddl_internal.h"
#include "index/collection_write.h"
#include "storage/fixture_test.h"

typedef struct BuildFixture {
    StorageFixture fx;
    Ns ns;
    Arena arena;
    int32_t next_id;
} BuildFixture;

typedef struct InsertArgs {
    const Collection *coll;
    const Doc *docs;
    size_t count;
} InsertArgs;

static ErrCode insert_attempt(void *arg, OpCtx *op, Error *err) {
    InsertArgs *args = arg;
    CLEANUP(write_scratch_done) WriteScratch scratch;
    write_scratch_init(&scratch);
    CLEANUP(uow_done) UnitOfWork uow = {0};
    TRY(uow_begin(op, &uow, err));
    TRY(collection_insert(op, args->coll, args->docs, args->count, &scratch, err));
    return uow_commit(&uow, err);
}

/* A build that drains at the same time may conflict with it. */
static void insert(BuildFixture *b, int32_t count) {
    Doc docs[64];
    for (int32_t i = 0; i < count; i++) {
        DocBuilder builder = doc_builder_in_arena(&b->arena);
        build_i32(&builder, "_id", b->next_id);
        build_i32(&builder, "a", b->next_id++);
        docs[i] = doc_builder_end(&builder);
    }
    OpCtx *op = b->fx.op;
    Error err = {0};
    CLEANUP(access_done) CollAccess access = {0};
    EXPECT_OK(access_write(op, &b->ns, LOCK_IX, &access, &err), err);
    InsertArgs args = {access.coll, docs, (size_t)count};
    EXPECT_OK(op_run_with_retry(op, insert_attempt, &args, &err), err);
}

static void build_fixture_init(BuildFixture *b) {
    *b = (BuildFixture){0};
    fixture_init(&b->fx);
    arena_init(&b->arena, 4096);
    b->fx.service.index_builds = index_builds_new(/* is_resuming= */ false);
    Error err = {0};
    CatalogService *service = NULL;
    EXPECT_OK(catalog_service_open(b->fx.op, CATALOG_UNFINISHED_DISCARD, &service, &err), err);
    EXPECT_OK(ns_parse(STR("db.c"), &b->ns, &err), err);
    EXPECT_OK(ddl_create_collection(b->fx.op, &b->ns, DOC_EMPTY, NULL, &err), err);
    insert(b, 50);
}

static void build_fixture_done(BuildFixture *b) {
    index_builds_stop(b->fx.service.index_builds);
    index_builds_free(TAKE_PTR(b->fx.service.index_builds));
    catalog_service_free(TAKE_PTR(b->fx.service.catalog));
    arena_done(&b->arena);
    fixture_close(&b->fx);
}

/* Starts a build of {a: 1} that nobody has decided about. */
static void start(BuildFixture *b, const Uuid *uuid, IndexBuildWaiter *waiter) {
    OpCtx *op = b->fx.op;
    DocBuilder builder = doc_builder_in_arena(&b->arena);
    build_i32(&builder, "v", 2);
    size_t key = build_open_doc(&builder, "key");
    build_i32(&builder, "a", 1);
    build_close(&builder, key);
    build_cstr(&builder, "name", "a_1");
    Doc spec = doc_builder_end(&builder);
    Error err = {0};
    Catalog *catalog = catalog_acquire(b->fx.service.catalog);
    const Collection *coll = catalog_find(catalog, &b->ns);
    IndexBuild *build = index_build_new(op, coll, uuid);
    EXPECT_OK(
        index_builds_enter(op_index_builds(op), &build->active, /* is_limited= */ false, &err),
        err);
    bool is_changed;
    *waiter = (IndexBuildWaiter){.op = op};
    EXPECT_OK(ddl_start_index_build(build, coll, &spec, 1, waiter, &is_changed, &err), err);
    EXPECT(!is_changed);
    catalog_release(catalog);
}

/* 0: no such index; 1: being built; 2: ready. */
static uint32_t state_of_index(BuildFixture *b) {
    Catalog *catalog = catalog_acquire(b->fx.service.catalog);
    const IndexDesc *index = collection_find_index(catalog_find(catalog, &b->ns), STR("a_1"));
    uint32_t state = index == NULL ? 0 : index->is_ready ? 2 : 1;
    catalog_release(catalog);
    return state;
}

static uint32_t count_keys(BuildFixture *b) {
    Error err = {0};
    CLEANUP(access_done) CollAccess access = {0};
    EXPECT_OK(access_read(b->fx.op, &b->ns, &access, &err), err);
    const IndexDesc *index = collection_find_index(access.coll, STR("a_1"));
    CLEANUP(index_cursor_done) IndexCursor cursor = {0};
    EXPECT_OK(index_cursor_open(b->fx.op, index->store, true, &cursor, &err), err);
    EXPECT_OK(index_cursor_seek(&cursor, STR(""), &err), err);
    uint32_t count = 0;
    for (;; count++) {
        bool is_found;
        IndexEntry entry;
        EXPECT_OK(index_cursor_next(&cursor, &is_found, &entry, &err), err);
        if (!is_found)
            break;
    }
    return count;
}

/* The build is still there after a while that is long enough for all it can do on its own. */
static void expect_undecided(BuildFixture *b, const Uuid *uuid) {
    Error err = {0};
    OpCtx *op = b->fx.other;
    op_set_max_time(op, 200);
    EXPECT(index_builds_wait_end(b->fx.service.index_builds, op, uuid, &err) ==
           ERR_MAX_TIME_MS_EXPIRED);
    error_reset(&err);
    op->deadline_us = INT64_MAX;
    EXPECT_EQ_U64(state_of_index(b), 1);
}

TEST(an_index_build_waits_for_its_decision_and_is_then_committed) {
    BuildFixture b;
    build_fixture_init(&b);
    IndexBuilds *builds = b.fx.service.index_builds;
    Uuid uuid = uuid_new();
    IndexBuildWaiter waiter;
    start(&b, &uuid, &waiter);
    expect_undecided(&b, &uuid);
    insert(&b, 30); /* after its first drain */
    index_builds_commit(builds, &uuid);
    Error err = {0};
    EXPECT_OK(index_builds_wait(builds, &waiter, &err), err);
    EXPECT_EQ_U64(state_of_index(&b), 2);
    EXPECT_EQ_U64(count_keys(&b), 80);
    index_builds_abort(builds, &uuid, "a test"); /* it is over: nothing happens */
    EXPECT_EQ_U64(state_of_index(&b), 2);
    build_fixture_done(&b);
}

TEST(an_index_build_that_is_aborted_from_elsewhere_leaves_nothing) {
    BuildFixture b;
    build_fixture_init(&b);
    IndexBuilds *builds = b.fx.service.index_builds;
    Uuid uuid = uuid_new();
    IndexBuildWaiter waiter;
    start(&b, &uuid, &waiter);
    expect_undecided(&b, &uuid);
    index_builds_abort(builds, &uuid, "a test");
    Error err = {0};
    EXPECT(index_builds_wait(builds, &waiter, &err) == ERR_INDEX_BUILD_ABORTED);
    EXPECT(strcmp(error_message(&err), "a test") == 0);
    error_reset(&err);
    EXPECT_EQ_U64(state_of_index(&b), 0);
    insert(&b, 5);
    EXPECT_EQ_U64(storage_reap_idents(b.fx.engine), 0);
    build_fixture_done(&b);
}

TEST(who_waits_for_an_index_build_and_is_interrupted_ends_it) {
    BuildFixture b;
    build_fixture_init(&b);
    Uuid uuid = uuid_new();
    IndexBuildWaiter waiter;
    start(&b, &uuid, &waiter);
    op_set_max_time(b.fx.op, 100);
    Error err = {0};
    EXPECT(index_builds_wait(b.fx.service.index_builds, &waiter, &err) == ERR_MAX_TIME_MS_EXPIRED);
    error_reset(&err);
    b.fx.op->deadline_us = INT64_MAX;
    EXPECT_EQ_U64(state_of_index(&b), 0);
    build_fixture_done(&b);
}

TEST(an_undecided_index_build_survives_a_clean_stop_and_is_committed_after_it) {
    BuildFixture b;
    build_fixture_init(&b);
    index_builds_free(b.fx.service.index_builds);
    b.fx.service.index_builds = index_builds_new(/* is_resuming= */ true);
    Uuid uuid = uuid_new();
    IndexBuildWaiter waiter;
    start(&b, &uuid, &waiter);
    expect_undecided(&b, &uuid);
    insert(&b, 30);
    index_builds_interrupt(b.fx.service.index_builds);
    Error err = {0};
    EXPECT(index_builds_wait(b.fx.service.index_builds, &waiter, &err) ==
           ERR_INTERRUPTED_AT_SHUTDOWN);
    error_reset(&err);
    insert(&b, 10); /* a writer that was slower */
    index_builds_stop(b.fx.service.index_builds);
    index_builds_free(TAKE_PTR(b.fx.service.index_builds));
    catalog_service_free(TAKE_PTR(b.fx.service.catalog));
    fixture_close(&b.fx);

    fixture_open(&b.fx);
    b.fx.service.index_builds = index_builds_new(/* is_resuming= */ true);
    CatalogService *service = NULL;
    EXPECT_OK(catalog_service_open(b.fx.op, CATALOG_UNFINISHED_KEEP, &service, &err), err);
    EXPECT_OK(ddl_recover_index_builds(b.fx.op, &err), err);
    insert(&b, 10);
    EXPECT_OK(index_builds_wait_end(b.fx.service.index_builds, b.fx.op, &uuid, &err), err);
    EXPECT_EQ_U64(state_of_index(&b), 2);
    EXPECT_EQ_U64(count_keys(&b), 100);
    build_fixture_done(&b);
}
