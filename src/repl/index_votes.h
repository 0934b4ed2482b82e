/*
 * index_votes.h - how the members of a replica set agree about index builds (IDX-4).
 *
 * The primary commits a build when enough members have it ready, which is its commit quorum. It
 * keeps the state of each build as a document of config.system.indexBuilds, which is replicated, so
 * that the next primary goes on from there:
 *
 *     {_id: <build>, collectionUUID, commitQuorum, indexNames, commitReadyMembers: [<host>, ...]}
 *
 * Threading: any thread.
 */
#pragma once

#include "repl/repl.h"

#define REPL_COMMIT_QUORUM_DEFAULT "votingMembers"

/* A number, "majority", "votingMembers" or a mode of the configuration. Fails with
 * ERR_FAILED_TO_PARSE, ERR_UNKNOWN_REPL_WRITE_CONCERN, and ERR_UNSATISFIABLE_COMMIT_QUORUM when
 * this set cannot have it. */
ErrCode repl_check_commit_quorum(Repl *repl, Elem quorum, Error *err) MUST_CHECK;

/* A member has the build ready. */
ErrCode repl_vote_commit_build(Repl *repl, OpCtx *op, const Uuid *build, Str host, Error *err)
    MUST_CHECK;
/* A member cannot have it: it is aborted everywhere. */
ErrCode repl_vote_abort_build(Repl *repl, const Uuid *build, Str host, Str reason, Error *err)
    MUST_CHECK;
/* Another quorum for the build. Fails as the check does, with ERR_BAD_VALUE from or to 0, and with
 * ERR_INDEX_NOT_FOUND when the build is over. */
ErrCode repl_set_commit_quorum(Repl *repl, OpCtx *op, const Uuid *build, Elem quorum, Error *err)
    MUST_CHECK;
