/*
 * wt.c - the floors of storage: the same documents on WiredTiger alone, without a server.
 *
 * The layout is that of a standalone node: a record table (q -> u, snappy) and an index on _id
 * (u -> u), both in the journal. One operation touches both, as a collection does.
 */
#include <endian.h>
#include <ftw.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>

#include <wiredtiger.h>

#include "base/alloc.h"
#include "base/thread.h"
#include "bench.h"
#include "bson/doc.h"

enum {
    WT_THREADS_MAX = 128, /* the engine stalls with many more */
    ID_KEY_SIZE = 6,      /* type, big-endian number, end: what a key for an int looks like */
};

#define RECORD_URI "table:records"
#define INDEX_URI  "table:index"
#define INDEX_CONFIG                                                                               \
    "type=file,internal_page_max=16k,leaf_page_max=16k,checksum=on,prefix_compression=true,"       \
    "key_format=u,value_format=u,log=(enabled=true)"

typedef struct WtRun WtRun;

typedef struct WtThread {
    WtRun *run;
    Thread thread;
    Prng prng;
    WT_SESSION *session;
    WT_CURSOR *records;
    WT_CURSOR *index;
    Buffer doc;
    BenchResult result;
    uint64_t touched; /* keeps the compiler from dropping reads */
    int wt_error;
} WtThread;

typedef struct WtWorkload {
    const char *name;
    const char *summary;
    bool needs_docs;
    uint32_t docs_per_op; /* 0: the batch; UINT32_MAX: all */
    int (*step)(WtThread *wt);
} WtWorkload;

struct WtRun {
    const BenchOptions *options;
    const WtWorkload *workload;
    WT_CONNECTION *conn;
    _Atomic int64_t next_id;
    uint64_t end_ns;
};

int snappy_extension_init(WT_CONNECTION *conn);
int bench_extensions(WT_CONNECTION *conn, WT_CONFIG_ARG *config);

static int step_load(WtThread *wt);
static int step_insert(WtThread *wt);
static int step_scan(WtThread *wt);
static int step_index_scan(WtThread *wt);
static int step_scan_all(WtThread *wt);
static int step_build(WtThread *wt);
static int step_point_read(WtThread *wt);
static int step_update(WtThread *wt);
static int step_delete(WtThread *wt);
static ErrCode open_engine(WtRun *run, const char *dir, Error *err);
static ErrCode run_threads(WtRun *run, BenchResult *result, Error *err);
static int thread_open(WtThread *wt, WtRun *run);
static void thread_close(WtThread *wt);
static void thread_run(void *arg);
static ErrCode fail(Error *err, const char *what, int wt_error);

static const WtWorkload WT_WORKLOADS[] = {
    {"wt-load", "floor: inserts of --batch documents in one transaction", false, 0, step_load},
    {"wt-insert", "floor: inserts of one document", false, 1, step_insert},
    {"wt-point-read", "floor: read by _id through the index", true, 1, step_point_read},
    {"wt-update", "floor: read by _id and replace", true, 1, step_update},
    {"wt-delete", "floor: read by _id and remove, until --docs are gone", true, 1, step_delete},
    {"wt-index-scan", "floor: walk over all keys of the index", true, UINT32_MAX, step_index_scan},
    {"wt-scan-all", "floor: wt-scan, then the keys of two indexes", true, UINT32_MAX,
     step_scan_all},
    {"wt-build", "floor: an index on k by scan, sort and bulk load", true, UINT32_MAX, step_build},
    {"wt-scan", "floor: walk over all documents, reading their bytes", true, UINT32_MAX, step_scan},
};

static uint64_t now_in_ns(void) {
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static const WtWorkload *find_workload(const char *name) {
    for (size_t i = 0; i < ARRAY_LEN(WT_WORKLOADS); i++)
        if (strcmp(WT_WORKLOADS[i].name, name) == 0)
            return &WT_WORKLOADS[i];
    return NULL;
}

bool wt_workload_exists(const char *name) {
    return find_workload(name) != NULL;
}

void wt_workload_list(void) {
    for (size_t i = 0; i < ARRAY_LEN(WT_WORKLOADS); i++)
        printf("%-14s %s\n", WT_WORKLOADS[i].name, WT_WORKLOADS[i].summary);
}

/* Called by the engine by name while it opens, which is why the program exports its symbols. */
int bench_extensions(WT_CONNECTION *conn, WT_CONFIG_ARG *config) {
    (void)config;
    return snappy_extension_init(conn);
}

static int remove_entry(const char *path, const struct stat *st, int flag, struct FTW *ftw) {
    (void)st, (void)flag, (void)ftw;
    return remove(path);
}

ErrCode wt_workload_run(const BenchOptions *options, BenchResult *ret_result, Error *err) {
    if (options->threads > WT_THREADS_MAX)
        return error_set(err, ERR_BAD_VALUE, "more than %d threads", WT_THREADS_MAX);
    WtRun run = {.options = options, .workload = find_workload(options->workload)};
    const char *parent = getenv("TMPDIR") != NULL ? getenv("TMPDIR") : "/tmp";
    CLEANUP(xfree_ptr) char *dir = xasprintf("%s/sherd-bench-XXXXXX", parent);
    if (mkdtemp(dir) == NULL)
        return error_set(err, ERR_INTERNAL_ERROR, "could not make a directory in \"%s\"", parent);

    ErrCode rc = open_engine(&run, dir, err);
    if (rc == ERR_OK && run.workload->needs_docs) {
        /* Loaded by the same code as wt-load, bounded by the number of documents. */
        BenchOptions load = *options;
        load.has_docs = true;
        load.seconds = 1e5;
        WtRun loading = run;
        loading.options = &load;
        loading.workload = &WT_WORKLOADS[0];
        BenchResult *ignored = NEW(BenchResult);
        rc = run_threads(&loading, ignored, err);
        xfree(ignored);
    }
    if (rc == ERR_OK)
        rc = run_threads(&run, ret_result, err);
    if (run.conn != NULL)
        run.conn->close(run.conn, "leak_memory=true");
    nftw(dir, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    return rc;
}

static ErrCode open_engine(WtRun *run, const char *dir, Error *err) {
    static const char CONFIG[] =
        "create,cache_size=4G,cache_overflow=(file_max=0),session_max=1000,"
        "eviction=(threads_min=1,threads_max=2),eviction_dirty_target=40,eviction_dirty_trigger=70,"
        "config_base=false,statistics=(none),"
        "log=(enabled=true,archive=true,path=journal,compressor=snappy,file_max=32M),"
        "extensions=[local={entry=bench_extensions,early_load=true}]";
    char journal[256];
    snprintf(journal, sizeof(journal), "%s/journal", dir);
    if (mkdir(journal, 0700) != 0)
        return error_set(err, ERR_INTERNAL_ERROR, "could not make directory \"%s\"", journal);
    int rc = wiredtiger_open(dir, NULL, CONFIG, &run->conn);
    if (rc != 0)
        return fail(err, "open the engine", rc);
    WT_SESSION *session;
    rc = run->conn->open_session(run->conn, NULL, NULL, &session);
    if (rc == 0)
        rc = session->create(session, RECORD_URI,
                             "type=file,memory_page_max=10m,split_pct=90,leaf_value_max=64MB,"
                             "checksum=on,block_compressor=snappy,key_format=q,value_format=u,"
                             "log=(enabled=true)");
    if (rc == 0)
        rc = session->create(session, INDEX_URI, INDEX_CONFIG);
    if (rc != 0)
        return fail(err, "create the tables", rc);
    session->close(session, NULL);
    return ERR_OK;
}

static ErrCode run_threads(WtRun *run, BenchResult *result, Error *err) {
    uint32_t count = run->options->threads;
    WtThread *threads = xcalloc(count, sizeof(*threads));
    for (uint32_t i = 0; i < count; i++) {
        threads[i].prng = prng_seeded(i + 1);
        int rc = thread_open(&threads[i], run);
        if (rc != 0)
            return fail(err, "open a session", rc);
    }
    uint64_t start_ns = now_in_ns();
    run->end_ns = start_ns + (uint64_t)(run->options->seconds * 1e9);
    for (uint32_t i = 0; i < count; i++)
        TRY(thread_start(&threads[i].thread, "wt", thread_run, &threads[i], err));
    ErrCode rc = ERR_OK;
    for (uint32_t i = 0; i < count; i++) {
        thread_join(&threads[i].thread);
        result->ops += threads[i].result.ops;
        result->errors += threads[i].result.errors;
        histogram_merge(&result->latency, &threads[i].result.latency);
        if (threads[i].wt_error != 0)
            rc = fail(err, "run", threads[i].wt_error);
    }
    result->seconds = (double)(now_in_ns() - start_ns) / 1e9;
    uint32_t per_op = run->workload->docs_per_op;
    result->docs = result->ops * (per_op == 0            ? run->options->batch
                                  : per_op == UINT32_MAX ? run->options->docs
                                                         : per_op);
    for (uint32_t i = 0; i < count; i++)
        thread_close(&threads[i]);
    xfree(threads);
    return rc;
}

static int thread_open(WtThread *wt, WtRun *run) {
    wt->run = run;
    buffer_init(&wt->doc, BUFFER_UNBOUNDED);
    int rc = run->conn->open_session(run->conn, NULL, "isolation=snapshot", &wt->session);
    if (rc == 0)
        rc =
            wt->session->open_cursor(wt->session, RECORD_URI, NULL, "overwrite=true", &wt->records);
    if (rc == 0)
        rc = wt->session->open_cursor(wt->session, INDEX_URI, NULL, "overwrite=false", &wt->index);
    return rc;
}

static void thread_close(WtThread *wt) {
    wt->session->close(wt->session, NULL);
    buffer_done(&wt->doc);
}

static void thread_run(void *arg) {
    WtThread *wt = arg;
    uint64_t begin_ns = now_in_ns();
    while (begin_ns < wt->run->end_ns) {
        int rc = wt->run->workload->step(wt);
        if (rc == WT_NOTFOUND) /* the load is complete */
            return;
        uint64_t end_ns = now_in_ns();
        if (rc == WT_ROLLBACK) {
            begin_ns = end_ns; /* another thread was first; only what is done counts */
            continue;
        }
        if (rc != 0) {
            wt->wt_error = rc;
            return;
        }
        wt->result.ops++;
        histogram_add(&wt->result.latency, end_ns - begin_ns);
        begin_ns = end_ns;
    }
}

static void make_id_key(int32_t id, uint8_t key[ID_KEY_SIZE]) {
    uint32_t big = htobe32((uint32_t)id ^ 0x80000000u);
    key[0] = 0x2B;
    memcpy(key + 1, &big, sizeof(big));
    key[5] = 0x04;
}

static int insert_doc(WtThread *wt, int32_t id) {
    buffer_clear(&wt->doc);
    bench_append_doc(&wt->doc, id, wt->run->options->doc_size);
    uint8_t key[ID_KEY_SIZE];
    make_id_key(id, key);
    int64_t rid = id + 1;
    WT_ITEM key_item = {.data = key, .size = sizeof(key)};
    WT_ITEM rid_item = {.data = &rid, .size = sizeof(rid)};
    WT_ITEM doc_item = {.data = wt->doc.data, .size = wt->doc.size};
    wt->records->set_key(wt->records, rid);
    wt->records->set_value(wt->records, &doc_item);
    int rc = wt->records->insert(wt->records);
    if (rc != 0)
        return rc;
    wt->index->set_key(wt->index, &key_item);
    wt->index->set_value(wt->index, &rid_item);
    return wt->index->insert(wt->index);
}

static int insert_docs(WtThread *wt, uint32_t count) {
    int64_t first = atomic_fetch_add(&wt->run->next_id, count);
    int64_t bound = wt->run->options->has_docs ? (int64_t)wt->run->options->docs : INT32_MAX;
    if (first >= bound)
        return WT_NOTFOUND;
    int rc = wt->session->begin_transaction(wt->session, NULL);
    for (int64_t id = first; rc == 0 && id < first + count && id < bound; id++)
        rc = insert_doc(wt, (int32_t)id);
    if (rc == 0)
        return wt->session->commit_transaction(wt->session, NULL);
    wt->session->rollback_transaction(wt->session, NULL);
    return rc;
}

static int step_load(WtThread *wt) {
    return insert_docs(wt, wt->run->options->batch);
}

static int step_insert(WtThread *wt) {
    return insert_docs(wt, 1);
}

/* Leaves the record cursor on the document. */
static int find_by_id(WtThread *wt, int32_t id, WT_ITEM *ret_doc) {
    uint8_t key[ID_KEY_SIZE];
    make_id_key(id, key);
    WT_ITEM key_item = {.data = key, .size = sizeof(key)};
    WT_ITEM rid_item;
    wt->index->set_key(wt->index, &key_item);
    int rc = wt->index->search(wt->index);
    if (rc == 0)
        rc = wt->index->get_value(wt->index, &rid_item);
    if (rc != 0)
        return rc;
    int64_t rid;
    memcpy(&rid, rid_item.data, sizeof(rid));
    wt->records->set_key(wt->records, rid);
    rc = wt->records->search(wt->records);
    return rc != 0 ? rc : wt->records->get_value(wt->records, ret_doc);
}

static int32_t random_id(WtThread *wt) {
    return (int32_t)prng_below(&wt->prng, wt->run->options->docs);
}

/* Not found must not look like the end of a load. */
static int as_error(int rc) {
    return rc == WT_NOTFOUND ? WT_ERROR : rc;
}

static int step_point_read(WtThread *wt) {
    int rc = wt->session->begin_transaction(wt->session, NULL);
    WT_ITEM doc;
    if (rc == 0)
        rc = find_by_id(wt, random_id(wt), &doc);
    if (rc == 0) {
        buffer_clear(&wt->doc);
        buffer_append(&wt->doc, doc.data, doc.size);
    }
    wt->index->reset(wt->index);
    wt->records->reset(wt->records);
    wt->session->rollback_transaction(wt->session, NULL);
    return as_error(rc);
}

static int step_update(WtThread *wt) {
    int rc = wt->session->begin_transaction(wt->session, NULL);
    WT_ITEM doc;
    if (rc == 0)
        rc = find_by_id(wt, random_id(wt), &doc);
    if (rc == 0) {
        buffer_clear(&wt->doc);
        buffer_append(&wt->doc, doc.data, doc.size);
        uint8_t *n = (uint8_t *)elem_value(doc_get_lit((Doc){wt->doc.data}, "n"));
        int32_t next = load_i32(n) + 1;
        memcpy(n, &next, sizeof(next));
        WT_ITEM changed = {.data = wt->doc.data, .size = wt->doc.size};
        wt->records->set_value(wt->records, &changed);
        rc = wt->records->update(wt->records);
    }
    if (rc == 0)
        rc = wt->session->commit_transaction(wt->session, NULL);
    else
        wt->session->rollback_transaction(wt->session, NULL);
    wt->index->reset(wt->index);
    wt->records->reset(wt->records);
    return as_error(rc);
}

/* Each document once, in the order of _id, as expired documents are met. */
static int step_delete(WtThread *wt) {
    int64_t id = atomic_fetch_add(&wt->run->next_id, 1);
    if (id >= (int64_t)wt->run->options->docs)
        return WT_NOTFOUND;
    int rc = wt->session->begin_transaction(wt->session, NULL);
    WT_ITEM doc;
    if (rc == 0)
        rc = find_by_id(wt, (int32_t)id, &doc);
    if (rc == 0)
        rc = wt->records->remove(wt->records);
    if (rc == 0)
        rc = wt->index->remove(wt->index);
    if (rc == 0)
        rc = wt->session->commit_transaction(wt->session, NULL);
    else
        wt->session->rollback_transaction(wt->session, NULL);
    wt->index->reset(wt->index);
    wt->records->reset(wt->records);
    return as_error(rc);
}

static int step_scan(WtThread *wt) {
    int rc = wt->session->begin_transaction(wt->session, NULL);
    uint32_t seen = 0;
    while (rc == 0 && (rc = wt->records->next(wt->records)) == 0) {
        WT_ITEM doc;
        rc = wt->records->get_value(wt->records, &doc);
        const uint8_t *bytes = doc.data;
        for (size_t at = 0; at + 8 <= doc.size; at += 8)
            wt->touched += (uint64_t)load_i64(bytes + at);
        seen++;
    }
    wt->records->reset(wt->records);
    wt->session->rollback_transaction(wt->session, NULL);
    if (rc != WT_NOTFOUND)
        return rc;
    return seen == wt->run->options->docs ? 0 : WT_ERROR;
}

static int step_index_scan(WtThread *wt) {
    int rc = wt->session->begin_transaction(wt->session, NULL);
    uint32_t seen = 0;
    while (rc == 0 && (rc = wt->index->next(wt->index)) == 0) {
        WT_ITEM key;
        rc = wt->index->get_key(wt->index, &key);
        wt->touched += *(const uint8_t *)key.data;
        seen++;
    }
    wt->index->reset(wt->index);
    wt->session->rollback_transaction(wt->session, NULL);
    if (rc != WT_NOTFOUND)
        return rc;
    return seen == wt->run->options->docs ? 0 : WT_ERROR;
}

/* The second index is the first one again: as many keys, and with their record ids as many bytes.
 */
static int step_scan_all(WtThread *wt) {
    int rc = step_scan(wt);
    for (int i = 0; rc == 0 && i < 2; i++)
        rc = step_index_scan(wt);
    return rc;
}

/* An index key as a node stores it: the number with its type and end, then the record id. */
typedef struct BuiltKey {
    uint8_t bytes[ID_KEY_SIZE + sizeof(int64_t)];
} BuiltKey;

static int compare_built_keys(const void *a, const void *b) {
    return memcmp(a, b, sizeof(BuiltKey));
}

static int collect_keys(WtThread *wt, BuiltKey *keys, uint32_t *ret_count) {
    uint32_t count = 0;
    int rc = wt->session->begin_transaction(wt->session, NULL);
    while (rc == 0 && (rc = wt->records->next(wt->records)) == 0) {
        WT_ITEM doc;
        int64_t rid;
        rc = wt->records->get_value(wt->records, &doc);
        if (rc == 0)
            rc = wt->records->get_key(wt->records, &rid);
        if (rc != 0 || count == wt->run->options->docs)
            break;
        make_id_key(elem_i32(doc_get_lit((Doc){doc.data}, "k")), keys[count].bytes);
        uint64_t big = htobe64((uint64_t)rid);
        memcpy(keys[count++].bytes + ID_KEY_SIZE, &big, sizeof(big));
    }
    wt->records->reset(wt->records);
    wt->session->rollback_transaction(wt->session, NULL);
    *ret_count = count;
    return rc == WT_NOTFOUND ? 0 : rc;
}

static int load_keys(WtThread *wt, const BuiltKey *keys, uint32_t count) {
    WT_CURSOR *bulk;
    char uri[64];
    snprintf(uri, sizeof(uri), "table:built-%llu", (unsigned long long)now_in_ns());
    int rc = wt->session->create(wt->session, uri, INDEX_CONFIG);
    if (rc == 0)
        rc = wt->session->open_cursor(wt->session, uri, NULL, "bulk", &bulk);
    if (rc != 0)
        return rc;
    for (uint32_t i = 0; rc == 0 && i < count; i++) {
        WT_ITEM key = {.data = keys[i].bytes, .size = sizeof(keys[i].bytes)};
        WT_ITEM value = {.data = "", .size = 0};
        bulk->set_key(bulk, &key);
        bulk->set_value(bulk, &value);
        rc = bulk->insert(bulk);
    }
    int close_rc = bulk->close(bulk);
    return rc != 0 ? rc : close_rc;
}

/* Scan, sort in memory, bulk load; into a new table each time. */
static int step_build(WtThread *wt) {
    uint32_t count = 0;
    BuiltKey *keys = xmalloc(wt->run->options->docs * sizeof(BuiltKey));
    int rc = collect_keys(wt, keys, &count);
    if (rc == 0) {
        qsort(keys, count, sizeof(*keys), compare_built_keys);
        rc = count == wt->run->options->docs ? load_keys(wt, keys, count) : WT_ERROR;
    }
    xfree(keys);
    return rc;
}

static ErrCode fail(Error *err, const char *what, int wt_error) {
    return error_set(err, ERR_INTERNAL_ERROR, "could not %s: %s", what,
                     wiredtiger_strerror(wt_error));
}
