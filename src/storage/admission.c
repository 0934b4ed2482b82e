/*
 * admission.c - sizes the ticket pools: fixed by a parameter, or adjusted to maximize throughput.
 *
 * The probe (concurrency/throughput_probe.h) is pure; this thread feeds it every 100 ms, long
 * enough for hundreds of operations to finish and short enough to follow a change of load.
 */
#include "base/clock.h"
#include "base/log.h"
#include "storage/storage_internal.h"

enum {
    ADMISSION_INTERVAL_US = 100 * 1000,
    /* Two pools of 64 make the 128 threads up to which WiredTiger 3.2.1 keeps its throughput: 200
     * threads halve it, 400 stall for seconds. */
    TICKETS_GREATEST = 64,
    /* Fewer would let a few operations that wait for the disk block everything else. */
    TICKETS_LEAST = 5,
};

static const ProbeConfig PROBE = {
    .least = TICKETS_LEAST, .greatest = TICKETS_GREATEST, .step = 0.1, .weight = 0.2};

TicketPool *storage_tickets(StorageEngine *engine, bool is_write) {
    return is_write ? engine->write_tickets : engine->read_tickets;
}

void storage_set_tickets(StorageEngine *engine, bool is_write, int32_t total) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&engine->admission_mu);
    engine->is_probing[is_write] = total == 0;
    int32_t tickets = total == 0 ? TICKETS_INITIAL : total;
    probe_init(&engine->probes[is_write], &PROBE, tickets);
    ticket_pool_resize(storage_tickets(engine, is_write), tickets);
}

AdmissionStats storage_admission_stats(StorageEngine *engine, bool is_write) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&engine->admission_mu);
    const ThroughputProbe *probe = &engine->probes[is_write];
    return (AdmissionStats){probe->increased_total, probe->decreased_total};
}

static void look_at(StorageEngine *engine, bool is_write, double elapsed_s) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&engine->admission_mu);
    TicketPool *pool = storage_tickets(engine, is_write);
    TicketStats stats = ticket_stats_for_probe(pool);
    double throughput = (double)(stats.finished_total - engine->finished[is_write]) / elapsed_s;
    bool is_idle = stats.finished_total == engine->finished[is_write] && stats.queued == 0;
    engine->finished[is_write] = stats.finished_total;
    /* No load is no evidence about the right number. */
    if (!engine->is_probing[is_write] || is_idle)
        return;
    int32_t tickets = probe_step(&engine->probes[is_write], throughput, stats.was_exhausted);
    if (tickets != stats.total)
        ticket_pool_resize(pool, tickets);
}

void admission_run(void *arg) {
    StorageEngine *engine = arg;
    log_set_thread_name("Admission");
    int64_t last_us = clock_mono_us();
    while (round_thread_wait(&engine->admission, last_us + ADMISSION_INTERVAL_US)) {
        int64_t now_us = clock_mono_us();
        double elapsed_s = (double)(now_us - last_us) / 1e6;
        last_us = now_us;
        look_at(engine, /* is_write= */ false, elapsed_s);
        look_at(engine, /* is_write= */ true, elapsed_s);
    }
}
