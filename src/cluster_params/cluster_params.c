#include "cluster_params/cluster_params.h"

#include "catalog/access.h"
#include "index/lookup.h"
#include "query/write/modify.h"

enum {
    LOCATION_UNKNOWN_FIELD = 40415,
};

static const Ns PARAMS_NS = {.size = 24, .db_size = 6, .text = "config.clusterParameters"};
static const char OPTIONS[] = "changeStreamOptions";

const char *const CLUSTER_PARAM_NAMES[] = {OPTIONS};
const size_t CLUSTER_PARAM_COUNT = ARRAY_LEN(CLUSTER_PARAM_NAMES);

bool cluster_param_exists(Str name) {
    for (size_t i = 0; i < CLUSTER_PARAM_COUNT; i++)
        if (str_is(name, CLUSTER_PARAM_NAMES[i]))
            return true;
    return false;
}

/* ---- changeStreamOptions ---- */

/* The one member that a document may have; missing if it has none. */
static ErrCode only_member(Doc doc, const char *path, const char *name, Elem *ret_member,
                           Error *err) {
    *ret_member = ELEM_MISSING;
    DocIter iter = doc_iter(doc);
    for (Elem member; doc_iter_next(&iter, &member);) {
        if (!elem_name_is(member, str_from(name)))
            return error_set(err, (ErrCode)LOCATION_UNKNOWN_FIELD,
                             "BSON field '%s.%s' is an unknown field.", path, elem_name(member));
        *ret_member = member;
    }
    return ERR_OK;
}

static ErrCode parse_seconds(Elem given, int64_t *ret_seconds, Error *err) {
    if (elem_type(given) == BT_STRING && str_is(elem_str(given), "off")) {
        *ret_seconds = -1;
        return ERR_OK;
    }
    if (elem_type(given) == BT_STRING)
        return error_set(err, ERR_BAD_VALUE,
                         "Non-numeric value of 'expireAfterSeconds' should be 'off'");
    if (!elem_is_number(given))
        return error_set(err, ERR_TYPE_MISMATCH,
                         "Expected 'expireAfterSeconds' to be a number or 'off', found %s",
                         bson_type_name(elem_type(given)));
    *ret_seconds = elem_as_i64(given);
    if (*ret_seconds <= 0 || *ret_seconds > INT64_MAX / 1000)
        return error_set(err, ERR_BAD_VALUE,
                         "Expected a positive integer for 'expireAfterSeconds' field");
    return ERR_OK;
}

/* {preAndPostImages: {expireAfterSeconds: n or "off"}}. */
static ErrCode parse_options(Doc value, int64_t *ret_seconds, Error *err) {
    Elem images, seconds;
    TRY(only_member(value, OPTIONS, "preAndPostImages", &images, err));
    if (!elem_is_present(images))
        return error_set(err, ERR_BAD_VALUE,
                         "Expected 'preAndPostImages' option for the 'changeStreamOptions' "
                         "parameter");
    if (elem_type(images) != BT_DOC)
        return error_set(err, ERR_TYPE_MISMATCH,
                         "BSON field '%s.preAndPostImages' is the wrong type '%s', expected type "
                         "'object'",
                         OPTIONS, bson_type_name(elem_type(images)));
    TRY(only_member(elem_doc(images), "changeStreamOptions.preAndPostImages", "expireAfterSeconds",
                    &seconds, err));
    if (!elem_is_present(seconds))
        return error_set(err, ERR_BAD_VALUE, "Expected 'expireAfterSeconds' option");
    return parse_seconds(seconds, ret_seconds, err);
}

static Doc build_options(OpCtx *op, uint64_t ts, int64_t seconds) {
    DocBuilder b = doc_builder_in_arena(&op->arena);
    build_cstr(&b, "_id", OPTIONS);
    build_timestamp(&b, "clusterParameterTime", ts);
    size_t images = build_open_doc(&b, "preAndPostImages");
    if (seconds < 0)
        build_cstr(&b, "expireAfterSeconds", "off");
    else
        build_i64(&b, "expireAfterSeconds", seconds);
    build_close(&b, images);
    return doc_builder_end(&b);
}

/* ---- documents ---- */

static Doc key_doc(OpCtx *op, Str name) {
    DocBuilder b = doc_builder_in_arena(&op->arena);
    build_str(&b, "_id", name);
    return doc_builder_end(&b);
}

ErrCode cluster_param_set(OpCtx *op, Elem value, uint64_t ts, Error *err) {
    if (!cluster_param_exists(elem_name_str(value)))
        return error_set(err, ERR_ILLEGAL_OPERATION, "Unknown Cluster Parameter: %s",
                         elem_name(value));
    if (elem_type(value) != BT_DOC)
        return error_set(err, ERR_ILLEGAL_OPERATION,
                         "Cluster parameter value must be an object: %s", elem_name(value));
    int64_t seconds;
    TRY(parse_options(elem_doc(value), &seconds, err));
    DocBuilder b = doc_builder_in_arena(&op->arena);
    build_doc(&b, "u", build_options(op, ts, seconds));
    ModifyRequest request = {.kind = MODIFY_UPDATE,
                             .query = {.filter = key_doc(op, elem_name_str(value))},
                             .is_upsert = true,
                             .update = doc_get_lit(doc_builder_end(&b), "u")};
    ModifyOutcome outcome;
    return exec_modify(op, &PARAMS_NS, &request, &outcome, err);
}

ErrCode cluster_param_read(OpCtx *op, Str name, Doc *ret_doc, Error *err) {
    if (!cluster_param_exists(name))
        return error_set(err, ERR_NO_SUCH_KEY, "Unknown Cluster Parameter: %.*s", (int)name.size,
                         name.data);
    *ret_doc = DOC_NONE;
    CLEANUP(access_done) CollAccess access = {0};
    TRY(access_read(op, &PARAMS_NS, &access, err));
    if (access.coll != NULL)
        TRY(lookup_document(op, access.coll, doc_get_lit(key_doc(op, name), "_id"), &op->arena,
                            ret_doc, err));
    if (!doc_is_present(*ret_doc))
        *ret_doc = build_options(op, /* ts= */ 0, /* seconds= */ -1);
    return ERR_OK;
}

uint64_t cluster_param_time(Doc doc) {
    Elem time = doc_get_lit(doc, "clusterParameterTime");
    return elem_type(time) == BT_TIMESTAMP ? (uint64_t)elem_i64(time) : 0;
}

ErrCode cluster_param_adopt(OpCtx *op, Doc doc, Error *err) {
    Elem name = doc_get_lit(doc, "_id");
    if (elem_type(name) != BT_STRING || !cluster_param_exists(elem_str(name)))
        return ERR_OK;
    Doc own;
    TRY(cluster_param_read(op, elem_str(name), &own, err));
    if (cluster_param_time(doc) <= cluster_param_time(own))
        return ERR_OK;
    DocBuilder b = doc_builder_in_arena(&op->arena);
    size_t value = build_open_doc_str(&b, elem_str(name));
    DocIter iter = doc_iter(doc);
    for (Elem field; doc_iter_next(&iter, &field);)
        if (!elem_name_is(field, STR("_id")) && !elem_name_is(field, STR("clusterParameterTime")))
            build_elem(&b, field);
    build_close(&b, value);
    Doc given = doc_builder_end(&b);
    return cluster_param_set(op, doc_get(given, elem_str(name)), cluster_param_time(doc), err);
}

/* A document that somebody has written past the command, and is no setting, has no effect. */
ErrCode cluster_param_image_seconds(OpCtx *op, int64_t *ret_seconds, Error *err) {
    Doc doc;
    TRY(cluster_param_read(op, str_from(OPTIONS), &doc, err));
    CLEANUP(error_reset) Error ignored = {0};
    Elem seconds = doc_get_path(doc, "preAndPostImages.expireAfterSeconds");
    if (parse_seconds(seconds, ret_seconds, &ignored) != ERR_OK)
        *ret_seconds = -1;
    return ERR_OK;
}
