#include "sharding/route/remote.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"

enum {
    CONFIG_MS_MAX = 30 * 1000,
};

void remote_build_end(Cluster *cluster, DocBuilder *b, Str db, const ReadPreference *preference,
                      Elem cluster_time) {
    build_str(b, "$db", db);
    if (preference != NULL && preference->mode != READ_MODE_PRIMARY)
        read_preference_build(b, "$readPreference", preference);
    cluster_build_cluster_time(cluster, b, cluster_time);
    build_timestamp(b, "$configTime", cluster_config_time(cluster));
}

/* A connection that breaks does not tell whether the request was executed. */
bool remote_is_repeatable(RemoteRetry retry, ErrCode code) {
    bool is_unsent = code == ERR_HOST_NOT_FOUND || code == ERR_POOLED_CONNECTIONS_DROPPED;
    return is_unsent || (retry == REMOTE_IDEMPOTENT &&
                         (client_is_network_error(code) || error_is_of_state(code)));
}

static bool is_repeatable(const RemoteRequest *request, ErrCode code) {
    return request->host == NULL && remote_is_repeatable(request->retry, code);
}

ErrCode remote_run(Cluster *cluster, OpCtx *op, const RemoteRequest *request, ClientReply *reply,
                   char *ret_host, Error *err) {
    static const ReadPreference PRIMARY = READ_PREFERENCE_PRIMARY;
    const ReadPreference *preference = request->preference != NULL ? request->preference : &PRIMARY;
    WatchedSet *set = request->shard->set;
    ClientCommand command = {
        .body = request->body,
        .sequences = request->sequences,
        .sequence_count = request->sequence_count,
    };
    ErrCode rc = ERR_OK;
    for (int attempt = 0; attempt < REMOTE_ATTEMPTS_MAX; attempt++) {
        error_reset(err);
        char host[SET_HOST_SIZE];
        if (request->host != NULL)
            snprintf(host, sizeof(host), "%s", request->host);
        else
            TRY(set_select(set, op, preference, host, err));
        rc = client_run(op->service->clients, op, host, &command, request->deadline_us, reply, err);
        if (doc_is_present(reply->body))
            cluster_learn_times(cluster, reply->body);
        if (ret_host != NULL)
            memcpy(ret_host, host, sizeof(host));
        if (LIKELY(rc == ERR_OK))
            return ERR_OK;
        set_note_failure(set, host, rc);
        if (!is_repeatable(request, rc) || clock_mono_us() >= request->deadline_us)
            return rc;
    }
    return rc;
}

/* ---- the config server ---- */

ErrCode config_run(Cluster *cluster, OpCtx *op, DocBuilder *b, ClientReply *reply, Error *err) {
    size_t concern = build_open_doc(b, "writeConcern");
    build_cstr(b, "w", "majority");
    build_close(b, concern);
    remote_build_end(cluster, b, STR("admin"), NULL, ELEM_MISSING);
    RemoteRequest request = {
        .shard = cluster_config_shard(cluster),
        .body = doc_builder_end(b),
        .retry = REMOTE_IDEMPOTENT,
        .deadline_us = clock_deadline_ms(CONFIG_MS_MAX),
    };
    TRY(remote_run(cluster, op, &request, reply, NULL, err));
    return client_check_writes(reply->body, err);
}

/* {find | getMore ...} with what every read of metadata needs. */
static Doc end_config_read(Cluster *cluster, const ConfigQuery *query, DocBuilder *b,
                           bool is_first) {
    static const ReadPreference NEAREST = {.mode = READ_MODE_NEAREST};
    if (is_first) {
        size_t concern = build_open_doc(b, "readConcern");
        build_cstr(b, "level", "majority");
        uint64_t ts = cluster_config_time(cluster);
        if (ts != 0)
            build_timestamp(b, "afterClusterTime", ts);
        build_close(b, concern);
    }
    remote_build_end(cluster, b, str_from(query->db != NULL ? query->db : "config"), &NEAREST,
                     ELEM_MISSING);
    return doc_builder_end(b);
}

typedef struct ConfigReader {
    const ConfigQuery *query;
    ClusterVisit visit;
    void *arg;
    uint32_t count;
} ConfigReader;

static ErrCode take_batch(ConfigReader *reader, Elem cursor, int64_t *ret_id, Error *err) {
    Elem batch = ELEM_MISSING, id = ELEM_MISSING;
    if (elem_type(cursor) == BT_DOC) {
        batch = doc_get_lit(elem_doc(cursor), "firstBatch");
        if (!elem_is_present(batch))
            batch = doc_get_lit(elem_doc(cursor), "nextBatch");
        id = doc_get_lit(elem_doc(cursor), "id");
    }
    if (elem_type(batch) != BT_ARRAY || elem_type(id) != BT_INT64)
        return error_set(err, ERR_FAILED_TO_PARSE,
                         "the config server sent a reply without a cursor");
    uint32_t count_max = reader->query->count_max;
    DocIter iter = doc_iter(elem_doc(batch));
    for (Elem row; doc_iter_next(&iter, &row);) {
        if (elem_type(row) != BT_DOC || (count_max != 0 && reader->count == count_max))
            return error_set(err, ERR_EXCEEDED_MEMORY_LIMIT,
                             "%s of the config server has more than %u documents for one request",
                             reader->query->coll, count_max);
        reader->count++;
        TRY(reader->visit(reader->arg, elem_doc(row), err));
    }
    *ret_id = elem_i64(id);
    return ERR_OK;
}

/* The collections of a database have names from "db." to before "db/". */
Doc config_filter_scope(Str scope, Arena *arena) {
    if (scope.size == 0)
        return DOC_EMPTY;
    DocBuilder b = doc_builder_in_arena(arena);
    if (str_has_char(scope, '.')) {
        build_str(&b, "_id", scope);
        return doc_builder_end(&b);
    }
    size_t id = build_open_doc(&b, "_id");
    build_cstr(&b, "$gte", arena_printf(arena, "%.*s.", (int)scope.size, scope.data));
    build_cstr(&b, "$lt", arena_printf(arena, "%.*s/", (int)scope.size, scope.data));
    build_close(&b, id);
    return doc_builder_end(&b);
}

/* The commands are built in `arena`: a long read would fill that of the operation. */
static Doc build_config_find(Cluster *cluster, const ConfigQuery *query, Arena *arena) {
    DocBuilder b = doc_builder_in_arena(arena);
    build_cstr(&b, "find", query->coll);
    build_doc(&b, "filter", query->filter);
    if (doc_is_present(query->sort))
        build_doc(&b, "sort", query->sort);
    if (query->limit != 0) {
        build_i64(&b, "limit", query->limit);
        build_bool(&b, "singleBatch", true);
    }
    return end_config_read(cluster, query, &b, /* is_first= */ true);
}

static Doc build_config_more(Cluster *cluster, const ConfigQuery *query, int64_t id, Arena *arena) {
    DocBuilder b = doc_builder_in_arena(arena);
    build_i64(&b, "getMore", id);
    build_cstr(&b, "collection", query->coll);
    return end_config_read(cluster, query, &b, /* is_first= */ false);
}

ErrCode config_each(Cluster *cluster, OpCtx *op, const ConfigQuery *query, ClusterVisit visit,
                    void *arg, Error *err) {
    static const ReadPreference NEAREST = {.mode = READ_MODE_NEAREST};
    if (cluster_local_find(cluster) != NULL)
        return cluster_local_find(cluster)(op, query, visit, arg, err);
    ConfigReader reader = {.query = query, .visit = visit, .arg = arg};
    CLEANUP(arena_done) Arena arena;
    arena_init(&arena, 1024);
    RemoteRequest request = {
        .shard = cluster_config_shard(cluster),
        .preference = &NEAREST,
        .body = build_config_find(cluster, query, &arena),
        .retry = REMOTE_IDEMPOTENT,
        .deadline_us = clock_deadline_ms(CONFIG_MS_MAX),
    };
    CLEANUP(client_reply_done) ClientReply reply = {0};
    char host[SET_HOST_SIZE];
    TRY(remote_run(cluster, op, &request, &reply, host, err));
    int64_t id;
    TRY(take_batch(&reader, doc_get_lit(reply.body, "cursor"), &id, err));
    while (id != 0) {
        arena_reset(&arena);
        request.body = build_config_more(cluster, query, id, &arena);
        request.host = host;
        request.deadline_us = clock_deadline_ms(CONFIG_MS_MAX);
        TRY(remote_run(cluster, op, &request, &reply, NULL, err));
        TRY(take_batch(&reader, doc_get_lit(reply.body, "cursor"), &id, err));
    }
    return ERR_OK;
}

typedef struct FoundDocs {
    OpCtx *op;
    Doc *docs;
    uint32_t count;
} FoundDocs;

static ErrCode add_found(void *arg, Doc doc, Error *err) {
    (void)err;
    FoundDocs *found = arg;
    found->docs[found->count++] = doc_copy(doc, &found->op->arena);
    return ERR_OK;
}

ErrCode config_find(Cluster *cluster, OpCtx *op, const ConfigQuery *query, Doc **ret_docs,
                    uint32_t *ret_count, Error *err) {
    invariant(query->count_max > 0);
    FoundDocs found = {.op = op, .docs = ARENA_ARRAY(&op->arena, Doc, query->count_max)};
    TRY(config_each(cluster, op, query, add_found, &found, err));
    *ret_docs = found.docs;
    *ret_count = found.count;
    return ERR_OK;
}
