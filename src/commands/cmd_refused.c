/* cmd_refused.c - commands that are refused by name. */
#include "commands/core/refused.h"

#define REFUSED_COMMAND(symbol, command, reason)                                                   \
    const CommandSpec symbol = REFUSED_SPEC(command, reason);
#include "commands/refused_commands.def"
#undef REFUSED_COMMAND
