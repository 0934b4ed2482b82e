/*
 * self.c - which member of a configuration is this node?
 *
 * The one with this node's port and a host name that means an address of this machine.
 */
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/failpoint.h"
#include "repl/repl_internal.h"

/* An address is local when a socket can be bound to it. */
static bool is_local_address(const struct addrinfo *address) {
    int fd = socket(address->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return false;
    bool is_local = bind(fd, address->ai_addr, address->ai_addrlen) == 0;
    close(fd);
    return is_local;
}

/* As if the name could not be resolved: of one host that the data name, or of all. */
static bool is_made_to_fail(const char *host) {
    if (LIKELY(!failpoint_is_set(FP_FAIL_IS_SELF)))
        return false;
    FailpointConfig config = failpoint_config(FP_FAIL_IS_SELF);
    Elem name = config.data != NULL ? doc_get_lit((Doc){config.data}, "hostAndPort") : ELEM_MISSING;
    bool is_other = elem_type(name) == BT_STRING && !str_is(elem_str(name), host);
    xfree(config.data);
    return !is_other && FAILPOINT(FAIL_IS_SELF);
}

static bool is_self(const Repl *repl, const char *host) {
    if (is_made_to_fail(host))
        return false;
    if (strcmp(host, repl->host) == 0)
        return true;
    const char *colon = strrchr(host, ':');
    if (colon == NULL || strtol(colon + 1, NULL, 10) != repl->port)
        return false;
    char name[REPL_HOST_SIZE];
    bool is_bracketed = host[0] == '[';
    snprintf(name, sizeof(name), "%.*s", (int)(colon - host) - 2 * is_bracketed,
             host + is_bracketed);
    struct addrinfo hints = {.ai_socktype = SOCK_DGRAM, .ai_family = AF_UNSPEC};
    struct addrinfo *addresses = NULL;
    if (getaddrinfo(name, NULL, &hints, &addresses) != 0)
        return false;
    bool is_found = false;
    for (struct addrinfo *at = addresses; at != NULL && !is_found; at = at->ai_next)
        is_found = is_local_address(at);
    freeaddrinfo(addresses);
    return is_found;
}

int32_t repl_find_self(const Repl *repl, const ReplConfig *config) {
    for (uint32_t i = 0; i < config->member_count; i++)
        if (is_self(repl, config->members[i].host))
            return (int32_t)i;
    return REPL_INDEX_NONE;
}
