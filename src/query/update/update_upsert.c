/*
 * update_upsert.c - the document that an upsert starts from.
 */
#include "query/update/update_internal.h"

typedef struct Base {
    UpdateParser parser;
    bool is_replacement;
} Base;

static ErrCode add_equality(void *ctx, const FieldPath *path, Elem operand, Error *err);
static ErrCode explain_conflict(const UpdateNode *root, const FieldPath *path, Error *err);
static bool is_path_prefix(Str prefix, Str path);

ErrCode update_upsert_base(const MatchExpr *query, bool is_replacement, Arena *arena, Doc *ret_base,
                           Error *err) {
    /* The equalities are $set of paths on an empty document. */
    UpdateProgram program = {0};
    Base base = {{.arena = arena, .program = &program, .is_plain = true}, is_replacement};
    program.root = update_node_new(arena, path_part(STR("")), UPDATE_PART_FIELD, STR(""));
    TRY(match_equalities(query, add_equality, &base, err));

    UpdateApplyContext ctx = {.positional_index = -1, .is_insert = true};
    UpdateResult result;
    TRY(update_apply(&program, DOC_EMPTY, &ctx, arena, &result, err));
    *ret_base = result.after;
    return ERR_OK;
}

static ErrCode add_equality(void *ctx, const FieldPath *path, Elem operand, Error *err) {
    Base *base = ctx;
    UpdateParser *p = &base->parser;
    if (base->is_replacement) {
        if (!is_path_prefix(STR("_id"), path->dotted))
            return ERR_OK;
        if (path->count > 1)
            return error_set(err, (ErrCode)ERR_NOT_EXACT_VALUE_FIELD,
                             "field at '_id' must be exactly specified, field at sub-path "
                             "'%.*s'found",
                             (int)path->dotted.size, path->dotted.data);
    }
    UpdateNode *leaf;
    ErrCode rc = update_trie_add(p, &UPDATE_OPERATORS[UPDATE_OP_SET], path, operand, &leaf, err);
    if (rc == ERR_CONFLICTING_UPDATE_OPERATORS)
        return explain_conflict(p->program->root, path, err);
    TRY(rc);
    leaf->depth_added = update_elem_depth(operand);
    return ERR_OK;
}

/* Finds the equality that was there before. */
static ErrCode explain_conflict(const UpdateNode *root, const FieldPath *path, Error *err) {
    const UpdateNode *node = root;
    for (uint32_t i = 0; i < path->count && node->op == NULL; i++)
        node = node->children[update_node_find_child(node, path->parts[i].name)];
    Str other = update_node_first_leaf(node)->dotted;
    if (str_equal(other, path->dotted))
        return error_set(err, ERR_NOT_SINGLE_VALUE_FIELD,
                         "cannot infer query fields to set, path '%.*s' is matched twice",
                         (int)other.size, other.data);
    return error_set(err, ERR_NOT_SINGLE_VALUE_FIELD,
                     "cannot infer query fields to set, both paths '%.*s' and '%.*s' are matched",
                     (int)path->dotted.size, path->dotted.data, (int)other.size, other.data);
}

static bool is_path_prefix(Str prefix, Str path) {
    if (path.size < prefix.size || memcmp(path.data, prefix.data, prefix.size) != 0)
        return false;
    return path.size == prefix.size || path.data[prefix.size] == '.';
}
