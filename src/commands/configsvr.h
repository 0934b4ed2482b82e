/*
 * configsvr.h - what the internal commands of the config server have in common.
 */
#pragma once

#include "bson/uuid.h"
#include "commands/core/command.h"

/* Fails elsewhere than on a config server: nobody else has the catalog of the cluster.
 */
ErrCode configsvr_check_role(const CommandCtx *ctx, Error *err) MUST_CHECK;

/* Values of fields that the tables of fields.h have no type for; `name` is the field. */
ErrCode configsvr_uuid(Elem elem, const char *name, Uuid *ret_uuid, Error *err) MUST_CHECK;
ErrCode configsvr_oid(Elem elem, const char *name, Oid *ret_oid, Error *err) MUST_CHECK;
/* 0 if it is missing. */
ErrCode configsvr_timestamp(Elem elem, const char *name, uint64_t *ret_ts, Error *err) MUST_CHECK;

#define CONFIGSVR_COMMAND(symbol, text, words, RequestType, FIELDS, function)                      \
    const CommandSpec symbol = {.name = text,                                                      \
                                .summary = "Internal: " words,                                     \
                                .flags = CMD_ADMIN_ONLY | CMD_WRITES,                              \
                                .request = REQUEST_OF(RequestType, FIELDS),                        \
                                .run = (function)}
