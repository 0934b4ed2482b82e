/*
 * emptied_databases.c - databases that were left without a collection.
 *
 * The durable catalog knows collections only, so such a database does not exist. But a client that
 * has dropped its collections one by one may drop the database as well, and whoever watches it
 * expects to hear of that (dropDatabase, invalidate). MongoDB keeps such a database open until the
 * process ends; so does this list, in memory only.
 */
#include <string.h>

#include "catalog/catalog_internal.h"

static EmptiedDatabase *find_locked(CatalogService *service, Str db) {
    assert_held(&service->ddl_mu);
    for (size_t i = 0; i < ARRAY_LEN(service->emptied); i++)
        if (str_is(db, service->emptied[i].name))
            return &service->emptied[i];
    return NULL;
}

void catalog_note_emptied_locked(CatalogService *service, const Catalog *version, Str db) {
    assert_held(&service->ddl_mu);
    if (catalog_has_db(version, db) || find_locked(service, db) != NULL)
        return;
    EmptiedDatabase *row = &service->emptied[service->emptied_next++ % EMPTIED_DATABASES_MAX];
    memcpy(row->name, db.data, db.size);
    row->name[db.size] = '\0';
}

bool catalog_is_db_emptied(CatalogService *service, Str db) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&service->ddl_mu);
    return find_locked(service, db) != NULL;
}

void catalog_forget_emptied_db(CatalogService *service, Str db) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&service->ddl_mu);
    EmptiedDatabase *row = find_locked(service, db);
    if (row != NULL)
        row->name[0] = '\0';
}
