#include "index/build/resume_doc.h"

#include <string.h>

#include "base/prng.h"
#include "base/test.h"
#include "bson/json.h"
#include "bson/validate.h"

static Doc built(const ResumeDoc *doc, Arena *arena) {
    Buffer *buf = ARENA_NEW(arena, Buffer);
    buffer_init_arena(buf, arena, 1024, BUFFER_UNBOUNDED);
    Error err = {0};
    ErrCode rc = resume_doc_build(doc, buf, &err);
    invariant(rc == ERR_OK);
    return (Doc){buf->data};
}

static ResumeDoc sample(Arena *arena, IndexBuildPhase phase, bool is_clustered) {
    ResumeDoc doc = {.build_uuid = uuid_new(),
                     .coll_uuid = uuid_new(),
                     .phase = phase,
                     .has_position = phase >= INDEX_BUILD_SCAN,
                     .position = record_id_num(12345678901),
                     .scanned_count = 77,
                     .indexes = ARENA_ARRAY(arena, ResumeIndex, 2),
                     .index_count = 2};
    if (is_clustered)
        doc.position = (RecordId){0, (const uint8_t *)"\x3C\0abc", 5};
    doc.indexes[0] = (ResumeIndex){.name = STR("a_1_b_1"),
                                   .ident = STR("index-1-2"),
                                   .side_writes = STR("internal-3-4"),
                                   .is_loaded = phase >= INDEX_BUILD_LOAD,
                                   .drained_count = 9,
                                   .is_multikey = true,
                                   .multikey_paths = {0, UINT32_MAX},
                                   .field_count = 2};
    doc.indexes[1] = (ResumeIndex){.name = STR("u"),
                                   .ident = STR("index-5-6"),
                                   .side_writes = STR("internal-7-8"),
                                   .duplicates = STR("internal-9-10"),
                                   .skipped = STR("internal-11-12"),
                                   .is_loaded = phase == INDEX_BUILD_DRAIN,
                                   .field_count = 1,
                                   .sorter = {.count = 1000}};
    if (phase == INDEX_BUILD_SCAN || phase == INDEX_BUILD_LOAD) {
        RunFileMark *runs = ARENA_ARRAY(arena, RunFileMark, 2);
        runs[0] = (RunFileMark){"index-5-6-abcdef", INT64_MAX, UINT32_MAX};
        runs[1] = (RunFileMark){"index-5-6-ghijkl", 0, 0};
        doc.indexes[1].sorter.runs = runs;
        doc.indexes[1].sorter.run_count = 2;
    }
    return doc;
}

TEST(a_resume_document_says_after_parsing_what_it_said_before) {
    for (int phase = INDEX_BUILD_INITIALIZED; phase <= INDEX_BUILD_DRAIN; phase++) {
        for (int is_clustered = 0; is_clustered < 2; is_clustered++) {
            Arena arena;
            arena_init(&arena, 4096);
            ResumeDoc doc = sample(&arena, (IndexBuildPhase)phase, is_clustered != 0), parsed;
            Doc first = built(&doc, &arena);
            Error err = {0};
            EXPECT_OK(resume_doc_parse(first, &arena, &parsed, &err), err);
            EXPECT(parsed.phase == doc.phase);
            EXPECT(uuid_equal(resume_doc_build_uuid(&parsed), &doc.build_uuid));
            EXPECT(parsed.has_position == doc.has_position);
            EXPECT_EQ_U64(parsed.indexes[0].multikey_paths[1], UINT32_MAX);
            EXPECT(doc_equal_bytes(built(&parsed, &arena), first));
            arena_done(&arena);
        }
    }
}

/* The document with one member replaced (or left out, by an empty text), at the top, in an index or
 * in a run. */
static Doc replaced(Doc doc, const char *name, Elem value, Arena *arena) {
    DocBuilder b = doc_builder_in_arena_sized(arena, 1024);
    DocIter iter = doc_iter(doc);
    Elem elem;
    while (doc_iter_next(&iter, &elem)) {
        if (strcmp(elem_name(elem), name) == 0) {
            if (elem_is_present(value))
                build_elem_as(&b, str_from(name), value);
        } else if (elem_type(elem) == BT_DOC) {
            build_doc(&b, elem_name(elem), replaced(elem_doc(elem), name, value, arena));
        } else if (elem_type(elem) == BT_ARRAY) {
            build_array(&b, elem_name(elem), replaced(elem_doc(elem), name, value, arena));
        } else {
            build_elem(&b, elem);
        }
    }
    return doc_builder_end(&b);
}

TEST(a_damaged_resume_document_is_refused) {
    static const struct {
        const char *name;
        const char *value; /* "": left out */
    } ROWS[] = {
        {"version", ""},
        {"version", "2"},
        {"version", "'1'"},
        {"buildUUID", ""},
        {"buildUUID", "'x'"},
        {"collectionUUID", "5"},
        {"phase", ""},
        {"phase", "''"},
        {"phase", "'commit'"},
        {"phase", "2"},
        {"phase", "'drain writes'"}, /* with an index that is not loaded */
        {"phase", "'initialized'"},  /* with one that is */
        {"position", "'x'"},
        {"position", "{'$binary': {'base64': '', 'subType': '00'}}"},
        {"scanned", ""},
        {"scanned", "{'$numberLong': '-1'}"},
        {"indexes", ""},
        {"indexes", "[]"},
        {"indexes", "{}"},
        {"indexes", "[1]"},
        {"name", ""},
        {"name", "''"},
        {"ident", "1"},
        {"ident", "'a\\u0000b'"},
        {"sideWrites", ""},
        {"duplicates", "''"},
        {"skipped", "true"},
        {"loaded", ""},
        {"loaded", "1"},
        {"loaded", "true"}, /* with runs */
        {"drained", "1.5"},
        {"multikey", "'yes'"},
        {"multikeyPaths", "{}"},
        {"multikeyPaths", "[true]"},
        {"multikeyPaths", "[{'$numberLong': '4294967296'}]"},
        {"keys", ""},
        {"runs", ""},
        {"runs", "[5]"},
        {"file", ""},
        {"file", "'../../etc/passwd'"},
        {"file", "'..'"},
        {"file", "'a-name-that-is-longer-than-the-names-that-are-given-to-the-files-of-any-sorter-"
                 "here'"},
        {"size", "{'$numberLong': '-5'}"},
        {"checksum", "{'$numberLong': '4294967296'}"},
    };
    for (size_t i = 0; i < ARRAY_LEN(ROWS); i++) {
        Arena arena;
        arena_init(&arena, 4096);
        ResumeDoc doc = sample(&arena, INDEX_BUILD_LOAD, false), parsed;
        Error err = {0};
        Elem value = {0};
        Doc holder;
        if (ROWS[i].value[0] != '\0') {
            char json[256];
            snprintf(json, sizeof(json), "{'v': %s}", ROWS[i].value);
            EXPECT_OK(doc_from_json(json, &arena, &holder, &err), err);
            value = doc_get_lit(holder, "v");
        }
        Doc damaged = replaced(built(&doc, &arena), ROWS[i].name, value, &arena);
        ErrCode rc = resume_doc_parse(damaged, &arena, &parsed, &err);
        if (rc != ERR_DATA_CORRUPTION_DETECTED)
            printf("row %zu: %s: %s\n", i, ROWS[i].name, ROWS[i].value);
        EXPECT(rc == ERR_DATA_CORRUPTION_DETECTED);
        error_reset(&err);
        arena_done(&arena);
    }
}

TEST(a_resume_document_with_any_byte_changed_is_parsed_or_refused) {
    Prng prng = prng_seeded(test_seed());
    for (int round = 0; round < 20000; round++) {
        Arena arena;
        arena_init(&arena, 8192);
        ResumeDoc doc = sample(&arena, INDEX_BUILD_LOAD, (round & 1) != 0), parsed;
        Doc bytes = built(&doc, &arena);
        size_t size = doc_size(bytes);
        uint8_t *copy = arena_memdup(&arena, bytes.data, size);
        copy[prng_below(&prng, size)] = (uint8_t)prng_u64(&prng);
        Error err = {0};
        if (doc_validate(copy, size, BSON_DEPTH_MAX, VALIDATE_BASIC, &err) == ERR_OK)
            (void)!resume_doc_parse((Doc){copy}, &arena, &parsed, &err);
        error_reset(&err);
        arena_done(&arena);
    }
}
