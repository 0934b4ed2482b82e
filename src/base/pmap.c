#include "base/pmap.h"

#include <stdatomic.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"

struct PMap {
    _Atomic int32_t refs;
    uint64_t priority;
    size_t count; /* nodes of this subtree */
    const void *key;
    size_t key_size;
    void *value;
    PMap *left;
    PMap *right;
};

static int compare(const void *a, size_t a_size, const void *b, size_t b_size) {
    size_t size = a_size < b_size ? a_size : b_size;
    int rc = size > 0 ? memcmp(a, b, size) : 0;
    if (rc != 0)
        return rc;
    return a_size < b_size ? -1 : a_size > b_size;
}

/* Consumes the references to left and right, takes one to value. */
static PMap *make(const PMapType *type, uint64_t priority, const void *key, size_t key_size,
                  void *value, PMap *left, PMap *right) {
    PMap *node = xmalloc(sizeof(PMap));
    atomic_init(&node->refs, 1);
    node->priority = priority;
    node->count = 1 + pmap_count(left) + pmap_count(right);
    node->key = key;
    node->key_size = key_size;
    node->value = type->ref(value);
    node->left = left;
    node->right = right;
    return node;
}

static PMap *with_children(const PMapType *type, const PMap *node, PMap *left, PMap *right) {
    return make(type, node->priority, node->key, node->key_size, node->value, left, right);
}

PMap *pmap_ref(PMap *map) {
    if (map != NULL)
        atomic_fetch_add_explicit(&map->refs, 1, memory_order_relaxed);
    return map;
}

void pmap_unref(PMap *map, const PMapType *type) {
    /* Recursion is as deep as the tree: logarithmic. */
    if (map == NULL || atomic_fetch_sub_explicit(&map->refs, 1, memory_order_acq_rel) > 1)
        return;
    pmap_unref(map->left, type);
    pmap_unref(map->right, type);
    type->unref(map->value);
    xfree(map);
}

/* Splits into keys below and above `key` (which is not in the map); both are new references. */
static void split(PMap *map, const PMapType *type, const void *key, size_t key_size,
                  PMap **ret_below, PMap **ret_above) {
    if (map == NULL) {
        *ret_below = *ret_above = NULL;
        return;
    }
    PMap *inner;
    if (compare(map->key, map->key_size, key, key_size) < 0) {
        split(map->right, type, key, key_size, &inner, ret_above);
        *ret_below = with_children(type, map, pmap_ref(map->left), inner);
    } else {
        split(map->left, type, key, key_size, ret_below, &inner);
        *ret_above = with_children(type, map, inner, pmap_ref(map->right));
    }
}

/* Joins two maps, all keys of `below` being lower; a new reference. */
static PMap *join(PMap *below, PMap *above, const PMapType *type) {
    if (below == NULL)
        return pmap_ref(above);
    if (above == NULL)
        return pmap_ref(below);
    if (below->priority >= above->priority)
        return with_children(type, below, pmap_ref(below->left), join(below->right, above, type));
    return with_children(type, above, join(below, above->left, type), pmap_ref(above->right));
}

static PMap *put_new(PMap *map, const PMapType *type, uint64_t priority, const void *key,
                     size_t key_size, void *value) {
    if (map == NULL || priority > map->priority) {
        PMap *below, *above;
        split(map, type, key, key_size, &below, &above);
        return make(type, priority, key, key_size, value, below, above);
    }
    if (compare(key, key_size, map->key, map->key_size) < 0)
        return with_children(type, map, put_new(map->left, type, priority, key, key_size, value),
                             pmap_ref(map->right));
    return with_children(type, map, pmap_ref(map->left),
                         put_new(map->right, type, priority, key, key_size, value));
}

static PMap *replace(PMap *map, const PMapType *type, const void *key, size_t key_size,
                     void *value) {
    int rc = compare(key, key_size, map->key, map->key_size);
    if (rc == 0)
        return make(type, map->priority, key, key_size, value, pmap_ref(map->left),
                    pmap_ref(map->right));
    if (rc < 0)
        return with_children(type, map, replace(map->left, type, key, key_size, value),
                             pmap_ref(map->right));
    return with_children(type, map, pmap_ref(map->left),
                         replace(map->right, type, key, key_size, value));
}

PMap *pmap_put(PMap *map, const PMapType *type, const void *key, size_t key_size, void *value) {
    if (pmap_get(map, key, key_size) != NULL)
        return replace(map, type, key, key_size, value);
    return put_new(map, type, hash_bytes(key, key_size), key, key_size, value);
}

static PMap *remove_present(PMap *map, const PMapType *type, const void *key, size_t key_size) {
    int rc = compare(key, key_size, map->key, map->key_size);
    if (rc == 0)
        return join(map->left, map->right, type);
    if (rc < 0)
        return with_children(type, map, remove_present(map->left, type, key, key_size),
                             pmap_ref(map->right));
    return with_children(type, map, pmap_ref(map->left),
                         remove_present(map->right, type, key, key_size));
}

PMap *pmap_remove(PMap *map, const PMapType *type, const void *key, size_t key_size) {
    if (pmap_get(map, key, key_size) == NULL)
        return pmap_ref(map);
    return remove_present(map, type, key, key_size);
}

void *pmap_get(const PMap *map, const void *key, size_t key_size) {
    while (map != NULL) {
        int rc = compare(key, key_size, map->key, map->key_size);
        if (rc == 0)
            return map->value;
        map = rc < 0 ? map->left : map->right;
    }
    return NULL;
}

size_t pmap_count(const PMap *map) {
    return map == NULL ? 0 : map->count;
}

static bool visit_from(const PMap *map, const void *from, size_t from_size,
                       bool (*visit)(void *arg, const void *key, size_t key_size, void *value),
                       void *arg) {
    if (map == NULL)
        return true;
    bool is_reached = compare(map->key, map->key_size, from, from_size) >= 0;
    if (is_reached) {
        if (!visit_from(map->left, from, from_size, visit, arg))
            return false;
        if (!visit(arg, map->key, map->key_size, map->value))
            return false;
    }
    return visit_from(map->right, from, from_size, visit, arg);
}

void pmap_for_each_from(const PMap *map, const void *from, size_t from_size,
                        bool (*visit)(void *arg, const void *key, size_t key_size, void *value),
                        void *arg) {
    visit_from(map, from, from_size, visit, arg);
}
