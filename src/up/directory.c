#include "up/directory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/thread.h"

#define LOCK_NAME     "up.lock"
#define CHILDREN_NAME "children.lock"
#define STATE_NAME    "cluster.json"

enum {
    CHILDREN_MS_MAX = 10 * 1000,
    CHILDREN_POLL_US = 10 * 1000,
};

static void close_fd(int *fd) {
    if (*fd >= 0)
        close(*fd);
}

static char *path_in(const char *directory, const char *name) {
    return xasprintf("%s/%s", directory, name);
}

static ErrCode file_error(Error *err, const char *what, const char *path) {
    return error_set(err, ERR_FILE_NOT_OPEN, "could not %s \"%s\": %s", what, path,
                     strerror(errno));
}

/* ---- locks ---- */

static ErrCode open_lock(const char *directory, const char *name, int *ret_fd, Error *err) {
    CLEANUP(xfree_ptr) char *path = path_in(directory, name);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0)
        return file_error(err, "open", path);
    *ret_fd = fd;
    return ERR_OK;
}

static bool try_lock(int fd) {
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    return fcntl(fd, F_OFD_SETLK, &whole) == 0;
}

static pid_t read_pid(int fd) {
    char text[32] = "";
    ssize_t size = pread(fd, text, sizeof(text) - 1, 0);
    return size > 0 ? (pid_t)strtol(text, NULL, 10) : 0;
}

static ErrCode take_lock(Directory *directory, Error *err) {
    TRY(open_lock(directory->path, LOCK_NAME, &directory->lock_fd, err));
    if (!try_lock(directory->lock_fd))
        return error_set(err, ERR_LOCK_BUSY, "a cluster already runs in \"%s\" (process %d)",
                         directory->path, (int)read_pid(directory->lock_fd));
    char text[32];
    int size = snprintf(text, sizeof(text), "%d\n", (int)getpid());
    if (ftruncate(directory->lock_fd, 0) != 0 ||
        pwrite(directory->lock_fd, text, (size_t)size, 0) != size)
        return file_error(err, "write the lock file of", directory->path);
    return ERR_OK;
}

/* Children die with their parent, but not in the same instant. */
static ErrCode wait_for_old_children(Directory *directory, Error *err) {
    TRY(open_lock(directory->path, CHILDREN_NAME, &directory->children_fd, err));
    int64_t until_us = clock_deadline_ms(CHILDREN_MS_MAX);
    while (!try_lock(directory->children_fd)) {
        if (clock_mono_us() > until_us)
            return error_set(err, ERR_LOCK_BUSY,
                             "processes of an earlier cluster in \"%s\" still run",
                             directory->path);
        thread_sleep_us(CHILDREN_POLL_US);
    }
    return ERR_OK;
}

ErrCode directory_open(Directory *directory, const char *path, Error *err) {
    directory->lock_fd = directory->children_fd = -1;
    if (mkdir(path, 0755) != 0 && errno != EEXIST)
        return file_error(err, "make the directory", path);
    if (realpath(path, directory->path) == NULL)
        return file_error(err, "find the directory", path);
    TRY(take_lock(directory, err));
    return wait_for_old_children(directory, err);
}

void directory_close(Directory *directory) {
    if (directory->path[0] == '\0')
        return;
    close_fd(&directory->children_fd);
    close_fd(&directory->lock_fd);
}

pid_t directory_find_owner(const char *path) {
    CLEANUP(xfree_ptr) char *name = path_in(path, LOCK_NAME);
    CLEANUP(close_fd) int fd = open(name, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return 0;
    /* Only asks, so that a cluster that starts at this moment is not hindered. */
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    if (fcntl(fd, F_OFD_GETLK, &whole) != 0 || whole.l_type == F_UNLCK)
        return 0;
    return read_pid(fd);
}

/* ---- the state file ---- */

static ErrCode check_unused(const char *directory, Error *err) {
    CLEANUP(xfree_ptr) char *data = path_in(directory, "config-0");
    if (access(data, F_OK) == 0)
        return error_set(err, ERR_FILE_NOT_OPEN,
                         "\"%s\" has the data of a cluster, but its \"" STATE_NAME "\" is missing",
                         directory);
    return ERR_OK;
}

ErrCode directory_find_layout(const char *path, Arena *arena, bool *ret_found, Layout *ret_layout,
                              Error *err) {
    CLEANUP(xfree_ptr) char *name = path_in(path, STATE_NAME);
    CLEANUP(close_fd) int fd = open(name, O_RDONLY | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT) {
        TRY(check_unused(path, err));
        *ret_found = false;
        return ERR_OK;
    }
    if (fd < 0)
        return file_error(err, "open", name);
    char *text = arena_alloc(arena, LAYOUT_TEXT_SIZE_MAX + 1);
    ssize_t size = read(fd, text, LAYOUT_TEXT_SIZE_MAX);
    if (size < 0)
        return file_error(err, "read", name);
    text[size] = '\0';
    if (layout_from_json(text, arena, ret_layout, err) != ERR_OK)
        return error_prefix(err, "\"%s\" is damaged", name);
    *ret_found = true;
    return ERR_OK;
}

static ErrCode sync_directory(const char *path, Error *err) {
    CLEANUP(close_fd) int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd >= 0 && fsync(fd) == 0 ? ERR_OK : file_error(err, "sync", path);
}

static ErrCode write_whole(const char *path, const Buffer *text, Error *err) {
    CLEANUP(close_fd) int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0 || write(fd, text->data, text->size) != (ssize_t)text->size || fsync(fd) != 0)
        return file_error(err, "write", path);
    return ERR_OK;
}

ErrCode directory_write_layout(const char *path, const Layout *layout, Error *err) {
    CLEANUP(xfree_ptr) char *name = path_in(path, STATE_NAME);
    CLEANUP(xfree_ptr) char *temporary = path_in(path, STATE_NAME ".new");
    CLEANUP(buffer_done) Buffer text;
    buffer_init(&text, BUFFER_UNBOUNDED);
    layout_to_json(layout, &text);
    TRY(write_whole(temporary, &text, err));
    if (rename(temporary, name) != 0)
        return file_error(err, "rename", temporary);
    return sync_directory(path, err);
}
