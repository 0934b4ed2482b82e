/*
 * update_trie.c - the trie of paths that an update changes.
 *
 * Each path of the update ends in a leaf with its operator. Two operators conflict when one path is
 * the other or leads through it; `$[]`, `$[id]` and numbers are different components here, and are
 * only found to mean the same array element when the update is applied (update_node_merge).
 */
#include <assert.h>

#include "query/update/update_internal.h"

const UpdateOperator UPDATE_OPERATORS[UPDATE_OP_COUNT] = {
#define UPDATE_OPERATOR(symbol, name, parse, apply, flags)                                         \
    {UPDATE_OP_##symbol, name, parse, apply, flags},
#include "query/update/update_operators.def"
#undef UPDATE_OPERATOR
};

static ErrCode classify_part(UpdateParser *p, const FieldPath *path, uint32_t at,
                             UpdatePartKind *ret_kind, uint32_t *ret_filter_index, Error *err);
static uint32_t lower_bound(const UpdateNode *node, const UpdateNode *key);
static void insert_child(Arena *arena, UpdateNode *node, uint32_t at, UpdateNode *child);

UpdateNode *update_node_new(Arena *arena, PathPart part, UpdatePartKind kind, Str dotted) {
    UpdateNode *node = ARENA_NEW(arena, UpdateNode);
    node->part = part;
    node->part_kind = kind;
    node->dotted = dotted;
    return node;
}

int update_part_compare(const UpdateNode *a, const UpdateNode *b) {
    return update_name_compare(&a->part, &b->part);
}

int update_name_compare(const PathPart *a, const PathPart *b) {
    int32_t x = a->index, y = b->index;
    if (x >= 0 && y >= 0)
        return (x > y) - (x < y);
    if (x >= 0 || y >= 0)
        return x >= 0 ? -1 : 1;
    Str s = a->name, t = b->name;
    size_t common = s.size < t.size ? s.size : t.size;
    int order = common > 0 ? memcmp(s.data, t.data, common) : 0;
    return order != 0 ? order : (s.size > t.size) - (s.size < t.size);
}

int32_t update_node_find_child(const UpdateNode *node, Str name) {
    enum { LINEAR_MAX = 8 };
    if (node->child_count <= LINEAR_MAX) {
        for (uint32_t i = 0; i < node->child_count; i++)
            if (str_equal(node->children[i]->part.name, name))
                return (int32_t)i;
        return -1;
    }
    UpdateNode key = {.part = {.name = name, .index = path_index_of(name)}};
    uint32_t at = lower_bound(node, &key);
    if (at < node->child_count && update_part_compare(node->children[at], &key) == 0)
        return (int32_t)at;
    return -1;
}

ErrCode update_trie_add(UpdateParser *p, const UpdateOperator *op, const FieldPath *path,
                        Elem operand, UpdateNode **ret_leaf, Error *err) {
    UpdateNode *node = p->program->root;
    for (uint32_t i = 0; i < path->count; i++) {
        const PathPart *part = &path->parts[i];
        Str dotted = {path->dotted.data,
                      (size_t)(part->name.data + part->name.size - path->dotted.data)};
        int32_t found = update_node_find_child(node, part->name);
        UpdateNode *child = found >= 0 ? node->children[found] : NULL;
        bool is_last = i + 1 == path->count;
        if (child != NULL && (is_last || child->op != NULL))
            return error_set(err, ERR_CONFLICTING_UPDATE_OPERATORS,
                             "Updating the path '%.*s' would create a conflict at '%.*s'",
                             (int)path->dotted.size, path->dotted.data, (int)dotted.size,
                             dotted.data);
        if (child == NULL) {
            UpdatePartKind kind = UPDATE_PART_FIELD;
            uint32_t filter_index = 0;
            TRY(classify_part(p, path, i, &kind, &filter_index, err));
            child = update_node_new(p->arena, *part, kind, dotted);
            child->filter_index = filter_index;
            insert_child(p->arena, node, lower_bound(node, child), child);
        }
        node = child;
    }
    node->op = op;
    node->operand = operand;
    *ret_leaf = node;
    return ERR_OK;
}

UpdateNode *update_node_merge(const UpdateNode *a, const UpdateNode *b, Arena *arena) {
    if (a->op != NULL || b->op != NULL)
        return NULL;
    UpdateNode *merged = update_node_new(arena, a->part, a->part_kind, a->dotted);
    merged->children = ARENA_ARRAY(arena, UpdateNode *, a->child_count + b->child_count);
    merged->has_positional_child = a->has_positional_child || b->has_positional_child;
    merged->has_array_child = a->has_array_child || b->has_array_child;
    uint32_t i = 0, j = 0;
    while (i < a->child_count || j < b->child_count) {
        int order = i == a->child_count   ? 1
                    : j == b->child_count ? -1
                                          : update_part_compare(a->children[i], b->children[j]);
        UpdateNode *child;
        if (order < 0) {
            child = a->children[i++];
        } else if (order > 0) {
            child = b->children[j++];
        } else {
            child = update_node_merge(a->children[i++], b->children[j++], arena);
            if (child == NULL)
                return NULL;
        }
        merged->children[merged->child_count++] = child;
    }
    return merged;
}

const UpdateNode *update_node_find_creating(const UpdateNode *node, const UpdateRun *run) {
    return update_node_find(node, run, UPDATE_OP_CREATES);
}

const UpdateNode *update_node_find(const UpdateNode *node, const UpdateRun *run, uint32_t flags) {
    if (node->op != NULL) {
        if ((node->op->flags & flags) == 0)
            return NULL;
        if ((node->op->flags & UPDATE_OP_ON_INSERT) != 0 && !run->ctx->is_insert)
            return NULL;
        if (node->op->id == UPDATE_OP_RENAME_TARGET &&
            !elem_is_present(run->rename_values[node->rename_index]))
            return NULL;
        return node;
    }
    for (uint32_t i = 0; i < node->child_count; i++) {
        const UpdateNode *found = update_node_find(node->children[i], run, flags);
        if (found != NULL)
            return found;
    }
    return NULL;
}

const UpdateNode *update_node_first_leaf(const UpdateNode *node) {
    while (node->op == NULL && node->child_count > 0)
        node = node->children[0];
    return node;
}

/* What a component that starts with `$` means. */
static ErrCode classify_part(UpdateParser *p, const FieldPath *path, uint32_t at,
                             UpdatePartKind *ret_kind, uint32_t *ret_filter_index, Error *err) {
    Str name = path->parts[at].name;
    if (p->is_plain)
        return ERR_OK;
    if (str_is(name, "$")) {
        *ret_kind = UPDATE_PART_POSITIONAL;
        p->program->needs_positional = true;
        return ERR_OK;
    }
    if (name.size < 3 || name.data[0] != '$' || name.data[1] != '[' ||
        name.data[name.size - 1] != ']')
        return ERR_OK;
    Str identifier = {name.data + 2, name.size - 3};
    if (identifier.size == 0) {
        *ret_kind = UPDATE_PART_ALL;
        return ERR_OK;
    }
    for (uint32_t i = 0; i < p->program->filter_count; i++) {
        if (!str_equal(p->program->filters[i].name, identifier))
            continue;
        p->program->filters[i].is_used = true;
        *ret_kind = UPDATE_PART_FILTER;
        *ret_filter_index = i;
        return ERR_OK;
    }
    return error_set(
        err, ERR_BAD_VALUE, "No array filter found for identifier '%.*s' in path '%.*s'",
        (int)identifier.size, identifier.data, (int)path->dotted.size, path->dotted.data);
}

static uint32_t lower_bound(const UpdateNode *node, const UpdateNode *key) {
    uint32_t low = 0, high = node->child_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (update_part_compare(node->children[middle], key) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void insert_child(Arena *arena, UpdateNode *node, uint32_t at, UpdateNode *child) {
    /* The array has room for the next power of two of its count. */
    bool is_full = (node->child_count & (node->child_count - 1)) == 0;
    if (is_full) {
        uint32_t capacity = node->child_count > 0 ? node->child_count * 2 : 1;
        UpdateNode **children = ARENA_ARRAY(arena, UpdateNode *, capacity);
        if (node->child_count > 0)
            memcpy(children, node->children, node->child_count * sizeof(*children));
        node->children = children;
    }
    memmove(node->children + at + 1, node->children + at,
            (node->child_count - at) * sizeof(*node->children));
    node->children[at] = child;
    node->child_count++;
    node->has_positional_child |= child->part_kind == UPDATE_PART_POSITIONAL;
    node->has_array_child |=
        child->part_kind == UPDATE_PART_ALL || child->part_kind == UPDATE_PART_FILTER;
}
