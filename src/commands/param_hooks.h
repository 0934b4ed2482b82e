/* param_hooks.h - what a change of a server parameter does to the rest of the server. */
#pragma once

#include "commands/core/params.h"

extern const ParamHooks PARAM_HOOKS[PARAM_COUNT];
