#include "commands/hello_repl.h"

#include "repl/repl.h"

typedef struct HelloArgs {
    DocBuilder *b;
    const char *primary_field;
    bool is_writable; /* this node really takes writes by now */
} HelloArgs;

static void build_hosts(DocBuilder *b, const ReplConfig *config, ReplHelloRole role,
                        const char *name) {
    uint32_t count = 0;
    size_t opened = 0;
    for (uint32_t i = 0; i < config->member_count; i++) {
        if (repl_hello_role(&config->members[i]) != role)
            continue;
        if (count == 0)
            opened = build_open_array(b, name);
        char index[INDEX_NAME_SIZE];
        build_cstr(b, index_name(count++, index).data, config->members[i].host);
    }
    if (count > 0)
        build_close(b, opened);
}

static void build_tags(DocBuilder *b, const ReplMemberConfig *self) {
    if (self->tag_count == 0)
        return;
    size_t opened = build_open_doc(b, "tags");
    for (uint32_t i = 0; i < self->tag_count; i++)
        build_cstr(b, self->tags[i].name, self->tags[i].value);
    build_close(b, opened);
}

static void build_last_write(DocBuilder *b, const ReplHelloView *view) {
    size_t opened = build_open_doc(b, "lastWrite");
    build_optime(b, "opTime", view->last_write.optime);
    build_date(b, "lastWriteDate", view->last_write.wall_ms);
    if (!optime_is_none(view->majority_write.optime)) {
        build_optime(b, "majorityOpTime", view->majority_write.optime);
        build_date(b, "majorityWriteDate", view->majority_write.wall_ms);
    }
    build_close(b, opened);
}

static void look(void *arg, const ReplCore *core) {
    HelloArgs *args = arg;
    DocBuilder *b = args->b;
    ReplHelloView view = repl_core_hello(core);
    bool is_primary = view.is_writable_primary && args->is_writable;
    build_bool(b, args->primary_field, is_primary);
    bool is_almost = view.is_writable_primary && !is_primary; /* about to take writes */
    build_bool(b, "secondary", view.is_secondary || is_almost);
    if (view.config == NULL || !view.is_member) {
        build_cstr(b, "info", "Does not have a valid replica set config");
        build_bool(b, "isreplicaset", true);
        return;
    }
    build_cstr(b, "setName", view.config->set_name);
    build_i32(b, "setVersion", (int32_t)view.set_version);
    build_hosts(b, view.config, REPL_HELLO_HOST, "hosts");
    build_hosts(b, view.config, REPL_HELLO_PASSIVE, "passives");
    build_hosts(b, view.config, REPL_HELLO_ARBITER, "arbiters");
    if (view.primary != NULL)
        build_cstr(b, "primary", view.primary->host);
    if (view.self->is_arbiter)
        build_bool(b, "arbiterOnly", true);
    if (view.self->priority == 0 && !view.self->is_arbiter)
        build_bool(b, "passive", true);
    if (view.self->is_hidden)
        build_bool(b, "hidden", true);
    if (!view.self->builds_indexes)
        build_bool(b, "buildIndexes", false);
    if (view.self->delay_secs > 0)
        build_i64(b, "secondaryDelaySecs", view.self->delay_secs);
    build_tags(b, view.self);
    build_cstr(b, "me", view.self->host);
    if (view.has_election_id && is_primary)
        build_oid(b, "electionId", &view.election_id);
    build_last_write(b, &view);
}

void hello_repl_build(ServiceCtx *service, DocBuilder *b, const char *primary_field) {
    HelloArgs args = {b, primary_field, repl_is_writable(service->repl)};
    repl_inspect(service->repl, look, &args);
}
