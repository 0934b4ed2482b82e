#include "params/params.h"

#include <errno.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "bson/json.h"

/* Doubles are kept by their bits. */
struct ServerParams {
    const ParamHooks *hooks;
    _Atomic int64_t values[PARAM_COUNT];
    ServerSetup setup;
};

#define STARTUP PARAM_STARTUP
#define RUNTIME PARAM_RUNTIME
#define TEST    PARAM_TEST
static const ParamSpec SPECS[PARAM_COUNT] = {
#define PARAM(symbol, text_name, value_type, first, minimum, maximum, all_flags, text)             \
    [PARAM_##symbol] = {.name = text_name,                                                         \
                        .type = PARAM_TYPE_##value_type,                                           \
                        .initial = (double)(first),                                                \
                        .least = (double)(minimum),                                                \
                        .greatest = (double)(maximum),                                             \
                        .flags = (all_flags),                                                      \
                        .summary = text},
#include "params/params.def"
#undef PARAM
};

static int64_t encode(const ParamSpec *spec, double value);
static ErrCode parse_text(const ParamSpec *spec, const char *text, int64_t *ret_value, Error *err);
static ErrCode check_range(const ParamSpec *spec, double value, Error *err);

static int64_t f64_bits(double value) {
    int64_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static double f64_from_bits(int64_t bits) {
    double value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

ServerParams *server_params_new(const ParamHooks *hooks) {
    ServerParams *params = NEW(ServerParams);
    params->hooks = hooks;
    for (int i = 0; i < PARAM_COUNT; i++)
        params->values[i] = encode(&SPECS[i], SPECS[i].initial);
    return params;
}

void server_params_free(ServerParams *params) {
    xfree(params);
}

const ParamSpec *param_spec(ParamId id) {
    return &SPECS[id];
}

bool param_find(Str name, ParamId *ret_id) {
    for (int i = 0; i < PARAM_COUNT; i++) {
        if (str_is(name, SPECS[i].name)) {
            *ret_id = (ParamId)i;
            return true;
        }
    }
    return false;
}

ErrCode param_set_text(ServerParams *params, const char *name, const char *text, Error *err) {
    ParamId id;
    if (!param_find(str_from(name), &id))
        return error_set(err, ERR_BAD_VALUE, "Unknown --setParameter '%s'", name);
    const ParamSpec *spec = &SPECS[id];
    if ((spec->flags & PARAM_STARTUP) == 0)
        return error_set(err, ERR_BAD_VALUE, "Cannot use --setParameter to set '%s' at startup",
                         name);
    if (spec->type == PARAM_TYPE_DOC) {
        Arena arena;
        arena_init(&arena, 1024);
        Doc value;
        ErrCode rc = doc_from_json(text, &arena, &value, err);
        if (rc == ERR_OK)
            rc = params->hooks[id].set_doc(value, err);
        arena_done(&arena);
        return rc;
    }
    int64_t value;
    if (parse_text(spec, text, &value, err) != ERR_OK)
        return error_prefix(err, "Bad value for parameter \"%s\"", name);
    atomic_store_explicit(&params->values[id], value, memory_order_relaxed);
    return ERR_OK;
}

void param_set_number(ServerParams *params, ParamId id, double value) {
    atomic_store_explicit(&params->values[id], encode(&SPECS[id], value), memory_order_relaxed);
}

void params_apply_all(ServiceCtx *service) {
    for (int i = 0; i < PARAM_COUNT; i++)
        if (service->params->hooks[i].apply != NULL)
            service->params->hooks[i].apply(service, (ParamId)i);
}

ErrCode param_set_elem(ServiceCtx *service, ParamId id, Elem value, Error *err) {
    const ParamSpec *spec = &SPECS[id];
    const ParamHooks *hooks = &service->params->hooks[id];
    if (spec->type == PARAM_TYPE_DOC) {
        if (elem_type(value) != BT_DOC)
            return error_set(err, ERR_TYPE_MISMATCH, "parameter %s must be a document, not %s",
                             spec->name, bson_type_name(elem_type(value)));
        return hooks->set_doc(elem_doc(value), err);
    }
    int64_t encoded;
    if (elem_type(value) == BT_STRING) {
        TRY(parse_text(spec, elem_str(value).data, &encoded, err));
    } else if (spec->type == PARAM_TYPE_BOOL) {
        if (elem_type(value) != BT_BOOL && !elem_is_number(value))
            return error_set(err, ERR_BAD_VALUE, "%s has to be a boolean, not %s", spec->name,
                             bson_type_name(elem_type(value)));
        encoded = elem_is_truthy(value);
    } else {
        if (!elem_is_number(value) && elem_type(value) != BT_BOOL)
            return error_set(err, ERR_BAD_VALUE, "%s has to be a number, not %s", spec->name,
                             bson_type_name(elem_type(value)));
        double number = elem_type(value) == BT_BOOL ? elem_bool(value) : elem_as_f64(value);
        TRY(check_range(spec, number, err));
        encoded = spec->type == PARAM_TYPE_I64 && elem_is_number(value) ? elem_as_i64(value)
                                                                        : encode(spec, number);
    }
    atomic_store_explicit(&service->params->values[id], encoded, memory_order_relaxed);
    if (hooks->apply != NULL)
        hooks->apply(service, id);
    return ERR_OK;
}

void param_build(ServiceCtx *service, ParamId id, const char *name, DocBuilder *b) {
    int64_t value = param_i64(service, id);
    switch (SPECS[id].type) {
    case PARAM_TYPE_BOOL:
        build_bool(b, name, value != 0);
        break;
    case PARAM_TYPE_I32:
        build_i32(b, name, (int32_t)value);
        break;
    case PARAM_TYPE_I64:
        build_i64(b, name, value);
        break;
    case PARAM_TYPE_F64:
        build_f64(b, name, f64_from_bits(value));
        break;
    case PARAM_TYPE_DOC:
        service->params->hooks[id].build(service, name, b);
        break;
    }
}

int64_t param_i64(const ServiceCtx *service, ParamId id) {
    return atomic_load_explicit(&service->params->values[id], memory_order_relaxed);
}

bool param_bool(const ServiceCtx *service, ParamId id) {
    return param_i64(service, id) != 0;
}

double param_f64(const ServiceCtx *service, ParamId id) {
    return f64_from_bits(param_i64(service, id));
}

ServerSetup *server_setup(const ServiceCtx *service) {
    return &service->params->setup;
}

static int64_t encode(const ParamSpec *spec, double value) {
    return spec->type == PARAM_TYPE_F64 ? f64_bits(value) : (int64_t)value;
}

static ErrCode parse_text(const ParamSpec *spec, const char *text, int64_t *ret_value, Error *err) {
    if (spec->type == PARAM_TYPE_BOOL) {
        bool is_true = strcmp(text, "true") == 0 || strcmp(text, "1") == 0;
        if (!is_true && strcmp(text, "false") != 0 && strcmp(text, "0") != 0)
            return error_set(err, ERR_BAD_VALUE,
                             "Invalid value for parameter %s: %s is not a boolean", spec->name,
                             text);
        *ret_value = is_true;
        return ERR_OK;
    }
    char *end = NULL;
    errno = 0;
    bool is_integer = spec->type != PARAM_TYPE_F64;
    int64_t integer = is_integer ? strtoll(text, &end, 10) : 0;
    double number = is_integer ? (double)integer : strtod(text, &end);
    if (end == text || *end != '\0' || errno != 0)
        return error_set(err, ERR_BAD_VALUE, "Invalid value for parameter %s: %s is not a number",
                         spec->name, text);
    TRY(check_range(spec, number, err));
    *ret_value = is_integer ? integer : f64_bits(number);
    return ERR_OK;
}

static ErrCode check_range(const ParamSpec *spec, double value, Error *err) {
    if (isnan(value) || value < spec->least)
        return error_set(
            err, ERR_BAD_VALUE,
            "Invalid value for parameter %s: %.15g is not greater than or equal to %.15g",
            spec->name, value, spec->least);
    if (value > spec->greatest)
        return error_set(err, ERR_BAD_VALUE,
                         "Invalid value for parameter %s: %.15g is not less than or equal to %.15g",
                         spec->name, value, spec->greatest);
    return ERR_OK;
}
