/*
 * compression_fuzz.c - libFuzzer target: damaged packed data, and packing followed by unpacking.
 *
 * The first byte chooses the compressor, the next two the claimed size.
 */
#include <stddef.h>
#include <stdint.h>

#include "base/alloc.h"
#include "transport/compression.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 3)
        return 0;
    WireCompressor compressor = (WireCompressor)(data[0] % WIRE_COMPRESSOR_COUNT);
    size_t claim = (size_t)data[1] << 8 | data[2];
    const uint8_t *payload = data + 3;
    size_t payload_size = size - 3;

    /* Exactly as much room as is claimed: the sanitizer sees any byte beyond it. */
    Buffer out = {.data = xmalloc(claim + 1), .capacity = claim + 1, .size_max = claim + 1};
    out.size = 1;
    Error err = {0};
    ErrCode rc = wire_inflate(compressor, payload, payload_size, claim, &out, &err);
    invariant(out.size == (rc == ERR_OK ? claim + 1 : 1));
    uint64_t sum = 0;
    for (size_t i = 1; i < out.size; i++) /* a memory checker sees uninitialised bytes here */
        sum += out.data[i];
    invariant(sum <= 255 * (uint64_t)out.size);
    error_reset(&err);
    buffer_done(&out);

    Buffer packed;
    buffer_init(&packed, (size_t)1 << 24);
    buffer_append_byte(&packed, 0);
    invariant(wire_deflate(compressor, payload, payload_size, &packed));
    buffer_init(&out, (size_t)1 << 24);
    buffer_append_byte(&out, 0);
    rc = wire_inflate(compressor, packed.data + 1, packed.size - 1, payload_size, &out, &err);
    invariant(rc == ERR_OK);
    invariant(memcmp(out.data + 1, payload, payload_size) == 0);
    buffer_done(&out);
    buffer_done(&packed);
    return 0;
}
