/* cmd_distinct.c - distinct: the different values of a field. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "bson/compare.h"
#include "commands/core/command_service.h"
#include "commands/query_args.h"
#include "commands/view_query.h"
#include "query/match/path.h"
#include "request/read_requests.h"

/* Values seen: an open-addressing table of elements in the request's arena. */
typedef struct ValueSet {
    Arena *arena;
    Elem *slots;
    size_t slot_count;
    size_t count;
    size_t bytes;
    const Collator *collator;
} ValueSet;

static void put(Elem *slots, size_t slot_count, Elem value, const Collator *collator) {
    size_t at = elem_hash(value, collator) & (slot_count - 1);
    while (elem_is_present(slots[at]))
        at = (at + 1) & (slot_count - 1);
    slots[at] = value;
}

static bool add_value(void *arg, Elem value, int32_t array_index) {
    (void)array_index;
    ValueSet *set = arg;
    if (!elem_is_present(value))
        return false;
    if (set->count * 2 >= set->slot_count) {
        size_t slot_count = set->slot_count == 0 ? 64 : set->slot_count * 2;
        Elem *slots = xcalloc(slot_count, sizeof(Elem));
        for (size_t i = 0; i < set->slot_count; i++)
            if (elem_is_present(set->slots[i]))
                put(slots, slot_count, set->slots[i], set->collator);
        xfree(set->slots);
        set->slots = slots;
        set->slot_count = slot_count;
    }
    size_t at = elem_hash(value, set->collator) & (set->slot_count - 1);
    for (; elem_is_present(set->slots[at]); at = (at + 1) & (set->slot_count - 1))
        if (elem_equal(set->slots[at], value, set->collator))
            return false;
    set->slots[at] = elem_copy(value, set->arena);
    set->count++;
    set->bytes += elem_size(value) + 8;
    return false;
}

/* An array stands for its elements here, not for itself. */
static bool visit_value(void *arg, Elem value, int32_t array_index) {
    if (elem_type(value) != BT_ARRAY)
        return add_value(arg, value, array_index);
    DocIter iter = doc_iter(elem_doc(value));
    Elem member;
    while (doc_iter_next(&iter, &member))
        add_value(arg, member, array_index);
    return false;
}

static int compare_values(const void *a, const void *b, void *collator) {
    return elem_compare(*(const Elem *)a, *(const Elem *)b, collator);
}

static ErrCode collect(CursorSource *source, const FieldPath *path, ValueSet *set, Error *err) {
    for (;;) {
        bool is_found;
        Doc doc;
        TRY(source->ops->next(source, &is_found, &doc, err));
        if (!is_found)
            return ERR_OK;
        path_walk(path, doc, PATH_LEAF_WHOLE, visit_value, set);
        if (set->bytes > BSON_DOC_SIZE_MAX)
            return error_set(err, (ErrCode)17217, "distinct too big, 16mb cap");
    }
}

/* The documents to look at: of a collection by a plan, of a view by its pipeline. */
static ErrCode open_source(CommandCtx *ctx, const Ns *ns, const DistinctRequest *request,
                           CursorSource **ret_source, const Collator **ret_collator, Error *err) {
    PathSet needed = path_set(cmd_arena(ctx));
    path_set_add(&needed, request->key);
    QuerySpec spec = {.filter = request->query,
                      .hint = request->hint,
                      .needed_paths = &needed,
                      .distinct_path = request->key,
                      .is_distinct_of_elements = true};
    query_spec_defaults(ctx, &spec);
    TRY(request_collation(request->collation, &spec.has_collation, &spec.collator, err));
    FindSource *source;
    bool is_view;
    TRY(find_source_open(ctx->op, ns, &spec, &source, &is_view, err));
    if (is_view)
        return view_source(ctx, ns, &spec, ret_collator, ret_source, err);
    note_plan(ctx, source->exec);
    *ret_collator = source->exec->collator;
    *ret_source = &source->base;
    return ERR_OK;
}

static ErrCode distinct_run(CommandCtx *ctx, void *arg, Error *err) {
    DistinctRequest *request = arg;
    Ns ns;
    TRY(request_ref_ns(ctx, &request->coll, &ns, err));
    if (str_has_char(request->key, '\0'))
        return error_set(err, (ErrCode)31032, "Key field cannot contain an embedded null byte");
    FieldPath path;
    TRY(path_parse(request->key, cmd_arena(ctx), &path, err));
    CursorSource *source;
    ValueSet set = {.arena = cmd_arena(ctx)};
    TRY(open_source(ctx, &ns, request, &source, &set.collator, err));
    ErrCode rc = collect(source, &path, &set, err);
    source->ops->examined(source, &ctx->op->metrics.keys_examined, &ctx->op->metrics.docs_examined);
    cursor_source_free(source);
    if (rc == ERR_OK) {
        Elem *values = arena_alloc(cmd_arena(ctx), sizeof(Elem) * (set.count + 1));
        size_t count = 0;
        for (size_t i = 0; i < set.slot_count; i++)
            if (elem_is_present(set.slots[i]))
                values[count++] = set.slots[i];
        qsort_r(values, count, sizeof(Elem), compare_values, (void *)set.collator);
        size_t opened = build_open_array(ctx->reply, "values");
        for (size_t i = 0; i < count; i++) {
            char name[INDEX_NAME_SIZE];
            build_elem_as(ctx->reply, index_name((uint32_t)i, name), values[i]);
        }
        build_close(ctx->reply, opened);
        build_snapshot_time(ctx, ctx->reply);
    }
    xfree(set.slots);
    return rc;
}

const CommandSpec CMD_DISTINCT = {
    .name = "distinct",
    .summary = "Lists the different values of a field.",
    .flags = CMD_IN_TXN | CMD_READS | CMD_TAKES_READ_CONCERN | CMD_TAKES_SNAPSHOT,
    .latency = LATENCY_READS,
    .request = &DISTINCT_REQUEST,
    .run = distinct_run,
};
