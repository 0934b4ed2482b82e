/*
 * cmd_test_api_versions.c - commands that do nothing, for tests of how versions of the Stable API
 * are declared: in which ones a command is, and where it is deprecated.
 */
#include "commands/core/command.h"

static ErrCode do_nothing(CommandCtx *ctx, void *arg, Error *err) {
    (void)ctx, (void)arg, (void)err;
    return ERR_OK;
}

#define TEST_COMMAND(symbol, command, api_flags)                                                   \
    const CommandSpec symbol = {                                                                   \
        .name = command,                                                                           \
        .summary = "Does nothing.",                                                                \
        .flags = CMD_NEEDS_TEST_COMMANDS | (api_flags),                                            \
        .run = do_nothing,                                                                         \
    }

TEST_COMMAND(CMD_TEST_DEPRECATION, "testDeprecation", CMD_API_V1 | CMD_API_V1_DEPRECATED);
TEST_COMMAND(CMD_TEST_DEPRECATION_IN_VERSION_2, "testDeprecationInVersion2",
             CMD_API_V1 | CMD_API_V2 | CMD_API_V2_DEPRECATED);
TEST_COMMAND(CMD_TEST_REMOVAL, "testRemoval", CMD_API_V1);
TEST_COMMAND(CMD_TEST_VERSION_2, "testVersion2", CMD_API_V2);
TEST_COMMAND(CMD_TEST_VERSIONS_1_AND_2, "testVersions1And2", CMD_API_V1 | CMD_API_V2);
