/*
 * file_pool.c - see file_pool.h.
 *
 * A table's file and its `pins`:
 *
 *     CLOSED (-1) --- pin_slow: opened, under mu ---> n users (1, 2, ...)
 *         ^                                             | ^
 *         |  close_one: only from 0, under mu     unpin | | pin
 *         +----------------------- 0 users <------------+ |
 *                                     +-------------------+
 *
 * All moves are compare-and-swaps, so `fd` is constant while there are users: only whoever moved
 * the word from 0 to CLOSED changes it, and whoever moves it from CLOSED to 1.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* fallocate, sync_file_range */
#endif
#include "storage/file_pool.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/list.h"
#include "base/thread.h"

enum {
    PINS_CLOSED = -1,
    IO_BYTES_MAX = 1 << 30, /* per system call; some file systems refuse more */
    CREATE_MODE = 0666,     /* the umask takes from it */
    /* Files synced in search of one to close. After that the limit is exceeded by one: a wait
     * without bound would be worse, and the next open tries again. */
    SYNC_TRIES_MAX = 8,
};

struct FilePool {
    WT_FILE_SYSTEM iface; /* first: WiredTiger hands it back */
    /* Set at init, then constant. */
    uint32_t open_max;
    JournalMark *journal;
    Mutex mu;
    Cond unpinned; /* signaled when make_room_locked has released a file */
    /* Guarded by mu. */
    List open; /* PooledFile.in_open; new ones at the end, candidates for closing in front */
    uint32_t open_count;
    uint64_t reopened;
    uint64_t synced;
};

typedef struct PooledFile {
    WT_FILE_HANDLE iface; /* first */
    FilePool *pool;
    int open_flags;
    bool is_pooled;        /* otherwise it keeps its descriptor */
    bool is_of_journal;    /* includes preallocated ones */
    uint32_t journal_file; /* number of the journal file; 0: not one, or there is no mark */

    _Atomic int32_t pins; /* see above */
    int fd;
    ListNode in_open; /* guarded by pool->mu */
    /* Atomic, relaxed: a hint (second chance), cleared by the search for a file to close. */
    _Atomic bool is_recently_used;
    /* Atomic. Set after a write, cleared before a sync: a write that the sync may have missed
     * leaves it set. True at first: an earlier handle may have written. */
    _Atomic bool is_dirty;
    /* Of a failed sync: the kernel reports it only once, so it must be kept. */
    _Atomic int sync_error;
} PooledFile;

static int fs_open_file(WT_FILE_SYSTEM *fs, WT_SESSION *session, const char *name,
                        WT_FS_OPEN_FILE_TYPE type, uint32_t flags, WT_FILE_HANDLE **ret_handle);
static int fs_exist(WT_FILE_SYSTEM *fs, WT_SESSION *session, const char *name, bool *ret_exists);
static int fs_size(WT_FILE_SYSTEM *fs, WT_SESSION *session, const char *name, wt_off_t *ret_size);
static int fs_remove(WT_FILE_SYSTEM *fs, WT_SESSION *session, const char *name, uint32_t flags);
static int fs_rename(WT_FILE_SYSTEM *fs, WT_SESSION *session, const char *from, const char *to,
                     uint32_t flags);
static int fs_directory_list(WT_FILE_SYSTEM *fs, WT_SESSION *session, const char *directory,
                             const char *prefix, char ***ret_names, uint32_t *ret_count);
static int fs_directory_list_single(WT_FILE_SYSTEM *fs, WT_SESSION *session, const char *directory,
                                    const char *prefix, char ***ret_names, uint32_t *ret_count);
static int fs_directory_list_free(WT_FILE_SYSTEM *fs, WT_SESSION *session, char **names,
                                  uint32_t count);
static int fh_close(WT_FILE_HANDLE *handle, WT_SESSION *session);
static int fh_lock(WT_FILE_HANDLE *handle, WT_SESSION *session, bool is_lock);
static int fh_read(WT_FILE_HANDLE *handle, WT_SESSION *session, wt_off_t offset, size_t size,
                   void *data);
static int fh_write(WT_FILE_HANDLE *handle, WT_SESSION *session, wt_off_t offset, size_t size,
                    const void *data);
static int fh_size(WT_FILE_HANDLE *handle, WT_SESSION *session, wt_off_t *ret_size);
static int fh_sync(WT_FILE_HANDLE *handle, WT_SESSION *session);
static int fh_sync_nowait(WT_FILE_HANDLE *handle, WT_SESSION *session);
static int fh_truncate(WT_FILE_HANDLE *handle, WT_SESSION *session, wt_off_t size);
static int fh_extend_nolock(WT_FILE_HANDLE *handle, WT_SESSION *session, wt_off_t size);
static int pin(PooledFile *file);
static int pin_slow(PooledFile *file);
static void unpin(PooledFile *file);
static int open_descriptor_locked(FilePool *pool, const char *name, int flags, int *ret_fd);
static void make_room_locked(FilePool *pool);
static bool close_one_locked(FilePool *pool, PooledFile **ret_dirty);
static void sync_for_close(PooledFile *file);
static int sync_file(PooledFile *file);
static int sync_directory_of(FilePool *pool, const char *name);

FilePool *file_pool_new(uint32_t open_max, JournalMark *journal) {
    FilePool *pool = NEW(FilePool);
    pool->iface = (WT_FILE_SYSTEM){
        .fs_directory_list = fs_directory_list,
        .fs_directory_list_single = fs_directory_list_single,
        .fs_directory_list_free = fs_directory_list_free,
        .fs_exist = fs_exist,
        .fs_open_file = fs_open_file,
        .fs_remove = fs_remove,
        .fs_rename = fs_rename,
        .fs_size = fs_size,
    };
    pool->open_max = open_max;
    pool->journal = journal;
    mutex_init(&pool->mu, LOCK_RANK_FILE_POOL);
    cond_init(&pool->unpinned);
    list_init(&pool->open);
    return pool;
}

void file_pool_free(FilePool *pool) {
    if (pool == NULL)
        return;
    cond_done(&pool->unpinned);
    mutex_done(&pool->mu);
    xfree(pool);
}

WT_FILE_SYSTEM *file_pool_file_system(FilePool *pool) {
    return &pool->iface;
}

void file_pool_stats(FilePool *pool, FilePoolStats *ret_stats) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&pool->mu);
    *ret_stats = (FilePoolStats){.open_count = pool->open_count,
                                 .open_max = pool->open_max,
                                 .reopened = pool->reopened,
                                 .synced = pool->synced};
}

/* ---- the file system ---- */

static int fs_open_file(WT_FILE_SYSTEM *fs, WT_SESSION *session, const char *name,
                        WT_FS_OPEN_FILE_TYPE type, uint32_t flags, WT_FILE_HANDLE **ret_handle) {
    (void)session;
    FilePool *pool = (FilePool *)fs;
    bool is_directory = type == WT_FS_OPEN_FILE_TYPE_DIRECTORY;
    bool is_read_only = is_directory || (flags & WT_FS_OPEN_READONLY) != 0;
    int open_flags = O_CLOEXEC | (is_read_only ? O_RDONLY : O_RDWR);
    int create_flags = 0;
    if ((flags & WT_FS_OPEN_CREATE) != 0)
        create_flags = O_CREAT | ((flags & WT_FS_OPEN_EXCLUSIVE) != 0 ? O_EXCL : 0);

    PooledFile *file = NEW(PooledFile);
    file->iface = (WT_FILE_HANDLE){
        .file_system = fs,
        .name = xstrdup(name),
        .close = fh_close,
        .fh_extend_nolock = fh_extend_nolock,
        .fh_lock = fh_lock,
        .fh_read = fh_read,
        .fh_size = fh_size,
        .fh_sync = fh_sync,
        .fh_sync_nowait = fh_sync_nowait,
        .fh_truncate = fh_truncate,
        .fh_write = fh_write,
    };
    file->pool = pool;
    file->open_flags = open_flags;
    file->is_pooled = type == WT_FS_OPEN_FILE_TYPE_DATA || type == WT_FS_OPEN_FILE_TYPE_CHECKPOINT;
    file->is_of_journal = type == WT_FS_OPEN_FILE_TYPE_LOG;
    file->is_dirty = true;
    if (file->is_of_journal && pool->journal != NULL)
        file->journal_file = journal_file_number(name);

    mutex_lock(&pool->mu);
    if (file->is_pooled)
        make_room_locked(pool);
    int rc = open_descriptor_locked(pool, name, open_flags | create_flags, &file->fd);
    if (rc == 0 && file->is_pooled) {
        list_push_back(&pool->open, &file->in_open);
        pool->open_count++;
    }
    mutex_unlock(&pool->mu);
    if (rc == 0 && create_flags != 0 && (flags & WT_FS_OPEN_DURABLE) != 0) {
        rc = sync_directory_of(pool, name);
        if (rc != 0)
            fh_close(&file->iface, NULL);
    } else if (rc != 0) {
        xfree(file->iface.name);
        xfree(file);
    }
    if (rc == 0)
        *ret_handle = &file->iface;
    return rc;
}

static int fs_exist(WT_FILE_SYSTEM *fs, WT_SESSION *session, const char *name, bool *ret_exists) {
    (void)fs, (void)session;
    struct stat st;
    *ret_exists = stat(name, &st) == 0;
    return *ret_exists || errno == ENOENT ? 0 : errno;
}

static int fs_size(WT_FILE_SYSTEM *fs, WT_SESSION *session, const char *name, wt_off_t *ret_size) {
    (void)fs, (void)session;
    struct stat st;
    if (stat(name, &st) != 0)
        return errno;
    *ret_size = st.st_size;
    return 0;
}

static int fs_remove(WT_FILE_SYSTEM *fs, WT_SESSION *session, const char *name, uint32_t flags) {
    (void)session;
    if (unlink(name) != 0)
        return errno;
    return (flags & WT_FS_DURABLE) != 0 ? sync_directory_of((FilePool *)fs, name) : 0;
}

static int fs_rename(WT_FILE_SYSTEM *fs, WT_SESSION *session, const char *from, const char *to,
                     uint32_t flags) {
    (void)session;
    if (rename(from, to) != 0)
        return errno;
    if ((flags & WT_FS_DURABLE) == 0)
        return 0;
    int rc = sync_directory_of((FilePool *)fs, from);
    return rc != 0 ? rc : sync_directory_of((FilePool *)fs, to);
}

static int list_names(FilePool *pool, const char *directory, const char *prefix, uint32_t count_max,
                      char ***ret_names, uint32_t *ret_count) {
    mutex_lock(&pool->mu);
    int fd;
    int rc = open_descriptor_locked(pool, directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC, &fd);
    mutex_unlock(&pool->mu);
    if (rc != 0)
        return rc;
    DIR *dir = fdopendir(fd);
    if (dir == NULL) {
        rc = errno;
        close(fd);
        return rc;
    }
    char **names = NULL;
    uint32_t count = 0, capacity = 0;
    size_t prefix_size = prefix != NULL ? strlen(prefix) : 0;
    errno = 0;
    for (struct dirent *entry; count < count_max && (entry = readdir(dir)) != NULL;) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
            (prefix_size > 0 && strncmp(entry->d_name, prefix, prefix_size) != 0))
            continue;
        ARRAY_RESERVE(names, count, capacity);
        names[count++] = xstrdup(entry->d_name);
    }
    rc = errno;
    closedir(dir);
    if (rc != 0) {
        fs_directory_list_free(&pool->iface, NULL, names, count);
        return rc;
    }
    *ret_names = names;
    *ret_count = count;
    return 0;
}

static int fs_directory_list(WT_FILE_SYSTEM *fs, WT_SESSION *session, const char *directory,
                             const char *prefix, char ***ret_names, uint32_t *ret_count) {
    (void)session;
    return list_names((FilePool *)fs, directory, prefix, UINT32_MAX, ret_names, ret_count);
}

static int fs_directory_list_single(WT_FILE_SYSTEM *fs, WT_SESSION *session, const char *directory,
                                    const char *prefix, char ***ret_names, uint32_t *ret_count) {
    (void)session;
    return list_names((FilePool *)fs, directory, prefix, 1, ret_names, ret_count);
}

static int fs_directory_list_free(WT_FILE_SYSTEM *fs, WT_SESSION *session, char **names,
                                  uint32_t count) {
    (void)fs, (void)session;
    for (uint32_t i = 0; i < count; i++)
        xfree(names[i]);
    xfree(names);
    return 0;
}

/* ---- files ---- */

/* WiredTiger closes a handle when it has no users of its own left. Only a thread that syncs the
 * file to evict its descriptor may still hold a pin, and it is waited for. */
static int fh_close(WT_FILE_HANDLE *handle, WT_SESSION *session) {
    (void)session;
    PooledFile *file = (PooledFile *)handle;
    FilePool *pool = file->pool;
    int rc = 0;
    mutex_lock(&pool->mu);
    while (atomic_load_explicit(&file->pins, memory_order_acquire) > 0)
        cond_wait(&pool->unpinned, &pool->mu);
    bool is_open = atomic_load_explicit(&file->pins, memory_order_relaxed) != PINS_CLOSED;
    if (is_open && file->is_pooled) {
        list_remove(&file->in_open);
        pool->open_count--;
    }
    mutex_unlock(&pool->mu);
    if (is_open && close(file->fd) != 0)
        rc = errno;
    xfree(file->iface.name);
    xfree(file);
    return rc;
}

static int fh_lock(WT_FILE_HANDLE *handle, WT_SESSION *session, bool is_lock) {
    (void)session;
    /* A POSIX lock is released when any descriptor of the file is closed, so such a file must never
     * be in the pool. */
    PooledFile *file = (PooledFile *)handle;
    invariant(!file->is_pooled);
    struct flock lock = {
        .l_type = is_lock ? F_WRLCK : F_UNLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1};
    if (fcntl(file->fd, F_SETLK, &lock) == 0)
        return 0;
    return errno == EAGAIN || errno == EACCES ? EBUSY : errno;
}

static int fh_read(WT_FILE_HANDLE *handle, WT_SESSION *session, wt_off_t offset, size_t size,
                   void *data) {
    (void)session;
    PooledFile *file = (PooledFile *)handle;
    int rc = pin(file);
    if (rc != 0)
        return rc;
    uint8_t *at = data;
    while (size > 0 && rc == 0) {
        ssize_t got = pread(file->fd, at, size < IO_BYTES_MAX ? size : IO_BYTES_MAX, offset);
        if (got > 0) {
            at += got;
            offset += got;
            size -= (size_t)got;
        } else if (got == 0) {
            rc = WT_ERROR; /* the file is shorter than WiredTiger's metadata claims */
        } else if (errno != EINTR) {
            rc = errno;
        }
    }
    unpin(file);
    return rc;
}

static int fh_write(WT_FILE_HANDLE *handle, WT_SESSION *session, wt_off_t offset, size_t size,
                    const void *data) {
    (void)session;
    PooledFile *file = (PooledFile *)handle;
    int rc = pin(file);
    if (rc != 0)
        return rc;
    const uint8_t *at = data;
    size_t left = size;
    while (left > 0 && rc == 0) {
        ssize_t put = pwrite(file->fd, at, left < IO_BYTES_MAX ? left : IO_BYTES_MAX,
                             offset + (wt_off_t)(size - left));
        if (put >= 0) {
            at += put;
            left -= (size_t)put;
        } else if (errno != EINTR) {
            rc = errno;
        }
    }
    /* After the write and before the unpin: a file without pins and with a clear flag has nothing
     * unsynced. */
    atomic_store(&file->is_dirty, true);
    if (file->journal_file != 0 && rc == 0)
        journal_mark_wrote(file->pool->journal, file->journal_file, (uint64_t)offset, size);
    unpin(file);
    return rc;
}

static int fh_size(WT_FILE_HANDLE *handle, WT_SESSION *session, wt_off_t *ret_size) {
    (void)session;
    PooledFile *file = (PooledFile *)handle;
    int rc = pin(file);
    if (rc != 0)
        return rc;
    struct stat st;
    if (fstat(file->fd, &st) == 0)
        *ret_size = st.st_size;
    else
        rc = errno;
    unpin(file);
    return rc;
}

static int fh_sync(WT_FILE_HANDLE *handle, WT_SESSION *session) {
    (void)session;
    PooledFile *file = (PooledFile *)handle;
    /* A file that was synced to evict its descriptor has nothing left to do. A failure of that sync
     * must still reach the checkpoint that relies on it. */
    if (file->is_pooled && !atomic_load(&file->is_dirty))
        return atomic_load(&file->sync_error);
    int rc = pin(file);
    if (rc != 0)
        return rc;
    if (file->journal_file == 0) {
        rc = sync_file(file);
    } else {
        JournalMark *journal = file->pool->journal;
        /* Read before the sync: bytes written during it may or may not be included. */
        uint64_t until = journal_mark_sync_begin(journal, file->journal_file);
        rc = sync_file(file);
        if (rc == 0)
            journal_mark_synced(journal, file->journal_file, until);
    }
    unpin(file);
    return rc;
}

static int fh_sync_nowait(WT_FILE_HANDLE *handle, WT_SESSION *session) {
    (void)session;
    PooledFile *file = (PooledFile *)handle;
    if (file->is_pooled && !atomic_load(&file->is_dirty))
        return 0;
    int rc = pin(file);
    if (rc != 0)
        return rc;
    if (sync_file_range(file->fd, 0, 0, SYNC_FILE_RANGE_WRITE) != 0)
        rc = errno;
    unpin(file);
    return rc;
}

static int fh_truncate(WT_FILE_HANDLE *handle, WT_SESSION *session, wt_off_t size) {
    (void)session;
    PooledFile *file = (PooledFile *)handle;
    int rc = pin(file);
    if (rc != 0)
        return rc;
    while (ftruncate(file->fd, size) != 0) {
        if (errno != EINTR) {
            rc = errno;
            break;
        }
    }
    atomic_store(&file->is_dirty, true);
    unpin(file);
    return rc;
}

static int fh_extend_nolock(WT_FILE_HANDLE *handle, WT_SESSION *session, wt_off_t size) {
    (void)session;
    PooledFile *file = (PooledFile *)handle;
    int rc = pin(file);
    if (rc != 0)
        return rc;
    struct stat before;
    if (fstat(file->fd, &before) != 0)
        rc = errno;
    while (rc == 0 && fallocate(file->fd, 0, 0, size) != 0)
        if (errno != EINTR)
            rc = errno == EOPNOTSUPP || errno == ENOSYS ? ENOTSUP : errno;
    /* WiredTiger preallocates journal files and panics when that fails with ENOSPC. Preallocation
     * is only an optimization: reported as unsupported it is skipped, and what was allocated is
     * released. */
    if (rc == ENOSPC && file->is_of_journal)
        rc = ftruncate(file->fd, before.st_size) == 0 ? ENOTSUP : errno;
    atomic_store(&file->is_dirty, true);
    unpin(file);
    return rc;
}

/* ---- descriptors ---- */

/* The file has a descriptor until unpin. */
static int pin(PooledFile *file) {
    int32_t pins = atomic_load_explicit(&file->pins, memory_order_relaxed);
    while (pins != PINS_CLOSED)
        /* Acquire: pairs with the release in pin_slow, which made `fd` what it is. */
        if (atomic_compare_exchange_weak_explicit(&file->pins, &pins, pins + 1,
                                                  memory_order_acquire, memory_order_relaxed))
            return 0;
    return pin_slow(file);
}

static void unpin(PooledFile *file) {
    atomic_store_explicit(&file->is_recently_used, true, memory_order_relaxed);
    atomic_fetch_sub_explicit(&file->pins, 1, memory_order_release);
}

static int pin_slow(PooledFile *file) {
    FilePool *pool = file->pool;
    /* Opened under the mutex, although it is a system call: two threads must not both open the
     * file, and it takes only microseconds. */
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&pool->mu);
    if (atomic_load_explicit(&file->pins, memory_order_relaxed) == PINS_CLOSED)
        make_room_locked(pool); /* may release the mutex for a while */
    if (atomic_load_explicit(&file->pins, memory_order_relaxed) != PINS_CLOSED) {
        /* Another thread has opened it; nobody can close it without the lock. */
        atomic_fetch_add_explicit(&file->pins, 1, memory_order_acquire);
        return 0;
    }
    int rc = open_descriptor_locked(pool, file->iface.name, file->open_flags, &file->fd);
    if (rc != 0)
        return rc;
    list_push_back(&pool->open, &file->in_open);
    pool->open_count++;
    pool->reopened++;
    atomic_store_explicit(&file->pins, 1, memory_order_release);
    return 0;
}

/* When the process is out of descriptors (sockets count, too), one of a table is evicted. A dirty
 * victim is synced with the mutex held: releasing it would let another thread take the
 * descriptor. */
static int open_descriptor_locked(FilePool *pool, const char *name, int flags, int *ret_fd) {
    int rc = 0;
    for (int tries = 0; tries < SYNC_TRIES_MAX;) {
        int fd = open(name, flags, CREATE_MODE);
        if (fd >= 0) {
            *ret_fd = fd;
            return 0;
        }
        rc = errno;
        if (rc == EINTR)
            continue;
        PooledFile *dirty = NULL;
        if ((rc != EMFILE && rc != ENFILE) || (!close_one_locked(pool, &dirty) && dirty == NULL))
            return rc;
        if (dirty == NULL)
            continue;
        tries++;
        sync_for_close(dirty);
    }
    return rc;
}

/* Closes files until there is room for one more. Releases the mutex while it syncs. */
static void make_room_locked(FilePool *pool) {
    for (int tries = 0; pool->open_count >= pool->open_max && tries < SYNC_TRIES_MAX;) {
        PooledFile *dirty = NULL;
        if (close_one_locked(pool, &dirty))
            continue;
        if (dirty == NULL)
            return; /* all in use */
        tries++;
        pool->synced++;
        mutex_unlock(&pool->mu);
        sync_for_close(dirty);
        mutex_lock(&pool->mu);
        cond_broadcast(&pool->unpinned);
    }
}

/* Closes the descriptor of a file that was not used recently (clock algorithm). Returns false when
 * all are in use or dirty; `*ret_dirty` is then one of the dirty ones, pinned, or NULL. */
static bool close_one_locked(FilePool *pool, PooledFile **ret_dirty) {
    assert_held(&pool->mu);
    PooledFile *dirty = NULL;
    /* Two rounds: in the first all of them may be recently used. */
    for (uint32_t left = 2 * pool->open_count; left > 0; left--) {
        PooledFile *file = CONTAINER_OF(list_first(&pool->open), PooledFile, in_open);
        list_remove(&file->in_open);
        list_push_back(&pool->open, &file->in_open);
        if (atomic_exchange_explicit(&file->is_recently_used, false, memory_order_relaxed))
            continue;
        int32_t unused = 0;
        /* Only without users: a writer in progress has not set is_dirty yet. */
        if (!atomic_compare_exchange_strong(&file->pins, &unused, PINS_CLOSED))
            continue;
        if (atomic_load(&file->is_dirty)) {
            /* Restored; a user that arrived in between is in pin_slow, waiting for the mutex. */
            atomic_store_explicit(&file->pins, 0, memory_order_release);
            if (dirty == NULL && atomic_load(&file->sync_error) == 0)
                dirty = file;
            continue;
        }
        list_remove(&file->in_open);
        pool->open_count--;
        /* Clean, so close cannot report the failure of a write. */
        (void)close(file->fd);
        file->fd = -1;
        return true;
    }
    if (dirty != NULL)
        atomic_fetch_add_explicit(&dirty->pins, 1, memory_order_acquire);
    *ret_dirty = dirty;
    return false;
}

/* Releases the pin taken by close_one_locked. */
static void sync_for_close(PooledFile *file) {
    (void)sync_file(file); /* an error is kept and reported by the next sync */
    atomic_fetch_sub_explicit(&file->pins, 1, memory_order_release);
}

static int sync_file(PooledFile *file) {
    int rc = atomic_load(&file->sync_error);
    if (rc != 0)
        return rc;
    /* Cleared before the sync: a concurrent write sets it again. */
    atomic_store(&file->is_dirty, false);
    while (fdatasync(file->fd) != 0) {
        if (errno == EINTR)
            continue;
        rc = errno;
        atomic_store(&file->sync_error, rc);
        atomic_store(&file->is_dirty, true);
        return rc;
    }
    return 0;
}

/* A new name survives a power failure only after its directory has been synced. */
static int sync_directory_of(FilePool *pool, const char *name) {
    const char *slash = strrchr(name, '/');
    CLEANUP(xfree_ptr)
    char *directory = slash == NULL ? xstrdup(".") : xstrndup(name, (size_t)(slash - name) + 1);
    int fd;
    mutex_lock(&pool->mu);
    int rc = open_descriptor_locked(pool, directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC, &fd);
    mutex_unlock(&pool->mu);
    if (rc != 0)
        return rc;
    if (fsync(fd) != 0)
        rc = errno;
    close(fd);
    return rc;
}
