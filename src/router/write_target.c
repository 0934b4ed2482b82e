#include "router/write_target.h"

enum { SCRATCH_CHUNK_SIZE = 4096 };

ErrCode write_targeter_init(WriteTargeter *targeter, const ChunkMap *map, Doc collation,
                            Error *err) {
    targeter->map = map;
    key_builder_init(&targeter->key);
    arena_init(&targeter->scratch, SCRATCH_CHUNK_SIZE);
    return doc_is_present(collation) ? collator_parse(collation, &targeter->collator, err) : ERR_OK;
}

void write_targeter_done(WriteTargeter *targeter) {
    if (targeter->map == NULL)
        return;
    shard_key_unref(targeter->id_key);
    key_builder_done(&targeter->key);
    arena_done(&targeter->scratch);
    *targeter = (WriteTargeter){0};
}

ErrCode write_target_insert(WriteTargeter *targeter, Doc doc, WriteTarget *ret_target, Error *err) {
    ret_target->is_single = true;
    return target_doc(targeter->map, doc, &targeter->key, &ret_target->shard, err);
}

/* ---- filters ---- */

/* $expr says nothing about the shard key that targeting uses; the shard parses it. */
static ErrCode judge_nothing(const MatchCustom *custom, Doc doc, bool *ret_is_match, Error *err) {
    (void)custom, (void)doc, (void)ret_is_match, (void)err;
    panic("a filter was evaluated that is only there to be routed by");
}

static ErrCode accept_expr(const MatchExprHook *hook, Elem operand, Arena *arena,
                           MatchCustom **ret_custom, Error *err) {
    (void)hook, (void)operand, (void)err;
    *ret_custom = ARENA_NEW(arena, MatchCustom);
    (*ret_custom)->eval = judge_nothing;
    return ERR_OK;
}

/* A filter and where it leads; in the scratch arena. */
typedef struct FilterTarget {
    Target target;
    MatchExpr *filter;
    bool has_whole_key; /* equality for each field of the shard key */
    bool has_id;        /* goes to several shards, and names one document by its _id */
} FilterTarget;

typedef struct ComparedFields {
    const ShardKeyField *fields;
    uint32_t count;
    uint32_t found; /* a bit for each field */
} ComparedFields;

_Static_assert(KEYSTRING_FIELDS_MAX <= 32, "a bit for each field of a shard key");

static ErrCode note_compared(void *arg, const FieldPath *path, Elem operand, Error *err) {
    (void)operand, (void)err;
    ComparedFields *compared = arg;
    for (uint32_t i = 0; i < compared->count; i++)
        if (str_equal(compared->fields[i].path, path->dotted))
            compared->found |= 1u << i;
    return ERR_OK;
}

/* Null equals several keys, which may all be on one shard. */
static bool compares_whole_key(const WriteTargeter *targeter, const MatchExpr *filter) {
    ComparedFields compared = {0};
    compared.fields = shard_key_fields(chunk_map_key(targeter->map), &compared.count);
    Error err = {0};
    bool is_walked = match_equalities(filter, note_compared, &compared, &err) == ERR_OK;
    return is_walked && compared.found == (uint32_t)((UINT64_C(1) << compared.count) - 1);
}

static ErrCode ensure_id_key(WriteTargeter *targeter, Error *err) {
    if (targeter->id_key != NULL)
        return ERR_OK;
    DocBuilder b = doc_builder_in_arena(&targeter->scratch);
    build_i32(&b, "_id", 1);
    return shard_key_parse(doc_builder_end(&b), &targeter->id_key, err);
}

/* Does the filter name one document? By the default collation the index on _id has one entry for
 * each. */
static ErrCode find_id(WriteTargeter *targeter, const Collator *collator, FilterTarget *found,
                       Error *err) {
    if (shard_set_size(&found->target.shards) <= 1 || collator != targeter->collator)
        return ERR_OK;
    TRY(ensure_id_key(targeter, err));
    Doc id;
    found->has_id =
        shard_key_of_filter(targeter->id_key, found->filter, NULL, &targeter->scratch, &id);
    return ERR_OK;
}

static ErrCode target_query(WriteTargeter *targeter, Doc query, bool has_collation,
                            const Collator *given, FilterTarget *ret, Error *err) {
    static const MatchExprHook HOOK = {accept_expr};
    Arena *scratch = &targeter->scratch;
    arena_reset(scratch);
    const Collator *collator = has_collation ? given : targeter->collator;
    *ret = (FilterTarget){0};
    if (target_try_values(targeter->map, query, collator, scratch, &ret->target)) {
        ret->has_whole_key = true;
        return ERR_OK;
    }
    MatchParseContext parse = {.collator = collator, .expr_hook = &HOOK};
    TRY(match_parse(query, &parse, scratch, &ret->filter, err));
    TRY(target_filter(targeter->map, ret->filter, collator, /* ts= */ 0, scratch, &ret->target,
                      err));
    uint32_t count = shard_set_size(&ret->target.shards);
    ret->has_whole_key =
        ret->target.is_single_key || (count == 1 && compares_whole_key(targeter, ret->filter));
    return find_id(targeter, collator, ret, err);
}

static ShardIndex first_of(const ShardSet *set) {
    ShardIndex i = 0;
    while (i < set->count && !shard_set_has(set, i))
        i++;
    return i;
}

/* A filter that nothing can match goes to some shard, which says what is wrong with the statement.
 */
static WriteTarget target_of(const WriteTargeter *targeter, const ShardSet *set) {
    uint32_t count = shard_set_size(set);
    if (count == 0)
        return (WriteTarget){true, chunk_map_owner(targeter->map, chunk_map_first(targeter->map))};
    return (WriteTarget){count == 1, first_of(set)};
}

/* ---- statements ---- */

static bool is_replacement(Elem update) {
    if (elem_type(update) != BT_DOC)
        return false;
    DocIter iter = doc_iter(elem_doc(update));
    Elem first;
    return !doc_iter_next(&iter, &first) || elem_name(first)[0] != '$';
}

/* A replacement has the shard key of what it replaces, unless it moves it. Its _id may be left out:
 * that of the old document stays. */
static bool target_replacement(WriteTargeter *targeter, Elem update, ShardIndex *ret_shard) {
    if (!is_replacement(update))
        return false;
    Doc doc = elem_doc(update);
    if (shard_key_touches(chunk_map_key(targeter->map), STR("_id")) &&
        !elem_is_present(doc_get_lit(doc, "_id")))
        return false;
    Error err = {0};
    bool is_found = target_doc(targeter->map, doc, &targeter->key, ret_shard, &err) == ERR_OK;
    error_reset(&err);
    return is_found;
}

static ErrCode refuse_upsert(Error *err) {
    return error_set(err, ERR_SHARD_KEY_NOT_FOUND,
                     "an upsert into a sharded collection needs the whole shard key in its filter");
}

ErrCode write_target_update(WriteTargeter *targeter, const UpdateStatement *statement,
                            WriteTarget *ret_target, Error *err) {
    if (statement->is_multi && is_replacement(statement->u))
        return error_set(err, ERR_INVALID_OPTIONS,
                         "an update of a sharded collection with multi takes operators or a "
                         "pipeline, not a whole document");
    FilterTarget found;
    TRY(target_query(targeter, statement->q, statement->has_collation, statement->collator, &found,
                     err));
    if (statement->is_upsert && !found.has_whole_key)
        return refuse_upsert(err);
    uint32_t count = shard_set_size(&found.target.shards);
    if (!statement->is_multi && count > 1) {
        ret_target->is_single = target_replacement(targeter, statement->u, &ret_target->shard);
        if (ret_target->is_single)
            return ERR_OK;
        if (!found.has_id)
            return error_set(err, ERR_INVALID_OPTIONS,
                             "an update of one document of a sharded collection needs the shard "
                             "key or the exact _id in its filter: this one may concern %u shards",
                             count);
    }
    *ret_target = target_of(targeter, &found.target.shards);
    return ERR_OK;
}

ErrCode write_target_delete(WriteTargeter *targeter, const DeleteStatement *statement,
                            WriteTarget *ret_target, Error *err) {
    FilterTarget found;
    TRY(target_query(targeter, statement->q, statement->has_collation, statement->collator, &found,
                     err));
    uint32_t count = shard_set_size(&found.target.shards);
    if (statement->limit == 1 && count > 1 && !found.has_id)
        return error_set(err, ERR_SHARD_KEY_NOT_FOUND,
                         "a delete of one document of a sharded collection needs the shard key or "
                         "the exact _id in its filter: this one may concern %u shards",
                         count);
    *ret_target = target_of(targeter, &found.target.shards);
    return ERR_OK;
}

ErrCode write_target_modify(WriteTargeter *targeter, const FindAndModifyRequest *request,
                            ShardIndex *ret_shard, Error *err) {
    bool has_collation;
    const Collator *collator;
    TRY(request_collation(request->collation, &has_collation, &collator, err));
    FilterTarget found;
    Doc query = doc_is_present(request->query) ? request->query : DOC_EMPTY;
    TRY(target_query(targeter, query, has_collation, collator, &found, err));
    if (request->is_upsert && !found.has_whole_key)
        return refuse_upsert(err);
    uint32_t count = shard_set_size(&found.target.shards);
    if (count > 1)
        return error_set(err, ERR_SHARD_KEY_NOT_FOUND,
                         "findAndModify of a sharded collection needs the shard key in its query: "
                         "this one may concern %u shards",
                         count);
    *ret_shard = target_of(targeter, &found.target.shards).shard;
    return ERR_OK;
}
