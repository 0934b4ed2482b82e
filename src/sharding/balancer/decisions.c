#include "sharding/balancer/decisions.h"

enum {
    KEY_BYTES_MAX = 1024,
};

void decision_build(DocBuilder *list, uint32_t index, const Decision *decision) {
    char name[INDEX_NAME_SIZE];
    size_t row = build_open_doc_str(list, index_name(index, name));
    build_str(list, "ns", decision->ns);
    build_cstr(list, "reason", balance_reason_text(decision->reason));
    if (doc_size(decision->min) <= KEY_BYTES_MAX)
        build_doc(list, "min", decision->min);
    build_str(list, "from", decision->from);
    if (decision->to.size > 0)
        build_str(list, "to", decision->to);
    build_cstr(list, "outcome", decision->outcome);
    if (decision->why != NULL)
        build_cstr(list, "why", decision->why);
    build_close(list, row);
}

Decision decision_of_refusal(const CollectionLook *coll, const ShardsLook *shards,
                             const BalanceCollection *input, const BalanceRefusal *refusal) {
    const BalanceChunk *chunk = &input->chunks[refusal->chunk];
    return (Decision){.ns = coll->name,
                      .reason = refusal->reason,
                      .min = chunk->min,
                      .from = shards->rows[chunk->shard].name,
                      .outcome = "refused",
                      .why = refusal->why};
}

Decision decision_of_move(const CollectionLook *coll, const ShardsLook *shards,
                          const BalanceCollection *input, const BalanceMove *move) {
    return (Decision){.ns = coll->name,
                      .reason = move->reason,
                      .min = input->chunks[move->chunk].min,
                      .from = shards->rows[move->from].name,
                      .to = shards->rows[move->to].name,
                      .outcome = "chosen"};
}
