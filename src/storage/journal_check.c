/*
 * journal_check.c - see journal_check.h.
 *
 * The journal is the files "journal/WiredTigerLog.0000000001" and up; a file is a run of records,
 * each at a multiple of 128 bytes:
 *
 *     0   4  length of the record with this head, padded to 128
 *     4   4  CRC-32C of the whole record, these four bytes taken as zero
 *     8   2  flags
 *    10   2  unused
 *    12   4  length before compression
 *    16      content
 *
 * The first record of a file is its header; the second says in which file, and where, the records
 * before it end. A file that is in use is followed by zeros up to its planned size.
 */
#include "storage/journal_check.h"

#include <dirent.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/crc32c.h"
#include "base/failpoint.h"
#include "base/log.h"

enum {
    RECORD_ALIGN = 128,
    RECORD_HEAD_BYTES = 16,
    /* Records are small (a few KB); read in large pieces. */
    WINDOW_BYTES = 1 << 20,
    TURTLE_BYTES_MAX = 1 << 20,
    RECORD_TYPE_SYSTEM = 4,
    OPERATION_PREVIOUS_END = 8,
};

/* A journal file and the part of it that is buffered. */
typedef struct JournalReader {
    uint32_t number;
    int fd;
    uint64_t size;
    uint8_t *window;
    size_t window_capacity;
    uint64_t window_offset;
    size_t window_size;
} JournalReader;

typedef struct JournalFiles {
    char *directory;
    uint32_t *numbers; /* sorted */
    uint32_t count, capacity;
} JournalFiles;

static ErrCode list_files(const char *dbpath, JournalFiles *ret_files, Error *err);
static void journal_files_done(JournalFiles *files);
static ErrCode checkpoint_place(const char *dbpath, JournalPlace *ret_place, Error *err);
static ErrCode walk(const JournalFiles *files, JournalReport *report, Error *err);
static ErrCode count_behind(const JournalFiles *files, JournalReport *report, Error *err);
static ErrCode cut(const char *dbpath, const JournalReport *report, Error *err);
static ErrCode damage_error(const JournalReport *report, Error *err);

ErrCode journal_inspect(const char *dbpath, JournalReport *ret_report, Error *err) {
    JournalReport report = {.durable = journal_mark_read(dbpath)};
    CLEANUP(journal_files_done) JournalFiles files = {0};
    TRY(list_files(dbpath, &files, err));
    TRY(checkpoint_place(dbpath, &report.begin, err));
    if (report.begin.file == 0 && files.count > 0)
        report.begin.file = files.numbers[0];
    report.end = report.begin;
    TRY(walk(&files, &report, err));

    bool has_mark = report.durable.file != 0;
    bool is_before_mark = journal_place_before(report.end, report.durable);
    /* What lies beyond the end is read only for the report, or when there is no mark to decide
     * by. */
    if (is_before_mark || !has_mark || report.why != JOURNAL_END_CLEAN)
        TRY(count_behind(&files, &report, err));
    /* Without a mark (a data directory of another program, or the mark could not be written) a
     * readable record beyond the end is the only evidence: a torn tail has none. */
    report.is_damaged = has_mark ? is_before_mark : report.behind_count > 0;
    *ret_report = report;
    return ERR_OK;
}

ErrCode journal_check(const char *dbpath, bool is_loss_accepted, Error *err) {
    JournalReport report;
    TRY(journal_inspect(dbpath, &report, err));
    if (!report.is_damaged) {
        if (report.behind_count > 0)
            LOG_WARN(LOG_STORAGE, 7100123,
                     "The journal ends before records that no flush had covered; they are left out",
                     LOG_I64("file", report.end.file), LOG_I64("offset", report.end.offset),
                     LOG_I64("records", report.behind_count),
                     LOG_I64("bytes", report.behind_bytes));
        return ERR_OK;
    }
    if (!is_loss_accepted)
        return damage_error(&report, err);
    LOG_ERROR(LOG_STORAGE, 7100124,
              "The journal is damaged; starting with what was written before that, as told",
              LOG_I64("file", report.end.file), LOG_I64("offset", report.end.offset),
              LOG_I64("durableFile", report.durable.file),
              LOG_I64("durableOffset", report.durable.offset),
              LOG_I64("recordsLost", report.behind_count),
              LOG_I64("bytesLost", report.behind_bytes), LOG_STR("keptIn", "journal.damaged"));
    return cut(dbpath, &report, err);
}

static ErrCode damage_error(const JournalReport *report, Error *err) {
    const char *what = report->why == JOURNAL_END_FILE_MISSING ? "is missing" : "is damaged";
    char durable[96] = "";
    if (report->durable.file != 0)
        snprintf(durable, sizeof(durable),
                 ", although all was on disk up to file %u offset %" PRIu64, report->durable.file,
                 report->durable.offset);
    return error_set(
        err, ERR_DATA_CORRUPTION_DETECTED,
        "the journal file \"journal/WiredTigerLog.%010u\" %s at offset %" PRIu64
        "%s: replay would lose the writes from there on (%" PRIu64 " readable records, %" PRIu64
        " bytes); restore the file, restore a backup, resynchronise this node, or accept the loss "
        "with --setParameter startOverDamagedJournal=true",
        report->end.file, what, report->end.offset, durable, report->behind_count,
        report->behind_bytes);
}

/* ---- files ---- */

static int compare_numbers(const void *a, const void *b) {
    uint32_t left = *(const uint32_t *)a, right = *(const uint32_t *)b;
    return (left > right) - (left < right);
}

static ErrCode list_files(const char *dbpath, JournalFiles *ret_files, Error *err) {
    ret_files->directory = xasprintf("%s/journal", dbpath);
    DIR *dir = opendir(ret_files->directory);
    if (dir == NULL)
        return errno == ENOENT ? ERR_OK
                               : error_set(err, ERR_FILE_STREAM_FAILED, "could not list \"%s\": %s",
                                           ret_files->directory, strerror(errno));
    for (struct dirent *entry = readdir(dir); entry != NULL; entry = readdir(dir)) {
        uint32_t number = journal_file_number(entry->d_name);
        if (number == 0)
            continue;
        ARRAY_RESERVE(ret_files->numbers, ret_files->count, ret_files->capacity);
        ret_files->numbers[ret_files->count++] = number;
    }
    closedir(dir);
    if (ret_files->count > 1)
        qsort(ret_files->numbers, ret_files->count, sizeof(uint32_t), compare_numbers);
    return ERR_OK;
}

static void journal_files_done(JournalFiles *files) {
    xfree(files->directory);
    xfree(files->numbers);
}

static bool has_file(const JournalFiles *files, uint32_t number) {
    for (uint32_t i = 0; i < files->count; i++)
        if (files->numbers[i] == number)
            return true;
    return false;
}

static char *file_path(const JournalFiles *files, uint32_t number) {
    return xasprintf("%s/WiredTigerLog.%010u", files->directory, number);
}

/* Where replay begins: WiredTiger records it in its turtle file with each checkpoint, as
 * "checkpoint_lsn=(file,offset)". {0, 0} if there is none. */
static ErrCode checkpoint_place(const char *dbpath, JournalPlace *ret_place, Error *err) {
    *ret_place = (JournalPlace){0, 0};
    CLEANUP(xfree_ptr) char *path = xasprintf("%s/WiredTiger.turtle", dbpath);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return ERR_OK; /* a new directory, or the engine will report it */
    CLEANUP(xfree_ptr) char *text = xmalloc(TURTLE_BYTES_MAX + 1);
    ssize_t got = read(fd, text, TURTLE_BYTES_MAX);
    close(fd);
    if (got < 0)
        return error_set(err, ERR_FILE_STREAM_FAILED, "could not read \"%s\": %s", path,
                         strerror(errno));
    text[got] = '\0';
    const char *at = strstr(text, "checkpoint_lsn=(");
    if (at != NULL)
        /* An unreadable place counts as none: then the whole journal is checked, which is only
         * slower. */
        (void)sscanf(at, "checkpoint_lsn=(%" SCNu32 ",%" SCNu64 ")", &ret_place->file,
                     &ret_place->offset);
    return ERR_OK;
}

/* ---- reading ---- */

static void reader_done(JournalReader *reader) {
    if (reader->fd >= 0)
        close(reader->fd);
    xfree(reader->window);
}

static ErrCode reader_open(const JournalFiles *files, uint32_t number, JournalReader *ret_reader,
                           Error *err) {
    CLEANUP(xfree_ptr) char *path = file_path(files, number);
    *ret_reader = (JournalReader){.number = number, .fd = open(path, O_RDONLY | O_CLOEXEC)};
    struct stat st;
    if (ret_reader->fd < 0 || fstat(ret_reader->fd, &st) != 0)
        return error_set(err, ERR_FILE_STREAM_FAILED, "could not open journal file \"%s\": %s",
                         path, strerror(errno));
    ret_reader->size = (uint64_t)st.st_size;
    return ERR_OK;
}

/* The bytes of the file, which has them; valid until the next call. */
static ErrCode reader_bytes(JournalReader *reader, uint64_t offset, size_t size,
                            const uint8_t **ret_bytes, Error *err) {
    if (offset < reader->window_offset ||
        offset + size > reader->window_offset + reader->window_size) {
        size_t wanted = size > WINDOW_BYTES ? size : WINDOW_BYTES;
        if (wanted > reader->size - offset)
            wanted = (size_t)(reader->size - offset);
        if (wanted > reader->window_capacity) {
            reader->window = xrealloc(reader->window, wanted);
            reader->window_capacity = wanted;
        }
        reader->window_offset = offset;
        reader->window_size = 0;
        while (reader->window_size < wanted) {
            ssize_t got =
                pread(reader->fd, reader->window + reader->window_size,
                      wanted - reader->window_size, (off_t)(offset + reader->window_size));
            if (got < 0 && errno == EINTR)
                continue;
            if (got <= 0)
                return error_set(err, ERR_FILE_STREAM_FAILED,
                                 "could not read journal file %u at offset %" PRIu64 ": %s",
                                 reader->number, offset,
                                 got == 0 ? "it is shorter now" : strerror(errno));
            reader->window_size += (size_t)got;
        }
    }
    *ret_bytes = reader->window + (offset - reader->window_offset);
    return ERR_OK;
}

static uint32_t load_u32(const uint8_t *at) {
    uint32_t value;
    memcpy(&value, at, sizeof(value));
    return le32toh(value);
}

/* The record at `offset`; *ret_size is 0 when there is none. */
static ErrCode reader_record(JournalReader *reader, uint64_t offset, const uint8_t **ret_record,
                             size_t *ret_size, Error *err) {
    *ret_size = 0;
    if (offset + RECORD_HEAD_BYTES > reader->size)
        return ERR_OK;
    const uint8_t *record;
    TRY(reader_bytes(reader, offset, RECORD_HEAD_BYTES, &record, err));
    uint32_t size = load_u32(record);
    uint32_t checksum = load_u32(record + 4);
    if (size < RECORD_HEAD_BYTES || size > reader->size - offset)
        return ERR_OK;
    TRY(reader_bytes(reader, offset, size, &record, err));
    static const uint8_t NO_CHECKSUM[4];
    uint32_t sum = crc32c(record, 4);
    sum = crc32c_extend(sum, NO_CHECKSUM, sizeof(NO_CHECKSUM));
    sum = crc32c_extend(sum, record + 8, size - 8);
    if (sum != checksum)
        return ERR_OK;
    *ret_record = record;
    *ret_size = size;
    return ERR_OK;
}

static uint64_t aligned(uint64_t offset) {
    return (offset + RECORD_ALIGN - 1) / RECORD_ALIGN * RECORD_ALIGN;
}

/* WiredTiger's packed unsigned integer; moves *at behind it. False when the bytes are none. */
static bool unpack_uint(const uint8_t **at, const uint8_t *end, uint64_t *ret_value) {
    if (*at >= end)
        return false;
    uint8_t head = *(*at)++;
    uint64_t value = 0;
    uint32_t more;
    uint64_t base;
    if (head >= 0x80 && head < 0xc0) {
        value = head & 0x3f;
        more = 0;
        base = 0;
    } else if (head >= 0xc0 && head < 0xe0) {
        value = head & 0x1f;
        more = 1;
        base = 64;
    } else if (head >= 0xe0 && head <= 0xe8) {
        more = head & 0x0f;
        base = 64 + 8192;
    } else {
        return false;
    }
    if ((size_t)(end - *at) < more)
        return false;
    for (; more > 0; more--)
        value = value << 8 | *(*at)++;
    *ret_value = value + base;
    return true;
}

/* Where the previous file ends; {0, 0} if the first record of this one does not say. */
static ErrCode previous_end(JournalReader *reader, JournalPlace *ret_place, Error *err) {
    *ret_place = (JournalPlace){0, 0};
    const uint8_t *record;
    size_t size;
    TRY(reader_record(reader, JOURNAL_FILE_HEADER_BYTES, &record, &size, err));
    const uint8_t *at = record + RECORD_HEAD_BYTES, *end = record + size;
    uint64_t type, operation, length, file, offset;
    if (size > 0 && unpack_uint(&at, end, &type) && type == RECORD_TYPE_SYSTEM &&
        unpack_uint(&at, end, &operation) && operation == OPERATION_PREVIOUS_END &&
        unpack_uint(&at, end, &length) && unpack_uint(&at, end, &file) &&
        unpack_uint(&at, end, &offset) && file <= UINT32_MAX)
        *ret_place = (JournalPlace){(uint32_t)file, offset};
    return ERR_OK;
}

/* ---- judging ---- */

static ErrCode is_zero_from(JournalReader *reader, uint64_t offset, bool *ret_is_zero, Error *err) {
    size_t size =
        (size_t)(reader->size - offset < RECORD_ALIGN ? reader->size - offset : RECORD_ALIGN);
    const uint8_t *bytes;
    TRY(reader_bytes(reader, offset, size, &bytes, err));
    *ret_is_zero = true;
    for (size_t i = 0; i < size; i++)
        *ret_is_zero &= bytes[i] == 0;
    return ERR_OK;
}

/* Walks over the records of one file; report->end moves to the first offset without one. */
static ErrCode walk_file(JournalReader *reader, JournalReport *report, Error *err) {
    for (;;) {
        const uint8_t *record;
        size_t size;
        TRY(reader_record(reader, report->end.offset, &record, &size, err));
        if (size == 0)
            break;
        report->end.offset = aligned(report->end.offset + size);
    }
    /* A file in use is zero-filled to its planned size, so zeros are a clean end and anything else
     * was once a record, or part of one. */
    bool is_zero = true;
    if (report->end.offset < reader->size)
        TRY(is_zero_from(reader, report->end.offset, &is_zero, err));
    report->why = is_zero ? JOURNAL_END_CLEAN : JOURNAL_END_UNREADABLE;
    return ERR_OK;
}

/* Follows the records from report->begin on exactly as WiredTiger's replay would, over all files:
 * whatever this accepts must not be lost, and whatever it rejects is lost anyway. */
static ErrCode walk(const JournalFiles *files, JournalReport *report, Error *err) {
    for (;;) {
        if (!has_file(files, report->end.file)) {
            report->why = JOURNAL_END_FILE_MISSING;
            return ERR_OK;
        }
        CLEANUP(reader_done) JournalReader reader;
        TRY(reader_open(files, report->end.file, &reader, err));
        TRY(walk_file(&reader, report, err));
        if (!has_file(files, report->end.file + 1)) {
            bool is_last = files->numbers[files->count - 1] <= report->end.file &&
                           report->durable.file <= report->end.file;
            if (!is_last && report->why == JOURNAL_END_CLEAN)
                report->why = JOURNAL_END_FILE_MISSING;
            return ERR_OK;
        }
        CLEANUP(reader_done) JournalReader next;
        TRY(reader_open(files, report->end.file + 1, &next, err));
        JournalPlace before;
        TRY(previous_end(&next, &before, err));
        /* The next file states where this one ended. If it ended earlier for us, records are
         * missing in between, and replay stops here. */
        if (before.file != report->end.file || before.offset != report->end.offset)
            return ERR_OK;
        report->end = (JournalPlace){next.number, 0};
    }
}

static ErrCode count_behind(const JournalFiles *files, JournalReport *report, Error *err) {
    for (uint32_t i = 0; i < files->count; i++) {
        if (files->numbers[i] < report->end.file)
            continue;
        CLEANUP(reader_done) JournalReader reader;
        TRY(reader_open(files, files->numbers[i], &reader, err));
        /* The header and the record that names the previous file are not transactions. */
        uint64_t offset = files->numbers[i] == report->end.file ? report->end.offset
                                                                : JOURNAL_FILE_FIRST_RECORD_END;
        while (offset < reader.size) {
            const uint8_t *record;
            size_t size;
            TRY(reader_record(&reader, offset, &record, &size, err));
            /* After damage the next record can begin at any multiple of the alignment. */
            offset = aligned(offset + (size > 0 ? size : 1));
            report->behind_count += size > 0;
            report->behind_bytes += size;
        }
    }
    return ERR_OK;
}

/* ---- cutting ---- */

/* Written under another name and renamed: an existing copy is complete, and must not be replaced by
 * one of a file that was truncated before a crash. */
static ErrCode keep_copy(const char *from, const char *to, Error *err) {
    if (access(to, F_OK) == 0)
        return ERR_OK;
    CLEANUP(xfree_ptr) char *part = xasprintf("%s.part", to);
    int in = open(from, O_RDONLY | O_CLOEXEC);
    int out = open(part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    CLEANUP(xfree_ptr) uint8_t *bytes = xmalloc(WINDOW_BYTES);
    ssize_t got = in < 0 || out < 0 ? -1 : 1;
    while (got > 0) {
        got = read(in, bytes, WINDOW_BYTES);
        if (got > 0 && write(out, bytes, (size_t)got) != got)
            got = -1;
    }
    bool is_done = got == 0 && fsync(out) == 0 && rename(part, to) == 0;
    ErrCode rc = is_done
                     ? ERR_OK
                     : error_set(err, ERR_FILE_STREAM_FAILED, "could not copy \"%s\" to \"%s\": %s",
                                 from, to, strerror(errno));
    if (in >= 0)
        close(in);
    if (out >= 0)
        close(out);
    return rc;
}

/* Files after the end are moved aside, the damaged one is copied and truncated. The mark is removed
 * last: a crash in between leaves a journal that is still recognized as damaged. */
static ErrCode cut(const char *dbpath, const JournalReport *report, Error *err) {
    CLEANUP(xfree_ptr) char *aside = xasprintf("%s/journal.damaged", dbpath);
    if (mkdir(aside, 0700) != 0 && errno != EEXIST)
        return error_set(err, ERR_FILE_STREAM_FAILED, "could not create \"%s\": %s", aside,
                         strerror(errno));
    CLEANUP(journal_files_done) JournalFiles files = {0};
    TRY(list_files(dbpath, &files, err));
    for (uint32_t i = 0; i < files.count; i++) {
        if (files.numbers[i] < report->end.file)
            continue;
        CLEANUP(xfree_ptr) char *path = file_path(&files, files.numbers[i]);
        CLEANUP(xfree_ptr) char *kept = xasprintf("%s/%s", aside, strrchr(path, '/') + 1);
        bool is_cut = files.numbers[i] == report->end.file;
        /* WiredTiger expects header and first record in every file; one without them has to go as a
         * whole. */
        bool is_empty = is_cut && report->end.offset < JOURNAL_FILE_FIRST_RECORD_END;
        if (is_cut && !is_empty) {
            TRY(keep_copy(path, kept, err));
            if (truncate(path, (off_t)report->end.offset) != 0)
                return error_set(err, ERR_FILE_STREAM_FAILED, "could not cut \"%s\": %s", path,
                                 strerror(errno));
        } else if (rename(path, kept) != 0) {
            return error_set(err, ERR_FILE_STREAM_FAILED, "could not move \"%s\" to \"%s\": %s",
                             path, kept, strerror(errno));
        }
    }
    failpoint_hit(FP_JOURNAL_CUT);
    if (!journal_mark_remove(dbpath))
        return error_set(err, ERR_FILE_STREAM_FAILED,
                         "could not remove the mark of the journal: %s", strerror(errno));
    return ERR_OK;
}
