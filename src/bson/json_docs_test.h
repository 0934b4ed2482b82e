/*
 * json_docs_test.h - documents of tests, written as JSON and shown as JSON.
 */
#pragma once

#include "base/buffer.h"
#include "base/test.h"
#include "bson/json.h"

static inline Doc test_doc(const char *json, Arena *arena) {
    CLEANUP(error_reset) Error err = {0};
    Doc doc = DOC_EMPTY;
    if (doc_from_json(json, arena, &doc, &err) != ERR_OK)
        test_fail(__FILE__, __LINE__, "%s: %s", json, error_message(&err));
    return doc;
}

static inline void test_restore_dollars(Doc doc) {
    DocIter iter = doc_iter(doc);
    for (Elem elem; doc_iter_next(&iter, &elem);) {
        if (elem.name_size > 1 && elem_name(elem)[0] == '%')
            *((uint8_t *)elem.data + 1) = '$';
        if (elem_type(elem) == BT_DOC || elem_type(elem) == BT_ARRAY)
            test_restore_dollars(elem_doc(elem));
    }
}

/* The same for filters, updates and expressions. JSON takes some operators ($type, $regex,
 * $options) for values of its own; written with % instead of $ they come through, and are made
 * right here. */
static inline Doc test_query(const char *json, Arena *arena) {
    Doc doc = doc_copy(test_doc(json, arena), arena);
    test_restore_dollars(doc);
    return doc;
}

/* Any value, as an element; its document is in the arena. */
static inline Elem test_query_elem(const char *json, Arena *arena) {
    return doc_get_lit(test_query(arena_printf(arena, "{'a': %s}", json), arena), "a");
}

static inline const char *test_json(Doc doc, Arena *arena) {
    Buffer text;
    buffer_init_arena(&text, arena, 256, BUFFER_UNBOUNDED);
    json_append_doc(&text, doc, 1 << 16);
    buffer_append_byte(&text, 0);
    return (const char *)text.data;
}
