#include "commands/fail_point_config.h"

#include <stdio.h>

#include "base/log.h"
#include "bson/json.h"

static ErrCode find(Str name, FailpointId *ret_id, bool *ret_stays, Error *err) {
    int id = failpoint_find(name.data, ret_stays);
    if (id < 0)
        return error_set(err, (ErrCode)4, "%.*s not found", (int)name.size, name.data);
    *ret_id = (FailpointId)id;
    return ERR_OK;
}

ErrCode fail_point_find(Str name, FailpointId *ret_id, Error *err) {
    bool stays;
    return find(name, ret_id, &stays, err);
}

static ErrCode parse_count(Elem elem, int64_t least, int64_t *ret_count, Error *err) {
    if (!elem_is_number(elem))
        return error_set(err, ERR_TYPE_MISMATCH, "'%s' option to 'mode' must be a number",
                         elem_name(elem));
    *ret_count = elem_as_i64(elem);
    if (*ret_count < least || *ret_count > INT32_MAX)
        return error_set(err, ERR_BAD_VALUE, "'%s' option to 'mode' is out of range",
                         elem_name(elem));
    return ERR_OK;
}

static ErrCode parse_mode(Elem mode, FailpointConfig *config, Error *err) {
    if (elem_type(mode) == BT_STRING) {
        if (str_is(elem_str(mode), "off"))
            config->mode = FAILPOINT_OFF;
        else if (str_is(elem_str(mode), "alwaysOn"))
            config->mode = FAILPOINT_ALWAYS_ON;
        else
            return error_set(err, ERR_BAD_VALUE, "unknown mode: %s", elem_str(mode).data);
        return ERR_OK;
    }
    if (elem_type(mode) != BT_DOC || doc_count(elem_doc(mode)) != 1)
        return error_set(err, ERR_TYPE_MISMATCH,
                         "'mode' must be a string or a document of one field");
    DocIter iter = doc_iter(elem_doc(mode));
    Elem elem;
    doc_iter_next(&iter, &elem);
    if (elem_name_is(elem, STR("times"))) {
        config->mode = FAILPOINT_TIMES;
        TRY(parse_count(elem, 0, &config->count, err));
        if (config->count == 0)
            config->mode = FAILPOINT_OFF;
        return ERR_OK;
    }
    if (elem_name_is(elem, STR("skip"))) {
        config->mode = FAILPOINT_SKIP;
        return parse_count(elem, 0, &config->count, err);
    }
    if (elem_name_is(elem, STR("activationProbability"))) {
        config->mode = FAILPOINT_RANDOM;
        config->probability = elem_is_number(elem) ? elem_as_f64(elem) : -1;
        if (!(config->probability >= 0.0) || !(config->probability <= 1.0))
            return error_set(err, ERR_BAD_VALUE,
                             "activationProbability must be between 0.0 and 1.0");
        return ERR_OK;
    }
    return error_set(err, ERR_BAD_VALUE,
                     "'mode' must be one of 'off', 'alwaysOn', 'times', 'skip' and "
                     "'activationProbability'");
}

ErrCode fail_point_configure(Str name, Elem mode, Doc data, FailpointCounts *ret_counts,
                             Error *err) {
    FailpointId id = FP_COUNT;
    FailpointConfig config = {0};
    TRY(find(name, &id, &config.stays, err));
    TRY(parse_mode(mode, &config, err));
    if (doc_is_present(data) && config.mode != FAILPOINT_OFF) {
        config.is_crash = elem_is_truthy(doc_get_lit(data, "crash"));
        Elem block = doc_get_lit(data, "blockTimeMS");
        if (!elem_is_present(block))
            block = doc_get_lit(data, "waitForMillis");
        config.is_block = elem_is_number(block);
        config.block_ms = config.is_block ? elem_as_i64(block) : 0;
        Elem code = doc_get_lit(data, "errorCode");
        config.error_code = elem_is_number(code) ? (ErrCode)elem_as_i64(code) : ERR_OK;
        Elem call = doc_get_lit(data, "call");
        config.call = elem_is_number(call) ? elem_as_i64(call) : 0;
        Elem thread = doc_get_lit(data, "thread");
        if (elem_type(thread) == BT_STRING)
            snprintf(config.thread, sizeof(config.thread), "%s", elem_str(thread).data);
        Elem at = doc_get_lit(data, "at");
        if (elem_type(at) == BT_STRING)
            snprintf(config.at, sizeof(config.at), "%s", elem_str(at).data);
        config.data = doc_copy_heap(data);
    }
    LOG_WARN(LOG_COMMAND, 23829, "Set failpoint", LOG_STR("failPointName", failpoint_name(id)),
             LOG_I64("mode", config.mode));
    *ret_counts = failpoint_configure(id, &config);
    return ERR_OK;
}

ErrCode fail_point_configure_text(const char *name, const char *json, Error *err) {
    Arena arena;
    arena_init(&arena, 1024);
    Doc doc;
    ErrCode rc = doc_from_json(json, &arena, &doc, err);
    if (rc == ERR_OK) {
        Elem data = doc_get_lit(doc, "data");
        FailpointCounts counts;
        rc = fail_point_configure(str_from(name), doc_get_lit(doc, "mode"),
                                  elem_type(data) == BT_DOC ? elem_doc(data) : DOC_NONE, &counts,
                                  err);
    }
    arena_done(&arena);
    return rc;
}
