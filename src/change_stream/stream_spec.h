/*
 * stream_spec.h - the options of $changeStream.
 */
#pragma once

#include "change_stream/change.h"
#include "change_stream/token.h"

typedef enum FullDocument {
    FULL_DOCUMENT_DEFAULT,
    FULL_DOCUMENT_UPDATE_LOOKUP,
    FULL_DOCUMENT_WHEN_AVAILABLE,
    FULL_DOCUMENT_REQUIRED,
} FullDocument;

typedef enum BeforeChange {
    BEFORE_CHANGE_OFF,
    BEFORE_CHANGE_WHEN_AVAILABLE,
    BEFORE_CHANGE_REQUIRED,
} BeforeChange;

typedef struct StreamSpec {
    FullDocument full_document;
    BeforeChange before_change;
    bool is_for_cluster;
    bool shows_expanded;
    bool shows_system;
    bool shows_raw_update;
    bool has_token; /* resumeAfter or startAfter */
    StreamToken token;
    uint64_t start_ts; /* startAtOperationTime; 0: not given */
} StreamSpec;

/* What it decodes is in the arena. Fails with the codes of MongoDB 7.0. */
ErrCode stream_spec_parse(Elem given, Arena *arena, StreamSpec *ret_spec, Error *err) MUST_CHECK;

/* What may be watched: sets scope and name. `is_collectionless`: {aggregate: 1}. */
ErrCode stream_spec_check_ns(const StreamSpec *spec, const Ns *ns, bool is_collectionless,
                             StreamScope *ret_scope, Error *err) MUST_CHECK;
