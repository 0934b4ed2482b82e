#include "catalog/write_observer.h"

#include "catalog/catalog.h"
#include "catalog/catalog_internal.h"
#include "storage/recovery_unit.h"

static void on_prepare(void *arg, OpCtx *op, uint64_t prepare_ts);
static void on_end(void *arg, OpCtx *op, bool is_committed, uint64_t commit_ts);

WriteObservers *catalog_write_observers(CatalogService *service) {
    return &service->observers;
}

void write_observer_register(CatalogService *service, const WriteObserver *observer) {
    WriteObservers *observers = &service->observers;
    invariant(observers->count < WRITE_OBSERVERS_MAX);
    observers->listener = (RuListener){observers, on_prepare, on_end};
    if (observer->on_commit != NULL || observer->on_abort != NULL || observer->on_prepare != NULL)
        observers->with_ends |= (uint8_t)(1u << observers->count);
    observers->rows[observers->count++] = *observer;
}

void write_observer_note(WriteObservers *observers, OpCtx *op, size_t i) {
    op->observers_heard |= (uint8_t)(1u << i);
    ru_set_listener(op->ru, &observers->listener);
}

static bool has_heard(uint8_t heard, size_t i) {
    return (heard >> i & 1) != 0;
}

static void on_prepare(void *arg, OpCtx *op, uint64_t prepare_ts) {
    const WriteObservers *observers = arg;
    for (size_t i = 0; i < observers->count; i++)
        if (has_heard(op->observers_heard, i) && observers->rows[i].on_prepare != NULL)
            observers->rows[i].on_prepare(observers->rows[i].arg, op, prepare_ts);
}

static void on_end(void *arg, OpCtx *op, bool is_committed, uint64_t commit_ts) {
    const WriteObservers *observers = arg;
    uint8_t heard = op->observers_heard;
    op->observers_heard = 0; /* first: an observer may begin a unit of work of its own */
    for (size_t i = 0; is_committed && i < observers->count; i++)
        if (has_heard(heard, i) && observers->rows[i].on_commit != NULL)
            observers->rows[i].on_commit(observers->rows[i].arg, op, commit_ts);
    for (size_t i = observers->count; !is_committed && i-- > 0;)
        if (has_heard(heard, i) && observers->rows[i].on_abort != NULL)
            observers->rows[i].on_abort(observers->rows[i].arg, op);
}
