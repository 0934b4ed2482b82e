/*
 * update_internal.h - the trie of an update program and what its operators work with.
 */
#pragma once

#include "bson/builder.h"
#include "query/update/update.h"

enum {
    ERR_CANNOT_BACKFILL_ARRAY = 51,
    UPDATE_CACHE_SIZE = 16,
    /* Only updates with many overlapping array filters make new nodes all the time. */
    UPDATE_MADE_NODES_MAX = 1 << 20,
};

typedef struct UpdateNode UpdateNode;
typedef struct UpdateRun UpdateRun;
typedef struct UpdateParser UpdateParser;

/* The new value of a field: bytes of that type, valid until the next operator is applied. */
typedef struct UpdateValue {
    BsonType type;
    const uint8_t *data;
    uint32_t size;
} UpdateValue;

typedef enum UpdateOutcome {
    UPDATE_KEEP,   /* leave the field, or its absence, alone */
    UPDATE_VALUE,  /* store the value */
    UPDATE_REMOVE, /* take the field away; an array element becomes null */
} UpdateOutcome;

enum {
    UPDATE_OP_CREATES = 1 << 0,   /* makes fields that are missing */
    UPDATE_OP_ON_INSERT = 1 << 1, /* does nothing but for an upsert that inserts */
    UPDATE_OP_VIABLE = 1 << 2,    /* makes none, but its path must be one where they could be */
};

typedef enum UpdateOpId {
#define UPDATE_OPERATOR(symbol, name, parse, apply, flags) UPDATE_OP_##symbol,
#include "query/update/update_operators.def"
#undef UPDATE_OPERATOR
    UPDATE_OP_COUNT,
} UpdateOpId;

/* Checks the operand of one field and prepares node->args; node->operand is already set. */
typedef ErrCode UpdateParseFn(UpdateParser *p, UpdateNode *node, Error *err);
/* Computes the new value from the old, which may be missing. */
typedef ErrCode UpdateApplyFn(UpdateRun *run, const UpdateNode *node, Elem old,
                              UpdateOutcome *ret_outcome, UpdateValue *ret_value, Error *err);

#define UPDATE_OPERATOR(symbol, name, parse, apply, flags)                                         \
    UpdateParseFn parse;                                                                           \
    UpdateApplyFn apply;
#include "query/update/update_operators.def"
#undef UPDATE_OPERATOR

typedef struct UpdateOperator {
    UpdateOpId id;
    const char *name;
    UpdateParseFn *parse;
    UpdateApplyFn *apply;
    uint32_t flags;
} UpdateOperator;

extern const UpdateOperator UPDATE_OPERATORS[UPDATE_OP_COUNT];

/* ---- the trie ---- */

typedef enum UpdatePartKind {
    UPDATE_PART_FIELD,      /* a name, or an index when it is a number and meets an array */
    UPDATE_PART_POSITIONAL, /* $ */
    UPDATE_PART_ALL,        /* $[] */
    UPDATE_PART_FILTER,     /* $[identifier] */
} UpdatePartKind;

struct UpdateNode {
    PathPart part;
    UpdatePartKind part_kind;
    uint32_t filter_index;    /* UPDATE_PART_FILTER */
    Str dotted;               /* the path down to this node, as written */
    const UpdateOperator *op; /* NULL: inner node */

    /* Inner nodes: sorted by update_part_compare, the order in which new fields are added. */
    UpdateNode **children;
    uint32_t child_count;
    bool has_positional_child;
    bool has_array_child; /* $[] or $[identifier] */

    /* Leaves. */
    Elem operand;
    uint32_t depth_added; /* levels of nesting of the value the operator may store */
    uint32_t rename_index;
    union {
        const void *args; /* operators with clauses: their own struct */
        int64_t number;   /* $pop, $currentDate */
    };
};

typedef struct UpdateFilter {
    Str name;
    MatchExpr *expr;
    bool is_used;
} UpdateFilter;

typedef struct UpdateRename {
    FieldPath from;
    FieldPath to;
} UpdateRename;

struct UpdateProgram {
    Doc replacement;          /* DOC_NONE: operators or a pipeline */
    UpdatePipeline *pipeline; /* NULL: operators or a replacement */
    UpdateNode *root;
    const Collator *collator;
    UpdateFilter *filters;
    uint32_t filter_count;
    UpdateRename *renames;
    uint32_t rename_count;
    Str *touched;
    uint32_t touched_count;
    uint32_t operand_bytes; /* an estimate of growth */
    bool needs_positional;
    Str dollar_path; /* makes a field with such a name; empty: none does */
    bool is_flat;    /* only leaves directly below the root */
};

struct UpdateParser {
    const UpdateParseContext *ctx;
    Arena *arena;
    UpdateProgram *program;
    uint32_t rename_capacity;
    uint32_t touched_capacity;
    bool is_plain; /* `$` and `$[]` are names like others: paths of a query */
};

UpdateNode *update_node_new(Arena *arena, PathPart part, UpdatePartKind kind, Str dotted);
/* Order of siblings: numbers first, by value, then names by bytes. */
int update_part_compare(const UpdateNode *a, const UpdateNode *b);
int update_name_compare(const PathPart *a, const PathPart *b);
/* The position of the child with that name, or -1. */
int32_t update_node_find_child(const UpdateNode *node, Str name);
/* Adds a leaf for the path; fails with ERR_CONFLICTING_UPDATE_OPERATORS. */
ErrCode update_trie_add(UpdateParser *p, const UpdateOperator *op, const FieldPath *path,
                        Elem operand, UpdateNode **ret_leaf, Error *err) MUST_CHECK;
/* The union of two nodes for the same place; NULL when both want to decide about one field. */
UpdateNode *update_node_merge(const UpdateNode *a, const UpdateNode *b, Arena *arena);
/* Is there a leaf below that would create what is missing? The first one, or NULL. */
const UpdateNode *update_node_find_creating(const UpdateNode *node, const UpdateRun *run);
/* The first leaf whose operator has one of `flags` and does something in this run; NULL: none. */
const UpdateNode *update_node_find(const UpdateNode *node, const UpdateRun *run, uint32_t flags);
const UpdateNode *update_node_first_leaf(const UpdateNode *node);

/* Adds one path of one operator: checks its components, then the operand. */
ErrCode update_parse_path(UpdateParser *p, const UpdateOperator *op, Str dotted, Elem operand,
                          UpdateNode **ret_leaf, Error *err) MUST_CHECK;
ErrCode update_parse_filters(UpdateParser *p, Error *err) MUST_CHECK;
ErrCode update_check_filters_used(UpdateParser *p, Doc update, Error *err) MUST_CHECK;

/* ---- applying ---- */

struct UpdateRun {
    const UpdateProgram *program;
    const UpdateApplyContext *ctx;
    Arena *arena;
    Doc before;
    Buffer buf;
    DocBuilder out;
    bool is_modified;
    Elem *rename_values;             /* by rename_index; missing: the rename has nothing to do */
    _Alignas(8) uint8_t scratch[16]; /* a computed scalar */
    /* Where we are: names of the containers, for messages. */
    uint32_t depth;
    Str names[BSON_DEPTH_MAX + 2];
    /* Nodes made while running: unions of two, and of one (b is NULL) with its `$` replaced. Arrays
     * ask for the same ones again and again. */
    struct {
        const UpdateNode *a;
        const UpdateNode *b;
        const UpdateNode *made;
    } cache[UPDATE_CACHE_SIZE];
    uint32_t cache_next;
    uint32_t made_count;
};

UpdateValue update_value_of(Elem elem);
/* "{_id: 1}", for messages. */
char *update_id_text(const UpdateRun *run);
/* "{a: 1}" */
char *update_elem_text(Elem elem, Arena *arena);
/* The path of the field that is being changed. */
char *update_current_path(const UpdateRun *run);

ErrCode update_apply_operators(UpdateRun *run, Error *err) MUST_CHECK;
ErrCode update_apply_replacement(UpdateRun *run, Error *err) MUST_CHECK;
ErrCode update_resolve_renames(UpdateRun *run, Error *err) MUST_CHECK;
/* Refuses values that `_id` cannot have. */
ErrCode update_check_id(Elem id, Error *err) MUST_CHECK;
/* The error of a result over BSON_DOC_SIZE_MAX. */
ErrCode update_too_large(const UpdateApplyContext *ctx, Error *err);

/* Nesting of a value: 0 for scalars. */
uint32_t update_elem_depth(Elem elem);
