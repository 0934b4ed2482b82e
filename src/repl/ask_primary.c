#include "repl/ask_primary.h"

#include <stdio.h>

#include "concurrency/service_ctx.h"
#include "repl/repl_internal.h"

static void look_for_primary(void *arg, const ReplCore *core) {
    char *host = arg;
    const ReplConfig *config = repl_core_config(core);
    int32_t index = repl_core_primary_index(core);
    int32_t self = repl_core_self_index(core); /* below 0: this node was removed */
    if (config != NULL && self >= 0 && index >= 0 && index != self)
        snprintf(host, REPL_HOST_SIZE, "%s", config->members[index].host);
}

bool repl_find_primary(Repl *repl, char ret_host[REPL_HOST_SIZE]) {
    ret_host[0] = '\0';
    repl_inspect(repl, look_for_primary, ret_host);
    return ret_host[0] != '\0';
}

ErrCode repl_ask_primary(Repl *repl, OpCtx *op, Doc body, int64_t deadline_us, ClientReply *reply,
                         Error *err) {
    char host[REPL_HOST_SIZE];
    if (!repl_find_primary(repl, host))
        return error_set(err, ERR_NOT_WRITABLE_PRIMARY, "no primary is known to this member");
    return client_run(repl->service->clients, op, host, &(ClientCommand){.body = body}, deadline_us,
                      reply, err);
}
