#include "up/control.h"

#include <stdio.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "bson/builder.h"
#include "commands/version.h"

enum {
    STATE_MS_MAX = 2000,
};

void control_open(Control *control) {
    control->ops = op_registry_new();
    control->op = op_ctx_new(control->ops, NULL, NULL);
    op_begin(control->op, &(OpDescription){.op_type = "none", .ns = "", .desc = "up"});
    control->pool = client_pool_new(&(ClientPoolConfig){
        .name = "up",
        .ops = control->ops,
        .driver_name = "Sherd Internal Client",
        .driver_version = SHERD_VERSION,
        .app_name = "sherd up",
        .wire_version_min = COMPAT_WIRE_VERSION_MIN,
        .wire_version_max = COMPAT_WIRE_VERSION_MAX,
    });
}

void control_close(Control *control) {
    if (control->op == NULL)
        return;
    op_end(control->op);
    op_ctx_free(TAKE_PTR(control->op));
    client_pool_free(TAKE_PTR(control->pool));
    op_registry_free(TAKE_PTR(control->ops));
}

void control_interrupt(Control *control) {
    op_kill(control->op, ERR_INTERRUPTED_AT_SHUTDOWN);
}

ErrCode control_run(Control *control, uint16_t port, Doc command, int64_t ms_max,
                    ClientReply *reply, Error *err) {
    char host[CLIENT_HOST_SIZE];
    snprintf(host, sizeof(host), "127.0.0.1:%u", port);
    return client_run(control->pool, control->op, host, &(ClientCommand){.body = command},
                      clock_deadline_ms(ms_max), reply, err);
}

PartState control_state(Control *control, const Part *part) {
    CLEANUP(error_reset) Error err = {0};
    CLEANUP(client_reply_done) ClientReply reply = {0};
    DocBuilder b = doc_builder_in_arena(&control->op->arena);
    build_i32(&b, "hello", 1);
    build_cstr(&b, "$db", "admin");
    if (control_run(control, part->port, doc_builder_end(&b), STATE_MS_MAX, &reply, &err) != ERR_OK)
        return doc_is_present(reply.body) ? PART_STARTING : PART_DOWN;
    bool is_primary = elem_is_truthy(doc_get_lit(reply.body, "isWritablePrimary"));
    if (part->role == PART_ROUTER)
        return is_primary ? PART_ROUTES : PART_STARTING;
    if (is_primary)
        return PART_PRIMARY;
    if (elem_is_truthy(doc_get_lit(reply.body, "secondary")))
        return PART_SECONDARY;
    return elem_is_present(doc_get_lit(reply.body, "setName")) ? PART_STARTING : PART_NOT_INITIATED;
}

const char *part_state_name(PartState state) {
    static const char *const NAMES[] = {
        [PART_DOWN] = "down",
        [PART_STARTING] = "starting",
        [PART_NOT_INITIATED] = "not initiated",
        [PART_SECONDARY] = "SECONDARY",
        [PART_PRIMARY] = "PRIMARY",
        [PART_ROUTES] = "ready",
    };
    return NAMES[state];
}
