/*
 * catalog_version.c - one version of the catalog: its maps, and how the next one is made of it.
 */
#include <assert.h>
#include <string.h>

#include "base/alloc.h"
#include "bson/collator.h"
#include "catalog/catalog_internal.h"

static void db_key(const Collection *coll, uint8_t out[DB_NAME_SIZE_MAX + 17], size_t *ret_size);

static void *ref_collection(void *value) {
    return collection_ref(value);
}
static void unref_collection(void *value) {
    collection_unref(value);
}
static void *ref_view(void *value) {
    atomic_fetch_add_explicit(&((View *)value)->refs, 1, memory_order_relaxed);
    return value;
}
static void unref_view(void *value) {
    view_unref(value);
}
static void *ref_pending(void *value) {
    atomic_fetch_add_explicit(&((Pending *)value)->refs, 1, memory_order_relaxed);
    return value;
}
static void unref_pending(void *value) {
    Pending *pending = value;
    if (atomic_fetch_sub_explicit(&pending->refs, 1, memory_order_acq_rel) > 1)
        return;
    collection_unref(pending->before);
    collection_unref(pending->after);
    xfree(pending);
}

static void *ref_db_row(void *value) {
    atomic_fetch_add_explicit(&((DbRow *)value)->refs, 1, memory_order_relaxed);
    return value;
}
static void unref_db_row(void *value) {
    DbRow *row = value;
    if (atomic_fetch_sub_explicit(&row->refs, 1, memory_order_acq_rel) > 1)
        return;
    collection_unref(row->coll);
    xfree(row);
}

static const PMapType COLLECTIONS = {ref_collection, unref_collection};
static const PMapType DB_ROWS = {ref_db_row, unref_db_row};
static const PMapType VIEWS = {ref_view, unref_view};
static const PMapType PENDINGS = {ref_pending, unref_pending};

Catalog *catalog_version_empty(void) {
    Catalog *version = NEW(Catalog);
    version->refs = 1;
    return version;
}

static void replace_map(PMap **map, PMap *take_next, const PMapType *type) {
    pmap_unref(*map, type);
    *map = take_next;
}

void catalog_version_put(Catalog *version, Collection *coll) {
    replace_map(&version->by_ns,
                pmap_put(version->by_ns, &COLLECTIONS, coll->ns.text, coll->ns.size, coll),
                &COLLECTIONS);
    replace_map(
        &version->by_uuid,
        pmap_put(version->by_uuid, &COLLECTIONS, coll->uuid.bytes, sizeof(coll->uuid.bytes), coll),
        &COLLECTIONS);
    DbRow *row = NEW(DbRow);
    row->refs = 1;
    row->coll = collection_ref(coll);
    db_key(coll, row->key, &row->key_size);
    replace_map(&version->by_db, pmap_put(version->by_db, &DB_ROWS, row->key, row->key_size, row),
                &DB_ROWS);
    unref_db_row(row);
}

void catalog_version_remove(Catalog *version, const Collection *coll) {
    replace_map(&version->by_ns,
                pmap_remove(version->by_ns, &COLLECTIONS, coll->ns.text, coll->ns.size),
                &COLLECTIONS);
    replace_map(
        &version->by_uuid,
        pmap_remove(version->by_uuid, &COLLECTIONS, coll->uuid.bytes, sizeof(coll->uuid.bytes)),
        &COLLECTIONS);
    uint8_t key[DB_NAME_SIZE_MAX + 17];
    size_t key_size;
    db_key(coll, key, &key_size);
    replace_map(&version->by_db, pmap_remove(version->by_db, &DB_ROWS, key, key_size), &DB_ROWS);
}

void catalog_version_put_view(Catalog *version, View *view) {
    replace_map(&version->views,
                pmap_put(version->views, &VIEWS, view->ns.text, view->ns.size, view), &VIEWS);
}

View *view_from_definition(const Ns *ns, Doc definition, Error *err) {
    Elem view_on = doc_get_lit(definition, "viewOn");
    Elem pipeline = doc_get_lit(definition, "pipeline");
    Ns on;
    if (elem_type(view_on) != BT_STRING || elem_type(pipeline) != BT_ARRAY) {
        (void)error_set(err, ERR_INVALID_VIEW_DEFINITION, "view \"%s\" needs viewOn and pipeline",
                        ns->text);
        return NULL;
    }
    if (ns_make(ns_db(ns), elem_str(view_on), &on, err) != ERR_OK)
        return NULL;
    View *view = NEW(View);
    view->refs = 1;
    arena_init(&view->arena, 1024);
    view->ns = *ns;
    view->view_on = on;
    view->definition = doc_copy(definition, &view->arena);
    view->pipeline = elem_doc(doc_get_lit(view->definition, "pipeline"));
    Elem collation = doc_get_lit(view->definition, "collation");
    if (elem_is_present(collation) &&
        collator_parse_elem(collation, "collation", &view->collator, err) != ERR_OK) {
        view_unref(view);
        return NULL;
    }
    view->collation = view->collator != NULL ? view->collator->spec : DOC_NONE;
    return view;
}

void view_unref(View *view) {
    if (view == NULL || atomic_fetch_sub_explicit(&view->refs, 1, memory_order_acq_rel) > 1)
        return;
    arena_done(&view->arena);
    xfree(view);
}

Catalog *catalog_version_clone(const Catalog *version) {
    Catalog *copy = catalog_version_empty();
    copy->by_ns = pmap_ref(version->by_ns);
    copy->by_uuid = pmap_ref(version->by_uuid);
    copy->by_db = pmap_ref(version->by_db);
    copy->views = pmap_ref(version->views);
    copy->pending = pmap_ref(version->pending);
    copy->past_by_ns = pmap_ref(version->past_by_ns);
    copy->past_by_uuid = pmap_ref(version->past_by_uuid);
    return copy;
}

void catalog_release(Catalog *catalog) {
    if (catalog == NULL || atomic_fetch_sub_explicit(&catalog->refs, 1, memory_order_acq_rel) > 1)
        return;
    pmap_unref(catalog->by_ns, &COLLECTIONS);
    pmap_unref(catalog->by_uuid, &COLLECTIONS);
    pmap_unref(catalog->by_db, &DB_ROWS);
    pmap_unref(catalog->views, &VIEWS);
    pmap_unref(catalog->pending, &PENDINGS);
    history_unref(catalog->past_by_ns);
    history_unref(catalog->past_by_uuid);
    xfree(catalog);
}

void catalog_publish(CatalogService *service, Catalog *take_version) {
    assert_held(&service->ddl_mu);
    mutex_lock(&service->mu);
    Catalog *old = service->current;
    service->current = take_version;
    mutex_unlock(&service->mu);
    catalog_release(old);
}

void catalog_version_put_pending(Catalog *version, const Ns *ns, Collection *before,
                                 Collection *after) {
    Pending *pending = NEW(Pending);
    pending->refs = 1;
    pending->ns = *ns;
    pending->before = before != NULL ? collection_ref(before) : NULL;
    pending->after = after != NULL ? collection_ref(after) : NULL;
    Pending *present = pmap_get(version->pending, ns->text, ns->size);
    if (present != NULL) { /* one change takes the name away, another gives it: both sides count */
        if (pending->before == NULL && present->before != NULL)
            pending->before = collection_ref(present->before);
        if (pending->after == NULL && present->after != NULL)
            pending->after = collection_ref(present->after);
    }
    replace_map(&version->pending,
                pmap_put(version->pending, &PENDINGS, pending->ns.text, pending->ns.size, pending),
                &PENDINGS);
    unref_pending(pending);
}

void catalog_version_clear_pending(Catalog *version, const Ns *ns) {
    replace_map(&version->pending, pmap_remove(version->pending, &PENDINGS, ns->text, ns->size),
                &PENDINGS);
}

void catalog_version_remove_view(Catalog *version, const Ns *ns) {
    replace_map(&version->views, pmap_remove(version->views, &VIEWS, ns->text, ns->size), &VIEWS);
}

static void db_key(const Collection *coll, uint8_t out[DB_NAME_SIZE_MAX + 17], size_t *ret_size) {
    Str db = ns_db(&coll->ns);
    memcpy(out, db.data, db.size);
    out[db.size] = '\0';
    memcpy(out + db.size + 1, coll->uuid.bytes, sizeof(coll->uuid.bytes));
    *ret_size = db.size + 17;
}
