/*
 * request.c - from bytes on a connection to the handler and back, on the worker that woke for it.
 *
 * Input: a read goes into the worker's own buffer, where whole messages are decoded in place. Only
 * the remainder (an incomplete message, or messages after one that was parked) is copied to memory
 * of the connection, which then grows as bytes actually arrive, never to a length that is merely
 * declared. So idle connections hold no buffer, and a slow sender occupies no worker.
 *
 * A read that returns less than requested has drained the socket: whatever arrives later triggers a
 * new event. This saves the second read that edge-triggered loops usually end with. The exception
 * is a peer that hangs up: end of stream triggers no event of its own if it arrived together with
 * the last bytes, so with the HANGUP mark reading continues until recv reports it.
 */
#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <sys/epoll.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "transport/transport_internal.h"

enum {
    /* Consecutive reads for one connection before others are served. */
    SERVE_ROUNDS_MAX = 16,
    /* The first piece of memory for an incomplete message whose length is known. */
    INPUT_CAPACITY_FIRST = 64 * 1024,
    /* A large buffer is released after this many requests that did not need it. */
    TRIM_AFTER_REQUESTS = 64,
};

/* What a request, or the attempt to read one, means for its connection. */
typedef enum Verdict {
    VERDICT_NEXT,   /* go on with the next message */
    VERDICT_CLOSE,  /* the connection is finished */
    VERDICT_PARK,   /* the request is kept and waits */
    VERDICT_STREAM, /* the request is kept and runs again */
} Verdict;

typedef enum InputState {
    INPUT_PARTIAL,
    INPUT_COMPLETE,
    INPUT_BAD, /* declares an impossible length */
} InputState;

static void serve(Worker *w, Slot *slot, Verdict verdict, bool is_drained);
static bool try_become_idle(Slot *slot);
static Verdict read_round(Worker *w, Slot *slot, bool *ret_is_drained);
static Verdict read_fresh(Worker *w, Slot *slot, bool *ret_is_drained);
static Verdict read_more(Worker *w, Slot *slot, bool *ret_is_drained);
static Verdict run_input(Worker *w, Slot *slot);
static ssize_t receive(Worker *w, Slot *slot, uint8_t *into, size_t size, bool *ret_is_drained);
static InputState input_state(const uint8_t *data, size_t size, uint32_t *ret_message_size);
static void input_reserve(Slot *slot, uint32_t message_size);
static Verdict run_messages(Worker *w, Slot *slot, const uint8_t *data, size_t size,
                            size_t *ret_consumed);
static Verdict run_message(Worker *w, Slot *slot, const uint8_t *data, uint32_t size);
static Verdict run_held(Worker *w, Slot *slot);
static Verdict dispatch(Worker *w, Slot *slot, bool is_resumed);
static Verdict handle_bad_message(Worker *w, Slot *slot, const Error *why);
static bool send_reply(Worker *w, Slot *slot, Reply *reply, int32_t *ret_reply_id);
static bool send_all(Worker *w, Slot *slot, const uint8_t *data, size_t size);
static bool wait_writable(Worker *w, Slot *slot);
static void hold_request(Slot *slot, const WireMessage *message);
static void hold_next_round(Slot *slot, int32_t reply_id, Doc next_body);

static inline void conn_counter_add(uint64_t *counter, uint64_t amount) {
    __atomic_store_n(counter, *counter + amount, __ATOMIC_RELAXED);
}

/* ---- taking and leaving a connection ---- */

void connection_on_event(Worker *w, uint64_t event_data, uint32_t events) {
    Slot *slot = slot_of_event(&w->transport->table, event_data);
    uint64_t generation = event_data >> CONN_GENERATION_SHIFT;
    bool is_hangup = (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0;
    uint64_t marks = CONN_PENDING | (is_hangup ? (uint64_t)CONN_HANGUP : 0);

    /* Acquire pairs with the release of the worker that left the connection: its fields are ours to
     * read. Setting a mark needs no order of its own, since the bytes are in the kernel. */
    uint64_t word = atomic_load_explicit(&slot->word, memory_order_relaxed);
    uint64_t next;
    ConnState state;
    do {
        state = word_state(word);
        if (word >> CONN_GENERATION_SHIFT != generation || state == CONN_FREE)
            /* A stale event: that connection is closed, and its slot may have been reused. */
            return;
        if (state == CONN_IDLE || (state == CONN_PARKED && is_hangup))
            next = word_with_state(word, CONN_BUSY) | (marks & CONN_HANGUP);
        else
            next = word | marks;
    } while (!atomic_compare_exchange_weak_explicit(&slot->word, &word, next, memory_order_acq_rel,
                                                    memory_order_relaxed));
    if (state == CONN_IDLE) {
        serve(w, slot, VERDICT_NEXT, /* is_drained= */ false);
    } else if (word_state(next) == CONN_BUSY && state == CONN_PARKED) {
        parked_forget(w->transport, slot);
        connection_close(w->transport, slot);
    }
}

bool transport_is_peer_gone(const Connection *conn) {
    const Slot *slot = CONTAINER_OF(conn, Slot, conn);
    return (atomic_load_explicit(&slot->word, memory_order_relaxed) & CONN_HANGUP) != 0;
}

void connection_on_runnable(Worker *w, Slot *slot) {
    /* Without a held request it was only queued to continue reading. */
    bool is_held = slot->held != NULL;
    Verdict verdict = VERDICT_NEXT;
    if (is_held) {
        uint64_t word = atomic_load_explicit(&slot->word, memory_order_relaxed);
        verdict = (word & CONN_HANGUP) != 0 ? VERDICT_CLOSE : run_held(w, slot);
    }
    serve(w, slot, verdict, /* is_drained= */ is_held && slot->input == NULL);
}

/* Serves the connection, which the caller owns, until it waits for input or is handed over. */
static void serve(Worker *w, Slot *slot, Verdict verdict, bool is_drained) {
    Transport *t = w->transport;
    for (int rounds = 0;; rounds++) {
        if (UNLIKELY(atomic_load_explicit(&t->is_draining, memory_order_relaxed)))
            verdict = VERDICT_CLOSE;
        if (verdict == VERDICT_PARK &&
            connection_park(t, slot, w->park_deadline_us, w->park_epoch_seen))
            return;
        if (UNLIKELY(verdict == VERDICT_PARK || verdict == VERDICT_CLOSE)) {
            connection_close(t, slot);
            return;
        }
        if (verdict == VERDICT_NEXT && is_drained && try_become_idle(slot))
            return;
        if (verdict == VERDICT_STREAM || rounds == SERVE_ROUNDS_MAX) {
            connection_make_runnable(t, slot);
            return;
        }
        verdict = read_round(w, slot, &is_drained);
    }
}

/* Returns false if an event arrived meanwhile: there may be more to read. */
static bool try_become_idle(Slot *slot) {
    uint64_t word = atomic_load_explicit(&slot->word, memory_order_relaxed);
    for (;;) {
        if ((word & CONN_MARKS) != 0) {
            /* HANGUP stays set: it makes reading continue to the end of the stream. */
            atomic_fetch_and_explicit(&slot->word, ~(uint64_t)CONN_PENDING, memory_order_acq_rel);
            return false;
        }
        if (atomic_compare_exchange_weak_explicit(&slot->word, &word,
                                                  word_with_state(word, CONN_IDLE),
                                                  memory_order_acq_rel, memory_order_relaxed))
            return true;
    }
}

/* ---- input ---- */

static Verdict read_round(Worker *w, Slot *slot, bool *ret_is_drained) {
    if (LIKELY(slot->input == NULL))
        return read_fresh(w, slot, ret_is_drained);
    return read_more(w, slot, ret_is_drained);
}

static Verdict read_fresh(Worker *w, Slot *slot, bool *ret_is_drained) {
    ssize_t got = receive(w, slot, w->read_buffer, WORKER_READ_SIZE, ret_is_drained);
    if (got <= 0)
        return got == 0 ? VERDICT_NEXT : VERDICT_CLOSE;
    size_t consumed;
    Verdict verdict = run_messages(w, slot, w->read_buffer, (size_t)got, &consumed);
    size_t left = (size_t)got - consumed;
    if (UNLIKELY(left > 0) && verdict != VERDICT_CLOSE) {
        slot->input = xmemdup(w->read_buffer + consumed, left);
        slot->input_size = slot->input_capacity = (uint32_t)left;
    }
    return verdict;
}

/* The connection has its own buffer: complete the message in it, and read no further, so that the
 * following ones can be read into the worker's buffer again. */
static Verdict read_more(Worker *w, Slot *slot, bool *ret_is_drained) {
    uint32_t message_size = 0;
    InputState state = input_state(slot->input, slot->input_size, &message_size);
    if (state == INPUT_PARTIAL) {
        input_reserve(slot, message_size);
        ssize_t got = receive(w, slot, slot->input + slot->input_size,
                              slot->input_capacity - slot->input_size, ret_is_drained);
        if (got <= 0)
            return got == 0 ? VERDICT_NEXT : VERDICT_CLOSE;
        slot->input_size += (uint32_t)got;
        state = input_state(slot->input, slot->input_size, &message_size);
    } else {
        *ret_is_drained = false;
    }
    if (state == INPUT_PARTIAL)
        return VERDICT_NEXT;
    return state == INPUT_BAD ? VERDICT_CLOSE : run_input(w, slot);
}

static Verdict run_input(Worker *w, Slot *slot) {
    uint8_t *data = TAKE_PTR(slot->input);
    size_t consumed;
    Verdict verdict = run_messages(w, slot, data, slot->input_size, &consumed);
    uint32_t left = slot->input_size - (uint32_t)consumed;
    if (left == 0 || verdict == VERDICT_CLOSE) {
        xfree(data);
        slot->input_size = slot->input_capacity = 0;
    } else {
        memmove(data, data + consumed, left);
        slot->input = data;
        slot->input_size = left;
    }
    return verdict;
}

/* Out of line, as are the others that look at errno: a request may go on in another thread
 * (base/fiber.h).
 * Bytes received; 0: none now; -1: the stream has ended or broken. */
NOINLINE static ssize_t receive(Worker *w, Slot *slot, uint8_t *into, size_t size,
                                bool *ret_is_drained) {
    for (;;) {
        ssize_t got = recv(slot->fd, into, size, 0);
        if (LIKELY(got > 0)) {
            *ret_is_drained = (size_t)got < size;
            counter_add(&w->stats.physical_bytes_in, (uint64_t)got);
            return got;
        }
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0 && errno == EAGAIN &&
            (atomic_load_explicit(&slot->word, memory_order_relaxed) & CONN_HANGUP) == 0) {
            *ret_is_drained = true;
            return 0;
        }
        return -1;
    }
}

static InputState input_state(const uint8_t *data, size_t size, uint32_t *ret_message_size) {
    if (size < 4)
        return INPUT_PARTIAL;
    if (!wire_message_size(data, ret_message_size))
        return INPUT_BAD;
    return size < *ret_message_size ? INPUT_PARTIAL : INPUT_COMPLETE;
}

/* Makes room for more input, at most up to the end of the message. It doubles with what has
 * arrived: a declared length alone allocates nothing. */
static void input_reserve(Slot *slot, uint32_t message_size) {
    if (slot->input_size < slot->input_capacity)
        return;
    uint32_t capacity = WIRE_HEADER_SIZE;
    if (message_size > 0) {
        capacity = slot->input_size * 2;
        if (capacity < INPUT_CAPACITY_FIRST)
            capacity = INPUT_CAPACITY_FIRST;
        if (capacity > message_size)
            capacity = message_size;
    }
    slot->input = xrealloc(slot->input, capacity);
    slot->input_capacity = capacity;
}

/* ---- requests ---- */

static Verdict run_messages(Worker *w, Slot *slot, const uint8_t *data, size_t size,
                            size_t *ret_consumed) {
    size_t at = 0;
    Verdict verdict = VERDICT_NEXT;
    while (verdict == VERDICT_NEXT) {
        uint32_t message_size = 0;
        InputState state = input_state(data + at, size - at, &message_size);
        if (state == INPUT_PARTIAL)
            break;
        if (state == INPUT_BAD) {
            verdict = VERDICT_CLOSE;
            break;
        }
        verdict = run_message(w, slot, data + at, message_size);
        at += message_size;
    }
    *ret_consumed = at;
    return verdict;
}

static Verdict run_message(Worker *w, Slot *slot, const uint8_t *data, uint32_t size) {
    CLEANUP(error_reset) Error err;
    err.code = ERR_OK;
    err.message_heap = NULL;
    err.extra = NULL;
    conn_counter_add(&slot->conn.requests, 1);
    conn_counter_add(&slot->conn.bytes_in, size);
    counter_add(&w->stats.requests, 1);
    ErrCode rc = wire_decode(&w->decoder, data, size, &w->message, &err);
    counter_add(&w->stats.bytes_in, w->message.size);
    if (UNLIKELY(rc != ERR_OK))
        return handle_bad_message(w, slot, &err);
    if (w->message.compressor < WIRE_COMPRESSOR_COUNT) {
        counter_add(&w->stats.unpacked[w->message.compressor][0], size);
        counter_add(&w->stats.unpacked[w->message.compressor][1], w->message.size);
    }
    return dispatch(w, slot, /* is_resumed= */ false);
}

/* Runs the parked request, or the next round of a stream. */
static Verdict run_held(Worker *w, Slot *slot) {
    CLEANUP(error_reset) Error err = {0};
    ErrCode rc = wire_decode(&w->decoder, slot->held, slot->held_size, &w->message, &err);
    if (rc != ERR_OK) /* only a body supplied by the handler for the next round can be invalid */
        return handle_bad_message(w, slot, &err);
    w->message.compressor = (WireCompressor)slot->held_compressor;
    if (slot->held_has_checksum)
        w->message.flags |= WIRE_FLAG_CHECKSUM;
    return dispatch(w, slot, /* is_resumed= */ true);
}

static Verdict dispatch(Worker *w, Slot *slot, bool is_resumed) {
    Transport *t = w->transport;
    Reply reply = {.buf = &w->reply, .is_resumed = is_resumed, .park_deadline_us = INT64_MAX};
    wire_reply_begin(&w->reply);
    /* Read before the handler evaluates the state it may wait for: a change after that also changes
     * the epoch, which connection_park compares. */
    uint64_t epoch = atomic_load_explicit(&t->work.wake_epoch, memory_order_acquire);
    /* Likewise: who wakes this request alone does so after the handler made itself known. */
    if (UNLIKELY(atomic_load_explicit(&slot->is_woken, memory_order_relaxed)))
        atomic_store_explicit(&slot->is_woken, false, memory_order_relaxed);
    counter_add(&w->carrier->sequence, 1);
    HandleResult result =
        t->config.handler.on_message(t->config.ctx, w, &slot->conn, &w->message, &reply);

    Verdict verdict = VERDICT_NEXT;
    int32_t reply_id = 0;
    if (LIKELY(result == HANDLE_REPLY)) {
        reply.more_to_come = reply.more_to_come && wire_is_exhaust_allowed(&w->message);
        if (!wire_is_fire_and_forget(&w->message) && !send_reply(w, slot, &reply, &reply_id))
            verdict = VERDICT_CLOSE;
        else if (UNLIKELY(reply.close_after))
            verdict = VERDICT_CLOSE;
        else if (UNLIKELY(reply.more_to_come))
            verdict = VERDICT_STREAM;
    } else if (result == HANDLE_PARK) {
        w->park_deadline_us = reply.park_deadline_us;
        w->park_epoch_seen = epoch;
        verdict = VERDICT_PARK;
    } else if (result == HANDLE_CLOSE) {
        verdict = VERDICT_CLOSE;
    }

    if (UNLIKELY(verdict == VERDICT_PARK || verdict == VERDICT_STREAM)) {
        if (slot->held == NULL)
            hold_request(slot, &w->message);
        if (verdict == VERDICT_STREAM)
            hold_next_round(slot, reply_id, reply.next_body);
    } else if (UNLIKELY(slot->held != NULL)) {
        xfree(TAKE_PTR(slot->held));
    }
    counter_add(&w->carrier->sequence, 1);
    worker_trim(w, /* is_idle= */ false);
    return verdict;
}

static Verdict handle_bad_message(Worker *w, Slot *slot, const Error *why) {
    Transport *t = w->transport;
    const WireMessage *message = &w->message;
    xfree(TAKE_PTR(slot->held));
    bool can_reply = (message->opcode == WIRE_OP_MSG && !wire_is_fire_and_forget(message)) ||
                     message->opcode == WIRE_OP_QUERY;
    if (can_reply) {
        Reply reply = {.buf = &w->reply, .never_compress = true};
        wire_reply_begin(&w->reply);
        t->config.handler.on_bad_message(t->config.ctx, w, &slot->conn, message, why, &reply);
        int32_t reply_id;
        if (!send_reply(w, slot, &reply, &reply_id) || reply.close_after)
            return VERDICT_CLOSE;
    }
    return message->must_close ? VERDICT_CLOSE : VERDICT_NEXT;
}

/* ---- output ---- */

static bool send_reply(Worker *w, Slot *slot, Reply *reply, int32_t *ret_reply_id) {
    Transport *t = w->transport;
    const WireMessage *message = &w->message;
    WireReplyInfo info = {
        .request_id = slot->next_reply_id++,
        .response_to = message->request_id,
        .is_op_reply = message->opcode == WIRE_OP_QUERY,
        .more_to_come = reply->more_to_come,
        .has_checksum =
            message->opcode == WIRE_OP_MSG && (message->flags & WIRE_FLAG_CHECKSUM) != 0,
        .compressor = WIRE_COMPRESSOR_NONE,
    };
    if (UNLIKELY(message->compressor != WIRE_COMPRESSOR_NONE) && !reply->never_compress &&
        (slot->conn.compressors & WIRE_COMPRESSOR_BIT(message->compressor)) != 0)
        info.compressor = message->compressor;

    const Buffer *out = NULL;
    CLEANUP(error_reset) Error err;
    err.code = ERR_OK;
    err.message_heap = NULL;
    err.extra = NULL;
    if (UNLIKELY(wire_reply_finish(&w->reply, &info, &w->packed, &out, &err) != ERR_OK)) {
        wire_reply_begin(&w->reply);
        info.more_to_come = reply->more_to_come = false;
        t->config.handler.on_bad_message(t->config.ctx, w, &slot->conn, message, &err, reply);
        error_reset(&err);
        if (wire_reply_finish(&w->reply, &info, &w->packed, &out, &err) != ERR_OK)
            return false;
    }
    *ret_reply_id = info.request_id;
    counter_add(&w->stats.bytes_out, w->reply.size);
    counter_add(&w->stats.physical_bytes_out, out->size);
    if (out != &w->reply && info.compressor < WIRE_COMPRESSOR_COUNT) {
        counter_add(&w->stats.packed[info.compressor][0], w->reply.size);
        counter_add(&w->stats.packed[info.compressor][1], out->size);
    }
    conn_counter_add(&slot->conn.bytes_out, out->size);
    return send_all(w, slot, out->data, out->size);
}

NOINLINE static bool send_all(Worker *w, Slot *slot, const uint8_t *data, size_t size) {
    while (size > 0) {
        ssize_t sent = send(slot->fd, data, size, MSG_NOSIGNAL);
        if (LIKELY(sent > 0)) {
            data += sent;
            size -= (size_t)sent;
        } else if (sent < 0 && errno == EAGAIN) {
            if (!wait_writable(w, slot))
                return false;
        } else if (sent < 0 && errno != EINTR) {
            return false;
        }
    }
    return true;
}

/* Waits as a blocked worker for a slow reader. */
NOINLINE static bool wait_writable(Worker *w, Slot *slot) {
    int64_t deadline_us = clock_mono_us() + w->transport->config.send_stall_us_max;
    struct pollfd pollfd = {.fd = slot->fd, .events = POLLOUT};
    int rc;
    worker_block_begin(w);
    do {
        int64_t left_us = deadline_us - clock_mono_us();
        rc = left_us <= 0 ? 0 : poll(&pollfd, 1, (int)((left_us + 999) / 1000));
    } while (rc < 0 && errno == EINTR);
    worker_block_end(w);
    return rc > 0;
}

/* ---- requests that outlive their worker ---- */

/* Keeps a copy of the message without its checksum, which would not fit the next round. */
static void hold_request(Slot *slot, const WireMessage *message) {
    bool has_checksum =
        message->opcode == WIRE_OP_MSG && (message->flags & WIRE_FLAG_CHECKSUM) != 0;
    slot->held_size = message->size - (has_checksum ? WIRE_CHECKSUM_SIZE : 0);
    slot->held = xmemdup(message->bytes, slot->held_size);
    slot->held_has_checksum = has_checksum;
    slot->held_compressor = (uint8_t)message->compressor;
    if (has_checksum) {
        uint32_t flags = message->flags & ~(uint32_t)WIRE_FLAG_CHECKSUM;
        memcpy(slot->held, &slot->held_size, sizeof(slot->held_size));
        memcpy(slot->held + WIRE_HEADER_SIZE, &flags, sizeof(flags));
    }
}

/* Clients follow a stream by its ids: each reply refers to the previous one. */
static void hold_next_round(Slot *slot, int32_t reply_id, Doc next_body) {
    if (doc_is_present(next_body)) {
        uint32_t size = WIRE_MSG_HEADER_SIZE + doc_size(next_body);
        uint8_t *next = xmalloc(size);
        memcpy(next, slot->held, WIRE_MSG_HEADER_SIZE - 1);
        memcpy(next, &size, sizeof(size));
        next[WIRE_MSG_HEADER_SIZE - 1] = 0; /* kind of the body section */
        memcpy(next + WIRE_MSG_HEADER_SIZE, next_body.data, doc_size(next_body));
        xfree(slot->held);
        slot->held = next;
        slot->held_size = size;
    }
    memcpy(slot->held + 4, &reply_id, sizeof(reply_id));
}

void worker_trim(Worker *w, bool is_idle) {
    size_t largest = w->reply.capacity;
    if (w->packed.capacity > largest)
        largest = w->packed.capacity;
    if (w->decoder.inflated.capacity > largest)
        largest = w->decoder.inflated.capacity;
    if (LIKELY(largest <= REPLY_KEEP_SIZE_MAX))
        return;
    bool is_large = w->reply.size > REPLY_KEEP_SIZE_MAX || w->message.size > REPLY_KEEP_SIZE_MAX;
    w->small_streak = is_large ? 0 : w->small_streak + 1;
    if (!is_idle && w->small_streak < TRIM_AFTER_REQUESTS)
        return;
    size_t reply_max = w->reply.size_max;
    size_t packed_max = w->packed.size_max;
    buffer_done(&w->reply);
    buffer_done(&w->packed);
    buffer_init(&w->reply, reply_max);
    buffer_init(&w->packed, packed_max);
    wire_decoder_trim(&w->decoder);
    w->small_streak = 0;
}
