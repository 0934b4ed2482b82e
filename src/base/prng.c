#include "base/prng.h"

#include <errno.h>
#include <sys/random.h>

#include "base/error.h"

void secure_random(void *out, size_t size) {
    uint8_t *at = out;
    while (size > 0) {
        ssize_t got = getrandom(at, size, 0);
        if (got < 0 && errno == EINTR)
            continue;
        invariant(got > 0);
        at += got;
        size -= (size_t)got;
    }
}
