/* stage_id.c - IDHACK: the document of one _id; and EOF. */
#include "index/key_gen.h"
#include "query/exec/executor.h"

typedef struct IdStage {
    PlanStage base;
    IndexDesc *index; /* NULL: clustered */
    RecordStore *records;
    Elem id;
    const Collator *collator; /* of a clustered collection's record ids */
    bool is_done;
    RecordCursor cursor;
    KeyBuilder key;
} IdStage;

static ErrCode id_next(PlanStage *stage, bool *ret_found, PlanRow *ret_row, Error *err) {
    IdStage *lookup = (IdStage *)stage;
    *ret_found = false;
    if (lookup->is_done)
        return ERR_OK;
    lookup->is_done = true;
    OpCtx *op = stage->exec->access->op;
    RecordId rid;
    bool is_found = true;
    key_builder_init(&lookup->key);
    if (lookup->index != NULL) {
        key_builder_reset(&lookup->key, 0);
        key_append_elem(&lookup->key, lookup->id, lookup->index->collator);
        key_append_end(&lookup->key, KEY_END_EXACT);
        Str key = {(const char *)lookup->key.key.data, lookup->key.key.size};
        TRY(ordered_index_find(op, lookup->index->store, key, &is_found, &rid, NULL, err));
        stage->examined += is_found;
    } else {
        clustered_record_id_of_value(lookup->id, lookup->collator, &lookup->key, &rid);
    }
    if (!is_found)
        return ERR_OK;
    TRY(record_cursor_open(op, lookup->records, /* is_forward= */ true, &lookup->cursor, err));
    Str data;
    TRY(record_cursor_seek_exact(&lookup->cursor, rid, &is_found, &data, err));
    if (!is_found)
        return ERR_OK;
    Doc doc = {(const uint8_t *)data.data};
    *ret_row = (PlanRow){.rid = rid, .doc = doc};
    *ret_found = true;
    return ERR_OK;
}

static void id_save(PlanStage *stage) {
    record_cursor_save(&((IdStage *)stage)->cursor);
}

static void id_free(PlanStage *stage) {
    IdStage *lookup = (IdStage *)stage;
    record_cursor_done(&lookup->cursor);
    key_builder_done(&lookup->key);
    record_store_unref(lookup->records);
    index_desc_unref(lookup->index);
}

static void id_explain(PlanStage *stage, DocBuilder *b, bool has_stats) {
    if (!has_stats)
        return;
    build_count(b, "keysExamined", stage->examined);
    build_count(b, "docsExamined", stage->returned);
}

static void id_count(const PlanStage *stage, int64_t *keys, int64_t *docs) {
    *keys += stage->examined;
    *docs += stage->returned;
}

static const PlanStageOps ID_OPS = {"IDHACK", id_next,    id_save, NULL,
                                    id_free,  id_explain, id_count};

PlanStage *stage_id_lookup(PlanExecutor *exec, const Collection *coll, Elem id) {
    IdStage *lookup = ARENA_NEW(&exec->arena, IdStage);
    lookup->base = (PlanStage){.ops = &ID_OPS, .exec = exec};
    const IndexDesc *index = collection_id_index(coll);
    if (index != NULL)
        index_note_access(index);
    lookup->index = index != NULL ? index_desc_ref((IndexDesc *)index) : NULL;
    lookup->base.index_name = index != NULL ? index->name : NULL;
    lookup->records = record_store_ref(coll->records);
    lookup->id = id;
    lookup->collator = coll->options.collator;
    return &lookup->base;
}

/* ---- no collection, no rows ---- */

static ErrCode nothing_next(PlanStage *stage, bool *ret_found, PlanRow *ret_row, Error *err) {
    (void)stage, (void)ret_row, (void)err;
    *ret_found = false;
    return ERR_OK;
}

static const PlanStageOps NOTHING_OPS = {"EOF", nothing_next, NULL, NULL, NULL, NULL, NULL};

PlanStage *stage_nothing(PlanExecutor *exec) {
    PlanStage *stage = ARENA_NEW(&exec->arena, PlanStage);
    *stage = (PlanStage){.ops = &NOTHING_OPS, .exec = exec};
    return stage;
}
