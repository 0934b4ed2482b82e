/* param_hooks.h - what a change of a server parameter does to the rest of the server. */
#pragma once

#include "params/params.h"

extern const ParamHooks PARAM_HOOKS[PARAM_COUNT];        /* of a data node */
extern const ParamHooks ROUTER_PARAM_HOOKS[PARAM_COUNT]; /* of a router: it has no storage */
