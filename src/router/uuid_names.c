#include "router/uuid_names.h"

#include "router/forward.h"

#define ACTUAL "actualCollection"

/* In the operation's arena; empty: there is none in that database, or nobody says. */
static Str find_name(CommandCtx *ctx, Str db, Elem uuid) {
    Cluster *cluster = ctx->service->cluster;
    CLEANUP(error_reset) Error ignored = {0}; /* the mismatch is what the client is told */
    CLEANUP(forward_target_done) ForwardTarget primary = {0};
    if (forward_to_database(ctx, db, /* creates= */ false, &primary, &ignored) != ERR_OK ||
        primary.shard == NULL)
        return STR("");
    DocBuilder b = doc_builder_in_arena(cmd_arena(ctx));
    build_i32(&b, "listCollections", 1);
    size_t filter = build_open_doc(&b, "filter");
    build_elem_as(&b, STR("info.uuid"), uuid);
    build_close(&b, filter);
    remote_build_end(cluster, &b, db, NULL, ctx->args.cluster_time);
    RemoteRequest request = {.shard = primary.shard,
                             .body = doc_builder_end(&b),
                             .retry = REMOTE_IDEMPOTENT,
                             .deadline_us = INT64_MAX};
    CLEANUP(client_reply_done) ClientReply reply = {0};
    if (remote_run(cluster, ctx->op, &request, &reply, NULL, &ignored) != ERR_OK)
        return STR("");
    Elem batch = doc_get_path(reply.body, "cursor.firstBatch");
    Elem row = elem_type(batch) == BT_ARRAY ? doc_get_lit(elem_doc(batch), "0") : ELEM_MISSING;
    Elem name = elem_type(row) == BT_DOC ? doc_get_lit(elem_doc(row), "name") : ELEM_MISSING;
    if (elem_type(name) != BT_STRING)
        return STR("");
    Str found = elem_str(name);
    return (Str){arena_strndup(cmd_arena(ctx), found.data, found.size), found.size};
}

bool uuid_names_is_missing(Doc details) {
    return elem_type(doc_get_lit(details, ACTUAL)) == BT_NULL &&
           elem_type(doc_get_lit(details, "db")) == BT_STRING &&
           elem_type(doc_get_lit(details, "collectionUUID")) == BT_BINARY;
}

Doc uuid_names_complete(CommandCtx *ctx, Doc details) {
    Str name = uuid_names_is_missing(details) ? find_name(ctx, elem_str(doc_get_lit(details, "db")),
                                                          doc_get_lit(details, "collectionUUID"))
                                              : STR("");
    if (name.size == 0)
        return details;
    DocBuilder b = doc_builder_in_arena(cmd_arena(ctx));
    DocIter iter = doc_iter(details);
    for (Elem field; doc_iter_next(&iter, &field);)
        if (elem_name_is(field, STR(ACTUAL)))
            build_str(&b, ACTUAL, name);
        else
            build_elem(&b, field);
    return doc_builder_end(&b);
}

void uuid_names_complete_error(CommandCtx *ctx, Error *err) {
    if (LIKELY(err->code != ERR_COLLECTION_UUID_MISMATCH) || err->extra == NULL)
        return;
    Doc given = {err->extra};
    Doc complete = uuid_names_complete(ctx, given);
    if (complete.data != given.data)
        error_set_extra(err, complete.data);
}
