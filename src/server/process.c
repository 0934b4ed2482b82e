#include "server/process.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/failpoint.h"
#include "base/list.h"
#include "base/log.h"
#include "bson/json.h"
#include "commands/fail_point_config.h"
#include "commands/node_commands.h"
#include "commands/version.h"
#include "params/params.h"
#include "query/expr/time_zone.h"
#include "server/exit_codes.h"
#include "transport/client.h"
#include "transport/server.h"

/* Of the names by which --setParameter sets failpoints. */
#define FAIL_POINT_PREFIX "failpoint."

enum {
    /* Requests that run when the stop begins may go on for so long; then they are killed. */
    STOP_GRACE_US = 1000 * 1000,
    OPEN_FILES_WANTED = 64000,
};

static ErrCode prepare(Process *process, const char *process_name, Error *err);
static ErrCode begin(Process *process, Error *err);
static SignalEvent wait_for_stop(Process *process);
static void tell_ready(int ready_fd);

static void request_shutdown(ServiceCtx *service) {
    signals_request_stop(&CONTAINER_OF(service, Process, service)->signals);
}

int process_run(Process *process, const ProgramSpec *program, const Options *options,
                const char *process_name, int ready_fd) {
    process->options = options;
    process->start_ms = clock_wall_ms();
    arena_init(&process->arena, ARENA_CHUNK_SIZE_DEFAULT);
    CLEANUP(error_reset) Error err = {0};
    int exit_code = EXIT_CODE_BAD_OPTIONS;
    SignalEvent event = SIGNAL_EVENT_STOP;
    log_set_thread_name("initandlisten");
    ServiceCtx *service = &process->service;
    service->role = program->role(options);
    service->start_wall_ms = clock_wall_ms();
    service->start_mono_us = clock_mono_us();
    service->request_shutdown = request_shutdown;
    service->params = server_params_new(program->param_hooks);

    ErrCode rc = prepare(process, process_name, &err);
    if (rc == ERR_OK) {
        exit_code = EXIT_CODE_STARTUP;
        rc = begin(process, &err);
    }
    if (rc == ERR_OK)
        rc = program->start(process, &exit_code, &err);
    if (rc == ERR_OK) {
        exit_code = EXIT_CODE_CLEAN;
        if (ready_fd >= 0)
            tell_ready(ready_fd);
        event = wait_for_stop(process);
    } else {
        LOG_ERROR(LOG_CONTROL, 20557, "DBException in initAndListen, terminating",
                  LOG_STR("error", error_message(&err)));
        fprintf(stderr, "%s: %s\n", options->program, error_message(&err));
    }
    /* Who sends the first signal cannot know that a client has asked for the stop already. */
    signals_arm_kill(/* spared= */ event == SIGNAL_EVENT_REQUEST ? 1 : 0);
    program->stop(process);
    client_pool_free(TAKE_PTR(service->clients));
    if (service->ops != NULL)
        op_registry_free(TAKE_PTR(service->ops));
    if (process->has_pid_file)
        unlink(option_text(options, OPTION_PID_FILE));
    LOG_INFO(LOG_CONTROL, 23138, "Shutting down", LOG_I64("exitCode", exit_code));
    server_params_free(service->params);
    signals_close(&process->signals);
    arena_done(&process->arena);
    return exit_code;
}

static void tell_ready(int ready_fd) {
    dup2(STDOUT_FILENO, STDERR_FILENO); /* the terminal belongs to others from now on */
    if (write(ready_fd, "", 1) != 1)
        LOG_WARN(LOG_CONTROL, 7200401, "The starting process is gone");
    close(ready_fd);
}

/* ---- options ---- */

/* A machine without the database can do without, until somebody names a zone; a directory that was
 * asked for must be there. */
static ErrCode use_time_zones(const Options *options, Error *err) {
    const char *directory = option_text(options, OPTION_TIME_ZONE_INFO);
    if (option_is_set(options, OPTION_TIME_ZONE_INFO) && access(directory, R_OK | X_OK) != 0)
        return error_set(err, ERR_BAD_VALUE, "--timeZoneInfo '%s' cannot be read", directory);
    time_zone_set_directory(directory);
    return ERR_OK;
}

static ErrCode parse_compressors(const char *text, uint32_t *ret_bits, Error *err) {
    uint32_t bits = 0;
    if (strcmp(text, "disabled") == 0)
        text = "";
    while (*text != '\0') {
        Str name = {text, strcspn(text, ",")};
        WireCompressor compressor = wire_compressor_from_name(name);
        if (compressor == WIRE_COMPRESSOR_NONE || compressor == WIRE_COMPRESSOR_NOOP)
            return error_set(err, ERR_BAD_VALUE,
                             "Invalid network message compressor specified: '%.*s'", (int)name.size,
                             name.data);
        bits |= WIRE_COMPRESSOR_BIT(compressor);
        text += name.size + (text[name.size] == ',');
    }
    *ret_bits = bits;
    return ERR_OK;
}

static ErrCode fill_setup(Process *process, const char *process_name, Error *err) {
    ServerSetup *setup = server_setup(&process->service);
    const Options *options = process->options;
    char name[256];
    if (gethostname(name, sizeof(name)) != 0)
        snprintf(name, sizeof(name), "localhost");
    name[sizeof(name) - 1] = '\0';
    snprintf(setup->host, sizeof(setup->host), "%s:%d", name,
             (int)option_i64(options, OPTION_PORT));
    setup->process = process_name;
    setup->is_log_reopened = strcmp(option_text(options, OPTION_LOG_ROTATE), "reopen") == 0;
    setup->argv = options_argv_doc(options, &process->arena);
    setup->parsed = options_parsed_doc(options, &process->arena);
    TRY(use_time_zones(options, err));
    return parse_compressors(option_text(options, OPTION_COMPRESSORS), &setup->compressors, err);
}

static ErrCode set_parameters(Process *process, Error *err) {
    const Options *options = process->options;
    ServerParams *params = process->service.params;
    param_set_number(params, PARAM_SYNCDELAY, option_f64(options, OPTION_SYNCDELAY));
    param_set_number(params, PARAM_JOURNAL_COMMIT_INTERVAL,
                     (double)option_i64(options, OPTION_JOURNAL_COMMIT_INTERVAL));
    param_set_number(params, PARAM_LOG_LEVEL, (double)option_i64(options, OPTION_VERBOSE));
    param_set_number(params, PARAM_QUIET, option_bool(options, OPTION_QUIET));
    param_set_number(params, PARAM_NO_TABLE_SCAN, option_bool(options, OPTION_NO_TABLE_SCAN));
    const OptionValue *list = &options->values[OPTION_SET_PARAMETER];
    const char *needs_tests = NULL;
    for (uint32_t i = 0; i < list->list_count; i++) {
        const char *pair = list->list[i];
        size_t size = strcspn(pair, "=");
        if (pair[size] == '\0')
            return error_set(err, ERR_BAD_VALUE,
                             "Illegal option assignment: \"%s\" (--setParameter takes name=value)",
                             pair);
        const char *name = arena_strndup(&process->arena, pair, size);
        ParamId id;
        if (strncmp(name, FAIL_POINT_PREFIX, sizeof(FAIL_POINT_PREFIX) - 1) == 0) {
            TRY(fail_point_configure_text(name + sizeof(FAIL_POINT_PREFIX) - 1, pair + size + 1,
                                          err));
            needs_tests = name;
        } else {
            TRY(param_set_text(params, name, pair + size + 1, err));
            if (param_find(str_from(name), &id) && (param_spec(id)->flags & PARAM_TEST) != 0)
                needs_tests = name;
        }
    }
    if (needs_tests != NULL && !param_bool(&process->service, PARAM_ENABLE_TEST_COMMANDS))
        return error_set(err, ERR_BAD_VALUE,
                         "--setParameter '%s' can only be used with enableTestCommands=1",
                         needs_tests);
    return ERR_OK;
}

/* Data, logs and journals are nobody else's business unless it is said otherwise. */
static ErrCode set_umask(const Process *process, Error *err) {
    const ServiceCtx *service = &process->service;
    int64_t digits = param_i64(service, PARAM_PROCESS_UMASK);
    if (param_bool(service, PARAM_HONOR_SYSTEM_UMASK)) {
        if (digits != (int64_t)param_spec(PARAM_PROCESS_UMASK)->initial)
            return error_set(err, ERR_BAD_VALUE,
                             "processUmask has no meaning with honorSystemUmask=true: give one");
        return ERR_OK;
    }
    mode_t mask = 0;
    for (int64_t place = 1; digits > 0; digits /= 10, place *= 8) {
        if (digits % 10 > 7)
            return error_set(err, ERR_BAD_VALUE, "processUmask has to be octal digits");
        mask += (mode_t)(digits % 10 * place);
    }
    umask(mask);
    return ERR_OK;
}

static ErrCode add_address(Process *process, const char *address, Error *err) {
    if (process->address_count == BIND_ADDRESSES_MAX)
        return error_set(err, ERR_BAD_VALUE, "more than %d addresses in --bind_ip",
                         BIND_ADDRESSES_MAX);
    if (address[0] == '/')
        return error_set(err, ERR_BAD_VALUE,
                         "--bind_ip does not take paths of unix sockets (\"%s\"); use "
                         "--unixSocketPrefix",
                         address);
    if (strchr(address, ':') != NULL && !option_bool(process->options, OPTION_IPV6))
        return error_set(err, ERR_BAD_VALUE, "the address \"%s\" of --bind_ip needs --ipv6",
                         address);
    for (uint32_t i = 0; i < process->address_count; i++)
        if (strcmp(process->addresses[i], address) == 0)
            return ERR_OK;
    process->addresses[process->address_count++] = address;
    return ERR_OK;
}

static ErrCode bind_addresses(Process *process, Error *err) {
    const Options *options = process->options;
    bool is_ipv6 = option_bool(options, OPTION_IPV6);
    const char *text = option_text(options, OPTION_BIND_IP);
    if (option_bool(options, OPTION_BIND_IP_ALL))
        text = "*";
    else if (text == NULL || *text == '\0')
        text = "localhost";
    while (*text != '\0') {
        size_t size = strcspn(text, ",");
        char *one = arena_strndup(&process->arena, text, size);
        text += size + (text[size] == ',');
        one += strspn(one, " ");
        one[strcspn(one, " ")] = '\0';
        if (*one == '\0')
            continue;
        bool is_all = strcmp(one, "*") == 0;
        if (is_all || strcmp(one, "localhost") == 0) {
            TRY(add_address(process, is_all ? "0.0.0.0" : "127.0.0.1", err));
            if (is_ipv6)
                TRY(add_address(process, is_all ? "::" : "::1", err));
        } else {
            TRY(add_address(process, one, err));
        }
    }
    return ERR_OK;
}

static ErrCode read_network_options(Process *process, Error *err) {
    const char *permissions = option_text(process->options, OPTION_FILE_PERMISSIONS);
    char *end;
    unsigned long bits = strtoul(permissions, &end, 8);
    if (*permissions == '\0' || *end != '\0' || bits == 0 || bits > 0777)
        return error_set(err, ERR_BAD_VALUE,
                         "--filePermissions has to be an octal number from 1 to 0777, not \"%s\"",
                         permissions);
    process->unix_permissions = (uint32_t)bits;
    return bind_addresses(process, err);
}

/* What options say, before anything is opened. */
static ErrCode prepare(Process *process, const char *process_name, Error *err) {
    TRY(signals_open(&process->signals, err));
    TRY(set_parameters(process, err));
    TRY(set_umask(process, err));
    TRY(fill_setup(process, process_name, err));
    return read_network_options(process, err);
}

/* ---- start ---- */

static ErrCode open_log(const Options *options, Error *err) {
    log_set_verbosity(LOG_DEFAULT, (int)option_i64(options, OPTION_VERBOSE));
    const char *path = option_text(options, OPTION_LOG_PATH);
    if (path == NULL)
        return ERR_OK;
    /* A log that is there already is kept aside unless it is to be continued. */
    if (!option_bool(options, OPTION_LOG_APPEND) && access(path, F_OK) == 0) {
        TRY(log_open_file(path, /* is_append= */ true, err));
        return log_rotate(/* is_reopen= */ false, err);
    }
    return log_open_file(path, option_bool(options, OPTION_LOG_APPEND), err);
}

static ErrCode write_pid_file(Process *process, Error *err) {
    const char *path = option_text(process->options, OPTION_PID_FILE);
    if (path == NULL)
        return ERR_OK;
    FILE *file = fopen(path, "we");
    if (file == NULL || fprintf(file, "%d\n", (int)getpid()) < 0 || fclose(file) != 0)
        return error_set(err, ERR_FILE_NOT_OPEN, "could not write process id to \"%s\": %s", path,
                         strerror(errno));
    process->has_pid_file = true;
    return ERR_OK;
}

static void log_start(Process *process) {
    const ServerSetup *setup = server_setup(&process->service);
    Buffer text;
    buffer_init_arena(&text, &process->arena, 1024, LOG_LINE_BYTES_MAX);
    json_append_doc(&text, setup->parsed, LOG_LINE_BYTES_MAX / 2);
    buffer_append_byte(&text, '\0');
    LOG_INFO(LOG_CONTROL, 4615611, "Sherd starting", LOG_I64("pid", getpid()),
             LOG_I64("port", option_i64(process->options, OPTION_PORT)),
             LOG_STR("dbPath", option_text(process->options, OPTION_DB_PATH)),
             LOG_STR("architecture", "64-bit"), LOG_STR("host", setup->host));
    LOG_INFO(LOG_CONTROL, 23403, "Build Info", LOG_STR("version", SHERD_VERSION),
             LOG_STR("compatibleWith", COMPAT_VERSION), LOG_STR("gitVersion", SHERD_GIT_VERSION));
    LOG_INFO(LOG_CONTROL, 21951, "Options set by command line",
             LOG_JSON("options", (const char *)text.data));
}

/* Threads and connections come with the first use. */
static void open_clients(Process *process) {
    ServiceCtx *service = &process->service;
    service->clients = client_pool_new(&(ClientPoolConfig){
        .name = "cluster",
        .ops = service->ops,
        .driver_name = "Sherd Internal Client",
        .driver_version = SHERD_VERSION,
        .app_name = server_setup(service)->process,
        .is_member = true,
        .wire_version_min = COMPAT_WIRE_VERSION_MIN,
        .wire_version_max = COMPAT_WIRE_VERSION_MAX,
        .compressors = server_setup(service)->compressors,
        .connections_max = (uint32_t)param_i64(service, PARAM_CONN_POOL_CONNECTIONS_MAX),
        .idle_us_max = param_i64(service, PARAM_CONN_POOL_IDLE_MINUTES) * 60 * 1000000,
    });
}

static ErrCode begin(Process *process, Error *err) {
    TRY(open_log(process->options, err));
    process->descriptors = descriptors_raise_limit();
    process->shares = descriptors_share(process->descriptors,
                                        (uint64_t)option_i64(process->options, OPTION_MAX_CONNS));
    log_start(process);
    TRY(write_pid_file(process, err));
    process->service.ops = op_registry_new();
    open_clients(process);
    return ERR_OK;
}

void process_open_commands(Process *process, const CommandTable *commands,
                           const CommandHooks *hooks) {
    ServiceCtx *service = &process->service;
    service->commands = command_service_new(service, commands, hooks);
    params_apply_all(service);
    CommandSettings *settings = command_settings(service);
    settings->slow_ms = (int32_t)option_i64(process->options, OPTION_SLOW_MS);
    settings->slow_sample_rate = option_f64(process->options, OPTION_SLOW_SAMPLE_RATE);
}

/* How others reach this node: by its name, or, where it listens only to itself, by that address. */
void process_own_host(const Process *process, char *host, size_t size) {
    bool is_local = true;
    for (uint32_t i = 0; i < process->address_count; i++)
        is_local &= strncmp(process->addresses[i], "127.", 4) == 0 ||
                    strcmp(process->addresses[i], "::1") == 0;
    const char *name = server_setup((ServiceCtx *)&process->service)->host;
    if (is_local) /* the port may have been chosen by the system */
        snprintf(host, size, "127.0.0.1%s", strrchr(name, ':'));
    else
        snprintf(host, size, "%s", name);
}

static void note_from_transport(void *ctx, const char *text) {
    (void)ctx;
    LOG_WARN(LOG_NETWORK, 7200402, "Network event", LOG_STR("event", text));
}

#define WARN_AT_START(id, msg, ...)                                                                \
    do {                                                                                           \
        const LogAttr attrs_[] = {__VA_ARGS__};                                                    \
        log_startup_warning((id), (msg), attrs_, ARRAY_LEN(attrs_));                               \
    } while (0)

static void warn_at_start(Process *process) {
    WARN_AT_START(22120,
                  "Access control is not enabled for the database. Read and write access to "
                  "data and configuration is unrestricted",
                  (LogAttr){0});
    if (geteuid() == 0)
        WARN_AT_START(22138,
                      "You are running this process as the root user, which is not recommended",
                      (LogAttr){0});
    if (!option_is_set(process->options, OPTION_BIND_IP) &&
        !option_bool(process->options, OPTION_BIND_IP_ALL))
        WARN_AT_START(22140,
                      "This server is bound to localhost. Remote systems will be unable to "
                      "connect to this server. Start the server with --bind_ip <address> to "
                      "specify which IP addresses it should serve responses from, or with "
                      "--bind_ip_all to bind to all interfaces",
                      (LogAttr){0});
    if (process->descriptors < OPEN_FILES_WANTED)
        WARN_AT_START(22184, "Soft rlimits for open file descriptors too low",
                      LOG_I64("currentValue", (int64_t)process->descriptors),
                      LOG_I64("recommendedMinimum", OPEN_FILES_WANTED));
}

ErrCode process_listen(Process *process, int *ret_exit_code, Error *err) {
    ServiceCtx *service = &process->service;
    const Options *options = process->options;
    TransportConfig config = {
        .addresses = process->addresses,
        .address_count = process->address_count,
        .port = (uint16_t)option_i64(options, OPTION_PORT),
        .has_unix_socket = !option_bool(options, OPTION_NO_UNIX_SOCKET),
        .unix_prefix = option_text(options, OPTION_UNIX_SOCKET_PREFIX),
        .unix_permissions = process->unix_permissions,
        .connections_max = process->shares.connections,
        .extra_connections_max = service_is_member(service) ? process->shares.members : 0,
        .compressors = server_setup(service)->compressors,
        .handler = command_service_handler(),
        .ctx = service,
        .note = note_from_transport,
    };
    warn_at_start(process);
    *ret_exit_code = EXIT_CODE_NETWORK;
    bool is_in_use = false;
    if (transport_start(&config, &service->transport, &is_in_use, err) != ERR_OK) {
        if (is_in_use) {
            error_reset(err);
            return error_set(err, ERR_SOCKET_EXCEPTION,
                             "Failed to set up listener: SocketException: Address already in use "
                             "(port %u)",
                             config.port);
        }
        return error_prefix(err, "Failed to set up listener: SocketException");
    }
    if (config.port == 0) { /* chosen by the system */
        ServerSetup *setup = server_setup(service);
        char *colon = strrchr(setup->host, ':');
        snprintf(colon, sizeof(setup->host) - (size_t)(colon - setup->host), ":%u",
                 transport_port(service->transport));
    }
    for (uint32_t i = 0; i < config.address_count; i++)
        LOG_INFO(LOG_NETWORK, 23015, "Listening on", LOG_STR("address", process->addresses[i]));
    if (transport_unix_path(service->transport) != NULL)
        LOG_INFO(LOG_NETWORK, 23015, "Listening on",
                 LOG_STR("address", transport_unix_path(service->transport)));
    LOG_INFO(LOG_NETWORK, 23016, "Waiting for connections",
             LOG_I64("port", transport_port(service->transport)), LOG_STR("ssl", "off"));
    return ERR_OK;
}

/* ---- run and stop ---- */

static SignalEvent wait_for_stop(Process *process) {
    for (;;) {
        SignalInfo info;
        SignalEvent event = signals_wait(&process->signals, &info);
        log_set_thread_name("SignalHandler");
        if (event == SIGNAL_EVENT_ROTATE) {
            CLEANUP(error_reset) Error err = {0};
            if (log_rotate(server_setup(&process->service)->is_log_reopened, &err) != ERR_OK)
                LOG_ERROR(LOG_CONTROL, 23168, "Unable to rotate logs",
                          LOG_STR("error", error_message(&err)));
            continue;
        }
        if (event == SIGNAL_EVENT_STOP) {
            LOG_INFO(LOG_CONTROL, 23377, "Received signal", LOG_I64("signal", info.number),
                     LOG_STR("error", strsignal(info.number)));
            LOG_INFO(LOG_CONTROL, 23378, "Signal was sent by kill(2)",
                     LOG_I64("pid", info.sender_pid), LOG_I64("uid", info.sender_uid));
            LOG_INFO(LOG_CONTROL, 23381, "Will terminate after current cmd ends");
        }
        return event;
    }
}

void process_end_clients(Process *process) {
    ServiceCtx *service = &process->service;
    if (service->transport == NULL)
        return;
    int64_t deadline_us = clock_mono_us() + STOP_GRACE_US;
    LOG_INFO(LOG_NETWORK, 20562, "Shutdown: going to close listening sockets");
    transport_stop_accepting(service->transport);
    command_service_begin_quiesce(service->commands, deadline_us);
    LOG_INFO(LOG_COMMAND, 4784908, "Shutting down all open connections");
    transport_stop(service->transport, deadline_us);
    transport_free(TAKE_PTR(service->transport));
}
