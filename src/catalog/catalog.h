/*
 * catalog.h - the collections and views that exist (CAT-3, CAT-4).
 *
 * The catalog is a chain of immutable versions. Readers acquire the current one (catalog_acquire)
 * and see no later change. A DDL operation stages its changes inside a unit of work: they are
 * written to the durable catalog in the same storage transaction, marked as pending just before it
 * commits, and published as one new version right after. While a change is pending, a reader whose
 * snapshot may be from before or after the commit reads the durable catalog in its own snapshot to
 * find the right instance.
 *
 * Ownership: a version is reference-counted and holds references to its collections.
 * Threading: any thread. Locks: DDL serializes publishing; CATALOG_INSTANCE guards the pointer.
 * Crash:     only the durable catalog survives; reconcile.c rebuilds the rest.
 */
#pragma once

#include "base/error.h"
#include "catalog/collection.h"
#include "concurrency/op_ctx.h"
#include "concurrency/service_ctx.h"

typedef struct CatalogService CatalogService;
typedef struct Catalog Catalog; /* one version */

typedef struct View {
    _Atomic int32_t refs;
    Arena arena;
    Ns ns;
    Ns view_on;
    Doc pipeline;             /* array */
    Doc collation;            /* complete; DOC_NONE: simple */
    const Collator *collator; /* NULL: simple */
    Doc definition;           /* the document of system.views */
    Str key;                  /* in the maps of a version */
    const char *fault;        /* why nobody can use it; NULL: a view. Its `ns` is then system.views
                                 if its _id is no name of a view. */
} View;

/* What to do with indexes whose builds had not finished when the last process ended. */
typedef enum CatalogUnfinished {
    CATALOG_UNFINISHED_DISCARD,
    /* They are kept, with their temporary tables, until they are resumed
     * (ddl_recover_index_builds). */
    CATALOG_UNFINISHED_KEEP,
} CatalogUnfinished;
/* Opens the durable catalog, reconciles it with the existing tables (CAT-6) and loads
 * everything. */
ErrCode catalog_service_open(OpCtx *op, CatalogUnfinished unfinished, CatalogService **ret_service,
                             Error *err) MUST_CHECK;
void catalog_service_free(CatalogService *service);
/* Re-reads the durable catalog after storage was rolled back to the stable timestamp. Requires the
 * global lock in X. Unchanged collections keep their instance; tables no longer referenced are
 * dropped when unused. */
ErrCode catalog_reload(OpCtx *op, Error *err) MUST_CHECK;

Catalog *catalog_acquire(CatalogService *service);
Catalog *catalog_ref(Catalog *catalog);
void catalog_release(Catalog *catalog);
CatalogService *op_catalog(const OpCtx *op);

/* Borrowed from the version; NULL: none. */
const Collection *catalog_find(const Catalog *catalog, const Ns *ns);
const Collection *catalog_find_uuid(const Catalog *catalog, const Uuid *uuid);
const View *catalog_find_view(const Catalog *catalog, const Ns *ns);
/* Fails with ERR_INVALID_VIEW_DEFINITION if system.views of the database has a row that is no view:
 * whether a name that no collection has is a view can then not be told. */
ErrCode catalog_check_views(const Catalog *catalog, Str db, Error *err) MUST_CHECK;
/* What the operation's open unit of work has staged for the name; NULL: nothing. Only additions:
 * nobody looks for what it has dropped. */
const Collection *catalog_stage_find(const OpCtx *op, const Ns *ns);
/* That, else the one of the version. */
const Collection *catalog_find_staged(const OpCtx *op, const Catalog *catalog, const Ns *ns);
/* The instance that matches the operation's open snapshot, including one at an earlier timestamp;
 * reads the durable catalog only while a change of this namespace is pending. */
ErrCode catalog_find_in_snapshot(OpCtx *op, const Catalog *catalog, const Ns *ns,
                                 const Collection **ret_coll, Error *err) MUST_CHECK;
/* The collection with this UUID at the timestamp of the operation's snapshot; without one, the
 * present. */
const Collection *catalog_find_uuid_in_snapshot(const OpCtx *op, const Catalog *catalog,
                                                const Uuid *uuid);
/* Drops instances that no read can use any more. Called after the oldest timestamp has advanced:
 * their tables can then be dropped. */
void catalog_trim_history(CatalogService *service);

/* In UUID order; stops when the callback returns false. */
void catalog_for_each_in_db(const Catalog *catalog, Str db,
                            bool (*visit)(void *arg, const Collection *coll), void *arg);
void catalog_for_each_view_in_db(const Catalog *catalog, Str db,
                                 bool (*visit)(void *arg, const View *view), void *arg);
/* Each database that has a collection, in name order. */
void catalog_for_each_db(const Catalog *catalog, bool (*visit)(void *arg, Str db), void *arg);
bool catalog_has_db(const Catalog *catalog, Str db);
/* Has the last collection of `db` gone since the start, and the database not been dropped? For a
 * limited number of databases. */
bool catalog_is_db_emptied(CatalogService *service, Str db);
void catalog_forget_emptied_db(CatalogService *service, Str db);
/* The existing database whose name differs from `db` only in case, if any. */
bool catalog_find_db_ignoring_case(const Catalog *catalog, Str db, char ret_name[64]);
size_t catalog_collection_count(const Catalog *catalog);

/* ---- staging changes, inside a unit of work, with the collection locked ---- */

/* Reserves the id of a new durable entry. */
ErrCode catalog_new_id(OpCtx *op, int64_t *ret_id, Error *err) MUST_CHECK;
/* A new collection: writes its durable entry. Takes the reference. */
ErrCode catalog_stage_create(OpCtx *op, Collection *take_coll, Error *err) MUST_CHECK;
/* A changed instance (indexes, options, or a new name). Takes the reference to the new one. */
ErrCode catalog_stage_replace(OpCtx *op, const Collection *old, Collection *take_new, Error *err)
    MUST_CHECK;
/* Removes the durable entry; the tables are dropped when nobody uses them any more. */
ErrCode catalog_stage_drop(OpCtx *op, const Collection *coll, Error *err) MUST_CHECK;
/* Index `position` leaves with the replacement; its table is dropped later. */
void catalog_drop_index_table_on_commit(OpCtx *op, const IndexDesc *index);
/* Views are rows of <db>.system.views, its `home`; the caller has written the row. DOC_NONE: the
 * row with this _id is removed. A row that is no view is staged as such. All of them go when their
 * home is dropped. */
void catalog_stage_view(OpCtx *op, const Ns *home, Elem id, Doc definition);

/* Persists multikey bits of an index in the operation's unit of work and makes them visible. An
 * operation with op->mode.multikey_notes only makes them visible and records the collection:
 * several threads that apply one run of the oplog would otherwise write the same entry out of
 * timestamp order. */
ErrCode catalog_set_multikey(OpCtx *op, const Collection *coll, const IndexDesc *index,
                             const uint32_t *paths, Error *err) MUST_CHECK;
typedef struct MultikeyNotes {
    Uuid *rows; /* heap */
    uint32_t count;
    uint32_t capacity;
} MultikeyNotes;
/* Writes the entries of those collections, each in its own unit of work, and clears the notes. The
 * operation itself must have none. */
ErrCode catalog_persist_multikey(OpCtx *op, MultikeyNotes *notes, Error *err) MUST_CHECK;
/* The same in the open unit of work; the collections are locked already, maybe by another unit. */
ErrCode catalog_persist_multikey_in_unit(OpCtx *op, MultikeyNotes *notes, Error *err) MUST_CHECK;

/* The durable entry as stored, for $listCatalog; read in the operation's snapshot. */
ErrCode catalog_read_entry(OpCtx *op, int64_t catalog_id, Arena *arena, Doc *ret_entry, Error *err)
    MUST_CHECK;
/* Whether the durable entry, read in the operation's snapshot, equals the instance, multikey bits
 * aside. */
ErrCode catalog_entry_matches(OpCtx *op, const Collection *coll, bool *ret_is_same, Error *err)
    MUST_CHECK;
