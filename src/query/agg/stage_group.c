/*
 * stage_group.c - $group: a hash table from the value of _id to accumulator states, filled with the
 * whole input before the first group comes out. $sortByCount is made of it.
 *
 * Groups come out in the order in which their first document came in, as long as all fits.
 *
 * When the table reaches its budget it is closed to new groups, and the documents of groups that it
 * does not have go, with the fields that are needed, to spilled runs: one of PARTITION_COUNT, by
 * some bits of the hash. At the end of the input each run is grouped like an input of its own, with
 * other bits of the hash. States need not be written anywhere, so accumulators know nothing of all
 * this.
 *
 * States of fixed size ($sum, $avg, ...): a group in the table takes all its documents, also those
 * that come after the table was closed. At the end of the input the table's groups are complete and
 * come out; then the table is freed, and the runs follow, each with the whole budget.
 *
 * Growing states ($push, $first, ...): once the table is closed, documents of all groups go to the
 * runs, or the table would keep growing. When a run is read, its groups of the closed table are put
 * in the new table first and continue where they were, in order. The closed table stays until its
 * last run is done, so each level has half of the budget of the one before.
 */
#include <assert.h>

#include "base/alloc.h"
#include "query/agg/acc_set.h"
#include "query/agg/agg_internal.h"

enum {
    SLOT_COUNT_FIRST = 64, /* a power of two */
    PARTITION_BITS = 4,
    PARTITION_COUNT = 1 << PARTITION_BITS,
    /* With a sixteenth of the groups on each: enough for 4,000 times the memory. What does not get
     * smaller by it is one group that is too large. */
    LEVEL_COUNT_MAX = 4,
};

typedef struct GroupStage {
    AggStage base;
    Expr *id;
    Str id_field; /* _id is a document with this one field, which has the value of `id`; or empty */
    AccSet accs;
    PathSet needed;  /* of a document */
    bool is_partial; /* $willBeMerged: gives partials */
    bool is_merging; /* $doingMerge: takes partials */
} GroupStage;

/* States follow, aligned. */
typedef struct Group {
    Value id;
    uint64_t hash;
    struct Group *next; /* in order of arrival */
} Group;

typedef struct GroupList {
    Group *first;
    Group *last;
} GroupList;

typedef struct GroupTable {
    uint32_t refs;            /* the execution while in use, and its partitions */
    struct GroupTable *upper; /* owns the memory of inherited groups; or NULL */
    uint32_t level;
    Arena arena; /* groups with their states, and the bytes of their ids */
    Group **slots;
    size_t slot_count;
    size_t group_count;
    GroupList groups;   /* those not yet given out */
    size_t state_bytes; /* heap memory of the states */
    size_t budget;
    bool is_closed;
    uint32_t runs[PARTITION_COUNT];
} GroupTable;

/* A run waiting to be grouped. */
typedef struct Partition {
    GroupTable *table; /* that it comes from; a reference when it inherits groups, else NULL */
    uint32_t level;
    uint32_t run;
    GroupList inherited;
} Partition;

typedef struct GroupExec {
    AggStageExec base;
    GroupTable *table;
    bool is_filled;
    bool is_from_run; /* the table is filled from `run` and not from the input */
    uint32_t run;
    Partition *partitions; /* a stack */
    size_t partition_count;
    size_t partition_capacity;
    int64_t close_count; /* tables that were too small */
    int64_t spilled_records;
    int64_t spilled_bytes;
    size_t *acc_bytes; /* of the states of each accumulator, with AggExecContext.is_measured */
    size_t *acc_bytes_peak;
    AccContext acc_ctx;
    KeyBuilder key;
    Buffer out;
} GroupExec;

static ErrCode group_init(AggStageExec *base, Error *err);
static void group_done(AggStageExec *base);
static ErrCode group_next(AggStageExec *base, bool *ret_found, Doc *ret_doc, Error *err);
static void group_to_bson(const AggStage *base, DocBuilder *b);
static void group_stats(const AggStageExec *base, DocBuilder *b);
static bool group_add_paths(const AggStage *base, PathSet *set);
static void group_split(const AggStage *base, AggSplitter *splitter);
static ErrCode parse_options(GroupStage *stage, Error *err);
static ErrCode fill(GroupExec *exec, Error *err);
static ErrCode add_document(GroupExec *exec, Doc doc, Error *err);
static ErrCode add_measured(GroupExec *exec, Group *group, Error *err);
static Group *find_slot(const GroupExec *exec, Value id, uint64_t hash, size_t *ret_slot);
static Group *add_group(GroupExec *exec, Value id, uint64_t hash, size_t slot);
static void grow_slots(GroupTable *table);
static ErrCode spill_document(GroupExec *exec, Doc doc, uint32_t run, Error *err);
static ErrCode close_table(GroupExec *exec, Error *err);
static ErrCode queue_partitions(GroupExec *exec, Error *err);
static bool next_partition(GroupExec *exec);
static GroupTable *table_new(const GroupExec *exec, uint32_t level);
static void table_unref(GroupTable *table);
static void free_groups(const GroupStage *stage, GroupList *groups);
static ErrCode emit(GroupExec *exec, Group *group, Doc *ret_doc, Error *err);

const AggStageClass AGG_GROUP = {
    .name = "$group",
    .exec_size = sizeof(GroupExec),
    .exec_init = group_init,
    .exec_done = group_done,
    .next = group_next,
    .meta = AGG_META_NOTHING,
    .to_bson = group_to_bson,
    .stats = group_stats,
    .add_paths = group_add_paths,
    .runs = AGG_RUNS_SPLIT,
    .split = group_split,
};

static inline void *states_of(Group *group) {
    return (uint8_t *)group + acc_align(sizeof(Group));
}

static void list_add(GroupList *list, Group *group) {
    group->next = NULL;
    if (list->first == NULL)
        list->first = group;
    else
        list->last->next = group;
    list->last = group;
}

static uint32_t partition_of(uint64_t hash, uint32_t level) {
    return (uint32_t)(hash >> (64 - PARTITION_BITS * (level + 1))) & (PARTITION_COUNT - 1);
}

static bool is_option(Elem elem) {
    return elem_name_is(elem, STR("$willBeMerged")) || elem_name_is(elem, STR("$doingMerge"));
}

static ErrCode parse_options(GroupStage *stage, Error *err) {
    DocIter iter = doc_iter(elem_doc(stage->base.spec));
    for (Elem elem; doc_iter_next(&iter, &elem);) {
        if (!is_option(elem))
            continue;
        if (elem_type(elem) != BT_BOOL || !elem_bool(elem))
            return error_set(err, (ErrCode)17030, "%s should be true if present", elem_name(elem));
        if (elem_name_is(elem, STR("$doingMerge")))
            stage->is_merging = true;
        else
            stage->is_partial = true;
    }
    return ERR_OK;
}

/* {_id: {v: "$a"}} groups by the value of v: where it is missing it is null, as without the
 * document around it. In documents of several fields a missing one stays missing. */
static ErrCode parse_only_field(AggParser *p, GroupStage *stage, Elem id, Error *err) {
    if (elem_type(id) != BT_DOC || doc_count(elem_doc(id)) != 1)
        return ERR_OK;
    for (uint32_t i = 0; i < stage->accs.count; i++)
        if (stage->accs.accs[i].n_expr != NULL && stage->accs.accs[i].n == 0)
            return ERR_OK; /* which is about the whole _id */
    DocIter iter = doc_iter(elem_doc(id));
    Elem field;
    doc_iter_next(&iter, &field);
    if (elem_name(field)[0] == '$')
        return ERR_OK;
    stage->id_field = str_from(elem_name(field));
    return expr_parse(field, &p->ctx->expr, p->arena, &stage->id, err);
}

ErrCode parse_group(AggParser *p, Elem spec, Error *err) {
    if (elem_type(spec) != BT_DOC)
        return error_set(err, (ErrCode)15947, "a group's fields must be specified in an object");
    GroupStage *stage = agg_add_stage(p, &AGG_GROUP, sizeof(*stage), spec);
    acc_set_init(&stage->accs, doc_count(elem_doc(spec)), p->arena);
    if (p->ctx->is_internal)
        TRY(parse_options(stage, err));
    Elem id = ELEM_MISSING;
    DocIter iter = doc_iter(elem_doc(spec));
    for (Elem elem; doc_iter_next(&iter, &elem);) {
        if (p->ctx->is_internal && is_option(elem))
            continue;
        if (!elem_name_is(elem, STR("_id"))) {
            TRY(acc_set_parse(&stage->accs, elem, &p->ctx->expr, p->arena, err));
            continue;
        }
        if (stage->id != NULL)
            return error_set(err, (ErrCode)15948, "a group's _id may only be specified once");
        TRY(expr_parse(elem, &p->ctx->expr, p->arena, &stage->id, err));
        id = elem;
    }
    if (stage->id == NULL)
        return error_set(err, (ErrCode)15955, "a group specification must include an _id");
    TRY(parse_only_field(p, stage, id, err));
    if (stage->is_merging) { /* it was evaluated for the partials */
        DocBuilder b = doc_builder_in_arena(p->arena);
        build_cstr(&b, "_id", "$_id");
        id = doc_get_lit(doc_builder_end(&b), "_id");
        TRY(expr_parse(id, &p->ctx->expr, p->arena, &stage->id, err));
        stage->id_field = STR("");
    }
    stage->needed = path_set(p->arena);
    group_add_paths(&stage->base, &stage->needed);
    return ERR_OK;
}

/* {$group: {_id: <expression>, count: {$sum: 1}}}, {$sort: {count: -1}} */
ErrCode parse_sort_by_count(AggParser *p, Elem spec, Error *err) {
    bool is_path =
        elem_type(spec) == BT_STRING && elem_str(spec).size > 0 && elem_str(spec).data[0] == '$';
    bool is_object = false;
    if (elem_type(spec) == BT_DOC) {
        DocIter first_iter = doc_iter(elem_doc(spec));
        Elem first;
        is_object = doc_iter_next(&first_iter, &first) && elem_name(first)[0] == '$';
        if (!is_object)
            return error_set(err, (ErrCode)40147,
                             "the sortByCount field must be defined as a $-prefixed path or an "
                             "expression inside an object");
    } else if (elem_type(spec) == BT_STRING && !is_path) {
        return error_set(err, (ErrCode)40148,
                         "the sortByCount field must be defined as a $-prefixed path or an "
                         "expression inside an object");
    }
    if (!is_path && !is_object)
        return error_set(err, (ErrCode)40149,
                         "the sortByCount field must be specified as a string or as an object");

    Buffer buf;
    buffer_init_arena(&buf, p->arena, elem_size(spec) + 128, BSON_DOC_SIZE_MAX_INTERNAL);
    DocBuilder b;
    doc_builder_init(&b, &buf);
    size_t group = build_open_doc(&b, "$group");
    build_elem_as(&b, STR("_id"), spec);
    size_t count = build_open_doc(&b, "count");
    build_i32(&b, "$sum", 1);
    build_close(&b, count);
    build_close(&b, group);
    size_t sort = build_open_doc(&b, "$sort");
    build_i32(&b, "count", -1);
    build_close(&b, sort);
    Doc stages;
    TRY(doc_builder_finish(&b, "$sortByCount", &stages, err));
    TRY(parse_group(p, doc_get_lit(stages, "$group"), err));
    return parse_sort(p, doc_get_lit(stages, "$sort"), err);
}

Str pipeline_find_group_path(const Pipeline *pipeline, PipelineGroupNeed *ret_need) {
    const Str none = STR("");
    *ret_need = PIPELINE_GROUP_NEEDS_ANY;
    if (pipeline->stage_count == 0 || pipeline->stages[0]->class != &AGG_GROUP)
        return none;
    const GroupStage *group = (const GroupStage *)pipeline->stages[0];
    const FieldPath *path = expr_field_path(group->id);
    if (path == NULL || group->is_merging)
        return none;
    for (uint32_t p = 0; p < path->count; p++)
        if (path->parts[p].index >= 0)
            return none; /* means a position in an index, and a name here */
    for (uint32_t i = 0; i < group->accs.count; i++) {
        const AccClass *class = group->accs.accs[i].class;
        if ((class != &ACC_FIRST && class != &ACC_LAST) || class != group->accs.accs[0].class)
            return none;
        *ret_need = class == &ACC_FIRST ? PIPELINE_GROUP_NEEDS_FIRST : PIPELINE_GROUP_NEEDS_LAST;
    }
    return path->dotted;
}

/* Only for one field: a path through arrays has another meaning in filters. */
Str agg_group_source(const AggStage *base, Str dotted) {
    const GroupStage *stage = (const GroupStage *)base;
    const Expr *expr = NULL;
    if (str_is(dotted, "_id")) {
        expr = stage->id_field.size == 0 ? stage->id : NULL;
    } else if (path_is_prefix(STR("_id"), dotted)) {
        Str name = {dotted.data + 4, dotted.size - 4};
        if (stage->id_field.size == 0)
            expr = stage->id != NULL ? expr_object_field(stage->id, name) : NULL;
        else if (str_equal(name, stage->id_field))
            expr = stage->id;
    }
    const FieldPath *path = expr != NULL ? expr_field_path(expr) : NULL;
    bool is_field = path != NULL && path->count == 1 && path->parts[0].index < 0;
    return is_field && !stage->is_merging ? path->dotted : STR("");
}

static ErrCode group_init(AggStageExec *base, Error *err) {
    (void)err;
    GroupExec *exec = (GroupExec *)base;
    buffer_init(&exec->out, VALUE_SIZE_MAX);
    key_builder_init(&exec->key);
    exec->table = table_new(exec, /* level= */ 0);
    if (base->ctx->is_measured) {
        uint32_t count = ((const GroupStage *)base->stage)->accs.count;
        exec->acc_bytes = xcalloc(count + 1, sizeof(*exec->acc_bytes));
        exec->acc_bytes_peak = xcalloc(count + 1, sizeof(*exec->acc_bytes_peak));
    }
    return ERR_OK;
}

static void group_done(AggStageExec *base) {
    GroupExec *exec = (GroupExec *)base;
    const GroupStage *stage = (const GroupStage *)base->stage;
    if (exec->table != NULL)
        free_groups(stage, &exec->table->groups);
    table_unref(exec->table);
    for (size_t i = 0; i < exec->partition_count; i++) {
        free_groups(stage, &exec->partitions[i].inherited);
        table_unref(exec->partitions[i].table);
    }
    xfree(exec->partitions);
    xfree(exec->acc_bytes);
    xfree(exec->acc_bytes_peak);
    buffer_done(&exec->out);
    key_builder_done(&exec->key);
}

static ErrCode group_next(AggStageExec *base, bool *ret_found, Doc *ret_doc, Error *err) {
    GroupExec *exec = (GroupExec *)base;
    while (true) {
        if (!exec->is_filled) {
            TRY(fill(exec, err));
            exec->is_filled = true;
        }
        Group *group = exec->table->groups.first;
        *ret_found = group != NULL;
        if (group != NULL)
            return emit(exec, group, ret_doc, err);
        if (!next_partition(exec))
            return ERR_OK;
    }
}

static void group_to_bson(const AggStage *base, DocBuilder *b) {
    const GroupStage *stage = (const GroupStage *)base;
    size_t opened = build_open_doc(b, AGG_GROUP.name);
    if (stage->id_field.size > 0) {
        size_t id = build_open_doc(b, "_id");
        expr_to_bson(stage->id, stage->id_field, b);
        build_close(b, id);
    } else {
        expr_to_bson(stage->id, STR("_id"), b);
    }
    for (uint32_t i = 0; i < stage->accs.count; i++) {
        size_t field = build_open_doc_str(b, stage->accs.accs[i].field);
        acc_to_bson(&stage->accs.accs[i], b);
        build_close(b, field);
    }
    if (stage->is_partial)
        build_bool(b, "$willBeMerged", true);
    if (stage->is_merging)
        build_bool(b, "$doingMerge", true);
    build_close(b, opened);
}

static void group_stats(const AggStageExec *base, DocBuilder *b) {
    const GroupExec *exec = (const GroupExec *)base;
    const AccSet *accs = &((const GroupStage *)base->stage)->accs;
    size_t memory = build_open_doc(b, "maxAccumulatorMemoryUsageBytes");
    for (uint32_t i = 0; i < accs->count; i++)
        build_i64(b, accs->accs[i].field.data, (int64_t)exec->acc_bytes_peak[i]);
    build_close(b, memory);
    build_i64(b, "totalOutputDataSizeBytes", (int64_t)base->out_bytes);
    build_bool(b, "usedDisk", exec->close_count > 0);
    build_i64(b, "spills", exec->close_count);
    build_i64(b, "spilledDataStorageSize", exec->spilled_bytes);
    build_i64(b, "numBytesSpilledEstimate", exec->spilled_bytes);
    build_i64(b, "spilledRecords", exec->spilled_records);
}

static bool group_add_paths(const AggStage *base, PathSet *set) {
    const GroupStage *stage = (const GroupStage *)base;
    if (stage->is_merging) {
        path_set_add_all(set);
        return true;
    }
    expr_add_paths(stage->id, set);
    acc_set_add_paths(&stage->accs, set);
    return true;
}

static void add_half(const GroupStage *stage, const char *option, StageList *list) {
    size_t opened = stage_list_open(list);
    size_t group = build_open_doc(&list->b, "$group");
    build_all(&list->b, elem_doc(stage->base.spec));
    build_bool(&list->b, option, true);
    build_close(&list->b, group);
    build_close(&list->b, opened);
}

static void group_split(const AggStage *base, AggSplitter *splitter) {
    const GroupStage *stage = (const GroupStage *)base;
    add_half(stage, "$willBeMerged", &splitter->shards);
    add_half(stage, "$doingMerge", &splitter->merge);
}

/* ---- filling a table ---- */

static ErrCode next_of_run(GroupExec *exec, bool *ret_found, Doc *ret_doc, Error *err) {
    const Spill *spill = exec->base.ctx->spill;
    const uint8_t *record;
    size_t size;
    TRY(check_hook_run(&exec->base.ctx->check, err));
    TRY(spill->run_next(spill->arg, exec->run, ret_found, &record, &size, err));
    if (!*ret_found)
        return ERR_OK;
    *ret_doc = (Doc){record};
    if (size < BSON_DOC_SIZE_MIN || doc_size(*ret_doc) != size)
        return error_set(err, ERR_DATA_CORRUPTION_DETECTED, "damaged record of a spilled group");
    return ERR_OK;
}

static ErrCode fill(GroupExec *exec, Error *err) {
    exec->acc_ctx = (AccContext){
        .collator = exec->base.ctx->collator,
        .bytes = &exec->table->state_bytes,
        .eval = &exec->base.eval,
        .key = &exec->key,
    };
    while (true) {
        bool found;
        Doc doc;
        if (exec->is_from_run)
            TRY(next_of_run(exec, &found, &doc, err));
        else
            TRY(agg_pull(&exec->base, &found, &doc, err));
        if (!found)
            return exec->table->is_closed ? queue_partitions(exec, err) : ERR_OK;
        TRY(add_document(exec, doc, err));
    }
}

static ErrCode add_document(GroupExec *exec, Doc doc, Error *err) {
    AggStageExec *base = &exec->base;
    const GroupStage *stage = (const GroupStage *)base->stage;
    GroupTable *table = exec->table;
    agg_begin_doc(base, doc);
    Value id;
    TRY(expr_eval(stage->id, &base->eval, &id, err));
    if (value_is_missing(id))
        id = VALUE_NULL;
    uint64_t hash = value_hash(id, base->ctx->collator);
    size_t slot = 0;
    Group *group = find_slot(exec, id, hash, &slot);
    if (UNLIKELY(table->is_closed) && (group == NULL || stage->accs.has_growing))
        return spill_document(exec, doc, table->runs[partition_of(hash, table->level)], err);
    if (group == NULL)
        group = add_group(exec, id, hash, slot);
    exec->acc_ctx.group_id = group->id;
    if (UNLIKELY(base->ctx->is_measured) && !stage->is_merging)
        TRY(add_measured(exec, group, err));
    else if (UNLIKELY(stage->is_merging))
        TRY(acc_states_merge(&stage->accs, states_of(group), doc, &exec->acc_ctx, err));
    else
        TRY(acc_states_add(&stage->accs, states_of(group), &exec->acc_ctx, err));
    size_t used =
        arena_used(&table->arena) + table->slot_count * sizeof(*table->slots) + table->state_bytes;
    if (UNLIKELY(used > table->budget) && !table->is_closed)
        return close_table(exec, err);
    return ERR_OK;
}

/* As acc_states_add, for explain: tells the memory of the accumulators apart. */
static ErrCode add_measured(GroupExec *exec, Group *group, Error *err) {
    const AccSet *accs = &((const GroupStage *)exec->base.stage)->accs;
    for (uint32_t i = 0; i < accs->count; i++) {
        size_t before = *exec->acc_ctx.bytes;
        TRY(acc_state_add(accs, i, states_of(group), &exec->acc_ctx, err));
        exec->acc_bytes[i] += *exec->acc_ctx.bytes - before;
        size_t bytes =
            exec->acc_bytes[i] + exec->table->group_count * accs->accs[i].class->state_size;
        if (bytes > exec->acc_bytes_peak[i])
            exec->acc_bytes_peak[i] = bytes;
    }
    return ERR_OK;
}

/* As values_equal, with a short way for the most frequent keys. */
static inline bool is_same_id(Value a, Value b, const Collator *collator) {
    if (a.type == b.type) {
        if (a.type == BT_INT32)
            return a.i32 == b.i32;
        if (a.type == BT_INT64 || a.type == BT_DATE)
            return a.i64 == b.i64;
    }
    return values_equal(a, b, collator);
}

static Group *find_slot(const GroupExec *exec, Value id, uint64_t hash, size_t *ret_slot) {
    const GroupTable *table = exec->table;
    size_t slot = hash & (table->slot_count - 1);
    for (Group *group; (group = table->slots[slot]) != NULL;
         slot = (slot + 1) & (table->slot_count - 1)) {
        if (group->hash == hash && is_same_id(group->id, id, exec->base.ctx->collator))
            return group;
    }
    *ret_slot = slot;
    return NULL;
}

static void put_group(GroupTable *table, Group *group, size_t slot) {
    list_add(&table->groups, group);
    table->slots[slot] = group;
    if (++table->group_count * 2 > table->slot_count)
        grow_slots(table);
}

static Group *add_group(GroupExec *exec, Value id, uint64_t hash, size_t slot) {
    const GroupStage *stage = (const GroupStage *)exec->base.stage;
    GroupTable *table = exec->table;
    /* The arena aligns to 8 bytes, states want more. */
    size_t size = acc_align(sizeof(Group)) + stage->accs.size + ACC_STATE_ALIGN;
    Group *group = (Group *)acc_align((uintptr_t)arena_zalloc(&table->arena, size));
    group->id = value_copy(id, &table->arena);
    group->hash = hash;
    acc_states_init(&stage->accs, states_of(group));
    put_group(table, group, slot);
    return group;
}

static void grow_slots(GroupTable *table) {
    xfree(table->slots);
    table->slot_count *= 2;
    table->slots = xcalloc(table->slot_count, sizeof(*table->slots));
    for (Group *group = table->groups.first; group != NULL; group = group->next) {
        size_t slot = group->hash & (table->slot_count - 1);
        while (table->slots[slot] != NULL)
            slot = (slot + 1) & (table->slot_count - 1);
        table->slots[slot] = group;
    }
}

/* ---- spilling ---- */

static bool is_needed(const GroupStage *stage, Str field) {
    for (uint32_t i = 0; i < stage->needed.count; i++)
        if (str_equal(path_first_part(stage->needed.paths[i]), field))
            return true;
    return false;
}

static ErrCode spill_document(GroupExec *exec, Doc doc, uint32_t run, Error *err) {
    const GroupStage *stage = (const GroupStage *)exec->base.stage;
    const Spill *spill = exec->base.ctx->spill;
    if (!stage->needed.is_all && !exec->is_from_run) {
        buffer_clear(&exec->out);
        DocBuilder b;
        doc_builder_init(&b, &exec->out);
        DocIter iter = doc_iter(doc);
        for (Elem elem; doc_iter_next(&iter, &elem);)
            if (is_needed(stage, elem_name_str(elem)))
                build_elem(&b, elem);
        TRY(doc_builder_finish(&b, "spilled document", &doc, err));
    }
    exec->spilled_records++;
    exec->spilled_bytes += (int64_t)doc_size(doc);
    return spill->run_append(spill->arg, run, doc.data, doc_size(doc), err);
}

static ErrCode close_table(GroupExec *exec, Error *err) {
    const AggExecContext *ctx = exec->base.ctx;
    GroupTable *table = exec->table;
    if (!ctx->allow_disk_use || ctx->spill == NULL)
        return error_set(err, ERR_QUERY_EXCEEDED_MEMORY_LIMIT_NO_DISK_USE_ALLOWED,
                         "Exceeded memory limit for $group, but didn't allow external sort. Pass "
                         "allowDiskUse:true to opt in.");
    if (table->level + 1 == LEVEL_COUNT_MAX)
        return error_set(err, ERR_EXCEEDED_MEMORY_LIMIT,
                         "$group used too much memory and cannot spill to disk further. Memory "
                         "limit: %zu bytes",
                         agg_memory_bytes_max(&exec->base));
    for (uint32_t i = 0; i < PARTITION_COUNT; i++)
        TRY(ctx->spill->run_new(ctx->spill->arg, &table->runs[i], err));
    table->is_closed = true;
    exec->close_count++;
    return ERR_OK;
}

static void push_partition(GroupExec *exec, Partition partition) {
    ARRAY_RESERVE(exec->partitions, exec->partition_count, exec->partition_capacity);
    exec->partitions[exec->partition_count++] = partition;
}

/* The closed table has seen all its documents. */
static ErrCode queue_partitions(GroupExec *exec, Error *err) {
    const Spill *spill = exec->base.ctx->spill;
    GroupTable *table = exec->table;
    bool is_inherited = ((const GroupStage *)exec->base.stage)->accs.has_growing;
    GroupList lists[PARTITION_COUNT] = {0};
    if (is_inherited) {
        for (Group *group = table->groups.first, *next; group != NULL; group = next) {
            next = group->next;
            list_add(&lists[partition_of(group->hash, table->level)], group);
        }
        table->groups = (GroupList){0};
    }
    for (uint32_t i = 0; i < PARTITION_COUNT; i++) {
        push_partition(exec, (Partition){.table = is_inherited ? table : NULL,
                                         .level = table->level + 1,
                                         .run = table->runs[i],
                                         .inherited = lists[i]});
        table->refs += is_inherited;
    }
    for (uint32_t i = 0; i < PARTITION_COUNT; i++)
        TRY(spill->run_finish(spill->arg, table->runs[i], err));
    return ERR_OK;
}

/* Begins with the next run, if there is one; the present table is finished. */
static bool next_partition(GroupExec *exec) {
    if (exec->partition_count == 0)
        return false;
    Partition partition = exec->partitions[--exec->partition_count];
    table_unref(exec->table);
    exec->table = table_new(exec, partition.level);
    if (exec->acc_bytes != NULL)
        memset(exec->acc_bytes, 0,
               ((const GroupStage *)exec->base.stage)->accs.count * sizeof(*exec->acc_bytes));
    exec->table->upper = partition.table;
    for (Group *group = partition.inherited.first, *next; group != NULL; group = next) {
        next = group->next;
        GroupTable *table = exec->table;
        size_t slot = group->hash & (table->slot_count - 1);
        while (table->slots[slot] != NULL)
            slot = (slot + 1) & (table->slot_count - 1);
        put_group(table, group, slot);
    }
    exec->is_from_run = true;
    exec->run = partition.run;
    exec->is_filled = false;
    return true;
}

static GroupTable *table_new(const GroupExec *exec, uint32_t level) {
    bool is_growing = ((const GroupStage *)exec->base.stage)->accs.has_growing;
    bool is_spilling = exec->base.ctx->allow_disk_use && exec->base.ctx->spill != NULL;
    GroupTable *table = NEW(GroupTable);
    table->refs = 1;
    table->level = level;
    table->budget = agg_memory_bytes_max(&exec->base);
    if (is_growing && is_spilling)
        table->budget >>= level + 1;
    arena_init(&table->arena, 0);
    table->slot_count = SLOT_COUNT_FIRST;
    table->slots = xcalloc(table->slot_count, sizeof(*table->slots));
    return table;
}

static void table_unref(GroupTable *table) {
    while (table != NULL && --table->refs == 0) {
        GroupTable *upper = table->upper;
        arena_done(&table->arena);
        xfree(table->slots);
        xfree(table);
        table = upper;
    }
}

static void free_groups(const GroupStage *stage, GroupList *groups) {
    for (Group *group = groups->first; group != NULL; group = group->next)
        acc_states_done(&stage->accs, states_of(group));
    *groups = (GroupList){0};
}

/* ---- output ---- */

static ErrCode emit(GroupExec *exec, Group *group, Doc *ret_doc, Error *err) {
    const GroupStage *stage = (const GroupStage *)exec->base.stage;
    arena_reset(&exec->base.scratch);
    buffer_clear(&exec->out);
    DocBuilder b;
    doc_builder_init(&b, &exec->out);
    if (stage->id_field.size > 0) {
        size_t opened = build_open_doc(&b, "_id");
        build_value_as(&b, stage->id_field, group->id);
        build_close(&b, opened);
    } else {
        build_value_as(&b, STR("_id"), group->id);
    }
    if (stage->is_partial)
        TRY(acc_states_save(&stage->accs, states_of(group), &exec->base.scratch, &b, err));
    else
        TRY(acc_states_build(&stage->accs, states_of(group), &exec->base.scratch, &b, err));
    exec->table->groups.first = group->next;
    acc_states_done(&stage->accs, states_of(group));
    return doc_builder_finish(&b, "group", ret_doc, err);
}
