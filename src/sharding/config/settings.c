#include "sharding/config/settings.h"

#include "bson/json.h"
#include "catalog/catalog.h"
#include "concurrency/service_ctx.h"
#include "ddl/ddl.h"
#include "query/write/own_docs.h"

static const Ns SETTINGS_NS = {
    .size = sizeof("config.settings") - 1, .db_size = 6, .text = "config.settings"};
#define BALANCER_ID   STR("balancer")
#define CHUNK_SIZE_ID STR("chunksize")
#define AUTO_MERGE_ID STR("automerge")

/* ---- pure ---- */

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

/* "hh:mm", "h:mm" */
static bool parse_minute(Elem elem, int16_t *ret_minute) {
    if (elem_type(elem) != BT_STRING)
        return false;
    Str text = elem_str(elem);
    const char *t = text.data;
    bool is_short = text.size == 4;
    if (is_short ? t[1] != ':' : text.size != 5 || t[2] != ':' || !is_digit(t[1]))
        return false;
    const char *minutes = t + text.size - 2;
    if (!is_digit(t[0]) || !is_digit(minutes[0]) || !is_digit(minutes[1]))
        return false;
    int hour = is_short ? t[0] - '0' : (t[0] - '0') * 10 + t[1] - '0';
    int minute = (minutes[0] - '0') * 10 + minutes[1] - '0';
    *ret_minute = (int16_t)(hour * 60 + minute);
    return hour < 24 && minute < 60;
}

static ErrCode parse_window(Elem window, BalancerSettings *settings, Error *err) {
    if (!elem_is_present(window))
        return ERR_OK;
    settings->has_window = true;
    if (elem_type(window) == BT_DOC &&
        parse_minute(doc_get_lit(elem_doc(window), "start"), &settings->start_minute) &&
        parse_minute(doc_get_lit(elem_doc(window), "stop"), &settings->stop_minute) &&
        settings->start_minute != settings->stop_minute)
        return ERR_OK;
    return error_set(err, ERR_BAD_VALUE,
                     "the activeWindow of the balancer needs different times \"start\" and "
                     "\"stop\", each as \"hh:mm\"");
}

static ErrCode parse_balancer(Doc doc, BalancerSettings *settings, Error *err) {
    Elem mode = doc_get_lit(doc, "mode");
    settings->is_on = !elem_is_truthy(doc_get_lit(doc, "stopped")) &&
                      (elem_type(mode) != BT_STRING || str_is(elem_str(mode), "full"));
    settings->is_throttled = elem_is_truthy(doc_get_lit(doc, "_secondaryThrottle"));
    settings->waits_for_delete = elem_is_truthy(doc_get_lit(doc, "_waitForDelete"));
    settings->moves_jumbo = elem_is_truthy(doc_get_lit(doc, "attemptToBalanceJumboChunks"));
    return parse_window(doc_get_lit(doc, "activeWindow"), settings, err);
}

ErrCode balancer_settings_parse(Doc balancer, Doc chunk_size, Doc auto_merge,
                                BalancerSettings *ret_settings, Error *err) {
    BalancerSettings settings = {
        .is_on = true, .chunk_bytes = (int64_t)CHUNK_MB_DEFAULT << 20, .merges = true};
    if (doc_is_present(balancer))
        TRY(parse_balancer(balancer, &settings, err));
    if (doc_is_present(chunk_size)) {
        Elem value = doc_get_lit(chunk_size, "value");
        int64_t mb = elem_as_i64(value);
        if (!elem_is_number(value) || mb < 1 || mb > CHUNK_MB_MAX)
            return error_set(err, ERR_BAD_VALUE,
                             "the chunksize in config.settings has to be 1 to %d megabytes",
                             CHUNK_MB_MAX);
        settings.chunk_bytes = mb << 20;
    }
    Elem merges = doc_is_present(auto_merge) ? doc_get_lit(auto_merge, "enabled") : ELEM_MISSING;
    settings.merges = !elem_is_present(merges) || elem_is_truthy(merges);
    *ret_settings = settings;
    return ERR_OK;
}

bool balancer_settings_is_in_window(const BalancerSettings *settings, int minute_of_day) {
    if (!settings->has_window)
        return true;
    bool is_after_start = minute_of_day >= settings->start_minute;
    bool is_before_stop = minute_of_day < settings->stop_minute;
    return settings->start_minute < settings->stop_minute ? is_after_start && is_before_stop
                                                          : is_after_start || is_before_stop;
}

/* ---- what may be written ---- */

/* A mistake in a setting is told to whoever makes it: found later it would only stop the balancer.
 * Documents of other names are left alone. */
static const char VALIDATOR[] =
    "{'$jsonSchema': {'anyOf': ["
    "{'properties': {"
    "  '_id': {'enum': ['chunksize']},"
    "  'value': {'bsonType': 'number', 'minimum': 1, 'maximum': 1024}},"
    " 'required': ['value'], 'additionalProperties': false},"
    "{'properties': {"
    "  '_id': {'enum': ['balancer']},"
    "  'mode': {'enum': ['full', 'autoSplitOnly', 'off']},"
    "  'stopped': {'bsonType': 'bool'},"
    "  'activeWindow': {'bsonType': 'object', 'required': ['start', 'stop']},"
    "  '_secondaryThrottle': {'bsonType': ['bool', 'object']}}},"
    "{'properties': {"
    "  '_id': {'enum': ['automerge', 'autosplit']},"
    "  'enabled': {'bsonType': 'bool'}}},"
    "{'properties': {"
    "  '_id': {'not': {'enum': ['chunksize', 'balancer', 'automerge', 'autosplit']}}}}"
    "]}}";
_Static_assert(CHUNK_MB_MAX == 1024, "as the validator says");

static ErrCode add_validator(OpCtx *op, Doc options, Error *err) {
    Catalog *catalog = catalog_acquire(op_catalog(op));
    const Collection *coll = catalog_find(catalog, &SETTINGS_NS);
    bool has_validator = coll != NULL && doc_is_present(coll->options.validator);
    catalog_release(catalog);
    if (has_validator)
        return ERR_OK;
    CollModChange change = {.validator = doc_get_lit(options, "validator")};
    CollModResult ignored;
    return ddl_coll_mod(op, &SETTINGS_NS, &change, &ignored, err);
}

ErrCode balancer_settings_prepare(OpCtx *op, Error *err) {
    Doc validator;
    TRY(doc_from_json(VALIDATOR, &op->arena, &validator, err));
    DocBuilder b = doc_builder_in_arena(&op->arena);
    build_doc(&b, "validator", validator);
    Doc options = doc_builder_end(&b);
    ErrCode rc = ddl_create_collection(op, &SETTINGS_NS, options, NULL, err);
    if (rc != ERR_NAMESPACE_EXISTS)
        return rc;
    error_reset(err); /* perhaps by a version that did not check */
    return add_validator(op, options, err);
}

/* ---- reading and writing ---- */

ErrCode balancer_settings_read(OpCtx *op, BalancerSettings *ret_settings, Error *err) {
    Doc balancer, chunk_size, auto_merge;
    TRY(own_doc_read(op, &SETTINGS_NS, own_doc_id(op, BALANCER_ID), &balancer, err));
    TRY(own_doc_read(op, &SETTINGS_NS, own_doc_id(op, CHUNK_SIZE_ID), &chunk_size, err));
    TRY(own_doc_read(op, &SETTINGS_NS, own_doc_id(op, AUTO_MERGE_ID), &auto_merge, err));
    return balancer_settings_parse(balancer, chunk_size, auto_merge, ret_settings, err);
}

ErrCode balancer_setting_write(OpCtx *op, bool is_on, Error *err) {
    DocBuilder b = doc_builder_in_arena(&op->arena);
    size_t fields = build_open_doc(&b, "$set");
    build_cstr(&b, "mode", is_on ? "full" : "off");
    build_bool(&b, "stopped", !is_on);
    build_close(&b, fields);
    return own_doc_upsert(op, &SETTINGS_NS, own_doc_id(op, BALANCER_ID), doc_builder_end(&b), err);
}
