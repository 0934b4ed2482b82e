#include "txn/session_id.h"

#include <stdio.h>

enum {
    LOCATION_UNKNOWN_FIELD = 40415,
};

static const uint8_t DIGEST_OF_NOBODY[SESSION_UID_SIZE] = {
    0xe3, 0xb0, 0xc4, 0x42, 0x98, 0xfc, 0x1c, 0x14, 0x9a, 0xfb, 0xf4, 0xc8, 0x99, 0x6f, 0xb9, 0x24,
    0x27, 0xae, 0x41, 0xe4, 0x64, 0x9b, 0x93, 0x4c, 0xa4, 0x95, 0x99, 0x1b, 0x78, 0x52, 0xb8, 0x55};

static ErrCode take_uid(Elem elem, SessionId *id, Error *err) {
    uint8_t subtype;
    Str bytes = elem_type(elem) == BT_BINARY ? elem_binary(elem, &subtype) : (Str){"", 0};
    if (bytes.size != SESSION_UID_SIZE)
        return error_set(err, ERR_TYPE_MISMATCH,
                         "BSON field 'OperationSessionInfo.lsid.uid' needs a digest of %d bytes",
                         SESSION_UID_SIZE);
    memcpy(id->uid, bytes.data, SESSION_UID_SIZE);
    return ERR_OK;
}

static ErrCode take_child(Elem elem, SessionId *id, Error *err) {
    bool is_number = elem_name_is(elem, STR("txnNumber"));
    bool is_valid = is_number ? elem_type(elem) == BT_INT64 && elem_i64(elem) >= 0
                              : uuid_from_elem(elem, &id->txn_uuid);
    if (!is_valid)
        return error_set(err, ERR_TYPE_MISMATCH,
                         "BSON field 'OperationSessionInfo.lsid.%s' needs %s", elem_name(elem),
                         is_number ? "a long" : "a UUID");
    if (is_number)
        id->parent_number = elem_i64(elem);
    return ERR_OK;
}

ErrCode session_id_parse(Elem lsid, SessionId *ret_id, Error *err) {
    SessionId id = {.parent_number = SESSION_NO_NUMBER};
    bool has_id = false;
    memcpy(id.uid, DIGEST_OF_NOBODY, SESSION_UID_SIZE);
    if (elem_type(lsid) == BT_DOC) {
        DocIter iter = doc_iter(elem_doc(lsid));
        for (Elem elem; doc_iter_next(&iter, &elem);) {
            if (elem_name_is(elem, STR("id")))
                has_id = uuid_from_elem(elem, &id.id);
            else if (elem_name_is(elem, STR("uid")))
                TRY(take_uid(elem, &id, err));
            else if (elem_name_is(elem, STR("txnNumber")) || elem_name_is(elem, STR("txnUUID")))
                TRY(take_child(elem, &id, err));
            else
                return error_set(err, (ErrCode)LOCATION_UNKNOWN_FIELD,
                                 "BSON field 'OperationSessionInfo.lsid.%s' is an unknown field.",
                                 elem_name(elem));
        }
    }
    if (!has_id)
        return error_set(
            err, ERR_TYPE_MISMATCH,
            "BSON field 'OperationSessionInfo.lsid' needs a document with a UUID 'id'");
    if (id.parent_number != SESSION_NO_NUMBER && !session_id_is_child(&id))
        return error_set(err, ERR_INVALID_OPTIONS,
                         "'lsid.txnNumber' cannot be specified without 'lsid.txnUUID'");
    *ret_id = id;
    return ERR_OK;
}

bool session_id_is_child(const SessionId *id) {
    static const Uuid NONE;
    return !uuid_equal(&id->txn_uuid, &NONE);
}

SessionId session_id_new_child(const SessionId *parent, int64_t parent_number) {
    SessionId child = *parent;
    child.txn_uuid = uuid_new();
    child.parent_number = parent_number;
    return child;
}

SessionId session_id_of_nobody(const Uuid *id) {
    SessionId whole = {.id = *id, .parent_number = SESSION_NO_NUMBER};
    memcpy(whole.uid, DIGEST_OF_NOBODY, SESSION_UID_SIZE);
    return whole;
}

void build_session_id(DocBuilder *b, const char *name, const SessionId *id) {
    size_t opened = build_open_doc(b, name);
    build_uuid(b, "id", &id->id);
    build_binary(b, "uid", /* subtype= */ 0, id->uid, SESSION_UID_SIZE);
    if (UNLIKELY(id->parent_number != SESSION_NO_NUMBER))
        build_i64(b, "txnNumber", id->parent_number);
    if (UNLIKELY(session_id_is_child(id)))
        build_uuid(b, "txnUUID", &id->txn_uuid);
    build_close(b, opened);
}

void session_id_to_text(const SessionId *id, char out[SESSION_ID_TEXT_SIZE]) {
    uuid_to_text(&id->id, out);
    char *at = out + UUID_TEXT_SIZE - 1;
    at += snprintf(at, 4, " - ");
    for (int i = 0; i < SESSION_UID_SIZE; i++)
        at += snprintf(at, 3, "%02x", id->uid[i]);
}
