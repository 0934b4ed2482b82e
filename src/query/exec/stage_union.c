/* stage_union.c - OR and SORT_MERGE: rows of several inputs, each record once. */
#include "base/alloc.h"
#include "query/exec/executor.h"
#include "query/exec/rid_set.h"

/* ---- one after the other ---- */

typedef struct UnionStage {
    PlanStage base;
    PlanStage *current;
    RidSet seen;
} UnionStage;

static ErrCode union_next(PlanStage *stage, bool *ret_found, PlanRow *ret_row, Error *err) {
    UnionStage *all = (UnionStage *)stage;
    while (all->current != NULL) {
        TRY(stage_next(all->current, ret_found, ret_row, err));
        if (!*ret_found) {
            all->current = all->current->sibling;
            continue;
        }
        bool is_new;
        TRY(rid_set_add(&all->seen, ret_row->rid, &is_new, err));
        if (is_new)
            return ERR_OK;
    }
    *ret_found = false;
    return ERR_OK;
}

static void union_free(PlanStage *stage) {
    rid_set_done(&((UnionStage *)stage)->seen);
}

static const PlanStageOps UNION_OPS = {"OR", union_next, NULL, NULL, union_free, NULL, NULL};

PlanStage *stage_union(PlanExecutor *exec, PlanStage *inputs) {
    UnionStage *all = ARENA_NEW(&exec->arena, UnionStage);
    all->base = (PlanStage){.ops = &UNION_OPS, .exec = exec, .input = inputs};
    all->current = inputs;
    return &all->base;
}

/* ---- merged in order ---- */

typedef struct MergeHead {
    PlanStage *input;
    bool is_filled;
    bool is_at_end;
    PlanRow row;      /* borrowed from the input until its next call */
    Buffer saved_doc; /* holds the row's document after a save */
    Buffer saved_rid;
    KeyBuilder key;
} MergeHead;

typedef struct MergeStage {
    PlanStage base;
    const SortPattern *pattern;
    const Collator *collator;
    MergeHead *heads;
    uint32_t count;
    MergeHead *last; /* whose row was given out: to be refilled */
    RidSet seen;
} MergeStage;

static ErrCode fill(MergeStage *merge, MergeHead *head, Error *err) {
    bool is_found;
    TRY(stage_next(head->input, &is_found, &head->row, err));
    head->is_filled = true;
    head->is_at_end = !is_found;
    if (!is_found)
        return ERR_OK;
    TRY(sort_key_make(merge->pattern, head->row.doc, merge->collator, &head->key, err));
    return buffer_check(&head->key.key, "a sort key", err);
}

static bool is_before(const MergeHead *a, const MergeHead *b) {
    size_t size = a->key.key.size < b->key.key.size ? a->key.key.size : b->key.key.size;
    int rc = memcmp(a->key.key.data, b->key.key.data, size);
    return rc != 0 ? rc < 0 : a->key.key.size < b->key.key.size;
}

static ErrCode merge_next(PlanStage *stage, bool *ret_found, PlanRow *ret_row, Error *err) {
    MergeStage *merge = (MergeStage *)stage;
    for (;;) {
        if (merge->last != NULL) {
            merge->last->is_filled = false;
            merge->last = NULL;
        }
        MergeHead *first = NULL;
        for (uint32_t i = 0; i < merge->count; i++) {
            MergeHead *head = &merge->heads[i];
            if (!head->is_filled)
                TRY(fill(merge, head, err));
            if (!head->is_at_end && (first == NULL || is_before(head, first)))
                first = head;
        }
        *ret_found = first != NULL;
        if (first == NULL)
            return ERR_OK;
        merge->last = first;
        *ret_row = first->row;
        bool is_new;
        TRY(rid_set_add(&merge->seen, first->row.rid, &is_new, err));
        if (is_new)
            return ERR_OK;
    }
}

/* Rows in hand belong to storage cursors that are about to close. */
static void merge_save(PlanStage *stage) {
    MergeStage *merge = (MergeStage *)stage;
    for (uint32_t i = 0; i < merge->count; i++) {
        MergeHead *head = &merge->heads[i];
        if (!head->is_filled || head->is_at_end || head == merge->last ||
            head->row.doc.data == head->saved_doc.data)
            continue;
        buffer_clear(&head->saved_doc);
        buffer_append(&head->saved_doc, head->row.doc.data, doc_size(head->row.doc));
        head->row.doc = (Doc){head->saved_doc.data};
        if (head->row.rid.str != NULL) {
            buffer_clear(&head->saved_rid);
            buffer_append(&head->saved_rid, head->row.rid.str, head->row.rid.str_size);
            head->row.rid.str = head->saved_rid.data;
        }
    }
}

static void merge_free(PlanStage *stage) {
    MergeStage *merge = (MergeStage *)stage;
    for (uint32_t i = 0; i < merge->count; i++) {
        buffer_done(&merge->heads[i].saved_doc);
        buffer_done(&merge->heads[i].saved_rid);
        key_builder_done(&merge->heads[i].key);
    }
    rid_set_done(&merge->seen);
}

static void merge_explain(PlanStage *stage, DocBuilder *b, bool has_stats) {
    (void)has_stats;
    build_doc(b, "sortPattern", ((MergeStage *)stage)->pattern->spec);
}

static const PlanStageOps MERGE_OPS = {"SORT_MERGE", merge_next,    merge_save, NULL,
                                       merge_free,   merge_explain, NULL};

PlanStage *stage_merge(PlanExecutor *exec, PlanStage *inputs, const SortPattern *pattern,
                       const Collator *collator) {
    MergeStage *merge = ARENA_NEW(&exec->arena, MergeStage);
    merge->base = (PlanStage){.ops = &MERGE_OPS, .exec = exec, .input = inputs};
    merge->pattern = pattern;
    merge->collator = collator;
    for (PlanStage *input = inputs; input != NULL; input = input->sibling)
        merge->count++;
    merge->heads = ARENA_ARRAY(&exec->arena, MergeHead, merge->count);
    uint32_t at = 0;
    for (PlanStage *input = inputs; input != NULL; input = input->sibling) {
        MergeHead *head = &merge->heads[at++];
        *head = (MergeHead){.input = input};
        buffer_init(&head->saved_doc, BSON_DOC_SIZE_MAX_INTERNAL);
        buffer_init(&head->saved_rid, RECORD_ID_STR_SIZE_MAX);
        key_builder_init(&head->key);
    }
    return &merge->base;
}
