#include "sharding/meta/fields_internal.h"

enum {
    LOCATION_FIELD_MISSING = 40414,
};

ErrCode meta_field(Doc doc, const char *what, const char *name, BsonType type, Elem *ret_elem,
                   Error *err) {
    Elem elem;
    TRY(meta_field_optional(doc, what, name, type, &elem, err));
    if (!elem_is_present(elem))
        return error_set(err, (ErrCode)LOCATION_FIELD_MISSING, "%s has no field \"%s\"", what,
                         name);
    *ret_elem = elem;
    return ERR_OK;
}

ErrCode meta_field_optional(Doc doc, const char *what, const char *name, BsonType type,
                            Elem *ret_elem, Error *err) {
    Elem elem = doc_get(doc, str_from(name));
    if (elem_is_present(elem) && elem_type(elem) != type)
        return error_set(err, ERR_TYPE_MISMATCH, "field \"%s\" of %s must be of type %s, not %s",
                         name, what, bson_type_name(type), bson_type_name(elem_type(elem)));
    *ret_elem = elem;
    return ERR_OK;
}

ErrCode meta_field_uuid(Doc doc, const char *what, const char *name, Uuid *ret_uuid, Error *err) {
    Elem elem;
    TRY(meta_field(doc, what, name, BT_BINARY, &elem, err));
    if (!uuid_from_elem(elem, ret_uuid))
        return error_set(err, ERR_INVALID_UUID, "field \"%s\" of %s must be a UUID", name, what);
    return ERR_OK;
}
