/*
 * restore.c - a standalone node that recovers from the oplog of a member.
 *
 * The data of a member are those of its last stable checkpoint; a standalone node that is started
 * on them sees no more. One that recovers applies the oplog to its end first, as the member itself
 * would: so operators look at, or restore, a copy of a member's files as of the newest entry that
 * is there.
 *
 * The storage engine stays in the mode of a member. What is applied comes after the stable
 * timestamp and is in no checkpoint, so that it is gone with the process and the member finds its
 * data as they were. For the same reason nobody may write: the write would lie on data that the
 * next start does not have. `is_kept` lets the last checkpoint include all of it, by making it
 * stable: then this member cannot undo any of it in a rollback.
 *
 * Crash: nothing has changed, except that entries behind a hole were cut from the oplog, as by a
 * start of the member, and that the rollback id is another (rule 11 of README.md): recovery starts
 * over. Without history each checkpoint is kept, and recovery goes on from the newest one.
 */
#include "base/log.h"
#include "catalog/write_observer.h"
#include "repl/repl_internal.h"

static ErrCode refuse(OpCtx *op, const Ns *ns, Error *err) {
    if (op->mode.is_unreplicated || !ns_is_replicated(ns))
        return ERR_OK;
    return error_set(err, ERR_ILLEGAL_OPERATION,
                     "cannot write to \"%s\": this node was started with "
                     "recoverFromOplogAsStandalone and is read-only",
                     ns->text);
}

static ErrCode before_inserts(void *arg, OpCtx *op, const Collection *coll, const Doc *docs,
                              size_t count, Error *err) {
    (void)arg, (void)docs, (void)count;
    return refuse(op, &coll->ns, err);
}

static ErrCode on_insert(void *arg, OpCtx *op, const Collection *coll, Doc doc, size_t i,
                         Error *err) {
    (void)arg, (void)doc, (void)i;
    return refuse(op, &coll->ns, err);
}

static ErrCode on_update(void *arg, OpCtx *op, const Collection *coll, Doc before, Doc after,
                         const UpdateForm *form, Error *err) {
    (void)arg, (void)before, (void)after, (void)form;
    return refuse(op, &coll->ns, err);
}

static ErrCode on_delete(void *arg, OpCtx *op, const Collection *coll, Doc before, Error *err) {
    (void)arg, (void)before;
    return refuse(op, &coll->ns, err);
}

static ErrCode on_ddl(void *arg, OpCtx *op, const DdlEntry *entry, Error *err) {
    (void)arg;
    return refuse(op, entry->ns, err);
}

/* Whether this member builds indexes. */
static ErrCode note_own_config(Repl *repl, OpCtx *op, Error *err) {
    CLEANUP(repl_config_unref_ptr) ReplConfig *config = NULL;
    TRY(local_load_config(op, &config, err));
    int32_t self_index = config != NULL ? repl_find_self(repl, config) : REPL_INDEX_NONE;
    if (self_index >= 0)
        repl_note_indexes(repl, &config->members[self_index]);
    return ERR_OK;
}

static ErrCode restore(Repl *repl, OpCtx *op, double hours_min, Error *err) {
    TRY(repl_open_log(repl, op, hours_min, err));
    if (!oplog_exists(repl->oplog))
        return error_set(err, ERR_NAMESPACE_NOT_FOUND,
                         "recoverFromOplogAsStandalone: these data have no oplog (local.oplog.rs)");
    TRY(local_state_open(op, err));
    TRY(note_own_config(repl, op, err));
    TRY(repl_recover(repl, op, err));
    if (atomic_load(&repl->is_copy_unfinished))
        return error_set(err, ERR_ILLEGAL_OPERATION,
                         "recoverFromOplogAsStandalone: an initial sync of these data was not "
                         "finished, so they are incomplete");
    return repl_load_rollback_id(repl, op, err);
}

ErrCode repl_open_restored(OpCtx *op, const ReplSettings *settings, ReplRestore mode,
                           Repl **ret_repl, Error *err) {
    invariant(mode.is_kept || !mode.is_without_history);
    /* Before that of the oplog, which then has nothing to stage. */
    write_observer_register(op_catalog(op), &(WriteObserver){.before_inserts = before_inserts,
                                                             .on_insert = on_insert,
                                                             .on_update = on_update,
                                                             .on_delete = on_delete,
                                                             .on_ddl = on_ddl});
    Repl *repl = repl_new(op, settings);
    repl->is_kept = mode.is_kept;
    repl->is_without_history = mode.is_without_history;
    CLEANUP(op_mode_restore) OpModeScope scope = op_mode_scope(op);
    op->mode.is_unreplicated = true;
    if (restore(repl, op, settings->oplog_hours_min, err) != ERR_OK) {
        repl_free(repl);
        return err->code;
    }
    *ret_repl = repl;
    return ERR_OK;
}

void repl_end_restored(Repl *repl) {
    if (repl == NULL || !repl->is_kept)
        return;
    CLEANUP(error_reset) Error err = {0};
    uint64_t applied_ts = oplog_applied(repl->oplog).ts;
    if (storage_set_stable_and_oldest(repl->engine, applied_ts, applied_ts, &err) != ERR_OK)
        LOG_WARN(LOG_REPL, 7300253, "Could not keep what was applied from the oplog",
                 LOG_STR("error", error_message(&err)));
    else
        LOG_INFO(LOG_REPL, 7300254, "What was applied from the oplog is kept",
                 LOG_I64("untilSeconds", ts_seconds(applied_ts)));
}
