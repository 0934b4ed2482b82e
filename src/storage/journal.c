/*
 * journal.c - group commit: many waiters, one fsync.
 *
 * A waiter takes a ticket. If no flush is running it becomes the leader: it records the highest
 * ticket handed out so far, flushes, and marks all tickets up to it as done. Requests that arrive
 * during a flush are served by the next round, led by one of their waiters; the two rounds have
 * separate conditions, so that no waiter is woken in vain. (WiredTiger's own group commit gives a
 * fifth of the throughput at 32 writers.)
 *
 * Callers that do not wait (storage_ask_flush, storage_begin_flush) are notified by the hook
 * after_flush; rounds without waiters are led by the flusher thread.
 *
 * A failed fsync is final: the kernel may have dropped the dirty pages, so a retry could report
 * success for lost data. All waiters fail and the process stops.
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

/* The round that serves new requests. A waiter stays with that round, even if another thread leads
 * it. */
static uint32_t next_round(const JournalState *journal) {
    return (journal->round + 1) % JOURNAL_ROUNDS;
}

/* Picks a leader for the next round. A waiter is preferred over the flusher thread: it is woken
 * anyway when the round ends, so one wake-up is saved. */
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
    /* Under the mutex and before the flush: a commit precedes its ticket, so everything up to here
     * is in WiredTiger's log buffer by now. */
    uint64_t covers = journal->requested;
    uint32_t round = ++journal->round % JOURNAL_ROUNDS;
    mutex_unlock(&journal->mu);

    /* Before the flush: a commit during it sets the flag again and gets a flush of its own. */
    atomic_store(&engine->is_written_since_flush, false);
    const StorageHooks *hooks = &engine->hooks;
    uint64_t token = hooks->before_flush != NULL ? hooks->before_flush(hooks->arg) : 0;
    failpoint_hit(FP_JOURNAL_FLUSH_BEFORE);
    int rc = WT_APART(journal->session->log_flush(journal->session, "sync=on"));
    if (rc == 0)
        /* After the flush and before any waiter is released: once a write has been acknowledged the
         * mark must cover it, or damage to it would be taken for the end of the journal. */
        journal_mark_write(engine->journal_mark);
    failpoint_hit(FP_JOURNAL_FLUSH_AFTER);
    if (rc != 0) {
        LOG_FATAL(LOG_STORAGE, 7100105, "Journal flush failed; stopping at once",
                  LOG_STR("error", wiredtiger_strerror(rc)));
        _exit(EXIT_FSYNC_FAILED);
    }
    /* Still as leader: replication relies on tokens arriving in order. */
    if (hooks->after_flush != NULL)
        hooks->after_flush(hooks->arg, token);

    mutex_lock(&journal->mu);
    journal->done = covers;
    journal->is_leader_at_work = false;
    journal->waiting[round] = 0;
    cond_broadcast(&journal->round_done[round]);
    choose_leader(journal);
}

/* Returns when the round is done or this thread has been chosen to lead it; the caller checks
 * which. */
static void wait_for_round(JournalState *journal, uint32_t round) {
    journal->waiting[round]++;
    cond_wait(&journal->round_done[round], &journal->mu);
}

void journal_pause(StorageEngine *engine) {
    JournalState *journal = &engine->journal;
    mutex_lock(&journal->mu);
    while (journal->is_leader_at_work) {
        /* Otherwise the end of the running round would choose no leader and wake nobody. */
        journal->requested++;
        wait_for_round(journal, next_round(journal));
    }
    journal->is_leader_at_work = true; /* blocks every other leader until journal_resume */
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
    /* A running leader chooses the flusher itself when it is done. */
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
        if (UNLIKELY(failpoint_is_set(FP_PAUSE_JOURNAL_FLUSHER))) {
            mutex_unlock(&journal->mu);
            failpoint_hang(FP_PAUSE_JOURNAL_FLUSHER);
            mutex_lock(&journal->mu);
            continue;
        }
        if (journal->requested > journal->done && !journal->is_leader_at_work) {
            flush_as_leader(engine, journal);
            continue;
        }
        int64_t until_us = clock_mono_us() + atomic_load(&engine->journal_interval_ms) * 1000;
        bool is_asked = cond_wait_until(&journal->asked, &journal->mu, until_us);
        /* The interval has passed: flush only if there is something to flush, so that an idle disk
         * can sleep. */
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
