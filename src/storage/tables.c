/*
 * tables.c - creating, listing and dropping WiredTiger tables by ident.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "storage/storage_internal.h"

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
    TRY(storage_check_disk(engine, err));
    CLEANUP(wt_session_close) WT_SESSION *session = NULL;
    TRY(storage_open_session(engine, &session, err));
    CLEANUP(xfree_ptr) char *uri = xasprintf("table:%s", ident);
    CLEANUP(xfree_ptr)
    char *config = xasprintf("%s%s%s", TABLE_CONFIG[kind], extra_config != NULL ? "," : "",
                             extra_config != NULL ? extra_config : "");
    int rc = session->create(session, uri, config);
    return rc == 0 ? ERR_OK : wt_error(engine, rc, "create the file", ident, err);
}

ErrCode storage_drop_table(StorageEngine *engine, const char *ident, bool *ret_is_busy,
                           Error *err) {
    CLEANUP(wt_session_close) WT_SESSION *session = NULL;
    TRY(storage_open_session(engine, &session, err));
    CLEANUP(xfree_ptr) char *uri = xasprintf("table:%s", ident);
    int rc = session->drop(session, uri, "force,checkpoint_wait=false,lock_wait=false");
    if (rc == EBUSY) {
        *ret_is_busy = true;
        return ERR_OK;
    }
    *ret_is_busy = false;
    if (rc != 0 && rc != ENOENT)
        return wt_error(engine, rc, "drop the file", ident, err);
    size_store_forget(engine, ident);
    return ERR_OK;
}

ErrCode storage_list_idents(StorageEngine *engine, char ***ret_idents, size_t *ret_count,
                            Error *err) {
    CLEANUP(wt_session_close) WT_SESSION *session = NULL;
    TRY(storage_open_session(engine, &session, err));
    CLEANUP(wt_cursor_close) WT_CURSOR *cursor = NULL;
    int rc = session->open_cursor(session, "metadata:", NULL, NULL, &cursor);
    if (rc != 0)
        return wt_error(engine, rc, "list the tables", NULL, err);
    char **idents = NULL;
    size_t count = 0, capacity = 0;
    while ((rc = cursor->next(cursor)) == 0) {
        const char *uri;
        invariant(cursor->get_key(cursor, &uri) == 0);
        if (strncmp(uri, "table:", 6) != 0)
            continue;
        ARRAY_RESERVE(idents, count, capacity);
        idents[count++] = xstrdup(uri + 6);
    }
    if (rc != WT_NOTFOUND) {
        for (size_t i = 0; i < count; i++)
            xfree(idents[i]);
        xfree(idents);
        return wt_error(engine, rc, "list the tables", NULL, err);
    }
    *ret_idents = idents;
    *ret_count = count;
    return ERR_OK;
}

bool storage_has_table(StorageEngine *engine, const char *ident) {
    Error err = {0};
    CLEANUP(wt_session_close) WT_SESSION *session = NULL;
    CLEANUP(wt_cursor_close) WT_CURSOR *cursor = NULL;
    if (storage_open_session(engine, &session, &err) != ERR_OK ||
        session->open_cursor(session, "metadata:", NULL, NULL, &cursor) != 0) {
        error_reset(&err);
        return false;
    }
    CLEANUP(xfree_ptr) char *uri = xasprintf("table:%s", ident);
    /* The file itself may have been taken away behind WiredTiger's back. */
    CLEANUP(xfree_ptr) char *path = xasprintf("%s/%s.wt", engine->dbpath, ident);
    cursor->set_key(cursor, uri);
    return cursor->search(cursor) == 0 && access(path, F_OK) == 0;
}

static int64_t table_stat(StorageEngine *engine, const char *ident, int key) {
    Error err = {0};
    CLEANUP(wt_session_close) WT_SESSION *session = NULL;
    CLEANUP(wt_cursor_close) WT_CURSOR *cursor = NULL;
    CLEANUP(xfree_ptr) char *uri = xasprintf("statistics:table:%s", ident);
    if (storage_open_session(engine, &session, &err) != ERR_OK ||
        session->open_cursor(session, uri, NULL, "statistics=(fast)", &cursor) != 0) {
        error_reset(&err);
        return 0;
    }
    const char *description;
    const char *text;
    int64_t value = 0;
    cursor->set_key(cursor, key);
    if (cursor->search(cursor) != 0 || cursor->get_value(cursor, &description, &text, &value) != 0)
        return 0;
    return value;
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
    int rc = session->verify(session, uri, NULL);
    *ret_is_checked = rc != EBUSY;
    if (rc == 0 || rc == EBUSY)
        return ERR_OK;
    return wt_error(engine, rc, "verify the file", ident, err);
}
