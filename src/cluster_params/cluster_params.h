/*
 * cluster_params.h - settings of a whole replica set: documents of config.clusterParameters.
 *
 *     {_id: name, clusterParameterTime: Timestamp, ...the value...}
 *
 * They are replicated like any other document, and read where they are needed: nothing is kept in
 * memory, so a change, a rollback or an initial sync needs no notice.
 *
 * Threading: any thread, with its own operation.
 */
#pragma once

#include "base/error.h"
#include "bson/builder.h"
#include "bson/doc.h"
#include "concurrency/op_ctx.h"

/* Those that can be set, and their number. */
extern const char *const CLUSTER_PARAM_NAMES[];
extern const size_t CLUSTER_PARAM_COUNT;
bool cluster_param_exists(Str name);

/* Checks the value, {name: document}, and stores it as primary; `ts` is its time. Fails with
 * ERR_ILLEGAL_OPERATION for an unknown name and ERR_BAD_VALUE for what it cannot be. */
ErrCode cluster_param_set(OpCtx *op, Elem value, uint64_t ts, Error *err) MUST_CHECK;
/* The document, or the one of its default; in the operation's arena. */
ErrCode cluster_param_read(OpCtx *op, Str name, Doc *ret_doc, Error *err) MUST_CHECK;

/* Its clusterParameterTime; 0: it was never set. */
uint64_t cluster_param_time(Doc doc);
/* Stores a document of the cluster's config server, unless what is here is as new. One of a name
 * that this version does not know is left out: nobody reads it. */
ErrCode cluster_param_adopt(OpCtx *op, Doc doc, Error *err) MUST_CHECK;

/* changeStreamOptions.preAndPostImages.expireAfterSeconds; -1: "off". */
ErrCode cluster_param_image_seconds(OpCtx *op, int64_t *ret_seconds, Error *err) MUST_CHECK;
