#include "sharding/config/cluster_parameters.h"
#include "sharding/config/shards.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/failpoint.h"
#include "concurrency/service_ctx.h"
#include "query/write/own_docs.h"
#include "repl/election/core.h"
#include "repl/repl.h"
#include "sharding/config/databases.h"
#include "txn/internal_txn.h"

enum {
    NEW_DATABASES_MAX = 1000,
    /* Others wait while a shard is being added. */
    ASK_MS_MAX = 15 * 1000,
    SHARD_STATE_AWARE = 1,
};

ErrCode shard_entry_get(OpCtx *op, Str name, Doc *ret_doc, Error *err) {
    TRY(own_doc_read(op, &CONFIG_SHARDS_NS, own_doc_id(op, name), ret_doc, err));
    if (doc_is_present(*ret_doc))
        return ERR_OK;
    return error_set(err, ERR_SHARD_NOT_FOUND, "there is no shard \"%.*s\"", (int)name.size,
                     name.data);
}

ErrCode shard_resolve_name(OpCtx *op, Str *name, Error *err) {
    TRY(cluster_reload_shards(op->service->cluster, op, err));
    CLEANUP(shard_list_done) ShardList *list = cluster_shards(op->service->cluster);
    const Shard *shard = shard_list_find_any(list, *name);
    if (shard != NULL)
        *name = str_from(arena_strdup(&op->arena, shard->name));
    return ERR_OK;
}

/* What is to be added, while it is looked at. */
typedef struct NewShard {
    OpCtx *op;
    Shard shard;
    const char *address; /* with all hosts that the set names itself */
    Str databases[NEW_DATABASES_MAX];
    uint32_t database_count;
    uint64_t topology_ts;
} NewShard;

static ErrCode ask_in(NewShard *candidate, Str db, DocBuilder *b, ClientReply *reply, Error *err) {
    Cluster *cluster = candidate->op->service->cluster;
    remote_build_end(cluster, b, db, NULL, ELEM_MISSING);
    RemoteRequest request = {.shard = &candidate->shard,
                             .body = doc_builder_end(b),
                             .retry = REMOTE_IDEMPOTENT,
                             .deadline_us = clock_deadline_ms(ASK_MS_MAX)};
    return remote_run(cluster, candidate->op, &request, reply, NULL, err);
}

static ErrCode ask(NewShard *candidate, DocBuilder *b, ClientReply *reply, Error *err) {
    return ask_in(candidate, STR("admin"), b, reply, err);
}

/* ---- may it be a shard? ---- */

static ErrCode check_hello(NewShard *candidate, Str address, Error *err) {
    CLEANUP(client_reply_done) ClientReply reply = {0};
    DocBuilder b = doc_builder_in_arena(&candidate->op->arena);
    build_i32(&b, "hello", 1);
    TRY(ask(candidate, &b, &reply, err));
    if (elem_is_present(doc_get_lit(reply.body, "msg")))
        return error_set(err, ERR_ILLEGAL_OPERATION, "cannot add a router as a shard: %.*s",
                         (int)address.size, address.data);
    if (elem_is_present(doc_get_lit(reply.body, "configsvr")))
        return error_set(err, ERR_OPERATION_FAILED,
                         "cannot add %.*s as a shard: it is a config server", (int)address.size,
                         address.data);
    SetView *view = watched_set_view(candidate->shard.set);
    candidate->address = set_view_text(view, &candidate->op->arena);
    set_view_unref(view);
    return ERR_OK;
}

static ErrCode check_databases(NewShard *candidate, Error *err) {
    CLEANUP(client_reply_done) ClientReply reply = {0};
    DocBuilder b = doc_builder_in_arena(&candidate->op->arena);
    build_i32(&b, "listDatabases", 1);
    build_bool(&b, "nameOnly", true);
    TRY(ask(candidate, &b, &reply, err));
    Elem list = doc_get_lit(reply.body, "databases");
    DocIter iter = doc_iter(elem_type(list) == BT_ARRAY ? elem_doc(list) : DOC_EMPTY);
    for (Elem row; doc_iter_next(&iter, &row);) {
        Elem name = elem_type(row) == BT_DOC ? doc_get_lit(elem_doc(row), "name") : ELEM_MISSING;
        if (elem_type(name) != BT_STRING || db_is_internal(elem_str(name)))
            continue;
        DatabaseEntry entry;
        TRY(database_entry_read(candidate->op, elem_str(name), &entry, err));
        if (entry.name.size > 0)
            return error_set(err, ERR_OPERATION_FAILED,
                             "cannot add %s as a shard: it has a database \"%s\", and so has the "
                             "shard \"%.*s\"",
                             candidate->address, elem_str(name).data, (int)entry.primary.size,
                             entry.primary.data);
        if (candidate->database_count == NEW_DATABASES_MAX)
            return error_set(err, ERR_OPERATION_FAILED,
                             "cannot add %s as a shard: it has more than %d databases",
                             candidate->address, NEW_DATABASES_MAX);
        candidate->databases[candidate->database_count++] = str_from(
            arena_strndup(&candidate->op->arena, elem_str(name).data, elem_str(name).size));
    }
    return ERR_OK;
}

/* ---- its write concern ---- */

static const Ns SETTINGS_NS = {
    .size = sizeof("config.settings") - 1, .db_size = 6, .text = "config.settings"};
#define CONCERNS_ID "ReadWriteConcernDefaults" /* default_concerns */

static Elem default_write_concern(Doc settings) {
    return doc_is_present(settings) ? doc_get_lit(settings, "defaultWriteConcern") : ELEM_MISSING;
}

/* The document of config.settings that the set has, from before it is a shard. */
static ErrCode read_concern_of(NewShard *candidate, Elem *ret_concern, Error *err) {
    DocBuilder b = doc_builder_in_arena(&candidate->op->arena);
    build_cstr(&b, "find", "settings");
    build_doc(&b, "filter", config_filter_str(candidate->op, "_id", STR(CONCERNS_ID)));
    CLEANUP(client_reply_done) ClientReply reply = {0};
    TRY(ask_in(candidate, STR("config"), &b, &reply, err));
    Elem batch = doc_get_path(reply.body, "cursor.firstBatch"), found;
    DocIter iter = doc_iter(elem_type(batch) == BT_ARRAY ? elem_doc(batch) : DOC_EMPTY);
    *ret_concern = ELEM_MISSING;
    if (doc_iter_next(&iter, &found) && elem_type(found) == BT_DOC)
        *ret_concern = default_write_concern(doc_copy(elem_doc(found), &candidate->op->arena));
    return ERR_OK;
}

/* Without a default of the cluster, a write is as safe as the members of its shard make it. */
static ErrCode is_implicit_majority(NewShard *candidate, bool *ret_is_majority, Error *err) {
    DocBuilder b = doc_builder_in_arena(&candidate->op->arena);
    build_i32(&b, "replSetGetConfig", 1);
    CLEANUP(client_reply_done) ClientReply reply = {0};
    TRY(ask(candidate, &b, &reply, err));
    Elem doc = doc_get_lit(reply.body, "config");
    CLEANUP(repl_config_unref_ptr) ReplConfig *config = NULL;
    TRY(repl_config_parse(elem_type(doc) == BT_DOC ? elem_doc(doc) : DOC_EMPTY,
                          REPL_CONFIG_ALLOW_ARBITERS, &config, err));
    *ret_is_majority = repl_config_implicit_write_concern(config).kind == REPL_W_MAJORITY;
    return ERR_OK;
}

/* A field that is not given has its usual value, but for `j`: a majority waits for journals unless
 * it is told not to. */
static bool is_same_field(Str name, Elem a, Elem b) {
    bool has_a = elem_is_present(a), has_b = elem_is_present(b);
    if (has_a && has_b)
        return elem_compare(a, b, NULL) == 0;
    if (has_a != has_b && str_is(name, "j"))
        return false;
    return elem_is_truthy(a) == elem_is_truthy(b);
}

static bool is_same_concern(Elem a, Elem b) {
    static const Str NAMES[] = {STR("w"), STR("wtimeout"), STR("j")};
    for (size_t i = 0; i < ARRAY_LEN(NAMES); i++)
        if (!is_same_field(NAMES[i], doc_get(elem_doc(a), NAMES[i]),
                           doc_get(elem_doc(b), NAMES[i])))
            return false;
    return true;
}

/* One default for all: what the set has of its own must be what the cluster has. */
static ErrCode check_concern(NewShard *candidate, Error *err) {
    OpCtx *op = candidate->op;
    Doc settings;
    TRY(own_doc_read(op, &SETTINGS_NS, own_doc_id(op, STR(CONCERNS_ID)), &settings, err));
    Elem of_cluster = default_write_concern(settings), of_set;
    TRY(read_concern_of(candidate, &of_set, err));
    bool is_set = elem_type(of_set) == BT_DOC, is_cluster_set = elem_type(of_cluster) == BT_DOC;
    if (is_set && (!is_cluster_set || !is_same_concern(of_set, of_cluster)))
        return error_set(err, ERR_OPERATION_FAILED,
                         "cannot add %s as a shard: its default write concern is not that of the "
                         "cluster; set the same with setDefaultRWConcern on either",
                         candidate->address);
    bool is_majority = true;
    if (!is_cluster_set)
        TRY(is_implicit_majority(candidate, &is_majority, err));
    if (!is_majority)
        return error_set(err, ERR_OPERATION_FAILED,
                         "cannot add %s as a shard: with its arbiters a write that gives no write "
                         "concern would not wait for a majority; set one for the cluster with "
                         "setDefaultRWConcern first",
                         candidate->address);
    return ERR_OK;
}

typedef struct OwnAddress {
    Arena *arena;
    const char *text;
} OwnAddress;

static void read_own_address(void *arg, const ReplCore *core) {
    OwnAddress *address = arg;
    const ReplConfig *config = repl_core_config(core);
    if (config == NULL)
        return;
    address->text = config->set_name;
    for (uint32_t i = 0; i < config->member_count; i++)
        address->text = arena_printf(address->arena, "%s%c%s", address->text, i == 0 ? '/' : ',',
                                     config->members[i].host);
}

/* "set/host:port,...": this config server, for the shard. */
static const char *own_address(OpCtx *op) {
    OwnAddress address = {.arena = &op->arena, .text = ""};
    repl_inspect(op->service->repl, read_own_address, &address);
    return arena_strdup(&op->arena, address.text);
}

/* Tells the set what it is from now on; the same again is fine, another cluster's is refused there.
 */
static ErrCode write_identity(NewShard *candidate, Error *err) {
    Oid cluster_id;
    TRY(config_catalog_cluster_id(candidate->op, &cluster_id, err));
    /* The shard keeps it for good: it must not be an id that a crash of this server undoes. */
    Repl *repl = candidate->op->service->repl;
    TRY(repl_wait_committed(repl, candidate->op, oplog_applied(repl_oplog(repl)).ts, err));
    CLEANUP(client_reply_done) ClientReply reply = {0};
    DocBuilder b = doc_builder_in_arena(&candidate->op->arena);
    build_i32(&b, "_addShard", 1);
    size_t identity = build_open_doc(&b, "shardIdentity");
    build_cstr(&b, "shardName", candidate->shard.name);
    build_oid(&b, "clusterId", &cluster_id);
    build_cstr(&b, "configsvrConnectionString", own_address(candidate->op));
    build_close(&b, identity);
    size_t concern = build_open_doc(&b, "writeConcern");
    build_cstr(&b, "w", "majority");
    build_close(&b, concern);
    TRY(ask(candidate, &b, &reply, err));
    /* One that could be rolled back is none. */
    return client_check_writes(reply.body, err);
}

/* ---- entries ---- */

/* The shard and its databases: in one transaction. */
static ErrCode insert_entries(void *arg, OpCtx *op, Error *err) {
    NewShard *candidate = arg;
    DocBuilder b = doc_builder_in_arena(&op->arena);
    build_cstr(&b, "_id", candidate->shard.name);
    build_cstr(&b, "host", candidate->address);
    build_i32(&b, "state", SHARD_STATE_AWARE);
    build_timestamp(&b, "topologyTime", candidate->topology_ts);
    Doc shard = doc_builder_end(&b);
    TRY(own_docs_insert(op, &CONFIG_SHARDS_NS, &shard, 1, err));
    if (candidate->database_count == 0)
        return ERR_OK;
    Doc *docs = ARENA_ARRAY(&op->arena, Doc, candidate->database_count);
    for (uint32_t i = 0; i < candidate->database_count; i++) {
        DatabaseEntry entry = {
            .name = candidate->databases[i],
            .primary = str_from(candidate->shard.name),
            .version = {.uuid = uuid_new(), .timestamp = candidate->topology_ts, .last_mod = 1},
        };
        docs[i] = database_entry_build(&entry, &op->arena);
    }
    return own_docs_insert(op, &CONFIG_DATABASES_NS, docs, candidate->database_count, err);
}

static ErrCode check_name(const ShardList *list, Str name, Error *err) {
    if (name.size >= SHARD_NAME_SIZE || str_is(name, SHARD_NAME_CONFIG))
        return error_set(err, ERR_BAD_VALUE, "a shard cannot have the name \"%.*s\"",
                         (int)name.size, name.data);
    if (shard_list_find(list, name) != NULL)
        return error_set(err, ERR_ILLEGAL_OPERATION, "there is another shard of the name \"%.*s\"",
                         (int)name.size, name.data);
    return ERR_OK;
}

static ErrCode add_new(NewShard *candidate, Str address, Error *err) {
    OpCtx *op = candidate->op;
    TRY(check_hello(candidate, address, err));
    TRY(check_databases(candidate, err));
    TRY(check_concern(candidate, err));
    failpoint_hit(FP_ADD_SHARD_VALIDATED);
    TRY(write_identity(candidate, err));
    failpoint_hit(FP_ADD_SHARD_IDENTITY_WRITTEN);
    TRY(cluster_parameters_tell(op, &candidate->shard, err));
    candidate->topology_ts = service_next_ts(op->service);
    TRY(internal_txn_run(op, &(InternalTxn){0}, insert_entries, candidate, err));
    failpoint_hit(FP_ADD_SHARD_DOC_WRITTEN);
    DocBuilder b = doc_builder_in_arena(&op->arena);
    build_cstr(&b, "name", candidate->shard.name);
    build_cstr(&b, "host", candidate->address);
    config_catalog_log(op, "addShard", "", doc_builder_end(&b));
    return cluster_reload_shards(op->service->cluster, op, err);
}

/* A set of another name may be the same nodes: these are refused with the shard they belong to. */
static ErrCode check_hosts(const ShardList *list, Str hosts, Error *err) {
    for (const char *at = hosts.data, *end = hosts.data + hosts.size; at < end;) {
        const char *comma = memchr(at, ',', (size_t)(end - at));
        Str host = {at, (size_t)((comma != NULL ? comma : end) - at)};
        const Shard *shard = shard_list_find_host(list, host);
        if (shard != NULL)
            return error_set(err, ERR_ILLEGAL_OPERATION,
                             "%.*s is already a member of the shard \"%s\": %s", (int)host.size,
                             host.data, shard->name, shard->address);
        at += host.size + 1;
    }
    return ERR_OK;
}

/* *ret_known: the shard that it is already, in the operation's arena; NULL: none, and it may be
 * added under `name`. */
static ErrCode check_known(OpCtx *op, const ShardList *list, Str set_name, Str hosts, Str name,
                           const char **ret_known, Error *err) {
    *ret_known = NULL;
    const Shard *known = shard_list_find_set(list, set_name);
    if (known == NULL) {
        TRY(check_hosts(list, hosts, err));
        return check_name(list, name.size > 0 ? name : set_name, err);
    }
    if (name.size > 0 && !str_is(name, known->name))
        return error_set(err, ERR_ILLEGAL_OPERATION,
                         "the replica set \"%s\" is a shard already, of the name \"%s\"",
                         watched_set_name(known->set), known->name);
    *ret_known = arena_strdup(&op->arena, known->name);
    return ERR_OK;
}

ErrCode shard_add(OpCtx *op, Str address, Str name, const char **ret_name, Error *err) {
    const char *slash = memchr(address.data, '/', address.size);
    size_t set_size = slash != NULL ? (size_t)(slash - address.data) : 0;
    size_t before = slash != NULL ? set_size + 1 : 0;
    Str set_name = {address.data, set_size};
    Str hosts = {address.data + before, address.size - before};
    CLEANUP(op_mutex_unlock) OpMutexLock lock = {0};
    TRY(op_mutex_lock(&op->service->config_catalog->shards, op, &lock, err));
    Cluster *cluster = op->service->cluster;
    TRY(cluster_reload_shards(cluster, op, err));
    CLEANUP(shard_list_done) ShardList *list = cluster_shards(cluster);
    if (slash == NULL) {
        TRY(check_hosts(list, hosts, err));
        return error_set(err, ERR_OPERATION_FAILED,
                         "a shard is a replica set: give it as name/host:port, not \"%.*s\"",
                         (int)address.size, address.data);
    }
    TRY(check_known(op, list, set_name, hosts, name, ret_name, err));
    if (*ret_name != NULL)
        return ERR_OK;
    NewShard *candidate = ARENA_NEW(&op->arena, NewShard);
    *candidate = (NewShard){.op = op};
    Str chosen = name.size > 0 ? name : set_name;
    snprintf(candidate->shard.name, sizeof(candidate->shard.name), "%.*s", (int)chosen.size,
             chosen.data);
    TRY(set_monitors_watch(cluster_monitors(cluster), address, &candidate->shard.set, err));
    watched_set_forget_elections(candidate->shard.set); /* it is no shard: see check_known */
    TRY(add_new(candidate, address, err));
    *ret_name = arena_strdup(&op->arena, candidate->shard.name);
    return ERR_OK;
}
