#include "sharding/route/shard_registry.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

ShardList *shard_list_ref(ShardList *list) {
    atomic_fetch_add_explicit(&list->refs, 1, memory_order_relaxed);
    return list;
}

void shard_list_unref(ShardList *list) {
    /* Release pairs with the acquire of the last unref, which frees what all others have read. */
    if (list == NULL || atomic_fetch_sub_explicit(&list->refs, 1, memory_order_acq_rel) != 1)
        return;
    for (uint32_t i = 0; i < list->count; i++)
        xfree(list->rows[i].address);
    xfree(list);
}

void shard_list_done(ShardList **list) {
    shard_list_unref(TAKE_PTR(*list));
}

static ErrCode parse_shard(SetMonitors *monitors, Doc doc, Shard *ret_shard, Error *err) {
    Elem id = doc_get_lit(doc, "_id");
    Elem host = doc_get_lit(doc, "host");
    if (elem_type(id) != BT_STRING || elem_str(id).size == 0 ||
        elem_str(id).size >= SHARD_NAME_SIZE || elem_type(host) != BT_STRING)
        return error_set(err, ERR_INCOMPATIBLE_SHARDING_METADATA,
                         "a document of config.shards needs a string \"_id\" of at most %d bytes "
                         "and a string \"host\"",
                         SHARD_NAME_SIZE - 1);
    *ret_shard = (Shard){0};
    memcpy(ret_shard->name, elem_str(id).data, elem_str(id).size);
    TRY(set_monitors_watch(monitors, elem_str(host), &ret_shard->set, err));
    ret_shard->address = xstrndup(elem_str(host).data, elem_str(host).size);
    ret_shard->is_draining = elem_is_truthy(doc_get_lit(doc, "draining"));
    Elem time = doc_get_lit(doc, "topologyTime");
    if (elem_type(time) == BT_TIMESTAMP)
        ret_shard->topology_ts = (uint64_t)elem_i64(time);
    return ERR_OK;
}

static int compare_names(const void *a, const void *b) {
    return strcmp(((const Shard *)a)->name, ((const Shard *)b)->name);
}

ErrCode shard_list_make(SetMonitors *monitors, const Doc *docs, uint32_t count,
                        ShardList **ret_list, Error *err) {
    ShardList *list = xcalloc(1, sizeof(ShardList) + count * sizeof(Shard));
    atomic_init(&list->refs, 1);
    for (uint32_t i = 0; i < count; i++) {
        ErrCode rc = parse_shard(monitors, docs[i], &list->rows[i], err);
        if (rc != ERR_OK) {
            shard_list_unref(list);
            return rc;
        }
        list->count++;
        if (list->rows[i].topology_ts > list->newest_topology_ts)
            list->newest_topology_ts = list->rows[i].topology_ts;
    }
    qsort(list->rows, count, sizeof(Shard), compare_names);
    *ret_list = list;
    return ERR_OK;
}

const Shard *shard_list_find(const ShardList *list, Str name) {
    for (uint32_t low = 0, high = list->count; low < high;) {
        uint32_t middle = low + (high - low) / 2;
        const Shard *shard = &list->rows[middle];
        Str own = str_from(shard->name);
        int order = memcmp(name.data, own.data, name.size < own.size ? name.size : own.size);
        if (order == 0 && name.size == own.size)
            return shard;
        if (order < 0 || (order == 0 && name.size < own.size))
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

const Shard *shard_list_find_set(const ShardList *list, Str set_name) {
    for (uint32_t i = 0; i < list->count; i++)
        if (str_is(set_name, watched_set_name(list->rows[i].set)))
            return &list->rows[i];
    return NULL;
}

/* Whether the address names that host. */
static bool names_host(const char *address, Str host) {
    const char *slash = strchr(address, '/');
    for (const char *at = slash == NULL ? address : slash + 1; *at != '\0';) {
        size_t size = strcspn(at, ",");
        if (str_equal((Str){at, size}, host))
            return true;
        at += size + (at[size] == ',');
    }
    return false;
}

static bool has_member(const Shard *shard, Str host) {
    if (host.size == 0 || host.size >= SET_HOST_SIZE)
        return false;
    if (names_host(shard->address, host))
        return true;
    char text[SET_HOST_SIZE] = "";
    memcpy(text, host.data, host.size);
    SetView *view = watched_set_view(shard->set);
    bool is_member = set_view_find(view, text) >= 0;
    set_view_unref(view);
    return is_member;
}

const Shard *shard_list_find_host(const ShardList *list, Str host) {
    for (uint32_t i = 0; i < list->count; i++)
        if (has_member(&list->rows[i], host))
            return &list->rows[i];
    return NULL;
}

static bool has_same_members(const SetView *a, const SetView *b) {
    bool is_same = strcmp(a->name, b->name) == 0 && a->count == b->count;
    for (uint32_t i = 0; is_same && i < a->count; i++)
        is_same = set_view_find(b, a->members[i].host) >= 0;
    return is_same;
}

static SetView *parse_address(Str address) {
    CLEANUP(error_reset) Error err = {0};
    SetView *view;
    return set_view_parse(address, &view, &err) == ERR_OK ? view : NULL;
}

bool shard_has_address(const Shard *shard, Str address) {
    SetView *own = parse_address(str_from(shard->address));
    SetView *given = parse_address(address);
    bool is_same = own != NULL && given != NULL && has_same_members(own, given);
    set_view_unref(own);
    set_view_unref(given);
    return is_same;
}

const Shard *shard_list_find_address(const ShardList *list, Str address) {
    SetView *given = parse_address(address);
    if (given == NULL)
        return NULL;
    const Shard *shard = shard_list_find_set(list, str_from(given->name));
    if (shard != NULL && !shard_has_address(shard, address)) {
        SetView *now = watched_set_view(shard->set);
        if (!has_same_members(now, given))
            shard = NULL;
        set_view_unref(now);
    }
    set_view_unref(given);
    return shard;
}

const Shard *shard_list_find_any(const ShardList *list, Str text) {
    const Shard *shard = shard_list_find(list, text);
    if (shard == NULL)
        shard = shard_list_find_address(list, text);
    if (shard == NULL)
        shard = shard_list_find_host(list, text);
    return shard != NULL ? shard : shard_list_find_set(list, text);
}
