/*
 * version.h - who we are, and which MongoDB we answer as.
 */
#pragma once

#include "catalog/fcv.h"

#define SHERD_VERSION "0.1.0"

/* Drivers and tools decide by these what they may use. */
#define COMPAT_VERSION       "7.0.14"
#define COMPAT_VERSION_MAJOR 7
#define COMPAT_VERSION_MINOR 0
#define COMPAT_VERSION_PATCH 14
#define COMPAT_FCV           FCV_VERSION

enum {
    COMPAT_WIRE_VERSION_MIN = 0,
    COMPAT_WIRE_VERSION_MAX = 21,
};

/* The commit; set by the build for the files that tell it. */
#ifndef SHERD_GIT_VERSION
#define SHERD_GIT_VERSION "0000000000000000000000000000000000000000"
#endif
