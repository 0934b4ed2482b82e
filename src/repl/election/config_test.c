#include "repl/election/config.h"

#include "base/test.h"
#include "bson/json.h"

static const Oid SET_ID = {{1, 2, 3}};

static ReplConfig *parse(const char *json, ReplConfigParseFlags flags, Error *err) {
    CLEANUP(arena_done) Arena arena = {0};
    Doc doc;
    ReplConfig *config = NULL;
    if (doc_from_json(json, &arena, &doc, err) != ERR_OK)
        panic("bad JSON in a test: %s", json);
    (void)!repl_config_parse(doc, flags, &config, err);
    return config;
}

static ReplConfig *parse_ok(const char *json) {
    Error err = {0};
    ReplConfig *config = parse(json, REPL_CONFIG_ALLOW_ARBITERS, &err);
    if (config == NULL)
        panic("%s: %s", json, error_message(&err));
    return config;
}

/* "M(a,b)" stands for a set of those members. */
#define SET(members)  "{'_id': 'rs', 'version': 1, 'members': [" members "]}"
#define M(id, more)   "{'_id': " #id ", 'host': 'h" #id ":1'" more "}"
#define SETTINGS(doc) "{'_id': 'rs', 'version': 1, 'members': [" M(0, "") "], 'settings': " doc "}"

static const struct {
    const char *json;
    int32_t code; /* 0: fine */
    const char *message;
} PARSE_CASES[] = {
    {SET(M(0, "")), 0, ""},
    {"{'_id': 'rs', 'version': 1, 'term': 3, 'protocolVersion': 1, 'members': [" M(0, "") "]}", 0,
     ""},
    /* The document. */
    {"{'version': 1, 'members': []}", 40414, "'ReplSetConfig._id' is missing"},
    {"{'_id': '', 'version': 1, 'members': [" M(0, "") "]}", 2, "non-empty _id"},
    {"{'_id': 1, 'version': 1, 'members': []}", 14, "wrong type"},
    {"{'_id': 'rs', 'members': []}", 40414, "'ReplSetConfig.version' is missing"},
    {"{'_id': 'rs', 'version': 0, 'members': []}", 51024, "value must be >= 1"},
    {"{'_id': 'rs', 'version': 3000000000, 'members': []}", 51024, "value must be <= 2147483647"},
    {"{'_id': 'rs', 'version': 'x', 'members': []}", 14, "wrong type 'string'"},
    {"{'_id': 'rs', 'version': 1, 'members': {}}", 14, "expected type 'array'"},
    {"{'_id': 'rs', 'version': 1, 'members': [1]}", 14, "expected type 'object'"},
    {"{'_id': 'rs', 'version': 1, 'members': [], 'foo': 1}", 40415, "'ReplSetConfig.foo'"},
    {"{'_id': 'rs', 'version': 1, 'members': [" M(0, "") "], 'protocolVersion': 0}", 2,
     "it must be 1"},
    {SET(""), 2, "contains 0 members"},
    /* Members. */
    {SET(M(0, ", 'x': 1")), 40415, "'MemberConfig.x'"},
    {SET("{'host': 'a:1'}"), 40414, "'MemberConfig._id'"},
    {SET("{'_id': 0}"), 40414, "'MemberConfig.host'"},
    {SET("{'_id': -1, 'host': 'a:1'}"), 2, "_id field value of -1 is out of range"},
    {SET("{'_id': 256, 'host': 'a:1'}"), 2, "_id field value of 256 is out of range"},
    {SET("{'_id': 0, 'host': 'a:0'}"), 9, "is no host"},
    {SET("{'_id': 0, 'host': 'a:70000'}"), 9, "is no host"},
    {SET("{'_id': 0, 'host': ':1'}"), 9, "is no host"},
    {SET("{'_id': 0, 'host': 'a b:1'}"), 9, "is no host"},
    {SET("{'_id': 0, 'host': '[::1]:5'}"), 0, ""},
    {SET("{'_id': 0, 'host': '[::1'}"), 9, "is no host"},
    {SET(M(0, "") "," M(0, "")), 2, "same _id field, members.0._id == members.1._id == 0"},
    {SET(M(0, "") ", {'_id': 1, 'host': 'h0:1'}"), 2, "members.0.host == members.1.host == h0:1"},
    {SET(M(0, ", 'priority': -1")), 2, "priority field value of -1 is out of range"},
    {SET(M(0, ", 'priority': 1000")), 0, ""},
    {SET(M(0, ", 'priority': 1000.5")), 2, "out of range"},
    {SET(M(0, ", 'priority': {'$numberDouble': 'NaN'}")), 2, "out of range"},
    {SET(M(0, "") "," M(1, ", 'votes': 2")), 2, "votes field value is 2 but must be 0 or 1"},
    {SET(M(0, "") "," M(1, ", 'votes': 0")), 2, "when non-voting"},
    {SET(M(0, "") "," M(1, ", 'votes': 0, 'priority': 0")), 0, ""},
    {SET(M(0, "") "," M(1, ", 'hidden': true")), 2, "when hidden=true"},
    {SET(M(0, "") "," M(1, ", 'buildIndexes': false")), 2, "when buildIndexes=false"},
    {SET(M(0, "") "," M(1, ", 'secondaryDelaySecs': 5")), 2, "when secondaryDelaySecs is used"},
    {SET(M(0, "") "," M(1, ", 'secondaryDelaySecs': 5, 'priority': 0")), 0, ""},
    {SET(M(0, "") "," M(1, ", 'secondaryDelaySecs': -5, 'priority': 0")), 2, "out of range"},
    {SET(M(0, "") "," M(1, ", 'slaveDelay': 5, 'priority': 0")), 40415, "slaveDelay"},
    {SET(M(0, ", 'tags': {'dc': 'a'}")), 0, ""},
    {SET(M(0, ", 'tags': {'dc': 1}")), 14, "non-string value"},
    /* Horizons. */
    {SET(M(0, ", 'horizons': {'x': 'y:1'}")), 0, ""},
    {SET(M(0, ", 'horizons': {}")), 2, "cannot be empty"},
    {SET(M(0, ", 'horizons': 'x'")), 14, "horizons field has non-object value"},
    {SET(M(0, ", 'horizons': {'x': 1}")), 14, "horizons.x field has non-string value"},
    {SET(M(0, ", 'horizons': {'': 'y:1'}")), 2, "empty names"},
    {SET(M(0, ", 'horizons': {'__default': 'y:1'}")), 2, "the one of the field 'host'"},
    {SET(M(0, ", 'horizons': {'x': 'y:0'}")), 9, "is no host and port"},
    {SET(M(0, ", 'horizons': {'x': 'y:1', 'x': 'z:1'}")), 2, "Duplicate horizon name found \"x\""},
    {SET(M(0, ", 'horizons': {'x': 'y:1', 'z': 'y:2'}")), 2, "Duplicate horizon member found"},
    {SET(M(0, ", 'horizons': {'x': 'y:1'}") "," M(1, "")), 2, "same horizons"},
    {SET(M(0, "") "," M(1, ", 'horizons': {'x': 'y:1'}")), 2, "same horizons"},
    {SET(M(0, ", 'horizons': {'x': 'y:1'}") "," M(1, ", 'horizons': {'z': 'y:2'}")), 2,
     "same horizons"},
    {SET(M(0, ", 'horizons': {'x': 'y:1'}") "," M(1, ", 'horizons': {'x': 'y:1'}")), 2,
     "have the same host \"y:1\" in the horizon \"x\""},
    {SET(M(0, ", 'horizons': {'x': 'y:1'}") "," M(1, ", 'horizons': {'x': 'y:2'}")), 0, ""},
    {SET(M(0, "") "," M(1, ", 'newlyAdded': false")), 93, "must be true"},
    {SET(M(0, "") "," M(1, ", 'newlyAdded': true")), 0, ""},
    /* Arbiters. */
    {SET(M(0, "") "," M(1, ", 'arbiterOnly': true")), 0, ""},
    {SET(M(0, "") "," M(1, ", 'arbiterOnly': true, 'votes': 0, 'priority': 0")), 2, "must vote"},
    {SET(M(0, "") "," M(1, ", 'arbiterOnly': true, 'priority': 2")), 2, "priority must be 0"},
    {SET(M(0, "") "," M(1, ", 'arbiterOnly': true, 'tags': {'a': 'b'}")), 2, "tags on arbiters"},
    {SET(M(0, "") "," M(1, ", 'arbiterOnly': true") "," M(2, ", 'arbiterOnly': true")), 2,
     "Multiple arbiters"},
    /* The set. */
    {SET(M(0, ", 'priority': 0")), 2, "at least one non-arbiter member"},
    {SET(M(0, ", 'arbiterOnly': true")), 2, "at least one non-arbiter member"},
    {SET(M(0, "") "," M(1, "") "," M(2, "") "," M(3, "") "," M(4, "") "," M(5, "") "," M(
         6, "") "," M(7, "")),
     2, "contains 8 voting members"},
    {SET(M(0, "") ", {'_id': 1, 'host': 'localhost:2'}"), 2, "found 1 out of 2"},
    {SET("{'_id': 0, 'host': '127.0.0.1:1'}, {'_id': 1, 'host': 'localhost:2'}"), 0, ""},
    {"{'_id': 'rs', 'version': 1, 'configsvr': true, 'members': [" M(0, "") "," M(
         1, ", 'arbiterOnly': true") "]}",
     2, "Arbiters are not allowed"},
    {"{'_id': 'rs', 'version': 1, 'configsvr': true, 'members': [" M(0, "") "," M(
         1, ", 'secondaryDelaySecs': 1, 'priority': 0") "]}",
     2, "non-zero secondaryDelaySecs"},
    /* Settings. */
    {SETTINGS("{'heartbeatIntervalMillis': 0}"), 51024, "heartbeatIntervalMillis"},
    {SETTINGS("{'heartbeatTimeoutSecs': 0}"), 51024, "heartbeatTimeoutSecs"},
    {SETTINGS("{'electionTimeoutMillis': -1}"), 51024, "electionTimeoutMillis"},
    {SETTINGS("{'catchUpTimeoutMillis': -2}"), 51024, "catchUpTimeoutMillis"},
    {SETTINGS("{'catchUpTimeoutMillis': -1, 'catchUpTakeoverDelayMillis': -1}"), 0, ""},
    {SETTINGS("{'foo': 1}"), 40415, "'ReplSetConfigSettings.foo'"},
    {SETTINGS("{'replicaSetId': 5}"), 14, "replicaSetId"},
    {SETTINGS("{'getLastErrorDefaults': {'w': 1, 'wtimeout': 0}}"), 0, ""},
    {SETTINGS("{'getLastErrorDefaults': {'w': 2}}"), 2, "setDefaultRWConcern"},
    {SETTINGS("{'getLastErrorModes': {'m': {'dc': 1}}}"), 4, "No replica set tag key dc"},
    {SETTINGS("{'getLastErrorModes': {'m': 1}}"), 14, "to be an Object"},
    {SETTINGS("{'getLastErrorModes': {'m': {'dc': 'x'}}}"), 14, "to be a number"},
    {SETTINGS("{'getLastErrorModes': {'m': {'dc': 0}}}"), 2, "must be positive"},
};

TEST(repl_config_rules) {
    for (size_t i = 0; i < ARRAY_LEN(PARSE_CASES); i++) {
        CLEANUP(error_reset) Error err = {0};
        CLEANUP(repl_config_unref_ptr)
        ReplConfig *config = parse(PARSE_CASES[i].json, REPL_CONFIG_PARSE_DEFAULT, &err);
        if ((int32_t)err.code != PARSE_CASES[i].code ||
            strstr(error_message(&err), PARSE_CASES[i].message) == NULL)
            test_fail(__FILE__, __LINE__, "%s gives %d %s", PARSE_CASES[i].json, err.code,
                      error_message(&err));
        EXPECT((config != NULL) == (PARSE_CASES[i].code == 0));
    }
}

TEST(repl_config_takes_at_most_fifty_members) {
    for (uint32_t count = 50; count <= 51; count++) {
        CLEANUP(buffer_done) Buffer buf;
        buffer_init(&buf, BUFFER_UNBOUNDED);
        buffer_printf(&buf, "{'_id': 'rs', 'version': 1, 'members': [{'_id': 0, 'host': 'h0'}");
        for (uint32_t i = 1; i < count; i++)
            buffer_printf(&buf, ", {'_id': %u, 'host': 'h%u', 'votes': 0, 'priority': 0}", i, i);
        buffer_printf(&buf, "]}");
        buffer_append_byte(&buf, '\0');
        CLEANUP(error_reset) Error err = {0};
        CLEANUP(repl_config_unref_ptr)
        ReplConfig *config = parse((const char *)buf.data, REPL_CONFIG_PARSE_DEFAULT, &err);
        EXPECT_EQ_I64(err.code, count == 50 ? ERR_OK : ERR_BAD_VALUE);
    }
}

TEST(repl_config_document_comes_back_complete) {
    CLEANUP(repl_config_unref_ptr)
    ReplConfig *config = parse_ok(
        "{'_id': 'rs', 'version': 7, 'term': 3, 'members': ["
        "{'_id': 0, 'host': 'a', 'priority': 2.5, 'tags': {'dc': 'x'}, 'horizons': {'o': 'e'}},"
        "{'_id': 5, 'host': 'b:2', 'priority': 0, 'hidden': true, 'secondaryDelaySecs': 60,"
        "'buildIndexes': false, 'horizons': {'o': 'f:1'}},"
        "{'_id': 6, 'host': 'c:3', 'newlyAdded': true, 'horizons': {'o': 'f:2'}},"
        "{'_id': 7, 'host': 'd:3', 'arbiterOnly': true, 'horizons': {'o': 'f:3'}}],"
        "'writeConcernMajorityJournalDefault': false,"
        "'settings': {'chainingAllowed': false, 'electionTimeoutMillis': 5000,"
        "'getLastErrorModes': {'m': {'dc': 1}}, 'replicaSetId': {'$oid': "
        "'0102030405060708090a0b0c'}}}");
    EXPECT_STR(config->members[0].host, "a:27017");
    EXPECT_STR(config->members[0].horizons[0].host, "e:27017");
    EXPECT(!config->members[1].builds_indexes);
    EXPECT_EQ_U64(config->voter_count, 3);
    EXPECT_EQ_U64(config->majority_count, 2);
    EXPECT_EQ_U64(config->write_majority_count, 2);
    EXPECT_EQ_U64(config->data_count, 3);
    EXPECT_EQ_U64(config->data_voter_count, 2);
    EXPECT(!config->members[2].is_voter);
    EXPECT(!config->members[2].is_electable);
    EXPECT(config->members[3].priority == 0);

    CLEANUP(error_reset) Error err = {0};
    CLEANUP(repl_config_unref_ptr) ReplConfig *again = NULL;
    EXPECT_OK(repl_config_parse(config->doc, REPL_CONFIG_PARSE_DEFAULT, &again, &err), err);
    EXPECT(again != NULL && doc_equal_bytes(again->doc, config->doc));

    ReplConfigEdit edit = {.version = 8, .term = 4, .newly_added_mask = 0};
    CLEANUP(repl_config_unref_ptr) ReplConfig *edited = repl_config_edit(config, &edit);
    EXPECT_EQ_I64(edited->version, 8);
    EXPECT_EQ_I64(edited->term, 4);
    EXPECT(edited->members[2].is_voter);
    EXPECT_EQ_U64(edited->voter_count, 4);
    EXPECT(memcmp(&edited->replica_set_id, &config->replica_set_id, sizeof(Oid)) == 0);

    CLEANUP(buffer_done) Buffer buf;
    buffer_init(&buf, BUFFER_UNBOUNDED);
    repl_config_build_for_user(&buf, config);
    CLEANUP(arena_done) Arena arena = {0};
    EXPECT(strstr(shell_text_of_doc((Doc){buf.data}, &arena), "newlyAdded") == NULL);
    EXPECT(strstr(shell_text_of_doc(config->doc, &arena), "newlyAdded: true") != NULL);
}

TEST(repl_config_takes_addresses_as_horizons_from_no_user) {
    static const struct {
        const char *host;
        bool is_ip;
    } CASES[] = {{"1.2.3.4:5", true},   {"1.2.3.4", true}, {"1.2.3.4/20", true}, {"[::1]:5", true},
                 {"[fe80::/10]", true}, {"h:5", false},    {"1.2.3.4.h", false}, {"1.2", false}};
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        CLEANUP(buffer_done) Buffer buf;
        buffer_init(&buf, BUFFER_UNBOUNDED);
        buffer_printf(&buf,
                      "{'_id': 'rs', 'version': 1, 'members': [{'_id': 0, 'host': 'a', 'horizons': "
                      "{'x': '%s'}}]}",
                      CASES[i].host);
        buffer_append_byte(&buf, '\0');
        CLEANUP(repl_config_unref_ptr) ReplConfig *config = parse_ok((const char *)buf.data);
        EXPECT((repl_config_find_horizon_ip(config) != NULL) == CASES[i].is_ip);
        CLEANUP(error_reset) Error err = {0};
        CLEANUP(repl_config_unref_ptr)
        ReplConfig *given = parse((const char *)buf.data, REPL_CONFIG_FROM_USER, &err);
        EXPECT_EQ_I64(err.code, CASES[i].is_ip ? ERR_UNSUPPORTED_FORMAT : ERR_OK);
        CLEANUP(error_reset) Error none = {0};
        CLEANUP(repl_config_unref_ptr)
        ReplConfig *allowed = parse((const char *)buf.data,
                                    REPL_CONFIG_FROM_USER | REPL_CONFIG_ALLOW_HORIZON_IPS, &none);
        EXPECT_EQ_I64(none.code, ERR_OK);
    }
}

TEST(repl_config_order_is_by_term_then_version) {
    static const struct {
        int64_t term_a, version_a, term_b, version_b;
        int result;
    } CASES[] = {
        {1, 1, 1, 1, 0},  {1, 1, 1, 2, -1},  {2, 1, 1, 9, 1},  {1, 9, 2, 1, -1},
        {-1, 5, 3, 4, 1}, {3, 4, -1, 5, -1}, {-1, 5, 9, 5, 0}, {-1, 5, -1, 4, 1},
    };
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++)
        EXPECT_EQ_I64(repl_config_compare_ids(CASES[i].term_a, CASES[i].version_a, CASES[i].term_b,
                                              CASES[i].version_b),
                      CASES[i].result);
}

TEST(repl_hosts_get_a_port) {
    static const char *const CASES[][2] = {
        {"a", "a:27017"},       {"a:1", "a:1"},   {"[::1]", "[::1]:27017"},
        {"[::1]:9", "[::1]:9"}, {"", NULL},       {":", NULL},
        {"a:", NULL},           {"a:b", NULL},    {"a:1:2", NULL},
        {"[]", NULL},           {"[::1]9", NULL}, {"a,b", NULL},
    };
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        char host[REPL_HOST_SIZE];
        bool is_valid = repl_host_normalise(str_from(CASES[i][0]), host);
        EXPECT(is_valid == (CASES[i][1] != NULL));
        if (is_valid && CASES[i][1] != NULL)
            EXPECT_STR(host, CASES[i][1]);
    }
}

/* ---- initiate and reconfig ---- */

TEST(repl_initiate_checks) {
    static const struct {
        const char *json;
        const char *message; /* NULL: fine */
    } CASES[] = {
        {SET(M(0, "") "," M(1, "")), NULL},
        {SET(M(1, "")), "maps to this node"},
        {SET(M(0, ", 'priority': 0") "," M(1, "")), "is not electable"},
        {"{'_id': 'other', 'version': 1, 'members': [" M(0, "") "]}", "command line reports rs"},
        {"{'_id': 'rs', 'version': 2, 'members': [" M(0, "") "]}", "must have version 1"},
        {SETTINGS("{'replicaSetId': {'$oid': '000000000000000000000001'}}"), "replicaSetId"},
        {SET(M(0, "") "," M(1, ", 'newlyAdded': true")), "Cannot provide newlyAdded"},
        {SET(""), "contains 0 members"},
    };
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        CLEANUP(arena_done) Arena arena = {0};
        CLEANUP(error_reset) Error err = {0};
        Doc doc;
        REQUIRE_OK(doc_from_json(CASES[i].json, &arena, &doc, &err), err);
        CLEANUP(repl_config_unref_ptr) ReplConfig *config = NULL;
        ErrCode rc = repl_config_for_initiate(doc, "rs", "h0:1", &SET_ID, REPL_CONFIG_PARSE_DEFAULT,
                                              &config, &err);
        EXPECT_EQ_I64(rc, CASES[i].message ? ERR_INVALID_REPLICA_SET_CONFIG : ERR_OK);
        if (CASES[i].message != NULL && strstr(error_message(&err), CASES[i].message) == NULL)
            test_fail(__FILE__, __LINE__, "%s gives %s", CASES[i].json, error_message(&err));
        if (config != NULL) {
            EXPECT_EQ_I64(config->version, 1);
            EXPECT_EQ_I64(config->term, REPL_CONFIG_TERM_INITIAL);
            EXPECT(memcmp(&config->replica_set_id, &SET_ID, sizeof(Oid)) == 0);
        }
    }
}

#define V2(members) "{'_id': 'rs', 'version': 2, 'members': [" members "]}"

TEST(repl_reconfig_checks) {
    static const char OLD[] = SET(
        M(0, "") "," M(1, "") "," M(2, ", 'arbiterOnly': true") "," M(3, ", 'newlyAdded': true"));
#define REST M(1, "") "," M(2, ", 'arbiterOnly': true") "," M(3, "")
    static const struct {
        const char *json;
        bool is_force;
        int32_t code;
        const char *message;
    } CASES[] = {
        {V2(M(0, "") "," REST), false, 0, ""},
        {SET(M(0, "") "," REST), false, 103, "must be greater than old"},
        {SET(M(0, "") "," REST), true, 0, ""},
        {"{'_id': 'x', 'version': 2, 'members': [" M(0, "") "]}", false, 103, "set name"},
        {"{'_id': 'rs', 'version': 2, 'configsvr': true, 'members': [" M(0, "") "]}", false, 103,
         "configsvr"},
        {V2(REST), false, 103, "maps to this node"},
        {V2(REST), true, 103, "maps to this node"},
        {V2(M(0, ", 'priority': 0") "," REST), false, 103, "not electable"},
        {V2(M(0, ", 'priority': 0") "," REST), true, 0, ""},
        {V2(M(0, "") "," M(1, "") "," M(2, "") "," M(3, "")), false, 103, "arbiterOnly"},
        {V2(M(0, "") "," M(1, ", 'buildIndexes': false, 'priority': 0")), false, 103,
         "buildIndexes"},
        {V2(M(0, "") ", {'_id': 9, 'host': 'h1:1'}"), true, 103,
         "in the old configuration it is 1"},
        {V2(M(0, "")), false, 103, "at most 1 voting member"},
        {V2(M(0, "")), true, 0, ""},
        {V2(M(0, "") "," M(2, ", 'arbiterOnly': true")), false, 0, ""},
        /* A new voter is newlyAdded first, so it changes no majority. */
        {V2(M(0, "") "," REST "," M(4, "")), false, 0, ""},
        {V2(M(0, "") "," M(1, "") "," M(2, ", 'arbiterOnly': true") "," M(4, "") "," M(5, "")),
         false, 0, ""},
        {V2(M(0, "") ", {'_id': 1, 'host': 'new:1'}," M(2, ", 'arbiterOnly': true")), false, 0, ""},
        {V2(M(0, "") "," M(1, ", 'x': 1")), false, 93, "unknown field"},
    };
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        CLEANUP(arena_done) Arena arena = {0};
        CLEANUP(error_reset) Error err = {0};
        CLEANUP(repl_config_unref_ptr) ReplConfig *old_config = parse_ok(OLD);
        Doc doc;
        REQUIRE_OK(doc_from_json(CASES[i].json, &arena, &doc, &err), err);
        ReplReconfig reconfig = {.old_config = old_config,
                                 .self_host = "h0:1",
                                 .term = 5,
                                 .is_force = CASES[i].is_force,
                                 .marks_new_voters = true,
                                 .random = 123456789};
        CLEANUP(repl_config_unref_ptr) ReplConfig *config = NULL;
        ErrCode rc = repl_config_for_reconfig(doc, &reconfig, &config, &err);
        if ((int32_t)rc != CASES[i].code || strstr(error_message(&err), CASES[i].message) == NULL)
            test_fail(__FILE__, __LINE__, "%s gives %d %s", CASES[i].json, rc, error_message(&err));
        if (config == NULL)
            continue;
        EXPECT_EQ_I64(config->term, CASES[i].is_force ? REPL_CONFIG_TERM_NONE : 5);
        EXPECT(CASES[i].is_force ? config->version >= 10001 && config->version < 100003
                                 : config->version == 2);
        int32_t new_member = repl_config_find_host(config, "h4:1");
        if (new_member != REPL_INDEX_NONE)
            EXPECT(config->members[new_member].is_newly_added);
        int32_t old_new_member = repl_config_find_host(config, "h3:1");
        if (old_new_member != REPL_INDEX_NONE)
            EXPECT(config->members[old_new_member].is_newly_added == !CASES[i].is_force);
    }
}

/* ---- majorities and write concerns ---- */

TEST(repl_majorities_with_arbiters) {
    static const struct {
        const char *members;
        uint32_t majority, write_majority;
        bool is_default_majority;
    } CASES[] = {
        {SET(M(0, "")), 1, 1, true},
        {SET(M(0, "") "," M(1, "")), 2, 2, true},
        {SET(M(0, "") "," M(1, ", 'arbiterOnly': true")), 2, 1, false},
        {SET(M(0, "") "," M(1, "") "," M(2, ", 'arbiterOnly': true")), 2, 2, false},
        {SET(M(0, "") "," M(1, "") "," M(2, "") "," M(3, ", 'arbiterOnly': true")), 3, 3, false},
        {SET(M(0, "") "," M(1, "") "," M(2, "") "," M(3, "") "," M(4, ", 'arbiterOnly': true")), 3,
         3, true},
        {SET(M(0, "") "," M(1, ", 'votes': 0, 'priority': 0")), 1, 1, true},
    };
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        CLEANUP(repl_config_unref_ptr) ReplConfig *config = parse_ok(CASES[i].members);
        EXPECT_EQ_U64(config->majority_count, CASES[i].majority);
        EXPECT_EQ_U64(config->write_majority_count, CASES[i].write_majority);
        bool is_majority = repl_config_implicit_write_concern(config).kind == REPL_W_MAJORITY;
        EXPECT(is_majority == CASES[i].is_default_majority);
    }
}

TEST(repl_write_concerns) {
    CLEANUP(repl_config_unref_ptr)
    ReplConfig *config = parse_ok(
        "{'_id': 'rs', 'version': 1, 'members': ["
        "{'_id': 0, 'host': 'a', 'tags': {'dc': 'x', 'rack': '1'}},"
        "{'_id': 1, 'host': 'b', 'tags': {'dc': 'x', 'rack': '2'}},"
        "{'_id': 2, 'host': 'c', 'tags': {'dc': 'y'}},"
        "{'_id': 3, 'host': 'd', 'arbiterOnly': true},"
        "{'_id': 4, 'host': 'e', 'votes': 0, 'priority': 0}],"
        "'settings': {'getLastErrorModes': {'dcs': {'dc': 2}, 'both': {'dc': 1, 'rack': 2},"
        "'never': {'dc': 3}}}}");
    static const struct {
        ReplWriteConcern concern;
        int32_t code;          /* of the check */
        uint32_t reached_mask; /* members that have the entry */
        bool is_met;
    } CASES[] = {
        {{.kind = REPL_W_NUMBER, .number = 1}, 0, 0x1, true},
        {{.kind = REPL_W_NUMBER, .number = 2}, 0, 0x1, false},
        {{.kind = REPL_W_NUMBER, .number = 2}, 0, 0x9, false}, /* an arbiter does not count */
        {{.kind = REPL_W_NUMBER, .number = 2}, 0, 0x11, true}, /* a non-voter does */
        {{.kind = REPL_W_NUMBER, .number = 4}, 0, 0x17, true},
        {{.kind = REPL_W_NUMBER, .number = 5}, 100, 0x1f, false},
        {{.kind = REPL_W_MAJORITY}, 0, 0x3, false},
        {{.kind = REPL_W_MAJORITY}, 0, 0x13, false}, /* only voters */
        {{.kind = REPL_W_MAJORITY}, 0, 0x7, true},
        {{.kind = REPL_W_MODE, .mode = STR("dcs")}, 0, 0x3, false},
        {{.kind = REPL_W_MODE, .mode = STR("dcs")}, 0, 0x5, true},
        {{.kind = REPL_W_MODE, .mode = STR("both")}, 0, 0x5, false},
        {{.kind = REPL_W_MODE, .mode = STR("both")}, 0, 0x3, true},
        {{.kind = REPL_W_MODE, .mode = STR("never")}, 100, 0x1f, false},
        {{.kind = REPL_W_MODE, .mode = STR("nosuch")}, 79, 0x1f, false},
        {{.kind = REPL_W_MODE, .mode = STR("$votingMembers")}, 0, 0x3, false},
        {{.kind = REPL_W_MODE, .mode = STR("$votingMembers")}, 0, 0x7, true},
    };
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        CLEANUP(error_reset) Error err = {0};
        OpTime optimes[5];
        for (uint32_t k = 0; k < 5; k++)
            optimes[k] = (OpTime){((CASES[i].reached_mask >> k) & 1) ? 10 : 5, 1};
        EXPECT_EQ_I64(repl_config_check_write_concern(config, &CASES[i].concern, &err),
                      CASES[i].code);
        bool is_met =
            repl_config_is_concern_met(config, &CASES[i].concern, optimes, (OpTime){10, 1});
        if (is_met != CASES[i].is_met)
            test_fail(__FILE__, __LINE__, "write concern case %zu", i);
    }
    OpTime optimes[5] = {{30, 2}, {20, 2}, {90, 1}, {99, 9}, {99, 9}};
    OpTime majority = repl_config_majority_optime(config, optimes);
    EXPECT_EQ_I64(majority.term, 1);
    EXPECT_EQ_U64(majority.ts, 90);
}

TEST(repl_commit_quorums_count_members_that_build_indexes) {
    CLEANUP(repl_config_unref_ptr)
    ReplConfig *config = parse_ok(
        "{'_id': 'rs', 'version': 1, 'members': [{'_id': 0, 'host': 'a'}, {'_id': 1, 'host': 'b'},"
        "{'_id': 2, 'host': 'c', 'priority': 0, 'buildIndexes': false, 'tags': {'dc': 'x'}},"
        "{'_id': 3, 'host': 'd', 'votes': 0, 'priority': 0}],"
        "'settings': {'getLastErrorModes': {'dcs': {'dc': 1}}}}");
    static const struct {
        ReplWriteConcern quorum;
        int32_t code;
    } CASES[] = {
        {{.kind = REPL_W_NUMBER, .number = 3}, 0},
        {{.kind = REPL_W_NUMBER, .number = 4}, 100},
        {{.kind = REPL_W_MAJORITY}, 0},
        {{.kind = REPL_W_MODE, .mode = STR("$votingMembers")}, 100},
        {{.kind = REPL_W_MODE, .mode = STR("dcs")}, 100},
        {{.kind = REPL_W_MODE, .mode = STR("nosuch")}, 79},
    };
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        CLEANUP(error_reset) Error err = {0};
        EXPECT_EQ_I64(repl_config_check_commit_quorum(config, &CASES[i].quorum, &err),
                      CASES[i].code);
    }
}
