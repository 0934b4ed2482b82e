#include "query/write/agg_sink.h"

#include <stdio.h>

#include "base/alloc.h"
#include "base/buffer.h"
#include "bson/builder.h"
#include "bson/uuid.h"
#include "catalog/access.h"
#include "ddl/ddl.h"
#include "query/agg/merge_failures.h"
#include "query/write/modify.h"
#include "query/expr/value.h"

enum {
    OUT_BATCH_DOCS_MAX = 1000,
    OUT_BATCH_BYTES_MAX = 4 * 1024 * 1024,
    MERGE_ATTEMPTS_MAX = 10,
};

#define TEMPORARY_PREFIX "tmp.agg_out."

/* ---- $out ---- */

typedef struct OutSink {
    OpCtx *op;
    bool is_validation_bypassed;
    Ns target;
    Ns temporary;
    bool is_made;
    Doc options; /* of the target when it began; DOC_NONE: there was none */
    Doc indexes; /* array of specifications */
    Arena arena; /* the two */
    Arena batch; /* documents to be inserted */
    Doc docs[OUT_BATCH_DOCS_MAX];
    uint32_t count;
} OutSink;

/* What is kept of the target: options and indexes other than _id's. */
typedef struct TargetShape {
    Doc options;
    Doc indexes;
} TargetShape;

static void shape_of(const Collection *coll, Arena *arena, TargetShape *ret_shape) {
    *ret_shape = (TargetShape){DOC_NONE, DOC_EMPTY};
    if (coll == NULL)
        return;
    ret_shape->options =
        doc_copy(doc_is_present(coll->options.doc) ? coll->options.doc : DOC_EMPTY, arena);
    DocBuilder b = doc_builder_in_arena(arena);
    uint32_t count = 0;
    for (uint32_t i = 0; i < coll->index_count; i++) {
        char name[INDEX_NAME_SIZE];
        if (!coll->indexes[i]->is_id && coll->indexes[i]->is_ready)
            build_value_as(&b, index_name(count++, name), value_doc(coll->indexes[i]->spec));
    }
    ret_shape->indexes = doc_builder_end(&b);
}

static ErrCode read_shape(OpCtx *op, const Ns *ns, Arena *arena, TargetShape *ret_shape,
                          Error *err) {
    CLEANUP(access_done) CollAccess access = {0};
    TRY(access_read_owned(op, ns, &access, err));
    /* The rename at the end would drop documents that are not this node's to drop. */
    if (access.is_filtered)
        return error_set(err, (ErrCode)28769,
                         "namespace '%s' is sharded so it can't be used for $out", ns->text);
    if (access.view != NULL)
        return error_set(err, ERR_COMMAND_NOT_SUPPORTED_ON_VIEW,
                         "Namespace %s is a view, not a collection", ns->text);
    if (access.coll != NULL && access.coll->options.is_capped)
        return error_set(err, (ErrCode)17152,
                         "namespace '%s' is capped so it can't be used for $out", ns->text);
    shape_of(access.coll, arena, ret_shape);
    return ERR_OK;
}

static ErrCode make_temporary(OutSink *out, Error *err) {
    TargetShape shape;
    TRY(read_shape(out->op, &out->target, &out->arena, &shape, err));
    out->options = shape.options;
    out->indexes = shape.indexes;
    Uuid uuid = uuid_new();
    char name[sizeof(TEMPORARY_PREFIX) + UUID_TEXT_SIZE];
    char text[UUID_TEXT_SIZE];
    uuid_to_text(&uuid, text);
    int size = snprintf(name, sizeof(name), TEMPORARY_PREFIX "%s", text);
    TRY(ns_make(ns_db(&out->target), (Str){name, (size_t)size}, &out->temporary, err));
    TRY(ddl_create_collection(out->op, &out->temporary,
                              doc_is_present(out->options) ? out->options : DOC_EMPTY,
                              /* uuid= */ NULL, err));
    out->is_made = true;
    uint32_t count = doc_count(out->indexes);
    if (count == 0)
        return ERR_OK;
    Doc *specs = ARENA_ARRAY(&out->arena, Doc, count);
    DocIter iter = doc_iter(out->indexes);
    Elem elem;
    for (uint32_t i = 0; doc_iter_next(&iter, &elem); i++)
        specs[i] = elem_doc(elem);
    CreateIndexesResult result;
    return ddl_create_indexes(out->op, &out->temporary, specs, count, &result, err);
}

typedef struct FirstError {
    Error err;
    bool is_set;
} FirstError;

static void note_error(void *arg, uint32_t index, const Error *err) {
    (void)index;
    FirstError *first = arg;
    if (first->is_set)
        return;
    first->is_set = true;
    error_set(&first->err, err->code, "%s", error_message(err));
    if (err->extra != NULL)
        error_set_extra(&first->err, err->extra);
}

/* What a pipeline gives may be larger than what may leave it. */
static ErrCode check_size(Doc doc, Error *err) {
    if (doc_size(doc) > BSON_DOC_SIZE_MAX_INTERNAL)
        return error_set(err, ERR_BSON_OBJECT_TOO_LARGE,
                         "a document of %u bytes is larger than the limit of %d bytes",
                         doc_size(doc), BSON_DOC_SIZE_MAX_INTERNAL);
    return ERR_OK;
}

static ErrCode insert_all(OpCtx *op, const Ns *ns, const Doc *docs, uint32_t count,
                          bool is_validation_bypassed, Error *err) {
    FirstError first = {0};
    int64_t inserted;
    ArenaMark mark = arena_mark(&op->arena);
    ErrCode rc = exec_insert(op, ns, docs, count, /* is_ordered= */ true, is_validation_bypassed,
                             note_error, &first, &inserted, err);
    arena_rewind(&op->arena, mark);
    if (rc == ERR_OK && first.is_set) {
        rc = first.err.code;
        error_move(err, &first.err);
    }
    error_reset(&first.err);
    return rc;
}

static ErrCode flush_out(OutSink *out, Error *err) {
    if (out->count == 0)
        return ERR_OK;
    uint32_t count = out->count;
    out->count = 0;
    TRY(insert_all(out->op, &out->temporary, out->docs, count, out->is_validation_bypassed, err));
    arena_reset(&out->batch);
    return ERR_OK;
}

static ErrCode out_add(void *arg, Doc doc, Doc let_values, Error *err) {
    (void)let_values;
    OutSink *out = arg;
    TRY(check_size(doc, err));
    out->docs[out->count++] = doc_copy(doc, &out->batch);
    if (out->count == OUT_BATCH_DOCS_MAX || arena_used(&out->batch) >= OUT_BATCH_BYTES_MAX)
        return flush_out(out, err);
    return ERR_OK;
}

static bool is_same_doc(Doc a, Doc b) {
    return doc_is_present(a) == doc_is_present(b) && (!doc_is_present(a) || doc_equal_bytes(a, b));
}

/* With the target locked: what was copied at the beginning must still be true of it; and it may be
 * written at all, as the policies see it. */
static ErrCode check_unchanged(void *arg, const Collection *target, Error *err) {
    OutSink *out = arg;
    CLEANUP(access_done) CollAccess access = {0};
    TRY(access_write_owned(out->op, &out->target, LOCK_X, &access, err));
    TargetShape now;
    shape_of(target, &out->arena, &now);
    if (!is_same_doc(now.options, out->options) && doc_is_present(out->options))
        return error_set(err, ERR_COMMAND_FAILED,
                         "collection options of target collection %s changed during processing",
                         out->target.text);
    if (!is_same_doc(now.indexes, out->indexes))
        return error_set(err, ERR_COMMAND_FAILED,
                         "indexes of target collection %s changed during processing",
                         out->target.text);
    return ERR_OK;
}

static ErrCode out_finish(void *arg, Error *err) {
    OutSink *out = arg;
    TRY(flush_out(out, err));
    RenameCheck check = {check_unchanged, out};
    TRY(ddl_rename_if(out->op, &out->temporary, &out->target, check, err));
    out->is_made = false;
    return ERR_OK;
}

static void out_free(void *arg) {
    OutSink *out = arg;
    if (out->is_made) {
        /* Also when the operation was killed: nobody else will do it before the next start. */
        CLEANUP(error_reset) Error ignored = {0};
        DropResult result;
        CLEANUP(op_mode_restore) OpModeScope scope = op_mode_scope(out->op);
        out->op->mode.is_uninterruptible = true;
        (void)!ddl_drop(out->op, &out->temporary, NULL, &result, &ignored);
    }
    arena_done(&out->arena);
    arena_done(&out->batch);
    xfree(out);
}

/* ---- $merge ---- */

typedef struct MergeSink {
    OpCtx *op;
    bool is_validation_bypassed;
    Ns target;
    const AggSinkSpec *spec;
    FieldPath *on;
    uint32_t on_count;
    Arena arena;
    Arena scratch; /* of one document */
    Doc let_values;
    const Collator *collator;
    Elem update; /* for MERGE_MERGE and MERGE_KEEP_EXISTING */
    MergeFailures failures;
} MergeSink;

static bool has_on_fields(const IndexDesc *index, const MergeSink *merge) {
    if (!index->is_unique && !index->is_id)
        return false;
    if (!index->is_ready || index->partial_filter != NULL || index->collator != merge->collator ||
        index->field_count != merge->on_count)
        return false;
    for (uint32_t i = 0; i < merge->on_count; i++) {
        bool is_found = false;
        for (uint32_t j = 0; j < index->field_count; j++)
            is_found |= str_is(merge->on[i].dotted, index->fields[j].path);
        if (!is_found)
            return false;
    }
    return true;
}

static ErrCode check_merge_target(MergeSink *merge, Error *err) {
    CLEANUP(access_done) CollAccess access = {0};
    TRY(access_read(merge->op, &merge->target, &access, err));
    if (access.view != NULL)
        return error_set(err, ERR_COMMAND_NOT_SUPPORTED_ON_VIEW,
                         "Namespace %s is a view, not a collection", merge->target.text);
    bool is_by_id = merge->on_count == 1 && str_is(merge->on[0].dotted, "_id");
    if (is_by_id && (access.coll == NULL || access.coll->options.collator == merge->collator))
        return ERR_OK;
    for (uint32_t i = 0; access.coll != NULL && i < access.coll->index_count; i++)
        if (has_on_fields(access.coll->indexes[i], merge))
            return ERR_OK;
    return error_set(err, (ErrCode)51183,
                     "Cannot find index to verify that join fields will be unique");
}

/* [{$replaceWith: {$mergeObjects: ["$$ROOT", "$$new"]}}], or [] which changes nothing. */
static void build_update(MergeSink *merge) {
    DocBuilder b = doc_builder_in_arena(&merge->arena);
    size_t update = build_open_array(&b, "u");
    size_t stage = build_open_doc(&b, "0");
    if (merge->spec->when_matched == MERGE_MERGE) {
        size_t replace = build_open_doc(&b, "$replaceWith");
        size_t objects = build_open_array(&b, "$mergeObjects");
        build_cstr(&b, "0", "$$ROOT");
        build_cstr(&b, "1", "$$new");
        build_close(&b, objects);
        build_close(&b, replace);
    } else {
        build_cstr(&b, "$replaceWith", "$$ROOT");
    }
    build_close(&b, stage);
    build_close(&b, update);
    merge->update = doc_get_lit(doc_builder_end(&b), "u");
}

static ErrCode build_merge_filter(MergeSink *merge, Doc doc, Doc *ret_filter, Error *err) {
    Buffer *buf = ARENA_NEW(&merge->scratch, Buffer);
    buffer_init_arena(buf, &merge->scratch, 128, BSON_DOC_SIZE_MAX_INTERNAL);
    DocBuilder b;
    doc_builder_init(&b, buf);
    for (uint32_t i = 0; i < merge->on_count; i++) {
        const FieldPath *path = &merge->on[i];
        Value value = value_from_elem(path_find_in_docs(path, doc));
        if (value_is_nullish(value))
            return error_set(err, (ErrCode)51132,
                             "$merge write error: 'on' field '%.*s' cannot be missing, null, "
                             "undefined or an array",
                             (int)path->dotted.size, path->dotted.data);
        if (value.type == BT_ARRAY)
            return error_set(err, (ErrCode)51185,
                             "$merge write error: 'on' field '%.*s' cannot be missing, null, "
                             "undefined or an array",
                             (int)path->dotted.size, path->dotted.data);
        size_t field = build_open_doc_str(&b, path->dotted);
        build_value_as(&b, STR("$eq"), value);
        build_close(&b, field);
    }
    return doc_builder_finish(&b, "$merge filter", ret_filter, err);
}

static ErrCode build_merge_let(MergeSink *merge, Doc doc, Doc let_values, Doc *ret_let,
                               Error *err) {
    Doc own = let_values;
    if (!doc_is_present(own)) {
        Buffer *buf = ARENA_NEW(&merge->scratch, Buffer);
        buffer_init_arena(buf, &merge->scratch, doc_size(doc) + 32, BSON_DOC_SIZE_MAX_INTERNAL);
        DocBuilder b;
        doc_builder_init(&b, buf);
        build_doc(&b, "new", doc);
        TRY(doc_builder_finish(&b, "$merge document", &own, err));
    }
    *ret_let = own;
    return doc_is_present(merge->let_values)
               ? doc_merge(merge->let_values, own, &merge->scratch, ret_let, err)
               : ERR_OK;
}

/* An element around the document or array. */
static Elem wrap(Arena *arena, BsonType type, Doc doc) {
    uint8_t *bytes = arena_alloc(arena, 2 + doc_size(doc));
    bytes[0] = (uint8_t)type;
    bytes[1] = 0;
    memcpy(bytes + 2, doc.data, doc_size(doc));
    return (Elem){bytes, 0};
}

static ErrCode update_match(MergeSink *merge, Doc doc, Doc let_values, bool *ret_matched,
                            Error *err) {
    ModifyRequest request = {.kind = MODIFY_UPDATE, .array_filters = DOC_NONE};
    request.query.sort = request.query.projection = DOC_NONE;
    request.query.has_collation = true;
    request.query.collator = merge->collator;
    TRY(build_merge_filter(merge, doc, &request.query.filter, err));
    TRY(build_merge_let(merge, doc, let_values, &request.query.let_values, err));
    switch (merge->spec->when_matched) {
    case MERGE_REPLACE:
        request.update = wrap(&merge->scratch, BT_DOC, doc);
        break;
    case MERGE_PIPELINE:
        request.update = wrap(&merge->scratch, BT_ARRAY, merge->spec->pipeline);
        break;
    default:
        request.update = merge->update;
    }
    OpCtx *op = merge->op;
    ArenaMark mark = arena_mark(&op->arena);
    ModifyOutcome outcome;
    CLEANUP(op_mode_restore) OpModeScope scope = op_mode_scope(op);
    op->mode.is_validation_bypassed = merge->is_validation_bypassed;
    TRY(modify_pass_failpoints(op, &merge->target, MODIFY_UPDATE, err));
    ErrCode rc = exec_modify(op, &merge->target, &request, &outcome, err);
    arena_rewind(&op->arena, mark);
    *ret_matched = rc == ERR_OK && outcome.matched > 0;
    return rc == ERR_OK ? ERR_OK : merge_explain_update(err);
}

/* An insert that meets a document which came after our look for one tries again. */
static ErrCode merge_doc(MergeSink *merge, Doc doc, Doc let_values, Error *err) {
    const AggSinkSpec *spec = merge->spec;
    for (int attempt = 0;; attempt++) {
        bool is_matched = false;
        if (spec->when_matched != MERGE_FAIL)
            TRY(update_match(merge, doc, let_values, &is_matched, err));
        if (is_matched || spec->when_not_matched == MERGE_DISCARD)
            return ERR_OK;
        if (spec->when_not_matched == MERGE_NOT_MATCHED_FAIL)
            return error_set(err, ERR_MERGE_STAGE_NO_MATCHING_DOCUMENT,
                             "$merge could not find a matching document in the target collection "
                             "for at least one document in the source collection");
        ErrCode rc =
            insert_all(merge->op, &merge->target, &doc, 1, merge->is_validation_bypassed, err);
        if (rc != ERR_DUPLICATE_KEY)
            return rc;
        if (spec->when_matched == MERGE_FAIL || attempt + 1 == MERGE_ATTEMPTS_MAX)
            return merge_explain_duplicate(merge->spec, merge->on, merge->on_count, err);
        Error first = {0};
        error_move(&first, err);
        /* The duplicate may be of another unique index: then no attempt will find a match. */
        ErrCode again = update_match(merge, doc, let_values, &is_matched, err);
        if (again != ERR_OK || is_matched) {
            error_reset(&first);
            return again;
        }
        error_move(err, &first);
        return merge_explain_duplicate(merge->spec, merge->on, merge->on_count, err);
    }
}

static ErrCode merge_add(void *arg, Doc doc, Doc let_values, Error *err) {
    MergeSink *merge = arg;
    TRY(check_size(doc, err));
    arena_reset(&merge->scratch);
    TRY(op_check_interrupt_slow(merge->op, err));
    bool has_id = false;
    for (uint32_t i = 0; i < merge->on_count; i++)
        has_id |= str_is(merge->on[i].dotted, "_id");
    if (has_id)
        TRY(document_prepare(merge->op, doc, &merge->scratch, &doc, err));
    Doc checked;
    if (merge->on_count > 1 || !has_id)
        TRY(build_merge_filter(merge, doc, &checked, err));
    return merge_failures_add(&merge->failures, merge_doc(merge, doc, let_values, err), err);
}

static ErrCode merge_finish(void *arg, Error *err) {
    MergeSink *merge = arg;
    return merge_failures_end(&merge->failures, err);
}

static void merge_free(void *arg) {
    MergeSink *merge = arg;
    merge_failures_done(&merge->failures);
    arena_done(&merge->arena);
    arena_done(&merge->scratch);
    xfree(merge);
}

/* ---- opening ---- */

static ErrCode merge_open(MergeSink *merge, Error *err) {
    static const Str ID = {"_id", 3};
    const Str *names = merge->spec->on_count > 0 ? merge->spec->on : &ID;
    merge->on_count = merge->spec->on_count > 0 ? merge->spec->on_count : 1;
    merge->on = ARENA_ARRAY(&merge->arena, FieldPath, merge->on_count);
    for (uint32_t i = 0; i < merge->on_count; i++)
        TRY(path_parse(names[i], &merge->arena, &merge->on[i], err));
    build_update(merge);
    TRY(ns_check_creatable(&merge->target, err));
    return check_merge_target(merge, err);
}

ErrCode agg_sink_open(OpCtx *op, const Ns *ns, const AggSinkSpec *spec,
                      const AggSinkOptions *options, AggSink *ret_sink, Error *err) {
    if (spec->is_merge) {
        MergeSink *merge = NEW(MergeSink);
        merge->op = op;
        merge->target = *ns;
        merge->spec = spec;
        merge->let_values = options->let_values;
        merge->collator = options->collator;
        merge->is_validation_bypassed = options->is_validation_bypassed;
        arena_init(&merge->arena, 0);
        arena_init(&merge->scratch, 0);
        *ret_sink = (AggSink){merge, merge_add, merge_finish, merge_free};
        ErrCode rc = merge_open(merge, err);
        if (rc != ERR_OK)
            merge_free(merge);
        return rc;
    }
    OutSink *out = NEW(OutSink);
    out->op = op;
    out->target = *ns;
    out->is_validation_bypassed = options->is_validation_bypassed;
    arena_init(&out->arena, 0);
    arena_init(&out->batch, 1024 * 1024);
    *ret_sink = (AggSink){out, out_add, out_finish, out_free};
    ErrCode rc = ns_check_creatable(ns, err);
    if (rc == ERR_OK)
        rc = make_temporary(out, err);
    if (rc != ERR_OK)
        out_free(out);
    return rc;
}

/* ---- after a crash ---- */

typedef struct Leftovers {
    const Catalog *catalog;
    Ns *rows;
    size_t count;
    size_t capacity;
} Leftovers;

static bool note_leftover(void *arg, const Collection *coll) {
    Leftovers *found = arg;
    Str name = ns_coll(&coll->ns);
    size_t size = sizeof(TEMPORARY_PREFIX) - 1;
    if (name.size > size && memcmp(name.data, TEMPORARY_PREFIX, size) == 0) {
        ARRAY_RESERVE(found->rows, found->count, found->capacity);
        found->rows[found->count++] = coll->ns;
    }
    return true;
}

static bool look_in_database(void *arg, Str db) {
    Leftovers *found = arg;
    catalog_for_each_in_db(found->catalog, db, note_leftover, found);
    return true;
}

ErrCode agg_sink_clean_up(OpCtx *op, Error *err) {
    Catalog *catalog = catalog_acquire(op_catalog(op));
    Leftovers found = {.catalog = catalog};
    catalog_for_each_db(catalog, look_in_database, &found);
    catalog_release(catalog);
    ErrCode rc = ERR_OK;
    for (size_t i = 0; rc == ERR_OK && i < found.count; i++) {
        DropResult result;
        rc = ddl_drop(op, &found.rows[i], NULL, &result, err);
    }
    xfree(found.rows);
    return rc;
}
