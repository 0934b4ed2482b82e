/* cmd_build_info.c - buildInfo: the version we answer as. */
#include "commands/build_info.h"
#include "commands/core/command.h"
#include "commands/version.h"

#if defined(__SANITIZE_ADDRESS__)
#define SANITIZER_FLAGS "-fsanitize=address"
#elif defined(__SANITIZE_THREAD__)
#define SANITIZER_FLAGS "-fsanitize=thread"
#else
#define SANITIZER_FLAGS ""
#endif

typedef struct BuildInfoRequest {
    Elem build_info;
} BuildInfoRequest;

static ErrCode build_info_run(CommandCtx *ctx, void *request, Error *err) {
    (void)request, (void)err;
    build_build_info(ctx->reply);
    return ERR_OK;
}

void build_build_info(DocBuilder *b) {
    build_cstr(b, "version", COMPAT_VERSION);
    build_cstr(b, "gitVersion", SHERD_GIT_VERSION);
    build_close(b, build_open_array(b, "modules"));
    build_cstr(b, "allocator", "system");
    build_cstr(b, "javascriptEngine", "none");
    build_cstr(b, "sysInfo", "deprecated");
    size_t version = build_open_array(b, "versionArray");
    build_i32(b, "0", COMPAT_VERSION_MAJOR);
    build_i32(b, "1", COMPAT_VERSION_MINOR);
    build_i32(b, "2", COMPAT_VERSION_PATCH);
    build_i32(b, "3", 0);
    build_close(b, version);
    size_t openssl = build_open_doc(b, "openssl");
    build_cstr(b, "running", "disabled");
    build_close(b, openssl);
    size_t environment = build_open_doc(b, "buildEnvironment");
    build_cstr(b, "cc", "cc");
    build_cstr(b, "ccflags", SANITIZER_FLAGS);
    build_cstr(b, "distarch", "x86_64");
    build_cstr(b, "target_arch", "x86_64");
    build_cstr(b, "target_os", "linux");
    build_close(b, environment);
    build_cstr(b, "sherdVersion", SHERD_VERSION);
    build_i32(b, "bits", 64);
    build_bool(b, "debug", false);
    build_i32(b, "maxBsonObjectSize", BSON_DOC_SIZE_MAX);
    size_t engines = build_open_array(b, "storageEngines");
    build_cstr(b, "0", "wiredTiger");
    build_close(b, engines);
}

static const FieldSpec BUILD_INFO_FIELDS[] = {
    {"buildInfo", FIELD_ELEM, FIELD_OPTIONAL, offsetof(BuildInfoRequest, build_info)},
};

const CommandSpec CMD_BUILD_INFO = {
    .name = "buildInfo",
    .alias = "buildinfo",
    .summary = "Tells the version of the server.",
    .request = REQUEST_OF(BuildInfoRequest, BUILD_INFO_FIELDS),
    .run = build_info_run,
};
