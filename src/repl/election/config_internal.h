/* config_internal.h - how a ReplConfig is held and written; for the config*.c files only. */
#pragma once

#include "repl/election/config.h"

typedef struct ReplConfigHolder {
    ReplConfig config; /* first: a ReplConfig pointer is one to its holder */
    Arena arena;
    int refs; /* atomic */
} ReplConfigHolder;

/* The document of a configuration with `edit` applied (NULL: as it is). */
Doc repl_config_build(Buffer *buf, const ReplConfig *config, const ReplConfigEdit *edit);
