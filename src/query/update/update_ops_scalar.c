/*
 * update_ops_scalar.c - operators on single values: $set, $unset, $inc, $mul, $min, $max,
 * $currentDate, $bit, $rename.
 */
#include <assert.h>

#include "bson/json.h"
#include "bson/number.h"
#include "query/update/update_internal.h"

typedef enum CurrentDateKind {
    CURRENT_DATE_DATE,
    CURRENT_DATE_TIMESTAMP,
} CurrentDateKind;

static Number zero_of(BsonType type);
static UpdateValue store_number(UpdateRun *run, Number number);
static char *number_text(Elem elem, Arena *arena);
static ErrCode check_rename_path(UpdateRun *run, const FieldPath *path, const char *side,
                                 Elem *ret_value, Error *err);

/* Any operand will do. */
ErrCode update_parse_any(UpdateParser *p, UpdateNode *node, Error *err) {
    (void)p, (void)node, (void)err;
    return ERR_OK;
}

/* ---- $set, $setOnInsert, $unset ---- */

ErrCode update_apply_set(UpdateRun *run, const UpdateNode *node, Elem old,
                         UpdateOutcome *ret_outcome, UpdateValue *ret_value, Error *err) {
    (void)run, (void)old, (void)err;
    *ret_outcome = UPDATE_VALUE;
    *ret_value = update_value_of(node->operand);
    return ERR_OK;
}

ErrCode update_apply_unset(UpdateRun *run, const UpdateNode *node, Elem old,
                           UpdateOutcome *ret_outcome, UpdateValue *ret_value, Error *err) {
    (void)run, (void)node, (void)old, (void)ret_value, (void)err;
    *ret_outcome = UPDATE_REMOVE;
    return ERR_OK;
}

/* ---- $inc, $mul ---- */

ErrCode update_parse_arithmetic(UpdateParser *p, UpdateNode *node, Error *err) {
    if (elem_is_number(node->operand))
        return ERR_OK;
    return error_set(err, ERR_TYPE_MISMATCH, "Cannot %s with non-numeric argument: %s",
                     node->op->id == UPDATE_OP_INC ? "increment" : "multiply",
                     update_elem_text(node->operand, p->arena));
}

ErrCode update_apply_arithmetic(UpdateRun *run, const UpdateNode *node, Elem old,
                                UpdateOutcome *ret_outcome, UpdateValue *ret_value, Error *err) {
    bool is_inc = node->op->id == UPDATE_OP_INC;
    int32_t sum;
    /* Counters: nearly all there is to $inc. */
    if (is_inc && elem_type(old) == BT_INT32 && elem_type(node->operand) == BT_INT32 &&
        !__builtin_add_overflow(elem_i32(old), elem_i32(node->operand), &sum)) {
        memcpy(run->scratch, &sum, sizeof(sum));
        *ret_outcome = UPDATE_VALUE;
        *ret_value = (UpdateValue){BT_INT32, run->scratch, sizeof(sum)};
        return ERR_OK;
    }
    Number operand = number_from_elem(node->operand);
    Number result = operand;
    bool fits = true;
    if (!elem_is_present(old)) {
        /* A missing field counts as zero; the operand gives the type. */
        if (!is_inc)
            result = zero_of(operand.type);
    } else if (!elem_is_number(old)) {
        const char *field = elem_name(old);
        return error_set(err, ERR_TYPE_MISMATCH,
                         "Cannot apply %s to a value of non-numeric type. %s has the field '%s' of "
                         "non-numeric type %s",
                         node->op->name, update_id_text(run), field,
                         bson_type_name(elem_type(old)));
    } else if (is_inc) {
        fits = number_add(number_from_elem(old), operand, false, &result);
    } else {
        fits = number_multiply(number_from_elem(old), operand, false, &result);
    }
    if (!fits)
        return error_set(err, ERR_BAD_VALUE,
                         "Failed to apply %s operations to current value (%s) for document %s",
                         node->op->name, number_text(old, run->arena), update_id_text(run));
    *ret_outcome = UPDATE_VALUE;
    *ret_value = store_number(run, result);
    return ERR_OK;
}

static Number zero_of(BsonType type) {
    return type == BT_INT32    ? number_i32(0)
           : type == BT_INT64  ? number_i64(0)
           : type == BT_DOUBLE ? number_f64(0)
                               : number_decimal(DECIMAL128_ZERO);
}

static UpdateValue store_number(UpdateRun *run, Number number) {
    UpdateValue value = {.type = number.type, .data = run->scratch};
    switch (number.type) {
    case BT_INT32:
        value.size = sizeof(number.i32);
        memcpy(run->scratch, &number.i32, sizeof(number.i32));
        break;
    case BT_INT64:
        value.size = sizeof(number.i64);
        memcpy(run->scratch, &number.i64, sizeof(number.i64));
        break;
    case BT_DOUBLE:
        value.size = sizeof(number.f64);
        memcpy(run->scratch, &number.f64, sizeof(number.f64));
        break;
    default:
        assert(number.type == BT_DECIMAL);
        value.size = sizeof(number.dec);
        memcpy(run->scratch, &number.dec, sizeof(number.dec));
    }
    return value;
}

/* "(NumberLong)5": only integers can overflow. */
static char *number_text(Elem elem, Arena *arena) {
    return arena_printf(arena, "(%s)%lld", elem_type(elem) == BT_INT32 ? "NumberInt" : "NumberLong",
                        (long long)elem_as_i64(elem));
}

/* ---- $min, $max ---- */

ErrCode update_apply_min_max(UpdateRun *run, const UpdateNode *node, Elem old,
                             UpdateOutcome *ret_outcome, UpdateValue *ret_value, Error *err) {
    (void)err;
    if (elem_is_present(old)) {
        int order = elem_compare(node->operand, old, run->program->collator);
        bool is_better = node->op->id == UPDATE_OP_MIN ? order < 0 : order > 0;
        if (!is_better)
            return ERR_OK;
    }
    *ret_outcome = UPDATE_VALUE;
    *ret_value = update_value_of(node->operand);
    return ERR_OK;
}

/* ---- $currentDate ---- */

ErrCode update_parse_current_date(UpdateParser *p, UpdateNode *node, Error *err) {
    (void)p;
    Elem operand = node->operand;
    node->depth_added = 0;
    node->number = CURRENT_DATE_DATE;
    if (elem_type(operand) == BT_BOOL)
        return ERR_OK;
    if (elem_type(operand) != BT_DOC)
        return error_set(
            err, ERR_BAD_VALUE,
            "%s is not valid type for $currentDate. Please use a boolean ('true') or a "
            "$type expression ({$type: 'timestamp/date'}).",
            bson_type_name(elem_type(operand)));
    bool has_type = false;
    DocIter iter = doc_iter(elem_doc(operand));
    for (Elem elem; doc_iter_next(&iter, &elem);) {
        if (!elem_name_is(elem, STR("$type")))
            return error_set(err, ERR_BAD_VALUE, "Unrecognized $currentDate option: %s",
                             elem_name(elem));
        Str kind = elem_type(elem) == BT_STRING ? elem_str(elem) : STR("");
        has_type = str_is(kind, "date") || str_is(kind, "timestamp");
        node->number = str_is(kind, "date") ? CURRENT_DATE_DATE : CURRENT_DATE_TIMESTAMP;
    }
    if (!has_type)
        return error_set(err, ERR_BAD_VALUE,
                         "The '$type' string field is required to be 'date' or 'timestamp': "
                         "{$currentDate: {field : {$type: 'date'}}}");
    return ERR_OK;
}

ErrCode update_apply_current_date(UpdateRun *run, const UpdateNode *node, Elem old,
                                  UpdateOutcome *ret_outcome, UpdateValue *ret_value, Error *err) {
    (void)old, (void)err;
    bool is_date = node->number == CURRENT_DATE_DATE;
    uint64_t bits = is_date                     ? (uint64_t)run->ctx->now_ms
                    : run->ctx->next_ts != NULL ? run->ctx->next_ts(run->ctx->next_ts_arg)
                                                : 0;
    memcpy(run->scratch, &bits, sizeof(bits));
    *ret_outcome = UPDATE_VALUE;
    *ret_value = (UpdateValue){is_date ? BT_DATE : BT_TIMESTAMP, run->scratch, sizeof(bits)};
    return ERR_OK;
}

/* ---- $bit ---- */

ErrCode update_parse_bit(UpdateParser *p, UpdateNode *node, Error *err) {
    Elem operand = node->operand;
    node->depth_added = 0;
    if (elem_type(operand) != BT_DOC)
        return error_set(err, ERR_BAD_VALUE,
                         "The $bit modifier is not compatible with a %s. You must pass in an "
                         "embedded document: {$bit: {field: {and/or/xor: #}}",
                         bson_type_name(elem_type(operand)));
    if (doc_is_empty(elem_doc(operand)))
        return error_set(err, ERR_BAD_VALUE,
                         "You must pass in at least one bitwise operation. The format is: {$bit: "
                         "{field: {and/or/xor: #}}");
    DocIter iter = doc_iter(elem_doc(operand));
    for (Elem elem; doc_iter_next(&iter, &elem);) {
        Str name = elem_name_str(elem);
        if (!str_is(name, "and") && !str_is(name, "or") && !str_is(name, "xor"))
            return error_set(err, ERR_BAD_VALUE,
                             "The $bit modifier only supports 'and', 'or', and 'xor', not '%s' "
                             "which is an unknown operator: %s",
                             elem_name(elem), update_elem_text(elem, p->arena));
        if (elem_type(elem) != BT_INT32 && elem_type(elem) != BT_INT64)
            return error_set(err, ERR_BAD_VALUE,
                             "The $bit modifier field must be an Integer(32/64 bit); a '%s' is not "
                             "supported here: %s",
                             bson_type_name(elem_type(elem)), update_elem_text(elem, p->arena));
    }
    return ERR_OK;
}

ErrCode update_apply_bit(UpdateRun *run, const UpdateNode *node, Elem old,
                         UpdateOutcome *ret_outcome, UpdateValue *ret_value, Error *err) {
    BsonType type = elem_is_present(old) ? elem_type(old) : BT_INT32;
    if (type != BT_INT32 && type != BT_INT64)
        return error_set(err, ERR_BAD_VALUE,
                         "Cannot apply $bit to a value of non-integral type.%s has the field %s of "
                         "non-integer type %s",
                         update_id_text(run), elem_name(old), bson_type_name(type));
    bool is_wide = type == BT_INT64;
    /* int32 operands are widened with their sign, as both would be in registers. */
    int64_t value = elem_is_present(old) ? elem_as_i64(old) : 0;
    DocIter iter = doc_iter(elem_doc(node->operand));
    for (Elem elem; doc_iter_next(&iter, &elem);) {
        int64_t mask = elem_as_i64(elem);
        is_wide |= elem_type(elem) == BT_INT64;
        if (elem_name_is(elem, STR("and")))
            value &= mask;
        else if (elem_name_is(elem, STR("or")))
            value |= mask;
        else
            value ^= mask;
    }
    *ret_outcome = UPDATE_VALUE;
    *ret_value = store_number(run, is_wide ? number_i64(value) : number_i32((int32_t)value));
    return ERR_OK;
}

/* ---- $rename ---- */

/* One row of the update makes two leaves: the source loses its field, the target takes the value.
 * Values are looked up before anything is written (update_resolve_renames). */
ErrCode update_parse_rename(UpdateParser *p, UpdateNode *node, Error *err) {
    Elem operand = node->operand;
    if (elem_type(operand) != BT_STRING)
        return error_set(err, ERR_BAD_VALUE, "The 'to' field for $rename must be a string: %s: %s",
                         elem_name(operand), shell_text_of_elem(operand, p->arena));
    Str from = elem_name_str(operand), to = elem_str(operand);
    if (str_has_char(to, '\0'))
        return error_set(err, ERR_BAD_VALUE,
                         "The 'to' field for $rename cannot contain an embedded null byte");
    if (str_equal(from, to))
        return error_set(err, ERR_BAD_VALUE,
                         "The source and target field for $rename must differ: %s: \"%.*s\"",
                         elem_name(operand), (int)to.size, to.data);
    UpdateRename rename = {0};
    TRY(path_parse(from, p->arena, &rename.from, err));
    if (to.size > 0)
        TRY(path_parse(to, p->arena, &rename.to, err));
    size_t common = from.size < to.size ? from.size : to.size;
    bool is_same_path = common > 0 && memcmp(from.data, to.data, common) == 0 &&
                        (from.size > to.size ? from.data[common] : to.data[common]) == '.';
    if (is_same_path)
        return error_set(err, ERR_BAD_VALUE,
                         "The source and target field for $rename must not be on the same path: "
                         "%s: \"%.*s\"",
                         elem_name(operand), (int)to.size, to.data);
    for (int side = 0; side < 2; side++) {
        const FieldPath *path = side == 0 ? &rename.from : &rename.to;
        for (uint32_t i = 0; i < path->count; i++) {
            Str name = path->parts[i].name;
            bool is_dynamic =
                str_is(name, "$") || (name.size > 2 && name.data[0] == '$' && name.data[1] == '[');
            if (is_dynamic)
                return error_set(err, ERR_BAD_VALUE,
                                 "The %s field for $rename may not be dynamic: %.*s",
                                 side == 0 ? "source" : "destination", (int)path->dotted.size,
                                 path->dotted.data);
        }
    }

    UpdateProgram *program = p->program;
    if (program->rename_count == p->rename_capacity) {
        p->rename_capacity = p->rename_capacity > 0 ? p->rename_capacity * 2 : 4;
        UpdateRename *renames = ARENA_ARRAY(p->arena, UpdateRename, p->rename_capacity);
        if (program->rename_count > 0)
            memcpy(renames, program->renames, program->rename_count * sizeof(*renames));
        program->renames = renames;
    }
    node->rename_index = program->rename_count;
    node->depth_added = 0;
    UpdateNode *target;
    TRY(update_parse_path(p, &UPDATE_OPERATORS[UPDATE_OP_RENAME_TARGET], to, operand, &target,
                          err));
    target->rename_index = program->rename_count;
    program->renames[program->rename_count++] = rename;
    return ERR_OK;
}

ErrCode update_resolve_renames(UpdateRun *run, Error *err) {
    const UpdateProgram *program = run->program;
    run->rename_values = ARENA_ARRAY(run->arena, Elem, program->rename_count);
    for (uint32_t i = 0; i < program->rename_count; i++) {
        Elem value, ignored;
        TRY(check_rename_path(run, &program->renames[i].from, "source", &value, err));
        if (!elem_is_present(value))
            continue;
        TRY(check_rename_path(run, &program->renames[i].to, "destination", &ignored, err));
        uint32_t depth = program->renames[i].to.count + update_elem_depth(value);
        if (depth > BSON_DEPTH_MAX_STORED)
            return error_set(err, ERR_OVERFLOW, "Document exceeds maximum nesting depth of %d",
                             BSON_DEPTH_MAX_STORED);
        run->rename_values[i] = value;
    }
    return ERR_OK;
}

/* Follows the path through documents only; an element of an array on the way is an error. A path
 * that cannot be followed is refused later, as that of any other operator. */
static ErrCode check_rename_path(UpdateRun *run, const FieldPath *path, const char *side,
                                 Elem *ret_value, Error *err) {
    Doc doc = run->before;
    *ret_value = ELEM_MISSING;
    for (uint32_t i = 0; i < path->count; i++) {
        Elem elem = path_find_field(doc, &path->parts[i]);
        if (i + 1 == path->count) {
            *ret_value = elem;
            return ERR_OK;
        }
        if (elem_type(elem) == BT_ARRAY && path->parts[i + 1].index >= 0) {
            Elem id = doc_get_lit(run->before, "_id");
            return error_set(err, ERR_BAD_VALUE,
                             "The %s field cannot be an array element, '%.*s' in doc with _id: %s "
                             "has an array field called '%s'",
                             side, (int)path->dotted.size, path->dotted.data,
                             shell_text_of_elem(id, run->arena), elem_name(elem));
        }
        if (elem_type(elem) != BT_DOC)
            return ERR_OK;
        doc = elem_doc(elem);
    }
    return ERR_OK;
}

ErrCode update_apply_rename_source(UpdateRun *run, const UpdateNode *node, Elem old,
                                   UpdateOutcome *ret_outcome, UpdateValue *ret_value, Error *err) {
    (void)old, (void)ret_value, (void)err;
    if (elem_is_present(run->rename_values[node->rename_index]))
        *ret_outcome = UPDATE_REMOVE;
    return ERR_OK;
}

ErrCode update_apply_rename_target(UpdateRun *run, const UpdateNode *node, Elem old,
                                   UpdateOutcome *ret_outcome, UpdateValue *ret_value, Error *err) {
    (void)old, (void)err;
    Elem value = run->rename_values[node->rename_index];
    if (!elem_is_present(value))
        return ERR_OK;
    *ret_outcome = UPDATE_VALUE;
    *ret_value = update_value_of(value);
    return ERR_OK;
}
