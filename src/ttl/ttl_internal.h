/* ttl_internal.h - shared by the files of ttl/. */
#pragma once

#include "base/arena.h"
#include "bson/uuid.h"
#include "catalog/catalog.h"
#include "ttl/ttl.h"

/* One index, or one clustered collection, that documents expire by. */
typedef struct TtlTask {
    Ns ns;
    Uuid uuid;
    const char *ident;  /* NULL: by the date in _id */
    const char *path;   /* of the date */
    Doc partial_filter; /* DOC_NONE: none */
    int64_t expire_after_s;
} TtlTask;

/* Round robin: who is not done with goes to the end of the row. */
typedef struct TtlRow {
    TtlTask *tasks;
    uint32_t count;
    uint32_t capacity;
    uint32_t next;
} TtlRow;

/* Everything that documents expire by at the moment, in arena memory; counts what cannot be
 * followed. */
void ttl_collect(Catalog *catalog, Arena *arena, TtlRow *ret_row, int64_t *ret_invalid);

/* {path: {$gte: the first date, $lte: now - expiry}}, with the index's own filter. */
Doc ttl_filter(const TtlTask *task, int64_t now_ms, Arena *arena, Elem *ret_low, Elem *ret_high);

/* Collections that the last sub-passes were not done with. */
typedef struct TtlBehind {
    struct TtlBehindRow {
        Uuid uuid;
        int64_t sub_passes;
    } * rows; /* heap */
    uint32_t count;
} TtlBehind;
int64_t ttl_behind_count(const TtlBehind *behind, const Uuid *uuid);
/* At the end of a sub-pass: who is still in the row is one more behind, the others are not. */
void ttl_behind_update(TtlBehind *behind, const TtlRow *row);

/* Drops the task at hand when it is done; otherwise the next one has its turn. */
void ttl_row_turn(TtlRow *row, bool has_more);
