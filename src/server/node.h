/*
 * node.h - a data node: everything it is made of, started in order and stopped in reverse.
 *
 * This is the only place that knows all the parts. See README.md for the order and why.
 */
#pragma once

#include "server/options.h"

/* Runs until it is told to stop; returns the exit code of the process. `ready_fd` gets one byte
 * when clients are served (-1: nobody waits for it). */
int node_run(const Options *options, const char *process_name, int ready_fd);
