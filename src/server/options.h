/*
 * options.h - what the server was asked to be: flags and configuration file, through one table.
 *
 * Ownership: an Options holds its texts; options_done frees them.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"
#include "bson/doc.h"

typedef enum OptionId {
#define OPTION(symbol, flag, letter, place, type, initial, state, section, note, help)             \
    OPTION_##symbol,
#include "server/options.def"
#undef OPTION
    OPTION_COUNT,
} OptionId;

enum {
    OPTION_LIST_MAX = 256,
};

typedef struct OptionValue {
    bool is_set;
    bool is_from_file;
    bool boolean;
    int64_t i64;
    double f64;
    const char *text;  /* as given; NULL: not given and no default */
    const char **list; /* of LIST options */
    uint32_t list_count;
} OptionValue;

typedef enum ProgramKind {
    PROGRAM_NODE,
    PROGRAM_ROUTER,
} ProgramKind;

typedef enum ClusterRole {
    CLUSTER_ROLE_NONE,
    CLUSTER_ROLE_SHARD,
    CLUSTER_ROLE_CONFIG,
} ClusterRole;

typedef struct Options {
    ProgramKind kind;
    Arena arena;
    OptionValue values[OPTION_COUNT];
    int argc;
    char **argv;         /* borrowed */
    const char *program; /* "sherd serve" or "mongod", for messages */
} Options;

void options_init(Options *options, ProgramKind kind, const char *program);
void options_done(Options *options);

/* Reads flags, then the configuration file that --config names. The first `skip` arguments
 * are not looked at. Fails with ERR_BAD_VALUE and a message for the user. */
ErrCode options_parse(Options *options, int argc, char **argv, int skip, Error *err) MUST_CHECK;

/* Sets one option as the configuration file does; `place` is the dotted path. */
ErrCode options_set_place(Options *options, const char *place, const char *text, Error *err)
    MUST_CHECK;
/* config_file.c */
ErrCode options_read_file(Options *options, const char *path, Error *err) MUST_CHECK;
ErrCode options_read_yaml(Options *options, const char *yaml, size_t size, Error *err) MUST_CHECK;

static inline bool option_is_set(const Options *options, OptionId id) {
    return options->values[id].is_set;
}
static inline bool option_bool(const Options *options, OptionId id) {
    return options->values[id].boolean;
}
static inline int64_t option_i64(const Options *options, OptionId id) {
    return options->values[id].i64;
}
static inline double option_f64(const Options *options, OptionId id) {
    return options->values[id].f64;
}
static inline const char *option_text(const Options *options, OptionId id) {
    return options->values[id].text;
}

/* --shardsvr, --configsvr, or sharding.clusterRole. */
ClusterRole options_cluster_role(const Options *options);

/* The help text, on standard output. */
void options_print_help(const Options *options);

/* {net: {port: 27017}, ...}: what was given, in the form of a configuration file. */
Doc options_parsed_doc(const Options *options, Arena *arena);
Doc options_argv_doc(const Options *options, Arena *arena);
