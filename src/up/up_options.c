#include "up/up_options.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DIR_DEFAULT "sherd-data"

typedef enum FlagKind {
    FLAG_NUMBER, /* 1 .. max */
    FLAG_TEXT,
    FLAG_SWITCH,
} FlagKind;

typedef struct Flag {
    const char *name;
    FlagKind kind;
    size_t offset; /* in UpOptions */
    uint32_t max;  /* of a number */
    const char *value_name;
    const char *help;
} Flag;

static const Flag FLAGS[] = {
    {"shards", FLAG_NUMBER, offsetof(UpOptions, shards), UP_SHARDS_MAX, "N",
     "How many shards; may grow from one start to the next (2)"},
    {"replicas", FLAG_NUMBER, offsetof(UpOptions, replicas), UP_REPLICAS_MAX, "M",
     "Members of each shard, and of the config server (1)"},
    {"routers", FLAG_NUMBER, offsetof(UpOptions, routers), UP_ROUTERS_MAX, "R",
     "How many routers (1)"},
    {"port", FLAG_NUMBER, offsetof(UpOptions, port), UINT16_MAX, "P",
     "Port of the first router; further ones follow it (27017)"},
    {"dir", FLAG_TEXT, offsetof(UpOptions, dir), 0, "D",
     "Directory of data, logs and ports; made if missing (./" DIR_DEFAULT ")"},
    {"status", FLAG_SWITCH, offsetof(UpOptions, is_status), 0, "",
     "Show the cluster that runs in the directory"},
    {"help", FLAG_SWITCH, offsetof(UpOptions, is_help), 0, "", "Show this text"},
};

static const Flag *find_flag(const char *name, size_t size) {
    for (size_t i = 0; i < ARRAY_LEN(FLAGS); i++)
        if (strlen(FLAGS[i].name) == size && memcmp(FLAGS[i].name, name, size) == 0)
            return &FLAGS[i];
    return NULL;
}

static ErrCode parse_number(const Flag *flag, const char *text, uint32_t *ret_number, Error *err) {
    char *end;
    errno = 0;
    unsigned long number = strtoul(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0 || number < 1 ||
        number > flag->max)
        return error_set(err, ERR_BAD_VALUE, "--%s has to be a number from 1 to %u, not \"%s\"",
                         flag->name, flag->max, text);
    *ret_number = (uint32_t)number;
    return ERR_OK;
}

static ErrCode set_flag(UpOptions *options, const Flag *flag, const char *value, Error *err) {
    char *field = (char *)options + flag->offset;
    if (flag->kind == FLAG_SWITCH) {
        *(bool *)field = true;
        return ERR_OK;
    }
    if (flag->kind == FLAG_NUMBER)
        return parse_number(flag, value, (uint32_t *)field, err);
    if (*value == '\0')
        return error_set(err, ERR_BAD_VALUE, "--%s must not be empty", flag->name);
    *(const char **)field = value;
    return ERR_OK;
}

ErrCode up_options_parse(int argc, char **argv, UpOptions *ret_options, Error *err) {
    UpOptions options = {.dir = DIR_DEFAULT};
    for (int i = 0; i < argc; i++) {
        const char *argument = strcmp(argv[i], "-h") == 0 ? "--help" : argv[i];
        if (strncmp(argument, "--", 2) != 0)
            return error_set(err, ERR_BAD_VALUE, "unexpected argument \"%s\"", argument);
        const char *name = argument + 2;
        size_t size = strcspn(name, "=");
        const Flag *flag = find_flag(name, size);
        if (flag == NULL)
            return error_set(err, ERR_BAD_VALUE, "unknown option \"%s\"", argument);
        const char *value = name[size] == '=' ? name + size + 1 : NULL;
        if (flag->kind == FLAG_SWITCH && value != NULL)
            return error_set(err, ERR_BAD_VALUE, "--%s takes no value", flag->name);
        if (flag->kind != FLAG_SWITCH && value == NULL) {
            if (i + 1 == argc)
                return error_set(err, ERR_BAD_VALUE, "--%s needs a value", flag->name);
            value = argv[++i];
        }
        TRY(set_flag(&options, flag, value, err));
    }
    *ret_options = options;
    return ERR_OK;
}

void up_options_print_help(void) {
    printf("Usage: sherd up [options]\n\n"
           "Starts a sharded cluster on this machine, reachable from this machine alone: a config\n"
           "server, shards and routers, each a process of its own. What dies is started again.\n"
           "Ctrl-C or SIGTERM stops all of them, a second one at once. The next start in the same\n"
           "directory goes on with the same data and ports.\n\n"
           "Options:\n");
    for (size_t i = 0; i < ARRAY_LEN(FLAGS); i++) {
        char left[32];
        snprintf(left, sizeof(left), "--%s %s", FLAGS[i].name, FLAGS[i].value_name);
        printf("  %-14s %s\n", left, FLAGS[i].help);
    }
    printf(
        "\nOn a terminal it tells what happens; otherwise each event is a line of JSON on\n"
        "standard output. Exit codes: 0 stopped cleanly, 2 wrong arguments, 3 --status found no\n"
        "cluster, 12 some process had to be killed, 48 a port is in use, 100 the directory\n"
        "cannot be used.\n");
}
