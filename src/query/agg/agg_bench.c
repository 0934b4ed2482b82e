/*
 * agg_bench.c - what a document costs in $group, $project, $sort and $setWindowFields, and in the
 * parts of a pipeline over several shards.
 *
 *     agg_bench [documents]
 *
 * Documents have about 300 bytes in 12 fields. Prints nanoseconds per document, the best of several
 * runs.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/prng.h"
#include "bson/json.h"
#include "query/agg/pipeline.h"
#include "query/agg/sorted_merge.h"

enum {
    RUNS = 5,
    DOCS_DEFAULT = 200000,
    DOCS_SORTED = 1000000,
};

static Doc *make_docs(uint32_t count, Buffer *buf) {
    Prng prng = prng_seeded(42);
    size_t *offsets = xmalloc(count * sizeof(*offsets));
    for (uint32_t i = 0; i < count; i++) {
        offsets[i] = buf->size;
        DocBuilder b;
        doc_builder_init(&b, buf);
        Oid oid = {{0}};
        memcpy(oid.bytes, &i, sizeof(i));
        build_oid(&b, "_id", &oid);
        build_i32(&b, "customer", (int32_t)prng_below(&prng, 1000));
        build_cstr(&b, "status", i % 3 == 0 ? "open" : "closed");
        build_f64(&b, "amount", (double)prng_below(&prng, 100000) / 100);
        build_i32(&b, "quantity", (int32_t)prng_below(&prng, 100));
        build_date(&b, "created", 1600000000000 + i);
        build_cstr(&b, "address", "12 Long Street, Some Town, Some County, Some Country");
        build_cstr(&b, "comment", "a comment with some words in it to make the document larger");
        build_i64(&b, "version", 1);
        build_cstr(&b, "country", i % 7 == 0 ? "de" : "fr");
        build_bool(&b, "paid", i % 2 == 0);
        build_i32(&b, "random", (int32_t)prng_u64(&prng));
        doc_builder_end(&b);
    }
    Doc *docs = xmalloc(count * sizeof(*docs));
    for (uint32_t i = 0; i < count; i++)
        docs[i] = (Doc){buf->data + offsets[i]};
    xfree(offsets);
    return docs;
}

static void measure(const char *what, const char *json, const Doc *docs, uint32_t count) {
    CLEANUP(arena_done) Arena arena = {0};
    CLEANUP(error_reset) Error err = {0};
    AggParseContext parse_ctx = {.is_internal = true};
    AggExecContext exec_ctx = {.stage_memory_bytes = (size_t)4 << 30};
    Doc wrapped;
    Pipeline *pipeline;
    invariant(doc_from_json(json, &arena, &wrapped, &err) == ERR_OK);
    Doc stages = elem_doc(doc_get_lit(wrapped, "p"));
    invariant(pipeline_parse(stages, &parse_ctx, &arena, &pipeline, &err) == ERR_OK);
    pipeline_optimize(pipeline);
    int64_t best_us = INT64_MAX;
    for (int run = 0; run < RUNS; run++) {
        int64_t start_us = clock_thread_cpu_us();
        DocArraySource source = {.docs = docs, .count = count};
        PipelineExec *exec = NULL;
        invariant(pipeline_exec_new(pipeline, doc_array_source(&source), &exec_ctx, &exec, &err) ==
                  ERR_OK);
        for (bool found = true; found;) {
            Doc doc;
            invariant(pipeline_exec_next(exec, &found, &doc, &err) == ERR_OK);
        }
        pipeline_exec_free(exec);
        int64_t took_us = clock_thread_cpu_us() - start_us;
        best_us = took_us < best_us ? took_us : best_us;
    }
    printf("%-34s %7.1f ns/document %9.1f ms\n", what, (double)best_us * 1000 / count,
           (double)best_us / 1000);
}

/* Documents that carry keys, as from several shards. */
static void measure_merge(const char *what, const Doc *docs, uint32_t count) {
    enum { SOURCES = 8 };
    Prng prng = prng_seeded(42);
    Buffer buf;
    Buffer one;
    buffer_init(&buf, BUFFER_UNBOUNDED);
    buffer_init(&one, BUFFER_UNBOUNDED);
    size_t *offsets = xmalloc(count * sizeof(*offsets));
    Doc *keyed = xmalloc(count * sizeof(*keyed));
    uint64_t number = 0;
    for (uint32_t i = 0; i < count; i++) {
        Error err = {0};
        Doc doc;
        number = i % (count / SOURCES) == 0 ? 0 : number + prng_below(&prng, 1000);
        uint64_t key = __builtin_bswap64(number);
        Str bytes = {(const char *)&key, sizeof(key)};
        invariant(sort_key_attach(docs[i], bytes, &one, &doc, &err) == ERR_OK);
        offsets[i] = buf.size;
        buffer_append(&buf, doc.data, doc_size(doc));
    }
    for (uint32_t i = 0; i < count; i++)
        keyed[i] = (Doc){buf.data + offsets[i]};
    int64_t best_us = INT64_MAX;
    for (int run = 0; run < RUNS; run++) {
        CLEANUP(error_reset) Error err = {0};
        int64_t start_us = clock_thread_cpu_us();
        DocArraySource arrays[SOURCES];
        DocSource sources[SOURCES];
        for (uint32_t i = 0; i < SOURCES; i++) {
            arrays[i] =
                (DocArraySource){.docs = keyed + i * (count / SOURCES), .count = count / SOURCES};
            sources[i] = doc_array_source(&arrays[i]);
        }
        CLEANUP(sorted_merge_free_ptr) SortedMerge *merge = sorted_merge_new(sources, SOURCES);
        DocSource merged = sorted_merge_source(merge);
        for (bool found = true; found;) {
            Doc doc;
            invariant(merged.next(merged.arg, &found, &doc, &err) == ERR_OK);
        }
        int64_t took_us = clock_thread_cpu_us() - start_us;
        best_us = took_us < best_us ? took_us : best_us;
    }
    printf("%-34s %7.1f ns/document %9.1f ms\n", what, (double)best_us * 1000 / count,
           (double)best_us / 1000);
    xfree(keyed);
    xfree(offsets);
    buffer_done(&one);
    buffer_done(&buf);
}

int main(int argc, char **argv) {
    uint32_t count = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : DOCS_DEFAULT;
    Buffer buf;
    buffer_init(&buf, BUFFER_UNBOUNDED);
    Doc *docs = make_docs(count, &buf);
    printf("%u documents of %u bytes\n", count, doc_size(docs[0]));
    measure("group by int, count", "{'p':[{'$group':{'_id':'$customer','n':{'$sum':1}}}]}", docs,
            count);
    measure("group by string, sum of doubles",
            "{'p':[{'$group':{'_id':'$status','n':{'$sum':'$amount'}}}]}", docs, count);
    measure("group all, sum and avg",
            "{'p':[{'$group':{'_id':null,'n':{'$sum':'$quantity'},'a':{'$avg':'$amount'}}}]}", docs,
            count);
    measure("group by two fields",
            "{'p':[{'$group':{'_id':{'c':'$customer','s':'$status'},'n':{'$sum':1}}}]}", docs,
            count);
    measure("project 2 fields", "{'p':[{'$project':{'customer':1,'amount':1}}]}", docs, count);
    measure("project 1 computed",
            "{'p':[{'$project':{'t':{'$multiply':['$amount','$quantity']}}}]}", docs, count);
    measure("exclude 1 field", "{'p':[{'$project':{'comment':0}}]}", docs, count);
    measure("add 1 field", "{'p':[{'$addFields':{'t':{'$add':['$quantity',1]}}}]}", docs, count);
    measure("match and count", "{'p':[{'$match':{'customer':{'$lt':500}}},{'$count':'n'}]}", docs,
            count);
    measure("sort, limit 10", "{'p':[{'$sort':{'random':1}},{'$limit':10}]}", docs, count);
    measure("sort all", "{'p':[{'$sort':{'random':1}}]}", docs, count);
    measure("day in a time zone",
            "{'p':[{'$project':{'d':{'$dateTrunc':{'date':'$created','unit':'day','timezone':"
            "'Europe/Berlin'}}}}]}",
            docs, count);
    measure("date as text in a time zone",
            "{'p':[{'$project':{'d':{'$dateToString':{'date':'$created','timezone':"
            "'Europe/Berlin'}}}}]}",
            docs, count);
    measure("running total",
            "{'p':[{'$setWindowFields':{'sortBy':{'created':1},'output':{'t':{'$sum':'$quantity',"
            "'window':{'documents':['unbounded',0]}}}}}]}",
            docs, count);
    measure("average of 100 documents",
            "{'p':[{'$setWindowFields':{'sortBy':{'created':1},'output':{'t':{'$avg':'$amount',"
            "'window':{'documents':[-99,0]}}}}}]}",
            docs, count);
    measure("maximum of 100 documents",
            "{'p':[{'$setWindowFields':{'sortBy':{'created':1},'output':{'t':{'$max':'$amount',"
            "'window':{'documents':[-99,0]}}}}}]}",
            docs, count);
    measure("rank in partitions",
            "{'p':[{'$setWindowFields':{'partitionBy':'$customer','sortBy':{'amount':1},"
            "'output':{'t':{'$rank':{}}}}}]}",
            docs, count);
    measure("partials of as many groups",
            "{'p':[{'$group':{'_id':'$_id','n':{'$sum':'$amount'},'$willBeMerged':true}}]}", docs,
            count);
    measure("groups of one document", "{'p':[{'$group':{'_id':'$_id','n':{'$sum':'$amount'}}}]}",
            docs, count);
    measure("add sort keys", "{'p':[{'$_internalAddSortKey':{'created':1}}]}", docs, count);
    measure_merge("merge 8 sorted sources", docs, count);
    xfree(docs);
    if (argc == 1) {
        buffer_clear(&buf);
        docs = make_docs(DOCS_SORTED, &buf);
        measure("sort 1,000,000", "{'p':[{'$sort':{'random':1}}]}", docs, DOCS_SORTED);
        xfree(docs);
    }
    buffer_done(&buf);
    return 0;
}
