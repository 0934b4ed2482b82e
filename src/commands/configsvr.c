#include "commands/configsvr.h"

ErrCode configsvr_check_role(const CommandCtx *ctx, Error *err) {
    if (ctx->service->role == ROLE_CONFIG_SERVER)
        return ERR_OK;
    return error_set(err, ERR_ILLEGAL_OPERATION, "%s can only be run on a config server",
                     ctx->spec->name);
}

static ErrCode is_wrong_type(Elem elem, const char *name, const char *wanted, Error *err) {
    return error_set(err, ERR_TYPE_MISMATCH, "field \"%s\" must be a %s, not of type %s", name,
                     wanted, bson_type_name(elem_type(elem)));
}

ErrCode configsvr_uuid(Elem elem, const char *name, Uuid *ret_uuid, Error *err) {
    return uuid_from_elem(elem, ret_uuid) ? ERR_OK : is_wrong_type(elem, name, "UUID", err);
}

ErrCode configsvr_oid(Elem elem, const char *name, Oid *ret_oid, Error *err) {
    if (elem_type(elem) != BT_OID)
        return is_wrong_type(elem, name, "ObjectId", err);
    *ret_oid = *elem_oid(elem);
    return ERR_OK;
}

ErrCode configsvr_timestamp(Elem elem, const char *name, uint64_t *ret_ts, Error *err) {
    *ret_ts = 0;
    if (!elem_is_present(elem))
        return ERR_OK;
    if (elem_type(elem) != BT_TIMESTAMP)
        return is_wrong_type(elem, name, "Timestamp", err);
    *ret_ts = (uint64_t)elem_i64(elem);
    return ERR_OK;
}
