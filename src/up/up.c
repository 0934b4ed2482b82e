#include "up/up.h"

#include <stdio.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "up/directory.h"
#include "up/events.h"
#include "up/launch.h"
#include "up/layout.h"
#include "up/ports.h"
#include "up/setup.h"
#include "up/status.h"
#include "up/supervisor.h"
#include "up/up_options.h"

/* As those of a node (server/exit_codes.h), where they mean the same. */
enum {
    EXIT_OK = 0,
    EXIT_BAD_OPTIONS = 2,
    EXIT_NOTHING_RUNS = 3,
    EXIT_HAD_TO_KILL = 12,
    EXIT_PORT_IN_USE = 48,
    EXIT_DIRECTORY = 100,
};

typedef struct Up {
    int64_t begun_us;
    Directory directory;
    Layout layout;
    Parts parts;
    Events events;
    Launcher launcher;
    Supervisor supervisor;
} Up;

static int fail(int exit_code, const Error *err) {
    fprintf(stderr, "sherd up: %s\n", error_message(err));
    return exit_code;
}

/* The plan is on disk before anything is made according to it. */
static ErrCode plan(Up *up, const UpOptions *options, int *ret_exit_code, Error *err) {
    CLEANUP(arena_done) Arena arena;
    arena_init(&arena, ARENA_CHUNK_SIZE_DEFAULT);
    Layout old;
    bool has_old;
    TRY(directory_find_layout(up->directory.path, &arena, &has_old, &old, err));
    *ret_exit_code = EXIT_BAD_OPTIONS;
    TRY(layout_plan(has_old ? &old : NULL, options, &up->layout, err));
    *ret_exit_code = EXIT_PORT_IN_USE;
    TRY(ports_choose(&up->layout, err));
    layout_parts(&up->layout, &up->parts);
    TRY(ports_check(&up->parts, err));
    *ret_exit_code = EXIT_DIRECTORY;
    return directory_write_layout(up->directory.path, &up->layout, err);
}

static ErrCode prepare(Up *up, const UpOptions *options, int *ret_exit_code, Error *err) {
    *ret_exit_code = EXIT_DIRECTORY;
    TRY(directory_open(&up->directory, options->dir, err));
    CLEANUP(xfree_ptr) char *log_path = xasprintf("%s/up.log", up->directory.path);
    TRY(log_open_file(log_path, /* is_append= */ true, err));
    TRY(plan(up, options, ret_exit_code, err));
    TRY(launcher_init(&up->launcher, &up->directory, &up->layout, err));
    events_init(&up->events, up->directory.path);
    return supervisor_init(&up->supervisor, &up->launcher, &up->parts, &up->events, err);
}

static ErrCode run(Up *up, bool *ret_is_clean, Error *err) {
    Supervisor *supervisor = &up->supervisor;
    Setup *setup = setup_new(&(SetupConfig){.layout = &up->layout,
                                            .parts = &up->parts,
                                            .pids = supervisor->pids,
                                            .events = &up->events,
                                            .begun_us = up->begun_us});
    ErrCode rc = setup_start(setup, err);
    if (rc == ERR_OK) {
        supervisor->setup = setup;
        supervisor_run(supervisor);
        supervisor->setup = NULL;
    }
    setup_free(setup);
    *ret_is_clean = supervisor_stop(supervisor);
    return rc;
}

static int run_cluster(const UpOptions *options) {
    CLEANUP(error_reset) Error err = {0};
    CLEANUP(xfree_ptr) Up *up = NEW(Up);
    up->begun_us = clock_mono_us();
    int exit_code;
    bool is_clean = true;
    ErrCode rc = prepare(up, options, &exit_code, &err);
    if (rc == ERR_OK)
        rc = run(up, &is_clean, &err);
    supervisor_done(&up->supervisor);
    directory_close(&up->directory);
    if (rc != ERR_OK)
        return fail(exit_code, &err);
    return is_clean ? EXIT_OK : EXIT_HAD_TO_KILL;
}

static int show_status(const UpOptions *options) {
    CLEANUP(error_reset) Error err = {0};
    bool is_found;
    if (status_show(options->dir, &is_found, &err) != ERR_OK)
        return fail(EXIT_DIRECTORY, &err);
    if (is_found)
        return EXIT_OK;
    fprintf(stderr, "sherd up: no cluster runs in \"%s\"\n", options->dir);
    return EXIT_NOTHING_RUNS;
}

int up_run(int argc, char **argv) {
    alloc_setup(); /* before there are threads */
    CLEANUP(error_reset) Error err = {0};
    UpOptions options;
    if (up_options_parse(argc, argv, &options, &err) != ERR_OK)
        return fail(EXIT_BAD_OPTIONS, &err);
    if (options.is_help) {
        up_options_print_help();
        return EXIT_OK;
    }
    return options.is_status ? show_status(&options) : run_cluster(&options);
}
