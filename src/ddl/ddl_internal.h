/*
 * ddl_internal.h - shared by the files of ddl/.
 */
#pragma once

#include "ddl/ddl.h"
#include "storage/unit_of_work.h"

/* A new, empty collection instance with its tables made; not in the catalog yet. */
ErrCode ddl_build_collection(OpCtx *op, const Ns *ns, Doc options, const Uuid *uuid,
                             Collection **ret_coll, Error *err) MUST_CHECK;
/* Its tables are not wanted after all. */
void ddl_discard_collection(OpCtx *op, Collection *coll);
/* A database name that differs from an existing one only in case is refused. */
ErrCode ddl_check_db_case(OpCtx *op, const Ns *ns, Error *err) MUST_CHECK;
/* Fails with ERR_BACKGROUND_OPERATION_IN_PROGRESS_FOR_NAMESPACE while an index of the collection is
 * being built; NULL is fine. */
ErrCode ddl_check_no_build(const Collection *coll, Error *err) MUST_CHECK;
/* Tells the observers. */
ErrCode ddl_observe(OpCtx *op, const Ns *ns, const Uuid *uuid, Doc o, Error *err) MUST_CHECK;
/* {<command>: <collection>} for observers, in the operation's arena. */
Doc ddl_simple_entry(OpCtx *op, const char *command, const Ns *ns);
/* Replaces, adds or removes (missing value) members of an options document. */
Doc ddl_options_with(Doc options, const char *const *names, const Elem *values, size_t count,
                     Arena *arena);
