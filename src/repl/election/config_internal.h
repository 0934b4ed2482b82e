/* config_internal.h - how a ReplConfig is held and written; for the config*.c files only. */
#pragma once

#include "repl/election/config.h"

typedef struct ReplConfigHolder {
    ReplConfig config; /* first: a ReplConfig pointer is one to its holder */
    Arena arena;
    int refs; /* atomic */
} ReplConfigHolder;

/* ---- config_horizons.c ---- */

/* The field `horizons` of one member. */
ErrCode repl_horizons_parse(Elem horizons, Arena *arena, ReplMemberConfig *member, Error *err)
    MUST_CHECK;
/* Those of all members together. */
ErrCode repl_horizons_check(const ReplConfig *config, ReplConfigParseFlags flags, Error *err)
    MUST_CHECK;

/* ---- config.c ---- */

/* The document of a configuration with `edit` applied (NULL: as it is). */
Doc repl_config_build(Buffer *buf, const ReplConfig *config, const ReplConfigEdit *edit);
