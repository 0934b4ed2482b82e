#include "repl/election/messages.h"

#include "repl/election/fields_internal.h"

static const struct {
    ReplState state;
    const char *name;
} STATE_NAMES[] = {
    {REPL_STARTUP, "STARTUP"},     {REPL_PRIMARY, "PRIMARY"},
    {REPL_SECONDARY, "SECONDARY"}, {REPL_RECOVERING, "RECOVERING"},
    {REPL_STARTUP2, "STARTUP2"},   {REPL_UNKNOWN, "UNKNOWN"},
    {REPL_ARBITER, "ARBITER"},     {REPL_DOWN, "(not reachable/healthy)"},
    {REPL_ROLLBACK, "ROLLBACK"},   {REPL_REMOVED, "REMOVED"},
};

const char *repl_state_name(ReplState state) {
    for (size_t i = 0; i < ARRAY_LEN(STATE_NAMES); i++)
        if (STATE_NAMES[i].state == state)
            return STATE_NAMES[i].name;
    return "UNKNOWN";
}

static bool state_is_valid(int32_t state) {
    for (size_t i = 0; i < ARRAY_LEN(STATE_NAMES); i++)
        if ((int32_t)STATE_NAMES[i].state == state)
            return true;
    return false;
}

#define FIELD(struct_type, wire_name, kind, member, min, max)                                      \
    { wire_name, kind, offsetof(struct_type, member), min, max, false }
#define NEEDED(struct_type, wire_name, kind, member, min, max)                                     \
    { wire_name, kind, offsetof(struct_type, member), min, max, true }

/* ---- replSetHeartbeat ---- */

static const ReplFieldSpec HEARTBEAT_FIELDS[] = {
    NEEDED(ReplHeartbeat, "replSetHeartbeat", REPL_FIELD_TEXT, set_name, 0, REPL_SET_NAME_SIZE),
    NEEDED(ReplHeartbeat, "configVersion", REPL_FIELD_I64, config_version, REPL_CONFIG_VERSION_NONE,
           REPL_CONFIG_VERSION_MAX),
    FIELD(ReplHeartbeat, "configTerm", REPL_FIELD_I64, config_term, -1, INT64_MAX),
    FIELD(ReplHeartbeat, "from", REPL_FIELD_TEXT, from, 0, REPL_HOST_SIZE),
    FIELD(ReplHeartbeat, "fromId", REPL_FIELD_I32, from_id, -1, REPL_MEMBER_ID_MAX),
    NEEDED(ReplHeartbeat, "term", REPL_FIELD_I64, term, -1, INT64_MAX),
    FIELD(ReplHeartbeat, "primaryId", REPL_FIELD_I32, primary_id, -1, REPL_MEMBER_ID_MAX),
    FIELD(ReplHeartbeat, "checkEmpty", REPL_FIELD_BOOL, is_empty_check, 0, 0),
};

void build_heartbeat(DocBuilder *b, const ReplHeartbeat *heartbeat) {
    build_cstr(b, "replSetHeartbeat", heartbeat->set_name);
    build_i64(b, "configVersion", heartbeat->config_version);
    build_i64(b, "configTerm", heartbeat->config_term);
    build_i64(b, "hbv", 1);
    build_cstr(b, "from", heartbeat->from);
    build_i64(b, "fromId", heartbeat->from_id);
    build_i64(b, "term", heartbeat->term);
    build_i64(b, "primaryId", heartbeat->primary_id);
    if (heartbeat->is_empty_check)
        build_bool(b, "checkEmpty", true);
}

ErrCode parse_heartbeat(Doc doc, ReplHeartbeat *ret_heartbeat, Error *err) {
    ReplHeartbeat heartbeat = {
        .config_term = REPL_CONFIG_TERM_NONE, .from_id = -1, .primary_id = -1};
    TRY(repl_fields_parse(doc, "replSetHeartbeat", HEARTBEAT_FIELDS, ARRAY_LEN(HEARTBEAT_FIELDS),
                          REPL_FIELDS_LENIENT, &heartbeat, err));
    *ret_heartbeat = heartbeat;
    return ERR_OK;
}

typedef struct HeartbeatReplyFields {
    ReplHeartbeatReply reply;
    int32_t state;
} HeartbeatReplyFields;

static const ReplFieldSpec HEARTBEAT_REPLY_FIELDS[] = {
    FIELD(HeartbeatReplyFields, "set", REPL_FIELD_TEXT, reply.set_name, 0, REPL_SET_NAME_SIZE),
    NEEDED(HeartbeatReplyFields, "state", REPL_FIELD_I32, state, 0, INT32_MAX),
    NEEDED(HeartbeatReplyFields, "v", REPL_FIELD_I64, reply.config_version,
           REPL_CONFIG_VERSION_NONE, REPL_CONFIG_VERSION_MAX),
    FIELD(HeartbeatReplyFields, "configTerm", REPL_FIELD_I64, reply.config_term, -1, INT64_MAX),
    FIELD(HeartbeatReplyFields, "term", REPL_FIELD_I64, reply.term, -1, INT64_MAX),
    FIELD(HeartbeatReplyFields, "primaryId", REPL_FIELD_I32, reply.primary_id, -1,
          REPL_MEMBER_ID_MAX),
    FIELD(HeartbeatReplyFields, "electable", REPL_FIELD_BOOL, reply.is_electable, 0, 0),
    FIELD(HeartbeatReplyFields, "opTime", REPL_FIELD_OPTIME, reply.applied.optime, 0, 0),
    FIELD(HeartbeatReplyFields, "wallTime", REPL_FIELD_DATE, reply.applied.wall_ms, 0, 0),
    FIELD(HeartbeatReplyFields, "durableOpTime", REPL_FIELD_OPTIME, reply.durable.optime, 0, 0),
    FIELD(HeartbeatReplyFields, "durableWallTime", REPL_FIELD_DATE, reply.durable.wall_ms, 0, 0),
    FIELD(HeartbeatReplyFields, "syncingTo", REPL_FIELD_TEXT, reply.syncing_to, 0, REPL_HOST_SIZE),
    FIELD(HeartbeatReplyFields, "electionTime", REPL_FIELD_TS, reply.election_ts, 0, 0),
    FIELD(HeartbeatReplyFields, "readFloor", REPL_FIELD_TS, reply.read_floor_ts, 0, 0),
    FIELD(HeartbeatReplyFields, "config", REPL_FIELD_DOC, reply.config, 0, 0),
};

void build_heartbeat_reply(DocBuilder *b, const ReplHeartbeatReply *reply) {
    build_cstr(b, "set", reply->set_name);
    build_i32(b, "state", (int32_t)reply->state);
    build_i64(b, "v", reply->config_version);
    build_i64(b, "configTerm", reply->config_term);
    build_i64(b, "term", reply->term);
    build_i64(b, "primaryId", reply->primary_id);
    build_bool(b, "electable", reply->is_electable);
    build_optime(b, "opTime", reply->applied.optime);
    build_date(b, "wallTime", reply->applied.wall_ms);
    build_optime(b, "durableOpTime", reply->durable.optime);
    build_date(b, "durableWallTime", reply->durable.wall_ms);
    if (reply->syncing_to[0] != '\0')
        build_cstr(b, "syncingTo", reply->syncing_to);
    if (reply->election_ts != 0)
        build_timestamp(b, "electionTime", reply->election_ts);
    if (reply->read_floor_ts != 0)
        build_timestamp(b, "readFloor", reply->read_floor_ts);
    if (doc_is_present(reply->config))
        build_doc(b, "config", reply->config);
    ReplMetadata metadata = {
        .term = reply->term,
        .commit_point = reply->commit_point,
        .commit_wall_ms = reply->commit_wall_ms,
        .replica_set_id = reply->replica_set_id,
        .last_visible = reply->commit_point,
        .config_version = reply->config_version,
        .config_term = reply->config_term,
        .primary_index = REPL_INDEX_NONE,
        .source_index = REPL_INDEX_NONE,
        .is_primary = reply->state == REPL_PRIMARY,
    };
    build_repl_metadata(b, &metadata);
}

ErrCode parse_heartbeat_reply(Doc doc, ReplHeartbeatReply *ret_reply, Error *err) {
    HeartbeatReplyFields fields = {
        .reply = {.config_term = REPL_CONFIG_TERM_NONE,
                  .term = OPTIME_TERM_NONE,
                  .primary_id = -1,
                  .applied = REPL_POSITION_NONE,
                  .durable = REPL_POSITION_NONE,
                  .commit_point = OPTIME_NONE},
    };
    TRY(repl_fields_parse(doc, "replSetHeartbeat reply", HEARTBEAT_REPLY_FIELDS,
                          ARRAY_LEN(HEARTBEAT_REPLY_FIELDS), REPL_FIELDS_LENIENT, &fields, err));
    if (!state_is_valid(fields.state))
        return error_set(err, ERR_BAD_VALUE,
                         "Value for \"state\" in response to replSetHeartbeat is out of range; "
                         "found %d",
                         fields.state);
    fields.reply.state = (ReplState)fields.state;
    bool found = false;
    ReplMetadata metadata;
    TRY(parse_repl_metadata(doc, &found, &metadata, err));
    if (found) {
        fields.reply.commit_point = metadata.commit_point;
        fields.reply.commit_wall_ms = metadata.commit_wall_ms;
        fields.reply.replica_set_id = metadata.replica_set_id;
    }
    *ret_reply = fields.reply;
    return ERR_OK;
}

/* ---- replSetRequestVotes ---- */

static const ReplFieldSpec VOTE_REQUEST_FIELDS[] = {
    NEEDED(ReplVoteRequest, "setName", REPL_FIELD_TEXT, set_name, 0, REPL_SET_NAME_SIZE),
    NEEDED(ReplVoteRequest, "dryRun", REPL_FIELD_BOOL, is_dry_run, 0, 0),
    NEEDED(ReplVoteRequest, "term", REPL_FIELD_I64, term, 0, INT64_MAX - 1),
    NEEDED(ReplVoteRequest, "candidateIndex", REPL_FIELD_I32, candidate_index, 0,
           REPL_MEMBERS_MAX - 1),
    NEEDED(ReplVoteRequest, "configVersion", REPL_FIELD_I64, config_version,
           REPL_CONFIG_VERSION_NONE, REPL_CONFIG_VERSION_MAX),
    FIELD(ReplVoteRequest, "configTerm", REPL_FIELD_I64, config_term, -1, INT64_MAX),
    NEEDED(ReplVoteRequest, "lastAppliedOpTime", REPL_FIELD_OPTIME, last_applied, 0, 0),
};

void build_vote_request(DocBuilder *b, const ReplVoteRequest *request) {
    build_i32(b, "replSetRequestVotes", 1);
    build_cstr(b, "setName", request->set_name);
    build_bool(b, "dryRun", request->is_dry_run);
    build_i64(b, "term", request->term);
    build_i64(b, "candidateIndex", request->candidate_index);
    build_i64(b, "configVersion", request->config_version);
    build_i64(b, "configTerm", request->config_term);
    build_optime(b, "lastAppliedOpTime", request->last_applied);
}

ErrCode parse_vote_request(Doc doc, ReplVoteRequest *ret_request, Error *err) {
    ReplVoteRequest request = {.config_term = REPL_CONFIG_TERM_NONE};
    TRY(repl_fields_parse(doc, "replSetRequestVotes", VOTE_REQUEST_FIELDS,
                          ARRAY_LEN(VOTE_REQUEST_FIELDS), REPL_FIELDS_LENIENT, &request, err));
    *ret_request = request;
    return ERR_OK;
}

static const ReplFieldSpec VOTE_REPLY_FIELDS[] = {
    NEEDED(ReplVoteReply, "term", REPL_FIELD_I64, term, -1, INT64_MAX - 1),
    NEEDED(ReplVoteReply, "voteGranted", REPL_FIELD_BOOL, is_granted, 0, 0),
};

void build_vote_reply(DocBuilder *b, const ReplVoteReply *reply) {
    build_i64(b, "term", reply->term);
    build_bool(b, "voteGranted", reply->is_granted);
    build_cstr(b, "reason", reply->reason);
}

ErrCode parse_vote_reply(Doc doc, ReplVoteReply *ret_reply, Error *err) {
    ReplVoteReply reply = {0};
    TRY(repl_fields_parse(doc, "replSetRequestVotes reply", VOTE_REPLY_FIELDS,
                          ARRAY_LEN(VOTE_REPLY_FIELDS), REPL_FIELDS_LENIENT, &reply, err));
    /* Only for people to read, so what is too long is cut. */
    Elem reason = doc_get_lit(doc, "reason");
    if (elem_type(reason) == BT_STRING) {
        Str text = elem_str(reason);
        size_t size = text.size < sizeof(reply.reason) ? text.size : sizeof(reply.reason) - 1;
        memcpy(reply.reason, text.data, size);
    }
    *ret_reply = reply;
    return ERR_OK;
}

static const ReplFieldSpec LAST_VOTE_FIELDS[] = {
    NEEDED(ReplLastVote, "term", REPL_FIELD_I64, term, -1, INT64_MAX - 1),
    NEEDED(ReplLastVote, "candidateIndex", REPL_FIELD_I32, candidate_index, -1,
           REPL_MEMBERS_MAX - 1),
};

void build_last_vote(DocBuilder *b, const ReplLastVote *vote) {
    build_i64(b, "term", vote->term);
    build_i64(b, "candidateIndex", vote->candidate_index);
}

ErrCode parse_last_vote(Doc doc, ReplLastVote *ret_vote, Error *err) {
    ReplLastVote vote = REPL_LAST_VOTE_NONE;
    TRY(repl_fields_parse(doc, "LastVote", LAST_VOTE_FIELDS, ARRAY_LEN(LAST_VOTE_FIELDS),
                          REPL_FIELDS_LENIENT, &vote, err));
    *ret_vote = vote;
    return ERR_OK;
}

/* ---- metadata ---- */

static const ReplFieldSpec METADATA_FIELDS[] = {
    NEEDED(ReplMetadata, "term", REPL_FIELD_I64, term, -1, INT64_MAX - 1),
    NEEDED(ReplMetadata, "lastOpCommitted", REPL_FIELD_OPTIME, commit_point, 0, 0),
    FIELD(ReplMetadata, "lastCommittedWall", REPL_FIELD_DATE, commit_wall_ms, 0, 0),
    FIELD(ReplMetadata, "lastOpVisible", REPL_FIELD_OPTIME, last_visible, 0, 0),
    FIELD(ReplMetadata, "configVersion", REPL_FIELD_I64, config_version, REPL_CONFIG_VERSION_NONE,
          REPL_CONFIG_VERSION_MAX),
    FIELD(ReplMetadata, "configTerm", REPL_FIELD_I64, config_term, -1, INT64_MAX),
    FIELD(ReplMetadata, "replicaSetId", REPL_FIELD_OID, replica_set_id, 0, 0),
    FIELD(ReplMetadata, "primaryIndex", REPL_FIELD_I32, primary_index, -1, REPL_MEMBERS_MAX - 1),
    FIELD(ReplMetadata, "syncSourceIndex", REPL_FIELD_I32, source_index, -1, REPL_MEMBERS_MAX - 1),
    FIELD(ReplMetadata, "isPrimary", REPL_FIELD_BOOL, is_primary, 0, 0),
};

void build_repl_metadata(DocBuilder *b, const ReplMetadata *metadata) {
    size_t opened = build_open_doc(b, "$replData");
    build_i64(b, "term", metadata->term);
    build_optime(b, "lastOpCommitted", metadata->commit_point);
    build_date(b, "lastCommittedWall", metadata->commit_wall_ms);
    build_optime(b, "lastOpVisible", metadata->last_visible);
    build_i64(b, "configVersion", metadata->config_version);
    build_i64(b, "configTerm", metadata->config_term);
    build_oid(b, "replicaSetId", &metadata->replica_set_id);
    build_i32(b, "primaryIndex", metadata->primary_index);
    build_i32(b, "syncSourceIndex", metadata->source_index);
    build_bool(b, "isPrimary", metadata->is_primary);
    build_close(b, opened);
}

ErrCode parse_repl_metadata(Doc doc, bool *ret_found, ReplMetadata *ret_metadata, Error *err) {
    Elem elem = doc_get_lit(doc, "$replData");
    *ret_found = false;
    if (!elem_is_present(elem))
        return ERR_OK;
    if (elem_type(elem) != BT_DOC)
        return error_set(err, ERR_TYPE_MISMATCH, "$replData must be an object");
    ReplMetadata metadata = {.last_visible = OPTIME_NONE,
                             .config_term = REPL_CONFIG_TERM_NONE,
                             .primary_index = REPL_INDEX_NONE,
                             .source_index = REPL_INDEX_NONE};
    TRY(repl_fields_parse(elem_doc(elem), "$replData", METADATA_FIELDS, ARRAY_LEN(METADATA_FIELDS),
                          REPL_FIELDS_LENIENT, &metadata, err));
    *ret_metadata = metadata;
    *ret_found = true;
    return ERR_OK;
}

static const ReplFieldSpec OPLOG_METADATA_FIELDS[] = {
    NEEDED(ReplOplogMetadata, "lastOpCommitted", REPL_FIELD_OPTIME, commit_point, 0, 0),
    FIELD(ReplOplogMetadata, "lastCommittedWall", REPL_FIELD_DATE, commit_wall_ms, 0, 0),
    NEEDED(ReplOplogMetadata, "lastOpApplied", REPL_FIELD_OPTIME, last_applied, 0, 0),
    NEEDED(ReplOplogMetadata, "rbid", REPL_FIELD_I32, rollback_id, 0, 0),
    FIELD(ReplOplogMetadata, "primaryIndex", REPL_FIELD_I32, primary_index, -1,
          REPL_MEMBERS_MAX - 1),
    FIELD(ReplOplogMetadata, "syncSourceIndex", REPL_FIELD_I32, source_index, -1,
          REPL_MEMBERS_MAX - 1),
    FIELD(ReplOplogMetadata, "syncSourceHost", REPL_FIELD_TEXT, source_host, 0, REPL_HOST_SIZE),
};

void build_oplog_metadata(DocBuilder *b, const ReplOplogMetadata *metadata) {
    size_t opened = build_open_doc(b, "$oplogQueryData");
    build_optime(b, "lastOpCommitted", metadata->commit_point);
    build_date(b, "lastCommittedWall", metadata->commit_wall_ms);
    build_optime(b, "lastOpApplied", metadata->last_applied);
    build_i32(b, "rbid", metadata->rollback_id);
    build_i32(b, "primaryIndex", metadata->primary_index);
    build_i32(b, "syncSourceIndex", metadata->source_index);
    build_cstr(b, "syncSourceHost", metadata->source_host);
    build_close(b, opened);
}

ErrCode parse_oplog_metadata(Doc doc, bool *ret_found, ReplOplogMetadata *ret_metadata,
                             Error *err) {
    Elem elem = doc_get_lit(doc, "$oplogQueryData");
    *ret_found = false;
    if (!elem_is_present(elem))
        return ERR_OK;
    if (elem_type(elem) != BT_DOC)
        return error_set(err, ERR_TYPE_MISMATCH, "$oplogQueryData must be an object");
    ReplOplogMetadata metadata = {.primary_index = REPL_INDEX_NONE,
                                  .source_index = REPL_INDEX_NONE};
    TRY(repl_fields_parse(elem_doc(elem), "$oplogQueryData", OPLOG_METADATA_FIELDS,
                          ARRAY_LEN(OPLOG_METADATA_FIELDS), REPL_FIELDS_LENIENT, &metadata, err));
    *ret_metadata = metadata;
    *ret_found = true;
    return ERR_OK;
}

/* ---- replSetUpdatePosition ---- */

static const ReplFieldSpec POSITION_FIELDS[] = {
    NEEDED(ReplMemberPosition, "memberId", REPL_FIELD_I32, member_id, 0, REPL_MEMBER_ID_MAX),
    NEEDED(ReplMemberPosition, "cfgver", REPL_FIELD_I64, config_version, 0,
           REPL_CONFIG_VERSION_MAX),
    NEEDED(ReplMemberPosition, "appliedOpTime", REPL_FIELD_OPTIME, applied.optime, 0, 0),
    FIELD(ReplMemberPosition, "appliedWallTime", REPL_FIELD_DATE, applied.wall_ms, 0, 0),
    NEEDED(ReplMemberPosition, "durableOpTime", REPL_FIELD_OPTIME, durable.optime, 0, 0),
    FIELD(ReplMemberPosition, "durableWallTime", REPL_FIELD_DATE, durable.wall_ms, 0, 0),
};

void build_update_position(DocBuilder *b, const ReplUpdatePosition *update) {
    build_i32(b, "replSetUpdatePosition", 1);
    size_t optimes = build_open_array(b, "optimes");
    for (uint32_t i = 0; i < update->count; i++) {
        const ReplMemberPosition *position = &update->positions[i];
        char name[INDEX_NAME_SIZE];
        size_t opened = build_open_doc(b, index_name(i, name).data);
        build_optime(b, "durableOpTime", position->durable.optime);
        build_date(b, "durableWallTime", position->durable.wall_ms);
        build_optime(b, "appliedOpTime", position->applied.optime);
        build_date(b, "appliedWallTime", position->applied.wall_ms);
        build_i64(b, "memberId", position->member_id);
        build_i64(b, "cfgver", position->config_version);
        build_close(b, opened);
    }
    build_close(b, optimes);
    if (update->has_metadata)
        build_repl_metadata(b, &update->metadata);
}

ErrCode parse_update_position(Doc doc, ReplUpdatePosition *ret_update, Error *err) {
    Elem optimes = doc_get_lit(doc, "optimes");
    if (elem_type(optimes) != BT_ARRAY)
        return error_set(err, elem_is_present(optimes) ? ERR_TYPE_MISMATCH : ERR_NO_SUCH_KEY,
                         "replSetUpdatePosition needs an array 'optimes'");
    if (doc_count(elem_doc(optimes)) > REPL_MEMBERS_MAX)
        return error_set(err, ERR_BAD_VALUE, "replSetUpdatePosition has more than %d optimes",
                         REPL_MEMBERS_MAX);
    uint32_t count = 0;
    DocIter iter = doc_iter(elem_doc(optimes));
    Elem elem;
    while (doc_iter_next(&iter, &elem)) {
        if (elem_type(elem) != BT_DOC)
            return error_set(err, ERR_TYPE_MISMATCH,
                             "an element of replSetUpdatePosition's optimes is no object");
        ReplMemberPosition position = {.applied = REPL_POSITION_NONE,
                                       .durable = REPL_POSITION_NONE};
        TRY(repl_fields_parse(elem_doc(elem), "optimes", POSITION_FIELDS,
                              ARRAY_LEN(POSITION_FIELDS), REPL_FIELDS_LENIENT, &position, err));
        ret_update->positions[count++] = position;
    }
    ret_update->count = count;
    return parse_repl_metadata(doc, &ret_update->has_metadata, &ret_update->metadata, err);
}
