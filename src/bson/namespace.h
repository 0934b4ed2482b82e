/*
 * namespace.h - names of databases and collections: "db.collection".
 */
#pragma once

#include "base/error.h"
#include "bson/doc.h"

enum {
    NS_TEXT_SIZE = 256, /* with the terminating NUL */
    DB_NAME_SIZE_MAX = 63,
};

typedef struct Ns {
    uint16_t size;    /* of text */
    uint16_t db_size; /* of the part before the first dot */
    char text[NS_TEXT_SIZE];
} Ns;

/* Fails with ERR_INVALID_NAMESPACE for names that MongoDB refuses. */
ErrCode ns_make(Str db, Str coll, Ns *ret_ns, Error *err) MUST_CHECK;
/* "db.coll" in one piece. */
ErrCode ns_parse(Str full, Ns *ret_ns, Error *err) MUST_CHECK;
ErrCode db_name_check(Str db, Error *err) MUST_CHECK;
/* Rules that hold only for names a user creates: no "$", no "system." beyond the known ones. */
ErrCode ns_check_creatable(const Ns *ns, Error *err) MUST_CHECK;

static inline Str ns_db(const Ns *ns) {
    return (Str){ns->text, ns->db_size};
}
static inline Str ns_coll(const Ns *ns) {
    return (Str){ns->text + ns->db_size + 1, (size_t)(ns->size - ns->db_size - 1)};
}
static inline Str ns_str(const Ns *ns) {
    return (Str){ns->text, ns->size};
}
static inline bool ns_equal(const Ns *a, const Ns *b) {
    return a->size == b->size && memcmp(a->text, b->text, a->size) == 0;
}
bool db_is_internal(Str db);     /* "admin", "config", "local": not of users */
bool ns_is_system(const Ns *ns); /* collection part starts with "system." */
/* Is it the same on all members of a replica set? Databases' profiles and all of "local" are not.
 */
bool ns_is_replicated(const Ns *ns);
bool ns_is_oplog(const Ns *ns);
