/*
 * mongoc_txn.c - transactions with libmongoc: mongoc_txn URI of a replica set. Prints what it
 * checked; exit code 0 if all held.
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

typedef struct Transfer {
    mongoc_collection_t *coll;
    bool is_failing;
} Transfer;

static bool add(const Transfer *transfer, mongoc_client_session_t *session, const char *id, int by,
                bson_error_t *error) {
    bson_t opts = BSON_INITIALIZER;
    bool is_ok = mongoc_client_session_append(session, &opts, error);
    bson_t *filter = BCON_NEW("_id", BCON_UTF8(id));
    bson_t *update = BCON_NEW("$inc", "{", "n", BCON_INT32(by), "}");
    is_ok =
        is_ok && mongoc_collection_update_one(transfer->coll, filter, update, &opts, NULL, error);
    bson_destroy(update);
    bson_destroy(filter);
    bson_destroy(&opts);
    return is_ok;
}

static bool run_transfer(mongoc_client_session_t *session, void *arg, bson_t **reply,
                         bson_error_t *error) {
    const Transfer *transfer = arg;
    *reply = NULL;
    if (!add(transfer, session, "a", -1, error) || !add(transfer, session, "b", 1, error))
        return false;
    if (transfer->is_failing)
        bson_set_error(error, MONGOC_ERROR_COMMAND, 1, "changed its mind");
    return !transfer->is_failing;
}

static int amount_of(mongoc_collection_t *coll, const char *id) {
    bson_t *filter = BCON_NEW("_id", BCON_UTF8(id));
    mongoc_cursor_t *cursor = mongoc_collection_find_with_opts(coll, filter, NULL, NULL);
    const bson_t *doc;
    bson_iter_t iter;
    int amount = -1;
    if (mongoc_cursor_next(cursor, &doc) && bson_iter_init_find(&iter, doc, "n"))
        amount = (int)bson_iter_as_int64(&iter);
    mongoc_cursor_destroy(cursor);
    bson_destroy(filter);
    return amount;
}

int main(int argc, char **argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: mongoc_txn URI\n");
        return 2;
    }
    mongoc_init();
    bson_error_t error = {0};
    mongoc_uri_t *uri = mongoc_uri_new_with_error(argv[1], &error);
    check("the URI is one", uri != NULL, &error);
    mongoc_client_t *client = mongoc_client_new_from_uri(uri);
    mongoc_client_set_error_api(client, 2);
    Transfer transfer = {.coll = mongoc_client_get_collection(client, "mongoc_txn", "accounts")};
    bson_t *a = BCON_NEW("_id", "a", "n", BCON_INT32(10));
    bson_t *b = BCON_NEW("_id", "b", "n", BCON_INT32(0));
    check("accounts are made",
          mongoc_collection_insert_one(transfer.coll, a, NULL, NULL, &error) &&
              mongoc_collection_insert_one(transfer.coll, b, NULL, NULL, &error),
          &error);
    mongoc_client_session_t *session = mongoc_client_start_session(client, NULL, &error);
    check("a session begins", session != NULL, &error);
    bson_t reply;
    check("with_transaction commits",
          mongoc_client_session_with_transaction(session, run_transfer, NULL, &transfer, &reply,
                                                 &error),
          &error);
    bson_destroy(&reply);
    check("both accounts have changed",
          amount_of(transfer.coll, "a") == 9 && amount_of(transfer.coll, "b") == 1, NULL);
    transfer.is_failing = true;
    check("a callback that fails ends it",
          !mongoc_client_session_with_transaction(session, run_transfer, NULL, &transfer, &reply,
                                                  &error),
          &error);
    bson_destroy(&reply);
    check("and nothing of it stays",
          amount_of(transfer.coll, "a") == 9 && amount_of(transfer.coll, "b") == 1, NULL);
    mongoc_client_session_destroy(session);
    bson_destroy(b);
    bson_destroy(a);
    mongoc_collection_destroy(transfer.coll);
    mongoc_client_destroy(client);
    mongoc_uri_destroy(uri);
    mongoc_cleanup();
    return 0;
}
