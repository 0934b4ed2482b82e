/* cmd_configure_fail_point.c - configureFailPoint and waitForFailPoint, for tests. */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "commands/core/command.h"

typedef struct ConfigureRequest {
    Str name;
    Elem mode;
    Doc data;
} ConfigureRequest;

typedef struct WaitRequest {
    Str name;
    int64_t times_entered;
} WaitRequest;

enum {
    WAIT_POLL_US = 5000,
};

static ErrCode find(Str name, FailpointId *ret_id, Error *err) {
    int id = failpoint_find(name.data);
    if (id < 0)
        return error_set(err, (ErrCode)4, "%.*s not found", (int)name.size, name.data);
    *ret_id = (FailpointId)id;
    return ERR_OK;
}

static ErrCode parse_count(Elem elem, int64_t least, int64_t *ret_count, Error *err) {
    if (!elem_is_number(elem))
        return error_set(err, ERR_TYPE_MISMATCH, "'%s' option to 'mode' must be a number",
                         elem_name(elem));
    *ret_count = elem_as_i64(elem);
    if (*ret_count < least || *ret_count > INT32_MAX)
        return error_set(err, ERR_BAD_VALUE, "'%s' option to 'mode' is out of range",
                         elem_name(elem));
    return ERR_OK;
}

static ErrCode parse_mode(Elem mode, FailpointConfig *config, Error *err) {
    if (elem_type(mode) == BT_STRING) {
        if (str_is(elem_str(mode), "off"))
            config->mode = FAILPOINT_OFF;
        else if (str_is(elem_str(mode), "alwaysOn"))
            config->mode = FAILPOINT_ALWAYS_ON;
        else
            return error_set(err, ERR_BAD_VALUE, "unknown mode: %s", elem_str(mode).data);
        return ERR_OK;
    }
    if (elem_type(mode) != BT_DOC || doc_count(elem_doc(mode)) != 1)
        return error_set(err, ERR_TYPE_MISMATCH,
                         "'mode' must be a string or a document of one field");
    DocIter iter = doc_iter(elem_doc(mode));
    Elem elem;
    doc_iter_next(&iter, &elem);
    if (elem_name_is(elem, STR("times"))) {
        config->mode = FAILPOINT_TIMES;
        TRY(parse_count(elem, 0, &config->count, err));
        if (config->count == 0)
            config->mode = FAILPOINT_OFF;
        return ERR_OK;
    }
    if (elem_name_is(elem, STR("skip"))) {
        config->mode = FAILPOINT_SKIP;
        return parse_count(elem, 0, &config->count, err);
    }
    if (elem_name_is(elem, STR("activationProbability"))) {
        config->mode = FAILPOINT_RANDOM;
        config->probability = elem_is_number(elem) ? elem_as_f64(elem) : -1;
        if (!(config->probability >= 0.0) || !(config->probability <= 1.0))
            return error_set(err, ERR_BAD_VALUE,
                             "activationProbability must be between 0.0 and 1.0");
        return ERR_OK;
    }
    return error_set(err, ERR_BAD_VALUE,
                     "'mode' must be one of 'off', 'alwaysOn', 'times', 'skip' and "
                     "'activationProbability'");
}

static ErrCode configure_run(CommandCtx *ctx, void *arg, Error *err) {
    const ConfigureRequest *request = arg;
    FailpointId id = FP_COUNT;
    TRY(find(request->name, &id, err));
    FailpointConfig config = {0};
    TRY(parse_mode(request->mode, &config, err));
    if (doc_is_present(request->data) && config.mode != FAILPOINT_OFF) {
        config.is_crash = elem_is_truthy(doc_get_lit(request->data, "crash"));
        Elem block = doc_get_lit(request->data, "blockTimeMS");
        config.is_block = elem_is_number(block);
        config.block_ms = config.is_block ? elem_as_i64(block) : 0;
        Elem code = doc_get_lit(request->data, "errorCode");
        config.error_code = elem_is_number(code) ? (ErrCode)elem_as_i64(code) : ERR_OK;
        config.data = doc_copy_heap(request->data);
    }
    LOG_WARN(LOG_COMMAND, 23829, "Set failpoint", LOG_STR("failPointName", failpoint_name(id)),
             LOG_I64("mode", config.mode));
    int64_t count = failpoint_configure(id, &config);
    build_count(ctx->reply, "count", count);
    return ERR_OK;
}

static ErrCode wait_run(CommandCtx *ctx, void *arg, Error *err) {
    const WaitRequest *request = arg;
    FailpointId id = FP_COUNT;
    TRY(find(request->name, &id, err));
    while (failpoint_fired_count(id) < request->times_entered)
        TRY(op_sleep_us(ctx->op, WAIT_POLL_US, err));
    return ERR_OK;
}

static const FieldSpec CONFIGURE_FIELDS[] = {
    {"configureFailPoint", FIELD_STRING, FIELD_REQUIRED, offsetof(ConfigureRequest, name)},
    {"mode", FIELD_ELEM, FIELD_REQUIRED, offsetof(ConfigureRequest, mode)},
    {"data", FIELD_DOC, FIELD_NULL_IS_ABSENT, offsetof(ConfigureRequest, data)},
};

const CommandSpec CMD_CONFIGURE_FAIL_POINT = {
    .name = "configureFailPoint",
    .summary = "Makes a named place in the server fail or wait.",
    .flags = CMD_ADMIN_ONLY | CMD_NEEDS_TEST_COMMANDS,
    .fields = CONFIGURE_FIELDS,
    .field_count = ARRAY_LEN(CONFIGURE_FIELDS),
    .request_size = sizeof(ConfigureRequest),
    .run = configure_run,
};

static const FieldSpec WAIT_FIELDS[] = {
    {"waitForFailPoint", FIELD_STRING, FIELD_REQUIRED, offsetof(WaitRequest, name)},
    {"timesEntered", FIELD_COUNT, FIELD_REQUIRED, offsetof(WaitRequest, times_entered)},
};

const CommandSpec CMD_WAIT_FOR_FAIL_POINT = {
    .name = "waitForFailPoint",
    .summary = "Waits until a failpoint has fired so often since the start.",
    .flags = CMD_ADMIN_ONLY | CMD_NEEDS_TEST_COMMANDS,
    .fields = WAIT_FIELDS,
    .field_count = ARRAY_LEN(WAIT_FIELDS),
    .request_size = sizeof(WaitRequest),
    .run = wait_run,
};
