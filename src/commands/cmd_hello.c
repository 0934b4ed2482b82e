/*
 * cmd_hello.c - hello, isMaster: the handshake, and how clients watch the server.
 *
 * A hello with topologyVersion and maxAwaitTimeMS waits, parked without a worker, until what hello
 * says changes. With exhaustAllowed its replies stream: each round waits from the counter of the
 * last reply. isMaster is the older name of the same; it calls the field isWritablePrimary
 * "ismaster".
 */
#include "base/failpoint.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "bson/json.h"
#include "commands/core/command_service.h"
#include "params/params.h"
#include "commands/hello_repl.h"
#include "commands/version.h"

enum {
    CLIENT_METADATA_BYTES_MAX = 512,
    APP_NAME_BYTES_MAX = 128,
    WRITE_BATCH_STATEMENTS_MAX = 100000,
    LOCATION_AWAIT_NEEDS_BOTH = 31368,
    LOCATION_TOPOLOGY_COUNTER_NEGATIVE = 31372,
    LOCATION_AWAIT_TIME_NEGATIVE = 31373,
    LOCATION_TOPOLOGY_COUNTER_AHEAD = 31382,
};

typedef struct HelloRequest {
    Doc client;
    Elem compression;
    Doc topology_version;
    Elem max_await_time_ms;
    bool hello_ok;
} HelloRequest;

typedef struct TopologyRequest {
    Oid process_id;
    int64_t counter;
} TopologyRequest;

static ErrCode check_metadata(CommandCtx *ctx, Doc metadata, Error *err);
static void keep_metadata(CommandCtx *ctx, Doc metadata);
static ErrCode wait_for_change(CommandCtx *ctx, const HelloRequest *request, bool *ret_is_parked,
                               Error *err);
static ErrCode check_quiesce(CommandCtx *ctx, Error *err);
static void negotiate_compression(CommandCtx *ctx, Elem compression);

static ErrCode hello_reply(CommandCtx *ctx, const HelloRequest *request, const char *primary_field,
                           Error *err) {
    if (doc_is_present(request->client) && !ctx->wire_reply->is_resumed)
        TRY(check_metadata(ctx, request->client, err));
    bool is_parked = false;
    TRY(wait_for_change(ctx, request, &is_parked, err));
    if (is_parked)
        return ERR_OK;
    TopologyVersion version = topology_version(ctx->service->commands);
    TRY(check_quiesce(ctx, err));
    if (doc_is_present(request->client) && !ctx->client->is_hello_done)
        keep_metadata(ctx, request->client);
    ctx->client->is_hello_done = true;

    DocBuilder *b = ctx->reply;
    if (request->hello_ok)
        build_bool(b, "helloOk", true);
    if (service_is_member(ctx->service))
        hello_repl_build(ctx->service, b, primary_field);
    else
        build_bool(b, primary_field, true);
    if (ctx->service->role == ROLE_ROUTER)
        build_cstr(b, "msg", "isdbgrid");
    if (ctx->service->role == ROLE_CONFIG_SERVER)
        build_i32(b, "configsvr", 2);
    build_topology_version(b, version);
    build_i32(b, "maxBsonObjectSize", BSON_DOC_SIZE_MAX);
    build_i32(b, "maxMessageSizeBytes", WIRE_MESSAGE_SIZE_MAX);
    build_i32(b, "maxWriteBatchSize", WRITE_BATCH_STATEMENTS_MAX);
    build_date(b, "localTime", clock_wall_ms());
    build_i32(b, "logicalSessionTimeoutMinutes",
              (int32_t)param_i64(ctx->service, PARAM_SESSION_TIMEOUT_MINUTES));
    build_i32(b, "connectionId", (int32_t)ctx->client->conn->id);
    build_i32(b, "minWireVersion", COMPAT_WIRE_VERSION_MIN);
    build_i32(b, "maxWireVersion", COMPAT_WIRE_VERSION_MAX);
    build_bool(b, "readOnly", false);
    if (elem_type(request->compression) == BT_ARRAY)
        negotiate_compression(ctx, request->compression);

    if (doc_is_present(request->topology_version) && wire_is_exhaust_allowed(ctx->message)) {
        ctx->is_more_to_come = true;
        ctx->client->is_hello_streaming = true;
        ctx->client->last_topology_counter = version.counter;
    }
    return ERR_OK;
}

static ErrCode hello_run(CommandCtx *ctx, void *request, Error *err) {
    return hello_reply(ctx, request, "isWritablePrimary", err);
}

static ErrCode is_master_run(CommandCtx *ctx, void *request, Error *err) {
    return hello_reply(ctx, request, "ismaster", err);
}

/* ---- who the client is ---- */

static ErrCode check_metadata(CommandCtx *ctx, Doc metadata, Error *err) {
    if (ctx->client->is_hello_done)
        return error_set(err, ERR_CLIENT_METADATA_CANNOT_BE_MUTATED,
                         "The client metadata document may only be sent in the first hello");
    if (doc_size(metadata) > CLIENT_METADATA_BYTES_MAX)
        return error_set(err, ERR_CLIENT_METADATA_DOCUMENT_TOO_LARGE,
                         "The client metadata document must be less then or equal to %d bytes",
                         CLIENT_METADATA_BYTES_MAX);
    static const char *const REQUIRED[] = {"driver.name", "driver.version", "os.type"};
    for (size_t i = 0; i < ARRAY_LEN(REQUIRED); i++)
        if (elem_type(doc_get_path(metadata, REQUIRED[i])) != BT_STRING)
            return error_set(err, ERR_CLIENT_METADATA_MISSING_FIELD,
                             "Missing required field '%s' in the client metadata document",
                             REQUIRED[i]);
    Elem app = doc_get_path(metadata, "application.name");
    if (elem_type(app) == BT_STRING && elem_str(app).size > APP_NAME_BYTES_MAX)
        return error_set(
            err, ERR_CLIENT_METADATA_APP_NAME_TOO_LARGE,
            "The 'application.name' field must be less then or equal to %d bytes in the "
            "client metadata document",
            APP_NAME_BYTES_MAX);
    return ERR_OK;
}

static void keep_metadata(CommandCtx *ctx, Doc metadata) {
    ClientState *client = ctx->client;
    client->metadata = doc_copy_heap(metadata);
    Elem app = doc_get_path(metadata, "application.name");
    if (elem_type(app) == BT_STRING)
        client->app_name = xstrndup(elem_str(app).data, elem_str(app).size);
    if (param_bool(ctx->service, PARAM_QUIET))
        return;
    Buffer text;
    buffer_init_arena(&text, cmd_arena(ctx), 1024, LOG_LINE_BYTES_MAX);
    json_append_doc(&text, metadata, LOG_LINE_BYTES_MAX / 2);
    buffer_append_byte(&text, '\0');
    LOG_INFO(LOG_NETWORK, 51800, "client metadata", LOG_STR("remote", client->conn->peer),
             LOG_STR("client", client->name), LOG_JSON("doc", (const char *)text.data));
}

/* ---- waiting ---- */

static ErrCode parse_topology_version(Doc doc, TopologyRequest *ret_version, Error *err) {
    Elem process = doc_get_lit(doc, "processId");
    Elem counter = doc_get_lit(doc, "counter");
    /* Clients whose language has one kind of number send it back as another one. */
    if (elem_type(process) != BT_OID || !elem_is_number(counter))
        return error_set(err, ERR_TYPE_MISMATCH,
                         "'topologyVersion' needs an objectId 'processId' and a number 'counter'");
    if (elem_as_i64(counter) < 0)
        return error_set(err, (ErrCode)LOCATION_TOPOLOGY_COUNTER_NEGATIVE,
                         "topologyVersion must have a non-negative counter");
    *ret_version = (TopologyRequest){*elem_oid(process), elem_as_i64(counter)};
    return ERR_OK;
}

static ErrCode wait_for_change(CommandCtx *ctx, const HelloRequest *request, bool *ret_is_parked,
                               Error *err) {
    ClientState *client = ctx->client;
    bool was_parked = client->is_hello_parked && ctx->wire_reply->is_resumed;
    client->is_hello_parked = false;
    bool has_version = doc_is_present(request->topology_version);
    bool has_wait = elem_is_present(request->max_await_time_ms);
    if (!has_version && !has_wait)
        return ERR_OK;
    if (!has_wait)
        return error_set(err, (ErrCode)LOCATION_AWAIT_NEEDS_BOTH,
                         "A request with a 'topologyVersion' must include 'maxAwaitTimeMS'");
    if (!has_version)
        return error_set(err, (ErrCode)LOCATION_AWAIT_NEEDS_BOTH,
                         "A request with 'maxAwaitTimeMS' must include a 'topologyVersion'");
    if (!elem_is_number(request->max_await_time_ms) || elem_as_i64(request->max_await_time_ms) < 0)
        return error_set(err, (ErrCode)LOCATION_AWAIT_TIME_NEGATIVE,
                         "maxAwaitTimeMS must be a non-negative integer");
    TopologyRequest seen;
    TRY(parse_topology_version(request->topology_version, &seen, err));
    if (!ctx->wire_reply->is_resumed)
        client->is_hello_streaming = false;
    else if (client->is_hello_streaming)
        seen.counter = client->last_topology_counter;

    TopologyVersion now = topology_version(ctx->service->commands);
    bool is_same_process = memcmp(&now.process_id, &seen.process_id, sizeof(Oid)) == 0;
    if (is_same_process && seen.counter > now.counter)
        return error_set(err, (ErrCode)LOCATION_TOPOLOGY_COUNTER_AHEAD,
                         "Received a topology version with counter: %lld which is greater than the "
                         "server topology version counter: %lld",
                         (long long)seen.counter, (long long)now.counter);
    /* Called again without a change: the time is up. */
    bool is_changed = !is_same_process || seen.counter < now.counter;
    if (is_changed || was_parked || command_service_quiesce_until(ctx->service->commands) != 0)
        return ERR_OK;
    int64_t wait_ms = elem_as_i64(request->max_await_time_ms);
    if (wait_ms > INT32_MAX)
        wait_ms = INT32_MAX;
    ctx->wire_reply->park_deadline_us = clock_deadline_ms(wait_ms);
    failpoint_hit(FP_WAIT_FOR_HELLO_RESPONSE);
    ctx->is_park_wanted = true;
    client->is_hello_parked = true;
    *ret_is_parked = true;
    return ERR_OK;
}

static ErrCode check_quiesce(CommandCtx *ctx, Error *err) {
    int64_t until_us = command_service_quiesce_until(ctx->service->commands);
    if (until_us == 0)
        return ERR_OK;
    int64_t left_us = until_us - clock_mono_us();
    DocBuilder b = doc_builder_in_arena(cmd_arena(ctx));
    build_topology_version(&b, topology_version(ctx->service->commands));
    build_i64(&b, "remainingQuiesceTimeMillis", left_us > 0 ? left_us / 1000 : 0);
    (void)error_set(err, ERR_SHUTDOWN_IN_PROGRESS,
                    "The server is in quiesce mode and will shut down");
    error_set_extra(err, doc_builder_end(&b).data);
    return err->code;
}

/* ---- parts of the reply ---- */

/* What both sides have, in the order of the client's wishes. */
static void negotiate_compression(CommandCtx *ctx, Elem compression) {
    uint32_t offered = server_setup(ctx->service)->compressors;
    uint32_t agreed = 0;
    uint32_t count = 0;
    size_t opened = 0;
    DocIter iter = doc_iter(elem_doc(compression));
    Elem name;
    while (doc_iter_next(&iter, &name)) {
        if (elem_type(name) != BT_STRING)
            continue;
        WireCompressor compressor = wire_compressor_from_name(elem_str(name));
        if (compressor == WIRE_COMPRESSOR_NONE ||
            (offered & ~agreed & WIRE_COMPRESSOR_BIT(compressor)) == 0)
            continue;
        agreed |= WIRE_COMPRESSOR_BIT(compressor);
        if (count == 0)
            opened = build_open_array(ctx->reply, "compression");
        char index[INDEX_NAME_SIZE];
        build_str(ctx->reply, index_name(count++, index).data, elem_str(name));
    }
    if (count > 0)
        build_close(ctx->reply, opened);
    ctx->client->conn->compressors = agreed;
}

static const FieldSpec HELLO_FIELDS[] = {
    {"client", FIELD_DOC, FIELD_OPTIONAL, offsetof(HelloRequest, client)},
    {"compression", FIELD_ELEM, FIELD_OPTIONAL, offsetof(HelloRequest, compression)},
    {"topologyVersion", FIELD_DOC, FIELD_OPTIONAL, offsetof(HelloRequest, topology_version)},
    {"maxAwaitTimeMS", FIELD_ELEM, FIELD_OPTIONAL, offsetof(HelloRequest, max_await_time_ms)},
    {"helloOk", FIELD_BOOL, FIELD_OPTIONAL, offsetof(HelloRequest, hello_ok)},
};

const CommandSpec CMD_HELLO = {
    .name = "hello",
    .summary = "Tells what this server is and can do.",
    .flags = CMD_API_V1 | CMD_HANDSHAKE | CMD_NOT_LOGGED_WHEN_SLOW | CMD_LOOSE,
    .request = REQUEST_OF(HelloRequest, HELLO_FIELDS),
    .run = hello_run,
};

const CommandSpec CMD_IS_MASTER = {
    .name = "isMaster",
    .alias = "ismaster",
    .summary = "The older name of hello.",
    .flags = CMD_HANDSHAKE | CMD_NOT_LOGGED_WHEN_SLOW | CMD_LOOSE,
    .request = REQUEST_OF(HelloRequest, HELLO_FIELDS),
    .run = is_master_run,
};
