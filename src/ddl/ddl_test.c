#include <string.h>

#include "base/alloc.h"
#include "catalog/access.h"
#include "ddl/ddl.h"
#include "storage/fixture_test.h"

static void open_catalog(StorageFixture *fx) {
    Error err = {0};
    CatalogService *service = NULL;
    EXPECT_OK(catalog_service_open(fx->op, &service, &err), err);
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
