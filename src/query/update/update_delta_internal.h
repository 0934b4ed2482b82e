/*
 * update_delta_internal.h - the changes of one level of a document, from which a delta is built.
 */
#pragma once

#include "bson/builder.h"
#include "query/update/update_delta.h"

typedef enum ChangeKind {
    CHANGE_DELETE,
    CHANGE_UPDATE,
    CHANGE_INSERT,
    CHANGE_SUB, /* a delta of its own */
} ChangeKind;

typedef struct Change {
    ChangeKind kind;
    Elem elem;      /* of the new version; of the old one for a deletion */
    Doc sub;        /* CHANGE_SUB */
    uint32_t index; /* in arrays */
    bool is_done;   /* apply: came by already */
} Change;

typedef struct ChangeList {
    Change *items;
    uint32_t count;
    uint32_t capacity;
    Arena *arena;
} ChangeList;

void delta_add_change(ChangeList *list, Change change);
Doc delta_build_doc(const ChangeList *list, Arena *arena);
/* `length` to which the array is cut, or -1. */
Doc delta_build_array(const ChangeList *list, int64_t length, Arena *arena);

/* What moves to the end is inserted; that alone takes it from its old place. */
void delta_drop_moves(ChangeList *list);
/* A delta names fields: each that it changes must be the only one of its name. */
bool delta_tells_fields_apart(const ChangeList *list, Doc doc);
/* Are the elements named 0, 1, 2, ...? */
bool delta_has_array_names(Doc array);
