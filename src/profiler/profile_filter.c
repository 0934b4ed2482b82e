#include "profiler/profile_filter.h"

#include <stdatomic.h>
#include <string.h>

#include "base/alloc.h"
#include "query/expr/expr.h"
#include "query/match/match.h"

struct ProfileFilter {
    _Atomic int32_t refs;
    Arena arena;
    ExprMatchHook hook;
    MatchExpr *expr;
    Doc spec;
};

/* Of the documents of MongoDB's profiler and of ours: a misspelt name would let nothing pass. */
static const char *const FIELDS[] = {
    "allUsers",
    "appName",
    "client",
    "command",
    "cpuNanos",
    "cursorExhausted",
    "cursorid",
    "docsExamined",
    "errCode",
    "errMsg",
    "errName",
    "execStats",
    "exhaust",
    "flowControl",
    "fromMultiPlanner",
    "hasSortStage",
    "keysDeleted",
    "keysExamined",
    "keysInserted",
    "locks",
    "millis",
    "nMatched",
    "nModified",
    "nUpserted",
    "ndeleted",
    "ninserted",
    "nreturned",
    "ns",
    "numYield",
    "op",
    "originatingCommand",
    "planCacheKey",
    "planSummary",
    "prepareReadConflicts",
    "protocol",
    "queryFramework",
    "queryHash",
    "readConcern",
    "remote",
    "replanReason",
    "replanned",
    "responseLength",
    "storage",
    "temporarilyUnavailableErrors",
    "ts",
    "upsert",
    "usedDisk",
    "user",
    "writeConcern",
    "writeConflicts",
};

static ErrCode check_fields(const MatchExpr *expr, Error *err) {
    if (expr->kind >= MATCH_EQ) {
        const char *path = expr->path.dotted.data;
        size_t size = strcspn(path, ".");
        for (size_t i = 0; i < ARRAY_LEN(FIELDS); i++)
            if (strlen(FIELDS[i]) == size && memcmp(FIELDS[i], path, size) == 0)
                return ERR_OK;
        return error_set(err, (ErrCode)4910200,
                         "Profile filter is not allowed to depend on field: %.*s", (int)size, path);
    }
    for (uint32_t i = 0; i < expr->child_count; i++)
        TRY(check_fields(expr->children[i], err));
    return ERR_OK;
}

static ErrCode parse(ProfileFilter *filter, Doc spec, Error *err) {
    filter->spec = doc_copy(spec, &filter->arena);
    MatchParseContext context = {.expr_hook = expr_match_hook(&filter->hook)};
    TRY(match_parse(filter->spec, &context, &filter->arena, &filter->expr, err));
    TRY(check_fields(filter->expr, err));
    filter->expr = match_optimize(filter->expr, &filter->arena);
    return ERR_OK;
}

ErrCode profile_filter_new(Doc spec, ProfileFilter **ret_filter, Error *err) {
    ProfileFilter *filter = NEW(ProfileFilter);
    atomic_store(&filter->refs, 1);
    arena_init(&filter->arena, 0);
    ErrCode rc = parse(filter, spec, err);
    if (rc != ERR_OK) {
        profile_filter_unref(filter);
        return rc;
    }
    *ret_filter = filter;
    return ERR_OK;
}

ProfileFilter *profile_filter_ref(ProfileFilter *filter) {
    if (filter != NULL)
        atomic_fetch_add_explicit(&filter->refs, 1, memory_order_relaxed);
    return filter;
}

void profile_filter_unref(ProfileFilter *filter) {
    if (filter == NULL || atomic_fetch_sub_explicit(&filter->refs, 1, memory_order_acq_rel) > 1)
        return;
    arena_done(&filter->arena);
    xfree(filter);
}

/* What cannot be judged, since an expression fails, does not match. */
bool profile_filter_matches(const ProfileFilter *filter, Doc profile) {
    CLEANUP(error_reset) Error ignored = {0};
    MatchDetails details = MATCH_DETAILS_NONE;
    details.err = &ignored;
    return match_doc(filter->expr, profile, &details);
}

Doc profile_filter_spec(const ProfileFilter *filter) {
    return filter->spec;
}
