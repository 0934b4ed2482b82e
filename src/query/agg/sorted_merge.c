#include "query/agg/sorted_merge.h"

#include "base/alloc.h"
#include "query/expr/value.h"

typedef struct Head {
    Doc doc; /* with its key */
    Str key;
    uint32_t key_elem_size;
} Head;

struct SortedMerge {
    DocSource *sources;
    uint32_t count;
    Head *heads;    /* per source */
    uint32_t *heap; /* sources that are not at their end, the least head first */
    uint32_t heap_count;
    uint32_t begun_count; /* sources that were asked for their first document */
    bool is_head_taken;   /* the least was handed out: its source is to be asked for the next */
    Buffer out;
};

static ErrCode merge_next(void *arg, bool *ret_found, Doc *ret_doc, Error *err);
static ErrCode advance(SortedMerge *merge, uint32_t source, bool *ret_found, Error *err);
static ErrCode without_key(SortedMerge *merge, const Head *head, Doc *ret_doc, Error *err);
static void sift_up(SortedMerge *merge, uint32_t at);
static void sift_down(SortedMerge *merge, uint32_t at);

/* The element that is the key; the missing one when there is none. */
static Elem find_key(Doc doc) {
    DocIter iter = doc_iter(doc);
    Elem first;
    if (!doc_iter_next(&iter, &first) || !elem_name_is(first, STR(SORT_KEY_NAME)) ||
        elem_type(first) != BT_BINARY)
        return ELEM_MISSING;
    return first;
}

SortedMerge *sorted_merge_new(const DocSource *sources, uint32_t count) {
    SortedMerge *merge = NEW(SortedMerge);
    merge->count = count;
    merge->sources = xcalloc(count + 1, sizeof(*merge->sources));
    merge->heads = xcalloc(count + 1, sizeof(*merge->heads));
    merge->heap = xcalloc(count + 1, sizeof(*merge->heap));
    for (uint32_t i = 0; i < count; i++)
        merge->sources[i] = sources[i];
    buffer_init(&merge->out, VALUE_SIZE_MAX);
    return merge;
}

void sorted_merge_free(SortedMerge *merge) {
    if (merge == NULL)
        return;
    xfree(merge->sources);
    xfree(merge->heads);
    xfree(merge->heap);
    buffer_done(&merge->out);
    xfree(merge);
}

void sorted_merge_free_ptr(SortedMerge **merge) {
    sorted_merge_free(*merge);
}

DocSource sorted_merge_source(SortedMerge *merge) {
    return (DocSource){.arg = merge, .next = merge_next};
}

/* What changes the state does so after the call that can fail. */
static ErrCode merge_next(void *arg, bool *ret_found, Doc *ret_doc, Error *err) {
    SortedMerge *merge = arg;
    bool found;
    while (merge->begun_count < merge->count) {
        TRY(advance(merge, merge->begun_count, &found, err));
        if (found) {
            merge->heap[merge->heap_count++] = merge->begun_count;
            sift_up(merge, merge->heap_count - 1);
        }
        merge->begun_count++;
    }
    if (merge->is_head_taken) {
        TRY(advance(merge, merge->heap[0], &found, err));
        merge->is_head_taken = false;
        if (!found)
            merge->heap[0] = merge->heap[--merge->heap_count];
        sift_down(merge, 0);
    }
    *ret_found = merge->heap_count > 0;
    if (!*ret_found)
        return ERR_OK;
    TRY(without_key(merge, &merge->heads[merge->heap[0]], ret_doc, err));
    merge->is_head_taken = true;
    return ERR_OK;
}

static ErrCode advance(SortedMerge *merge, uint32_t source, bool *ret_found, Error *err) {
    Head head = {0};
    TRY(merge->sources[source].next(merge->sources[source].arg, ret_found, &head.doc, err));
    if (*ret_found) {
        Elem key = find_key(head.doc);
        if (!elem_is_present(key))
            return error_set(err, ERR_BAD_VALUE, "a document of a sorted source has no sort key");
        uint8_t subtype;
        head.key = elem_binary(key, &subtype);
        head.key_elem_size = elem_size(key);
    }
    merge->heads[source] = head;
    return ERR_OK;
}

static ErrCode without_key(SortedMerge *merge, const Head *head, Doc *ret_doc, Error *err) {
    enum { SIZE_SIZE = 4, END_SIZE = 1 };
    size_t start = SIZE_SIZE + head->key_elem_size;
    buffer_clear(&merge->out);
    DocBuilder b;
    doc_builder_init(&b, &merge->out);
    buffer_append(&merge->out, head->doc.data + start, doc_size(head->doc) - start - END_SIZE);
    return doc_builder_finish(&b, "sorted document", ret_doc, err);
}

static bool is_less(const SortedMerge *merge, uint32_t a, uint32_t b) {
    Str left = merge->heads[a].key;
    Str right = merge->heads[b].key;
    int order = memcmp(left.data, right.data, left.size < right.size ? left.size : right.size);
    if (order != 0)
        return order < 0;
    return left.size != right.size ? left.size < right.size : a < b;
}

static void sift_up(SortedMerge *merge, uint32_t at) {
    uint32_t *heap = merge->heap;
    for (uint32_t parent; at > 0 && is_less(merge, heap[at], heap[parent = (at - 1) / 2]);
         at = parent) {
        uint32_t source = heap[at];
        heap[at] = heap[parent];
        heap[parent] = source;
    }
}

static void sift_down(SortedMerge *merge, uint32_t at) {
    uint32_t *heap = merge->heap;
    while (true) {
        uint32_t least = 2 * at + 1;
        if (least >= merge->heap_count)
            return;
        if (least + 1 < merge->heap_count && is_less(merge, heap[least + 1], heap[least]))
            least++;
        if (!is_less(merge, heap[least], heap[at]))
            return;
        uint32_t source = heap[at];
        heap[at] = heap[least];
        heap[least] = source;
        at = least;
    }
}
