/* sharding_status.h - the section shardingStatistics of serverStatus, on routers, shards and the
 * config server. */
#pragma once

#include "bson/builder.h"
#include "sharding/route/cluster.h"

void build_sharding_statistics(Cluster *cluster, DocBuilder *b);
/* Of the config server. */
void build_config_statistics(ServiceCtx *service, DocBuilder *b);
/* Of a shard: what it has moved and deleted. */
void build_move_statistics(ServiceCtx *service, DocBuilder *b);
