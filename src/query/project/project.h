/*
 * project.h - projections: which fields of a document to show, hide or compute.
 *
 * One tree of path components serves the projections of find, $project, $addFields ($set) and
 * $unset. An inclusion keeps the fields it names, in the order of the document, and appends what is
 * computed in the order of the specification; an exclusion keeps all others; adding fields keeps
 * everything and replaces in place. Paths go through arrays: each element is projected.
 *
 * Ownership: a Projection and a copy of its specification live in the arena given to project_parse.
 * Threading: a Projection is constant once parsed.
 */
#pragma once

#include "base/arena.h"
#include "base/buffer.h"
#include "base/error.h"
#include "bson/doc.h"
#include "query/expr/expr.h"
#include "query/expr/path_set.h"
#include "query/match/match.h"

typedef struct Projection Projection;

typedef enum ProjectSyntax {
    PROJECT_FIND,       /* also $slice, $elemMatch and `a.$`; may be empty */
    PROJECT_STAGE,      /* $project, and $unset rewritten as an exclusion */
    PROJECT_ADD_FIELDS, /* $addFields, $set: every value is an expression */
} ProjectSyntax;

typedef struct ProjectContext {
    ProjectSyntax syntax;
    const char *stage_name; /* for messages: "$project"; NULL with PROJECT_FIND */
    const ExprParseContext *expr;
    const MatchParseContext *match; /* for $elemMatch; needed with PROJECT_FIND */
} ProjectContext;

typedef struct ProjectInput {
    const MatchDetails *details; /* for `a.$`; NULL when project_needs_details is false */
    ExprEvalContext *eval;       /* its root is set here; NULL when project_has_exprs is false */
} ProjectInput;

/* Fails with 31253, 31254 when inclusion and exclusion are mixed, 31249, 31250 when two paths
 * collide, and with the codes of expressions. */
ErrCode project_parse(Doc spec, const ProjectContext *ctx, Arena *arena,
                      Projection **ret_projection, Error *err) MUST_CHECK;

/* An inclusion of just these paths, with `_id` only if it is one of them: of their first parts or,
 * if `is_deep`, all parts. NULL when the set is everything, or has a path that projections do not
 * take. */
Projection *project_only(const PathSet *paths, bool is_deep, Arena *arena);

/* Appends the projected document to `out`. `*ret_doc` points into it, until it moves. */
ErrCode project_apply(const Projection *projection, Doc in, const ProjectInput *input, Buffer *out,
                      Doc *ret_doc, Error *err) MUST_CHECK;

/* Changes nothing: need not be applied. */
bool project_is_identity(const Projection *projection);
/* The query must report the matched array element. */
bool project_needs_details(const Projection *projection);
bool project_has_exprs(const Projection *projection);
/* Only shows or hides fields of the top level. */
bool project_is_simple(const Projection *projection);
/* A bit for each DocMetaKind that is read. */
uint32_t project_needed_meta(const Projection *projection);
bool project_is_inclusion(const Projection *projection);

/* Adds the paths that are read. True when nothing else of the input can show in the output; when
 * false, fields that are not in the set pass through. */
bool project_add_paths(const Projection *projection, PathSet *set);

/* Does the output have the same at this path as the input, for every input? */
bool project_preserves_path(const Projection *projection, Str dotted);

/* The path in the input, without numbers, whose value the output has, whole and for every input,
 * under the name `field`; empty: none that is known of. */
Str project_renamed_path(const Projection *projection, Str field);

/* The specification as given. */
Doc project_spec(const Projection *projection);
/* As it will be done, for explain: appends the fields to the open document. */
void project_to_bson(const Projection *projection, DocBuilder *b);
