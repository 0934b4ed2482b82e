/* cmd_list_commands.c - listCommands: what there is, from the specs. */
#include <stdlib.h>
#include <string.h>

#include "commands/core/command.h"
#include "commands/core/command_service.h"

typedef struct ListCommandsRequest {
    Elem list_commands;
} ListCommandsRequest;

typedef struct Specs {
    const CommandSpec **rows;
    size_t count;
} Specs;

/* Those with a leading underscore are for other nodes and for tests, not for clients. */
static void add_spec(void *arg, const CommandSpec *spec, int64_t total, int64_t failed) {
    (void)total, (void)failed;
    Specs *specs = arg;
    if (spec->name[0] != '_')
        specs->rows[specs->count++] = spec;
}

static int compare_names(const void *a, const void *b) {
    return strcmp((*(const CommandSpec *const *)a)->name, (*(const CommandSpec *const *)b)->name);
}

static void build_versions(DocBuilder *b, const char *name, bool has_1, bool has_2) {
    size_t opened = build_open_array(b, name);
    if (has_1)
        build_cstr(b, "0", "1");
    if (has_2)
        build_cstr(b, has_1 ? "1" : "0", "2");
    build_close(b, opened);
}

static void build_command(DocBuilder *b, const CommandSpec *spec) {
    size_t opened = build_open_doc(b, spec->name);
    build_cstr(b, "help", spec->summary);
    build_bool(b, "requiresAuth", (spec->flags & CMD_HANDSHAKE) == 0);
    build_bool(b, "secondaryOk", (spec->flags & CMD_WRITES) == 0);
    build_bool(b, "adminOnly", (spec->flags & CMD_ADMIN_ONLY) != 0);
    build_versions(b, "apiVersions", (spec->flags & CMD_API_V1) != 0,
                   (spec->flags & CMD_API_V2) != 0);
    build_versions(b, "deprecatedApiVersions", (spec->flags & CMD_API_V1_DEPRECATED) != 0,
                   (spec->flags & CMD_API_V2_DEPRECATED) != 0);
    build_close(b, opened);
}

static ErrCode list_commands_run(CommandCtx *ctx, void *request, Error *err) {
    (void)request, (void)err;
    CommandService *service = ctx->service->commands;
    Specs specs = {.rows =
                       ARENA_ARRAY(cmd_arena(ctx), const CommandSpec *, command_count(service))};
    command_for_each(service, add_spec, &specs);
    qsort(specs.rows, specs.count, sizeof(*specs.rows), compare_names);
    size_t opened = build_open_doc(ctx->reply, "commands");
    for (size_t i = 0; i < specs.count; i++)
        build_command(ctx->reply, specs.rows[i]);
    build_close(ctx->reply, opened);
    return ERR_OK;
}

static const FieldSpec LIST_COMMANDS_FIELDS[] = {
    {"listCommands", FIELD_ELEM, FIELD_REQUIRED, offsetof(ListCommandsRequest, list_commands)},
};

const CommandSpec CMD_LIST_COMMANDS = {
    .name = "listCommands",
    .summary = "Lists all commands.",
    .request = REQUEST_OF(ListCommandsRequest, LIST_COMMANDS_FIELDS),
    .run = list_commands_run,
};
