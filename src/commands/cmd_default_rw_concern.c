/* cmd_default_rw_concern.c - getDefaultRWConcern and setDefaultRWConcern: of a replica set,
 * or on the config server of the whole cluster. Shards have none: routers tell them. */
#include "base/failpoint.h"
#include "base/clock.h"
#include "commands/core/command.h"
#include "commands/core/generic_args.h"
#include "commands/status_sections.h"
#include "default_concerns/default_concerns.h"
#include "repl/repl.h"

enum {
    LOCATION_NOT_ON_STANDALONE = 51300,
    LOCATION_NOT_ON_SHARD = 51301,
};

typedef struct GetRequest {
    bool is_in_memory; /* says what this node goes by, which is as new here */
} GetRequest;

typedef struct DefaultsRequest {
    Elem read_concern;
    Elem write_concern;
} DefaultsRequest;

static ErrCode check_member(CommandCtx *ctx, Error *err) {
    if (service_is_standalone(ctx->service))
        return error_set(err, (ErrCode)LOCATION_NOT_ON_STANDALONE,
                         "'%s' is not supported on standalone nodes.", ctx->spec->name);
    if (ctx->service->role == ROLE_SHARD)
        return error_set(err, (ErrCode)LOCATION_NOT_ON_SHARD,
                         "'%s' is not supported on shard nodes.", ctx->spec->name);
    return ERR_OK;
}

void build_default_concerns(ServiceCtx *service, Doc doc, DocBuilder *b) {
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
    } else if (repl_is_implicit_majority(service->repl)) {
        size_t opened = build_open_doc(b, "defaultWriteConcern");
        build_cstr(b, "w", "majority");
        build_i32(b, "wtimeout", 0);
        build_close(b, opened);
    }
    if (doc_is_present(doc)) {
        build_elem(b, doc_get_lit(doc, "updateOpTime"));
        build_elem(b, doc_get_lit(doc, "updateWallClockTime"));
    }
    build_cstr(b, "defaultWriteConcernSource", elem_is_present(write) ? "global" : "implicit");
    build_cstr(b, "defaultReadConcernSource", elem_is_present(read) ? "global" : "implicit");
    build_date(b, "localUpdateWallClockTime", clock_wall_ms());
}

static ErrCode get_run(CommandCtx *ctx, void *arg, Error *err) {
    const GetRequest *request = arg;
    TRY(check_member(ctx, err));
    Doc doc;
    TRY(default_concerns_read(ctx->op, &doc, err));
    build_default_concerns(ctx->service, doc, ctx->reply);
    if (request->is_in_memory)
        build_bool(ctx->reply, "inMemory", true);
    return ERR_OK;
}

/* {}: none, as if it had never been set. */
static bool is_unset(Elem concern) {
    return elem_type(concern) == BT_DOC && doc_is_empty(elem_doc(concern));
}

static ErrCode check_read_concern(Elem concern, Error *err) {
    if (!elem_is_present(concern) || is_unset(concern))
        return ERR_OK;
    if (elem_type(concern) != BT_DOC)
        return error_set(err, ERR_TYPE_MISMATCH, "defaultReadConcern has to be a document");
    static const char *const USABLE[] = {"local", "available", "majority"};
    static const char *const OTHERS[] = {"linearizable", "snapshot"};
    Elem level = doc_get_lit(elem_doc(concern), "level");
    Str name = elem_type(level) == BT_STRING ? elem_str(level) : STR("");
    bool is_usable = false, is_other = false;
    for (size_t i = 0; i < ARRAY_LEN(USABLE); i++)
        is_usable |= str_is(name, USABLE[i]);
    for (size_t i = 0; i < ARRAY_LEN(OTHERS); i++)
        is_other |= str_is(name, OTHERS[i]);
    if (!is_usable && !is_other && elem_is_present(level))
        return error_set(err, ERR_FAILED_TO_PARSE, "there is no read concern level \"%.*s\"",
                         (int)name.size, name.data);
    if (!is_usable || doc_count(elem_doc(concern)) != 1)
        return error_set(err, ERR_BAD_VALUE,
                         "a default read concern has a level, 'local', 'available' or 'majority', "
                         "and nothing else");
    return ERR_OK;
}

static ErrCode check_given(const CommandCtx *ctx, const DefaultsRequest *request, Error *err) {
    if (!elem_is_present(request->read_concern) && !elem_is_present(request->write_concern))
        return error_set(err, ERR_BAD_VALUE,
                         "At least one of the \"defaultReadConcern\" or \"defaultWriteConcern\" "
                         "fields must be present");
    TRY(check_read_concern(request->read_concern, err));
    if (!elem_is_present(request->write_concern) || is_unset(request->write_concern))
        return ERR_OK;
    if (elem_type(request->write_concern) != BT_DOC)
        return error_set(err, ERR_TYPE_MISMATCH, "defaultWriteConcern has to be a document");
    WriteConcern concern = {0};
    TRY(generic_args_parse_write_concern(ctx, elem_doc(request->write_concern), &concern, err));
    if (!concern.is_w_given)
        return error_set(err, ERR_BAD_VALUE, "The global default write concern needs a 'w'");
    bool is_number = !concern.is_majority && concern.w_tag.size == 0;
    if (is_number && concern.w < 1)
        return error_set(err, ERR_BAD_VALUE, "Unsatisfiable default write concern: w is below 1");
    return ERR_OK;
}

/* The name of a mode of the configuration; "": none. */
static Str mode_of(Elem write) {
    Elem w = elem_type(write) == BT_DOC ? doc_get_lit(elem_doc(write), "w") : ELEM_MISSING;
    bool is_mode = elem_type(w) == BT_STRING && !str_is(elem_str(w), "majority");
    return is_mode ? elem_str(w) : STR("");
}

/* With a wtimeout, also if that is none. */
static void build_write_concern(DocBuilder *b, Doc concern) {
    size_t opened = build_open_doc(b, "defaultWriteConcern");
    build_all(b, concern);
    if (!elem_is_present(doc_get_lit(concern, "wtimeout")))
        build_i32(b, "wtimeout", 0);
    build_close(b, opened);
}

static ErrCode set_run(CommandCtx *ctx, void *arg, Error *err) {
    DefaultsRequest *request = arg;
    TRY(check_member(ctx, err));
    TRY(check_given(ctx, request, err));
    /* It is not subject to the defaults, neither the new nor the old: one that cannot be satisfied
     * could not be changed. */
    if (!ctx->write_concern.is_w_given)
        ctx->write_concern.is_w_given = ctx->write_concern.is_majority = true;
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
        build_write_concern(&b, elem_doc(write));
    build_timestamp(&b, "updateOpTime", oplog_cluster_time(repl_oplog(ctx->service->repl)));
    build_date(&b, "updateWallClockTime", clock_wall_ms());
    Doc doc = doc_builder_end(&b);
    Repl *repl = ctx->service->repl;
    /* Those of a cluster are for its shards, whose modes are not known here. */
    bool is_own = ctx->service->role != ROLE_CONFIG_SERVER;
    TRY(repl_begin_default_concern(repl, is_own ? mode_of(write) : STR(""), err));
    failpoint_hang(FP_HANG_WHILE_SETTING_DEFAULT_RWC);
    ErrCode rc = default_concerns_store(ctx->op, doc, err);
    repl_end_default_concern(repl);
    TRY(rc);
    build_default_concerns(ctx->service, doc, ctx->reply);
    return ERR_OK;
}

static const FieldSpec GET_FIELDS[] = {
    {"inMemory", FIELD_BOOL, FIELD_OPTIONAL, offsetof(GetRequest, is_in_memory)},
};

static const FieldSpec SET_FIELDS[] = {
    {"defaultReadConcern", FIELD_ELEM, FIELD_OPTIONAL, offsetof(DefaultsRequest, read_concern)},
    {"defaultWriteConcern", FIELD_ELEM, FIELD_OPTIONAL, offsetof(DefaultsRequest, write_concern)},
};

const CommandSpec CMD_GET_DEFAULT_RW_CONCERN = {
    .name = "getDefaultRWConcern",
    .summary = "Shows the default read and write concern of a replica set.",
    .flags = CMD_ADMIN_ONLY | CMD_LOOSE,
    .request = REQUEST_OF(GetRequest, GET_FIELDS),
    .run = get_run,
};

const CommandSpec CMD_SET_DEFAULT_RW_CONCERN = {
    .name = "setDefaultRWConcern",
    .summary = "Sets the default read and write concern of a replica set.",
    .flags = CMD_ADMIN_ONLY | CMD_LOOSE | CMD_TAKES_WRITE_CONCERN | CMD_WRITES,
    .request = REQUEST_OF(DefaultsRequest, SET_FIELDS),
    .run = set_run,
};
