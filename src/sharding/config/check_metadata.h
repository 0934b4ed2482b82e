/*
 * check_metadata.h - what is wrong with the catalog of the cluster, as far as it shows in itself:
 * the config server's part of checkMetadataConsistency (DDL-3).
 */
#pragma once

#include "sharding/config/config_catalog.h"

/* Appends {type, description, details} for each inconsistency to an open array. `scope`:
 * "db.coll", "db", or "" for everything. *ret_is_cut: there are more than a reply has room for. */
ErrCode check_metadata(OpCtx *op, Str scope, DocBuilder *list, bool *ret_is_cut, Error *err)
    MUST_CHECK;
