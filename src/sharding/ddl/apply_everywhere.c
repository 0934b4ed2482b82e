/*
 * apply_everywhere.c - commands that change a collection in the same way wherever it is: collMod,
 * dropIndexes. This shard first: what is wrong with the command is found before anything has
 * changed. What another shard refuses after that is told to whoever asked, when all shards have
 * been asked: to try again would not change its mind.
 */
#include <string.h>

#include "bson/compare.h"
#include "catalog/access.h"
#include "ddl/ddl.h"
#include "repl/task/error_rules.h"
#include "sharding/ddl/coordinator_internal.h"
#include "sharding/shard/support_index.h"

static ErrCode ask_shard(DdlRun *run, Doc command, const Shard *shard, const Ns *ns,
                         ClientReply *reply, Error *err);

/* What this shard did may be done already on a shard that is asked again. */
static bool is_done_already(ErrCode rc) {
    return rc == ERR_INDEX_NOT_FOUND || rc == ERR_NAMESPACE_NOT_FOUND;
}

/* As a phase has stored it, or as the client gave it. */
static Doc command_of(const DdlRun *run) {
    Elem stored = ddl_field(run, "command");
    return elem_type(stored) == BT_DOC ? elem_doc(stored)
                                       : elem_doc(doc_get_lit(ddl_request(run), "arguments"));
}

/* ---- dropIndexes keeps one for the shard key ---- */

static bool is_supported_without(const Collection *coll, const ShardKey *key,
                                 const bool *selected) {
    for (uint32_t i = 0; i < coll->index_count; i++)
        if (!selected[i] && support_index_is(coll->indexes[i], key))
            return true;
    return false;
}

/* The same command with the names of what is left to drop. */
static Doc name_indexes(DdlRun *run, const Collection *coll, const bool *selected) {
    DocBuilder b = doc_builder_in_arena(&run->op->arena);
    DocIter iter = doc_iter(command_of(run));
    for (Elem field; doc_iter_next(&iter, &field);)
        if (!elem_name_is(field, STR("index")))
            build_elem(&b, field);
    size_t list = build_open_array(&b, "index");
    uint32_t count = 0;
    for (uint32_t i = 0; i < coll->index_count; i++) {
        char name[INDEX_NAME_SIZE];
        if (selected[i])
            build_cstr(&b, index_name(count++, name).data, coll->indexes[i]->name);
    }
    build_close(&b, list);
    return doc_builder_end(&b);
}

/* "*" leaves the index that supports the shard key; who names the last one is refused, unless the
 * key is hashed: reads do not need that index, but ranges cannot be moved or deleted until there is
 * one again. */
static ErrCode keep_shard_key_index(DdlRun *run, const Ns *ns, const ShardKey *key, Error *err) {
    Elem which = doc_get_lit(command_of(run), "index");
    CLEANUP(access_done) CollAccess access = {0};
    TRY(access_read(run->op, ns, &access, err));
    if (access.coll == NULL)
        return ERR_OK;
    const Collection *coll = access.coll;
    bool selected[COLLECTION_INDEXES_MAX] = {0};
    TRY(ddl_select_indexes(coll, which, selected, err));
    const IndexDesc *kept = support_index_find(coll, key);
    if (kept == NULL || is_supported_without(coll, key, selected))
        return ERR_OK;
    if (!ddl_is_all_indexes(which) && shard_key_has_hashed(key))
        return ERR_OK;
    if (!ddl_is_all_indexes(which))
        return error_set(err, ERR_CANNOT_DROP_SHARD_KEY_INDEX,
                         "the index \"%s\" of %s is the last one that supports the shard key",
                         kept->name, ns->text);
    for (uint32_t i = 0; i < coll->index_count; i++)
        if (coll->indexes[i] == kept)
            selected[i] = false;
    DocBuilder b = ddl_fields(run);
    build_doc(&b, "command", name_indexes(run, coll, selected));
    ddl_set_fields(run, &b);
    return ERR_OK;
}

/* ---- collMod makes no index unique that shards cannot check alone ---- */

static const IndexDesc *find_index(const Collection *coll, Doc which) {
    Elem name = doc_get_lit(which, "name"), key = doc_get_lit(which, "keyPattern");
    for (uint32_t i = 0; i < coll->index_count; i++) {
        const IndexDesc *index = coll->indexes[i];
        if ((elem_type(name) == BT_STRING && str_is(elem_str(name), index->name)) ||
            (elem_type(key) == BT_DOC && doc_compare(elem_doc(key), index->key_pattern, NULL) == 0))
            return index;
    }
    return NULL;
}

static ErrCode check_unique(DdlRun *run, const Ns *ns, const ShardKey *key, Error *err) {
    Elem which = doc_get_lit(command_of(run), "index");
    if (elem_type(which) != BT_DOC ||
        !(elem_is_truthy(doc_get_lit(elem_doc(which), "unique")) ||
          elem_is_truthy(doc_get_lit(elem_doc(which), "prepareUnique"))))
        return ERR_OK;
    CLEANUP(access_done) CollAccess access = {0};
    TRY(access_read(run->op, ns, &access, err));
    const IndexDesc *index = access.coll != NULL ? find_index(access.coll, elem_doc(which)) : NULL;
    if (index == NULL || shard_key_allows_unique(key, index->key_pattern))
        return ERR_OK;
    return error_set(err, ERR_INVALID_OPTIONS,
                     "the index \"%s\" of the sharded collection %s cannot become unique: it does "
                     "not begin with the shard key",
                     index->name, ns->text);
}

static bool makes_unique(const DdlRun *run) {
    Elem which = doc_get_lit(command_of(run), "index");
    return elem_type(which) == BT_DOC && elem_is_truthy(doc_get_lit(elem_doc(which), "unique")) &&
           !elem_is_truthy(doc_get_lit(command_of(run), "dryRun"));
}

/* Equal values on one shard keep the index from becoming unique on all of them: looked for before
 * the first one changes. They cannot come while the index is prepared for that, which the shards
 * check themselves. */
static ErrCode try_unique(DdlRun *run, const Ns *ns, const ChunkMap *map, Error *err) {
    DocBuilder b = doc_builder_in_arena(&run->op->arena);
    build_str(&b, "collMod", ns_coll(ns));
    build_elem(&b, doc_get_lit(command_of(run), "index"));
    build_bool(&b, "dryRun", true);
    Doc command = doc_builder_end(&b);
    for (ShardIndex i = 0; i < chunk_map_shard_count(map); i++) {
        const Shard *shard;
        TRY(ddl_find_shard(run, chunk_map_shard_name(map, i), &shard, err));
        CLEANUP(client_reply_done) ClientReply reply = {0};
        ErrCode rc = ask_shard(run, command, shard, ns, &reply, err);
        if (rc != ERR_OK && !is_done_already(rc))
            return rc;
        error_reset(err); /* one without a part need not have the index */
    }
    return ERR_OK;
}

ErrCode apply_begin(DdlRun *run, Error *err) {
    task_go_to(run->task, "apply.primary");
    Ns ns;
    TRY(ddl_ns(run, &ns, err));
    TRY(ddl_check_expected(run, &ns, doc_get_lit(command_of(run), "collectionUUID"), err));
    CLEANUP(collection_route_done) CollectionRoute *route = NULL;
    TRY(ddl_read_route(run, &ns, &route, err));
    if (route->map == NULL)
        return ERR_OK;
    const ShardKey *key = chunk_map_key(route->map);
    bool is_drop = elem_is_present(doc_get_lit(command_of(run), "dropIndexes")) ||
                   elem_is_present(doc_get_lit(command_of(run), "deleteIndexes"));
    if (is_drop)
        return keep_shard_key_index(run, &ns, key, err);
    TRY(check_unique(run, &ns, key, err));
    return makes_unique(run) ? try_unique(run, &ns, route->map, err) : ERR_OK;
}

/* ---- the command ---- */

/* A command on one shard, without versions: it is right wherever documents are. */
static ErrCode ask_shard(DdlRun *run, Doc command, const Shard *shard, const Ns *ns,
                         ClientReply *reply, Error *err) {
    DocBuilder b = doc_builder_in_arena(&run->op->arena);
    build_all(&b, command);
    size_t concern = build_open_doc(&b, "writeConcern");
    build_cstr(&b, "w", "majority");
    build_close(&b, concern);
    remote_build_end(run->cluster, &b, ns_db(ns), NULL, ELEM_MISSING);
    RemoteRequest request = {.shard = shard,
                             .body = doc_builder_end(&b),
                             .retry = REMOTE_IDEMPOTENT,
                             .deadline_us = INT64_MAX};
    return remote_run(run->cluster, run->op, &request, reply, NULL, err);
}

/* The client's command. */
static ErrCode apply_on(DdlRun *run, const Shard *shard, const Ns *ns, ClientReply *reply,
                        Error *err) {
    return ask_shard(run, command_of(run), shard, ns, reply, err);
}

static Doc result_of(DdlRun *run, Doc reply) {
    static const char *const OWN[] = {"ok",          "$clusterTime",  "operationTime",
                                      "$configTime", "$topologyTime", "writeConcernError"};
    DocBuilder b = doc_builder_in_arena(&run->op->arena);
    DocIter iter = doc_iter(reply);
    for (Elem field; doc_iter_next(&iter, &field);) {
        bool is_own = false;
        for (size_t i = 0; i < ARRAY_LEN(OWN) && !is_own; i++)
            is_own = elem_name_is(field, str_from(OWN[i]));
        if (!is_own)
            build_elem(&b, field);
    }
    return doc_builder_end(&b);
}

/* A reply as it stands in `raw`, by the address of the shard. */
static void build_raw(DocBuilder *b, const Shard *shard, Doc result) {
    size_t row = build_open_doc(b, shard->address);
    build_all(b, result);
    build_f64(b, "ok", 1.0);
    build_close(b, row);
}

/* The result of this shard, and those of all that have a part. */
static Doc result_with_raw(DdlRun *run, Doc result, Doc raw) {
    DocBuilder b = doc_builder_in_arena(&run->op->arena);
    build_doc(&b, "raw", raw);
    build_all(&b, result);
    return doc_builder_end(&b);
}

ErrCode apply_primary(DdlRun *run, Error *err) {
    Ns ns;
    TRY(ddl_ns(run, &ns, err));
    const Shard *self;
    TRY(ddl_find_shard(run, str_from(run->self), &self, err));
    CLEANUP(collection_route_done) CollectionRoute *route = NULL;
    TRY(ddl_read_route(run, &ns, &route, err));
    CLEANUP(client_reply_done) ClientReply reply = {0};
    TRY(apply_on(run, self, &ns, &reply, err));
    if (route->map == NULL) {
        Doc result = result_of(run, reply.body);
        DocBuilder raw = doc_builder_in_arena(&run->op->arena);
        build_raw(&raw, self, result);
        task_set_result(run->task, result_with_raw(run, result, doc_builder_end(&raw)));
        task_go_to(run->task, TASK_DONE);
        return ERR_OK;
    }
    DocBuilder b = ddl_fields(run);
    build_doc(&b, "result", result_of(run, reply.body));
    ddl_set_fields(run, &b);
    return ERR_OK;
}

static bool is_final(ErrCode rc) {
    return task_rule_of(&(TaskErrorRules){{0}}, /* can_fail= */ true, rc) == TASK_FAIL;
}

ErrCode apply_others(DdlRun *run, Error *err) {
    CLEANUP(error_reset) Error refusal = {0}; /* the first one */
    Ns ns;
    TRY(ddl_ns(run, &ns, err));
    CLEANUP(collection_route_done) CollectionRoute *route = NULL;
    TRY(ddl_read_route(run, &ns, &route, err));
    uint32_t count = route->map != NULL ? chunk_map_shard_count(route->map) : 0;
    Elem stored = ddl_field(run, "result");
    Doc result = elem_type(stored) == BT_DOC ? elem_doc(stored) : DOC_EMPTY;
    DocBuilder raw = doc_builder_in_arena(&run->op->arena);
    for (ShardIndex i = 0; i < count; i++) {
        Str name = chunk_map_shard_name(route->map, i);
        const Shard *shard;
        TRY(ddl_find_shard(run, name, &shard, err));
        if (str_is(name, run->self)) {
            if (chunk_map_chunks_of(route->map, i) > 0)
                build_raw(&raw, shard, result);
            continue;
        }
        CLEANUP(client_reply_done) ClientReply reply = {0};
        ErrCode rc = apply_on(run, shard, &ns, &reply, err);
        if (rc == ERR_OK)
            rc = client_check_writes(reply.body, err);
        if (rc != ERR_OK && !is_done_already(rc) && !is_final(rc))
            return rc;
        if (rc != ERR_OK && !is_done_already(rc) && refusal.code == ERR_OK)
            error_move(&refusal, err);
        error_reset(err);
        if (rc != ERR_OK)
            continue;
        if (chunk_map_chunks_of(route->map, i) > 0)
            build_raw(&raw, shard, result_of(run, reply.body));
    }
    Doc all = result_with_raw(run, result, doc_builder_end(&raw));
    if (refusal.code != ERR_OK) {
        DocBuilder b = doc_builder_in_arena(&run->op->arena);
        ddl_build_refused(&b, &refusal);
        all = doc_builder_end(&b);
    }
    task_set_result(run->task, all);
    return ERR_OK;
}
