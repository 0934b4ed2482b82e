/*
 * coordinator_internal.h - the phases, for the table in coordinator.c.
 */
#pragma once

#include "sharding/ddl/coordinator.h"
#include "sharding/ddl/participants.h"

typedef ErrCode (*DdlPhase)(DdlRun *run, Error *err);

/* Each begins its operation: checks, and says which phase is next. */
ErrCode create_begin(DdlRun *run, Error *err) MUST_CHECK;
ErrCode drop_begin(DdlRun *run, Error *err) MUST_CHECK;
ErrCode drop_database_begin(DdlRun *run, Error *err) MUST_CHECK;
ErrCode rename_begin(DdlRun *run, Error *err) MUST_CHECK;
ErrCode apply_begin(DdlRun *run, Error *err) MUST_CHECK;
ErrCode move_primary_begin(DdlRun *run, Error *err) MUST_CHECK;

#define DDL_PHASES(PHASE)                                                                          \
    PHASE(create_block)                                                                            \
    PHASE(create_build)                                                                            \
    PHASE(create_participants)                                                                     \
    PHASE(create_commit)                                                                           \
    PHASE(create_release)                                                                          \
    PHASE(drop_block)                                                                              \
    PHASE(drop_commit)                                                                             \
    PHASE(drop_data)                                                                               \
    PHASE(drop_release)                                                                            \
    PHASE(drop_database_next)                                                                      \
    PHASE(drop_database_one)                                                                       \
    PHASE(drop_database_block)                                                                     \
    PHASE(drop_database_data)                                                                      \
    PHASE(drop_database_commit)                                                                    \
    PHASE(drop_database_release)                                                                   \
    PHASE(rename_block)                                                                            \
    PHASE(rename_local)                                                                            \
    PHASE(rename_data)                                                                             \
    PHASE(rename_commit)                                                                           \
    PHASE(rename_release)                                                                          \
    PHASE(apply_primary)                                                                           \
    PHASE(apply_others)                                                                            \
    PHASE(move_primary_block)                                                                      \
    PHASE(move_primary_clone)                                                                      \
    PHASE(move_primary_catch_up)                                                                   \
    PHASE(move_primary_enter)                                                                      \
    PHASE(move_primary_commit)                                                                     \
    PHASE(move_primary_clean)                                                                      \
    PHASE(move_primary_exit)                                                                       \
    PHASE(move_primary_refused)

#define PHASE(name) ErrCode name(DdlRun *run, Error *err) MUST_CHECK;
DDL_PHASES(PHASE)
#undef PHASE

/* Is it short enough for a sharded collection? */
ErrCode ddl_check_sharded_name(const Ns *ns, Error *err) MUST_CHECK;
/* Removes what participants have created for a collection that was not sharded after all. */
ErrCode create_undo(DdlRun *run, Error *err) MUST_CHECK;
/* Removes the copies, and lets requests in again. */
ErrCode move_primary_undo(DdlRun *run, Error *err) MUST_CHECK;
/* Appends {refused: {code, errmsg}}: a result with it is an error to whoever asked. For what is
 * refused past the point of no return, where a task that fails would try again. */
void ddl_build_refused(DocBuilder *b, const Error *err);
