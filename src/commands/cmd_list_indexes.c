/*
 * cmd_list_indexes.c - listIndexes: the indexes of a collection, options in their normal form.
 *
 * The catalog keeps what the user gave ({sparse: 1}); here it is shown as what it means ({sparse:
 * true}).
 */
#include "commands/query_args.h"
#include "commands/support.h"
#include "request/catalog_requests.h"

static void build_option(DocBuilder *b, Elem elem) {
    static const char *const BOOLEANS[] = {"unique",     "sparse",    "hidden",
                                           "background", "clustered", "prepareUnique"};
    for (size_t i = 0; i < ARRAY_LEN(BOOLEANS); i++) {
        if (str_is(elem_name_str(elem), BOOLEANS[i])) {
            build_bool(b, BOOLEANS[i], elem_is_truthy(elem));
            return;
        }
    }
    if (elem_name_is(elem, STR("expireAfterSeconds")) || elem_name_is(elem, STR("v")))
        build_count(b, elem_name(elem), elem_as_i64(elem));
    else
        build_elem(b, elem);
}

static void add_index(ListReply *reply, const IndexDesc *index, const ListIndexesRequest *request) {
    DocBuilder *b = reply->b;
    size_t row = list_reply_open(reply);
    bool is_building = !index->is_ready && index->has_build_uuid;
    /* Of an index that is being built, so that nobody takes it for one that is there. */
    bool is_inner =
        request->include_index_build_info || (is_building && request->include_build_uuids);
    size_t inner = is_inner ? build_open_doc(b, "spec") : 0;
    DocIter iter = doc_iter(index->spec);
    Elem elem;
    while (doc_iter_next(&iter, &elem))
        build_option(b, elem);
    if (is_inner)
        build_close(b, inner);
    if (is_building && request->include_index_build_info) {
        size_t info = build_open_doc(b, "indexBuildInfo");
        build_uuid(b, "buildUUID", &index->build_uuid);
        build_close(b, info);
    } else if (is_building && request->include_build_uuids) {
        build_uuid(b, "buildUUID", &index->build_uuid);
    }
    build_close(b, row);
}

/* A clustered collection has no _id index: the records themselves are in that order. */
static void add_clustered(ListReply *reply, const Collection *coll) {
    DocBuilder *b = reply->b;
    size_t row = list_reply_open(reply);
    build_i32(b, "v", 2);
    size_t key = build_open_doc(b, "key");
    build_i32(b, "_id", 1);
    build_close(b, key);
    build_cstr(b, "name", coll->options.clustered_name);
    build_bool(b, "unique", true);
    build_bool(b, "clustered", true);
    if (coll->options.collator != NULL)
        build_doc(b, "collation", coll->options.collator->spec);
    build_close(b, row);
}

static ErrCode list_indexes_run(CommandCtx *ctx, void *arg, Error *err) {
    const ListIndexesRequest *request = arg;
    Ns ns;
    TRY(request->coll.has_uuid ? request_ref_ns(ctx, &request->coll, &ns, err)
                               : cmd_ns(ctx, request->coll.name, &ns, err));
    CLEANUP(catalog_guard_done) CatalogGuard guard = cmd_catalog(ctx);
    if (catalog_find_view(guard.catalog, &ns) != NULL)
        return cmd_refuse_view(&ns, err);
    const Collection *coll = catalog_find(guard.catalog, &ns);
    if (coll == NULL)
        return error_set(err, ERR_NAMESPACE_NOT_FOUND, "ns does not exist: %s", ns.text);
    ListReply reply;
    list_reply_begin(&reply, ctx);
    if (coll->options.is_clustered)
        add_clustered(&reply, coll);
    for (uint32_t i = 0; i < coll->index_count; i++)
        add_index(&reply, coll->indexes[i], request);
    return list_reply_end(&reply, &ns, request->cursor, err);
}

const CommandSpec CMD_LIST_INDEXES = {
    .name = "listIndexes",
    .summary = "Lists the indexes of a collection.",
    .flags = CMD_API_V1 | CMD_NEEDS_READABLE,
    .request = &LIST_INDEXES_REQUEST,
    .run = list_indexes_run,
};
