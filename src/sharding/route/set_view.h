/*
 * set_view.h - what is known of a replica set from outside: its members, who is primary, who is
 * near and how far behind (RTE-5).
 *
 * Pure: a view never changes; what a member says makes the next view. The rules are those that
 * drivers follow: a primary's list of members counts, a primary of an older election is not
 * believed, without a primary every member that is named is asked.
 *
 * Ownership: counted. Threading: any.
 */
#pragma once

#include <stdatomic.h>

#include "base/error.h"
#include "base/prng.h"
#include "bson/doc.h"
#include "request/read_preference.h"

enum {
    SET_HOST_SIZE = 264, /* "name:port" with its end */
    SET_NAME_SIZE = 256,
    SET_MEMBERS_MAX = 50,
};

typedef enum SetMemberKind {
    SET_MEMBER_UNKNOWN, /* not asked yet, or did not answer */
    SET_MEMBER_PRIMARY,
    SET_MEMBER_SECONDARY,
    SET_MEMBER_OTHER, /* arbiter, hidden, recovering: of no use to clients */
} SetMemberKind;

typedef struct SetMember {
    char host[SET_HOST_SIZE];
    SetMemberKind kind;
    uint8_t *tags;         /* BSON, heap; NULL: none */
    int64_t rtt_us;        /* average; -1: not measured */
    int64_t heard_wall_ms; /* of the answer: what lastWrite is compared with */
    int64_t last_write_ms; /* lastWrite.lastWriteDate; 0: not known */
    Oid process_id;        /* topologyVersion; counter -1: none */
    int64_t counter;
} SetMember;

typedef struct SetView {
    _Atomic int32_t refs;
    char name[SET_NAME_SIZE];
    /* Of the newest primary that was believed. */
    bool has_election;
    Oid election_id;
    int64_t config_version;
    uint32_t count;
    SetMember members[];
} SetView;

/* "rs/a:1,b:2": nothing is known of the members. Fails with ERR_FAILED_TO_PARSE. */
ErrCode set_view_parse(Str text, SetView **ret_view, Error *err) MUST_CHECK;
SetView *set_view_ref(SetView *view);
void set_view_unref(SetView *view); /* NULL is fine */
/* "rs/a:1,b:2", hosts sorted; into an arena. */
const char *set_view_text(const SetView *view, Arena *arena);
/* With the members of `seeds` as well, if none of its own is known to be there; otherwise another
 * reference. */
SetView *set_view_with_seeds(SetView *view, const SetView *seeds);
/* Knows of no elections: the name may be that of another set by now, whose terms began anew. */
SetView *set_view_without_elections(SetView *view);
/* -1: not a member. */
int set_view_find(const SetView *view, const char *host);
int set_view_primary(const SetView *view); /* -1: none is known */

/* The reply of `host` to hello. `rtt_us` -1: it waited for a change, so that the time says nothing.
 * Returns a new view, or another reference to `view` if the reply is older than what is known. A
 * host that is not a member (any more) changes nothing. */
SetView *set_view_with_hello(SetView *view, const char *host, Doc hello, int64_t rtt_us,
                             int64_t wall_ms);
/* `host` did not answer, or said that it is not what the view says. */
SetView *set_view_with_failure(SetView *view, const char *host);

typedef struct SelectRules {
    const ReadPreference *preference;
    int64_t near_us;      /* who is slower than the nearest by more is not chosen */
    int64_t heartbeat_us; /* how old what is known may be */
} SelectRules;

/* A member for this read; of several a random one among the nearest. -1: none. */
int set_view_select(const SetView *view, const SelectRules *rules, Prng *prng);
