/*
 * cmd_configsvr_zones.c - zones of shards, and their ranges.
 */
#include "commands/configsvr.h"
#include "sharding/config/zones.h"

typedef struct ZoneRequest {
    Str shard;
    Str zone;
} ZoneRequest;

typedef struct RangeRequest {
    Str ns;
    Doc min;
    Doc max;
    Elem zone;
} RangeRequest;

static ErrCode add_run(CommandCtx *ctx, void *arg, Error *err) {
    ZoneRequest *request = arg;
    TRY(configsvr_check_role(ctx, err));
    return zone_add_shard(ctx->op, request->shard, request->zone, err);
}

static ErrCode remove_run(CommandCtx *ctx, void *arg, Error *err) {
    ZoneRequest *request = arg;
    TRY(configsvr_check_role(ctx, err));
    return zone_remove_shard(ctx->op, request->shard, request->zone, err);
}

static ErrCode range_run(CommandCtx *ctx, void *arg, Error *err) {
    RangeRequest *request = arg;
    TRY(configsvr_check_role(ctx, err));
    ZoneKeyRange range = {.ns = request->ns, .min = request->min, .max = request->max};
    bool has_zone = elem_type(request->zone) == BT_STRING;
    if (!has_zone && elem_type(request->zone) != BT_NULL)
        return error_set(err, ERR_TYPE_MISMATCH, "\"zone\" must be a string, or null, not %s",
                         bson_type_name(elem_type(request->zone)));
    if (has_zone && elem_str(request->zone).size == 0)
        return error_set(err, ERR_ZONE_NOT_FOUND, "no zone has an empty name");
    if (has_zone)
        range.zone = elem_str(request->zone);
    return zone_update_key_range(ctx->op, &range, err);
}

static const FieldSpec ADD_FIELDS[] = {
    {"_configsvrAddShardToZone", FIELD_STRING, FIELD_REQUIRED, offsetof(ZoneRequest, shard)},
    {"zone", FIELD_STRING, FIELD_REQUIRED, offsetof(ZoneRequest, zone)},
};
CONFIGSVR_COMMAND(CMD_CONFIGSVR_ADD_SHARD_TO_ZONE, "_configsvrAddShardToZone",
                  "adds a shard to a zone.", ZoneRequest, ADD_FIELDS, add_run);

static const FieldSpec REMOVE_FIELDS[] = {
    {"_configsvrRemoveShardFromZone", FIELD_STRING, FIELD_REQUIRED, offsetof(ZoneRequest, shard)},
    {"zone", FIELD_STRING, FIELD_REQUIRED, offsetof(ZoneRequest, zone)},
};
CONFIGSVR_COMMAND(CMD_CONFIGSVR_REMOVE_SHARD_FROM_ZONE, "_configsvrRemoveShardFromZone",
                  "takes a shard out of a zone.", ZoneRequest, REMOVE_FIELDS, remove_run);

static const FieldSpec RANGE_FIELDS[] = {
    {"_configsvrUpdateZoneKeyRange", FIELD_STRING, FIELD_REQUIRED, offsetof(RangeRequest, ns)},
    {"min", FIELD_DOC, FIELD_REQUIRED, offsetof(RangeRequest, min)},
    {"max", FIELD_DOC, FIELD_REQUIRED, offsetof(RangeRequest, max)},
    {"zone", FIELD_ELEM, FIELD_REQUIRED, offsetof(RangeRequest, zone)},
};
CONFIGSVR_COMMAND(CMD_CONFIGSVR_UPDATE_ZONE_KEY_RANGE, "_configsvrUpdateZoneKeyRange",
                  "says which zone a range belongs to.", RangeRequest, RANGE_FIELDS, range_run);
