/*
 * journal.c - group commit: many waiters, one fsync.
 *
 * A waiter takes a ticket. If nobody is flushing it becomes the leader: it notes the highest ticket
 * given so far, flushes, and marks all tickets up to it as done. Whoever came while the leader was
 * flushing is served by the next round, led by one of them; the two rounds have a condition each,
 * so that nobody wakes up in vain. (WiredTiger's own grouping gives a fifth of the throughput at
 * 32 writers.)
 *
 * Those who only ask (storage_ask_flush, storage_begin_flush) learn of the end by the hook
 * after_flush; rounds that nobody waits for are led by the flusher's thread.
 *
 * A failed fsync is final: the kernel may have dropped the dirty pages, so trying again could
 * report success for lost data. All waiters fail and the process stops.
 */
#include <unistd.h>

#include "base/clock.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "storage/storage_internal.h"

enum {
    EXIT_FSYNC_FAILED = 14,
};

void journal_init(JournalState *journal) {
    mutex_init(&journal->mu, LOCK_RANK_JOURNAL);
    cond_init(&journal->asked);
    for (uint32_t i = 0; i < JOURNAL_ROUNDS; i++)
        cond_init(&journal->round_done[i]);
}

void journal_done(JournalState *journal) {
    for (uint32_t i = 0; i < JOURNAL_ROUNDS; i++)
        cond_done(&journal->round_done[i]);
    cond_done(&journal->asked);
    mutex_done(&journal->mu);
}

ErrCode journal_open(StorageEngine *engine, Error *err) {
    return storage_open_session(engine, &engine->journal.session, err);
}

void journal_close(StorageEngine *engine) {
    wt_session_close(&engine->journal.session);
}

/* The round that serves those who come now. Whoever waits for it goes on waiting for the same one,
 * also when somebody else leads it. */
static uint32_t next_round(const JournalState *journal) {
    return (journal->round + 1) % JOURNAL_ROUNDS;
}

/* Somebody has to lead the next round. */
static void choose_leader(JournalState *journal) {
    assert_held(&journal->mu);
    if (journal->requested == journal->done)
        return;
    uint32_t next = next_round(journal);
    bool is_waited_for = journal->waiting[next] > 0;
    if (is_waited_for)
        journal->waiting[next]--;
    cond_signal(is_waited_for ? &journal->round_done[next] : &journal->asked);
}

static void flush_as_leader(StorageEngine *engine, JournalState *journal) {
    assert_held(&journal->mu);
    journal->is_leader_at_work = true;
    uint64_t covers = journal->requested;
    uint32_t round = ++journal->round % JOURNAL_ROUNDS;
    mutex_unlock(&journal->mu);

    atomic_store(&engine->is_written_since_flush, false);
    const StorageHooks *hooks = &engine->hooks;
    uint64_t token = hooks->before_flush != NULL ? hooks->before_flush(hooks->arg) : 0;
    failpoint_hit(FP_JOURNAL_FLUSH_BEFORE);
    int rc = WT_APART(journal->session->log_flush(journal->session, "sync=on"));
    if (rc == 0)
        journal_mark_write(engine->journal_mark);
    failpoint_hit(FP_JOURNAL_FLUSH_AFTER);
    if (rc != 0) {
        LOG_FATAL(LOG_STORAGE, 7100105, "Journal flush failed; stopping at once",
                  LOG_STR("error", wiredtiger_strerror(rc)));
        _exit(EXIT_FSYNC_FAILED);
    }
    if (hooks->after_flush != NULL)
        hooks->after_flush(hooks->arg, token);

    mutex_lock(&journal->mu);
    journal->done = covers;
    journal->is_leader_at_work = false;
    journal->waiting[round] = 0;
    cond_broadcast(&journal->round_done[round]);
    choose_leader(journal);
}

/* Until that round is done, or this thread may lead it. */
static void wait_for_round(JournalState *journal, uint32_t round) {
    journal->waiting[round]++;
    cond_wait(&journal->round_done[round], &journal->mu);
}

void journal_pause(StorageEngine *engine) {
    JournalState *journal = &engine->journal;
    mutex_lock(&journal->mu);
    while (journal->is_leader_at_work) {
        journal->requested++; /* so that the end of the running round wakes somebody */
        wait_for_round(journal, next_round(journal));
    }
    journal->is_leader_at_work = true; /* nobody else becomes one */
    mutex_unlock(&journal->mu);
}

void journal_resume(StorageEngine *engine) {
    JournalState *journal = &engine->journal;
    mutex_lock(&journal->mu);
    journal->is_leader_at_work = false;
    choose_leader(journal);
    mutex_unlock(&journal->mu);
}

static void wait_durable(StorageEngine *engine) {
    JournalState *journal = &engine->journal;
    mutex_lock(&journal->mu);
    uint64_t ticket = ++journal->requested;
    uint32_t round = next_round(journal);
    while (journal->done < ticket) {
        if (journal->is_leader_at_work)
            wait_for_round(journal, round);
        else
            flush_as_leader(engine, journal);
    }
    mutex_unlock(&journal->mu);
}

ErrCode storage_wait_durable(StorageEngine *engine, OpCtx *op, Error *err) {
    (void)err;
    if (op != NULL)
        op_block_begin(op);
    wait_durable(engine);
    if (op != NULL)
        op_block_end(op);
    return ERR_OK;
}

void storage_begin_flush(StorageEngine *engine, OpCtx *op) {
    JournalState *journal = &engine->journal;
    op_block_begin(op);
    mutex_lock(&journal->mu);
    journal->requested++;
    if (!journal->is_leader_at_work)
        flush_as_leader(engine, journal);
    mutex_unlock(&journal->mu);
    op_block_end(op);
}

void storage_ask_flush(StorageEngine *engine) {
    JournalState *journal = &engine->journal;
    mutex_lock(&journal->mu);
    journal->requested++;
    if (!journal->is_leader_at_work)
        cond_signal(&journal->asked);
    mutex_unlock(&journal->mu);
}

void journal_flusher_run(void *arg) {
    StorageEngine *engine = arg;
    JournalState *journal = &engine->journal;
    log_set_thread_name("JournalFlusher");
    mutex_lock(&journal->mu);
    while (!journal->is_stopping) {
        if (journal->requested > journal->done && !journal->is_leader_at_work) {
            flush_as_leader(engine, journal);
            continue;
        }
        int64_t until_us = clock_mono_us() + atomic_load(&engine->journal_interval_ms) * 1000;
        bool is_asked = cond_wait_until(&journal->asked, &journal->mu, until_us);
        if (!is_asked && atomic_load(&engine->is_written_since_flush))
            journal->requested++;
    }
    mutex_unlock(&journal->mu);
}

void journal_flusher_stop(StorageEngine *engine) {
    JournalState *journal = &engine->journal;
    mutex_lock(&journal->mu);
    journal->is_stopping = true;
    cond_signal(&journal->asked);
    mutex_unlock(&journal->mu);
    thread_join(&engine->flusher);
}
