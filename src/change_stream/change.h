/*
 * change.h - what an entry of the oplog, or one write of a unit, is to a change stream; and whether
 * a stream is to show it, told from the raw entry.
 *
 * Ownership: a StreamChange borrows from the entry. Threading: pure.
 */
#pragma once

#include "bson/doc.h"
#include "bson/namespace.h"
#include "query/match/match.h"

typedef enum ChangeKind {
    CHANGE_NONE, /* nothing that streams show */
    CHANGE_INSERT,
    CHANGE_UPDATE,
    CHANGE_REPLACE,
    CHANGE_DELETE,
    CHANGE_DROP,
    CHANGE_RENAME,
    CHANGE_DROP_DATABASE,
    CHANGE_INVALIDATE,
    CHANGE_CREATE,
    CHANGE_CREATE_INDEXES,
    CHANGE_DROP_INDEXES,
    CHANGE_MODIFY,
    CHANGE_AWAY, /* what follows is on other shards, too: no event, but the end of routed streams */
    CHANGE_KIND_COUNT,
} ChangeKind;

typedef struct StreamChange {
    Doc write; /* as it stands in the oplog */
    ChangeKind kind;
    Str db;
    Str coll; /* empty: the database as a whole */
    Str to_db;
    Str to_coll; /* of a rename */
    Elem uuid;   /* of the collection; may be missing */
    Elem o;
    Elem o2;
    bool is_view;         /* a write to system.views that makes, changes or drops a view */
    bool is_commit_build; /* indexes of a build that has ended, else one of an empty collection */
} StreamChange;

/* "insert", ...; as a stream shows it. */
const char *change_kind_name(ChangeKind kind);
/* Of documents: insert, update, replace, delete. */
static inline bool change_is_of_document(ChangeKind kind) {
    return kind >= CHANGE_INSERT && kind <= CHANGE_DELETE;
}
/* The document key of such a change; missing for others. */
Elem change_document_key(const StreamChange *change);

/* The meaning of one write: an entry that is no applyOps, or a row of one. Writes of migrations
 * mean nothing. `shows_views`: writes to system.views are views, not documents. */
void change_read(Doc row, bool shows_views, StreamChange *ret_change);

typedef enum StreamScope {
    SCOPE_COLLECTION,
    SCOPE_DATABASE,
    SCOPE_CLUSTER,
} StreamScope;

/* What a stream shows. Constant once it is opened: the hub reads it from its own thread. */
typedef struct StreamFilter {
    StreamScope scope;
    Ns ns; /* of SCOPE_DATABASE only its database counts, of SCOPE_CLUSTER nothing */
    bool shows_expanded;
    bool shows_system;
    bool has_documents;     /* updates carry a whole document: what it holds is not known here */
    const MatchExpr *match; /* the leading $match of the pipeline behind; NULL: none */
    /* The database as the router knew it that opened the stream; DOC_NONE: a client of this node
     * did, and sees what happens here. */
    Doc database_version;
} StreamFilter;

/* Is the change in the scope, and of a kind that the stream shows? */
bool filter_takes(const StreamFilter *filter, const StreamChange *change);
/* Can it still match? False only if the $match is certain to refuse the event. `head`: what is
 * known of it beyond the entry, {_id, clusterTime, wallTime}, or DOC_NONE. */
bool filter_may_match(const StreamFilter *filter, const StreamChange *change, Doc head);
/* Does it end the stream? */
bool filter_is_ended_by(const StreamFilter *filter, const StreamChange *change);

/* May the entry, with all writes in it, hold something for the stream? Entries that refer to
 * others (the last of a chain, the commit of a prepared transaction) may. */
bool filter_may_concern(const StreamFilter *filter, Doc entry);
/* The same of one write: an entry that is no unit, or a row of one. */
bool filter_may_concern_write(const StreamFilter *filter, Doc write);

/* What an entry consists of. */
typedef enum EntryForm {
    ENTRY_FORM_NOTHING, /* partial, prepared, or no change at all */
    ENTRY_FORM_ONE,     /* a write, or the mark of a shard */
    ENTRY_FORM_UNIT,    /* {applyOps: [...]}, perhaps the last one of a chain */
    ENTRY_FORM_COMMIT,  /* of a prepared transaction: its writes are in the entry before */
    ENTRY_FORM_DROPS,   /* a dropDatabase that lists its collections in o2 */
} EntryForm;
EntryForm entry_form(Doc entry);
