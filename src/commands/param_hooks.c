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

/* {verbosity: n, command: {verbosity: n}, ...}; the names are those of the log lines in lower case.
 */
static void component_key(LogComponent component, char out[32]) {
    const char *name = log_component_name(component);
    size_t i = 0;
    for (; name[i] != '\0' && i < 31; i++)
        out[i] = name[i] >= 'A' && name[i] <= 'Z' ? (char)(name[i] - 'A' + 'a') : name[i];
    out[i] = '\0';
}

static void build_component_verbosity(ServiceCtx *service, const char *name, DocBuilder *b) {
    (void)service;
    size_t opened = build_open_doc(b, name);
    build_i32(b, "verbosity", log_verbosity(LOG_DEFAULT));
    for (int i = LOG_DEFAULT + 1; i < LOG_COMPONENT_COUNT; i++) {
        char key[32];
        component_key((LogComponent)i, key);
        size_t inner = build_open_doc(b, key);
        build_i32(b, "verbosity", log_verbosity((LogComponent)i));
        build_close(b, inner);
    }
    build_close(b, opened);
}

static ErrCode parse_verbosity(Elem elem, int least, Error *err) {
    if (!elem_is_number(elem) || elem_as_i64(elem) < least || elem_as_i64(elem) > 5)
        return error_set(err, ERR_BAD_VALUE,
                         "verbosity of a log component has to be a number from %d to 5", least);
    return ERR_OK;
}

static ErrCode set_one_component(Elem elem, bool is_dry, Error *err) {
    if (strcmp(elem_name(elem), "verbosity") == 0) {
        TRY(parse_verbosity(elem, 0, err));
        if (!is_dry)
            log_set_verbosity(LOG_DEFAULT, (int)elem_as_i64(elem));
        return ERR_OK;
    }
    for (int i = LOG_DEFAULT + 1; i < LOG_COMPONENT_COUNT; i++) {
        char key[32];
        component_key((LogComponent)i, key);
        if (strcmp(key, elem_name(elem)) != 0)
            continue;
        Elem value = elem_type(elem) == BT_DOC ? doc_get_lit(elem_doc(elem), "verbosity") : elem;
        TRY(parse_verbosity(value, -1, err));
        if (!is_dry)
            log_set_verbosity((LogComponent)i, (int)elem_as_i64(value));
        return ERR_OK;
    }
    return error_set(err, ERR_BAD_VALUE, "Invalid component name %s", elem_name(elem));
}

static ErrCode set_component_verbosity(Doc value, Error *err) {
    for (int pass = 0; pass < 2; pass++) { /* all is checked before anything changes */
        DocIter iter = doc_iter(value);
        Elem elem;
        while (doc_iter_next(&iter, &elem))
            TRY(set_one_component(elem, /* is_dry= */ pass == 0, err));
    }
    return ERR_OK;
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
    [PARAM_WRITE_TICKETS] = {.apply = apply_tickets},
};

const ParamHooks ROUTER_PARAM_HOOKS[PARAM_COUNT] = {
    [PARAM_ENABLE_TEST_COMMANDS] = {.apply = apply_test_commands},
    [PARAM_FEATURE_COMPATIBILITY_VERSION] = {.build = build_fcv},
    [PARAM_LOG_COMPONENT_VERBOSITY] = {.build = build_component_verbosity,
                                       .set_doc = set_component_verbosity},
    [PARAM_LOG_LEVEL] = {.apply = apply_log_level},
    [PARAM_QUIET] = {.apply = apply_quiet},
};
