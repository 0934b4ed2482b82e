/*
 * start_records.h - what a node writes about itself: a line in local.startup_log for each start,
 * and the documents that every data directory has.
 *
 * Failures are logged and do not stop anything.
 */
#pragma once

#include "concurrency/op_ctx.h"
#include "concurrency/service_ctx.h"

/* At the start, before the node serves anybody. On a standalone node also the document of the
 * feature compatibility version (catalog/fcv.h) and config.system.sessions. `start_ms` is when the
 * process started. */
void start_records_write(ServiceCtx *service, OpCtx *op, int64_t start_ms);

/* On a replica set the primary writes that document, if it is not there. */
void start_records_begin_term(ServiceCtx *service, OpCtx *op);
