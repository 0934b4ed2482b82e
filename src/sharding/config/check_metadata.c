/*
 * check_metadata.c - one collection at a time, while its chunks cannot change.
 *
 * Types are those of MongoDB 7.0. Three are our own, for what it does not look for:
 * CorruptedCollectionEntry, CorruptedChunk, ChunksWithoutCollection.
 */
#include "sharding/config/check_metadata.h"

#include "base/alloc.h"
#include "concurrency/service_ctx.h"
#include "sharding/config/chunks.h"
#include "sharding/config/collections.h"

enum {
    FOUND_COUNT_MAX = 1000,
    FOUND_BYTES_MAX = 8 * 1024 * 1024,
};

typedef struct Findings {
    OpCtx *op;
    DocBuilder *list;
    size_t start;
    uint32_t count;
    bool is_cut;
    const CollectionEntry *entry; /* that is looked at; NULL: none */
    size_t opened[2];             /* the inconsistency and its details, while it is written */
} Findings;

/* ---- writing ---- */

/* False: there is no more room. */
static bool found_begin(Findings *f, const char *type, const char *description) {
    f->is_cut |= f->count == FOUND_COUNT_MAX || f->list->buf->size - f->start > FOUND_BYTES_MAX;
    if (f->is_cut)
        return false;
    char name[INDEX_NAME_SIZE];
    f->opened[0] = build_open_doc(f->list, index_name(f->count++, name).data);
    build_cstr(f->list, "type", type);
    build_cstr(f->list, "description", description);
    f->opened[1] = build_open_doc(f->list, "details");
    if (f->entry != NULL) {
        build_str(f->list, "namespace", f->entry->name);
        build_uuid(f->list, "collectionUUID", &f->entry->uuid);
    }
    return true;
}

static void found_end(Findings *f) {
    build_close(f->list, f->opened[1]);
    build_close(f->list, f->opened[0]);
}

static void found_two(Findings *f, const char *type, const char *description, const char *name_a,
                      Doc a, const char *name_b, Doc b) {
    if (!found_begin(f, type, description))
        return;
    build_doc(f->list, name_a, a);
    build_doc(f->list, name_b, b);
    found_end(f);
}

static void found_bad_doc(Findings *f, const char *type, const char *description, const char *name,
                          Doc doc, const Error *cause) {
    if (!found_begin(f, type, description))
        return;
    build_doc(f->list, name, doc);
    build_cstr(f->list, "error", error_message(cause));
    found_end(f);
}

/* ---- ranges one after the other: chunks, or ranges of zones ---- */

typedef struct Walk {
    Findings *f;
    uint8_t *last; /* heap copy of the document that reaches farthest so far; NULL: none */
    uint64_t count;
} Walk;

static void walk_done(Walk *walk) {
    xfree(walk->last);
}

static Doc bound_of(const uint8_t *doc, const char *name) {
    return elem_doc(doc_get((Doc){doc}, str_from(name)));
}

static void walk_step(Walk *walk, Doc doc) {
    bool is_farther = walk->last == NULL ||
                      shard_key_compare(bound_of(walk->last, "max"), bound_of(doc.data, "max")) < 0;
    if (!is_farther)
        return;
    xfree(walk->last);
    walk->last = doc_copy_heap(doc);
}

/* ---- chunks ---- */

static bool is_bound(Findings *f, Doc doc, const char *name) {
    Elem bound = doc_get(doc, str_from(name));
    CLEANUP(error_reset) Error cause = {0};
    return elem_type(bound) == BT_DOC &&
           shard_key_check_bound(f->entry->key, elem_doc(bound), name, &cause) == ERR_OK;
}

static ErrCode visit_chunk(void *arg, Doc doc, bool *is_over, Error *err) {
    (void)err;
    Walk *walk = arg;
    Findings *f = walk->f;
    walk->count++;
    *is_over = f->is_cut;
    Chunk chunk;
    CLEANUP(error_reset) Error cause = {0};
    if (chunk_parse(doc, &chunk, &cause) != ERR_OK) {
        found_bad_doc(f, "CorruptedChunk", "a chunk cannot be read", "chunk", doc, &cause);
        return ERR_OK;
    }
    if (!is_bound(f, doc, "min") || !is_bound(f, doc, "max")) {
        found_two(f, "CorruptedChunkShardKey", "a bound of a chunk is not one of the shard key",
                  "chunk", doc, "shardKeyPattern", shard_key_pattern(f->entry->key));
        return ERR_OK;
    }
    if (walk->last == NULL) {
        Doc min = shard_key_min(f->entry->key, &f->op->arena);
        if (shard_key_compare(chunk.min, min) != 0)
            found_two(f, "RoutingTableMissingMinKey", "the first chunk does not begin with MinKey",
                      "minKeyObj", chunk.min, "globalMin", min);
    } else {
        int order = shard_key_compare(bound_of(walk->last, "max"), chunk.min);
        if (order < 0)
            found_two(f, "RoutingTableRangeGap", "there is a gap between two chunks", "chunkA",
                      (Doc){walk->last}, "chunkB", doc);
        if (order > 0)
            found_two(f, "RoutingTableRangeOverlap", "two chunks overlap", "chunkA",
                      (Doc){walk->last}, "chunkB", doc);
    }
    walk_step(walk, doc);
    return ERR_OK;
}

static Doc sort_by(OpCtx *op, const char *first, const char *second) {
    DocBuilder b = doc_builder_in_arena(&op->arena);
    build_i32(&b, first, 1);
    build_i32(&b, second, 1);
    return doc_builder_end(&b);
}

static ErrCode check_chunks(Findings *f, Error *err) {
    CLEANUP(walk_done) Walk walk = {.f = f};
    TRY(config_catalog_query(f->op, &CONFIG_CHUNKS_NS, config_filter_uuid(f->op, &f->entry->uuid),
                             sort_by(f->op, "uuid", "min"), /* limit= */ 0, visit_chunk, &walk,
                             err));
    if (walk.count == 0 && found_begin(f, "MissingRoutingTable", "the collection has no chunk"))
        found_end(f);
    Doc max = shard_key_max(f->entry->key, &f->op->arena);
    if (walk.last != NULL && shard_key_compare(bound_of(walk.last, "max"), max) != 0)
        found_two(f, "RoutingTableMissingMaxKey", "the last chunk does not end with MaxKey",
                  "maxKeyObj", bound_of(walk.last, "max"), "globalMax", max);
    return ERR_OK;
}

/* ---- zones ---- */

static ErrCode visit_zone(void *arg, Doc doc, bool *is_over, Error *err) {
    (void)err;
    Walk *walk = arg;
    Findings *f = walk->f;
    *is_over = f->is_cut;
    if (!is_bound(f, doc, "min") || !is_bound(f, doc, "max")) {
        found_two(f, "CorruptedZoneShardKey",
                  "a bound of a range of a zone is not one of the shard key", "zone", doc,
                  "shardKeyPattern", shard_key_pattern(f->entry->key));
        return ERR_OK;
    }
    if (walk->last != NULL &&
        shard_key_compare(bound_of(walk->last, "max"), bound_of(doc.data, "min")) > 0)
        found_two(f, "ZonesRangeOverlap", "ranges of two zones overlap", "zoneA", (Doc){walk->last},
                  "zoneB", doc);
    walk_step(walk, doc);
    return ERR_OK;
}

static ErrCode check_zones(Findings *f, Error *err) {
    CLEANUP(walk_done) Walk walk = {.f = f};
    return config_catalog_query(
        f->op, &CONFIG_TAGS_NS, config_filter_str(f->op, "ns", f->entry->name),
        sort_by(f->op, "ns", "min"), /* limit= */ 0, visit_zone, &walk, err);
}

/* ---- collections ---- */

static ErrCode check_database(Findings *f, Doc doc, Error *err) {
    Str name = f->entry->name;
    const char *dot = memchr(name.data, '.', name.size);
    Str db = {name.data, dot != NULL ? (size_t)(dot - name.data) : name.size};
    Doc database;
    TRY(config_catalog_find_first(f->op, &CONFIG_DATABASES_NS, config_filter_str(f->op, "_id", db),
                                  DOC_NONE, &database, err));
    if (!doc_is_present(database) &&
        found_begin(f, "HiddenShardedCollection",
                    "a collection is sharded although its database does not exist")) {
        build_doc(f->list, "collection", doc);
        found_end(f);
    }
    return ERR_OK;
}

static ErrCode check_collection(Findings *f, Elem id, Error *err) {
    CLEANUP(op_mutex_unlock) OpMutexLock lock = {0};
    TRY(op_mutex_lock(&f->op->service->config_catalog->chunks, f->op, &lock, err));
    DocBuilder b = doc_builder_in_arena(&f->op->arena);
    build_elem_as(&b, STR("_id"), id);
    Doc doc;
    TRY(config_catalog_find_first(f->op, &CONFIG_COLLECTIONS_NS, doc_builder_end(&b), DOC_NONE,
                                  &doc, err));
    if (!doc_is_present(doc)) /* dropped meanwhile */
        return ERR_OK;
    CLEANUP(collection_entry_done) CollectionEntry entry = {0};
    CLEANUP(error_reset) Error cause = {0};
    if (collection_entry_parse(doc, &entry, &cause) != ERR_OK) {
        found_bad_doc(f, "CorruptedCollectionEntry", "the entry of a collection cannot be read",
                      "entry", doc, &cause);
        return ERR_OK;
    }
    f->entry = &entry;
    ErrCode rc = check_database(f, doc, err);
    if (rc == ERR_OK)
        rc = check_chunks(f, err);
    if (rc == ERR_OK)
        rc = check_zones(f, err);
    f->entry = NULL;
    return rc;
}

/* Goes from one uuid of config.chunks to the next. */
static ErrCode check_chunks_without(Findings *f, Error *err) {
    CLEANUP(op_mutex_unlock) OpMutexLock lock = {0};
    TRY(op_mutex_lock(&f->op->service->config_catalog->chunks, f->op, &lock, err));
    Uuid uuid;
    for (bool is_first = true; !f->is_cut; is_first = false) {
        DocBuilder b = doc_builder_in_arena(&f->op->arena);
        if (!is_first) {
            size_t after = build_open_doc(&b, "uuid");
            build_uuid(&b, "$gt", &uuid);
            build_close(&b, after);
        }
        Doc doc;
        TRY(config_catalog_find_first(f->op, &CONFIG_CHUNKS_NS, doc_builder_end(&b),
                                      sort_by(f->op, "uuid", "min"), &doc, err));
        if (!doc_is_present(doc) || !uuid_from_elem(doc_get_lit(doc, "uuid"), &uuid))
            return ERR_OK;
        bool is_used;
        TRY(collection_uuid_is_used(f->op, &uuid, &is_used, err));
        if (!is_used &&
            found_begin(f, "ChunksWithoutCollection", "there are chunks of no collection")) {
            build_uuid(f->list, "collectionUUID", &uuid);
            found_end(f);
        }
    }
    return ERR_OK;
}

ErrCode check_metadata(OpCtx *op, Str scope, DocBuilder *list, bool *ret_is_cut, Error *err) {
    Findings f = {.op = op, .list = list, .start = list->buf->size};
    DocRows entries;
    TRY(config_catalog_find_all(op, &CONFIG_COLLECTIONS_NS, config_filter_scope(scope, &op->arena),
                                DOC_NONE,
                                /* limit= */ 0, &entries, err));
    for (uint32_t i = 0; i < entries.count && !f.is_cut; i++)
        TRY(check_collection(&f, doc_get_lit(entries.rows[i], "_id"), err));
    if (scope.size == 0)
        TRY(check_chunks_without(&f, err));
    *ret_is_cut = f.is_cut;
    return ERR_OK;
}
