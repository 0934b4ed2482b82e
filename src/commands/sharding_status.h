/* sharding_status.h - the section shardingStatistics of a router's serverStatus. */
#pragma once

#include "bson/builder.h"
#include "sharding/route/cluster.h"

void build_sharding_statistics(Cluster *cluster, DocBuilder *b);
