#include "commands/profiler.h"

#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/prng.h"
#include "base/thread.h"
#include "bson/validate.h"
#include "catalog/access.h"
#include "commands/core/command_service.h"
#include "commands/core/params.h"
#include "ddl/ddl.h"
#include "index/collection_write.h"
#include "storage/unit_of_work.h"

enum {
    PROFILE_COLLECTION_BYTES = 1024 * 1024,
    PROFILE_DATABASES_MAX = 4096,
    /* A longer command is cut: the collection holds 1 MB in all. */
    PROFILE_COMMAND_BYTES_MAX = 50 * 1024,
    PROFILE_TEXT_BYTES_MAX = 4 * 1024,
};

typedef struct DbLevel {
    char db[DB_NAME_SIZE_MAX + 1];
    int32_t level;
} DbLevel;

struct Profiler {
    ServiceCtx *service;
    int32_t default_level;
    Mutex mu;
    /* Guarded by mu. */
    DbLevel *rows;
    size_t count;
    size_t capacity;
};

typedef struct WriteArgs {
    const Ns *ns;
    Doc doc;
    bool is_missing; /* out: there is no collection */
} WriteArgs;

static int32_t level_locked(const Profiler *profiler, Str db, DbLevel **ret_row);
static void publish_locked(Profiler *profiler);
static bool is_due(Profiler *profiler, CommandCtx *ctx, int64_t duration_us);
static Doc build_profile(CommandCtx *ctx, int64_t duration_us, ErrCode rc, const Error *err);
static ErrCode write_profile(OpCtx *op, const Ns *ns, Doc doc, Error *err);

Profiler *profiler_new(ServiceCtx *service, int32_t default_level) {
    Profiler *profiler = NEW(Profiler);
    profiler->service = service;
    profiler->default_level = default_level;
    mutex_init(&profiler->mu, LOCK_RANK_PARAMETERS);
    mutex_lock(&profiler->mu);
    publish_locked(profiler);
    mutex_unlock(&profiler->mu);
    return profiler;
}

void profiler_free(Profiler *profiler) {
    if (profiler == NULL)
        return;
    mutex_done(&profiler->mu);
    xfree(profiler->rows);
    xfree(profiler);
}

int32_t profiler_level(Profiler *profiler, Str db) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&profiler->mu);
    DbLevel *row;
    return level_locked(profiler, db, &row);
}

void profiler_set_level(Profiler *profiler, Str db, int32_t level) {
    if (db.size > DB_NAME_SIZE_MAX)
        return; /* no such database can exist */
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&profiler->mu);
    DbLevel *row = NULL;
    (void)level_locked(profiler, db, &row);
    if (row == NULL && profiler->count < PROFILE_DATABASES_MAX) {
        ARRAY_RESERVE(profiler->rows, profiler->count, profiler->capacity);
        row = &profiler->rows[profiler->count++];
        memcpy(row->db, db.data, db.size);
        row->db[db.size] = '\0';
    }
    if (row != NULL)
        row->level = level;
    publish_locked(profiler);
}

void profiler_on_finished(CommandCtx *ctx, int64_t duration_us, ErrCode rc, const Error *err) {
    Profiler *profiler = server_setup(ctx->service)->profiler;
    if (profiler == NULL || !is_due(profiler, ctx, duration_us))
        return;
    CLEANUP(error_reset) Error write_err = {0};
    Ns ns;
    if (ns_make(ctx->args.db, STR("system.profile"), &ns, &write_err) != ERR_OK)
        return;
    OpCtx *op = ctx->op;
    Doc doc = build_profile(ctx, duration_us, rc, err);
    /* The operation may have been ended by a kill or its time limit; this is still to be written.
     */
    op->is_uninterruptible = true;
    if (write_profile(op, &ns, doc, &write_err) != ERR_OK)
        LOG_WARN(LOG_COMMAND, 20703, "Caught exception while trying to profile operation",
                 LOG_STR("ns", ns.text), LOG_STR("error", error_message(&write_err)));
    op->is_uninterruptible = false;
}

static int32_t level_locked(const Profiler *profiler, Str db, DbLevel **ret_row) {
    assert_held(&profiler->mu);
    for (size_t i = 0; i < profiler->count; i++) {
        if (str_is(db, profiler->rows[i].db)) {
            *ret_row = &profiler->rows[i];
            return profiler->rows[i].level;
        }
    }
    *ret_row = NULL;
    return profiler->default_level;
}

/* The command service asks only when some database has a level. */
static void publish_locked(Profiler *profiler) {
    assert_held(&profiler->mu);
    int32_t highest = profiler->default_level;
    for (size_t i = 0; i < profiler->count; i++)
        if (profiler->rows[i].level > highest)
            highest = profiler->rows[i].level;
    command_settings(profiler->service)->profile_level = highest;
}

static bool is_due(Profiler *profiler, CommandCtx *ctx, int64_t duration_us) {
    int32_t level = profiler_level(profiler, ctx->args.db);
    if (level == 2)
        return true;
    CommandSettings *settings = command_settings(ctx->service);
    if (level != 1 || duration_us < (int64_t)atomic_load(&settings->slow_ms) * 1000)
        return false;
    double rate = atomic_load(&settings->slow_sample_rate);
    if (rate >= 1.0)
        return true;
    uint64_t bits;
    secure_random(&bits, sizeof(bits));
    return (double)(bits >> 11) * 0x1.0p-53 < rate;
}

static void build_counter(DocBuilder *b, const char *name, int64_t value) {
    if (value != 0)
        build_count(b, name, value);
}

static Doc build_profile(CommandCtx *ctx, int64_t duration_us, ErrCode rc, const Error *err) {
    OpCtx *op = ctx->op;
    const OpMetrics *m = &op->metrics;
    DocBuilder b = doc_builder_in_arena_sized(&op->arena, 1024);
    Oid id = oid_new();
    build_oid(&b, "_id", &id);
    build_cstr(&b, "op", op->desc.op_type);
    build_cstr(&b, "ns", op->desc.ns);
    if (doc_size(ctx->body) <= PROFILE_COMMAND_BYTES_MAX) {
        build_doc(&b, "command", ctx->body);
    } else {
        size_t opened = build_open_doc(&b, "command");
        build_cstr(&b, "$truncated", ctx->spec->name);
        build_close(&b, opened);
    }
    build_counter(&b, "cursorid", m->cursor_id);
    build_count(&b, "keysExamined", m->keys_examined);
    build_count(&b, "docsExamined", m->docs_examined);
    if (m->has_sort_stage)
        build_bool(&b, "hasSortStage", true);
    if (m->used_disk)
        build_bool(&b, "usedDisk", true);
    if (m->is_cursor_exhausted)
        build_bool(&b, "cursorExhausted", true);
    build_counter(&b, "nMatched", m->docs_matched);
    build_counter(&b, "nModified", m->docs_modified);
    build_counter(&b, "ninserted", m->docs_inserted);
    build_counter(&b, "ndeleted", m->docs_deleted);
    build_counter(&b, "keysInserted", m->keys_inserted);
    build_counter(&b, "keysDeleted", m->keys_deleted);
    build_counter(&b, "writeConflicts", m->write_conflicts);
    build_count(&b, "numYield", m->yields);
    build_count(&b, "nreturned", m->docs_returned);
    build_count(&b, "responseLength", (int64_t)ctx->wire_reply->buf->size);
    if (rc != ERR_OK) {
        char name[32];
        build_str(&b, "errMsg", utf8_cut(error_message(err), PROFILE_TEXT_BYTES_MAX));
        build_cstr(&b, "errName", error_code_name(rc, name));
        build_i32(&b, "errCode", (int32_t)rc);
    }
    build_cstr(&b, "protocol", "op_msg");
    build_count(&b, "millis", duration_us / 1000);
    if (op->desc.plan_summary != NULL)
        build_str(&b, "planSummary", utf8_cut(op->desc.plan_summary, PROFILE_TEXT_BYTES_MAX));
    build_date(&b, "ts", clock_wall_ms());
    build_cstr(&b, "client", ctx->client->conn->peer);
    if (ctx->client->app_name != NULL)
        build_cstr(&b, "appName", ctx->client->app_name);
    build_close(&b, build_open_array(&b, "allUsers"));
    build_cstr(&b, "user", "");
    return doc_builder_end(&b);
}

static ErrCode write_attempt(void *arg, OpCtx *op, Error *err) {
    WriteArgs *args = arg;
    CLEANUP(access_done) CollAccess access = {0};
    TRY(access_write(op, args->ns, LOCK_IX, &access, err));
    args->is_missing = access.coll == NULL;
    if (args->is_missing)
        return ERR_OK;
    CLEANUP(write_scratch_done) WriteScratch scratch;
    write_scratch_init(&scratch);
    CLEANUP(uow_done) UnitOfWork uow = {0};
    TRY(uow_begin(op, &uow, err));
    TRY(collection_insert(op, access.coll, &args->doc, 1, &scratch, err));
    return uow_commit(&uow, err);
}

static ErrCode write_profile(OpCtx *op, const Ns *ns, Doc doc, Error *err) {
    WriteArgs args = {.ns = ns, .doc = doc};
    TRY(op_run_with_retry(op, write_attempt, &args, err));
    if (!args.is_missing)
        return ERR_OK;
    DocBuilder b = doc_builder_in_arena(&op->arena);
    build_bool(&b, "capped", true);
    build_i32(&b, "size", PROFILE_COLLECTION_BYTES);
    ErrCode rc = ddl_create_collection(op, ns, doc_builder_end(&b), NULL, err);
    if (rc == ERR_NAMESPACE_EXISTS) /* another operation was faster */
        error_reset(err);
    else if (rc != ERR_OK)
        return rc;
    return op_run_with_retry(op, write_attempt, &args, err);
}
