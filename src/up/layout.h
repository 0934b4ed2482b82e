/*
 * layout.h - what a cluster consists of, and on which ports: what its directory remembers (pure).
 *
 *     Layout   sets of members, and routers; as JSON in the state file
 *     Part     one process of it, with its name
 *
 * Set 0 is the config server, set i the shard i - 1. Ports of sets never change: the members know
 * each other by them. Routers keep nothing, so that their number and ports may change.
 */
#pragma once

#include <stdint.h>

#include "base/arena.h"
#include "base/buffer.h"
#include "base/error.h"
#include "bson/doc.h"
#include "up/up_options.h"

enum {
    LAYOUT_SETS_MAX = UP_SHARDS_MAX + 1,
    LAYOUT_PARTS_MAX = LAYOUT_SETS_MAX * UP_REPLICAS_MAX + UP_ROUTERS_MAX,
    LAYOUT_CONFIG_SET = 0,
    LAYOUT_NAME_SIZE = 32,
    LAYOUT_TEXT_SIZE_MAX = 64 * 1024, /* of the state file */
};

typedef struct Layout {
    uint32_t replicas;
    uint32_t routers;
    uint16_t router_port; /* of the first; further ones follow */
    uint32_t set_count;
    uint16_t ports[LAYOUT_SETS_MAX][UP_REPLICAS_MAX]; /* 0: not chosen yet */
} Layout;

typedef enum PartRole {
    PART_CONFIG,
    PART_SHARD,
    PART_ROUTER,
} PartRole;

typedef struct Part {
    PartRole role;
    uint32_t set; /* of a member */
    uint32_t member;
    uint16_t port;
    char name[LAYOUT_NAME_SIZE]; /* "config-0", "shard1-2", "router0" */
} Part;

typedef struct Parts {
    Part rows[LAYOUT_PARTS_MAX]; /* config server, shards, routers */
    uint32_t count;
} Parts;

/* The layout that the options ask for, where `old` (NULL: none) is remembered. New members have no
 * port yet. Fails with ERR_BAD_VALUE for what cannot be changed any more. */
ErrCode layout_plan(const Layout *old, const UpOptions *options, Layout *ret_layout, Error *err)
    MUST_CHECK;

void layout_to_json(const Layout *layout, Buffer *out);
ErrCode layout_from_json(const char *json, Arena *arena, Layout *ret_layout, Error *err) MUST_CHECK;

void layout_parts(const Layout *layout, Parts *ret_parts);
const char *part_role_name(PartRole role);

void layout_set_name(uint32_t set, char name[LAYOUT_NAME_SIZE]);
/* "shard0/127.0.0.1:27118,127.0.0.1:27119", in arena memory. */
const char *layout_set_address(const Layout *layout, uint32_t set, Arena *arena);
/* For drivers: all routers. */
const char *layout_uri(const Layout *layout, Arena *arena);
