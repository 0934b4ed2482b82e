/*
 * workload.c - what is asked: one row and one builder for each workload.
 *
 * Reading workloads use collection "docs" (and "indexed", the same with an index on k), which is
 * made when it does not have the asked number of documents. Inserting ones start from an empty
 * collection of their own.
 */
#include <stdio.h>
#include <unistd.h>

#include "bench.h"
#include "bson/builder.h"

typedef enum DocsPerOp {
    DOCS_NONE,
    DOCS_ONE,
    DOCS_BATCH,
    DOCS_RANGE,
    DOCS_ALL,
} DocsPerOp;

typedef enum ReplyCheck {
    CHECK_OK,        /* {ok: 1} is enough */
    CHECK_ONE_DOC,   /* a first batch with something in it */
    CHECK_NO_DOC,    /* an empty first batch */
    CHECK_ONE_WRITE, /* n: 1 and no write errors */
    CHECK_BATCH,     /* n: batch and no write errors */
    CHECK_MIXED,     /* reads and writes */
    CHECK_NOTHING,   /* the echo server's reply */
} ReplyCheck;

struct Workload {
    const char *name;
    const char *summary;
    const char *collection;
    bool is_fresh; /* starts from an empty collection */
    bool has_index;
    DocsPerOp docs_per_op;
    ReplyCheck check;
    bool (*build)(WorkloadRun *run, Prng *prng, DocBuilder *b);
    const TxnShape *txn; /* NULL: each request stands alone */
};

static bool build_ping(WorkloadRun *run, Prng *prng, DocBuilder *b);
static bool build_insert(WorkloadRun *run, Prng *prng, DocBuilder *b);
static bool build_point_read(WorkloadRun *run, Prng *prng, DocBuilder *b);
static bool build_update(WorkloadRun *run, Prng *prng, DocBuilder *b);
static bool build_update_first(WorkloadRun *run, Prng *prng, DocBuilder *b);
static bool build_read_mostly(WorkloadRun *run, Prng *prng, DocBuilder *b);
static bool build_scan(WorkloadRun *run, Prng *prng, DocBuilder *b);
static bool build_range_scan(WorkloadRun *run, Prng *prng, DocBuilder *b);
static bool build_sort(WorkloadRun *run, Prng *prng, DocBuilder *b);
static bool build_group(WorkloadRun *run, Prng *prng, DocBuilder *b);
static bool build_sort_all(WorkloadRun *run, Prng *prng, DocBuilder *b);
static bool build_pipeline(WorkloadRun *run, Prng *prng, DocBuilder *b);
static bool build_count_range(WorkloadRun *run, Prng *prng, DocBuilder *b);
static bool build_index_find(WorkloadRun *run, Prng *prng, DocBuilder *b);
static bool build_count_command(WorkloadRun *run, Prng *prng, DocBuilder *b);
static ErrCode make_collection(WorkloadRun *run, int fd, Buffer *buf, Error *err);
static ErrCode shard_collection(WorkloadRun *run, int fd, Buffer *buf, Error *err);
static ErrCode load_documents(WorkloadRun *run, int fd, Buffer *buf, Error *err);
static ErrCode make_index(WorkloadRun *run, int fd, Buffer *buf, Error *err);
static ErrCode count_documents(WorkloadRun *run, int fd, Buffer *buf, int64_t *ret_count,
                               Error *err);

static const TxnShape TXN_OF_ONE = {.statements = 1};
static const TxnShape TXN_OF_TWO = {.statements = 2};
static const TxnShape TXN_OF_TEN_READS = {.statements = 10, .is_snapshot = true};

/* To add a workload: a row here and its builder below. */
static const Workload WORKLOADS[] = {
    {"ping", "the ping command", NULL, false, false, DOCS_NONE, CHECK_OK, build_ping, NULL},
    {"echo", "floor: point-read sized messages to a bare epoll server", NULL, false, false,
     DOCS_NONE, CHECK_NOTHING, build_point_read, NULL},
    {"load", "unordered bulk inserts of --batch documents", "load", true, false, DOCS_BATCH,
     CHECK_BATCH, build_insert, NULL},
    {"insert1", "inserts of one document", "insert1", true, false, DOCS_ONE, CHECK_ONE_WRITE,
     build_insert, NULL},
    {"point-read", "find by _id", "docs", false, false, DOCS_ONE, CHECK_ONE_DOC, build_point_read,
     NULL},
    {"update", "$inc by _id", "docs", false, false, DOCS_ONE, CHECK_ONE_WRITE, build_update, NULL},
    {"read-mostly", "95 % find and 5 % $inc by _id", "docs", false, false, DOCS_ONE, CHECK_MIXED,
     build_read_mostly, NULL},
    {"scan", "find with an unindexed predicate that matches nothing", "docs", false, false,
     DOCS_ALL, CHECK_NO_DOC, build_scan, NULL},
    {"range-scan", "100 documents by a range of _id in one reply", "docs", false, false, DOCS_RANGE,
     CHECK_ONE_DOC, build_range_scan, NULL},
    {"sort", "the first 100 documents by an unindexed field", "docs", false, false, DOCS_ALL,
     CHECK_ONE_DOC, build_sort, NULL},
    {"group", "$group by one field with $sum", "docs", false, false, DOCS_ALL, CHECK_ONE_DOC,
     build_group, NULL},
    {"index-find", "find by an indexed field", "indexed", false, true, DOCS_ONE, CHECK_ONE_DOC,
     build_index_find, NULL},
    {"sort-all", "all documents by an unindexed field, of which the last is sent", "docs", false,
     false, DOCS_ALL, CHECK_ONE_DOC, build_sort_all, NULL},
    {"pipeline", "$match, $group, $sort and $limit", "docs", false, false, DOCS_ALL, CHECK_ONE_DOC,
     build_pipeline, NULL},
    {"count-range", "the count command with a range of an indexed field", "indexed", false, true,
     DOCS_ALL, CHECK_OK, build_count_range, NULL},
    {"count", "the count command with an unindexed predicate", "docs", false, false, DOCS_ALL,
     CHECK_OK, build_count_command, NULL},
    {"txn-update", "two $inc by _id and a commit", "docs", false, false, DOCS_NONE, CHECK_ONE_WRITE,
     build_update, &TXN_OF_TWO},
    {"txn-read", "ten find by _id at snapshot and a commit", "docs", false, false, DOCS_NONE,
     CHECK_ONE_DOC, build_point_read, &TXN_OF_TEN_READS},
    {"txn-conflict", "$inc of one and the same document and a commit", "docs", false, false,
     DOCS_NONE, CHECK_ONE_WRITE, build_update_first, &TXN_OF_ONE},
};

/* -1 when it is missing or no number. */
static int64_t number_or_none(Elem elem) {
    return elem_is_number(elem) ? elem_as_i64(elem) : -1;
}

const Workload *workload_find(const char *name) {
    for (size_t i = 0; i < ARRAY_LEN(WORKLOADS); i++)
        if (strcmp(WORKLOADS[i].name, name) == 0)
            return &WORKLOADS[i];
    return NULL;
}

void workload_list(void) {
    for (size_t i = 0; i < ARRAY_LEN(WORKLOADS); i++)
        printf("%-14s %s\n", WORKLOADS[i].name, WORKLOADS[i].summary);
}

bool workload_is_echo(const Workload *workload) {
    return workload->check == CHECK_NOTHING;
}

static bool finish_request(Buffer *request, size_t started, int32_t request_id);

void bench_build_write_concern(const BenchTarget *target, DocBuilder *b) {
    if (target->w[0] == '\0')
        return;
    size_t opened = build_open_doc(b, "writeConcern");
    if (target->w[0] >= '0' && target->w[0] <= '9')
        build_i32(b, "w", (int32_t)strtol(target->w, NULL, 10));
    else
        build_cstr(b, "w", target->w);
    build_close(b, opened);
}

/* What the URI says of concerns, for the command that was begun in `b`. */
static void build_concerns(const WorkloadRun *run, DocBuilder *b) {
    static const char *const WRITES[] = {"insert", "update", "delete"};
    const BenchTarget *target = run->target;
    const char *command = (const char *)b->buf->data + b->start + 5;
    bool is_write = false;
    for (size_t i = 0; i < ARRAY_LEN(WRITES); i++)
        is_write |= strcmp(command, WRITES[i]) == 0;
    if (is_write)
        bench_build_write_concern(target, b);
    if (!is_write && target->read_preference[0] != '\0') {
        size_t opened = build_open_doc(b, "$readPreference");
        build_cstr(b, "mode", target->read_preference);
        build_close(b, opened);
    }
}

bool workload_build(WorkloadRun *run, BenchSession *session, Prng *prng, int32_t request_id,
                    Buffer *request) {
    size_t started = wire_request_begin(request);
    DocBuilder b;
    doc_builder_init(&b, request);
    const TxnShape *txn = run->workload->txn;
    if (txn != NULL && session->step == txn->statements) {
        session_build_commit(session, run->target, &b);
        doc_builder_end(&b);
        return finish_request(request, started, request_id);
    }
    int64_t first_id = 0;
    bool is_insert = run->workload->is_fresh;
    uint32_t batch = run->workload->docs_per_op == DOCS_BATCH ? run->options->batch : 1;
    if (is_insert) {
        first_id = atomic_fetch_add_explicit(&run->next_id, batch, memory_order_relaxed);
        if (run->options->has_docs && first_id + batch > (int64_t)run->options->docs)
            return false;
    }
    if (!run->workload->build(run, prng, &b))
        return false;
    build_cstr(&b, "$db", run->database);
    if (txn != NULL)
        session_build_statement(session, txn, &b);
    else
        build_concerns(run, &b);
    doc_builder_end(&b);
    if (is_insert) {
        size_t opened = wire_sequence_begin(request, "documents");
        for (uint32_t i = 0; i < batch; i++)
            bench_append_doc(request, (int32_t)(first_id + i), run->options->doc_size);
        wire_sequence_end(request, opened);
    }
    return finish_request(request, started, request_id);
}

static bool finish_request(Buffer *request, size_t started, int32_t request_id) {
    Error err = {0};
    bool is_ok = wire_request_finish(request, started, request_id, 0, &err) == ERR_OK;
    error_reset(&err);
    return is_ok;
}

bool workload_is_txn(const Workload *workload) {
    return workload->txn != NULL;
}

const char *workload_check(const WorkloadRun *run, BenchSession *session, Doc reply) {
    ReplyCheck check = run->workload->check;
    if (check == CHECK_NOTHING)
        return NULL;
    const TxnShape *txn = run->workload->txn;
    if (txn != NULL) {
        bool was_commit = session->step == txn->statements;
        if (session_note_reply(session, txn, reply))
            return NULL;
        if (was_commit)
            check = CHECK_OK;
    }
    if (!elem_is_truthy(doc_get_lit(reply, "ok")))
        return "command failed";
    Elem cursor = doc_get_lit(reply, "cursor");
    if (check == CHECK_MIXED)
        check = elem_is_present(cursor) ? CHECK_ONE_DOC : CHECK_ONE_WRITE;
    switch (check) {
    case CHECK_ONE_DOC:
    case CHECK_NO_DOC: {
        if (elem_type(cursor) != BT_DOC)
            return "reply has no cursor";
        Elem first_batch = doc_get_lit(elem_doc(cursor), "firstBatch");
        if (elem_type(first_batch) != BT_ARRAY)
            return "reply has no firstBatch";
        bool is_empty = doc_is_empty(elem_doc(first_batch));
        if (is_empty != (check == CHECK_NO_DOC))
            return is_empty ? "no document was found" : "a document was found";
        return NULL;
    }
    case CHECK_ONE_WRITE:
    case CHECK_BATCH: {
        int64_t expected = check == CHECK_BATCH ? run->options->batch : 1;
        if (elem_is_present(doc_get_lit(reply, "writeErrors")))
            return "write errors";
        return number_or_none(doc_get_lit(reply, "n")) == expected ? NULL : "not all was written";
    }
    default:
        return NULL;
    }
}

uint64_t workload_docs_per_op(const WorkloadRun *run) {
    switch (run->workload->docs_per_op) {
    case DOCS_ONE:
        return 1;
    case DOCS_BATCH:
        return run->options->batch;
    case DOCS_RANGE:
        return BENCH_RANGE_DOCS;
    case DOCS_ALL:
        return run->options->docs;
    default:
        return 0;
    }
}

/* ---- requests ---- */

static bool build_ping(WorkloadRun *run, Prng *prng, DocBuilder *b) {
    (void)run, (void)prng;
    build_i32(b, "ping", 1);
    return true;
}

/* The documents follow as a sequence; see workload_build. Batches are unordered, as programs that
 * load data send them: shards then work on their parts at the same time. */
static bool build_insert(WorkloadRun *run, Prng *prng, DocBuilder *b) {
    (void)prng;
    build_cstr(b, "insert", run->workload->collection);
    if (run->workload->docs_per_op == DOCS_BATCH)
        build_bool(b, "ordered", false);
    return true;
}

static int32_t random_id(const WorkloadRun *run, Prng *prng) {
    return (int32_t)prng_below(prng, run->options->docs);
}

static void build_find(DocBuilder *b, const char *collection, const char *field, int32_t value) {
    build_cstr(b, "find", collection);
    size_t filter = build_open_doc(b, "filter");
    build_i32(b, field, value);
    build_close(b, filter);
    build_i32(b, "limit", 1);
    build_bool(b, "singleBatch", true);
}

static bool build_point_read(WorkloadRun *run, Prng *prng, DocBuilder *b) {
    build_find(b, "docs", "_id", random_id(run, prng));
    return true;
}

static void build_increment(const WorkloadRun *run, int32_t id, DocBuilder *b) {
    build_cstr(b, "update", run->workload->collection);
    size_t updates = build_open_array(b, "updates");
    size_t first = build_open_doc(b, "0");
    size_t q = build_open_doc(b, "q");
    build_i32(b, "_id", id);
    build_close(b, q);
    size_t u = build_open_doc(b, "u");
    size_t inc = build_open_doc(b, "$inc");
    build_i32(b, "n", 1);
    build_close(b, inc);
    build_close(b, u);
    build_close(b, first);
    build_close(b, updates);
}

static bool build_update(WorkloadRun *run, Prng *prng, DocBuilder *b) {
    build_increment(run, random_id(run, prng), b);
    return true;
}

static bool build_update_first(WorkloadRun *run, Prng *prng, DocBuilder *b) {
    (void)prng;
    build_increment(run, 0, b);
    return true;
}

static bool build_read_mostly(WorkloadRun *run, Prng *prng, DocBuilder *b) {
    return prng_below(prng, 100) < 5 ? build_update(run, prng, b) : build_point_read(run, prng, b);
}

static bool build_scan(WorkloadRun *run, Prng *prng, DocBuilder *b) {
    (void)prng;
    build_cstr(b, "find", run->workload->collection);
    size_t filter = build_open_doc(b, "filter");
    build_i32(b, "g", -1);
    build_close(b, filter);
    return true;
}

static bool build_range_scan(WorkloadRun *run, Prng *prng, DocBuilder *b) {
    uint32_t docs = run->options->docs;
    int32_t from = docs > BENCH_RANGE_DOCS ? (int32_t)prng_below(prng, docs - BENCH_RANGE_DOCS) : 0;
    build_cstr(b, "find", run->workload->collection);
    size_t filter = build_open_doc(b, "filter");
    size_t range = build_open_doc(b, "_id");
    build_i32(b, "$gte", from);
    build_i32(b, "$lt", from + BENCH_RANGE_DOCS);
    build_close(b, range);
    build_close(b, filter);
    build_i32(b, "limit", BENCH_RANGE_DOCS);
    build_i32(b, "batchSize", BENCH_RANGE_DOCS);
    return true;
}

static bool build_sort(WorkloadRun *run, Prng *prng, DocBuilder *b) {
    (void)prng;
    build_cstr(b, "find", run->workload->collection);
    size_t sort = build_open_doc(b, "sort");
    build_i32(b, "r", 1);
    build_close(b, sort);
    build_i32(b, "limit", 100);
    build_i32(b, "batchSize", 100);
    return true;
}

/* {$group: {_id: "$g", total: {$sum: "$n"}}} as a stage of the open array. */
static void build_group_stage(DocBuilder *b, const char *position) {
    size_t stage = build_open_doc(b, position);
    size_t group = build_open_doc(b, "$group");
    build_cstr(b, "_id", "$g");
    size_t total = build_open_doc(b, "total");
    build_cstr(b, "$sum", "$n");
    build_close(b, total);
    build_close(b, group);
    build_close(b, stage);
}

static void build_cursor_options(DocBuilder *b) {
    size_t cursor = build_open_doc(b, "cursor");
    build_close(b, cursor);
}

static bool build_group(WorkloadRun *run, Prng *prng, DocBuilder *b) {
    (void)prng;
    build_cstr(b, "aggregate", run->workload->collection);
    size_t pipeline = build_open_array(b, "pipeline");
    build_group_stage(b, "0");
    build_close(b, pipeline);
    build_cursor_options(b);
    return true;
}

static bool build_pipeline(WorkloadRun *run, Prng *prng, DocBuilder *b) {
    (void)prng;
    build_cstr(b, "aggregate", run->workload->collection);
    size_t pipeline = build_open_array(b, "pipeline");
    size_t stage = build_open_doc(b, "0");
    size_t match = build_open_doc(b, "$match");
    size_t range = build_open_doc(b, "g");
    build_i32(b, "$gte", 0);
    build_close(b, range);
    build_close(b, match);
    build_close(b, stage);
    build_group_stage(b, "1");
    stage = build_open_doc(b, "2");
    size_t sort = build_open_doc(b, "$sort");
    build_i32(b, "total", -1);
    build_i32(b, "_id", 1);
    build_close(b, sort);
    build_close(b, stage);
    stage = build_open_doc(b, "3");
    build_i32(b, "$limit", 10);
    build_close(b, stage);
    build_close(b, pipeline);
    build_cursor_options(b);
    return true;
}

/* Whole documents are sorted, and the last one is sent. */
static bool build_sort_all(WorkloadRun *run, Prng *prng, DocBuilder *b) {
    (void)prng;
    build_cstr(b, "aggregate", run->workload->collection);
    size_t pipeline = build_open_array(b, "pipeline");
    size_t stage = build_open_doc(b, "0");
    size_t sort = build_open_doc(b, "$sort");
    build_i32(b, "r", 1);
    build_close(b, sort);
    build_close(b, stage);
    stage = build_open_doc(b, "1");
    build_i32(b, "$skip", (int32_t)run->options->docs - 1);
    build_close(b, stage);
    build_close(b, pipeline);
    build_bool(b, "allowDiskUse", true);
    build_cursor_options(b);
    return true;
}

static bool build_count_range(WorkloadRun *run, Prng *prng, DocBuilder *b) {
    (void)prng;
    build_cstr(b, "count", run->workload->collection);
    size_t query = build_open_doc(b, "query");
    size_t range = build_open_doc(b, "k");
    build_i32(b, "$gte", 0);
    build_close(b, range);
    build_close(b, query);
    return true;
}

static bool build_index_find(WorkloadRun *run, Prng *prng, DocBuilder *b) {
    build_find(b, run->workload->collection, "k", bench_doc_k(random_id(run, prng)));
    return true;
}

static bool build_count_command(WorkloadRun *run, Prng *prng, DocBuilder *b) {
    build_cstr(b, "count", run->workload->collection);
    size_t query = build_open_doc(b, "query");
    build_i32(b, "g", (int32_t)prng_below(prng, BENCH_GROUPS));
    build_close(b, query);
    return true;
}

/* ---- preparing ---- */

ErrCode workload_prepare(WorkloadRun *run, const BenchTarget *target, Error *err) {
    if (run->workload->collection == NULL)
        return ERR_OK;
    int fd;
    TRY(bench_connect(target, &fd, err));
    CLEANUP(buffer_done) Buffer buf = {0};
    buffer_init(&buf, BUFFER_UNBOUNDED);
    ErrCode rc = make_collection(run, fd, &buf, err);
    close(fd);
    return rc == ERR_OK ? ERR_OK : error_prefix(err, "could not prepare the data");
}

static ErrCode make_collection(WorkloadRun *run, int fd, Buffer *buf, Error *err) {
    if (!run->workload->is_fresh) {
        int64_t count;
        TRY(count_documents(run, fd, buf, &count, err));
        if (count == (int64_t)run->options->docs)
            return ERR_OK;
    }
    /* Dropping what is not there is an error for some versions, and fine for us. */
    buffer_clear(buf);
    size_t started = wire_request_begin(buf);
    DocBuilder b;
    doc_builder_init(&b, buf);
    build_cstr(&b, "drop", run->workload->collection);
    build_cstr(&b, "$db", run->database);
    doc_builder_end(&b);
    TRY(wire_request_finish(buf, started, 1, 0, err));
    Doc reply;
    ErrCode rc = bench_command(fd, buf, &reply, err);
    if (rc != ERR_OK && rc != ERR_COMMAND_FAILED)
        return rc;
    error_reset(err);
    if (run->options->shard_by != NULL)
        TRY(shard_collection(run, fd, buf, err));
    if (run->workload->is_fresh)
        return ERR_OK;
    TRY(load_documents(run, fd, buf, err));
    return run->workload->has_index ? make_index(run, fd, buf, err) : ERR_OK;
}

static ErrCode shard_collection(WorkloadRun *run, int fd, Buffer *buf, Error *err) {
    char ns[256];
    snprintf(ns, sizeof(ns), "%s.%s", run->database, run->workload->collection);
    buffer_clear(buf);
    size_t started = wire_request_begin(buf);
    DocBuilder b;
    doc_builder_init(&b, buf);
    build_cstr(&b, "shardCollection", ns);
    size_t key = build_open_doc(&b, "key");
    if (strcmp(run->options->shard_by, "hashed") == 0)
        build_cstr(&b, "_id", "hashed");
    else
        build_i32(&b, "_id", 1);
    build_close(&b, key);
    build_cstr(&b, "$db", "admin");
    doc_builder_end(&b);
    TRY(wire_request_finish(buf, started, 1, 0, err));
    Doc reply;
    return bench_command(fd, buf, &reply, err);
}

static ErrCode count_documents(WorkloadRun *run, int fd, Buffer *buf, int64_t *ret_count,
                               Error *err) {
    buffer_clear(buf);
    size_t started = wire_request_begin(buf);
    DocBuilder b;
    doc_builder_init(&b, buf);
    build_cstr(&b, "count", run->workload->collection);
    build_cstr(&b, "$db", run->database);
    build_concerns(run, &b);
    doc_builder_end(&b);
    TRY(wire_request_finish(buf, started, 1, 0, err));
    Doc reply;
    TRY(bench_command(fd, buf, &reply, err));
    *ret_count = number_or_none(doc_get_lit(reply, "n"));
    return ERR_OK;
}

static ErrCode load_documents(WorkloadRun *run, int fd, Buffer *buf, Error *err) {
    const BenchOptions *options = run->options;
    for (uint32_t id = 0; id < options->docs;) {
        buffer_clear(buf);
        size_t started = wire_request_begin(buf);
        DocBuilder b;
        doc_builder_init(&b, buf);
        build_cstr(&b, "insert", run->workload->collection);
        /* Ordered, a batch would go to shards in runs of neighbours, each of which waits for the
         * one before it to be durable. */
        build_bool(&b, "ordered", false);
        build_cstr(&b, "$db", run->database);
        doc_builder_end(&b);
        size_t opened = wire_sequence_begin(buf, "documents");
        for (uint32_t i = 0; i < options->batch && id < options->docs; i++, id++)
            bench_append_doc(buf, (int32_t)id, options->doc_size);
        wire_sequence_end(buf, opened);
        TRY(wire_request_finish(buf, started, 1, 0, err));
        Doc reply;
        TRY(bench_command(fd, buf, &reply, err));
        if (elem_is_present(doc_get_lit(reply, "writeErrors")))
            return error_set(err, ERR_COMMAND_FAILED, "insert into \"%s\" had write errors",
                             run->workload->collection);
    }
    return ERR_OK;
}

static void build_index(DocBuilder *b, const char *position, const char *name, bool has_group) {
    size_t index = build_open_doc(b, position);
    size_t key = build_open_doc(b, "key");
    build_i32(b, "k", 1);
    if (has_group)
        build_i32(b, "g", 1);
    build_close(b, key);
    build_cstr(b, "name", name);
    build_close(b, index);
}

/* Two that both serve: so that there is a plan to choose and to remember. */
static ErrCode make_index(WorkloadRun *run, int fd, Buffer *buf, Error *err) {
    buffer_clear(buf);
    size_t started = wire_request_begin(buf);
    DocBuilder b;
    doc_builder_init(&b, buf);
    build_cstr(&b, "createIndexes", run->workload->collection);
    size_t indexes = build_open_array(&b, "indexes");
    build_index(&b, "0", "k_1", /* has_group= */ false);
    build_index(&b, "1", "k_1_g_1", /* has_group= */ true);
    build_close(&b, indexes);
    build_cstr(&b, "$db", run->database);
    build_concerns(run, &b);
    doc_builder_end(&b);
    TRY(wire_request_finish(buf, started, 1, 0, err));
    Doc reply;
    return bench_command(fd, buf, &reply, err);
}
