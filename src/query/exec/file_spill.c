#include "query/exec/file_spill.h"

#include "base/alloc.h"
#include "base/run_file.h"

struct FileSpill {
    Spill interface;
    char *dir;
    RunFile **runs;
    size_t count;
    size_t capacity;
};

static ErrCode run_new(void *arg, uint32_t *ret_run, Error *err) {
    FileSpill *spill = arg;
    ARRAY_RESERVE(spill->runs, spill->count, spill->capacity);
    TRY(run_file_new(spill->dir, &spill->runs[spill->count], err));
    *ret_run = (uint32_t)spill->count++;
    return ERR_OK;
}

static ErrCode run_append(void *arg, uint32_t run, const void *record, size_t size, Error *err) {
    return run_file_append(((FileSpill *)arg)->runs[run], record, size, err);
}

static ErrCode run_finish(void *arg, uint32_t run, Error *err) {
    return run_file_finish(((FileSpill *)arg)->runs[run], err);
}

static ErrCode run_next(void *arg, uint32_t run, bool *ret_found, const uint8_t **ret_record,
                        size_t *ret_size, Error *err) {
    return run_file_next(((FileSpill *)arg)->runs[run], ret_found, ret_record, ret_size, err);
}

static int64_t run_end(void *arg, uint32_t run) {
    return run_file_end(((FileSpill *)arg)->runs[run]);
}

static ErrCode run_read(void *arg, uint32_t run, int64_t at, const uint8_t **ret_record,
                        size_t *ret_size, Error *err) {
    return run_file_read(((FileSpill *)arg)->runs[run], at, ret_record, ret_size, err);
}

static void run_free(void *arg, uint32_t run) {
    FileSpill *spill = arg;
    run_file_free(spill->runs[run]);
    spill->runs[run] = NULL;
}

FileSpill *file_spill_new(const char *dir) {
    FileSpill *spill = NEW(FileSpill);
    spill->dir = xstrdup(dir);
    spill->interface =
        (Spill){spill, run_new, run_append, run_finish, run_next, run_end, run_read, run_free};
    return spill;
}

void file_spill_free(FileSpill *spill) {
    if (spill == NULL)
        return;
    for (size_t i = 0; i < spill->count; i++)
        run_file_free(spill->runs[i]);
    xfree(spill->runs);
    xfree(spill->dir);
    xfree(spill);
}

const Spill *file_spill_interface(FileSpill *spill) {
    return &spill->interface;
}

bool file_spill_is_used(const FileSpill *spill) {
    return spill != NULL && spill->count > 0;
}
