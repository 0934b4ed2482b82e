/*
 * fcv.h - the document that says which version's features the data may need (admin.system.version).
 *
 * There is one version so far; tools, drivers' tests and later versions look for the document.
 * Users can neither remove it nor write another version into it; its collection is one of the
 * node's own (own_collections.h).
 */
#pragma once

#include "bson/namespace.h"

#define FCV_VERSION     "7.0"
#define FCV_DOCUMENT_ID "featureCompatibilityVersion"
#define FCV_NS_TEXT     "admin.system.version"

static inline bool ns_has_fcv(const Ns *ns) {
    return str_is(ns_str(ns), FCV_NS_TEXT);
}
