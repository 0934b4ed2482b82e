/*
 * cmd_rename_if_unchanged.c - internalRenameIfOptionsAndIndexesMatch: a rename over a collection
 * that is still as its caller has seen it. What routers of MongoDB send at the end of $out.
 */
#include "bson/compare.h"
#include "commands/support.h"
#include "ddl/ddl.h"

typedef struct RenameIfRequest {
    Elem command;
    Str from;
    Str to;
    Doc indexes; /* an array of specifications, in any order */
    Doc options; /* with the uuid, in any order */
} RenameIfRequest;

static const FieldSpec RENAME_IF_FIELDS[] = {
    {"internalRenameIfOptionsAndIndexesMatch", FIELD_ELEM, FIELD_REQUIRED,
     offsetof(RenameIfRequest, command)},
    {"from", FIELD_STRING, FIELD_REQUIRED, offsetof(RenameIfRequest, from)},
    {"to", FIELD_STRING, FIELD_REQUIRED, offsetof(RenameIfRequest, to)},
    {"indexes", FIELD_ARRAY, FIELD_REQUIRED, offsetof(RenameIfRequest, indexes)},
    {"collectionOptions", FIELD_DOC, FIELD_REQUIRED, offsetof(RenameIfRequest, options)},
};

/* The same fields, in whatever order. */
static bool has_same_fields(Doc a, Doc b) {
    if (doc_count(a) != doc_count(b))
        return false;
    DocIter iter = doc_iter(a);
    for (Elem elem; doc_iter_next(&iter, &elem);)
        if (!elem_equal(elem, doc_get(b, elem_name_str(elem)), NULL))
            return false;
    return true;
}

static bool has_same_options(const Collection *coll, Doc options) {
    CLEANUP(arena_done) Arena arena;
    arena_init(&arena, 1024);
    DocBuilder b = doc_builder_in_arena(&arena);
    if (coll != NULL) {
        build_uuid(&b, "uuid", &coll->uuid);
        if (doc_is_present(coll->options.doc))
            build_all(&b, coll->options.doc);
    }
    return has_same_fields(doc_builder_end(&b), options);
}

static bool has_same_indexes(const Collection *coll, Doc specs) {
    if (doc_count(specs) != (coll != NULL ? coll->index_count : 0))
        return false;
    DocIter iter = doc_iter(specs);
    for (Elem spec; doc_iter_next(&iter, &spec);) {
        bool is_there = false;
        for (uint32_t i = 0; elem_type(spec) == BT_DOC && i < coll->index_count; i++)
            is_there |= has_same_fields(elem_doc(spec), coll->indexes[i]->spec);
        if (!is_there)
            return false;
    }
    return true;
}

static ErrCode check_unchanged(void *arg, const Collection *target, Error *err) {
    const RenameIfRequest *request = arg;
    const char *changed = !has_same_options(target, request->options)   ? "options"
                          : !has_same_indexes(target, request->indexes) ? "indexes"
                                                                        : NULL;
    if (changed == NULL)
        return ERR_OK;
    return error_set(err, ERR_COMMAND_FAILED, "the %s of \"%.*s\" are not those given", changed,
                     (int)request->to.size, request->to.data);
}

static ErrCode rename_if_run(CommandCtx *ctx, void *arg, Error *err) {
    RenameIfRequest *request = arg;
    Ns from, to;
    TRY(ns_parse(request->from, &from, err));
    TRY(ns_parse(request->to, &to, err));
    return ddl_rename_if(ctx->op, &from, &to, (RenameCheck){check_unchanged, request}, err);
}

const CommandSpec CMD_RENAME_IF_UNCHANGED = {
    .name = "internalRenameIfOptionsAndIndexesMatch",
    .summary = "Renames a collection over one that has not changed.",
    .flags = CMD_WRITES | CMD_ADMIN_ONLY,
    .request = REQUEST_OF(RenameIfRequest, RENAME_IF_FIELDS),
    .run = rename_if_run,
};
