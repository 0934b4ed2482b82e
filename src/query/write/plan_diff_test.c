/*
 * plan_diff_test.c - every plan finds what a scan finds.
 *
 * Goal (QRY-1, IDX-1): over random collections, sets of indexes and queries, the plan that the
 * planner picks, the plan by each index, and the counting plan give what a scan of the collection
 * with the whole filter gives; sorted results have the order of the sort keys.
 * Method: documents with values of all everyday types, arrays in arrays and holes; indexes of up to
 * three fields, on positions in arrays too, sparse, partial, hashed and wildcard ones and some with
 * a collation among them.
 *
 * SHERD_DIFF_TRIPLES: how many queries (100,000 unless a sanitizer runs).
 */
#include <stdlib.h>

#include "base/alloc.h"
#include "base/prng.h"
#include "bson/collator.h"
#include "bson/json.h"
#include "catalog/access.h"
#include "ddl/ddl.h"
#include "query/write/modify.h"
#include "query/plan/planner.h"
#include "storage/fixture_test.h"

enum {
    DOCS_PER_COLLECTION = 40,
    INDEXES_PER_COLLECTION = 5,
    QUERIES_PER_COLLECTION = 400,
#ifdef __SANITIZE_ADDRESS__
    TRIPLES_DEFAULT = 8000,
#elif defined(__SANITIZE_THREAD__)
    TRIPLES_DEFAULT = 2000,
#else
    TRIPLES_DEFAULT = 100000,
#endif
    ROWS_MAX = DOCS_PER_COLLECTION + 1,
};

typedef struct Diff {
    StorageFixture fx;
    Prng prng;
    Arena arena; /* of one collection */
    Ns ns;
    const Collator *collator; /* of some indexes and queries */
    Doc collation;
} Diff;

/* What a plan gave: documents in order, and their sort keys. */
typedef struct Rows {
    Doc docs[ROWS_MAX];
    Str keys[ROWS_MAX];
    uint32_t count;
    char plan[160];
} Rows;

static uint64_t below(Diff *d, uint64_t bound) {
    return prng_below(&d->prng, bound);
}

/* The first three are top-level fields; numbers are positions in arrays or names of fields. */
static const char *const FIELDS[] = {"a",     "b",     "c",     "d.x",   "d.y",   "a.0", "b.1",
                                     "a.0.x", "a.0.0", "d.0.x", "d.x.0", "a.0.1", "d"};

/* ---- documents ---- */

static void build_scalar(Diff *d, DocBuilder *b, const char *name) {
    static const char *const TEXTS[] = {"", "a", "ab", "abc", "B", "b", "c", "Ab"};
    switch (below(d, 14)) {
    case 0:
        build_null(b, name);
        break;
    case 1:
        build_f64(b, name, (double)below(d, 6) + 0.5);
        break;
    case 2:
        build_bool(b, name, below(d, 2) == 0);
        break;
    case 3:
        build_date(b, name, (int64_t)below(d, 5));
        break;
    case 4:
        build_f64(b, name, below(d, 2) == 0 ? __builtin_nan("") : -__builtin_inf());
        break;
    case 5:
        build_i64(b, name, (int64_t)below(d, 6));
        break;
    case 6:
    case 7:
    case 8:
    case 9:
        build_cstr(b, name, TEXTS[below(d, ARRAY_LEN(TEXTS))]);
        break;
    default:
        build_i32(b, name, (int32_t)below(d, 8));
    }
}

static void build_any(Diff *d, DocBuilder *b, const char *name, int depth) {
    uint64_t kind = depth > 1 ? 9 : below(d, 10);
    if (kind == 0) {
        size_t opened = build_open_array(b, name);
        uint32_t count = (uint32_t)below(d, 4);
        for (uint32_t i = 0; i < count; i++) {
            char index[INDEX_NAME_SIZE];
            build_any(d, b, index_name(i, index).data, depth + 1);
        }
        build_close(b, opened);
    } else if (kind == 1) {
        size_t opened = build_open_doc(b, name);
        if (below(d, 2) == 0)
            build_scalar(d, b, below(d, 6) != 0 ? "x" : below(d, 2) == 0 ? "0" : "1");
        build_close(b, opened);
    } else {
        build_scalar(d, b, name);
    }
}

/* What an index on a position keeps whole. */
static void build_array_of_arrays(Diff *d, DocBuilder *b, const char *name) {
    size_t outer = build_open_array(b, name);
    uint32_t count = 1 + (uint32_t)below(d, 2);
    for (uint32_t i = 0; i < count; i++) {
        char index[INDEX_NAME_SIZE];
        size_t inner = build_open_array(b, index_name(i, index).data);
        uint32_t inner_count = (uint32_t)below(d, 3);
        for (uint32_t j = 0; j < inner_count; j++)
            build_any(d, b, index_name(j, index).data, 1);
        build_close(b, inner);
    }
    build_close(b, outer);
}

static void build_nested(Diff *d, DocBuilder *b, const char *name) {
    size_t opened = build_open_doc(b, name);
    if (below(d, 4) != 0)
        build_any(d, b, "x", 1);
    if (below(d, 4) != 0)
        build_any(d, b, "y", 1);
    build_close(b, opened);
}

static DocBuilder begin(Diff *d) {
    Buffer *buf = ARENA_NEW(&d->arena, Buffer);
    buffer_init_arena(buf, &d->arena, 256, BUFFER_UNBOUNDED);
    DocBuilder b;
    doc_builder_init(&b, buf);
    return b;
}

static Doc random_doc(Diff *d, int32_t id, bool has_arrays) {
    DocBuilder b = begin(d);
    build_i32(&b, "_id", id);
    for (uint32_t f = 0; f < 3; f++) {
        if (below(d, 6) == 0)
            continue;
        if (has_arrays && below(d, 6) == 0)
            build_array_of_arrays(d, &b, FIELDS[f]);
        else if (has_arrays)
            build_any(d, &b, FIELDS[f], 0);
        else
            build_scalar(d, &b, FIELDS[f]);
    }
    if (below(d, 5) == 0) {
        build_scalar(d, &b, "d");
    } else if (has_arrays && below(d, 4) == 0) {
        size_t opened = build_open_array(&b, "d");
        build_nested(d, &b, "0");
        if (below(d, 2) == 0)
            build_nested(d, &b, "1");
        build_close(&b, opened);
    } else {
        build_nested(d, &b, "d");
    }
    return doc_builder_end(&b);
}

/* ---- queries ---- */

static void build_predicate(Diff *d, DocBuilder *b, const char *path);

static void build_values(Diff *d, DocBuilder *b, const char *name, uint32_t most) {
    size_t opened = build_open_array(b, name);
    uint32_t count = (uint32_t)below(d, most + 1);
    for (uint32_t i = 0; i < count; i++) {
        char index[INDEX_NAME_SIZE];
        build_any(d, b, index_name(i, index).data, 1);
    }
    build_close(b, opened);
}

/* One operator on the open document of a field. */
static void build_operator(Diff *d, DocBuilder *b, int depth) {
    static const char *const RANGES[] = {"$gt", "$gte", "$lt", "$lte"};
    static const char *const PATTERNS[] = {"^a", "^ab", "b", "^A", "^"};
    static const char *const TYPES[] = {"string", "number", "null", "date", "array", "object"};
    static const char *const ELEMENT_FIELDS[] = {"x", "x", "y", "0"};
    switch (below(d, 16)) {
    case 0:
        build_any(d, b, "$eq", 0);
        break;
    case 1:
        build_values(d, b, below(d, 4) == 0 ? "$nin" : "$in", 4);
        break;
    case 2:
        build_any(d, b, "$ne", 0);
        break;
    case 3:
        build_bool(b, "$exists", below(d, 2) == 0);
        break;
    case 4:
        build_cstr(b, "$type", TYPES[below(d, ARRAY_LEN(TYPES))]);
        break;
    case 5:
        build_cstr(b, "$regex", PATTERNS[below(d, ARRAY_LEN(PATTERNS))]);
        break;
    case 6:
        build_i32(b, "$size", (int32_t)below(d, 3));
        break;
    case 7: {
        size_t opened = build_open_array(b, "$mod");
        build_i32(b, "0", 2);
        build_i32(b, "1", (int32_t)below(d, 2));
        build_close(b, opened);
        break;
    }
    case 8:
        if (depth < 2) {
            size_t opened = build_open_doc(b, "$elemMatch");
            if (below(d, 2) == 0)
                build_predicate(d, b, ELEMENT_FIELDS[below(d, ARRAY_LEN(ELEMENT_FIELDS))]);
            else
                build_operator(d, b, depth + 1);
            build_close(b, opened);
            break;
        }
        /* fall through */
    case 9:
        if (depth < 2) {
            size_t opened = build_open_doc(b, "$not");
            build_operator(d, b, depth + 1);
            build_close(b, opened);
            break;
        }
        /* fall through */
    case 10:
        build_values(d, b, "$all", 2);
        break;
    default: {
        uint64_t range = below(d, ARRAY_LEN(RANGES));
        build_scalar(d, b, RANGES[range]);
        if (below(d, 3) == 0)
            build_scalar(d, b, RANGES[(range + 2) % ARRAY_LEN(RANGES)]);
    }
    }
}

static void build_predicate(Diff *d, DocBuilder *b, const char *path) {
    if (below(d, 3) == 0) {
        build_any(d, b, path, 0);
        return;
    }
    size_t opened = build_open_doc(b, path);
    build_operator(d, b, 0);
    build_close(b, opened);
}

static void build_filter(Diff *d, DocBuilder *b, int depth) {
    static const char *const LOGICAL[] = {"$or", "$or", "$and", "$nor"};
    uint32_t count = 1 + (uint32_t)below(d, 3);
    uint32_t used = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t field = (uint32_t)below(d, ARRAY_LEN(FIELDS));
        if ((used >> field & 1) != 0)
            continue;
        used |= 1u << field;
        build_predicate(d, b, FIELDS[field]);
    }
    if (depth < 2 && below(d, 4) == 0) {
        size_t opened = build_open_array(b, LOGICAL[below(d, ARRAY_LEN(LOGICAL))]);
        uint32_t branches = 1 + (uint32_t)below(d, 3);
        for (uint32_t i = 0; i < branches; i++) {
            char index[INDEX_NAME_SIZE];
            size_t branch = build_open_doc_str(b, index_name(i, index));
            build_filter(d, b, depth + 1);
            build_close(b, branch);
        }
        build_close(b, opened);
    }
}

static Doc random_filter(Diff *d) {
    DocBuilder b = begin(d);
    build_filter(d, &b, 0);
    return doc_builder_end(&b);
}

static Doc random_sort(Diff *d) {
    DocBuilder b = begin(d);
    uint32_t first = (uint32_t)below(d, ARRAY_LEN(FIELDS) - 1);
    build_i32(&b, FIELDS[first], below(d, 2) == 0 ? 1 : -1);
    uint32_t second = (uint32_t)below(d, ARRAY_LEN(FIELDS) - 1);
    if (second != first && below(d, 2) == 0)
        build_i32(&b, FIELDS[second], below(d, 2) == 0 ? 1 : -1);
    return doc_builder_end(&b);
}

static Doc random_projection(Diff *d) {
    DocBuilder b = begin(d);
    if (below(d, 4) == 0) { /* null in other fields does not matter then */
        build_i32(&b, "_id", 1);
        return doc_builder_end(&b);
    }
    build_i32(&b, "_id", 0);
    uint32_t first = (uint32_t)below(d, ARRAY_LEN(FIELDS) - 1);
    build_i32(&b, FIELDS[first], 1);
    uint32_t second = (uint32_t)below(d, 3);
    if (second != first && below(d, 2) == 0)
        build_i32(&b, FIELDS[second], 1);
    return doc_builder_end(&b);
}

/* ---- collections ---- */

/* All fields or some, alone or behind one that the wildcard does not reach. */
static Doc random_wildcard(Diff *d, uint32_t number) {
    DocBuilder b = begin(d);
    size_t key = build_open_doc(&b, "key");
    int32_t direction = below(d, 3) == 0 ? -1 : 1;
    uint64_t kind = below(d, 5);
    if (kind == 0)
        build_i32(&b, "a", below(d, 2) == 0 ? -1 : 1);
    build_i32(&b, kind == 0 || kind == 1 ? "d.$**" : "$**", direction);
    build_close(&b, key);
    char name[16];
    snprintf(name, sizeof(name), "i%u", number);
    build_cstr(&b, "name", name);
    if (kind == 2) {
        size_t projection = build_open_doc(&b, "wildcardProjection");
        build_i32(&b, "a", 1);
        build_i32(&b, "d.x", 1);
        build_close(&b, projection);
    } else if (kind == 3) {
        size_t projection = build_open_doc(&b, "wildcardProjection");
        build_i32(&b, "b", 0);
        build_i32(&b, "d.y", 0);
        build_close(&b, projection);
    }
    if (below(d, 4) == 0)
        build_doc(&b, "collation", d->collation);
    return doc_builder_end(&b);
}

static Doc random_index(Diff *d, uint32_t number) {
    if (below(d, 5) == 0)
        return random_wildcard(d, number);
    DocBuilder b = begin(d);
    size_t key = build_open_doc(&b, "key");
    bool is_hashed = below(d, 5) == 0;
    uint32_t count = 1 + (uint32_t)below(d, 3), used = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t field = (uint32_t)below(d, ARRAY_LEN(FIELDS));
        bool is_d_clash = FIELDS[field][0] == 'd' && (used >> 3) != 0;
        if ((used >> field & 1) != 0 || is_d_clash)
            continue;
        used |= 1u << field;
        if (is_hashed && (i == 0 || below(d, 2) == 0)) {
            build_cstr(&b, FIELDS[field], "hashed");
            is_hashed = false;
        } else {
            build_i32(&b, FIELDS[field], below(d, 3) == 0 ? -1 : 1);
        }
    }
    build_close(&b, key);
    char name[16];
    snprintf(name, sizeof(name), "i%u", number);
    build_cstr(&b, "name", name);
    uint64_t kind = below(d, 8);
    if (kind == 0) {
        build_bool(&b, "sparse", true);
    } else if (kind == 1) {
        size_t partial = build_open_doc(&b, "partialFilterExpression");
        size_t field = build_open_doc(&b, FIELDS[below(d, 3)]);
        if (below(d, 2) == 0)
            build_i32(&b, "$gt", 2);
        else
            build_bool(&b, "$exists", true);
        build_close(&b, field);
        build_close(&b, partial);
    } else if (kind == 2) {
        build_doc(&b, "collation", d->collation);
    }
    return doc_builder_end(&b);
}

static void ignore_error(void *arg, uint32_t index, const Error *err) {
    (void)arg, (void)index, (void)err; /* parallel arrays, ambiguous positions: left out */
}

static void make_collection(Diff *d, uint32_t number) {
    char full[32];
    snprintf(full, sizeof(full), "diff.c%u", number);
    Error err = {0};
    EXPECT_OK(ns_parse(str_from(full), &d->ns, &err), err);
    EXPECT_OK(ddl_create_collection(d->fx.op, &d->ns, DOC_EMPTY, NULL, &err), err);
    Doc specs[INDEXES_PER_COLLECTION];
    for (uint32_t i = 0; i < INDEXES_PER_COLLECTION; i++) {
        specs[i] = random_index(d, i);
        CreateIndexesResult result;
        /* The same key twice is refused: then there is one index less. */
        if (ddl_create_indexes(d->fx.op, &d->ns, &specs[i], 1, &result, &err) != ERR_OK)
            error_reset(&err);
    }
    Doc docs[DOCS_PER_COLLECTION];
    bool has_arrays = below(d, 2) == 0;
    for (uint32_t i = 0; i < DOCS_PER_COLLECTION; i++)
        docs[i] = random_doc(d, (int32_t)i, has_arrays);
    int64_t inserted;
    EXPECT_OK(exec_insert(d->fx.op, &d->ns, docs, DOCS_PER_COLLECTION, /* is_ordered= */ false,
                          /* is_validation_bypassed= */ false, ignore_error, NULL, &inserted, &err),
              err);
}

/* ---- comparing ---- */

static int compare_names(const void *a, const void *b) {
    return strcmp(elem_name(*(const Elem *)a), elem_name(*(const Elem *)b));
}

/* With its fields in the order of their names: keys of an index have an order of their own. And
 * without null, which they have in place of missing fields, if that is a projection. */
static Doc canonical(Diff *d, Doc doc, bool is_projected) {
    Elem elems[16];
    uint32_t count = 0;
    DocIter iter = doc_iter(doc);
    while (count < ARRAY_LEN(elems) && doc_iter_next(&iter, &elems[count]))
        count++;
    qsort(elems, count, sizeof(elems[0]), compare_names);
    DocBuilder b = begin(d);
    for (uint32_t i = 0; i < count; i++) {
        if (elem_type(elems[i]) == BT_DOC) {
            Doc below = canonical(d, elem_doc(elems[i]), is_projected);
            if (!is_projected || !doc_is_empty(below))
                build_doc(&b, elem_name(elems[i]), below);
        } else if (!is_projected || elem_type(elems[i]) != BT_NULL) {
            build_elem(&b, elems[i]);
        }
    }
    return doc_builder_end(&b);
}

static int compare_docs(const void *a, const void *b) {
    const Doc *x = a, *y = b;
    uint32_t size = doc_size(*x) < doc_size(*y) ? doc_size(*x) : doc_size(*y);
    int rc = memcmp(x->data, y->data, size);
    return rc != 0 ? rc : (int)doc_size(*x) - (int)doc_size(*y);
}

/* False: the query is refused (a bad plan would still be one that runs). */
static ErrCode run(Diff *d, const QuerySpec *spec, Rows *rows, Error *err) {
    rows->count = 0;
    CLEANUP(access_done) CollAccess access = {0};
    TRY(access_read(d->fx.op, &d->ns, &access, err));
    CLEANUP(executor_free_ptr) PlanExecutor *exec = NULL;
    TRY(plan_query(&access, spec, &exec, err));
    snprintf(rows->plan, sizeof(rows->plan), "%s", exec->summary);
    KeyBuilder key;
    key_builder_init_arena(&key, &d->arena);
    for (;;) {
        bool is_found;
        PlanRow row;
        TRY(executor_next(exec, &is_found, &row, err));
        if (!is_found || rows->count == ROWS_MAX)
            return ERR_OK;
        if (exec->sort != NULL && !doc_is_present(spec->projection)) {
            TRY(sort_key_make(exec->sort, row.doc, exec->collator, &key, err));
            rows->keys[rows->count] =
                (Str){arena_memdup(&d->arena, key.key.data, key.key.size), key.key.size};
        }
        rows->docs[rows->count++] = canonical(d, row.doc, doc_is_present(spec->projection));
    }
}

static void compare(Diff *d, const QuerySpec *spec, Rows *scanned, Rows *found, uint64_t number) {
    bool is_same = scanned->count == found->count;
    if (doc_is_present(spec->sort) && !doc_is_present(spec->projection))
        for (uint32_t i = 0; is_same && i < found->count; i++)
            is_same = str_equal(scanned->keys[i], found->keys[i]);
    if (!spec->is_count) {
        qsort(scanned->docs, scanned->count, sizeof(Doc), compare_docs);
        qsort(found->docs, found->count, sizeof(Doc), compare_docs);
        for (uint32_t i = 0; is_same && i < found->count; i++)
            is_same = compare_docs(&scanned->docs[i], &found->docs[i]) == 0;
    }
    if (is_same)
        return;
    Doc sort = doc_is_present(spec->sort) ? spec->sort : DOC_EMPTY;
    Doc projection = doc_is_present(spec->projection) ? spec->projection : DOC_EMPTY;
    test_fail(__FILE__, __LINE__,
              "seed %llu, query %llu: %s finds %u, a scan %u; filter %s, sort %s, projection %s",
              (unsigned long long)test_seed(), (unsigned long long)number, found->plan,
              found->count, scanned->count, shell_text_of_doc(spec->filter, &d->arena),
              shell_text_of_doc(sort, &d->arena), shell_text_of_doc(projection, &d->arena));
}

/* May be missing documents by design: a hint on it is the user's own risk. */
static bool is_complete(const Collection *coll, uint32_t i) {
    const IndexDesc *index = coll->indexes[i];
    return !index->is_sparse && index->partial_filter == NULL;
}

/* A hint on a wildcard index that has no path of the filter is refused. */
static bool is_refused(const Collection *coll, uint32_t i, ErrCode rc) {
    return coll->indexes[i]->kind == INDEX_KIND_WILDCARD && rc == ERR_NO_QUERY_EXECUTION_PLANS;
}

static void try_query(Diff *d, uint64_t number) {
    QuerySpec spec = {.filter = random_filter(d),
                      .sort = below(d, 3) == 0 ? random_sort(d) : DOC_NONE,
                      .projection = below(d, 3) == 0 ? random_projection(d) : DOC_NONE,
                      .has_collation = true,
                      .collator = below(d, 5) == 0 ? d->collator : NULL,
                      .sort_memory_bytes = 1 << 20,
                      .yields = {.period_us = 1000000}};
    DocBuilder b = begin(d);
    size_t natural = build_open_doc(&b, "hint");
    build_i32(&b, "$natural", 1);
    build_close(&b, natural);
    Doc hints = doc_builder_end(&b);
    QuerySpec by_scan = spec;
    by_scan.hint = doc_get_lit(hints, "hint");
    static Rows scanned, found;
    Error err = {0};
    ErrCode rc = run(d, &by_scan, &scanned, &err);
    if (rc != ERR_OK) { /* sorts by two arrays, malformed operators: refused by every plan alike */
        error_reset(&err);
        return;
    }
    EXPECT_OK(run(d, &spec, &found, &err), err);
    compare(d, &spec, &scanned, &found, number);
    if (below(d, 4) == 0) { /* once more, by what was remembered */
        EXPECT_OK(run(d, &spec, &found, &err), err);
        compare(d, &spec, &scanned, &found, number);
    }

    QuerySpec count = spec;
    count.sort = count.projection = DOC_NONE;
    count.is_count = true;
    EXPECT_OK(run(d, &count, &found, &err), err);
    compare(d, &count, &scanned, &found, number);

    Catalog *catalog = catalog_acquire(d->fx.service.catalog);
    const Collection *coll = catalog_find(catalog, &d->ns);
    for (uint32_t i = 0; i < coll->index_count; i++) {
        if (!is_complete(coll, i))
            continue;
        DocBuilder h = begin(d);
        build_cstr(&h, "hint", coll->indexes[i]->name);
        QuerySpec hinted = spec;
        hinted.hint = doc_get_lit(doc_builder_end(&h), "hint");
        rc = run(d, &hinted, &found, &err);
        if (is_refused(coll, i, rc)) {
            error_reset(&err);
            continue;
        }
        EXPECT_OK(rc, err);
        compare(d, &hinted, &scanned, &found, number);
    }
    catalog_release(catalog);
}

TEST(every_plan_finds_what_a_scan_finds) {
    Diff d = {.prng = prng_seeded(test_seed())};
    fixture_init(&d.fx);
    Error err = {0};
    CatalogService *service = NULL;
    EXPECT_OK(catalog_service_open(d.fx.op, CATALOG_UNFINISHED_DISCARD, &service, &err), err);
    Arena constant;
    arena_init(&constant, 1024);
    DocBuilder b = doc_builder_in_arena(&constant);
    build_cstr(&b, "locale", "en");
    build_i32(&b, "strength", 2);
    d.collation = doc_builder_end(&b);
    EXPECT_OK(collator_parse(d.collation, &d.collator, &err), err);

    const char *wanted = getenv("SHERD_DIFF_TRIPLES");
    uint64_t triples = wanted != NULL ? strtoull(wanted, NULL, 10) : TRIPLES_DEFAULT;
    uint64_t done = 0;
    for (uint32_t number = 0; done < triples; number++) {
        arena_init(&d.arena, 64 * 1024);
        make_collection(&d, number);
        Arena collection = d.arena;
        for (uint32_t q = 0; q < QUERIES_PER_COLLECTION && done < triples; q++) {
            arena_init(&d.arena, 64 * 1024);
            try_query(&d, done++);
            arena_done(&d.arena);
            arena_reset(&d.fx.op->arena);
        }
        arena_done(&collection);
        DropResult dropped;
        EXPECT_OK(ddl_drop(d.fx.op, &d.ns, NULL, &dropped, &err), err);
        (void)storage_reap_idents(d.fx.engine);
    }
    catalog_service_free(d.fx.service.catalog);
    d.fx.service.catalog = NULL;
    arena_done(&constant);
    fixture_close(&d.fx);
}
