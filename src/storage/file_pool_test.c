#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/thread.h"
#include "storage/fixture_test.h"
#include "storage/storage_internal.h"

enum { FILES = 40, FILE_SIZE = 4096 };

static WT_FILE_HANDLE *open_file(FilePool *pool, const char *dir, int number, uint32_t flags) {
    CLEANUP(xfree_ptr) char *name = xasprintf("%s/table-%d.wt", dir, number);
    WT_FILE_SYSTEM *fs = file_pool_file_system(pool);
    WT_FILE_HANDLE *handle = NULL;
    EXPECT_EQ_I64(fs->fs_open_file(fs, NULL, name, WT_FS_OPEN_FILE_TYPE_DATA, flags, &handle), 0);
    return handle;
}

static void write_number(WT_FILE_HANDLE *handle, int number) {
    char page[FILE_SIZE];
    memset(page, number, sizeof(page));
    EXPECT_EQ_I64(handle->fh_write(handle, NULL, 0, sizeof(page), page), 0);
}

static bool has_number(WT_FILE_HANDLE *handle, int number) {
    char page[FILE_SIZE] = {0};
    EXPECT_EQ_I64(handle->fh_read(handle, NULL, 0, sizeof(page), page), 0);
    return page[0] == (char)number && page[sizeof(page) - 1] == (char)number;
}

static FilePoolStats stats_of(FilePool *pool) {
    FilePoolStats stats;
    file_pool_stats(pool, &stats);
    return stats;
}

TEST(file_pool_serves_more_files_than_it_has_descriptors) {
    FilePool *pool = file_pool_new(/* open_max= */ 4, NULL);
    const char *dir = test_temp_dir();
    WT_FILE_HANDLE *files[FILES];
    for (int i = 0; i < FILES; i++) {
        files[i] = open_file(pool, dir, i, WT_FS_OPEN_CREATE);
        REQUIRE(files[i] != NULL);
        write_number(files[i], i);
    }
    EXPECT(stats_of(pool).open_count <= 4);
    /* Whatever was closed had been made durable before: a sync has nothing left to do. */
    EXPECT(stats_of(pool).synced >= FILES - 4);
    for (int round = 0; round < 3; round++)
        for (int i = 0; i < FILES; i++)
            EXPECT(has_number(files[i], i));
    EXPECT(stats_of(pool).open_count <= 4);
    EXPECT(stats_of(pool).reopened >= 2 * (FILES - 4));
    wt_off_t size = 0;
    EXPECT_EQ_I64(files[0]->fh_truncate(files[0], NULL, 3 * FILE_SIZE), 0);
    EXPECT(has_number(files[1], 1) && has_number(files[2], 2) && has_number(files[3], 3));
    EXPECT_EQ_I64(files[0]->fh_size(files[0], NULL, &size), 0);
    EXPECT_EQ_I64(size, 3 * FILE_SIZE);
    for (int i = 0; i < FILES; i++) {
        EXPECT_EQ_I64(files[i]->fh_sync(files[i], NULL), 0);
        EXPECT_EQ_I64(files[i]->close(files[i], NULL), 0);
    }
    EXPECT_EQ_U64(stats_of(pool).open_count, 0);
    file_pool_free(pool);
}

TEST(file_pool_reports_what_a_file_system_reports) {
    /* Missing files, a file that is there already, a read past the end. */
    FilePool *pool = file_pool_new(4, NULL);
    WT_FILE_SYSTEM *fs = file_pool_file_system(pool);
    CLEANUP(xfree_ptr) char *name = xasprintf("%s/one.wt", test_temp_dir());
    WT_FILE_HANDLE *file = NULL;
    const WT_FS_OPEN_FILE_TYPE type = WT_FS_OPEN_FILE_TYPE_DATA;
    EXPECT_EQ_I64(fs->fs_open_file(fs, NULL, name, type, 0, &file), ENOENT);
    EXPECT_EQ_I64(
        fs->fs_open_file(fs, NULL, name, type, WT_FS_OPEN_CREATE | WT_FS_OPEN_DURABLE, &file), 0);
    WT_FILE_HANDLE *again = NULL;
    EXPECT_EQ_I64(
        fs->fs_open_file(fs, NULL, name, type, WT_FS_OPEN_CREATE | WT_FS_OPEN_EXCLUSIVE, &again),
        EEXIST);
    char byte;
    EXPECT_EQ_I64(file->fh_read(file, NULL, 0, 1, &byte), WT_ERROR);
    EXPECT_EQ_I64(file->close(file, NULL), 0);
    bool exists = false;
    EXPECT_EQ_I64(fs->fs_exist(fs, NULL, name, &exists), 0);
    EXPECT(exists);
    EXPECT_EQ_I64(fs->fs_remove(fs, NULL, name, WT_FS_DURABLE), 0);
    EXPECT_EQ_I64(fs->fs_exist(fs, NULL, name, &exists), 0);
    EXPECT(!exists);
    EXPECT_EQ_I64(fs->fs_remove(fs, NULL, name, 0), ENOENT);
    file_pool_free(pool);
}

/* Takes all descriptors of the process, opens a journal file and a table's. 0: both worked. */
static int open_with_none_left(FilePool *pool, const char *dir, WT_FILE_HANDLE **files) {
    struct rlimit limit = {256, 256};
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0)
        return 2;
    while (open("/dev/null", O_RDONLY) >= 0)
        ;
    WT_FILE_SYSTEM *fs = file_pool_file_system(pool);
    CLEANUP(xfree_ptr) char *name = xasprintf("%s/journal", dir);
    WT_FILE_HANDLE *journal = NULL;
    if (fs->fs_open_file(fs, NULL, name, WT_FS_OPEN_FILE_TYPE_LOG,
                         WT_FS_OPEN_CREATE | WT_FS_OPEN_DURABLE, &journal) != 0)
        return 3;
    WT_FILE_HANDLE *table = open_file(pool, dir, FILES, WT_FS_OPEN_CREATE);
    if (table == NULL)
        return 4;
    for (int i = 0; i < FILES; i++)
        if (!has_number(files[i], i))
            return 5;
    return journal->fh_sync(journal, NULL) == 0 ? 0 : 6;
}

TEST(file_pool_gives_up_a_table_when_the_process_has_no_descriptor_left) {
    FilePool *pool = file_pool_new(/* open_max= */ 1000, NULL);
    const char *dir = test_temp_dir();
    WT_FILE_HANDLE *files[FILES];
    for (int i = 0; i < FILES; i++) {
        files[i] = open_file(pool, dir, i, WT_FS_OPEN_CREATE);
        write_number(files[i], i);
    }
    fflush(stdout);
    pid_t child = fork(); /* the limit is the process's */
    if (child == 0)
        _exit(open_with_none_left(pool, dir, files));
    int status = -1;
    EXPECT(waitpid(child, &status, 0) == child);
    EXPECT(WIFEXITED(status));
    EXPECT_EQ_I64(WEXITSTATUS(status), 0);
    for (int i = 0; i < FILES; i++)
        EXPECT_EQ_I64(files[i]->close(files[i], NULL), 0);
    file_pool_free(pool);
}

typedef struct Hammer {
    WT_FILE_HANDLE **files;
    Thread thread;
    int first;
} Hammer;

static void hammer_run(void *arg) {
    Hammer *hammer = arg;
    for (int i = 0; i < 4000; i++) {
        int number = (hammer->first + i * 7) % FILES;
        if (i % 5 == 0)
            write_number(hammer->files[number], number);
        else if (i % 17 == 0)
            EXPECT_EQ_I64(hammer->files[number]->fh_sync(hammer->files[number], NULL), 0);
        else
            EXPECT(has_number(hammer->files[number], number));
    }
}

TEST(file_pool_is_used_by_many_threads) {
    FilePool *pool = file_pool_new(/* open_max= */ 6, NULL);
    const char *dir = test_temp_dir();
    WT_FILE_HANDLE *files[FILES];
    for (int i = 0; i < FILES; i++) {
        files[i] = open_file(pool, dir, i, WT_FS_OPEN_CREATE);
        write_number(files[i], i);
    }
    Hammer hammers[4];
    Error err = {0};
    for (int i = 0; i < 4; i++) {
        hammers[i] = (Hammer){.files = files, .first = i * 3};
        EXPECT_OK(thread_start(&hammers[i].thread, "hammer", hammer_run, &hammers[i], &err), err);
    }
    for (int i = 0; i < 4; i++)
        thread_join(&hammers[i].thread);
    EXPECT(stats_of(pool).open_count <= 6 + 4); /* each thread may pass the limit by one */
    for (int i = 0; i < FILES; i++)
        EXPECT_EQ_I64(files[i]->close(files[i], NULL), 0);
    EXPECT_EQ_U64(stats_of(pool).open_count, 0);
    file_pool_free(pool);
}

TEST(engine_keeps_few_files_of_many_tables_open) {
    /* Goal: data written to many tables through few descriptors are there, before and after a
     * checkpoint and after another start. */
    enum { TABLES = 60 };
    StorageFixture fx = {.table_files_max = 16};
    snprintf(fx.dir, sizeof(fx.dir), "%s", test_temp_dir());
    fixture_open(&fx);
    Error err = {0};
    for (int round = 0; round < 2; round++) {
        RecordStore *stores[TABLES];
        for (int i = 0; i < TABLES; i++) {
            char ident[32];
            snprintf(ident, sizeof(ident), "many-%d", i);
            if (round == 0)
                EXPECT_OK(storage_create_table(fx.engine, ident, TABLE_RECORDS, NULL, &err), err);
            EXPECT_OK(record_store_open(fx.engine, ident, false, &stores[i], &err), err);
        }
        for (int i = 0; i < TABLES && round == 0; i++) {
            CLEANUP(uow_done) UnitOfWork uow = {0};
            EXPECT_OK(uow_begin(fx.op, &uow, &err), err);
            EXPECT_OK(record_insert(fx.op, stores[i], record_id_num(i + 1), (Str){"x", 1}, &err),
                      err);
            EXPECT_OK(uow_commit(&uow, &err), err);
        }
        EXPECT_OK(storage_checkpoint(fx.engine, &err), err);
        for (int i = 0; i < TABLES; i++) {
            CLEANUP(record_cursor_done) RecordCursor cursor = {0};
            bool is_found = false;
            Str data;
            EXPECT_OK(record_cursor_open(fx.op, stores[i], true, &cursor, &err), err);
            EXPECT_OK(
                record_cursor_seek_exact(&cursor, record_id_num(i + 1), &is_found, &data, &err),
                err);
            EXPECT(is_found);
        }
        ru_abandon_snapshot(fx.op->ru);
        FilePoolStats stats = stats_of(fx.engine->files);
        EXPECT(stats.open_count <= 16);
        EXPECT(round == 1 || stats.reopened > 0); /* by the checkpoint */
        for (int i = 0; i < TABLES; i++)
            record_store_unref(stores[i]);
        fixture_close(&fx);
        if (round == 0)
            fixture_open(&fx);
    }
}
