/*
 * move_primary.c - movePrimary: the unsharded collections and the views of a database are copied to
 * another shard, which is its primary from then on. Sharded collections stay where their chunks
 * are; the new primary gets those it does not have, empty.
 *
 *     block         writes are blocked here and there; what is to be copied is noted
 *     clone         it is copied: this shard reads and sends
 *     catchup       both sides are compared
 *     enterCritSec  reads are blocked, too
 *     commit        the config server decides
 *     clean         this shard drops what it had
 *     exitCritSec   requests are let in again, there and here
 *     refused       the config server says no: copies are dropped, requests let in again
 *
 * Nothing is read that a majority does not have: the section of `block` is the newest write of this
 * shard when the clone begins, and a majority has it; on a later primary, the first entry of its
 * term. Every request to the new primary is majority-committed there when it returns.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/failpoint.h"
#include "catalog/access.h"
#include "repl/task/error_rules.h"
#include "sharding/ddl/coordinator_internal.h"
#include "sharding/ddl/database_copy.h"
#include "sharding/shard/critical_section.h"

enum {
    INSERT_MS_MAX = 5 * 60 * 1000,
    DIGEST_MS_MAX = 60 * 60 * 1000,
    BATCH_DOCS_MAX = 10000,
    BATCH_BYTES_MAX = 4 << 20,
    ENTRIES_MAX = 100000,
    /* About a minute, by the back-off of tasks. */
    FAILURES_MAX = 12,
};

/* ---- the request ---- */

typedef struct PrimaryMove {
    Ns db;
    const Shard *from; /* this one; NULL: not in the cluster any more */
    const Shard *to;   /* likewise */
} PrimaryMove;

static Str destination(const DdlRun *run) {
    Doc arguments = elem_doc(doc_get_lit(ddl_request(run), "arguments"));
    Elem to = doc_get_lit(arguments, "to");
    return elem_type(to) == BT_STRING ? elem_str(to) : STR("");
}

/* A shard may be removed from the cluster as soon as it has nothing that counts: the old primary
 * from the commit on, the new one before it. */
static ErrCode find_move(DdlRun *run, PrimaryMove *ret_move, Error *err) {
    TRY(section_database_ns(elem_str(doc_get_lit(ddl_request(run), "ns")), &ret_move->db, err));
    ret_move->from = ddl_self(run);
    ret_move->to = shard_list_find(run->shards, destination(run));
    return ERR_OK;
}

static ErrCode read_move(DdlRun *run, PrimaryMove *ret_move, Error *err) {
    TRY(find_move(run, ret_move, err));
    TRY(ddl_find_shard(run, str_from(run->self), &ret_move->from, err));
    return ddl_find_shard(run, destination(run), &ret_move->to, err);
}

/* A shard that does not answer, or an index that is never complete, does not keep the database
 * blocked for ever. */
static ErrCode give_up_late(DdlRun *run, ErrCode rc, Error *err) {
    if (rc == ERR_OK || task_failures(run->task) < FAILURES_MAX ||
        op_check_interrupt_slow(run->op, &(Error){0}) != ERR_OK)
        return rc;
    TaskErrorClass of = task_error_class(rc);
    if (of != TASK_ERROR_NETWORK && of != TASK_ERROR_NOT_PRIMARY && of != TASK_ERROR_TIMEOUT &&
        of != TASK_ERROR_CONFLICT)
        return rc;
    (void)error_prefix(err, "the move is given up");
    err->code = ERR_OPERATION_FAILED;
    return err->code;
}

/* ---- what there is ---- */

typedef struct ShardedNames {
    const Doc *entries; /* of config.collections */
    uint32_t count;
} ShardedNames;

static ErrCode read_sharded(DdlRun *run, Str db, ShardedNames *ret_names, Error *err) {
    ConfigQuery query = {.coll = "collections",
                         .filter = config_filter_scope(db, &run->op->arena),
                         .count_max = ENTRIES_MAX};
    Doc *entries;
    TRY(config_find(run->cluster, run->op, &query, &entries, &ret_names->count, err));
    ret_names->entries = entries;
    return ERR_OK;
}

static bool is_sharded(const ShardedNames *names, Str ns) {
    for (uint32_t i = 0; i < names->count; i++) {
        Elem id = doc_get_lit(names->entries[i], "_id");
        if (elem_type(id) == BT_STRING && str_equal(elem_str(id), ns))
            return true;
    }
    return false;
}

/* Views have requests of their own; a profile is of the node. */
static bool stays(const Ns *ns) {
    return str_is(ns_coll(ns), "system.views") || str_is(ns_coll(ns), "system.profile");
}

typedef struct Listing {
    ShardedNames sharded;
    DocBuilder *b;
    uint32_t count;
    char building[NS_TEXT_SIZE]; /* a collection of which an index is not complete; "": none */
} Listing;

static bool list_collection(void *arg, const Collection *coll) {
    Listing *listing = arg;
    if (stays(&coll->ns) || is_sharded(&listing->sharded, ns_str(&coll->ns)))
        return true;
    for (uint32_t i = 0; i < coll->index_count; i++)
        if (!coll->indexes[i]->is_ready)
            memcpy(listing->building, coll->ns.text, coll->ns.size + 1);
    char name[INDEX_NAME_SIZE];
    size_t row = build_open_doc(listing->b, index_name(listing->count++, name).data);
    build_str(listing->b, "ns", ns_str(&coll->ns));
    build_uuid(listing->b, "uuid", &coll->uuid);
    build_close(listing->b, row);
    return true;
}

static ErrCode build_list(DdlRun *run, Str db, DocBuilder *b, Error *err) {
    Listing listing = {.b = b};
    TRY(read_sharded(run, db, &listing.sharded, err));
    size_t list = build_open_array(b, "collections");
    Catalog *catalog = catalog_acquire(run->op->service->catalog);
    catalog_for_each_in_db(catalog, db, list_collection, &listing);
    catalog_release(catalog);
    build_close(b, list);
    if (listing.building[0] != '\0')
        return error_set(err, ERR_BACKGROUND_OPERATION_IN_PROGRESS_FOR_NAMESPACE,
                         "an index of %s is being built", listing.building);
    return ERR_OK;
}

/* What the clone copies, and what is dropped afterwards on one side or the other: exactly this,
 * whoever is primary then. Indexes that are being built become complete, as writes do not go on. */
static ErrCode note_collections(DdlRun *run, Str db, Error *err) {
    DocBuilder b = ddl_fields(run);
    TRY(build_list(run, db, &b, err));
    ddl_set_fields(run, &b);
    return ERR_OK;
}

static bool is_noted(Doc noted, Doc row) {
    DocIter iter = doc_iter(noted);
    for (Elem known; doc_iter_next(&iter, &known);)
        if (elem_type(known) == BT_DOC && doc_equal_bytes(elem_doc(known), row))
            return true;
    return false;
}

/* Somebody who talks to this shard alone is not kept out, and what he makes meanwhile would stay
 * behind. */
static ErrCode check_noted(DdlRun *run, Str db, Error *err) {
    DocBuilder b = doc_builder_in_arena(&run->op->arena);
    TRY(build_list(run, db, &b, err));
    Doc now = elem_doc(doc_get_lit(doc_builder_end(&b), "collections"));
    Doc noted = elem_doc(ddl_field(run, "collections"));
    if (doc_equal_bytes(now, noted))
        return ERR_OK;
    DocIter iter = doc_iter(now);
    for (Elem row; doc_iter_next(&iter, &row);)
        if (!is_noted(noted, elem_doc(row)))
            return error_set(err, ERR_OPERATION_FAILED,
                             "the move is given up: the collection %s was made meanwhile",
                             elem_str(doc_get_lit(elem_doc(row), "ns")).data);
    return ERR_OK;
}

typedef ErrCode (*CollectionVisit)(DdlRun *run, const PrimaryMove *move, const Ns *ns,
                                   const Uuid *uuid, Error *err);

static ErrCode each_noted(DdlRun *run, const PrimaryMove *move, CollectionVisit visit, Error *err) {
    Elem list = ddl_field(run, "collections");
    DocIter iter = doc_iter(elem_type(list) == BT_ARRAY ? elem_doc(list) : DOC_EMPTY);
    for (Elem row; doc_iter_next(&iter, &row);) {
        Ns ns;
        Uuid uuid;
        TRY(ns_parse(elem_str(doc_get_lit(elem_doc(row), "ns")), &ns, err));
        invariant(uuid_from_elem(doc_get_lit(elem_doc(row), "uuid"), &uuid));
        ArenaMark mark = arena_mark(&run->op->arena);
        TRY(visit(run, move, &ns, &uuid, err));
        arena_rewind(&run->op->arena, mark);
    }
    return ERR_OK;
}

/* ---- the beginning ---- */

static ErrCode list_there(DdlRun *run, const PrimaryMove *move, ClientReply *reply, Doc *ret_list,
                          Error *err) {
    DocBuilder b = doc_builder_in_arena(&run->op->arena);
    build_i32(&b, "listCollections", 1);
    build_bool(&b, "nameOnly", true);
    remote_build_end(run->cluster, &b, ns_str(&move->db), NULL, ELEM_MISSING);
    RemoteRequest request = {.shard = move->to,
                             .body = doc_builder_end(&b),
                             .retry = REMOTE_IDEMPOTENT,
                             .deadline_us = INT64_MAX};
    TRY(remote_run(run->cluster, run->op, &request, reply, NULL, err));
    Elem list = doc_get_path(reply->body, "cursor.firstBatch");
    *ret_list = elem_type(list) == BT_ARRAY ? elem_doc(list) : DOC_EMPTY;
    return ERR_OK;
}

static bool has_name(Doc rows, const char *field, Str name) {
    DocIter iter = doc_iter(rows);
    for (Elem row; doc_iter_next(&iter, &row);) {
        Elem text = doc_get(elem_doc(row), str_from(field));
        if (elem_type(text) == BT_STRING && str_equal(elem_str(text), name))
            return true;
    }
    return false;
}

/* What the other shard has under a name that moves there is nobody's, but was somebody's once: it
 * is not overwritten. */
static ErrCode check_nothing_there(DdlRun *run, const PrimaryMove *move, Error *err) {
    DocBuilder b = doc_builder_in_arena(&run->op->arena);
    ErrCode rc = build_list(run, ns_str(&move->db), &b, err);
    if (rc == ERR_BACKGROUND_OPERATION_IN_PROGRESS_FOR_NAMESPACE)
        error_reset(err); /* it has ended when it matters */
    else
        TRY(rc);
    Doc here = elem_doc(doc_get_lit(doc_builder_end(&b), "collections"));
    CLEANUP(client_reply_done) ClientReply reply = {0};
    Doc there;
    TRY(list_there(run, move, &reply, &there, err));
    DocIter iter = doc_iter(there);
    for (Elem row; doc_iter_next(&iter, &row);) {
        Elem name = doc_get_lit(elem_doc(row), "name");
        Ns ns;
        TRY(ns_make(ns_str(&move->db), elem_str(name), &ns, err));
        if (has_name(here, "ns", ns_str(&ns)))
            return error_set(err, ERR_NAMESPACE_EXISTS,
                             "the shard \"%s\" has a collection %s already, which is not that of "
                             "the database",
                             move->to->name, ns.text);
    }
    return ERR_OK;
}

ErrCode move_primary_begin(DdlRun *run, Error *err) {
    PrimaryMove move;
    TRY(read_move(run, &move, err));
    Str db = ns_str(&move.db);
    if (db_is_internal(db))
        return error_set(err, ERR_INVALID_OPTIONS, "Can't move primary for %s database",
                         move.db.text);
    DdlDatabase database;
    TRY(ddl_read_database(run, db, &database, err));
    if (!database.is_there)
        return error_set(err, ERR_NAMESPACE_NOT_FOUND, "database %s not found", move.db.text);
    if (move.to == move.from) {
        task_go_to(run->task, TASK_DONE);
        return ERR_OK;
    }
    if (move.to->is_draining)
        return error_set(err, ERR_SHARD_NOT_FOUND,
                         "the shard \"%s\" is being removed: nothing moves there", move.to->name);
    TRY(check_nothing_there(run, &move, err));
    DocBuilder b = doc_builder_in_arena(&run->op->arena);
    Uuid id = uuid_new();
    build_uuid(&b, "operationId", &id);
    database_version_build(&b, "version", &database.version);
    ddl_set_fields(run, &b);
    task_go_to(run->task, "movePrimary.block");
    return ERR_OK;
}

/* ---- sections ---- */

static ErrCode block_both(DdlRun *run, const PrimaryMove *move, const char *type, Error *err) {
    TRY(ddl_block(run, move->to, &move->db, type, err));
    failpoint_hit(FP_MOVE_PRIMARY_ENTER);
    return ddl_block(run, move->from, &move->db, type, err);
}

static ErrCode block(DdlRun *run, Error *err) {
    PrimaryMove move;
    TRY(read_move(run, &move, err));
    TRY(block_both(run, &move, "UnshardedWrites", err));
    return note_collections(run, ns_str(&move.db), err);
}

ErrCode move_primary_block(DdlRun *run, Error *err) {
    return give_up_late(run, block(run, err), err);
}

/* ---- the clone ---- */

static ErrCode drop_on(DdlRun *run, const Shard *shard, const Ns *ns, const Uuid *uuid,
                       Error *err) {
    DocBuilder b = doc_builder_in_arena(&run->op->arena);
    build_str(&b, "_shardsvrDropCollectionParticipant", ns_str(ns));
    build_uuid(&b, "collectionUUID", uuid);
    build_bool(&b, "fromMigrate", true);
    return ddl_ask(run, shard, &b, err);
}

static ErrCode create_on(DdlRun *run, const Shard *shard, const Ns *ns, const Uuid *uuid,
                         Error *err) {
    DocBuilder b = doc_builder_in_arena(&run->op->arena);
    build_str(&b, "_shardsvrCreateCollectionParticipant", ns_str(ns));
    build_uuid(&b, "collectionUUID", uuid);
    TRY(ddl_build_definition(run, &b, ns, err));
    return ddl_ask(run, shard, &b, err);
}

typedef struct Batch {
    Arena arena;
    Doc docs[BATCH_DOCS_MAX];
    uint32_t count;
} Batch;

static ErrCode fill(CollectionScan *scan, Batch *batch, bool *ret_is_end, Error *err) {
    arena_reset(&batch->arena);
    batch->count = 0;
    size_t bytes = 0;
    for (*ret_is_end = false; batch->count < BATCH_DOCS_MAX && bytes < BATCH_BYTES_MAX;) {
        bool is_found;
        Doc doc;
        TRY(collection_scan_next(scan, &is_found, &doc, err));
        *ret_is_end = !is_found;
        if (!is_found)
            return ERR_OK;
        bytes += doc_size(doc);
        batch->docs[batch->count++] = doc_copy(doc, &batch->arena);
    }
    return ERR_OK;
}

static ErrCode send(DdlRun *run, const PrimaryMove *move, const Ns *ns, const Uuid *uuid,
                    const Batch *batch, Error *err) {
    if (batch->count == 0)
        return ERR_OK;
    DocBuilder b = doc_builder_in_arena(&run->op->arena);
    build_str(&b, "_shardsvrMovePrimaryInsert", ns_str(ns));
    build_uuid(&b, "collectionUUID", uuid);
    DdlQuestion question = {
        .docs = batch->docs, .doc_count = batch->count, .ms_max = INSERT_MS_MAX};
    return ddl_ask_more(run, move->to, &b, &question, err);
}

/* Holds nothing of the storage while a batch is sent. */
static ErrCode send_all(DdlRun *run, const PrimaryMove *move, const Ns *ns, const Uuid *uuid,
                        CollectionScan *scan, Batch *batch, Error *err) {
    for (;;) {
        ArenaMark mark = arena_mark(&run->op->arena);
        bool is_end;
        TRY(fill(scan, batch, &is_end, err));
        collection_scan_suspend(scan);
        TRY(send(run, move, ns, uuid, batch, err));
        failpoint_hit(FP_MOVE_PRIMARY_CLONE);
        if (is_end)
            return ERR_OK;
        TRY(collection_scan_resume(run->op, scan, err));
        arena_rewind(&run->op->arena, mark);
    }
}

static ErrCode copy_collection(DdlRun *run, const PrimaryMove *move, const Ns *ns, const Uuid *uuid,
                               Error *err) {
    CLEANUP(collection_scan_done) CollectionScan scan = {0};
    bool is_found;
    TRY(collection_scan_open(run->op, ns, uuid, &is_found, &scan, err));
    if (!is_found) /* a temporary one, of an operation that was refused */
        return drop_on(run, move->to, ns, uuid, err);
    collection_scan_suspend(&scan);
    TRY(create_on(run, move->to, ns, uuid, err));
    TRY(collection_scan_resume(run->op, &scan, err));
    Batch *batch = NEW(Batch);
    arena_init(&batch->arena, BATCH_BYTES_MAX + (64 << 10));
    ErrCode rc = send_all(run, move, ns, uuid, &scan, batch, err);
    arena_done(&batch->arena);
    xfree(batch);
    return rc;
}

/* The primary shard has every collection of its database, also those it owns no chunk of. */
static ErrCode create_sharded(DdlRun *run, const PrimaryMove *move, Error *err) {
    ShardedNames names;
    TRY(read_sharded(run, ns_str(&move->db), &names, err));
    for (uint32_t i = 0; i < names.count; i++) {
        Ns ns;
        Uuid uuid, local;
        bool is_found;
        TRY(ns_parse(elem_str(doc_get_lit(names.entries[i], "_id")), &ns, err));
        TRY(ddl_local_uuid(run, &ns, &is_found, &local, err));
        if (is_found && uuid_from_elem(doc_get_lit(names.entries[i], "uuid"), &uuid) &&
            uuid_equal(&uuid, &local))
            TRY(create_on(run, move->to, &ns, &uuid, err));
    }
    return ERR_OK;
}

typedef struct Views {
    Arena *arena;
    Doc *docs;
    uint32_t count;
    uint32_t capacity;
} Views;

static bool add_view(void *arg, const View *view) {
    Views *views = arg;
    if (views->count == views->capacity) {
        uint32_t capacity = views->capacity * 2 + 16;
        Doc *grown = ARENA_ARRAY(views->arena, Doc, capacity);
        if (views->count > 0)
            memcpy(grown, views->docs, views->count * sizeof(Doc));
        views->docs = grown;
        views->capacity = capacity;
    }
    views->docs[views->count++] = doc_copy(view->definition, views->arena);
    return true;
}

static ErrCode set_views(DdlRun *run, const Shard *shard, Str db, const Views *views, Error *err) {
    DocBuilder b = doc_builder_in_arena(&run->op->arena);
    build_str(&b, "_shardsvrMovePrimaryViews", db);
    DdlQuestion question = {
        .docs = views->docs, .doc_count = views->count, .ms_max = INSERT_MS_MAX};
    return ddl_ask_more(run, shard, &b, &question, err);
}

static ErrCode copy_views(DdlRun *run, const PrimaryMove *move, Error *err) {
    Views views = {.arena = &run->op->arena};
    Catalog *catalog = catalog_acquire(run->op->service->catalog);
    catalog_for_each_view_in_db(catalog, ns_str(&move->db), add_view, &views);
    catalog_release(catalog);
    TRY(set_views(run, move->to, ns_str(&move->db), &(Views){0}, err));
    Ns home;
    Uuid uuid;
    bool is_found;
    TRY(ns_make(ns_str(&move->db), STR("system.views"), &home, err));
    TRY(ddl_local_uuid(run, &home, &is_found, &uuid, err));
    if (!is_found)
        return ERR_OK;
    TRY(create_on(run, move->to, &home, &uuid, err));
    return views.count > 0 ? set_views(run, move->to, ns_str(&move->db), &views, err) : ERR_OK;
}

static ErrCode copy_all(DdlRun *run, Error *err) {
    PrimaryMove move;
    TRY(read_move(run, &move, err));
    TRY(create_sharded(run, &move, err));
    TRY(each_noted(run, &move, copy_collection, err));
    return copy_views(run, &move, err);
}

ErrCode move_primary_clone(DdlRun *run, Error *err) {
    return give_up_late(run, copy_all(run, err), err);
}

/* ---- the comparison ---- */

static int64_t number(Doc doc, const char *name) {
    Elem value = doc_get(doc, str_from(name));
    return elem_is_number(value) ? elem_as_i64(value) : -1;
}

static ErrCode compare(DdlRun *run, const PrimaryMove *move, const Ns *ns, const Uuid *uuid,
                       Error *err) {
    CollectionDigest here;
    bool is_found;
    TRY(collection_digest(run->op, ns, uuid, &is_found, &here, err));
    if (!is_found)
        return drop_on(run, move->to, ns, uuid, err);
    DocBuilder b = doc_builder_in_arena(&run->op->arena);
    build_str(&b, "_shardsvrMovePrimaryDigest", ns_str(ns));
    build_uuid(&b, "collectionUUID", uuid);
    CLEANUP(client_reply_done) ClientReply reply = {0};
    DdlQuestion question = {.ms_max = DIGEST_MS_MAX, .reply = &reply};
    TRY(ddl_ask_more(run, move->to, &b, &question, err));
    CollectionDigest there = {.count = number(reply.body, "count"),
                              .bytes = number(reply.body, "bytes"),
                              .sum = (uint64_t)number(reply.body, "sum"),
                              .index_count = number(reply.body, "indexes")};
    failpoint_hit(FP_MOVE_PRIMARY_CATCH_UP);
    if (memcmp(&here, &there, sizeof(here)) == 0)
        return ERR_OK;
    return error_set(err, ERR_OPERATION_FAILED,
                     "the copy of %s on the shard \"%s\" has %lld documents (%lld bytes) and %lld "
                     "indexes, instead of %lld (%lld bytes) and %lld%s",
                     ns->text, move->to->name, (long long)there.count, (long long)there.bytes,
                     (long long)there.index_count, (long long)here.count, (long long)here.bytes,
                     (long long)here.index_count, here.sum != there.sum ? ", other ones" : "");
}

static ErrCode catch_up(DdlRun *run, Error *err) {
    PrimaryMove move;
    TRY(read_move(run, &move, err));
    return each_noted(run, &move, compare, err);
}

ErrCode move_primary_catch_up(DdlRun *run, Error *err) {
    return give_up_late(run, catch_up(run, err), err);
}

static ErrCode enter(DdlRun *run, Error *err) {
    PrimaryMove move;
    TRY(read_move(run, &move, err));
    TRY(block_both(run, &move, "UnshardedReadsAndWrites", err));
    return check_noted(run, ns_str(&move.db), err);
}

ErrCode move_primary_enter(DdlRun *run, Error *err) {
    return give_up_late(run, enter(run, err), err);
}

/* ---- the commit ---- */

static ErrCode ask_commit(DdlRun *run, const PrimaryMove *move, const char *to, Error *err) {
    DocBuilder b = doc_builder_in_arena(&run->op->arena);
    build_str(&b, "_configsvrCommitMovePrimary", ns_str(&move->db));
    build_elem_as(&b, STR("expectedDatabaseVersion"), ddl_field(run, "version"));
    build_cstr(&b, "to", to);
    CLEANUP(client_reply_done) ClientReply reply = {0};
    return ddl_ask_config(run, &b, &reply, err);
}

/* These the config server says itself, and would say again. */
static bool is_refusal(ErrCode code) {
    return code == ERR_SHARD_NOT_FOUND || code == ERR_STALE_DB_VERSION ||
           code == ERR_NAMESPACE_NOT_FOUND;
}

ErrCode move_primary_commit(DdlRun *run, Error *err) {
    PrimaryMove move;
    ErrCode rc = read_move(run, &move, err);
    if (rc == ERR_OK)
        rc = ask_commit(run, &move, move.to->name, err);
    failpoint_hit(FP_MOVE_PRIMARY_COMMIT);
    if (!is_refusal(rc))
        return rc;
    DocBuilder b = ddl_fields(run);
    ddl_build_refused(&b, err);
    ddl_set_fields(run, &b);
    error_reset(err);
    task_go_to(run->task, "movePrimary.refused");
    return ERR_OK;
}

/* ---- afterwards ---- */

static ErrCode drop_here(DdlRun *run, const PrimaryMove *move, const Ns *ns, const Uuid *uuid,
                         Error *err) {
    TRY(drop_on(run, move->from, ns, uuid, err));
    failpoint_hit(FP_MOVE_PRIMARY_CLEAN);
    return ERR_OK;
}

static ErrCode drop_there(DdlRun *run, const PrimaryMove *move, const Ns *ns, const Uuid *uuid,
                          Error *err) {
    TRY(drop_on(run, move->to, ns, uuid, err));
    failpoint_hit(FP_MOVE_PRIMARY_UNDO);
    return ERR_OK;
}

ErrCode move_primary_clean(DdlRun *run, Error *err) {
    PrimaryMove move;
    TRY(find_move(run, &move, err));
    TRY(ddl_mark_database(run, "movePrimary", ns_str(&move.db), err));
    failpoint_hit(FP_DDL_MARKED);
    if (move.from == NULL)
        return ERR_OK;
    TRY(each_noted(run, &move, drop_here, err));
    return set_views(run, move.from, ns_str(&move.db), &(Views){0}, err);
}

/* The new primary last: whoever finds it free (ddl_check_primary) finds nothing left of this. */
ErrCode move_primary_exit(DdlRun *run, Error *err) {
    PrimaryMove move;
    TRY(find_move(run, &move, err));
    if (move.from != NULL)
        TRY(ddl_block(run, move.from, &move.db, "Unblock", err));
    failpoint_hit(FP_MOVE_PRIMARY_EXIT);
    return move.to != NULL ? ddl_block(run, move.to, &move.db, "Unblock", err) : ERR_OK;
}

/* ---- giving up ---- */

/* Requests are let in here before the other shard is asked: it may be away for long. */
ErrCode move_primary_undo(DdlRun *run, Error *err) {
    PrimaryMove move;
    TRY(find_move(run, &move, err));
    if (move.from != NULL)
        TRY(ddl_block(run, move.from, &move.db, "Unblock", err));
    if (move.to == NULL)
        return ERR_OK;
    TRY(each_noted(run, &move, drop_there, err));
    if (elem_is_present(ddl_field(run, "collections")))
        TRY(set_views(run, move.to, ns_str(&move.db), &(Views){0}, err));
    return ddl_block(run, move.to, &move.db, "Unblock", err);
}

/* A commit may still be under way, of a primary before this one: by a version that follows, and
 * changes nothing else, it comes too late. */
ErrCode move_primary_refused(DdlRun *run, Error *err) {
    PrimaryMove move;
    TRY(find_move(run, &move, err));
    ErrCode rc = ask_commit(run, &move, run->self, err);
    if (rc != ERR_OK && !is_refusal(rc))
        return rc;
    error_reset(err);
    DdlDatabase database;
    TRY(ddl_read_database(run, ns_str(&move.db), &database, err));
    if (database.is_there && str_equal(database.primary, destination(run))) {
        task_go_to(run->task, "movePrimary.clean");
        return ERR_OK;
    }
    TRY(move_primary_undo(run, err));
    DocBuilder b = doc_builder_in_arena(&run->op->arena);
    build_elem(&b, ddl_field(run, "refused"));
    task_set_result(run->task, doc_builder_end(&b));
    task_go_to(run->task, TASK_DONE);
    return ERR_OK;
}
