#include "router/owners.h"

#include "commands/core/command_service.h"
#include "router/forward.h"

static ErrCode ask(Routing *routing, const Shard *const *shards, uint32_t count, bool is_versioned,
                   const ReadPreference *preference, ShardCalls *ret_calls, Error *err) {
    CommandCtx *ctx = routing->ctx;
    shard_calls_done(ret_calls);
    *ret_calls = shard_calls_new(ctx, count);
    for (uint32_t i = 0; i < count; i++) {
        DocBuilder b = doc_builder_in_arena(cmd_arena(ctx));
        routing_copy_fields(ctx, &b, NULL);
        ret_calls->rows[i].shard = shards[i];
        ret_calls->rows[i].body = is_versioned
                                      ? routing_end_body(routing, &b, shards[i], preference)
                                      : routing_end_body_unversioned(routing, &b, preference);
    }
    ScatterOptions options = {.preference = preference, .retry = REMOTE_IDEMPOTENT};
    TRY(scatter_run(ctx, ret_calls, &options, err));
    return shard_calls_check(ret_calls, err);
}

static ErrCode ask_owners(Routing *routing, bool is_versioned, const ReadPreference *preference,
                          ShardCalls *ret_calls, Error *err) {
    if (!routing_is_sharded(routing)) {
        const Shard *primary;
        TRY(routing_primary(routing, &primary, err));
        return ask(routing, &primary, 1, is_versioned, preference, ret_calls, err);
    }
    const Shard **shards;
    uint32_t count;
    TRY(routing_owners(routing, &shards, &count, err));
    return ask(routing, shards, count, is_versioned, preference, ret_calls, err);
}

ErrCode owners_ask(Routing *routing, const ReadPreference *preference, ShardCalls *ret_calls,
                   Error *err) {
    return ask_owners(routing, /* is_versioned= */ true, preference, ret_calls, err);
}

ErrCode owners_ask_unversioned(Routing *routing, const ReadPreference *preference,
                               ShardCalls *ret_calls, Error *err) {
    return ask_owners(routing, /* is_versioned= */ false, preference, ret_calls, err);
}

ErrCode owners_ask_shards(Routing *routing, const Shard *const *shards, uint32_t count,
                          const ReadPreference *preference, ShardCalls *ret_calls, Error *err) {
    return ask(routing, shards, count, /* is_versioned= */ false, preference, ret_calls, err);
}

static const char *raw_name(const Shard *shard) {
    return shard->address != NULL ? shard->address : shard->name;
}

void owners_build_raw(CommandCtx *ctx, const ShardCalls *calls) {
    size_t raw = build_open_doc(ctx->reply, "raw");
    for (uint32_t i = 0; i < calls->count; i++) {
        size_t row = build_open_doc(ctx->reply, raw_name(calls->rows[i].shard));
        forward_build_reply(ctx, calls->rows[i].reply.body, NULL);
        build_f64(ctx->reply, "ok", 1.0);
        build_close(ctx->reply, row);
    }
    build_close(ctx->reply, raw);
    /* One of them stands for all. */
    for (uint32_t i = 0; i < calls->count; i++) {
        Elem failed = doc_get_lit(calls->rows[i].reply.body, "writeConcernError");
        if (elem_type(failed) == BT_DOC) {
            forward_build_write_concern_error(ctx->reply, elem_doc(failed));
            return;
        }
    }
}

/* What a shard said; of one that said nothing, what kept it from doing so. */
static void build_raw_failure(DocBuilder *b, const ShardCall *call, const Error *moved) {
    Doc reply = call->reply.body;
    if (!doc_is_present(reply)) {
        build_f64(b, "ok", 0.0);
        build_error_fields(b, call->err.code != ERR_OK ? &call->err : moved,
                           /* has_code_name= */ true);
        return;
    }
    static const Str SHOWN[] = {STR("ok"), STR("errmsg"), STR("code"), STR("codeName")};
    DocIter iter = doc_iter(reply);
    for (Elem field; doc_iter_next(&iter, &field);)
        for (size_t i = 0; i < ARRAY_LEN(SHOWN); i++)
            if (elem_name_is(field, SHOWN[i]))
                build_elem(b, field);
}

ErrCode owners_add_raw(CommandCtx *ctx, const ShardCalls *calls, Error *err) {
    if (routing_is_stale_error(err->code) || err->extra != NULL)
        return err->code;
    DocBuilder b = doc_builder_in_arena(cmd_arena(ctx));
    size_t raw = build_open_doc(&b, "raw");
    for (uint32_t i = 0; i < calls->count; i++) {
        size_t row = build_open_doc(&b, raw_name(calls->rows[i].shard));
        build_raw_failure(&b, &calls->rows[i], err);
        build_close(&b, row);
    }
    build_close(&b, raw);
    error_set_extra(err, doc_builder_end(&b).data);
    return err->code;
}

ErrCode owners_refuse(Routing *routing, Error *err) {
    const Shard **shards;
    uint32_t count;
    CLEANUP(error_reset) Error ignored = {0}; /* it is refused either way */
    if (routing_owners(routing, &shards, &count, &ignored) != ERR_OK)
        return err->code;
    CLEANUP(shard_calls_done) ShardCalls calls = shard_calls_new(routing->ctx, count);
    for (uint32_t i = 0; i < count; i++)
        calls.rows[i].shard = shards[i];
    return owners_add_raw(routing->ctx, &calls, err);
}
