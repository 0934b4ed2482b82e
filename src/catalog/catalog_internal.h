/*
 * catalog_internal.h - shared by the files of catalog/.
 */
#pragma once

#include "base/pmap.h"
#include "catalog/access_policy.h"
#include "catalog/catalog.h"
#include "catalog/history.h"
#include "catalog/document_key.h"
#include "catalog/write_observer.h"
#include "storage/engine.h"

/* A change between its storage commit and its publication. */
typedef struct Pending {
    _Atomic int32_t refs;
    Ns ns;
    Collection *before; /* NULL: none of this name */
    Collection *after;  /* NULL: none of this name */
} Pending;

/* The by_db map needs keys that live in the value; this little row holds one. */
typedef struct DbRow {
    _Atomic int32_t refs;
    Collection *coll;
    size_t key_size;
    uint8_t key[DB_NAME_SIZE_MAX + 17];
} DbRow;

struct Catalog {
    _Atomic int32_t refs;
    PMap *by_ns;      /* "db.coll" -> Collection */
    PMap *by_uuid;    /* 16 bytes -> Collection */
    PMap *by_db;      /* "db" NUL uuid: Collection.db_key -> Collection */
    PMap *views;      /* "db.view" -> View */
    PMap *bad_views;  /* rows of system.views that are none; hardly ever any */
    PMap *pending;    /* "db.coll" -> Pending */
    PMap *past_by_ns; /* "db.coll" and 16 bytes -> history.h */
    PMap *past_by_uuid;
};

enum {
    EMPTIED_DATABASES_MAX = 256,
};

typedef struct EmptiedDatabase {
    char name[DB_NAME_SIZE_MAX + 1]; /* "": none */
} EmptiedDatabase;

struct CatalogService {
    ServiceCtx *service;
    StorageEngine *engine;
    RecordStore *durable; /* the table _mdb_catalog */

    WriteObservers observers;        /* set at start, then constant */
    AccessPolicies policies;         /* likewise */
    DocumentKeySource document_keys; /* likewise; add NULL: the key is {_id} */

    /* Serializes making the next version from the current one and publishing it. Held over no
     * I/O. */
    Mutex ddl_mu;
    /* Guarded by ddl_mu: emptied_databases.c */
    EmptiedDatabase emptied[EMPTIED_DATABASES_MAX];
    uint32_t emptied_next; /* the oldest is forgotten */

    Mutex mu;
    /* Guarded by mu. */
    Catalog *current;
};

/* durable_catalog.c */
#define DURABLE_CATALOG_IDENT "_mdb_catalog"
Doc durable_entry_build(const Collection *coll, Arena *arena);
ErrCode durable_entry_parse(StorageEngine *engine, int64_t catalog_id, Doc entry,
                            Collection **ret_coll, Error *err) MUST_CHECK;
/* Equal apart from multikey bits, which change without a new instance. */
bool durable_entry_matches(const Collection *coll, Doc entry);
ErrCode durable_catalog_write(OpCtx *op, CatalogService *service, const Collection *coll,
                              bool is_new, Error *err) MUST_CHECK;
ErrCode durable_catalog_remove(OpCtx *op, CatalogService *service, int64_t catalog_id, Error *err)
    MUST_CHECK;

/* catalog_stage.c: drop a table that the catalog does not reference, once it is unused. */
void catalog_drop_records_later(StorageEngine *engine, RecordStore *records);
void catalog_drop_index_later(StorageEngine *engine, const IndexDesc *index);

/* emptied_databases.c: `version` is the one about to be published, without a collection of `db`. */
void catalog_note_emptied_locked(CatalogService *service, const Catalog *version, Str db);

/* reconcile.c */
ErrCode catalog_reconcile_and_load(OpCtx *op, CatalogService *service, CatalogUnfinished unfinished,
                                   Error *err) MUST_CHECK;

/* catalog_version.c: versions are changed only before they are published. */
/* Of a row of system.views; `fault` is set if it is no view. DOC_NONE: only its key. */
View *view_from_row(const Ns *home, Elem id, Doc definition);
void view_unref(View *view);
Catalog *catalog_version_empty(void);
void catalog_version_put(Catalog *version, Collection *coll);
void catalog_version_remove(Catalog *version, const Collection *coll);
void catalog_version_put_view(Catalog *version, View *view);
void catalog_version_remove_view(Catalog *version, const View *view);
void catalog_version_remove_views_of(Catalog *version, Str db);
void catalog_version_put_pending(Catalog *version, const Ns *ns, Collection *before,
                                 Collection *after);
void catalog_version_clear_pending(Catalog *version, const Ns *ns);
Catalog *catalog_version_clone(const Catalog *version);
/* Makes the version the current one; with ddl_mu held. */
void catalog_publish(CatalogService *service, Catalog *take_version);
