#include "sharding/route/set_view.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

enum {
    /* Of ten: weight of a new round trip in the average. */
    RTT_WEIGHT_TENTHS = 2,
};

/* ---- making and reading ---- */

static SetView *view_new(const char *name, uint32_t count) {
    SetView *view = xcalloc(1, sizeof(SetView) + count * sizeof(SetMember));
    atomic_init(&view->refs, 1);
    snprintf(view->name, sizeof(view->name), "%s", name);
    view->count = count;
    return view;
}

static void member_init(SetMember *member, Str host) {
    *member = (SetMember){.rtt_us = -1, .counter = -1};
    snprintf(member->host, sizeof(member->host), "%.*s", (int)host.size, host.data);
}

static void member_copy(SetMember *to, const SetMember *from) {
    *to = *from;
    if (from->tags != NULL)
        to->tags = doc_copy_heap((Doc){from->tags});
}

/* A copy that is about to change. */
static SetView *view_copy(const SetView *view) {
    SetView *copy = view_new(view->name, view->count);
    copy->has_election = view->has_election;
    copy->election_id = view->election_id;
    copy->config_version = view->config_version;
    for (uint32_t i = 0; i < view->count; i++)
        member_copy(&copy->members[i], &view->members[i]);
    return copy;
}

SetView *set_view_ref(SetView *view) {
    atomic_fetch_add_explicit(&view->refs, 1, memory_order_relaxed);
    return view;
}

void set_view_unref(SetView *view) {
    /* Release pairs with the acquire of the last unref, which frees what all others have read. */
    if (view == NULL || atomic_fetch_sub_explicit(&view->refs, 1, memory_order_acq_rel) != 1)
        return;
    for (uint32_t i = 0; i < view->count; i++)
        xfree(view->members[i].tags);
    xfree(view);
}

SetView *set_view_without_elections(SetView *view) {
    if (!view->has_election)
        return set_view_ref(view);
    SetView *next = view_copy(view);
    next->has_election = false;
    return next;
}

ErrCode set_view_parse(Str text, SetView **ret_view, Error *err) {
    const char *slash = memchr(text.data, '/', text.size);
    size_t name_size = slash != NULL ? (size_t)(slash - text.data) : 0;
    if (name_size == 0 || name_size >= SET_NAME_SIZE)
        return error_set(err, ERR_FAILED_TO_PARSE,
                         "\"%.*s\" is not the address of a replica set: name/host:port,host:port",
                         (int)text.size, text.data);
    char name[SET_NAME_SIZE];
    snprintf(name, sizeof(name), "%.*s", (int)name_size, text.data);
    SetView *view = view_new(name, SET_MEMBERS_MAX);
    view->count = 0;
    const char *end = text.data + text.size;
    for (const char *at = slash + 1; at <= end;) {
        const char *comma = memchr(at, ',', (size_t)(end - at));
        Str host = {at, (size_t)((comma != NULL ? comma : end) - at)};
        if (host.size == 0 || host.size >= SET_HOST_SIZE || view->count == SET_MEMBERS_MAX) {
            set_view_unref(view);
            return error_set(err, ERR_FAILED_TO_PARSE,
                             "\"%.*s\": a host is empty or too long, or there are more than %d",
                             (int)text.size, text.data, SET_MEMBERS_MAX);
        }
        member_init(&view->members[view->count++], host);
        at = comma != NULL ? comma + 1 : end + 1;
    }
    *ret_view = view;
    return ERR_OK;
}

static int compare_hosts(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

const char *set_view_text(const SetView *view, Arena *arena) {
    const char *hosts[SET_MEMBERS_MAX];
    for (uint32_t i = 0; i < view->count; i++)
        hosts[i] = view->members[i].host;
    qsort(hosts, view->count, sizeof(hosts[0]), compare_hosts);
    Buffer text;
    buffer_init_arena(&text, arena, 256, SET_NAME_SIZE + SET_MEMBERS_MAX * SET_HOST_SIZE);
    buffer_append(&text, view->name, strlen(view->name));
    for (uint32_t i = 0; i < view->count; i++) {
        buffer_append_byte(&text, i == 0 ? '/' : ',');
        buffer_append(&text, hosts[i], strlen(hosts[i]));
    }
    buffer_append_byte(&text, '\0');
    return (const char *)text.data;
}

int set_view_find(const SetView *view, const char *host) {
    for (uint32_t i = 0; i < view->count; i++)
        if (strcmp(view->members[i].host, host) == 0)
            return (int)i;
    return -1;
}

int set_view_primary(const SetView *view) {
    for (uint32_t i = 0; i < view->count; i++)
        if (view->members[i].kind == SET_MEMBER_PRIMARY)
            return (int)i;
    return -1;
}

/* ---- what a member says ---- */

/* hosts, passives and arbiters; hidden members are in none of them. */
typedef struct Named {
    Str hosts[SET_MEMBERS_MAX];
    uint32_t count;
} Named;

static bool named_has(const Named *named, Str host) {
    for (uint32_t i = 0; i < named->count; i++)
        if (str_equal(named->hosts[i], host))
            return true;
    return false;
}

static void read_named(Doc hello, Named *ret_named) {
    static const char *const LISTS[] = {"hosts", "passives", "arbiters"};
    ret_named->count = 0;
    for (size_t i = 0; i < ARRAY_LEN(LISTS); i++) {
        Elem list = doc_get(hello, str_from(LISTS[i]));
        if (elem_type(list) != BT_ARRAY)
            continue;
        DocIter iter = doc_iter(elem_doc(list));
        for (Elem host; doc_iter_next(&iter, &host);)
            if (elem_type(host) == BT_STRING && elem_str(host).size > 0 &&
                elem_str(host).size < SET_HOST_SIZE && ret_named->count < SET_MEMBERS_MAX)
                ret_named->hosts[ret_named->count++] = elem_str(host);
    }
}

static bool is_true(Doc hello, const char *name) {
    Elem elem = doc_get(hello, str_from(name));
    return elem_type(elem) == BT_BOOL && elem_bool(elem);
}

static SetMemberKind kind_of(const SetView *view, Doc hello) {
    Elem ok = doc_get_lit(hello, "ok");
    Elem name = doc_get_lit(hello, "setName");
    if (!elem_is_number(ok) || elem_as_i64(ok) != 1)
        return SET_MEMBER_UNKNOWN;
    if (elem_type(name) != BT_STRING || !str_is(elem_str(name), view->name))
        return SET_MEMBER_UNKNOWN;
    if (is_true(hello, "isWritablePrimary") || is_true(hello, "ismaster"))
        return SET_MEMBER_PRIMARY;
    if (is_true(hello, "hidden") || is_true(hello, "arbiterOnly"))
        return SET_MEMBER_OTHER;
    return is_true(hello, "secondary") ? SET_MEMBER_SECONDARY : SET_MEMBER_OTHER;
}

/* Whether the reply is older than what this member has said before: it waited somewhere. */
static bool is_old_news(const SetMember *member, Doc hello) {
    Elem version = doc_get_lit(hello, "topologyVersion");
    if (member->counter < 0 || elem_type(version) != BT_DOC)
        return false;
    Elem process = doc_get_lit(elem_doc(version), "processId");
    Elem counter = doc_get_lit(elem_doc(version), "counter");
    return elem_type(process) == BT_OID && elem_type(counter) == BT_INT64 &&
           memcmp(elem_oid(process), &member->process_id, sizeof(Oid)) == 0 &&
           elem_i64(counter) < member->counter;
}

static void take_facts(SetMember *member, Doc hello, SetMemberKind kind, int64_t rtt_us,
                       int64_t wall_ms) {
    member->kind = kind;
    member->heard_wall_ms = wall_ms;
    if (rtt_us >= 0)
        member->rtt_us =
            member->rtt_us < 0
                ? rtt_us
                : (rtt_us * RTT_WEIGHT_TENTHS + member->rtt_us * (10 - RTT_WEIGHT_TENTHS)) / 10;
    Elem tags = doc_get_lit(hello, "tags");
    xfree(member->tags);
    member->tags = elem_type(tags) == BT_DOC ? doc_copy_heap(elem_doc(tags)) : NULL;
    Elem last_write = doc_get_lit(hello, "lastWrite");
    if (elem_type(last_write) == BT_DOC) {
        Elem date = doc_get_lit(elem_doc(last_write), "lastWriteDate");
        if (elem_type(date) == BT_DATE)
            member->last_write_ms = elem_i64(date);
    }
    member->counter = -1;
    Elem version = doc_get_lit(hello, "topologyVersion");
    if (elem_type(version) != BT_DOC)
        return;
    Elem process = doc_get_lit(elem_doc(version), "processId");
    Elem counter = doc_get_lit(elem_doc(version), "counter");
    if (elem_type(process) == BT_OID && elem_type(counter) == BT_INT64) {
        member->process_id = *elem_oid(process);
        member->counter = elem_i64(counter);
    }
}

/* Elections are ordered by their id, which has the term; then by the configuration. */
static bool is_stale_primary(const SetView *view, Doc hello, Oid *ret_id, int64_t *ret_version) {
    Elem id = doc_get_lit(hello, "electionId");
    Elem version = doc_get_lit(hello, "setVersion");
    *ret_version = elem_is_number(version) ? elem_as_i64(version) : 0;
    *ret_id = elem_type(id) == BT_OID ? *elem_oid(id) : (Oid){0};
    if (!view->has_election)
        return false;
    int order = memcmp(ret_id, &view->election_id, sizeof(Oid));
    return order < 0 || (order == 0 && *ret_version < view->config_version);
}

static void forget(SetMember *member) {
    member->kind = SET_MEMBER_UNKNOWN;
    member->counter = -1;
}

/* The members that `named` has; those of the view are kept as they are, and others are added. Those
 * of the view that are not named are dropped if `is_final`. */
static SetView *view_with_named(SetView *take_view, const Named *named, bool is_final) {
    SetView *view = take_view;
    SetView *next = view_new(view->name, view->count + named->count);
    next->has_election = view->has_election;
    next->election_id = view->election_id;
    next->config_version = view->config_version;
    next->count = 0;
    for (uint32_t i = 0; i < view->count; i++)
        if (!is_final || named_has(named, str_from(view->members[i].host)))
            member_copy(&next->members[next->count++], &view->members[i]);
    for (uint32_t i = 0; i < named->count && next->count < SET_MEMBERS_MAX; i++) {
        char host[SET_HOST_SIZE];
        snprintf(host, sizeof(host), "%.*s", (int)named->hosts[i].size, named->hosts[i].data);
        if (set_view_find(next, host) < 0)
            member_init(&next->members[next->count++], named->hosts[i]);
    }
    set_view_unref(view);
    return next;
}

SetView *set_view_with_hello(SetView *view, const char *host, Doc hello, int64_t rtt_us,
                             int64_t wall_ms) {
    int index = set_view_find(view, host);
    if (index < 0 || is_old_news(&view->members[index], hello))
        return set_view_ref(view);
    SetMemberKind kind = kind_of(view, hello);
    Oid election_id = {0};
    int64_t version = 0;
    bool is_stale =
        kind == SET_MEMBER_PRIMARY && is_stale_primary(view, hello, &election_id, &version);
    if (kind == SET_MEMBER_UNKNOWN || is_stale)
        return set_view_with_failure(view, host);
    SetView *next = view_copy(view);
    take_facts(&next->members[index], hello, kind, rtt_us, wall_ms);
    bool has_primary = set_view_primary(next) >= 0;
    if (kind == SET_MEMBER_PRIMARY) {
        next->has_election = true;
        next->election_id = election_id;
        next->config_version = version;
        for (uint32_t i = 0; i < next->count; i++)
            if ((int)i != index && next->members[i].kind == SET_MEMBER_PRIMARY)
                forget(&next->members[i]);
    }
    Named named;
    read_named(hello, &named);
    if (kind == SET_MEMBER_PRIMARY && named.count > 0)
        return view_with_named(next, &named, /* is_final= */ true);
    if (!has_primary && named.count > 0)
        return view_with_named(next, &named, /* is_final= */ false);
    return next;
}

SetView *set_view_with_seeds(SetView *view, const SetView *seeds) {
    Named named = {.count = 0};
    for (uint32_t i = 0; i < view->count; i++)
        if (view->members[i].kind != SET_MEMBER_UNKNOWN)
            return set_view_ref(view);
    for (uint32_t i = 0; i < seeds->count; i++)
        if (set_view_find(view, seeds->members[i].host) < 0)
            named.hosts[named.count++] = str_from(seeds->members[i].host);
    return named.count == 0 ? set_view_ref(view)
                            : view_with_named(view_copy(view), &named, /* is_final= */ false);
}

SetView *set_view_with_failure(SetView *view, const char *host) {
    int index = set_view_find(view, host);
    if (index < 0 || view->members[index].kind == SET_MEMBER_UNKNOWN)
        return set_view_ref(view);
    SetView *next = view_copy(view);
    forget(&next->members[index]);
    return next;
}

/* ---- choosing ---- */

/* How far behind the primary it was when it was heard, or behind the newest member if there is no
 * primary; at most, since what is known has the age of a heartbeat. */
static int64_t staleness_ms(const SetView *view, const SetMember *member, int64_t heartbeat_us) {
    int primary = set_view_primary(view);
    if (primary >= 0) {
        const SetMember *first = &view->members[primary];
        return (member->heard_wall_ms - member->last_write_ms) -
               (first->heard_wall_ms - first->last_write_ms) + heartbeat_us / 1000;
    }
    int64_t newest_ms = 0;
    for (uint32_t i = 0; i < view->count; i++)
        if (view->members[i].kind == SET_MEMBER_SECONDARY &&
            view->members[i].last_write_ms > newest_ms)
            newest_ms = view->members[i].last_write_ms;
    return newest_ms - member->last_write_ms + heartbeat_us / 1000;
}

/* Every tag of the set, with the same value. */
static bool has_tags(const SetMember *member, Doc wanted) {
    DocIter iter = doc_iter(wanted);
    for (Elem tag; doc_iter_next(&iter, &tag);) {
        Elem own =
            member->tags == NULL ? ELEM_MISSING : doc_get((Doc){member->tags}, elem_name_str(tag));
        if (elem_type(tag) != BT_STRING || elem_type(own) != BT_STRING ||
            !str_equal(elem_str(tag), elem_str(own)))
            return false;
    }
    return true;
}

typedef struct Candidates {
    uint32_t rows[SET_MEMBERS_MAX];
    uint32_t count;
} Candidates;

static void collect(const SetView *view, const SelectRules *rules, bool with_primary,
                    const Doc *tags, Candidates *ret_candidates) {
    ret_candidates->count = 0;
    int64_t staleness_secs = rules->preference->staleness_secs;
    for (uint32_t i = 0; i < view->count; i++) {
        const SetMember *member = &view->members[i];
        bool is_fit = member->kind == SET_MEMBER_SECONDARY ||
                      (with_primary && member->kind == SET_MEMBER_PRIMARY);
        if (is_fit && member->kind == SET_MEMBER_SECONDARY && staleness_secs > 0)
            is_fit = staleness_ms(view, member, rules->heartbeat_us) <= staleness_secs * 1000;
        if (is_fit && tags != NULL)
            is_fit = has_tags(member, *tags);
        if (is_fit)
            ret_candidates->rows[ret_candidates->count++] = i;
    }
}

/* Of the first tag set that any member fits; without tags, of all. */
static void collect_tagged(const SetView *view, const SelectRules *rules, bool with_primary,
                           Candidates *ret_candidates) {
    Doc tags = rules->preference->tags;
    if (!doc_is_present(tags)) {
        collect(view, rules, with_primary, NULL, ret_candidates);
        return;
    }
    ret_candidates->count = 0;
    DocIter iter = doc_iter(tags);
    for (Elem set; ret_candidates->count == 0 && doc_iter_next(&iter, &set);) {
        Doc wanted = elem_doc(set);
        collect(view, rules, with_primary, &wanted, ret_candidates);
    }
}

static int choose_near(const SetView *view, const Candidates *candidates, int64_t near_us,
                       Prng *prng) {
    if (candidates->count == 0)
        return -1;
    int64_t fastest = INT64_MAX;
    for (uint32_t i = 0; i < candidates->count; i++) {
        int64_t rtt_us = view->members[candidates->rows[i]].rtt_us;
        if (rtt_us >= 0 && rtt_us < fastest)
            fastest = rtt_us;
    }
    Candidates near = {.count = 0};
    for (uint32_t i = 0; i < candidates->count; i++) {
        int64_t rtt_us = view->members[candidates->rows[i]].rtt_us;
        if (fastest == INT64_MAX || (rtt_us >= 0 && rtt_us - fastest <= near_us))
            near.rows[near.count++] = candidates->rows[i];
    }
    return (int)near.rows[prng_below(prng, near.count)];
}

int set_view_select(const SetView *view, const SelectRules *rules, Prng *prng) {
    ReadMode mode = rules->preference->mode;
    int primary = set_view_primary(view);
    if (mode == READ_MODE_PRIMARY || (mode == READ_MODE_PRIMARY_PREFERRED && primary >= 0))
        return primary;
    Candidates candidates;
    collect_tagged(view, rules, /* with_primary= */ mode == READ_MODE_NEAREST, &candidates);
    int chosen = choose_near(view, &candidates, rules->near_us, prng);
    return chosen < 0 && mode == READ_MODE_SECONDARY_PREFERRED ? primary : chosen;
}
