/*
 * spill_test.c - $group and $bucketAuto with more than fits in memory: the same results as with
 * plenty of it.
 */
#include "base/alloc.h"
#include "base/prng.h"
#include "base/test.h"
#include "query/agg/pipeline_cases_test.h"
#include "query/sort/memory_spill_test.h"

enum {
    DOC_COUNT = 6000,
    KEY_COUNT = 1500,
};

/* {k: random, n: sequence, s: text} */
static Doc *make_docs(Arena *arena) {
    Prng prng = prng_seeded(test_seed());
    Doc *docs = ARENA_ARRAY(arena, Doc, DOC_COUNT);
    for (int i = 0; i < DOC_COUNT; i++) {
        Buffer buf;
        buffer_init_arena(&buf, arena, 128, BUFFER_UNBOUNDED);
        DocBuilder b;
        doc_builder_init(&b, &buf);
        int32_t key = (int32_t)prng_below(&prng, KEY_COUNT);
        /* Equal numbers of different types are one group. */
        if (i % 2 == 0)
            build_i32(&b, "k", key);
        else
            build_f64(&b, "k", key);
        build_i32(&b, "n", i);
        build_cstr(&b, "s", arena_printf(arena, "text-%d", (int)prng_below(&prng, 100000)));
        docs[i] = doc_builder_end(&b);
    }
    return docs;
}

/* The results as one array; *ret_rc when it failed. */
static Doc results_of(const char *json, const Doc *docs, size_t memory_bytes, const Spill *spill,
                      Arena *arena, ErrCode *ret_rc) {
    CLEANUP(error_reset) Error err = {0};
    AggParseContext parse = {0};
    AggExecContext ctx = {
        .stage_memory_bytes = memory_bytes, .allow_disk_use = spill != NULL, .spill = spill};
    Pipeline *pipeline = NULL;
    EXPECT_OK(pipeline_parse(pipeline_test_array(json, arena), &parse, arena, &pipeline, &err),
              err);
    DocArraySource source = {.docs = docs, .count = DOC_COUNT};
    CLEANUP(pipeline_exec_free_ptr) PipelineExec *exec = NULL;
    EXPECT_OK(pipeline_exec_new(pipeline, doc_array_source(&source), &ctx, &exec, &err), err);
    Buffer buf;
    buffer_init_arena(&buf, arena, 1 << 16, BUFFER_UNBOUNDED);
    DocBuilder b;
    doc_builder_init(&b, &buf);
    *ret_rc = ERR_OK;
    for (uint32_t i = 0;; i++) {
        bool found = false;
        Doc doc;
        *ret_rc = pipeline_exec_next(exec, &found, &doc, &err);
        if (*ret_rc != ERR_OK || !found)
            break;
        char name[INDEX_NAME_SIZE];
        build_value_as(&b, index_name(i, name), value_doc(doc));
    }
    return doc_builder_end(&b);
}

#define WINDOW(output) "[{'$setWindowFields':{'sortBy':{'n':1},'output':" output "}}]"

/* The last $sort brings both results into one order; its memory does not spill. */
TEST(what_is_spilled_gives_the_results_of_what_is_not) {
    static const char *const PIPELINES[] = {
        "[{'$group':{'_id':'$k','n':{'$sum':1},'m':{'$avg':'$n'}}},{'$sort':{'_id':1}}]",
        "[{'$group':{'_id':{'a':'$k','b':'$s'},'n':{'$sum':'$n'}}},{'$sort':{'_id':1}}]",
        "[{'$group':{'_id':'$k','l':{'$push':'$n'}}},{'$sort':{'_id':1}}]",
        "[{'$group':{'_id':'$k','f':{'$first':'$s'},'l':{'$last':'$s'},'m':{'$max':'$s'}}},"
        "{'$sort':{'_id':1}}]",
        "[{'$group':{'_id':'$k','t':{'$topN':{'n':2,'sortBy':{'s':1},'output':'$n'}}}},"
        "{'$sort':{'_id':1}}]",
        "[{'$bucketAuto':{'groupBy':'$k','buckets':7,'output':{'n':{'$sum':1},'l':{'$last':'$n'}}}"
        "}]",
        "[{'$bucketAuto':{'groupBy':'$s','buckets':3}}]",
        WINDOW("{'r':{'$sum':'$n','window':{'documents':['unbounded',900]}}}"),
        WINDOW("{'r':{'$max':'$s','window':{'documents':[-200,300]}},"
               "'f':{'$first':'$s','window':{'documents':[-400,-300]}}}"),
        WINDOW("{'r':{'$lastN':{'n':3,'input':'$s'},'window':{'range':[-500,700]}},"
               "'s':{'$shift':{'by':250,'output':'$s'}},'k':{'$rank':{}}}"),
    };
    Arena arena;
    arena_init(&arena, 0);
    const Doc *docs = make_docs(&arena);
    for (size_t i = 0; i < ARRAY_LEN(PIPELINES); i++) {
        ErrCode rc;
        Doc expected = results_of(PIPELINES[i], docs, 0, NULL, &arena, &rc);
        EXPECT(rc == ERR_OK);
        static const size_t LIMITS[] = {40000, 60000, 200000};
        for (size_t j = 0; j < ARRAY_LEN(LIMITS); j++) {
            MemorySpill memory = {0};
            Spill spill = memory_spill_interface(&memory);
            Doc actual = results_of(PIPELINES[i], docs, LIMITS[j], &spill, &arena, &rc);
            EXPECT(memory.count > 0);
            if (rc != ERR_OK || !doc_equal_bytes(expected, actual))
                test_fail(__FILE__, __LINE__, "%s with %zu bytes: %d", PIPELINES[i], LIMITS[j],
                          (int)rc);
            spill_free(&memory);
        }
    }
    arena_done(&arena);
}

TEST(a_stage_without_disk_stops_at_its_limit) {
    Arena arena;
    arena_init(&arena, 0);
    const Doc *docs = make_docs(&arena);
    ErrCode rc;
    results_of("[{'$group':{'_id':'$k'}}]", docs, 20000, NULL, &arena, &rc);
    EXPECT(rc == ERR_QUERY_EXCEEDED_MEMORY_LIMIT_NO_DISK_USE_ALLOWED);
    results_of("[{'$bucketAuto':{'groupBy':'$k','buckets':2}}]", docs, 20000, NULL, &arena, &rc);
    EXPECT(rc == ERR_QUERY_EXCEEDED_MEMORY_LIMIT_NO_DISK_USE_ALLOWED);
    /* One group that is too large by itself does not fit on any level. */
    MemorySpill memory = {0};
    Spill spill = memory_spill_interface(&memory);
    results_of("[{'$group':{'_id':null,'l':{'$push':'$s'}}}]", docs, 20000, &spill, &arena, &rc);
    EXPECT(rc == ERR_EXCEEDED_MEMORY_LIMIT);
    spill_free(&memory);
    arena_done(&arena);
}
