/*
 * config_fuzz.c - configuration documents from outside: what parses is stable, and can be edited,
 * initiated and reconfigured without breaking a rule.
 */
#include "bson/validate.h"
#include "repl/election/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static ReplConfig *present_config(void) {
    ReplConfig *config = NULL;
    Error err = {0};
    invariant(repl_config_for_one("rs", "a:1", &config, &err) == ERR_OK);
    return config;
}

static void check_config(const ReplConfig *config) {
    Error err = {0};
    ReplConfig *again = NULL;
    invariant(repl_config_parse(config->doc, REPL_CONFIG_ALLOW_ARBITERS, &again, &err) == ERR_OK);
    invariant(doc_equal_bytes(again->doc, config->doc));
    invariant(repl_config_compare(again, config) == 0);
    repl_config_unref(again);
    ReplConfigEdit edit = {.version = 9, .term = 9};
    ReplConfig *edited = repl_config_edit(config, &edit);
    invariant(edited->majority_count >= config->majority_count);
    invariant(edited->write_majority_count <= edited->majority_count);
    repl_config_unref(edited);
    OpTime optimes[REPL_MEMBERS_MAX] = {{0}};
    repl_config_majority_optime(config, optimes);
    for (uint32_t i = 0; i < config->mode_count; i++) {
        ReplWriteConcern concern = {.kind = REPL_W_MODE, .mode = str_from(config->modes[i].name)};
        (void)!repl_config_check_write_concern(config, &concern, &err);
        error_reset(&err);
    }
}

static void check_commands(Doc doc, const ReplConfig *old_config, uint64_t random) {
    Error err = {0};
    Oid id = {{1}};
    ReplConfig *config = NULL;
    if (repl_config_for_initiate(doc, "rs", "a:1", &id, REPL_CONFIG_ALLOW_ARBITERS, &config,
                                 &err) == ERR_OK)
        check_config(config);
    repl_config_unref(config);
    error_reset(&err);
    for (int is_force = 0; is_force <= 1; is_force++) {
        ReplReconfig reconfig = {.old_config = old_config,
                                 .self_host = "a:1",
                                 .term = 3,
                                 .is_force = is_force,
                                 .marks_new_voters = true,
                                 .random = random,
                                 .flags = REPL_CONFIG_ALLOW_ARBITERS};
        config = NULL;
        if (repl_config_for_reconfig(doc, &reconfig, &config, &err) == ERR_OK) {
            check_config(config);
            invariant(is_force || repl_config_compare(config, old_config) > 0);
            invariant(is_force || repl_config_count_voting_changes(config, old_config) <= 1);
        }
        repl_config_unref(config);
        error_reset(&err);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    Error err = {0};
    if (doc_validate(data, size, BSON_DEPTH_MAX, VALIDATE_BASIC, &err) != ERR_OK) {
        error_reset(&err);
        return 0;
    }
    Doc doc = {data};
    ReplConfig *config = NULL;
    ReplConfig *present = present_config();
    if (repl_config_parse(doc, REPL_CONFIG_PARSE_DEFAULT, &config, &err) == ERR_OK) {
        check_config(config);
        check_commands(present->doc, config, size);
    }
    error_reset(&err);
    check_commands(doc, present, size);
    repl_config_unref(config);
    repl_config_unref(present);
    return 0;
}
