/*
 * up_options.h - the arguments of `sherd up`.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

enum {
    UP_SHARDS_MAX = 64,
    UP_REPLICAS_MAX = 7, /* as many members of a set may vote */
    UP_ROUTERS_MAX = 16,
};

/* Numbers are 0 where nothing was given: what the directory remembers holds then, or else a
 * default. */
typedef struct UpOptions {
    uint32_t shards;
    uint32_t replicas;
    uint32_t routers;
    uint32_t port; /* of the first router */
    const char *dir;
    bool is_status;
    bool is_help;
} UpOptions;

/* `argv` holds what follows the sub-command, and has to outlive the result. */
ErrCode up_options_parse(int argc, char **argv, UpOptions *ret_options, Error *err) MUST_CHECK;
void up_options_print_help(void);
