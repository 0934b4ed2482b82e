#include "repl/election/fields_internal.h"

#include <math.h>

enum {
    LOCATION_FIELD_REPEATED = 40413,
    LOCATION_FIELD_MISSING = 40414,
    LOCATION_FIELD_UNKNOWN = 40415,
    LOCATION_FIELD_BOUNDS = 51024,
};

static ErrCode read_field(Elem elem, const char *doc_name, const ReplFieldSpec *spec, void *at,
                          Error *err);
static ErrCode read_number(Elem elem, const char *doc_name, const ReplFieldSpec *spec, void *at,
                           Error *err);
static ErrCode read_text(Elem elem, const char *doc_name, const ReplFieldSpec *spec, char *at,
                         Error *err);

ErrCode repl_fields_parse(Doc doc, const char *doc_name, const ReplFieldSpec *specs,
                          size_t spec_count, ReplFieldsMode mode, void *ret_struct, Error *err) {
    invariant(spec_count <= 64);
    uint64_t seen = 0;
    DocIter iter = doc_iter(doc);
    Elem elem;
    while (doc_iter_next(&iter, &elem)) {
        size_t i = 0;
        while (i < spec_count && strcmp(specs[i].name, elem_name(elem)) != 0)
            i++;
        if (i == spec_count) {
            if (mode == REPL_FIELDS_LENIENT)
                continue;
            return error_set(err, (ErrCode)LOCATION_FIELD_UNKNOWN,
                             "BSON field '%s.%s' is an unknown field.", doc_name, elem_name(elem));
        }
        if ((seen >> i) & 1) {
            if (mode == REPL_FIELDS_LENIENT)
                continue;
            return error_set(err, (ErrCode)LOCATION_FIELD_REPEATED,
                             "BSON field '%s.%s' is a duplicate field", doc_name, elem_name(elem));
        }
        seen |= UINT64_C(1) << i;
        TRY(read_field(elem, doc_name, &specs[i], (char *)ret_struct + specs[i].offset, err));
    }
    for (size_t i = 0; i < spec_count; i++)
        if (specs[i].is_required && ((seen >> i) & 1) == 0)
            return error_set(err, (ErrCode)LOCATION_FIELD_MISSING,
                             "BSON field '%s.%s' is missing but a required field", doc_name,
                             specs[i].name);
    return ERR_OK;
}

static ErrCode wrong_type(Elem elem, const char *doc_name, const ReplFieldSpec *spec,
                          const char *expected, Error *err) {
    return error_set(err, ERR_TYPE_MISMATCH,
                     "BSON field '%s.%s' is the wrong type '%s', expected type '%s'", doc_name,
                     spec->name, bson_type_name(elem_type(elem)), expected);
}

static ErrCode read_field(Elem elem, const char *doc_name, const ReplFieldSpec *spec, void *at,
                          Error *err) {
    BsonType type = elem_type(elem);
    switch (spec->kind) {
    case REPL_FIELD_BOOL:
        if (type != BT_BOOL && !elem_is_number(elem))
            return wrong_type(elem, doc_name, spec, "bool", err);
        *(bool *)at = elem_is_truthy(elem);
        return ERR_OK;
    case REPL_FIELD_I32:
    case REPL_FIELD_I64:
    case REPL_FIELD_F64:
        return read_number(elem, doc_name, spec, at, err);
    case REPL_FIELD_TEXT:
        return read_text(elem, doc_name, spec, at, err);
    case REPL_FIELD_DOC:
        if (type != BT_DOC)
            return wrong_type(elem, doc_name, spec, "object", err);
        *(Doc *)at = elem_doc(elem);
        return ERR_OK;
    case REPL_FIELD_ARRAY:
        if (type != BT_ARRAY)
            return wrong_type(elem, doc_name, spec, "array", err);
        *(Doc *)at = elem_doc(elem);
        return ERR_OK;
    case REPL_FIELD_OPTIME:
        if (!optime_from_elem(elem, at))
            return wrong_type(elem, doc_name, spec, "optime", err);
        if (((OpTime *)at)->term < OPTIME_TERM_NONE)
            return error_set(err, ERR_BAD_VALUE, "BSON field '%s.%s' has a negative term", doc_name,
                             spec->name);
        return ERR_OK;
    case REPL_FIELD_DATE:
        if (type != BT_DATE)
            return wrong_type(elem, doc_name, spec, "date", err);
        *(int64_t *)at = elem_i64(elem);
        return ERR_OK;
    case REPL_FIELD_TS:
        if (type != BT_TIMESTAMP && type != BT_DATE)
            return wrong_type(elem, doc_name, spec, "timestamp", err);
        *(uint64_t *)at = (uint64_t)elem_i64(elem);
        return ERR_OK;
    case REPL_FIELD_OID:
        if (type != BT_OID)
            return wrong_type(elem, doc_name, spec, "objectId", err);
        *(Oid *)at = *elem_oid(elem);
        return ERR_OK;
    case REPL_FIELD_ELEM:
        *(Elem *)at = elem;
        return ERR_OK;
    case REPL_FIELD_SKIP:
        return ERR_OK;
    }
    return ERR_OK;
}

static ErrCode read_number(Elem elem, const char *doc_name, const ReplFieldSpec *spec, void *at,
                           Error *err) {
    if (!elem_is_number(elem))
        return wrong_type(elem, doc_name, spec, spec->kind == REPL_FIELD_F64 ? "double" : "long",
                          err);
    bool has_bounds = spec->min != 0 || spec->max != 0;
    if (spec->kind == REPL_FIELD_F64) {
        double value = elem_as_f64(elem);
        if (isnan(value) ||
            (has_bounds && (value < (double)spec->min || value > (double)spec->max)))
            return error_set(err, ERR_BAD_VALUE, "%s field value of %g is out of range", spec->name,
                             value);
        *(double *)at = value;
        return ERR_OK;
    }
    int64_t value = elem_as_i64(elem);
    int64_t min = has_bounds ? spec->min : spec->kind == REPL_FIELD_I32 ? INT32_MIN : INT64_MIN;
    int64_t max = has_bounds ? spec->max : spec->kind == REPL_FIELD_I32 ? INT32_MAX : INT64_MAX;
    if (value < min || value > max)
        return error_set(err, (ErrCode)LOCATION_FIELD_BOUNDS,
                         "BSON field '%s' value must be %s %lld, actual value '%lld'", spec->name,
                         value < min ? ">=" : "<=", (long long)(value < min ? min : max),
                         (long long)value);
    if (spec->kind == REPL_FIELD_I32)
        *(int32_t *)at = (int32_t)value;
    else
        *(int64_t *)at = value;
    return ERR_OK;
}

static ErrCode read_text(Elem elem, const char *doc_name, const ReplFieldSpec *spec, char *at,
                         Error *err) {
    if (elem_type(elem) != BT_STRING)
        return wrong_type(elem, doc_name, spec, "string", err);
    Str text = elem_str(elem);
    if (text.size >= (size_t)spec->max || str_has_char(text, '\0'))
        return error_set(err, ERR_BAD_VALUE, "BSON field '%s.%s' is too long or contains a NUL",
                         doc_name, spec->name);
    memcpy(at, text.data, text.size);
    at[text.size] = '\0';
    return ERR_OK;
}
