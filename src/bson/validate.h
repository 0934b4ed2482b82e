/*
 * validate.h - the gate for BSON that comes from outside; after it, doc.h may trust the bytes.
 */
#pragma once

#include "bson/doc.h"

typedef enum ValidateFlags {
    VALIDATE_BASIC = 0,       /* structure, lengths, depth */
    VALIDATE_UTF8 = 1 << 0,   /* strings and names are UTF-8 */
    VALIDATE_UNIQUE = 1 << 1, /* no repeated field names in one document */
} ValidateFlags;

/* Checks that `data` holds exactly one well-formed document of `size` bytes, nested at most
 * `depth_max` deep. Fails with ERR_INVALID_BSON (ERR_OVERFLOW for depth). Iterative: hostile
 * nesting cannot use up the stack. */
ErrCode doc_validate(const uint8_t *data, size_t size, uint32_t depth_max, ValidateFlags flags,
                     Error *err) MUST_CHECK;

/* True for well-formed UTF-8 (surrogates and overlong forms are refused). */
bool utf8_is_valid(const uint8_t *text, size_t size);
/* The text, or as many whole characters from its beginning as have `size_max` bytes. */
Str utf8_cut(const char *text, size_t size_max);
