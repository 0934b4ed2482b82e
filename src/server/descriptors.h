/*
 * descriptors.h - who may have how many of the process's descriptors.
 *
 * Each connection and each open table file takes one. Without shares either of them can take all,
 * and a database that cannot open its next journal file ends.
 */
#pragma once

#include <stdint.h>

typedef struct DescriptorShares {
    uint32_t connections; /* from clients, at once */
    uint32_t members;     /* connections from other members, when clients have used up theirs */
    uint32_t table_files; /* open at once; see storage/file_pool.h */
} DescriptorShares;

/* Raises the process's limit as far as it may and returns it. */
uint64_t descriptors_raise_limit(void);

/* `connections_wanted` is what the options say. What neither of the shares has is left for the
 * journal, the log, temporary files and connections to other members. */
DescriptorShares descriptors_share(uint64_t limit, uint64_t connections_wanted);
