/*
 * move_model_test.c - the protocol of a move as a small model, of which every interleaving is
 * looked at.
 *
 * Two shards, two keys with a chunk each, two moves one after the other, of whichever key; a router
 * that scans, another one that writes, both with tables as old as may be; range deletion; a crash
 * of a shard at any step. Each step below is one that the program takes atomically (a document
 * written, a request answered).
 *
 * Held up in every state: no two shards accept writes of one key, and a shard that deletes does not
 * own what it deletes. At the end of a scan: each key was returned once. When nothing can happen
 * any more: each key is on its owner alone, with all writes that were acknowledged, and nobody is
 * blocked.
 *
 * That the model can fail is shown by leaving out one rule of the protocol at a time.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "base/test.h"

enum { SHARDS = 2, KEYS = 2, ROUTERS = 2, WRITES = 3, MOVES = 2, CRASHES = 2, SCANS = 2 };

typedef enum Section { SECTION_NONE, SECTION_OF_WRITES, SECTION_OF_ALL } Section;
/* Bits: the tasks of two moves may be there at once. */
typedef enum Task { TASK_NONE = 0, TASK_PENDING = 1, TASK_READY = 2 } Task;

/* The steps of a move, in order. */
typedef enum Step {
    STEP_BEGIN, /* checks, both range deletion tasks */
    STEP_CLONE,
    STEP_CATCH_UP,
    STEP_BLOCK_WRITES,
    STEP_DRAIN,
    STEP_RECIPIENT_SECTION,
    STEP_BLOCK_READS,
    STEP_COMMIT,
    STEP_RELEASE_RECIPIENT,
    STEP_LEAVE,
    STEP_END, /* the donor's task is ready */
    STEP_COUNT,
} Step;

/* The rules that can be left out. */
typedef enum Rule {
    RULE_VERSIONS,     /* requests are compared with the shard's version */
    RULE_BLOCK_WRITES, /* writes of the donor are blocked before the last modifications */
    RULE_DRAIN,        /* modifications are transferred once more behind that */
    RULE_FORGET,       /* the end of a section makes a shard forget its placement */
    RULE_READERS,      /* range deletion waits for open reads */
    RULE_FILTER,       /* reads leave out what the shard does not own */
    RULE_DELETIONS,    /* a move to a shard waits for range deletions there */
    RULE_COUNT,
} Rule;

typedef struct ShardModel {
    uint8_t is_known; /* its placement; lost by a crash */
    uint8_t owner[KEYS];
    uint8_t version;
    uint8_t section;
    uint8_t has[KEYS];
    uint8_t value[KEYS];
    uint8_t task[KEYS];
    uint8_t cursor;      /* of the scan: open */
    uint8_t cursor_owns; /* bits of keys */
} ShardModel;

typedef struct RouterModel {
    uint8_t owner[KEYS];
    uint8_t version[SHARDS];
} RouterModel;

typedef struct State {
    uint8_t owner[KEYS]; /* on the config server, with what follows */
    uint8_t version[SHARDS];
    uint8_t major;
    uint8_t step;
    uint8_t moves_left;
    uint8_t moving;   /* the key of the move under way */
    uint8_t from;     /* its donor */
    uint8_t is_dirty; /* the key that moves was written on the donor since the clone */
    uint8_t writes_left;
    uint8_t crashes_left;
    uint8_t scans_left;
    uint8_t scan_open; /* bits of shards that were opened, and */
    uint8_t scan_read; /* read */
    uint8_t seen[KEYS];
    uint8_t acked[KEYS];
    ShardModel shard[SHARDS];
    RouterModel router[ROUTERS];
} State;

typedef struct Explorer {
    bool is_left_out[RULE_COUNT];
    State *states; /* found so far; those from `next` on are to be looked at */
    size_t count;
    size_t capacity;
    size_t next;
    uint32_t *slots; /* 1 + index in states */
    size_t slot_count;
    const char *violation;
} Explorer;

/* ---- the set of states ---- */

static void grow(Explorer *x) {
    size_t slot_count = x->slot_count == 0 ? 1 << 16 : x->slot_count * 2;
    xfree(x->slots);
    x->slots = xcalloc(slot_count, sizeof(*x->slots));
    x->slot_count = slot_count;
    for (size_t i = 0; i < x->count; i++) {
        size_t at = hash_bytes(&x->states[i], sizeof(State)) & (slot_count - 1);
        while (x->slots[at] != 0)
            at = (at + 1) & (slot_count - 1);
        x->slots[at] = (uint32_t)i + 1;
    }
}

static void add(Explorer *x, const State *state) {
    if (x->count * 2 >= x->slot_count)
        grow(x);
    size_t at = hash_bytes(state, sizeof(State)) & (x->slot_count - 1);
    for (; x->slots[at] != 0; at = (at + 1) & (x->slot_count - 1))
        if (memcmp(&x->states[x->slots[at] - 1], state, sizeof(State)) == 0)
            return;
    ARRAY_RESERVE(x->states, x->count, x->capacity);
    x->states[x->count++] = *state;
    x->slots[at] = (uint32_t)x->count;
}

static void violate(Explorer *x, const char *what) {
    if (x->violation == NULL)
        x->violation = what;
}

/* ---- moves ---- */

static void refresh_shard(State *s, int shard) {
    ShardModel *m = &s->shard[shard];
    m->is_known = 1;
    memcpy(m->owner, s->owner, sizeof(m->owner));
    m->version = s->version[shard];
}

static void refresh_router(State *s, int router) {
    memcpy(s->router[router].owner, s->owner, sizeof(s->owner));
    memcpy(s->router[router].version, s->version, sizeof(s->version));
}

static void leave_section(const Explorer *x, ShardModel *m) {
    m->section = SECTION_NONE;
    if (!x->is_left_out[RULE_FORGET])
        m->is_known = 0;
}

static void copy_document(State *s, int from, int to) {
    s->shard[to].has[s->moving] = s->shard[from].has[s->moving];
    s->shard[to].value[s->moving] = s->shard[from].value[s->moving];
    s->is_dirty = 0;
}

static void commit(State *s, int from, int to) {
    s->owner[s->moving] = (uint8_t)to;
    s->major++;
    s->version[to] = s->major;
    bool has_more = false;
    for (int k = 0; k < KEYS; k++)
        has_more |= s->owner[k] == from;
    s->version[from] = has_more ? s->major : 0;
}

/* One step of the move, if it can be taken; the first one chooses which key goes to the other
 * shard. */
static bool move_on(const Explorer *x, State *s, int chosen) {
    bool is_begin = s->step == STEP_BEGIN;
    if (s->moves_left == 0 || (!is_begin && chosen != 0))
        return false;
    if (is_begin) {
        s->moving = (uint8_t)chosen;
        s->from = s->owner[chosen];
    }
    int from = s->from, to = 1 - from, key = s->moving;
    ShardModel *donor = &s->shard[from], *recipient = &s->shard[to];
    switch ((Step)s->step) {
    case STEP_BEGIN:
        if (recipient->task[key] != TASK_NONE && !x->is_left_out[RULE_DELETIONS])
            return false;
        donor->task[key] |= TASK_PENDING;
        recipient->task[key] |= TASK_PENDING;
        s->is_dirty = 0;
        break;
    case STEP_CLONE:
    case STEP_CATCH_UP:
        copy_document(s, from, to);
        break;
    case STEP_BLOCK_WRITES:
        if (!x->is_left_out[RULE_BLOCK_WRITES])
            donor->section = SECTION_OF_WRITES;
        break;
    case STEP_DRAIN:
        if (!x->is_left_out[RULE_DRAIN])
            copy_document(s, from, to);
        break;
    case STEP_RECIPIENT_SECTION:
        recipient->section = SECTION_OF_WRITES;
        break;
    case STEP_BLOCK_READS:
        if (!x->is_left_out[RULE_BLOCK_WRITES])
            donor->section = SECTION_OF_ALL;
        break;
    case STEP_COMMIT:
        commit(s, from, to);
        break;
    case STEP_RELEASE_RECIPIENT:
        recipient->task[key] &= (uint8_t)~TASK_PENDING;
        leave_section(x, recipient);
        break;
    case STEP_LEAVE:
        leave_section(x, donor);
        break;
    case STEP_END:
        donor->task[key] = TASK_READY; /* its pending one, and one that was ready before */
        s->moves_left--;
        break;
    case STEP_COUNT:
        break;
    }
    s->step = (uint8_t)((s->step + 1) % STEP_COUNT);
    return true;
}

/* ---- requests ---- */

typedef enum Answer { ANSWER_OK, ANSWER_WAIT, ANSWER_STALE } Answer;

/* The check of a versioned request; the older side has refreshed when it is refused. */
static Answer ask(const Explorer *x, State *s, int router, int shard, bool is_write) {
    ShardModel *m = &s->shard[shard];
    if (m->section == SECTION_OF_ALL || (m->section == SECTION_OF_WRITES && is_write))
        return ANSWER_WAIT;
    if (m->is_known &&
        (m->version == s->router[router].version[shard] || x->is_left_out[RULE_VERSIONS]))
        return ANSWER_OK;
    refresh_shard(s, shard);
    refresh_router(s, router);
    return ANSWER_STALE;
}

/* The second router adds one to a key. */
static bool write_key(const Explorer *x, State *s, int key) {
    if (s->writes_left == 0)
        return false;
    int shard = s->router[1].owner[key];
    Answer answer = ask(x, s, 1, shard, /* is_write= */ true);
    if (answer != ANSWER_OK)
        return answer == ANSWER_STALE;
    ShardModel *m = &s->shard[shard];
    s->writes_left--;
    s->acked[key]++;
    m->value[key]++;
    bool is_moving = s->moves_left > 0 && key == s->moving && shard == s->from;
    if (is_moving && s->step > STEP_CLONE && s->step < STEP_COMMIT)
        s->is_dirty = 1;
    return true;
}

static uint8_t target_shards(const State *s) {
    uint8_t bits = 0;
    for (int k = 0; k < KEYS; k++)
        bits |= (uint8_t)(1 << s->router[0].owner[k]);
    return bits;
}

static void close_scan(State *s) {
    s->scan_open = s->scan_read = 0;
    memset(s->seen, 0, sizeof(s->seen));
    for (int i = 0; i < SHARDS; i++)
        s->shard[i].cursor = s->shard[i].cursor_owns = 0;
}

/* The first router opens its cursor on a shard. */
static bool open_cursor(const Explorer *x, State *s, int shard) {
    uint8_t bit = (uint8_t)(1 << shard);
    if (s->scans_left == 0 || (target_shards(s) & bit) == 0 || (s->scan_open & bit) != 0 ||
        s->scan_read != 0)
        return false;
    Answer answer = ask(x, s, 0, shard, /* is_write= */ false);
    if (answer == ANSWER_WAIT)
        return false;
    if (answer == ANSWER_STALE) { /* it begins anew, on all shards */
        close_scan(s);
        return true;
    }
    ShardModel *m = &s->shard[shard];
    s->scan_open |= bit;
    m->cursor = 1;
    for (int k = 0; k < KEYS; k++)
        if (m->owner[k] == shard || x->is_left_out[RULE_FILTER])
            m->cursor_owns |= (uint8_t)(1 << k);
    return true;
}

/* And reads it, some time after all are open; the scan is over with the last one. */
static bool read_cursor(Explorer *x, State *s, int shard) {
    uint8_t bit = (uint8_t)(1 << shard);
    if ((s->scan_open & bit) == 0 || (s->scan_read & bit) != 0 || s->scan_open != target_shards(s))
        return false;
    ShardModel *m = &s->shard[shard];
    for (int k = 0; k < KEYS; k++)
        if ((m->cursor_owns & (1 << k)) != 0 && m->has[k])
            s->seen[k]++;
    s->scan_read |= bit;
    m->cursor = m->cursor_owns = 0;
    if (s->scan_read != s->scan_open)
        return true;
    for (int k = 0; k < KEYS; k++)
        if (s->seen[k] != 1)
            violate(x, s->seen[k] == 0 ? "a scan misses a key" : "a scan returns a key twice");
    s->scans_left--;
    close_scan(s);
    return true;
}

/* ---- range deletion, crashes ---- */

static bool delete_range(Explorer *x, State *s, int shard, int key) {
    ShardModel *m = &s->shard[shard];
    if ((m->task[key] & TASK_READY) == 0)
        return false;
    if (!m->is_known)
        refresh_shard(s, shard);
    if (m->owner[key] == shard) /* it never deletes what it owns, by what it knows */
        return false;
    bool is_read = m->cursor && (m->cursor_owns & (1 << key)) != 0;
    if (is_read && !x->is_left_out[RULE_READERS])
        return false;
    if (s->owner[key] == shard)
        violate(x, "a shard deletes what it owns");
    m->has[key] = 0;
    m->task[key] &= (uint8_t)~TASK_READY;
    return true;
}

/* Documents stay, with tasks and sections; what is in memory goes: placement and cursors. */
static bool crash(State *s, int shard) {
    if (s->crashes_left == 0)
        return false;
    s->crashes_left--;
    s->shard[shard].is_known = 0;
    if ((s->scan_open & (1 << shard)) != 0)
        close_scan(s);
    return true;
}

/* ---- exploring ---- */

static void check_state(Explorer *x, const State *s) {
    for (int k = 0; k < KEYS; k++) {
        int writable = 0;
        for (int i = 0; i < SHARDS; i++) {
            const ShardModel *m = &s->shard[i];
            writable += m->is_known && m->owner[k] == i && m->section == SECTION_NONE;
        }
        if (writable > 1)
            violate(x, "two shards accept writes of a key");
    }
}

static void check_end(Explorer *x, const State *s) {
    if (s->moves_left > 0 || s->writes_left > 0 || s->scans_left > 0)
        violate(x, "somebody waits for ever");
    for (int k = 0; k < KEYS; k++) {
        const ShardModel *owner = &s->shard[s->owner[k]], *other = &s->shard[1 - s->owner[k]];
        if (!owner->has[k] || owner->value[k] != s->acked[k])
            violate(x, "an acknowledged write is lost");
        if (other->has[k])
            violate(x, "an orphan is left");
        if (owner->task[k] != TASK_NONE || other->task[k] != TASK_NONE)
            violate(x, "a range deletion task is left");
    }
    for (int i = 0; i < SHARDS; i++)
        if (s->shard[i].section != SECTION_NONE)
            violate(x, "a shard stays blocked");
}

typedef enum EventKind {
    EVENT_MOVE,
    EVENT_WRITE,
    EVENT_OPEN,
    EVENT_READ,
    EVENT_DELETE,
    EVENT_CRASH
} EventKind;

static bool take(Explorer *x, State *s, EventKind kind, int shard, int key) {
    switch (kind) {
    case EVENT_MOVE:
        return shard == 0 && move_on(x, s, key);
    case EVENT_WRITE:
        return shard == 0 && write_key(x, s, key);
    case EVENT_OPEN:
        return key == 0 && open_cursor(x, s, shard);
    case EVENT_READ:
        return key == 0 && read_cursor(x, s, shard);
    case EVENT_DELETE:
        return delete_range(x, s, shard, key);
    case EVENT_CRASH:
        return key == 0 && crash(s, shard);
    }
    return false;
}

static State first_state(void) {
    State s = {.major = 1,
               .moves_left = MOVES,
               .writes_left = WRITES,
               .crashes_left = CRASHES,
               .scans_left = SCANS};
    s.version[0] = 1; /* the first shard has both keys */
    for (int k = 0; k < KEYS; k++)
        s.shard[0].has[k] = 1;
    for (int i = 0; i < SHARDS; i++)
        refresh_shard(&s, i);
    for (int i = 0; i < ROUTERS; i++)
        refresh_router(&s, i);
    return s;
}

/* Every state that can be reached; stops at the first violation. */
static size_t explore(Explorer *x) {
    State first = first_state();
    add(x, &first);
    for (; x->next < x->count && x->violation == NULL; x->next++) {
        bool can_go_on = false;
        for (int kind = EVENT_MOVE; kind <= EVENT_CRASH; kind++)
            for (int shard = 0; shard < SHARDS; shard++)
                for (int key = 0; key < KEYS; key++) {
                    State s = x->states[x->next];
                    if (!take(x, &s, (EventKind)kind, shard, key))
                        continue;
                    can_go_on |= kind != EVENT_CRASH;
                    check_state(x, &s);
                    add(x, &s);
                }
        if (!can_go_on)
            check_end(x, &x->states[x->next]);
    }
    xfree(x->states);
    xfree(x->slots);
    return x->count;
}

TEST(every_interleaving_of_two_moves_keeps_documents_and_shows_them_once) {
    /* Goal (MIG-2, RNG-3, RNG-5): ownership is unique, keys are returned once, writes are kept. */
    Explorer x = {0};
    size_t count = explore(&x);
    EXPECT_STR(x.violation != NULL ? x.violation : "none", "none");
    EXPECT(count > 10000); /* all of them, not just some that happen to come first */
}

TEST(each_rule_of_a_move_is_needed) {
    /* Goal: the model finds what goes wrong without one of the rules. */
    static const char *const NAMES[RULE_COUNT] = {"versions", "block",  "drain",    "forget",
                                                  "readers",  "filter", "deletions"};
    for (int rule = 0; rule < RULE_COUNT; rule++) {
        Explorer x = {0};
        x.is_left_out[rule] = true;
        (void)explore(&x);
        if (x.violation == NULL)
            EXPECT_STR(NAMES[rule], "a rule without which something is violated");
    }
}
