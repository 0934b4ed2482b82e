/*
 * check_local.c - collections, sections, coordinators and cached metadata of this shard, compared
 * with what the config server has.
 */
#include <stdlib.h>
#include <string.h>

#include "catalog/access.h"
#include "concurrency/service_ctx.h"
#include "repl/repl.h"
#include "sharding/ddl/consistency.h"
#include "sharding/ddl/coordinator.h"
#include "sharding/route/remote.h"
#include "sharding/shard/support_index.h"
#include "sharding/shard/placement_store.h"

enum {
    ENTRIES_MAX = 100000,
};

typedef struct LocalCheck {
    OpCtx *op;
    const ConsistencyScope *scope;
    const char *self;
    Cluster *cluster;
    Catalog *catalog;
    const Doc *entries; /* of config.collections, sorted by _id */
    uint32_t entry_count;
    FoundList found;
    DocBuilder kept; /* the rows of `collections` */
    uint32_t kept_count;
} LocalCheck;

static void local_check_done(LocalCheck *check) {
    if (check->catalog != NULL)
        catalog_release(check->catalog);
}

/* ---- names ---- */

ErrCode consistency_scope_parse(Str name, Str primary, bool with_indexes,
                                ConsistencyScope *ret_scope, Error *err) {
    const char *dot = memchr(name.data, '.', name.size);
    Str db = {name.data, dot != NULL ? (size_t)(dot - name.data) : name.size};
    TRY(db_name_check(db, err));
    *ret_scope = (ConsistencyScope){name, db, primary, with_indexes};
    return ERR_OK;
}

static bool is_whole_database(const ConsistencyScope *scope) {
    return scope->name.size == scope->db.size;
}

/* A collection of the scope; or its database, for sections are of both. */
static bool is_in_scope(const ConsistencyScope *scope, Elem name) {
    if (elem_type(name) != BT_STRING)
        return false;
    Str text = elem_str(name);
    if (str_equal(text, scope->name) || str_equal(text, scope->db))
        return true;
    return is_whole_database(scope) && text.size > scope->db.size &&
           text.data[scope->db.size] == '.' &&
           memcmp(text.data, scope->db.data, scope->db.size) == 0;
}

static Str entry_name(Doc entry) {
    Elem id = doc_get_lit(entry, "_id");
    return elem_type(id) == BT_STRING ? elem_str(id) : STR("");
}

static int compare_to_entry(const void *name, const void *entry) {
    return str_compare(*(const Str *)name, entry_name(*(const Doc *)entry));
}

/* DOC_NONE: not sharded. */
static Doc find_entry(const LocalCheck *check, Str name) {
    const Doc *found = check->entry_count == 0 ? NULL
                                               : bsearch(&name, check->entries, check->entry_count,
                                                         sizeof(Doc), compare_to_entry);
    return found != NULL ? *found : DOC_NONE;
}

static bool found_begin(LocalCheck *check, const char *type, const char *description, Str ns) {
    if (!found_list_begin(&check->found, type, description, ns))
        return false;
    build_cstr(check->found.b, "shard", check->self);
    return true;
}

/* ---- sharded collections ---- */

static ErrCode note_chunk(void *arg, Doc doc, Error *err) {
    (void)doc, (void)err;
    *(bool *)arg = true;
    return ERR_OK;
}

static ErrCode owns_chunk(const LocalCheck *check, const Uuid *uuid, bool *ret_is_owner,
                          Error *err) {
    DocBuilder b = doc_builder_in_arena(&check->op->arena);
    build_uuid(&b, "uuid", uuid);
    build_cstr(&b, "shard", check->self);
    ConfigQuery query = {.coll = "chunks", .filter = doc_builder_end(&b), .limit = 1};
    *ret_is_owner = false;
    return config_each(check->cluster, check->op, &query, note_chunk, ret_is_owner, err);
}

static void keep_collection(LocalCheck *check, const Collection *coll) {
    DocBuilder *b = &check->kept;
    char name[INDEX_NAME_SIZE];
    size_t row = build_open_doc(b, index_name(check->kept_count++, name).data);
    build_str(b, "namespace", ns_str(&coll->ns));
    build_doc(b, "options", coll->options.doc);
    size_t list = build_open_array(b, "indexes");
    uint32_t count = 0;
    for (uint32_t i = 0; check->scope->with_indexes && i < coll->index_count; i++)
        if (coll->indexes[i]->is_ready)
            build_doc(b, index_name(count++, name).data, coll->indexes[i]->spec);
    build_close(b, list);
    build_close(b, row);
}

static void check_key_index(LocalCheck *check, Doc entry, const Uuid *uuid,
                            const Collection *coll) {
    Elem pattern = doc_get_lit(entry, "key");
    ShardKey *key;
    CLEANUP(error_reset) Error cause = {0};
    /* A key that cannot be read is the config server's finding. */
    if (elem_type(pattern) != BT_DOC || shard_key_parse(elem_doc(pattern), &key, &cause) != ERR_OK)
        return;
    if (support_index_find(coll, key) == NULL &&
        found_begin(check, "MissingShardKeyIndex",
                    "a shard has no index that finds ranges of the shard key", ns_str(&coll->ns))) {
        build_uuid(check->found.b, "collectionUUID", uuid);
        build_doc(check->found.b, "key", elem_doc(pattern));
        found_list_end(&check->found);
    }
    shard_key_unref(key);
}

static ErrCode check_sharded(LocalCheck *check, Doc entry, Error *err) {
    Uuid uuid;
    Ns ns;
    CLEANUP(error_reset) Error cause = {0};
    if (!uuid_from_elem(doc_get_lit(entry, "uuid"), &uuid) ||
        ns_parse(entry_name(entry), &ns, &cause) != ERR_OK)
        return ERR_OK; /* the config server's finding */
    bool is_owner;
    TRY(owns_chunk(check, &uuid, &is_owner, err));
    const Collection *coll = catalog_find(check->catalog, &ns);
    if (coll == NULL) {
        bool is_needed = is_owner || str_is(check->scope->primary, check->self);
        if (is_needed && found_begin(check, "MissingLocalCollection",
                                     "a shard does not have a collection of which it has chunks, "
                                     "or whose database it is the primary of",
                                     ns_str(&ns))) {
            build_uuid(check->found.b, "uuid", &uuid);
            found_list_end(&check->found);
        }
        return ERR_OK;
    }
    if (!uuid_equal(&coll->uuid, &uuid)) {
        if (found_begin(check, "CollectionUUIDMismatch",
                        "a shard has another collection than the one that is sharded",
                        ns_str(&ns))) {
            build_uuid(check->found.b, "localUUID", &coll->uuid);
            build_uuid(check->found.b, "uuid", &uuid);
            found_list_end(&check->found);
        }
        return ERR_OK;
    }
    if (!is_owner)
        return ERR_OK;
    check_key_index(check, entry, &uuid, coll);
    keep_collection(check, coll);
    return ERR_OK;
}

/* ---- others ---- */

static bool check_unsharded(void *arg, const Collection *coll) {
    LocalCheck *check = arg;
    Str name = ns_str(&coll->ns);
    bool is_of_scope = is_whole_database(check->scope) || str_equal(name, check->scope->name);
    if (is_of_scope && !ns_is_system(&coll->ns) && !doc_is_present(find_entry(check, name)) &&
        found_begin(check, "MisplacedCollection",
                    "a collection that is not sharded is on a shard that is not the primary of "
                    "its database",
                    name)) {
        build_uuid(check->found.b, "localUUID", &coll->uuid);
        found_list_end(&check->found);
    }
    return true;
}

/* ---- documents of the shard ---- */

static ErrCode visit_section(void *arg, Doc doc, bool *is_over, Error *err) {
    (void)is_over, (void)err;
    LocalCheck *check = arg;
    Elem id = doc_get_lit(doc, "_id");
    /* Whoever enters sections of these names has their locks, which are this check's now. */
    if (is_in_scope(check->scope, id) &&
        found_begin(check, "StrayCriticalSection",
                    "requests are kept out by an operation that is not under way", elem_str(id))) {
        Elem reason = doc_get_lit(doc, "reason");
        if (elem_is_present(reason))
            build_elem(check->found.b, reason);
        found_list_end(&check->found);
    }
    return ERR_OK;
}

static bool is_task(const LocalCheck *check, Elem id) {
    CLEANUP(error_reset) Error cause = {0};
    Task *task;
    if (task_find(repl_tasks(check->op->service->repl), DDL_SERVICE_NAME, id, &task, &cause) !=
        ERR_OK)
        return cause.code != ERR_NO_SUCH_KEY;
    task_unref(task);
    return true;
}

static ErrCode visit_coordinator(void *arg, Doc doc, bool *is_over, Error *err) {
    (void)is_over, (void)err;
    LocalCheck *check = arg;
    Elem id = doc_get_lit(doc, "_id");
    Elem name = elem_type(id) == BT_DOC ? doc_get_lit(elem_doc(id), "namespace") : ELEM_MISSING;
    Elem phase = doc_get_lit(doc, "phase");
    bool is_over_already = elem_type(phase) == BT_STRING && str_is(elem_str(phase), TASK_DONE);
    if (is_in_scope(check->scope, name) && !is_over_already && !is_task(check, id) &&
        found_begin(check, "StrayCoordinator", "an operation is not finished and not under way",
                    elem_str(name))) {
        build_elem_as(check->found.b, STR("coordinator"), id);
        if (elem_is_present(phase))
            build_elem(check->found.b, phase);
        found_list_end(&check->found);
    }
    return ERR_OK;
}

/* A copy may be old: then its generation has an earlier timestamp. It cannot be newer, nor say
 * something else of the same generation. */
static bool is_possible_copy(Doc cached, Doc entry) {
    Elem stamp = doc_get_lit(cached, "timestamp"), now = doc_get_lit(entry, "timestamp");
    if (elem_type(stamp) != BT_TIMESTAMP || elem_type(now) != BT_TIMESTAMP)
        return false;
    if (elem_i64(stamp) != elem_i64(now))
        return (uint64_t)elem_i64(stamp) < (uint64_t)elem_i64(now);
    return elem_equal_bytes(doc_get_lit(cached, "epoch"), doc_get_lit(entry, "lastmodEpoch")) &&
           elem_equal_bytes(doc_get_lit(cached, "uuid"), doc_get_lit(entry, "uuid")) &&
           elem_equal_bytes(doc_get_lit(cached, "key"), doc_get_lit(entry, "key"));
}

static ErrCode visit_cached(void *arg, Doc doc, bool *is_over, Error *err) {
    (void)is_over, (void)err;
    LocalCheck *check = arg;
    Elem id = doc_get_lit(doc, "_id");
    /* Nobody goes by what is being written, or has been marked as old. */
    if (!is_in_scope(check->scope, id) || elem_is_truthy(doc_get_lit(doc, "refreshing")) ||
        elem_is_truthy(doc_get_lit(doc, "outdated")))
        return ERR_OK;
    Doc entry = find_entry(check, elem_str(id));
    if (doc_is_present(entry) && !is_possible_copy(doc, entry) &&
        found_begin(check, "CachedMetadataMismatch",
                    "a shard has stored metadata that the config server never had", elem_str(id))) {
        build_doc(check->found.b, "cached", doc);
        build_doc(check->found.b, "collection", entry);
        found_list_end(&check->found);
    }
    return ERR_OK;
}

#define NS_OF(name, symbol_text)                                                                   \
    static const Ns name = {.size = sizeof(symbol_text) - 1, .db_size = 6, .text = symbol_text}
NS_OF(SECTIONS_NS, "config.collection_critical_sections");
NS_OF(COORDINATORS_NS, DDL_COORDINATORS);

static ErrCode check_documents(LocalCheck *check, Error *err) {
    static const struct {
        const Ns *ns;
        AccessVisit visit;
    } ROWS[] = {{&SECTIONS_NS, visit_section},
                {&COORDINATORS_NS, visit_coordinator},
                {&CACHE_COLLECTIONS_NS, visit_cached}};
    for (size_t i = 0; i < ARRAY_LEN(ROWS); i++)
        TRY(access_each(check->op, ROWS[i].ns, /* is_forward= */ true, ROWS[i].visit, check, err));
    return ERR_OK;
}

/* ---- all ---- */

static ErrCode read_entries(LocalCheck *check, Error *err) {
    DocBuilder b = doc_builder_in_arena(&check->op->arena);
    build_i32(&b, "_id", 1);
    ConfigQuery query = {.coll = "collections",
                         .filter = config_filter_scope(check->scope->name, &check->op->arena),
                         .sort = doc_builder_end(&b),
                         .count_max = ENTRIES_MAX};
    Doc *entries;
    TRY(config_find(check->cluster, check->op, &query, &entries, &check->entry_count, err));
    check->entries = entries;
    return ERR_OK;
}

ErrCode consistency_check_local(OpCtx *op, const ConsistencyScope *scope, DocBuilder *reply,
                                Error *err) {
    ShardState *state = op->service->shard;
    CLEANUP(local_check_done)
    LocalCheck check = {.op = op, .scope = scope, .kept = doc_builder_in_arena(&op->arena)};
    TRY(shard_get_name(state, op, &check.self, err));
    TRY(shard_get_cluster(state, op, &check.cluster, err));
    TRY(read_entries(&check, err));
    check.catalog = catalog_acquire(op->service->catalog);
    check.found = found_list_open(reply);
    for (uint32_t i = 0; i < check.entry_count; i++)
        TRY(check_sharded(&check, check.entries[i], err));
    if (!str_is(scope->primary, check.self))
        catalog_for_each_in_db(check.catalog, scope->db, check_unsharded, &check);
    TRY(check_documents(&check, err));
    found_list_close(&check.found);
    build_array(reply, "collections", doc_builder_end(&check.kept));
    return ERR_OK;
}
