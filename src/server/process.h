/*
 * process.h - what a data node and a router have in common as processes: options, parameters, log,
 * pid file, signals, connections to other nodes, listening, the end.
 *
 *     process_run   sets all that up, calls start() of the program, waits for the stop, calls
 * stop()
 *
 * Ownership: a Process is the first member of the program's own struct, zeroed but for that.
 * Threading: the main thread.
 */
#pragma once

#include "base/arena.h"
#include "base/error.h"
#include "commands/core/command_service.h"
#include "concurrency/service_ctx.h"
#include "server/descriptors.h"
#include "server/options.h"
#include "params/params.h"
#include "server/signals.h"

enum {
    BIND_ADDRESSES_MAX = 32,
};

typedef struct Process {
    const Options *options;
    ServiceCtx service;
    Signals signals;
    Arena arena; /* what lives as long as the process */
    int64_t start_ms;
    bool has_pid_file;
    const char *addresses[BIND_ADDRESSES_MAX];
    uint32_t address_count;
    uint32_t unix_permissions;
    uint64_t descriptors; /* the limit of the process */
    DescriptorShares shares;
} Process;

/* What the program itself is. */
typedef struct ProgramSpec {
    const ParamHooks *param_hooks;
    NodeRole (*role)(const Options *options);
    /* A failure sets the exit code that tells what failed. */
    ErrCode (*start)(Process *process, int *ret_exit_code, Error *err);
    /* Whatever was started, in reverse; also after a start that failed. */
    void (*stop)(Process *process);
} ProgramSpec;

/* Runs until it is told to stop; returns the exit code of the process. `ready_fd` gets one byte
 * when clients are served (-1: nobody waits for it). */
int process_run(Process *process, const ProgramSpec *program, const Options *options,
                const char *process_name, int ready_fd);

/* ---- for start() and stop() ---- */

/* The commands, with the settings of the options. */
void process_open_commands(Process *process, const CommandTable *commands,
                           const CommandHooks *hooks);
/* From now on clients are served. */
ErrCode process_listen(Process *process, int *ret_exit_code, Error *err) MUST_CHECK;
/* Stops listening, ends connections and what runs on them. */
void process_end_clients(Process *process);
/* How others reach this process: by its name, or, where it listens only to itself, by that address.
 */
void process_own_host(const Process *process, char *host, size_t size);
