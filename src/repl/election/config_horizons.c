/*
 * config_horizons.c - split horizons: other names by which clients reach the members.
 *
 * A client comes to a member by one host name and must be told names of the others that it can
 * reach too: those of the same horizon. Hence the rules: a host name belongs to one horizon only,
 * and every member is in all of them.
 */
#include <arpa/inet.h>
#include <string.h>

#include "repl/election/config_internal.h"

#define HORIZON_DEFAULT "__default" /* the one of the field `host` */

/* Without the port, and without the brackets of an IPv6 address. */
static Str name_of(const char *host) {
    const char *colon = strrchr(host, ':');
    Str name = {host, (size_t)(colon - host)};
    return name.data[0] == '[' ? (Str){name.data + 1, name.size - 2} : name;
}

/* Of both kinds of addresses, also with the length of a prefix behind it. */
static bool is_ip(const char *host) {
    char name[REPL_HOST_SIZE];
    Str text = name_of(host);
    const char *slash = memchr(text.data, '/', text.size);
    size_t size = slash != NULL ? (size_t)(slash - text.data) : text.size;
    memcpy(name, text.data, size);
    name[size] = '\0';
    struct in6_addr address;
    return inet_pton(AF_INET, name, &address) == 1 || inet_pton(AF_INET6, name, &address) == 1;
}

static ErrCode parse_one(Elem elem, Arena *arena, const ReplMemberConfig *member, uint32_t count,
                         ReplHorizon *ret_horizon, Error *err) {
    const char *name = elem_name(elem);
    if (elem_type(elem) != BT_STRING)
        return error_set(err, ERR_TYPE_MISMATCH, "horizons.%s field has non-string value: type %s",
                         name, bson_type_name(elem_type(elem)));
    if (name[0] == '\0')
        return error_set(err, ERR_BAD_VALUE, "Horizons cannot have empty names");
    if (strcmp(name, HORIZON_DEFAULT) == 0)
        return error_set(err, ERR_BAD_VALUE,
                         "the horizon name \"" HORIZON_DEFAULT "\" is the one of the field 'host'");
    char host[REPL_HOST_SIZE];
    if (!repl_host_normalise(elem_str(elem), host))
        return error_set(err, ERR_FAILED_TO_PARSE, "horizons.%s \"%s\" is no host and port", name,
                         elem_str(elem).data);
    for (uint32_t i = 0; i < count; i++) {
        if (strcmp(member->horizons[i].name, name) == 0)
            return error_set(err, ERR_BAD_VALUE, "Duplicate horizon name found \"%s\"", name);
        if (str_equal(name_of(member->horizons[i].host), name_of(host)))
            return error_set(err, ERR_BAD_VALUE,
                             "Duplicate horizon member found \"%s\": it is in the horizons \"%s\" "
                             "and \"%s\"",
                             host, member->horizons[i].name, name);
    }
    *ret_horizon = (ReplHorizon){arena_strdup(arena, name), arena_strdup(arena, host)};
    return ERR_OK;
}

ErrCode repl_horizons_parse(Elem horizons, Arena *arena, ReplMemberConfig *member, Error *err) {
    if (elem_type(horizons) != BT_DOC)
        return error_set(err, ERR_TYPE_MISMATCH, "horizons field has non-object value: type %s",
                         bson_type_name(elem_type(horizons)));
    uint32_t count = doc_count(elem_doc(horizons));
    if (count == 0)
        return error_set(err, ERR_BAD_VALUE, "horizons field cannot be empty, if present");
    if (count > REPL_HORIZONS_MAX)
        return error_set(err, ERR_BAD_VALUE, "a member may have at most %d horizons",
                         REPL_HORIZONS_MAX);
    ReplHorizon *rows = ARENA_ARRAY(arena, ReplHorizon, count);
    member->horizons = rows;
    DocIter iter = doc_iter(elem_doc(horizons));
    Elem elem;
    for (uint32_t i = 0; doc_iter_next(&iter, &elem); i++)
        TRY(parse_one(elem, arena, member, i, &rows[i], err));
    member->horizon_count = count;
    return ERR_OK;
}

static const ReplHorizon *find_horizon(const ReplMemberConfig *member, const char *name) {
    for (uint32_t i = 0; i < member->horizon_count; i++)
        if (strcmp(member->horizons[i].name, name) == 0)
            return &member->horizons[i];
    return NULL;
}

const char *repl_config_find_horizon_ip(const ReplConfig *config) {
    for (uint32_t i = 0; i < config->member_count; i++)
        for (uint32_t k = 0; k < config->members[i].horizon_count; k++)
            if (is_ip(config->members[i].horizons[k].host))
                return config->members[i].horizons[k].host;
    return NULL;
}

ErrCode repl_horizons_check(const ReplConfig *config, ReplConfigParseFlags flags, Error *err) {
    /* Members with the same number of them, where those of the first are in all others, are in the
     * same ones: names of one member are distinct. */
    const ReplMemberConfig *first = &config->members[0];
    for (uint32_t i = 1; i < config->member_count; i++) {
        const ReplMemberConfig *member = &config->members[i];
        bool is_same = member->horizon_count == first->horizon_count;
        for (uint32_t k = 0; is_same && k < first->horizon_count; k++)
            is_same = find_horizon(member, first->horizons[k].name) != NULL;
        if (!is_same)
            return error_set(err, ERR_BAD_VALUE,
                             "all members must have the same horizons; those of member %d and %d "
                             "differ",
                             first->id, member->id);
        for (uint32_t j = 0; j < i; j++)
            for (uint32_t k = 0; k < member->horizon_count; k++) {
                const ReplHorizon *horizon = &member->horizons[k];
                if (strcmp(find_horizon(&config->members[j], horizon->name)->host, horizon->host) ==
                    0)
                    return error_set(err, ERR_BAD_VALUE,
                                     "members %d and %d have the same host \"%s\" in the horizon "
                                     "\"%s\"",
                                     config->members[j].id, member->id, horizon->host,
                                     horizon->name);
            }
    }
    if (!(flags & REPL_CONFIG_FROM_USER) || (flags & REPL_CONFIG_ALLOW_HORIZON_IPS))
        return ERR_OK;
    const char *ip = repl_config_find_horizon_ip(config);
    if (ip == NULL)
        return ERR_OK;
    return error_set(err, ERR_UNSUPPORTED_FORMAT,
                     "Found split horizon configuration using IP \"%s\", by which no client can "
                     "come; give a host name",
                     ip);
}
