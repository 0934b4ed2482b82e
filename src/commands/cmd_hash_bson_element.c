/* cmd_hash_bson_element.c - _hashBSONElement: the hash of a value, as hashed indexes have it. */
#include "bson/index_hash.h"
#include "commands/core/command.h"

typedef struct HashRequest {
    Elem key;
    Elem seed;
} HashRequest;

static ErrCode hash_run(CommandCtx *ctx, void *arg, Error *err) {
    const HashRequest *request = arg;
    bool has_seed = elem_is_present(request->seed);
    if (has_seed && !elem_is_number(request->seed))
        return error_set(err, ERR_BAD_VALUE, "seed must be a number");
    int32_t seed = has_seed ? (int32_t)elem_as_i64(request->seed) : 0;
    build_elem_as(ctx->reply, STR("key"), request->key);
    build_i32(ctx->reply, "seed", seed);
    build_i64(ctx->reply, "out", index_hash_seeded(request->key, seed));
    return ERR_OK;
}

static const FieldSpec HASH_FIELDS[] = {
    {"_hashBSONElement", FIELD_ELEM, FIELD_REQUIRED | FIELD_NULL_COUNTS,
     offsetof(HashRequest, key)},
    {"seed", FIELD_ELEM, FIELD_OPTIONAL, offsetof(HashRequest, seed)},
};

const CommandSpec CMD_HASH_BSON_ELEMENT = {
    .name = "_hashBSONElement",
    .summary = "Computes the hash that a hashed index has of a value.",
    .request = REQUEST_OF(HashRequest, HASH_FIELDS),
    .run = hash_run,
};
