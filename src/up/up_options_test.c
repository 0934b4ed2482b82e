#include "up/up_options.h"

#include "base/test.h"

#define PARSE(options, err, ...)                                                                   \
    up_options_parse((int)ARRAY_LEN(((char *[]){__VA_ARGS__})), (char *[]){__VA_ARGS__}, options,  \
                     err)

TEST(up_options_have_two_forms) {
    CLEANUP(error_reset) Error err = {0};
    UpOptions options;
    REQUIRE_OK(PARSE(&options, &err, "--shards", "3", "--replicas=5", "--port", "4000", "--dir=x"),
               err);
    EXPECT_EQ_I64(options.shards, 3);
    EXPECT_EQ_I64(options.replicas, 5);
    EXPECT_EQ_I64(options.port, 4000);
    EXPECT_EQ_I64(options.routers, 0);
    EXPECT_STR(options.dir, "x");
    EXPECT(!options.is_status && !options.is_help);
}

TEST(up_options_that_are_wrong_are_named) {
    static const struct {
        char *argument;
        char *value; /* NULL: none */
        const char *message;
    } CASES[] = {
        {"--shards", NULL, "--shards needs a value"},
        {"--shards", "0", "--shards has to be a number from 1 to 64, not \"0\""},
        {"--shards", "two", "--shards has to be a number from 1 to 64, not \"two\""},
        {"--shards", "-1", "--shards has to be a number from 1 to 64, not \"-1\""},
        {"--shards", "2x", "--shards has to be a number from 1 to 64, not \"2x\""},
        {"--replicas", "8", "--replicas has to be a number from 1 to 7, not \"8\""},
        {"--port", "65536", "--port has to be a number from 1 to 65535, not \"65536\""},
        {"--port", "99999999999999999999",
         "--port has to be a number from 1 to 65535, not \"99999999999999999999\""},
        {"--status=1", NULL, "--status takes no value"},
        {"--dir=", NULL, "--dir must not be empty"},
        {"--shard", "1", "unknown option \"--shard\""},
        {"here", NULL, "unexpected argument \"here\""},
    };
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        CLEANUP(error_reset) Error err = {0};
        UpOptions options;
        char *argv[] = {CASES[i].argument, CASES[i].value};
        int argc = CASES[i].value == NULL ? 1 : 2;
        EXPECT(up_options_parse(argc, argv, &options, &err) == ERR_BAD_VALUE);
        EXPECT_STR(error_message(&err), CASES[i].message);
    }
}
