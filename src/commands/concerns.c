#include "commands/concerns.h"

#include <assert.h>
#include <string.h>

#include "base/clock.h"
#include "cluster_time/signed_time.h"
#include "params/params.h"
#include "default_concerns/default_concerns.h"
#include "commands/node_commands.h"
#include "commands/sessions.h"
#include "commands/shard_requests.h"
#include "concurrency/op_failpoint.h"
#include "repl/repl.h"
#include "storage/engine.h"
#include "storage/recovery_unit.h"

static ErrCode check_state(CommandCtx *ctx, Repl *repl, Error *err);
static ErrCode take_cluster_time(CommandCtx *ctx, Repl *repl, Error *err);
static void choose_read_concern(CommandCtx *ctx);
static void choose_prepare_conflict(CommandCtx *ctx, const ReadConcern *concern);
static ErrCode wait_read_concern(CommandCtx *ctx, Repl *repl, Error *err);
static void set_read_source(CommandCtx *ctx, const ReadConcern *concern);

ErrCode concerns_before_run(CommandCtx *ctx, Error *err) {
    Repl *repl = ctx->service->repl;
    if (service_is_standalone(ctx->service)) {
        TRY(sessions_before_run(ctx, err));
        choose_prepare_conflict(ctx, &ctx->read_concern);
        return ERR_OK;
    }
    TRY(take_cluster_time(ctx, repl, err));
    ctx->op->cluster_ts = oplog_cluster_time(repl_oplog(repl));
    TRY(check_state(ctx, repl, err));
    if ((ctx->spec->flags & CMD_WRITES) != 0 && !ctx->is_txn)
        TRY(flow_control_acquire(repl_flow_control(repl), ctx->op, err));
    choose_read_concern(ctx);
    TRY(wait_read_concern(ctx, repl, err));
    TRY(shard_request_begin(ctx, err));
    TRY(sessions_before_run(ctx, err));
    /* Last, because concerns_after_run takes it back, which is called for what has begun: a command
     * that is refused before that would leave its time to the next operation of this thread. */
    if (ctx->is_txn) /* has a unit of its own, which keeps the time it began at */
        return ERR_OK;
    assert(ru_read_source(ctx->op->ru) == READ_LATEST);
    set_read_source(ctx, &ctx->read_concern);
    return ERR_OK;
}

ErrCode concerns_after_run(CommandCtx *ctx, ErrCode rc, Error *err) {
    Repl *repl = ctx->service->repl;
    if (service_is_standalone(ctx->service)) {
        ru_set_prepare_conflict(ctx->op->ru, PREPARE_WAIT);
        return rc;
    }
    rc = sessions_after_run(ctx, rc, err);
    if (ru_read_source(ctx->op->ru) != READ_LATEST)
        ru_set_read_source(ctx->op->ru, READ_LATEST, 0);
    ru_set_prepare_conflict(ctx->op->ru, PREPARE_WAIT);
    shard_request_end(ctx);
    if (rc == ERR_OK && ctx->read_concern.level == READ_CONCERN_LINEARIZABLE)
        return repl_wait_linearizable(repl, ctx->op, ctx->op->deadline_us, err);
    return rc;
}

/* ---- what may run here ---- */

static bool is_secondary_ok(const CommandCtx *ctx) {
    Elem preference = ctx->args.read_preference;
    if (elem_type(preference) != BT_DOC)
        return false;
    Elem mode = doc_get_lit(elem_doc(preference), "mode");
    return elem_type(mode) == BT_STRING && !str_is(elem_str(mode), "primary");
}

static ErrCode check_state(CommandCtx *ctx, Repl *repl, Error *err) {
    uint32_t flags = ctx->spec->flags;
    if (str_is(ctx->args.db, "local") || repl_is_writable(repl))
        return ERR_OK;
    if ((flags & (CMD_WRITES | CMD_ENDS_TXN)) != 0 || ctx->is_txn)
        return error_set(err, ERR_NOT_WRITABLE_PRIMARY, "not primary");
    bool is_read = (flags & (CMD_READS | CMD_NEEDS_SECONDARY_OK)) != 0;
    if (!is_read && (flags & CMD_NEEDS_READABLE) == 0)
        return ERR_OK;
    if (!repl_is_readable(repl))
        return error_set(err, ERR_NOT_PRIMARY_OR_SECONDARY,
                         "node is not in primary or recovering state");
    if (!is_read)
        return ERR_OK;
    if (ctx->read_concern.level == READ_CONCERN_LINEARIZABLE)
        return error_set(err, ERR_NOT_WRITABLE_PRIMARY,
                         "cannot satisfy linearizable read concern on non-primary node");
    /* A getMore goes where its cursor is. */
    if (ctx->spec->op_type != NULL && ctx->spec->op_type[0] == 'g')
        return ERR_OK;
    if (!is_secondary_ok(ctx))
        return error_set(err, ERR_NOT_PRIMARY_NO_SECONDARY_OK, "not primary and secondaryOk=false");
    return ERR_OK;
}

/* ---- time ---- */

/* One that is no news needs no proof; one that is not signed needs none as long as there is no
 * access control, for anybody may advance the clock. */
static ErrCode take_cluster_time(CommandCtx *ctx, Repl *repl, Error *err) {
    if (!elem_is_present(ctx->args.cluster_time))
        return ERR_OK;
    SignedTime time;
    TRY(signed_time_parse(ctx->args.cluster_time, &time, err));
    if (time.ts <= oplog_cluster_time(repl_oplog(repl)))
        return ERR_OK;
    TRY(signed_time_check_drift(&time, param_i64(ctx->service, PARAM_CLOCK_DRIFT_SECS_MAX), err));
    bool is_proven = true;
    if (time.key_id != 0)
        TRY(time_keys_verify(repl_time_keys(repl), ctx->op, time.ts, time.key_id, time.hash,
                             &is_proven, err));
    if (is_proven)
        oplog_advance_cluster_time(repl_oplog(repl), time.ts);
    return ERR_OK;
}

void concerns_finish_reply(CommandCtx *ctx) {
    Repl *repl = ctx->service->repl;
    Oplog *oplog = repl_oplog(repl);
    shard_request_finish_reply(ctx);
    if (ctx->has_oplog_reader) {
        repl_build_metadata(repl, ctx->reply, /* is_majority= */ false);
        ctx->client->told_commit = repl_build_oplog_metadata(repl, ctx->reply);
    } else if (UNLIKELY(elem_is_truthy(ctx->args.repl_data))) {
        repl_build_metadata(repl, ctx->reply, ctx->read_concern.level == READ_CONCERN_MAJORITY);
    }
    uint64_t now_ts = oplog_cluster_time(oplog);
    if (now_ts == 0)
        return;
    repl_build_cluster_time(repl, ctx->reply, now_ts);
    uint64_t done_ts = ctx->op->last_optime.ts;
    if (done_ts == 0)
        done_ts = ctx->read_concern.level == READ_CONCERN_MAJORITY
                      ? storage_majority_ts(ctx->service->storage)
                      : storage_oplog_visible_ts(ctx->service->storage);
    if (done_ts != 0)
        build_timestamp(ctx->reply, "operationTime", done_ts);
}

/* ---- waiting ---- */

/* One that was not given is that of the set. */
static void choose_read_concern(CommandCtx *ctx) {
    bool is_taken = (ctx->spec->flags & CMD_TAKES_READ_CONCERN) != 0;
    if (is_taken && !ctx->read_concern.is_given && !str_is(ctx->args.db, "local") &&
        default_read_is_majority(ctx->op))
        ctx->read_concern.level = READ_CONCERN_MAJORITY;
}

/* A read that promises no order sees what was before a prepared transaction; others wait for its
 * end. */
static void choose_prepare_conflict(CommandCtx *ctx, const ReadConcern *concern) {
    bool is_ordered = concern->level == READ_CONCERN_SNAPSHOT ||
                      concern->level == READ_CONCERN_LINEARIZABLE || concern->after_cluster_ts != 0;
    bool is_read = (ctx->spec->flags & (CMD_READS | CMD_WRITES)) == CMD_READS;
    ru_set_prepare_conflict(ctx->op->ru, is_read && !is_ordered ? PREPARE_IGNORE : PREPARE_WAIT);
}

/* Reads of the operation begin where the concern says, as long as it has waited for that. */
static void set_read_source(CommandCtx *ctx, const ReadConcern *concern) {
    choose_prepare_conflict(ctx, concern);
    if (concern->level == READ_CONCERN_MAJORITY)
        ru_set_read_source(ctx->op->ru,
                           str_is(ctx->args.db, "local") ? READ_OPLOG_MAJORITY : READ_MAJORITY, 0);
    else if (concern->level == READ_CONCERN_SNAPSHOT)
        ru_set_read_source(ctx->op->ru, READ_PROVIDED, concern->at_cluster_ts);
}

/* A transaction reads what may still be rolled back; its commit waits for all of it. */
static ErrCode wait_to_begin_txn(CommandCtx *ctx, Repl *repl, Error *err) {
    const ReadConcern *concern = &ctx->read_concern;
    uint64_t at_ts = concern->at_cluster_ts;
    if (at_ts > oplog_cluster_time(repl_oplog(repl)))
        return error_set(err, ERR_INVALID_OPTIONS,
                         "readConcern atClusterTime value must not be greater than the current "
                         "clusterTime");
    uint64_t ts = at_ts != 0 ? at_ts : concern->after_cluster_ts;
    return ts != 0 ? repl_wait_applied(repl, ctx->op, ts, err) : ERR_OK;
}

static ErrCode wait_read_concern(CommandCtx *ctx, Repl *repl, Error *err) {
    ReadConcern *concern = &ctx->read_concern;
    if (ctx->is_txn)
        return wait_to_begin_txn(ctx, repl, err);
    if (concern->after_cluster_ts != 0)
        TRY(repl_wait_applied(repl, ctx->op, concern->after_cluster_ts, err));
    if (!optime_is_none(concern->after_optime))
        TRY(repl_wait_optime(repl, ctx->op, concern->after_optime,
                             concern->level == READ_CONCERN_MAJORITY, err));
    if (concern->level == READ_CONCERN_MAJORITY) {
        TRY(repl_wait_committed(repl, ctx->op, concern->after_cluster_ts, err));
    } else if (concern->level == READ_CONCERN_SNAPSHOT) {
        uint64_t ts = concern->at_cluster_ts;
        if (ts > oplog_cluster_time(repl_oplog(repl)))
            return error_set(err, ERR_INVALID_OPTIONS,
                             "readConcern atClusterTime value must not be greater than the current "
                             "clusterTime");
        if (ts != 0) /* perhaps a router's choice, by the times of other shards */
            TRY(repl_wait_applied(repl, ctx->op, ts, err));
        TRY(repl_wait_committed(repl, ctx->op, ts != 0 ? ts : concern->after_cluster_ts, err));
        /* Chosen once: later batches of a cursor read at the same time. */
        if (ts == 0)
            concern->at_cluster_ts = storage_majority_ts(ctx->service->storage);
    }
    return ERR_OK;
}

void concerns_resume_read(CommandCtx *ctx, const ReadConcern *concern) {
    if (service_is_member(ctx->service))
        set_read_source(ctx, concern);
    else
        choose_prepare_conflict(ctx, concern);
}

static void look_majority(void *arg, const ReplCore *core) {
    const ReplConfig *config = repl_core_config(core);
    *(int32_t *)arg = config != NULL ? (int32_t)config->write_majority_count : 0;
}

static int32_t write_majority(Repl *repl) {
    int32_t count;
    repl_inspect(repl, look_majority, &count);
    return count;
}

/* Adds to a failure which concern it was, and whose. */
static ErrCode tell_concern(CommandCtx *ctx, const WriteConcern *concern,
                            const ReplWriteConcern *wanted, int64_t wtimeout_ms, Error *err) {
    DocBuilder b = doc_builder_in_arena(cmd_arena(ctx));
    size_t info = build_open_doc(&b, "errInfo");
    if (err->code == ERR_WRITE_CONCERN_FAILED)
        build_bool(&b, "wtimeout", true);
    size_t opened = build_open_doc(&b, "writeConcern");
    if (wanted->kind == REPL_W_MAJORITY)
        build_cstr(&b, "w", "majority");
    else if (wanted->kind == REPL_W_MODE)
        build_str(&b, "w", wanted->mode);
    else
        build_i32(&b, "w", wanted->number);
    build_count(&b, "wtimeout", wtimeout_ms);
    bool is_custom = !concern->is_w_given && default_concerns(ctx->op).has_w;
    build_cstr(&b, "provenance",
               concern->is_w_given ? "clientSupplied"
               : is_custom         ? "customDefault"
                                   : "implicitDefault");
    build_close(&b, opened);
    build_close(&b, info);
    error_set_extra(err, doc_builder_end(&b).data);
    return err->code;
}

static void count_write_wait(CommandCtx *ctx, const WriteConcern *concern,
                             const ReplWriteConcern *wanted, int64_t begun_us, ErrCode rc) {
    CommandStats *stats = command_stats(ctx->service);
    if (wanted->kind != REPL_W_NUMBER || wanted->number > 1) {
        atomic_fetch_add_explicit(&stats->write_waits, 1, memory_order_relaxed);
        atomic_fetch_add_explicit(&stats->write_wait_us, clock_mono_us() - begun_us,
                                  memory_order_relaxed);
    }
    if (LIKELY(rc != ERR_WRITE_CONCERN_FAILED))
        return;
    atomic_fetch_add_explicit(&stats->write_timeouts, 1, memory_order_relaxed);
    if (!concern->is_w_given)
        atomic_fetch_add_explicit(&stats->write_timeouts_by_default, 1, memory_order_relaxed);
}

ErrCode concerns_wait_write(CommandCtx *ctx, const WriteConcern *concern, Error *err) {
    Repl *repl = ctx->service->repl;
    if (service_is_standalone(ctx->service))
        return storage_wait_durable(ctx->service->storage, ctx->op, err);
    ReplWriteConcern wanted = {.kind = REPL_W_NUMBER, .number = (int32_t)concern->w};
    bool is_journaled = concern->is_journaled;
    int64_t wtimeout_ms = concern->wtimeout_ms;
    if (!concern->is_w_given) {
        if (repl_is_implicit_majority(repl))
            wanted.kind = REPL_W_MAJORITY;
        DefaultConcerns set = default_concerns(ctx->op);
        if (set.has_w)
            wanted = (ReplWriteConcern){.kind = set.is_majority       ? REPL_W_MAJORITY
                                                : set.mode[0] != '\0' ? REPL_W_MODE
                                                                      : REPL_W_NUMBER,
                                        .number = set.w,
                                        .mode = str_from(arena_strdup(cmd_arena(ctx), set.mode))};
        is_journaled |= set.has_w && set.is_journaled;
        if (set.has_w && wtimeout_ms == 0)
            wtimeout_ms = set.wtimeout_ms;
    } else if (concern->is_majority)
        wanted.kind = REPL_W_MAJORITY;
    else if (concern->w_tag.size > 0)
        wanted = (ReplWriteConcern){.kind = REPL_W_MODE, .mode = concern->w_tag};
    if ((ctx->spec->flags & CMD_WAITS_FOR_MAJORITY) != 0 && wanted.kind == REPL_W_NUMBER &&
        wanted.number < write_majority(repl))
        wanted.kind = REPL_W_MAJORITY;
    if (str_is(ctx->args.db, "local"))
        wanted = (ReplWriteConcern){.kind = REPL_W_NUMBER, .number = 1};
    is_journaled |=
        wanted.kind == REPL_W_MAJORITY && !concern->is_j_given && repl_is_majority_journaled(repl);
    TRY(op_hang(ctx->op, FP_HANG_BEFORE_WRITE_CONCERN, NULL, err));
    int64_t deadline_us = wtimeout_ms > 0 ? clock_deadline_ms(wtimeout_ms) : INT64_MAX;
    int64_t begun_us = clock_mono_us();
    ErrCode rc = repl_wait_write_concern(repl, ctx->op, &wanted, is_journaled, ctx->op->last_optime,
                                         deadline_us, err);
    count_write_wait(ctx, concern, &wanted, begun_us, rc);
    if (rc != ERR_OK)
        return tell_concern(ctx, concern, &wanted, wtimeout_ms, err);
    if (UNLIKELY(ctx->is_txn))
        failpoint_hit(ctx->spec == &CMD_PREPARE_TRANSACTION ? FP_TXN_PREPARED_MAJORITY
                                                            : FP_TXN_ACK_SENT);
    return ERR_OK;
}

ErrCode concerns_confirm_no_txn(CommandCtx *ctx, Error *err) {
    TRY(op_hang(ctx->op, FP_FAIL_TXN_NOOP_WRITE, NULL, err));
    /* An entry of its own: what was there before may be on a majority although another primary has
     * been elected since. */
    TRY(repl_write_note(ctx->service->repl, ctx->op, "confirm that there is no such transaction",
                        &ctx->op->last_optime, err));
    return concerns_wait_write(ctx, &ctx->write_concern, err);
}
