#include "router/write_batch.h"

#include <assert.h>
#include <string.h>

#include "commands/core/command_service.h"
#include "router/routing.h"
#include "router/scatter.h"

static void fail_statement(WriteBatch *batch, uint32_t index, Doc error);
static void fail_with(WriteBatch *batch, uint32_t index, const Error *err);

void write_batch_init(WriteBatch *batch, DocList docs, bool is_ordered) {
    *batch = (WriteBatch){.docs = docs,
                          .is_ordered = is_ordered,
                          .bytes_max = SIZE_MAX,
                          .text_bytes_left = WRITE_BATCH_TEXT_BYTES_MAX,
                          .detail_bytes_left = WRITE_BATCH_DETAIL_BYTES_MAX};
    arena_init(&batch->arena, ARENA_CHUNK_SIZE_DEFAULT);
}

/* Most requests are passed on as they came, and answered likewise. */
static void ensure_statements(WriteBatch *batch) {
    if (batch->statements == NULL)
        batch->statements = ARENA_ARRAY(&batch->arena, WriteStatement, batch->docs.count + 1);
}

void write_batch_done(WriteBatch *batch) {
    arena_done(&batch->arena);
    *batch = (WriteBatch){0};
}

bool write_batch_is_pending(const WriteBatch *batch) {
    return !batch->is_stopped && batch->done_count < batch->docs.count;
}

void write_batch_forget_targets(WriteBatch *batch) {
    for (uint32_t i = batch->first_pending; i < batch->docs.count && batch->statements != NULL; i++)
        batch->statements[i].is_targeted = false;
}

static void set_state(WriteBatch *batch, uint32_t index, WriteState state) {
    WriteStatement *statement = &batch->statements[index];
    if (statement->state == WRITE_PENDING && state != WRITE_PENDING)
        batch->done_count++;
    statement->state = state;
    batch->is_stopped |= batch->is_ordered && state == WRITE_FAILED;
    while (batch->first_pending < batch->docs.count &&
           batch->statements[batch->first_pending].state != WRITE_PENDING)
        batch->first_pending++;
}

/* ---- plans ---- */

typedef struct Planning {
    WriteBatch *batch;
    const WritePlanner *planner;
    Arena *arena;
} Planning;

static ErrCode find_target(const Planning *p, uint32_t index, Error *err) {
    WriteStatement *statement = &p->batch->statements[index];
    if (statement->is_targeted)
        return ERR_OK;
    TRY(p->planner->target(p->planner->arg, index, &statement->target, err));
    statement->is_targeted = true;
    return ERR_OK;
}

static bool is_finished_on(const WriteStatement *statement, const char *shard) {
    for (uint32_t i = 0; i < statement->finished_count; i++)
        if (strcmp(statement->finished[i], shard) == 0)
            return true;
    return false;
}

/* False: it cannot be sent anywhere, and has failed; or there is nothing left of it. */
static bool target_or_end(const Planning *p, uint32_t index) {
    CLEANUP(error_reset) Error err = {0};
    if (UNLIKELY(find_target(p, index, &err) != ERR_OK)) {
        fail_with(p->batch, index, &err);
        return false;
    }
    const WriteStatement *statement = &p->batch->statements[index];
    if (LIKELY(!statement->target.is_single ||
               !is_finished_on(statement, p->planner->owners[statement->target.shard])))
        return true;
    set_state(p->batch, index, WRITE_DONE);
    return false;
}

static size_t bytes_of(const WriteBatch *batch, uint32_t index) {
    enum { STATEMENT_ID_BYTES = 16 }; /* in stmtIds, with its name */
    return doc_size(batch->docs.docs[index]) + STATEMENT_ID_BYTES;
}

/* Statements that go to all shards: to each what it has not done yet. They are done when the shards
 * there are by now have executed them: one may have been added meanwhile, or removed. */
static WritePlan plan_spread(const Planning *p, const uint32_t *indexes, uint32_t count) {
    const WriteStatement *statements = p->batch->statements;
    if (p->planner->is_list_old && count > 0)
        return (WritePlan){.needs_list = true};
    WritePlan plan = {.parts = ARENA_ARRAY(p->arena, WritePart, p->planner->shard_count + 1)};
    uint8_t *is_awaited = arena_zalloc(p->arena, count + 1);
    for (uint32_t s = 0; s < p->planner->shard_count && count > 0; s++) {
        const char *shard = p->planner->shards[s];
        uint32_t *chosen = ARENA_ARRAY(p->arena, uint32_t, count), chosen_count = 0;
        for (uint32_t i = 0; i < count; i++) {
            if (is_finished_on(&statements[indexes[i]], shard))
                continue;
            chosen[chosen_count++] = indexes[i];
            is_awaited[i] = 1;
        }
        if (chosen_count > 0)
            plan.parts[plan.count++] =
                (WritePart){shard, /* is_spread= */ true, chosen, chosen_count};
    }
    for (uint32_t i = 0; i < count; i++)
        if (!is_awaited[i])
            set_state(p->batch, indexes[i], WRITE_DONE);
    return plan;
}

static WritePlan plan_ordered(const Planning *p) {
    WriteBatch *batch = p->batch;
    uint32_t first = batch->first_pending;
    if (!target_or_end(p, first))
        return (WritePlan){0};
    const WriteTarget *target = &batch->statements[first].target;
    uint32_t *statements = ARENA_ARRAY(p->arena, uint32_t, 1);
    statements[0] = first;
    if (!target->is_single)
        return plan_spread(p, statements, 1);
    /* As far as they follow each other. One that cannot be targeted fails when it is its turn. */
    uint32_t end = first + 1;
    size_t bytes = bytes_of(batch, first);
    for (; end < batch->docs.count; end++) {
        CLEANUP(error_reset) Error err = {0};
        bytes += bytes_of(batch, end);
        if (bytes > batch->bytes_max || find_target(p, end, &err) != ERR_OK)
            break;
        const WriteTarget *next = &batch->statements[end].target;
        if (!next->is_single || next->shard != target->shard)
            break;
    }
    statements = ARENA_ARRAY(p->arena, uint32_t, end - first);
    for (uint32_t i = first; i < end; i++)
        statements[i - first] = i;
    WritePart *part = ARENA_NEW(p->arena, WritePart);
    *part = (WritePart){p->planner->owners[target->shard], /* is_spread= */ false, statements,
                        end - first};
    return (WritePlan){.parts = part, .count = 1};
}

/* What one shard gets of an unordered batch. */
typedef struct ShardShare {
    uint32_t *statements;
    uint32_t count, wanted;
    size_t bytes;
} ShardShare;

static bool take_share(ShardShare *share, const WriteBatch *batch, uint32_t index) {
    size_t bytes = bytes_of(batch, index);
    if (share->count > 0 && share->bytes + bytes > batch->bytes_max)
        return false; /* next round */
    share->bytes += bytes;
    share->statements[share->count++] = index;
    return true;
}

/* Those that go to one shard each, if there are any. */
static WritePlan plan_single(const Planning *p) {
    WriteBatch *batch = p->batch;
    uint32_t shard_count = p->planner->owner_count;
    ShardShare *shares = ARENA_ARRAY(p->arena, ShardShare, shard_count + 1);
    for (uint32_t i = batch->first_pending; i < batch->docs.count; i++) {
        WriteStatement *statement = &batch->statements[i];
        if (statement->state == WRITE_PENDING && target_or_end(p, i) && statement->target.is_single)
            shares[statement->target.shard].wanted++;
    }
    WritePlan plan = {.parts = ARENA_ARRAY(p->arena, WritePart, shard_count + 1)};
    for (ShardIndex shard = 0; shard < shard_count; shard++)
        shares[shard].statements = ARENA_ARRAY(p->arena, uint32_t, shares[shard].wanted + 1);
    for (uint32_t i = batch->first_pending; i < batch->docs.count; i++) {
        const WriteStatement *statement = &batch->statements[i];
        if (statement->state == WRITE_PENDING && statement->target.is_single)
            (void)take_share(&shares[statement->target.shard], batch, i);
    }
    for (ShardIndex shard = 0; shard < shard_count; shard++)
        if (shares[shard].count > 0)
            plan.parts[plan.count++] =
                (WritePart){p->planner->owners[shard], /* is_spread= */ false,
                            shares[shard].statements, shares[shard].count};
    return plan;
}

static WritePlan plan_unordered(const Planning *p) {
    WriteBatch *batch = p->batch;
    WritePlan plan = plan_single(p);
    if (plan.count > 0)
        return plan;
    ShardShare share = {ARENA_ARRAY(p->arena, uint32_t, batch->docs.count + 1), 0, 0, 0};
    for (uint32_t i = batch->first_pending; i < batch->docs.count; i++)
        if (batch->statements[i].state == WRITE_PENDING && !take_share(&share, batch, i))
            break;
    return plan_spread(p, share.statements, share.count);
}

WritePlan write_batch_plan(WriteBatch *batch, const WritePlanner *planner, Arena *arena) {
    if (!write_batch_is_pending(batch))
        return (WritePlan){0};
    ensure_statements(batch);
    Planning planning = {batch, planner, arena};
    WritePlan plan = {0};
    /* Each step asks, or ends a statement. */
    while (plan.count == 0 && !plan.needs_list && write_batch_is_pending(batch))
        plan = batch->is_ordered ? plan_ordered(&planning) : plan_unordered(&planning);
    return plan;
}

WritePart write_batch_whole(WriteBatch *batch, const char *shard) {
    ensure_statements(batch);
    uint32_t *statements = ARENA_ARRAY(&batch->arena, uint32_t, batch->docs.count + 1);
    for (uint32_t i = 0; i < batch->docs.count; i++)
        statements[i] = i;
    return (WritePart){shard, /* is_spread= */ false, statements, batch->docs.count};
}

/* ---- errors ---- */

ErrCode write_refuse_move(bool can_move, Error *err) {
    if (!can_move)
        return error_set(err, ERR_ILLEGAL_OPERATION,
                         "an update that changes the shard key so that the document belongs to "
                         "another shard must be a retryable write or part of a transaction");
    return error_set(err, ERR_NOT_IMPLEMENTED,
                     "moving a document to another shard by an update of its shard key is not "
                     "available in this version");
}

static ErrCode code_of(Doc error) {
    Elem code = doc_get_lit(error, "code");
    return elem_is_number(code) ? (ErrCode)elem_as_i64(code) : ERR_UNKNOWN_ERROR;
}

static Str text_of(Doc error) {
    Elem text = doc_get_lit(error, "errmsg");
    return elem_type(text) == BT_STRING ? elem_str(text) : STR("");
}

static void fail_with(WriteBatch *batch, uint32_t index, const Error *err) {
    DocBuilder b = doc_builder_in_arena(&batch->arena);
    build_error_fields(&b, err, /* has_code_name= */ false);
    fail_statement(batch, index, doc_builder_end(&b));
}

/* {code, errmsg, details ...} without its index, as far as there is room. */
static Doc copy_error(WriteBatch *batch, Doc row) {
    DocBuilder b = doc_builder_in_arena(&batch->arena);
    build_i32(&b, "code", (int32_t)scatter_hide_state(code_of(row)));
    DocIter iter = doc_iter(row);
    for (Elem field; doc_iter_next(&iter, &field);) {
        if (elem_name_is(field, STR("index")) || elem_name_is(field, STR("code")))
            continue;
        bool is_text = elem_name_is(field, STR("errmsg")) && elem_type(field) == BT_STRING;
        size_t *left = is_text ? &batch->text_bytes_left : &batch->detail_bytes_left;
        if (elem_size(field) <= *left) {
            *left -= elem_size(field);
            build_elem(&b, field);
        } else if (is_text) {
            build_cstr(&b, "errmsg", "");
        }
    }
    return doc_builder_end(&b);
}

/* Several shards may say something about the same statement. */
static Doc join_errors(WriteBatch *batch, Doc first, Doc second) {
    Str a = text_of(first), b_text = text_of(second);
    if (str_equal(a, b_text) || a.size + b_text.size > batch->text_bytes_left)
        return first;
    batch->text_bytes_left -= a.size + b_text.size;
    DocBuilder b = doc_builder_in_arena(&batch->arena);
    DocIter iter = doc_iter(first);
    for (Elem field; doc_iter_next(&iter, &field);)
        if (elem_name_is(field, STR("errmsg")))
            build_cstr(&b, "errmsg",
                       arena_printf(&batch->arena, "%.*s; of another shard: %.*s", (int)a.size,
                                    a.data, (int)b_text.size, b_text.data));
        else
            build_elem(&b, field);
    return doc_builder_end(&b);
}

static void fail_statement(WriteBatch *batch, uint32_t index, Doc error) {
    WriteStatement *statement = &batch->statements[index];
    if (doc_is_present(statement->error)) {
        statement->error = join_errors(batch, statement->error, error);
    } else {
        statement->error = error;
        batch->error_count++;
    }
    set_state(batch, index, WRITE_FAILED);
}

void write_batch_take_error(WriteBatch *batch, const WritePart *part, const Error *err) {
    for (uint32_t i = 0; i < part->count && (i == 0 || !batch->is_ordered); i++)
        fail_with(batch, part->statements[i], err);
}

void write_batch_fail_rest(WriteBatch *batch, const Error *err) {
    ensure_statements(batch);
    for (uint32_t i = batch->first_pending; i < batch->docs.count && !batch->is_stopped; i++)
        if (batch->statements[i].state == WRITE_PENDING)
            fail_with(batch, i, err);
}

/* ---- replies ---- */

static void finish_on(WriteBatch *batch, uint32_t index, const char *shard) {
    WriteStatement *statement = &batch->statements[index];
    const char **finished = ARENA_ARRAY(&batch->arena, const char *, statement->finished_count + 1);
    if (statement->finished_count > 0)
        memcpy(finished, statement->finished, statement->finished_count * sizeof(*finished));
    finished[statement->finished_count++] = arena_strdup(&batch->arena, shard);
    statement->finished = finished;
}

static Elem get_array(Doc reply, Str name) {
    Elem array = doc_get(reply, name);
    return elem_type(array) == BT_ARRAY ? array : ELEM_MISSING;
}

static DocIter iter_array(Doc reply, Str name) {
    Elem array = get_array(reply, name);
    return doc_iter(elem_is_present(array) ? elem_doc(array) : DOC_EMPTY);
}

/* The statement that a row of writeErrors or upserted is about; false: of none. */
static bool statement_of_row(const WritePart *part, Elem row, uint32_t *ret_at) {
    if (elem_type(row) != BT_DOC)
        return false;
    Elem index = doc_get_lit(elem_doc(row), "index");
    int64_t at = elem_is_number(index) ? elem_as_i64(index) : -1;
    *ret_at = (uint32_t)at;
    return at >= 0 && at < part->count;
}

static void take_row(WriteBatch *batch, uint32_t index, Doc row, Error *ret_stale) {
    ErrCode code = code_of(row);
    Str text = text_of(row);
    if (routing_is_stale_error(code)) {
        if (ret_stale->code == ERR_OK)
            (void)error_set(ret_stale, code, "%.*s", (int)text.size, text.data);
    } else if (code == ERR_WOULD_CHANGE_OWNING_SHARD) {
        CLEANUP(error_reset) Error err = {0};
        (void)write_refuse_move(batch->can_move, &err);
        fail_with(batch, index, &err);
    } else {
        fail_statement(batch, index, copy_error(batch, row));
    }
}

/* An ordered request ended at its first error; what follows was not executed. */
static void take_errors(WriteBatch *batch, const WritePart *part, Doc reply, Error *ret_stale) {
    uint8_t *has_error = arena_zalloc(&batch->arena, part->count + 1);
    uint32_t end = part->count;
    DocIter iter = iter_array(reply, STR("writeErrors"));
    for (Elem row; doc_iter_next(&iter, &row);) {
        uint32_t at;
        if (!statement_of_row(part, row, &at))
            continue;
        has_error[at] = 1;
        if (batch->is_ordered && at < end)
            end = at;
        take_row(batch, part->statements[at], elem_doc(row), ret_stale);
    }
    for (uint32_t i = 0; i < end; i++) {
        if (has_error[i])
            continue;
        if (part->is_spread)
            finish_on(batch, part->statements[i], part->shard);
        else
            set_state(batch, part->statements[i], WRITE_DONE);
    }
}

static void take_upserted(WriteBatch *batch, const WritePart *part, Doc reply) {
    DocIter iter = iter_array(reply, STR("upserted"));
    for (Elem row; doc_iter_next(&iter, &row);) {
        uint32_t at;
        if (!statement_of_row(part, row, &at))
            continue;
        DocBuilder b = doc_builder_in_arena(&batch->arena);
        build_elem_as(&b, STR("_id"), doc_get_lit(elem_doc(row), "_id"));
        batch->statements[part->statements[at]].upserted = doc_builder_end(&b);
    }
}

static void take_retried(WriteBatch *batch, Doc reply) {
    if (!elem_is_present(get_array(reply, STR("retriedStmtIds"))))
        return;
    if (batch->retried == NULL)
        batch->retried = ARENA_ARRAY(&batch->arena, int32_t, batch->docs.count + 1);
    DocIter iter = iter_array(reply, STR("retriedStmtIds"));
    for (Elem id; doc_iter_next(&iter, &id);)
        if (elem_is_number(id) && batch->retried_count < batch->docs.count)
            batch->retried[batch->retried_count++] = (int32_t)elem_as_i64(id);
}

/* The newest of each shard. */
static void take_concern(WriteBatch *batch, const char *shard, Doc reply) {
    Elem error = doc_get_lit(reply, "writeConcernError");
    if (elem_type(error) != BT_DOC)
        return;
    WriteConcernRow **at = &batch->concerns;
    while (*at != NULL && strcmp((*at)->shard, shard) != 0)
        at = &(*at)->next;
    if (*at == NULL) {
        *at = ARENA_NEW(&batch->arena, WriteConcernRow);
        (*at)->shard = arena_strdup(&batch->arena, shard);
    } else if (doc_equal_bytes((*at)->error, elem_doc(error))) {
        return;
    }
    (*at)->error = doc_copy(elem_doc(error), &batch->arena);
}

static void take_labels(WriteBatch *batch, Doc reply) {
    DocIter iter = iter_array(reply, STR("errorLabels"));
    for (Elem label; doc_iter_next(&iter, &label);)
        for (int i = 0; i < ERROR_LABEL_COUNT && elem_type(label) == BT_STRING; i++)
            if (str_is(elem_str(label), error_label_name((ErrorLabel)(1u << i))))
                batch->labels |= 1u << i;
}

void write_batch_take_reply(WriteBatch *batch, const WritePart *part, Doc reply, Error *ret_stale) {
    batch->is_begun = true;
    batch->n += elem_as_i64(doc_get_lit(reply, "n"));
    batch->modified += elem_as_i64(doc_get_lit(reply, "nModified"));
    take_errors(batch, part, reply, ret_stale);
    take_upserted(batch, part, reply);
    take_retried(batch, reply);
    take_concern(batch, part->shard, reply);
    take_labels(batch, reply);
}

/* ---- the reply ---- */

static void build_upserted(const WriteBatch *batch, DocBuilder *b) {
    size_t opened = 0;
    uint32_t count = 0;
    char name[INDEX_NAME_SIZE];
    for (uint32_t i = 0; i < batch->docs.count; i++) {
        if (!doc_is_present(batch->statements[i].upserted))
            continue;
        if (count == 0)
            opened = build_open_array(b, "upserted");
        size_t row = build_open_doc_str(b, index_name(count++, name));
        build_i32(b, "index", (int32_t)i);
        build_all(b, batch->statements[i].upserted);
        build_close(b, row);
    }
    if (count > 0)
        build_close(b, opened);
}

static void build_errors(const WriteBatch *batch, DocBuilder *b) {
    if (batch->error_count == 0)
        return;
    size_t opened = build_open_array(b, "writeErrors");
    uint32_t count = 0;
    char name[INDEX_NAME_SIZE];
    for (uint32_t i = 0; i < batch->docs.count; i++) {
        if (batch->statements[i].state != WRITE_FAILED)
            continue;
        size_t row = build_open_doc_str(b, index_name(count++, name));
        build_i32(b, "index", (int32_t)i);
        build_all(b, batch->statements[i].error);
        build_close(b, row);
    }
    build_close(b, opened);
}

/* One of several: the code that all have, or else that of a write concern that failed. */
static void build_concerns(const WriteBatch *batch, DocBuilder *b) {
    const WriteConcernRow *first = batch->concerns;
    if (first == NULL)
        return;
    ErrCode code = scatter_hide_state(code_of(first->error));
    Buffer text;
    buffer_init(&text, BUFFER_UNBOUNDED);
    for (const WriteConcernRow *row = first; row != NULL; row = row->next) {
        Str own = text_of(row->error);
        if (scatter_hide_state(code_of(row->error)) != code)
            code = ERR_WRITE_CONCERN_FAILED;
        if (first->next == NULL)
            buffer_append(&text, own.data, own.size);
        else
            buffer_printf(&text, "%sshard %s: %.*s",
                          row == first ? "several shards reported errors: " : "; ", row->shard,
                          (int)own.size, own.data);
    }
    buffer_append_byte(&text, 0);
    size_t opened = build_open_doc(b, "writeConcernError");
    char name[32];
    build_i32(b, "code", (int32_t)code);
    build_cstr(b, "codeName", error_code_name(code, name));
    build_cstr(b, "errmsg", (const char *)text.data);
    Elem info = doc_get_lit(first->error, "errInfo");
    if (elem_is_present(info))
        build_elem(b, info);
    build_close(b, opened);
    buffer_done(&text);
}

static void build_retried(const WriteBatch *batch, DocBuilder *b) {
    if (batch->retried_count == 0)
        return;
    size_t opened = build_open_array(b, "retriedStmtIds");
    char name[INDEX_NAME_SIZE];
    for (uint32_t i = 0; i < batch->retried_count; i++)
        build_i32(b, index_name(i, name).data, batch->retried[i]);
    build_close(b, opened);
}

void write_batch_build(const WriteBatch *batch, DocBuilder *b) {
    build_count(b, "n", batch->n);
    build_upserted(batch, b);
    if (batch->has_modified)
        build_count(b, "nModified", batch->modified);
    build_errors(batch, b);
    build_concerns(batch, b);
    build_error_labels(b, batch->labels);
    build_retried(batch, b);
}
