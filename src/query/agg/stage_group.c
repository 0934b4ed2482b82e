/*
 * stage_group.c - $group: a hash table from the value of _id to accumulator states, filled with the
 * whole input before the first group comes out. $sortByCount is made of it.
 *
 * Groups come out in the order in which their first document came in.
 */
#include <assert.h>

#include "base/alloc.h"
#include "query/agg/accumulator.h"
#include "query/agg/agg_internal.h"

enum {
    SLOT_COUNT_FIRST = 64, /* a power of two */
};

typedef struct GroupStage {
    AggStage base;
    Expr *id;
    Acc *accs;
    size_t *offsets; /* of the states within a group */
    uint32_t acc_count;
    size_t group_size;
    bool has_sort_by;
} GroupStage;

/* States follow at their offsets. */
typedef struct Group {
    Value id;
    uint64_t hash;
    struct Group *next; /* in order of arrival */
} Group;

typedef struct GroupExec {
    AggStageExec base;
    Arena groups; /* groups with their states, and the bytes of their ids */
    Group **slots;
    size_t slot_count;
    size_t group_count;
    Group *first;
    Group *last;
    size_t state_bytes; /* heap memory of the states */
    KeyBuilder key;
    bool is_filled;
    Group *next_out;
    Buffer out;
} GroupExec;

static ErrCode parse_field(AggParser *p, Elem elem, GroupStage *stage, Error *err);
static void lay_out(AggParser *p, GroupStage *stage);
static ErrCode group_init(AggStageExec *base, Error *err);
static void group_done(AggStageExec *base);
static ErrCode group_next(AggStageExec *base, bool *ret_found, Doc *ret_doc, Error *err);
static bool group_add_paths(const AggStage *base, PathSet *set);
static ErrCode fill(GroupExec *exec, Error *err);
static Group *find_or_add(GroupExec *exec, Value id);
static Group *add_group(GroupExec *exec, Value id, uint64_t hash, size_t slot);
static void grow_slots(GroupExec *exec);
static ErrCode check_memory(GroupExec *exec, Error *err);
static ErrCode emit(GroupExec *exec, Group *group, Doc *ret_doc, Error *err);

static const AggStageClass GROUP = {
    .name = "$group",
    .exec_size = sizeof(GroupExec),
    .exec_init = group_init,
    .exec_done = group_done,
    .next = group_next,
    .add_paths = group_add_paths,
};

ErrCode parse_group(AggParser *p, Elem spec, Error *err) {
    if (elem_type(spec) != BT_DOC)
        return error_set(err, (ErrCode)15947, "a group's fields must be specified in an object");
    GroupStage *stage = agg_add_stage(p, &GROUP, sizeof(*stage), spec);
    stage->accs = ARENA_ARRAY(p->arena, Acc, doc_count(elem_doc(spec)));
    DocIter iter = doc_iter(elem_doc(spec));
    for (Elem elem; doc_iter_next(&iter, &elem);) {
        if (!elem_name_is(elem, STR("_id"))) {
            TRY(parse_field(p, elem, stage, err));
            continue;
        }
        if (stage->id != NULL)
            return error_set(err, (ErrCode)15948, "a group's _id may only be specified once");
        TRY(expr_parse(elem, &p->ctx->expr, p->arena, &stage->id, err));
    }
    if (stage->id == NULL)
        return error_set(err, (ErrCode)15955, "a group specification must include an _id");
    lay_out(p, stage);
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
    Doc stages = doc_builder_end(&b);
    TRY(buffer_check(&buf, "$sortByCount", err));
    TRY(parse_group(p, doc_get_lit(stages, "$group"), err));
    return parse_sort(p, doc_get_lit(stages, "$sort"), err);
}

static ErrCode parse_field(AggParser *p, Elem elem, GroupStage *stage, Error *err) {
    Str field = elem_name_str(elem);
    if (memchr(field.data, '.', field.size) != NULL)
        return error_set(err, (ErrCode)40235, "The field name '%s' cannot contain '.'",
                         elem_name(elem));
    if (field.size > 0 && field.data[0] == '$')
        return error_set(err, (ErrCode)40236, "The field name '%s' cannot be an operator name",
                         elem_name(elem));
    if (elem_type(elem) != BT_DOC || doc_is_empty(elem_doc(elem)))
        return error_set(err, (ErrCode)40234, "The field '%s' must be an accumulator object",
                         elem_name(elem));
    if (doc_count(elem_doc(elem)) != 1)
        return error_set(err, (ErrCode)40238, "The field '%s' must specify one accumulator",
                         elem_name(elem));
    DocIter iter = doc_iter(elem_doc(elem));
    Elem op;
    doc_iter_next(&iter, &op);
    Acc *acc = &stage->accs[stage->acc_count++];
    TRY(acc_parse(field, op, &p->ctx->expr, p->arena, acc, err));
    stage->has_sort_by |= acc->sort_by != NULL;
    return ERR_OK;
}

static size_t aligned(size_t size) {
    return (size + ACC_STATE_ALIGN - 1) & ~(size_t)(ACC_STATE_ALIGN - 1);
}

static void lay_out(AggParser *p, GroupStage *stage) {
    stage->offsets = ARENA_ARRAY(p->arena, size_t, stage->acc_count);
    stage->group_size = aligned(sizeof(Group));
    for (uint32_t i = 0; i < stage->acc_count; i++) {
        stage->offsets[i] = stage->group_size;
        stage->group_size += aligned(stage->accs[i].class->state_size);
    }
}

static ErrCode group_init(AggStageExec *base, Error *err) {
    (void)err;
    GroupExec *exec = (GroupExec *)base;
    arena_init(&exec->groups, 0);
    buffer_init(&exec->out, VALUE_SIZE_MAX);
    key_builder_init(&exec->key);
    exec->slot_count = SLOT_COUNT_FIRST;
    exec->slots = xcalloc(exec->slot_count, sizeof(*exec->slots));
    return ERR_OK;
}

static void group_done(AggStageExec *base) {
    GroupExec *exec = (GroupExec *)base;
    const GroupStage *stage = (const GroupStage *)base->stage;
    for (uint32_t i = 0; i < stage->acc_count; i++) {
        if (stage->accs[i].class->done == NULL)
            continue;
        for (Group *group = exec->first; group != NULL; group = group->next)
            stage->accs[i].class->done((uint8_t *)group + stage->offsets[i]);
    }
    arena_done(&exec->groups);
    buffer_done(&exec->out);
    key_builder_done(&exec->key);
    xfree(exec->slots);
}

static ErrCode group_next(AggStageExec *base, bool *ret_found, Doc *ret_doc, Error *err) {
    GroupExec *exec = (GroupExec *)base;
    if (!exec->is_filled) {
        TRY(fill(exec, err));
        exec->is_filled = true;
        exec->next_out = exec->first;
    }
    Group *group = exec->next_out;
    *ret_found = group != NULL;
    if (group == NULL)
        return ERR_OK;
    exec->next_out = group->next;
    return emit(exec, group, ret_doc, err);
}

static bool group_add_paths(const AggStage *base, PathSet *set) {
    const GroupStage *stage = (const GroupStage *)base;
    expr_add_paths(stage->id, set);
    for (uint32_t i = 0; i < stage->acc_count; i++) {
        const Acc *acc = &stage->accs[i];
        expr_add_paths(acc->input, set);
        for (uint32_t j = 0; acc->sort_by != NULL && j < acc->sort_by->count; j++)
            path_set_add(set, acc->sort_by->parts[j].path.dotted);
    }
    return true;
}

/* Pulls everything and accumulates it. */
static ErrCode fill(GroupExec *exec, Error *err) {
    AggStageExec *base = &exec->base;
    const GroupStage *stage = (const GroupStage *)base->stage;
    AccContext acc_ctx = {
        .collator = base->ctx->collator,
        .bytes = &exec->state_bytes,
        .eval = &base->eval,
        .key = &exec->key,
    };
    while (true) {
        bool found;
        Doc doc;
        TRY(agg_pull(base, &found, &doc, err));
        if (!found)
            return ERR_OK;
        agg_begin_doc(base, doc);
        Value id;
        TRY(expr_eval(stage->id, &base->eval, &id, err));
        Group *group = find_or_add(exec, value_is_missing(id) ? VALUE_NULL : id);
        acc_ctx.group_id = group->id;
        for (uint32_t i = 0; i < stage->acc_count; i++) {
            const Acc *acc = &stage->accs[i];
            Value value;
            TRY(expr_eval(acc->input, &base->eval, &value, err));
            TRY(acc->class->add((uint8_t *)group + stage->offsets[i], acc, value, &acc_ctx, err));
        }
        TRY(check_memory(exec, err));
    }
}

static Group *find_or_add(GroupExec *exec, Value id) {
    const Collator *collator = exec->base.ctx->collator;
    uint64_t hash = value_hash(id, collator);
    size_t slot = hash & (exec->slot_count - 1);
    for (Group *group; (group = exec->slots[slot]) != NULL;
         slot = (slot + 1) & (exec->slot_count - 1)) {
        if (group->hash == hash && values_equal(group->id, id, collator))
            return group;
    }
    return add_group(exec, id, hash, slot);
}

static Group *add_group(GroupExec *exec, Value id, uint64_t hash, size_t slot) {
    const GroupStage *stage = (const GroupStage *)exec->base.stage;
    /* The arena aligns to 8 bytes, states want more. */
    uint8_t *memory = arena_zalloc(&exec->groups, stage->group_size + ACC_STATE_ALIGN);
    Group *group = (Group *)aligned((uintptr_t)memory);
    group->id = value_copy(id, &exec->groups);
    group->hash = hash;
    for (uint32_t i = 0; i < stage->acc_count; i++)
        if (stage->accs[i].class->init != NULL)
            stage->accs[i].class->init((uint8_t *)group + stage->offsets[i]);
    if (exec->last == NULL)
        exec->first = group;
    else
        exec->last->next = group;
    exec->last = group;
    exec->slots[slot] = group;
    if (++exec->group_count * 2 > exec->slot_count)
        grow_slots(exec);
    return group;
}

static void grow_slots(GroupExec *exec) {
    xfree(exec->slots);
    exec->slot_count *= 2;
    exec->slots = xcalloc(exec->slot_count, sizeof(*exec->slots));
    for (Group *group = exec->first; group != NULL; group = group->next) {
        size_t slot = group->hash & (exec->slot_count - 1);
        while (exec->slots[slot] != NULL)
            slot = (slot + 1) & (exec->slot_count - 1);
        exec->slots[slot] = group;
    }
}

static ErrCode check_memory(GroupExec *exec, Error *err) {
    size_t used =
        arena_used(&exec->groups) + exec->slot_count * sizeof(*exec->slots) + exec->state_bytes;
    if (LIKELY(used <= agg_memory_bytes_max(&exec->base)))
        return ERR_OK;
    if (exec->base.ctx->allow_disk_use)
        return error_set(err, ERR_QUERY_EXCEEDED_MEMORY_LIMIT_NO_DISK_USE_ALLOWED,
                         "Exceeded memory limit for $group of %zu bytes; spilling groups to disk "
                         "is not supported yet",
                         agg_memory_bytes_max(&exec->base));
    return error_set(err, ERR_QUERY_EXCEEDED_MEMORY_LIMIT_NO_DISK_USE_ALLOWED,
                     "Exceeded memory limit for $group, but didn't allow external sort. Pass "
                     "allowDiskUse:true to opt in.");
}

static ErrCode emit(GroupExec *exec, Group *group, Doc *ret_doc, Error *err) {
    const GroupStage *stage = (const GroupStage *)exec->base.stage;
    arena_reset(&exec->base.scratch);
    buffer_clear(&exec->out);
    DocBuilder b;
    doc_builder_init(&b, &exec->out);
    build_value_as(&b, STR("_id"), group->id);
    for (uint32_t i = 0; i < stage->acc_count; i++) {
        const Acc *acc = &stage->accs[i];
        Value value;
        TRY(acc->class->finish((uint8_t *)group + stage->offsets[i], acc, &exec->base.scratch,
                               &value, err));
        build_value_as(&b, acc->field, value_is_missing(value) ? VALUE_NULL : value);
    }
    *ret_doc = doc_builder_end(&b);
    return buffer_check(&exec->out, "group", err);
}
