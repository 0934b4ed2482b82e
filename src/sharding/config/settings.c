#include "sharding/config/settings.h"

#include "query/write/own_docs.h"

static const Ns SETTINGS_NS = {
    .size = sizeof("config.settings") - 1, .db_size = 6, .text = "config.settings"};
#define BALANCER_ID STR("balancer")

ErrCode balancer_setting_read(OpCtx *op, bool *ret_is_on, Error *err) {
    Doc doc;
    TRY(own_doc_read(op, &SETTINGS_NS, own_doc_id(op, BALANCER_ID), &doc, err));
    *ret_is_on = !doc_is_present(doc) || !elem_is_truthy(doc_get_lit(doc, "stopped"));
    return ERR_OK;
}

ErrCode balancer_setting_write(OpCtx *op, bool is_on, Error *err) {
    DocBuilder b = doc_builder_in_arena(&op->arena);
    size_t fields = build_open_doc(&b, "$set");
    build_cstr(&b, "mode", is_on ? "full" : "off");
    build_bool(&b, "stopped", !is_on);
    build_close(&b, fields);
    return own_doc_upsert(op, &SETTINGS_NS, own_doc_id(op, BALANCER_ID), doc_builder_end(&b), err);
}
