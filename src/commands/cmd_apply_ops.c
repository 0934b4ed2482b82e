/*
 * cmd_apply_ops.c - applyOps: runs a list of writes and changes of the catalog, given in the form
 * of oplog entries.
 *
 * Each of them is a write like any other: it is checked, logged and replicated by itself. The list
 * is not atomic: the first failure ends it, and the reply tells how far it got.
 */
#include <string.h>

#include "base/failpoint.h"
#include "catalog/access.h"
#include "catalog/own_collections.h"
#include "commands/support.h"
#include "commands/query_args.h"
#include "commands/write_reply.h"
#include "ddl/ddl.h"
#include "query/write/modify.h"

enum {
    UPDATE_OPERATION_FAILED = 218,
};

typedef struct ApplyOpsRequest {
    DocList ops;
    bool is_atomic;
    bool is_always_upsert;
    Str mode;
} ApplyOpsRequest;

static const FieldSpec APPLY_OPS_FIELDS[] = {
    {"applyOps", FIELD_DOCS, FIELD_REQUIRED, offsetof(ApplyOpsRequest, ops)},
    {"allowAtomic", FIELD_BOOL, FIELD_OPTIONAL, offsetof(ApplyOpsRequest, is_atomic)},
    {"alwaysUpsert", FIELD_BOOL, FIELD_OPTIONAL, offsetof(ApplyOpsRequest, is_always_upsert)},
    {"oplogApplicationMode", FIELD_STRING, FIELD_OPTIONAL, offsetof(ApplyOpsRequest, mode)},
    {"preCondition", FIELD_REFUSED, FIELD_OPTIONAL, 0},
};

typedef struct Entry {
    char op;
    Ns ns;
    Doc o;
    Doc o2;
    bool is_upsert;
    bool has_uuid;
    Uuid uuid;
} Entry;

/* ---- writes ---- */

static ErrCode check_exists(CommandCtx *ctx, const Ns *ns, Error *err) {
    CLEANUP(catalog_guard_done) CatalogGuard guard = cmd_catalog(ctx);
    if (catalog_find(guard.catalog, ns) != NULL)
        return ERR_OK;
    if (catalog_find_view(guard.catalog, ns) != NULL)
        return cmd_refuse_view(ns, err);
    return error_set(err, ERR_NAMESPACE_NOT_FOUND,
                     "Failed to apply operation: collection \"%s\" does not exist", ns->text);
}

static Doc id_of(Doc doc, Arena *arena) {
    DocBuilder b = doc_builder_in_arena(arena);
    build_elem(&b, doc_get_lit(doc, "_id"));
    return doc_builder_end(&b);
}

static Elem as_elem(Doc doc, Arena *arena) {
    DocBuilder b = doc_builder_in_arena(arena);
    build_doc(&b, "u", doc);
    return doc_get_lit(doc_builder_end(&b), "u");
}

/* {$v, diff} tells what changed: as a pipeline that makes that change. Else it is the document. */
static Elem update_of(Doc o, Arena *arena) {
    if (!elem_is_present(doc_get_lit(o, "$v")))
        return as_elem(o, arena);
    DocBuilder b = doc_builder_in_arena(arena);
    size_t stages = build_open_array(&b, "u");
    size_t stage = build_open_doc(&b, "0");
    size_t spec = build_open_doc(&b, "$_internalApplyOplogUpdate");
    build_doc(&b, "oplogUpdate", o);
    build_close(&b, spec);
    build_close(&b, stage);
    build_close(&b, stages);
    return doc_get_lit(doc_builder_end(&b), "u");
}

static ErrCode update_failed(const Entry *entry, Error *err) {
    return error_set(err, (ErrCode)UPDATE_OPERATION_FAILED, "Failed to apply update: %s",
                     entry->ns.text);
}

/* The only way to write what may be no view, as whoever replays an oplog needs it. */
static ErrCode apply_to_views(CommandCtx *ctx, const Entry *entry, Doc key, Error *err) {
    DocIter iter = doc_iter(entry->o);
    Elem first;
    if (entry->op == 'u' && doc_iter_next(&iter, &first) && elem_name(first)[0] == '$')
        return error_set(err, ERR_NOT_IMPLEMENTED,
                         "applyOps supports updates of %s that replace the document only",
                         entry->ns.text);
    bool was_there;
    bool is_only_replaced = entry->op == 'u' && !entry->is_upsert;
    TRY(ddl_write_view_row(ctx->op, &entry->ns, doc_get_lit(key, "_id"),
                           entry->op == 'd' ? DOC_NONE : entry->o, is_only_replaced, &was_there,
                           err));
    return is_only_replaced && !was_there ? update_failed(entry, err) : ERR_OK;
}

static ErrCode apply_write(CommandCtx *ctx, const Entry *entry, Error *err) {
    Arena *arena = cmd_arena(ctx);
    Doc key = entry->op == 'u' ? entry->o2 : entry->o;
    if (!doc_is_present(key) || !elem_is_present(doc_get_lit(key, "_id")))
        return error_set(err, ERR_NO_SUCH_KEY,
                         "Failed to apply operation due to missing _id: namespace \"%s\"",
                         entry->ns.text);
    if (str_is(ns_coll(&entry->ns), "system.views"))
        return apply_to_views(ctx, entry, key, err);
    TRY(write_ns_check(ctx, &entry->ns, err));
    TRY(check_exists(ctx, &entry->ns, err));
    count_op(ctx->service,
             entry->op == 'i'   ? OP_COUNTER_INSERT
             : entry->op == 'u' ? OP_COUNTER_UPDATE
                                : OP_COUNTER_DELETE,
             1);
    ModifyRequest modify = {
        .kind = entry->op == 'd' ? MODIFY_DELETE : MODIFY_UPDATE,
        .query = {.filter = id_of(key, arena)},
        .update = entry->op == 'u' ? update_of(entry->o, arena) : as_elem(entry->o, arena),
        .is_upsert = entry->op == 'i' || entry->is_upsert,
    };
    query_spec_defaults(ctx, &modify.query);
    ModifyOutcome outcome;
    TRY(exec_modify(ctx->op, &entry->ns, &modify, &outcome, err));
    if (entry->op == 'u' && outcome.matched == 0 && !outcome.is_upserted)
        return update_failed(entry, err);
    return ERR_OK;
}

/* ---- the catalog ---- */

static ErrCode ns_of_command(const Entry *entry, Ns *ret_ns, Error *err) {
    DocIter iter = doc_iter(entry->o);
    Elem first = ELEM_MISSING;
    doc_iter_next(&iter, &first);
    if (elem_type(first) != BT_STRING)
        return error_set(err, ERR_INVALID_NAMESPACE, "collection name has invalid type %s",
                         bson_type_name(elem_type(first)));
    return ns_make(ns_db(&entry->ns), elem_str(first), ret_ns, err);
}

/* The fields of the command without its name, its concern, which is that of the whole list, and
 * `left_out`. */
static Doc options_of(Doc o, const char *left_out, Arena *arena) {
    DocBuilder b = doc_builder_in_arena(arena);
    DocIter iter = doc_iter(o);
    Elem elem;
    doc_iter_next(&iter, &elem);
    while (doc_iter_next(&iter, &elem))
        if (strcmp(elem_name(elem), left_out) != 0 && strcmp(elem_name(elem), "writeConcern") != 0)
            build_elem(&b, elem);
    return doc_builder_end(&b);
}

static bool find_uuid(CommandCtx *ctx, const Uuid *uuid, Ns *ret_ns) {
    CLEANUP(catalog_guard_done) CatalogGuard guard = cmd_catalog(ctx);
    const Collection *coll = catalog_find_uuid(guard.catalog, uuid);
    if (coll != NULL)
        *ret_ns = coll->ns;
    return coll != NULL;
}

/* The collection is the one of that UUID: if it has another name, the entry gives it this one. */
static ErrCode apply_create(CommandCtx *ctx, const Entry *entry, Error *err) {
    Ns ns;
    TRY(ns_of_command(entry, &ns, err));
    TRY(own_collections_check(ctx->op, &ns, OWN_CHANGE_CREATE, err));
    Ns present;
    if (entry->has_uuid && find_uuid(ctx, &entry->uuid, &present)) {
        if (ns_equal(&present, &ns))
            return ERR_OK;
        if (!str_equal(ns_db(&present), ns_db(&ns)))
            return error_set(err, ERR_COMMAND_FAILED,
                             "cannot create \"%s\": its UUID is that of \"%s\"", ns.text,
                             present.text);
        TRY(own_collections_check(ctx->op, &present, OWN_CHANGE_RENAME, err));
        return ddl_rename(ctx->op, &present, &ns, /* is_drop_target= */ false, err);
    }
    return ddl_create_collection(ctx->op, &ns, options_of(entry->o, "", cmd_arena(ctx)),
                                 entry->has_uuid ? &entry->uuid : NULL, err);
}

static ErrCode apply_coll_mod(CommandCtx *ctx, const Entry *entry, Error *err) {
    Ns ns;
    CollModRequest *request = ARENA_NEW(cmd_arena(ctx), CollModRequest);
    TRY(ns_of_command(entry, &ns, err));
    TRY(own_collections_check(ctx->op, &ns, OWN_CHANGE_OPTIONS, err));
    TRY(request_parse(&COLL_MOD_REQUEST, "collMod", entry->o, cmd_arena(ctx), request, err));
    const CollModChange *change = &request->change;
    if (change->is_dry_run)
        return error_set(err, ERR_INVALID_OPTIONS, "applyOps takes no collMod with 'dryRun'");
    if (elem_is_present(change->pre_images) || elem_is_present(change->pipeline))
        return error_set(err, ERR_NOT_IMPLEMENTED,
                         "applyOps supports neither pre-images nor pipelines of collMod");
    CollModResult result;
    return ddl_coll_mod(ctx->op, &ns, change, &result, err);
}

static ErrCode apply_drop(CommandCtx *ctx, const Entry *entry, Error *err) {
    Ns ns;
    DropResult result;
    TRY(ns_of_command(entry, &ns, err));
    TRY(own_collections_check(ctx->op, &ns, OWN_CHANGE_DROP, err));
    TRY(ddl_drop(ctx->op, &ns, NULL, &result, err));
    return result.was_found ? ERR_OK : error_set(err, ERR_NAMESPACE_NOT_FOUND, "ns not found");
}

static ErrCode apply_rename(CommandCtx *ctx, const Entry *entry, Error *err) {
    Elem from_name = doc_get_lit(entry->o, "renameCollection"),
         to_name = doc_get_lit(entry->o, "to");
    if (elem_type(from_name) != BT_STRING || elem_type(to_name) != BT_STRING)
        return error_set(err, ERR_TYPE_MISMATCH, "'renameCollection' and 'to' have to be strings");
    Ns from, to;
    TRY(ns_parse(elem_str(from_name), &from, err));
    TRY(ns_parse(elem_str(to_name), &to, err));
    TRY(own_collections_check(ctx->op, &from, OWN_CHANGE_RENAME, err));
    TRY(own_collections_check(ctx->op, &to, OWN_CHANGE_RENAME, err));
    return ddl_rename(ctx->op, &from, &to, elem_is_truthy(doc_get_lit(entry->o, "dropTarget")),
                      err);
}

static ErrCode apply_create_indexes(CommandCtx *ctx, const Entry *entry, Error *err) {
    Ns ns;
    TRY(ns_of_command(entry, &ns, err));
    TRY(own_collections_check(ctx->op, &ns, OWN_CHANGE_INDEXES, err));
    TRY(check_exists(ctx, &ns, err));
    Doc spec = options_of(entry->o, "ns", cmd_arena(ctx));
    CreateIndexesResult result;
    return ddl_create_indexes(ctx->op, &ns, &spec, 1, &result, err);
}

static ErrCode apply_drop_indexes(CommandCtx *ctx, const Entry *entry, Error *err) {
    Ns ns;
    uint32_t before;
    TRY(ns_of_command(entry, &ns, err));
    TRY(own_collections_check(ctx->op, &ns, OWN_CHANGE_INDEXES, err));
    return ddl_drop_indexes(ctx->op, &ns, doc_get_lit(entry->o, "index"), &before, err);
}

static ErrCode apply_drop_database(CommandCtx *ctx, const Entry *entry, Error *err) {
    bool existed;
    TRY(own_databases_check_drop(ctx->op, ns_db(&entry->ns), err));
    return ddl_drop_database(ctx->op, ns_db(&entry->ns), &existed, err);
}

static const struct {
    const char *name;
    ErrCode (*apply)(CommandCtx *ctx, const Entry *entry, Error *err);
} COMMANDS[] = {
    {"collMod", apply_coll_mod},
    {"create", apply_create},
    {"createIndexes", apply_create_indexes},
    {"drop", apply_drop},
    {"dropDatabase", apply_drop_database},
    {"dropIndexes", apply_drop_indexes},
    {"renameCollection", apply_rename},
};

static ErrCode apply_command(CommandCtx *ctx, const Entry *entry, Error *err) {
    DocIter iter = doc_iter(entry->o);
    Elem first;
    if (!doc_iter_next(&iter, &first))
        return error_set(err, ERR_BAD_VALUE, "the command of an entry cannot be empty");
    for (size_t i = 0; i < ARRAY_LEN(COMMANDS); i++)
        if (str_is(elem_name_str(first), COMMANDS[i].name))
            return COMMANDS[i].apply(ctx, entry, err);
    return error_set(err, ERR_NOT_IMPLEMENTED, "applyOps does not support the command '%s'",
                     elem_name(first));
}

/* ---- entries ---- */

static ErrCode parse_entry(Doc doc, Entry *ret_entry, Error *err) {
    Elem op = doc_get_lit(doc, "op"), ns = doc_get_lit(doc, "ns"), o = doc_get_lit(doc, "o"),
         o2 = doc_get_lit(doc, "o2");
    if (elem_type(op) != BT_STRING)
        return error_set(err, ERR_FAILED_TO_PARSE, "op does not contain required \"op\" field");
    if (elem_str(op).size != 1 || strchr("iudcn", elem_str(op).data[0]) == NULL)
        return error_set(err, ERR_FAILED_TO_PARSE, "op has an invalid value: '%s'",
                         elem_str(op).data);
    *ret_entry =
        (Entry){.op = elem_str(op).data[0], .is_upsert = elem_is_truthy(doc_get_lit(doc, "b"))};
    if (ret_entry->op == 'n')
        return ERR_OK;
    if (elem_type(ns) != BT_STRING)
        return error_set(err, ERR_FAILED_TO_PARSE, "\"ns\" field is not a string");
    if (elem_type(o) != BT_DOC)
        return error_set(err, ERR_FAILED_TO_PARSE, "\"o\" field is not an object");
    ret_entry->o = elem_doc(o);
    ret_entry->has_uuid = uuid_from_elem(doc_get_lit(doc, "ui"), &ret_entry->uuid);
    ret_entry->o2 = elem_type(o2) == BT_DOC ? elem_doc(o2) : DOC_NONE;
    if (ret_entry->op != 'c')
        return ns_parse(elem_str(ns), &ret_entry->ns, err);
    const char *dot = memchr(elem_str(ns).data, '.', elem_str(ns).size);
    if (dot == NULL)
        return error_set(err, ERR_INVALID_NAMESPACE, "'%s' is no namespace of a command",
                         elem_str(ns).data);
    Str db = {elem_str(ns).data, (size_t)(dot - elem_str(ns).data)};
    return ns_make(db, STR("$cmd.aggregate"), &ret_entry->ns, err);
}

static ErrCode apply_entry(CommandCtx *ctx, const Entry *entry, Error *err) {
    if (entry->op == 'n')
        return ERR_OK;
    return entry->op == 'c' ? apply_command(ctx, entry, err) : apply_write(ctx, entry, err);
}

static void build_results(DocBuilder *b, uint32_t applied, bool has_failed) {
    build_i32(b, "applied", (int32_t)(applied + has_failed));
    size_t results = build_open_array(b, "results");
    for (uint32_t i = 0; i < applied + has_failed; i++) {
        char name[INDEX_NAME_SIZE];
        build_bool(b, index_name(i, name).data, i < applied);
    }
    build_close(b, results);
}

/* What is left to defaults is what there is: one write after the other, checked as a client's. */
static ErrCode check_options(const ApplyOpsRequest *request, Error *err) {
    if (request->is_atomic)
        return error_set(err, ERR_NOT_IMPLEMENTED, "applyOps does not support allowAtomic: true");
    if (request->mode.size > 0 && !str_is(request->mode, "ApplyOps"))
        return error_set(err, ERR_NOT_IMPLEMENTED,
                         "applyOps does not support oplogApplicationMode: \"%.*s\"",
                         (int)request->mode.size, request->mode.data);
    return ERR_OK;
}

static ErrCode apply_ops_run(CommandCtx *ctx, void *arg, Error *err) {
    const ApplyOpsRequest *request = arg;
    TRY(check_options(request, err));
    Entry *entries = ARENA_ARRAY(cmd_arena(ctx), Entry, request->ops.count + 1);
    for (uint32_t i = 0; i < request->ops.count; i++) {
        TRY(parse_entry(request->ops.docs[i], &entries[i], err));
        entries[i].is_upsert |= request->is_always_upsert;
    }
    for (uint32_t i = 0; i < request->ops.count; i++) {
        ErrCode rc = apply_entry(ctx, &entries[i], err);
        failpoint_hang(FP_APPLY_OPS_PAUSE_BETWEEN);
        if (rc == ERR_OK)
            continue;
        if (exec_is_fatal(rc))
            return rc;
        DocBuilder b = doc_builder_in_arena(cmd_arena(ctx));
        build_results(&b, i, /* has_failed= */ true);
        error_set_extra(err, doc_builder_end(&b).data);
        return rc;
    }
    build_results(ctx->reply, request->ops.count, /* has_failed= */ false);
    return ERR_OK;
}

const CommandSpec CMD_APPLY_OPS = {
    .name = "applyOps",
    .summary = "Runs writes that are given in the form of oplog entries.",
    .flags = CMD_WRITES,
    .request = REQUEST_OF(ApplyOpsRequest, APPLY_OPS_FIELDS),
    .run = apply_ops_run,
};
