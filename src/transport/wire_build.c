/*
 * wire_build.c - building messages: the body is written in place, the header filled in afterwards.
 *
 * A reply is built once, behind room for its header, and sent from there. Only an OP_REPLY, whose
 * header is longer, and a packed reply are moved.
 */
#include "transport/wire.h"

#include <assert.h>

#include "base/crc32c.h"

static void store_i32(uint8_t *at, int32_t value) {
    memcpy(at, &value, sizeof(value));
}

static void store_header(uint8_t *at, size_t size, int32_t request_id, int32_t response_to,
                         WireOpcode opcode) {
    store_i32(at, (int32_t)size);
    store_i32(at + 4, request_id);
    store_i32(at + 8, response_to);
    store_i32(at + 12, (int32_t)opcode);
}

static ErrCode finish_op_reply(Buffer *reply, const WireReplyInfo *info, Error *err);
static ErrCode finish_msg(Buffer *message, size_t started, int32_t request_id, int32_t response_to,
                          uint32_t flags, Error *err);
static bool pack_message(const uint8_t *message, size_t size, WireCompressor compressor,
                         Buffer *out);

void wire_reply_begin(Buffer *reply) {
    buffer_clear(reply);
    if (buffer_reserve(reply, WIRE_MSG_HEADER_SIZE) != NULL)
        reply->size = WIRE_MSG_HEADER_SIZE;
}

ErrCode wire_reply_finish(Buffer *reply, const WireReplyInfo *info, Buffer *scratch,
                          const Buffer **ret_message, Error *err) {
    TRY(buffer_check(reply, "reply", err));
    assert(reply->size >= WIRE_MSG_HEADER_SIZE + BSON_DOC_SIZE_MIN);
    assert(doc_size((Doc){reply->data + WIRE_MSG_HEADER_SIZE}) ==
           reply->size - WIRE_MSG_HEADER_SIZE);

    if (UNLIKELY(info->is_op_reply))
        TRY(finish_op_reply(reply, info, err));
    else
        TRY(finish_msg(reply, /* started= */ 0, info->request_id, info->response_to,
                       (info->has_checksum ? WIRE_FLAG_CHECKSUM : 0u) |
                           (info->more_to_come ? WIRE_FLAG_MORE_TO_COME : 0u),
                       err));
    *ret_message = reply;
    if (info->compressor != WIRE_COMPRESSOR_NONE) {
        buffer_clear(scratch);
        if (pack_message(reply->data, reply->size, info->compressor, scratch) &&
            scratch->size < reply->size)
            *ret_message = scratch;
    }
    return ERR_OK;
}

size_t wire_request_begin(Buffer *request) {
    size_t started = request->size;
    if (buffer_reserve(request, WIRE_MSG_HEADER_SIZE) != NULL)
        request->size += WIRE_MSG_HEADER_SIZE;
    return started;
}

size_t wire_sequence_begin(Buffer *request, const char *name) {
    buffer_append_byte(request, 1);
    size_t opened = request->size;
    int32_t size_later = 0;
    buffer_append(request, &size_later, sizeof(size_later));
    buffer_append(request, name, strlen(name) + 1);
    return opened;
}

void wire_sequence_end(Buffer *request, size_t opened) {
    if (!request->overflowed)
        store_i32(request->data + opened, (int32_t)(request->size - opened));
}

ErrCode wire_request_finish(Buffer *request, size_t started, int32_t request_id, uint32_t flags,
                            Error *err) {
    return finish_msg(request, started, request_id, /* response_to= */ 0, flags, err);
}

ErrCode wire_request_compress(Buffer *request, size_t started, WireCompressor compressor,
                              Error *err) {
    CLEANUP(buffer_done) Buffer packed = {0};
    /* What a compressor asks for beforehand may be more than a message can have. */
    buffer_init(&packed, BUFFER_UNBOUNDED);
    if (!pack_message(request->data + started, request->size - started, compressor, &packed))
        return error_set(err, ERR_BSON_OBJECT_TOO_LARGE, "compressed message is too large");
    if (packed.size > WIRE_MESSAGE_SIZE_MAX)
        return ERR_OK; /* it is sent as it is */
    request->size = started;
    buffer_append(request, packed.data, packed.size);
    return buffer_check(request, "compressed message", err);
}

/* The body lies where an OP_MSG has it; OP_REPLY needs 15 bytes more in front of it. */
static ErrCode finish_op_reply(Buffer *reply, const WireReplyInfo *info, Error *err) {
    enum {
        SHIFT = WIRE_REPLY_HEADER_SIZE - WIRE_MSG_HEADER_SIZE,
    };
    if (buffer_reserve(reply, SHIFT) == NULL)
        return buffer_check(reply, "reply", err);
    memmove(reply->data + WIRE_REPLY_HEADER_SIZE, reply->data + WIRE_MSG_HEADER_SIZE,
            reply->size - WIRE_MSG_HEADER_SIZE);
    reply->size += SHIFT;
    uint8_t *at = reply->data;
    store_header(at, reply->size, info->request_id, info->response_to, WIRE_OP_REPLY);
    store_i32(at + 16, WIRE_REPLY_AWAIT_CAPABLE);
    memset(at + 20, 0, 12); /* cursor id and position: commands have none */
    store_i32(at + 32, 1);  /* documents */
    return ERR_OK;
}

static ErrCode finish_msg(Buffer *message, size_t started, int32_t request_id, int32_t response_to,
                          uint32_t flags, Error *err) {
    size_t checksum_size = (flags & WIRE_FLAG_CHECKSUM) != 0 ? WIRE_CHECKSUM_SIZE : 0;
    if (UNLIKELY(checksum_size > 0) && buffer_reserve(message, checksum_size) == NULL)
        return buffer_check(message, "message", err);
    TRY(buffer_check(message, "message", err));

    size_t size = message->size - started + checksum_size;
    if (size > WIRE_MESSAGE_SIZE_MAX)
        return error_set(err, ERR_BSON_OBJECT_TOO_LARGE, "message of %zu bytes is too large", size);
    uint8_t *at = message->data + started;
    store_header(at, size, request_id, response_to, WIRE_OP_MSG);
    store_i32(at + 16, (int32_t)flags);
    at[20] = 0; /* kind of the body section */
    if (UNLIKELY(checksum_size > 0)) {
        store_i32(at + size - checksum_size, (int32_t)crc32c(at, size - checksum_size));
        message->size += checksum_size;
    }
    return ERR_OK;
}

static bool pack_message(const uint8_t *message, size_t size, WireCompressor compressor,
                         Buffer *out) {
    size_t started = out->size;
    uint8_t *at = buffer_reserve(out, WIRE_COMPRESSED_HEADER_SIZE);
    if (at == NULL)
        return false;
    memcpy(at + 16, message + 12, 4); /* inner opcode */
    store_i32(at + 20, (int32_t)(size - WIRE_HEADER_SIZE));
    at[24] = (uint8_t)compressor;
    out->size += WIRE_COMPRESSED_HEADER_SIZE;
    if (!wire_deflate(compressor, message + WIRE_HEADER_SIZE, size - WIRE_HEADER_SIZE, out))
        return false;
    store_header(out->data + started, out->size - started, load_i32(message + 4),
                 load_i32(message + 8), WIRE_OP_COMPRESSED);
    return true;
}
