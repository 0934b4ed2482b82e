#include "query/exec/file_spill.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"

enum {
    BUFFER_BYTES = 128 * 1024,
    /* Disk space is asked for in such steps: writing into it costs half of what growing does. */
    GROWTH_BYTES = 8 * 1024 * 1024,
    LENGTH_SIZE = 4,
};

/* Records as they were appended: a 32-bit size, then that many bytes. While writing, the buffer
 * holds what is not in the file yet; while reading, what was read ahead. */
typedef struct SpillRun {
    int fd; /* -1: read to its end and given back */
    uint8_t *buffer;
    size_t capacity;
    size_t next;   /* reading: where the next record begins */
    size_t filled; /* bytes in the buffer */
    off_t offset;  /* of the file: where the next write or read goes */
    off_t size;
    off_t reserved;
} SpillRun;

struct FileSpill {
    Spill interface;
    char *dir;
    SpillRun *runs;
    size_t count;
    size_t capacity;
};

static ErrCode failed(const FileSpill *spill, const char *what, Error *err) {
    return error_set(err, errno == ENOSPC ? ERR_OUT_OF_DISK_SPACE : ERR_FILE_STREAM_FAILED,
                     "could not %s temporary file in \"%s\": %s", what, spill->dir,
                     strerror(errno));
}

static void run_close(SpillRun *run) {
    if (run->fd >= 0)
        close(run->fd);
    run->fd = -1;
    xfree(run->buffer);
    run->buffer = NULL;
}

static ErrCode run_new(void *arg, uint32_t *ret_run, Error *err) {
    FileSpill *spill = arg;
    if (mkdir(spill->dir, 0700) != 0 && errno != EEXIST)
        return failed(spill, "make the directory of a", err);
    CLEANUP(xfree_ptr) char *path = xasprintf("%s/spill-XXXXXX", spill->dir);
    int fd = mkostemp(path, O_CLOEXEC);
    if (fd < 0)
        return failed(spill, "create a", err);
    unlink(path);
    ARRAY_RESERVE(spill->runs, spill->count, spill->capacity);
    spill->runs[spill->count] =
        (SpillRun){.fd = fd, .buffer = xmalloc(BUFFER_BYTES), .capacity = BUFFER_BYTES};
    *ret_run = (uint32_t)spill->count++;
    return ERR_OK;
}

static ErrCode write_all(FileSpill *spill, SpillRun *run, const uint8_t *data, size_t size,
                         Error *err) {
    if (run->offset + (off_t)size > run->reserved) {
        run->reserved = run->offset + (off_t)size + GROWTH_BYTES;
        (void)fallocate(run->fd, FALLOC_FL_KEEP_SIZE, run->offset, run->reserved - run->offset);
    }
    while (size > 0) {
        ssize_t written = pwrite(run->fd, data, size, run->offset);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0)
            return failed(spill, "write a", err);
        data += written;
        size -= (size_t)written;
        run->offset += written;
    }
    return ERR_OK;
}

static ErrCode append_bytes(FileSpill *spill, SpillRun *run, const void *data, size_t size,
                            Error *err) {
    if (run->filled + size > run->capacity) {
        TRY(write_all(spill, run, run->buffer, run->filled, err));
        run->filled = 0;
        if (size > run->capacity)
            return write_all(spill, run, data, size, err);
    }
    memcpy(run->buffer + run->filled, data, size);
    run->filled += size;
    return ERR_OK;
}

static ErrCode run_append(void *arg, uint32_t index, const void *record, size_t size, Error *err) {
    FileSpill *spill = arg;
    SpillRun *run = &spill->runs[index];
    uint32_t length = (uint32_t)size;
    TRY(append_bytes(spill, run, &length, LENGTH_SIZE, err));
    return append_bytes(spill, run, record, size, err);
}

static ErrCode run_finish(void *arg, uint32_t index, Error *err) {
    FileSpill *spill = arg;
    SpillRun *run = &spill->runs[index];
    TRY(write_all(spill, run, run->buffer, run->filled, err));
    run->size = run->offset;
    run->offset = 0;
    run->next = run->filled = 0;
    return ERR_OK;
}

/* Makes `size` bytes stand at run->next; fewer only at the end of the file. */
static ErrCode read_ahead(FileSpill *spill, SpillRun *run, size_t size, Error *err) {
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
            return failed(spill, "read a", err);
        }
        run->filled += (size_t)got;
        run->offset += got;
    }
    return ERR_OK;
}

static ErrCode run_next(void *arg, uint32_t index, bool *ret_found, const uint8_t **ret_record,
                        size_t *ret_size, Error *err) {
    FileSpill *spill = arg;
    SpillRun *run = &spill->runs[index];
    *ret_found = false;
    if (run->fd < 0)
        return ERR_OK;
    TRY(read_ahead(spill, run, LENGTH_SIZE, err));
    if (run->filled == run->next) {
        run_close(run); /* disk space goes back at once: what is merged is written once more */
        return ERR_OK;
    }
    uint32_t length;
    memcpy(&length, run->buffer + run->next, LENGTH_SIZE);
    TRY(read_ahead(spill, run, LENGTH_SIZE + (size_t)length, err));
    if (run->filled - run->next < LENGTH_SIZE + (size_t)length) {
        errno = EIO;
        return failed(spill, "read a", err);
    }
    *ret_record = run->buffer + run->next + LENGTH_SIZE;
    *ret_size = length;
    run->next += LENGTH_SIZE + (size_t)length;
    *ret_found = true;
    return ERR_OK;
}

FileSpill *file_spill_new(const char *dir) {
    FileSpill *spill = NEW(FileSpill);
    spill->dir = xstrdup(dir);
    spill->interface = (Spill){spill, run_new, run_append, run_finish, run_next};
    return spill;
}

void file_spill_free(FileSpill *spill) {
    if (spill == NULL)
        return;
    for (size_t i = 0; i < spill->count; i++)
        run_close(&spill->runs[i]);
    xfree(spill->runs);
    xfree(spill->dir);
    xfree(spill);
}

const Spill *file_spill_interface(FileSpill *spill) {
    return &spill->interface;
}
