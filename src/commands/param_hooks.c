#include "commands/param_hooks.h"

#include <math.h>
#include <string.h>

#include "base/log.h"
#include "commands/core/command_service.h"
#include "commands/version.h"
#include "index/build/coordinator.h"
#include "preimages/purger.h"
#include "repl/repl.h"
#include "storage/engine.h"
#include "ttl/ttl.h"

static void apply_test_commands(ServiceCtx *service, ParamId id) {
    command_settings(service)->is_test_commands_enabled = param_bool(service, id);
}

static void apply_journal_interval(ServiceCtx *service, ParamId id) {
    storage_set_journal_interval(service->storage, (int32_t)param_i64(service, id));
}

static void apply_syncdelay(ServiceCtx *service, ParamId id) {
    storage_set_checkpoint_interval(service->storage, (int32_t)ceil(param_f64(service, id)));
}

static void apply_log_level(ServiceCtx *service, ParamId id) {
    log_set_verbosity(LOG_DEFAULT, (int)param_i64(service, id));
}

static void apply_log_size(ServiceCtx *service, ParamId id) {
    int64_t kb = param_i64(service, id);
    log_set_attr_bytes_max(kb == 0 ? SIZE_MAX : (size_t)kb * 1024);
}

static void apply_quiet(ServiceCtx *service, ParamId id) {
    command_settings(service)->is_quiet = param_bool(service, id);
}

static void apply_tickets(ServiceCtx *service, ParamId id) {
    storage_set_tickets(service->storage, /* is_write= */ id == PARAM_WRITE_TICKETS,
                        (int32_t)param_i64(service, id));
}

static void apply_bypass(ServiceCtx *service, ParamId id) {
    for (int is_write = 0; is_write < 2; is_write++)
        ticket_pool_set_bypass_threshold(storage_tickets(service->storage, is_write != 0),
                                         (int32_t)param_i64(service, id));
}

static void apply_retries(ServiceCtx *service, ParamId id) {
    (void)id;
    StorageRetryParams *retry = storage_retry_params(service->storage);
    retry->is_temporarily_unavailable_enabled =
        param_bool(service, PARAM_ENABLE_TEMPORARILY_UNAVAILABLE);
    retry->temporarily_unavailable_retries_max =
        (int32_t)param_i64(service, PARAM_TEMPORARILY_UNAVAILABLE_RETRIES);
    retry->temporarily_unavailable_backoff_base_ms =
        (int32_t)param_i64(service, PARAM_TEMPORARILY_UNAVAILABLE_BACKOFF_MS);
    retry->transaction_too_large_threshold = param_f64(service, PARAM_TXN_TOO_LARGE_THRESHOLD);
    retry->is_conflict_logged = param_bool(service, PARAM_TRACE_WRITE_CONFLICTS);
}

static void apply_index_builds(ServiceCtx *service, ParamId id) {
    (void)id;
    index_builds_set_params(service->index_builds,
                            param_i64(service, PARAM_INDEX_BUILD_MEMORY_MB_MAX),
                            param_i64(service, PARAM_INDEX_BUILDS_ACTIVE_MAX),
                            param_i64(service, PARAM_INDEX_BUILD_DISK_MB_MIN),
                            param_i64(service, PARAM_INDEX_BUILD_MAJORITY_WAIT_MS));
}

static void apply_key_rotation(ServiceCtx *service, ParamId id) {
    (void)id;
    if (service_is_member(service))
        time_keys_kick(repl_time_keys(service->repl));
}

static void apply_ttl(ServiceCtx *service, ParamId id) {
    (void)id;
    ttl_monitor_wake(service->ttl);
}

static void apply_preimage_purge(ServiceCtx *service, ParamId id) {
    (void)id;
    preimage_purger_wake(service->preimages);
}

static void build_fcv(ServiceCtx *service, const char *name, DocBuilder *b) {
    (void)service;
    size_t opened = build_open_doc(b, name);
    build_cstr(b, "version", COMPAT_FCV);
    build_close(b, opened);
}

/* {verbosity: n, command: {verbosity: n}, replication: {verbosity: n, election: {...}}, ...} */
static void build_verbosities(LogComponent of, DocBuilder *b) {
    build_i32(b, "verbosity", log_own_verbosity(of));
    for (int i = LOG_DEFAULT + 1; i < LOG_COMPONENT_COUNT; i++) {
        LogComponent component = (LogComponent)i;
        if (log_component_parent(component) != of)
            continue;
        size_t inner = build_open_doc(b, log_component_key(component));
        build_verbosities(component, b);
        build_close(b, inner);
    }
}

static void build_component_verbosity(ServiceCtx *service, const char *name, DocBuilder *b) {
    (void)service;
    size_t opened = build_open_doc(b, name);
    build_verbosities(LOG_DEFAULT, b);
    build_close(b, opened);
}

static ErrCode set_verbosity(LogComponent component, Elem elem, bool is_dry, Error *err) {
    int least = component == LOG_DEFAULT ? 0 : -1;
    if (!elem_is_number(elem) || elem_as_i64(elem) < least || elem_as_i64(elem) > 5)
        return error_set(err, ERR_BAD_VALUE,
                         "verbosity of a log component has to be a number from %d to 5", least);
    if (!is_dry)
        log_set_verbosity(component, (int)elem_as_i64(elem));
    return ERR_OK;
}

static bool find_component(LogComponent parent, Str key, LogComponent *ret_component) {
    for (int i = LOG_DEFAULT + 1; i < LOG_COMPONENT_COUNT; i++) {
        if (log_component_parent((LogComponent)i) != parent ||
            !str_equal(str_from(log_component_key((LogComponent)i)), key))
            continue;
        *ret_component = (LogComponent)i;
        return true;
    }
    return false;
}

/* `value`: {verbosity: n, <component>: <number, or a document again>, ...}; as deep as components
 * are within each other. */
static ErrCode set_verbosities(LogComponent of, Doc value, bool is_dry, Error *err) {
    DocIter iter = doc_iter(value);
    for (Elem elem; doc_iter_next(&iter, &elem);) {
        LogComponent component;
        if (elem_name_is(elem, STR("verbosity")))
            TRY(set_verbosity(of, elem, is_dry, err));
        else if (!find_component(of, elem_name_str(elem), &component))
            return error_set(err, ERR_BAD_VALUE, "Invalid component name %s", elem_name(elem));
        else if (elem_type(elem) == BT_DOC)
            TRY(set_verbosities(component, elem_doc(elem), is_dry, err));
        else
            TRY(set_verbosity(component, elem, is_dry, err));
    }
    return ERR_OK;
}

static ErrCode set_component_verbosity(Doc value, Error *err) {
    /* All is checked before anything changes. */
    TRY(set_verbosities(LOG_DEFAULT, value, /* is_dry= */ true, err));
    return set_verbosities(LOG_DEFAULT, value, /* is_dry= */ false, err);
}

const ParamHooks PARAM_HOOKS[PARAM_COUNT] = {
    [PARAM_ENABLE_TEMPORARILY_UNAVAILABLE] = {.apply = apply_retries},
    [PARAM_ENABLE_TEST_COMMANDS] = {.apply = apply_test_commands},
    [PARAM_FEATURE_COMPATIBILITY_VERSION] = {.build = build_fcv},
    [PARAM_INDEX_BUILDS_ACTIVE_MAX] = {.apply = apply_index_builds},
    [PARAM_INDEX_BUILD_DISK_MB_MIN] = {.apply = apply_index_builds},
    [PARAM_INDEX_BUILD_MAJORITY_WAIT_MS] = {.apply = apply_index_builds},
    [PARAM_INDEX_BUILD_MEMORY_MB_MAX] = {.apply = apply_index_builds},
    [PARAM_JOURNAL_COMMIT_INTERVAL] = {.apply = apply_journal_interval},
    [PARAM_KEYS_ROTATION_SECS] = {.apply = apply_key_rotation},
    [PARAM_LOG_COMPONENT_VERBOSITY] = {.build = build_component_verbosity,
                                       .set_doc = set_component_verbosity},
    [PARAM_LOG_LEVEL] = {.apply = apply_log_level},
    [PARAM_MAX_LOG_SIZE_KB] = {.apply = apply_log_size},
    [PARAM_LOW_PRIORITY_BYPASS] = {.apply = apply_bypass},
    [PARAM_PREIMAGE_PURGE_SLEEP_SECS] = {.apply = apply_preimage_purge},
    [PARAM_QUIET] = {.apply = apply_quiet},
    [PARAM_READ_TICKETS] = {.apply = apply_tickets},
    [PARAM_SYNCDELAY] = {.apply = apply_syncdelay},
    [PARAM_TEMPORARILY_UNAVAILABLE_BACKOFF_MS] = {.apply = apply_retries},
    [PARAM_TEMPORARILY_UNAVAILABLE_RETRIES] = {.apply = apply_retries},
    [PARAM_TTL_MONITOR_ENABLED] = {.apply = apply_ttl},
    [PARAM_TTL_MONITOR_SLEEP_SECS] = {.apply = apply_ttl},
    [PARAM_TXN_TOO_LARGE_THRESHOLD] = {.apply = apply_retries},
    [PARAM_TRACE_WRITE_CONFLICTS] = {.apply = apply_retries},
    [PARAM_WRITE_TICKETS] = {.apply = apply_tickets},
};

const ParamHooks ROUTER_PARAM_HOOKS[PARAM_COUNT] = {
    [PARAM_ENABLE_TEST_COMMANDS] = {.apply = apply_test_commands},
    [PARAM_FEATURE_COMPATIBILITY_VERSION] = {.build = build_fcv},
    [PARAM_LOG_COMPONENT_VERBOSITY] = {.build = build_component_verbosity,
                                       .set_doc = set_component_verbosity},
    [PARAM_LOG_LEVEL] = {.apply = apply_log_level},
    [PARAM_MAX_LOG_SIZE_KB] = {.apply = apply_log_size},
    [PARAM_QUIET] = {.apply = apply_quiet},
};
