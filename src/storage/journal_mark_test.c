#include "storage/journal_mark.h"

#include <fcntl.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/test.h"

static void sync_journal_file(JournalMark *mark, uint32_t file) {
    journal_mark_synced(mark, file, journal_mark_sync_begin(mark, file));
}

static void expect_noted(JournalMark *mark, const char *dir, uint32_t file, uint64_t offset) {
    journal_mark_write(mark);
    JournalPlace noted = journal_mark_read(dir);
    EXPECT_EQ_U64(noted.file, file);
    EXPECT_EQ_U64(noted.offset, offset);
}

TEST(journal_mark_covers_what_was_written_before_the_sync) {
    const char *dir = test_temp_dir();
    JournalMark *mark = journal_mark_new(dir);
    expect_noted(mark, dir, 0, 0);

    journal_mark_wrote(mark, 1, 128, 128);
    journal_mark_wrote(mark, 1, 256, 512);
    expect_noted(mark, dir, 0, 0);
    uint64_t until = journal_mark_sync_begin(mark, 1);
    journal_mark_wrote(mark, 1, 768, 128); /* beside the sync: not covered */
    journal_mark_synced(mark, 1, until);
    expect_noted(mark, dir, 1, 768);
    sync_journal_file(mark, 1);
    expect_noted(mark, dir, 1, 896);
    journal_mark_free(mark);
}

TEST(journal_mark_stops_at_the_first_gap) {
    const char *dir = test_temp_dir();
    JournalMark *mark = journal_mark_new(dir);
    journal_mark_wrote(mark, 1, 128, 384);
    journal_mark_wrote(mark, 1, 1024, 128); /* these two have overtaken the one at 512 */
    journal_mark_wrote(mark, 1, 768, 256);
    sync_journal_file(mark, 1);
    expect_noted(mark, dir, 1, 512);
    journal_mark_wrote(mark, 1, 512, 256);
    sync_journal_file(mark, 1);
    expect_noted(mark, dir, 1, 1152);
    journal_mark_free(mark);
}

TEST(journal_mark_moves_to_a_file_when_those_before_are_complete) {
    const char *dir = test_temp_dir();
    JournalMark *mark = journal_mark_new(dir);
    journal_mark_wrote(mark, 1, 128, 1000);
    sync_journal_file(mark, 1);
    journal_mark_wrote(mark, 1, 1128, 24);
    journal_mark_wrote(mark, 2, 128, 128); /* the record that says where file 1 ends */
    journal_mark_wrote(mark, 2, 256, 128);
    sync_journal_file(mark, 2);
    expect_noted(mark, dir, 1, 1128);
    sync_journal_file(mark, 1);
    expect_noted(mark, dir, 2, 384);

    /* A file with nothing but its first record is no place to be at. */
    journal_mark_wrote(mark, 3, 128, 128);
    sync_journal_file(mark, 3);
    expect_noted(mark, dir, 2, 384);
    for (uint32_t file = 3; file < 40; file++) {
        journal_mark_wrote(mark, file, 128, 256);
        sync_journal_file(mark, file);
        expect_noted(mark, dir, file, 384);
    }
    journal_mark_free(mark);
}

TEST(journal_mark_that_is_illegible_counts_as_none) {
    const char *dir = test_temp_dir();
    JournalMark *mark = journal_mark_new(dir);
    journal_mark_wrote(mark, 1, 128, 512);
    sync_journal_file(mark, 1);
    expect_noted(mark, dir, 1, 640);
    CLEANUP(xfree_ptr) char *path = xasprintf("%s/journal.mark", dir);
    for (off_t at = 0; at < 20; at++) {
        int fd = open(path, O_RDWR | O_CLOEXEC);
        uint8_t byte, other;
        EXPECT_EQ_I64(pread(fd, &byte, 1, at), 1);
        other = byte ^ 4;
        EXPECT_EQ_I64(pwrite(fd, &other, 1, at), 1);
        EXPECT_EQ_U64(journal_mark_read(dir).file, 0);
        EXPECT_EQ_I64(pwrite(fd, &byte, 1, at), 1);
        close(fd);
    }
    EXPECT_EQ_U64(journal_mark_read(dir).offset, 640);
    EXPECT(journal_mark_remove(dir));
    EXPECT(journal_mark_remove(dir));
    EXPECT_EQ_U64(journal_mark_read(dir).file, 0);
    journal_mark_free(mark);
}

TEST(journal_files_are_known_by_their_names) {
    EXPECT_EQ_U64(journal_file_number("db/journal/WiredTigerLog.0000000012"), 12);
    EXPECT_EQ_U64(journal_file_number("WiredTigerLog.4294967295"), UINT32_MAX);
    EXPECT_EQ_U64(journal_file_number("WiredTigerLog.4294967296"), 0);
    EXPECT_EQ_U64(journal_file_number("WiredTigerPreplog.0000000001"), 0);
    EXPECT_EQ_U64(journal_file_number("WiredTigerLog.00x"), 0);
    EXPECT_EQ_U64(journal_file_number("journal/table.wt"), 0);
}
