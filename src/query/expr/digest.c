#include "query/expr/digest.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

static int compare(const void *a, const void *b) {
    double x = ((const Centroid *)a)->mean, y = ((const Centroid *)b)->mean;
    return (x > y) - (x < y);
}

void digest_sort(Centroid *centroids, size_t count) {
    qsort(centroids, count, sizeof(*centroids), compare);
}

double digest_weight(const Centroid *centroids, size_t count) {
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += centroids[i].weight;
    return sum;
}

/* A centroid may reach from the quantile `from` to this one: one step of the scale
 * k(q) = delta / (2 pi) * asin(2 q - 1), which is steep at 0 and 1. */
static double quantile_limit(double from) {
    double k = asin(2 * from - 1) + 2 * M_PI / DIGEST_DELTA;
    return k >= M_PI / 2 ? 1 : (sin(k) + 1) / 2;
}

size_t digest_compress(Centroid *centroids, size_t count) {
    if (count < 3)
        return count;
    double total = digest_weight(centroids, count);
    size_t kept = 0; /* the one that grows */
    double before = 0;
    double limit = quantile_limit(0) * total;
    for (size_t i = 1; i < count; i++) {
        Centroid *grows = &centroids[kept];
        double weight = grows->weight + centroids[i].weight;
        /* The least and the greatest number stay alone, so that they are found. An infinite mean
         * has no neighbours: their mean would be infinite, too, or no number. */
        bool is_inner = kept > 0 && i + 1 < count;
        if (is_inner && before + weight <= limit && isfinite(grows->mean) &&
            isfinite(centroids[i].mean)) {
            grows->mean += (centroids[i].mean - grows->mean) * (centroids[i].weight / weight);
            grows->weight = weight;
            continue;
        }
        before += grows->weight;
        limit = quantile_limit(before / total) * total;
        centroids[++kept] = centroids[i];
    }
    return kept + 1;
}

double digest_at(const Centroid *centroids, size_t count, double rank) {
    double seen = 0;
    for (size_t i = 0; i < count; i++) {
        seen += centroids[i].weight;
        if (seen >= rank)
            return centroids[i].mean;
    }
    return centroids[count - 1].mean;
}
