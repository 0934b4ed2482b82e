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

void top_count(TopTable *table, const char *ns, const char *op_type, int64_t duration_us) {
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
    for (size_t i = 0; op_type != NULL && i < ARRAY_LEN(KINDS); i++)
        if (strcmp(op_type, KINDS[i].op_type) == 0)
            kind = KINDS[i].kind;
    atomic_fetch_add_explicit(&row->count[kind], 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&row->time_us[kind], duration_us, memory_order_relaxed);
}

void top_for_each(TopTable *table, void (*visit)(void *arg, const TopRow *row), void *arg) {
    for (size_t i = 0; i < TOP_SLOTS; i++) {
        const TopRow *row = atomic_load_explicit(&table->slots[i], memory_order_acquire);
        if (row != NULL)
            visit(arg, row);
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
