#include "sharding/ddl/consistency.h"

#include <string.h>

#include "base/clock.h"
#include "concurrency/service_ctx.h"
#include "repl/repl.h"
#include "sharding/ddl/coordinator.h"
#include "sharding/route/remote.h"
#include "sharding/shard/critical_section.h"

enum {
    ASK_MS_MAX = 60 * 1000,
    LOOK_AGAIN_US = 500 * 1000,
    ARRIVAL_MS_MAX = 10 * 1000,
    ARRIVAL_PAUSE_US = 20 * 1000,
};

/* ---- lists of findings ---- */

FoundList found_list_open(DocBuilder *b) {
    FoundList list = {.b = b};
    list.opened[0] = build_open_array(b, "inconsistencies");
    list.start = b->buf->size;
    return list;
}

void found_list_close(FoundList *list) {
    build_close(list->b, list->opened[0]);
}

static void open_row(FoundList *list) {
    char name[INDEX_NAME_SIZE];
    list->opened[1] = build_open_doc(list->b, index_name(list->count++, name).data);
}

static bool has_room(FoundList *list) {
    if (list->count > FOUND_COUNT_MAX)
        return false;
    if (list->count < FOUND_COUNT_MAX && list->b->buf->size - list->start <= FOUND_BYTES_MAX)
        return true;
    open_row(list);
    build_cstr(list->b, "type", "MoreInconsistencies");
    build_cstr(list->b, "description", "there are more than one reply can have");
    build_doc(list->b, "details", DOC_EMPTY);
    build_close(list->b, list->opened[1]);
    list->count = FOUND_COUNT_MAX + 1;
    return false;
}

bool found_list_begin(FoundList *list, const char *type, const char *description, Str ns) {
    if (!has_room(list))
        return false;
    open_row(list);
    build_cstr(list->b, "type", type);
    build_cstr(list->b, "description", description);
    list->opened[2] = build_open_doc(list->b, "details");
    build_str(list->b, "namespace", ns);
    return true;
}

void found_list_end(FoundList *list) {
    build_close(list->b, list->opened[2]);
    build_close(list->b, list->opened[1]);
}

void found_list_add(FoundList *list, Doc found) {
    if (!has_room(list))
        return;
    char name[INDEX_NAME_SIZE];
    build_doc(list->b, index_name(list->count++, name).data, found);
}

/* ---- asking shards ---- */

typedef struct ShardAnswer {
    const char *shard;
    ClientReply reply;
    DocIter rows; /* of `collections` */
    Doc row;      /* the present one; DOC_NONE: no more */
} ShardAnswer;

typedef struct ConsistencyCheck {
    OpCtx *op;
    ConsistencyScope scope;
    Cluster *cluster;
    ShardList *shards;
    ShardAnswer *answers; /* of all shards */
} ConsistencyCheck;

static void forget_answers(ConsistencyCheck *check) {
    for (uint32_t i = 0; check->answers != NULL && i < check->shards->count; i++)
        client_reply_done(&check->answers[i].reply);
    check->answers = NULL;
}

static void check_done(ConsistencyCheck *check) {
    forget_answers(check);
    shard_list_unref(check->shards);
}

static ErrCode ask(ConsistencyCheck *check, const Shard *shard, ShardAnswer *ret_answer,
                   Error *err) {
    DocBuilder b = doc_builder_in_arena(&check->op->arena);
    build_str(&b, "_shardsvrCheckMetadataConsistencyParticipant", check->scope.name);
    build_str(&b, "primaryShardId", check->scope.primary);
    build_bool(&b, "checkIndexes", check->scope.with_indexes);
    remote_build_end(check->cluster, &b, STR("admin"), NULL, ELEM_MISSING);
    RemoteRequest request = {.shard = shard,
                             .body = doc_builder_end(&b),
                             .retry = REMOTE_IDEMPOTENT,
                             .deadline_us = clock_deadline_ms(ASK_MS_MAX)};
    ret_answer->shard = shard->name;
    if (remote_run(check->cluster, check->op, &request, &ret_answer->reply, NULL, err) != ERR_OK)
        return error_prefix(err, "shard \"%s\"", shard->name);
    return ERR_OK;
}

static Doc array_field(Doc doc, const char *name) {
    Elem field = doc_get(doc, str_from(name));
    return elem_type(field) == BT_ARRAY ? elem_doc(field) : DOC_EMPTY;
}

static void next_row(ShardAnswer *answer) {
    Elem row;
    bool is_there = doc_iter_next(&answer->rows, &row) && elem_type(row) == BT_DOC;
    answer->row = is_there ? elem_doc(row) : DOC_NONE;
}

/* ---- shards compared with each other ---- */

static Str row_name(Doc row) {
    Elem name = doc_get_lit(row, "namespace");
    return elem_type(name) == BT_STRING ? elem_str(name) : STR("");
}

/* The rows of one collection, one per shard that owns a part. */
typedef struct RowGroup {
    Str name;
    Doc *rows;
    const char **shards;
    uint32_t count;
} RowGroup;

/* Rows are sorted: the first name of all, and whoever has it. False: no more. */
static bool next_group(ConsistencyCheck *check, RowGroup *group) {
    Str first = {0};
    for (uint32_t i = 0; i < check->shards->count; i++) {
        Doc row = check->answers[i].row;
        if (doc_is_present(row) && (first.data == NULL || str_compare(row_name(row), first) < 0))
            first = row_name(row);
    }
    group->name = first;
    group->count = 0;
    for (uint32_t i = 0; i < check->shards->count; i++) {
        ShardAnswer *answer = &check->answers[i];
        if (!doc_is_present(answer->row) || !str_equal(row_name(answer->row), first))
            continue;
        group->rows[group->count] = answer->row;
        group->shards[group->count++] = answer->shard;
        next_row(answer);
    }
    return group->count > 0;
}

static Doc options_of(const RowGroup *group, uint32_t i) {
    Elem options = doc_get_lit(group->rows[i], "options");
    return elem_type(options) == BT_DOC ? elem_doc(options) : DOC_EMPTY;
}

static void compare_options(const RowGroup *group, FoundList *found) {
    bool is_same = true;
    for (uint32_t i = 1; i < group->count; i++)
        is_same &= doc_equal_bytes(options_of(group, 0), options_of(group, i));
    if (is_same || !found_list_begin(found, "CollectionOptionsMismatch",
                                     "a collection has other options on one shard than on another",
                                     group->name))
        return;
    size_t list = build_open_array(found->b, "options");
    for (uint32_t i = 0; i < group->count; i++) {
        char name[INDEX_NAME_SIZE];
        size_t row = build_open_doc(found->b, index_name(i, name).data);
        build_doc(found->b, "options", options_of(group, i));
        size_t shards = build_open_array(found->b, "shards");
        build_cstr(found->b, "0", group->shards[i]);
        build_close(found->b, shards);
        build_close(found->b, row);
    }
    build_close(found->b, list);
    found_list_end(found);
}

static Doc find_index(const RowGroup *group, uint32_t shard, Elem name) {
    DocIter iter = doc_iter(array_field(group->rows[shard], "indexes"));
    for (Elem index; doc_iter_next(&iter, &index);)
        if (elem_type(index) == BT_DOC &&
            elem_equal_bytes(doc_get_lit(elem_doc(index), "name"), name))
            return elem_doc(index);
    return DOC_NONE;
}

/* {k, v} of the fields that `index` has otherwise than `other`. */
static void build_differences(DocBuilder *b, uint32_t *count, Doc index, Doc other) {
    DocIter iter = doc_iter(index);
    for (Elem field; doc_iter_next(&iter, &field);) {
        if (elem_equal_bytes(field, doc_get(other, elem_name_str(field))))
            continue;
        char name[INDEX_NAME_SIZE];
        size_t row = build_open_doc(b, index_name((*count)++, name).data);
        build_str(b, "k", elem_name_str(field));
        build_elem_as(b, STR("v"), field);
        build_close(b, row);
    }
}

/* An index of the shard `first`, which none before it has. */
static void compare_index(const RowGroup *group, uint32_t first, Doc index, Arena *arena,
                          FoundList *found) {
    Elem index_name_field = doc_get_lit(index, "name");
    DocBuilder missing = doc_builder_in_arena(arena), differences = doc_builder_in_arena(arena);
    uint32_t missing_count = 0, difference_count = 0;
    for (uint32_t i = 0; i < group->count; i++) {
        Doc other = i == first ? index : find_index(group, i, index_name_field);
        char name[INDEX_NAME_SIZE];
        if (!doc_is_present(other)) {
            build_cstr(&missing, index_name(missing_count++, name).data, group->shards[i]);
        } else if (!doc_equal_bytes(index, other)) {
            build_differences(&differences, &difference_count, index, other);
            build_differences(&differences, &difference_count, other, index);
        }
    }
    if (missing_count + difference_count == 0 ||
        !found_list_begin(found, "InconsistentIndex",
                          "an index of a sharded collection is not the same on all of its shards",
                          group->name))
        return;
    size_t info = build_open_doc(found->b, "info");
    build_array(found->b, "missingFromShards", doc_builder_end(&missing));
    build_array(found->b, "inconsistentProperties", doc_builder_end(&differences));
    build_elem_as(found->b, STR("indexName"), index_name_field);
    build_close(found->b, info);
    found_list_end(found);
}

static void compare_indexes(const RowGroup *group, Arena *arena, FoundList *found) {
    for (uint32_t i = 0; i < group->count; i++) {
        DocIter iter = doc_iter(array_field(group->rows[i], "indexes"));
        for (Elem index; doc_iter_next(&iter, &index);) {
            Elem name =
                elem_type(index) == BT_DOC ? doc_get_lit(elem_doc(index), "name") : ELEM_MISSING;
            bool is_done = !elem_is_present(name);
            for (uint32_t k = 0; k < i && !is_done; k++)
                is_done = doc_is_present(find_index(group, k, name));
            if (!is_done)
                compare_index(group, i, elem_doc(index), arena, found);
        }
    }
}

/* ---- one look, and another ---- */

static ErrCode look(ConsistencyCheck *check, Doc *ret_found, Error *err) {
    Arena *arena = &check->op->arena;
    uint32_t count = check->shards->count;
    forget_answers(check);
    check->answers = ARENA_ARRAY(arena, ShardAnswer, count + 1);
    memset(check->answers, 0, (count + 1) * sizeof(ShardAnswer));
    DocBuilder b = doc_builder_in_arena(arena);
    FoundList found = found_list_open(&b);
    for (uint32_t i = 0; i < count; i++) {
        ShardAnswer *answer = &check->answers[i];
        TRY(ask(check, &check->shards->rows[i], answer, err));
        DocIter iter = doc_iter(array_field(answer->reply.body, "inconsistencies"));
        for (Elem row; doc_iter_next(&iter, &row);)
            if (elem_type(row) == BT_DOC)
                found_list_add(&found, elem_doc(row));
        answer->rows = doc_iter(array_field(answer->reply.body, "collections"));
        next_row(answer);
    }
    RowGroup group = {.rows = ARENA_ARRAY(arena, Doc, count + 1),
                      .shards = ARENA_ARRAY(arena, const char *, count + 1)};
    while (next_group(check, &group)) {
        compare_options(&group, &found);
        compare_indexes(&group, arena, &found);
    }
    found_list_close(&found);
    *ret_found = array_field(doc_builder_end(&b), "inconsistencies");
    return ERR_OK;
}

static ErrCode look_twice(ConsistencyCheck *check, DocBuilder *reply, Error *err) {
    Doc first, second = DOC_EMPTY;
    TRY(look(check, &first, err));
    if (!doc_is_empty(first)) {
        TRY(op_sleep_us(check->op, LOOK_AGAIN_US, err));
        TRY(look(check, &second, err));
    }
    FoundList found = found_list_open(reply);
    DocIter iter = doc_iter(second);
    for (Elem row; doc_iter_next(&iter, &row);)
        if (doc_list_has(first, elem_doc(row)))
            found_list_add(&found, elem_doc(row));
    found_list_close(&found);
    return ERR_OK;
}

static ErrCode hold_locks(OpCtx *op, const ConsistencyScope *scope, Task **ret_hold, Error *err) {
    LockSet locks = {0};
    bool is_of_database = scope->name.size == scope->db.size;
    TRY(lock_set_add(&locks, scope->db, is_of_database, err));
    if (!is_of_database)
        TRY(lock_set_add(&locks, scope->name, /* is_exclusive= */ false, err));
    return task_locks_hold(repl_tasks(op->service->repl), op, DDL_SERVICE_NAME,
                           "checkMetadataConsistency", &locks, ret_hold, err);
}

/* A database that has just moved here: the old primary shard, by whose locks that was done, has not
 * finished before it ends this shard's section. */
static ErrCode wait_for_arrival(const ConsistencyCheck *check, Error *err) {
    Ns section;
    TRY(section_database_ns(check->scope.db, &section, err));
    int64_t until_us = clock_deadline_ms(ARRIVAL_MS_MAX);
    while (section_check_free(check->op, &section, err) != ERR_OK) {
        /* One that stays is a finding. */
        bool is_over = err->code != ERR_CONFLICTING_OPERATION_IN_PROGRESS;
        if (is_over || clock_mono_us() >= until_us)
            return is_over ? err->code : (error_reset(err), ERR_OK);
        error_reset(err);
        TRY(op_sleep_us(check->op, ARRIVAL_PAUSE_US, err));
    }
    return ERR_OK;
}

/* Operations on a database have their locks on its primary shard: a router that is out of date may
 * think that this is it. */
static ErrCode check_primary(const ConsistencyCheck *check, Error *err) {
    DocBuilder b = doc_builder_in_arena(&check->op->arena);
    build_str(&b, "_id", check->scope.db);
    ConfigQuery query = {.coll = "databases", .filter = doc_builder_end(&b), .count_max = 1};
    Doc *docs;
    uint32_t count;
    TRY(config_find(check->cluster, check->op, &query, &docs, &count, err));
    Elem primary = count > 0 ? doc_get_lit(docs[0], "primary") : ELEM_MISSING;
    if (elem_type(primary) == BT_STRING && str_equal(elem_str(primary), check->scope.primary))
        return wait_for_arrival(check, err);
    return error_set(err, ERR_STALE_DB_VERSION, "this shard is not the primary of \"%.*s\"",
                     (int)check->scope.db.size, check->scope.db.data);
}

static ErrCode check_with_locks(ConsistencyCheck *check, DocBuilder *reply, Error *err) {
    TRY(check_primary(check, err));
    TRY(cluster_reload_shards(check->cluster, check->op, err));
    check->shards = cluster_shards(check->cluster);
    return look_twice(check, reply, err);
}

ErrCode consistency_check(OpCtx *op, const ConsistencyScope *scope, DocBuilder *reply, Error *err) {
    ShardState *state = op->service->shard;
    CLEANUP(check_done) ConsistencyCheck check = {.op = op, .scope = *scope};
    const char *self;
    TRY(shard_get_name(state, op, &self, err));
    check.scope.primary = str_from(self);
    TRY(shard_get_cluster(state, op, &check.cluster, err));
    Task *hold;
    TRY(hold_locks(op, scope, &hold, err));
    ErrCode rc = check_with_locks(&check, reply, err);
    task_locks_release(hold);
    return rc;
}
