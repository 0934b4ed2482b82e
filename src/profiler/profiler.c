#include "profiler/profiler.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/prng.h"
#include "base/thread.h"
#include "bson/validate.h"
#include "catalog/access.h"
#include "commands/core/command_service.h"
#include "commands/core/command_text.h"
#include "commands/core/statement_notes.h"
#include "params/params.h"
#include "ddl/ddl.h"
#include "index/collection_write.h"
#include "storage/unit_of_work.h"

enum {
    PROFILE_COLLECTION_BYTES = 1024 * 1024,
    PROFILE_DATABASES_MAX = 4096,
    PROFILE_TEXT_BYTES_MAX = 4 * 1024,
};

typedef struct DbLevel {
    char db[DB_NAME_SIZE_MAX + 1];
    int32_t level;
    ProfileFilter *filter; /* NULL: none */
} DbLevel;

struct Profiler {
    ServiceCtx *service;
    int32_t default_level;
    ProfileFilter *default_filter; /* NULL: none */
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

/* A command, or one statement of it. */
typedef struct Profiled {
    Doc command;
    bool is_statement;
    const OpMetrics *metrics;
    const char *plan_summary; /* NULL: none */
    const uint8_t *exec_stats;
    int64_t duration_us;
    ErrCode rc;
    const char *error_text;
} Profiled;

static DbLevel *row_locked(Profiler *profiler, Str db);
static int32_t level_locked(const Profiler *profiler, Str db, DbLevel **ret_row);
static void publish_locked(Profiler *profiler);
static bool is_sampled(CommandCtx *ctx, int64_t duration_us);
static void profile_one(Profiler *profiler, CommandCtx *ctx, const Profiled *what);
static Doc build_profile(CommandCtx *ctx, const Profiled *what);
static ErrCode write_profile(OpCtx *op, const Ns *ns, Doc doc, Error *err);

Profiler *profiler_new(ServiceCtx *service, int32_t default_level, ProfileFilter *default_filter) {
    Profiler *profiler = NEW(Profiler);
    profiler->service = service;
    profiler->default_level = default_level;
    profiler->default_filter = profile_filter_ref(default_filter);
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
    for (size_t i = 0; i < profiler->count; i++)
        profile_filter_unref(profiler->rows[i].filter);
    profile_filter_unref(profiler->default_filter);
    xfree(profiler->rows);
    xfree(profiler);
}

int32_t profiler_level(Profiler *profiler, Str db) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&profiler->mu);
    DbLevel *row;
    return level_locked(profiler, db, &row);
}

void profiler_set_level(Profiler *profiler, Str db, int32_t level) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&profiler->mu);
    DbLevel *row = row_locked(profiler, db);
    if (row != NULL)
        row->level = level;
    publish_locked(profiler);
}

ProfileFilter *profiler_filter(Profiler *profiler, Str db) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&profiler->mu);
    DbLevel *row;
    (void)level_locked(profiler, db, &row);
    return profile_filter_ref(row != NULL ? row->filter : profiler->default_filter);
}

void profiler_set_filter(Profiler *profiler, Str db, ProfileFilter *filter) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&profiler->mu);
    DbLevel *row = row_locked(profiler, db);
    if (row != NULL) {
        profile_filter_unref(row->filter);
        row->filter = profile_filter_ref(filter);
    }
    publish_locked(profiler);
}

void profiler_forget_level(Profiler *profiler, Str db) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&profiler->mu);
    DbLevel *row;
    (void)level_locked(profiler, db, &row);
    if (row != NULL) {
        row->level = profiler->default_level;
        profile_filter_unref(row->filter);
        row->filter = profile_filter_ref(profiler->default_filter);
    }
    publish_locked(profiler);
}

/* That of the database, made if need be; NULL: there are too many, or no such database can exist.
 */
static DbLevel *row_locked(Profiler *profiler, Str db) {
    assert_held(&profiler->mu);
    DbLevel *row = NULL;
    int32_t level = level_locked(profiler, db, &row);
    if (row != NULL || db.size > DB_NAME_SIZE_MAX || profiler->count == PROFILE_DATABASES_MAX)
        return row;
    ARRAY_RESERVE(profiler->rows, profiler->count, profiler->capacity);
    row = &profiler->rows[profiler->count++];
    *row = (DbLevel){.level = level, .filter = profile_filter_ref(profiler->default_filter)};
    memcpy(row->db, db.data, db.size);
    return row;
}

/* A getMore of a cursor that is of no collection. */
static bool is_of_list(const CommandCtx *ctx) {
    static const char PREFIX[] = "$cmd.";
    return strcmp(ctx->op->desc.op_type, "getmore") == 0 && ctx->ns_coll.size > strlen(PREFIX) &&
           memcmp(ctx->ns_coll.data, PREFIX, strlen(PREFIX)) == 0;
}

static Profiled whole_command(const CommandCtx *ctx, int64_t duration_us, ErrCode rc,
                              const Error *err) {
    return (Profiled){.command = ctx->body,
                      .metrics = &ctx->op->metrics,
                      .plan_summary = ctx->op->desc.plan_summary,
                      .exec_stats = ctx->op->desc.exec_stats,
                      .duration_us = duration_us,
                      .rc = rc,
                      .error_text = rc != ERR_OK ? error_message(err) : NULL};
}

bool profiler_is_logged(CommandCtx *ctx, int64_t duration_us, ErrCode rc, const Error *err,
                        bool *ret_is_logged) {
    Profiler *profiler = ctx->service->profiler;
    if (profiler == NULL || ctx->op->desc.op_type == NULL)
        return false;
    ProfileFilter *filter = profiler_filter(profiler, ctx->args.db);
    if (filter == NULL)
        return false;
    Profiled whole = whole_command(ctx, duration_us, rc, err);
    *ret_is_logged = profile_filter_matches(filter, build_profile(ctx, &whole));
    profile_filter_unref(filter);
    return true;
}

void profiler_on_finished(CommandCtx *ctx, int64_t duration_us, ErrCode rc, const Error *err) {
    Profiler *profiler = ctx->service->profiler;
    if (profiler == NULL || ctx->op->cpu_start_ns == 0 || is_of_list(ctx))
        return; /* nothing was profiled when it began, or it is not told */
    const StatementNotes *notes = ctx->notes;
    if (notes == NULL || notes->count == 0) {
        Profiled whole = whole_command(ctx, duration_us, rc, err);
        profile_one(profiler, ctx, &whole);
        return;
    }
    bool is_ring = notes->count > STATEMENT_NOTES_MAX;
    for (uint32_t i = is_ring ? notes->count - STATEMENT_NOTES_MAX : 0; i < notes->count; i++) {
        const StatementNote *note = &notes->rows[i % STATEMENT_NOTES_MAX];
        profile_one(profiler, ctx,
                    &(Profiled){.command = note->statement,
                                .is_statement = true,
                                .metrics = &note->metrics,
                                .plan_summary = note->plan_summary,
                                .exec_stats = note->exec_stats,
                                .duration_us = note->duration_us,
                                .rc = note->rc,
                                .error_text = note->error_text});
    }
}

static void profile_one(Profiler *profiler, CommandCtx *ctx, const Profiled *what) {
    int32_t level = profiler_level(profiler, ctx->args.db);
    if (level == 0)
        return;
    ProfileFilter *filter = level == 1 ? profiler_filter(profiler, ctx->args.db) : NULL;
    if (level == 1 && filter == NULL && !is_sampled(ctx, what->duration_us))
        return;
    Doc doc = build_profile(ctx, what);
    bool is_wanted = filter == NULL || profile_filter_matches(filter, doc);
    profile_filter_unref(filter);
    CLEANUP(error_reset) Error write_err = {0};
    Ns ns;
    if (!is_wanted || ns_make(ctx->args.db, STR("system.profile"), &ns, &write_err) != ERR_OK)
        return;
    OpCtx *op = ctx->op;
    /* The operation may have been ended by a kill or its time limit; this is still to be written.
     */
    CLEANUP(op_mode_restore) OpModeScope scope = op_mode_scope(op);
    op->mode.is_uninterruptible = true;
    if (write_profile(op, &ns, doc, &write_err) != ERR_OK)
        LOG_WARN(LOG_COMMAND, 20703, "Caught exception while trying to profile operation",
                 LOG_STR("ns", ns.text), LOG_STR("error", error_message(&write_err)));
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
    bool has_filters = profiler->default_filter != NULL;
    for (size_t i = 0; i < profiler->count; i++) {
        if (profiler->rows[i].level > highest)
            highest = profiler->rows[i].level;
        has_filters |= profiler->rows[i].filter != NULL;
    }
    command_settings(profiler->service)->profile_level = highest;
    command_settings(profiler->service)->has_profile_filters = has_filters;
}

static bool is_sampled(CommandCtx *ctx, int64_t duration_us) {
    CommandSettings *settings = command_settings(ctx->service);
    if (duration_us < (int64_t)atomic_load(&settings->slow_ms) * 1000)
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

/* A statement of an update has its options also where they were left out, and any has the comment
 * of its command. */
static void build_command(DocBuilder *b, const CommandCtx *ctx, const Profiled *what) {
    static const Str OPTIONS[] = {STR("multi"), STR("upsert")};
    Arena *arena = &ctx->op->arena;
    Doc command = what->command;
    if (what->is_statement) {
        Elem comment = ctx->args.comment;
        bool is_update = strcmp(ctx->op->desc.op_type, "update") == 0;
        DocBuilder whole = doc_builder_in_arena_sized(arena, doc_size(command) + 64);
        build_all(&whole, command);
        if (elem_is_present(comment) && !elem_is_present(doc_get_lit(command, "comment")))
            build_elem_as(&whole, STR("comment"), comment);
        for (size_t i = 0; is_update && i < ARRAY_LEN(OPTIONS); i++)
            if (!elem_is_present(doc_get(command, OPTIONS[i])))
                build_bool(&whole, OPTIONS[i].data, false);
        command = doc_builder_end(&whole);
    }
    build_doc(b, "command",
              doc_size(command) <= COMMAND_TOLD_BYTES_MAX ? command : command_cut(command, arena));
}

/* What the kind of operation is about is told also when it is 0. */
static void build_write_counters(DocBuilder *b, const char *op_type, bool is_upsert,
                                 const OpMetrics *m) {
    bool is_insert = strcmp(op_type, "insert") == 0,
         is_update = is_upsert || strcmp(op_type, "update") == 0,
         is_delete = strcmp(op_type, "remove") == 0;
    if (is_update || (!is_delete && m->docs_matched != 0))
        build_count(b, "nMatched", m->docs_matched);
    if (is_update || m->docs_modified != 0)
        build_count(b, "nModified", m->docs_modified);
    if (is_upsert) {
        build_bool(b, "upsert", true);
        build_count(b, "nUpserted", m->docs_inserted);
    } else if (is_insert || m->docs_inserted != 0) {
        build_count(b, "ninserted", m->docs_inserted);
    }
    if (is_delete || m->docs_deleted != 0)
        build_count(b, "ndeleted", m->docs_deleted);
}

/* How often each mode was taken, of databases and collections together. Who locks one of them holds
 * the intent above it, too. */
static void build_locks(DocBuilder *b, const OpMetrics *m) {
    static const char *const LEVELS[] = {"Global", "Database", "Collection"};
    static const char *const MODES[] = {"r", "w", "R", "W"};
    size_t locks = build_open_doc(b, "locks");
    for (size_t i = 0; i < ARRAY_LEN(LEVELS); i++) {
        size_t level = build_open_doc(b, LEVELS[i]);
        size_t counts = build_open_doc(b, "acquireCount");
        for (size_t mode = 0; mode < ARRAY_LEN(MODES); mode++)
            build_counter(b, MODES[mode], m->lock_acquired[mode]);
        build_close(b, counts);
        build_close(b, level);
    }
    build_close(b, locks);
}

static Doc build_profile(CommandCtx *ctx, const Profiled *what) {
    OpCtx *op = ctx->op;
    const OpMetrics *m = what->metrics;
    DocBuilder b = doc_builder_in_arena_sized(&op->arena, 1024);
    Oid id = oid_new();
    build_oid(&b, "_id", &id);
    build_cstr(&b, "op", op->desc.op_type);
    build_cstr(&b, "ns", op->desc.ns);
    build_command(&b, ctx, what);
    build_counter(&b, "cursorid", m->cursor_id);
    if (doc_is_present(ctx->originating_command))
        build_doc(&b, "originatingCommand", ctx->originating_command);
    build_count(&b, "keysExamined", m->keys_examined);
    build_count(&b, "docsExamined", m->docs_examined);
    if (m->has_sort_stage)
        build_bool(&b, "hasSortStage", true);
    if (m->is_from_trial)
        build_bool(&b, "fromMultiPlanner", true);
    if (m->replan_works > 0) {
        char reason[REPLAN_REASON_SIZE];
        build_bool(&b, "replanned", true);
        build_cstr(&b, "replanReason", op_replan_reason(m, reason));
    }
    if (m->used_disk)
        build_bool(&b, "usedDisk", true);
    if (m->is_cursor_exhausted)
        build_bool(&b, "cursorExhausted", true);
    bool is_upsert = elem_is_truthy(doc_get_lit(what->command, "upsert"));
    build_write_counters(&b, op->desc.op_type, is_upsert, m);
    build_counter(&b, "keysInserted", m->keys_inserted);
    build_counter(&b, "keysDeleted", m->keys_deleted);
    build_counter(&b, "writeConflicts", m->write_conflicts);
    build_count(&b, "numYield", m->yields);
    build_count(&b, "nreturned", m->docs_returned);
    if (op->desc.has_shape && !what->is_statement) {
        char hex[16];
        snprintf(hex, sizeof(hex), "%08X", op->desc.query_hash);
        build_cstr(&b, "queryHash", hex);
        snprintf(hex, sizeof(hex), "%08X", op->desc.plan_cache_key);
        build_cstr(&b, "planCacheKey", hex);
    }
    build_count(&b, "responseLength", (int64_t)ctx->wire_reply->buf->size);
    if (what->rc != ERR_OK) {
        char name[32];
        build_str(&b, "errMsg", utf8_cut(what->error_text, PROFILE_TEXT_BYTES_MAX));
        build_cstr(&b, "errName", error_code_name(what->rc, name));
        build_i32(&b, "errCode", (int32_t)what->rc);
    }
    build_locks(&b, &op->metrics);
    if (op->cpu_start_ns != 0)
        build_i64(&b, "cpuNanos", clock_thread_cpu_ns() - op->cpu_start_ns);
    build_cstr(&b, "protocol", "op_msg");
    build_count(&b, "millis", what->duration_us / 1000);
    if (what->plan_summary != NULL)
        build_str(&b, "planSummary", utf8_cut(what->plan_summary, PROFILE_TEXT_BYTES_MAX));
    if (what->exec_stats != NULL)
        build_doc(&b, "execStats", (Doc){what->exec_stats});
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
    TRY(profiler_ensure_collection(op, ns_db(ns), err));
    return op_run_with_retry(op, write_attempt, &args, err);
}

ErrCode profiler_ensure_collection(OpCtx *op, Str db, Error *err) {
    Ns ns;
    TRY(ns_make(db, STR("system.profile"), &ns, err));
    DocBuilder b = doc_builder_in_arena(&op->arena);
    build_bool(&b, "capped", true);
    build_i32(&b, "size", PROFILE_COLLECTION_BYTES);
    ErrCode rc = ddl_create_collection(op, &ns, doc_builder_end(&b), NULL, err);
    if (rc == ERR_NAMESPACE_EXISTS) { /* also with options of its own */
        error_reset(err);
        return ERR_OK;
    }
    return rc;
}
