/* fail_point_config.h - configuring failpoints: by the command, and at start. */
#pragma once

#include "base/failpoint.h"
#include "bson/doc.h"

ErrCode fail_point_find(Str name, FailpointId *ret_id, Error *err) MUST_CHECK;
/* `mode` and `data` (DOC_NONE: none) as in configureFailPoint; *ret_counts are those of before. */
ErrCode fail_point_configure(Str name, Elem mode, Doc data, FailpointCounts *ret_counts, Error *err)
    MUST_CHECK;
/* --setParameter failpoint.<name>={mode: ..., data: ...} */
ErrCode fail_point_configure_text(const char *name, const char *json, Error *err) MUST_CHECK;
