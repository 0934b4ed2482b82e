#include "sharding/meta/versions.h"

#include <stdio.h>

#include "sharding/meta/fields_internal.h"

const ChunkVersion VERSION_UNSHARDED = {.timestamp = 0};
const ChunkVersion VERSION_IGNORED = {
    .epoch = {{0, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF}},
    .timestamp = UINT64_MAX,
};

static bool oid_equal(const Oid *a, const Oid *b) {
    return memcmp(a->bytes, b->bytes, sizeof(a->bytes)) == 0;
}

static VersionOrder order_of(uint64_t a, uint64_t b) {
    return a < b ? VERSION_OLDER : a > b ? VERSION_NEWER : VERSION_SAME;
}

/* ---- chunk versions ---- */

bool chunk_version_is_unsharded(const ChunkVersion *v) {
    return chunk_version_equal(v, &VERSION_UNSHARDED);
}

bool chunk_version_is_ignored(const ChunkVersion *v) {
    return chunk_version_equal(v, &VERSION_IGNORED);
}

bool chunk_version_is_empty(const ChunkVersion *v) {
    return v->major == 0 && v->minor == 0 && !chunk_version_is_unsharded(v) &&
           !chunk_version_is_ignored(v);
}

bool chunk_version_is_same_generation(const ChunkVersion *a, const ChunkVersion *b) {
    return a->timestamp == b->timestamp && oid_equal(&a->epoch, &b->epoch);
}

bool chunk_version_equal(const ChunkVersion *a, const ChunkVersion *b) {
    return chunk_version_is_same_generation(a, b) && a->major == b->major && a->minor == b->minor;
}

VersionOrder chunk_version_compare(const ChunkVersion *a, const ChunkVersion *b) {
    if (chunk_version_is_unsharded(a) || chunk_version_is_unsharded(b) ||
        chunk_version_is_ignored(a) || chunk_version_is_ignored(b))
        return VERSION_INCOMPARABLE;
    if (oid_equal(&a->epoch, &b->epoch) != (a->timestamp == b->timestamp))
        return VERSION_INCOMPARABLE;
    if (a->timestamp != b->timestamp)
        return order_of(a->timestamp, b->timestamp);
    return order_of(chunk_version_number(a), chunk_version_number(b));
}

bool chunk_version_is_compatible(const ChunkVersion *received, const ChunkVersion *wanted) {
    if (chunk_version_is_ignored(received) || chunk_version_is_ignored(wanted))
        return true;
    return chunk_version_is_same_generation(received, wanted) && received->major == wanted->major;
}

uint64_t chunk_version_number(const ChunkVersion *v) {
    return (uint64_t)v->major << 32 | v->minor;
}

void chunk_version_set_number(ChunkVersion *v, uint64_t number) {
    v->major = (uint32_t)(number >> 32);
    v->minor = (uint32_t)number;
}

ErrCode chunk_version_next_major(const ChunkVersion *v, ChunkVersion *ret_next, Error *err) {
    if (v->major == UINT32_MAX)
        return error_set(err, ERR_CHUNK_VERSION_MAJOR_EXHAUSTED,
                         "the major number of the chunk version is used up");
    *ret_next = *v;
    ret_next->major++;
    ret_next->minor = 0;
    return ERR_OK;
}

ErrCode chunk_version_next_minor(const ChunkVersion *v, ChunkVersion *ret_next, Error *err) {
    if (v->minor == UINT32_MAX)
        return error_set(err, ERR_CHUNK_VERSION_MINOR_EXHAUSTED,
                         "the minor number of the chunk version is used up");
    *ret_next = *v;
    ret_next->minor++;
    return ERR_OK;
}

static ErrCode doc_of(Elem elem, const char *what, Doc *ret_doc, Error *err) {
    if (elem_type(elem) != BT_DOC)
        return error_set(err, ERR_TYPE_MISMATCH, "%s must be of type object, not %s", what,
                         bson_type_name(elem_type(elem)));
    *ret_doc = elem_doc(elem);
    return ERR_OK;
}

ErrCode chunk_version_parse(Elem elem, const char *what, ChunkVersion *ret_version, Error *err) {
    Doc doc;
    Elem epoch, timestamp, number;
    TRY(doc_of(elem, what, &doc, err));
    TRY(meta_field(doc, what, "e", BT_OID, &epoch, err));
    TRY(meta_field(doc, what, "t", BT_TIMESTAMP, &timestamp, err));
    TRY(meta_field(doc, what, "v", BT_TIMESTAMP, &number, err));
    ChunkVersion version = {.epoch = *elem_oid(epoch), .timestamp = (uint64_t)elem_i64(timestamp)};
    chunk_version_set_number(&version, (uint64_t)elem_i64(number));
    *ret_version = version;
    return ERR_OK;
}

void chunk_version_build(DocBuilder *b, const char *name, const ChunkVersion *v) {
    size_t opened = build_open_doc(b, name);
    build_oid(b, "e", &v->epoch);
    build_timestamp(b, "t", v->timestamp);
    build_timestamp(b, "v", chunk_version_number(v));
    build_close(b, opened);
}

const char *chunk_version_text(const ChunkVersion *v, char text[CHUNK_VERSION_TEXT_SIZE]) {
    char epoch[OID_HEX_SIZE];
    oid_to_hex(&v->epoch, epoch);
    snprintf(text, CHUNK_VERSION_TEXT_SIZE, "%u|%u||%s||Timestamp(%u, %u)", v->major, v->minor,
             epoch, (uint32_t)(v->timestamp >> 32), (uint32_t)v->timestamp);
    return text;
}

/* ---- database versions ---- */

bool database_version_is_fixed(const DatabaseVersion *v) {
    return v->last_mod == 0;
}

bool database_version_equal(const DatabaseVersion *a, const DatabaseVersion *b) {
    return uuid_equal(&a->uuid, &b->uuid) && a->timestamp == b->timestamp &&
           a->last_mod == b->last_mod;
}

VersionOrder database_version_compare(const DatabaseVersion *a, const DatabaseVersion *b) {
    if (database_version_is_fixed(a) || database_version_is_fixed(b))
        return database_version_equal(a, b) ? VERSION_SAME : VERSION_INCOMPARABLE;
    if (a->timestamp != b->timestamp)
        return order_of(a->timestamp, b->timestamp);
    if (!uuid_equal(&a->uuid, &b->uuid))
        return VERSION_INCOMPARABLE; /* created at the same time, but not the same database */
    return a->last_mod < b->last_mod   ? VERSION_OLDER
           : a->last_mod > b->last_mod ? VERSION_NEWER
                                       : VERSION_SAME;
}

ErrCode database_version_parse(Elem elem, const char *what, DatabaseVersion *ret_version,
                               Error *err) {
    Doc doc;
    DatabaseVersion version;
    Elem timestamp;
    TRY(doc_of(elem, what, &doc, err));
    TRY(meta_field_uuid(doc, what, "uuid", &version.uuid, err));
    TRY(meta_field(doc, what, "timestamp", BT_TIMESTAMP, &timestamp, err));
    version.timestamp = (uint64_t)elem_i64(timestamp);
    /* Drivers and shells send small numbers in any type. */
    Elem last_mod = doc_get_lit(doc, "lastMod");
    if (!elem_is_number(last_mod))
        TRY(meta_field(doc, what, "lastMod", BT_INT32, &last_mod, err));
    int64_t number = elem_as_i64(last_mod);
    if (number < 0 || number > INT32_MAX)
        return error_set(err, ERR_BAD_VALUE, "field \"lastMod\" of %s is out of bounds", what);
    version.last_mod = (int32_t)number;
    *ret_version = version;
    return ERR_OK;
}

void database_version_build(DocBuilder *b, const char *name, const DatabaseVersion *v) {
    size_t opened = build_open_doc(b, name);
    build_uuid(b, "uuid", &v->uuid);
    build_timestamp(b, "timestamp", v->timestamp);
    build_i32(b, "lastMod", v->last_mod);
    build_close(b, opened);
}
