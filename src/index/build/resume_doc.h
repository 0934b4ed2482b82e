/*
 * resume_doc.h - what is written down of an index build at a clean stop: one document.
 *
 *     {version: 1, buildUUID, collectionUUID, phase: "collection scan",
 *      position?: <record id: a number, or the bytes of a clustered one>, scanned: <documents>,
 *      indexes: [{name, ident, sideWrites, duplicates?, skipped?,        (the last four are tables)
 *                 loaded, drained: <side writes>, multikey, multikeyPaths: [<bits of each field>],
 *                 keys, runs: [{file, size, checksum}]}]}
 *
 * There is no position in the side writes: what has been drained is not in the table any more.
 *
 * Pure: nothing here looks at tables or files. Parsed documents point into the parsed one.
 */
#pragma once

#include "index/build/build.h"

typedef struct ResumeIndex {
    Str name;
    Str ident;
    Str side_writes;
    Str duplicates; /* empty: none; so is the next */
    Str skipped;
    bool is_loaded;
    int64_t drained_count;
    bool is_multikey;
    uint32_t multikey_paths[INDEX_FIELDS_MAX];
    uint32_t field_count;
    KeySorterMark sorter; /* no runs: none, or nothing in it */
} ResumeIndex;

struct ResumeDoc {
    Uuid build_uuid;
    Uuid coll_uuid;
    IndexBuildPhase phase;
    bool has_position;
    RecordId position;
    int64_t scanned_count;
    ResumeIndex *indexes;
    uint32_t index_count;
};

ErrCode resume_doc_build(const ResumeDoc *doc, Buffer *out, Error *err) MUST_CHECK;
/* `doc` is valid BSON; everything else about it is checked. Fails with
 * ERR_DATA_CORRUPTION_DETECTED. */
ErrCode resume_doc_parse(Doc doc, Arena *arena, ResumeDoc *ret_doc, Error *err) MUST_CHECK;
