#include "query/exec/key_doc.h"

#include "bson/builder.h"
#include "bson/keystring.h"

typedef struct KeyValues {
    const KeyDoc *key_doc;
    Elem values[INDEX_FIELDS_MAX];
    uint32_t left; /* fields not shown yet */
    DocBuilder b;
} KeyValues;

static void show_fields(KeyValues *kv, uint32_t group, uint32_t depth);

void key_doc_init(KeyDoc *key_doc, const IndexDesc *index, uint32_t fields) {
    *key_doc = (KeyDoc){.index = index, .fields = fields};
    arena_init(&key_doc->scratch, 1024);
    buffer_init(&key_doc->out, BSON_DOC_SIZE_MAX_INTERNAL);
}

void key_doc_done(KeyDoc *key_doc) {
    if (key_doc->index == NULL)
        return;
    arena_done(&key_doc->scratch);
    buffer_done(&key_doc->out);
}

ErrCode key_doc_make(KeyDoc *key_doc, const IndexEntry *entry, Doc *ret_doc, Error *err) {
    const IndexDesc *index = key_doc->index;
    arena_reset(&key_doc->scratch);
    Doc decoded;
    TRY(key_decode((const uint8_t *)entry->key.data, entry->key.size,
                   (const uint8_t *)entry->type_bits.data, entry->type_bits.size, index->order,
                   &key_doc->scratch, &decoded, err));
    KeyValues kv = {.key_doc = key_doc, .left = key_doc->fields};
    DocIter iter = doc_iter(decoded);
    for (uint32_t f = 0; f < index->field_count && doc_iter_next(&iter, &kv.values[f]);)
        f++;
    buffer_clear(&key_doc->out);
    doc_builder_init(&kv.b, &key_doc->out);
    show_fields(&kv, kv.left, 0);
    return doc_builder_finish(&kv.b, "the document of an index key", ret_doc, err);
}

/* Shows the fields of `group`, which have the first `depth` parts of their paths in common. */
static void show_fields(KeyValues *kv, uint32_t group, uint32_t depth) {
    const IndexDesc *index = kv->key_doc->index;
    for (uint32_t f = 0; f < index->field_count; f++) {
        const IndexField *field = &index->fields[f];
        if ((group & kv->left & 1u << f) == 0 || depth >= field->part_count)
            continue;
        Str name = field->parts[depth];
        uint32_t same = 0;
        bool is_leaf = false;
        for (uint32_t g = f; g < index->field_count; g++) {
            const IndexField *other = &index->fields[g];
            if ((group & kv->left & 1u << g) == 0 || depth >= other->part_count ||
                !str_equal(other->parts[depth], name))
                continue;
            same |= 1u << g;
            if (other->part_count == depth + 1 && !is_leaf) {
                /* A field and a part of it in one index: the whole has both. */
                build_elem_as(&kv->b, name, kv->values[g]);
                is_leaf = true;
            }
        }
        if (!is_leaf) {
            size_t opened = build_open_doc_str(&kv->b, name);
            show_fields(kv, same, depth + 1);
            build_close(&kv->b, opened);
        }
        kv->left &= ~same;
    }
}
