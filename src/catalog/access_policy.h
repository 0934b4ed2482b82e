/*
 * access_policy.h - who may read and write what: a list of policies that accesses consult.
 *
 * Replication decides whether this node accepts writes and at what time reads begin; sharding
 * whether the client's routing information is current, and which documents are owned. README.md has
 * the rules of their composition.
 *
 * Ownership: the list is part of the CatalogService; the policies' state belongs to the modules
 * that register them, which outlive it. Threading: filled before the first access, constant from
 * then on.
 */
#pragma once

#include "base/error.h"
#include "catalog/access.h"

typedef struct AccessPolicy {
    void *arg;
    /* Any member may be NULL: no opinion. */
    /* Called for each write access to something replicated, with the RSTL held: the answer remains
     * valid as long as the access. Not called for operations with `is_unreplicated`. */
    ErrCode (*check_write)(void *arg, OpCtx *op, const Ns *ns, Error *err);
    /* The read source of a read that specifies none (READ_LATEST). */
    ReadSource (*read_source)(void *arg, OpCtx *op, const Ns *ns);
    /* Called for each owned access, once its collection (which may not exist) and, for a read, its
     * snapshot are fixed. *ret_filter is NULL at first and stays so if nothing is filtered;
     * otherwise it receives a reference. */
    ErrCode (*attach)(void *arg, const CollAccess *access, OwnershipFilter **ret_filter,
                      Error *err);
    /* Called after each yield and when a cursor continues: is `held` (NULL: none was supplied)
     * still valid? *ret_filter is NULL at first: then `held` is kept. A new reference replaces
     * it. */
    ErrCode (*restore)(void *arg, const CollAccess *access, const OwnershipFilter *held,
                       OwnershipFilter **ret_filter, Error *err);
} AccessPolicy;

/* Adds a row at the end of the list. */
void catalog_add_access_policy(CatalogService *service, const AccessPolicy *policy);

typedef struct AccessPolicies {
    AccessPolicy rows[ACCESS_POLICIES_MAX];
    uint32_t count;
    bool is_asked; /* a row has `attach` or `restore` */
} AccessPolicies;

/* For access.c; see the members of a row. */
ErrCode policies_check_write(const AccessPolicies *policies, OpCtx *op, const Ns *ns, Error *err)
    MUST_CHECK;
ReadSource policies_read_source(const AccessPolicies *policies, OpCtx *op, const Ns *ns);
/* A failure leaves the filters acquired so far in the access: access_done releases them. */
ErrCode policies_attach(const AccessPolicies *policies, CollAccess *access, Error *err) MUST_CHECK;
ErrCode policies_restore(const AccessPolicies *policies, CollAccess *access, Error *err) MUST_CHECK;
