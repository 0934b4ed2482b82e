#include "router/scatter.h"

#include <string.h>

#include "base/clock.h"
#include "router/router_txn.h"
#include "router/routing.h"

ShardCalls shard_calls_new(CommandCtx *ctx, uint32_t count) {
    ShardCalls calls = {ARENA_ARRAY(cmd_arena(ctx), ShardCall, count + 1), count};
    memset(calls.rows, 0, (count + 1) * sizeof(ShardCall));
    for (uint32_t i = 0; i < count; i++)
        calls.rows[i].reply.body = DOC_NONE;
    return calls;
}

void shard_calls_done(ShardCalls *calls) {
    for (uint32_t i = 0; i < calls->count; i++) {
        client_reply_done(&calls->rows[i].reply);
        error_reset(&calls->rows[i].err);
    }
    *calls = (ShardCalls){0};
}

ErrCode scatter_hide_state(ErrCode code) {
    return error_is_of_state(code) ? ERR_HOST_UNREACHABLE : code;
}

void scatter_learn_time(CommandCtx *ctx, Doc reply) {
    Elem time = doc_get_lit(reply, "operationTime");
    if (elem_type(time) == BT_TIMESTAMP && (uint64_t)elem_i64(time) > ctx->op->last_optime.ts)
        ctx->op->last_optime.ts = (uint64_t)elem_i64(time);
}

static void end_call(CommandCtx *ctx, ShardCall *call) {
    if (!doc_is_present(call->reply.body))
        return;
    scatter_learn_time(ctx, call->reply.body);
    if (call->rc != ERR_OK) {
        call->rc = scatter_hide_state(call->rc);
        call->err.code = call->rc;
    }
}

static int64_t call_deadline(const ScatterOptions *options) {
    return options->ms_max > 0 ? clock_deadline_ms(options->ms_max) : INT64_MAX;
}

static ErrCode run_single(CommandCtx *ctx, ShardCall *call, const ScatterOptions *options,
                          Error *err) {
    RemoteRequest request = {
        .shard = call->shard,
        .preference = options->preference,
        .body = call->body,
        .sequences = call->sequences,
        .sequence_count = call->sequence_count,
        .retry = options->retry,
        .deadline_us = call_deadline(options),
    };
    call->rc =
        remote_run(ctx->service->cluster, ctx->op, &request, &call->reply, call->host, &call->err);
    if (LIKELY(call->rc == ERR_OK)) {
        end_call(ctx, call);
        return ERR_OK;
    }
    TRY(op_check_interrupt_slow(ctx->op, err));
    end_call(ctx, call);
    return ERR_OK;
}

/* ---- several ---- */

typedef struct Scatter {
    CommandCtx *ctx;
    const ScatterOptions *options;
    ClientCalls *calls;
    ShardCall *first;
    uint8_t *attempts; /* of each call */
    bool has_failed;
} Scatter;

static void scatter_done(Scatter *scatter) {
    client_calls_free(scatter->calls);
}

/* That no member is there is the outcome of the call. */
static ErrCode send_call(Scatter *scatter, ShardCall *call, Error *err) {
    static const ReadPreference PRIMARY = READ_PREFERENCE_PRIMARY;
    const ReadPreference *preference =
        scatter->options->preference != NULL ? scatter->options->preference : &PRIMARY;
    OpCtx *op = scatter->ctx->op;
    error_reset(&call->err);
    call->rc = set_select(call->shard->set, op, preference, call->host, &call->err);
    if (call->rc != ERR_OK) {
        scatter->has_failed = true;
        return op_check_interrupt_slow(op, err);
    }
    ClientCommand command = {
        .body = call->body, .sequences = call->sequences, .sequence_count = call->sequence_count};
    call->rc = ERR_CALLBACK_CANCELED; /* until it ends */
    (void)client_calls_add(scatter->calls, call->host, &command, call_deadline(scatter->options),
                           call);
    return ERR_OK;
}

static ErrCode take_next(Scatter *scatter, Error *err) {
    Cluster *cluster = scatter->ctx->service->cluster;
    ClientCallEnd end;
    bool is_there;
    TRY(client_calls_next(scatter->calls, INT64_MAX, &end, &is_there, err));
    if (!is_there)
        return ERR_OK;
    ShardCall *call = end.user;
    call->rc = end.rc;
    client_calls_take(scatter->calls, &call->reply, &call->err);
    if (doc_is_present(call->reply.body))
        cluster_learn_times(cluster, call->reply.body);
    if (UNLIKELY(call->rc != ERR_OK)) {
        set_note_failure(call->shard->set, call->host, call->rc);
        if (remote_is_repeatable(scatter->options->retry, call->rc) &&
            ++scatter->attempts[call - scatter->first] < REMOTE_ATTEMPTS_MAX)
            return send_call(scatter, call, err);
        scatter->has_failed = true;
    }
    end_call(scatter->ctx, call);
    return ERR_OK;
}

static void cancel_rest(Scatter *scatter, ShardCalls *calls) {
    client_calls_cancel_all(scatter->calls);
    for (uint32_t i = 0; i < calls->count; i++) {
        ShardCall *call = &calls->rows[i];
        if (call->rc == ERR_CALLBACK_CANCELED)
            (void)error_set(&call->err, ERR_CALLBACK_CANCELED,
                            "given up: another shard had failed");
    }
}

static ErrCode check_txn(CommandCtx *ctx, const ShardCalls *calls, Error *err) {
    const Shard **shards = ARENA_ARRAY(cmd_arena(ctx), const Shard *, calls->count + 1);
    for (uint32_t i = 0; i < calls->count; i++)
        shards[i] = calls->rows[i].shard;
    return router_txn_check(ctx, shards, calls->count, err);
}

ErrCode scatter_run(CommandCtx *ctx, ShardCalls *calls, const ScatterOptions *options, Error *err) {
    ScatterOptions of_statement;
    if (UNLIKELY(router_txn_is_statement(ctx))) {
        TRY(check_txn(ctx, calls, err));
        of_statement = *options;
        of_statement.retry = REMOTE_ONCE;
        options = &of_statement;
    }
    if (LIKELY(calls->count == 1))
        return run_single(ctx, &calls->rows[0], options, err);
    CLEANUP(scatter_done)
    Scatter scatter = {.ctx = ctx,
                       .options = options,
                       .calls = client_calls_new(ctx->service->clients, ctx->op),
                       .first = calls->rows,
                       .attempts = ARENA_ARRAY(cmd_arena(ctx), uint8_t, calls->count + 1)};
    memset(scatter.attempts, 0, calls->count + 1);
    for (uint32_t i = 0; i < calls->count; i++)
        TRY(send_call(&scatter, &calls->rows[i], err));
    while (client_calls_count(scatter.calls) > 0) {
        if (options->stops_at_error && scatter.has_failed) {
            cancel_rest(&scatter, calls);
            break;
        }
        TRY(take_next(&scatter, err));
    }
    return ERR_OK;
}

/* Stale metadata first, then what is somebody's own failure, then what was given up for it. */
static int severity(ErrCode rc) {
    if (rc == ERR_OK)
        return 0;
    if (rc == ERR_CALLBACK_CANCELED)
        return 1;
    return routing_is_stale_error(rc) ? 3 : 2;
}

ErrCode shard_calls_check(ShardCalls *calls, Error *err) {
    ShardCall *worst = NULL;
    for (uint32_t i = 0; i < calls->count; i++)
        if (severity(calls->rows[i].rc) > (worst == NULL ? 0 : severity(worst->rc)))
            worst = &calls->rows[i];
    if (worst == NULL)
        return ERR_OK;
    error_reset(err);
    error_move(err, &worst->err);
    return err->code;
}
