#include "router/forward.h"

#include "router/pass_cursor.h"
#include "router/router_txn.h"
#include "router/routing.h"

void forward_target_done(ForwardTarget *target) {
    shard_list_unref(target->list);
    database_route_unref(target->database);
    *target = (ForwardTarget){0};
}

void forward_reply_done(ForwardReply *reply) {
    client_reply_done(&reply->reply);
}

ErrCode forward_to_database(CommandCtx *ctx, Str db, bool creates, ForwardTarget *ret_target,
                            Error *err) {
    Cluster *cluster = ctx->service->cluster;
    *ret_target = (ForwardTarget){0};
    DatabaseRoute *route;
    TRY(creates ? cluster_ensure_database(cluster, ctx->op, db, &route, err)
                : cluster_find_database(cluster, ctx->op, db, &route, err));
    if (route == NULL)
        return ERR_OK;
    ret_target->database = route;
    return cluster_get_shard(cluster, ctx->op, str_from(route->shard), &ret_target->list,
                             &ret_target->shard, err);
}

/* Fields that this connection has its own of. */
static bool is_of_connection(Elem field) {
    return elem_name_is(field, STR("$db")) || elem_name_is(field, STR("$clusterTime")) ||
           elem_name_is(field, STR("$readPreference"));
}

static Doc build_body(CommandCtx *ctx, const ForwardTarget *target,
                      const ReadPreference *preference) {
    DocBuilder b = doc_builder_in_arena(cmd_arena(ctx));
    DocIter iter = doc_iter(ctx->body);
    for (Elem field; doc_iter_next(&iter, &field);)
        if (!is_of_connection(field) && !router_txn_is_own_field(ctx, elem_name_str(field)))
            build_elem(&b, field);
    const DatabaseRoute *database = target->database;
    if (database != NULL && !database_version_is_fixed(&database->version))
        database_version_build(&b, "databaseVersion", &database->version);
    router_txn_build(ctx, &b);
    remote_build_end(ctx->service->cluster, &b, ctx->args.db, preference, ctx->args.cluster_time);
    return doc_builder_end(&b);
}

static const ClientSequence *copy_sequences(CommandCtx *ctx) {
    const WireMessage *message = ctx->message;
    ClientSequence *copies =
        ARENA_ARRAY(cmd_arena(ctx), ClientSequence, message->sequence_count + 1);
    for (uint32_t i = 0; i < message->sequence_count; i++) {
        const WireSequence *sequence = &message->sequences[i];
        Doc *docs = ARENA_ARRAY(cmd_arena(ctx), Doc, sequence->count + 1);
        const uint8_t *at = sequence->docs;
        for (uint32_t k = 0; k < sequence->count; k++) {
            docs[k] = (Doc){at};
            at += doc_size(docs[k]);
        }
        char *name = arena_strndup(cmd_arena(ctx), sequence->name.data, sequence->name.size);
        copies[i] = (ClientSequence){name, docs, sequence->count};
    }
    return copies;
}

/* A client must not take it for this router's own state that a member of a shard is not primary, or
 * goes away: it would look for another router. What it should do is try again. */
static ErrCode hide_state(ErrCode code) {
    return error_is_of_state(code) ? ERR_HOST_UNREACHABLE : code;
}

void forward_build_write_concern_error(DocBuilder *b, Doc error) {
    size_t opened = build_open_doc(b, "writeConcernError");
    Elem given = doc_get_lit(error, "code");
    ErrCode code = elem_is_number(given) ? (ErrCode)elem_as_i64(given) : ERR_UNKNOWN_ERROR;
    char name[32];
    DocIter iter = doc_iter(error);
    for (Elem field; doc_iter_next(&iter, &field);)
        if (elem_name_is(field, STR("code")))
            build_i32(b, "code", (int32_t)hide_state(code));
        else if (elem_name_is(field, STR("codeName")))
            build_cstr(b, "codeName", error_code_name(hide_state(code), name));
        else
            build_elem(b, field);
    build_close(b, opened);
}

/* Reads, and writes that a shard executes once however often they come. */
static RemoteRetry retry_of(const CommandCtx *ctx, bool is_read) {
    bool is_repeatable =
        !router_txn_is_statement(ctx) && (is_read || elem_is_present(ctx->args.txn_number));
    return is_repeatable ? REMOTE_IDEMPOTENT : REMOTE_ONCE;
}

ErrCode forward_send(CommandCtx *ctx, const ForwardTarget *target, ForwardReply *ret_reply,
                     Error *err) {
    ReadPreference preference;
    TRY(read_preference_parse(ctx->args.read_preference, &preference, err));
    bool is_read = (ctx->spec->flags & CMD_READS) != 0 && !target->is_write;
    RemoteRequest request = {
        .shard = target->shard,
        .preference = is_read ? &preference : NULL,
        .body = build_body(ctx, target, is_read ? &preference : NULL),
        .sequences = copy_sequences(ctx),
        .sequence_count = ctx->message->sequence_count,
        .retry = retry_of(ctx, is_read),
        .deadline_us = INT64_MAX,
    };
    TRY(router_txn_check(ctx, &target->shard, 1, err)); /* the body says whether it begins here */
    ErrCode rc = remote_run(ctx->service->cluster, ctx->op, &request, &ret_reply->reply,
                            ret_reply->host, err);
    Elem time = doc_is_present(ret_reply->reply.body)
                    ? doc_get_lit(ret_reply->reply.body, "operationTime")
                    : ELEM_MISSING;
    if (elem_type(time) == BT_TIMESTAMP && (uint64_t)elem_i64(time) > ctx->op->last_optime.ts)
        ctx->op->last_optime.ts = (uint64_t)elem_i64(time);
    if (rc != ERR_OK && doc_is_present(ret_reply->reply.body))
        err->code = hide_state(rc);
    return err->code;
}

void forward_build_reply(CommandCtx *ctx, Doc reply, const char *without) {
    static const Str OWN[] = {STR("ok"),          STR("$clusterTime"),  STR("operationTime"),
                              STR("$configTime"), STR("$topologyTime"), STR("topologyVersion"),
                              STR("electionId"),  STR("opTime")};
    Str left_out = str_from(without != NULL ? without : "");
    DocIter iter = doc_iter(reply);
    for (Elem field; doc_iter_next(&iter, &field);) {
        bool is_own = without != NULL && elem_name_is(field, left_out);
        for (size_t i = 0; i < ARRAY_LEN(OWN) && !is_own; i++)
            is_own = elem_name_is(field, OWN[i]);
        if (is_own)
            continue;
        ctx->has_write_errors |= elem_name_is(field, STR("writeErrors"));
        if (elem_name_is(field, STR("writeConcernError")) && elem_type(field) == BT_DOC)
            forward_build_write_concern_error(ctx->reply, elem_doc(field));
        else
            build_elem(ctx->reply, field);
    }
}

/* ---- whole commands ---- */

/* The reply when the database does not exist is that of a node without it: so any shard may give
 * it. */
static ErrCode any_shard(CommandCtx *ctx, ForwardTarget *ret_target, Error *err) {
    ret_target->list = cluster_shards(ctx->service->cluster);
    if (ret_target->list->count == 0)
        return error_set(err, ERR_SHARD_NOT_FOUND,
                         "this cluster has no shards: add one with addShard");
    ret_target->shard = &ret_target->list->rows[0];
    return ERR_OK;
}

static ErrCode target(CommandCtx *ctx, const ForwardUse *use, ForwardTarget *ret_target,
                      Error *err) {
    if (str_is(ctx->args.db, "local"))
        return error_set(err, ERR_ILLEGAL_OPERATION,
                         "the database \"local\" is each node's own: connect to the node");
    TRY(forward_to_database(ctx, ctx->args.db, use->creates, ret_target, err));
    ret_target->is_write = use->writes;
    return ret_target->shard != NULL ? ERR_OK : any_shard(ctx, ret_target, err);
}

static ErrCode run_once(CommandCtx *ctx, const ForwardUse *use, bool *ret_is_stale, Error *err) {
    *ret_is_stale = false;
    CLEANUP(forward_target_done) ForwardTarget to = {0};
    TRY(target(ctx, use, &to, err));
    CLEANUP(forward_reply_done) ForwardReply reply = {0};
    ErrCode rc = forward_send(ctx, &to, &reply, err);
    *ret_is_stale = routing_is_stale_error(rc) && to.database != NULL;
    if (*ret_is_stale)
        cluster_note_stale_database(ctx->service->cluster, to.database);
    TRY(rc);
    if (use->has_cursor)
        return pass_cursor_reply(ctx, to.shard, reply.host, reply.reply.body, /* shown= */ NULL,
                                 err);
    forward_build_reply(ctx, reply.reply.body, NULL);
    return ERR_OK;
}

ErrCode forward_run(CommandCtx *ctx, const ForwardUse *use, Error *err) {
    for (int attempt = 1;; attempt++) {
        bool is_stale;
        ErrCode rc = run_once(ctx, use, &is_stale, err);
        if (!is_stale || !router_txn_may_repeat(ctx) || attempt == ROUTING_ATTEMPTS_MAX)
            return rc;
        error_reset(err);
    }
}
