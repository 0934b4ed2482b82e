/*
 * token.h - resume tokens: where in the history an event is, as {_data: "<hex>"}.
 *
 * The hex digits are a KeyString (bson/keystring.h) of
 *
 *     clusterTime, version, token type, txnOpIndex, fromInvalidate
 *
 * and, of an event, also of
 *
 *     UUID of the collection or null, {operationType, documentKey or operationDescription},
 *     [fragment number]
 *
 * so that comparing the strings of two tokens compares the places of their events. A high-water
 * mark is before all events of its time. What the order ignores (an _id that is a double) is in
 * _typeBits.
 *
 * Ownership: a token decoded borrows from the arena. Threading: any thread.
 */
#pragma once

#include "bson/keystring.h"
#include "bson/uuid.h"

enum {
    TOKEN_VERSION = 2,
    TOKEN_FRAGMENT_NONE = -1,
};

typedef enum TokenType {
    TOKEN_HIGH_WATER_MARK = 0,
    TOKEN_EVENT = 128,
} TokenType;

typedef struct StreamToken {
    uint64_t ts;
    TokenType type;
    int64_t op_index; /* in the transaction or unit; 0 outside of one */
    bool is_from_invalidate;
    bool has_uuid;
    Uuid uuid;
    Doc event;        /* identifies the event; DOC_NONE of a high-water mark */
    int64_t fragment; /* TOKEN_FRAGMENT_NONE: not one of several */
} StreamToken;

StreamToken token_high_water_mark(uint64_t ts);

/* {_data, _typeBits?}, in the arena. */
Doc token_encode(const StreamToken *token, Arena *arena);

/* Fails with the codes of MongoDB: 40647 to 40649 for what is no token at all,
 * ERR_FAILED_TO_PARSE for other than hex digits, ERR_OVERFLOW for one that ends too early,
 * 50795 for another version, ERR_INVALID_RESUME_TOKEN for any other damage. */
ErrCode token_decode(Doc token, Arena *arena, StreamToken *ret_token, Error *err) MUST_CHECK;

/* Order of two encoded tokens. */
int token_compare(Doc a, Doc b);
/* `_data` of an encoded one. */
Str token_text(Doc token);
