/*
 * participants.h - what a coordinator asks of shards and of the config server.
 *
 * All of it may be asked again. Requests are durable on a majority when they return.
 */
#pragma once

#include "repl/task/task_service.h"
#include "sharding/meta/versions.h"
#include "sharding/route/collection_routes.h"
#include "sharding/route/remote.h"
#include "sharding/shard/shard_state.h"

/* One run of a phase. */
typedef struct DdlRun {
    Task *task;
    OpCtx *op;
    ShardState *state;
    Cluster *cluster;
    const char *self; /* the name of this shard */
    ShardList *shards;
} DdlRun;

ErrCode ddl_run_begin(Task *task, OpCtx *op, DdlRun *ret_run, Error *err) MUST_CHECK;
void ddl_run_done(DdlRun *run);

/* ---- the document ---- */

Doc ddl_request(const DdlRun *run);
/* A field that an earlier phase stored. */
Elem ddl_field(const DdlRun *run, const char *name);
bool ddl_uuid_field(const DdlRun *run, const char *name, Uuid *ret_uuid);
ErrCode ddl_ns(const DdlRun *run, Ns *ret_ns, Error *err) MUST_CHECK;
/* All fields stored so far, to which more may be appended; ended and set by ddl_set_fields. */
DocBuilder ddl_fields(const DdlRun *run);
void ddl_set_fields(DdlRun *run, DocBuilder *b);
/* Why a section is entered: {command, ns, id}. */
Doc ddl_reason(const DdlRun *run);

/* ---- shards ---- */

/* `b` has the name of the command and its arguments; it is ended here. */
ErrCode ddl_ask(DdlRun *run, const Shard *shard, DocBuilder *b, Error *err) MUST_CHECK;
typedef struct DdlQuestion {
    const Doc *docs; /* its field "documents" */
    uint32_t doc_count;
    int64_t ms_max;
    ClientReply *reply; /* NULL: nobody looks at it */
} DdlQuestion;
ErrCode ddl_ask_more(DdlRun *run, const Shard *shard, DocBuilder *b, const DdlQuestion *question,
                     Error *err) MUST_CHECK;
const Shard *ddl_self(const DdlRun *run); /* this shard, as others see it; NULL: not listed */
ErrCode ddl_find_shard(DdlRun *run, Str name, const Shard **ret_shard, Error *err) MUST_CHECK;

/* "Writes", "ReadsAndWrites" or "Unblock", on one shard or on all; of a database also
 * "UnshardedWrites", "UnshardedReadsAndWrites". */
ErrCode ddl_block(DdlRun *run, const Shard *shard, const Ns *ns, const char *type, Error *err)
    MUST_CHECK;
ErrCode ddl_block_all(DdlRun *run, const Ns *ns, const char *type, Error *err) MUST_CHECK;
/* Appends `options` and `indexes` of a collection of this shard, as those who create it elsewhere
 * want them; nothing if there is none. */
ErrCode ddl_build_definition(DdlRun *run, DocBuilder *b, const Ns *ns, Error *err) MUST_CHECK;
/* On all shards, this one last; `uuid` NULL: whatever has the name. */
ErrCode ddl_drop_all(DdlRun *run, const Ns *ns, const Uuid *uuid, Error *err) MUST_CHECK;
ErrCode ddl_drop_on(DdlRun *run, const Shard *shard, const Ns *ns, const Uuid *uuid, Error *err)
    MUST_CHECK;

/* A no-op in the oplog of this shard, o2: {`kind`: name, ...}: ends change streams that routers
 * have opened here (change_stream/change.c). Once the change is certain and before requests are let
 * in again; another run of the phase writes it again. */
ErrCode ddl_mark_collection(DdlRun *run, const char *kind, const Ns *ns, Error *err) MUST_CHECK;
/* Of the version that was stored as `version`, if one was. */
ErrCode ddl_mark_database(DdlRun *run, const char *kind, Str db, Error *err) MUST_CHECK;

/* ---- metadata ---- */

typedef struct DdlDatabase {
    bool is_there;
    Str primary; /* in the operation's arena */
    DatabaseVersion version;
} DdlDatabase;
/* As the config server has it now. */
ErrCode ddl_read_database(DdlRun *run, Str db, DdlDatabase *ret_database, Error *err) MUST_CHECK;
/* Locks of a database are its primary shard's. ERR_STALE_DB_VERSION: that is not this one (any
 * more), so whoever asked is to ask elsewhere. ERR_CONFLICTING_OPERATION_IN_PROGRESS: it is, but
 * whoever made it so has not finished. */
ErrCode ddl_check_primary(DdlRun *run, Str db, Error *err) MUST_CHECK;

/* As the config server has it now. */
ErrCode ddl_read_route(DdlRun *run, const Ns *ns, CollectionRoute **ret_route, Error *err)
    MUST_CHECK;
ErrCode ddl_ask_config(DdlRun *run, DocBuilder *b, ClientReply *reply, Error *err) MUST_CHECK;
ErrCode ddl_commit_drop(DdlRun *run, const Ns *ns, const Uuid *uuid, Error *err) MUST_CHECK;
/* `uuid` as a client gave it, or missing: does the name stand for that collection here?
 * ERR_COLLECTION_UUID_MISMATCH. */
ErrCode ddl_check_expected(DdlRun *run, const Ns *ns, Elem uuid, Error *err) MUST_CHECK;
/* The uuid of a collection of this shard, if there is one. */
ErrCode ddl_local_uuid(DdlRun *run, const Ns *ns, bool *ret_found, Uuid *ret_uuid, Error *err)
    MUST_CHECK;
