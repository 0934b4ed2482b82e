/*
 * cmd_list_collections.c - listCollections: collections and views of a database.
 *
 * The list is made from one catalog version, so it never shows half of a change.
 */
#include "commands/support.h"
#include "request/catalog_requests.h"

typedef struct ListState {
    CommandCtx *ctx;
    bool is_name_only;
    const MatchExpr *filter;
    ListReply reply;
    ErrCode rc;
    Error *err;
} ListState;

static bool add_row(ListState *state, Doc row) {
    bool is_match;
    state->rc = cmd_filter_matches(state->filter, row, &is_match, state->err);
    if (state->rc != ERR_OK)
        return false;
    if (!is_match)
        return true;
    if (!state->is_name_only) {
        list_reply_add(&state->reply, row);
        return true;
    }
    /* The filter may ask for what is not shown. */
    size_t opened = list_reply_open(&state->reply);
    build_elem(state->reply.b, doc_get_lit(row, "name"));
    build_elem(state->reply.b, doc_get_lit(row, "type"));
    build_close(state->reply.b, opened);
    return true;
}

static bool add_collection(void *arg, const Collection *coll) {
    ListState *state = arg;
    ArenaDoc doc;
    arena_doc_begin(&doc, cmd_arena(state->ctx));
    DocBuilder *b = &doc.b;
    build_str(b, "name", ns_coll(&coll->ns));
    build_cstr(b, "type", "collection");
    build_doc(b, "options", coll->options.doc);
    size_t info = build_open_doc(b, "info");
    build_bool(b, "readOnly", false);
    build_uuid(b, "uuid", &coll->uuid);
    build_close(b, info);
    const IndexDesc *id_index = collection_id_index(coll);
    if (id_index != NULL)
        build_doc(b, "idIndex", id_index->spec);
    return add_row(state, arena_doc_end(&doc));
}

static bool add_view(void *arg, const View *view) {
    ListState *state = arg;
    ArenaDoc doc;
    arena_doc_begin(&doc, cmd_arena(state->ctx));
    DocBuilder *b = &doc.b;
    build_str(b, "name", ns_coll(&view->ns));
    build_cstr(b, "type", "view");
    size_t options = build_open_doc(b, "options");
    build_str(b, "viewOn", ns_coll(&view->view_on));
    build_array(b, "pipeline", view->pipeline);
    if (doc_is_present(view->collation) && !doc_is_empty(view->collation))
        build_doc(b, "collation", view->collation);
    build_close(b, options);
    size_t info = build_open_doc(b, "info");
    build_bool(b, "readOnly", true);
    build_close(b, info);
    return add_row(state, arena_doc_end(&doc));
}

/* Is it clear from the filter alone that it matches no view? */
static bool excludes_views(const MatchExpr *filter) {
    if (filter == NULL)
        return false;
    switch (filter->kind) {
    case MATCH_AND:
        for (uint32_t i = 0; i < filter->child_count; i++)
            if (excludes_views(filter->children[i]))
                return true;
        return false;
    case MATCH_OR:
        for (uint32_t i = 0; i < filter->child_count; i++)
            if (!excludes_views(filter->children[i]))
                return false;
        return true;
    case MATCH_EQ:
        return str_is(filter->path.dotted, "type") && !(elem_type(filter->operand) == BT_STRING &&
                                                        str_is(elem_str(filter->operand), "view"));
    case MATCH_NOT: {
        const MatchExpr *child = filter->children[0];
        return child->kind == MATCH_EXISTS && str_is(child->path.dotted, "type");
    }
    default:
        return false;
    }
}

static ErrCode list_collections_run(CommandCtx *ctx, void *arg, Error *err) {
    const ListCollectionsRequest *request = arg;
    TRY(db_name_check(ctx->args.db, err));
    MatchExpr *filter;
    TRY(cmd_parse_filter(ctx, request->filter, &filter, err));
    CLEANUP(catalog_guard_done) CatalogGuard guard = cmd_catalog(ctx);
    ListState state = {
        .ctx = ctx, .is_name_only = request->name_only, .filter = filter, .err = err};
    list_reply_begin(&state.reply, ctx);
    catalog_for_each_in_db(guard.catalog, ctx->args.db, add_collection, &state);
    TRY(state.rc);
    if (!excludes_views(filter)) {
        TRY(catalog_check_views(guard.catalog, ctx->args.db, err));
        catalog_for_each_view_in_db(guard.catalog, ctx->args.db, add_view, &state);
        TRY(state.rc);
    }
    Ns ns;
    TRY(ns_make(ctx->args.db, STR("$cmd.listCollections"), &ns, err));
    return list_reply_end(&state.reply, &ns, request->cursor, err);
}

const CommandSpec CMD_LIST_COLLECTIONS = {
    .name = "listCollections",
    .summary = "Lists the collections and views of a database.",
    .flags = CMD_API_V1 | CMD_NEEDS_READABLE,
    .request = &LIST_COLLECTIONS_REQUEST,
    .run = list_collections_run,
};
