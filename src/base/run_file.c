#include "base/run_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/crc32c.h"

enum {
    BUFFER_BYTES = 128 * 1024,
    /* Disk space is asked for in such steps: writing into it costs half of what growing does. */
    GROWTH_BYTES = 8 * 1024 * 1024,
    LENGTH_SIZE = 4,
    PIECE_BYTES = 16 * 1024, /* read at once from anywhere: neighbours are likely to be wanted */
};

/* A record is a 32-bit size, then that many bytes. While writing, the buffer holds what is not in
 * the file yet; while reading, what was read ahead. */
struct RunFile {
    const char *dir;
    char *name; /* NULL: none */
    bool is_kept;
    int fd; /* -1: read to its end and given back */
    uint8_t *buffer;
    size_t capacity;
    size_t next;   /* reading: where the next record begins */
    size_t filled; /* bytes in the buffer */
    off_t offset;  /* of the file: where the next write or read goes */
    off_t size;
    off_t reserved;
    uint32_t checksum; /* of what was written; of named ones only */
    uint8_t *piece;    /* run_file_read: what it has read last; NULL: nothing yet */
    size_t piece_capacity;
    size_t piece_size;
    off_t piece_at;
};

static ErrCode failed(const RunFile *run, const char *what, Error *err) {
    return error_set(err, errno == ENOSPC ? ERR_OUT_OF_DISK_SPACE : ERR_FILE_STREAM_FAILED,
                     "could not %s temporary file in \"%s\": %s", what, run->dir, strerror(errno));
}

static void give_back(RunFile *run) {
    if (run->fd >= 0)
        close(run->fd);
    run->fd = -1;
    xfree(run->buffer);
    run->buffer = NULL;
    xfree(run->piece);
    run->piece = NULL;
}

static ErrCode create(const char *dir, const char *prefix, bool is_named, RunFile **ret_run,
                      Error *err) {
    const RunFile in_dir = {.dir = dir};
    if (mkdir(dir, 0700) != 0 && errno != EEXIST)
        return failed(&in_dir, "make the directory of a", err);
    CLEANUP(xfree_ptr) char *path = xasprintf("%s/%s-XXXXXX", dir, prefix);
    int fd = mkostemp(path, O_CLOEXEC);
    if (fd < 0)
        return failed(&in_dir, "create a", err);
    if (!is_named)
        unlink(path);
    RunFile *run = NEW(RunFile);
    *run =
        (RunFile){.dir = dir, .fd = fd, .buffer = xmalloc(BUFFER_BYTES), .capacity = BUFFER_BYTES};
    if (is_named)
        run->name = xstrdup(path + strlen(dir) + 1);
    *ret_run = run;
    return ERR_OK;
}

ErrCode run_file_new(const char *dir, RunFile **ret_run, Error *err) {
    return create(dir, "run", /* is_named= */ false, ret_run, err);
}

ErrCode run_file_new_named(const char *dir, const char *prefix, RunFile **ret_run, Error *err) {
    invariant(strlen(prefix) + 8 <= RUN_FILE_NAME_SIZE);
    return create(dir, prefix, /* is_named= */ true, ret_run, err);
}

void run_file_free(RunFile *run) {
    if (run == NULL)
        return;
    give_back(run);
    if (run->name != NULL && !run->is_kept) {
        CLEANUP(xfree_ptr) char *path = xasprintf("%s/%s", run->dir, run->name);
        unlink(path);
    }
    xfree(run->name);
    xfree(run);
}

const char *run_file_name(const RunFile *run) {
    return run->name;
}

static ErrCode write_all(RunFile *run, const uint8_t *data, size_t size, Error *err) {
    if (run->offset + (off_t)size > run->reserved) {
        run->reserved = run->offset + (off_t)size + GROWTH_BYTES;
        (void)fallocate(run->fd, FALLOC_FL_KEEP_SIZE, run->offset, run->reserved - run->offset);
    }
    if (run->name != NULL)
        run->checksum = crc32c_extend(run->checksum, data, size);
    while (size > 0) {
        ssize_t written = pwrite(run->fd, data, size, run->offset);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0)
            return failed(run, "write a", err);
        data += written;
        size -= (size_t)written;
        run->offset += written;
    }
    return ERR_OK;
}

static ErrCode append_bytes(RunFile *run, const void *data, size_t size, Error *err) {
    if (run->filled + size > run->capacity) {
        TRY(write_all(run, run->buffer, run->filled, err));
        run->filled = 0;
        if (size > run->capacity)
            return write_all(run, data, size, err);
    }
    memcpy(run->buffer + run->filled, data, size);
    run->filled += size;
    return ERR_OK;
}

ErrCode run_file_append(RunFile *run, const void *record, size_t size, Error *err) {
    uint32_t length = (uint32_t)size;
    TRY(append_bytes(run, &length, LENGTH_SIZE, err));
    return append_bytes(run, record, size, err);
}

ErrCode run_file_finish(RunFile *run, Error *err) {
    TRY(write_all(run, run->buffer, run->filled, err));
    run->size = run->offset;
    run->offset = 0;
    run->next = run->filled = 0;
    return ERR_OK;
}

/* Makes `size` bytes stand at run->next; fewer only at the end of the file. */
static ErrCode read_ahead(RunFile *run, size_t size, Error *err) {
    if (run->filled - run->next >= size)
        return ERR_OK;
    memmove(run->buffer, run->buffer + run->next, run->filled - run->next);
    run->filled -= run->next;
    run->next = 0;
    if (size > run->capacity) {
        run->capacity = size;
        run->buffer = xrealloc(run->buffer, size);
    }
    while (run->filled < run->capacity && run->offset < run->size) {
        ssize_t got =
            pread(run->fd, run->buffer + run->filled, run->capacity - run->filled, run->offset);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0) {
            errno = got == 0 ? EIO : errno;
            return failed(run, "read a", err);
        }
        run->filled += (size_t)got;
        run->offset += got;
    }
    return ERR_OK;
}

ErrCode run_file_next(RunFile *run, bool *ret_found, const uint8_t **ret_record, size_t *ret_size,
                      Error *err) {
    *ret_found = false;
    if (run->fd < 0)
        return ERR_OK;
    TRY(read_ahead(run, LENGTH_SIZE, err));
    if (run->filled == run->next) {
        give_back(run);
        return ERR_OK;
    }
    uint32_t length;
    memcpy(&length, run->buffer + run->next, LENGTH_SIZE);
    TRY(read_ahead(run, LENGTH_SIZE + (size_t)length, err));
    if (run->filled - run->next < LENGTH_SIZE + (size_t)length) {
        errno = EIO;
        return failed(run, "read a", err);
    }
    *ret_record = run->buffer + run->next + LENGTH_SIZE;
    *ret_size = length;
    run->next += LENGTH_SIZE + (size_t)length;
    *ret_found = true;
    return ERR_OK;
}

/* ---- from anywhere ---- */

int64_t run_file_end(const RunFile *run) {
    return run->offset + (off_t)run->filled;
}

static bool is_in_piece(const RunFile *run, off_t at, size_t size) {
    return run->piece != NULL && at >= run->piece_at &&
           at + (off_t)size <= run->piece_at + (off_t)run->piece_size;
}

static ErrCode read_piece(RunFile *run, off_t at, size_t size, Error *err) {
    if (is_in_piece(run, at, size))
        return ERR_OK;
    if (at + (off_t)size > run->offset) {
        TRY(write_all(run, run->buffer, run->filled, err));
        run->filled = 0;
    }
    size_t wanted = size < PIECE_BYTES ? PIECE_BYTES : size;
    if (run->piece == NULL || run->piece_capacity < wanted) {
        run->piece = xrealloc(run->piece, wanted);
        run->piece_capacity = wanted;
    }
    run->piece_at = at;
    run->piece_size = 0;
    while (run->piece_size < size) {
        ssize_t got = pread(run->fd, run->piece + run->piece_size, wanted - run->piece_size,
                            at + (off_t)run->piece_size);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0) {
            errno = got == 0 ? EIO : errno;
            return failed(run, "read a", err);
        }
        run->piece_size += (size_t)got;
    }
    return ERR_OK;
}

ErrCode run_file_read(RunFile *run, int64_t at, const uint8_t **ret_record, size_t *ret_size,
                      Error *err) {
    TRY(read_piece(run, at, LENGTH_SIZE, err));
    uint32_t length;
    memcpy(&length, run->piece + (at - run->piece_at), LENGTH_SIZE);
    TRY(read_piece(run, at, LENGTH_SIZE + (size_t)length, err));
    *ret_record = run->piece + (at - run->piece_at) + LENGTH_SIZE;
    *ret_size = length;
    return ERR_OK;
}

/* ---- files that outlive the process ---- */

ErrCode run_file_keep(RunFile *run, RunFileMark *ret_mark, Error *err) {
    invariant(run->name != NULL);
    /* A file that was read to its end is closed. */
    CLEANUP(xfree_ptr) char *path = xasprintf("%s/%s", run->dir, run->name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return failed(run, "open a", err);
    int rc = fdatasync(fd);
    close(fd);
    if (rc != 0)
        return failed(run, "sync a", err);
    *ret_mark = (RunFileMark){.size = run->size, .checksum = run->checksum};
    snprintf(ret_mark->name, sizeof(ret_mark->name), "%s", run->name);
    run->is_kept = true;
    return ERR_OK;
}

static ErrCode check_bytes(RunFile *run, const RunFileMark *mark, Error *err) {
    struct stat st;
    if (fstat(run->fd, &st) != 0)
        return failed(run, "read a", err);
    off_t at = 0;
    while (st.st_size == mark->size && at < mark->size) {
        ssize_t got = pread(run->fd, run->buffer, run->capacity, at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0) {
            errno = got == 0 ? EIO : errno;
            return failed(run, "read a", err);
        }
        run->checksum = crc32c_extend(run->checksum, run->buffer, (size_t)got);
        at += got;
    }
    if (st.st_size != mark->size || run->checksum != mark->checksum)
        return error_set(err, ERR_DATA_CORRUPTION_DETECTED,
                         "temporary file \"%s\" has not the size or the checksum that it had",
                         mark->name);
    return ERR_OK;
}

ErrCode run_file_open(const char *dir, const RunFileMark *mark, RunFile **ret_run, Error *err) {
    CLEANUP(xfree_ptr) char *path = xasprintf("%s/%s", dir, mark->name);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return error_set(err, ERR_FILE_STREAM_FAILED, "could not open temporary file \"%s\": %s",
                         path, strerror(errno));
    RunFile *run = NEW(RunFile);
    *run = (RunFile){.dir = dir,
                     .name = xstrdup(mark->name),
                     .is_kept = true,
                     .fd = fd,
                     .buffer = xmalloc(BUFFER_BYTES),
                     .capacity = BUFFER_BYTES,
                     .size = mark->size};
    ErrCode rc = check_bytes(run, mark, err);
    if (rc != ERR_OK) {
        run_file_free(run);
        return rc;
    }
    run->is_kept = false;
    *ret_run = run;
    return ERR_OK;
}

void run_files_sweep(const char *dir, bool (*is_wanted)(void *arg, const char *name), void *arg) {
    DIR *stream = opendir(dir);
    if (stream == NULL)
        return;
    for (struct dirent *entry = readdir(stream); entry != NULL; entry = readdir(stream))
        if (entry->d_type != DT_DIR && !is_wanted(arg, entry->d_name))
            (void)unlinkat(dirfd(stream), entry->d_name, 0);
    closedir(stream);
}
