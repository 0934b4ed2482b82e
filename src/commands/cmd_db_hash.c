/* cmd_db_hash.c - dbHash: a checksum of each collection, to compare nodes. */
#include <openssl/evp.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "catalog/access.h"
#include "commands/core/command_service.h"
#include "params/params.h"
#include "commands/query_args.h"

typedef struct DbHashRequest {
    Elem command;
    Doc collections;
    bool is_temp_skipped;
} DbHashRequest;

static const FieldSpec DB_HASH_FIELDS[] = {
    {"dbHash", FIELD_ELEM, FIELD_OPTIONAL, offsetof(DbHashRequest, command)},
    {"dbhash", FIELD_ELEM, FIELD_OPTIONAL, offsetof(DbHashRequest, command)},
    {"collections", FIELD_ARRAY, FIELD_OPTIONAL, offsetof(DbHashRequest, collections)},
    {"skipTempCollections", FIELD_BOOL, FIELD_OPTIONAL, offsetof(DbHashRequest, is_temp_skipped)},
};

typedef struct Names {
    const DbHashRequest *request;
    Ns *rows;
    size_t count;
    size_t capacity;
} Names;

static bool is_wanted(const DbHashRequest *request, const Collection *coll) {
    if (request->is_temp_skipped && coll->options.is_temp)
        return false;
    /* Pre-images expire on each member by itself. */
    if (str_is(ns_coll(&coll->ns), "system.profile") ||
        str_is(ns_str(&coll->ns), "config.system.preimages"))
        return false;
    if (!doc_is_present(request->collections) || doc_is_empty(request->collections))
        return true;
    DocIter iter = doc_iter(request->collections);
    Elem name;
    while (doc_iter_next(&iter, &name))
        if (elem_type(name) == BT_STRING && str_equal(elem_str(name), ns_coll(&coll->ns)))
            return true;
    return false;
}

static bool add_name(void *arg, const Collection *coll) {
    Names *names = arg;
    if (is_wanted(names->request, coll)) {
        ARRAY_RESERVE(names->rows, names->count, names->capacity);
        names->rows[names->count++] = coll->ns;
    }
    return true;
}

static int compare_names(const void *a, const void *b) {
    return strcmp(((const Ns *)a)->text, ((const Ns *)b)->text);
}

static void to_hex(const uint8_t *digest, char out[33]) {
    for (int i = 0; i < 16; i++)
        snprintf(out + 2 * i, 3, "%02x", digest[i]);
}

/* Documents in _id order, or natural order where there is no _id index. */
static ErrCode hash_collection(CommandCtx *ctx, const Ns *ns, EVP_MD_CTX *md, bool *ret_found,
                               bool *ret_capped, Uuid *ret_uuid, Error *err) {
    CollAccess probe = {0};
    TRY(access_read(ctx->op, ns, &probe, err));
    *ret_found = probe.coll != NULL;
    bool has_id_index = *ret_found && collection_id_index(probe.coll) != NULL;
    if (*ret_found) {
        *ret_capped = probe.coll->options.is_capped;
        *ret_uuid = probe.coll->uuid;
    }
    access_done(&probe);
    if (!*ret_found)
        return ERR_OK;
    static const uint8_t ID_HINT[] = {BT_STRING, 0, 5, 0, 0, 0, '_', 'i', 'd', '_', 0};
    /* Members of a set hold the same documents, whoever owns them. */
    QuerySpec spec = {.hint = has_id_index && !*ret_capped ? (Elem){ID_HINT, 0} : ELEM_MISSING,
                      .is_ownership_ignored = true};
    query_spec_defaults(ctx, &spec);
    CLEANUP(find_source_free_ptr) FindSource *source = NULL;
    bool is_view;
    TRY(find_source_open(ctx->op, ns, &spec, &source, &is_view, err));
    while (!is_view) {
        bool is_found;
        PlanRow row;
        TRY(executor_next(source->exec, &is_found, &row, err));
        if (!is_found)
            break;
        EVP_DigestUpdate(md, row.doc.data, doc_size(row.doc));
    }
    return ERR_OK;
}

static ErrCode hash_all(CommandCtx *ctx, const Names *names, EVP_MD_CTX *md, Error *err) {
    DocBuilder *b = ctx->reply;
    EVP_MD_CTX *whole = EVP_MD_CTX_new();
    CLEANUP(xfree_ptr) Uuid *uuids = xcalloc(names->count + 1, sizeof(Uuid));
    CLEANUP(xfree_ptr) bool *capped = xcalloc(names->count + 1, sizeof(bool));
    CLEANUP(xfree_ptr) bool *found = xcalloc(names->count + 1, sizeof(bool));
    EVP_DigestInit_ex(whole, EVP_md5(), NULL);
    ErrCode rc = ERR_OK;
    uint8_t digest[EVP_MAX_MD_SIZE];
    char hex[33];
    size_t opened = build_open_doc(b, "collections");
    for (size_t i = 0; rc == ERR_OK && i < names->count; i++) {
        EVP_DigestInit_ex(md, EVP_md5(), NULL);
        rc = hash_collection(ctx, &names->rows[i], md, &found[i], &capped[i], &uuids[i], err);
        EVP_DigestFinal_ex(md, digest, NULL);
        if (rc != ERR_OK || !found[i])
            continue;
        to_hex(digest, hex);
        build_cstr(b, ns_coll(&names->rows[i]).data, hex);
        EVP_DigestUpdate(whole, ns_coll(&names->rows[i]).data, ns_coll(&names->rows[i]).size);
        EVP_DigestUpdate(whole, hex, 32);
    }
    build_close(b, opened);
    size_t list = build_open_array(b, "capped");
    uint32_t count = 0;
    for (size_t i = 0; i < names->count; i++) {
        char name[INDEX_NAME_SIZE];
        if (capped[i])
            build_str(b, index_name(count++, name).data, ns_coll(&names->rows[i]));
    }
    build_close(b, list);
    size_t ids = build_open_doc(b, "uuids");
    for (size_t i = 0; i < names->count; i++)
        if (found[i])
            build_uuid(b, ns_coll(&names->rows[i]).data, &uuids[i]);
    build_close(b, ids);
    EVP_DigestFinal_ex(whole, digest, NULL);
    EVP_MD_CTX_free(whole);
    to_hex(digest, hex);
    build_cstr(b, "md5", hex);
    return rc;
}

static ErrCode db_hash_run(CommandCtx *ctx, void *arg, Error *err) {
    if (elem_type(((const DbHashRequest *)arg)->command) == BT_STRING)
        return error_set(err, ERR_INVALID_NAMESPACE,
                         "dbHash is of a whole database: its value cannot name a collection");
    DbHashRequest *request = arg;
    int64_t start_us = clock_mono_us();
    TRY(db_name_check(ctx->args.db, err));
    Names names = {.request = request};
    Catalog *catalog = catalog_acquire(ctx->service->catalog);
    catalog_for_each_in_db(catalog, ctx->args.db, add_name, &names);
    catalog_release(catalog);
    if (names.count > 1)
        qsort(names.rows, names.count, sizeof(Ns), compare_names);
    build_cstr(ctx->reply, "host", server_setup(ctx->service)->host);
    EVP_MD_CTX *md = EVP_MD_CTX_new();
    ErrCode rc = hash_all(ctx, &names, md, err);
    EVP_MD_CTX_free(md);
    xfree(names.rows);
    build_count(ctx->reply, "timeMillis", (clock_mono_us() - start_us) / 1000);
    return rc;
}

const CommandSpec CMD_DB_HASH = {
    .name = "dbHash",
    .alias = "dbhash",
    .summary = "Checksums of the collections of a database.",
    .flags = CMD_READS,
    .request = REQUEST_OF(DbHashRequest, DB_HASH_FIELDS),
    .run = db_hash_run,
};
