/*
 * event_test.c - what deltas and entries look like as events.
 */
#include "change_stream/event.h"

#include "base/test.h"
#include "bson/json_docs_test.h"
#include "change_stream/description.h"

static const struct {
    const char *delta;
    /* updatedFields, removedFields, truncatedArrays, disambiguatedPaths; NULL: refused */
    const char *updated;
    const char *removed;
    const char *truncated;
    const char *paths;
} DESCRIPTIONS[] = {
    {"{'u': {'a': 2}, 'i': {'b': 3}}", "{'a': 2, 'b': 3}", "[]", "[]", "{}"},
    {"{'d': {'x': false, 'y': false}}", "{}", "['x', 'y']", "[]", "{}"},
    {"{'ss': {'d': {'a': false}, 'u': {'b': 1}}}", "{'s.b': 1}", "['s.a']", "[]", "{}"},
    {"{'ss': {'a': true, 'l': 2, 'u1': 7, 's0': {'u': {'x': 1}}}}", "{'s.1': 7, 's.0.x': 1}", "[]",
     "[{'field': 's', 'newSize': 2}]", "{}"},
    /* A name with a dot, and a name that looks like an index. */
    {"{'u': {'a.b': 1}}", "{'a.b': 1}", "[]", "[]", "{'a.b': ['a.b']}"},
    {"{'so': {'u': {'0': 1}}, 'sl': {'a': true, 's3': {'u': {'1': 2}}}}", "{'o.0': 1, 'l.3.1': 2}",
     "[]", "[]", "{'o.0': ['o', '0'], 'l.3.1': ['l', 3, '1']}"},
    {"{'u': {'0': 1}}", "{'0': 1}", "[]", "[]", "{}"},
    {"{'x': 1}", NULL, NULL, NULL, NULL},
    {"{'u': 1}", NULL, NULL, NULL, NULL},
    {"{'sa': 1}", NULL, NULL, NULL, NULL},
    {"{'sa': {'a': true, 'ux': 1}}", NULL, NULL, NULL, NULL},
};

TEST(deltas_become_descriptions_of_updates) {
    for (size_t i = 0; i < ARRAY_LEN(DESCRIPTIONS); i++) {
        CLEANUP(arena_done) Arena arena = {0};
        CLEANUP(error_reset) Error err = {0};
        DocBuilder b = doc_builder_in_arena(&arena);
        Doc delta = test_doc(DESCRIPTIONS[i].delta, &arena);
        ErrCode rc = description_build(&b, delta, /* is_expanded= */ true, &arena, &err);
        if (DESCRIPTIONS[i].updated == NULL) {
            EXPECT_EQ_I64(rc, ERR_FAILED_TO_PARSE);
            continue;
        }
        const char *expected = arena_printf(
            &arena,
            "{'updateDescription': {'updatedFields': %s, 'removedFields': %s, 'truncatedArrays': "
            "%s, 'disambiguatedPaths': %s}}",
            DESCRIPTIONS[i].updated, DESCRIPTIONS[i].removed, DESCRIPTIONS[i].truncated,
            DESCRIPTIONS[i].paths);
        EXPECT_STR(test_json(doc_builder_end(&b), &arena),
                   test_json(test_doc(expected, &arena), &arena));
    }
}

static const struct {
    const char *entry;
    ChangeKind kind;
    const char *coll;
} CHANGES[] = {
    {"{'op': 'i', 'ns': 'd.c', 'o': {'_id': 1}, 'o2': {'_id': 1}}", CHANGE_INSERT, "c"},
    {"{'op': 'i', 'ns': 'd.c', 'fromMigrate': true, 'o': {'_id': 1}, 'o2': {'_id': 1}}",
     CHANGE_NONE, "c"},
    {"{'op': 'u', 'ns': 'd.c', 'o': {'_id': 1, 'a': 1}, 'o2': {'_id': 1}}", CHANGE_REPLACE, "c"},
    {"{'op': 'd', 'ns': 'd.c.x', 'o': {'_id': 1}}", CHANGE_DELETE, "c.x"},
    {"{'op': 'n', 'ns': '', 'o': {'msg': 'x'}}", CHANGE_NONE, ""},
    {"{'op': 'c', 'ns': 'd.$cmd', 'o': {'drop': 'c'}}", CHANGE_DROP, "c"},
    {"{'op': 'c', 'ns': 'd.$cmd', 'o': {'renameCollection': 'd.a', 'to': 'd.b'}}", CHANGE_RENAME,
     "a"},
    {"{'op': 'c', 'ns': 'd.$cmd', 'o': {'dropDatabase': 1}}", CHANGE_DROP_DATABASE, ""},
    {"{'op': 'c', 'ns': 'd.$cmd', 'o': {'startIndexBuild': 'c'}}", CHANGE_NONE, "c"},
    {"{'op': 'c', 'ns': 'd.$cmd', 'o': {'commitIndexBuild': 'c', 'indexes': []}}",
     CHANGE_CREATE_INDEXES, "c"},
    {"{'op': 'c', 'ns': 'd.$cmd', 'o': {'drop': 5}}", CHANGE_NONE, "$cmd"},
    {"{'op': 'c', 'ns': 'd.$cmd', 'o': {}}", CHANGE_NONE, "$cmd"},
    {"{'op': 'i', 'ns': 'd.system.views', 'o': {'_id': 'd.v', 'viewOn': 'c'}, 'o2': {'_id': "
     "'d.v'}}",
     CHANGE_CREATE, "v"},
    {"{'op': 'd', 'ns': 'd.system.views', 'o': {'_id': 'd.v'}}", CHANGE_DROP, "v"},
};

TEST(entries_are_read_as_the_changes_they_are) {
    for (size_t i = 0; i < ARRAY_LEN(CHANGES); i++) {
        CLEANUP(arena_done) Arena arena = {0};
        StreamChange change;
        change_read(test_doc(CHANGES[i].entry, &arena), /* shows_views= */ true, &change);
        EXPECT_EQ_I64(change.kind, CHANGES[i].kind);
        EXPECT(str_is(change.coll, CHANGES[i].coll));
    }
}

static const struct {
    StreamScope scope;
    const char *entry;
    bool is_taken;
} SCOPES[] = {
    {SCOPE_COLLECTION, "{'op': 'd', 'ns': 'd.c', 'o': {'_id': 1}}", true},
    {SCOPE_COLLECTION, "{'op': 'd', 'ns': 'd.cc', 'o': {'_id': 1}}", false},
    {SCOPE_COLLECTION, "{'op': 'd', 'ns': 'dd.c', 'o': {'_id': 1}}", false},
    {SCOPE_COLLECTION, "{'op': 'c', 'ns': 'd.$cmd', 'o': {'renameCollection': 'd.x', 'to': 'd.c'}}",
     true},
    {SCOPE_COLLECTION, "{'op': 'c', 'ns': 'd.$cmd', 'o': {'dropDatabase': 1}}", true},
    {SCOPE_COLLECTION, "{'op': 'c', 'ns': 'd.$cmd', 'o': {'create': 'c'}}", false},
    {SCOPE_DATABASE, "{'op': 'd', 'ns': 'd.x', 'o': {'_id': 1}}", true},
    {SCOPE_DATABASE, "{'op': 'd', 'ns': 'd.system.js', 'o': {'_id': 1}}", false},
    {SCOPE_DATABASE, "{'op': 'd', 'ns': 'd.systems', 'o': {'_id': 1}}", true},
    {SCOPE_CLUSTER, "{'op': 'd', 'ns': 'x.x', 'o': {'_id': 1}}", true},
    {SCOPE_CLUSTER, "{'op': 'd', 'ns': 'config.x', 'o': {'_id': 1}}", false},
    {SCOPE_CLUSTER, "{'op': 'd', 'ns': 'configs.x', 'o': {'_id': 1}}", true},
    {SCOPE_DATABASE,
     "{'op': 'c', 'ns': 'admin.$cmd', 'o': {'applyOps': [{'op': 'd', 'ns': 'x.x', 'o': {'_id': "
     "1}}, {'op': 'd', 'ns': 'd.x', 'o': {'_id': 1}}]}}",
     true},
    {SCOPE_DATABASE,
     "{'op': 'c', 'ns': 'admin.$cmd', 'o': {'applyOps': [{'op': 'd', 'ns': 'd.x', 'o': {'_id': "
     "1}}], 'partialTxn': true}}",
     false},
    {SCOPE_DATABASE,
     "{'op': 'c', 'ns': 'admin.$cmd', 'o': {'applyOps': [{'op': 'd', 'ns': 'd.x', 'o': {'_id': "
     "1}}], 'prepare': true}}",
     false},
    {SCOPE_DATABASE, "{'op': 'c', 'ns': 'admin.$cmd', 'o': {'commitTransaction': 1}}", true},
    {SCOPE_DATABASE, "{'op': 'c', 'ns': 'admin.$cmd', 'o': {'abortTransaction': 1}}", false},
    {SCOPE_COLLECTION,
     "{'op': 'c', 'ns': 'd.$cmd', 'o': {'dropDatabase': 1}, 'o2': {'collections': {'c': 1}}}",
     true},
    {SCOPE_COLLECTION,
     "{'op': 'c', 'ns': 'd.$cmd', 'o': {'dropDatabase': 1}, 'o2': {'collections': {'x': 1}}}",
     false},
};

#define MARK(ns, o2)      "{'op': 'n', 'ns': '" ns "', 'o': {'msg': 1}, 'o2': " o2 "}"
#define VERSION(last_mod) "{'lastMod': " #last_mod ", 'uuid': 1, 'timestamp': 5}"

static const struct {
    StreamScope scope;
    const char *entry;
    bool is_taken;
} MARKS[] = {
    {SCOPE_COLLECTION, MARK("d.c", "{'shardCollection': 'd.c'}"), true},
    {SCOPE_COLLECTION, MARK("d.x", "{'shardCollection': 'd.x'}"), false},
    {SCOPE_DATABASE, MARK("d.x", "{'shardCollection': 'd.x'}"), true},
    {SCOPE_DATABASE, MARK("x.c", "{'shardCollection': 'x.c'}"), false},
    {SCOPE_COLLECTION, MARK("d.$cmd", "{'movePrimary': 'd', 'databaseVersion': " VERSION(3) "}"),
     true},
    {SCOPE_DATABASE, MARK("d.$cmd", "{'dropDatabase': 'd', 'databaseVersion': " VERSION(3) "}"),
     true},
    {SCOPE_DATABASE, MARK("d.$cmd", "{'dropDatabase': 'd', 'databaseVersion': " VERSION(2) "}"),
     false},
    {SCOPE_DATABASE, MARK("x.$cmd", "{'movePrimary': 'x', 'databaseVersion': " VERSION(3) "}"),
     false},
    {SCOPE_DATABASE, MARK("d.c", "{'other': 'd.c'}"), false},
    {SCOPE_DATABASE, MARK("", "{}"), false},
};

TEST(marks_of_shards_end_streams_of_routers_alone) {
    CLEANUP(error_reset) Error err = {0};
    for (size_t i = 0; i < ARRAY_LEN(MARKS); i++) {
        CLEANUP(arena_done) Arena arena = {0};
        Doc entry = test_doc(MARKS[i].entry, &arena);
        StreamFilter filter = {.scope = MARKS[i].scope};
        REQUIRE_OK(ns_make(STR("d"), STR("c"), &filter.ns, &err), err);
        EXPECT(!filter_may_concern(&filter, entry));
        filter.database_version = test_doc("{'uuid': 1, 'timestamp': 5, 'lastMod': 3}", &arena);
        if (filter_may_concern(&filter, entry) != MARKS[i].is_taken)
            test_fail(__FILE__, __LINE__, "%s", MARKS[i].entry);
    }
}

TEST(raw_entries_are_judged_by_the_scope_of_a_stream) {
    CLEANUP(error_reset) Error err = {0};
    for (size_t i = 0; i < ARRAY_LEN(SCOPES); i++) {
        CLEANUP(arena_done) Arena arena = {0};
        StreamFilter filter = {.scope = SCOPES[i].scope};
        REQUIRE_OK(ns_make(STR("d"), STR("c"), &filter.ns, &err), err);
        bool is_taken = filter_may_concern(&filter, test_doc(SCOPES[i].entry, &arena));
        if (is_taken != SCOPES[i].is_taken)
            test_fail(__FILE__, __LINE__, "%s", SCOPES[i].entry);
    }
}
