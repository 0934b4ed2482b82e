/*
 * generic_args.h - the arguments that any command may carry.
 */
#pragma once

#include "bson/optime.h"
#include "request/request.h"

typedef struct WriteConcern {
    bool is_given;
    bool is_w_given;
    bool is_majority;
    int64_t w; /* 1 unless given */
    Str w_tag; /* w as a string other than "majority" */
    bool is_j_given;
    bool is_journaled; /* j or fsync */
    int64_t wtimeout_ms;
} WriteConcern;

typedef enum ReadConcernLevel {
    READ_CONCERN_LOCAL,
    READ_CONCERN_AVAILABLE,
    READ_CONCERN_MAJORITY,
    READ_CONCERN_LINEARIZABLE,
    READ_CONCERN_SNAPSHOT,
} ReadConcernLevel;

typedef struct ReadConcern {
    bool is_given; /* the level is */
    ReadConcernLevel level;
    uint64_t after_cluster_ts; /* 0: none */
    uint64_t at_cluster_ts;    /* 0: none */
    OpTime after_optime;       /* ts 0: none */
} ReadConcern;

/* Arguments that any command may carry. */
typedef struct GenericArgs {
    Str db;
    Elem lsid;
    Elem txn_number;
    Elem stmt_id; /* of commands without statements: it says nothing */
    Elem autocommit;
    Elem start_transaction;
    Elem read_concern;
    Elem write_concern;
    Elem read_preference;
    Elem comment;
    Elem max_time_ms;
    Elem api_version;
    Elem api_strict;
    Elem api_deprecation_errors;
    Elem cluster_time;
    /* Between the nodes of a cluster. */
    Elem config_time;
    Elem repl_data;     /* true: the reply says where the replica set is */
    Elem shard_version; /* by which a router sends it here */
    Elem database_version;
} GenericArgs;

extern const RequestSpec GENERIC_ARGS;
