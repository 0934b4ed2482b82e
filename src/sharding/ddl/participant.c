#include "sharding/ddl/participant.h"

#include "catalog/access.h"
#include "ddl/ddl.h"
#include "sharding/range_deletion/range_tasks.h"
#include "sharding/shard/critical_section.h"
#include "storage/record_store.h"

enum {
    INDEXES_MAX = 64,
};

ErrCode participant_block(OpCtx *op, const DdlCaller *caller, const Ns *ns, Str type, Doc reason,
                          Error *err) {
    CLEANUP(op_mutex_unlock) OpMutexLock lock = {0};
    TRY(fence_pass(op, ns_str(ns), caller->coordinator, caller->term, &lock, err));
    if (str_is(type, "Writes"))
        return section_enter(op, ns, SECTION_WRITES, reason, err);
    if (str_is(type, "ReadsAndWrites"))
        return section_enter(op, ns, SECTION_READS_AND_WRITES, reason, err);
    if (str_is(type, "UnshardedWrites"))
        return section_enter(op, ns, SECTION_UNSHARDED_WRITES, reason, err);
    if (str_is(type, "UnshardedReadsAndWrites"))
        return section_enter(op, ns, SECTION_UNSHARDED_READS_AND_WRITES, reason, err);
    if (!str_is(type, "Unblock"))
        return error_set(err, ERR_BAD_VALUE, "unknown blockType \"%.*s\"", (int)type.size,
                         type.data);
    return section_leave(op, ns, reason, err);
}

/* ---- create ---- */

static ErrCode is_there(OpCtx *op, const Ns *ns, const Uuid *uuid, bool *ret_exists,
                        bool *ret_is_same, bool *ret_is_empty, Error *err) {
    CLEANUP(access_done) CollAccess access = {0};
    TRY(access_read(op, ns, &access, err));
    *ret_exists = access.coll != NULL;
    *ret_is_same = access.coll != NULL && uuid_equal(&access.coll->uuid, uuid);
    *ret_is_empty = true;
    if (access.coll == NULL)
        return ERR_OK;
    CLEANUP(record_cursor_done) RecordCursor cursor = {0};
    TRY(record_cursor_open(op, access.coll->records, /* is_forward= */ true, &cursor, err));
    RecordId rid;
    Str data;
    bool is_found;
    TRY(record_cursor_next(&cursor, &is_found, &rid, &data, err));
    *ret_is_empty = !is_found;
    return ERR_OK;
}

/* Without a collation an index has the simple one where it comes from; here it would get that of
 * the collection. */
static Doc with_collation(OpCtx *op, Doc spec) {
    if (elem_is_present(doc_get_lit(spec, "collation")))
        return spec;
    DocBuilder b = doc_builder_in_arena(&op->arena);
    build_all(&b, spec);
    size_t collation = build_open_doc(&b, "collation");
    build_cstr(&b, "locale", "simple");
    build_close(&b, collation);
    return doc_builder_end(&b);
}

static ErrCode create_indexes(OpCtx *op, const Ns *ns, Doc indexes, Error *err) {
    Doc specs[INDEXES_MAX];
    uint32_t count = 0;
    DocIter iter = doc_iter(indexes);
    for (Elem row; doc_iter_next(&iter, &row);) {
        if (elem_type(row) != BT_DOC || count == INDEXES_MAX)
            return error_set(err, ERR_BAD_VALUE, "a collection has at most %d indexes",
                             INDEXES_MAX);
        specs[count++] = with_collation(op, elem_doc(row));
    }
    CreateIndexesResult result;
    return count == 0 ? ERR_OK : ddl_create_indexes(op, ns, specs, count, &result, err);
}

ErrCode participant_create(OpCtx *op, const DdlCaller *caller, const Ns *ns, const Uuid *uuid,
                           Doc options, Doc indexes, Error *err) {
    CLEANUP(op_mutex_unlock) OpMutexLock lock = {0};
    TRY(fence_pass(op, ns_str(ns), caller->coordinator, caller->term, &lock, err));
    return participant_create_here(op, ns, uuid, options, indexes, err);
}

ErrCode participant_create_here(OpCtx *op, const Ns *ns, const Uuid *uuid, Doc options, Doc indexes,
                                Error *err) {
    CLEANUP(op_mode_restore) OpModeScope scope = op_mode_scope(op);
    op->mode.is_from_migrate = true;
    bool exists, is_same, is_empty;
    TRY(is_there(op, ns, uuid, &exists, &is_same, &is_empty, err));
    if (exists && !is_same) {
        if (!is_empty)
            return error_set(err, ERR_NAMESPACE_EXISTS,
                             "there is another collection %s on this shard, with documents",
                             ns->text);
        DropResult dropped;
        TRY(ddl_drop(op, ns, NULL, &dropped, err));
    }
    if (!is_same)
        TRY(ddl_create_collection(op, ns, options, uuid, err));
    return create_indexes(op, ns, indexes, err);
}

static bool is_built(const Collection *coll, Elem name, bool is_owner) {
    const IndexDesc *index =
        elem_type(name) == BT_STRING ? collection_find_index(coll, elem_str(name)) : NULL;
    return index != NULL && (index->is_ready || is_owner);
}

static ErrCode find_unbuilt(OpCtx *op, const Ns *ns, const Uuid *uuid, Doc indexes, bool is_owner,
                            Doc *ret_unbuilt, Error *err) {
    CLEANUP(access_done) CollAccess access = {0};
    TRY(access_read(op, ns, &access, err));
    bool is_here = access.coll != NULL && uuid_equal(&access.coll->uuid, uuid);
    DocBuilder b = doc_builder_in_arena(&op->arena);
    uint32_t count = 0;
    DocIter iter = doc_iter(indexes);
    for (Elem row; doc_iter_next(&iter, &row);) {
        char name[INDEX_NAME_SIZE];
        if (elem_type(row) == BT_DOC &&
            !(is_here && is_built(access.coll, doc_get_lit(elem_doc(row), "name"), is_owner)))
            build_doc(&b, index_name(count++, name).data, elem_doc(row));
    }
    *ret_unbuilt = doc_builder_end(&b);
    return ERR_OK;
}

ErrCode participant_choose_indexes(OpCtx *op, const Ns *ns, const Uuid *uuid, Doc indexes,
                                   bool is_owner, Doc *ret_wanted, Error *err) {
    TRY(find_unbuilt(op, ns, uuid, indexes, is_owner, ret_wanted, err));
    bool exists, is_same, is_empty;
    TRY(is_there(op, ns, uuid, &exists, &is_same, &is_empty, err));
    if (doc_is_empty(*ret_wanted) || !is_same || is_empty)
        return ERR_OK;
    Elem first = doc_get_lit(*ret_wanted, "0");
    Elem name = doc_get_lit(elem_doc(first), "name");
    return error_set(err, ERR_CANNOT_CREATE_INDEX,
                     "the collection %s has documents on this shard, but not the index \"%s\" of "
                     "the donor, or its build has not ended. Non-trivial index creation should be "
                     "scheduled manually",
                     ns->text, elem_type(name) == BT_STRING ? elem_str(name).data : "");
}

/* ---- drop and rename ---- */

ErrCode participant_drop(OpCtx *op, const DdlCaller *caller, const Ns *ns, const Uuid *uuid,
                         bool is_from_migrate, Error *err) {
    CLEANUP(op_mutex_unlock) OpMutexLock lock = {0};
    TRY(fence_pass(op, ns_str(ns), caller->coordinator, caller->term, &lock, err));
    CLEANUP(op_mode_restore) OpModeScope scope = op_mode_scope(op);
    op->mode.is_from_migrate = is_from_migrate;
    DropResult result = {0};
    bool exists, is_same = true, is_empty;
    if (uuid != NULL)
        TRY(is_there(op, ns, uuid, &exists, &is_same, &is_empty, err));
    if (is_same)
        TRY(ddl_drop(op, ns, uuid, &result, err));
    /* Their documents went with it. A crash in between leaves them to the range deleter. */
    return result.was_found && !result.was_view ? range_tasks_remove(op, &result.uuid, err)
                                                : ERR_OK;
}

ErrCode participant_drop_database(OpCtx *op, const DdlCaller *caller, Str db, bool is_from_migrate,
                                  Error *err) {
    CLEANUP(op_mutex_unlock) OpMutexLock lock = {0};
    TRY(fence_pass(op, db, caller->coordinator, caller->term, &lock, err));
    CLEANUP(op_mode_restore) OpModeScope scope = op_mode_scope(op);
    op->mode.is_from_migrate = is_from_migrate;
    bool existed;
    return ddl_drop_database(op, db, &existed, err);
}

ErrCode participant_rename(OpCtx *op, const DdlCaller *caller, const Ns *from, const Ns *to,
                           const Uuid *uuid, bool is_from_migrate, Error *err) {
    CLEANUP(op_mutex_unlock) OpMutexLock lock = {0};
    TRY(fence_pass(op, ns_str(from), caller->coordinator, caller->term, &lock, err));
    CLEANUP(op_mode_restore) OpModeScope scope = op_mode_scope(op);
    op->mode.is_from_migrate = is_from_migrate;
    bool exists, is_same, is_empty;
    TRY(is_there(op, from, uuid, &exists, &is_same, &is_empty, err));
    if (is_same)
        return ddl_rename(op, from, to, /* is_drop_target= */ true, err);
    /* Done already; or this shard has nothing of the source, and what has the target's name goes.
     */
    TRY(is_there(op, to, uuid, &exists, &is_same, &is_empty, err));
    DropResult result;
    return exists && !is_same ? ddl_drop(op, to, NULL, &result, err) : ERR_OK;
}
