#include "server/start_records.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "bson/builder.h"
#include "catalog/fcv.h"
#include "commands/build_info.h"
#include "params/params.h"
#include "session_refresh/session_record.h"
#include "ddl/ddl.h"
#include "query/write/own_docs.h"
#include "repl/primary_rounds.h"
#include "repl/repl.h"
#include "sharding/balancer/balancer.h"
#include "sharding/config/config_catalog.h"

enum {
    STARTUP_LOG_BYTES = 10 * 1024 * 1024,
};

static const Ns STARTUP_LOG_NS = {
    .size = sizeof("local.startup_log") - 1, .db_size = 5, .text = "local.startup_log"};
static const Ns FCV_NS = {.size = sizeof(FCV_NS_TEXT) - 1, .db_size = 5, .text = FCV_NS_TEXT};

static ErrCode log_this_start(ServiceCtx *service, OpCtx *op, int64_t start_ms, Error *err);
static ErrCode ensure_fcv(OpCtx *op, Error *err);
static ErrCode ensure_startup_log(OpCtx *op, Error *err);

/* None of these is needed to serve: a full disk, say, is no reason not to start. */
static void note_failure(ErrCode rc, const char *what, Error *err) {
    if (rc == ERR_OK)
        return;
    LOG_WARN(LOG_CONTROL, 7200403, "Could not write a record of the start", LOG_STR("what", what),
             LOG_STR("error", error_message(err)));
    error_reset(err);
}

void start_records_write(ServiceCtx *service, OpCtx *op, int64_t start_ms) {
    CLEANUP(error_reset) Error err = {0};
    note_failure(log_this_start(service, op, start_ms, &err), STARTUP_LOG_NS.text, &err);
    if (service_is_member(service) || service->has_data_of_member)
        return;
    note_failure(ensure_fcv(op, &err), FCV_NS_TEXT, &err);
    note_failure(session_collection_ensure(service, op, &err), "config.system.sessions", &err);
}

void start_records_begin_term(ServiceCtx *service, OpCtx *op) {
    CLEANUP(error_reset) Error err = {0};
    note_failure(ensure_fcv(op, &err), FCV_NS_TEXT, &err);
    if (service->role == ROLE_CONFIG_SERVER)
        note_failure(config_catalog_prepare(op, &err), "the catalog of the cluster", &err);
    primary_rounds_wake(service->hosts);
    balancer_wake(service->balancer);
}

static ErrCode ensure_fcv(OpCtx *op, Error *err) {
    DocBuilder b = doc_builder_in_arena(&op->arena);
    size_t fields = build_open_doc(&b, "$setOnInsert");
    build_cstr(&b, "version", FCV_VERSION);
    build_close(&b, fields);
    Elem id = own_doc_id(op, str_from(FCV_DOCUMENT_ID));
    return own_doc_upsert(op, &FCV_NS, id, doc_builder_end(&b), err);
}

static ErrCode log_this_start(ServiceCtx *service, OpCtx *op, int64_t start_ms, Error *err) {
    const ServerSetup *setup = server_setup(service);
    Str host = {setup->host, strcspn(setup->host, ":")};
    char local[64];
    time_t seconds = start_ms / 1000;
    struct tm tm;
    localtime_r(&seconds, &tm);
    size_t size = strftime(local, sizeof(local), "%a %b %e %H:%M:%S", &tm);
    snprintf(local + size, sizeof(local) - size, ".%03d", (int)(start_ms % 1000));

    DocBuilder b = doc_builder_in_arena(&op->arena);
    build_cstr(
        &b, "_id",
        arena_printf(&op->arena, "%.*s-%lld", (int)host.size, host.data, (long long)start_ms));
    build_str(&b, "hostname", host);
    build_date(&b, "startTime", start_ms);
    build_cstr(&b, "startTimeLocal", local);
    build_doc(&b, "cmdLine", setup->parsed);
    build_i64(&b, "pid", getpid());
    size_t info = build_open_doc(&b, "buildinfo");
    build_build_info(&b);
    build_close(&b, info);
    Doc doc = doc_builder_end(&b);

    TRY(ensure_startup_log(op, err));
    return own_docs_insert(op, &STARTUP_LOG_NS, &doc, 1, err);
}

static ErrCode ensure_startup_log(OpCtx *op, Error *err) {
    Catalog *catalog = catalog_acquire(op_catalog(op));
    bool is_there = catalog_find(catalog, &STARTUP_LOG_NS) != NULL;
    catalog_release(catalog);
    if (is_there)
        return ERR_OK;
    DocBuilder b = doc_builder_in_arena(&op->arena);
    build_bool(&b, "capped", true);
    build_i32(&b, "size", STARTUP_LOG_BYTES);
    return ddl_create_collection(op, &STARTUP_LOG_NS, doc_builder_end(&b), NULL, err);
}
