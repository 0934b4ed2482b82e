#include "sharding/migration/donor.h"

#include "base/clock.h"
#include "base/failpoint.h"
#include "base/hash.h"
#include "base/log.h"
#include "bson/json.h"
#include "catalog/access.h"
#include "query/write/own_docs.h"
#include "repl/repl.h"
#include "repl/oplog/oplog.h"
#include "sharding/range_deletion/range_deleter.h"
#include "sharding/range_deletion/range_tasks.h"
#include "sharding/shard/critical_section.h"
#include "sharding/shard/range_scan.h"
#include "sharding/shard/support_index.h"
#include "storage/engine.h"
#include "storage/record_store.h"

#define DONORS_TEXT "config.migrationCoordinators"
static const Ns DONORS_NS = {.size = sizeof(DONORS_TEXT) - 1, .db_size = 6, .text = DONORS_TEXT};

enum {
    ASK_MS_MAX = 60 * 1000,
    STATUS_WAIT_MS = 1000,
    STATUS_MS_MAX = 10 * 1000,
    COMMIT_MS_MAX = 10 * 1000, /* its own limit is lower */
    CHUNK_BYTES_DEFAULT = 128 << 20,
    DOCS_MAX_WITHOUT_STATS = 250001,
    REASON_BYTES_MAX = 4096, /* of a result: messages may show keys */
};

static ErrCode refused(const char *why, Error *err) {
    return error_set(err, ERR_CONFLICTING_OPERATION_IN_PROGRESS, "could not move the range: %s",
                     why);
}

/* ---- choosing the range ---- */

static Doc doc_field(Doc doc, const char *name) {
    Elem field = doc_get(doc, str_from(name));
    return elem_type(field) == BT_DOC ? elem_doc(field) : DOC_NONE;
}

static ChunkAt find_at(const ChunkMap *map, Doc bound, bool is_below) {
    KeyBuilder kb;
    key_builder_init(&kb);
    shard_key_encode(bound, &kb);
    Str key = {(const char *)kb.key.data, kb.key.size};
    ChunkAt at = is_below ? chunk_map_find_below(map, key) : chunk_map_find(map, key);
    key_builder_done(&kb);
    return at;
}

/* Documents are counted, by their keys, and taken to be of average size. */
typedef struct Average {
    int64_t chunk_docs; /* how many make a chunk */
    int64_t docs_max;   /* how many may move at once: twice as many */
} Average;

static Average average_of(const Collection *coll, int64_t chunk_bytes) {
    int64_t count = record_store_count(coll->records);
    int64_t bytes = record_store_data_size(coll->records);
    if (count <= 0 || bytes <= 0)
        return (Average){DOCS_MAX_WITHOUT_STATS / 2, DOCS_MAX_WITHOUT_STATS};
    int64_t size = bytes / count > 0 ? bytes / count : 1;
    return (Average){chunk_bytes / size, 2 * (chunk_bytes / size) + 1};
}

/* What was found in a range that is to move. */
typedef struct Measured {
    Doc cut; /* where about a chunk of it ends, or begins; DOC_NONE: it is all, or one key */
    int64_t cut_count; /* documents on this side of the cut */
    int64_t count;     /* of all of it, at least */
    bool is_too_big;   /* to be moved at once: all of it, or the one key */
} Measured;

static ErrCode open_range(MoveRun *run, RangeScan *ret_scan, Error *err) {
    const Move *move = &run->move;
    return range_scan_open_keys(run->op, &move->ns, &move->uuid, move->key, move->min, move->max,
                                ret_scan, err);
}

/* From the lower end: the cut is behind at least one key that has documents. */
static ErrCode measure(MoveRun *run, int64_t chunk_bytes, Measured *ret_measured, Error *err) {
    Arena *arena = &run->op->arena;
    CLEANUP(range_scan_done) RangeScan scan = {0};
    TRY(open_range(run, &scan, err));
    Average average = average_of(scan.access.coll, chunk_bytes);
    Doc first = DOC_NONE, key;
    Measured measured = {0};
    for (;;) {
        bool is_found;
        Doc doc;
        TRY(range_scan_next(&scan, &is_found, &doc, err));
        if (!is_found) {
            measured.cut = DOC_NONE; /* it is all of it after all */
            break;
        }
        if (!doc_is_present(first) && shard_key_extract(run->move.key, doc, arena, &key))
            first = key;
        if (!doc_is_present(measured.cut) && measured.count >= average.chunk_docs &&
            shard_key_extract(run->move.key, doc, arena, &key) &&
            shard_key_compare(key, first) > 0) {
            measured.cut = key;
            measured.cut_count = measured.count;
        }
        measured.is_too_big = ++measured.count > average.docs_max;
        if (measured.is_too_big)
            break;
    }
    *ret_measured = measured;
    return ERR_OK;
}

static ErrCode measure_all(MoveRun *run, int64_t chunk_bytes, int64_t *ret_count,
                           Average *ret_average, Error *err) {
    CLEANUP(range_scan_done) RangeScan scan = {0};
    TRY(open_range(run, &scan, err));
    *ret_average = average_of(scan.access.coll, chunk_bytes);
    for (*ret_count = 0;; *ret_count += 1) {
        bool is_found;
        Doc doc;
        TRY(range_scan_next(&scan, &is_found, &doc, err));
        if (!is_found)
            return ERR_OK;
    }
}

/* From the upper end, for a range of which only that was given: the cut is the first key behind
 * which no more than a chunk is left, or the last key of all. Reads the range twice. */
static ErrCode measure_end(MoveRun *run, int64_t chunk_bytes, Measured *ret_measured, Error *err) {
    Average average;
    Measured measured = {0};
    TRY(measure_all(run, chunk_bytes, &measured.count, &average, err));
    *ret_measured = measured;
    if (measured.count <= average.docs_max)
        return ERR_OK;
    CLEANUP(range_scan_done) RangeScan scan = {0};
    TRY(open_range(run, &scan, err));
    CLEANUP(arena_done) Arena keys = {0};
    Doc last = DOC_NONE;
    int64_t behind = measured.count;
    for (int64_t count = measured.count;; count--) {
        bool is_found;
        Doc doc, key;
        TRY(range_scan_next(&scan, &is_found, &doc, err));
        ArenaMark mark = arena_mark(&keys);
        if (!is_found || !shard_key_extract(run->move.key, doc, &keys, &key))
            break;
        bool is_new = !doc_is_present(last) || shard_key_compare(key, last) != 0;
        if (is_new) { /* alone in its memory: there may be very many of them */
            arena_reset(&keys);
            (void)shard_key_extract(run->move.key, doc, &keys, &last);
            behind = count;
        } else {
            arena_rewind(&keys, mark);
        }
        if (is_new && count <= average.chunk_docs)
            break;
    }
    measured.is_too_big = behind > average.docs_max;
    measured.cut_count = behind;
    if (doc_is_present(last) && !measured.is_too_big)
        measured.cut = doc_copy(last, &run->op->arena);
    *ret_measured = measured;
    return ERR_OK;
}

static ErrCode choose_bounds(MoveRun *run, const CollectionRoute *route, Doc min, Doc max,
                             ChunkAt *ret_at, Error *err) {
    const ChunkMap *map = route->map;
    Arena *arena = &run->op->arena;
    Move *move = &run->move;
    if (!doc_is_present(min) && !doc_is_present(max))
        return error_set(err, ERR_INVALID_OPTIONS, "a move needs 'min' or 'max'");
    if (doc_is_present(min))
        TRY(shard_key_check_bound(chunk_map_key(map), min, "'min'", err));
    if (doc_is_present(max))
        TRY(shard_key_check_bound(chunk_map_key(map), max, "'max'", err));
    *ret_at = doc_is_present(min) ? find_at(map, min, false) : find_at(map, max, true);
    Doc low = chunk_map_min(map, *ret_at, arena), high = chunk_map_max(map, *ret_at, arena);
    move->min = doc_is_present(min) ? min : low;
    move->max = doc_is_present(max) ? max : high;
    if (shard_key_compare(move->min, move->max) >= 0)
        return error_set(err, ERR_INVALID_OPTIONS, "'min' has to be below 'max'");
    if (shard_key_compare(move->max, high) > 0)
        return error_set(err, ERR_COMMAND_FAILED,
                         "the range from %s to %s is not inside of one chunk",
                         shell_text_of_doc(move->min, arena), shell_text_of_doc(move->max, arena));
    return ERR_OK;
}

static ErrCode check_route(const MoveRun *run, const CollectionRoute *route, Error *err) {
    Doc request = task_request(run->task);
    if (route->map == NULL)
        return error_set(err, ERR_NAMESPACE_NOT_SHARDED, "the collection %s is not sharded",
                         route->ns.text);
    if (!route->allows_migrations)
        return refused("chunks of the collection must not move at the moment", err);
    Elem epoch = doc_get_lit(request, "epoch");
    ChunkVersion version = chunk_map_version(route->map);
    if (elem_type(epoch) == BT_OID && memcmp(elem_oid(epoch), &version.epoch, sizeof(Oid)) != 0)
        return error_set(err, ERR_STALE_EPOCH, "the collection %s was dropped or sharded anew",
                         route->ns.text);
    return ERR_OK;
}

/* All that decides what is moved; *ret_is_there: the recipient has it already. *ret_count: about
 * how many documents; 0: not known. */
static ErrCode choose(MoveRun *run, CollectionRoute *route, bool *ret_is_there, int64_t *ret_count,
                      Error *err) {
    Doc request = task_request(run->task);
    Move *move = &run->move;
    TRY(check_route(run, route, err));
    ChunkAt at;
    move->key = shard_key_ref(chunk_map_key(route->map));
    move->uuid = route->uuid;
    TRY(choose_bounds(run, route, doc_field(request, "min"), doc_field(request, "max"), &at, err));
    Str owner = chunk_map_shard_name(route->map, chunk_map_owner(route->map, at));
    *ret_is_there = str_equal(owner, move->to);
    if (*ret_is_there)
        return ERR_OK;
    if (!str_is(owner, run->self))
        return error_set(err, ERR_STALE_CONFIG, "the range from %s belongs to the shard \"%.*s\"",
                         shell_text_of_doc(move->min, &run->op->arena), (int)owner.size,
                         owner.data);
    move->version = chunk_map_version(route->map);
    chunk_version_set_number(&move->version, chunk_map_chunk_version(route->map, at));
    const Shard *to;
    TRY(move_run_shard(run, move->to, &to, err));
    Elem bytes = doc_get_lit(request, "maxChunkSizeBytes");
    int64_t chunk_bytes =
        elem_is_number(bytes) && elem_as_i64(bytes) > 0 ? elem_as_i64(bytes) : CHUNK_BYTES_DEFAULT;
    bool has_min = doc_is_present(doc_field(request, "min"));
    bool has_max = doc_is_present(doc_field(request, "max"));
    Measured measured = {0};
    TRY(has_min ? measure(run, chunk_bytes, &measured, err)
                : measure_end(run, chunk_bytes, &measured, err));
    bool is_cut = doc_is_present(measured.cut) && !(has_min && has_max);
    *ret_count = is_cut ? measured.cut_count : measured.is_too_big ? 0 : measured.count;
    if (!has_max && is_cut)
        move->max = measured.cut;
    else if (!has_min && is_cut)
        move->min = measured.cut;
    else if (measured.is_too_big && !elem_is_truthy(doc_get_lit(request, "forceJumbo")))
        return error_set(err, ERR_CHUNK_TOO_BIG,
                         "the range from %s has too many documents to be moved at once: split it, "
                         "or give forceJumbo",
                         shell_text_of_doc(move->min, &run->op->arena));
    return ERR_OK;
}

static int64_t number_of(Doc doc, const char *path) {
    Elem value = doc_get_path(doc, path);
    return elem_is_number(value) ? elem_as_i64(value) : 0;
}

/* What the task stores, beside its request: {move, counted, definitionHash, documents, recipient},
 * and for operators what MongoDB's document of a migration says. */
typedef struct DonorFields {
    int64_t counted;         /* documents of the range when it began; 0: not known */
    int64_t definition_hash; /* of the collection, when the recipient was told */
    int64_t documents;       /* of the range, as the recipient counts them */
    Doc told;                /* by the recipient, of its part: {counts, steps}; DOC_NONE: nothing */
} DonorFields;

static DonorFields fields_of(const MoveRun *run) {
    Doc doc = task_doc(run->task);
    return (DonorFields){.counted = number_of(doc, "counted"),
                         .definition_hash = number_of(doc, "definitionHash"),
                         .documents = number_of(doc, "documents"),
                         .told = doc_field(doc, "recipient")};
}

static void build_fields(MoveRun *run, const DonorFields *fields, DocBuilder *b) {
    size_t move = build_open_doc(b, "move");
    move_build(b, &run->move);
    build_close(b, move);
    move_build_shown(b, &run->move);
    build_i64(b, "counted", fields->counted);
    build_i64(b, "definitionHash", fields->definition_hash);
    build_i64(b, "documents", fields->documents);
    if (doc_is_present(fields->told))
        build_doc(b, "recipient", fields->told);
}

static void set_fields(MoveRun *run, DonorFields fields) {
    DocBuilder b = doc_builder_in_arena(&run->op->arena);
    build_fields(run, &fields, &b);
    task_set_fields(run->task, doc_builder_end(&b));
}

static ErrCode choose_step(MoveRun *run, StepAnswer *answer, Error *err) {
    Doc request = task_request(run->task);
    Move *move = &run->move;
    Elem ns = doc_get_lit(request, "ns"), to = doc_get_lit(request, "toShard");
    TRY(ns_parse(elem_str(ns), &move->ns, err));
    move->id = uuid_new();
    move->from = str_from(run->self);
    move->to = elem_str(to);
    move->waits_for_delete = elem_is_truthy(doc_get_lit(request, "waitForDelete"));
    move->is_throttled = elem_is_truthy(doc_get_lit(request, "secondaryThrottle"));
    move->throttle = doc_field(request, "throttleConcern");
    TRY(section_check_free(run->op, &move->ns, err));
    CLEANUP(collection_route_done) CollectionRoute *route = NULL;
    TRY(move_run_route(run, &route, err));
    bool is_there;
    int64_t count = 0;
    TRY(choose(run, route, &is_there, &count, err));
    if (is_there) {
        *answer = STEP_OTHERWISE;
        return ERR_OK;
    }
    /* What is not majority-committed yet comes after it. */
    move->start_ts = storage_majority_ts(run->op->service->storage);
    set_fields(run, (DonorFields){.counted = count});
    return ERR_OK;
}

/* ---- before the first document ---- */

typedef struct Definition {
    Doc options;
    Doc indexes;
    uint64_t hash; /* of both */
} Definition;

static ErrCode read_definition(MoveRun *run, Definition *ret_definition, Error *err) {
    CLEANUP(access_done) CollAccess access = {0};
    TRY(access_read(run->op, &run->move.ns, &access, err));
    const Collection *coll = access.coll;
    if (coll == NULL || !uuid_equal(&coll->uuid, &run->move.uuid))
        return error_set(err, ERR_NAMESPACE_NOT_FOUND, "the collection %s was dropped",
                         run->move.ns.text);
    DocBuilder b = doc_builder_in_arena(&run->op->arena);
    uint32_t count = 0;
    for (uint32_t i = 0; i < coll->index_count; i++) {
        char name[INDEX_NAME_SIZE];
        if (!coll->indexes[i]->is_id && coll->indexes[i]->is_ready)
            build_doc(&b, index_name(count++, name).data, coll->indexes[i]->spec);
    }
    Definition definition = {.options = doc_copy(coll->options.doc, &run->op->arena),
                             .indexes = doc_builder_end(&b)};
    definition.hash = hash_bytes(definition.options.data, doc_size(definition.options)) * 31 +
                      hash_bytes(definition.indexes.data, doc_size(definition.indexes));
    *ret_definition = definition;
    return ERR_OK;
}

static ErrCode wait_majority(MoveRun *run, Error *err) {
    return repl_wait_committed(run->op->service->repl, run->op, run->op->last_optime.ts, err);
}

static ErrCode add_range_task(MoveRun *run, StepAnswer *answer, Error *err) {
    (void)answer;
    const Move *move = &run->move;
    atomic_fetch_add(&run->migrations->stats.donor_started, 1);
    atomic_store(&run->migrations->stats.donor_begun_us, clock_mono_us());
    RangeTask task = {
        .id = move->id,
        .ns = move->ns,
        .uuid = move->uuid,
        .donor = move->from,
        .min = move->min,
        .max = move->max,
        .key = shard_key_pattern(move->key),
        .is_pending = true,
        .is_delayed = !move->waits_for_delete,
    };
    TRY(range_task_add(run->op, &task, err));
    return wait_majority(run, err);
}

static ErrCode start_recipient(MoveRun *run, StepAnswer *answer, Error *err) {
    (void)answer;
    const Move *move = &run->move;
    Definition definition;
    TRY(read_definition(run, &definition, err));
    DocBuilder b = doc_builder_in_arena(&run->op->arena);
    build_str(&b, "_recvChunkStart", ns_str(&move->ns));
    size_t opened = build_open_doc(&b, "move");
    move_build(&b, move);
    build_close(&b, opened);
    build_doc(&b, "options", definition.options);
    build_array(&b, "indexes", definition.indexes);
    CLEANUP(client_reply_done) ClientReply reply = {0};
    TRY(move_run_ask(run, move->to, &b, ASK_MS_MAX, &reply, err));
    DonorFields fields = fields_of(run);
    fields.definition_hash = (int64_t)definition.hash;
    set_fields(run, fields);
    atomic_store(&run->migrations->stats.donor_clone_begun_us, clock_mono_us());
    return ERR_OK;
}

static ErrCode ask_status(MoveRun *run, StepAnswer *answer, Error *err) {
    DocBuilder b = doc_builder_in_arena(&run->op->arena);
    build_str(&b, "_recvChunkStatus", ns_str(&run->move.ns));
    build_uuid(&b, "migrationId", &run->move.id);
    build_i64(&b, "waitMs", STATUS_WAIT_MS);
    CLEANUP(client_reply_done) ClientReply reply = {0};
    TRY(move_run_ask(run, run->move.to, &b, STATUS_MS_MAX, &reply, err));
    Elem state = doc_get_lit(reply.body, "state");
    bool is_steady = elem_type(state) == BT_STRING && str_is(elem_str(state), "steady");
    DonorFields fields = fields_of(run);
    task_set_progress(run->task, number_of(reply.body, "counts.cloned"), fields.counted);
    if (elem_type(state) == BT_STRING && str_is(elem_str(state), "catchup"))
        failpoint_hit(FP_MIG_D_MODS_TRANSFER);
    if (!is_steady) {
        *answer = STEP_NOT_YET;
        return ERR_OK;
    }
    MigrationStats *stats = &run->migrations->stats;
    atomic_fetch_add(&stats->docs_cloned_on_donor, number_of(reply.body, "counts.cloned"));
    atomic_fetch_add(&stats->bytes_cloned_on_donor, number_of(reply.body, "counts.clonedBytes"));
    int64_t begun_us = atomic_exchange(&stats->donor_clone_begun_us, 0);
    if (begun_us != 0)
        atomic_fetch_add(&stats->donor_clone_us, clock_mono_us() - begun_us);
    fields.documents = number_of(reply.body, "counts.documents");
    set_fields(run, fields);
    migrations_note_uncommitted(run->migrations, &run->move.id);
    return ERR_OK;
}

/* ---- committing ---- */

static Doc reason_of(const MoveRun *run) {
    return move_section_reason(&run->move, &run->op->arena);
}

static ErrCode ask_owner(MoveRun *run, StepAnswer *answer, Error *err) {
    bool is_owned;
    Str owner;
    TRY(move_run_owner(run, &is_owned, &owner, err));
    if (is_owned && str_equal(owner, run->move.to))
        *answer = STEP_OTHERWISE;
    return ERR_OK;
}

static ErrCode block_writes(MoveRun *run, StepAnswer *answer, Error *err) {
    (void)answer;
    run->writes_blocked_us = clock_mono_us();
    ErrCode rc = move_run_block_writes(run, err);
    if (rc == ERR_CONFLICTING_OPERATION_IN_PROGRESS)
        atomic_fetch_add(&run->migrations->stats.donor_lock_timeouts, 1);
    return rc;
}

static ErrCode check_definition(MoveRun *run, StepAnswer *answer, Error *err) {
    (void)answer;
    Definition definition;
    TRY(read_definition(run, &definition, err));
    if (fields_of(run).definition_hash == (int64_t)definition.hash)
        return ERR_OK;
    atomic_fetch_add(&run->migrations->stats.donor_index_conflicts, 1);
    return refused("indexes or options of the collection have changed meanwhile", err);
}

static ErrCode drain(MoveRun *run, StepAnswer *answer, Error *err) {
    (void)answer;
    DocBuilder b = doc_builder_in_arena(&run->op->arena);
    build_str(&b, "_recvChunkCommit", ns_str(&run->move.ns));
    build_uuid(&b, "migrationId", &run->move.id);
    build_timestamp(&b, "upTo", oplog_applied(repl_oplog(run->op->service->repl)).ts);
    CLEANUP(client_reply_done) ClientReply reply = {0};
    TRY(move_run_ask(run, run->move.to, &b, COMMIT_MS_MAX, &reply, err));
    DonorFields fields = fields_of(run);
    fields.documents = number_of(reply.body, "documents");
    Doc told = doc_field(reply.body, "account");
    fields.told = run->told = doc_is_present(told) ? doc_copy(told, &run->op->arena) : DOC_NONE;
    set_fields(run, fields);
    return ERR_OK;
}

static ErrCode block_reads(MoveRun *run, StepAnswer *answer, Error *err) {
    (void)answer;
    TRY(section_enter(run->op, &run->move.ns, SECTION_READS_AND_WRITES, reason_of(run), err));
    TRY(wait_majority(run, err));
    run->reads_blocked_us = clock_mono_us();
    return ERR_OK;
}

static void note_blocked_times(MoveRun *run) {
    MigrationStats *stats = &run->migrations->stats;
    int64_t now_us = clock_mono_us();
    int64_t writes_us = now_us - run->writes_blocked_us;
    int64_t reads_us = now_us - run->reads_blocked_us;
    atomic_fetch_add(&stats->donor_section_us, writes_us);
    atomic_fetch_add(&stats->donor_section_reads_us, reads_us);
    atomic_store(&stats->last_section_us, writes_us);
    migrations_note_blocked(run->migrations, &run->move.id, writes_us, reads_us);
}

static ErrCode commit(MoveRun *run, StepAnswer *answer, Error *err) {
    (void)answer;
    const Move *move = &run->move;
    DocBuilder b = doc_builder_in_arena(&run->op->arena);
    build_str(&b, "_configsvrCommitChunkMigration", ns_str(&move->ns));
    build_str(&b, "fromShard", move->from);
    build_str(&b, "toShard", move->to);
    size_t chunk = build_open_doc(&b, "migratedChunk");
    chunk_version_build(&b, "lastmod", &move->version);
    build_doc(&b, "min", move->min);
    build_doc(&b, "max", move->max);
    build_close(&b, chunk);
    chunk_version_build(&b, "fromShardCollectionVersion", &move->version);
    Doc counts = doc_is_present(run->told) ? doc_field(run->told, "counts") : DOC_NONE;
    if (doc_is_present(counts))
        build_doc(&b, "counts", counts);
    CLEANUP(client_reply_done) ClientReply reply = {0};
    if (FAILPOINT(FAIL_MIGRATION_COMMIT))
        return refused("a failpoint forbids the commit", err);
    migrations_note_uncommitted(run->migrations, NULL);
    TRY(config_run(run->cluster, run->op, &b, &reply, err));
    if (FAILPOINT(MIGRATION_COMMIT_NETWORK_ERROR))
        return error_set(err, ERR_HOST_UNREACHABLE, "a failpoint lost the config server's answer");
    note_blocked_times(run);
    return ERR_OK;
}

static ErrCode tell_outcome(MoveRun *run, MoveOutcome outcome, Error *err) {
    DocBuilder b = doc_builder_in_arena(&run->op->arena);
    build_str(&b, outcome == MOVE_COMMITTED ? "_recvChunkReleaseCritSec" : "_recvChunkAbort",
              ns_str(&run->move.ns));
    build_uuid(&b, "migrationId", &run->move.id);
    CLEANUP(client_reply_done) ClientReply reply = {0};
    return move_run_ask(run, run->move.to, &b, ASK_MS_MAX, &reply, err);
}

static ErrCode release_recipient(MoveRun *run, StepAnswer *answer, Error *err) {
    (void)answer;
    return tell_outcome(run, MOVE_COMMITTED, err);
}

static ErrCode unblock(MoveRun *run, StepAnswer *answer, Error *err) {
    (void)answer;
    return section_leave(run->op, &run->move.ns, reason_of(run), err);
}

/* ---- ends ---- */

static void note_refused(MoveRun *run, const Error *why) {
    DonorFields fields = fields_of(run);
    DocBuilder b = doc_builder_in_arena(&run->op->arena);
    build_fields(run, &fields, &b);
    if (migrations_is_uncommitted(run->migrations, &run->move.id))
        build_bool(&b, "neverCommitted", true);
    size_t error = build_open_doc(&b, "refused");
    build_i32(&b, "code", (int32_t)why->code);
    Str text = str_from(error_message(why));
    build_str(&b, "errmsg",
              (Str){text.data, text.size < REASON_BYTES_MAX ? text.size : REASON_BYTES_MAX});
    build_close(&b, error);
    task_set_fields(run->task, doc_builder_end(&b));
}

/* {migrationId, donor, recipient}: no bounds, since a result is small, and keys may be large. */
static void set_account(MoveRun *run) {
    DocBuilder b = doc_builder_in_arena(&run->op->arena);
    build_uuid(&b, "migrationId", &run->move.id);
    size_t donor = build_open_doc(&b, "donor");
    migrations_build_account(run->migrations, &run->move.id, DONOR_STEPS_SHOWN, &b);
    build_close(&b, donor);
    Doc told = fields_of(run).told;
    if (doc_is_present(told))
        build_doc(&b, "recipient", told);
    task_set_result(run->task, doc_builder_end(&b));
}

static ErrCode make_deletable(MoveRun *run, StepAnswer *answer, Error *err) {
    (void)answer;
    const Move *move = &run->move;
    TRY(range_task_set_orphans(run->op, &move->id, fields_of(run).documents, err));
    TRY(range_task_make_ready(run->op, &move->id, !move->waits_for_delete, err));
    range_deleter_wake(run->op->service->range_deleter);
    MigrationStats *stats = &run->migrations->stats;
    atomic_fetch_add(&stats->donor_committed, 1);
    int64_t begun_us = atomic_exchange(&stats->donor_begun_us, 0);
    if (begun_us != 0)
        atomic_fetch_add(&stats->donor_move_us, clock_mono_us() - begun_us);
    set_account(run);
    return ERR_OK;
}

/* Makes a commit that is still under way come too late, unless nobody has ever asked for one: the
 * versions of the collection stay as they are then, and nobody reads them anew. */
static ErrCode fence_commit(MoveRun *run, StepAnswer *answer, Error *err) {
    (void)answer;
    const Move *move = &run->move;
    if (elem_is_truthy(doc_get_lit(task_doc(run->task), "neverCommitted")))
        return ERR_OK;
    DocBuilder b = doc_builder_in_arena(&run->op->arena);
    build_i32(&b, "_configsvrEnsureChunkVersionIsGreaterThan", 1);
    build_str(&b, "nss", ns_str(&move->ns));
    build_uuid(&b, "collectionUUID", &move->uuid);
    build_doc(&b, "minKey", move->min);
    build_doc(&b, "maxKey", move->max);
    chunk_version_build(&b, "version", &move->version);
    CLEANUP(client_reply_done) ClientReply reply = {0};
    return config_run(run->cluster, run->op, &b, &reply, err);
}

/* Whoever asked for the move learns why it was refused. */
static void set_refusal(MoveRun *run) {
    Elem why = doc_get_lit(task_doc(run->task), "refused");
    if (elem_type(why) == BT_DOC)
        task_set_result(run->task, elem_doc(why));
}

static ErrCode abort_recipient(MoveRun *run, StepAnswer *answer, Error *err) {
    if (run->move.key == NULL) {
        *answer = STEP_OTHERWISE; /* it had not begun */
        return ERR_OK;
    }
    return tell_outcome(run, MOVE_ABORTED, err);
}

static ErrCode remove_range_task(MoveRun *run, StepAnswer *answer, Error *err) {
    (void)answer;
    TRY(range_task_remove(run->op, &run->move.id, err));
    atomic_fetch_add(&run->migrations->stats.donor_aborted, 1);
    set_refusal(run);
    return ERR_OK;
}

static const MoveStep STEPS[DONOR_STEP_COUNT] = {
    [DONOR_CHOOSE] = choose_step,
    [DONOR_ADD_RANGE_TASK] = add_range_task,
    [DONOR_START_RECIPIENT] = start_recipient,
    [DONOR_ASK_STATUS] = ask_status,
    [DONOR_ASK_OWNER] = ask_owner,
    [DONOR_BLOCK_WRITES] = block_writes,
    [DONOR_CHECK_DEFINITION] = check_definition,
    [DONOR_DRAIN] = drain,
    [DONOR_BLOCK_READS] = block_reads,
    [DONOR_COMMIT] = commit,
    [DONOR_RELEASE_RECIPIENT] = release_recipient,
    [DONOR_UNBLOCK] = unblock,
    [DONOR_MAKE_DELETABLE] = make_deletable,
    [DONOR_FENCE_COMMIT] = fence_commit,
    [DONOR_ABORT_RECIPIENT] = abort_recipient,
    [DONOR_REMOVE_RANGE_TASK] = remove_range_task,
};

static ErrCode run_phase(Task *task, OpCtx *op, Error *err) {
    static const char *const TEXTS[] = {"step 1 of 6", "step 2 of 6", "step 3 of 6",
                                        "step 4 of 6", "step 5 of 6", "step 6 of 6"};
    static const MoveSide DONOR = {.table = &DONOR_STEPS,
                                   .steps = STEPS,
                                   .note_refused = note_refused,
                                   .step_texts = TEXTS,
                                   .step_count = ARRAY_LEN(TEXTS),
                                   .first_pause = FP_MOVE_CHUNK_HANG_1};
    _Static_assert(FP_MOVE_CHUNK_HANG_6 - FP_MOVE_CHUNK_HANG_1 + 1 == ARRAY_LEN(TEXTS) &&
                       ARRAY_LEN(TEXTS) == DONOR_STEPS_SHOWN,
                   "a failpoint for each");
    return move_run_phase(task, op, &DONOR, err);
}

static const TaskPhase PHASES[] = {
    {"begin", TASK_OPEN, run_phase, {"prepare", TASK_DONE}, MOVE_FAILS_AT_ONCE},
    {"prepare", TASK_OPEN, run_phase, {"clone"}, MOVE_FAILS_AT_ONCE},
    {"clone", TASK_OPEN, run_phase, {"commit"}, {{0}}},
    {"commit", TASK_COMMITTED, run_phase, {"committed", "refused"}, {{0}}},
    {"committed", TASK_COMMITTED, run_phase, {TASK_DONE}, {{0}}},
    {"refused", TASK_COMMITTED, run_phase, {TASK_DONE, "committed"}, {{0}}},
    {"undo", TASK_ABORTING, run_phase, {TASK_DONE}, {{0}}},
};

static void forget_taken_over(void *arg) {
    Migrations *migrations = arg;
    migrations_hide(migrations);
    migrations_forget_account(migrations);
    migrations_note_uncommitted(migrations, NULL);
    atomic_store(&migrations->stats.donor_taken_over, 0);
    atomic_store(&migrations->stats.donor_begun_us, 0);
}

static ErrCode note_taken_over(void *arg, OpCtx *op, Doc doc, Error *err) {
    (void)op, (void)doc, (void)err;
    Migrations *migrations = arg;
    atomic_fetch_add(&migrations->stats.donor_taken_over, 1);
    return ERR_OK;
}

static void ended(void *arg, Doc doc) {
    (void)doc;
    migrations_hide(arg);
    failpoint_hit(FP_MIG_D_COORD_DOC_DELETED);
}

const TaskServiceSpec MOVE_DONOR_SERVICE = {
    .name = MOVE_DONORS,
    .shown_as = "MoveChunk",
    .ns = DONORS_TEXT,
    .phases = PHASES,
    .phase_count = ARRAY_LEN(PHASES),
    .abort_phase = "undo",
    .threads_max = 2,
    .reset = forget_taken_over,
    .rebuild = note_taken_over,
    .ended = ended,
};

/* ---- asking ---- */

static Doc build_request(OpCtx *op, const MoveOrder *order) {
    DocBuilder b = doc_builder_in_arena(&op->arena);
    build_str(&b, "ns", ns_str(&order->ns));
    build_str(&b, "toShard", order->to);
    if (doc_is_present(order->min))
        build_doc(&b, "min", order->min);
    if (doc_is_present(order->max))
        build_doc(&b, "max", order->max);
    if (order->has_epoch)
        build_oid(&b, "epoch", &order->epoch);
    build_bool(&b, "waitForDelete", order->waits_for_delete);
    build_bool(&b, "secondaryThrottle", order->is_throttled);
    if (doc_is_present(order->throttle))
        build_doc(&b, "throttleConcern", order->throttle);
    build_bool(&b, "forceJumbo", order->is_jumbo_forced);
    build_i64(&b, "maxChunkSizeBytes", order->chunk_bytes_max);
    return doc_builder_end(&b);
}

/* The same range to the same shard is the same move. */
static Elem build_id(OpCtx *op, const MoveOrder *order) {
    DocBuilder b = doc_builder_in_arena(&op->arena);
    size_t id = build_open_doc(&b, "_id");
    build_str(&b, "nss", ns_str(&order->ns));
    build_str(&b, "toShard", order->to);
    if (doc_is_present(order->min))
        build_doc(&b, "min", order->min);
    if (doc_is_present(order->max))
        build_doc(&b, "max", order->max);
    build_close(&b, id);
    return doc_get_lit(doc_builder_end(&b), "_id");
}

/* A move that was refused is an error to whoever asked for it. */
static ErrCode check_result(Doc result, Error *err) {
    Elem code = doc_get_lit(result, "code"), text = doc_get_lit(result, "errmsg");
    if (!elem_is_number(code) || elem_as_i64(code) == 0)
        return ERR_OK;
    return error_set(err, (ErrCode)elem_as_i64(code), "%s",
                     elem_type(text) == BT_STRING ? elem_str(text).data : "the move was refused");
}

static ErrCode wait_for_delete(OpCtx *op, Doc result, Error *err) {
    Uuid id;
    if (!uuid_from_elem(doc_get_lit(result, "migrationId"), &id))
        return ERR_OK; /* it was there already */
    return range_deleter_wait_task(op->service->range_deleter, op, &id, err);
}

ErrCode donor_move(Migrations *migrations, OpCtx *op, const MoveOrder *order, Doc *ret_account,
                   Error *err) {
    LockSet locks = {0};
    TRY(lock_set_add(&locks, STR(MIGRATION_LOCK), /* is_exclusive= */ true, err));
    TaskRequest request = {.service = MOVE_DONORS,
                           .id = build_id(op, order),
                           .request = build_request(op, order),
                           .locks = &locks};
    Task *task;
    TRY(task_begin(repl_tasks(migrations->service->repl), op, &request, &task, err));
    Doc result;
    ErrCode rc = task_wait(task, op, &result, err);
    task_unref(task);
    TRY(rc);
    TRY(check_result(result, err));
    *ret_account = result;
    return order->waits_for_delete ? wait_for_delete(op, result, err) : ERR_OK;
}

typedef struct DonorLook {
    OpCtx *op;
    const Uuid *id;
    Doc found;
} DonorLook;

static ErrCode look_at(void *arg, Doc doc, bool *is_over, Error *err) {
    (void)err;
    DonorLook *look = arg;
    Doc move = doc_field(doc, "move");
    Uuid id;
    if (doc_is_present(move) && uuid_from_elem(doc_get_lit(move, "migrationId"), &id) &&
        uuid_equal(&id, look->id)) {
        look->found = doc_copy(move, &look->op->arena);
        *is_over = true;
    }
    return ERR_OK;
}

ErrCode donor_find(Migrations *migrations, OpCtx *op, const Uuid *id, Move *ret_move, Error *err) {
    (void)migrations;
    DonorLook look = {op, id, DOC_NONE};
    TRY(access_each(op, &DONORS_NS, /* is_forward= */ true, look_at, &look, err));
    if (!doc_is_present(look.found))
        return error_set(err, ERR_NO_SUCH_KEY, "this shard does not donate such a range");
    return move_parse(look.found, ret_move, err);
}
