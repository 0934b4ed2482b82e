/*
 * client_handshake.c - the first words on a connection: who we are, what both sides can do.
 *
 *     greeting (members only, no answer)   lets a full node make room for us
 *     hello                                metadata, internalClient, compression
 *     authentication                       as ClientSecurity says
 *
 * None of it is packed. A node that is about to stop refuses hello; the connection is good enough
 * for what members still have to tell each other.
 */
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

#include "transport/client_internal.h"

static const WireCompressor OFFERED[] = {WIRE_COMPRESSOR_SNAPPY, WIRE_COMPRESSOR_ZSTD,
                                         WIRE_COMPRESSOR_ZLIB};

/* Appends a message to what there is to send. */
static ErrCode append(ClientConn *conn, Doc body, uint32_t flags, Error *err) {
    size_t started = wire_request_begin(&conn->out);
    buffer_append(&conn->out, body.data, doc_size(body));
    conn->awaited_id = ++conn->last_request_id;
    return wire_request_finish(&conn->out, started, conn->awaited_id, flags, err);
}

static void build_client(DocBuilder *b, const ClientPoolConfig *config) {
    size_t client = build_open_doc(b, "client");
    if (config->app_name != NULL) {
        size_t application = build_open_doc(b, "application");
        build_cstr(b, "name", config->app_name);
        build_close(b, application);
    }
    size_t driver = build_open_doc(b, "driver");
    build_cstr(b, "name", config->driver_name);
    build_cstr(b, "version", config->driver_version);
    build_close(b, driver);
    size_t os = build_open_doc(b, "os");
    build_cstr(b, "type", "Linux");
    build_close(b, os);
    build_close(b, client);
}

static void build_hello(DocBuilder *b, const ClientPoolConfig *config) {
    build_i32(b, "hello", 1);
    build_client(b, config);
    if (config->is_member) {
        size_t internal = build_open_doc(b, "internalClient");
        build_i32(b, "minWireVersion", config->wire_version_min);
        build_i32(b, "maxWireVersion", config->wire_version_max);
        build_close(b, internal);
    }
    size_t compression = build_open_array(b, "compression");
    uint32_t count = 0;
    for (size_t i = 0; i < ARRAY_LEN(OFFERED); i++) {
        char index[INDEX_NAME_SIZE];
        if ((config->compressors & WIRE_COMPRESSOR_BIT(OFFERED[i])) != 0)
            build_cstr(b, index_name(count++, index).data, wire_compressor_name(OFFERED[i]));
    }
    build_close(b, compression);
    build_cstr(b, "$db", "admin");
}

ErrCode handshake_begin(ClientConn *conn, Error *err) {
    const ClientPoolConfig *config = pool_config(conn->pool);
    CLEANUP(buffer_done) Buffer buf = {0};
    buffer_init(&buf, BUFFER_UNBOUNDED);
    DocBuilder b;
    buffer_clear(&conn->out);
    conn->sent = 0;
    if (config->is_member) {
        doc_builder_init(&b, &buf);
        build_i32(&b, CLIENT_GREETING, 1);
        build_cstr(&b, "$db", "admin");
        TRY(append(conn, doc_builder_end(&b), WIRE_FLAG_MORE_TO_COME, err));
        buffer_clear(&buf);
    }
    doc_builder_init(&b, &buf);
    build_hello(&b, config);
    return append(conn, doc_builder_end(&b), 0, err);
}

static int64_t number_or(Elem elem, int64_t otherwise) {
    return elem_is_number(elem) ? elem_as_i64(elem) : otherwise;
}

static ErrCode check_versions(const ClientConn *conn, Doc reply, Error *err) {
    const ClientPoolConfig *config = pool_config(conn->pool);
    int64_t min = number_or(doc_get_lit(reply, "minWireVersion"), config->wire_version_min);
    int64_t max = number_or(doc_get_lit(reply, "maxWireVersion"), config->wire_version_max);
    if (min <= config->wire_version_max && max >= config->wire_version_min)
        return ERR_OK;
    return error_set(err, ERR_INCOMPATIBLE_SERVER_VERSION,
                     "%s speaks wire versions %lld to %lld, this node %d to %d", conn->host,
                     (long long)min, (long long)max, config->wire_version_min,
                     config->wire_version_max);
}

static void agree(ClientConn *conn, Elem compression) {
    if (elem_type(compression) != BT_ARRAY)
        return;
    uint32_t offered = pool_config(conn->pool)->compressors;
    DocIter iter = doc_iter(elem_doc(compression));
    for (Elem name; doc_iter_next(&iter, &name);) {
        WireCompressor compressor = elem_type(name) == BT_STRING
                                        ? wire_compressor_from_name(elem_str(name))
                                        : WIRE_COMPRESSOR_NONE;
        if (compressor != WIRE_COMPRESSOR_NONE && (offered & WIRE_COMPRESSOR_BIT(compressor)) != 0)
            conn->compressors |= WIRE_COMPRESSOR_BIT(compressor);
    }
    conn->decoder.compressors = conn->compressors;
}

static ErrCode take_hello(ClientConn *conn, Doc reply, Error *err) {
    if (client_check_reply(reply, err) != ERR_OK) {
        if (err->code != ERR_SHUTDOWN_IN_PROGRESS)
            return error_prefix(err, "%s refused the handshake", conn->host);
        error_reset(err);
        return ERR_OK;
    }
    TRY(check_versions(conn, reply, err));
    agree(conn, doc_get_lit(reply, "compression"));
    return ERR_OK;
}

static ErrCode authenticate(ClientConn *conn, Doc reply, bool *ret_is_over, Error *err) {
    const ClientSecurity *security = pool_config(conn->pool)->security;
    *ret_is_over = true;
    if (security == NULL || security->auth_step == NULL)
        return ERR_OK;
    CLEANUP(buffer_done) Buffer buf = {0};
    buffer_init(&buf, BUFFER_UNBOUNDED);
    DocBuilder b;
    doc_builder_init(&b, &buf);
    TRY(security->auth_step(security->arg, &conn->auth, reply, &b, ret_is_over, err));
    Doc command = doc_builder_end(&b);
    if (*ret_is_over)
        return ERR_OK;
    buffer_clear(&conn->out);
    conn->sent = 0;
    return append(conn, command, 0, err);
}

/* Is the peer on this machine? */
static bool is_local(const ClientConn *conn) {
    struct sockaddr_storage peer;
    socklen_t size = sizeof(peer);
    if (getpeername(conn->fd, (struct sockaddr *)&peer, &size) != 0)
        return false;
    if (peer.ss_family == AF_INET) {
        const struct sockaddr_in *v4 = (const struct sockaddr_in *)&peer;
        return ntohl(v4->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
    }
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)&peer;
    return peer.ss_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr);
}

/* What requests are packed with; replies follow them. Packing pays for itself on a network. */
static void choose_compressor(ClientConn *conn) {
    if (conn->compressors == 0 || (!pool_config(conn->pool)->packs_locally && is_local(conn)))
        return;
    for (size_t i = 0; i < ARRAY_LEN(OFFERED) && conn->compressor == WIRE_COMPRESSOR_NONE; i++)
        if ((conn->compressors & WIRE_COMPRESSOR_BIT(OFFERED[i])) != 0)
            conn->compressor = OFFERED[i];
}

ErrCode handshake_take(ClientConn *conn, Doc reply, bool *ret_is_over, Error *err) {
    if (conn->phase == CONN_GREETING)
        TRY(take_hello(conn, reply, err));
    else if (client_check_reply(reply, err) != ERR_OK)
        return error_prefix(err, "%s refused to authenticate this node", conn->host);
    conn->phase = CONN_AUTHENTICATING;
    TRY(authenticate(conn, reply, ret_is_over, err));
    if (*ret_is_over)
        choose_compressor(conn);
    return ERR_OK;
}
