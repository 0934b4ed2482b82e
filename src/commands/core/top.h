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
} TopRow;

typedef struct TopTable TopTable;

TopTable *top_table_new(void);
void top_table_free(TopTable *table);
/* `op_type` as CommandSpec has it; NULL counts as a command. */
void top_count(TopTable *table, const char *ns, const char *op_type, int64_t duration_us);
/* Of what was dropped: it is not told any more. */
void top_forget_coll(TopTable *table, const char *ns);
void top_forget_db(TopTable *table, Str db);
void top_for_each(TopTable *table, void (*visit)(void *arg, const TopRow *row), void *arg);
