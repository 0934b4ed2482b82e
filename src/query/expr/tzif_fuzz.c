/*
 * tzif_fuzz.c - any bytes as a file of the tz database: refused, or spans that rise.
 */
#include <stdlib.h>

#include "query/expr/tzif.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    ZoneSpans spans = {NULL};
    if (!tzif_parse(data, size, 2438, &spans))
        return 0;
    if (spans.count == 0 || spans.rows[0].from_ms != INT64_MIN)
        abort();
    for (uint32_t i = 1; i < spans.count; i++)
        if (spans.rows[i].from_ms <= spans.rows[i - 1].from_ms)
            abort();
    zone_spans_done(&spans);
    return 0;
}
