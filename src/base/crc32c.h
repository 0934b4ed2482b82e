/*
 * crc32c.h - CRC-32C (Castagnoli), the checksum an OP_MSG may end with, and that of kept
 * run files.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Uses the processor's instruction where there is one. */
uint32_t crc32c(const void *data, size_t size);
/* Of some bytes and then more: `before` is the checksum so far, 0 at first. */
uint32_t crc32c_extend(uint32_t before, const void *data, size_t size);

/* The same by table; public so that the test can compare the two. */
uint32_t crc32c_by_table(const void *data, size_t size);
