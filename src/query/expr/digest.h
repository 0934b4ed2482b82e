/*
 * digest.h - many numbers in little memory, for percentiles over several shards.
 *
 * A digest is a list of centroids, sorted: each stands for `weight` numbers around `mean`. They are
 * small near both ends and large in the middle (a t-digest with the arcsine scale), so that the
 * first and last percentiles stay sharp and the least and the greatest number stay themselves.
 * Digests merge by putting their centroids together and compressing again.
 *
 * With DIGEST_DELTA about a thousand centroids stand for any count of numbers, and the number found
 * for a rank is off by less than 0.4 % of the count in the middle, and less towards the ends.
 */
#pragma once

#include <stddef.h>

typedef struct Centroid {
    double mean;
    double weight;
} Centroid;

enum {
    DIGEST_DELTA = 1000,
};

/* By mean. */
void digest_sort(Centroid *centroids, size_t count);
/* Joins neighbours of sorted centroids in place; returns how many are left. */
size_t digest_compress(Centroid *centroids, size_t count);
/* The number at `rank` of all that sorted centroids stand for, counted from 1. count > 0. */
double digest_at(const Centroid *centroids, size_t count, double rank);
double digest_weight(const Centroid *centroids, size_t count);
