/*
 * command.h - a command: one row of command_list.def, one spec, one small file.
 *
 * To add a command: write cmd_<name>.c with `const CommandSpec CMD_<NAME>`, and a row in
 * commands/command_list.def. Strict parsing, help, statistics, failCommand, time limits and the
 * write concern come from the spec.
 *
 * run() appends the fields of a successful reply (all but "ok") to ctx->reply, or fails; then what
 * it had appended is discarded. It is straight-line blocking code.
 *
 * Ownership: specs are constant; a CommandCtx lives for one request. Threading: one worker.
 */
#pragma once

#include "base/error.h"
#include "bson/builder.h"
#include "bson/doc.h"
#include "commands/core/latency.h"
#include "request/generic_args.h"
#include "concurrency/op_ctx.h"
#include "concurrency/service_ctx.h"
#include "transport/server.h"
#include "transport/wire.h"

/* In the order of their bits. */
typedef enum CommandFlags {
    CMD_READS = 1 << 0,      /* reads documents */
    CMD_WRITES = 1 << 1,     /* waits for the write concern afterwards */
    CMD_ADMIN_ONLY = 1 << 2, /* only on the database "admin" */
    CMD_API_V1 = 1 << 3,     /* part of the Stable API, version 1 */
    CMD_HANDSHAKE = 1 << 4,  /* allowed through OP_QUERY; reply never compressed */
    CMD_NEEDS_TEST_COMMANDS = 1 << 5,
    CMD_TAKES_READ_CONCERN = 1 << 6,
    CMD_TAKES_WRITE_CONCERN = 1 << 7,  /* implied by CMD_WRITES */
    CMD_NOT_LOGGED_WHEN_SLOW = 1 << 8, /* waits by design: awaitable hello */
    CMD_LOOSE = 1 << 9,                /* unknown fields are accepted (handshake, old commands) */
    CMD_RETRYABLE = 1 << 10,           /* may be sent again with the same lsid and txnNumber */
    CMD_TAKES_SNAPSHOT = 1 << 11,      /* read concern "snapshot" as well */
    CMD_IN_TXN = 1 << 12,              /* may be a statement of a transaction */
    CMD_ENDS_TXN = 1 << 13,            /* commits, aborts or prepares one */
    CMD_CONTINUES_READ = 1 << 14,      /* reads as its cursor does: a read concern has no effect */
    CMD_REFUSED = 1 << 15,             /* MongoDB's, but not here: known in order to say so */
    CMD_NAMES_DB = 1 << 16,            /* its value is a whole name, "db.coll" */
    CMD_API_V1_DEPRECATED = 1 << 17,   /* part of it, but not to be used any more */
    CMD_API_V2 = 1 << 18,              /* will be part of version 2, which is not accepted yet */
    CMD_API_V2_DEPRECATED = 1 << 19,
    CMD_NEEDS_SECONDARY_OK = 1 << 20, /* as a read does; implied by CMD_READS */
    CMD_WAITS_FOR_MAJORITY = 1 << 21, /* whatever less its write concern says */
    CMD_NEEDS_READABLE = 1 << 22, /* what it tells is not whole while data are copied or undone */
} CommandFlags;

/* State of one client connection. Created at connect, freed at disconnect; used by the worker that
 * owns the connection. */
typedef struct ClientState {
    Connection *conn;
    char name[24];              /* "conn12" */
    uint8_t *metadata;          /* heap BSON of the first hello, or NULL */
    char *app_name;             /* or NULL */
    int64_t streamed_cursor_id; /* exhaust cursor whose batches are being sent; 0: none */
    bool is_hello_done;
    bool is_member; /* has identified itself as a member; only for connections beyond the limit */
    bool is_hello_parked;          /* a hello waits for a change or its deadline */
    bool is_hello_streaming;       /* the next hello is a further round of an exhaust request */
    int64_t last_topology_counter; /* of the streamed hello */
    int64_t parked_cursor_id;      /* of a getMore that waits for a change stream; 0: none */
    int64_t parked_until_us;       /* its deadline */
    OpTime told_commit;            /* newest commit point sent to this oplog reader */
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
    Str read_coll;          /* what its pipeline reads, views resolved; empty: ns_coll */
    bool is_of_collection;  /* the command is about ns_coll */
    bool is_park_wanted;    /* run() has to be called again later */
    bool is_more_to_come;   /* run() streams: another reply follows */
    bool has_write_errors;  /* counts as failed although ok is 1 */
    bool is_writing;        /* run() wrote, although its command does not always write */
    bool has_forced_error;  /* failCommand makes the command fail: nothing has changed */
    bool has_forced_labels; /* failCommand sets the error labels */
    bool has_concern_error; /* a failed command whose write concern failed as well */
    bool is_txn;            /* a statement of a transaction, or its end */
    struct TxnStatement *txn_statement; /* while it runs; NULL: none */
    struct RouterTxn *router_txn;       /* of a router: the transaction it belongs to; NULL: none */
    bool has_oplog_reader;   /* run() read the oplog for another member: metadata are appended */
    bool is_change_stream;   /* getMore of one */
    Doc originating_command; /* of a getMore: what opened the cursor; DOC_NONE: not known */
    struct StatementNotes *notes; /* of the statements that were executed; NULL: not profiled */
} CommandCtx;

struct CommandSpec {
    const char *name;
    const char *alias; /* second name, or NULL */
    const char *summary;
    uint32_t flags;
    const char *op_type; /* for currentOp and logs; NULL: "command" */
    LatencyKind latency; /* what it counts as in the latency statistics */
    bool is_never_first_in_txn;
    const RequestSpec *request; /* NULL: no arguments of its own */
    ErrCode (*run)(CommandCtx *ctx, void *request, Error *err);
};

/* The commands of a kind of node. A data node and a router are the same program with different
 * tables. */
typedef struct CommandTable {
    const CommandSpec *const *specs;
    size_t count;
} CommandTable;

/* Shorthand of run() functions. */
static inline Arena *cmd_arena(CommandCtx *ctx) {
    return &ctx->op->arena;
}
