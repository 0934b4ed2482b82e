/*
 * cluster_defaults.h - the read and write concern of commands that give none (setDefaultRWConcern):
 * a router's copy of what the config server says.
 *
 * Read at the start, every five seconds, and when they are set through this router. A router that
 * cannot read them goes on with those it has.
 *
 * Threading: any. Lock: LOCK_RANK_LEAF.
 */
#pragma once

#include "sharding/route/cluster.h"

typedef struct ClusterDefaults ClusterDefaults;

ClusterDefaults *cluster_defaults_new(Cluster *cluster);
void cluster_defaults_free(ClusterDefaults *defaults); /* NULL is fine */
ErrCode cluster_defaults_read(ClusterDefaults *defaults, OpCtx *op, Error *err) MUST_CHECK;

/* Somebody has set one of them; no lock. */
bool cluster_defaults_are_set(const ClusterDefaults *defaults);
/* {defaultReadConcern, defaultWriteConcern, their sources, updateOpTime, ...} as
 * getDefaultRWConcern tells them; DOC_EMPTY: not read yet. */
Doc cluster_defaults_copy(ClusterDefaults *defaults, Arena *arena);
