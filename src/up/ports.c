#include "up/ports.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/prng.h"

/* Below the ports that Linux gives to outgoing connections (32768 and up), so that none of those
 * sits on a member's port while it is down. */
enum {
    PORT_FIRST = 20000,
    PORT_COUNT = 12000,
};

bool port_is_free(uint16_t port) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return false;
    int on = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)); /* as the servers do */
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    /* Of two that are bound to a port one may listen. */
    bool is_free =
        bind(fd, (const struct sockaddr *)&address, sizeof(address)) == 0 && listen(fd, 1) == 0;
    close(fd);
    return is_free;
}

static bool is_used_in(const Layout *layout, uint16_t port) {
    if (port >= layout->router_port && port < layout->router_port + layout->routers)
        return true;
    for (uint32_t i = 0; i < layout->set_count; i++)
        for (uint32_t j = 0; j < layout->replicas; j++)
            if (layout->ports[i][j] == port)
                return true;
    return false;
}

ErrCode ports_choose(Layout *layout, Error *err) {
    /* Clusters that are made at the same time should not look for the same ports. */
    uint32_t start;
    secure_random(&start, sizeof(start));
    uint32_t tried = 0;
    for (uint32_t i = 0; i < layout->set_count; i++)
        for (uint32_t j = 0; j < layout->replicas; j++)
            while (layout->ports[i][j] == 0) {
                if (tried == PORT_COUNT)
                    return error_set(err, ERR_SOCKET_EXCEPTION, "no free port from %d to %d",
                                     PORT_FIRST, PORT_FIRST + PORT_COUNT - 1);
                uint16_t port = (uint16_t)(PORT_FIRST + (start + tried++) % PORT_COUNT);
                if (!is_used_in(layout, port) && port_is_free(port))
                    layout->ports[i][j] = port;
            }
    return ERR_OK;
}

ErrCode ports_check(const Parts *parts, Error *err) {
    for (uint32_t i = 0; i < parts->count; i++)
        if (!port_is_free(parts->rows[i].port))
            return error_set(err, ERR_SOCKET_EXCEPTION, "port %u, which %s needs, is in use",
                             parts->rows[i].port, parts->rows[i].name);
    return ERR_OK;
}
