/*
 * request_test.c - a request that is parsed and built again is the same request.
 */
#include "request/request.h"

#include "base/alloc.h"
#include "base/prng.h"
#include "base/test.h"
#include "bson/compare.h"
#include "bson/json.h"
#include "bson/random_value_test.h"
#include "request/catalog_requests.h"
#include "request/generic_args.h"
#include "request/read_requests.h"
#include "request/write_requests.h"

enum {
    ROUNDS = 300,
};

static const struct {
    const char *name; /* of the command: its request begins with it. NULL: a part of one */
    const RequestSpec *spec;
} REQUESTS[] = {
    {"find", &FIND_REQUEST},
    {"getMore", &GET_MORE_REQUEST},
    {"killCursors", &KILL_CURSORS_REQUEST},
    {"count", &COUNT_REQUEST},
    {"distinct", &DISTINCT_REQUEST},
    {"aggregate", &AGGREGATE_REQUEST},
    {"explain", &EXPLAIN_REQUEST},
    {"insert", &INSERT_REQUEST},
    {"update", &UPDATE_REQUEST},
    {NULL, &UPDATE_STATEMENT},
    {"delete", &DELETE_REQUEST},
    {NULL, &DELETE_STATEMENT},
    {"findAndModify", &FIND_AND_MODIFY_REQUEST},
    {"commitTransaction", &COMMIT_TRANSACTION_REQUEST},
    {"abortTransaction", &ABORT_TRANSACTION_REQUEST},
    {"prepareTransaction", &PREPARE_TRANSACTION_REQUEST},
    {"create", &CREATE_REQUEST},
    {"createIndexes", &CREATE_INDEXES_REQUEST},
    {"collMod", &COLL_MOD_REQUEST},
    {"drop", &DROP_REQUEST},
    {"dropIndexes", &DROP_INDEXES_REQUEST},
    {"dropDatabase", &DROP_DATABASE_REQUEST},
    {"renameCollection", &RENAME_REQUEST},
    {"convertToCapped", &CONVERT_TO_CAPPED_REQUEST},
    {"listCollections", &LIST_COLLECTIONS_REQUEST},
    {"listIndexes", &LIST_INDEXES_REQUEST},
    {"listDatabases", &LIST_DATABASES_REQUEST},
    {"collStats", &COLL_STATS_REQUEST},
    {"dbStats", &DB_STATS_REQUEST},
    {"dataSize", &DATA_SIZE_REQUEST},
    {"validate", &VALIDATE_REQUEST},
    {"planCacheClear", &PLAN_CACHE_CLEAR_REQUEST},
    {NULL, &GENERIC_ARGS},
};

static void random_doc(DocBuilder *b, Prng *prng) {
    random_value(b, STR("v"), prng, (uint32_t)prng_below(prng, RANDOM_PLACES), 2);
}

static void random_field(DocBuilder *b, const FieldSpec *field, Prng *prng) {
    size_t opened;
    switch (field->type) {
    case FIELD_STRING:
    case FIELD_COLL:
    case FIELD_COLL_OR_UUID:
        if (field->type == FIELD_COLL_OR_UUID && prng_below(prng, 2) == 0)
            build_uuid(b, field->name, &(Uuid){{(uint8_t)prng_below(prng, 256), 1}});
        else
            build_cstr(b, field->name, prng_below(prng, 4) == 0 ? "" : "text");
        break;
    case FIELD_BOOL:
    case FIELD_BOOL_ELEM:
        build_bool(b, field->name, prng_below(prng, 2) == 0);
        break;
    case FIELD_I32:
    case FIELD_I64:
    case FIELD_COUNT:
        build_i64(b, field->name, (int64_t)prng_below(prng, 3));
        break;
    case FIELD_F64:
        build_f64(b, field->name, prng_unit(prng));
        break;
    case FIELD_DOC:
        opened = build_open_doc(b, field->name);
        random_doc(b, prng);
        build_close(b, opened);
        break;
    case FIELD_ARRAY:
    case FIELD_DOCS:
        opened = build_open_array(b, field->name);
        for (uint32_t i = 0, count = (uint32_t)prng_below(prng, 13); i < count; i++) {
            char name[INDEX_NAME_SIZE];
            size_t row = build_open_doc_str(b, index_name(i, name));
            random_doc(b, prng);
            build_close(b, row);
        }
        build_close(b, opened);
        break;
    case FIELD_ELEM:
        random_value(b, str_from(field->name), prng, (uint32_t)prng_below(prng, RANDOM_PLACES), 2);
        break;
    case FIELD_IGNORED:
        build_bool(b, field->name, true);
        break;
    case FIELD_REFUSED:
        break;
    }
}

/* Was the field given with a value that means something? A false or a zero means the same as
 * nothing, and what is ignored is not sent on. */
static bool is_told(const FieldSpec *field, Elem given) {
    bool is_number = field->type == FIELD_BOOL || field->type == FIELD_I32 ||
                     field->type == FIELD_I64 || field->type == FIELD_COUNT ||
                     field->type == FIELD_F64;
    if (!elem_is_present(given) || field->type == FIELD_IGNORED || field_is_absent(field, given))
        return false;
    return !is_number || elem_is_truthy(given);
}

static Doc random_request(const RequestSpec *spec, Arena *arena, Prng *prng) {
    DocBuilder b = doc_builder_in_arena(arena);
    for (size_t i = 0; i < spec->field_count; i++) {
        const FieldSpec *field = &spec->fields[i];
        bool is_alias =
            i > 0 && field->type != FIELD_IGNORED && field->offset == spec->fields[i - 1].offset;
        bool is_wanted = (field->flags & FIELD_REQUIRED) != 0 || prng_below(prng, 2) == 0;
        if (is_wanted && !is_alias)
            random_field(&b, field, prng);
    }
    return doc_builder_end(&b);
}

/* DOC_NONE when it does not parse. */
static Doc parse_and_build(const RequestSpec *spec, Doc doc, Arena *arena) {
    void *request = arena_zalloc(arena, spec->size);
    CLEANUP(error_reset) Error err = {0};
    if (request_parse(spec, "test", doc, arena, request, &err) != ERR_OK) {
        test_fail(__FILE__, __LINE__, "%s", error_message(&err));
        return DOC_NONE;
    }
    DocBuilder b = doc_builder_in_arena(arena);
    request_build(spec, request, &b);
    return doc_builder_end(&b);
}

TEST(rte_1_a_request_that_is_parsed_and_built_again_is_the_same) {
    Prng prng = prng_seeded(test_seed());
    for (size_t r = 0; r < ARRAY_LEN(REQUESTS); r++) {
        const RequestSpec *spec = REQUESTS[r].spec;
        for (int round = 0; round < ROUNDS; round++) {
            CLEANUP(arena_done) Arena arena = {0};
            Doc given = random_request(spec, &arena, &prng);
            Doc built = parse_and_build(spec, given, &arena);
            REQUIRE(doc_is_present(built));
            Doc again = parse_and_build(spec, built, &arena);
            REQUIRE(doc_is_present(again));
            EXPECT(doc_size(built) == doc_size(again));
            EXPECT(memcmp(built.data, again.data, doc_size(built)) == 0);
            for (size_t i = 0; i < spec->field_count; i++) {
                Elem before = doc_get(given, str_from(spec->fields[i].name));
                Elem after = doc_get(built, str_from(spec->fields[i].name));
                if (is_told(&spec->fields[i], before))
                    EXPECT(elem_is_present(after) && elem_equal(before, after, NULL));
                else if ((spec->fields[i].flags & FIELD_REQUIRED) == 0)
                    EXPECT(!elem_is_present(after));
            }
        }
    }
}

TEST(rte_1_a_built_request_begins_with_the_name_of_its_command) {
    for (size_t r = 0; r < ARRAY_LEN(REQUESTS); r++)
        if (REQUESTS[r].name != NULL)
            EXPECT(strcmp(REQUESTS[r].spec->fields[0].name, REQUESTS[r].name) == 0);
}

TEST(rte_1_documents_of_a_sequence_become_an_array) {
    CLEANUP(arena_done) Arena arena = {0};
    CLEANUP(error_reset) Error err = {0};
    Doc docs[2];
    REQUIRE(doc_from_json("{'a':1}", &arena, &docs[0], &err) == ERR_OK);
    REQUIRE(doc_from_json("{'a':2}", &arena, &docs[1], &err) == ERR_OK);
    InsertRequest request = {.coll = STR("c"), .documents = {docs, 2}};
    DocBuilder b = doc_builder_in_arena(&arena);
    request_build(&INSERT_REQUEST, &request, &b);
    Doc built = doc_builder_end(&b);
    EXPECT(doc_count(built) == 2);
    Doc array = elem_doc(doc_get_lit(built, "documents"));
    EXPECT(doc_count(array) == 2);
    EXPECT_EQ_I64(elem_as_i64(doc_get_path(elem_doc(doc_get_lit(array, "1")), "a")), 2);
}

TEST(crd_3_malformed_statements_are_refused_before_one_runs) {
    static const struct {
        const char *statement;
        bool is_update;
        int code;
    } CASES[] = {
        {"{'q':{},'u':1}", true, ERR_FAILED_TO_PARSE},
        {"{'q':{}}", true, LOCATION_MISSING_FIELD},
        {"{'q':{},'u':{},'x':1}", true, LOCATION_UNKNOWN_FIELD},
        {"{'q':{},'u':{},'c':{}}", true, 51198},
        {"{'q':{},'u':[],'upsertSupplied':true,'c':{'new':{}}}", true, ERR_FAILED_TO_PARSE},
        {"{'q':{},'u':[],'upsert':true,'upsertSupplied':true,'c':{'new':1}}", true,
         ERR_FAILED_TO_PARSE},
        {"{'q':{},'limit':2}", false, ERR_FAILED_TO_PARSE},
        {"{'q':{}}", false, LOCATION_MISSING_FIELD},
        {"{'q':1,'limit':0}", false, ERR_TYPE_MISMATCH},
    };
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        CLEANUP(arena_done) Arena arena = {0};
        CLEANUP(error_reset) Error err = {0};
        Doc doc;
        REQUIRE(doc_from_json(CASES[i].statement, &arena, &doc, &err) == ERR_OK);
        DocList list = {&doc, 1};
        UpdateStatement update = {0};
        DeleteStatement remove = {0};
        ErrCode rc = CASES[i].is_update ? update_statements_parse(&list, &arena, &update, &err)
                                        : delete_statements_parse(&list, &arena, &remove, &err);
        EXPECT_EQ_I64(rc, CASES[i].code);
    }
}
