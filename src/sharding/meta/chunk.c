#include "sharding/meta/chunk.h"

#include "bson/json.h"
#include "sharding/meta/fields_internal.h"
#include "sharding/meta/shard_key.h"

static const char WHAT[] = "a chunk";

static ErrCode parse_common(Doc doc, Chunk *chunk, Error *err);
static ErrCode parse_history(Chunk *chunk, Error *err);

ErrCode chunk_parse(Doc doc, Chunk *ret_chunk, Error *err) {
    Chunk chunk = {0};
    Elem id, min;
    TRY(meta_field(doc, WHAT, "_id", BT_OID, &id, err));
    TRY(meta_field_uuid(doc, WHAT, "uuid", &chunk.uuid, err));
    TRY(meta_field(doc, WHAT, "min", BT_DOC, &min, err));
    chunk.id = *elem_oid(id);
    chunk.min = elem_doc(min);
    TRY(parse_common(doc, &chunk, err));
    *ret_chunk = chunk;
    return ERR_OK;
}

ErrCode chunk_parse_cached(Doc doc, Chunk *ret_chunk, Error *err) {
    Chunk chunk = {0};
    Elem min;
    TRY(meta_field(doc, WHAT, "_id", BT_DOC, &min, err));
    chunk.min = elem_doc(min);
    TRY(parse_common(doc, &chunk, err));
    *ret_chunk = chunk;
    return ERR_OK;
}

/* Reads all but the identity and the lower bound. */
static ErrCode parse_common(Doc doc, Chunk *chunk, Error *err) {
    Elem max, shard, lastmod, since, history, jumbo;
    TRY(meta_field(doc, WHAT, "max", BT_DOC, &max, err));
    TRY(meta_field(doc, WHAT, "shard", BT_STRING, &shard, err));
    TRY(meta_field(doc, WHAT, "lastmod", BT_TIMESTAMP, &lastmod, err));
    TRY(meta_field_optional(doc, WHAT, "onCurrentShardSince", BT_TIMESTAMP, &since, err));
    TRY(meta_field_optional(doc, WHAT, "history", BT_ARRAY, &history, err));
    TRY(meta_field_optional(doc, WHAT, "jumbo", BT_BOOL, &jumbo, err));
    chunk->max = elem_doc(max);
    chunk->shard = elem_str(shard);
    chunk->version = (uint64_t)elem_i64(lastmod);
    chunk->since = elem_is_present(since) ? (uint64_t)elem_i64(since) : 0;
    chunk->history =
        elem_is_present(history) && !doc_is_empty(elem_doc(history)) ? elem_doc(history) : DOC_NONE;
    chunk->is_jumbo = elem_is_present(jumbo) && elem_bool(jumbo);
    if (chunk->shard.size == 0 || str_has_char(chunk->shard, '\0'))
        return error_set(err, ERR_BAD_VALUE, "%s must have the name of a shard", WHAT);
    if (chunk->version == 0)
        return error_set(err, ERR_BAD_VALUE, "%s must have a version", WHAT);
    if (shard_key_compare(chunk->min, chunk->max) >= 0) {
        CLEANUP(arena_done) Arena arena = {0};
        return error_set(err, ERR_FAILED_TO_PARSE, "%s must have its min %s below its max %s", WHAT,
                         shell_text_of_doc(chunk->min, &arena),
                         shell_text_of_doc(chunk->max, &arena));
    }
    return doc_is_present(chunk->history) ? parse_history(chunk, err) : ERR_OK;
}

/* Newest first, beginning with the owner, which also tells since when it is. */
static ErrCode parse_history(Chunk *chunk, Error *err) {
    uint64_t later = UINT64_MAX;
    DocIter iter = doc_iter(chunk->history);
    for (Elem elem; doc_iter_next(&iter, &elem);) {
        Elem after, shard;
        if (elem_type(elem) != BT_DOC)
            return error_set(err, ERR_TYPE_MISMATCH, "the history of %s must be objects", WHAT);
        TRY(meta_field(elem_doc(elem), "the history of a chunk", "validAfter", BT_TIMESTAMP, &after,
                       err));
        TRY(meta_field(elem_doc(elem), "the history of a chunk", "shard", BT_STRING, &shard, err));
        bool is_first = later == UINT64_MAX;
        if (is_first && !str_equal(elem_str(shard), chunk->shard))
            return error_set(err, ERR_BAD_VALUE,
                             "the history of %s must begin with its shard \"%.*s\", not \"%.*s\"",
                             WHAT, (int)chunk->shard.size, chunk->shard.data,
                             (int)elem_str(shard).size, elem_str(shard).data);
        uint64_t time = (uint64_t)elem_i64(after);
        if (is_first && chunk->since != 0 && time != chunk->since)
            return error_set(err, ERR_BAD_VALUE,
                             "the history of %s must begin when its shard got it", WHAT);
        if (is_first)
            chunk->since = time;
        if (!is_first && time >= later)
            return error_set(err, ERR_BAD_VALUE, "the history of %s must have the newest first",
                             WHAT);
        later = time;
    }
    return ERR_OK;
}

static void build_common(DocBuilder *b, const Chunk *chunk) {
    build_doc(b, "max", chunk->max);
    build_str(b, "shard", chunk->shard);
    build_timestamp(b, "lastmod", chunk->version);
    if (chunk->since != 0)
        build_timestamp(b, "onCurrentShardSince", chunk->since);
    if (doc_is_present(chunk->history))
        build_array(b, "history", chunk->history);
    if (chunk->is_jumbo)
        build_bool(b, "jumbo", true);
}

void chunk_build(DocBuilder *b, const Chunk *chunk) {
    build_oid(b, "_id", &chunk->id);
    build_uuid(b, "uuid", &chunk->uuid);
    build_doc(b, "min", chunk->min);
    build_common(b, chunk);
}

void chunk_build_cached(DocBuilder *b, const Chunk *chunk) {
    build_doc(b, "_id", chunk->min);
    build_common(b, chunk);
}

Doc chunk_history_of(uint64_t since, Str shard, Arena *arena) {
    DocBuilder b = doc_builder_in_arena(arena);
    size_t opened = build_open_doc(&b, "0");
    build_timestamp(&b, "validAfter", since);
    build_str(&b, "shard", shard);
    build_close(&b, opened);
    return doc_builder_end(&b);
}
