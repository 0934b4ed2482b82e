/*
 * check_commands.h - checkMetadataConsistency, as clients of a router ask for it (DDL-3).
 */
#pragma once

#include "commands/core/command.h"

extern const CommandSpec ROUTER_CHECK_METADATA_CONSISTENCY;
