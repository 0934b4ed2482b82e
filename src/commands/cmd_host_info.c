/* cmd_host_info.c - hostInfo: the machine under the server. */
#include <stdio.h>
#include <string.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>

#include "base/clock.h"
#include "base/thread.h"
#include "commands/core/command.h"
#include "params/params.h"

typedef struct HostInfoRequest {
    Elem host_info;
} HostInfoRequest;

/* "Debian GNU/Linux 12 (bookworm)" of /etc/os-release. */
static void read_os_name(char *out, size_t size) {
    snprintf(out, size, "Linux");
    FILE *file = fopen("/etc/os-release", "re");
    if (file == NULL)
        return;
    char line[256];
    while (fgets(line, sizeof(line), file) != NULL) {
        char name[200];
        if (sscanf(line, "PRETTY_NAME=\"%199[^\"]", name) == 1)
            snprintf(out, size, "%s", name);
    }
    fclose(file);
}

static ErrCode host_info_run(CommandCtx *ctx, void *request, Error *err) {
    (void)request, (void)err;
    DocBuilder *b = ctx->reply;
    struct utsname uts;
    struct sysinfo info = {0};
    uname(&uts);
    sysinfo(&info);
    int64_t memory_mb = (int64_t)info.totalram * info.mem_unit / (1024 * 1024);
    char os_name[256];
    read_os_name(os_name, sizeof(os_name));

    size_t system = build_open_doc(b, "system");
    build_date(b, "currentTime", clock_wall_ms());
    build_cstr(b, "hostname", server_setup(ctx->service)->host);
    build_i32(b, "cpuAddrSize", 64);
    build_i64(b, "memSizeMB", memory_mb);
    build_i64(b, "memLimitMB", memory_mb);
    build_i32(b, "numCores", thread_cpu_count());
    build_i32(b, "numCoresAvailableToProcess", thread_cpu_count());
    build_cstr(b, "cpuArch", uts.machine);
    build_bool(b, "numaEnabled", false);
    build_close(b, system);
    size_t os = build_open_doc(b, "os");
    build_cstr(b, "type", uts.sysname);
    build_cstr(b, "name", os_name);
    build_cstr(b, "version", uts.release);
    build_close(b, os);
    size_t extra = build_open_doc(b, "extra");
    build_cstr(b, "kernelVersion", uts.release);
    build_cstr(b, "versionString", uts.version);
    build_close(b, extra);
    return ERR_OK;
}

static const FieldSpec HOST_INFO_FIELDS[] = {
    {"hostInfo", FIELD_ELEM, FIELD_REQUIRED, offsetof(HostInfoRequest, host_info)},
};

const CommandSpec CMD_HOST_INFO = {
    .name = "hostInfo",
    .summary = "Tells about the machine the server runs on.",
    .request = REQUEST_OF(HostInfoRequest, HOST_INFO_FIELDS),
    .run = host_info_run,
};
