/* wildcard_keys.c - the paths and values that a wildcard index has of a document. */
#include <string.h>

#include "base/alloc.h"
#include "index/key_gen.h"

typedef struct EntryWalk {
    const WildcardPaths *wildcard;
    WildcardEntries *entries;
    Buffer path; /* of the value at hand, dotted */
    const char *index_name;
    Error *err;
} EntryWalk;

static ErrCode walk_doc(EntryWalk *walk, Doc doc);
static ErrCode walk_value(EntryWalk *walk, Elem value, WildcardReach reach);
static ErrCode add_entry(EntryWalk *walk, Elem value, bool is_array_mark);

ErrCode wildcard_entries_of(const IndexDesc *index, Doc doc, WildcardEntries *ret_entries,
                            Error *err) {
    ret_entries->count = 0;
    ret_entries->has_array = false;
    buffer_clear(&ret_entries->paths);
    EntryWalk walk = {index->wildcard, ret_entries, {0}, index->name, err};
    buffer_init(&walk.path, BSON_DOC_SIZE_MAX_INTERNAL);
    ErrCode rc = walk_doc(&walk, doc);
    buffer_done(&walk.path);
    return rc;
}

static void append_name(Buffer *path, Str name) {
    if (path->size > 0)
        buffer_append_byte(path, '.');
    size_t start = path->size;
    buffer_append(path, name.data, name.size);
    for (size_t i = start; i < path->size; i++)
        if (path->data[i] == '.')
            path->data[i] = WILDCARD_DOT;
}

/* Recurses as deep as validated documents are nested. */
static ErrCode walk_doc(EntryWalk *walk, Doc doc) {
    DocIter iter = doc_iter(doc);
    size_t size = walk->path.size;
    for (Elem elem; doc_iter_next(&iter, &elem);) {
        append_name(&walk->path, elem_name_str(elem));
        WildcardReach reach =
            wildcard_reach(walk->wildcard, (Str){(const char *)walk->path.data, walk->path.size});
        if (reach != WILDCARD_OUTSIDE)
            TRY(walk_value(walk, elem, reach));
        walk->path.size = size;
    }
    return ERR_OK;
}

static ErrCode walk_value(EntryWalk *walk, Elem value, WildcardReach reach) {
    static const uint8_t UNDEFINED[] = {BT_UNDEFINED, 0};
    /* An inclusion of something below leaves out what has nothing below. */
    bool is_leaf_in = reach == WILDCARD_INSIDE || walk->wildcard->is_exclusion;
    if (elem_type(value) == BT_DOC && !doc_is_empty(elem_doc(value)))
        return walk_doc(walk, elem_doc(value));
    if (elem_type(value) != BT_ARRAY)
        return is_leaf_in ? add_entry(walk, value, false) : ERR_OK;
    walk->entries->has_array = true;
    TRY(add_entry(walk, ELEM_MISSING, /* is_array_mark= */ true));
    if (doc_is_empty(elem_doc(value)))
        return is_leaf_in ? add_entry(walk, (Elem){UNDEFINED, 0}, false) : ERR_OK;
    DocIter iter = doc_iter(elem_doc(value));
    for (Elem item; doc_iter_next(&iter, &item);) {
        if (elem_type(item) == BT_DOC && !doc_is_empty(elem_doc(item)))
            TRY(walk_doc(walk, elem_doc(item)));
        else if (is_leaf_in) /* also an array inside the array, as a whole */
            TRY(add_entry(walk, item, false));
    }
    return ERR_OK;
}

static ErrCode add_entry(EntryWalk *walk, Elem value, bool is_array_mark) {
    WildcardEntries *entries = walk->entries;
    if (entries->count >= INDEX_KEYS_PER_DOC_MAX ||
        entries->paths.size > INDEX_KEY_BYTES_PER_DOC_MAX)
        return error_set(walk->err, ERR_CANNOT_BUILD_INDEX_KEYS,
                         "index \"%s\" would have more than %d keys or %d bytes for one document",
                         walk->index_name, INDEX_KEYS_PER_DOC_MAX, INDEX_KEY_BYTES_PER_DOC_MAX);
    ARRAY_RESERVE(entries->rows, entries->count, entries->capacity);
    entries->rows[entries->count++] = (WildcardEntry){entries->paths.size, value, is_array_mark};
    int32_t size = (int32_t)walk->path.size + 1;
    buffer_append(&entries->paths, &size, sizeof(size));
    buffer_append(&entries->paths, walk->path.data, walk->path.size);
    buffer_append_byte(&entries->paths, '\0');
    return ERR_OK;
}
