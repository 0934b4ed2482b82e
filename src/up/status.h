/*
 * status.h - `sherd up --status`: shows the cluster that runs in a directory.
 */
#pragma once

#include <stdbool.h>

#include "base/error.h"

/* Prints the tree; *ret_found is false, and nothing printed, when no cluster runs there. */
ErrCode status_show(const char *dir, bool *ret_found, Error *err) MUST_CHECK;
