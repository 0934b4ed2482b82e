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
    catalog_version_remove_view(version, view);
    PMap **map = view->fault == NULL ? &version->views : &version->bad_views;
    replace_map(map, pmap_put(*map, &VIEWS, view->key.data, view->key.size, view), &VIEWS);
}

void catalog_version_remove_view(Catalog *version, const View *view) {
    Str key = view->key;
    replace_map(&version->views, pmap_remove(version->views, &VIEWS, key.data, key.size), &VIEWS);
    replace_map(&version->bad_views, pmap_remove(version->bad_views, &VIEWS, key.data, key.size),
                &VIEWS);
}

static bool take_first(void *arg, const void *key, size_t key_size, void *value) {
    (void)key, (void)key_size;
    *(View **)arg = value;
    return false;
}

static const View *first_view_of(const PMap *map, Str db) {
    char from[DB_NAME_SIZE_MAX + 1];
    memcpy(from, db.data, db.size);
    from[db.size] = '.';
    View *view = NULL;
    pmap_for_each_from(map, from, db.size + 1, take_first, &view);
    return view != NULL && str_equal(ns_db(&view->ns), db) ? view : NULL;
}

void catalog_version_remove_views_of(Catalog *version, Str db) {
    for (const View *view; (view = first_view_of(version->views, db)) != NULL;)
        catalog_version_remove_view(version, view);
    for (const View *view; (view = first_view_of(version->bad_views, db)) != NULL;)
        catalog_version_remove_view(version, view);
}

ErrCode catalog_check_views(const Catalog *catalog, Str db, Error *err) {
    if (LIKELY(catalog->bad_views == NULL))
        return ERR_OK;
    const View *bad = first_view_of(catalog->bad_views, db);
    if (bad == NULL)
        return ERR_OK;
    return error_set(err, ERR_INVALID_VIEW_DEFINITION,
                     "a document of %.*s.system.views is no view: %s; remove it or correct it",
                     (int)db.size, db.data, bad->fault);
}

/* What the row of a view has to be; `ret_on` is the collection it is on. */
static const char *find_fault(const View *view, Elem id, Ns *ret_on) {
    CLEANUP(error_reset) Error err = {0};
    if (elem_type(id) != BT_STRING || str_is(ns_coll(&view->ns), "system.views"))
        return "its _id is not the name of a view of the database";
    Elem view_on = doc_get_lit(view->definition, "viewOn");
    if (elem_type(view_on) != BT_STRING ||
        ns_make(ns_db(&view->ns), elem_str(view_on), ret_on, &err) != ERR_OK)
        return "its viewOn is not the name of a collection";
    Elem pipeline = doc_get_lit(view->definition, "pipeline");
    if (elem_type(pipeline) != BT_ARRAY)
        return "its pipeline is not an array";
    DocIter stages = doc_iter(elem_doc(pipeline));
    for (Elem stage; doc_iter_next(&stages, &stage);)
        if (elem_type(stage) != BT_DOC)
            return "a stage of its pipeline is not an object";
    DocIter fields = doc_iter(view->definition);
    for (Elem field; doc_iter_next(&fields, &field);)
        if (!elem_name_is(field, STR("_id")) && !elem_name_is(field, STR("viewOn")) &&
            !elem_name_is(field, STR("pipeline")) && !elem_name_is(field, STR("collation")) &&
            !elem_name_is(field, STR("timeseries")))
            return "it has a field that views do not have";
    return NULL;
}

static void set_key(View *view, const Ns *home, Elem id) {
    CLEANUP(error_reset) Error err = {0};
    if (elem_type(id) == BT_STRING && ns_parse(elem_str(id), &view->ns, &err) == ERR_OK &&
        str_equal(ns_db(&view->ns), ns_db(home))) {
        view->key = ns_str(&view->ns);
        return;
    }
    /* The home's name, and what no name of a view can have after it: the value of the _id. */
    view->ns = *home;
    size_t size = elem_is_present(id) ? elem_value_size(id) : 0;
    char *key = arena_alloc(&view->arena, home->size + 2 + size);
    memcpy(key, home->text, home->size);
    key[home->size] = '\0';
    key[home->size + 1] = (char)elem_type(id);
    if (size > 0)
        memcpy(key + home->size + 2, elem_value(id), size);
    view->key = (Str){key, home->size + 2 + size};
}

View *view_from_row(const Ns *home, Elem id, Doc definition) {
    View *view = NEW(View);
    view->refs = 1;
    arena_init(&view->arena, 1024);
    set_key(view, home, id);
    if (!doc_is_present(definition))
        return view;
    view->definition = doc_copy(definition, &view->arena);
    view->fault = find_fault(view, id, &view->view_on);
    if (view->fault != NULL)
        return view;
    view->pipeline = elem_doc(doc_get_lit(view->definition, "pipeline"));
    Elem collation = doc_get_lit(view->definition, "collation");
    CLEANUP(error_reset) Error err = {0};
    if (elem_is_present(collation) &&
        collator_parse_elem(collation, "collation", &view->collator, &err) != ERR_OK)
        view->fault = "its collation is none";
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
    copy->bad_views = pmap_ref(version->bad_views);
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
    pmap_unref(catalog->bad_views, &VIEWS);
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

static void db_key(const Collection *coll, uint8_t out[DB_NAME_SIZE_MAX + 17], size_t *ret_size) {
    Str db = ns_db(&coll->ns);
    memcpy(out, db.data, db.size);
    out[db.size] = '\0';
    memcpy(out + db.size + 1, coll->uuid.bytes, sizeof(coll->uuid.bytes));
    *ret_size = db.size + 17;
}
