#include "commands/core/statement_notes.h"

#include <string.h>

#include "base/clock.h"
#include "commands/core/command_service.h"

enum {
    ERROR_TEXT_BYTES_MAX = 4096,
};

void statement_begin(CommandCtx *ctx) {
    CommandSettings *settings = command_settings(ctx->service);
    if (LIKELY(atomic_load_explicit(&settings->profile_level, memory_order_relaxed) == 0))
        return;
    if (ctx->notes == NULL)
        ctx->notes = ARENA_NEW(cmd_arena(ctx), StatementNotes);
    OpCtx *op = ctx->op;
    mutex_lock(&op->mu);
    op->desc.plan_summary = NULL;
    op->desc.exec_stats = NULL;
    mutex_unlock(&op->mu);
    op->metrics.has_sort_stage = op->metrics.is_from_trial = false; /* of the last one */
    op->metrics.replan_works = 0;
    op->metrics.replan_error = NULL;
    ctx->notes->start_us = clock_mono_us();
    ctx->notes->before = ctx->op->metrics;
}

/* The counters that the profiler tells. */
static OpMetrics metrics_since(const OpMetrics *now, const OpMetrics *before) {
    return (OpMetrics){
        .keys_examined = now->keys_examined - before->keys_examined,
        .docs_examined = now->docs_examined - before->docs_examined,
        .docs_returned = now->docs_returned - before->docs_returned,
        .docs_inserted = now->docs_inserted - before->docs_inserted,
        .docs_matched = now->docs_matched - before->docs_matched,
        .docs_modified = now->docs_modified - before->docs_modified,
        .docs_deleted = now->docs_deleted - before->docs_deleted,
        .keys_inserted = now->keys_inserted - before->keys_inserted,
        .keys_deleted = now->keys_deleted - before->keys_deleted,
        .write_conflicts = now->write_conflicts - before->write_conflicts,
        .yields = now->yields - before->yields,
        .replan_works_expected = now->replan_works_expected,
        .replan_works = now->replan_works,
        .replan_error = now->replan_error,
        .has_sort_stage = now->has_sort_stage,
        .is_from_trial = now->is_from_trial,
        .used_disk = now->used_disk,
    };
}

static StatementNote *next_row(StatementNotes *notes, Arena *arena) {
    uint32_t at = notes->count++ % STATEMENT_NOTES_MAX;
    if (at >= notes->capacity) {
        uint32_t capacity = notes->capacity > 0 ? notes->capacity * 2 : 1;
        StatementNote *rows = ARENA_ARRAY(arena, StatementNote, capacity);
        if (notes->capacity > 0)
            memcpy(rows, notes->rows, notes->capacity * sizeof(*rows));
        notes->rows = rows;
        notes->capacity = capacity;
    }
    return &notes->rows[at];
}

void statement_end(CommandCtx *ctx, Doc statement, ErrCode rc, const Error *err) {
    StatementNotes *notes = ctx->notes;
    if (LIKELY(notes == NULL))
        return;
    const OpDescription *desc = &ctx->op->desc;
    Arena *arena = cmd_arena(ctx);
    *next_row(notes, arena) = (StatementNote){
        .statement = statement,
        .metrics = metrics_since(&ctx->op->metrics, &notes->before),
        .plan_summary = desc->plan_summary != NULL ? arena_strdup(arena, desc->plan_summary) : NULL,
        .exec_stats =
            desc->exec_stats != NULL ? doc_copy((Doc){desc->exec_stats}, arena).data : NULL,
        .duration_us = clock_mono_us() - notes->start_us,
        .rc = rc,
        .error_text = rc != ERR_OK
                          ? arena_printf(arena, "%.*s", ERROR_TEXT_BYTES_MAX, error_message(err))
                          : NULL,
    };
}
