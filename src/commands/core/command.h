/*
 * command.h - what a command is: one row of command_list.def, one spec, one small file.
 *
 * To add a command: write cmd_<name>.c with `const CommandSpec CMD_<NAME>`, and a row in
 * commands/command_list.def. Strict parsing, help, statistics, failCommand, time limits and the
 * write concern come from the spec.
 *
 * run() appends the fields of a successful reply (all but "ok") to ctx->reply, or fails; what it
 * had appended is dropped then. It is straight-line blocking code.
 */
#pragma once

#include "base/error.h"
#include "bson/builder.h"
#include "bson/doc.h"
#include "commands/core/fields.h"
#include "concurrency/op_ctx.h"
#include "concurrency/service_ctx.h"
#include "transport/server.h"
#include "transport/wire.h"

typedef enum CommandFlags {
    CMD_READS = 1 << 0,      /* reads documents: counts as a read in the latency statistics */
    CMD_WRITES = 1 << 1,     /* waits for the write concern afterwards */
    CMD_ADMIN_ONLY = 1 << 2, /* only on the database "admin" */
    CMD_API_V1 = 1 << 3,     /* part of the Stable API, version 1 */
    CMD_HANDSHAKE = 1 << 4,  /* allowed through OP_QUERY; reply never compressed */
    CMD_NEEDS_TEST_COMMANDS = 1 << 5,
    CMD_TAKES_READ_CONCERN = 1 << 6,
    CMD_TAKES_WRITE_CONCERN = 1 << 7,  /* implied by CMD_WRITES */
    CMD_NOT_LOGGED_WHEN_SLOW = 1 << 8, /* waits by design: awaitable hello */
    CMD_TAKES_SNAPSHOT = 1 << 11,      /* read concern "snapshot" as well */
    CMD_RETRYABLE = 1 << 10,           /* may be sent again with the same lsid and txnNumber */
    CMD_LOOSE = 1 << 9,                /* unknown fields are accepted (handshake, old commands) */
} CommandFlags;

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
} ReadConcern;

/* Arguments that any command may carry. */
typedef struct GenericArgs {
    Str db;
    Elem lsid;
    Elem txn_number;
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
} GenericArgs;

/* State of one client connection. Made at connect, freed at disconnect. */
typedef struct ClientState {
    Connection *conn;
    char name[24];              /* "conn12" */
    uint8_t *metadata;          /* heap BSON of the first hello, or NULL */
    char *app_name;             /* or NULL */
    int64_t streamed_cursor_id; /* exhaust cursor whose batches are being sent; 0: none */
    bool is_hello_done;
    bool is_member;                /* has said so; only of connections beyond the limit */
    bool is_hello_parked;          /* a hello waits for a change or its deadline */
    bool is_hello_streaming;       /* the next hello is a further round of an exhaust request */
    int64_t last_topology_counter; /* of the streamed hello */
    OpTime told_commit;            /* newest commit point in its replies to oplog readers */
} ClientState;

typedef struct CommandSpec CommandSpec;

typedef struct CommandCtx {
    OpCtx *op;
    ServiceCtx *service;
    ClientState *client;
    Worker *worker;
    const CommandSpec *spec;
    const WireMessage *message;
    Doc body;
    GenericArgs args;
    WriteConcern write_concern;
    ReadConcern read_concern;
    DocBuilder *reply;
    Reply *wire_reply;      /* for exhaust, parking and closing */
    Str ns_coll;            /* collection of the request, for logs; empty: none */
    bool is_park_wanted;    /* run() wants to be called again later */
    bool is_more_to_come;   /* run() streams: another reply follows */
    bool has_write_errors;  /* counts as failed although ok is 1 */
    bool is_writing;        /* run() wrote, although not every run of its command does */
    bool has_forced_error;  /* failCommand makes the command fail: nothing has changed */
    bool has_forced_labels; /* failCommand says which error labels there are */
    bool has_oplog_reader;  /* run() read the oplog for another member: metadata go along */
} CommandCtx;

struct CommandSpec {
    const char *name;
    const char *alias; /* second name, or NULL */
    const char *summary;
    uint32_t flags;
    const char *op_type; /* for currentOp and logs; NULL: "command" */
    const FieldSpec *fields;
    size_t field_count;
    size_t request_size;
    ErrCode (*run)(CommandCtx *ctx, void *request, Error *err);
};

/* The commands that a kind of node has. A data node and a router are the same
 * program with other tables. */
typedef struct CommandTable {
    const CommandSpec *const *specs;
    size_t count;
} CommandTable;

/* Shorthand of run() functions. */
static inline Arena *cmd_arena(CommandCtx *ctx) {
    return &ctx->op->arena;
}
