#include "commands/node_commands.h"

static const CommandSpec *const SPECS[] = {
#define COMMAND(symbol) &symbol,
#include "commands/command_list.def"
#undef COMMAND
#define REFUSED_COMMAND(symbol, name, reason) &symbol,
#include "commands/refused_commands.def"
#undef REFUSED_COMMAND
};

const CommandTable NODE_COMMANDS = {SPECS, ARRAY_LEN(SPECS)};
