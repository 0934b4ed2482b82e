#include "request/request.h"

#include <string.h>

ErrCode request_parse(const RequestSpec *spec, const char *context, Doc doc, Arena *arena,
                      void *request, Error *err) {
    return fields_parse(spec->fields, spec->field_count, context, doc, arena, request, err);
}

static void build_docs(DocBuilder *b, const char *name, const DocList *list) {
    size_t array = build_open_array(b, name);
    for (uint32_t i = 0; i < list->count; i++) {
        char index[INDEX_NAME_SIZE];
        uint32_t size = doc_size(list->docs[i]);
        uint8_t *at = build_value(b, BT_DOC, index_name(i, index), size);
        if (at != NULL)
            memcpy(at, list->docs[i].data, size);
    }
    build_close(b, array);
}

static void build_coll_ref(DocBuilder *b, const char *name, const CollRef *coll) {
    if (coll->has_uuid)
        build_uuid(b, name, &coll->uuid);
    else
        build_str(b, name, coll->name);
}

/* One row per FieldType: is the value in `at` other than absent, and how is it written? Values that
 * are never kept (FIELD_IGNORED, FIELD_REFUSED) have no row. */
static bool is_given(const FieldSpec *field, const void *at) {
    switch (field->type) {
    case FIELD_STRING:
    case FIELD_COLL:
        return ((const Str *)at)->data != NULL;
    case FIELD_BOOL:
        return *(const bool *)at;
    case FIELD_I32:
        return *(const int32_t *)at != 0;
    case FIELD_I64:
    case FIELD_COUNT:
        return *(const int64_t *)at != 0;
    case FIELD_F64:
        return *(const double *)at != 0;
    case FIELD_DOC:
    case FIELD_ARRAY:
        return doc_is_present(*(const Doc *)at);
    case FIELD_ELEM:
    case FIELD_BOOL_ELEM:
        return elem_is_present(*(const Elem *)at);
    case FIELD_DOCS:
        return ((const DocList *)at)->docs != NULL;
    case FIELD_COLL_OR_UUID:
        return ((const CollRef *)at)->has_uuid || ((const CollRef *)at)->name.data != NULL;
    case FIELD_IGNORED:
    case FIELD_REFUSED:
        return false;
    }
    return false;
}

static void build_field(const FieldSpec *field, const void *at, DocBuilder *b) {
    const char *name = field->name;
    switch (field->type) {
    case FIELD_STRING:
    case FIELD_COLL:
        build_str(b, name, *(const Str *)at);
        break;
    case FIELD_BOOL:
        build_bool(b, name, *(const bool *)at);
        break;
    case FIELD_I32:
        build_i32(b, name, *(const int32_t *)at);
        break;
    case FIELD_I64:
    case FIELD_COUNT:
        build_i64(b, name, *(const int64_t *)at);
        break;
    case FIELD_F64:
        build_f64(b, name, *(const double *)at);
        break;
    case FIELD_DOC:
        build_doc(b, name, *(const Doc *)at);
        break;
    case FIELD_ARRAY:
        build_array(b, name, *(const Doc *)at);
        break;
    case FIELD_ELEM:
    case FIELD_BOOL_ELEM:
        build_elem_as(b, str_from(name), *(const Elem *)at);
        break;
    case FIELD_DOCS:
        build_docs(b, name, at);
        break;
    case FIELD_COLL_OR_UUID:
        build_coll_ref(b, name, at);
        break;
    case FIELD_IGNORED:
    case FIELD_REFUSED:
        break;
    }
}

/* Two rows with one place are two names of one field ("findAndModify", "findandmodify"): the first
 * one is written. */
static bool is_alias(const RequestSpec *spec, size_t index) {
    for (size_t i = 0; i < index; i++)
        if (spec->fields[i].offset == spec->fields[index].offset &&
            spec->fields[i].type == spec->fields[index].type)
            return true;
    return false;
}

void request_build(const RequestSpec *spec, const void *request, DocBuilder *b) {
    for (size_t i = 0; i < spec->field_count; i++) {
        const FieldSpec *field = &spec->fields[i];
        const void *at = (const char *)request + field->offset;
        bool is_required = (field->flags & FIELD_REQUIRED) != 0;
        if ((is_required || is_given(field, at)) && !is_alias(spec, i))
            build_field(field, at, b);
    }
}

ErrCode request_collation(Elem collation, bool *ret_is_given, const Collator **ret_collator,
                          Error *err) {
    *ret_is_given = false;
    *ret_collator = NULL;
    bool is_empty = elem_type(collation) == BT_DOC && doc_is_empty(elem_doc(collation));
    if (!elem_is_present(collation) || is_empty)
        return ERR_OK;
    *ret_is_given = true;
    return collator_parse_elem(collation, "collation", ret_collator, err);
}
