#include "up/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    ARGUMENTS_MAX = 40,
    OPLOG_MB = 1024,
    EXIT_CODE_NO_EXEC = 127,
};

typedef struct Arguments {
    char *list[ARGUMENTS_MAX + 1]; /* ends with NULL */
    uint32_t count;
    Arena *arena;
} Arguments;

/* The members share what one node alone would take: half of the memory beyond 1 GB. */
static double cache_gb_each(const Layout *layout) {
    double memory_gb =
        (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE) / (1024.0 * 1024 * 1024);
    double each_gb = (memory_gb - 1) / 2 / (layout->set_count * layout->replicas);
    return each_gb > 0.25 ? each_gb : 0.25;
}

ErrCode launcher_init(Launcher *launcher, const Directory *directory, const Layout *layout,
                      Error *err) {
    *launcher =
        (Launcher){.directory = directory, .layout = layout, .cache_gb = cache_gb_each(layout)};
    ssize_t size = readlink("/proc/self/exe", launcher->program, sizeof(launcher->program) - 1);
    if (size <= 0)
        return error_set(err, ERR_INTERNAL_ERROR, "could not find the program itself: %s",
                         strerror(errno));
    launcher->program[size] = '\0';
    return ERR_OK;
}

const char *launch_log_path(const char *directory, const Part *part, Arena *arena) {
    return arena_printf(arena, "%s/%s/sherd.log", directory, part->name);
}

const char *launch_pid_path(const char *directory, const Part *part, Arena *arena) {
    return arena_printf(arena, "%s/%s/pid", directory, part->name);
}

/* ---- arguments ---- */

static void add(Arguments *arguments, const char *argument) {
    invariant(arguments->count < ARGUMENTS_MAX);
    arguments->list[arguments->count++] = arena_strdup(arguments->arena, argument);
}

static void add_pair(Arguments *arguments, const char *flag, const char *value) {
    add(arguments, flag);
    add(arguments, value);
}

static void add_of_member(Arguments *arguments, const Launcher *launcher, const Part *part) {
    char set[LAYOUT_NAME_SIZE];
    layout_set_name(part->set, set);
    add(arguments, "serve");
    add(arguments, part->role == PART_CONFIG ? "--configsvr" : "--shardsvr");
    add_pair(arguments, "--replSet", set);
    add_pair(arguments, "--dbpath",
             arena_printf(arguments->arena, "%s/%s/db", launcher->directory->path, part->name));
    add_pair(arguments, "--wiredTigerCacheSizeGB",
             arena_printf(arguments->arena, "%.2f", launcher->cache_gb));
    add_pair(arguments, "--oplogSize", arena_printf(arguments->arena, "%d", OPLOG_MB));
}

static void add_of_router(Arguments *arguments, const Launcher *launcher) {
    add(arguments, "route");
    add_pair(arguments, "--configdb",
             layout_set_address(launcher->layout, LAYOUT_CONFIG_SET, arguments->arena));
}

static void make_arguments(Arguments *arguments, const Launcher *launcher, const Part *part) {
    const char *directory = launcher->directory->path;
    Arena *arena = arguments->arena;
    add(arguments, "sherd");
    if (part->role == PART_ROUTER)
        add_of_router(arguments, launcher);
    else
        add_of_member(arguments, launcher, part);
    add_pair(arguments, "--port", arena_printf(arena, "%u", part->port));
    add_pair(arguments, "--bind_ip", "127.0.0.1");
    add(arguments, "--nounixsocket");
    add_pair(arguments, "--logpath", launch_log_path(directory, part, arena));
    add(arguments, "--logappend");
    add_pair(arguments, "--pidfilepath", launch_pid_path(directory, part, arena));
}

/* ---- the process ---- */

static ErrCode make_directory(const char *path, Error *err) {
    if (mkdir(path, 0755) != 0 && errno != EEXIST)
        return error_set(err, ERR_FILE_NOT_OPEN, "could not make the directory \"%s\": %s", path,
                         strerror(errno));
    return ERR_OK;
}

static ErrCode make_directories(const Launcher *launcher, const Part *part, Arena *arena,
                                Error *err) {
    const char *path = arena_printf(arena, "%s/%s", launcher->directory->path, part->name);
    TRY(make_directory(path, err));
    return part->role == PART_ROUTER ? ERR_OK
                                     : make_directory(arena_printf(arena, "%s/db", path), err);
}

/* In the child, beside threads that no longer exist: system calls only. */
static void become(const Launcher *launcher, char **arguments, int log_fd, pid_t parent) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(EXIT_CODE_NO_EXEC); /* it died before it could be watched */
    setpgid(0, 0);                /* Ctrl-C is for the parent, who stops its children in order */
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    int null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    dup2(null_fd, STDIN_FILENO);
    dup2(log_fd, STDOUT_FILENO);
    dup2(log_fd, STDERR_FILENO);
    fcntl(launcher->directory->children_fd, F_SETFD, 0); /* holds the lock of the children */
    execv(launcher->program, arguments);
    _exit(EXIT_CODE_NO_EXEC);
}

ErrCode launch_part(const Launcher *launcher, const Part *part, pid_t *ret_pid, Error *err) {
    CLEANUP(arena_done) Arena arena;
    arena_init(&arena, ARENA_CHUNK_SIZE_DEFAULT);
    Arguments arguments = {.arena = &arena};
    make_arguments(&arguments, launcher, part);
    TRY(make_directories(launcher, part, &arena, err));
    const char *log_path = launch_log_path(launcher->directory->path, part, &arena);
    int log_fd = open(log_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (log_fd < 0)
        return error_set(err, ERR_FILE_NOT_OPEN, "could not open \"%s\": %s", log_path,
                         strerror(errno));
    pid_t parent = getpid();
    pid_t pid = fork();
    if (pid == 0)
        become(launcher, arguments.list, log_fd, parent);
    int fork_errno = errno;
    close(log_fd);
    if (pid < 0)
        return error_set(err, ERR_INTERNAL_ERROR, "could not fork: %s", strerror(fork_errno));
    *ret_pid = pid;
    return ERR_OK;
}
