/*
 * wire.h - the wire protocol's frames: bytes to WireMessage and back. No sockets here.
 *
 * header      int32 messageLength, requestID, responseTo, opCode (little endian)
 * OP_MSG      header, uint32 flags, sections (kind byte, then a body document or a named sequence
 *             of documents), and a CRC-32C of all before it when flag bit 0 is set
 * OP_QUERY    header, int32 flags, cstring collection, int32 skip, int32 return, document(s);
 *             alive only for the handshake
 * OP_REPLY    header, int32 flags, int64 cursor id, int32 start, int32 count, document(s)
 * COMPRESSED  header, int32 inner opCode, int32 inflated size, uint8 compressor, packed bytes
 *
 * Ownership: a WireMessage borrows the bytes it was decoded from, or those of the decoder when the
 *            message was compressed; it is valid until either changes.
 * Threading: a WireDecoder belongs to one thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/error.h"
#include "bson/doc.h"
#include "transport/compression.h"

typedef enum WireOpcode {
    WIRE_OP_REPLY = 1,
    WIRE_OP_QUERY = 2004,
    WIRE_OP_COMPRESSED = 2012,
    WIRE_OP_MSG = 2013,
} WireOpcode;

typedef enum WireFlag {
    WIRE_FLAG_CHECKSUM = 1u << 0,
    WIRE_FLAG_MORE_TO_COME = 1u << 1,
    WIRE_FLAG_EXHAUST_ALLOWED = 1u << 16,
    /* A peer must understand all of these bits; the upper half may be ignored. */
    WIRE_FLAGS_REQUIRED = 0xFFFF,
    WIRE_FLAGS_KNOWN = WIRE_FLAG_CHECKSUM | WIRE_FLAG_MORE_TO_COME | WIRE_FLAG_EXHAUST_ALLOWED,
} WireFlag;

enum {
    WIRE_HEADER_SIZE = 16,
    WIRE_MSG_HEADER_SIZE = 21,        /* header, flags, kind byte of the body */
    WIRE_REPLY_HEADER_SIZE = 36,      /* of OP_REPLY */
    WIRE_COMPRESSED_HEADER_SIZE = 25, /* header, inner opcode, size, compressor */
    WIRE_CHECKSUM_SIZE = 4,
    WIRE_MESSAGE_SIZE_MAX = 48000000,
    /* No command takes more than two; the bound keeps the search for repeated names cheap. */
    WIRE_SEQUENCES_MAX = 16,
    WIRE_REPLY_AWAIT_CAPABLE = 8,
};

/* A kind 1 section: documents back to back, all validated. */
typedef struct WireSequence {
    Str name;
    const uint8_t *docs;
    uint32_t size; /* bytes */
    uint32_t count;
} WireSequence;

typedef struct WireMessage {
    int32_t request_id;
    int32_t response_to;
    uint32_t opcode;           /* of the message itself, after inflating */
    uint32_t flags;            /* OP_MSG: WireFlag; OP_QUERY and OP_REPLY: their own flags */
    WireCompressor compressor; /* the peer used, or WIRE_COMPRESSOR_NONE */
    Doc body;
    uint32_t sequence_count;
    WireSequence sequences[WIRE_SEQUENCES_MAX];
    /* OP_QUERY only. */
    const char *query_ns;
    int32_t query_skip;
    int32_t query_return;
    /* The whole message, uncompressed: what has to be kept to decode it again later. */
    const uint8_t *bytes;
    uint32_t size;
    /* After a failed decode: the stream cannot be trusted any further. */
    bool must_close;
} WireMessage;

typedef struct WireDecoder {
    Buffer inflated;
    uint32_t compressors; /* WIRE_COMPRESSOR_BIT of those accepted */
} WireDecoder;

void wire_decoder_init(WireDecoder *decoder, uint32_t compressors);
void wire_decoder_done(WireDecoder *decoder);
/* Gives back what a large message left behind. */
void wire_decoder_trim(WireDecoder *decoder);

/* Reads the length of a message from its first four bytes; false when no message can have it. */
bool wire_message_size(const uint8_t *data, uint32_t *ret_size);

/* Decodes one complete message of a client. On failure request_id, opcode, flags and must_close of
 * `ret_message` are set as far as they could be read, so that an error reply can be addressed; the
 * rest is undefined. Documents are checked for structure and depth, not for UTF-8. */
ErrCode wire_decode(WireDecoder *decoder, const uint8_t *data, size_t size,
                    WireMessage *ret_message, Error *err) MUST_CHECK;

/* The same for a message of a server: OP_MSG or OP_REPLY (of which the first document is given). */
ErrCode wire_decode_reply(WireDecoder *decoder, const uint8_t *data, size_t size,
                          WireMessage *ret_message, Error *err) MUST_CHECK;

static inline bool wire_is_exhaust_allowed(const WireMessage *message) {
    return message->opcode == WIRE_OP_MSG && (message->flags & WIRE_FLAG_EXHAUST_ALLOWED) != 0;
}

/* True when the client does not wait for a reply. */
static inline bool wire_is_fire_and_forget(const WireMessage *message) {
    return message->opcode == WIRE_OP_MSG && (message->flags & WIRE_FLAG_MORE_TO_COME) != 0;
}

/* ---- replies ---- */

typedef struct WireReplyInfo {
    int32_t request_id; /* of the reply itself */
    int32_t response_to;
    bool is_op_reply; /* answers an OP_QUERY */
    bool more_to_come;
    bool has_checksum;
    WireCompressor compressor; /* WIRE_COMPRESSOR_NONE: send as it is */
} WireReplyInfo;

/* Empties the buffer and keeps room for the header; the body document is appended next. */
void wire_reply_begin(Buffer *reply);

/* Fills in the header in front of the one document in `reply`. `*ret_message` is the buffer to
 * send: `reply` itself, or `scratch` when packing made the message smaller. Fails with
 * ERR_BSON_OBJECT_TOO_LARGE when the reply passed its bound. */
ErrCode wire_reply_finish(Buffer *reply, const WireReplyInfo *info, Buffer *scratch,
                          const Buffer **ret_message, Error *err) MUST_CHECK;

/* ---- requests, for those who are clients ---- */

/* Starts an OP_MSG at the end of the buffer; the body document is appended next, then sequences.
 * The result goes to wire_request_finish. */
size_t wire_request_begin(Buffer *request);
/* Starts a document sequence; documents are appended next. */
size_t wire_sequence_begin(Buffer *request, const char *name);
void wire_sequence_end(Buffer *request, size_t opened);
ErrCode wire_request_finish(Buffer *request, size_t started, int32_t request_id, uint32_t flags,
                            Error *err) MUST_CHECK;

/* Replaces the message that starts at `started` and ends with the buffer by its packed form. */
ErrCode wire_request_compress(Buffer *request, size_t started, WireCompressor compressor,
                              Error *err) MUST_CHECK;
