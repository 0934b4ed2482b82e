#include "sharding/shard/support_index.h"

bool support_index_is(const IndexDesc *index, const ShardKey *key) {
    ShardKeyIndex row = {
        .key = index->key_pattern,
        .is_sparse = index->is_sparse,
        .is_partial = index->partial_filter != NULL,
        .is_hidden = index->is_hidden,
        .has_collation = index->collator != NULL,
        .is_plain = index->kind == INDEX_KIND_ORDERED || index->kind == INDEX_KIND_HASHED,
    };
    return index->is_ready && shard_key_index_problem(key, &row) == NULL;
}

bool support_index_is_single(const IndexDesc *index, const ShardKey *key) {
    return !index_is_multikey(index) && support_index_is(index, key);
}

const IndexDesc *support_index_find(const Collection *coll, const ShardKey *key) {
    const IndexDesc *found = NULL;
    for (uint32_t i = 0; i < coll->index_count; i++) {
        const IndexDesc *index = coll->indexes[i];
        if (support_index_is_single(index, key))
            return index;
        if (found == NULL && support_index_is(index, key))
            found = index;
    }
    return found;
}
