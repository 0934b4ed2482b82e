#include "sharding/balancer/collection_status.h"

#include "sharding/balancer/balancer_internal.h"

typedef struct Verdict {
    bool is_violated;
    BalanceReason first;
    Doc decisions;
} Verdict;

static void take_reason(Verdict *verdict, BalanceReason reason) {
    if (!verdict->is_violated || reason < verdict->first)
        verdict->first = reason;
    verdict->is_violated = true;
}

static ErrCode look_at_whole(OpCtx *op, const CollectionLook *coll, const ShardsLook *shards,
                             BalanceCollection *input, Error *err) {
    bool is_whole;
    TRY(look_at_chunks(op, coll, shards, input, &is_whole, err));
    if (is_whole)
        return ERR_OK;
    return error_set(err, ERR_CONFLICTING_OPERATION_IN_PROGRESS,
                     "chunks of \"%.*s\" were changed while they were read", (int)coll->name.size,
                     coll->name.data);
}

static ErrCode judge(OpCtx *op, const CollectionLook *coll, const ShardsLook *shards,
                     BalanceCollection *input, Verdict *ret_verdict, Error *err) {
    TRY(look_at_whole(op, coll, shards, input, err));
    BalanceSplit *splits;
    uint32_t split_count;
    balance_zone_splits(input, &op->arena, &splits, &split_count);
    if (split_count > 0)
        take_reason(ret_verdict, BALANCE_ZONE);
    BalanceResult result;
    balance_choose(shards->rows, shards->count, input, &op->arena, &result);
    DocBuilder list = doc_builder_in_arena(&op->arena);
    uint32_t count = 0;
    for (uint32_t i = 0; i < result.move_count; i++) {
        Decision decision = decision_of_move(coll, shards, input, &result.moves[i]);
        take_reason(ret_verdict, decision.reason);
        decision_build(&list, count++, &decision);
    }
    for (uint32_t i = 0; i < result.refusal_count; i++) {
        Decision decision = decision_of_refusal(coll, shards, input, &result.refusals[i]);
        take_reason(ret_verdict, decision.reason);
        decision_build(&list, count++, &decision);
    }
    ret_verdict->decisions = count > 0 ? doc_builder_end(&list) : DOC_NONE;
    return ERR_OK;
}

static ErrCode build_defragmentation(OpCtx *op, const CollectionLook *coll,
                                     const ShardsLook *shards, BalanceCollection *input,
                                     DocBuilder *reply, Error *err) {
    TRY(look_at_whole(op, coll, shards, input, err));
    build_bool(reply, "balancerCompliant", false);
    build_cstr(reply, "firstComplianceViolation", balance_reason_text(BALANCE_DEFRAGMENT));
    size_t details = build_open_doc(reply, "details");
    defragment_build_status(reply, defrag_phase_of(coll->entry), op, shards, input);
    build_close(reply, details);
    return ERR_OK;
}

static ErrCode build_balance(OpCtx *op, const CollectionLook *coll, const ShardsLook *shards,
                             BalanceCollection *input, DocBuilder *reply, Error *err) {
    Verdict verdict = {0};
    if (balance_is_due(shards->rows, shards->count, input))
        TRY(judge(op, coll, shards, input, &verdict, err));
    build_bool(reply, "balancerCompliant", !verdict.is_violated);
    if (verdict.is_violated)
        build_cstr(reply, "firstComplianceViolation", balance_reason_text(verdict.first));
    if (doc_is_present(verdict.decisions)) {
        size_t details = build_open_doc(reply, "details");
        build_array(reply, "decisions", verdict.decisions);
        build_close(reply, details);
    }
    return ERR_OK;
}

ErrCode balancer_collection_status(OpCtx *op, Str ns, DocBuilder *reply, Error *err) {
    CLEANUP(collection_entry_done) CollectionEntry entry = {0};
    TRY(collection_entry_get(op, ns, &entry, err));
    BalancerSettings settings;
    TRY(balancer_settings_read(op, &settings, err));
    ShardsLook shards;
    TRY(look_at_shards(op, &shards, err));
    CollectionLook coll;
    TRY(look_at_entry(op, entry.doc, &shards, &coll, err));
    TRY(look_at_sizes(op, &shards, &coll, 1, err));
    BalanceCollection input;
    TRY(look_at_zones(op, &coll, &settings, &input, err));
    bool is_defragmented = defrag_phase_of(entry.doc) != DEFRAG_NONE;
    TRY((is_defragmented ? build_defragmentation : build_balance)(op, &coll, &shards, &input, reply,
                                                                  err));
    build_i64(reply, "chunkSize", input.chunk_bytes >> 20);
    return ERR_OK;
}
