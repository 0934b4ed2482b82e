/*
 * compression.h - the four ways a message can be packed on the wire.
 *
 * Threading: pure functions; any thread.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/error.h"
#include "bson/doc.h"

/* Numbers of the wire protocol. */
typedef enum WireCompressor {
    WIRE_COMPRESSOR_NOOP = 0,
    WIRE_COMPRESSOR_SNAPPY = 1,
    WIRE_COMPRESSOR_ZLIB = 2,
    WIRE_COMPRESSOR_ZSTD = 3,
    WIRE_COMPRESSOR_COUNT = 4,
    WIRE_COMPRESSOR_NONE = 255, /* ours, never on the wire: the message is not compressed */
} WireCompressor;

#define WIRE_COMPRESSOR_BIT(compressor) (1u << (compressor))
#define WIRE_COMPRESSORS_ALL            0xFu

/* "snappy", "zlib", "zstd", "noop"; NULL for other numbers. */
const char *wire_compressor_name(WireCompressor compressor);
/* WIRE_COMPRESSOR_NONE when there is none of that name. */
WireCompressor wire_compressor_from_name(Str name);

/* Appends exactly `inflated_size` bytes to `out`, or nothing: a stream that holds more or less than
 * it claims, or is damaged, fails with ERR_BAD_VALUE. The caller has bounded `inflated_size`. */
ErrCode wire_inflate(WireCompressor compressor, const uint8_t *data, size_t size,
                     size_t inflated_size, Buffer *out, Error *err) MUST_CHECK;

/* Appends the packed form of `data` to `out`; false when it would not fit into the buffer's bound
 * (nothing is appended then). */
bool wire_deflate(WireCompressor compressor, const uint8_t *data, size_t size, Buffer *out);
