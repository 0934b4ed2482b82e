/*
 * wire_fuzz.c - libFuzzer target: one message from a client, and the same bytes as a reply.
 *
 * The stated length is set to the true one, so that the fuzzer gets past the first check; lying
 * lengths are covered by the unit tests. Whatever decodes is walked to its last byte.
 */
#include <stddef.h>
#include <stdint.h>

#include "base/alloc.h"
#include "transport/wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void walk_docs(const uint8_t *docs, uint32_t size, uint32_t count) {
    uint32_t seen = 0;
    for (uint32_t at = 0; at < size; seen++) {
        Doc doc = {docs + at};
        (void)doc_count(doc);
        at += doc_size(doc);
        invariant(at <= size);
    }
    invariant(seen == count);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < WIRE_HEADER_SIZE || size > 1 << 20)
        return 0;
    uint8_t *message_bytes = xmemdup(data, size);
    int32_t stated = (int32_t)size;
    memcpy(message_bytes, &stated, sizeof(stated));

    WireDecoder decoder;
    wire_decoder_init(&decoder, WIRE_COMPRESSORS_ALL);
    for (int is_reply = 0; is_reply < 2; is_reply++) {
        WireMessage message;
        Error err = {0};
        ErrCode rc = is_reply != 0
                         ? wire_decode_reply(&decoder, message_bytes, size, &message, &err)
                         : wire_decode(&decoder, message_bytes, size, &message, &err);
        if (rc == ERR_OK) {
            invariant(!message.must_close);
            walk_docs(message.body.data, doc_size(message.body), 1);
            for (uint32_t i = 0; i < message.sequence_count; i++)
                walk_docs(message.sequences[i].docs, message.sequences[i].size,
                          message.sequences[i].count);
        } else {
            invariant(err.code == rc);
        }
        error_reset(&err);
    }
    wire_decoder_done(&decoder);
    xfree(message_bytes);
    return 0;
}
