/*
 * uuid.h - 16-byte identifiers (BSON binary subtype 4).
 */
#pragma once

#include <stdint.h>
#include <string.h>

#include "base/prng.h"
#include "bson/builder.h"
#include "bson/doc.h"

typedef struct Uuid {
    uint8_t bytes[16];
} Uuid;

/* Random, version 4. */
static inline Uuid uuid_new(void) {
    Uuid uuid;
    secure_random(&uuid, sizeof(uuid));
    uuid.bytes[6] = (uint8_t)((uuid.bytes[6] & 0x0F) | 0x40);
    uuid.bytes[8] = (uint8_t)((uuid.bytes[8] & 0x3F) | 0x80);
    return uuid;
}

static inline bool uuid_equal(const Uuid *a, const Uuid *b) {
    return memcmp(a->bytes, b->bytes, sizeof(a->bytes)) == 0;
}

/* False when the element is not a UUID. */
static inline bool uuid_from_elem(Elem elem, Uuid *ret_uuid) {
    if (elem_type(elem) != BT_BINARY)
        return false;
    uint8_t subtype;
    Str data = elem_binary(elem, &subtype);
    if (subtype != BSON_BINARY_UUID || data.size != sizeof(ret_uuid->bytes))
        return false;
    memcpy(ret_uuid->bytes, data.data, sizeof(ret_uuid->bytes));
    return true;
}

/* The code of an element that is no UUID: one that has the type, but not the size, is told apart.
 */
static inline ErrCode uuid_why_not(Elem elem) {
    uint8_t subtype = 0;
    if (elem_type(elem) == BT_BINARY)
        (void)elem_binary(elem, &subtype);
    return subtype == BSON_BINARY_UUID ? ERR_INVALID_UUID : ERR_TYPE_MISMATCH;
}

static inline void build_uuid(DocBuilder *b, const char *name, const Uuid *uuid) {
    build_binary(b, name, BSON_BINARY_UUID, uuid->bytes, sizeof(uuid->bytes));
}

enum {
    UUID_TEXT_SIZE = 37,
};
static inline void uuid_to_text(const Uuid *uuid, char out[UUID_TEXT_SIZE]) {
    static const char HEX[] = "0123456789abcdef";
    char *at = out;
    for (int i = 0; i < 16; i++) {
        if (i == 4 || i == 6 || i == 8 || i == 10)
            *at++ = '-';
        *at++ = HEX[uuid->bytes[i] >> 4];
        *at++ = HEX[uuid->bytes[i] & 15];
    }
    *at = '\0';
}
