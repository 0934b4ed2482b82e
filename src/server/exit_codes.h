/* exit_codes.h - how the process ends, in numbers that supervisors and scripts of MongoDB know. */
#pragma once

enum {
    EXIT_CODE_CLEAN = 0,
    EXIT_CODE_BAD_OPTIONS = 2,
    EXIT_CODE_KILLED = 12, /* by SIGINT during the stop */
    EXIT_CODE_ABRUPT = 14, /* the storage engine cannot go on */
    EXIT_CODE_NETWORK = 48,
    EXIT_CODE_STARTUP = 100, /* data path, locks, permissions */
};
