/*
 * cmd_get_parameter.c - getParameter: {getParameter: 1, name: 1}, all of them with "*" or
 * {allParameters: true}, with {showDetails: true} also when they can be set.
 */
#include "commands/core/command.h"
#include "commands/core/command_service.h"
#include "params/params.h"

typedef struct GetParameterRequest {
    Elem get_parameter;
} GetParameterRequest;

typedef struct Wanted {
    bool is_all;
    bool is_detailed;
} Wanted;

static ErrCode parse_wanted(Elem elem, Wanted *ret_wanted, Error *err) {
    if (elem_type(elem) == BT_STRING) {
        ret_wanted->is_all = str_is(elem_str(elem), "*");
        return ERR_OK;
    }
    if (elem_type(elem) != BT_DOC)
        return ERR_OK;
    DocIter iter = doc_iter(elem_doc(elem));
    Elem member;
    while (doc_iter_next(&iter, &member)) {
        if (elem_name_is(member, STR("allParameters")))
            ret_wanted->is_all = elem_is_truthy(member);
        else if (elem_name_is(member, STR("showDetails")))
            ret_wanted->is_detailed = elem_is_truthy(member);
        else
            return error_set(err, (ErrCode)LOCATION_UNKNOWN_FIELD,
                             "BSON field 'getParameter.%s' is an unknown field.",
                             elem_name(member));
    }
    return ERR_OK;
}

static void build_parameter(CommandCtx *ctx, ParamId id, const Wanted *wanted) {
    DocBuilder *b = ctx->reply;
    const ParamSpec *spec = param_spec(id);
    if (!wanted->is_detailed) {
        param_build(ctx->service, id, spec->name, b);
        return;
    }
    size_t opened = build_open_doc(b, spec->name);
    param_build(ctx->service, id, "value", b);
    build_bool(b, "settableAtRuntime", (spec->flags & PARAM_RUNTIME) != 0);
    build_bool(b, "settableAtStartup", (spec->flags & PARAM_STARTUP) != 0);
    build_close(b, opened);
}

static ErrCode get_parameter_run(CommandCtx *ctx, void *arg, Error *err) {
    const GetParameterRequest *request = arg;
    Wanted wanted = {0};
    TRY(parse_wanted(request->get_parameter, &wanted, err));
    bool has_test = param_bool(ctx->service, PARAM_ENABLE_TEST_COMMANDS);
    uint32_t count = 0;
    for (int i = 0; i < PARAM_COUNT; i++) {
        const ParamSpec *spec = param_spec((ParamId)i);
        if ((spec->flags & PARAM_TEST) != 0 && !has_test)
            continue;
        if (!wanted.is_all && !elem_is_present(doc_get(ctx->body, str_from(spec->name))))
            continue;
        build_parameter(ctx, (ParamId)i, &wanted);
        count++;
    }
    if (count == 0)
        return error_set(err, ERR_INVALID_OPTIONS, "no option found to get");
    return ERR_OK;
}

static const FieldSpec GET_PARAMETER_FIELDS[] = {
    {"getParameter", FIELD_ELEM, FIELD_REQUIRED, offsetof(GetParameterRequest, get_parameter)},
};

const CommandSpec CMD_GET_PARAMETER = {
    .name = "getParameter",
    .summary = "Shows server parameters.",
    .flags = CMD_ADMIN_ONLY | CMD_LOOSE,
    .request = REQUEST_OF(GetParameterRequest, GET_PARAMETER_FIELDS),
    .run = get_parameter_run,
};
