#include "sharding/migration/receive.h"

#include <string.h>

#include "base/clock.h"
#include "base/failpoint.h"
#include "repl/repl.h"
#include "sharding/migration/beside.h"
#include "sharding/migration/inserters.h"
#include "sharding/migration/range_writer.h"
#include "sharding/migration/session_history.h"
#include "sharding/range_deletion/range_tasks.h"
#include "sharding/shard/range_scan.h"
#include "sharding/shard/support_index.h"

enum {
    ASK_MS_MAX = 60 * 1000,
    LATE_MAX = 20,            /* digests in a row that were too late for the donor's storage */
    BATCH_DOCS = 1000 * 1000, /* batches end by their size */
    REST_IDS = 100,           /* asked for at once */
};

/* ---- the clone ---- */

/* A find on the donor's primary. */
static Doc build_find(MoveRun *run, const RangeBounds *bounds) {
    const Move *move = &run->move;
    DocBuilder b = doc_builder_in_arena(&run->op->arena);
    build_str(&b, "find", ns_coll(&move->ns));
    build_cstr(&b, "hint", bounds->index);
    build_doc(&b, "min", bounds->min);
    if (doc_is_present(bounds->max))
        build_doc(&b, "max", bounds->max);
    build_i64(&b, "batchSize", BATCH_DOCS);
    size_t concern = build_open_doc(&b, "readConcern");
    build_cstr(&b, "level", "majority");
    build_timestamp(&b, "afterClusterTime", move->start_ts);
    build_close(&b, concern);
    remote_build_end(run->cluster, &b, ns_db(&move->ns), NULL, ELEM_MISSING);
    return doc_builder_end(&b);
}

static Doc build_get_more(MoveRun *run, int64_t id) {
    DocBuilder b = doc_builder_in_arena(&run->op->arena);
    build_i64(&b, "getMore", id);
    build_str(&b, "collection", ns_coll(&run->move.ns));
    build_i64(&b, "batchSize", BATCH_DOCS);
    remote_build_end(run->cluster, &b, ns_db(&run->move.ns), NULL, ELEM_MISSING);
    return doc_builder_end(&b);
}

static ErrCode find_bounds(MoveRun *run, RangeBounds *ret_bounds, Error *err) {
    const Move *move = &run->move;
    CLEANUP(access_done) CollAccess access = {0};
    TRY(access_read(run->op, &move->ns, &access, err));
    const IndexDesc *index =
        access.coll != NULL ? support_index_find(access.coll, move->key) : NULL;
    if (index == NULL)
        return error_set(err, ERR_INDEX_NOT_FOUND, "%s has no index that begins with its shard key",
                         move->ns.text);
    *ret_bounds = range_bounds(index, move->key, move->min, move->max, &run->op->arena);
    ret_bounds->index = arena_strdup(&run->op->arena, ret_bounds->index);
    return ERR_OK;
}

typedef struct CloneCursor {
    int64_t id;
    Doc batch; /* within the reply */
} CloneCursor;

static ErrCode parse_cursor(Doc reply, CloneCursor *ret_cursor, Error *err) {
    Elem cursor = doc_get_lit(reply, "cursor");
    Elem id = ELEM_MISSING, batch = ELEM_MISSING;
    if (elem_type(cursor) == BT_DOC) {
        id = doc_get_lit(elem_doc(cursor), "id");
        batch = doc_get_lit(elem_doc(cursor), "firstBatch");
        if (!elem_is_present(batch))
            batch = doc_get_lit(elem_doc(cursor), "nextBatch");
    }
    if (elem_type(id) != BT_INT64 || elem_type(batch) != BT_ARRAY)
        return error_set(err, ERR_FAILED_TO_PARSE, "the donor sent a reply without a cursor");
    *ret_cursor = (CloneCursor){elem_i64(id), elem_doc(batch)};
    return ERR_OK;
}

static void add_cloned(Receiving *receiving, void *arg) {
    const InsertedCounts *counts = arg;
    receiving->cloned += counts->docs;
    receiving->cloned_bytes += counts->bytes;
}

static ReplWriteConcern throttle_of(const Move *move) {
    ReplWriteConcern concern = {.kind = REPL_W_NUMBER, .number = 2};
    Elem w = doc_is_present(move->throttle) ? doc_get_lit(move->throttle, "w") : ELEM_MISSING;
    if (elem_is_number(w))
        concern.number = (int32_t)elem_as_i64(w);
    else if (elem_type(w) == BT_STRING && str_is(elem_str(w), "majority"))
        concern.kind = REPL_W_MAJORITY;
    else if (elem_type(w) == BT_STRING)
        concern = (ReplWriteConcern){.kind = REPL_W_MODE, .mode = elem_str(w)};
    return concern;
}

static ErrCode wait_for_throttle(MoveRun *run, Error *err) {
    const Move *move = &run->move;
    bool is_given = doc_is_present(move->throttle);
    ReplWriteConcern concern = throttle_of(move);
    Elem timeout = is_given ? doc_get_lit(move->throttle, "wtimeout") : ELEM_MISSING;
    int64_t ms_max = elem_is_number(timeout) ? elem_as_i64(timeout) : 0;
    bool is_journaled = is_given && elem_is_truthy(doc_get_lit(move->throttle, "j"));
    ErrCode rc = repl_wait_write_concern(
        run->op->service->repl, run->op, &concern, is_journaled, run->op->last_optime,
        clock_deadline_ms(ms_max > 0 && ms_max < ASK_MS_MAX ? ms_max : ASK_MS_MAX), err);
    if (is_given || rc != ERR_UNSATISFIABLE_WRITE_CONCERN)
        return rc;
    error_reset(err); /* there is no secondary that it could hurt */
    return ERR_OK;
}

static ErrCode take_batch(MoveRun *run, Doc batch, Error *err) {
    MigrationStats *stats = &run->migrations->stats;
    InsertedCounts counts;
    TRY(insert_batch(run, batch, &counts, err));
    atomic_fetch_add(&stats->docs_cloned_on_recipient, counts.docs);
    atomic_fetch_add(&stats->bytes_cloned_on_recipient, counts.bytes);
    migrations_change(run->migrations, add_cloned, &counts);
    TRY(range_task_set_orphans(run->op, &run->move.id, migrations_receiving(run->migrations).cloned,
                               err));
    failpoint_hit(FP_MIG_R_CLONE_BATCH_APPLIED);
    return run->move.is_throttled ? wait_for_throttle(run, err) : ERR_OK;
}

/* The donor reads the next batch while this one is written. */
static ErrCode take_batches(MoveRun *run, ClientCalls *calls, const char *host, ClientReply *reply,
                            Error *err) {
    for (;;) {
        CloneCursor cursor = {0};
        TRY(parse_cursor(reply->body, &cursor, err));
        ArenaMark mark = arena_mark(&run->op->arena);
        if (cursor.id != 0) {
            ClientCommand more = {.body = build_get_more(run, cursor.id)};
            (void)client_calls_add(calls, host, &more, clock_deadline_ms(ASK_MS_MAX), NULL);
        }
        TRY(take_batch(run, cursor.batch, err));
        if (cursor.id == 0)
            return ERR_OK;
        for (;;) {
            ClientCallEnd end;
            bool is_there;
            TRY(client_calls_next(calls, INT64_MAX, &end, &is_there, err));
            if (!is_there)
                continue;
            client_calls_take(calls, reply, err);
            if (end.rc != ERR_OK)
                return end.rc;
            break;
        }
        arena_rewind(&run->op->arena, mark);
    }
}

ErrCode receive_clone(MoveRun *run, Error *err) {
    static const ReadPreference PRIMARY = READ_PREFERENCE_PRIMARY;
    CLEANUP(op_mode_restore) OpModeScope scope = op_mode_scope(run->op);
    run->op->mode.is_from_migrate = true;
    run->op->mode.is_validation_bypassed = true;
    const Shard *donor;
    RangeBounds bounds = {0};
    char host[SET_HOST_SIZE];
    TRY(move_run_shard(run, run->move.from, &donor, err));
    TRY(find_bounds(run, &bounds, err));
    TRY(set_select(donor->set, run->op, &PRIMARY, host, err));
    CLEANUP(client_reply_done) ClientReply reply = {0};
    ClientCommand find = {.body = build_find(run, &bounds)};
    ErrCode rc = client_run(run->op->service->clients, run->op, host, &find,
                            clock_deadline_ms(ASK_MS_MAX), &reply, err);
    if (rc != ERR_OK) {
        set_note_failure(donor->set, host, rc);
        return rc;
    }
    ClientCalls *calls = client_calls_new(run->op->service->clients, run->op);
    rc = take_batches(run, calls, host, &reply, err);
    client_calls_free(calls);
    return rc;
}

/* ---- modifications ---- */

static ErrCode ask_modifications(MoveRun *run, uint64_t after_ts, uint64_t until_ts, Doc ids,
                                 ClientReply *reply, Error *err) {
    DocBuilder b = doc_builder_in_arena(&run->op->arena);
    build_str(&b, "_transferMods", ns_str(&run->move.ns));
    build_uuid(&b, "migrationId", &run->move.id);
    build_timestamp(&b, "after", after_ts);
    if (until_ts != 0)
        build_timestamp(&b, "until", until_ts);
    if (doc_is_present(ids))
        build_array(&b, "ids", ids);
    return move_run_ask(run, run->move.from, &b, ASK_MS_MAX, reply, err);
}

static ErrCode apply(RangeWriter *writer, Doc reply, int64_t *count, Error *err) {
    static const char *const LISTS[] = {"deleted", "reload"};
    for (size_t i = 0; i < ARRAY_LEN(LISTS); i++) {
        Elem list = doc_get(reply, str_from(LISTS[i]));
        if (elem_type(list) != BT_ARRAY)
            return error_set(err, ERR_FAILED_TO_PARSE, "the donor sent no \"%s\"", LISTS[i]);
        DocIter iter = doc_iter(elem_doc(list));
        for (Elem row; doc_iter_next(&iter, &row);) {
            if (elem_type(row) != BT_DOC)
                continue;
            Doc doc = elem_doc(row);
            TRY(range_writer_put(writer, doc_get_lit(doc, "_id"), i == 0 ? DOC_NONE : doc, err));
            *count += 1;
        }
    }
    return ERR_OK;
}

static Doc rest_of(Doc reply) {
    Elem rest = doc_get_lit(reply, "rest");
    return elem_type(rest) == BT_ARRAY ? elem_doc(rest) : DOC_EMPTY;
}

/* The first of the ids, and what is left of them. */
static Doc take_ids(Doc list, uint32_t count, Arena *arena, Doc *ret_left) {
    DocBuilder taken = doc_builder_in_arena(arena), left = doc_builder_in_arena(arena);
    DocIter iter = doc_iter(list);
    uint32_t i = 0;
    for (Elem row; doc_iter_next(&iter, &row); i++) {
        char name[INDEX_NAME_SIZE];
        bool is_taken = i < count;
        build_elem_as(is_taken ? &taken : &left, index_name(is_taken ? i : i - count, name), row);
    }
    *ret_left = doc_builder_end(&left);
    return doc_builder_end(&taken);
}

/* Documents for which an answer had no room, asked for by their ids. */
static ErrCode receive_rest(MoveRun *run, RangeWriter *writer, uint64_t after_ts, Doc first,
                            int64_t *count, Error *err) {
    Doc left = doc_copy(rest_of(first), &run->op->arena);
    while (!doc_is_empty(left)) {
        CLEANUP(client_reply_done) ClientReply reply = {0};
        Doc ids = take_ids(left, REST_IDS, &run->op->arena, &left);
        while (!doc_is_empty(ids)) {
            TRY(ask_modifications(run, after_ts, 0, ids, &reply, err));
            TRY(apply(writer, reply.body, count, err));
            ids = doc_copy(rest_of(reply.body), &run->op->arena);
        }
    }
    return ERR_OK;
}

static ErrCode receive_round(MoveRun *run, RangeWriter *writer, uint64_t *after_ts,
                             uint64_t until_ts, int64_t *count, Error *err) {
    CLEANUP(client_reply_done) ClientReply reply = {0};
    TRY(ask_modifications(run, *after_ts, until_ts, DOC_NONE, &reply, err));
    TRY(apply(writer, reply.body, count, err));
    TRY(session_history_record(run->op, reply.body, err));
    Elem up_to = doc_get_lit(reply.body, "upTo");
    if (elem_type(up_to) != BT_TIMESTAMP)
        return error_set(err, ERR_FAILED_TO_PARSE, "the donor did not tell how far it has read");
    uint64_t next_ts = (uint64_t)elem_i64(up_to);
    TRY(receive_rest(run, writer, *after_ts, reply.body, count, err));
    *after_ts = next_ts;
    return ERR_OK;
}

static void add_documents(Receiving *receiving, void *arg) {
    receiving->documents += *(int64_t *)arg;
}

ErrCode receive_modifications(MoveRun *run, uint64_t *after_ts, uint64_t until_ts,
                              int64_t *ret_count, Error *err) {
    CLEANUP(op_mode_restore) OpModeScope scope = op_mode_scope(run->op);
    run->op->mode.is_from_migrate = true;
    run->op->mode.is_validation_bypassed = true;
    *ret_count = 0;
    RangeWriter writer;
    range_writer_init(&writer, run->op, &run->move);
    ErrCode rc = ERR_OK;
    do {
        ArenaMark mark = arena_mark(&run->op->arena);
        rc = receive_round(run, &writer, after_ts, until_ts, ret_count, err);
        arena_rewind(&run->op->arena, mark);
    } while (rc == ERR_OK && *after_ts < until_ts);
    migrations_change(run->migrations, add_documents, &writer.more);
    range_writer_done(&writer);
    return rc;
}

/* ---- verification ---- */

static int64_t number(Doc doc, const char *name) {
    Elem value = doc_get(doc, str_from(name));
    return elem_is_number(value) ? elem_as_i64(value) : -1;
}

static void set_documents(Receiving *receiving, void *arg) {
    receiving->documents = *(int64_t *)arg;
}

static ErrCode refuse_digest(MoveRun *run, const RangeDigest *here, const RangeDigest *there,
                             Error *err) {
    atomic_fetch_add(&run->migrations->stats.digest_mismatches, 1);
    return error_set(
        err, ERR_OPERATION_FAILED,
        "the move is given up: of a part of the range the donor has %lld documents (%lld bytes), "
        "this shard has got %lld (%lld bytes)%s",
        (long long)there->count, (long long)there->bytes, (long long)here->count,
        (long long)here->bytes,
        here->count == there->count && here->bytes == there->bytes ? ", with other contents" : "");
}

static ErrCode ask_digest(MoveRun *run, Doc from, uint64_t at_ts, RangeDigest *ret_digest,
                          Doc *ret_next, Error *err) {
    const Move *move = &run->move;
    DocBuilder b = doc_builder_in_arena(&run->op->arena);
    build_str(&b, "_migrationDigest", ns_str(&move->ns));
    build_uuid(&b, "migrationId", &move->id);
    build_doc(&b, "from", from);
    build_timestamp(&b, "at", at_ts);
    CLEANUP(client_reply_done) ClientReply reply = {0};
    TRY(move_run_ask(run, move->from, &b, ASK_MS_MAX, &reply, err));
    *ret_digest = (RangeDigest){.count = number(reply.body, "count"),
                                .bytes = number(reply.body, "bytes"),
                                .sum = (uint64_t)number(reply.body, "sum")};
    Elem next = doc_get_lit(reply.body, "next");
    *ret_next = elem_type(next) == BT_DOC ? doc_copy(elem_doc(next), &run->op->arena) : DOC_NONE;
    return ERR_OK;
}

/* The same part here, while the donor reads it. */
typedef struct PartHere {
    const Move *move;
    Doc from;
    RangeDigest digest;
    Doc next;
} PartHere;

static ErrCode digest_here(void *arg, OpCtx *op, Error *err) {
    PartHere *part = arg;
    return range_digest_part(op, part->move, part->from, /* at_ts= */ 0, &part->digest, &part->next,
                             err);
}

/* Both of them, at once: nothing is written here meanwhile. */
static ErrCode read_part(MoveRun *run, Doc from, uint64_t at_ts, RangeDigest *ret_there,
                         RangeDigest *ret_here, Doc *ret_next, Error *err) {
    PartHere part = {.move = &run->move, .from = from};
    CLEANUP(beside_done) Beside beside = {0};
    beside_start(&beside, run, digest_here, &part);
    TRY(ask_digest(run, from, at_ts, ret_there, ret_next, err));
    TRY(beside_join(&beside, err));
    *ret_here = part.digest;
    /* Equal documents come to an end at the same key; others have other digests, in all likelihood.
     */
    bool is_end = !doc_is_present(part.next);
    if (is_end != !doc_is_present(*ret_next) ||
        (!is_end && shard_key_compare(part.next, *ret_next) != 0))
        return refuse_digest(run, ret_here, ret_there, err);
    return ERR_OK;
}

ErrCode receive_verify(MoveRun *run, uint64_t at_ts, Verification *verification, Error *err) {
    const Move *move = &run->move;
    Doc from = doc_is_present(verification->from) ? verification->from : move->min;
    RangeDigest here, there;
    Doc next;
    ErrCode rc = read_part(run, from, at_ts, &there, &here, &next, err);
    if (rc == ERR_SNAPSHOT_TOO_OLD) {
        error_reset(err); /* a busy machine: the same part again, as of a later time */
        if (++verification->late_count < LATE_MAX)
            return ERR_OK;
        return error_set(err, ERR_OPERATION_FAILED,
                         "the range cannot be compared with the donor's: its storage keeps the "
                         "past for too short a time (minSnapshotHistoryWindowInSeconds)");
    }
    TRY(rc);
    if (!range_digest_equal(&here, &there))
        return refuse_digest(run, &here, &there, err);
    verification->count += here.count;
    verification->from = next;
    verification->late_count = 0;
    verification->is_over = !doc_is_present(next);
    if (!verification->is_over)
        return ERR_OK;
    migrations_change(run->migrations, set_documents, &verification->count);
    return range_task_set_orphans(run->op, &move->id, verification->count, err);
}
