#include "sharding/migration/move.h"

static ErrCode invalid(const char *what, Error *err) {
    return error_set(err, ERR_INCOMPATIBLE_SHARDING_METADATA,
                     "the document of a move has no valid \"%s\"", what);
}

void move_build_shown(DocBuilder *b, const Move *move) {
    build_uuid(b, "migrationId", &move->id);
    build_str(b, "nss", ns_str(&move->ns));
    build_uuid(b, "collectionUuid", &move->uuid);
    build_str(b, "donorShardId", move->from);
    build_str(b, "recipientShardId", move->to);
    size_t range = build_open_doc(b, "range");
    build_doc(b, "min", move->min);
    build_doc(b, "max", move->max);
    build_close(b, range);
    chunk_version_build(b, "preMigrationChunkVersion", &move->version);
}

void move_build(DocBuilder *b, const Move *move) {
    move_build_shown(b, move);
    build_doc(b, "keyPattern", shard_key_pattern(move->key));
    build_timestamp(b, "startTimestamp", move->start_ts);
    build_bool(b, "waitForDelete", move->waits_for_delete);
    build_bool(b, "secondaryThrottle", move->is_throttled);
    if (doc_is_present(move->throttle))
        build_doc(b, "throttleConcern", move->throttle);
}

static ErrCode parse_range(Doc doc, Move *move, Error *err) {
    Elem range = doc_get_lit(doc, "range");
    if (elem_type(range) != BT_DOC)
        return invalid("range", err);
    Elem min = doc_get_lit(elem_doc(range), "min"), max = doc_get_lit(elem_doc(range), "max");
    if (elem_type(min) != BT_DOC || elem_type(max) != BT_DOC)
        return invalid("range", err);
    move->min = elem_doc(min);
    move->max = elem_doc(max);
    TRY(shard_key_check_bound(move->key, move->min, "min", err));
    return shard_key_check_bound(move->key, move->max, "max", err);
}

static ErrCode parse_names(Doc doc, Move *move, Error *err) {
    Elem ns = doc_get_lit(doc, "nss"), from = doc_get_lit(doc, "donorShardId"),
         to = doc_get_lit(doc, "recipientShardId");
    if (elem_type(ns) != BT_STRING)
        return invalid("nss", err);
    TRY(ns_parse(elem_str(ns), &move->ns, err));
    if (elem_type(from) != BT_STRING || elem_type(to) != BT_STRING)
        return invalid("donorShardId", err);
    move->from = elem_str(from);
    move->to = elem_str(to);
    return ERR_OK;
}

ErrCode move_parse(Doc doc, Move *ret_move, Error *err) {
    Move move = {0};
    TRY(parse_names(doc, &move, err));
    if (!uuid_from_elem(doc_get_lit(doc, "migrationId"), &move.id))
        return invalid("migrationId", err);
    if (!uuid_from_elem(doc_get_lit(doc, "collectionUuid"), &move.uuid))
        return invalid("collectionUuid", err);
    Elem start = doc_get_lit(doc, "startTimestamp"), pattern = doc_get_lit(doc, "keyPattern");
    if (elem_type(start) != BT_TIMESTAMP)
        return invalid("startTimestamp", err);
    move.start_ts = (uint64_t)elem_i64(start);
    move.waits_for_delete = elem_is_truthy(doc_get_lit(doc, "waitForDelete"));
    move.is_throttled = elem_is_truthy(doc_get_lit(doc, "secondaryThrottle"));
    Elem throttle = doc_get_lit(doc, "throttleConcern");
    move.throttle = elem_type(throttle) == BT_DOC ? elem_doc(throttle) : DOC_NONE;
    TRY(chunk_version_parse(doc_get_lit(doc, "preMigrationChunkVersion"),
                            "preMigrationChunkVersion", &move.version, err));
    if (elem_type(pattern) != BT_DOC)
        return invalid("keyPattern", err);
    TRY(shard_key_parse(elem_doc(pattern), &move.key, err));
    ErrCode rc = parse_range(doc, &move, err);
    if (rc != ERR_OK) {
        move_done(&move);
        return rc;
    }
    *ret_move = move;
    return ERR_OK;
}

void move_done(Move *move) {
    shard_key_unref(move->key);
    *move = (Move){0};
}

Doc move_section_reason(const Move *move, Arena *arena) {
    DocBuilder b = doc_builder_in_arena(arena);
    build_cstr(&b, "command", "moveRange");
    build_uuid(&b, "migrationId", &move->id);
    return doc_builder_end(&b);
}
