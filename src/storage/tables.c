/*
 * tables.c - creating, listing and dropping WiredTiger tables by ident.
 */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "storage/storage_internal.h"

/* Waits for WiredTiger's own locks: otherwise a drop can collide with its sweep and eviction
 * threads again and again. Used by start-up and the reaper, which can afford the wait. */
#define DROP_CONFIG "force"

/* Records: large values stay on the page (leaf_value_max), since an overflow block per document
 * doubles the reads; split_pct=90 suits ascending record ids. Indexes: 16 KB pages and prefix
 * compression, as neighbouring keys share most bytes. The format versions are those that MongoDB
 * writes for the same formats. */
static const char *const TABLE_CONFIG[] = {
    [TABLE_RECORDS] = "type=file,memory_page_max=10m,split_pct=90,leaf_value_max=64MB,checksum=on,"
                      "block_compressor=snappy,key_format=q,value_format=u,log=(enabled=true),"
                      "app_metadata=(formatVersion=1)",
    [TABLE_RECORDS_CLUSTERED] =
        "type=file,memory_page_max=10m,split_pct=90,leaf_value_max=64MB,checksum=on,"
        "block_compressor=snappy,key_format=u,value_format=u,log=(enabled=true),"
        "app_metadata=(formatVersion=1)",
    [TABLE_INDEX] = "type=file,internal_page_max=16k,leaf_page_max=16k,checksum=on,"
                    "prefix_compression=true,block_compressor=,key_format=u,value_format=u,"
                    "log=(enabled=true),app_metadata=(formatVersion=14)",
};

char *storage_new_ident(StorageEngine *engine, const char *prefix) {
    uint64_t number = atomic_fetch_add(&engine->ident_counter, 1);
    return xasprintf("%s-%" PRIu64 "-%" PRIu64, prefix, number, engine->ident_random);
}

ErrCode storage_create_table(StorageEngine *engine, const char *ident, TableKind kind,
                             const char *extra_config, Error *err) {
    CLEANUP(wt_session_close) WT_SESSION *session = NULL;
    TRY(storage_open_session(engine, &session, err));
    CLEANUP(xfree_ptr) char *uri = xasprintf("table:%s", ident);
    CLEANUP(xfree_ptr)
    char *config = xasprintf("%s%s%s", TABLE_CONFIG[kind], extra_config != NULL ? "," : "",
                             extra_config != NULL ? extra_config : "");
    int rc = WT_APART(session->create(session, uri, config));
    return rc == 0 ? ERR_OK : wt_error(engine, rc, "create the file", ident, err);
}

const char *storage_log_config(const StorageEngine *engine, bool is_replicated) {
    return engine->is_replicated && is_replicated ? "log=(enabled=false)" : "log=(enabled=true)";
}

/* Looks the uri up in WiredTiger's metadata. *ret_config (NULL: not wanted) is a heap copy. A
 * failed lookup is an error, not "not found": a table taken for missing would be dropped from the
 * catalog. */
static ErrCode find_metadata(StorageEngine *engine, WT_SESSION *session, const char *uri,
                             bool *ret_found, char **ret_config, Error *err) {
    CLEANUP(wt_cursor_close) WT_CURSOR *cursor = NULL;
    int rc = WT_APART(session->open_cursor(session, "metadata:", NULL, NULL, &cursor));
    if (rc == 0) {
        cursor->set_key(cursor, uri);
        rc = WT_APART(cursor->search(cursor));
    }
    const char *config = NULL;
    if (rc == 0 && ret_config != NULL)
        rc = cursor->get_value(cursor, &config);
    if (rc != 0 && rc != WT_NOTFOUND)
        return wt_error(engine, rc, "look up the file", uri, err);
    *ret_found = rc == 0;
    if (config != NULL)
        *ret_config = xstrdup(config);
    return ERR_OK;
}

ErrCode storage_fit_log_config(StorageEngine *engine, const char *ident, bool is_replicated,
                               Error *err) {
    CLEANUP(wt_session_close) WT_SESSION *session = NULL;
    TRY(storage_open_session(engine, &session, err));
    CLEANUP(xfree_ptr) char *file = xasprintf("file:%s.wt", ident);
    CLEANUP(xfree_ptr) char *config = NULL;
    bool is_found;
    TRY(find_metadata(engine, session, file, &is_found, &config, err));
    /* Altering rewrites metadata and syncs it; skipped when nothing changes, so that a start with
     * many tables stays fast. */
    bool is_journaled = !is_found || strstr(config, ",log=(enabled=false)") == NULL;
    if (is_journaled != (engine->is_replicated && is_replicated))
        return ERR_OK;
    CLEANUP(xfree_ptr) char *uri = xasprintf("table:%s", ident);
    int rc = WT_APART(session->alter(session, uri, storage_log_config(engine, is_replicated)));
    return rc == 0 || rc == ENOENT ? ERR_OK : wt_error(engine, rc, "change the file", ident, err);
}

ErrCode storage_drop_table(StorageEngine *engine, const char *ident, bool *ret_is_busy,
                           Error *err) {
    CLEANUP(wt_session_close) WT_SESSION *session = NULL;
    TRY(storage_open_session(engine, &session, err));
    CLEANUP(xfree_ptr) char *uri = xasprintf("table:%s", ident);
    CLEANUP(xfree_ptr) char *file = xasprintf("file:%s.wt", ident);
    /* A crash in the middle of a create leaves the file registered without its table, or the table
     * without its link to the file: dropping such a table leaves the file, so both are dropped. */
    const char *parts[] = {uri, file};
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < ARRAY_LEN(parts); i++) {
        bool is_there;
        TRY(find_metadata(engine, session, parts[i], &is_there, NULL, err));
        if (is_there)
            rc = WT_APART(session->drop(session, parts[i], DROP_CONFIG));
    }
    *ret_is_busy = rc == EBUSY;
    if (rc == EBUSY)
        return ERR_OK;
    if (rc != 0 && rc != ENOENT)
        return wt_error(engine, rc, "drop the file", ident, err);
    size_store_forget(engine, ident);
    return ERR_OK;
}

static bool is_table_file(const char *name) {
    size_t size = strlen(name);
    bool is_ours = strncmp(name, "collection-", 11) == 0 || strncmp(name, "index-", 6) == 0 ||
                   strncmp(name, "internal-", 9) == 0;
    return is_ours && size > 3 && strcmp(name + size - 3, ".wt") == 0;
}

/* "table:x" has the ident x, and so does "file:x.wt" if its table is missing; NULL: neither. */
static ErrCode ident_of_uri(StorageEngine *engine, WT_SESSION *session, const char *uri,
                            char **ret_ident, Error *err) {
    *ret_ident = NULL;
    if (strncmp(uri, "table:", 6) == 0) {
        *ret_ident = xstrdup(uri + 6);
        return ERR_OK;
    }
    if (strncmp(uri, "file:", 5) != 0 || !is_table_file(uri + 5))
        return ERR_OK;
    CLEANUP(xfree_ptr) char *ident = xstrndup(uri + 5, strlen(uri + 5) - 3);
    CLEANUP(xfree_ptr) char *table = xasprintf("table:%s", ident);
    bool has_table;
    TRY(find_metadata(engine, session, table, &has_table, NULL, err));
    if (!has_table)
        *ret_ident = TAKE_PTR(ident);
    return ERR_OK;
}

ErrCode storage_remove_stray_files(StorageEngine *engine, Error *err) {
    CLEANUP(wt_session_close) WT_SESSION *session = NULL;
    TRY(storage_open_session(engine, &session, err));
    CLEANUP(wt_cursor_close) WT_CURSOR *cursor = NULL;
    int rc = WT_APART(session->open_cursor(session, "metadata:", NULL, NULL, &cursor));
    if (rc != 0)
        return wt_error(engine, rc, "list the tables", NULL, err);
    DIR *dir = opendir(engine->dbpath);
    if (dir == NULL)
        return error_set(err, ERR_FILE_NOT_OPEN, "could not list \"%s\": %s", engine->dbpath,
                         strerror(errno));
    for (struct dirent *entry = readdir(dir); entry != NULL; entry = readdir(dir)) {
        if (!is_table_file(entry->d_name))
            continue;
        CLEANUP(xfree_ptr) char *uri = xasprintf("file:%s", entry->d_name);
        cursor->set_key(cursor, uri);
        /* Any other error means that it could not be determined: keep the file. */
        if (WT_APART(cursor->search(cursor)) != WT_NOTFOUND)
            continue;
        CLEANUP(xfree_ptr) char *path = xasprintf("%s/%s", engine->dbpath, entry->d_name);
        LOG_INFO(LOG_STORAGE, 7100110, "Removing a table file that no table owns",
                 LOG_STR("file", entry->d_name));
        if (unlink(path) != 0)
            LOG_WARN(LOG_STORAGE, 7100111, "Could not remove the file",
                     LOG_STR("file", entry->d_name), LOG_STR("error", strerror(errno)));
    }
    closedir(dir);
    return ERR_OK;
}

ErrCode storage_list_idents(StorageEngine *engine, char ***ret_idents, size_t *ret_count,
                            Error *err) {
    CLEANUP(wt_session_close) WT_SESSION *session = NULL;
    TRY(storage_open_session(engine, &session, err));
    CLEANUP(wt_cursor_close) WT_CURSOR *cursor = NULL;
    int rc = WT_APART(session->open_cursor(session, "metadata:", NULL, NULL, &cursor));
    if (rc != 0)
        return wt_error(engine, rc, "list the tables", NULL, err);
    char **idents = NULL;
    size_t count = 0, capacity = 0;
    ErrCode code = ERR_OK;
    while (code == ERR_OK && (rc = WT_APART(cursor->next(cursor))) == 0) {
        const char *uri;
        invariant(cursor->get_key(cursor, &uri) == 0);
        char *ident;
        code = ident_of_uri(engine, session, uri, &ident, err);
        if (code != ERR_OK || ident == NULL)
            continue;
        ARRAY_RESERVE(idents, count, capacity);
        idents[count++] = ident;
    }
    if (code == ERR_OK && rc != WT_NOTFOUND)
        code = wt_error(engine, rc, "list the tables", NULL, err);
    if (code != ERR_OK) {
        for (size_t i = 0; i < count; i++)
            xfree(idents[i]);
        xfree(idents);
        return code;
    }
    *ret_idents = idents;
    *ret_count = count;
    return ERR_OK;
}

ErrCode storage_find_table(StorageEngine *engine, const char *ident, bool *ret_found, Error *err) {
    CLEANUP(wt_session_close) WT_SESSION *session = NULL;
    TRY(storage_open_session(engine, &session, err));
    CLEANUP(xfree_ptr) char *uri = xasprintf("table:%s", ident);
    TRY(find_metadata(engine, session, uri, ret_found, NULL, err));
    /* The file itself may have been removed behind WiredTiger's back. */
    CLEANUP(xfree_ptr) char *path = xasprintf("%s/%s.wt", engine->dbpath, ident);
    *ret_found = *ret_found && access(path, F_OK) == 0;
    return ERR_OK;
}

/* False: there are none. */
static bool open_stats(StorageEngine *engine, const char *ident, WT_SESSION **ret_session,
                       WT_CURSOR **ret_cursor) {
    Error err = {0};
    CLEANUP(xfree_ptr) char *uri = xasprintf("statistics:table:%s", ident);
    if (storage_open_session(engine, ret_session, &err) != ERR_OK) {
        error_reset(&err);
        return false;
    }
    WT_SESSION *session = *ret_session;
    return session->open_cursor(session, uri, NULL, "statistics=(fast)", ret_cursor) == 0;
}

static int64_t table_stat(StorageEngine *engine, const char *ident, int key) {
    CLEANUP(wt_session_close) WT_SESSION *session = NULL;
    CLEANUP(wt_cursor_close) WT_CURSOR *cursor = NULL;
    if (!open_stats(engine, ident, &session, &cursor))
        return 0;
    const char *description;
    const char *text;
    int64_t value = 0;
    cursor->set_key(cursor, key);
    if (cursor->search(cursor) != 0 || cursor->get_value(cursor, &description, &text, &value) != 0)
        return 0;
    return value;
}

void storage_table_stats(StorageEngine *engine, const char *ident, StorageStatVisit visit,
                         void *arg) {
    CLEANUP(wt_session_close) WT_SESSION *session = NULL;
    CLEANUP(wt_cursor_close) WT_CURSOR *cursor = NULL;
    if (!open_stats(engine, ident, &session, &cursor))
        return;
    const char *description;
    const char *text;
    int64_t value;
    while (cursor->next(cursor) == 0 && cursor->get_value(cursor, &description, &text, &value) == 0)
        visit(arg, description, value);
}

char *storage_table_creation(StorageEngine *engine, const char *ident) {
    Error err = {0};
    CLEANUP(wt_session_close) WT_SESSION *session = NULL;
    CLEANUP(xfree_ptr) char *file = xasprintf("file:%s.wt", ident);
    char *config = NULL;
    bool is_found;
    if (storage_open_session(engine, &session, &err) != ERR_OK ||
        find_metadata(engine, session, file, &is_found, &config, &err) != ERR_OK)
        error_reset(&err);
    return config;
}

ErrCode storage_compact_table(StorageEngine *engine, const char *ident, Error *err) {
    CLEANUP(wt_session_close) WT_SESSION *session = NULL;
    TRY(storage_open_session(engine, &session, err));
    CLEANUP(xfree_ptr) char *uri = xasprintf("table:%s", ident);
    int rc = WT_APART(session->compact(session, uri, "timeout=0"));
    if (rc == EBUSY)
        return error_set(err, ERR_INTERRUPTED,
                         "compaction of the file \"%s\" was interrupted: the "
                         "cache is under pressure",
                         ident);
    return rc == 0 ? ERR_OK : wt_error(engine, rc, "compact the file", ident, err);
}

int64_t storage_table_bytes(StorageEngine *engine, const char *ident) {
    CLEANUP(xfree_ptr) char *path = xasprintf("%s/%s.wt", engine->dbpath, ident);
    struct stat st;
    return stat(path, &st) == 0 ? (int64_t)st.st_size : 0;
}

int64_t storage_table_reusable_bytes(StorageEngine *engine, const char *ident) {
    return table_stat(engine, ident, WT_STAT_DSRC_BLOCK_REUSE_BYTES);
}

ErrCode storage_verify_table(StorageEngine *engine, const char *ident, bool *ret_is_checked,
                             Error *err) {
    CLEANUP(wt_session_close) WT_SESSION *session = NULL;
    TRY(storage_open_session(engine, &session, err));
    CLEANUP(xfree_ptr) char *uri = xasprintf("table:%s", ident);
    int rc = WT_APART(session->verify(session, uri, NULL));
    *ret_is_checked = rc != EBUSY;
    if (rc == 0 || rc == EBUSY)
        return ERR_OK;
    return wt_error(engine, rc, "verify the file", ident, err);
}
