#include "catalog/test_ownership.h"

#include "base/alloc.h"
#include "base/arena.h"
#include "base/failpoint.h"

typedef struct TestFilter {
    OwnershipFilter base;
    Arena arena; /* paths */
    int64_t modulus;
    int64_t remainder;
} TestFilter;

static int64_t worth(Elem value) {
    if (elem_is_number(value))
        return elem_as_i64(value);
    int64_t sum = 0;
    if (elem_type(value) == BT_STRING)
        for (size_t i = 0; i < elem_str(value).size; i++)
            sum += (uint8_t)elem_str(value).data[i];
    return sum;
}

static bool test_owns(const OwnershipFilter *base, Doc doc) {
    const TestFilter *filter = (const TestFilter *)base;
    int64_t rest = 0;
    for (uint32_t i = 0; i < base->path_count; i++)
        rest += worth(doc_get_path(doc, base->paths[i].data)) % filter->modulus;
    rest %= filter->modulus;
    return (rest + filter->modulus) % filter->modulus == filter->remainder;
}

static void test_free(OwnershipFilter *base) {
    TestFilter *filter = (TestFilter *)base;
    arena_done(&filter->arena);
    xfree(filter);
}

static ErrCode make_filter(Doc data, OwnershipFilter **ret_filter, Error *err) {
    Elem paths = doc_get_lit(data, "paths"), modulus = doc_get_lit(data, "modulus");
    if (elem_type(paths) != BT_ARRAY || !elem_is_number(modulus) || elem_as_i64(modulus) < 1)
        return error_set(err, ERR_BAD_VALUE,
                         "failpoint \"testOwnership\" needs an array 'paths' and a 'modulus' > 0");
    TestFilter *filter = NEW(TestFilter);
    arena_init(&filter->arena, 256);
    filter->modulus = elem_as_i64(modulus);
    filter->remainder = elem_as_i64(doc_get_lit(data, "remainder"));
    Str *rows = ARENA_ARRAY(&filter->arena, Str, doc_count(elem_doc(paths)) + 1);
    uint32_t count = 0;
    DocIter iter = doc_iter(elem_doc(paths));
    for (Elem path; doc_iter_next(&iter, &path);)
        rows[count++] = str_from(arena_strdup(&filter->arena, elem_str(path).data));
    filter->base =
        (OwnershipFilter){.refs = 1, .paths = rows, .path_count = count, test_owns, test_free};
    *ret_filter = &filter->base;
    return ERR_OK;
}

static bool is_about(Doc data, const Ns *ns) {
    Elem list = doc_get_lit(data, "ns");
    if (elem_type(list) != BT_ARRAY)
        return false;
    DocIter iter = doc_iter(elem_doc(list));
    for (Elem name; doc_iter_next(&iter, &name);)
        if (elem_type(name) == BT_STRING && str_equal(elem_str(name), ns_str(ns)))
            return true;
    return false;
}

/* The failpoint's data, if it is on and about that collection; else DOC_NONE. To be freed. */
static Doc active_data(const CollAccess *access) {
    if (LIKELY(!atomic_load_explicit(&failpoint_armed[FP_TEST_OWNERSHIP], memory_order_relaxed)))
        return DOC_NONE;
    Doc data = {failpoint_config(FP_TEST_OWNERSHIP).data};
    /* Other collections do not count for {times: n} and {skip: n}. */
    if (doc_is_present(data) && is_about(data, &access->ns) &&
        failpoint_take_firing(FP_TEST_OWNERSHIP))
        return data;
    xfree((void *)data.data);
    return DOC_NONE;
}

static ErrCode refuse(Doc data, const char *name, const CollAccess *access, Error *err) {
    Elem code = doc_get(data, str_from(name));
    if (!elem_is_number(code))
        return ERR_OK;
    return error_set(err, (ErrCode)elem_as_i64(code), "%s of \"%s\" by failpoint \"testOwnership\"",
                     name, access->ns.text);
}

static ErrCode test_attach(void *arg, const CollAccess *access, OwnershipFilter **ret_filter,
                           Error *err) {
    (void)arg;
    Doc data = active_data(access);
    if (LIKELY(!doc_is_present(data)))
        return ERR_OK;
    ErrCode rc = refuse(data, "refuseAttach", access, err);
    if (rc == ERR_OK)
        rc = make_filter(data, ret_filter, err);
    xfree((void *)data.data);
    return rc;
}

static ErrCode test_restore(void *arg, const CollAccess *access, const OwnershipFilter *held,
                            OwnershipFilter **ret_filter, Error *err) {
    (void)arg, (void)held;
    Doc data = active_data(access);
    if (LIKELY(!doc_is_present(data)))
        return ERR_OK;
    ErrCode rc = refuse(data, "refuseRestore", access, err);
    if (rc == ERR_OK && elem_is_truthy(doc_get_lit(data, "isReplacing")))
        rc = make_filter(data, ret_filter, err);
    xfree((void *)data.data);
    return rc;
}

const AccessPolicy TEST_OWNERSHIP_POLICY = {.attach = test_attach, .restore = test_restore};
