/*
 * entry.c - parses and checks entries received from other members.
 *
 * They are valid BSON (validated with the reply) but otherwise untrusted: a malformed entry must
 * fail with an error, not corrupt the data or crash the applier.
 */
#include <string.h>

#include "catalog/write_group.h"
#include "repl/apply/apply_internal.h"

enum {
    ENTRY_VERSION = 2,
};

static ErrCode check_write(ApplyOp *op, Error *err);
static ErrCode take_field(ApplyOp *op, Elem elem, bool is_nested, Error *err);

static ErrCode malformed(const char *field, const char *wanted, Error *err) {
    return error_set(err, ERR_FAILED_TO_PARSE, "oplog entry: '%s' must be %s", field, wanted);
}

ErrCode apply_parse(Doc entry, uint64_t outer_ts, ApplyOp *ret_op, Error *err) {
    *ret_op = (ApplyOp){.ts = outer_ts, .entry = entry};
    DocIter iter = doc_iter(entry);
    for (Elem elem; doc_iter_next(&iter, &elem);)
        TRY(take_field(ret_op, elem, outer_ts != 0, err));
    if (ret_op->kind == 0)
        return malformed("op", "there", err);
    if (ret_op->ts == 0)
        return malformed("ts", "a timestamp that is not zero", err);
    ret_op->place.entry_ts = ret_op->ts;
    if (ret_op->ns.data == NULL)
        return malformed("ns", "there", err);
    if (!doc_is_present(ret_op->o))
        return malformed("o", "there", err);
    if (ret_op->kind == APPLY_COMMAND || ret_op->kind == APPLY_NOOP)
        return ERR_OK;
    return check_write(ret_op, err);
}

ApplyPlace apply_place_of(Doc entry) {
    Elem ts = doc_get_lit(entry, "ts");
    Elem wall = doc_get_lit(entry, "wall");
    return (ApplyPlace){.entry_ts = elem_type(ts) == BT_TIMESTAMP ? (uint64_t)elem_i64(ts) : 0,
                        .wall_ms = elem_type(wall) == BT_DATE ? elem_i64(wall) : 0};
}

static ErrCode take_kind(ApplyOp *op, Elem elem, Error *err) {
    if (elem_type(elem) != BT_STRING)
        return malformed("op", "a string", err);
    Str kind = elem_str(elem);
    if (kind.size != 1 || strchr("iudcn", kind.data[0]) == NULL || kind.data[0] == '\0')
        return error_set(err, ERR_BAD_VALUE, "oplog entry: unknown 'op' \"%.*s\"",
                         kind.size < 16 ? (int)kind.size : 16, kind.data);
    op->kind = (ApplyKind)kind.data[0];
    return ERR_OK;
}

static ErrCode take_field(ApplyOp *op, Elem elem, bool is_nested, Error *err) {
    BsonType type = elem_type(elem);
    if (elem_name_is(elem, STR("o"))) {
        if (type != BT_DOC)
            return malformed("o", "a document", err);
        op->o = elem_doc(elem);
    } else if (elem_name_is(elem, STR("o2"))) {
        if (type != BT_DOC)
            return malformed("o2", "a document", err);
        op->o2 = elem_doc(elem);
    } else if (elem_name_is(elem, STR("op"))) {
        TRY(take_kind(op, elem, err));
    } else if (elem_name_is(elem, STR("ns"))) {
        if (type != BT_STRING)
            return malformed("ns", "a string", err);
        op->ns = elem_str(elem);
    } else if (elem_name_is(elem, STR("ui"))) {
        if (!uuid_from_elem(elem, &op->uuid))
            return malformed("ui", "a UUID", err);
        op->has_uuid = true;
    } else if (elem_name_is(elem, STR("ts")) && !is_nested) {
        if (type != BT_TIMESTAMP)
            return malformed("ts", "a timestamp that is not zero", err);
        op->ts = (uint64_t)elem_i64(elem);
    } else if (elem_name_is(elem, STR("v"))) {
        if (!elem_is_number(elem) || elem_as_i64(elem) != ENTRY_VERSION)
            return malformed("v", "2", err);
    } else if (elem_name_is(elem, STR("b"))) {
        if (type != BT_BOOL)
            return malformed("b", "a bool", err);
        op->is_upsert = elem_bool(elem);
    } else if (elem_name_is(elem, STR("needsRetryImage"))) {
        op->image = session_image_from_elem(elem);
    } else if (elem_name_is(elem, STR("fromMigrate"))) {
        op->is_from_migrate = elem_is_truthy(elem);
    } else if (elem_name_is(elem, STR("wall")) && !is_nested) {
        op->place.wall_ms = type == BT_DATE ? elem_i64(elem) : 0;
    }
    return ERR_OK;
}

static ErrCode check_write(ApplyOp *op, Error *err) {
    if (op->kind == APPLY_UPDATE && !doc_is_present(op->o2))
        return malformed("o2", "there in an update", err);
    op->id = doc_get_lit(op->kind == APPLY_UPDATE ? op->o2 : op->o, "_id");
    BsonType type = elem_type(op->id);
    if (type == BT_EOO || type == BT_ARRAY || type == BT_REGEX || type == BT_UNDEFINED)
        return error_set(err, ERR_FAILED_TO_PARSE, "oplog entry of \"%.*s\": its document has %s",
                         op->ns.size < 128 ? (int)op->ns.size : 128, op->ns.data,
                         type == BT_EOO ? "no _id" : "an _id of a type that it cannot have");
    return ERR_OK;
}

/* ---- who has to be alone ---- */

bool apply_is_views(Str ns) {
    static const char SUFFIX[] = ".system.views";
    enum { SUFFIX_SIZE = sizeof(SUFFIX) - 1 };
    return ns.size > SUFFIX_SIZE &&
           memcmp(ns.data + ns.size - SUFFIX_SIZE, SUFFIX, SUFFIX_SIZE) == 0 &&
           memchr(ns.data, '.', ns.size) == ns.data + ns.size - SUFFIX_SIZE;
}

static char kind_of(Doc entry) {
    Elem kind = doc_get_lit(entry, "op");
    return elem_type(kind) == BT_STRING && elem_str(kind).size == 1 ? elem_str(kind).data[0] : '\0';
}

/* Also true for session rows, which other entries of the run write as a side effect. */
static bool writes_views(Doc entry) {
    Elem ns = doc_get_lit(entry, "ns");
    return elem_type(ns) == BT_STRING &&
           (apply_is_views(elem_str(ns)) || session_tables_is_named(elem_str(ns)));
}

/* Those of an entry whose rows are known. */
bool apply_are_writes(Doc rows) {
    DocIter iter = doc_iter(rows);
    for (Elem row; doc_iter_next(&iter, &row);) {
        if (elem_type(row) != BT_DOC)
            return false;
        char kind = kind_of(elem_doc(row));
        if ((kind != 'i' && kind != 'u' && kind != 'd' && kind != 'n') ||
            writes_views(elem_doc(row)))
            return false;
    }
    return true;
}

Doc apply_writes_of(Doc entry) {
    Elem o = doc_get_lit(entry, "o");
    if (kind_of(entry) != 'c' || elem_type(o) != BT_DOC)
        return DOC_NONE;
    DocIter iter = doc_iter(elem_doc(o));
    Elem rows;
    if (!doc_iter_next(&iter, &rows) || !elem_name_is(rows, STR("applyOps")) ||
        elem_type(rows) != BT_ARRAY)
        return DOC_NONE;
    static const char *const MORE[] = {"prepare", "partialTxn", "count"};
    for (Elem elem; doc_iter_next(&iter, &elem);)
        for (size_t i = 0; i < ARRAY_LEN(MORE); i++)
            if (strcmp(elem_name(elem), MORE[i]) == 0)
                return DOC_NONE;
    return apply_are_writes(elem_doc(rows)) ? elem_doc(rows) : DOC_NONE;
}

bool apply_is_alone(Doc entry) {
    char kind = kind_of(entry);
    if (kind == 'c') /* a partial entry does nothing */
        return !doc_is_present(apply_writes_of(entry)) && entry_part(entry) != ENTRY_PARTIAL;
    return kind != 'n' && writes_views(entry);
}

size_t apply_batch_end(const Doc *entries, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (apply_is_alone(entries[i]))
            return i > 0 ? i : 1;
    return count > 0 ? count : 1;
}
