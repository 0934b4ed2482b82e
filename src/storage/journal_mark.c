/*
 * journal_mark.c - see journal_mark.h.
 *
 * The file: magic (4 bytes), file number (4), offset (8), CRC-32C of the sixteen bytes before (4),
 * all little endian. Twenty bytes at the front of a sector are written whole or not at all.
 */
#include "storage/journal_mark.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/crc32c.h"
#include "base/log.h"
#include "base/thread.h"

#define MARK_FILE   "journal.mark"
#define MARK_MAGIC  UINT32_C(0x4b4d4a53) /* "SJMK" */
#define FILE_PREFIX "WiredTigerLog."

typedef struct MarkOnDisk {
    uint32_t magic;
    uint32_t file;
    uint64_t offset;
    uint32_t checksum;
    uint32_t unused;
} MarkOnDisk;

enum {
    MARK_BYTES = 20,
    CHECKED_BYTES = 16,
    /* Files with something to sync: the present one and those being closed. */
    FILES_MAX = 8,
    /* Writes beyond a gap, made by threads that overtook another. WiredTiger has fewer buffers than
     * this; an overflow only leaves the mark behind, which is safe. */
    AHEAD_MAX = 256,
};

typedef struct Extent {
    uint64_t begin, end;
} Extent;

typedef struct JournalFile {
    uint32_t number;
    uint64_t written; /* all bytes before it are */
    uint64_t synced;  /* and on disk; 0: nothing known */
    Extent ahead[AHEAD_MAX];
    uint32_t ahead_count;
} JournalFile;

struct JournalMark {
    char *path;     /* Set at init, then constant. */
    int fd;         /* of the leader of the flush; -1: not opened yet */
    bool is_broken; /* likewise: could not be written, which has been logged */
    JournalPlace noted;

    Mutex mu;
    /* Guarded by mu. */
    JournalFile *files[FILES_MAX]; /* by number */
    uint32_t file_count;
};

static JournalFile *find_file_locked(JournalMark *mark, uint32_t number, bool is_added);
static void add_extent(JournalFile *file, Extent extent);
static JournalPlace durable_place(JournalMark *mark);

static char *mark_path(const char *dbpath) {
    return xasprintf("%s/" MARK_FILE, dbpath);
}

JournalMark *journal_mark_new(const char *dbpath) {
    JournalMark *mark = NEW(JournalMark);
    mark->path = mark_path(dbpath);
    mark->fd = -1;
    mutex_init(&mark->mu, LOCK_RANK_JOURNAL_MARK);
    return mark;
}

void journal_mark_free(JournalMark *mark) {
    if (mark == NULL)
        return;
    if (mark->fd >= 0)
        close(mark->fd);
    for (uint32_t i = 0; i < mark->file_count; i++)
        xfree(mark->files[i]);
    mutex_done(&mark->mu);
    xfree(mark->path);
    xfree(mark);
}

uint32_t journal_file_number(const char *path) {
    const char *slash = strrchr(path, '/');
    const char *name = slash != NULL ? slash + 1 : path;
    if (strncmp(name, FILE_PREFIX, strlen(FILE_PREFIX)) != 0)
        return 0;
    char *end;
    unsigned long number = strtoul(name + strlen(FILE_PREFIX), &end, 10);
    return *end == '\0' && number <= UINT32_MAX ? (uint32_t)number : 0;
}

void journal_mark_wrote(JournalMark *mark, uint32_t file_number, uint64_t offset, size_t size) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&mark->mu);
    JournalFile *file = find_file_locked(mark, file_number, /* is_added= */ true);
    if (file != NULL)
        add_extent(file, (Extent){offset, offset + size});
}

uint64_t journal_mark_sync_begin(JournalMark *mark, uint32_t file_number) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&mark->mu);
    JournalFile *file = find_file_locked(mark, file_number, /* is_added= */ false);
    return file != NULL ? file->written : 0;
}

void journal_mark_synced(JournalMark *mark, uint32_t file_number, uint64_t until) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&mark->mu);
    JournalFile *file = find_file_locked(mark, file_number, /* is_added= */ false);
    if (file != NULL && until > file->synced)
        file->synced = until;
}

void journal_mark_write(JournalMark *mark) {
    JournalPlace place = durable_place(mark);
    if (!journal_place_before(mark->noted, place))
        return;
    MarkOnDisk disk = {.magic = MARK_MAGIC, .file = place.file, .offset = place.offset};
    disk.checksum = crc32c(&disk, CHECKED_BYTES);
    if (mark->fd < 0)
        mark->fd = open(mark->path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    /* A missing mark loses no data: damage to the journal would only be harder to detect. So a
     * failure is logged once and does not stop the flush. */
    if (mark->fd >= 0 && pwrite(mark->fd, &disk, MARK_BYTES, 0) == MARK_BYTES) {
        mark->noted = place;
    } else if (!mark->is_broken) {
        mark->is_broken = true;
        LOG_WARN(LOG_STORAGE, 7100122, "Could not note how far the journal is on disk",
                 LOG_STR("file", mark->path), LOG_STR("error", strerror(errno)));
    }
}

JournalPlace journal_mark_read(const char *dbpath) {
    JournalPlace none = {0, 0};
    CLEANUP(xfree_ptr) char *path = mark_path(dbpath);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return none;
    MarkOnDisk disk;
    ssize_t got = pread(fd, &disk, MARK_BYTES, 0);
    close(fd);
    if (got != MARK_BYTES || disk.magic != MARK_MAGIC ||
        disk.checksum != crc32c(&disk, CHECKED_BYTES))
        return none;
    return (JournalPlace){disk.file, disk.offset};
}

bool journal_mark_remove(const char *dbpath) {
    CLEANUP(xfree_ptr) char *path = mark_path(dbpath);
    return unlink(path) == 0 || errno == ENOENT;
}

/* NULL if it is unknown, or older than all files that are still tracked. */
static JournalFile *find_file_locked(JournalMark *mark, uint32_t number, bool is_added) {
    assert_held(&mark->mu);
    uint32_t at = mark->file_count;
    while (at > 0 && mark->files[at - 1]->number >= number)
        at--;
    if (at < mark->file_count && mark->files[at]->number == number)
        return mark->files[at];
    if (!is_added || at < mark->file_count)
        return NULL; /* WiredTiger writes its files in the order of their numbers */
    if (mark->file_count == FILES_MAX) {
        xfree(mark->files[0]);
        memmove(mark->files, mark->files + 1, (FILES_MAX - 1) * sizeof(mark->files[0]));
        mark->file_count--;
    }
    JournalFile *file = NEW(JournalFile);
    file->number = number;
    /* The header was written when WiredTiger preallocated the file under another name. */
    file->written = JOURNAL_FILE_HEADER_BYTES;
    mark->files[mark->file_count++] = file;
    return file;
}

static void add_extent(JournalFile *file, Extent extent) {
    if (extent.begin > file->written) {
        if (file->ahead_count < AHEAD_MAX)
            file->ahead[file->ahead_count++] = extent;
        return;
    }
    if (extent.end > file->written)
        file->written = extent.end;
    /* This write may have closed a gap in front of others. */
    for (uint32_t i = 0; i < file->ahead_count;) {
        if (file->ahead[i].begin > file->written) {
            i++;
            continue;
        }
        if (file->ahead[i].end > file->written)
            file->written = file->ahead[i].end;
        file->ahead[i] = file->ahead[--file->ahead_count];
        i = 0;
    }
}

/* WiredTiger syncs records of a file only after all previous files are complete and synced; this
 * does not rely on it and stops at the first file with unsynced bytes. */
static JournalPlace durable_place(JournalMark *mark) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&mark->mu);
    JournalPlace place = {0, 0};
    for (uint32_t i = 0; i < mark->file_count; i++) {
        const JournalFile *file = mark->files[i];
        if (file->synced > JOURNAL_FILE_FIRST_RECORD_END)
            place = (JournalPlace){file->number, file->synced};
        if (file->synced < file->written || file->ahead_count > 0)
            break;
    }
    return place;
}
