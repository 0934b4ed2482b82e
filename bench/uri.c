/*
 * uri.c - as much of mongodb:// as a load generator needs; the rest is refused by name.
 */
#include <ctype.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/un.h>

#include "base/alloc.h"
#include "bench.h"

static ErrCode parse_options(char *text, BenchTarget *target, Error *err);
static void percent_decode(char *text);
static ErrCode resolve_unix(const char *path, BenchTarget *target, Error *err);
static ErrCode resolve_tcp(char *host, BenchTarget *target, Error *err);

ErrCode bench_parse_uri(const char *uri, BenchTarget *ret_target, Error *err) {
    static const char SCHEME[] = "mongodb://";
    if (strncmp(uri, SCHEME, sizeof(SCHEME) - 1) != 0)
        return error_set(err, ERR_FAILED_TO_PARSE, "uri \"%s\" does not begin with %s", uri,
                         SCHEME);
    CLEANUP(xfree_ptr) char *text = xstrdup(uri + sizeof(SCHEME) - 1);
    *ret_target = (BenchTarget){.database = "bench"};

    char *options = strchr(text, '?');
    if (options != NULL) {
        *options++ = '\0';
        TRY(parse_options(options, ret_target, err));
    }
    char *database = strchr(text, '/');
    if (database != NULL) {
        *database++ = '\0';
        if (database[0] != '\0')
            snprintf(ret_target->database, sizeof(ret_target->database), "%s", database);
    }
    if (strchr(text, '@') != NULL)
        return error_set(err, ERR_NOT_IMPLEMENTED,
                         "uri has a user name: sherd-bench does not "
                         "authenticate");
    char *comma = strchr(text, ','); /* the first host is as good as any */
    if (comma != NULL)
        *comma = '\0';
    percent_decode(text);
    snprintf(ret_target->text, sizeof(ret_target->text), "%s", text);
    return text[0] == '/' ? resolve_unix(text, ret_target, err)
                          : resolve_tcp(text, ret_target, err);
}

/* name=value&name=value; it talks to the one server of the URI, whatever the options say. */
static ErrCode parse_options(char *text, BenchTarget *target, Error *err) {
    static const char *const WITHOUT_EFFECT[] = {"directConnection", "replicaSet", "retryWrites"};
    for (char *rest = NULL, *pair = strtok_r(text, "&", &rest); pair != NULL;
         pair = strtok_r(NULL, "&", &rest)) {
        char *value = strchr(pair, '=');
        if (value == NULL)
            return error_set(err, ERR_FAILED_TO_PARSE, "uri option \"%s\" has no value", pair);
        *value++ = '\0';
        bool is_known = false;
        for (size_t i = 0; i < ARRAY_LEN(WITHOUT_EFFECT); i++)
            is_known |= strcmp(pair, WITHOUT_EFFECT[i]) == 0;
        if (strcmp(pair, "w") == 0)
            snprintf(target->w, sizeof(target->w), "%s", value);
        else if (strcmp(pair, "readPreference") == 0)
            snprintf(target->read_preference, sizeof(target->read_preference), "%s", value);
        else if (!is_known)
            return error_set(err, ERR_NOT_IMPLEMENTED, "uri option \"%s\" is not understood", pair);
    }
    return ERR_OK;
}

static void percent_decode(char *text) {
    char *to = text;
    for (const char *at = text; *at != '\0'; at++) {
        if (at[0] == '%' && isxdigit((unsigned char)at[1]) && isxdigit((unsigned char)at[2])) {
            char digits[3] = {at[1], at[2], '\0'};
            *to++ = (char)strtol(digits, NULL, 16);
            at += 2;
        } else {
            *to++ = *at;
        }
    }
    *to = '\0';
}

static ErrCode resolve_unix(const char *path, BenchTarget *target, Error *err) {
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof(at.sun_path))
        return error_set(err, ERR_FAILED_TO_PARSE, "path of unix socket \"%s\" is too long", path);
    memcpy(at.sun_path, path, strlen(path) + 1);
    memcpy(&target->address, &at, sizeof(at));
    target->address_size = sizeof(at);
    return ERR_OK;
}

static ErrCode resolve_tcp(char *host, BenchTarget *target, Error *err) {
    const char *port = "27017";
    char *colon = strrchr(host, ':');
    char *bracket = strchr(host, ']');
    if (colon != NULL && (bracket == NULL || colon > bracket)) {
        *colon = '\0';
        port = colon + 1;
    }
    if (host[0] == '[' && bracket != NULL) {
        *bracket = '\0';
        host++;
    }
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    int rc = getaddrinfo(host, port, &hints, &found);
    if (rc != 0)
        return error_set(err, ERR_HOST_NOT_FOUND, "could not resolve \"%s\" port \"%s\": %s", host,
                         port, gai_strerror(rc));
    memcpy(&target->address, found->ai_addr, found->ai_addrlen);
    target->address_size = found->ai_addrlen;
    freeaddrinfo(found);
    return ERR_OK;
}
