/*
 * messages_fuzz.c - messages of members: what parses gives the same BSON again, and a core survives
 * it.
 */
#include "bson/validate.h"
#include "repl/election/core.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CHECK_STABLE(type, parse, build, doc)                                                      \
    do {                                                                                           \
        type first_, second_;                                                                      \
        Buffer a_, b_;                                                                             \
        Error err_ = {0};                                                                          \
        if (parse(doc, &first_, &err_) == ERR_OK) {                                                \
            buffer_init(&a_, BUFFER_UNBOUNDED);                                                    \
            buffer_init(&b_, BUFFER_UNBOUNDED);                                                    \
            DocBuilder builder_;                                                                   \
            doc_builder_init(&builder_, &a_);                                                      \
            build(&builder_, &first_);                                                             \
            Doc built_ = doc_builder_end(&builder_);                                               \
            invariant(parse(built_, &second_, &err_) == ERR_OK);                                   \
            doc_builder_init(&builder_, &b_);                                                      \
            build(&builder_, &second_);                                                            \
            invariant(doc_equal_bytes(built_, doc_builder_end(&builder_)));                        \
            buffer_done(&a_);                                                                      \
            buffer_done(&b_);                                                                      \
        }                                                                                          \
        error_reset(&err_);                                                                        \
    } while (0)

static void feed_core(Doc doc) {
    Error err = {0};
    ReplConfig *config = NULL;
    invariant(repl_config_for_one("rs", "a:1", &config, &err) == ERR_OK);
    ReplStart start = {.set_name = "rs",
                       .self_host = "a:1",
                       .config = config,
                       .last_vote = REPL_LAST_VOTE_NONE,
                       .last_applied = {{UINT64_C(1) << 32, 0}, 1000},
                       .seed = 1};
    ReplOptions options = repl_options_default();
    ReplNow now = {1000, 1000};
    ReplActions actions = {0};
    ReplCore *core = repl_core_new(&start, &options, now);
    ReplHeartbeat heartbeat;
    ReplHeartbeatReply heartbeat_reply;
    ReplVoteRequest vote_request;
    ReplVoteReply vote_reply;
    ReplUpdatePosition update;
    ReplLastVote vote;
    bool is_set;
    if (parse_heartbeat(doc, &heartbeat, &err) == ERR_OK)
        (void)!repl_core_on_heartbeat(core, now, &heartbeat, false, &heartbeat_reply, &actions,
                                      &err);
    if (parse_heartbeat_reply(doc, &heartbeat_reply, &err) == ERR_OK)
        repl_core_on_heartbeat_reply(core, now, 1, &heartbeat_reply, NULL, 1, &actions);
    if (parse_vote_request(doc, &vote_request, &err) == ERR_OK)
        (void)!repl_core_on_vote_request(core, now, &vote_request, &vote_reply, &is_set, &vote,
                                         &actions, &err);
    if (parse_update_position(doc, &update, &err) == ERR_OK)
        (void)!repl_core_on_update_position(core, now, &update, &is_set, &actions, &err);
    repl_core_tick(core, now, &actions);
    error_reset(&err);
    repl_core_free(core);
    repl_actions_done(&actions);
    repl_config_unref(config);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    Error err = {0};
    if (doc_validate(data, size, BSON_DEPTH_MAX, VALIDATE_BASIC, &err) != ERR_OK) {
        error_reset(&err);
        return 0;
    }
    Doc doc = {data};
    CHECK_STABLE(ReplHeartbeat, parse_heartbeat, build_heartbeat, doc);
    CHECK_STABLE(ReplHeartbeatReply, parse_heartbeat_reply, build_heartbeat_reply, doc);
    CHECK_STABLE(ReplVoteRequest, parse_vote_request, build_vote_request, doc);
    CHECK_STABLE(ReplVoteReply, parse_vote_reply, build_vote_reply, doc);
    CHECK_STABLE(ReplLastVote, parse_last_vote, build_last_vote, doc);
    CHECK_STABLE(ReplUpdatePosition, parse_update_position, build_update_position, doc);
    feed_core(doc);
    return 0;
}
