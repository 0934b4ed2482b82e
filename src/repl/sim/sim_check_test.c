/*
 * sim_check_test.c - the invariants of replication, over all nodes at once.
 *
 *  - One primary per term; one vote per member and term, across restarts.
 *  - Leader completeness: whoever is elected has everything that is committed.
 *  - A commit point is that of a committed entry, and never goes back in one life of a member.
 *  - A rollback never goes below the member's commit point, nor does it take a committed entry from
 *    the last quorum that has it.
 *  - Log matching: one optime means one history before it. Entries of others are only added behind
 *    the one they follow, and never while this member writes.
 *  - Configurations of a member only get newer, across restarts too.
 */
#include <stdarg.h>
#include <stdio.h>

#include "base/alloc.h"
#include "repl/sim/sim_test.h"

typedef struct SimKnown {
    OpTime optime; /* ts 0: free */
    uint64_t hash;
} SimKnown;

void sim_fail(SimWorld *world, const SimNode *node, const char *fmt, ...) {
    if (world->failure[0] != '\0')
        return;
    char text[SIM_FAILURE_SIZE / 2];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    snprintf(world->failure, sizeof(world->failure), "seed %llu at %lld ms, node %d: %s",
             (unsigned long long)world->seed, (long long)world->now_ms, node ? node->id : -1, text);
    if (world->is_traced)
        printf("%s\n", world->failure);
}

/* The entry at `index` of the committed history, present in the log? */
static bool log_has_committed(const SimWorld *world, const SimLog *log, uint32_t index) {
    return index < log->count && log->entries[index].hash == world->committed.entries[index].hash;
}

static void check_primary(SimWorld *world, SimNode *node) {
    int64_t term = repl_core_term(node->core);
    if (term >= SIM_TERMS_MAX) {
        sim_fail(world, node, "term %lld: elections do not end", (long long)term);
        return;
    }
    if (world->primary_of_term[term] == node->id)
        return;
    if (world->primary_of_term[term] >= 0) {
        sim_fail(world, node, "second primary in term %lld, first was node %d", (long long)term,
                 world->primary_of_term[term]);
        return;
    }
    world->primary_of_term[term] = node->id;
    world->election_count++;
    /* One that was asleep may win late, in a term that is long over; it has to have only what was
     * committed before its term. */
    uint32_t count = world->committed.count;
    while (count > 0 && world->committed.entries[count - 1].commit_term >= term)
        count--;
    if (count > 0 && !log_has_committed(world, &node->log, count - 1))
        sim_fail(world, node, "elected in term %lld without the committed entry %u",
                 (long long)term, count - 1);
}

void sim_check_node(SimWorld *world, SimNode *node) {
    if (node->core == NULL)
        return;
    if (repl_core_state(node->core) == REPL_PRIMARY)
        check_primary(world, node);
    OpTime commit = repl_core_commit_point(node->core).optime;
    /* An arbiter that is one no longer forgets it. */
    bool is_forgotten = optime_is_none(commit) && !node->has_data;
    if (optime_compare(commit, node->commit_seen) < 0 && !is_forgotten)
        sim_fail(world, node, "commit point went back");
    node->commit_seen = commit;
    OpTime applied = repl_core_own_applied(node->core).optime;
    if (node->has_data && !optime_equal(applied, sim_log_last(&node->log).optime))
        sim_fail(world, node, "the core's applied optime is not the top of the log");
}

/* ---- log matching ---- */

static uint64_t known_slot(const SimWorld *world, OpTime optime) {
    uint64_t mix =
        (optime.ts * 0x9E3779B97F4A7C15u) ^ ((uint64_t)optime.term * 0xC2B2AE3D27D4EB4Fu);
    uint64_t at = (mix ^ (mix >> 29)) & (world->known_capacity - 1);
    while (world->known[at].optime.ts != 0 && !optime_equal(world->known[at].optime, optime))
        at = (at + 1) & (world->known_capacity - 1);
    return at;
}

void sim_check_entry(SimWorld *world, const SimNode *node, SimEntry entry) {
    if (world->known_count * 2 >= world->known_capacity) {
        SimKnown *old = world->known;
        uint32_t old_capacity = world->known_capacity;
        world->known_capacity = old_capacity ? old_capacity * 2 : 1024;
        world->known = xcalloc(world->known_capacity, sizeof(SimKnown));
        for (uint32_t i = 0; i < old_capacity; i++)
            if (old[i].optime.ts != 0)
                world->known[known_slot(world, old[i].optime)] = old[i];
        xfree(old);
    }
    SimKnown *known = &world->known[known_slot(world, entry.optime)];
    if (known->optime.ts == 0) {
        *known = (SimKnown){entry.optime, entry.hash};
        world->known_count++;
    } else if (known->hash != entry.hash) {
        sim_fail(world, node, "two histories lead to optime %llx of term %lld",
                 (unsigned long long)entry.optime.ts, (long long)entry.optime.term);
    }
}

void sim_check_append(SimWorld *world, const SimNode *node, SimEntry entry) {
    OpTime last = sim_log_last(&node->log).optime;
    if (!optime_equal(entry.previous, last))
        sim_fail(world, node,
                 "puts %llx of term %lld behind %llx of term %lld, which it does not follow",
                 (unsigned long long)entry.optime.ts, (long long)entry.optime.term,
                 (unsigned long long)last.ts, (long long)last.term);
    if (node->write_term > 0)
        sim_fail(world, node, "takes entries of others while it writes its own");
}

/* ---- commit points ---- */

static int64_t find_optime(const SimLog *log, OpTime optime) {
    uint32_t low = 0, high = log->count;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (optime_compare(log->entries[middle].optime, optime) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    bool is_found = low < log->count && optime_equal(log->entries[low].optime, optime);
    return is_found ? (int64_t)low : -1;
}

/* What a primary declares committed becomes so for all; what others believe must be among it. */
void sim_check_commit(SimWorld *world, SimNode *node, OpTime optime, int64_t term) {
    bool was_primary =
        optime.term == term && term < SIM_TERMS_MAX && world->primary_of_term[term] == node->id;
    /* A primary back from a crash hears of commits beyond what is left of its log. */
    if (was_primary && find_optime(&node->log, optime) >= 0)
        sim_declare_commit(world, node, optime, term);
    else if (find_optime(&world->committed, optime) < 0)
        sim_fail(world, node, "believes in a commit of %llx of term %lld that never was",
                 (unsigned long long)optime.ts, (long long)optime.term);
}

void sim_declare_commit(SimWorld *world, SimNode *node, OpTime optime, int64_t term) {
    int64_t index = find_optime(&node->log, optime);
    if (index < 0) {
        sim_fail(world, node, "committed what it does not have");
        return;
    }
    uint32_t old_count = world->committed.count;
    /* One that was asleep may find out late, and commit what is long committed. */
    uint32_t shared = (uint32_t)index < old_count ? (uint32_t)index + 1 : old_count;
    if (shared > 0 && !log_has_committed(world, &node->log, shared - 1)) {
        sim_fail(world, node, "commits on a history without the committed entry %u", shared - 1);
        return;
    }
    for (uint32_t i = old_count; i <= (uint32_t)index; i++) {
        sim_log_append(&world->committed, node->log.entries[i]);
        world->committed.entries[i].commit_term = term;
        world->commit_count++;
        if (world->is_healed && node->log.entries[i].written_ms > world->healed_ms &&
            world->progress_ms == 0)
            world->progress_ms = world->now_ms;
    }
    if (world->committed.count == old_count)
        return;
    for (uint32_t i = 0; i < world->node_count; i++) {
        const SimNode *other = &world->nodes[i];
        if (other->core != NULL && repl_core_state(other->core) == REPL_PRIMARY &&
            repl_core_term(other->core) > term &&
            !log_has_committed(world, &other->log, world->committed.count - 1))
            sim_fail(world, node, "committed in term %lld what the primary of term %lld lacks",
                     (long long)term, (long long)repl_core_term(other->core));
    }
}

/* How many voters of the configuration hold the committed entry durably, `without` one node. */
static bool is_on_quorum(const SimWorld *world, const ReplConfig *config, uint32_t index,
                         const SimNode *without) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < config->member_count; i++) {
        const SimNode *node = &world->nodes[sim_find_host(world, config->members[i].host)];
        bool counts = config->members[i].is_voter && node != without;
        uint32_t kept = world->is_journaled ? node->log.durable_count : node->log.count;
        count += counts && index < kept && log_has_committed(world, &node->log, index);
    }
    return count >= config->write_majority_count;
}

/* A member may lose a committed entry when it follows a branch that lost, as long as those whose
 * word made it committed keep it. */
void sim_check_truncate(SimWorld *world, const SimNode *node, uint32_t new_count) {
    uint32_t last =
        world->committed.count < node->log.count ? world->committed.count : node->log.count;
    if (last <= new_count || !log_has_committed(world, &node->log, last - 1))
        return;
    for (uint32_t i = 0; i < world->node_count; i++) {
        const ReplConfig *config = world->nodes[i].disk_config;
        if (config != NULL && is_on_quorum(world, config, last - 1, node))
            return;
    }
    sim_fail(world, node, "rolled back the committed entry %u, which no quorum has now", last - 1);
}

/* ---- votes and configurations ---- */

void sim_check_vote(SimWorld *world, const SimNode *voter, int64_t term, int32_t candidate_node) {
    if (term < 0 || term >= SIM_TERMS_MAX)
        return;
    int16_t *vote = &world->vote_of[voter->id][term];
    if (*vote >= 0 && *vote != candidate_node)
        sim_fail(world, voter, "voted for nodes %d and %d in term %lld", *vote, candidate_node,
                 (long long)term);
    *vote = (int16_t)candidate_node;
}

void sim_check_config(SimWorld *world, const SimNode *node, const ReplConfig *config) {
    if (node->disk_config != NULL && repl_config_compare(config, node->disk_config) <= 0)
        sim_fail(world, node, "stores configuration (%lld, %lld) after (%lld, %lld)",
                 (long long)config->term, (long long)config->version,
                 (long long)node->disk_config->term, (long long)node->disk_config->version);
    for (uint32_t i = 0; i < world->node_count; i++) {
        const ReplConfig *other = world->nodes[i].disk_config;
        if (other != NULL && other->term == config->term && other->version == config->version &&
            !doc_equal_bytes(other->doc, config->doc))
            sim_fail(world, node, "two configurations (%lld, %lld)", (long long)config->term,
                     (long long)config->version);
    }
}

/* ---- the end ---- */

static const SimNode *find_writable(const SimWorld *world) {
    const SimNode *found = NULL;
    for (uint32_t i = 0; i < world->node_count; i++) {
        const SimNode *node = &world->nodes[i];
        if (node->core != NULL && repl_core_is_writable(node->core) &&
            (found == NULL || repl_core_term(node->core) > repl_core_term(found->core)))
            found = node;
    }
    return found;
}

/* All data members of the primary's configuration have its log, and know that it is committed. */
bool sim_is_converged(const SimWorld *world) {
    const SimNode *primary = find_writable(world);
    if (primary == NULL)
        return false;
    const ReplConfig *config = repl_core_config(primary->core);
    OpTime last = sim_log_last(&primary->log).optime;
    for (uint32_t i = 0; i < config->member_count; i++) {
        const SimNode *node = &world->nodes[sim_find_host(world, config->members[i].host)];
        if (config->members[i].is_arbiter)
            continue;
        if (node->core == NULL || node->log.count != primary->log.count ||
            !optime_equal(repl_core_commit_point(node->core).optime, last) ||
            !optime_equal(sim_log_last(&node->log).optime, last))
            return false;
    }
    return true;
}

void sim_check_done(SimWorld *world) {
    xfree(world->known);
    xfree(world->committed.entries);
}
