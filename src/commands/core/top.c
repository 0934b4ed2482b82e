#include "commands/core/top.h"

#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"

enum {
    TOP_SLOTS = 8192, /* a power of two */
    TOP_PROBES_MAX = 64,
};

struct TopTable {
    /* Atomic. A row is published with release once complete and never changes its name. */
    _Atomic(TopRow *) slots[TOP_SLOTS];
};

static TopRow *find_or_make(TopTable *table, const char *ns);

TopTable *top_table_new(void) {
    return NEW(TopTable);
}

void top_table_free(TopTable *table) {
    if (table == NULL)
        return;
    for (size_t i = 0; i < TOP_SLOTS; i++) {
        TopRow *row = atomic_load(&table->slots[i]);
        if (row != NULL)
            xfree(row->ns);
        xfree(row);
    }
    xfree(table);
}

void top_count(TopTable *table, const char *ns, const TopOp *op) {
    static const struct {
        const char *op_type;
        TopKind kind;
    } KINDS[] = {{"query", TOP_QUERIES},
                 {"getmore", TOP_GETMORE},
                 {"insert", TOP_INSERT},
                 {"update", TOP_UPDATE},
                 {"remove", TOP_REMOVE}};
    TopRow *row = find_or_make(table, ns);
    if (row == NULL)
        return;
    TopKind kind = TOP_COMMANDS;
    for (size_t i = 0; op->op_type != NULL && i < ARRAY_LEN(KINDS); i++)
        if (strcmp(op->op_type, KINDS[i].op_type) == 0)
            kind = KINDS[i].kind;
    atomic_fetch_add_explicit(&row->count[kind], op->count > 0 ? op->count : 1,
                              memory_order_relaxed);
    atomic_fetch_add_explicit(&row->time_us[kind], op->duration_us, memory_order_relaxed);
    if (kind == TOP_COMMANDS && op->is_writing) {
        atomic_fetch_add_explicit(&row->writing_count, 1, memory_order_relaxed);
        atomic_fetch_add_explicit(&row->writing_time_us, op->duration_us, memory_order_relaxed);
    }
    if (op->count == 0)
        latency_add(&row->latencies, op->latency, op->duration_us);
}

const TopRow *top_find(TopTable *table, const char *ns) {
    size_t at = hash_text(ns) & (TOP_SLOTS - 1);
    for (int probe = 0; probe < TOP_PROBES_MAX; probe++, at = (at + 1) & (TOP_SLOTS - 1)) {
        const TopRow *row = atomic_load_explicit(&table->slots[at], memory_order_acquire);
        if (row == NULL || strcmp(row->ns, ns) == 0)
            return row;
    }
    return NULL;
}

static bool has_counts(const TopRow *row) {
    for (int kind = 0; kind < TOP_KIND_COUNT; kind++)
        if (atomic_load_explicit(&row->count[kind], memory_order_relaxed) != 0)
            return true;
    return false;
}

void top_for_each(TopTable *table, void (*visit)(void *arg, const TopRow *row), void *arg) {
    for (size_t i = 0; i < TOP_SLOTS; i++) {
        const TopRow *row = atomic_load_explicit(&table->slots[i], memory_order_acquire);
        if (row != NULL && has_counts(row))
            visit(arg, row);
    }
}

static void forget_row(TopRow *row) {
    for (int kind = 0; kind < TOP_KIND_COUNT; kind++) {
        atomic_store_explicit(&row->count[kind], 0, memory_order_relaxed);
        atomic_store_explicit(&row->time_us[kind], 0, memory_order_relaxed);
    }
    atomic_store_explicit(&row->writing_count, 0, memory_order_relaxed);
    atomic_store_explicit(&row->writing_time_us, 0, memory_order_relaxed);
    latencies_clear(&row->latencies);
}

void top_forget_coll(TopTable *table, const char *ns) {
    for (size_t i = 0; i < TOP_SLOTS; i++) {
        TopRow *row = atomic_load_explicit(&table->slots[i], memory_order_acquire);
        if (row != NULL && strcmp(row->ns, ns) == 0)
            forget_row(row);
    }
}

void top_forget_db(TopTable *table, Str db) {
    for (size_t i = 0; i < TOP_SLOTS; i++) {
        TopRow *row = atomic_load_explicit(&table->slots[i], memory_order_acquire);
        if (row != NULL && strncmp(row->ns, db.data, db.size) == 0 && row->ns[db.size] == '.')
            forget_row(row);
    }
}

static TopRow *find_or_make(TopTable *table, const char *ns) {
    size_t at = hash_text(ns) & (TOP_SLOTS - 1);
    for (int probe = 0; probe < TOP_PROBES_MAX; probe++, at = (at + 1) & (TOP_SLOTS - 1)) {
        TopRow *row = atomic_load_explicit(&table->slots[at], memory_order_acquire);
        if (row == NULL) {
            TopRow *made = NEW(TopRow);
            made->ns = xstrdup(ns);
            if (atomic_compare_exchange_strong_explicit(&table->slots[at], &row, made,
                                                        memory_order_acq_rel, memory_order_acquire))
                return made;
            xfree(made->ns); /* another thread was faster; `row` is its row */
            xfree(made);
        }
        if (strcmp(row->ns, ns) == 0)
            return row;
    }
    return NULL;
}
