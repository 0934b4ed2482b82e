/*
 * messenger.c - heartbeats, vote requests and hand-offs on their way to other members.
 *
 * Each host has a line: a thread with a connection and a queue. A host that does not answer holds
 * up only its own line, and its messages would be lost anyway.
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "repl/repl_internal.h"
#include "transport/peer.h"

enum {
    LINES_MAX = 256, /* hosts ever spoken to in one run */
    QUEUE_MAX = 16,  /* of one line; more than that is not worth sending any more */
    HAND_OFF_MS = 1000,
};

typedef struct Line {
    Messenger *messenger;
    char host[REPL_HOST_SIZE];
    Thread thread;
    Cond cond;
    /* Guarded by the messenger's mu. */
    ReplAction *queue[QUEUE_MAX];
    uint32_t count;
    Peer *peer; /* used by the line's thread; others may interrupt it */
} Line;

struct Messenger {
    Repl *repl;
    Mutex mu;
    /* Guarded by mu. */
    Line *lines[LINES_MAX];
    uint32_t line_count;
    bool is_stopping;
};

static void line_run(void *line);

Messenger *messenger_new(Repl *repl) {
    Messenger *messenger = NEW(Messenger);
    messenger->repl = repl;
    mutex_init(&messenger->mu, LOCK_RANK_MESSENGER);
    return messenger;
}

void messenger_stop(Messenger *messenger) {
    mutex_lock(&messenger->mu);
    messenger->is_stopping = true;
    uint32_t count = messenger->line_count;
    for (uint32_t i = 0; i < count; i++) {
        if (messenger->lines[i]->peer != NULL)
            peer_interrupt(messenger->lines[i]->peer);
        cond_signal(&messenger->lines[i]->cond);
    }
    mutex_unlock(&messenger->mu);
    for (uint32_t i = 0; i < count; i++)
        thread_join(&messenger->lines[i]->thread);
}

void messenger_free(Messenger *messenger) {
    if (messenger == NULL)
        return;
    for (uint32_t i = 0; i < messenger->line_count; i++) {
        Line *line = messenger->lines[i];
        for (uint32_t q = 0; q < line->count; q++)
            xfree(line->queue[q]);
        cond_done(&line->cond);
        xfree(line);
    }
    mutex_done(&messenger->mu);
    xfree(messenger);
}

/* With mu held; NULL: no more lines, or no thread for one. */
static Line *line_for(Messenger *messenger, const char *host) {
    for (uint32_t i = 0; i < messenger->line_count; i++)
        if (strcmp(messenger->lines[i]->host, host) == 0)
            return messenger->lines[i];
    if (messenger->line_count == LINES_MAX)
        return NULL;
    Line *line = NEW(Line);
    line->messenger = messenger;
    snprintf(line->host, sizeof(line->host), "%s", host);
    cond_init(&line->cond);
    CLEANUP(error_reset) Error err = {0};
    if (thread_start(&line->thread, "ReplLine", line_run, line, &err) != ERR_OK) {
        LOG_ERROR(LOG_REPL, 7300210, "No thread to talk to a member", LOG_STR("host", host));
        cond_done(&line->cond);
        xfree(line);
        return NULL;
    }
    messenger->lines[messenger->line_count++] = line;
    return line;
}

void messenger_send(Messenger *messenger, const ReplAction *action) {
    mutex_lock(&messenger->mu);
    Line *line = messenger->is_stopping ? NULL : line_for(messenger, action->host);
    if (line != NULL && line->count < QUEUE_MAX) {
        ReplAction *copy = xmemdup(action, sizeof(*action));
        copy->config = NULL;
        line->queue[line->count++] = copy;
        cond_signal(&line->cond);
    }
    mutex_unlock(&messenger->mu);
}

/* ---- a line's thread ---- */

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

/* A connection, kept from message to message. */
static ErrCode line_connect(Line *line, int64_t deadline_us, Error *err) {
    Messenger *messenger = line->messenger;
    if (line->peer != NULL && !peer_is_broken(line->peer))
        return ERR_OK;
    mutex_lock(&messenger->mu);
    Peer *old = line->peer;
    line->peer = NULL;
    mutex_unlock(&messenger->mu);
    peer_free(old);
    Peer *peer;
    TRY(peer_connect(line->host, deadline_us, &peer, err));
    mutex_lock(&messenger->mu);
    line->peer = peer;
    if (messenger->is_stopping)
        peer_interrupt(peer);
    mutex_unlock(&messenger->mu);
    return ERR_OK;
}

static void build_request(DocBuilder *b, const ReplAction *action) {
    if (action->kind == REPL_ACTION_HEARTBEAT)
        build_heartbeat(b, &action->heartbeat);
    else if (action->kind == REPL_ACTION_REQUEST_VOTE)
        build_vote_request(b, &action->vote_request);
    else {
        build_i32(b, "replSetStepUp", 1);
        build_bool(b, "skipDryRun", true);
    }
    build_cstr(b, "$db", "admin");
}

static ErrCode exchange(Line *line, const ReplAction *action, Doc *ret_reply, Error *err) {
    int64_t timeout_ms = action->kind == REPL_ACTION_HAND_OFF ? HAND_OFF_MS : action->timeout_ms;
    int64_t deadline_us = clock_mono_us() + timeout_ms * 1000;
    TRY(line_connect(line, deadline_us, err));
    Buffer buf;
    buffer_init(&buf, BUFFER_UNBOUNDED);
    DocBuilder b;
    doc_builder_init(&b, &buf);
    build_request(&b, action);
    ErrCode rc = peer_run(line->peer, doc_builder_end(&b), deadline_us, ret_reply, err);
    buffer_done(&buf);
    return rc;
}

static ErrCode read_answer(const ReplAction *action, Doc reply, Answer *answer, Error *err) {
    if (action->kind == REPL_ACTION_REQUEST_VOTE)
        return parse_vote_reply(reply, &answer->vote, err);
    TRY(parse_heartbeat_reply(reply, &answer->heartbeat, err));
    if (!doc_is_present(answer->heartbeat.config))
        return ERR_OK;
    ReplConfig *config;
    TRY(repl_config_parse(answer->heartbeat.config, REPL_CONFIG_PARSE_DEFAULT, &config, err));
    answer->config = config;
    return ERR_OK;
}

static void deliver(Line *line, const ReplAction *action) {
    Repl *repl = line->messenger->repl;
    CLEANUP(error_reset) Error err = {0};
    Answer answer = {.action = action};
    int64_t start_us = clock_mono_us();
    Doc reply;
    answer.rc = exchange(line, action, &reply, &err);
    answer.rtt_ms = (clock_mono_us() - start_us) / 1000;
    if (action->kind == REPL_ACTION_HAND_OFF)
        return;
    if (answer.rc == ERR_OK)
        answer.rc = read_answer(action, reply, &answer, &err);
    answer.message = answer.rc != ERR_OK ? error_message(&err) : "";
    repl_event(repl, action->kind == REPL_ACTION_HEARTBEAT ? heartbeat_answered : vote_answered,
               &answer);
    repl_config_unref((ReplConfig *)answer.config);
}

static void line_run(void *arg) {
    Line *line = arg;
    Messenger *messenger = line->messenger;
    log_set_thread_name("ReplLine");
    mutex_lock(&messenger->mu);
    while (!messenger->is_stopping) {
        if (line->count == 0) {
            cond_wait(&line->cond, &messenger->mu);
            continue;
        }
        ReplAction *action = line->queue[0];
        line->count--;
        memmove(&line->queue[0], &line->queue[1], line->count * sizeof(line->queue[0]));
        mutex_unlock(&messenger->mu);
        deliver(line, action);
        xfree(action);
        mutex_lock(&messenger->mu);
    }
    Peer *peer = line->peer;
    line->peer = NULL;
    mutex_unlock(&messenger->mu);
    peer_free(peer);
}
