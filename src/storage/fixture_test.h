/*
 * fixture_test.h - an engine in a temporary directory, for tests of storage and of what is above
 * it.
 */
#pragma once

#include "base/test.h"
#include "concurrency/lock_manager.h"
#include "concurrency/service_ctx.h"
#include "storage/engine.h"
#include "storage/global_lock.h"
#include "storage/recovery_unit.h"
#include "storage/unit_of_work.h"

typedef struct StorageFixture {
    char dir[128];
    bool is_replicated; /* set before fixture_open, as is the next */
    uint32_t table_files_max;
    ServiceCtx service;
    StorageEngine *engine;
    OpCtx *op;
    OpCtx *other; /* a second operation, for conflicts */
} StorageFixture;

static inline OpCtx *fixture_op(StorageFixture *fx) {
    OpCtx *op = op_ctx_new(fx->service.ops, NULL, NULL);
    op->service = &fx->service;
    op_attach_storage(op, fx->engine);
    op_begin(op, &(OpDescription){.op_type = "none", .ns = ""});
    return op;
}

static inline void fixture_open(StorageFixture *fx) {
    fx->service.ops = op_registry_new();
    StorageConfig config = {.dbpath = fx->dir,
                            .cache_mb = 256,
                            .journal_interval_ms = 100,
                            .read_tickets = 32,
                            .write_tickets = 32,
                            .table_files_max = fx->table_files_max,
                            .is_replicated = fx->is_replicated};
    Error err = {0};
    EXPECT_OK(storage_open(&config, fx->service.ops, &fx->engine, &err), err);
    fx->service.storage = fx->engine;
    fx->op = fixture_op(fx);
    fx->other = fixture_op(fx);
}

static inline void fixture_close(StorageFixture *fx) {
    op_end(fx->op);
    op_end(fx->other);
    op_ctx_free(fx->op);
    op_ctx_free(fx->other);
    storage_close(fx->engine);
    op_registry_free(fx->service.ops);
}

static inline bool storage_has_table(StorageEngine *engine, const char *ident) {
    Error err = {0};
    bool is_there = false;
    EXPECT_OK(storage_find_table(engine, ident, &is_there, &err), err);
    return is_there;
}

static inline void fixture_init(StorageFixture *fx) {
    *fx = (StorageFixture){0};
    snprintf(fx->dir, sizeof(fx->dir), "%s", test_temp_dir());
    fixture_open(fx);
}
