/*
 * project.c - applying a projection: one pass over the document, copying what the tree keeps.
 */
#include <assert.h>

#include "base/alloc.h"
#include "query/project/project_internal.h"

typedef struct Apply {
    const Projection *projection;
    const ProjectInput *input;
    DocBuilder b;
    bool is_position_used; /* `a.$` has picked its element in an array further up */
    uint32_t depth;
    uint32_t nested_arrays; /* arrays directly inside of arrays around the current field */
} Apply;

/* Which children the document has: a bit for each. */
typedef struct Seen {
    uint64_t first;
    uint64_t *others; /* of children behind the first 64; NULL: nobody asks */
} Seen;

static ErrCode apply_doc(Apply *a, const ProjectNode *node, Doc in, Error *err);
static ErrCode include_fields(Apply *a, const ProjectNode *node, Doc in, Seen *seen, Error *err);
static ErrCode keep_other_fields(Apply *a, const ProjectNode *node, Doc in, Seen *seen, Error *err);
static ErrCode append_computed(Apply *a, const ProjectNode *node, Doc in, const Seen *seen,
                               Error *err);
static ErrCode apply_child(Apply *a, const ProjectNode *child, Elem elem, Error *err);
static ErrCode apply_children(Apply *a, const ProjectNode *node, Str name, Elem elem, Error *err);
static ErrCode apply_array(Apply *a, const ProjectNode *node, Str name, Doc array, Error *err);
static ErrCode append_computed_doc(Apply *a, const ProjectNode *node, Str name, Error *err);
static ErrCode append_expr(Apply *a, const ProjectNode *node, Error *err);
static void append_slice(Apply *a, const ProjectNode *node, Elem elem);
static ErrCode append_elem_match(Apply *a, const ProjectNode *node, Elem elem, Error *err);
static ErrCode append_positional(Apply *a, Elem elem, Error *err);
static ErrCode find_position(Apply *a, Doc array, Elem *ret_elem, Error *err);
static void append_array_of_one(Apply *a, Str name, Elem elem);

ErrCode project_apply(const Projection *projection, Doc in, const ProjectInput *input, Buffer *out,
                      Doc *ret_doc, Error *err) {
    Apply apply = {.projection = projection, .input = input};
    if (projection->has_exprs)
        input->eval->root = in;
    doc_builder_init(&apply.b, out);
    if (projection->computed_id != NULL)
        TRY(append_expr(&apply, projection->computed_id, err));
    TRY(apply_doc(&apply, &projection->root, in, err));
    return doc_builder_finish(&apply.b, "projected document", ret_doc, err);
}

bool project_is_identity(const Projection *projection) {
    return projection->kind != PROJECT_KIND_INCLUSION && projection->root.child_count == 0;
}

bool project_needs_details(const Projection *projection) {
    return projection->has_positional;
}

bool project_has_exprs(const Projection *projection) {
    return projection->has_exprs;
}

bool project_is_simple(const Projection *projection) {
    if (projection->has_exprs || projection->needed_meta != 0 || project_needs_details(projection))
        return false;
    DocIter iter = doc_iter(project_spec(projection));
    for (Elem part; doc_iter_next(&iter, &part);)
        if (elem_type(part) == BT_DOC || strchr(elem_name(part), '.') != NULL)
            return false;
    return true;
}

bool project_is_inclusion(const Projection *projection) {
    return projection->kind == PROJECT_KIND_INCLUSION;
}

uint32_t project_needed_meta(const Projection *projection) {
    return projection->needed_meta;
}

/* The fields that are shown or hidden, or those that are computed. */
static void show_children(const ProjectNode *node, bool is_computed, DocBuilder *b) {
    for (uint32_t i = 0; i < node->child_count; i++) {
        const ProjectNode *child = node->children[i];
        Str name = child->name.name;
        bool is_flag = child->kind == NODE_INCLUDE || child->kind == NODE_EXCLUDE;
        bool is_id = str_is(child->path, "_id");
        if (child->kind == NODE_CHILDREN && child->has_computed == is_computed) {
            size_t opened = build_open_doc_str(b, name);
            show_children(child, /* is_computed= */ false, b);
            show_children(child, /* is_computed= */ true, b);
            build_close(b, opened);
        } else if (is_flag && !is_computed && !is_id) {
            build_bool(b, name.data, child->kind == NODE_INCLUDE);
        } else if (child->kind == NODE_EXPR && is_computed && !child->is_meta) {
            expr_to_bson(child->expr, name, b);
        } else if (child->kind == NODE_EXPR && is_computed) {
            size_t opened = build_open_doc_str(b, name);
            build_cstr(b, "$meta", doc_meta_name(child->meta));
            build_close(b, opened);
        }
    }
}

void project_to_bson(const Projection *projection, DocBuilder *b) {
    const ProjectNode *root = &projection->root;
    const ProjectNode *id = NULL;
    for (uint32_t i = 0; i < root->child_count; i++)
        if (str_is(root->children[i]->path, "_id"))
            id = root->children[i];
    if (id != NULL && id->kind == NODE_INCLUDE)
        build_bool(b, "_id", true);
    show_children(root, /* is_computed= */ false, b);
    if (id != NULL && id->kind == NODE_EXCLUDE)
        build_bool(b, "_id", false);
    else if (id == NULL && projection->kind == PROJECT_KIND_EXCLUSION)
        build_bool(b, "_id", true);
    show_children(root, /* is_computed= */ true, b);
}

Doc project_spec(const Projection *projection) {
    return projection->spec;
}

static void add_node_paths(const ProjectNode *node, bool is_inclusion, PathSet *set) {
    switch (node->kind) {
    case NODE_CHILDREN:
        /* What is computed inside goes into each element of an array that may be there. */
        if (node->has_computed && node->path.size > 0)
            path_set_add(set, node->path);
        for (uint32_t i = 0; i < node->child_count; i++)
            add_node_paths(node->children[i], is_inclusion, set);
        break;
    case NODE_EXPR:
        if (!node->is_meta)
            expr_add_paths(node->expr, set);
        break;
    case NODE_EXCLUDE:
        break;
    default:
        if (is_inclusion)
            path_set_add(set, node->path);
    }
}

bool project_add_paths(const Projection *projection, PathSet *set) {
    bool is_inclusion = projection->kind == PROJECT_KIND_INCLUSION;
    add_node_paths(&projection->root, is_inclusion, set);
    return is_inclusion;
}

/* Numbers in a path mean positions to a filter and names to a projection. */
static bool has_numeric_part(Str dotted) {
    size_t start = 0;
    for (size_t i = 0; i <= dotted.size; i++) {
        if (i < dotted.size && dotted.data[i] != '.')
            continue;
        if (path_index_of((Str){dotted.data + start, i - start}) >= 0)
            return true;
        start = i + 1;
    }
    return false;
}

bool project_preserves_path(const Projection *projection, Str dotted) {
    if (has_numeric_part(dotted))
        return false;
    const ProjectNode *node = &projection->root;
    size_t start = 0;
    for (size_t i = 0; i <= dotted.size; i++) {
        if (i < dotted.size && dotted.data[i] != '.')
            continue;
        Str name = {dotted.data + start, i - start};
        uint32_t place = project_find_child(node, name);
        if (place == node->child_count)
            return projection->kind != PROJECT_KIND_INCLUSION;
        const ProjectNode *child = node->children[place];
        if (child->kind != NODE_CHILDREN)
            return child->kind == NODE_INCLUDE;
        node = child;
        start = i + 1;
    }
    return false; /* something below the path changes */
}

Str project_renamed_path(const Projection *projection, Str field) {
    const ProjectNode *root = &projection->root;
    for (uint32_t i = 0; i < root->child_count; i++) {
        const ProjectNode *child = root->children[i];
        if (child->kind != NODE_EXPR || child->is_meta || !str_equal(child->name.name, field))
            continue;
        const FieldPath *path = expr_field_path(child->expr);
        return path != NULL && !has_numeric_part(path->dotted) ? path->dotted : STR("");
    }
    return STR("");
}

static inline void seen_done(Seen *seen) {
    if (UNLIKELY(seen->others != NULL))
        xfree(seen->others);
}

static inline void see(Seen *seen, uint32_t child) {
    if (LIKELY(child < 64))
        seen->first |= UINT64_C(1) << child;
    else if (seen->others != NULL)
        seen->others[child / 64] |= UINT64_C(1) << (child % 64);
}

static inline bool is_seen_child(const Seen *seen, uint32_t child) {
    uint64_t word = child < 64 ? seen->first : seen->others != NULL ? seen->others[child / 64] : 0;
    return (word >> (child % 64) & 1) != 0;
}

static ErrCode apply_doc(Apply *a, const ProjectNode *node, Doc in, Error *err) {
    CLEANUP(seen_done) Seen seen = {0};
    if (UNLIKELY(node->has_appended && node->child_count > 64))
        seen.others = xcalloc((node->child_count + 63) / 64, sizeof(uint64_t));
    if (a->projection->kind == PROJECT_KIND_INCLUSION)
        TRY(include_fields(a, node, in, &seen, err));
    else
        TRY(keep_other_fields(a, node, in, &seen, err));
    return node->has_appended ? append_computed(a, node, in, &seen, err) : ERR_OK;
}

/* A field of the document being read. Names of up to seven bytes, nearly all, cost one load for
 * both their length and the comparison with those of the tree. */
typedef struct Field {
    Elem elem;
    uint64_t word; /* the first eight bytes of the name; 0 when too near to the end to load them */
    const uint8_t *next;
} Field;

static inline bool next_field(const uint8_t *at, const uint8_t *end, Field *ret) {
    if (*at == BT_EOO)
        return false;
    uint32_t name_size = 8;
    ret->word = 0;
    if (LIKELY(end - at >= 9)) {
        const uint64_t ones = 0x0101010101010101u;
        const uint64_t highs = 0x8080808080808080u;
        memcpy(&ret->word, at + 1, sizeof(ret->word));
        uint64_t zeros = (ret->word - ones) & ~ret->word & highs;
        if (LIKELY(zeros != 0))
            name_size = (uint32_t)__builtin_ctzll(zeros) / 8;
        else
            name_size += (uint32_t)strlen((const char *)at + 9);
    } else {
        name_size = (uint32_t)strlen((const char *)at + 1);
    }
    ret->elem = (Elem){at, name_size};
    const uint8_t *value = at + name_size + 2;
    ret->next = value + value_size((BsonType)*at, value);
    return true;
}

/* The child that names the field; child_count when none does. */
static inline uint32_t find_child(const ProjectNode *node, const Field *field) {
    Str name = elem_name_str(field->elem);
    uint32_t i = 0;
    if (LIKELY(field->word != 0 && node->slots == NULL)) {
        for (; i < node->child_count; i++) {
            const PathPart *part = &node->children[i]->name;
            if ((field->word & part->mask) == part->word && name.size == part->name.size &&
                (name.size < 8 || memcmp(name.data, part->name.data, name.size) == 0))
                break;
        }
        return i;
    }
    return project_find_child(node, name);
}

/* Stops when every child that is read was met: projections of the first fields do not look at the
 * rest. */
static ErrCode include_fields(Apply *a, const ProjectNode *node, Doc in, Seen *seen, Error *err) {
    const uint8_t *end = in.data + doc_size(in);
    uint32_t left = node->read_count;
    Field field = {.next = in.data + 4};
    while (left > 0 && next_field(field.next, end, &field)) {
        uint32_t child = find_child(node, &field);
        if (child == node->child_count)
            continue;
        NodeKind kind = node->children[child]->kind;
        if (kind == NODE_EXPR || kind == NODE_EXCLUDE)
            continue;
        left--;
        see(seen, child);
        if (LIKELY(kind == NODE_INCLUDE))
            buffer_append(a->b.buf, field.elem.data, (size_t)(field.next - field.elem.data));
        else
            TRY(apply_child(a, node->children[child], field.elem, err));
    }
    return ERR_OK;
}

/* Exclusion and added fields: stretches between fields that the tree names are copied whole. */
static ErrCode keep_other_fields(Apply *a, const ProjectNode *node, Doc in, Seen *seen,
                                 Error *err) {
    const uint8_t *end = in.data + doc_size(in);
    Field field = {.next = in.data + 4};
    const uint8_t *stretch = field.next;
    while (next_field(field.next, end, &field)) {
        uint32_t child = find_child(node, &field);
        if (child == node->child_count)
            continue;
        see(seen, child);
        buffer_append(a->b.buf, stretch, (size_t)(field.elem.data - stretch));
        stretch = field.next;
        TRY(apply_child(a, node->children[child], field.elem, err));
    }
    buffer_append(a->b.buf, stretch, (size_t)(field.next - stretch));
    return ERR_OK;
}

/* What is computed and was not put in the place of a field. */
static ErrCode append_computed(Apply *a, const ProjectNode *node, Doc in, const Seen *seen,
                               Error *err) {
    bool is_inclusion = a->projection->kind == PROJECT_KIND_INCLUSION;
    for (uint32_t i = 0; i < node->child_count; i++) {
        const ProjectNode *child = node->children[i];
        bool is_seen = is_seen_child(seen, i);
        if (child->kind == NODE_EXPR) {
            bool is_appended = is_inclusion || !is_seen;
            if (is_appended && child != a->projection->computed_id)
                TRY(append_expr(a, child, err));
        } else if (child->kind == NODE_ELEM_MATCH && is_inclusion && is_seen) {
            TRY(append_elem_match(a, child, path_find_field(in, &child->name), err));
        } else if (child->kind == NODE_CHILDREN && child->has_computed && !is_seen) {
            TRY(append_computed_doc(a, child, child->name.name, err));
        }
    }
    return ERR_OK;
}

/* The field `elem` is named by the tree. */
static ErrCode apply_child(Apply *a, const ProjectNode *child, Elem elem, Error *err) {
    bool is_inclusion = a->projection->kind == PROJECT_KIND_INCLUSION;
    switch (child->kind) {
    case NODE_CHILDREN:
        return apply_children(a, child, elem_name_str(elem), elem, err);
    case NODE_INCLUDE:
        build_elem(&a->b, elem);
        return ERR_OK;
    case NODE_EXCLUDE:
        return ERR_OK;
    case NODE_EXPR: /* not of an inclusion, which appends it later */
        return append_expr(a, child, err);
    case NODE_SLICE: /* goes into one level of arrays only */
        if (a->nested_arrays > 0)
            build_elem(&a->b, elem);
        else
            append_slice(a, child, elem);
        return ERR_OK;
    case NODE_ELEM_MATCH:
        return is_inclusion ? ERR_OK : append_elem_match(a, child, elem, err);
    case NODE_POSITIONAL:
        return append_positional(a, elem, err);
    }
    return ERR_OK;
}

/* The tree goes on below this field. */
static ErrCode apply_children(Apply *a, const ProjectNode *node, Str name, Elem elem, Error *err) {
    if (a->depth >= PROJECT_DEPTH_MAX)
        return error_set(err, ERR_OVERFLOW, "document is nested more than %d deep",
                         PROJECT_DEPTH_MAX);
    a->depth++;
    if (elem_type(elem) == BT_DOC) {
        size_t opened = build_open_doc_str(&a->b, name);
        TRY(apply_doc(a, node, elem_doc(elem), err));
        build_close(&a->b, opened);
    } else if (elem_type(elem) == BT_ARRAY) {
        TRY(apply_array(a, node, name, elem_doc(elem), err));
    } else if (node->has_computed) {
        TRY(append_computed_doc(a, node, name, err));
    } else if (a->projection->kind == PROJECT_KIND_EXCLUSION) {
        build_elem_as(&a->b, name, elem);
    }
    a->depth--;
    return ERR_OK;
}

static ErrCode apply_array(Apply *a, const ProjectNode *node, Str name, Doc array, Error *err) {
    bool is_picking = node->has_positional && !a->is_position_used;
    Elem picked = ELEM_MISSING;
    if (is_picking) {
        TRY(find_position(a, array, &picked, err));
        a->is_position_used = true;
    }
    size_t opened = build_open_array_str(&a->b, name);
    uint32_t count = 0;
    DocIter iter = doc_iter(array);
    for (Elem elem; doc_iter_next(&iter, &elem);) {
        if (is_picking && elem.data != picked.data)
            continue;
        char buffer[INDEX_NAME_SIZE];
        size_t size_before = a->b.buf->size;
        bool is_nested = elem_type(elem) == BT_ARRAY;
        a->nested_arrays += is_nested;
        TRY(apply_children(a, node, index_name(count, buffer), elem, err));
        a->nested_arrays -= is_nested;
        count += a->b.buf->size != size_before;
    }
    build_close(&a->b, opened);
    if (is_picking)
        a->is_position_used = false;
    return ERR_OK;
}

/* A document of nothing but what the tree computes, where the input has none. */
static ErrCode append_computed_doc(Apply *a, const ProjectNode *node, Str name, Error *err) {
    size_t opened = build_open_doc_str(&a->b, name);
    TRY(append_computed(a, node, DOC_EMPTY, &(Seen){0}, err));
    build_close(&a->b, opened);
    return ERR_OK;
}

static ErrCode append_expr(Apply *a, const ProjectNode *node, Error *err) {
    if (node->is_meta) {
        Elem known = ELEM_MISSING;
        TRY(doc_meta_get(a->input->eval, node->meta, &known, err));
        if (elem_is_present(known))
            build_elem_as(&a->b, node->name.name, known);
        return ERR_OK;
    }
    Value value;
    TRY(expr_eval(node->expr, a->input->eval, &value, err));
    build_value_as(&a->b, node->name.name, value);
    return ERR_OK;
}

/* [from, to) of an array by the rules of $slice; see ProjectNode. */
static void slice_bounds(const ProjectNode *node, int64_t count, int64_t *ret_from,
                         int64_t *ret_to) {
    int64_t skip = node->slice.skip;
    int64_t limit = node->slice.limit;
    if (!node->slice.has_skip) {
        skip = limit < 0 ? limit : 0;
        limit = limit < 0 ? -limit : limit;
    }
    int64_t from = skip < 0 ? count + skip : skip;
    *ret_from = from < 0 ? 0 : from;
    *ret_to = *ret_from + limit;
}

static void append_slice(Apply *a, const ProjectNode *node, Elem elem) {
    if (elem_type(elem) != BT_ARRAY) {
        build_elem(&a->b, elem);
        return;
    }
    int64_t from;
    int64_t to;
    slice_bounds(node, doc_count(elem_doc(elem)), &from, &to);
    size_t opened = build_open_array_str(&a->b, elem_name_str(elem));
    int64_t index = 0;
    uint32_t count = 0;
    DocIter iter = doc_iter(elem_doc(elem));
    for (Elem item; index < to && doc_iter_next(&iter, &item); index++) {
        char buffer[INDEX_NAME_SIZE];
        if (index >= from)
            build_elem_as(&a->b, index_name(count++, buffer), item);
    }
    build_close(&a->b, opened);
}

/* The first element that matches, alone in an array; nothing when none does. */
static ErrCode append_elem_match(Apply *a, const ProjectNode *node, Elem elem, Error *err) {
    if (elem_type(elem) != BT_ARRAY)
        return ERR_OK;
    MatchDetails details = MATCH_DETAILS_NONE;
    details.err = err;
    bool is_match = match_elem(node->elem_match, node->name.name, elem, &details);
    TRY(details.rc);
    if (!is_match || details.array_index < 0)
        return ERR_OK;
    int32_t index = details.array_index;
    DocIter iter = doc_iter(elem_doc(elem));
    for (Elem item; doc_iter_next(&iter, &item); index--)
        if (index == 0) {
            append_array_of_one(a, elem_name_str(elem), item);
            break;
        }
    return ERR_OK;
}

static ErrCode append_positional(Apply *a, Elem elem, Error *err) {
    if (elem_type(elem) != BT_ARRAY || a->is_position_used) {
        build_elem(&a->b, elem);
        return ERR_OK;
    }
    Elem picked;
    TRY(find_position(a, elem_doc(elem), &picked, err));
    if (elem_is_present(picked))
        append_array_of_one(a, elem_name_str(elem), picked);
    else
        build_elem(&a->b, elem);
    return ERR_OK;
}

/* The element the query found. An empty array has none and may stay empty. */
static ErrCode find_position(Apply *a, Doc array, Elem *ret_elem, Error *err) {
    *ret_elem = ELEM_MISSING;
    if (doc_is_empty(array))
        return ERR_OK;
    int32_t index = a->input->details == NULL ? -1 : a->input->details->array_index;
    DocIter iter = doc_iter(array);
    for (Elem elem; index >= 0 && doc_iter_next(&iter, &elem); index--) {
        if (index == 0) {
            *ret_elem = elem;
            return ERR_OK;
        }
    }
    bool is_short = a->input->details != NULL && a->input->details->array_index >= 0;
    return error_set(err, is_short ? (ErrCode)51247 : (ErrCode)51246,
                     "Executor error during find command :: caused by :: positional operator '.$' "
                     "couldn't find a matching element in the array");
}

static void append_array_of_one(Apply *a, Str name, Elem elem) {
    size_t opened = build_open_array_str(&a->b, name);
    build_elem_as(&a->b, STR("0"), elem);
    build_close(&a->b, opened);
}
