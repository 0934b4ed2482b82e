/*
 * main.c - the program `sherd`: picks the sub-command. Called as `mongod` it is `sherd serve`, as
 * `mongos` `sherd route`.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "commands/version.h"
#include "server/exit_codes.h"
#include "server/node.h"
#include "server/options.h"
#include "server/router.h"
#include "up/up.h"

/* A kind of server, and what it is called. */
typedef struct Program {
    ProgramKind kind;
    const char *name;         /* for messages */
    const char *process_name; /* for clients */
    int (*run)(const Options *options, const char *process_name, int ready_fd);
} Program;

static const Program SERVE = {PROGRAM_NODE, "sherd serve", "sherd", node_run};
static const Program ROUTE = {PROGRAM_ROUTER, "sherd route", "sherd", router_run};
static const Program MONGOD = {PROGRAM_NODE, "mongod", "mongod", node_run};
static const Program MONGOS = {PROGRAM_ROUTER, "mongos", "mongos", router_run};

static int start(int argc, char **argv, int skip, const Program *program);
static int run_in_background(const Options *options, const Program *program);
static void print_help(void);
static void print_version(void);
static void print_mongo_version(const Program *program);

int main(int argc, char **argv) {
    const char *slash = strrchr(argv[0], '/');
    const char *name = slash != NULL ? slash + 1 : argv[0];
    if (strcmp(name, "mongod") == 0)
        return start(argc, argv, /* skip= */ 1, &MONGOD);
    if (strcmp(name, "mongos") == 0)
        return start(argc, argv, /* skip= */ 1, &MONGOS);

    const char *command = argc > 1 ? argv[1] : "--help";
    if (strcmp(command, "serve") == 0)
        return start(argc, argv, /* skip= */ 2, &SERVE);
    if (strcmp(command, "route") == 0)
        return start(argc, argv, /* skip= */ 2, &ROUTE);
    if (strcmp(command, "up") == 0)
        return up_run(argc - 2, argv + 2);
    if (strcmp(command, "--version") == 0) {
        print_version();
        return EXIT_CODE_CLEAN;
    }
    if (strcmp(command, "--help") == 0 || strcmp(command, "-h") == 0) {
        print_help();
        return argc > 1 ? EXIT_CODE_CLEAN : EXIT_CODE_BAD_OPTIONS;
    }
    fprintf(stderr, "sherd: unknown command '%s'\ntry 'sherd --help' for more information\n",
            command);
    return EXIT_CODE_BAD_OPTIONS;
}

/* The first `skip` arguments name the sub-command. */
static int start(int argc, char **argv, int skip, const Program *program) {
    alloc_setup(); /* before there are threads */
    CLEANUP(options_done) Options options;
    options_init(&options, program->kind, program->name);
    CLEANUP(error_reset) Error err = {0};
    if (options_parse(&options, argc, argv, skip, &err) != ERR_OK) {
        fprintf(stderr, "%s\ntry '%s --help' for more information\n", error_message(&err),
                program->name);
        return EXIT_CODE_BAD_OPTIONS;
    }
    if (option_is_set(&options, OPTION_HELP)) {
        options_print_help(&options);
        return EXIT_CODE_CLEAN;
    }
    if (option_is_set(&options, OPTION_VERSION)) {
        if (strcmp(program->process_name, "sherd") != 0)
            print_mongo_version(program);
        else
            print_version();
        return EXIT_CODE_CLEAN;
    }
    if (option_bool(&options, OPTION_FORK))
        return run_in_background(&options, program);
    return program->run(&options, program->process_name, /* ready_fd= */ -1);
}

/* The parent stays until the child serves clients or has failed, so that scripts can rely on it. */
static int run_in_background(const Options *options, const Program *program) {
    int ready[2];
    if (pipe2(ready, O_CLOEXEC) != 0) {
        fprintf(stderr, "could not make a pipe: %s\n", strerror(errno));
        return EXIT_CODE_STARTUP;
    }
    printf("about to fork child process, waiting until server is ready for connections.\n");
    fflush(stdout);
    pid_t child = fork();
    if (child < 0) {
        fprintf(stderr, "could not fork: %s\n", strerror(errno));
        return EXIT_CODE_STARTUP;
    }
    if (child == 0) {
        close(ready[0]);
        setsid();
        int null = open("/dev/null", O_RDWR | O_CLOEXEC);
        dup2(null, STDIN_FILENO);
        dup2(null, STDOUT_FILENO);
        /* Standard error stays the terminal's until clients are served: it says why a start failed.
         */
        return program->run(options, program->process_name, ready[1]);
    }
    close(ready[1]);
    printf("forked process: %d\n", (int)child);
    fflush(stdout);
    char byte;
    ssize_t got;
    do {
        got = read(ready[0], &byte, 1);
    } while (got < 0 && errno == EINTR);
    if (got == 1) {
        printf("child process started successfully, parent exiting\n");
        return EXIT_CODE_CLEAN;
    }
    int status = 0;
    waitpid(child, &status, 0);
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_CODE_ABRUPT;
    printf("ERROR: child process failed, exited with %d\n"
           "To see additional information in this output, start without the \"--fork\" option.\n",
           code);
    return code;
}

static void print_help(void) {
    printf("Usage: sherd <command> [options]\n\n"
           "Commands:\n"
           "  serve      start a data node (see 'sherd serve --help')\n"
           "  route      start a query router (see 'sherd route --help')\n"
           "  up         start a whole cluster on this machine (see 'sherd up --help')\n\n"
           "Options:\n"
           "  --help     show this text\n"
           "  --version  show the version\n\n"
           "Called as 'mongod' the program is 'sherd serve', as 'mongos' it is 'sherd route'.\n");
}

static void print_version(void) {
    printf("sherd version v%s (compatible with MongoDB %s)\n", SHERD_VERSION, COMPAT_VERSION);
}

static void print_mongo_version(const Program *program) {
    printf("%s version v%s\n"
           "Build Info: {\n"
           "    \"version\": \"%s\",\n"
           "    \"gitVersion\": \"%s\",\n"
           "    \"modules\": [],\n"
           "    \"allocator\": \"system\",\n"
           "    \"environment\": {\n"
           "        \"distarch\": \"x86_64\",\n"
           "        \"target_arch\": \"x86_64\",\n"
           "        \"sherd\": \"%s\"\n"
           "    }\n"
           "}\n",
           program->kind == PROGRAM_ROUTER ? "mongos" : "db", COMPAT_VERSION, COMPAT_VERSION,
           SHERD_GIT_VERSION, SHERD_VERSION);
}
