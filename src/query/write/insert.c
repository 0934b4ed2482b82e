/* insert.c - inserting documents, many per storage transaction (STX-6). */
#include <string.h>

#include "base/clock.h"
#include "bson/builder.h"
#include "bson/validate.h"
#include "ddl/ddl.h"
#include "index/collection_write.h"
#include "query/write/modify.h"
#include "storage/recovery_unit.h"
#include "txn/retryable.h"

enum {
    BATCH_DOCS_MAX = 1000,
    BATCH_BYTES_MAX = 4 * 1024 * 1024,
    /* Each level of nesting takes at least 7 bytes, so smaller documents need no look at their
       depth. */
    SIZE_OF_DEEP_DOC_MIN = BSON_DEPTH_MAX_STORED * 7,
};

typedef struct InsertRun {
    const Ns *ns;
    Doc *docs;
    uint32_t count;
    bool is_ordered;
    InsertErrorFn on_error;
    void *arg;
    int64_t inserted;
    bool is_stopped;
    WriteScratch scratch;
} InsertRun;

static ErrCode check_id(Elem id, Error *err);
static ErrCode run_batches(OpCtx *op, InsertRun *run, Error *err);
static ErrCode insert_batch(OpCtx *op, InsertRun *run, CollAccess *access, uint32_t from,
                            uint32_t to, Error *err);
static ErrCode insert_each(OpCtx *op, InsertRun *run, CollAccess *access, uint32_t from,
                           uint32_t to, Error *err);

ErrCode document_prepare(OpCtx *op, Doc doc, Arena *arena, Doc *ret_doc, Error *err) {
    uint32_t size = doc_size(doc);
    if (size > BSON_DOC_SIZE_MAX)
        return error_set(err, ERR_BAD_VALUE,
                         "object to insert too large. size in bytes: %u, max size: %d", size,
                         BSON_DOC_SIZE_MAX);
    if (size >= SIZE_OF_DEEP_DOC_MIN)
        TRY(doc_validate(doc.data, size, BSON_DEPTH_MAX_STORED, VALIDATE_BASIC, err));
    Elem id = ELEM_MISSING;
    bool is_id_first = true, has_empty_timestamp = false;
    DocIter iter = doc_iter(doc);
    Elem elem;
    for (uint32_t i = 0; doc_iter_next(&iter, &elem); i++) {
        if (elem_name_is(elem, STR("_id")) && !elem_is_present(id)) {
            id = elem;
            is_id_first = i == 0;
        } else if (elem_type(elem) == BT_TIMESTAMP && elem_i64(elem) == 0) {
            has_empty_timestamp = !op->mode.is_empty_ts_kept;
        }
    }
    if (elem_is_present(id))
        TRY(check_id(id, err));
    if (elem_is_present(id) && is_id_first && !has_empty_timestamp) {
        *ret_doc = doc;
        return ERR_OK;
    }
    DocBuilder b = doc_builder_in_arena_sized(arena, size + 32);
    if (elem_is_present(id)) {
        build_elem(&b, id);
    } else {
        Oid oid = oid_new();
        build_oid(&b, "_id", &oid);
    }
    iter = doc_iter(doc);
    while (doc_iter_next(&iter, &elem)) {
        if (elem.data == id.data)
            continue;
        if (has_empty_timestamp && elem_type(elem) == BT_TIMESTAMP && elem_i64(elem) == 0)
            build_timestamp(&b, elem_name(elem), service_next_ts(op->service));
        else
            build_elem(&b, elem);
    }
    *ret_doc = doc_builder_end(&b);
    if (doc_size(*ret_doc) > BSON_DOC_SIZE_MAX)
        return error_set(err, ERR_BAD_VALUE,
                         "object to insert too large. size in bytes: %u, max size: %d",
                         doc_size(*ret_doc), BSON_DOC_SIZE_MAX);
    return ERR_OK;
}

static ErrCode check_id(Elem id, Error *err) {
    BsonType type = elem_type(id);
    if (type == BT_ARRAY || type == BT_REGEX || type == BT_UNDEFINED)
        return error_set(err, ERR_INVALID_ID_FIELD, "The '_id' value cannot be of type %s",
                         bson_type_name(type));
    if (type != BT_DOC)
        return ERR_OK;
    DocIter iter = doc_iter(elem_doc(id));
    Elem member;
    while (doc_iter_next(&iter, &member))
        if (elem_name(member)[0] == '$')
            return error_set(err, ERR_DOLLAR_PREFIXED_FIELD_NAME,
                             "_id fields may not contain '$'-prefixed fields: %s is not valid for "
                             "storage.",
                             elem_name(member));
    return ERR_OK;
}

ErrCode exec_insert(OpCtx *op, const Ns *ns, const Doc *docs, uint32_t count, bool is_ordered,
                    bool is_validation_bypassed, InsertErrorFn on_error, void *arg,
                    int64_t *ret_inserted, Error *err) {
    CLEANUP(op_mode_restore) OpModeScope scope = op_mode_scope(op);
    op->mode.is_validation_bypassed |= is_validation_bypassed;
    InsertRun run = {.ns = ns,
                     .docs = arena_alloc(&op->arena, sizeof(Doc) * (count + 1)),
                     .count = count,
                     .is_ordered = is_ordered,
                     .on_error = on_error,
                     .arg = arg};
    /* A document that cannot be stored ends an ordered insert there; what comes before it is
     * inserted. */
    uint32_t bad_index = UINT32_MAX;
    CLEANUP(error_reset) Error bad = {0};
    for (uint32_t i = 0; i < count && bad_index == UINT32_MAX; i++) {
        if (document_prepare(op, docs[i], &op->arena, &run.docs[i], &bad) == ERR_OK)
            continue;
        if (is_ordered) {
            bad_index = run.count = i;
        } else {
            on_error(arg, i, &bad);
            error_reset(&bad);
            run.docs[i] = DOC_NONE;
        }
    }
    write_scratch_init(&run.scratch);
    ErrCode rc = run_batches(op, &run, err);
    write_scratch_done(&run.scratch);
    if (rc == ERR_OK && bad_index != UINT32_MAX && !run.is_stopped)
        on_error(arg, bad_index, &bad);
    *ret_inserted = run.inserted;
    return rc;
}

static ErrCode pass_failpoints(OpCtx *op, const Ns *ns, Error *err) {
    TRY(op_hang(op, FP_HANG_DURING_BATCH_INSERT, ns->text, err));
    TRY(op_hang(op, FP_HANG_BEFORE_INSERT_WRITE, ns->text, err));
    return modify_check_failpoint(op, FP_FAIL_ALL_INSERTS, ns, err);
}

static ErrCode run_batches(OpCtx *op, InsertRun *run, Error *err) {
    uint32_t from = 0;
    while (from < run->count && !run->is_stopped) {
        if (!doc_is_present(run->docs[from])) {
            from++;
            continue;
        }
        TRY(op_check_interrupt_slow(op, err));
        if (op->client != NULL)
            TRY(pass_failpoints(op, run->ns, err));
        CLEANUP(access_done) CollAccess access = {0};
        /* What is inserted is not filtered: whoever chose this node did it by a version of the
         * distribution, which the policies look at here. */
        TRY(access_write_owned(op, run->ns, LOCK_IX, &access, err));
        if (access.view != NULL)
            return error_set(err, ERR_COMMAND_NOT_SUPPORTED_ON_VIEW,
                             "Namespace %s is a view, not a collection", run->ns->text);
        TRY(modify_check_capped(&access, err));
        if (access.coll == NULL) {
            access_done(&access);
            TRY(ddl_ensure_collection(op, run->ns, err));
            continue;
        }
        if (op->client != NULL)
            TRY(op_hang(op, FP_HANG_LOCKED_BATCH_INSERT, run->ns->text, err));
        uint32_t to = from;
        size_t bytes = 0;
        while (to < run->count && to - from < BATCH_DOCS_MAX && doc_is_present(run->docs[to]) &&
               (to == from || bytes + doc_size(run->docs[to]) <= BATCH_BYTES_MAX))
            bytes += doc_size(run->docs[to++]);
        TRY(insert_batch(op, run, &access, from, to, err));
        from = to;
    }
    return ERR_OK;
}

bool exec_is_fatal(ErrCode rc) {
    static const ErrCode FATAL[] = {
        ERR_SHUTDOWN_IN_PROGRESS,
        ERR_INTERRUPTED_AT_SHUTDOWN,
        ERR_INTERRUPTED,
        ERR_MAX_TIME_MS_EXPIRED,
        ERR_PRIMARY_STEPPED_DOWN,
        ERR_NOT_WRITABLE_PRIMARY,
        ERR_NOT_PRIMARY_OR_SECONDARY,
        ERR_NOT_PRIMARY_NO_SECONDARY_OK,
        ERR_INTERRUPTED_DUE_TO_REPL_STATE_CHANGE,
        ERR_TRANSACTION_EXCEEDED_LIFETIME_LIMIT_SECONDS,
    };
    for (size_t i = 0; i < ARRAY_LEN(FATAL); i++)
        if (FATAL[i] == rc)
            return true;
    /* Those of a transaction, which is over: outside of one they are retried before they get here.
     */
    return error_is_transient(rc);
}

/* All together first; when one of them fails, one by one to find out which. In a transaction one by
 * one at once, since it does not survive a failure. */
static ErrCode insert_batch(OpCtx *op, InsertRun *run, CollAccess *access, uint32_t from,
                            uint32_t to, Error *err) {
    if (op->txn != NULL && to - from > 1)
        return insert_each(op, run, access, from, to, err);
    int64_t counted = op->metrics.docs_inserted;
    retryable_set_first(op, from);
    ErrCode rc =
        collection_insert_unit(op, access->coll, run->docs + from, to - from, &run->scratch, err);
    if (rc == ERR_OK) {
        run->inserted += to - from;
        return ERR_OK;
    }
    op->metrics.docs_inserted = counted;
    if (exec_is_fatal(rc))
        return rc;
    if (to - from == 1) {
        run->on_error(run->arg, from, err);
        run->is_stopped = run->is_ordered || op->txn != NULL;
        error_reset(err);
        return ERR_OK;
    }
    error_reset(err);
    return insert_each(op, run, access, from, to, err);
}

static ErrCode insert_each(OpCtx *op, InsertRun *run, CollAccess *access, uint32_t from,
                           uint32_t to, Error *err) {
    for (uint32_t i = from; i < to && !run->is_stopped; i++)
        TRY(insert_batch(op, run, access, i, i + 1, err));
    return ERR_OK;
}
