#include "commands/support.h"

#include "base/clock.h"
#include "catalog/access.h"
#include "commands/find_args.h"
#include "cursor/list_source.h"

#include "query/expr/expr.h"
#include "storage/engine.h"

enum {
    LIST_BYTES_MAX = 128 * 1024 * 1024, /* of all batches together, which are in memory */
};

ErrCode cmd_ns(CommandCtx *ctx, Str coll, Ns *ret_ns, Error *err) {
    return ns_make(ctx->args.db, coll, ret_ns, err);
}

ErrCode cmd_expect_uuid(CommandCtx *ctx, const Ns *ns, Elem uuid, Error *err) {
    if (LIKELY(!elem_is_present(uuid)))
        return ERR_OK;
    Uuid wanted;
    if (!uuid_from_elem(uuid, &wanted))
        return error_set(err, uuid_why_not(uuid),
                         "BSON field '%s.collectionUUID' has to be a UUID, not %s", ctx->spec->name,
                         bson_type_name(elem_type(uuid)));
    access_expect(ctx->op, ns, &wanted);
    return ERR_OK;
}

ErrCode cmd_repl(CommandCtx *ctx, struct Repl **ret_repl, Error *err) {
    if (!service_is_member(ctx->service))
        return error_set(err, ERR_NO_REPLICATION_ENABLED, "not running with --replSet");
    *ret_repl = ctx->service->repl;
    return ERR_OK;
}

CatalogGuard cmd_catalog(CommandCtx *ctx) {
    return (CatalogGuard){catalog_acquire(ctx->service->catalog)};
}

void catalog_guard_done(CatalogGuard *guard) {
    if (guard->catalog != NULL)
        catalog_release(guard->catalog);
}

void list_reply_begin(ListReply *list, CommandCtx *ctx) {
    list->ctx = ctx;
    list->count = 0;
    buffer_init_arena(&list->buf, cmd_arena(ctx), 1024, LIST_BYTES_MAX);
    doc_builder_init(&list->builder, &list->buf);
    list->b = &list->builder;
}

size_t list_reply_open(ListReply *list) {
    char name[INDEX_NAME_SIZE];
    return build_open_doc_str(list->b, index_name(list->count++, name));
}

void list_reply_add(ListReply *list, Doc doc) {
    char name[INDEX_NAME_SIZE];
    build_doc(list->b, index_name(list->count++, name).data, doc);
}

ErrCode list_reply_end(ListReply *list, const Ns *ns, Doc cursor, Error *err) {
    FirstBatchOptions batch = {.batch_size = INT64_MAX};
    if (doc_is_present(cursor)) {
        DocIter iter = doc_iter(cursor);
        Elem elem;
        while (doc_iter_next(&iter, &elem)) {
            if (!elem_name_is(elem, STR("batchSize")))
                return field_unknown("cursor", elem, err);
            TRY(batch_size_parse("cursor", elem, &batch.batch_size, err));
        }
    }
    Doc rows;
    TRY(doc_builder_finish(list->b, "the list", &rows, err));
    return reply_with_cursor(list->ctx, ns, list_source_new(rows), &batch, err);
}

ErrCode cmd_refuse_view(const Ns *view, Error *err) {
    return error_set(err, ERR_COMMAND_NOT_SUPPORTED_ON_VIEW,
                     "Namespace %s is a view, not a collection", view->text);
}

ErrCode cmd_check_shard(const CommandCtx *ctx, Error *err) {
    if (ctx->service->role == ROLE_SHARD)
        return ERR_OK;
    return error_set(err, ERR_NO_SHARDING_ENABLED, "%s can only be run on a shard",
                     ctx->spec->name);
}

ErrCode cmd_parse_filter(CommandCtx *ctx, Doc filter, MatchExpr **ret_expr, Error *err) {
    if (!doc_is_present(filter) || doc_is_empty(filter)) {
        *ret_expr = NULL;
        return ERR_OK;
    }
    ExprMatchHook *hook = ARENA_NEW(cmd_arena(ctx), ExprMatchHook);
    hook->now_ms = clock_wall_ms();
    MatchParseContext context = {.expr_hook = expr_match_hook(hook)};
    TRY(match_parse(filter, &context, cmd_arena(ctx), ret_expr, err));
    *ret_expr = match_optimize(*ret_expr, cmd_arena(ctx));
    return ERR_OK;
}

ErrCode cmd_filter_matches(const MatchExpr *expr, Doc doc, bool *ret_is_match, Error *err) {
    if (expr == NULL) {
        *ret_is_match = true;
        return ERR_OK;
    }
    MatchDetails details = MATCH_DETAILS_NONE;
    details.err = err;
    *ret_is_match = match_doc(expr, doc, &details);
    return details.rc;
}

void arena_doc_begin(ArenaDoc *doc, Arena *arena) {
    doc->b = doc_builder_in_arena(arena);
}

Doc arena_doc_end(ArenaDoc *doc) {
    return doc_builder_end(&doc->b);
}

CollectionSizes collection_sizes(ServiceCtx *service, const Collection *coll) {
    StorageEngine *engine = service->storage;
    const char *ident = record_store_ident(coll->records);
    CollectionSizes sizes = {
        .count = record_store_count(coll->records),
        .data_bytes = record_store_data_size(coll->records),
        .storage_bytes = storage_table_bytes(engine, ident),
        .reusable_bytes = storage_table_reusable_bytes(engine, ident),
    };
    for (uint32_t i = 0; i < coll->index_count; i++)
        sizes.index_bytes += storage_table_bytes(engine, coll->indexes[i]->ident);
    return sizes;
}

void build_scaled(DocBuilder *b, const char *name, int64_t value, int64_t scale) {
    build_count(b, name, value / scale);
}

ErrCode cmd_parse_scale(Elem elem, int64_t *ret_scale, Error *err) {
    *ret_scale = 1;
    if (!elem_is_present(elem) || elem_type(elem) == BT_NULL)
        return ERR_OK;
    if (!elem_is_number(elem))
        return error_set(err, ERR_TYPE_MISMATCH, "scale has to be a number, not %s",
                         bson_type_name(elem_type(elem)));
    *ret_scale = elem_as_i64(elem);
    if (*ret_scale < 1)
        return error_set(err, (ErrCode)51024,
                         "BSON field 'scale' value must be >= 1, actual value '%lld'",
                         (long long)*ret_scale);
    return ERR_OK;
}
