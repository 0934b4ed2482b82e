#include "repl/task/state_doc.h"

enum {
    MESSAGE_BYTES_MAX = 4096,
    EXTRA_BYTES_MAX = 16 * 1024,
};

static bool is_own_field(Elem elem) {
    return !elem_name_is(elem, STR("_id")) && !elem_name_is(elem, STR("phase")) &&
           !elem_name_is(elem, STR("task"));
}

void build_task_error(DocBuilder *b, const char *name, const Error *error) {
    char code_name[32];
    Str message = str_from(error_message(error));
    if (message.size > MESSAGE_BYTES_MAX) {
        message.size = MESSAGE_BYTES_MAX;
        /* Not in the middle of a character: what is stored is valid UTF-8. */
        while (message.size > 0 && ((uint8_t)message.data[message.size] & 0xC0) == 0x80)
            message.size--;
    }
    size_t opened = build_open_doc(b, name);
    build_i32(b, "code", (int32_t)error->code);
    build_cstr(b, "codeName", error_code_name(error->code, code_name));
    build_str(b, "errmsg", message);
    if (error->extra != NULL && doc_size((Doc){error->extra}) <= EXTRA_BYTES_MAX)
        build_doc(b, "extra", (Doc){error->extra});
    build_close(b, opened);
}

void task_error_parse(Doc doc, Error *ret_error) {
    Elem code = doc_get_lit(doc, "code");
    Elem message = doc_get_lit(doc, "errmsg");
    Elem extra = doc_get_lit(doc, "extra");
    int64_t number = elem_as_i64(code);
    (void)error_set(ret_error,
                    number > 0 && number <= INT32_MAX ? (ErrCode)number : ERR_OPERATION_FAILED,
                    "%s", elem_type(message) == BT_STRING ? elem_str(message).data : "");
    if (elem_type(extra) == BT_DOC)
        error_set_extra(ret_error, elem_doc(extra).data);
}

void task_error_copy(Error *to, const Error *from) {
    error_reset(to);
    if (from->code == ERR_OK)
        return;
    (void)error_set(to, from->code, "%s", error_message(from));
    to->labels = from->labels;
    if (from->extra != NULL)
        error_set_extra(to, from->extra);
}

static void build_locks(DocBuilder *b, const LockSet *locks) {
    if (locks->count == 0)
        return;
    size_t array = build_open_array(b, "locks");
    for (size_t i = 0; i < locks->count; i++) {
        char index[INDEX_NAME_SIZE];
        size_t row = build_open_doc_str(b, index_name((uint32_t)i, index));
        build_cstr(b, "name", locks->locks[i].name);
        build_cstr(b, "mode", locks->locks[i].is_exclusive ? "X" : "S");
        build_close(b, row);
    }
    build_close(b, array);
}

Doc task_parts_build(const TaskParts *parts, Arena *arena) {
    DocBuilder b = doc_builder_in_arena(arena);
    build_elem_as(&b, STR("_id"), parts->id);
    build_str(&b, "phase", parts->phase);
    if (doc_is_present(parts->own)) {
        DocIter iter = doc_iter(parts->own);
        for (Elem elem; doc_iter_next(&iter, &elem);)
            if (is_own_field(elem))
                build_elem(&b, elem);
    }
    size_t task = build_open_doc(&b, "task");
    build_doc(&b, "request", parts->request);
    build_locks(&b, &parts->locks);
    build_i64(&b, "keepMS", parts->keep_ms);
    if (parts->abort != NULL)
        build_task_error(&b, "abort", parts->abort);
    if (parts->is_over) {
        size_t outcome = build_open_doc(&b, "outcome");
        if (parts->error != NULL)
            build_task_error(&b, "error", parts->error);
        else
            build_doc(&b, "result", doc_is_present(parts->result) ? parts->result : DOC_EMPTY);
        build_close(&b, outcome);
        build_date(&b, "endedAt", parts->ended_ms);
    }
    build_close(&b, task);
    return doc_builder_end(&b);
}

static Doc doc_at(Doc doc, Str name) {
    Elem elem = doc_get(doc, name);
    return elem_type(elem) == BT_DOC || elem_type(elem) == BT_ARRAY ? elem_doc(elem) : DOC_EMPTY;
}

static ErrCode parse_locks(Doc array, LockSet *set, Error *err) {
    DocIter iter = doc_iter(array);
    for (Elem elem; doc_iter_next(&iter, &elem);) {
        Doc row = elem_type(elem) == BT_DOC ? elem_doc(elem) : DOC_EMPTY;
        Elem name = doc_get_lit(row, "name");
        Elem mode = doc_get_lit(row, "mode");
        if (elem_type(name) != BT_STRING || elem_type(mode) != BT_STRING)
            return error_set(err, ERR_FAILED_TO_PARSE, "a lock of a task has no name or no mode");
        /* What is not known to be shared excludes: the safe side. */
        TRY(lock_set_add(set, elem_str(name), !str_is(elem_str(mode), "S"), err));
    }
    return ERR_OK;
}

ErrCode task_parts_parse(Doc doc, TaskParts *ret_parts, Error *ret_abort, Error *ret_error,
                         Error *err) {
    Doc task = doc_at(doc, STR("task"));
    Elem phase = doc_get_lit(doc, "phase");
    Elem keep = doc_get_lit(task, "keepMS");
    TaskParts parts = {.id = doc_get_lit(doc, "_id"),
                       .phase = elem_type(phase) == BT_STRING ? elem_str(phase) : STR(""),
                       .own = doc,
                       .request = doc_at(task, STR("request")),
                       .keep_ms = elem_as_i64(keep)};
    Elem abort = doc_get_lit(task, "abort");
    if (elem_type(abort) == BT_DOC) {
        task_error_parse(elem_doc(abort), ret_abort);
        parts.abort = ret_abort;
    }
    Elem outcome = doc_get_lit(task, "outcome");
    if (elem_type(outcome) == BT_DOC) {
        parts.is_over = true;
        Elem ended = doc_get_lit(task, "endedAt");
        parts.ended_ms = elem_type(ended) == BT_DATE ? elem_i64(ended) : 0;
        Elem error = doc_get_lit(elem_doc(outcome), "error");
        if (elem_type(error) == BT_DOC) {
            task_error_parse(elem_doc(error), ret_error);
            parts.error = ret_error;
        } else {
            parts.result = doc_at(elem_doc(outcome), STR("result"));
        }
    }
    TRY(parse_locks(doc_at(task, STR("locks")), &parts.locks, err));
    *ret_parts = parts;
    return ERR_OK;
}
