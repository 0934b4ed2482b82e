/*
 * wire.c - decoding: every length is checked against what is really there before it is used.
 */
#include "transport/wire.h"

#include "bson/validate.h"
#include "base/crc32c.h"

/* Codes that the protocol knows by number only. */
enum {
    WIRE_ERR_BODY_REPEATED = 40430,
    WIRE_ERR_SEQUENCE_REPEATED = 40431,
    WIRE_ERR_SECTION_UNKNOWN = 40432,
    WIRE_ERR_FIELD_REPEATED = 40433,
    WIRE_ERR_BODY_MISSING = 40587,
};

enum {
    SECTION_BODY = 0,
    SECTION_SEQUENCE = 1,
    SECTION_SECURITY_TOKEN = 2,
};

enum {
    DECODER_KEEP_SIZE_MAX = 256 * 1024,
};

/* What is left to read of a message. */
typedef struct Cursor {
    const uint8_t *at;
    const uint8_t *end;
} Cursor;

static ErrCode decode_header(const uint8_t *data, size_t size, WireMessage *message, Error *err);
static ErrCode inflate_message(WireDecoder *decoder, WireMessage *message, Error *err);
static ErrCode decode_msg(Cursor cursor, WireMessage *message, Error *err);
static ErrCode decode_sections(Cursor cursor, WireMessage *message, Error *err);
static ErrCode decode_sequence(Cursor *cursor, WireMessage *message, Error *err);
static ErrCode check_sequence_names(const WireMessage *message, Error *err);
static ErrCode decode_query(Cursor cursor, WireMessage *message, Error *err);
static ErrCode decode_op_reply(Cursor cursor, WireMessage *message, Error *err);
static ErrCode take_doc(Cursor *cursor, Doc *ret_doc, Error *err);
static bool take_i32(Cursor *cursor, int32_t *ret_value);
static bool take_cstr(Cursor *cursor, Str *ret_text);
static ErrCode truncated(Error *err, const char *what);

void wire_decoder_init(WireDecoder *decoder, uint32_t compressors) {
    buffer_init(&decoder->inflated, WIRE_MESSAGE_SIZE_MAX);
    decoder->compressors = compressors;
}

void wire_decoder_done(WireDecoder *decoder) {
    buffer_done(&decoder->inflated);
}

void wire_decoder_trim(WireDecoder *decoder) {
    if (decoder->inflated.capacity > DECODER_KEEP_SIZE_MAX) {
        buffer_done(&decoder->inflated);
        buffer_init(&decoder->inflated, WIRE_MESSAGE_SIZE_MAX);
    }
}

bool wire_message_size(const uint8_t *data, uint32_t *ret_size) {
    int32_t size = load_i32(data);
    if (size < WIRE_HEADER_SIZE || size > WIRE_MESSAGE_SIZE_MAX)
        return false;
    *ret_size = (uint32_t)size;
    return true;
}

ErrCode wire_decode(WireDecoder *decoder, const uint8_t *data, size_t size,
                    WireMessage *ret_message, Error *err) {
    TRY(decode_header(data, size, ret_message, err));
    if (ret_message->opcode == WIRE_OP_COMPRESSED)
        TRY(inflate_message(decoder, ret_message, err));

    Cursor cursor = {ret_message->bytes + WIRE_HEADER_SIZE, ret_message->bytes + ret_message->size};
    if (LIKELY(ret_message->opcode == WIRE_OP_MSG))
        return decode_msg(cursor, ret_message, err);
    if (ret_message->opcode == WIRE_OP_QUERY)
        return decode_query(cursor, ret_message, err);
    ret_message->must_close = true;
    return error_set(err, ERR_PROTOCOL_ERROR, "unsupported opcode %u", ret_message->opcode);
}

ErrCode wire_decode_reply(WireDecoder *decoder, const uint8_t *data, size_t size,
                          WireMessage *ret_message, Error *err) {
    TRY(decode_header(data, size, ret_message, err));
    if (ret_message->opcode == WIRE_OP_COMPRESSED)
        TRY(inflate_message(decoder, ret_message, err));

    Cursor cursor = {ret_message->bytes + WIRE_HEADER_SIZE, ret_message->bytes + ret_message->size};
    if (ret_message->opcode == WIRE_OP_MSG)
        return decode_msg(cursor, ret_message, err);
    if (ret_message->opcode == WIRE_OP_REPLY)
        return decode_op_reply(cursor, ret_message, err);
    ret_message->must_close = true;
    return error_set(err, ERR_PROTOCOL_ERROR, "unsupported opcode %u in a reply",
                     ret_message->opcode);
}

/* Sets all fields that decoding relies on; the array of sequences is left as it is, being large. */
static ErrCode decode_header(const uint8_t *data, size_t size, WireMessage *message, Error *err) {
    message->request_id = 0;
    message->response_to = 0;
    message->opcode = 0;
    message->flags = 0;
    message->compressor = WIRE_COMPRESSOR_NONE;
    message->body = DOC_NONE;
    message->sequence_count = 0;
    message->query_ns = NULL;
    message->query_skip = 0;
    message->query_return = 0;
    message->bytes = data;
    message->size = (uint32_t)size;
    message->must_close = true;

    uint32_t stated;
    if (size < WIRE_HEADER_SIZE || !wire_message_size(data, &stated) || stated != size)
        return error_set(err, ERR_PROTOCOL_ERROR, "message of %zu bytes states a wrong length",
                         size);
    message->request_id = load_i32(data + 4);
    message->response_to = load_i32(data + 8);
    message->opcode = (uint32_t)load_i32(data + 12);
    message->must_close = false;
    return ERR_OK;
}

/* Builds the plain message, header included, in the decoder's buffer. */
static ErrCode inflate_message(WireDecoder *decoder, WireMessage *message, Error *err) {
    message->must_close = true; /* no reply format can be guessed from here on */
    if (message->size < WIRE_COMPRESSED_HEADER_SIZE)
        return truncated(err, "OP_COMPRESSED");
    const uint8_t *data = message->bytes;
    uint32_t opcode = (uint32_t)load_i32(data + 16);
    int32_t inflated_size = load_i32(data + 20);
    WireCompressor compressor = (WireCompressor)data[24];
    if (opcode == WIRE_OP_COMPRESSED)
        return error_set(err, ERR_PROTOCOL_ERROR, "a compressed message holds a compressed one");
    if (inflated_size < 0 || inflated_size > WIRE_MESSAGE_SIZE_MAX - WIRE_HEADER_SIZE)
        return error_set(err, ERR_BAD_VALUE,
                         "compressed message states an inflated size of %d bytes", inflated_size);
    const char *name = wire_compressor_name(compressor);
    if (name == NULL)
        return error_set(err, ERR_BAD_VALUE, "unknown compressor id %d", (int)compressor);
    if ((decoder->compressors & WIRE_COMPRESSOR_BIT(compressor)) == 0)
        return error_set(err, ERR_BAD_VALUE, "compressor \"%s\" is not enabled", name);

    int32_t header[4] = {WIRE_HEADER_SIZE + inflated_size, message->request_id,
                         message->response_to, (int32_t)opcode};
    buffer_clear(&decoder->inflated);
    buffer_append(&decoder->inflated, header, sizeof(header));
    TRY(wire_inflate(compressor, data + WIRE_COMPRESSED_HEADER_SIZE,
                     message->size - WIRE_COMPRESSED_HEADER_SIZE, (size_t)inflated_size,
                     &decoder->inflated, err));

    message->bytes = decoder->inflated.data;
    message->size = (uint32_t)decoder->inflated.size;
    message->opcode = opcode;
    message->compressor = compressor;
    message->must_close = false;
    return ERR_OK;
}

/* ---- OP_MSG ---- */

static ErrCode decode_msg(Cursor cursor, WireMessage *message, Error *err) {
    if (!take_i32(&cursor, (int32_t *)&message->flags)) {
        message->must_close = true;
        return truncated(err, "OP_MSG");
    }
    uint32_t unknown = message->flags & WIRE_FLAGS_REQUIRED & ~(uint32_t)WIRE_FLAGS_KNOWN;
    if (UNLIKELY(unknown != 0)) {
        message->must_close = true;
        return error_set(err, ERR_ILLEGAL_OP_MSG_FLAG,
                         "Message contains illegal flags value 0x%x, unknown bits 0x%x",
                         message->flags, unknown);
    }
    if (UNLIKELY((message->flags & WIRE_FLAG_CHECKSUM) != 0)) {
        if (cursor.end - cursor.at < WIRE_CHECKSUM_SIZE) {
            message->must_close = true;
            return truncated(err, "OP_MSG with checksum");
        }
        cursor.end -= WIRE_CHECKSUM_SIZE;
        uint32_t stated = (uint32_t)load_i32(cursor.end);
        if (crc32c(message->bytes, message->size - WIRE_CHECKSUM_SIZE) != stated) {
            message->must_close = true;
            return error_set(err, ERR_CHECKSUM_MISMATCH, "OP_MSG checksum does not match contents");
        }
    }
    return decode_sections(cursor, message, err);
}

static ErrCode decode_sections(Cursor cursor, WireMessage *message, Error *err) {
    while (cursor.at < cursor.end) {
        uint8_t kind = *cursor.at++;
        switch (kind) {
        case SECTION_BODY:
            if (doc_is_present(message->body))
                return error_set(err, (ErrCode)WIRE_ERR_BODY_REPEATED,
                                 "Multiple body sections in message");
            TRY(take_doc(&cursor, &message->body, err));
            break;
        case SECTION_SEQUENCE:
            TRY(decode_sequence(&cursor, message, err));
            break;
        case SECTION_SECURITY_TOKEN:
            return error_set(err, ERR_UNAUTHORIZED, "Unsupported Security Token provided");
        default:
            return error_set(err, (ErrCode)WIRE_ERR_SECTION_UNKNOWN, "Unknown section kind %u",
                             kind);
        }
    }
    if (!doc_is_present(message->body))
        return error_set(err, (ErrCode)WIRE_ERR_BODY_MISSING, "OP_MSG messages must have a body");
    if (message->sequence_count > 0)
        return check_sequence_names(message, err);
    return ERR_OK;
}

static ErrCode decode_sequence(Cursor *cursor, WireMessage *message, Error *err) {
    const uint8_t *start = cursor->at;
    int32_t size;
    if (!take_i32(cursor, &size) || size < 4 || size > cursor->end - start)
        return truncated(err, "document sequence");
    if (message->sequence_count == WIRE_SEQUENCES_MAX)
        return error_set(err, ERR_BAD_VALUE, "message has more than %d document sequences",
                         WIRE_SEQUENCES_MAX);

    Cursor inner = {cursor->at, start + size};
    WireSequence *sequence = &message->sequences[message->sequence_count];
    *sequence = (WireSequence){0};
    if (!take_cstr(&inner, &sequence->name))
        return truncated(err, "name of a document sequence");
    for (uint32_t i = 0; i < message->sequence_count; i++)
        if (str_equal(message->sequences[i].name, sequence->name))
            return error_set(err, (ErrCode)WIRE_ERR_SEQUENCE_REPEATED,
                             "Duplicate document sequence: %.100s", sequence->name.data);

    sequence->docs = inner.at;
    sequence->size = (uint32_t)(inner.end - inner.at);
    while (inner.at < inner.end) {
        Doc doc;
        TRY(take_doc(&inner, &doc, err));
        sequence->count++;
    }
    message->sequence_count++;
    cursor->at = inner.end;
    return ERR_OK;
}

static ErrCode check_sequence_names(const WireMessage *message, Error *err) {
    for (uint32_t i = 0; i < message->sequence_count; i++)
        if (elem_is_present(doc_get(message->body, message->sequences[i].name)))
            return error_set(err, (ErrCode)WIRE_ERR_FIELD_REPEATED,
                             "Duplicate field between body and document sequence %.100s",
                             message->sequences[i].name.data);
    return ERR_OK;
}

/* ---- the old messages ---- */

static ErrCode decode_query(Cursor cursor, WireMessage *message, Error *err) {
    message->must_close = true;
    Str ns;
    if (!take_i32(&cursor, (int32_t *)&message->flags) || !take_cstr(&cursor, &ns) ||
        !take_i32(&cursor, &message->query_skip) || !take_i32(&cursor, &message->query_return))
        return truncated(err, "OP_QUERY");
    message->query_ns = ns.data;
    message->must_close = false;

    TRY(take_doc(&cursor, &message->body, err));
    if (cursor.at < cursor.end) {
        Doc fields;
        TRY(take_doc(&cursor, &fields, err));
    }
    if (cursor.at != cursor.end)
        return error_set(err, ERR_INVALID_LENGTH, "OP_QUERY has bytes after its documents");
    return ERR_OK;
}

static ErrCode decode_op_reply(Cursor cursor, WireMessage *message, Error *err) {
    message->must_close = true;
    int32_t words[5]; /* flags, cursor id (two words), start, count */
    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        if (!take_i32(&cursor, &words[i]))
            return truncated(err, "OP_REPLY");
    message->flags = (uint32_t)words[0];
    TRY(take_doc(&cursor, &message->body, err));
    message->must_close = false;
    return ERR_OK;
}

/* ---- reading ---- */

static ErrCode take_doc(Cursor *cursor, Doc *ret_doc, Error *err) {
    size_t left = (size_t)(cursor->end - cursor->at);
    if (left < BSON_DOC_SIZE_MIN)
        return truncated(err, "document");
    int32_t size = load_i32(cursor->at);
    if (size < BSON_DOC_SIZE_MIN || (size_t)size > left)
        return error_set(err, ERR_INVALID_BSON,
                         "document states a length of %d bytes where %zu are left", size, left);
    if (size > BSON_DOC_SIZE_MAX_INTERNAL)
        return error_set(err, ERR_BSON_OBJECT_TOO_LARGE,
                         "BSONObj size: %d (0x%X) is invalid. Size must be between 0 and %d(16MB)",
                         size, (unsigned)size, BSON_DOC_SIZE_MAX_INTERNAL);
    TRY(doc_validate(cursor->at, (size_t)size, BSON_DEPTH_MAX, VALIDATE_BASIC, err));
    *ret_doc = (Doc){cursor->at};
    cursor->at += size;
    return ERR_OK;
}

static bool take_i32(Cursor *cursor, int32_t *ret_value) {
    if (cursor->end - cursor->at < 4)
        return false;
    *ret_value = load_i32(cursor->at);
    cursor->at += 4;
    return true;
}

static bool take_cstr(Cursor *cursor, Str *ret_text) {
    size_t left = (size_t)(cursor->end - cursor->at);
    const uint8_t *nul = left > 0 ? memchr(cursor->at, '\0', left) : NULL;
    if (nul == NULL)
        return false;
    *ret_text = (Str){(const char *)cursor->at, (size_t)(nul - cursor->at)};
    cursor->at = nul + 1;
    return true;
}

static ErrCode truncated(Error *err, const char *what) {
    return error_set(err, ERR_INVALID_LENGTH, "%s ends before its stated length", what);
}
