#include <string.h>

#include "base/alloc.h"
#include "catalog/access.h"
#include "catalog/write_observer.h"
#include "ddl/ddl.h"
#include "storage/fixture_test.h"

static void open_catalog(StorageFixture *fx) {
    Error err = {0};
    CatalogService *service = NULL;
    EXPECT_OK(catalog_service_open(fx->op, CATALOG_UNFINISHED_DISCARD, &service, &err), err);
}

static void close_catalog(StorageFixture *fx) {
    catalog_service_free(fx->service.catalog);
    fx->service.catalog = NULL;
}

static Ns ns_of(const char *full) {
    Ns ns;
    Error err = {0};
    EXPECT_OK(ns_parse(str_from(full), &ns, &err), err);
    return ns;
}

static void create(StorageFixture *fx, const char *full) {
    Error err = {0};
    Ns ns = ns_of(full);
    EXPECT_OK(ddl_create_collection(fx->op, &ns, DOC_EMPTY, NULL, &err), err);
}

static bool exists(StorageFixture *fx, const char *full) {
    Catalog *catalog = catalog_acquire(fx->service.catalog);
    Ns ns = ns_of(full);
    bool is_there = catalog_find(catalog, &ns) != NULL;
    catalog_release(catalog);
    return is_there;
}

TEST(catalog_survives_a_restart_and_drops_tables_nobody_names) {
    /* Goal (CAT-1, CAT-6): collections are there after a restart; a table without an entry, as a
     * crash between the two steps of create leaves it, is dropped. */
    StorageFixture fx;
    fixture_init(&fx);
    open_catalog(&fx);
    create(&fx, "db.a");
    create(&fx, "db.b");
    Error err = {0};
    EXPECT_OK(storage_create_table(fx.engine, "collection-99-1", TABLE_RECORDS, NULL, &err), err);
    close_catalog(&fx);
    fixture_close(&fx);

    fixture_open(&fx);
    open_catalog(&fx);
    EXPECT(exists(&fx, "db.a"));
    EXPECT(exists(&fx, "db.b"));
    EXPECT(!storage_has_table(fx.engine, "collection-99-1"));
    close_catalog(&fx);
    fixture_close(&fx);
}

TEST(a_reader_keeps_the_collection_it_started_with) {
    /* Goal (CAT-3, CAT-4, CAT-5): a read that began before a drop goes on reading the dropped
     * collection, its tables stay until the reader is gone, and then they go. */
    StorageFixture fx;
    fixture_init(&fx);
    open_catalog(&fx);
    create(&fx, "db.a");
    Ns ns = ns_of("db.a");
    Error err = {0};
    CollAccess access = {0};
    EXPECT_OK(access_read(fx.other, &ns, &access, &err), err);
    REQUIRE(access.coll != NULL);
    CLEANUP(xfree_ptr) char *ident = xstrdup(record_store_ident(access.coll->records));

    DropResult dropped;
    EXPECT_OK(ddl_drop(fx.op, &ns, NULL, &dropped, &err), err);
    EXPECT(dropped.was_found);
    EXPECT(!exists(&fx, "db.a"));
    EXPECT(storage_reap_idents(fx.engine) > 0);
    EXPECT(storage_has_table(fx.engine, ident));
    {
        CLEANUP(record_cursor_done) RecordCursor cursor = {0};
        EXPECT_OK(record_cursor_open(fx.other, access.coll->records, true, &cursor, &err), err);
    }
    access_done(&access);
    EXPECT_EQ_U64(storage_reap_idents(fx.engine), 0);
    EXPECT(!storage_has_table(fx.engine, ident));
    close_catalog(&fx);
    fixture_close(&fx);
}

static const Collection *find_at(StorageFixture *fx, const char *full, uint64_t ts,
                                 CollAccess *ret_access) {
    Error err = {0};
    Ns ns = ns_of(full);
    ru_set_read_source(fx->other->ru, READ_PROVIDED, ts);
    EXPECT_OK(access_read(fx->other, &ns, ret_access, &err), err);
    return ret_access->coll;
}

static void done_at(StorageFixture *fx, CollAccess *access) {
    access_done(access);
    ru_abandon_snapshot(fx->other->ru);
    ru_set_read_source(fx->other->ru, READ_LATEST, 0);
}

typedef enum PastChange { PAST_CREATE, PAST_RENAME, PAST_DROP } PastChange;

/* Gives the change a timestamp inside its own unit of work, as the oplog will. */
static ErrCode stamp_ddl(void *arg, OpCtx *op, const DdlEntry *entry, Error *err) {
    (void)entry;
    return ru_set_commit_ts(op->ru, *(uint64_t *)arg, err);
}

static void change_at(StorageFixture *fx, PastChange change, const char *full, const char *to,
                      uint64_t ts) {
    Error err = {0};
    Ns ns = ns_of(full);
    WriteObservers *observers = catalog_write_observers(fx->service.catalog);
    observers->rows[0] = (WriteObserver){.arg = &ts, .on_ddl = stamp_ddl};
    observers->count = 1;
    DropResult dropped;
    Ns target = to != NULL ? ns_of(to) : ns;
    if (change == PAST_CREATE)
        EXPECT_OK(ddl_create_collection(fx->op, &ns, DOC_EMPTY, NULL, &err), err);
    else if (change == PAST_RENAME)
        EXPECT_OK(ddl_rename(fx->op, &ns, &target, /* is_drop_target= */ true, &err), err);
    else
        EXPECT_OK(ddl_drop(fx->op, &ns, NULL, &dropped, &err), err);
    observers->count = 0;
}

TEST(reads_at_a_timestamp_find_the_collection_of_that_time) {
    /* Goal (CAT-4): by name and by UUID a read at an earlier timestamp finds the instance that was
     * valid then; a dropped one keeps its tables until the oldest timestamp has passed.
     * Method: create a@10, create b@20, rename a over b@30, drop b@40; look at each moment. */
    StorageFixture fx;
    fixture_init(&fx);
    open_catalog(&fx);
    change_at(&fx, PAST_CREATE, "db.a", NULL, 10);
    change_at(&fx, PAST_CREATE, "db.b", NULL, 20);
    Catalog *catalog = catalog_acquire(fx.service.catalog);
    Ns a = ns_of("db.a"), b = ns_of("db.b");
    Uuid uuid_a = catalog_find(catalog, &a)->uuid, uuid_b = catalog_find(catalog, &b)->uuid;
    CLEANUP(xfree_ptr)
    char *ident_a = xstrdup(record_store_ident(catalog_find(catalog, &a)->records));
    catalog_release(catalog);
    change_at(&fx, PAST_RENAME, "db.a", "db.b", 30);
    change_at(&fx, PAST_DROP, "db.b", NULL, 40);

    static const struct {
        uint64_t ts;
        char a, b; /* which collection stands at the name: first, second, none */
    } MOMENTS[] = {{5, '-', '-'},  {10, '1', '-'}, {19, '1', '-'}, {20, '1', '2'}, {29, '1', '2'},
                   {30, '-', '1'}, {39, '-', '1'}, {40, '-', '-'}, {50, '-', '-'}};
    for (size_t i = 0; i < ARRAY_LEN(MOMENTS); i++) {
        const char *names[] = {"db.a", "db.b"};
        for (size_t n = 0; n < ARRAY_LEN(names); n++) {
            CollAccess access = {0};
            const Collection *coll = find_at(&fx, names[n], MOMENTS[i].ts, &access);
            char found = coll == NULL                       ? '-'
                         : uuid_equal(&coll->uuid, &uuid_a) ? '1'
                         : uuid_equal(&coll->uuid, &uuid_b) ? '2'
                                                            : '?';
            char wanted = n == 0 ? MOMENTS[i].a : MOMENTS[i].b;
            EXPECT_EQ_U64((uint64_t)found, (uint64_t)wanted);
            const Collection *by_uuid =
                catalog_find_uuid_in_snapshot(fx.other, access.catalog, &uuid_a);
            EXPECT((by_uuid != NULL) == (MOMENTS[i].ts >= 10 && MOMENTS[i].ts < 40));
            if (by_uuid != NULL)
                EXPECT(ns_equal(&by_uuid->ns, MOMENTS[i].ts < 30 ? &a : &b));
            done_at(&fx, &access);
        }
    }

    Error err = {0};
    EXPECT_OK(storage_set_stable_and_oldest(fx.engine, 35, 35, &err), err);
    EXPECT_OK(storage_checkpoint(fx.engine, &err), err);
    catalog_trim_history(fx.service.catalog);
    (void)storage_reap_idents(fx.engine);
    EXPECT(storage_has_table(fx.engine, ident_a));
    EXPECT_OK(storage_set_stable_and_oldest(fx.engine, 50, 50, &err), err);
    EXPECT_OK(storage_checkpoint(fx.engine, &err), err);
    catalog_trim_history(fx.service.catalog);
    EXPECT_EQ_U64(storage_reap_idents(fx.engine), 0);
    EXPECT(!storage_has_table(fx.engine, ident_a));
    close_catalog(&fx);
    fixture_close(&fx);
}

TEST(rename_with_drop_target_is_one_step_for_readers) {
    /* Goal (CAT-7): no catalog version shows the target's name missing, or both collections gone.
     * Method: the versions before and after are looked at; there is none in between that a reader
     * could take, because both changes are published together. */
    StorageFixture fx;
    fixture_init(&fx);
    open_catalog(&fx);
    create(&fx, "db.from");
    create(&fx, "db.to");
    Ns from = ns_of("db.from"), to = ns_of("db.to");
    Error err = {0};
    EXPECT(ddl_rename(fx.op, &from, &to, false, &err) == ERR_NAMESPACE_EXISTS);
    error_reset(&err);
    Catalog *before = catalog_acquire(fx.service.catalog);
    Uuid uuid = catalog_find(before, &from)->uuid;
    EXPECT_OK(ddl_rename(fx.op, &from, &to, true, &err), err);
    Catalog *after = catalog_acquire(fx.service.catalog);
    EXPECT(catalog_find(before, &from) != NULL);
    EXPECT(catalog_find(after, &from) == NULL);
    REQUIRE(catalog_find(after, &to) != NULL);
    EXPECT(uuid_equal(&catalog_find(after, &to)->uuid, &uuid));
    EXPECT(catalog_find_uuid(after, &uuid) == catalog_find(after, &to));
    catalog_release(before);
    catalog_release(after);
    close_catalog(&fx);
    fixture_close(&fx);
}

typedef struct Snoop {
    StorageFixture *fx;
    Ns ns;
    bool was_found;
} Snoop;

/* Runs between the two phases of the commit: the change is pending, not yet in the storage. */
static ErrCode snoop(void *arg, OpCtx *op, Error *err) {
    (void)op;
    Snoop *s = arg;
    CollAccess access = {0};
    TRY(access_read(s->fx->other, &s->ns, &access, err));
    s->was_found = access.coll != NULL;
    access_done(&access);
    return ERR_OK;
}

TEST(a_reader_during_the_commit_sees_what_its_snapshot_has) {
    /* Goal (CAT-4): while a create is pending a lock-free reader asks the durable catalog in its
     * snapshot, and does not see the collection before the storage commit. */
    StorageFixture fx;
    fixture_init(&fx);
    open_catalog(&fx);
    create(&fx, "db.warm");
    Error err = {0};
    Ns ns = ns_of("db.warm"), target = ns_of("db.renamed");
    Snoop look_new = {&fx, target, false}, look_old = {&fx, ns, false};
    {
        CLEANUP(access_done) CollAccess access = {0};
        EXPECT_OK(access_write(fx.op, &ns, LOCK_X, &access, &err), err);
        CLEANUP(uow_done) UnitOfWork uow = {0};
        EXPECT_OK(uow_begin(fx.op, &uow, &err), err);
        Collection *renamed = collection_clone(access.coll);
        renamed->ns = target;
        EXPECT_OK(catalog_stage_replace(fx.op, access.coll, renamed, &err), err);
        ru_before_commit(fx.op->ru, snoop, &look_new);
        ru_before_commit(fx.op->ru, snoop, &look_old);
        EXPECT_OK(uow_commit(&uow, &err), err);
    }
    EXPECT(!look_new.was_found);
    EXPECT(look_old.was_found);
    EXPECT(exists(&fx, "db.renamed"));
    EXPECT(!exists(&fx, "db.warm"));
    close_catalog(&fx);
    fixture_close(&fx);
}
