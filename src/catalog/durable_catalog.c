/*
 * durable_catalog.c - collections as documents of the table _mdb_catalog (CAT-1).
 *
 *     {md: {ns, options: {uuid, ...},
 *           indexes: [{spec, ready, multikey, multikeyPaths, head, backgroundSecondary,
 *                      buildUUID?, sortKeyVersion?}]},
 *      idxIdent: {<index name>: <ident>}, ns, ident}
 *
 * The format is MongoDB's, so that its tools can read it. Entries are read once, at start and after
 * a rollback; afterwards instances in memory are used.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "bson/builder.h"
#include "bson/compare.h"
#include "catalog/catalog_internal.h"

static void build_multikey_paths(DocBuilder *b, const IndexDesc *index);
static ErrCode load_index(StorageEngine *engine, Collection *coll, Doc idx_idents, Doc row,
                          Error *err);
static void load_multikey(IndexDesc *index, Doc row);
static void load_sort_key_version(const Collection *coll, IndexDesc *index, Doc row);
static ErrCode damaged(int64_t catalog_id, const char *what, Error *err);

Doc durable_entry_build(const Collection *coll, Arena *arena) {
    DocBuilder b = doc_builder_in_arena_sized(arena, 1024);
    size_t md = build_open_doc(&b, "md");
    build_str(&b, "ns", ns_str(&coll->ns));
    size_t options = build_open_doc(&b, "options");
    build_uuid(&b, "uuid", &coll->uuid);
    build_all(&b, coll->options.doc);
    build_close(&b, options);
    size_t indexes = build_open_array(&b, "indexes");
    for (uint32_t i = 0; i < coll->index_count; i++) {
        const IndexDesc *index = coll->indexes[i];
        char name[INDEX_NAME_SIZE];
        size_t row = build_open_doc_str(&b, index_name(i, name));
        build_doc(&b, "spec", index->spec);
        build_bool(&b, "ready", index->is_ready);
        build_bool(&b, "multikey", index_is_multikey(index));
        build_multikey_paths(&b, index);
        build_i64(&b, "head", 0);
        build_bool(&b, "backgroundSecondary", false);
        if (index->has_build_uuid)
            build_uuid(&b, "buildUUID", &index->build_uuid);
        if (index->sort_key_version != NULL)
            build_cstr(&b, "sortKeyVersion", index->sort_key_version);
        build_close(&b, row);
    }
    build_close(&b, indexes);
    build_close(&b, md);
    size_t idents = build_open_doc(&b, "idxIdent");
    for (uint32_t i = 0; i < coll->index_count; i++)
        build_cstr(&b, coll->indexes[i]->name, coll->indexes[i]->ident);
    build_close(&b, idents);
    build_str(&b, "ns", ns_str(&coll->ns));
    build_cstr(&b, "ident", record_store_ident(coll->records));
    return doc_builder_end(&b);
}

ErrCode durable_entry_parse(StorageEngine *engine, int64_t catalog_id, Doc entry,
                            Collection **ret_coll, Error *err) {
    Elem md = doc_get_lit(entry, "md");
    Elem ns = doc_get_lit(entry, "ns");
    Elem ident = doc_get_lit(entry, "ident");
    Elem idx_idents = doc_get_lit(entry, "idxIdent");
    if (elem_type(md) != BT_DOC || elem_type(ns) != BT_STRING || elem_type(ident) != BT_STRING ||
        elem_type(idx_idents) != BT_DOC)
        return damaged(catalog_id, "a field is missing", err);
    Elem options = doc_get_lit(elem_doc(md), "options");
    Elem indexes = doc_get_lit(elem_doc(md), "indexes");
    if (elem_type(options) != BT_DOC || elem_type(indexes) != BT_ARRAY)
        return damaged(catalog_id, "md is not complete", err);

    CLEANUP(collection_unref_ptr) Collection *coll = NEW(Collection);
    coll->refs = 1;
    arena_init(&coll->arena, 1024);
    coll->catalog_id = catalog_id;
    TRY(ns_parse(elem_str(ns), &coll->ns, err));
    if (!uuid_from_elem(doc_get_lit(elem_doc(options), "uuid"), &coll->uuid))
        return damaged(catalog_id, "options.uuid is missing", err);

    DocBuilder b = doc_builder_in_arena(&coll->arena);
    DocIter iter = doc_iter(elem_doc(options));
    Elem elem;
    while (doc_iter_next(&iter, &elem))
        if (!elem_name_is(elem, STR("uuid")))
            build_elem(&b, elem);
    TRY(collection_set_options(coll, doc_builder_end(&b), err));

    if (record_store_open(engine, elem_str(ident).data, coll->options.is_clustered, &coll->records,
                          err) != ERR_OK)
        return error_prefix(err, "collection \"%s\" cannot be opened", coll->ns.text);
    if (ns_is_oplog(&coll->ns))
        record_store_set_oplog(coll->records);
    iter = doc_iter(elem_doc(indexes));
    while (doc_iter_next(&iter, &elem)) {
        if (elem_type(elem) != BT_DOC)
            return damaged(catalog_id, "an index is not a document", err);
        TRY(load_index(engine, coll, elem_doc(idx_idents), elem_doc(elem), err));
    }
    *ret_coll = TAKE_PTR(coll);
    return ERR_OK;
}

bool durable_entry_matches(const Collection *coll, Doc entry) {
    Elem ns = doc_get_lit(entry, "ns");
    Elem md = doc_get_lit(entry, "md");
    if (elem_type(ns) != BT_STRING || !str_equal(elem_str(ns), ns_str(&coll->ns)) ||
        elem_type(md) != BT_DOC)
        return false;
    Arena arena;
    arena_init(&arena, 4096);
    Doc mine = durable_entry_build(coll, &arena);
    Doc my_md = elem_doc(doc_get_lit(mine, "md"));
    bool is_match =
        elem_equal(doc_get_lit(my_md, "options"), doc_get_lit(elem_doc(md), "options"), NULL) &&
        elem_equal(doc_get_lit(mine, "idxIdent"), doc_get_lit(entry, "idxIdent"), NULL);
    Elem theirs = doc_get_lit(elem_doc(md), "indexes");
    for (uint32_t i = 0; is_match && i < coll->index_count; i++) {
        char name[INDEX_NAME_SIZE];
        Elem row = doc_get(elem_doc(theirs), index_name(i, name));
        /* Multikey bits are left out: they change without a new instance. */
        is_match =
            elem_type(row) == BT_DOC &&
            elem_is_truthy(doc_get_lit(elem_doc(row), "ready")) == coll->indexes[i]->is_ready &&
            elem_type(doc_get_lit(elem_doc(row), "spec")) == BT_DOC &&
            doc_compare(elem_doc(doc_get_lit(elem_doc(row), "spec")), coll->indexes[i]->spec,
                        NULL) == 0;
    }
    arena_done(&arena);
    return is_match;
}

ErrCode catalog_new_id(OpCtx *op, int64_t *ret_id, Error *err) {
    RecordId rid;
    TRY(record_store_next_id(op, op_catalog(op)->durable, &rid, err));
    *ret_id = rid.num;
    return ERR_OK;
}

ErrCode durable_catalog_write(OpCtx *op, CatalogService *service, const Collection *coll,
                              bool is_new, Error *err) {
    Doc entry = durable_entry_build(coll, &op->arena);
    Str data = {(const char *)entry.data, doc_size(entry)};
    /* A member that applies entries of the primary may have longer table names, and cannot refuse
     * the change. */
    bool is_follower = op->mode.is_applying || op->mode.is_unreplicated;
    if (data.size > (is_follower ? BSON_DOC_SIZE_MAX_INTERNAL : BSON_DOC_SIZE_MAX))
        return error_set(err, ERR_BSON_OBJECT_TOO_LARGE,
                         "the catalog entry of collection \"%s\" would be too large",
                         coll->ns.text);
    RecordId rid = record_id_num(coll->catalog_id);
    if (is_new)
        return record_insert(op, service->durable, rid, data, err);
    /* The old size is not known here; record counts of this table are not used. */
    return record_update(op, service->durable, rid, data, data.size, err);
}

ErrCode durable_catalog_remove(OpCtx *op, CatalogService *service, int64_t catalog_id, Error *err) {
    return record_delete(op, service->durable, record_id_num(catalog_id), 0, err);
}

ErrCode catalog_read_entry(OpCtx *op, int64_t catalog_id, Arena *arena, Doc *ret_entry,
                           Error *err) {
    return record_read(op, op_catalog(op)->durable, record_id_num(catalog_id), arena, ret_entry,
                       err);
}

static void build_multikey_paths(DocBuilder *b, const IndexDesc *index) {
    size_t paths = build_open_doc(b, "multikeyPaths");
    for (uint32_t f = 0; f < index->field_count; f++) {
        const IndexField *field = &index->fields[f];
        uint32_t bits = index_multikey_paths(index, f);
        uint8_t bytes[INDEX_PATH_PARTS_MAX];
        uint32_t count =
            field->part_count < INDEX_PATH_PARTS_MAX ? field->part_count : INDEX_PATH_PARTS_MAX;
        for (uint32_t p = 0; p < count; p++)
            bytes[p] = bits >> p & 1;
        build_binary(b, field->path, 0, bytes, count);
    }
    build_close(b, paths);
}

static ErrCode load_index(StorageEngine *engine, Collection *coll, Doc idx_idents, Doc row,
                          Error *err) {
    Elem spec = doc_get_lit(row, "spec");
    if (elem_type(spec) != BT_DOC)
        return damaged(coll->catalog_id, "an index has no spec", err);
    Elem name = doc_get_lit(elem_doc(spec), "name");
    Elem key = doc_get_lit(elem_doc(spec), "key");
    if (elem_type(name) != BT_STRING || elem_type(key) != BT_DOC)
        return damaged(coll->catalog_id, "an index has no name or key", err);
    Elem ident = doc_get(idx_idents, elem_str(name));
    if (elem_type(ident) != BT_STRING)
        return damaged(coll->catalog_id, "an index has no ident", err);
    IndexDesc *index;
    TRY(index_desc_new(engine, elem_doc(spec), elem_str(ident).data, coll->options.is_clustered,
                       elem_is_truthy(doc_get_lit(row, "ready")), /* state= */ NULL, &index, err));
    load_multikey(index, row);
    load_sort_key_version(coll, index, row);
    index->has_build_uuid = uuid_from_elem(doc_get_lit(row, "buildUUID"), &index->build_uuid);
    collection_add_index(coll, index);
    return ERR_OK;
}

/* Sort keys of another version of ICU's data have another order: the index would find too little,
 * and report duplicates where there are none. */
static void load_sort_key_version(const Collection *coll, IndexDesc *index, Doc row) {
    Elem version = doc_get_lit(row, "sortKeyVersion");
    if (index->collator == NULL || elem_type(version) != BT_STRING ||
        str_is(elem_str(version), index->sort_key_version))
        return;
    LOG_WARN(LOG_INDEX, 7100302,
             "Index was built with another version of ICU; drop it and create it again",
             LOG_STR("namespace", coll->ns.text), LOG_STR("index", index->name),
             LOG_STR("builtWith", elem_str(version).data),
             LOG_STR("runningWith", index->sort_key_version));
    index->sort_key_version = arena_strdup(&index->arena, elem_str(version).data);
}

static void load_multikey(IndexDesc *index, Doc row) {
    bool is_multikey = elem_is_truthy(doc_get_lit(row, "multikey"));
    atomic_store(&index->state->is_multikey, is_multikey);
    atomic_store(&index->state->is_multikey_persisted, is_multikey);
    Elem paths = doc_get_lit(row, "multikeyPaths");
    if (elem_type(paths) != BT_DOC)
        return;
    for (uint32_t f = 0; f < index->field_count; f++) {
        Elem path = doc_get(elem_doc(paths), str_from(index->fields[f].path));
        if (elem_type(path) != BT_BINARY)
            continue;
        uint8_t subtype;
        Str bytes = elem_binary(path, &subtype);
        uint32_t bits = 0;
        for (size_t p = 0; p < bytes.size && p < INDEX_PATH_PARTS_MAX; p++)
            bits |= bytes.data[p] != 0 ? UINT32_C(1) << p : 0;
        atomic_store(&index->state->multikey_paths[f], bits);
        atomic_store(&index->state->persisted_paths[f], bits);
    }
}

static ErrCode damaged(int64_t catalog_id, const char *what, Error *err) {
    return error_set(err, ERR_DATA_CORRUPTION_DETECTED,
                     "catalog entry %lld is damaged: %s; restore the data from a backup",
                     (long long)catalog_id, what);
}

ErrCode catalog_entry_matches(OpCtx *op, const Collection *coll, bool *ret_is_same, Error *err) {
    Doc entry;
    TRY(catalog_read_entry(op, coll->catalog_id, &op->arena, &entry, err));
    *ret_is_same = doc_is_present(entry) && durable_entry_matches(coll, entry);
    return ERR_OK;
}
