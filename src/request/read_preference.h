/*
 * read_preference.h - which member of a replica set may answer a read.
 *
 *     {mode: "secondary", tags: [{dc: "east"}, {}], maxStalenessSeconds: 120}
 *
 * Borrows the document it was parsed from.
 */
#pragma once

#include "base/error.h"
#include "bson/builder.h"
#include "bson/doc.h"

typedef enum ReadMode {
    READ_MODE_PRIMARY,
    READ_MODE_PRIMARY_PREFERRED,
    READ_MODE_SECONDARY,
    READ_MODE_SECONDARY_PREFERRED,
    READ_MODE_NEAREST,
} ReadMode;

typedef struct ReadPreference {
    ReadMode mode;
    Doc tags;               /* array of tag sets, tried in turn; DOC_NONE: any member */
    int64_t staleness_secs; /* 0: no limit */
} ReadPreference;

enum {
    STALENESS_SECS_MIN = 90, /* less could not be told from the delay of the monitors */
};

#define READ_PREFERENCE_PRIMARY ((ReadPreference){0})

/* A missing element is the primary. Tags and staleness have no meaning with the primary and are
 * refused, as is a staleness below the minimum. */
ErrCode read_preference_parse(Elem elem, ReadPreference *ret_preference, Error *err) MUST_CHECK;
const char *read_mode_name(ReadMode mode);
/* As field `name`. */
void read_preference_build(DocBuilder *b, const char *name, const ReadPreference *preference);
