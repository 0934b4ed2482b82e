/*
 * access_policy_test.c - how several policies compose, and how long their filters live.
 *
 * Method: policies that write down when they are asked and answer as told, over a collection that
 * does not exist: nothing here depends on documents.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/list.h"
#include "catalog/access_policy.h"
#include "storage/fixture_test.h"

/* Owns documents whose first member is its own number. */
typedef struct FakeFilter {
    OwnershipFilter base;
    int *live;
    int32_t number;
} FakeFilter;

typedef struct FakePolicy {
    ErrCode write_code; /* answers */
    ReadSource source;
    ErrCode attach_code;
    ErrCode restore_code;
    int32_t filter_number;  /* 0: none */
    int32_t replace_number; /* 0: keeps it */
    const Str *paths;
    int write_count; /* how often it was asked */
    int attach_count;
    int restore_count;
    int live; /* its filters that are not freed yet */
} FakePolicy;

typedef struct Policies {
    StorageFixture fx;
    Ns ns;
    FakePolicy rows[2];
} Policies;

static const Str PATH_K[] = {{"k", 1}};
static const Str PATH_J[] = {{"j", 1}};

static bool fake_owns(const OwnershipFilter *base, Doc doc) {
    DocIter iter = doc_iter(doc);
    Elem first = ELEM_MISSING;
    return doc_iter_next(&iter, &first) &&
           elem_as_i64(first) % ((const FakeFilter *)base)->number == 0;
}

static void fake_free(OwnershipFilter *base) {
    --*((FakeFilter *)base)->live;
    xfree(base);
}

static OwnershipFilter *fake_filter(FakePolicy *policy, int32_t number) {
    if (number == 0)
        return NULL;
    FakeFilter *filter = NEW(FakeFilter);
    filter->base = (OwnershipFilter){
        .refs = 1, .paths = policy->paths, .path_count = 1, .owns = fake_owns, .free = fake_free};
    filter->live = &policy->live;
    filter->number = number;
    policy->live++;
    return &filter->base;
}

static ErrCode answer(ErrCode code, Error *err) {
    return code == ERR_OK ? ERR_OK : error_set(err, code, "as told");
}

static ErrCode fake_check_write(void *arg, OpCtx *op, const Ns *ns, Error *err) {
    (void)op, (void)ns;
    ((FakePolicy *)arg)->write_count++;
    return answer(((FakePolicy *)arg)->write_code, err);
}

static ReadSource fake_read_source(void *arg, OpCtx *op, const Ns *ns) {
    (void)op, (void)ns;
    return ((FakePolicy *)arg)->source;
}

static ErrCode fake_attach(void *arg, const CollAccess *access, OwnershipFilter **ret_filter,
                           Error *err) {
    FakePolicy *policy = arg;
    policy->attach_count++;
    /* Whatever the answer depends on is fixed by now. */
    EXPECT(access->catalog != NULL);
    EXPECT(access->is_write || ru_snapshot_id(access->op->ru) != 0);
    TRY(answer(policy->attach_code, err));
    *ret_filter = fake_filter(policy, policy->filter_number);
    return ERR_OK;
}

static ErrCode fake_restore(void *arg, const CollAccess *access, const OwnershipFilter *held,
                            OwnershipFilter **ret_filter, Error *err) {
    FakePolicy *policy = arg;
    policy->restore_count++;
    EXPECT(access->is_write || ru_snapshot_id(access->op->ru) != 0);
    EXPECT((held != NULL) == (policy->filter_number != 0));
    TRY(answer(policy->restore_code, err));
    *ret_filter = fake_filter(policy, policy->replace_number);
    return ERR_OK;
}

static void policies_init(Policies *p) {
    fixture_init(&p->fx);
    Error err = {0};
    CatalogService *service = NULL;
    EXPECT_OK(catalog_service_open(p->fx.op, CATALOG_UNFINISHED_DISCARD, &service, &err), err);
    EXPECT_OK(ns_parse(STR("db.none"), &p->ns, &err), err);
    for (size_t i = 0; i < ARRAY_LEN(p->rows); i++) {
        p->rows[i].paths = PATH_K;
        catalog_add_access_policy(service,
                                  &(AccessPolicy){&p->rows[i], fake_check_write, fake_read_source,
                                                  fake_attach, fake_restore});
    }
}

static void policies_done(Policies *p) {
    for (size_t i = 0; i < ARRAY_LEN(p->rows); i++)
        EXPECT_EQ_I64(p->rows[i].live, 0); /* every filter was released */
    catalog_service_free(p->fx.service.catalog);
    p->fx.service.catalog = NULL;
    fixture_close(&p->fx);
}

static Doc number_doc(Arena *arena, int32_t number) {
    DocBuilder b = doc_builder_in_arena(arena);
    build_i32(&b, "k", number);
    return doc_builder_end(&b);
}

TEST(access_writes_need_all_policies) {
    Policies p = {0};
    policies_init(&p);
    CLEANUP(error_reset) Error err = {0};
    CollAccess access = {0};
    p.rows[0].write_code = ERR_NOT_WRITABLE_PRIMARY;
    p.rows[1].write_code = ERR_STALE_CONFIG;
    EXPECT(access_write(p.fx.op, &p.ns, LOCK_IX, &access, &err) == ERR_NOT_WRITABLE_PRIMARY);
    EXPECT_EQ_I64(p.rows[1].write_count, 0); /* the first refusal is enough */
    error_reset(&err);
    p.rows[0].write_code = ERR_OK;
    EXPECT(access_write(p.fx.op, &p.ns, LOCK_IX, &access, &err) == ERR_STALE_CONFIG);
    access_done(&access);
    policies_done(&p);
}

TEST(access_reads_begin_where_the_first_policy_with_a_wish_says) {
    Policies p = {0};
    policies_init(&p);
    static const struct {
        ReadSource first;
        ReadSource second;
        ReadSource want;
    } CASES[] = {
        {READ_LATEST, READ_LATEST, READ_LATEST},
        {READ_LATEST, READ_ALL_DURABLE, READ_ALL_DURABLE},
        {READ_LAST_APPLIED, READ_ALL_DURABLE, READ_LAST_APPLIED},
    };
    AccessPolicies list = {.count = 2};
    for (size_t i = 0; i < 2; i++)
        list.rows[i] = (AccessPolicy){.arg = &p.rows[i], .read_source = fake_read_source};
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        p.rows[0].source = CASES[i].first;
        p.rows[1].source = CASES[i].second;
        EXPECT(policies_read_source(&list, p.fx.op, &p.ns) == CASES[i].want);
    }
    policies_done(&p);
}

TEST(access_owns_what_every_filter_owns) {
    Policies p = {0};
    policies_init(&p);
    Error err = {0};
    Arena *arena = &p.fx.op->arena;
    for (int filters = 0; filters < 4; filters++) {
        p.rows[0].filter_number = (filters & 1) != 0 ? 2 : 0;
        p.rows[1].filter_number = (filters & 2) != 0 ? 3 : 0;
        CollAccess access = {0};
        EXPECT_OK(access_read_owned(p.fx.op, &p.ns, &access, &err), err);
        EXPECT(access.is_filtered == (filters != 0));
        for (int32_t n = 0; n < 12; n++)
            EXPECT(access_owns(&access, number_doc(arena, n)) ==
                   (((filters & 1) == 0 || n % 2 == 0) && ((filters & 2) == 0 || n % 3 == 0)));
        access_done(&access);
        EXPECT(!access.is_filtered);
    }
    policies_done(&p);
}

TEST(access_refused_by_a_later_policy_releases_the_filters_of_earlier_ones) {
    Policies p = {0};
    policies_init(&p);
    CLEANUP(error_reset) Error err = {0};
    CollAccess access = {0};
    p.rows[0].filter_number = 2;
    p.rows[1].attach_code = ERR_STALE_CONFIG;
    EXPECT(access_read_owned(p.fx.op, &p.ns, &access, &err) == ERR_STALE_CONFIG);
    EXPECT(access.op == NULL);
    error_reset(&err);
    EXPECT(access_write_owned(p.fx.op, &p.ns, LOCK_IX, &access, &err) == ERR_STALE_CONFIG);
    EXPECT(access.op == NULL);
    EXPECT_EQ_I64(p.fx.op->locker.held_count, 0);
    EXPECT_EQ_I64(p.rows[0].live, 0);
    policies_done(&p);
}

TEST(access_keeps_its_filter_over_yields_unless_it_is_replaced) {
    Policies p = {0};
    policies_init(&p);
    Error err = {0};
    Arena *arena = &p.fx.op->arena;
    p.rows[1].filter_number = 2;
    for (int is_write = 0; is_write < 2; is_write++) {
        CollAccess access = {0};
        p.rows[1].replace_number = 0;
        EXPECT_OK(is_write ? access_write_owned(p.fx.op, &p.ns, LOCK_IX, &access, &err)
                           : access_read_owned(p.fx.op, &p.ns, &access, &err),
                  err);
        int asked = p.rows[1].restore_count, attached = p.rows[1].attach_count;
        EXPECT_OK(access_yield(&access, &err), err);
        EXPECT_EQ_I64(p.rows[1].restore_count, asked + 1);
        EXPECT_EQ_I64(p.rows[1].attach_count, attached);
        EXPECT(access_owns(&access, number_doc(arena, 4)));
        EXPECT(!access_owns(&access, number_doc(arena, 9)));
        p.rows[1].replace_number = 3;
        EXPECT_OK(access_yield(&access, &err), err);
        EXPECT(!access_owns(&access, number_doc(arena, 4)));
        EXPECT(access_owns(&access, number_doc(arena, 9)));
        EXPECT_EQ_I64(p.rows[1].live, 1); /* the first one is gone */
        access_done(&access);
    }
    policies_done(&p);
}

TEST(access_ends_when_after_a_yield_a_filter_does_not_fit_the_plan) {
    Policies p = {0};
    policies_init(&p);
    static const struct {
        int32_t before;
        const Str *paths; /* of the new filter */
        ErrCode refusal;
        ErrCode want;
    } CASES[] = {
        {0, PATH_K, ERR_OK, ERR_QUERY_PLAN_KILLED}, /* there was none: the plan has no stage */
        {2, PATH_J, ERR_OK, ERR_QUERY_PLAN_KILLED}, /* the plan may not have that path */
        {2, PATH_K, ERR_STALE_CONFIG, ERR_STALE_CONFIG},
        {2, PATH_K, ERR_OK, ERR_OK},
    };
    for (size_t i = 0; i < 2 * ARRAY_LEN(CASES); i++) {
        CLEANUP(error_reset) Error err = {0};
        FakePolicy *row = &p.rows[0];
        *row = (FakePolicy){.paths = PATH_K, .filter_number = CASES[i / 2].before};
        CollAccess access = {0};
        EXPECT_OK(access_read_owned(p.fx.op, &p.ns, &access, &err), err);
        row->paths = CASES[i / 2].paths;
        row->restore_code = CASES[i / 2].refusal;
        row->replace_number = 3;
        ErrCode rc;
        if (i % 2 == 0) {
            rc = access_yield(&access, &err);
        } else { /* a cursor between its batches */
            access_suspend(&access);
            EXPECT_EQ_I64(p.fx.op->locker.held_count, 0);
            EXPECT_EQ_I64(row->live, CASES[i / 2].before != 0);
            rc = access_resume(p.fx.op, &access, &err);
            EXPECT((access.op == NULL) == (rc != ERR_OK));
        }
        EXPECT_EQ_I64(rc, CASES[i / 2].want);
        access_done(&access);
        EXPECT_EQ_I64(row->live, 0);
        EXPECT_EQ_I64(p.fx.op->locker.held_count, 0);
    }
    policies_done(&p);
}

TEST(access_of_the_node_itself_asks_nobody_what_it_owns) {
    Policies p = {0};
    policies_init(&p);
    Error err = {0};
    OpCtx *op = p.fx.op;
    Ns local;
    EXPECT_OK(ns_parse(STR("local.things"), &local, &err), err);
    p.rows[0].filter_number = 2;
    for (int kind = 0; kind < 4; kind++) {
        op->mode.is_unreplicated = kind == 0;
        op->mode.is_applying = kind == 1;
        CollAccess access = {0};
        if (kind == 3) /* a plain access */
            EXPECT_OK(access_read(op, &p.ns, &access, &err), err);
        else
            EXPECT_OK(access_read_owned(op, kind == 2 ? &local : &p.ns, &access, &err), err);
        EXPECT_OK(access_yield(&access, &err), err);
        EXPECT(!access.is_filtered);
        access_done(&access);
    }
    op->mode.is_unreplicated = op->mode.is_applying = false;
    EXPECT_EQ_I64(p.rows[0].attach_count + p.rows[0].restore_count, 0);
    policies_done(&p);
}
