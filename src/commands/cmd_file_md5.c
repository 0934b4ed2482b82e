/*
 * cmd_file_md5.c - filemd5: the MD5 of a GridFS file, from its chunks.
 *
 * {partialOk: true} gives the state after the chunks that are there, from which another call goes
 * on: {startAt: n, md5state}.
 */
#include <stdio.h>
#include <string.h>

#include "base/md5.h"
#include "catalog/access.h"
#include "commands/query_args.h"
#include "commands/support.h"
#include "query/plan/planner.h"

enum {
    LOCATION_CHUNKS_OUT_OF_ORDER = 10040,
    LOCATION_STATE_NOT_BINARY = 50847,
    LOCATION_DATA_MISSING = 50848,
    LOCATION_DATA_NOT_BINARY = 50849,
};

typedef struct FileMd5Request {
    Elem id;
    Str root; /* empty: "fs" */
    bool is_partial_ok;
    int64_t start_at;
    Elem state;
} FileMd5Request;

static const FieldSpec FILE_MD5_FIELDS[] = {
    {"filemd5", FIELD_ELEM, FIELD_REQUIRED, offsetof(FileMd5Request, id)},
    {"root", FIELD_STRING, FIELD_OPTIONAL, offsetof(FileMd5Request, root)},
    {"partialOk", FIELD_BOOL, FIELD_OPTIONAL, offsetof(FileMd5Request, is_partial_ok)},
    {"startAt", FIELD_COUNT, FIELD_OPTIONAL, offsetof(FileMd5Request, start_at)},
    {"md5state", FIELD_ELEM, FIELD_OPTIONAL, offsetof(FileMd5Request, state)},
};

static ErrCode begin_digest(const FileMd5Request *request, Md5 *md5, Error *err) {
    md5_init(md5);
    if (!request->is_partial_ok || !elem_is_present(request->state))
        return ERR_OK;
    if (elem_type(request->state) != BT_BINARY)
        return error_set(err, (ErrCode)LOCATION_STATE_NOT_BINARY,
                         "md5state has to be binary data, not %s",
                         bson_type_name(elem_type(request->state)));
    uint8_t subtype;
    Str bytes = elem_binary(request->state, &subtype);
    if (bytes.size == 0)
        return ERR_OK;
    if (bytes.size != sizeof(*md5))
        return error_set(err, ERR_BAD_VALUE, "md5state is not one that filemd5 has given");
    memcpy(md5, bytes.data, sizeof(*md5));
    return ERR_OK;
}

static ErrCode add_chunk(Md5 *md5, Doc chunk, Error *err) {
    Elem data = doc_get_lit(chunk, "data");
    if (!elem_is_present(data))
        return error_set(err, (ErrCode)LOCATION_DATA_MISSING,
                         "a chunk of the file has no field 'data'");
    if (elem_type(data) != BT_BINARY)
        return error_set(err, (ErrCode)LOCATION_DATA_NOT_BINARY,
                         "field 'data' of a chunk has to be binary data, not %s",
                         bson_type_name(elem_type(data)));
    uint8_t subtype;
    Str bytes = elem_binary(data, &subtype);
    md5_add(md5, bytes.data, bytes.size);
    return ERR_OK;
}

/* By its index, in their order: a scan would sort all data of the file. */
static void choose_chunks(CommandCtx *ctx, const FileMd5Request *request, QuerySpec *spec) {
    DocBuilder filter = doc_builder_in_arena(cmd_arena(ctx));
    build_elem_as(&filter, STR("files_id"), request->id);
    if (request->start_at > 0) {
        size_t n = build_open_doc(&filter, "n");
        build_i64(&filter, "$gte", request->start_at);
        build_close(&filter, n);
    }
    DocBuilder sort = doc_builder_in_arena(cmd_arena(ctx));
    build_i32(&sort, "files_id", 1);
    build_i32(&sort, "n", 1);
    *spec = (QuerySpec){0};
    query_spec_defaults(ctx, spec);
    spec->filter = doc_builder_end(&filter);
    spec->sort = doc_builder_end(&sort);
    spec->is_table_scan_refused = true;
}

static ErrCode add_chunks(CommandCtx *ctx, const FileMd5Request *request, CollAccess *access,
                          Md5 *md5, int64_t *next, Error *err) {
    QuerySpec spec;
    choose_chunks(ctx, request, &spec);
    CLEANUP(executor_free_ptr) PlanExecutor *exec = NULL;
    TRY(plan_query(access, &spec, &exec, err));
    for (;;) {
        bool is_found;
        PlanRow row;
        TRY(executor_next(exec, &is_found, &row, err));
        if (!is_found)
            return ERR_OK;
        Elem n = doc_get_lit(row.doc, "n");
        if (!elem_is_number(n) || elem_as_i64(n) != *next) {
            if (request->is_partial_ok)
                return ERR_OK;
            return error_set(err, (ErrCode)LOCATION_CHUNKS_OUT_OF_ORDER,
                             "chunk %lld of the file is missing", (long long)*next);
        }
        TRY(add_chunk(md5, row.doc, err));
        ++*next;
    }
}

static ErrCode file_md5_run(CommandCtx *ctx, void *arg, Error *err) {
    const FileMd5Request *request = arg;
    Ns ns;
    Str root = request->root.size > 0 ? request->root : STR("fs");
    TRY(cmd_ns(ctx,
               str_from(arena_printf(cmd_arena(ctx), "%.*s.chunks", (int)root.size, root.data)),
               &ns, err));
    Md5 md5;
    TRY(begin_digest(request, &md5, err));
    int64_t next = request->start_at;
    CLEANUP(access_done) CollAccess access = {0};
    TRY(access_read(ctx->op, &ns, &access, err));
    if (access.coll != NULL)
        TRY(add_chunks(ctx, request, &access, &md5, &next, err));
    if (request->is_partial_ok)
        build_binary(ctx->reply, "md5state", /* subtype= */ 0, &md5, sizeof(md5));
    uint8_t digest[MD5_DIGEST_SIZE];
    md5_end(&md5, digest);
    char hex[2 * MD5_DIGEST_SIZE + 1];
    for (int i = 0; i < MD5_DIGEST_SIZE; i++)
        snprintf(hex + 2 * (size_t)i, 3, "%02x", digest[i]);
    build_count(ctx->reply, "numChunks", next);
    build_cstr(ctx->reply, "md5", hex);
    return ERR_OK;
}

const CommandSpec CMD_FILE_MD5 = {
    .name = "filemd5",
    .summary = "Computes the MD5 of a GridFS file.",
    .flags = CMD_READS | CMD_TAKES_READ_CONCERN,
    .request = REQUEST_OF(FileMd5Request, FILE_MD5_FIELDS),
    .run = file_md5_run,
};
