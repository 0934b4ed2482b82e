/*
 * params.h - server parameters, and the few other facts about this process that commands show.
 *
 * A parameter is a row of params.def. Values are set at start (--setParameter), while running (the
 * setParameter command), and read anywhere with param_i64 and its kin. What must be carried
 * elsewhere when it changes has a hook.
 *
 * Ownership: made by server/ before anything else, hangs off the ServiceCtx.
 * Threading: any thread. Reads are one relaxed load. Changes are serialised by the caller of the
 * hook table's set functions: two clients that set one parameter at once get one of the two values.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "bson/builder.h"
#include "bson/doc.h"
#include "concurrency/service_ctx.h"

typedef enum ParamId {
#define PARAM(symbol, name, type, initial, least, greatest, flags, summary) PARAM_##symbol,
#include "params/params.def"
#undef PARAM
    PARAM_COUNT,
} ParamId;

typedef enum ParamType {
    PARAM_TYPE_BOOL,
    PARAM_TYPE_I32,
    PARAM_TYPE_I64,
    PARAM_TYPE_F64,
    PARAM_TYPE_DOC
} ParamType;

typedef enum ParamFlags {
    PARAM_STARTUP = 1 << 0,
    PARAM_RUNTIME = 1 << 1,
    PARAM_TEST = 1 << 2,
} ParamFlags;

typedef struct ParamSpec {
    const char *name;
    ParamType type;
    double initial;
    double least;
    double greatest;
    uint32_t flags;
    const char *summary;
} ParamSpec;

/* What else is to happen for a parameter; all may be NULL. */
typedef struct ParamHooks {
    /* The value has changed, or the server starts. */
    void (*apply)(ServiceCtx *service, ParamId id);
    /* Of computed ones. */
    void (*build)(ServiceCtx *service, const char *name, DocBuilder *b);
    ErrCode (*set_doc)(Doc value, Error *err);
} ParamHooks;

typedef struct ServerParams ServerParams;

/* `hooks` has PARAM_COUNT rows and outlives the result. */
ServerParams *server_params_new(const ParamHooks *hooks);
void server_params_free(ServerParams *params);

const ParamSpec *param_spec(ParamId id);
bool param_find(Str name, ParamId *ret_id);

/* For --setParameter and the configuration file: "name" and the text of its value. No hook runs.
 * Fails with ERR_BAD_VALUE. */
ErrCode param_set_text(ServerParams *params, const char *name, const char *text, Error *err)
    MUST_CHECK;
/* Another way to give the same: an option of the command line. The value is in range. */
void param_set_number(ServerParams *params, ParamId id, double value);
/* Runs every hook, once the service is complete. */
void params_apply_all(ServiceCtx *service);

/* For the setParameter command. Fails with ERR_BAD_VALUE for what does not fit, ERR_TYPE_MISMATCH.
 */
ErrCode param_set_elem(ServiceCtx *service, ParamId id, Elem value, Error *err) MUST_CHECK;
/* Appends the present value. */
void param_build(ServiceCtx *service, ParamId id, const char *name, DocBuilder *b);

int64_t param_i64(const ServiceCtx *service, ParamId id);
bool param_bool(const ServiceCtx *service, ParamId id);
double param_f64(const ServiceCtx *service, ParamId id);

/* ---- facts about this process, set at start, then constant ---- */

typedef struct ServerSetup {
    char host[300];       /* "name:port" */
    const char *process;  /* "sherd", or "mongod" when called so */
    uint32_t compressors; /* WIRE_COMPRESSOR_BIT of those we offer */
    bool is_log_reopened; /* logRotate closes and opens, instead of renaming */
    Doc argv;             /* array of strings */
    Doc parsed;           /* the options in the form of a configuration file */
} ServerSetup;
ServerSetup *server_setup(const ServiceCtx *service);
