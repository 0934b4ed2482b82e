/*
 * validate_internal.h - a validation while it runs; shared by validate*.c.
 */
#pragma once

#include "index/key_gen.h"
#include "index/validate.h"

enum {
    VALIDATE_BUCKETS = 1 << 16,
    VALIDATE_DETAILS_MAX = 100, /* bad keys and records named in the report, of each kind */
    VALIDATE_SUSPECT_BYTES_MAX = 64 * 1024 * 1024, /* kept about keys that may be bad */
};

typedef struct TextList {
    char *rows[VALIDATE_DETAILS_MAX];
    uint32_t count;
    uint64_t total;
} TextList;

/* One key whose bucket did not come out even. */
typedef struct Suspect {
    uint64_t hash;
    int64_t balance; /* expected minus present: above zero it is missing, below it is extra */
    IndexKey key;
    RecordId rid;
    bool is_mended;
} Suspect;

typedef struct IndexCheck {
    const IndexDesc *index;
    int32_t *buckets;
    int32_t *next_bucket; /* counted with the next key, when it has come into the cache */
    int next_delta;
    int64_t entries;
    bool is_multikey_missing;
    uint32_t multikey_paths[INDEX_FIELDS_MAX]; /* that documents have */
    TextList errors;
    Suspect **suspects; /* open addressing */
    size_t slot_count;
    size_t suspect_count;
} IndexCheck;

typedef struct CorruptRecord {
    RecordId rid;
    size_t size;
} CorruptRecord;

typedef struct Validation {
    CollAccess *access;
    const ValidateOptions *options;
    Arena arena; /* texts and suspects */
    IndexCheck *checks;
    uint32_t check_count;
    int64_t records;
    int64_t bytes;
    int64_t noncompliant;
    CorruptRecord *corrupt;
    uint32_t corrupt_count;
    uint32_t corrupt_capacity;
    TextList errors;
    TextList warnings;
    Error bad; /* why a record is refused; clean in between, since cleaning costs */
    bool is_second_pass;
    bool is_cut_off; /* more suspects than memory for them */
    /* Where documents with duplicate keys go; NULL until the first one. */
    Catalog *lost_catalog;
    const Collection *lost;
    /* What was mended. */
    bool is_repaired;
    int64_t inserted_keys;
    int64_t removed_keys;
    int64_t removed_records;
    int64_t marked_multikey;
    int64_t moved_records; /* to the lost and found */
    int64_t outdated_keys; /* missing ones of records that have been moved before */
} Validation;

void validate_add_text(Validation *v, TextList *list, const char *fmt, ...) PRINTF_LIKE(3, 4);
static inline uint64_t validate_rid_num(RecordId rid) {
    return rid.str == NULL ? (uint64_t)rid.num : 0;
}

/* validate_keys.c: first pass: counts; second pass: collects what is in uneven buckets. */
void validate_count_key(Validation *v, IndexCheck *check, IndexKey key, RecordId rid, int delta);
/* At the end of the first pass. */
bool validate_has_uneven_bucket(IndexCheck *check);
void validate_count_suspects(const IndexCheck *check, int64_t *ret_missing, int64_t *ret_extra);

/* validate_repair.c: fails only when nothing can go on; what cannot be mended stays reported. */
ErrCode validate_repair(Validation *v, Error *err) MUST_CHECK;

/* validate_lost.c: false when there is no place for it. */
ErrCode validate_move_to_lost(Validation *v, RecordId rid, bool *ret_is_moved, Error *err)
    MUST_CHECK;

/* validate_report.c */
void validate_judge(Validation *v, bool is_locked);
void validate_report(Validation *v, DocBuilder *b);
