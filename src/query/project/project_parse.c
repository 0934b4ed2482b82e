/*
 * project_parse.c - from a specification to a tree of path components.
 */
#include <assert.h>

#include "base/hash.h"
#include "bson/json.h"
#include "query/project/project_internal.h"

typedef struct Parser {
    const ProjectContext *ctx;
    Arena *arena;
    Projection *projection;
    bool has_id; /* _id: 1 or 0 was given */
    bool is_id_excluded;
    bool has_elem_match;
    bool has_slice;
    uint32_t node_count;
} Parser;

static ErrCode parse_spec(Parser *p, Error *err);
static ErrCode parse_fields(Parser *p, Doc fields, Str prefix, uint32_t depth, Error *err);
static ErrCode parse_field(Parser *p, Elem elem, Str path, uint32_t depth, Error *err);
static ErrCode parse_flag(Parser *p, Elem elem, Str path, Error *err);
static ErrCode parse_operator(Parser *p, Elem elem, Str path, Error *err);
static ErrCode parse_meta(Parser *p, Elem elem, Elem op, Str path, Error *err);
static ErrCode parse_slice(Parser *p, Elem elem, Str path, bool *ret_is_taken, Error *err);
static ErrCode parse_elem_match(Parser *p, Elem elem, Str path, Error *err);
static ErrCode parse_positional(Parser *p, Elem elem, Str path, Error *err);
static ErrCode parse_expr(Parser *p, Elem elem, Str path, Error *err);
static ErrCode finish_kind(Parser *p, Error *err);
static ErrCode add_node(Parser *p, Str path, NodeKind kind, ProjectNode **ret_node, Error *err);
static ErrCode collision(Parser *p, Str path, size_t at, Error *err);
static ProjectNode *find_child(const ProjectNode *node, Str name);
static ProjectNode *new_child(Parser *p, ProjectNode *parent, Str name, Str path);
static bool mark_subtree(Projection *projection, ProjectNode *node);

ErrCode project_parse(Doc spec, const ProjectContext *ctx, Arena *arena,
                      Projection **ret_projection, Error *err) {
    Projection *projection = ARENA_NEW(arena, Projection);
    projection->spec = doc_copy(spec, arena);
    Parser parser = {.ctx = ctx, .arena = arena, .projection = projection};
    ErrCode rc = parse_spec(&parser, err);
    if (rc != ERR_OK)
        return ctx->stage_name == NULL
                   ? rc
                   : error_prefix(err, "Invalid %s :: caused by :", ctx->stage_name);
    *ret_projection = projection;
    return ERR_OK;
}

static ErrCode parse_spec(Parser *p, Error *err) {
    ProjectSyntax syntax = p->ctx->syntax;
    Projection *projection = p->projection;
    if (syntax == PROJECT_ADD_FIELDS)
        projection->kind = PROJECT_KIND_ADD_FIELDS;
    if (doc_is_empty(projection->spec) && syntax == PROJECT_STAGE)
        return error_set(err, (ErrCode)51272,
                         "projection specification must have at least one field");
    TRY(parse_fields(p, projection->spec, (Str){"", 0}, 0, err));
    TRY(finish_kind(p, err));
    mark_subtree(projection, &projection->root);
    projection->has_positional = projection->root.has_positional;
    if (p->ctx->expr->needed_meta != NULL)
        *p->ctx->expr->needed_meta |= projection->needed_meta;
    return ERR_OK;
}

static ErrCode parse_fields(Parser *p, Doc fields, Str prefix, uint32_t depth, Error *err) {
    if (depth >= PROJECT_DEPTH_MAX)
        return error_set(err, ERR_OVERFLOW, "projection is nested more than %d deep",
                         PROJECT_DEPTH_MAX);
    DocIter iter = doc_iter(fields);
    for (Elem elem; doc_iter_next(&iter, &elem);) {
        Str path = elem_name_str(elem);
        if (prefix.size > 0) {
            char *joined =
                arena_printf(p->arena, "%.*s.%s", (int)prefix.size, prefix.data, elem_name(elem));
            path = str_from(joined);
        }
        TRY(parse_field(p, elem, path, depth, err));
    }
    return ERR_OK;
}

static ErrCode parse_field(Parser *p, Elem elem, Str path, uint32_t depth, Error *err) {
    bool is_find = p->ctx->syntax == PROJECT_FIND;
    if (is_find && path.size >= 2 && memcmp(path.data + path.size - 2, ".$", 2) == 0)
        return parse_positional(p, elem, path, err);
    if (is_find && strstr(path.data, ".$.") != NULL)
        return error_set(
            err, (ErrCode)31394,
            "As of 4.4, it's illegal to specify positional operator in the middle of "
            "a path. Positional projection may only be used at the end, for example: "
            "a.b.$. If the query previously used a form like a.b.$.d, remove the parts "
            "following the '$' and the results will be equivalent.");
    TRY(expr_check_path(path, err));

    BsonType type = elem_type(elem);
    if (type == BT_DOC) {
        DocIter iter = doc_iter(elem_doc(elem));
        Elem first;
        if (!doc_iter_next(&iter, &first)) {
            if (p->ctx->syntax == PROJECT_ADD_FIELDS)
                return parse_expr(p, elem, path, err);
            return error_set(err, (ErrCode)51270,
                             "An empty sub-projection is not a valid value. Found empty object at "
                             "path %.*s",
                             (int)path.size, path.data);
        }
        if (elem_name(first)[0] == '$' && !expr_is_dbref_name(elem_name_str(first)))
            return parse_operator(p, elem, path, err);
        return parse_fields(p, elem_doc(elem), path, depth + 1, err);
    }
    bool is_flag = type_is_number(type) || type == BT_BOOL;
    if (is_flag && p->ctx->syntax != PROJECT_ADD_FIELDS)
        return parse_flag(p, elem, path, err);
    return parse_expr(p, elem, path, err);
}

static ErrCode parse_flag(Parser *p, Elem elem, Str path, Error *err) {
    bool is_included = elem_is_truthy(elem);
    ProjectNode *node;
    TRY(add_node(p, path, is_included ? NODE_INCLUDE : NODE_EXCLUDE, &node, err));
    if (str_is(path, "_id")) { /* goes with both kinds */
        p->has_id = true;
        p->is_id_excluded = !is_included;
        return ERR_OK;
    }
    ProjectKind *kind = &p->projection->kind;
    if (is_included && *kind == PROJECT_KIND_EXCLUSION)
        return error_set(err, (ErrCode)31253,
                         "Cannot do inclusion on field %.*s in exclusion projection",
                         (int)path.size, path.data);
    if (!is_included && *kind == PROJECT_KIND_INCLUSION)
        return error_set(err, (ErrCode)31254,
                         "Cannot do exclusion on field %.*s in inclusion projection",
                         (int)path.size, path.data);
    *kind = is_included ? PROJECT_KIND_INCLUSION : PROJECT_KIND_EXCLUSION;
    return ERR_OK;
}

/* {<path>: {$op: ...}} */
static ErrCode parse_operator(Parser *p, Elem elem, Str path, Error *err) {
    DocIter iter = doc_iter(elem_doc(elem));
    Elem op;
    doc_iter_next(&iter, &op);
    if (elem_name_is(op, STR("$meta")))
        return parse_meta(p, elem, op, path, err);
    if (p->ctx->syntax == PROJECT_STAGE && elem_name_is(op, STR("$elemMatch")))
        return error_set(err, ERR_INVALID_PIPELINE_OPERATOR,
                         "the projection $elemMatch belongs to find, not to pipelines");
    if (p->ctx->syntax != PROJECT_FIND)
        return parse_expr(p, elem, path, err);
    if (elem_name_is(op, STR("$elemMatch")))
        return parse_elem_match(p, elem, path, err);
    if (elem_name_is(op, STR("$slice"))) {
        bool is_taken;
        TRY(parse_slice(p, op, path, &is_taken, err));
        if (is_taken)
            return ERR_OK;
    }
    return parse_expr(p, elem, path, err);
}

/* Goes with inclusion and exclusion, and says nothing about which of them it is. */
static ErrCode parse_meta(Parser *p, Elem elem, Elem op, Str path, Error *err) {
    if (elem_type(op) == BT_STRING && doc_count(elem_doc(elem)) != 1)
        return error_set(err, ERR_BAD_VALUE,
                         "an object with $meta must have exactly one field, found: %s",
                         shell_text_of_elem(elem, p->arena));
    DocMetaKind kind;
    TRY(doc_meta_parse(op, &p->projection->needed_meta, &kind, err));
    ProjectNode *node;
    TRY(add_node(p, path, NODE_EXPR, &node, err));
    node->is_meta = true;
    node->meta = kind;
    return ERR_OK;
}

/* find's own $slice: a number, or [skip, limit]. An array whose first element is no number is the
 * expression of the same name. */
static ErrCode parse_slice(Parser *p, Elem elem, Str path, bool *ret_is_taken, Error *err) {
    int64_t skip = 0;
    int64_t limit = 0;
    bool has_skip = false;
    *ret_is_taken = true;
    if (elem_is_number(elem)) {
        limit = elem_as_i64(elem);
    } else if (elem_type(elem) == BT_ARRAY) {
        DocIter iter = doc_iter(elem_doc(elem));
        Elem first = ELEM_MISSING;
        Elem second = ELEM_MISSING;
        bool has_two = doc_iter_next(&iter, &first) && doc_iter_next(&iter, &second);
        if (has_two && !elem_is_number(first)) {
            *ret_is_taken = false;
            return ERR_OK;
        }
        if (doc_count(elem_doc(elem)) != 2)
            return error_set(err, (ErrCode)28667,
                             "Invalid $slice syntax. The given syntax { $slice: %s } did not match "
                             "the find() syntax because :: Location31272: $slice array argument "
                             "should be of form [skip, limit]",
                             shell_text_of_elem(elem, p->arena));
        if (!elem_is_number(second) || elem_as_i64(second) <= 0)
            return error_set(err, (ErrCode)28724,
                             "$slice limit must be a positive number, found: %s",
                             shell_text_of_elem(second, p->arena));
        skip = elem_as_i64(first);
        limit = elem_as_i64(second);
        has_skip = true;
    } else {
        return error_set(err, (ErrCode)28667,
                         "Invalid $slice syntax. The given syntax { $slice: %s } did not match the "
                         "find() syntax because :: Location31273: $slice only supports numbers and "
                         "[skip, limit] arrays",
                         shell_text_of_elem(elem, p->arena));
    }
    ProjectNode *node;
    TRY(add_node(p, path, NODE_SLICE, &node, err));
    int64_t low = -INT32_MAX;
    int64_t high = INT32_MAX;
    node->slice.skip = (int32_t)(skip < low ? low : skip > high ? high : skip);
    node->slice.limit = (int32_t)(limit < low ? low : limit > high ? high : limit);
    node->slice.has_skip = has_skip;
    p->has_slice = true;
    return ERR_OK;
}

static ErrCode parse_elem_match(Parser *p, Elem elem, Str path, Error *err) {
    Elem operand = doc_get_lit(elem_doc(elem), "$elemMatch");
    if (elem_type(operand) != BT_DOC)
        return error_set(err, (ErrCode)31274,
                         "elemMatch: Invalid argument, object required, but got %s",
                         bson_type_name(elem_type(operand)));
    if (str_has_char(path, '.'))
        return error_set(err, (ErrCode)31275, "Cannot use $elemMatch projection on a nested field");
    if (p->projection->has_positional)
        return error_set(err, (ErrCode)31255, "Cannot specify positional operator and $elemMatch.");

    Buffer buf;
    buffer_init_arena(&buf, p->arena, elem_size(elem) + 16, BSON_DOC_SIZE_MAX_INTERNAL);
    DocBuilder b;
    doc_builder_init(&b, &buf);
    build_elem_as(&b, path, elem);
    Doc filter;
    TRY(doc_builder_finish(&b, "projection", &filter, err));
    MatchExpr *match;
    TRY(match_parse(filter, p->ctx->match, p->arena, &match, err));
    ProjectNode *node;
    TRY(add_node(p, path, NODE_ELEM_MATCH, &node, err));
    node->elem_match = match;
    p->has_elem_match = true;
    return ERR_OK;
}

static ErrCode parse_positional(Parser *p, Elem elem, Str path, Error *err) {
    Str array_path = {path.data, path.size - 2};
    if (strstr(path.data, ".$.") != NULL)
        return error_set(err, (ErrCode)31394,
                         "As of 4.4, it's illegal to specify positional operator in the middle of "
                         "a path.");
    if (array_path.size == 0)
        return error_set(err, (ErrCode)5392900, "a positional projection needs a path");
    TRY(expr_check_path(array_path, err));
    if (p->projection->has_positional)
        return error_set(err, (ErrCode)31276,
                         "Cannot specify more than one positional projection per query.");
    if (p->has_elem_match)
        return error_set(err, (ErrCode)31256, "Cannot specify positional operator and $elemMatch.");
    bool is_flag = elem_is_number(elem) || elem_type(elem) == BT_BOOL;
    if (!is_flag)
        return error_set(err, (ErrCode)31271,
                         "positional projection cannot be used with a literal or expression");
    if (!elem_is_truthy(elem) || p->projection->kind == PROJECT_KIND_EXCLUSION)
        return error_set(err, (ErrCode)31395,
                         "positional projection cannot be used with exclusion");
    ProjectNode *node;
    TRY(add_node(p, array_path, NODE_POSITIONAL, &node, err));
    p->projection->kind = PROJECT_KIND_INCLUSION;
    p->projection->has_positional = true;
    return ERR_OK;
}

static ErrCode parse_expr(Parser *p, Elem elem, Str path, Error *err) {
    Projection *projection = p->projection;
    if (projection->kind == PROJECT_KIND_EXCLUSION)
        return error_set(err, (ErrCode)31252,
                         "Cannot use expression other than $meta in exclusion projection");
    if (projection->kind == PROJECT_KIND_UNKNOWN)
        projection->kind = PROJECT_KIND_INCLUSION;
    ProjectNode *node;
    TRY(add_node(p, path, NODE_EXPR, &node, err));
    ExprParseContext ctx = *p->ctx->expr;
    ctx.needed_meta = &projection->needed_meta;
    ErrCode rc = expr_parse(elem, &ctx, p->arena, &node->expr, err);
    if (rc != ERR_INVALID_PIPELINE_OPERATOR || elem_type(elem) != BT_DOC)
        return rc;
    /* The operator right at the field has a code of its own. */
    DocIter iter = doc_iter(elem_doc(elem));
    Elem first = ELEM_MISSING;
    if (!doc_iter_next(&iter, &first) || strstr(error_message(err), elem_name(first)) == NULL)
        return rc;
    return error_set(err, (ErrCode)31325, "Unknown expression %s", elem_name(first));
}

/* What could not be told while fields were read: the kind of {_id: 0}, and whether _id shows. */
static ErrCode finish_kind(Parser *p, Error *err) {
    Projection *projection = p->projection;
    if (projection->kind == PROJECT_KIND_UNKNOWN) {
        bool is_inclusion = p->has_elem_match || (p->has_id && !p->is_id_excluded && !p->has_slice);
        projection->kind = is_inclusion ? PROJECT_KIND_INCLUSION : PROJECT_KIND_EXCLUSION;
    }
    ProjectNode *id = find_child(&projection->root, STR("_id"));
    if (projection->kind != PROJECT_KIND_INCLUSION)
        return ERR_OK;
    if (id == NULL)
        return add_node(p, STR("_id"), NODE_INCLUDE, &id, err);
    if (id->kind == NODE_EXPR && !id->is_meta)
        projection->computed_id = id;
    return ERR_OK;
}

/* Adds the leaf at `path`; components above it must not be leaves themselves. */
static ErrCode add_node(Parser *p, Str path, NodeKind kind, ProjectNode **ret_node, Error *err) {
    ProjectNode *node = &p->projection->root;
    size_t start = 0;
    uint32_t depth = 0;
    for (size_t i = 0; i <= path.size; i++) {
        if (i < path.size && path.data[i] != '.')
            continue;
        if (++depth > PROJECT_DEPTH_MAX)
            return error_set(err, ERR_OVERFLOW, "FieldPath is too long");
        Str name = {path.data + start, i - start};
        Str path_here = {path.data, i};
        bool is_last = i == path.size;
        ProjectNode *child = find_child(node, name);
        if (child != NULL && (is_last || child->kind != NODE_CHILDREN))
            return collision(p, path, is_last ? path.size : i, err);
        if (child == NULL && ++p->node_count > PROJECT_FIELDS_MAX)
            return error_set(err, ERR_BAD_VALUE, "projection has more than %d fields",
                             PROJECT_FIELDS_MAX);
        node = child != NULL ? child : new_child(p, node, name, path_here);
        start = i + 1;
    }
    node->kind = kind;
    *ret_node = node;
    return ERR_OK;
}

/* `at` is where the path meets the end of another one; path.size when it ends above or at it. */
static ErrCode collision(Parser *p, Str path, size_t at, Error *err) {
    if (p->ctx->syntax == PROJECT_ADD_FIELDS)
        return error_set(err, (ErrCode)40176,
                         "specification contains two conflicting paths. Cannot specify both '%.*s' "
                         "and '%.*s'",
                         (int)path.size, path.data, (int)at, path.data);
    if (at == path.size)
        return error_set(err, (ErrCode)31250, "Path collision at %.*s", (int)path.size, path.data);
    return error_set(err, (ErrCode)31249, "Path collision at %.*s remaining portion %s",
                     (int)path.size, path.data,
                     arena_strndup(p->arena, path.data + at + 1, path.size - at - 1));
}

static ProjectNode *find_child(const ProjectNode *node, Str name) {
    uint32_t at = project_find_child(node, name);
    return at < node->child_count ? node->children[at] : NULL;
}

static uint32_t *slot_of(const ProjectNode *node, Str name) {
    uint32_t mask = node->slot_count - 1;
    uint32_t at = (uint32_t)hash_bytes(name.data, name.size) & mask;
    while (node->slots[at] != 0 && !str_equal(node->children[node->slots[at] - 1]->name.name, name))
        at = (at + 1) & mask;
    return &node->slots[at];
}

uint32_t project_find_child(const ProjectNode *node, Str name) {
    if (UNLIKELY(node->slots != NULL)) {
        uint32_t place = *slot_of(node, name);
        return place != 0 ? place - 1 : node->child_count;
    }
    uint32_t i = 0;
    while (i < node->child_count && !str_equal(node->children[i]->name.name, name))
        i++;
    return i;
}

/* Keeps the slots of a node that has got one more child. */
static void note_in_slots(ProjectNode *node, Arena *arena) {
    if (node->child_count <= PROJECT_CHILDREN_LISTED)
        return;
    uint32_t first = node->child_count - 1;
    if (node->child_count * 2 > node->slot_count) {
        node->slot_count =
            node->slot_count == 0 ? PROJECT_CHILDREN_LISTED * 4 : node->slot_count * 2;
        node->slots = ARENA_ARRAY(arena, uint32_t, node->slot_count);
        memset(node->slots, 0, node->slot_count * sizeof(*node->slots));
        first = 0;
    }
    for (uint32_t i = first; i < node->child_count; i++)
        *slot_of(node, node->children[i]->name.name) = i + 1;
}

static ProjectNode *new_child(Parser *p, ProjectNode *parent, Str name, Str path) {
    if (parent->child_count == parent->child_capacity) {
        uint32_t capacity = parent->child_capacity == 0 ? 4 : parent->child_capacity * 2;
        ProjectNode **children = ARENA_ARRAY(p->arena, ProjectNode *, capacity);
        if (parent->child_count > 0)
            memcpy(children, parent->children, parent->child_count * sizeof(*children));
        parent->children = children;
        parent->child_capacity = capacity;
    }
    ProjectNode *child = ARENA_NEW(p->arena, ProjectNode);
    child->name = path_part(name);
    child->path = path;
    parent->children[parent->child_count++] = child;
    note_in_slots(parent, p->arena);
    return child;
}

/* Expressions have their own way to what they read. */
static bool is_written_only(const ProjectNode *node) {
    return node->kind == NODE_EXPR || node->kind == NODE_EXCLUDE;
}

/* Sets what holds "here or below"; returns has_computed. */
static bool mark_subtree(Projection *projection, ProjectNode *node) {
    node->has_computed = node->kind == NODE_EXPR;
    node->has_positional = node->kind == NODE_POSITIONAL;
    projection->has_exprs |= node->kind == NODE_EXPR;
    if (node->kind == NODE_CHILDREN) {
        for (uint32_t i = 0; i < node->child_count; i++) {
            node->has_computed |= mark_subtree(projection, node->children[i]);
            node->has_positional |= node->children[i]->has_positional;
            node->read_count += !is_written_only(node->children[i]);
            node->has_appended |=
                node->children[i]->has_computed || node->children[i]->kind == NODE_ELEM_MATCH;
        }
    }
    return node->has_computed;
}

Projection *project_only(const PathSet *paths, bool is_deep, Arena *arena) {
    static const uint8_t TRUE_BYTES[] = {BT_BOOL, 0, 1};
    if (paths->is_all || paths->count == 0)
        return NULL;
    PathSet kept = path_set(arena);
    for (uint32_t i = 0; i < paths->count; i++)
        path_set_add(&kept, is_deep ? paths->paths[i] : path_first_part(paths->paths[i]));
    DocBuilder b = doc_builder_in_arena(arena);
    for (uint32_t i = 0; i < kept.count; i++)
        build_elem_as(&b, kept.paths[i], (Elem){TRUE_BYTES, 0});
    if (!path_set_covers(&kept, STR("_id")))
        build_bool(&b, "_id", false);
    ExprParseContext expr = {.let_values = DOC_NONE};
    ProjectContext ctx = {.syntax = PROJECT_STAGE, .stage_name = "$project", .expr = &expr};
    Projection *projection;
    CLEANUP(error_reset) Error refused = {0};
    return project_parse(doc_builder_end(&b), &ctx, arena, &projection, &refused) == ERR_OK
               ? projection
               : NULL;
}
