#include "sharding/migration/beside.h"

#include "base/log.h"
#include "storage/engine.h"

static void do_work(void *arg) {
    Beside *beside = arg;
    beside->rc = beside->work(beside->arg, beside->op, &beside->err);
}

static void run_thread(void *arg) {
    log_set_thread_name("MoveHelper");
    do_work(arg);
}

void beside_start(Beside *beside, const MoveRun *run, BesideWork work, void *arg) {
    ServiceCtx *service = run->op->service;
    OpCtx *op = op_ctx_new(service->ops, NULL, NULL);
    op->service = service;
    op->is_kill_exempt = true; /* as that of the task: the step would be tried again */
    op_attach_storage(op, service->storage);
    op_begin(op,
             &(OpDescription){.op_type = "none", .ns = run->move.ns.text, .desc = "MoveHelper"});
    op->mode.is_from_migrate = op->mode.is_validation_bypassed = true;
    *beside = (Beside){.op = op, .work = work, .arg = arg};
    Error err = {0};
    if (thread_start(&beside->thread, "MoveHelper", run_thread, beside, &err) != ERR_OK)
        error_reset(&err);
}

ErrCode beside_join(Beside *beside, Error *err) {
    if (beside->thread.is_started)
        thread_join(&beside->thread);
    else
        do_work(beside);
    beside->work = NULL;
    error_move(err, &beside->err);
    return beside->rc;
}

void beside_done(Beside *beside) {
    if (beside->op == NULL)
        return;
    if (beside->work != NULL && beside->thread.is_started) {
        op_kill(beside->op, ERR_INTERRUPTED);
        thread_join(&beside->thread);
    }
    error_reset(&beside->err);
    op_end(beside->op);
    op_ctx_free(beside->op);
    *beside = (Beside){0};
}
