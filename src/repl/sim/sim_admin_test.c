/* sim_admin_test.c - what users do to a set: reconfigure, step up and down, freeze, maintain. */
#include <stdio.h>

#include "base/alloc.h"
#include "repl/sim/sim_test.h"

/* ---- reconfiguration ---- */

typedef struct NewMember {
    int32_t id;
    const char *host;
    double priority;
    bool is_voter;
    bool is_arbiter;
} NewMember;

/* The present members with one random change. */
static uint32_t change_members(SimWorld *world, SimNode *node, NewMember *members) {
    const ReplConfig *config = repl_core_config(node->core);
    uint32_t count = 0;
    for (uint32_t i = 0; i < config->member_count; i++) {
        const ReplMemberConfig *old = &config->members[i];
        members[count++] = (NewMember){old->id, old->host, old->priority, old->is_vote_configured,
                                       old->is_arbiter};
    }
    uint32_t victim = (uint32_t)prng_below(&world->prng, count);
    bool is_self = strcmp(members[victim].host, node->host) == 0;
    uint32_t choice = (uint32_t)prng_below(&world->prng, 4);
    if (choice == 0 && !is_self && count > 3) {
        members[victim] = members[--count];
    } else if (choice == 1 && !is_self && !members[victim].is_arbiter) {
        members[victim].is_voter = !members[victim].is_voter;
        if (!members[victim].is_voter)
            members[victim].priority = 0;
    } else if (choice == 2 && !members[victim].is_arbiter && members[victim].is_voter) {
        members[victim].priority = is_self ? 1 : (double)prng_below(&world->prng, 4);
    } else {
        for (uint32_t i = 0; i < world->node_count; i++)
            if (repl_config_find_host(config, world->nodes[i].host) == REPL_INDEX_NONE) {
                /* A member that was there before comes back under its old _id. */
                members[count++] =
                    (NewMember){world->nodes[i].id, world->nodes[i].host, 1, true, false};
                break;
            }
    }
    return count;
}

static Doc build_members(Buffer *buf, const ReplConfig *config, const NewMember *members,
                         uint32_t count) {
    DocBuilder b;
    doc_builder_init(&b, buf);
    build_cstr(&b, "_id", config->set_name);
    build_i64(&b, "version", config->version + 1);
    size_t array = build_open_array(&b, "members");
    for (uint32_t i = 0; i < count; i++) {
        char name[INDEX_NAME_SIZE];
        size_t opened = build_open_doc(&b, index_name(i, name).data);
        build_i32(&b, "_id", members[i].id);
        build_cstr(&b, "host", members[i].host);
        build_f64(&b, "priority", members[i].priority);
        build_i32(&b, "votes", members[i].is_voter);
        build_bool(&b, "arbiterOnly", members[i].is_arbiter);
        build_close(&b, opened);
    }
    build_close(&b, array);
    build_bool(&b, "writeConcernMajorityJournalDefault", config->is_majority_journaled);
    build_elem(&b, doc_get_lit(config->doc, "settings"));
    return doc_builder_end(&b);
}

static void schedule_store(SimWorld *world, SimNode *node, ReplConfig *take_config) {
    SimEvent *event =
        sim_schedule(world, sim_random_ms(world, 1, 20), SIM_EVENT_CONFIG_STORED, node);
    event->config = take_config;
    event->is_reconfig = true;
    world->reconfig_count++;
}

static void reconfigure(SimWorld *world, SimNode *node) {
    CLEANUP(error_reset) Error err = {0};
    if (repl_core_begin_reconfig(node->core, /* is_force= */ false, &err) != ERR_OK)
        return;
    const ReplConfig *config = repl_core_config(node->core);
    NewMember members[REPL_MEMBERS_MAX];
    uint32_t count = change_members(world, node, members);
    CLEANUP(buffer_done) Buffer buf;
    buffer_init(&buf, BUFFER_UNBOUNDED);
    Doc doc = build_members(&buf, config, members, count);
    ReplReconfig reconfig = {
        .old_config = config,
        .self_host = node->host,
        .term = repl_core_term(node->core),
        .marks_new_voters = true,
        .flags = REPL_CONFIG_ALLOW_ARBITERS,
    };
    ReplConfig *new_config = NULL;
    if (repl_config_for_reconfig(doc, &reconfig, &new_config, &err) != ERR_OK) {
        repl_core_config_store_failed(node->core);
        return;
    }
    schedule_store(world, node, new_config);
}

void sim_remove_newly_added(SimWorld *world, SimNode *node, int32_t member_id) {
    CLEANUP(error_reset) Error err = {0};
    if (repl_core_begin_reconfig(node->core, /* is_force= */ false, &err) != ERR_OK)
        return;
    ReplConfig *config = repl_core_config_for_newly_added(node->core, member_id);
    if (config == NULL)
        repl_core_config_store_failed(node->core);
    else
        schedule_store(world, node, config);
}

/* ---- the other commands ---- */

static void sync_from_random(SimWorld *world, SimNode *node) {
    CLEANUP(error_reset) Error err = {0};
    const char *warning;
    char previous[REPL_HOST_SIZE];
    const SimNode *other = &world->nodes[prng_below(&world->prng, world->node_count)];
    (void)!repl_core_sync_from(node->core, sim_now(world, node), other->host, &warning, previous,
                               &node->actions, &err);
}

void sim_command(SimWorld *world, SimNode *node) {
    CLEANUP(error_reset) Error err = {0};
    ReplNow now = sim_now(world, node);
    uint64_t token;
    int64_t secs = (int64_t)prng_below(&world->prng, 4);
    if (repl_core_is_writable(node->core)) {
        if (sim_chance(world, world->is_reconfig_storm ? 98 : 70))
            reconfigure(world, node);
        else
            (void)!repl_core_step_down(node->core, now, secs + 1, secs, sim_chance(world, 30),
                                       &node->actions, &err);
        return;
    }
    switch (prng_below(&world->prng, 6)) {
    case 0:
        (void)!repl_core_freeze(node->core, now, secs, &node->actions, &err);
        break;
    case 1:
        (void)!repl_core_set_maintenance(node->core, now, sim_chance(world, 40), &node->actions,
                                         &err);
        break;
    case 2:
        sync_from_random(world, node);
        break;
    case 3:
        (void)!repl_core_abort_catch_up(node->core, now, &node->actions, &err);
        break;
    default:
        (void)!repl_core_step_up(node->core, now, sim_chance(world, 50), &token, &node->actions,
                                 &err);
        break;
    }
}
