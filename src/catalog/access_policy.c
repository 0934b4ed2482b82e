#include "catalog/access_policy.h"

#include "catalog/catalog_internal.h"

void catalog_add_access_policy(CatalogService *service, const AccessPolicy *policy) {
    AccessPolicies *policies = &service->policies;
    invariant(policies->count < ACCESS_POLICIES_MAX);
    policies->rows[policies->count++] = *policy;
    policies->is_asked |= policy->attach != NULL || policy->restore != NULL;
}

ErrCode policies_check_write(const AccessPolicies *policies, OpCtx *op, const Ns *ns, Error *err) {
    for (uint32_t i = 0; i < policies->count; i++) {
        const AccessPolicy *row = &policies->rows[i];
        if (row->check_write != NULL)
            TRY(row->check_write(row->arg, op, ns, err));
    }
    return ERR_OK;
}

/* The first that requests an earlier state than the latest wins: combining two different ones would
 * need an order of sources, and no timestamp is fixed yet by which they could be compared. */
ReadSource policies_read_source(const AccessPolicies *policies, OpCtx *op, const Ns *ns) {
    ReadSource source = READ_LATEST;
    for (uint32_t i = 0; i < policies->count && source == READ_LATEST; i++) {
        const AccessPolicy *row = &policies->rows[i];
        if (row->read_source != NULL)
            source = row->read_source(row->arg, op, ns);
    }
    return source;
}

/* Accesses that policies do not concern: see the table of the README. A view is not a collection:
 * policies are consulted when its underlying collection is opened. */
static bool is_exempt(const CollAccess *access) {
    const OpCtx *op = access->op;
    return op->mode.is_unreplicated || op->mode.is_applying || access->view != NULL ||
           !ns_is_replicated(&access->ns);
}

ErrCode policies_attach(const AccessPolicies *policies, CollAccess *access, Error *err) {
    if (is_exempt(access))
        return ERR_OK;
    for (uint32_t i = 0; i < policies->count; i++) {
        const AccessPolicy *row = &policies->rows[i];
        if (row->attach == NULL)
            continue;
        invariant(access->filters[i] == NULL);
        TRY(row->attach(row->arg, access, &access->filters[i], err));
        access->is_held |= access->filters[i] != NULL;
        access->is_filtered |= access->filters[i] != NULL && !access->filters[i]->is_whole;
    }
    return ERR_OK;
}

static bool has_same_paths(const OwnershipFilter *a, const OwnershipFilter *b) {
    if (a->path_count != b->path_count)
        return false;
    for (uint32_t i = 0; i < a->path_count; i++)
        if (!str_equal(a->paths[i], b->paths[i]))
            return false;
    return true;
}

/* The plan either has a filter stage or not, and fetches what the paths need: neither can change
 * while it runs. */
static ErrCode replace(CollAccess *access, uint32_t i, OwnershipFilter *take_filter, Error *err) {
    OwnershipFilter *held = access->filters[i];
    bool is_newly_filtered = !take_filter->is_whole && (held == NULL || held->is_whole);
    if (held == NULL || is_newly_filtered || !has_same_paths(held, take_filter)) {
        ownership_unref(take_filter);
        return error_set(err, ERR_QUERY_PLAN_KILLED,
                         "query plan killed :: which documents of '%s' are owned is decided in "
                         "another way now; run the query again",
                         access->ns.text);
    }
    access->filters[i] = take_filter;
    ownership_unref(held);
    return ERR_OK;
}

ErrCode policies_restore(const AccessPolicies *policies, CollAccess *access, Error *err) {
    if (is_exempt(access))
        return ERR_OK;
    for (uint32_t i = 0; i < policies->count; i++) {
        const AccessPolicy *row = &policies->rows[i];
        if (row->restore == NULL)
            continue;
        OwnershipFilter *filter = NULL;
        TRY(row->restore(row->arg, access, access->filters[i], &filter, err));
        if (filter != NULL)
            TRY(replace(access, i, filter, err));
    }
    return ERR_OK;
}
