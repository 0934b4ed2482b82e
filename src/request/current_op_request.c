#include "request/current_op_request.h"

#include "bson/builder.h"

static const FieldSpec CURRENT_OP_FIELDS[] = {
    {"$all", FIELD_BOOL, FIELD_OPTIONAL, offsetof(CurrentOpRequest, all)},
    {"$ownOps", FIELD_BOOL, FIELD_OPTIONAL, offsetof(CurrentOpRequest, own_ops)},
    {"$truncateOps", FIELD_BOOL, FIELD_OPTIONAL, offsetof(CurrentOpRequest, truncate_ops)},
};
const RequestSpec CURRENT_OP_REQUEST = REQUEST_SPEC(CurrentOpRequest, CURRENT_OP_FIELDS);

static bool is_filter(Str name) {
    static const char *const NOT_FILTER[] = {
        "$all",         "$ownOps",    "$truncateOps", "$db",
        "lsid",         "comment",    "maxTimeMS",    "$readPreference",
        "$clusterTime", "apiVersion", "apiStrict",    "apiDeprecationErrors",
        "readConcern"};
    for (size_t i = 0; i < ARRAY_LEN(NOT_FILTER); i++)
        if (str_is(name, NOT_FILTER[i]))
            return false;
    return true;
}

Doc current_op_filter(Doc body, Arena *arena) {
    DocBuilder b = doc_builder_in_arena(arena);
    DocIter iter = doc_iter(body);
    Elem field;
    doc_iter_next(&iter, &field); /* currentOp itself */
    while (doc_iter_next(&iter, &field))
        if (is_filter(elem_name_str(field)))
            build_elem(&b, field);
    return doc_builder_end(&b);
}
