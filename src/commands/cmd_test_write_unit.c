/*
 * cmd_test_write_unit.c - _testWriteUnit, for tests: documents of up to two collections written in
 * one unit of work, of any size.
 *
 * Each of the documents _id: first .. first + count - 1 becomes {_id, value, pad: "xxx"}, in both
 * collections: whoever sees two values at once has seen half of a unit. The collections must exist.
 */
#include "base/alloc.h"
#include "base/prng.h"
#include "catalog/write_group.h"
#include "commands/support.h"
#include "index/collection_write.h"
#include "index/lookup.h"
#include "storage/unit_of_work.h"

enum {
    COLLS_MAX = 2,
};

typedef struct WriteUnitRequest {
    Str coll;
    Str also;
    int64_t first;
    int64_t count;
    int64_t size; /* of the padding */
    int64_t value;
    bool is_from_migrate;
    bool is_remove; /* the documents are deleted instead */
    bool is_left;   /* the unit is left without a commit */
} WriteUnitRequest;

typedef struct UnitArgs {
    const WriteUnitRequest *request;
    const Collection *colls[COLLS_MAX];
    size_t coll_count;
    char *pad;
    WriteScratch scratch;
    KeyBuilder key;
} UnitArgs;

static ErrCode write_one(UnitArgs *args, OpCtx *op, const Collection *coll, int64_t id,
                         Error *err) {
    const WriteUnitRequest *request = args->request;
    DocBuilder b = doc_builder_in_arena_sized(&op->arena, (size_t)request->size + 128);
    build_i64(&b, "_id", id);
    build_i64(&b, "value", request->value);
    build_str(&b, "pad", (Str){args->pad, (size_t)request->size});
    Doc after = doc_builder_end(&b);
    Elem key = doc_get_lit(after, "_id");
    Doc before;
    TRY(lookup_document(op, coll, key, &op->arena, &before, err));
    if (!doc_is_present(before))
        return request->is_remove ? ERR_OK
                                  : collection_insert(op, coll, &after, 1, &args->scratch, err);
    bool is_found;
    RecordId rid;
    TRY(lookup_record_id(op, coll, key, &args->key, &is_found, &rid, err));
    return request->is_remove
               ? collection_delete(op, coll, rid, before, &args->scratch, err)
               : collection_replace(op, coll, rid, before, after, &args->scratch, err);
}

static ErrCode unit_attempt(void *arg, OpCtx *op, Error *err) {
    UnitArgs *args = arg;
    CLEANUP(uow_done) UnitOfWork uow = {0};
    TRY(uow_begin(op, &uow, err));
    for (size_t c = 0; c < args->coll_count; c++) {
        for (int64_t i = 0; i < args->request->count; i++) {
            ArenaMark mark = arena_mark(&op->arena);
            TRY(write_one(args, op, args->colls[c], args->request->first + i, err));
            arena_rewind(&op->arena, mark);
        }
    }
    return args->request->is_left ? ERR_OK : uow_commit(&uow, err);
}

static ErrCode open_coll(CommandCtx *ctx, Str name, UnitArgs *args, CollAccess *access,
                         Error *err) {
    Ns ns;
    TRY(cmd_ns(ctx, name, &ns, err));
    TRY(access_write(ctx->op, &ns, LOCK_IX, access, err));
    if (access->coll == NULL)
        return error_set(err, ERR_NAMESPACE_NOT_FOUND, "collection \"%s\" does not exist", ns.text);
    args->colls[args->coll_count++] = access->coll;
    return ERR_OK;
}

static ErrCode write_unit(CommandCtx *ctx, UnitArgs *args, Error *err) {
    OpCtx *op = ctx->op;
    CLEANUP(access_done) CollAccess first = {0};
    CLEANUP(access_done) CollAccess second = {0};
    TRY(open_coll(ctx, args->request->coll, args, &first, err));
    if (args->request->also.size > 0)
        TRY(open_coll(ctx, args->request->also, args, &second, err));
    WriteGroup group = {.previous = OPTIME_NONE};
    CLEANUP(op_mode_restore) OpModeScope scope = op_mode_scope(op);
    op->mode.is_from_migrate = args->request->is_from_migrate;
    write_group_begin(op, &group);
    ErrCode rc = op_run_with_retry(op, unit_attempt, args, err);
    write_group_end(op);
    if (rc == ERR_OK && !optime_is_none(group.last)) {
        build_timestamp(ctx->reply, "firstTs", group.first.ts);
        build_timestamp(ctx->reply, "lastTs", group.last.ts);
    }
    return rc;
}

static ErrCode write_unit_run(CommandCtx *ctx, void *arg, Error *err) {
    const WriteUnitRequest *request = arg;
    if (request->size > BSON_DOC_SIZE_MAX - 1024)
        return error_set(err, ERR_BAD_VALUE, "'size' is too large for a document");
    UnitArgs args = {.request = request, .pad = xcalloc(1, (size_t)request->size + 1)};
    /* No two alike and hardly to be compressed: what is written is as large as it says. */
    Prng prng = prng_seeded((uint64_t)request->value);
    for (int64_t i = 0; i < request->size; i++)
        args.pad[i] = (char)('0' + prng_below(&prng, 64));
    write_scratch_init(&args.scratch);
    key_builder_init(&args.key);
    ErrCode rc = write_unit(ctx, &args, err);
    key_builder_done(&args.key);
    write_scratch_done(&args.scratch);
    xfree(args.pad);
    return rc;
}

static const FieldSpec WRITE_UNIT_FIELDS[] = {
    {"_testWriteUnit", FIELD_COLL, FIELD_REQUIRED, offsetof(WriteUnitRequest, coll)},
    {"also", FIELD_STRING, FIELD_OPTIONAL, offsetof(WriteUnitRequest, also)},
    {"first", FIELD_I64, FIELD_OPTIONAL, offsetof(WriteUnitRequest, first)},
    {"count", FIELD_COUNT, FIELD_REQUIRED, offsetof(WriteUnitRequest, count)},
    {"size", FIELD_COUNT, FIELD_OPTIONAL, offsetof(WriteUnitRequest, size)},
    {"value", FIELD_I64, FIELD_OPTIONAL, offsetof(WriteUnitRequest, value)},
    {"fromMigrate", FIELD_BOOL, FIELD_OPTIONAL, offsetof(WriteUnitRequest, is_from_migrate)},
    {"remove", FIELD_BOOL, FIELD_OPTIONAL, offsetof(WriteUnitRequest, is_remove)},
    {"leave", FIELD_BOOL, FIELD_OPTIONAL, offsetof(WriteUnitRequest, is_left)},
};

const CommandSpec CMD_TEST_WRITE_UNIT = {
    .name = "_testWriteUnit",
    .summary = "For tests: writes documents of two collections in one unit of work.",
    .flags = CMD_WRITES | CMD_NEEDS_TEST_COMMANDS,
    .request = REQUEST_OF(WriteUnitRequest, WRITE_UNIT_FIELDS),
    .run = write_unit_run,
};
