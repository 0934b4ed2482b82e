/* cmd_set_parameter.c - setParameter: {setParameter: 1, name: value, ...}. */
#include "base/log.h"
#include "bson/json.h"
#include "commands/core/command.h"
#include "commands/core/command_service.h"
#include "params/params.h"
#include "commands/support.h"

typedef struct SetParameterRequest {
    Elem set_parameter;
} SetParameterRequest;

/* Arguments that every command may have are no parameters. */
static bool is_generic(Elem elem) {
    static const char *const NAMES[] = {
        "lsid",        "comment",    "maxTimeMS", "writeConcern",
        "readConcern", "apiVersion", "apiStrict", "apiDeprecationErrors",
        "txnNumber"};
    if (elem_name(elem)[0] == '$')
        return true;
    for (size_t i = 0; i < ARRAY_LEN(NAMES); i++)
        if (str_is(elem_name_str(elem), NAMES[i]))
            return true;
    return false;
}

static ErrCode find_settable(CommandCtx *ctx, Elem elem, ParamId *ret_id, Error *err) {
    bool is_known = param_find(elem_name_str(elem), ret_id);
    if (is_known && (param_spec(*ret_id)->flags & PARAM_TEST) != 0)
        is_known = param_bool(ctx->service, PARAM_ENABLE_TEST_COMMANDS);
    if (!is_known)
        return error_set(
            err, ERR_INVALID_OPTIONS,
            "attempted to set unrecognized parameter [%s], use help:true to see options ",
            elem_name(elem));
    if ((param_spec(*ret_id)->flags & PARAM_RUNTIME) == 0)
        return error_set(err, ERR_ILLEGAL_OPERATION, "not allowed to change [%s] at runtime",
                         elem_name(elem));
    return ERR_OK;
}

static void log_change(CommandCtx *ctx, Elem elem) {
    Buffer text;
    buffer_init_arena(&text, cmd_arena(ctx), 256, LOG_LINE_BYTES_MAX);
    json_append_elem(&text, elem, LOG_LINE_BYTES_MAX / 2);
    buffer_append_byte(&text, '\0');
    LOG_INFO(LOG_COMMAND, 23435, "Successfully set parameter",
             LOG_STR("parameterName", elem_name(elem)),
             LOG_JSON("newValue", (const char *)text.data));
}

static ErrCode set_parameter_run(CommandCtx *ctx, void *request, Error *err) {
    (void)request;
    ParamId id;
    uint32_t count = 0;
    for (int pass = 0; pass < 2; pass++) { /* all names are checked before anything is set */
        DocIter iter = doc_iter(ctx->body);
        Elem elem;
        doc_iter_next(&iter, &elem); /* setParameter itself */
        while (doc_iter_next(&iter, &elem)) {
            if (is_generic(elem))
                continue;
            TRY(find_settable(ctx, elem, &id, err));
            if (pass == 0)
                continue;
            if (count++ == 0)
                param_build(ctx->service, id, "was", ctx->reply);
            TRY(param_set_elem(ctx->service, id, elem, err));
            log_change(ctx, elem);
        }
    }
    if (count == 0)
        return error_set(err, ERR_INVALID_OPTIONS,
                         "no option found to set, use help:true to see options ");
    return ERR_OK;
}

static const FieldSpec SET_PARAMETER_FIELDS[] = {
    {"setParameter", FIELD_ELEM, FIELD_REQUIRED, offsetof(SetParameterRequest, set_parameter)},
};

const CommandSpec CMD_SET_PARAMETER = {
    .name = "setParameter",
    .summary = "Sets server parameters.",
    .flags = CMD_ADMIN_ONLY | CMD_LOOSE,
    .request = REQUEST_OF(SetParameterRequest, SET_PARAMETER_FIELDS),
    .run = set_parameter_run,
};
