/*
 * status_sections.h - sections of serverStatus that have a file of their own.
 */
#pragma once

#include "bson/builder.h"
#include "concurrency/service_ctx.h"

/* {collections, capped, clustered, views, ...}: how many there are of each kind. */
void build_catalog_stats(ServiceCtx *service, DocBuilder *b);
/* {count, features: {unique: {count, accesses}, ...}} of all collections but the server's own. */
void build_index_stats(ServiceCtx *service, DocBuilder *b);

/* The concerns of operations that give none; `doc` is what is set, DOC_NONE: nothing. */
void build_default_concerns(ServiceCtx *service, Doc doc, DocBuilder *b);
