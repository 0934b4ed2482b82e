/*
 * crc32c.h - CRC-32C (Castagnoli), the checksum an OP_MSG may end with.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Uses the processor's instruction where there is one. */
uint32_t crc32c(const void *data, size_t size);

/* The same by table; public so that the test can hold the two against each other. */
uint32_t crc32c_by_table(const void *data, size_t size);
