/*
 * mongoc_smoke.c - smoke test with libmongoc: mongoc_smoke URI. Prints what it checked; exit code 0
 * if all held. The URI may ask for a compressor, which is how zstd gets tested.
 */
#include <mongoc/mongoc.h>

#include <stdio.h>
#include <stdlib.h>

static void check(const char *claim, bool holds, const bson_error_t *error) {
    if (!holds) {
        fprintf(stderr, "FAILED: %s: %s\n", claim, error != NULL ? error->message : "");
        exit(1);
    }
    printf("ok: %s\n", claim);
}

static void insert_many(mongoc_collection_t *coll, int count) {
    bson_error_t error = {0};
    mongoc_bulk_operation_t *bulk = mongoc_collection_create_bulk_operation_with_opts(coll, NULL);
    for (int i = 0; i < count; i++) {
        bson_t *doc = BCON_NEW(
            "_id", BCON_INT32(i), "s",
            "a text that is long enough to be worth compressing, a text that is long enough");
        mongoc_bulk_operation_insert(bulk, doc);
        bson_destroy(doc);
    }
    check("a bulk insert is stored", mongoc_bulk_operation_execute(bulk, NULL, &error) != 0,
          &error);
    mongoc_bulk_operation_destroy(bulk);
}

static void read_all(mongoc_collection_t *coll, int count) {
    bson_error_t error = {0};
    bson_t *filter = bson_new();
    bson_t *opts = BCON_NEW("batchSize", BCON_INT32(50), "sort", "{", "_id", BCON_INT32(1), "}");
    mongoc_cursor_t *cursor = mongoc_collection_find_with_opts(coll, filter, opts, NULL);
    const bson_t *doc;
    int seen = 0;
    while (mongoc_cursor_next(cursor, &doc)) {
        bson_iter_t iter;
        if (!bson_iter_init_find(&iter, doc, "_id") || bson_iter_int32(&iter) != seen)
            break;
        seen++;
    }
    check("a cursor reads all in order", seen == count && !mongoc_cursor_error(cursor, &error),
          &error);
    mongoc_cursor_destroy(cursor);
    bson_destroy(opts);
    bson_destroy(filter);
}

static void update_and_delete(mongoc_collection_t *coll) {
    bson_error_t error = {0};
    bson_t *filter = BCON_NEW("_id", "{", "$lt", BCON_INT32(10), "}");
    bson_t *update = BCON_NEW("$set", "{", "x", BCON_INT32(1), "}");
    check("updates are done",
          mongoc_collection_update_many(coll, filter, update, NULL, NULL, &error), &error);
    bson_t *touched = BCON_NEW("x", BCON_INT32(1));
    check("they are counted",
          mongoc_collection_count_documents(coll, touched, NULL, NULL, NULL, &error) == 10, &error);
    check("deletes are done", mongoc_collection_delete_many(coll, touched, NULL, NULL, &error),
          &error);
    bson_t *duplicate = BCON_NEW("_id", BCON_INT32(20));
    bool is_stored = mongoc_collection_insert_one(coll, duplicate, NULL, NULL, &error);
    check("a duplicate fails with 11000", !is_stored && error.code == 11000, &error);
    bson_destroy(duplicate);
    bson_destroy(touched);
    bson_destroy(update);
    bson_destroy(filter);
}

int main(int argc, char **argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: mongoc_smoke URI\n");
        return 2;
    }
    mongoc_init();
    bson_error_t error = {0};
    mongoc_uri_t *uri = mongoc_uri_new_with_error(argv[1], &error);
    check("the URI is one", uri != NULL, &error);
    mongoc_client_t *client = mongoc_client_new_from_uri(uri);
    mongoc_client_set_error_api(client, 2);
    bson_t *ping = BCON_NEW("ping", BCON_INT32(1));
    check("ping", mongoc_client_command_simple(client, "admin", ping, NULL, NULL, &error), &error);
    mongoc_collection_t *coll = mongoc_client_get_collection(client, "mongoc", "c");
    mongoc_collection_drop(coll, NULL);
    insert_many(coll, 500);
    read_all(coll, 500);
    update_and_delete(coll);
    check("drop", mongoc_collection_drop(coll, &error), &error);
    mongoc_collection_destroy(coll);
    bson_destroy(ping);
    mongoc_client_destroy(client);
    mongoc_uri_destroy(uri);
    mongoc_cleanup();
    return 0;
}
