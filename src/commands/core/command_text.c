#include "commands/core/command_text.h"

#include <string.h>

#include "bson/builder.h"
#include "bson/json.h"
#include "bson/validate.h"

enum {
    STRING_BYTES_MAX = 160,
    STRING_BYTES_KEPT = 150,
    DEPTH_MAX = 100, /* below it nothing is told */
};

static void build_short(DocBuilder *b, Doc doc, uint32_t depth) {
    DocIter iter = doc_iter(doc);
    for (Elem elem; doc_iter_next(&iter, &elem) && b->buf->size < 2 * COMMAND_TOLD_BYTES_MAX;) {
        BsonType type = elem_type(elem);
        Str name = elem_name_str(elem);
        if (type == BT_STRING && elem_str(elem).size > STRING_BYTES_MAX) {
            char text[STRING_BYTES_KEPT + 4];
            size_t size = utf8_cut(elem_str(elem).data, STRING_BYTES_KEPT).size;
            memcpy(text, elem_str(elem).data, size);
            memcpy(text + size, "...", 3);
            build_str(b, name.data, (Str){text, size + 3});
        } else if ((type == BT_DOC || type == BT_ARRAY) && depth < DEPTH_MAX) {
            size_t opened =
                type == BT_DOC ? build_open_doc_str(b, name) : build_open_array_str(b, name);
            build_short(b, elem_doc(elem), depth + 1);
            build_close(b, opened);
        } else {
            build_elem(b, elem);
        }
    }
}

Doc command_cut(Doc command, Arena *arena) {
    DocBuilder shortened = doc_builder_in_arena_sized(arena, COMMAND_TOLD_BYTES_MAX);
    build_short(&shortened, command, 0);
    Str text = str_from(shell_text_of_doc(doc_builder_end(&shortened), arena));
    DocBuilder b = doc_builder_in_arena_sized(arena, COMMAND_TOLD_BYTES_MAX + 64);
    if (text.size > COMMAND_TOLD_BYTES_MAX) {
        Str cut = utf8_cut(text.data, COMMAND_TOLD_BYTES_MAX - 3);
        build_cstr(&b, "$truncated", arena_printf(arena, "%.*s...", (int)cut.size, cut.data));
    } else {
        build_str(&b, "$truncated", text);
    }
    Elem comment = doc_get_lit(command, "comment");
    if (elem_is_present(comment))
        build_elem(&b, comment);
    return doc_builder_end(&b);
}
