/*
 * index_votes.c - votes on index builds: kept and counted by the primary, sent by the others.
 *
 * A secondary's votes are sent by a thread of its own: the answer comes when a majority has the
 * vote, which may be this member, whose applier may be waiting for the very build.
 *
 *     build ready --> primary: own vote written | votes counted | enough: commit
 *                 --> secondary: vote queued, sent until the build is over
 */
#include "repl/index_votes.h"

#include <stdio.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "index/build/build.h"
#include "index/lookup.h"
#include "query/write/modify.h"
#include "repl/ask_primary.h"
#include "repl/repl_internal.h"

enum {
    SEND_TIMEOUT_US = 10 * 1000 * 1000,
    RETRY_US = 500 * 1000,
    REPEAT_US = 10 * 1000 * 1000, /* of a vote that has arrived, in case it was lost since */
    COMMIT_QUORUM_NUMBER_MAX = REPL_MEMBERS_MAX,
    REASON_SIZE = 256,
};

static const Ns BUILDS_NS = {.size = sizeof("config.system.indexBuilds") - 1,
                             .db_size = 6,
                             .text = "config.system.indexBuilds"};

static const ReplWriteConcern DEFAULT_QUORUM = {
    .kind = REPL_W_MODE,
    .mode = {REPL_WRITE_CONCERN_VOTING, sizeof(REPL_WRITE_CONCERN_VOTING) - 1}};

typedef struct Vote {
    ListNode node;
    Uuid build;
    bool is_abort;
    char reason[REASON_SIZE];
    int64_t due_us;
} Vote;

struct IndexVotes {
    Repl *repl;
    ReplThread thread; /* sends them */
    Mutex mu;
    /* Guarded by mu. */
    List votes;
};

static ErrCode count_votes(Repl *repl, OpCtx *op, IndexBuild *build, bool *ret_is_commit,
                           Error *err);

/* ---- quorums ---- */

static ErrCode parse_quorum(Elem quorum, ReplWriteConcern *ret_concern, Error *err) {
    if (elem_is_number(quorum)) {
        double number = elem_as_f64(quorum);
        if (!(number >= 0 && number <= COMMIT_QUORUM_NUMBER_MAX) || number != (int32_t)number)
            return error_set(err, ERR_FAILED_TO_PARSE,
                             "commitQuorum has to be a non-negative number and not greater than %d",
                             COMMIT_QUORUM_NUMBER_MAX);
        *ret_concern = (ReplWriteConcern){.kind = REPL_W_NUMBER, .number = (int32_t)number};
        return ERR_OK;
    }
    if (elem_type(quorum) != BT_STRING)
        return error_set(err, ERR_FAILED_TO_PARSE, "commitQuorum has to be a number or a string");
    Str mode = elem_str(quorum);
    if (mode.size == 0)
        return error_set(err, ERR_FAILED_TO_PARSE, "commitQuorum can't be an empty string");
    if (str_is(mode, "majority"))
        *ret_concern = (ReplWriteConcern){.kind = REPL_W_MAJORITY};
    else if (str_is(mode, REPL_COMMIT_QUORUM_DEFAULT))
        *ret_concern = DEFAULT_QUORUM;
    else
        *ret_concern = (ReplWriteConcern){.kind = REPL_W_MODE, .mode = mode};
    return ERR_OK;
}

typedef struct QuorumLook {
    ReplWriteConcern concern;
    ErrCode rc;
    Error *err;
    /* For counting. */
    Doc hosts; /* that voted; DOC_NONE: nobody */
    bool is_met;
} QuorumLook;

static void inspect_quorum(void *arg, const ReplCore *core) {
    QuorumLook *look = arg;
    const ReplConfig *config = repl_core_config(core);
    look->rc = config == NULL
                   ? error_set(look->err, ERR_NOT_YET_INITIALIZED, "no replica set config yet")
                   : repl_config_check_commit_quorum(config, &look->concern, look->err);
}

ErrCode repl_check_commit_quorum(Repl *repl, Elem quorum, Error *err) {
    QuorumLook look = {.err = err, .concern = DEFAULT_QUORUM};
    if (elem_is_present(quorum))
        TRY(parse_quorum(quorum, &look.concern, err));
    repl_inspect(repl, inspect_quorum, &look);
    if (look.rc != ERR_UNSATISFIABLE_WRITE_CONCERN)
        return look.rc;
    error_reset(err);
    return error_set(
        err, ERR_UNSATISFIABLE_COMMIT_QUORUM,
        "Commit quorum cannot be satisfied with the current replica set configuration");
}

static void inspect_votes(void *arg, const ReplCore *core) {
    QuorumLook *look = arg;
    const ReplConfig *config = repl_core_config(core);
    if (config == NULL)
        return;
    const OpTime voted = {1, 1};
    OpTime members[REPL_MEMBERS_MAX];
    for (uint32_t i = 0; i < config->member_count; i++) {
        members[i] = OPTIME_NONE;
        DocIter iter = doc_iter(doc_is_present(look->hosts) ? look->hosts : DOC_EMPTY);
        for (Elem host; doc_iter_next(&iter, &host);)
            if (elem_type(host) == BT_STRING && str_is(elem_str(host), config->members[i].host))
                members[i] = voted;
    }
    look->is_met = repl_config_is_concern_met(config, &look->concern, members, voted);
}

/* ---- documents ---- */

static Doc id_of(OpCtx *op, const Uuid *build) {
    DocBuilder b = doc_builder_in_arena(&op->arena);
    build_uuid(&b, "_id", build);
    return doc_builder_end(&b);
}

/* As primary: a replicated write, whoever's operation it is. `update` is in the field "u". */
static ErrCode modify(OpCtx *op, const Uuid *build, Doc update, bool is_upsert,
                      int64_t *ret_matched, Error *err) {
    ModifyRequest request = {.kind = doc_is_present(update) ? MODIFY_UPDATE : MODIFY_DELETE,
                             .query = {.filter = id_of(op, build)},
                             .is_upsert = is_upsert,
                             .update =
                                 doc_is_present(update) ? doc_get_lit(update, "u") : ELEM_MISSING};
    ModifyOutcome outcome = {0};
    CLEANUP(op_mode_restore) OpModeScope scope = op_mode_scope(op);
    op->mode.is_unreplicated = false;
    ErrCode rc = exec_modify(op, &BUILDS_NS, &request, &outcome, err);
    *ret_matched = outcome.matched + outcome.is_upserted;
    return rc;
}

/* In the operation's arena; DOC_NONE: there is none. */
static ErrCode load(OpCtx *op, const Uuid *build, Doc *ret_doc, Error *err) {
    *ret_doc = DOC_NONE;
    CLEANUP(access_done) CollAccess access = {0};
    TRY(access_read(op, &BUILDS_NS, &access, err));
    if (access.coll == NULL)
        return ERR_OK;
    return lookup_document(op, access.coll, doc_get_lit(id_of(op, build), "_id"), &op->arena,
                           ret_doc, err);
}

static ErrCode add_vote(OpCtx *op, const Uuid *build, Str host, int64_t *ret_matched, Error *err) {
    DocBuilder b = doc_builder_in_arena(&op->arena);
    size_t u = build_open_doc(&b, "u");
    size_t add = build_open_doc(&b, "$addToSet");
    build_str(&b, "commitReadyMembers", host);
    build_close(&b, add);
    build_close(&b, u);
    TRY(modify(op, build, doc_builder_end(&b), /* is_upsert= */ false, ret_matched, err));
    failpoint_hit(FP_INDEX_BUILD_VOTE_PERSISTED);
    return ERR_OK;
}

static ErrCode store_build(OpCtx *op, const IndexBuild *build, const Doc *specs, uint32_t count,
                           Elem quorum, Error *err) {
    DocBuilder b = doc_builder_in_arena(&op->arena);
    size_t u = build_open_doc(&b, "u");
    build_uuid(&b, "_id", &build->active.uuid);
    build_uuid(&b, "collectionUUID", &build->active.coll_uuid);
    if (elem_is_present(quorum))
        build_elem_as(&b, STR("commitQuorum"), quorum);
    else
        build_cstr(&b, "commitQuorum", REPL_COMMIT_QUORUM_DEFAULT);
    size_t names = build_open_array(&b, "indexNames");
    for (uint32_t i = 0; i < count; i++) {
        char name[INDEX_NAME_SIZE];
        build_elem_as(&b, index_name(i, name), doc_get_lit(specs[i], "name"));
    }
    build_close(&b, names);
    build_close(&b, u);
    int64_t matched;
    return modify(op, &build->active.uuid, doc_builder_end(&b), /* is_upsert= */ true, &matched,
                  err);
}

/* ---- sending ---- */

/* Each build has one vote; to abort replaces to commit. */
static void queue_vote(IndexVotes *votes, const Uuid *build, const Error *cause) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&votes->mu);
    Vote *vote = NULL;
    LIST_FOR_EACH (&votes->votes, node)
        if (uuid_equal(&CONTAINER_OF(node, Vote, node)->build, build))
            vote = CONTAINER_OF(node, Vote, node);
    if (vote == NULL) {
        vote = NEW(Vote);
        vote->build = *build;
        list_push_back(&votes->votes, &vote->node);
    } else if (vote->is_abort == (cause != NULL)) {
        return;
    }
    vote->is_abort = cause != NULL;
    snprintf(vote->reason, sizeof(vote->reason), "%s", cause != NULL ? error_message(cause) : "");
    vote->due_us = 0;
    round_thread_wake(&votes->thread.rounds);
}

static void forget_vote(IndexVotes *votes, const Uuid *build) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&votes->mu);
    LIST_FOR_EACH (&votes->votes, node) {
        Vote *vote = CONTAINER_OF(node, Vote, node);
        if (!uuid_equal(&vote->build, build))
            continue;
        list_remove(node);
        xfree(vote);
    }
}

static void look_for_self(void *arg, const ReplCore *core) {
    char *host = arg;
    int32_t self = repl_core_self_index(core);
    if (self >= 0)
        snprintf(host, REPL_HOST_SIZE, "%s", repl_core_config(core)->members[self].host);
}

static ErrCode send_vote(IndexVotes *votes, OpCtx *op, const Vote *vote, Error *err) {
    char self[REPL_HOST_SIZE] = "";
    repl_inspect(votes->repl, look_for_self, self);
    DocBuilder b = doc_builder_in_arena(&op->arena);
    build_uuid(&b, vote->is_abort ? "voteAbortIndexBuild" : "voteCommitIndexBuild", &vote->build);
    build_cstr(&b, "hostAndPort", self);
    if (vote->is_abort)
        build_cstr(&b, "reason", vote->reason);
    size_t concern = build_open_doc(&b, "writeConcern");
    build_cstr(&b, "w", "majority");
    build_close(&b, concern);
    build_cstr(&b, "$db", "admin");
    CLEANUP(client_reply_done) ClientReply reply = {0};
    ErrCode rc = repl_ask_primary(votes->repl, op, doc_builder_end(&b),
                                  clock_mono_us() + SEND_TIMEOUT_US, &reply, err);
    if (rc == ERR_OK)
        failpoint_hit(FP_INDEX_BUILD_VOTE_SENT);
    return rc;
}

/* The next vote that is due, copied; else *ret_due_us says when one will be. */
static bool take_due(IndexVotes *votes, Vote *ret_vote, int64_t *ret_due_us) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&votes->mu);
    *ret_due_us = INT64_MAX;
    int64_t now_us = clock_mono_us();
    LIST_FOR_EACH (&votes->votes, node) {
        Vote *vote = CONTAINER_OF(node, Vote, node);
        if (vote->due_us <= now_us) {
            vote->due_us = now_us + RETRY_US;
            *ret_vote = *vote;
            return true;
        }
        if (vote->due_us < *ret_due_us)
            *ret_due_us = vote->due_us;
    }
    return false;
}

static void note_arrival(IndexVotes *votes, const Vote *sent) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&votes->mu);
    LIST_FOR_EACH (&votes->votes, node) {
        Vote *vote = CONTAINER_OF(node, Vote, node);
        if (uuid_equal(&vote->build, &sent->build) && vote->is_abort == sent->is_abort)
            vote->due_us = clock_mono_us() + REPEAT_US;
    }
}

static void send_run(void *arg) {
    IndexVotes *votes = arg;
    log_set_thread_name("IndexVotes");
    OpCtx *op = votes->thread.op;
    while (!round_thread_is_stopping(&votes->thread.rounds)) {
        Vote vote;
        int64_t due_us;
        if (!take_due(votes, &vote, &due_us)) {
            (void)round_thread_wait(&votes->thread.rounds, due_us);
            continue;
        }
        CLEANUP(error_reset) Error err = {0};
        if (send_vote(votes, op, &vote, &err) == ERR_OK)
            note_arrival(votes, &vote);
        else
            LOG_DEBUG(LOG_REPL, 7300240, "A vote on an index build did not arrive",
                      LOG_STR("error", error_message(&err)));
        arena_reset(&op->arena);
    }
}

/* ---- what builds ask ---- */

static ErrCode begin(void *arg, OpCtx *op, IndexBuild *build, const Doc *specs, uint32_t count,
                     Elem quorum, Error *err) {
    /* One that was given has been checked; of the default, which asks all voters, it is not certain
     * either that all of them build indexes. */
    if (!elem_is_present(quorum))
        TRY(repl_check_commit_quorum(arg, quorum, err));
    return store_build(op, build, specs, count, quorum, err);
}

static ErrCode hurry(void *arg, OpCtx *op, Error *err) {
    Repl *repl = arg;
    TRY(storage_wait_durable(repl->engine, op, err));
    repl_feed_positions(repl);
    return ERR_OK;
}

static ErrCode ready(void *arg, OpCtx *op, IndexBuild *build, bool *ret_is_commit, Error *err) {
    Repl *repl = arg;
    if (!repl_is_writable(repl)) {
        queue_vote(repl->index_votes, &build->active.uuid, NULL);
        return ERR_OK;
    }
    ArenaMark mark = arena_mark(&op->arena);
    CLEANUP(op_mode_restore) OpModeScope scope = op_mode_scope(op);
    op->mode.is_unreplicated = false;
    ErrCode rc = count_votes(repl, op, build, ret_is_commit, err);
    arena_rewind(&op->arena, mark);
    if (rc == ERR_OK && *ret_is_commit)
        failpoint_hit(FP_INDEX_BUILD_QUORUM_REACHED);
    return rc;
}

static bool has_voted(Doc hosts, const char *self) {
    DocIter iter = doc_iter(hosts);
    for (Elem host; doc_iter_next(&iter, &host);)
        if (elem_type(host) == BT_STRING && str_is(elem_str(host), self))
            return true;
    return false;
}

static Doc hosts_of(Doc entry) {
    Elem hosts = doc_get_lit(entry, "commitReadyMembers");
    return elem_type(hosts) == BT_ARRAY ? elem_doc(hosts) : DOC_EMPTY;
}

/* A build without a document (somebody removed it) gets one with the usual quorum. */
static ErrCode restore_entry(OpCtx *op, const IndexBuild *build, Doc *ret_entry, Error *err) {
    Doc specs[COLLECTION_INDEXES_MAX];
    for (uint32_t i = 0; i < build->count; i++)
        specs[i] = build->items[i].index->spec;
    TRY(store_build(op, build, specs, build->count, ELEM_MISSING, err));
    return load(op, &build->active.uuid, ret_entry, err);
}

static ErrCode count_votes(Repl *repl, OpCtx *op, IndexBuild *build, bool *ret_is_commit,
                           Error *err) {
    const Uuid *uuid = &build->active.uuid;
    Doc entry;
    TRY(load(op, uuid, &entry, err));
    if (!doc_is_present(entry))
        TRY(restore_entry(op, build, &entry, err));
    QuorumLook look = {.err = err};
    TRY(parse_quorum(doc_get_lit(entry, "commitQuorum"), &look.concern, err));
    bool is_voting = look.concern.kind != REPL_W_NUMBER || look.concern.number > 0;
    char self[REPL_HOST_SIZE] = "";
    repl_inspect(repl, look_for_self, self);
    if (is_voting && !has_voted(hosts_of(entry), self)) {
        int64_t matched;
        TRY(add_vote(op, uuid, str_from(self), &matched, err));
        TRY(load(op, uuid, &entry, err));
    }
    look.hosts = hosts_of(entry);
    repl_inspect(repl, inspect_votes, &look);
    *ret_is_commit = look.is_met;
    return ERR_OK;
}

static void failed(void *arg, OpCtx *op, IndexBuild *build, const Error *cause) {
    (void)op;
    queue_vote(((Repl *)arg)->index_votes, &build->active.uuid, cause);
}

static void remove_entry(OpCtx *op, const Uuid *build) {
    CLEANUP(error_reset) Error err = {0};
    CLEANUP(op_mode_restore) OpModeScope scope = op_mode_scope(op);
    op->mode.is_uninterruptible = true;
    int64_t matched;
    if (modify(op, build, DOC_NONE, /* is_upsert= */ false, &matched, &err) != ERR_OK)
        LOG_WARN(LOG_REPL, 7300241,
                 "Could not remove the votes on an index build; the next primary will",
                 LOG_STR("error", error_message(&err)));
}

static void ended(void *arg, OpCtx *op, const Uuid *build) {
    Repl *repl = arg;
    forget_vote(repl->index_votes, build);
    /* From the first write of a term on, clients may have to wait a little longer. Those that end
     * before it are found by index_votes_step_up. */
    if (atomic_load(&repl->accepts_writes))
        remove_entry(op, build);
}

/* ---- what members and operators ask ---- */

ErrCode repl_vote_commit_build(Repl *repl, OpCtx *op, const Uuid *build, Str host, Error *err) {
    int64_t matched;
    TRY(add_vote(op, build, host, &matched, err));
    if (matched == 0)
        return error_set(err, ERR_NO_MATCHING_DOCUMENT, "no such index build is under way");
    index_builds_recheck(repl->service->index_builds);
    return ERR_OK;
}

ErrCode repl_vote_abort_build(Repl *repl, const Uuid *build, Str host, Str reason, Error *err) {
    if (!repl_is_writable(repl))
        return error_set(err, ERR_NOT_WRITABLE_PRIMARY, "not primary");
    LOG_INFO(LOG_REPL, 7329402, "A member votes to abort an index build",
             LOG_STR("host", host.data), LOG_STR("reason", reason.data));
    char text[INDEX_BUILD_REASON_SIZE];
    snprintf(text, sizeof(text), "'voteAbortIndexBuild' received from '%.*s': %.*s", (int)host.size,
             host.data, (int)reason.size, reason.data);
    index_builds_abort(repl->service->index_builds, build, text);
    return ERR_OK;
}

static bool is_without_votes(Elem quorum) {
    return elem_is_number(quorum) && elem_as_f64(quorum) == 0;
}

ErrCode repl_set_commit_quorum(Repl *repl, OpCtx *op, const Uuid *build, Elem quorum, Error *err) {
    TRY(repl_check_commit_quorum(repl, quorum, err));
    Doc entry;
    TRY(load(op, build, &entry, err));
    /* Nobody has asked for votes, or those that were given would be for nothing. */
    if (is_without_votes(quorum) ||
        (doc_is_present(entry) && is_without_votes(doc_get_lit(entry, "commitQuorum"))))
        return error_set(err, ERR_BAD_VALUE,
                         "Commit quorum value can be changed only for index builds with commit "
                         "quorum enabled");
    DocBuilder b = doc_builder_in_arena(&op->arena);
    size_t u = build_open_doc(&b, "u");
    size_t set = build_open_doc(&b, "$set");
    build_elem_as(&b, STR("commitQuorum"), quorum);
    build_close(&b, set);
    build_close(&b, u);
    int64_t matched;
    TRY(modify(op, build, doc_builder_end(&b), /* is_upsert= */ false, &matched, err));
    if (matched == 0)
        return error_set(err, ERR_INDEX_NOT_FOUND, "Index build not found: it is over");
    index_builds_recheck(repl->service->index_builds);
    return ERR_OK;
}

/* ---- a new primary ---- */

/* Builds that are over, whose primary had no time to remove them. */
typedef struct OverBuilds {
    IndexBuilds *builds;
    Uuid *rows; /* heap */
    uint32_t count;
    uint32_t capacity;
} OverBuilds;

static void over_builds_done(OverBuilds *over) {
    xfree(over->rows);
}

static ErrCode add_if_over(void *arg, Doc entry, bool *is_over, Error *err) {
    (void)is_over, (void)err;
    OverBuilds *over = arg;
    Uuid uuid;
    if (!uuid_from_elem(doc_get_lit(entry, "_id"), &uuid) ||
        index_builds_is_active(over->builds, &uuid))
        return ERR_OK;
    ARRAY_RESERVE(over->rows, over->count, over->capacity);
    over->rows[over->count++] = uuid;
    return ERR_OK;
}

void index_votes_step_up(Repl *repl, OpCtx *op) {
    CLEANUP(error_reset) Error err = {0};
    CLEANUP(over_builds_done) OverBuilds over = {.builds = repl->service->index_builds};
    if (access_each(op, &BUILDS_NS, /* is_forward= */ true, add_if_over, &over, &err) != ERR_OK)
        LOG_WARN(LOG_REPL, 7300274, "Documents of index builds that are over stay for now",
                 LOG_STR("error", error_message(&err)));
    for (uint32_t i = 0; i < over.count; i++)
        remove_entry(op, &over.rows[i]);
    index_builds_recheck(repl->service->index_builds);
}

/* ---- life ---- */

void index_votes_open(Repl *repl) {
    IndexVotes *votes = NEW(IndexVotes);
    votes->repl = repl;
    mutex_init(&votes->mu, LOCK_RANK_INDEX_VOTES);
    repl_thread_init(&votes->thread);
    list_init(&votes->votes);
    repl->index_votes = votes;
    const IndexBuildMembers members = {repl, begin, hurry, ready, failed, ended};
    index_builds_set_members(repl->service->index_builds, &members);
}

ErrCode index_votes_start(Repl *repl, Error *err) {
    return repl_thread_start(&repl->index_votes->thread, repl, "IndexVotes", send_run,
                             repl->index_votes, err);
}

void index_votes_stop(Repl *repl) {
    repl_thread_stop(&repl->index_votes->thread);
}

static void forget_all(IndexVotes *votes) {
    LIST_FOR_EACH (&votes->votes, node) {
        list_remove(node);
        xfree(CONTAINER_OF(node, Vote, node));
    }
}

void index_votes_forget(Repl *repl) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&repl->index_votes->mu);
    forget_all(repl->index_votes);
}

void index_votes_free(IndexVotes *votes) {
    if (votes == NULL)
        return;
    forget_all(votes);
    repl_thread_done(&votes->thread);
    mutex_done(&votes->mu);
    xfree(votes);
}
