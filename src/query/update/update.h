/*
 * update.h - update expressions: parsed once per statement, applied to each matched document.
 *
 * A program is a replacement document, a set of operators ($set, $inc, ...) or, through a hook, a
 * pipeline. Operators are kept as a trie of path components; applying is one pass over the old
 * document that copies what the trie does not lead to.
 *
 * Ownership: a program and a copy of the update live in the arena given to update_parse. Results
 *            live in the arena given to update_apply.
 * Threading: a program is constant once parsed.
 */
#pragma once

#include "base/arena.h"
#include "base/error.h"
#include "bson/doc.h"
#include "query/match/match.h"

enum {
    UPDATE_ARRAY_PADDING_MAX = 1500000, /* nulls added to reach an index past the end */
};

typedef struct UpdateProgram UpdateProgram;

/* What an update needs to know of the world when it is applied. */
typedef struct UpdateApplyContext {
    int32_t positional_index; /* what `$` stands for; -1: the query found no array element */
    bool is_insert;           /* `before` is the base of an upsert: $setOnInsert applies */
    int64_t now_ms;           /* $currentDate */
    /* $currentDate {$type: "timestamp"}, and empty timestamps of replacements: later with each
     * call; NULL: there is no clock, and empty ones stay. */
    uint64_t (*next_ts)(void *arg);
    void *next_ts_arg;
} UpdateApplyContext;

/* Pipeline-style updates, implemented by the aggregation code. */
typedef struct UpdatePipeline {
    ErrCode (*apply)(const struct UpdatePipeline *pipeline, Doc before,
                     const UpdateApplyContext *ctx, Arena *arena, Doc *ret_after, Error *err);
} UpdatePipeline;

typedef struct UpdatePipelineHook {
    ErrCode (*parse)(const struct UpdatePipelineHook *hook, Doc stages, Arena *arena,
                     UpdatePipeline **ret_pipeline, Error *err);
} UpdatePipelineHook;

typedef struct UpdateParseContext {
    Doc array_filters; /* array of filter documents, or DOC_NONE */
    bool is_multi;
    bool is_upsert;
    const MatchParseContext *match;          /* for $pull and array filters; its collator for all */
    const UpdatePipelineHook *pipeline_hook; /* NULL: pipelines are refused */
} UpdateParseContext;

typedef struct UpdateResult {
    Doc after;    /* == before when is_noop */
    bool is_noop; /* nothing changed, not a byte */
} UpdateResult;

/* `update` is a document or an array (pipeline). */
ErrCode update_parse(Elem update, const UpdateParseContext *ctx, Arena *arena,
                     UpdateProgram **ret_program, Error *err) MUST_CHECK;

bool update_is_replacement(const UpdateProgram *program);

/* True when `$` occurs: the query must then find an array position (MatchDetails). */
bool update_needs_positional(const UpdateProgram *program);

/* Computes the new document; `before` is left as it is. The result keeps `_id`, stays within the
 * size and depth of stored documents, or the call fails. */
ErrCode update_apply(const UpdateProgram *program, Doc before, const UpdateApplyContext *ctx,
                     Arena *arena, UpdateResult *ret_result, Error *err) MUST_CHECK;

/* The document an upsert starts from: the equalities of its query. For a replacement only `_id`
 * counts. Fails with ERR_NOT_SINGLE_VALUE_FIELD when the query says two things about one field. */
ErrCode update_upsert_base(const MatchExpr *query, bool is_replacement, Arena *arena, Doc *ret_base,
                           Error *err) MUST_CHECK;

/* The paths a program may change, without positional and numeric components. Replacements and
 * pipelines may change everything: false, and no paths. */
bool update_touched_paths(const UpdateProgram *program, const Str **ret_paths, uint32_t *ret_count);

/* May the program change what a dotted path (of an index, of a shard key) sees? */
bool update_touches_path(const UpdateProgram *program, Str dotted);
