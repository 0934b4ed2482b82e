/*
 * session_id.h - which logical session: the client's UUID and a digest of the user it belongs to.
 *
 * On the wire and stored: {id: UUID, uid: BinData(32)}. Clients send {id} alone; without access
 * control every session belongs to nobody, whose digest is the SHA-256 of the empty string.
 *
 * A child has in addition {txnNumber: long, txnUUID: UUID}: an internal transaction on behalf of
 * the session, with txnNumber of one of its retryable writes, which it is then part of.
 */
#pragma once

#include "base/error.h"
#include "base/hash.h"
#include "bson/uuid.h"

enum {
    SESSION_UID_SIZE = 32,
    SESSION_ID_TEXT_SIZE = UUID_TEXT_SIZE + 3 + 2 * SESSION_UID_SIZE + 1,
};

/* No padding: compared and hashed as bytes. */
typedef struct SessionId {
    Uuid id;
    uint8_t uid[SESSION_UID_SIZE];
    Uuid txn_uuid;         /* zero: not a child */
    int64_t parent_number; /* of the retryable write; SESSION_NO_NUMBER: of none, or not a child */
} SessionId;
#define SESSION_NO_NUMBER INT64_C(-1)

/* Of an `lsid`. Fails with ERR_TYPE_MISMATCH, for unknown fields with 40415, and with
 * ERR_INVALID_OPTIONS for a txnNumber without txnUUID. */
ErrCode session_id_parse(Elem lsid, SessionId *ret_id, Error *err) MUST_CHECK;
/* The session of nobody with this UUID: the only kind without access control. */
SessionId session_id_of_nobody(const Uuid *id);
/* A new child; `parent_number` as in the struct. */
SessionId session_id_new_child(const SessionId *parent, int64_t parent_number);
bool session_id_is_child(const SessionId *id);
void build_session_id(DocBuilder *b, const char *name, const SessionId *id);
/* For messages: "<uuid> - <digest>". */
void session_id_to_text(const SessionId *id, char out[SESSION_ID_TEXT_SIZE]);

static inline bool session_id_equal(const SessionId *a, const SessionId *b) {
    return memcmp(a, b, sizeof(*a)) == 0;
}
static inline uint64_t session_id_hash(const SessionId *id) {
    return hash_bytes(id, sizeof(*id));
}
