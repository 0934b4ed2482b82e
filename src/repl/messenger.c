/*
 * messenger.c - sends heartbeats, vote requests and hand-offs to other members.
 *
 * One thread calls all of them in parallel: a host that does not respond delays no other one.
 */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "repl/repl_internal.h"
#include "transport/client.h"

enum {
    /* Queued and in flight; beyond this messages are stale anyway and are dropped. */
    LETTERS_MAX = 1024,
    HAND_OFF_MS = 1000,
    RETRY_US = 100 * 1000, /* when there are no descriptors left to wait with */
};

/* A message, until it is answered or has failed. */
typedef struct Letter {
    ListNode node;
    ReplAction action;
    int64_t sent_us;
} Letter;

struct Messenger {
    Repl *repl;
    Thread thread; /* started with the first message */
    List sent;     /* owned by the thread */
    Mutex mu;
    /* Guarded by mu. */
    List queue; /* not sent yet */
    uint32_t count;
    OpCtx *op; /* of the thread; NULL: not started, or ended */
    bool is_stopping;
};

static void messenger_run(void *messenger);

Messenger *messenger_new(Repl *repl) {
    Messenger *messenger = NEW(Messenger);
    messenger->repl = repl;
    list_init(&messenger->queue);
    list_init(&messenger->sent);
    mutex_init(&messenger->mu, LOCK_RANK_MESSENGER);
    return messenger;
}

void messenger_stop(Messenger *messenger) {
    mutex_lock(&messenger->mu);
    messenger->is_stopping = true;
    if (messenger->op != NULL)
        op_kill(messenger->op, ERR_INTERRUPTED_AT_SHUTDOWN);
    bool is_started = messenger->thread.is_started;
    mutex_unlock(&messenger->mu);
    if (is_started)
        thread_join(&messenger->thread);
}

void messenger_free(Messenger *messenger) {
    if (messenger == NULL)
        return;
    LIST_FOR_EACH (&messenger->queue, node)
        xfree(CONTAINER_OF(node, Letter, node));
    mutex_done(&messenger->mu);
    xfree(messenger);
}

/* With mu held. */
static bool ensure_thread(Messenger *messenger) {
    CLEANUP(error_reset) Error err = {0};
    if (messenger->thread.is_started ||
        thread_start(&messenger->thread, "ReplMessenger", messenger_run, messenger, &err) == ERR_OK)
        return true;
    LOG_ERROR(LOG_REPL, 7300210, "No thread to talk to other members",
              LOG_STR("error", error_message(&err)));
    return false;
}

void messenger_send(Messenger *messenger, const ReplAction *action) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&messenger->mu);
    if (messenger->is_stopping || messenger->count >= LETTERS_MAX || !ensure_thread(messenger))
        return;
    Letter *letter = NEW(Letter);
    letter->action = *action;
    letter->action.config = NULL;
    list_push_back(&messenger->queue, &letter->node);
    messenger->count++;
    if (messenger->op != NULL)
        op_signal(messenger->op);
}

/* ---- the thread ---- */

typedef struct Answer {
    const ReplAction *action;
    ErrCode rc;
    const char *message;
    ReplHeartbeatReply heartbeat;
    const ReplConfig *config;
    ReplVoteReply vote;
    int64_t rtt_ms;
} Answer;

static void heartbeat_answered(void *arg, ReplCore *core, ReplNow now, ReplActions *actions) {
    Answer *answer = arg;
    uint64_t token = answer->action->token;
    if (answer->rc == ERR_OK)
        repl_core_on_heartbeat_reply(core, now, token, &answer->heartbeat, answer->config,
                                     answer->rtt_ms, actions);
    else
        repl_core_on_heartbeat_failure(core, now, token, answer->rc, answer->message, actions);
}

static void vote_answered(void *arg, ReplCore *core, ReplNow now, ReplActions *actions) {
    Answer *answer = arg;
    const ReplAction *action = answer->action;
    if (answer->rc == ERR_OK)
        repl_core_on_vote_reply(core, now, action->token, action->member_index, &answer->vote,
                                actions);
    else
        repl_core_on_vote_failure(core, now, action->token, action->member_index, actions);
}

static void build_request(Repl *repl, DocBuilder *b, const ReplAction *action) {
    if (action->kind == REPL_ACTION_HEARTBEAT)
        build_heartbeat(b, &action->heartbeat);
    else if (action->kind == REPL_ACTION_REQUEST_VOTE)
        build_vote_request(b, &action->vote_request);
    else {
        build_i32(b, "replSetStepUp", 1);
        build_bool(b, "skipDryRun", true);
    }
    build_cstr(b, "$db", "admin");
    /* A member that gets no entries still learns which times were given out: a client may ask it to
     * read as of one. */
    uint64_t now_ts = oplog_cluster_time(repl->oplog);
    if (now_ts != 0)
        repl_build_cluster_time(repl, b, now_ts);
}

static ErrCode read_answer(const Repl *repl, const ReplAction *action, Doc reply, Answer *answer,
                           Error *err) {
    if (action->kind == REPL_ACTION_REQUEST_VOTE)
        return parse_vote_reply(reply, &answer->vote, err);
    TRY(parse_heartbeat_reply(reply, &answer->heartbeat, err));
    if (!doc_is_present(answer->heartbeat.config))
        return ERR_OK;
    ReplConfig *config;
    TRY(repl_config_parse(answer->heartbeat.config, repl->config_flags, &config, err));
    answer->config = config;
    return ERR_OK;
}

static void send_letter(Messenger *messenger, ClientCalls *calls, OpCtx *op, Letter *letter) {
    list_push_back(&messenger->sent, &letter->node);
    const ReplAction *action = &letter->action;
    int64_t timeout_ms = action->kind == REPL_ACTION_HAND_OFF ? HAND_OFF_MS : action->timeout_ms;
    DocBuilder b = doc_builder_in_arena(&op->arena);
    build_request(messenger->repl, &b, action);
    ClientCommand command = {.body = doc_builder_end(&b)};
    letter->sent_us = clock_mono_us();
    client_calls_add(calls, action->host, &command, letter->sent_us + timeout_ms * 1000, letter);
    arena_reset(&op->arena);
}

typedef struct SetCheck {
    const ReplHeartbeatReply *reply;
    ErrCode rc;
    Error *err;
} SetCheck;

static void check_set(void *arg, const ReplCore *core) {
    SetCheck *check = arg;
    check->rc = repl_core_check_set(core, check->reply, check->err);
}

static void warn_of_other_set(Repl *repl, const char *host, const ReplHeartbeatReply *reply) {
    CLEANUP(error_reset) Error err = {0};
    SetCheck check = {.reply = reply, .err = &err};
    repl_inspect(repl, check_set, &check);
    if (check.rc != ERR_OK)
        LOG_WARN(LOG_REPL, 7300242, "A heartbeat was answered by a member of another set",
                 LOG_STR("target", host), LOG_STR("error", error_message(&err)));
}

static void deliver(Repl *repl, const ClientCallEnd *end) {
    const Letter *letter = end->user;
    const ReplAction *action = &letter->action;
    if (action->kind == REPL_ACTION_HAND_OFF)
        return;
    CLEANUP(error_reset) Error err = {0};
    Answer answer = {.action = action, .rc = end->rc};
    answer.rtt_ms = (clock_mono_us() - letter->sent_us) / 1000;
    if (answer.rc == ERR_OK)
        answer.rc = read_answer(repl, action, end->reply, &answer, &err);
    answer.message = end->rc != ERR_OK     ? error_message(end->err)
                     : answer.rc != ERR_OK ? error_message(&err)
                                           : "";
    if (action->kind == REPL_ACTION_HEARTBEAT)
        LOG_DEBUG(LOG_REPL_HEARTBEATS, 4615620, "Received response to heartbeat",
                  LOG_STR("target", action->host),
                  LOG_STR("error", answer.rc == ERR_OK ? "" : answer.message));
    if (action->kind == REPL_ACTION_HEARTBEAT && answer.rc == ERR_OK)
        warn_of_other_set(repl, action->host, &answer.heartbeat);
    if (action->kind == REPL_ACTION_REQUEST_VOTE && answer.rc == ERR_OK)
        LOG_INFO(LOG_REPL, 51799, "A member answered a request for its vote",
                 LOG_I64("term", action->vote_request.term),
                 LOG_BOOL("dryRun", action->vote_request.is_dry_run),
                 LOG_STR("vote", answer.vote.is_granted ? "yes" : "no"),
                 LOG_STR("from", action->host), LOG_STR("reason", answer.vote.reason));
    if (action->kind == REPL_ACTION_REQUEST_VOTE && !action->vote_request.is_dry_run) {
        failpoint_hang(FP_HANG_BEFORE_VOTE_ANSWER);
        failpoint_hit(FP_ELECTION_WON); /* by this vote, perhaps */
    }
    repl_event(repl, action->kind == REPL_ACTION_HEARTBEAT ? heartbeat_answered : vote_answered,
               &answer);
    repl_config_unref((ReplConfig *)answer.config);
}

static Letter *take_letter(Messenger *messenger) {
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&messenger->mu);
    ListNode *first = list_first(&messenger->queue);
    if (first == NULL)
        return NULL;
    list_remove(first);
    return CONTAINER_OF(first, Letter, node);
}

static void end_letter(Messenger *messenger, Letter *letter) {
    list_remove(&letter->node);
    xfree(letter);
    CLEANUP(mutex_guard_done) MutexGuard guard = mutex_guard(&messenger->mu);
    messenger->count--;
}

/* Waits for an answer, or for a message to send. */
static ErrCode wait_for_any(Messenger *messenger, ClientCalls *calls, OpCtx *op, Error *err) {
    ClientCallEnd end;
    bool is_there = false;
    if (client_calls_count(calls) == 0)
        return op_wait(op, INT64_MAX, &is_there, err);
    TRY(client_calls_next(calls, INT64_MAX, &end, &is_there, err));
    if (is_there) {
        deliver(messenger->repl, &end);
        end_letter(messenger, end.user);
    }
    return ERR_OK;
}

static void messenger_run(void *arg) {
    Messenger *messenger = arg;
    log_set_thread_name("ReplMessenger");
    OpCtx *op = repl_op_new(messenger->repl, "ReplMessenger");
    ClientCalls *calls = client_calls_new(messenger->repl->service->clients, op);
    CLEANUP(error_reset) Error err = {0};
    mutex_lock(&messenger->mu);
    messenger->op = op;
    bool is_stopping = messenger->is_stopping;
    mutex_unlock(&messenger->mu);
    while (!is_stopping) {
        for (Letter *letter; (letter = take_letter(messenger)) != NULL;)
            send_letter(messenger, calls, op, letter);
        if (LIKELY(wait_for_any(messenger, calls, op, &err) == ERR_OK))
            continue;
        is_stopping = err.code == ERR_INTERRUPTED_AT_SHUTDOWN;
        if (!is_stopping)
            LOG_WARN(LOG_REPL, 7300211, "Could not wait for other members",
                     LOG_STR("error", error_message(&err)));
        error_reset(&err);
        if (!is_stopping && op_sleep_us(op, RETRY_US, &err) != ERR_OK)
            break;
    }
    mutex_lock(&messenger->mu);
    messenger->op = NULL;
    mutex_unlock(&messenger->mu);
    client_calls_free(calls);
    LIST_FOR_EACH (&messenger->sent, node)
        end_letter(messenger, CONTAINER_OF(node, Letter, node));
    op_end(op);
    op_ctx_free(op);
}
