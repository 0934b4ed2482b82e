#include "up/backoff.h"

int64_t backoff_delay_ms(Backoff *backoff, int64_t lived_ms) {
    if (backoff->next_ms == 0 || lived_ms >= BACKOFF_FORGIVEN_MS)
        backoff->next_ms = BACKOFF_MS_MIN;
    int64_t delay_ms = backoff->next_ms;
    backoff->next_ms = delay_ms * 2 < BACKOFF_MS_MAX ? delay_ms * 2 : BACKOFF_MS_MAX;
    return delay_ms;
}
