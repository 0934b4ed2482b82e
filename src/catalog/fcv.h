/*
 * fcv.h - the document that says which version's features the data may need (admin.system.version).
 *
 * There is one version so far; tools, drivers' tests and later versions look for the document.
 * Users can neither remove it nor write another version into it.
 */
#pragma once

#include "catalog/namespace.h"

#define FCV_VERSION     "7.0"
#define FCV_DOCUMENT_ID "featureCompatibilityVersion"
#define FCV_NS_TEXT     "admin.system.version"

static inline bool ns_has_fcv(const Ns *ns) {
    return str_is(ns_str(ns), FCV_NS_TEXT);
}

/* A collection that has to stay where it is: for drops and renames by users. */
static inline ErrCode fcv_check_ddl(const Ns *ns, const char *verb, Error *err) {
    if (!ns_has_fcv(ns))
        return ERR_OK;
    return error_set(err, ERR_ILLEGAL_OPERATION, "can't %s system collection %s", verb, ns->text);
}
