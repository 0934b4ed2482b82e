/*
 * history.h - which collection a name or a UUID stood for in the past (CAT-4).
 *
 * A row lists the instances of one name or UUID with the timestamps from which each was valid; its
 * last entry is the present. Reads at a timestamp look here first. Rows hold references: a dropped
 * collection keeps its tables while a read may still use it. Changes without a timestamp leave no
 * history.
 *
 * Ownership: rows are immutable and belong to versions of the catalog. Crash: in memory only;
 * history starts with the process.
 */
#pragma once

#include "base/pmap.h"
#include "catalog/collection.h"

/* Adds to the map (of names, or of UUIDs): from `ts` on the key stands for `after` (NULL: nothing),
 * before for `before`. Drops entries that no read at `oldest_ts` or later can see. */
void history_add(PMap **map, const void *key, size_t key_size, Collection *before,
                 Collection *after, uint64_t ts, uint64_t oldest_ts);

/* False: the present instance is the right one. */
bool history_find(const PMap *map, const void *key, size_t key_size, uint64_t read_ts,
                  const Collection **ret_coll);

/* Drops from all rows what no read at `oldest_ts` or later can see; returns how many rows
 * changed. */
size_t history_trim(PMap **map, uint64_t oldest_ts);
void history_unref(PMap *map);
