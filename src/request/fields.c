#include "request/fields.h"

#include <math.h>
#include <string.h>

#include "bson/number.h"

static ErrCode wrong_type(const char *context, const char *name, BsonType got, const char *expected,
                          Error *err);
static ErrCode parse_integer(const char *context, const char *name, Elem elem, int64_t min,
                             int64_t max, const char *expected, int64_t *ret_value, Error *err);
static ErrCode parse_doc_list(const char *context, const char *name, Elem elem, Arena *arena,
                              DocList *ret_list, Error *err);

ErrCode field_parse(const FieldSpec *spec, const char *context, Elem elem, Arena *arena, void *out,
                    Error *err) {
    void *at = (char *)out + spec->offset;
    BsonType type = elem_type(elem);
    int64_t number;
    if (field_is_absent(spec, elem))
        return ERR_OK;
    switch (spec->type) {
    case FIELD_STRING:
        if (type != BT_STRING)
            return wrong_type(context, spec->name, type, "string", err);
        *(Str *)at = elem_str(elem);
        return ERR_OK;
    case FIELD_BOOL:
    case FIELD_BOOL_ELEM:
        if (type != BT_BOOL && !type_is_number(type))
            return error_set(
                err, ERR_TYPE_MISMATCH,
                "BSON field '%s.%s' is the wrong type '%s', expected types '[bool, long, "
                "int, decimal, double]'",
                context, spec->name, bson_type_name(type));
        if (spec->type == FIELD_BOOL)
            *(bool *)at = elem_is_truthy(elem);
        else
            *(Elem *)at = elem;
        return ERR_OK;
    case FIELD_I32:
        TRY(parse_integer(context, spec->name, elem, INT32_MIN, INT32_MAX, "int", &number, err));
        *(int32_t *)at = (int32_t)number;
        return ERR_OK;
    case FIELD_I64:
        return parse_integer(context, spec->name, elem, INT64_MIN, INT64_MAX, "long", at, err);
    case FIELD_COUNT:
        TRY(parse_integer(context, spec->name, elem, INT64_MIN, INT64_MAX, "long", &number, err));
        if (number < 0)
            return error_set(err, (ErrCode)51024,
                             "BSON field '%s' value must be >= 0, actual value '%lld'", spec->name,
                             (long long)number);
        *(int64_t *)at = number;
        return ERR_OK;
    case FIELD_F64:
        if (!type_is_number(type))
            return wrong_type(context, spec->name, type, "double", err);
        *(double *)at = elem_as_f64(elem);
        return ERR_OK;
    case FIELD_DOC:
        if (type != BT_DOC)
            return wrong_type(context, spec->name, type, "object", err);
        *(Doc *)at = elem_doc(elem);
        return ERR_OK;
    case FIELD_ARRAY:
        if (type != BT_ARRAY)
            return wrong_type(context, spec->name, type, "array", err);
        *(Doc *)at = elem_doc(elem);
        return ERR_OK;
    case FIELD_ELEM:
        *(Elem *)at = elem;
        return ERR_OK;
    case FIELD_DOCS:
        return parse_doc_list(context, spec->name, elem, arena, at, err);
    case FIELD_COLL_OR_UUID:
        if (type == BT_STRING)
            ((CollRef *)at)->name = elem_str(elem);
        else if (!(((CollRef *)at)->has_uuid = uuid_from_elem(elem, &((CollRef *)at)->uuid)))
            return error_set(err, ERR_INVALID_NAMESPACE, "collection name has invalid type %s",
                             bson_type_name(type));
        return ERR_OK;
    case FIELD_COLL:
        if (type != BT_STRING)
            return error_set(err, ERR_INVALID_NAMESPACE, "collection name has invalid type %s",
                             bson_type_name(type));
        *(Str *)at = elem_str(elem);
        return ERR_OK;
    case FIELD_IGNORED:
        return ERR_OK;
    case FIELD_REFUSED:
        return error_set(err, ERR_NOT_IMPLEMENTED, "'%s.%s' is not supported yet", context,
                         spec->name);
    }
    return ERR_OK;
}

ErrCode fields_parse(const FieldSpec *specs, size_t spec_count, const char *context, Doc doc,
                     Arena *arena, void *out, Error *err) {
    uint64_t seen = 0;
    DocIter iter = doc_iter(doc);
    Elem elem;
    while (doc_iter_next(&iter, &elem)) {
        size_t index;
        const FieldSpec *spec = field_find(specs, spec_count, elem, &index);
        if (spec == NULL)
            return field_unknown(context, elem, err);
        if ((seen >> index & 1) != 0)
            return field_duplicate(context, elem, err);
        seen |= (uint64_t)!field_is_absent(spec, elem) << index;
        TRY(field_parse(spec, context, elem, arena, out, err));
    }
    return fields_check_required(specs, spec_count, seen, context, err);
}

/* A collection's name must be told as one; where any value is taken a required field is whatever it
 * is. */
bool field_is_absent(const FieldSpec *spec, Elem elem) {
    BsonType type = elem_type(elem);
    if (LIKELY(type != BT_NULL && type != BT_UNDEFINED))
        return false;
    if (spec->type == FIELD_ELEM)
        return (spec->flags & (FIELD_REQUIRED | FIELD_NULL_COUNTS)) == 0;
    return spec->type != FIELD_COLL && spec->type != FIELD_COLL_OR_UUID;
}

const FieldSpec *field_find(const FieldSpec *specs, size_t spec_count, Elem elem,
                            size_t *ret_index) {
    const char *name = elem_name(elem);
    for (size_t i = 0; i < spec_count; i++) {
        if (specs[i].name[0] == name[0] && strcmp(specs[i].name, name) == 0) {
            *ret_index = i;
            return &specs[i];
        }
    }
    return NULL;
}

ErrCode field_unknown(const char *context, Elem elem, Error *err) {
    if (elem_name_is(elem, STR("jsonSchema")) || elem_name_is(elem, STR("isRemoteSchema")))
        return error_set(err, (ErrCode)4662500,
                         "BSON field '%s.%s' is an unknown field: it is part of client-side "
                         "encryption. This command may be meant for a mongocryptd process.",
                         context, elem_name(elem));
    return error_set(err, (ErrCode)LOCATION_UNKNOWN_FIELD,
                     "BSON field '%s.%s' is an unknown field.", context, elem_name(elem));
}

ErrCode field_duplicate(const char *context, Elem elem, Error *err) {
    return error_set(err, (ErrCode)LOCATION_DUPLICATE_FIELD,
                     "BSON field '%s.%s' is a duplicate field", context, elem_name(elem));
}

ErrCode fields_check_required(const FieldSpec *specs, size_t spec_count, uint64_t seen,
                              const char *context, Error *err) {
    for (size_t i = 0; i < spec_count; i++)
        if ((specs[i].flags & FIELD_REQUIRED) != 0 && (seen >> i & 1) == 0)
            return error_set(err, (ErrCode)LOCATION_MISSING_FIELD,
                             "BSON field '%s.%s' is missing but a required field", context,
                             specs[i].name);
    return ERR_OK;
}

static ErrCode wrong_type(const char *context, const char *name, BsonType got, const char *expected,
                          Error *err) {
    return error_set(err, ERR_TYPE_MISMATCH,
                     "BSON field '%s.%s' is the wrong type '%s', expected type '%s'", context, name,
                     bson_type_name(got), expected);
}

static ErrCode parse_integer(const char *context, const char *name, Elem elem, int64_t min,
                             int64_t max, const char *expected, int64_t *ret_value, Error *err) {
    if (!elem_is_number(elem))
        return wrong_type(context, name, elem_type(elem), expected, err);
    if (!number_is_exact_i64(number_from_elem(elem), ret_value)) {
        double f64 = elem_as_f64(elem);
        if (isnan(f64) || fabs(f64) >= 0x1p63)
            return error_set(err, ERR_BAD_VALUE, "BSON field '%s.%s' value is out of range: %g",
                             context, name, f64);
        *ret_value = (int64_t)f64; /* MongoDB truncates here as well */
    }
    if (*ret_value < min || *ret_value > max)
        return error_set(err, ERR_BAD_VALUE, "BSON field '%s.%s' value is out of range: %lld",
                         context, name, (long long)*ret_value);
    return ERR_OK;
}

static ErrCode parse_doc_list(const char *context, const char *name, Elem elem, Arena *arena,
                              DocList *ret_list, Error *err) {
    if (elem_type(elem) != BT_ARRAY)
        return wrong_type(context, name, elem_type(elem), "array", err);
    uint32_t count = doc_count(elem_doc(elem));
    Doc *docs = arena_alloc(arena, sizeof(Doc) * (count + 1));
    DocIter iter = doc_iter(elem_doc(elem));
    Elem member;
    uint32_t at = 0;
    while (doc_iter_next(&iter, &member)) {
        if (elem_type(member) != BT_DOC)
            return error_set(err, ERR_TYPE_MISMATCH,
                             "BSON field '%s.%s.%u' is the wrong type '%s', expected type 'object'",
                             context, name, at, bson_type_name(elem_type(member)));
        docs[at++] = elem_doc(member);
    }
    *ret_list = (DocList){docs, count};
    return ERR_OK;
}
