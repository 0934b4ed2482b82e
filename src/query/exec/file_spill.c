#include "query/exec/file_spill.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/buffer.h"

enum {
    STREAM_BUFFER_BYTES = 256 * 1024,
};

/* Records as they were appended: a 32-bit size, then that many bytes. */
typedef struct SpillRun {
    FILE *file;    /* NULL: read to its end and given back */
    Buffer record; /* the one read last */
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

static ErrCode run_new(void *arg, uint32_t *ret_run, Error *err) {
    FileSpill *spill = arg;
    if (mkdir(spill->dir, 0700) != 0 && errno != EEXIST)
        return failed(spill, "make the directory of a", err);
    CLEANUP(xfree_ptr) char *path = xasprintf("%s/spill-XXXXXX", spill->dir);
    int fd = mkostemp(path, O_CLOEXEC);
    if (fd < 0)
        return failed(spill, "create a", err);
    unlink(path);
    FILE *file = fdopen(fd, "w+");
    if (file == NULL) {
        close(fd);
        return failed(spill, "open a", err);
    }
    setvbuf(file, NULL, _IOFBF, STREAM_BUFFER_BYTES);
    ARRAY_RESERVE(spill->runs, spill->count, spill->capacity);
    SpillRun *run = &spill->runs[spill->count];
    run->file = file;
    buffer_init(&run->record, SIZE_MAX / 2);
    *ret_run = (uint32_t)spill->count++;
    return ERR_OK;
}

static ErrCode run_append(void *arg, uint32_t index, const void *record, size_t size, Error *err) {
    FileSpill *spill = arg;
    FILE *file = spill->runs[index].file;
    uint32_t length = (uint32_t)size;
    if (fwrite(&length, sizeof(length), 1, file) != 1 || fwrite(record, size, 1, file) != 1)
        return failed(spill, "write a", err);
    return ERR_OK;
}

static ErrCode run_finish(void *arg, uint32_t index, Error *err) {
    FileSpill *spill = arg;
    FILE *file = spill->runs[index].file;
    if (fflush(file) != 0 || fseek(file, 0, SEEK_SET) != 0)
        return failed(spill, "finish a", err);
    return ERR_OK;
}

static ErrCode run_next(void *arg, uint32_t index, bool *ret_found, const uint8_t **ret_record,
                        size_t *ret_size, Error *err) {
    FileSpill *spill = arg;
    SpillRun *run = &spill->runs[index];
    uint32_t length;
    *ret_found = false;
    if (run->file == NULL)
        return ERR_OK;
    if (fread(&length, sizeof(length), 1, run->file) != 1) {
        if (ferror(run->file))
            return failed(spill, "read a", err);
        /* Disk space and memory go back at once: what is merged is written once more. */
        fclose(run->file);
        run->file = NULL;
        buffer_done(&run->record);
        buffer_init(&run->record, SIZE_MAX / 2);
        return ERR_OK;
    }
    buffer_clear(&run->record);
    uint8_t *at = buffer_reserve(&run->record, length);
    invariant(at != NULL);
    if (fread(at, length, 1, run->file) != 1)
        return failed(spill, "read a", err);
    *ret_record = at;
    *ret_size = length;
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
    for (size_t i = 0; i < spill->count; i++) {
        if (spill->runs[i].file != NULL)
            fclose(spill->runs[i].file);
        buffer_done(&spill->runs[i].record);
    }
    xfree(spill->runs);
    xfree(spill->dir);
    xfree(spill);
}

const Spill *file_spill_interface(FileSpill *spill) {
    return &spill->interface;
}
