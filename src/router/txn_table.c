#include "router/txn_table.h"

#include "base/alloc.h"
#include "base/hash.h"
#include "base/list.h"
#include "base/thread.h"

enum { TXN_TABLE_BUCKETS = 4096 }; /* a power of two */

typedef struct TxnEntry {
    ListNode by_use; /* the newest last */
    struct TxnEntry *next_in_bucket;
    RouterTxn txn; /* its read concern is heap memory */
    int64_t used_us;
} TxnEntry;

struct TxnTable {
    uint32_t entries_max; /* constant */
    Mutex mu;
    /* Guarded by mu. */
    uint32_t count;
    List by_use;
    TxnEntry *buckets[TXN_TABLE_BUCKETS];
};

TxnTable *txn_table_new(uint32_t entries_max) {
    TxnTable *table = NEW(TxnTable);
    table->entries_max = entries_max;
    mutex_init(&table->mu, LOCK_RANK_LEAF);
    list_init(&table->by_use);
    return table;
}

static TxnEntry **find_place(TxnTable *table, const Uuid *session) {
    size_t bucket = hash_bytes(session->bytes, sizeof(session->bytes)) & (TXN_TABLE_BUCKETS - 1);
    TxnEntry **at = &table->buckets[bucket];
    while (*at != NULL && !uuid_equal(&(*at)->txn.session, session))
        at = &(*at)->next_in_bucket;
    return at;
}

static void remove_entry(TxnTable *table, TxnEntry *entry) {
    *find_place(table, &entry->txn.session) = entry->next_in_bucket;
    list_remove(&entry->by_use);
    table->count--;
    xfree((void *)entry->txn.read_concern.data);
    xfree(entry);
}

static TxnEntry *oldest(const TxnTable *table) {
    ListNode *node = list_first(&table->by_use);
    return node != NULL ? CONTAINER_OF(node, TxnEntry, by_use) : NULL;
}

void txn_table_free(TxnTable *table) {
    if (table == NULL)
        return;
    for (TxnEntry *entry; (entry = oldest(table)) != NULL;)
        remove_entry(table, entry);
    mutex_done(&table->mu);
    xfree(table);
}

uint32_t txn_table_count(TxnTable *table) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&table->mu);
    return table->count;
}

bool txn_table_find(TxnTable *table, const Uuid *session, Arena *arena, RouterTxn *ret_txn) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&table->mu);
    const TxnEntry *entry = *find_place(table, session);
    if (entry == NULL)
        return false;
    *ret_txn = entry->txn;
    if (doc_is_present(entry->txn.read_concern))
        ret_txn->read_concern = doc_copy(entry->txn.read_concern, arena);
    return true;
}

static TxnEntry *ensure_entry(TxnTable *table, const Uuid *session, int64_t expired_us) {
    TxnEntry *entry = *find_place(table, session);
    if (entry != NULL)
        return entry;
    while ((entry = oldest(table)) != NULL &&
           (entry->used_us < expired_us || table->count >= table->entries_max))
        remove_entry(table, entry);
    entry = NEW(TxnEntry);
    entry->txn.session = *session;
    entry->txn.number = -1;
    TxnEntry **place = find_place(table, session);
    *place = entry;
    table->count++;
    return entry;
}

void txn_table_put(TxnTable *table, const RouterTxn *txn, int64_t now_us, int64_t expired_us) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&table->mu);
    TxnEntry *entry = ensure_entry(table, &txn->session, expired_us);
    list_remove(&entry->by_use);
    list_push_back(&table->by_use, &entry->by_use);
    entry->used_us = now_us;
    if (txn->number < entry->txn.number)
        return;
    Doc concern = entry->txn.read_concern;
    if (txn->number > entry->txn.number) {
        xfree((void *)concern.data);
        concern =
            doc_is_present(txn->read_concern) ? (Doc){doc_copy_heap(txn->read_concern)} : DOC_NONE;
    }
    entry->txn = *txn;
    entry->txn.read_concern = concern;
}
