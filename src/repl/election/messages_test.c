#include "repl/election/messages.h"

#include "base/test.h"
#include "bson/json.h"

/* Each message goes to BSON and back, and then gives the same BSON again. */
#define ROUND_TRIP(type, build, parse, value)                                                      \
    do {                                                                                           \
        CLEANUP(buffer_done) Buffer buf_;                                                          \
        CLEANUP(buffer_done) Buffer again_;                                                        \
        buffer_init(&buf_, BUFFER_UNBOUNDED);                                                      \
        buffer_init(&again_, BUFFER_UNBOUNDED);                                                    \
        DocBuilder b_;                                                                             \
        doc_builder_init(&b_, &buf_);                                                              \
        build(&b_, &(value));                                                                      \
        Doc doc_ = doc_builder_end(&b_);                                                           \
        CLEANUP(error_reset) Error err_ = {0};                                                     \
        type back_;                                                                                \
        memset(&back_, 0xAA, sizeof(back_));                                                       \
        EXPECT_OK(parse(doc_, &back_, &err_), err_);                                               \
        doc_builder_init(&b_, &again_);                                                            \
        build(&b_, &back_);                                                                        \
        EXPECT(doc_equal_bytes(doc_, doc_builder_end(&b_)));                                       \
    } while (0)

TEST(repl_messages_come_back_unchanged) {
    static const ReplHeartbeat HEARTBEAT = {"rs", 3, 2, "a:1", 7, 5, 6, true};
    ROUND_TRIP(ReplHeartbeat, build_heartbeat, parse_heartbeat, HEARTBEAT);
    static const ReplHeartbeat FRESH = {"rs", REPL_CONFIG_VERSION_NONE, -1, "", -1, 0, -1, false};
    ROUND_TRIP(ReplHeartbeat, build_heartbeat, parse_heartbeat, FRESH);
    static ReplHeartbeatReply REPLY = {
        .set_name = "rs",
        .state = REPL_SECONDARY,
        .config_version = 4,
        .config_term = 3,
        .term = 9,
        .primary_id = 2,
        .is_electable = true,
        .applied = {{100, 9}, 1000},
        .durable = {{99, 9}, 999},
        .syncing_to = "b:2",
        .election_ts = 55,
        .commit_point = {98, 9},
        .commit_wall_ms = 998,
    };
    ROUND_TRIP(ReplHeartbeatReply, build_heartbeat_reply, parse_heartbeat_reply, REPLY);
    static const ReplVoteRequest REQUEST = {"rs", true, 4, 1, 2, 3, {77, 3}};
    ROUND_TRIP(ReplVoteRequest, build_vote_request, parse_vote_request, REQUEST);
    static const ReplVoteReply VOTE = {4, false, "no"};
    ROUND_TRIP(ReplVoteReply, build_vote_reply, parse_vote_reply, VOTE);
    static const ReplLastVote LAST_VOTE = {4, 2};
    ROUND_TRIP(ReplLastVote, build_last_vote, parse_last_vote, LAST_VOTE);
    static ReplUpdatePosition UPDATE = {
        .positions = {{1, 3, {{10, 2}, 5}, {{9, 2}, 4}}, {2, 3, {{0, -1}, 0}, {{0, -1}, 0}}},
        .count = 2,
        .has_metadata = true,
        .metadata = {.term = 2,
                     .commit_point = {8, 2},
                     .commit_wall_ms = 3,
                     .last_visible = {8, 2},
                     .config_version = 3,
                     .config_term = 1,
                     .replica_set_id = {{1}},
                     .primary_index = -1,
                     .source_index = 2,
                     .is_primary = false},
    };
    ROUND_TRIP(ReplUpdatePosition, build_update_position, parse_update_position, UPDATE);
}

TEST(repl_oplog_metadata_comes_back_unchanged) {
    static const ReplOplogMetadata METADATA = {{5, 1}, 6, {7, 1}, 3, 0, -1, "a:1"};
    CLEANUP(buffer_done) Buffer buf;
    buffer_init(&buf, BUFFER_UNBOUNDED);
    DocBuilder b;
    doc_builder_init(&b, &buf);
    build_oplog_metadata(&b, &METADATA);
    CLEANUP(error_reset) Error err = {0};
    ReplOplogMetadata back;
    bool found = false;
    EXPECT_OK(parse_oplog_metadata(doc_builder_end(&b), &found, &back, &err), err);
    EXPECT(found);
    EXPECT(optime_equal(back.commit_point, METADATA.commit_point));
    EXPECT(optime_equal(back.last_applied, METADATA.last_applied));
    EXPECT_EQ_I64(back.rollback_id, 3);
    EXPECT_EQ_I64(back.primary_index, 0);
    EXPECT_EQ_I64(back.source_index, -1);
    EXPECT_STR(back.source_host, "a:1");
    EXPECT_OK(parse_oplog_metadata(DOC_EMPTY, &found, &back, &err), err);
    EXPECT(!found);
}

typedef enum MessageKind {
    HEARTBEAT,
    HEARTBEAT_REPLY,
    VOTE_REQUEST,
    VOTE_REPLY,
    UPDATE_POSITION,
} MessageKind;

static ErrCode parse_kind(MessageKind kind, Doc doc, Error *err) {
    static union {
        ReplHeartbeat heartbeat;
        ReplHeartbeatReply reply;
        ReplVoteRequest request;
        ReplVoteReply vote;
        ReplUpdatePosition update;
    } out;
    switch (kind) {
    case HEARTBEAT:
        return parse_heartbeat(doc, &out.heartbeat, err);
    case HEARTBEAT_REPLY:
        return parse_heartbeat_reply(doc, &out.reply, err);
    case VOTE_REQUEST:
        return parse_vote_request(doc, &out.request, err);
    case VOTE_REPLY:
        return parse_vote_reply(doc, &out.vote, err);
    case UPDATE_POSITION:
        return parse_update_position(doc, &out.update, err);
    }
    return ERR_OK;
}

#define OPTIME "{'ts': {'$timestamp': {'t': 1, 'i': 1}}, 't': 1}"
#define VOTE_WITH(term, index)                                                                     \
    "{'replSetRequestVotes': 1, 'setName': 'rs', 'dryRun': false, 'term': " term                   \
    ", 'candidateIndex': " index                                                                   \
    ", 'configVersion': 1, 'configTerm': 1, 'lastAppliedOpTime': " OPTIME "}"

TEST(repl_messages_refuse_what_is_wrong) {
    static const struct {
        MessageKind kind;
        const char *json;
        int32_t code;
    } CASES[] = {
        {HEARTBEAT, "{'replSetHeartbeat': 'rs', 'configVersion': 1, 'term': 1, 'new': 1}", 0},
        {HEARTBEAT, "{'replSetHeartbeat': 1, 'configVersion': 1, 'term': 1}", 14},
        {HEARTBEAT, "{'replSetHeartbeat': 'rs', 'term': 1}", 40414},
        {HEARTBEAT, "{'replSetHeartbeat': 'rs', 'configVersion': -3, 'term': 1}", 51024},
        {HEARTBEAT, "{'replSetHeartbeat': 'rs', 'configVersion': 1, 'term': -2}", 51024},
        {HEARTBEAT, "{'replSetHeartbeat': 'a\\u0000b', 'configVersion': 1, 'term': 1}", 2},
        {HEARTBEAT, "{'replSetHeartbeat': 'rs', 'configVersion': 1, 'term': 1, 'fromId': 300}",
         51024},
        {HEARTBEAT_REPLY, "{'state': 2, 'v': 1}", 0},
        {HEARTBEAT_REPLY, "{'state': 4, 'v': 1}", 2},
        {HEARTBEAT_REPLY, "{'v': 1}", 40414},
        {HEARTBEAT_REPLY, "{'state': 2, 'v': 1, 'opTime': 5}", 14},
        {HEARTBEAT_REPLY, "{'state': 2, 'v': 1, 'config': 5}", 14},
        {HEARTBEAT_REPLY, "{'state': 2, 'v': 1, '$replData': 5}", 14},
        {HEARTBEAT_REPLY, "{'state': 2, 'v': 1, '$replData': {'term': 1}}", 40414},
        {VOTE_REQUEST, VOTE_WITH("1", "0"), 0},
        {VOTE_REQUEST, VOTE_WITH("-1", "0"), 51024},
        {VOTE_REQUEST, VOTE_WITH("1", "50"), 51024},
        {VOTE_REQUEST, VOTE_WITH("1", "-1"), 51024},
        {VOTE_REQUEST, VOTE_WITH("{'$numberLong': '9223372036854775807'}", "1"), 51024},
        {VOTE_REQUEST, "{'replSetRequestVotes': 1}", 40414},
        {VOTE_REPLY, "{'term': 1, 'voteGranted': true}", 0},
        {VOTE_REPLY, "{'term': 1}", 40414},
        {VOTE_REPLY, "{'term': 1, 'voteGranted': 'yes'}", 14},
        {UPDATE_POSITION, "{'optimes': []}", 0},
        {UPDATE_POSITION, "{}", 4},
        {UPDATE_POSITION, "{'optimes': 1}", 14},
        {UPDATE_POSITION, "{'optimes': [1]}", 14},
        {UPDATE_POSITION, "{'optimes': [{'memberId': 1}]}", 40414},
        {UPDATE_POSITION,
         "{'optimes': [{'memberId': 1, 'cfgver': 1, 'appliedOpTime': " OPTIME
         ", 'durableOpTime': " OPTIME "}]}",
         0},
    };
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        CLEANUP(arena_done) Arena arena = {0};
        CLEANUP(error_reset) Error err = {0};
        Doc doc;
        REQUIRE_OK(doc_from_json(CASES[i].json, &arena, &doc, &err), err);
        ErrCode rc = parse_kind(CASES[i].kind, doc, &err);
        if ((int32_t)rc != CASES[i].code)
            test_fail(__FILE__, __LINE__, "%s gives %d %s", CASES[i].json, rc, error_message(&err));
    }
}

TEST(repl_update_position_takes_at_most_fifty) {
    for (uint32_t count = 50; count <= 51; count++) {
        CLEANUP(buffer_done) Buffer buf;
        buffer_init(&buf, BUFFER_UNBOUNDED);
        DocBuilder b;
        doc_builder_init(&b, &buf);
        size_t array = build_open_array(&b, "optimes");
        for (uint32_t i = 0; i < count; i++) {
            char name[INDEX_NAME_SIZE];
            size_t opened = build_open_doc(&b, index_name(i, name).data);
            build_i32(&b, "memberId", (int32_t)i);
            build_i32(&b, "cfgver", 1);
            build_optime(&b, "appliedOpTime", OPTIME_NONE);
            build_optime(&b, "durableOpTime", OPTIME_NONE);
            build_close(&b, opened);
        }
        build_close(&b, array);
        CLEANUP(error_reset) Error err = {0};
        static ReplUpdatePosition update;
        ErrCode rc = parse_update_position(doc_builder_end(&b), &update, &err);
        EXPECT_EQ_I64(rc, count == 50 ? ERR_OK : ERR_BAD_VALUE);
    }
}
