/*
 * test_ownership.h - the access policy of tests: owns a part of the documents of some collections.
 *
 * The failpoint "testOwnership" switches it on, with data
 *   {ns: ["db.coll", ...], paths: ["k", ...], modulus: 3, remainder: 0,
 *    refuseAttach: <code>, refuseRestore: <code>, isReplacing: <bool>}
 * A document is owned when the sum of its values under `paths` has that remainder. A number counts
 * as its whole part, a text as the sum of its bytes, everything else as 0. Who asks for the
 * collection is refused with the first code, who goes on after a yield with the second one. A query
 * keeps the remainder it began with, unless the policy is replacing.
 */
#pragma once

#include "catalog/access_policy.h"

/* To be registered only where test commands are enabled: it costs a call per owned access. */
extern const AccessPolicy TEST_OWNERSHIP_POLICY;
