/*
 * service_ctx.h - what one process is made of; everything hangs off it, nothing is global.
 *
 * Filled by server/ at start, constant afterwards. Each folder knows only its own member's type.
 */
#pragma once

#include <stdint.h>

typedef struct ServiceCtx {
    struct OpRegistry *ops;
    struct StorageEngine *storage;
    struct CatalogService *catalog;
    struct IndexBuilds *index_builds;
    struct SessionCatalog *sessions;    /* NULL: a standalone node */
    struct SessionCache *session_cache; /* likewise */
    struct Repl *repl;                  /* NULL: a standalone node */
    struct CursorTable *cursors;
    struct Transport *transport;
    struct ClientPool *clients; /* connections to other nodes */
    struct CommandService *commands;
    struct ServerParams *params;
    int64_t start_wall_ms;
    int64_t start_mono_us;
    void (*request_shutdown)(struct ServiceCtx *service); /* asks for a clean stop */
} ServiceCtx;
