/* cmd_profile.c - profile: what the profiler keeps, by database; the threshold of slow operations.
 * A router has no profiler, but logs slow operations as well. */
#include "bson/namespace.h"
#include "commands/core/command.h"
#include "commands/core/command_service.h"
#include "params/params.h"
#include "profiler/profiler.h"

typedef struct ProfileRequest {
    int64_t level;
    Elem slow_ms;
    Elem sample_rate;
    Elem filter;
} ProfileRequest;

/* Sets or removes the filter of the database; `ret_filter` is the one to be set. */
static ErrCode parse_filter(CommandCtx *ctx, Elem elem, ProfileFilter **ret_filter, Error *err) {
    *ret_filter = NULL;
    if (!elem_is_present(elem) || (elem_type(elem) == BT_STRING && str_is(elem_str(elem), "unset")))
        return ERR_OK;
    if (ctx->service->role == ROLE_ROUTER)
        return error_set(err, ERR_NOT_IMPLEMENTED, "a router has no filter of slow operations");
    if (elem_type(elem) != BT_DOC)
        return error_set(err, ERR_BAD_VALUE,
                         "Profile filter must be an object or the string \"unset\"");
    return profile_filter_new(elem_doc(elem), ret_filter, err);
}

static void build_filter(DocBuilder *b, const ProfileFilter *filter) {
    if (filter == NULL)
        return;
    build_doc(b, "filter", profile_filter_spec(filter));
    build_cstr(b, "note",
               "When a filter expression is set, slowms and sampleRate are not used for profiling "
               "and slow-query log lines.");
}

static void unref_filter(ProfileFilter **filter) {
    profile_filter_unref(*filter);
}

static ErrCode profile_run(CommandCtx *ctx, void *arg, Error *err) {
    const ProfileRequest *request = arg;
    CommandSettings *settings = command_settings(ctx->service);
    Profiler *profiler = ctx->service->profiler;
    TRY(db_name_check(ctx->args.db, err));
    if (elem_is_present(request->slow_ms) && !elem_is_number(request->slow_ms))
        return error_set(
            err, ERR_TYPE_MISMATCH,
            "BSON field 'profile.slowms' is the wrong type '%s', expected types '[int, "
            "decimal, double, long]'",
            bson_type_name(elem_type(request->slow_ms)));
    double rate = 0;
    if (elem_is_present(request->sample_rate)) {
        rate = elem_is_number(request->sample_rate) ? elem_as_f64(request->sample_rate) : -1;
        if (!(rate >= 0.0) || !(rate <= 1.0))
            return error_set(err, ERR_BAD_VALUE,
                             "'sampleRate' must be between 0.0 and 1.0 inclusive");
    }
    CLEANUP(unref_filter) ProfileFilter *filter = NULL;
    TRY(parse_filter(ctx, request->filter, &filter, err));
    bool is_router = ctx->service->role == ROLE_ROUTER;
    if (is_router && request->level != 0 && request->level != -1)
        return error_set(err, ERR_BAD_VALUE,
                         "a router has no profiler: the level can only be 0, or -1 to see the "
                         "settings");
    DocBuilder *b = ctx->reply;
    build_i32(b, "was", is_router ? 0 : profiler_level(profiler, ctx->args.db));
    build_i32(b, "slowms", settings->slow_ms);
    build_f64(b, "sampleRate", settings->slow_sample_rate);
    if (!is_router) {
        CLEANUP(unref_filter) ProfileFilter *before = profiler_filter(profiler, ctx->args.db);
        build_filter(b, before);
    }
    if (!is_router && request->level > 0 && request->level <= 2)
        TRY(profiler_ensure_collection(ctx->op, ctx->args.db, err));
    if (!is_router && request->level >= 0 && request->level <= 2)
        profiler_set_level(profiler, ctx->args.db, (int32_t)request->level);
    if (!is_router && elem_is_present(request->filter))
        profiler_set_filter(profiler, ctx->args.db, filter);
    if (elem_is_present(request->slow_ms)) {
        int64_t slow_ms = elem_as_i64(request->slow_ms);
        settings->slow_ms = slow_ms > INT32_MAX ? INT32_MAX : slow_ms < -1 ? -1 : (int32_t)slow_ms;
    }
    if (elem_is_present(request->sample_rate))
        settings->slow_sample_rate = rate;
    return ERR_OK;
}

static const FieldSpec PROFILE_FIELDS[] = {
    {"profile", FIELD_I64, FIELD_REQUIRED, offsetof(ProfileRequest, level)},
    {"slowms", FIELD_ELEM, FIELD_OPTIONAL, offsetof(ProfileRequest, slow_ms)},
    {"sampleRate", FIELD_ELEM, FIELD_OPTIONAL, offsetof(ProfileRequest, sample_rate)},
    {"filter", FIELD_ELEM, FIELD_OPTIONAL, offsetof(ProfileRequest, filter)},
};

const CommandSpec CMD_PROFILE = {
    .name = "profile",
    .summary = "Shows and sets what the profiler keeps.",
    .request = REQUEST_OF(ProfileRequest, PROFILE_FIELDS),
    .run = profile_run,
};
