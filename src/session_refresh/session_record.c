#include "session_refresh/session_record.h"

#include "base/clock.h"
#include "ddl/ddl.h"
#include "index/lookup.h"
#include "params/params.h"
#include "query/write/modify.h"
#include "repl/ask_primary.h"
#include "sharding/route/remote.h"
#include "transport/client.h"

enum {
    BATCH_SESSIONS = 500,
    PRIMARY_TIMEOUT_US = 20 * 1000 * 1000,
};

static const Ns SESSIONS_NS = {.size = 22, .db_size = 6, .text = "config.system.sessions"};

/* ---- config.system.sessions ---- */

ErrCode session_collection_ensure(ServiceCtx *service, OpCtx *op, Error *err) {
    Catalog *catalog = catalog_acquire(op_catalog(op));
    const Collection *coll = catalog_find(catalog, &SESSIONS_NS);
    bool is_there = coll != NULL && collection_find_index(coll, STR("lsidTTLIndex")) != NULL;
    catalog_release(catalog);
    if (is_there)
        return ERR_OK;
    DocBuilder b = doc_builder_in_arena(&op->arena);
    size_t key = build_open_doc(&b, "key");
    build_i32(&b, "lastUse", 1);
    build_close(&b, key);
    build_cstr(&b, "name", "lsidTTLIndex");
    build_i32(&b, "expireAfterSeconds",
              (int32_t)param_i64(service, PARAM_SESSION_TIMEOUT_MINUTES) * 60);
    Doc spec = doc_builder_end(&b);
    CreateIndexesResult result;
    return ddl_create_indexes(op, &SESSIONS_NS, &spec, 1, &result, err);
}

static void build_filter(DocBuilder *b, const char *name, const SessionId *id) {
    size_t filter = build_open_doc(b, name);
    build_session_id(b, "_id", id);
    build_close(b, filter);
}

/* {q: {_id: lsid}, u: {$set: {lastUse: ...}}, upsert: true}, or {q, limit: 1}. */
static void build_statement(DocBuilder *b, const CachedSession *session, bool is_delete) {
    build_filter(b, "q", &session->id);
    if (is_delete) {
        build_i32(b, "limit", 1);
        return;
    }
    size_t update = build_open_doc(b, "u");
    size_t set = build_open_doc(b, "$set");
    build_date(b, "lastUse", session->last_use_ms);
    build_close(b, set);
    build_close(b, update);
    build_bool(b, "upsert", true);
}

/* ---- here ---- */

static ErrCode write_here(OpCtx *op, const CachedSession *sessions, uint32_t count, bool is_delete,
                          Error *err) {
    for (uint32_t i = 0; i < count; i++) {
        ArenaMark mark = arena_mark(&op->arena);
        DocBuilder b = doc_builder_in_arena(&op->arena);
        build_statement(&b, &sessions[i], is_delete);
        Doc statement = doc_builder_end(&b);
        ModifyRequest modify = {.kind = is_delete ? MODIFY_DELETE : MODIFY_UPDATE,
                                .query.filter = elem_doc(doc_get_lit(statement, "q")),
                                .is_upsert = !is_delete,
                                .update = doc_get_lit(statement, "u")};
        ModifyOutcome outcome;
        TRY(exec_modify(op, &SESSIONS_NS, &modify, &outcome, err));
        arena_rewind(&op->arena, mark);
    }
    return ERR_OK;
}

static ErrCode find_here(OpCtx *op, const SessionId *id, bool *ret_is_found, Error *err) {
    ArenaMark mark = arena_mark(&op->arena);
    DocBuilder b = doc_builder_in_arena(&op->arena);
    build_session_id(&b, "_id", id);
    Elem wanted = doc_get_lit(doc_builder_end(&b), "_id");
    CLEANUP(access_done) CollAccess access = {0};
    TRY(access_read(op, &SESSIONS_NS, &access, err));
    Doc doc = DOC_NONE;
    if (access.coll != NULL)
        TRY(lookup_document(op, access.coll, wanted, &op->arena, &doc, err));
    *ret_is_found = doc_is_present(doc);
    arena_rewind(&op->arena, mark);
    return ERR_OK;
}

/* ---- elsewhere ---- */

/* The primary of this set, or of the config server: a majority of which has it then, so that it is
 * found by who reads by majority. */
static ErrCode send(const SessionRecord *record, DocBuilder *b, Error *err) {
    OpCtx *op = record->op;
    size_t concern = build_open_doc(b, "writeConcern");
    if (record->cluster != NULL)
        build_cstr(b, "w", "majority");
    else
        build_i32(b, "w", 1);
    build_close(b, concern);
    int64_t deadline_us = clock_mono_us() + PRIMARY_TIMEOUT_US;
    CLEANUP(client_reply_done) ClientReply reply = {0};
    if (record->cluster != NULL) {
        remote_build_end(record->cluster, b, STR("config"), NULL, ELEM_MISSING);
        RemoteRequest request = {.shard = cluster_config_shard(record->cluster),
                                 .body = doc_builder_end(b),
                                 .retry = REMOTE_IDEMPOTENT,
                                 .deadline_us = deadline_us};
        TRY(remote_run(record->cluster, op, &request, &reply, NULL, err));
    } else {
        build_cstr(b, "$db", "config");
        char primary[REPL_HOST_SIZE];
        if (!repl_find_primary(op->service->repl, primary))
            return error_set(err, ERR_NOT_YET_INITIALIZED, "no primary is known");
        ClientCommand command = {.body = doc_builder_end(b)};
        TRY(client_run(op->service->clients, op, primary, &command, deadline_us, &reply, err));
    }
    return client_check_writes(reply.body, err);
}

static ErrCode write_there(const SessionRecord *record, const CachedSession *sessions,
                           uint32_t count, bool is_delete, Error *err) {
    OpCtx *op = record->op;
    for (uint32_t from = 0; from < count; from += BATCH_SESSIONS) {
        TRY(op_check_interrupt_slow(op, err));
        ArenaMark mark = arena_mark(&op->arena);
        DocBuilder b = doc_builder_in_arena_sized(&op->arena, 4096);
        build_cstr(&b, is_delete ? "delete" : "update", "system.sessions");
        build_bool(&b, "ordered", false);
        size_t rows = build_open_array(&b, is_delete ? "deletes" : "updates");
        for (uint32_t i = from; i < count && i < from + BATCH_SESSIONS; i++) {
            char name[INDEX_NAME_SIZE];
            size_t row = build_open_doc_str(&b, index_name(i - from, name));
            build_statement(&b, &sessions[i], is_delete);
            build_close(&b, row);
        }
        build_close(&b, rows);
        TRY(send(record, &b, err));
        arena_rewind(&op->arena, mark);
    }
    return ERR_OK;
}

typedef struct Search {
    const SessionId *ids;
    uint32_t count;
    bool *found;
} Search;

static ErrCode note_found(void *arg, Doc doc, Error *err) {
    const Search *search = arg;
    SessionId id;
    TRY(session_id_parse(doc_get_lit(doc, "_id"), &id, err));
    for (uint32_t i = 0; i < search->count; i++)
        if (session_id_equal(&search->ids[i], &id))
            search->found[i] = true;
    return ERR_OK;
}

static ErrCode find_there(const SessionRecord *record, const Search *search, Error *err) {
    OpCtx *op = record->op;
    ArenaMark mark = arena_mark(&op->arena);
    DocBuilder b = doc_builder_in_arena_sized(&op->arena, 4096);
    size_t id = build_open_doc(&b, "_id");
    size_t in = build_open_array(&b, "$in");
    for (uint32_t i = 0; i < search->count; i++) {
        char name[INDEX_NAME_SIZE];
        build_session_id(&b, index_name(i, name).data, &search->ids[i]);
    }
    build_close(&b, in);
    build_close(&b, id);
    ConfigQuery query = {
        .coll = "system.sessions", .filter = doc_builder_end(&b), .sort = DOC_NONE};
    TRY(config_each(record->cluster, op, &query, note_found, (void *)search, err));
    arena_rewind(&op->arena, mark);
    return ERR_OK;
}

/* ---- either ---- */

static bool is_here(const SessionRecord *record) {
    const ServiceCtx *service = record->op->service;
    return record->cluster == NULL &&
           (service_is_standalone(service) || repl_is_writable(service->repl));
}

ErrCode session_record_write(const SessionRecord *record, const SessionChanges *changes,
                             Error *err) {
    OpCtx *op = record->op;
    if (is_here(record)) {
        TRY(session_collection_ensure(op->service, op, err));
        TRY(write_here(op, changes->used, changes->used_count, /* is_delete= */ false, err));
        return write_here(op, changes->ended, changes->ended_count, /* is_delete= */ true, err);
    }
    TRY(write_there(record, changes->used, changes->used_count, /* is_delete= */ false, err));
    return write_there(record, changes->ended, changes->ended_count, /* is_delete= */ true, err);
}

ErrCode session_record_find(const SessionRecord *record, const SessionId *ids, uint32_t count,
                            bool *ret_found, Error *err) {
    for (uint32_t i = 0; i < count; i++)
        ret_found[i] = false;
    for (uint32_t i = 0; record->cluster == NULL && i < count; i++)
        TRY(find_here(record->op, &ids[i], &ret_found[i], err));
    for (uint32_t from = 0; record->cluster != NULL && from < count; from += BATCH_SESSIONS) {
        uint32_t rest = count - from;
        Search search = {ids + from, rest < BATCH_SESSIONS ? rest : BATCH_SESSIONS,
                         ret_found + from};
        TRY(find_there(record, &search, err));
    }
    return ERR_OK;
}
