/*
 * connection.c - the set of connections: slots are allocated at accept and released at close.
 *
 * See transport_internal.h for the states of a slot and why slots are never freed early.
 */
#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "transport/transport_internal.h"

enum {
    REFUSAL_NOTE_INTERVAL_US = 10 * 1000 * 1000,
    EXTRA_US_MAX = 2 * 1000 * 1000, /* time for a first message */
};

static Slot *slot_take(Transport *t, int fd);
static bool make_room_for_extra(Transport *t);
static Slot *take_extra_locked(SlotTable *table, int64_t accepted_before_us);
static void note_refusal(Transport *t, uint64_t open_count, uint64_t refused_count);
static void slot_give_back(SlotTable *table, Slot *slot);
static void add_chunk_locked(SlotTable *table);
static void format_address(const struct sockaddr_storage *at, char out[CONNECTION_ADDRESS_SIZE]);
static bool try_take_unowned(Slot *slot);

void slot_table_init(SlotTable *table, uint32_t slots_max) {
    mutex_init(&table->mu, LOCK_RANK_CONNECTIONS);
    list_init(&table->live);
    list_init(&table->free);
    list_init(&table->extra);
    table->next_id = 1;
    table->chunk_count_max = (slots_max + SLOTS_PER_CHUNK - 1) / SLOTS_PER_CHUNK;
    table->chunks = xcalloc(table->chunk_count_max, sizeof(*table->chunks));
}

void slot_table_done(SlotTable *table) {
    for (uint32_t i = 0; i < table->chunk_count_max; i++)
        xfree(atomic_load_explicit(&table->chunks[i], memory_order_relaxed));
    xfree(table->chunks);
    table->chunks = NULL;
    mutex_done(&table->mu);
}

void connection_accept(Transport *t, int fd, bool is_unix, const struct sockaddr_storage *peer) {
    Slot *slot = slot_take(t, fd);
    if (slot == NULL) {
        close(fd);
        return;
    }
    Connection *conn = &slot->conn;
    conn->created_wall_ms = clock_wall_ms();
    conn->is_unix = is_unix;
    if (is_unix) {
        snprintf(conn->peer, sizeof(conn->peer), "anonymous unix socket");
        snprintf(conn->local, sizeof(conn->local), "%.63s", t->unix_path);
    } else {
        struct sockaddr_storage local = {0};
        socklen_t size = sizeof(local);
        getsockname(fd, (struct sockaddr *)&local, &size);
        format_address(peer, conn->peer);
        format_address(&local, conn->local);
    }
    const TransportHandler *handler = &t->config.handler;
    if (handler->on_connect != NULL && !handler->on_connect(t->config.ctx, conn)) {
        mutex_lock(&t->table.mu);
        t->table.refused_count++;
        list_remove(&slot->in_extra);
        mutex_unlock(&t->table.mu);
        slot_give_back(&t->table, slot);
        return;
    }

    /* BUSY until here, so no other thread accesses it. IDLE must be visible before the first event
     * can be, and registering reports at once what has already arrived. Under the mutex, for
     * connections_close_extra: it must not close the descriptor before it is registered. */
    mutex_lock(&t->table.mu);
    uint64_t word = atomic_load_explicit(&slot->word, memory_order_relaxed);
    uint64_t data = (word >> CONN_GENERATION_SHIFT << CONN_GENERATION_SHIFT) | slot->index;
    atomic_store_explicit(&slot->word, word_with_state(word, CONN_IDLE), memory_order_release);
    struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP | EPOLLET, .data.u64 = data};
    int rc = epoll_ctl(t->epoll_fd, EPOLL_CTL_ADD, fd, &event);
    mutex_unlock(&t->table.mu);
    if (rc != 0) {
        /* Only lack of memory or the system's limit of watches can be the reason. The only other
         * thread that can have taken the connection is one that stops the transport. */
        if (try_take_unowned(slot))
            connection_close(t, slot);
    }
}

/* Rate-limited: refused clients often retry at once, and the log must survive it. Releases the
 * mutex of the set. */
static void note_refusal(Transport *t, uint64_t open_count, uint64_t refused_count) {
    assert_held(&t->table.mu);
    int64_t now_us = clock_mono_us();
    bool is_due = now_us >= t->table.next_refusal_note_us;
    if (is_due)
        t->table.next_refusal_note_us = now_us + REFUSAL_NOTE_INTERVAL_US;
    mutex_unlock(&t->table.mu);
    if (!is_due || t->config.note == NULL)
        return;
    char text[160];
    snprintf(text, sizeof(text),
             "connection refused because there are too many open connections: %" PRIu64
             " open, %" PRIu64 " refused so far",
             open_count, refused_count);
    t->config.note(t->config.ctx, text);
}

/* A BUSY slot that is in the live list, or NULL when the limit is reached. */
static Slot *slot_take(Transport *t, int fd) {
    SlotTable *table = &t->table;
    mutex_lock(&table->mu);
    bool is_extra = table->current_count >= t->config.connections_max;
    if (is_extra && !make_room_for_extra(t)) {
        table->refused_count++;
        note_refusal(t, table->current_count, table->refused_count);
        return NULL;
    }
    if (list_is_empty(&table->free))
        add_chunk_locked(table);
    Slot *slot = CONTAINER_OF(list_first(&table->free), Slot, in_table);
    list_remove(&slot->in_table);
    slot->conn = (Connection){.id = table->next_id++, .is_extra = is_extra};
    slot->accepted_us = clock_mono_us();
    if (is_extra)
        list_push_back(&table->extra, &slot->in_extra);
    slot->fd = fd;
    slot->next_reply_id = 1;
    uint64_t word = atomic_load_explicit(&slot->word, memory_order_relaxed);
    assert(word_state(word) == CONN_FREE);
    atomic_store_explicit(&slot->word, word_with_state(word, CONN_BUSY), memory_order_relaxed);
    list_push_back(&table->live, &slot->in_table);
    table->current_count++;
    mutex_unlock(&table->mu);
    return slot;
}

/* Whether there is a slot beyond the limit. If not, the extra connection that has been silent
 * longest is closed. Releases the mutex for a while. */
static bool make_room_for_extra(Transport *t) {
    SlotTable *table = &t->table;
    uint64_t all_max = (uint64_t)t->config.connections_max + t->config.extra_connections_max;
    if (t->config.extra_connections_max == 0)
        return false;
    if (table->current_count >= all_max) {
        Slot *silent = take_extra_locked(table, INT64_MAX);
        if (silent != NULL) {
            uint64_t refused = table->refused_count + 1;
            note_refusal(t, table->current_count, refused); /* unlocks */
            parked_forget(t, silent);
            connection_close(t, silent);
            mutex_lock(&table->mu);
        }
    }
    return table->current_count < all_max;
}

/* Takes ownership of the first one that was accepted before then and has no request running. */
static Slot *take_extra_locked(SlotTable *table, int64_t accepted_before_us) {
    assert_held(&table->mu);
    LIST_FOR_EACH (&table->extra, node) {
        Slot *slot = CONTAINER_OF(node, Slot, in_extra);
        if (slot->accepted_us >= accepted_before_us)
            return NULL;
        if (try_take_unowned(slot))
            return slot;
    }
    return NULL;
}

void connections_close_extra(Transport *t, int64_t now_us) {
    for (;;) {
        mutex_lock(&t->table.mu);
        Slot *slot = take_extra_locked(&t->table, now_us - EXTRA_US_MAX);
        mutex_unlock(&t->table.mu);
        if (slot == NULL)
            return;
        parked_forget(t, slot);
        connection_close(t, slot);
    }
}

void transport_keep_connection(Transport *t, Connection *conn) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&t->table.mu);
    list_remove(&((Slot *)conn)->in_extra);
}

static void add_chunk_locked(SlotTable *table) {
    assert_held(&table->mu);
    Slot *chunk = xcalloc(SLOTS_PER_CHUNK, sizeof(Slot));
    invariant(table->slot_count / SLOTS_PER_CHUNK < table->chunk_count_max);
    for (uint32_t i = 0; i < SLOTS_PER_CHUNK; i++) {
        chunk[i].index = table->slot_count + i;
        chunk[i].fd = -1;
        list_push_back(&table->free, &chunk[i].in_table);
    }
    /* Pairs with the load in slot_of_event; the epoll registration that follows would order them,
     * too, but the language does not know that. */
    atomic_store_explicit(&table->chunks[table->slot_count / SLOTS_PER_CHUNK], chunk,
                          memory_order_release);
    table->slot_count += SLOTS_PER_CHUNK;
}

Slot *slot_of_event(SlotTable *table, uint64_t event_data) {
    uint32_t index = (uint32_t)event_data;
    Slot *chunk =
        atomic_load_explicit(&table->chunks[index / SLOTS_PER_CHUNK], memory_order_acquire);
    return &chunk[index % SLOTS_PER_CHUNK];
}

void connection_close(Transport *t, Slot *slot) {
    assert(word_state(atomic_load_explicit(&slot->word, memory_order_relaxed)) == CONN_BUSY);
    if (t->config.handler.on_disconnect != NULL)
        t->config.handler.on_disconnect(t->config.ctx, &slot->conn);
    slot_give_back(&t->table, slot);
}

static void slot_give_back(SlotTable *table, Slot *slot) {
    xfree(TAKE_PTR(slot->input));
    xfree(TAKE_PTR(slot->held));
    slot->input_size = slot->input_capacity = slot->held_size = 0;

    mutex_lock(&table->mu);
    int fd = slot->fd;
    /* Under the mutex: transport_close_connection must not shut down a reused number. */
    slot->fd = -1;
    list_remove(&slot->in_table);
    table->current_count--;
    if (slot->in_extra.next != NULL) {
        list_remove(&slot->in_extra);
        table->refused_count++;
        table->extra_refused_count++;
    }
    uint64_t word = atomic_load_explicit(&slot->word, memory_order_relaxed);
    /* Events of the old connection that a worker still holds no longer match. */
    uint64_t generation = (word >> CONN_GENERATION_SHIFT) + 1;
    atomic_store_explicit(&slot->word, (generation << CONN_GENERATION_SHIFT) | CONN_FREE,
                          memory_order_release);
    /* The most recently used slot first: its memory is in the cache. */
    list_push_front(&table->free, &slot->in_table);
    mutex_unlock(&table->mu);
    close(fd); /* also removes it from the epoll: no other descriptor refers to the socket */
}

bool transport_close_connection(Transport *t, uint64_t id) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&t->table.mu);
    LIST_FOR_EACH (&t->table.live, node) {
        Slot *slot = CONTAINER_OF(node, Slot, in_table);
        if (slot->conn.id == id) {
            shutdown(slot->fd, SHUT_RDWR); /* its owner sees a hang-up and closes */
            return true;
        }
    }
    return false;
}

void transport_close_all(Transport *t) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&t->table.mu);
    LIST_FOR_EACH (&t->table.live, node)
        shutdown(CONTAINER_OF(node, Slot, in_table)->fd, SHUT_RDWR);
}

void transport_for_each_connection(Transport *t, void (*visit)(void *arg, const Connection *conn),
                                   void *arg) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&t->table.mu);
    LIST_FOR_EACH (&t->table.live, node)
        visit(arg, &CONTAINER_OF(node, Slot, in_table)->conn);
}

void connections_close_idle(Transport *t) {
    for (;;) {
        /* The mutex is not held while closing, because the handler is called: one at a time. Busy
         * ones are few, so starting from the front again costs little. */
        Slot *taken = NULL;
        mutex_lock(&t->table.mu);
        LIST_FOR_EACH (&t->table.live, node) {
            Slot *slot = CONTAINER_OF(node, Slot, in_table);
            if (try_take_unowned(slot)) {
                taken = slot;
                break;
            }
        }
        mutex_unlock(&t->table.mu);
        if (taken == NULL)
            return;
        parked_forget(t, taken);
        connection_close(t, taken);
    }
}

void connections_shut_down(Transport *t) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&t->table.mu);
    LIST_FOR_EACH (&t->table.live, node)
        shutdown(CONTAINER_OF(node, Slot, in_table)->fd, SHUT_RDWR);
}

/* Takes ownership of an IDLE or PARKED connection. */
static bool try_take_unowned(Slot *slot) {
    uint64_t word = atomic_load_explicit(&slot->word, memory_order_relaxed);
    while (word_state(word) == CONN_IDLE || word_state(word) == CONN_PARKED)
        if (atomic_compare_exchange_weak_explicit(&slot->word, &word,
                                                  word_with_state(word, CONN_BUSY),
                                                  memory_order_acq_rel, memory_order_relaxed))
            return true;
    return false;
}

static void format_address(const struct sockaddr_storage *at, char out[CONNECTION_ADDRESS_SIZE]) {
    char text[INET6_ADDRSTRLEN] = "?";
    if (at->ss_family == AF_INET6) {
        const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)at;
        inet_ntop(AF_INET6, &in6->sin6_addr, text, sizeof(text));
        snprintf(out, CONNECTION_ADDRESS_SIZE, "[%s]:%u", text, ntohs(in6->sin6_port));
    } else {
        const struct sockaddr_in *in4 = (const struct sockaddr_in *)at;
        inet_ntop(AF_INET, &in4->sin_addr, text, sizeof(text));
        snprintf(out, CONNECTION_ADDRESS_SIZE, "%s:%u", text, ntohs(in4->sin_port));
    }
}
