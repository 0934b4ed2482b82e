/*
 * client_reply.c - what a reply says about success and failure.
 */
#include "transport/client.h"

void client_reply_done(ClientReply *reply) {
    buffer_done(&reply->bytes);
    reply->body = DOC_NONE;
}

bool client_is_network_error(ErrCode code) {
    return code == ERR_HOST_UNREACHABLE || code == ERR_HOST_NOT_FOUND ||
           code == ERR_NETWORK_TIMEOUT || code == ERR_SOCKET_EXCEPTION ||
           code == ERR_NETWORK_INTERFACE_EXCEEDED_TIME_LIMIT ||
           code == ERR_POOLED_CONNECTIONS_DROPPED;
}

static uint32_t read_labels(Elem labels) {
    uint32_t bits = 0;
    if (elem_type(labels) != BT_ARRAY)
        return 0;
    DocIter iter = doc_iter(elem_doc(labels));
    for (Elem label; doc_iter_next(&iter, &label);)
        for (int i = 0; i < ERROR_LABEL_COUNT; i++)
            if (elem_type(label) == BT_STRING &&
                str_is(elem_str(label), error_label_name((ErrorLabel)(1u << i))))
                bits |= 1u << i;
    return bits;
}

/* Fields of the reply as such, not of its error. */
static bool is_of_reply(Elem field) {
    static const char *const NAMES[] = {"ok",
                                        "errmsg",
                                        "code",
                                        "codeName",
                                        "errorLabels",
                                        "$clusterTime",
                                        "operationTime",
                                        "topologyVersion",
                                        "$configTime",
                                        "$topologyTime",
                                        "$gleStats",
                                        "$replData",
                                        "$oplogQueryData",
                                        "lastCommittedOpTime"};
    for (size_t i = 0; i < ARRAY_LEN(NAMES); i++)
        if (elem_name_is(field, str_from(NAMES[i])))
            return true;
    return false;
}

static void keep_extra(Doc reply, Error *err) {
    CLEANUP(buffer_done) Buffer buf = {0};
    buffer_init(&buf, BUFFER_UNBOUNDED);
    DocBuilder b;
    doc_builder_init(&b, &buf);
    DocIter iter = doc_iter(reply);
    bool has_any = false;
    for (Elem field; doc_iter_next(&iter, &field);)
        if (!is_of_reply(field)) {
            build_elem(&b, field);
            has_any = true;
        }
    Doc extra = doc_builder_end(&b);
    if (has_any)
        error_set_extra(err, extra.data);
}

ErrCode client_check_reply(Doc reply, Error *err) {
    if (LIKELY(elem_is_truthy(doc_get_lit(reply, "ok"))))
        return ERR_OK;
    Elem code = doc_get_lit(reply, "code");
    Elem text = doc_get_lit(reply, "errmsg");
    ErrCode rc = elem_is_number(code) ? (ErrCode)elem_as_i64(code) : ERR_UNKNOWN_ERROR;
    if (rc == ERR_OK)
        rc = ERR_UNKNOWN_ERROR;
    (void)error_set(err, rc, "%s",
                    elem_type(text) == BT_STRING ? elem_str(text).data : "command failed");
    err->labels |= read_labels(doc_get_lit(reply, "errorLabels"));
    keep_extra(reply, err);
    return rc;
}

/* Of a write error: what a command that fails so says besides its message. */
static bool is_about_failure(Str name) {
    return str_is(name, "keyPattern") || str_is(name, "keyValue") || str_is(name, "collation") ||
           str_is(name, "errInfo");
}

static ErrCode take_write_error(Doc failed, Error *err) {
    Elem code = doc_get_lit(failed, "code");
    Elem message = doc_get_lit(failed, "errmsg");
    (void)error_set(err, elem_is_number(code) ? (ErrCode)elem_as_i64(code) : ERR_UNKNOWN_ERROR,
                    "%s", elem_type(message) == BT_STRING ? elem_str(message).data : "");
    CLEANUP(buffer_done) Buffer buf;
    buffer_init(&buf, BUFFER_UNBOUNDED);
    DocBuilder b;
    doc_builder_init(&b, &buf);
    DocIter iter = doc_iter(failed);
    for (Elem field; doc_iter_next(&iter, &field);)
        if (is_about_failure(elem_name_str(field)))
            build_elem(&b, field);
    error_set_extra(err, doc_builder_end(&b).data);
    return err->code;
}

ErrCode client_check_writes(Doc reply, Error *err) {
    Elem errors = doc_get_lit(reply, "writeErrors");
    Elem first = elem_type(errors) == BT_ARRAY ? doc_get_lit(elem_doc(errors), "0") : ELEM_MISSING;
    if (elem_type(first) == BT_DOC)
        return take_write_error(elem_doc(first), err);
    Elem failed = doc_get_lit(reply, "writeConcernError");
    if (elem_type(failed) != BT_DOC)
        return ERR_OK;
    Elem text = doc_get_lit(elem_doc(failed), "errmsg");
    return error_set(err, ERR_WRITE_CONCERN_FAILED, "it is not known to be durable: %s",
                     elem_type(text) == BT_STRING ? elem_str(text).data : "write concern failed");
}
