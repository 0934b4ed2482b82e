#include "transport/compression.h"

#include <snappy-c.h>
#include <zlib.h>
#include <zstd.h>

enum {
    ZSTD_LEVEL = 3,
};

static const char *const COMPRESSOR_NAMES[WIRE_COMPRESSOR_COUNT] = {"noop", "snappy", "zlib",
                                                                    "zstd"};

static bool inflate_exactly(WireCompressor compressor, const uint8_t *data, size_t size,
                            uint8_t *out, size_t out_size);
static size_t deflate_bound(WireCompressor compressor, size_t size);
static size_t deflate_into(WireCompressor compressor, const uint8_t *data, size_t size,
                           uint8_t *out, size_t out_size);

const char *wire_compressor_name(WireCompressor compressor) {
    return (unsigned)compressor < WIRE_COMPRESSOR_COUNT ? COMPRESSOR_NAMES[compressor] : NULL;
}

WireCompressor wire_compressor_from_name(Str name) {
    for (int i = 0; i < WIRE_COMPRESSOR_COUNT; i++)
        if (str_is(name, COMPRESSOR_NAMES[i]))
            return (WireCompressor)i;
    return WIRE_COMPRESSOR_NONE;
}

ErrCode wire_inflate(WireCompressor compressor, const uint8_t *data, size_t size,
                     size_t inflated_size, Buffer *out, Error *err) {
    const char *name = wire_compressor_name(compressor);
    if (name == NULL)
        return error_set(err, ERR_BAD_VALUE, "unknown compressor id %d", (int)compressor);
    uint8_t *at = buffer_reserve(out, inflated_size);
    if (at == NULL)
        return error_set(err, ERR_BAD_VALUE, "inflated message of %zu bytes is too large",
                         inflated_size);
    if (!inflate_exactly(compressor, data, size, at, inflated_size))
        return error_set(err, ERR_BAD_VALUE,
                         "%s data does not inflate to the stated size of %zu bytes", name,
                         inflated_size);
    out->size += inflated_size;
    return ERR_OK;
}

bool wire_deflate(WireCompressor compressor, const uint8_t *data, size_t size, Buffer *out) {
    size_t bound = deflate_bound(compressor, size);
    uint8_t *at = buffer_reserve(out, bound);
    if (at == NULL)
        return false;
    size_t written = deflate_into(compressor, data, size, at, bound);
    out->size += written;
    return written > 0 || size == 0;
}

static bool inflate_exactly(WireCompressor compressor, const uint8_t *data, size_t size,
                            uint8_t *out, size_t out_size) {
    switch (compressor) {
    case WIRE_COMPRESSOR_NOOP:
        if (size != out_size)
            return false;
        if (size > 0)
            memcpy(out, data, size);
        return true;
    case WIRE_COMPRESSOR_SNAPPY: {
        /* The stream states its own length; it is held against the claim before anything runs. */
        size_t stated;
        if (snappy_uncompressed_length((const char *)data, size, &stated) != SNAPPY_OK ||
            stated != out_size)
            return false;
        size_t written = out_size;
        return snappy_uncompress((const char *)data, size, (char *)out, &written) == SNAPPY_OK &&
               written == out_size;
    }
    case WIRE_COMPRESSOR_ZLIB: {
        uLongf written = out_size;
        uLong consumed = size;
        uint8_t none; /* zlib wants an address even when there is nothing to write */
        return uncompress2(out_size > 0 ? out : &none, &written, data, &consumed) == Z_OK &&
               written == out_size && consumed == size;
    }
    case WIRE_COMPRESSOR_ZSTD: {
        size_t written = ZSTD_decompress(out, out_size, data, size);
        return !ZSTD_isError(written) && written == out_size;
    }
    default:
        return false;
    }
}

static size_t deflate_bound(WireCompressor compressor, size_t size) {
    switch (compressor) {
    case WIRE_COMPRESSOR_SNAPPY:
        return snappy_max_compressed_length(size);
    case WIRE_COMPRESSOR_ZLIB:
        return compressBound(size);
    case WIRE_COMPRESSOR_ZSTD:
        return ZSTD_compressBound(size);
    default:
        return size;
    }
}

/* Bytes written; 0 means that it failed, which none of them does with room for the bound. */
static size_t deflate_into(WireCompressor compressor, const uint8_t *data, size_t size,
                           uint8_t *out, size_t out_size) {
    switch (compressor) {
    case WIRE_COMPRESSOR_SNAPPY: {
        size_t written = out_size;
        return snappy_compress((const char *)data, size, (char *)out, &written) == SNAPPY_OK
                   ? written
                   : 0;
    }
    case WIRE_COMPRESSOR_ZLIB: {
        uLongf written = out_size;
        return compress2(out, &written, data, size, Z_DEFAULT_COMPRESSION) == Z_OK ? written : 0;
    }
    case WIRE_COMPRESSOR_ZSTD: {
        size_t written = ZSTD_compress(out, out_size, data, size, ZSTD_LEVEL);
        return ZSTD_isError(written) ? 0 : written;
    }
    default:
        if (size > 0)
            memcpy(out, data, size);
        return size;
    }
}
