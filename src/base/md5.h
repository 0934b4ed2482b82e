/*
 * md5.h - MD5 (RFC 1321), for values that others compute alike. It protects nothing.
 *
 * Of our own, since hashed shard keys need it for each document, and for one of a few bytes the
 * general interface of a library costs several times the digest itself.
 *
 * Ownership: a plain value, nothing to release. Threading: one thread.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum {
    MD5_DIGEST_SIZE = 16,
    MD5_BLOCK_SIZE = 64,
};

typedef struct Md5 {
    uint32_t state[4];
    uint64_t size; /* bytes added */
    uint8_t block[MD5_BLOCK_SIZE];
} Md5;

void md5_init(Md5 *md5);
void md5_add(Md5 *md5, const void *data, size_t size);
/* The digest of what was added; nothing can be added after it. */
void md5_end(Md5 *md5, uint8_t ret_digest[MD5_DIGEST_SIZE]);
