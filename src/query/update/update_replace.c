/*
 * update_replace.c - replacement documents, and what `_id` may be.
 */
#include "bson/json.h"
#include "query/update/update_internal.h"

ErrCode update_apply_replacement(UpdateRun *run, Error *err) {
    Doc replacement = run->program->replacement;
    Elem old_id = doc_get_lit(run->before, "_id");
    Elem new_id = doc_get_lit(replacement, "_id");
    if (elem_is_present(old_id) && elem_is_present(new_id) &&
        elem_compare(old_id, new_id, NULL) != 0)
        return error_set(err, ERR_IMMUTABLE_FIELD,
                         "After applying the update, the (immutable) field '_id' was found to have "
                         "been altered to _id: %s",
                         shell_text_of_elem(new_id, run->arena));
    /* The stored bytes win over an equal number of another type. */
    Elem id = elem_is_present(old_id) ? old_id : new_id;
    if (elem_is_present(new_id))
        TRY(update_check_id(new_id, err));

    doc_builder_init(&run->out, &run->buf);
    if (elem_is_present(id))
        build_elem(&run->out, id);
    DocIter iter = doc_iter(replacement);
    for (Elem elem; doc_iter_next(&iter, &elem);) {
        if (elem.data == new_id.data)
            continue;
        /* An empty timestamp asks for the current one. */
        bool is_empty_ts = elem_type(elem) == BT_TIMESTAMP && elem_i64(elem) == 0;
        if (is_empty_ts && run->ctx->next_ts != NULL)
            build_timestamp(&run->out, elem_name(elem), run->ctx->next_ts(run->ctx->next_ts_arg));
        else
            build_elem(&run->out, elem);
    }
    run->is_modified = true; /* the bytes decide */
    return ERR_OK;
}

ErrCode update_check_id(Elem id, Error *err) {
    BsonType type = elem_type(id);
    if (type == BT_ARRAY || type == BT_REGEX || type == BT_UNDEFINED)
        return error_set(err, ERR_INVALID_ID_FIELD, "The '_id' value cannot be of type %s",
                         bson_type_name(type));
    if (type != BT_DOC)
        return ERR_OK;
    DocIter iter = doc_iter(elem_doc(id));
    for (Elem elem; doc_iter_next(&iter, &elem);)
        if (elem_name(elem)[0] == '$')
            return error_set(err, ERR_DOLLAR_PREFIXED_FIELD_NAME,
                             "The dollar ($) prefixed field '%s' in '_id.%s' is not valid for "
                             "storage.",
                             elem_name(elem), elem_name(elem));
    return ERR_OK;
}
