/* cmd_default_rw_concern.c - getDefaultRWConcern and setDefaultRWConcern, of a replica set. */
#include "base/clock.h"
#include "commands/core/command.h"
#include "default_concerns/default_concerns.h"
#include "repl/repl.h"

enum {
    LOCATION_NOT_ON_STANDALONE = 51300,
};

typedef struct DefaultsRequest {
    Elem read_concern;
    Elem write_concern;
} DefaultsRequest;

static ErrCode check_member(CommandCtx *ctx, Error *err) {
    if (service_is_member(ctx->service))
        return ERR_OK;
    return error_set(err, (ErrCode)LOCATION_NOT_ON_STANDALONE,
                     "'%s' is not supported on standalone nodes.", ctx->spec->name);
}

static void build_defaults(CommandCtx *ctx, Doc doc) {
    DocBuilder *b = ctx->reply;
    Elem read = doc_is_present(doc) ? doc_get_lit(doc, "defaultReadConcern") : ELEM_MISSING;
    Elem write = doc_is_present(doc) ? doc_get_lit(doc, "defaultWriteConcern") : ELEM_MISSING;
    if (elem_is_present(read)) {
        build_elem(b, read);
    } else {
        size_t opened = build_open_doc(b, "defaultReadConcern");
        build_cstr(b, "level", "local");
        build_close(b, opened);
    }
    if (elem_is_present(write)) {
        build_elem(b, write);
    } else {
        size_t opened = build_open_doc(b, "defaultWriteConcern");
        if (repl_is_implicit_majority(ctx->service->repl))
            build_cstr(b, "w", "majority");
        else
            build_i32(b, "w", 1);
        build_i32(b, "wtimeout", 0);
        build_close(b, opened);
    }
    build_cstr(b, "defaultWriteConcernSource", elem_is_present(write) ? "global" : "implicit");
    build_cstr(b, "defaultReadConcernSource", elem_is_present(read) ? "global" : "implicit");
    build_date(b, "localUpdateWallClockTime", clock_wall_ms());
}

static ErrCode get_run(CommandCtx *ctx, void *request, Error *err) {
    (void)request;
    TRY(check_member(ctx, err));
    Doc doc;
    TRY(default_concerns_read(ctx->op, &doc, err));
    build_defaults(ctx, doc);
    return ERR_OK;
}

/* {}: none, as if it had never been set. */
static bool is_unset(Elem concern) {
    return elem_type(concern) == BT_DOC && doc_is_empty(elem_doc(concern));
}

static ErrCode check_given(const DefaultsRequest *request, Error *err) {
    if (!elem_is_present(request->read_concern) && !elem_is_present(request->write_concern))
        return error_set(err, ERR_BAD_VALUE,
                         "At least one of the \"defaultReadConcern\" or \"defaultWriteConcern\" "
                         "fields must be present");
    if (elem_is_present(request->read_concern) && !is_unset(request->read_concern)) {
        Elem level = elem_type(request->read_concern) == BT_DOC
                         ? doc_get_lit(elem_doc(request->read_concern), "level")
                         : ELEM_MISSING;
        bool is_known = elem_type(level) == BT_STRING &&
                        (str_is(elem_str(level), "local") || str_is(elem_str(level), "available") ||
                         str_is(elem_str(level), "majority"));
        if (!is_known)
            return error_set(err, ERR_BAD_VALUE,
                             "level: only 'local', 'available' or 'majority' can be a default");
    }
    if (!elem_is_present(request->write_concern) || is_unset(request->write_concern))
        return ERR_OK;
    if (elem_type(request->write_concern) != BT_DOC)
        return error_set(err, ERR_TYPE_MISMATCH, "defaultWriteConcern has to be a document");
    Elem w = doc_get_lit(elem_doc(request->write_concern), "w");
    if (elem_is_number(w) && elem_as_i64(w) < 1)
        return error_set(err, ERR_BAD_VALUE, "Unsatisfiable default write concern: w is below 1");
    if (!elem_is_number(w) && elem_type(w) != BT_STRING)
        return error_set(err, ERR_BAD_VALUE, "The global default write concern needs a 'w'");
    return ERR_OK;
}

static ErrCode set_run(CommandCtx *ctx, void *arg, Error *err) {
    DefaultsRequest *request = arg;
    TRY(check_member(ctx, err));
    TRY(check_given(request, err));
    Doc before;
    TRY(default_concerns_read(ctx->op, &before, err));
    Elem read = request->read_concern, write = request->write_concern;
    if (doc_is_present(before) && !elem_is_present(read))
        read = doc_get_lit(before, "defaultReadConcern");
    if (doc_is_present(before) && !elem_is_present(write))
        write = doc_get_lit(before, "defaultWriteConcern");
    if (doc_is_present(before) && is_unset(write) &&
        elem_is_present(doc_get_lit(before, "defaultWriteConcern")))
        return error_set(err, ERR_ILLEGAL_OPERATION,
                         "The global default write concern cannot be unset once it is set.");
    DocBuilder b = doc_builder_in_arena(cmd_arena(ctx));
    build_cstr(&b, "_id", "ReadWriteConcernDefaults");
    if (elem_is_present(read) && !is_unset(read))
        build_elem_as(&b, STR("defaultReadConcern"), read);
    if (elem_is_present(write) && !is_unset(write))
        build_elem_as(&b, STR("defaultWriteConcern"), write);
    build_timestamp(&b, "updateOpTime", oplog_cluster_time(repl_oplog(ctx->service->repl)));
    build_date(&b, "updateWallClockTime", clock_wall_ms());
    Doc doc = doc_builder_end(&b);
    TRY(default_concerns_store(ctx->op, doc, err));
    build_defaults(ctx, doc);
    return ERR_OK;
}

static const FieldSpec SET_FIELDS[] = {
    {"defaultReadConcern", FIELD_ELEM, FIELD_OPTIONAL, offsetof(DefaultsRequest, read_concern)},
    {"defaultWriteConcern", FIELD_ELEM, FIELD_OPTIONAL, offsetof(DefaultsRequest, write_concern)},
};

const CommandSpec CMD_GET_DEFAULT_RW_CONCERN = {
    .name = "getDefaultRWConcern",
    .summary = "Shows the default read and write concern of a replica set.",
    .flags = CMD_ADMIN_ONLY | CMD_LOOSE,
    .run = get_run,
};

const CommandSpec CMD_SET_DEFAULT_RW_CONCERN = {
    .name = "setDefaultRWConcern",
    .summary = "Sets the default read and write concern of a replica set.",
    .flags = CMD_ADMIN_ONLY | CMD_LOOSE | CMD_TAKES_WRITE_CONCERN | CMD_WRITES,
    .request = REQUEST_OF(DefaultsRequest, SET_FIELDS),
    .run = set_run,
};
