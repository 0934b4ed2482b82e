#include "base/run_file.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/prng.h"
#include "base/test.h"

static RunFile *kept_run(const char *dir, RunFileMark *ret_mark) {
    Error err = {0};
    RunFile *run;
    EXPECT_OK(run_file_new_named(dir, "build", &run, &err), err);
    for (uint32_t i = 0; i < 50000; i++)
        EXPECT_OK(run_file_append(run, &i, sizeof(i), &err), err);
    EXPECT_OK(run_file_finish(run, &err), err);
    EXPECT_OK(run_file_keep(run, ret_mark, &err), err);
    return run;
}

TEST(a_kept_run_file_is_read_again_and_goes_with_its_second_owner) {
    const char *dir = test_temp_dir();
    RunFileMark mark;
    run_file_free(kept_run(dir, &mark));
    char path[512];
    snprintf(path, sizeof(path), "%s/%s", dir, mark.name);
    EXPECT(access(path, F_OK) == 0);

    Error err = {0};
    RunFile *run;
    EXPECT_OK(run_file_open(dir, &mark, &run, &err), err);
    for (uint32_t i = 0;; i++) {
        bool is_found;
        const uint8_t *record;
        size_t size;
        EXPECT_OK(run_file_next(run, &is_found, &record, &size, &err), err);
        EXPECT(is_found == (i < 50000));
        if (!is_found)
            break;
        EXPECT_EQ_U64(size, sizeof(i));
        EXPECT(memcmp(record, &i, sizeof(i)) == 0);
    }
    /* Kept once more after it was read to its end. */
    RunFileMark again;
    EXPECT_OK(run_file_keep(run, &again, &err), err);
    EXPECT_EQ_U64(again.checksum, mark.checksum);
    run_file_free(run);
    EXPECT_OK(run_file_open(dir, &again, &run, &err), err);
    run_file_free(run);
    EXPECT(access(path, F_OK) != 0);
}

TEST(a_run_file_that_was_changed_is_not_opened) {
    const char *dir = test_temp_dir();
    for (int damage = 0; damage < 3; damage++) {
        RunFileMark mark;
        run_file_free(kept_run(dir, &mark));
        char path[512];
        snprintf(path, sizeof(path), "%s/%s", dir, mark.name);
        int fd = open(path, O_RDWR);
        if (damage == 0)
            EXPECT(pwrite(fd, "x", 1, mark.size / 2) == 1);
        else if (damage == 1)
            EXPECT(ftruncate(fd, mark.size - 1) == 0);
        else
            EXPECT(unlink(path) == 0);
        close(fd);
        Error err = {0};
        RunFile *run;
        EXPECT(run_file_open(dir, &mark, &run, &err) ==
               (damage == 2 ? ERR_FILE_STREAM_FAILED : ERR_DATA_CORRUPTION_DETECTED));
        error_reset(&err);
    }
}

static bool is_named(void *arg, const char *name) {
    return strcmp(arg, name) == 0;
}

TEST(the_sweep_of_run_files_leaves_only_what_is_wanted) {
    const char *dir = test_temp_dir();
    RunFileMark wanted, other;
    run_file_free(kept_run(dir, &wanted));
    run_file_free(kept_run(dir, &other));
    run_files_sweep(dir, is_named, wanted.name);
    Error err = {0};
    RunFile *run;
    EXPECT_OK(run_file_open(dir, &wanted, &run, &err), err);
    run_file_free(run);
    EXPECT(run_file_open(dir, &other, &run, &err) == ERR_FILE_STREAM_FAILED);
    error_reset(&err);
    run_files_sweep("/nonexistent/sherd", is_named, "");
}

/* Records from nothing to some that are larger than every buffer, read in any order while more of
 * them are written: some are still in memory then. */
TEST(records_are_read_from_anywhere_while_others_are_written) {
    enum { COUNT = 2000, SIZE_MAX_TEST = 300 * 1024 };
    Error err = {0};
    RunFile *run;
    EXPECT_OK(run_file_new(test_temp_dir(), &run, &err), err);
    Prng prng = prng_seeded(7);
    uint8_t *record = xmalloc(SIZE_MAX_TEST);
    int64_t places[COUNT];
    size_t sizes[COUNT];
    for (uint32_t i = 0; i < COUNT; i++) {
        sizes[i] = prng_below(&prng, i % 100 == 0 ? SIZE_MAX_TEST : 1000);
        places[i] = run_file_end(run);
        memset(record, (int)(i % 251), sizes[i]);
        EXPECT_OK(run_file_append(run, record, sizes[i], &err), err);
        uint32_t wanted = i % 2 == 0 ? i : (uint32_t)prng_below(&prng, i);
        const uint8_t *found;
        size_t size;
        EXPECT_OK(run_file_read(run, places[wanted], &found, &size, &err), err);
        EXPECT_EQ_U64(size, sizes[wanted]);
        bool is_same = true;
        for (size_t at = 0; at < size; at++)
            is_same &= found[at] == wanted % 251;
        EXPECT(is_same);
    }
    xfree(record);
    run_file_free(run);
}
