#include "router/stats_commands.h"

#include <string.h>

#include "router/forward.h"
#include "router/owners.h"

enum {
    INDEXES_MAX = 64, /* of a collection */
};

/* ---- sums ---- */

static Elem field_of(const ShardCall *call, const char *name) {
    return doc_get(call->reply.body, str_from(name));
}

static double sum_of(const ShardCalls *calls, const char *name) {
    double sum = 0;
    for (uint32_t i = 0; i < calls->count; i++) {
        Elem field = field_of(&calls->rows[i], name);
        sum += elem_is_number(field) ? elem_as_f64(field) : 0;
    }
    return sum;
}

static void build_sums(DocBuilder *b, const ShardCalls *calls, const char *const *names,
                       size_t count) {
    for (size_t i = 0; i < count; i++)
        if (elem_is_present(field_of(&calls->rows[0], names[i])))
            build_count(b, names[i], (int64_t)sum_of(calls, names[i]));
}

/* Sums that nodes report as doubles. */
static void build_f64_sums(DocBuilder *b, const ShardCalls *calls, const char *const *names,
                           size_t count) {
    for (size_t i = 0; i < count; i++)
        if (elem_is_present(field_of(&calls->rows[0], names[i])))
            build_f64(b, names[i], sum_of(calls, names[i]));
}

static ErrCode read_preference_of(CommandCtx *ctx, ReadPreference *ret_preference, Error *err) {
    return read_preference_parse(ctx->args.read_preference, ret_preference, err);
}

static ErrCode command_ns(CommandCtx *ctx, Ns *ret_ns, Error *err) {
    DocIter iter = doc_iter(ctx->body);
    Elem name;
    if (!doc_iter_next(&iter, &name) || elem_type(name) != BT_STRING)
        return error_set(err, ERR_BAD_VALUE, "collection name has invalid type");
    return ns_make(ctx->args.db, ctx->ns_coll, ret_ns, err);
}

/* ---- collStats ---- */

typedef struct IndexSizes {
    Str names[INDEXES_MAX];
    int64_t bytes[INDEXES_MAX];
    uint32_t count;
} IndexSizes;

static void add_index_sizes(IndexSizes *sizes, Elem list) {
    DocIter iter = doc_iter(elem_type(list) == BT_DOC ? elem_doc(list) : DOC_EMPTY);
    for (Elem size; doc_iter_next(&iter, &size);) {
        uint32_t i = 0;
        while (i < sizes->count && !str_equal(sizes->names[i], elem_name_str(size)))
            i++;
        if (i == INDEXES_MAX)
            continue;
        if (i == sizes->count) {
            sizes->names[i] = elem_name_str(size);
            sizes->bytes[i] = 0;
            sizes->count++;
        }
        sizes->bytes[i] += elem_is_number(size) ? elem_as_i64(size) : 0;
    }
}

static void build_index_sizes(DocBuilder *b, const ShardCalls *calls) {
    IndexSizes sizes;
    sizes.count = 0;
    for (uint32_t i = 0; i < calls->count; i++)
        add_index_sizes(&sizes, field_of(&calls->rows[i], "indexSizes"));
    size_t opened = build_open_doc(b, "indexSizes");
    for (uint32_t i = 0; i < sizes.count; i++)
        build_count(b, sizes.names[i].data, sizes.bytes[i]);
    build_close(b, opened);
}

static void build_by_shard(CommandCtx *ctx, const ShardCalls *calls) {
    size_t shards = build_open_doc(ctx->reply, "shards");
    for (uint32_t i = 0; i < calls->count; i++) {
        size_t row = build_open_doc(ctx->reply, calls->rows[i].shard->name);
        forward_build_reply(ctx, calls->rows[i].reply.body, NULL);
        build_close(ctx->reply, row);
    }
    build_close(ctx->reply, shards);
}

static void build_copied(DocBuilder *b, const ShardCall *call, const char *name) {
    Elem field = field_of(call, name);
    if (elem_is_present(field))
        build_elem(b, field);
}

static void build_coll_stats(const Routing *routing, const ShardCalls *calls) {
    static const char *const SUMS[] = {"count",          "size",      "storageSize",
                                       "totalIndexSize", "totalSize", "freeStorageSize",
                                       "numOrphanDocs"};
    CommandCtx *ctx = routing->ctx;
    DocBuilder *b = ctx->reply;
    build_bool(b, "sharded", routing_is_sharded(routing));
    if (!routing_is_sharded(routing))
        build_cstr(b, "primary", calls->rows[0].shard->name);
    build_copied(b, &calls->rows[0], "capped");
    build_copied(b, &calls->rows[0], "max");
    build_copied(b, &calls->rows[0], "maxSize");
    build_str(b, "ns", ns_str(&routing->ns));
    build_sums(b, calls, SUMS, ARRAY_LEN(SUMS));
    build_index_sizes(b, calls);
    double count = sum_of(calls, "count"),
           scale = elem_as_f64(field_of(&calls->rows[0], "scaleFactor"));
    /* By documents, whatever the scale. */
    if (count > 0)
        build_f64(b, "avgObjSize", sum_of(calls, "size") * scale / count);
    double indexes = 0;
    for (uint32_t i = 0; i < calls->count; i++) {
        double here = elem_as_f64(field_of(&calls->rows[i], "nindexes"));
        indexes = here > indexes ? here : indexes;
    }
    build_i32(b, "nindexes", (int32_t)indexes);
    build_copied(b, &calls->rows[0], "scaleFactor");
    build_count(b, "nchunks",
                routing_is_sharded(routing) ? (int64_t)chunk_map_count(routing->collection->map)
                                            : 1);
    build_by_shard(ctx, calls);
}

static ErrCode coll_stats_of(void *arg, Routing *routing, Error *err) {
    (void)arg;
    ReadPreference preference;
    TRY(read_preference_of(routing->ctx, &preference, err));
    CLEANUP(shard_calls_done) ShardCalls calls = {0};
    TRY(owners_ask(routing, &preference, &calls, err));
    build_coll_stats(routing, &calls);
    return ERR_OK;
}

static ErrCode coll_stats_run(CommandCtx *ctx, void *arg, Error *err) {
    (void)arg;
    Ns ns;
    TRY(command_ns(ctx, &ns, err));
    return routing_run(ctx, &ns, ROUTING_READS, coll_stats_of, NULL, err);
}

/* ---- dataSize ---- */

static ErrCode data_size_of(void *arg, Routing *routing, Error *err) {
    (void)arg;
    static const char *const SUMS[] = {"size", "numObjects", "millis"};
    ReadPreference preference;
    TRY(read_preference_of(routing->ctx, &preference, err));
    CLEANUP(shard_calls_done) ShardCalls calls = {0};
    TRY(owners_ask_unversioned(routing, &preference, &calls, err));
    build_copied(routing->ctx->reply, &calls.rows[0], "estimate");
    build_sums(routing->ctx->reply, &calls, SUMS, ARRAY_LEN(SUMS));
    bool is_cut = false;
    for (uint32_t i = 0; i < calls.count; i++)
        is_cut |= elem_is_truthy(field_of(&calls.rows[i], "maxReached"));
    if (is_cut)
        build_bool(routing->ctx->reply, "maxReached", true);
    return ERR_OK;
}

static ErrCode data_size_run(CommandCtx *ctx, void *arg, Error *err) {
    (void)arg;
    Ns ns;
    if (ctx->ns_coll.size == 0)
        return error_set(err, ERR_TYPE_MISMATCH, "dataSize needs the name of a collection");
    TRY(ns_parse(ctx->ns_coll, &ns, err));
    /* No shard would say that the table is old. */
    cluster_forget_collection(ctx->service->cluster, &ns);
    return routing_run(ctx, &ns, ROUTING_READS, data_size_of, NULL, err);
}

/* ---- dbStats ---- */

/* Collections of a database may be on all shards; those of the config server are nowhere else. */
static ErrCode all_shards(Routing *routing, const Shard ***ret_shards, uint32_t *ret_count,
                          Error *err) {
    TRY(routing_load_shards(routing, err));
    uint32_t count = routing->shards->count;
    const Shard **shards = ARENA_ARRAY(cmd_arena(routing->ctx), const Shard *, count + 1);
    *ret_shards = shards;
    *ret_count = count;
    if (count == 0 || str_is(ns_db(&routing->ns), "admin") ||
        str_is(ns_db(&routing->ns), "config")) {
        *ret_count = 1;
        return routing_primary(routing, &shards[0], err);
    }
    for (uint32_t i = 0; i < count; i++)
        shards[i] = &routing->shards->rows[i];
    return ERR_OK;
}

static void build_db_stats(CommandCtx *ctx, const ShardCalls *calls) {
    static const char *const COUNTS[] = {"collections", "views", "objects", "indexes"};
    static const char *const BYTES[] = {"dataSize",
                                        "storageSize",
                                        "freeStorageSize",
                                        "indexSize",
                                        "indexFreeStorageSize",
                                        "totalSize",
                                        "totalFreeStorageSize",
                                        "fsUsedSize",
                                        "fsTotalSize"};
    DocBuilder *b = ctx->reply;
    owners_build_raw(ctx, calls);
    build_str(b, "db", ctx->args.db);
    build_sums(b, calls, COUNTS, ARRAY_LEN(COUNTS));
    double objects = sum_of(calls, "objects");
    Elem scale = field_of(&calls->rows[0], "scaleFactor");
    double bytes = sum_of(calls, "dataSize") * (elem_is_number(scale) ? elem_as_f64(scale) : 1);
    build_f64(b, "avgObjSize", objects > 0 ? bytes / objects : 0);
    build_f64_sums(b, calls, BYTES, ARRAY_LEN(BYTES));
    build_copied(b, &calls->rows[0], "scaleFactor");
}

static ErrCode db_stats_of(void *arg, Routing *routing, Error *err) {
    (void)arg;
    ReadPreference preference;
    TRY(read_preference_of(routing->ctx, &preference, err));
    const Shard **shards;
    uint32_t count;
    TRY(all_shards(routing, &shards, &count, err));
    CLEANUP(shard_calls_done) ShardCalls calls = {0};
    TRY(owners_ask_shards(routing, shards, count, &preference, &calls, err));
    build_db_stats(routing->ctx, &calls);
    return ERR_OK;
}

static ErrCode db_stats_run(CommandCtx *ctx, void *arg, Error *err) {
    (void)arg;
    Ns ns;
    TRY(ns_make(ctx->args.db, STR("$cmd"), &ns, err));
    return routing_run(ctx, &ns, ROUTING_READS, db_stats_of, NULL, err);
}

/* ---- validate ---- */

static ErrCode validate_all(void *arg, Routing *routing, Error *err) {
    (void)arg;
    CommandCtx *ctx = routing->ctx;
    CLEANUP(shard_calls_done) ShardCalls calls = {0};
    TRY(owners_ask(routing, /* preference= */ NULL, &calls, err));
    bool is_valid = true;
    for (uint32_t i = 0; i < calls.count; i++)
        is_valid &= elem_is_truthy(field_of(&calls.rows[i], "valid"));
    build_bool(ctx->reply, "valid", is_valid);
    owners_build_raw(ctx, &calls);
    return ERR_OK;
}

static ErrCode validate_run(CommandCtx *ctx, void *arg, Error *err) {
    (void)arg;
    Ns ns;
    TRY(command_ns(ctx, &ns, err));
    return routing_run(ctx, &ns, ROUTING_READS, validate_all, NULL, err);
}

#define STATS_COMMAND(symbol, text, more_flags, function, words, ...)                              \
    const CommandSpec symbol = {.name = text,                                                      \
                                .summary = words,                                                  \
                                .flags = CMD_LOOSE | CMD_READS | (more_flags),                     \
                                .run = (function),                                                 \
                                __VA_ARGS__}
#define READ (CMD_TAKES_READ_CONCERN | CMD_TAKES_SNAPSHOT)

STATS_COMMAND(ROUTER_COLL_STATS, "collStats", READ, coll_stats_run,
              "Shows counts and sizes of a collection on all of its shards.", .alias = "collstats");
STATS_COMMAND(ROUTER_DATA_SIZE, "dataSize", READ, data_size_run,
              "Tells how many bytes of documents a collection holds.", .alias = "datasize");
STATS_COMMAND(ROUTER_DB_STATS, "dbStats", READ, db_stats_run,
              "Shows counts and sizes of a database on all shards.", .alias = "dbstats");
STATS_COMMAND(ROUTER_VALIDATE, "validate", 0, validate_run,
              "Checks a collection and its indexes on all of its shards.");
