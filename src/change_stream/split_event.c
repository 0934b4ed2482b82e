#include "change_stream/split_event.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "bson/builder.h"
#include "change_stream/token.h"

enum {
    EVENT_BYTES_MAX = BSON_DOC_SIZE_MAX,
    /* splitEvent, and what surrounds it */
    FRAME_BYTES = 128,
};

static void forget(SplitEvent *split) {
    xfree(TAKE_PTR(split->event));
    xfree(TAKE_PTR(split->token));
    xfree(TAKE_PTR(split->fields));
    xfree(TAKE_PTR(split->starts));
}

void split_event_done(SplitEvent *split) {
    forget(split);
}

void split_event_resume(SplitEvent *split, int64_t fragment) {
    split->is_resuming = true;
    split->skip_past = fragment;
}

static int by_size(const void *a, const void *b) {
    uint32_t x = elem_size(*(const Elem *)a), y = elem_size(*(const Elem *)b);
    if (x != y)
        return x < y ? -1 : 1;
    /* Equal ones by name: the same event is always split in the same way. */
    return strcmp(elem_name(*(const Elem *)a), elem_name(*(const Elem *)b));
}

static ErrCode plan(SplitEvent *split, Error *err) {
    Doc event = {split->event};
    uint32_t count = doc_count(event);
    split->fields = xcalloc(count + 1, sizeof(*split->fields));
    split->starts = xcalloc(count + 1, sizeof(*split->starts));
    split->field_count = split->fragment_count = split->next = 0;
    DocIter iter = doc_iter(event);
    Elem elem;
    while (doc_iter_next(&iter, &elem))
        if (!elem_name_is(elem, STR("_id")))
            split->fields[split->field_count++] = elem;
    qsort(split->fields, split->field_count, sizeof(*split->fields), by_size);
    /* The number in the token makes it some bytes longer: two hex digits each. */
    size_t frame = FRAME_BYTES + doc_size((Doc){split->token}) + 32;
    size_t size = SIZE_MAX;
    for (uint32_t i = 0; i < split->field_count; i++) {
        size_t of_field = elem_size(split->fields[i]);
        if (frame + of_field > EVENT_BYTES_MAX)
            return error_set(err, ERR_BSON_OBJECT_TOO_LARGE,
                             "Splitting change event failed: fragment size %zu is greater than "
                             "maximum allowed fragment size %d",
                             frame + of_field, EVENT_BYTES_MAX);
        if (size == SIZE_MAX || size + of_field > EVENT_BYTES_MAX) {
            split->starts[split->fragment_count++] = i;
            size = frame;
        }
        size += of_field;
    }
    return ERR_OK;
}

ErrCode split_event_begin(SplitEvent *split, Doc event, Doc token, bool *ret_is_split, Error *err) {
    *ret_is_split = false;
    bool is_resumed = split->is_resuming;
    split->is_resuming = false;
    if (doc_size(event) <= EVENT_BYTES_MAX) {
        if (is_resumed)
            return error_set(err, ERR_CHANGE_STREAM_FATAL_ERROR,
                             "cannot resume within an event that is not split");
        return ERR_OK;
    }
    split->event = doc_copy_heap(event);
    split->token = doc_copy_heap(token);
    TRY(plan(split, err));
    if (is_resumed) {
        if (split->skip_past >= (int64_t)split->fragment_count)
            return error_set(err, ERR_CHANGE_STREAM_FATAL_ERROR,
                             "cannot resume after fragment %lld of an event that has %u",
                             (long long)split->skip_past, split->fragment_count);
        split->next = (uint32_t)split->skip_past + 1;
    }
    *ret_is_split = true;
    return ERR_OK;
}

/* The token of the event with the number of the fragment. */
static Doc fragment_token(const SplitEvent *split, Arena *arena) {
    CLEANUP(error_reset) Error err = {0};
    StreamToken token;
    ErrCode rc = token_decode((Doc){split->token}, arena, &token, &err);
    invariant(rc == ERR_OK); /* it was made here */
    token.fragment = split->next;
    return token_encode(&token, arena);
}

bool split_event_next(SplitEvent *split, Arena *arena, Doc *ret_fragment) {
    if (split->event == NULL)
        return false;
    if (split->next == split->fragment_count) {
        forget(split);
        return false;
    }
    arena_reset(arena);
    uint32_t from = split->starts[split->next];
    uint32_t to = split->next + 1 < split->fragment_count ? split->starts[split->next + 1]
                                                          : split->field_count;
    DocBuilder b = doc_builder_in_arena_sized(arena, 4096);
    build_doc(&b, "_id", fragment_token(split, arena));
    size_t opened = build_open_doc(&b, "splitEvent");
    build_i32(&b, "fragment", (int32_t)split->next + 1);
    build_i32(&b, "of", (int32_t)split->fragment_count);
    build_close(&b, opened);
    for (uint32_t i = from; i < to; i++)
        build_elem(&b, split->fields[i]);
    *ret_fragment = doc_builder_end(&b);
    split->next++;
    return true;
}
