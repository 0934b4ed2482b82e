#include "server/options.h"

#include "base/test.h"
#include "bson/json.h"

/* Parses the arguments, given as one array that ends with NULL. */
static ErrCode parse(Options *options, const char *const *arguments, Error *err) {
    static char *argv[16];
    int argc = 0;
    argv[argc++] = (char *)"sherd";
    argv[argc++] = (char *)"serve";
    for (; *arguments != NULL; arguments++)
        argv[argc++] = (char *)*arguments;
    options_init(options, PROGRAM_NODE, "sherd serve");
    return options_parse(options, argc, argv, /* skip= */ 2, err);
}

#define ARGS(...) ((const char *const[]){__VA_ARGS__, NULL})

static void expect_refused(const char *const *arguments, const char *part_of_message) {
    CLEANUP(options_done) Options options;
    CLEANUP(error_reset) Error err = {0};
    EXPECT_EQ_I64(parse(&options, arguments, &err), ERR_BAD_VALUE);
    if (strstr(error_message(&err), part_of_message) == NULL)
        test_fail(__FILE__, __LINE__, "\"%s\" does not say \"%s\"", error_message(&err),
                  part_of_message);
}

TEST(options_have_the_defaults_of_mongod) {
    CLEANUP(options_done) Options options;
    CLEANUP(error_reset) Error err = {0};
    REQUIRE_OK(parse(&options, (const char *const[]){NULL}, &err), err);
    EXPECT_EQ_I64(option_i64(&options, OPTION_PORT), 27017);
    EXPECT_STR(option_text(&options, OPTION_DB_PATH), "/data/db");
    EXPECT(option_f64(&options, OPTION_SYNCDELAY) == 60);
    EXPECT(!option_is_set(&options, OPTION_PORT));
}

TEST(option_value_comes_behind_a_space_or_an_equals_sign) {
    CLEANUP(options_done) Options options;
    CLEANUP(error_reset) Error err = {0};
    REQUIRE_OK(parse(&options,
                     ARGS("--port=1234", "--dbpath", "/x", "--quiet", "-vvv", "--setParameter=a=b",
                          "--setParameter", "c=d"),
                     &err),
               err);
    EXPECT_EQ_I64(option_i64(&options, OPTION_PORT), 1234);
    EXPECT_STR(option_text(&options, OPTION_DB_PATH), "/x");
    EXPECT(option_bool(&options, OPTION_QUIET));
    EXPECT_EQ_I64(option_i64(&options, OPTION_VERBOSE), 3);
    EXPECT_EQ_I64(options.values[OPTION_SET_PARAMETER].list_count, 2);
    EXPECT_STR(options.values[OPTION_SET_PARAMETER].list[0], "a=b");
    EXPECT_STR(options.values[OPTION_SET_PARAMETER].list[1], "c=d");
}

TEST(options_that_mean_nothing_here_are_refused_by_name) {
    expect_refused(ARGS("--foo"), "unrecognised option '--foo'");
    expect_refused(ARGS("--foo=1"), "unrecognised option '--foo'");
    expect_refused(ARGS("-q"), "unrecognised option '-q'");
    expect_refused(ARGS("stray"), "too many positional options");
    expect_refused(ARGS("--port"), "'--port' is missing");
    expect_refused(ARGS("--port", "x"), "('x') for option '--port' is invalid");
    expect_refused(ARGS("--port", "70000"), "outside of the range");
    expect_refused(ARGS("--port", "1", "--port", "2"), "Multiple occurrences");
    expect_refused(ARGS("--shardsvr"), "need --replSet");
    expect_refused(ARGS("--shardsvr", "--configsvr", "--replSet", "a"), "exclude each other");
    expect_refused(ARGS("--configdb", "a/b:1"), "unrecognised option '--configdb'");
    expect_refused(ARGS("--auth"), "access control is not available");
    expect_refused(ARGS("--nojournal"), "without a journal");
    expect_refused(ARGS("--storageEngine", "inMemory"), "only 'wiredTiger' is supported");
    expect_refused(ARGS("--wiredTigerCollectionBlockCompressor=zstd"), "only 'snappy'");
    expect_refused(ARGS("--tlsMode", "requireTLS"), "only 'disabled'");
    expect_refused(ARGS("--logRotate", "other"), "rename|reopen");
    expect_refused(ARGS("--fork"), "--logpath");
    expect_refused(ARGS("--configExpand=rest"), "only 'none'");
    expect_refused(ARGS("--redactClientLogData"), "is not available");
    expect_refused(ARGS("--oplogMinRetentionHours=-1"), "outside of the range");
}

TEST(the_one_supported_value_of_an_option_is_accepted) {
    CLEANUP(options_done) Options options;
    CLEANUP(error_reset) Error err = {0};
    EXPECT_OK(parse(&options,
                    ARGS("--storageEngine", "wiredTiger", "--tlsMode", "disabled", "--noauth",
                         "--wiredTigerJournalCompressor", "snappy", "--directoryperdb=false"),
                    &err),
              err);
}

TEST(config_file_sets_what_the_command_line_leaves_open) {
    static const char YAML[] = "net:\n  port: 1\n  bindIp: localhost\n  unixDomainSocket:\n"
                               "    enabled: false\n"
                               "setParameter:\n  quiet: true\n"
                               "operationProfiling:\n  mode: slowOp\n"
                               "security:\n";
    CLEANUP(options_done) Options options;
    CLEANUP(error_reset) Error err = {0};
    REQUIRE_OK(parse(&options, ARGS("--port", "2"), &err), err);
    REQUIRE_OK(options_read_yaml(&options, YAML, sizeof(YAML) - 1, &err), err);
    EXPECT_EQ_I64(option_i64(&options, OPTION_PORT), 2);
    EXPECT_STR(option_text(&options, OPTION_BIND_IP), "localhost");
    EXPECT(option_bool(&options, OPTION_NO_UNIX_SOCKET));
    EXPECT_EQ_I64(option_i64(&options, OPTION_PROFILE), 1);
    EXPECT_STR(options.values[OPTION_SET_PARAMETER].list[0], "quiet=true");
}

TEST(config_file_errors_name_the_line_and_the_option) {
    static const struct {
        const char *yaml;
        const char *message;
    } CASES[] = {
        {"net:\n  prot: 1\n", "line 2: Unrecognized option: net.prot"},
        {"nett: 1\n", "line 1: Unrecognized option: nett"},
        {"net: [1, 2]\n", "option net does not take a list"},
        {"- a\n", "has to be a mapping"},
        {"net: {\n", "line"},
        {"storage:\n  journal:\n    enabled: false\n", "without a journal"},
        {"sharding:\n  clusterRole: other\n", "none of shardsvr|configsvr"},
        {"net:\n  port: 1\n  port: 2\n", "Multiple occurrences"},
        {"? [a]\n: 1\n", "has to be a text"},
    };
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        CLEANUP(options_done) Options options;
        CLEANUP(error_reset) Error err = {0};
        options_init(&options, PROGRAM_NODE, "sherd serve");
        EXPECT_EQ_I64(options_read_yaml(&options, CASES[i].yaml, strlen(CASES[i].yaml), &err),
                      ERR_BAD_VALUE);
        if (strstr(error_message(&err), CASES[i].message) == NULL)
            test_fail(__FILE__, __LINE__, "case %zu: \"%s\"", i, error_message(&err));
    }
}

TEST(parsed_options_tell_where_the_set_was_named) {
    CLEANUP(options_done) Options options;
    CLEANUP(error_reset) Error err = {0};
    REQUIRE_OK(parse(&options, ARGS("--replSet", "a"), &err), err);
    char *text = shell_text_of_doc(options_parsed_doc(&options, &options.arena), &options.arena);
    EXPECT_STR(text, "{ replication: { replSet: \"a\" } }");
    CLEANUP(options_done) Options of_file;
    options_init(&of_file, PROGRAM_NODE, "sherd serve");
    const char *yaml = "replication: {replSetName: b}";
    REQUIRE_OK(options_read_yaml(&of_file, yaml, strlen(yaml), &err), err);
    text = shell_text_of_doc(options_parsed_doc(&of_file, &of_file.arena), &of_file.arena);
    EXPECT_STR(text, "{ replication: { replSetName: \"b\" } }");
}

TEST(parsed_options_are_shown_as_a_config_file) {
    CLEANUP(options_done) Options options;
    CLEANUP(error_reset) Error err = {0};
    REQUIRE_OK(parse(&options,
                     ARGS("--port", "5", "--dbpath", "/x", "--nounixsocket",
                          "--journalCommitInterval", "7", "--setParameter", "quiet=1"),
                     &err),
               err);
    char *text = shell_text_of_doc(options_parsed_doc(&options, &options.arena), &options.arena);
    EXPECT_STR(text,
               "{ setParameter: { quiet: \"1\" }, net: { port: 5, unixDomainSocket: { enabled: "
               "false } }, storage: { dbPath: \"/x\", journal: { commitIntervalMs: 7 } } }");
}
