/*
 * top.h - time spent per collection, for the command `top`.
 *
 * A fixed table without locks: a row is made by the first operation on a namespace and stays. When
 * the table is full, further namespaces are not counted.
 */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

#include "bson/doc.h"
#include "commands/core/latency.h"

typedef enum TopKind {
    TOP_QUERIES,
    TOP_GETMORE,
    TOP_INSERT,
    TOP_UPDATE,
    TOP_REMOVE,
    TOP_COMMANDS,
    TOP_KIND_COUNT,
} TopKind;

typedef struct TopRow {
    char *ns;
    _Atomic int64_t time_us[TOP_KIND_COUNT];
    _Atomic int64_t count[TOP_KIND_COUNT];
    _Atomic int64_t writing_time_us; /* of the commands, those that write */
    _Atomic int64_t writing_count;
    Latencies latencies;
} TopRow;

typedef struct TopTable TopTable;

TopTable *top_table_new(void);
void top_table_free(TopTable *table);
typedef struct TopOp {
    const char *op_type; /* as CommandSpec has it; NULL counts as a command */
    LatencyKind latency;
    bool is_writing;
    int64_t duration_us;
    uint32_t count; /* of operations without a duration; 0: one with it */
} TopOp;
void top_count(TopTable *table, const char *ns, const TopOp *op);
/* What was counted of a namespace; NULL: nothing. */
const TopRow *top_find(TopTable *table, const char *ns);
/* Of what was dropped: it is not told any more. */
void top_forget_coll(TopTable *table, const char *ns);
void top_forget_db(TopTable *table, Str db);
void top_for_each(TopTable *table, void (*visit)(void *arg, const TopRow *row), void *arg);
