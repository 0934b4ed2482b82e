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

ErrCode session_id_parse(Elem lsid, SessionId *ret_id, Error *err) {
    SessionId id;
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
                return error_set(err, ERR_NOT_IMPLEMENTED,
                                 "internal sessions ('lsid.%s') are not supported yet",
                                 elem_name(elem));
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
    *ret_id = id;
    return ERR_OK;
}

SessionId session_id_of_nobody(const Uuid *id) {
    SessionId whole = {.id = *id};
    memcpy(whole.uid, DIGEST_OF_NOBODY, SESSION_UID_SIZE);
    return whole;
}

void build_session_id(DocBuilder *b, const char *name, const SessionId *id) {
    size_t opened = build_open_doc(b, name);
    build_uuid(b, "id", &id->id);
    build_binary(b, "uid", /* subtype= */ 0, id->uid, SESSION_UID_SIZE);
    build_close(b, opened);
}

void session_id_to_text(const SessionId *id, char out[SESSION_ID_TEXT_SIZE]) {
    uuid_to_text(&id->id, out);
    char *at = out + UUID_TEXT_SIZE - 1;
    at += snprintf(at, 4, " - ");
    for (int i = 0; i < SESSION_UID_SIZE; i++)
        at += snprintf(at, 3, "%02x", id->uid[i]);
}
