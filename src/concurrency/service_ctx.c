#include "concurrency/service_ctx.h"

#include <stddef.h>

#include "base/clock.h"

uint64_t service_next_ts(void *arg) {
    ServiceCtx *service = arg;
    if (service->tick != NULL)
        return service->tick(service);
    uint64_t wall_ts = (uint64_t)(clock_wall_ms() / 1000) << 32 | 1;
    uint64_t last = atomic_load(&service->last_ts), next;
    do
        next = wall_ts > last ? wall_ts : last + 1;
    while (!atomic_compare_exchange_weak(&service->last_ts, &last, next));
    return next;
}
