/*
 * update_parse.c - from an update document to a program.
 */
#include "bson/json.h"
#include "query/update/update_internal.h"

static ErrCode parse_replacement(UpdateParser *p, Doc replacement, Error *err);
static ErrCode parse_operators(UpdateParser *p, Doc update, Error *err);
static ErrCode parse_pipeline(UpdateParser *p, Doc stages, Error *err);
static ErrCode check_path(const FieldPath *path, Error *err);
static bool makes_dollar_field(const UpdateOperator *op, const FieldPath *path);
static void add_touched(UpdateParser *p, const FieldPath *path);
static bool is_canonical_prefix(Str canonical, Str dotted);
static Str next_part(Str *rest);

ErrCode update_parse(Elem update, const UpdateParseContext *ctx, Arena *arena,
                     UpdateProgram **ret_program, Error *err) {
    UpdateProgram *program = ARENA_NEW(arena, UpdateProgram);
    UpdateParser parser = {.ctx = ctx, .arena = arena, .program = program};
    program->collator = ctx->match->collator;
    if (elem_type(update) == BT_ARRAY) {
        TRY(parse_pipeline(&parser, elem_doc(update), err));
    } else if (elem_type(update) == BT_DOC) {
        Doc doc = doc_copy(elem_doc(update), arena);
        DocIter iter = doc_iter(doc);
        Elem first;
        bool is_operators = doc_iter_next(&iter, &first) && elem_name(first)[0] == '$';
        if (is_operators)
            TRY(parse_operators(&parser, doc, err));
        else
            TRY(parse_replacement(&parser, doc, err));
    } else {
        return error_set(err, ERR_FAILED_TO_PARSE,
                         "Update argument must be either an object or an array");
    }
    *ret_program = program;
    return ERR_OK;
}

bool update_is_replacement(const UpdateProgram *program) {
    return doc_is_present(program->replacement);
}

bool update_needs_positional(const UpdateProgram *program) {
    return program->needs_positional;
}

bool update_touched_paths(const UpdateProgram *program, const Str **ret_paths,
                          uint32_t *ret_count) {
    *ret_paths = program->touched;
    *ret_count = program->touched_count;
    return program->root != NULL;
}

bool update_touches_path(const UpdateProgram *program, Str dotted) {
    if (program->root == NULL)
        return true;
    for (uint32_t i = 0; i < program->touched_count; i++)
        if (is_canonical_prefix(program->touched[i], dotted))
            return true;
    return false;
}

ErrCode update_parse_path(UpdateParser *p, const UpdateOperator *op, Str dotted, Elem operand,
                          UpdateNode **ret_leaf, Error *err) {
    if (dotted.size == 0)
        return error_set(err, ERR_EMPTY_FIELD_NAME, "An empty update path is not valid.");
    FieldPath path;
    TRY(path_parse(dotted, p->arena, &path, err));
    TRY(check_path(&path, err));
    TRY(update_trie_add(p, op, &path, operand, ret_leaf, err));
    (*ret_leaf)->depth_added = update_elem_depth(operand);
    if (makes_dollar_field(op, &path))
        p->program->dollar_path = path.dotted;
    TRY(op->parse(p, *ret_leaf, err));
    p->program->operand_bytes += (uint32_t)path.dotted.size + elem_value_size(operand) + 16;
    add_touched(p, &path);
    return ERR_OK;
}

static ErrCode parse_pipeline(UpdateParser *p, Doc stages, Error *err) {
    const UpdatePipelineHook *hook = p->ctx->pipeline_hook;
    if (doc_is_present(p->ctx->array_filters))
        return error_set(err, ERR_FAILED_TO_PARSE,
                         "arrayFilters may not be specified for pipeline-syle updates");
    if (hook == NULL)
        return error_set(err, ERR_NOT_IMPLEMENTED, "pipeline-style updates are not supported");
    return hook->parse(hook, stages, p->arena, &p->program->pipeline, err);
}

static ErrCode parse_replacement(UpdateParser *p, Doc replacement, Error *err) {
    if (p->ctx->is_multi)
        return error_set(err, ERR_FAILED_TO_PARSE,
                         "multi update is not supported for replacement-style update");
    TRY(update_parse_filters(p, err)); /* they must be good, though nothing asks them */
    DocIter iter = doc_iter(replacement);
    for (Elem elem; doc_iter_next(&iter, &elem);) {
        const char *name = elem_name(elem);
        if (name[0] == '$')
            return error_set(err, ERR_DOLLAR_PREFIXED_FIELD_NAME,
                             "The dollar ($) prefixed field '%s' in '%s' is not allowed in the "
                             "context of an update's replacement document. Consider using an "
                             "aggregation pipeline with $replaceWith.",
                             name, name);
        if (update_elem_depth(elem) + 1 > BSON_DEPTH_MAX_STORED)
            return error_set(err, ERR_OVERFLOW, "Document exceeds maximum nesting depth of %d",
                             BSON_DEPTH_MAX_STORED);
    }
    p->program->replacement = replacement;
    return ERR_OK;
}

static ErrCode parse_operators(UpdateParser *p, Doc update, Error *err) {
    TRY(update_parse_filters(p, err));
    p->program->root = update_node_new(p->arena, path_part(STR("")), UPDATE_PART_FIELD, STR(""));

    DocIter iter = doc_iter(update);
    for (Elem elem; doc_iter_next(&iter, &elem);) {
        const UpdateOperator *op = NULL;
        for (size_t i = 0; i < UPDATE_OP_COUNT && op == NULL; i++)
            if (str_is(elem_name_str(elem), UPDATE_OPERATORS[i].name))
                op = &UPDATE_OPERATORS[i];
        if (op == NULL || op->id == UPDATE_OP_RENAME_TARGET)
            return error_set(err, ERR_FAILED_TO_PARSE,
                             "Unknown modifier: %s. Expected a valid update modifier or "
                             "pipeline-style update specified as an array",
                             elem_name(elem));
        if (elem_type(elem) != BT_DOC)
            return error_set(err, ERR_FAILED_TO_PARSE,
                             "Modifiers operate on fields but we found type %s instead. For "
                             "example: {$mod: {<field>: ...}} not {%s: %s}",
                             bson_type_name(elem_type(elem)), elem_name(elem),
                             shell_text_of_elem(elem, p->arena));
        DocIter fields = doc_iter(elem_doc(elem));
        for (Elem field; doc_iter_next(&fields, &field);) {
            UpdateNode *leaf;
            TRY(update_parse_path(p, op, elem_name_str(field), field, &leaf, err));
        }
    }
    TRY(update_check_filters_used(p, update, err));

    p->program->is_flat = true;
    for (uint32_t i = 0; i < p->program->root->child_count; i++)
        p->program->is_flat &= p->program->root->children[i]->op != NULL;
    return ERR_OK;
}

static ErrCode check_path(const FieldPath *path, Error *err) {
    uint32_t positional_count = 0;
    for (uint32_t i = 0; i < path->count; i++) {
        Str name = path->parts[i].name;
        if (name.size == 0)
            return error_set(err, ERR_EMPTY_FIELD_NAME,
                             "The update path '%.*s' contains an empty field name, which is not "
                             "allowed.",
                             (int)path->dotted.size, path->dotted.data);
        positional_count += str_is(name, "$");
    }
    const PathPart *first = &path->parts[0];
    if (str_is(first->name, "$"))
        return error_set(err, ERR_BAD_VALUE,
                         "Cannot have positional (i.e. '$') element in the first position in path "
                         "'%.*s'",
                         (int)path->dotted.size, path->dotted.data);
    if (first->name.size > 1 && first->name.data[0] == '$' && first->name.data[1] == '[')
        return error_set(err, ERR_BAD_VALUE,
                         "Cannot have array filter identifier (i.e. '$[<id>]') element in the "
                         "first position in path '%.*s'",
                         (int)path->dotted.size, path->dotted.data);
    if (positional_count > 1)
        return error_set(err, ERR_BAD_VALUE,
                         "Too many positional (i.e. '$') elements found in path '%.*s'",
                         (int)path->dotted.size, path->dotted.data);
    return ERR_OK;
}

/* A document may be inserted with fields whose names start with `$`; operators give it none. */
static bool makes_dollar_field(const UpdateOperator *op, const FieldPath *path) {
    return path->parts[0].name.data[0] == '$' && (op->flags & UPDATE_OP_CREATES) != 0 &&
           (op->flags & UPDATE_OP_ON_INSERT) == 0;
}

uint32_t update_elem_depth(Elem elem) {
    if (elem_type(elem) != BT_DOC && elem_type(elem) != BT_ARRAY)
        return 0;
    uint32_t deepest = 0;
    DocIter iter = doc_iter(elem_doc(elem));
    for (Elem inner; doc_iter_next(&iter, &inner);) {
        BsonType type = elem_type(inner);
        if (type != BT_DOC && type != BT_ARRAY)
            continue;
        uint32_t depth = update_elem_depth(inner); /* at most BSON_DEPTH_MAX levels come in */
        deepest = depth > deepest ? depth : deepest;
    }
    return deepest + 1;
}

/* ---- touched paths ---- */

/* Positional and numeric components say which element of an array changes; indexes do not care. */
static bool is_canonical_part(Str name) {
    return path_index_of(name) < 0 && name.size > 0 && name.data[0] != '$';
}

static void add_touched(UpdateParser *p, const FieldPath *path) {
    UpdateProgram *program = p->program;
    if (program->touched_count == p->touched_capacity) {
        p->touched_capacity = p->touched_capacity > 0 ? p->touched_capacity * 2 : 4;
        Str *touched = ARENA_ARRAY(p->arena, Str, p->touched_capacity);
        if (program->touched_count > 0)
            memcpy(touched, program->touched, program->touched_count * sizeof(*touched));
        program->touched = touched;
    }
    char *text = arena_alloc(p->arena, path->dotted.size + 1);
    size_t size = 0;
    for (uint32_t i = 0; i < path->count; i++) {
        Str name = path->parts[i].name;
        if (i > 0 && !is_canonical_part(name))
            continue;
        if (size > 0)
            text[size++] = '.';
        memcpy(text + size, name.data, name.size);
        size += name.size;
    }
    text[size] = '\0';
    program->touched[program->touched_count++] = (Str){text, size};
}

/* Is one path the beginning of the other, numbers in `dotted` aside? */
static bool is_canonical_prefix(Str canonical, Str dotted) {
    for (bool is_first = true;; is_first = false) {
        Str part = {0};
        do {
            if (dotted.data == NULL)
                return true;
            part = next_part(&dotted);
        } while (!is_first && !is_canonical_part(part));
        if (canonical.data == NULL)
            return true;
        if (!str_equal(part, next_part(&canonical)))
            return false;
    }
}

/* Takes the first component; `rest` becomes {NULL, 0} after the last. */
static Str next_part(Str *rest) {
    const char *dot = rest->size > 0 ? memchr(rest->data, '.', rest->size) : NULL;
    if (dot == NULL) {
        Str part = *rest;
        *rest = (Str){NULL, 0};
        return part;
    }
    Str part = {rest->data, (size_t)(dot - rest->data)};
    *rest = (Str){dot + 1, rest->size - part.size - 1};
    return part;
}
