#include "up/layout.h"

#include <stdio.h>

#include "bson/builder.h"
#include "bson/json.h"

enum {
    VERSION = 1,
    SHARDS_DEFAULT = 2,
    ROUTER_PORT_DEFAULT = 27017,
};

static const Layout DEFAULTS = {
    .replicas = 1, .routers = 1, .router_port = ROUTER_PORT_DEFAULT, .set_count = 1};

/* ---- planning ---- */

static ErrCode check_unchangeable(const Layout *old, const UpOptions *options, Error *err) {
    uint32_t shards = old->set_count - 1;
    if (options->shards != 0 && options->shards < shards)
        return error_set(
            err, ERR_BAD_VALUE,
            "--shards %u: the cluster in \"%s\" has %u shards, and none of them can be "
            "taken away",
            options->shards, options->dir, shards);
    if (options->replicas != 0 && options->replicas != old->replicas)
        return error_set(err, ERR_BAD_VALUE,
                         "--replicas %u: the cluster in \"%s\" has sets of %u, which cannot be "
                         "changed",
                         options->replicas, options->dir, old->replicas);
    return ERR_OK;
}

ErrCode layout_plan(const Layout *old, const UpOptions *options, Layout *ret_layout, Error *err) {
    Layout layout = old != NULL ? *old : DEFAULTS;
    if (old != NULL)
        TRY(check_unchangeable(old, options, err));
    else
        layout.set_count = SHARDS_DEFAULT + 1;
    if (options->shards != 0)
        layout.set_count = options->shards + 1;
    if (options->replicas != 0)
        layout.replicas = options->replicas;
    if (options->routers != 0)
        layout.routers = options->routers;
    if (options->port != 0)
        layout.router_port = (uint16_t)options->port;
    if (layout.router_port + layout.routers - 1 > UINT16_MAX)
        return error_set(err, ERR_BAD_VALUE, "--port %u leaves no room for %u routers",
                         layout.router_port, layout.routers);
    *ret_layout = layout;
    return ERR_OK;
}

/* ---- the state file ---- */

void layout_to_json(const Layout *layout, Buffer *out) {
    CLEANUP(arena_done) Arena arena;
    arena_init(&arena, ARENA_CHUNK_SIZE_DEFAULT);
    DocBuilder b = doc_builder_in_arena(&arena);
    build_i32(&b, "version", VERSION);
    build_i32(&b, "replicas", (int32_t)layout->replicas);
    build_i32(&b, "routers", (int32_t)layout->routers);
    build_i32(&b, "port", layout->router_port);
    size_t sets = build_open_array(&b, "sets");
    for (uint32_t i = 0; i < layout->set_count; i++) {
        char name[INDEX_NAME_SIZE];
        size_t set = build_open_array_str(&b, index_name(i, name));
        for (uint32_t j = 0; j < layout->replicas; j++)
            build_i32(&b, index_name(j, name).data, layout->ports[i][j]);
        build_close(&b, set);
    }
    build_close(&b, sets);
    json_append_doc(out, doc_builder_end(&b), LAYOUT_TEXT_SIZE_MAX);
    buffer_append_byte(out, '\n');
}

static ErrCode read_number(Doc doc, const char *name, int64_t max, int64_t *ret_number,
                           Error *err) {
    Elem elem = doc_get(doc, str_from(name));
    int64_t number = elem_as_i64(elem);
    if (!elem_is_number(elem) || number < 1 || number > max)
        return error_set(err, ERR_FAILED_TO_PARSE, "\"%s\" has to be a number from 1 to %lld", name,
                         (long long)max);
    *ret_number = number;
    return ERR_OK;
}

static ErrCode read_set(Elem set, uint32_t replicas, uint16_t *ports, Error *err) {
    if (elem_type(set) != BT_ARRAY || doc_count(elem_doc(set)) != replicas)
        return error_set(err, ERR_FAILED_TO_PARSE, "each of \"sets\" needs %u ports", replicas);
    for (uint32_t i = 0; i < replicas; i++) {
        char name[INDEX_NAME_SIZE];
        int64_t port;
        TRY(read_number(elem_doc(set), index_name(i, name).data, UINT16_MAX, &port, err));
        ports[i] = (uint16_t)port;
    }
    return ERR_OK;
}

ErrCode layout_from_json(const char *json, Arena *arena, Layout *ret_layout, Error *err) {
    Layout layout = {0};
    Doc doc;
    int64_t version, replicas, routers, port;
    TRY(doc_from_json(json, arena, &doc, err));
    TRY(read_number(doc, "version", VERSION, &version, err));
    TRY(read_number(doc, "replicas", UP_REPLICAS_MAX, &replicas, err));
    TRY(read_number(doc, "routers", UP_ROUTERS_MAX, &routers, err));
    TRY(read_number(doc, "port", UINT16_MAX, &port, err));
    layout.replicas = (uint32_t)replicas;
    layout.routers = (uint32_t)routers;
    layout.router_port = (uint16_t)port;
    Elem sets = doc_get_lit(doc, "sets");
    if (elem_type(sets) != BT_ARRAY || doc_count(elem_doc(sets)) < 2 ||
        doc_count(elem_doc(sets)) > LAYOUT_SETS_MAX)
        return error_set(err, ERR_FAILED_TO_PARSE, "\"sets\" has to be an array of 2 to %d sets",
                         LAYOUT_SETS_MAX);
    DocIter iter = doc_iter(elem_doc(sets));
    for (Elem set; doc_iter_next(&iter, &set); layout.set_count++)
        TRY(read_set(set, layout.replicas, layout.ports[layout.set_count], err));
    *ret_layout = layout;
    return ERR_OK;
}

/* ---- parts and names ---- */

void layout_set_name(uint32_t set, char name[LAYOUT_NAME_SIZE]) {
    if (set == LAYOUT_CONFIG_SET)
        snprintf(name, LAYOUT_NAME_SIZE, "config");
    else
        snprintf(name, LAYOUT_NAME_SIZE, "shard%u", set - 1);
}

void layout_parts(const Layout *layout, Parts *ret_parts) {
    ret_parts->count = 0;
    for (uint32_t i = 0; i < layout->set_count; i++) {
        char set_name[LAYOUT_NAME_SIZE];
        layout_set_name(i, set_name);
        for (uint32_t j = 0; j < layout->replicas; j++) {
            Part *part = &ret_parts->rows[ret_parts->count++];
            *part = (Part){.role = i == LAYOUT_CONFIG_SET ? PART_CONFIG : PART_SHARD,
                           .set = i,
                           .member = j,
                           .port = layout->ports[i][j]};
            snprintf(part->name, sizeof(part->name), "%.16s-%u", set_name, j);
        }
    }
    for (uint32_t i = 0; i < layout->routers; i++) {
        Part *part = &ret_parts->rows[ret_parts->count++];
        *part = (Part){.role = PART_ROUTER, .port = (uint16_t)(layout->router_port + i)};
        snprintf(part->name, sizeof(part->name), "router%u", i);
    }
}

const char *part_role_name(PartRole role) {
    static const char *const NAMES[] = {"config", "shard", "router"};
    return NAMES[role];
}

const char *layout_set_address(const Layout *layout, uint32_t set, Arena *arena) {
    char name[LAYOUT_NAME_SIZE];
    layout_set_name(set, name);
    const char *text = arena_printf(arena, "%s/", name);
    for (uint32_t i = 0; i < layout->replicas; i++)
        text =
            arena_printf(arena, "%s%s127.0.0.1:%u", text, i == 0 ? "" : ",", layout->ports[set][i]);
    return text;
}

const char *layout_uri(const Layout *layout, Arena *arena) {
    const char *text = "mongodb://";
    for (uint32_t i = 0; i < layout->routers; i++)
        text = arena_printf(arena, "%s%s127.0.0.1:%u", text, i == 0 ? "" : ",",
                            layout->router_port + i);
    return arena_printf(arena, "%s/", text);
}
