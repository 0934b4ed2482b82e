/*
 * cmd_get_diagnostic_data.c - getDiagnosticData: what support looks at first, in one document.
 *
 * MongoDB gathers such documents each second and gives the newest; here it is made when it is asked
 * for, with the commands of the node itself.
 */
#include "base/clock.h"
#include "commands/core/command_service.h"
#include "commands/core/generic_args.h"

typedef struct DiagnosticRequest {
    Elem get_diagnostic_data;
} DiagnosticRequest;

static const FieldSpec DIAGNOSTIC_FIELDS[] = {
    {"getDiagnosticData", FIELD_ELEM, FIELD_REQUIRED,
     offsetof(DiagnosticRequest, get_diagnostic_data)},
};

static ErrCode add_reply_of(CommandCtx *ctx, const char *command, Error *err) {
    const CommandSpec *spec = command_find(ctx->service->commands, str_from(command));
    if (spec == NULL)
        return ERR_OK;
    DocBuilder body = doc_builder_in_arena(cmd_arena(ctx));
    build_i32(&body, command, 1);
    CommandCtx inner = *ctx;
    inner.spec = spec;
    inner.body = doc_builder_end(&body);
    void *request;
    TRY(command_parse(&inner, &request, err));
    size_t opened = build_open_doc(ctx->reply, command);
    build_date(ctx->reply, "start", clock_wall_ms());
    TRY(spec->run(&inner, request, err));
    build_date(ctx->reply, "end", clock_wall_ms());
    build_close(ctx->reply, opened);
    return ERR_OK;
}

static ErrCode get_diagnostic_data_run(CommandCtx *ctx, void *arg, Error *err) {
    (void)arg;
    static const struct {
        const char *command;
        bool is_of_members;
    } ROWS[] = {{"serverStatus", false}, {"replSetGetStatus", true}, {"connPoolStats", false}};
    size_t data = build_open_doc(ctx->reply, "data");
    build_date(ctx->reply, "start", clock_wall_ms());
    for (size_t i = 0; i < ARRAY_LEN(ROWS); i++) {
        if (!ROWS[i].is_of_members || service_is_member(ctx->service))
            TRY(add_reply_of(ctx, ROWS[i].command, err));
    }
    build_date(ctx->reply, "end", clock_wall_ms());
    build_close(ctx->reply, data);
    return ERR_OK;
}

const CommandSpec CMD_GET_DIAGNOSTIC_DATA = {
    .name = "getDiagnosticData",
    .summary = "Shows the statistics of several commands at once.",
    .flags = CMD_ADMIN_ONLY,
    .request = REQUEST_OF(DiagnosticRequest, DIAGNOSTIC_FIELDS),
    .run = get_diagnostic_data_run,
};
