#include "sharding/ddl/participants.h"

#include <string.h>

#include "base/clock.h"
#include "catalog/access.h"
#include "concurrency/service_ctx.h"
#include "repl/repl.h"
#include "sharding/shard/critical_section.h"

enum {
    ASK_MS_MAX = 60 * 1000,
};

ErrCode ddl_run_begin(Task *task, OpCtx *op, DdlRun *ret_run, Error *err) {
    ShardState *state = task_arg(task);
    *ret_run = (DdlRun){.task = task, .op = op, .state = state};
    TRY(shard_get_name(state, op, &ret_run->self, err));
    TRY(shard_get_cluster(state, op, &ret_run->cluster, err));
    TRY(cluster_reload_shards(ret_run->cluster, op, err));
    ret_run->shards = cluster_shards(ret_run->cluster);
    return ERR_OK;
}

void ddl_run_done(DdlRun *run) {
    shard_list_unref(run->shards);
    *run = (DdlRun){0};
}

/* ---- the document ---- */

Doc ddl_request(const DdlRun *run) {
    return task_request(run->task);
}

Elem ddl_field(const DdlRun *run, const char *name) {
    return doc_get(task_doc(run->task), str_from(name));
}

bool ddl_uuid_field(const DdlRun *run, const char *name, Uuid *ret_uuid) {
    return uuid_from_elem(ddl_field(run, name), ret_uuid);
}

ErrCode ddl_ns(const DdlRun *run, Ns *ret_ns, Error *err) {
    Elem name = doc_get_lit(ddl_request(run), "ns");
    return ns_parse(elem_type(name) == BT_STRING ? elem_str(name) : (Str){"", 0}, ret_ns, err);
}

static bool is_of_framework(Elem field) {
    return elem_name_is(field, STR("_id")) || elem_name_is(field, STR("phase")) ||
           elem_name_is(field, STR("task"));
}

DocBuilder ddl_fields(const DdlRun *run) {
    DocBuilder b = doc_builder_in_arena(&run->op->arena);
    DocIter iter = doc_iter(task_doc(run->task));
    for (Elem field; doc_iter_next(&iter, &field);)
        if (!is_of_framework(field))
            build_elem(&b, field);
    return b;
}

void ddl_set_fields(DdlRun *run, DocBuilder *b) {
    task_set_fields(run->task, doc_builder_end(b));
}

Doc ddl_reason(const DdlRun *run) {
    DocBuilder b = doc_builder_in_arena(&run->op->arena);
    build_elem_as(&b, STR("command"), doc_get_lit(ddl_request(run), "operation"));
    build_elem_as(&b, STR("ns"), doc_get_lit(ddl_request(run), "ns"));
    build_elem_as(&b, STR("id"), ddl_field(run, "operationId"));
    return doc_builder_end(&b);
}

/* ---- shards ---- */

ErrCode ddl_ask(DdlRun *run, const Shard *shard, DocBuilder *b, Error *err) {
    return ddl_ask_more(run, shard, b, &(DdlQuestion){.ms_max = ASK_MS_MAX}, err);
}

ErrCode ddl_ask_more(DdlRun *run, const Shard *shard, DocBuilder *b, const DdlQuestion *question,
                     Error *err) {
    build_cstr(b, "coordinator", run->self);
    build_i64(b, "term", task_term(run->task));
    size_t concern = build_open_doc(b, "writeConcern");
    build_cstr(b, "w", "majority");
    build_close(b, concern);
    remote_build_end(run->cluster, b, STR("admin"), NULL, ELEM_MISSING);
    ClientSequence documents = {"documents", question->docs, question->doc_count};
    RemoteRequest request = {.shard = shard,
                             .body = doc_builder_end(b),
                             .sequences = &documents,
                             .sequence_count = question->doc_count > 0 ? 1 : 0,
                             .retry = REMOTE_IDEMPOTENT,
                             .deadline_us = clock_deadline_ms(question->ms_max)};
    CLEANUP(client_reply_done) ClientReply own = {0};
    ClientReply *reply = question->reply != NULL ? question->reply : &own;
    ErrCode rc = remote_run(run->cluster, run->op, &request, reply, NULL, err);
    if (rc == ERR_OK)
        rc = client_check_writes(reply->body, err);
    return rc == ERR_OK ? ERR_OK : error_prefix(err, "shard \"%s\"", shard->name);
}

const Shard *ddl_self(const DdlRun *run) {
    return shard_list_find(run->shards, str_from(run->self));
}

ErrCode ddl_find_shard(DdlRun *run, Str name, const Shard **ret_shard, Error *err) {
    *ret_shard = shard_list_find(run->shards, name);
    if (*ret_shard == NULL)
        return error_set(err, ERR_SHARD_NOT_FOUND, "there is no shard \"%.*s\" in this cluster",
                         (int)name.size, name.data);
    return ERR_OK;
}

ErrCode ddl_block(DdlRun *run, const Shard *shard, const Ns *ns, const char *type, Error *err) {
    DocBuilder b = doc_builder_in_arena(&run->op->arena);
    build_str(&b, "_shardsvrParticipantBlock", ns_str(ns));
    build_cstr(&b, "blockType", type);
    build_doc(&b, "reason", ddl_reason(run));
    return ddl_ask(run, shard, &b, err);
}

ErrCode ddl_block_all(DdlRun *run, const Ns *ns, const char *type, Error *err) {
    for (uint32_t i = 0; i < run->shards->count; i++)
        TRY(ddl_block(run, &run->shards->rows[i], ns, type, err));
    return ERR_OK;
}

ErrCode ddl_build_definition(DdlRun *run, DocBuilder *b, const Ns *ns, Error *err) {
    CLEANUP(access_done) CollAccess access = {0};
    TRY(access_read(run->op, ns, &access, err));
    if (access.coll == NULL)
        return ERR_OK;
    build_doc(b, "options", access.coll->options.doc);
    size_t list = build_open_array(b, "indexes");
    uint32_t count = 0;
    for (uint32_t i = 0; i < access.coll->index_count; i++) {
        const IndexDesc *index = access.coll->indexes[i];
        char name[INDEX_NAME_SIZE];
        if (!index->is_id && index->is_ready)
            build_doc(b, index_name(count++, name).data, index->spec);
    }
    build_close(b, list);
    return ERR_OK;
}

ErrCode ddl_drop_on(DdlRun *run, const Shard *shard, const Ns *ns, const Uuid *uuid, Error *err) {
    DocBuilder b = doc_builder_in_arena(&run->op->arena);
    build_str(&b, "_shardsvrDropCollectionParticipant", ns_str(ns));
    if (uuid != NULL)
        build_uuid(&b, "collectionUUID", uuid);
    build_bool(&b, "fromMigrate", strcmp(shard->name, run->self) != 0);
    return ddl_ask(run, shard, &b, err);
}

ErrCode ddl_drop_all(DdlRun *run, const Ns *ns, const Uuid *uuid, Error *err) {
    for (uint32_t i = 0; i < run->shards->count; i++)
        if (strcmp(run->shards->rows[i].name, run->self) != 0)
            TRY(ddl_drop_on(run, &run->shards->rows[i], ns, uuid, err));
    const Shard *self;
    TRY(ddl_find_shard(run, str_from(run->self), &self, err));
    return ddl_drop_on(run, self, ns, uuid, err);
}

/* `b`: what o2 begins with. */
static ErrCode write_mark(DdlRun *run, const char *kind, const Ns *ns, Str name, DocBuilder *b,
                          Error *err) {
    DocBuilder message = doc_builder_in_arena(&run->op->arena);
    size_t inner = build_open_doc(&message, "msg");
    build_str(&message, kind, name);
    build_close(&message, inner);
    return repl_write_mark(run->op->service->repl, run->op, ns, doc_builder_end(&message),
                           doc_builder_end(b), err);
}

ErrCode ddl_mark_collection(DdlRun *run, const char *kind, const Ns *ns, Error *err) {
    DocBuilder b = doc_builder_in_arena(&run->op->arena);
    build_str(&b, kind, ns_str(ns));
    return write_mark(run, kind, ns, ns_str(ns), &b, err);
}

ErrCode ddl_mark_database(DdlRun *run, const char *kind, Str db, Error *err) {
    Elem version = ddl_field(run, "version");
    if (!elem_is_present(version))
        return ERR_OK;
    Ns ns;
    TRY(ns_make(db, STR("$cmd"), &ns, err));
    DocBuilder b = doc_builder_in_arena(&run->op->arena);
    build_str(&b, kind, db);
    build_elem_as(&b, STR("databaseVersion"), version);
    return write_mark(run, kind, &ns, db, &b, err);
}

/* ---- metadata ---- */

ErrCode ddl_read_database(DdlRun *run, Str db, DdlDatabase *ret_database, Error *err) {
    *ret_database = (DdlDatabase){0};
    DocBuilder b = doc_builder_in_arena(&run->op->arena);
    build_str(&b, "_id", db);
    ConfigQuery query = {.coll = "databases", .filter = doc_builder_end(&b), .count_max = 1};
    Doc *docs;
    uint32_t count;
    TRY(config_find(run->cluster, run->op, &query, &docs, &count, err));
    if (count == 0)
        return ERR_OK;
    Elem primary = doc_get_lit(docs[0], "primary");
    if (elem_type(primary) != BT_STRING)
        return error_set(err, ERR_INCOMPATIBLE_SHARDING_METADATA,
                         "the entry of the database %.*s needs a string \"primary\"", (int)db.size,
                         db.data);
    TRY(database_version_parse(doc_get_lit(docs[0], "version"), "version", &ret_database->version,
                               err));
    ret_database->is_there = true;
    ret_database->primary = elem_str(primary);
    return ERR_OK;
}

ErrCode ddl_check_primary(DdlRun *run, Str db, Error *err) {
    DdlDatabase database;
    TRY(ddl_read_database(run, db, &database, err));
    if (database.is_there && !str_is(database.primary, run->self))
        return error_set(err, ERR_STALE_DB_VERSION,
                         "the database \"%.*s\" is on the shard \"%.*s\"", (int)db.size, db.data,
                         (int)database.primary.size, database.primary.data);
    Ns section;
    TRY(section_database_ns(db, &section, err));
    return section_check_free(run->op, &section, err);
}

ErrCode ddl_read_route(DdlRun *run, const Ns *ns, CollectionRoute **ret_route, Error *err) {
    return collection_route_read(run->cluster, run->op, ns, NULL, ret_route, err);
}

ErrCode ddl_ask_config(DdlRun *run, DocBuilder *b, ClientReply *reply, Error *err) {
    return config_run(run->cluster, run->op, b, reply, err);
}

ErrCode ddl_commit_drop(DdlRun *run, const Ns *ns, const Uuid *uuid, Error *err) {
    DocBuilder b = doc_builder_in_arena(&run->op->arena);
    build_str(&b, "_configsvrCommitDropCollection", ns_str(ns));
    build_uuid(&b, "uuid", uuid);
    CLEANUP(client_reply_done) ClientReply reply = {0};
    return ddl_ask_config(run, &b, &reply, err);
}

ErrCode ddl_check_expected(DdlRun *run, const Ns *ns, Elem uuid, Error *err) {
    Uuid expected;
    if (!elem_is_present(uuid))
        return ERR_OK;
    if (!uuid_from_elem(uuid, &expected))
        return error_set(err, uuid_why_not(uuid), "'collectionUUID' has to be a UUID, not %s",
                         bson_type_name(elem_type(uuid)));
    access_expect(run->op, ns, &expected);
    CLEANUP(access_done) CollAccess access = {0};
    ErrCode rc = access_read(run->op, ns, &access, err);
    run->op->expected = NULL; /* of this question only: later phases have names of their own */
    return rc;
}

ErrCode ddl_local_uuid(DdlRun *run, const Ns *ns, bool *ret_found, Uuid *ret_uuid, Error *err) {
    CLEANUP(access_done) CollAccess access = {0};
    TRY(access_read(run->op, ns, &access, err));
    *ret_found = access.coll != NULL;
    if (access.coll != NULL)
        *ret_uuid = access.coll->uuid;
    return ERR_OK;
}
