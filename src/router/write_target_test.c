/*
 * write_target_test.c - a statement that writes goes to one shard, to several, or is refused.
 */
#include "router/write_target.h"

#include "sharding/meta/map_of_test.h"

/* A (..0) B [0..10) C [10..) */
static ChunkMap *map_of_k(const char *pattern) {
    return map_of(pattern, (const char *const[]){"{'k': 0}", "{'k': 10}", NULL});
}

/* "A", "all", or the code of the refusal. */
static const char *text_of(const ChunkMap *map, ErrCode rc, const WriteTarget *target,
                           Arena *arena) {
    if (rc != ERR_OK)
        return arena_printf(arena, "%d", (int)rc);
    return target->is_single ? chunk_map_shard_name(map, target->shard).data : "all";
}

static void expect_update(const ChunkMap *map, Doc collation, const char *json,
                          const char *expected) {
    CLEANUP(arena_done) Arena arena = {0};
    CLEANUP(error_reset) Error err = {0};
    CLEANUP(write_targeter_done) WriteTargeter targeter = {0};
    REQUIRE_OK(write_targeter_init(&targeter, map, collation, &err), err);
    Doc row = test_query(json, &arena);
    DocList list = {&row, 1};
    UpdateStatement statement = {0};
    REQUIRE_OK(update_statements_parse(&list, &arena, &statement, &err), err);
    WriteTarget target = {0};
    ErrCode rc = write_target_update(&targeter, &statement, &target, &err);
    const char *found = text_of(map, rc, &target, &arena);
    if (strcmp(found, expected) != 0)
        test_fail(__FILE__, __LINE__, "%s goes to %s, expected %s", json, found, expected);
}

static void expect_delete(const ChunkMap *map, const char *json, const char *expected) {
    CLEANUP(arena_done) Arena arena = {0};
    CLEANUP(error_reset) Error err = {0};
    CLEANUP(write_targeter_done) WriteTargeter targeter = {0};
    REQUIRE_OK(write_targeter_init(&targeter, map, DOC_NONE, &err), err);
    Doc row = test_query(json, &arena);
    DocList list = {&row, 1};
    DeleteStatement statement = {0};
    REQUIRE_OK(delete_statements_parse(&list, &arena, &statement, &err), err);
    WriteTarget target = {0};
    ErrCode rc = write_target_delete(&targeter, &statement, &target, &err);
    const char *found = text_of(map, rc, &target, &arena);
    if (strcmp(found, expected) != 0)
        test_fail(__FILE__, __LINE__, "%s goes to %s, expected %s", json, found, expected);
}

TEST(updates_go_to_the_shards_of_their_filter) {
    CLEANUP(map_unref) ChunkMap *map = map_of_k("{'k': 1}");
    static const struct {
        const char *update, *target;
    } CASES[] = {
        {"{'q': {'k': 5}, 'u': {'$set': {'a': 1}}}", "B"},
        {"{'q': {'k': {'$gt': 10}}, 'u': {'$set': {'a': 1}}}", "C"},
        {"{'q': {'k': {'$gt': 5}}, 'u': {'$set': {'a': 1}}}", "72"},
        {"{'q': {}, 'u': {'$set': {'a': 1}}}", "72"},
        {"{'q': {'%expr': true}, 'u': {'$set': {'a': 1}}}", "72"},
        {"{'q': {'k': 5, '%expr': true}, 'u': [{'$set': {'a': 1}}]}", "B"},
        {"{'q': {'k': {'$in': []}}, 'u': {'$set': {'a': 1}}}", "A"}, /* nowhere: so anywhere */
        /* By _id: everywhere. */
        {"{'q': {'_id': 1}, 'u': {'$set': {'a': 1}}}", "all"},
        {"{'q': {'_id': {'$eq': 1}, 'a': 2}, 'u': [{'$set': {'a': 1}}]}", "all"},
        {"{'q': {'_id': 1, 'k': {'$lt': 5}}, 'u': {'$set': {'a': 1}}}", "all"},
        {"{'q': {'_id': {'$gt': 1}}, 'u': {'$set': {'a': 1}}}", "72"},
        {"{'q': {'_id': 1}, 'u': {'$set': {'a': 1}}, 'collation': {'locale': 'en'}}", "72"},
        /* Many documents. */
        {"{'q': {}, 'u': {'$set': {'a': 1}}, 'multi': true}", "all"},
        {"{'q': {'k': {'$lt': 5}}, 'u': {'$set': {'a': 1}}, 'multi': true}", "all"},
        {"{'q': {'k': 5}, 'u': {'$set': {'a': 1}}, 'multi': true}", "B"},
        /* Upserts. */
        {"{'q': {'k': 5}, 'u': {'$set': {'a': 1}}, 'upsert': true}", "B"},
        {"{'q': {'k': null}, 'u': {'$set': {'a': 1}}, 'upsert': true}", "A"},
        {"{'q': {'k': {'$gt': 10}}, 'u': {'$set': {'a': 1}}, 'upsert': true}", "61"},
        {"{'q': {'_id': 1}, 'u': {'$set': {'a': 1}}, 'upsert': true}", "61"},
        {"{'q': {'_id': 1}, 'u': {'k': 5}, 'upsert': true}", "61"},
        {"{'q': {}, 'u': {'$set': {'a': 1}}, 'upsert': true, 'multi': true}", "61"},
        /* Replacements. */
        {"{'q': {'k': 5}, 'u': {'k': 15}}", "B"},
        {"{'q': {'_id': 1}, 'u': {'k': 15}}", "C"},
        {"{'q': {'a': 1}, 'u': {'k': 5, 'a': 2}}", "B"},
        {"{'q': {'a': 1}, 'u': {}}", "A"},
        {"{'q': {'a': 1}, 'u': {'k': [1]}}", "72"},
        {"{'q': {'_id': 1}, 'u': {'k': [1]}}", "all"},
        {"{'q': {'k': 5}, 'u': {'k': 5}, 'multi': true}", "72"},
    };
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++)
        expect_update(map, DOC_NONE, CASES[i].update, CASES[i].target);
}

TEST(text_under_the_default_collation_names_no_shard) {
    CLEANUP(arena_done) Arena arena = {0};
    CLEANUP(map_unref)
    ChunkMap *map = map_of("{'k': 1}", (const char *const[]){"{'k': 'm'}", NULL});
    Doc collation = test_doc("{'locale': 'en'}", &arena);
    expect_update(map, collation, "{'q': {'k': 'a'}, 'u': {'$set': {'a': 1}}}", "72");
    expect_update(map, collation, "{'q': {'_id': 'a'}, 'u': {'$set': {'a': 1}}}", "all");
    expect_update(map, collation,
                  "{'q': {'k': 'a'}, 'u': {'$set': {'a': 1}}, 'collation': {'locale': 'simple'}}",
                  "A");
    expect_update(map, collation, "{'q': {'k': 'a'}, 'u': {'$set': {'a': 1}}, 'multi': true}",
                  "all");
}

TEST(an_id_that_is_part_of_the_key_is_not_taken_from_a_replacement_without_it) {
    CLEANUP(map_unref)
    ChunkMap *map = map_of("{'_id': 1}", (const char *const[]){"{'_id': 0}", NULL});
    expect_update(map, DOC_NONE, "{'q': {'a': 1}, 'u': {'a': 2}}", "72");
    expect_update(map, DOC_NONE, "{'q': {'a': 1}, 'u': {'_id': 5}}", "B");
}

TEST(deletes_go_to_the_shards_of_their_filter) {
    CLEANUP(map_unref) ChunkMap *map = map_of_k("{'k': 1}");
    expect_delete(map, "{'q': {'k': 5}, 'limit': 1}", "B");
    expect_delete(map, "{'q': {'k': {'$lt': 0}}, 'limit': 1}", "A");
    expect_delete(map, "{'q': {'_id': 5}, 'limit': 1}", "all");
    expect_delete(map, "{'q': {'a': 5}, 'limit': 1}", "61");
    expect_delete(map, "{'q': {'a': 5}, 'limit': 0}", "all");
    expect_delete(map, "{'q': {'k': {'$gte': 0, '$lt': 11}}, 'limit': 0}", "all");
    expect_delete(map, "{'q': {'$or': 5}, 'limit': 0}", "2");
}

TEST(inserts_go_where_their_key_belongs) {
    CLEANUP(arena_done) Arena arena = {0};
    CLEANUP(error_reset) Error err = {0};
    CLEANUP(map_unref)
    ChunkMap *map = map_of("{'a.b': 1, 'c': 1}", (const char *const[]){"{'a.b': 0, 'c': 0}", NULL});
    CLEANUP(write_targeter_done) WriteTargeter targeter = {0};
    REQUIRE_OK(write_targeter_init(&targeter, map, DOC_NONE, &err), err);
    static const struct {
        const char *doc, *target;
    } CASES[] = {
        {"{'a': {'b': -1}, 'c': 9}", "A"},
        {"{'a': {'b': 0}, 'c': -1}", "A"},
        {"{'a': {'b': 0}, 'c': 0}", "B"},
        {"{'a': {'b': 'x'}}", "B"},
        {"{}", "A"},
        {"{'a': [{'b': 1}]}", "61"},
        {"{'a': {'b': [1]}}", "61"},
    };
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        WriteTarget target = {0};
        ErrCode rc = write_target_insert(&targeter, test_doc(CASES[i].doc, &arena), &target, &err);
        EXPECT_STR(text_of(map, rc, &target, &arena), CASES[i].target);
    }
}

TEST(find_and_modify_goes_to_one_shard) {
    CLEANUP(arena_done) Arena arena = {0};
    CLEANUP(error_reset) Error err = {0};
    CLEANUP(map_unref) ChunkMap *map = map_of_k("{'k': 1}");
    CLEANUP(write_targeter_done) WriteTargeter targeter = {0};
    REQUIRE_OK(write_targeter_init(&targeter, map, DOC_NONE, &err), err);
    static const struct {
        const char *query, *target;
        bool is_upsert;
    } CASES[] = {
        {"{'k': 5}", "B", true},
        {"{'k': {'$eq': 15}, 'a': 1}", "C", true},
        {"{'k': null}", "A", true},
        {"{'_id': 5}", "61", false},
        {"{'k': {'$gt': 10}}", "C", false},
        {"{'k': {'$gt': 10}}", "61", true},
        {"{'k': {'$gt': 5}}", "61", false},
        {"{'k': {'$in': []}}", "A", false}, /* nowhere: so anywhere */
        {"{}", "61", false},
    };
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        FindAndModifyRequest request = {.query = test_query(CASES[i].query, &arena),
                                        .is_upsert = CASES[i].is_upsert};
        WriteTarget target = {.is_single = true};
        ErrCode rc = write_target_modify(&targeter, &request, &target.shard, &err);
        EXPECT_STR(text_of(map, rc, &target, &arena), CASES[i].target);
    }
}
