#include "server/descriptors.h"

#include <sys/resource.h>

enum {
    CONNECTIONS_PERCENT = 80, /* of the limit, at most */
    /* Kept back from connections even where the limit is low. */
    NOT_CONNECTIONS_MIN = 128,
    /* Of what connections do not get: for everything that is neither. */
    OTHERS_PERCENT = 40,
    CONNECTIONS_MIN = 16,
    TABLE_FILES_MIN = 16,
    MEMBERS_MIN = 8,
    MEMBERS_MAX = 256,
};

uint64_t descriptors_raise_limit(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return 0;
    rlim_t soft = limit.rlim_cur;
    if (soft < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        if (setrlimit(RLIMIT_NOFILE, &limit) != 0)
            return soft;
    }
    return limit.rlim_cur;
}

static uint64_t least(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

static uint64_t most(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

DescriptorShares descriptors_share(uint64_t limit, uint64_t connections_wanted) {
    limit = least(limit, UINT32_MAX);
    uint64_t connections = least(limit * CONNECTIONS_PERCENT / 100,
                                 limit > NOT_CONNECTIONS_MIN ? limit - NOT_CONNECTIONS_MIN : 0);
    connections = least(most(connections, CONNECTIONS_MIN), connections_wanted);
    uint64_t rest = limit > connections ? limit - connections : 0;
    uint64_t table_files = most(rest - rest * OTHERS_PERCENT / 100, TABLE_FILES_MIN);
    uint64_t others = rest * OTHERS_PERCENT / 100;
    uint64_t members = least(most(others / 4, MEMBERS_MIN), MEMBERS_MAX);
    return (DescriptorShares){.connections = (uint32_t)connections,
                              .members = (uint32_t)members,
                              .table_files = (uint32_t)table_files};
}
