#include "sharding/migration/modifications.h"

#include <stdlib.h>
#include <string.h>

#include "change_stream/change_reader.h"
#include "index/lookup.h"
#include "repl/repl.h"
#include "sharding/migration/session_history.h"
#include "sharding/shard/range_scan.h"
#include "storage/engine.h"

enum {
    IDS_MAX = 20 * 1000,    /* of one answer; one unit may have more */
    ID_BYTES_MAX = 4 << 20, /* of all of them: an answer has to fit into a document */
    RELOAD_BYTES_MAX = 4 << 20,
    STATEMENT_BYTES_MAX = 2 << 20,
};

typedef struct IdList {
    Arena *arena;
    Doc *rows; /* {_id} */
    uint32_t count;
    uint32_t capacity;
    size_t bytes;
} IdList;

static void add_id(IdList *ids, Elem id) {
    if (ids->count == ids->capacity) {
        uint32_t capacity = ids->capacity * 2 + 64;
        Doc *grown = ARENA_ARRAY(ids->arena, Doc, capacity);
        if (ids->count > 0)
            memcpy(grown, ids->rows, ids->count * sizeof(Doc));
        ids->rows = grown;
        ids->capacity = capacity;
    }
    DocBuilder b = doc_builder_in_arena_sized(ids->arena, 64);
    build_elem_as(&b, STR("_id"), id);
    Doc row = doc_builder_end(&b);
    ids->rows[ids->count++] = row;
    ids->bytes += doc_size(row);
}

static int compare_docs(const void *a, const void *b) {
    Doc x = *(const Doc *)a, y = *(const Doc *)b;
    return str_compare((Str){(const char *)x.data, doc_size(x)},
                       (Str){(const char *)y.data, doc_size(y)});
}

static void remove_doubles(IdList *ids) {
    if (ids->count == 0)
        return;
    qsort(ids->rows, ids->count, sizeof(Doc), compare_docs);
    uint32_t kept = 1;
    for (uint32_t i = 1; i < ids->count; i++)
        if (compare_docs(&ids->rows[i], &ids->rows[kept - 1]) != 0)
            ids->rows[kept++] = ids->rows[i];
    ids->count = kept;
}

/* ---- which documents ---- */

/* What is inserted says where it is. An update may have moved a document into the range or out of
 * it, and a delete has the key only if the collection was known to be sharded: these are looked
 * up. */
static bool may_concern(RangeKeys *keys, const StreamChange *change) {
    return change->kind != CHANGE_INSERT || elem_type(change->o) != BT_DOC ||
           range_has_doc(keys, elem_doc(change->o));
}

static ErrCode too_many(Error *err) {
    return error_set(err, ERR_EXCEEDED_MEMORY_LIMIT,
                     "a single transaction has changed too many documents of the range");
}

/* The statement of a retryable write that the change is, if it is one. */
static ErrCode add_statement(StatementList *statements, const StreamChange *change,
                             const ChangePlace *place, Error *err) {
    Elem id = doc_get_lit(change->write, "stmtId");
    if (LIKELY(!elem_is_number(id)))
        return ERR_OK;
    /* Of a unit its place knows the session, else it is in the entry, which the write is. */
    bool is_alone = !elem_is_present(place->lsid);
    Elem lsid = is_alone ? doc_get_lit(change->write, "lsid") : place->lsid;
    Elem number = is_alone ? doc_get_lit(change->write, "txnNumber") : place->txn_number;
    SessionId session;
    TRY(session_id_parse(lsid, &session, err));
    if (session_id_is_child(&session) || !elem_is_number(number))
        return ERR_OK;
    return statements_add(statements, &session, elem_as_i64(number), (int32_t)elem_as_i64(id),
                          place->ts, change->write, is_alone, err);
}

static ErrCode collect(OpCtx *op, ChangeReader *reader, RangeKeys *keys, IdList *ids,
                       StatementList *statements, uint64_t *ret_up_to, Error *err) {
    uint64_t last_ts = 0;
    for (;;) {
        bool is_found;
        StreamChange change;
        ChangePlace place;
        TRY(change_reader_next(reader, op, &is_found, &change, &place, err));
        if (!is_found) {
            *ret_up_to = reader->done_ts;
            return ERR_OK;
        }
        if (!change_is_of_document(change.kind) || !may_concern(keys, &change))
            continue;
        /* Only whole units are answered. */
        bool is_full = ids->count >= IDS_MAX || statements_bytes(statements) >= STATEMENT_BYTES_MAX;
        if (is_full && place.ts != last_ts) {
            *ret_up_to = place.ts - 1;
            return ERR_OK;
        }
        if (ids->bytes > ID_BYTES_MAX)
            return too_many(err);
        Elem key = change_document_key(&change);
        Elem id = elem_type(key) == BT_DOC ? doc_get_lit(elem_doc(key), "_id") : ELEM_MISSING;
        if (elem_is_present(id))
            add_id(ids, id);
        TRY(add_statement(statements, &change, &place, err));
        last_ts = place.ts;
    }
}

static ErrCode read_oplog(OpCtx *op, const ModificationsQuery *query, RangeKeys *keys, IdList *ids,
                          StatementList *statements, uint64_t *ret_up_to, Error *err) {
    Repl *repl = op->service->repl;
    if (query->until_ts != 0)
        TRY(repl_wait_committed(repl, op, query->until_ts, err));
    StreamFilter filter = {.scope = SCOPE_COLLECTION, .ns = query->move->ns, .shows_system = true};
    ChangeReader reader;
    change_reader_init(&reader, repl_oplog(repl), &filter, query->after_ts);
    ErrCode rc = collect(op, &reader, keys, ids, statements, ret_up_to, err);
    change_reader_done(&reader);
    return rc;
}

/* ---- what they are now ---- */

static void build_ids(DocBuilder *b, const char *name, const IdList *ids) {
    size_t list = build_open_array(b, name);
    char index[INDEX_NAME_SIZE];
    for (uint32_t i = 0; i < ids->count; i++)
        build_doc(b, index_name(i, index).data, ids->rows[i]);
    build_close(b, list);
}

static ErrCode build_documents(OpCtx *op, const Move *move, RangeKeys *keys, const IdList *ids,
                               bool is_asked_for, DocBuilder *b, Error *err) {
    CLEANUP(access_done) CollAccess access = {0};
    TRY(access_read(op, &move->ns, &access, err));
    if (access.coll == NULL || !uuid_equal(&access.coll->uuid, &move->uuid))
        return error_set(err, ERR_NAMESPACE_NOT_FOUND, "the collection %s was dropped",
                         move->ns.text);
    IdList gone = {.arena = &op->arena}, rest = {.arena = &op->arena};
    CLEANUP(arena_done) Arena scratch;
    arena_init(&scratch, 4096);
    size_t reload = build_open_array(b, "reload");
    size_t bytes = 0;
    uint32_t count = 0;
    for (uint32_t i = 0; i < ids->count; i++) {
        TRY(op_check_interrupt(op, err));
        Elem id = doc_get_lit(ids->rows[i], "_id");
        arena_reset(&scratch);
        Doc doc;
        TRY(lookup_document(op, access.coll, id, &scratch, &doc, err));
        if (!doc_is_present(doc) || !range_has_doc(keys, doc)) {
            add_id(&gone, id);
            continue;
        }
        /* A large one has an answer of its own, to who has asked for it by its id. */
        if (bytes + doc_size(doc) > RELOAD_BYTES_MAX && !(is_asked_for && count == 0)) {
            add_id(&rest, id);
            continue;
        }
        char index[INDEX_NAME_SIZE];
        build_doc(b, index_name(count++, index).data, doc);
        bytes += doc_size(doc);
    }
    build_close(b, reload);
    build_ids(b, "deleted", &gone);
    build_ids(b, "rest", &rest);
    return ERR_OK;
}

static ErrCode parse_ids(Doc list, IdList *ids, Error *err) {
    DocIter iter = doc_iter(list);
    for (Elem row; doc_iter_next(&iter, &row);) {
        Elem id = elem_type(row) == BT_DOC ? doc_get_lit(elem_doc(row), "_id") : ELEM_MISSING;
        if (!elem_is_present(id))
            return error_set(err, ERR_BAD_VALUE, "ids have to be documents {_id: value}");
        add_id(ids, id);
    }
    return ERR_OK;
}

ErrCode modifications_build(OpCtx *op, const ModificationsQuery *query, DocBuilder *b, Error *err) {
    const Move *move = query->move;
    RangeKeys keys;
    range_keys_init(&keys, move->key, move->min, move->max);
    IdList ids = {.arena = &op->arena};
    StatementList statements;
    statements_init(&statements, op, move, &keys);
    uint64_t up_to = query->after_ts;
    ErrCode rc = doc_is_present(query->ids)
                     ? parse_ids(query->ids, &ids, err)
                     : read_oplog(op, query, &keys, &ids, &statements, &up_to, err);
    if (rc == ERR_OK)
        rc = statements_build(&statements, b, err);
    statements_done(&statements);
    if (rc == ERR_OK) {
        remove_doubles(&ids);
        ru_set_read_source(op->ru, READ_MAJORITY, 0);
        rc = build_documents(op, move, &keys, &ids, doc_is_present(query->ids), b, err);
        ru_set_read_source(op->ru, READ_LATEST, 0);
    }
    range_keys_done(&keys);
    if (rc == ERR_OK)
        build_timestamp(b, "upTo", up_to);
    return rc;
}
