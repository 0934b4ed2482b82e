/*
 * update_apply.c - one pass over the old document that writes the new one.
 *
 * Elements the trie does not lead to are copied in runs. Where it leads, there are four cases:
 *
 *     leaf, field present    the operator computes the new value from the old     store_leaf
 *     leaf, field missing    the same, if the operator creates fields             apply_to_missing
 *     inner, present         descend into the document or array                   apply_to_existing
 *     inner, missing         make the documents on the way, if a leaf creates     apply_to_missing
 *
 * New fields come after the old ones, in the order of the trie.
 */
#include <assert.h>

#include "bson/json.h"
#include "query/update/update_internal.h"

static ErrCode apply_doc(UpdateRun *run, const UpdateNode *node, Doc doc, Error *err);
static ErrCode apply_array(UpdateRun *run, const UpdateNode *node, Elem array, Error *err);
static ErrCode apply_to_existing(UpdateRun *run, const UpdateNode *node, Elem elem, bool in_array,
                                 Error *err);
static ErrCode apply_to_missing(UpdateRun *run, const UpdateNode *node, Str name, Error *err);
static ErrCode apply_to_id(UpdateRun *run, const UpdateNode *node, Elem elem, Error *err);
static ErrCode store_leaf(UpdateRun *run, const UpdateNode *node, Str name, Elem old, bool in_array,
                          Error *err);
static ErrCode extend_array(UpdateRun *run, const UpdateNode *node, uint32_t count, Error *err);
static ErrCode check_array_names(UpdateRun *run, const UpdateNode *node, Elem array, Error *err);
static uint32_t lower_bound_index(const UpdateNode *node, int32_t index);
static ErrCode find_node_for_index(UpdateRun *run, const UpdateNode *node, int32_t index, Elem elem,
                                   const UpdateNode **ret_node, Error *err);
static ErrCode refuse_scalar(UpdateRun *run, const UpdateNode *node, Elem elem, Error *err);
static ErrCode resolve_positional(UpdateRun *run, const UpdateNode **node, Error *err);
static ErrCode merge(UpdateRun *run, const UpdateNode *a, const UpdateNode *b,
                     const UpdateNode **ret_merged, Error *err);
static bool find_made(const UpdateRun *run, const UpdateNode *a, const UpdateNode *b,
                      const UpdateNode **ret_made);
static ErrCode keep_made(UpdateRun *run, const UpdateNode *a, const UpdateNode *b,
                         const UpdateNode *made, const UpdateNode **ret_made, Error *err);
static ErrCode enter(UpdateRun *run, Str name, Error *err);
static void leave(UpdateRun *run);
static void flush(UpdateRun *run, const uint8_t *from, const uint8_t *to);
static bool try_apply_in_place(UpdateRun *run, bool *ret_done, ErrCode *ret_rc, Error *err);
static void move_id_first(UpdateRun *run, Doc *doc);
static ErrCode finish(UpdateRun *run, UpdateResult *ret_result, Error *err);

ErrCode update_apply(const UpdateProgram *program, Doc before, const UpdateApplyContext *ctx,
                     Arena *arena, UpdateResult *ret_result, Error *err) {
    if (program->pipeline != NULL) {
        Doc after;
        TRY(program->pipeline->apply(program->pipeline, before, ctx, arena, &after, err));
        if (doc_size(after) > BSON_DOC_SIZE_MAX)
            return update_too_large(ctx, err);
        *ret_result = (UpdateResult){after, doc_equal_bytes(before, after)};
        return ERR_OK;
    }
    if (UNLIKELY(program->dollar_path.size > 0) && !ctx->is_insert)
        return error_set(err, ERR_DOLLAR_PREFIXED_FIELD_NAME,
                         "the field '%.*s' starts with a dollar sign: operators do not make such "
                         "fields in documents that exist",
                         (int)program->dollar_path.size, program->dollar_path.data);
    if (program->needs_positional && ctx->positional_index < 0)
        return error_set(err, ERR_BAD_VALUE,
                         "The positional operator did not find the match needed from the query.");

    UpdateRun run;
    run.program = program;
    run.ctx = ctx;
    run.arena = arena;
    run.before = before;
    run.is_modified = false;
    run.rename_values = NULL;
    run.depth = 0;
    uint32_t growth = doc_is_present(program->replacement) ? doc_size(program->replacement)
                                                           : program->operand_bytes;
    buffer_init_arena(&run.buf, arena, doc_size(before) + growth, BSON_DOC_SIZE_MAX);

    if (doc_is_present(program->replacement)) {
        TRY(update_apply_replacement(&run, err));
    } else {
        bool is_done = false;
        ErrCode rc = ERR_OK;
        if (program->is_flat && !ctx->is_insert && try_apply_in_place(&run, &is_done, &rc, err)) {
            if (is_done)
                *ret_result = run.is_modified ? (UpdateResult){(Doc){run.buf.data}, false}
                                              : (UpdateResult){before, true};
            return rc;
        }
        buffer_clear(&run.buf);
        run.is_modified = false;
        TRY(update_apply_operators(&run, err));
    }
    return finish(&run, ret_result, err);
}

ErrCode update_apply_operators(UpdateRun *run, Error *err) {
    memset(run->cache, 0, sizeof(run->cache));
    run->cache_next = run->made_count = 0;
    doc_builder_init(&run->out, &run->buf);
    if (run->program->rename_count > 0)
        TRY(update_resolve_renames(run, err));
    return apply_doc(run, run->program->root, run->before, err);
}

static ErrCode finish(UpdateRun *run, UpdateResult *ret_result, Error *err) {
    Doc after;
    if (!doc_builder_try_finish(&run->out, &after))
        return update_too_large(run->ctx, err);
    if (run->ctx->is_insert)
        move_id_first(run, &after);
    else if (!run->is_modified || doc_equal_bytes(after, run->before)) {
        *ret_result = (UpdateResult){run->before, true};
        return ERR_OK;
    }
    *ret_result = (UpdateResult){after, doc_equal_bytes(after, run->before)};
    return ERR_OK;
}

ErrCode update_too_large(const UpdateApplyContext *ctx, Error *err) {
    if (ctx->is_insert)
        return error_set(err, ERR_UPSERTED_DOCUMENT_TOO_LARGE,
                         "Document to upsert is larger than %d", BSON_DOC_SIZE_MAX);
    return error_set(err, ERR_UPDATED_DOCUMENT_TOO_LARGE,
                     "Resulting document after update is larger than %d", BSON_DOC_SIZE_MAX);
}

/* Documents begin with their `_id`; that of an upsert may come from anywhere in the update. */
static void move_id_first(UpdateRun *run, Doc *doc) {
    Elem id = doc_get_lit(*doc, "_id");
    if (!elem_is_present(id) || id.data == doc->data + 4)
        return;
    uint32_t size = doc_size(*doc);
    uint32_t id_size = elem_size(id);
    uint8_t *moved = arena_alloc(run->arena, size);
    size_t before_id = (size_t)(id.data - (doc->data + 4));
    memcpy(moved, doc->data, 4);
    memcpy(moved + 4, id.data, id_size);
    memcpy(moved + 4 + id_size, doc->data + 4, before_id);
    memcpy(moved + 4 + id_size + before_id, id.data + id_size, size - 4 - before_id - id_size);
    doc->data = moved;
}

/* ---- documents ---- */

static ErrCode apply_doc(UpdateRun *run, const UpdateNode *node, Doc doc, Error *err) {
    if (node->has_positional_child)
        TRY(resolve_positional(run, &node, err));
    /* Which children have met their field: repeated names are changed at the first only. */
    uint64_t small = 0;
    uint64_t *seen = &small;
    if (node->child_count > 64)
        seen = ARENA_ARRAY(run->arena, uint64_t, (node->child_count + 63) / 64);

    const uint8_t *copied = doc.data + 4;
    DocIter iter = doc_iter(doc);
    for (Elem elem; doc_iter_next(&iter, &elem);) {
        int32_t at = update_node_find_child(node, elem_name_str(elem));
        if (at < 0)
            continue;
        const UpdateNode *child = node->children[at];
        if (seen[at / 64] >> at % 64 & 1)
            continue;
        seen[at / 64] |= 1ull << at % 64;
        flush(run, copied, elem.data);
        copied = iter.next;
        if (run->depth == 0 && elem_name_is(elem, STR("_id")))
            TRY(apply_to_id(run, child, elem, err));
        else
            TRY(apply_to_existing(run, child, elem, /* in_array= */ false, err));
    }
    flush(run, copied, iter.next);

    for (uint32_t i = 0; i < node->child_count; i++) {
        if (seen[i / 64] >> i % 64 & 1)
            continue;
        const UpdateNode *child = node->children[i];
        size_t start = run->buf.size;
        TRY(apply_to_missing(run, child, child->part.name, err));
        bool is_id = run->depth == 0 && str_is(child->part.name, "_id");
        if (is_id && run->buf.size > start && !run->buf.overflowed)
            TRY(update_check_id((Elem){run->buf.data + start, 3}, err));
    }
    return ERR_OK;
}

static ErrCode apply_to_existing(UpdateRun *run, const UpdateNode *node, Elem elem, bool in_array,
                                 Error *err) {
    if (node->op != NULL)
        return store_leaf(run, node, elem_name_str(elem), elem, in_array, err);
    BsonType type = elem_type(elem);
    if (node->has_array_child && type != BT_ARRAY) {
        return error_set(err, ERR_BAD_VALUE,
                         "Cannot apply array updates to non-array element %s: %s", elem_name(elem),
                         shell_text_of_elem(elem, run->arena));
    }
    if (type != BT_DOC && type != BT_ARRAY)
        return refuse_scalar(run, node, elem, err);

    TRY(enter(run, elem_name_str(elem), err));
    if (type == BT_DOC) {
        size_t opened = build_open_doc_str(&run->out, elem_name_str(elem));
        TRY(apply_doc(run, node, elem_doc(elem), err));
        build_close(&run->out, opened);
    } else {
        size_t opened = build_open_array_str(&run->out, elem_name_str(elem));
        TRY(apply_array(run, node, elem, err));
        build_close(&run->out, opened);
    }
    leave(run);
    return ERR_OK;
}

/* `_id` may be named in an update as long as it keeps its value. */
static ErrCode apply_to_id(UpdateRun *run, const UpdateNode *node, Elem elem, Error *err) {
    size_t start = run->buf.size;
    bool was_modified = run->is_modified;
    TRY(apply_to_existing(run, node, elem, /* in_array= */ false, err));
    if (run->buf.overflowed)
        return ERR_OK;
    bool is_kept = run->buf.size > start;
    if (is_kept) {
        Elem now = {run->buf.data + start, elem.name_size};
        is_kept = elem_compare(now, elem, NULL) == 0;
    }
    if (!is_kept) {
        Str path = update_node_first_leaf(node)->dotted;
        return error_set(err, ERR_IMMUTABLE_FIELD,
                         "Performing an update on the path '%.*s' would modify the immutable field "
                         "'_id'",
                         (int)path.size, path.data);
    }
    /* Equal, but perhaps of another numeric type: the stored bytes stay. */
    run->buf.size = start;
    run->is_modified = was_modified;
    build_elem(&run->out, elem);
    return ERR_OK;
}

static ErrCode apply_to_missing(UpdateRun *run, const UpdateNode *node, Str name, Error *err) {
    if (node->op != NULL) {
        if (update_node_find_creating(node, run) == NULL)
            return ERR_OK;
        return store_leaf(run, node, name, ELEM_MISSING, /* in_array= */ false, err);
    }
    if (node->has_array_child)
        return error_set(err, ERR_BAD_VALUE,
                         "The path '%.*s' must exist in the document in order to apply array "
                         "updates.",
                         (int)node->dotted.size, node->dotted.data);
    if (node->has_positional_child)
        TRY(resolve_positional(run, &node, err));

    /* What is opened here stays only if something came into it. */
    size_t start = run->buf.size;
    TRY(enter(run, name, err));
    size_t opened = build_open_doc_str(&run->out, name);
    size_t empty = run->buf.size;
    for (uint32_t i = 0; i < node->child_count; i++)
        TRY(apply_to_missing(run, node->children[i], node->children[i]->part.name, err));
    leave(run);
    if (run->buf.size == empty && !run->buf.overflowed)
        run->buf.size = start;
    else
        build_close(&run->out, opened);
    return ERR_OK;
}

static ErrCode store_leaf(UpdateRun *run, const UpdateNode *node, Str name, Elem old, bool in_array,
                          Error *err) {
    UpdateOutcome outcome = UPDATE_KEEP;
    UpdateValue value = {0};
    bool is_active = (node->op->flags & UPDATE_OP_ON_INSERT) == 0 || run->ctx->is_insert;
    if (is_active) {
        run->names[run->depth] = name;
        TRY(node->op->apply(run, node, old, &outcome, &value, err));
    }
    if (outcome == UPDATE_REMOVE) {
        run->is_modified = true;
        if (!in_array)
            return ERR_OK;
        value = (UpdateValue){.type = BT_NULL};
    } else if (outcome == UPDATE_KEEP) {
        if (elem_is_present(old))
            build_elem(&run->out, old);
        return ERR_OK;
    }
    uint32_t container_depth = run->depth + 1;
    if (container_depth + node->depth_added > BSON_DEPTH_MAX_STORED)
        return error_set(err, ERR_OVERFLOW, "Document exceeds maximum nesting depth of %d",
                         BSON_DEPTH_MAX_STORED);
    run->is_modified |= elem_type(old) != value.type || elem_value_size(old) != value.size ||
                        (value.size > 0 && memcmp(elem_value(old), value.data, value.size) != 0);
    uint8_t *at = build_value(&run->out, value.type, name, value.size);
    if (at != NULL && value.size > 0)
        memcpy(at, value.data, value.size);
    return ERR_OK;
}

/* `elem` cannot have a field `child`, and an operator below needs that it could. */
static ErrCode refuse_path(UpdateRun *run, const UpdateNode *child, Elem elem, Error *err) {
    return error_set(err, ERR_PATH_NOT_VIABLE,
                     update_node_find_creating(child, run) != NULL
                         ? "Cannot create field '%.*s' in element %s"
                         : "the path cannot lead to '%.*s' in element %s",
                     (int)child->part.name.size, child->part.name.data,
                     update_elem_text(elem, run->arena));
}

/* A path leads into a value that has no fields. */
static ErrCode refuse_scalar(UpdateRun *run, const UpdateNode *node, Elem elem, Error *err) {
    for (uint32_t i = 0; i < node->child_count; i++)
        if (update_node_find(node->children[i], run, UPDATE_OP_CREATES | UPDATE_OP_VIABLE) != NULL)
            return refuse_path(run, node->children[i], elem, err);
    build_elem(&run->out, elem);
    return ERR_OK;
}

/* ---- arrays ---- */

static ErrCode apply_array(UpdateRun *run, const UpdateNode *node, Elem array, Error *err) {
    if (node->has_positional_child)
        TRY(resolve_positional(run, &node, err));
    TRY(check_array_names(run, node, array, err));

    Doc doc = elem_doc(array);
    const uint8_t *copied = doc.data + 4;
    uint32_t count = 0;
    DocIter iter = doc_iter(doc);
    for (Elem elem; doc_iter_next(&iter, &elem); count++) {
        const UpdateNode *child = NULL;
        TRY(find_node_for_index(run, node, (int32_t)count, elem, &child, err));
        if (child == NULL)
            continue;
        flush(run, copied, elem.data);
        copied = iter.next;
        TRY(apply_to_existing(run, child, elem, /* in_array= */ true, err));
    }
    flush(run, copied, iter.next);
    return extend_array(run, node, count, err);
}

/* Names other than numbers cannot be created in an array. */
static ErrCode check_array_names(UpdateRun *run, const UpdateNode *node, Elem array, Error *err) {
    for (uint32_t i = 0; i < node->child_count; i++) {
        const UpdateNode *child = node->children[i];
        if (child->part_kind != UPDATE_PART_FIELD || child->part.index >= 0)
            continue;
        if (update_node_find(child, run, UPDATE_OP_CREATES | UPDATE_OP_VIABLE) != NULL)
            return refuse_path(run, child, array, err);
    }
    return ERR_OK;
}

/* The first child that is not a number below `index`. */
static uint32_t lower_bound_index(const UpdateNode *node, int32_t index) {
    uint32_t low = 0, high = node->child_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        int32_t there = node->children[middle]->part.index;
        if (there >= 0 && there < index)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* All that the trie says about one element, as one node; NULL when it says nothing. */
static ErrCode find_node_for_index(UpdateRun *run, const UpdateNode *node, int32_t index, Elem elem,
                                   const UpdateNode **ret_node, Error *err) {
    const UpdateNode *found = NULL;
    /* Numbers come first among the siblings, rising. */
    uint32_t at = lower_bound_index(node, index);
    if (at < node->child_count && node->children[at]->part.index == index)
        found = node->children[at];
    if (!node->has_array_child) {
        *ret_node = found;
        return ERR_OK;
    }
    for (uint32_t i = lower_bound_index(node, INT32_MAX); i < node->child_count; i++) {
        const UpdateNode *child = node->children[i];
        if (child->part_kind == UPDATE_PART_FILTER) {
            const UpdateFilter *filter = &run->program->filters[child->filter_index];
            MatchDetails details = MATCH_DETAILS_NONE;
            details.err = err;
            bool is_match = match_elem(filter->expr, filter->name, elem, &details);
            TRY(details.rc);
            if (!is_match)
                continue;
        } else if (child->part_kind != UPDATE_PART_ALL) {
            continue;
        }
        if (found == NULL) {
            found = child;
            continue;
        }
        run->names[run->depth] = elem_name_str(elem);
        TRY(merge(run, found, child, &found, err));
    }
    *ret_node = found;
    return ERR_OK;
}

/* Creates elements past the end, with nulls up to them. */
static ErrCode extend_array(UpdateRun *run, const UpdateNode *node, uint32_t count, Error *err) {
    for (uint32_t i = 0; i < node->child_count; i++) {
        const UpdateNode *child = node->children[i];
        if (child->part_kind != UPDATE_PART_FIELD || child->part.index < (int32_t)count)
            continue;
        if (update_node_find_creating(child, run) == NULL)
            continue;
        uint32_t index = (uint32_t)child->part.index;
        if (index - count > UPDATE_ARRAY_PADDING_MAX)
            return error_set(err, (ErrCode)ERR_CANNOT_BACKFILL_ARRAY,
                             "can't backfill more than %d elements", UPDATE_ARRAY_PADDING_MAX);
        char buffer[INDEX_NAME_SIZE];
        size_t start = run->buf.size;
        uint32_t padded = count;
        for (; padded < index; padded++)
            build_value(&run->out, BT_NULL, index_name(padded, buffer), 0);
        size_t before_elem = run->buf.size;
        TRY(apply_to_missing(run, child, child->part.name, err));
        if (run->buf.size == before_elem && !run->buf.overflowed)
            run->buf.size = start; /* the operator had nothing to create after all */
        else
            count = index + 1;
    }
    return ERR_OK;
}

/* ---- nodes that meet in one place ---- */

/* Replaces `$` by the position that the query found. */
static ErrCode resolve_positional(UpdateRun *run, const UpdateNode **node, Error *err) {
    const UpdateNode *from = *node;
    if (find_made(run, from, NULL, node))
        return ERR_OK;
    char *name = arena_printf(run->arena, "%d", run->ctx->positional_index);
    UpdateNode *others = update_node_new(run->arena, from->part, from->part_kind, from->dotted);
    UpdateNode *alone = update_node_new(run->arena, from->part, from->part_kind, from->dotted);
    others->children = ARENA_ARRAY(run->arena, UpdateNode *, from->child_count);
    others->has_array_child = from->has_array_child;
    alone->children = ARENA_ARRAY(run->arena, UpdateNode *, 1);
    for (uint32_t i = 0; i < from->child_count; i++) {
        if (from->children[i]->part_kind != UPDATE_PART_POSITIONAL) {
            others->children[others->child_count++] = from->children[i];
            continue;
        }
        UpdateNode *indexed = ARENA_NEW(run->arena, UpdateNode);
        *indexed = *from->children[i];
        indexed->part = path_part(str_from(name));
        indexed->part_kind = UPDATE_PART_FIELD;
        alone->children[0] = indexed;
        alone->child_count = 1;
    }
    run->names[run->depth] = str_from(name);
    return keep_made(run, from, NULL, update_node_merge(others, alone, run->arena), node, err);
}

static ErrCode merge(UpdateRun *run, const UpdateNode *a, const UpdateNode *b,
                     const UpdateNode **ret_merged, Error *err) {
    if (find_made(run, a, b, ret_merged))
        return ERR_OK;
    return keep_made(run, a, b, update_node_merge(a, b, run->arena), ret_merged, err);
}

static bool find_made(const UpdateRun *run, const UpdateNode *a, const UpdateNode *b,
                      const UpdateNode **ret_made) {
    for (uint32_t i = 0; i < UPDATE_CACHE_SIZE; i++) {
        if (run->cache[i].a == a && run->cache[i].b == b) {
            *ret_made = run->cache[i].made;
            return true;
        }
    }
    return false;
}

static ErrCode keep_made(UpdateRun *run, const UpdateNode *a, const UpdateNode *b,
                         const UpdateNode *made, const UpdateNode **ret_made, Error *err) {
    if (made == NULL)
        return error_set(err, ERR_CONFLICTING_UPDATE_OPERATORS, "Update created a conflict at '%s'",
                         update_current_path(run));
    if (++run->made_count > UPDATE_MADE_NODES_MAX)
        return error_set(err, ERR_EXCEEDED_MEMORY_LIMIT,
                         "too many combinations of array filters in one update");
    uint32_t at = run->cache_next++ % UPDATE_CACHE_SIZE;
    run->cache[at].a = a;
    run->cache[at].b = b;
    run->cache[at].made = made;
    *ret_made = made;
    return ERR_OK;
}

/* ---- small things ---- */

static ErrCode enter(UpdateRun *run, Str name, Error *err) {
    run->names[run->depth++] = name;
    if (run->depth + 1 > BSON_DEPTH_MAX_STORED)
        return error_set(err, ERR_OVERFLOW, "Document exceeds maximum nesting depth of %d",
                         BSON_DEPTH_MAX_STORED);
    return ERR_OK;
}

static void leave(UpdateRun *run) {
    run->depth--;
}

static void flush(UpdateRun *run, const uint8_t *from, const uint8_t *to) {
    buffer_append(&run->buf, from, (size_t)(to - from));
}

UpdateValue update_value_of(Elem elem) {
    return (UpdateValue){elem_type(elem), elem_value(elem), elem_value_size(elem)};
}

char *update_elem_text(Elem elem, Arena *arena) {
    return arena_printf(arena, "{%s: %s}", elem_name(elem), shell_text_of_elem(elem, arena));
}

char *update_id_text(const UpdateRun *run) {
    Elem id = doc_get_lit(run->before, "_id");
    return elem_is_present(id) ? update_elem_text(id, run->arena)
                               : arena_strdup(run->arena, "{no _id}");
}

char *update_current_path(const UpdateRun *run) {
    Buffer text;
    buffer_init_arena(&text, run->arena, 64, BUFFER_UNBOUNDED);
    for (uint32_t i = 0; i <= run->depth; i++) {
        if (i > 0)
            buffer_append_byte(&text, '.');
        buffer_append(&text, run->names[i].data, run->names[i].size);
    }
    buffer_append_byte(&text, '\0');
    return (char *)text.data;
}

/* ---- the fast path ---- */

/* For programs of plain top-level operators: copies the document whole and patches the values, as
 * long as they keep their sizes. Gives up (false) at the first thing that needs more, before
 * anything was decided. */
static bool try_apply_in_place(UpdateRun *run, bool *ret_done, ErrCode *ret_rc, Error *err) {
    enum { PATCHES_MAX = 8 };
    const UpdateNode *root = run->program->root;
    if (root->child_count > PATCHES_MAX || run->program->rename_count > 0)
        return false;
    Elem olds[PATCHES_MAX];
    for (uint32_t i = 0; i < root->child_count; i++) {
        const UpdateNode *node = root->children[i];
        if (node->op->id != UPDATE_OP_SET && node->op->id != UPDATE_OP_INC)
            return false;
        if (str_is(node->part.name, "_id"))
            return false;
        olds[i] = path_find_field(run->before, &node->part);
        if (!elem_is_present(olds[i]))
            return false;
    }
    buffer_append(&run->buf, run->before.data, doc_size(run->before));
    if (run->buf.overflowed)
        return false;
    for (uint32_t i = 0; i < root->child_count; i++) {
        const UpdateNode *node = root->children[i];
        Elem old = olds[i];
        UpdateOutcome outcome = UPDATE_KEEP;
        UpdateValue value = {0};
        run->names[0] = node->part.name;
        ErrCode rc = node->op->apply(run, node, old, &outcome, &value, err);
        if (rc != ERR_OK) {
            *ret_rc = rc;
            return true;
        }
        if (outcome != UPDATE_VALUE || value.size != elem_value_size(old) || node->depth_added > 0)
            return false;
        uint8_t *at = run->buf.data + (old.data - run->before.data);
        uint8_t *bytes = at + old.name_size + 2;
        run->is_modified |=
            *at != value.type || (value.size > 0 && memcmp(bytes, value.data, value.size) != 0);
        *at = (uint8_t)value.type;
        if (value.size > 0)
            memcpy(bytes, value.data, value.size);
    }
    *ret_done = true;
    return true;
}
