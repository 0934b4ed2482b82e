#include "commands/core/fail_command.h"

#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/failpoint.h"

static bool applies(CommandCtx *ctx, Doc data);
static void set_extra(Error *err, Doc data);

ErrCode fail_command_check(CommandCtx *ctx, Error *err) {
    if (LIKELY(!atomic_load_explicit(&failpoint_armed[FP_FAIL_COMMAND], memory_order_relaxed)))
        return ERR_OK;
    FailpointConfig config = failpoint_config(FP_FAIL_COMMAND);
    CLEANUP(xfree_ptr) uint8_t *bytes = config.data;
    if (bytes == NULL)
        return ERR_OK;
    Doc data = {bytes};
    if (!applies(ctx, data))
        return ERR_OK;
    bool is_close = elem_is_truthy(doc_get_lit(data, "closeConnection"));
    bool is_block = elem_is_truthy(doc_get_lit(data, "blockConnection"));
    Elem code = doc_get_lit(data, "errorCode");
    bool has_code = elem_is_number(code);
    bool has_wc_error = elem_type(doc_get_lit(data, "writeConcernError")) == BT_DOC;
    if (has_wc_error && !has_code && !is_close && !is_block)
        return ERR_OK; /* decided after the write */
    if (!failpoint_take_firing(FP_FAIL_COMMAND))
        return ERR_OK;
    if (is_block) {
        int64_t block_ms = elem_as_i64(doc_get_lit(data, "blockTimeMS"));
        TRY(op_sleep_us(ctx->op, clock_us_of_ms(block_ms), err));
    }
    if (is_close) {
        ctx->wire_reply->close_after = true;
        return error_set(err, ERR_SOCKET_EXCEPTION, "failCommand closes the connection");
    }
    if (!has_code)
        return ERR_OK;
    (void)error_set(err, (ErrCode)elem_as_i64(code), "Failing command via 'failCommand' failpoint");
    ctx->has_forced_error = true;
    ctx->has_forced_labels = elem_type(doc_get_lit(data, "errorLabels")) == BT_ARRAY;
    set_extra(err, data);
    return err->code;
}

bool fail_command_write_concern_error(CommandCtx *ctx, ErrCode *ret_code) {
    if (LIKELY(!atomic_load_explicit(&failpoint_armed[FP_FAIL_COMMAND], memory_order_relaxed)))
        return false;
    FailpointConfig config = failpoint_config(FP_FAIL_COMMAND);
    CLEANUP(xfree_ptr) uint8_t *bytes = config.data;
    if (bytes == NULL)
        return false;
    Elem wc = doc_get_lit((Doc){bytes}, "writeConcernError");
    if (elem_type(wc) != BT_DOC || !applies(ctx, (Doc){bytes}) ||
        !failpoint_take_firing(FP_FAIL_COMMAND))
        return false;
    *ret_code = (ErrCode)elem_as_i64(doc_get_lit(elem_doc(wc), "code"));
    build_elem(ctx->reply, wc);
    Elem labels = doc_get_lit((Doc){bytes}, "errorLabels");
    ctx->has_forced_error = true;
    ctx->has_forced_labels = elem_type(labels) == BT_ARRAY;
    if (elem_type(labels) == BT_ARRAY && !doc_is_empty(elem_doc(labels)))
        build_elem(ctx->reply, labels);
    return true;
}

/* The name of the client's application: that of its first hello, also while that is handled. */
static bool is_app(CommandCtx *ctx, Str name) {
    if (ctx->client->app_name != NULL)
        return str_is(name, ctx->client->app_name);
    bool is_hello =
        strcmp(ctx->spec->name, "hello") == 0 || strcmp(ctx->spec->name, "isMaster") == 0;
    Elem told = doc_get_path(ctx->body, "client.application.name");
    return is_hello && elem_type(told) == BT_STRING && str_equal(elem_str(told), name);
}

/* A read of the oplog by another member: it goes on all the time, and would take the failures that
 * are meant for a client. */
static bool is_fetching(CommandCtx *ctx) {
    Elem coll = doc_get_lit(ctx->body, "collection");
    return strcmp(ctx->spec->name, "getMore") == 0 && str_is(ctx->args.db, "local") &&
           elem_type(coll) == BT_STRING && str_is(elem_str(coll), "oplog.rs") &&
           elem_is_present(doc_get_lit(ctx->body, "term"));
}

/* A request of a router or of another node of the cluster: only they know its metadata's time. */
static bool is_of_cluster(const CommandCtx *ctx) {
    return elem_is_present(ctx->args.config_time);
}

static bool applies(CommandCtx *ctx, Doc data) {
    if (strcmp(ctx->spec->name, "configureFailPoint") == 0)
        return false;
    if ((is_fetching(ctx) || is_of_cluster(ctx)) &&
        !elem_is_truthy(doc_get_lit(data, "failInternalCommands")))
        return false;
    Elem app = doc_get_lit(data, "appName");
    if (elem_type(app) == BT_STRING && !is_app(ctx, elem_str(app)))
        return false;
    Elem ns = doc_get_lit(data, "namespace");
    if (elem_type(ns) == BT_STRING) {
        Str want = elem_str(ns);
        Str db = ctx->args.db;
        bool is_same = want.size == db.size + 1 + ctx->ns_coll.size &&
                       memcmp(want.data, db.data, db.size) == 0 &&
                       memcmp(want.data + db.size + 1, ctx->ns_coll.data, ctx->ns_coll.size) == 0;
        if (!is_same)
            return false;
    }
    Elem commands = doc_get_lit(data, "failCommands");
    if (elem_type(commands) != BT_ARRAY)
        return false;
    DocIter iter = doc_iter(elem_doc(commands));
    Elem name;
    while (doc_iter_next(&iter, &name)) {
        if (elem_type(name) != BT_STRING)
            continue;
        if (str_is(elem_str(name), ctx->spec->name) ||
            (ctx->spec->alias != NULL && str_is(elem_str(name), ctx->spec->alias)))
            return true;
    }
    return false;
}

/* Labels may be any text here, so they are passed on as they are. */
static void set_extra(Error *err, Doc data) {
    Elem labels = doc_get_lit(data, "errorLabels"), extra = doc_get_lit(data, "errorExtraInfo");
    if (elem_type(labels) != BT_ARRAY && elem_type(extra) != BT_DOC)
        return;
    Arena arena;
    arena_init(&arena, 512);
    DocBuilder b = doc_builder_in_arena(&arena);
    if (elem_type(extra) == BT_DOC)
        build_all(&b, elem_doc(extra));
    if (elem_type(labels) == BT_ARRAY && !doc_is_empty(elem_doc(labels)))
        build_elem(&b, labels);
    error_set_extra(err, doc_builder_end(&b).data);
    arena_done(&arena);
}
