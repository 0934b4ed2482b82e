#include "up/status.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "up/control.h"
#include "up/directory.h"
#include "up/launch.h"
#include "up/layout.h"

typedef struct ProcessFacts {
    int pid; /* 0: does not run */
    long memory_mb;
} ProcessFacts;

static void close_file(FILE **file) {
    if (*file != NULL)
        fclose(*file);
}

static int read_number(const char *path) {
    CLEANUP(close_file) FILE *file = fopen(path, "re");
    int number = 0;
    return file != NULL && fscanf(file, "%d", &number) == 1 ? number : 0;
}

/* A file with a process id may be older than the cluster that runs now: only a child of that
 * counts. */
static ProcessFacts find_process(const char *dir, const Part *part, pid_t owner, Arena *arena) {
    ProcessFacts facts = {.pid = read_number(launch_pid_path(dir, part, arena))};
    CLEANUP(close_file)
    FILE *file = fopen(arena_printf(arena, "/proc/%d/status", facts.pid), "re");
    int parent = 0;
    char line[256];
    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        long kb;
        sscanf(line, "PPid: %d", &parent);
        if (sscanf(line, "VmRSS: %ld kB", &kb) == 1)
            facts.memory_mb = (kb + 512) / 1024;
    }
    return parent == owner ? facts : (ProcessFacts){0};
}

static void show_part(const char *dir, const Part *part, pid_t owner, Control *control) {
    Arena *arena = &control->op->arena;
    PartState state = control_state(control, part);
    ProcessFacts facts = find_process(dir, part, owner, arena);
    printf("    %-12s 127.0.0.1:%-5u  %-13s", part->name, part->port, part_state_name(state));
    if (facts.pid != 0)
        printf("  pid %-7d  %4ld MB", facts.pid, facts.memory_mb);
    printf("\n");
}

static void show_role(const char *dir, const Parts *parts, PartRole role, const char *title,
                      pid_t owner, Control *control) {
    printf("  %s\n", title);
    for (uint32_t i = 0; i < parts->count; i++)
        if (parts->rows[i].role == role)
            show_part(dir, &parts->rows[i], owner, control);
}

ErrCode status_show(const char *dir, bool *ret_found, Error *err) {
    CLEANUP(arena_done) Arena arena;
    arena_init(&arena, ARENA_CHUNK_SIZE_DEFAULT);
    pid_t owner = directory_find_owner(dir);
    Layout layout;
    *ret_found = false;
    if (owner != 0)
        TRY(directory_find_layout(dir, &arena, ret_found, &layout, err));
    if (!*ret_found)
        return ERR_OK;
    Parts *parts = ARENA_NEW(&arena, Parts);
    layout_parts(&layout, parts);
    CLEANUP(control_close) Control control;
    control_open(&control);
    printf("sherd up in \"%s\", pid %d\n%s\n", dir, (int)owner, layout_uri(&layout, &arena));
    show_role(dir, parts, PART_ROUTER, "routers", owner, &control);
    show_role(dir, parts, PART_SHARD, "shards", owner, &control);
    show_role(dir, parts, PART_CONFIG, "config server", owner, &control);
    return ERR_OK;
}
