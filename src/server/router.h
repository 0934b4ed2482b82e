/*
 * router.h - a query router: everything it is made of, started in order and stopped in reverse.
 */
#pragma once

#include "server/options.h"

/* As node_run. */
int router_run(const Options *options, const char *process_name, int ready_fd);
