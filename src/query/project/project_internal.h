/*
 * project_internal.h - what the .c files of query/project share.
 */
#pragma once

#include "query/expr/doc_meta.h"
#include "query/project/project.h"

enum {
    PROJECT_DEPTH_MAX = BSON_DEPTH_MAX, /* of the tree, and of arrays within arrays */
    /* Of a tree: about 40 MB of nodes. */
    PROJECT_FIELDS_MAX = 250000,
    /* More children of one node than this are found by hash, fewer by a look at each. */
    PROJECT_CHILDREN_LISTED = 32,
};

typedef enum ProjectKind {
    PROJECT_KIND_UNKNOWN, /* only while parsing */
    PROJECT_KIND_INCLUSION,
    PROJECT_KIND_EXCLUSION,
    PROJECT_KIND_ADD_FIELDS,
} ProjectKind;

typedef enum NodeKind {
    NODE_CHILDREN,
    NODE_INCLUDE,
    NODE_EXCLUDE,
    NODE_EXPR, /* also {$meta: ...}: is_meta */
    NODE_SLICE,
    NODE_ELEM_MATCH,
    NODE_POSITIONAL,
} NodeKind;

typedef struct ProjectNode ProjectNode;
struct ProjectNode {
    PathPart name;
    NodeKind kind;
    bool has_computed;      /* an expression here or below */
    bool has_positional;    /* here or below */
    bool has_appended;      /* some child may go behind the document's own fields */
    bool is_meta;           /* NODE_EXPR: `meta` */
    Str path;               /* from the root */
    ProjectNode **children; /* in order of the specification */
    uint32_t child_count;
    uint32_t child_capacity;
    uint32_t *slots;     /* of many children: their places + 1, by the hash of the name; 0: none */
    uint32_t slot_count; /* a power of two, at least twice as many as children */
    uint32_t read_count; /* children that an inclusion has to look for in the document */
    union {
        Expr *expr;
        DocMetaKind meta;
        MatchExpr *elem_match; /* {<name>: {$elemMatch: ...}} */
        struct {
            int32_t skip; /* negative: from the end */
            int32_t limit;
            bool has_skip; /* without: a negative limit means the last ones */
        } slice;
    };
};

struct Projection {
    ProjectKind kind;
    ProjectNode root;
    Doc spec;
    const ProjectNode *computed_id; /* of an inclusion: goes before all else; or NULL */
    bool has_exprs;
    bool has_positional;
    uint32_t needed_meta;
};

/* The place of the child with that name; child_count when there is none. */
uint32_t project_find_child(const ProjectNode *node, Str name);
